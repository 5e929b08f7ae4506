//! Reading the fields of policy objects. Enters: JSON; leaves: typed parts, or what is malformed about them. An
//! absent field and an explicit `null` are the same, as for the Kubernetes API.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::Value;

/// What makes a policy unreadable.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Malformed(pub(super) String);

pub(super) type Read<T> = Result<T, Malformed>;

pub(super) fn malformed<T>(reason: impl Into<String>) -> Read<T> {
    Err(Malformed(reason.into()))
}

fn field<'a, T>(
    value: &'a Value,
    name: &str,
    what: &str,
    read: impl Fn(&'a Value) -> Option<T>,
) -> Read<Option<T>> {
    match value.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(found) => read(found).map(Some).ok_or_else(|| Malformed(format!("{name} is not {what}"))),
    }
}

pub(super) fn list<'a>(value: &'a Value, name: &str) -> Read<Option<&'a [Value]>> {
    field(value, name, "a list", |v| v.as_array().map(Vec::as_slice))
}

/// The items of a list that may be absent.
pub(super) fn items<'a>(value: &'a Value, name: &str) -> Read<&'a [Value]> {
    Ok(list(value, name)?.unwrap_or_default())
}

pub(super) fn object<'a>(value: &'a Value, name: &str) -> Read<Option<&'a Value>> {
    field(value, name, "an object", |v| v.is_object().then_some(v))
}

pub(super) fn text<'a>(value: &'a Value, name: &str) -> Read<Option<&'a str>> {
    field(value, name, "a string", Value::as_str)
}

pub(super) fn flag(value: &Value, name: &str) -> Read<Option<bool>> {
    field(value, name, "true or false", Value::as_bool)
}

/// A port number, 0 included.
pub(super) fn port(value: &Value, name: &str) -> Read<Option<u16>> {
    field(value, name, "a port number", |v| u16::try_from(v.as_u64()?).ok())
}

/// Strings in a list.
pub(super) fn texts<'a>(values: &'a [Value], what: &str) -> Read<Vec<&'a str>> {
    let text = |v: &'a Value| {
        v.as_str().ok_or_else(|| Malformed(format!("{what} has an entry that is not a string")))
    };
    values.iter().map(text).collect()
}

/// A network in CIDR notation.
pub(super) fn network(text: &str) -> Read<IpNet> {
    text.parse().map_err(|_| Malformed(format!("{text:?} is not a CIDR")))
}

/// A network in CIDR notation or a single address.
pub(super) fn network_or_address(text: &str) -> Read<IpNet> {
    match text.parse::<IpAddr>() {
        Ok(address) => Ok(IpNet::from(address)),
        Err(_) => network(text),
    }
}

/// A network with holes. A hole outside of the network is an error in every API that has them.
pub(super) fn network_with_holes(value: &Value) -> Read<(IpNet, Vec<IpNet>)> {
    let Some(cidr) = text(value, "cidr")? else { return malformed("cidr is missing") };
    let net = network(cidr)?;
    let holes = texts(items(value, "except")?, "except")?;
    let holes = holes.into_iter().map(network).collect::<Read<Vec<_>>>()?;
    match holes.iter().find(|hole| !net.contains(&hole.addr())) {
        Some(hole) => malformed(format!("except {hole} is not in {net}")),
        None => Ok((net, holes)),
    }
}

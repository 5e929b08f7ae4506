//! AdminNetworkPolicy and BaselineAdminNetworkPolicy, `policy.networking.k8s.io/v1alpha1`. Enters: the object; leaves:
//! a [`Policy`] of ordered rules that does not isolate (network-policy-api, `apis/v1alpha1`).

use serde_json::Value;

use super::answer::{Direction, PolicyKind, PolicyRef};
use super::builder::{Builder, is_port_name, port_number, protocol};
use super::field::{Read, items, malformed, network, object, port, text};
use super::model::{
    Action, Block, Doubt, Inside, PeerTerm, Policy, PortMatch, PortTerm, Range, Rule, Section,
};
use super::model::{Subject, Tier, Transport};
use super::selector::{Attribute, Selector, Truth, read_required, read_selector};
use crate::object::Object;

/// The API's highest priority number.
const LAST_PRIORITY: u16 = 1000;

/// Compiles an object.
pub(super) fn compile(object: &Object, reference: &PolicyRef, builder: &mut Builder<'_>) -> Read<Policy> {
    let Some(spec) = super::field::object(object.value(), "spec")? else { return malformed("no spec") };
    let subject = subject(spec, builder)?;
    let tier = tier(spec, reference)?;
    Ok(Policy {
        reference: reference.clone(),
        tier,
        subject: Subject::Endpoints(subject),
        ingress: section(spec, Direction::Ingress, tier, builder)?,
        egress: section(spec, Direction::Egress, tier, builder)?,
        unreadable: false,
    })
}

/// Whom an object selects of which something is malformed.
pub(super) fn suspects(object: &Object, builder: &mut Builder<'_>) -> Subject {
    let spec = object.value().get("spec").unwrap_or(&Value::Null);
    let everything = builder.kubernetes(None, None, None);
    Subject::Endpoints(subject(spec, builder).unwrap_or(everything))
}

fn tier(spec: &Value, reference: &PolicyRef) -> Read<Tier> {
    match reference.kind {
        PolicyKind::AdminNetworkPolicy => match port(spec, "priority")? {
            Some(priority) if priority <= LAST_PRIORITY => Ok(Tier::Admin(priority)),
            _ => malformed(format!("priority is not in 0-{LAST_PRIORITY}")),
        },
        _ if reference.name == "default" => Ok(Tier::Baseline),
        _ => malformed("a BaselineAdminNetworkPolicy must be named default"),
    }
}

fn subject(spec: &Value, builder: &mut Builder<'_>) -> Read<Selector> {
    match object(spec, "subject")? {
        Some(subject) => match pods(subject, builder)? {
            Some(selector) => Ok(selector),
            None => malformed("subject has neither namespaces nor pods"),
        },
        None => malformed("no subject"),
    }
}

/// `namespaces` or `pods`, exactly one of them.
fn pods(value: &Value, builder: &mut Builder<'_>) -> Read<Option<Selector>> {
    match (object(value, "namespaces")?, object(value, "pods")?) {
        (Some(namespaces), None) => {
            let namespaces = read_selector(namespaces)?;
            Ok(Some(builder.kubernetes(None, Some(namespaces), None)))
        }
        (None, Some(pods)) => {
            let namespaces = read_required(pods, "namespaceSelector")?;
            let pods = read_required(pods, "podSelector")?;
            Ok(Some(builder.kubernetes(Some(pods), Some(namespaces), None)))
        }
        (None, None) => Ok(None),
        (Some(_), Some(_)) => malformed("both namespaces and pods"),
    }
}

fn section(spec: &Value, direction: Direction, tier: Tier, builder: &mut Builder<'_>) -> Read<Section> {
    let values = items(spec, direction.as_str())?.iter();
    let rules = values.map(|value| rule(value, direction, tier, builder)).collect::<Read<Vec<_>>>()?;
    Ok(Section { isolates: Truth::No, requires: false, rules })
}

fn rule(value: &Value, direction: Direction, tier: Tier, builder: &mut Builder<'_>) -> Read<Rule> {
    let action = match text(value, "action")? {
        Some("Allow") => Action::Allow,
        Some("Deny") => Action::Deny,
        Some("Pass") if tier != Tier::Baseline => Action::Pass,
        other => return malformed(format!("action {:?}", other.unwrap_or_default())),
    };
    let peers = match direction {
        Direction::Ingress => items(value, "from")?,
        Direction::Egress => items(value, "to")?,
    };
    if peers.is_empty() {
        return malformed("a rule without peers");
    }
    let peers = peers.iter().map(|v| peer(v, direction, builder)).collect::<Read<Vec<_>>>()?;
    let ports = match items(value, "ports")? {
        [] => PortMatch::All,
        ports => PortMatch::Terms(ports.iter().map(|v| port_term(v, builder)).collect::<Read<Vec<_>>>()?),
    };
    Ok(Rule::new(action, peers.into_iter().flatten().collect(), ports))
}

/// Networks match addresses inside of the cluster as well (API text of `networks`).
fn peer(value: &Value, direction: Direction, builder: &mut Builder<'_>) -> Read<Vec<PeerTerm>> {
    if let Some(selector) = pods(value, builder)? {
        return Ok(vec![PeerTerm::Matching(selector)]);
    }
    if direction == Direction::Egress {
        if let Some(nodes) = object(value, "nodes")? {
            let labels = read_selector(nodes)?.into_iter();
            let labels = labels.map(|(key, test)| (Attribute::NodeLabel(key), test));
            return Ok(vec![PeerTerm::Nodes(builder.table.selector(labels))]);
        }
        if !items(value, "domainNames")?.is_empty() {
            return Ok(vec![PeerTerm::Doubtful(Range::Outside, Doubt::Fqdn)]);
        }
        let networks = super::field::texts(items(value, "networks")?, "networks")?;
        let block = |text: &str| Ok(Block { net: network(text)?, holes: Vec::new(), inside: Inside::Always });
        let blocks = networks.into_iter().map(block).collect::<Read<Vec<_>>>()?;
        if !blocks.is_empty() {
            return Ok(blocks.into_iter().map(|block| PeerTerm::Block(builder.block(block))).collect());
        }
    }
    malformed("a peer that is not one of the known kinds")
}

/// A named port is resolved on the destination pod, whatever its protocol.
fn port_term(value: &Value, builder: &mut Builder<'_>) -> Read<(Transport, PortTerm)> {
    if let Some(one) = object(value, "portNumber")? {
        let number = port_number(one, "port")?;
        return Ok((Transport::Only(protocol(one)?), PortTerm::Numbers(number, number)));
    }
    if let Some(range) = object(value, "portRange")? {
        let (start, end) = (port_number(range, "start")?, port_number(range, "end")?);
        return match start <= end {
            true => Ok((Transport::Only(protocol(range)?), PortTerm::Numbers(start, end))),
            false => malformed(format!("port range {start}-{end}")),
        };
    }
    match text(value, "namedPort")? {
        Some(name) if is_port_name(name) => Ok((Transport::WithPorts, PortTerm::Named(builder.name(name)))),
        _ => malformed("a port that is not one of the known kinds"),
    }
}

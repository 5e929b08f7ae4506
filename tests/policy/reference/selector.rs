//! Label selectors and address blocks. Enters: selectors as printed, labels as lists; leaves: whether they match.
//! Must not know policies.

use std::net::IpAddr;

use serde_json::Value;

use super::{End, Tri, World, list, text};

/// A label: its source (`k8s`, `reserved`), key and value (Cilium: "labels", concepts/terminology).
pub(crate) struct Label {
    pub(crate) source: &'static str,
    pub(crate) key: String,
    pub(crate) value: String,
}

/// The requirements of a selector, `matchLabels` and `matchExpressions` alike: key, operator, values. An absent or
/// empty selector has none and matches everything (LabelSelector: "an empty label selector matches all objects").
pub(crate) fn requirements(selector: &Value) -> Vec<(String, String, Vec<String>)> {
    let mut all = Vec::new();
    for (key, value) in selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
        all.push((key.clone(), "In".to_owned(), vec![value.as_str().unwrap_or_default().to_owned()]));
    }
    for expression in list(selector, "matchExpressions").into_iter().flatten() {
        let values = list(expression, "values").into_iter().flatten().filter_map(Value::as_str);
        all.push((
            text(expression, "/key").to_owned(),
            text(expression, "/operator").to_owned(),
            values.map(str::to_owned).collect(),
        ));
    }
    all
}

/// LabelSelectorRequirement: In and Exists need the key; NotIn and DoesNotExist also hold when the key is absent.
fn holds(value: Option<&str>, operator: &str, values: &[String]) -> bool {
    match operator {
        "In" => value.is_some_and(|v| values.iter().any(|wanted| wanted == v)),
        "NotIn" => value.is_none_or(|v| values.iter().all(|wanted| wanted != v)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        other => panic!("the worlds have no operator {other}"),
    }
}

/// A Kubernetes selector over labels without sources.
pub(crate) fn selects(selector: &Value, labels: &[(String, String)]) -> bool {
    requirements(selector).iter().all(|(key, operator, values)| {
        let value = labels.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str());
        holds(value, operator, values)
    })
}

/// A Cilium selector's key: `source:key`; without a source, or with `any`, it matches labels of every source
/// (Cilium, "Endpoint selector": the default source is `any`).
pub(crate) fn split_key(key: &str) -> (Option<&str>, &str) {
    match key.split_once(':') {
        Some(("any", rest)) => (None, rest),
        Some((source, rest)) => (Some(source), rest),
        None => (None, key),
    }
}

/// Cilium requirements over an identity's labels.
pub(crate) fn identity_meets(wanted: &[(String, String, Vec<String>)], identity: &[Label]) -> bool {
    wanted.iter().all(|(key, operator, values)| {
        let (source, key) = split_key(key);
        let found = identity.iter().find(|l| l.key == key && source.is_none_or(|s| s == l.source));
        holds(found.map(|l| l.value.as_str()), operator, values)
    })
}

/// `metadata.labels` as a list.
pub(crate) fn labels(object: &Value) -> Vec<(String, String)> {
    let map = object.pointer("/metadata/labels").and_then(Value::as_object);
    map.into_iter().flatten().map(|(k, v)| (k.clone(), v.as_str().unwrap_or_default().to_owned())).collect()
}

/// A namespace's labels; `kubernetes.io/metadata.name` is always there (well-known labels: set by the API server).
pub(crate) fn namespace_labels(world: &World, name: &str) -> Vec<(String, String)> {
    let namespace =
        world.objects.iter().find(|o| text(o, "/kind") == "Namespace" && text(o, "/metadata/name") == name);
    let mut all = namespace.map(labels).unwrap_or_default();
    all.retain(|(key, _)| key != "kubernetes.io/metadata.name");
    all.push(("kubernetes.io/metadata.name".to_owned(), name.to_owned()));
    all
}

/// Whether an address lies in a block; a bare address is a block of one (Cilium CRD: CIDR). Bit by bit.
pub(crate) fn contains(block: &str, ip: IpAddr) -> bool {
    let (base, length) = match block.split_once('/') {
        Some((base, length)) => (base, length.parse().unwrap_or(u8::MAX)),
        None => (block, u8::MAX),
    };
    let bits = |ip: IpAddr| -> Vec<bool> {
        let bytes = match ip {
            IpAddr::V4(v4) => v4.octets().to_vec(),
            IpAddr::V6(v6) => v6.octets().to_vec(),
        };
        bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1 == 1)).collect()
    };
    let Ok(base) = base.parse::<IpAddr>() else { panic!("the worlds have no block {block}") };
    base.is_ipv4() == ip.is_ipv4()
        && bits(base).iter().zip(bits(ip)).take(length.into()).all(|(a, b)| *a == b)
}

/// An address block with exceptions; an address that is not known may or may not lie in it.
pub(crate) fn in_block(block: &str, except: Option<&Vec<Value>>, ip: Option<IpAddr>) -> Tri {
    let Some(ip) = ip else { return Tri::Maybe };
    let mut exceptions = except.into_iter().flatten().filter_map(Value::as_str);
    Tri::from(contains(block, ip) && !exceptions.any(|block| contains(block, ip)))
}

/// A pod as an [`End`].
pub(crate) fn end_of(pod: &Value) -> End {
    End::Pod {
        namespace: text(pod, "/metadata/namespace").to_owned(),
        name: text(pod, "/metadata/name").to_owned(),
    }
}

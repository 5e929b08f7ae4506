//! Whether a node would take a pod. Enters: a pod's spec and a node; leaves: [`Fit`]. Knows the scheduler's hard rules
//! about one node (selector, required node affinity, taints, accelerators); must not know other pods.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::facts::{Node, Taint, is_accelerator, quantity};
use crate::object::string_map;

/// Whether a node would take a pod, or the first thing that keeps it off.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fit {
    /// It would, as far as can be known.
    Fits,
    /// The pod's `nodeName` is another node's.
    OtherNode,
    /// `nodeSelector` or required node affinity exclude the node.
    Excluded,
    /// A taint that the pod does not tolerate.
    Tainted(Taint),
    /// The node is cordoned.
    Cordoned,
    /// The pod asks for more of an accelerator than the node has in all.
    Lacks(String),
}

/// Whether `node` would take a pod with this `spec`. A node whose `allocatable` is not told may have anything.
///
/// A taint named like a resource that the pod asks for counts as tolerated: where GPU nodes are tainted so, admission
/// adds the toleration (Kubernetes, `ExtendedResourceToleration`), or the pod could run nowhere.
#[must_use]
pub fn fit(spec: &Value, node: &Node) -> Fit {
    let named = spec.get("nodeName").and_then(Value::as_str).filter(|name| !name.is_empty());
    if named.is_some_and(|name| name != node.name) {
        return Fit::OtherNode;
    }
    let selector = string_map(spec.get("nodeSelector"));
    let selected = selector.iter().all(|(key, value)| node.labels.get(key) == Some(value));
    let required = spec.pointer("/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution");
    if !selected || !required.is_none_or(|required| affine(required, node)) {
        return Fit::Excluded;
    }
    let wanted = accelerators(spec);
    let hard = |taint: &&Taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute");
    let tolerated = |taint: &&Taint| wanted.contains_key(taint.key.as_str()) || tolerates(spec, taint);
    if let Some(taint) = node.taints.iter().filter(hard).find(|taint| !tolerated(taint)) {
        return Fit::Tainted(taint.clone());
    }
    let cordon = Taint {
        key: "node.kubernetes.io/unschedulable".to_owned(),
        value: String::new(),
        effect: "NoSchedule".to_owned(),
    };
    if node.unschedulable && !tolerates(spec, &cordon) {
        return Fit::Cordoned;
    }
    if !node.allocatable.is_empty() {
        let has =
            |name: &str| node.allocatable.get(name).and_then(|n| n.trim().parse::<u32>().ok()).unwrap_or(0);
        if let Some((name, _)) = wanted.iter().find(|(name, count)| has(name) < **count) {
            return Fit::Lacks((*name).to_owned());
        }
    }
    Fit::Fits
}

/// The accelerators that a pod's containers ask for, by resource.
pub(super) fn accelerators(spec: &Value) -> BTreeMap<&str, u32> {
    let mut wanted: BTreeMap<&str, u32> = BTreeMap::new();
    for container in spec.get("containers").and_then(Value::as_array).into_iter().flatten() {
        let mut own: BTreeMap<&str, u32> = BTreeMap::new();
        for section in ["/resources/limits", "/resources/requests"] {
            let resources = container.pointer(section).and_then(Value::as_object);
            for (name, count) in resources.into_iter().flatten().filter(|(name, _)| is_accelerator(name)) {
                let most = own.entry(name).or_default();
                *most = quantity(count).unwrap_or(0).max(*most);
            }
        }
        for (name, count) in own.into_iter().filter(|(_, count)| *count > 0) {
            let sum = wanted.entry(name).or_default();
            *sum = sum.saturating_add(count);
        }
    }
    wanted
}

/// Terms are alternatives; a term without requirements matches nothing.
fn affine(required: &Value, node: &Node) -> bool {
    let terms = required.get("nodeSelectorTerms").and_then(Value::as_array);
    terms.into_iter().flatten().any(|term| {
        let of = |field: &str| term.get(field).and_then(Value::as_array).into_iter().flatten();
        let told = of("matchExpressions").chain(of("matchFields")).next().is_some();
        let named = |key: &str| (key == "metadata.name").then_some(node.name.as_str());
        told && of("matchExpressions").all(|e| holds(e, |key| node.labels.get(key).map(String::as_str)))
            && of("matchFields").all(|e| holds(e, named))
    })
}

/// One requirement of a node selector (Kubernetes API, `NodeSelectorRequirement`).
fn holds<'n>(requirement: &Value, lookup: impl Fn(&str) -> Option<&'n str>) -> bool {
    let Some(key) = requirement.get("key").and_then(Value::as_str) else { return false };
    let values: Vec<&str> = requirement
        .get("values")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let value = lookup(key);
    let number = || Some((value?.parse::<i64>().ok()?, values.first()?.parse::<i64>().ok()?));
    match requirement.get("operator").and_then(Value::as_str) {
        Some("In") => value.is_some_and(|value| values.contains(&value)),
        Some("NotIn") => value.is_none_or(|value| !values.contains(&value)),
        Some("Exists") => value.is_some(),
        Some("DoesNotExist") => value.is_none(),
        Some("Gt") => number().is_some_and(|(value, bound)| value > bound),
        Some("Lt") => number().is_some_and(|(value, bound)| value < bound),
        _ => false,
    }
}

fn tolerates(spec: &Value, taint: &Taint) -> bool {
    let tolerations = spec.get("tolerations").and_then(Value::as_array);
    tolerations.into_iter().flatten().any(|toleration| {
        let text = |field: &str| toleration.get(field).and_then(Value::as_str).unwrap_or_default();
        let effect = text("effect").is_empty() || text("effect") == taint.effect;
        let exists = text("operator") == "Exists";
        let key = text("key") == taint.key || (text("key").is_empty() && exists);
        let equal = matches!(text("operator"), "" | "Equal") && text("value") == taint.value;
        effect && key && (exists || equal)
    })
}

//! Where rewritten pods would run. Enters: objects and which pods to place; leaves: those pods on nodes. A stand-in for
//! the scheduler's hard rules, deterministic: pods that may stay do. Must not know policies.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::facts::{Node, Pod};
use crate::object::{Labels, Object};
use crate::workload::fit::{Fit, accelerators, fit};
use crate::workload::selector::term_selects;

/// A pod while places are looked for.
struct Placed {
    namespace: String,
    labels: Labels,
    node: Option<String>,
    wanted: BTreeMap<String, u32>,
}

/// Places the pods at these positions of `objects`; those without a node were not running and stay so.
pub(super) fn settle(objects: &mut [Option<Object>], moved: &[usize]) {
    let nodes: Vec<Node> = objects.iter().flatten().filter_map(Node::from_object).collect();
    if nodes.is_empty() {
        return;
    }
    let mut pods: BTreeMap<usize, Placed> = BTreeMap::new();
    for (at, object) in objects.iter().enumerate() {
        if let Some(pod) = object.as_ref().and_then(running) {
            pods.insert(at, pod);
        }
    }
    // Twice: the first round moves what its own rules move, the second what follows it by affinity.
    for _ in 0..2 {
        for &at in moved {
            let Some(spec) = objects.get(at).and_then(Option::as_ref).and_then(|o| o.value().get("spec"))
            else {
                continue;
            };
            let Some(pod) = pods.get(&at).filter(|pod| pod.node.is_some()) else { continue };
            let place = best(at, spec, pod, &pods, &nodes);
            if let Some(pod) = pods.get_mut(&at)
                && place != pod.node
            {
                pod.node = place.or_else(|| Some(String::new()));
            }
        }
    }
    for &at in moved {
        let node = pods.get(&at).and_then(|pod| pod.node.clone());
        if let (Some(slot), Some(node)) = (objects.get_mut(at), node) {
            *slot = slot.take().map(|object| on_node(object, &node));
        }
    }
}

fn running(object: &Object) -> Option<Placed> {
    let pod = Pod::from_object(object)?;
    let finished = matches!(pod.phase, crate::facts::Phase::Succeeded | crate::facts::Phase::Failed);
    let spec = object.value().get("spec")?;
    (!finished).then(|| Placed {
        wanted: accelerators(spec).into_iter().map(|(name, count)| (name.to_owned(), count)).collect(),
        namespace: pod.namespace,
        labels: pod.labels,
        node: pod.node,
    })
}

/// The node for a pod: its own if that will do, else the first that will.
fn best(
    at: usize,
    spec: &Value,
    pod: &Placed,
    pods: &BTreeMap<usize, Placed>,
    nodes: &[Node],
) -> Option<String> {
    let mut bare = spec.clone();
    if let Some(spec) = bare.as_object_mut() {
        spec.remove("nodeName");
    }
    let allowed: Vec<&Node> = nodes.iter().filter(|node| fit(&bare, node) == Fit::Fits).collect();
    let allowed = together(&bare, pod, pods, allowed, nodes);
    let own = allowed.iter().find(|node| Some(&node.name) == pod.node.as_ref());
    let free = |node: &&&Node| {
        pod.wanted.iter().all(|(resource, count)| {
            let total = node.allocatable.get(resource).and_then(|n| n.trim().parse::<u32>().ok());
            let others =
                pods.iter().filter(|(other, p)| **other != at && p.node.as_ref() == Some(&node.name));
            let used =
                others.filter_map(|(_, p)| p.wanted.get(resource)).fold(0_u32, |a, b| a.saturating_add(*b));
            total.is_none_or(|total| total.saturating_sub(used) >= *count)
        })
    };
    own.or_else(|| allowed.iter().find(free)).map(|node| node.name.clone())
}

/// The nodes in the domains that the pod's required affinity to other pods allows. Where those are spread over several,
/// the one with the most accelerators in use counts: the others are to come there too.
fn together<'n>(
    spec: &Value,
    pod: &Placed,
    pods: &BTreeMap<usize, Placed>,
    mut allowed: Vec<&'n Node>,
    nodes: &[Node],
) -> Vec<&'n Node> {
    let terms = spec.pointer("/affinity/podAffinity/requiredDuringSchedulingIgnoredDuringExecution");
    for term in terms.and_then(Value::as_array).into_iter().flatten() {
        let Some(key) = term.get("topologyKey").and_then(Value::as_str) else { continue };
        let domains: BTreeSet<&str> =
            allowed.iter().filter_map(|node| node.labels.get(key)).map(String::as_str).collect();
        let mut weight: BTreeMap<&str, u64> = BTreeMap::new();
        for other in pods.values().filter(|other| in_scope(term, pod, other)) {
            let node = nodes.iter().find(|node| Some(&node.name) == other.node.as_ref());
            let Some(domain) = node.and_then(|node| node.labels.get(key)) else { continue };
            if domains.contains(domain.as_str()) {
                let devices: u64 = other.wanted.values().map(|count| u64::from(*count)).sum();
                *weight.entry(domain).or_default() += devices * 1_000 + 1;
            }
        }
        let first = weight.iter().max_by(|a, b| a.1.cmp(b.1).then(b.0.cmp(a.0))).map(|(domain, _)| *domain);
        if let Some(domain) = first {
            allowed.retain(|node| node.labels.get(key).is_some_and(|d| d == domain));
        }
    }
    allowed
}

fn in_scope(term: &Value, pod: &Placed, other: &Placed) -> bool {
    let namespaces = term.get("namespaces").and_then(Value::as_array).filter(|list| !list.is_empty());
    let near = match namespaces {
        Some(list) => list.iter().any(|name| name.as_str() == Some(other.namespace.as_str())),
        None => other.namespace == pod.namespace,
    };
    near && term_selects(term, &pod.labels, &other.labels)
}

/// The pod on this node; on none when the name is empty.
fn on_node(object: Object, node: &str) -> Object {
    let mut value = object.clone().into_value();
    if let Some(spec) = value.get_mut("spec").and_then(Value::as_object_mut) {
        if node.is_empty() {
            spec.remove("nodeName");
        } else {
            spec.insert("nodeName".to_owned(), Value::from(node));
        }
    }
    Object::from_value(value).unwrap_or(object)
}

//! networking.k8s.io NetworkPolicy. Enters: one policy and one connection; leaves: whether the policy isolates the
//! subject in that direction and whether a rule of it matches. Must not know how several policies combine.

use std::net::IpAddr;

use serde_json::Value;

use super::selector::{in_block, labels, namespace_labels, selects};
use super::{Connection, Direction, Peer, Plugin, Tri, cilium, declares, list, text};

/// The labels by which pods are selected. Under Cilium NetworkPolicies become Cilium rules over identities, so labels
/// that are kept out of identities are not seen (Cilium, "Limiting Identity-Relevant Labels").
fn pod_labels(connection: &Connection<'_>, pod: &Value) -> Vec<(String, String)> {
    let mut all = labels(pod);
    if connection.world.plugin == Plugin::Cilium {
        all.retain(|(key, _)| cilium::identity_relevant(key, connection.world.version));
    }
    all
}

/// Whether the policy isolates the subject in this direction: it lives in the same namespace, its `podSelector` matches
/// and it has the policy type.
pub(crate) fn isolates(policy: &Value, connection: &Connection<'_>) -> bool {
    let spec = &policy["spec"];
    text(policy, "/metadata/namespace") == text(connection.subject, "/metadata/namespace")
        && selects(&spec["podSelector"], &pod_labels(connection, connection.subject))
        && has_type(spec, connection.direction)
}

/// NP, policyTypes: "if not specified, it will default based on the existence of ingress or egress rules; policies that
/// contain an egress section are assumed to affect egress, and all policies are assumed to affect ingress". The API
/// server's defaulting counts egress rules, so an empty list is no section (pkg/apis/networking/v1/defaults.go).
fn has_type(spec: &Value, direction: Direction) -> bool {
    match list(spec, "policyTypes").filter(|types| !types.is_empty()) {
        Some(types) => {
            let wanted = if direction == Direction::Egress { "Egress" } else { "Ingress" };
            types.iter().any(|t| t == wanted)
        }
        None => {
            direction == Direction::Ingress || list(spec, "egress").is_some_and(|rules| !rules.is_empty())
        }
    }
}

/// Whether any rule matches: rules are alternatives; within a rule, peers and ports must both match.
pub(crate) fn allows(policy: &Value, connection: &Connection<'_>) -> Tri {
    let (section, peers) = match connection.direction {
        Direction::Egress => ("egress", "to"),
        Direction::Ingress => ("ingress", "from"),
    };
    let rules = list(&policy["spec"], section).into_iter().flatten();
    rules.fold(Tri::No, |found, rule| {
        // "If this field is empty or missing, this rule matches all sources / destinations" and "all ports".
        let peer = match list(rule, peers).filter(|items| !items.is_empty()) {
            None => Tri::Yes,
            Some(items) => {
                items.iter().fold(Tri::No, |any, item| any.or(peer_matches(policy, item, connection)))
            }
        };
        let port = match list(rule, "ports").filter(|items| !items.is_empty()) {
            None => true,
            Some(items) => items.iter().any(|item| port_matches(item, connection)),
        };
        found.or(peer.and(port.into()))
    })
}

fn peer_matches(policy: &Value, item: &Value, connection: &Connection<'_>) -> Tri {
    if let Some(block) = item.get("ipBlock").filter(|b| b.is_object()) {
        return block_matches(block, connection);
    }
    // Selectors match pods only, and never hostNetwork pods.
    let Peer::Pod(pod) = connection.peer else { return Tri::No };
    let namespace = text(pod, "/metadata/namespace");
    let given = |field: &str| item.get(field).filter(|s| s.is_object());
    let namespace_fits = match given("namespaceSelector") {
        Some(selector) => selects(selector, &namespace_labels(connection.world, namespace)),
        // "podSelector alone selects pods in the policy's own namespace".
        None => namespace == text(policy, "/metadata/namespace"),
    };
    let pod_fits =
        given("podSelector").is_none_or(|selector| selects(selector, &pod_labels(connection, pod)));
    let given_any = given("namespaceSelector").is_some() || given("podSelector").is_some();
    Tri::from(given_any && namespace_fits && pod_fits)
}

/// ipBlock: addresses outside always. For pods and nodes it depends on the plugin: Cilium's CIDR rules never match
/// them (Cilium layer3, "CIDR-based selectors do not match in-cluster entities"); others may (the Kubernetes e2e test
/// "should allow egress access to server in CIDR block" uses a pod's address), but NP promises nothing.
fn block_matches(block: &Value, connection: &Connection<'_>) -> Tri {
    let matches = |ip: Option<IpAddr>| in_block(text(block, "/cidr"), list(block, "except"), ip);
    let inside = match connection.peer {
        Peer::World(ip) => return matches(ip),
        Peer::Pod(pod) => matches(text(pod, "/status/podIP").parse().ok()),
        Peer::Node { ip, .. } => matches(ip),
        Peer::KubeApiserver => Tri::Maybe,
    };
    match connection.world.plugin {
        Plugin::Cilium => {
            if matches!(connection.peer, Peer::KubeApiserver) {
                Tri::Maybe
            } else {
                Tri::No
            }
        }
        Plugin::Other | Plugin::Unknown => inside.and(Tri::Maybe),
    }
}

/// NetworkPolicyPort: protocol defaults to TCP; no port means all ports of the protocol; `endPort` makes a range.
fn port_matches(item: &Value, connection: &Connection<'_>) -> bool {
    let protocol = item.get("protocol").and_then(Value::as_str).unwrap_or("TCP");
    if protocol != connection.protocol {
        return false;
    }
    match item.get("port") {
        None | Some(Value::Null) => true,
        Some(Value::String(name)) => {
            declares(connection.destination, name, connection.protocol, connection.port)
        }
        Some(number) => {
            let first = number.as_u64().unwrap_or_default();
            let last = item.get("endPort").and_then(Value::as_u64).filter(|_| reads_end_port(connection));
            (first..=last.unwrap_or(first)).contains(&connection.port.into())
        }
    }
}

/// Cilium 1.15 and older reads `port` and ignores `endPort`, also in NetworkPolicies (cilium/cilium PR 33389 and issue
/// 28684: port ranges came with 1.16).
pub(crate) fn reads_end_port(connection: &Connection<'_>) -> bool {
    connection.world.plugin != Plugin::Cilium
        || connection.world.version.is_none_or(|version| version >= (1, 16))
}

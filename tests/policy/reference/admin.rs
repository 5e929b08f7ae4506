//! AdminNetworkPolicy, NetworkPolicy and BaselineAdminNetworkPolicy as one chain, for plugins other than Cilium.
//! Enters: one connection; leaves: the outcome at the subject's end. Must not know Cilium's kinds.

use serde_json::Value;

use super::selector::{in_block, labels, namespace_labels, selects};
use super::{Connection, Direction, Outcome, Peer, Tri, declares, kubernetes, list, name_of, text};

/// ANP: AdminNetworkPolicies by priority ("policies with lower priority values have higher precedence"), rules in the
/// order written, first match decides; then NetworkPolicies, final where one selects the pod; then the baseline.
pub(crate) fn evaluate(connection: &Connection<'_>) -> Outcome {
    let mut admins: Vec<&Value> = of_kind(connection, "AdminNetworkPolicy");
    admins.sort_by_key(|policy| policy["spec"]["priority"].as_i64());
    let rules: Vec<(&Value, &Value)> =
        admins.iter().flat_map(|policy| rules_of(policy, connection)).collect();
    first_match(connection, &rules, &|| network_policies(connection))
}

fn of_kind<'a>(connection: &Connection<'a>, kind: &str) -> Vec<&'a Value> {
    connection.world.objects.iter().filter(|o| text(o, "/kind") == kind).collect()
}

/// NP: a pod is isolated in a direction when any policy of that type selects it; then what the union of the rules
/// allows passes, and "traffic to and from the node where a pod is running is always allowed".
fn network_policies(connection: &Connection<'_>) -> Outcome {
    let all = of_kind(connection, "NetworkPolicy");
    let isolating: Vec<&Value> = all.into_iter().filter(|p| kubernetes::isolates(p, connection)).collect();
    if isolating.is_empty() {
        let baseline = of_kind(connection, "BaselineAdminNetworkPolicy");
        let rules: Vec<(&Value, &Value)> = baseline.iter().flat_map(|p| rules_of(p, connection)).collect();
        return first_match(connection, &rules, &|| Outcome::Open { by: Vec::new() });
    }
    let mut by = Vec::new();
    let mut maybe = false;
    for policy in &isolating {
        match kubernetes::allows(policy, connection) {
            Tri::Yes => by.push(name_of(policy)),
            Tri::Maybe => maybe = true,
            Tri::No => {}
        }
    }
    by.sort();
    if !by.is_empty() || matches!(connection.peer, Peer::Node { local: true, .. }) {
        Outcome::Open { by }
    } else if maybe {
        Outcome::Unknown
    } else {
        let mut default_deny: Vec<String> = isolating.into_iter().map(name_of).collect();
        default_deny.sort();
        Outcome::Closed { default_deny, denied_by: Vec::new() }
    }
}

/// The rules of a policy for this connection's subject and direction; none when it is not the subject.
fn rules_of<'a>(policy: &'a Value, connection: &Connection<'_>) -> Vec<(&'a Value, &'a Value)> {
    let section = if connection.direction == Direction::Egress { "egress" } else { "ingress" };
    let rules = list(&policy["spec"], section).into_iter().flatten();
    if pods_match(&policy["spec"]["subject"], connection.subject, connection) {
        rules.map(|rule| (policy, rule)).collect()
    } else {
        Vec::new()
    }
}

/// `namespaces` (a selector) or `pods` (a namespace and a pod selector).
fn pods_match(item: &Value, pod: &Value, connection: &Connection<'_>) -> bool {
    let namespace = namespace_labels(connection.world, text(pod, "/metadata/namespace"));
    match (item.get("namespaces"), item.get("pods")) {
        (Some(selector), _) => selects(selector, &namespace),
        (None, Some(pods)) => {
            selects(&pods["namespaceSelector"], &namespace) && selects(&pods["podSelector"], &labels(pod))
        }
        (None, None) => false,
    }
}

/// The first rule that matches decides; `rest` when none does or when it says Pass. Where a match cannot be known, both
/// ways are followed, and only if they agree the answer is known.
fn first_match(
    connection: &Connection<'_>,
    rules: &[(&Value, &Value)],
    rest: &dyn Fn() -> Outcome,
) -> Outcome {
    let Some(((policy, rule), later)) = rules.split_first() else { return rest() };
    let matched = match text(rule, "/action") {
        "Allow" => Outcome::Open { by: vec![name_of(policy)] },
        "Deny" => Outcome::Closed { default_deny: Vec::new(), denied_by: vec![name_of(policy)] },
        "Pass" => rest(),
        other => panic!("the worlds have no action {other}"),
    };
    match rule_matches(rule, connection) {
        Tri::Yes => matched,
        Tri::No => first_match(connection, later, rest),
        Tri::Maybe => {
            let otherwise = first_match(connection, later, rest);
            if std::mem::discriminant(&matched) == std::mem::discriminant(&otherwise) {
                matched
            } else {
                Outcome::Unknown
            }
        }
    }
}

fn rule_matches(rule: &Value, connection: &Connection<'_>) -> Tri {
    let peers = if connection.direction == Direction::Egress { "to" } else { "from" };
    let peers = list(rule, peers).into_iter().flatten();
    let peer = peers.fold(Tri::No, |found, item| found.or(peer_matches(item, connection)));
    // "If Ports is not set then the rule does not filter traffic via port."
    let port =
        list(rule, "ports").is_none_or(|items| items.iter().any(|item| port_matches(item, connection)));
    peer.and(port.into())
}

/// `networks` are for addresses outside, "but note that cluster-internal traffic will be checked against the rule as
/// well". `nodes` selects nodes by labels.
fn peer_matches(item: &Value, connection: &Connection<'_>) -> Tri {
    if let Some(blocks) = list(item, "networks") {
        let ip = match connection.peer {
            Peer::World(ip) | Peer::Node { ip, .. } => ip,
            Peer::Pod(pod) => text(pod, "/status/podIP").parse().ok(),
            Peer::KubeApiserver => None,
        };
        let blocks = blocks.iter().filter_map(Value::as_str);
        return blocks.fold(Tri::No, |found, block| found.or(in_block(block, None, ip)));
    }
    match connection.peer {
        Peer::Pod(pod) => pods_match(item, pod, connection).into(),
        _ => Tri::No,
    }
}

fn port_matches(item: &Value, connection: &Connection<'_>) -> bool {
    let protocol =
        |entry: &Value| entry.get("protocol").and_then(Value::as_str).unwrap_or("TCP") == connection.protocol;
    let port = u64::from(connection.port);
    if let Some(number) = item.get("portNumber") {
        protocol(number) && number["port"].as_u64() == Some(port)
    } else if let Some(range) = item.get("portRange") {
        let end = |field: &str| range[field].as_u64().unwrap_or_default();
        protocol(range) && (end("start")..=end("end")).contains(&port)
    } else {
        declares(connection.destination, text(item, "/namedPort"), connection.protocol, connection.port)
    }
}

//! Random AdminNetworkPolicies and BaselineAdminNetworkPolicies. Must not know any evaluator.

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::{BLOCKS, PORT_NAMES, PORTS, fields, maybe_list, namespace_selector, one_of, pod_selector};

/// With a priority an AdminNetworkPolicy, without one the baseline.
pub(super) fn policy(priority: Option<u32>) -> BoxedStrategy<Value> {
    let actions: &'static [&'static str] =
        if priority.is_some() { &["Allow", "Deny", "Pass"] } else { &["Allow", "Deny"] };
    let rules = move |peers: &'static str| {
        prop_oneof![
            2 => Just(None),
            1 => Just(Some(json!([]))),
            8 => prop::collection::vec(rule(peers, actions), 1..=3).prop_map(|rules| Some(json!(rules))),
        ]
    };
    let kind = if priority.is_some() { "AdminNetworkPolicy" } else { "BaselineAdminNetworkPolicy" };
    (pods(), rules("from"), rules("to"))
        .prop_map(move |(subject, ingress, egress)| {
            json!({
                "apiVersion": "policy.networking.k8s.io/v1alpha1", "kind": kind,
                "metadata": {"name": "default"},
                "spec": fields(vec![
                    ("priority", priority.map(|p| json!(p))),
                    ("subject", Some(subject)),
                    ("ingress", ingress),
                    ("egress", egress),
                ]),
            })
        })
        .boxed()
}

fn pods() -> impl Strategy<Value = Value> + Clone {
    prop_oneof![
        namespace_selector().prop_map(|namespaces| json!({"namespaces": namespaces})),
        (namespace_selector(), pod_selector()).prop_map(
            |(namespaces, pods)| json!({"pods": {"namespaceSelector": namespaces, "podSelector": pods}})
        ),
    ]
}

fn rule(peers: &'static str, actions: &'static [&'static str]) -> impl Strategy<Value = Value> + Clone {
    let network =
        prop::collection::vec(select(&BLOCKS[..]), 1..=2).prop_map(|blocks| json!({"networks": blocks}));
    // Addresses are peers of egress only.
    let network_weight = if peers == "to" { 1 } else { 0 };
    let mut kinds = vec![(4, pods().boxed())];
    kinds.extend((network_weight > 0).then(|| (network_weight, network.boxed())));
    let peer = proptest::strategy::Union::new_weighted(kinds);
    (one_of(actions), prop::collection::vec(peer, 1..=2), maybe_list(port(), 1, 0, 1)).prop_map(
        move |(action, items, ports)| {
            fields(vec![("action", Some(json!(action))), (peers, Some(json!(items))), ("ports", ports)])
        },
    )
}

fn port() -> impl Strategy<Value = Value> + Clone {
    let protocol = || select(vec!["TCP", "TCP", "UDP", "SCTP"]);
    prop_oneof![
        3 => (select(&PORTS[..]), protocol())
            .prop_map(|(port, protocol)| json!({"portNumber": {"port": port, "protocol": protocol}})),
        2 => (select(vec![(1, 443), (80, 9999), (9000, 65_535)]), protocol()).prop_map(|((start, end), protocol)| {
            json!({"portRange": {"start": start, "end": end, "protocol": protocol}})
        }),
        1 => select(&PORT_NAMES[..]).prop_map(|name| json!({"namedPort": name})),
    ]
}

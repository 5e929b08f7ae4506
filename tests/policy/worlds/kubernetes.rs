//! Random NetworkPolicies. Must not know any evaluator.

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::{
    BLOCKS, BLOCKS_WITH_EXCEPTIONS, PORT_NAMES, PORTS, fields, maybe_list, namespace, namespace_selector,
    pod_selector,
};

/// One policy: `policyTypes` and sections absent, empty or there, in every combination.
pub(super) fn policy() -> BoxedStrategy<Value> {
    let types = select(vec![
        None,
        None,
        Some(json!([])),
        Some(json!(["Ingress"])),
        Some(json!(["Egress"])),
        Some(json!(["Ingress", "Egress"])),
        Some(json!(["Ingress", "Egress"])),
    ]);
    let sections = (maybe_list(rule("from"), 3, 1, 6), maybe_list(rule("to"), 3, 1, 6));
    (namespace(), pod_selector(), types, sections)
        .prop_map(|(namespace, selector, types, (ingress, egress))| {
            json!({
                "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
                "metadata": {"name": "p", "namespace": namespace},
                "spec": fields(vec![
                    ("podSelector", Some(selector)),
                    ("policyTypes", types),
                    ("ingress", ingress),
                    ("egress", egress),
                ]),
            })
        })
        .boxed()
}

fn rule(peers: &'static str) -> impl Strategy<Value = Value> + Clone {
    (maybe_list(peer(), 2, 1, 7), maybe_list(port(), 4, 1, 5))
        .prop_map(move |(items, ports)| fields(vec![(peers, items), ("ports", ports)]))
}

fn peer() -> impl Strategy<Value = Value> + Clone {
    prop_oneof![
        3 => pod_selector().prop_map(|pods| json!({"podSelector": pods})),
        3 => namespace_selector().prop_map(|namespaces| json!({"namespaceSelector": namespaces})),
        3 => (namespace_selector(), pod_selector())
            .prop_map(|(namespaces, pods)| json!({"namespaceSelector": namespaces, "podSelector": pods})),
        2 => select(&BLOCKS[..]).prop_map(|block| json!({"ipBlock": {"cidr": block}})),
        1 => select(&BLOCKS_WITH_EXCEPTIONS[..])
            .prop_map(|(block, except)| json!({"ipBlock": {"cidr": block, "except": [except]}})),
    ]
}

/// Ports by number, range, name, or protocol alone.
fn port() -> impl Strategy<Value = Value> + Clone {
    let number = prop_oneof![
        5 => select(&PORTS[..]).prop_map(|port| (Some(json!(port)), None)),
        2 => (select(&PORTS[..]), select(vec![81u16, 443, 10_000, 60_999]))
            .prop_map(|(low, high)| (Some(json!(low)), (high > low).then_some(json!(high)))),
        2 => select(&PORT_NAMES[..]).prop_map(|name| (Some(json!(name)), None)),
        1 => Just((None, None)),
    ];
    let protocol = select(vec![None, Some("TCP"), Some("UDP"), Some("SCTP")]);
    (number, protocol).prop_map(|((port, end), protocol)| {
        fields(vec![("port", port), ("endPort", end), ("protocol", protocol.map(|p| json!(p)))])
    })
}

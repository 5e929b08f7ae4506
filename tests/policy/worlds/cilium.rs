//! Random CiliumNetworkPolicies and CiliumClusterwideNetworkPolicies. Must not know any evaluator.

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::{
    BLOCKS, BLOCKS_WITH_EXCEPTIONS, KEYS, NAMESPACES, PORT_NAMES, PORTS, VALUES, fields, maybe_list,
    namespace, one_of, selector_over,
};

/// One policy; `clusterwide` makes it a CiliumClusterwideNetworkPolicy. `spec`, `specs`, or both.
pub(super) fn policy(clusterwide: bool) -> BoxedStrategy<Value> {
    let shape = prop_oneof![
        6 => rule().prop_map(|rule| (Some(rule), None)),
        1 => prop::collection::vec(rule(), 1..=2).prop_map(|rules| (None, Some(json!(rules)))),
        1 => (rule(), rule()).prop_map(|(one, two)| (Some(one), Some(json!([two])))),
    ];
    (namespace(), shape)
        .prop_map(move |(namespace, (spec, specs))| {
            let kind = if clusterwide { "CiliumClusterwideNetworkPolicy" } else { "CiliumNetworkPolicy" };
            let namespace = (!clusterwide).then_some(json!(namespace));
            fields(vec![
                ("apiVersion", Some(json!("cilium.io/v2"))),
                ("kind", Some(json!(kind))),
                ("metadata", Some(fields(vec![("name", Some(json!("p"))), ("namespace", namespace)]))),
                ("spec", spec),
                ("specs", specs),
            ])
        })
        .boxed()
}

/// Keys of peers: labels with and without a source, namespaces, namespace labels, the service account.
fn peer_keys() -> Vec<(String, Vec<&'static str>)> {
    let own = [0, 0, 0, 1, 1, 2, 3].map(|i: usize| (KEYS[i].to_owned(), VALUES.to_vec()));
    let with_source = ["k8s:app", "any:zone"].map(|k| (k.to_owned(), VALUES.to_vec()));
    let namespace = ["k8s:io.kubernetes.pod.namespace", "io.kubernetes.pod.namespace"]
        .map(|k| (k.to_owned(), NAMESPACES.to_vec()));
    let of_namespace = ["k8s:io.cilium.k8s.namespace.labels.team", "io.cilium.k8s.namespace.labels.team"]
        .map(|k| (k.to_owned(), VALUES.to_vec()));
    let account = ("io.cilium.k8s.policy.serviceaccount".to_owned(), vec!["default", "trainer"]);
    own.into_iter()
        .chain(with_source)
        .chain(namespace.clone())
        .chain(namespace)
        .chain(of_namespace)
        .chain([account])
        .collect()
}

fn subject() -> impl Strategy<Value = Value> + Clone {
    let mut keys = [0, 0, 0, 1, 1, 2, 3].map(|i: usize| (KEYS[i].to_owned(), VALUES.to_vec())).to_vec();
    keys.push(("k8s:app".to_owned(), VALUES.to_vec()));
    keys.push(("k8s:io.kubernetes.pod.namespace".to_owned(), NAMESPACES.to_vec()));
    selector_over(keys)
}

fn rule() -> impl Strategy<Value = Value> + Clone {
    let switch = || prop::option::of(any::<bool>());
    let default_deny = prop_oneof![
        4 => Just(None),
        1 => (switch(), switch()).prop_map(|(ingress, egress)| Some(fields(vec![
            ("ingress", ingress.map(|b| json!(b))),
            ("egress", egress.map(|b| json!(b))),
        ]))),
    ];
    let sections = (
        maybe_list(entry(true, false), 3, 1, 6),
        maybe_list(entry(true, true), 7, 1, 2),
        maybe_list(entry(false, false), 3, 1, 6),
        maybe_list(entry(false, true), 7, 1, 2),
    );
    (subject(), default_deny, sections).prop_map(
        |(subject, default_deny, (ingress, ingress_deny, egress, egress_deny))| {
            // Cilium refuses a rule without any entry (Rule.Sanitize), so what it would mean is undefined.
            let empty = |s: &&Option<Value>| s.as_ref().and_then(Value::as_array).is_none_or(Vec::is_empty);
            let none = [&ingress, &ingress_deny, &egress, &egress_deny].iter().all(empty);
            fields(vec![
                ("endpointSelector", Some(subject)),
                ("enableDefaultDeny", default_deny),
                ("ingress", if none { Some(json!([{}])) } else { ingress }),
                ("ingressDeny", ingress_deny),
                ("egress", egress),
                ("egressDeny", egress_deny),
            ])
        },
    )
}

/// One entry of a section: at most one kind of peers, and perhaps ports.
fn entry(ingress: bool, deny: bool) -> impl Strategy<Value = Value> + Clone {
    let way = if ingress { "from" } else { "to" };
    let kind = |name: &str, items: BoxedStrategy<Option<Value>>| -> BoxedStrategy<Option<(String, Value)>> {
        let field = format!("{way}{name}");
        items.prop_map(move |items| items.map(|items| (field.clone(), items))).boxed()
    };
    let endpoints = maybe_list(selector_over(peer_keys()), 0, 1, 16);
    let entity = select(vec![
        "all",
        "all",
        "cluster",
        "cluster",
        "world",
        "world",
        "host",
        "remote-node",
        "kube-apiserver",
        "init",
        "health",
        "unmanaged",
        "none",
        "ingress",
    ]);
    let entities = maybe_list(entity.prop_map(|e| json!(e)), 0, 1, 9);
    let cidr = maybe_list(select(&BLOCKS[..]).prop_map(|b| json!(b)), 0, 1, 9);
    let set = prop_oneof![
        select(&BLOCKS[..]).prop_map(|block| json!({"cidr": block})),
        select(&BLOCKS_WITH_EXCEPTIONS[..])
            .prop_map(|(block, except)| json!({"cidr": block, "except": [except]})),
    ];
    let cidr_set = maybe_list(set, 0, 1, 9);
    let fqdns = maybe_list(
        one_of(&["example.org", "registry.example.org"]).prop_map(|n| json!({"matchName": n})),
        0,
        0,
        1,
    );
    let service = prop_oneof![
        one_of(&["inside", "outside"])
            .prop_map(|name| json!({"k8sService": {"serviceName": name, "namespace": "ml"}})),
        select(&VALUES[..]).prop_map(
            |team| json!({"k8sServiceSelector": {"selector": {"matchLabels": {"team": team}}, "namespace": "ml"}})
        ),
    ];
    let services = maybe_list(service, 0, 0, 1);
    // toFQDNs and toServices exist for egress allows (toServices for denies too).
    let fqdn_weight = if ingress || deny { 0 } else { 2 };
    let service_weight = if ingress { 0 } else { 1 };
    let mut kinds = vec![
        (2, Just(None).boxed()),
        (9, kind("Endpoints", endpoints)),
        (3, kind("Entities", entities)),
        (2, kind("CIDR", cidr)),
        (2, kind("CIDRSet", cidr_set)),
    ];
    kinds.extend((fqdn_weight > 0).then(|| (fqdn_weight, kind("FQDNs", fqdns))));
    kinds.extend((service_weight > 0).then(|| (service_weight, kind("Services", services))));
    let ports = maybe_list(port_rule(deny), 7, 1, 5);
    (proptest::strategy::Union::new_weighted(kinds), ports).prop_map(|(peer, ports)| {
        // Ports with toServices are refused by some versions and mean other things in others (issue 20067).
        let ports = ports.filter(|_| peer.as_ref().is_none_or(|(kind, _)| kind != "toServices"));
        let mut entry = fields(vec![("toPorts", ports)]);
        if let Some((kind, items)) = peer {
            entry[kind] = items;
        }
        entry
    })
}

/// Ports by number, range or name; with protocols, ANY and none; L7 rules on TCP ports of allows.
fn port_rule(deny: bool) -> impl Strategy<Value = Value> + Clone {
    let protocol = select(vec![Some("TCP"), Some("TCP"), Some("UDP"), Some("ANY"), Some("SCTP"), None]);
    let port = prop_oneof![
        6 => select(&PORTS[..]).prop_map(|port| (port.to_string(), None)),
        3 => (select(&PORTS[..]), select(vec![81, 443, 10_000, 60_999])).prop_map(|(low, high)| {
            (low.to_string(), (high > low).then_some(high))
        }),
        3 => select(&PORT_NAMES[..]).prop_map(|name| (name.to_owned(), None)),
        1 => Just(("0".to_owned(), None)),
    ];
    let port = (port, protocol).prop_map(|((port, end), protocol)| {
        fields(vec![
            ("port", Some(json!(port))),
            ("endPort", end.map(|end| json!(end))),
            ("protocol", protocol.map(|p| json!(p))),
        ])
    });
    let plain = prop::collection::vec(port, 1..=2).prop_map(|ports| json!({"ports": ports}));
    let with_http = select(&PORTS[..]).prop_map(|port| {
        json!({"ports": [{"port": port.to_string(), "protocol": "TCP"}], "rules": {"http": [{"method": "GET"}]}})
    });
    let http_weight = if deny { 0 } else { 1 };
    let mut kinds = vec![(8, plain.boxed())];
    kinds.extend((http_weight > 0).then(|| (http_weight, with_http.boxed())));
    proptest::strategy::Union::new_weighted(kinds)
}

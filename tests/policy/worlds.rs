//! Small random worlds. Enters: randomness; leaves: [`World`]s over a vocabulary so small that selectors, ports and
//! addresses collide often. Must not know any evaluator. What the documents leave undefined is not generated: two
//! admin policies of one priority, several peer kinds in one Cilium rule, pods with addresses of both families.

pub(crate) mod admin;
pub(crate) mod cilium;
pub(crate) mod kubernetes;

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Map, Value, json};

use crate::reference::{End, Mode, Plugin, World};

pub(crate) const NAMESPACES: [&str; 3] = ["ml", "ops", "web"];
pub(crate) const PORTS: [u16; 4] = [80, 443, 9999, 40000];
pub(crate) const PORT_NAMES: [&str; 3] = ["http", "rpc", "data"];
/// Outside, a part of it, the pods' and nodes' networks, everything; both families.
pub(crate) const BLOCKS: [&str; 8] = [
    "0.0.0.0/0",
    "::/0",
    "203.0.113.0/24",
    "203.0.113.7/32",
    "10.0.0.0/8",
    "10.1.0.0/16",
    "2001:db8::/32",
    "fd00::/8",
];
/// Blocks with exceptions; an exception must lie inside its block.
pub(crate) const BLOCKS_WITH_EXCEPTIONS: [(&str, &str); 5] = [
    ("0.0.0.0/0", "203.0.113.0/29"),
    ("203.0.113.0/24", "203.0.113.128/25"),
    ("10.0.0.0/8", "10.1.0.0/16"),
    ("::/0", "2001:db8::/32"),
    ("fd00::/8", "fd00:0:0:1::/64"),
];
/// Label keys and values; the last two are kept out of Cilium identities, in some versions or always.
pub(crate) const KEYS: [&str; 4] =
    ["app", "zone", "topology.kubernetes.io/zone", "batch.kubernetes.io/job-completion-index"];
pub(crate) const VALUES: [&str; 2] = ["a", "b"];

/// A JSON map of the fields that are there.
pub(crate) fn fields(entries: Vec<(&str, Option<Value>)>) -> Value {
    let present = entries.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    Value::Object(present.collect::<Map<_, _>>())
}

/// A namespace, mostly the same one, so that policies and pods meet.
pub(crate) fn namespace() -> impl Strategy<Value = &'static str> + Clone {
    prop_oneof![5 => Just("ml"), 2 => Just("ops"), 1 => Just("web")]
}

pub(crate) fn one_of(words: &'static [&'static str]) -> impl Strategy<Value = &'static str> + Clone {
    select(words)
}

/// A selector over the given keys: none, one or two requirements; every operator.
pub(crate) fn selector_over(
    keys: Vec<(String, Vec<&'static str>)>,
) -> impl Strategy<Value = Value> + Clone + use<> {
    let expression = select(keys.clone()).prop_flat_map(|(key, values)| {
        let some = 1..=values.len();
        (one_of(&["In", "NotIn", "Exists", "DoesNotExist"]), subsequence(values, some)).prop_map(
            move |(operator, values)| {
                let values = operator.ends_with("In").then_some(json!(values));
                fields(vec![
                    ("key", Some(json!(key))),
                    ("operator", Some(json!(operator))),
                    ("values", values),
                ])
            },
        )
    });
    let label = select(keys).prop_flat_map(|(key, values)| (Just(key), select(values)));
    prop_oneof![
        3 => Just(json!({})),
        5 => prop::collection::vec(label.clone(), 1..=1)
            .prop_map(|labels| json!({"matchLabels": labels.into_iter().collect::<std::collections::BTreeMap<_, _>>()})),
        2 => prop::collection::vec(label.clone(), 2..=2)
            .prop_map(|labels| json!({"matchLabels": labels.into_iter().collect::<std::collections::BTreeMap<_, _>>()})),
        3 => prop::collection::vec(expression.clone(), 1..=2).prop_map(|all| json!({"matchExpressions": all})),
        1 => (label, expression).prop_map(|((key, value), e)| json!({"matchLabels": {key: value}, "matchExpressions": [e]})),
    ]
}

/// A selector of pods by their own labels. Mostly `app` and `zone`.
pub(crate) fn pod_selector() -> impl Strategy<Value = Value> + Clone + use<> {
    let keys = [0, 0, 0, 1, 1, 1, 2, 3].map(|i: usize| (KEYS[i].to_owned(), VALUES.to_vec()));
    selector_over(keys.to_vec())
}

/// A selector of namespaces.
pub(crate) fn namespace_selector() -> impl Strategy<Value = Value> + Clone + use<> {
    selector_over(vec![
        ("team".to_owned(), VALUES.to_vec()),
        ("kubernetes.io/metadata.name".to_owned(), NAMESPACES.to_vec()),
    ])
}

/// A list that may be absent, empty, or short.
pub(crate) fn maybe_list<S>(item: S, absent: u32, empty: u32, some: u32) -> BoxedStrategy<Option<Value>>
where
    S: Strategy<Value = Value> + Clone + 'static,
{
    prop_oneof![
        absent => Just(None),
        empty => Just(Some(json!([]))),
        some => prop::collection::vec(item, 1..=2).prop_map(|items| Some(json!(items))),
    ]
    .boxed()
}

fn pod(name: &'static str, ip: &'static str, host_network: bool) -> impl Strategy<Value = Value> {
    let labels = KEYS.map(|key| (Just(key), prop::option::weighted(0.8, value())));
    let declared = PORT_NAMES.map(|name| {
        let port = (select(&PORTS[..]), one_of(&["TCP", "TCP", "UDP"]));
        prop::option::weighted(0.6, port).prop_map(move |port| {
            // Whether a name declared by a hostNetwork pod counts for its node is not documented.
            let (number, protocol) = port.filter(|_| !host_network)?;
            Some(json!({"name": name, "containerPort": number, "protocol": protocol}))
        })
    });
    let account = prop::option::of(one_of(&["default", "trainer"]));
    (namespace(), one_of(&["n1", "n2"]), labels, declared, account).prop_map(
        move |(namespace, node, labels, declared, account)| {
            let labels =
                fields(labels.into_iter().map(|(key, value)| (key, value.map(|v| json!(v)))).collect());
            let ports: Vec<Value> = declared.into_iter().flatten().collect();
            // A hostNetwork pod has its node's address.
            let ip = match (host_network, node) {
                (false, _) => ip,
                (true, "n1") => "10.0.0.1",
                (true, _) => "10.0.0.2",
            };
            json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": name, "namespace": namespace, "labels": labels},
                "spec": fields(vec![
                    ("nodeName", Some(json!(node))),
                    ("serviceAccountName", account.map(|a| json!(a))),
                    ("hostNetwork", host_network.then_some(json!(true))),
                    ("containers", Some(json!([{"name": "c", "ports": ports}]))),
                ]),
                "status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]},
            })
        },
    )
}

/// A label's value, mostly the same one.
fn value() -> impl Strategy<Value = &'static str> + Clone {
    prop_oneof![3 => Just("a"), 2 => Just("b")]
}

/// The two services that `toServices` may name: one with a selector, one without.
fn services() -> Vec<Value> {
    let service = |name: &str, team: &str, selector: Value| {
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name, "namespace": "ml", "labels": {"team": team}},
            "spec": {"clusterIP": "None", "ports": [{"port": 80}], "selector": selector},
        })
    };
    vec![service("inside", "a", json!({"app": "a"})), service("outside", "b", Value::Null)]
}

/// Pods and namespaces.
fn cluster() -> impl Strategy<Value = Vec<Value>> {
    let namespaces = NAMESPACES.map(|name| {
        prop::option::weighted(0.8, select(&VALUES[..])).prop_map(move |team| {
            let labels = fields(vec![
                ("kubernetes.io/metadata.name", Some(json!(name))),
                ("team", team.map(|t| json!(t))),
            ]);
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
        })
    });
    let pods = (
        pod("one", "10.1.0.1", false),
        pod("two", "10.1.0.2", false),
        pod("six", "fd00:0:0:1::6", false),
        pod("host", "", true),
    );
    (namespaces, pods).prop_map(|(namespaces, (one, two, six, host))| {
        namespaces.into_iter().chain([one, two, six, host]).chain(services()).collect()
    })
}

/// Gives every policy its own name.
fn named(mut policies: Vec<Value>) -> Vec<Value> {
    for (index, policy) in policies.iter_mut().enumerate() {
        if policy["kind"] != "BaselineAdminNetworkPolicy" {
            policy["metadata"]["name"] = json!(format!("p{index}"));
        }
    }
    policies
}

/// A world of one plugin with the policies that it knows.
pub(crate) fn world() -> impl Strategy<Value = World> {
    let under_cilium = {
        let policy =
            prop_oneof![3 => cilium::policy(false), 2 => cilium::policy(true), 2 => kubernetes::policy()];
        let version = select(vec![None, Some((1, 15)), Some((1, 16)), Some((1, 18)), Some((1, 19))]);
        let mode = prop_oneof![16 => Just(Mode::Default), 1 => Just(Mode::Always), 1 => Just(Mode::Never)];
        (version, mode, prop::collection::vec(policy, 1..=5))
            .prop_map(|(version, mode, policies)| (Plugin::Cilium, mode, version, policies))
    };
    let under_another = (
        prop::collection::vec(kubernetes::policy(), 0..=4),
        subsequence(vec![0, 7, 1000], 0..=3).prop_flat_map(|priorities| {
            priorities.into_iter().map(|p| admin::policy(Some(p))).collect::<Vec<_>>()
        }),
        prop::collection::vec(admin::policy(None), 0..=1),
    )
        .prop_map(|(network, admin, baseline)| {
            let policies = [network, admin, baseline].concat();
            (Plugin::Other, Mode::Default, None, policies)
        });
    let policies = prop_oneof![3 => under_cilium, 2 => under_another];
    (cluster(), policies).prop_map(|(mut objects, (plugin, mode, version, policies))| {
        objects.extend(named(policies));
        World { plugin, mode, version, objects }
    })
}

/// Ends that are not pods: two addresses outside, nodes as seen by another end. Not the API server: it may be a node or
/// outside, so most answers about it are unknown by nature; the table asks about it.
pub(crate) fn others() -> impl Strategy<Value = Vec<End>> {
    let ip = |text: &str| text.parse().ok();
    let all = vec![
        End::World(ip("203.0.113.7")),
        End::World(ip("2001:db8::7")),
        End::Host(ip("10.0.0.1")),
        End::RemoteNode(ip("10.0.0.2")),
    ];
    subsequence(all, 2..=2)
}

//! Hand-derived cases: objects, questions, answers, in `table/*.yaml`. Every answer was written from the documents
//! named in the case before any evaluator ran on it. Both evaluators must give it.
//!
//! A file has a `cluster` (namespaces, pods, services) and `cases`; a case has `policies` and `ask`. A question:
//! `from` and `to` (`namespace/pod`, `world:ADDRESS`, `world`, `host`, `remote-node`, `kube-apiserver`), `on`
//! (`TCP/80`, `TCP/32768-60999`), `egress` and `ingress`, each one of
//! - `open`, or `open by NAMES` (the policies whose rules let it pass; none: nothing selects that end);
//! - `closed by NAMES` (who put the end into default deny; `closed by nobody`), for ranges optionally
//!   `closed by NAMES, open PORTS`;
//! - `denied by NAMES`; with `; closed by NAMES` where default deny is in the way as well;
//! - `unknown`.

use std::net::IpAddr;

use serde::Deserialize;
use serde_json::Value;

use crate::engine::Engine;
use crate::reference::{End, Mode, Outcome, Plugin, World, reference, reference_range};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    cluster: Vec<Value>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    /// The document the answers are derived from.
    source: String,
    #[serde(default = "cilium")]
    plugin: String,
    version: Option<String>,
    mode: Option<String>,
    #[serde(default)]
    policies: Vec<Value>,
    ask: Vec<Ask>,
}

fn cilium() -> String {
    "cilium".to_owned()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ask {
    from: String,
    to: String,
    on: String,
    egress: String,
    ingress: String,
}

/// The answer of an evaluator in one direction; `open` lists the ports open nevertheless when a range is asked.
#[derive(Debug)]
pub(crate) struct Given {
    pub(crate) outcome: Outcome,
    pub(crate) open: Option<Vec<(u16, u16)>>,
}

/// A question as both evaluators take it.
pub(crate) struct Question<'a> {
    pub(crate) src: &'a End,
    pub(crate) dst: &'a End,
    pub(crate) protocol: &'a str,
    pub(crate) ports: (u16, u16),
}

fn by_reference(world: &World, question: &Question<'_>) -> [Given; 2] {
    let Question { src, dst, protocol, ports } = question;
    if ports.0 == ports.1 {
        return reference(world, src, dst, protocol, ports.0).map(|outcome| Given { outcome, open: None });
    }
    reference_range(world, src, dst, protocol, *ports)
        .map(|(outcome, open)| Given { outcome, open: Some(open) })
}

const FILES: [(&str, &str); 6] = [
    ("basics", include_str!("table/basics.yaml")),
    ("cilium", include_str!("table/cilium.yaml")),
    ("cilium-peers", include_str!("table/cilium-peers.yaml")),
    ("network-policy", include_str!("table/network-policy.yaml")),
    ("admin", include_str!("table/admin.yaml")),
    ("training", include_str!("table/training.yaml")),
];

/// Asks every question of the table; gives every answer that is not the expected one.
fn wrong_answers(evaluate: impl Fn(&World, &Question<'_>) -> [Given; 2]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (file, text) in FILES {
        let file_of_cases: File = serde_saphyr::from_str(text).unwrap_or_else(|e| panic!("{file}: {e}"));
        for case in &file_of_cases.cases {
            assert!(
                !case.source.is_empty() && !case.ask.is_empty(),
                "{file}, {}: no source or question",
                case.name
            );
            let world = world_of(case, &file_of_cases.cluster);
            for ask in &case.ask {
                let (src, dst) = (end(&ask.from), end(&ask.to));
                let (protocol, ports) = protocol_and_ports(&ask.on);
                let [egress, ingress] = evaluate(&world, &Question { src: &src, dst: &dst, protocol, ports });
                for (way, expected, given) in
                    [("egress", &ask.egress, egress), ("ingress", &ask.ingress, ingress)]
                {
                    if !agrees(expected, &given) {
                        let question = format!("{} -> {} on {}", ask.from, ask.to, ask.on);
                        wrong.push(format!(
                            "{file}, {}: {question}: {way} is {expected}, not {given:?}",
                            case.name
                        ));
                    }
                }
            }
        }
    }
    wrong
}

fn world_of(case: &Case, cluster: &[Value]) -> World {
    let version = case.version.as_deref().map(|version| {
        let (major, minor) = version.split_once('.').expect("a version has a dot");
        (major.parse().expect("a number"), minor.parse().expect("a number"))
    });
    World {
        plugin: match case.plugin.as_str() {
            "cilium" => Plugin::Cilium,
            "other" => Plugin::Other,
            "unknown" => Plugin::Unknown,
            plugin => panic!("no plugin {plugin}"),
        },
        mode: match case.mode.as_deref() {
            None => Mode::Default,
            Some("always") => Mode::Always,
            Some("never") => Mode::Never,
            Some(mode) => panic!("no mode {mode}"),
        },
        version,
        objects: cluster.iter().chain(&case.policies).cloned().collect(),
    }
}

fn end(text: &str) -> End {
    let address = |rest: &str| -> Option<IpAddr> { Some(rest.parse().expect("an address")) };
    match text.split_once(':') {
        Some(("world", rest)) => End::World(address(rest)),
        Some(("host", rest)) => End::Host(address(rest)),
        Some(("remote-node", rest)) => End::RemoteNode(address(rest)),
        _ => match text {
            "world" => End::World(None),
            "host" => End::Host(None),
            "remote-node" => End::RemoteNode(None),
            "kube-apiserver" => End::KubeApiserver,
            _ => {
                let (namespace, name) = text.split_once('/').expect("namespace/pod");
                End::Pod { namespace: namespace.to_owned(), name: name.to_owned() }
            }
        },
    }
}

fn protocol_and_ports(text: &str) -> (&str, (u16, u16)) {
    let (protocol, ports) = text.split_once('/').expect("PROTOCOL/PORT");
    (protocol, range(ports))
}

fn range(text: &str) -> (u16, u16) {
    let number = |text: &str| text.parse().expect("a port");
    text.split_once('-')
        .map_or_else(|| (number(text), number(text)), |(low, high)| (number(low), number(high)))
}

fn names(list: &str) -> Vec<String> {
    let mut all: Vec<String> = list.split(", ").filter(|n| *n != "nobody").map(str::to_owned).collect();
    all.sort();
    all
}

/// Whether an answer is the one expected, in the words of the module's description.
fn agrees(expected: &str, given: &Given) -> bool {
    let (denied, closed) = match expected.split_once("; ") {
        Some((denied, closed)) => (denied.strip_prefix("denied by "), closed.strip_prefix("closed by ")),
        None => (expected.strip_prefix("denied by "), expected.strip_prefix("closed by ")),
    };
    match &given.outcome {
        Outcome::Unknown => expected == "unknown",
        Outcome::Open { by } => {
            expected == "open" || expected.strip_prefix("open by ").is_some_and(|list| names(list) == *by)
        }
        Outcome::Closed { default_deny, denied_by } => {
            let (closed, ports) = match closed.and_then(|closed| closed.split_once(", open ")) {
                Some((closed, ports)) => {
                    (Some(closed), Some(ports.split(", ").map(range).collect::<Vec<_>>()))
                }
                None => (closed, None),
            };
            denied.map_or_else(Vec::new, names) == *denied_by
                && closed.is_none_or(|list| names(list) == *default_deny)
                && (denied.is_some() || closed.is_some())
                && ports.is_none_or(|ports| given.open.as_ref() == Some(&ports))
        }
    }
}

#[test]
fn reference_answers_as_derived_by_hand() {
    let wrong = wrong_answers(by_reference);
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn engine_answers_as_derived_by_hand() {
    let wrong = wrong_answers(|world, question| Engine::new(world).ask(question));
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// The table is only worth something while it is large and its answers are of every kind.
#[test]
fn the_table_is_broad() {
    let mut cases = std::collections::BTreeSet::new();
    let mut kinds = std::collections::BTreeMap::<&str, usize>::new();
    for (file, text) in FILES {
        let file_of_cases: File = serde_saphyr::from_str(text).unwrap_or_else(|e| panic!("{file}: {e}"));
        for case in file_of_cases.cases {
            for answer in case.ask.iter().flat_map(|ask| [&ask.egress, &ask.ingress]) {
                let kind =
                    ["open", "closed", "denied", "unknown"].iter().find(|kind| answer.starts_with(**kind));
                *kinds
                    .entry(kind.unwrap_or_else(|| panic!("{file}, {}: {answer}", case.name)))
                    .or_default() += 1;
            }
            assert!(cases.insert(format!("{file}, {}", case.name)), "{file}, {}: twice", case.name);
        }
    }
    assert!(cases.len() >= 60, "{} cases", cases.len());
    for (kind, least) in [("open", 60), ("closed", 40), ("denied", 15), ("unknown", 6)] {
        assert!(kinds.get(kind).is_some_and(|count| *count >= least), "too few {kind} among {kinds:?}");
    }
}

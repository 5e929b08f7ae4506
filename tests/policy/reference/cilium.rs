//! CiliumNetworkPolicy and CiliumClusterwideNetworkPolicy, with NetworkPolicies as Cilium enforces them. Enters: one
//! connection; leaves: the outcome at the subject's end. Must not know admin policies: Cilium has none of these kinds
//! (cilium/cilium issue 23380; from 1.20 it has ClusterNetworkPolicy, another kind).

use serde_json::Value;

use super::selector::{
    Label, identity_meets, in_block, labels, namespace_labels, requirements, selects, split_key,
};
use super::{Connection, Direction, Mode, Outcome, Peer, Tri, declares, kubernetes, list, name_of, text};

const NAMESPACE: &str = "io.kubernetes.pod.namespace";
const NAMESPACE_LABELS: &str = "io.cilium.k8s.namespace.labels.";

/// What all policies together say: who isolates, who allows, who denies.
#[derive(Default)]
struct Tally {
    default_deny: Vec<String>,
    allowed_by: Vec<String>,
    denied_by: Vec<String>,
    allow_maybe: bool,
    deny_maybe: bool,
    default_deny_maybe: bool,
}

impl Tally {
    fn allow(&mut self, policy: &Value, matched: Tri) {
        note(&mut self.allowed_by, &mut self.allow_maybe, policy, matched);
    }

    fn deny(&mut self, policy: &Value, matched: Tri) {
        note(&mut self.denied_by, &mut self.deny_maybe, policy, matched);
    }
}

fn note(names: &mut Vec<String>, maybe: &mut bool, policy: &Value, matched: Tri) {
    match matched {
        Tri::Yes => names.push(name_of(policy)),
        Tri::Maybe => *maybe = true,
        Tri::No => {}
    }
}

pub(crate) fn evaluate(connection: &Connection<'_>) -> Outcome {
    let world = connection.world;
    // Cilium intro, never: "all traffic is allowed", whatever the rules say.
    if world.mode == Mode::Never {
        return Outcome::Open { by: Vec::new() };
    }
    let mut tally = Tally::default();
    for policy in &world.objects {
        match text(policy, "/kind") {
            "CiliumNetworkPolicy" | "CiliumClusterwideNetworkPolicy" => {
                // Cilium CRD: `spec` is one rule, `specs` a list of them; both count.
                let specs = list(policy, "specs").into_iter().flatten();
                for rule in policy.get("spec").filter(|s| s.is_object()).into_iter().chain(specs) {
                    apply(policy, rule, connection, &mut tally);
                }
            }
            "NetworkPolicy" if kubernetes::isolates(policy, connection) => {
                tally.default_deny.push(name_of(policy));
                tally.allow(policy, kubernetes::allows(policy, connection));
            }
            _ => {}
        }
    }
    decide(connection, tally)
}

fn apply(policy: &Value, rule: &Value, connection: &Connection<'_>, tally: &mut Tally) {
    if !selects_subject(policy, rule, connection) {
        return;
    }
    // What Cilium makes of a policy that its validation refuses depends on what it had before.
    if !readable(rule) {
        (tally.allow_maybe, tally.deny_maybe) = (true, true);
        return;
    }
    let (allows, denies, switch) = match connection.direction {
        Direction::Egress => ("egress", "egressDeny", "egress"),
        Direction::Ingress => ("ingress", "ingressDeny", "ingress"),
    };
    let allows = list(rule, allows).map_or(&[][..], Vec::as_slice);
    let denies = list(rule, denies).map_or(&[][..], Vec::as_slice);
    // Cilium CRD, enableDefaultDeny: "if not specified, the default is true for each traffic direction that has rules,
    // and false otherwise"; several policies: "enabled if any policy requests it". The field came with 1.16 (PR 30572);
    // an older CRD prunes it. Asked for without rules, the text says it isolates, the agent does nothing (issue 35558).
    let asked = rule.pointer(&format!("/enableDefaultDeny/{switch}")).and_then(Value::as_bool);
    let known = connection.world.version.is_none_or(|version| version >= (1, 16));
    let rules = !allows.is_empty() || !denies.is_empty();
    match asked.filter(|_| known) {
        Some(true) if !rules => tally.default_deny_maybe = true,
        Some(false) => {}
        _ if rules => tally.default_deny.push(name_of(policy)),
        _ => {}
    }
    for entry in allows {
        tally.allow(policy, entry_matches(policy, entry, connection));
    }
    for entry in denies {
        tally.deny(policy, entry_matches(policy, entry, connection));
    }
}

/// Cilium deny: "deny policies take precedence over allow policies", of whatever kind.
fn decide(connection: &Connection<'_>, mut tally: Tally) -> Outcome {
    // Cilium intro, always: enforced "on all endpoints even if no rules select specific endpoints".
    let isolated = !tally.default_deny.is_empty() || connection.world.mode == Mode::Always;
    // Cilium layer3, "Access to/from local host": traffic from the local host is allowed by default. It is an allow
    // like others: a deny rule still beats it (pkg/policy/mapstate.go, determineAllowLocalhostIngress).
    let local_host = connection.direction == Direction::Ingress
        && matches!(connection.peer, Peer::Node { local: true, .. });
    let allowed = !tally.allowed_by.is_empty() || local_host || !isolated && !tally.default_deny_maybe;
    let perhaps = tally.allow_maybe || !isolated && tally.default_deny_maybe;
    for names in [&mut tally.default_deny, &mut tally.allowed_by, &mut tally.denied_by] {
        names.sort();
        names.dedup();
    }
    if !tally.denied_by.is_empty() {
        let default_deny = if allowed { Vec::new() } else { tally.default_deny };
        return Outcome::Closed { default_deny, denied_by: tally.denied_by };
    }
    match (allowed, perhaps, tally.deny_maybe) {
        (true, _, true) | (false, true, _) => Outcome::Unknown,
        (true, _, false) => Outcome::Open { by: tally.allowed_by },
        (false, false, _) => Outcome::Closed { default_deny: tally.default_deny, denied_by: Vec::new() },
    }
}

/// `endpointSelector` selects the subject. In a CiliumNetworkPolicy only pods of its own namespace, whatever the
/// selector says (utils.ParseToCiliumRule adds the namespace). `nodeSelector` selects nodes, never pods.
fn selects_subject(policy: &Value, rule: &Value, connection: &Connection<'_>) -> bool {
    let Some(selector) = rule.get("endpointSelector").filter(|s| s.is_object()) else { return false };
    let mut selector = selector.clone();
    let mut forced = Vec::new();
    if text(policy, "/kind") == "CiliumNetworkPolicy" {
        // AddMatch replaces the same key among matchLabels; matchExpressions stay.
        let key = format!("k8s:{NAMESPACE}");
        if let Some(labels) = selector.get_mut("matchLabels").and_then(Value::as_object_mut) {
            labels.remove(&key);
        }
        forced.push((key, "In".to_owned(), vec![text(policy, "/metadata/namespace").to_owned()]));
    }
    let mut wanted = requirements(&selector);
    wanted.append(&mut forced);
    identity_meets(&wanted, &pod_identity(connection, connection.subject))
}

/// One entry of ingress, egress, ingressDeny or egressDeny: peers and ports must both match.
fn entry_matches(policy: &Value, entry: &Value, connection: &Connection<'_>) -> Tri {
    let way = if connection.direction == Direction::Egress { "to" } else { "from" };
    let member = |kind: &str| list(entry, &format!("{way}{kind}"));
    let ports = list(entry, "toPorts").filter(|rules| !rules.is_empty());
    // An empty, non-null list selects nobody (pkg/policy/utils, mergeEndpointSelectors: "explicitly check for empty
    // non-nil slices, it should not result in any identity being selected").
    if ["Endpoints", "Entities", "CIDR", "CIDRSet", "Nodes"]
        .iter()
        .any(|k| member(k).is_some_and(Vec::is_empty))
    {
        return Tri::No;
    }
    let kinds = ["Endpoints", "Entities", "CIDR", "CIDRSet", "Nodes", "FQDNs", "Services", "Groups"];
    let l3 = kinds.iter().any(|kind| member(kind).is_some_and(|items| !items.is_empty()));
    let peer = if l3 {
        kinds
            .iter()
            .flat_map(|kind| member(kind).into_iter().flatten().map(move |item| (*kind, item)))
            .fold(Tri::No, |found, (kind, item)| found.or(peer_matches(policy, kind, item, connection)))
    } else {
        // No peer member: with ports the rule is for all peers, without ports it is empty and matches nothing
        // (Cilium layer3, "Ingress/Egress Default Deny": `- {}`; layer4: ports without peers).
        ports.is_some().into()
    };
    let port = ports.is_none_or(|rules| {
        let entries = rules.iter().filter_map(|rule| list(rule, "ports")).flatten();
        entries.into_iter().any(|item| port_matches(item, connection))
    });
    peer.and(port.into())
}

fn peer_matches(policy: &Value, kind: &str, item: &Value, connection: &Connection<'_>) -> Tri {
    match kind {
        "Endpoints" => endpoint_matches(policy, item, connection).into(),
        "Entities" => entity_matches(item.as_str().unwrap_or_default(), connection.peer),
        "CIDR" => block_matches(item.as_str().unwrap_or_default(), None, connection.peer),
        "CIDRSet" => match item.get("cidr").and_then(Value::as_str) {
            Some(block) => block_matches(block, list(item, "except"), connection.peer),
            None => outside_maybe(connection.peer),
        },
        // Names resolve to addresses only at run time, and never to pods or nodes (Cilium CRD, toFQDNs: "if the resolved
        // IPs are IPs within the kubernetes cluster, the ToFQDN rule will not apply to that IP").
        "FQDNs" | "Groups" => outside_maybe(connection.peer),
        "Nodes" => match connection.peer {
            // Only with enable-node-selector-labels, which the objects do not tell.
            Peer::Node { .. } | Peer::KubeApiserver => Tri::Maybe,
            Peer::Pod(_) | Peer::World(_) => Tri::No,
        },
        "Services" => service_matches(policy, item, connection),
        other => panic!("no peer kind {other}"),
    }
}

fn outside_maybe(peer: Peer<'_>) -> Tri {
    match peer {
        Peer::World(_) | Peer::KubeApiserver => Tri::Maybe,
        Peer::Pod(_) | Peer::Node { .. } => Tri::No,
    }
}

/// CIDR rules match what is neither a pod nor, by default, a node (Cilium layer3, "IP/CIDR based").
fn block_matches(block: &str, except: Option<&Vec<Value>>, peer: Peer<'_>) -> Tri {
    match peer {
        Peer::World(ip) => in_block(block, except, ip),
        Peer::KubeApiserver => Tri::Maybe,
        Peer::Pod(_) | Peer::Node { .. } => Tri::No,
    }
}

/// Cilium layer3, "Entities based"; `cluster` as `pkg/policy/api/entity.go` composes it.
fn entity_matches(entity: &str, peer: Peer<'_>) -> Tri {
    match (entity, peer) {
        ("all", _) | ("cluster" | "kube-apiserver", Peer::KubeApiserver) => Tri::Yes,
        // Where the API server runs is not known: inside on a node, or outside.
        ("world" | "world-ipv4" | "world-ipv6" | "host" | "remote-node", Peer::KubeApiserver) => Tri::Maybe,
        ("world", Peer::World(_)) => Tri::Yes,
        ("world-ipv4", Peer::World(ip)) => ip.map_or(Tri::Maybe, |ip| ip.is_ipv4().into()),
        ("world-ipv6", Peer::World(ip)) => ip.map_or(Tri::Maybe, |ip| ip.is_ipv6().into()),
        ("cluster", Peer::Pod(_) | Peer::Node { .. }) => Tri::Yes,
        ("host", Peer::Node { local, .. }) => local.into(),
        ("remote-node", Peer::Node { local, .. }) => (!local).into(),
        _ => Tri::No,
    }
}

/// fromEndpoints / toEndpoints, with the namespace that `utils.getEndpointSelector` adds: in a CiliumNetworkPolicy its
/// own, unless the selector names a namespace or namespace labels; in a clusterwide one "any pod". Selectors of
/// `reserved:` labels stay as they are.
fn endpoint_matches(policy: &Value, selector: &Value, connection: &Connection<'_>) -> bool {
    let mut wanted = requirements(selector);
    let from_k8s = |key: &str, test: &dyn Fn(&str) -> bool| {
        let (source, key) = split_key(key);
        source.is_none_or(|s| s == "k8s") && test(key)
    };
    let reserved = wanted.iter().any(|(key, ..)| split_key(key).0 == Some("reserved"));
    let namespace = wanted.iter().any(|(key, ..)| from_k8s(key, &|k| k == NAMESPACE));
    let namespace_labels = wanted.iter().any(|(key, ..)| from_k8s(key, &|k| k.starts_with(NAMESPACE_LABELS)));
    let key = format!("k8s:{NAMESPACE}");
    if !reserved && !namespace {
        if text(policy, "/kind") == "CiliumClusterwideNetworkPolicy" {
            wanted.push((key, "Exists".to_owned(), Vec::new()));
        } else if !namespace_labels {
            wanted.push((key, "In".to_owned(), vec![text(policy, "/metadata/namespace").to_owned()]));
        }
    }
    let reserved_identity =
        |key: &str| vec![Label { source: "reserved", key: key.to_owned(), value: String::new() }];
    let identity = match connection.peer {
        Peer::Pod(pod) => pod_identity(connection, pod),
        Peer::Node { local: true, .. } => reserved_identity("host"),
        Peer::Node { local: false, .. } => reserved_identity("remote-node"),
        Peer::World(_) => reserved_identity("world"),
        Peer::KubeApiserver => reserved_identity("kube-apiserver"),
    };
    identity_meets(&wanted, &identity)
}

/// Cilium layer3, "Services based": a service's selector serves as an endpoint selector (from 1.17, PR 37089; before,
/// services with selectors were not supported); the endpoints of a service without one become CIDRs, "CIDR selectors
/// cannot select pods", and are not among the objects.
fn service_matches(policy: &Value, item: &Value, connection: &Connection<'_>) -> Tri {
    let by_name = item.get("k8sService");
    let by_labels = item.get("k8sServiceSelector");
    let namespace = by_name.or(by_labels).map_or("", |s| text(s, "/namespace"));
    let namespace = if namespace.is_empty() { text(policy, "/metadata/namespace") } else { namespace };
    let services = connection.world.objects.iter().filter(|o| text(o, "/kind") == "Service");
    let chosen: Vec<&Value> = services
        .filter(|service| {
            text(service, "/metadata/namespace") == namespace
                && by_name.is_none_or(|s| text(s, "/serviceName") == text(service, "/metadata/name"))
                && by_labels.is_none_or(|s| selects(&s["selector"], &labels(service)))
        })
        .collect();
    let selectors_count = connection.world.version.is_none_or(|version| version >= (1, 17));
    // A service that is not among the objects may be one that nobody recorded.
    if chosen.is_empty() {
        return match connection.peer {
            Peer::Pod(_) => {
                if selectors_count {
                    Tri::Maybe
                } else {
                    Tri::No
                }
            }
            peer => outside_maybe(peer),
        };
    }
    chosen.into_iter().fold(Tri::No, |found, service| {
        let selector =
            service.pointer("/spec/selector").filter(|s| s.as_object().is_some_and(|m| !m.is_empty()));
        found.or(match (selector, connection.peer) {
            (None, peer) => outside_maybe(peer),
            (Some(selector), Peer::Pod(pod)) if selectors_count => {
                let selector = serde_json::json!({"matchLabels": selector});
                let mut wanted = requirements(&selector);
                wanted.push((NAMESPACE.to_owned(), "In".to_owned(), vec![namespace.to_owned()]));
                identity_meets(&wanted, &pod_identity(connection, pod)).into()
            }
            _ => Tri::No,
        })
    })
}

/// PortProtocol: "if omitted or empty, any protocol matches"; ANY is TCP, UDP and SCTP (pkg/policy/rule.go); port 0 is
/// every port; a name is a port that the destination's containers declare; `endPort` from 1.16.
fn port_matches(item: &Value, connection: &Connection<'_>) -> bool {
    let wanted = item.get("protocol").and_then(Value::as_str).unwrap_or_default();
    let any = wanted.is_empty() || wanted == "ANY";
    if !["TCP", "UDP", "SCTP"].contains(&connection.protocol) || !(any || wanted == connection.protocol) {
        return false;
    }
    let port = text(item, "/port");
    match port.parse::<u64>() {
        Ok(0) => true,
        Ok(first) => {
            let last = item.get("endPort").and_then(Value::as_u64);
            let last = last.filter(|last| *last > first && kubernetes::reads_end_port(connection));
            (first..=last.unwrap_or(first)).contains(&connection.port.into())
        }
        Err(_) => declares(connection.destination, port, connection.protocol, connection.port),
    }
}

/// The labels of a pod's identity: its own, where relevant, and those Cilium derives.
fn pod_identity(connection: &Connection<'_>, pod: &Value) -> Vec<Label> {
    let label = |key: String, value: String| Label { source: "k8s", key, value };
    let namespace = text(pod, "/metadata/namespace");
    let account = pod.pointer("/spec/serviceAccountName").and_then(Value::as_str).unwrap_or("default");
    let relevant =
        labels(pod).into_iter().filter(|(key, _)| identity_relevant(key, connection.world.version));
    let of_namespace = namespace_labels(connection.world, namespace).into_iter();
    let mut all: Vec<Label> = relevant.map(|(key, value)| label(key, value)).collect();
    all.extend(of_namespace.map(|(key, value)| label(format!("{NAMESPACE_LABELS}{key}"), value)));
    all.push(label(NAMESPACE.to_owned(), namespace.to_owned()));
    all.push(label("io.cilium.k8s.policy.serviceaccount".to_owned(), account.to_owned()));
    all.push(label("io.cilium.k8s.policy.cluster".to_owned(), "default".to_owned()));
    all
}

/// Whether a pod label is part of the identity with the default filter (Cilium, "Limiting Identity-Relevant Labels";
/// pkg/labelsfilter/filter.go). Patterns hold at the start of the key unless they begin with a wildcard.
pub(crate) fn identity_relevant(key: &str, version: Option<(u16, u16)>) -> bool {
    const EXCLUDED: [&str; 13] = [
        "io.kubernetes",
        "kubernetes.io",
        "statefulset.kubernetes.io/pod-name",
        "apps.kubernetes.io/pod-index",
        "batch.kubernetes.io/job-completion-index",
        "batch.kubernetes.io/controller-uid",
        "k8s.io",
        "pod-template-generation",
        "pod-template-hash",
        "controller-revision-hash",
        "controller-uid",
        "annotation",
        "etcd_node",
    ];
    let topology =
        version.is_none_or(|version| version >= (1, 19)) && key.starts_with("topology.kubernetes.io");
    !topology && !EXCLUDED.iter().any(|start| key.starts_with(start)) && !key.contains("beta.kubernetes.io")
}

/// Whether every address block in a rule can be read (Rule.Sanitize refuses the policy otherwise).
fn readable(value: &Value) -> bool {
    let block = |block: &Value| {
        let (ip, length) = block.as_str().unwrap_or_default().split_once('/').unwrap_or_default();
        let bits = ip.parse::<std::net::IpAddr>().map_or(0, |ip| if ip.is_ipv4() { 32 } else { 128 });
        length.parse::<u8>().is_ok_and(|length| length <= bits)
    };
    match value {
        Value::Array(items) => items.iter().all(readable),
        Value::Object(map) => map.iter().all(|(key, value)| match (key.as_str(), value) {
            ("fromCIDR" | "toCIDR" | "except", Value::Array(blocks)) => blocks.iter().all(block),
            ("cidr", value) => block(value),
            (_, value) => readable(value),
        }),
        _ => true,
    }
}

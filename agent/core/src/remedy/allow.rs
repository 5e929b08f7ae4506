//! A policy that lets the pods of a job talk to each other, and look up names. Enters: the doors that default deny keeps
//! closed; leaves: one new object of the API that governs the namespace, which opens those and starts no isolation.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::gang::{Handle, handles, selectors, text};
use super::plan::{Action, Need, Plan, Step, StepKind};
use super::world::{Door, Far, World, dns_ports};
use crate::object::Object;
use crate::policy::{Closure, Cni, Decision, Direction, PolicyKind};

/// `enableDefaultDeny` exists since this version (cilium/cilium pull request #30572).
const ENABLE_DEFAULT_DENY_SINCE: (u16, u16) = (1, 16);
/// The longest name of a Kubernetes object (DNS subdomain).
const MOST_NAME: usize = 253;

/// The policy that opens what default deny keeps closed; `None` when nothing is, or when nothing selects the pods.
pub(super) fn plan(world: &World<'_>) -> Option<Plan> {
    let wanted = [Direction::Egress, Direction::Ingress].map(|direction| Wanted::new(world, direction));
    if wanted.iter().all(|wanted| wanted.subjects.is_empty()) {
        return None;
    }
    let everybody: Vec<usize> = (0..world.members.len()).collect();
    let peers = handles(world, &everybody)?;
    let sections = sections(world, &wanted, &everybody, &peers)?;
    let cilium = governed_by_cilium(world);
    let mut needs = Vec::new();
    if cilium
        && sections.iter().any(|section| section.keeps_default)
        && world.situation.policy_settings.cilium_version.is_none()
    {
        needs.push(Need::Cilium116);
    }
    let objects = match cilium {
        true => vec![cilium_policy(world, &sections, &peers)?],
        false => sections
            .iter()
            .enumerate()
            .map(|(n, s)| network_policy(world, n, s, &peers))
            .collect::<Option<_>>()?,
    };
    let step = |object| Step { kind: StepKind::AllowTraffic, action: Action::Apply(object) };
    Some(Plan {
        summary: summary(world, &wanted, &peers),
        needs,
        steps: objects.into_iter().map(step).collect(),
    })
}

/// What a direction has to let through, and for whom.
struct Wanted {
    direction: Direction,
    /// The members that default deny holds back in this direction: those are isolated in it already.
    subjects: Vec<usize>,
    members: bool,
    dns: bool,
    api: bool,
}

impl Wanted {
    fn new(world: &World<'_>, direction: Direction) -> Self {
        let mut subjects = BTreeSet::new();
        let mut wanted = Self { direction, subjects: Vec::new(), members: false, dns: false, api: false };
        for door in world.closed() {
            if !held_back(door, direction) {
                continue;
            }
            match (direction, door.dst) {
                (Direction::Egress, Far::Dns(_)) => wanted.dns = true,
                (Direction::Egress, Far::Api(_)) => wanted.api = true,
                (_, Far::Members(_)) => wanted.members = true,
                // What the policies of the name servers' own namespace keep out is not for a job's policy to open.
                (Direction::Ingress, Far::Dns(_) | Far::Api(_)) => continue,
            }
            let held = match direction {
                Direction::Egress => world.groups.get(door.src).map_or(&[][..], Vec::as_slice),
                Direction::Ingress => world.far_members(door.dst),
            };
            subjects.extend(
                held.iter().copied().filter(|m| !world.members.get(*m).is_none_or(|pod| pod.host_network)),
            );
        }
        wanted.subjects = subjects.into_iter().collect();
        wanted
    }
}

/// Whether default deny closes a door in a direction. Where an explicit deny does, an allow is of no use.
fn held_back(door: &Door, direction: Direction) -> bool {
    let decision = match direction {
        Direction::Egress => &door.egress,
        Direction::Ingress => &door.ingress,
    };
    matches!(decision, Decision::Closed(Closure { denied_by, missing: Some(_), .. }) if denied_by.is_empty())
}

/// One part of the policy: some pods, and the directions in which it adds allows for them.
struct Section<'a> {
    subject: Handle,
    directions: Vec<&'a Wanted>,
    /// Whether it says that it starts no default deny.
    keeps_default: bool,
}

/// All members at once where that isolates nobody anew, or can be told not to; otherwise only those that are isolated.
fn sections<'a>(
    world: &World<'_>,
    wanted: &'a [Wanted; 2],
    everybody: &[usize],
    peers: &[Handle],
) -> Option<Vec<Section<'a>>> {
    let directions: Vec<&Wanted> = wanted.iter().filter(|wanted| !wanted.subjects.is_empty()).collect();
    let cilium = governed_by_cilium(world);
    let version = world.situation.policy_settings.cilium_version;
    let sure = cilium && version.is_some_and(|version| version >= ENABLE_DEFAULT_DENY_SINCE);
    let whole = |directions: Vec<&'a Wanted>, keeps_default| -> Vec<Section<'a>> {
        let section = |subject: &Handle| Section { subject: subject.clone(), directions: directions.clone(), keeps_default };
        peers.iter().map(section).collect()
    };
    if sure || directions.iter().all(|wanted| wanted.subjects == everybody) {
        return Some(whole(directions, sure));
    }
    let part = |wanted: &'a Wanted| {
        let subjects = handles(world, &wanted.subjects)?;
        let exact = subjects.iter().all(|subject| subject.strangers == 0);
        let section = |subject| Section { subject, directions: vec![wanted], keeps_default: false };
        exact.then(|| subjects.into_iter().map(section).collect::<Vec<_>>())
    };
    if let Some(parts) = directions.iter().map(|wanted| part(wanted)).collect::<Option<Vec<_>>>() {
        return Some(joined(parts.into_iter().flatten()));
    }
    let may = cilium && version.is_none();
    may.then(|| whole(directions, true))
}

/// One section for each subject.
fn joined<'a>(parts: impl Iterator<Item = Section<'a>>) -> Vec<Section<'a>> {
    let mut joined: Vec<Section<'a>> = Vec::new();
    for mut part in parts {
        match joined.iter_mut().find(|known| known.subject == part.subject) {
            Some(known) => known.directions.append(&mut part.directions),
            None => joined.push(part),
        }
    }
    joined
}

/// The API that the namespace is governed by.
fn governed_by_cilium(world: &World<'_>) -> bool {
    let cilium = |kind: PolicyKind| kind < PolicyKind::NetworkPolicy;
    let blames_cilium = world.closed().flat_map(|door| [&door.egress, &door.ingress]).any(|decision| {
        matches!(decision, Decision::Closed(closure) if closure.default_deny.iter().any(|policy| cilium(policy.kind)))
    });
    let here = |object: &Object| {
        object.kind() == "CiliumNetworkPolicy"
            && object.group() == "cilium.io"
            && object.namespace() == Some(world.namespace())
    };
    let possible = world.situation.policy_settings.cni != Cni::Other;
    possible && (blames_cilium || world.objects.iter().any(here))
}

fn cilium_policy(world: &World<'_>, sections: &[Section<'_>], peers: &[Handle]) -> Option<Object> {
    let specs: Vec<Value> = sections.iter().map(|section| cilium_spec(world, section, peers)).collect();
    let mut policy = Map::new();
    policy.insert("apiVersion".to_owned(), json!("cilium.io/v2"));
    policy.insert("kind".to_owned(), json!("CiliumNetworkPolicy"));
    policy.insert("metadata".to_owned(), metadata(world, "CiliumNetworkPolicy", 0));
    match specs.as_slice() {
        [one] => policy.insert("spec".to_owned(), one.clone()),
        _ => policy.insert("specs".to_owned(), Value::Array(specs)),
    };
    Object::from_value(Value::Object(policy)).ok()
}

fn cilium_spec(world: &World<'_>, section: &Section<'_>, peers: &[Handle]) -> Value {
    let mut spec = Map::new();
    spec.insert("endpointSelector".to_owned(), section.subject.selector());
    for wanted in &section.directions {
        let among = match wanted.direction {
            Direction::Egress => json!({"toEndpoints": selectors(peers)}),
            Direction::Ingress => json!({"fromEndpoints": selectors(peers)}),
        };
        let mut rules = if wanted.members { vec![among] } else { Vec::new() };
        if wanted.direction == Direction::Egress {
            let ports: Vec<Value> = dns_ports(&world.situation)
                .into_iter()
                .flat_map(|port| {
                    ["UDP", "TCP"].map(|protocol| json!({"port": port.to_string(), "protocol": protocol}))
                })
                .collect();
            let servers: Vec<Value> = dns_servers(world)
                .into_iter()
                .map(|server| {
                    let mut labels = Map::from_iter([(
                        "k8s:io.kubernetes.pod.namespace".to_owned(),
                        json!(server.namespace),
                    )]);
                    labels.extend(server.label.map(|(key, value)| (format!("k8s:{key}"), json!(value))));
                    json!({"matchLabels": labels})
                })
                .collect();
            rules.push(json!({"toEndpoints": servers, "toPorts": [{"ports": ports}]}));
            if wanted.api {
                rules.push(json!({"toEntities": ["kube-apiserver"]}));
            }
        }
        spec.insert(wanted.direction.as_str().to_owned(), Value::Array(rules));
    }
    if section.keeps_default {
        spec.insert("enableDefaultDeny".to_owned(), json!({"ingress": false, "egress": false}));
    }
    Value::Object(spec)
}

fn network_policy(world: &World<'_>, number: usize, section: &Section<'_>, peers: &[Handle]) -> Option<Object> {
    let mut spec = Map::new();
    spec.insert("podSelector".to_owned(), section.subject.selector());
    let mut types = Vec::new();
    for wanted in &section.directions {
        let (name, side, kind) = match wanted.direction {
            Direction::Egress => ("egress", "to", "Egress"),
            Direction::Ingress => ("ingress", "from", "Ingress"),
        };
        types.push(kind);
        let among: Vec<Value> = selectors(peers).into_iter().map(|s| json!({"podSelector": s})).collect();
        let mut rules = if wanted.members { vec![json!({side: among})] } else { Vec::new() };
        if wanted.direction == Direction::Egress {
            let ports: Vec<Value> = dns_ports(&world.situation)
                .into_iter()
                .flat_map(|port| ["UDP", "TCP"].map(|protocol| json!({"port": port, "protocol": protocol})))
                .collect();
            let servers: Vec<Value> = dns_servers(world).into_iter().map(|server| {
                let labels: Map<String, Value> = server.label.map(|(key, value)| (key, json!(value))).into_iter().collect();
                json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": server.namespace}},
                    "podSelector": {"matchLabels": labels}})
            }).collect();
            rules.push(json!({"to": servers, "ports": ports}));
        }
        spec.insert(name.to_owned(), Value::Array(rules));
    }
    types.sort_unstable();
    spec.insert("policyTypes".to_owned(), json!(types));
    let policy = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": metadata(world, "NetworkPolicy", number), "spec": spec});
    Object::from_value(policy).ok()
}

/// A name server as a policy names it.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Server {
    namespace: String,
    label: Option<(String, String)>,
}

/// Those that are known, by the label that distributions give them; otherwise the usual one.
fn dns_servers(world: &World<'_>) -> BTreeSet<Server> {
    const KEYS: [&str; 4] =
        ["k8s-app", "dns.operator.openshift.io/daemonset-dns", "app.kubernetes.io/name", "app"];
    let usual = || Server {
        namespace: "kube-system".to_owned(),
        label: Some(("k8s-app".to_owned(), "kube-dns".to_owned())),
    };
    let known = world.dns.iter().filter(|pod| !pod.host_network).map(|pod| {
        let label = KEYS.iter().find_map(|key| Some(((*key).to_owned(), pod.labels.get(*key)?.clone())));
        Server { namespace: pod.namespace.clone(), label }
    });
    let known: BTreeSet<Server> = known.collect();
    if known.is_empty() { BTreeSet::from([usual()]) } else { known }
}

fn metadata(world: &World<'_>, kind: &str, number: usize) -> Value {
    let namespace = world.namespace();
    let taken: BTreeSet<&str> = world
        .objects
        .iter()
        .filter(|object| object.kind() == kind && object.namespace() == Some(namespace))
        .map(Object::name)
        .collect();
    let base = policy_name(&world.situation.inventory.job(world.situation.job).id.name);
    let names = std::iter::once(base.clone()).chain((2..).map(|n| format!("{base}-{n}")));
    let name = names.filter(|name| !taken.contains(name.as_str())).nth(number).unwrap_or(base);
    json!({"name": name, "namespace": namespace})
}

/// A valid object name: lower-case letters, digits and dashes (Kubernetes, object names).
fn policy_name(job: &str) -> String {
    let plain: String = job
        .to_ascii_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' })
        .take(MOST_NAME - 20)
        .collect();
    // Around a dot the parts of a name have to begin and end with a letter or digit.
    let parts: Vec<&str> =
        plain.split('.').map(|part| part.trim_matches('-')).filter(|part| !part.is_empty()).collect();
    format!("firedoor-allow-{}", parts.join(".")).trim_end_matches('-').to_owned()
}

fn summary(world: &World<'_>, wanted: &[Wanted; 2], peers: &[Handle]) -> String {
    let members = wanted.iter().any(|wanted| wanted.members);
    let egress =
        wanted.iter().any(|wanted| wanted.direction == Direction::Egress && !wanted.subjects.is_empty());
    let api = wanted.iter().any(|wanted| wanted.api);
    let count = world.members.len();
    let mut opens = Vec::new();
    if members {
        opens.push(format!("all ports between the {count} pods of the job"));
    }
    if egress {
        opens.push("DNS lookups".to_owned());
    }
    if api {
        opens.push("the Kubernetes API server".to_owned());
    }
    let others = match peers.iter().map(|handle| handle.strangers).sum() {
        0_usize => "and nothing else".to_owned(),
        1 => "and 1 other pod with the same labels".to_owned(),
        n => format!("and {n} other pods with the same labels"),
    };
    format!("allow the traffic by a policy for {}: opens {}, {others}", text(peers), opens.join(" and "))
}

//! A policy that lets the pods of a job talk to each other, and look up names. Enters: the doors that default deny keeps
//! closed; leaves: one new object of the API that governs the namespace, which opens those and starts no isolation.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::dns::{self, Server, servers};
use super::gang::{Handle, handles, selectors, text};
use super::plan::{Action, Need, Plan, Step, StepKind};
use super::world::{Door, Far, World};
use crate::object::Object;
use crate::policy::{Closure, Cni, Decision, Direction, PolicyKind};

/// `enableDefaultDeny` exists since this version (cilium/cilium pull request #30572).
const ENABLE_DEFAULT_DENY_SINCE: (u16, u16) = (1, 16);
/// The longest name of a Kubernetes object (DNS subdomain).
const MOST_NAME: usize = 253;

/// The policies that open what default deny keeps closed; `None` when nothing is, or when nothing selects the pods.
pub(super) fn plan(world: &World<'_>) -> Option<Plan> {
    let wanted = [Direction::Egress, Direction::Ingress].map(|direction| Wanted::new(world, direction));
    let everybody: Vec<usize> = (0..world.members.len()).collect();
    let peers = handles(world, &everybody)?;
    let mut objects = Vec::new();
    let mut needs = Vec::new();
    if wanted.iter().any(|wanted| !wanted.subjects.is_empty()) {
        let sections = sections(world, &wanted, &everybody, &peers)?;
        let cilium = governed_by_cilium(world);
        let unknown = world.situation.policy_settings.cilium_version.is_none();
        if cilium && unknown && sections.iter().any(|section| section.keeps_default) {
            needs.push(Need::Cilium116);
        }
        if cilium {
            objects.push(cilium_policy(world, &sections, &peers)?);
        } else {
            let policy = |(number, section)| network_policy(world, number, section, &peers);
            objects.extend(sections.iter().enumerate().map(policy).collect::<Option<Vec<_>>>()?);
        }
    }
    let servers = dns::closed_servers(world);
    objects.extend(dns::policies(world, &servers, &peers));
    let step = |object| Step { kind: StepKind::AllowTraffic, action: Action::Apply(object) };
    let steps: Vec<Step> = objects.into_iter().map(step).collect();
    let summary = summary(world, &wanted, &servers, &peers);
    (!steps.is_empty()).then_some(Plan { summary, needs, steps })
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
                // What the name servers' own policies keep out is for a policy of theirs to open.
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
pub(super) fn held_back(door: &Door, direction: Direction) -> bool {
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
        let section = |subject: &Handle| Section {
            subject: subject.clone(),
            directions: directions.clone(),
            keeps_default,
        };
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
    policy.insert("metadata".to_owned(), metadata(world, "CiliumNetworkPolicy", world.namespace(), 0));
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
            let servers: Vec<Value> = servers(world).iter().map(Server::endpoint_selector).collect();
            rules.push(json!({"toEndpoints": servers, "toPorts": [{"ports": dns::ports(world, true)}]}));
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

fn network_policy(
    world: &World<'_>,
    number: usize,
    section: &Section<'_>,
    peers: &[Handle],
) -> Option<Object> {
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
            let servers: Vec<Value> = servers(world).iter().map(Server::peer).collect();
            rules.push(json!({"to": servers, "ports": dns::ports(world, false)}));
        }
        spec.insert(name.to_owned(), Value::Array(rules));
    }
    types.sort_unstable();
    spec.insert("policyTypes".to_owned(), json!(types));
    let policy = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": metadata(world, "NetworkPolicy", world.namespace(), number), "spec": spec});
    Object::from_value(policy).ok()
}

/// A name that no other policy has; the second such policy of a remedy has the number 1.
pub(super) fn metadata(world: &World<'_>, kind: &str, namespace: &str, number: usize) -> Value {
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

fn summary(world: &World<'_>, wanted: &[Wanted; 2], servers: &BTreeSet<Server>, peers: &[Handle]) -> String {
    let members = wanted.iter().any(|wanted| wanted.members);
    let egress =
        wanted.iter().any(|wanted| wanted.direction == Direction::Egress && !wanted.subjects.is_empty());
    let api = wanted.iter().any(|wanted| wanted.api);
    let count = world.members.len();
    let mut opens = Vec::new();
    if members {
        opens.push(format!("all ports between the {count} pods of the job"));
    }
    if !servers.is_empty() {
        opens.push("DNS lookups, at the name servers too".to_owned());
    } else if egress {
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

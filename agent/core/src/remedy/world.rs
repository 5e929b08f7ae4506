//! The part of a cluster that decides whether a job's pods reach each other: its pods, their owners, nodes, policies.
//! Enters: objects as they are, or as they would be after a remedy; leaves: every door that has to be open, and whether
//! it is. Must not know remedies.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::Situation;
use crate::attribute::Peer;
use crate::facts::{Namespace, Node, Phase, Pod, Protocol, Zone};
use crate::inventory::{FastMap, PodId};
use crate::object::{Object, ObjectKey};
use crate::policy::{self, Decision, Entity, Evaluator, PolicySet, Ports, Question, Verdict3};
use crate::report::CauseKind;

/// What the kernel picks from for a listener without a port of its own (Linux' default
/// `net.ipv4.ip_local_port_range`): NCCL and Gloo listen anywhere in it.
const EPHEMERAL: (u16, u16) = (32_768, 60_999);
/// Where name servers listen.
const DNS_PORT: u16 = 53;
/// Different ports beside the ephemeral ones that are asked about.
const MOST_PORTS: usize = 64;
/// How far owner references are followed.
const MOST_OWNERS: usize = 8;
/// Kinds of objects that decide, besides pods and their owners.
const DECIDING: [&str; 10] = [
    "CiliumNetworkPolicy",
    "CiliumClusterwideNetworkPolicy",
    "NetworkPolicy",
    "AdminNetworkPolicy",
    "BaselineAdminNetworkPolicy",
    "Namespace",
    "Service",
    "Node",
    "TrainingRuntime",
    "ClusterTrainingRuntime",
];

/// What tells a pod from all others.
type PodKey = (String, String, Option<String>);

/// Who is at the far end of a door.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Far {
    /// Members: a place in [`World::groups`].
    Members(usize),
    /// A name server: a place in [`World::dns`].
    Dns(usize),
    /// The API server.
    Api(IpAddr),
}

/// A way that has to be open, and whether it is.
#[derive(Clone, Debug)]
pub(super) struct Door {
    /// Members that open the connection: a place in [`World::groups`].
    pub(super) src: usize,
    pub(super) dst: Far,
    pub(super) protocol: Protocol,
    pub(super) ports: Ports,
    pub(super) egress: Decision,
    pub(super) ingress: Decision,
}

impl Door {
    pub(super) fn verdict(&self) -> Verdict3 {
        match (self.egress.verdict(), self.ingress.verdict()) {
            (Verdict3::Closed, _) | (_, Verdict3::Closed) => Verdict3::Closed,
            (Verdict3::Open, Verdict3::Open) => Verdict3::Open,
            _ => Verdict3::Unknown,
        }
    }
}

/// The cluster around a job.
pub(super) struct World<'a> {
    pub(super) situation: Situation<'a>,
    pub(super) objects: Vec<Object>,
    /// The job's pods, always in the same order.
    pub(super) members: Vec<Pod>,
    /// The objects of [`World::members`], as places in [`World::objects`].
    places: Vec<usize>,
    pub(super) dns: Vec<Pod>,
    /// Members no policy tells apart.
    pub(super) groups: Vec<Vec<usize>>,
    pub(super) doors: Vec<Door>,
    pub(super) set: PolicySet,
    keys: Vec<PodKey>,
    dns_keys: Vec<PodKey>,
}

impl<'a> World<'a> {
    /// The cluster as it is.
    pub(super) fn of(situation: &Situation<'a>) -> Self {
        let inventory = situation.inventory;
        let members = member_ids(situation);
        let dns = dns_ids(situation);
        let key = |id: &PodId| {
            let pod = inventory.pod(*id);
            (pod.namespace.clone(), pod.name.clone(), pod.uid.clone())
        };
        let keys: Vec<PodKey> = members.iter().map(key).collect();
        let dns_keys: Vec<PodKey> = dns.iter().map(key).collect();
        let tops = members.iter().filter_map(|id| inventory.top_of(*id)).collect();
        let objects = relevant(situation.objects, &keys, &dns_keys, &tops);
        Self::build(*situation, objects, keys, dns_keys)
    }

    /// The cluster with other objects.
    pub(super) fn with(&self, objects: Vec<Object>) -> Self {
        Self::build(self.situation, objects, self.keys.clone(), self.dns_keys.clone())
    }

    fn build(
        situation: Situation<'a>,
        objects: Vec<Object>,
        keys: Vec<PodKey>,
        dns_keys: Vec<PodKey>,
    ) -> Self {
        let mut at: FastMap<(&str, &str, Option<&str>), usize> = FastMap::default();
        for (place, object) in objects.iter().enumerate().filter(|(_, o)| o.kind() == "Pod") {
            at.insert((object.namespace().unwrap_or("default"), object.name(), object.uid()), place);
        }
        let place = |(namespace, name, uid): &PodKey| {
            at.get(&(namespace.as_str(), name.as_str(), uid.as_deref())).copied()
        };
        let places: Vec<usize> = keys.iter().filter_map(place).collect();
        let pod = |place: &usize| objects.get(*place).and_then(Pod::from_object);
        let members: Vec<Pod> = places.iter().filter_map(pod).collect();
        let dns: Vec<Pod> = dns_keys.iter().filter_map(place).filter_map(|place| pod(&place)).collect();
        let namespaces: Vec<Namespace> = objects.iter().filter_map(Namespace::from_object).collect();
        let set = PolicySet::from_objects(&objects, &namespaces, situation.policy_settings);
        let pods: Vec<&Pod> = members.iter().collect();
        let groups = set.identities(&pods).groups().to_vec();
        let doors = doors(&situation, &set, &members, &dns, &groups);
        Self { situation, places, members, dns, groups, doors, set, keys, dns_keys, objects }
    }

    /// The object behind a member.
    pub(super) fn member_object(&self, member: usize) -> Option<&Object> {
        self.objects.get(*self.places.get(member)?)
    }

    pub(super) fn node_of(&self, pod: &Pod) -> Option<&'a Node> {
        self.situation.inventory.nodes().get(pod.node.as_deref()?)
    }

    pub(super) fn zone_of(&self, pod: &Pod) -> Option<&'a Zone> {
        self.node_of(pod)?.zone.as_ref()
    }

    /// The known zones of the members.
    pub(super) fn zones(&self) -> BTreeSet<&'a Zone> {
        self.members.iter().filter_map(|pod| self.zone_of(pod)).collect()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.doors.iter().any(|door| door.verdict() == Verdict3::Closed)
    }

    pub(super) fn closed(&self) -> impl Iterator<Item = &Door> {
        self.doors.iter().filter(|door| door.verdict() == Verdict3::Closed)
    }

    /// The namespace of the job's pods.
    pub(super) fn namespace(&self) -> &'a str {
        &self.situation.inventory.job(self.situation.job).id.namespace
    }

    /// All pods at the far end of a door that are members.
    pub(super) fn far_members(&self, far: Far) -> &[usize] {
        match far {
            Far::Members(group) => self.groups.get(group).map_or(&[], Vec::as_slice),
            Far::Dns(_) | Far::Api(_) => &[],
        }
    }

    /// The pods of other jobs and services in the job's namespace.
    pub(super) fn strangers(&self) -> impl Iterator<Item = &'a Pod> {
        let inventory = self.situation.inventory;
        let members: BTreeSet<PodId> = member_ids(&self.situation).into_iter().collect();
        let namespace = self.namespace();
        let here =
            inventory.pods().iter().zip((0..).map(PodId)).filter(move |(pod, _)| pod.namespace == namespace);
        here.filter(move |(_, id)| !members.contains(id)).map(|(pod, _)| pod)
    }
}

pub(super) fn member_ids(situation: &Situation<'_>) -> Vec<PodId> {
    let members = situation.inventory.job(situation.job).members.iter();
    members.filter_map(|member| u32::try_from(member.pod).ok().map(PodId)).collect()
}

/// The name servers somebody could not reach, and all others that bear the usual label.
fn dns_ids(situation: &Situation<'_>) -> Vec<PodId> {
    let asked = situation.blocked.iter().filter_map(|pair| match pair.dst {
        Peer::Dns(pod, _) => pod,
        Peer::Member(_) | Peer::SharedAddress(_) | Peer::ApiServer(_) => None,
    });
    let usual = (0..).map(PodId).zip(situation.inventory.pods()).filter(|(_, pod)| {
        pod.namespace == "kube-system" && pod.labels.get("k8s-app").is_some_and(|app| app == "kube-dns")
    });
    let all: BTreeSet<PodId> = asked.chain(usual.map(|(id, _)| id)).collect();
    all.into_iter().collect()
}

/// The objects that decide: policies and what they refer to, the pods, whatever owns them, and what a user edits.
fn relevant(
    objects: &[Object],
    keys: &[PodKey],
    dns_keys: &[PodKey],
    tops: &BTreeSet<&ObjectKey>,
) -> Vec<Object> {
    let pods: BTreeSet<&PodKey> = keys.iter().chain(dns_keys).collect();
    let is_wanted = |object: &Object| {
        let key = (
            object.namespace().unwrap_or("default").to_owned(),
            object.name().to_owned(),
            object.uid().map(str::to_owned),
        );
        pods.contains(&key)
    };
    let by_uid: FastMap<&str, usize> =
        objects.iter().enumerate().filter_map(|(place, object)| Some((object.uid()?, place))).collect();
    let mut kept: BTreeSet<usize> = BTreeSet::new();
    for (place, object) in objects.iter().enumerate() {
        match object.kind() {
            "Pod" if is_wanted(object) => {
                kept.insert(place);
                keep_owners(objects, &by_uid, object, &mut kept);
            }
            kind if kind != "Pod" && (DECIDING.contains(&kind) || tops.contains(&object.key())) => {
                kept.insert(place);
            }
            _ => {}
        }
    }
    // Trees of packed objects go with this world: those of all jobs together would take much.
    kept.into_iter().filter_map(|place| objects.get(place).map(Object::apart)).collect()
}

fn keep_owners(objects: &[Object], by_uid: &FastMap<&str, usize>, pod: &Object, kept: &mut BTreeSet<usize>) {
    let mut next: Vec<(usize, String)> =
        pod.apart().owners().into_iter().map(|owner| (0, owner.uid)).collect();
    while let Some((depth, uid)) = next.pop() {
        let Some(place) = by_uid.get(uid.as_str()) else { continue };
        let Some(owner) = objects.get(*place) else { continue };
        if owner.kind() == "Pod" || owner.namespace() != pod.namespace() || !kept.insert(*place) {
            continue;
        }
        if depth < MOST_OWNERS {
            next.extend(owner.owners().into_iter().map(|owner| (depth + 1, owner.uid)));
        }
    }
}

/// What has to be asked of every pair of members: all ephemeral ports, and the ports somebody could not reach.
fn member_questions(situation: &Situation<'_>, members: &[Pod]) -> Vec<(Protocol, Ports)> {
    let mut ranges = BTreeSet::from([EPHEMERAL]);
    ranges.extend(members.iter().filter_map(|pod| pod.local_ports));
    let own = situation.blocked.iter().filter(|pair| matches!(pair.dst, Peer::Member(_)));
    let own: BTreeSet<(Protocol, u16)> =
        own.flat_map(|pair| pair.ports.iter().map(|port| (pair.protocol, *port))).collect();
    let within = |(protocol, port): &(Protocol, u16)| {
        *protocol == Protocol::Tcp && ranges.iter().any(|(low, high)| (low..=high).contains(&port))
    };
    let own = own.iter().filter(|port| !within(port)).take(MOST_PORTS);
    let own = own.map(|(protocol, port)| (*protocol, Ports::One(*port)));
    let ranges = ranges.iter().map(|(low, high)| (Protocol::Tcp, Ports::Range(*low, *high)));
    ranges.chain(own).collect()
}

/// The ports of name servers: the usual one, and those somebody could not reach.
pub(super) fn dns_ports(situation: &Situation<'_>) -> BTreeSet<u16> {
    let asked = situation.blocked.iter().filter(|pair| matches!(pair.dst, Peer::Dns(..)));
    let asked = asked.flat_map(|pair| pair.ports.iter().copied()).take(MOST_PORTS);
    asked.chain([DNS_PORT]).collect()
}

fn doors(
    situation: &Situation<'_>,
    set: &PolicySet,
    members: &[Pod],
    dns: &[Pod],
    groups: &[Vec<usize>],
) -> Vec<Door> {
    let pods: Vec<&Pod> = members.iter().chain(dns).collect();
    let mut asked = Asked { evaluator: Evaluator::new(set, &pods), doors: Vec::new() };
    let questions = member_questions(situation, members);
    let first = |group: &Vec<usize>| group.first().and_then(|place| members.get(*place));
    for (src, from) in groups.iter().enumerate() {
        let Some(source) = first(from).map(policy::Peer::Pod) else { continue };
        for (dst, to) in groups.iter().enumerate() {
            let other = if src == dst { to.get(1) } else { to.first() };
            let Some(target) = other.and_then(|place| members.get(*place)) else { continue };
            for question in &questions {
                asked.ask((src, source), (Far::Members(dst), policy::Peer::Pod(target)), *question);
            }
        }
        if asks_dns(situation) {
            let protocols = [Protocol::Udp, Protocol::Tcp];
            let ports = dns_ports(situation);
            let questions =
                ports.iter().flat_map(|port| protocols.map(|protocol| (protocol, Ports::One(*port))));
            for question in questions {
                for (number, server) in dns.iter().enumerate() {
                    asked.ask((src, source), (Far::Dns(number), policy::Peer::Pod(server)), question);
                }
            }
        }
        for (ip, port) in api_questions(situation, members, from) {
            let server = policy::Peer::Entity(Entity::KubeApiserver, Some(ip));
            asked.ask((src, source), (Far::Api(ip), server), (Protocol::Tcp, Ports::One(port)));
        }
    }
    asked.doors
}

struct Asked<'p> {
    evaluator: Evaluator<'p>,
    doors: Vec<Door>,
}

impl<'p> Asked<'p> {
    fn ask(
        &mut self,
        (src, from): (usize, policy::Peer<'p>),
        (dst, to): (Far, policy::Peer<'p>),
        (protocol, ports): (Protocol, Ports),
    ) {
        let answer = self.evaluator.evaluate(&Question { src: from, dst: to, protocol, ports });
        let (egress, ingress) = (answer.egress().clone(), answer.ingress().clone());
        self.doors.push(Door { src, dst, protocol, ports, egress, ingress });
    }
}

/// Whether name servers have to be reached for the finding to be gone.
pub(super) fn asks_dns(situation: &Situation<'_>) -> bool {
    situation.cause == CauseKind::DnsBlocked
        || situation.blocked.iter().any(|pair| matches!(pair.dst, Peer::Dns(..)))
}

/// The API server is only for the members that tried to reach it.
fn api_questions(situation: &Situation<'_>, members: &[Pod], group: &[usize]) -> BTreeSet<(IpAddr, u16)> {
    let mut asked = BTreeSet::new();
    for pair in situation.blocked {
        let Peer::ApiServer(ip) = pair.dst else { continue };
        let source = situation.inventory.pod(pair.src);
        let same = |pod: &Pod| pod.name == source.name && pod.uid == source.uid;
        if group.iter().filter_map(|place| members.get(*place)).any(same) {
            asked.extend(pair.ports.iter().take(MOST_PORTS).map(|port| (ip, *port)));
        }
    }
    asked
}

/// How many pods each accelerator-bearing node has given its accelerators to, the job's own pods left out.
pub(super) fn taken_accelerators(situation: &Situation<'_>) -> BTreeMap<String, u32> {
    let members: BTreeSet<PodId> = member_ids(situation).into_iter().collect();
    let mut taken: BTreeMap<String, u32> = BTreeMap::new();
    for (id, pod) in (0..).map(PodId).zip(situation.inventory.pods()) {
        let holds = !matches!(pod.phase, Phase::Succeeded | Phase::Failed);
        if let Some(node) = pod.node.as_ref().filter(|_| holds && pod.gpus > 0 && !members.contains(&id)) {
            let entry = taken.entry(node.clone()).or_default();
            *entry = entry.saturating_add(pod.gpus);
        }
    }
    taken
}

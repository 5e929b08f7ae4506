//! The cluster at a glance: pods with their address leases, nodes, namespaces, services, jobs. Enters: objects;
//! leaves: an immutable snapshot that answers "who had this address at that time" without waiting. Must not
//! know flows, windows or findings.

mod former;
mod renew;
mod resolve;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::facts::{Namespace, Node, Pod, Service, Zone};
use crate::membership::{Grouping, Job, JobId, Jobs, Member};
use crate::object::{Object, ObjectKey};
use crate::prices::provider;
use crate::time::Timestamp;

pub use former::{PolicyChanges, PolicyEpoch, is_policy};
pub use renew::{JobNumbers, Renewal};
pub use resolve::{EPHEMERAL_PORTS, Endpoint, PairOfPods};

/// A hash map with a fast hash; never iterated for output.
pub type FastMap<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;

/// Pods by namespace, then by name.
type PodsByName = FastMap<Box<str>, FastMap<Box<str>, Vec<PodId>>>;

/// A pod, stable for the life of the inventory it came from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PodId(pub u32);

/// A job, stable for the life of the inventory it came from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct JobIndex(pub u32);

/// Something odd about the objects that a person should know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Oddity {
    /// Two different objects carry the same UID.
    SharedUid {
        /// The UID.
        uid: String,
        /// The object that was read first.
        first: ObjectKey,
        /// The object that was read later.
        second: ObjectKey,
    },
}

/// What a snapshot is made of.
struct Snapshot {
    pods: Vec<Pod>,
    pod_objects: Vec<Option<Object>>,
    objects: Vec<Object>,
    oddities: Vec<Oddity>,
}

/// An immutable snapshot of the cluster.
#[derive(Default)]
pub struct Inventory {
    pods: Vec<Pod>,
    /// What each pod was read from; `None`: it is forgotten.
    pod_objects: Vec<Option<Object>>,
    nodes: BTreeMap<String, Node>,
    namespaces: BTreeMap<String, Namespace>,
    services: Vec<Service>,
    objects: Vec<Object>,
    jobs: Jobs,
    grouping: Grouping,
    oddities: Vec<Oddity>,
    by_name: PodsByName,
    by_uid: FastMap<Box<str>, PodId>,
    by_ip: FastMap<IpAddr, Vec<PodId>>,
    on_host: FastMap<Box<str>, Vec<PodId>>,
    node_by_ip: FastMap<IpAddr, Box<str>>,
    service_by_ip: FastMap<IpAddr, usize>,
    api_servers: Vec<IpAddr>,
    /// Objects other than pods that the cluster no longer has, and since when.
    missed: FastMap<renew::Identity, Timestamp>,
    /// By UID: pods that the cluster no longer has, and until when they may have held their addresses.
    gone: FastMap<Box<str>, renew::Gone>,
    former: former::Former,
    /// Jobs of which only some members are among the objects, as they were named ...
    partial: BTreeSet<JobId>,
    /// ... and by number; empty when there are none.
    partly: Vec<bool>,
    /// Pods that the cluster no longer has, and of which it was told exactly when they ended.
    ended: BTreeSet<PodId>,
    /// By pod: ports that are a rendezvous although they lie in the ephemeral range.
    rendezvous: FastMap<PodId, Vec<u16>>,
}

impl Inventory {
    /// Builds the snapshot. Of several objects with the same kind, namespace, name and UID the last one counts;
    /// pods of the same name with different UIDs are different pods.
    #[must_use]
    pub fn new(objects: Vec<Object>, grouping: &Grouping) -> Self {
        let (objects, oddities) = distinct(objects);
        let read =
            objects.iter().filter_map(|object| Some((Pod::from_object(object)?, Some(object.clone()))));
        let (pods, pod_objects) = read.unzip();
        Self::build(Snapshot { pods, pod_objects, objects, oddities }, grouping)
    }

    fn build(snapshot: Snapshot, grouping: &Grouping) -> Self {
        let Snapshot { pods, pod_objects, objects, oddities } = snapshot;
        let mut inventory = Self {
            jobs: Jobs::resolve(&pods, &objects, grouping),
            grouping: grouping.clone(),
            nodes: objects.iter().filter_map(Node::from_object).map(|n| (n.name.clone(), n)).collect(),
            namespaces: objects
                .iter()
                .filter_map(Namespace::from_object)
                .map(|n| (n.name.clone(), n))
                .collect(),
            services: objects.iter().filter_map(Service::from_object).collect(),
            api_servers: api_server_addresses(&objects),
            pods,
            pod_objects,
            objects,
            oddities,
            ..Self::default()
        };
        inventory.index();
        inventory
    }

    fn index(&mut self) {
        for (id, pod) in (0..).map(PodId).zip(&self.pods).filter(|(_, pod)| !pod.name.is_empty()) {
            let of_namespace = self.by_name.entry(pod.namespace.as_str().into()).or_default();
            of_namespace.entry(pod.name.as_str().into()).or_default().push(id);
            if let Some(uid) = &pod.uid {
                // Of two pods that claim one UID the first is believed, as everywhere.
                self.by_uid.entry(uid.as_str().into()).or_insert(id);
            }
            if pod.host_network {
                if let Some(node) = &pod.node {
                    self.on_host.entry(node.as_str().into()).or_default().push(id);
                }
            } else {
                for ip in &pod.ips {
                    self.by_ip.entry(*ip).or_default().push(id);
                }
            }
        }
        for node in self.nodes.values() {
            for ip in &node.ips {
                self.node_by_ip.entry(*ip).or_insert_with(|| node.name.as_str().into());
            }
        }
        // A host-network pod's address is its node's, also where the node object is missing.
        for pod in self.pods.iter().filter(|p| p.host_network) {
            for (ip, node) in pod.ips.iter().zip(pod.node.iter().cycle()) {
                self.node_by_ip.entry(*ip).or_insert_with(|| node.as_str().into());
            }
        }
        self.rendezvous = rendezvous(&self.pods, &self.services, &self.by_name);
        for (index, service) in self.services.iter().enumerate() {
            for ip in &service.cluster_ips {
                self.service_by_ip.entry(*ip).or_insert(index);
            }
        }
    }

    /// All pods, by [`PodId`].
    #[must_use]
    pub fn pods(&self) -> &[Pod] {
        &self.pods
    }

    /// The pod with this id.
    ///
    /// # Panics
    /// When the id comes from another inventory.
    #[must_use]
    pub fn pod(&self, id: PodId) -> &Pod {
        &self.pods[id.0 as usize]
    }

    /// All nodes, by name.
    #[must_use]
    pub fn nodes(&self) -> &BTreeMap<String, Node> {
        &self.nodes
    }

    /// All known namespaces, by name.
    #[must_use]
    pub fn namespaces(&self) -> &BTreeMap<String, Namespace> {
        &self.namespaces
    }

    /// All services.
    #[must_use]
    pub fn services(&self) -> &[Service] {
        &self.services
    }

    /// All objects, as they were read.
    #[must_use]
    pub fn objects(&self) -> &[Object] {
        &self.objects
    }

    /// Whether anything is known at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// What a person should know about the objects.
    #[must_use]
    pub fn oddities(&self) -> &[Oddity] {
        &self.oddities
    }

    /// Who belongs to which job, single-pod jobs included.
    #[must_use]
    pub fn membership(&self) -> &Jobs {
        &self.jobs
    }

    /// All jobs.
    pub fn jobs(&self) -> impl Iterator<Item = (JobIndex, &Job)> {
        (0..).map(JobIndex).zip(&self.jobs.jobs)
    }

    /// The job with this index.
    ///
    /// # Panics
    /// When the index comes from another inventory.
    #[must_use]
    pub fn job(&self, index: JobIndex) -> &Job {
        &self.jobs.jobs[index.0 as usize]
    }

    /// The job a pod belongs to, when that job has somebody to talk to, and its membership.
    #[must_use]
    pub fn job_of(&self, pod: PodId) -> Option<(JobIndex, &Member)> {
        let (index, member) = self.jobs.of_pod(pod.0 as usize)?;
        let job = JobIndex(u32::try_from(index).ok()?);
        self.has_company(job).then_some((job, member))
    }

    /// Whether a job has somebody to talk to, known or not.
    #[must_use]
    pub fn has_company(&self, job: JobIndex) -> bool {
        self.job(job).members.len() > 1 || self.is_partial(job)
    }

    /// Says of which jobs only some members are among the objects, in place of what was said before.
    pub fn set_partial(&mut self, jobs: BTreeSet<JobId>) {
        let same = |known: &JobId, id: &JobId| {
            (&known.namespace, &known.kind, &known.name) == (&id.namespace, &id.kind, &id.name)
                && (known.uid.is_none() || id.uid.is_none() || known.uid == id.uid)
        };
        self.partly = if jobs.is_empty() {
            Vec::new()
        } else {
            self.jobs.jobs.iter().map(|job| jobs.iter().any(|known| same(known, &job.id))).collect()
        };
        self.partial = jobs;
    }

    /// Whether only some members of this job are among the objects.
    #[must_use]
    pub fn is_partial(&self, job: JobIndex) -> bool {
        self.partly.get(job.0 as usize).copied().unwrap_or(false)
    }

    /// Whether there is any such job.
    #[must_use]
    pub fn any_partial(&self) -> bool {
        self.partly.contains(&true)
    }

    /// The object a user edits to change this pod; without any owner it is the pod itself.
    #[must_use]
    pub fn top_of(&self, pod: PodId) -> Option<&ObjectKey> {
        self.jobs.top_of(pod.0 as usize)
    }

    /// The zone a pod runs in; `None` when unknown.
    #[must_use]
    pub fn zone_of(&self, pod: PodId) -> Option<&Zone> {
        self.node_of(pod)?.zone.as_ref()
    }

    /// The zone of the node with this address; `None` when unknown.
    #[must_use]
    pub fn zone_at(&self, ip: IpAddr) -> Option<&Zone> {
        self.nodes.get(self.node_by_ip.get(&ip)?.as_ref())?.zone.as_ref()
    }

    /// The provider of a pod's node, as prices know it; `None` when unknown.
    #[must_use]
    pub fn provider_of(&self, pod: PodId) -> Option<&str> {
        provider(self.node_of(pod)?.provider_id.as_deref()?)
    }

    /// The node a pod runs on; `None` when unknown.
    #[must_use]
    pub fn node_of(&self, pod: PodId) -> Option<&Node> {
        self.nodes.get(self.pod(pod).node.as_deref()?)
    }

    /// The pods of this name that could be meant at `at`, best first.
    #[must_use]
    pub fn pod_named(&self, namespace: &str, name: &str, at: Timestamp) -> Option<PodId> {
        self.nearest(self.by_name.get(namespace)?.get(name)?, at)
    }
}

/// The node's name without the cluster that Hubble puts before it (`cluster/node`, unless the cluster is
/// `default`).
#[must_use]
pub fn node_name(observer: &str) -> &str {
    // Asked several times for each event, of short names: a plain loop is the quickest.
    let cluster = observer.bytes().rposition(|byte| byte == b'/');
    cluster.and_then(|slash| observer.get(slash + 1..)).unwrap_or(observer)
}

fn distinct(objects: Vec<Object>) -> (Vec<Object>, Vec<Oddity>) {
    type Name<'a> = (&'a str, Option<&'a str>, &'a str);
    let mut places: Vec<Option<usize>> = Vec::with_capacity(objects.len());
    let mut oddities = Vec::new();
    let mut kept = 0;
    {
        let mut place: FastMap<(Name<'_>, &str, &str), usize> = FastMap::default();
        let mut first_with_uid: FastMap<&str, &Object> = FastMap::default();
        for (index, object) in objects.iter().enumerate() {
            let name = (object.kind(), object.namespace(), object.name());
            let uid = object.uid().unwrap_or_default();
            if !uid.is_empty() {
                let first = first_with_uid.entry(uid).or_insert(object);
                if (first.kind(), first.namespace(), first.name()) != name {
                    oddities.push(Oddity::SharedUid {
                        uid: uid.to_owned(),
                        first: first.key(),
                        second: object.key(),
                    });
                }
            }
            // Only pods live several lives under one name; of anything else the last one read is the current one.
            let incarnation = if name.0 == "Pod" { uid } else { "" };
            // Where it stands: in the place of the first of its name.
            let known = place.insert((name, object.group(), incarnation), index);
            places.push(None);
            let stands = known.and_then(|known| places.get_mut(known)?.take()).unwrap_or_else(|| {
                kept += 1;
                kept - 1
            });
            if let Some(own) = places.last_mut() {
                *own = Some(stands);
            }
        }
    }
    let mut standing: Vec<Option<Object>> = vec![None; kept];
    for (object, place) in objects.into_iter().zip(places) {
        if let Some(free) = place.and_then(|place| standing.get_mut(place)) {
            *free = Some(object);
        }
    }
    (standing.into_iter().flatten().collect(), oddities)
}

/// Ports in the ephemeral range that are declared, served or named by the job's environment. One list a pod that
/// has any; most have none.
fn rendezvous(pods: &[Pod], services: &[Service], by_name: &PodsByName) -> FastMap<PodId, Vec<u16>> {
    let mut found: FastMap<PodId, Vec<u16>> = FastMap::default();
    let picked = |port: u16| port >= resolve::EPHEMERAL_PORTS.0;
    for (id, pod) in (0..).map(PodId).zip(pods) {
        let low = pod.local_ports.map_or(resolve::EPHEMERAL_PORTS.0, |(low, _)| low);
        let named = ["MASTER_PORT", "PET_MASTER_PORT"].iter().filter_map(|v| pod.env.get(*v)?.parse().ok());
        let declared = pod.ports.iter().map(|p| p.port);
        let ports: Vec<u16> = declared.chain(named).filter(|port| *port >= low).collect();
        if !ports.is_empty() {
            found.entry(id).or_default().extend(ports);
        }
    }
    for service in services {
        let targets: Vec<u16> =
            service.ports.iter().filter_map(|p| p.target).filter(|port| picked(*port)).collect();
        if targets.is_empty() {
            continue;
        }
        for id in
            by_name.get(service.namespace.as_str()).into_iter().flat_map(|names| names.values()).flatten()
        {
            if pods.get(id.0 as usize).is_some_and(|pod| resolve::selects(service, pod)) {
                found.entry(*id).or_default().extend(&targets);
            }
        }
    }
    found
}

/// Where the API server listens: the `kubernetes` service of the default namespace and its endpoints.
fn api_server_addresses(objects: &[Object]) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    let told = |o: &&Object| matches!(o.kind(), "Service" | "EndpointSlice" | "Endpoints");
    for object in objects.iter().filter(told).filter(|o| o.namespace() == Some("default")) {
        let of_slice = object.labels().get("kubernetes.io/service-name").is_some_and(|s| s == "kubernetes");
        match object.kind() {
            "Service" if object.name() == "kubernetes" => {
                addresses.extend(Service::from_object(object).into_iter().flat_map(|s| s.cluster_ips));
            }
            "EndpointSlice" if of_slice => {
                let endpoints = object.items("/endpoints").filter_map(|e| e.get("addresses")?.as_array());
                addresses.extend(endpoints.flatten().filter_map(|a| a.as_str()?.parse::<IpAddr>().ok()));
            }
            "Endpoints" if object.name() == "kubernetes" => {
                let subsets = object.items("/subsets").filter_map(|s| s.get("addresses")?.as_array());
                addresses
                    .extend(subsets.flatten().filter_map(|a| a.get("ip")?.as_str()?.parse::<IpAddr>().ok()));
            }
            _ => {}
        }
    }
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

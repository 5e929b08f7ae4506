//! Who is at the end of a flow, at the time of the flow. A pod told by its UID or its name comes first, then the pod
//! that held the address at that time, then the host-network pods of a node where that can be decided, then
//! services.

use std::net::IpAddr;
use std::time::Duration;

use super::{Inventory, JobIndex, PodId};
use crate::facts::{Pod, Protocol, Service};
use crate::ledger::PortClass;
use crate::observation::{End, Reserved};
use crate::time::Timestamp;

/// Clocks of nodes and API server differ: an event this far outside a pod's lease still means that pod when no
/// other pod held the name or address.
const LEASE_TOLERANCE: Duration = Duration::from_secs(60);

/// Ports on which a node's own services listen; traffic to them is never a host-network pod's by elimination:
/// kubelet, kube-proxy, etcd, API server, Cilium health and Hubble, VXLAN, Geneve, WireGuard, BGP.
const NODE_PORTS: &[u16] = &[179, 2379, 2380, 4240, 4244, 4245, 6081, 6443, 8472, 10250, 10255, 10256, 51871];

/// Linux' default `net.ipv4.ip_local_port_range`.
pub const EPHEMERAL_PORTS: (u16, u16) = (32_768, 60_999);
/// The coordinator port JAX picks by itself on Kubernetes, within the ephemeral range.
const JAX_PORT: u16 = 55_527;

/// Who is at one end of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Endpoint {
    /// A pod.
    Pod(PodId),
    /// A node's own address; which of its host-network pods is meant depends on port and peer.
    Node(IpAddr),
    /// A service's virtual address.
    Service(usize),
    /// The Kubernetes API server.
    ApiServer(IpAddr),
    /// An address nobody in the inventory had.
    Address(IpAddr),
    /// Nothing is known.
    Unknown,
}

/// Two ends of a flow as pods of one job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PairOfPods {
    /// Both are known.
    Known(JobIndex, PodId, PodId),
    /// The job is known, but not which of its pods is meant: several share an address or back one service.
    Ambiguous(JobIndex),
    /// Not two members of one job.
    No,
}

impl Inventory {
    pub(super) fn nearest(&self, candidates: &[PodId], at: Timestamp) -> Option<PodId> {
        let lease = |id: &PodId| self.pod(*id).lease;
        // A start is told to the second: where somebody is known to have held it still, the next one's was later.
        let rank = |id: &&PodId| (self.ended.contains(id), lease(id).from);
        let holder = candidates.iter().filter(|id| lease(id).holds(at)).max_by_key(rank);
        let near = || {
            let close = candidates.iter().filter(|id| lease(id).distance(at) <= LEASE_TOLERANCE);
            close.min_by_key(|id| lease(id).distance(at))
        };
        holder.or_else(near).copied()
    }

    /// Who is at this end at `at`.
    #[must_use]
    pub fn endpoint(&self, end: &End<'_>, at: Timestamp) -> Endpoint {
        if let Some(uid) = end.uid {
            // A socket in a pod that is not known is not the pod's that has its address.
            return self.by_uid.get(uid).map_or(Endpoint::Unknown, |id| Endpoint::Pod(*id));
        }
        if let Some((namespace, name)) = end.pod
            && let Some(id) = self.pod_named(namespace, name, at)
        {
            return Endpoint::Pod(id);
        }
        let Some(ip) = end.ip else { return Endpoint::Unknown };
        if end.reserved == Some(Reserved::KubeApiserver) || self.api_servers.binary_search(&ip).is_ok() {
            return Endpoint::ApiServer(ip);
        }
        if let Some(id) = self.by_ip.get(&ip).and_then(|ids| self.nearest(ids, at)) {
            return Endpoint::Pod(id);
        }
        if self.node_by_ip.contains_key(&ip) {
            return Endpoint::Node(ip);
        }
        self.service_by_ip.get(&ip).map_or(Endpoint::Address(ip), |index| Endpoint::Service(*index))
    }

    /// Resolves two ends to two members of one job, where that can be decided.
    #[must_use]
    pub fn pair(
        &self,
        (src, src_port): (Endpoint, u16),
        (dst, dst_port): (Endpoint, u16),
        protocol: Protocol,
        at: Timestamp,
    ) -> PairOfPods {
        match (src, dst) {
            (Endpoint::Pod(src), Endpoint::Pod(dst)) => match (self.job_of(src), self.job_of(dst)) {
                (Some((a, _)), Some((b, _))) if a == b && src != dst => PairOfPods::Known(a, src, dst),
                _ => PairOfPods::No,
            },
            (Endpoint::Pod(pod), other) => self.with_member(pod, other, dst_port, protocol, at, false),
            (other, Endpoint::Pod(pod)) => self.with_member(pod, other, src_port, protocol, at, true),
            (Endpoint::Node(src), Endpoint::Node(dst)) => {
                self.between_hosts((src, src_port), (dst, dst_port), at)
            }
            _ => PairOfPods::No,
        }
    }

    /// One end is a pod; which member of its job is the other?
    fn with_member(
        &self,
        pod: PodId,
        other: Endpoint,
        port: u16,
        protocol: Protocol,
        at: Timestamp,
        other_is_src: bool,
    ) -> PairOfPods {
        let Some((job, _)) = self.job_of(pod) else { return PairOfPods::No };
        let candidates = match other {
            Endpoint::Node(ip) => self.host_candidates(ip, port, at),
            Endpoint::Service(index) => self.backends(index, port, protocol, at),
            _ => return PairOfPods::No,
        };
        let of_job = |id: &PodId| self.job_of(*id).is_some_and(|(j, _)| j == job);
        match candidates.as_slice() {
            [only] if of_job(only) && *only != pod => {
                let (src, dst) = if other_is_src { (*only, pod) } else { (pod, *only) };
                PairOfPods::Known(job, src, dst)
            }
            [] | [_] => PairOfPods::No,
            many if many.iter().all(of_job) => PairOfPods::Ambiguous(job),
            many => self.only_of_job(many, job, pod, other_is_src),
        }
    }

    /// Several host-network pods share the address: decidable when exactly one is of the peer's job.
    fn only_of_job(&self, candidates: &[PodId], job: JobIndex, pod: PodId, other_is_src: bool) -> PairOfPods {
        let mut mates =
            candidates.iter().filter(|id| self.job_of(**id).is_some_and(|(j, _)| j == job) && **id != pod);
        match (mates.next(), mates.next()) {
            (Some(mate), None) if other_is_src => PairOfPods::Known(job, *mate, pod),
            (Some(mate), None) => PairOfPods::Known(job, pod, *mate),
            (Some(_), Some(_)) => PairOfPods::Ambiguous(job),
            (None, _) => PairOfPods::No,
        }
    }

    fn between_hosts(&self, src: (IpAddr, u16), dst: (IpAddr, u16), at: Timestamp) -> PairOfPods {
        let at_src = self.host_candidates(src.0, src.1, at);
        let at_dst = self.host_candidates(dst.0, dst.1, at);
        let mut found = PairOfPods::No;
        for a in &at_src {
            for b in &at_dst {
                let (Some((job, _)), Some((other, _))) = (self.job_of(*a), self.job_of(*b)) else { continue };
                if job != other || a == b {
                    continue;
                }
                found = match found {
                    PairOfPods::No => PairOfPods::Known(job, *a, *b),
                    PairOfPods::Known(before, ..) | PairOfPods::Ambiguous(before) if before == job => {
                        PairOfPods::Ambiguous(job)
                    }
                    // Two jobs share both nodes: not even the job is known.
                    _ => return PairOfPods::No,
                };
            }
        }
        found
    }

    /// Host-network pods that may own `port` on the node with this address: the ones that declare it, else, for
    /// a port that no node service uses, those of the node that declare nothing of that number.
    fn host_candidates(&self, ip: IpAddr, port: u16, at: Timestamp) -> Vec<PodId> {
        let Some(node) = self.node_by_ip.get(&ip) else { return Vec::new() };
        let Some(pods) = self.on_host.get(node) else { return Vec::new() };
        let alive = || pods.iter().copied().filter(|id| self.pod(*id).lease.distance(at) <= LEASE_TOLERANCE);
        let declares = |pod: &Pod| pod.ports.iter().any(|p| p.port == port);
        let declared: Vec<PodId> = alive().filter(|id| declares(self.pod(*id))).collect();
        if !declared.is_empty() {
            return declared;
        }
        if NODE_PORTS.contains(&port) { Vec::new() } else { alive().collect() }
    }

    /// The pods behind a service port at `at`.
    fn backends(&self, index: usize, port: u16, protocol: Protocol, at: Timestamp) -> Vec<PodId> {
        let Some(service) = self.services.get(index) else { return Vec::new() };
        if !service.ports.iter().any(|p| p.port == port && p.protocol == protocol) {
            return Vec::new();
        }
        let ids = (0..).map(PodId).zip(&self.pods);
        ids.filter(|(_, pod)| selects(service, pod) && pod.lease.distance(at) <= LEASE_TOLERANCE)
            .map(|(id, _)| id)
            .collect()
    }

    /// Whether a port of a pod is a rendezvous or one the kernel picked. Declared ports, service targets and the
    /// job's `MASTER_PORT` are rendezvous wherever they lie; of the rest, those in the pod's ephemeral range
    /// (Linux: 32768 to 60999 unless set) or above it were picked.
    #[must_use]
    pub fn port_class(&self, pod: PodId, port: u16) -> PortClass {
        let (low, _) = self.pod(pod).local_ports.unwrap_or(EPHEMERAL_PORTS);
        let rendezvous = || self.rendezvous.get(&pod).is_some_and(|ports| ports.contains(&port));
        if port < low || port == JAX_PORT || rendezvous() { PortClass::Fixed } else { PortClass::Ephemeral }
    }

    /// The services that have this pod as a backend.
    pub fn services_of<'a>(&'a self, pod: &'a Pod) -> impl Iterator<Item = &'a Service> {
        self.services.iter().filter(move |service| selects(service, pod))
    }

    /// Whether this is where the cluster's name service answers.
    #[must_use]
    pub fn is_dns(&self, endpoint: Endpoint, port: u16) -> bool {
        // Name services are reached as pods, as a service, on the node (node-local cache) or outside: the port
        // is what they share. 5353 and 1053 are common backend ports behind a service's 53.
        match endpoint {
            _ if port == 53 => true,
            Endpoint::Pod(id) => {
                let pod = self.pod(id);
                let dns = pod.labels.get("k8s-app").is_some_and(|app| app == "kube-dns")
                    || pod.labels.contains_key("dns.operator.openshift.io/daemonset-dns");
                dns && matches!(port, 1053 | 5353)
            }
            _ => false,
        }
    }

    /// The service at this index.
    #[must_use]
    pub fn service(&self, index: usize) -> Option<&Service> {
        self.services.get(index)
    }
}

pub(super) fn selects(service: &Service, pod: &Pod) -> bool {
    let Some(selector) = &service.selector else { return false };
    pod.namespace == service.namespace
        && selector.iter().all(|(key, value)| pod.labels.get(key) == Some(value))
}

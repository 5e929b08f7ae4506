//! From what a source saw to whom it concerns. Enters: a [`Flow`] and an [`Inventory`] snapshot; leaves: a
//! [`Sighting`] between a job's pod and its peer, or the reason why it is nobody's. Must not know windows.

mod kernel;

use std::net::IpAddr;

pub use kernel::{Fact, KernelSighting, drops, socket};

use crate::drop_reason::DropReason;
use crate::facts::Protocol;
use crate::inventory::{EPHEMERAL_PORTS, Endpoint, Inventory, JobIndex, PairOfPods, PodId, node_name};
use crate::ledger::PortClass;
use crate::observation::{ConnectionState, Direction, End, EventKind, Flow, SourceKind, TcpFlags, Verdict};
use crate::time::Timestamp;

/// Whom a job's pod talks to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Peer {
    /// Another member of the job.
    Member(PodId),
    /// One of several members that share a host's address: which one is not known.
    SharedAddress(IpAddr),
    /// A name server, by pod where known.
    Dns(Option<PodId>, IpAddr),
    /// The Kubernetes API server.
    ApiServer(IpAddr),
}

/// Who is where in a sighting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ends {
    /// The job's pod on the packet's sending side, or the only one of the job.
    pub pod: PodId,
    /// The other end.
    pub peer: Peer,
    /// The port at `pod`.
    pub pod_port: u16,
    /// The port at `peer`.
    pub peer_port: u16,
    /// What kind of port `pod_port` is.
    pub pod_class: PortClass,
    /// What kind of port `peer_port` is.
    pub peer_class: PortClass,
    /// Whether `pod` sent this packet.
    pub pod_sent: bool,
}

/// A policy named by a source, owned.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ReportedPolicy {
    /// Its kind; empty when not told.
    pub kind: String,
    /// Its namespace; empty for clusterwide ones.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// In which direction it acted.
    pub direction: Direction,
}

/// An event that concerns a job, small and owned.
#[derive(Clone, PartialEq, Debug)]
pub struct Sighting {
    /// When, by the observer's clock.
    pub at: Timestamp,
    /// By which kind of source.
    pub source: SourceKind,
    /// The job.
    pub job: JobIndex,
    /// Between whom; `None` when the job is known but neither pod.
    pub ends: Option<Ends>,
    /// Whether an end is one of several pods, not known which.
    pub ambiguous: bool,
    /// What kind of event.
    pub kind: EventKind,
    /// What happened.
    pub verdict: Verdict,
    /// Transport protocol.
    pub protocol: Protocol,
    /// TCP flags.
    pub flags: TcpFlags,
    /// Whether it answers.
    pub is_reply: Option<bool>,
    /// Which way it went.
    pub direction: Option<Direction>,
    /// Connection tracking's view.
    pub state: Option<ConnectionState>,
    /// Policies named as having denied it.
    pub denied_by: Vec<ReportedPolicy>,
}

/// Why an event is nobody's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NobodysBecause {
    /// The source named a pod that the inventory does not know, or an address nobody had.
    Unresolved,
    /// The ends are known, but not both of one job.
    NotAJob,
}

/// Two ends as a source saw them, the sender first.
#[derive(Clone, Copy)]
struct Parties<'a> {
    src: End<'a>,
    dst: End<'a>,
    protocol: Protocol,
    at: Timestamp,
}

/// Whom something concerns.
struct Whose {
    job: JobIndex,
    ends: Option<Ends>,
    ambiguous: bool,
}

/// Says whom a flow concerns.
///
/// # Errors
/// The reason why it is nobody's.
pub fn attribute(flow: &Flow<'_>, inventory: &Inventory) -> Result<Sighting, NobodysBecause> {
    let parties = Parties { src: flow.src, dst: flow.dst, protocol: flow.protocol, at: flow.at };
    Ok(sighting(flow, inventory, whose(&parties, inventory)?))
}

fn whose(parties: &Parties<'_>, inventory: &Inventory) -> Result<Whose, NobodysBecause> {
    let Parties { src: from, dst: to, protocol, at } = *parties;
    let src = inventory.endpoint(&from, at);
    let dst = inventory.endpoint(&to, at);
    match inventory.pair((src, from.port), (dst, to.port), protocol, at) {
        PairOfPods::Known(job, sender, receiver) => {
            let ends = Ends {
                pod: sender,
                peer: Peer::Member(receiver),
                pod_port: from.port,
                peer_port: to.port,
                pod_class: inventory.port_class(sender, from.port),
                peer_class: inventory.port_class(receiver, to.port),
                pod_sent: true,
            };
            Ok(Whose { job, ends: Some(ends), ambiguous: false })
        }
        PairOfPods::Ambiguous(job) => {
            Ok(Whose { job, ends: shared(inventory, parties, src, dst), ambiguous: true })
        }
        PairOfPods::No => {
            let outward = infrastructure(inventory, src, from.port, dst, to, true);
            let inward = || infrastructure(inventory, dst, to.port, src, from, false);
            match outward.or_else(inward) {
                Some((job, ends)) => Ok(Whose { job, ends: Some(ends), ambiguous: false }),
                None if unresolved(&from, src) || unresolved(&to, dst) => Err(NobodysBecause::Unresolved),
                None => Err(NobodysBecause::NotAJob),
            }
        }
    }
}

/// One end is known, the other is one of several members behind an address.
fn shared(inventory: &Inventory, parties: &Parties<'_>, src: Endpoint, dst: Endpoint) -> Option<Ends> {
    let (pod, own, other, pod_sent) = match (src, dst) {
        (Endpoint::Pod(pod), _) => (pod, parties.src, parties.dst, true),
        (_, Endpoint::Pod(pod)) => (pod, parties.dst, parties.src, false),
        _ => return None,
    };
    Some(Ends {
        pod,
        peer: Peer::SharedAddress(other.ip?),
        pod_port: own.port,
        peer_port: other.port,
        pod_class: inventory.port_class(pod, own.port),
        peer_class: if other.port < EPHEMERAL_PORTS.0 { PortClass::Fixed } else { PortClass::Ephemeral },
        pod_sent,
    })
}

/// What every job needs besides its own pods: names and the API server.
fn infrastructure(
    inventory: &Inventory,
    pod: Endpoint,
    pod_port: u16,
    other: Endpoint,
    end: End<'_>,
    pod_sent: bool,
) -> Option<(JobIndex, Ends)> {
    let Endpoint::Pod(pod) = pod else { return None };
    let (job, _) = inventory.job_of(pod)?;
    let peer = match other {
        Endpoint::ApiServer(ip) => Peer::ApiServer(ip),
        _ if inventory.is_dns(other, end.port) => {
            let known = if let Endpoint::Pod(id) = other { Some(id) } else { None };
            Peer::Dns(known, end.ip?)
        }
        _ => return None,
    };
    let (pod_class, peer_class) = (PortClass::Ephemeral, PortClass::Fixed);
    Some((job, Ends { pod, peer, pod_port, peer_port: end.port, pod_class, peer_class, pod_sent }))
}

fn unresolved(end: &End<'_>, endpoint: Endpoint) -> bool {
    match endpoint {
        Endpoint::Unknown => true,
        Endpoint::Address(_) => end.pod.is_some() || end.reserved.is_none(),
        _ => false,
    }
}

/// A source that does not tell the direction still tells where it looked.
fn inferred_direction(flow: &Flow<'_>, inventory: &Inventory) -> Option<Direction> {
    let Endpoint::Pod(src) = inventory.endpoint(&flow.src, flow.at) else { return None };
    let at_src = inventory.pod(src).node.as_deref() == Some(node_name(flow.observer));
    Some(if at_src { Direction::Egress } else { Direction::Ingress })
}

fn sighting(flow: &Flow<'_>, inventory: &Inventory, whose: Whose) -> Sighting {
    let denied_by = flow.denied_by.iter().map(|policy| ReportedPolicy {
        kind: policy.kind.to_owned(),
        namespace: policy.namespace.to_owned(),
        name: policy.name.to_owned(),
        direction: policy.direction,
    });
    Sighting {
        at: flow.at,
        source: flow.source,
        job: whose.job,
        ends: whose.ends,
        ambiguous: whose.ambiguous,
        kind: flow.kind,
        verdict: flow.verdict,
        protocol: flow.protocol,
        flags: flow.flags,
        is_reply: flow.is_reply,
        direction: flow.direction.or_else(|| inferred_direction(flow, inventory)),
        state: flow.state,
        denied_by: denied_by.collect(),
    }
}

impl Sighting {
    /// The drop reason, when the packet was dropped or would have been.
    #[must_use]
    pub fn drop_reason(&self) -> Option<DropReason> {
        match self.verdict {
            Verdict::Dropped(reason) | Verdict::WouldDrop(reason) => Some(reason),
            _ => None,
        }
    }
}

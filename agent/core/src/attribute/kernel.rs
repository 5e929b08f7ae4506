//! Whom the kernel's observations concern. A socket belongs to the pod that its cgroup names, whatever its address;
//! the other end is known by its address alone.

use std::net::IpAddr;

use super::{Ends, NobodysBecause, Parties, Peer, whose};
use crate::drop_reason::DropReason;
use crate::facts::Protocol;
use crate::inventory::{Endpoint, Inventory, JobIndex, PodId};
use crate::ledger::PortClass;
use crate::observation::{Direction, DroppedPacket, Drops, Opener, SocketEvent, SocketStep, SourceKind};
use crate::time::Timestamp;

/// Addresses of a node on which a pod's socket is believed to wait.
const MAX_PLACES: usize = 16;

/// What the kernel told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fact {
    /// A step at a socket of the sending side of [`Ends`].
    Step {
        /// Who opened the connection.
        opener: Option<Opener>,
        /// What happened.
        step: SocketStep,
        /// A host-network pod accepted a connection on this address and port: it is the one that listens there.
        listens: Option<(IpAddr, u16)>,
    },
    /// A host-network pod waits for connections.
    Listens {
        /// The pod.
        pod: PodId,
        /// On these addresses ...
        at: Vec<IpAddr>,
        /// ... and this port,
        port: u16,
        /// of this class: a port of the ephemeral range stays one, for NCCL's listeners lie there.
        class: PortClass,
    },
    /// Packets of the sending side of [`Ends`] were dropped.
    Dropped {
        /// When the first was.
        first: Timestamp,
        /// What they were on their way to do.
        what: DroppedPacket,
        /// Why.
        reason: DropReason,
        /// Which way they went; `None`: cannot know.
        direction: Option<Direction>,
        /// How many.
        packets: u64,
        /// How many handshakes they belonged to, from above.
        attempts: u64,
    },
}

/// What the kernel told about a job, small and owned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelSighting {
    /// When, by the observer's clock.
    pub at: Timestamp,
    /// By which kind of source.
    pub source: SourceKind,
    /// The job.
    pub job: JobIndex,
    /// Between whom; the sending side is the socket's, or the dropped packet's source.
    pub ends: Option<Ends>,
    /// The job is known, but not which of its pods.
    pub ambiguous: bool,
    /// Transport protocol.
    pub protocol: Protocol,
    /// What was told.
    pub fact: Fact,
}

/// Says whom a socket's step concerns.
///
/// # Errors
/// The reason why it is nobody's.
pub fn socket(event: &SocketEvent<'_>, inventory: &Inventory) -> Result<KernelSighting, NobodysBecause> {
    if event.step == SocketStep::Listening {
        return listening(event, inventory);
    }
    let parties = Parties { src: event.local, dst: event.remote, protocol: Protocol::Tcp, at: event.at };
    let whose = whose(&parties, inventory)?;
    let local = whose.ends.and_then(|ends| sender(&ends));
    let on_host = local.is_some_and(|pod| inventory.pod(pod).host_network);
    let listens = event.local.ip.filter(|_| on_host && event.opener == Some(Opener::Remote));
    Ok(KernelSighting {
        at: event.at,
        source: event.source,
        job: whose.job,
        ends: whose.ends,
        ambiguous: whose.ambiguous,
        protocol: Protocol::Tcp,
        fact: Fact::Step {
            opener: event.opener,
            step: event.step,
            listens: listens.map(|ip| (ip, event.local.port)),
        },
    })
}

/// A socket that waits for connections concerns its pod's job. Who calls a pod with an address of its own is known
/// without it.
fn listening(event: &SocketEvent<'_>, inventory: &Inventory) -> Result<KernelSighting, NobodysBecause> {
    let pod = match inventory.endpoint(&event.local, event.at) {
        Endpoint::Pod(pod) => pod,
        Endpoint::Unknown => return Err(NobodysBecause::Unresolved),
        _ => return Err(NobodysBecause::NotAJob),
    };
    let (job, _) = inventory.job_of(pod).ok_or(NobodysBecause::NotAJob)?;
    let port = event.local.port;
    let shares = inventory.pod(pod).host_network && port != 0;
    let at = event.local.ip.filter(|_| shares).map_or_else(Vec::new, |ip| reached_at(ip, pod, inventory));
    Ok(KernelSighting {
        at: event.at,
        source: event.source,
        job,
        ends: None,
        ambiguous: false,
        protocol: Protocol::Tcp,
        fact: Fact::Listens { pod, at, port, class: inventory.port_class(pod, port) },
    })
}

/// The addresses at which a socket bound to `ip` is reached from other nodes. One bound to IPv6's unspecified address
/// takes IPv4 connections, too, unless told otherwise.
fn reached_at(ip: IpAddr, pod: PodId, inventory: &Inventory) -> Vec<IpAddr> {
    if ip.is_loopback() {
        return Vec::new();
    }
    if !ip.is_unspecified() {
        return vec![ip];
    }
    let of_node = inventory.node_of(pod).into_iter().flat_map(|node| &node.ips);
    let own = inventory.pod(pod).ips.iter().chain(of_node).filter(|own| ip.is_ipv6() || own.is_ipv4());
    let mut places: Vec<IpAddr> = own.take(MAX_PLACES).copied().collect();
    places.sort_unstable();
    places.dedup();
    places
}

/// Says whom dropped packets concern.
///
/// # Errors
/// The reason why they are nobody's.
pub fn drops(drops: &Drops<'_>, inventory: &Inventory) -> Result<KernelSighting, NobodysBecause> {
    let parties = Parties { src: drops.src, dst: drops.dst, protocol: drops.protocol, at: drops.last };
    let whose = whose(&parties, inventory)?;
    let inferred = || inferred_direction(drops.observer, inventory, &whose.ends?);
    Ok(KernelSighting {
        at: drops.last,
        source: drops.source,
        job: whose.job,
        ends: whose.ends,
        ambiguous: whose.ambiguous,
        protocol: drops.protocol,
        fact: Fact::Dropped {
            first: drops.first,
            what: drops.what,
            reason: drops.reason,
            direction: drops.direction.or_else(inferred),
            packets: drops.packets,
            attempts: drops.attempts,
        },
    })
}

fn sender(ends: &Ends) -> Option<PodId> {
    match (ends.pod_sent, ends.peer) {
        (true, _) => Some(ends.pod),
        (false, Peer::Member(pod) | Peer::Dns(Some(pod), _)) => Some(pod),
        (false, Peer::SharedAddress(_) | Peer::Dns(None, _) | Peer::ApiServer(_)) => None,
    }
}

fn receiver(ends: &Ends) -> Option<PodId> {
    sender(&Ends { pod_sent: !ends.pod_sent, ..*ends })
}

/// Where only one of the ends is on the node that saw the drop, it was dropped at that end.
fn inferred_direction(observer: &str, inventory: &Inventory, ends: &Ends) -> Option<Direction> {
    let node = crate::inventory::node_name(observer);
    let here = |pod: Option<PodId>| {
        pod.and_then(|pod| inventory.pod(pod).node.as_deref()).map(|of_pod| of_pod == node)
    };
    match (here(sender(ends)), here(receiver(ends))) {
        (Some(true), Some(false) | None) => Some(Direction::Egress),
        (Some(false) | None, Some(true)) => Some(Direction::Ingress),
        _ => None,
    }
}

//! Whom the kernel's observations concern. A socket belongs to the pod that its cgroup names, whatever its address;
//! the other end is known by its address alone.

use std::net::IpAddr;

use super::{Ends, NobodysBecause, Parties, Peer, whose};
use crate::drop_reason::DropReason;
use crate::facts::Protocol;
use crate::inventory::{Inventory, JobIndex, PodId};
use crate::observation::{Direction, DroppedPacket, Drops, Opener, SocketEvent, SocketStep, SourceKind};
use crate::time::Timestamp;

/// What the kernel told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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

//! What firedoor's own kernel probes tell: packets dropped, in aggregate, and steps in the lives of TCP sockets.

use std::time::Duration;

use super::{Direction, End, SourceKind};
use crate::drop_reason::DropReason;
use crate::facts::Protocol;
use crate::time::Timestamp;

/// What a dropped packet was on its way to do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DroppedPacket {
    /// Open a connection: a SYN without ACK, or any datagram.
    Opening,
    /// Answer an opening: a SYN with ACK, or a reset that answers a SYN.
    Answer,
    /// Anything else.
    Other,
}

impl DroppedPacket {
    /// The name used in recordings.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Answer => "answer",
            Self::Other => "other",
        }
    }

    /// By the name used in recordings.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Opening, Self::Answer, Self::Other].into_iter().find(|what| what.as_str() == name)
    }
}

/// Packets dropped, as the kernel aggregated them since it was last asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drops<'a> {
    /// When the first of them was dropped, by the observer's clock.
    pub first: Timestamp,
    /// When the last of them was dropped.
    pub last: Timestamp,
    /// The node that saw it.
    pub observer: &'a str,
    /// By which kind of source.
    pub source: SourceKind,
    /// Transport protocol.
    pub protocol: Protocol,
    /// Where the packets came from. The port that the aggregation does not keep is 0: here for
    /// [`DroppedPacket::Opening`] and [`DroppedPacket::Other`].
    pub src: End<'a>,
    /// Where they were going; its port is 0 for [`DroppedPacket::Answer`].
    pub dst: End<'a>,
    /// What they were on their way to do.
    pub what: DroppedPacket,
    /// Why they were dropped.
    pub reason: DropReason,
    /// Which way they went, seen from the pod at which they were dropped; `None`: cannot know.
    pub direction: Option<Direction>,
    /// How many.
    pub packets: u64,
    /// Distinct source ports among the opening ones, an approximation from above; at least 1 for
    /// [`DroppedPacket::Opening`].
    pub attempts: u64,
}

/// Which end of a connection opened it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Opener {
    /// The end whose socket is told of.
    Local,
    /// The other one.
    Remote,
}

impl Opener {
    /// The name used in recordings.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Remote => "remote",
        }
    }

    /// By the name used in recordings.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Local, Self::Remote].into_iter().find(|opener| opener.as_str() == name)
    }
}

/// What is spoken on a connection, by its first bytes. Ports never tell: NCCL listens on ephemeral ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum App {
    /// NCCL's socket transport or bootstrap.
    Nccl,
    /// PyTorch's TCPStore.
    TcpStore,
    /// HTTP/2 in the clear, as gRPC uses it.
    Grpc,
    /// TLS, whatever is inside.
    Tls,
}

impl App {
    /// All of them.
    pub const ALL: [App; 4] = [Self::Nccl, Self::TcpStore, Self::Grpc, Self::Tls];

    /// The name used in reports and recordings.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nccl => "nccl",
            Self::TcpStore => "tcpstore",
            Self::Grpc => "grpc",
            Self::Tls => "tls",
        }
    }

    /// By the name used in reports and recordings.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|app| app.as_str() == name)
    }
}

/// What a connection carried since it was last told of: the kernel's own counters, as differences.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Carried {
    /// Payload bytes sent and acknowledged by the peer.
    pub sent: u64,
    /// Payload bytes received.
    pub received: u64,
    /// Segments sent again.
    pub retransmitted: u32,
    /// Smoothed round-trip time at this moment; `None`: never measured.
    pub rtt: Option<Duration>,
    /// The least round-trip time of late; `None`: never measured.
    pub min_rtt: Option<Duration>,
}

/// What happened at a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SocketStep {
    /// It waits for connections. Its address may be the unspecified one, any of its pod's; there is no remote end, no
    /// opener.
    Listening,
    /// A SYN was sent.
    Opening,
    /// The SYN was sent again.
    Retried,
    /// The handshake completed here; each end tells it for itself.
    Established,
    /// The SYN was answered with a reset or an ICMP refusal.
    Refused,
    /// The connection attempt timed out or was given up without an answer.
    GaveUp,
    /// The first bytes told what is spoken.
    Recognised(App),
    /// What was carried since it was last told.
    Carried(Carried),
    /// The connection is over; what was carried since it was last told, exact.
    Closed(Carried),
}

/// A step in the life of a TCP connection, seen at one of its sockets; or that a socket waits for connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SocketEvent<'a> {
    /// When, by the observer's clock.
    pub at: Timestamp,
    /// The node that saw it.
    pub observer: &'a str,
    /// By which kind of source.
    pub source: SourceKind,
    /// The end whose socket this is.
    pub local: End<'a>,
    /// The other end; of a socket that only listens nothing is known of it.
    pub remote: End<'a>,
    /// Who opened it; `None`: the socket is older than the agent.
    pub opener: Option<Opener>,
    /// What happened.
    pub step: SocketStep,
}

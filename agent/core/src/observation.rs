//! What a source saw: the one type that enters the pipeline. Borrowed from the source's own buffers, so that
//! an event that turns out not to matter costs no allocation. Nothing behind the intake knows which source an
//! observation came from, only what that source is able to see.

mod kernel;

use std::net::IpAddr;

pub use kernel::{App, Carried, DroppedPacket, Drops, Opener, SocketEvent, SocketStep};

use crate::drop_reason::DropReason;
use crate::facts::Protocol;
use crate::time::Timestamp;

/// Anything a source can report.
#[derive(Clone, PartialEq, Debug)]
pub enum Observation<'a> {
    /// A packet-level event between two endpoints.
    Flow(Flow<'a>),
    /// Packets that the kernel dropped, in aggregate.
    Drops(Drops<'a>),
    /// A step in the life of a TCP connection.
    Socket(SocketEvent<'a>),
    /// Events that happened but will never be told.
    Lost(Loss<'a>),
    /// A node that a relay cannot reach: what happens there is not seen from now on.
    Blind {
        /// When it was noticed.
        at: Timestamp,
        /// The nodes.
        nodes: Vec<&'a str>,
    },
    /// Nodes that a relay reaches: what was blind is no longer.
    Reached {
        /// When it was noticed.
        at: Timestamp,
        /// The nodes.
        nodes: Vec<&'a str>,
    },
}

/// What a source is able to see. `false` means "cannot know", so that nothing is reported as zero or healthy
/// merely because nobody looked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, serde::Serialize)]
pub struct Capabilities {
    /// Dropped packets.
    pub drops: bool,
    /// Bytes sent and received.
    pub bytes: bool,
    /// Round-trip times.
    pub rtt: bool,
}

impl Capabilities {
    /// What both together can see.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self { drops: self.drops | other.drops, bytes: self.bytes | other.bytes, rtt: self.rtt | other.rtt }
    }
}

/// The kinds of source, ordered by how far their counts are trusted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SourceKind {
    /// Cilium Hubble: knows causes, not bytes or round-trip times.
    Hubble,
    /// firedoor's own kernel probes: exact counts.
    Ebpf,
}

impl SourceKind {
    /// All of them, by how far their counts are trusted.
    pub const ALL: [SourceKind; 2] = [Self::Hubble, Self::Ebpf];

    /// The name used in reports and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hubble => "hubble",
            Self::Ebpf => "ebpf",
        }
    }

    /// What this kind of source can see. Hubble's flow messages carry no byte or round-trip field for layer 4.
    #[must_use]
    pub const fn capabilities(self) -> Capabilities {
        match self {
            Self::Hubble => Capabilities { drops: true, bytes: false, rtt: false },
            Self::Ebpf => Capabilities { drops: true, bytes: true, rtt: true },
        }
    }
}

/// Which way a packet went, seen from the endpoint where the event was recorded.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Leaving the source endpoint.
    Egress,
    /// Entering the destination endpoint.
    Ingress,
}

impl Direction {
    /// The name used in reports and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Egress => "egress",
            Self::Ingress => "ingress",
        }
    }
}

/// Which kind of event a flow is (Hubble's `event_type.type`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum EventKind {
    /// The datapath dropped a packet (1).
    Drop,
    /// A packet passed an observation point (4).
    Trace,
    /// A policy decided on a new connection (5). A denied packet yields this and [`EventKind::Drop`].
    PolicyVerdict,
    /// A socket-level address translation (7): no packet yet.
    Socket,
    /// A proxy's request or response (129).
    Layer7,
    /// Anything else.
    Other,
}

/// What happened to the packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Verdict {
    /// It passed this observation point; whether it arrived is another question.
    Forwarded,
    /// It was dropped.
    Dropped(DropReason),
    /// It passed, but would have been dropped were the policy enforced.
    WouldDrop(DropReason),
    /// It was handed to a proxy.
    Redirected,
    /// Something else, or not told.
    Other,
}

/// TCP flags that matter here.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct TcpFlags {
    /// SYN
    pub syn: bool,
    /// ACK
    pub ack: bool,
    /// RST
    pub rst: bool,
    /// FIN
    pub fin: bool,
    /// PSH
    pub psh: bool,
}

impl TcpFlags {
    /// Whether any flag was told: some events carry none.
    #[must_use]
    pub fn any(self) -> bool {
        self.syn || self.ack || self.rst || self.fin || self.psh
    }

    /// The flags as bits, for hashing.
    #[must_use]
    pub fn bits(self) -> u8 {
        u8::from(self.fin)
            | u8::from(self.syn) << 1
            | u8::from(self.rst) << 2
            | u8::from(self.psh) << 3
            | u8::from(self.ack) << 4
    }
}

/// What the datapath's connection tracking thought of the packet (Hubble's `trace_reason`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ConnectionState {
    /// First packet of a connection.
    New,
    /// The connection is known.
    Established,
    /// An answer.
    Reply,
    /// Anything else.
    Other,
}

/// Addresses that are not pods, as the datapath classifies them (Cilium's reserved identities).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reserved {
    /// The observer's own node (1).
    Host,
    /// Outside the cluster (2, 9, 10).
    World,
    /// Another node (6).
    RemoteNode,
    /// The Kubernetes API server (7).
    KubeApiserver,
    /// Another reserved identity.
    Other,
}

impl Reserved {
    /// By Cilium's numeric identity; `None` for pods and unknown.
    #[must_use]
    pub fn from_identity(identity: u32) -> Option<Self> {
        match identity {
            1 => Some(Self::Host),
            2 | 9 | 10 => Some(Self::World),
            6 => Some(Self::RemoteNode),
            7 => Some(Self::KubeApiserver),
            3..=5 | 8 | 11..=99 => Some(Self::Other),
            _ => None,
        }
    }
}

/// One end of a flow, as the source knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct End<'a> {
    /// Its address.
    pub ip: Option<IpAddr>,
    /// Its port; 0 for protocols without ports.
    pub port: u16,
    /// Namespace and name of the pod, where the source tells.
    pub pod: Option<(&'a str, &'a str)>,
    /// UID of the pod, where the source knows it from the socket's cgroup. It says more than any name or address.
    pub uid: Option<&'a str>,
    /// What it is when it is no pod.
    pub reserved: Option<Reserved>,
}

impl End<'_> {
    /// An end of which nothing is known.
    pub const UNKNOWN: End<'static> = End { ip: None, port: 0, pod: None, uid: None, reserved: None };

    /// An end of which only the address is known.
    #[must_use]
    pub const fn at(ip: IpAddr, port: u16) -> Self {
        Self { ip: Some(ip), port, pod: None, uid: None, reserved: None }
    }
}

/// A policy that a source named.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct NamedPolicy<'a> {
    /// Its kind, where told; empty otherwise.
    pub kind: &'a str,
    /// Its namespace; empty for clusterwide ones.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// In which direction it acted.
    pub direction: Direction,
}

/// A packet-level event between two endpoints.
#[derive(Clone, PartialEq, Debug)]
pub struct Flow<'a> {
    /// When it happened, by the observer's clock.
    pub at: Timestamp,
    /// The node that saw it; empty when not told.
    pub observer: &'a str,
    /// By which kind of source.
    pub source: SourceKind,
    /// What kind of event it is.
    pub kind: EventKind,
    /// A finer code of the event kind (observation point or drop code), for telling events apart.
    pub sub_kind: i32,
    /// What happened.
    pub verdict: Verdict,
    /// Transport protocol.
    pub protocol: Protocol,
    /// Where the packet came from.
    pub src: End<'a>,
    /// Where it was going.
    pub dst: End<'a>,
    /// TCP flags.
    pub flags: TcpFlags,
    /// Whether the packet answers; `None`: not told (always so on drops).
    pub is_reply: Option<bool>,
    /// Which way it went; `None`: not told.
    pub direction: Option<Direction>,
    /// Connection tracking's view.
    pub state: Option<ConnectionState>,
    /// Policies named as having denied it.
    pub denied_by: Vec<NamedPolicy<'a>>,
}

/// Events that will never be told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loss<'a> {
    /// When the loss was noticed; `None`: not told.
    pub at: Option<Timestamp>,
    /// The node whose events were lost; `None`: any.
    pub observer: Option<&'a str>,
    /// Which kind of source lost them.
    pub source: SourceKind,
    /// Where they were lost, in the source's words; empty when not told.
    pub cause: &'a str,
    /// How many; an upper bound where the source counts unfiltered events.
    pub count: u64,
}

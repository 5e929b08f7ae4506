//! What the probes and user space say to each other: plain layouts of fixed size, read by both sides. Sizes are
//! pinned, so that a change on one side alone does not compile. Must not know jobs, pods or reports.
//!
//! Nothing here depends on a kernel's own structures: their offsets come from the running kernel's type
//! information (BTF) as [`Offsets`], injected before the probes are loaded.

#![cfg_attr(not(feature = "user"), no_std)]

#[cfg(feature = "user")]
pub mod user;

use core::mem::size_of;

/// Sockets that can be followed at a time, unless configured otherwise.
pub const DEFAULT_SLOTS: u32 = 32_768;
/// Different drops that are counted at a time; what comes beyond is counted as overflow.
pub const DROP_KEYS: u32 = 16_384;
/// Bytes of the ring that carries socket events to user space. A power of two and whole pages.
pub const RING_BYTES: u32 = 1 << 20;
/// Control groups whose sockets are nobody's business, at most.
pub const IGNORED_CGROUPS: u32 = 4096;
/// The most bytes of a `tcp_sock` that one read takes; more needs a kernel whose counters lie closer.
pub const BLOCK_BYTES: usize = 1024;
/// Source ports remembered for a drop, to tell attempts from repetitions.
pub const PORTS_REMEMBERED: usize = 4;

/// `AF_INET`.
pub const AF_INET: u16 = 2;
/// `AF_INET6`.
pub const AF_INET6: u16 = 10;

/// TCP states as the kernel numbers them (`include/net/tcp_states.h`; part of the user-space interface).
pub mod tcp_state {
    /// Data flows.
    pub const ESTABLISHED: u32 = 1;
    /// A SYN was sent.
    pub const SYN_SENT: u32 = 2;
    /// A SYN was received.
    pub const SYN_RECV: u32 = 3;
    /// Our FIN was acknowledged.
    pub const FIN_WAIT2: u32 = 5;
    /// Closed, waiting out late segments; a smaller structure than a socket.
    pub const TIME_WAIT: u32 = 6;
    /// Closed.
    pub const CLOSE: u32 = 7;
    /// The peer's FIN was received.
    pub const CLOSE_WAIT: u32 = 8;
    /// Both FINs were sent, ours not yet acknowledged.
    pub const LAST_ACK: u32 = 9;
    /// Waiting for connections.
    pub const LISTEN: u32 = 10;
    /// Both FINs crossed.
    pub const CLOSING: u32 = 11;
    /// A request for a connection; a smaller structure than a socket.
    pub const NEW_SYN_RECV: u32 = 12;
}

macro_rules! offsets {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Byte offsets in the running kernel's structures. [`Offsets::ABSENT`] marks a member this kernel lacks.
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Offsets {
            $($(#[$doc])* pub $name: u32,)*
        }
    };
}

offsets! {
    /// `sock_common.skc_family`
    skc_family,
    /// `sock_common.skc_state`
    skc_state,
    /// `sock_common.skc_dport`
    skc_dport,
    /// `sock_common.skc_daddr`
    skc_daddr,
    /// `sock_common.skc_rcv_saddr`
    skc_rcv_saddr,
    /// `sock_common.skc_v6_daddr`
    skc_v6_daddr,
    /// `sock_common.skc_v6_rcv_saddr`
    skc_v6_rcv_saddr,
    /// `sock_common.skc_net.net`
    skc_net,
    /// `sock_common.skc_cookie`
    skc_cookie,
    /// `sock.sk_protocol`
    sk_protocol,
    /// `sock.sk_err`
    sk_err,
    /// `sock.sk_cgrp_data.cgroup`
    sk_cgroup,
    /// `inet_sock.inet_sport`
    inet_sport,
    /// `net.ns.inum`
    net_inum,
    /// `cgroup.kn`
    cgroup_kn,
    /// `kernfs_node.id`
    kernfs_id,
    /// `socket.sk`
    socket_sk,
    /// `sk_buff.dev`
    skb_dev,
    /// `sk_buff.sk`
    skb_sk,
    /// `sk_buff.len`
    skb_len,
    /// `sk_buff.data_len`
    skb_data_len,
    /// `sk_buff.head`
    skb_head,
    /// `sk_buff.data`
    skb_data,
    /// `sk_buff.network_header`
    skb_network_header,
    /// `net_device.nd_net.net`
    dev_net,
    /// `sock.sk_receive_queue.prev`
    sk_receive_queue_prev,
    /// `tcp_sock.bytes_acked`
    bytes_acked,
    /// `tcp_sock.bytes_received`
    bytes_received,
    /// `tcp_sock.srtt_us`
    srtt_us,
    /// `tcp_sock.rtt_min.s[0].v`
    rtt_min,
    /// `tcp_sock.total_retrans`
    total_retrans,
    /// Where the block that holds all of these counters begins.
    block,
    /// How long it is; 0: they lie too far apart for one read.
    block_len,
}

impl Offsets {
    /// This kernel has no such member.
    pub const ABSENT: u32 = u32::MAX;
}

/// What the probes are told besides offsets.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Arguments of the `kfree_skb` tracepoint: 3 since 5.17 (the reason), 4 since about 6.11 (the receiving socket).
    pub kfree_skb_args: u32,
    /// Arguments of `tcp_send_reset`: 3 since 6.10 (the reason).
    pub send_reset_args: u32,
    /// Whether the control group of a socket tells its pod (control groups of version 2 are in use).
    pub cgroups: u32,
}

/// One bit per value of the kernel's drop reasons: not worth counting.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct IgnoredReasons {
    /// By 64 values.
    pub bits: [u64; 8],
}

/// A socket, as far as it never changes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The kernel's number for this socket, never used again.
    pub cookie: u64,
    /// Inode of its control group (version 2); 1 is the root.
    pub cgroup: u64,
    /// Local address; IPv4 in the first four bytes.
    pub local_addr: [u8; 16],
    /// Remote address.
    pub remote_addr: [u8; 16],
    /// Local port, host order.
    pub local_port: u16,
    /// Remote port, host order.
    pub remote_port: u16,
    /// Inode of its network namespace.
    pub netns: u32,
    /// [`AF_INET`] or [`AF_INET6`].
    pub family: u16,
    /// A [`Side`].
    pub side: u8,
    /// Room.
    pub reserved: [u8; 5],
}

/// Who opened a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Side {
    /// It was open before anybody looked.
    Unknown = 0,
    /// This socket.
    Opened = 1,
    /// The other end.
    Accepted = 2,
}

/// The kernel's own counters of a connection.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes the peer acknowledged; counts the FIN as one.
    pub acked: u64,
    /// Payload bytes received.
    pub received: u64,
    /// Smoothed round-trip time, in microseconds; 0: none yet.
    pub srtt_us: u32,
    /// Smallest round-trip time of late, in microseconds; `u32::MAX`: none yet.
    pub min_rtt_us: u32,
    /// Segments sent again.
    pub retransmitted: u32,
    /// State.
    pub state: u32,
}

/// A followed socket. Its cookie stands in three places: a slot that is being reused shows unequal ones.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// Which socket; cookie 0: free.
    pub identity: Identity,
    /// Where the kernel keeps it.
    pub sk: u64,
    /// What the last pass read.
    pub counters: Counters,
    /// Whose counters these are; 0: the last pass could not read them.
    pub sampled: u64,
    /// The cookie again.
    pub cookie: u64,
}

/// What happened to a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum EventKind {
    /// A SYN was sent.
    Opening = 1,
    /// A SYN was sent again.
    Retried = 2,
    /// The handshake completed.
    Established = 3,
    /// A connect ended without a connection; `detail` is the error.
    Failed = 4,
    /// A connection ended; `detail` is the error, 0 for an orderly end.
    Closed = 5,
    /// The socket waits for connections.
    Listening = 6,
    /// A reset was received by an established connection.
    Reset = 7,
    /// The first bytes a connection received, in `payload`; `detail` is their number.
    FirstBytes = 8,
}

impl EventKind {
    /// By number.
    #[must_use]
    pub const fn from_u32(kind: u32) -> Option<Self> {
        Some(match kind {
            1 => Self::Opening,
            2 => Self::Retried,
            3 => Self::Established,
            4 => Self::Failed,
            5 => Self::Closed,
            6 => Self::Listening,
            7 => Self::Reset,
            8 => Self::FirstBytes,
            _ => return None,
        })
    }
}

/// Something that happened to a socket.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketRecord {
    /// When, on the monotonic clock, in nanoseconds.
    pub at: u64,
    /// To which socket.
    pub identity: Identity,
    /// Its counters then.
    pub counters: Counters,
    /// An [`EventKind`].
    pub kind: u32,
    /// See [`EventKind`].
    pub detail: u32,
    /// First bytes received, for [`EventKind::FirstBytes`].
    pub payload: [u8; 24],
}

/// What kind of packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PacketKind {
    /// SYN without ACK, or any datagram: somebody wants something.
    Opening = 0,
    /// SYN and ACK, or a reset: the answer.
    Answer = 1,
    /// Any other segment.
    Other = 2,
    /// Not a drop: this node sent a reset, for the reason given.
    ResetSent = 3,
}

impl PacketKind {
    /// By number.
    #[must_use]
    pub const fn from_u8(kind: u8) -> Option<Self> {
        Some(match kind {
            0 => Self::Opening,
            1 => Self::Answer,
            2 => Self::Other,
            3 => Self::ResetSent,
            _ => return None,
        })
    }
}

/// Drops that are counted together.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DropKey {
    /// Source of the packet.
    pub src: [u8; 16],
    /// Destination.
    pub dst: [u8; 16],
    /// Control group of the socket that sent it, where known; else 0.
    pub cgroup: u64,
    /// Inode of the network namespace where it was dropped; 0: not known.
    pub netns: u32,
    /// The kernel's reason.
    pub reason: u32,
    /// The port that was called: the destination's, of an answer the source's.
    pub port: u16,
    /// [`AF_INET`] or [`AF_INET6`].
    pub family: u16,
    /// IP protocol number.
    pub protocol: u8,
    /// A [`PacketKind`].
    pub kind: u8,
    /// Room.
    pub reserved: [u8; 2],
}

/// How often and when.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropTally {
    /// Packets.
    pub packets: u64,
    /// Times the source port was none of the last few.
    pub attempts: u64,
    /// First time, monotonic nanoseconds.
    pub first: u64,
    /// Last time.
    pub last: u64,
    /// The last few source ports.
    pub ports: [u16; PORTS_REMEMBERED],
}

/// Counters of the probes themselves, by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Stat {
    /// Drops that were worth counting.
    DropsSeen = 0,
    /// Drops for which there was no room: lost.
    DropsOverflow = 1,
    /// Socket events for which the ring had no room: lost.
    RingLost = 2,
    /// Sockets for which there was no slot: not followed.
    SlotsFull = 3,
    /// Sockets that got a slot.
    SlotsTaken = 4,
    /// Sockets that gave their slot back.
    SlotsReturned = 5,
    /// Reads that found another socket in the place of the one that was followed.
    Stale = 6,
    /// Reads that the kernel refused.
    Fault = 7,
}

/// How many [`Stat`]s there are.
pub const STATS: u32 = 8;

const _: () = assert!(size_of::<Identity>() == 64);
const _: () = assert!(size_of::<Counters>() == 32);
const _: () = assert!(size_of::<Slot>() == 120);
const _: () = assert!(size_of::<SocketRecord>() == 136);
const _: () = assert!(size_of::<DropKey>() == 56);
const _: () = assert!(size_of::<DropTally>() == 40);
const _: () = assert!(size_of::<Config>() == 12);
const _: () = assert!(size_of::<IgnoredReasons>() == 64);
const _: () = assert!(size_of::<Offsets>() == 33 * 4);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip() {
        for kind in 0..16 {
            assert!(EventKind::from_u32(kind).is_none_or(|k| k as u32 == kind));
            let packet = u8::try_from(kind).unwrap();
            assert!(PacketKind::from_u8(packet).is_none_or(|k| k as u8 == packet));
        }
        assert_eq!(EventKind::from_u32(9), None);
    }
}

//! What a socket is and what its counters say, read from the kernel's own structures.

use aya_ebpf::helpers::generated::{bpf_get_socket_cookie, bpf_ktime_get_ns, bpf_skc_to_tcp_sock};
use firedoor_ebpf::{AF_INET, Counters, EventKind, Identity, Side, SocketRecord, Stat};

use super::globals::{config, load, probe};
use super::maps::{EVENTS, IGNORED, count};

const IPPROTO_TCP: u16 = 6;
/// Do not wake user space: it comes by itself. Waking costs the sender more than everything else here.
const BPF_RB_NO_WAKEUP: u64 = 1;

/// Whether this is a TCP socket. The base must be a pointer the verifier knows.
#[inline(always)]
pub(super) fn is_tcp(sk: *const u8) -> bool {
    load!(u16, sk, sk_protocol) == IPPROTO_TCP
}

/// The socket's number, given to it now if it had none.
#[inline(always)]
pub(super) fn cookie(sk: *const u8) -> u64 {
    // SAFETY: the verifier checks that this is a socket.
    unsafe { bpf_get_socket_cookie(sk as *mut _) }
}

/// The inode of a socket's control group; 0 where that says nothing.
#[inline(always)]
pub(super) fn cgroup(sk: *const u8) -> u64 {
    if config().cgroups == 0 {
        return 0;
    }
    let cgroup = load!(*const u8, sk, sk_cgroup);
    if cgroup.is_null() {
        return 0;
    }
    let node = load!(*const u8, cgroup, cgroup_kn);
    if node.is_null() { 0 } else { load!(u64, node, kernfs_id) }
}

/// Whether user space said that sockets of this control group are nobody's business.
#[inline(always)]
pub(super) fn ignored(cgroup: u64) -> bool {
    cgroup > 1 && IGNORED.get_ptr(&cgroup).is_some()
}

/// The inode of the network namespace behind a `struct net`.
#[inline(always)]
pub(super) fn netns(net: *const u8) -> u32 {
    if net.is_null() { 0 } else { load!(u32, net, net_inum) }
}

/// Who this socket is. `skc_num` is 0 before bind and after close, `inet_sport` is not.
#[inline(always)]
pub(super) fn identity(sk: *const u8, cookie: u64, cgroup: u64, side: Side) -> Identity {
    let mut identity = Identity {
        cookie,
        cgroup,
        local_addr: [0; 16],
        remote_addr: [0; 16],
        local_port: u16::from_be(probe!(u16, sk, inet_sport).unwrap_or(0)),
        remote_port: u16::from_be(load!(u16, sk, skc_dport)),
        netns: netns(load!(*const u8, sk, skc_net)),
        family: load!(u16, sk, skc_family),
        side: side as u8,
        reserved: [0; 5],
    };
    if identity.family == AF_INET {
        identity.local_addr[..4].copy_from_slice(&load!(u32, sk, skc_rcv_saddr).to_ne_bytes());
        identity.remote_addr[..4].copy_from_slice(&load!(u32, sk, skc_daddr).to_ne_bytes());
    } else {
        identity.local_addr = probe!([u8; 16], sk, skc_v6_rcv_saddr).unwrap_or([0; 16]);
        identity.remote_addr = probe!([u8; 16], sk, skc_v6_daddr).unwrap_or([0; 16]);
    }
    identity
}

/// A socket's counters.
#[inline(always)]
pub(super) fn counters(sk: *const u8) -> Counters {
    // SAFETY: the verifier checks that this is a socket; the helper says whether it is a TCP one.
    let tp = unsafe { bpf_skc_to_tcp_sock(sk as *mut _) } as *const u8;
    if tp.is_null() {
        return Counters {
            acked: 0,
            received: 0,
            srtt_us: 0,
            min_rtt_us: u32::MAX,
            retransmitted: 0,
            state: 0,
        };
    }
    Counters {
        acked: load!(u64, tp, bytes_acked),
        received: load!(u64, tp, bytes_received),
        srtt_us: load!(u32, tp, srtt_us) >> 3,
        min_rtt_us: load!(u32, tp, rtt_min),
        retransmitted: load!(u32, tp, total_retrans),
        state: u32::from(load!(u8, sk, skc_state)),
    }
}

/// Tells user space.
#[inline(always)]
pub(super) fn tell(kind: EventKind, detail: u32, identity: &Identity, counters: &Counters) {
    let Some(mut entry) = EVENTS.reserve(0) else {
        count(Stat::RingLost);
        return;
    };
    entry.write(SocketRecord {
        // SAFETY: no arguments.
        at: unsafe { bpf_ktime_get_ns() },
        identity: *identity,
        counters: *counters,
        kind: kind as u32,
        detail,
        payload: [0; 24],
    });
    entry.submit(BPF_RB_NO_WAKEUP);
}

//! `kfree_skb`: dropped packets, counted in the kernel by who, whom, where and why. A flood costs constant memory
//! and wakes nobody.

use core::intrinsics::{AtomicOrdering, atomic_xadd};

use aya_ebpf::helpers::generated::bpf_ktime_get_ns;
use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;
use firedoor_ebpf::tcp_state::{NEW_SYN_RECV, TIME_WAIT};
use firedoor_ebpf::{DropKey, DropTally, PORTS_REMEMBERED, PacketKind, Stat};

use super::globals::{config, ignored, load, probe};
use super::maps::{DROPS, count};
use super::packet::{Packet, packet};
use super::socket::{cgroup, netns};

const BPF_NOEXIST: u64 = 1;

/// `void (struct sk_buff *skb, void *location, enum skb_drop_reason reason[, struct sock *rx_sk])`: the reason since
/// 5.17, the receiving socket since about 6.11.
#[btf_tracepoint(function = "kfree_skb")]
fn packet_dropped(ctx: BtfTracePointContext) -> i32 {
    let reason: u32 = ctx.arg(2);
    if ignored(reason) {
        return 0;
    }
    let skb: *const u8 = ctx.arg(0);
    let Some(packet) = packet(skb) else { return 0 };
    let (mut place, mut sender) = (0, 0);
    let dev = load!(*const u8, skb, skb_dev);
    if !dev.is_null() {
        place = netns(load!(*const u8, dev, dev_net));
    }
    let sk = load!(*const u8, skb, skb_sk);
    if !sk.is_null() {
        if place == 0 {
            place = netns(load!(*const u8, sk, skc_net));
        }
        let state = u32::from(load!(u8, sk, skc_state));
        // Those two are smaller than a socket: there is nothing to read. And it must be the sender's: a packet that
        // waits to be received belongs to its receiver.
        if state != TIME_WAIT && state != NEW_SYN_RECV {
            let port = u16::from_be(probe!(u16, sk, inet_sport).unwrap_or(0));
            if port == packet.src_port && port != packet.dst_port {
                sender = cgroup(sk);
            }
        }
    } else if place == 0 && config().kfree_skb_args >= 4 {
        let receiver: *const u8 = ctx.arg(3);
        if !receiver.is_null() {
            place = netns(load!(*const u8, receiver, skc_net));
        }
    }
    tally(&packet, packet.kind, reason, place, sender);
    0
}

/// Counts a packet.
#[inline(always)]
pub(super) fn tally(packet: &Packet, kind: PacketKind, reason: u32, netns: u32, cgroup: u64) {
    count(Stat::DropsSeen);
    let (port, own_port) = match kind {
        PacketKind::Answer => (packet.src_port, packet.dst_port),
        _ => (packet.dst_port, packet.src_port),
    };
    let key = DropKey {
        src: packet.src,
        dst: packet.dst,
        cgroup,
        netns,
        reason,
        port,
        family: packet.family,
        protocol: packet.protocol,
        kind: kind as u8,
        reserved: [0; 2],
    };
    // SAFETY: no arguments.
    let now = unsafe { bpf_ktime_get_ns() };
    if let Some(known) = DROPS.get_ptr_mut(&key) {
        add(known, own_port, now);
        return;
    }
    let mut fresh =
        DropTally { packets: 1, attempts: 1, first: now, last: now, ports: [0; PORTS_REMEMBERED] };
    fresh.ports[0] = own_port;
    if DROPS.insert(&key, &fresh, BPF_NOEXIST).is_ok() {
        return;
    }
    // Either there is no room, or another CPU was first.
    match DROPS.get_ptr_mut(&key) {
        Some(known) => add(known, own_port, now),
        None => count(Stat::DropsOverflow),
    }
}

#[inline(always)]
fn add(tally: *mut DropTally, port: u16, now: u64) {
    // SAFETY: a valid, aligned element. Packets are counted atomically; the rest may be off by a race, never the
    // packets.
    unsafe {
        atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(&raw mut (*tally).packets, 1);
        (*tally).last = now;
        let ports = (*tally).ports;
        if ports[0] == port || ports[1] == port || ports[2] == port || ports[3] == port {
            return;
        }
        (*tally).ports = [port, ports[0], ports[1], ports[2]];
        atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(&raw mut (*tally).attempts, 1);
    }
}

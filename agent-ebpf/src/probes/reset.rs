//! `tcp_receive_reset` and `tcp_send_reset`: who is turned away, by whom and why.

use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;
use firedoor_ebpf::{EventKind, PacketKind, Side};

use super::drops::tally;
use super::globals::{config, load};
use super::packet::packet;
use super::socket::{cgroup, cookie, counters, identity, ignored, netns, tell};

/// `void (struct sock *sk)`, since 4.16.
#[btf_tracepoint(function = "tcp_receive_reset")]
fn reset_received(ctx: BtfTracePointContext) -> i32 {
    let sk: *const u8 = ctx.arg(0);
    let cgroup = cgroup(sk);
    if !ignored(cgroup) {
        let identity = identity(sk, cookie(sk), cgroup, Side::Unknown);
        tell(EventKind::Reset, u32::from(load!(u8, sk, skc_state)), &identity, &counters(sk));
    }
    0
}

/// `void (const struct sock *sk, const struct sk_buff *skb[, const enum sk_rst_reason reason])`: the reason since
/// 6.10. Counted like a drop, by the segment that is answered: a scan must not flood the ring.
#[btf_tracepoint(function = "tcp_send_reset")]
fn reset_sent(ctx: BtfTracePointContext) -> i32 {
    let skb: *const u8 = ctx.arg(1);
    if skb.is_null() {
        return 0; // an own decision to abort, no answer to anything
    }
    let Some(packet) = packet(skb) else { return 0 };
    if !matches!(packet.kind, PacketKind::Opening) {
        return 0;
    }
    let dev = load!(*const u8, skb, skb_dev);
    let place = if dev.is_null() { 0 } else { netns(load!(*const u8, dev, dev_net)) };
    let reason = if config().send_reset_args >= 3 { ctx.arg(2) } else { 0 };
    tally(&packet, PacketKind::ResetSent, reason, place, 0);
    0
}

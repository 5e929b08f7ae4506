//! `tcp_retransmit_skb`: a SYN that is sent again tells that nobody answers. All other repetitions are in the
//! socket's own counter, which the sample reads.

use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;
use firedoor_ebpf::tcp_state::SYN_SENT;
use firedoor_ebpf::{EventKind, Side};

use super::globals::load;
use super::socket::{cgroup, cookie, counters, identity, ignored, tell};

/// `void (const struct sock *sk, const struct sk_buff *skb, ...)`, since 4.16.
#[btf_tracepoint(function = "tcp_retransmit_skb")]
fn syn_retried(ctx: BtfTracePointContext) -> i32 {
    let sk: *const u8 = ctx.arg(0);
    if u32::from(load!(u8, sk, skc_state)) != SYN_SENT {
        return 0;
    }
    let cgroup = cgroup(sk);
    if !ignored(cgroup) {
        let identity = identity(sk, cookie(sk), cgroup, Side::Opened);
        tell(EventKind::Retried, 0, &identity, &counters(sk));
    }
    0
}

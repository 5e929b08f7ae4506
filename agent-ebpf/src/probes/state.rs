//! `inet_sock_set_state` and `tcp_destroy_sock`: connections are tried, open, fail and end. Final counters are
//! taken here, exact to the byte.

use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;
use aya_log_ebpf::debug;
use firedoor_ebpf::tcp_state::{CLOSE, ESTABLISHED, LISTEN, SYN_SENT};
use firedoor_ebpf::{EventKind, Side};

use super::globals::load;
use super::socket::{cgroup, cookie, counters, identity, ignored, is_tcp, tell};
use super::table;

/// `void (const struct sock *sk, const int oldstate, const int newstate)`, since 4.16.
#[btf_tracepoint(function = "inet_sock_set_state")]
fn socket_state(ctx: BtfTracePointContext) -> i32 {
    let sk: *const u8 = ctx.arg(0);
    let (old, new): (u32, u32) = (ctx.arg(1), ctx.arg(2));
    if new != ESTABLISHED && new != CLOSE && new != SYN_SENT && new != LISTEN {
        return 0;
    }
    if !is_tcp(sk) {
        return 0;
    }
    let cgroup = cgroup(sk);
    if ignored(cgroup) {
        return 0;
    }
    let cookie = cookie(sk);
    if new == CLOSE {
        closed(sk, old, cookie, cgroup);
        return 0;
    }
    let side = match (old, new) {
        (SYN_SENT, _) | (_, SYN_SENT) => Side::Opened,
        _ => Side::Accepted,
    };
    let identity = identity(sk, cookie, cgroup, side);
    let kind = match new {
        SYN_SENT => EventKind::Opening,
        LISTEN => EventKind::Listening,
        _ => {
            table::enter(sk, &identity);
            EventKind::Established
        }
    };
    tell(kind, 0, &identity, &counters(sk));
    debug!(&ctx, "socket {}: state {} to {}", cookie, old, new);
    0
}

#[inline(always)]
fn closed(sk: *const u8, old: u32, cookie: u64, cgroup: u64) {
    let known = table::leave(cookie);
    if !known && old != SYN_SENT {
        return;
    }
    let kind = if old == SYN_SENT { EventKind::Failed } else { EventKind::Closed };
    let side = if old == SYN_SENT { Side::Opened } else { Side::Unknown };
    tell(kind, load!(u32, sk, sk_err), &identity(sk, cookie, cgroup, side), &counters(sk));
}

/// `void (struct sock *sk)`, since 4.16: sockets that die without passing through the closed state.
#[btf_tracepoint(function = "tcp_destroy_sock")]
fn socket_destroyed(ctx: BtfTracePointContext) -> i32 {
    let sk: *const u8 = ctx.arg(0);
    let cookie = cookie(sk);
    if table::leave(cookie) {
        tell(EventKind::Closed, 0, &identity(sk, cookie, cgroup(sk), Side::Unknown), &counters(sk));
    }
    0
}

//! `sk_data_ready`: the first bytes a connection receives tell its protocol. It runs for every delivery of data,
//! so user space attaches it only while connections of a job are young, and takes it off again.

use aya_ebpf::helpers::generated::{bpf_ktime_get_ns, bpf_probe_read_kernel, bpf_skc_to_tcp_sock};
use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;
use firedoor_ebpf::{Counters, EventKind, Side, SocketRecord, Stat};

use super::globals::{load, probe};
use super::maps::{EVENTS, count};
use super::socket::{cgroup, cookie, identity, ignored, is_tcp};

/// A first message that is longer is told only by its start.
const MOST: u32 = 24;
/// Fewer bytes tell nothing.
const LEAST: u32 = 5;
const BPF_RB_NO_WAKEUP: u64 = 1;

/// `void (const struct sock *sk)`, since 6.3.
#[btf_tracepoint(function = "sk_data_ready")]
fn first_bytes(ctx: BtfTracePointContext) -> i32 {
    let sk: *const u8 = ctx.arg(0);
    if !is_tcp(sk) {
        return 0;
    }
    // SAFETY: the verifier checks that this is a socket; the helper says whether it is a TCP one.
    let tp = unsafe { bpf_skc_to_tcp_sock(sk as *mut _) } as *const u8;
    if tp.is_null() {
        return 0;
    }
    let received = load!(u64, tp, bytes_received);
    let Ok(skb) = probe!(*const u8, sk, sk_receive_queue_prev) else { return 0 };
    let (Ok(length), Ok(in_pages)) = (probe!(u32, skb, skb_len), probe!(u32, skb, skb_data_len)) else {
        return 0;
    };
    // Only while the first segment is the only one, and only what lies in its linear part.
    if received != u64::from(length) || length < LEAST {
        return 0;
    }
    let there = length.wrapping_sub(in_pages).min(MOST);
    let cgroup = cgroup(sk);
    if there < LEAST || ignored(cgroup) {
        return 0;
    }
    let Ok(data) = probe!(*const u8, skb, skb_data) else { return 0 };
    let mut payload = [0; MOST as usize];
    // SAFETY: the buffer holds MOST bytes; the helper checks the address it reads from.
    if unsafe { bpf_probe_read_kernel(payload.as_mut_ptr().cast(), MOST, data.cast()) } != 0 {
        return 0;
    }
    let Some(mut entry) = EVENTS.reserve(0) else {
        count(Stat::RingLost);
        return 0;
    };
    entry.write(SocketRecord {
        // SAFETY: no arguments.
        at: unsafe { bpf_ktime_get_ns() },
        identity: identity(sk, cookie(sk), cgroup, Side::Unknown),
        counters: Counters {
            acked: 0,
            received,
            srtt_us: 0,
            min_rtt_us: u32::MAX,
            retransmitted: 0,
            state: 0,
        },
        kind: EventKind::FirstBytes as u32,
        detail: there,
        payload,
    });
    entry.submit(BPF_RB_NO_WAKEUP);
    0
}

//! What user space tells the probes before they are loaded. The verifier sees constants: an offset costs nothing,
//! and code for members that a kernel lacks is removed.

use core::ptr::read_volatile;

use firedoor_ebpf::{Config, IgnoredReasons, Offsets};

#[unsafe(no_mangle)]
static OFFSETS: Offsets = Offsets {
    skc_family: 0,
    skc_state: 0,
    skc_dport: 0,
    skc_daddr: 0,
    skc_rcv_saddr: 0,
    skc_v6_daddr: 0,
    skc_v6_rcv_saddr: 0,
    skc_net: 0,
    skc_cookie: 0,
    sk_protocol: 0,
    sk_err: 0,
    sk_cgroup: 0,
    inet_sport: 0,
    net_inum: 0,
    cgroup_kn: 0,
    kernfs_id: 0,
    socket_sk: 0,
    skb_dev: 0,
    skb_sk: 0,
    skb_len: 0,
    skb_data_len: 0,
    skb_head: 0,
    skb_data: 0,
    skb_network_header: 0,
    dev_net: 0,
    sk_receive_queue_prev: 0,
    bytes_acked: 0,
    bytes_received: 0,
    srtt_us: 0,
    rtt_min: 0,
    total_retrans: 0,
    block: 0,
    block_len: 0,
};

#[unsafe(no_mangle)]
static CONFIG: Config = Config { kfree_skb_args: 0, send_reset_args: 0, cgroups: 0 };

#[unsafe(no_mangle)]
static IGNORED_REASONS: IgnoredReasons = IgnoredReasons { bits: [0; 8] };

/// The offsets in this kernel.
pub(super) fn offsets() -> &'static Offsets {
    &OFFSETS
}

/// The configuration.
#[inline(always)]
pub(super) fn config() -> Config {
    // SAFETY: a valid static; volatile, because the loader replaces the value that the compiler sees.
    unsafe { read_volatile(&CONFIG) }
}

/// Whether drops for this reason are not worth counting. Reasons beyond the bitmap are.
#[inline(always)]
pub(super) fn ignored(reason: u32) -> bool {
    let word = reason >> 6;
    if word >= 8 {
        return false;
    }
    // SAFETY: within the array; volatile as above.
    let bits = unsafe { read_volatile((&raw const IGNORED_REASONS.bits).cast::<u64>().add(word as usize)) };
    bits >> (reason & 63) & 1 == 1
}

/// The offset of a member, as the loader set it.
macro_rules! offset {
    ($member:ident) => {
        // SAFETY: a valid static; volatile, because the loader replaces the value that the compiler sees.
        unsafe { core::ptr::read_volatile(&$crate::probes::globals::offsets().$member) as usize }
    };
}

/// Loads a member directly: the base must be a pointer whose type the verifier knows (a tracepoint's argument, or
/// walked from one). A fault reads as zero.
macro_rules! load {
    ($type:ty, $base:expr, $member:ident) => {{
        let (base, offset) = ($base as *const u8, $crate::probes::globals::offset!($member));
        // SAFETY: the verifier checks base and offset, and the kernel catches faults.
        unsafe { core::ptr::read_volatile(base.add(offset) as *const $type) }
    }};
}

/// Reads a member through the kernel's checked copy: any base. `Err` on a fault.
macro_rules! probe {
    ($type:ty, $base:expr, $member:ident) => {{
        let (base, offset) = ($base as *const u8, $crate::probes::globals::offset!($member));
        // SAFETY: the helper checks the address and reports a fault.
        unsafe { aya_ebpf::helpers::bpf_probe_read_kernel(base.add(offset) as *const $type) }
    }};
}

pub(super) use {load, offset, probe};

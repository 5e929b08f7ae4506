//! The usual ways to count bytes, for the benchmark to compare with. No part of the agent.

#![no_std]
#![no_main]

use aya_ebpf::EbpfContext as _;
use aya_ebpf::bindings::TC_ACT_OK;
use aya_ebpf::btf_maps::LruPerCpuHashMap;
use aya_ebpf::helpers::generated::bpf_get_socket_cookie;
use aya_ebpf::macros::{btf_map, cgroup_skb, classifier};
use aya_ebpf::programs::{SkBuffContext, TcContext};

/// Bytes by connection, as peers count them.
#[btf_map]
static BYTES: LruPerCpuHashMap<u64, u64, 65_536> = LruPerCpuHashMap::new();

const ETHERNET: usize = 14;
const IPV4: u16 = 0x0800;

/// Counts bytes at a TC hook.
#[classifier]
fn count_tc(ctx: TcContext) -> i32 {
    if let Some(key) = tuple(&ctx) {
        add(key, u64::from(ctx.len()));
    }
    TC_ACT_OK as i32
}

fn tuple(ctx: &TcContext) -> Option<u64> {
    if u16::from_be(ctx.load(12).ok()?) != IPV4 {
        return None;
    }
    let addresses: u64 = ctx.load(ETHERNET + 12).ok()?;
    let ports: u32 = ctx.load(ETHERNET + 20).ok()?;
    Some(addresses ^ u64::from(ports).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Counts bytes where they enter a control group's sockets.
#[cgroup_skb(ingress)]
fn count_cgroup_in(ctx: SkBuffContext) -> i32 {
    count_socket(&ctx)
}

/// Counts bytes where they leave a control group's sockets.
#[cgroup_skb(egress)]
fn count_cgroup_out(ctx: SkBuffContext) -> i32 {
    count_socket(&ctx)
}

fn count_socket(ctx: &SkBuffContext) -> i32 {
    // SAFETY: the verifier knows the context.
    let cookie = unsafe { bpf_get_socket_cookie(ctx.as_ptr()) };
    add(cookie, u64::from(ctx.len()));
    1
}

fn add(key: u64, bytes: u64) {
    match BYTES.get_ptr_mut(&key) {
        // SAFETY: a valid element of this CPU's own map.
        Some(counter) => unsafe { *counter += bytes },
        None => {
            let _ = BYTES.insert(&key, &bytes, 0);
        }
    }
}

#[cfg(not(test))]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo) -> ! {
    loop {}
}

// SAFETY: a name the loader looks for; nothing else defines it.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

//! Programs that only the lab and the benchmark use: a packet filter as a datapath has it, and the usual ways to
//! count bytes, to compare with. No part of the agent.

#![no_std]
#![no_main]
// The BPF target of rustc claims to have no atomic additions; it has.
#![feature(core_intrinsics)]
#![allow(internal_features)]

use core::intrinsics::{AtomicOrdering, atomic_xadd};

use aya_ebpf::EbpfContext as _;
use aya_ebpf::bindings::{TC_ACT_OK, TC_ACT_SHOT};
use aya_ebpf::btf_maps::{HashMap, LruPerCpuHashMap, PerCpuArray};
use aya_ebpf::helpers::generated::bpf_get_socket_cookie;
use aya_ebpf::macros::{btf_map, cgroup_skb, classifier};
use aya_ebpf::programs::{SkBuffContext, TcContext};

/// What is denied: destination address, destination port, both in network order.
type Denied = [u8; 20];

/// Destinations that are denied; filled by user space. The value counts the packets.
#[btf_map]
static DENIED: HashMap<Denied, u64, 1024> = HashMap::new();

/// Bytes by connection, as peers count them.
#[btf_map]
static BYTES: LruPerCpuHashMap<u64, u64, 65_536> = LruPerCpuHashMap::new();

/// Packets seen.
#[btf_map]
static PACKETS: PerCpuArray<u64, 1> = PerCpuArray::new();

const ETHERNET: usize = 14;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

/// Denies TCP and UDP to the listed destinations, as a datapath does that lives in TC.
#[classifier]
fn deny(ctx: TcContext) -> i32 {
    let Some(key) = destination(&ctx) else { return TC_ACT_OK as i32 };
    match DENIED.get_ptr_mut(&key) {
        Some(packets) => {
            // SAFETY: a valid, aligned element, written atomically only.
            unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(packets, 1) };
            TC_ACT_SHOT as i32
        }
        None => TC_ACT_OK as i32,
    }
}

fn destination(ctx: &TcContext) -> Option<Denied> {
    let mut key: Denied = [0; 20];
    let transport = match u16::from_be(ctx.load(12).ok()?) {
        IPV4 => {
            let first: u8 = ctx.load(ETHERNET).ok()?;
            let address: [u8; 4] = ctx.load(ETHERNET + 16).ok()?;
            key[..4].copy_from_slice(&address);
            ETHERNET + (((first & 15) as usize) << 2)
        }
        IPV6 => {
            let address: [u8; 16] = ctx.load(ETHERNET + 24).ok()?;
            key[..16].copy_from_slice(&address);
            ETHERNET + 40
        }
        _ => return None,
    };
    let port: [u8; 2] = ctx.load(transport + 2).ok()?;
    key[16..18].copy_from_slice(&port);
    Some(key)
}

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
    if let Some(packets) = PACKETS.get_ptr_mut(0) {
        // SAFETY: a valid element of this CPU's own array.
        unsafe { *packets += 1 }
    }
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

//! The live sample: user space runs this program (BPF_PROG_TEST_RUN) and it reads the counters of a chunk of
//! followed sockets into their slots. It is never attached to anything.
//!
//! A slot holds a socket's address, and the socket may be gone: its cookie is compared before and after the
//! reads. Cookies are never given twice and are zeroed when a socket's memory is used again, so equal on both
//! sides means that every read hit this very socket.

use core::ffi::c_void;
use core::ptr::{read_volatile, write_volatile};

use aya_ebpf::helpers::generated::{bpf_loop, bpf_probe_read_kernel};
use firedoor_ebpf::{BLOCK_BYTES, Counters, Slot, Stat};

use super::globals::{offset, probe};
use super::maps::{SCRATCH, SLOTS, count};
use super::table;

struct Chunk {
    first: u32,
    sampled: u32,
}

/// Context: the first slot and the number of slots. Returns how many sockets were read. Needs `bpf_loop` (5.17).
// Not aya's attribute for raw tracepoints: it discards the return value.
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp/sys_enter")]
fn sample_sockets(ctx: *const u64) -> i32 {
    // SAFETY: the test run passes two words; the verifier checks the access.
    let (first, number) = unsafe { (read_volatile(ctx), read_volatile(ctx.add(1))) };
    let mut chunk = Chunk { first: first as u32, sampled: 0 };
    // SAFETY: the callback's signature is the one that the helper calls, and the chunk outlives the loop.
    unsafe { bpf_loop(number as u32, sample_slot as *mut c_void, (&raw mut chunk).cast(), 0) };
    // SAFETY: a local; volatile, because the callback changes it behind the compiler's back.
    unsafe { read_volatile(&raw const chunk.sampled) as i32 }
}

#[inline(never)]
unsafe extern "C" fn sample_slot(index: u32, chunk: *mut Chunk) -> i64 {
    // SAFETY: the pointer that `sample_sockets` passed.
    let number = index + unsafe { (*chunk).first };
    let Some(slot) = SLOTS.get_ptr_mut(number) else { return 1 };
    // SAFETY: a valid element; it may change meanwhile, which the cookies tell.
    unsafe {
        let cookie = read_volatile(&raw const (*slot).identity.cookie);
        if cookie == 0 {
            return 0;
        }
        match sample(cookie, slot) {
            Some(counters) => {
                write_volatile(&raw mut (*slot).counters, counters);
                write_volatile(&raw mut (*slot).sampled, cookie);
                (*chunk).sampled += 1;
            }
            None => {
                write_volatile(&raw mut (*slot).sampled, 0);
                // Lost in a race while it was seeded, or died unseen.
                table::leave(cookie);
            }
        }
    }
    0
}

#[inline(always)]
fn sample(cookie: u64, slot: *const Slot) -> Option<Counters> {
    // SAFETY: a valid element.
    let (again, sk) =
        unsafe { (read_volatile(&raw const (*slot).cookie), read_volatile(&raw const (*slot).sk)) };
    let sk = sk as *const u8;
    if again != cookie {
        return None;
    }
    if !is(sk, cookie) {
        return None;
    }
    let counters = if offset!(block_len) != 0 { in_one_read(sk) } else { one_by_one(sk) };
    let Some(counters) = counters else {
        count(Stat::Fault);
        return None;
    };
    is(sk, cookie).then_some(counters)
}

/// Whether the socket with this cookie lives here.
#[inline(always)]
fn is(sk: *const u8, cookie: u64) -> bool {
    match probe!(u64, sk, skc_cookie) {
        Ok(found) if found == cookie => true,
        Ok(_) => {
            count(Stat::Stale);
            false
        }
        Err(_) => {
            count(Stat::Fault);
            false
        }
    }
}

/// One helper call for everything between the lowest and the highest counter.
#[inline(always)]
fn in_one_read(sk: *const u8) -> Option<Counters> {
    let (start, length) = (offset!(block), offset!(block_len));
    if length > BLOCK_BYTES {
        return None;
    }
    let scratch = SCRATCH.get_ptr_mut(0)?.cast::<u8>();
    // SAFETY: the buffer holds BLOCK_BYTES; the helper checks the address it reads from.
    if unsafe { bpf_probe_read_kernel(scratch.cast(), length as u32, sk.add(start).cast()) } != 0 {
        return None;
    }
    macro_rules! member {
        ($type:ty, $member:ident) => {{
            let member = scratch.wrapping_add(offset!($member) - start) as *const $type;
            // SAFETY: the loader puts every counter inside the block; the verifier checks it.
            unsafe { read_volatile(member) }
        }};
    }
    Some(Counters {
        acked: member!(u64, bytes_acked),
        received: member!(u64, bytes_received),
        srtt_us: member!(u32, srtt_us) >> 3,
        min_rtt_us: member!(u32, rtt_min),
        retransmitted: member!(u32, total_retrans),
        state: u32::from(probe!(u8, sk, skc_state).ok()?),
    })
}

#[inline(always)]
fn one_by_one(sk: *const u8) -> Option<Counters> {
    Some(Counters {
        acked: probe!(u64, sk, bytes_acked).ok()?,
        received: probe!(u64, sk, bytes_received).ok()?,
        srtt_us: probe!(u32, sk, srtt_us).ok()? >> 3,
        min_rtt_us: probe!(u32, sk, rtt_min).ok()?,
        retransmitted: probe!(u32, sk, total_retrans).ok()?,
        state: u32::from(probe!(u8, sk, skc_state).ok()?),
    })
}

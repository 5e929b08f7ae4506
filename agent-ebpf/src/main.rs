//! The probes, for the BPF target. Built by `cargo xtask ebpf`; see `probes` for what each one does.

#![no_std]
#![no_main]
// The BPF target of rustc claims to have no atomic additions; it has.
#![feature(core_intrinsics)]
#![allow(internal_features)]

mod probes;

#[cfg(not(test))]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo) -> ! {
    // The verifier admits no program that could get here.
    loop {}
}

// SAFETY: a name the loader looks for; nothing else defines it.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

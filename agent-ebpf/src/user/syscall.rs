//! `bpf(2)` where aya has no call for it.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use aya::maps::MapData;

/// `BPF_PROG_TEST_RUN` (`include/uapi/linux/bpf.h`).
const PROG_TEST_RUN: libc::c_long = 10;
/// `BPF_MAP_LOOKUP_BATCH`, since 5.6.
pub(super) const MAP_LOOKUP_BATCH: libc::c_long = 24;

/// The attributes of `BPF_PROG_TEST_RUN`.
#[repr(C)]
#[derive(Default)]
struct TestRun {
    program: u32,
    returned: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    context_size_in: u32,
    context_size_out: u32,
    context_in: u64,
    context_out: u64,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    padding: u32,
}

/// The `bpf` system call.
pub(super) fn bpf<T>(command: libc::c_long, attributes: &mut T) -> io::Result<()> {
    // SAFETY: the attributes outlive the call, and the kernel is told their size.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// How many entries a map has, when its keys and values are of these sizes.
pub(super) fn of_size(map: &MapData, key: usize, value: usize) -> io::Result<u32> {
    let info = map.info().map_err(io::Error::other)?;
    if (info.key_size() as usize, info.value_size() as usize) == (key, value) {
        Ok(info.max_entries())
    } else {
        Err(io::Error::other("keys and values of this map have other sizes"))
    }
}

/// Runs a raw tracepoint program that is attached to nothing, with these words as its context; what it returned.
///
/// # Errors
/// What the kernel says, for example when it is too old (5.10) or the capability is missing.
pub fn run(program: BorrowedFd<'_>, context: &[u64]) -> io::Result<u32> {
    let mut attributes = TestRun {
        program: u32::try_from(program.as_raw_fd()).map_err(io::Error::other)?,
        context_size_in: u32::try_from(size_of_val(context)).map_err(io::Error::other)?,
        context_in: context.as_ptr() as u64,
        ..TestRun::default()
    };
    bpf(PROG_TEST_RUN, &mut attributes)?;
    Ok(attributes.returned)
}

/// The monotonic clock, which the probes' times are on, in nanoseconds.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid place to write to; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Gives memory that the allocator holds but nobody uses back to the system, where the allocator can.
pub fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: only the allocator's own free memory is touched.
    unsafe {
        libc::malloc_trim(0);
    }
}

//! Sockets that were open before the probes were there: one pass over the open files of all processes, whatever
//! their network namespace. It sees the processes of the reader's process-ID namespace.

use core::ffi::c_void;
use core::ptr::read_volatile;

use aya_ebpf::helpers::generated::{bpf_seq_write, bpf_skc_to_tcp_sock, bpf_sock_from_file};
use firedoor_ebpf::Side;
use firedoor_ebpf::tcp_state::{CLOSE, LISTEN, NEW_SYN_RECV, SYN_RECV, SYN_SENT, TIME_WAIT};

use super::globals::load;
use super::socket::{cgroup, cookie, identity, ignored};
use super::table;

/// `struct bpf_iter_meta`: stable since 5.8.
#[repr(C)]
struct Meta {
    seq: *mut c_void,
    session: u64,
    number: u64,
}

/// `struct bpf_iter__task_file`: stable since 5.8.
#[repr(C)]
struct TaskFile {
    meta: *const Meta,
    task: *const c_void,
    fd: u32,
    file: *mut c_void,
}

/// Gives every open TCP connection a slot, and writes its cookie for each. Needs `bpf_sock_from_file` (5.11).
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task_file")]
fn seed_sockets(ctx: *mut TaskFile) -> i32 {
    // SAFETY: the verifier knows the context's layout and checks the accesses.
    let (meta, file) =
        unsafe { (read_volatile(&raw const (*ctx).meta), read_volatile(&raw const (*ctx).file)) };
    if file.is_null() {
        return 0;
    }
    // SAFETY: a file, as the verifier knows; the helper says whether it is a socket.
    let socket = unsafe { bpf_sock_from_file(file.cast()) } as *const u8;
    if socket.is_null() {
        return 0;
    }
    let sk = load!(*const u8, socket, socket_sk);
    if sk.is_null() {
        return 0;
    }
    // SAFETY: the verifier knows this for a socket; the helper says whether it is a TCP one.
    let sk = unsafe { bpf_skc_to_tcp_sock(sk as *mut _) } as *const u8;
    if sk.is_null() {
        return 0;
    }
    let state = u32::from(load!(u8, sk, skc_state));
    // No connection yet or no longer; what becomes of them the hooks will see.
    if matches!(state, CLOSE | LISTEN | NEW_SYN_RECV | SYN_RECV | SYN_SENT | TIME_WAIT) {
        return 0;
    }
    let cgroup = cgroup(sk);
    if ignored(cgroup) {
        return 0;
    }
    let cookie = cookie(sk);
    table::enter(sk, &identity(sk, cookie, cgroup, Side::Unknown));
    // SAFETY: the verifier checks the sequence file and the buffer.
    unsafe { bpf_seq_write(read_volatile(&raw const (*meta).seq).cast(), (&raw const cookie).cast(), 8) };
    0
}

//! The maps. Every one is bounded, none evicts silently: what finds no room is counted in [`STATS`].

use aya_ebpf::btf_maps::{Array, HashMap, LruHashMap, PerCpuArray, RingBuf, Stack};
use aya_ebpf::macros::btf_map;
use firedoor_ebpf::{
    BLOCK_BYTES, DEFAULT_SLOTS, DROP_KEYS, DropKey, DropTally, IGNORED_CGROUPS, RING_BYTES,
    STATS as STAT_COUNT, Slot, SocketRecord, Stat,
};

const BPF_F_NO_PREALLOC: usize = 1;
const BPF_F_MMAPABLE: usize = 1024;

/// Drops, aggregated.
#[btf_map]
pub(super) static DROPS: HashMap<DropKey, DropTally, { DROP_KEYS as usize }> = HashMap::new();
/// Followed sockets; user space maps it into its memory.
#[btf_map]
pub(super) static SLOTS: Array<Slot, { DEFAULT_SLOTS as usize }, BPF_F_MMAPABLE> = Array::new();
/// Slots that were given back.
#[btf_map]
pub(super) static FREE: Stack<u32, { DEFAULT_SLOTS as usize }> = Stack::new();
/// From a socket's cookie to its slot.
#[btf_map]
pub(super) static INDEX: HashMap<u64, u32, { DEFAULT_SLOTS as usize }, BPF_F_NO_PREALLOC> = HashMap::new();
/// How many slots were ever wanted that nobody had given back: below it lie the used ones.
#[btf_map]
pub(super) static HIGH_WATER: Array<u64, 1> = Array::new();
/// Events of sockets, in order.
#[btf_map]
pub(super) static EVENTS: RingBuf<SocketRecord, { RING_BYTES as usize }> = RingBuf::new();
/// Control groups whose sockets are nobody's business; filled by user space.
#[btf_map]
pub(super) static IGNORED: LruHashMap<u64, u8, { IGNORED_CGROUPS as usize }> = LruHashMap::new();
/// Where a pass puts what it reads, before it is sorted out.
#[btf_map]
pub(super) static SCRATCH: PerCpuArray<[u8; BLOCK_BYTES], 1> = PerCpuArray::new();
/// Counters of the probes themselves, by [`Stat`].
#[btf_map]
pub(super) static STATS: PerCpuArray<u64, { STAT_COUNT as usize }> = PerCpuArray::new();

/// Counts one.
#[inline(always)]
pub(super) fn count(stat: Stat) {
    if let Some(counter) = STATS.get_ptr_mut(stat as u32) {
        // SAFETY: a valid element of this CPU's own array.
        unsafe { *counter += 1 }
    }
}

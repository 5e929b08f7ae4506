//! The few things user space needs to talk to the probes that aya does not offer: the table of sockets mapped into
//! memory, running the sample, reading a map many entries at a time, the clock the probes use. Everything here is
//! safe to call; all `unsafe` of user space is in this module.

mod batch;
mod slots;
mod syscall;

use crate::{Config, DropKey, DropTally, IgnoredReasons, Offsets, SocketRecord};

pub use batch::DropBatch;
pub use slots::SlotTable;
pub use syscall::{give_back_memory, monotonic_ns, run};

// SAFETY: `repr(C)` structures of integers without padding; sizes are pinned in the crate's root.
unsafe impl aya::Pod for Offsets {}
// SAFETY: as above.
unsafe impl aya::Pod for Config {}
// SAFETY: as above.
unsafe impl aya::Pod for IgnoredReasons {}
// SAFETY: as above.
unsafe impl aya::Pod for DropKey {}
// SAFETY: as above.
unsafe impl aya::Pod for DropTally {}

impl SocketRecord {
    /// The record in these bytes; `None` when there are too few.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < size_of::<Self>() {
            return None;
        }
        // SAFETY: enough bytes; a structure of integers, for which every bit pattern is a value.
        Some(unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() })
    }
}

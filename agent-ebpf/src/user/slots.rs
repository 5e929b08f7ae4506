//! The table of live sockets, mapped into memory read-only.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};

use aya::maps::MapData;

use super::syscall::of_size;
use crate::{Counters, Identity, Slot};

/// The table of live sockets.
pub struct SlotTable {
    first: *const Slot,
    slots: usize,
}

// SAFETY: the memory is shared with the kernel whichever thread reads it; reads are volatile and checked.
unsafe impl Send for SlotTable {}

impl SlotTable {
    /// Maps the table into memory. Pages that were never used cost nothing.
    ///
    /// # Errors
    /// What the kernel says, or that this is another map.
    pub fn map(table: &MapData) -> io::Result<Self> {
        let slots = of_size(table, size_of::<u32>(), size_of::<Slot>())? as usize;
        // SAFETY: a new mapping at a place the kernel chooses; unmapped when dropped.
        let place = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                slots * size_of::<Slot>(),
                libc::PROT_READ,
                libc::MAP_SHARED,
                table.fd().as_fd().as_raw_fd(),
                0,
            )
        };
        if place == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { first: place.cast(), slots })
    }

    /// How many slots there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots == 0
    }

    /// The socket in a slot as the last pass read it; `None` when it is free, was not read, or changes right now.
    #[must_use]
    pub fn get(&self, number: usize) -> Option<(Identity, Counters)> {
        if number >= self.slots {
            return None;
        }
        let place = self.first.wrapping_add(number);
        // SAFETY: within the mapping. The kernel may write meanwhile; a torn value shows unequal cookies.
        let cookie = unsafe { (&raw const (*place).identity.cookie).read_volatile() };
        if cookie == 0 {
            return None;
        }
        // SAFETY: as above.
        let slot = unsafe { place.read_volatile() };
        std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
        // SAFETY: as above.
        let after = unsafe { (&raw const (*place).identity.cookie).read_volatile() };
        let same = slot.identity.cookie == cookie
            && slot.sampled == cookie
            && slot.cookie == cookie
            && after == cookie;
        same.then_some((slot.identity, slot.counters))
    }
}

impl Drop for SlotTable {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `map`, which nobody can refer to any more.
        unsafe { libc::munmap(self.first.cast_mut().cast(), self.slots * size_of::<Slot>()) };
    }
}

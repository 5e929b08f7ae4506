//! Reading a hash map many entries at a time: one system call for thousands of entries instead of two for each.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};

use aya::maps::MapData;

use super::syscall::{MAP_LOOKUP_BATCH, bpf, of_size};
use crate::{DropKey, DropTally};

/// Entries asked for at a time.
const STEP: usize = 4096;

/// The attributes of the batch commands.
#[repr(C)]
struct Attributes {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map: u32,
    element_flags: u64,
    flags: u64,
}

/// Room for the entries of the map of drops, kept from one reading to the next.
#[derive(Default)]
pub struct DropBatch {
    keys: Vec<DropKey>,
    values: Vec<DropTally>,
}

impl DropBatch {
    /// Reads all entries. Those that come or go meanwhile may be missing or come twice.
    ///
    /// # Errors
    /// What the kernel says, or that this is another map.
    pub fn read(&mut self, map: &MapData) -> io::Result<impl Iterator<Item = (&DropKey, &DropTally)>> {
        of_size(map, size_of::<DropKey>(), size_of::<DropTally>())?;
        let map = u32::try_from(map.fd().as_fd().as_raw_fd()).map_err(io::Error::other)?;
        let (mut place, mut known) = (0_u64, 0);
        loop {
            self.keys.resize(known + STEP, DropKey::default());
            self.values.resize(known + STEP, DropTally::default());
            let mut attributes = Attributes {
                in_batch: if known == 0 { 0 } else { (&raw const place) as u64 },
                out_batch: (&raw mut place) as u64,
                keys: self.keys[known..].as_mut_ptr() as u64,
                values: self.values[known..].as_mut_ptr() as u64,
                count: STEP as u32,
                map,
                element_flags: 0,
                flags: 0,
            };
            // The kernel writes at most `count` keys and values: the vectors hold as many from `known` on.
            let result = bpf(MAP_LOOKUP_BATCH, &mut attributes);
            known += (attributes.count as usize).min(STEP);
            match result {
                Ok(()) => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => break,
                Err(error) => {
                    self.keys.clear();
                    self.values.clear();
                    return Err(error);
                }
            }
        }
        self.keys.truncate(known);
        self.values.truncate(known);
        Ok(self.keys.iter().zip(&self.values))
    }
}

//! From the monotonic clock of the probes to event time. Measured anew at every look, so that a wall clock that
//! is set moves later events only.

use std::time::Duration;

use firedoor_core::time::Timestamp;

/// What time it was when the monotonic clock read so many nanoseconds.
#[derive(Clone, Copy)]
pub(super) struct Clock {
    wall: Timestamp,
    monotonic: u64,
}

impl Clock {
    pub(super) fn new(wall: Timestamp, monotonic: u64) -> Self {
        Self { wall, monotonic }
    }

    /// The event time of a monotonic time.
    pub(super) fn at(&self, monotonic: u64) -> Timestamp {
        if monotonic >= self.monotonic {
            self.wall.plus(Duration::from_nanos(monotonic - self.monotonic))
        } else {
            self.wall.minus(Duration::from_nanos(self.monotonic - monotonic))
        }
    }
}

//! Whether the clock of this machine goes its way, or was set back. Enters: the time by both of its clocks; leaves: by how
//! much it was set. Must not know what that means.

use std::time::{Duration, Instant};

use firedoor_core::time::Timestamp;

/// Less is what a clock is corrected by while it goes (NTP), and what events may be late.
const LEAST: Duration = Duration::from_secs(5);

/// The time, as it was asked for last.
pub(super) struct Clock {
    at: Timestamp,
    instant: Instant,
}

impl Clock {
    pub(super) fn new(at: Timestamp, instant: Instant) -> Self {
        Self { at, instant }
    }

    /// By how much the clock was set back since the last time; `None`: it was not.
    pub(super) fn set_back(&mut self, at: Timestamp, instant: Instant) -> Option<Duration> {
        let expected = self.at.plus(instant.saturating_duration_since(self.instant));
        *self = Self::new(at, instant);
        Some(expected.since(at)).filter(|by| *by >= LEAST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_step_back_is_one() {
        let (begun, start) = (Instant::now(), Timestamp::parse("2026-11-01T09:00:00Z").unwrap());
        let second = Duration::from_secs(1);
        let mut clock = Clock::new(start, begun);
        assert_eq!(clock.set_back(start.plus(second), begun + second), None);
        assert_eq!(clock.set_back(start.plus(second * 3600), begun + 2 * second), None, "forward");
        assert_eq!(clock.set_back(start.plus(second * 3598), begun + 3 * second), None, "a little");
        assert_eq!(clock.set_back(start, begun + 3 * second), Some(second * 3598));
        assert_eq!(clock.set_back(start, begun + 3 * second), None);
    }
}

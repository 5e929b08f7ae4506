//! How long to wait before the next attempt. Enters: how the last one went; leaves: a pause. Deterministic for a node, and
//! different between nodes: a relay that comes back is not met by all at once.

use std::hash::BuildHasher as _;
use std::time::Duration;

/// The pauses between attempts.
pub(super) struct Backoff {
    least: Duration,
    most: Duration,
    attempt: u32,
    chance: u64,
}

impl Backoff {
    pub(super) fn new(least: Duration, most: Duration, node: &str) -> Self {
        let chance = foldhash::quality::FixedState::with_seed(0x0062_6163_6b6f_6666).hash_one(node);
        Self { least, most: most.max(least), attempt: 0, chance: chance | 1 }
    }

    /// The last connection held long enough.
    pub(super) fn reset(&mut self) {
        self.attempt = 0;
    }

    /// The pause before the next attempt: twice the last one at most, less up to half of it by chance.
    pub(super) fn next(&mut self) -> Duration {
        let whole =
            self.least.saturating_mul(1_u32.checked_shl(self.attempt).unwrap_or(u32::MAX)).min(self.most);
        if whole < self.most {
            self.attempt += 1;
        }
        // Xorshift (Marsaglia 2003).
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        let part = u32::try_from(self.chance >> 33).unwrap_or(u32::MAX) % 1024;
        whole / 2 + whole / 2 * part / 1024
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_longest_and_begin_anew() {
        let (least, most) = (Duration::from_millis(100), Duration::from_secs(30));
        let mut backoff = Backoff::new(least, most, "gpu-node-a");
        let mut whole = least;
        for _ in 0..40 {
            let pause = backoff.next();
            assert!(pause >= whole / 2 && pause <= whole, "{pause:?} of {whole:?}");
            whole = (whole * 2).min(most);
        }
        backoff.reset();
        assert!(backoff.next() <= least);
        let pauses = |node: &str| {
            let mut backoff = Backoff::new(least, most, node);
            [(); 5].map(|()| backoff.next())
        };
        assert_eq!(pauses("a"), pauses("a"));
        assert_ne!(pauses("a"), pauses("b"));
    }
}

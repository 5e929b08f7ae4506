//! When to ask again. Enters: what went wrong; leaves: how long to wait, never twice the same, so that the agents of a
//! cluster do not all come back at once. Must not know what is asked.

use std::time::Duration;

/// Waits that grow with every failure and are reset by success.
#[derive(Clone, Debug)]
pub(super) struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
    dice: Dice,
}

impl Backoff {
    pub(super) fn new(first: Duration, longest: Duration, dice: Dice) -> Self {
        Self { first, longest, failures: 0, dice }
    }

    pub(super) fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// How long to wait after one more failure. A server that says how long is waited for at least that long.
    pub(super) fn failed(&mut self, told: Option<Duration>) -> Duration {
        let grown = self.first.saturating_mul(1 << self.failures.min(16)).min(self.longest);
        self.failures = self.failures.saturating_add(1);
        let wait = self.dice.about(grown);
        told.map_or(wait, |told| told.min(MOST_TOLD).saturating_add(wait / 4).max(wait))
    }

    /// Somewhere between half of this and one and a half of it.
    pub(super) fn about(&mut self, wait: Duration) -> Duration {
        self.dice.about(wait)
    }
}

/// No server's wish is followed further.
const MOST_TOLD: Duration = Duration::from_secs(120);

/// Numbers that differ from agent to agent: SplitMix64.
#[derive(Clone, Debug)]
pub(super) struct Dice(u64);

impl Dice {
    /// Dice of their own for this node and this purpose.
    pub(super) fn new(node: &str, purpose: u64) -> Self {
        let mut state = 0xcbf2_9ce4_8422_2325 ^ purpose.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for byte in node.bytes() {
            state = (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Self(state)
    }

    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Somewhere between half of this and one and a half of it.
    pub(super) fn about(&mut self, wait: Duration) -> Duration {
        let permille = u32::try_from(self.roll() % 1001).unwrap_or(0);
        (wait / 2).saturating_add(wait / 1000 * permille)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_limit_and_differ() {
        let (first, longest) = (Duration::from_millis(100), Duration::from_secs(10));
        let mut backoff = Backoff::new(first, longest, Dice::new("n1", 1));
        let waits: Vec<Duration> = (0..40).map(|_| backoff.failed(None)).collect();
        assert!(waits[0] >= first / 2 && waits[0] <= first * 3 / 2);
        assert!(waits[30..].iter().all(|wait| *wait >= longest / 2 && *wait <= longest * 3 / 2));
        assert!(waits[30..].windows(2).any(|two| two[0] != two[1]));
        assert!(backoff.failed(Some(Duration::from_secs(30))) >= Duration::from_secs(30));
        assert!(backoff.failed(Some(Duration::MAX)) <= MOST_TOLD * 2);
        backoff.succeeded();
        assert!(backoff.failed(None) <= first * 3 / 2);
        assert_ne!(Dice::new("n1", 1).roll(), Dice::new("n2", 1).roll());
    }
}

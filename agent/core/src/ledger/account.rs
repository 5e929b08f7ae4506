//! What became of everything that entered, source by source. Enters: what each source told, and the outcome of it;
//! leaves: counts. `received = attributed + not_a_job + rejected + late + duplicate`, for each source and for all.

use std::collections::BTreeMap;

use crate::observation::SourceKind;
use crate::time::Timestamp;

/// Causes of losses that are counted apart for a source; what comes beyond is counted under [`OTHER_CAUSES`].
const MAX_CAUSES: usize = 32;
const OTHER_CAUSES: &str = "other";

/// Counts of everything that entered, by what became of it.
/// `received = attributed + not_a_job + rejected + late + duplicate`, always.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Flow events that entered, readable or not.
    pub received: u64,
    /// Concern a job.
    pub attributed: u64,
    /// Concern no job.
    pub not_a_job: u64,
    /// Unreadable, or from an impossible time.
    pub rejected: u64,
    /// Came after their window was closed.
    pub late: u64,
    /// Told before.
    pub duplicate: u64,
    /// Of those that concern no job: an end was not in the inventory.
    pub unresolved: u64,
    /// Of the attributed ones: the job is known, but not which of its pods.
    pub ambiguous: u64,
    /// Of the rejected ones: the time lies impossibly far ahead.
    pub far_future: u64,
    /// Attributed, but not kept because a cap was reached.
    pub overflow: u64,
}

impl Totals {
    fn each(self, other: Self, join: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            received: join(self.received, other.received),
            attributed: join(self.attributed, other.attributed),
            not_a_job: join(self.not_a_job, other.not_a_job),
            rejected: join(self.rejected, other.rejected),
            late: join(self.late, other.late),
            duplicate: join(self.duplicate, other.duplicate),
            unresolved: join(self.unresolved, other.unresolved),
            ambiguous: join(self.ambiguous, other.ambiguous),
            far_future: join(self.far_future, other.far_future),
            overflow: join(self.overflow, other.overflow),
        }
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.each(other, u64::saturating_add)
    }

    /// What came since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        self.each(earlier, u64::saturating_sub)
    }

    /// With only those received of which it is decided what becomes of them.
    #[must_use]
    pub fn decided(self) -> Self {
        let outcomes = [self.attributed, self.not_a_job, self.rejected, self.late, self.duplicate];
        Self { received: outcomes.into_iter().fold(0, u64::saturating_add), ..self }
    }
}

/// What one kind of source told.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Account {
    /// What became of its events.
    pub totals: Totals,
    /// Events that it knows to be missing, by cause in its own words; empty where it tells none.
    pub lost: BTreeMap<Box<str>, u64>,
    /// The time of its newest event, by the observer's clock; `None`: it told nothing that could be believed.
    pub last_event: Option<Timestamp>,
}

/// What all kinds of source told.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Accounts([Account; SourceKind::ALL.len()]);

impl Accounts {
    /// One source's account.
    #[must_use]
    pub fn of(&self, source: SourceKind) -> &Account {
        &self.0[source as usize]
    }

    /// All accounts, by source.
    pub fn iter(&self) -> impl Iterator<Item = (SourceKind, &Account)> {
        SourceKind::ALL.into_iter().zip(&self.0)
    }

    /// All sources together.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.0.iter().fold(Totals::default(), |sum, account| sum.plus(account.totals))
    }

    pub(super) fn count(&mut self, source: SourceKind) -> &mut Totals {
        &mut self.0[source as usize].totals
    }

    pub(super) fn saw(&mut self, source: SourceKind, at: Timestamp) {
        let last = &mut self.0[source as usize].last_event;
        *last = (*last).max(Some(at));
    }

    pub(super) fn lost(&mut self, source: SourceKind, cause: &str, count: u64) {
        let lost = &mut self.0[source as usize].lost;
        let cause = if lost.len() < MAX_CAUSES || lost.contains_key(cause) { cause } else { OTHER_CAUSES };
        let sum = lost.entry(cause.into()).or_default();
        *sum = sum.saturating_add(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_bounded_and_nothing_is_lost_of_them() {
        let mut accounts = Accounts::default();
        for cause in 0..100 {
            accounts.lost(SourceKind::Hubble, &cause.to_string(), 2);
        }
        let lost = &accounts.of(SourceKind::Hubble).lost;
        assert_eq!((lost.len(), lost.values().sum::<u64>()), (MAX_CAUSES + 1, 200));
        assert!(accounts.of(SourceKind::Ebpf).lost.is_empty());
    }
}

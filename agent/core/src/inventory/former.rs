//! Policies as they were. Enters: one snapshot's policies and the next one's; leaves: which policies there were at a
//! time. What locked a door when it was found locked stays to blame, whoever unlocked it since. Must not know blocks.

use std::time::Duration;

use super::renew::{Identity, identity};
use super::{FastMap, Inventory};
use crate::object::Object;
use crate::policy::PolicyKind;
use crate::time::Timestamp;

/// What happened just before a change was noticed may be told just after it.
const TOLD_LATER: Duration = Duration::from_secs(2);
/// Former versions of policies that are remembered, the newest.
const MAX_FORMER: usize = 1024;

/// Whether an object is a network policy of any kind.
#[must_use]
pub fn is_policy(object: &Object) -> bool {
    PolicyKind::ALL.iter().any(|kind| kind.as_str() == object.kind())
}

/// A policy that the cluster no longer has, or no longer has in this form.
#[derive(Clone, PartialEq, Debug)]
struct FormerPolicy {
    object: Object,
    /// Since when it had this form, where that is not as old as itself.
    since: Option<Timestamp>,
    until: Timestamp,
}

/// Policies as they were, as far as they were seen to change.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Former {
    /// By the time at which they were noticed to be gone.
    policies: Vec<FormerPolicy>,
    /// Policies of today that had another form before.
    since: FastMap<Identity, Timestamp>,
}

/// Which of the policies' versions are those of a time. Equal for times between which no policy changed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PolicyEpoch {
    /// Versions that had begun.
    begun: usize,
    /// Versions that were over.
    over: usize,
}

/// When versions of policies began, and when they ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicyChanges {
    began: Vec<Timestamp>,
    ended: Vec<Timestamp>,
}

impl PolicyChanges {
    /// The epoch of a time.
    #[must_use]
    pub fn epoch(&self, at: Timestamp) -> PolicyEpoch {
        PolicyEpoch {
            begun: self.began.partition_point(|began| *began <= at),
            over: self.ended.partition_point(|ended| *ended < at),
        }
    }

    /// Whether the policies of this epoch are those of today.
    #[must_use]
    pub fn is_today(&self, epoch: PolicyEpoch) -> bool {
        epoch == PolicyEpoch { begun: self.began.len(), over: self.ended.len() }
    }
}

/// What a policy says. Its status and its bookkeeping change all the time.
fn says(object: &Object) -> [Option<&serde_json::Value>; 2] {
    ["spec", "specs"].map(|field| object.value().get(field))
}

impl Former {
    /// Takes note of what `next` no longer has of `before`, noticed at `now`.
    /// What was over before `since` is forgotten.
    pub(super) fn note(
        &mut self,
        before: &[Object],
        next: &[Object],
        now: Option<Timestamp>,
        since: Option<Timestamp>,
    ) {
        if let Some(since) = since {
            self.policies.retain(|policy| policy.until >= since);
        }
        let current: FastMap<Identity, &Object> =
            next.iter().filter(|object| is_policy(object)).map(|object| (identity(object), object)).collect();
        for policy in before.iter().filter(|object| is_policy(object)) {
            let identity = identity(policy);
            let today = current.get(&identity);
            if today.is_some_and(|today| says(today) == says(policy)) {
                continue;
            }
            let since = self.since.remove(&identity);
            let Some(until) = now.map(|now| now.plus(TOLD_LATER)) else { continue };
            self.policies.push(FormerPolicy { object: policy.clone(), since, until });
            if today.is_some() {
                self.since.insert(identity, until.plus(Duration::from_nanos(1)));
            }
        }
        let surplus = self.policies.len().saturating_sub(MAX_FORMER);
        self.policies.drain(..surplus);
    }
}

impl FormerPolicy {
    fn began(&self) -> Option<Timestamp> {
        self.object.created().max(self.since)
    }
}

impl Inventory {
    fn began(&self, policy: &Object) -> Option<Timestamp> {
        let since =
            (!self.former.since.is_empty()).then(|| self.former.since.get(&identity(policy)).copied());
        policy.created().max(since.flatten())
    }

    /// When policies changed.
    #[must_use]
    pub fn policy_changes(&self) -> PolicyChanges {
        let today = self.objects.iter().filter(|object| is_policy(object));
        let former = self.former.policies.iter().filter_map(FormerPolicy::began);
        let mut began: Vec<Timestamp> = today.filter_map(|policy| self.began(policy)).chain(former).collect();
        let mut ended: Vec<Timestamp> = self.former.policies.iter().map(|policy| policy.until).collect();
        began.sort_unstable();
        ended.sort_unstable();
        PolicyChanges { began, ended }
    }

    /// All objects as they are, policies as they were at this time.
    pub fn objects_at(&self, at: Timestamp) -> impl Iterator<Item = &Object> {
        let today = self
            .objects
            .iter()
            .filter(move |object| !is_policy(object) || self.began(object).is_none_or(|began| began <= at));
        let former = self.former.policies.iter();
        let then =
            former.filter(move |policy| policy.began().is_none_or(|began| began <= at) && at <= policy.until);
        today.chain(then.map(|policy| &policy.object))
    }
}

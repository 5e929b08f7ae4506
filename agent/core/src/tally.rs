//! Counters of each job, for as long as the job is known: connections dropped, bytes and dollars, segments sent again,
//! round trips. Enters: what connections carried, denials by the ownership rule; leaves: counters that never fall.
//! Nothing is kept by pod: a job has no more counters than zones, roles and reasons give. Must not know windows.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::attribute::Peer;
use crate::drop_reason::DropReason;
use crate::inventory::{Inventory, JobNumbers, PodId};
use crate::ledger::window::Denied;
use crate::ledger::{Carrying, PairKey, RttSketch, way_of};
use crate::membership::{JobId, Role};
use crate::observation::Direction;
use crate::prices::{Prices, crossing};

/// Counters of a job that differ in reason; what comes beyond is counted under the unknown reason.
const MAX_REASONS: usize = 1024;

/// What connections were dropped for, and where.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DropKey {
    /// Why most packets were dropped.
    pub reason: DropReason,
    /// Seen from the end at which they were dropped; `None`: cannot know.
    pub direction: Option<Direction>,
    /// The zone of who opened; `None`: unknown.
    pub src_zone: Option<Arc<str>>,
    /// The zone of who was called; `None`: unknown.
    pub dst_zone: Option<Arc<str>>,
    /// What the opener is in the job.
    pub src_role: &'static str,
    /// What the called one is in the job; `other` for name servers and the API server.
    pub dst_role: &'static str,
}

/// From zone to zone; `None`: unknown.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ZonePair {
    /// Of the sender.
    pub src: Option<Arc<str>>,
    /// Of the receiver.
    pub dst: Option<Arc<str>>,
}

/// What was sent from zone to zone, as the senders' own sockets told. The values of several agents add up: each counts
/// the sockets of its own node.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct WayTally {
    /// Payload bytes sent and acknowledged.
    pub bytes: u64,
    /// What they cost in US dollars, by the price table; `None`: nothing crosses zones, or no price is known.
    pub usd: Option<f64>,
    /// Segments sent again.
    pub retransmitted: u64,
    /// Round-trip times that the senders measured.
    pub rtt: RttSketch,
}

/// The counters of a job. None of them ever falls.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct JobTally {
    /// Connections (handshakes, datagram exchanges) that ran into drops, as of the last look.
    pub dropped: BTreeMap<DropKey, u64>,
    /// What was sent, by zones; empty where no source sees bytes.
    pub ways: BTreeMap<ZonePair, WayTally>,
    /// As it is by now: a look at open windows may take back what an earlier one showed.
    closed: BTreeMap<DropKey, u64>,
}

impl JobTally {
    /// Shows what is true by now: `closed` and `open`. What was shown under a reason that turned out to be another one
    /// stays there, and is not shown again under the right one.
    fn show(&mut self, open: &BTreeMap<DropKey, u64>) {
        let mut now = self.closed.clone();
        for (key, count) in open {
            add(&mut now, key, *count);
        }
        let sum = |of: &BTreeMap<DropKey, u64>| of.values().fold(0, |sum: u64, n| sum.saturating_add(*n));
        let mut room = sum(&now).saturating_sub(sum(&self.dropped));
        for (key, count) in now {
            let shown = self.dropped.get(&key).copied().unwrap_or(0);
            let more = count.saturating_sub(shown).min(room);
            room -= more;
            if more > 0 {
                self.dropped.insert(key, shown.saturating_add(more));
            }
        }
    }

    /// Adds another job's counters, which turned out to be the same job's.
    fn absorb(&mut self, other: Self) {
        for (mine, theirs) in [(&mut self.dropped, other.dropped), (&mut self.closed, other.closed)] {
            theirs.iter().for_each(|(key, count)| add(mine, key, *count));
        }
        for (zones, theirs) in other.ways {
            let mine = self.ways.entry(zones).or_default();
            mine.bytes = mine.bytes.saturating_add(theirs.bytes);
            mine.retransmitted = mine.retransmitted.saturating_add(theirs.retransmitted);
            mine.usd = mine.usd.into_iter().chain(theirs.usd).reduce(|a, b| a + b);
            mine.rtt.merge(&theirs.rtt);
        }
    }
}

fn add(counts: &mut BTreeMap<DropKey, u64>, key: &DropKey, by: u64) {
    if counts.len() >= MAX_REASONS && !counts.contains_key(key) {
        let unknown = DropKey { reason: DropReason::UNKNOWN, ..key.clone() };
        let count = counts.entry(unknown).or_default();
        *count = count.saturating_add(by);
        return;
    }
    match counts.get_mut(key) {
        Some(count) => *count = count.saturating_add(by),
        None => {
            counts.insert(key.clone(), by);
        }
    }
}

/// The counters of all jobs.
#[derive(Default)]
pub struct Tallies {
    jobs: BTreeMap<JobId, JobTally>,
    zones: Vec<Arc<str>>,
    /// What open windows hold, by job, while a look is being made.
    open: BTreeMap<JobId, BTreeMap<DropKey, u64>>,
}

impl Tallies {
    /// By job, sorted.
    pub fn iter(&self) -> impl Iterator<Item = (&JobId, &JobTally)> {
        self.jobs.iter()
    }

    fn zone(&mut self, name: Option<&str>) -> Option<Arc<str>> {
        let name = name?;
        let place = match self.zones.binary_search_by(|known| known.as_ref().cmp(name)) {
            Ok(place) => place,
            Err(place) => {
                self.zones.insert(place, name.into());
                place
            }
        };
        self.zones.get(place).cloned()
    }

    fn job(&mut self, id: &JobId) -> &mut JobTally {
        if !self.jobs.contains_key(id) {
            self.jobs.insert(id.clone(), JobTally::default());
        }
        self.jobs.entry(id.clone()).or_default()
    }

    /// Takes what a pod's socket carried: what it sent is counted, for the other end counts its own.
    pub(crate) fn carry(&mut self, told: &Carrying, inventory: &Inventory, prices: &Prices) {
        let (from, to) = match told.peer {
            Peer::Member(peer) => (inventory.zone_of(told.pod), inventory.zone_of(peer)),
            Peer::SharedAddress(ip) => (inventory.zone_of(told.pod), inventory.zone_at(ip)),
            // What a job looks up costs nothing and tells nothing of its members.
            Peer::Dns(..) | Peer::ApiServer(_) => return,
        };
        let rtt = way_of(&told.carried);
        if told.carried.sent == 0 && told.carried.retransmitted == 0 && rtt.is_none() {
            return;
        }
        let zones = ZonePair {
            src: self.zone(from.map(|zone| zone.name.as_str())),
            dst: self.zone(to.map(|zone| zone.name.as_str())),
        };
        let provider = inventory.provider_of(told.pod).filter(|provider| match told.peer {
            Peer::Member(peer) => inventory.provider_of(peer) == Some(*provider),
            _ => true,
        });
        let crossing = from.zip(to).and_then(|(from, to)| crossing(from, to));
        let usd = crossing.and_then(|crossing| prices.dollars(provider?, crossing, told.carried.sent));
        let way = self.job(&inventory.job(told.job).id).ways.entry(zones).or_default();
        way.bytes = way.bytes.saturating_add(told.carried.sent);
        way.retransmitted = way.retransmitted.saturating_add(u64::from(told.carried.retransmitted));
        way.usd = way.usd.into_iter().chain(usd).reduce(|a, b| a + b);
        if let Some(rtt) = rtt {
            way.rtt.add(rtt);
        }
    }

    fn key(
        &mut self,
        pair: &PairKey,
        direction: Option<Direction>,
        denied: &Denied,
        inventory: &Inventory,
    ) -> DropKey {
        let main = denied.reasons.iter().max_by_key(|(reason, n)| (**n, std::cmp::Reverse(**reason)));
        let called = match pair.dst {
            Peer::Member(pod) | Peer::Dns(Some(pod), _) => inventory.zone_of(pod),
            Peer::SharedAddress(ip) => inventory.zone_at(ip),
            Peer::Dns(None, _) | Peer::ApiServer(_) => None,
        };
        DropKey {
            reason: main.map_or(DropReason::UNKNOWN, |(reason, _)| *reason),
            direction,
            src_zone: self.zone(inventory.zone_of(pair.src).map(|zone| zone.name.as_str())),
            dst_zone: self.zone(called.map(|zone| zone.name.as_str())),
            src_role: role(inventory, pair.src),
            dst_role: match pair.dst {
                Peer::Member(pod) => role(inventory, pod),
                _ => Role::Other.as_str(),
            },
        }
    }

    /// Takes denials of a pair, by the ownership rule: for good, or only for this look.
    pub(crate) fn deny(
        &mut self,
        pair: &PairKey,
        direction: Option<Direction>,
        denied: &Denied,
        inventory: &Inventory,
        for_good: bool,
    ) {
        if denied.attempts.count == 0 {
            return;
        }
        let Some((job, _)) = inventory.job_of(pair.src) else { return };
        let key = self.key(pair, direction, denied, inventory);
        let id = &inventory.job(job).id;
        if for_good {
            add(&mut self.job(id).closed, &key, denied.attempts.count);
        } else {
            self.job(id);
            add(self.open.entry(id.clone()).or_default(), &key, denied.attempts.count);
        }
    }

    /// Ends a look: what was taken for it is shown.
    pub(crate) fn show(&mut self) {
        let open = std::mem::take(&mut self.open);
        let nothing = BTreeMap::new();
        for (id, tally) in &mut self.jobs {
            tally.show(open.get(id).unwrap_or(&nothing));
        }
    }

    /// The cluster changed: jobs keep their counters, under whatever name they go by now; those that are no more have
    /// none.
    pub(crate) fn renumber_jobs(&mut self, before: &[JobId], numbers: &JobNumbers, inventory: &Inventory) {
        let mut jobs: BTreeMap<JobId, JobTally> = BTreeMap::new();
        for (old, id) in (0..).map(crate::inventory::JobIndex).zip(before) {
            let (Some(tally), Some(new)) = (self.jobs.remove(id), numbers.get(old)) else { continue };
            match jobs.entry(inventory.job(new).id.clone()) {
                std::collections::btree_map::Entry::Vacant(place) => {
                    place.insert(tally);
                }
                std::collections::btree_map::Entry::Occupied(mut same) => same.get_mut().absorb(tally),
            }
        }
        self.jobs = jobs;
    }
}

/// What a pod is in its job by its labels; where another one is labelled as the coordinator, it is a worker.
fn role(inventory: &Inventory, pod: PodId) -> &'static str {
    let Some((job, member)) = inventory.job_of(pod) else { return Role::Other.as_str() };
    let coordinated = || inventory.job(job).members.iter().any(|m| m.role == Some(Role::Coordinator));
    match member.role {
        Some(role) => role.as_str(),
        None if coordinated() => Role::Worker.as_str(),
        None => Role::Other.as_str(),
    }
}

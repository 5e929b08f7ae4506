//! A job and everything known about it, looked up once for all rules.

use std::collections::{BTreeMap, BTreeSet};

use crate::attribute::Peer;
use crate::history::PairHistory;
use crate::inventory::{JobIndex, PodId};
use crate::ledger::{ObserverId, PairKey};
use crate::membership::Job;
use crate::report::{EndReport, JobCoverage};
use crate::time::Timestamp;

use super::{Evidence, roles};

/// The members that were there while anything was seen, with their ranks. Pods that were replaced before that are
/// history; if all of them were, the job itself is, and is told as it was.
fn present(evidence: &Evidence<'_>, job: &Job) -> BTreeMap<PodId, Option<u32>> {
    let all = job.members.iter().filter_map(|m| Some((PodId(u32::try_from(m.pod).ok()?), m.rank)));
    let all: BTreeMap<PodId, Option<u32>> = all.collect();
    let Some(span) = evidence.history.span else { return all };
    let there = |id: &PodId| {
        let lease = evidence.inventory.pod(*id).lease;
        lease.from.is_none_or(|from| Some(from) <= evidence.now())
            && lease.until.is_none_or(|until| until > span.first)
    };
    let present: BTreeMap<PodId, Option<u32>> =
        all.iter().filter(|(id, _)| there(id)).map(|(id, r)| (*id, *r)).collect();
    if present.is_empty() { all } else { present }
}

/// A job and everything known about it.
pub(super) struct JobContext<'a> {
    pub(super) evidence: &'a Evidence<'a>,
    pub(super) index: JobIndex,
    pub(super) job: &'a Job,
    /// The job's pairs, by key.
    pub(super) pairs: Vec<(PairKey, &'a PairHistory)>,
    roles: BTreeMap<PodId, &'static str>,
    ranks: BTreeMap<PodId, Option<u32>>,
}

impl<'a> JobContext<'a> {
    pub(super) fn new(evidence: &'a Evidence<'a>, index: JobIndex) -> Self {
        let job = evidence.inventory.job(index);
        let ranks = present(evidence, job);
        let pairs: Vec<(PairKey, &PairHistory)> =
            ranks.keys().flat_map(|src| evidence.pairs_of(*src)).collect();
        let roles = roles::resolve(job, &pairs);
        Self { evidence, index, job, pairs, roles, ranks }
    }

    /// The job's pods.
    pub(super) fn members(&self) -> impl Iterator<Item = PodId> {
        self.ranks.keys().copied()
    }

    pub(super) fn role(&self, pod: PodId) -> &'static str {
        self.roles.get(&pod).copied().unwrap_or("other")
    }

    pub(super) fn rank(&self, pod: PodId) -> Option<u32> {
        self.ranks.get(&pod).copied().flatten()
    }

    pub(super) fn zone_name(&self, pod: PodId) -> Option<String> {
        self.evidence.inventory.zone_of(pod).map(|zone| zone.name.clone())
    }

    /// Known zones, sorted; zones of the same name in several regions carry their region.
    pub(super) fn zones(&self) -> Vec<String> {
        let zones: BTreeSet<_> =
            self.members().filter_map(|id| self.evidence.inventory.zone_of(id)).collect();
        let name = |zone: &&crate::facts::Zone| {
            let shared =
                zones.iter().filter(|other| other.name == zone.name && other.region != zone.region).count()
                    > 0;
            match &zone.region {
                Some(region) if shared => format!("{region}/{}", zone.name),
                _ => zone.name.clone(),
            }
        };
        let names: BTreeSet<String> = zones.iter().map(name).collect();
        names.into_iter().collect()
    }

    pub(super) fn now(&self) -> Timestamp {
        self.evidence.now().unwrap_or(Timestamp::MIN)
    }

    /// The node where a pod's events are recorded, if it ever reported.
    pub(super) fn observer_of(&self, pod: PodId) -> Option<ObserverId> {
        self.evidence.observers.known(self.evidence.inventory.pod(pod).node.as_deref()?)
    }

    /// Events missing at a node, those of unnamed nodes included.
    pub(super) fn lost_at(&self, observer: Option<ObserverId>) -> u64 {
        let lost = |id: ObserverId| {
            let observer = self.evidence.history.observer(id);
            observer.lost.saturating_add(observer.overflow)
        };
        let named = observer.filter(|id| *id != ObserverId::UNKNOWN).map_or(0, lost);
        named.saturating_add(lost(ObserverId::UNKNOWN))
    }

    pub(super) fn coverage(&self) -> JobCoverage {
        let observers: BTreeSet<ObserverId> = self.members().filter_map(|id| self.observer_of(id)).collect();
        let lost = |id: ObserverId| {
            let observer = self.evidence.history.observer(id);
            observer.lost.saturating_add(observer.overflow)
        };
        let unnamed = if observers.contains(&ObserverId::UNKNOWN) { 0 } else { lost(ObserverId::UNKNOWN) };
        let lost = observers.iter().map(|id| lost(*id)).fold(unnamed, u64::saturating_add);
        let evidence = self.evidence;
        let blind = self.blind_nodes().next().is_some() || evidence.blind.beyond();
        JobCoverage { lost, complete: lost == 0 && !blind && evidence.down().next().is_none() }
    }

    /// Nodes of the job's pods that a relay could not reach.
    pub(super) fn blind_nodes(&self) -> impl Iterator<Item = &str> {
        let nodes: BTreeSet<&str> =
            self.members().filter_map(|id| self.evidence.inventory.pod(id).node.as_deref()).collect();
        nodes.into_iter().filter(|node| self.evidence.blind.contains(node))
    }

    /// Of pairs with their weights those that a finding lists, in the order given.
    pub(super) fn listed<T>(&self, mut pairs: Vec<(u64, T)>) -> Vec<T> {
        let settings = self.evidence.settings;
        if settings.horizon.is_some() && pairs.len() > settings.listed_pairs {
            let mut weights: Vec<u64> = pairs.iter().map(|(weight, _)| *weight).collect();
            weights.sort_unstable_by_key(|weight| std::cmp::Reverse(*weight));
            let least = weights.get(settings.listed_pairs).copied().unwrap_or(0);
            let mut ties = settings.listed_pairs - weights.partition_point(|weight| *weight > least);
            pairs.retain(|(weight, _)| {
                let tie = *weight == least && ties > 0;
                ties -= usize::from(tie);
                *weight > least || tie
            });
        }
        pairs.into_iter().map(|(_, pair)| pair).collect()
    }

    /// That a finding lists fewer pairs than it concerns.
    pub(super) fn unlisted(&self, pairs: usize) -> Option<String> {
        let listed = self.evidence.settings.listed_pairs;
        let unlisted = pairs.saturating_sub(listed);
        (self.evidence.settings.horizon.is_some() && unlisted > 0)
            .then(|| format!("of {pairs} pairs the {listed} that weigh most are listed"))
    }

    /// Whether a pod still had its addresses at the end.
    pub(super) fn alive_at_end(&self, pod: PodId) -> bool {
        self.evidence.inventory.pod(pod).lease.until.is_none_or(|until| until > self.now())
    }

    pub(super) fn end(&self, pod: PodId) -> EndReport {
        let facts = self.evidence.inventory.pod(pod);
        EndReport {
            namespace: Some(facts.namespace.clone()),
            pod: facts.name.clone(),
            role: self.role(pod),
            zone: self.zone_name(pod),
        }
    }

    pub(super) fn peer(&self, peer: Peer) -> EndReport {
        match peer {
            Peer::Member(pod) | Peer::Dns(Some(pod), _) => self.end(pod),
            Peer::SharedAddress(ip) | Peer::Dns(None, ip) | Peer::ApiServer(ip) => {
                EndReport { namespace: None, pod: ip.to_string(), role: "other", zone: None }
            }
        }
    }
}

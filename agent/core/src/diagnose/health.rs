//! What cannot be said about a job. `healthy` is never said of what was not seen.

use std::collections::BTreeSet;

use crate::attribute::Peer;
use crate::inventory::PodId;
use crate::report::{GpuState, JobVerdict};

use super::context::JobContext;
use super::{distance, latency, untried};

/// Everything that keeps the job from being called healthy; empty when nothing does. That a blocked job's pods were
/// not seen to talk is no news.
pub(super) fn unknowns(context: &JobContext<'_>, worst: Option<JobVerdict>) -> Vec<String> {
    let mut unknowns = Vec::new();
    let coverage = context.coverage();
    if coverage.lost > 0 {
        unknowns.push(format!(
            "{} events were lost on nodes of this job: that nothing was seen to fail proves nothing",
            coverage.lost
        ));
    }
    for node in context.blind_nodes() {
        unknowns
            .push(format!("node {node} could not be reached by the relay: what happens there is not seen"));
    }
    if context.evidence.blind.beyond() {
        unknowns.push(
            "the relay could not reach more nodes than are remembered: what happens there is not seen"
                .to_owned(),
        );
    }
    for (source, since) in context.evidence.down() {
        unknowns.push(format!(
            "the {} source is down since {since}: what it alone sees is not seen",
            source.as_str()
        ));
    }
    if context.evidence.inventory.is_partial(context.index) {
        let known = context.members().count();
        unknowns.push(format!(
            "only {known} members of this job are known here: what the others see is not seen"
        ));
    }
    if worst != Some(JobVerdict::HardBlock) {
        unknowns.extend(unseen(context));
        unknowns.extend(untried::closed(context));
    }
    unknowns.extend(far(context));
    if !unknowns.is_empty() {
        unknowns.extend(few_denials(context));
    }
    unknowns
}

/// Denials that were seen, but amount to no block: worth a word where the answer is open anyway.
fn few_denials(context: &JobContext<'_>) -> Option<String> {
    let settings = context.evidence.settings;
    let failing = context.pairs.iter().map(|(_, history)| history.failing());
    let few = failing.filter(|streak| streak.blocked(settings).is_none());
    let attempts: u64 = few.map(|streak| streak.all_denied().attempts.count).sum();
    (attempts > 0).then(|| {
        format!(
            "{attempts} connection attempts were denied since the last success, too few to call it a block"
        )
    })
}

fn unseen(context: &JobContext<'_>) -> Option<String> {
    let present: Vec<PodId> = context.members().collect();
    let mut connected: BTreeSet<PodId> = BTreeSet::new();
    for (key, history) in &context.pairs {
        if let Peer::Member(dst) = key.dst
            && history.answered.span.is_some()
        {
            connected.extend([key.src, dst]);
        }
    }
    let missing = present.iter().filter(|id| !connected.contains(id)).count();
    match (missing, present.len()) {
        (0, 1..) => None,
        (missing, all) if missing == all => {
            Some("no connection between its pods was seen to succeed".to_owned())
        }
        (missing, all) => {
            Some(format!("{missing} of {all} pods were not seen in any connection that succeeded"))
        }
    }
}

/// Latency and cost can be excluded only where they were measured, or where nothing crosses a zone.
fn far(context: &JobContext<'_>) -> Option<String> {
    let inventory = context.evidence.inventory;
    let zoned_cluster = inventory.nodes().values().any(|node| node.zone.is_some());
    let nodes: BTreeSet<Option<&str>> =
        context.members().map(|id| inventory.pod(id).node.as_deref()).collect();
    let one_node = nodes.len() == 1 && !nodes.contains(&None);
    let zones: BTreeSet<_> = context.members().map(|id| inventory.zone_of(id)).collect();
    if !zoned_cluster || one_node {
        return None;
    }
    if zones.contains(&None) {
        return Some(
            "the zone of some of its pods is unknown, so whether they talk across zones is, too".to_owned(),
        );
    }
    if zones.len() < 2 {
        return None;
    }
    let blind: Vec<PodId> = context.members().filter(|pod| !distance::measured(context, *pod)).collect();
    let all = blind.len() == context.members().count();
    if all {
        return Some(format!(
            "it runs in {}, and this source sees neither bytes nor round-trip times: latency and cost between the zones cannot be known",
            context.zones().join(" and ")
        ));
    }
    // One end is enough to measure a pair: what is not seen lies between nodes of which neither is watched.
    let unseen: BTreeSet<_> = blind.iter().map(|pod| inventory.zone_of(*pod)).collect();
    if unseen.len() > 1 {
        let nodes: BTreeSet<&str> =
            blind.iter().filter_map(|pod| inventory.pod(*pod).node.as_deref()).collect();
        return Some(format!(
            "nothing measures bytes and round-trip times on {} of its nodes, which lie in several zones: latency and cost between them cannot be known",
            nodes.len()
        ));
    }
    latency::unknown(context)
}

/// That the counts of a finding are lower bounds.
pub(super) fn incomplete(context: &JobContext<'_>) -> Option<String> {
    let lost = context.coverage().lost;
    (lost > 0).then(|| format!("{lost} further events were lost: the counts are lower bounds"))
}

/// Support from accelerators for a finding, never more.
pub(super) fn gpu_evidence(context: &JobContext<'_>) -> Option<String> {
    let inventory = context.evidence.inventory;
    let states = context.members().flat_map(|id| {
        let pod = inventory.pod(id);
        context.evidence.readings.states(&pod.namespace, &pod.name)
    });
    let known: Vec<GpuState> = states.filter(|state| *state != GpuState::Unknown).collect();
    let count = |state: GpuState| known.iter().filter(|s| **s == state).count();
    let (idle, spinning) = (count(GpuState::Idle), count(GpuState::Spinning));
    if idle > 0 {
        return Some(format!("{idle} of {} measured GPUs are idle", known.len()));
    }
    (spinning > 0).then(|| {
        format!("{spinning} of {} measured GPUs spin inside a collective without computing", known.len())
    })
}

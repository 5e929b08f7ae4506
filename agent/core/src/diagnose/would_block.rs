//! Traffic that passes only because a policy is in audit mode. Nothing is wrong yet; it will be when the policy
//! is enforced.

use std::collections::BTreeSet;

use crate::history::{Blocked, PairHistory, Streak};
use crate::inventory::PodId;
use crate::ledger::window::{Denied, join};
use crate::ledger::{PairKey, PortClass};
use crate::report::{
    Cause, CauseKind, FindingReport, FindingState, PairReport, PolicyBlame, PortsReport, Symptom,
};

use super::context::JobContext;
use super::hard_block::Trouble;
use super::{attribution, sentence};

pub(super) fn findings(context: &JobContext<'_>) -> Option<FindingReport> {
    let audited = context.pairs.iter().filter(|(_, history)| history.audited.is_some());
    let audited: Vec<(PairKey, &PairHistory)> = audited.copied().collect();
    let span = tallies(&audited).map(|denied| denied.attempts.span).fold(None, join)?;
    let sources: BTreeSet<PodId> = audited.iter().map(|(key, _)| key.src).collect();
    let attempts: u64 = tallies(&audited).map(|denied| denied.attempts.count).sum();
    let reasons = tallies(&audited).flat_map(|denied| denied.reasons.keys());
    let reason = reasons.max().map(ToString::to_string);
    let quiet = context.now().since(span.last) >= context.evidence.settings.quiet;
    Some(FindingReport {
        symptom: Symptom::WouldBlock,
        state: if quiet { FindingState::Ended } else { FindingState::Active },
        since: Some(span.first),
        last_seen: Some(span.last),
        summary: format!(
            "a policy in audit mode would block traffic of {}: it passes only because the policy is not enforced",
            sentence::ends(context, &sources)
        ),
        cause: Cause { kind: CauseKind::Policy, reason, policies: policies(context, &audited) },
        pairs: listed(context, &audited),
        evidence: vec![format!("{attempts} connection attempts would have been dropped")],
        remedies: Vec::new(),
        rtt: None,
        cost: None,
    })
}

fn tallies<'a>(audited: &'a [(PairKey, &'a PairHistory)]) -> impl Iterator<Item = &'a Denied> {
    audited.iter().filter_map(|(_, history)| history.audited.as_deref())
}

fn listed(context: &JobContext<'_>, audited: &[(PairKey, &PairHistory)]) -> Vec<PairReport> {
    let weight = |history: &PairHistory| history.audited.as_ref().map_or(0, |audited| audited.attempts.count);
    let weighed = audited.iter().map(|(key, history)| (weight(history), (key, *history))).collect();
    context.listed(weighed).into_iter().map(|(key, history)| pair(context, key, history)).collect()
}

/// The policies that would close the way. An audited packet passes, so that there is no drop to explain: what counts
/// is what both ends say.
fn policies(context: &JobContext<'_>, audited: &[(PairKey, &PairHistory)]) -> Vec<PolicyBlame> {
    let troubles: Vec<Trouble> = audited.iter().filter_map(|(key, history)| would_be(key, history)).collect();
    let attributions = attribution::attribute(context, &troubles);
    let blamed: BTreeSet<PolicyBlame> = attributions.into_iter().flat_map(|a| a.blamed).collect();
    blamed.into_iter().collect()
}

fn would_be(key: &PairKey, history: &PairHistory) -> Option<Trouble> {
    Some(Trouble {
        key: *key,
        ports: history.ports.keys().collect(),
        streak: Streak::default(),
        blocked: Blocked::Unanswered,
        state: FindingState::Active,
        span: history.audited.as_ref()?.attempts.span?,
        recovered: None,
    })
}

fn pair(context: &JobContext<'_>, key: &PairKey, history: &PairHistory) -> PairReport {
    let ports: Vec<u16> = history.ports.keys().collect();
    let (min, max) = (ports.first().copied().unwrap_or(0), ports.last().copied().unwrap_or(0));
    PairReport {
        src: context.end(key.src),
        dst: context.peer(key.dst),
        protocol: key.protocol.name(),
        port: (key.class == PortClass::Fixed && ports.len() == 1).then_some(min),
        ports: PortsReport { class: key.class, min, max, distinct: ports.len() },
        app: "unknown",
        attempts: history.audited.as_ref().map(|audited| audited.attempts.count),
        drops: None,
        bytes: None,
        rtt_ms_p50: None,
        direction: None,
    }
}

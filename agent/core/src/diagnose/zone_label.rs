//! Pods whose label claims another zone than their node's: policies that trust the label then lock the wrong
//! door, or open one that should be locked.

use crate::inventory::PodId;
use crate::remedy::zone_claim::false_claims;
use crate::report::{Cause, CauseKind, FindingReport, FindingState, Symptom};

use super::context::JobContext;
use super::mend;

struct Claim {
    pod: PodId,
    key: String,
    claimed: String,
    actual: String,
}

pub(super) fn findings(context: &JobContext<'_>) -> Option<FindingReport> {
    let claims: Vec<Claim> = context.members().filter_map(|id| claim(context, id)).collect();
    let first = claims.first()?;
    let inventory = context.evidence.inventory;
    let summary = match claims.as_slice() {
        [one] => format!(
            "pod {} says {}={}, but runs in {}",
            inventory.pod(one.pod).name,
            one.key,
            one.claimed,
            one.actual
        ),
        many => format!(
            "{} pods carry a zone label that is not their node's zone, for example {}={} in {}",
            many.len(),
            first.key,
            first.claimed,
            first.actual
        ),
    };
    let evidence = claims.iter().take(8).map(|claim| {
        let pod = inventory.pod(claim.pod);
        let node = pod.node.as_deref().unwrap_or("?");
        format!("pod {}: label {}={}, node {node} is in {}", pod.name, claim.key, claim.claimed, claim.actual)
    });
    let mut evidence: Vec<String> = evidence.collect();
    if claims.len() > evidence.len() {
        evidence.push(format!("and {} more", claims.len() - evidence.len()));
    }
    let since = claims.iter().filter_map(|claim| inventory.pod(claim.pod).lease.from).min();
    let gone = claims.iter().all(|claim| !context.alive_at_end(claim.pod));
    let state = if gone { FindingState::Ended } else { FindingState::Active };
    Some(FindingReport {
        symptom: Symptom::ZoneLabelMismatch,
        state,
        since,
        last_seen: context.evidence.history.span.map(|span| span.last),
        summary,
        cause: Cause { kind: CauseKind::Label, reason: None, policies: Vec::new() },
        pairs: Vec::new(),
        evidence,
        remedies: mend::remedies(context, Symptom::ZoneLabelMismatch, state, CauseKind::Label, &[]),
        rtt: None,
        cost: None,
    })
}

fn claim(context: &JobContext<'_>, id: PodId) -> Option<Claim> {
    let inventory = context.evidence.inventory;
    let actual = inventory.zone_of(id)?;
    let (key, claimed) = false_claims(inventory, &inventory.pod(id).labels, &actual.name).next()?;
    let (key, claimed) = (key.to_owned(), claimed.to_owned());
    Some(Claim { pod: id, key, claimed, actual: actual.name.clone() })
}

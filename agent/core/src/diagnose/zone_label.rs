//! Pods whose label claims another zone than their node's: policies that trust the label then lock the wrong
//! door, or open one that should be locked.

use crate::facts::ZONE_LABEL;
use crate::inventory::PodId;
use crate::report::{Cause, CauseKind, FindingReport, FindingState, Symptom};

use super::context::JobContext;

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
    Some(FindingReport {
        symptom: Symptom::ZoneLabelMismatch,
        state: if gone { FindingState::Ended } else { FindingState::Active },
        since,
        last_seen: context.evidence.history.span.map(|span| span.last),
        summary,
        cause: Cause { kind: CauseKind::Label, reason: None, policies: Vec::new() },
        pairs: Vec::new(),
        evidence,
        remedies: Vec::new(),
    })
}

fn claim(context: &JobContext<'_>, id: PodId) -> Option<Claim> {
    let inventory = context.evidence.inventory;
    let actual = inventory.zone_of(id)?;
    let is_zone = |value: &str| {
        inventory.nodes().values().filter_map(|node| node.zone.as_ref()).any(|zone| zone.name == value)
    };
    inventory.pod(id).labels.iter().find_map(|(key, value)| {
        // Well-known keys always mean the zone; others only when their value is the name of one.
        let well_known = key == ZONE_LABEL || key == "failure-domain.beta.kubernetes.io/zone";
        let zone_like = key == "zone" || key.ends_with("/zone");
        let lies = (well_known || (zone_like && is_zone(value))) && *value != actual.name;
        lies.then(|| Claim { pod: id, key: key.clone(), claimed: value.clone(), actual: actual.name.clone() })
    })
}

//! What would mend a finding. Enters: a job and who cannot reach whom; leaves: checked remedies. Nothing is proposed for
//! what mended itself.

use std::collections::BTreeMap;

use crate::attribute::Peer;
use crate::facts::Protocol;
use crate::inventory::PodId;
use crate::remedy::{BlockedPair, Situation, propose};
use crate::report::{CauseKind, FindingState, RemedyReport, Symptom};

use super::context::JobContext;
use super::hard_block::Trouble;

/// Remedies for a finding, best first.
pub(super) fn remedies(
    context: &JobContext<'_>,
    symptom: Symptom,
    state: FindingState,
    cause: CauseKind,
    troubles: &[Trouble],
) -> Vec<RemedyReport> {
    if state == FindingState::Recovered {
        return Vec::new();
    }
    let mut ports: BTreeMap<(PodId, Peer, Protocol), Vec<u16>> = BTreeMap::new();
    for trouble in troubles {
        let key = (trouble.key.src, trouble.key.dst, trouble.key.protocol);
        ports.entry(key).or_default().extend(&trouble.ports);
    }
    let blocked: Vec<BlockedPair> = ports
        .into_iter()
        .map(|((src, dst, protocol), ports)| BlockedPair { src, dst, protocol, ports })
        .collect();
    let inventory = context.evidence.inventory;
    let remedies = propose(&Situation {
        objects: inventory.objects(),
        inventory,
        job: context.index,
        symptom,
        cause,
        blocked: &blocked,
        policy_settings: context.evidence.settings.policy,
    });
    // What opens the way between the pods does not open the one to the API server: shown, it would mislead.
    remedies.into_iter().filter(|remedy| remedy.verified || cause != CauseKind::ApiBlocked).collect()
}

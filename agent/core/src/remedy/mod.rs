//! What would mend a finding, proposed and checked, never applied. Enters: the objects, the inventory and who cannot
//! reach whom; leaves: remedies, best first, each a list of patches of the objects a user edits. Every remedy is held
//! against the policy engine with pods, labels and zones as they would be after it. Must not know flows or windows.

mod allow;
mod dns;
mod edit_deny;
mod gang;
mod placement;
mod plan;
mod relabel;
mod slot;
mod spread;
#[cfg(test)]
mod tests;
mod verify;
mod world;
mod yaml;
pub(crate) mod zone_claim;

use crate::attribute::Peer;
use crate::facts::Protocol;
use crate::inventory::{Inventory, JobIndex, PodId};
use crate::object::Object;
use crate::policy;
use crate::report::{CauseKind, RemedyReport, Symptom};

use plan::Plan;
use verify::{Check, check};
use world::World;

pub use yaml::to_yaml;

/// More would not be read.
const MOST: usize = 6;

/// A pod that cannot reach a peer of its job.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct BlockedPair {
    /// Who opens.
    pub src: PodId,
    /// Whom it wants to reach.
    pub dst: Peer,
    /// Over which protocol.
    pub protocol: Protocol,
    /// On which ports.
    pub ports: Vec<u16>,
}

/// What is wrong with a job, and everything needed to mend it.
#[derive(Clone, Copy)]
pub struct Situation<'a> {
    /// The cluster's objects, as they were read.
    pub objects: &'a [Object],
    /// The same objects, understood.
    pub inventory: &'a Inventory,
    /// The job.
    pub job: JobIndex,
    /// What is wrong with it.
    pub symptom: Symptom,
    /// Why.
    pub cause: CauseKind,
    /// Who cannot reach whom.
    pub blocked: &'a [BlockedPair],
    /// What the policies' meaning depends on besides them.
    pub policy_settings: policy::Settings,
}

/// Remedies, best first: what was checked before what could not be, and what keeps policies as they are before what
/// opens them. None of them is only half a fix: where a door is known to stay closed, a remedy is not shown.
#[must_use]
pub fn propose(situation: &Situation<'_>) -> Vec<RemedyReport> {
    let before = World::of(situation);
    let mut plans: Vec<(Plan, Check)> = Vec::new();
    for alternatives in ideas(situation, &before) {
        let mut second = None;
        for plan in alternatives {
            let result = check(situation, &before, &plan);
            if result == Check::Holds {
                second = None;
                plans.push((plan, result));
                break;
            }
            second = second.or((result == Check::Unsure).then_some((plan, result)));
        }
        plans.extend(second);
    }
    plans.sort_by_key(|(plan, check)| (*check != Check::Holds, plan.weakens_isolation()));
    plans.truncate(MOST);
    plans.into_iter().map(|(plan, check)| plan.report(check == Check::Holds)).collect()
}

/// Everything worth checking, in the order of preference. Of alternatives only the first that holds is shown.
fn ideas(situation: &Situation<'_>, before: &World<'_>) -> Vec<Vec<Plan>> {
    let one = |plan: Option<Plan>| plan.into_iter().collect();
    match situation.symptom {
        Symptom::HardBlock | Symptom::WouldBlock => {
            let by_policy = matches!(
                situation.cause,
                CauseKind::Policy
                    | CauseKind::ExplicitDeny
                    | CauseKind::DnsBlocked
                    | CauseKind::ApiBlocked
                    | CauseKind::Unknown
            );
            if !by_policy || !before.is_closed() {
                return Vec::new();
            }
            let mut ideas = vec![placement::plans(before), one(allow::plan(before))];
            ideas.extend(edit_deny::plans(before).into_iter().map(|plan| vec![plan]));
            ideas
        }
        Symptom::ZoneLabelMismatch => vec![one(relabel::plan(before)), placement::plans(before)],
        Symptom::CrossZoneLatency | Symptom::EgressCost => {
            vec![placement::plans(before), one(spread::plan(before))]
        }
        Symptom::RdmaFallback => Vec::new(),
    }
}

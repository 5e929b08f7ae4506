//! What each pod is in its job: by its labels, else by who calls whom.

use std::collections::{BTreeMap, BTreeSet};

use crate::attribute::Peer;
use crate::history::PairHistory;
use crate::inventory::PodId;
use crate::ledger::{PairKey, PortClass};
use crate::membership::{Job, Role};

/// The role of every member. Where no label tells, the end that all others call on a fixed port is the
/// coordinator; where there is a coordinator, the rest are workers.
pub(super) fn resolve(job: &Job, pairs: &[(PairKey, &PairHistory)]) -> BTreeMap<PodId, &'static str> {
    let mut roles: BTreeMap<PodId, Option<Role>> =
        job.members.iter().filter_map(|m| Some((PodId(u32::try_from(m.pod).ok()?), m.role))).collect();
    let mut coordinated = roles.values().any(|role| *role == Some(Role::Coordinator));
    if !coordinated && let Some(called) = called_by_all(&roles, pairs) {
        roles.insert(called, Some(Role::Coordinator));
        coordinated = true;
    }
    let name = |role: Option<Role>| match role {
        Some(role) => role.as_str(),
        None if coordinated => Role::Worker.as_str(),
        None => Role::Other.as_str(),
    };
    roles.into_iter().map(|(pod, role)| (pod, name(role))).collect()
}

fn called_by_all(roles: &BTreeMap<PodId, Option<Role>>, pairs: &[(PairKey, &PairHistory)]) -> Option<PodId> {
    let mut callers: BTreeMap<PodId, BTreeSet<PodId>> = BTreeMap::new();
    for (key, _) in pairs {
        if let (Peer::Member(called), PortClass::Fixed) = (key.dst, key.class) {
            callers.entry(called).or_default().insert(key.src);
        }
    }
    let undecided = |pod: &PodId| roles.get(pod).is_some_and(Option::is_none);
    let mut called = callers.iter().filter(|(pod, by)| undecided(pod) && by.len() + 1 == roles.len());
    match (called.next(), called.next()) {
        (Some((pod, _)), None) => Some(*pod),
        _ => None,
    }
}

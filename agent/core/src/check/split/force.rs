//! What tears the members of a job apart: spread constraints, anti-affinity, exclusive placement. Enters: the templates;
//! leaves: findings. Must not know what keeps them together.

use serde_json::Value;

use super::Part;
use super::bonds::{JOBSET_EXCLUSIVE, child_jobs, selected};
use crate::check::gangs::Gang;
use crate::check::placement::{eligible, is_zone_key};
use crate::check::report::{CheckFinding, Rule, Severity};
use crate::check::wording;
use crate::check::world::World;

pub(super) fn findings(world: &World, gang: &Gang<'_>, parts: &[Part<'_>]) -> Vec<CheckFinding> {
    let mut findings = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        let constraints = part.source.spec.get("topologySpreadConstraints").and_then(Value::as_array);
        for constraint in constraints.into_iter().flatten().filter(|c| zone_keyed(c)) {
            findings.extend(spread(world, gang, parts, at, constraint));
        }
        let anti = part
            .source
            .spec
            .pointer("/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution");
        for term in anti.and_then(Value::as_array).into_iter().flatten().filter(|term| zone_keyed(term)) {
            findings.extend(apart(world, gang, parts, at, term));
        }
    }
    findings.extend(exclusive(world, gang, parts));
    findings
}

fn zone_keyed(term: &Value) -> bool {
    term.get("topologyKey").and_then(Value::as_str).is_some_and(is_zone_key)
}

fn spread(
    world: &World,
    gang: &Gang<'_>,
    parts: &[Part<'_>],
    at: usize,
    constraint: &Value,
) -> Option<CheckFinding> {
    let part = parts.get(at)?;
    let matched = selected(gang, parts, at, constraint);
    let pods: usize = matched.iter().filter_map(|at| parts.get(*at)).map(|part| part.count).sum();
    let skew = constraint.get("maxSkew").and_then(Value::as_u64).unwrap_or(1);
    let called = part.called(world);
    let zones = eligible(world, &part.source.spec, constraint);
    if zones.as_ref().is_some_and(|zones| zones.len() < 2) {
        let summary =
            format!("the zone spread constraint of the {called} changes nothing: only one zone is eligible");
        let mut finding =
            super::finding(world, gang, part, Rule::SpreadWithoutEffect, Severity::Note, summary);
        finding.evidence.push(
            "nodeSelector or node affinity leave one zone, so the skew is always within bounds".to_owned(),
        );
        return Some(finding);
    }
    if pods < 2 || u64::try_from(pods).unwrap_or(u64::MAX) <= skew {
        return None;
    }
    let hard = constraint.get("whenUnsatisfiable").and_then(Value::as_str) != Some("ScheduleAnyway");
    let verb = if hard { "makes the scheduler spread" } else { "makes the scheduler prefer to spread" };
    let summary =
        format!("a zone spread constraint of the {called} {verb} {pods} pods of the job over zones");
    let mut finding = super::finding(world, gang, part, Rule::ZoneSplitForced, Severity::Warning, summary);
    match zones {
        Some(zones) => finding.evidence.push(format!(
            "eligible zones: {}; maxSkew {skew}: after {skew} in one zone the next has to go to another",
            wording::listed(&zones.into_iter().collect::<Vec<_>>())
        )),
        None => finding
            .evidence
            .push("no nodes in the inputs: true where the cluster has more than one zone".to_owned()),
    }
    finding.advice.push(
        "Remove the constraint: it spreads and never co-locates. Pin the pods to one zone, or use required pod affinity."
            .to_owned(),
    );
    Some(finding)
}

fn apart(
    world: &World,
    gang: &Gang<'_>,
    parts: &[Part<'_>],
    at: usize,
    term: &Value,
) -> Option<CheckFinding> {
    let part = parts.get(at)?;
    let matched = selected(gang, parts, at, term);
    let others: usize = matched.iter().filter_map(|at| parts.get(*at)).map(|part| part.count).sum();
    let itself = usize::from(matched.contains(&at));
    if others.saturating_sub(itself) == 0 {
        return None;
    }
    let called = part.called(world);
    let summary =
        format!("required anti-affinity by zone keeps the {called} away from {others} pods of their own job");
    let mut finding = super::finding(world, gang, part, Rule::ZoneSplitForced, Severity::Warning, summary);
    finding.advice.push(
        "Use the node's name (kubernetes.io/hostname) as topologyKey to keep pods off each other's nodes."
            .to_owned(),
    );
    Some(finding)
}

/// JobSet keeps each of its Jobs in a domain of its own: several Jobs are torn apart.
fn exclusive(world: &World, gang: &Gang<'_>, parts: &[Part<'_>]) -> Option<CheckFinding> {
    let part = parts.iter().find(|part| {
        let annotations = [&part.source.annotations, &part.source.above];
        annotations.iter().any(|a| a.get(JOBSET_EXCLUSIVE).is_some_and(|key| is_zone_key(key)))
    })?;
    let jobs = child_jobs(gang, None);
    if jobs < 2 {
        return None;
    }
    let summary = format!(
        "exclusive-topology by zone puts each of the {jobs} Jobs of this JobSet into a zone of its own"
    );
    let mut finding = super::finding(world, gang, part, Rule::ZoneSplitForced, Severity::Warning, summary);
    finding
        .evidence
        .push("its affinity is per child Job, with anti-affinity against all other Jobs' keys".to_owned());
    finding.advice.push(
        "Remove the annotation and pin all replicated jobs to one zone (nodeSelector topology.kubernetes.io/zone), or use \
         Kueue's podset-required-topology with one podset-group-name."
            .to_owned(),
    );
    Some(finding)
}

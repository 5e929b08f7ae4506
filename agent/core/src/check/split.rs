//! May the scheduler put the members of a job into different zones. Enters: a gang and where its templates may land;
//! leaves: findings. Must not know policies.

mod bonds;
mod force;

use std::collections::{BTreeMap, BTreeSet};

use super::gangs::{Gang, Source};
use super::placement::Places;
use super::report::{CheckFinding, Rule, Severity};
use super::wording;
use super::world::World;
use crate::membership::Role;

/// A template of the gang, with what is known of it.
struct Part<'g> {
    source: &'g Source,
    places: &'g Places,
    count: usize,
    role: Option<Role>,
}

impl Part<'_> {
    fn called(&self, world: &World) -> String {
        wording::pods(world, self.source, self.role)
    }
}

pub(super) fn findings(
    world: &World,
    gang: &Gang<'_>,
    places: &BTreeMap<usize, Places>,
) -> Vec<CheckFinding> {
    let parts = gang.sources().into_iter().filter_map(|(at, (count, role))| {
        Some(Part { source: gang.source(at)?, places: places.get(&at)?, count, role })
    });
    let parts: Vec<Part<'_>> = parts.collect();
    let mut findings: Vec<CheckFinding> =
        parts.iter().filter_map(|part| unschedulable(world, gang, part)).collect();
    let forced = force::findings(world, gang, &parts);
    let is_forced = forced.iter().any(|finding| finding.rule == Rule::ZoneSplitForced);
    findings.extend(forced);
    let together = bonds::together(world, gang, &parts);
    if !is_forced && !together {
        findings.extend(split(world, gang, &parts));
    }
    findings
}

fn finding(
    world: &World,
    gang: &Gang<'_>,
    part: &Part<'_>,
    rule: Rule,
    severity: Severity,
    text: String,
) -> CheckFinding {
    CheckFinding::new(rule, severity, Some(gang.name.clone()), world.object_at(part.source.object), text)
}

fn unschedulable(world: &World, gang: &Gang<'_>, part: &Part<'_>) -> Option<CheckFinding> {
    if part.places.nodes != Some(0) {
        return None;
    }
    let summary = format!("no known node would take the {}", part.called(world));
    let mut finding = finding(world, gang, part, Rule::Unschedulable, Severity::Warning, summary);
    finding.evidence = kept_off(part);
    finding.advice.push(
        "Pods without a node wait, and the whole job with them; an autoscaler may still add one.".to_owned(),
    );
    Some(finding)
}

fn kept_off(part: &Part<'_>) -> Vec<String> {
    part.places.kept_off.iter().map(|(zone, why)| format!("{zone}: {why}")).collect()
}

fn split(world: &World, gang: &Gang<'_>, parts: &[Part<'_>]) -> Option<CheckFinding> {
    let first = parts.first()?;
    if let Some(why) = bonds::unknowable(world, parts) {
        let summary =
            format!("whether the {} members land in one zone cannot be known: {why}", gang.job.members.len());
        let mut finding = finding(world, gang, first, Rule::PlacementUnknown, Severity::Note, summary);
        if world.nodes.is_empty() {
            finding.advice.push("Add the nodes: kubectl get nodes -o yaml".to_owned());
        }
        return Some(finding);
    }
    let known: Vec<&BTreeSet<crate::facts::Zone>> = parts
        .iter()
        .filter_map(|part| part.places.zones.as_ref())
        .filter(|zones| !zones.is_empty())
        .collect();
    let all: BTreeSet<&crate::facts::Zone> = known.iter().copied().flatten().collect();
    if all.len() < 2 {
        return None;
    }
    let apart = known.iter().enumerate().any(|(n, a)| known.iter().skip(n + 1).any(|b| a.is_disjoint(b)));
    let names: Vec<String> =
        all.iter().map(|zone| zone.name.clone()).collect::<BTreeSet<_>>().into_iter().collect();
    let summary = if apart {
        format!(
            "members of one job land in different zones ({}): no zone takes them all",
            wording::listed(&names)
        )
    } else {
        format!("the scheduler may put members of one job into different zones ({})", wording::listed(&names))
    };
    // The template that could be moved: the one with the most choice, coordinators first.
    let moved = parts.iter().max_by_key(|part| {
        let choice = part.places.zones.as_ref().map_or(0, BTreeSet::len);
        (part.role == Some(Role::Coordinator), choice)
    })?;
    let mut finding = finding(world, gang, moved, Rule::ZoneSplit, Severity::Warning, summary);
    for part in parts {
        let zones = part.places.zone_names().unwrap_or_default();
        let where_to = if zones.is_empty() { "nowhere".to_owned() } else { zones.join(" or ") };
        finding.evidence.push(format!("{} pods, {}: {where_to}", part.count, part.called(world)));
        finding.evidence.extend(kept_off(part).into_iter().map(|line| format!("  not {line}")));
    }
    finding.advice.push(advice(parts));
    Some(finding)
}

/// The zone that takes the most demanding template, if there is just one.
fn advice(parts: &[Part<'_>]) -> String {
    let anchored = parts
        .iter()
        .filter_map(|part| Some((part.count, part.places.only()?)))
        .max_by_key(|(count, _)| *count);
    match anchored {
        Some((_, zone)) => format!(
            "Pin all templates to {}: nodeSelector topology.kubernetes.io/zone: {}, with tolerations for the taints of its \
             nodes. A zone topologySpreadConstraint does not co-locate.",
            zone.name, zone.name
        ),
        None => "Pin all templates to one zone (nodeSelector topology.kubernetes.io/zone), or give all of them required pod \
                 affinity to the job's label with topologyKey topology.kubernetes.io/zone. A zone \
                 topologySpreadConstraint does not co-locate."
            .to_owned(),
    }
}

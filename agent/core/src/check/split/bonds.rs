//! What keeps the members of a job in one zone. Enters: the templates; leaves: whether they end up together. Must not
//! know what tears them apart.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Part;
use crate::check::gangs::Gang;
use crate::check::placement::within_zone;
use crate::check::world::World;
use crate::facts::Pod;
use crate::object::Object;
use crate::workload::term_selects;

const KUEUE_REQUIRED: &str = "kueue.x-k8s.io/podset-required-topology";
const KUEUE_GROUP: &str = "kueue.x-k8s.io/podset-group-name";
pub(super) const JOBSET_EXCLUSIVE: &str = "alpha.jobset.sigs.k8s.io/exclusive-topology";
const LWS_EXCLUSIVE: &str = "leaderworkerset.sigs.k8s.io/exclusive-topology";

/// Parts that share a zone, as far as is known.
struct Bonds {
    /// Whether all pods of a part are in one zone.
    whole: Vec<bool>,
    /// Parts with the same number are in the same zone, if they are whole.
    zone: Vec<usize>,
}

impl Bonds {
    fn join(&mut self, a: usize, b: usize) {
        let (Some(&from), Some(&to)) = (self.zone.get(a), self.zone.get(b)) else { return };
        for number in &mut self.zone {
            if *number == from {
                *number = to;
            }
        }
    }

    fn make_whole(&mut self, part: usize) {
        if let Some(whole) = self.whole.get_mut(part) {
            *whole = true;
        }
    }

    fn is_one(&self, parts: &BTreeSet<usize>) -> bool {
        let zones: BTreeSet<Option<&usize>> = parts.iter().map(|part| self.zone.get(*part)).collect();
        zones.len() <= 1 && parts.iter().all(|part| self.whole.get(*part).copied().unwrap_or(false))
    }
}

/// Whether all members end up in one zone, wherever that is.
pub(super) fn together(world: &World, gang: &Gang<'_>, parts: &[Part<'_>]) -> bool {
    let all: BTreeSet<usize> = (0..parts.len()).collect();
    let mut bonds = Bonds { whole: vec![false; parts.len()], zone: (0..parts.len()).collect() };
    for (at, part) in parts.iter().enumerate() {
        if part.count == 1 || part.places.only().is_some() || annotated_whole(world, gang, part) {
            bonds.make_whole(at);
        }
        for (other, before) in parts.iter().enumerate().take(at) {
            let same_zone = part.places.only().is_some_and(|zone| before.places.only() == Some(zone));
            if same_zone || grouped(world, part, before) {
                bonds.join(at, other);
            }
        }
    }
    // LeaderWorkerSet keeps leader and workers of a group together.
    let exclusive = |part: &Part<'_>| told(part, LWS_EXCLUSIVE).is_some_and(|key| within_zone(world, key));
    if !parts.is_empty() && parts.iter().all(exclusive) {
        return true;
    }
    let terms = affinities(world, gang, parts);
    for _ in 0..=parts.len() {
        for (part, selected) in &terms {
            // Everyone selected wants to be with everyone selected: the first one decides for all.
            let mutual = selected.contains(part)
                && selected
                    .iter()
                    .all(|other| terms.iter().any(|(p, s)| p == other && s.is_superset(selected)));
            if mutual {
                for other in selected {
                    bonds.make_whole(*other);
                    bonds.join(*part, *other);
                }
            } else if bonds.is_one(selected) {
                bonds.make_whole(*part);
                if let Some(other) = selected.first() {
                    bonds.join(*part, *other);
                }
            }
        }
    }
    bonds.is_one(&all)
}

/// Why it cannot be known where the parts land, if so.
pub(super) fn unknowable(world: &World, parts: &[Part<'_>]) -> Option<String> {
    let volcano = parts.iter().any(|part| {
        let object = world.objects.get(part.source.object).map(Object::value);
        let topology = object.and_then(|object| object.pointer("/spec/networkTopology"));
        topology.is_some_and(|topology| topology.get("mode").and_then(Value::as_str) != Some("soft"))
    });
    if volcano {
        return Some(
            "Volcano's networkTopology keeps them in one HyperNode, and its zone is not known".to_owned(),
        );
    }
    if world.nodes.is_empty() {
        let open = parts.iter().any(|part| part.places.zones.is_none());
        return open.then(|| "no nodes in the inputs".to_owned());
    }
    if parts.iter().any(|part| part.places.claims_devices) {
        return Some(
            "the pods claim devices (resourceClaims), and which nodes have them is not known".to_owned(),
        );
    }
    let unzoned = parts.iter().any(|part| part.places.zones.is_none());
    unzoned.then(|| "some nodes that would take them do not tell their zone".to_owned())
}

fn told<'p>(part: &'p Part<'_>, key: &str) -> Option<&'p str> {
    part.source.annotations.get(key).or_else(|| part.source.above.get(key)).map(String::as_str)
}

fn annotated_whole(world: &World, gang: &Gang<'_>, part: &Part<'_>) -> bool {
    let kueue = part.source.annotations.get(KUEUE_REQUIRED).is_some_and(|key| within_zone(world, key));
    let exclusive = told(part, JOBSET_EXCLUSIVE).is_some_and(|key| within_zone(world, key));
    kueue || (exclusive && child_jobs(gang, Some(&part.source.name)) == 1)
}

/// How many Jobs a JobSet makes (of one replicated job).
pub(super) fn child_jobs(gang: &Gang<'_>, replicated: Option<&str>) -> usize {
    let of = |pod: &Pod| {
        let name = pod.labels.get("jobset.sigs.k8s.io/replicatedjob-name");
        replicated.is_none_or(|replicated| name.is_some_and(|name| name == replicated))
    };
    let jobs = gang.members().into_iter().filter(|member| of(member.pod));
    let jobs: BTreeSet<&str> =
        jobs.filter_map(|m| m.pod.labels.get("batch.kubernetes.io/job-name")).map(String::as_str).collect();
    jobs.len()
}

/// Kueue places pod sets of one group into one domain.
fn grouped(world: &World, a: &Part<'_>, b: &Part<'_>) -> bool {
    let required = |part: &Part<'_>| part.source.annotations.get(KUEUE_REQUIRED).cloned();
    let group = |part: &Part<'_>| part.source.annotations.get(KUEUE_GROUP).cloned();
    let key = required(a).filter(|key| required(b).as_ref() == Some(key));
    group(a).is_some() && group(a) == group(b) && key.is_some_and(|key| within_zone(world, &key))
}

/// For each required pod affinity within a zone: whose it is, and whom of the gang it selects.
fn affinities(world: &World, gang: &Gang<'_>, parts: &[Part<'_>]) -> Vec<(usize, BTreeSet<usize>)> {
    let mut found = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        let terms =
            part.source.spec.pointer("/affinity/podAffinity/requiredDuringSchedulingIgnoredDuringExecution");
        for term in terms.and_then(Value::as_array).into_iter().flatten() {
            let key = term.get("topologyKey").and_then(Value::as_str).unwrap_or_default();
            if within_zone(world, key) {
                let selected = selected(gang, parts, at, term);
                if !selected.is_empty() {
                    found.push((at, selected));
                }
            }
        }
    }
    found
}

/// The parts that a term of this part selects.
pub(super) fn selected(gang: &Gang<'_>, parts: &[Part<'_>], own: usize, term: &Value) -> BTreeSet<usize> {
    let namespaces = term.get("namespaces").and_then(Value::as_array).filter(|list| !list.is_empty());
    let near = |pod: &Pod| match namespaces {
        Some(list) => list.iter().any(|name| name.as_str() == Some(pod.namespace.as_str())),
        None => true,
    };
    let members = gang.members();
    let of = |part: &Part<'_>| {
        let source = std::ptr::from_ref(part.source);
        members.iter().find(|m| gang.source(m.source).is_some_and(|s| std::ptr::eq(s, source))).map(|m| m.pod)
    };
    let Some(holder) = parts.get(own).and_then(of) else { return BTreeSet::new() };
    let matched = parts.iter().enumerate().filter(|(_, part)| {
        of(part).is_some_and(|pod| near(pod) && term_selects(term, &holder.labels, &pod.labels))
    });
    matched.map(|(at, _)| at).collect()
}

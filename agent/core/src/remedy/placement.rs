//! Bringing a job's pods into one zone. Enters: the templates of a job, the nodes; leaves: for the zones that can hold
//! all of them, best first, the affinities, tolerations and labels that put them there. The locked doors stay locked.
//! Must not know policies: whether the pods then reach each other is for the check to say.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::plan::{Need, Plan, Step, StepKind};
use super::relabel;
use super::slot::{Slot, Slots};
use super::spread;
use super::world::{World, taken_accelerators};
use crate::facts::{Node, REGION_LABEL, Taint, ZONE_LABEL, Zone};
use crate::workload::{Fit, fit, merge};

/// Zones that are tried, best first.
const MOST_ZONES: usize = 3;
/// Taints of one node that are looked at.
const MOST_TAINTS: usize = 8;
const LEGACY_ZONE_LABEL: &str = "failure-domain.beta.kubernetes.io/zone";

/// One plan a zone, best first.
pub(super) fn plans(world: &World<'_>) -> Vec<Plan> {
    if world.zones().len() < 2 {
        return Vec::new();
    }
    let slots = Slots::of(world);
    let mut ranked: Vec<_> = known_zones(world)
        .into_iter()
        .filter(|zone| holds_all(world, &slots, zone))
        .map(|zone| {
            let there = |pod: &&crate::facts::Pod| world.zone_of(pod).is_some_and(|own| same(own, zone));
            let here: Vec<_> = world.members.iter().filter(there).collect();
            let gpus = here.iter().filter(|pod| pod.gpus > 0).count();
            (Reverse(gpus), Reverse(here.len()), zone)
        })
        .collect();
    ranked.sort();
    ranked.into_iter().take(MOST_ZONES).filter_map(|(.., zone)| plan(world, slots.clone(), zone)).collect()
}

fn same(a: &Zone, b: &Zone) -> bool {
    a.name == b.name && a.region == b.region
}

fn known_zones<'w>(world: &World<'w>) -> Vec<&'w Zone> {
    let zones: BTreeMap<_, _> = world
        .situation
        .inventory
        .nodes()
        .values()
        .filter_map(|node| node.zone.as_ref())
        .map(|zone| ((&zone.name, &zone.region), zone))
        .collect();
    zones.into_values().collect()
}

fn nodes_of<'w>(world: &World<'w>, zone: &'w Zone) -> impl Iterator<Item = &'w Node> + use<'w> {
    let nodes = world.situation.inventory.nodes().values();
    nodes.filter(move |node| node.zone.as_ref().is_some_and(|own| same(own, zone)))
}

/// Whether a zone has nodes for every template, and accelerators for every pod that asks for them. What runs there may
/// stay where it is.
fn holds_all(world: &World<'_>, slots: &Slots, zone: &Zone) -> bool {
    let mut wanting = Vec::new();
    for slot in &slots.slots {
        let spec = merge(&slot.spec, &pin(world, &slot.spec, zone).unwrap_or_else(|| json!({})));
        let nodes: Vec<&Node> =
            nodes_of(world, zone).filter(|node| missing_tolerations(&spec, node).is_some()).collect();
        for pod in slot.members.iter().filter_map(|member| world.members.get(*member)) {
            let own = world.node_of(pod).filter(|node| node.zone.as_ref().is_some_and(|own| same(own, zone)));
            let nodes: Vec<&Node> = own.into_iter().chain(nodes.iter().copied()).collect();
            if nodes.is_empty() {
                return false;
            }
            if pod.gpus > 0 {
                wanting.push((pod.gpus, nodes));
            }
        }
    }
    has_accelerators(world, wanting)
}

/// Gives each pod the accelerators of the first node that has enough left.
fn has_accelerators(world: &World<'_>, mut wanting: Vec<(u32, Vec<&Node>)>) -> bool {
    let taken = taken_accelerators(&world.situation);
    let mut free: BTreeMap<&str, u32> = BTreeMap::new();
    wanting.sort_by_key(|(gpus, nodes)| (Reverse(*gpus), nodes.len()));
    wanting.iter().all(|(gpus, nodes)| {
        nodes.iter().any(|node| {
            // A node that does not tell what it has may have anything.
            if node.allocatable.is_empty() {
                return true;
            }
            let used = taken.get(&node.name).copied().unwrap_or(0);
            let left = free.entry(node.name.as_str()).or_insert_with(|| node.gpus.saturating_sub(used));
            let enough = *left >= *gpus;
            if enough {
                *left -= gpus;
            }
            enough
        })
    })
}

fn plan(world: &World<'_>, mut slots: Slots, zone: &Zone) -> Option<Plan> {
    let elsewhere = |member: &usize| {
        world.members.get(*member).is_some_and(|pod| world.zone_of(pod).is_none_or(|own| !same(own, zone)))
    };
    if slots.orphans.iter().any(elsewhere) {
        return None;
    }
    let moved: BTreeSet<usize> =
        numbered(&slots).filter(|(_, slot)| slot.members.iter().any(elsewhere)).map(|(n, _)| n).collect();
    let touched: BTreeSet<usize> =
        moved.iter().filter_map(|slot| Some(slots.slots.get(*slot)?.target)).collect();
    // What is submitted again anyway could end up elsewhere this time.
    let pinned = |(number, slot): &(usize, &Slot)| {
        moved.contains(number) || (touched.contains(&slot.target) && !is_confined(world, &slot.spec, zone))
    };
    let chosen: Vec<usize> = numbered(&slots).filter(pinned).map(|(number, _)| number).collect();
    let mut steps = Vec::new();
    let spreads: Vec<(usize, Value)> =
        spread::changes(&slots).into_iter().filter(|(slot, _)| chosen.contains(slot)).collect();
    steps.extend(slots.edit(StepKind::RemoveZoneSpread, &spreads)?);

    let pins = changes(&slots, &chosen, |slot| Some(json!({"spec": pin(world, &slot.spec, zone)?})));
    let pin_steps = slots.edit(StepKind::CoLocate, &pins)?;
    if pin_steps.is_empty() {
        return None;
    }
    steps.extend(pin_steps);

    let tolerations = tolerations(world, &slots, &chosen, zone);
    let tolerated: Vec<Step> = slots.edit(StepKind::Tolerate, &tolerations)?;
    let all: Vec<usize> = (0..slots.slots.len()).collect();
    let labels = changes(&slots, &all, |slot| relabel::to_zone(world, &slots, slot, zone.name.as_str()));
    let relabelled = slots.edit(StepKind::Relabel, &labels)?;
    let changed: BTreeSet<usize> =
        chosen.iter().copied().chain(labels.iter().map(|(slot, _)| *slot)).collect();
    let changed: Vec<usize> = changed.into_iter().collect();
    let needs: Vec<Need> = slots.needs(&changed);
    let summary = summary(&slots, &moved, zone, !tolerated.is_empty(), !relabelled.is_empty());
    steps.extend(tolerated);
    steps.extend(relabelled);
    Some(Plan { summary, needs, steps })
}

fn numbered(slots: &Slots) -> impl Iterator<Item = (usize, &Slot)> {
    slots.slots.iter().enumerate()
}

fn changes(slots: &Slots, chosen: &[usize], change: impl Fn(&Slot) -> Option<Value>) -> Vec<(usize, Value)> {
    chosen.iter().filter_map(|number| Some((*number, change(slots.slots.get(*number)?)?))).collect()
}

/// Whether the scheduler can only choose nodes of this zone.
fn is_confined(world: &World<'_>, spec: &Value, zone: &Zone) -> bool {
    let takes = |node: &&Node| matches!(fit(spec, node), Fit::Fits);
    let mut nodes = world.situation.inventory.nodes().values().filter(takes).peekable();
    nodes.peek().is_some() && nodes.all(|node| node.zone.as_ref().is_some_and(|own| same(own, zone)))
}

/// The change of a pod's `spec` after which only nodes of this zone will do; `None` when that is so already. A merge
/// patch replaces lists, so existing terms are written again, each with the zone.
fn pin(world: &World<'_>, spec: &Value, zone: &Zone) -> Option<Value> {
    let ambiguous =
        known_zones(world).iter().any(|other| other.name == zone.name && other.region != zone.region);
    let mut wanted = vec![(zone_key(world, zone), zone.name.as_str())];
    wanted.extend(zone.region.as_deref().filter(|_| ambiguous).map(|region| (REGION_LABEL, region)));
    let mut change = Map::new();
    let old = spec.get("nodeSelector").and_then(Value::as_object);
    let mut selector = Map::new();
    let mut selected = BTreeSet::new();
    for (key, value) in &wanted {
        match old.and_then(|old| old.get(*key)).and_then(Value::as_str) {
            Some(own) if own == *value => drop(selected.insert(*key)),
            Some(_) => {
                selector.insert((*key).to_owned(), json!(value));
                selected.insert(*key);
            }
            None => {}
        }
    }
    let legacy = old.and_then(|old| old.get(LEGACY_ZONE_LABEL)).and_then(Value::as_str);
    if legacy.is_some_and(|own| own != zone.name) {
        selector.insert(LEGACY_ZONE_LABEL.to_owned(), Value::Null);
    }
    if !selector.is_empty() {
        change.insert("nodeSelector".to_owned(), Value::Object(selector));
    }
    let terms = terms(spec, &wanted, &selected);
    if let Some(terms) = terms {
        let required =
            json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
        change.insert("affinity".to_owned(), json!({"nodeAffinity": required}));
    }
    (!change.is_empty()).then_some(Value::Object(change))
}

/// The label that the zone's nodes carry.
fn zone_key(world: &World<'_>, zone: &Zone) -> &'static str {
    let modern = nodes_of(world, zone).any(|node| node.labels.contains_key(ZONE_LABEL));
    if modern { ZONE_LABEL } else { LEGACY_ZONE_LABEL }
}

/// The required node affinity with the wanted labels in every term; `None` when nothing has to change.
fn terms(spec: &Value, wanted: &[(&'static str, &str)], selected: &BTreeSet<&str>) -> Option<Vec<Value>> {
    const REQUIRED: &str =
        "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let old = spec.pointer(REQUIRED).and_then(Value::as_array).cloned().unwrap_or_default();
    let empty = old.is_empty();
    let start = if empty { vec![json!({})] } else { old.clone() };
    let new: Vec<Value> = start
        .into_iter()
        .map(|term| {
            let mut term = term.as_object().cloned().unwrap_or_default();
            let mut expressions =
                term.get("matchExpressions").and_then(Value::as_array).cloned().unwrap_or_default();
            expressions.retain(|expression| {
                let key = expression.get("key").and_then(Value::as_str);
                !wanted.iter().any(|(wanted, _)| Some(*wanted) == key) && key != Some(LEGACY_ZONE_LABEL)
            });
            for (key, value) in wanted.iter().filter(|(key, _)| !selected.contains(key)) {
                expressions.push(json!({"key": key, "operator": "In", "values": [value]}));
            }
            if !expressions.is_empty() {
                term.insert("matchExpressions".to_owned(), Value::Array(expressions));
            } else {
                term.remove("matchExpressions");
            }
            Value::Object(term)
        })
        // An empty term would match no node.
        .filter(|term| term.as_object().is_some_and(|term| !term.is_empty()))
        .collect();
    (new != old && !new.is_empty()).then_some(new)
}

/// The fewest tolerations with which the pods of the chosen templates find room among the zone's nodes.
fn tolerations(world: &World<'_>, slots: &Slots, chosen: &[usize], zone: &Zone) -> Vec<(usize, Value)> {
    let mut found = Vec::new();
    for easiest in 1..=MOST_TAINTS {
        let more = changes(slots, chosen, |slot| tolerate(world, slot, zone, easiest));
        let enough = has_room(world, slots, chosen, &more);
        let all = easiest > 1 && more == found;
        found = more;
        if enough || all {
            break;
        }
    }
    found
}

/// The tolerations that so many of the easiest kinds of node in the zone ask for beyond those of the template.
fn tolerate(world: &World<'_>, slot: &Slot, zone: &Zone, easiest: usize) -> Option<Value> {
    let mut kinds: Vec<Vec<Taint>> =
        nodes_of(world, zone).filter_map(|node| missing_tolerations(&slot.spec, node)).collect();
    let names = |taints: &Vec<Taint>| -> Vec<(String, String, String)> {
        taints.iter().map(|t| (t.key.clone(), t.value.clone(), t.effect.clone())).collect()
    };
    kinds.sort_by_cached_key(|taints| (taints.len(), names(taints)));
    kinds.dedup();
    let mut missing: Vec<Taint> = Vec::new();
    for taint in kinds.into_iter().take(easiest).flatten() {
        if !missing.contains(&taint) {
            missing.push(taint);
        }
    }
    if missing.is_empty() {
        return None;
    }
    let mut list = slot.spec.get("tolerations").and_then(Value::as_array).cloned().unwrap_or_default();
    list.extend(missing.iter().map(toleration));
    Some(json!({"spec": {"tolerations": list}}))
}

/// Whether all pods find a node, those of chosen templates by the template with its change, the others where they are.
fn has_room(world: &World<'_>, slots: &Slots, chosen: &[usize], changed: &[(usize, Value)]) -> bool {
    let spec = |number: usize, slot: &Slot| {
        let change = changed.iter().find(|(of, _)| *of == number).and_then(|(_, change)| change.get("spec"));
        change.map_or_else(|| slot.spec.clone(), |change| merge(&slot.spec, change))
    };
    let templates = numbered(slots)
        .map(|(number, slot)| (spec(number, slot), slot.members.as_slice(), !chosen.contains(&number)));
    finds_nodes(world, templates)
}

/// The taints a pod would have to tolerate for this node to take it; `None` when it would not even then.
fn missing_tolerations(spec: &Value, node: &Node) -> Option<Vec<Taint>> {
    let mut spec = spec.clone();
    let mut missing: Vec<Taint> = Vec::new();
    for _ in 0..=MOST_TAINTS {
        match fit(&spec, node) {
            Fit::Fits => return Some(missing),
            // The node itself is unwell, or kept free by its operators.
            Fit::Tainted(taint)
                if !taint.key.starts_with("node.kubernetes.io/") && !missing.contains(&taint) =>
            {
                let mut list = spec.get("tolerations").and_then(Value::as_array).cloned().unwrap_or_default();
                list.push(toleration(&taint));
                spec.as_object_mut()?.insert("tolerations".to_owned(), Value::Array(list));
                missing.push(taint);
            }
            _ => return None,
        }
    }
    None
}

fn toleration(taint: &Taint) -> Value {
    match taint.value.as_str() {
        "" => json!({"key": taint.key, "operator": "Exists", "effect": taint.effect}),
        value => json!({"key": taint.key, "operator": "Equal", "value": value, "effect": taint.effect}),
    }
}

/// Whether the pods of every changed template would find a node, as the template is after all changes; the others stay
/// on theirs.
pub(super) fn is_schedulable(after: &World<'_>, before: &Slots, slots: &Slots) -> bool {
    let templates = slots.slots.iter().map(|slot| {
        let old = before.slots.iter().find(|old| old.members == slot.members);
        (slot.spec.clone(), slot.members.as_slice(), old.is_some_and(|old| old.spec == slot.spec))
    });
    finds_nodes(after, templates)
}

/// Whether the pods of all templates find a node: one that takes such a `spec`, or their own where the template stays as
/// it is.
fn finds_nodes<'s>(world: &World<'_>, templates: impl Iterator<Item = (Value, &'s [usize], bool)>) -> bool {
    let mut wanting = Vec::new();
    for (spec, members, stays) in templates {
        let all = world.situation.inventory.nodes().values();
        let nodes: Vec<&Node> = all.filter(|node| fit(&spec, node) == Fit::Fits).collect();
        for pod in members.iter().filter_map(|member| world.members.get(*member)) {
            let own = world.node_of(pod).filter(|_| stays);
            let nodes: Vec<&Node> = own.map_or_else(|| nodes.clone(), |own| vec![own]);
            if nodes.is_empty() {
                return false;
            }
            if pod.gpus > 0 {
                wanting.push((pod.gpus, nodes));
            }
        }
    }
    has_accelerators(world, wanting)
}

/// Whether something besides nodes keeps the pods of a template apart, so that nothing sure can be said: pod
/// (anti-)affinity that is required.
pub(super) fn has_pod_affinity(slots: &Slots) -> bool {
    let required = |slot: &&Slot| {
        ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
            let pointer = format!("/affinity/{kind}/requiredDuringSchedulingIgnoredDuringExecution");
            slot.spec.pointer(&pointer).and_then(Value::as_array).is_some_and(|terms| !terms.is_empty())
        })
    };
    slots.slots.iter().filter(|slot| !slot.members.is_empty()).any(|slot| required(&slot))
}

fn summary(slots: &Slots, moved: &BTreeSet<usize>, zone: &Zone, tolerates: bool, relabels: bool) -> String {
    let what = moved.iter().filter_map(|number| {
        let slot = slots.slots.get(*number)?;
        let object = slots.objects.get(slot.target)?;
        let part = if slot.name.is_empty() { String::new() } else { format!(" ({})", slot.name) };
        Some(format!("{} {}{part}", object.kind(), object.name()))
    });
    let what: Vec<String> = what.take(4).collect();
    let mut also = Vec::new();
    also.extend(tolerates.then_some("tolerate its nodes' taints"));
    also.extend(relabels.then_some("label the pods with it"));
    let also = if also.is_empty() { String::new() } else { format!(", {}", also.join(" and ")) };
    format!(
        "run the whole job in {}: move the pods of {} there{also}; policies stay as they are",
        zone.name,
        what.join(" and ")
    )
}

//! Labels that claim a zone the pods are not in. Enters: the templates of a job; leaves: the same with true labels. Must
//! not know policies: whether a true label opens or locks a door is for the check to say.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::plan::{Plan, StepKind};
use super::slot::{Slot, Slots};
use super::world::World;
use super::zone_claim::false_claims;
use crate::object::string_map;

/// Labels that say where the pods run, for templates whose pods all run in one zone.
pub(super) fn plan(world: &World<'_>) -> Option<Plan> {
    let mut slots = Slots::of(world);
    let mut changes = Vec::new();
    let mut told = BTreeSet::new();
    for (number, slot) in slots.slots.iter().enumerate() {
        let zones: BTreeSet<Option<&str>> = slot
            .members
            .iter()
            .filter_map(|member| world.members.get(*member))
            .map(|pod| world.zone_of(pod).map(|zone| zone.name.as_str()))
            .collect();
        let (1, Some(Some(zone))) = (zones.len(), zones.first()) else { continue };
        if let Some(change) = to_zone(world, &slots, slot, zone) {
            told.extend(keys(world, slot, zone).into_iter().map(|key| format!("{key}={zone}")));
            changes.push((number, change));
        }
    }
    let changed: Vec<usize> = changes.iter().map(|(slot, _)| *slot).collect();
    let steps = slots.edit(StepKind::Relabel, &changes)?;
    let labels = told.into_iter().collect::<Vec<_>>().join(", ");
    let summary = format!("correct the label to where the pods run: {labels}");
    (!steps.is_empty()).then(|| Plan { summary, needs: slots.needs(&changed), steps })
}

/// The change that makes a template's zone labels say `zone`; `None` where they do, or where one is fixed.
pub(super) fn to_zone(world: &World<'_>, slots: &Slots, slot: &Slot, zone: &str) -> Option<Value> {
    let keys = keys(world, slot, zone);
    let selector = slots
        .objects
        .get(slot.target)
        .map(|object| string_map(object.value().pointer("/spec/selector/matchLabels")));
    // What a controller finds its pods by cannot be changed (Kubernetes API, apps/v1 `selector`).
    if keys.is_empty() || selector.is_some_and(|selector| keys.iter().any(|key| selector.contains_key(*key)))
    {
        return None;
    }
    let labels: Map<String, Value> = keys.into_iter().map(|key| (key.to_owned(), json!(zone))).collect();
    Some(json!({"metadata": {"labels": labels}}))
}

/// The keys of labels that claim another zone, or that hold the name of the one the pods are in now. What the pods carry
/// counts like what the template says: somebody else put it there, and the template's word comes first.
fn keys<'s>(world: &'s World<'_>, slot: &'s Slot, zone: &'s str) -> BTreeSet<&'s str> {
    let pods: Vec<_> = slot.members.iter().filter_map(|member| world.members.get(*member)).collect();
    let now: BTreeSet<&str> =
        pods.iter().filter_map(|pod| world.zone_of(pod)).map(|zone| zone.name.as_str()).collect();
    let mut keys = BTreeSet::new();
    for labels in std::iter::once(&slot.labels).chain(pods.iter().map(|pod| &pod.labels)) {
        keys.extend(false_claims(world.situation.inventory, labels, zone).map(|(key, _)| key));
        let named = labels.iter().filter(|(_, value)| value.as_str() != zone && now.contains(value.as_str()));
        keys.extend(named.map(|(key, _)| key.as_str()));
    }
    // Once the template says so, its pods will.
    keys.retain(|key| slot.labels.get(*key).is_none_or(|value| value != zone));
    keys
}

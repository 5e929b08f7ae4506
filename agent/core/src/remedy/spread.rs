//! Spread constraints that split a gang over zones. They never bring pods together: with several zones they force the
//! pods apart (Kubernetes, `TopologySpreadConstraint`: `maxSkew` is held against the emptiest zone), so the only remedy
//! is to take them out. Must not know policies.

use serde_json::{Value, json};

use super::plan::{Plan, StepKind};
use super::slot::{Slot, Slots};
use super::world::World;
use crate::facts::ZONE_LABEL;
use crate::object::{Labels, string_map};

/// The templates whose constraint splits their own pods, without it.
pub(super) fn changes(slots: &Slots) -> Vec<(usize, Value)> {
    slots.slots.iter().enumerate().filter_map(|(number, slot)| Some((number, without(slot)?))).collect()
}

/// Taking the constraints out, and nothing else.
pub(super) fn plan(world: &World<'_>) -> Option<Plan> {
    if world.zones().len() < 2 {
        return None;
    }
    let mut slots = Slots::of(world);
    let changes = changes(&slots);
    let changed: Vec<usize> = changes.iter().map(|(slot, _)| *slot).collect();
    let steps = slots.edit(StepKind::RemoveZoneSpread, &changes)?;
    let summary =
        "take out the topologySpreadConstraints that force the pods of the job into different zones"
            .to_owned();
    (!steps.is_empty()).then(|| Plan { summary, needs: slots.needs(&changed), steps })
}

fn without(slot: &Slot) -> Option<Value> {
    let constraints = slot.spec.get("topologySpreadConstraints")?.as_array()?;
    let kept: Vec<&Value> =
        constraints.iter().filter(|constraint| !splits(constraint, &slot.labels)).collect();
    if kept.len() == constraints.len() {
        return None;
    }
    let list = if kept.is_empty() { Value::Null } else { json!(kept) };
    Some(json!({"spec": {"topologySpreadConstraints": list}}))
}

/// Labels that controllers add are not on the template: a key that it does not have may still select the pods.
fn splits(constraint: &Value, labels: &Labels) -> bool {
    let text = |field: &str| constraint.get(field).and_then(Value::as_str);
    let hard = text("whenUnsatisfiable").is_none_or(|what| what == "DoNotSchedule");
    let selector = string_map(constraint.pointer("/labelSelector/matchLabels"));
    let selects = selector.iter().all(|(key, value)| labels.get(key).is_none_or(|own| own == value));
    text("topologyKey") == Some(ZONE_LABEL) && hard && selects && constraint.get("labelSelector").is_some()
}

//! Patches of the objects that users edit. Enters: an object and what its pod templates should become; leaves: one
//! JSON merge patch (RFC 7386) of that object. Must not know why.

use serde_json::{Map, Value, json};

use super::kinds::{Layout, layout};
use super::runtime;
use super::template::{PathStep, walk};
use crate::object::Object;

/// `target` with a JSON merge patch applied (RFC 7386, section 2).
#[must_use]
pub fn merge(target: &Value, patch: &Value) -> Value {
    let Value::Object(patch) = patch else { return patch.clone() };
    let mut merged = target.as_object().cloned().unwrap_or_default();
    for (key, change) in patch {
        if change.is_null() {
            merged.remove(key);
        } else {
            let merged_field = merge(merged.get(key).unwrap_or(&Value::Null), change);
            merged.insert(key.clone(), merged_field);
        }
    }
    Value::Object(merged)
}

/// One merge patch of `object` that merges each change (`{"metadata": …, "spec": …}` of pods) into the pod template at
/// its path. A merge patch replaces lists whole, so the lists on the way are repeated with everything in them.
///
/// A TrainJob has no templates; the path of a change is then the single field named like the replicated job of its
/// runtime, and the change becomes an override in the form its version knows. `None` when a path leads nowhere, or
/// the object has no place for a change.
#[must_use]
pub fn patch_templates(object: &Object, changes: &[(&[PathStep], Value)]) -> Option<Value> {
    if runtime::is_train_job(object) {
        return runtime::override_templates(object, changes);
    }
    let cliques = layout(object)? == Layout::Cliques;
    let written: Vec<(&[PathStep], Value)> = changes
        .iter()
        .map(|(path, change)| (*path, if cliques { of_clique(change) } else { change.clone() }))
        .collect();
    let mut changed = object.value().clone();
    for (path, change) in &written {
        let place = walk_mut(&mut changed, path)?;
        *place = merge(place, change);
    }
    let mut patch = Value::Object(Map::new());
    for (path, change) in &written {
        patch = compose(patch, nested(&changed, path, change)?);
    }
    Some(patch)
}

/// A clique has the labels beside its spec, and the pod's spec within.
fn of_clique(change: &Value) -> Value {
    let mut written = Map::new();
    for field in ["labels", "annotations"] {
        if let Some(value) = change.get("metadata").and_then(|metadata| metadata.get(field)) {
            written.insert(field.to_owned(), value.clone());
        }
    }
    if let Some(spec) = change.get("spec") {
        written.insert("spec".to_owned(), json!({ "podSpec": spec }));
    }
    Value::Object(written)
}

fn walk_mut<'v>(value: &'v mut Value, path: &[PathStep]) -> Option<&'v mut Value> {
    path.iter().try_fold(value, |value, step| match step {
        PathStep::Field(name) => value.get_mut(name),
        PathStep::Item(index) => value.get_mut(*index),
    })
}

/// The change as a patch of the whole object: up to the first list, which is written as it is after all changes.
fn nested(changed: &Value, path: &[PathStep], change: &Value) -> Option<Value> {
    let fields = path.iter().take_while(|step| matches!(step, PathStep::Field(_))).count();
    let (way, rest) = path.split_at(fields);
    let end = if rest.is_empty() { change.clone() } else { walk(changed, way)?.clone() };
    Some(way.iter().rev().fold(end, |inner, step| match step {
        PathStep::Field(name) => Value::Object(Map::from_iter([(name.clone(), inner)])),
        PathStep::Item(_) => inner,
    }))
}

/// The patch that does what `first` and then `second` do.
fn compose(first: Value, second: Value) -> Value {
    match (first, second) {
        (Value::Object(mut first), Value::Object(second)) => {
            for (key, change) in second {
                let before = first.remove(&key).unwrap_or(Value::Null);
                first.insert(key, compose(before, change));
            }
            Value::Object(first)
        }
        (_, second) => second,
    }
}

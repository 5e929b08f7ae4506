//! Where an object keeps its pod templates. Enters: an object; leaves: its [`Template`]s. Must not know pods.

use serde_json::Value;

use super::kinds::{Layout, Place, layout};
use crate::membership::Role;
use crate::object::{Labels, Object, string_map};

/// One step down a JSON tree.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PathStep {
    /// The field of a map.
    Field(String),
    /// The item of a list, from 0.
    Item(usize),
}

impl PathStep {
    /// The step to a field.
    #[must_use]
    pub fn field(name: &str) -> Self {
        Self::Field(name.to_owned())
    }

    pub(super) fn follow<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        match self {
            Self::Field(name) => value.get(name),
            Self::Item(index) => value.get(*index),
        }
    }
}

/// A pod template within an object.
#[derive(Clone, PartialEq, Debug)]
pub struct Template<'a> {
    /// What the object calls it: the replica type (`Master`), replicated job, task, worker group or clique; empty
    /// where there is only one.
    pub name: String,
    /// The way to the object with `metadata` and `spec` of the pods. For a Pod it is empty; for a clique of a
    /// PodCliqueSet it ends at the clique, which names both differently.
    pub path: Vec<PathStep>,
    /// How many pods are made of it.
    pub replicas: u32,
    /// What its pods do, as far as its name tells; the first worker of a job without a master still leads it.
    pub role: Option<Role>,
    /// The labels it gives to its pods; the controller adds its own.
    pub labels: Labels,
    /// The annotations it gives to its pods.
    pub annotations: Labels,
    /// The pod's `spec`.
    pub spec: &'a Value,
}

/// All pod templates of an object; none where there are none in the object itself. (A TrainJob's are in its
/// runtime: see [`super::with_runtime`].)
#[must_use]
pub fn templates(object: &Object) -> Vec<Template<'_>> {
    let Some(layout) = layout(object) else { return Vec::new() };
    layout.places(object).into_iter().filter_map(|place| read(object.value(), place, &layout)).collect()
}

fn read<'a>(object: &'a Value, place: Place, layout: &Layout) -> Option<Template<'a>> {
    let at = walk(object, &place.path)?;
    let clique = matches!(layout, Layout::Cliques);
    let spec = if clique { at.pointer("/spec/podSpec")? } else { at.get("spec")? };
    let metadata = if clique { Some(at) } else { at.get("metadata") };
    spec.is_object().then(|| Template {
        replicas: place.replicas,
        role: place.role,
        name: place.name,
        path: place.path,
        labels: string_map(metadata.and_then(|m| m.get("labels"))),
        annotations: string_map(metadata.and_then(|m| m.get("annotations"))),
        spec,
    })
}

/// The value at the end of a path.
pub(super) fn walk<'v>(value: &'v Value, path: &[PathStep]) -> Option<&'v Value> {
    path.iter().try_fold(value, |value, step| step.follow(value))
}

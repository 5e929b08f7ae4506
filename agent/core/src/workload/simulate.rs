//! The cluster as it would be. Enters: objects and [`Change`]s; leaves: the objects after them, with the existing pods of
//! changed workloads as they would come back. Must not know why something is changed.

mod place;
mod rewrite;

use std::collections::BTreeMap;

use serde_json::Value;

use super::kinds::layout;
use super::patch::merge;
use super::runtime::{is_train_job, with_runtime};
use super::template::templates;
use crate::facts::Pod;
use crate::membership::{Grouping, Jobs};
use crate::object::{Object, ObjectKey, OwnerRef};

/// Names an object for a change.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Target {
    /// The API group; empty for the core group.
    pub group: String,
    /// Kind, namespace and name.
    pub key: ObjectKey,
}

impl Target {
    /// What names this object.
    #[must_use]
    pub fn of(object: &Object) -> Self {
        Self { group: object.group().to_owned(), key: object.key() }
    }

    fn names(&self, object: &Object) -> bool {
        let key = &self.key;
        object.name() == key.name
            && object.kind() == key.kind
            && object.group() == self.group
            && object.namespace() == key.namespace.as_deref()
    }
}

/// A change of the cluster.
#[derive(Clone, PartialEq, Debug)]
pub enum Change {
    /// A JSON merge patch of an object.
    Merge {
        /// The object.
        target: Target,
        /// The patch.
        patch: Value,
    },
    /// A whole object, new or in place of the one with its name.
    Apply(Object),
    /// The object goes.
    Delete(Target),
}

/// Owners above one another; ends cycles.
const LONGEST_CHAIN: usize = 16;

/// The objects after all changes, in the same order, new ones at the end.
///
/// The existing pods of a changed workload (by owner UID, or by the labels that membership believes) are rewritten as
/// if the workload had been resubmitted: what changed between the old and the new template changes on the pod. A
/// pod whose node no longer takes it moves to one that does and has accelerators free, in the zone its required
/// pod affinity asks for; without such a node it has none. Targets that are not there change nothing.
#[must_use]
pub fn simulate(objects: &[Object], changes: &[Change]) -> Vec<Object> {
    let mut after: Vec<Option<Object>> = objects.iter().cloned().map(Some).collect();
    let mut changed: Vec<usize> = Vec::new();
    for change in changes {
        let target = match change {
            Change::Merge { target, .. } | Change::Delete(target) => target.clone(),
            Change::Apply(object) => Target::of(object),
        };
        let position = after.iter().position(|o| o.as_ref().is_some_and(|o| target.names(o)));
        let slot = position.and_then(|position| after.get_mut(position));
        match (change, slot) {
            (Change::Merge { patch, .. }, Some(slot)) => {
                let merged = slot.as_ref().map(|object| merge(object.value(), patch));
                *slot = merged.and_then(|value| Object::from_value(value).ok()).or(slot.take());
                changed.extend(position);
            }
            (Change::Apply(object), Some(slot)) => {
                // The cluster keeps the identity of what is applied onto.
                let uid = slot.as_ref().and_then(Object::uid).map(str::to_owned);
                *slot = Some(with_uid(object, uid));
                changed.extend(position);
            }
            (Change::Apply(object), None) => after.push(Some(object.clone())),
            (Change::Delete(_), Some(slot)) => *slot = None,
            (Change::Merge { .. } | Change::Delete(_), None) => {}
        }
    }
    changed.sort_unstable();
    changed.dedup();
    resubmit(objects, &mut after, &changed);
    after.into_iter().flatten().collect()
}

fn with_uid(object: &Object, uid: Option<String>) -> Object {
    let Some(uid) = uid else { return object.clone() };
    let value = merge(object.value(), &serde_json::json!({ "metadata": { "uid": uid } }));
    Object::from_value(value).unwrap_or_else(|_| object.clone())
}

/// Rewrites the pods of the workloads at these positions.
fn resubmit(before: &[Object], after: &mut [Option<Object>], changed: &[usize]) {
    let works = |object: &Object| layout(object).is_some() || is_train_job(object) || is_runtime(object);
    let workloads: Vec<usize> =
        changed.iter().copied().filter(|&at| before.get(at).is_some_and(works)).collect();
    if workloads.is_empty() {
        return;
    }
    let current: Vec<Object> = after.iter().flatten().cloned().collect();
    let owned = Owned::new(before);
    let mut rewritten = Vec::new();
    for &at in &workloads {
        let (Some(old), Some(new)) = (before.get(at), after.get(at).and_then(Option::as_ref)) else {
            continue;
        };
        if old.kind() == "Pod" {
            rewritten.push(at);
            continue;
        }
        for (old, new) in versions(old, new, before, &current) {
            let (old_templates, new_templates) = (templates(&old), templates(&new));
            for pod in owned.pods_of(&old) {
                let Some(slot) = after.get_mut(pod).and_then(Option::as_mut) else { continue };
                let old = rewrite::template_of(slot, &old_templates);
                let new = old.and_then(|old| new_templates.iter().find(|new| new.name == old.name));
                if let (Some(old), Some(new)) = (old, new) {
                    *slot = rewrite::rewritten(slot, old, new);
                    rewritten.push(pod);
                }
            }
        }
    }
    rewritten.sort_unstable();
    rewritten.dedup();
    place::settle(after, &rewritten);
}

fn is_runtime(object: &Object) -> bool {
    super::RUNTIME_KINDS.contains(&object.kind()) && object.group() == "trainer.kubeflow.org"
}

/// The objects whose templates made pods, before and after: for TrainJobs the JobSets made of them.
fn versions(old: &Object, new: &Object, before: &[Object], after: &[Object]) -> Vec<(Object, Object)> {
    let train_jobs: Vec<&Object> = if is_runtime(old) {
        before.iter().filter(|object| is_train_job(object)).collect()
    } else if is_train_job(old) {
        vec![old]
    } else {
        return vec![(old.clone(), new.clone())];
    };
    let pairs = train_jobs.into_iter().filter_map(|job| {
        let target = Target::of(job);
        let job_after =
            if is_train_job(old) { new } else { after.iter().find(|object| target.names(object))? };
        let whole = |job: &Object, objects: &[Object]| {
            // It stands for the TrainJob, so that the TrainJob's pods are found by it.
            let set = with_runtime(job, objects)?;
            let identity = serde_json::json!({ "metadata": { "uid": job.uid() }, "owner": "TrainJob" });
            Object::from_value(merge(set.value(), &identity)).ok()
        };
        Some((whole(job, before)?, whole(job_after, after)?))
    });
    pairs.collect()
}

/// Which pods belong to which workload.
struct Owned<'a> {
    objects: &'a [Object],
    pods: Vec<(usize, Pod)>,
    by_uid: BTreeMap<&'a str, &'a Object>,
    jobs: Jobs,
}

impl<'a> Owned<'a> {
    fn new(objects: &'a [Object]) -> Self {
        let pods: Vec<(usize, Pod)> = objects
            .iter()
            .enumerate()
            .filter_map(|(at, object)| Some((at, Pod::from_object(object)?)))
            .collect();
        let bare: Vec<Pod> = pods.iter().map(|(_, pod)| pod.clone()).collect();
        let by_uid = objects.iter().filter_map(|object| Some((object.uid()?, object))).collect();
        Self { objects, pods, by_uid, jobs: Jobs::resolve(&bare, objects, &Grouping::default()) }
    }

    /// The positions of a workload's pods.
    fn pods_of(&self, workload: &Object) -> Vec<usize> {
        let kind = workload.text("/owner").unwrap_or(workload.kind());
        let is_it = |key: &ObjectKey| {
            key.kind == kind
                && key.name == workload.name()
                && key.namespace.as_deref() == workload.namespace()
        };
        let of = self.pods.iter().enumerate().filter(|(place, (at, pod))| {
            let owners = self.objects.get(*at).map(Object::owners).unwrap_or_default();
            workload.namespace().is_none_or(|namespace| namespace == pod.namespace)
                && (self.leads_to(&owners, workload) || self.jobs.top_of(*place).is_some_and(is_it))
        });
        of.map(|(_, (at, _))| *at).collect()
    }

    fn leads_to(&self, owners: &[OwnerRef], workload: &Object) -> bool {
        let mut next = owners.to_vec();
        for _ in 0..LONGEST_CHAIN {
            let Some(owner) = next.iter().find(|o| o.controller).or(next.first()).cloned() else {
                return false;
            };
            if workload.uid() == Some(owner.uid.as_str()) {
                return true;
            }
            // ReplicaSets are often not recorded; they are named after their Deployment.
            let named = owner.name.rsplit_once('-').is_some_and(|(stem, _)| stem == workload.name());
            match self.by_uid.get(owner.uid.as_str()) {
                Some(object) => next = object.owners(),
                None => return owner.kind == "ReplicaSet" && workload.kind() == "Deployment" && named,
            }
        }
        false
    }
}

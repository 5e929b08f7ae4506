//! Where a job's pods come from: the pod templates of the objects a user edits. Enters: the world around a job; leaves:
//! each template with the pods made of it, and patches of it, each of which keeps what the ones before it did. Must not
//! know why a template changes.

use std::collections::BTreeMap;

use serde_json::Value;

use super::plan::{Action, Need, Step, StepKind};
use super::world::{World, member_ids};
use crate::facts::Pod;
use crate::object::{Labels, Object};
use crate::workload::{PathStep, merge, patch_templates, templates, with_runtime};

/// A pod template and the members made of it.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Slot {
    /// A place in [`Slots::objects`].
    pub(super) target: usize,
    pub(super) path: Vec<PathStep>,
    /// What the object calls it.
    pub(super) name: String,
    /// The pods' `spec`, as the template has it.
    pub(super) spec: Value,
    /// The labels it gives to its pods.
    pub(super) labels: Labels,
    /// Places in [`World::members`].
    pub(super) members: Vec<usize>,
}

/// All templates of a job.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Slots {
    pub(super) objects: Vec<Object>,
    pub(super) slots: Vec<Slot>,
    /// Members whose template is not known.
    pub(super) orphans: Vec<usize>,
}

impl Slots {
    pub(super) fn of(world: &World<'_>) -> Self {
        let mut found = Self::default();
        let ids = member_ids(&world.situation);
        for (member, (pod, id)) in world.members.iter().zip(ids).enumerate() {
            let key = world.situation.inventory.top_of(id);
            let top = key.and_then(|key| {
                let same = |object: &&Object| object.key() == *key && owns(world, member, object);
                world.objects.iter().find(same)
            });
            if top.is_none_or(|top| !found.place(world, member, pod, top)) {
                found.orphans.push(member);
            }
        }
        found
    }

    fn place(&mut self, world: &World<'_>, member: usize, pod: &Pod, top: &Object) -> bool {
        let target = match self
            .objects
            .iter()
            .position(|known| known.key() == top.key() && known.group() == top.group())
        {
            Some(known) => known,
            None => {
                self.objects.push(top.clone());
                let target = self.objects.len() - 1;
                self.slots.extend(read(world, target, top));
                target
            }
        };
        let mut of_target: Vec<&mut Slot> =
            self.slots.iter_mut().filter(|slot| slot.target == target).collect();
        let slot = match of_target.as_mut_slice() {
            [only] => Some(only),
            several => several.iter_mut().find(|slot| makes(&slot.name, pod)),
        };
        match slot {
            Some(slot) => slot.members.push(member),
            None => return false,
        }
        true
    }

    /// One step for each object with a change: patches the templates and goes on from the result. `None` when a change
    /// has no place in its object.
    pub(super) fn edit(&mut self, kind: StepKind, changes: &[(usize, Value)]) -> Option<Vec<Step>> {
        let mut by_target: BTreeMap<usize, Vec<(usize, &Value)>> = BTreeMap::new();
        for (slot, change) in changes {
            by_target.entry(self.slots.get(*slot)?.target).or_default().push((*slot, change));
        }
        let mut steps = Vec::new();
        for (target, changes) in by_target {
            let object = self.objects.get(target)?.clone();
            let of_slot = |(slot, change): &(usize, &Value)| {
                Some((self.slots.get(*slot)?.path.as_slice(), Value::clone(change)))
            };
            let written: Vec<(&[PathStep], Value)> = changes.iter().map(of_slot).collect::<Option<_>>()?;
            let patch = patch_templates(&object, &written)?;
            let after = Object::from_value(merge(object.value(), &patch)).ok()?;
            for (slot, change) in changes {
                let slot = self.slots.get_mut(slot)?;
                if let Some(spec) = change.get("spec") {
                    slot.spec = merge(&slot.spec, spec);
                }
                if let Some(labels) = change.pointer("/metadata/labels") {
                    slot.labels.extend(crate::object::string_map(Some(labels)));
                }
            }
            *self.objects.get_mut(target)? = after;
            steps.push(Step { kind, action: Action::Merge(object, patch) });
        }
        Some(steps)
    }

    /// What changing these templates needs.
    pub(super) fn needs(&self, changed: &[usize]) -> Vec<Need> {
        let targets = changed.iter().filter_map(|slot| self.objects.get(self.slots.get(*slot)?.target));
        let need = |object: &Object| match (object.group(), object.kind()) {
            ("", "Pod") => Need::Recreate,
            ("apps", "Deployment" | "StatefulSet" | "DaemonSet")
            | ("leaderworkerset.x-k8s.io", "LeaderWorkerSet") => Need::Rollout,
            ("", "ReplicationController") | ("apps", "ReplicaSet") => Need::Recreate,
            _ => Need::Resubmit,
        };
        targets.map(need).collect()
    }
}

/// Several objects may share kind and name (Kubernetes' and Volcano's `Job`): the pod's owners tell them apart.
fn owns(world: &World<'_>, member: usize, object: &Object) -> bool {
    let alike = |other: &&Object| other.key() == object.key();
    if world.objects.iter().filter(alike).count() < 2 {
        return true;
    }
    let mut next = world.member_object(member).map(Object::owners).unwrap_or_default();
    for _ in 0..8 {
        if next.iter().any(|owner| Some(owner.uid.as_str()) == object.uid()) {
            return true;
        }
        let above = |owner: &crate::object::OwnerRef| {
            world.objects.iter().find(|o| o.uid() == Some(owner.uid.as_str())).map(Object::owners)
        };
        next = next.iter().filter_map(above).flatten().collect();
    }
    false
}

/// The templates of an object; those of a TrainJob are in its runtime.
fn read(world: &World<'_>, target: usize, top: &Object) -> Vec<Slot> {
    let slot = |template: crate::workload::Template<'_>, path: Vec<PathStep>| Slot {
        target,
        path,
        name: template.name.clone(),
        spec: unbound(template.spec),
        labels: template.labels,
        members: Vec::new(),
    };
    match with_runtime(top, &world.objects) {
        Some(job_set) => {
            let named = |template: crate::workload::Template<'_>| {
                let path = vec![PathStep::field(&template.name)];
                slot(template, path)
            };
            templates(&job_set).into_iter().map(named).collect()
        }
        None => {
            let own = |template: crate::workload::Template<'_>| {
                let path = template.path.clone();
                slot(template, path)
            };
            templates(top).into_iter().map(own).collect()
        }
    }
}

/// A pod that is its own template has been bound to a node; the next one is free again.
fn unbound(spec: &Value) -> Value {
    let mut spec = spec.clone();
    if let Some(fields) = spec.as_object_mut() {
        fields.remove("nodeName");
    }
    spec
}

/// Whether a pod is made of the template with this name, by the marks its system leaves on it.
fn makes(name: &str, pod: &Pod) -> bool {
    const MARKS: [&str; 9] = [
        "training.kubeflow.org/replica-type",
        "jobset.sigs.k8s.io/replicatedjob-name",
        "volcano.sh/task-spec",
        "training.kubeflow.org/job-role",
        "mpi-job-role",
        "replica-type",
        "tf-replica-type",
        "pytorch-replica-type",
        "ray.io/group",
    ];
    if let Some(kind) = pod.labels.get("ray.io/node-type") {
        let group = pod.labels.get("ray.io/group");
        return if kind == "head" { name == "head" } else { group.is_some_and(|group| group == name) };
    }
    if let Some(index) = pod.labels.get("leaderworkerset.sigs.k8s.io/worker-index") {
        return (name == "leader") == (index == "0");
    }
    if let Some(clique) = pod.labels.get("grove.io/podclique") {
        return clique.ends_with(&format!("-{name}"));
    }
    let mark = MARKS.iter().find_map(|mark| pod.labels.get(*mark));
    mark.is_some_and(|mark| mark.eq_ignore_ascii_case(name))
}

//! TrainJobs and their runtimes (Kubeflow Trainer v2). Enters: a TrainJob and the objects around it; leaves: the JobSet
//! that would be made of it, and changes written as the overrides its version knows. Must not know pods.

use serde_json::{Map, Value, json};

use super::patch::merge;
use super::predict;
use super::template::PathStep;
use crate::object::Object;

/// The kinds that hold the pod templates of TrainJobs, in the group `trainer.kubeflow.org`.
pub const RUNTIME_KINDS: [&str; 2] = ["ClusterTrainingRuntime", "TrainingRuntime"];

const GROUP: &str = "trainer.kubeflow.org";
/// Who owns our entry of `runtimePatches`; the API wants a name with a domain.
const MANAGER: &str = "firedoor.github.io/remedy";
/// Where PyTorch's rendezvous listens (Kubeflow Trainer, torch plugin).
const TORCH_PORT: &str = "29500";
const STEP: &str = "trainer.kubeflow.org/trainjob-ancestor-step";

pub(super) fn is_train_job(object: &Object) -> bool {
    object.group() == GROUP && object.kind() == "TrainJob"
}

/// The JobSet that the controller would make of a TrainJob, overrides included; `None` when this is no TrainJob or its
/// runtime is not among `objects`.
#[must_use]
pub fn with_runtime(train_job: &Object, objects: &[Object]) -> Option<Object> {
    if !is_train_job(train_job) {
        return None;
    }
    let namespace = train_job.namespace().unwrap_or("default");
    let kind = train_job.text("/spec/runtimeRef/kind").unwrap_or("ClusterTrainingRuntime");
    let name = train_job.text("/spec/runtimeRef/name")?;
    let runtime = objects.iter().find(|object| {
        let here = kind == "ClusterTrainingRuntime" || object.namespace().unwrap_or("default") == namespace;
        here && object.group() == GROUP && object.kind() == kind && object.name() == name
    })?;
    let spec = runtime.value().pointer("/spec/template/spec")?;
    let mut spec = spec.clone();
    let nodes = train_job.value().pointer("/spec/trainer/numNodes");
    let nodes = nodes.or_else(|| runtime.value().pointer("/spec/mlPolicy/numNodes")).and_then(Value::as_u64);
    let torch = runtime.value().pointer("/spec/mlPolicy/torch").is_some();
    let jobs = spec.get_mut("replicatedJobs").and_then(Value::as_array_mut);
    let trainer = jobs.as_ref().and_then(|jobs| trainer(jobs));
    for (index, job) in jobs.into_iter().flatten().enumerate() {
        if trainer == Some(index) {
            shape_trainer(job, nodes, train_job, torch);
        }
        for change in overrides(train_job, job.get("name").and_then(Value::as_str).unwrap_or_default()) {
            if let Some(template) = job.pointer_mut("/template/spec/template") {
                *template = merge(template, &change);
            }
        }
    }
    let metadata = runtime.value().pointer("/spec/template/metadata");
    let labels = merge(metadata.and_then(|m| m.get("labels")).unwrap_or(&Value::Null), &json!({}));
    let annotations = merge(metadata.and_then(|m| m.get("annotations")).unwrap_or(&Value::Null), &json!({}));
    let job_set = json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {
            "name": train_job.name(), "namespace": namespace, "labels": labels, "annotations": annotations,
            "ownerReferences": [{"apiVersion": train_job.api_version(), "kind": "TrainJob", "name": train_job.name(),
                "uid": predict::uid(train_job), "controller": true}],
        },
        "spec": spec,
    });
    Object::from_value(job_set).ok()
}

/// Which replicated job has the training nodes: with MPI the launcher is marked as the trainer and the nodes are
/// beside it, under their own name.
fn trainer(jobs: &[Value]) -> Option<usize> {
    let named = |job: &Value| job.get("name").and_then(Value::as_str) == Some("node");
    let marked = |job: &Value| {
        let labels = job.pointer("/template/metadata/labels");
        labels.and_then(|labels| labels.get(STEP)).and_then(Value::as_str) == Some("trainer")
    };
    jobs.iter().position(named).or_else(|| jobs.iter().position(marked))
}

/// The trainer's Job gets as many pods as the TrainJob has nodes, the resources it asks for and, with PyTorch, the
/// port of the rendezvous.
fn shape_trainer(job: &mut Value, nodes: Option<u64>, train_job: &Object, torch: bool) {
    if let (Some(spec), Some(nodes)) =
        (job.pointer_mut("/template/spec").and_then(Value::as_object_mut), nodes)
    {
        spec.insert("parallelism".to_owned(), json!(nodes));
        spec.insert("completions".to_owned(), json!(nodes));
    }
    let containers = job.pointer_mut("/template/spec/template/spec/containers").and_then(Value::as_array_mut);
    let Some(containers) = containers else { return };
    let named =
        containers.iter().position(|c| c.get("name").and_then(Value::as_str) == Some("node")).unwrap_or(0);
    let Some(container) = containers.get_mut(named).and_then(Value::as_object_mut) else { return };
    if let Some(resources) = train_job.value().pointer("/spec/trainer/resourcesPerNode") {
        container.insert("resources".to_owned(), resources.clone());
    }
    if torch {
        let env = container.entry("env").or_insert_with(|| json!([]));
        if let Some(env) = env.as_array_mut() {
            env.push(json!({"name": "PET_MASTER_PORT", "value": TORCH_PORT}));
        }
    }
}

/// What a TrainJob changes in the pod template of a replicated job, in order.
fn overrides(train_job: &Object, job: &str) -> Vec<Value> {
    let mut changes = Vec::new();
    for (field, whole) in [("podSpecOverrides", false), ("podTemplateOverrides", true)] {
        for entry in train_job.items(&format!("/spec/{field}")) {
            let targets = entry.get("targetJobs").and_then(Value::as_array);
            let meant =
                targets.into_iter().flatten().any(|t| t.get("name").and_then(Value::as_str) == Some(job));
            if !meant {
                continue;
            }
            let mut entry = entry.clone();
            if let Some(map) = entry.as_object_mut() {
                map.remove("targetJobs");
                // Containers are merged by name, which none of our questions needs.
                let spec = if whole { map.get_mut("spec").and_then(Value::as_object_mut) } else { Some(map) };
                if let Some(spec) = spec {
                    spec.retain(|key, _| !matches!(key.as_str(), "containers" | "initContainers"));
                }
            }
            changes.push(if whole { entry } else { json!({ "spec": entry }) });
        }
    }
    for patch in train_job.items("/spec/runtimePatches") {
        let jobs =
            patch.pointer("/trainingRuntimeSpec/template/spec/replicatedJobs").and_then(Value::as_array);
        let meant = jobs.into_iter().flatten().filter(|j| j.get("name").and_then(Value::as_str) == Some(job));
        for change in meant.filter_map(|j| j.pointer("/template/spec/template")) {
            let mut change = change.clone();
            if let Some(spec) = change.get_mut("spec").and_then(Value::as_object_mut) {
                spec.retain(|key, _| !matches!(key.as_str(), "containers" | "initContainers"));
            }
            changes.push(change);
        }
    }
    changes
}

/// A patch of a TrainJob that overrides its runtime's pod templates. The API version is the same for all releases: the
/// fields already used tell the release, else the newest form is written.
pub(super) fn override_templates(train_job: &Object, changes: &[(&[PathStep], Value)]) -> Option<Value> {
    let spec = train_job.value().get("spec")?;
    let mut written = Vec::new();
    for (path, change) in changes {
        let [PathStep::Field(job)] = path else { return None };
        // Not among the pod fields that overrides may change.
        if change.get("spec").is_some_and(|spec| spec.get("topologySpreadConstraints").is_some()) {
            return None;
        }
        written.push((job.as_str(), change));
    }
    let existing = |field: &str| spec.get(field).and_then(Value::as_array).cloned();
    if let Some(mut list) = existing("podSpecOverrides") {
        for (job, change) in written {
            if change.get("metadata").is_some() {
                return None;
            }
            let mut entry = change.get("spec").and_then(Value::as_object).cloned().unwrap_or_default();
            entry.insert("targetJobs".to_owned(), json!([{ "name": job }]));
            list.push(Value::Object(entry));
        }
        return Some(json!({ "spec": { "podSpecOverrides": list } }));
    }
    if let Some(mut list) = existing("podTemplateOverrides") {
        for (job, change) in written {
            let mut entry: Map<String, Value> = change.as_object().cloned().unwrap_or_default();
            entry.insert("targetJobs".to_owned(), json!([{ "name": job }]));
            list.push(Value::Object(entry));
        }
        return Some(json!({ "spec": { "podTemplateOverrides": list } }));
    }
    let mut list = existing("runtimePatches").unwrap_or_default();
    let ours = |patch: &Value| patch.get("manager").and_then(Value::as_str) == Some(MANAGER);
    let before = list.iter().position(ours).map(|at| list.remove(at)).unwrap_or(Value::Null);
    let jobs = before.pointer("/trainingRuntimeSpec/template/spec/replicatedJobs").and_then(Value::as_array);
    let mut jobs = jobs.cloned().unwrap_or_default();
    for (job, change) in written {
        let entry = json!({"name": job, "template": {"spec": {"template": change}}});
        match jobs.iter_mut().find(|j| j.get("name").and_then(Value::as_str) == Some(job)) {
            Some(known) => *known = merge(known, &entry),
            None => jobs.push(entry),
        }
    }
    list.push(
        json!({"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}),
    );
    Some(json!({ "spec": { "runtimePatches": list } }))
}

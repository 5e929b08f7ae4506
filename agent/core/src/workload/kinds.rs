//! The kinds of objects that have pod templates, and where in them these are (the schemas of their custom
//! resource definitions). Must not know what is in a template.

use serde_json::Value;

use super::template::PathStep;
use crate::membership::Role;
use crate::membership::words::{closed_word, replicated_job, word};
use crate::object::Object;

/// More templates than any object has; further ones are not looked at.
const MAX_TEMPLATES: usize = 256;

/// How an object is laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Layout {
    /// It is the pod.
    Pod,
    /// `spec.template`, with `spec.replicas`.
    Replicated,
    /// A batch Job, below these fields.
    BatchJob(&'static [&'static str]),
    /// A map from replica type to `{replicas, template}` in this field of `spec`.
    ReplicaSpecs(&'static str),
    /// JobSet: a list of Jobs, below these fields.
    JobSet(&'static [&'static str]),
    /// Volcano: a list of tasks.
    Tasks,
    /// LeaderWorkerSet.
    LeaderWorker,
    /// A RayCluster's spec, below these fields.
    Ray(&'static [&'static str]),
    /// Grove: a list of cliques.
    Cliques,
}

/// A template's place.
pub(super) struct Place {
    pub(super) name: String,
    pub(super) path: Vec<PathStep>,
    pub(super) replicas: u32,
    pub(super) role: Option<Role>,
}

/// The layout of this kind of object; `None` for one that has no pod template in itself.
pub(super) fn layout(object: &Object) -> Option<Layout> {
    Some(match (object.group(), object.kind()) {
        ("", "Pod") => Layout::Pod,
        ("", "ReplicationController") | ("apps", "Deployment" | "StatefulSet" | "ReplicaSet") => {
            Layout::Replicated
        }
        ("batch", "Job") => Layout::BatchJob(&[]),
        ("batch", "CronJob") => Layout::BatchJob(&["spec", "jobTemplate"]),
        ("kubeflow.org", "PyTorchJob") => Layout::ReplicaSpecs("pytorchReplicaSpecs"),
        ("kubeflow.org", "TFJob") => Layout::ReplicaSpecs("tfReplicaSpecs"),
        ("kubeflow.org", "MPIJob") => Layout::ReplicaSpecs("mpiReplicaSpecs"),
        ("kubeflow.org", "XGBoostJob") => Layout::ReplicaSpecs("xgbReplicaSpecs"),
        ("kubeflow.org", "PaddleJob") => Layout::ReplicaSpecs("paddleReplicaSpecs"),
        ("kubeflow.org", "JAXJob") => Layout::ReplicaSpecs("jaxReplicaSpecs"),
        ("jobset.x-k8s.io", "JobSet") => Layout::JobSet(&[]),
        ("trainer.kubeflow.org", "TrainingRuntime" | "ClusterTrainingRuntime") => {
            Layout::JobSet(&["spec", "template"])
        }
        ("batch.volcano.sh", "Job") => Layout::Tasks,
        ("leaderworkerset.x-k8s.io", "LeaderWorkerSet") => Layout::LeaderWorker,
        ("ray.io", "RayCluster") => Layout::Ray(&["spec"]),
        ("ray.io", "RayJob") => Layout::Ray(&["spec", "rayClusterSpec"]),
        ("ray.io", "RayService") => Layout::Ray(&["spec", "rayClusterConfig"]),
        ("grove.io", "PodCliqueSet") => Layout::Cliques,
        _ => return None,
    })
}

impl Layout {
    /// Where the object's templates should be; one may turn out not to be there.
    pub(super) fn places(self, object: &Object) -> Vec<Place> {
        let value = object.value();
        let mut places = match self {
            Self::Pod => vec![place("", path(&[]), 1, None)],
            Self::Replicated => {
                vec![place(
                    "",
                    path(&["spec", "template"]),
                    count(value, "/spec/replicas").unwrap_or(1),
                    None,
                )]
            }
            Self::BatchJob(below) => {
                let job = below.iter().try_fold(value, |v, field| v.get(field));
                vec![place("", path(&[below, &["spec", "template"]].concat()), job_pods(job), None)]
            }
            Self::ReplicaSpecs(field) => replica_specs(value, field),
            Self::JobSet(below) => replicated_jobs(value, below),
            Self::Tasks => listed(value, &["spec", "tasks"], |task, name, path| {
                place(name, extended(path, &["template"]), count(task, "/replicas").unwrap_or(1), word(name))
            }),
            Self::LeaderWorker => leader_worker(value),
            Self::Ray(below) => ray(value, below),
            Self::Cliques => {
                let sets = count(value, "/spec/replicas").unwrap_or(1);
                listed(value, &["spec", "template", "cliques"], |clique, name, path| {
                    let pods = count(clique, "/spec/replicas").unwrap_or(1).saturating_mul(sets);
                    place(name, path, pods, word(name))
                })
            }
        };
        places.truncate(MAX_TEMPLATES);
        places
    }
}

fn place(name: &str, path: Vec<PathStep>, replicas: u32, role: Option<Role>) -> Place {
    Place { name: name.to_owned(), path, replicas, role }
}

fn path(fields: &[&str]) -> Vec<PathStep> {
    fields.iter().map(|field| PathStep::field(field)).collect()
}

fn extended(mut start: Vec<PathStep>, fields: &[&str]) -> Vec<PathStep> {
    start.extend(path(fields));
    start
}

/// A whole number; `None` when it is missing or none.
pub(super) fn count(value: &Value, pointer: &str) -> Option<u32> {
    value.pointer(pointer)?.as_u64().map(|number| u32::try_from(number).unwrap_or(u32::MAX))
}

/// How many pods a batch Job runs at a time.
pub(super) fn job_pods(job: Option<&Value>) -> u32 {
    let parallelism = job.and_then(|job| count(job, "/spec/parallelism")).unwrap_or(1);
    let completions = job.and_then(|job| count(job, "/spec/completions"));
    completions.map_or(parallelism, |completions| completions.min(parallelism))
}

fn replica_specs(value: &Value, field: &str) -> Vec<Place> {
    let specs = value.get("spec").and_then(|spec| spec.get(field)).and_then(Value::as_object);
    let specs = specs.into_iter().flatten();
    specs
        .map(|(name, spec)| {
            let replicas = count(spec, "/replicas").unwrap_or(1);
            place(name, path(&["spec", field, name, "template"]), replicas, closed_word(name))
        })
        .collect()
}

fn replicated_jobs(value: &Value, below: &[&str]) -> Vec<Place> {
    let list = [below, &["spec", "replicatedJobs"]].concat();
    listed(value, &list, |job, name, path| {
        let pods = count(job, "/replicas").unwrap_or(1).saturating_mul(job_pods(job.get("template")));
        place(name, extended(path, &["template", "spec", "template"]), pods, replicated_job(name))
    })
}

/// The named items of a list.
fn listed(value: &Value, list: &[&str], read: impl Fn(&Value, &str, Vec<PathStep>) -> Place) -> Vec<Place> {
    let items = list.iter().try_fold(value, |v, field| v.get(field)).and_then(Value::as_array);
    let items = items.into_iter().flatten().take(MAX_TEMPLATES).enumerate();
    items
        .map(|(index, item)| {
            let names = ["name", "groupName"];
            let name = names.iter().find_map(|field| item.get(field)?.as_str()).unwrap_or_default();
            let mut way = path(list);
            way.push(PathStep::Item(index));
            read(item, name, way)
        })
        .collect()
}

/// Without a leader template the worker template makes the leader too.
fn leader_worker(value: &Value) -> Vec<Place> {
    let groups = count(value, "/spec/replicas").unwrap_or(1);
    let size = count(value, "/spec/leaderWorkerTemplate/size").unwrap_or(1);
    let at = |field| path(&["spec", "leaderWorkerTemplate", field]);
    if value.pointer("/spec/leaderWorkerTemplate/leaderTemplate").is_none() {
        return vec![place("worker", at("workerTemplate"), groups.saturating_mul(size), Some(Role::Worker))];
    }
    let workers = groups.saturating_mul(size.saturating_sub(1));
    vec![
        place("leader", at("leaderTemplate"), groups, Some(Role::Coordinator)),
        place("worker", at("workerTemplate"), workers, Some(Role::Worker)),
    ]
}

fn ray(value: &Value, below: &[&str]) -> Vec<Place> {
    let head = path(&[below, &["headGroupSpec", "template"]].concat());
    let mut places = vec![place("head", head, 1, Some(Role::Coordinator))];
    let groups = [below, &["workerGroupSpecs"]].concat();
    places.extend(listed(value, &groups, |group, name, path| {
        let hosts = count(group, "/numOfHosts").unwrap_or(1).max(1);
        let replicas = count(group, "/replicas").or_else(|| count(group, "/minReplicas")).unwrap_or(1);
        place(name, extended(path, &["template"]), replicas.saturating_mul(hosts), Some(Role::Worker))
    }));
    places
}

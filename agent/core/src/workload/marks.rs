//! What controllers write on the pods they make: name, labels, annotations, owner. Enters: an object, a template and
//! an index; leaves: [`Made`]. Must not know what pods are for. Values that hash something are left out.

use serde_json::Value;

use super::kinds::{Layout, count, job_pods};
use super::predict::{invented, uid};
use super::template::{Template, walk};
use crate::membership::Role;
use crate::object::Object;

/// A pod's owner.
pub(super) struct Owner {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) uid: String,
}

/// What a controller adds to a template.
pub(super) struct Made {
    pub(super) name: String,
    pub(super) labels: Vec<(String, String)>,
    pub(super) annotations: Vec<(String, String)>,
    pub(super) owner: Owner,
    /// The rendezvous port the operator declares when the template declares none.
    pub(super) port: Option<u16>,
}

const BATCH: &str = "batch/v1";
const TRAINING: &str = "training.kubeflow.org";
const JOBSET: &str = "jobset.sigs.k8s.io";
const LWS: &str = "leaderworkerset.sigs.k8s.io";

/// The pod with this index of the template at this position.
pub(super) fn made(
    object: &Object,
    layout: Layout,
    all: &[Template<'_>],
    position: usize,
    index: u32,
) -> Made {
    let Some(template) = all.get(position) else { return plain(object, object.name().to_owned()) };
    match layout {
        Layout::Pod | Layout::Replicated => replicated(object, index),
        Layout::BatchJob(below) => {
            let name =
                if below.is_empty() { object.name().to_owned() } else { format!("{}-next", object.name()) };
            let mode = below.iter().try_fold(object.value(), |v, field| v.get(field));
            let indexed =
                mode.and_then(|job| job.pointer("/spec/completionMode")?.as_str()) == Some("Indexed");
            let owned = if below.is_empty() { uid(object) } else { job_uid(object, &name) };
            batch_job(object, &name, owned, index, indexed)
        }
        Layout::ReplicaSpecs(_) => training(object, all, template, index),
        Layout::JobSet(_) => job_set(object, all, position, index),
        Layout::Tasks => volcano(object, template, index),
        Layout::LeaderWorker => leader_worker(object, template, index),
        Layout::Ray(_) => ray(object, template, index),
        Layout::Cliques => grove(object, template, index),
    }
}

fn plain(object: &Object, name: String) -> Made {
    let owner = Owner {
        api_version: object.api_version().to_owned(),
        kind: object.kind().to_owned(),
        name: object.name().to_owned(),
        uid: uid(object),
    };
    Made { name, labels: Vec::new(), annotations: Vec::new(), owner, port: None }
}

fn owned_by(object: &Object, api_version: &str, kind: &str, name: &str) -> Owner {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    Owner {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        uid: invented(group, kind, object.namespace().unwrap_or("default"), name),
    }
}

fn pairs<const N: usize>(labels: [(&str, String); N]) -> Vec<(String, String)> {
    labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn prefixed<const N: usize>(prefix: &str, labels: [(&str, String); N]) -> Vec<(String, String)> {
    labels.into_iter().map(|(key, value)| (format!("{prefix}/{key}"), value)).collect()
}

/// Where a real name ends in random letters.
fn suffix(index: u32) -> String {
    format!("{index:05}")
}

fn replicated(object: &Object, index: u32) -> Made {
    let name = object.name();
    match object.kind() {
        "Deployment" => {
            let hash = "predicted";
            let set = format!("{name}-{hash}");
            let mut made = plain(object, format!("{set}-{}", suffix(index)));
            made.owner = owned_by(object, "apps/v1", "ReplicaSet", &set);
            made.labels = pairs([("pod-template-hash", hash.to_owned())]);
            made
        }
        "StatefulSet" => {
            let pod = format!("{name}-{index}");
            let mut made = plain(object, pod.clone());
            made.labels = pairs([
                ("statefulset.kubernetes.io/pod-name", pod),
                ("apps.kubernetes.io/pod-index", index.to_string()),
            ]);
            made
        }
        _ => plain(object, format!("{name}-{}", suffix(index))),
    }
}

fn job_uid(object: &Object, job: &str) -> String {
    invented("batch", "Job", object.namespace().unwrap_or("default"), job)
}

fn batch_job(object: &Object, job: &str, job_uid: String, index: u32, indexed: bool) -> Made {
    let name =
        if indexed { format!("{job}-{index}-{}", suffix(index)) } else { format!("{job}-{}", suffix(index)) };
    let mut made = plain(object, name);
    made.labels = pairs([
        ("batch.kubernetes.io/job-name", job.to_owned()),
        ("job-name", job.to_owned()),
        ("batch.kubernetes.io/controller-uid", job_uid.clone()),
        ("controller-uid", job_uid.clone()),
    ]);
    if indexed {
        let key = "batch.kubernetes.io/job-completion-index";
        made.labels.extend(pairs([(key, index.to_string())]));
        made.annotations.extend(pairs([(key, index.to_string())]));
    }
    made.owner =
        Owner { api_version: BATCH.to_owned(), kind: "Job".to_owned(), name: job.to_owned(), uid: job_uid };
    made
}

/// Training Operator v1, and the MPI Operator.
fn training(object: &Object, all: &[Template<'_>], template: &Template<'_>, index: u32) -> Made {
    let (job, kind) = (object.name(), template.name.to_ascii_lowercase());
    let mpi_operator = object.kind() == "MPIJob" && object.api_version().ends_with("/v2beta1");
    let mut made = plain(object, format!("{job}-{kind}-{index}"));
    let operator = match object.kind() {
        "MPIJob" if mpi_operator => "mpi-operator".to_owned(),
        kind => format!("{}-controller", kind.to_ascii_lowercase()),
    };
    made.labels = prefixed(
        TRAINING,
        [("job-name", job.to_owned()), ("operator-name", operator), ("replica-index", index.to_string())],
    );
    if mpi_operator {
        made.labels.extend(prefixed(TRAINING, [("job-role", kind.clone())]));
        if kind == "launcher" {
            let launcher = format!("{job}-launcher");
            made.name = format!("{launcher}-{}", suffix(index));
            made.owner = owned_by(object, BATCH, "Job", &launcher);
        }
        return made;
    }
    made.labels.extend(prefixed(TRAINING, [("replica-type", kind.clone())]));
    let leads = |name: &str| matches!(name, "master" | "chief");
    let has_lead = all.iter().any(|t| leads(&t.name.to_ascii_lowercase()));
    let by_index =
        matches!(object.kind(), "PyTorchJob" | "TFJob" | "JAXJob") && kind == "worker" && index == 0;
    if leads(&kind) || (!has_lead && by_index) {
        made.labels.extend(prefixed(TRAINING, [("job-role", "master".to_owned())]));
    }
    made.port = match object.kind() {
        "PyTorchJob" => Some(23_456),
        "TFJob" => Some(2222),
        "XGBoostJob" => Some(9999),
        "PaddleJob" => Some(36_543),
        "JAXJob" => Some(6666),
        _ => None,
    };
    made
}

fn job_set(object: &Object, all: &[Template<'_>], position: usize, index: u32) -> Made {
    // A template's path ends with `template.spec.template` below the replicated job.
    let replicated = |t: &Template<'_>| {
        let way = t.path.len().saturating_sub(3);
        t.path.get(..way).and_then(|way| walk(object.value(), way)).cloned().unwrap_or(Value::Null)
    };
    let jobs_of = |t: &Template<'_>| count(&replicated(t), "/replicas").unwrap_or(1);
    let Some(template) = all.get(position) else { return plain(object, object.name().to_owned()) };
    let item = replicated(template);
    let size = job_pods(item.get("template")).max(1);
    let (job_index, pod_index) = (index / size, index % size);
    let before: u32 = all.iter().take(position).map(jobs_of).fold(0, u32::saturating_add);
    let total: u32 = all.iter().map(jobs_of).fold(0, u32::saturating_add);
    let (set, job) = (object.name(), format!("{}-{}-{job_index}", object.name(), template.name));
    // JobSet makes its Jobs indexed unless told otherwise.
    let mode = item.pointer("/template/spec/completionMode").and_then(Value::as_str);
    let mut made = batch_job(object, &job, job_uid(object, &job), pod_index, mode != Some("NonIndexed"));
    let mut marks = prefixed(
        JOBSET,
        [
            ("jobset-name", set.to_owned()),
            ("jobset-uid", uid(object)),
            ("replicatedjob-name", template.name.clone()),
            ("replicatedjob-replicas", jobs_of(template).to_string()),
            ("global-replicas", total.to_string()),
            ("job-index", job_index.to_string()),
            ("job-global-index", before.saturating_add(job_index).to_string()),
            ("restart-attempt", "0".to_owned()),
        ],
    );
    marks.extend(coordinator(object).map(|endpoint| (format!("{JOBSET}/coordinator"), endpoint)));
    made.annotations.extend(marks.clone());
    made.labels.extend(marks);
    made
}

fn coordinator(object: &Object) -> Option<String> {
    let spec = object.value().pointer("/spec/coordinator")?;
    let job = spec.get("replicatedJob")?.as_str()?;
    let index = |field: &str| spec.get(field).and_then(Value::as_u64).unwrap_or(0);
    let domain = object.text("/spec/network/subdomain").unwrap_or(object.name());
    Some(format!("{}-{job}-{}-{}.{domain}", object.name(), index("jobIndex"), index("podIndex")))
}

fn volcano(object: &Object, template: &Template<'_>, index: u32) -> Made {
    let (job, task) = (object.name(), template.name.as_str());
    let mut made = plain(object, format!("{job}-{task}-{index}"));
    made.labels = prefixed(
        "volcano.sh",
        [
            ("job-name", job.to_owned()),
            ("job-namespace", object.namespace().unwrap_or("default").to_owned()),
            ("queue-name", object.text("/spec/queue").unwrap_or("default").to_owned()),
            ("task-spec", task.to_owned()),
            ("task-index", index.to_string()),
        ],
    );
    made.annotations = made.labels.clone();
    made.annotations.extend(pairs([("scheduling.k8s.io/group-name", format!("{job}-{}", uid(object)))]));
    made
}

/// The leader of each group belongs to one StatefulSet, its workers to another, which the leader owns.
fn leader_worker(object: &Object, template: &Template<'_>, index: u32) -> Made {
    let size = count(object.value(), "/spec/leaderWorkerTemplate/size").unwrap_or(1).max(1);
    let apart = object.value().pointer("/spec/leaderWorkerTemplate/leaderTemplate").is_some();
    let (group, worker) = match template.role {
        Some(Role::Coordinator) => (index, 0),
        _ if apart => {
            let workers = size.saturating_sub(1).max(1);
            (index / workers, (index % workers).saturating_add(1))
        }
        _ => (index / size, index % size),
    };
    let set = object.name();
    let leader = format!("{set}-{group}");
    let (name, stateful_set) =
        if worker == 0 { (leader, set.to_owned()) } else { (format!("{leader}-{worker}"), leader) };
    let mut made = plain(object, name);
    made.owner = owned_by(object, "apps/v1", "StatefulSet", &stateful_set);
    made.labels = prefixed(
        LWS,
        [("name", set.to_owned()), ("group-index", group.to_string()), ("worker-index", worker.to_string())],
    );
    made
}

fn ray(object: &Object, template: &Template<'_>, index: u32) -> Made {
    let made_by_other = object.kind() != "RayCluster";
    let cluster =
        if made_by_other { format!("{}-predicted", object.name()) } else { object.name().to_owned() };
    let head = template.role == Some(Role::Coordinator);
    let name = if head {
        format!("{cluster}-head")
    } else {
        format!("{cluster}-{}-worker-{}", template.name, suffix(index))
    };
    let mut made = plain(object, name);
    let group = if head { "headgroup" } else { template.name.as_str() };
    made.labels = prefixed(
        "ray.io",
        [
            ("cluster", cluster.clone()),
            ("node-type", if head { "head" } else { "worker" }.to_owned()),
            ("group", group.to_owned()),
            ("is-ray-node", "yes".to_owned()),
        ],
    );
    if made_by_other {
        made.owner = owned_by(object, object.api_version(), "RayCluster", &cluster);
        let origin = [
            ("originated-from-cr-name", object.name().to_owned()),
            ("originated-from-crd", object.kind().to_owned()),
        ];
        made.labels.extend(prefixed("ray.io", origin));
    }
    // The head's GCS, which all workers connect to.
    made.port = head.then_some(6379);
    made
}

fn grove(object: &Object, template: &Template<'_>, index: u32) -> Made {
    let sets = count(object.value(), "/spec/replicas").unwrap_or(1).max(1);
    let size = (template.replicas / sets).max(1);
    let (set, number) = (index / size, index % size);
    let clique = format!("{}-{set}-{}", object.name(), template.name);
    let mut made = plain(object, format!("{clique}-{}", suffix(number)));
    made.owner = owned_by(object, "grove.io/v1alpha1", "PodClique", &clique);
    made.labels = pairs([
        ("app.kubernetes.io/part-of", object.name().to_owned()),
        ("app.kubernetes.io/managed-by", "grove-operator".to_owned()),
        ("grove.io/podclique", clique),
        ("grove.io/podclique-pod-index", number.to_string()),
        ("grove.io/podcliqueset-replica-index", set.to_string()),
    ]);
    made
}

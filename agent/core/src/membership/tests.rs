//! Who is in a job: small worlds, one for each system and each lie.

mod groups;
mod trust;

use serde_json::{Value, json};

use super::*;
use crate::object::Labels;

/// A pod in namespace `ml`: its name, labels and owner references.
fn pod(name: &str, labels: &Value, owners: &Value) -> Pod {
    annotated(name, labels, &json!({}), owners)
}

fn annotated(name: &str, labels: &Value, annotations: &Value, owners: &Value) -> Pod {
    read(
        &json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "ml", "name": name, "uid": format!("pod-{name}"),
        "labels": labels, "annotations": annotations, "ownerReferences": owners}}),
    )
}

fn read(value: &Value) -> Pod {
    Pod::from_object(&Object::from_value(value.clone()).unwrap()).unwrap()
}

fn object(api: &str, kind: &str, name: &str, uid: &str, owners: &Value, spec: &Value) -> Object {
    let metadata = json!({"namespace": "ml", "name": name, "uid": uid, "ownerReferences": owners});
    Object::from_value(json!({"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec})).unwrap()
}

fn by(api: &str, kind: &str, name: &str, uid: &str) -> Value {
    json!([{"apiVersion": api, "kind": kind, "name": name, "uid": uid, "controller": true}])
}

fn none() -> Value {
    json!([])
}

fn resolve(pods: &[Pod], objects: &[Object]) -> Jobs {
    Jobs::resolve(pods, objects, &Grouping::default())
}

/// One line a job: `kind name uid: pod=role/rank ...`.
fn lines(jobs: &Jobs, pods: &[Pod]) -> Vec<String> {
    let member = |m: &Member| {
        let rank = m.rank.map_or_else(|| "-".to_owned(), |rank| rank.to_string());
        format!("{}={}/{rank}", pods[m.pod].name, m.role.map_or("-", Role::as_str))
    };
    let line = |job: &Job| {
        let members: Vec<String> = job.members.iter().map(member).collect();
        let id = &job.id;
        format!(
            "{} {} {}: {}",
            id.kind.as_str(),
            id.name,
            id.uid.as_deref().unwrap_or("-"),
            members.join(" ")
        )
    };
    jobs.jobs.iter().map(line).collect()
}

fn training(kind: &str, job: &str, replica: &str, index: u32) -> Value {
    json!({"training.kubeflow.org/job-name": job, "training.kubeflow.org/operator-name": format!("{kind}-controller"),
        "training.kubeflow.org/replica-type": replica, "training.kubeflow.org/replica-index": index.to_string()})
}

#[test]
fn training_operator_by_owner() {
    let owner = by("kubeflow.org/v1", "PyTorchJob", "llama", "u1");
    let mut elastic = training("pytorchjob", "vit", "worker", 0);
    elastic["training.kubeflow.org/job-role"] = json!("master");
    let vit = by("kubeflow.org/v1", "PyTorchJob", "vit", "u2");
    let tf = by("kubeflow.org/v1", "TFJob", "llama", "u3");
    let pods = [
        pod("llama-worker-0", &training("pytorchjob", "llama", "worker", 0), &owner),
        pod("llama-master-0", &training("pytorchjob", "llama", "master", 0), &owner),
        pod("vit-worker-0", &elastic, &vit),
        pod("vit-worker-1", &training("pytorchjob", "vit", "worker", 1), &vit),
        // The same name, another kind.
        pod("tf-ps-0", &training("tfjob", "llama", "ps", 0), &tf),
        pod("tf-worker-0", &training("tfjob", "llama", "worker", 0), &tf),
        pod("tf-worker-1", &training("tfjob", "llama", "worker", 1), &tf),
        pod("tf-evaluator-0", &training("tfjob", "llama", "evaluator", 0), &tf),
    ];
    let jobs = resolve(&pods, &[]);
    assert_eq!(
        lines(&jobs, &pods),
        [
            "PyTorchJob llama u1: llama-master-0=coordinator/0 llama-worker-0=worker/1",
            "PyTorchJob vit u2: vit-worker-0=coordinator/0 vit-worker-1=worker/1",
            "TFJob llama u3: tf-evaluator-0=other/0 tf-ps-0=ps/0 tf-worker-0=coordinator/0 tf-worker-1=worker/1",
        ]
    );
    let (job, member) = jobs.of_pod(0).unwrap();
    assert_eq!((jobs.jobs[job].id.name.as_str(), member.pod, member.rank), ("llama", 0, Some(1)));
    assert_eq!(jobs.jobs[job].top.as_ref().unwrap().kind, "PyTorchJob");
    assert!(jobs.of_pod(99).is_none());
}

#[test]
fn an_unseen_chief_keeps_worker_0_a_worker() {
    let owner = by("kubeflow.org/v1", "TFJob", "rec", "u");
    let tf = object(
        "kubeflow.org/v1",
        "TFJob",
        "rec",
        "u",
        &none(),
        &json!({"tfReplicaSpecs": {"Chief": {}, "Worker": {}}}),
    );
    let pods = [pod("rec-worker-0", &training("tfjob", "rec", "worker", 0), &owner)];
    assert_eq!(lines(&resolve(&pods, &[tf]), &pods), ["TFJob rec u: rec-worker-0=worker/0"]);
}

#[test]
fn labels_of_the_old_operators() {
    let old = |kind: &str, role: &str, index: &str| json!({"group-name": "kubeflow.org", "job-name": "x", "controller-name": kind, "replica-type": role, "replica-index": index});
    let pods = [
        pod("a-0", &old("pytorchjob-controller", "master", "0"), &none()),
        pod("a-1", &old("pytorchjob-controller", "worker", "0"), &none()),
        pod(
            "b-0",
            &json!({"tf-job-name": "y", "tf-replica-type": "chief", "tf-replica-index": "0"}),
            &none(),
        ),
        pod(
            "b-1",
            &json!({"tf-job-name": "y", "tf-replica-type": "worker", "tf-replica-index": "0"}),
            &none(),
        ),
        pod(
            "c-0",
            &json!({"group-name": "kubeflow.org", "mpi-job-name": "z", "mpi-job-role": "launcher"}),
            &none(),
        ),
        pod(
            "c-1",
            &json!({"group-name": "kubeflow.org", "mpi-job-name": "z", "mpi-job-role": "worker"}),
            &none(),
        ),
        // `job-name` alone may mean anything.
        pod("d-0", &json!({"job-name": "w"}), &none()),
        pod("d-1", &json!({"job-name": "w"}), &none()),
    ];
    assert_eq!(
        lines(&resolve(&pods, &[]), &pods),
        [
            "MPIJob z -: c-0=coordinator/- c-1=worker/-",
            "PyTorchJob x -: a-0=coordinator/0 a-1=worker/1",
            "TFJob y -: b-0=coordinator/0 b-1=worker/0",
        ]
    );
    let named = object("kubeflow.org/v1", "XGBoostJob", "q", "u", &none(), &json!({}));
    let pods = [pod("q-0", &json!({"group-name": "kubeflow.org", "job-name": "q"}), &none())];
    assert_eq!(lines(&resolve(&pods, &[named]), &pods), ["XGBoostJob q u: q-0=-/-"]);
}

#[test]
fn mpi_launcher_is_a_job_of_the_mpijob() {
    let marks = |role: &str| {
        json!({"training.kubeflow.org/job-name": "hpl", "training.kubeflow.org/operator-name": "mpi-operator",
        "training.kubeflow.org/job-role": role})
    };
    let mut worker = marks("worker");
    worker["training.kubeflow.org/replica-index"] = json!("0");
    let pods = [
        pod("hpl-launcher-x", &marks("launcher"), &by("batch/v1", "Job", "hpl-launcher", "j")),
        pod("hpl-worker-0", &worker, &by("kubeflow.org/v2beta1", "MPIJob", "hpl", "m")),
    ];
    let expected = ["MPIJob hpl m: hpl-launcher-x=coordinator/- hpl-worker-0=worker/0"];
    let job = object(
        "batch/v1",
        "Job",
        "hpl-launcher",
        "j",
        &by("kubeflow.org/v2beta1", "MPIJob", "hpl", "m"),
        &json!({}),
    );
    assert_eq!(lines(&resolve(&pods, &[job]), &pods), expected);
    // Without the Job, its pod's labels lead to the job that the worker's owner names.
    assert_eq!(lines(&resolve(&pods, &[]), &pods), expected);
}

fn jobset_pod(name: &str, set: &str, replicated: &str, job: u32, global: u32, index: u32) -> Value {
    json!({"jobset.sigs.k8s.io/jobset-name": set, "jobset.sigs.k8s.io/replicatedjob-name": replicated,
        "jobset.sigs.k8s.io/job-index": job.to_string(), "jobset.sigs.k8s.io/job-global-index": global.to_string(),
        "batch.kubernetes.io/job-name": name, "batch.kubernetes.io/job-completion-index": index.to_string()})
}

#[test]
fn trainjob_above_jobset_above_job() {
    let pods = [
        pod(
            "t-node-0-0-a",
            &jobset_pod("t-node-0", "t", "node", 0, 1, 0),
            &by("batch/v1", "Job", "t-node-0", "j1"),
        ),
        pod(
            "t-node-0-1-b",
            &jobset_pod("t-node-0", "t", "node", 0, 1, 1),
            &by("batch/v1", "Job", "t-node-0", "j1"),
        ),
        pod(
            "t-init-c",
            &jobset_pod("t-di-0", "t", "dataset-initializer", 0, 0, 0),
            &by("batch/v1", "Job", "t-di-0", "j2"),
        ),
    ];
    let set = by("jobset.x-k8s.io/v1alpha2", "JobSet", "t", "s");
    let objects = [
        object("batch/v1", "Job", "t-node-0", "j1", &set, &json!({"completions": 2})),
        object("batch/v1", "Job", "t-di-0", "j2", &set, &json!({"completions": 1})),
        object(
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            "t",
            "s",
            &by("trainer.kubeflow.org/v1alpha1", "TrainJob", "t", "T"),
            &json!({}),
        ),
        object("trainer.kubeflow.org/v1alpha1", "TrainJob", "t", "T", &none(), &json!({})),
    ];
    let expected = ["TrainJob t T: t-init-c=other/0 t-node-0-0-a=coordinator/0 t-node-0-1-b=worker/1"];
    for known in [&objects[..], &objects[..3], &objects[2..], &objects[3..]] {
        assert_eq!(lines(&resolve(&pods, known), &pods), expected, "{} known", known.len());
    }
    // With nothing but pods it is the JobSet that their labels name.
    let alone = lines(&resolve(&pods, &[]), &pods);
    assert_eq!(alone.len(), 1);
    assert!(alone[0].starts_with("JobSet t -:"), "{alone:?}");
}

#[test]
fn jobset_coordinator_and_ranks() {
    let mut pods = vec![
        pod("js-w-0-0", &jobset_pod("js-w-0", "js", "w", 0, 0, 0), &none()),
        pod("js-w-0-1", &jobset_pod("js-w-0", "js", "w", 0, 0, 1), &none()),
        pod("js-w-1-0", &jobset_pod("js-w-1", "js", "w", 1, 1, 0), &none()),
        pod("js-w-1-1", &jobset_pod("js-w-1", "js", "w", 1, 1, 1), &none()),
    ];
    let jobs = ["js-w-0", "js-w-1"]
        .map(|name| object("batch/v1", "Job", name, name, &none(), &json!({"completions": 2})));
    assert_eq!(
        lines(&resolve(&pods, &jobs), &pods),
        ["JobSet js -: js-w-0-0=coordinator/0 js-w-0-1=worker/1 js-w-1-0=worker/2 js-w-1-1=worker/3"]
    );
    for pod in &mut pods {
        pod.annotations.insert("jobset.sigs.k8s.io/coordinator".to_owned(), "js-w-1-0.js".to_owned());
    }
    assert_eq!(
        lines(&resolve(&pods, &[]), &pods),
        ["JobSet js -: js-w-0-0=worker/0 js-w-0-1=worker/1 js-w-1-0=coordinator/- js-w-1-1=worker/-"]
    );
}

#[test]
fn leaderworkerset_groups_are_gangs() {
    let marks = |group: u32, index: u32| {
        json!({"leaderworkerset.sigs.k8s.io/name": "lws",
        "leaderworkerset.sigs.k8s.io/group-index": group.to_string(), "leaderworkerset.sigs.k8s.io/worker-index": index.to_string()})
    };
    let leader = by("apps/v1", "StatefulSet", "lws", "sts");
    let worker = |group: u32| by("apps/v1", "StatefulSet", &format!("lws-{group}"), &format!("sts-{group}"));
    let pods = [
        pod("lws-0", &marks(0, 0), &leader),
        pod("lws-0-1", &marks(0, 1), &worker(0)),
        pod("lws-1", &marks(1, 0), &leader),
        pod("lws-1-1", &marks(1, 1), &worker(1)),
    ];
    let set = |replicas: u32| {
        object(
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            "lws",
            "L",
            &none(),
            &json!({"replicas": replicas}),
        )
    };
    // A worker's StatefulSet belongs to the leader pod, whose StatefulSet belongs to the LeaderWorkerSet.
    let below = [
        object(
            "apps/v1",
            "StatefulSet",
            "lws",
            "sts",
            &by("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "lws", "L"),
            &json!({}),
        ),
        object(
            "apps/v1",
            "StatefulSet",
            "lws-0",
            "sts-0",
            &by("v1", "Pod", "lws-0", "pod-lws-0"),
            &json!({}),
        ),
        object(
            "apps/v1",
            "StatefulSet",
            "lws-1",
            "sts-1",
            &by("v1", "Pod", "lws-1", "pod-lws-1"),
            &json!({}),
        ),
    ];
    let expected = [
        "LeaderWorkerSet lws-0 L: lws-0=coordinator/0 lws-0-1=worker/1",
        "LeaderWorkerSet lws-1 L: lws-1=coordinator/0 lws-1-1=worker/1",
    ];
    let jobs = resolve(&pods, &below);
    assert_eq!(lines(&jobs, &pods), expected);
    assert_eq!(jobs.jobs[1].top.as_ref().unwrap().name, "lws");
    assert_eq!(lines(&resolve(&pods, &[set(2)]), &pods), expected);
    // One group keeps the object's name; one of several, seen alone, does not.
    assert!(lines(&resolve(&pods[..2], &[set(1)]), &pods)[0].starts_with("LeaderWorkerSet lws L:"));
    assert!(lines(&resolve(&pods[..2], &[set(2)]), &pods)[0].starts_with("LeaderWorkerSet lws-0 L:"));
}

#[test]
fn ray_resolves_to_what_made_the_cluster() {
    let marks = |kind: &str| json!({"ray.io/cluster": "rj-x", "ray.io/node-type": kind});
    let cluster = by("ray.io/v1", "RayCluster", "rj-x", "c");
    let pods = [
        pod("head", &marks("head"), &cluster),
        pod("submit", &json!({}), &by("batch/v1", "Job", "rj", "j")),
        pod("work", &marks("worker"), &cluster),
    ];
    let rayjob = by("ray.io/v1", "RayJob", "rj", "r");
    let objects = [
        object("batch/v1", "Job", "rj", "j", &rayjob, &json!({})),
        object("ray.io/v1", "RayCluster", "rj-x", "c", &rayjob, &json!({})),
    ];
    let expected = ["RayJob rj r: head=coordinator/- submit=other/- work=worker/-"];
    assert_eq!(lines(&resolve(&pods, &objects), &pods), expected);
    // The RayCluster is missing, but the RayJob's status names it.
    let job = json!({"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"namespace": "ml", "name": "rj", "uid": "r"},
        "status": {"rayClusterName": "rj-x"}});
    let objects = [objects[0].clone(), Object::from_value(job).unwrap()];
    assert_eq!(lines(&resolve(&pods, &objects), &pods), expected);
    let alone = [pods[0].clone(), pods[2].clone()];
    assert_eq!(lines(&resolve(&alone, &[]), &alone), ["RayCluster rj-x c: head=coordinator/- work=worker/-"]);
}

#[test]
fn systems_by_labels() {
    let cases = [
        (
            json!({"volcano.sh/job-name": "v", "volcano.sh/task-spec": "mpimaster", "volcano.sh/task-index": "0"}),
            "VolcanoJob v -: p=coordinator/0",
        ),
        (
            json!({"app.kubernetes.io/part-of": "g", "grove.io/podclique": "g-0-worker", "grove.io/podclique-pod-index": "1",
            "grove.io/podcliqueset-replica-index": "0"}),
            "PodCliqueSet g -: p=worker/1",
        ),
        (
            json!({"app.kubernetes.io/part-of": "g", "grove.io/podclique": "g-2-leader", "grove.io/podcliqueset-replica-index": "2"}),
            "PodCliqueSet g-2 -: p=coordinator/-",
        ),
        (
            json!({"kueue.x-k8s.io/pod-group-name": "k", "kueue.x-k8s.io/pod-group-pod-index": "3", "role": "worker"}),
            "PodGroup k -: p=worker/3",
        ),
        (json!({"scheduling.x-k8s.io/pod-group": "c"}), "PodGroup c -: p=-/-"),
        (
            json!({"pod-group.scheduling.sigs.k8s.io": "o", "component": "driver"}),
            "PodGroup o -: p=coordinator/-",
        ),
        (
            json!({"batch.kubernetes.io/job-name": "b", "batch.kubernetes.io/controller-uid": "u", "batch.kubernetes.io/job-completion-index": "0"}),
            "Job b u: p=coordinator/0",
        ),
        (json!({"katib.kubeflow.org/trial": "t", "katib.kubeflow.org/experiment": "e"}), "Trial t -: p=-/-"),
        (
            json!({"skypilot-cluster-name": "s-1a2b", "skypilot-head-node": "0", "parent": "skypilot"}),
            "SkyPilotCluster s-1a2b -: p=worker/-",
        ),
        (
            json!({"training.kubeflow.org/job-name": "j", "training.kubeflow.org/operator-name": "jaxjob-controller",
            "training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": "0"}),
            "JAXJob j -: p=coordinator/0",
        ),
    ];
    for (labels, expected) in cases {
        let pods = [pod("p", &labels, &none())];
        assert_eq!(lines(&resolve(&pods, &[]), &pods), [expected]);
    }
    let sky = [annotated(
        "p",
        &json!({"skypilot-cluster-name": "long-cut-1a2b"}),
        &json!({"skypilot-cluster-name": "long-cluster"}),
        &none(),
    )];
    assert_eq!(lines(&resolve(&sky, &[]), &sky), ["SkyPilotCluster long-cluster -: p=-/-"]);
}

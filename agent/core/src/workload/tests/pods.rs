//! The pods that are predicted, held against membership.

use super::*;

fn resolved(objects: &[Object]) -> (Vec<Pod>, Jobs) {
    let objects: Vec<Object> = objects.iter().map(identified).collect();
    let pods: Vec<Object> = objects.iter().flat_map(predicted_pods).collect();
    let pods: Vec<Pod> = pods.iter().filter_map(Pod::from_object).collect();
    let jobs = Jobs::resolve(&pods, &objects, &Grouping::default());
    (pods, jobs)
}

fn of(api: &str, kind: &str, spec: Value) -> Object {
    object(
        json!({"apiVersion": api, "kind": kind, "metadata": {"name": "j", "namespace": "ml"}, "spec": spec}),
    )
}

#[test]
fn predicted_pods_are_recognised_as_the_job_they_come_from() {
    let t = || template(json!({}));
    let two = json!({"Master": {"template": t()}, "Worker": {"replicas": 3, "template": t()}});
    let mpi = json!({"mpiReplicaSpecs": {"Launcher": {"template": t()}, "Worker": {"replicas": 3, "template": t()}}});
    let ray = json!({"headGroupSpec": {"template": t()}, "workerGroupSpecs": [{"groupName": "g", "replicas": 3, "template": t()}]});
    for (object, kind) in [
        (of("kubeflow.org/v1", "PyTorchJob", json!({"pytorchReplicaSpecs": two})), JobKind::PyTorchJob),
        (of("kubeflow.org/v1", "PaddleJob", json!({"paddleReplicaSpecs": two})), JobKind::PaddleJob),
        (
            of(
                "kubeflow.org/v1",
                "PyTorchJob",
                json!({"pytorchReplicaSpecs": {"Worker": {"replicas": 4, "template": t()}}}),
            ),
            JobKind::PyTorchJob,
        ),
        (
            of(
                "kubeflow.org/v1",
                "JAXJob",
                json!({"jaxReplicaSpecs": {"Worker": {"replicas": 4, "template": t()}}}),
            ),
            JobKind::JAXJob,
        ),
        (of("kubeflow.org/v2beta1", "MPIJob", mpi.clone()), JobKind::MPIJob),
        (of("kubeflow.org/v1", "MPIJob", mpi), JobKind::MPIJob),
        (
            of(
                "batch/v1",
                "Job",
                json!({"parallelism": 4, "completions": 4, "completionMode": "Indexed", "template": t()}),
            ),
            JobKind::Job,
        ),
        (
            of(
                "batch.volcano.sh/v1alpha1",
                "Job",
                json!({"tasks": [{"name": "master", "template": t()}, {"name": "worker", "replicas": 3, "template": t()}]}),
            ),
            JobKind::VolcanoJob,
        ),
        (
            of(
                "leaderworkerset.x-k8s.io/v1",
                "LeaderWorkerSet",
                json!({"leaderWorkerTemplate": {"size": 4, "workerTemplate": t()}}),
            ),
            JobKind::LeaderWorkerSet,
        ),
        (of("ray.io/v1", "RayCluster", ray.clone()), JobKind::RayCluster),
        (of("ray.io/v1", "RayJob", json!({"rayClusterSpec": ray})), JobKind::RayJob),
        (
            of(
                "grove.io/v1alpha1",
                "PodCliqueSet",
                json!({"template": {"cliques": [{"name": "leader", "spec": {"podSpec": {}}}, {"name": "worker", "spec": {"replicas": 3, "podSpec": {}}}]}}),
            ),
            JobKind::PodCliqueSet,
        ),
    ] {
        let (pods, jobs) = resolved(std::slice::from_ref(&object));
        let found: Vec<_> = jobs.jobs.iter().map(|job| (job.id.kind.clone(), job.members.len())).collect();
        assert_eq!(found, [(kind, 4)], "{}: {pods:#?}", object.kind());
        let leads = jobs.jobs[0].members.iter().filter(|m| m.role == Some(Role::Coordinator)).count();
        assert_eq!(leads, 1, "{}: {:?}", object.kind(), jobs.jobs[0].members);
    }
}

#[test]
fn jobsets_number_their_pods_through() {
    let (pods, jobs) = resolved(&[jobset()]);
    assert_eq!((jobs.jobs.len(), jobs.jobs[0].members.len()), (1, 7));
    let last = pods.iter().find(|pod| pod.name.starts_with("js-workers-1-2")).unwrap();
    assert_eq!(last.labels["jobset.sigs.k8s.io/job-global-index"], "2");
    assert_eq!(last.labels["batch.kubernetes.io/job-completion-index"], "2");
}

#[test]
fn groups_of_a_leader_worker_set_are_gangs_of_their_own() {
    let t = || template(json!({}));
    let set = of(
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
        json!({"replicas": 2, "leaderWorkerTemplate": {"size": 3, "leaderTemplate": t(), "workerTemplate": t()}}),
    );
    let (_, jobs) = resolved(&[set]);
    let found: Vec<_> = jobs.jobs.iter().map(|job| (job.id.name.as_str(), job.members.len())).collect();
    assert_eq!(found, [("j-0", 3), ("j-1", 3)]);
}

#[test]
fn the_number_of_pods_is_bounded() {
    let job =
        of("batch/v1", "Job", json!({"parallelism": 4_000_000_000_u32, "template": template(json!({}))}));
    assert_eq!(predicted_pods(&job).len(), MAX_PODS);
}

#[test]
fn operators_declare_the_rendezvous_port() {
    let t = template(json!({}));
    let job =
        of("kubeflow.org/v1", "PyTorchJob", json!({"pytorchReplicaSpecs": {"Master": {"template": t}}}));
    let (pods, _) = resolved(&[job]);
    assert_eq!(pods[0].ports[0].port, 23_456);
}

//! What owners and labels may not do: capture a pod into somebody's job, join steps, take long or break.

use proptest::prelude::*;

use super::*;

fn owner(uid: &str) -> Value {
    by("kubeflow.org/v1", "PyTorchJob", "llama", uid)
}

fn llama() -> Object {
    object("kubeflow.org/v1", "PyTorchJob", "llama", "true", &none(), &json!({}))
}

#[test]
fn a_forged_owner_captures_nobody() {
    let marks = training("pytorchjob", "llama", "worker", 7);
    let genuine = pod("llama-worker-0", &training("pytorchjob", "llama", "worker", 0), &owner("true"));
    let other = object("kubeflow.org/v1", "PyTorchJob", "bert", "bert", &none(), &json!({}));
    let forged = [
        // A UID that no object has: an earlier job of this name, or a lie.
        pod("llama-worker-7", &marks, &owner("stale")),
        // The UID of another job, the UID of nothing, the right UID in another API group.
        pod("llama-worker-7", &marks, &owner("bert")),
        pod("llama-worker-7", &marks, &owner("")),
        pod("llama-worker-7", &marks, &by("evil.example/v1", "PyTorchJob", "llama", "true")),
        pod("llama-worker-7", &json!({}), &by("kubeflow.org/v1", "PyTorchJob", "other", "true")),
    ];
    for forged in forged {
        let pods = [genuine.clone(), forged.clone()];
        let jobs = resolve(&pods, &[llama(), other.clone()]);
        let real = jobs.of_pod(0).map(|(job, _)| job);
        assert!(real.is_some() && jobs.of_pod(1).map(|(job, _)| job) != real, "{:?}", forged.owners);
        assert_eq!(jobs.jobs[real.unwrap()].members.len(), 1);
    }
}

#[test]
fn owners_never_cross_namespaces() {
    let mut away = pod("llama-worker-1", &training("pytorchjob", "llama", "worker", 1), &owner("true"));
    away.namespace = "elsewhere".to_owned();
    let pods = [pod("llama-worker-0", &training("pytorchjob", "llama", "worker", 0), &owner("true")), away];
    let jobs = resolve(&pods, &[llama()]);
    let ids: Vec<(&str, Option<&str>)> =
        jobs.jobs.iter().map(|job| (job.id.namespace.as_str(), job.id.uid.as_deref())).collect();
    assert_eq!(ids, [("elsewhere", None), ("ml", Some("true"))]);
}

#[test]
fn pods_of_one_name_are_two_pods_and_jobs_of_one_name_two_jobs() {
    let marks = training("pytorchjob", "llama", "worker", 0);
    let mut again = pod("llama-worker-0", &marks, &owner("true"));
    again.uid = Some("second".to_owned());
    let pods = [
        pod("llama-worker-0", &marks, &owner("true")),
        again,
        pod("llama-worker-0", &marks, &owner("before")),
    ];
    let jobs = resolve(&pods, &[llama()]);
    let sizes: Vec<(Option<&str>, usize)> =
        jobs.jobs.iter().map(|job| (job.id.uid.as_deref(), job.members.len())).collect();
    assert_eq!(sizes, [(Some("before"), 1), (Some("true"), 2)]);
}

#[test]
fn pods_without_owner_join_the_job_of_their_labels() {
    let pods = [
        pod("llama-master-0", &training("pytorchjob", "llama", "master", 0), &owner("true")),
        pod("llama-worker-0", &training("pytorchjob", "llama", "worker", 0), &none()),
    ];
    let expected = ["PyTorchJob llama true: llama-master-0=coordinator/0 llama-worker-0=worker/1"];
    assert_eq!(lines(&resolve(&pods, &[llama()]), &pods), expected);
    assert_eq!(lines(&resolve(&pods, &[]), &pods), expected);
}

#[test]
fn no_gangs() {
    let gpu = |name: &str, owners: &Value| {
        let mut pod = pod(name, &json!({"app": "web"}), owners);
        pod.gpus = 8;
        pod
    };
    let workflow = by("argoproj.io/v1alpha1", "Workflow", "w", "w");
    let mut step = annotated(
        "step-0",
        &json!({"workflows.argoproj.io/workflow": "w", "katib.kubeflow.org/trial": "t"}),
        &json!({"pod-group-name": "pg-w", "scheduling.k8s.io/group-name": "podgroup-w"}),
        &workflow,
    );
    step.gpus = 8;
    let pods = [
        gpu("deployed", &by("apps/v1", "ReplicaSet", "rs", "rs")),
        gpu("stateful-0", &by("apps/v1", "StatefulSet", "s", "s")),
        gpu("daemon", &by("apps/v1", "DaemonSet", "d", "d")),
        gpu("slurmd-0", &by("slinky.slurm.net/v1alpha1", "NodeSet", "n", "n")),
        step,
        gpu("step-1", &workflow),
        gpu("bare", &none()),
        pod("postgres-1", &json!({}), &by("postgresql.cnpg.io/v1", "Cluster", "db", "c")),
        pod("mirror", &json!({}), &by("v1", "Node", "n1", "n1")),
        // Volcano groups every pod that it schedules; this one's minimum is one.
        annotated("single", &json!({}), &json!({"scheduling.k8s.io/group-name": "podgroup-x"}), &none()),
    ];
    let jobs = resolve(&pods, &[]);
    assert_eq!(jobs.jobs, []);
    assert_eq!(jobs.top_of(4).unwrap().kind, "Workflow");
    assert_eq!(jobs.top_of(6).unwrap().name, "bare");
}

#[test]
fn gangs_made_by_pipelines_trials_and_schedules() {
    let workflow = by("argoproj.io/v1alpha1", "Workflow", "w", "w");
    let trial = by("kubeflow.org/v1beta1", "Trial", "t", "t");
    let cron = by("batch/v1", "CronJob", "nightly", "c");
    let objects = [
        object("kubeflow.org/v1", "PyTorchJob", "llama", "true", &workflow, &json!({})),
        object("batch/v1", "Job", "trial-job", "tj", &trial, &json!({})),
        object("batch/v1", "Job", "nightly-1", "n1", &cron, &json!({})),
        object("batch/v1", "CronJob", "nightly", "c", &none(), &json!({})),
    ];
    let pods = [
        pod("llama-worker-0", &training("pytorchjob", "llama", "worker", 0), &owner("true")),
        pod("tuned", &json!({}), &by("batch/v1", "Job", "trial-job", "tj")),
        pod("own-trial", &json!({}), &trial),
        pod(
            "nightly-1-a",
            &json!({"batch.kubernetes.io/job-completion-index": "0"}),
            &by("batch/v1", "Job", "nightly-1", "n1"),
        ),
    ];
    let jobs = resolve(&pods, &objects);
    assert_eq!(
        lines(&jobs, &pods),
        [
            "Job nightly-1 n1: nightly-1-a=coordinator/0",
            "Job trial-job tj: tuned=-/-",
            "PyTorchJob llama true: llama-worker-0=coordinator/0",
            "Trial t t: own-trial=-/-",
        ]
    );
    let tops: Vec<&str> = (0..4).map(|pod| jobs.top_of(pod).unwrap().kind.as_str()).collect();
    assert_eq!(tops, ["PyTorchJob", "Job", "Trial", "CronJob"]);
}

#[test]
fn other_custom_resources() {
    let mut worker =
        pod("a-1", &json!({"role": "worker"}), &by("train.example.com/v1", "MeshTraining", "a", "a"));
    worker.gpus = 8;
    let pods = [
        pod("a-0", &json!({"role": "master"}), &by("train.example.com/v1", "MeshTraining", "a", "a")),
        worker,
        pod("b-0", &json!({}), &by("train.example.com/v1", "DGLJob", "b", "b")),
    ];
    assert_eq!(
        lines(&resolve(&pods, &[]), &pods),
        ["DGLJob b b: b-0=-/-", "MeshTraining a a: a-0=coordinator/- a-1=worker/-",]
    );
}

#[test]
fn cycles_and_long_chains_end() {
    let ring = |n: u32| {
        object(
            "x.example/v1",
            "Ring",
            &format!("r{n}"),
            &format!("r{n}"),
            &by("x.example/v1", "Ring", &format!("r{}", (n + 1) % 3), &format!("r{}", (n + 1) % 3)),
            &json!({}),
        )
    };
    let pods = [
        pod("p", &json!({}), &by("x.example/v1", "Ring", "r0", "r0")),
        pod("q", &json!({}), &by("v1", "Pod", "q", "pod-q")),
    ];
    assert_eq!(resolve(&pods, &[ring(0), ring(1), ring(2)]).jobs, []);
}

/// Many pods, each with its own Job below one TrainJob: the worst that a real system makes.
#[test]
fn time_grows_with_the_pods_and_not_with_their_square() {
    let set = by("jobset.x-k8s.io/v1alpha2", "JobSet", "t", "s");
    let mut objects = vec![object(
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        "t",
        "s",
        &by("trainer.kubeflow.org/v1alpha1", "TrainJob", "t", "T"),
        &json!({}),
    )];
    let mut pods = Vec::new();
    for n in 0..20_000 {
        let name = format!("t-node-{n}");
        objects.push(object("batch/v1", "Job", &name, &name, &set, &json!({"completions": 1})));
        pods.push(pod(
            &format!("{name}-0-x"),
            &jobset_pod(&name, "t", "node", n, n, 0),
            &by("batch/v1", "Job", &name, &name),
        ));
    }
    let jobs = resolve(&pods, &objects);
    assert_eq!((jobs.jobs.len(), jobs.jobs[0].members.len()), (1, 20_000));
    assert_eq!(jobs.of_pod(7).unwrap().1.rank, Some(7));
}

fn hostile() -> impl Strategy<Value = (Vec<Value>, Vec<Value>)> {
    let text = prop::sample::select(vec![
        "",
        "a",
        "b",
        "0",
        "4294967296",
        "worker",
        "master",
        "rank-9999999999",
        "kubeflow.org",
        "podgroup-a",
        "\u{1b}[31m",
    ]);
    let key = prop::sample::select(vec![
        "role",
        "app",
        "job-name",
        "controller-uid",
        "group-name",
        "training.kubeflow.org/job-name",
        "training.kubeflow.org/replica-index",
        "jobset.sigs.k8s.io/jobset-name",
        "jobset.sigs.k8s.io/job-index",
        "batch.kubernetes.io/job-completion-index",
        "ray.io/cluster",
        "leaderworkerset.sigs.k8s.io/name",
        "leaderworkerset.sigs.k8s.io/group-index",
        "pod-group-name",
        "scheduling.k8s.io/group-name",
    ]);
    let kind = prop::sample::select(vec![
        ("batch/v1", "Job"),
        ("jobset.x-k8s.io/v1", "JobSet"),
        ("ray.io/v1", "RayCluster"),
        ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"),
        ("kubeflow.org/v1", "PyTorchJob"),
        ("trainer.kubeflow.org/v1", "TrainJob"),
        ("v1", "Pod"),
        ("apps/v1", "StatefulSet"),
        ("argoproj.io/v1", "Workflow"),
        ("", "X"),
    ]);
    let owner = (kind.clone(), text.clone(), text.clone(), any::<bool>())
        .prop_map(|((api, kind), name, uid, controller)| json!({"apiVersion": api, "kind": kind, "name": name, "uid": uid, "controller": controller}));
    let owners = prop::collection::vec(owner, 0..3);
    let labels = prop::collection::btree_map(key, text.clone(), 0..5);
    let pod = (text.clone(), text.clone(), labels.clone(), owners.clone()).prop_map(|(name, uid, labels, owners)| {
        json!({"kind": "Pod", "metadata": {"namespace": "ml", "name": name, "uid": uid, "labels": labels, "ownerReferences": owners}})
    });
    let thing = (kind, text.clone(), text, owners).prop_map(|((api, kind), name, uid, owners)| {
        json!({"apiVersion": api, "kind": kind, "metadata": {"namespace": "ml", "name": name, "uid": uid, "ownerReferences": owners},
            "spec": {"replicas": 3, "completions": u64::MAX}})
    });
    (prop::collection::vec(pod, 0..12), prop::collection::vec(thing, 0..12))
}

proptest! {
    /// Whatever is written into pods and objects: each pod is in one job at most, places agree, order does
    /// not matter.
    #[test]
    fn hostile_input((pods, objects) in hostile(), group in any::<bool>()) {
        let mut pods: Vec<Pod> = pods.iter().map(read).collect();
        let objects: Vec<Object> = objects.into_iter().filter_map(|o| Object::from_value(o).ok()).collect();
        let grouping = Grouping { group_by: if group { vec!["app".to_owned(), "role".to_owned()] } else { Vec::new() }, ..Grouping::default() };
        let jobs = Jobs::resolve(&pods, &objects, &grouping);
        let members: usize = jobs.jobs.iter().map(|job| job.members.len()).sum();
        prop_assert_eq!(members, (0..pods.len()).filter(|pod| jobs.of_pod(*pod).is_some()).count());
        prop_assert!(jobs.jobs.windows(2).all(|pair| pair[0].id < pair[1].id));
        for (job, found) in jobs.jobs.iter().enumerate() {
            for member in &found.members {
                prop_assert_eq!(jobs.of_pod(member.pod), Some((job, member)));
            }
        }
        let pairs: Vec<(usize, usize)> = (0..pods.len()).map(|pod| (pod, pod + 1)).collect();
        let _ = suggest_group_by(&pods, &jobs, &pairs);
        let ids: Vec<JobId> = jobs.jobs.iter().map(|job| job.id.clone()).collect();
        // With UIDs used twice the first pod is believed, so only reverse where none is.
        let uids: std::collections::BTreeSet<_> = pods.iter().map(|pod| &pod.uid).collect();
        if uids.len() == pods.len() {
            pods.reverse();
            let again: Vec<JobId> = Jobs::resolve(&pods, &objects, &grouping).jobs.into_iter().map(|job| job.id).collect();
            if !group {
                prop_assert_eq!(ids, again);
            }
        }
    }
}

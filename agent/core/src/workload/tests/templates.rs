//! Where templates are found, and how they are patched.

use super::*;

fn names(object: &Object) -> Vec<(String, u32, Option<Role>)> {
    templates(object).into_iter().map(|t| (t.name, t.replicas, t.role)).collect()
}

fn of(api: &str, kind: &str, spec: Value) -> Object {
    object(
        json!({"apiVersion": api, "kind": kind, "metadata": {"name": "j", "namespace": "ml"}, "spec": spec}),
    )
}

#[test]
fn every_kind_has_its_templates() {
    let t = || template(json!({"k": "v"}));
    let (lead, work) = (Some(Role::Coordinator), Some(Role::Worker));
    let cases = [
        (of("apps/v1", "Deployment", json!({"replicas": 3, "template": t()})), vec![("", 3, None)]),
        (
            of("batch/v1", "Job", json!({"parallelism": 4, "completions": 2, "template": t()})),
            vec![("", 2, None)],
        ),
        (
            of("batch/v1", "CronJob", json!({"jobTemplate": {"spec": {"parallelism": 4, "template": t()}}})),
            vec![("", 4, None)],
        ),
        (
            of(
                "kubeflow.org/v1",
                "TFJob",
                json!({"tfReplicaSpecs": {"PS": {"template": t()}, "Evaluator": {"template": t()}}}),
            ),
            vec![("Evaluator", 1, Some(Role::Other)), ("PS", 1, Some(Role::ParameterServer))],
        ),
        (
            of(
                "kubeflow.org/v2beta1",
                "MPIJob",
                json!({"mpiReplicaSpecs": {"Launcher": {"template": t()}, "Worker": {"replicas": 7, "template": t()}}}),
            ),
            vec![("Launcher", 1, lead), ("Worker", 7, work)],
        ),
        (jobset(), vec![("leader", 1, lead), ("workers", 6, work)]),
        (
            of(
                "batch.volcano.sh/v1alpha1",
                "Job",
                json!({"tasks": [{"name": "master", "template": t()}, {"name": "worker", "replicas": 2, "template": t()}]}),
            ),
            vec![("master", 1, lead), ("worker", 2, work)],
        ),
        (
            of(
                "leaderworkerset.x-k8s.io/v1",
                "LeaderWorkerSet",
                json!({"replicas": 2, "leaderWorkerTemplate": {"size": 4, "leaderTemplate": t(), "workerTemplate": t()}}),
            ),
            vec![("leader", 2, lead), ("worker", 6, work)],
        ),
        (
            of(
                "ray.io/v1",
                "RayJob",
                json!({"rayClusterSpec": {"headGroupSpec": {"template": t()}, "workerGroupSpecs": [{"groupName": "gpu", "replicas": 2, "numOfHosts": 2, "template": t()}]}}),
            ),
            vec![("head", 1, lead), ("gpu", 4, work)],
        ),
        (
            of(
                "grove.io/v1alpha1",
                "PodCliqueSet",
                json!({"replicas": 2, "template": {"cliques": [{"name": "worker", "labels": {"k": "v"}, "spec": {"replicas": 3, "podSpec": {"containers": []}}}]}}),
            ),
            vec![("worker", 6, work)],
        ),
        (of("trainer.kubeflow.org/v1alpha1", "TrainJob", json!({"runtimeRef": {"name": "torch"}})), vec![]),
        // Another group's Job is no batch Job.
        (of("example.org/v1", "Job", json!({"template": t()})), vec![]),
    ];
    for (object, expected) in cases {
        let expected: Vec<_> = expected.into_iter().map(|(n, r, role)| (n.to_owned(), r, role)).collect();
        assert_eq!(names(&object), expected, "{} {}", object.api_version(), object.kind());
        for template in templates(&object) {
            assert!(template.spec.get("containers").is_some());
        }
    }
}

#[test]
fn merge_patch_of_the_standard() {
    // RFC 7386, appendix A.
    for (target, patch, result) in [
        (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
        (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
        (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
        (json!(["a", "b"]), json!(["c"]), json!(["c"])),
        (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
        (json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"})),
        (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
    ] {
        assert_eq!(merge(&target, &patch), result);
    }
}

#[test]
fn lists_on_the_way_are_written_whole() {
    let set = jobset();
    let found = templates(&set);
    let change = json!({"spec": {"nodeSelector": {"z": "a"}}});
    let patch = patch_templates(&set, &[(&found[0].path, change.clone()), (&found[1].path, change)]).unwrap();
    let after = object(merge(set.value(), &patch));
    for (before, after) in templates(&set).iter().zip(templates(&after)) {
        assert_eq!(after.spec["nodeSelector"], json!({"z": "a"}));
        assert_eq!((&before.labels, before.replicas), (&after.labels, after.replicas));
    }
    assert_eq!(patch["spec"].as_object().unwrap().len(), 1, "nothing else is touched");
}

#[test]
fn maps_on_the_way_stay_small() {
    let job = of(
        "kubeflow.org/v1",
        "PyTorchJob",
        json!({"pytorchReplicaSpecs": {
        "Master": {"template": template(json!({"zone": "b"}))}, "Worker": {"template": template(json!({}))}}}),
    );
    let path = templates(&job)[0].path.clone();
    let patch = patch_templates(&job, &[(&path, json!({"metadata": {"labels": {"zone": null}}}))]).unwrap();
    let expected = json!({"spec": {"pytorchReplicaSpecs": {"Master": {"template": {"metadata": {"labels": {"zone": null}}}}}}});
    assert_eq!(patch, expected);
    assert_eq!(patch_templates(&job, &[(&[PathStep::field("nowhere")], json!({}))]), None);
}

#[test]
fn cliques_name_their_parts_differently() {
    let set = of(
        "grove.io/v1alpha1",
        "PodCliqueSet",
        json!({"template": {"cliques": [
        {"name": "w", "spec": {"replicas": 1, "podSpec": {"containers": []}}}]}}),
    );
    let path = templates(&set)[0].path.clone();
    let change = json!({"metadata": {"labels": {"k": "v"}}, "spec": {"nodeSelector": {"z": "a"}}});
    let after = object(merge(set.value(), &patch_templates(&set, &[(&path, change)]).unwrap()));
    let after = templates(&after);
    assert_eq!((after[0].labels["k"].as_str(), &after[0].spec["nodeSelector"]["z"]), ("v", &json!("a")));
}

fn train_job(spec: Value) -> Object {
    let spec = merge(&json!({"runtimeRef": {"name": "torch"}, "trainer": {"numNodes": 3}}), &spec);
    of("trainer.kubeflow.org/v1alpha1", "TrainJob", spec)
}

fn runtime() -> Object {
    object(
        json!({"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "ClusterTrainingRuntime", "metadata": {"name": "torch"},
        "spec": {"mlPolicy": {"torch": {}}, "template": {"spec": {"replicatedJobs": [{"name": "node", "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"template": {"spec": {"containers": [{"name": "node"}]}}}}}]}}}}),
    )
}

#[test]
fn train_jobs_override_their_runtime_in_each_versions_way() {
    let change = json!({"spec": {"nodeSelector": {"z": "a"}}});
    let node = [PathStep::field("node")];
    for (spec, field) in [
        (json!({"podSpecOverrides": [{"targetJobs": [{"name": "other"}]}]}), "podSpecOverrides"),
        (json!({"podTemplateOverrides": []}), "podTemplateOverrides"),
        (json!({}), "runtimePatches"),
    ] {
        let job = train_job(spec);
        let patch = patch_templates(&job, &[(&node, change.clone())]).unwrap();
        assert!(patch["spec"].get(field).is_some(), "{patch}");
        let after = object(merge(job.value(), &patch));
        let set = with_runtime(&after, &[runtime()]).unwrap();
        let found = templates(&set);
        assert_eq!((found[0].replicas, &found[0].spec["nodeSelector"]["z"]), (3, &json!("a")), "{field}");
    }
    let relabel = json!({"metadata": {"labels": {"k": "v"}}});
    assert_eq!(patch_templates(&train_job(json!({"podSpecOverrides": []})), &[(&node, relabel)]), None);
    let spread = json!({"spec": {"topologySpreadConstraints": null}});
    assert_eq!(patch_templates(&train_job(json!({})), &[(&node, spread)]), None, "no place for it");
    assert_eq!(with_runtime(&train_job(json!({})), &[]), None);
}

//! The cluster after a change.

use super::*;

fn node(name: &str, zone: &str, gpus: u32) -> Object {
    let taints = if gpus > 0 {
        json!([{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}])
    } else {
        json!([])
    };
    object(json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": zone}}, "spec": {"taints": taints},
        "status": {"allocatable": {"cpu": "8", "nvidia.com/gpu": gpus.to_string()}}}))
}

fn cluster() -> Vec<Object> {
    let pod = |name: &str, owner: Value, node: &str, labels: Value, spec: Value| {
        let spec = merge(&json!({"nodeName": node, "containers": [{"name": "c"}]}), &spec);
        object(
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ml", "uid": name,
            "labels": labels, "ownerReferences": [owner]}, "spec": spec}),
        )
    };
    let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "lead-5d", "uid": "rs", "controller": true});
    let job =
        json!({"apiVersion": "batch/v1", "kind": "Job", "name": "work", "uid": "job", "controller": true});
    let gpu = json!({"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 8}}}]});
    vec![
        node("a1", "zone-a", 8),
        node("a2", "zone-a", 8),
        node("b1", "zone-b", 0),
        object(
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "lead", "namespace": "ml", "uid": "dep"},
            "spec": {"template": template(json!({"app": "t", "zone": "zone-b"}))}}),
        ),
        pod(
            "lead-5d-x",
            set,
            "b1",
            json!({"app": "t", "zone": "zone-b", "pod-template-hash": "5d"}),
            json!({"tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]}),
        ),
        pod("work-0", job.clone(), "a1", json!({"app": "t", "w": "1"}), gpu.clone()),
        pod("work-1", job, "a2", json!({"app": "t", "w": "1"}), gpu),
    ]
}

fn lead(objects: &[Object]) -> Pod {
    objects.iter().filter_map(Pod::from_object).find(|pod| pod.name == "lead-5d-x").unwrap()
}

fn change(change: Value) -> Change {
    let objects = cluster();
    let path = templates(&objects[3])[0].path.clone();
    let patch = patch_templates(&objects[3], &[(&path, change)]).unwrap();
    Change::Merge { target: Target::of(&objects[3]), patch }
}

#[test]
fn pods_come_back_with_the_new_labels_and_stay_where_they_may() {
    let after = simulate(&cluster(), &[change(json!({"metadata": {"labels": {"zone": "zone-a"}}}))]);
    let pod = lead(&after);
    assert_eq!((pod.labels["zone"].as_str(), pod.labels["pod-template-hash"].as_str()), ("zone-a", "5d"));
    assert_eq!(pod.node.as_deref(), Some("b1"));
}

#[test]
fn placement_moves_pods_or_leaves_them_pending() {
    let to_a = json!({"spec": {"nodeSelector": {"topology.kubernetes.io/zone": "zone-a"}}});
    assert_eq!(lead(&simulate(&cluster(), &[change(to_a.clone())])).node, None, "the taint is not tolerated");
    let tolerant =
        merge(&to_a, &json!({"spec": {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}}));
    let after = simulate(&cluster(), &[change(tolerant)]);
    assert_eq!(lead(&after).node.as_deref(), Some("a1"));
    let pod = after.iter().find(|object| object.name() == "lead-5d-x").unwrap();
    assert_eq!(pod.items("/spec/tolerations").count(), 2, "what admission added stays");
}

#[test]
fn affinity_to_the_workers_brings_the_coordinator_there() {
    let term =
        json!({"topologyKey": "topology.kubernetes.io/zone", "labelSelector": {"matchLabels": {"w": "1"}}});
    let near = json!({"spec": {"tolerations": [{"operator": "Exists"}],
        "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}});
    assert_eq!(lead(&simulate(&cluster(), &[change(near)])).node.as_deref(), Some("a1"));
}

#[test]
fn objects_come_and_go() {
    let policy = object(json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "p", "namespace": "ml"}, "spec": {}}));
    let after = simulate(&cluster(), &[Change::Apply(policy.clone())]);
    assert_eq!(after.last(), Some(&policy));
    let gone = simulate(&after, &[Change::Delete(Target::of(&policy))]);
    assert_eq!(gone, cluster());
    let missing = Change::Merge { target: Target::of(&policy), patch: json!({"spec": null}) };
    assert_eq!(simulate(&cluster(), &[missing]), cluster(), "what is not there is not changed");
}

#[test]
fn nodes_take_what_fits() {
    let gpu = Node::from_object(&node("a1", "zone-a", 8)).unwrap();
    let asks = |count: u32| json!({"containers": [{"resources": {"limits": {"nvidia.com/gpu": count}}}]});
    assert_eq!(fit(&asks(8), &gpu), Fit::Fits);
    assert_eq!(fit(&asks(9), &gpu), Fit::Lacks("nvidia.com/gpu".to_owned()));
    assert!(matches!(fit(&json!({}), &gpu), Fit::Tainted(_)));
    let term = |key: &str, operator: &str, values: Value| {
        json!({"tolerations": [{"operator": "Exists"}], "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]}}}})
    };
    let zone = "topology.kubernetes.io/zone";
    for (key, operator, values, fits) in [
        (zone, "In", json!(["zone-a", "zone-b"]), true),
        (zone, "NotIn", json!(["zone-a"]), false),
        (zone, "Exists", json!([]), true),
        (zone, "DoesNotExist", json!([]), false),
        ("absent", "NotIn", json!(["x"]), true),
        ("absent", "Gt", json!(["1"]), false),
    ] {
        let found = fit(&term(key, operator, values), &gpu) == Fit::Fits;
        assert_eq!(found, fits, "{key} {operator}");
    }
    assert_eq!(
        fit(
            &json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}}}),
            &gpu
        ),
        Fit::Excluded
    );
}

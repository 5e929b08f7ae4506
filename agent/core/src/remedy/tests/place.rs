//! Policies that keep zones apart: the job comes into one zone, and the policies stay.

use super::*;

/// The shape of the reference lab: a coordinator somewhere, workers where the accelerators are, allow-only policies
/// that key on a label with the zone's name.
fn lab() -> Cluster {
    let coordinator = object(
        "apps/v1",
        "Deployment",
        "coordinator",
        json!({"replicas": 1, "selector": {"matchLabels": {"app": "train", "role": "coordinator"}},
        "template": {"metadata": {"labels": {"app": "train", "role": "coordinator", "zone": "zone-b"}}, "spec": {"containers": [{"name": "main"}]}}}),
    );
    let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "coordinator-5b", "namespace": "ml", "uid": "uid-rs",
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "coordinator", "uid": "uid-Deployment-coordinator", "controller": true}]}, "spec": {}});
    let workers = object(
        "batch/v1",
        "Job",
        "workers",
        json!({"parallelism": 2, "template": {"metadata": {"labels": {"app": "train", "role": "gpu-worker", "zone": "zone-a"}},
        "spec": {"nodeSelector": {"pool": "gpu"}, "tolerations": [{"key": "gpu", "value": "present", "effect": "NoSchedule"}], "containers": [{"name": "main"}]}}}),
    );
    let labels = |role: &str, zone: &str| json!({"app": "train", "role": role, "zone": zone});
    let zonal = |zone: &str| {
        json!({"endpointSelector": {"matchLabels": {"zone": zone}}, "ingress": [{"fromEndpoints": [{"matchLabels": {"zone": zone}}]}],
        "egress": [{"toEndpoints": [{"matchLabels": {"zone": zone}}]}, {"toEndpoints": [{"matchLabels": {"io.kubernetes.pod.namespace": "kube-system"}}]}]})
    };
    let mut cluster = Cluster::new([
        pod("coordinator-5b-x", "cpu-b", 0, labels("coordinator", "zone-b"), Some(&set)),
        pod("workers-1", "gpu-a1", 0, labels("gpu-worker", "zone-a"), Some(&workers)),
        pod("workers-2", "gpu-a2", 0, labels("gpu-worker", "zone-a"), Some(&workers)),
        coordinator,
        set,
        workers,
        cnp("zone-a", zonal("zone-a")),
        cnp("zone-b", zonal("zone-b")),
    ])
    .with(nodes())
    .blocked("workers-1", "coordinator-5b-x", 9999)
    .blocked("workers-2", "coordinator-5b-x", 9999);
    cluster.group_by = vec!["app".to_owned()];
    cluster
}

#[test]
fn the_lab_needs_the_move_and_the_label() {
    let remedies = lab().remedies();
    assert_eq!(
        outline(&remedies),
        [(vec!["co-locate", "tolerate", "relabel"], true), (vec!["allow-traffic"], true)]
    );
    let first = &remedies[0];
    assert!(!first.weakens_isolation);
    assert_eq!(first.needs, ["rollout"]);
    assert!(first.steps.iter().all(|step| step.target.kind == "Deployment"
        && step.target.name == "coordinator"
        && step.patch_type == "merge"));
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone-a"]}]}]}}});
    assert_eq!(patch(first, 0), json!({"spec": {"template": {"spec": {"affinity": affinity}}}}));
    assert_eq!(
        patch(first, 1),
        json!({"spec": {"template": {"spec": {"tolerations": [{"key": "gpu", "operator": "Equal", "value": "present", "effect": "NoSchedule"}]}}}})
    );
    assert_eq!(patch(first, 2), json!({"spec": {"template": {"metadata": {"labels": {"zone": "zone-a"}}}}}));
}

#[test]
fn a_label_that_the_selector_fixes_cannot_change() {
    let mut cluster = lab();
    let deployment = cluster.objects.iter_mut().find(|o| o["kind"] == "Deployment").unwrap();
    deployment["spec"]["selector"]["matchLabels"]["zone"] = json!("zone-b");
    assert_eq!(outline(&cluster.remedies()), [(vec!["allow-traffic"], true)]);
}

#[test]
fn the_only_gpu_zone_is_full() {
    let mut cluster = lab();
    // The workers need accelerators now, and somebody else has them.
    for object in &mut cluster.objects {
        if object["metadata"]["name"].as_str().is_some_and(|n| n.starts_with("workers-")) {
            object["spec"]["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": 8}});
        }
        if object["kind"] == "Job" {
            object["spec"]["template"]["spec"]["containers"][0]["resources"] =
                json!({"limits": {"nvidia.com/gpu": 8}});
        }
    }
    assert_eq!(outline(&cluster.remedies())[0].0, ["co-locate", "tolerate", "relabel"]);
    let other = pod("squatter", "gpu-a2", 16, json!({"app": "other"}), None);
    let cluster = cluster.with([other]);
    assert!(cluster.remedies().iter().all(|remedy| !kinds(remedy).contains(&"co-locate")));
}

/// A policy that keeps apart what is labelled with different zones, for pods labelled by admission.
fn apart(label: &str) -> Vec<Value> {
    ["zone-a", "zone-b"]
        .map(|zone| {
            netpol(
                zone,
                json!({"podSelector": {"matchLabels": {label: zone}}, "policyTypes": ["Ingress"],
                "ingress": [{"from": [{"podSelector": {"matchLabels": {label: zone}}}]}]}),
            )
        })
        .to_vec()
}

fn labelled(mut objects: Vec<Value>, label: &str) -> Vec<Value> {
    for object in &mut objects {
        if object["kind"] == "Pod" {
            let zone = if object["spec"]["nodeName"] == "cpu-b" { "zone-b" } else { "zone-a" };
            object["metadata"]["labels"][label] = json!(zone);
        }
    }
    objects
}

#[test]
fn a_master_in_the_wrong_zone() {
    let label = "topology.kubernetes.io/zone";
    let mut cluster = Cluster::new(labelled(pytorch("cpu-b", &["gpu-a1", "gpu-a2"]), label))
        .with(nodes())
        .with(apart(label))
        .blocked("llama-worker-0", "llama-master-0", 23456);
    cluster.settings.cni = crate::policy::Cni::Other;
    let remedies = cluster.remedies();
    assert_eq!(
        outline(&remedies),
        [(vec!["co-locate", "tolerate", "relabel"], true), (vec!["allow-traffic"], true)]
    );
    let first = &remedies[0];
    assert_eq!(
        (first.needs.as_slice(), first.steps[0].target.kind.as_str()),
        (&["resubmit".to_owned()][..], "PyTorchJob")
    );
    let specs = &patch(first, 0)["spec"]["pytorchReplicaSpecs"];
    // The workers are submitted again too, and could end up in the third zone.
    for role in ["Master", "Worker"] {
        assert!(specs[role]["template"]["spec"]["affinity"].to_string().contains("zone-a"), "{specs}");
    }
}

#[test]
fn an_existing_placement_is_kept_and_a_conflicting_zone_replaced() {
    let label = "topology.kubernetes.io/zone";
    let mut cluster = Cluster::new(labelled(pytorch("cpu-b", &["gpu-a1", "gpu-a2"]), label))
        .with(nodes())
        .with(apart(label))
        .blocked("llama-worker-0", "llama-master-0", 23456);
    cluster.settings.cni = crate::policy::Cni::Other;
    let job = cluster.objects.iter_mut().find(|o| o["kind"] == "PyTorchJob").unwrap();
    let specs = &mut job["spec"]["pytorchReplicaSpecs"];
    specs["Master"]["template"]["spec"]["nodeSelector"] = json!({label: "zone-b"});
    specs["Master"]["template"]["spec"]["tolerations"] = json!([{"key": "other", "operator": "Exists"}]);
    let term = |key: &str| json!({"matchExpressions": [{"key": key, "operator": "Exists"}]});
    specs["Worker"]["template"]["spec"]["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": [term("pool"), term("other")]}}});
    let remedies = cluster.remedies();
    assert_eq!(outline(&remedies)[0], (vec!["co-locate", "tolerate", "relabel"], true));
    let specs = patch(&remedies[0], 0)["spec"]["pytorchReplicaSpecs"].clone();
    assert_eq!(specs["Master"]["template"]["spec"], json!({"nodeSelector": {label: "zone-a"}}));
    let terms = &specs["Worker"]["template"]["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        ["nodeSelectorTerms"];
    for (term, key) in [(&terms[0], "pool"), (&terms[1], "other")] {
        assert_eq!(term["matchExpressions"][0]["key"], key);
        assert_eq!(
            term["matchExpressions"][1],
            json!({"key": label, "operator": "In", "values": ["zone-a"]})
        );
    }
    let tolerations =
        &patch(&remedies[0], 1)["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["tolerations"];
    assert_eq!(
        (tolerations[0]["key"].as_str(), tolerations[1]["key"].as_str()),
        (Some("other"), Some("gpu"))
    );
}

/// Two kinds of pods of one object, with its system's marks.
fn two(api: &str, kind: &str, spec: Value, marks: [Value; 2]) -> Cluster {
    let label = "topology.kubernetes.io/zone";
    let job = object(api, kind, "gang", spec);
    let [lead, work] = marks;
    let pods = vec![
        pod("gang-lead", "cpu-b", 0, lead, Some(&job)),
        pod("gang-work-0", "gpu-a1", 8, work.clone(), Some(&job)),
        pod("gang-work-1", "gpu-a2", 8, work, Some(&job)),
        job,
    ];
    let mut cluster = Cluster::new(labelled(pods, label)).with(nodes()).with(apart(label)).blocked(
        "gang-work-0",
        "gang-lead",
        29500,
    );
    cluster.settings.cni = crate::policy::Cni::Other;
    cluster
}

fn template(gpus: u32) -> Value {
    let limits = if gpus > 0 { json!({"limits": {"nvidia.com/gpu": gpus}}) } else { json!({}) };
    json!({"metadata": {"labels": {}}, "spec": {"containers": [{"name": "main", "resources": limits}]}})
}

#[test]
fn a_jobset_of_two_replicated_jobs() {
    let job = |name: &str, gpus: u32| json!({"name": name, "replicas": 1, "template": {"spec": {"template": template(gpus)}}});
    let marks = |name: &str| json!({"jobset.sigs.k8s.io/jobset-name": "gang", "jobset.sigs.k8s.io/replicatedjob-name": name});
    let cluster = two(
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        json!({"replicatedJobs": [job("leader", 0), job("workers", 8)]}),
        [marks("leader"), marks("workers")],
    );
    let remedies = cluster.remedies();
    assert_eq!(outline(&remedies)[0], (vec!["co-locate", "tolerate", "relabel"], true));
    // A merge patch replaces the list, so each step has to repeat everything in it, and what the step before did.
    let jobs = patch(&remedies[0], 1)["spec"]["replicatedJobs"].clone();
    let lead = &jobs[0]["template"]["spec"]["template"]["spec"];
    assert!(
        lead["affinity"].to_string().contains("zone-a") && lead["tolerations"][0]["key"] == "gpu",
        "{jobs}"
    );
    assert_eq!(jobs[1]["name"], "workers");
}

#[test]
fn an_mpi_job() {
    let marks = |name: &str| json!({"training.kubeflow.org/job-name": "gang", "training.kubeflow.org/operator-name": "mpi-operator", "training.kubeflow.org/job-role": name});
    let spec = json!({"mpiReplicaSpecs": {"Launcher": {"replicas": 1, "template": template(0)}, "Worker": {"replicas": 2, "template": template(8)}}});
    let remedies =
        two("kubeflow.org/v2beta1", "MPIJob", spec, [marks("launcher"), marks("worker")]).remedies();
    assert_eq!(outline(&remedies)[0], (vec!["co-locate", "tolerate", "relabel"], true));
    assert!(
        patch(&remedies[0], 0)["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["affinity"]
            .is_object()
    );
}

#[test]
fn a_ray_cluster() {
    let marks = |kind: &str, group: &str| json!({"ray.io/cluster": "gang", "ray.io/node-type": kind, "ray.io/group": group});
    let spec = json!({"headGroupSpec": {"template": template(0)}, "workerGroupSpecs": [{"groupName": "gpus", "replicas": 2, "template": template(8)}]});
    let remedies =
        two("ray.io/v1", "RayCluster", spec, [marks("head", "headgroup"), marks("worker", "gpus")])
            .remedies();
    assert_eq!(outline(&remedies)[0], (vec!["co-locate", "tolerate", "relabel"], true));
    assert_eq!(patch(&remedies[0], 0)["spec"]["workerGroupSpecs"][0]["groupName"], "gpus");
}

#[test]
fn a_spread_constraint_goes_and_none_comes() {
    let spread = json!([{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "train"}}}]);
    let mut cluster = lab();
    let deployment = cluster.objects.iter_mut().find(|o| o["kind"] == "Deployment").unwrap();
    deployment["spec"]["template"]["spec"]["topologySpreadConstraints"] = spread;
    let remedies = cluster.remedies();
    assert_eq!(outline(&remedies)[0], (vec!["remove-zone-spread", "co-locate", "tolerate", "relabel"], true));
    assert_eq!(
        patch(&remedies[0], 0),
        json!({"spec": {"template": {"spec": {"topologySpreadConstraints": null}}}})
    );
    let mentions = |step: &crate::report::StepReport| step.patch.contains("topologySpreadConstraints");
    assert!(
        remedies
            .iter()
            .flat_map(|r| &r.steps)
            .filter(|step| step.kind != "remove-zone-spread")
            .all(|step| !mentions(step))
    );
}

#[test]
fn a_lying_label_is_corrected_where_that_locks_nothing() {
    let mut cluster = lab();
    cluster.symptom = Symptom::ZoneLabelMismatch;
    cluster.cause = CauseKind::Label;
    cluster.blocked.clear();
    cluster.objects.retain(|o| o["kind"] != "CiliumNetworkPolicy");
    for object in &mut cluster.objects {
        if object["metadata"]["name"] == "coordinator-5b-x" {
            object["metadata"]["labels"]["zone"] = json!("zone-a");
        }
        if object["kind"] == "Deployment" {
            object["spec"]["template"]["metadata"]["labels"]["zone"] = json!("zone-a");
        }
    }
    let remedies = cluster.remedies();
    assert_eq!(kinds(&remedies[0]), ["relabel"]);
    assert!(remedies[0].verified);
    assert_eq!(
        patch(&remedies[0], 0),
        json!({"spec": {"template": {"metadata": {"labels": {"zone": "zone-b"}}}}})
    );

    // With the policies, the true label would lock the door: the pods have to come to where the label says.
    let policies = lab().objects.into_iter().filter(|o| o["kind"] == "CiliumNetworkPolicy");
    let remedies = cluster.with(policies).remedies();
    assert_eq!(outline(&remedies), [(vec!["co-locate", "tolerate"], true)]);
}

#[test]
fn pods_without_owner_are_their_own_templates() {
    let labels = |zone: &str| json!({"app": "train", "zone": zone});
    let mut cluster = lab();
    cluster.objects.retain(|o| o["kind"] == "CiliumNetworkPolicy" || o["kind"] == "Node");
    let mut cluster = cluster.with([
        pod("head", "cpu-b", 0, labels("zone-b"), None),
        pod("tail", "gpu-a1", 8, labels("zone-a"), None),
    ]);
    cluster.blocked = vec![("tail", "head", Protocol::Tcp, 29500)];
    let remedies = cluster.remedies();
    assert_eq!(outline(&remedies)[0], (vec!["co-locate", "tolerate", "relabel"], true));
    assert_eq!(remedies[0].needs, ["recreate"]);
    assert_eq!(
        (remedies[0].steps[0].target.kind.as_str(), remedies[0].steps[0].target.name.as_str()),
        ("Pod", "head")
    );
}

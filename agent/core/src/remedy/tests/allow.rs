//! Default deny: a policy opens the doors between the job's pods, and nothing else.

use super::*;

fn ml(names: &[(&str, Value)]) -> Vec<Value> {
    pytorch("gpu-a1", &["gpu-a2", "gpu-a2"])
        .into_iter()
        .chain(nodes())
        .chain(names.iter().map(|(n, s)| cnp(n, s.clone())))
        .collect()
}

#[test]
fn ingress_default_deny_of_network_policy() {
    let deny = netpol("default-deny", json!({"podSelector": {}, "policyTypes": ["Ingress"]}));
    let remedies =
        Cluster::new(ml(&[])).with([deny]).blocked("llama-worker-0", "llama-master-0", 23456).remedies();
    assert_eq!(outline(&remedies), [(vec!["allow-traffic"], true)]);
    assert!(remedies[0].weakens_isolation && remedies[0].needs.is_empty());
    let step = &remedies[0].steps[0];
    assert_eq!((step.patch_type, step.target.api_version.as_str()), ("apply", "networking.k8s.io/v1"));
    assert_eq!(
        patch(&remedies[0], 0),
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "firedoor-allow-llama", "namespace": "ml"},
        "spec": {"podSelector": {"matchLabels": {"training.kubeflow.org/job-name": "llama"}}, "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"podSelector": {"matchLabels": {"training.kubeflow.org/job-name": "llama"}}}]}]}})
    );
}

#[test]
fn dns_that_an_egress_policy_forgot() {
    let inside = json!({"endpointSelector": {}, "egress": [{"toEndpoints": [{}]}]});
    let remedies = Cluster::new(ml(&[("only-inside", inside)]))
        .with([dns()])
        .cause(CauseKind::DnsBlocked)
        .blocked("llama-worker-0", "coredns-1", 53)
        .remedies();
    assert_eq!(outline(&remedies), [(vec!["allow-traffic"], true)]);
    let spec = &patch(&remedies[0], 0)["spec"];
    assert!(spec.get("ingress").is_none());
    assert_eq!(
        spec["egress"],
        json!([{"toEndpoints": [{"matchLabels": {"k8s:io.kubernetes.pod.namespace": "kube-system", "k8s:k8s-app": "kube-dns"}}],
        "toPorts": [{"ports": [{"port": "53", "protocol": "UDP"}, {"port": "53", "protocol": "TCP"}]}]}])
    );
}

#[test]
fn an_unknown_name_server_cannot_be_checked() {
    let inside = json!({"endpointSelector": {}, "egress": [{"toEndpoints": [{}]}]});
    let remedies = Cluster::new(ml(&[("only-inside", inside)]))
        .cause(CauseKind::DnsBlocked)
        .blocked("llama-worker-0", "10.96.0.10", 53)
        .remedies();
    // Without the name server's pod nothing says that this policy is what keeps it away.
    assert!(remedies.iter().all(|remedy| !remedy.verified), "{:?}", outline(&remedies));
}

#[test]
fn partly_isolated_job_gets_no_new_isolation() {
    // Only the workers are isolated, and only outwards.
    let out = json!({"endpointSelector": {"matchLabels": {"training.kubeflow.org/replica-type": "worker"}},
        "egress": [{"toEndpoints": [{"matchLabels": {"training.kubeflow.org/replica-type": "worker"}}]}]});
    let mut cluster =
        Cluster::new(ml(&[("workers", out)])).blocked("llama-worker-0", "llama-master-0", 23456);
    for version in [None, Some((1, 15))] {
        cluster.settings.cilium_version = version;
        let remedies = cluster.remedies();
        assert_eq!(outline(&remedies), [(vec!["allow-traffic"], true)], "{version:?}");
        let spec = &patch(&remedies[0], 0)["spec"];
        assert_eq!(spec["endpointSelector"]["matchLabels"]["training.kubeflow.org/replica-type"], "worker");
        assert!(spec.get("enableDefaultDeny").is_none() && spec.get("ingress").is_none());
    }
    cluster.settings.cilium_version = Some((1, 18));
    let remedies = cluster.remedies();
    assert_eq!(outline(&remedies), [(vec!["allow-traffic"], true)]);
    let spec = &patch(&remedies[0], 0)["spec"];
    assert_eq!(spec["enableDefaultDeny"], json!({"ingress": false, "egress": false}));
    assert_eq!(spec["endpointSelector"], json!({"matchLabels": {"training.kubeflow.org/job-name": "llama"}}));
    assert!(remedies[0].needs.is_empty());
}

#[test]
fn a_neighbour_with_the_same_label_is_not_let_in() {
    let stranger = pod(
        "llama-tf",
        "cpu-b",
        0,
        json!({"training.kubeflow.org/job-name": "llama", "training.kubeflow.org/operator-name": "tfjob-controller",
        "training.kubeflow.org/replica-type": "ps"}),
        Some(
            &json!({"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "llama", "uid": "tf"}}),
        ),
    );
    let deny = netpol("default-deny", json!({"podSelector": {}, "policyTypes": ["Ingress"]}));
    let remedies = Cluster::new(ml(&[]))
        .with([deny, stranger])
        .blocked("llama-worker-0", "llama-master-0", 23456)
        .remedies();
    assert_eq!(outline(&remedies), [(vec!["allow-traffic"], true)]);
    let labels = &patch(&remedies[0], 0)["spec"]["podSelector"]["matchLabels"];
    assert_eq!(
        *labels,
        json!({"training.kubeflow.org/job-name": "llama", "training.kubeflow.org/operator-name": "pytorchjob-controller"})
    );
    assert!(remedies[0].summary.contains("nothing else"), "{}", remedies[0].summary);
}

#[test]
fn ipv6_only_pods() {
    let deny = netpol("default-deny", json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}));
    let mut cluster = Cluster::new(ml(&[])).with([deny]).blocked("llama-worker-0", "llama-master-0", 23456);
    for (number, object) in cluster.objects.iter_mut().filter(|o| o["kind"] == "Pod").enumerate() {
        object["status"]["podIPs"] = json!([{"ip": format!("fd00::{number:x}")}]);
    }
    let remedies = cluster.remedies();
    assert_eq!(outline(&remedies), [(vec!["allow-traffic"], true)]);
    let spec = &patch(&remedies[0], 0)["spec"];
    assert_eq!(spec["policyTypes"], json!(["Egress", "Ingress"]));
    assert_eq!(
        spec["egress"][1]["to"][0]["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"],
        "kube-system"
    );
}

#[test]
fn the_name_of_another_policy_is_not_taken() {
    let deny = netpol("default-deny", json!({"podSelector": {}, "policyTypes": ["Ingress"]}));
    let other = netpol(
        "firedoor-allow-llama",
        json!({"podSelector": {"matchLabels": {"a": "b"}}, "policyTypes": ["Ingress"]}),
    );
    let remedies = Cluster::new(ml(&[]))
        .with([deny, other])
        .blocked("llama-worker-0", "llama-master-0", 23456)
        .remedies();
    assert_eq!(patch(&remedies[0], 0)["metadata"]["name"], "firedoor-allow-llama-2");
}

#[test]
fn nothing_for_causes_that_no_policy_mends() {
    let deny = netpol("default-deny", json!({"podSelector": {}, "policyTypes": ["Ingress"]}));
    for cause in [CauseKind::Refused, CauseKind::DatapathFault, CauseKind::Unanswered] {
        let cluster = Cluster::new(ml(&[])).with([deny.clone()]).cause(cause);
        assert!(cluster.blocked("llama-worker-0", "llama-master-0", 1).remedies().is_empty(), "{cause:?}");
    }
    // No policy closes anything: there is nothing to change.
    assert!(Cluster::new(ml(&[])).blocked("llama-worker-0", "llama-master-0", 1).remedies().is_empty());
}

#[test]
fn pods_that_share_no_label_are_named_in_parts() {
    let submitter = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "sweep", "namespace": "ml", "uid": "uid-submitter",
        "ownerReferences": [{"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "sweep", "uid": "uid-RayJob-sweep", "controller": true}]}});
    let ray_cluster = json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "sweep-x", "namespace": "ml", "uid": "uid-cluster",
        "ownerReferences": [{"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "sweep", "uid": "uid-RayJob-sweep", "controller": true}]}});
    let ray = |kind: &str| json!({"ray.io/cluster": "sweep-x", "ray.io/node-type": kind});
    let remedies = Cluster::new([
        object("ray.io/v1", "RayJob", "sweep", json!({})),
        pod("submit", "cpu-b", 0, json!({"batch.kubernetes.io/job-name": "sweep"}), Some(&submitter)),
        pod("head", "gpu-a1", 0, ray("head"), Some(&ray_cluster)),
        pod("work", "gpu-a1", 8, ray("worker"), Some(&ray_cluster)),
        submitter,
        ray_cluster,
        netpol("deny", json!({"podSelector": {"matchLabels": {"batch.kubernetes.io/job-name": "sweep"}}, "policyTypes": ["Egress"]})),
    ])
    .blocked("submit", "head", 8265)
    .remedies();
    assert_eq!(outline(&remedies), [(vec!["allow-traffic"], true)]);
    let spec = &patch(&remedies[0], 0)["spec"];
    assert_eq!(spec["podSelector"], json!({"matchLabels": {"batch.kubernetes.io/job-name": "sweep"}}));
    assert_eq!(spec["egress"][0]["to"].as_array().unwrap().len(), 2);
}

#[test]
fn a_clusterwide_policy_that_locks_the_name_servers_in_too() {
    let mut everywhere = object(
        "cilium.io/v2",
        "CiliumClusterwideNetworkPolicy",
        "everywhere",
        json!({"endpointSelector": {}, "ingress": [{}], "egress": [{"toEntities": ["all"]}]}),
    );
    everywhere["metadata"].as_object_mut().unwrap().remove("namespace");
    let remedies = Cluster::new(ml(&[]))
        .with([dns(), everywhere])
        .cause(CauseKind::DnsBlocked)
        .blocked("llama-worker-0", "coredns-1", 53)
        .remedies();
    assert_eq!(outline(&remedies), [(vec!["allow-traffic", "allow-traffic"], true)]);
    assert_eq!(patch(&remedies[0], 1)["metadata"]["namespace"], "kube-system");
    let spec = &patch(&remedies[0], 1)["spec"];
    assert_eq!(spec["endpointSelector"], json!({"matchLabels": {"k8s-app": "kube-dns"}}));
    let from = &spec["ingress"][0]["fromEndpoints"][0]["matchLabels"];
    assert_eq!(
        *from,
        json!({"k8s:io.kubernetes.pod.namespace": "ml", "training.kubeflow.org/job-name": "llama"})
    );
}

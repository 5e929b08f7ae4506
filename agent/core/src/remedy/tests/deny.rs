//! Explicit denies: an allow cannot override them.

use super::*;

fn job() -> Vec<Value> {
    pytorch("gpu-a1", &["gpu-a2", "gpu-a2"]).into_iter().chain(nodes()).collect()
}

fn denied(policy: Value) -> Cluster {
    Cluster::new(job()).with([policy]).cause(CauseKind::ExplicitDeny).blocked(
        "llama-worker-0",
        "llama-master-0",
        23456,
    )
}

#[test]
fn a_policy_of_one_deny_is_narrowed_or_deleted() {
    let remedies = denied(cnp("seal", json!({"endpointSelector": {"matchLabels": {"training.kubeflow.org/replica-type": "worker"}},
        "egressDeny": [{"toEndpoints": [{"matchLabels": {"training.kubeflow.org/replica-type": "master"}}]}]})))
    .remedies();
    assert_eq!(outline(&remedies), [(vec!["edit-deny", "allow-traffic"], true), (vec!["edit-deny"], true)]);
    let step = &remedies[0].steps[0];
    assert_eq!((step.patch_type, step.target.name.as_str()), ("merge", "seal"));
    assert_eq!(
        patch(&remedies[0], 0),
        json!({"spec": {"egressDeny": [{"toEndpoints": [{
        "matchLabels": {"training.kubeflow.org/replica-type": "master"},
        "matchExpressions": [{"key": "training.kubeflow.org/job-name", "operator": "NotIn", "values": ["llama"]}]}]}]}})
    );
    let step = &remedies[1].steps[0];
    assert_eq!((step.patch_type, step.patch.as_str()), ("delete", ""));
    assert!(remedies.iter().all(|remedy| remedy.weakens_isolation));
}

#[test]
fn only_the_matching_rule_changes() {
    let other = json!({"fromEndpoints": [{"matchLabels": {"app": "web"}}]});
    let remedies = denied(cnp("seal", json!({"endpointSelector": {}, "ingress": [{"fromEndpoints": [{}]}],
        "ingressDeny": [other, {"fromEntities": ["cluster"], "toPorts": [{"ports": [{"port": "23456", "protocol": "TCP"}]}]}]})))
    .remedies();
    // An entity cannot be narrowed to spare the job's pods.
    assert_eq!(outline(&remedies), [(vec!["edit-deny"], true)]);
    assert_eq!(patch(&remedies[0], 0), json!({"spec": {"ingressDeny": [other]}}));
}

#[test]
fn one_of_several_specs() {
    let kept = json!({"endpointSelector": {"matchLabels": {"app": "web"}}, "ingress": [{}]});
    let mut policy = cnp("many", json!({}));
    policy.as_object_mut().unwrap().remove("spec");
    policy["specs"] = json!([kept, {"endpointSelector": {}, "egressDeny": [{"toEndpoints": [{}]}]}]);
    let remedies = denied(policy).remedies();
    assert_eq!(outline(&remedies), [(vec!["edit-deny", "allow-traffic"], true), (vec!["edit-deny"], true)]);
    assert_eq!(patch(&remedies[1], 0), json!({"specs": [kept]}));
}

#[test]
fn an_admin_policy_gets_an_exception_before_its_deny() {
    let deny = json!({"name": "no-training", "action": "Deny", "from": [{"namespaces": {}}]});
    let mut policy = object(
        "policy.networking.k8s.io/v1alpha1",
        "AdminNetworkPolicy",
        "wall",
        json!({"priority": 10,
        "subject": {"namespaces": {"matchLabels": {"kubernetes.io/metadata.name": "ml"}}}, "ingress": [deny]}),
    );
    policy["metadata"].as_object_mut().unwrap().remove("namespace");
    let mut cluster = denied(policy);
    cluster.settings.cni = crate::policy::Cni::Other;
    let remedies = cluster.remedies();
    assert_eq!(outline(&remedies), [(vec!["edit-deny"], true), (vec!["edit-deny"], true)]);
    assert_eq!(remedies[0].steps[0].target.namespace, None);
    let rules = &patch(&remedies[0], 0)["spec"]["ingress"];
    assert_eq!((&rules[0]["action"], &rules[1]), (&json!("Pass"), &deny));
    assert_eq!(patch(&remedies[1], 0), json!({"spec": {"ingress": []}}));
}

#[test]
fn a_clusterwide_deny_is_a_clusterwide_object() {
    let mut policy = object(
        "cilium.io/v2",
        "CiliumClusterwideNetworkPolicy",
        "wall",
        json!({"endpointSelector": {"matchLabels": {"k8s:io.kubernetes.pod.namespace": "ml"}},
        "ingressDeny": [{"fromEndpoints": [{}]}]}),
    );
    policy["metadata"].as_object_mut().unwrap().remove("namespace");
    let remedies = denied(policy).remedies();
    assert_eq!(outline(&remedies), [(vec!["edit-deny"], true)]);
    assert_eq!((remedies[0].steps[0].patch_type, &remedies[0].steps[0].target.namespace), ("delete", &None));
}

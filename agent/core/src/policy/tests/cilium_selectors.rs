//! Whom Cilium policies select, and whom their rules mean.

use super::*;

/// The ingress letter of `app=dst` pods in `ml` for a peer, under a policy with one `fromEndpoints` selector.
fn from(selector: Value, peer: &Pod) -> String {
    let spec = json!({"endpointSelector": {"matchLabels": {"app": "dst"}}, "ingress": [{"fromEndpoints": [selector]}]});
    let dst = pod("ml/dst", "app=dst");
    tcp(&set(CILIUM, &[cnp("p", spec)]), peer, &dst, 80)[1..].to_owned()
}

/// The same for a clusterwide policy.
fn from_clusterwide<'a>(selector: Value, peer: impl Into<Peer<'a>>) -> String {
    let spec = json!({"endpointSelector": {"matchLabels": {"app": "dst"}}, "ingress": [{"fromEndpoints": [selector]}]});
    let dst = pod("ml/dst", "app=dst");
    tcp(&set(CILIUM, &[ccnp("p", spec)]), peer, &dst, 80)[1..].to_owned()
}

/// Whether an `endpointSelector` selects a pod: then it is in default deny.
fn selects(selector: Value, pod: &Pod, clusterwide: bool) -> bool {
    let spec = json!({"endpointSelector": selector, "ingress": [{}]});
    let set = set(CILIUM, &[if clusterwide { ccnp("p", spec) } else { cnp("p", spec) }]);
    match tcp(&set, Entity::World, pod, 80).as_str() {
        "OC" => true,
        "OO" => false,
        other => panic!("{other}"),
    }
}

#[test]
fn match_labels_and_expressions() {
    let (a, b) = (pod("ml/a", "app=a,tier=1"), pod("ml/b", "app=b"));
    let expression = |key: &str, operator: &str, values: Value| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
    for (selector, with_a, with_b) in [
        (json!({}), "O", "O"),
        (json!({"matchLabels": {"app": "a"}}), "O", "C"),
        (json!({"matchLabels": {"app": "a", "tier": "2"}}), "C", "C"),
        (expression("app", "In", json!(["b", "c"])), "C", "O"),
        (expression("tier", "NotIn", json!(["1"])), "C", "O"),
        (expression("tier", "NotIn", json!(["2"])), "O", "O"),
        (expression("tier", "Exists", json!([])), "O", "C"),
        (expression("tier", "Exists", Value::Null), "O", "C"),
        (expression("tier", "DoesNotExist", json!([])), "C", "O"),
    ] {
        assert_eq!(
            (from(selector.clone(), &a).as_str(), from(selector.clone(), &b).as_str()),
            (with_a, with_b),
            "{selector}"
        );
    }
}

#[test]
fn label_sources() {
    let a = pod("ml/a", "app=a,k8s.io/x=1");
    for (key, expected) in [
        ("app", "O"),
        ("any:app", "O"),
        (":app", "O"),
        ("k8s:app", "O"),
        ("k8s.app", "C"),
        ("any.app", "C"),
        ("reserved:app", "C"),
        ("reserved.app", "C"),
        ("$app", "C"),
        ("container:app", "?"),
        ("k8s.io/x", "C"),
    ] {
        assert_eq!(from(json!({"matchLabels": {key: "a"}}), &a), expected, "{key}");
    }
    let dotted = pod("ml/a", "k8s.app=a,any.app=b");
    assert_eq!(from(json!({"matchLabels": {"k8s.app": "a", "k8s:any.app": "b"}}), &dotted), "O");
    assert_eq!(from(json!({"matchExpressions": [{"key": "k8s.io/x", "operator": "DoesNotExist"}]}), &a), "O");
    assert_eq!(from(json!({"matchLabels": {"io.cilium.k8s.policy.serviceaccount": "trainer"}}), &a), "O");
    assert_eq!(from(json!({"matchLabels": {"io.cilium.k8s.policy.serviceaccount": "default"}}), &a), "C");
    assert_eq!(from(json!({"matchLabels": {"io.cilium.k8s.policy.cluster": "default"}}), &a), "?");
}

#[test]
fn peers_are_of_the_own_namespace_unless_one_is_named() {
    let (here, there) = (pod("ml/a", "app=a"), pod("web/a", "app=a"));
    let key = "io.kubernetes.pod.namespace";
    let team = "io.cilium.k8s.namespace.labels.team";
    for (selector, from_here, from_there) in [
        (json!({"matchLabels": {"app": "a"}}), "O", "C"),
        (json!({"matchLabels": {"app": "a", key: "web"}}), "C", "O"),
        (json!({"matchLabels": {"app": "a", "k8s:io.kubernetes.pod.namespace": "web"}}), "C", "O"),
        (json!({"matchExpressions": [{"key": key, "operator": "Exists"}]}), "O", "O"),
        (json!({"matchLabels": {team: "web"}}), "C", "O"),
        (json!({"matchLabels": {format!("k8s:{team}"): "web"}}), "C", "O"),
        (json!({"matchExpressions": [{"key": team, "operator": "In", "values": ["ml", "web"]}]}), "O", "O"),
        (
            json!({"matchLabels": {"io.cilium.k8s.namespace.labels.kubernetes.io/metadata.name": "web"}}),
            "C",
            "O",
        ),
    ] {
        let got = (from(selector.clone(), &here), from(selector.clone(), &there));
        assert_eq!((got.0.as_str(), got.1.as_str()), (from_here, from_there), "{selector}");
    }
}

#[test]
fn clusterwide_peers_are_pods_of_all_namespaces() {
    let there = pod("web/a", "app=a");
    assert_eq!(from_clusterwide(json!({}), &there), "O");
    assert_eq!(from_clusterwide(json!({}), Entity::World), "C");
    assert_eq!(from_clusterwide(json!({}), Entity::RemoteNode), "C");
    assert_eq!(from_clusterwide(json!({"matchLabels": {"io.kubernetes.pod.namespace": "ml"}}), &there), "C");
    assert_eq!(
        from_clusterwide(json!({"matchLabels": {"reserved:remote-node": ""}}), Entity::RemoteNode),
        "O"
    );
    assert_eq!(
        from_clusterwide(json!({"matchLabels": {"reserved.remote-node": ""}}), Entity::RemoteNode),
        "O"
    );
    assert_eq!(
        from_clusterwide(json!({"matchLabels": {"reserved:remote-node": "x"}}), Entity::RemoteNode),
        "C"
    );
    assert_eq!(from_clusterwide(json!({"matchLabels": {"reserved:remote-node": ""}}), &there), "C");
    let not_node = json!({"matchExpressions": [{"key": "reserved:remote-node", "operator": "DoesNotExist"}]});
    assert_eq!(from_clusterwide(not_node.clone(), Entity::World), "O");
    assert_eq!(from_clusterwide(not_node, Entity::RemoteNode), "C");
    let any_host = json!({"matchLabels": {"any:remote-node": ""}});
    assert_eq!(from_clusterwide(any_host, Entity::RemoteNode), "C", "without reserved: only pods are meant");
}

#[test]
fn a_selector_that_only_excludes_a_namespace_also_means_what_has_none() {
    let (here, there) = (pod("ml/a", "app=a"), pod("web/a", "app=a"));
    let key = "io.kubernetes.pod.namespace";
    let team = "io.cilium.k8s.namespace.labels.team";
    let without = |key: &str, operator: &str, values: Value| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
    // From here, from there, from the world and from a node; in a namespaced and in a clusterwide policy.
    for (selector, namespaced, clusterwide) in [
        (without(key, "NotIn", json!(["web"])), "OCOO", "OCOO"),
        (without("k8s:io.kubernetes.pod.namespace", "NotIn", json!(["web"])), "OCOO", "OCOO"),
        (without(key, "DoesNotExist", Value::Null), "CCOO", "CCOO"),
        (without(key, "Exists", Value::Null), "OOCC", "OOCC"),
        (without(team, "NotIn", json!(["web"])), "OCOO", "OCCC"),
        (without(team, "DoesNotExist", Value::Null), "CCOO", "CCCC"),
        (without("app", "NotIn", json!(["b"])), "OCCC", "OOCC"),
    ] {
        let dst = pod("ml/dst", "app=dst");
        let spec = json!({"endpointSelector": {"matchLabels": {"app": "dst"}}, "ingress": [{"fromEndpoints": [selector]}]});
        for (policy, expected) in
            [(cnp("p", spec.clone()), namespaced), (ccnp("p", spec.clone()), clusterwide)]
        {
            let set = set(CILIUM, &[policy]);
            let peers: [Peer<'_>; 4] =
                [(&here).into(), (&there).into(), world("1.1.1.1"), Entity::RemoteNode.into()];
            let got: String = peers.map(|peer| tcp(&set, peer, &dst, 80)[1..].to_owned()).concat();
            assert_eq!(got, expected, "{spec}");
        }
    }
}

#[test]
fn a_policy_for_endpoints_without_labels_names_no_namespace() {
    let spec = json!({"endpointSelector": {"matchExpressions": [{"key": "reserved:init", "operator": "DoesNotExist"}]},
        "ingress": [{"fromEndpoints": [{"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}]}]});
    let dst = pod("ml/dst", "app=dst");
    assert_eq!(tcp(&set(CILIUM, &[ccnp("p", spec)]), Entity::World, &dst, 80), "OO");
}

#[test]
fn namespaces_whose_labels_are_not_known() {
    let there = pod("lost/a", "app=a");
    assert_eq!(from(json!({"matchLabels": {"io.cilium.k8s.namespace.labels.team": "web"}}), &there), "?");
    let by_name =
        json!({"matchLabels": {"io.cilium.k8s.namespace.labels.kubernetes.io/metadata.name": "lost"}});
    assert_eq!(from(by_name, &there), "O");
    assert_eq!(from(json!({"matchLabels": {"io.kubernetes.pod.namespace": "lost"}}), &there), "O");
}

#[test]
fn subjects_are_of_the_own_namespace() {
    let (here, there) = (pod("ml/a", "app=a"), pod("web/a", "app=a"));
    assert!(selects(json!({}), &here, false) && !selects(json!({}), &there, false));
    assert!(selects(json!({}), &here, true) && selects(json!({}), &there, true));
    assert!(selects(json!({}), &pod("kube-system/a", ""), true));
    let other = json!({"matchLabels": {"k8s:io.kubernetes.pod.namespace": "web"}});
    assert!(selects(other.clone(), &here, false), "the namespace match is removed");
    assert!(!selects(other.clone(), &there, false));
    assert!(!selects(other.clone(), &here, true) && selects(other, &there, true));
    let by_expression = json!({"matchExpressions": [{"key": "k8s:io.kubernetes.pod.namespace", "operator": "In", "values": ["web"]}]});
    assert!(!selects(by_expression, &here, false));
}

#[test]
fn labels_cilium_hides() {
    let hidden = [
        "batch.kubernetes.io/job-completion-index",
        "batch.kubernetes.io/controller-uid",
        "statefulset.kubernetes.io/pod-name",
        "apps.kubernetes.io/pod-index",
        "kubernetes.io/arch",
        "io.kubernetes.x",
        "k8s.io/x",
        "failure-domain.beta.kubernetes.io/zone",
        "pod-template-hash",
        "pod-template-generation",
        "controller-revision-hash",
        "controller-uid",
        "annotation.x",
        "etcd_node",
    ];
    let shown = [
        "app.kubernetes.io/name",
        "batch.kubernetes.io/job-name",
        "training.kubeflow.org/replica-index",
        "xk8s.io/x",
    ];
    for (keys, expected) in [(hidden.as_slice(), "C"), (&shown, "O")] {
        for key in keys {
            let peer = pod("ml/a", &format!("{key}=1"));
            assert_eq!(from(json!({"matchLabels": {format!("k8s:{key}"): "1"}}), &peer), expected, "{key}");
        }
    }
}

#[test]
fn zone_labels_by_version() {
    let spec = json!({"endpointSelector": {}, "ingress": [{"fromEndpoints": [
        {"matchLabels": {"topology.kubernetes.io/zone": "a"}}]}]});
    let (src, dst) = (pod("ml/src", "topology.kubernetes.io/zone=a"), pod("ml/dst", ""));
    let objects = [cnp("p", spec)];
    assert_eq!(tcp(&set(at((1, 18)), &objects), &src, &dst, 80), "OO");
    assert_eq!(tcp(&set(at((1, 19)), &objects), &src, &dst, 80), "OC");
    assert_eq!(tcp(&set(at((2, 0)), &objects), &src, &dst, 80), "OC");
    assert!(set(at((1, 19)), &objects).evaluate(&ask(&src, &dst, 80)).notes.is_empty());
    let newest = Settings { cilium_version: None, ..CILIUM };
    let answer = set(newest, &objects).evaluate(&ask(&src, &dst, 80));
    assert_eq!(
        (letters(&answer).as_str(), answer.notes.as_slice()),
        ("OC", [Note::CiliumVersion].as_slice())
    );
    let elsewhere = set(newest, &objects).evaluate(&ask(&dst, &src, 80));
    assert_eq!((letters(&elsewhere).as_str(), elsewhere.notes.as_slice()), ("OC", [].as_slice()));
}

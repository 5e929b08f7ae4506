//! Ends that are no ordinary pods.

use super::*;

fn locked() -> PolicySet {
    set(CILIUM, &[ccnp("p", json!({"endpointSelector": {}, "ingress": [{}], "egress": [{}]}))])
}

#[test]
fn a_pod_reaches_itself() {
    let x = pod("ml/x", "");
    assert_eq!(tcp(&locked(), &x, &x, 80), "OO");
    let again = Pod { uid: Some("other".to_owned()), ..x.clone() };
    assert_eq!(tcp(&locked(), &x, &again, 80), "CC");
    let namesake = Pod { namespace: "web".to_owned(), ..x.clone() };
    assert_eq!(tcp(&locked(), &x, &namesake, 80), "CC");
    assert_eq!(tcp(&locked(), &x, &Pod { name: "y".to_owned(), ..x.clone() }, 80), "CC");
}

#[test]
fn pods_in_their_nodes_network_are_nodes() {
    let x = pod("ml/x", "app=x");
    let (same, other, lost) = (host_pod("s", Some("n1")), host_pod("o", Some("n2")), host_pod("l", None));
    let set_of =
        |ingress: Value| set(CILIUM, &[ccnp("p", json!({"endpointSelector": {}, "ingress": ingress}))]);
    for (ingress, letters) in [
        (json!([{}]), ["OO", "OC", "O?"]),
        (json!([{"fromEndpoints": [{"matchLabels": {"app": "host"}}]}]), ["OO", "OC", "O?"]),
        (json!([{"fromEntities": ["remote-node"]}]), ["OO", "OO", "OO"]),
        (json!([{"fromEntities": ["host"]}]), ["OO", "OC", "O?"]),
    ] {
        let set = set_of(ingress.clone());
        assert_eq!([&same, &other, &lost].map(|pod| tcp(&set, pod, &x, 80)), letters, "{ingress}");
        for host in [&same, &other, &lost] {
            assert_eq!(tcp(&set, &x, host, 80), "OO", "they are not selected");
        }
    }
    let answer = set_of(json!([{}])).evaluate(&ask(&lost, &x, 80));
    assert!(reason(&answer.ingress).contains("where an end runs"));
    let moved = Pod { node: None, ..x };
    assert_eq!(tcp(&set_of(json!([{}])), &same, &moved, 80), "O?");
    assert_eq!(tcp(&locked(), &same, &other, 80), "OO");
}

#[test]
fn network_policy_does_not_mean_pods_in_their_nodes_network() {
    let x = pod("ml/x", "app=x");
    let other = host_pod("o", Some("n2"));
    let spec =
        json!({"podSelector": {}, "ingress": [{"from": [{"podSelector": {}}, {"namespaceSelector": {}}]}]});
    assert_eq!(tcp(&set(OTHER, &[np("p", spec)]), &other, &x, 80), "OC");
}

#[test]
fn entities_as_subjects() {
    let x = pod("ml/x", "app=x");
    for (entity, expected) in [
        (Entity::World, "CO"),
        (Entity::Host, "CO"),
        (Entity::RemoteNode, "CO"),
        (Entity::KubeApiserver, "CO"),
        (Entity::Unmanaged, "CO"),
        (Entity::Health, "CC"),
        (Entity::Ingress, "CC"),
        (Entity::Init, "C?"),
    ] {
        assert_eq!(tcp(&locked(), &x, entity, 80), expected, "{entity:?}");
    }
    let health = ccnp(
        "h",
        json!({"endpointSelector": {"matchLabels": {"reserved:health": ""}},
        "ingress": [{"fromEntities": ["remote-node"]}]}),
    );
    let set = set(CILIUM, &[health]);
    assert_eq!(tcp(&set, Entity::RemoteNode, Entity::Health, 4240), "OO");
    assert_eq!(tcp(&set, Entity::World, Entity::Health, 4240), "OC");
    assert_eq!(tcp(&set, Entity::World, Entity::Ingress, 4240), "OO");
}

#[test]
fn host_policies_do_not_select_pods() {
    let (x, host) = (pod("ml/x", "app=host"), host_pod("h", Some("n2")));
    let policy = |more: Value| {
        let mut spec = json!({"nodeSelector": {}});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        set(CILIUM, &[ccnp("p", spec)])
    };
    let both = policy(json!({"ingress": [{}]}));
    assert_eq!(tcp(&both, &x, &pod("ml/y", ""), 80), "OO");
    assert_eq!((tcp(&both, &x, &host, 80).as_str(), tcp(&both, &host, &x, 80).as_str()), ("O?", "OO"));
    assert_eq!(tcp(&policy(json!({"egressDeny": [{}]})), &host, &x, 80), "?O");
    assert_eq!(tcp(&policy(json!({})), &x, &host, 80), "OO");
    assert_eq!(tcp(&both, &x, Entity::Host, 80), "O?");
    assert_eq!(tcp(&both, &x, Entity::World, 80), "OO");
}

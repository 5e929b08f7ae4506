//! Policies that cannot be understood are named, and the pods they may select have unknown answers.

use super::*;

/// The one rejection of an object, which must make answers about `ml/x` unknown.
fn rejection(object: &Object) -> String {
    let set = set(OTHER, std::slice::from_ref(object));
    let [rejected] = set.rejected() else { panic!("{:?} of {:?}", set.rejected(), object.value()) };
    let x = pod("ml/x", "app=x");
    assert_eq!(tcp(&set, &x, Entity::World, 80), "?O", "{}", object.value());
    assert_eq!(tcp(&set, Entity::World, &x, 80), "O?");
    rejected.reason.clone()
}

#[test]
fn cilium() {
    let rule = |rule: Value| json!({"endpointSelector": {}, "egress": [rule]});
    let ports = |ports: Value| rule(json!({"toPorts": [{"ports": ports}]}));
    let expression = |expression: Value| rule(json!({"toEndpoints": [{"matchExpressions": [expression]}]}));
    let many: Vec<Value> = (1..=41).map(|n| json!({"port": n.to_string()})).collect();
    for (spec, part) in [
        (json!({"ingress": [{}]}), "neither endpointSelector"),
        (json!({"endpointSelector": {}, "nodeSelector": {}}), "both endpointSelector"),
        (json!({"nodeSelector": {}}), "namespaced"),
        (json!({"endpointSelector": []}), "endpointSelector is not"),
        (json!({"endpointSelector": {"matchLabels": {"a": 1}}}), "matchLabels a"),
        (json!({"endpointSelector": {}, "ingress": {}}), "ingress is not a list"),
        (json!({"endpointSelector": {}, "ingressDeny": {}}), "ingressDeny is not a list"),
        (json!({"endpointSelector": {}, "enableDefaultDeny": {"egress": "no"}}), "true or false"),
        (rule(json!({"toEndpoints": [{}], "toEntities": ["all"]})), "Endpoints and Entities"),
        (
            rule(json!({"toServices": [{"k8sService": {}}], "toPorts": [{"ports": [{"port": "1"}]}]})),
            "toServices and",
        ),
        (rule(json!({"toServices": [{}]})), "without k8sService"),
        (rule(json!({"toServices": [{"k8sServiceSelector": {}}]})), "selector is missing"),
        (rule(json!({"icmps": [{}], "toPorts": [{"ports": [{"port": "1"}]}]})), "icmps and toPorts"),
        (rule(json!({"toEntities": ["moon"]})), "unknown entity"),
        (rule(json!({"toEntities": [1]})), "not a string"),
        (rule(json!({"toEndpoints": ["x"]})), "not an object"),
        (rule(json!({"toCIDR": ["10.0.0.0/40"]})), "not a CIDR"),
        (rule(json!({"toCIDRSet": [{"cidr": "10.0.0.1"}]})), "not a CIDR"),
        (rule(json!({"toCIDRSet": [{}]})), "cidr is missing"),
        (rule(json!({"toCIDRSet": [{"cidr": "10.0.0.0/8", "except": ["11.0.0.0/16"]}]})), "is not in"),
        (ports(json!([{}])), "port is missing"),
        (ports(json!([{"port": 80}])), "port is not a string"),
        (ports(json!([{"port": "70000"}])), "70000"),
        (ports(json!([{"port": "a b"}])), "a b"),
        (ports(json!([{"port": "80", "endPort": 79}])), "endPort 79"),
        (ports(json!([{"port": "0", "endPort": 79}])), "port 0"),
        (ports(json!([{"port": "80", "endPort": 70000}])), "endPort is not"),
        (ports(json!([{"port": "80", "protocol": "ICMP"}])), "ICMP"),
        (ports(json!(many)), "more than 40"),
        (expression(json!({"operator": "Exists"})), "without a key"),
        (expression(json!({"key": "", "operator": "Exists"})), "without a key"),
        (expression(json!({"key": "a", "operator": "Is"})), "Is"),
        (expression(json!({"key": "a", "operator": "In", "values": []})), "In"),
        (expression(json!({"key": "a", "operator": "NotIn"})), "NotIn"),
        (expression(json!({"key": "a", "operator": "Exists", "values": ["a"]})), "Exists"),
        (expression(json!({"key": "a", "operator": "DoesNotExist", "values": ["a"]})), "DoesNotExist"),
    ] {
        let reason = rejection(&cnp("p", spec.clone()));
        assert!(reason.contains(part), "{spec}: {reason}");
    }
    let good: Vec<Value> = (1..=40).map(|n| json!({"port": n.to_string()})).collect();
    assert!(set(CILIUM, &[cnp("p", ports(json!(good)))]).rejected().is_empty());
    let none = object(
        json!({"apiVersion": "cilium.io/v2", "kind": "CiliumNetworkPolicy", "metadata": {"name": "p", "namespace": "ml"}}),
    );
    assert_eq!(rejection(&none), "neither spec nor specs");
}

#[test]
fn network_policies() {
    let from = |peer: Value| json!({"podSelector": {}, "ingress": [{"from": [peer]}]});
    let ports = |port: Value| json!({"podSelector": {}, "ingress": [{"ports": [port]}]});
    for (spec, part) in [
        (json!(null), "no spec"),
        (json!({"podSelector": 1}), "podSelector is not"),
        (json!({"policyTypes": ["Both"]}), "Both"),
        (from(json!({})), "without ipBlock"),
        (from(json!({"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}})), "beside a selector"),
        (from(json!({"ipBlock": {"cidr": "10.0.0.0/8"}, "namespaceSelector": {}})), "beside a selector"),
        (from(json!({"ipBlock": {"cidr": "x"}})), "not a CIDR"),
        (ports(json!({"port": 0})), "0"),
        (ports(json!({"port": 80, "endPort": 1})), "endPort 1"),
        (ports(json!({"endPort": 1})), "endPort without"),
        (ports(json!({"port": "http", "endPort": 1})), "endPort without"),
        (ports(json!({"port": "80"})), "neither a number"),
        (ports(json!({"port": "a_b"})), "neither a number"),
        (ports(json!({"port": 80, "protocol": "ICMP"})), "ICMP"),
    ] {
        let reason = rejection(&np("p", spec.clone()));
        assert!(reason.contains(part), "{spec}: {reason}");
    }
}

#[test]
fn admin_policies() {
    let with = |rule: Value| json!({"priority": 1, "subject": {"namespaces": {}}, "egress": [rule]});
    let to = |peer: Value| with(json!({"action": "Deny", "to": [peer]}));
    let port = |port: Value| with(json!({"action": "Deny", "to": [{"namespaces": {}}], "ports": [port]}));
    for (spec, part) in [
        (json!(null), "no spec"),
        (json!({"priority": 1}), "no subject"),
        (json!({"priority": 1, "subject": {}}), "neither namespaces nor pods"),
        (json!({"priority": 1, "subject": {"namespaces": {}, "pods": {}}}), "both"),
        (json!({"priority": 1, "subject": {"pods": {"namespaceSelector": {}}}}), "podSelector is missing"),
        (json!({"subject": {"namespaces": {}}}), "priority"),
        (json!({"priority": 1001, "subject": {"namespaces": {}}}), "priority"),
        (with(json!({"action": "Log", "to": [{"namespaces": {}}]})), "Log"),
        (with(json!({"action": "Deny", "to": []})), "without peers"),
        (with(json!({"action": "Deny", "from": [{"namespaces": {}}]})), "without peers"),
        (to(json!({})), "not one of the known"),
        (to(json!({"networks": ["x"]})), "not a CIDR"),
        (port(json!({})), "not one of the known"),
        (port(json!({"namedPort": "80"})), "not one of the known"),
        (port(json!({"portNumber": {}})), "missing"),
        (port(json!({"portRange": {"start": 2, "end": 1}})), "2-1"),
        (
            json!({"priority": 1, "subject": {"namespaces": {}}, "ingress": [{"action": "Deny", "from": [{"nodes": {}}]}]}),
            "not one",
        ),
    ] {
        let reason = rejection(&anp("p", spec.clone()));
        assert!(reason.contains(part), "{spec}: {reason}");
    }
    let pass =
        json!({"subject": {"namespaces": {}}, "egress": [{"action": "Pass", "to": [{"namespaces": {}}]}]});
    assert!(rejection(&banp(pass)).contains("Pass"));
    let named = object(
        json!({"apiVersion": "policy.networking.k8s.io/v1alpha1", "kind": "BaselineAdminNetworkPolicy",
        "metadata": {"name": "other"}, "spec": {"subject": {"namespaces": {}}}}),
    );
    assert!(rejection(&named).contains("named default"));
    assert!(
        set(OTHER, &[anp("p", json!({"priority": 1000, "subject": {"namespaces": {}}}))])
            .rejected()
            .is_empty()
    );
}

#[test]
fn only_pods_that_may_be_selected_are_touched() {
    let (x, y, far) = (pod("ml/x", "app=x"), pod("ml/y", "app=y"), pod("web/x", "app=x"));
    let rule = json!([{"toEntities": ["moon"]}]);
    let selecting = json!({"endpointSelector": {"matchLabels": {"app": "x"}}, "egress": rule});
    let blind = json!({"endpointSelector": {"matchLabels": {"app": 1}}, "egress": rule});
    for (object, letters) in [
        (cnp("p", selecting.clone()), ["?", "O", "O"]),
        (cnp("p", blind.clone()), ["?", "?", "O"]),
        (ccnp("p", selecting), ["?", "O", "?"]),
        (ccnp("p", blind), ["?", "?", "?"]),
        (
            np("p", json!({"podSelector": {"matchLabels": {"app": "x"}}, "policyTypes": ["X"]})),
            ["?", "O", "O"],
        ),
        (np("p", json!({"podSelector": 1})), ["?", "?", "O"]),
        (anp("p", json!({"subject": {"namespaces": {"matchLabels": {"team": "ml"}}}})), ["?", "?", "O"]),
        (anp("p", json!({"subject": 1})), ["?", "?", "?"]),
    ] {
        let set = set(OTHER, &[object]);
        let got = [&x, &y, &far].map(|pod| tcp(&set, pod, Entity::World, 80)[..1].to_owned());
        assert_eq!(got, letters, "{:?}", set.rejected());
    }
    let specs = object(
        json!({"apiVersion": "cilium.io/v2", "kind": "CiliumNetworkPolicy", "metadata": {"name": "p", "namespace": "ml"},
        "specs": [{"endpointSelector": {"matchLabels": {"app": "x"}}, "egress": rule}, {"endpointSelector": {"matchLabels": {"app": "z"}}}]}),
    );
    assert_eq!(
        [&x, &y].map(|pod| tcp(&set(CILIUM, std::slice::from_ref(&specs)), pod, Entity::World, 80)),
        ["?O", "OO"]
    );
}

#[test]
fn the_reason_names_the_policies() {
    let x = pod("ml/x", "");
    let bad = json!({"endpointSelector": {}, "egress": 1});
    let set = set(
        CILIUM,
        &[
            cnp("b", bad.clone()),
            ccnp("a", bad),
            np("c", json!({"podSelector": {}, "policyTypes": ["Egress"]})),
        ],
    );
    let answer = set.evaluate(&ask(&x, Entity::World, 80));
    assert_eq!(
        reason(&answer.egress),
        "CiliumClusterwideNetworkPolicy a, CiliumNetworkPolicy ml/b could not be understood"
    );
    let rejected: Vec<String> = set.rejected().iter().map(|rejected| rejected.policy.to_string()).collect();
    assert_eq!(rejected, ["CiliumNetworkPolicy ml/b", "CiliumClusterwideNetworkPolicy a"]);
}

#[test]
fn other_objects_are_ignored() {
    let calico = object(
        json!({"apiVersion": "crd.projectcalico.org/v1", "kind": "NetworkPolicy", "metadata": {"name": "p", "namespace": "ml"}, "spec": {"selector": "all()"}}),
    );
    let admin = object(
        json!({"apiVersion": "example.com/v1", "kind": "AdminNetworkPolicy", "metadata": {"name": "p"}}),
    );
    let set = set(OTHER, &[calico, admin]);
    assert!(set.rejected().is_empty());
    assert_eq!(tcp(&set, Entity::World, &pod("ml/x", ""), 80), "OO");
}

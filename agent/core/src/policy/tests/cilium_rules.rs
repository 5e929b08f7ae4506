//! Default deny, allow and deny, entities, networks, services of Cilium policies.

use super::*;

fn on(spec: Value) -> PolicySet {
    let mut spec = spec;
    spec["endpointSelector"] = json!({"matchLabels": {"app": "x"}});
    set(CILIUM, &[cnp("p", spec)])
}

/// The letters between the selected pod and another one: from it, to it.
fn out_and_in(set: &PolicySet) -> String {
    let (x, y) = (pod("ml/x", "app=x"), pod("ml/y", "app=y"));
    let out = tcp(set, &x, &y, 80);
    let into = tcp(set, &y, &x, 80);
    assert_eq!((&out[1..], &into[..1]), ("O", "O"), "the other pod is not selected");
    format!("{}{}", &out[..1], &into[1..])
}

#[test]
fn default_deny_by_direction() {
    let all = json!([{"fromEndpoints": [{}]}]);
    let nothing = json!([{"toEndpoints": [{"matchLabels": {"app": "nobody"}}]}]);
    for (spec, expected) in [
        (json!({}), "OO"),
        (json!({"ingress": []}), "OO"),
        (json!({"ingress": [{}]}), "OC"),
        (json!({"egress": [{}]}), "CO"),
        (json!({"ingress": [{}], "egress": [{}]}), "CC"),
        (json!({"ingress": all}), "OO"),
        (json!({"ingress": null, "egress": nothing}), "CO"),
        (json!({"ingressDeny": [{"fromEndpoints": [{"matchLabels": {"app": "nobody"}}]}]}), "OC"),
        (json!({"egressDeny": nothing}), "CO"),
        (json!({"ingressDeny": [{}]}), "OC"),
        (json!({"ingress": [{}], "enableDefaultDeny": {"ingress": false}}), "OO"),
        (json!({"ingress": [{}], "egress": [{}], "enableDefaultDeny": {"ingress": false}}), "CO"),
        (json!({"ingress": [{}], "enableDefaultDeny": {"egress": false}}), "OC"),
        (json!({"ingress": [{}], "enableDefaultDeny": {"ingress": true}}), "OC"),
        (json!({"ingress": [{}], "enableDefaultDeny": {"egress": true}}), "?C"),
        (json!({"egressDeny": nothing, "enableDefaultDeny": {"egress": false}}), "OO"),
        (json!({"egressDeny": [{"toEndpoints": [{}]}], "enableDefaultDeny": {"egress": false}}), "CO"),
    ] {
        assert_eq!(out_and_in(&on(spec.clone())), expected, "{spec}");
    }
}

#[test]
fn old_cilium_has_no_enable_default_deny() {
    let spec = json!({"endpointSelector": {}, "ingress": [{}], "enableDefaultDeny": {"ingress": false}});
    let (x, y) = (pod("ml/x", ""), pod("ml/y", ""));
    assert_eq!(tcp(&set(at((1, 15)), &[cnp("p", spec.clone())]), &x, &y, 80), "OC");
    assert_eq!(tcp(&set(at((1, 16)), &[cnp("p", spec.clone())]), &x, &y, 80), "OO");
    let answer =
        set(Settings { cilium_version: None, ..CILIUM }, &[cnp("p", spec)]).evaluate(&ask(&x, &y, 80));
    assert_eq!(
        (letters(&answer).as_str(), answer.notes.as_slice()),
        ("OO", [Note::CiliumVersion].as_slice())
    );
}

#[test]
fn one_policy_is_enough_for_default_deny_and_any_allow_opens() {
    let deny = cnp("deny", json!({"endpointSelector": {}, "ingress": [{}]}));
    let quiet = cnp(
        "quiet",
        json!({"endpointSelector": {}, "enableDefaultDeny": {"ingress": false},
        "ingress": [{"fromEndpoints": [{"matchLabels": {"app": "y"}}]}]}),
    );
    let (x, y, z) = (pod("ml/x", "app=x"), pod("ml/y", "app=y"), pod("ml/z", "app=z"));
    let both = set(CILIUM, &[deny, quiet.clone()]);
    assert_eq!((tcp(&both, &y, &x, 80).as_str(), tcp(&both, &z, &x, 80).as_str()), ("OO", "OC"));
    assert_eq!(tcp(&set(CILIUM, &[quiet]), &z, &x, 80), "OO");
}

#[test]
fn deny_beats_allow_of_every_kind() {
    let deny = json!({"endpointSelector": {}, "enableDefaultDeny": {"ingress": false},
        "ingressDeny": [{"fromEndpoints": [{"matchLabels": {"app": "y"}}], "toPorts": [{"ports": [{"port": "80"}]}]}]});
    let allows = [
        cnp("allow", json!({"endpointSelector": {}, "ingress": [{"fromEntities": ["all"]}]})),
        np("allow", json!({"podSelector": {}, "ingress": [{}]})),
        ccnp("allow", json!({"endpointSelector": {}, "ingress": [{"fromEndpoints": [{}]}]})),
    ];
    let (x, y, z) = (pod("ml/x", "app=x"), pod("ml/y", "app=y"), pod("ml/z", "app=z"));
    for allow in allows {
        for deny in [cnp("deny", deny.clone()), ccnp("deny", deny.clone())] {
            let set = set(CILIUM, &[allow.clone(), deny]);
            let got = [tcp(&set, &y, &x, 80), tcp(&set, &y, &x, 81), tcp(&set, &z, &x, 80)];
            assert_eq!(got, ["OC", "OO", "OO"]);
            let answer = set.evaluate(&ask(&y, &x, 80));
            let closure = closure(&answer.ingress);
            assert_eq!(
                (names(&closure.denied_by), closure.default_deny.len(), &closure.missing),
                (vec!["deny"], 0, &None)
            );
        }
    }
}

#[test]
fn network_policy_and_cilium_policies_are_one_union() {
    let isolating = np("np", json!({"podSelector": {}, "ingress": []}));
    let allow = cnp(
        "cnp",
        json!({"endpointSelector": {}, "ingress": [{"fromEndpoints": [{"matchLabels": {"app": "y"}}]}]}),
    );
    let (x, y, z) = (pod("ml/x", "app=x"), pod("ml/y", "app=y"), pod("ml/z", "app=z"));
    let set = set(CILIUM, &[isolating, allow]);
    assert_eq!((tcp(&set, &y, &x, 80).as_str(), tcp(&set, &z, &x, 80).as_str()), ("OO", "OC"));
    let answer = set.evaluate(&ask(&z, &x, 80));
    assert_eq!(names(&closure(&answer.ingress).default_deny), ["cnp", "np"]);
}

#[test]
fn peers_of_a_rule() {
    let y = pod("ml/y", "app=y");
    let x = pod("ml/x", "app=x");
    for (rule, expected) in [
        (json!({"fromEndpoints": []}), "C"),
        (json!({"fromEndpoints": [], "toPorts": [{"ports": [{"port": "80"}]}]}), "C"),
        (json!({"fromEntities": [], "toPorts": [{"ports": [{"port": "80"}]}]}), "C"),
        (json!({"fromCIDR": [], "fromEndpoints": [{}]}), "C"),
        (json!({"fromCIDRSet": [], "fromEndpoints": [{}]}), "C"),
        (json!({"fromNodes": [], "fromEndpoints": [{}]}), "C"),
        (json!({"fromFQDNs": [], "fromEndpoints": [{}]}), "O"),
        (json!({"fromGroups": [], "fromEndpoints": [{}]}), "O"),
        (json!({"fromEndpoints": [{"matchLabels": {"app": "z"}}, {"matchLabels": {"app": "y"}}]}), "O"),
        (json!({"toPorts": [{"ports": [{"port": "80"}]}]}), "O"),
        (json!({"toPorts": []}), "C"),
        (json!({"fromEndpoints": [{}], "toPorts": []}), "O"),
        (
            json!({"fromEndpoints": [{"matchLabels": {"app": "z"}}], "toPorts": [{"ports": [{"port": "80"}]}]}),
            "C",
        ),
        (json!({"fromCIDR": ["10.0.0.0/8"]}), "C"),
        (json!({"fromNodes": [{}]}), "C"),
        (json!({"fromGroups": [{}]}), "C"),
        (json!({"fromRequires": [{}]}), "C"),
        (json!({"fromRequires": [{}], "fromEndpoints": [{}]}), "?"),
    ] {
        assert_eq!(&tcp(&on(json!({"ingress": [rule]})), &y, &x, 80)[1..], expected, "{rule}");
    }
}

#[test]
fn requires_touch_all_allows_but_no_denies() {
    let (x, y) = (pod("ml/x", "app=x"), pod("ml/y", "app=y"));
    let requires = cnp(
        "requires",
        json!({"endpointSelector": {}, "ingress": [{"fromRequires": [{"matchLabels": {"a": "b"}}]}]}),
    );
    let allow = cnp(
        "allow",
        json!({"endpointSelector": {}, "ingress": [{"fromEntities": ["all"]}], "egress": [{"toEntities": ["all"]}]}),
    );
    let deny = cnp("deny", json!({"endpointSelector": {}, "ingressDeny": [{"fromEntities": ["all"]}]}));
    let answer = set(CILIUM, &[requires.clone(), allow.clone()]).evaluate(&ask(&y, &x, 80));
    assert_eq!(letters(&answer), "O?");
    assert!(reason(&answer.ingress).contains("allow has fromRequires"), "{answer:?}");
    assert_eq!(tcp(&set(CILIUM, &[requires, allow, deny]), &y, &x, 80), "OC");
}

#[test]
fn entities() {
    let x = pod("ml/x", "app=x");
    let y = pod("web/y", "app=y");
    let peers: [(&str, Peer<'_>); 9] = [
        ("pod", (&y).into()),
        ("v4", world("1.1.1.1")),
        ("v6", world("2606::1")),
        ("remote-node", Entity::RemoteNode.into()),
        ("kube-apiserver", Entity::KubeApiserver.into()),
        ("unmanaged", Entity::Unmanaged.into()),
        ("health", Entity::Health.into()),
        ("ingress", Entity::Ingress.into()),
        ("init", Entity::Init.into()),
    ];
    for (entity, open, unknown) in [
        ("all", "pod v4 v6 remote-node kube-apiserver unmanaged health ingress init", ""),
        ("none", "", ""),
        ("world", "v4 v6", "kube-apiserver"),
        ("world-ipv4", "v4", "kube-apiserver"),
        ("world-ipv6", "v6", "kube-apiserver"),
        ("cluster", "pod remote-node kube-apiserver unmanaged health ingress init", ""),
        ("host", "", "kube-apiserver"),
        ("remote-node", "remote-node", "kube-apiserver"),
        ("kube-apiserver", "kube-apiserver", ""),
        ("unmanaged", "unmanaged", ""),
        ("health", "health", ""),
        ("ingress", "ingress", ""),
        ("init", "init", ""),
    ] {
        let set = on(json!({"ingress": [{"fromEntities": [entity]}], "egress": [{"toEntities": [entity]}]}));
        for (name, peer) in peers {
            let listed = |list: &str| list.split(' ').any(|listed| listed == name);
            let expected = if listed(open) {
                "O"
            } else if listed(unknown) {
                "?"
            } else {
                "C"
            };
            assert_eq!(&tcp(&set, &x, peer, 80)[..1], expected, "to {name} with {entity}");
            // The API server may run on the pod's own node, which may always come in.
            let own_node = name == "kube-apiserver" && expected == "C";
            let expected = if own_node { "?" } else { expected };
            assert_eq!(&tcp(&set, peer, &x, 80)[1..], expected, "from {name} with {entity}");
        }
    }
    let v4 = on(json!({"ingress": [{"fromEntities": ["world-ipv4"]}]}));
    assert_eq!(tcp(&v4, Entity::World, &x, 80), "O?");
}

#[test]
fn the_local_node_reaches_its_pods_unless_denied() {
    let x = pod("ml/x", "app=x");
    assert_eq!(tcp(&on(json!({"ingress": [{}], "egress": [{}]})), Entity::Host, &x, 80), "OO");
    assert_eq!(tcp(&on(json!({"ingressDeny": [{"fromEntities": ["host"]}]})), Entity::Host, &x, 80), "OC");
    assert_eq!(
        tcp(&on(json!({"ingressDeny": [{"fromEntities": ["remote-node"]}]})), Entity::Host, &x, 80),
        "OO"
    );
    assert_eq!(tcp(&on(json!({"egress": [{}]})), &x, Entity::Host, 80), "CO");
    assert_eq!(tcp(&on(json!({"egress": [{"toEntities": ["host"]}]})), &x, Entity::Host, 80), "OO");
}

#[test]
fn networks() {
    let x = pod("ml/x", "app=x");
    let near = pod("ml/near", "app=y");
    let with_hole = json!({"toCIDRSet": [{"cidr": "10.0.0.0/8", "except": ["10.96.0.0/12", "10.1.0.0/16"]}]});
    for (rule, address, expected) in [
        (json!({"toCIDR": ["1.2.3.0/24"]}), "1.2.3.4", "O"),
        (json!({"toCIDR": ["1.2.3.0/24"]}), "1.2.4.4", "C"),
        (json!({"toCIDR": ["1.2.3.4", "::1/128"]}), "1.2.3.4", "O"),
        (json!({"toCIDR": ["1.2.3.4"]}), "1.2.3.5", "C"),
        (json!({"toCIDR": ["0.0.0.0/0"]}), "2606::1", "C"),
        (json!({"toCIDR": ["2606::/16"]}), "2606::1", "O"),
        (with_hole.clone(), "10.2.0.1", "O"),
        (with_hole.clone(), "10.96.0.1", "C"),
        (with_hole, "10.1.0.1", "C"),
        (json!({"toCIDRSet": [{"cidrGroupRef": "g"}]}), "1.2.3.4", "?"),
        (json!({"toCIDRSet": [{"cidrGroupRef": "", "cidr": "1.2.3.0/24"}]}), "1.2.3.4", "O"),
        (json!({"toCIDRSet": [{"cidrGroupSelector": {}}]}), "1.2.3.4", "?"),
        (json!({"toFQDNs": [{"matchName": "models.example.org"}]}), "1.2.3.4", "?"),
        (json!({"toGroups": [{"aws": {}}]}), "1.2.3.4", "?"),
        (json!({"toFQDNs": []}), "1.2.3.4", "C"),
        (json!({"toNodes": [{}]}), "1.2.3.4", "C"),
    ] {
        let set = on(json!({"egress": [rule]}));
        assert_eq!(&tcp(&set, &x, world(address), 80)[..1], expected, "{rule} {address}");
        assert_eq!(&tcp(&set, &x, &near, 80)[..1], "C", "networks and names are not for pods: {rule}");
        assert_eq!(
            &tcp(&set, &x, Entity::RemoteNode, 80)[..1],
            if rule.get("toNodes").is_some() { "?" } else { "C" }
        );
    }
    assert_eq!(&tcp(&on(json!({"egress": [{"toCIDR": ["0.0.0.0/0"]}]})), &x, Entity::World, 80)[..1], "?");
    let api = Peer::Entity(Entity::KubeApiserver, Some("1.2.3.4".parse().unwrap()));
    assert_eq!(&tcp(&on(json!({"egress": [{"toCIDR": ["1.2.3.0/24"]}]})), &x, api, 80)[..1], "?");
}

#[test]
fn what_is_doubtful_about_a_rule_is_told() {
    let x = pod("ml/x", "app=x");
    for (rule, doubt) in [
        (json!({"toFQDNs": [{"matchName": "models.example.org"}]}), "allows DNS names"),
        (json!({"toGroups": [{"aws": {}}]}), "groups of a cloud provider"),
        (json!({"toCIDRSet": [{"cidrGroupRef": "g"}]}), "CIDR group"),
    ] {
        let answer = on(json!({"egress": [rule]})).evaluate(&ask(&x, world("1.2.3.4"), 80));
        assert!(reason(&answer.egress).contains(doubt), "{:?}", answer.egress);
    }
}

#[test]
fn services() {
    let service = |name: &str, selector: Value| {
        object(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "web",
            "labels": {"kind": name}}, "spec": {"selector": selector}}))
    };
    let (x, near, far) = (pod("ml/x", "app=x"), pod("web/a", "app=a"), pod("ml/a", "app=a"));
    let by_name =
        |name: &str, namespace: &str| json!({"k8sService": {"serviceName": name, "namespace": namespace}});
    let by_label =
        |selector: Value| json!({"k8sServiceSelector": {"selector": selector, "namespace": "web"}});
    let expression = |operator: &str, values: &[&str]| {
        by_label(json!({"matchExpressions": [{"key": "kind", "operator": operator, "values": values}]}))
    };
    for (service_rule, to_near, to_far, to_world) in [
        (by_name("db", "web"), "O", "C", "C"),
        (by_name("db", ""), "O", "C", "C"),
        (by_name("db", "ml"), "?", "?", "?"),
        (by_name("lost", "web"), "?", "?", "?"),
        (by_name("external", "web"), "C", "C", "?"),
        (by_label(json!({"matchLabels": {"kind": "db"}})), "O", "C", "C"),
        (by_label(json!({"matchLabels": {"k8s:kind": "db"}})), "O", "C", "C"),
        (expression("In", &["db"]), "O", "C", "C"),
        (expression("NotIn", &["external"]), "O", "C", "C"),
        (expression("NotIn", &["db"]), "C", "C", "?"),
        (expression("Exists", &[]), "O", "C", "?"),
        (expression("DoesNotExist", &[]), "?", "?", "?"),
    ] {
        let spec = json!({"endpointSelector": {}, "egress": [{"toServices": [service_rule]}]});
        let objects = [cnp("p", spec), service("db", json!({"app": "a"})), service("external", Value::Null)];
        let newest = set(CILIUM, &objects);
        let got =
            [tcp(&newest, &x, &near, 80), tcp(&newest, &x, &far, 80), tcp(&newest, &x, world("1.1.1.1"), 80)];
        let got: Vec<&str> = got.iter().map(|letters| &letters[..1]).collect();
        assert_eq!(got, [to_near, to_far, to_world], "{service_rule}");
    }
}

#[test]
fn services_with_selectors_mean_nothing_before_they_were_supported() {
    let (x, backend) = (pod("ml/x", "app=x"), pod("web/a", "app=a"));
    let db =
        object(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "db", "namespace": "web"},
        "spec": {"selector": {"app": "a"}}}));
    // To a backend, to the world, to a node.
    for (name, version, expected) in [
        ("db", (1, 17), ["O", "C", "C"]),
        ("db", (1, 16), ["C", "C", "C"]),
        ("lost", (1, 17), ["?", "?", "C"]),
        ("lost", (1, 16), ["C", "?", "C"]),
    ] {
        let to = json!([{"k8sService": {"serviceName": name, "namespace": "web"}}]);
        let policy = cnp("p", json!({"endpointSelector": {}, "egress": [{"toServices": to}]}));
        let set = set(at(version), &[policy, db.clone()]);
        let got = [(&backend).into(), world("1.1.1.1"), Entity::RemoteNode.into()]
            .map(|peer| tcp(&set, &x, peer, 80)[..1].to_owned());
        assert_eq!(got, expected, "{name} {version:?}");
    }
}

#[test]
fn specs_are_policies_of_one_name() {
    let both = object(json!({"apiVersion": "cilium.io/v2", "kind": "CiliumNetworkPolicy",
        "metadata": {"name": "p", "namespace": "ml"},
        "spec": {"endpointSelector": {"matchLabels": {"app": "x"}}, "ingress": [{}]},
        "specs": [{"endpointSelector": {}, "egress": [{}]}, {"endpointSelector": {}, "ingress": [{}]}]}));
    let (x, y) = (pod("ml/x", "app=x"), pod("ml/y", "app=y"));
    let answer = set(CILIUM, &[both]).evaluate(&ask(&y, &x, 80));
    assert_eq!(letters(&answer), "CC");
    assert_eq!(names(&closure(&answer.ingress).default_deny), ["p"]);
}

#[test]
fn enforcement_modes() {
    let (x, y) = (pod("ml/x", "app=x"), pod("ml/y", "app=y"));
    let allow = cnp("p", json!({"endpointSelector": {}, "ingress": [{"fromEndpoints": [{}]}]}));
    let deny = cnp("p", json!({"endpointSelector": {}, "ingressDeny": [{"fromEndpoints": [{}]}]}));
    let always = Settings { enforcement: Enforcement::Always, ..CILIUM };
    let never = Settings { enforcement: Enforcement::Never, ..CILIUM };
    assert_eq!(tcp(&set(always, &[allow]), &x, &y, 80), "CO");
    let answer = set(always, &[]).evaluate(&ask(&x, &y, 80));
    assert!(closure(&answer.egress).default_deny.is_empty() && closure(&answer.egress).missing.is_some());
    assert_eq!(tcp(&set(always, &[]), Entity::Host, &y, 80), "OO");
    assert_eq!(tcp(&set(always, &[]), Entity::World, Entity::RemoteNode, 80), "OO");
    let answer = set(never, &[deny]).evaluate(&ask(&x, &y, 80));
    assert_eq!((letters(&answer).as_str(), answer.notes.len()), ("OO", 0));
}

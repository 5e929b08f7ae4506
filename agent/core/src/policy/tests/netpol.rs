//! NetworkPolicy, with Cilium and with other plugins.

use super::*;

fn on(settings: Settings, spec: Value) -> PolicySet {
    set(settings, &[np("p", spec)])
}

#[test]
fn policy_types() {
    let (x, y) = (pod("ml/x", "app=x"), pod("web/y", "app=y"));
    for (spec, out, into) in [
        (json!({"podSelector": {}}), "O", "C"),
        (json!({}), "O", "C"),
        (json!({"podSelector": {}, "ingress": []}), "O", "C"),
        (json!({"podSelector": {}, "ingress": [{}]}), "O", "O"),
        (json!({"podSelector": {}, "egress": []}), "O", "C"),
        (json!({"podSelector": {}, "policyTypes": [], "egress": []}), "O", "C"),
        (json!({"podSelector": {}, "egress": [{}]}), "O", "C"),
        (json!({"podSelector": {}, "egress": [{"ports": [{"port": 1}]}]}), "C", "C"),
        (json!({"podSelector": {}, "policyTypes": ["Egress"]}), "C", "O"),
        (json!({"podSelector": {}, "policyTypes": ["Ingress"]}), "O", "C"),
        (json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"], "egress": [{}]}), "O", "C"),
        (
            json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"to": []}], "ingress": [{"ports": [{"port": 1}]}]}),
            "O",
            "O",
        ),
        (
            json!({"podSelector": {}, "policyTypes": ["Ingress"], "egress": [{"ports": [{"port": 1}]}]}),
            "O",
            "C",
        ),
        (json!({"podSelector": {"matchLabels": {"app": "z"}}}), "O", "O"),
    ] {
        for settings in [CILIUM, OTHER, UNKNOWN] {
            let set = on(settings, spec.clone());
            assert_eq!(tcp(&set, &x, &y, 80), format!("{out}O"), "{spec}");
            assert_eq!(tcp(&set, &y, &x, 80), format!("O{into}"), "{spec}");
        }
    }
}

#[test]
fn peers() {
    let dst = pod("ml/dst", "app=dst");
    let (here, there, lost) = (pod("ml/a", "app=a"), pod("web/a", "app=a"), pod("lost/b", "app=b"));
    for (from, letters) in [
        (json!([{"podSelector": {}}]), "OCCC"),
        (json!([{"podSelector": {"matchLabels": {"app": "a"}}}]), "OCCC"),
        (json!([{"podSelector": {"matchLabels": {"app": "b"}}}]), "CCCC"),
        (json!([{"namespaceSelector": {}}]), "OOOC"),
        (json!([{"namespaceSelector": {"matchLabels": {"team": "web"}}}]), "CO?C"),
        (json!([{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "lost"}}}]), "CCOC"),
        (
            json!([{"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["web"]}]}}]),
            "OC?C",
        ),
        (json!([{"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "a"}}}]), "OOCC"),
        (
            json!([{"namespaceSelector": {"matchLabels": {"team": "web"}}, "podSelector": {"matchLabels": {"app": "b"}}}]),
            "CC?C",
        ),
        (json!([{"podSelector": {}}, {"namespaceSelector": {"matchLabels": {"team": "web"}}}]), "OO?C"),
        (
            json!([{"podSelector": {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}}]),
            "CCCC",
        ),
        (json!([]), "OOOO"),
        (json!(null), "OOOO"),
    ] {
        for settings in [CILIUM, OTHER] {
            let set = on(
                settings,
                json!({"podSelector": {"matchLabels": {"app": "dst"}}, "ingress": [{"from": from}]}),
            );
            let peers: [Peer<'_>; 4] = [(&here).into(), (&there).into(), (&lost).into(), world("1.1.1.1")];
            let got: String = peers.iter().map(|peer| tcp(&set, *peer, &dst, 80)[1..].to_owned()).collect();
            assert_eq!(got, letters, "{from} {settings:?}");
        }
    }
}

#[test]
fn ip_blocks() {
    let (x, y) = (pod("ml/x", "app=x"), pod("ml/y", "app=y"));
    let both = Pod { ips: vec!["10.0.0.9".parse().unwrap(), "fd00::9".parse().unwrap()], ..pod("ml/z", "") };
    let none = Pod { ips: Vec::new(), ..pod("ml/n", "") };
    let block = |cidr: &str| {
        json!({"podSelector": {"matchLabels": {"app": "x"}}, "policyTypes": ["Egress"],
        "egress": [{"to": [{"ipBlock": {"cidr": cidr, "except": ["10.128.0.0/9"]}}]}]})
    };
    let targets: [Peer<'_>; 7] = [
        world("10.1.1.1"),
        world("10.128.1.1"),
        world("11.1.1.1"),
        (&y).into(),
        (&both).into(),
        (&none).into(),
        Peer::Entity(Entity::RemoteNode, Some("10.1.1.1".parse().unwrap())),
    ];
    for (settings, expected) in [(CILIUM, "OCCCCCC"), (OTHER, "OCC????"), (UNKNOWN, "OCC????")] {
        let set = on(settings, block("10.0.0.0/8"));
        let got: String = targets.iter().map(|to| tcp(&set, &x, *to, 80)[..1].to_owned()).collect();
        assert_eq!(got, expected, "{settings:?}");
    }
    let elsewhere = json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"to": [{"ipBlock": {"cidr": "11.0.0.0/8"}}]}]});
    assert_eq!(&tcp(&on(OTHER, elsewhere), &x, &y, 80)[..1], "C");
    let answer = on(OTHER, block("10.0.0.0/8")).evaluate(&ask(&x, &y, 80));
    assert!(reason(&answer.egress).contains("network plugin"), "{answer:?}");
}

#[test]
fn ports() {
    let (x, y) = (pod("ml/x", "app=x"), pod("ml/y", "app=y"));
    use Protocol::{Sctp, Tcp, Udp};
    for (ports, protocol, port, expected) in [
        (json!([{"port": 80}]), Tcp, 80, "O"),
        (json!([{"port": 80}]), Udp, 80, "C"),
        (json!([{"port": 80, "protocol": "UDP"}]), Udp, 80, "O"),
        (json!([{"port": 80, "protocol": "SCTP"}]), Sctp, 80, "O"),
        (json!([{"protocol": "TCP"}]), Tcp, 65535, "O"),
        (json!([{"protocol": "UDP"}]), Tcp, 1, "C"),
        (json!([{}]), Tcp, 1, "O"),
        (json!([]), Sctp, 1, "O"),
        (json!([{"port": 80, "endPort": 90}]), Tcp, 90, "O"),
        (json!([{"port": 80, "endPort": 90}]), Tcp, 91, "C"),
        (json!([{"port": 1}, {"port": 80}]), Tcp, 80, "O"),
        (json!([{"port": "rdzv"}]), Tcp, 29500, "O"),
        (json!([{"port": "rdzv"}]), Tcp, 80, "C"),
        (json!([{"port": "dns", "protocol": "UDP"}]), Udp, 53, "O"),
        (json!([{"port": "dns"}]), Tcp, 53, "C"),
    ] {
        let set = on(OTHER, json!({"podSelector": {}, "ingress": [{"ports": ports}]}));
        let answer =
            set.evaluate(&Question { src: (&y).into(), dst: (&x).into(), protocol, ports: Ports::One(port) });
        assert_eq!(&letters(&answer)[1..], expected, "{ports} {protocol:?} {port}");
    }
    let both = on(
        OTHER,
        json!({"podSelector": {}, "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "z"}}}], "ports": [{"port": 80}]}]}),
    );
    assert_eq!(tcp(&both, &y, &x, 80), "OC");
}

#[test]
fn policies_add_up() {
    let (x, y) = (pod("ml/x", "app=x"), pod("ml/y", "app=y"));
    let deny = np("deny", json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}));
    let allow = np(
        "allow",
        json!({"podSelector": {"matchLabels": {"app": "x"}}, "ingress": [{"from": [{"podSelector": {}}]}]}),
    );
    let answer = set(OTHER, &[deny, allow]).evaluate(&ask(&y, &x, 80));
    assert_eq!(letters(&answer), "CO");
    assert_eq!(names(&closure(&answer.egress).default_deny), ["deny"]);
    assert!(matches!(&answer.ingress, Decision::Open { by } if names(by) == ["allow"]));
}

#[test]
fn labels_that_cilium_hides_cannot_be_selected_with_cilium() {
    let (x, y) = (pod("ml/x", "pod-template-hash=1"), pod("ml/y", ""));
    let spec = json!({"podSelector": {"matchLabels": {"pod-template-hash": "1"}}});
    let absent = json!({"podSelector": {"matchExpressions": [{"key": "pod-template-hash", "operator": "DoesNotExist"}]}});
    for (settings, expected, expected_absent) in
        [(CILIUM, "OO", "OC"), (OTHER, "OC", "OO"), (UNKNOWN, "O?", "O?")]
    {
        assert_eq!(tcp(&on(settings, spec.clone()), &y, &x, 80), expected);
        assert_eq!(tcp(&on(settings, absent.clone()), &y, &x, 80), expected_absent);
        assert_eq!(tcp(&on(settings, spec.clone()), &x, &y, 80), "OO");
    }
    let answer = on(UNKNOWN, spec).evaluate(&ask(&y, &x, 80));
    assert!(reason(&answer.ingress).contains("NetworkPolicy ml/p"), "{answer:?}");
    let zone = json!({"podSelector": {"matchLabels": {"topology.kubernetes.io/zone": "a"}}});
    let z = pod("ml/z", "topology.kubernetes.io/zone=a");
    assert_eq!(tcp(&on(at((1, 18)), zone.clone()), &y, &z, 80), "OC");
    assert_eq!(tcp(&on(at((1, 19)), zone.clone()), &y, &z, 80), "OO");
    let newest = on(Settings { cilium_version: None, ..CILIUM }, zone.clone()).evaluate(&ask(&y, &z, 80));
    assert_eq!(
        (letters(&newest).as_str(), newest.notes.as_slice()),
        ("OO", [Note::CiliumVersion].as_slice())
    );
    assert!(on(OTHER, zone).evaluate(&ask(&y, &z, 80)).notes.is_empty());
}

#[test]
fn cilium_is_inferred() {
    let (x, y) = (pod("ml/x", "app=x"), pod("ml/y", "app=y"));
    let block =
        np("p", json!({"podSelector": {}, "ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]}));
    let far = object(json!({"apiVersion": "cilium.io/v2", "kind": "CiliumNetworkPolicy",
        "metadata": {"name": "far", "namespace": "far"}, "spec": {"endpointSelector": {}, "ingress": [{}]}}));
    assert_eq!(tcp(&set(UNKNOWN, std::slice::from_ref(&block)), &y, &x, 80), "O?");
    assert_eq!(tcp(&set(UNKNOWN, &[block.clone(), far.clone()]), &y, &x, 80), "OC");
    assert_eq!(tcp(&set(OTHER, &[block.clone(), far]), &y, &x, 80), "O?");
    let versioned = Settings { cilium_version: Some((1, 18)), ..UNKNOWN };
    assert_eq!(tcp(&set(versioned, &[block]), &y, &x, 80), "OC");
}

#[test]
fn icmp_is_only_defined_with_cilium() {
    let (x, y) = (pod("ml/x", "app=x"), pod("ml/y", "app=y"));
    let icmp = |settings, spec: Value| {
        let question = Question { protocol: Protocol::Icmp, ..ask(&y, &x, 0) };
        letters(&on(settings, spec).evaluate(&question))
    };
    let (deny, allow) = (json!({"podSelector": {}}), json!({"podSelector": {}, "ingress": [{}]}));
    assert_eq!([icmp(CILIUM, deny.clone()), icmp(CILIUM, allow.clone())], ["OC", "OO"]);
    assert_eq!([icmp(OTHER, deny.clone()), icmp(OTHER, allow)], ["O?", "O?"]);
    assert_eq!(icmp(UNKNOWN, deny), "O?");
    assert_eq!(icmp(OTHER, json!({"podSelector": {"matchLabels": {"app": "z"}}})), "OO");
    let from_node = Question { protocol: Protocol::Icmp, ..ask(Entity::Host, &x, 0) };
    let set = on(OTHER, json!({"podSelector": {}}));
    assert_eq!(letters(&set.evaluate(&from_node)), "OO", "whatever ICMP is, the own node passes");
    let reason = reason(&set.evaluate(&Question { src: (&y).into(), ..from_node }).ingress).to_owned();
    assert!(reason.contains("ICMP"), "{reason}");
}

#[test]
fn the_own_node_is_let_through() {
    let x = pod("ml/x", "app=x");
    let deny = json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]});
    for (settings, to_host) in [(CILIUM, "CO"), (OTHER, "OO"), (UNKNOWN, "?O")] {
        let set = on(settings, deny.clone());
        assert_eq!(tcp(&set, Entity::Host, &x, 80), "OO");
        assert_eq!(tcp(&set, &x, Entity::Host, 80), to_host);
        assert_eq!(tcp(&set, Entity::RemoteNode, &x, 80), "OC");
        assert_eq!(tcp(&set, &x, Entity::RemoteNode, 80), "CO");
        let answer = set.evaluate(&ask(&x, Entity::Host, 80));
        match &answer.egress {
            Decision::Unknown { reason } => {
                assert_eq!(reason, "whether NetworkPolicy ml/p means default deny here is not known");
            }
            Decision::Closed(closure) => assert_eq!(names(&closure.default_deny), ["p"]),
            Decision::Open { by } => assert!(by.is_empty(), "no rule matched"),
        }
    }
}

#[test]
fn a_doubtful_selection_ends_nothing() {
    // Whether the policy selects is not known: the label may be one that Cilium does not see.
    let x = pod("ml/x", "pod-template-hash=1");
    let policy = np(
        "p",
        json!({"podSelector": {"matchLabels": {"pod-template-hash": "1"}}, "policyTypes": ["Egress"]}),
    );
    let deny = json!([{"action": "Deny", "to": [{"networks": ["0.0.0.0/0"]}]}]);
    let baseline = banp(json!({"subject": {"namespaces": {}}, "egress": deny}));
    let node = |entity| Peer::Entity(entity, Some("10.0.0.1".parse().unwrap()));
    for peer in [node(Entity::RemoteNode), node(Entity::Host), world("1.1.1.1")] {
        let alone = set(UNKNOWN, std::slice::from_ref(&policy)).evaluate(&ask(&x, peer, 80));
        assert!(reason(&alone.egress).contains("means default deny"), "{alone:?}");
        let both = set(UNKNOWN, &[policy.clone(), baseline.clone()]);
        assert_eq!(&tcp(&both, &x, peer, 80)[..1], "?");
    }
    // Without a doubt about the plugin the label is seen, and the policy holds.
    assert_eq!(tcp(&set(OTHER, &[policy, baseline]), &x, world("1.1.1.1"), 80), "CO");
}

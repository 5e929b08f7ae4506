//! `toPorts`, ICMP and layer 7 of Cilium policies.

use super::*;

fn spec(ports: Value) -> Value {
    json!({"endpointSelector": {"matchLabels": {"app": "x"}}, "ingress": [{"toPorts": [{"ports": ports}]}]})
}

fn ports(ports: Value) -> PolicySet {
    set(CILIUM, &[cnp("p", spec(ports))])
}

fn into_x(set: &PolicySet, protocol: Protocol, ports: Ports) -> Answer {
    let (x, y) = (pod("ml/x", "app=x"), pod("ml/y", "app=y"));
    set.evaluate(&Question { src: (&y).into(), dst: (&x).into(), protocol, ports })
}

#[test]
fn ports_and_protocols() {
    use Protocol::{Icmp, Sctp, Tcp, Udp};
    for (list, protocol, port, expected) in [
        (json!([{"port": "80"}]), Tcp, 80, "OO"),
        (json!([{"port": "80"}]), Udp, 80, "OO"),
        (json!([{"port": "80"}]), Sctp, 80, "OO"),
        (json!([{"port": "80"}]), Tcp, 81, "OC"),
        (json!([{"port": "80", "protocol": "ANY"}]), Udp, 80, "OO"),
        (json!([{"port": "80", "protocol": ""}]), Udp, 80, "OO"),
        (json!([{"port": "80", "protocol": "TCP"}]), Tcp, 80, "OO"),
        (json!([{"port": "80", "protocol": "TCP"}]), Udp, 80, "OC"),
        (json!([{"port": "80", "protocol": "UDP"}]), Udp, 80, "OO"),
        (json!([{"port": "80", "protocol": "UDP"}]), Tcp, 80, "OC"),
        (json!([{"port": "80", "protocol": "SCTP"}]), Sctp, 80, "OO"),
        (json!([{"port": "80", "protocol": "SCTP"}]), Tcp, 80, "OC"),
        (json!([{"port": "0", "protocol": "VRRP"}]), Tcp, 80, "OC"),
        (json!([{"port": "0"}]), Tcp, 65535, "OO"),
        (json!([{"port": "0", "protocol": "UDP"}]), Tcp, 80, "OC"),
        (json!([{"port": "0"}]), Icmp, 0, "OC"),
        (json!([{"port": "70"}, {"port": "80"}]), Tcp, 80, "OO"),
        (json!([{"port": "80", "endPort": 90}]), Tcp, 80, "OO"),
        (json!([{"port": "80", "endPort": 90}]), Tcp, 90, "OO"),
        (json!([{"port": "80", "endPort": 90}]), Tcp, 91, "OC"),
        (json!([{"port": "80", "endPort": 90}]), Tcp, 79, "OC"),
        (json!([{"port": "80", "endPort": 80}]), Tcp, 80, "OO"),
        (json!([{"port": "80", "endPort": 0}]), Tcp, 80, "OO"),
        (json!([{"port": "rdzv"}]), Tcp, 29500, "OO"),
        (json!([{"port": "RDZV", "protocol": "TCP"}]), Tcp, 29500, "OO"),
        (json!([{"port": "rdzv", "endPort": 30000}]), Tcp, 29501, "OC"),
        (json!([{"port": "rdzv"}]), Udp, 29500, "OC"),
        (json!([{"port": "rdzv", "protocol": "UDP"}]), Tcp, 29500, "OC"),
        (json!([{"port": "dns"}]), Udp, 53, "OO"),
        (json!([{"port": "dns"}]), Tcp, 53, "OC"),
        (json!([{"port": "lost"}]), Tcp, 29500, "OC"),
        (json!([]), Tcp, 80, "O?"),
    ] {
        let answer = into_x(&ports(list.clone()), protocol, Ports::One(port));
        assert_eq!(letters(&answer), expected, "{list} {protocol:?} {port}");
    }
}

#[test]
fn ranges_are_answered_port_by_port() {
    for (list, low, high, expected, open) in [
        (json!([{"port": "100", "endPort": 200}]), 100, 200, "OO", vec![]),
        (json!([{"port": "100", "endPort": 200}]), 150, 160, "OO", vec![]),
        (json!([{"port": "100", "endPort": 149}, {"port": "150", "endPort": 200}]), 100, 200, "OO", vec![]),
        (json!([{"port": "29501", "endPort": 34768}]), 32768, 60999, "OC", vec![(32768, 34768)]),
        (json!([{"port": "100"}, {"port": "102"}]), 100, 103, "OC", vec![(100, 100), (102, 102)]),
        (json!([{"port": "1"}]), 100, 103, "OC", vec![]),
    ] {
        let answer = into_x(&ports(list.clone()), Protocol::Tcp, Ports::Range(low, high));
        assert_eq!(letters(&answer), expected, "{list}");
        if expected == "OC" {
            assert_eq!(closure(&answer.ingress).open_ports, open, "{list}");
        }
    }
    let answer = into_x(&ports(json!([{"port": "100"}])), Protocol::Tcp, Ports::Range(99, 101));
    assert_eq!(closure(&answer.ingress).missing.as_ref().unwrap().ports, [(99, 99), (101, 101)]);
}

#[test]
fn a_deny_of_some_ports_closes_a_range() {
    let deny = cnp(
        "deny",
        json!({"endpointSelector": {}, "ingress": [{"fromEntities": ["all"]}],
        "ingressDeny": [{"toPorts": [{"ports": [{"port": "150", "endPort": 160}]}]}]}),
    );
    let set = set(CILIUM, &[deny]);
    let answer = into_x(&set, Protocol::Tcp, Ports::Range(100, 155));
    let closure = closure(&answer.ingress);
    assert_eq!((names(&closure.denied_by), &closure.open_ports), (vec!["deny"], &vec![(100, 149)]));
    assert!(closure.default_deny.is_empty() && closure.missing.is_none());
    assert_eq!(letters(&into_x(&set, Protocol::Tcp, Ports::Range(100, 149))), "OO");
}

#[test]
fn old_cilium_opens_only_the_first_port_of_a_range() {
    let list = json!([{"port": "80", "endPort": 90}]);
    let policy = cnp("p", spec(list));
    let allow = np("q", json!({"podSelector": {}, "ingress": [{"ports": [{"port": 80, "endPort": 90}]}]}));
    for object in [policy, allow] {
        for (settings, port, expected, notes) in [
            (at((1, 15)), 80, "OO", 0),
            (at((1, 15)), 81, "OC", 0),
            (at((1, 16)), 81, "OO", 0),
            (Settings { cilium_version: None, ..CILIUM }, 81, "OO", 1),
            (Settings { cilium_version: None, ..CILIUM }, 80, "OO", 0),
        ] {
            let answer =
                into_x(&set(settings, std::slice::from_ref(&object)), Protocol::Tcp, Ports::One(port));
            assert_eq!(
                (letters(&answer).as_str(), answer.notes.len()),
                (expected, notes),
                "{settings:?} {port}"
            );
        }
    }
}

#[test]
fn named_ports_are_those_of_the_destination() {
    let egress = cnp(
        "p",
        json!({"endpointSelector": {"matchLabels": {"app": "x"}},
        "egress": [{"toEntities": ["all"], "toPorts": [{"ports": [{"port": "rdzv"}]}]}]}),
    );
    let set = set(CILIUM, &[egress]);
    let x = Pod { ports: Vec::new(), ..pod("ml/x", "app=x") };
    let y = pod("ml/y", "app=y");
    assert_eq!(tcp(&set, &x, &y, 29500), "OO");
    assert_eq!(tcp(&set, &y, &x, 29500), "OO");
    assert_eq!(tcp(&set, &x, &Pod { ports: Vec::new(), ..y }, 29500), "CO");
    assert_eq!(tcp(&set, &x, world("1.1.1.1"), 29500), "CO");
}

#[test]
fn icmp_rules() {
    let rule = |rule: Value| set(CILIUM, &[cnp("p", json!({"endpointSelector": {}, "ingress": [rule]}))]);
    let icmps = json!({"icmps": [{"fields": [{"type": 8}]}]});
    let any = Ports::One(0);
    let answer = into_x(&rule(icmps.clone()), Protocol::Icmp, any);
    assert_eq!(letters(&answer), "O?");
    assert!(reason(&answer.ingress).contains("ICMP types"));
    assert_eq!(letters(&into_x(&rule(icmps), Protocol::Tcp, any)), "OC");
    let all = rule(json!({"fromEntities": ["all"]}));
    assert_eq!(letters(&into_x(&all, Protocol::Icmp, Ports::Range(7, 9))), "OO");
    assert_eq!(letters(&into_x(&rule(json!({})), Protocol::Icmp, any)), "OC");
    let closed = into_x(&rule(json!({})), Protocol::Icmp, Ports::Range(7, 9));
    let missing = closure(&closed.ingress).missing.as_ref().unwrap();
    assert_eq!(missing.ports, [(0, 0)], "ICMP has no ports, whatever is asked");
}

#[test]
fn layer_seven_allows_with_a_note() {
    let entry = |more: Value| {
        let mut entry = json!({"ports": [{"port": "80", "protocol": "TCP"}]});
        entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        set(CILIUM, &[cnp("p", json!({"endpointSelector": {}, "ingress": [{"toPorts": [entry]}]}))])
    };
    for (more, noted) in [
        (json!({}), false),
        (json!({"rules": {}}), false),
        (json!({"rules": {"http": [{"method": "GET"}]}}), true),
        (json!({"serverNames": ["a.example"]}), true),
        (json!({"serverNames": []}), false),
        (json!({"terminatingTLS": null, "rules": null}), false),
        (json!({"terminatingTLS": {}}), true),
        (json!({"originatingTLS": {}}), true),
        (json!({"listener": {}}), true),
    ] {
        let answer = into_x(&entry(more.clone()), Protocol::Tcp, Ports::One(80));
        assert_eq!(letters(&answer), "OO", "{more}");
        assert_eq!(
            matches!(answer.notes.as_slice(), [Note::ApplicationRules(policy)] if policy.name == "p"),
            noted,
            "{more}"
        );
        assert_eq!(answer.notes.len(), usize::from(noted), "{more}");
        assert!(into_x(&entry(more), Protocol::Tcp, Ports::One(81)).notes.is_empty());
    }
}

#[test]
fn authentication_allows_with_a_note() {
    for (mode, noted) in [("required", true), ("disabled", false)] {
        let rule = json!({"fromEndpoints": [{}], "authentication": {"mode": mode}});
        let set = set(CILIUM, &[cnp("p", json!({"endpointSelector": {}, "ingress": [rule]}))]);
        let answer = into_x(&set, Protocol::Tcp, Ports::One(80));
        assert_eq!((letters(&answer).as_str(), answer.notes.len()), ("OO", usize::from(noted)));
        assert!(
            answer
                .notes
                .iter()
                .all(|note| matches!(note, Note::Authentication(policy) if policy.name == "p"))
        );
    }
}

#[test]
fn entries_of_to_ports_are_alternatives() {
    let entries = json!([{"ports": [{"port": "80"}]}, {"ports": [{"port": "81", "protocol": "TCP"}], "rules": {"http": [{}]}}]);
    let rule = json!({"fromEndpoints": [{"matchLabels": {"app": "y"}}], "toPorts": entries});
    let set = set(CILIUM, &[cnp("p", json!({"endpointSelector": {}, "ingress": [rule]}))]);
    let got = [80, 81, 82].map(|port| into_x(&set, Protocol::Tcp, Ports::One(port)));
    assert_eq!(got.each_ref().map(letters), ["OO", "OO", "OC"]);
    assert_eq!(got.map(|answer| answer.notes.len()), [0, 1, 0]);
}

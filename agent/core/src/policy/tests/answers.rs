//! What answers say besides open and closed.

use super::*;
use crate::object::Labels;

#[test]
fn both_directions_are_told_with_all_policies_in_order() {
    let (x, y) = (pod("ml/x", "app=x,pod-template-hash=7"), pod("web/y", "app=y"));
    let deny_all = json!({"endpointSelector": {}, "ingress": [{}], "egress": [{}]});
    let policies = [
        np("n", json!({"podSelector": {}, "policyTypes": ["Egress"]})),
        cnp("b", deny_all.clone()),
        cnp("a", deny_all.clone()),
        ccnp("c", deny_all),
    ];
    let set = set(CILIUM, &policies);
    let answer = set.evaluate(&Question { ports: Ports::Range(80, 90), ..ask(&x, &y, 0) });
    let (egress, ingress) = (closure(&answer.egress), closure(&answer.ingress));
    assert_eq!(names(&egress.default_deny), ["a", "b", "c", "n"]);
    assert_eq!(names(&ingress.default_deny), ["c"]);
    assert!(egress.denied_by.is_empty() && egress.open_ports.is_empty());
    assert_eq!(
        egress.default_deny[0].created.map(|t| t.to_string()).as_deref(),
        Some("2026-11-01T09:00:00Z")
    );
    let labels = |name: &str| Labels::from([("app".to_owned(), name.to_owned())]);
    let x_side = Side::Pods { namespace: "ml".to_owned(), labels: labels("x") };
    let y_side = Side::Pods { namespace: "web".to_owned(), labels: labels("y") };
    let missing = |direction, subject, peer| MissingAllow {
        direction,
        subject,
        peer,
        protocol: Protocol::Tcp,
        ports: vec![(80, 90)],
    };
    assert_eq!(egress.missing, Some(missing(Direction::Egress, x_side.clone(), y_side.clone())));
    assert_eq!(ingress.missing, Some(missing(Direction::Ingress, y_side, x_side)));
    assert_eq!(answer.verdict(), Verdict3::Closed);
}

#[test]
fn sides_that_are_no_pods() {
    let x = pod("ml/x", "");
    let set = set(CILIUM, &[cnp("p", json!({"endpointSelector": {}, "egress": [{}]}))]);
    let (near, far) = (host_pod("h", Some("n1")), host_pod("h", Some("n2")));
    let api = Peer::Entity(Entity::KubeApiserver, Some("10.1.1.1".parse().unwrap()));
    for (peer, expected) in [
        (Peer::from(&near), Side::Entity(Entity::Host, None)),
        ((&far).into(), Side::Entity(Entity::RemoteNode, None)),
        (api, Side::Entity(Entity::KubeApiserver, Some("10.1.1.1".parse().unwrap()))),
    ] {
        let answer = set.evaluate(&ask(&x, peer, 80));
        assert_eq!(closure(&answer.egress).missing.as_ref().unwrap().peer, expected);
    }
}

#[test]
fn default_deny_and_deny_together() {
    let (x, y) = (pod("ml/x", ""), pod("ml/y", ""));
    let deny = cnp(
        "deny",
        json!({"endpointSelector": {}, "ingressDeny": [{"toPorts": [{"ports": [{"port": "80"}]}]}]}),
    );
    let also = cnp("also", json!({"endpointSelector": {}, "ingressDeny": [{"fromEntities": ["all"]}]}));
    let open = cnp("open", json!({"endpointSelector": {}, "ingress": [{"fromEntities": ["all"]}]}));
    let answer = set(CILIUM, std::slice::from_ref(&deny))
        .evaluate(&Question { ports: Ports::Range(80, 81), ..ask(&y, &x, 0) });
    let both = closure(&answer.ingress);
    assert_eq!((names(&both.denied_by), names(&both.default_deny)), (vec!["deny"], vec!["deny"]));
    // Lifting the deny alone opens nothing where no allow matches; where one does, it does.
    let narrow = cnp(
        "narrow",
        json!({"endpointSelector": {}, "ingress": [{"toPorts": [{"ports": [{"port": "80"}]}]}]}),
    );
    let elsewhere = cnp("elsewhere", json!({"endpointSelector": {}, "ingress": [{}]}));
    for (objects, ports, denied_by, default_deny) in [
        (vec![deny.clone()], (80, 80), vec!["deny"], vec!["deny"]),
        (vec![deny.clone(), elsewhere.clone()], (80, 80), vec!["deny"], vec!["deny", "elsewhere"]),
        (vec![deny.clone(), also.clone(), open], (80, 80), vec!["also", "deny"], vec![]),
        (vec![deny.clone(), narrow.clone()], (80, 80), vec!["deny"], vec![]),
        (vec![also, narrow.clone()], (80, 81), vec!["also"], vec!["also", "narrow"]),
        (vec![deny, narrow, elsewhere], (80, 81), vec!["deny"], vec!["deny", "elsewhere", "narrow"]),
    ] {
        let question = Question { ports: Ports::Range(ports.0, ports.1), ..ask(&y, &x, 0) };
        let answer = set(CILIUM, &objects).evaluate(&question);
        let closure = closure(&answer.ingress);
        assert_eq!((names(&closure.denied_by), names(&closure.default_deny)), (denied_by, default_deny));
        assert!(closure.missing.is_none(), "no allow overrides a deny");
    }
}

#[test]
fn what_holds_wherever_the_api_server_runs() {
    let x = pod("ml/x", "");
    let port = |number: &str| json!([{"ports": [{"port": number}]}]);
    let spec = json!({"endpointSelector": {}, "egress": [{"toEntities": ["remote-node"], "toPorts": port("80")}],
        "egressDeny": [{"toEntities": ["host"]}, {"toEntities": ["world"], "toPorts": port("81")}]});
    let set = set(CILIUM, &[cnp("p", spec)]);
    let api = |set: &PolicySet, low: u16, high: u16| {
        let question = Question { ports: Ports::Range(low, high), ..ask(&x, Entity::KubeApiserver, 0) };
        closure(&set.evaluate(&question).egress).clone()
    };
    for low in [80, 81] {
        let closure = api(&set, low, 81);
        assert!(closure.denied_by.is_empty() && closure.open_ports.is_empty(), "{closure:?}");
        assert!(names(&closure.default_deny) == ["p"] && closure.missing.is_some(), "{closure:?}");
    }
    assert_eq!(tcp(&set, &x, Entity::KubeApiserver, 80), "?O");
    let deny = |name: &str, entity: &str| {
        cnp(
            name,
            json!({"endpointSelector": {}, "egressDeny": [{"toEntities": [entity], "toPorts": port("80")}]}),
        )
    };
    let allow = cnp("allow", json!({"endpointSelector": {}, "egress": [{"toEntities": ["all"]}]}));
    let denies = [deny("a", "host"), deny("b", "remote-node"), deny("c", "world"), allow];
    let closure = api(&super::set(CILIUM, &denies), 79, 80);
    assert_eq!((names(&closure.denied_by), closure.default_deny.len()), (vec!["a", "b", "c"], 0));
    assert_eq!((closure.open_ports, closure.missing), (vec![(79, 79)], None));
}

#[test]
fn open_says_by_whom() {
    let (x, y) = (pod("ml/x", "app=x"), pod("ml/y", "app=y"));
    let allow = |name: &str, port: &str| {
        cnp(name, json!({"endpointSelector": {}, "ingress": [{"toPorts": [{"ports": [{"port": port}]}]}]}))
    };
    let set = set(CILIUM, &[allow("b", "80"), allow("a", "80"), allow("c", "81")]);
    let answer = set.evaluate(&ask(&x, &y, 80));
    assert!(matches!(&answer.ingress, Decision::Open { by } if names(by) == ["a", "b"]));
    assert_eq!(answer.egress, Decision::Open { by: Vec::new() });
}

#[test]
fn verdicts_of_two_ends() {
    let decision = |letter: char| match letter {
        'O' => Decision::Open { by: Vec::new() },
        'C' => Decision::Closed(Closure {
            default_deny: Vec::new(),
            denied_by: Vec::new(),
            open_ports: Vec::new(),
            missing: None,
        }),
        _ => Decision::Unknown { reason: String::new() },
    };
    for (pair, expected) in [
        ("OO", Verdict3::Open),
        ("OC", Verdict3::Closed),
        ("CO", Verdict3::Closed),
        ("C?", Verdict3::Closed),
        ("?C", Verdict3::Closed),
        ("?O", Verdict3::Unknown),
        ("O?", Verdict3::Unknown),
        ("??", Verdict3::Unknown),
    ] {
        let mut letters = pair.chars().map(decision);
        let (egress, ingress) = (letters.next().unwrap(), letters.next().unwrap());
        assert_eq!(Answer { egress, ingress, notes: Vec::new() }.verdict(), expected, "{pair}");
    }
}

#[test]
fn a_sure_deny_or_allow_settles_what_is_doubtful() {
    let (x, w) = (pod("ml/x", ""), world("1.2.3.4"));
    let rule = |section: &str, rule: Value| cnp(section, json!({"endpointSelector": {}, section: [rule]}));
    let fqdn = rule("egress", json!({"toFQDNs": [{"matchName": "a"}]}));
    let deny_group = rule("egressDeny", json!({"toGroups": [{}]}));
    let all = cnp("all", json!({"endpointSelector": {}, "egress": [{"toEntities": ["world"]}]}));
    let deny = cnp("deny", json!({"endpointSelector": {}, "egressDeny": [{"toEntities": ["world"]}]}));
    let quiet = cnp(
        "quiet",
        json!({"endpointSelector": {}, "egress": [{"toFQDNs": [{"matchName": "a"}]}], "enableDefaultDeny": {"egress": false}}),
    );
    let quiet_deny = cnp(
        "quiet",
        json!({"endpointSelector": {}, "egressDeny": [{"toGroups": [{}]}], "enableDefaultDeny": {"egress": false}}),
    );
    let fqdn_too = fqdn.clone();
    for (objects, expected) in [
        (vec![fqdn.clone()], "?"),
        (vec![fqdn.clone(), all.clone()], "O"),
        (vec![fqdn, deny.clone()], "C"),
        (vec![deny_group.clone(), all], "?"),
        (vec![deny_group.clone()], "C"),
        (vec![deny_group.clone(), fqdn_too], "?"),
        (vec![quiet_deny], "?"),
        (vec![deny_group, deny], "C"),
        (vec![quiet], "O"),
    ] {
        assert_eq!(&tcp(&set(CILIUM, &objects), &x, w, 80)[..1], expected, "{objects:?}");
    }
}

#[test]
fn doubtful_selection() {
    let (x, y) = (pod("lost/x", ""), pod("lost/y", ""));
    let selector = json!({"matchLabels": {"io.cilium.k8s.namespace.labels.team": "ml"}});
    let policy = |more: Value| {
        let mut spec = json!({"endpointSelector": selector});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        set(CILIUM, &[ccnp("p", spec)])
    };
    assert_eq!(tcp(&policy(json!({"ingress": [{}]})), &y, &x, 80), "O?");
    assert_eq!(tcp(&policy(json!({"ingress": [{"fromEntities": ["all"]}]})), &y, &x, 80), "O?");
    assert_eq!(tcp(&policy(json!({"ingressDeny": [{"fromEntities": ["all"]}]})), &y, &x, 80), "O?");
    let answer = policy(json!({"ingress": [{}]})).evaluate(&ask(&y, &x, 80));
    assert_eq!(
        reason(&answer.ingress),
        "whether CiliumClusterwideNetworkPolicy p means default deny here is not known"
    );
}

#[test]
fn names_of_kinds_and_directions() {
    let kinds = [
        PolicyKind::CiliumNetworkPolicy,
        PolicyKind::CiliumClusterwideNetworkPolicy,
        PolicyKind::NetworkPolicy,
        PolicyKind::AdminNetworkPolicy,
        PolicyKind::BaselineAdminNetworkPolicy,
    ];
    assert_eq!(
        kinds.map(PolicyKind::as_str),
        [
            "CiliumNetworkPolicy",
            "CiliumClusterwideNetworkPolicy",
            "NetworkPolicy",
            "AdminNetworkPolicy",
            "BaselineAdminNetworkPolicy"
        ]
    );
    assert_eq!([Direction::Ingress.as_str(), Direction::Egress.as_str()], ["ingress", "egress"]);
}

//! AdminNetworkPolicy and BaselineAdminNetworkPolicy.

use super::*;

fn all() -> Value {
    json!([{"namespaces": {}}])
}

fn ingress(priority: u16, rules: Value) -> Value {
    json!({"priority": priority, "subject": {"namespaces": {}}, "ingress": rules})
}

/// The ingress letter between two pods of `ml` for TCP 80.
fn into_x(objects: &[Object]) -> String {
    let (x, y) = (pod("ml/x", "app=x"), pod("ml/y", "app=y"));
    tcp(&set(OTHER, objects), &y, &x, 80)[1..].to_owned()
}

#[test]
fn tiers_and_priorities() {
    let rule = |action: &str| json!([{"action": action, "from": all()}]);
    let admin = |name: &str, priority: u16, action: &str| anp(name, ingress(priority, rule(action)));
    let (np_deny, np_allow) =
        (np("d", json!({"podSelector": {}})), np("a", json!({"podSelector": {}, "ingress": [{}]})));
    let baseline = |action: &str| banp(json!({"subject": {"namespaces": {}}, "ingress": rule(action)}));
    for (objects, expected) in [
        (vec![], "O"),
        (vec![admin("a", 5, "Allow")], "O"),
        (vec![admin("a", 5, "Deny")], "C"),
        (vec![admin("a", 5, "Pass")], "O"),
        (vec![admin("a", 5, "Allow"), np_deny.clone()], "O"),
        (vec![admin("a", 5, "Deny"), np_allow.clone()], "C"),
        (vec![admin("a", 5, "Pass"), np_deny.clone()], "C"),
        (vec![admin("a", 5, "Pass"), admin("b", 6, "Deny"), np_allow.clone()], "O"),
        (vec![admin("a", 5, "Deny"), admin("b", 4, "Allow")], "O"),
        (vec![admin("a", 4, "Deny"), admin("b", 5, "Allow")], "C"),
        (vec![admin("a", 10, "Deny"), admin("b", 9, "Allow")], "O"),
        (vec![admin("a", 0, "Deny"), admin("b", 1000, "Allow")], "C"),
        (vec![admin("a", 5, "Deny"), admin("b", 5, "Allow")], "?"),
        (vec![admin("a", 5, "Pass"), admin("b", 5, "Allow")], "O"),
        (vec![admin("a", 5, "Pass"), admin("b", 5, "Allow"), np_deny.clone()], "?"),
        (vec![admin("a", 5, "Pass"), admin("b", 5, "Deny")], "?"),
        (vec![admin("a", 5, "Pass"), admin("b", 5, "Deny"), np_deny.clone()], "C"),
        (vec![admin("a", 5, "Deny"), admin("b", 5, "Deny")], "C"),
        (vec![baseline("Deny")], "C"),
        (vec![baseline("Allow")], "O"),
        (vec![baseline("Deny"), np_allow], "O"),
        (vec![baseline("Allow"), np_deny], "C"),
        (vec![baseline("Deny"), admin("a", 5, "Allow")], "O"),
        (vec![baseline("Deny"), admin("a", 5, "Pass")], "C"),
    ] {
        assert_eq!(into_x(&objects), expected, "{objects:?}");
    }
}

#[test]
fn the_first_matching_rule_counts() {
    let rule = |action: &str, port: u16| json!({"action": action, "from": all(), "ports": [{"portNumber": {"protocol": "TCP", "port": port}}]});
    let everything = json!({"action": "Deny", "from": all()});
    let (allow, pass) = (rule("Allow", 80), rule("Pass", 80));
    for (rules, expected) in [
        (json!([allow, everything]), "O"),
        (json!([everything, allow]), "C"),
        (json!([rule("Allow", 81), everything]), "C"),
        (json!([pass, everything]), "O"),
    ] {
        assert_eq!(into_x(&[anp("a", ingress(5, rules.clone()))]), expected, "{rules}");
        if rules[0]["action"] != "Pass" {
            assert_eq!(into_x(&[banp(json!({"subject": {"namespaces": {}}, "ingress": rules}))]), expected);
        }
    }
    let (x, y) = (pod("ml/x", ""), pod("ml/y", ""));
    let set = set(OTHER, &[anp("a", ingress(5, json!([allow, everything])))]);
    let answer = set.evaluate(&Question { ports: Ports::Range(79, 81), ..ask(&y, &x, 0) });
    let closure = closure(&answer.ingress);
    assert_eq!((names(&closure.denied_by), &closure.open_ports), (vec!["a"], &vec![(80, 80)]));
    assert!(closure.default_deny.is_empty() && closure.missing.is_none());
}

#[test]
fn subjects_and_peers() {
    let team = |name: &str| json!({"matchLabels": {"team": name}});
    let app = |name: &str| json!({"matchLabels": {"app": name}});
    let (ml, web) = (pod("ml/x", "app=x"), pod("web/y", "app=y"));
    let deny = |subject: Value, from: Value| {
        anp("a", json!({"priority": 1, "subject": subject, "ingress": [{"action": "Deny", "from": from}]}))
    };
    let pods = |namespaces: Value, pods: Value| json!({"pods": {"namespaceSelector": namespaces, "podSelector": pods}});
    for (subject, from, expected) in [
        (json!({"namespaces": team("ml")}), all(), "C"),
        (json!({"namespaces": team("web")}), all(), "O"),
        (pods(team("ml"), app("x")), all(), "C"),
        (pods(team("ml"), app("y")), all(), "O"),
        (pods(json!({}), json!({})), all(), "C"),
        (json!({"namespaces": {}}), json!([{"namespaces": team("ml")}]), "O"),
        (json!({"namespaces": {}}), json!([{"namespaces": team("ml")}, {"namespaces": team("web")}]), "C"),
        (json!({"namespaces": {}}), json!([pods(team("web"), app("y"))]), "C"),
        (json!({"namespaces": {}}), json!([pods(team("web"), app("x"))]), "O"),
    ] {
        let set = set(OTHER, &[deny(subject.clone(), from.clone())]);
        assert_eq!(&tcp(&set, &web, &ml, 80)[1..], expected, "{subject} {from}");
        assert_eq!(tcp(&set, Entity::World, &ml, 80), "OO", "pods and namespaces are not the world");
    }
    let lost = pod("lost/z", "");
    assert_eq!(
        tcp(
            &set(OTHER, &[deny(json!({"namespaces": {}}), json!([{"namespaces": team("ml")}]))]),
            &lost,
            &ml,
            80
        ),
        "O?"
    );
}

#[test]
fn egress_peers() {
    let x = pod("ml/x", "");
    let y = pod("ml/y", "");
    let node = |name: &str, label: &str| {
        object(
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"pool": label}}}),
        )
    };
    let to = |peer: Value| {
        let rules = json!([{"action": "Deny", "to": [peer]}]);
        let policy = anp("a", json!({"priority": 1, "subject": {"namespaces": {}}, "egress": rules}));
        set(OTHER, &[policy, node("n1", "gpu"), node("n2", "cpu")])
    };
    let dual = Pod { ips: vec!["10.0.0.9".parse().unwrap(), "fd00::9".parse().unwrap()], ..y.clone() };
    let bare = Pod { ips: Vec::new(), ..y.clone() };
    let networks = to(json!({"networks": ["10.0.0.0/8", "2000::/3"]}));
    let got: String =
        [world("10.9.9.9"), world("11.1.1.1"), world("2606::1"), (&y).into(), (&dual).into(), (&bare).into()]
            .map(|peer| tcp(&networks, &x, peer, 80)[..1].to_owned())
            .concat();
    assert_eq!(got, "COCC??");
    let names = to(json!({"domainNames": ["a.example"]}));
    assert_eq!(
        (tcp(&names, &x, world("1.1.1.1"), 80).as_str(), tcp(&names, &x, &y, 80).as_str()),
        ("?O", "OO")
    );
    let (gpu, cpu, lost) = (host_pod("g", Some("n1")), host_pod("c", Some("n2")), host_pod("l", Some("n3")));
    for (selector, expected) in [
        (json!({}), "CCCCO"),
        (json!({"matchLabels": {"pool": "gpu"}}), "CO??O"),
        (json!({"matchLabels": {"pool": "tpu"}}), "OO??O"),
    ] {
        let set = to(json!({"nodes": selector}));
        let peers: [Peer<'_>; 5] =
            [(&gpu).into(), (&cpu).into(), (&lost).into(), Entity::RemoteNode.into(), (&y).into()];
        let got: String = peers.map(|peer| tcp(&set, &x, peer, 80)[..1].to_owned()).concat();
        assert_eq!(got, expected, "{selector}");
    }
}

#[test]
fn what_may_match_only_counts_where_the_ways_part() {
    let x = pod("ml/x", "");
    let rules = |actions: &[&str]| {
        let rule = |action: &&str| json!({"action": action, "to": [{"networks": ["10.0.0.0/8"]}]});
        json!(actions.iter().map(rule).collect::<Vec<_>>())
    };
    let admin = |name: &str, priority: u16, actions: &[&str]| {
        let spec = json!({"priority": priority, "subject": {"namespaces": {}}, "egress": rules(actions)});
        anp(name, spec)
    };
    let baseline = |action: &str| banp(json!({"subject": {"namespaces": {}}, "egress": rules(&[action])}));
    let np_deny = np("n", json!({"podSelector": {}, "policyTypes": ["Egress"]}));
    for (objects, expected) in [
        (vec![admin("a", 5, &["Allow"])], "O"),
        (vec![admin("a", 5, &["Pass"])], "O"),
        (vec![admin("a", 5, &["Deny"])], "?"),
        (vec![admin("a", 5, &["Deny", "Allow"])], "?"),
        (vec![admin("a", 5, &["Allow"]), admin("b", 6, &["Pass"])], "O"),
        (vec![admin("a", 5, &["Allow"]), np_deny.clone()], "?"),
        (vec![admin("a", 5, &["Deny"]), np_deny.clone()], "C"),
        (vec![admin("a", 5, &["Pass"]), admin("b", 6, &["Deny"]), np_deny.clone()], "C"),
        (vec![admin("a", 5, &["Pass"]), baseline("Deny")], "?"),
        (vec![admin("a", 5, &["Pass"]), baseline("Allow")], "O"),
    ] {
        // An address that is not known, so that no rule surely matches.
        let answer = set(OTHER, &objects).evaluate(&ask(&x, Entity::World, 80));
        assert_eq!(&letters(&answer)[..1], expected, "{objects:?}");
        match &answer.egress {
            Decision::Closed(closure) => {
                assert_eq!((names(&closure.default_deny), closure.denied_by.len()), (vec!["n"], 0));
                assert!(closure.missing.is_some(), "the deny may not be in the way");
            }
            Decision::Unknown { reason } => assert!(reason.contains("an address"), "{reason}"),
            Decision::Open { .. } => {}
        }
        // It may be the pod's own node, which NetworkPolicy lets through, but admin policies do not.
        let api = tcp(&set(OTHER, &objects), &x, Entity::KubeApiserver, 80);
        assert_eq!(&api[..1], if expected == "C" { "?" } else { expected }, "{objects:?}");
    }
}

#[test]
fn the_baseline_is_out_where_a_network_policy_selects() {
    let x = pod("ml/x", "app=x");
    let rules = |peer: &str| json!([{"action": "Deny", peer: [{"networks": ["0.0.0.0/0"]}]}]);
    let baseline = banp(json!({"subject": {"namespaces": {}}, "egress": rules("to")}));
    let selected = np("n", json!({"podSelector": {}, "policyTypes": ["Egress"]}));
    let not_egress = np("n", json!({"podSelector": {}}));
    let node = Peer::Entity(Entity::Host, Some("10.0.0.1".parse().unwrap()));
    for (objects, expected) in [
        (vec![baseline.clone()], "C"),
        (vec![baseline.clone(), selected.clone()], "O"),
        (vec![baseline, not_egress], "C"),
        (vec![selected], "O"),
    ] {
        assert_eq!(&tcp(&set(OTHER, &objects), &x, node, 80)[..1], expected, "{objects:?}");
    }
}

#[test]
fn ports() {
    use Protocol::{Icmp, Tcp, Udp};
    let (x, y) = (pod("ml/x", ""), pod("ml/y", ""));
    for (ports, protocol, port, expected) in [
        (json!([]), Icmp, 0, "C"),
        (json!(null), Udp, 9, "C"),
        (json!([{"portNumber": {"port": 80}}]), Tcp, 80, "C"),
        (json!([{"portNumber": {"port": 80}}]), Udp, 80, "O"),
        (json!([{"portNumber": {"port": 80, "protocol": "UDP"}}]), Udp, 80, "C"),
        (json!([{"portRange": {"start": 80, "end": 90}}]), Tcp, 90, "C"),
        (json!([{"portRange": {"start": 80, "end": 80}}]), Tcp, 80, "C"),
        (json!([{"portRange": {"start": 80, "end": 90, "protocol": "UDP"}}]), Tcp, 90, "O"),
        (json!([{"portRange": {"start": 80, "end": 90}}]), Tcp, 91, "O"),
        (json!([{"namedPort": "rdzv"}]), Tcp, 29500, "C"),
        (json!([{"namedPort": "rdzv"}]), Udp, 29500, "O"),
        (json!([{"namedPort": "dns"}]), Udp, 53, "C"),
        (json!([{"portNumber": {"port": 1}}, {"portNumber": {"port": 80}}]), Tcp, 80, "C"),
    ] {
        let set =
            set(OTHER, &[anp("a", ingress(5, json!([{"action": "Deny", "from": all(), "ports": ports}])))]);
        let answer =
            set.evaluate(&Question { src: (&y).into(), dst: (&x).into(), protocol, ports: Ports::One(port) });
        assert_eq!(&letters(&answer)[1..], expected, "{ports} {protocol:?} {port}");
    }
}

#[test]
fn who_enforces_them() {
    let (x, y) = (pod("ml/x", ""), pod("ml/y", ""));
    let deny = anp("a", ingress(5, json!([{"action": "Deny", "from": all()}])));
    let allow = anp("a", ingress(5, json!([{"action": "Allow", "from": all()}])));
    let cilium = set(CILIUM, std::slice::from_ref(&deny)).evaluate(&ask(&y, &x, 80));
    assert_eq!(
        (letters(&cilium).as_str(), cilium.notes.as_slice()),
        ("OO", [Note::AdminPoliciesIgnored].as_slice())
    );
    assert!(set(OTHER, std::slice::from_ref(&deny)).evaluate(&ask(&y, &x, 80)).notes.is_empty());
    let unknown = set(UNKNOWN, &[deny]).evaluate(&ask(&y, &x, 80));
    assert_eq!(letters(&unknown), "O?");
    assert!(reason(&unknown.ingress).contains("enforces admin policies"));
    assert_eq!(tcp(&set(UNKNOWN, &[allow]), &y, &x, 80), "OO");
    assert!(set(CILIUM, &[]).evaluate(&ask(&y, &x, 80)).notes.is_empty());
}

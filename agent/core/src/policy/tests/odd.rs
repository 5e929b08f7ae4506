//! Whatever stands in a policy, reading it neither panics nor takes long, and what is not understood is named.

use super::*;

fn samples() -> Vec<Object> {
    let peers = json!({"matchLabels": {"app": "y"}, "matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]});
    vec![
        cnp(
            "a",
            json!({"endpointSelector": peers, "enableDefaultDeny": {"ingress": true},
            "ingress": [{"fromEndpoints": [peers], "toPorts": [{"ports": [{"port": "80", "endPort": 90, "protocol": "TCP"}], "rules": {"http": [{}]}}]}],
            "egress": [{"toCIDRSet": [{"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}]}, {"toCIDR": ["1.2.3.4"]}, {"toEntities": ["world"]},
                {"toServices": [{"k8sService": {"serviceName": "s", "namespace": "n"}}, {"k8sServiceSelector": {"selector": peers}}]}, {"icmps": [{}]}]}),
        ),
        ccnp(
            "b",
            json!({"nodeSelector": {}, "ingress": [{"fromNodes": [{}], "authentication": {"mode": "required"}}]}),
        ),
        np(
            "c",
            json!({"podSelector": peers, "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [{"podSelector": peers, "namespaceSelector": peers}, {"ipBlock": {"cidr": "::/0", "except": ["fd00::/8"]}}],
                "ports": [{"port": 1, "endPort": 2, "protocol": "TCP"}, {"port": "http"}]}]}),
        ),
        anp(
            "d",
            json!({"priority": 1, "subject": {"pods": {"namespaceSelector": peers, "podSelector": peers}},
            "egress": [{"action": "Deny", "to": [{"networks": ["10.0.0.0/8"]}, {"nodes": peers}, {"namespaces": peers}],
                "ports": [{"portNumber": {"port": 1}}, {"portRange": {"start": 1, "end": 2}}, {"namedPort": "http"}]}]}),
        ),
    ]
}

/// Every tree that comes of putting `odd` in the place of one part of `value`.
fn replaced(value: &Value, odd: &Value) -> Vec<Value> {
    let mut all = vec![odd.clone()];
    match value {
        Value::Object(map) => {
            for (key, part) in map {
                all.extend(replaced(part, odd).into_iter().map(|part| {
                    let mut map = map.clone();
                    map.insert(key.clone(), part);
                    Value::Object(map)
                }));
            }
        }
        Value::Array(list) => {
            for (index, part) in list.iter().enumerate() {
                all.extend(replaced(part, odd).into_iter().map(|part| {
                    let mut list = list.clone();
                    list[index] = part;
                    Value::Array(list)
                }));
            }
        }
        _ => {}
    }
    all
}

#[test]
fn odd_parts() {
    let odd = [
        json!(null),
        json!(true),
        json!(-1),
        json!(1e9),
        json!(""),
        json!("x"),
        json!([]),
        json!([[]]),
        json!({}),
        json!({"a": []}),
    ];
    let (x, y) = (pod("ml/x", "app=x"), pod("ml/y", "app=y"));
    let mut rejected = 0;
    for sample in samples() {
        let spec = &sample.value()["spec"];
        for spec in odd.iter().flat_map(|odd| replaced(spec, odd)) {
            let mut whole = sample.value().clone();
            whole["spec"] = spec;
            let set = set(OTHER, &[object(whole)]);
            for peer in [Peer::from(&x), Entity::World.into(), Entity::KubeApiserver.into()] {
                for answer in [set.evaluate(&ask(&y, peer, 80)), set.evaluate(&ask(peer, &y, 80))] {
                    for decision in [&answer.egress, &answer.ingress] {
                        assert!(decision.verdict() != Verdict3::Unknown || !reason(decision).is_empty());
                    }
                }
            }
            assert!(set.rejected().iter().all(|rejected| !rejected.reason.is_empty()));
            rejected += set.rejected().len();
        }
    }
    assert!(rejected > 500, "{rejected}");
}

#[test]
fn many_ports_and_networks_are_all_kept() {
    let ports: Vec<Value> = (0..30_000).map(|n| json!({"port": 2 * n + 1})).collect();
    let blocks: Vec<Value> = (0..30_000)
        .map(|n| json!({"ipBlock": {"cidr": format!("11.{}.{}.0/24", n / 256, n % 256)}}))
        .collect();
    let rule = json!({"from": blocks, "ports": ports});
    let set = set(OTHER, &[np("p", json!({"podSelector": {}, "ingress": [rule, rule]}))]);
    let x = pod("ml/x", "");
    let answer = set.evaluate(&Question { ports: Ports::Range(0, 65535), ..ask(world("11.1.1.1"), &x, 0) });
    assert_eq!(closure(&answer.ingress).open_ports.len(), 30_000);
}

//! Who had an address at a time.

use serde_json::json;

use super::*;
use crate::facts::Protocol;
use crate::observation::End;

fn at(text: &str) -> Timestamp {
    Timestamp::parse(text).unwrap()
}

fn pod(name: &str, uid: &str, ip: &str, span: (&str, Option<&str>)) -> serde_json::Value {
    let (start, end) = span;
    let finished = end.map(|end| json!([{"state": {"terminated": {"finishedAt": end}}}]));
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ml", "uid": uid,
            "labels": {"batch.kubernetes.io/job-name": "train"},
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "job", "controller": true}]},
        "spec": {"nodeName": "n1", "containers": []},
        "status": {"phase": if end.is_some() { "Succeeded" } else { "Running" }, "podIP": ip, "startTime": start,
            "containerStatuses": finished}})
}

fn host_pod(name: &str, node: &str, ip: &str, job: &str, port: Option<u16>) -> serde_json::Value {
    let mut value = pod(name, name, ip, ("2026-11-01T09:00:00Z", None));
    value["metadata"]["labels"] = json!({"batch.kubernetes.io/job-name": job});
    value["metadata"]["ownerReferences"][0]["name"] = json!(job);
    value["metadata"]["ownerReferences"][0]["uid"] = json!(format!("uid-{job}"));
    value["spec"]["hostNetwork"] = json!(true);
    value["spec"]["nodeName"] = json!(node);
    if let Some(port) = port {
        value["spec"]["containers"] = json!([{"ports": [{"containerPort": port}]}]);
    }
    value
}

fn inventory(objects: Vec<serde_json::Value>) -> Inventory {
    let objects = objects.into_iter().map(|value| Object::from_value(value).unwrap()).collect();
    Inventory::new(objects, &Grouping::default())
}

fn by_ip(inventory: &Inventory, ip: &str, at: Timestamp) -> Option<String> {
    let end = End { ip: ip.parse().ok(), port: 1, pod: None, uid: None, reserved: None };
    match inventory.endpoint(&end, at) {
        Endpoint::Pod(id) => inventory.pod(id).uid.clone(),
        _ => None,
    }
}

#[test]
fn an_address_belongs_to_the_pod_of_its_time() {
    let reused = inventory(vec![
        pod("w-0", "first", "10.0.0.1", ("2026-11-01T09:00:00Z", Some("2026-11-01T10:00:00Z"))),
        pod("w-1", "second", "10.0.0.1", ("2026-11-01T10:00:00Z", None)),
    ]);
    let who = |time: &str| by_ip(&reused, "10.0.0.1", at(time));
    assert_eq!(who("2026-11-01T09:59:59.999Z").as_deref(), Some("first"));
    assert_eq!(who("2026-11-01T10:00:00Z").as_deref(), Some("second"));
    assert_eq!(who("2026-11-01T08:59:30Z").as_deref(), Some("first"), "clocks differ a little");
    assert_eq!(who("2026-11-01T08:00:00Z"), None, "not that much");
}

#[test]
fn a_name_used_again_is_another_pod() {
    let recreated = inventory(vec![
        pod("w-0", "old", "10.0.0.1", ("2026-11-01T09:00:00Z", Some("2026-11-01T10:00:00Z"))),
        pod("w-0", "new", "10.0.0.2", ("2026-11-01T10:00:05Z", None)),
    ]);
    let named = |time: &str| {
        recreated.pod_named("ml", "w-0", at(time)).map(|id| recreated.pod(id).uid.clone().unwrap())
    };
    assert_eq!(named("2026-11-01T09:30:00Z").as_deref(), Some("old"));
    assert_eq!(named("2026-11-01T10:00:02Z").as_deref(), Some("old"));
    assert_eq!(named("2026-11-01T10:30:00Z").as_deref(), Some("new"));
    assert_eq!(named("2026-11-01T07:00:00Z"), None);
}

fn pair(inventory: &Inventory, src: (&str, u16), dst: (&str, u16)) -> PairOfPods {
    let now = at("2026-11-01T10:00:00Z");
    let end = |(ip, port): (&str, u16)| {
        let end = End { ip: ip.parse().ok(), port, pod: None, uid: None, reserved: None };
        (inventory.endpoint(&end, now), port)
    };
    inventory.pair(end(src), end(dst), Protocol::Tcp, now)
}

#[test]
fn host_network_pods_are_told_apart_where_it_can_be_decided() {
    let alone = inventory(vec![
        host_pod("a-0", "n1", "192.168.0.1", "a", Some(29_500)),
        host_pod("a-1", "n2", "192.168.0.2", "a", None),
    ]);
    assert!(matches!(pair(&alone, ("192.168.0.2", 40_000), ("192.168.0.1", 29_500)), PairOfPods::Known(..)));
    assert_eq!(
        pair(&alone, ("192.168.0.2", 40_000), ("192.168.0.1", 10_250)),
        PairOfPods::No,
        "that is the kubelet"
    );
    let crowded = inventory(vec![
        host_pod("a-0", "n1", "192.168.0.1", "a", None),
        host_pod("a-1", "n1", "192.168.0.1", "a", None),
        host_pod("a-2", "n2", "192.168.0.2", "a", None),
    ]);
    assert!(matches!(
        pair(&crowded, ("192.168.0.2", 40_000), ("192.168.0.1", 41_000)),
        PairOfPods::Ambiguous(_)
    ));
    let two_jobs = inventory(vec![
        host_pod("a-0", "n1", "192.168.0.1", "a", Some(29_500)),
        host_pod("a-1", "n2", "192.168.0.2", "a", None),
        host_pod("b-0", "n1", "192.168.0.1", "b", Some(29_501)),
        host_pod("b-1", "n2", "192.168.0.2", "b", None),
    ]);
    let PairOfPods::Known(job, ..) = pair(&two_jobs, ("192.168.0.2", 40_000), ("192.168.0.1", 29_501)) else {
        panic!("the declared port decides");
    };
    assert_eq!(two_jobs.job(job).id.name, "b");
    assert_eq!(pair(&two_jobs, ("192.168.0.2", 40_000), ("192.168.0.1", 41_000)), PairOfPods::No);
}

#[test]
fn a_service_address_is_its_only_backend() {
    let mut objects = vec![
        pod("m", "m", "10.0.0.1", ("2026-11-01T09:00:00Z", None)),
        pod("w", "w", "10.0.0.2", ("2026-11-01T09:00:00Z", None)),
        json!({"kind": "Service", "metadata": {"name": "master", "namespace": "ml"},
            "spec": {"clusterIP": "10.96.0.9", "selector": {"role": "m"}, "ports": [{"port": 29500}]}}),
    ];
    objects[0]["metadata"]["labels"]["role"] = json!("m");
    let served = inventory(objects);
    assert!(matches!(pair(&served, ("10.0.0.2", 40_000), ("10.96.0.9", 29_500)), PairOfPods::Known(..)));
    assert_eq!(pair(&served, ("10.0.0.2", 40_000), ("10.96.0.9", 80)), PairOfPods::No);
}

#[test]
fn the_same_object_read_twice_is_one_and_shared_uids_are_told() {
    let first = pod("a", "same", "10.0.0.1", ("2026-11-01T09:00:00Z", None));
    let twice = inventory(vec![
        first.clone(),
        first.clone(),
        pod("b", "same", "10.0.0.2", ("2026-11-01T09:00:00Z", None)),
    ]);
    assert_eq!(twice.pods().len(), 2);
    assert_eq!(twice.oddities().len(), 1);
}

//! Whose an address was, in the order in which it was told.

use super::*;
use firedoor_core::inventory::{Endpoint, Inventory};
use firedoor_core::membership::Grouping;
use firedoor_core::observation::End;

const OWN: Holder = 0;
const JOB: Holder = 1;

fn at(second: f64) -> Timestamp {
    Timestamp::parse("2026-11-01T09:00:00Z").unwrap().plus(Duration::from_secs_f64(3600.0 + second))
}

fn pod(uid: &str, ip: &str, start: f64) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": uid, "namespace": "ml", "uid": uid},
        "spec": {"nodeName": "n1"}, "status": {"phase": "Running", "podIP": ip, "startTime": at(start.floor()).to_string()}})
}

fn object(value: Value) -> Object {
    Object::from_value(value).unwrap()
}

fn pods() -> Pods {
    Pods::new(Duration::from_secs(600))
}

fn who(pods: &Pods, ip: &str, when: f64) -> Option<String> {
    let objects = pods.iter().map(|(_, record)| record.object.clone()).collect();
    let inventory = Inventory::new(objects, &Grouping::default());
    let end = End { ip: ip.parse().ok(), port: 1, pod: None, uid: None, reserved: None };
    match inventory.endpoint(&end, at(when)) {
        Endpoint::Pod(id) => inventory.pod(id).uid.clone(),
        _ => None,
    }
}

#[test]
fn an_address_reused_within_a_second() {
    let mut pods = pods();
    pods.put(OWN, object(pod("a", "10.0.0.1", -60.0)), at(-59.0));
    pods.removed(OWN, "a", true, at(5.3));
    pods.put(OWN, object(pod("b", "10.0.0.1", 5.0)), at(5.6));
    assert_eq!(who(&pods, "10.0.0.1", 5.2).as_deref(), Some("a"));
    assert_eq!(who(&pods, "10.0.0.1", 5.4).as_deref(), Some("b"));
}

#[test]
fn a_deletion_told_after_the_address_had_its_next_pod() {
    let mut pods = pods();
    pods.put(OWN, object(pod("a", "10.0.0.1", -60.0)), at(-59.0));
    pods.put(JOB, object(pod("b", "10.0.0.1", 5.0)), at(5.5));
    pods.removed(OWN, "a", true, at(9.0));
    assert_eq!(who(&pods, "10.0.0.1", 4.9).as_deref(), Some("a"));
    assert_eq!(who(&pods, "10.0.0.1", 5.6).as_deref(), Some("b"));
    assert_eq!(who(&pods, "10.0.0.1", 8.0).as_deref(), Some("b"));
}

#[test]
fn a_clock_that_is_behind_takes_no_time_from_the_pod_before() {
    let mut pods = pods();
    pods.put(OWN, object(pod("a", "10.0.0.1", -60.0)), at(-59.0));
    pods.put(OWN, object(pod("a", "10.0.0.1", -60.0)), at(3.0));
    // Its node's clock is 30 s behind.
    pods.put(JOB, object(pod("b", "10.0.0.1", -25.0)), at(5.5));
    pods.removed(OWN, "a", true, at(9.0));
    assert_eq!(who(&pods, "10.0.0.1", 2.9).as_deref(), Some("a"));
    assert_eq!(who(&pods, "10.0.0.1", 5.6).as_deref(), Some("b"));
}

#[test]
fn a_finished_pod_ends_when_its_containers_did() {
    let mut pods = pods();
    pods.put(OWN, object(pod("a", "10.0.0.1", -60.0)), at(-59.0));
    let mut done = pod("a", "10.0.0.1", -60.0);
    done["status"]["phase"] = json!("Succeeded");
    done["status"]["containerStatuses"] =
        json!([{"state": {"terminated": {"finishedAt": at(3.0).to_string()}}}]);
    pods.put(OWN, object(done), at(7.0));
    assert_eq!(pods.get("a").unwrap().until, Some(at(3.0)));
    pods.removed(OWN, "a", true, at(20.0));
    assert_eq!(pods.get("a").unwrap().until, Some(at(3.0)), "it ended before it was deleted");
    pods.put(OWN, object(pod("b", "10.0.0.1", 3.0)), at(3.9));
    assert_eq!(who(&pods, "10.0.0.1", 2.9).as_deref(), Some("a"));
    assert_eq!(who(&pods, "10.0.0.1", 3.95).as_deref(), Some("b"));
}

#[test]
fn a_failed_pod_that_tells_no_time_ended_when_it_was_told() {
    let mut pods = pods();
    let mut evicted = pod("a", "10.0.0.1", -60.0);
    evicted["status"]["phase"] = json!("Failed");
    pods.put(OWN, object(evicted.clone()), at(3.0));
    pods.put(OWN, object(evicted), at(8.0));
    assert_eq!(pods.get("a").unwrap().until, Some(at(3.0)));
    assert_eq!(who(&pods, "10.0.0.1", 2.0).as_deref(), Some("a"));
}

#[test]
fn a_terminating_pod_has_its_address_until_it_is_gone() {
    let mut pods = pods();
    let mut terminating = pod("a", "10.0.0.1", -60.0);
    terminating["metadata"]["deletionTimestamp"] = json!(at(30.0).to_string());
    pods.put(OWN, object(terminating), at(0.0));
    assert_eq!(pods.get("a").unwrap().until, None);
    assert_eq!(who(&pods, "10.0.0.1", 500.0).as_deref(), Some("a"), "stuck, but there");
    pods.removed(OWN, "a", true, at(12.0));
    assert_eq!(pods.get("a").unwrap().until, Some(at(12.0)));
}

#[test]
fn what_a_list_no_longer_has_ended_between_the_lists() {
    let mut pods = pods();
    let mut terminating = pod("a", "10.0.0.1", -60.0);
    terminating["metadata"]["deletionTimestamp"] = json!(at(30.0).to_string());
    pods.put(OWN, object(terminating), at(0.0));
    pods.put(OWN, object(pod("b", "10.0.0.2", -60.0)), at(0.0));
    pods.put(OWN, object(pod("c", "10.0.0.3", -60.0)), at(0.0));
    pods.sweep(OWN, &BTreeSet::from(["c".into()]), at(10.0), at(70.0));
    assert_eq!(pods.get("a").unwrap().until, Some(at(30.0)));
    assert_eq!(pods.get("b").unwrap().until, Some(at(70.0)));
    assert_eq!(pods.get("c").unwrap().until, None);
}

#[test]
fn two_watches_hold_a_pod_until_both_let_go() {
    let mut pods = pods();
    let a = || object(pod("a", "10.0.0.1", -60.0));
    pods.put(OWN, a(), at(0.0));
    pods.put(JOB, a(), at(0.0));
    pods.removed(JOB, "a", false, at(1.0));
    assert_eq!(pods.get("a").unwrap().until, None, "only its label changed");
    pods.put(JOB, a(), at(2.0));
    pods.removed(OWN, "a", true, at(3.0));
    pods.put(JOB, a(), at(4.0));
    pods.removed(JOB, "a", true, at(5.0));
    assert_eq!(pods.get("a").unwrap().until, Some(at(3.0)), "the first to know is right");
    assert!(!pods.prune(at(602.0)));
    assert!(pods.prune(at(604.0)));
    assert!(pods.get("a").is_none() && pods.by_address.is_empty());
}

#[test]
fn released_pods_are_forgotten_but_for_what_ended() {
    let mut pods = pods();
    pods.put(OWN, object(pod("a", "10.0.0.1", 0.0)), at(0.0));
    pods.put(JOB, object(pod("a", "10.0.0.1", 0.0)), at(0.0));
    pods.put(JOB, object(pod("b", "10.0.0.2", 0.0)), at(0.0));
    pods.put(JOB, object(pod("c", "10.0.0.3", 0.0)), at(0.0));
    pods.removed(JOB, "c", true, at(1.0));
    pods.release(JOB, |_| false);
    assert_eq!(pods.iter().map(|(uid, _)| uid).collect::<Vec<_>>(), ["a", "c"]);
}

#[test]
fn host_network_pods_share_an_address_in_peace() {
    let mut pods = pods();
    for uid in ["a", "b"] {
        let mut host = pod(uid, "192.168.0.1", 0.0);
        host["spec"]["hostNetwork"] = json!(true);
        pods.put(OWN, object(host), at(0.0));
    }
    pods.removed(OWN, "a", true, at(3.0));
    assert_eq!(pods.get("b").unwrap().from, Some(at(0.0)));
    assert!(
        !pods.put(OWN, object(json!({"kind": "Pod", "metadata": {"name": "x", "namespace": "ml"}})), at(0.0)),
        "no UID"
    );
}

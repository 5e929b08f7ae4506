//! A pipeline that lives on: looked at while events come, and told of a cluster that changes.

mod ageing;
mod bounds;
mod churn;
mod listens;
mod looks;
mod sources;

use std::net::IpAddr;

use serde_json::{Value, json};

use super::*;
use crate::membership::Grouping;
use crate::observation::{Carried, DroppedPacket, End, Opener, SocketStep, SourceKind};
use crate::report::{CauseKind, FindingState, JobVerdict};
use crate::time::Timestamp;

fn at(second: u64) -> Timestamp {
    Timestamp::from_nanos((1_800_000_000 + second) * 1_000_000_000)
}

fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": format!("uid-{name}"),
        "labels": {"topology.kubernetes.io/zone": "hall-1"}}})
}

fn pod(job: &str, index: usize, node: &str, ip: &str) -> Value {
    let name = format!("{job}-worker-{index}");
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "lab", "uid": format!("uid-{name}"),
            "labels": {"training.kubeflow.org/job-name": job, "training.kubeflow.org/replica-type": "worker",
                "training.kubeflow.org/replica-index": index.to_string()},
            "ownerReferences": [{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": job,
                "uid": format!("uid-{job}"), "controller": true}]},
        "spec": {"nodeName": node, "containers": [{"name": "t", "ports": [{"containerPort": 29500}]}]},
        "status": {"phase": "Running", "podIP": ip}})
}

fn objects(values: impl IntoIterator<Item = Value>) -> Vec<Object> {
    values.into_iter().map(|value| Object::from_value(value).expect("an object")).collect()
}

fn job(name: &str, net: u8) -> Vec<Value> {
    vec![pod(name, 0, "n1", &format!("10.{net}.1.5")), pod(name, 1, "n2", &format!("10.{net}.2.5"))]
}

fn cluster(jobs: &[(&str, u8)]) -> Vec<Object> {
    let jobs = jobs.iter().flat_map(|(name, net)| job(name, *net));
    objects([node("n1"), node("n2")].into_iter().chain(jobs))
}

/// Steps at the socket of worker 0 of job `mid`, which calls worker 1.
fn step(pipeline: &mut Pipeline, second: u64, port: u16, step: SocketStep) {
    let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
    pipeline.observe(Observation::Socket(SocketEvent {
        at: at(second),
        observer: "n1",
        source: SourceKind::Ebpf,
        local: End { uid: Some("uid-mid-worker-0"), ..End::at(ip("10.2.1.5"), port) },
        remote: End::at(ip("10.2.2.5"), 29500),
        opener: Some(Opener::Local),
        step,
    }));
}

fn denied(pipeline: &mut Pipeline, second: u64, port: u16) {
    step(pipeline, second, port, SocketStep::Opening);
    let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
    pipeline.observe(Observation::Drops(Drops {
        first: at(second),
        last: at(second),
        observer: "n1",
        source: SourceKind::Ebpf,
        protocol: crate::facts::Protocol::Tcp,
        src: End::at(ip("10.2.1.5"), 0),
        dst: End::at(ip("10.2.2.5"), 29500),
        what: DroppedPacket::Opening,
        reason: crate::drop_reason::DropReason::from_kernel_name("NETFILTER_DROP"),
        direction: None,
        packets: 1,
        attempts: 1,
    }));
}

fn pipeline(jobs: &[(&str, u8)]) -> Pipeline {
    Pipeline::new(Inventory::new(cluster(jobs), &Grouping::default()), Settings::default())
}

fn states(report: &Report) -> Vec<(String, JobVerdict, Vec<FindingState>)> {
    let findings = |job: &crate::report::JobReport| job.findings.iter().map(|f| f.state).collect();
    report.jobs.iter().map(|job| (job.name.clone(), job.verdict, findings(job))).collect()
}

#[test]
fn a_look_shows_open_windows_and_closes_nothing() {
    let mut live = pipeline(&[("mid", 2)]);
    (0..3).for_each(|k| denied(&mut live, 3 * k, 40_000 + u16::try_from(k).unwrap_or(0)));
    let blocked = vec![("mid".to_owned(), JobVerdict::HardBlock, vec![FindingState::Active])];
    assert_eq!(states(&live.report()), blocked);
    assert_eq!(live.report(), live.report(), "looking changes nothing");
    step(&mut live, 9, 41_000, SocketStep::Opening);
    step(&mut live, 9, 41_000, SocketStep::Established);
    let look = live.report();
    assert_eq!(states(&look)[0].2, [FindingState::Recovered]);
    assert_eq!(look, live.finish(), "the last look is the report");
}

#[test]
fn a_changed_cluster_keeps_what_was_seen() {
    let mut live = pipeline(&[("mid", 2)]);
    (0..2).for_each(|k| denied(&mut live, 3 * k, 40_000 + u16::try_from(k).unwrap_or(0)));
    // Jobs are sorted by name: the new one takes the first place.
    live.update(cluster(&[("early", 1), ("mid", 2)]), &BTreeMap::new());
    denied(&mut live, 6, 40_002);
    let names: Vec<_> =
        states(&live.report()).into_iter().map(|(name, verdict, _)| (name, verdict)).collect();
    assert_eq!(
        names,
        [("early".to_owned(), JobVerdict::Inconclusive), ("mid".to_owned(), JobVerdict::HardBlock)]
    );
    let report = live.report();
    assert_eq!(
        report.jobs[1].findings[0].pairs[0].attempts,
        Some(3),
        "what was seen before the change counts"
    );
}

#[test]
fn a_pod_that_is_gone_gives_its_address_back() {
    let mut live = pipeline(&[("mid", 2)]);
    step(&mut live, 0, 40_000, SocketStep::Opening);
    step(&mut live, 0, 40_000, SocketStep::Established);
    let carried = Carried { sent: 9, ..Carried::default() };
    (1..5).for_each(|s| step(&mut live, s, 40_000, SocketStep::Carried(carried)));
    let before = live.inventory().pods().len();
    live.update(objects([node("n1"), node("n2")]), &BTreeMap::new());
    assert_eq!(live.inventory().pods().len(), before, "pods are remembered");
    let until: Vec<_> = live.inventory().pods().iter().map(|pod| pod.lease.until).collect();
    assert_eq!(until, [Some(at(4)), Some(at(4))]);
    live.update(objects([node("n1"), node("n2")]), &BTreeMap::new());
    assert_eq!(live.inventory().pods()[0].lease.until, Some(at(4)), "gone is gone since then");
    live.update(cluster(&[("mid", 2)]), &BTreeMap::new());
    assert_eq!(live.inventory().pods()[0].lease.until, None, "and back is back");
}

/// A policy that closes the egress of all pods, or lets everything pass.
fn policy(egress: Value) -> Value {
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "locked", "namespace": "lab"},
        "spec": {"podSelector": {}, "policyTypes": ["Egress"], "egress": egress}})
}

fn with_policy(egress: Value) -> Vec<Object> {
    cluster(&[("mid", 2)]).into_iter().chain(objects([policy(egress)])).collect()
}

fn blamed(live: &Pipeline) -> (CauseKind, usize, usize) {
    let report = live.report();
    let finding = &report.jobs[0].findings[0];
    (finding.cause.kind, finding.cause.policies.len(), finding.remedies.len())
}

#[test]
fn a_policy_that_is_gone_is_to_blame_for_what_it_locked() {
    for next in [cluster(&[("mid", 2)]), with_policy(json!([{}]))] {
        let mut live = pipeline(&[("mid", 2)]);
        live.update(with_policy(json!([])), &BTreeMap::new());
        (0..4).for_each(|k| denied(&mut live, 3 * k, 40_000 + u16::try_from(k).unwrap_or(0)));
        let (cause, policies, remedies) = blamed(&live);
        assert_eq!((cause, policies), (CauseKind::Policy, 1));
        assert!(remedies > 0, "the policy can be mended");
        live.update(next, &BTreeMap::new());
        assert_eq!(blamed(&live), (CauseKind::Policy, 1, 0), "nothing is left to mend");
        // The same objects again are no change.
        live.update(live.inventory().objects().to_vec(), &BTreeMap::new());
        step(&mut live, 12, 41_000, SocketStep::Opening);
        step(&mut live, 12, 41_000, SocketStep::Established);
        assert_eq!(states(&live.report())[0].2, [FindingState::Recovered]);
        assert_eq!(blamed(&live), (CauseKind::Policy, 1, 0), "what recovered had a cause");
        assert_eq!(live.report(), live.finish());
    }
}

#[test]
fn a_policy_that_is_gone_locks_nothing_any_more() {
    let mut live = pipeline(&[("mid", 2)]);
    live.update(with_policy(json!([])), &BTreeMap::new());
    (0..4).for_each(|k| denied(&mut live, 3 * k, 40_000 + u16::try_from(k).unwrap_or(0)));
    live.update(cluster(&[("mid", 2)]), &BTreeMap::new());
    denied(&mut live, 20, 40_100);
    assert_eq!(blamed(&live), (CauseKind::Unknown, 0, 0), "something else drops it by now");
}

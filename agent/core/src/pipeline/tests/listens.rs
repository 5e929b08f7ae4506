//! Pods that share their node's address are told apart by the ports on which they wait, before anybody is let in.

use super::*;
use crate::ledger::PortClass;

/// A job whose workers all live on the networks of their nodes: the first one on n1, the others on n2.
fn on_hosts(job: &str) -> Vec<Value> {
    let worker = |index: usize| {
        let (node, ip) = if index == 0 { ("n1", "10.4.0.11") } else { ("n2", "10.4.0.12") };
        let mut pod = pod(job, index, node, ip);
        pod["spec"] = json!({"nodeName": node, "hostNetwork": true, "containers": [{"name": "t"}]});
        pod
    };
    (0..3).map(worker).collect()
}

fn host_pipeline(jobs: &[&str]) -> Pipeline {
    let address = |name: &str, ip: &str| {
        let mut node = node(name);
        node["status"] = json!({"addresses": [{"type": "InternalIP", "address": ip},
            {"type": "InternalIP", "address": "fd00::12"}]});
        node
    };
    let nodes = [address("n1", "10.4.0.11"), address("n2", "10.4.0.12")];
    let all = nodes.into_iter().chain(jobs.iter().flat_map(|job| on_hosts(job)));
    Pipeline::new(Inventory::new(objects(all), &Grouping::default()), Settings::default())
}

fn listens(pipeline: &mut Pipeline, uid: &str, ip: &str, port: u16) {
    let ip = ip.parse().expect("an address");
    pipeline.observe(Observation::Socket(SocketEvent {
        at: at(0),
        observer: "n2",
        source: SourceKind::Ebpf,
        local: End { uid: Some(uid), ..End::at(ip, port) },
        remote: End::UNKNOWN,
        opener: None,
        step: SocketStep::Listening,
    }));
}

/// Worker 0 calls the address of the others, and nobody answers.
fn calls_in_vain(pipeline: &mut Pipeline, begin: u64, port: u16) {
    for second in [0, 1, 3, 7, 15, 31] {
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        pipeline.observe(Observation::Socket(SocketEvent {
            at: at(begin + second),
            observer: "n1",
            source: SourceKind::Ebpf,
            local: End { uid: Some("uid-mid-worker-0"), ..End::at(ip("10.4.0.11"), 40_000) },
            remote: End::at(ip("10.4.0.12"), port),
            opener: Some(Opener::Local),
            step: if second == 0 { SocketStep::Opening } else { SocketStep::Retried },
        }));
    }
}

/// Whom worker 0 of job `mid` cannot reach, and on which class of port.
fn unreached(pipeline: &Pipeline) -> Vec<(String, PortClass)> {
    let report = pipeline.report();
    let mid = report.jobs.iter().filter(|job| job.name == "mid");
    let pairs = mid.flat_map(|job| &job.findings).flat_map(|finding| &finding.pairs);
    pairs.map(|pair| (pair.dst.pod.clone(), pair.ports.class)).collect()
}

#[test]
fn who_waits_on_a_port_is_who_is_called_there() {
    for (bound, named) in [("0.0.0.0", true), ("::", true), ("10.4.0.12", true), ("127.0.0.1", false)] {
        let mut live = host_pipeline(&["mid"]);
        listens(&mut live, "uid-mid-worker-2", bound, 45_001);
        listens(&mut live, "uid-mid-worker-1", bound, 45_002);
        calls_in_vain(&mut live, 1, 45_001);
        let who = if named { "mid-worker-2" } else { "10.4.0.12" };
        assert_eq!(unreached(&live), [(who.to_owned(), PortClass::Ephemeral)], "bound to {bound}");
        let coverage = live.report().coverage;
        assert_eq!((coverage.received, coverage.attributed), (8, 8));
    }
}

#[test]
fn a_rendezvous_stays_one() {
    let mut live = host_pipeline(&["mid"]);
    listens(&mut live, "uid-mid-worker-1", "::", 29_500);
    calls_in_vain(&mut live, 1, 29_500);
    assert_eq!(unreached(&live), [("mid-worker-1".to_owned(), PortClass::Fixed)]);
}

#[test]
fn another_jobs_port_is_nobodys_business() {
    let mut live = host_pipeline(&["mid", "other"]);
    listens(&mut live, "uid-other-worker-1", "0.0.0.0", 45_001);
    calls_in_vain(&mut live, 1, 45_001);
    assert_eq!(unreached(&live), []);
}

#[test]
fn a_pod_that_is_gone_listens_no_more() {
    let mut live = host_pipeline(&["mid"]);
    listens(&mut live, "uid-mid-worker-2", "0.0.0.0", 45_001);
    listens(&mut live, "uid-mid-worker-1", "0.0.0.0", 45_002);
    // Its successor has not come as far as to listen.
    let mut workers = on_hosts("mid");
    workers[2]["metadata"]["uid"] = json!("uid-of-the-next");
    live.update(objects([node("n1"), node("n2")].into_iter().chain(workers)), &BTreeMap::new());
    calls_in_vain(&mut live, 100, 45_001);
    assert_eq!(unreached(&live), [("10.4.0.12".to_owned(), PortClass::Ephemeral)]);
}

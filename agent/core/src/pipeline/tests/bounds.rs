//! Sources that name ever new things: nothing grows without end, and what is left out is not forgotten.

use std::time::Duration;

use super::*;
use crate::drop_reason::DropReason;
use crate::facts::Protocol;
use crate::ledger::MAX_NAMED;
use crate::observation::{EventKind, Flow, NamedPolicy, TcpFlags, Verdict};
use crate::pipeline::windows::KEPT;

fn live() -> Pipeline {
    let settings = Settings { horizon: Some(Duration::from_secs(600)), ..Settings::default() };
    Pipeline::new(Inventory::new(cluster(&[("mid", 2)]), &Grouping::default()), settings)
}

/// A SYN from `src` to worker 1 that a policy of this name denied.
fn denied_by(live: &mut Pipeline, second: u64, observer: &str, (src, port): (&str, u16), policy: &str) {
    let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
    let policy =
        NamedPolicy { kind: "NetworkPolicy", namespace: "lab", name: policy, direction: Direction::Egress };
    live.observe(Observation::Flow(Flow {
        at: at(second),
        observer,
        source: SourceKind::Hubble,
        kind: EventKind::Drop,
        sub_kind: 0,
        verdict: Verdict::Dropped(DropReason::POLICY_DENY),
        protocol: Protocol::Tcp,
        src: End::at(ip(src), port),
        dst: End::at(ip("10.2.2.5"), 29500),
        flags: TcpFlags { syn: true, ..TcpFlags::default() },
        is_reply: None,
        direction: Some(Direction::Egress),
        state: None,
        denied_by: vec![policy],
    }));
}

#[test]
fn ever_new_policies_are_a_few() {
    let mut live = live();
    let mut first = Vec::new();
    for second in 0..200_u64 {
        // The latest come first by order, and take the places of others.
        let policy = format!("policy-{:04}", 9_999 - second % 150);
        let port = 40_000 + u16::try_from(second).unwrap_or(0);
        denied_by(&mut live, second, "n1", ("10.2.1.5", port), &policy);
        let report = live.look();
        let Some(finding) = report.jobs[0].findings.first() else { continue };
        let names: Vec<_> = finding.cause.policies.iter().map(|policy| policy.name.clone()).collect();
        assert!(names.len() <= MAX_NAMED, "{names:?}");
        if second > 150 {
            first.push(names);
        }
    }
    first.dedup();
    assert_eq!(first.len(), 1, "they stay the same: {first:?}");
    let report = live.windows();
    let named = report.windows.iter().flat_map(|window| &window.pairs).map(|pair| {
        pair.ports.iter().flat_map(|port| &port.denied).map(|denied| denied.named.len()).max().unwrap_or(0)
    });
    assert!(named.max().is_some_and(|most| most <= MAX_NAMED));
}

#[test]
fn ever_new_nodes_push_out_no_window_with_failures() {
    let mut live = live();
    // Three events make a clock that is believed.
    for (second, port) in [(0, 40_000), (1, 40_001), (2, 40_002)] {
        denied_by(&mut live, second, "n1", ("10.2.1.5", port), "locked");
    }
    let nodes = KEPT as u64 + 1_000;
    for number in 0..nodes {
        // Nobody's, and so no pairs: a window each.
        denied_by(&mut live, 3 + number / 1_000, &format!("x-{number}"), ("10.9.9.9", 40_000), "locked");
    }
    for second in [120, 121, 122, 200, 300] {
        denied_by(&mut live, second, "n2", ("10.9.9.9", 40_001), "locked");
    }
    let report = live.windows();
    let closed: Vec<_> = report.windows.iter().filter(|window| !window.open).collect();
    assert!(closed.len() <= KEPT, "{} windows", closed.len());
    assert!(closed.len() > KEPT - 100, "{} windows", closed.len());
    assert!(closed.iter().any(|window| window.node == "n1" && !window.pairs.is_empty()));
}

#[test]
fn ever_new_blind_nodes_are_bounded_and_leave_the_coverage_incomplete() {
    let mut live = live();
    let names: Vec<String> = (0..20_000).map(|number| format!("x-{number}")).collect();
    live.observe(Observation::Blind { at: at(0), nodes: names.iter().map(String::as_str).collect() });
    live.observe(Observation::Blind { at: at(0), nodes: vec!["c/n1"] });
    let report = live.look();
    let blind = &report.coverage.blind_nodes;
    assert_eq!(blind.len(), 8_192 + 1, "those of the cluster have room");
    assert!(blind.contains(&"n1".to_owned()) && !report.coverage.complete);
    // Whoever is reached again takes nobody along who was left out.
    live.observe(Observation::Reached { at: at(1), nodes: names.iter().map(String::as_str).collect() });
    live.observe(Observation::Reached { at: at(1), nodes: vec!["n1"] });
    let report = live.look();
    assert!(report.coverage.blind_nodes.is_empty() && !report.coverage.complete);
    assert!(!report.jobs[0].coverage.complete);
    assert!(report.jobs[0].unknowns.iter().any(|why| why.contains("more nodes")), "{:?}", report.jobs[0]);
}

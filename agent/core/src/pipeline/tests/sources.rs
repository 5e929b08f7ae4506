//! Two sources that watch one node: what both tell counts once, each fills in what the other cannot see, and one that
//! is down is missed.

use std::time::Duration;

use super::*;
use crate::drop_reason::DropReason;
use crate::facts::Protocol;
use crate::observation::{EventKind, Flow, Loss, NamedPolicy, TcpFlags, Verdict};
use crate::report::Certainty;
use crate::tally::ZonePair;

/// Hubble's account of a SYN that Cilium dropped.
fn cilium_denied(pipeline: &mut Pipeline, second: u64, port: u16, policy: Option<&str>) {
    let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
    let named = |name| NamedPolicy {
        kind: "CiliumNetworkPolicy",
        namespace: "lab",
        name,
        direction: Direction::Egress,
    };
    let reason = if policy.is_some() { DropReason::POLICY_DENY } else { DropReason::POLICY_DENIED };
    for kind in [EventKind::PolicyVerdict, EventKind::Drop] {
        pipeline.observe(Observation::Flow(Flow {
            at: at(second),
            observer: "n1",
            source: SourceKind::Hubble,
            kind,
            sub_kind: 0,
            verdict: Verdict::Dropped(reason),
            protocol: Protocol::Tcp,
            src: End::at(ip("10.2.1.5"), port),
            dst: End::at(ip("10.2.2.5"), 29500),
            flags: TcpFlags { syn: true, ..TcpFlags::default() },
            is_reply: None,
            direction: Some(Direction::Egress),
            state: None,
            denied_by: policy.map(named).into_iter().collect(),
        }));
    }
}

/// The kernel's account of the same.
fn kernel_denied(pipeline: &mut Pipeline, second: u64, port: u16, reason: &str) {
    step(pipeline, second, port, SocketStep::Opening);
    let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
    pipeline.observe(Observation::Drops(Drops {
        first: at(second),
        last: at(second),
        observer: "n1",
        source: SourceKind::Ebpf,
        protocol: Protocol::Tcp,
        src: End::at(ip("10.2.1.5"), 0),
        dst: End::at(ip("10.2.2.5"), 29500),
        what: DroppedPacket::Opening,
        reason: DropReason::from_kernel_name(reason),
        direction: None,
        packets: 2,
        attempts: 1,
    }));
}

fn port(k: u64) -> u16 {
    40_000 + u16::try_from(k).unwrap_or(0)
}

#[test]
fn both_tell_of_one_block() {
    for reason in ["TC_INGRESS", "TC_EGRESS", "XDP", "SOMETHING_NEW"] {
        let mut live = pipeline(&[("mid", 2)]);
        for k in 0..4 {
            kernel_denied(&mut live, 2 * k, port(k), reason);
            cilium_denied(&mut live, 2 * k, port(k), Some("locked"));
        }
        let report = live.look();
        let [finding] = report.jobs[0].findings.as_slice() else { panic!("{reason}: one finding") };
        let pair = &finding.pairs[0];
        assert_eq!((pair.attempts, pair.drops), (Some(4), Some(8)), "{reason}: the kernel's counts");
        assert_eq!(finding.cause.kind, CauseKind::ExplicitDeny, "{reason}");
        assert_eq!(finding.cause.reason.as_deref(), Some("POLICY_DENY"), "{reason}: Hubble's reason");
        let policies: Vec<_> =
            finding.cause.policies.iter().map(|p| (p.name.as_str(), p.certainty)).collect();
        assert_eq!(policies, [("locked", Certainty::Reported)], "{reason}");
        let dropped: Vec<_> =
            live.tallies().flat_map(|(_, tally)| &tally.dropped).map(|(key, n)| (key.reason, *n)).collect();
        assert_eq!(dropped, [(DropReason::POLICY_DENY, 4)], "{reason}: counted once");
        assert_eq!(report.coverage.sources, ["hubble", "ebpf"]);
        assert!(report.coverage.capabilities.bytes && report.coverage.capabilities.rtt);
        assert_eq!(live.finish().jobs, report.jobs, "{reason}");
    }
}

#[test]
fn the_reason_may_come_late_and_nothing_falls() {
    let mut live = pipeline(&[("mid", 2)]);
    let sum = |live: &Pipeline| live.tallies().flat_map(|(_, tally)| tally.dropped.values()).sum::<u64>();
    (0..4).for_each(|k| kernel_denied(&mut live, k, port(k), "TC_EGRESS"));
    let _ = live.look();
    assert_eq!(sum(&live), 4);
    (0..4).for_each(|k| cilium_denied(&mut live, k, port(k), None));
    let _ = live.look();
    assert_eq!(sum(&live), 4, "told again under another reason, but counted");
    (4..9).for_each(|k| cilium_denied(&mut live, k, port(k), None));
    (4..9).for_each(|k| kernel_denied(&mut live, k, port(k), "TC_EGRESS"));
    let _ = live.look();
    assert_eq!(sum(&live), 9);
    // The windows close long after; nothing changes by it.
    step(&mut live, 600, 50_000, SocketStep::Opening);
    let _ = live.look();
    assert_eq!(sum(&live), 9);
}

#[test]
fn a_source_that_is_down_is_missed() {
    let mut live = pipeline(&[("mid", 2)]);
    live.source_state(SourceKind::Ebpf, true, at(0));
    live.source_state(SourceKind::Hubble, true, at(0));
    step(&mut live, 0, 40_000, SocketStep::Opening);
    step(&mut live, 0, 40_000, SocketStep::Established);
    let report = live.report();
    assert!(report.coverage.complete && report.jobs[0].coverage.complete);
    assert_eq!(report.jobs[0].verdict, JobVerdict::Healthy);
    live.source_state(SourceKind::Hubble, false, at(3));
    live.source_state(SourceKind::Hubble, false, at(5));
    let report = live.report();
    assert!(!report.coverage.complete && !report.jobs[0].coverage.complete);
    assert_eq!(report.jobs[0].verdict, JobVerdict::Inconclusive);
    let unknowns = &report.jobs[0].unknowns;
    assert!(
        unknowns.iter().any(|line| line.contains("hubble") && line.contains(&at(3).to_string())),
        "{unknowns:?}"
    );
    live.source_state(SourceKind::Hubble, true, at(9));
    assert_eq!(live.report().jobs[0].verdict, JobVerdict::Healthy);
}

#[test]
fn a_source_that_is_up_can_see_what_it_did_not_tell_of() {
    let mut live = pipeline(&[("mid", 2)]);
    live.source_state(SourceKind::Hubble, true, at(0));
    let capabilities = live.report().coverage.capabilities;
    assert!(capabilities.drops && !capabilities.bytes);
}

#[test]
fn each_source_has_its_account() {
    let mut live = pipeline(&[("mid", 2)]);
    step(&mut live, 1, 40_000, SocketStep::Opening);
    cilium_denied(&mut live, 2, 40_001, None);
    cilium_denied(&mut live, 2, 40_001, None);
    live.reject(SourceKind::Hubble);
    let loss =
        Loss { at: Some(at(2)), observer: Some("n1"), source: SourceKind::Hubble, cause: "ring", count: 7 };
    live.observe(Observation::Lost(loss));
    live.observe(Observation::Lost(loss));
    // Until a second node's event comes, the first ones wait to be believed.
    (3..9).for_each(|s| step(&mut live, s, 41_000 + u16::try_from(s).unwrap_or(0), SocketStep::Opening));
    let of = |source| live.accounts().of(source).clone();
    let (hubble, ebpf) = (of(SourceKind::Hubble), of(SourceKind::Ebpf));
    let counts = |t: &crate::ledger::Totals| (t.received, t.attributed, t.rejected, t.duplicate);
    assert_eq!(counts(&hubble.totals), (5, 2, 1, 2));
    assert_eq!(counts(&ebpf.totals), (7, 7, 0, 0));
    assert_eq!((hubble.last_event, ebpf.last_event), (Some(at(2)), Some(at(8))));
    assert_eq!(hubble.lost.get("ring"), Some(&7), "told twice, lost once");
    assert_eq!(live.accounts().totals().received, 12);
}

#[test]
fn bytes_count_where_they_are_sent() {
    let mut live = pipeline(&[("mid", 2)]);
    let carried = Carried {
        sent: 1_000_000,
        received: 77,
        retransmitted: 3,
        rtt: Some(Duration::from_micros(800)),
        min_rtt: None,
    };
    step(&mut live, 0, 40_000, SocketStep::Opening);
    step(&mut live, 0, 40_000, SocketStep::Established);
    (1..4).for_each(|s| step(&mut live, s, 40_000, SocketStep::Carried(carried)));
    let ways: Vec<_> = live.tallies().flat_map(|(_, tally)| tally.ways.clone()).collect();
    let [(zones, way)] = ways.as_slice() else { panic!("one way: {ways:?}") };
    assert_eq!(*zones, ZonePair { src: Some("hall-1".into()), dst: Some("hall-1".into()) });
    assert_eq!((way.bytes, way.retransmitted, way.rtt.samples(), way.usd), (3_000_000, 9, 3, None));
    // A job that gets another number, or whose owner's UID becomes known, keeps its counters.
    live.update(cluster(&[("early", 1), ("mid", 2)]), &BTreeMap::new());
    step(&mut live, 4, 40_000, SocketStep::Carried(carried));
    let bytes: Vec<_> =
        live.tallies().map(|(id, tally)| (id.name.clone(), tally.ways[zones].bytes)).collect();
    assert_eq!(bytes, [("mid".to_owned(), 4_000_000)]);
    live.update(Vec::new(), &BTreeMap::new());
    assert_eq!(live.tallies().count(), 1, "what is gone lingers");
}

//! A pipeline that lives for weeks: it tells of the horizon, forgets what is over, and says the same as a replay does.

use std::time::Duration;

use proptest::prelude::*;

use super::looks::{holds, told};
use super::*;

const HORIZON: u64 = 600;

fn with_horizon(seconds: u64) -> Pipeline {
    let settings = Settings { horizon: Some(Duration::from_secs(seconds)), ..Settings::default() };
    Pipeline::new(Inventory::new(cluster(&[("mid", 2)]), &Grouping::default()), settings)
}

/// Worker 0 and worker 1 talk over a connection of their own.
fn talk(live: &mut Pipeline, second: u64) {
    let carried = Carried { sent: 1000, received: 10, ..Carried::default() };
    step(live, second, 60_001, SocketStep::Carried(carried));
}

/// Something in another job, so that time goes on.
fn time_passes(live: &mut Pipeline, second: u64) {
    let nobody = End::at("10.9.9.9".parse().expect("an address"), 5);
    live.observe(Observation::Socket(SocketEvent {
        at: at(second),
        observer: "n1",
        source: SourceKind::Ebpf,
        local: nobody,
        remote: nobody,
        opener: Some(Opener::Local),
        step: SocketStep::Opening,
    }));
}

fn port(k: u64) -> u16 {
    40_000 + u16::try_from(k % 10_000).unwrap_or(0)
}

#[test]
fn a_block_that_lasts_keeps_its_beginning() {
    let mut live = with_horizon(HORIZON);
    for second in (0..6 * HORIZON).step_by(20) {
        denied(&mut live, second, port(second));
        let report = live.look();
        assert!(holds(&report), "{:?}", report.coverage);
        assert!(
            report
                .window
                .end
                .zip(report.window.start)
                .is_some_and(|(end, start)| end.since(start) <= Duration::from_secs(HORIZON))
        );
    }
    let report = live.look();
    let finding = &report.jobs[0].findings[0];
    assert_eq!((finding.state, finding.since), (FindingState::Active, Some(at(0))));
    assert!(report.coverage.received < 2 * (HORIZON / 20) + 4, "{:?}", report.coverage);
    assert_eq!(live.accounts().totals().received, 2 * 6 * HORIZON / 20, "since the beginning");
    let dropped: u64 = live.tallies().flat_map(|(_, tally)| tally.dropped.values()).sum();
    assert_eq!(dropped, 6 * HORIZON / 20);
}

#[test]
fn what_ended_is_forgotten_after_the_horizon() {
    for recovers in [true, false] {
        let mut live = with_horizon(HORIZON);
        (0..4).for_each(|k| denied(&mut live, 3 * k, port(k)));
        if recovers {
            step(&mut live, 14, 50_000, SocketStep::Opening);
            step(&mut live, 14, 50_000, SocketStep::Established);
        }
        let state = |live: &mut Pipeline| live.look().jobs[0].findings.first().map(|finding| finding.state);
        for second in (20..HORIZON - 30).step_by(15) {
            time_passes(&mut live, second);
            let _ = live.look();
        }
        let expected = if recovers { FindingState::Recovered } else { FindingState::Ended };
        assert_eq!(state(&mut live), Some(expected));
        for second in (HORIZON - 30..2 * HORIZON).step_by(15) {
            time_passes(&mut live, second);
            let _ = live.look();
        }
        assert_eq!(state(&mut live), None);
        let report = live.look();
        assert_eq!(report.jobs[0].verdict, JobVerdict::Inconclusive, "nothing was seen of late");
    }
}

#[test]
fn bytes_are_those_of_the_horizon() {
    let mut live = with_horizon(HORIZON);
    step(&mut live, 0, 60_001, SocketStep::Established);
    for second in 1..5 * HORIZON {
        talk(&mut live, second);
        if second % 10 == 0 {
            let _ = live.look();
        }
    }
    let history = &live.history;
    let carried: Vec<u64> = history
        .pairs
        .iter()
        .filter_map(|(_, pair)| Some(pair.carried.as_ref()?.total().forward.bytes()))
        .collect();
    let [bytes] = carried.as_slice() else { panic!("one pair") };
    assert!((HORIZON / 2 * 1000..=(HORIZON + 40) * 1000).contains(bytes), "{bytes}");
    let sent: u64 = live.tallies().flat_map(|(_, tally)| tally.ways.values()).map(|way| way.bytes).sum();
    assert_eq!(sent, (5 * HORIZON - 1) * 1000, "the counters know all");
}

#[test]
fn who_is_gone_is_forgotten_and_leaves_its_place() {
    let mut live = with_horizon(HORIZON);
    (0..4).for_each(|k| denied(&mut live, 3 * k, port(k)));
    let _ = live.look();
    assert_eq!(live.tallies().count(), 1);
    live.update(objects([node("n1"), node("n2")]), &BTreeMap::new());
    time_passes(&mut live, 300);
    assert_eq!((live.look().jobs.len(), live.tallies().count()), (1, 1), "it lingers");
    for second in (310..2 * HORIZON).step_by(15) {
        time_passes(&mut live, second);
        let _ = live.look();
    }
    assert_eq!((live.look().jobs.len(), live.tallies().count()), (0, 0));
    assert!(live.history.pairs.is_empty());
    assert_eq!(live.inventory().objects().len(), 2);
    let places = live.inventory().pods().len();
    live.update(cluster(&[("other", 3)]), &BTreeMap::new());
    assert_eq!(live.inventory().pods().len(), places, "its place is taken");
    let report = live.look();
    assert_eq!(states(&report), [("other".to_owned(), JobVerdict::Inconclusive, Vec::new())]);
}

#[test]
fn a_node_that_is_reached_again_is_blind_no_more() {
    let mut live = with_horizon(HORIZON);
    live.observe(Observation::Blind { at: at(0), nodes: vec!["c/n1", "n2"] });
    assert_eq!(live.look().coverage.blind_nodes, ["n1", "n2"]);
    live.observe(Observation::Reached { at: at(5), nodes: vec!["n1"] });
    assert_eq!(live.look().coverage.blind_nodes, ["n2"]);
}

#[test]
fn each_source_may_have_its_own_lateness() {
    let settings = Settings {
        lateness_of: BTreeMap::from([(SourceKind::Ebpf, Duration::from_secs(2))]),
        horizon: Some(Duration::from_secs(HORIZON)),
        ..Settings::default()
    };
    let mut live = Pipeline::new(Inventory::new(cluster(&[("mid", 2)]), &Grouping::default()), settings);
    (0..50).for_each(|second| talk(&mut live, second));
    assert!(live.ledger.open_windows().len() <= 2, "few windows are open");
    step(&mut live, 40, 60_002, SocketStep::Opening);
    assert_eq!(live.accounts().of(SourceKind::Ebpf).totals.late, 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// With a horizon longer than anything that happens, a live pipeline tells what a replay tells, look by look.
    #[test]
    fn a_long_horizon_changes_nothing(events in proptest::collection::vec(told(), 0..40)) {
        let mut live = with_horizon(100 * 365 * 86_400);
        let mut replay = pipeline(&[("mid", 2)]);
        for event in &events {
            event.enter(&mut live);
            event.enter(&mut replay);
            let _ = live.look();
            prop_assert_eq!(live.report(), replay.report());
        }
        prop_assert_eq!(live.finish(), replay.finish());
    }
}

/// Where nothing happens any more, the clock of whoever runs the pipeline says when it is over.
#[test]
fn time_passes_without_events() {
    let mut live = with_horizon(HORIZON);
    (0..4).for_each(|k| denied(&mut live, 3 * k, port(k)));
    let state = |live: &mut Pipeline| live.look().jobs[0].findings.first().map(|finding| finding.state);
    assert_eq!(state(&mut live), Some(FindingState::Active));
    for second in (12..2 * HORIZON).step_by(5) {
        live.pass(at(second));
        let quiet = second >= 9 + 300;
        let seen = state(&mut live);
        match seen {
            Some(FindingState::Active) => {
                assert!(!quiet || second < 9 + 300 + 25, "still active at {second}")
            }
            Some(FindingState::Ended) => assert!(quiet, "ended at {second}"),
            Some(FindingState::Recovered) => panic!("silence is no recovery"),
            None => assert!(second > HORIZON, "forgotten at {second}"),
        }
    }
    assert_eq!(state(&mut live), None);
    // Events are counted by their own times.
    denied(&mut live, 2 * HORIZON, port(9));
    assert_eq!(live.accounts().totals().late, 0);
}

//! When failures amount to a block, and when they are over.

use std::time::Duration;

use super::*;
use crate::attribute::Peer;
use crate::drop_reason::DropReason;
use crate::facts::Protocol;
use crate::ledger::window::{Failures, PortWindow};
use crate::observation::Direction;

/// All pods on one node, in one job.
const CLUSTER: Whereabouts<'static> =
    Whereabouts { node_of: &|_| Some(ObserverId(1)), job_of: &|_, _| Some(JobIndex(0)) };

const WIDTH: u64 = 10;

fn second(s: u64) -> Timestamp {
    Timestamp::from_nanos((1_800_000_000 + s) * 1_000_000_000)
}

fn settings() -> Settings {
    Settings::default()
}

/// What happened on port 9999 of one pair, by second: `d`enied, `r`efused, `s`YN without outcome, `o`k.
fn story(events: &[(u64, char)]) -> PortHistory {
    story_of(events, DropReason::POLICY_DENIED)
}

fn story_of(events: &[(u64, char)], reason: DropReason) -> PortHistory {
    let mut history = History::default();
    let key = PairKey {
        src: PodId(0),
        dst: Peer::Member(PodId(1)),
        protocol: Protocol::Tcp,
        class: PortClass::Fixed,
    };
    let last = events.iter().map(|(s, _)| *s).max().unwrap_or(0);
    for start in (0..=last).step_by(usize::try_from(WIDTH).unwrap_or(1)) {
        let mut port = PortWindow::default();
        for (at, what) in events.iter().filter(|(s, _)| (start..start + WIDTH).contains(s)) {
            enter(&mut port, second(*at), *what, reason);
        }
        let mut window = Window::default();
        window.pairs.insert(key, PairWindow { ports: vec![(9999, port)], traffic: None });
        let at = WindowKey { start: second(start), observer: ObserverId(1), source: SourceKind::Hubble };
        history.add(&[(at, &window)], &settings(), CLUSTER);
    }
    history.pairs[&key].ports.get(9999).cloned().unwrap_or_default()
}

fn enter(port: &mut PortWindow, at: Timestamp, what: char, reason: DropReason) {
    match what {
        'o' => port.answered.add(at, 1),
        's' => port.opened.add(at, 1),
        'r' => port.failures.get_or_insert_with(Box::<Failures>::default).refused.add(at, 1),
        _ => {
            let failures = port.failures.get_or_insert_with(Box::<Failures>::default);
            let denied = failures.denied.entry(Some(Direction::Egress)).or_default();
            denied.attempts.add(at, 1);
            denied.drops += 1;
            *denied.reasons.entry(reason).or_default() += 1;
        }
    }
}

fn blocked(events: &[(u64, char)]) -> Option<Blocked> {
    story(events).streak.blocked(&settings())
}

#[test]
fn denials_need_number_and_time() {
    assert_eq!(blocked(&[(0, 'd'), (3, 'd'), (6, 'd')]), Some(Blocked::Denied));
    assert_eq!(blocked(&[(0, 'd'), (1, 'd'), (2, 'd'), (3, 'd')]), None, "not long enough");
    assert_eq!(blocked(&[(0, 'd'), (9, 'd')]), None, "not often enough");
    assert_eq!(
        blocked(&[(0, 'd'), (15, 'd')]),
        Some(Blocked::Denied),
        "as long as an unanswered one may take"
    );
}

#[test]
fn refusal_and_silence_have_their_own_grace() {
    let refused: Vec<(u64, char)> = (0..=60).step_by(5).map(|s| (s, 'r')).collect();
    assert_eq!(blocked(&refused), Some(Blocked::Refused));
    assert_eq!(blocked(&refused[..12]), None, "ranks start in any order");
    assert_eq!(blocked(&[(0, 's'), (7, 's'), (15, 's')]), Some(Blocked::Unanswered));
    assert_eq!(blocked(&[(0, 's'), (7, 's')]), None);
    assert_eq!(blocked(&[(0, 's'), (20, 's'), (21, 'd')]), None, "a denial says more than silence");
}

#[test]
fn success_ends_a_streak_and_silence_does_not() {
    let history = story(&[(0, 'd'), (3, 'd'), (6, 'd'), (25, 'o')]);
    assert!(history.streak.is_empty());
    let recovery = history.recovery.unwrap();
    assert_eq!(
        (recovery.blocked, recovery.at, recovery.streak.failed(Blocked::Denied)),
        (Blocked::Denied, second(25), 3)
    );
    assert_eq!(story(&[(0, 'd'), (3, 'o')]).recovery, None, "a stray drop was no block");
    assert_eq!(blocked(&[(0, 'd'), (3, 'd'), (6, 'd'), (900, 's')]), Some(Blocked::Denied));
}

#[test]
fn failures_after_success_count_from_there() {
    let events = [(0, 'd'), (1, 'o'), (12, 'd'), (15, 'd'), (18, 'd')];
    let history = story(&events);
    assert_eq!(history.streak.blocked(&settings()), Some(Blocked::Denied));
    assert_eq!(history.streak.failed(Blocked::Denied), 3);
    // Mixed within one window: only what surely came after the success counts.
    let mixed = story(&[(0, 'd'), (1, 'o'), (2, 'd')]);
    assert_eq!((mixed.streak.failed(Blocked::Denied), mixed.streak.blocked(&settings())), (1, None));
}

#[test]
fn drops_of_a_starting_endpoint_get_patience() {
    let not_ready = DropReason::from_code(203);
    let every = |until: u64| -> Vec<(u64, char)> { (0..=until).step_by(3).map(|s| (s, 'd')).collect() };
    let verdict = |until| story_of(&every(until), not_ready).streak.blocked(&settings());
    assert_eq!((verdict(30), verdict(60)), (None, Some(Blocked::Denied)));
    assert!(settings().transient_grace >= Duration::from_secs(60));
}

#[test]
fn the_owner_of_a_fact_counts_it() {
    let key = PairKey {
        src: PodId(0),
        dst: Peer::Member(PodId(1)),
        protocol: Protocol::Tcp,
        class: PortClass::Fixed,
    };
    let view = |drops: u64| {
        let mut port = PortWindow::default();
        for s in 0..drops {
            enter(&mut port, second(s), 'd', DropReason::POLICY_DENIED);
        }
        let mut window = Window::default();
        window.pairs.insert(key, PairWindow { ports: vec![(9999, port)], traffic: None });
        window
    };
    let at = |observer, source| WindowKey { start: second(0), observer: ObserverId(observer), source };
    // Node 1 is the source's; node 7 is a bystander; node 1 was seen through both kinds of source.
    let (hubble, ebpf, other) = (view(4), view(5), view(9));
    let group = [
        (at(1, SourceKind::Hubble), &hubble),
        (at(1, SourceKind::Ebpf), &ebpf),
        (at(7, SourceKind::Hubble), &other),
    ];
    let drops = |group: &[(WindowKey, &Window)], owner: u32| {
        let mut history = History::default();
        let node_of = |pod| (pod == PodId(0)).then_some(ObserverId(owner));
        history.add(group, &settings(), Whereabouts { node_of: &node_of, ..CLUSTER });
        history.pairs[&key].ports[&9999].streak.all_denied().drops
    };
    assert_eq!(drops(&group, 1), 5, "the kernel's own counts are exact");
    assert_eq!(drops(&group[2..], 1), 9, "another node stands in where the owner saw nothing");
}

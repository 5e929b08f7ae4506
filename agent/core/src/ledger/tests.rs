//! The laws of the ledger: everything that enters is counted once, and merging windows loses and doubles nothing.

mod kernel;

use std::net::{IpAddr, Ipv4Addr};

use proptest::prelude::*;

use super::observer::MAX_OBSERVERS;
use super::*;
use crate::attribute::{Ends, Peer};
use crate::drop_reason::DropReason;
use crate::facts::Protocol;
use crate::inventory::{JobIndex, PodId};
use crate::observation::{Direction, End, EventKind, TcpFlags, Verdict};

const SECOND: u64 = 1_000_000_000;
const START: u64 = 1_800_000_000 * SECOND;

/// An event in small: what varies, of few values each, so that collisions are common.
#[derive(Clone, Debug)]
struct Event {
    at: u64,
    node: u8,
    src: u8,
    dst: u8,
    port: u16,
    kind: u8,
}

fn address(pod: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, pod))
}

impl Event {
    fn observer(&self) -> &'static str {
        ["", "n1", "cluster/n2", "n3"][usize::from(self.node % 4)]
    }

    fn flow(&self) -> Flow<'static> {
        let (kind, verdict) = match self.kind % 4 {
            0 => (EventKind::PolicyVerdict, Verdict::Dropped(DropReason::POLICY_DENIED)),
            1 => (EventKind::Drop, Verdict::Dropped(DropReason::POLICY_DENIED)),
            2 => (EventKind::Trace, Verdict::Forwarded),
            _ => (EventKind::Trace, Verdict::WouldDrop(DropReason::POLICY_DENIED)),
        };
        let end = |pod: u8, port| End::at(address(pod), port);
        Flow {
            at: Timestamp::from_nanos(self.at),
            observer: self.observer(),
            source: SourceKind::Hubble,
            kind,
            sub_kind: 0,
            verdict,
            protocol: Protocol::Tcp,
            src: end(self.src, self.port),
            dst: end(self.dst, 9999),
            flags: TcpFlags { syn: true, ..TcpFlags::default() },
            is_reply: None,
            direction: Some(Direction::Egress),
            state: None,
            denied_by: Vec::new(),
        }
    }

    /// Pods 0 to 2 are a job; 3 and above are nobody's.
    fn concerns(&self) -> Result<Sighting, bool> {
        if self.src > 2 || self.dst > 2 {
            return Err(self.src == 4);
        }
        let flow = self.flow();
        let ends = Ends {
            pod: PodId(self.src.into()),
            peer: Peer::Member(PodId(self.dst.into())),
            pod_port: self.port,
            peer_port: 9999,
            pod_class: PortClass::Ephemeral,
            peer_class: PortClass::Fixed,
            pod_sent: true,
        };
        Ok(Sighting {
            at: flow.at,
            source: flow.source,
            job: JobIndex(0),
            ends: (self.src != self.dst).then_some(ends),
            ambiguous: self.src == self.dst,
            kind: flow.kind,
            verdict: flow.verdict,
            protocol: flow.protocol,
            flags: flow.flags,
            is_reply: flow.is_reply,
            direction: flow.direction,
            state: flow.state,
            denied_by: Vec::new(),
        })
    }
}

fn event(spread: u64) -> impl Strategy<Value = Event> {
    (0..spread, 0_u8..4, 0_u8..5, 0_u8..5, 40_000_u16..40_004, 0_u8..4).prop_map(
        move |(offset, node, src, dst, port, kind)| Event {
            at: START + offset * SECOND / 4,
            node,
            src,
            dst,
            port,
            kind,
        },
    )
}

fn run(events: &[Event], settings: Settings) -> (Totals, Vec<(WindowKey, Window)>) {
    let mut ledger = Ledger::new(settings);
    for event in events {
        ledger.flow(&event.flow(), || event.concerns());
    }
    ledger.finish();
    (ledger.totals(), ledger.take_closed())
}

fn conserved(totals: &Totals) -> bool {
    totals.received == totals.attributed + totals.not_a_job + totals.rejected + totals.late + totals.duplicate
}

/// Drops and failed handshakes over all windows and pairs.
fn sums(windows: &[(WindowKey, Window)]) -> (u64, u64) {
    let pairs = windows.iter().flat_map(|(_, window)| window.pairs.loud());
    let failures =
        pairs.flat_map(|(_, pair)| pair.ports.iter().filter_map(|(_, port)| port.failures.as_deref()));
    failures
        .flat_map(|f| f.denied.values())
        .fold((0, 0), |(drops, attempts), denied| (drops + denied.drops, attempts + denied.attempts.count))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever comes, in whatever order and from whatever time, is counted exactly once.
    #[test]
    fn nothing_is_lost_silently(
        mut events in prop::collection::vec(event(400), 0..200),
        wild in prop::collection::vec((0_usize..200, prop_oneof![Just(0), Just(u64::MAX), Just(START * 2)]), 0..6),
        cap in prop_oneof![Just(1_usize), Just(200_000)],
    ) {
        for (place, at) in wild {
            if let Some(event) = events.get_mut(place) {
                event.at = at;
            }
        }
        let (totals, windows) = run(&events, Settings { max_pairs: cap, ..Settings::default() });
        prop_assert!(conserved(&totals), "{totals:?}");
        prop_assert_eq!(totals.received, events.len() as u64);
        let kept: u64 = windows.iter().map(|(_, window)| window.counts.events).sum();
        prop_assert_eq!(kept, totals.attributed + totals.not_a_job);
    }

    /// Within the allowed lateness the order of arrival changes no count.
    #[test]
    fn order_does_not_matter(events in prop::collection::vec(event(120), 1..120).prop_flat_map(|events| {
        (Just(events.clone()), Just(events).prop_shuffle())
    })) {
        let (one, other) = (run(&events.0, Settings::default()), run(&events.1, Settings::default()));
        prop_assert_eq!(one.0, other.0);
        prop_assert_eq!(sums(&one.1), sums(&other.1));
    }

    /// What is told again changes nothing but the count of duplicates.
    #[test]
    fn told_twice_counts_once(events in prop::collection::vec(event(120), 1..100)) {
        let twice: Vec<Event> = events.iter().flat_map(|event| [event.clone(), event.clone()]).collect();
        let (once, again) = (run(&events, Settings::default()), run(&twice, Settings::default()));
        prop_assert_eq!(sums(&once.1), sums(&again.1));
        prop_assert_eq!(once.0.attributed, again.0.attributed);
        prop_assert_eq!(again.0.duplicate, once.0.duplicate + events.len() as u64);
    }

    /// Merging is commutative, associative and idempotent, and an early look gives way to a late one.
    #[test]
    fn windows_merge(
        events in prop::collection::vec(event(200), 0..150),
        cuts in prop::collection::vec(0_usize..150, 3),
    ) {
        let looks: Vec<WindowSet> = cuts.iter().map(|cut| {
            let mut set = WindowSet::default();
            for (key, window) in run(&events[..events.len().min(*cut)], Settings::default()).1 {
                set.insert(key, window);
            }
            set
        }).collect();
        let merge = |a: &WindowSet, b: &WindowSet| { let mut all = a.clone(); all.merge(b.clone()); all };
        let [a, b, c] = [&looks[0], &looks[1], &looks[2]];
        prop_assert_eq!(merge(a, b), merge(b, a));
        prop_assert_eq!(merge(&merge(a, b), c), merge(a, &merge(b, c)));
        prop_assert_eq!(merge(a, a), a.clone());
    }
}

fn at(seconds: u64) -> Event {
    Event { at: START + seconds * SECOND, node: 1, src: 0, dst: 1, port: 40_000, kind: 1 }
}

#[test]
fn one_wild_time_does_not_make_the_others_late() {
    let mut events: Vec<Event> = (0..20).map(at).collect();
    events.insert(7, Event { at: START * 2, ..at(0) });
    events.insert(0, Event { at: START * 3 / 2, ..at(0) });
    let totals = run(&events, Settings::default()).0;
    assert_eq!((totals.far_future, totals.late, totals.attributed), (2, 0, 20));
}

#[test]
fn a_quiet_night_is_not_a_wild_time() {
    let mut events: Vec<Event> = (0..5).map(at).collect();
    events.extend((0..5).map(|s| at(8 * 3600 + s)));
    let totals = run(&events, Settings::default()).0;
    assert_eq!((totals.far_future, totals.late, totals.attributed), (0, 0, 10));
}

#[test]
fn a_clock_that_runs_backwards_makes_its_events_late() {
    let mut events: Vec<Event> = (7200..7210).map(at).collect();
    events.extend((0..5).map(at));
    let totals = run(&events, Settings::default()).0;
    assert_eq!((totals.late, totals.attributed), (5, 10));
}

#[test]
fn retransmitted_syns_are_one_attempt() {
    let events: Vec<Event> = [0, 1, 3, 7, 15, 31, 63, 127].map(at).to_vec();
    let (totals, windows) = run(&events, Settings::default());
    assert_eq!(totals.attributed, 8);
    assert_eq!(sums(&windows), (8, 1));
}

#[test]
fn verdict_and_drop_are_one_packet() {
    let pair = |s| [Event { kind: 0, ..at(s) }, Event { at: START + s * SECOND + 41_000, ..at(s) }];
    let events: Vec<Event> = [0, 1, 3].into_iter().flat_map(pair).collect();
    assert_eq!(sums(&run(&events, Settings::default()).1), (3, 1));
}

#[test]
fn a_loss_is_kept_where_it_happened() {
    let mut ledger = Ledger::new(Settings::default());
    for event in (0..3).map(at) {
        ledger.flow(&event.flow(), || event.concerns());
    }
    let loss = |at, observer, count| Loss {
        at: Some(Timestamp::from_nanos(at)),
        observer,
        source: SourceKind::Hubble,
        cause: "",
        count,
    };
    for told in [loss(START, Some("n1"), 17), loss(START + SECOND, None, 3), loss(START, Some("n1"), 17)] {
        ledger.lost(&told);
    }
    ledger.finish();
    let lost: Vec<(u32, u64)> =
        ledger.take_closed().iter().map(|(key, window)| (key.observer.0, window.counts.lost)).collect();
    assert!(lost.contains(&(0, 3)) && lost.iter().any(|(id, n)| *id != 0 && *n == 17), "{lost:?}");
}

/// A connection's packets are no news once its handshake is known to have been answered: they take no room.
#[test]
fn a_connection_that_lives_takes_no_room_in_a_window() {
    let mut ledger = Ledger::new(Settings::default());
    for second in [0, 2, 30, 60] {
        let event = Event { kind: 2, ..at(second) };
        let flags = TcpFlags { ack: true, psh: true, ..TcpFlags::default() };
        let flow = Flow { flags, is_reply: Some(false), ..event.flow() };
        ledger.flow(&flow, || Ok(Sighting { flags, is_reply: flow.is_reply, ..event.concerns()? }));
    }
    ledger.finish();
    let pairs: Vec<usize> = ledger.take_closed().iter().map(|(_, window)| window.pairs.len()).collect();
    assert_eq!(pairs, [1, 0, 0], "only the first one tells anything");
}

/// On a quiet node the first events are far apart. They wait until the clock is believed, and are not late for that.
#[test]
fn what_waited_for_its_clock_is_not_late() {
    let lateness_of = [(SourceKind::Hubble, Duration::from_secs(2))].into_iter().collect();
    let settings = Settings { lateness_of, ..Settings::default() };
    let (totals, _) = run(&[0, 5, 20].map(at), settings);
    assert_eq!((totals.late, totals.attributed), (0, 3));
}

/// A relay may name what nodes it likes; each one believed has a clock and windows of its own.
#[test]
fn more_nodes_than_a_cluster_has_are_rejected() {
    let mut ledger = Ledger::new(Settings::default());
    let nodes = MAX_OBSERVERS as u64 + 100;
    for number in 0..nodes {
        let node = format!("node-{number}");
        let event = at(0);
        ledger.flow(&Flow { observer: &node, ..event.flow() }, || event.concerns());
    }
    ledger.finish();
    let totals = ledger.totals();
    assert!(conserved(&totals), "{totals:?}");
    // The empty name has a place, too.
    assert_eq!((totals.received, totals.rejected), (nodes, 101));
    assert!(ledger.take_closed().len() < MAX_OBSERVERS);
}

/// As a server's ring sends it again: the newest 65,535, at any rate it may have been filled at.
#[test]
fn what_a_whole_ring_held_is_recognised() {
    for apart in [2_000, 20_000, 100_000] {
        let mut ledger = Ledger::new(Settings::default());
        let event = |nth: u64| Event { at: START + nth * apart, port: (nth % 50_000) as u16, ..at(0) };
        let mut tell = |nth: u64| {
            let event = event(nth);
            ledger.flow(&event.flow(), || event.concerns());
        };
        (0..100_000).for_each(&mut tell);
        (34_465..100_000).for_each(&mut tell);
        let Totals { received, duplicate, .. } = ledger.totals();
        assert_eq!(received, 165_535);
        assert!(duplicate > 65_000, "{duplicate} of 65,535 with {apart} ns between two");
    }
}

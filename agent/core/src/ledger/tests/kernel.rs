//! The laws of the ledger for what the kernel tells.

use std::time::Duration;

use super::*;
use crate::attribute::{Fact, KernelSighting};
use crate::observation::{Carried, DroppedPacket, Drops, Opener, SocketEvent, SocketStep};

/// A step or an aggregate in small.
#[derive(Clone, Debug)]
struct Told {
    at: u64,
    /// The pod whose socket it is, or that sent what was dropped: 0 to 2 are a job, on nodes n0 to n2.
    pod: u8,
    peer: u8,
    opens: Option<bool>,
    port: u16,
    kind: u8,
    bytes: u64,
}

impl Told {
    fn observer(&self) -> &'static str {
        ["n0", "n1", "n2", "n3"][usize::from(self.pod % 4)]
    }

    /// The ports at the pod and at its peer: 9999 is called.
    fn ports(&self) -> (u16, u16) {
        if self.opens == Some(false) { (9999, self.port) } else { (self.port, 9999) }
    }

    fn opener(&self) -> Option<Opener> {
        self.opens.map(|opens| if opens { Opener::Local } else { Opener::Remote })
    }

    fn step(&self) -> SocketStep {
        let carried = Carried {
            sent: self.bytes,
            received: self.bytes / 2,
            retransmitted: 1,
            rtt: Some(Duration::from_micros(100 + self.bytes)),
            min_rtt: Some(Duration::from_micros(100)),
        };
        match self.kind % 8 {
            0 => SocketStep::Opening,
            1 => SocketStep::Retried,
            2 => SocketStep::Established,
            3 => SocketStep::Refused,
            4 => SocketStep::GaveUp,
            5 => SocketStep::Closed(carried),
            _ => SocketStep::Carried(carried),
        }
    }

    fn enter(&self, ledger: &mut Ledger) {
        let (at, observer, source) = (Timestamp::from_nanos(self.at), self.observer(), SourceKind::Ebpf);
        let (own, other) = self.ports();
        let ends = [End::at(address(self.pod), own), End::at(address(self.peer), other)];
        if self.kind == 8 {
            let drops = Drops {
                first: at.minus(Duration::from_millis(500)),
                last: at,
                observer,
                source,
                protocol: Protocol::Tcp,
                src: End { port: 0, ..ends[0] },
                dst: ends[1],
                what: DroppedPacket::Opening,
                reason: DropReason::from_kernel_name("NETFILTER_DROP"),
                direction: Some(Direction::Egress),
                packets: self.bytes + 1,
                attempts: 1,
            };
            ledger.drops(&drops, || {
                self.concerns(Fact::Dropped {
                    first: drops.first,
                    what: drops.what,
                    reason: drops.reason,
                    direction: drops.direction,
                    packets: drops.packets,
                    attempts: drops.attempts,
                })
            });
        } else {
            let (opener, step) = (self.opener(), self.step());
            let [local, remote] = ends;
            let event = SocketEvent { at, observer, source, local, remote, opener, step };
            ledger.socket(&event, || self.concerns(Fact::Step { opener, step, listens: None }));
        }
    }

    fn concerns(&self, fact: Fact) -> Result<KernelSighting, bool> {
        if self.pod > 2 || self.peer > 2 || self.pod == self.peer {
            return Err(self.pod == 3);
        }
        let class = |port| if port == 9999 { PortClass::Fixed } else { PortClass::Ephemeral };
        let (own, other) = self.ports();
        let ends = Ends {
            pod: PodId(self.pod.into()),
            peer: Peer::Member(PodId(self.peer.into())),
            pod_port: own,
            peer_port: other,
            pod_class: class(own),
            peer_class: class(other),
            pod_sent: true,
        };
        Ok(KernelSighting {
            at: Timestamp::from_nanos(self.at),
            source: SourceKind::Ebpf,
            job: JobIndex(0),
            ends: Some(ends),
            ambiguous: false,
            protocol: Protocol::Tcp,
            fact,
        })
    }
}

fn told(spread: u64) -> impl Strategy<Value = Told> {
    let opens = prop_oneof![Just(None), Just(Some(true)), Just(Some(false))];
    (0..spread, 0_u8..4, 0_u8..4, opens, 40_000_u16..40_003, 0_u8..9, 0_u64..5).prop_map(
        |(offset, pod, peer, opens, port, kind, bytes)| Told {
            at: START + offset * SECOND / 4,
            pod,
            peer,
            opens,
            port,
            kind,
            bytes,
        },
    )
}

fn run_told(told: &[Told]) -> (Totals, Vec<(WindowKey, Window)>) {
    let mut ledger = Ledger::new(Settings::default());
    told.iter().for_each(|event| event.enter(&mut ledger));
    ledger.finish();
    (ledger.totals(), ledger.take_closed())
}

/// Bytes sent, packets dropped, segments sent again, round trips measured, over all windows.
fn measured(windows: &[(WindowKey, Window)]) -> [u64; 4] {
    let mut sums = [0; 4];
    for (_, pair) in windows.iter().flat_map(|(_, window)| window.pairs.iter()) {
        for traffic in pair.traffic.iter().flat_map(|by_port| by_port.values()) {
            for way in [traffic.forward, traffic.backward] {
                sums[0] += way.sent;
                sums[2] += way.retransmitted;
            }
            sums[3] += traffic.rtt.samples();
        }
        let failures = pair.ports.iter().filter_map(|(_, port)| port.failures.as_deref());
        sums[1] += failures.flat_map(|f| f.denied.values()).map(|denied| denied.drops).sum::<u64>();
    }
    sums
}

/// The same for what was told, counted by hand.
fn expected(told: &[Told]) -> [u64; 4] {
    let mut sums = [0; 4];
    for event in told.iter().filter(|e| e.pod < 3 && e.peer < 3 && e.pod != e.peer) {
        match event.kind {
            5..=7 => {
                sums[0] += event.bytes;
                sums[2] += 1;
                sums[3] += u64::from(event.bytes > 0);
            }
            8 => sums[1] += event.bytes + 1,
            _ => {}
        }
    }
    sums
}

fn unlike(told: Vec<Told>) -> Vec<Told> {
    // The same event twice is a duplicate: make all times differ.
    (0_u64..).zip(told).map(|(k, event)| Told { at: event.at + k * 1000, ..event }).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Every byte, packet and round trip that was told is in a window, once, and the counts of events add up.
    #[test]
    fn nothing_that_was_carried_is_lost(events in prop::collection::vec(told(200), 1..150)) {
        let events = unlike(events);
        let (totals, windows) = run_told(&events);
        prop_assert!(conserved(&totals), "{totals:?}");
        prop_assert_eq!(totals.received, events.len() as u64);
        prop_assert_eq!(totals.duplicate, 0);
        prop_assert_eq!(measured(&windows), expected(&events));
    }

    /// What is told again changes nothing but the count of duplicates.
    #[test]
    fn carried_twice_counts_once(events in prop::collection::vec(told(120), 1..100)) {
        let events = unlike(events);
        let twice: Vec<Told> = events.iter().flat_map(|event| [event.clone(), event.clone()]).collect();
        let (once, again) = (run_told(&events), run_told(&twice));
        prop_assert_eq!(measured(&once.1), measured(&again.1));
        prop_assert_eq!(again.0.duplicate, once.0.duplicate + events.len() as u64);
    }

    /// Merging what the kernel told on several nodes is commutative, associative and idempotent.
    #[test]
    fn kernel_windows_merge(
        events in prop::collection::vec(told(200), 0..120),
        cuts in prop::collection::vec(0_usize..120, 3),
    ) {
        let events = unlike(events);
        let looks: Vec<WindowSet> = cuts.iter().map(|cut| {
            let mut set = WindowSet::default();
            for (key, window) in run_told(&events[..events.len().min(*cut)]).1 {
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

fn step(second: u64, pod: u8, opens: Option<bool>, kind: u8) -> Told {
    Told { at: START + second * SECOND, pod, peer: 1 - pod, opens, port: 40_000, kind, bytes: 4 }
}

/// Handshakes begun and answered, at each node that told of the pair 0 -> 1.
fn handshakes(told: &[Told]) -> Vec<(u64, u64, u64)> {
    let mut of_node: BTreeMap<ObserverId, (u64, u64, u64)> = BTreeMap::new();
    for (key, window) in run_told(told).1 {
        for (pair, seen) in window.pairs.iter() {
            assert_eq!(
                (pair.src, pair.dst, pair.class),
                (PodId(0), Peer::Member(PodId(1)), PortClass::Fixed)
            );
            let sums = of_node.entry(key.observer).or_default();
            for (_, port) in &seen.ports {
                sums.0 += port.opened.count;
                sums.1 += port.answered.count;
                sums.2 += port.failures.as_ref().map_or(0, |f| f.refused.count);
            }
        }
    }
    of_node.into_values().collect()
}

#[test]
fn a_connection_counts_once_at_each_end() {
    let both = [step(0, 0, Some(true), 0), step(1, 0, Some(true), 2), step(1, 1, Some(false), 2)];
    let carried = (2..9).flat_map(|s| [step(s, 0, Some(true), 6), step(s, 1, Some(false), 6)]);
    let all: Vec<Told> = both.into_iter().chain(carried).collect();
    assert_eq!(handshakes(&all), [(1, 1, 0), (1, 1, 0)]);
}

#[test]
fn a_socket_older_than_the_agent_is_one_success() {
    let all: Vec<Told> = (0..5).flat_map(|s| [step(s, 0, None, 6), step(s, 1, Some(false), 7)]).collect();
    assert_eq!(handshakes(&all), [(0, 1, 0), (0, 1, 0)], "whoever tells, pod 0 opened: 9999 is called");
}

#[test]
fn a_refused_attempt_and_the_next_one_are_two() {
    let all = [0, 3, 0, 1, 4, 0, 3].into_iter().zip(0..).map(|(kind, s)| step(s, 0, Some(true), kind));
    let all: Vec<Told> = all.collect();
    assert_eq!(handshakes(&all), [(3, 0, 2)]);
}

#[test]
fn drops_of_one_handshake_are_one_attempt() {
    let mut all = vec![step(0, 0, Some(true), 0)];
    for s in [0, 1, 3, 7, 15] {
        all.push(step(s, 0, Some(true), 8));
        all.push(step(s + 1, 0, Some(true), 1));
    }
    let (_, windows) = run_told(&all);
    assert_eq!(sums(&windows), (25, 1));
}

#[test]
fn a_drop_in_the_middle_of_nothing_known_blames_nobody() {
    let whose = |known: bool| {
        let mut ledger = Ledger::new(Settings::default());
        if known {
            step(0, 0, Some(true), 2).enter(&mut ledger);
        }
        // Pod 1 sends back to the ephemeral port of pod 0, as its node sees it.
        let back = Told { opens: Some(false), ..step(1, 1, None, 8) };
        let fact = Fact::Dropped {
            first: Timestamp::from_nanos(back.at),
            what: DroppedPacket::Other,
            reason: DropReason::from_kernel_name("TC_INGRESS"),
            direction: None,
            packets: 1,
            attempts: 0,
        };
        let at = Timestamp::from_nanos(back.at);
        let drops = Drops {
            first: at,
            last: at,
            observer: "n0",
            source: SourceKind::Ebpf,
            protocol: Protocol::Tcp,
            src: End::at(address(1), 0),
            dst: End::at(address(0), 40_000),
            what: DroppedPacket::Other,
            reason: DropReason::from_kernel_name("TC_INGRESS"),
            direction: None,
            packets: 1,
            attempts: 0,
        };
        ledger.drops(&drops, || back.concerns(fact));
        ledger.finish();
        let windows = ledger.take_closed();
        let failing = windows
            .iter()
            .flat_map(|(_, w)| w.pairs.iter())
            .filter(|(_, p)| p.ports.iter().any(|(port, seen)| *port == 9999 && seen.failures.is_some()));
        (failing.map(|(key, _)| key.src).collect::<Vec<_>>(), ledger.totals().attributed)
    };
    assert_eq!(whose(true), (vec![PodId(0)], 2));
    assert_eq!(whose(false), (vec![], 1));
}

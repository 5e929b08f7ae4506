//! What a pair's connections carried. A replay keeps all of it; with a horizon it is kept in two halves of the horizon, in
//! little space: bytes of the account that counts, round trips in four buckets, times to the second.

use std::collections::{BTreeSet, VecDeque};

use crate::ledger::traffic::OneWay;
use crate::ledger::window::Span;
use crate::ledger::{RttSketch, Traffic};
use crate::observation::App;
use crate::settings::Settings;
use crate::time::Timestamp;

/// Ports remembered for what a pair carried.
const MAX_PORTS: usize = 512;
/// Ports remembered with a horizon; of more only the number is known, from below.
const FEW_PORTS: usize = 4;
/// Buckets of round-trip times with a horizon.
const FEW_BUCKETS: usize = 4;

/// What a pair's connections carried.
#[derive(Clone, PartialEq, Debug)]
pub enum CarriedHistory {
    /// All of it.
    Whole(Box<Whole>),
    /// Of the last one to two halves of the horizon.
    OfLate(Box<OfLate>),
}

/// Everything that was carried.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Whole {
    total: Traffic,
    /// Ports that it took, the first few hundred.
    ports: BTreeSet<u16>,
    /// The windows of late, by their start.
    recent: VecDeque<(Timestamp, Traffic)>,
}

/// What was carried in a half of the horizon.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Half {
    /// From the opener on, and back: the sender's account, the receiver's only where the sender told nothing.
    bytes: [u64; 2],
    retransmitted: u32,
    /// When the first byte was carried, in seconds; 0: none was.
    first: u32,
    sender_told: [bool; 2],
}

/// What was carried of late.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OfLate {
    now: Half,
    before: Half,
    /// Round-trip times: buckets with their counts, sorted; a count of 0 is no bucket.
    rtt: [(u16, u16); FEW_BUCKETS],
    /// The lowest ports, sorted; 0 is none.
    ports: [u16; FEW_PORTS],
    /// When the last byte was carried, in seconds.
    last: u32,
    /// As bits, by [`App::ALL`].
    apps: u8,
}

fn seconds(at: Timestamp) -> u32 {
    u32::try_from(at.nanos() / 1_000_000_000).unwrap_or(u32::MAX)
}

fn time(seconds: u32) -> Timestamp {
    Timestamp::from_nanos(u64::from(seconds) * 1_000_000_000)
}

impl CarriedHistory {
    /// Nothing yet.
    pub(super) fn new(settings: &Settings) -> Self {
        if settings.horizon.is_some() { Self::OfLate(Box::default()) } else { Self::Whole(Box::default()) }
    }

    /// All that is known of.
    #[must_use]
    pub fn total(&self) -> Traffic {
        match self {
            Self::Whole(whole) => whole.total.clone(),
            Self::OfLate(late) => late.traffic(true),
        }
    }

    /// What was carried in windows that began at `since` or later, of those of late. With a horizon: since the half began
    /// at `half`, or in both halves where that is not long ago enough.
    #[must_use]
    pub fn since(&self, since: Timestamp, half: Option<Timestamp>) -> Traffic {
        match self {
            Self::Whole(whole) => {
                let mut traffic = Traffic::default();
                for (_, of_window) in whole.recent.iter().filter(|(start, _)| *start >= since) {
                    traffic.add(of_window);
                }
                traffic
            }
            Self::OfLate(late) => late.traffic(half.is_none_or(|half| half > since)),
        }
    }

    /// The ports that were called, sorted; with a horizon the lowest few.
    #[must_use]
    pub fn ports(&self) -> Vec<u16> {
        match self {
            Self::Whole(whole) => whole.ports.iter().copied().collect(),
            Self::OfLate(late) => late.ports.iter().copied().filter(|port| *port != 0).collect(),
        }
    }

    pub(super) fn took(&mut self, port: u16) {
        match self {
            _ if port == 0 => {}
            Self::Whole(whole) => {
                if whole.ports.len() < MAX_PORTS {
                    whole.ports.insert(port);
                }
            }
            Self::OfLate(late) => late.took(port),
        }
    }

    pub(super) fn add(&mut self, start: Timestamp, traffic: &Traffic, settings: &Settings) {
        match self {
            Self::Whole(whole) => whole.add(start, traffic, settings),
            Self::OfLate(late) => late.add(traffic),
        }
    }

    /// When anything was carried last.
    pub(super) fn last(&self) -> Option<Timestamp> {
        match self {
            Self::Whole(whole) => whole.total.span.map(|span| span.last),
            Self::OfLate(late) => (late.last != 0).then(|| time(late.last)),
        }
    }

    /// A half of the horizon is over.
    pub(super) fn turn(&mut self) {
        if let Self::OfLate(late) = self {
            late.before = std::mem::take(&mut late.now);
            let halves = late.rtt.map(|(bucket, count)| (bucket, count / 2));
            late.rtt = [(0, 0); FEW_BUCKETS];
            halves.into_iter().filter(|(_, count)| *count > 0).for_each(|(bucket, n)| late.count(bucket, n));
        }
    }
}

impl Whole {
    fn add(&mut self, start: Timestamp, traffic: &Traffic, settings: &Settings) {
        self.total.add(traffic);
        match self.recent.back_mut() {
            Some((last, of_window)) if *last == start => of_window.add(traffic),
            _ => self.recent.push_back((start, traffic.clone())),
        }
        let old = start.minus(settings.recent + settings.window);
        while self.recent.front().is_some_and(|(start, _)| *start < old) {
            self.recent.pop_front();
        }
    }
}

impl Half {
    fn add(&mut self, traffic: &Traffic) {
        for (index, way) in [traffic.forward, traffic.backward].into_iter().enumerate() {
            let (Some(bytes), Some(told)) = (self.bytes.get_mut(index), self.sender_told.get_mut(index))
            else {
                continue;
            };
            if way.sender_told && !*told {
                (*bytes, *told) = (0, true);
            }
            *bytes = bytes.saturating_add(if *told { way.sent } else { way.received });
            let retransmitted = u32::try_from(way.retransmitted).unwrap_or(u32::MAX);
            self.retransmitted = self.retransmitted.saturating_add(retransmitted);
        }
        if let Some(span) = traffic.span.filter(|_| self.first == 0) {
            self.first = seconds(span.first);
        }
    }

    fn ways(&self) -> [OneWay; 2] {
        [0, 1].map(|index| {
            let (bytes, sender_told) = (self.bytes[index], self.sender_told[index]);
            let (sent, received) = if sender_told { (bytes, 0) } else { (0, bytes) };
            let retransmitted = if index == 0 { u64::from(self.retransmitted) } else { 0 };
            OneWay { sent, received, retransmitted, sender_told }
        })
    }
}

impl OfLate {
    fn took(&mut self, port: u16) {
        if self.ports.contains(&port) {
            return;
        }
        if let Some(place) = self.ports.iter().position(|known| *known == 0 || *known > port) {
            self.ports[place..].rotate_right(1);
            self.ports[place] = port;
        }
    }

    fn add(&mut self, traffic: &Traffic) {
        self.now.add(traffic);
        if let Some(span) = traffic.span {
            self.last = self.last.max(seconds(span.last));
        }
        for (bit, app) in App::ALL.iter().enumerate() {
            self.apps |= u8::from(traffic.apps.contains(app)) << bit;
        }
        for (bucket, count) in traffic.rtt.buckets() {
            self.count(bucket, u16::try_from(count).unwrap_or(u16::MAX));
        }
    }

    /// Counts in a bucket. Of more than fit, the two nearest become one: what lies apart stays apart.
    fn count(&mut self, bucket: u16, by: u16) {
        if let Some((_, count)) = self.rtt.iter_mut().find(|(known, count)| *known == bucket && *count > 0) {
            *count = count.saturating_add(by);
            return;
        }
        let mut all: [(u16, u16); FEW_BUCKETS + 1] = [(bucket, by); FEW_BUCKETS + 1];
        all[..FEW_BUCKETS].copy_from_slice(&self.rtt);
        all.sort_unstable_by_key(|(bucket, count)| (*count == 0, *bucket));
        if all[FEW_BUCKETS].1 > 0 {
            let gap = |place: &usize| all[place + 1].0 - all[*place].0;
            let nearest = (0..FEW_BUCKETS).min_by_key(gap).unwrap_or(0);
            let (low, high) = (all[nearest], all[nearest + 1]);
            let heavier = if low.1 >= high.1 { low.0 } else { high.0 };
            all[nearest] = (heavier, low.1.saturating_add(high.1));
            all[nearest + 1..].rotate_left(1);
        }
        self.rtt.copy_from_slice(&all[..FEW_BUCKETS]);
    }

    fn traffic(&self, both: bool) -> Traffic {
        let ([forward, backward], [forward_before, backward_before]) = (self.now.ways(), self.before.ways());
        let mut rtt = RttSketch::default();
        for (bucket, count) in self.rtt.iter().filter(|(_, count)| *count > 0) {
            rtt.count(*bucket, u64::from(*count));
        }
        let apps = App::ALL.into_iter().enumerate().filter(|(bit, _)| self.apps >> bit & 1 == 1);
        let firsts = [self.now.first, if both { self.before.first } else { 0 }];
        let first = firsts.into_iter().filter(|first| *first != 0).min();
        Traffic {
            forward: if both { forward.plus(forward_before) } else { forward },
            backward: if both { backward.plus(backward_before) } else { backward },
            rtt,
            apps: apps.map(|(_, app)| app).collect(),
            span: first.map(|first| Span { first: time(first), last: time(self.last.max(first)) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::observation::Carried;

    fn told(second: u64, opener_tells: bool, sent: u64, received: u64, rtt: u64) -> Traffic {
        let mut traffic = Traffic::default();
        let rtt = Some(Duration::from_micros(rtt));
        let at = Timestamp::from_nanos((1_800_000_000 + second) * 1_000_000_000);
        traffic.carry(at, opener_tells, &Carried { sent, received, retransmitted: 1, rtt, min_rtt: rtt });
        traffic
    }

    fn both(of: &[Traffic]) -> [CarriedHistory; 2] {
        let late = Settings { horizon: Some(Duration::from_secs(600)), ..Settings::default() };
        [Settings::default(), late].map(|settings| {
            let mut history = CarriedHistory::new(&settings);
            of.iter().for_each(|traffic| history.add(Timestamp::MIN, traffic, &settings));
            history
        })
    }

    #[test]
    fn little_space_tells_the_same_bytes() {
        let of = [told(0, false, 7, 90, 300), told(3, true, 100, 5, 310), told(9, true, 50, 6, 9_000)];
        for upto in 0..=of.len() {
            let [whole, late] = both(&of[..upto]);
            let bytes = |of: &CarriedHistory| (of.total().forward.bytes(), of.total().backward.bytes());
            assert_eq!(bytes(&whole), bytes(&late));
            assert_eq!(whole.total().span, late.total().span);
            assert_eq!(whole.total().rtt.samples(), late.total().rtt.samples());
            assert_eq!(whole.last(), late.last());
        }
    }

    #[test]
    fn what_lies_apart_stays_apart() {
        let of: Vec<Traffic> =
            (0..40).map(|k| told(k, true, 1 << 20, 0, if k < 30 { 300 + k } else { 9_000 })).collect();
        let [whole, late] = both(&of);
        let quantiles = |of: &CarriedHistory| [100, 500, 900].map(|share| of.total().rtt.quantile(share));
        for (exact, few) in quantiles(&whole).into_iter().zip(quantiles(&late)) {
            let (exact, few) = (exact.unwrap().as_secs_f64(), few.unwrap().as_secs_f64());
            assert!((exact - few).abs() < exact * 0.1, "{exact} is told as {few}");
        }
    }

    #[test]
    fn halves_pass() {
        let [_, mut late] = both(&[told(0, true, 100, 5, 300)]);
        late.turn();
        assert_eq!(late.total().forward.bytes(), 100);
        let half = Some(Timestamp::from_nanos(5));
        assert_eq!(late.since(Timestamp::from_nanos(9), half).forward.bytes(), 0, "nothing in this half");
        assert_eq!(late.since(Timestamp::from_nanos(3), half).forward.bytes(), 100);
        late.turn();
        assert_eq!(late.total().forward.bytes(), 0);
    }

    #[test]
    fn the_lowest_ports_are_remembered() {
        let [_, mut late] = both(&[]);
        [9, 3, 9, 7, 1, 8, 0].into_iter().for_each(|port| late.took(port));
        assert_eq!(late.ports(), [1, 3, 7, 8]);
        assert!(size_of::<OfLate>() <= 96);
    }
}

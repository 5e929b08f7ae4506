//! What was seen of late, in fixed memory: which events were told before, and what is remembered of each connection.
//!
//! Which events were told before: a stream that is resumed, a relay next to a node, two overlapping captures:
//! the same event (node, time, ends, kind) counts once. Memory is fixed: fingerprints of the newest events.

use std::hash::{BuildHasher, Hash, Hasher};
use std::time::Duration;

use crate::inventory::{FastMap, node_name};
use crate::observation::{Carried, Drops, End, Flow, Loss, SocketEvent, SocketStep, Verdict};
use crate::time::Timestamp;

/// Events are remembered in sets of so many, the newest of each.
const SET: usize = 8;
/// So many sets belong together, 16 KiB: what happened about the same time lies there, and stays in the processor's cache.
const SETS_OF_A_TIME: usize = 1 << 8;
/// How many times there are: 2^18 of the newest events in all, 2 MiB when full.
const TIMES: usize = 1 << 7;
/// About the same time: within 2^20 ns, a millisecond.
const TIME_BITS: u32 = 20;

/// Entries of [`Recently`] live for one to two of these in silence; the longest pause between two SYNs of one handshake
/// is 64 s (Linux, tcp_syn_retries 6).
const GENERATION: Duration = Duration::from_secs(75);

/// What is remembered by fingerprint until it has not been touched for a while.
#[derive(Clone)]
pub(super) struct Recently<V> {
    known: FastMap<u64, (V, u8)>,
    /// Wraps around; entries that were last touched before the previous one are dropped when a new one begins.
    generation: u8,
    turned: Option<Timestamp>,
    limit: usize,
}

impl<V: Copy> Recently<V> {
    pub(super) fn new(limit: usize) -> Self {
        Self { known: FastMap::default(), generation: 0, turned: None, limit }
    }

    pub(super) fn turn(&mut self, at: Timestamp) {
        let due = self.turned.is_none_or(|turned| at >= turned.plus(GENERATION));
        if due {
            let current = self.generation;
            self.known.retain(|_, (_, touched)| *touched == current);
            if self.known.capacity() > 4 * self.known.len() {
                self.known.shrink_to(2 * self.known.len());
            }
            self.generation = current.wrapping_add(1);
            self.turned = Some(at);
        }
    }

    pub(super) fn get(&self, id: u64) -> Option<V> {
        self.known.get(&id).map(|(value, _)| *value)
    }

    /// `false`: too many are remembered already.
    pub(super) fn put(&mut self, id: u64, value: V) -> bool {
        let entry = (value, self.generation);
        if let Some(known) = self.known.get_mut(&id) {
            *known = entry;
            return true;
        }
        if self.known.len() >= self.limit {
            return false;
        }
        self.known.insert(id, entry);
        true
    }
}

/// Fingerprints of the newest events.
pub(super) struct Recent {
    /// Empty until something is remembered; 0 is no fingerprint.
    sets: Vec<[u64; SET]>,
    // Fixed seeds: a collision must be the same collision in every run.
    hasher: foldhash::quality::FixedState,
}

impl Default for Recent {
    fn default() -> Self {
        let hasher = foldhash::quality::FixedState::with_seed(0x6669_7265_646f_6f72);
        Self { sets: Vec::new(), hasher }
    }
}

impl Recent {
    /// Remembers the event; whether it had been seen before.
    pub(super) fn seen(&mut self, flow: &Flow<'_>) -> bool {
        let fingerprint = self.fingerprint(flow);
        self.remember(flow.at, fingerprint)
    }

    /// Remembers a message about lost events; whether it had been seen before.
    pub(super) fn seen_loss(&mut self, loss: &Loss<'_>) -> bool {
        let fingerprint = self.hasher.hash_one((
            loss.at,
            loss.observer.map(node_name),
            loss.source,
            loss.cause,
            loss.count,
        ));
        self.remember(loss.at.unwrap_or_default(), fingerprint)
    }

    /// Remembers a socket's step; whether it had been seen before.
    pub(super) fn seen_step(&mut self, event: &SocketEvent<'_>) -> bool {
        let mut h = self.hasher.build_hasher();
        (node_name(event.observer), event.at, event.opener, event.source).hash(&mut h);
        (address(&event.local), address(&event.remote)).hash(&mut h);
        let counters = |of: &Carried| (of.sent, of.received, of.retransmitted, of.rtt);
        match &event.step {
            SocketStep::Listening => 0_u8.hash(&mut h),
            SocketStep::Opening => 1_u8.hash(&mut h),
            SocketStep::Retried => 2_u8.hash(&mut h),
            SocketStep::Established => 3_u8.hash(&mut h),
            SocketStep::Refused => 4_u8.hash(&mut h),
            SocketStep::GaveUp => 5_u8.hash(&mut h),
            SocketStep::Recognised(app) => (6_u8, app).hash(&mut h),
            SocketStep::Carried(carried) => (7_u8, counters(carried)).hash(&mut h),
            SocketStep::Closed(carried) => (8_u8, counters(carried)).hash(&mut h),
        }
        let fingerprint = h.finish();
        self.remember(event.at, fingerprint)
    }

    /// Remembers drops; whether they had been told before.
    pub(super) fn seen_drops(&mut self, drops: &Drops<'_>) -> bool {
        let mut h = self.hasher.build_hasher();
        (node_name(drops.observer), drops.first, drops.last, drops.source, drops.protocol).hash(&mut h);
        (address(&drops.src), address(&drops.dst), drops.what, drops.reason).hash(&mut h);
        (drops.direction, drops.packets, drops.attempts).hash(&mut h);
        let fingerprint = h.finish();
        self.remember(drops.last, fingerprint)
    }

    /// Two of one fingerprint have the same time.
    fn remember(&mut self, at: Timestamp, fingerprint: u64) -> bool {
        if self.sets.is_empty() {
            self.sets = vec![[0; SET]; TIMES * SETS_OF_A_TIME];
        }
        let fingerprint = fingerprint.max(1);
        let time = usize::try_from(at.nanos() >> TIME_BITS).unwrap_or(0) % TIMES;
        let place = time * SETS_OF_A_TIME + usize::try_from(fingerprint).unwrap_or(0) % SETS_OF_A_TIME;
        let Some(set) = self.sets.get_mut(place) else { return false };
        if set.contains(&fingerprint) {
            return true;
        }
        let [a, b, c, d, e, f, g, _] = *set;
        *set = [fingerprint, a, b, c, d, e, f, g];
        false
    }

    fn fingerprint(&self, flow: &Flow<'_>) -> u64 {
        let mut h = self.hasher.build_hasher();
        node_name(flow.observer).hash(&mut h);
        (flow.at, flow.kind, flow.sub_kind, flow.protocol, flow.direction, flow.is_reply).hash(&mut h);
        (flow.src.ip, flow.src.port, flow.dst.ip, flow.dst.port, flow.flags.bits()).hash(&mut h);
        let verdict = match flow.verdict {
            Verdict::Forwarded => 1,
            Verdict::Dropped(reason) => 0x1_0000_0000 | u64::from(reason.code()),
            Verdict::WouldDrop(reason) => 0x2_0000_0000 | u64::from(reason.code()),
            Verdict::Redirected => 2,
            Verdict::Other => 3,
        };
        verdict.hash(&mut h);
        h.finish()
    }
}

/// Two pods may share an address, not a UID.
fn address<'a>(end: &End<'a>) -> (Option<std::net::IpAddr>, u16, Option<&'a str>) {
    (end.ip, end.port, end.uid)
}

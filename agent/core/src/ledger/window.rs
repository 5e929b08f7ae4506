//! What one node saw through one source in one stretch of time. Windows are values: two of different keys lie
//! side by side, two of the same key are two looks at the same thing, of which the later one counts. That is
//! what makes merging commutative, associative and idempotent.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::IpAddr;

use crate::attribute::Peer;
use crate::drop_reason::DropReason;
use crate::facts::Protocol;
use crate::inventory::{JobIndex, PodId};
use crate::observation::{Direction, SourceKind};
use crate::time::Timestamp;

use super::named::Named;
use super::observer::ObserverId;
use super::pairs::Pairs;
use super::traffic::Traffic;

/// Ports remembered one by one for a pair in a window; what comes beyond is kept under port 0.
const MAX_PORTS: usize = 64;

/// Listeners remembered for a window, and over all.
pub(crate) const MAX_LISTENERS: usize = 16_384;

/// Whose look at which stretch of time. Ordered by time first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WindowKey {
    /// Start of the window.
    pub start: Timestamp,
    /// The node that saw it.
    pub observer: ObserverId,
    /// Through which kind of source.
    pub source: SourceKind,
}

/// First and last time of something.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Span {
    /// The first time.
    pub first: Timestamp,
    /// The last time.
    pub last: Timestamp,
}

impl Span {
    /// Something that happened once.
    #[must_use]
    pub fn at(time: Timestamp) -> Self {
        Self { first: time, last: time }
    }

    /// The smallest span that holds both.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        Self { first: self.first.min(other.first), last: self.last.max(other.last) }
    }
}

/// Joins two spans of which either may be missing.
#[must_use]
pub fn join(a: Option<Span>, b: Option<Span>) -> Option<Span> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.join(b)),
        (one, None) | (None, one) => one,
    }
}

/// How often and when. Never happened: count 0 and no span.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Tally {
    /// How often.
    pub count: u64,
    /// When.
    pub span: Option<Span>,
}

impl Tally {
    /// Counts `by` more at `at`; with 0 only the time is noted.
    pub fn add(&mut self, at: Timestamp, by: u64) {
        self.count = self.count.saturating_add(by);
        self.span = join(self.span, Some(Span::at(at)));
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { count: self.count.saturating_add(other.count), span: join(self.span, other.span) }
    }
}

/// Packets dropped in one direction.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Denied {
    /// Handshakes (or datagram exchanges) that ran into it, by first denial.
    pub attempts: Tally,
    /// Packets dropped.
    pub drops: u64,
    /// Why, by packet.
    pub reasons: BTreeMap<DropReason, u64>,
    /// Policies the source named, as many as are remembered.
    pub named: Named,
}

impl Denied {
    /// Both together.
    pub fn add(&mut self, other: &Denied) {
        self.attempts = self.attempts.plus(other.attempts);
        self.drops = self.drops.saturating_add(other.drops);
        for (reason, count) in &other.reasons {
            *self.reasons.entry(*reason).or_default() += count;
        }
        self.named.extend(other.named.iter());
    }
}

/// What went wrong on a port; boxed, for most ports nothing ever does.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Failures {
    /// Dropped, by direction where it is known.
    pub denied: BTreeMap<Option<Direction>, Denied>,
    /// Handshakes answered with a reset.
    pub refused: Tally,
    /// Passed, but would have been dropped were the policy enforced.
    pub audited: Denied,
}

/// What happened on one port of a pair.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct PortWindow {
    /// Handshakes begun, whatever became of them.
    pub opened: Tally,
    /// Proof of success: handshakes answered, and the times of anything that proves a living connection.
    pub answered: Tally,
    /// What went wrong.
    pub failures: Option<Box<Failures>>,
}

/// Whether a port is a rendezvous or picked by the kernel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PortClass {
    /// Declared or below the ephemeral range.
    Fixed,
    /// From the kernel's ephemeral range, as NCCL's listeners are.
    Ephemeral,
}

/// Who opens connections to whom.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PairKey {
    /// The pod that opens.
    pub src: PodId,
    /// Whom it wants to reach.
    pub dst: Peer,
    /// Over which protocol.
    pub protocol: Protocol,
    /// On which class of port.
    pub class: PortClass,
}

/// What happened between a pair.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct PairWindow {
    /// By port, sorted; port 0 holds what was beyond the cap.
    pub ports: Vec<(u16, PortWindow)>,
    /// What its connections carried: together under 0, and by port where the peer is one of several that share an
    /// address. Boxed, for a source that sees no bytes has none.
    pub traffic: Option<Box<BTreeMap<u16, Traffic>>>,
}

/// Who listens at an address that several pods share.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Listener {
    /// When it was last seen to listen, or to accept a connection.
    pub at: Timestamp,
    /// The pod.
    pub pod: PodId,
    /// What kind of port it is.
    pub class: PortClass,
}

/// Who listens where, on addresses that several pods share.
pub type Listeners = BTreeMap<(IpAddr, u16), Listener>;

/// Remembers a listener; of two for one place the later one is believed, of a full list nothing is forgotten.
pub fn listen(listeners: &mut Listeners, place: (IpAddr, u16), listener: Listener) {
    let full = listeners.len() >= MAX_LISTENERS;
    match listeners.entry(place) {
        Entry::Occupied(mut known) => *known.get_mut() = (*known.get()).max(listener),
        Entry::Vacant(_) if full => {}
        Entry::Vacant(free) => {
            free.insert(listener);
        }
    }
}

impl PairWindow {
    /// What connections to this port of `peer` carried.
    pub fn traffic(&mut self, peer: Peer, port: u16) -> &mut Traffic {
        let by_port = self.traffic.get_or_insert_default();
        let alone = matches!(peer, Peer::SharedAddress(_))
            && (by_port.len() < MAX_PORTS || by_port.contains_key(&port));
        by_port.entry(if alone { port } else { 0 }).or_default()
    }

    /// The entry for a port.
    pub fn port(&mut self, port: u16) -> &mut PortWindow {
        let port = match self.ports.binary_search_by_key(&port, |(p, _)| *p) {
            Err(_) if self.ports.len() >= MAX_PORTS => 0,
            _ => port,
        };
        let at = match self.ports.binary_search_by_key(&port, |(p, _)| *p) {
            Ok(at) => at,
            Err(at) => {
                self.ports.insert(at, (port, PortWindow::default()));
                at
            }
        };
        &mut self.ports[at].1
    }
}

/// What a window counts besides its pairs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Counts {
    /// Events that fell into it.
    pub events: u64,
    /// Events known to be missing.
    pub lost: u64,
    /// Events not kept because a cap was reached.
    pub overflow: u64,
}

/// What one node saw through one source in one stretch of time.
#[derive(Clone, Debug, Default)]
pub struct Window {
    /// By pair.
    pub pairs: Pairs,
    /// Events whose job is known, but not the pod, by job.
    pub ambiguous: BTreeMap<JobIndex, u64>,
    /// Host-network pods that were seen to listen, or to accept connections.
    pub listeners: Listeners,
    /// What it counts.
    pub counts: Counts,
    /// First and last event.
    pub span: Option<Span>,
}

impl Window {
    /// An empty window that starts at `start`.
    #[must_use]
    pub fn starting(start: Timestamp) -> Self {
        Self { pairs: Pairs::starting(start), ..Self::default() }
    }

    /// The same without the pairs on which nothing failed, and without what anybody carried.
    #[must_use]
    pub fn only_failures(self) -> Self {
        Self { pairs: self.pairs.only_failures(), ..self }
    }

    /// Notes that something happened at `at`.
    pub fn touch(&mut self, at: Timestamp) {
        self.span = join(self.span, Some(Span::at(at)));
    }

    /// Of two looks at the same window: which is the later one? Later looks hold more.
    fn compare(&self, other: &Self) -> Ordering {
        let sorted = |window: &Self| {
            let mut pairs: Vec<_> = window.pairs.iter().map(|(k, v)| (k, v.into_owned())).collect();
            pairs.sort_unstable();
            pairs
        };
        let quick = self.counts.cmp(&other.counts).then_with(|| self.span.cmp(&other.span));
        quick
            .then_with(|| self.ambiguous.cmp(&other.ambiguous))
            .then_with(|| self.listeners.cmp(&other.listeners))
            .then_with(|| sorted(self).cmp(&sorted(other)))
    }
}

impl PartialEq for Window {
    fn eq(&self, other: &Self) -> bool {
        self.compare(other) == Ordering::Equal
    }
}

/// Windows of any number of nodes.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct WindowSet {
    windows: BTreeMap<WindowKey, Window>,
}

impl WindowSet {
    /// Adds a look at a window; of two looks at the same one the later one stays.
    pub fn insert(&mut self, key: WindowKey, window: Window) {
        match self.windows.entry(key) {
            Entry::Vacant(place) => {
                place.insert(window);
            }
            Entry::Occupied(mut place) => {
                if place.get().compare(&window) == Ordering::Less {
                    place.insert(window);
                }
            }
        }
    }

    /// Adds everything another set holds.
    pub fn merge(&mut self, other: Self) {
        for (key, window) in other.windows {
            self.insert(key, window);
        }
    }

    /// The windows, by start, observer and source.
    pub fn iter(&self) -> impl Iterator<Item = (&WindowKey, &Window)> {
        self.windows.iter()
    }
}

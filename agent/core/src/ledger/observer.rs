//! The nodes that report, and how far each one's clock has come. Every node has its own watermark, so that one
//! with a slow clock or nothing to tell holds nobody up, and an event from an impossible time is doubted before
//! it can make all others late.

use std::time::Duration;

use crate::attribute::{KernelSighting, Sighting};
use crate::inventory::{FastMap, JobNumbers, node_name};
use crate::observation::SourceKind;
use crate::time::Timestamp;

/// A node that reports, by the order of its first appearance.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ObserverId(pub u32);

impl ObserverId {
    /// Stands for "some node, not told which".
    pub const UNKNOWN: ObserverId = ObserverId(0);
}

/// More nodes than this in one ledger are not believed.
const MAX_OBSERVERS: usize = 65_536;
/// So many events wait while a node's jump in time is in doubt.
const MAX_HELD: usize = 64;
/// A jump is believed when this many events agree on it ...
const AGREEING: usize = 3;
/// ... over at least this long. A denial's two events alone do not make a second witness.
const AGREEING_OVER: Duration = Duration::from_secs(1);
/// A jump of more than this needs [`MAX_HELD`] witnesses: captures pause over days, clocks do not skip years.
const PLAUSIBLE_GAP: Duration = Duration::from_secs(366 * 24 * 3600);

/// Names of the nodes that report.
#[derive(Clone)]
pub struct Observers {
    names: Vec<Box<str>>,
    ids: FastMap<Box<str>, ObserverId>,
}

impl Default for Observers {
    fn default() -> Self {
        Self { names: vec!["".into()], ids: FastMap::default() }
    }
}

impl Observers {
    /// The id for a node's name as the source writes it; `None` when there are too many to believe.
    pub fn id(&mut self, observer: &str) -> Option<ObserverId> {
        let name = node_name(observer);
        if name.is_empty() {
            return Some(ObserverId::UNKNOWN);
        }
        if let Some(id) = self.ids.get(name) {
            return Some(*id);
        }
        let id = ObserverId(u32::try_from(self.names.len()).ok()?);
        if self.names.len() >= MAX_OBSERVERS {
            return None;
        }
        self.names.push(name.into());
        self.ids.insert(name.into(), id);
        Some(id)
    }

    /// The node's name; empty for [`ObserverId::UNKNOWN`].
    #[must_use]
    pub fn name(&self, id: ObserverId) -> &str {
        self.names.get(id.0 as usize).map_or("", |name| name)
    }

    /// The id of a node that has reported.
    #[must_use]
    pub fn known(&self, name: &str) -> Option<ObserverId> {
        self.ids.get(name).copied()
    }
}

/// An event on its way into a window.
#[derive(Clone)]
pub(super) enum Held {
    Sighting(Box<Sighting>),
    Kernel(Box<KernelSighting>),
    Nobodys { source: SourceKind, unresolved: bool },
}

type Events = Vec<(Timestamp, Held)>;

/// What to do with an event.
pub(super) enum Admission {
    /// Process these now (the event, and any that waited for it).
    Process(Events),
    /// It waits.
    Wait,
}

#[derive(Clone, Default)]
struct Clock {
    /// The newest believed time.
    high: Option<Timestamp>,
    held: Events,
}

impl Clock {
    fn held_span(&self) -> Option<(Timestamp, Timestamp)> {
        let times = || self.held.iter().map(|(at, _)| *at);
        Some((times().min()?, times().max()?))
    }
}

/// The clocks of all nodes.
#[derive(Clone)]
pub(super) struct Clocks {
    lateness: Duration,
    max_jump: Duration,
    clocks: FastMap<ObserverId, Clock>,
    high: Option<Timestamp>,
    rejected: u64,
    /// Recomputed only when the newest time has moved on by a step: closing windows is not urgent.
    last_close: Option<Timestamp>,
}

impl Clocks {
    pub(super) fn new(lateness: Duration, max_jump: Duration) -> Self {
        let clocks = FastMap::default();
        Self { lateness, max_jump, clocks, high: None, rejected: 0, last_close: None }
    }

    /// Decides whether the time of an event can be believed.
    pub(super) fn admit(&mut self, observer: ObserverId, at: Timestamp, event: Held) -> Admission {
        let reference = self.high;
        let clock = self.clocks.entry(observer).or_default();
        let anchor = clock.high.or(reference);
        let believable = anchor.is_some_and(|anchor| at <= anchor.plus(self.max_jump));
        if believable {
            // Whatever waited is judged by this event's time: near it, or from an impossible one.
            let limit = anchor.map_or(at, |anchor| anchor.max(at)).plus(self.max_jump);
            let (mut events, wild): (Events, Events) =
                std::mem::take(&mut clock.held).into_iter().partition(|(held, _)| *held <= limit);
            self.rejected += wild.len() as u64;
            events.push((at, event));
            self.believe(observer, at);
            return Admission::Process(events);
        }
        let Some((held_first, held_last)) = clock.held_span() else {
            clock.held.push((at, event));
            return Admission::Wait;
        };
        if at.plus(self.lateness) < held_first && anchor.is_none() {
            // The first one was ahead of its time, or this one is behind it: the next one will tell.
            self.rejected += std::mem::take(&mut clock.held).len() as u64;
            clock.held.push((at, event));
            return Admission::Wait;
        }
        if at > held_last.plus(self.max_jump) {
            let mut before = std::mem::take(&mut clock.held);
            clock.held.push((at, event));
            if anchor.is_none() && at.since(held_last) <= PLAUSIBLE_GAP {
                before.sort_by_key(|(at, _)| *at);
                self.believe(observer, held_last);
                return Admission::Process(before);
            }
            self.rejected += before.len() as u64;
            return Admission::Wait;
        }
        clock.held.push((at, event));
        let (first, last) = (held_first.min(at), held_last.max(at));
        let wild = anchor.is_some_and(|anchor| first.since(anchor) > PLAUSIBLE_GAP);
        let needed = if wild { MAX_HELD } else { AGREEING };
        if clock.held.len() >= MAX_HELD || (clock.held.len() >= needed && last.since(first) >= AGREEING_OVER)
        {
            let events = std::mem::take(&mut clock.held);
            self.believe(observer, last);
            return Admission::Process(events);
        }
        Admission::Wait
    }

    fn believe(&mut self, observer: ObserverId, at: Timestamp) {
        let clock = self.clocks.entry(observer).or_default();
        clock.high = clock.high.max(Some(at));
        self.high = self.high.max(Some(at));
    }

    /// A time that was told about a node, but by itself proves nothing about its clock: gives back a time that
    /// can be believed.
    pub(super) fn notice(&mut self, observer: ObserverId, at: Timestamp) -> Timestamp {
        match self.high {
            Some(high) if at > high.plus(self.max_jump) => high,
            Some(_) => {
                self.believe(observer, at);
                at
            }
            None => at,
        }
    }

    /// Whether an event of this node at this time comes too late.
    pub(super) fn is_late(&self, observer: ObserverId, at: Timestamp) -> bool {
        let high = self.clocks.get(&observer).and_then(|clock| clock.high);
        high.is_some_and(|high| at < high.minus(self.lateness))
    }

    /// Every window that ends by this time can be closed: no node that still reports may add to it. A node that
    /// has fallen silent holds nothing up for longer than twice the lateness.
    pub(super) fn closed_until(&mut self, step: Duration) -> Option<Timestamp> {
        let high = self.high?;
        if self.last_close.is_some_and(|last| high < last.plus(step)) {
            return None;
        }
        self.last_close = Some(high);
        let idle = high.minus(self.lateness * 2);
        let slowest = self.clocks.values().filter_map(|clock| clock.high).map(|high| high.max(idle)).min()?;
        Some(slowest.minus(self.lateness).floor_to(step))
    }

    /// How many events were found to come from an impossible time since the last call.
    pub(super) fn take_rejected(&mut self) -> u64 {
        std::mem::take(&mut self.rejected)
    }

    /// The newest believed time of all nodes.
    pub(super) fn newest(&self) -> Option<Timestamp> {
        self.high
    }

    /// Jobs got other numbers. An event of a job that is no more is nobody's.
    pub(super) fn renumber_jobs(&mut self, jobs: &JobNumbers) {
        for (_, event) in self.clocks.values_mut().flat_map(|clock| &mut clock.held) {
            let (job, source) = match event {
                Held::Sighting(sighting) => (&mut sighting.job, sighting.source),
                Held::Kernel(sighting) => (&mut sighting.job, sighting.source),
                Held::Nobodys { .. } => continue,
            };
            match jobs.get(*job) {
                Some(renumbered) => *job = renumbered,
                None => *event = Held::Nobodys { source, unresolved: true },
            }
        }
    }

    /// Whether any event waits for its node's clock to be believed.
    pub(super) fn is_waiting(&self) -> bool {
        self.clocks.values().any(|clock| !clock.held.is_empty())
    }

    /// Decides on everything that still waits.
    pub(super) fn finish(&mut self) -> Vec<(ObserverId, Events)> {
        let mut waiting: Vec<ObserverId> =
            self.clocks.iter().filter(|(_, clock)| !clock.held.is_empty()).map(|(id, _)| *id).collect();
        waiting.sort_unstable();
        let mut settled = Vec::new();
        for observer in waiting {
            let reference = self.high;
            let Some(clock) = self.clocks.get_mut(&observer) else { continue };
            let Some((first, last)) = clock.held_span() else { continue };
            let events = std::mem::take(&mut clock.held);
            let gap = clock.high.or(reference).map_or(Duration::ZERO, |anchor| first.since(anchor));
            if gap > PLAUSIBLE_GAP {
                self.rejected += events.len() as u64;
            } else {
                self.believe(observer, last);
                settled.push((observer, events));
            }
        }
        settled
    }
}

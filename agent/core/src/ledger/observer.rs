//! The nodes that report, and how far each one's clock has come. Every node has its own watermark, so that one
//! with a slow clock or nothing to tell holds nobody up, and an event from an impossible time is doubted before
//! it can make all others late.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::attribute::{KernelSighting, Sighting};
use crate::inventory::{FastMap, JobNumbers, node_name};
use crate::observation::SourceKind;
use crate::settings::Settings;
use crate::time::Timestamp;

/// A node that reports, by the order of its first appearance.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ObserverId(pub u32);

impl ObserverId {
    /// Stands for "some node, not told which".
    pub const UNKNOWN: ObserverId = ObserverId(0);
}

/// More nodes than this in one ledger are not believed: each has clocks and windows of its own. Kubernetes supports 5,000.
pub(super) const MAX_OBSERVERS: usize = 8_192;
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
    /// Numbers of nodes that are forgotten.
    free: Vec<ObserverId>,
}

impl Default for Observers {
    fn default() -> Self {
        Self { names: vec!["".into()], ids: FastMap::default(), free: Vec::new() }
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
        if let Some(id) = self.free.pop()
            && let Some(place) = self.names.get_mut(id.0 as usize)
        {
            *place = name.into();
            self.ids.insert(name.into(), id);
            return Some(id);
        }
        let id = ObserverId(u32::try_from(self.names.len()).ok()?);
        if self.names.len() >= MAX_OBSERVERS {
            return None;
        }
        self.names.push(name.into());
        self.ids.insert(name.into(), id);
        Some(id)
    }

    /// Forgets all nodes but these. Their numbers may be those of other nodes later.
    pub(super) fn keep(&mut self, known: &BTreeSet<ObserverId>) {
        let free = &mut self.free;
        self.ids.retain(|_, id| {
            let keep = known.contains(id);
            if !keep {
                free.push(*id);
            }
            keep
        });
        // The lowest is taken first, whatever the order of the map.
        free.sort_unstable_by_key(|id| std::cmp::Reverse(*id));
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
    Sighting(Sighting),
    Kernel(KernelSighting),
    Nobodys { source: SourceKind, unresolved: bool },
}

impl Held {
    /// Through which kind of source it came.
    pub(super) fn source(&self) -> SourceKind {
        match self {
            Self::Sighting(sighting) => sighting.source,
            Self::Kernel(sighting) => sighting.source,
            Self::Nobodys { source, .. } => *source,
        }
    }
}

type Events = Vec<(Timestamp, Held)>;

/// Whether an event came before its window may have been closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Timeliness {
    InTime,
    Late,
}

/// What to do with an event.
pub(super) enum Admission {
    /// Process this one now: nothing waited for it.
    Now(Held, Timeliness),
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

/// Whose clock: a node's, or a node's as one kind of source tells it.
type Teller = (ObserverId, Option<SourceKind>);

/// The clocks of all nodes.
#[derive(Clone)]
pub(super) struct Clocks {
    lateness: Duration,
    lateness_of: BTreeMap<SourceKind, Duration>,
    max_jump: Duration,
    clocks: FastMap<Teller, Clock>,
    high: Option<Timestamp>,
    /// Nothing later than this is believed.
    ceiling: Option<Timestamp>,
    rejected: [u64; SourceKind::ALL.len()],
    /// Recomputed only when the newest time has moved on by a step: closing windows is not urgent.
    last_close: Option<Timestamp>,
}

impl Clocks {
    pub(super) fn new(settings: &Settings) -> Self {
        let clocks = FastMap::default();
        let (lateness, lateness_of) = (settings.lateness, settings.lateness_of.clone());
        Self {
            lateness,
            lateness_of,
            max_jump: settings.max_jump,
            clocks,
            high: None,
            ceiling: None,
            rejected: Default::default(),
            last_close: None,
        }
    }

    fn teller(&self, observer: ObserverId, source: SourceKind) -> Teller {
        (observer, Some(source).filter(|_| !self.lateness_of.is_empty()))
    }

    fn lateness(&self, (_, source): Teller) -> Duration {
        source.and_then(|source| self.lateness_of.get(&source)).copied().unwrap_or(self.lateness)
    }

    /// Decides whether the time of an event can be believed.
    pub(super) fn admit(&mut self, observer: ObserverId, at: Timestamp, event: Held) -> Admission {
        if self.ceiling.is_some_and(|ceiling| at > ceiling) {
            self.reject(&[(at, event)]);
            return Admission::Process(Vec::new());
        }
        let reference = self.high;
        let teller = self.teller(observer, event.source());
        let lateness = self.lateness(teller);
        let clock = self.clocks.entry(teller).or_default();
        let anchor = clock.high.or(reference);
        let believable = anchor.is_some_and(|anchor| at <= anchor.plus(self.max_jump));
        if believable && clock.held.is_empty() {
            let high = clock.high.map_or(at, |high| high.max(at));
            clock.high = Some(high);
            self.high = self.high.max(Some(high));
            let late = at < high.minus(lateness);
            return Admission::Now(event, if late { Timeliness::Late } else { Timeliness::InTime });
        }
        if believable {
            // Whatever waited is judged by this event's time: near it, or from an impossible one.
            let limit = anchor.map_or(at, |anchor| anchor.max(at)).plus(self.max_jump);
            let (mut events, wild): (Events, Events) =
                std::mem::take(&mut clock.held).into_iter().partition(|(held, _)| *held <= limit);
            self.reject(&wild);
            events.push((at, event));
            self.believe(teller, at);
            return Admission::Process(events);
        }
        let Some((held_first, held_last)) = clock.held_span() else {
            clock.held.push((at, event));
            return Admission::Wait;
        };
        if at.plus(lateness) < held_first && anchor.is_none() {
            // The first one was ahead of its time, or this one is behind it: the next one will tell.
            let before = std::mem::replace(&mut clock.held, vec![(at, event)]);
            self.reject(&before);
            return Admission::Wait;
        }
        if at > held_last.plus(self.max_jump) {
            let mut before = std::mem::take(&mut clock.held);
            clock.held.push((at, event));
            if anchor.is_none() && at.since(held_last) <= PLAUSIBLE_GAP {
                before.sort_by_key(|(at, _)| *at);
                self.believe(teller, held_last);
                return Admission::Process(before);
            }
            self.reject(&before);
            return Admission::Wait;
        }
        clock.held.push((at, event));
        let (first, last) = (held_first.min(at), held_last.max(at));
        let wild = anchor.is_some_and(|anchor| first.since(anchor) > PLAUSIBLE_GAP);
        let needed = if wild { MAX_HELD } else { AGREEING };
        if clock.held.len() >= MAX_HELD || (clock.held.len() >= needed && last.since(first) >= AGREEING_OVER)
        {
            let events = std::mem::take(&mut clock.held);
            self.believe(teller, last);
            return Admission::Process(events);
        }
        Admission::Wait
    }

    /// Nothing later than this is believed from now on.
    pub(super) fn set_ceiling(&mut self, ceiling: Timestamp) {
        self.ceiling = Some(ceiling);
    }

    fn believe(&mut self, teller: Teller, at: Timestamp) {
        let clock = self.clocks.entry(teller).or_default();
        clock.high = clock.high.max(Some(at));
        self.high = self.high.max(Some(at));
    }

    /// A time that was told about a node, but by itself proves nothing about its clock: gives back a time that
    /// can be believed.
    pub(super) fn notice(&mut self, observer: ObserverId, source: SourceKind, at: Timestamp) -> Timestamp {
        match self.high {
            Some(high) if at > high.plus(self.max_jump) => high,
            Some(_) => {
                self.believe(self.teller(observer, source), at);
                at
            }
            None => at,
        }
    }

    /// Every window that ends by this time can be closed: no node that still reports may add to it. A node that
    /// has fallen silent holds nothing up for longer than twice the lateness.
    pub(super) fn closed_until(&mut self, step: Duration) -> Option<Timestamp> {
        let high = self.high?;
        if self.last_close.is_some_and(|last| high < last.plus(step)) {
            return None;
        }
        self.last_close = Some(high);
        let known =
            self.clocks.iter().filter_map(|(teller, clock)| Some((self.lateness(*teller), clock.high?)));
        let until = known.map(|(lateness, own)| own.max(high.minus(lateness * 2)).minus(lateness)).min()?;
        Some(until.floor_to(step))
    }

    /// Where nothing newer is known for long, every window that ends by this time can be closed at `at`, as if a node
    /// had told something then. `None`: something was told of late, and closes windows by itself.
    pub(super) fn idle_until(&self, at: Timestamp, step: Duration) -> Option<Timestamp> {
        let longest = self.clocks.keys().map(|teller| self.lateness(*teller)).max()?;
        let until = at.minus(longest * 3).floor_to(step);
        (self.high? < until).then_some(until)
    }

    /// Forgets nodes that told nothing since, and gives back those that are left.
    pub(super) fn forget_before(&mut self, since: Timestamp) -> BTreeSet<ObserverId> {
        self.clocks.retain(|_, clock| !clock.held.is_empty() || clock.high >= Some(since));
        self.clocks.keys().map(|(observer, _)| *observer).collect()
    }

    /// How many events were found to come from an impossible time since the last call.
    pub(super) fn take_rejected(&mut self, source: SourceKind) -> u64 {
        std::mem::take(&mut self.rejected[source as usize])
    }

    fn reject(&mut self, events: &[(Timestamp, Held)]) {
        for (_, event) in events {
            self.rejected[event.source() as usize] += 1;
        }
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
        let mut waiting: Vec<Teller> =
            self.clocks.iter().filter(|(_, clock)| !clock.held.is_empty()).map(|(id, _)| *id).collect();
        waiting.sort_unstable();
        let mut settled = Vec::new();
        for teller in waiting {
            let reference = self.high;
            let Some(clock) = self.clocks.get_mut(&teller) else { continue };
            let Some((first, last)) = clock.held_span() else { continue };
            let events = std::mem::take(&mut clock.held);
            let gap = clock.high.or(reference).map_or(Duration::ZERO, |anchor| first.since(anchor));
            if gap > PLAUSIBLE_GAP {
                self.reject(&events);
            } else {
                self.believe(teller, last);
                settled.push((teller.0, events));
            }
        }
        settled
    }
}

//! What happened between whom, per window of event time. Enters: sightings, losses and the counts of events
//! that are nobody's; leaves: closed windows, in order. Windows are keyed by (start, observer node, source),
//! so that windows of several nodes merge without counting anything twice. Must not know thresholds.

mod account;
mod handshake;
mod kernel;
mod named;
mod observer;
mod pairs;
mod recent;
pub mod rtt;
#[cfg(test)]
mod tests;
pub mod traffic;
pub mod window;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::attribute::{KernelSighting, Peer, Sighting};
use crate::inventory::{JobIndex, JobNumbers, PodId};
use crate::observation::{Carried, Drops, Flow, Loss, SocketEvent, SourceKind};
use crate::settings::Settings;
use crate::time::Timestamp;

pub use account::{Account, Accounts, Totals};
use handshake::Handshakes;
use kernel::Kernel;
pub use named::{MAX_NAMED, Named};
use observer::{Admission, Clocks, Held, Timeliness};
pub use observer::{ObserverId, Observers};
pub use pairs::Pairs;
use recent::Recent;
pub use rtt::RttSketch;
pub use traffic::{Traffic, way_of};
pub use window::{Counts, PairKey, PairWindow, PortClass, Window, WindowKey, WindowSet};

/// What a connection carried between a job's pod and another end, as the pod's own socket told it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Carrying {
    /// The job.
    pub job: JobIndex,
    /// The pod whose socket told it.
    pub pod: PodId,
    /// The other end.
    pub peer: Peer,
    /// What.
    pub carried: Carried,
}

/// The windows that are still open, and what it takes to fill them.
pub struct Ledger {
    settings: Settings,
    observers: Observers,
    clocks: Clocks,
    recent: Recent,
    handshakes: Handshakes,
    kernel: Kernel,
    open: BTreeMap<WindowKey, Window>,
    /// Everything that starts before this is closed.
    closed_until: Timestamp,
    accounts: Accounts,
    carried: Vec<Carrying>,
    ready: Vec<(WindowKey, Window)>,
}

impl Ledger {
    /// An empty ledger.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            clocks: Clocks::new(&settings),
            handshakes: Handshakes::new(settings.max_handshakes),
            kernel: Kernel::new(settings.max_handshakes, settings.horizon.is_some()),
            recent: Recent::default(),
            observers: Observers::default(),
            open: BTreeMap::new(),
            closed_until: Timestamp::MIN,
            accounts: Accounts::default(),
            carried: Vec::new(),
            ready: Vec::new(),
            settings,
        }
    }

    /// Counts an event that could not be read.
    pub fn reject(&mut self, source: SourceKind) {
        let totals = self.accounts.count(source);
        totals.received += 1;
        totals.rejected += 1;
    }

    /// Takes an event. `concerns` is asked only when the event is new: `Ok` with whom it concerns, or `Err`
    /// with whether an end was missing from the inventory.
    pub fn flow(&mut self, flow: &Flow<'_>, concerns: impl FnOnce() -> Result<Sighting, bool>) {
        let known = self.recent.seen(flow);
        self.take(known, flow.observer, flow.at, flow.source, || Ok(Held::Sighting(concerns()?)));
    }

    /// Takes a socket's step, like [`Ledger::flow`].
    pub fn socket(
        &mut self,
        event: &SocketEvent<'_>,
        concerns: impl FnOnce() -> Result<KernelSighting, bool>,
    ) {
        let known = self.recent.seen_step(event);
        self.take(known, event.observer, event.at, event.source, || Ok(Held::Kernel(concerns()?)));
    }

    /// Takes drops in aggregate, like [`Ledger::flow`]: one event, however many packets.
    pub fn drops(&mut self, drops: &Drops<'_>, concerns: impl FnOnce() -> Result<KernelSighting, bool>) {
        let known = self.recent.seen_drops(drops);
        self.take(known, drops.observer, drops.last, drops.source, || Ok(Held::Kernel(concerns()?)));
    }

    fn take(
        &mut self,
        known: bool,
        observer: &str,
        at: Timestamp,
        source: SourceKind,
        concerns: impl FnOnce() -> Result<Held, bool>,
    ) {
        let totals = self.accounts.count(source);
        totals.received += 1;
        if known {
            totals.duplicate += 1;
            return;
        }
        let Some(observer) = self.observers.id(observer) else {
            totals.rejected += 1;
            return;
        };
        let event = concerns().unwrap_or_else(|unresolved| Held::Nobodys { source, unresolved });
        match self.clocks.admit(observer, at, event) {
            Admission::Now(event, timeliness) => {
                self.enter(observer, at, event, timeliness);
                self.close_what_is_due();
                return;
            }
            Admission::Process(events) => {
                // They came in time, and waited for their clock to be believed.
                for (at, event) in events {
                    self.enter(observer, at, event, Timeliness::InTime);
                }
                self.close_what_is_due();
            }
            Admission::Wait => {}
        }
        self.settle_rejections();
    }

    /// Takes note of lost events. Their time moves no clock: a loss may be told long after it happened.
    pub fn lost(&mut self, loss: &Loss<'_>) {
        // Without a time, two messages that look alike need not be the same one.
        if loss.at.is_some() && self.recent.seen_loss(loss) {
            return;
        }
        let Loss { at, observer, source, count, cause } = *loss;
        self.accounts.lost(source, cause, count);
        let id = match observer {
            Some(name) => self.observers.id(name).unwrap_or(ObserverId::UNKNOWN),
            None => ObserverId::UNKNOWN,
        };
        let at = at.map(|at| self.clocks.notice(id, source, at));
        // One without a time goes into the oldest window: it may have happened at any time.
        let from = at.map_or(self.closed_until, |at| at.max(self.closed_until));
        let start = from.floor_to(self.settings.window).max(self.closed_until);
        let window = self
            .open
            .entry(WindowKey { start, observer: id, source })
            .or_insert_with(|| Window::starting(start));
        window.counts.lost = window.counts.lost.saturating_add(count);
        if let Some(at) = at {
            window.touch(at);
        }
    }

    fn enter(&mut self, observer: ObserverId, at: Timestamp, event: Held, timeliness: Timeliness) {
        let start = at.floor_to(self.settings.window);
        let source = event.source();
        self.accounts.saw(source, at);
        let totals = self.accounts.count(source);
        if timeliness == Timeliness::Late || start < self.closed_until {
            totals.late += 1;
            return;
        }
        let window =
            self.open.entry(WindowKey { start, observer, source }).or_insert_with(|| Window::starting(start));
        window.touch(at);
        window.counts.events += 1;
        let (job, ambiguous) = match &event {
            Held::Sighting(sighting) => (sighting.job, sighting.ambiguous),
            Held::Kernel(sighting) => (sighting.job, sighting.ambiguous),
            Held::Nobodys { unresolved, .. } => {
                totals.not_a_job += 1;
                totals.unresolved += u64::from(*unresolved);
                return;
            }
        };
        totals.attributed += 1;
        if ambiguous {
            totals.ambiguous += 1;
            *window.ambiguous.entry(job).or_default() += 1;
        }
        let room = self.settings.max_pairs;
        let kept = match event {
            Held::Sighting(sighting) => self.handshakes.follow(observer, &sighting, window, room),
            Held::Kernel(sighting) => {
                self.carried.extend(kernel::carrying(&sighting));
                self.kernel.follow(observer, &sighting, window, room)
            }
            Held::Nobodys { .. } => true,
        };
        if !kept {
            totals.overflow += 1;
            window.counts.overflow += 1;
        }
    }

    fn settle_rejections(&mut self) {
        for source in SourceKind::ALL {
            let rejected = self.clocks.take_rejected(source);
            let totals = self.accounts.count(source);
            totals.rejected += rejected;
            totals.far_future += rejected;
        }
    }

    fn close_what_is_due(&mut self) {
        let Some(until) = self.clocks.closed_until(self.settings.window) else { return };
        if until > self.closed_until {
            self.close_before(until);
        }
    }

    /// Nothing later than this is believed from now on.
    pub fn set_ceiling(&mut self, ceiling: Timestamp) {
        self.clocks.set_ceiling(ceiling);
    }

    /// Time passes: where nothing is told any more, what is open closes.
    pub fn pass(&mut self, at: Timestamp) {
        let until = self.clocks.idle_until(at, self.settings.window);
        if let Some(until) = until.filter(|until| *until > self.closed_until) {
            self.close_before(until);
        }
    }

    fn close_before(&mut self, until: Timestamp) {
        self.closed_until = until;
        while let Some(entry) = self.open.first_entry() {
            if entry.key().start >= until {
                break;
            }
            let (key, window) = entry.remove_entry();
            self.ready.push((key, window));
        }
    }

    /// The windows closed since the last call, by start.
    pub fn take_closed(&mut self) -> Vec<(WindowKey, Window)> {
        std::mem::take(&mut self.ready)
    }

    /// No more events will come: decides what was in doubt and closes everything.
    pub fn finish(&mut self) {
        self.settle();
        if let Some(last) = self.open.keys().next_back().map(|key| key.start) {
            self.close_before(last.plus(self.settings.window).max(last.plus(Duration::from_nanos(1))));
        }
    }

    fn settle(&mut self) {
        for (observer, events) in self.clocks.finish() {
            for (at, event) in events {
                self.enter(observer, at, event, Timeliness::InTime);
            }
        }
        self.settle_rejections();
    }

    /// A copy in which what is in doubt is decided as [`Ledger::finish`] would now, for a look; the next event may
    /// decide otherwise. `None`: nothing is in doubt, look at this one.
    #[must_use]
    pub fn settled(&self) -> Option<Self> {
        if !self.clocks.is_waiting() {
            return None;
        }
        let mut copy = Self {
            settings: self.settings.clone(),
            observers: self.observers.clone(),
            clocks: self.clocks.clone(),
            // Nothing enters the copy from outside.
            recent: Recent::default(),
            handshakes: self.handshakes.clone(),
            kernel: self.kernel.clone(),
            open: self.open.clone(),
            closed_until: self.closed_until,
            accounts: self.accounts.clone(),
            carried: Vec::new(),
            ready: self.ready.clone(),
        };
        copy.settle();
        Some(copy)
    }

    /// Forgets nodes that told nothing since `since`, unless `keep` says otherwise.
    pub fn forget_before(&mut self, since: Timestamp, keep: impl Iterator<Item = ObserverId>) {
        let mut known = self.clocks.forget_before(since);
        known.extend(self.open.keys().chain(self.ready.iter().map(|(key, _)| key)).map(|key| key.observer));
        known.extend(keep);
        self.observers.keep(&known);
    }

    /// The windows that are still open, for a look before they close.
    #[must_use]
    pub fn open_windows(&self) -> &BTreeMap<WindowKey, Window> {
        &self.open
    }

    /// The newest time that is believed.
    #[must_use]
    pub fn now(&self) -> Option<Timestamp> {
        self.clocks.newest()
    }

    /// Jobs got other numbers.
    pub fn renumber_jobs(&mut self, jobs: &JobNumbers) {
        for window in self.open.values_mut().chain(self.ready.iter_mut().map(|(_, window)| window)) {
            window.ambiguous = jobs.renumber(&window.ambiguous);
        }
        self.clocks.renumber_jobs(jobs);
    }

    /// What became of everything that entered so far.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.accounts.totals()
    }

    /// The same by source.
    #[must_use]
    pub fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// What pairs carried since the last call, of which it is told at once: where there is a horizon.
    pub fn take_told(&mut self) -> impl Iterator<Item = (PairKey, u16, Traffic)> {
        self.kernel.take_told()
    }

    /// What connections carried of which was told since the last call.
    pub fn take_carried(&mut self) -> impl Iterator<Item = Carrying> {
        self.carried.drain(..)
    }

    /// The nodes that reported.
    #[must_use]
    pub fn observers(&self) -> &Observers {
        &self.observers
    }
}

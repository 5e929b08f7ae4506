//! What happened between whom, per window of event time. Enters: sightings, losses and the counts of events
//! that are nobody's; leaves: closed windows, in order. Windows are keyed by (start, observer node, source),
//! so that windows of several nodes merge without counting anything twice. Must not know thresholds.

mod handshake;
mod kernel;
mod observer;
mod recent;
pub mod rtt;
#[cfg(test)]
mod tests;
pub mod traffic;
pub mod window;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::attribute::{KernelSighting, Sighting};
use crate::inventory::JobNumbers;
use crate::observation::{Drops, Flow, Loss, SocketEvent, SourceKind};
use crate::settings::Settings;
use crate::time::Timestamp;

use handshake::Handshakes;
use kernel::Kernel;
use observer::{Admission, Clocks, Held};
pub use observer::{ObserverId, Observers};
use recent::Recent;
pub use rtt::RttSketch;
pub use traffic::Traffic;
pub use window::{Counts, PairKey, PairWindow, PortClass, Window, WindowKey, WindowSet};

/// Counts of everything that entered, by what became of it.
/// `received = attributed + not_a_job + rejected + late + duplicate`, always.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Flow events that entered, readable or not.
    pub received: u64,
    /// Concern a job.
    pub attributed: u64,
    /// Concern no job.
    pub not_a_job: u64,
    /// Unreadable, or from an impossible time.
    pub rejected: u64,
    /// Came after their window was closed.
    pub late: u64,
    /// Told before.
    pub duplicate: u64,
    /// Of those that concern no job: an end was not in the inventory.
    pub unresolved: u64,
    /// Of the attributed ones: the job is known, but not which of its pods.
    pub ambiguous: u64,
    /// Of the rejected ones: the time lies impossibly far ahead.
    pub far_future: u64,
    /// Attributed, but not kept because a cap was reached.
    pub overflow: u64,
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
    pairs_open: usize,
    totals: Totals,
    ready: Vec<(WindowKey, Window)>,
}

impl Ledger {
    /// An empty ledger.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            clocks: Clocks::new(settings.lateness, settings.max_jump),
            handshakes: Handshakes::new(settings.max_handshakes),
            kernel: Kernel::new(settings.max_handshakes),
            recent: Recent::default(),
            observers: Observers::default(),
            open: BTreeMap::new(),
            closed_until: Timestamp::MIN,
            pairs_open: 0,
            totals: Totals::default(),
            ready: Vec::new(),
            settings,
        }
    }

    /// Counts an event that could not be read.
    pub fn reject(&mut self) {
        self.totals.received += 1;
        self.totals.rejected += 1;
    }

    /// Takes an event. `concerns` is asked only when the event is new: `Ok` with whom it concerns, or `Err`
    /// with whether an end was missing from the inventory.
    pub fn flow(&mut self, flow: &Flow<'_>, concerns: impl FnOnce() -> Result<Sighting, bool>) {
        let known = self.recent.seen(flow);
        self.take(known, flow.observer, flow.at, flow.source, || Ok(Held::Sighting(Box::new(concerns()?))));
    }

    /// Takes a socket's step, like [`Ledger::flow`].
    pub fn socket(
        &mut self,
        event: &SocketEvent<'_>,
        concerns: impl FnOnce() -> Result<KernelSighting, bool>,
    ) {
        let known = self.recent.seen_step(event);
        self.take(known, event.observer, event.at, event.source, || Ok(Held::Kernel(Box::new(concerns()?))));
    }

    /// Takes drops in aggregate, like [`Ledger::flow`]: one event, however many packets.
    pub fn drops(&mut self, drops: &Drops<'_>, concerns: impl FnOnce() -> Result<KernelSighting, bool>) {
        let known = self.recent.seen_drops(drops);
        self.take(known, drops.observer, drops.last, drops.source, || {
            Ok(Held::Kernel(Box::new(concerns()?)))
        });
    }

    fn take(
        &mut self,
        known: bool,
        observer: &str,
        at: Timestamp,
        source: SourceKind,
        concerns: impl FnOnce() -> Result<Held, bool>,
    ) {
        self.totals.received += 1;
        if known {
            self.totals.duplicate += 1;
            return;
        }
        let Some(observer) = self.observers.id(observer) else {
            self.totals.rejected += 1;
            return;
        };
        let held = concerns().unwrap_or_else(|unresolved| Held::Nobodys { source, unresolved });
        match self.clocks.admit(observer, at, held) {
            Admission::Process(events) => {
                for (at, event) in events {
                    self.enter(observer, at, event);
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
        let Loss { at, observer, source, count, .. } = *loss;
        let id = match observer {
            Some(name) => self.observers.id(name).unwrap_or(ObserverId::UNKNOWN),
            None => ObserverId::UNKNOWN,
        };
        let at = at.map(|at| self.clocks.notice(id, at));
        // One without a time goes into the oldest window: it may have happened at any time.
        let from = at.map_or(self.closed_until, |at| at.max(self.closed_until));
        let start = from.floor_to(self.settings.window).max(self.closed_until);
        let window = self.open.entry(WindowKey { start, observer: id, source }).or_default();
        window.counts.lost = window.counts.lost.saturating_add(count);
        if let Some(at) = at {
            window.touch(at);
        }
    }

    fn enter(&mut self, observer: ObserverId, at: Timestamp, event: Held) {
        let start = at.floor_to(self.settings.window);
        if start < self.closed_until || self.clocks.is_late(observer, at) {
            self.totals.late += 1;
            return;
        }
        let source = match &event {
            Held::Sighting(sighting) => sighting.source,
            Held::Kernel(sighting) => sighting.source,
            Held::Nobodys { source, .. } => *source,
        };
        let window = self.open.entry(WindowKey { start, observer, source }).or_default();
        window.touch(at);
        window.counts.events += 1;
        let (job, ambiguous) = match &event {
            Held::Sighting(sighting) => (sighting.job, sighting.ambiguous),
            Held::Kernel(sighting) => (sighting.job, sighting.ambiguous),
            Held::Nobodys { unresolved, .. } => {
                self.totals.not_a_job += 1;
                self.totals.unresolved += u64::from(*unresolved);
                return;
            }
        };
        self.totals.attributed += 1;
        if ambiguous {
            self.totals.ambiguous += 1;
            *window.ambiguous.entry(job).or_default() += 1;
        }
        let before = window.pairs.len();
        let room = before + self.settings.max_pairs.saturating_sub(self.pairs_open);
        let kept = match event {
            Held::Sighting(sighting) => self.handshakes.follow(observer, *sighting, window, room),
            Held::Kernel(sighting) => self.kernel.follow(observer, &sighting, window, room),
            Held::Nobodys { .. } => true,
        };
        if !kept {
            self.totals.overflow += 1;
            window.counts.overflow += 1;
        }
        self.pairs_open += window.pairs.len() - before;
    }

    fn settle_rejections(&mut self) {
        let rejected = self.clocks.take_rejected();
        self.totals.rejected += rejected;
        self.totals.far_future += rejected;
    }

    fn close_what_is_due(&mut self) {
        let Some(until) = self.clocks.closed_until(self.settings.window) else { return };
        if until > self.closed_until {
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
            self.pairs_open -= window.pairs.len();
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
                self.enter(observer, at, event);
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
            pairs_open: self.pairs_open,
            totals: self.totals,
            ready: self.ready.clone(),
        };
        copy.settle();
        Some(copy)
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
        self.totals
    }

    /// The nodes that reported.
    #[must_use]
    pub fn observers(&self) -> &Observers {
        &self.observers
    }
}

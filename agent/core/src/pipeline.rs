//! From observations to a report, in one direction. Enters: observations in about the order of their time;
//! leaves: a report. The same for a replay and a live agent; only the sources differ.

mod blind;
mod look;
mod unresolved;
pub mod windows;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

pub use blind::Blind;
pub use unresolved::Unresolved;

use crate::attribute::{self, NobodysBecause};
use crate::diagnose::{Evidence, diagnose};
use crate::gpu::Readings;
use crate::history::{History, Stories, Whereabouts};
use crate::inventory::{Inventory, PodId, Renewal};
use crate::ledger::window::Denied;
use crate::ledger::{Accounts, Ledger, Observers, PairKey, Traffic, Window, WindowKey};
use crate::membership::{Grouping, JobId};
use crate::object::Object;
use crate::observation::{Direction, Drops, Flow, Observation, SocketEvent, SourceKind};
use crate::policy::PolicySet;
use crate::report::Report;
use crate::settings::Settings;
use crate::strangers::Strangers;
use crate::tally::{JobTally, Tallies};
use crate::time::Timestamp;

use look::Looks;
use unresolved::Lookups;

/// Takes observations, gives a report.
pub struct Pipeline {
    inventory: Inventory,
    settings: Settings,
    ledger: Ledger,
    history: History,
    readings: Readings,
    strangers: Strangers,
    blind: Blind,
    /// Whether each kind of source is up, where somebody told, and since when.
    sources: BTreeMap<SourceKind, SourceState>,
    tallies: Tallies,
    lookups: Lookups,
    looks: Looks,
    /// The time, where somebody told that it passes.
    passed: Option<Timestamp>,
    /// How far ahead of that time an event may lie; `None`: no further than other events let it.
    ahead: Option<Duration>,
    /// What failed in windows that closed of late.
    kept: VecDeque<(WindowKey, Window)>,
}

/// Whether a source is up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SourceState {
    /// Whether it tells what happens.
    pub up: bool,
    /// Since when that is so.
    pub since: Timestamp,
}

impl Pipeline {
    /// A pipeline over a snapshot of the cluster.
    #[must_use]
    pub fn new(mut inventory: Inventory, settings: Settings) -> Self {
        if settings.horizon.is_some() {
            inventory.pack();
        }
        Self {
            ledger: Ledger::new(settings.clone()),
            history: History::default(),
            readings: Readings::default(),
            strangers: Strangers::default(),
            blind: Blind::default(),
            sources: BTreeMap::new(),
            tallies: Tallies::default(),
            lookups: Lookups::default(),
            looks: Looks::default(),
            passed: None,
            ahead: None,
            kept: VecDeque::new(),
            inventory,
            settings,
        }
    }

    /// The cluster.
    #[must_use]
    pub fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    /// Judges by these thresholds, prices and policy settings from now on. How events are counted stays as it is: width
    /// and lateness of windows, caps, the horizon.
    pub fn configure(&mut self, settings: Settings) {
        let Settings { window, lateness, max_jump, max_pairs, max_handshakes, horizon, .. } = self.settings;
        let lateness_of = std::mem::take(&mut self.settings.lateness_of);
        let counting = Settings {
            window,
            lateness,
            lateness_of,
            max_jump,
            max_pairs,
            max_handshakes,
            horizon,
            ..settings
        };
        self.settings = counting;
    }

    /// The clock of whoever runs this, and of the node, was set back to `at`. What was told by the time before would make all
    /// that follows late, so everything but the cluster is forgotten; and events that lie more than `ahead` later than
    /// the time that passes, which a source may still hold, are not believed any more.
    pub fn start_anew(&mut self, at: Timestamp, ahead: Duration) {
        let inventory =
            std::mem::replace(&mut self.inventory, Inventory::new(Vec::new(), &Grouping::default()));
        let sources = std::mem::take(&mut self.sources);
        *self = Self { ahead: Some(ahead), ..Self::new(inventory, self.settings.clone()) };
        for (source, state) in sources {
            self.source_state(source, state.up, at);
        }
        self.pass(at);
    }

    /// Takes note of the time, by the clock of whoever runs this: what nobody ran into any more has ended, and what is over
    /// is forgotten, also where nothing happens at all. Events are counted by their own times only.
    pub fn pass(&mut self, at: Timestamp) {
        self.passed = Some(at);
        if let Some(ahead) = self.ahead {
            self.ledger.set_ceiling(at.plus(ahead));
        }
        self.ledger.pass(at);
        self.fold_closed();
    }

    /// The newest time that is known.
    fn now(&self) -> Option<Timestamp> {
        self.ledger.now().max(self.passed)
    }

    /// Counts an event that could not be read.
    pub fn reject(&mut self, source: SourceKind) {
        self.ledger.reject(source);
    }

    /// Takes an observation.
    pub fn observe(&mut self, observation: Observation<'_>) {
        match observation {
            Observation::Flow(flow) => self.flow(&flow),
            Observation::Drops(drops) => self.drops(&drops),
            Observation::Socket(event) => self.socket(&event),
            Observation::Lost(loss) => self.ledger.lost(&loss),
            Observation::Blind { nodes, .. } => {
                nodes.iter().for_each(|node| self.blind.add(node, &self.inventory));
            }
            Observation::Reached { nodes, .. } => {
                nodes.iter().for_each(|node| self.blind.reach(node));
            }
        }
    }

    /// Takes note that a kind of source is up, or not. Until somebody tells, a source is neither.
    pub fn source_state(&mut self, source: SourceKind, up: bool, at: Timestamp) {
        let state = self.sources.entry(source).or_insert(SourceState { up, since: at });
        if state.up != up {
            *state = SourceState { up, since: at };
        }
    }

    /// The kinds of source whose state was told.
    #[must_use]
    pub fn source_states(&self) -> &BTreeMap<SourceKind, SourceState> {
        &self.sources
    }

    /// What became of everything that each kind of source told, since the beginning.
    #[must_use]
    pub fn accounts(&self) -> &Accounts {
        self.ledger.accounts()
    }

    /// The counters of each job, as of the last [`Pipeline::look`], sorted; bytes and round trips as of now.
    pub fn tallies(&self) -> impl Iterator<Item = (&JobId, &JobTally)> {
        self.tallies.iter()
    }

    /// Addresses that pods of jobs known in part talked to since the last call, and that nobody in the inventory has.
    pub fn take_unresolved(&mut self) -> Vec<Unresolved> {
        self.lookups.take()
    }

    /// How many such addresses were left out because too many were remembered.
    #[must_use]
    pub fn unresolved_left_out(&self) -> u64 {
        self.lookups.left_out()
    }

    fn flow(&mut self, flow: &Flow<'_>) {
        let (inventory, strangers, lookups) = (&self.inventory, &mut self.strangers, &mut self.lookups);
        self.ledger.flow(flow, || {
            attribute::attribute(flow, inventory).map_err(|because| {
                strangers.note(flow, inventory);
                lookups.note([&flow.src, &flow.dst], flow.at, inventory);
                because == NobodysBecause::Unresolved
            })
        });
        self.fold_closed();
    }

    fn socket(&mut self, event: &SocketEvent<'_>) {
        let (inventory, strangers, lookups) = (&self.inventory, &mut self.strangers, &mut self.lookups);
        self.ledger.socket(event, || {
            attribute::socket(event, inventory).map_err(|because| {
                strangers.note_socket(event, inventory);
                lookups.note([&event.local, &event.remote], event.at, inventory);
                because == NobodysBecause::Unresolved
            })
        });
        self.fold_closed();
    }

    fn drops(&mut self, drops: &Drops<'_>) {
        let (inventory, strangers, lookups) = (&self.inventory, &mut self.strangers, &mut self.lookups);
        self.ledger.drops(drops, || {
            attribute::drops(drops, inventory).map_err(|because| {
                strangers.note_drops(drops, inventory);
                lookups.note([&drops.src, &drops.dst], drops.last, inventory);
                because == NobodysBecause::Unresolved
            })
        });
        self.fold_closed();
    }

    fn fold_closed(&mut self) {
        for (pair, port, traffic) in self.ledger.take_told() {
            self.history.carry(None, (pair, port, &traffic), &self.settings);
        }
        for told in self.ledger.take_carried() {
            self.tallies.carry(&told, &self.inventory, &self.settings.prices);
        }
        let closed = self.ledger.take_closed();
        if !closed.is_empty() {
            self.fold(&closed);
            self.keep(closed);
        }
    }

    /// What accelerators were measured to do.
    pub fn readings(&mut self) -> &mut Readings {
        &mut self.readings
    }

    fn fold(&mut self, closed: &[(WindowKey, Window)]) {
        let (inventory, observers) = (&self.inventory, self.ledger.observers());
        let closed: Vec<(WindowKey, &Window)> = closed.iter().map(|(key, window)| (*key, window)).collect();
        denials(&self.history, &closed, inventory, observers, &mut |pair, direction, denied| {
            self.tallies.deny(pair, direction, denied, inventory, true);
        });
        fold(&mut self.history, &closed, &self.settings, inventory, observers);
    }

    /// A look at everything so far: what [`Pipeline::finish`] would report now. Nothing is closed or decided by it.
    #[must_use]
    pub fn report(&self) -> Report {
        let mut settled = self.ledger.settled();
        let told = take_told(settled.as_mut());
        let ledger = settled.as_ref().unwrap_or(&self.ledger);
        let history = self.overlay(ledger, &told);
        self.tell(&history, Some(&self.history.pairs), ledger)
    }

    /// No more observations will come: decides everything and reports.
    #[must_use]
    pub fn finish(mut self) -> Report {
        self.ledger.finish();
        self.fold_closed();
        self.tell(&self.history, None, &self.ledger)
    }

    /// What would be told if all windows closed now, over what is told already.
    fn overlay(&self, ledger: &Ledger, told: &[(PairKey, u16, Traffic)]) -> History {
        let open: Vec<(WindowKey, &Window)> = ledger.open_windows().iter().map(|(k, w)| (*k, w)).collect();
        let mut history = in_place(&self.inventory, ledger.observers(), |cluster| {
            self.history.overlay(&open, &self.settings, cluster)
        });
        for (pair, port, traffic) in told {
            history.carry(Some(&self.history.pairs), (*pair, *port, traffic), &self.settings);
        }
        history
    }

    fn policies(&self) -> PolicySet {
        let namespaces: Vec<_> = self.inventory.namespaces().values().cloned().collect();
        PolicySet::from_objects(self.inventory.objects(), &namespaces, self.settings.policy)
    }

    fn tell(&self, history: &History, closed: Option<&Stories>, ledger: &Ledger) -> Report {
        let policies = self.policies();
        let mut report = diagnose(&Evidence {
            inventory: &self.inventory,
            policies: &policies,
            history,
            closed,
            observers: ledger.observers(),
            totals: self.looks.totals(ledger),
            readings: &self.readings,
            blind: &self.blind,
            sources: &self.sources,
            passed: self.passed,
            settings: &self.settings,
        });
        report.suggestions = self.strangers.suggestions(&self.inventory);
        report
    }

    /// Takes newer objects of the cluster in place of all that are known. Pods keep their identity; those that are
    /// gone are remembered, for what they did is. They held their addresses until the time that `ended` tells, by UID, or
    /// until now at the longest.
    pub fn update(&mut self, objects: Vec<Object>, ended: &BTreeMap<String, Timestamp>) {
        let before = std::mem::take(&mut self.inventory);
        let settled = self.ledger.settled();
        let now = settled.as_ref().unwrap_or(&self.ledger).now();
        let ids: Vec<JobId> = before.jobs().map(|(_, job)| job.id.clone()).collect();
        let renewal = Renewal { ended, now, horizon: self.settings.horizon };
        let (mut inventory, jobs, forgotten) = before.renewed(objects, renewal);
        if self.settings.horizon.is_some() {
            inventory.pack();
        }
        if !forgotten.is_empty() {
            self.history.forget(&forgotten);
            self.strangers.forget(&forgotten);
            self.kept.clear();
        }
        self.inventory = inventory;
        self.ledger.renumber_jobs(&jobs);
        self.history.renumber_jobs(&jobs);
        self.lookups.renumber_jobs(&jobs);
        self.tallies.renumber_jobs(&ids, &jobs, &self.inventory);
        self.looks.start_anew();
    }

    /// Jobs of which only some members are among the objects, in place of those told before. Such a job is never called
    /// healthy as a whole, and whom its pods talk to without anybody knowing them is told by
    /// [`Pipeline::take_unresolved`]. A job is meant by namespace, kind and name, and by its UID where both tell one.
    pub fn known_in_part(&mut self, jobs: BTreeSet<JobId>) {
        self.inventory.set_partial(jobs);
        self.looks.start_anew();
    }
}

/// Adds windows, which come in order of their start, to a history.
pub fn fold(
    history: &mut History,
    closed: &[(WindowKey, &Window)],
    settings: &Settings,
    inventory: &Inventory,
    observers: &Observers,
) {
    in_place(inventory, observers, |cluster| {
        for group in closed.chunk_by(|(a, _), (b, _)| a.start == b.start) {
            history.add(group, settings, cluster);
        }
    });
}

/// What a copy of the ledger, in which what was in doubt is decided, tells beyond the ledger itself.
fn take_told(settled: Option<&mut Ledger>) -> Vec<(PairKey, u16, Traffic)> {
    settled.map_or_else(Vec::new, |ledger| ledger.take_told().collect())
}

/// What windows, which come in order of their start, say was dropped.
fn denials(
    history: &History,
    windows: &[(WindowKey, &Window)],
    inventory: &Inventory,
    observers: &Observers,
    each: &mut dyn FnMut(&PairKey, Option<Direction>, &Denied),
) {
    in_place(inventory, observers, |cluster| {
        for group in windows.chunk_by(|(a, _), (b, _)| a.start == b.start) {
            history.denials(group, cluster, each);
        }
    });
}

fn in_place<T>(inventory: &Inventory, observers: &Observers, f: impl FnOnce(Whereabouts<'_>) -> T) -> T {
    let node_of = |pod: PodId| observers.known(inventory.pod(pod).node.as_deref()?);
    let job_of = |pod: PodId, at: Timestamp| {
        let there = inventory.pod(pod).lease.until.is_none_or(|until| until > at);
        inventory.job_of(pod).map(|(job, _)| job).filter(|_| there)
    };
    f(Whereabouts { node_of: &node_of, job_of: &job_of })
}

#[cfg(test)]
mod tests;

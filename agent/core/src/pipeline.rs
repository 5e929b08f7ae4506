//! From observations to a report, in one direction. Enters: observations in about the order of their time;
//! leaves: a report. The same for a replay and a live agent; only the sources differ.

use crate::attribute::{self, NobodysBecause};
use crate::diagnose::{Evidence, diagnose};
use crate::gpu::Readings;
use crate::history::{History, Whereabouts};
use crate::inventory::{Inventory, PodId};
use crate::ledger::{Ledger, Observers, Window, WindowKey};
use crate::object::Object;
use crate::observation::{Drops, Flow, Observation, SocketEvent};
use crate::policy::PolicySet;
use crate::report::Report;
use crate::settings::Settings;
use crate::strangers::Strangers;
use crate::time::Timestamp;

/// Takes observations, gives a report.
pub struct Pipeline {
    inventory: Inventory,
    settings: Settings,
    ledger: Ledger,
    history: History,
    readings: Readings,
    strangers: Strangers,
    blind: Vec<String>,
}

impl Pipeline {
    /// A pipeline over a snapshot of the cluster.
    #[must_use]
    pub fn new(inventory: Inventory, settings: Settings) -> Self {
        Self {
            ledger: Ledger::new(settings.clone()),
            history: History::default(),
            readings: Readings::default(),
            strangers: Strangers::default(),
            blind: Vec::new(),
            inventory,
            settings,
        }
    }

    /// The cluster.
    #[must_use]
    pub fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    /// Counts an event that could not be read.
    pub fn reject(&mut self) {
        self.ledger.reject();
    }

    /// Takes an observation.
    pub fn observe(&mut self, observation: Observation<'_>) {
        match observation {
            Observation::Flow(flow) => self.flow(&flow),
            Observation::Drops(drops) => self.drops(&drops),
            Observation::Socket(event) => self.socket(&event),
            Observation::Lost(loss) => self.ledger.lost(&loss),
            Observation::Blind { nodes, .. } => {
                for node in nodes {
                    let node = crate::inventory::node_name(node);
                    if let Err(place) = self.blind.binary_search_by(|known| known.as_str().cmp(node)) {
                        self.blind.insert(place, node.to_owned());
                    }
                }
            }
        }
    }

    fn flow(&mut self, flow: &Flow<'_>) {
        let (inventory, strangers) = (&self.inventory, &mut self.strangers);
        self.ledger.flow(flow, || {
            attribute::attribute(flow, inventory).map_err(|because| {
                strangers.note(flow, inventory);
                because == NobodysBecause::Unresolved
            })
        });
        self.fold_closed();
    }

    fn socket(&mut self, event: &SocketEvent<'_>) {
        let (inventory, strangers) = (&self.inventory, &mut self.strangers);
        self.ledger.socket(event, || {
            attribute::socket(event, inventory).map_err(|because| {
                strangers.note_socket(event, inventory);
                because == NobodysBecause::Unresolved
            })
        });
        self.fold_closed();
    }

    fn drops(&mut self, drops: &Drops<'_>) {
        let (inventory, strangers) = (&self.inventory, &mut self.strangers);
        self.ledger.drops(drops, || {
            attribute::drops(drops, inventory).map_err(|because| {
                strangers.note_drops(drops, inventory);
                because == NobodysBecause::Unresolved
            })
        });
        self.fold_closed();
    }

    fn fold_closed(&mut self) {
        let closed = self.ledger.take_closed();
        if !closed.is_empty() {
            self.fold(&closed);
        }
    }

    /// What accelerators were measured to do.
    pub fn readings(&mut self) -> &mut Readings {
        &mut self.readings
    }

    fn fold(&mut self, closed: &[(WindowKey, Window)]) {
        let (inventory, observers) = (&self.inventory, self.ledger.observers());
        let closed: Vec<(WindowKey, &Window)> = closed.iter().map(|(key, window)| (*key, window)).collect();
        fold(&mut self.history, &closed, &self.settings, inventory, observers);
    }

    /// A look at everything so far: what [`Pipeline::finish`] would report now. Nothing is closed or decided by it.
    #[must_use]
    pub fn report(&self) -> Report {
        let settled = self.ledger.settled();
        let ledger = settled.as_ref().unwrap_or(&self.ledger);
        let mut history = self.history.clone();
        let open: Vec<(WindowKey, &Window)> = ledger.open_windows().iter().map(|(k, w)| (*k, w)).collect();
        fold(&mut history, &open, &self.settings, &self.inventory, ledger.observers());
        self.tell(&history, ledger)
    }

    /// No more observations will come: decides everything and reports.
    #[must_use]
    pub fn finish(mut self) -> Report {
        self.ledger.finish();
        let closed = self.ledger.take_closed();
        self.fold(&closed);
        self.tell(&self.history, &self.ledger)
    }

    fn tell(&self, history: &History, ledger: &Ledger) -> Report {
        let namespaces: Vec<_> = self.inventory.namespaces().values().cloned().collect();
        let policies = PolicySet::from_objects(self.inventory.objects(), &namespaces, self.settings.policy);
        let mut report = diagnose(&Evidence {
            inventory: &self.inventory,
            policies: &policies,
            history,
            observers: ledger.observers(),
            totals: ledger.totals(),
            readings: &self.readings,
            blind: &self.blind,
            settings: &self.settings,
        });
        report.suggestions = self.strangers.suggestions(&self.inventory);
        report
    }

    /// Takes newer objects of the cluster in place of all that are known. Pods keep their identity; those that are
    /// gone are remembered, for what they did is, and held their addresses until now at the longest.
    pub fn update(&mut self, objects: Vec<Object>) {
        let before = std::mem::take(&mut self.inventory);
        let settled = self.ledger.settled();
        let now = settled.as_ref().unwrap_or(&self.ledger).now();
        let (inventory, jobs) = before.renewed(objects, now);
        self.inventory = inventory;
        self.ledger.renumber_jobs(&jobs);
        self.history.renumber_jobs(&jobs);
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
    let node_of = |pod: PodId| observers.known(inventory.pod(pod).node.as_deref()?);
    let job_of = |pod: PodId, at: Timestamp| {
        let there = inventory.pod(pod).lease.until.is_none_or(|until| until > at);
        inventory.job_of(pod).map(|(job, _)| job).filter(|_| there)
    };
    for group in closed.chunk_by(|(a, _), (b, _)| a.start == b.start) {
        history.add(group, settings, Whereabouts { node_of: &node_of, job_of: &job_of });
    }
}

#[cfg(test)]
mod tests;

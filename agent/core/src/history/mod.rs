//! The story of each pair, told from its windows in order of time: since when does it fail, how, and did it
//! ever work again? Enters: groups of windows that start together, from any number of nodes; leaves: streaks of
//! failure without success. One fact has one owner: an egress drop counts at the source's node, an ingress drop
//! at the destination's, a connect at the source's; another node stands in only where the owner saw nothing.

mod combine;
mod listening;
mod streak;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::inventory::{JobIndex, JobNumbers, PodId};
use crate::ledger::window::{
    Denied, Listeners, MAX_LISTENERS, PairWindow, Span, Tally, Window, WindowKey, join, listen,
};
use crate::ledger::{ObserverId, PairKey, PortClass, Traffic};
use crate::observation::{Capabilities, SourceKind};
use crate::settings::Settings;
use crate::time::Timestamp;

use combine::PortGroup;
pub use streak::{Blocked, Streak};

/// Ports remembered for what a pair carried.
const MAX_PORTS: usize = 512;

/// What the story needs to know of the cluster.
#[derive(Clone, Copy)]
pub struct Whereabouts<'a> {
    /// At which node a pod's events are recorded.
    pub node_of: &'a dyn Fn(PodId) -> Option<ObserverId>,
    /// The job of a pod that still held its addresses at this time.
    pub job_of: &'a dyn Fn(PodId, Timestamp) -> Option<JobIndex>,
}

/// A block that ended when a connection succeeded.
#[derive(Clone, PartialEq, Debug)]
pub struct Recovery {
    /// What had failed until then.
    pub streak: Streak,
    /// How it had failed.
    pub blocked: Blocked,
    /// When success was seen.
    pub at: Timestamp,
}

/// The story of one port of a pair.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PortHistory {
    /// Failures since the last success.
    pub streak: Streak,
    /// The last block that ended in success.
    pub recovery: Option<Recovery>,
}

/// The story of a pair.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PairHistory {
    /// By port; ephemeral ports that never failed are forgotten.
    pub ports: BTreeMap<u16, PortHistory>,
    /// Success on any port.
    pub answered: Tally,
    /// Packets that would have been dropped were the policy enforced.
    pub audited: Denied,
    /// What its connections carried, where a source saw that.
    pub carried: Option<Box<CarriedHistory>>,
}

/// What a pair's connections carried.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct CarriedHistory {
    /// All of it.
    pub total: Traffic,
    /// Ports that it took, the first few hundred.
    ports: BTreeSet<u16>,
    /// The windows of late, by their start.
    recent: VecDeque<(Timestamp, Traffic)>,
}

impl CarriedHistory {
    /// What was carried in windows that began at `since` or later, of those of late.
    #[must_use]
    pub fn since(&self, since: Timestamp) -> Traffic {
        let mut traffic = Traffic::default();
        for (_, of_window) in self.recent.iter().filter(|(start, _)| *start >= since) {
            traffic.add(of_window);
        }
        traffic
    }

    /// The ports that were called, sorted.
    #[must_use]
    pub fn ports(&self) -> Vec<u16> {
        self.ports.iter().copied().collect()
    }

    fn took(&mut self, port: u16) {
        if port != 0 && self.ports.len() < MAX_PORTS {
            self.ports.insert(port);
        }
    }

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

/// What one node reported over all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ObserverHistory {
    /// Events it reported.
    pub events: u64,
    /// Events known to be missing.
    pub lost: u64,
    /// Events not kept because a cap was reached.
    pub overflow: u64,
    /// When.
    pub span: Option<Span>,
    /// Kinds of source through which it reported events.
    pub sources: Vec<SourceKind>,
}

/// The story of everything.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct History {
    /// By pair.
    pub pairs: BTreeMap<PairKey, PairHistory>,
    /// By node.
    pub observers: BTreeMap<ObserverId, ObserverHistory>,
    /// Events whose job is known, but not the pod.
    pub ambiguous: BTreeMap<JobIndex, u64>,
    /// Host-network pods that were seen to listen, or to accept connections.
    pub listeners: Listeners,
    /// Kinds of source that reported.
    pub sources: Vec<SourceKind>,
    /// From the first to the last event.
    pub span: Option<Span>,
}

impl History {
    /// Adds windows that start together. Groups must come in order of their start.
    pub fn add(&mut self, group: &[(WindowKey, &Window)], settings: &Settings, cluster: Whereabouts<'_>) {
        let mut of_pair: BTreeMap<PairKey, Vec<(WindowKey, &PairWindow)>> = BTreeMap::new();
        for (key, window) in group {
            self.note(key, window);
        }
        let named = listening::name(group, &self.listeners, cluster);
        for (key, window) in group {
            let known = window.pairs.iter().filter(|(pair, _)| !listening::may_be_named(pair));
            for (pair, seen) in known {
                of_pair.entry(*pair).or_default().push((*key, seen));
            }
        }
        for (key, pair, seen) in &named {
            of_pair.entry(*pair).or_default().push((*key, seen));
        }
        for (pair, views) in of_pair {
            self.pairs.entry(pair).or_default().add(&pair, &views, settings, cluster.node_of);
        }
    }

    fn note(&mut self, key: &WindowKey, window: &Window) {
        let observer = self.observers.entry(key.observer).or_default();
        observer.events += window.counts.events;
        observer.lost = observer.lost.saturating_add(window.counts.lost);
        observer.overflow += window.counts.overflow;
        observer.span = join(observer.span, window.span);
        if window.counts.events > 0
            && let Err(place) = observer.sources.binary_search(&key.source)
        {
            observer.sources.insert(place, key.source);
        }
        for (place, listener) in &window.listeners {
            forget_oldest(&mut self.listeners);
            listen(&mut self.listeners, *place, *listener);
        }
        self.span = join(self.span, window.span);
        for (job, count) in &window.ambiguous {
            *self.ambiguous.entry(*job).or_default() += count;
        }
        if let Err(place) = self.sources.binary_search(&key.source) {
            self.sources.insert(place, key.source);
        }
    }

    /// Jobs got other numbers.
    pub fn renumber_jobs(&mut self, jobs: &JobNumbers) {
        self.ambiguous = jobs.renumber(&self.ambiguous);
    }

    /// What all sources together can see.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.sources.iter().fold(Capabilities::default(), |all, source| all.union(source.capabilities()))
    }
}

/// Ports that the kernel picks come and go: of a full list the older half goes.
fn forget_oldest(listeners: &mut Listeners) {
    if listeners.len() < MAX_LISTENERS {
        return;
    }
    let mut times: Vec<Timestamp> = listeners.values().map(|listener| listener.at).collect();
    let (_, middle, _) = times.select_nth_unstable(MAX_LISTENERS / 2);
    let middle = *middle;
    listeners.retain(|_, listener| listener.at > middle);
}

impl PairHistory {
    fn add(
        &mut self,
        key: &PairKey,
        views: &[(WindowKey, &PairWindow)],
        settings: &Settings,
        node_of: &dyn Fn(PodId) -> Option<ObserverId>,
    ) {
        for (window, seen) in views {
            for traffic in seen.traffic.iter().flat_map(|by_port| by_port.values()) {
                self.carried.get_or_insert_default().add(window.start, traffic, settings);
            }
        }
        if let Some(carried) = &mut self.carried {
            views.iter().flat_map(|(_, seen)| &seen.ports).for_each(|(port, _)| carried.took(*port));
        }
        for (port, group) in combine::by_port(key, views, node_of) {
            self.answered = self.answered.plus(group.answered);
            self.audited.add(&group.audited);
            let history = self.ports.entry(port).or_default();
            history.add(group, settings);
            let uneventful = history.streak.is_empty() && history.recovery.is_none();
            if uneventful && key.class == PortClass::Ephemeral {
                self.ports.remove(&port);
            }
        }
    }

    /// All failures since each port's last success, together.
    #[must_use]
    pub fn failing(&self) -> Streak {
        let mut all = Streak::default();
        for port in self.ports.values() {
            all.add(&port.streak);
        }
        all
    }
}

impl PortHistory {
    fn add(&mut self, group: PortGroup, settings: &Settings) {
        let Some(ok) = group.answered.span else {
            self.streak.absorb(&group);
            return;
        };
        let failed_after = group.failed().filter(|failed| failed.last > ok.last);
        let begun_before = self.streak.clone();
        match failed_after {
            None => {
                let mut ended = begun_before;
                ended.absorb(&group);
                let at = if group.failed().is_none() { ok.first } else { ok.last };
                self.recover(ended, at, settings);
                self.streak = Streak::default();
            }
            Some(failed) => {
                self.recover(begun_before, ok.first, settings);
                self.streak = Streak::default();
                if failed.first > ok.last {
                    self.streak.absorb(&group);
                } else {
                    // Success and failure lie mixed within one window: at least the last failure came after.
                    self.streak.absorb(&group.only_last());
                }
            }
        }
        if self.streak.is_empty() {
            self.streak.pending(&group, ok.last);
        }
    }

    fn recover(&mut self, streak: Streak, at: Timestamp, settings: &Settings) {
        if let Some(blocked) = streak.blocked(settings) {
            self.recovery = Some(Recovery { streak, blocked, at });
        }
    }
}

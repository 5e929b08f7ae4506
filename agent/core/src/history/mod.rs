//! The story of each pair, told from its windows in order of time: since when does it fail, how, and did it
//! ever work again? Enters: groups of windows that start together, from any number of nodes; leaves: streaks of
//! failure without success. One fact has one owner: an egress drop counts at the source's node, an ingress drop
//! at the destination's, a connect at the source's; another node stands in only where the owner saw nothing.

mod ageing;
mod carried;
mod combine;
mod listening;
mod pairs;
mod streak;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use crate::inventory::{JobIndex, JobNumbers, PodId};
use crate::ledger::window::{
    Denied, Listeners, MAX_LISTENERS, PairWindow, Span, Tally, Window, WindowKey, join, listen,
};
use crate::ledger::{ObserverId, PairKey, PortClass, Traffic};
use crate::observation::{Capabilities, Direction, SourceKind};
use crate::settings::Settings;
use crate::time::Timestamp;

pub use carried::CarriedHistory;
use combine::PortGroup;
pub use pairs::{Ports, Stories};
pub use streak::{Blocked, Streak};

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

impl PortHistory {
    /// Whether anything failed.
    #[must_use]
    pub fn is_eventful(&self) -> bool {
        !self.streak.is_empty() || self.recovery.is_some()
    }
}

/// The story of a pair.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PairHistory {
    /// By port; ephemeral ports that never failed are forgotten.
    pub ports: Ports,
    /// Success on any port.
    pub answered: Tally,
    /// Packets that would have been dropped were the policy enforced.
    pub audited: Option<Box<Denied>>,
    /// What its connections carried, where a source saw that.
    pub carried: Option<CarriedHistory>,
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
    /// Kinds of source through which it reported anything.
    told: Vec<SourceKind>,
}

/// The story of everything.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct History {
    /// By pair.
    pub pairs: Stories,
    /// By node; with a horizon of its present half, and ...
    observers: BTreeMap<ObserverId, ObserverHistory>,
    /// ... of the half before.
    observers_before: BTreeMap<ObserverId, ObserverHistory>,
    /// Events whose job is known, but not the pod.
    pub ambiguous: BTreeMap<JobIndex, u64>,
    /// Host-network pods that were seen to listen, or to accept connections.
    pub listeners: Listeners,
    /// From the first to the last event; with a horizon no longer than that.
    pub span: Option<Span>,
    /// When the present half of the horizon began.
    pub half: Option<Timestamp>,
    /// Pods with a pair of which more was learnt than another success, since this was asked last.
    eventful: BTreeSet<PodId>,
}

/// What a pair's windows that start together tell.
type Views<'a> = Vec<(WindowKey, Cow<'a, PairWindow>)>;

impl History {
    /// Adds windows that start together. Groups must come in order of their start.
    pub fn add(&mut self, group: &[(WindowKey, &Window)], settings: &Settings, cluster: Whereabouts<'_>) {
        self.add_over(None, group, settings, cluster);
    }

    /// What would be told if these windows closed now, as far as it differs from what is told of pairs already: only those
    /// pairs are in it of which more is learnt than another success. Groups must come in order of their start.
    #[must_use]
    pub fn overlay(
        &self,
        open: &[(WindowKey, &Window)],
        settings: &Settings,
        cluster: Whereabouts<'_>,
    ) -> Self {
        let mut over = Self {
            pairs: Stories::default(),
            observers: self.observers.clone(),
            observers_before: self.observers_before.clone(),
            ambiguous: self.ambiguous.clone(),
            listeners: self.listeners.clone(),
            span: self.span,
            half: self.half,
            eventful: BTreeSet::new(),
        };
        for group in open.chunk_by(|(a, _), (b, _)| a.start == b.start) {
            over.add_over(Some(&self.pairs), group, settings, cluster);
        }
        over
    }

    fn add_over(
        &mut self,
        base: Option<&Stories>,
        group: &[(WindowKey, &Window)],
        settings: &Settings,
        cluster: Whereabouts<'_>,
    ) {
        for (key, window) in group {
            self.note(key, window, settings);
        }
        let named = named(group, &self.listeners, cluster);
        for (place, (key, window)) in group.iter().enumerate() {
            let before = group.get(..place).unwrap_or_default();
            let told = |pair: &PairKey| before.iter().any(|(_, window)| window.pairs.contains(pair));
            // Most pairs of most windows: nothing is to be told that is not told already.
            let base_alone = base.filter(|_| settings.horizon.is_some() && group.len() == 1);
            let known = |pair: &PairKey, opened: Option<Timestamp>, ok: Option<Timestamp>| {
                base_alone.is_some_and(|base| {
                    ok.is_some() && opened <= ok && base.get(pair).is_some_and(PairHistory::is_uneventful)
                })
            };
            let over: BTreeSet<PodId> = self.pairs.callers().collect();
            let told_over = |pair: &PairKey| over.contains(&pair.src);
            for (pair, quiet) in
                window.pairs.iter_but(|pair, opened, ok| !told_over(pair) && known(pair, opened, ok))
            {
                if listening::may_be_named(&pair) || told(&pair) || named.contains_key(&pair) {
                    continue;
                }
                let mut views: Views<'_> = vec![(*key, quiet)];
                let after = group.get(place + 1..).unwrap_or_default();
                views.extend(after.iter().filter_map(|(key, window)| Some((*key, window.pairs.get(&pair)?))));
                if settings.horizon.is_some()
                    && base.is_some_and(|base| self.learns_nothing(base, &pair, &views))
                {
                    continue;
                }
                self.tell(base, pair, &views, settings, cluster);
            }
        }
        for (pair, of_named) in &named {
            let known = group.iter().filter_map(|(key, window)| Some((*key, window.pairs.get(pair)?)));
            let known = known.filter(|_| !listening::may_be_named(pair));
            let of_named = of_named.iter().map(|(key, seen)| (*key, Cow::Borrowed(seen)));
            let views: Views<'_> = known.chain(of_named).collect();
            self.tell(base, *pair, &views, settings, cluster);
        }
    }

    fn tell(
        &mut self,
        base: Option<&Stories>,
        pair: PairKey,
        views: &Views<'_>,
        settings: &Settings,
        cluster: Whereabouts<'_>,
    ) {
        let known = || base.and_then(|base| base.get(&pair)).cloned().unwrap_or_default();
        if base.is_none() && self.pairs.len() >= settings.max_pairs && self.pairs.get(&pair).is_none() {
            if let Some((key, _)) = views.first() {
                self.observers.entry(key.observer).or_default().overflow += 1;
            }
            return;
        }
        let history = self.pairs.entry(pair, known);
        if history.add(&pair, views, settings, cluster.node_of) {
            self.eventful.insert(pair.src);
        }
    }

    /// Whether another success is all that these windows tell of a pair.
    fn learns_nothing(&self, base: &Stories, pair: &PairKey, views: &Views<'_>) -> bool {
        let nothing = |known: &PairHistory| {
            views.iter().all(|(_, seen)| matches!(seen, Cow::Owned(seen) if known.learns_nothing(seen)))
        };
        self.pairs.get(pair).is_none() && base.get(pair).is_some_and(nothing)
    }

    /// Adds what a pair carried on this port: in an overlay over the stories of `base`.
    pub fn carry(
        &mut self,
        base: Option<&Stories>,
        (pair, port, traffic): (PairKey, u16, &Traffic),
        settings: &Settings,
    ) {
        let start = traffic.span.map_or(Timestamp::MIN, |span| span.first.floor_to(settings.window));
        if self.pairs.len() >= settings.max_pairs && self.pairs.get(&pair).is_none() {
            return;
        }
        let known = || base.and_then(|base| base.get(&pair)).cloned().unwrap_or_default();
        let history = self.pairs.entry(pair, known);
        let carried = history.carried.get_or_insert_with(|| CarriedHistory::new(settings));
        carried.add(start, traffic, settings);
        carried.took(port);
    }

    /// Pods with a pair of which more was learnt than another success, since the last call.
    pub fn take_eventful(&mut self) -> BTreeSet<PodId> {
        std::mem::take(&mut self.eventful)
    }

    /// What one node reported.
    #[must_use]
    pub fn observer(&self, id: ObserverId) -> ObserverHistory {
        let mut observer = self.observers.get(&id).cloned().unwrap_or_default();
        if let Some(before) = self.observers_before.get(&id) {
            observer.add(before);
        }
        observer
    }

    /// What each node reported, by node.
    pub fn observers(&self) -> impl Iterator<Item = (ObserverId, ObserverHistory)> {
        let ids: BTreeSet<ObserverId> =
            self.observers.keys().chain(self.observers_before.keys()).copied().collect();
        ids.into_iter().map(|id| (id, self.observer(id)))
    }

    /// Kinds of source that reported, sorted.
    #[must_use]
    pub fn sources(&self) -> Vec<SourceKind> {
        let told = self.observers.values().chain(self.observers_before.values());
        let sources: BTreeSet<SourceKind> = told.flat_map(|observer| observer.told.iter().copied()).collect();
        sources.into_iter().collect()
    }

    /// What windows that start together say was dropped, by the ownership rule: each pair, direction and port once.
    pub fn denials(
        &self,
        group: &[(WindowKey, &Window)],
        cluster: Whereabouts<'_>,
        each: &mut dyn FnMut(&PairKey, Option<Direction>, &Denied),
    ) {
        let named = named(group, &self.listeners, cluster);
        let failed = |seen: &PairWindow| seen.ports.iter().any(|(_, port)| port.failures.is_some());
        let known = group.iter().flat_map(|(_, window)| window.pairs.loud());
        let known = known.filter(|(pair, seen)| !listening::may_be_named(pair) && failed(seen));
        let failing = named.iter().filter(|(_, of)| of.iter().any(|(_, seen)| failed(seen)));
        let failing: BTreeSet<PairKey> =
            known.map(|(pair, _)| *pair).chain(failing.map(|(p, _)| *p)).collect();
        for pair in failing {
            // How many handshakes were begun, also those windows know that saw none fail.
            let known = group.iter().filter_map(|(key, window)| Some((*key, window.pairs.get(&pair)?)));
            let known = known.filter(|_| !listening::may_be_named(&pair));
            let of_named = named.get(&pair).into_iter().flatten();
            let of_named = of_named.map(|(key, seen)| (*key, Cow::Borrowed(seen)));
            let views: Views<'_> = known.chain(of_named).collect();
            for (_, group) in combine::by_port(&pair, &views, cluster.node_of) {
                group.denied.iter().for_each(|(direction, denied)| each(&pair, *direction, denied));
            }
        }
    }

    fn note(&mut self, key: &WindowKey, window: &Window, settings: &Settings) {
        let observer = self.observers.entry(key.observer).or_default();
        observer.events += window.counts.events;
        observer.lost = observer.lost.saturating_add(window.counts.lost);
        observer.overflow += window.counts.overflow;
        observer.span = join(observer.span, window.span);
        if window.counts.events > 0 {
            insert(&mut observer.sources, key.source);
        }
        insert(&mut observer.told, key.source);
        for (place, listener) in &window.listeners {
            forget_oldest(&mut self.listeners);
            listen(&mut self.listeners, *place, *listener);
        }
        self.span = join(self.span, window.span).map(|span| match settings.horizon {
            Some(horizon) => Span { first: span.first.max(span.last.minus(horizon)), ..span },
            None => span,
        });
        for (job, count) in &window.ambiguous {
            *self.ambiguous.entry(*job).or_default() += count;
        }
    }

    /// Jobs got other numbers.
    pub fn renumber_jobs(&mut self, jobs: &JobNumbers) {
        self.ambiguous = jobs.renumber(&self.ambiguous);
    }

    /// What all sources together can see.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.sources().iter().fold(Capabilities::default(), |all, source| all.union(source.capabilities()))
    }
}

fn insert(sources: &mut Vec<SourceKind>, source: SourceKind) {
    if let Err(place) = sources.binary_search(&source) {
        sources.insert(place, source);
    }
}

impl ObserverHistory {
    fn add(&mut self, other: &Self) {
        self.events = self.events.saturating_add(other.events);
        self.lost = self.lost.saturating_add(other.lost);
        self.overflow = self.overflow.saturating_add(other.overflow);
        self.span = join(self.span, other.span);
        other.sources.iter().for_each(|source| insert(&mut self.sources, *source));
        other.told.iter().for_each(|source| insert(&mut self.told, *source));
    }
}

/// The pairs with a shared address by whom they mean, with what each window tells of them.
fn named(
    group: &[(WindowKey, &Window)],
    listeners: &Listeners,
    cluster: Whereabouts<'_>,
) -> BTreeMap<PairKey, Vec<(WindowKey, PairWindow)>> {
    let mut by_pair: BTreeMap<PairKey, Vec<(WindowKey, PairWindow)>> = BTreeMap::new();
    for (key, pair, seen) in listening::name(group, listeners, cluster) {
        by_pair.entry(pair).or_default().push((key, seen));
    }
    by_pair
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
    /// Whether success is all that was ever seen.
    fn is_uneventful(&self) -> bool {
        self.answered.span.is_some() && self.audited.is_none() && !self.ports.is_eventful()
    }

    /// Whether another success is all that such a window tells.
    fn learns_nothing(&self, seen: &PairWindow) -> bool {
        self.is_uneventful()
            && seen.ports.iter().all(|(_, port)| {
                port.answered
                    .span
                    .is_some_and(|ok| port.opened.span.is_none_or(|opened| opened.last <= ok.last))
            })
    }

    /// Whether more was learnt than another success.
    fn add(
        &mut self,
        key: &PairKey,
        views: &Views<'_>,
        settings: &Settings,
        node_of: &dyn Fn(PodId) -> Option<ObserverId>,
    ) -> bool {
        for (window, seen) in views {
            for traffic in seen.traffic.iter().flat_map(|by_port| by_port.values()) {
                let carried = self.carried.get_or_insert_with(|| CarriedHistory::new(settings));
                carried.add(window.start, traffic, settings);
            }
        }
        if let Some(carried) = &mut self.carried {
            views.iter().flat_map(|(_, seen)| &seen.ports).for_each(|(port, _)| carried.took(*port));
        }
        let mut eventful = self.answered.span.is_none() || self.ports.is_eventful();
        for (port, group) in combine::by_port(key, views, node_of) {
            self.answered = self.answered.plus(group.answered);
            if group.audited != Denied::default() {
                self.audited.get_or_insert_default().add(&group.audited);
                eventful = true;
            }
            self.ports.change(port, key.class == PortClass::Fixed, |history| history.add(group, settings));
        }
        eventful || self.ports.is_eventful()
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

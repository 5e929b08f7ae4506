//! Several looks at the same pair in the same stretch of time, made one by the ownership rule.

use std::collections::BTreeMap;

use crate::attribute::Peer;
use crate::inventory::PodId;
use crate::ledger::window::{Denied, Failures, PairWindow, PortWindow, Span, Tally, WindowKey, join};
use crate::ledger::{ObserverId, PairKey};
use crate::observation::{Direction, SourceKind};

/// What all nodes together saw of a port in one stretch of time.
#[derive(Clone, Default)]
pub(super) struct PortGroup {
    pub(super) denied: BTreeMap<Direction, Denied>,
    pub(super) refused: Tally,
    /// Handshakes begun, by observer: each one's count is complete for itself.
    pub(super) opened: Vec<(ObserverId, Tally)>,
    pub(super) answered: Tally,
    pub(super) audited: Denied,
}

impl PortGroup {
    /// When anything failed.
    pub(super) fn failed(&self) -> Option<Span> {
        self.denied.values().fold(self.refused.span, |span, denied| join(span, denied.attempts.span))
    }

    /// The last failure alone.
    pub(super) fn only_last(&self) -> Self {
        let last = |tally: Tally| Tally {
            count: tally.count.min(1),
            span: tally.span.map(|span| Span::at(span.last)),
        };
        let denied = self.denied.iter().map(|(direction, denied)| {
            let main = denied.reasons.iter().max_by_key(|(_, count)| **count);
            let reasons = main.map(|(reason, _)| (*reason, 1)).into_iter().collect();
            let attempts = last(denied.attempts);
            (
                *direction,
                Denied { attempts, drops: denied.drops.min(1), reasons, named: denied.named.clone() },
            )
        });
        Self { denied: denied.collect(), refused: last(self.refused), ..Self::default() }
    }
}

struct Owners {
    src: Option<ObserverId>,
    dst: Option<ObserverId>,
}

impl Owners {
    fn of(&self, direction: Direction) -> Option<ObserverId> {
        match direction {
            Direction::Egress => self.src,
            Direction::Ingress => self.dst,
        }
    }
}

type View<'a, T> = (WindowKey, &'a T);

/// The looks at each port, combined.
pub(super) fn by_port(
    key: &PairKey,
    views: &[View<'_, PairWindow>],
    node_of: &dyn Fn(PodId) -> Option<ObserverId>,
) -> BTreeMap<u16, PortGroup> {
    let mut ports: BTreeMap<u16, Vec<View<'_, PortWindow>>> = BTreeMap::new();
    for (window, pair) in views {
        for (port, seen) in &pair.ports {
            ports.entry(*port).or_default().push((*window, seen));
        }
    }
    let dst = match key.dst {
        Peer::Member(pod) | Peer::Dns(Some(pod), _) => node_of(pod),
        Peer::SharedAddress(_) | Peer::Dns(None, _) | Peer::ApiServer(_) => None,
    };
    let owners = Owners { src: node_of(key.src), dst };
    ports.into_iter().map(|(port, views)| (port, combine(&views, &owners))).collect()
}

fn combine(views: &[View<'_, PortWindow>], owners: &Owners) -> PortGroup {
    let mut group = PortGroup::default();
    for (window, port) in views {
        group.opened.push((window.observer, port.opened));
        // Success is a fact whoever saw it; its count only says whether there was any.
        group.answered = group.answered.plus(port.answered);
    }
    let failures: Vec<View<'_, Failures>> =
        views.iter().filter_map(|(window, port)| Some((*window, port.failures.as_deref()?))).collect();
    for direction in [Direction::Egress, Direction::Ingress] {
        let seen = failures.iter().filter_map(|(window, f)| Some((*window, f.denied.get(&direction)?)));
        if let Some(denied) = owned(seen.collect(), owners.of(direction)) {
            group.denied.insert(direction, denied);
        }
    }
    let audited =
        failures.iter().map(|(window, f)| (*window, &f.audited)).filter(|(_, a)| a.attempts.span.is_some());
    group.audited = owned(audited.collect(), owners.src).unwrap_or_default();
    let refused = failures.iter().map(|(window, f)| (*window, f.refused)).filter(|(_, r)| r.span.is_some());
    let refused: Vec<(WindowKey, Tally)> = refused.collect();
    let by_owner = refused.iter().find(|(window, _)| Some(window.observer) == owners.src);
    group.refused =
        by_owner.or(refused.iter().max_by_key(|(_, r)| r.count)).map_or(Tally::default(), |(_, r)| *r);
    group
}

/// The owner's look; where both kinds of source looked, the more exact one's counts and everybody's names.
fn owned(views: Vec<View<'_, Denied>>, owner: Option<ObserverId>) -> Option<Denied> {
    let from_owner = |view: &&View<'_, Denied>| Some(view.0.observer) == owner;
    let owners_views: Vec<&View<'_, Denied>> = views.iter().filter(from_owner).collect();
    let candidates = if owners_views.is_empty() { views.iter().collect() } else { owners_views };
    let rank = |view: &&&View<'_, Denied>| -> (SourceKind, u64, std::cmp::Reverse<ObserverId>) {
        (view.0.source, view.1.drops, std::cmp::Reverse(view.0.observer))
    };
    let mut chosen = candidates.iter().max_by_key(rank)?.1.clone();
    for (window, denied) in &views {
        chosen.named.extend(denied.named.iter().cloned());
        if window.source == SourceKind::Hubble && !denied.reasons.is_empty() {
            // Hubble knows the cause; counts stay those of the chosen look.
            chosen.reasons = denied.reasons.clone();
        }
    }
    Some(chosen)
}

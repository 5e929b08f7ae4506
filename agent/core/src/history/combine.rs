//! Several looks at the same pair in the same stretch of time, made one by the ownership rule.

use std::collections::BTreeMap;

use crate::attribute::Peer;
use crate::inventory::PodId;
use crate::ledger::window::{Denied, Failures, PortWindow, Span, Tally, WindowKey, join};
use crate::ledger::{ObserverId, PairKey};
use crate::observation::{Direction, SourceKind};

/// What all nodes together saw of a port in one stretch of time.
#[derive(Clone, Default)]
pub(super) struct PortGroup {
    pub(super) denied: BTreeMap<Option<Direction>, Denied>,
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
    views: &super::Views<'_>,
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
    let mut group = PortGroup { opened: opened(views), ..PortGroup::default() };
    for (_, port) in views {
        // Success is a fact whoever saw it; its count only says whether there was any.
        group.answered = group.answered.plus(port.answered);
    }
    let failures: Vec<View<'_, Failures>> =
        views.iter().filter_map(|(window, port)| Some((*window, port.failures.as_deref()?))).collect();
    for (direction, seen) in by_direction(&failures) {
        if let Some((window, mut denied)) = owned(seen, direction.and_then(|direction| owners.of(direction)))
        {
            if window.source == SourceKind::Ebpf && Some(window.observer) != owners.src {
                // A node that sees only the drops takes a SYN that is sent again for another attempt.
                let begun = exactly_begun(views, owners).unwrap_or(u64::MAX);
                denied.attempts.count = denied.attempts.count.min(begun);
            }
            group.denied.insert(direction, denied);
        }
    }
    let audited =
        failures.iter().map(|(window, f)| (*window, &f.audited)).filter(|(_, a)| a.attempts.span.is_some());
    group.audited = owned(audited.collect(), owners.src).map(|(_, audited)| audited).unwrap_or_default();
    let refused = failures.iter().map(|(window, f)| (*window, f.refused)).filter(|(_, r)| r.span.is_some());
    let rank = |(window, refused): &(WindowKey, Tally)| {
        (Some(window.observer) == owners.src, window.source, refused.count)
    };
    group.refused = refused.max_by_key(rank).map_or(Tally::default(), |(_, refused)| refused);
    group
}

/// Handshakes begun, as the opener's own sockets told; `None` when they told nothing.
fn exactly_begun(views: &[View<'_, PortWindow>], owners: &Owners) -> Option<u64> {
    let exact = |window: &WindowKey| window.source == SourceKind::Ebpf && Some(window.observer) == owners.src;
    let own = views.iter().filter(|(window, port)| exact(window) && port.opened.span.is_some());
    own.map(|(_, port)| port.opened.count).reduce(u64::saturating_add)
}

/// Handshakes begun, by observer; where one looked through both kinds of source, the more exact one's count.
fn opened(views: &[View<'_, PortWindow>]) -> Vec<(ObserverId, Tally)> {
    let mut exact: BTreeMap<ObserverId, (SourceKind, Tally)> = BTreeMap::new();
    for (window, port) in views.iter().filter(|(_, port)| port.opened.span.is_some()) {
        let known = exact.entry(window.observer).or_insert((window.source, port.opened));
        if known.0 < window.source {
            *known = (window.source, port.opened);
        }
    }
    exact.into_iter().map(|(observer, (_, opened))| (observer, opened)).collect()
}

/// Denials by direction. Where one source cannot tell the direction and another one can, they saw the same thing.
fn by_direction<'a>(failures: &[View<'a, Failures>]) -> BTreeMap<Option<Direction>, Vec<View<'a, Denied>>> {
    let mut seen: BTreeMap<Option<Direction>, Vec<View<'a, Denied>>> = BTreeMap::new();
    for (window, failures) in failures {
        for (direction, denied) in &failures.denied {
            seen.entry(*direction).or_default().push((*window, denied));
        }
    }
    if seen.len() == 2
        && let Some(undirected) = seen.remove(&None)
    {
        let directed = seen.values_mut().next();
        let same_source = |views: &Vec<View<'_, Denied>>| {
            views.iter().any(|(window, _)| undirected.iter().any(|(other, _)| other.source == window.source))
        };
        match directed {
            Some(views) if !same_source(views) => views.extend(undirected),
            _ => {
                seen.insert(None, undirected);
            }
        }
    }
    seen
}

/// The owner's look, and whose that is; where both kinds of source looked, the more exact one's counts and everybody's names.
fn owned(views: Vec<View<'_, Denied>>, owner: Option<ObserverId>) -> Option<(WindowKey, Denied)> {
    let from_owner = |view: &&View<'_, Denied>| Some(view.0.observer) == owner;
    let owners_views: Vec<&View<'_, Denied>> = views.iter().filter(from_owner).collect();
    let candidates = if owners_views.is_empty() { views.iter().collect() } else { owners_views };
    let rank = |view: &&&View<'_, Denied>| -> (SourceKind, u64, std::cmp::Reverse<ObserverId>) {
        (view.0.source, view.1.drops, std::cmp::Reverse(view.0.observer))
    };
    let (looked, chosen) = candidates.iter().max_by_key(rank)?;
    let mut chosen = (*chosen).clone();
    for (window, denied) in &views {
        chosen.named.extend(denied.named.iter());
        if window.source == SourceKind::Hubble && !denied.reasons.is_empty() {
            // Hubble knows the cause; counts stay those of the chosen look.
            chosen.reasons = denied.reasons.clone();
        }
    }
    Some((*looked, chosen))
}

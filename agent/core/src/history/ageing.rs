//! What is over is forgotten. With a horizon, counts are kept in two halves of it, so that they reach back between half of
//! it and all of it; pairs, and what is told of them, are forgotten when they were quiet for longer than the horizon. What
//! is blocked still keeps the time since when it is, however long ago that was.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::attribute::Peer;
use crate::inventory::PodId;
use crate::ledger::PortClass;
use crate::time::Timestamp;

use super::{History, PairHistory, PortHistory};

/// Ports on which nothing failed are remembered of a pair that has no more than so many.
const FEW_PORTS: usize = 64;

impl History {
    /// Forgets what is over by `now`. Whether a new half of the horizon began.
    pub fn age(&mut self, now: Timestamp, horizon: Duration) -> bool {
        let turned = match self.half {
            None => {
                self.half = Some(now);
                false
            }
            Some(half) if now >= half.plus(horizon / 2) => {
                self.half = Some(now);
                self.observers_before = std::mem::take(&mut self.observers);
                self.ambiguous.clear();
                true
            }
            Some(_) => false,
        };
        let since = now.minus(horizon);
        let eventful = &mut self.eventful;
        self.pairs.retain(|key, history| {
            if turned && let Some(carried) = &mut history.carried {
                carried.turn();
            }
            let was = history.ports.is_eventful() || history.audited.is_some();
            let keep = history.age(since, key.class == PortClass::Fixed);
            if was && !(keep && history.ports.is_eventful()) {
                eventful.insert(key.src);
            }
            keep
        });
        self.listeners.retain(|_, listener| listener.at >= since);
        turned
    }

    /// Forgets everything about these pods.
    pub fn forget(&mut self, pods: &BTreeSet<PodId>) {
        self.pairs.retain(|key, _| {
            let peer = match key.dst {
                Peer::Member(pod) | Peer::Dns(Some(pod), _) => Some(pod),
                Peer::SharedAddress(_) | Peer::Dns(None, _) | Peer::ApiServer(_) => None,
            };
            !pods.contains(&key.src) && !peer.is_some_and(|peer| pods.contains(&peer))
        });
        self.listeners.retain(|_, listener| !pods.contains(&listener.pod));
    }
}

impl PairHistory {
    /// Forgets what ended before `since`. `false`: all of it did.
    fn age(&mut self, since: Timestamp, fixed: bool) -> bool {
        let few = self.ports.len() <= FEW_PORTS;
        self.ports.retain(|_, port| port.age(since) || (fixed && few));
        if self
            .audited
            .as_ref()
            .and_then(|audited| audited.attempts.span)
            .is_some_and(|span| span.last < since)
        {
            self.audited = None;
        }
        let carried = self.carried.as_ref().and_then(super::CarriedHistory::last);
        let last = self.answered.span.map(|span| span.last).max(carried);
        last >= Some(since) || self.audited.is_some() || self.ports.is_eventful()
    }
}

impl PortHistory {
    /// Forgets what ended before `since`. Whether it is still worth its place.
    fn age(&mut self, since: Timestamp) -> bool {
        if self.recovery.as_ref().is_some_and(|recovery| recovery.at < since) {
            self.recovery = None;
        }
        if self.streak.last().is_some_and(|last| last < since) {
            self.streak = super::Streak::default();
        }
        self.is_eventful()
    }
}

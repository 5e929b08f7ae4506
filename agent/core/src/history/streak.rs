//! Failures without success in between, and when they amount to a block.

use std::collections::BTreeMap;

use crate::drop_reason::{DropClass, DropReason};
use crate::ledger::ObserverId;
use crate::ledger::window::{Denied, Span, Tally};
use crate::observation::Direction;
use crate::settings::Settings;
use crate::time::Timestamp;

use super::combine::PortGroup;

/// How connections fail, when they fail for good.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Blocked {
    /// Packets are dropped by something that says so.
    Denied,
    /// Connections are answered with a reset.
    Refused,
    /// Connections are not answered at all.
    Unanswered,
}

/// Failures since the last success.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Streak {
    /// Dropped, by direction where it is known.
    pub denied: BTreeMap<Option<Direction>, Denied>,
    /// Answered with a reset.
    pub refused: Tally,
    /// Handshakes begun, by observer. Never joined over observers: their clocks differ by more than a grace.
    pub(super) opened: BTreeMap<ObserverId, Tally>,
}

impl Streak {
    /// Whether nothing failed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.denied.is_empty() && self.refused.span.is_none() && self.opened_span().is_none()
    }

    /// When anything failed last, or was tried.
    pub(super) fn last(&self) -> Option<Timestamp> {
        let denied = self.denied.values().filter_map(|denied| denied.attempts.span);
        let opened = self.opened.values().filter_map(|opened| opened.span);
        denied.chain(opened).chain(self.refused.span).map(|span| span.last).max()
    }

    pub(super) fn absorb(&mut self, group: &PortGroup) {
        for (direction, denied) in &group.denied {
            self.denied.entry(*direction).or_default().add(denied);
        }
        self.refused = self.refused.plus(group.refused);
        for (observer, opened) in &group.opened {
            self.open(*observer, *opened);
        }
    }

    /// Starts with the handshakes that were begun after `ok`.
    pub(super) fn pending(&mut self, group: &PortGroup, ok: Timestamp) {
        for (observer, opened) in &group.opened {
            if let Some(span) = opened.span.filter(|span| span.last > ok) {
                self.open(*observer, Tally { count: 0, span: Some(Span::at(span.last)) });
            }
        }
    }

    fn open(&mut self, observer: ObserverId, opened: Tally) {
        if opened.span.is_some() {
            let known = self.opened.entry(observer).or_default();
            *known = known.plus(opened);
        }
    }

    /// From the first to the last handshake, as the most patient observer saw it.
    fn opened_span(&self) -> Option<Span> {
        let spans = self.opened.values().filter_map(|opened| opened.span);
        spans.max_by_key(|span| (span.last.since(span.first), span.first))
    }

    /// Adds another port's failures.
    pub fn add(&mut self, other: &Streak) {
        for (direction, denied) in &other.denied {
            self.denied.entry(*direction).or_default().add(denied);
        }
        self.refused = self.refused.plus(other.refused);
        for (observer, opened) in &other.opened {
            self.open(*observer, *opened);
        }
    }

    /// All denials, both directions.
    #[must_use]
    pub fn all_denied(&self) -> Denied {
        let mut all = Denied::default();
        for denied in self.denied.values() {
            all.add(denied);
        }
        all
    }

    /// The direction in which most packets were dropped.
    #[must_use]
    pub fn direction(&self) -> Option<Direction> {
        self.denied
            .iter()
            .max_by_key(|(direction, denied)| (denied.drops, std::cmp::Reverse(**direction)))
            .and_then(|(direction, _)| *direction)
    }

    /// The reason most packets were dropped for.
    #[must_use]
    pub fn reason(&self) -> Option<DropReason> {
        let all = self.all_denied();
        all.reasons
            .iter()
            .max_by_key(|(reason, count)| (**count, std::cmp::Reverse(**reason)))
            .map(|(r, _)| *r)
    }

    /// Handshakes begun: the most any one node saw, and no less than what failed.
    #[must_use]
    pub fn opened(&self) -> u64 {
        let begun = self.opened.values().map(|opened| opened.count).max().unwrap_or(0);
        begun.max(self.all_denied().attempts.count).max(self.refused.count)
    }

    /// Handshakes that failed in this way.
    #[must_use]
    pub fn failed(&self, blocked: Blocked) -> u64 {
        match blocked {
            Blocked::Denied => self.all_denied().attempts.count,
            Blocked::Refused => self.refused.count,
            Blocked::Unanswered => self.opened(),
        }
    }

    /// From the first to the last failure of this kind.
    #[must_use]
    pub fn span(&self, blocked: Blocked) -> Option<Span> {
        match blocked {
            Blocked::Denied => self.all_denied().attempts.span,
            Blocked::Refused => self.refused.span,
            Blocked::Unanswered => self.opened_span(),
        }
    }

    /// Whether this amounts to a block, past the graces. Denials: several attempts over some seconds, or one
    /// handshake that is dropped again and again for as long as an unanswered one may take. Silence counts only
    /// where nothing was denied or refused.
    #[must_use]
    pub fn blocked(&self, settings: &Settings) -> Option<Blocked> {
        let lasting = |span: Option<Span>| span.map_or(std::time::Duration::ZERO, |s| s.last.since(s.first));
        let denied = self.all_denied();
        if denied.attempts.span.is_some() {
            let over = lasting(denied.attempts.span);
            let patience = match self.reason().map(DropReason::class) {
                Some(DropClass::Transient) => settings.transient_grace,
                _ => settings.denied_grace,
            };
            let repeated = denied.attempts.count >= settings.denied_attempts && over >= patience;
            let stubborn = denied.drops >= 2 && over >= settings.unanswered_grace.max(patience);
            if repeated || stubborn {
                return Some(Blocked::Denied);
            }
            // A stray drop does not explain why far more attempts, which met none, got no answer.
            if denied.attempts.count.saturating_mul(2) >= self.opened() {
                return None;
            }
        }
        if self.refused.span.is_some() {
            return (self.refused.count >= 2 && lasting(self.refused.span) >= settings.refused_grace)
                .then_some(Blocked::Refused);
        }
        (lasting(self.opened_span()) >= settings.unanswered_grace).then_some(Blocked::Unanswered)
    }
}

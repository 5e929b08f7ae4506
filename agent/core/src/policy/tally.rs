//! What becomes of ports when facts are missing. Enters: what each rule does to which ports, on every way that the
//! missing facts leave open; leaves: the ports for which all ways end alike, and on what grounds. Must not know rules.

use std::collections::BTreeSet;

use super::answer::Note;
use super::model::Doubt;
use super::ports::PortSet;

/// What speaks for an end, or for not knowing it. Numbers are those of policies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ground {
    /// A matching allow.
    Allow(usize),
    /// A matching deny.
    Deny(usize),
    /// Selection by a policy that means default deny.
    DefaultDeny(usize),
    /// Selection by a policy of which it is not known whether it means default deny towards this peer.
    PerhapsDefaultDeny(usize),
    /// A rule that may match.
    Perhaps(usize, Doubt),
    /// Something no document defines.
    Undefined(&'static str),
}

/// Ports by how they may end. A port that may end in one way only surely ends so.
#[derive(Debug, Default)]
pub(super) struct Tally {
    may_open: PortSet,
    may_close: PortSet,
    grounds: Vec<(PortSet, Ground)>,
    pub(super) notes: BTreeSet<Note>,
}

impl Tally {
    /// There is a way on which these ports are open.
    pub(super) fn open(&mut self, ports: &PortSet) {
        self.may_open.add(ports);
    }

    /// There is a way on which these ports are closed.
    pub(super) fn close(&mut self, ports: &PortSet) {
        self.may_close.add(ports);
    }

    /// Remembers what speaks for the end of these ports.
    pub(super) fn ground(&mut self, ports: &PortSet, ground: Ground) {
        self.grounds.push((ports.clone(), ground));
    }

    /// The ports that are open on every way.
    pub(super) fn opened(&self) -> PortSet {
        self.may_open.without(&self.may_close)
    }

    /// The ports that are closed on every way.
    pub(super) fn closed(&self) -> PortSet {
        self.may_close.without(&self.may_open)
    }

    /// The ports that may be either.
    pub(super) fn unknown(&self) -> PortSet {
        self.may_open.intersect(&self.may_close)
    }

    /// What a reader takes from the grounds of any of these ports; sorted, each once.
    pub(super) fn grounds<T: Ord>(&self, ports: &PortSet, read: impl Fn(Ground) -> Option<T>) -> BTreeSet<T> {
        let concern = self.grounds.iter().filter(|(of, _)| !of.intersect(ports).is_empty());
        concern.filter_map(|(_, ground)| read(*ground)).collect()
    }
}

//! The stories of all pairs, sorted, in little space: by who calls, then by who is called.

use std::collections::BTreeMap;

use crate::attribute::Peer;
use crate::facts::Protocol;
use crate::inventory::PodId;
use crate::ledger::window::Tally;
use crate::ledger::{PairKey, PortClass};

use super::{PairHistory, PortHistory, Streak};

/// What is said of a port on which nothing ever failed.
static UNEVENTFUL: PortHistory = PortHistory {
    streak: Streak {
        denied: BTreeMap::new(),
        refused: Tally { count: 0, span: None },
        opened: BTreeMap::new(),
    },
    recovery: None,
};

/// What is said of a pair that is not known.
static NOTHING: PairHistory = PairHistory {
    ports: Ports::None,
    answered: Tally { count: 0, span: None },
    audited: None,
    carried: None,
};

/// The stories of a pair's ports. Most pairs have one port, on which nothing ever failed.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Ports {
    /// None that is remembered.
    #[default]
    None,
    /// One, on which nothing ever failed.
    Uneventful(u16),
    /// Any.
    Any(Box<BTreeMap<u16, PortHistory>>),
}

impl Ports {
    /// By port, sorted.
    pub fn iter(&self) -> impl Iterator<Item = (u16, &PortHistory)> {
        let (one, any) = match self {
            Self::None => (None, None),
            Self::Uneventful(port) => (Some((*port, &UNEVENTFUL)), None),
            Self::Any(ports) => (None, Some(ports.iter().map(|(port, history)| (*port, history)))),
        };
        one.into_iter().chain(any.into_iter().flatten())
    }

    /// The stories.
    pub fn values(&self) -> impl Iterator<Item = &PortHistory> {
        self.iter().map(|(_, history)| history)
    }

    /// The ports, sorted.
    pub fn keys(&self) -> impl Iterator<Item = u16> {
        self.iter().map(|(port, _)| port)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Uneventful(_) => 1,
            Self::Any(ports) => ports.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The story of a port.
    #[must_use]
    pub fn get(&self, port: u16) -> Option<&PortHistory> {
        self.iter().find(|(known, _)| *known == port).map(|(_, history)| history)
    }

    /// Whether anything failed on any of them.
    #[must_use]
    pub fn is_eventful(&self) -> bool {
        self.values().any(PortHistory::is_eventful)
    }

    /// Changes the story of a port; `keep`: whether it is remembered even if nothing failed.
    pub(super) fn change(&mut self, port: u16, keep: bool, change: impl FnOnce(&mut PortHistory)) {
        let mut ports = match std::mem::take(self) {
            Self::Any(ports) => ports,
            Self::Uneventful(known) => Box::new(BTreeMap::from([(known, PortHistory::default())])),
            Self::None => Box::default(),
        };
        let history = ports.entry(port).or_default();
        change(history);
        if !keep && !history.is_eventful() {
            ports.remove(&port);
        }
        self.put(ports);
    }

    /// Keeps only those of which `keep` says so.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(u16, &mut PortHistory) -> bool) {
        match std::mem::take(self) {
            Self::Any(mut ports) => {
                ports.retain(|port, history| keep(*port, history));
                self.put(ports);
            }
            uneventful => *self = uneventful,
        }
    }

    #[expect(clippy::box_collection, reason = "most pairs have no such map: what they have must be small")]
    fn put(&mut self, ports: Box<BTreeMap<u16, PortHistory>>) {
        let uneventful = match ports.first_key_value() {
            None => Some(Self::None),
            Some((port, history)) if ports.len() == 1 && !history.is_eventful() => {
                Some(Self::Uneventful(*port))
            }
            Some(_) => None,
        };
        *self = uneventful.unwrap_or(Self::Any(ports));
    }
}

impl std::ops::Index<&u16> for Ports {
    type Output = PortHistory;

    fn index(&self, port: &u16) -> &PortHistory {
        self.get(*port).unwrap_or(&UNEVENTFUL)
    }
}

type Member = (PodId, Protocol, PortClass);
type Other = (Peer, Protocol, PortClass);

/// Whom a pod calls.
#[derive(Clone, PartialEq, Debug, Default)]
struct Calls {
    members: Vec<(Member, PairHistory)>,
    others: Vec<(Other, PairHistory)>,
}

/// The stories of all pairs.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Stories {
    of_src: BTreeMap<PodId, Calls>,
    count: usize,
}

fn find<K: Ord + Copy>(of: &[(K, PairHistory)], key: K) -> Result<usize, usize> {
    of.binary_search_by_key(&key, |(known, _)| *known)
}

fn enter<'a, K: Ord + Copy>(
    of: &'a mut Vec<(K, PairHistory)>,
    key: K,
    new: impl FnOnce() -> PairHistory,
    count: &mut usize,
) -> &'a mut PairHistory {
    let place = find(of, key).unwrap_or_else(|place| {
        *count += 1;
        if of.len() == of.capacity() {
            // There may be thousands of such lists: doubling them would waste much.
            of.reserve_exact(of.len() / 16 + 1);
        }
        of.insert(place, (key, new()));
        place
    });
    &mut of[place].1
}

impl Calls {
    fn iter(&self, src: PodId) -> impl Iterator<Item = (PairKey, &PairHistory)> {
        let members = self.members.iter().map(move |((dst, protocol, class), history)| {
            (PairKey { src, dst: Peer::Member(*dst), protocol: *protocol, class: *class }, history)
        });
        let others = self.others.iter().map(move |((dst, protocol, class), history)| {
            (PairKey { src, dst: *dst, protocol: *protocol, class: *class }, history)
        });
        members.chain(others)
    }
}

impl Stories {
    /// The story of a pair.
    #[must_use]
    pub fn get(&self, key: &PairKey) -> Option<&PairHistory> {
        let calls = self.of_src.get(&key.src)?;
        match key.dst {
            Peer::Member(dst) => {
                let place = find(&calls.members, (dst, key.protocol, key.class)).ok()?;
                calls.members.get(place).map(|(_, history)| history)
            }
            dst => {
                let place = find(&calls.others, (dst, key.protocol, key.class)).ok()?;
                calls.others.get(place).map(|(_, history)| history)
            }
        }
    }

    /// The story of a pair, which begins as `new` says.
    pub(super) fn entry(&mut self, key: PairKey, new: impl FnOnce() -> PairHistory) -> &mut PairHistory {
        let calls = self.of_src.entry(key.src).or_default();
        match key.dst {
            Peer::Member(dst) => {
                enter(&mut calls.members, (dst, key.protocol, key.class), new, &mut self.count)
            }
            dst => enter(&mut calls.others, (dst, key.protocol, key.class), new, &mut self.count),
        }
    }

    /// The pairs in which `src` calls, sorted.
    pub fn of(&self, src: PodId) -> impl Iterator<Item = (PairKey, &PairHistory)> {
        self.of_src.get(&src).into_iter().flat_map(move |calls| calls.iter(src))
    }

    /// All pairs, sorted.
    pub fn iter(&self) -> impl Iterator<Item = (PairKey, &PairHistory)> {
        self.of_src.iter().flat_map(|(src, calls)| calls.iter(*src))
    }

    /// The pods that call anybody, sorted.
    pub fn callers(&self) -> impl Iterator<Item = PodId> {
        self.of_src.keys().copied()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.of_src.is_empty()
    }

    /// Keeps only those of which `keep` says so.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&PairKey, &mut PairHistory) -> bool) {
        let mut left = 0;
        self.of_src.retain(|src, calls| {
            let src = *src;
            calls.members.retain_mut(|((dst, protocol, class), history)| {
                let dst = Peer::Member(*dst);
                keep(&PairKey { src, dst, protocol: *protocol, class: *class }, history)
            });
            calls.others.retain_mut(|((dst, protocol, class), history)| {
                keep(&PairKey { src, dst: *dst, protocol: *protocol, class: *class }, history)
            });
            if calls.members.capacity() > calls.members.len() + calls.members.len() / 4 {
                calls.members.shrink_to_fit();
            }
            left += calls.members.len() + calls.others.len();
            !calls.members.is_empty() || !calls.others.is_empty()
        });
        self.count = left;
    }
}

impl std::ops::Index<&PairKey> for Stories {
    type Output = PairHistory;

    /// The story of a pair; of one that is not known there is none to tell.
    fn index(&self, key: &PairKey) -> &PairHistory {
        self.get(key).unwrap_or(&NOTHING)
    }
}

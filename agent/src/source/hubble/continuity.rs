//! What was received from each node, so that a stream that breaks goes on without a gap or a double count. Enters: every
//! message's fingerprint and the servers' own counts; leaves: how far back to ask, which messages were received before, and
//! the gaps. Knows no clock but the one it is given, no connection, and no job.
//!
//! Nothing here relies on the clocks of nodes. A stream that is resumed asks for the newest so many events rather than for
//! those since a time: servers apply such a time to everything that follows, and one whose clock is set back would fall silent.
//! Events that re-appear are recognised by their bytes, each as often as it was received. A gap is told unless one of them
//! re-appears, or the server's count of flows shows that its ring still holds everything since all was known to be received.

mod track;

use std::hash::BuildHasher;
use std::time::{Duration, Instant};

use firedoor_core::inventory::{FastMap, node_name};
use firedoor_core::time::Timestamp;

use track::{Beginning, Track};
pub(super) use track::{Fate, Gap};

/// Fingerprints kept of all nodes together, and of each one: more than the largest ring (65,535) can hold.
const MOST_KEPT: u64 = 1 << 18;
const MOST_KEPT_OF_A_NODE: u64 = 1 << 16;
/// ... and at least so many: what is asked for is never more.
const LEAST_KEPT: u64 = 256;
/// The ring of a server that does not tell its size.
const USUAL_RING: u64 = 4096;
/// Asked for beyond what can have come since: they show that nothing is missing between them.
const OVERLAP: u64 = 1024;
/// Nodes behind one relay beyond this many are not followed one by one.
const MOST_NODES: usize = 16_384;

/// What a server says of its ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Ring {
    /// Flows seen since it started.
    pub(super) seen: u64,
    /// Events it holds.
    pub(super) held: u64,
    /// Events it can hold.
    pub(super) room: u64,
    /// For how long it has been running.
    pub(super) uptime: Duration,
}

/// When a server was asked and when it answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) at: Instant,
    pub(super) answered: Instant,
}

/// What was received from each node.
pub(super) struct Continuity {
    /// One server that is a node tells of itself only, whatever it calls itself.
    relay: bool,
    tracks: Vec<Track>,
    by_name: FastMap<Box<str>, usize>,
    /// The node that told last: mostly it tells next, too.
    last: (Vec<u8>, usize),
    hasher: foldhash::quality::FixedState,
    /// What was asked for last, and what the first question left out: for nodes that a relay finds later.
    number: u64,
    floor: Option<Timestamp>,
}

impl Continuity {
    pub(super) fn new() -> Self {
        Self {
            relay: false,
            tracks: Vec::new(),
            by_name: FastMap::default(),
            last: (Vec::new(), 0),
            hasher: foldhash::quality::FixedState::with_seed(0x6875_6262_6c65),
            number: USUAL_RING,
            floor: None,
        }
    }

    /// Whether the server is a relay. One that changes is another server: nothing that was known of it holds.
    pub(super) fn set_relay(&mut self, relay: bool) {
        if self.relay != relay {
            *self = Self { relay, ..Self::new() };
        }
    }

    /// A message's fingerprint.
    pub(super) fn fingerprint(&self, message: &[u8]) -> u64 {
        self.hasher.hash_one(message)
    }

    /// What a server says of its ring; of which node: empty for the server itself.
    pub(super) fn ring(&mut self, node: &str, ring: Ring, asked: Asked) {
        let index = self.index(node.as_bytes());
        if let Some(track) = self.tracks.get_mut(index) {
            track.ring(ring, asked);
        }
    }

    /// A stream begins. Gives how many of the newest events to ask for, of each node. Older ones than `floor` were not asked for
    /// when they happened; `None`: the question is the one that was asked before.
    pub(super) fn begin(&mut self, now: Instant, floor: Option<Timestamp>) -> u64 {
        if !self.relay {
            self.index(b"");
        }
        self.floor = self.floor.or(floor);
        let share = MOST_KEPT / u64::try_from(self.tracks.len().max(1)).unwrap_or(MOST_KEPT);
        let most = share.clamp(LEAST_KEPT, MOST_KEPT_OF_A_NODE);
        self.number = self.tracks.iter().map(Track::wanted).max().unwrap_or(USUAL_RING).min(most);
        let keep = usize::try_from(most).unwrap_or(usize::MAX);
        for track in &mut self.tracks {
            track.begin(Beginning { number: self.number, keep, floor }, now);
        }
        self.number
    }

    /// Nothing is asked for from now on: what happens until the next question is nobody's gap.
    pub(super) fn pause(&mut self) {
        for track in &mut self.tracks {
            track.pause();
        }
    }

    /// A message. Gives what to do with it.
    pub(super) fn take(&mut self, node: &[u8], at: Option<Timestamp>, fingerprint: u64) -> Fate {
        let index = self.index(node);
        self.tracks.get_mut(index).map_or(Fate::New, |track| track.take(at, fingerprint))
    }

    /// The server lost events because it was not read fast enough. Gives whether they may be told now; else that is decided
    /// later: it begins with the oldest events of its ring, and the oldest are overwritten first.
    pub(super) fn overrun(&mut self, node: &[u8], count: u64) -> bool {
        let index = self.index(node);
        self.tracks.get_mut(index).is_none_or(|track| track.overrun(count))
    }

    /// A relay says that it does not get a node's flows any more: it asks the node anew by itself when it is back, as we
    /// asked.
    pub(super) fn lost_sight(&mut self, node: &str) {
        let index = self.index(node.as_bytes());
        if self.relay
            && let Some(track) = self.tracks.get_mut(index)
        {
            track.begin_again();
        }
    }

    /// Everything that came was read, and nothing more is there: what came until `settle` ago is complete.
    pub(super) fn drained(&mut self, now: Instant, settle: Duration) {
        for track in &mut self.tracks {
            track.drained(now, settle);
        }
    }

    /// The gaps that are certain by now, each once, with the node's name.
    pub(super) fn gaps(&mut self) -> impl Iterator<Item = (&str, Gap)> {
        self.tracks.iter_mut().filter_map(|track| {
            let gap = track.gap()?;
            Some((&*track.name, gap))
        })
    }

    /// The newest event of any node.
    pub(super) fn newest(&self) -> Option<Timestamp> {
        self.tracks.iter().filter_map(|track| track.newest).max()
    }

    #[inline]
    fn index(&mut self, node: &[u8]) -> usize {
        if !self.tracks.is_empty() && (!self.relay || self.last.0 == node) {
            return self.last.1;
        }
        self.find(node)
    }

    fn find(&mut self, node: &[u8]) -> usize {
        let name = String::from_utf8_lossy(node);
        let name = if self.relay { node_name(&name) } else { "" };
        let index = match self.by_name.get(name) {
            Some(index) => *index,
            None if self.tracks.len() < MOST_NODES => {
                let index = self.tracks.len();
                let share = MOST_KEPT / (index as u64 + 1);
                let most = share.clamp(LEAST_KEPT, MOST_KEPT_OF_A_NODE);
                let keep = usize::try_from(most).unwrap_or(usize::MAX);
                self.tracks
                    .push(Track::new(name, Beginning { number: self.number, keep, floor: self.floor }));
                self.by_name.insert(name.into(), index);
                index
            }
            None => usize::MAX,
        };
        self.last = (node.to_vec(), index);
        index
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

//! What was received from one node. Enters: fingerprints in the order of arrival, the node's own counts; leaves: whether a
//! message is new, and gaps. See the module above for why.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use firedoor_core::inventory::FastMap;
use firedoor_core::time::Timestamp;

use crate::hubble::values::HUBBLE_RING_BUFFER;

use super::{Asked, OVERLAP, Ring, USUAL_RING};

/// A replay begins within so many times what events take to settle.
const SLOW_START: u32 = 10;
/// After so much quiet nothing of a replay is still to come.
const FORGET: Duration = Duration::from_secs(60);
/// This share of a ring may hold events that are no flows, which the server does not count as seen.
const NO_FLOWS: u64 = 8;

/// What to do with a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// It is new.
    New,
    /// It is new, and so are the losses that were held back before it.
    NewAfter(u64),
    /// It was received before.
    Known,
    /// It happened before anybody asked.
    History,
}

/// Events that were never received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Gap {
    /// Why.
    pub(crate) cause: &'static str,
    /// The last time before it that is known.
    pub(crate) at: Option<Timestamp>,
    /// How many at most: the server counts all its flows, asked for or not. Never less than were lost, unless the server
    /// cannot tell or was restarted: what happened while it was not running nobody counted.
    pub(crate) count: u64,
}

/// The ring's newest events, sent once more.
struct Replay {
    /// What was received before, how often, and whether from before any gap that is in doubt.
    known: FastMap<u64, (u32, bool)>,
    /// Messages that it may still consist of.
    left: u64,
    /// When something of it came last, or when it was asked for; `None`: it was not asked for yet.
    last: Option<Instant>,
    /// Whether anything came, and since it was looked last.
    came: bool,
    fresh: bool,
    /// What is older was not asked for when it happened.
    floor: Timestamp,
    /// Nothing was asked for before.
    first: bool,
    /// The gap, unless something that is known re-appears.
    doubt: Option<Gap>,
    /// What of it stays in doubt when only what came after that re-appears.
    older: Option<Gap>,
    /// Losses told since the last event: what follows shows whether it was known what was lost.
    overrun: u64,
}

/// How a replay is to be judged.
#[derive(Clone, Copy)]
pub(super) struct Beginning {
    /// How many of the newest events were asked for.
    pub(super) number: u64,
    /// How many fingerprints to keep.
    pub(super) keep: usize,
    /// What is older was not asked for when it happened; `None`: all of it was.
    pub(super) floor: Option<Timestamp>,
}

/// One node.
pub(super) struct Track {
    pub(super) name: Box<str>,
    pub(super) newest: Option<Timestamp>,
    /// Fingerprints in the order of arrival.
    recent: VecDeque<u64>,
    keep: usize,
    /// So many of the last ones came after a gap that is still in doubt.
    unproven: usize,
    /// Of the flows that the server counted, so many are certainly done with.
    handled: Option<u64>,
    /// The server's count at a time, to become certain when everything from before that time has come.
    candidate: Option<(u64, Instant)>,
    latest: Option<Ring>,
    /// When the server started, by our clock: between these.
    started: Option<(Instant, Instant)>,
    restarted: bool,
    paused: bool,
    replay: Option<Replay>,
    /// What was asked for last.
    number: u64,
    /// A gap that is certain and not told yet.
    owed: Option<Gap>,
}

impl Track {
    /// A node that was never heard of.
    pub(super) fn new(name: &str, beginning: Beginning) -> Self {
        let mut track = Self {
            name: name.into(),
            newest: None,
            recent: VecDeque::new(),
            keep: beginning.keep,
            unproven: 0,
            handled: None,
            candidate: None,
            latest: None,
            started: None,
            restarted: false,
            paused: false,
            replay: None,
            number: beginning.number,
            owed: None,
        };
        track.replay = Some(track.replay_of(None, beginning.floor, None));
        track
    }

    pub(super) fn ring(&mut self, ring: Ring, asked: Asked) {
        let started = asked.at.checked_sub(ring.uptime).zip(asked.answered.checked_sub(ring.uptime));
        let later = |(old, new): ((Instant, Instant), (Instant, Instant))| new.0 > old.1;
        let fewer = self.latest.is_some_and(|before| ring.seen < before.seen);
        if fewer || self.started.zip(started).is_some_and(later) {
            self.restarted = true;
            self.candidate = None;
        }
        self.started = started;
        self.latest = Some(ring);
        if self.candidate.is_none() && !self.restarted {
            self.candidate = Some((ring.seen, asked.answered));
        }
    }

    /// How many events to ask for.
    pub(super) fn wanted(&self) -> u64 {
        let Some(ring) = self.latest else { return USUAL_RING };
        let all = ring.room.max(ring.held).saturating_add(1);
        match self.handled {
            Some(handled) if !self.restarted => {
                let came = ring.seen.saturating_sub(handled);
                all.min(came.saturating_add(came / 4).saturating_add(OVERLAP))
            }
            _ => all,
        }
    }

    /// What happens from now on is not asked for.
    pub(super) fn pause(&mut self) {
        (self.paused, self.handled, self.candidate, self.replay) = (true, None, None, None);
        self.unproven = 0;
    }

    /// The node's ring is about to be replayed.
    pub(super) fn begin(&mut self, beginning: Beginning, now: Instant) {
        (self.number, self.keep) = (beginning.number, beginning.keep);
        self.forget();
        let mut floor = beginning.floor;
        let mut doubt = None;
        let older = self.in_doubt().filter(|_| self.unproven > 0);
        let gap = |at, cause, count| Gap { cause, at, count };
        // What was heard within a gap does not end it.
        let since = older.map_or(self.newest, |older| older.at);
        if let Some(ring) = self.latest {
            let reached = ring.seen.saturating_sub(ring.held.min(self.number));
            match self.handled {
                Some(_) if self.restarted => {
                    let before = self.owed.map_or(0, |owed| owed.count);
                    self.owed = Some(gap(self.newest, "restart", reached.max(1).saturating_add(before)));
                    self.recent.clear();
                    self.unproven = 0;
                    self.handled = Some(reached);
                    self.candidate = Some((ring.seen, now));
                    // A node that started anew may have another clock, and nothing in its ring is from before.
                    floor = None;
                }
                Some(handled) => {
                    let within = ring.held.min(self.number);
                    let within_reach = ring.seen.saturating_sub(handled) <= within - within / NO_FLOWS;
                    if !within_reach && !self.asks_for_all_there_ever_was(ring) {
                        doubt = Some(gap(since, "gap", reached.saturating_sub(handled).max(1)));
                    }
                }
                None => self.handled = Some(ring.seen),
            }
            self.restarted = false;
        } else if !self.recent.is_empty() && !self.paused {
            doubt = Some(gap(since, "gap", 1));
        }
        self.paused = false;
        if doubt.is_none() {
            self.unproven = 0;
        }
        let replay = self.replay_of(Some(now), floor, doubt);
        self.replay = Some(Replay { older: older.filter(|_| doubt.is_some()), ..replay });
    }

    /// A ring that was never full has lost nothing. With room to spare: it goes on filling until it is read.
    fn asks_for_all_there_ever_was(&self, ring: Ring) -> bool {
        ring.room > 0 && ring.held <= ring.room - ring.room / NO_FLOWS && ring.held <= self.number
    }

    fn in_doubt(&self) -> Option<Gap> {
        self.replay.as_ref().and_then(|replay| replay.doubt)
    }

    /// The relay will replay this node by itself, once it is back.
    pub(super) fn begin_again(&mut self) {
        let open = self.in_doubt();
        let before = open.map_or(0, |open| open.count);
        let count = before.saturating_add(u64::from(!self.recent.is_empty()));
        let at = open.map_or(self.newest, |open| open.at);
        let doubt = (count > 0).then_some(Gap { cause: "gap", at, count });
        let replay = self.replay_of(None, None, doubt);
        self.replay = Some(Replay { older: open.filter(|_| self.unproven > 0), ..replay });
    }

    fn replay_of(&self, last: Option<Instant>, floor: Option<Timestamp>, doubt: Option<Gap>) -> Replay {
        let mut known: FastMap<u64, (u32, bool)> = FastMap::default();
        let proven = self.recent.len().saturating_sub(self.unproven);
        for (index, fingerprint) in self.recent.iter().enumerate() {
            let (times, is_proven) = known.entry(*fingerprint).or_default();
            *times += 1;
            *is_proven |= index < proven;
        }
        Replay {
            first: self.recent.is_empty() && doubt.is_none() && floor.is_some(),
            left: self.number,
            floor: floor.unwrap_or(Timestamp::MIN),
            overrun: 0,
            came: false,
            fresh: false,
            older: None,
            known,
            last,
            doubt,
        }
    }

    #[inline]
    pub(super) fn take(&mut self, at: Option<Timestamp>, fingerprint: u64) -> Fate {
        let fate = if self.replay.is_some() { self.replayed(at, fingerprint) } else { Fate::New };
        if fate != Fate::Known {
            self.newest = self.newest.max(at);
            self.recent.push_back(fingerprint);
            self.forget();
        }
        fate
    }

    fn replayed(&mut self, at: Option<Timestamp>, fingerprint: u64) -> Fate {
        let Some(replay) = &mut self.replay else { return Fate::New };
        replay.left = replay.left.saturating_sub(1);
        let over = replay.left == 0;
        // Its time is noted when there is time: see `drained`.
        replay.came = true;
        replay.fresh = true;
        let fate = match replay.known.get_mut(&fingerprint) {
            Some((times, proven)) if *times > 0 => {
                *times -= 1;
                // Whatever was lost before it was known, too, or is in doubt already.
                replay.overrun = 0;
                let older = replay.older.take();
                if *proven {
                    replay.doubt = None;
                    self.unproven = 0;
                } else if older.is_some() {
                    replay.doubt = older;
                }
                Fate::Known
            }
            _ if at.is_some_and(|at| at < replay.floor) => Fate::History,
            _ => {
                self.unproven += usize::from(replay.doubt.is_some());
                let first = std::mem::take(&mut replay.first);
                match std::mem::take(&mut replay.overrun) {
                    count if count > 0 && !first => Fate::NewAfter(count),
                    _ => Fate::New,
                }
            }
        };
        if over {
            self.decide();
        }
        fate
    }

    /// Whether the loss may be told now. In a replay what comes next decides: an event that is known means that everything
    /// before it is.
    pub(super) fn overrun(&mut self, count: u64) -> bool {
        match &mut self.replay {
            Some(replay) => {
                replay.overrun = replay.overrun.saturating_add(count);
                (replay.came, replay.fresh) = (true, true);
                false
            }
            None => true,
        }
    }

    /// Nothing of the past can come any more: whatever is in doubt is a gap.
    fn decide(&mut self) {
        let Some(replay) = &mut self.replay else { return };
        self.unproven = 0;
        let overrun = std::mem::take(&mut replay.overrun);
        if let Some(mut gap) = replay.doubt.take() {
            gap.count = gap.count.max(overrun);
            self.owed = Some(gap);
        } else if overrun > 0 && !replay.first {
            self.owed = Some(Gap { cause: HUBBLE_RING_BUFFER, at: self.newest, count: overrun });
        }
        if replay.left == 0 {
            self.replay = None;
        }
    }

    /// Everything that came was read and nothing more is there.
    pub(super) fn drained(&mut self, now: Instant, settle: Duration) {
        let since = |then: Instant| now.saturating_duration_since(then);
        let mut synced = true;
        if let Some(replay) = &mut self.replay {
            if replay.fresh {
                (replay.fresh, replay.last) = (false, Some(now));
            }
            // A server that has much to look through begins late.
            let patience = if replay.came { settle } else { settle * SLOW_START };
            let quiet = replay.last.map(since);
            synced = quiet.is_some_and(|quiet| quiet >= patience);
            if synced {
                self.decide();
            }
            if quiet.is_some_and(|quiet| quiet >= FORGET) {
                self.replay = None;
            }
        }
        if synced
            && let Some((seen, asked)) = self.candidate
            && since(asked) >= settle
        {
            self.handled = self.handled.max(Some(seen));
            self.candidate = None;
        }
    }

    /// A gap that is certain by now.
    pub(super) fn gap(&mut self) -> Option<Gap> {
        self.owed.take()
    }

    fn forget(&mut self) {
        while self.recent.len() > self.keep {
            self.recent.pop_front();
        }
        self.unproven = self.unproven.min(self.recent.len());
    }
}

//! The pairs of a window, in little space. Most pairs in most windows do the same thing: one connection to one port succeeds.
//! Such a pair takes 24 bytes, one with several connections to one port 34; the others are kept as they are. Must not know
//! what becomes of windows.

use std::borrow::Cow;

use crate::attribute::Peer;
use crate::facts::Protocol;
use crate::inventory::{FastMap, PodId};
use crate::time::Timestamp;

use super::window::{PairKey, PairWindow, PortClass, PortWindow, Span, Tally};

/// A time of a window, as nanoseconds since its start: up to some 18 minutes.
type Offset = [u8; 5];
/// No time.
const NEVER: Offset = [u8::MAX; 5];

/// The key of a pair of two pods.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(Rust, packed)]
struct Members {
    src: u32,
    dst: u32,
    protocol: Protocol,
    class: PortClass,
}

impl Members {
    fn of(key: &PairKey) -> Option<Self> {
        let Peer::Member(dst) = key.dst else { return None };
        Some(Self { src: key.src.0, dst: dst.0, protocol: key.protocol, class: key.class })
    }

    fn key(self) -> PairKey {
        let dst = Peer::Member(PodId(self.dst));
        PairKey { src: PodId(self.src), dst, protocol: self.protocol, class: self.class }
    }
}

/// One port on which nothing failed: how many handshakes were begun and answered, and when. `TIMES` is 2 for the first and
/// the last time, and 1 where they are the same.
#[derive(Clone, Copy, Debug)]
#[repr(Rust, packed)]
struct Quiet<const TIMES: usize> {
    port: u16,
    opened: u8,
    answered: u8,
    opened_at: [Offset; TIMES],
    answered_at: [Offset; TIMES],
}

fn offset(start: Timestamp, at: Timestamp) -> Option<Offset> {
    let nanos = at.nanos().checked_sub(start.nanos())?;
    let [a, b, c, d, e, 0, 0, 0] = nanos.to_le_bytes() else { return None };
    let offset = [a, b, c, d, e];
    (offset != NEVER).then_some(offset)
}

fn time(start: Timestamp, [a, b, c, d, e]: Offset) -> Timestamp {
    let nanos = u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]);
    Timestamp::from_nanos(start.nanos().saturating_add(nanos))
}

fn packed(start: Timestamp, tally: Tally) -> Option<(u8, [Offset; 2])> {
    let count = u8::try_from(tally.count).ok()?;
    let span = match tally.span {
        Some(span) => [offset(start, span.first)?, offset(start, span.last)?],
        None => [NEVER; 2],
    };
    Some((count, span))
}

fn tally(start: Timestamp, count: u8, [first, last]: [Offset; 2]) -> Tally {
    let span = (first != NEVER).then(|| Span { first: time(start, first), last: time(start, last) });
    Tally { count: u64::from(count), span }
}

impl Quiet<1> {
    fn widened(self) -> Quiet<2> {
        let ([opened_at], [answered_at]) = (self.opened_at, self.answered_at);
        Quiet {
            port: self.port,
            opened: self.opened,
            answered: self.answered,
            opened_at: [opened_at; 2],
            answered_at: [answered_at; 2],
        }
    }
}

impl Quiet<2> {
    fn of(start: Timestamp, port: u16, window: &PortWindow) -> Option<Self> {
        if window.failures.is_some() {
            return None;
        }
        let (opened, opened_at) = packed(start, window.opened)?;
        let (answered, answered_at) = packed(start, window.answered)?;
        Some(Self { port, opened, answered, opened_at, answered_at })
    }

    fn narrowed(self) -> Option<Quiet<1>> {
        let ([opened_at, last_opened], [answered_at, last_answered]) = (self.opened_at, self.answered_at);
        (opened_at == last_opened && answered_at == last_answered).then_some(Quiet {
            port: self.port,
            opened: self.opened,
            answered: self.answered,
            opened_at: [opened_at],
            answered_at: [answered_at],
        })
    }

    fn window(self, start: Timestamp) -> PortWindow {
        PortWindow {
            opened: tally(start, self.opened, self.opened_at),
            answered: tally(start, self.answered, self.answered_at),
            failures: None,
        }
    }

    fn pair(self, start: Timestamp) -> PairWindow {
        PairWindow { ports: vec![(self.port, self.window(start))], traffic: None }
    }
}

/// What happened between the pairs of a window.
#[derive(Clone, Debug, Default)]
pub struct Pairs {
    /// When the window starts; times of quiet pairs count from there.
    start: Timestamp,
    /// A pair is in one of these three.
    once: FastMap<Members, Quiet<1>>,
    quiet: FastMap<Members, Quiet<2>>,
    loud: FastMap<PairKey, PairWindow>,
}

impl Pairs {
    /// The pairs of a window that starts at `start`.
    #[must_use]
    pub fn starting(start: Timestamp) -> Self {
        Self { start, ..Self::default() }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.once.len() + self.quiet.len() + self.loud.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether this pair is among them.
    #[must_use]
    pub fn contains(&self, key: &PairKey) -> bool {
        let quiet = |key| self.once.contains_key(&key) || self.quiet.contains_key(&key);
        Members::of(key).is_some_and(quiet) || self.loud.contains_key(key)
    }

    /// What happened between a pair.
    #[must_use]
    pub fn get(&self, key: &PairKey) -> Option<Cow<'_, PairWindow>> {
        let quiet = Members::of(key).and_then(|key| self.quiet(&key));
        match quiet {
            Some(quiet) => Some(Cow::Owned(quiet.pair(self.start))),
            None => self.loud.get(key).map(Cow::Borrowed),
        }
    }

    fn quiet(&self, key: &Members) -> Option<Quiet<2>> {
        let once = self.once.get(key).map(|once| once.widened());
        once.or_else(|| self.quiet.get(key).copied())
    }

    fn all_quiet(&self) -> impl Iterator<Item = (PairKey, Quiet<2>)> {
        let once = self.once.iter().map(|(key, once)| (key.key(), once.widened()));
        once.chain(self.quiet.iter().map(|(key, quiet)| (key.key(), *quiet)))
    }

    /// Every pair, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (PairKey, Cow<'_, PairWindow>)> {
        let quiet = self.all_quiet().map(|(key, quiet)| (key, Cow::Owned(quiet.pair(self.start))));
        quiet.chain(self.loud.iter().map(|(key, pair)| (*key, Cow::Borrowed(pair))))
    }

    /// Every pair but those on which nothing failed and of which `skip` says so, given when the last handshake was begun and
    /// when the last success was, in no order.
    pub(crate) fn iter_but(
        &self,
        skip: impl Fn(&PairKey, Option<Timestamp>, Option<Timestamp>) -> bool,
    ) -> impl Iterator<Item = (PairKey, Cow<'_, PairWindow>)> {
        let last = |[_, last]: [Offset; 2]| (last != NEVER).then(|| time(self.start, last));
        let quiet = self
            .all_quiet()
            .filter(move |(key, quiet)| !skip(key, last(quiet.opened_at), last(quiet.answered_at)));
        let quiet = quiet.map(|(key, quiet)| (key, Cow::Owned(quiet.pair(self.start))));
        quiet.chain(self.loud.iter().map(|(key, pair)| (*key, Cow::Borrowed(pair))))
    }

    /// Pairs that may have failed, or that carried something, in no order.
    pub fn loud(&self) -> impl Iterator<Item = (&PairKey, &PairWindow)> {
        self.loud.iter()
    }

    /// Puts a pair in, in place of what was there.
    pub fn insert(&mut self, key: PairKey, pair: PairWindow) {
        if let Some(members) = Members::of(&key) {
            self.take_quiet(&members);
        }
        self.loud.insert(key, pair);
    }

    /// Those on which something failed.
    #[must_use]
    pub(super) fn only_failures(self) -> Self {
        let failed = |pair: &PairWindow| pair.ports.iter().any(|(_, port)| port.failures.is_some());
        let loud = self.loud.into_iter().filter(|(_, pair)| failed(pair));
        let loud = loud.map(|(key, pair)| (key, PairWindow { traffic: None, ..pair }));
        Self { loud: loud.collect(), ..Self::starting(self.start) }
    }

    fn take_quiet(&mut self, key: &Members) -> Option<Quiet<2>> {
        let once = self.once.remove(key).map(Quiet::widened);
        once.or_else(|| self.quiet.remove(key))
    }

    /// The whole entry of a pair, for whatever does not fit into little space.
    pub fn pair(&mut self, key: PairKey) -> &mut PairWindow {
        let quiet = Members::of(&key).and_then(|members| self.take_quiet(&members));
        let pair = self.loud.entry(key).or_default();
        if let Some(quiet) = quiet {
            *pair = quiet.pair(self.start);
        }
        pair
    }

    /// Changes what happened on a port of a pair.
    pub fn port<T>(&mut self, key: PairKey, port: u16, change: impl FnOnce(&mut PortWindow) -> T) -> T {
        let Some(members) = Members::of(&key) else { return change(self.pair(key).port(port)) };
        let known = self.quiet(&members);
        if known.is_some_and(|known| known.port != port) {
            return change(self.pair(key).port(port));
        }
        if known.is_none()
            && let Some(pair) = self.loud.get_mut(&key)
        {
            return change(pair.port(port));
        }
        let mut window = known.map(|known| known.window(self.start)).unwrap_or_default();
        let done = change(&mut window);
        match Quiet::of(self.start, port, &window) {
            Some(quiet) => self.put_quiet(members, quiet),
            None => self.insert(key, PairWindow { ports: vec![(port, window)], traffic: None }),
        }
        done
    }

    fn put_quiet(&mut self, key: Members, quiet: Quiet<2>) {
        match quiet.narrowed() {
            Some(once) if !self.quiet.contains_key(&key) => {
                self.once.insert(key, once);
            }
            _ => {
                self.once.remove(&key);
                self.quiet.insert(key, quiet);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// In little space or not: the same is remembered.
        #[test]
        fn nothing_is_lost_in_little_space(
            steps in prop::collection::vec((0_u32..3, 0_u16..3, 0_u8..3, 0_u64..1 << 42), 0..300),
        ) {
            let start = Timestamp::from_nanos(1 << 60);
            let mut pairs = Pairs::starting(start);
            let mut plain: FastMap<PairKey, PairWindow> = FastMap::default();
            for (dst, port, what, offset) in steps {
                let dst = Peer::Member(PodId(dst));
                let key = PairKey { src: PodId(9), dst, protocol: Protocol::Tcp, class: PortClass::Fixed };
                let at = Timestamp::from_nanos(start.nanos() + offset);
                let step = |window: &mut PortWindow| match what {
                    0 => window.opened.add(at, 1),
                    1 => window.answered.add(at, offset % 2),
                    _ if offset % 16 == 0 => window.failures.get_or_insert_default().refused.add(at, 1),
                    _ => {}
                };
                pairs.port(key, port, step);
                step(plain.entry(key).or_default().port(port));
            }
            prop_assert_eq!(pairs.len(), plain.len());
            for (key, pair) in pairs.iter() {
                prop_assert_eq!(Some(pair.as_ref()), plain.get(&key));
            }
        }
    }

    #[test]
    fn a_quiet_pair_is_small() {
        assert_eq!(size_of::<(Members, Quiet<1>)>(), 24);
        assert_eq!(size_of::<(Members, Quiet<2>)>(), 34);
    }
}

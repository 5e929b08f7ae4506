//! A ring of a few events and streams that break anywhere, many times over, each time otherwise: what is told is held against
//! what happened. Deterministic; without a socket and without a clock. The real thing is in `tests/hubble/resume.rs`.

use std::ops::Range;

use super::*;

const ROOM: u64 = 64;
const SEEDS: u64 = 300;
const SETTLE: Duration = Duration::from_secs(1);

/// Xorshift (Marsaglia 2003).
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) % end
    }
}

struct Model {
    chance: Chance,
    continuity: Continuity,
    now: Instant,
    started: Instant,
    /// Events so far; the last ones, as many as there is room for, are in the ring.
    emitted: u64,
    /// Where the stream is.
    position: u64,
    /// Whether events were overwritten before it came to them, and nothing that is known came since.
    overtaken: bool,
    heard: Vec<u64>,
    told: u64,
    /// Whether an event may have been lost, for all that can be known.
    may_be_lost: bool,
}

impl Model {
    fn new(seed: u64) -> Self {
        let started = Instant::now() + Duration::from_secs(3600);
        let mut model = Self {
            chance: Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            continuity: Continuity::new(),
            now: started + Duration::from_secs(60),
            started,
            emitted: 0,
            position: 0,
            overtaken: false,
            heard: Vec::new(),
            told: 0,
            may_be_lost: false,
        };
        model.begin();
        model
    }

    fn ring(&self) -> Range<u64> {
        self.emitted.saturating_sub(ROOM)..self.emitted
    }

    fn unheard(&self) -> u64 {
        self.emitted - self.heard.last().map_or(0, |last| last + 1)
    }

    fn begin(&mut self) {
        let ring = self.ring();
        let status =
            Ring { seen: ring.end, held: ring.end - ring.start, room: ROOM, uptime: self.now - self.started };
        self.continuity.ring("", status, Asked { at: self.now, answered: self.now });
        let number = self.continuity.begin(self.now, self.emitted.eq(&0).then_some(Timestamp::MIN));
        assert!(number >= ROOM);
        self.position = ring.start;
        self.overtaken = false;
        let known = self.heard.last().is_some_and(|last| ring.contains(last));
        // The server's counts alone are believed up to an eighth.
        self.may_be_lost |= !known && ring.end - ring.start > ROOM - ROOM / 8;
    }

    /// The server sends some of what it holds, and the client takes it.
    fn hear(&mut self, most: u64) {
        for _ in 0..most {
            let ring = self.ring();
            if self.position == ring.end {
                break;
            }
            if self.position < ring.start {
                self.overtaken = true;
                if self.continuity.overrun(b"", 1) {
                    self.told += 1;
                }
            } else {
                let fate = self.continuity.take(b"", None, self.position);
                let known = self.heard.last().is_some_and(|last| self.position <= *last);
                assert_eq!(known, fate == Fate::Known, "{fate:?}: {}", self.position);
                if let Fate::NewAfter(count) = fate {
                    self.told += count;
                }
                if !known {
                    self.heard.push(self.position);
                    self.may_be_lost |= self.overtaken;
                }
                self.overtaken = false;
            }
            self.position += 1;
        }
        // Looked at twice: what came is noted the first time.
        self.drain();
    }

    fn drain(&mut self) {
        self.continuity.drained(self.now, SETTLE);
        self.told += self.continuity.gaps().map(|(_, gap)| gap.count).sum::<u64>();
    }

    /// So many breaks, with at most so many events unheard.
    fn play(&mut self, breaks: u64, most_unheard: u64) {
        for _ in 0..breaks {
            for _ in 0..self.chance.below(4) {
                let more = self.chance.below(ROOM / 2).min(most_unheard.saturating_sub(self.unheard()));
                self.emitted += more;
                let most = self.chance.below(ROOM);
                self.hear(most);
                // Mostly there is no time for anything to settle.
                if self.chance.below(8) == 0 && self.position == self.emitted {
                    self.now += SETTLE;
                    self.drain();
                }
            }
            let meanwhile = self.chance.below(most_unheard).min(most_unheard.saturating_sub(self.unheard()));
            self.emitted += meanwhile;
            self.now += Duration::from_millis(10);
            self.begin();
        }
        // Everything comes, and what is in doubt is decided.
        self.hear(u64::MAX);
        self.now += SETTLE * 11;
        self.drain();
    }

    fn missing(&self) -> u64 {
        assert!(self.heard.is_sorted_by(|one, next| one < next));
        self.emitted - self.heard.len() as u64
    }
}

#[test]
fn a_ring_that_is_never_outrun_has_no_gap() {
    for seed in 0..SEEDS {
        let mut model = Model::new(seed);
        model.play(seed % 60, ROOM * 3 / 4);
        assert_eq!((model.missing(), model.told), (0, 0), "seed {seed}");
    }
}

#[test]
fn what_a_ring_lost_is_told_and_nothing_else() {
    for seed in 0..SEEDS {
        let mut model = Model::new(seed);
        model.play(seed % 60, ROOM + seed % 8 * ROOM / 4);
        let (missing, told) = (model.missing(), model.told);
        assert!(told >= missing, "seed {seed}: {told} of {missing} were told");
        assert!(told == 0 || model.may_be_lost, "seed {seed}: {told} were told, nothing can be lost");
    }
}

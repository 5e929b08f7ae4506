//! What is new, what was received before, and what is missing. Without a socket and without a clock.

use super::*;

const SETTLE: Duration = Duration::from_secs(1);

/// A node's server and what is followed of it, at a time that passes as it is told.
struct Play {
    continuity: Continuity,
    now: Instant,
    started: Instant,
}

fn at(second: u64) -> Option<Timestamp> {
    Some(Timestamp::from_nanos(second * 1_000_000_000))
}

impl Play {
    fn new() -> Self {
        let started = Instant::now() + Duration::from_secs(3600);
        Self { continuity: Continuity::new(), now: started + Duration::from_secs(60), started }
    }

    fn status(&mut self, seen: u64, held: u64) {
        let uptime = self.now.duration_since(self.started);
        let ring = Ring { seen, held, room: 100, uptime };
        self.continuity.ring("", ring, Asked { at: self.now, answered: self.now });
    }

    fn take(&mut self, number: u64) -> Fate {
        self.continuity.take(b"node", at(number), number)
    }

    fn pass(&mut self, time: Duration) -> Vec<Gap> {
        // It was looked before: what came is noted by then.
        self.continuity.drained(self.now, SETTLE);
        self.now += time;
        self.continuity.drained(self.now, SETTLE);
        self.gaps()
    }

    fn gaps(&mut self) -> Vec<Gap> {
        self.continuity.gaps().map(|(_, gap)| gap).collect()
    }

    /// Followed from the first event on; so many were received.
    fn followed(events: u64) -> Self {
        let mut play = Self::new();
        play.status(0, 0);
        play.continuity.begin(play.now, at(0));
        for number in 1..=events {
            assert_eq!(play.take(number), Fate::New);
        }
        assert!(play.pass(SETTLE * 11).is_empty());
        play
    }
}

#[test]
fn what_re_appears_is_known_and_what_follows_is_new() {
    let mut play = Play::followed(50);
    play.status(60, 60);
    assert!(play.continuity.begin(play.now, None) >= 60);
    for number in 1..=50 {
        assert_eq!(play.take(number), Fate::Known, "{number}");
    }
    for number in 51..=60 {
        assert_eq!(play.take(number), Fate::New, "{number}");
    }
    assert!(play.pass(SETTLE * 11).is_empty());
}

#[test]
fn a_ring_that_was_outrun_is_a_gap_of_what_it_lost() {
    let mut play = Play::followed(50);
    play.status(50, 50);
    assert!(play.pass(SETTLE * 2).is_empty());
    // 250 more were seen, of which the ring holds 100: 150 are gone.
    play.status(300, 100);
    play.continuity.begin(play.now, None);
    for number in 201..=300 {
        assert_eq!(play.take(number), Fate::New);
    }
    let gaps = play.pass(SETTLE * 2);
    assert_eq!(gaps, [Gap { cause: "gap", at: at(50), count: 150 }]);
    // It is told once.
    assert!(play.pass(SETTLE * 11).is_empty());
}

#[test]
fn one_that_is_known_shows_that_nothing_is_missing() {
    let mut play = Play::followed(50);
    // By the count alone something could be missing: what was received was not certain yet.
    play.status(149, 100);
    play.continuity.begin(play.now, None);
    assert_eq!(play.take(50), Fate::Known);
    for number in 51..=149 {
        assert_eq!(play.take(number), Fate::New);
    }
    assert!(play.pass(SETTLE * 11).is_empty());
}

#[test]
fn a_gap_in_doubt_survives_another_break() {
    let mut play = Play::followed(50);
    play.status(50, 50);
    assert!(play.pass(SETTLE * 2).is_empty());
    play.status(300, 100);
    play.continuity.begin(play.now, None);
    // The connection breaks before the replay ends; what came of it proves nothing about what is before it.
    assert_eq!(play.take(201), Fate::New);
    play.status(300, 100);
    play.continuity.begin(play.now, None);
    assert_eq!(play.take(201), Fate::Known);
    assert_eq!(play.take(202), Fate::New);
    assert_eq!(play.pass(SETTLE * 2).len(), 1);
}

#[test]
fn a_ring_that_was_never_full_lost_nothing_though_nothing_was_heard() {
    let mut play = Play::new();
    play.status(0, 0);
    play.continuity.begin(play.now, at(0));
    // The first stream breaks before anything of it was heard, the next ones before they have sent all they were asked for.
    // Nothing that was heard can show that nothing is missing before it, but the count does.
    for heard in [20, 40, 60, 80] {
        play.status(heard, heard);
        play.continuity.begin(play.now, None);
        for number in 1..=heard {
            let expected = if number + 20 > heard { Fate::New } else { Fate::Known };
            assert_eq!(play.take(number), expected, "{number} of {heard}");
        }
    }
    assert!(play.pass(SETTLE * 11).is_empty());
}

#[test]
fn a_gap_in_doubt_does_not_grow_with_what_was_heard_after_it() {
    let mut play = Play::followed(50);
    // 150 are gone, and 100 come.
    play.status(300, 100);
    play.continuity.begin(play.now, None);
    for number in 201..=300 {
        assert_eq!(play.take(number), Fate::New);
    }
    // What is still there of the 100 shows that nothing is missing after them; what was overwritten of them before it could be
    // sent again is no loss.
    play.status(350, 100);
    play.continuity.begin(play.now, None);
    assert!(!play.continuity.overrun(b"node", 3));
    for number in 254..=300 {
        assert_eq!(play.take(number), Fate::Known, "{number}");
    }
    for number in 301..=350 {
        assert_eq!(play.take(number), Fate::New, "{number}");
    }
    assert_eq!(play.pass(SETTLE * 2), [Gap { cause: "gap", at: at(50), count: 200 }]);
}

#[test]
fn a_gap_in_doubt_grows_when_nothing_re_appears() {
    let mut play = Play::followed(50);
    play.status(300, 100);
    play.continuity.begin(play.now, None);
    assert_eq!(play.take(201), Fate::New);
    play.status(500, 100);
    play.continuity.begin(play.now, None);
    assert_eq!(play.take(401), Fate::New);
    // The gap begins where the first one did.
    assert_eq!(play.pass(SETTLE * 2), [Gap { cause: "gap", at: at(50), count: 400 }]);
}

#[test]
fn a_restart_is_always_a_gap() {
    let mut play = Play::followed(50);
    play.now += Duration::from_secs(5);
    play.started = play.now;
    play.now += Duration::from_secs(1);
    play.status(3, 3);
    play.continuity.begin(play.now, None);
    assert_eq!(play.gaps(), [Gap { cause: "restart", at: at(50), count: 1 }]);
    // Its clock may be another one.
    assert_eq!(play.continuity.take(b"node", at(1), 1001), Fate::New);
    assert!(play.pass(SETTLE * 11).is_empty());
}

#[test]
fn what_was_overwritten_while_it_was_sent_again_is_no_loss_if_it_was_known() {
    let mut play = Play::followed(50);
    play.status(60, 60);
    play.continuity.begin(play.now, None);
    assert_eq!(play.take(1), Fate::Known);
    assert!(!play.continuity.overrun(b"node", 3));
    assert_eq!(play.take(5), Fate::Known);
    // The next ones were not.
    assert!(!play.continuity.overrun(b"node", 50));
    assert_eq!(play.take(56), Fate::NewAfter(50));
    assert!(play.pass(SETTLE * 11).is_empty());
}

#[test]
fn history_is_passed_over_and_remembered() {
    let mut play = Play::new();
    play.status(10, 10);
    play.continuity.begin(play.now, at(100));
    assert_eq!(play.take(99), Fate::History);
    assert_eq!(play.take(100), Fate::New);
    play.status(11, 11);
    play.continuity.begin(play.now, None);
    assert_eq!((play.take(99), play.take(100), play.take(98)), (Fate::Known, Fate::Known, Fate::New));
}

#[test]
fn a_pause_is_nobodys_gap() {
    let mut play = Play::followed(50);
    play.continuity.pause();
    play.status(10_000, 100);
    play.continuity.begin(play.now, None);
    assert_eq!(play.take(9_999), Fate::New);
    assert!(play.pass(SETTLE * 11).is_empty());
}

#[test]
fn nodes_behind_a_relay_are_followed_one_by_one() {
    let mut play = Play::new();
    play.continuity.set_relay(true);
    play.continuity.begin(play.now, None);
    assert_eq!(play.continuity.take(b"a", at(1), 7), Fate::New);
    assert_eq!(play.continuity.take(b"east/b", at(1), 7), Fate::New);
    play.continuity.lost_sight("b");
    assert_eq!(play.continuity.take(b"east/b", at(1), 7), Fate::Known);
    assert_eq!(play.continuity.take(b"a", at(1), 7), Fate::New);
    // What a node lost is in doubt until it is told, out of sight too.
    play.continuity.lost_sight("b");
    assert_eq!(play.continuity.take(b"east/b", at(2), 8), Fate::New);
    play.continuity.lost_sight("b");
    assert_eq!(play.continuity.take(b"east/b", at(2), 8), Fate::Known);
    let gaps = play.pass(SETTLE * 11);
    assert_eq!(gaps, [Gap { cause: "gap", at: at(1), count: 1 }]);
    // Another server altogether.
    play.continuity.set_relay(false);
    assert_eq!(play.continuity.take(b"a", at(1), 7), Fate::New);
}

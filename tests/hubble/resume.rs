//! Breaks: what the server's ring still holds is told once, and what it does not is told as lost. Held against the server's
//! own log.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;

use crate::client::{Client, Heard, everything, on_socket, pods};
use crate::fake::flows::{now, syn};
use crate::fake::proxy::Proxy;
use crate::fake::{FakeHubble, Traits};

/// Where nothing must be taken for lost, however busy the machine is.
const PATIENT: Duration = Duration::from_secs(5);
const HASTY: Duration = Duration::from_millis(300);

/// How a connection breaks.
#[derive(Clone, Copy, Debug)]
enum Break {
    /// At once.
    Now,
    /// When so many more bytes have come, within whatever they belong to.
    After(u16),
    /// The server starts anew.
    Restart,
}

/// What happens between two breaks.
#[derive(Clone, Copy, Debug)]
struct Step {
    before: u16,
    how: Break,
    /// Events while nobody listens.
    meanwhile: u16,
    slow: bool,
}

fn steps(number: usize, most_meanwhile: u16, restarts: bool) -> impl Strategy<Value = Vec<Step>> {
    let how = if restarts {
        prop_oneof![3 => Just(Break::Now), 3 => any::<u16>().prop_map(Break::After), 1 => Just(Break::Restart)].boxed()
    } else {
        prop_oneof![Just(Break::Now), any::<u16>().prop_map(Break::After)].boxed()
    };
    // Mostly little happens meanwhile, now and then more than a ring can hold.
    let meanwhile = prop_oneof![3 => 0..60_u16, 1 => 0..most_meanwhile];
    let step = (0..120_u16, how, meanwhile, prop::bool::weighted(0.1))
        .prop_map(|(before, how, meanwhile, slow)| Step { before, how, meanwhile, slow });
    proptest::collection::vec(step, number)
}

/// A server behind a wire that breaks, and a client at its other end.
struct Play {
    server: FakeHubble,
    proxy: Proxy,
    client: Client,
    next: u64,
    /// Events that the server's ring holds.
    capacity: u16,
    /// So many events may be unheard when a connection breaks; `None`: any number.
    unheard: Option<u64>,
    _directory: tempfile::TempDir,
}

impl Play {
    /// `settle`: what is on its way for longer is taken for lost.
    async fn begin(capacity: u16, interest: firedoor::source::hubble::Interest, settle: Duration) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let traits = Traits { capacity: usize::from(capacity), ..Traits::node() };
        let server = FakeHubble::on_socket(traits, directory.path());
        let proxy = Proxy::before(&server.path);
        let mut settings = on_socket(&proxy.path);
        // Messages as they are in the log.
        settings.field_mask = false;
        settings.settle = settle;
        let mut client = Client::start(settings, interest);
        client.until("connecting", |_| !server.requests().is_empty()).await;
        Self { server, proxy, client, next: 0, capacity, unheard: None, _directory: directory }
    }

    fn emit(&mut self, count: u16) {
        let flows = (0..u64::from(count)).map(|offset| {
            let number = self.next + offset;
            // Half of them concern trainer-1.
            let to = if number.is_multiple_of(2) { "trainer-1" } else { "trainer-10" };
            syn("gpu-node-a", "trainer-0", to, number, now())
        });
        self.server.emit_all(flows.collect::<Vec<_>>());
        self.next += u64::from(count);
    }

    async fn step(&mut self, step: Step) {
        self.proxy.pace(Duration::from_micros(if step.slow { 3_000 } else { 0 }));
        let streams = self.server.requests().len();
        match step.how {
            Break::Now => {
                self.emit(step.before);
                self.client.during(Duration::from_millis(u64::from(step.before % 4))).await;
                self.proxy.cut();
            }
            Break::After(bytes) => {
                self.proxy.cut_after(u64::from(bytes));
                self.emit(step.before);
                while self.proxy.is_waiting() {
                    self.emit(1);
                    self.client.during(Duration::from_micros(200)).await;
                }
            }
            Break::Restart => {
                self.emit(step.before);
                self.client.during(Duration::from_millis(u64::from(step.before % 4))).await;
                self.server.restart();
            }
        }
        self.emit(step.meanwhile);
        let server = &self.server;
        self.client.until("the next stream", |_| server.requests().len() > streams).await;
        let Some(most) = self.unheard else { return };
        // The next break must not come before the ring is told up to there.
        if let Some(last) = self.next.saturating_sub(most).checked_sub(2).map(|last| last - last % 2) {
            let heard = |heard: &Heard| heard.messages.last().is_some_and(|m| number_of(m) >= last);
            self.client.until("what the ring may lose soon", heard).await;
        }
    }

    /// Lets everything come that will come, and as much again as the ring holds: then the last stream has sent all that it can
    /// have sent before, and whatever was in doubt is told.
    async fn end(&mut self) {
        self.proxy.pace(Duration::ZERO);
        self.next += self.next % 2;
        // Never more at once than the ring holds besides what may still be unheard.
        let piece = self.capacity / 4;
        for count in std::iter::once(1).chain([piece; 5]) {
            // An odd number: the last one is of interest to everybody.
            self.emit(count | 1);
            let last = number_of(&self.server.log().last().unwrap().bytes());
            let heard = |heard: &Heard| heard.messages.last().is_some_and(|m| number_of(m) == last);
            self.client.until("the last flow", heard).await;
            self.next += 1;
        }
        self.client.during(Duration::from_secs(1)).await;
    }
}

/// The number in a flow's UUID.
fn number_of(message: &[u8]) -> u64 {
    let marker = b"00000000-0000-4000-8000-";
    let at =
        message.windows(marker.len()).position(|window| window == marker).expect("a flow of these tests");
    let digits = &message[at + marker.len()..][..12];
    u64::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap()
}

/// Holds what was heard against the log. Gives how many events of the log were not heard.
fn held_against_the_log(heard: &Heard, log: &[Vec<u8>]) -> u64 {
    let numbers: Vec<u64> = heard.messages.iter().map(|message| number_of(message)).collect();
    let distinct: BTreeSet<u64> = numbers.iter().copied().collect();
    assert_eq!(distinct.len(), numbers.len(), "an event was told twice");
    assert!(numbers.is_sorted(), "events came out of order");
    let by_number: std::collections::BTreeMap<u64, &Vec<u8>> =
        log.iter().map(|m| (number_of(m), m)).collect();
    for (number, message) in numbers.iter().zip(&heard.messages) {
        assert_eq!(by_number.get(number), Some(&message), "an event that never was");
    }
    (log.len() - numbers.len()) as u64
}

fn run<F: Future>(play: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(play)
}

fn told(heard: &Heard) -> u64 {
    heard.lost.values().sum()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1, failure_persistence: None, max_shrink_iters: 0, ..ProptestConfig::default() })]

    /// The ring is never outrun: nothing is lost, nothing comes twice, and no gap is told.
    #[test]
    fn nothing_is_lost_or_told_twice_over_a_hundred_breaks(steps in steps(100, 1_000, false)) {
        run(async {
            let mut play = Play::begin(4095, everything(), PATIENT).await;
            play.unheard = Some(1_500);
            for step in steps {
                play.step(step).await;
            }
            play.end().await;
            let log: Vec<Vec<u8>> = play.server.log().iter().map(|emitted| emitted.bytes()).collect();
            assert_eq!(held_against_the_log(&play.client.heard, &log), 0);
            assert_eq!(told(&play.client.heard), 0, "{:?}", play.client.heard.lost);
        });
    }

    /// The same with a filter, which says less of what was missed.
    #[test]
    fn a_filtered_stream_resumes_alike(steps in steps(50, 1_000, false)) {
        run(async {
            let mut play = Play::begin(4095, pods(&["trainer-1"]), PATIENT).await;
            play.unheard = Some(1_500);
            for step in steps {
                play.step(step).await;
            }
            play.end().await;
            let log = play.server.log();
            let of_interest = log.iter().map(|emitted| emitted.bytes()).filter(|bytes| number_of(bytes).is_multiple_of(2));
            let wanted: Vec<Vec<u8>> = of_interest.collect();
            let heard = &mut play.client.heard;
            // What the server's prefix let through was passed over when it was decoded.
            heard.messages.retain(|message| number_of(message).is_multiple_of(2));
            assert_eq!(heard.flows, heard.messages.len() as u64);
            assert_eq!(held_against_the_log(heard, &wanted), 0);
            assert_eq!(told(heard), 0, "{:?}", heard.lost);
        });
    }

    /// The ring is outrun now and then, and the server restarted: what is told as lost is never less than what is missing,
    /// restarts aside: what an ended server saw last nobody can count. Nothing is told twice.
    #[test]
    fn what_a_ring_lost_is_told(steps in steps(60, 700, false)) {
        run(async {
            let mut play = Play::begin(255, everything(), HASTY).await;
            for step in steps {
                play.step(step).await;
            }
            play.end().await;
            let log: Vec<Vec<u8>> = play.server.log().iter().map(|emitted| emitted.bytes()).collect();
            let missing = held_against_the_log(&play.client.heard, &log);
            let told = told(&play.client.heard);
            assert!(told >= missing, "{missing} are missing, {told} were told: {:?}", play.client.heard.lost);
        });
    }

    #[test]
    fn a_restart_is_told(steps in steps(30, 100, true)) {
        run(async {
            let mut play = Play::begin(255, everything(), HASTY).await;
            let restarts = steps.iter().filter(|step| matches!(step.how, Break::Restart)).count();
            for step in steps {
                play.step(step).await;
            }
            play.end().await;
            let log: Vec<Vec<u8>> = play.server.log().iter().map(|emitted| emitted.bytes()).collect();
            let missing = held_against_the_log(&play.client.heard, &log);
            let by_restart = play.client.heard.lost_by("restart");
            assert!(by_restart >= restarts as u64, "{restarts} restarts, {:?}", play.client.heard.lost);
            assert!(missing == 0 || told(&play.client.heard) > 0);
        });
    }
}

/// Streams that break before anything of them was heard, and before any of them has sent its ring: nothing shows that the
/// events of meanwhile are all there but the server's count.
#[tokio::test]
async fn what_nobody_heard_is_no_gap_while_the_ring_holds_all_of_it() {
    let mut play = Play::begin(4095, everything(), PATIENT).await;
    for meanwhile in [60, 60, 60] {
        play.step(Step { before: 0, how: Break::Now, meanwhile, slow: false }).await;
    }
    play.client.until("what there is", |heard| heard.flows == 180).await;
    play.step(Step { before: 0, how: Break::Now, meanwhile: 900, slow: false }).await;
    play.end().await;
    let log: Vec<Vec<u8>> = play.server.log().iter().map(|emitted| emitted.bytes()).collect();
    assert_eq!(held_against_the_log(&play.client.heard, &log), 0);
    assert_eq!(told(&play.client.heard), 0, "{:?}", play.client.heard.lost);
}

/// The clock of the server is set back while nobody listens: what it tells from then on is older than what was heard.
#[tokio::test]
async fn a_clock_that_is_set_back_loses_nothing() {
    let mut play = Play::begin(4095, everything(), HASTY).await;
    play.emit(50);
    play.client.until("50 flows", |heard| heard.flows == 50).await;
    let streams = play.server.requests().len();
    play.proxy.cut();
    let before = crate::fake::flows::shifted(now(), -3600);
    play.server.emit(syn("gpu-node-a", "trainer-0", "trainer-1", 50, before));
    let server = &play.server;
    play.client.until("the next stream", |_| server.requests().len() > streams).await;
    play.server.emit(syn("gpu-node-a", "trainer-0", "trainer-1", 51, before));
    play.client.until("52 flows", |heard| heard.flows == 52).await;
    assert_eq!(told(&play.client.heard), 0);
}

/// Nothing of interest happened for so long that all that was heard is gone from the ring, yet nothing was missed.
#[tokio::test]
async fn silence_before_a_break_is_no_gap() {
    let mut play = Play::begin(255, pods(&["trainer-0"]), HASTY).await;
    play.emit(3);
    play.client.until("3 flows", |heard| heard.flows == 3).await;
    for _ in 0..10 {
        for number in 0..100 {
            play.server.emit(syn("gpu-node-a", "other-1", "other-2", 1_000 + number, now()));
        }
        // Connected and idle, for longer than things are on their way.
        play.client.during(Duration::from_millis(150)).await;
    }
    play.client.during(Duration::from_millis(800)).await;
    play.proxy.cut();
    let server = &play.server;
    play.client.until("the next stream", |_| server.requests().len() > 1).await;
    play.emit(1);
    play.client.until("4 flows", |heard| heard.flows == 4).await;
    play.client.during(Duration::from_secs(1)).await;
    assert_eq!(told(&play.client.heard), 0, "{:?}", play.client.heard.lost);
}

/// The same event twice in one stream is two events, in the next stream, too.
#[tokio::test]
async fn events_that_look_alike_are_counted_as_often_as_they_were_sent() {
    let mut play = Play::begin(4095, everything(), HASTY).await;
    let mut same = crate::fake::flows::as_of_1_13(syn("gpu-node-a", "trainer-0", "trainer-1", 1, now()));
    same.time = Some(now());
    play.server.emit_all([same.clone(), same.clone()]);
    play.client.until("2 flows", |heard| heard.flows == 2).await;
    let streams = play.server.requests().len();
    play.proxy.cut();
    play.server.emit(same);
    let server = &play.server;
    play.client.until("the next stream", |_| server.requests().len() > streams).await;
    play.client.until("3 flows", |heard| heard.flows == 3).await;
    play.client.during(Duration::from_millis(500)).await;
    assert_eq!((play.client.heard.flows, told(&play.client.heard)), (3, 0));
}

/// A peer that vanished without a word is noticed, and nothing is missed.
#[tokio::test]
async fn a_half_open_connection_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let server = FakeHubble::on_socket(Traits::node(), directory.path());
    let proxy = Proxy::before(&server.path);
    for status_every in [Duration::from_millis(200), Duration::from_secs(600)] {
        // Noticed by the unanswered question, or by the unanswered ping.
        let mut settings = on_socket(&proxy.path);
        settings.status_every = status_every;
        settings.ping_every = Duration::from_millis(300);
        settings.ping_timeout = Duration::from_millis(300);
        settings.history = Duration::ZERO;
        let mut client = Client::start(settings, everything());
        let streams = server.requests().len();
        client.until("connecting", |_| server.requests().len() > streams).await;
        client.during(Duration::from_millis(100)).await;
        server.emit(syn("gpu-node-a", "trainer-0", "trainer-1", 1, now()));
        client.until("a flow", |heard| heard.flows == 1).await;
        proxy.fall_silent();
        server.emit(syn("gpu-node-a", "trainer-0", "trainer-1", 2, now()));
        client.until("noticing", |heard| heard.downs() > 0).await;
        client.until("the flow of meanwhile", |heard| heard.flows == 2).await;
        assert_eq!(told(&client.heard), 0);
    }
}

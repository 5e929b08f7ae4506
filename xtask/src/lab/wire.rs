//! The wire between the zones, for kernels without netem: a TAP at each end and a queue in each direction. Runs as a
//! process of its own in the first zone's namespace (`cargo xtask lab-wire`). Enters: frames, and settings as lines of
//! JSON on standard input; leaves: the frames, later, less those that it loses or swallows, and after each line of
//! settings what it has counted so far. Ends with its input.

use std::collections::BTreeSet;
use std::io::{BufRead, Write};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use serde::{Deserialize, Serialize};
use tun_rs::{DeviceBuilder, Layer, SyncDevice};

use super::frame::{Frame, Segment};

/// The names of the two ends.
pub(super) const ENDS: [&str; 2] = ["wire0", "wire1"];
/// Frames under way in one direction; more are counted and lost, as on any wire.
const QUEUE: usize = 8192;
/// An Ethernet frame of the usual size, with room to spare.
const FRAME: usize = 2048;
const PER_MILLION: u64 = 1_000_000;
/// A sleep takes at least about this long: a frame that is due sooner goes at once, or a burst would be stretched.
const TICK: Duration = Duration::from_micros(60);

/// What the wire does to frames.
#[derive(Clone, Default, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Settings {
    /// One way.
    pub(super) delay_us: u64,
    /// Of a million frames, this many are lost.
    pub(super) loss_ppm: u64,
    /// (source, destination) whose SYNs vanish.
    pub(super) swallow: BTreeSet<(IpAddr, IpAddr)>,
}

/// What the wire has done, in frames of both directions.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Counts {
    pub(super) forwarded: u64,
    /// Lost by chance, as `loss_ppm` says.
    pub(super) lost: u64,
    /// Of these, segments with payload.
    pub(super) lost_payload: u64,
    /// SYNs that vanished.
    pub(super) swallowed: u64,
    /// Lost because the queue was full: never, if the workload is as gentle as it is meant to be.
    pub(super) overflow: u64,
}

#[derive(Default)]
struct Shared {
    settings: RwLock<Settings>,
    forwarded: AtomicU64,
    lost: AtomicU64,
    lost_payload: AtomicU64,
    swallowed: AtomicU64,
    overflow: AtomicU64,
}

impl Shared {
    fn counts(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            forwarded: read(&self.forwarded),
            lost: read(&self.lost),
            lost_payload: read(&self.lost_payload),
            swallowed: read(&self.swallowed),
            overflow: read(&self.overflow),
        }
    }

    fn settings(&self) -> Settings {
        self.settings.read().map(|settings| settings.clone()).unwrap_or_default()
    }
}

/// Runs the wire until standard input ends.
pub(super) fn serve() -> Result<()> {
    let shared = Arc::new(Shared::default());
    let mut ends = Vec::new();
    for name in ENDS {
        let tap = DeviceBuilder::new().name(name).layer(Layer::L2).enable(false).build_sync();
        ends.push(Arc::new(tap.with_context(|| format!("cannot create the TAP {name}"))?));
    }
    let [left, right] = ends.as_slice() else { return Err(anyhow!("a wire has two ends")) };
    join(left, right, &shared, 1);
    join(right, left, &shared, 2);
    tell(&shared)?;
    for line in std::io::stdin().lock().lines() {
        let settings = serde_json::from_str(&line?).context("no settings of a wire")?;
        *shared.settings.write().map_err(|_| anyhow!("the wire is broken"))? = settings;
        tell(&shared)?;
    }
    Ok(())
}

fn tell(shared: &Shared) -> Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, &shared.counts())?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

/// One direction: a thread that reads and decides, and one that waits and writes.
fn join(from: &Arc<SyncDevice>, to: &Arc<SyncDevice>, shared: &Arc<Shared>, seed: u64) {
    let (queue, frames) = sync_channel(QUEUE);
    let (from, to, counts) = (Arc::clone(from), Arc::clone(to), Arc::clone(shared));
    let shared = Arc::clone(shared);
    thread::spawn(move || take_in(&from, &queue, &shared, seed));
    thread::spawn(move || give_out(&to, &frames, &counts));
}

fn take_in(tap: &SyncDevice, queue: &SyncSender<(Instant, Vec<u8>)>, shared: &Shared, seed: u64) {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut buffer = [0; FRAME];
    loop {
        // A TAP cannot be read while it is down.
        let Ok(length) = tap.recv(&mut buffer) else {
            thread::sleep(Duration::from_millis(5));
            continue;
        };
        let arrived = Instant::now();
        let bytes = buffer.get(..length).unwrap_or_default();
        let settings = shared.settings();
        let frame = Frame::read(bytes);
        let add = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed);
        if frame.as_ref().is_some_and(|f| f.is_opening() && settings.swallow.contains(&(f.src, f.dst))) {
            add(&shared.swallowed);
            continue;
        }
        if settings.loss_ppm > 0 && dice.throw() % PER_MILLION < settings.loss_ppm {
            add(&shared.lost);
            if frame.is_some_and(|f| matches!(f.segment, Some(Segment { payload: 1.., .. }))) {
                add(&shared.lost_payload);
            }
            continue;
        }
        let due = arrived + Duration::from_micros(settings.delay_us);
        match queue.try_send((due, bytes.to_vec())) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                add(&shared.overflow);
            }
            Err(TrySendError::Disconnected(_)) => return,
        }
    }
}

fn give_out(tap: &SyncDevice, frames: &Receiver<(Instant, Vec<u8>)>, shared: &Shared) {
    while let Ok((due, frame)) = frames.recv() {
        let left = due.saturating_duration_since(Instant::now());
        if left > TICK {
            thread::sleep(left);
        }
        // It fails while the other end is not up yet.
        if tap.send(&frame).is_ok() {
            shared.forwarded.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Chance that is the same in every run (xorshift64).
struct Dice(u64);

impl Dice {
    fn throw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chance_keeps_its_share() {
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
        let lost = (0..100_000).filter(|_| dice.throw() % PER_MILLION < 20_000).count();
        assert!((1_900..2_100).contains(&lost), "{lost}");
    }
}

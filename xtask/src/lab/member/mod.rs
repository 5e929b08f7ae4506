//! A member of the lab's training job (`cargo xtask lab-member`): meets the others at rank 0, joins a mesh on
//! ephemeral ports, and all-reduces until it is told to stop. Enters: who it is and where rank 0 listens; leaves: a
//! file with what it did, which is the truth that firedoor's report is compared with. Knows nothing of firedoor.

mod meet;
mod reduce;
mod stream;
pub(super) mod truth;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use meet::Mesh;
use truth::{Journal, Truth};

/// Who a member is.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Its pod's name
    #[arg(long)]
    name: String,
    /// Its rank
    #[arg(long)]
    rank: usize,
    /// How many members there are
    #[arg(long)]
    world: usize,
    /// Its own address
    #[arg(long)]
    bind: IpAddr,
    /// Where rank 0 listens
    #[arg(long)]
    master: SocketAddr,
    /// Where to write what it did
    #[arg(long)]
    truth: PathBuf,
    /// Stop when this file is there
    #[arg(long)]
    stop: PathBuf,
    /// Bytes of the buffer that is all-reduced in each step
    #[arg(long)]
    buffer: usize,
    /// Milliseconds from step to step
    #[arg(long)]
    period: u64,
}

/// Runs until the stop file is there.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let journal = Journal::begin(&arguments.truth, Truth::begin(&arguments.name, arguments.rank));
    let outcome = train(arguments, &journal);
    let error = outcome.as_ref().err().map(|error| format!("{error:#}"));
    journal.end(error)?;
    outcome
}

fn train(arguments: &Arguments, journal: &Arc<Journal>) -> Result<()> {
    let Some(mesh) = Mesh::join(arguments, journal)? else { return Ok(()) };
    let period = Duration::from_millis(arguments.period);
    let mut next = Instant::now();
    for step in 0.. {
        // Everybody has to leave after the same step, so the wish to stop is reduced with the rest.
        let stop = arguments.stop.exists();
        if reduce::step(&mesh, step, arguments.buffer, stop, journal)? {
            break;
        }
        next += period;
        thread::sleep(next.saturating_duration_since(Instant::now()));
        next = next.max(Instant::now());
    }
    mesh.leave();
    Ok(())
}

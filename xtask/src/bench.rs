//! `bench`: measures firedoor on made-up input. Enters: what to measure; leaves: numbers. Must not know how
//! firedoor works inside: it runs the binary as a user would.

mod flow;
mod generate;
mod hubble;
mod measure;
mod policy;
mod replay;
mod world;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Subcommand;

use crate::command::{command, succeed};
use crate::{ebpf, setup};

/// What to measure.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    subject: Subject,
}

#[derive(Subcommand)]
enum Subject {
    /// `firedoor replay`: lines a second and peak memory, on one core.
    Replay(replay::Arguments),
    /// The kernel probes: what they cost beside the usual ways to count. As root.
    Ebpf,
    /// Following a Hubble server: flows a second, and what one costs.
    Hubble,
    /// What an agent holds in memory on a busy node.
    Memory,
    /// The policy engine: all pairs of a large job against many policies.
    Policy,
    /// Only writes the capture that `replay` is measured on.
    Generate {
        /// The folder to write, which must not exist.
        folder: PathBuf,
        /// How many lines of flows.
        #[arg(long, default_value_t = 1_000_000)]
        lines: u64,
        #[command(flatten)]
        shape: world::Shape,
    },
}

/// Measures.
///
/// # Errors
/// When the input cannot be made, or what is measured gives a wrong answer.
pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<()> {
    match &arguments.subject {
        Subject::Replay(arguments) => replay::run(root, arguments),
        Subject::Ebpf => {
            setup::ensure(root, setup::Purpose::Lab)?;
            ebpf::build(root)?;
            let arguments =
                ["bench", "--quiet", "-p", "firedoor-tests", "--features", "kernel", "--bench", "kernel"];
            succeed(&mut command(root, "cargo", &arguments))
        }
        Subject::Hubble => hubble::run(root),
        Subject::Memory => succeed(&mut command(
            root,
            "cargo",
            &["bench", "--quiet", "-p", "firedoor-tests", "--bench", "memory"],
        )),
        // It measures inside this process, which an unoptimised build would falsify: hence the second run.
        Subject::Policy if cfg!(debug_assertions) => succeed(&mut command(
            root,
            "cargo",
            &["run", "--release", "--package", "xtask", "--", "bench", "policy"],
        )),
        Subject::Policy => policy::run(),
        Subject::Generate { folder, lines, shape } => {
            let truth = generate::capture(folder, *lines, shape)?;
            println!("{}: {} lines, {} bytes", folder.display(), truth.lines, truth.bytes);
            Ok(())
        }
    }
}

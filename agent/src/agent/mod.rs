//! The agent on a node: what the sources tell goes through the pipeline, and the board shows what came of it.
//! Enters: a configuration; leaves: reports, metrics and readiness over HTTP, one line of log for each finding that
//! changes. The thread that calls [`run`] observes and diagnoses; one more talks to the network.

mod board;
mod clock;
mod directory;
mod gpus;
mod http;
mod interest;
#[cfg(feature = "ebpf")]
mod kernel;
#[cfg(not(feature = "ebpf"))]
#[path = "no_kernel.rs"]
mod kernel;
mod lines;
mod log;
mod metrics;
mod observer;
mod outside;
mod recording;
mod supply;
mod transitions;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use firedoor_core::time::Timestamp;

use crate::capture::shown;
use crate::config::ConfigError;
#[cfg(feature = "ebpf")]
use crate::source::ebpf::ProbeError;
pub use observer::run;

/// Why the agent cannot run.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The kernel.
    #[cfg(feature = "ebpf")]
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// This build cannot.
    #[error(
        "this firedoor was built without the kernel source; `cargo xtask ebpf` and then `cargo build --release --features ebpf` builds one with it, and --source hubble does without"
    )]
    NoEbpf,
    /// Whose sockets to watch is not said.
    #[error("the agent must know its node's name: --node NAME, or FIREDOOR_AGENT_NODE")]
    NoNode,
    /// Hubble cannot be asked.
    #[error("hubble.address: {0}")]
    Hubble(String),
    /// The cluster cannot be known.
    #[error("{0}; --inventory DIR does without an API server")]
    Cluster(String),
    /// The objects.
    #[error("cannot read the inventory {}: {why}", shown(path))]
    Inventory {
        /// The directory.
        path: PathBuf,
        /// Why.
        why: std::io::Error,
    },
    /// The recording.
    #[error("cannot record into {}: {why}", shown(path))]
    Record {
        /// The directory.
        path: PathBuf,
        /// Why.
        why: std::io::Error,
    },
    /// The port.
    #[error("cannot listen on {address}: {why}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        why: std::io::Error,
    },
    /// A part of it that never ends did.
    #[error(
        "what {part} ended, and nothing works without it ({why}); this is a fault of firedoor, please report it"
    )]
    Ended {
        /// What it did, after "what".
        part: &'static str,
        /// How it ended.
        why: String,
    },
    /// The runtime.
    #[error("cannot start the agent's threads: {0}")]
    Threads(std::io::Error),
}

/// The wall clock: the one place that reads it.
fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

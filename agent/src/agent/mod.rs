//! The agent on a node: what the sources tell goes through the pipeline, and the board shows what came of it.
//! Enters: settings; leaves: a report over HTTP, one line of log for each finding that changes. One thread
//! observes and diagnoses, another one serves.

#[cfg(feature = "ebpf")]
mod board;
#[cfg(feature = "ebpf")]
mod directory;
#[cfg(feature = "ebpf")]
mod http;
#[cfg(feature = "ebpf")]
mod observer;
#[cfg(feature = "ebpf")]
mod recording;
#[cfg(feature = "ebpf")]
mod transitions;

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::capture::shown;
use crate::config::ConfigError;
#[cfg(feature = "ebpf")]
use crate::source::ebpf::ProbeError;
#[cfg(feature = "ebpf")]
pub use observer::run;

/// How to run.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// The nodes on this kernel, by name, with the file of their network namespace where it is not the agent's own.
    pub nodes: Vec<(String, Option<PathBuf>)>,
    /// A directory with the cluster's objects, in place of an API server; read again when it changes.
    pub inventory: PathBuf,
    /// Where to write what is observed, as a capture.
    pub record: Option<PathBuf>,
    /// Where to serve.
    pub listen: SocketAddr,
    /// Configuration.
    pub config: Option<PathBuf>,
}

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
        "this firedoor was built without the kernel source; `cargo xtask ebpf` and then `cargo build --release --features ebpf` builds one with it"
    )]
    NoEbpf,
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
}

/// Without the kernel there is nothing to run on yet.
///
/// # Errors
/// Always.
#[cfg(not(feature = "ebpf"))]
pub fn run(_options: &AgentOptions) -> Result<(), AgentError> {
    Err(AgentError::NoEbpf)
}

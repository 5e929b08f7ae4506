//! Cilium Hubble as a source: follows the flows of a server, a node's or a relay's. Enters: where the server is, and what
//! is of interest; leaves: batches of raw messages, decoded by whoever takes them, and how the server is. When nobody takes
//! them it stops reading, so that the server is slowed and tells what it lost. Must not know jobs.

mod backoff;
mod batch;
mod call;
mod connect;
mod continuity;
mod house;
mod intake;
mod interest;
mod session;
mod settings;
mod tls;
mod version;

use std::future::Future;
use std::sync::Arc;

use firedoor_core::time::Timestamp;
use tokio::sync::{mpsc, watch};

pub use batch::{Batch, PassedOver};
pub use interest::Interest;
pub use settings::{Address, BadAddress, HubbleSettings, Identity, ServerName, TlsSettings, Written};
pub use tls::TlsError;

/// What the source tells, in order.
pub enum Told {
    /// What the server sent.
    Batch(Batch),
    /// How the server is.
    State(SourceState),
    /// A relay gets the flows of these nodes, again or for the first time.
    Sees {
        /// When it said so.
        at: Option<Timestamp>,
        /// The nodes, as it names them.
        nodes: Vec<String>,
    },
    /// The client's certificate, whenever its files were read.
    Certificate(Certificate),
}

/// Whether a server is followed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SourceState {
    /// It is, or nothing is of interest and it answers.
    Up(Server),
    /// It is not.
    Down {
        /// Since when, by this machine's clock.
        since: Timestamp,
        /// Why, and what to try.
        why: String,
    },
}

/// A server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Server {
    /// Its version; `None`: it does not tell.
    pub version: Option<String>,
    /// What it is.
    pub role: Role,
}

/// What a server is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Role {
    /// A node's: it tells what that node sees.
    Node,
    /// A relay.
    Relay {
        /// Nodes that it gets flows from.
        connected: Option<u32>,
        /// Nodes that it cannot reach, by name as far as it tells them.
        unavailable: Vec<String>,
    },
}

/// The client's certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Certificate {
    /// Until when the one in use holds; `None`: there is none.
    pub expires: Option<Timestamp>,
    /// Why the files that are there now cannot be used; the ones before them still are.
    pub problem: Option<String>,
}

/// Follows a server until `stop` resolves, or nobody takes what it tells. Breaks are mended: what the server still holds is
/// told once, the rest as lost.
pub async fn follow(
    settings: HubbleSettings,
    interest: watch::Receiver<Arc<Interest>>,
    to: mpsc::Sender<Told>,
    stop: impl Future<Output = ()>,
) {
    tokio::select! {
        () = stop => {}
        () = session::Source::new(settings, interest, to).run() => {}
    }
}

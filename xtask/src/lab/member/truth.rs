//! What a member did. Enters: each connect, each byte; leaves: a JSON file, rewritten as a whole several times a
//! second, so that a reader never sees half of it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::lab::host::{now, write_whole};

/// How often the file is written.
const PERIOD: Duration = Duration::from_millis(200);

/// All that a member did.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::lab) struct Truth {
    pub(in crate::lab) pod: String,
    pub(in crate::lab) rank: usize,
    pub(in crate::lab) started: String,
    /// When it ended, if it did by itself.
    pub(in crate::lab) ended: Option<String>,
    /// Why it failed.
    pub(in crate::lab) error: Option<String>,
    /// Steps whose sum was right.
    pub(in crate::lab) steps: u64,
    /// Steps whose sum was wrong.
    pub(in crate::lab) wrong_sums: u64,
    pub(in crate::lab) connections: Vec<Connection>,
    /// By remote end.
    pub(in crate::lab) connects: BTreeMap<SocketAddr, Connects>,
}

/// One TCP connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::lab) struct Connection {
    pub(in crate::lab) purpose: Purpose,
    /// Whether this end opened it.
    pub(in crate::lab) opened_here: bool,
    pub(in crate::lab) peer_rank: usize,
    pub(in crate::lab) local: SocketAddr,
    pub(in crate::lab) remote: SocketAddr,
    pub(in crate::lab) opened: String,
    /// Payload bytes given to the kernel.
    pub(in crate::lab) sent: u64,
    /// Payload bytes got from the kernel.
    pub(in crate::lab) received: u64,
}

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::lab) enum Purpose {
    /// At rank 0's fixed port.
    Rendezvous,
    /// Between two members, on an ephemeral port.
    Mesh,
}

/// How the connects to one end went.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub(in crate::lab) struct Connects {
    pub(in crate::lab) tried: u64,
    pub(in crate::lab) succeeded: u64,
    /// Failed ones, by kind of error.
    pub(in crate::lab) failed: BTreeMap<String, u64>,
    pub(in crate::lab) first: String,
    pub(in crate::lab) last: String,
}

impl Truth {
    /// Nothing done yet.
    pub(super) fn begin(pod: &str, rank: usize) -> Self {
        Self {
            pod: pod.to_owned(),
            rank,
            started: now(),
            ended: None,
            error: None,
            steps: 0,
            wrong_sums: 0,
            connections: Vec::new(),
            connects: BTreeMap::new(),
        }
    }

    /// Reads a member's file; `None` when it is not there yet.
    pub(in crate::lab) fn read(path: &Path) -> Result<Option<Self>> {
        match fs::read_to_string(path) {
            Ok(text) => serde_json::from_str(&text).map(Some).with_context(|| path.display().to_string()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| path.display().to_string()),
        }
    }
}

/// A truth that is being made, and its file.
pub(super) struct Journal {
    path: PathBuf,
    truth: Mutex<Truth>,
    over: AtomicBool,
}

impl Journal {
    /// Starts to write it.
    pub(super) fn begin(path: &Path, truth: Truth) -> Arc<Self> {
        let journal =
            Arc::new(Self { path: path.to_owned(), truth: Mutex::new(truth), over: AtomicBool::new(false) });
        let writer = Arc::clone(&journal);
        thread::spawn(move || {
            while !writer.over.load(Ordering::Acquire) {
                // A full disk shows at the end as well.
                let _ = writer.write();
                thread::sleep(PERIOD);
            }
        });
        journal
    }

    /// The truth, to be added to.
    pub(super) fn truth(&self) -> MutexGuard<'_, Truth> {
        self.truth.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the last state.
    pub(super) fn end(&self, error: Option<String>) -> Result<()> {
        self.over.store(true, Ordering::Release);
        {
            let mut truth = self.truth();
            truth.error = error;
            truth.ended = Some(now());
        }
        self.write()
    }

    fn write(&self) -> Result<()> {
        // The lock is held while writing: two writers would share the temporary file.
        let truth = self.truth();
        write_whole(&self.path, &serde_json::to_string(&*truth)?)
    }
}

//! Where the agent's knowledge of the cluster comes from: a directory of objects, or the cluster's API server. Either
//! way the newest whole state, when it changed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use firedoor_core::object::Object;
use firedoor_core::time::Timestamp;
use tokio::sync::watch;

use super::board::InventoryShown;
use super::directory::Directory;
use crate::capture::Problems;
use crate::cluster::Snapshot;

/// Where the objects come from.
pub(super) enum Supply {
    /// A directory.
    Directory(Directory),
    /// The API server.
    Cluster(watch::Receiver<Option<Arc<Snapshot>>>),
}

/// The cluster, anew.
pub(super) struct Renewal {
    pub(super) objects: Vec<Object>,
    /// By UID: when pods ended.
    pub(super) ended: BTreeMap<String, Timestamp>,
    /// By UID: pods here of jobs of which not all members are known.
    pub(super) partial: BTreeSet<String>,
    pub(super) shown: InventoryShown,
}

impl Supply {
    pub(super) fn directory(path: &Path) -> Self {
        Self::Directory(Directory::new(path))
    }

    /// What changed since the last time; `None`: nothing. What is wrong with single objects goes to `problems`.
    pub(super) fn changed(&mut self, problems: &mut Problems) -> std::io::Result<Option<Renewal>> {
        match self {
            Self::Directory(directory) => {
                let objects = directory.changed(problems)?;
                Ok(objects.map(|objects| Renewal {
                    objects,
                    ended: BTreeMap::new(),
                    partial: BTreeSet::new(),
                    shown: InventoryShown { ready: true, ..InventoryShown::default() },
                }))
            }
            Self::Cluster(latest) => {
                // The sender ends only with the agent; the last state stays.
                if !latest.has_changed().unwrap_or(false) {
                    return Ok(None);
                }
                let Some(snapshot) = latest.borrow_and_update().clone() else { return Ok(None) };
                Ok(Some(Renewal {
                    objects: snapshot.objects.clone(),
                    ended: snapshot.ended.clone(),
                    partial: snapshot.partial.iter().flat_map(|job| job.local.iter().cloned()).collect(),
                    shown: InventoryShown {
                        ready: snapshot.ready,
                        stale_since: snapshot.stale_since,
                        notes: snapshot.notes.clone(),
                    },
                }))
            }
        }
    }

    /// Reads everything again, changed or not.
    pub(super) fn again(&mut self) {
        if let Self::Directory(directory) = self {
            directory.forget();
        }
    }
}

//! Where the agent's knowledge of the cluster comes from: a directory of objects, or the cluster's API server. Either
//! way the newest whole state, when it changed.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;

use firedoor_core::object::Object;
use firedoor_core::time::Timestamp;
use tokio::sync::watch;

use super::board::InventoryShown;
use super::directory::{Directory, Found};
use crate::cluster::Snapshot;

/// Where the objects come from.
pub(super) enum Supply {
    /// A directory.
    Directory(Directory),
    /// The API server.
    Cluster(watch::Receiver<Option<Arc<Snapshot>>>),
}

/// What is news of the cluster.
pub(super) struct Renewal {
    /// The cluster, anew; `None`: as it was.
    pub(super) known: Option<Known>,
    pub(super) shown: InventoryShown,
}

/// What is known of the cluster.
pub(super) struct Known {
    pub(super) objects: Vec<Object>,
    /// By UID: when pods ended.
    pub(super) ended: BTreeMap<String, Timestamp>,
    /// By UID: pods here of jobs of which not all members are known.
    pub(super) partial: BTreeSet<String>,
}

impl Supply {
    /// # Errors
    /// When the directory cannot be read.
    pub(super) fn directory(path: &Path) -> io::Result<Self> {
        Directory::new(path).map(Self::Directory)
    }

    /// What changed since the last time; `None`: nothing.
    pub(super) fn changed(&mut self, at: Timestamp) -> Option<Renewal> {
        match self {
            Self::Directory(directory) => {
                let Found { objects, shown } = directory.changed(at)?;
                let (ended, partial) = (BTreeMap::new(), BTreeSet::new());
                Some(Renewal { known: objects.map(|objects| Known { objects, ended, partial }), shown })
            }
            Self::Cluster(latest) => {
                // The sender ends only with the agent; the last state stays.
                if !latest.has_changed().unwrap_or(false) {
                    return None;
                }
                let snapshot = latest.borrow_and_update().clone()?;
                let known = Known {
                    objects: snapshot.objects.clone(),
                    ended: snapshot.ended.clone(),
                    partial: snapshot.partial.iter().flat_map(|job| job.local.iter().cloned()).collect(),
                };
                let shown = InventoryShown {
                    ready: snapshot.ready,
                    stale_since: snapshot.stale_since,
                    notes: snapshot.notes.clone(),
                };
                Some(Renewal { known: Some(known), shown })
            }
        }
    }

    /// Reads everything again, changed or not.
    pub(super) fn again(&mut self) {
        if let Self::Directory(directory) = self {
            directory.again();
        }
    }
}

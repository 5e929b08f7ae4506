//! The latest of everything that can be asked for. Written by the observer, read by whoever asks.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use firedoor_core::report::Report;
use serde::Serialize;

use crate::source::ebpf::EbpfSource;

/// The latest of everything.
pub(super) struct Board {
    report: RwLock<Option<Arc<Report>>>,
    readiness: Readiness,
}

/// What is watched and what is not.
#[derive(Serialize)]
struct Readiness {
    source: &'static str,
    hooks: Vec<HookState>,
    /// What each map in the kernel holds at most, in bytes.
    map_bytes: BTreeMap<String, u64>,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct HookState {
    name: &'static str,
    sees: &'static str,
    attached: bool,
    reason: Option<String>,
}

impl Board {
    pub(super) fn new(source: &EbpfSource) -> Self {
        let hooks = source.hooks().iter().map(|hook| HookState {
            name: hook.name,
            sees: hook.sees,
            attached: hook.missing.is_none(),
            reason: hook.missing.clone(),
        });
        let maps = source.probes().memory().iter();
        let readiness = Readiness {
            source: "ebpf",
            hooks: hooks.collect(),
            map_bytes: maps.map(|map| (map.name.clone(), map.bytes)).collect(),
            notes: source.notes().to_vec(),
        };
        Self { report: RwLock::new(None), readiness }
    }

    /// Puts up a new report.
    pub(super) fn show(&self, report: Report) {
        *self.report.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(report));
    }

    /// The latest report; `None`: there is none yet.
    pub(super) fn report(&self) -> Option<Arc<Report>> {
        self.report.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What is watched and what is not, as JSON.
    pub(super) fn readiness(&self) -> Vec<u8> {
        serde_json::to_vec_pretty(&self.readiness).unwrap_or_default()
    }
}

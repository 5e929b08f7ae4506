//! The latest of everything that can be asked for. Written by the observer, read by whoever asks.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use firedoor_core::report::Report;
use serde::Serialize;

use crate::output::{json, text};
use crate::source::ebpf::EbpfSource;

/// The latest of everything.
pub(super) struct Board {
    report: RwLock<Option<Shown>>,
    readiness: Readiness,
}

/// The latest report, ready to be sent.
#[derive(Clone)]
pub(super) struct Shown {
    /// For programs.
    pub(super) json: Arc<[u8]>,
    /// For people.
    pub(super) text: Arc<[u8]>,
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
    pub(super) fn show(&self, report: &Report) {
        let (mut for_programs, mut for_people) = (Vec::new(), Vec::new());
        if json::write(report, &mut for_programs).is_ok()
            && text::write(report, false, &mut for_people).is_ok()
        {
            let shown = Shown { json: for_programs.into(), text: for_people.into() };
            *self.report.write().unwrap_or_else(PoisonError::into_inner) = Some(shown);
        }
    }

    /// The latest report; `None`: there is none yet.
    pub(super) fn report(&self) -> Option<Shown> {
        self.report.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What is watched and what is not, as JSON.
    pub(super) fn readiness(&self) -> Vec<u8> {
        serde_json::to_vec_pretty(&self.readiness).unwrap_or_default()
    }
}

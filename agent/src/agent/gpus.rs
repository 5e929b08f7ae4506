//! What the node's GPUs do, as its exporter tells. Enters: expositions; leaves: readings for the pipeline, and how the
//! exporter is. Readings that nobody renews are forgotten: what a GPU did is not what it does.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use firedoor_core::gpu::Readings;
use firedoor_core::time::Timestamp;
use serde::Serialize;
use tokio::sync::watch;

use super::board::rfc3339;
use crate::capture::{Problems, gpu};
use crate::source::gpu::{Answer, ExporterUrl};

/// A reading that is older than so many times the pause between two of them is forgotten ...
const KEPT: u32 = 4;
/// ... but not within this: dcgm-exporter samples every 30 s (`DCGM_EXPORTER_INTERVAL`).
const KEPT_AT_LEAST: Duration = Duration::from_secs(60);

/// The exporter, as it is.
#[derive(Clone, Serialize)]
pub(super) struct GpusShown {
    exporter: String,
    pub(super) up: bool,
    /// Since when it answers, or does not.
    #[serde(serialize_with = "rfc3339")]
    since: Option<Timestamp>,
    /// Why there is no answer.
    why: Option<String>,
    /// Devices that pods use, by its last answer.
    devices: usize,
    notes: Vec<String>,
}

/// What the exporter tells.
pub(super) struct Gpus {
    latest: watch::Receiver<Option<Arc<Answer>>>,
    kept: Duration,
    shown: GpusShown,
}

impl Gpus {
    pub(super) fn new(
        exporter: &ExporterUrl,
        every: Duration,
        latest: watch::Receiver<Option<Arc<Answer>>>,
    ) -> Self {
        let (exporter, since, why) = (exporter.to_string(), None, None);
        let shown = GpusShown { exporter, up: false, since, why, devices: 0, notes: Vec::new() };
        Self { latest, kept: (every * KEPT).max(KEPT_AT_LEAST), shown }
    }

    /// Takes the newest answer, if there is one since the last time.
    pub(super) fn renew(&mut self, at: Timestamp, readings: &mut Readings) {
        if !self.latest.has_changed().unwrap_or(false) {
            return;
        }
        let Some(answer) = self.latest.borrow_and_update().clone() else { return };
        let shown = &mut self.shown;
        if shown.since.is_none() || shown.up != answer.is_ok() {
            shown.since = Some(at);
        }
        (shown.up, shown.why) = (answer.is_ok(), answer.as_ref().as_ref().err().cloned());
        let Ok(exposition) = answer.as_ref() else { return };
        let mut problems = Problems::default();
        let text = String::from_utf8_lossy(exposition);
        let found = gpu::parse(Path::new(&shown.exporter), &text, Some(at), readings, &mut problems);
        shown.devices = found.devices;
        shown.notes = problems.lines().collect();
        if found.devices == 0 && found.nameless > 0 {
            shown.notes.push(
                "no sample names a pod: no GPU is in use here, or the exporter does not tell by whom \
                 (dcgm-exporter: DCGM_EXPORTER_KUBERNETES=true)"
                    .to_owned(),
            );
        }
    }

    /// Forgets what nobody renewed.
    pub(super) fn age(&self, at: Timestamp, readings: &mut Readings) {
        readings.forget_before(at.minus(self.kept), |_, _| true);
    }

    pub(super) fn shown(&self) -> &GpusShown {
        &self.shown
    }
}

impl GpusShown {
    /// How it is, in lines of the log.
    pub(super) fn described(&self) -> Vec<String> {
        let state = match (&self.why, self.up) {
            (Some(why), _) => format!("what GPUs do is not known: {}: {why}", self.exporter),
            (None, true) => format!("what GPUs do is known from {}", self.exporter),
            (None, false) => return Vec::new(),
        };
        std::iter::once(state).chain(self.notes.iter().cloned()).collect()
    }
}

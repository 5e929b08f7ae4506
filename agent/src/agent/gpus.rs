//! What the node's GPUs do, as its exporter tells. Enters: expositions, and the pods among which the exporter is found;
//! leaves: readings for the pipeline, and how the exporter is. Readings that nobody renews are forgotten: what a GPU did
//! is not what it does.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use firedoor_core::facts::{Phase, Pod};
use firedoor_core::gpu::Readings;
use firedoor_core::inventory::Inventory;
use firedoor_core::time::Timestamp;
use serde::Serialize;
use tokio::sync::watch;

use super::board::rfc3339;
use crate::capture::Problems;
use crate::capture::gpu::{self, Found, Wanted};
use crate::config::GpuConfig;
use crate::source::gpu::{ExporterUrl, Scrape};

/// A reading that is older than so many times the pause between two of them is forgotten ...
const KEPT: u32 = 4;
/// ... but not within this: dcgm-exporter samples every 30 s (`DCGM_EXPORTER_INTERVAL`).
const KEPT_AT_LEAST: Duration = Duration::from_secs(60);
/// A node has a few dozen devices, if each is parted.
const DEVICES: usize = 1024;
/// Where dcgm-exporter listens (`DCGM_EXPORTER_LISTEN`).
const PORT: u16 = 9400;

/// The exporter, as it is.
#[derive(Clone, Serialize)]
pub(super) struct GpusShown {
    exporter: String,
    up: bool,
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
    config: GpuConfig,
    exporter: watch::Sender<Option<ExporterUrl>>,
    latest: watch::Receiver<Option<Arc<Scrape>>>,
    /// How the one that answered last is.
    shown: Option<GpusShown>,
}

impl Gpus {
    pub(super) fn new(
        config: &GpuConfig,
        exporter: watch::Sender<Option<ExporterUrl>>,
        latest: watch::Receiver<Option<Arc<Scrape>>>,
    ) -> Self {
        Self { config: config.clone(), exporter, latest, shown: None }
    }

    /// Looks for the exporter among the pods of these nodes, where none is named.
    pub(super) fn find(&mut self, inventory: &Inventory, nodes: &[&str]) {
        if self.config.exporter.is_some() {
            return;
        }
        // Pods that are gone are remembered for a while.
        let lives = |pod: &Pod| pod.phase == Phase::Running && pod.lease.until.is_none();
        let here = |pod: &&Pod| lives(pod) && pod.node.as_deref().is_some_and(|node| nodes.contains(&node));
        let exporters = inventory.pods().iter().filter(here).filter(|pod| self.is_exporter(pod));
        let found = exporters.min_by_key(|pod| (&pod.namespace, &pod.name)).and_then(address);
        self.exporter.send_if_modified(|known| {
            let differs = *known != found;
            *known = found;
            differs
        });
        if self.exporter.borrow().is_none() {
            self.shown = None;
        }
    }

    fn is_exporter(&self, pod: &Pod) -> bool {
        let mut wanted = self.config.exporter_labels.iter().filter_map(|label| label.split_once('='));
        wanted.any(|(key, value)| pod.labels.get(key).is_some_and(|given| given == value))
    }

    /// The newest answer, if there is one since the last time: what pods that are known do.
    pub(super) fn news(&mut self, at: Timestamp, inventory: &Inventory) -> Option<Found> {
        if !self.latest.has_changed().unwrap_or(false) {
            return None;
        }
        let scrape = self.latest.borrow_and_update().clone()?;
        if self.exporter.borrow().as_ref() != Some(&scrape.exporter) {
            return None;
        }
        let Scrape { exporter, answer } = &*scrape;
        let exporter = exporter.to_string();
        let before = self.shown.take().filter(|shown| shown.exporter == exporter);
        let same = before.as_ref().filter(|shown| shown.up == answer.is_ok());
        let mut shown = GpusShown {
            up: answer.is_ok(),
            since: same.and_then(|shown| shown.since).or(Some(at)),
            why: answer.as_ref().err().cloned(),
            devices: before.map_or(0, |shown| shown.devices),
            notes: Vec::new(),
            exporter,
        };
        let mut news = None;
        if let Ok(exposition) = answer {
            let (mut problems, text) = (Problems::default(), String::from_utf8_lossy(exposition));
            // Whoever tells of pods that nobody knows fills no memory.
            let pod = |namespace: &str, name: &str| inventory.pod_named(namespace, name, at).is_some();
            let wanted = Wanted { pod: &pod, devices: DEVICES };
            let found = gpu::parse(Path::new(&shown.exporter), &text, Some(at), &wanted, &mut problems);
            shown.devices = found.readings.len();
            shown.notes = problems.lines().collect();
            if found.readings.is_empty() && found.nameless > 0 {
                shown.notes.push(
                    "no sample names a pod: no GPU is in use here, or the exporter does not tell by whom \
                     (dcgm-exporter: DCGM_EXPORTER_KUBERNETES=true)"
                        .to_owned(),
                );
            }
            if found.beyond > 0 {
                let beyond = found.beyond;
                shown.notes.push(format!(
                    "the exporter tells of more than {DEVICES} devices: {beyond} samples of the others are left out"
                ));
            }
            news = Some(found);
        }
        self.shown = Some(shown);
        news
    }

    /// Adds an answer of `at` to what is known.
    pub(super) fn enter(news: Found, at: Timestamp, readings: &mut Readings) {
        news.enter(readings);
        // Devices that have other names in every answer do not add up.
        if readings.len() > DEVICES {
            readings.forget_before(at, |_, _| true);
        }
    }

    /// Forgets what nobody renewed.
    pub(super) fn age(&self, at: Timestamp, readings: &mut Readings) {
        let kept = self.config.scrape_every.saturating_mul(KEPT).max(KEPT_AT_LEAST);
        readings.forget_before(at.minus(kept), |_, _| true);
    }

    /// How it is; `None`: there is none, or it was not asked yet.
    pub(super) fn shown(&self) -> Option<&GpusShown> {
        self.shown.as_ref()
    }
}

/// Where such a pod answers: at the port that is called `metrics`, or its only one.
fn address(pod: &Pod) -> Option<ExporterUrl> {
    let named = pod.ports.iter().find(|port| port.name.as_deref() == Some("metrics"));
    let port = match (named, pod.ports.as_slice()) {
        (Some(port), _) | (None, [port]) => port.port,
        _ => PORT,
    };
    Some(ExporterUrl::at(*pod.ips.first()?, port))
}

impl GpusShown {
    /// How it is, in lines of the log.
    pub(super) fn described(&self) -> Vec<String> {
        let state = match &self.why {
            Some(why) => format!("what GPUs do is not known: {}: {why}", self.exporter),
            None => format!("what GPUs do is known from {}", self.exporter),
        };
        std::iter::once(state).chain(self.notes.iter().cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_with_ever_new_names_do_not_add_up() {
        let mut readings = Readings::default();
        for second in 1..=5 {
            let at = Timestamp::from_nanos(second * 1_000_000_000);
            let text: String = (0..DEVICES + 9)
                .map(|n| {
                    format!("DCGM_FI_DEV_GPU_UTIL{{UUID=\"{second}-{n}\",pod=\"w\",namespace=\"ml\"}} 1\n")
                })
                .collect();
            let (wanted, mut problems) =
                (Wanted { pod: &|_, _| true, devices: DEVICES }, Problems::default());
            let found = gpu::parse(Path::new("x"), &text, Some(at), &wanted, &mut problems);
            assert_eq!(found.beyond, 9);
            Gpus::enter(found, at, &mut readings);
            assert_eq!(readings.len(), DEVICES);
        }
    }
}

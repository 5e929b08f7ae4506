//! `firedoor replay`: the whole pipeline over a capture. Enters: a capture directory and choices; leaves: a report,
//! and what was damaged on the way.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use firedoor_core::inventory::{Inventory, Oddity};
use firedoor_core::pipeline::Pipeline;
use firedoor_core::report::{FindingState, JobVerdict, Report, Symptom};

use crate::capture::{CaptureError, Layout, Problems, flows, gpu, objects, shown};
use crate::config::{Config, ConfigError};

/// Why a replay cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The capture.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// Its configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// What came of a replay.
pub struct Outcome {
    /// The report.
    pub report: Report,
    /// What was damaged.
    pub problems: Problems,
    /// What a person should know besides, a line each.
    pub notes: Vec<String>,
    /// Whether there were any objects to know jobs from.
    pub inventory_known: bool,
}

impl Outcome {
    /// What the report means for a script: 1 for a finding that is active or ended unresolved, 3 when something
    /// could not be known, else 0. `fail_on` narrows or widens which symptoms count.
    #[must_use]
    pub fn exit_code(&self, fail_on: Option<&[Symptom]>) -> u8 {
        let counts = |symptom: Symptom| fail_on.map_or(symptom.fails(), |chosen| chosen.contains(&symptom));
        let mut findings = self.report.jobs.iter().flat_map(|job| &job.findings);
        if findings.any(|finding| finding.state != FindingState::Recovered && counts(finding.symptom)) {
            return 1;
        }
        let unclear = self.report.jobs.iter().any(|job| job.verdict == JobVerdict::Inconclusive);
        if unclear || !self.inventory_known { 3 } else { 0 }
    }
}

/// Replays a capture. `config` stands in for the capture's own configuration.
///
/// # Errors
/// When the capture or its configuration cannot be read at all.
pub fn replay(capture: &Path, config: Option<&Path>, quiet: bool) -> Result<Outcome, ReplayError> {
    let layout = Layout::find(capture)?;
    let config = match config.or(layout.config.as_deref()) {
        Some(path) => Config::read(path)?,
        None => Config::default(),
    };
    let mut problems = Problems::default();
    problems.note_skipped(&layout.skipped);
    let inventory = Inventory::new(objects::read(&layout.objects, &mut problems), &config.grouping);
    let mut notes = oddities(&inventory);
    let inventory_known = !inventory.is_empty();
    if !inventory_known {
        notes.push(format!(
            "no Kubernetes objects in {}: without pods nobody knows which flows belong to a job",
            shown(&capture.join("objects"))
        ));
    }
    let mut pipeline = Pipeline::new(inventory, config.settings);
    gpu::read(&layout.gpu, pipeline.readings(), &mut problems);
    let bytes = Arc::new(AtomicU64::new(0));
    let files: Vec<PathBuf> = layout.flows.iter().chain(&layout.sockets).cloned().collect();
    let bar = progress_bar(&files, quiet);
    let mut advance = || {
        if let Some(bar) = &bar {
            bar.set_position(bytes.load(Ordering::Relaxed));
        }
    };
    let tally = flows::replay(&layout, &mut pipeline, &mut problems, &bytes, &mut advance);
    if let Some(bar) = &bar {
        bar.finish_and_clear();
    }
    if tally.other > 0 {
        notes.push(format!("{} lines are agent or debug events: not flows, left out", tally.other));
    }
    if tally.unknown > 0 {
        notes.push(format!(
            "{} lines are kernel events of a kind that this version does not know",
            tally.unknown
        ));
    }
    let report = pipeline.finish();
    notes.extend(coverage_notes(&report));
    Ok(Outcome { report, problems, notes, inventory_known })
}

fn oddities(inventory: &Inventory) -> Vec<String> {
    let told = 5;
    let odd = inventory.oddities();
    let mut lines: Vec<String> = odd
        .iter()
        .take(told)
        .map(|oddity| match oddity {
            Oddity::SharedUid { uid, first, second } => {
                format!(
                    "the UID {} is carried by two objects: {} {} and {} {}",
                    uid.escape_debug(),
                    first.kind.escape_debug(),
                    first.name.escape_debug(),
                    second.kind.escape_debug(),
                    second.name.escape_debug()
                )
            }
        })
        .collect();
    if odd.len() > told {
        lines.push(format!("{} more objects share a UID", odd.len() - told));
    }
    lines
}

fn coverage_notes(report: &Report) -> Vec<String> {
    let coverage = &report.coverage;
    let mut notes = Vec::new();
    if coverage.late > 0 {
        notes
            .push(format!("{} events came later than the allowed lateness and were left out", coverage.late));
    }
    if coverage.unresolved > 0 && coverage.attributed == 0 {
        notes.push(format!(
            "{} flows name pods or addresses that the objects do not hold: were flows and objects recorded at the same time?",
            coverage.unresolved
        ));
    }
    notes
}

/// A bar on a terminal, for captures that take a while.
fn progress_bar(files: &[PathBuf], quiet: bool) -> Option<indicatif::ProgressBar> {
    let size: u64 = files.iter().filter_map(|file| std::fs::metadata(file).ok()).map(|m| m.len()).sum();
    let worth_it = size > 64 << 20;
    if quiet || !worth_it || !std::io::stderr().is_terminal() {
        return None;
    }
    let style = indicatif::ProgressStyle::with_template(
        "replaying {bar:30} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left",
    );
    let bar = indicatif::ProgressBar::new(size);
    Some(match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    })
}

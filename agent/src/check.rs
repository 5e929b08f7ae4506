//! `firedoor check`: manifests before they are applied. Enters: files, directories or standard input, and perhaps a
//! capture of the cluster they would come into; leaves: a report, and what could not be read.

use std::io::Read;
use std::path::{Path, PathBuf};

use firedoor_core::check::{
    CheckFinding, CheckReport, CheckVerdict, ObjectAt, Options, Origin, Rule, Severity, Source, check,
};

use crate::capture::objects::{self, Piece};
use crate::capture::{Below, CaptureError, Problems, files_below, shown};
use crate::config::{Config, ConfigError};

/// Stands for standard input.
const STDIN: &str = "-";
/// A longer standard input is not believed to be manifests.
const MAX_STDIN: u64 = 1 << 30;
/// What Kubernetes objects are kept in.
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// Why a check cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// A named file.
    #[error("cannot read {}: {why}", shown(path))]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// No file in a directory.
    #[error("no manifests in {}: looked for files ending in .yaml, .yml and .json", shown(path))]
    Empty {
        /// The directory.
        path: PathBuf,
    },
    /// Nothing but damage in a named file.
    #[error("{} holds no Kubernetes object: {why}", shown(path))]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found first.
        why: String,
    },
    /// The capture.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// What to check, and with what.
#[derive(Debug, Default)]
pub struct Inputs<'a> {
    /// Files, directories, or `-` for standard input.
    pub manifests: &'a [PathBuf],
    /// What the cluster has already.
    pub capture: Option<&'a Path>,
    /// Configuration in place of the capture's own.
    pub config: Option<&'a Path>,
    /// Cilium's major and minor version, where it is known.
    pub cilium_version: Option<(u16, u16)>,
    /// The namespace of manifests that name none.
    pub namespace: Option<&'a str>,
}

/// What came of a check.
pub struct Outcome {
    /// The report.
    pub report: CheckReport,
    /// What was damaged or no object, for standard error.
    pub problems: Problems,
}

/// From which severity on a finding counts as a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum FailOn {
    /// What would block a job
    Error,
    /// Also possible zone splits and labels that lie
    Warning,
}

impl FailOn {
    /// The least severity that fails.
    #[must_use]
    pub fn severity(self) -> Severity {
        match self {
            Self::Error => Severity::Error,
            Self::Warning => Severity::Warning,
        }
    }
}

/// What a check means for a script: 0 nothing would block, 1 something would, 3 that cannot be excluded.
#[must_use]
pub fn exit_code(report: &CheckReport, fail_on: FailOn) -> u8 {
    let strict = fail_on == FailOn::Warning;
    let warned = report.findings.iter().any(|finding| strict && finding.severity == Severity::Warning);
    if report.verdict == CheckVerdict::Blocked || warned {
        return 1;
    }
    // Where warnings count, one that cannot be excluded counts too.
    let open = report.findings.iter().any(|finding| strict && finding.rule == Rule::PlacementUnknown);
    if report.verdict == CheckVerdict::Unknown || open { 3 } else { 0 }
}

/// Reads everything and checks it.
///
/// # Errors
/// When a named input cannot be read at all.
pub fn run(inputs: &Inputs<'_>) -> Result<Outcome, CheckError> {
    let mut reading = Reading::default();
    if let Some(capture) = inputs.capture {
        reading.capture(capture)?;
    }
    let own = inputs.capture.map(|capture| capture.join("firedoor.toml")).filter(|path| path.is_file());
    let config = match inputs.config.or(own.as_deref()) {
        Some(path) => Config::read(path)?,
        None => Config::default(),
    };
    for path in inputs.manifests {
        reading.manifests(path)?;
    }
    let mut options =
        Options { grouping: config.grouping, policy: config.settings.policy, ..Options::default() };
    options.policy.cilium_version = inputs.cilium_version.or(options.policy.cilium_version);
    if let Some(namespace) = inputs.namespace {
        namespace.clone_into(&mut options.namespace);
    }
    let CheckReport { jobs, mut findings, .. } = check(&reading.sources, &options);
    findings.extend(reading.damage);
    Ok(Outcome { report: CheckReport::new(jobs, findings), problems: reading.problems })
}

/// Whose objects a text holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    /// Those to check.
    Manifests,
    /// Those the cluster has already.
    Cluster,
}

/// What was read so far.
#[derive(Default)]
struct Reading {
    sources: Vec<Source>,
    problems: Problems,
    /// Damaged documents: what they would have said is not known.
    damage: Vec<CheckFinding>,
}

impl Reading {
    fn capture(&mut self, capture: &Path) -> Result<(), CaptureError> {
        let unreadable = |why| CaptureError::Unreadable { path: capture.to_owned(), why };
        std::fs::read_dir(capture).map_err(unreadable)?;
        let inner = capture.join("objects");
        let below = files_below(if inner.is_dir() { &inner } else { capture }, &EXTENSIONS);
        self.all_of(&below, Side::Cluster);
        Ok(())
    }

    /// Everything below a directory; what cannot be read leaves the answer open.
    fn all_of(&mut self, below: &Below, side: Side) {
        for skipped in &below.skipped {
            self.damaged(&skipped.path, 0, &format!("{}: not read", skipped.why));
        }
        for file in &below.files {
            match objects::text(file) {
                Ok(text) => {
                    self.text(file, &text, side);
                }
                Err(what) => self.damaged(file, 0, &what),
            }
        }
    }

    fn damaged(&mut self, path: &Path, line: u64, what: &str) {
        self.problems.note(path, line, what);
        self.damage.push(damage(path, line, what));
    }

    fn manifests(&mut self, path: &Path) -> Result<(), CheckError> {
        let unreadable = |why: String| CheckError::Unreadable { path: path.to_owned(), why };
        if path == Path::new(STDIN) {
            let mut text = String::new();
            std::io::stdin()
                .take(MAX_STDIN)
                .read_to_string(&mut text)
                .map_err(|e| unreadable(e.to_string()))?;
            return self.named(Path::new("stdin"), &text);
        }
        if path.is_dir() {
            std::fs::read_dir(path).map_err(|e| unreadable(e.to_string()))?;
            let below = files_below(path, &EXTENSIONS);
            if below.files.is_empty() && below.skipped.is_empty() {
                return Err(CheckError::Empty { path: path.to_owned() });
            }
            self.all_of(&below, Side::Manifests);
            return Ok(());
        }
        let text = objects::text(path).map_err(unreadable)?;
        self.named(path, &text)
    }

    /// A text that was asked for by name has to hold something.
    fn named(&mut self, path: &Path, text: &str) -> Result<(), CheckError> {
        let before = self.sources.len();
        let first = self.text(path, text, Side::Manifests);
        if self.sources.len() == before {
            let why = first.unwrap_or_else(|| "it is empty".to_owned());
            return Err(CheckError::Damaged { path: path.to_owned(), why });
        }
        Ok(())
    }

    /// Takes the objects of a text; gives the first problem.
    fn text(&mut self, path: &Path, text: &str, side: Side) -> Option<String> {
        let file = path.display().to_string();
        let mut first = None;
        objects::pieces(text, &mut |line, piece| match piece {
            Piece::Object(object) => {
                let origin = (side == Side::Manifests).then(|| Origin { file: file.clone(), line });
                self.sources.push(Source { object, origin });
            }
            Piece::Foreign(what) => {
                self.problems.note(path, line, &what);
                first.get_or_insert(what);
            }
            Piece::Damaged(what) => {
                self.damaged(path, line, &what);
                first.get_or_insert(what);
            }
        });
        first
    }
}

fn damage(path: &Path, line: u64, what: &str) -> CheckFinding {
    let (file, line) = (Some(path.display().to_string()), Some(line.max(1)));
    let object = ObjectAt { kind: String::new(), namespace: None, name: String::new(), file, line };
    let summary = format!("an input cannot be read, and what it would change is not known: {what}");
    CheckFinding::new(Rule::UnreadableInput, Severity::Unknown, None, object, summary)
}

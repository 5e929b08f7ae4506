//! A capture directory: what a cluster recorded. Enters: a path; leaves: objects, GPU readings and a stream of
//! lines of flows and socket events in order of time. What is damaged is counted and reported with file and line; the rest is read.

pub mod flows;
pub mod gpu;
pub mod lines;
pub mod objects;
pub mod sockets;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::harmless::harmless;

/// Why a capture cannot be read at all.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The path is missing or not a directory.
    #[error(
        "cannot read the capture {}: {why}\n  a capture is a directory; see `firedoor replay --help` for what belongs in it",
        shown(path)
    )]
    Unreadable {
        /// The path.
        path: PathBuf,
        /// Why.
        why: std::io::Error,
    },
    /// Nothing to read in it.
    #[error(
        "the capture {0} holds nothing to replay: looked for {0}/flows*.jsonl and {0}/sockets*.jsonl (also .gz, .zst)\n  \
         record flows with `hubble observe --follow -o jsonpb > {0}/flows.jsonl`,\n  \
         and objects with `kubectl get pods,nodes,... -A -o yaml > {0}/objects/cluster.yaml`",
        shown(path)
    )]
    Empty {
        /// The path.
        path: PathBuf,
    },
}

/// The files of a capture.
#[derive(Debug, Default, Clone)]
pub struct Layout {
    /// Flow files, by name.
    pub flows: Vec<PathBuf>,
    /// firedoor's own recordings of the kernel, by name.
    pub sockets: Vec<PathBuf>,
    /// Object files, by name.
    pub objects: Vec<PathBuf>,
    /// GPU expositions, by name.
    pub gpu: Vec<PathBuf>,
    /// The capture's own configuration.
    pub config: Option<PathBuf>,
}

impl Layout {
    /// Looks for the files of a capture.
    ///
    /// # Errors
    /// When the directory cannot be read or holds neither flows nor socket events.
    pub fn find(capture: &Path) -> Result<Self, CaptureError> {
        let unreadable = |why| CaptureError::Unreadable { path: capture.to_owned(), why };
        let mut layout = Self::default();
        for entry in std::fs::read_dir(capture).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let plain = name.trim_end_matches(".gz").trim_end_matches(".zst");
            if name.starts_with("flows") && plain.ends_with(".jsonl") && path.is_file() {
                layout.flows.push(path);
            } else if name.starts_with("sockets") && plain.ends_with(".jsonl") && path.is_file() {
                layout.sockets.push(path);
            } else if name == "firedoor.toml" && path.is_file() {
                layout.config = Some(path);
            }
        }
        layout.flows.sort();
        layout.sockets.sort();
        layout.objects = files_below(&capture.join("objects"), &["yaml", "yml", "json"]);
        layout.gpu = files_below(&capture.join("gpu"), &["prom"]);
        if layout.flows.is_empty() && layout.sockets.is_empty() {
            return Err(CaptureError::Empty { path: capture.to_owned() });
        }
        Ok(layout)
    }
}

/// Files with one of these extensions below a directory, by path. Links are not followed: they could lead out of
/// the capture, or in circles.
#[must_use]
pub fn files_below(directory: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(directory) = pending.pop() {
        let Ok(entries) = std::fs::read_dir(&directory) else { continue };
        for entry in entries.flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            let path = entry.path();
            let extension = path.extension().map(|e| e.to_string_lossy().to_ascii_lowercase());
            if kind.is_dir() {
                pending.push(path);
            } else if kind.is_file() && extension.is_some_and(|e| extensions.contains(&e.as_str())) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// A path as it may be printed: file names can hold control characters.
#[must_use]
pub fn shown(path: &Path) -> String {
    harmless(&path.display().to_string())
}

/// How many problems of a file are told one by one.
const TOLD: usize = 5;

/// What was damaged, by file: the first few in words, all of them by count.
#[derive(Debug, Default)]
pub struct Problems {
    by_file: BTreeMap<PathBuf, (u64, Vec<String>)>,
}

impl Problems {
    /// Notes a problem at a line (from 1; 0: the file as a whole).
    pub fn note(&mut self, file: &Path, line: u64, what: impl std::fmt::Display) {
        let (count, told) = self.by_file.entry(file.to_owned()).or_default();
        *count += 1;
        if told.len() < TOLD {
            let place = if line == 0 { String::new() } else { format!(":{line}") };
            told.push(format!("{}{place}: {what}", shown(file)));
        }
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.by_file.values().map(|(count, _)| count).sum()
    }

    /// What to tell a person, a line each.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.by_file.iter().flat_map(|(file, (count, told))| {
            let more = count - told.len() as u64;
            let rest = (more > 0).then(|| format!("{}: {more} more problems like these", shown(file)));
            told.iter().cloned().chain(rest)
        })
    }
}

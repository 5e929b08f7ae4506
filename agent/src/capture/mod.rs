//! A capture directory: what a cluster recorded. Enters: a path; leaves: objects, GPU readings and a stream of
//! lines of flows and socket events in order of time. What is damaged is counted and reported with file and line; the rest is read.

pub mod flows;
pub mod gpu;
pub mod lines;
pub mod objects;
pub mod sockets;

use std::collections::BTreeMap;
use std::io::Read;
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
    /// What may hold something, but is not read.
    pub skipped: Vec<Skipped>,
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
            let (flows, sockets) = (name.starts_with("flows"), name.starts_with("sockets"));
            if (flows || sockets) && plain.ends_with(".jsonl") {
                if !path.is_file() {
                    layout.skipped.push(Skipped { path, why: "not a file" });
                } else if flows {
                    layout.flows.push(path);
                } else {
                    layout.sockets.push(path);
                }
            } else if name == "firedoor.toml" && path.is_file() {
                layout.config = Some(path);
            }
        }
        layout.flows.sort();
        layout.sockets.sort();
        let below = [("objects", &["yaml", "yml", "json"][..]), ("gpu", &["prom"][..])];
        let [objects, gpu] = below.map(|(folder, extensions)| {
            let folder = capture.join(folder);
            // Neither has to be there.
            if folder.symlink_metadata().is_ok() {
                files_below(&folder, extensions)
            } else {
                Below::default()
            }
        });
        (layout.objects, layout.gpu) = (objects.files, gpu.files);
        layout.skipped.extend(objects.skipped.into_iter().chain(gpu.skipped));
        layout.skipped.sort();
        if layout.flows.is_empty() && layout.sockets.is_empty() {
            return Err(CaptureError::Empty { path: capture.to_owned() });
        }
        Ok(layout)
    }
}

/// Something in a directory that is passed over, although it may hold what is looked for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Skipped {
    /// What.
    pub path: PathBuf,
    /// Why it is not read.
    pub why: &'static str,
}

/// What is below a directory.
#[derive(Debug, Default, Clone)]
pub struct Below {
    /// Files, by path.
    pub files: Vec<PathBuf>,
    /// What was passed over, by path.
    pub skipped: Vec<Skipped>,
}

/// Files with one of these extensions below a directory. Links are not followed: they could lead out of the capture,
/// or in circles; what they lead to within the directory is found without them. Pipes and devices are not opened:
/// reading them may never end.
#[must_use]
pub fn files_below(directory: &Path, extensions: &[&str]) -> Below {
    const UNREADABLE: &str = "a directory that cannot be read";
    let wanted = |path: &Path| {
        let extension = path.extension().map(|e| e.to_string_lossy().to_ascii_lowercase());
        extension.is_some_and(|e| extensions.contains(&e.as_str()))
    };
    let root = directory.canonicalize().ok();
    let found_anyway = |link: &Path| {
        let target = link.canonicalize().ok();
        target.zip(root.as_ref()).is_some_and(|(target, root)| {
            target.starts_with(root) && (target.is_dir() || (target.is_file() && wanted(&target)))
        })
    };
    let mut below = Below::default();
    let mut pending = vec![directory.to_owned()];
    while let Some(directory) = pending.pop() {
        let Ok(entries) = std::fs::read_dir(&directory) else {
            below.skipped.push(Skipped { path: directory, why: UNREADABLE });
            continue;
        };
        for entry in entries {
            let Ok((path, kind)) = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?))) else {
                below.skipped.push(Skipped { path: directory.clone(), why: UNREADABLE });
                continue;
            };
            if kind.is_dir() {
                pending.push(path);
            } else if kind.is_symlink() {
                if (wanted(&path) || path.is_dir()) && !found_anyway(&path) {
                    below.skipped.push(Skipped { path, why: "a symbolic link that leads elsewhere" });
                }
            } else if wanted(&path) {
                if kind.is_file() {
                    below.files.push(path);
                } else {
                    below.skipped.push(Skipped { path, why: "not a file" });
                }
            }
        }
    }
    below.files.sort();
    below.skipped.sort();
    below.skipped.dedup();
    below
}

/// A larger file is not believed to be what it is taken for.
const MAX_FILE: u64 = 1 << 30;

/// What a file holds, when it is of a size that can be.
///
/// # Errors
/// Why it cannot be read.
pub fn contents(file: &Path) -> Result<Vec<u8>, String> {
    let cannot = |error: std::io::Error| format!("cannot read: {error}");
    let opened = std::fs::File::open(file).map_err(cannot)?;
    if opened.metadata().map_err(cannot)?.len() > MAX_FILE {
        return Err(format!("larger than {MAX_FILE} bytes: not read"));
    }
    // It may grow, and a pipe has no size.
    let mut bytes = Vec::new();
    opened.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(format!("larger than {MAX_FILE} bytes: not read"));
    }
    Ok(bytes)
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

    /// Notes what was passed over.
    pub fn note_skipped(&mut self, skipped: &[Skipped]) {
        for Skipped { path, why } in skipped {
            self.note(path, 0, format_args!("{why}: not read"));
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

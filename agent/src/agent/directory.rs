//! The cluster's objects from a directory, in place of an API server. Read again when a file changes.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use firedoor_core::object::Object;

use crate::capture::{Problems, files_below, objects};

/// What a file was like when it was read.
type Seen = (PathBuf, u64, Option<SystemTime>);

/// A directory of objects.
pub(super) struct Directory {
    path: PathBuf,
    seen: Option<Vec<Seen>>,
}

impl Directory {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), seen: None }
    }

    /// The next look finds everything changed.
    pub(super) fn forget(&mut self) {
        self.seen = None;
    }

    /// All objects, when anything changed since the last time.
    pub(super) fn changed(&mut self, problems: &mut Problems) -> io::Result<Option<Vec<Object>>> {
        std::fs::read_dir(&self.path)?;
        let below = files_below(&self.path, &["yaml", "yml", "json"]);
        let files = below.files;
        let seen: Vec<Seen> = files
            .iter()
            .map(|file| {
                let metadata = std::fs::metadata(file).ok();
                let size = metadata.as_ref().map_or(0, std::fs::Metadata::len);
                (file.clone(), size, metadata.and_then(|m| m.modified().ok()))
            })
            .collect();
        if self.seen.as_ref() == Some(&seen) {
            return Ok(None);
        }
        problems.note_skipped(&below.skipped);
        let objects = objects::read(&files, problems);
        self.seen = Some(seen);
        Ok(Some(objects))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changes_are_read() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("pods.yaml");
        std::fs::write(&file, "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n").unwrap();
        let mut directory = Directory::new(root.path());
        let mut problems = Problems::default();
        assert_eq!(directory.changed(&mut problems).unwrap().map(|o| o.len()), Some(1));
        assert!(directory.changed(&mut problems).unwrap().is_none());
        std::fs::write(&file, "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: b}\n").unwrap();
        assert_eq!(directory.changed(&mut problems).unwrap().map(|o| o.len()), Some(2));
        assert!(Directory::new(&root.path().join("missing")).changed(&mut problems).is_err());
    }
}

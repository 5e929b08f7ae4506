//! The files under version control. Enters: a git working tree; leaves: paths and texts. Must not know what
//! is looked for in them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Paths relative to the root, with `/`, and their texts where they are text.
#[derive(Default)]
pub(super) struct Tree(BTreeMap<String, Option<String>>);

/// A file that is text.
#[derive(Clone, Copy)]
pub(super) struct Text<'a> {
    pub(super) path: &'a str,
    pub(super) text: &'a str,
}

impl Tree {
    /// Tracked files and new ones that git does not ignore, as they are on disk now.
    pub(super) fn load(root: &Path) -> Result<Self> {
        let listing = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .context("cannot run `git ls-files`")?;
        if !listing.status.success() {
            bail!("`git ls-files` failed: {}", String::from_utf8_lossy(&listing.stderr).trim());
        }
        let mut files = BTreeMap::new();
        for path in listing.stdout.split(|byte| *byte == 0).filter(|path| !path.is_empty()) {
            let path = String::from_utf8(path.to_vec()).context("a file name that is not UTF-8")?;
            // Deleted but not yet committed, a link, or a submodule: nothing to read.
            if !root.join(&path).symlink_metadata().is_ok_and(|meta| meta.is_file()) {
                continue;
            }
            let bytes = std::fs::read(root.join(&path)).with_context(|| format!("cannot read {path}"))?;
            files.insert(path, String::from_utf8(bytes).ok());
        }
        Ok(Self(files))
    }

    /// All paths, sorted.
    pub(super) fn files(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The files that are text.
    pub(super) fn texts(&self) -> impl Iterator<Item = Text<'_>> {
        self.0.iter().filter_map(|(path, text)| Some(Text { path, text: text.as_deref()? }))
    }

    /// The Rust sources.
    pub(super) fn rust(&self) -> impl Iterator<Item = Text<'_>> {
        self.texts().filter(|file| file.path.ends_with(".rs"))
    }

    /// The text of one file.
    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.0.get(path)?.as_deref()
    }

    #[cfg(test)]
    pub(super) fn made_up(files: &[(&str, &str)]) -> Self {
        Self(files.iter().map(|(path, text)| ((*path).to_owned(), Some((*text).to_owned()))).collect())
    }
}

//! A directory as a kernel unpacks it at its start: cpio's "newc" format (`Documentation/driver-api/early-userspace/
//! buffer-format.rst`), uncompressed. Directories and regular files only.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const FILE: u32 = 0o100_644;
/// The name of the entry that ends an archive.
const END: &str = "TRAILER!!!";

/// Packs everything below `root`; files in `bin`, libraries and those named in `programs` can be run.
pub(super) fn pack(root: &Path, programs: &[&str]) -> Result<Vec<u8>> {
    let mut archive = Archive::default();
    let mut waiting = vec![root.to_owned()];
    while let Some(directory) = waiting.pop() {
        let entries = std::fs::read_dir(&directory)?.collect::<Result<Vec<_>, _>>()?;
        let mut paths: Vec<_> = entries.iter().map(std::fs::DirEntry::path).collect();
        paths.sort_unstable();
        for path in paths {
            let name = path.strip_prefix(root)?.to_str().context("a name that is no text")?;
            if path.is_dir() {
                archive.add(name, DIRECTORY, &[])?;
                waiting.push(path);
            } else {
                let runs = programs.contains(&name) || name.starts_with("bin/") || name.starts_with("lib");
                archive.add(name, if runs { PROGRAM } else { FILE }, &std::fs::read(&path)?)?;
            }
        }
    }
    archive.end()
}

#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    fn add(&mut self, name: &str, mode: u32, content: &[u8]) -> Result<()> {
        self.entries += 1;
        let size = u32::try_from(content.len()).context("a file of 4 GiB or more")?;
        let length = u32::try_from(name.len() + 1)?;
        // Number, mode, user, group, links, time, size, device and its rdev (two numbers each), length of the name,
        // checksum.
        let fields = [self.entries, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, length, 0];
        let mut header = "070701".to_owned();
        for field in fields {
            write!(header, "{field:08x}")?;
        }
        self.bytes.extend_from_slice(header.as_bytes());
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend_from_slice(content);
        self.align();
        Ok(())
    }

    fn align(&mut self) {
        let whole = self.bytes.len().next_multiple_of(4);
        self.bytes.resize(whole, 0);
    }

    fn end(mut self) -> Result<Vec<u8>> {
        self.add(END, 0, &[])?;
        Ok(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("bin")).unwrap();
        std::fs::write(root.path().join("bin/x"), "abcde").unwrap();
        let archive = pack(root.path(), &[]).unwrap();
        assert_eq!(archive.len() % 4, 0);
        let text = String::from_utf8(archive).unwrap();
        assert!(text.starts_with("07070100000001000041ed"), "a directory first");
        let file = &text[text.rfind("bin/x").unwrap() - 110..];
        assert!(file.starts_with("07070100000002000081ed"), "a program");
        assert_eq!(&file[54..62], "00000005", "its size");
        assert_eq!(&file[94..102], "00000006", "the length of its name");
        assert_eq!(&file[116..121], "abcde", "at a multiple of four");
        assert!(text.contains(END));
    }
}

//! A program and the shared libraries it needs, copied into a directory that becomes a root file system.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::command::{output, succeed};

/// Puts `program` into `root/bin` as `name`, without its debug information, and its libraries where they are here.
pub(crate) fn install(program: &Path, name: &str, root: &Path) -> Result<()> {
    let bin = root.join("bin");
    std::fs::create_dir_all(&bin)?;
    let to = bin.join(name);
    std::fs::copy(program, &to)
        .with_context(|| format!("cannot copy {} to {}", program.display(), to.display()))?;
    succeed(Command::new("strip").arg(&to))?;
    // It fails for a static program, which needs none.
    let needed = output(Command::new("ldd").arg(program)).unwrap_or_default();
    for library in libraries(&needed) {
        let to = root.join(library.strip_prefix("/").unwrap_or(&library));
        if let Some(parent) = to.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::copy(&library, &to).with_context(|| format!("cannot copy {}", library.display()))?;
    }
    Ok(())
}

/// The files that `ldd` names.
fn libraries(ldd: &str) -> Vec<PathBuf> {
    let path = |line: &str| {
        let line = line.split_once("=> ").map_or(line, |(_, path)| path);
        line.split_whitespace().next().filter(|word| word.starts_with('/')).map(PathBuf::from)
    };
    ldd.lines().filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ldd_names() {
        let said = "\tlinux-vdso.so.1 (0x00007f0a)\n\
                    \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f0a)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f0a)\n\
                    \tlibgone.so => not found\n";
        let expected = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from);
        assert_eq!(libraries(said), expected);
        assert!(libraries("").is_empty());
    }
}

//! The architecture's walls. Enters: the files that git knows; leaves: what breaks a wall, with file and line.
//! Must not know cargo or run anything but `git ls-files`.
//!
//! Each wall has a name, which ARCHITECTURE.md uses, and says why it stands.

mod layout;
mod lex;
mod purity;
mod traces;
mod tree;

#[cfg(test)]
mod tests;

use std::path::Path;

use anyhow::{Result, bail};

use tree::Tree;

/// One wall: what it is called, why it stands, how it is checked.
struct Wall {
    name: &'static str,
    why: &'static str,
    check: fn(&Tree) -> Vec<Breach>,
}

/// Something that breaks a wall.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Breach {
    path: String,
    line: Option<usize>,
    what: String,
}

impl Breach {
    fn file(path: &str, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line: None, what: what.into() }
    }

    fn at(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line: Some(line), what: what.into() }
    }
}

impl std::fmt::Display for Breach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.path, self.what),
            None => write!(f, "{}: {}", self.path, self.what),
        }
    }
}

const WALLS: [Wall; 13] = [
    Wall {
        name: "core-dependencies",
        why: "the core cannot reach I/O, a runtime or Kubernetes if it does not depend on them",
        check: purity::core_dependencies,
    },
    Wall {
        name: "core-purity",
        why: "the core knows no clock, file, socket, environment, thread or terminal: same input, same report",
        check: purity::core_source,
    },
    Wall {
        name: "unsafe",
        why: "unsafe code lives where the kernel is spoken to, and nowhere else",
        check: purity::unsafe_code,
    },
    Wall {
        name: "unfinished",
        why: "what is committed works; a placeholder is an issue, not a macro",
        check: purity::unfinished,
    },
    Wall {
        name: "names",
        why: "a file named after nothing collects everything; what it holds has an owner",
        check: layout::names,
    },
    Wall {
        name: "module-docs",
        why: "each module says first what enters, what leaves and what it must not know",
        check: layout::module_docs,
    },
    Wall { name: "file-size", why: "a file is read in one sitting", check: layout::file_size },
    Wall { name: "top-level", why: "the top level is fixed", check: layout::top_level },
    Wall { name: "decisions", why: "decisions can be found and have a state", check: layout::decisions },
    Wall {
        name: "cases",
        why: "a case without an expectation proves nothing",
        check: layout::cases_have_expectations,
    },
    Wall { name: "machine-paths", why: "a fresh clone works anywhere", check: traces::machine_paths },
    Wall {
        name: "registry-hosts",
        why: "which registry serves a machine is that machine's business",
        check: traces::registry_hosts,
    },
    Wall {
        name: "lock-sources",
        why: "every dependency comes from the public registry",
        check: traces::lock_sources,
    },
];

/// Checks the working tree at `root` against every wall.
///
/// # Errors
/// When a wall is broken, or the tree cannot be read.
pub(crate) fn run(root: &Path) -> Result<()> {
    let tree = Tree::load(root)?;
    if tree.files().next().is_none() {
        bail!("git knows no files here: nothing was checked");
    }
    let mut broken = 0;
    for wall in &WALLS {
        let breaches = (wall.check)(&tree);
        if breaches.is_empty() {
            continue;
        }
        println!("{}: {}", wall.name, wall.why);
        for breach in &breaches {
            println!("  {breach}");
        }
        broken += breaches.len();
    }
    if broken > 0 {
        bail!("{broken} places break the architecture's walls");
    }
    println!("tidy: {} walls stand around {} files", WALLS.len(), tree.files().count());
    Ok(())
}

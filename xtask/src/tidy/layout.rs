//! Walls about where things are and what they are called. Enters: the tree; leaves: what is out of place.

use std::collections::{BTreeMap, BTreeSet};

use super::Breach;
use super::lex::{Token, tokens};
use super::tree::{Text, Tree};

const BANNED_NAMES: [&str; 7] = ["utils", "util", "common", "helper", "helpers", "manager", "misc"];
const LINES: usize = 500;
/// Files that may be longer, each with the reason.
const LONGER: [(&str, &str); 0] = [];
const TOP_LEVEL: [&str; 21] = [
    ".cargo",
    ".ci",
    ".config",
    ".gitignore",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "agent",
    "agent-ebpf",
    "clippy.toml",
    "deny.toml",
    "deploy",
    "docs",
    "proto",
    "rustfmt.toml",
    "tests",
    "xtask",
];

/// No file, folder or module is named after nothing.
pub(super) fn names(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for path in tree.files() {
        let mut parts = path.split('/').map(|part| part.split('.').next().unwrap_or(part));
        if let Some(name) = parts.find(|part| BANNED_NAMES.contains(part)) {
            breaches.push(Breach::file(path, format!("named `{name}`")));
        }
    }
    for Text { path, text } in tree.rust() {
        for two in tokens(text).windows(2) {
            if let (Token::Word("mod"), Token::Word(name)) = (two[0].token, two[1].token)
                && BANNED_NAMES.contains(&name)
            {
                breaches.push(Breach::at(path, two[1].line, format!("a module named `{name}`")));
            }
        }
    }
    breaches
}

/// Every Rust file begins with its module documentation.
pub(super) fn module_docs(tree: &Tree) -> Vec<Breach> {
    let undocumented = tree.rust().filter(|file| !file.text.starts_with("//! "));
    undocumented.map(|file| Breach::at(file.path, 1, "does not begin with `//!`")).collect()
}

/// Rust files are short, and the list of exceptions has no dead entries.
pub(super) fn file_size(tree: &Tree) -> Vec<Breach> {
    sizes(tree, &LONGER)
}

pub(super) fn sizes(tree: &Tree, longer: &[(&str, &str)]) -> Vec<Breach> {
    let long: BTreeMap<&str, usize> = tree
        .rust()
        .filter(|file| !file.path.ends_with("/tests.rs"))
        .map(|file| (file.path, file.text.lines().count()))
        .filter(|(_, lines)| *lines > LINES)
        .collect();
    let excepted = |path: &str| longer.iter().any(|(allowed, _)| *allowed == path);
    let too_long = long.iter().filter(|(path, _)| !excepted(path));
    let mut breaches: Vec<Breach> = too_long
        .map(|(path, lines)| Breach::file(path, format!("{lines} lines, more than {LINES}")))
        .collect();
    let dead = longer.iter().filter(|(path, _)| !long.contains_key(path));
    breaches
        .extend(dead.map(|(path, _)| Breach::file(path, "needs no exception from the size limit any more")));
    breaches
}

/// Nothing new at the top.
pub(super) fn top_level(tree: &Tree) -> Vec<Breach> {
    let entries: BTreeSet<&str> = tree.files().filter_map(|path| path.split('/').next()).collect();
    let extra = entries.into_iter().filter(|entry| !TOP_LEVEL.contains(entry));
    extra.map(|entry| Breach::file(entry, "is not one of the top level's entries")).collect()
}

/// Decision records are numbered, titled and have a state.
pub(super) fn decisions(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Vec::new();
    let mut numbers = BTreeMap::new();
    for path in tree.files() {
        let Some(name) = path.strip_prefix("docs/adr/") else { continue };
        let Some(number) = decision_number(name) else {
            breaches.push(Breach::file(path, "is not named NNNN-words-with-dashes.md"));
            continue;
        };
        if let Some(other) = numbers.insert(number, path) {
            breaches.push(Breach::file(path, format!("has the number of {other}")));
        }
        let text = tree.text(path).unwrap_or_default();
        if !text.starts_with("# ") {
            breaches.push(Breach::at(path, 1, "does not begin with a `# ` title"));
        }
        if !text
            .lines()
            .any(|line| line.strip_prefix("Status:").is_some_and(|state| !state.trim().is_empty()))
        {
            breaches.push(Breach::file(path, "has no `Status:` line"));
        }
    }
    breaches
}

fn decision_number(name: &str) -> Option<&str> {
    let (number, words) = name.strip_suffix(".md")?.split_once('-')?;
    let numbered = number.len() == 4 && number.bytes().all(|byte| byte.is_ascii_digit());
    let kebab = words.split('-').all(|word| {
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    });
    (numbered && kebab).then_some(number)
}

/// Every golden case says what it expects.
pub(super) fn cases_have_expectations(tree: &Tree) -> Vec<Breach> {
    let cases: BTreeSet<&str> =
        tree.files().filter_map(|path| Some(path.strip_prefix("tests/cases/")?.split_once('/')?.0)).collect();
    let lacking = cases.into_iter().map(|case| format!("tests/cases/{case}/expect.json"));
    let lacking = lacking.filter(|path| tree.text(path).is_none());
    lacking.map(|path| Breach::file(&path, "is missing")).collect()
}

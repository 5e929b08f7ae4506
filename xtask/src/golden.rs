//! `golden`: runs the cases below `tests/cases`. Enters: names of cases; leaves: the test's own output. Must
//! not know what a case holds.

use std::path::Path;

use anyhow::{Result, bail};

use crate::command::{command, succeed};

/// Set by `--accept`: the test writes what it got instead of comparing.
const ACCEPT: &str = "FIREDOOR_ACCEPT";
/// Names of the cases to run, with commas between; not set: all.
const ONLY: &str = "FIREDOOR_CASES";

/// What to run and how.
#[derive(clap::Args, Default)]
pub(crate) struct Arguments {
    /// Takes what comes out as the new expectation. Read the difference before it is committed: it is behaviour.
    #[arg(long)]
    accept: bool,
    /// Cases to run, by the names of their folders below tests/cases; all when none is named.
    cases: Vec<String>,
}

/// Runs the golden test.
///
/// # Errors
/// When a named case does not exist, or the test fails.
pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<()> {
    for case in &arguments.cases {
        // A misspelt name would otherwise run nothing and pass.
        if case.is_empty() || case.contains(['/', ',', '.']) || !root.join("tests/cases").join(case).is_dir()
        {
            bail!("there is no case `{case}` below tests/cases");
        }
    }
    let mut test = command(root, "cargo", &["test", "--package", "firedoor-tests", "--test", "golden"]);
    if arguments.accept {
        test.env(ACCEPT, "1");
    }
    if !arguments.cases.is_empty() {
        test.env(ONLY, arguments.cases.join(","));
    }
    succeed(&mut test)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_that_does_not_exist_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("tests/cases/lab")).unwrap();
        for wrong in ["lap", "../cases/lab", "lab,lab", ""] {
            let arguments = Arguments { accept: false, cases: vec![wrong.to_owned()] };
            let error = run(root.path(), &arguments).unwrap_err().to_string();
            assert!(error.contains("there is no case"), "{wrong}: {error}");
        }
    }
}

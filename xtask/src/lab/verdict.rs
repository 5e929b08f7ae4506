//! What a scenario showed. Enters: checks as they are made; leaves: one document, for people or programs.

use serde::Serialize;
use serde_json::Value;

/// One thing that was compared.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Check {
    pub(super) name: String,
    pub(super) passed: bool,
    /// The numbers.
    pub(super) detail: String,
}

/// A scenario's outcome.
#[derive(Debug, Serialize)]
pub(super) struct Verdict {
    pub(super) scenario: String,
    pub(super) passed: bool,
    pub(super) checks: Vec<Check>,
    /// The agent's last report; `null` without an agent.
    pub(super) report: Option<Value>,
}

/// Checks and progress of a running scenario.
pub(super) struct Notes {
    pub(super) checks: Vec<Check>,
    /// Progress goes to standard error when standard output is for a program.
    json: bool,
}

impl Notes {
    /// Nothing noted yet.
    pub(super) fn new(json: bool) -> Self {
        Self { checks: Vec::new(), json }
    }

    /// Says what happens now.
    pub(super) fn say(&self, what: &str) {
        if self.json {
            eprintln!("{what}");
        } else {
            println!("{what}");
        }
    }

    /// Notes a comparison.
    pub(super) fn check(&mut self, name: &str, passed: bool, detail: impl Into<String>) {
        let check = Check { name: name.to_owned(), passed, detail: detail.into() };
        self.say(&format!("  {} {name}: {}", if passed { "ok    " } else { "FAILED" }, check.detail));
        self.checks.push(check);
    }
}

//! `deploy`: what a cluster gets, checked. Enters: the checkout; leaves: whether rules, chart and dashboard are right, by
//! the tools of those who will read them. Must not know the agent but by the metrics it serves.

mod chart;
mod contract;
mod dashboard;
pub(crate) mod monitoring;
mod promql;
mod rehearsal;
mod rules;
pub(crate) mod tools;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::command::{command, succeed, typed};
use crate::setup::{self, Purpose};

/// What to check.
#[derive(clap::Args, Default)]
pub(crate) struct Arguments {
    /// Only these parts; all when none is named.
    #[arg(value_name = "PART", value_parser = PARTS.map(|(name, _)| name))]
    parts: Vec<String>,
}

/// A part of what is deployed.
type Part = (&'static str, fn(&Path) -> Result<()>);

const PARTS: [Part; 5] = [
    ("rules", rules::run),
    ("dashboard", dashboard::run),
    ("chart", chart::run),
    ("broken", broken),
    ("rehearsal", rehearsal::run),
];

/// Checks it.
///
/// # Errors
/// The first thing that is wrong.
pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<()> {
    setup::ensure(root, Purpose::Deploy)?;
    let chosen = |name: &str| arguments.parts.is_empty() || arguments.parts.iter().any(|part| part == name);
    for (name, check) in PARTS.into_iter().filter(|(name, _)| chosen(name)) {
        let start = Instant::now();
        check(root).with_context(|| format!("deploy: {name}"))?;
        println!("deploy: {name}: ok ({:.1} s)", start.elapsed().as_secs_f64());
    }
    Ok(())
}

/// The tests that need the tools: each check finds what it is there to find.
fn broken(root: &Path) -> Result<()> {
    let tests = ["test", "--quiet", "--package", "xtask", "--", "--ignored", "deploy::"];
    succeed(&mut command(root, "cargo", &tests))
}

/// Runs it; what it says is told only when it fails.
fn quietly(command: &mut Command) -> Result<()> {
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot run `{}`", typed(command)))?;
    if !output.status.success() {
        let said = [output.stdout, output.stderr].concat();
        bail!("`{}` failed: {}", typed(command), String::from_utf8_lossy(&said).trim());
    }
    Ok(())
}

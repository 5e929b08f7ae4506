//! `test`: all that CI runs, in order. Enters: the checkout; leaves: one line a step, and at the first failure
//! the command that repeats it. What could not be checked is said, and never counts as passed.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::command::{command, status, succeeds_within, typed};
use crate::setup::{self, Purpose, tool};
use crate::{confined, deploy, ebpf, golden, lab, tidy};

/// How long the download of the advisories may take.
const DOWNLOAD: Duration = Duration::from_secs(60);

/// One thing that CI checks.
struct Step {
    name: &'static str,
    speed: Speed,
    /// What a person types to run this step alone.
    repeat: &'static str,
    run: fn(&Path) -> Result<Outcome>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Speed {
    /// Part of `--quick`.
    Seconds,
    Minutes,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Outcome {
    Passed,
    Failed,
    /// It could not be looked at from here, for this reason.
    NotChecked(String),
}

const STEPS: [Step; 14] = [
    Step {
        name: "fmt",
        speed: Speed::Seconds,
        repeat: "cargo fmt --all --check",
        run: |root| cargo(root, &["fmt", "--all", "--check"]),
    },
    Step {
        name: "tidy",
        speed: Speed::Seconds,
        repeat: "cargo xtask tidy",
        run: |root| Ok(told(tidy::run(root))),
    },
    Step {
        name: "clippy",
        speed: Speed::Seconds,
        repeat: "cargo clippy --workspace --all-targets -- -D warnings",
        run: |root| cargo(root, &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
    },
    Step {
        name: "clippy-grpc",
        speed: Speed::Minutes,
        repeat: "cargo clippy -p firedoor-proto --features grpc -- -D warnings",
        run: |root| {
            cargo(root, &["clippy", "-p", "firedoor-proto", "--features", "grpc", "--", "-D", "warnings"])
        },
    },
    Step {
        name: "deny",
        speed: Speed::Minutes,
        repeat: "tools/bin/cargo-deny check --hide-inclusion-graph bans licenses sources",
        run: |root| deny(root, &["check", "--hide-inclusion-graph", "bans", "licenses", "sources"]),
    },
    Step {
        name: "advisories",
        speed: Speed::Minutes,
        repeat: "tools/bin/cargo-deny check advisories",
        run: advisories,
    },
    Step {
        name: "core-tests",
        speed: Speed::Seconds,
        repeat: "cargo test -p firedoor-core",
        run: |root| cargo(root, &["test", "-p", "firedoor-core"]),
    },
    Step {
        name: "tests",
        speed: Speed::Minutes,
        repeat: "cargo test --workspace",
        run: |root| cargo(root, &["test", "--workspace"]),
    },
    Step {
        name: "deploy",
        speed: Speed::Minutes,
        repeat: "cargo xtask deploy",
        run: |root| Ok(told(deploy::run(root, &deploy::Arguments::default()))),
    },
    Step {
        name: "clippy-kernel",
        speed: Speed::Minutes,
        repeat: "cargo xtask ebpf && cargo clippy -p firedoor -p firedoor-tests --all-targets --features firedoor/ebpf,firedoor-tests/kernel -- -D warnings",
        run: |root| with_probes(root, &["clippy", "--all-targets"], &["--", "-D", "warnings"]),
    },
    Step {
        name: "kernel",
        speed: Speed::Minutes,
        repeat: "cargo xtask ebpf && cargo test -p firedoor -p firedoor-tests --features firedoor/ebpf,firedoor-tests/kernel --lib --test kernel --test kernel_cycles",
        run: kernel,
    },
    Step { name: "lab", speed: Speed::Minutes, repeat: "cargo xtask lab all", run: lab },
    Step { name: "confined", speed: Speed::Minutes, repeat: "cargo xtask confined", run: confined },
    Step {
        name: "golden",
        speed: Speed::Minutes,
        repeat: "cargo xtask golden",
        run: |root| Ok(told(golden::run(root, &golden::Arguments::default()))),
    },
];

/// Runs the steps up to the first that fails.
///
/// # Errors
/// When the checks could not begin.
pub(crate) fn run(root: &Path, quick: bool) -> Result<ExitCode> {
    setup::ensure(root, Purpose::Build)?;
    setup::ensure(root, Purpose::Checks)?;
    let summary = walk(root, STEPS.iter().filter(|step| chosen(step, quick)));
    for (name, reason) in &summary.not_checked {
        println!("NOT CHECKED: {name}: {reason}");
    }
    if let Some(repeat) = summary.repeat {
        println!("to repeat what failed: {repeat}");
    }
    println!("{} passed, {} failed", summary.passed, summary.failed);
    Ok(if summary.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// In a full run the core's tests are part of all tests.
fn chosen(step: &Step, quick: bool) -> bool {
    if quick { step.speed == Speed::Seconds } else { step.name != "core-tests" }
}

#[derive(Default)]
struct Summary {
    passed: usize,
    failed: usize,
    not_checked: Vec<(&'static str, String)>,
    /// The command that repeats the step that failed.
    repeat: Option<&'static str>,
}

fn walk<'a>(root: &Path, steps: impl Iterator<Item = &'a Step>) -> Summary {
    let mut summary = Summary::default();
    for step in steps {
        println!("==> {}: {}", step.name, step.repeat);
        let start = Instant::now();
        let outcome = (step.run)(root).unwrap_or_else(|error| {
            println!("error: {error:#}");
            Outcome::Failed
        });
        let seconds = start.elapsed().as_secs_f64();
        match outcome {
            Outcome::Passed => {
                println!("<== {}: ok ({seconds:.1} s)", step.name);
                summary.passed += 1;
            }
            Outcome::NotChecked(reason) => {
                println!("<== {}: NOT CHECKED ({seconds:.1} s): {reason}", step.name);
                summary.not_checked.push((step.name, reason));
            }
            Outcome::Failed => {
                println!("<== {}: FAILED ({seconds:.1} s)", step.name);
                summary.failed += 1;
                summary.repeat = Some(step.repeat);
                break;
            }
        }
    }
    summary
}

fn cargo(root: &Path, arguments: &[&str]) -> Result<Outcome> {
    outcome(&mut command(root, "cargo", arguments))
}

/// Builds the probes, then runs cargo on what uses them.
fn with_probes(root: &Path, before: &[&str], after: &[&str]) -> Result<Outcome> {
    ebpf::build(root)?;
    let what =
        ["-p", "firedoor", "-p", "firedoor-tests", "--features", "firedoor/ebpf,firedoor-tests/kernel"];
    cargo(root, &[before, &what, after].concat())
}

/// The probes on this kernel.
fn kernel(root: &Path) -> Result<Outcome> {
    if let Some(why) = lab::hindrance() {
        return Ok(Outcome::NotChecked(why));
    }
    setup::ensure(root, Purpose::Lab)?;
    with_probes(root, &["test"], &["--lib", "--test", "kernel", "--test", "kernel_cycles"])
}

/// Every scenario of the lab, with the real agent.
fn lab(root: &Path) -> Result<Outcome> {
    if let Some(why) = lab::hindrance() {
        return Ok(Outcome::NotChecked(why));
    }
    let played = lab::run(root, &lab::Arguments::all())?;
    Ok(if played == ExitCode::SUCCESS { Outcome::Passed } else { Outcome::Failed })
}

/// The agent in a container like Kubernetes', with two capabilities.
fn confined(root: &Path) -> Result<Outcome> {
    if let Some(why) = lab::hindrance() {
        return Ok(Outcome::NotChecked(why));
    }
    let ran = confined::run(root, &confined::Arguments::default())?;
    Ok(if ran == ExitCode::SUCCESS { Outcome::Passed } else { Outcome::Failed })
}

fn deny(root: &Path, arguments: &[&str]) -> Result<Outcome> {
    setup::ensure(root, Purpose::Supply)?;
    outcome(&mut cargo_deny(root, arguments))
}

/// The list of advisories comes from the net. Without it nothing is known, which is not the same as good.
fn advisories(root: &Path) -> Result<Outcome> {
    setup::ensure(root, Purpose::Supply)?;
    let mut fetch = cargo_deny(root, &["fetch", "db"]);
    fetch.env("GIT_TERMINAL_PROMPT", "0");
    if !succeeds_within(&mut fetch, DOWNLOAD) {
        let reason = format!("the advisory list could not be fetched (`{}`)", typed(&fetch));
        return Ok(Outcome::NotChecked(reason));
    }
    outcome(&mut cargo_deny(root, &["check", "--disable-fetch", "--hide-inclusion-graph", "advisories"]))
}

fn cargo_deny(root: &Path, arguments: &[&str]) -> Command {
    command(root, &tool(root, "cargo-deny").to_string_lossy(), arguments)
}

fn outcome(command: &mut Command) -> Result<Outcome> {
    Ok(if status(command)?.success() { Outcome::Passed } else { Outcome::Failed })
}

/// For steps inside this process: an error is a failed step, told here.
fn told(result: Result<()>) -> Outcome {
    match result {
        Ok(()) => Outcome::Passed,
        Err(error) => {
            println!("error: {error:#}");
            Outcome::Failed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;

    fn step(name: &'static str, run: fn(&Path) -> Result<Outcome>) -> Step {
        Step { name, speed: Speed::Seconds, repeat: "do it again", run }
    }

    #[test]
    fn the_first_failure_ends_it() {
        let steps = [
            step("good", |_| Ok(Outcome::Passed)),
            step("offline", |_| Ok(Outcome::NotChecked("no net".into()))),
            step("bad", |_| bail!("broken")),
            step("never", |_| panic!("ran after a failure")),
        ];
        let summary = walk(Path::new("/"), steps.iter());
        assert_eq!((summary.passed, summary.failed, summary.repeat), (1, 1, Some("do it again")));
        assert_eq!(summary.not_checked, [("offline", "no net".to_owned())]);
    }

    #[test]
    fn a_quick_run_has_the_core_and_a_full_run_has_all() {
        let names = |quick| STEPS.iter().filter(|s| chosen(s, quick)).map(|s| s.name).collect::<Vec<_>>();
        assert_eq!(names(true), ["fmt", "tidy", "clippy", "core-tests"]);
        let full = [
            "fmt",
            "tidy",
            "clippy",
            "clippy-grpc",
            "deny",
            "advisories",
            "tests",
            "deploy",
            "clippy-kernel",
            "kernel",
            "lab",
            "confined",
            "golden",
        ];
        assert_eq!(names(false), full);
    }

    #[test]
    fn advisories_that_cannot_be_fetched_are_not_passed() {
        // No tool at this root answers, so that nothing is fetched.
        let root = tempfile::tempdir().unwrap();
        let mut fetch = cargo_deny(root.path(), &["fetch", "db"]);
        assert!(!succeeds_within(&mut fetch, DOWNLOAD));
    }
}

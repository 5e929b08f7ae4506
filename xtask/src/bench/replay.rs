//! `bench replay`: how fast recorded flows are diagnosed, and in how much memory. Enters: the shape of a
//! cluster; leaves: a line a size. A run that gives a wrong diagnosis is an error, not a number.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::generate::{self, Truth};
use super::measure::{self, Cost};
use super::world::Shape;
use crate::command::{release_binary, target};
use crate::setup::{self, Purpose};

const SIZES: [u64; 2] = [250_000, 1_000_000];
const LARGE: u64 = 4_000_000;

/// What to replay.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Also 4,000,000 lines (5 GB on disk).
    #[arg(long)]
    large: bool,
    /// Runs of each size; the fastest counts, and the largest memory.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// Leaves the captures below target/bench.
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    shape: Shape,
}

/// Makes the captures, measures, and prints a table.
pub(super) fn run(root: &Path, arguments: &Arguments) -> Result<()> {
    setup::ensure(root, Purpose::Bench)?;
    let binary = release_binary(root)?;
    let folder = target(root)?.join("bench");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let Shape { nodes, jobs, pods, seed } = arguments.shape;
    println!(
        "{jobs} jobs of {pods} pods on {nodes} nodes, seed {seed}, best of {} runs on one core",
        arguments.runs
    );
    println!("     lines       MB   wall s    cpu s   lines/s     MB/s  peak MiB");
    let large = arguments.large.then_some(LARGE);
    for lines in SIZES.into_iter().chain(large) {
        let capture = folder.join(format!("replay-{lines}"));
        if capture.exists() {
            fs::remove_dir_all(&capture).with_context(|| format!("cannot remove {}", capture.display()))?;
        }
        let truth = generate::capture(&capture, lines, &arguments.shape)?;
        let best = measured(&binary, &capture, &folder, &truth, arguments.runs);
        if !arguments.keep {
            fs::remove_dir_all(&capture)?;
        }
        println!("{}", row(&truth, best?));
    }
    Ok(())
}

fn measured(binary: &Path, capture: &Path, folder: &Path, truth: &Truth, runs: u32) -> Result<Cost> {
    let (out, errors) = (folder.join("report.json"), folder.join("errors.txt"));
    let capture = capture.to_str().context("the target directory's name is not UTF-8")?;
    let mut best: Option<Cost> = None;
    for _ in 0..runs {
        let cost = measure::run(binary, &["replay", capture, "--format", "json"], &out, &errors)?;
        let report = fs::read_to_string(&out)?;
        if let Err(error) = check(cost.code, &report, truth) {
            let errors = fs::read_to_string(&errors).unwrap_or_default();
            bail!("a wrong diagnosis: {error:#}\n{}", errors.lines().take(20).collect::<Vec<_>>().join("\n"));
        }
        best = Some(best.map_or(cost, |best| better(best, cost)));
    }
    best.context("nothing was run")
}

/// The faster of two runs, with the memory of the larger.
fn better(a: Cost, b: Cost) -> Cost {
    let faster = if b.wall < a.wall { b } else { a };
    Cost { peak_kib: a.peak_kib.max(b.peak_kib), ..faster }
}

/// The report must count every line and find exactly the blocked jobs.
fn check(code: Option<i32>, report: &str, truth: &Truth) -> Result<()> {
    ensure!(code == Some(1), "exit code {code:?}, expected 1: there are blocked jobs");
    let report: Value = serde_json::from_str(report).context("the report is no JSON")?;
    let count = |name: &str| report["coverage"][name].as_u64();
    ensure!(
        count("received") == Some(truth.lines),
        "{:?} of {} lines received",
        count("received"),
        truth.lines
    );
    for name in ["rejected", "late"] {
        ensure!(count(name) == Some(0), "{:?} lines {name}", count(name));
    }
    let text = |job: &Value, field: &str| job[field].as_str().unwrap_or_default().to_owned();
    let jobs = report["jobs"].as_array().context("the report has no jobs")?;
    let blocked: BTreeSet<String> = jobs
        .iter()
        .filter(|job| job["verdict"] == "hard-block")
        .map(|job| format!("{}/{}", text(job, "namespace"), text(job, "name")))
        .collect();
    let expected: BTreeSet<String> = truth.blocked.iter().cloned().collect();
    ensure!(blocked == expected, "blocked jobs are {blocked:?}, expected {expected:?}");
    Ok(())
}

fn row(truth: &Truth, cost: Cost) -> String {
    let per_second =
        |amount: f64| amount / cost.wall.as_secs_f64().max(Duration::from_micros(1).as_secs_f64());
    let megabytes = truth.bytes as f64 / 1e6;
    format!(
        "{:>10} {megabytes:>8.0} {:>8.2} {:>8.2} {:>9.0} {:>8.0} {:>9.1}",
        truth.lines,
        cost.wall.as_secs_f64(),
        cost.processor.as_secs_f64(),
        per_second(truth.lines as f64),
        per_second(megabytes),
        cost.peak_kib as f64 / 1024.0,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn truth() -> Truth {
        Truth { lines: 10, bytes: 12_000, blocked: vec!["a/one".to_owned()] }
    }

    fn report(received: u64, verdicts: [&str; 2]) -> String {
        let jobs = json!([{"namespace": "a", "name": "one", "verdict": verdicts[0]}, {"namespace": "b", "name": "two", "verdict": verdicts[1]}]);
        json!({"coverage": {"received": received, "rejected": 0, "late": 0}, "jobs": jobs}).to_string()
    }

    #[test]
    fn a_wrong_diagnosis_is_an_error() {
        let right = report(10, ["hard-block", "healthy"]);
        assert!(check(Some(1), &right, &truth()).is_ok());
        assert!(check(Some(0), &right, &truth()).is_err());
        assert!(check(None, &right, &truth()).is_err());
        assert!(check(Some(1), &report(9, ["hard-block", "healthy"]), &truth()).is_err());
        assert!(check(Some(1), &report(10, ["healthy", "healthy"]), &truth()).is_err());
        assert!(check(Some(1), &report(10, ["hard-block", "hard-block"]), &truth()).is_err());
        assert!(check(Some(1), "", &truth()).is_err());
    }

    #[test]
    fn the_fastest_run_counts_and_the_largest_memory() {
        let cost = |seconds, peak_kib| Cost {
            wall: Duration::from_secs(seconds),
            processor: Duration::ZERO,
            peak_kib,
            code: Some(1),
        };
        let best = better(cost(4, 1_024), cost(2, 2_048));
        assert_eq!((best.wall, best.peak_kib), (Duration::from_secs(2), 2_048));
        let row = row(&truth(), best);
        assert_eq!(row.split_whitespace().collect::<Vec<_>>(), ["10", "0", "2.00", "0.00", "5", "0", "2.0"]);
    }
}

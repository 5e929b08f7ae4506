//! `lab`: real scenarios on this machine's kernel. Zones, nodes and pods are network namespaces; the workload is an
//! all-reduce of its own; what is broken is broken for real; firedoor's agent runs beside it, and what it says is
//! compared with what workload, packet filters and `ss` counted themselves. Enters: the name of a scenario; leaves:
//! its verdict, and a machine as it was before.

mod agent;
mod breaker;
mod cast;
mod cgroup;
mod compare;
mod findings;
mod frame;
mod host;
mod lease;
pub(crate) mod member;
mod monitor;
mod network;
mod objects;
mod play;
mod recording;
mod scenario;
mod ss;
mod stage;
mod tc;
mod troupe;
mod verdict;
mod wire;
mod wire_end;
mod witness;

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};

use crate::command::{agent_binary, output, target};
use crate::setup::{self, Purpose};
use lease::Lease;
use play::Props;
use scenario::{SCENARIOS, Scenario};
use troupe::Workload;
use verdict::{Notes, Verdict};

/// Scenarios that `all` plays at once: one, for they would share the machine's cores, and what they measure is time.
const AT_ONCE: usize = 1;

/// The scenario that `all` plays with Prometheus and Alertmanager beside it.
const MONITORED: &str = "block-nft";

/// What to play.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The scenario, or `all`
    #[arg(required_unless_present_any = ["list", "cleanup"])]
    scenario: Option<String>,
    /// List the scenarios
    #[arg(long)]
    list: bool,
    /// Remove what labs left behind whose process is gone
    #[arg(long)]
    cleanup: bool,
    /// Print one JSON document; progress goes to standard error
    #[arg(long)]
    json: bool,
    /// What the pods run
    #[arg(long, value_enum, default_value_t = Workload::Ring)]
    workload: Workload,
    /// Keep recording, objects, truth and logs, and say where
    #[arg(long)]
    keep: bool,
    /// Play without the agent: network, workload and breakers alone
    #[arg(long)]
    no_agent: bool,
    /// Let a real Prometheus with the shipped rules scrape the agent, and a real Alertmanager tell of the block
    #[arg(long, conflicts_with = "no_agent")]
    monitor: bool,
    /// The agent's program, in place of a release build
    #[arg(long, value_name = "FILE")]
    agent: Option<PathBuf>,
}

impl Arguments {
    /// All scenarios, with a build of the agent.
    pub(crate) fn all() -> Self {
        Self::one("all")
    }

    /// One scenario, with a build of the agent.
    pub(crate) fn one(scenario: &str) -> Self {
        Self {
            scenario: Some(scenario.to_owned()),
            list: false,
            cleanup: false,
            json: false,
            workload: Workload::Ring,
            keep: false,
            no_agent: false,
            monitor: false,
            agent: None,
        }
    }
}

/// Plays.
///
/// # Errors
/// When the scenario could not be played to its end. A failed comparison is an exit code.
pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<ExitCode> {
    if arguments.list {
        for Scenario { name, title, .. } in &SCENARIOS {
            println!("{name:<14} {title}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(why) = hindrance() {
        bail!("the lab cannot be played here: {why}");
    }
    setup::ensure(root, Purpose::Lab)?;
    if arguments.workload == Workload::Torch {
        setup::ensure(root, Purpose::LabTorch)?;
    }
    if arguments.monitor {
        setup::ensure(root, Purpose::Deploy)?;
    }
    if arguments.cleanup {
        let swept = lease::sweep_dead()?;
        println!("removed: {}", if swept.is_empty() { "nothing".to_owned() } else { swept.join(", ") });
        return Ok(ExitCode::SUCCESS);
    }
    let name = arguments.scenario.as_deref().unwrap_or_default();
    let binary = match (&arguments.agent, arguments.no_agent) {
        (_, true) => None,
        (Some(binary), _) => Some(fs::canonicalize(binary).context("no such agent")?),
        (None, _) => Some(agent_binary(root)?),
    };
    if name == "all" {
        setup::ensure(root, Purpose::Deploy)?;
        return all(arguments, binary.as_deref());
    }
    let Some(scenario) = scenario::named(name) else {
        bail!("there is no scenario `{name}`; see `cargo xtask lab --list`");
    };
    one(root, scenario, arguments, binary.as_deref())
}

/// Why the lab cannot be played on this machine, in a sentence; `None` where it can.
pub(crate) fn hindrance() -> Option<String> {
    if output(Command::new("id").arg("-u")).is_none_or(|id| id.trim() != "0") {
        return Some(
            "it makes network namespaces and loads eBPF programs, for which it must be root".to_owned(),
        );
    }
    if output(Command::new("unshare").args(["--net", "true"])).is_none() {
        return Some("this root may not make network namespaces".to_owned());
    }
    if !lease::has_cgroups() {
        return Some("there is no cgroup v2 that may be written to, by which pods are told apart".to_owned());
    }
    let needed = [
        ("/dev/net/tun", "the wire between the zones needs it"),
        ("/sys/kernel/btf/vmlinux", "the agent's probes need the kernel's type information"),
    ];
    let missing = needed.iter().find(|(path, _)| !Path::new(path).exists());
    missing.map(|(path, why)| format!("there is no {path}: {why}"))
}

/// The wire's process.
pub(crate) fn wire() -> Result<()> {
    wire::serve()
}

/// The janitor's process.
pub(crate) fn janitor(run: &str) -> Result<()> {
    lease::janitor(run)
}

fn one(root: &Path, scenario: &Scenario, arguments: &Arguments, binary: Option<&Path>) -> Result<ExitCode> {
    let lease = Lease::take()?;
    let directory = target(root)?.join("lab").join(format!("{}-{}", scenario.name, lease.id()));
    fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let mut notes = Notes::new(arguments.json);
    notes.say(&format!("## {}: {}", scenario.name, scenario.title));
    let monitored = arguments.monitor.then_some(root);
    let props = Props { binary, directory: &directory, workload: arguments.workload, monitored };
    let played = play::play(scenario, &props, &lease, &mut notes);
    let released = lease.release();
    let report = match played {
        Ok(report) => report,
        Err(error) => {
            notes.check("played to its end", false, format!("{error:#}"));
            None
        }
    };
    if let Err(error) = released {
        notes.check("everything is removed", false, format!("{error:#}"));
    }
    let passed = notes.checks.iter().all(|check| check.passed);
    if passed && !arguments.keep {
        fs::remove_dir_all(&directory)?;
    } else {
        notes.say(&format!("kept: {}", directory.display()));
    }
    let count = notes.checks.iter().filter(|check| check.passed).count();
    notes.say(&format!(
        "{}: {} ({count} of {} checks)",
        scenario.name,
        if passed { "passed" } else { "FAILED" },
        notes.checks.len()
    ));
    if arguments.json {
        let verdict = Verdict { scenario: scenario.name.to_owned(), passed, checks: notes.checks, report };
        println!("{}", serde_json::to_string(&verdict)?);
    }
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Plays all scenarios, each in a process of its own, so that each has its own names.
fn all(arguments: &Arguments, binary: Option<&Path>) -> Result<ExitCode> {
    let program = std::env::current_exe().context("where is this program?")?;
    let mut waiting: VecDeque<&Scenario> = SCENARIOS.iter().collect();
    let mut playing: VecDeque<(&Scenario, Child)> = VecDeque::new();
    let mut failed = Vec::new();
    let mut verdicts = Vec::new();
    loop {
        while playing.len() < AT_ONCE
            && let Some(scenario) = waiting.pop_front()
        {
            let mut command = Command::new(&program);
            command.args(["lab", scenario.name, "--json", "--workload", arguments.workload.name()]);
            command.stdout(Stdio::piped()).stderr(Stdio::null());
            match binary {
                Some(binary) => command.arg("--agent").arg(binary),
                None => command.arg("--no-agent"),
            };
            if arguments.keep {
                command.arg("--keep");
            }
            if binary.is_some() && scenario.name == MONITORED {
                command.arg("--monitor");
            }
            playing.push_back((scenario, command.spawn()?));
        }
        let Some((scenario, child)) = playing.pop_front() else { break };
        let output = child.wait_with_output()?;
        let verdict: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        if !output.status.success() {
            failed.push(scenario.name);
        }
        if arguments.json {
            verdicts.push(verdict);
        } else {
            summary(scenario, output.status.success(), &verdict);
        }
    }
    if arguments.json {
        println!("{}", serde_json::to_string(&verdicts)?);
    } else {
        println!("{} of {} scenarios passed", SCENARIOS.len() - failed.len(), SCENARIOS.len());
    }
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// One line for a scenario, and one for each check that failed.
fn summary(scenario: &Scenario, passed: bool, verdict: &serde_json::Value) {
    let checks = verdict.get("checks").and_then(|checks| checks.as_array()).cloned().unwrap_or_default();
    let word = if passed { "passed" } else { "FAILED" };
    println!("{word} {:<14} {} checks", scenario.name, checks.len());
    for check in checks.iter().filter(|check| check["passed"] != true) {
        println!(
            "       {}: {}",
            check["name"].as_str().unwrap_or("?"),
            check["detail"].as_str().unwrap_or("?")
        );
    }
    if !passed {
        println!("       to repeat: cargo xtask lab {}", scenario.name);
    }
}

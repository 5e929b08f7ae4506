//! The command line. Exit codes: 0 nothing wrong; 1 a finding that is active or ended unresolved; 2 bad usage or
//! unreadable input; 3 inconclusive. 1 wins over 3.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand, ValueEnum};
use firedoor_core::report::Symptom;

use crate::agent;
use crate::check::{self, FailOn};
use crate::config::{self, Given, Layers};
use crate::output::{check_json, check_junit, check_sarif, check_text, fix, json, text};
use crate::replay;

/// Finds out why distributed training jobs wait: locked doors, long ways and their price.
#[derive(Parser)]
#[command(name = "firedoor", version, about, max_term_width = 110, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 nothing wrong; 1 a finding that is active or ended unresolved; \
2 bad usage or unreadable input; 3 inconclusive (1 wins over 3).";

#[derive(Subcommand)]
enum Command {
    /// Diagnose a recorded capture: no cluster and no root needed
    #[command(after_long_help = CAPTURE)]
    Replay(Replay),
    /// Check a job's manifests before it runs: would its pods be able to talk, and where may they land
    #[command(after_long_help = CHECK)]
    Check(Check),
    /// Watch a node: what its kernel and Cilium see of the jobs' traffic, diagnosed while it happens
    #[command(after_long_help = AGENT)]
    Agent(Agent),
    /// Print the effective configuration of an agent with these flags: every setting, its value and origin
    Config(ShowConfig),
}

// Each paragraph is one line: clap breaks it where the terminal ends.
const AGENT: &str = "\
Sources: `ebpf`, this node's kernel, and `hubble`, Cilium's flows of this node; both may be combined. The kernel needs \
root with CAP_BPF and CAP_PERFMON, and a kernel from 5.15 on with type information (CONFIG_DEBUG_INFO_BTF); Hubble \
needs its socket or address. What is not seen is told at the start and under /readyz.

The cluster is known through its API server (the pod's service account, or --kubeconfig), or from a directory of \
objects (--inventory).

Every setting stands in a file, may be overruled by a variable of the environment, and that by a flag; `firedoor \
config` lists all with their meaning, value and origin.

HTTP:
  /api/v1/report              what is wrong, as JSON
  /api/v1/report?format=text  the same for people
  /api/v1/status              what is watched, and what is not and why
  /api/v1/windows             what was seen, for others to join with theirs
  /metrics                    for Prometheus
  /healthz                    whether it runs
  /readyz                     the status; 503 while it is not ready

SIGHUP reads configuration and inventory again. SIGTERM and SIGINT end it; a recording is complete then.";

#[derive(clap::Args)]
struct Agent {
    #[command(flatten)]
    settings: AgentSettings,
}

/// What may be configured by flags of its own; everything else by `--set`.
#[derive(clap::Args)]
struct AgentSettings {
    /// Where observations come from: ebpf, hubble, or both [default: ebpf where this build has it, else hubble]
    #[arg(long, value_name = "SOURCE", value_delimiter = ',')]
    source: Vec<String>,
    /// This node's name; several, each with the file of its network namespace, where nodes share a kernel
    #[arg(long = "node", value_name = "NAME[=NETNS]", value_parser = node)]
    nodes: Vec<String>,
    /// A directory with the cluster's objects, in place of an API server; read again when it changes
    #[arg(long, value_name = "DIR")]
    inventory: Option<String>,
    /// A kubeconfig file in place of the pod's service account
    #[arg(long, value_name = "FILE", conflicts_with = "inventory")]
    kubeconfig: Option<String>,
    /// Hubble's server: unix:///path, host:port or tls://host:port [default: the node's socket]
    #[arg(long, value_name = "ADDRESS")]
    hubble: Option<String>,
    /// Record what is observed into DIR, whose files must not exist: `firedoor replay` reads it
    #[arg(long, value_name = "DIR")]
    record: Option<String>,
    /// Where to serve HTTP: an IP address (or localhost) and a port [default: 0.0.0.0:9745]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// A configuration file, in TOML
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Any setting, for example diagnosis.quietSeconds=120 or jobs.groupBy=app,role; `firedoor config` lists all
    #[arg(long, value_name = "KEY=VALUE", value_parser = assignment)]
    set: Vec<(String, String)>,
}

impl AgentSettings {
    fn layers(self) -> Layers {
        let list = |values: Vec<String>| (!values.is_empty()).then(|| values.join(","));
        let of_flags = [
            ("agent.sources", "--source", list(self.source)),
            ("agent.node", "--node", list(self.nodes)),
            ("agent.inventory", "--inventory", self.inventory),
            ("agent.record", "--record", self.record),
            ("agent.listen", "--listen", self.listen),
            ("kubernetes.kubeconfig", "--kubeconfig", self.kubeconfig),
            ("hubble.address", "--hubble", self.hubble),
        ];
        let given = of_flags.into_iter().filter_map(|(key, flag, value)| {
            let value = value?;
            Some(Given { key: key.to_owned(), written: format!("{flag} {value}"), value })
        });
        let set = self.set.into_iter().map(|(key, value)| {
            let written = format!("--set {key}={value}");
            Given { key, value, written }
        });
        Layers { file: self.config, flags: given.chain(set).collect() }
    }
}

#[derive(clap::Args)]
struct ShowConfig {
    #[command(flatten)]
    settings: AgentSettings,
    /// How to print it
    #[arg(long, value_enum, default_value_t = ConfigFormat::Toml)]
    format: ConfigFormat,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum ConfigFormat {
    /// As a file that would give it again
    Toml,
    /// For programs: one JSON document
    Json,
}

fn node(text: &str) -> Result<String, String> {
    config::node(text).map(|_| text.to_owned())
}

fn assignment(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("a setting has the form section.key=value")?;
    Ok((key.trim().to_owned(), value.to_owned()))
}

const CHECK: &str = "\
Checked are the jobs of the manifests: PyTorchJob, TFJob, MPIJob, XGBoostJob, PaddleJob, JAXJob, TrainJob (with its \
runtime), JobSet, batch Job, Volcano Job, LeaderWorkerSet, RayCluster, RayJob, PodCliqueSet, and workloads that a \
configured groupBy label joins. Policies, namespaces, nodes, services and runtimes may stand in the manifests or in \
the capture. Manifests without any workload (policies alone, say) are checked against the capture's workloads.

Exit codes: 0 nothing would block; 1 something would (or, with --fail-on warning, there are warnings); 2 bad usage or \
unreadable input; 3 that something would block cannot be excluded.";

const CAPTURE: &str = "\
A capture is a directory:
  flows*.jsonl[.gz|.zst]    Hubble flows, of `hubble observe -o jsonpb`
                            or Cilium's exporter
  sockets*.jsonl[.gz|.zst]  what the kernel told: firedoor's own recording,
                            see docs/capture.md; flows, these, or both
  objects/**/*.yaml|json    Kubernetes objects, as `kubectl get -o yaml`
                            prints them: pods, nodes, services, network
                            policies, jobs and their owners
  gpu/*.prom                text of dcgm-exporter or of AMD's
                            device-metrics-exporter (optional)
  firedoor.toml             configuration (optional)";

#[derive(clap::Args)]
struct Replay {
    /// The capture directory
    capture: PathBuf,
    /// How to print the report
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Only these symptoms make the exit code 1, comma-separated: hard-block, cross-zone-latency, egress-cost,
    /// zone-label-mismatch, rdma-fallback, would-block [default: all but would-block]
    #[arg(long, value_name = "SYMPTOM", value_delimiter = ',', value_parser = symptom)]
    fail_on: Option<Vec<Symptom>>,
    /// Configuration to use in place of the capture's own
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Write the patches of all proposed remedies as files into this directory, which must be new or empty
    #[arg(long, value_name = "DIR")]
    fix: Option<PathBuf>,
    /// When to colour the text report; NO_COLOR is honoured
    #[arg(long, value_enum, default_value_t = Colour::Auto)]
    color: Colour,
    /// Print nothing on standard error but errors
    #[arg(long, short)]
    quiet: bool,
}

#[derive(clap::Args)]
struct Check {
    /// Manifests: files, directories (searched for .yaml, .yml and .json), or - for standard input
    #[arg(long = "filename", short = 'f', value_name = "FILE", num_args = 1.., required = true)]
    manifests: Vec<PathBuf>,
    /// What the cluster already has: a capture directory, or one with `kubectl get -o yaml` output
    #[arg(long, value_name = "DIR")]
    capture: Option<PathBuf>,
    /// How to print the report
    #[arg(long, value_enum, default_value_t = CheckFormat::Text)]
    format: CheckFormat,
    /// Configuration to use in place of the capture's own
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// From which severity on findings make the exit code 1
    #[arg(long, value_enum, default_value_t = FailOn::Error)]
    fail_on: FailOn,
    /// Cilium's version, where the answer depends on it, for example 1.15
    #[arg(long, value_name = "VERSION", value_parser = config::cilium_version)]
    cilium_version: Option<(u16, u16)>,
    /// The namespace of manifests that name none [default: default]
    #[arg(long, short, value_name = "NAME")]
    namespace: Option<String>,
    /// When to colour the text report; NO_COLOR is honoured
    #[arg(long, value_enum, default_value_t = Colour::Auto)]
    color: Colour,
    /// Print nothing on standard error but errors
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum CheckFormat {
    /// For people
    Text,
    /// For programs: one JSON document
    Json,
    /// For annotations in code review: SARIF 2.1.0
    Sarif,
    /// For CI systems: JUnit XML
    Junit,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs: one JSON document
    Json,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Colour {
    /// On a terminal
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

impl Colour {
    #[expect(
        clippy::disallowed_methods,
        reason = "NO_COLOR is a convention of terminals, not a setting of firedoor"
    )]
    fn wanted(self) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => {
                std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
            }
        }
    }
}

fn symptom(name: &str) -> Result<Symptom, String> {
    let names = || Symptom::ALL.map(Symptom::as_str).join(", ");
    Symptom::ALL
        .into_iter()
        .find(|s| s.as_str() == name)
        .ok_or_else(|| format!("no such symptom; there are {}", names()))
}

/// Runs the command line, and says with what to exit.
#[must_use]
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    match cli.command {
        Command::Replay(options) => finish(replay_command(&options)),
        Command::Check(options) => finish(check_command(&options)),
        Command::Agent(options) => finish(agent_command(options)),
        Command::Config(options) => finish(config_command(options)),
    }
}

fn finish(outcome: anyhow::Result<ExitCode>) -> ExitCode {
    match outcome {
        Ok(code) => code,
        // A reader that has seen enough (`| head`) is no error.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(anstream::stderr(), "firedoor: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// A reader that has seen enough (`| head`) changes nothing about the verdict.
fn read_or_left(written: std::io::Result<()>) -> std::io::Result<()> {
    match written {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<std::io::Error>());
    causes.any(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe)
}

fn replay_command(options: &Replay) -> anyhow::Result<ExitCode> {
    let outcome = replay::replay(&options.capture, options.config.as_deref(), options.quiet)?;
    if !options.quiet {
        let mut stderr = anstream::stderr().lock();
        for line in outcome.problems.lines() {
            writeln!(stderr, "firedoor: {line}")?;
        }
        for note in &outcome.notes {
            writeln!(stderr, "firedoor: note: {note}")?;
        }
    }
    if let Some(directory) = &options.fix {
        let count = fix::write(&outcome.report, directory)
            .with_context(|| format!("cannot write remedies into {}", directory.display()))?;
        if !options.quiet {
            let remedies = if count == 1 { "remedy" } else { "remedies" };
            writeln!(anstream::stderr(), "firedoor: {count} {remedies} written to {}", directory.display())?;
        }
    }
    let stdout = std::io::stdout().lock();
    match options.format {
        Format::Json => read_or_left(json::write(&outcome.report, std::io::BufWriter::new(stdout)))?,
        Format::Text => {
            read_or_left(text::write(
                &outcome.report,
                options.color.wanted(),
                std::io::BufWriter::new(stdout),
            ))?;
        }
    }
    Ok(ExitCode::from(outcome.exit_code(options.fail_on.as_deref())))
}

fn agent_command(options: Agent) -> anyhow::Result<ExitCode> {
    agent::run(&options.settings.layers())?;
    Ok(ExitCode::SUCCESS)
}

fn config_command(options: ShowConfig) -> anyhow::Result<ExitCode> {
    let effective = options.settings.layers().read()?;
    let to = std::io::BufWriter::new(std::io::stdout().lock());
    read_or_left(match options.format {
        ConfigFormat::Toml => effective.write(to),
        ConfigFormat::Json => effective.write_json(to),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn check_command(options: &Check) -> anyhow::Result<ExitCode> {
    let outcome = check::run(&check::Inputs {
        manifests: &options.manifests,
        capture: options.capture.as_deref(),
        config: options.config.as_deref(),
        cilium_version: options.cilium_version,
        namespace: options.namespace.as_deref(),
    })?;
    if !options.quiet {
        let mut stderr = anstream::stderr().lock();
        for line in outcome.problems.lines() {
            writeln!(stderr, "firedoor: {line}")?;
        }
    }
    let to = std::io::BufWriter::new(std::io::stdout().lock());
    read_or_left(match options.format {
        CheckFormat::Text => check_text::write(&outcome.report, options.color.wanted(), to),
        CheckFormat::Json => check_json::write(&outcome.report, to),
        CheckFormat::Sarif => check_sarif::write(&outcome.report, to),
        CheckFormat::Junit => check_junit::write(&outcome.report, options.fail_on.severity(), to),
    })?;
    Ok(ExitCode::from(check::exit_code(&outcome.report, options.fail_on)))
}

//! Developer commands: `cargo xtask help`. Enters: arguments; leaves: what the commands print. Each command
//! is a file of its own.

#![expect(clippy::print_stdout, reason = "a developer reads it, and CI does")]

mod bench;
mod command;
mod confined;
mod demo;
mod deploy;
mod ebpf;
mod golden;
mod lab;
mod libraries;
mod pods;
mod setup;
mod test;
mod tidy;
mod vm;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Developer commands of firedoor.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", max_term_width = 110)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Installs what the other commands need and this machine lacks.
    Setup,
    /// Shows what firedoor does: a training job that is blocked, found, mended and at work.
    Demo,
    /// Runs all that CI runs.
    Test {
        /// Only what takes seconds, for use before a commit.
        #[arg(long)]
        quick: bool,
    },
    /// Runs the golden cases.
    Golden(golden::Arguments),
    /// Checks what a cluster gets: rules and alerts, dashboard, Helm chart.
    Deploy(deploy::Arguments),
    /// Builds the kernel probes.
    Ebpf,
    /// Checks the architecture's walls.
    Tidy,
    /// Measures.
    Bench(bench::Arguments),
    /// Plays scenarios on this machine's kernel, as root: real traffic, really broken.
    Lab(lab::Arguments),
    /// Runs the agent in a container with the capabilities it needs and no others, as root.
    Confined(confined::Arguments),
    /// Runs the agent on other kernels, in emulated machines; slow.
    Vm(vm::Arguments),
    /// The wire between the lab's zones.
    #[command(hide = true)]
    LabWire,
    /// A member of the lab's training job.
    #[command(hide = true)]
    LabMember(lab::member::Arguments),
    /// Removes a lab's traces when its process is gone.
    #[command(hide = true)]
    LabJanitor {
        /// The lab's run.
        run: String,
    },
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<ExitCode> {
    let root = root();
    match arguments.task {
        Task::Setup => setup::run(&root)?,
        Task::Demo => demo::run(&root)?,
        Task::Test { quick } => return test::run(&root, quick),
        Task::Golden(arguments) => golden::run(&root, &arguments)?,
        Task::Deploy(arguments) => deploy::run(&root, &arguments)?,
        Task::Ebpf => ebpf::run(&root)?,
        Task::Tidy => tidy::run(&root)?,
        Task::Bench(arguments) => bench::run(&root, &arguments)?,
        Task::Lab(arguments) => return lab::run(&root, &arguments),
        Task::Confined(arguments) => return confined::run(&root, &arguments),
        Task::Vm(arguments) => return vm::run(&root, &arguments),
        Task::LabWire => lab::wire()?,
        Task::LabMember(arguments) => lab::member::run(&arguments)?,
        Task::LabJanitor { run } => lab::janitor(&run)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The workspace: the folder above this package.
fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package).to_owned()
}

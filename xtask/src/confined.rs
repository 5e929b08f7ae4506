//! `confined`: the agent in a container as Kubernetes makes it for a DaemonSet, with the capabilities it needs and
//! nothing else. Enters: an agent; leaves: which hooks attached, and whether it saw two pods talk.
//! `--capabilities` takes some away, to see what each one is for.

mod container;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::command::{agent_binary, output, status, target, typed, wait_for};
use crate::pods::{self, BUSYBOX, Check, Pods, is_version_2};
use crate::setup::{self, Purpose};
use container::Container;

/// Where the agent in the container listens: the network is the host's.
const ADDRESS: &str = "127.0.0.1:9757";
/// How long loading and attaching may take, on a busy machine.
const ATTACHING: Duration = Duration::from_secs(60);
/// How long the agent may take to write the rest of its recording.
const ENDING: Duration = Duration::from_secs(20);
/// After this the agent looked for older connections a second time.
const SETTLED: Duration = Duration::from_secs(3);

/// How to run.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The capabilities, in place of the ones that are needed.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_values_t = container::NEEDED.map(str::to_owned))]
    capabilities: Vec<String>,
    /// This agent, in place of a build.
    #[arg(long, value_name = "FILE")]
    agent: Option<PathBuf>,
}

impl Default for Arguments {
    /// What is needed, and a build of the agent.
    fn default() -> Self {
        Self { capabilities: container::NEEDED.map(str::to_owned).into(), agent: None }
    }
}

/// Runs the agent confined, and says what it saw.
///
/// # Errors
/// When there is no agent or no container; what the agent does not see is no error, but a failure.
pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<ExitCode> {
    setup::ensure(root, Purpose::Pods)?;
    setup::ensure(root, Purpose::Confined)?;
    let agent = match &arguments.agent {
        Some(agent) => agent.clone(),
        None => agent_binary(root)?,
    };
    let directory = target(root)?.join(format!("confined/{}", std::process::id()));
    let container = Container::prepare(&directory, &agent, &arguments.capabilities, ADDRESS)?;
    let (readyz, recording) = {
        let mut pods = Pods::start(&directory)?;
        let mut running = Running::start(&container)?;
        let readyz = running.readiness()?;
        std::thread::sleep(SETTLED);
        println!("inside: {}", running.credentials()?);
        pods.talk()?;
        running.stop()?;
        (readyz, container.recording()?)
    };
    let checks = pods::judge(&readyz, &recording)?;
    let passed = told(&checks);
    if passed {
        std::fs::remove_dir_all(&directory)?;
    } else {
        println!("kept: {}", directory.display());
    }
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints them; whether all passed.
pub(crate) fn told(checks: &[Check]) -> bool {
    for check in checks {
        println!("{} {}: {}", if check.passed { "ok    " } else { "FAILED" }, check.name, check.detail);
    }
    checks.iter().all(|check| check.passed)
}

/// The container, running.
struct Running<'a> {
    container: &'a Container,
    process: Child,
}

impl<'a> Running<'a> {
    fn start(container: &'a Container) -> Result<Self> {
        let mut words: Vec<String> = container.runtime();
        words.extend(["run".to_owned(), "--bundle".to_owned()]);
        words.extend([container.bundle().display().to_string(), container.name().to_owned()]);
        // Where both versions of control groups are mounted, the runtime refuses to work; a node of today has only
        // version 2. The hierarchy is the same one, wherever it is mounted.
        let mut command = if is_version_2(Path::new("/sys/fs/cgroup")) {
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]);
            command
        } else {
            let script = "mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec \"$@\"";
            let mut command = Command::new(BUSYBOX);
            command
                .args(["unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh"])
                .args(&words);
            command
        };
        let log = std::fs::File::create(container.log())?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let process = command.spawn().with_context(|| format!("cannot run `{}`", typed(&command)))?;
        Ok(Self { container, process })
    }

    /// What `/readyz` says, once it says something.
    fn readiness(&mut self) -> Result<String> {
        let url = format!("http://{ADDRESS}/readyz");
        wait_for("the agent to be ready", ATTACHING, || {
            if let Some(status) = self.process.try_wait()? {
                let said = std::fs::read_to_string(self.container.log()).unwrap_or_default();
                bail!("the agent ended ({status}): {}", said.trim());
            }
            let mut ask = Command::new(BUSYBOX);
            ask.args(["wget", "-q", "-O", "-", &url]).stderr(Stdio::null());
            Ok(output(&mut ask))
        })
    }

    /// User, capabilities and seccomp of the agent's process, as the kernel shows them.
    fn credentials(&self) -> Result<String> {
        let mut state = self.control(&["state"]);
        let state = output(&mut state).with_context(|| format!("`{}` failed", typed(&state)))?;
        let state: serde_json::Value = serde_json::from_str(&state).context("the runtime speaks no JSON")?;
        let status = std::fs::read_to_string(format!("/proc/{}/status", state["pid"]))?;
        let wanted = ["Uid:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:", "NoNewPrivs:", "Seccomp:"];
        let lines = status.lines().filter(|line| wanted.iter().any(|name| line.starts_with(name)));
        Ok(lines
            .map(|line| line.split_whitespace().take(2).collect::<Vec<_>>().join(" "))
            .collect::<Vec<_>>()
            .join(", "))
    }

    /// Ends it as a kubelet does.
    fn stop(&mut self) -> Result<()> {
        let ended = status(self.control(&["kill"]).arg("TERM"))?;
        if !ended.success() {
            bail!("the runtime cannot end the agent ({ended})");
        }
        wait_for("the agent to end", ENDING, || Ok(self.process.try_wait()?)).map(drop)
    }

    fn control(&self, words: &[&str]) -> Command {
        let runtime = self.container.runtime();
        let mut command = Command::new(&runtime[0]);
        command.args(&runtime[1..]).args(words).arg(self.container.name());
        command
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // Nothing to do where it has ended already.
        let _ = self.control(&["delete", "--force"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

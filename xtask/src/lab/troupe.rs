//! The members that run. Enters: pods; leaves: processes in their pods' places, and what they say they did.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::cast::{Cast, Pod};
use super::host::{run, wait_for};
use super::member::truth::Truth;
use super::network::Network;
use super::stage::Stage;

/// For what takes seconds on an idle machine.
const SOON: Duration = Duration::from_secs(60);
/// Gentle on two cores: 128 KiB four times a second.
const BUFFER: &str = "131072";
const PERIOD_MS: &str = "250";
/// The same for PyTorch: numbers of four bytes, and seconds.
const ELEMENTS: &str = "32768";
const PERIOD_SECONDS: &str = "0.25";
/// A member in PyTorch.
const TORCH: &str = include_str!("train.py");
/// Gloo looks up its own name: each process gets a name and a hosts file of its own.
const NAMED: &str = r#"hostname "$1" && mount --bind "$2" /etc/hosts && shift 2 && exec "$@""#;

/// What the pods run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Workload {
    /// The project's own ring all-reduce
    Ring,
    /// Debian's PyTorch: TCPStore and Gloo
    Torch,
}

impl Workload {
    /// As a person types it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ring => "ring",
            Self::Torch => "torch",
        }
    }
}

struct Member<'a> {
    pod: &'a Pod,
    process: Child,
}

/// Running members, and the files through which they are heard and stopped.
pub(super) struct Troupe<'a> {
    cast: &'a Cast,
    network: &'a Network<'a>,
    stage: &'a Stage,
    directory: PathBuf,
    workload: Workload,
    members: Vec<Member<'a>>,
}

impl<'a> Troupe<'a> {
    /// Stops all members where they are, or lets them go on.
    pub(super) fn pause(&self, paused: bool) -> Result<()> {
        let signal = if paused { "-STOP" } else { "-CONT" };
        for member in &self.members {
            run(&["kill", signal, &member.process.id().to_string()])?;
        }
        Ok(())
    }

    /// Nobody runs yet.
    pub(super) fn new(
        cast: &'a Cast,
        network: &'a Network<'a>,
        stage: &'a Stage,
        directory: &Path,
        workload: Workload,
    ) -> Self {
        let directory = directory.join("truth");
        Self { cast, network, stage, directory, workload, members: Vec::new() }
    }

    /// Starts a pod's process.
    pub(super) fn start(&mut self, pod: &'a Pod) -> Result<()> {
        let mut command = match self.workload {
            Workload::Ring => self.ring(pod)?,
            Workload::Torch => self.torch(pod)?,
        };
        let process = command.spawn().with_context(|| format!("{} does not start", pod.name))?;
        self.members.push(Member { pod, process });
        Ok(())
    }

    fn ring(&self, pod: &Pod) -> Result<Command> {
        let netns = self.network.pod(self.cast, pod)?;
        let program = std::env::current_exe().context("where is this program?")?;
        let mut command = self.stage.pod(pod, &netns, &program.to_string_lossy())?;
        command.args(["lab-member", "--name", &pod.name]);
        command.args(["--rank", &pod.rank.to_string(), "--world", &pod.world.to_string()]);
        command.args(["--bind", &pod.ip.to_string(), "--master", &pod.master.to_string()]);
        command.args(["--buffer", BUFFER, "--period", PERIOD_MS]);
        command.arg("--truth").arg(self.truth_path(pod)).arg("--stop").arg(self.stop_path(pod.job));
        Ok(command)
    }

    fn torch(&self, pod: &Pod) -> Result<Command> {
        let netns = self.network.pod(self.cast, pod)?;
        let (script, hosts) =
            (self.directory.join("train.py"), self.directory.join(format!("{}.hosts", pod.name)));
        fs::write(&script, TORCH)?;
        fs::write(&hosts, format!("127.0.0.1 localhost\n{} {}\n", pod.ip, pod.name))?;
        let mut command = self.stage.pod(pod, &netns, "unshare")?;
        command.args(["--uts", "--mount", "sh", "-c", NAMED, "sh", &pod.name]).arg(hosts);
        command.args(["/usr/bin/python3"]).arg(script).arg(&pod.name);
        command.args([pod.rank.to_string(), pod.world.to_string()]);
        command.args([pod.master.ip().to_string(), pod.master.port().to_string()]);
        command.arg(self.truth_path(pod)).arg(self.stop_path(pod.job)).args([ELEMENTS, PERIOD_SECONDS]);
        command.env("GLOO_SOCKET_IFNAME", "eth0").env("OMP_NUM_THREADS", "1");
        Ok(command)
    }

    /// Ends a job, waits until its members have ended by themselves, and names those that failed.
    pub(super) fn stop(&mut self, job: &str) -> Result<Vec<String>> {
        fs::write(self.stop_path(job), "")?;
        let mut failed = Vec::new();
        for member in self.members.iter_mut().filter(|member| member.pod.job == job) {
            let name = &member.pod.name;
            let status = wait_for("a member to end", SOON, || Ok(member.process.try_wait()?))
                .with_context(|| name.clone())?;
            if !status.success() {
                failed.push(format!("{name} ({status})"));
            }
        }
        self.members.retain(|member| member.pod.job != job);
        Ok(failed)
    }

    /// Jobs that run.
    pub(super) fn jobs(&self) -> Vec<&'static str> {
        let mut jobs: Vec<&'static str> = self.members.iter().map(|member| member.pod.job).collect();
        jobs.sort_unstable();
        jobs.dedup();
        jobs
    }

    /// Whether a pod's process runs.
    pub(super) fn plays(&self, pod: &Pod) -> bool {
        self.members.iter().any(|member| member.pod.uid == pod.uid)
    }

    /// What a pod says it did; `None` while it has said nothing.
    pub(super) fn truth(&self, pod: &Pod) -> Result<Option<Truth>> {
        Truth::read(&self.truth_path(pod))
    }

    /// What each says it did.
    pub(super) fn truths(&self) -> Result<BTreeMap<String, Truth>> {
        let mut truths = BTreeMap::new();
        for pod in &self.cast.pods {
            if let Some(truth) = self.truth(pod)? {
                truths.insert(pod.name.clone(), truth);
            }
        }
        Ok(truths)
    }

    /// The steps of the member that has done the fewest; `None` when not all have begun.
    pub(super) fn slowest(&self, job: &str) -> Result<Option<u64>> {
        let mut least = None;
        for pod in self.cast.job(job) {
            let Some(truth) = self.truth(pod)? else { return Ok(None) };
            if let Some(error) = truth.error {
                bail!("{} failed: {error}", pod.name);
            }
            least = Some(least.map_or(truth.steps, |least: u64| least.min(truth.steps)));
        }
        Ok(least)
    }

    /// Waits until all of a job have done so many steps.
    pub(super) fn wait_steps(&mut self, job: &str, steps: u64) -> Result<()> {
        let what = format!("{job} to do {steps} steps");
        wait_for(&what, SOON, || {
            self.all_run(job)?;
            Ok(self.slowest(job)?.filter(|done| *done >= steps))
        })
        .map(drop)
    }

    /// That none of a job has ended.
    pub(super) fn all_run(&mut self, job: &str) -> Result<()> {
        for member in self.members.iter_mut().filter(|member| member.pod.job == job) {
            let ended = member.process.try_wait()?;
            let log = self.stage.log(&member.pod.name);
            ensure!(ended.is_none(), "{} has ended; see {}", member.pod.name, log.display());
        }
        Ok(())
    }

    fn truth_path(&self, pod: &Pod) -> PathBuf {
        self.directory.join(format!("{}.json", pod.name))
    }

    fn stop_path(&self, job: &str) -> PathBuf {
        self.directory.join(format!("{job}.stop"))
    }
}

//! The members that run. Enters: pods; leaves: processes in their pods' places, and what they say they did.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::cast::{Cast, Pod};
use super::host::wait_for;
use super::member::truth::Truth;
use super::network::Network;
use super::stage::Stage;

/// For what takes seconds on an idle machine.
const SOON: Duration = Duration::from_secs(60);
/// Gentle on two cores: 128 KiB four times a second.
const BUFFER: &str = "131072";
const PERIOD_MS: &str = "250";

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
    members: Vec<Member<'a>>,
}

impl<'a> Troupe<'a> {
    /// Nobody runs yet.
    pub(super) fn new(cast: &'a Cast, network: &'a Network<'a>, stage: &'a Stage, directory: &Path) -> Self {
        Self { cast, network, stage, directory: directory.join("truth"), members: Vec::new() }
    }

    /// Starts a pod's process.
    pub(super) fn start(&mut self, pod: &'a Pod) -> Result<()> {
        let netns = self.network.pod(self.cast, pod)?;
        let program = std::env::current_exe().context("where is this program?")?;
        let mut command = self.stage.pod(pod, &netns, &program.to_string_lossy())?;
        command.args(["lab-member", "--name", &pod.name]);
        command.args(["--rank", &pod.rank.to_string(), "--world", &pod.world.to_string()]);
        command.args(["--bind", &pod.ip.to_string(), "--master", &pod.master.to_string()]);
        command.args(["--buffer", BUFFER, "--period", PERIOD_MS]);
        command.arg("--truth").arg(self.truth_path(pod)).arg("--stop").arg(self.stop_path(pod.job));
        let process = command.spawn().with_context(|| format!("{} does not start", pod.name))?;
        self.members.push(Member { pod, process });
        Ok(())
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
        for member in self.members.iter_mut().filter(|member| member.pod.job == job) {
            let ended = member.process.try_wait()?;
            let log = self.stage.log(&member.pod.name);
            ensure!(ended.is_none(), "{} has ended; see {}", member.pod.name, log.display());
        }
        let what = format!("{job} to do {steps} steps");
        wait_for(&what, SOON, || Ok(self.slowest(job)?.filter(|done| *done >= steps))).map(drop)
    }

    fn truth_path(&self, pod: &Pod) -> PathBuf {
        self.directory.join(format!("{}.json", pod.name))
    }

    fn stop_path(&self, job: &str) -> PathBuf {
        self.directory.join(format!("{job}.stop"))
    }
}

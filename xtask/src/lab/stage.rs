//! Where processes run: a network namespace, a cgroup, and an end with the runner's. Enters: a program; leaves: a
//! command that starts it there. Nothing but the namespace is entered, so that files are the same everywhere.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::cast::Pod;
use super::cgroup;
use super::lease::Lease;
use super::network::enter;

/// Enters the cgroup as the first thing: a socket belongs to the cgroup that its process was in when it was made.
const JOIN: &str = r#"echo 0 > "$1" && shift && exec "$@""#;

/// The run's cgroups and log files.
pub(super) struct Stage {
    cgroup: PathBuf,
    logs: PathBuf,
}

impl Stage {
    /// Processes go below the run's cgroup; what they say goes below `logs`.
    pub(super) fn new(lease: &Lease, logs: &Path) -> Result<Self> {
        std::fs::create_dir_all(logs).with_context(|| format!("cannot create {}", logs.display()))?;
        Ok(Self { cgroup: lease.cgroup(), logs: logs.to_owned() })
    }

    /// A program of the lab itself in a namespace.
    pub(super) fn command(&self, name: &str, netns: &str, program: &str) -> Result<Command> {
        let cgroup = self.cgroup.join(name);
        std::fs::create_dir_all(&cgroup).with_context(|| format!("cannot create {}", cgroup.display()))?;
        self.within(&cgroup, name, Some(netns), program)
    }

    /// A program beside the lab, in the machine's own namespaces.
    pub(super) fn outside(&self, name: &str, program: &str) -> Result<Command> {
        let cgroup = self.cgroup.join(name);
        std::fs::create_dir_all(&cgroup).with_context(|| format!("cannot create {}", cgroup.display()))?;
        self.within(&cgroup, name, None, program)
    }

    /// A pod's program, in the pod's cgroup.
    pub(super) fn pod(&self, pod: &Pod, netns: &str, program: &str) -> Result<Command> {
        let cgroup = cgroup::create(&self.cgroup, pod)?;
        self.within(&cgroup, &pod.name, Some(netns), program)
    }

    /// Where a process' words go.
    pub(super) fn log(&self, name: &str) -> PathBuf {
        self.logs.join(format!("{name}.log"))
    }

    fn within(&self, cgroup: &Path, name: &str, netns: Option<&str>, program: &str) -> Result<Command> {
        let log = self.log(name);
        let log = File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "sh", "-c", JOIN, "sh"]).arg(cgroup.join("cgroup.procs"));
        if let Some(netns) = netns {
            command.args(["nsenter", &enter(netns), "--"]);
        }
        command.arg(program).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Ok(command)
    }
}

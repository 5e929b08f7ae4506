//! One run of the lab on this machine: its name, what bears that name, and its removal. Enters: nothing; leaves:
//! names that no other run has. What bears them is removed when the run ends in any way: a janitor process, in a
//! process group of its own, waits for the run's end on a pipe; and what even the janitor left behind is found by the
//! next run, because each run notes which process owns it.

use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

use super::host::{run, wait_for};
use crate::pods::control_groups;

/// Where runs note their owners.
const RUNS: &str = "/run/firedoor-lab";
/// How long processes may take to die.
const DYING: Duration = Duration::from_secs(10);

/// A run's hold on its names.
pub(super) struct Lease {
    id: String,
    janitor: Child,
}

impl Lease {
    /// Takes names that belong to this process, and removes what dead owners left.
    pub(super) fn take() -> Result<Self> {
        sweep_dead()?;
        let pid = std::process::id();
        let id = format!("fdlab{pid}");
        let directory = Path::new(RUNS).join(&id);
        fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
        let started = start_time(pid).context("this process is not in /proc")?;
        fs::write(directory.join("owner"), format!("{pid} {started}"))?;
        let program = std::env::current_exe().context("where is this program?")?;
        let mut janitor = Command::new(program);
        janitor.args(["lab-janitor", &id]).process_group(0);
        janitor.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let janitor = janitor.spawn().context("the janitor does not start")?;
        let lease = Self { id, janitor };
        let cgroup = lease.cgroup();
        fs::create_dir(&cgroup).with_context(|| format!("cannot create {}", cgroup.display()))?;
        Ok(lease)
    }

    /// The name of a network namespace of this run.
    pub(super) fn netns(&self, name: &str) -> String {
        format!("{}-{name}", self.id)
    }

    /// This run's name, of letters and digits.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// The cgroup v2 directory above all of this run's.
    pub(super) fn cgroup(&self) -> PathBuf {
        cgroup_of(&self.id)
    }

    /// Ends the run: everything that bears its name goes.
    pub(super) fn release(mut self) -> Result<()> {
        drop(self.janitor.stdin.take());
        let status = self.janitor.wait().context("the janitor is lost")?;
        anyhow::ensure!(status.success(), "the janitor failed ({status}): try `cargo xtask lab --cleanup`");
        Ok(())
    }
}

/// The janitor: waits for the end of its standard input, then removes what the run made.
pub(super) fn janitor(id: &str) -> Result<()> {
    anyhow::ensure!(is_run(id), "`{id}` is no run of the lab");
    let mut nothing = Vec::new();
    // An error is an end as well.
    let _ = std::io::stdin().read_to_end(&mut nothing);
    sweep(id)
}

/// Removes what runs left whose owner is gone, and says which.
pub(super) fn sweep_dead() -> Result<Vec<String>> {
    let mut swept = Vec::new();
    for id in runs() {
        if !owner_lives(&id) {
            sweep(&id)?;
            swept.push(id);
        }
    }
    Ok(swept)
}

fn runs() -> Vec<String> {
    let Ok(entries) = fs::read_dir(RUNS) else { return Vec::new() };
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| is_run(name)).collect()
}

fn is_run(id: &str) -> bool {
    id.strip_prefix("fdlab").is_some_and(|pid| !pid.is_empty() && pid.bytes().all(|b| b.is_ascii_digit()))
}

/// A process number is used again; together with the start time it is one process.
fn owner_lives(id: &str) -> bool {
    let Ok(owner) = fs::read_to_string(Path::new(RUNS).join(id).join("owner")) else { return false };
    let Some((pid, started)) = owner.split_once(' ') else { return false };
    pid.parse().ok().and_then(start_time).is_some_and(|now| now == started.trim())
}

/// A process' start, in ticks since boot: field 22 of /proc/PID/stat. A zombie counts as gone.
fn start_time(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    (state != "Z").then(|| fields.nth(18).map(str::to_owned)).flatten()
}

fn sweep(id: &str) -> Result<()> {
    let cgroup = cgroup_of(id);
    if cgroup.is_dir() {
        let kill = cgroup.join("cgroup.kill");
        wait_for("the lab's processes to end", DYING, || {
            fs::write(&kill, "1").with_context(|| format!("cannot write {}", kill.display()))?;
            Ok(remove_cgroups(&cgroup).ok())
        })?;
    }
    let prefix = format!("{id}-");
    // Not by `ip netns list`: it fails when another run's namespaces go meanwhile.
    let names = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    for name in names.filter(|name| name.starts_with(&prefix)) {
        run(&["ip", "netns", "del", &name])?;
    }
    let directory = Path::new(RUNS).join(id);
    fs::remove_dir_all(&directory).with_context(|| format!("cannot remove {}", directory.display()))
}

/// Cgroups are removed from the leaves; it fails while a process is in one.
fn remove_cgroups(directory: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_cgroups(&entry.path())?;
        }
    }
    fs::remove_dir(directory)
}

fn cgroup_of(id: &str) -> PathBuf {
    cgroup_root().join(format!("firedoor-{id}"))
}

/// Whether runs can have cgroups: seen by making one.
pub(super) fn has_cgroups() -> bool {
    let probe = cgroup_root().join(format!("firedoor-probe{}", std::process::id()));
    fs::create_dir(&probe).is_ok()
        && fs::metadata(probe.join("cgroup.kill")).is_ok() & fs::remove_dir(&probe).is_ok()
}

/// Where cgroup v2 is: at the root, or beside version 1.
fn cgroup_root() -> PathBuf {
    control_groups().unwrap_or_else(|_| PathBuf::from("/sys/fs/cgroup/unified"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_names_are_swept() {
        assert!(is_run("fdlab123"));
        assert!(!is_run("fdlab"));
        assert!(!is_run("fdlab1-x"));
        assert!(!is_run("../fdlab1"));
    }

    #[test]
    fn this_process_lives_and_a_number_alone_does_not_prove_it() {
        let started = start_time(std::process::id()).unwrap();
        assert!(started.bytes().all(|b| b.is_ascii_digit()));
        assert!(start_time(u32::MAX).is_none());
    }
}

//! Two small pods and what the agent must tell of them, on any kernel: here and in a virtual machine. Enters: the
//! agent's readiness and its recording; leaves: what is right in them and what is not. The pods are a script that
//! needs nothing but busybox.

mod judge;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::command::wait_for;

pub(crate) use judge::{Check, judge};

/// Builds the pods and lets them talk; its first lines say how it is called.
pub(crate) const SCRIPT: &str = include_str!("pods/pods.sh");
/// The same pods, as an API server would show them.
pub(crate) const OBJECTS: &str = include_str!("pods/objects.yaml");
/// The node they are on.
pub(crate) const NODE: &str = "node";
/// The static one of Debian, which runs in a virtual machine, too.
pub(crate) const BUSYBOX: &str = "/bin/busybox";
/// The file that the script waits for: the agent watches.
const WATCHED: &str = "watched";
/// The file that tells that the first connection is open.
const WAITING: &str = "waiting";
/// The file that tells the end of the conversation.
const EXCHANGED: &str = "exchanged";
/// What the pods may take to stand, and to talk.
const LIMIT: Duration = Duration::from_secs(60);

/// The pods on this machine. They go when this is dropped.
pub(crate) struct Pods {
    script: std::process::Child,
    groups: PathBuf,
    files: PathBuf,
}

impl Pods {
    /// Lets them stand, with a connection open. `directory` is theirs.
    pub(crate) fn start(directory: &Path) -> Result<Self> {
        let files = directory.join("pods");
        std::fs::create_dir_all(&files)?;
        let script = files.join("pods.sh");
        std::fs::write(&script, SCRIPT)?;
        let groups = control_groups()?.join(format!("firedoor-pods-{}", std::process::id()));
        std::fs::create_dir(&groups).with_context(|| format!("cannot create {}", groups.display()))?;
        let mut command = Command::new("setsid");
        command.args([BUSYBOX, "sh"]).arg(&script).arg(BUSYBOX).args([&groups, &files]);
        let log = std::fs::File::create(files.join("log"))?;
        let command = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let script = command.spawn().context("the pods do not start")?;
        let mut pods = Self { script, groups, files };
        pods.until(WAITING)?;
        Ok(pods)
    }

    /// Tells them that the agent watches, and waits until they have said everything.
    pub(crate) fn talk(&mut self) -> Result<()> {
        std::fs::write(self.files.join(WATCHED), "yes\n")?;
        self.until(EXCHANGED)
    }

    fn until(&mut self, file: &str) -> Result<()> {
        let (path, log) = (self.files.join(file), self.files.join("log"));
        wait_for(&format!("the pods ({})", log.display()), LIMIT, || {
            if path.is_file() {
                return Ok(Some(()));
            }
            match self.script.try_wait()? {
                Some(status) => bail!("the pods ended ({status}); their words are in {}", log.display()),
                None => Ok(None),
            }
        })
    }
}

impl Drop for Pods {
    fn drop(&mut self) {
        // `setsid` replaced itself: the script leads a process group with all of its programs in it.
        let group = format!("-{}", self.script.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.script.wait();
        let gone = || (!self.groups.exists()).then_some(());
        let _ = wait_for("the pods to go", Duration::from_secs(10), || {
            let mut remove = Command::new("find");
            remove.arg(&self.groups).args(["-depth", "-type", "d", "-exec", "rmdir", "{}", ";"]);
            let _ = remove.stderr(Stdio::null()).status();
            Ok(gone())
        });
    }
}

/// Where control groups of version 2 are mounted here.
pub(crate) fn control_groups() -> Result<PathBuf> {
    let places = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(PathBuf::from);
    let place = places.into_iter().find(|place| is_version_2(place));
    place.context("control groups of version 2 are not mounted here")
}

/// Whether control groups of version 2 are mounted there.
pub(crate) fn is_version_2(place: &Path) -> bool {
    place.join("cgroup.controllers").is_file()
}

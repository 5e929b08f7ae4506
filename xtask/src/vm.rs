//! `vm`: the agent on Debian's other kernels, in a virtual machine that is emulated in software: slow, and no part of
//! `cargo xtask test`. Enters: an agent, a kernel's version; leaves: which hooks attached there, and whether the agent
//! saw two pods talk. Kernels are downloaded and unpacked under `target/vm`, and installed nowhere.

mod archive;
mod kernel;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::command::{agent_binary, target, typed, wait_for};
use crate::confined::told;
use crate::libraries;
use crate::pods::{self, BUSYBOX, NODE, OBJECTS, SCRIPT};
use crate::setup::{self, Purpose};
use kernel::{Kernel, Release};

/// The first program in the machine.
const INIT: &str = include_str!("vm/init.sh");
/// A machine takes about 40 s where nothing else runs.
const LIMIT: Duration = Duration::from_secs(400);

/// How to run.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The kernel; without one, all of them.
    #[arg(value_enum)]
    release: Option<Release>,
    /// This agent, in place of a build.
    #[arg(long, value_name = "FILE")]
    agent: Option<PathBuf>,
    /// Locks the machine's kernel down: what does it still show? With `confidentiality` this must fail.
    #[arg(long, value_name = "MODE")]
    lockdown: Option<String>,
}

/// Boots the kernels and says what the agent saw on each.
///
/// # Errors
/// When a kernel cannot be had or does not boot; what the agent does not see is no error, but a failure.
pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<ExitCode> {
    setup::ensure(root, Purpose::Pods)?;
    setup::ensure(root, Purpose::Vm)?;
    let agent = match &arguments.agent {
        Some(agent) => agent.clone(),
        None => agent_binary(root)?,
    };
    let releases = arguments.release.map_or(Release::ALL.to_vec(), |release| vec![release]);
    let mut passed = true;
    for release in releases {
        let directory = target(root)?.join("vm").join(release.name());
        let kernel = Kernel::provide(release, &directory)?;
        println!("== {}", kernel.package());
        let initramfs = directory.join("initramfs");
        std::fs::write(&initramfs, initramfs_of(&directory, &kernel, &agent)?)?;
        let lockdown = arguments.lockdown.as_ref().map_or(String::new(), |mode| format!(" lockdown={mode}"));
        let said = Machine::boot(&kernel, &initramfs, &directory, &lockdown)?.output()?;
        passed &= judged(&said)?;
    }
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn judged(said: &str) -> Result<bool> {
    println!("{}", section(said, "kernel").unwrap_or("a kernel without a name"));
    println!("lockdown: {}", section(said, "lockdown").unwrap_or("not told"));
    let agent = section(said, "agent").unwrap_or_default();
    let readyz = section(said, "readyz").filter(|text| !text.is_empty());
    let Some(readyz) = readyz else { bail!("the agent never was ready: {agent}") };
    let recording = section(said, "recording").context("the machine sent no recording")?;
    let checks = pods::judge(readyz, recording)?;
    let passed = told(&checks);
    if !passed {
        println!("{agent}\n{}\n{recording}", section(said, "pods").unwrap_or_default());
    }
    Ok(passed)
}

/// What the machine sent between `== name` and the next such line.
fn section<'a>(said: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = said.split_once(&format!("== {name}\n"))?;
    Some(rest.split_once("\n== ").map_or(rest, |(section, _)| section).trim())
}

/// The machine's root file system.
fn initramfs_of(directory: &Path, kernel: &Kernel, agent: &Path) -> Result<Vec<u8>> {
    let root = directory.join("root");
    if root.exists() {
        std::fs::remove_dir_all(&root)?;
    }
    for place in ["proc", "sys", "dev", "tmp", "inventory"] {
        std::fs::create_dir_all(root.join(place))?;
    }
    libraries::install(agent, "firedoor", &root)?;
    libraries::install(Path::new(BUSYBOX), "busybox", &root)?;
    libraries::install(Path::new("/usr/bin/setpriv"), "setpriv", &root)?;
    std::fs::write(root.join("veth.ko"), kernel.module("drivers/net/veth")?)?;
    std::fs::write(root.join("pods.sh"), SCRIPT)?;
    std::fs::write(root.join("inventory/objects.yaml"), OBJECTS)?;
    let config = "[kernel]\nsampleMilliseconds = 500\n";
    std::fs::write(root.join("firedoor.toml"), config)?;
    let init = INIT.replace("NODE", NODE);
    std::fs::write(root.join("init"), init)?;
    archive::pack(&root, &["init"])
}

/// An emulated machine.
struct Machine {
    process: Child,
    console: PathBuf,
    output: PathBuf,
}

impl Machine {
    fn boot(kernel: &Kernel, initramfs: &Path, directory: &Path, lockdown: &str) -> Result<Self> {
        let (console, output) = (directory.join("console.log"), directory.join("output.log"));
        let mut command = Command::new("qemu-system-x86_64");
        command.args(["-accel", "tcg", "-machine", "q35", "-smp", "1", "-m", "1024"]);
        // Without `cx16`: the emulator that Debian 12 has spoils a register in the form of cmpxchg16b which kernels from
        // about 6.6 on use to allocate memory, and they panic before they reach the first program.
        command.args(["-cpu", "max,cx16=off", "-nographic", "-nodefaults", "-no-reboot"]);
        command.arg("-kernel").arg(kernel.image()?).arg("-initrd").arg(initramfs);
        command.args(["-append", &format!("console=ttyS0 loglevel=5 panic=-1{lockdown}")]);
        for port in [&console, &output] {
            command.arg("-serial").arg(format!("file:{}", port.display()));
        }
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let process = command.spawn().with_context(|| format!("cannot run `{}`", typed(&command)))?;
        Ok(Self { process, console, output })
    }

    /// What it sent until it switched itself off.
    fn output(mut self) -> Result<String> {
        let start = Instant::now();
        let console = self.console.display().to_string();
        let ended =
            wait_for(&format!("the machine to end ({console})"), LIMIT, || Ok(self.process.try_wait()?))?;
        println!("the machine ran for {} s", start.elapsed().as_secs());
        let said = std::fs::read(&self.output).unwrap_or_default();
        let said = String::from_utf8_lossy(&said).replace('\r', "");
        if !ended.success() || !said.contains("\n== end\n") {
            bail!("the machine did not come to its end ({ended}); its console is in {console}");
        }
        Ok(said)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // It has ended, unless something went wrong.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_told_apart() {
        let said = "== kernel\nLinux\n\n== readyz\n{\n}\n\n== end\n";
        assert_eq!(section(said, "kernel"), Some("Linux"));
        assert_eq!(section(said, "readyz"), Some("{\n}"));
        assert_eq!(section(said, "end"), Some(""));
        assert_eq!(section(said, "agent"), None);
    }
}

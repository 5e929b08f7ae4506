//! One run of a program on one core. Enters: a command; leaves: how long it took, how much processor time and
//! memory it used. Reads `/proc`, so Linux only.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// What one run cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    /// From start to end.
    pub(super) wall: Duration,
    /// Processor time, own and the kernel's for it.
    pub(super) processor: Duration,
    /// The largest resident size, in KiB.
    pub(super) peak_kib: u64,
    /// The exit code, `None` when a signal ended it.
    pub(super) code: Option<i32>,
}

/// How often the size is read. It never falls, so only growth within the last such moment can be missed.
const EVERY: Duration = Duration::from_millis(3);
/// Linux tells processor time in hundredths of a second, whatever its own tick is.
const TICK: Duration = Duration::from_millis(10);

/// Runs `program` pinned to one core; what it prints goes to `out` and `errors`.
pub(super) fn run(program: &Path, arguments: &[&str], out: &Path, errors: &Path) -> Result<Cost> {
    let mut command = match core() {
        Some(core) => {
            let mut pinned = Command::new("taskset");
            pinned.args(["-c", &core.to_string()]).arg(program);
            pinned
        }
        None => Command::new(program),
    };
    let out = File::create(out).with_context(|| format!("cannot create {}", out.display()))?;
    let errors = File::create(errors).with_context(|| format!("cannot create {}", errors.display()))?;
    command.args(arguments).stdin(Stdio::null()).stdout(out).stderr(errors);
    let start = Instant::now();
    let mut child = command.spawn().with_context(|| format!("cannot run {}", program.display()))?;
    let process = format!("/proc/{}", child.id());
    let (mut peak_kib, mut processor) = (0, Duration::ZERO);
    let wall = loop {
        let stat =
            fs::read_to_string(format!("{process}/stat")).context("/proc tells nothing of the process")?;
        let (state, used) = parse_stat(&stat).context("/proc/PID/stat has an unknown form")?;
        processor = used.max(processor);
        // Ended, but kept until it is waited for: the last moment its processor time can be read.
        if matches!(state, 'Z' | 'X') {
            break start.elapsed();
        }
        let status = fs::read_to_string(format!("{process}/status")).unwrap_or_default();
        peak_kib = parse_peak(&status).unwrap_or(0).max(peak_kib);
        thread::sleep(EVERY);
    };
    let code = child.wait()?.code();
    Ok(Cost { wall, processor, peak_kib, code })
}

/// The last core that this process may use; `None` without `taskset`.
fn core() -> Option<u32> {
    crate::command::output(Command::new("taskset").arg("--version"))?;
    let status = fs::read_to_string("/proc/self/status").ok()?;
    parse_cores(&status)
}

fn parse_cores(status: &str) -> Option<u32> {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    list.trim().rsplit([',', '-']).next()?.parse().ok()
}

fn parse_peak(status: &str) -> Option<u64> {
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    peak.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// The state and the processor time. The program's name, in brackets, may hold anything.
fn parse_stat(stat: &str) -> Option<(char, Duration)> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let user: u32 = fields.nth(10)?.parse().ok()?;
    let kernel: u32 = fields.next()?.parse().ok()?;
    Some((state, TICK * user.saturating_add(kernel)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_proc_says() {
        let stat = "42 (a ) b) R 1 42 42 0 -1 4194304 100 0 0 0 150 50 0 0 20 0 1 0 100 1000 10";
        assert_eq!(parse_stat(stat), Some(('R', Duration::from_secs(2))));
        assert_eq!(parse_stat("42 (a) R 1"), None);
        assert_eq!(parse_peak("Name:\tx\nVmHWM:\t  2048 kB\n"), Some(2048));
        assert_eq!(parse_cores("Cpus_allowed_list:\t0-3\n"), Some(3));
        assert_eq!(parse_cores("Cpus_allowed_list:\t0,2-5,7\n"), Some(7));
    }

    #[test]
    fn a_program_that_uses_time_and_memory() {
        let folder = tempfile::tempdir().unwrap();
        let (out, errors) = (folder.path().join("out"), folder.path().join("errors"));
        // A shell that holds 20 MB of text, works on it, and ends with 3.
        let script = "x=$(head -c 20000000 /dev/zero | tr '\\0' x); echo ${#x}; exit 3";
        let cost = run(Path::new("sh"), &["-c", script], &out, &errors).unwrap();
        assert_eq!(cost.code, Some(3));
        assert_eq!(fs::read_to_string(out).unwrap().trim(), "20000000");
        assert!(cost.peak_kib > 19_000, "{cost:?}");
        assert!(cost.processor > Duration::ZERO && cost.wall >= EVERY, "{cost:?}");
    }
}

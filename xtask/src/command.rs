//! Running other programs. Enters: a program and its arguments; leaves: whether it went well, and the line
//! that repeats it by hand.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// `program` with `arguments`, to be run at `root`.
pub(crate) fn command(root: &Path, program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root);
    command
}

/// The command as a person types it.
pub(crate) fn typed(command: &Command) -> String {
    let set = command.get_envs().filter_map(|(name, value)| {
        Some(format!("{}={}", name.to_string_lossy(), quoted(&value?.to_string_lossy())))
    });
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words = words.map(|word| quoted(&word.to_string_lossy()));
    set.chain(words).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    let plain =
        !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./=:,+@".contains(c));
    if plain { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

/// Runs it with this process' terminal.
pub(crate) fn status(command: &mut Command) -> Result<ExitStatus> {
    command.status().with_context(|| format!("cannot run `{}`", typed(command)))
}

/// Runs it with this process' terminal; anything but success is an error.
pub(crate) fn succeed(command: &mut Command) -> Result<()> {
    let status = status(command)?;
    if !status.success() {
        bail!("`{}` failed ({status})", typed(command));
    }
    Ok(())
}

/// What it prints, when it can be run and succeeds.
pub(crate) fn output(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether it ends well within `limit`; it is ended otherwise. Its output goes nowhere.
pub(crate) fn succeeds_within(command: &mut Command, limit: Duration) -> bool {
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else { return false };
    let start = Instant::now();
    while start.elapsed() < limit {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) => thread::sleep(Duration::from_millis(50)),
            Err(_) => break,
        }
    }
    // It may have ended meanwhile; then there is nothing to end.
    let _ = child.kill();
    let _ = child.wait();
    false
}

/// Asks until there is an answer.
///
/// # Errors
/// When there is none within `limit`, or asking fails for good.
pub(crate) fn wait_for<T>(
    what: &str,
    limit: Duration,
    mut ask: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        if start.elapsed() > limit {
            bail!("waited {} s for {what}, in vain", limit.as_secs());
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Builds the release binary and gives its path.
pub(crate) fn release_binary(root: &Path) -> Result<PathBuf> {
    succeed(&mut command(root, "cargo", &["build", "--release", "--package", "firedoor"]))?;
    let binary = target(root)?.join("release/firedoor");
    if !binary.is_file() {
        bail!("the build left no {}", binary.display());
    }
    Ok(binary)
}

/// Builds the binary with the kernel source, and gives its path. Not optimised: it shares what the tests build, and
/// what it does all day, the kernel does.
pub(crate) fn agent_binary(root: &Path) -> Result<PathBuf> {
    crate::ebpf::build(root)?;
    let arguments = ["build", "--package", "firedoor", "--features", "ebpf"];
    succeed(&mut command(root, "cargo", &arguments))?;
    let binary = target(root)?.join("debug/firedoor");
    if !binary.is_file() {
        bail!("the build left no {}", binary.display());
    }
    Ok(binary)
}

/// Where cargo builds.
pub(crate) fn target(root: &Path) -> Result<PathBuf> {
    let mut metadata = command(root, "cargo", &["metadata", "--format-version=1", "--no-deps"]);
    let text = output(&mut metadata).context("`cargo metadata` failed")?;
    let metadata: serde_json::Value =
        serde_json::from_str(&text).context("`cargo metadata` printed no JSON")?;
    let target =
        metadata["target_directory"].as_str().context("`cargo metadata` names no target directory")?;
    Ok(PathBuf::from(target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_typed_again() {
        let mut command = command(Path::new("/"), "cargo", &["test", "-p", "x", "a b", "it's", ""]);
        command.env("RUN", "1 2");
        assert_eq!(typed(&command), r"RUN='1 2' cargo test -p x 'a b' 'it'\''s' ''");
    }

    #[test]
    fn a_command_that_hangs_is_ended() {
        let start = Instant::now();
        assert!(!succeeds_within(&mut command(Path::new("/"), "sleep", &["60"]), Duration::from_millis(200)));
        assert!(start.elapsed() < Duration::from_secs(30));
        assert!(succeeds_within(&mut command(Path::new("/"), "true", &[]), Duration::from_secs(30)));
        assert!(!succeeds_within(
            &mut command(Path::new("/"), "no-such-program", &[]),
            Duration::from_secs(30)
        ));
    }
}

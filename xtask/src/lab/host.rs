//! The machine's own programs (`ip`, `nft`, `tc`, ...). Enters: a command; leaves: what it printed, or an error with
//! the line that repeats it. Knows nothing of scenarios.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::command::typed;
pub(super) use crate::command::wait_for;

/// Runs a program and gives what it printed.
pub(super) fn run(words: &[&str]) -> Result<String> {
    feed(words, "")
}

/// Runs a program with a text on its standard input, and gives what it printed.
pub(super) fn feed(words: &[&str], input: &str) -> Result<String> {
    let (program, arguments) = words.split_first().context("no program")?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let shown = typed(&command);
    let mut child = command.spawn().with_context(|| format!("cannot run `{shown}`"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that has no use for its input closes it; how it ends tells the rest.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().with_context(|| format!("cannot wait for `{shown}`"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`{shown}` failed ({}): {}", output.status, said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The words that run a program in a network namespace. Not `ip netns exec`, which mounts /sys anew.
pub(super) fn within<'a>(netns: &'a str, words: &[&'a str]) -> Vec<&'a str> {
    let mut all = vec!["nsenter", netns, "--"];
    all.extend(words);
    all
}

/// Writes a file so that a reader sees the old content or the new, never a part.
pub(super) fn write_whole(path: &Path, text: &str) -> Result<()> {
    let part = path.with_extension("part");
    let written = std::fs::write(&part, text).and_then(|()| std::fs::rename(&part, path));
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// When it is, in RFC 3339.
pub(super) fn now() -> String {
    jiff::Timestamp::now().to_string()
}

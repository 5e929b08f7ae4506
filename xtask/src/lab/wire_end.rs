//! The runner's end of the wire: starts the process, puts its TAPs into place, and talks with it. Enters: settings;
//! leaves: counts.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::cast::Cast;
use super::host::run;
use super::network::Network;
use super::scenario::Way;
use super::stage::Stage;
use super::wire::{Counts, ENDS, Settings};

/// A wire waits for no scheduler: its process goes before others, in real time where that is allowed.
const FIRST: &str = r#"chrt --rr --pid 1 $$ >&2 || renice -n -15 -p $$ >&2 || true; exec "$@""#;

/// A running wire.
pub(super) struct Wire {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    settings: Settings,
}

impl Wire {
    /// Joins the two zones.
    pub(super) fn lay(stage: &Stage, network: &Network<'_>, cast: &Cast, way: Way) -> Result<Self> {
        let here = network.fabric(0);
        let program = std::env::current_exe().context("where is this program?")?;
        let mut command: Command = stage.command("wire", &here, "sh")?;
        command
            .args(["-c", FIRST, "sh"])
            .arg(program)
            .arg("lab-wire")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = command.spawn().context("the wire does not start")?;
        let input = process.stdin.take().context("the wire has no input")?;
        let output = BufReader::new(process.stdout.take().context("the wire has no output")?);
        let mut wire = Self { process, input, output, settings: Settings::default() };
        wire.heard().context("the wire does not come up")?;
        // Both TAPs are made where the wire runs; the second is moved. Their file descriptors do not mind.
        let [left, right] = ENDS;
        let there = network.fabric(cast.zones.len() - 1);
        run(&["ip", "-netns", &here, "link", "set", right, "netns", &there])?;
        for (netns, end) in [(&here, left), (&there, right)] {
            run(&["ip", "-netns", netns, "link", "set", end, "master", "br0", "up"])?;
        }
        wire.set(Settings {
            delay_us: way.delay_ms * 1_000,
            loss_ppm: u64::from(way.loss_percent) * 10_000,
            ..Settings::default()
        })?;
        Ok(wire)
    }

    /// What the wire does now.
    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Changes what it does; it is so when this returns.
    pub(super) fn set(&mut self, settings: Settings) -> Result<()> {
        self.ask(&settings)?;
        self.settings = settings;
        Ok(())
    }

    /// What it has done so far.
    pub(super) fn counts(&mut self) -> Result<Counts> {
        let settings = self.settings.clone();
        self.ask(&settings)
    }

    fn ask(&mut self, settings: &Settings) -> Result<Counts> {
        let line = format!("{}\n", serde_json::to_string(settings)?);
        self.input.write_all(line.as_bytes()).context("the wire is gone")?;
        self.heard()
    }

    fn heard(&mut self) -> Result<Counts> {
        let mut line = String::new();
        let read = self.output.read_line(&mut line).context("the wire is gone")?;
        ensure!(read > 0, "the wire ended ({:?})", self.process.try_wait());
        serde_json::from_str(&line).context("the wire tells no counts")
    }
}

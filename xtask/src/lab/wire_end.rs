//! The runner's end of the wire: starts the process, puts its TAPs into place, and talks with it. Enters: settings;
//! leaves: counts.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::cast::Cast;
use super::host::run;
use super::network::Network;
use super::scenario::{How, Scenario, Way};
use super::stage::Stage;
use super::wire::{Counts, ENDS, Settings};

/// A wire waits for no scheduler: its process goes before others, in real time where that is allowed.
const FIRST: &str = r#"chrt --rr --pid 1 $$ >&2 || renice -n -15 -p $$ >&2 || true; exec "$@""#;

/// What joins the zones.
pub(super) enum Wire {
    /// The kernel's own: nothing is delayed, lost or swallowed, and nobody counts.
    Cable,
    /// A process with a TAP at each end.
    Running(Box<Running>),
}

/// A running wire.
pub(super) struct Running {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    settings: Settings,
}

impl Wire {
    /// Joins the two zones: by a cable where the wire has nothing to do, for a process adds its own latency.
    pub(super) fn lay(
        stage: &Stage,
        network: &Network<'_>,
        cast: &Cast,
        scenario: &Scenario,
    ) -> Result<Self> {
        let Way { delay_ms, loss_percent } = scenario.wire;
        let swallows = scenario.breach.as_ref().is_some_and(|breach| breach.how == How::WireSwallows);
        let (here, there) = (network.fabric(0), network.fabric(cast.zones.len() - 1));
        let [left, right] = ENDS;
        let join = |netns: &str, end: &str| {
            run(&["ip", "-netns", netns, "link", "set", end, "master", "br0", "up"]).map(drop)
        };
        if delay_ms == 0 && loss_percent == 0 && !swallows {
            run(&[
                "ip", "-netns", &here, "link", "add", left, "type", "veth", "peer", "name", right, "netns",
                &there,
            ])?;
            join(&here, left)?;
            join(&there, right)?;
            return Ok(Self::Cable);
        }
        let mut wire = Running::start(stage, &here)?;
        // Both TAPs are made where the wire runs; the second is moved. Their file descriptors do not mind.
        run(&["ip", "-netns", &here, "link", "set", right, "netns", &there])?;
        join(&here, left)?;
        join(&there, right)?;
        wire.set(Settings {
            delay_us: delay_ms * 1_000,
            loss_ppm: u64::from(loss_percent) * 10_000,
            ..Settings::default()
        })?;
        Ok(Self::Running(Box::new(wire)))
    }

    /// The process, where the wire has something to do.
    pub(super) fn running(&mut self) -> Result<&mut Running> {
        match self {
            Self::Running(wire) => Ok(wire),
            Self::Cable => bail!("a cable can do nothing"),
        }
    }

    /// What the wire has done so far.
    pub(super) fn counts(&mut self) -> Result<Counts> {
        match self {
            Self::Running(wire) => wire.counts(),
            Self::Cable => Ok(Counts::default()),
        }
    }
}

impl Running {
    fn start(stage: &Stage, here: &str) -> Result<Self> {
        let program = std::env::current_exe().context("where is this program?")?;
        let mut command: Command = stage.command("wire", here, "sh")?;
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

//! The thread that observes: asks the source, feeds the pipeline, judges, and puts up what came of it.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use firedoor_core::inventory::Inventory;
use firedoor_core::observation::Observation;
use firedoor_core::pipeline::Pipeline;
use firedoor_core::time::Timestamp;

use super::board::Board;
use super::directory::Directory;
use super::recording::Recording;
use super::transitions::Transitions;
use super::{AgentError, AgentOptions, http};
use crate::capture::Problems;
use crate::config::Config;
use crate::source::ebpf::{EbpfSettings, EbpfSource, ObservedNode};
use crate::source::placement::Placement;

/// How often the sources are asked: socket events wait in a ring of bounded size.
const POLL: Duration = Duration::from_millis(100);
/// How often everything is judged anew.
const JUDGE: Duration = Duration::from_secs(1);

/// Why observing stops.
pub(super) enum Stop {
    /// It was asked to.
    Asked,
}

/// Runs until it is told to stop (SIGTERM, SIGINT).
///
/// # Errors
/// When it cannot start, or the kernel stops answering.
pub fn run(options: &AgentOptions) -> Result<(), AgentError> {
    let config = match &options.config {
        Some(path) => Config::read(path)?,
        None => Config::default(),
    };
    let mut directory = Directory::new(&options.inventory);
    let mut problems = Problems::default();
    let objects = directory
        .changed(&mut problems)
        .map_err(|why| AgentError::Inventory { path: options.inventory.clone(), why })?
        .unwrap_or_default();
    let pipeline = Pipeline::new(Inventory::new(objects, &config.grouping), config.settings.clone());
    let nodes = options
        .nodes
        .iter()
        .map(|(name, netns)| ObservedNode { name: name.as_str().into(), netns: netns.clone() });
    let kernel = config.kernel.clone();
    let mut source = EbpfSource::start(EbpfSettings {
        nodes: nodes.collect(),
        cgroups: kernel.cgroups,
        sample_every: kernel.sample_every,
        slots: kernel.max_sockets,
    })?;
    source.place(Placement::of(pipeline.inventory(), now()));
    let recording = options.record.as_deref().map(Recording::create).transpose()?;
    let board = Arc::new(Board::new(&source));
    for line in problems.lines() {
        log(&line);
    }
    for hook in source.hooks() {
        if let Some(why) = &hook.missing {
            log(&format!("not seen: {} ({}): {why}", hook.sees, hook.name));
        }
    }
    for note in source.notes() {
        log(note);
    }
    let transitions = Transitions::default();
    let mut observer = Observer { directory, pipeline, source, recording, board, transitions };
    // From the first look on nothing is missed: only then is it ready.
    observer.look()?;
    let (ask, asked) = sync_channel(1);
    let address = http::serve(options.listen, Arc::clone(&observer.board), ask)
        .map_err(|why| AgentError::Listen { address: options.listen, why })?;
    log(&format!("watching; http://{}/api/v1/report", address));
    observer.run(&asked)
}

struct Observer {
    directory: Directory,
    pipeline: Pipeline,
    source: EbpfSource,
    recording: Option<Recording>,
    board: Arc<Board>,
    transitions: Transitions,
}

impl Observer {
    fn run(mut self, asked: &Receiver<Stop>) -> Result<(), AgentError> {
        let mut judged = Instant::now();
        loop {
            self.look()?;
            if judged.elapsed() >= JUDGE {
                judged = Instant::now();
                self.renew();
                self.judge();
            }
            match asked.recv_timeout(POLL) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Stop::Asked) | Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let Self { mut pipeline, source, mut recording, board, mut transitions, .. } = self;
        source.finish(now(), &mut |observation| take(&mut pipeline, recording.as_mut(), observation))?;
        if let Some(recording) = &mut recording {
            recording.settle()?;
        }
        let report = pipeline.finish();
        transitions.tell(&report, &mut |line| log(line));
        board.show(report);
        Ok(())
    }

    fn look(&mut self) -> Result<(), AgentError> {
        let Self { pipeline, recording, source, .. } = self;
        source.poll(now(), &mut |observation| take(pipeline, recording.as_mut(), observation))?;
        if let Some(recording) = recording {
            recording.settle()?;
        }
        Ok(())
    }

    fn judge(&mut self) {
        let report = self.pipeline.report();
        self.transitions.tell(&report, &mut |line| log(line));
        self.board.show(report);
    }

    /// Takes in what changed in the inventory.
    fn renew(&mut self) {
        let mut problems = Problems::default();
        match self.directory.changed(&mut problems) {
            Ok(Some(objects)) => {
                self.pipeline.update(objects);
                self.source.place(Placement::of(self.pipeline.inventory(), now()));
            }
            Ok(None) => {}
            Err(why) => log(&format!("the inventory cannot be read now, the last one stays: {why}")),
        }
        for line in problems.lines() {
            log(&line);
        }
    }
}

fn take(pipeline: &mut Pipeline, recording: Option<&mut Recording>, observation: Observation<'_>) {
    if let Some(recording) = recording {
        recording.write(&observation);
    }
    pipeline.observe(observation);
}

/// The wall clock: the one place that reads it.
fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

pub(super) fn log(line: &str) {
    // A log that cannot be written is no reason to stop watching.
    let _ = writeln!(std::io::stderr(), "firedoor: {line}");
}

//! The agent on a node: what the sources tell goes through the pipeline, and the board shows what came of it.
//! Enters: settings; leaves: a report over HTTP, one line of log for each finding that changes. One thread
//! observes and diagnoses, another one serves.

mod board;
mod directory;
mod http;
mod transitions;

use std::io::{BufWriter, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use firedoor_core::inventory::Inventory;
use firedoor_core::observation::Observation;
use firedoor_core::pipeline::Pipeline;
use firedoor_core::time::Timestamp;

use crate::capture::{Problems, shown, sockets};
use crate::config::{Config, ConfigError};
#[cfg(feature = "ebpf")]
use crate::source::ebpf::{EbpfSettings, EbpfSource, ProbeError};
use crate::source::placement::Placement;
use board::Board;
use directory::Directory;
use transitions::Transitions;

/// How often the sources are asked: socket events wait in a ring of bounded size.
const POLL: Duration = Duration::from_millis(100);
/// How often everything is judged anew.
const JUDGE: Duration = Duration::from_secs(1);

/// How to run.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// The nodes on this kernel, by name, with the file of their network namespace where it is not the agent's own.
    pub nodes: Vec<(String, Option<PathBuf>)>,
    /// A directory with the cluster's objects, in place of an API server; read again when it changes.
    pub inventory: PathBuf,
    /// Where to write what is observed, as a capture.
    pub record: Option<PathBuf>,
    /// Where to serve.
    pub listen: SocketAddr,
    /// Configuration.
    pub config: Option<PathBuf>,
}

/// Why the agent cannot run.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The kernel.
    #[cfg(feature = "ebpf")]
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// This build cannot.
    #[error(
        "this firedoor was built without the kernel source; `cargo xtask ebpf` and then `cargo build --release --features ebpf` builds one with it"
    )]
    NoEbpf,
    /// The objects.
    #[error("cannot read the inventory {}: {why}", shown(path))]
    Inventory {
        /// The directory.
        path: PathBuf,
        /// Why.
        why: std::io::Error,
    },
    /// The recording.
    #[error("cannot record into {}: {why}", shown(path))]
    Record {
        /// The directory.
        path: PathBuf,
        /// Why.
        why: std::io::Error,
    },
    /// The port.
    #[error("cannot listen on {address}: {why}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        why: std::io::Error,
    },
}

/// Why observing stops.
enum Stop {
    /// It was asked to.
    Asked,
}

/// Runs until it is told to stop (SIGTERM, SIGINT).
///
/// # Errors
/// When it cannot start, or the kernel stops answering.
#[cfg(feature = "ebpf")]
pub fn run(options: &AgentOptions) -> Result<(), AgentError> {
    use crate::source::ebpf::ObservedNode;

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
    let recording = options.record.as_deref().map(|path| Recording::create(path)).transpose()?;
    let board = Arc::new(Board::new(source.hooks(), source.notes()));
    let (ask, asked) = sync_channel(1);
    let server = http::serve(options.listen, Arc::clone(&board), ask)
        .map_err(|why| AgentError::Listen { address: options.listen, why })?;
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
    log(&format!("watching; http://{}/api/v1/report", server.address()));
    let observer =
        Observer { directory, pipeline, source, recording, board, transitions: Transitions::default() };
    observer.run(&asked)
}

/// Without the kernel there is nothing to run on yet.
///
/// # Errors
/// Always.
#[cfg(not(feature = "ebpf"))]
pub fn run(_options: &AgentOptions) -> Result<(), AgentError> {
    Err(AgentError::NoEbpf)
}

#[cfg(feature = "ebpf")]
struct Observer {
    directory: Directory,
    pipeline: Pipeline,
    source: EbpfSource,
    recording: Option<Recording>,
    board: Arc<Board>,
    transitions: Transitions,
}

#[cfg(feature = "ebpf")]
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
        if let Some(recording) = recording {
            recording.close()?;
        }
        let report = pipeline.finish();
        transitions.tell(&report, &mut |line| log(line));
        board.show(&report);
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
        self.board.show(&report);
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

#[cfg(feature = "ebpf")]
fn take(pipeline: &mut Pipeline, recording: Option<&mut Recording>, observation: &Observation<'_>) {
    if let Some(recording) = recording {
        recording.write(observation);
    }
    pipeline.observe(observation.clone());
}

/// What is observed, on its way into a file.
struct Recording {
    path: PathBuf,
    file: BufWriter<std::fs::File>,
    failed: Option<std::io::Error>,
}

impl Recording {
    fn create(directory: &Path) -> Result<Self, AgentError> {
        let path = directory.join("sockets.jsonl");
        let create = || {
            std::fs::create_dir_all(directory)?;
            std::fs::OpenOptions::new().create_new(true).append(true).open(&path)
        };
        match create() {
            Ok(file) => Ok(Self { path, file: BufWriter::new(file), failed: None }),
            Err(why) => Err(AgentError::Record { path, why }),
        }
    }

    fn write(&mut self, observation: &Observation<'_>) {
        if self.failed.is_none()
            && let Err(why) = sockets::write(&mut self.file, observation)
        {
            self.failed = Some(why);
        }
    }

    /// Brings everything to the file; what could not be written ends the recording loudly.
    fn settle(&mut self) -> Result<(), AgentError> {
        let failed = self.failed.take().or_else(|| self.file.flush().err());
        failed.map_or(Ok(()), |why| Err(AgentError::Record { path: self.path.clone(), why }))
    }

    fn close(mut self) -> Result<(), AgentError> {
        self.settle()
    }
}

/// The wall clock: the one place that reads it.
fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

fn log(line: &str) {
    // A log that cannot be written is no reason to stop watching.
    let _ = writeln!(std::io::stderr(), "firedoor: {line}");
}

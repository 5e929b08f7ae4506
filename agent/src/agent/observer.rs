//! The thread that observes: asks the kernel, takes what Hubble tells and what is new in the cluster, feeds the
//! pipeline, judges, and puts up what came of it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use firedoor_core::inventory::Inventory;
use firedoor_core::membership::JobId;
use firedoor_core::observation::{Observation, SourceKind};
use firedoor_core::pipeline::Pipeline;
use firedoor_core::settings::Settings;

use super::board::{Board, InventoryShown, Shown, SourceShown};
use super::clock::Clock;
use super::gpus::{Gpus, GpusShown};
use super::kernel::KernelWatch;
use super::lines::{described, described_source, introduction};
use super::log::{self, Saying, log};
use super::outside::{Asked, Network, Outside, Waiting};
use super::recording::Recording;
use super::transitions::Transitions;
use super::{AgentError, interest, now};
use crate::cluster::Lookup;
use crate::config::{Config, Layers};
use crate::source::hubble::{Batch, SourceState, Told};
use crate::source::placement::Placement;

/// How often the kernel is asked: socket events wait in a ring of bounded size.
const POLL: Duration = Duration::from_millis(100);
/// How often everything is judged anew ...
const JUDGE: Duration = Duration::from_secs(1);
/// ... unless that takes more than one part in so many of the time.
const JUDGE_SHARE: u32 = 20;
/// After the clock was set back: how much later than now an event may be. Hubble's ring still holds those of before.
const AHEAD: Duration = Duration::from_secs(60);

/// Runs until it is told to stop (SIGTERM, SIGINT).
///
/// # Errors
/// When it cannot start.
pub fn run(layers: &Layers) -> Result<(), AgentError> {
    let network = Network::new()?;
    log::begin();
    let config = layers.read()?.config;
    let board = Arc::new(Board::new());
    let has = |kind| config.agent.sources.contains(&kind);
    let kernel = has(SourceKind::Ebpf).then(|| match KernelWatch::start(&config, now()) {
        // One source that cannot start takes no agent down that has another one.
        Err(why) if has(SourceKind::Hubble) => Ok(KernelWatch::down(&config, &why, now())),
        other => other,
    });
    let kernel = kernel.transpose()?;
    let recording = config
        .agent
        .record
        .as_deref()
        .map(|directory| Recording::create(directory, &config.agent.sources))
        .transpose()?;
    let outside = Outside::start(network, &config, &board)?;
    log(&introduction(&config, outside.address));
    let mut observer = Observer::new(layers.clone(), config, board, kernel, recording, outside);
    observer.begin();
    let ended = observer.run();
    log::end();
    ended
}

struct Observer {
    layers: Layers,
    config: Config,
    inventory: InventoryShown,
    pipeline: Pipeline,
    kernel: Option<KernelWatch>,
    hubble: Option<SourceShown>,
    said: Said,
    recording: Option<Recording>,
    /// Why the recording is not whole.
    unrecorded: Option<AgentError>,
    outside: Outside,
    board: Arc<Board>,
    transitions: Transitions,
    clock: Clock,
    judged: Instant,
    judging: Duration,
    /// What was told last of what was seen, and when.
    windows: Option<(Instant, Bytes)>,
}

/// What was said so far.
#[derive(Default)]
struct Said {
    ebpf: Saying,
    hubble: Saying,
    cluster: Saying,
    gpus: Saying,
}

/// What wakes the observer.
enum Woken {
    Told(Told),
    Asked(Asked),
    Nobody,
}

impl Observer {
    fn new(
        layers: Layers,
        config: Config,
        board: Arc<Board>,
        kernel: Option<KernelWatch>,
        recording: Option<Recording>,
        outside: Outside,
    ) -> Self {
        let hubble = config.agent.sources.contains(&SourceKind::Hubble);
        let pipeline = Pipeline::new(Inventory::new(Vec::new(), &config.grouping), settings(&config));
        Self {
            pipeline,
            kernel,
            hubble: hubble.then(|| SourceShown::new(SourceKind::Hubble)),
            said: Said::default(),
            recording,
            unrecorded: None,
            outside,
            board,
            transitions: Transitions::default(),
            inventory: InventoryShown::default(),
            clock: Clock::new(now(), Instant::now()),
            judged: Instant::now(),
            judging: Duration::ZERO,
            windows: None,
            layers,
            config,
        }
    }

    /// Knows the cluster, as far as that takes no waiting, and looks for the first time.
    fn begin(&mut self) {
        self.renew();
        if let Some(kernel) = &self.kernel {
            for hook in kernel.shown().hooks.iter().filter(|hook| !hook.attached) {
                let why = hook.reason.as_deref().unwrap_or("not attached");
                log(&format!("not seen: {} ({}): {why}", hook.sees, hook.name));
            }
            kernel.shown().notes.iter().for_each(|note| log(note));
            self.pipeline.source_state(SourceKind::Ebpf, kernel.shown().up, now());
        }
        // From the first look on nothing is missed: only then is it ready.
        self.look();
        self.judge();
    }

    fn run(mut self) -> Result<(), AgentError> {
        let waiting = Waiting::new()?;
        let mut polled = Instant::now();
        loop {
            if let Some(by) = self.clock.set_back(now(), Instant::now()) {
                self.start_anew(by);
            }
            match self.wait(&waiting, POLL.saturating_sub(polled.elapsed())) {
                Woken::Told(told) => self.take_told(told),
                Woken::Asked(Asked::Stop(signal)) => {
                    log(&format!("ends, as {signal} asks for"));
                    break;
                }
                Woken::Asked(Asked::GiveUp { part, why }) => {
                    // What was found is told; whoever started it starts it again.
                    self.finish()?;
                    return Err(AgentError::Ended { part, why });
                }
                Woken::Asked(Asked::Reload) => self.reload(),
                Woken::Asked(Asked::Windows(to)) => {
                    // Whoever asked may have left.
                    let _ = to.send(self.windows());
                }
                Woken::Nobody => {}
            }
            if polled.elapsed() >= POLL {
                polled = Instant::now();
                self.look();
                self.renew();
                self.say();
            }
            if self.judged.elapsed() >= JUDGE.max(self.judging * JUDGE_SHARE) {
                self.judge();
            }
            self.board.turn();
        }
        self.finish()
    }

    /// The clock of this machine, and so of its kernel and its Hubble, was set back.
    fn start_anew(&mut self, by: Duration) {
        let by = by.as_secs();
        log(&format!(
            "the clock was set back by {by} s: what was told before would make all that follows late, so it is forgotten"
        ));
        self.pipeline.start_anew(now(), AHEAD);
        self.outside.follow_anew();
        self.windows = None;
    }

    fn wait(&mut self, waiting: &Waiting, time: Duration) -> Woken {
        let Outside { asked, told, .. } = &mut self.outside;
        let next = async {
            tokio::select! {
                biased;
                asked = asked.recv() => Woken::Asked(asked.unwrap_or_else(nobody_asks)),
                Some(told) = told.recv() => Woken::Told(told),
                else => std::future::pending().await,
            }
        };
        waiting.within(time, next).unwrap_or(Woken::Nobody)
    }

    fn finish(self) -> Result<(), AgentError> {
        let Self { mut pipeline, kernel, mut recording, mut transitions, unrecorded, .. } = self;
        let mut unrecorded = unrecorded;
        let last = kernel.map_or(Ok(()), |kernel| {
            kernel.finish(now(), &mut |observation| take(&mut pipeline, recording.as_mut(), observation))
        });
        if let Some(recording) = &mut recording {
            unrecorded = unrecorded.or(recording.settle().err()).or(recording.is_there().err());
        }
        transitions.tell(&pipeline.finish(), &mut |line| log(line));
        unrecorded.map_or(last, Err)
    }

    /// Asks the kernel.
    fn look(&mut self) {
        let Self { pipeline, recording, kernel, .. } = self;
        if let Some(kernel) = kernel {
            let was_up = kernel.shown().up;
            let at = now();
            kernel.poll(at, &mut |observation| take(pipeline, recording.as_mut(), observation));
            let shown = kernel.shown();
            if shown.up != was_up {
                pipeline.source_state(SourceKind::Ebpf, shown.up, at);
            }
        }
        self.settle();
    }

    fn settle(&mut self) {
        let settled = self.recording.as_mut().map_or(Ok(()), Recording::settle);
        self.recorded(settled);
    }

    fn recorded(&mut self, result: Result<(), AgentError>) {
        if let Err(why) = result {
            // Whoever watches the log learns it now; who waits for the end learns it from the exit code.
            log(&format!("{why}; nothing more is recorded"));
            self.recording = None;
            self.unrecorded = Some(why);
        }
    }

    fn take_told(&mut self, told: Told) {
        match told {
            Told::Batch(batch) => self.take_batch(&batch),
            Told::State(state) => self.take_state(state),
            Told::Sees { at, nodes } => {
                let nodes = nodes.iter().map(String::as_str).collect();
                let seen = Observation::Reached { at: at.unwrap_or_else(now), nodes };
                take(&mut self.pipeline, self.recording.as_mut(), seen);
            }
            Told::Certificate(certificate) => {
                let Some(shown) = &mut self.hubble else { return };
                shown.certificate_expiry = certificate.expires;
                shown.notes = certificate.problem.into_iter().collect();
            }
        }
    }

    fn take_batch(&mut self, batch: &Batch) {
        let Self { pipeline, recording, .. } = self;
        batch.observations(|observation| match observation {
            Ok(observation) => take(pipeline, recording.as_mut(), observation),
            Err(_) => pipeline.reject(SourceKind::Hubble),
        });
    }

    fn take_state(&mut self, state: SourceState) {
        let Some(shown) = &mut self.hubble else { return };
        let at = now();
        match state {
            SourceState::Up(server) => {
                if !shown.up {
                    shown.since = Some(at);
                }
                (shown.up, shown.why) = (true, None);
                shown.server = Some(described(&server));
            }
            SourceState::Down { since, why } => {
                (shown.up, shown.since, shown.why) = (false, Some(since), Some(why));
            }
        }
        self.pipeline.source_state(SourceKind::Hubble, shown.up, at);
    }

    fn judge(&mut self) {
        self.judged = Instant::now();
        let recorded = self.recording.as_ref().map_or(Ok(()), Recording::is_there);
        self.recorded(recorded);
        let at = now();
        self.outside.gpus.age(at, self.pipeline.readings());
        self.pipeline.pass(at);
        let report = self.pipeline.look();
        self.transitions.tell(&report, &mut |line| log(line));
        self.ask_for_unknown();
        let gpus = self.outside.gpus.shown().cloned();
        let sources = self.kernel.iter().map(KernelWatch::shown).chain(&self.hubble);
        let nodes = self.config.agent.nodes.iter().map(|node| node.name.clone()).collect();
        self.board.show(Shown::of(&self.pipeline, report, sources, self.inventory.clone(), gpus, nodes));
        self.judging = self.judged.elapsed();
    }

    /// What was seen, as JSON. Made anew once a second at the most, however often it is asked for.
    fn windows(&mut self) -> Bytes {
        match &self.windows {
            Some((made, body)) if made.elapsed() < JUDGE => body.clone(),
            _ => {
                let body = serde_json::to_vec(&self.pipeline.windows()).unwrap_or_default();
                let body = Bytes::from(body);
                self.windows = Some((Instant::now(), body.clone()));
                body
            }
        }
    }

    /// Peers of large jobs that were seen and are not known are looked up, as many as there is room for.
    fn ask_for_unknown(&mut self) {
        for unknown in self.pipeline.take_unresolved() {
            let lookup = Lookup { namespace: Some(unknown.namespace), ip: unknown.ip, pod: unknown.pod };
            if self.outside.lookups.try_send(lookup).is_err() {
                break;
            }
        }
    }

    /// Takes in what changed in the inventory.
    fn renew(&mut self) {
        let at = now();
        // Readings of pods that nobody knows yet would be lost.
        if self.inventory.ready
            && let Some(news) = self.outside.gpus.news(at, self.pipeline.inventory())
        {
            Gpus::enter(news, at, self.pipeline.readings());
        }
        let Some(renewal) = self.outside.supply.changed(at) else { return };
        self.inventory = renewal.shown;
        if let Some(known) = renewal.known {
            self.pipeline.update(known.objects, &known.ended);
            let partial = known_in_part(self.pipeline.inventory(), &known.partial);
            self.pipeline.known_in_part(partial);
        }
        let inventory = self.pipeline.inventory();
        let nodes: Vec<&str> = self.config.agent.nodes.iter().map(|node| node.name.as_str()).collect();
        if self.inventory.ready {
            let unknown = nodes.iter().filter(|name| !inventory.nodes().contains_key(**name));
            self.inventory.notes.extend(unknown.map(|name| format!(
                "node {name} is not among the nodes that are known: is it named as `kubectl get nodes` names it?"
            )));
        }
        // The pods of a directory may be anybody's, and anywhere.
        if self.config.agent.inventory.is_none() {
            self.outside.gpus.find(inventory, &nodes);
        }
        if let Some(kernel) = &mut self.kernel {
            kernel.place(Placement::of(inventory, at));
        }
        if self.hubble.is_some() && self.inventory.ready {
            let interest = interest::of(inventory, &self.config.agent.nodes, at);
            self.outside.interest.send_if_modified(|known| {
                let differs = **known != interest;
                if differs {
                    *known = Arc::new(interest);
                }
                differs
            });
        }
    }

    /// Says what is news.
    fn say(&mut self) {
        let at = Instant::now();
        let kernel = self.kernel.as_ref().map(KernelWatch::shown);
        for (saying, shown) in [(&mut self.said.ebpf, kernel), (&mut self.said.hubble, self.hubble.as_ref())]
        {
            let Some(shown) = shown else { continue };
            saying.news(&described_source(shown), at).into_iter().for_each(log);
        }
        let gpus = self.outside.gpus.shown().map_or_else(Vec::new, GpusShown::described);
        self.said.gpus.news(&gpus, at).into_iter().for_each(log);
        let mut cluster = self.inventory.notes.clone();
        match (self.inventory.ready, self.inventory.stale_since) {
            (true, None) => cluster.push("the cluster is known".to_owned()),
            (true, Some(_)) => cluster.push("the cluster is known as it was".to_owned()),
            (false, _) => {}
        }
        self.said.cluster.news(&cluster, at).into_iter().for_each(log);
    }

    /// Reads configuration and inventory again. What is wrong changes nothing.
    fn reload(&mut self) {
        self.outside.reload.store(false, Ordering::Relaxed);
        self.outside.supply.again();
        let config = match self.layers.read() {
            Ok(effective) => effective.config,
            Err(why) => {
                return format!("the configuration stays as it was: {why}").lines().for_each(log);
            }
        };
        let fixed = Config { settings: self.config.settings.clone(), ..config.clone() };
        let later = fixed.differing_keys(&self.config);
        if !later.is_empty() {
            log(&format!("of these the new values hold when the agent starts anew: {}", later.join(", ")));
        }
        self.pipeline.configure(settings(&config));
        self.config.settings = config.settings;
        log("the configuration was read again");
    }
}

/// The jobs of these pods, by UID.
fn known_in_part(inventory: &Inventory, pods: &BTreeSet<String>) -> BTreeSet<JobId> {
    if pods.is_empty() {
        return BTreeSet::new();
    }
    let known = inventory
        .pods()
        .iter()
        .enumerate()
        .filter(|(_, pod)| pod.uid.as_ref().is_some_and(|uid| pods.contains(uid)));
    let jobs = known.filter_map(|(id, _)| inventory.membership().of_pod(id));
    let jobs = jobs.filter_map(|(job, _)| inventory.membership().jobs.get(job));
    jobs.map(|job| job.id.clone()).collect()
}

/// What a node's kernel or its Hubble server tells comes in about the order of its own clock.
const LATENESS: [(SourceKind, Duration); 2] =
    [(SourceKind::Ebpf, Duration::from_secs(2)), (SourceKind::Hubble, Duration::from_secs(5))];

/// An agent's report has a horizon; and what its own node tells does not come late. A relay joins the clocks of many
/// nodes.
fn settings(config: &Config) -> Settings {
    let own = LATENESS.into_iter().filter(|(kind, _)| *kind != SourceKind::Hubble || !config.hubble.relay);
    Settings { horizon: Some(config.agent.report), lateness_of: own.collect(), ..config.settings.clone() }
}

fn take(pipeline: &mut Pipeline, recording: Option<&mut Recording>, observation: Observation<'_>) {
    if let Some(recording) = recording {
        recording.write(&observation);
    }
    pipeline.observe(observation);
}

/// The thread that asks is gone.
fn nobody_asks() -> Asked {
    Asked::GiveUp { part: "talks to the network", why: "its thread is gone".to_owned() }
}

//! A client that takes what the source tells, as the agent would.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use firedoor::source::hubble::{
    Batch, HubbleSettings, Interest, PassedOver, SourceState, Told, Written, follow,
};
use firedoor_core::observation::{Loss, Observation};
use tokio::sync::{mpsc, watch};

/// How long a test waits for what must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Everything that was told so far.
#[derive(Default)]
pub(crate) struct Heard {
    /// Raw messages of flows, in order.
    pub(crate) messages: Vec<Vec<u8>>,
    pub(crate) flows: u64,
    /// By node and cause.
    pub(crate) lost: BTreeMap<(String, String), u64>,
    pub(crate) blind: Vec<String>,
    pub(crate) sees: Vec<String>,
    pub(crate) rejected: u64,
    pub(crate) states: Vec<SourceState>,
    pub(crate) problems: Vec<String>,
    pub(crate) expires: Vec<u64>,
    pub(crate) passed: PassedOver,
}

impl Heard {
    pub(crate) fn lost_by(&self, cause: &str) -> u64 {
        self.lost.iter().filter(|((_, of), _)| of == cause).map(|(_, count)| count).sum()
    }

    pub(crate) fn downs(&self) -> usize {
        self.states.iter().filter(|state| matches!(state, SourceState::Down { .. })).count()
    }

    pub(crate) fn ups(&self) -> usize {
        self.states.len() - self.downs()
    }

    fn take(&mut self, told: Told) {
        match told {
            Told::Batch(batch) => self.batch(&batch),
            Told::State(state) => self.states.push(state),
            Told::Sees { nodes, .. } => self.sees.extend(nodes),
            Told::Certificate(certificate) => {
                self.expires.extend(certificate.expires.map(|at| at.nanos() / 1_000_000_000));
                self.problems.extend(certificate.problem);
            }
        }
    }

    fn batch(&mut self, batch: &Batch) {
        self.messages.extend(batch.messages().map(<[u8]>::to_vec));
        let passed = batch.observations(|observation| match observation {
            Ok(Observation::Flow(_)) => self.flows += 1,
            Ok(Observation::Lost(Loss { observer, cause, count, .. })) => {
                let key = (observer.unwrap_or_default().to_owned(), cause.to_owned());
                *self.lost.entry(key).or_default() += count;
            }
            Ok(Observation::Blind { nodes, .. }) => self.blind.extend(nodes.into_iter().map(str::to_owned)),
            Ok(other) => panic!("Hubble does not tell {other:?}"),
            Err(_) => self.rejected += 1,
        });
        self.passed.unasked += passed.unasked;
        self.passed.again += passed.again;
        self.passed.history += passed.history;
        self.passed.other += passed.other;
    }
}

/// The client.
pub(crate) struct Client {
    from: mpsc::Receiver<Told>,
    pub(crate) heard: Heard,
    pub(crate) interest: watch::Sender<Arc<Interest>>,
    task: tokio::task::JoinHandle<()>,
}

/// Settings under which a test need not wait long.
pub(crate) fn settings(address: &str) -> HubbleSettings {
    let address: Written = address.parse().expect("an address");
    HubbleSettings {
        backoff_min: Duration::from_millis(1),
        backoff_max: Duration::from_millis(20),
        status_every: Duration::from_millis(100),
        settle: Duration::from_millis(300),
        files_every: Duration::from_millis(50),
        ..HubbleSettings::new(address, "gpu-node-a")
    }
}

pub(crate) fn on_socket(path: &Path) -> HubbleSettings {
    settings(&format!("unix://{}", path.display()))
}

pub(crate) fn everything() -> Interest {
    Interest { everything: true, ..Interest::default() }
}

/// Some pods of the namespace `ml`.
pub(crate) fn pods(names: &[&str]) -> Interest {
    let pods = names.iter().map(|name| ("ml".to_owned(), (*name).to_owned())).collect();
    Interest { pods, ..Interest::default() }
}

impl Client {
    pub(crate) fn start(settings: HubbleSettings, interest: Interest) -> Self {
        Self::with_room(settings, interest, 64)
    }

    /// So many batches wait at most until they are taken.
    pub(crate) fn with_room(settings: HubbleSettings, interest: Interest, room: usize) -> Self {
        let (to, from) = mpsc::channel(room);
        let (interest, asked) = watch::channel(Arc::new(interest));
        let task = tokio::spawn(follow(settings, asked, to, std::future::pending()));
        Self { from, heard: Heard::default(), interest, task }
    }

    /// Takes what is told until `enough`, or fails after [`PATIENCE`].
    pub(crate) async fn until(&mut self, what: &str, mut enough: impl FnMut(&Heard) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !enough(&self.heard) {
            // What is waited for may show elsewhere, too.
            match tokio::time::timeout(Duration::from_millis(5), self.from.recv()).await {
                Ok(Some(told)) => self.heard.take(told),
                Ok(None) => panic!("the source ended while waiting for {what}"),
                Err(_) => assert!(
                    Instant::now() < deadline,
                    "{what} did not happen: {} flows, {:?}, {:?}",
                    self.heard.flows,
                    self.heard.lost,
                    self.heard.states
                ),
            }
        }
    }

    /// Takes what is told for so long.
    pub(crate) async fn during(&mut self, time: Duration) {
        let deadline = Instant::now() + time;
        while let Ok(Some(told)) =
            tokio::time::timeout(deadline.saturating_duration_since(Instant::now()), self.from.recv()).await
        {
            self.heard.take(told);
        }
    }

    pub(crate) async fn connected(&mut self) {
        self.until("connecting", |heard| heard.ups() > 0).await;
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.task.abort();
    }
}

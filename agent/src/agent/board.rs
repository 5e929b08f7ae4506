//! The latest of everything that can be asked for. Written by the observer, read by whoever asks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use firedoor_core::inventory::Inventory;
use firedoor_core::ledger::Account;
use firedoor_core::membership::JobId;
use firedoor_core::observation::SourceKind;
use firedoor_core::pipeline::Pipeline;
use firedoor_core::report::Report;
use firedoor_core::tally::JobTally;
use firedoor_core::time::Timestamp;
use serde::{Serialize, Serializer};

use super::gpus::GpusShown;

/// An observer that has not turned for so long will not turn again.
const STUCK: Duration = Duration::from_secs(120);
/// What an observer showed that has not turned for so long may be over.
const STALE: Duration = Duration::from_secs(30);

/// The latest of everything.
pub(super) struct Board {
    shown: RwLock<Arc<Shown>>,
    begun: Instant,
    /// Milliseconds from `begun` to the observer's last turn.
    turned: AtomicU64,
}

/// What the observer put up last.
#[derive(Clone, Default)]
pub(super) struct Shown {
    pub(super) report: Option<Arc<Report>>,
    pub(super) jobs: Arc<Vec<(JobId, JobTally)>>,
    /// Jobs of whose name there is a younger one.
    pub(super) superseded: BTreeSet<JobId>,
    pub(super) sources: Vec<SourceShown>,
    pub(super) inventory: InventoryShown,
    /// The GPU exporter, where there is one.
    pub(super) gpus: Option<GpusShown>,
    /// The nodes that are watched.
    pub(super) nodes: BTreeSet<String>,
    pub(super) pages: Pages,
}

/// What was made of it already: each page once, however often it is asked for.
#[derive(Clone, Default)]
pub(super) struct Pages {
    pub(super) prometheus: OnceLock<Bytes>,
    pub(super) open_metrics: OnceLock<Bytes>,
    pub(super) json: OnceLock<Bytes>,
    pub(super) text: OnceLock<Bytes>,
}

/// A source, as it is.
#[derive(Clone, Serialize)]
pub(super) struct SourceShown {
    #[serde(serialize_with = "kind_name")]
    pub(super) source: SourceKind,
    pub(super) up: bool,
    /// Since when it is up, or down.
    #[serde(serialize_with = "rfc3339")]
    pub(super) since: Option<Timestamp>,
    /// Why it is down.
    pub(super) why: Option<String>,
    /// What the other end says it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) server: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) hooks: Vec<HookShown>,
    /// What each map in the kernel holds at most, in bytes.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) map_bytes: BTreeMap<String, u64>,
    /// When the client's certificate ends to be valid.
    #[serde(serialize_with = "rfc3339", skip_serializing_if = "Option::is_none")]
    pub(super) certificate_expiry: Option<Timestamp>,
    pub(super) notes: Vec<String>,
    /// What became of what it told; for the metrics.
    #[serde(skip)]
    pub(super) account: Account,
}

impl SourceShown {
    /// One of which nothing is known yet.
    pub(super) fn new(source: SourceKind) -> Self {
        Self {
            source,
            up: false,
            since: None,
            why: None,
            server: None,
            hooks: Vec::new(),
            map_bytes: BTreeMap::new(),
            certificate_expiry: None,
            notes: Vec::new(),
            account: Account::default(),
        }
    }

    /// One that is down since `at`.
    pub(super) fn down(source: SourceKind, why: String, at: Timestamp) -> Self {
        Self { why: Some(why), since: Some(at), ..Self::new(source) }
    }
}

/// A place in the kernel that is watched, or not.
#[derive(Clone, Serialize)]
pub(super) struct HookShown {
    pub(super) name: &'static str,
    pub(super) sees: &'static str,
    pub(super) attached: bool,
    pub(super) reason: Option<String>,
}

/// What is known of the cluster.
#[derive(Clone, PartialEq, Default, Serialize)]
pub(super) struct InventoryShown {
    pub(super) ready: bool,
    /// Since when it may be out of date, because nobody tells what changes.
    #[serde(serialize_with = "rfc3339")]
    pub(super) stale_since: Option<Timestamp>,
    pub(super) notes: Vec<String>,
}

/// What is watched and what is not.
#[derive(Serialize)]
struct Readiness<'a> {
    ready: bool,
    inventory: &'a InventoryShown,
    sources: &'a [SourceShown],
    #[serde(skip_serializing_if = "Option::is_none")]
    gpus: Option<&'a GpusShown>,
}

fn kind_name<S: Serializer>(kind: &SourceKind, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(kind.as_str())
}

pub(super) fn rfc3339<S: Serializer>(at: &Option<Timestamp>, to: S) -> Result<S::Ok, S::Error> {
    match at {
        Some(at) => to.collect_str(at),
        None => to.serialize_none(),
    }
}

impl Shown {
    /// What there is to show now.
    pub(super) fn of<'a>(
        pipeline: &Pipeline,
        report: Report,
        sources: impl Iterator<Item = &'a SourceShown>,
        inventory: InventoryShown,
        gpus: Option<GpusShown>,
        nodes: BTreeSet<String>,
    ) -> Self {
        let accounts = pipeline.accounts();
        let with_account =
            |shown: &SourceShown| SourceShown { account: accounts.of(shown.source).clone(), ..shown.clone() };
        let jobs = pipeline.tallies().map(|(id, tally)| (id.clone(), tally.clone()));
        Self {
            report: Some(Arc::new(report)),
            jobs: Arc::new(jobs.collect()),
            superseded: superseded(pipeline.inventory()),
            sources: sources.map(with_account).collect(),
            inventory,
            gpus,
            nodes,
            pages: Pages::default(),
        }
    }

    /// Whether what it tells can be relied on: the cluster is known, and somebody watches.
    pub(super) fn is_ready(&self) -> bool {
        self.inventory.ready && self.report.is_some() && self.sources.iter().any(|source| source.up)
    }

    /// What is watched and what is not, as JSON. `fresh`: the observer told so of late.
    pub(super) fn readiness(&self, fresh: bool) -> Vec<u8> {
        let readiness = Readiness {
            ready: fresh && self.is_ready(),
            inventory: &self.inventory,
            sources: &self.sources,
            gpus: self.gpus.as_ref(),
        };
        let mut json = serde_json::to_vec_pretty(&readiness).unwrap_or_default();
        json.push(b'\n');
        json
    }
}

/// Jobs of whose name there is a younger one: by when their pods got their addresses.
fn superseded(inventory: &Inventory) -> BTreeSet<JobId> {
    let mut youngest: BTreeMap<(&str, &str, &str), (Option<Timestamp>, &JobId)> = BTreeMap::new();
    let mut superseded = BTreeSet::new();
    for (_, job) in inventory.jobs() {
        let id = &job.id;
        let pods = job.members.iter().filter_map(|member| inventory.pods().get(member.pod));
        let began = pods.filter_map(|pod| pod.lease.from).max();
        let place = youngest.entry((&id.namespace, id.kind.as_str(), &id.name)).or_insert((began, id));
        if *place.1 != *id {
            let older = if began > place.0 { std::mem::replace(place, (began, id)).1 } else { id };
            superseded.insert(older.clone());
        }
    }
    superseded
}

impl Board {
    pub(super) fn new() -> Self {
        Self { shown: RwLock::default(), begun: Instant::now(), turned: AtomicU64::new(0) }
    }

    /// Puts up what is new.
    pub(super) fn show(&self, shown: Shown) {
        *self.shown.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(shown);
    }

    /// The latest of everything.
    pub(super) fn shown(&self) -> Arc<Shown> {
        Arc::clone(&self.shown.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The observer took another turn.
    pub(super) fn turn(&self) {
        let since = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.turned.store(since, Ordering::Relaxed);
    }

    /// Whether the observer still turns.
    pub(super) fn is_alive(&self) -> bool {
        self.since_turned() < STUCK
    }

    /// Whether what is shown is of now.
    pub(super) fn is_fresh(&self) -> bool {
        self.since_turned() < STALE
    }

    fn since_turned(&self) -> Duration {
        let turned = Duration::from_millis(self.turned.load(Ordering::Relaxed));
        self.begun.elapsed().saturating_sub(turned)
    }
}

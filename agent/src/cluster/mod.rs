//! The cluster as one node needs to see it. Enters: the API server's answers; leaves: snapshots of the objects that the
//! jobs of this node have to do with, as plain as a directory of objects would give them. Must not know flows, windows
//! or findings.
//!
//! No agent lists a cluster. It watches the pods of its own node; for each job that has a pod here, that job's pods, by
//! the label of the job's system; the policies that may lock their doors; and the labels of namespaces. Everything else
//! (nodes, owners, services) is asked for by name when a pod refers to it. `docs/kubernetes.md` counts the requests.

mod access;
mod apart;
mod api;
mod backoff;
mod credentials;
mod decode;
mod discovery;
mod fetch;
mod follower;
mod lines;
mod peers;
mod plan;
mod plugin;
mod pods;
mod snapshot;
mod strip;
mod wanted;
mod watch;
mod watched;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use firedoor_core::membership::{Grouping, SharedLabel};
use firedoor_core::object::Object;
use firedoor_core::time::Timestamp;

pub use access::{Access, AccessError};
pub use credentials::Credentials;
pub use follower::follow;

/// How the cluster is followed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterSettings {
    /// The node whose pods are watched.
    pub node: String,
    /// How pods are joined to jobs.
    pub grouping: Grouping,
    /// A job of more pods than this is not watched: its members here and the peers that are seen are known.
    pub max_members: usize,
    /// Objects in a page of a list.
    pub page: u32,
    /// A list of more objects than this is none: a server that goes on and on is not followed.
    pub max_listed: usize,
    /// Nodes that are known at a time, this node and those of its pods' peers first.
    pub max_nodes: usize,
    /// Owners that are known at a time, those of this node's pods first.
    pub max_owners: usize,
    /// Observed peers of jobs that are too large to be watched that are known at a time.
    pub max_peers: usize,
    /// How long changes are gathered before a snapshot is made of them; longer where making one takes long.
    pub settle: Duration,
    /// How long a pod that ended is remembered, so that late flows find it.
    pub keep_ended: Duration,
    /// How long a job is watched after its last pod here ended.
    pub linger: Duration,
    /// How long the server may take for an answer.
    pub timeout: Duration,
    /// How long a watch is asked to last.
    pub watch: Duration,
    /// A watch on which nothing came for this long, not even a bookmark, is taken for dead.
    pub idle: Duration,
    /// How old nodes, owners and services may become before they are asked for again.
    pub refresh: Duration,
    /// When to ask again for what RBAC refused, and for kinds that the server did not serve.
    pub recheck: Duration,
    /// The first wait after a failure, and the longest.
    pub backoff: (Duration, Duration),
    /// Requests a second for single objects, on the average of some seconds.
    pub requests_per_second: u32,
    /// Of these, for peers that were observed and are not known.
    pub lookups_per_second: u32,
}

impl Default for ClusterSettings {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        let minutes = |minutes: u64| seconds(60 * minutes);
        Self {
            node: String::new(),
            grouping: Grouping::default(),
            max_members: 512,
            page: 500,
            // Kubernetes' own limits for what is listed here: 10,000 namespaces, 110 pods a node.
            max_listed: 100_000,
            max_nodes: 1024,
            max_owners: 512,
            max_peers: 512,
            settle: Duration::from_millis(200),
            keep_ended: minutes(10),
            linger: minutes(2),
            timeout: seconds(30),
            watch: minutes(5),
            idle: seconds(150),
            refresh: minutes(10),
            recheck: minutes(5),
            backoff: (Duration::from_millis(500), seconds(30)),
            requests_per_second: 50,
            lookups_per_second: 5,
        }
    }
}

/// The cluster as it is known at a time.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Snapshot {
    /// All objects, sorted by kind, namespace and name. A pod's `status.startTime` and `metadata.deletionTimestamp`
    /// say from when until when its address was its own, as far as that is known better than Kubernetes writes it.
    pub objects: Vec<Object>,
    /// By UID: pods among the objects that ended, and when.
    pub ended: BTreeMap<String, Timestamp>,
    /// Jobs whose members are known in part only.
    pub partial: Vec<PartialJob>,
    /// Whether everything that is needed was asked for and answered once, be it by a refusal.
    pub ready: bool,
    /// Since when part of this may be out of date, because the server does not answer.
    pub stale_since: Option<Timestamp>,
    /// What is not as it should be, for a person.
    pub notes: Vec<String>,
    /// What was asked, up to now.
    pub requests: Requests,
}

/// A job whose members are known in part only.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PartialJob {
    /// The namespace of its pods.
    pub namespace: String,
    /// The labels of its pods; none where they share none.
    pub labels: Vec<SharedLabel>,
    /// UIDs of its pods here.
    pub local: Vec<String>,
    /// Why.
    pub why: WhyPartial,
}

/// Why not all members of a job are known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum WhyPartial {
    /// It has more than [`ClusterSettings::max_members`] pods.
    TooLarge,
    /// Its pods share no label that could be selected by.
    NoSharedLabel,
    /// RBAC does not let the agent list them.
    Refused,
    /// They have not been listed yet.
    NotYet,
}

/// A peer that was observed and is not known: nobody's address in the inventory. Only in namespaces with jobs that are
/// known in part is it asked for; elsewhere it cannot be a member.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Lookup {
    /// Its namespace, where it was told; a job's pods share one.
    pub namespace: Option<String>,
    /// Its address.
    pub ip: IpAddr,
    /// Its name, where it was told.
    pub pod: Option<String>,
}

/// Requests to the API server since the start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Requests {
    /// Single objects.
    pub gets: u64,
    /// Pages of lists.
    pub lists: u64,
    /// Watches, counted anew whenever one is begun again.
    pub watches: u64,
    /// Watches that are kept up now.
    pub watching: u64,
    /// Requests that failed or were refused.
    pub failed: u64,
    /// Bytes of answers.
    pub bytes: u64,
    /// Objects that were not understood, and skipped.
    pub malformed: u64,
    /// Look-ups of peers that were not made, because there were too many.
    pub refused_lookups: u64,
}

/// The wall clock.
fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

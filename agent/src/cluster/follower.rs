//! Follows the cluster: decides what to watch and to get, and takes in what comes. One task; a watch is a stream that it
//! polls, so whatever is slow here slows the server down and nothing piles up. Enters: events and answers; leaves:
//! snapshots. Must not know how requests are made.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, Stream, StreamExt as _};
use tokio::sync::{mpsc, watch as channel};
use tokio_stream::StreamMap;

use firedoor_core::object::Object;

use super::access::Access;
use super::api::{Api, ApiError, Meter, Served};
use super::backoff::{Backoff, Dice};
use super::fetch::{self, AT_A_TIME, Answer, Fetched, Key, Shelf};
use super::peers::{self, Pace, Peers, Question};
use super::pods::{Holder, Pods, Record};
use super::wanted::{Here, JobPods};
use super::watch::{Event, Patience, Scope, watch};
use super::watched::{Listing, Wanted, Watched, identity};
use super::{ClusterSettings, Lookup, Snapshot, now, snapshot};

/// The longest answer that is taken, in bytes: a page of 500 pods has a few million.
const MAX_ANSWER: usize = 32 << 20;
/// How often the clock alone may change something.
const CLOCK: Duration = Duration::from_secs(1);
/// What is wanted is not decided more often than this: many pods come at once.
const PLAN: Duration = Duration::from_millis(50);

/// Pods that were looked up one by one.
pub(super) const PEERS: Holder = 0;

type Done = Pin<Box<dyn Future<Output = Answered> + Send>>;

enum Answered {
    Fetched(Key, Result<Answer, ApiError>),
    Looked(Question, Result<Vec<Object>, ApiError>),
}

/// All that is known, and all that is under way.
pub(super) struct Follower {
    pub(super) settings: ClusterSettings,
    pub(super) api: Api,
    pub(super) pods: Pods,
    pub(super) watched: BTreeMap<Holder, Watched>,
    pub(super) here: Here,
    /// Jobs with too many members to be watched.
    pub(super) large: BTreeSet<JobPods>,
    pub(super) fetched: Fetched,
    pub(super) peers: Peers,
    pub(super) ready: bool,
    streams: StreamMap<Holder, Pin<Box<dyn Stream<Item = Event> + Send>>>,
    under_way: FuturesUnordered<Done>,
    pace: Pace,
    lookup_pace: Pace,
    next_holder: Holder,
    /// Malformed objects, when last looked.
    malformed: u64,
    /// What was wrong with the credentials, when last told.
    pub(super) told_trouble: Option<String>,
    /// Whether what is wanted may have changed.
    pub(super) replan: bool,
    planning: Share,
    telling: Share,
    /// Since when a snapshot is due.
    pub(super) changed: Option<Instant>,
}

/// Follows the cluster until it is told to stop, or nobody takes the snapshots any more.
pub async fn follow(
    access: Access,
    settings: ClusterSettings,
    mut lookups: mpsc::Receiver<Lookup>,
    to: channel::Sender<Option<Arc<Snapshot>>>,
    stop: impl Future<Output = ()>,
) {
    let mut follower = Follower::new(access, settings);
    let mut stop = std::pin::pin!(stop);
    let mut asking = true;
    while !to.is_closed() {
        follower.plan_if_needed();
        follower.ask();
        if let Some(snapshot) = follower.snapshot_if_due() {
            to.send_replace(Some(Arc::new(snapshot)));
        }
        let wake = follower.wake();
        tokio::select! {
            () = &mut stop => break,
            Some((holder, event)) = follower.streams.next() => follower.happened(holder, event),
            Some(answered) = follower.under_way.next() => follower.answered(answered),
            lookup = lookups.recv(), if asking => match lookup {
                Some(lookup) => follower.observed(&lookup),
                None => asking = false,
            },
            () = tokio::time::sleep_until(wake.into()) => follower.clock(),
        }
    }
}

impl Follower {
    fn new(access: Access, settings: ClusterSettings) -> Self {
        let api = Api {
            access,
            meter: Arc::new(Meter::default()),
            timeout: settings.timeout,
            max_answer: MAX_ANSWER,
        };
        let shelf = Shelf { refresh: settings.refresh, recheck: settings.recheck };
        let mut follower = Self {
            pods: Pods::new(settings.keep_ended),
            watched: BTreeMap::new(),
            here: Here::default(),
            large: BTreeSet::new(),
            fetched: Fetched::new(shelf, backoff(&settings, 0)),
            peers: Peers::new(settings.max_peers, settings.refresh),
            ready: false,
            streams: StreamMap::new(),
            under_way: FuturesUnordered::new(),
            pace: Pace::new(settings.requests_per_second),
            lookup_pace: Pace::new(settings.lookups_per_second),
            next_holder: PEERS + 1,
            malformed: 0,
            told_trouble: None,
            replan: true,
            planning: Share::new(),
            telling: Share::new(),
            changed: None,
            settings,
            api,
        };
        follower.begin(Wanted::Own);
        follower
    }

    /// Begins to watch.
    pub(super) fn begin(&mut self, wanted: Wanted) {
        let holder = self.next_holder;
        self.next_holder += 1;
        let node = &self.settings.node;
        let pods = || Served::new("v1", "Pod", "pods", true);
        let all = |served| Scope { served, namespace: None, fields: None, labels: None, most: None };
        let scope = match &wanted {
            Wanted::Own => Scope { fields: Some(format!("spec.nodeName={node}")), ..all(pods()) },
            Wanted::Job(job) => Scope {
                namespace: Some(job.namespace.clone()),
                labels: Some(job.selector()),
                most: Some(self.settings.max_members),
                ..all(pods())
            },
            Wanted::Policies(served, namespace) => {
                Scope { namespace: namespace.clone(), ..all(served.clone()) }
            }
            Wanted::Namespaces => all(Served::new("v1", "Namespace", "namespaces", false)),
        };
        let patience = Patience {
            page: self.settings.page,
            watch: self.settings.watch,
            idle: self.settings.idle,
            recheck: self.settings.recheck,
            max_listed: self.settings.max_listed,
        };
        let stream = watch(self.api.clone(), scope, patience, backoff(&self.settings, holder.into()));
        self.streams.insert(holder, Box::pin(stream));
        self.watched.insert(holder, Watched::new(wanted));
    }

    /// Ceases to watch.
    pub(super) fn end(&mut self, holder: Holder) {
        self.streams.remove(&holder);
        if self.watched.remove(&holder).is_some_and(|watched| matches!(watched.wanted, Wanted::Job(_))) {
            self.pods.release(holder, |_| false);
        }
        self.change();
    }

    fn change(&mut self) {
        self.changed.get_or_insert_with(Instant::now);
    }

    /// When to look at the clock again.
    fn wake(&mut self) -> Instant {
        let now = Instant::now();
        let mut wake = now + CLOCK;
        if let Some(changed) = self.changed {
            wake = wake.min((changed + self.settings.settle).max(self.telling.not_before));
        }
        if self.replan {
            wake = wake.min(self.planning.not_before);
        }
        if self.under_way.len() < AT_A_TIME && self.peers.is_waiting() {
            wake = wake.min(now + Duration::from_millis(50));
        }
        wake
    }

    fn clock(&mut self) {
        let now = now();
        if self.pods.prune(now) {
            self.change();
        }
        // Pods that ended some time ago are no reason to watch their job.
        let malformed = self.api.meter.read().malformed;
        if std::mem::replace(&mut self.malformed, malformed) != malformed {
            self.change();
        }
        self.api.access.mend();
        if self.api.access.trouble() != self.told_trouble {
            self.change();
        }
        let linger = self.settings.linger;
        let lingers = self.local().any(|(_, record)| record.ended_before(now, linger));
        self.replan |= lingers;
    }

    /// The pods of this node.
    pub(super) fn local(&self) -> impl Iterator<Item = (&str, &Record)> {
        let own = self.watched.iter().find(|(_, watched)| watched.wanted == Wanted::Own);
        let own = own.map_or(PEERS, |(holder, _)| *holder);
        let node = self.settings.node.as_str();
        self.pods
            .iter()
            .filter(move |(_, record)| record.is_held_by(own) || record.node.as_deref() == Some(node))
    }

    fn happened(&mut self, holder: Holder, event: Event) {
        let Some(watched) = self.watched.get_mut(&holder) else { return };
        match event {
            Event::Down(why) => {
                watched.down.get_or_insert_with(|| (now(), why.to_string())).1 = why.to_string();
            }
            Event::Up => watched.down = None,
            Event::Refused(why) => {
                watched.down = None;
                watched.refused = Some(why.to_string());
                self.replan = true;
            }
            Event::TooMany => return self.too_many(holder),
            Event::Page { first, last, objects } => self.page(holder, first, last, objects),
            Event::Put(object) => {
                watched.heard();
                self.put(holder, object);
            }
            Event::Removed(object) => {
                watched.heard();
                self.removed(holder, object);
            }
        }
        self.change();
        let Some(watched) = self.watched.get(&holder) else { return };
        if matches!(watched.wanted, Wanted::Job(_)) && watched.members > self.settings.max_members {
            self.too_many(holder);
        }
    }

    fn too_many(&mut self, holder: Holder) {
        if let Some(Watched { wanted: Wanted::Job(job), .. }) = self.watched.get(&holder) {
            self.large.insert(job.clone());
        }
        self.end(holder);
        self.replan = true;
    }

    fn page(&mut self, holder: Holder, first: bool, last: bool, objects: Vec<Object>) {
        let Some(watched) = self.watched.get_mut(&holder) else { return };
        watched.refused = None;
        if first {
            self.begin_list(holder);
        }
        for object in objects {
            self.listed(holder, object);
        }
        let Some(watched) = self.watched.get_mut(&holder).filter(|_| last) else { return };
        let listing = watched.listing.take().unwrap_or_default().all();
        let complete_until = watched.down.as_ref().map_or(watched.last, |(since, _)| *since);
        watched.listed = true;
        watched.heard();
        watched.objects.retain(|(namespace, name), _| {
            listing.contains(&*identity(namespace.as_deref().unwrap_or_default(), name))
        });
        if watched.wanted.of_pods() {
            watched.members = listing.len();
            self.pods.sweep(holder, &listing, complete_until, now());
        }
        self.replan = true;
    }

    /// A list begins. One before it that did not end takes with it what it alone brought: else a server whose lists never
    /// end would fill the memory, list by list.
    fn begin_list(&mut self, holder: Holder) {
        let Some(watched) = self.watched.get_mut(&holder) else { return };
        let Some(broken_off) = watched.listing.replace(Listing::default()) else { return };
        let new = broken_off.new;
        watched.objects.retain(|(namespace, name), _| {
            !new.contains(&*identity(namespace.as_deref().unwrap_or_default(), name))
        });
        if watched.wanted.of_pods() && !new.is_empty() {
            let lasts = |record: &Record| !new.contains(record.object.uid().unwrap_or_default());
            self.pods.release(holder, lasts);
        }
    }

    fn listed(&mut self, holder: Holder, object: Object) {
        let Some(watched) = self.watched.get_mut(&holder) else { return };
        let id = watched.wanted.identity(&object);
        let known = if watched.wanted.of_pods() {
            self.pods.get(&id).is_some_and(|record| record.is_held_by(holder))
        } else {
            watched.knows(&object)
        };
        if let Some(listing) = &mut watched.listing {
            listing.add(id, known);
        }
        self.put(holder, object);
    }

    fn put(&mut self, holder: Holder, object: Object) {
        let Some(watched) = self.watched.get_mut(&holder) else { return };
        if !watched.wanted.of_pods() {
            let key = (object.namespace().map(str::to_owned), object.name().to_owned());
            watched.objects.insert(key, object);
            return;
        }
        let uid = object.uid().unwrap_or_default();
        let known = self.pods.get(uid).is_some_and(|record| record.is_held_by(holder));
        if !known && watched.listing.is_none() {
            watched.members += 1;
        }
        if !self.pods.put(holder, object, now()) {
            self.api.meter.malformed();
        }
        self.replan = true;
    }

    fn removed(&mut self, holder: Holder, object: Object) {
        let Some(watched) = self.watched.get_mut(&holder) else { return };
        if !watched.wanted.of_pods() {
            let key = (object.namespace().map(str::to_owned), object.name().to_owned());
            watched.objects.remove(&key);
            return;
        }
        watched.members = watched.members.saturating_sub(1);
        let uid = object.uid().unwrap_or_default().to_owned();
        // A pod that leaves a label's watch may only have lost the label.
        let is_deleted = object.apart().text("/metadata/deletionTimestamp").is_some();
        let definite = watched.wanted == Wanted::Own || is_deleted;
        let time = now();
        self.pods.last_form(holder, object, time);
        self.pods.removed(holder, &uid, definite, time);
        self.replan = true;
    }

    fn answered(&mut self, answered: Answered) {
        match answered {
            Answered::Fetched(key, answer) => {
                if self.fetched.take(&key, answer) {
                    self.change();
                }
                // An owner may have owners, a version kinds.
                self.replan |= !matches!(key, Key::Node(_));
            }
            Answered::Looked(question, Ok(pods)) => {
                let time = now();
                for uid in self.peers.answered(&question, &pods) {
                    self.pods.removed(PEERS, &uid, true, time);
                }
                for pod in pods {
                    if !self.pods.put(PEERS, pod, time) {
                        self.api.meter.malformed();
                    }
                }
                self.replan = true;
                self.change();
            }
            Answered::Looked(_, Err(_)) => {}
        }
        // Whether it is ready may have changed, even where no object did.
        if !self.ready {
            self.change();
        }
    }

    fn observed(&mut self, lookup: &Lookup) {
        if self.pods.has_address(lookup.ip) {
            return;
        }
        let namespaces = snapshot::partial_namespaces(self);
        let namespaces: BTreeSet<&str> = namespaces.iter().map(String::as_str).collect();
        self.peers.observed(lookup, &namespaces);
        for namespace in self.here.namespaces() {
            // A service that is newer than its namespace's list has an address that nobody has.
            self.fetched.hurry(&Key::Services(namespace.to_owned()), Duration::from_secs(30));
        }
    }

    /// Starts requests, as many as may be under way.
    fn ask(&mut self) {
        while self.under_way.len() < AT_A_TIME {
            if self.lookup_pace.is_free()
                && let Some(question) = self.peers.due()
            {
                self.lookup_pace.take();
                let api = self.api.clone();
                self.under_way.push(Box::pin(async move {
                    let answer = peers::ask(&api, &question).await;
                    Answered::Looked(question, answer)
                }));
                continue;
            }
            if !self.pace.is_free() {
                break;
            }
            let Some(key) = self.fetched.due() else { break };
            self.pace.take();
            let served = match &key {
                Key::Owner(owner) => self.served(owner),
                _ => None,
            };
            let api = self.api.clone();
            self.under_way.push(Box::pin(async move {
                let answer = fetch::fetch(&api, &key, served).await;
                Answered::Fetched(key, answer)
            }));
        }
    }

    fn plan_if_needed(&mut self) {
        if !self.replan || !self.planning.is_due() {
            return;
        }
        self.replan = false;
        let begun = Instant::now();
        self.plan();
        self.planning.done(begun, PLAN);
        if !self.ready {
            self.change();
        }
    }

    /// The snapshot, when changes have settled.
    fn snapshot_if_due(&mut self) -> Option<Snapshot> {
        if self.changed.is_none_or(|changed| changed.elapsed() < self.settings.settle)
            || !self.telling.is_due()
        {
            return None;
        }
        self.changed = None;
        let begun = Instant::now();
        if !self.ready && std::mem::take(&mut self.replan) {
            // Whether everything is known can only be said of a plan of this moment.
            self.plan();
        }
        let snapshot = self.snapshot();
        self.telling.done(begun, self.settings.settle);
        Some(snapshot)
    }
}

/// Keeps work that is done over and over to a share of the time: events are taken in meanwhile.
pub(super) struct Share {
    not_before: Instant,
}

impl Share {
    fn new() -> Self {
        Self { not_before: Instant::now() }
    }

    fn is_due(&self) -> bool {
        self.not_before <= Instant::now()
    }

    /// It was begun then and is done now: not again for this long, and for four times as long as it took.
    fn done(&mut self, begun: Instant, pause: Duration) {
        self.not_before = begun + pause.max(begun.elapsed() * 5);
    }
}

fn backoff(settings: &ClusterSettings, purpose: u64) -> Backoff {
    let (first, longest) = settings.backoff;
    Backoff::new(first, longest, Dice::new(&settings.node, purpose))
}

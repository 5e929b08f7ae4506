//! What is asked for by name, and kept for a while. Enters: what is wanted, in order of importance; leaves: requests
//! that are due, and the answers as they are. A refusal is an answer, too. Must not know why something is wanted.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use firedoor_core::object::Object;

use super::api::{Api, ApiError, Served, Verb, encoded};
use super::backoff::Backoff;
use super::decode;
use super::discovery::{self, Groups, Kind};
use super::wanted::Reference;

/// Requests for single objects under way at a time.
pub(super) const AT_A_TIME: usize = 4;
/// Services of one namespace that are taken in.
const MAX_SERVICES: usize = 1000;
/// Pods of the cluster's name service that are taken in: they are alike.
const NAME_SERVERS: usize = 16;

/// Something to get.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Key {
    /// The API groups.
    Groups,
    /// The kinds of an API version.
    Kinds(String),
    Node(String),
    Owner(Reference),
    /// The services of a namespace.
    Services(String),
    /// The service by which pods reach the API server.
    ApiService,
    /// Where it really is.
    ApiEndpoints,
    /// Pods of the cluster's name service.
    NameServers,
    /// Its service.
    NameService,
}

/// What came.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Objects(Vec<Object>),
    Groups(Groups),
    Kinds(Vec<Kind>),
}

/// Why nothing came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Trouble {
    /// RBAC refuses it.
    Refused(String),
    /// There is no such thing.
    Absent,
    /// It may be got later.
    Failed(String),
}

struct Entry {
    answer: Option<Answer>,
    trouble: Option<Trouble>,
    due: Instant,
    backoff: Backoff,
    under_way: bool,
}

/// How long answers are good for.
#[derive(Clone, Debug)]
pub(super) struct Shelf {
    pub(super) refresh: Duration,
    pub(super) recheck: Duration,
}

/// Everything that was asked for and is still wanted.
pub(super) struct Fetched {
    entries: BTreeMap<Key, Entry>,
    order: Vec<Key>,
    shelf: Shelf,
    backoff: Backoff,
    /// Before this nothing is due.
    not_before: Option<Instant>,
}

impl Fetched {
    pub(super) fn new(shelf: Shelf, backoff: Backoff) -> Self {
        Self { entries: BTreeMap::new(), order: Vec::new(), shelf, backoff, not_before: None }
    }

    /// What is wanted from now on, the most important first. Everything else is forgotten.
    pub(super) fn want(&mut self, keys: Vec<Key>) {
        let now = Instant::now();
        let mut entries = std::mem::take(&mut self.entries);
        for key in &keys {
            let entry = entries.remove(key).unwrap_or_else(|| Entry {
                answer: None,
                trouble: None,
                due: now,
                backoff: self.backoff.clone(),
                under_way: false,
            });
            self.entries.insert(key.clone(), entry);
        }
        // What is under way is waited for; its answer is dropped when it comes.
        self.entries.extend(entries.into_iter().filter(|(_, entry)| entry.under_way));
        self.order = keys;
        self.not_before = None;
    }

    /// The next thing to ask for.
    pub(super) fn due(&mut self) -> Option<Key> {
        let now = Instant::now();
        if self.not_before.is_some_and(|time| time > now) {
            return None;
        }
        let mut next: Option<Instant> = None;
        for key in &self.order {
            let Some(entry) = self.entries.get_mut(key).filter(|entry| !entry.under_way) else { continue };
            if entry.due <= now {
                entry.under_way = true;
                return Some(key.clone());
            }
            next = Some(next.map_or(entry.due, |next| next.min(entry.due)));
        }
        self.not_before = next;
        None
    }

    /// Asks again soon, if the last answer is at least this old.
    pub(super) fn hurry(&mut self, key: &Key, at_least: Duration) {
        let since_answer = self.shelf.refresh.saturating_sub(at_least);
        if let Some(entry) = self.entries.get_mut(key).filter(|entry| entry.answer.is_some())
            && entry.due.saturating_duration_since(Instant::now()) < since_answer
        {
            entry.due = Instant::now();
            self.not_before = None;
        }
    }

    /// An answer came. Whether anything is different now.
    pub(super) fn take(&mut self, key: &Key, answer: Result<Answer, ApiError>) -> bool {
        if !self.order.contains(key) {
            self.entries.remove(key);
            return false;
        }
        let Some(entry) = self.entries.get_mut(key) else { return false };
        entry.under_way = false;
        let rechecked = matches!(key, Key::Groups | Key::Kinds(_));
        let good_for = if rechecked { self.shelf.recheck } else { self.shelf.refresh };
        let (answer, trouble, wait) = match answer {
            Ok(answer) => {
                entry.backoff.succeeded();
                (Some(answer), None, entry.backoff.about(good_for))
            }
            Err(why) if why.denied() => {
                (None, Some(Trouble::Refused(why.to_string())), entry.backoff.about(self.shelf.recheck))
            }
            Err(why) if why.absent() => {
                (None, Some(Trouble::Absent), entry.backoff.about(self.shelf.recheck))
            }
            // What was known stays known while the server is away.
            Err(why) => {
                let wait = entry.backoff.failed(why.retry_after());
                (entry.answer.take(), Some(Trouble::Failed(why.to_string())), wait)
            }
        };
        entry.due = Instant::now() + wait;
        self.not_before = self.not_before.map(|time| time.min(entry.due));
        let changed = entry.trouble != trouble || !same(entry.answer.as_ref(), answer.as_ref());
        (entry.answer, entry.trouble) = (answer, trouble);
        changed
    }

    /// A kind by which owners are asked for: `None` while that is not known.
    pub(super) fn served(&self, api_version: &str, kind: &str) -> Option<Result<Served, Trouble>> {
        let entry = self.entries.get(&Key::Kinds(api_version.to_owned()))?;
        match (&entry.answer, &entry.trouble) {
            (Some(Answer::Kinds(kinds)), _) => {
                let found = kinds.iter().find(|found| found.served.kind == kind);
                Some(found.map(|found| found.served.clone()).ok_or(Trouble::Absent))
            }
            (_, Some(trouble @ (Trouble::Absent | Trouble::Refused(_)))) => Some(Err(trouble.clone())),
            _ => None,
        }
    }

    /// The kinds of a version, when they are known.
    pub(super) fn kinds(&self, api_version: &str) -> &[Kind] {
        match self.entries.get(&Key::Kinds(api_version.to_owned())).and_then(|entry| entry.answer.as_ref()) {
            Some(Answer::Kinds(kinds)) => kinds,
            _ => &[],
        }
    }

    /// The versions of a group; `None` while that is not known.
    pub(super) fn versions(&self, group: &str) -> Option<&[String]> {
        match self.entries.get(&Key::Groups)?.answer.as_ref()? {
            Answer::Groups(groups) => Some(groups.get(group).map_or(&[], Vec::as_slice)),
            _ => None,
        }
    }

    pub(super) fn objects(&self, key: &Key) -> &[Object] {
        match self.entries.get(key).and_then(|entry| entry.answer.as_ref()) {
            Some(Answer::Objects(objects)) => objects,
            _ => &[],
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Key, &[Object], Option<&Trouble>)> {
        self.order
            .iter()
            .filter_map(|key| Some((key, self.objects(key), self.entries.get(key)?.trouble.as_ref())))
    }

    /// Whether everything that is wanted was answered once.
    pub(super) fn complete(&self) -> bool {
        let answered = |entry: &Entry| {
            entry.answer.is_some() || matches!(entry.trouble, Some(Trouble::Absent | Trouble::Refused(_)))
        };
        self.order.iter().all(|key| self.entries.get(key).is_some_and(answered))
    }
}

fn same(a: Option<&Answer>, b: Option<&Answer>) -> bool {
    match (a, b) {
        (Some(Answer::Objects(a)), Some(Answer::Objects(b))) => a == b,
        (Some(Answer::Groups(a)), Some(Answer::Groups(b))) => a == b,
        (Some(Answer::Kinds(a)), Some(Answer::Kinds(b))) => a == b,
        (None, None) => true,
        _ => false,
    }
}

/// Asks for it. `served` is how an owner's kind is asked for.
pub(super) async fn fetch(api: &Api, key: &Key, served: Option<Served>) -> Result<Answer, ApiError> {
    let pods = || Served::new("v1", "Pod", "pods", true);
    let services = || Served::new("v1", "Service", "services", true);
    match key {
        Key::Groups => Ok(Answer::Groups(discovery::groups(&api.get(Verb::Get, "/apis").await?)?)),
        Key::Kinds(version) => {
            let body = api.get(Verb::Get, &discovery::path(version)).await?;
            Ok(Answer::Kinds(discovery::kinds(&body, version)?))
        }
        Key::Node(name) => {
            // Any version will do, so the server may answer from its cache.
            let served = Served::new("v1", "Node", "nodes", false);
            single(api, &served, None, name, "?resourceVersion=0").await
        }
        Key::Owner(reference) => {
            let served = served.ok_or_else(|| ApiError::Malformed("a kind that is not known".to_owned()))?;
            single(api, &served, Some(&reference.namespace), &reference.name, "").await
        }
        Key::Services(namespace) => list(api, &services(), namespace, "", MAX_SERVICES).await,
        Key::ApiService => single(api, &services(), Some("default"), "kubernetes", "").await,
        Key::ApiEndpoints => {
            let served = Served::new("discovery.k8s.io/v1", "EndpointSlice", "endpointslices", true);
            list(api, &served, "default", "kubernetes.io/service-name=kubernetes", NAME_SERVERS).await
        }
        Key::NameServers => list(api, &pods(), "kube-system", "k8s-app=kube-dns", NAME_SERVERS).await,
        Key::NameService => list(api, &services(), "kube-system", "k8s-app=kube-dns", NAME_SERVERS).await,
    }
}

async fn single(
    api: &Api,
    served: &Served,
    namespace: Option<&str>,
    name: &str,
    query: &str,
) -> Result<Answer, ApiError> {
    let path = format!("{}{query}", served.path(namespace, Some(name)));
    let object = decode::single(&api.get(Verb::Get, &path).await?, served)?;
    Ok(Answer::Objects(vec![object]))
}

/// One page of as many as are taken in.
async fn list(
    api: &Api,
    served: &Served,
    namespace: &str,
    labels: &str,
    most: usize,
) -> Result<Answer, ApiError> {
    let path = served.path(Some(namespace), None);
    let body = api.get(Verb::List, &format!("{path}?labelSelector={}&limit={most}", encoded(labels))).await?;
    Ok(Answer::Objects(decode::list(&body, served, &api.meter)?.objects))
}

//! Peers that were observed and are not known: members of jobs too large to be watched, or of jobs whose pods share no
//! label. Enters: addresses and names as they are observed; leaves: which to ask for, and when again. Must not know
//! pods.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use firedoor_core::object::Object;

use super::Lookup;
use super::api::{Api, ApiError, Served, Verb, encoded};
use super::decode;

/// Look-ups that wait.
const MAX_WAITING: usize = 256;
/// Answers that are remembered, "nobody" among them.
const MAX_REMEMBERED: usize = 4096;
/// How long "nobody" is believed: a pod that just started may not have told its address yet.
const NOBODY_FOR: Duration = Duration::from_secs(60);
/// Pods of one address that are taken in. Only host-network pods share one.
const MAX_SHARING: usize = 20;

/// One question.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Question {
    /// Who in this namespace has this address?
    Address(String, IpAddr),
    /// What is this pod like now?
    Name(String, String),
}

/// What was asked, and what waits to be asked.
pub(super) struct Peers {
    waiting: VecDeque<Question>,
    /// When each may be asked again.
    asked: BTreeMap<Question, Instant>,
    /// Peers that are known, by UID: their namespace, their name and when to look again.
    known: BTreeMap<String, (String, String, Instant)>,
    max_known: usize,
    refresh: Duration,
    pub(super) refused: u64,
}

impl Peers {
    pub(super) fn new(max_known: usize, refresh: Duration) -> Self {
        Self {
            waiting: VecDeque::new(),
            asked: BTreeMap::new(),
            known: BTreeMap::new(),
            max_known,
            refresh,
            refused: 0,
        }
    }

    /// A peer was observed. `namespaces` are those of jobs whose members are known in part only: only there can it be
    /// one.
    pub(super) fn observed(&mut self, lookup: &Lookup, namespaces: &BTreeSet<&str>) {
        let told = |namespace: &&&str| lookup.namespace.as_deref().is_none_or(|told| told == **namespace);
        for namespace in namespaces.iter().filter(told) {
            let namespace = (*namespace).to_owned();
            self.ask(match &lookup.pod {
                Some(pod) => Question::Name(namespace, pod.clone()),
                None => Question::Address(namespace, lookup.ip),
            });
        }
    }

    fn ask(&mut self, question: Question) {
        let now = Instant::now();
        if self.asked.get(&question).is_some_and(|again| *again > now) || self.waiting.contains(&question) {
            return;
        }
        if self.asked.len() >= MAX_REMEMBERED {
            self.asked.retain(|_, again| *again > now);
        }
        let full = self.waiting.len() >= MAX_WAITING || self.asked.len() >= MAX_REMEMBERED;
        if full || self.known.len() >= self.max_known {
            self.refused = self.refused.saturating_add(1);
            return;
        }
        self.waiting.push_back(question);
    }

    /// The next question.
    pub(super) fn due(&mut self) -> Option<Question> {
        let now = Instant::now();
        let question = self.waiting.pop_front().or_else(|| {
            let (.., (namespace, name, again)) =
                self.known.iter_mut().find(|(.., (.., again))| *again <= now)?;
            *again = now + self.refresh;
            Some(Question::Name(namespace.clone(), name.clone()))
        })?;
        self.asked.insert(question.clone(), now + NOBODY_FOR);
        Some(question)
    }

    /// Whether a question waits.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// These pods answer a question. Leaves the UIDs that the same question gave before and that are gone.
    pub(super) fn answered(&mut self, question: &Question, pods: &[Object]) -> Vec<String> {
        let mut gone: Vec<String> = match question {
            Question::Name(namespace, name) => {
                let before = self.known.iter().filter(|(_, (n, p, _))| n == namespace && p == name);
                before.map(|(uid, _)| uid.clone()).collect()
            }
            Question::Address(..) => Vec::new(),
        };
        for pod in pods {
            let (Some(namespace), Some(uid)) = (pod.namespace(), pod.uid()) else { continue };
            gone.retain(|before| before != uid);
            let again = Instant::now() + self.refresh;
            self.known.insert(uid.to_owned(), (namespace.to_owned(), pod.name().to_owned(), again));
        }
        for uid in &gone {
            self.known.remove(uid);
        }
        gone
    }

    /// Peers outside of these namespaces are nobody's any more.
    pub(super) fn keep(&mut self, namespaces: &BTreeSet<&str>) {
        self.known.retain(|_, (namespace, ..)| namespaces.contains(namespace.as_str()));
        self.waiting.retain(|question| {
            let (Question::Address(namespace, _) | Question::Name(namespace, _)) = question;
            namespaces.contains(namespace.as_str())
        });
    }
}

/// Asks. Nobody is an answer.
pub(super) async fn ask(api: &Api, question: &Question) -> Result<Vec<Object>, ApiError> {
    let served = Served::new("v1", "Pod", "pods", true);
    match question {
        Question::Address(namespace, ip) => {
            let path = served.path(Some(namespace), None);
            let fields = encoded(&format!("status.podIP={ip}"));
            let path = format!("{path}?fieldSelector={fields}&limit={MAX_SHARING}");
            let body = api.get(Verb::List, &path).await?;
            Ok(decode::list(&body, &served, &api.meter)?.objects)
        }
        Question::Name(namespace, name) => {
            match api.get(Verb::Get, &served.path(Some(namespace), Some(name))).await {
                Ok(body) => Ok(vec![decode::single(&body, &served)?]),
                Err(why) if why.absent() => Ok(Vec::new()),
                Err(why) => Err(why),
            }
        }
    }
}

/// So many a second, a few seconds' worth at once.
pub(super) struct Pace {
    each: Duration,
    /// When the next one would be due if there had been no pause.
    next: Instant,
    burst: Duration,
}

impl Pace {
    pub(super) fn new(per_second: u32) -> Self {
        let each = Duration::from_secs(1) / per_second.max(1);
        Self { each, next: Instant::now(), burst: Duration::from_secs(2) }
    }

    /// Whether one may be taken.
    pub(super) fn is_free(&self) -> bool {
        self.next <= Instant::now()
    }

    /// Takes one.
    pub(super) fn take(&mut self) {
        let now = Instant::now();
        self.next = self.next.max(now.checked_sub(self.burst).unwrap_or(now)) + self.each;
    }
}

//! One list and its watch. Enters: what to watch; leaves: the objects it holds, in pages, and then every change, for as
//! long as it is asked, whatever the server does. Must not know what the objects are for.
//!
//! A plain list, page by page, and a plain watch from the list's version on: every server speaks them. A version that
//! the server no longer knows (410) is answered by a new list, and who keeps the objects finds by it what was deleted
//! meanwhile.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use futures_util::Stream;
use kube::client::Body;

use firedoor_core::object::Object;

use super::api::{Api, ApiError, Served, Verb, encoded};
use super::backoff::Backoff;
use super::decode::{self, Told};
use super::lines::{Line, Lines};

/// A line longer than this is no object: etcd takes none of more than 1.5 MiB (its `--max-request-bytes`).
const MAX_LINE: usize = 8 << 20;
/// The smallest page that is asked for when pages turn out too large.
const SMALLEST_PAGE: u32 = 10;
/// Pages of one list that may be less than half full and yet go on. Kubernetes' own servers fill every page but the
/// last.
const MOST_SHORT: u32 = 100;
/// The longest list, in bytes of its answers: 100,000 objects of 5 KiB.
const MOST_BYTES: usize = 512 << 20;
/// A watch of less life than this is no reason to believe that the server is well.
const LIFE: Duration = Duration::from_secs(1);

/// What to watch.
#[derive(Clone, Debug)]
pub(super) struct Scope {
    pub(super) served: Served,
    pub(super) namespace: Option<String>,
    /// A field selector.
    pub(super) fields: Option<String>,
    /// A label selector.
    pub(super) labels: Option<String>,
    /// More objects than this are not taken in.
    pub(super) most: Option<usize>,
}

/// How patient to be.
#[derive(Clone, Debug)]
pub(super) struct Patience {
    /// Objects a page.
    pub(super) page: u32,
    /// How long a watch is asked to last.
    pub(super) watch: Duration,
    /// A watch on which nothing came for this long is taken for dead, and answered by a new list. Bookmarks come about
    /// every minute.
    pub(super) idle: Duration,
    /// When to ask again for what RBAC refused or the server does not serve.
    pub(super) recheck: Duration,
    /// A list of more objects than this goes on for ever.
    pub(super) max_listed: usize,
}

/// What is told about the objects.
#[derive(Debug)]
pub(super) enum Event {
    /// Part of a list.
    Page {
        /// Whether a new list begins with this page.
        first: bool,
        /// Whether the list ends with it.
        last: bool,
        objects: Vec<Object>,
    },
    /// It is there, in this form.
    Put(Object),
    /// It is gone, or no longer selected; this was its last form.
    Removed(Object),
    /// The server answers again.
    Up,
    /// There are more objects than are taken in. Nothing follows.
    TooMany,
    /// The server does not answer.
    Down(ApiError),
    /// RBAC refuses it, or the server has no such kind.
    Refused(ApiError),
}

/// How far a list has come.
#[derive(Default)]
struct Progress {
    /// What to ask for the next page with; `None`: the first is to come.
    page: Option<String>,
    /// Objects.
    listed: usize,
    /// Bytes of answers.
    bytes: usize,
    /// Pages that were less than half full.
    short: u32,
}

impl Progress {
    /// Why this is no list that ends.
    fn endless(&self, next: Option<&str>, most: usize) -> Option<String> {
        let next = next?;
        if self.page.as_deref() == Some(next) {
            return Some("a list that goes on with the page it was".to_owned());
        }
        if self.short > MOST_SHORT {
            return Some("a list that goes on without filling its pages".to_owned());
        }
        if self.listed > most {
            return Some(format!("a list that goes on beyond {most} objects"));
        }
        (self.bytes > MOST_BYTES).then(|| format!("a list that goes on beyond {MOST_BYTES} bytes"))
    }
}

enum State {
    List(Progress),
    Open { version: String },
    Follow { version: String, body: Body, lines: Lines, since: Instant },
    Over,
}

/// A list and its watch.
struct Watch {
    api: Api,
    scope: Scope,
    patience: Patience,
    backoff: Backoff,
    state: State,
    /// Objects a page: fewer after an answer that was too large.
    page: u32,
    /// How long to wait before the next request.
    wait: Option<Duration>,
    /// Whether the last request failed.
    down: bool,
}

/// All that happens, from the list on.
pub(super) fn watch(
    api: Api,
    scope: Scope,
    patience: Patience,
    backoff: Backoff,
) -> impl Stream<Item = Event> + Send {
    let state = State::List(Progress::default());
    let watch =
        Watch { page: patience.page.max(1), api, scope, patience, backoff, state, wait: None, down: false };
    futures_util::stream::unfold(watch, |mut watch| async {
        let event = watch.next().await?;
        Some((event, watch))
    })
}

impl Watch {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(wait) = self.wait.take() {
                tokio::time::sleep(wait).await;
            }
            match std::mem::replace(&mut self.state, State::Over) {
                State::List(progress) => return Some(self.list(progress).await),
                State::Open { version } => {
                    if let Some(event) = self.open(version).await {
                        return Some(event);
                    }
                }
                State::Follow { version, body, lines, since } => {
                    if let Some(event) = self.follow(version, body, lines, since).await {
                        return Some(event);
                    }
                }
                State::Over => return None,
            }
        }
    }

    async fn list(&mut self, mut progress: Progress) -> Event {
        let most = self.scope.most;
        let room = most.map(|most| most.saturating_add(1).saturating_sub(progress.listed).max(1));
        let limit = room.and_then(|room| u32::try_from(room).ok()).map_or(self.page, |r| r.min(self.page));
        let mut path = self.path();
        let _ = write!(path, "limit={limit}");
        if let Some(page) = &progress.page {
            let _ = write!(path, "&continue={}", encoded(page));
        }
        let answer = self.api.get(Verb::List, &path).await;
        let bytes = answer.as_ref().map_or(0, Vec::len);
        let answer = answer.and_then(|body| decode::list(&body, &self.scope.served, &self.api.meter));
        let list = match answer {
            Ok(list) => list,
            Err(why) => return self.list_failed(why, progress),
        };
        progress.listed = progress.listed.saturating_add(list.found);
        progress.bytes = progress.bytes.saturating_add(bytes);
        if list.found < limit as usize / 2 {
            progress.short += 1;
        }
        if let Some(why) = progress.endless(list.next.as_deref(), self.patience.max_listed) {
            return self.list_failed(ApiError::Malformed(why), Progress::default());
        }
        if most.is_some_and(|most| progress.listed > most) {
            return Event::TooMany;
        }
        self.down = false;
        let first = progress.page.is_none();
        let last = list.next.is_none();
        self.state = match list.next {
            Some(next) => State::List(Progress { page: Some(next), ..progress }),
            None => State::Open { version: list.version },
        };
        Event::Page { first, last, objects: list.objects }
    }

    fn list_failed(&mut self, why: ApiError, progress: Progress) -> Event {
        self.state = State::List(if why.gone() { Progress::default() } else { progress });
        if matches!(why, ApiError::TooLarge(_)) {
            self.page = (self.page / 2).max(SMALLEST_PAGE);
        }
        self.failed(why)
    }

    /// Something went wrong: when to try again, and what to say.
    fn failed(&mut self, why: ApiError) -> Event {
        self.down = true;
        if why.denied() || why.absent() {
            self.wait = Some(self.backoff.about(self.patience.recheck));
            return Event::Refused(why);
        }
        self.wait = Some(self.backoff.failed(why.retry_after()));
        Event::Down(why)
    }

    async fn open(&mut self, version: String) -> Option<Event> {
        let seconds = self.backoff.about(self.patience.watch).as_secs().max(1);
        let mut path = self.path();
        let version_told = encoded(&version);
        let _ = write!(
            path,
            "watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={version_told}"
        );
        match self.api.watch(&path).await {
            Ok(body) => {
                let (lines, since) = (Lines::default(), Instant::now());
                self.state = State::Follow { version, body, lines, since };
                std::mem::take(&mut self.down).then_some(Event::Up)
            }
            Err(why) if why.gone() => {
                self.state = State::List(Progress::default());
                self.wait = Some(self.backoff.failed(None));
                None
            }
            Err(why) => {
                self.state = State::Open { version };
                Some(self.failed(why))
            }
        }
    }

    async fn follow(
        &mut self,
        mut version: String,
        mut body: Body,
        mut lines: Lines,
        since: Instant,
    ) -> Option<Event> {
        loop {
            let told = match lines.next(MAX_LINE) {
                Some(Line::Whole(line)) => decode::line(line, &self.scope.served),
                Some(Line::TooLong) => Told::Malformed,
                None => match tokio::time::timeout(self.patience.idle, self.api.piece(&mut body)).await {
                    Ok(Ok(Some(piece))) => {
                        lines.push(&piece);
                        continue;
                    }
                    Ok(Ok(None)) => return self.ended(version, since),
                    Ok(Err(why)) => {
                        self.lasted(since);
                        self.state = State::Open { version };
                        return Some(self.failed(why));
                    }
                    Err(_) => {
                        // Who holds back what a watch tells does so with the next one, too, bookmarks included: only a
                        // list finds what changed.
                        self.state = State::List(Progress::default());
                        return None;
                    }
                },
            };
            if let Some(newer) = told.version() {
                newer.clone_into(&mut version);
            }
            let event = match told {
                Told::Put(object, _) => Event::Put(object),
                Told::Removed(object, _) => Event::Removed(object),
                Told::Bookmark(_) => continue,
                Told::Malformed => {
                    self.api.meter.malformed();
                    continue;
                }
                Told::Error(why) if why.gone() => {
                    self.lasted(since);
                    self.state = State::List(Progress::default());
                    self.wait = Some(self.backoff.failed(None));
                    return None;
                }
                Told::Error(why) => {
                    self.lasted(since);
                    self.state = State::Open { version };
                    return Some(self.failed(why));
                }
            };
            self.state = State::Follow { version, body, lines, since };
            return Some(event);
        }
    }

    /// Servers end watches after a while. One that ends at once, again and again, is not asked without end, whatever it
    /// tells before: the first pause is short, and they grow.
    fn ended(&mut self, version: String, since: Instant) -> Option<Event> {
        self.state = State::Open { version };
        if !self.lasted(since) {
            self.wait = Some(self.backoff.failed(None));
        }
        None
    }

    /// Whether the watch had some life: only then does waiting begin anew.
    fn lasted(&mut self, since: Instant) -> bool {
        let lasted = since.elapsed() >= LIFE;
        if lasted {
            self.backoff.succeeded();
        }
        lasted
    }

    /// The path with what selects, ready for more parameters.
    fn path(&self) -> String {
        let mut path = self.scope.served.path(self.scope.namespace.as_deref(), None);
        path.push('?');
        for (parameter, selector) in
            [("fieldSelector", &self.scope.fields), ("labelSelector", &self.scope.labels)]
        {
            if let Some(selector) = selector {
                let _ = write!(path, "{parameter}={}&", encoded(selector));
            }
        }
        path
    }
}

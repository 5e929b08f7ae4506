//! A watch's answer: one JSON event a line, for as long as it lasts.
//!
//! Imitates the watch cache: events after the version asked for, bookmarks only for those who ask, an `ERROR` event
//! with a `Status` of 410 when the version is too old, and an end after `timeoutSeconds`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use hyper::body::Frame;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::select::Selector;
use super::status::expired_version;
use super::store::Kind;
use super::{Shared, State};

/// A watch under way.
pub(crate) struct Watch {
    pub(crate) shared: Arc<Shared>,
    /// Its place in the log of requests.
    pub(crate) entry: usize,
    pub(crate) kind: Kind,
    pub(crate) namespace: Option<String>,
    pub(crate) selector: Selector,
    /// Everything up to here was told.
    pub(crate) version: u64,
    /// How much of the lines that were put in by hand was told.
    pub(crate) raw: usize,
    /// Which generation of watches it is of.
    pub(crate) generation: u64,
    pub(crate) bookmarks: bool,
    pub(crate) until: Instant,
    pub(crate) bookmark: Instant,
    /// Whether it ends as soon as it has told something.
    pub(crate) brief: bool,
    pub(crate) over: bool,
    /// What there is already, for a watch that names no version.
    pub(crate) initial: Vec<Arc<Value>>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.log[self.entry].open = false;
        drop(state);
        self.shared.touch();
    }
}

impl Watch {
    /// Its lines.
    pub(crate) fn body(self) -> impl Stream<Item = Result<Frame<Bytes>, std::io::Error>> + Send {
        futures_util::stream::unfold(self, |mut watch| async {
            let lines = watch.next().await?;
            Some((Ok(Frame::data(lines)), watch))
        })
    }

    async fn next(&mut self) -> Option<Bytes> {
        let mut changed = self.shared.changed.subscribe();
        loop {
            if self.over {
                return None;
            }
            let delay = self.shared.lock().delay;
            let lines = self.told();
            if !lines.is_empty() {
                tokio::time::sleep(delay).await;
                return Some(Bytes::from(lines));
            }
            if self.over {
                continue;
            }
            let wake = if self.bookmarks { self.until.min(self.bookmark) } else { self.until };
            tokio::select! {
                _ = changed.changed() => {}
                () = tokio::time::sleep_until(wake) => {}
            }
        }
    }

    /// What there is to tell now.
    fn told(&mut self) -> String {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        let mut lines = String::new();
        if state.frozen {
            return lines;
        }
        if self.version < state.store.compacted {
            let status = expired_version(self.version, state.store.compacted);
            self.over = true;
            return line("ERROR", &status);
        }
        let mut told = 0;
        for object in std::mem::take(&mut self.initial) {
            lines.push_str(&line("ADDED", &object));
            told += 1;
        }
        let from = state.store.log.partition_point(|change| change.version <= self.version);
        for change in &state.store.log[from..] {
            let (group, plural, namespace, _) = &change.key;
            let here = self.namespace.as_ref().is_none_or(|of| of == namespace);
            if *group == self.kind.group
                && *plural == self.kind.plural
                && here
                && let Some((what, object)) = change.told(&self.selector)
            {
                lines.push_str(&line(what, &object));
                told += 1;
            }
        }
        self.version = state.store.version;
        for (plural, raw) in state.raw.iter().skip(self.raw) {
            if *plural == self.kind.plural {
                lines.push_str(raw);
                lines.push('\n');
            }
        }
        self.raw = state.raw.len();
        self.ends(&state, &mut lines);
        self.over |= self.brief && !lines.is_empty();
        let entry = &mut state.log[self.entry];
        entry.objects += told;
        entry.bytes += lines.len() as u64;
        lines
    }

    fn ends(&mut self, state: &State, lines: &mut String) {
        let now = Instant::now();
        if now >= self.until || self.generation < state.generation {
            self.over = true;
        }
        if self.bookmarks && now >= self.bookmark {
            self.bookmark = now + state.bookmark_every;
            let version = self.version.to_string();
            let object = json!({"kind": self.kind.kind, "apiVersion": self.kind.api_version(),
                "metadata": {"resourceVersion": version, "creationTimestamp": null}});
            lines.push_str(&line("BOOKMARK", &object));
        }
    }
}

fn line(what: &str, object: &Value) -> String {
    format!("{}\n", json!({"type": what, "object": object}))
}

/// Real servers end watches that ask for nothing after half an hour to an hour.
pub(crate) const LONGEST: Duration = Duration::from_secs(1800);

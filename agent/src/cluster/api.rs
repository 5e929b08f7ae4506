//! Requests to the API server, counted and bounded. Enters: what to get, list or watch; leaves: bytes, or why not.
//! Must not know what the answers mean to jobs.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde::Deserialize;

use super::Requests;
use super::access::{Access, Clients};

/// An error's body is not read further than this.
const MAX_STATUS: usize = 64 << 10;
/// The server's own message, as far as it is passed on.
const MAX_MESSAGE: usize = 300;

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApiError {
    /// The server said so.
    #[error("{code} {reason}{}{message}", if message.is_empty() { "" } else { ": " })]
    Status {
        code: u16,
        reason: String,
        message: String,
        /// How long the server asks to be left alone.
        retry_after: Option<Duration>,
    },
    /// No answer, or the rest of one, in this time.
    #[error("no answer within {} s", .0.as_secs())]
    Timeout(Duration),
    /// No way to the server, or it broke.
    #[error("{0}")]
    Transport(String),
    /// More than is taken.
    #[error("the answer is longer than {0} bytes")]
    TooLarge(usize),
    /// Not what the Kubernetes API says.
    #[error("the answer is not the API's: {0}")]
    Malformed(String),
}

impl ApiError {
    fn code(&self) -> Option<u16> {
        match self {
            Self::Status { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// The version or page asked for is too old: everything has to be listed again.
    pub(super) fn gone(&self) -> bool {
        self.code() == Some(410)
    }

    /// RBAC says no.
    pub(super) fn denied(&self) -> bool {
        self.code() == Some(403)
    }

    /// There is no such object, or no such kind.
    pub(super) fn absent(&self) -> bool {
        self.code() == Some(404)
    }

    /// How long the server asks to be left alone.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

/// `metav1.Status`, as far as it is read.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Status {
    code: Option<u16>,
    reason: Option<String>,
    message: Option<String>,
    details: Option<Details>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Details {
    retry_after_seconds: Option<u64>,
}

/// The error in a `metav1.Status` object: an HTTP error's body, or what a watch ends with.
pub(super) fn status(body: &[u8], code: u16, retry_after: Option<Duration>) -> ApiError {
    let status: Status = serde_json::from_slice(body).unwrap_or_default();
    let told = status.details.and_then(|details| details.retry_after_seconds).map(Duration::from_secs);
    let message = status.message.unwrap_or_default();
    let code = status.code.filter(|told| *told >= 400).unwrap_or(code);
    let usual = || StatusCode::from_u16(code).ok()?.canonical_reason();
    let reason = status.reason.filter(|reason| !reason.is_empty());
    let reason = reason.unwrap_or_else(|| usual().unwrap_or_default().to_owned());
    ApiError::Status {
        code,
        reason: crate::harmless::harmless(&reason).chars().take(MAX_MESSAGE).collect(),
        message: crate::harmless::harmless(&message).chars().take(MAX_MESSAGE).collect(),
        retry_after: retry_after.or(told),
    }
}

/// A kind as the server serves it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Served {
    /// `v1`, or `group/version`.
    pub(super) api_version: String,
    pub(super) kind: String,
    /// The name in paths.
    pub(super) plural: String,
    pub(super) namespaced: bool,
}

impl Served {
    pub(super) fn new(api_version: &str, kind: &str, plural: &str, namespaced: bool) -> Self {
        let owned = str::to_owned;
        Self { api_version: owned(api_version), kind: owned(kind), plural: owned(plural), namespaced }
    }

    /// The path of one object, or of all of a namespace, or of all.
    pub(super) fn path(&self, namespace: Option<&str>, name: Option<&str>) -> String {
        let root = if self.api_version.contains('/') { "/apis" } else { "/api" };
        let mut path = format!("{root}/{}", self.api_version);
        if let Some(namespace) = namespace.filter(|_| self.namespaced) {
            let _ = write!(path, "/namespaces/{}", encoded(namespace));
        }
        path.push('/');
        path.push_str(&self.plural);
        if let Some(name) = name {
            let _ = write!(path, "/{}", encoded(name));
        }
        path
    }
}

/// Text as it may stand in a path or a query.
pub(super) fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// Counts what is asked and what comes.
#[derive(Default, Debug)]
pub(super) struct Meter {
    gets: AtomicU64,
    lists: AtomicU64,
    watches: AtomicU64,
    failed: AtomicU64,
    bytes: AtomicU64,
    malformed: AtomicU64,
}

impl Meter {
    pub(super) fn malformed(&self) {
        self.malformed.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn received(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Requests {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Requests {
            gets: of(&self.gets),
            lists: of(&self.lists),
            watches: of(&self.watches),
            failed: of(&self.failed),
            bytes: of(&self.bytes),
            malformed: of(&self.malformed),
            ..Requests::default()
        }
    }
}

/// What a request is for, to be counted by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verb {
    Get,
    List,
    Watch,
}

/// The API server.
#[derive(Clone)]
pub(super) struct Api {
    pub(super) access: Access,
    pub(super) meter: Arc<Meter>,
    /// How long one answer may take.
    pub(super) timeout: Duration,
    /// The longest answer that is taken, in bytes.
    pub(super) max_answer: usize,
}

impl Api {
    /// The whole answer.
    pub(super) async fn get(&self, verb: Verb, path: &str) -> Result<Vec<u8>, ApiError> {
        let answer = async {
            let mut body = self.open(verb, path).await?;
            self.collect(&mut body, self.max_answer).await
        };
        let answer = tokio::time::timeout(self.timeout, answer).await;
        self.counted(answer.unwrap_or(Err(ApiError::Timeout(self.timeout))))
    }

    /// The beginning of an answer that goes on.
    pub(super) async fn watch(&self, path: &str) -> Result<Body, ApiError> {
        let answer = tokio::time::timeout(self.timeout, self.open(Verb::Watch, path)).await;
        self.counted(answer.unwrap_or(Err(ApiError::Timeout(self.timeout))))
    }

    fn counted<T>(&self, answer: Result<T, ApiError>) -> Result<T, ApiError> {
        if answer.is_err() {
            self.meter.failed.fetch_add(1, Ordering::Relaxed);
        }
        answer
    }

    async fn open(&self, verb: Verb, path: &str) -> Result<Body, ApiError> {
        let clients = self.access.clients().await;
        let first = self.once(verb, path, &clients).await;
        if matches!(&first, Err(ApiError::Status { code: 401, .. })) && self.access.renew(&clients).await {
            return self.once(verb, path, &self.access.clients().await).await;
        }
        first
    }

    async fn once(&self, verb: Verb, path: &str, clients: &Clients) -> Result<Body, ApiError> {
        let counter = match verb {
            Verb::Get => &self.meter.gets,
            Verb::List => &self.meter.lists,
            Verb::Watch => &self.meter.watches,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        let request = Request::builder()
            .method(Method::GET)
            .uri(path)
            .header(header::ACCEPT, "application/json")
            .header(header::ACCEPT_ENCODING, "identity")
            .body(Body::empty())
            .map_err(|why| ApiError::Malformed(why.to_string()))?;
        let client = match verb {
            Verb::Get | Verb::List => &clients.answers,
            Verb::Watch => &clients.watches,
        };
        let response = client.send(request).await.map_err(|why| transport(&why))?;
        if response.status() == StatusCode::OK {
            return Ok(response.into_body());
        }
        let code = response.status().as_u16();
        let retry_after = response.headers().get(header::RETRY_AFTER);
        let retry_after = retry_after.and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let mut body = response.into_body();
        let body = self.collect(&mut body, MAX_STATUS).await.unwrap_or_default();
        Err(status(&body, code, retry_after.map(Duration::from_secs)))
    }

    async fn collect(&self, body: &mut Body, most: usize) -> Result<Vec<u8>, ApiError> {
        let mut whole = Vec::new();
        while let Some(piece) = self.piece(body).await? {
            if whole.len().saturating_add(piece.len()) > most {
                return Err(ApiError::TooLarge(most));
            }
            whole.extend_from_slice(&piece);
        }
        Ok(whole)
    }

    /// The next bytes of an answer; `None`: it is complete.
    pub(super) async fn piece(&self, body: &mut Body) -> Result<Option<Bytes>, ApiError> {
        loop {
            let Some(frame) = body.frame().await else { return Ok(None) };
            let frame = frame.map_err(|why| ApiError::Transport(format!("the answer broke off: {why}")))?;
            if let Ok(data) = frame.into_data() {
                self.meter.received(data.len());
                return Ok(Some(data));
            }
        }
    }
}

/// The innermost reason: the outer ones only say that a request failed.
fn transport(why: &kube::Error) -> ApiError {
    let mut reason: &dyn std::error::Error = why;
    while let Some(inner) = reason.source() {
        reason = inner;
    }
    ApiError::Transport(reason.to_string())
}

#[cfg(test)]
mod tests {
    use super::status;

    #[test]
    fn what_a_server_refuses_is_said_in_full_and_harmless() {
        assert_eq!(status(b"oops", 500, None).to_string(), "500 Internal Server Error");
        let forbidden =
            br#"{"kind":"Status","code":403,"reason":"Forbidden","message":"pods is \u001b[31mforbidden"}"#;
        let said = status(forbidden, 403, None).to_string();
        assert!(said.starts_with("403 Forbidden: pods is ") && !said.contains('\u{1b}'), "{said:?}");
    }
}

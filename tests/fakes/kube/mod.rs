//! A Kubernetes API server for tests, over real sockets, true to the real one where clients depend on it.
//!
//! What is imitated, and where:
//! - `store`: one version counter, a log of changes, compaction (etcd).
//! - `answer`: lists with `limit` and `continue`, of which a compaction lets go (410 `Expired`); `remainingItemCount` only
//!   where nothing is selected; `limit` is not obeyed at version 0 (watch cache); streaming lists are refused.
//! - `watching`: events after a version, bookmarks for those who ask, an `ERROR` event of 410, `timeoutSeconds`.
//! - `select`: label and field selectors; a field that the real server does not know for a kind is a 400.
//! - `status`: `metav1.Status` in its real form, 401 to 504, and plain text for unknown paths.
//! - `discovery`, `write`, `proxy`: `/apis`; create, merge patch, update with conflicts, status; ports of pods.
//!
//! What a test can do to it: deny by rule, demand tokens, slow it down, freeze it, throttle it, cut its connections,
//! take it away and bring it back, forget its past, put lines into watches. It logs every request with what it sent.

// Every test target takes this in and uses a part of it.
#![allow(dead_code)]

mod answer;
mod discovery;
mod proxy;
mod select;
mod serve;
mod status;
mod store;
mod tls;
mod watching;
mod write;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use http::{HeaderMap, header};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;

pub(crate) use store::Kind;
use store::{Store, builtin};

/// One request, and what became of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entry {
    /// `get`, `list`, `watch`, `create`, `patch`, `update`, `delete`, `discovery` or `proxy`.
    pub(crate) verb: &'static str,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: String,
    /// The resource's name in paths.
    pub(crate) resource: String,
    pub(crate) namespace: Option<String>,
    pub(crate) token: Option<String>,
    pub(crate) status: u16,
    /// Bytes of the answer's body up to now.
    pub(crate) bytes: u64,
    /// Objects sent up to now.
    pub(crate) objects: u64,
    /// Whether it is a watch that goes on.
    pub(crate) open: bool,
}

impl Entry {
    fn new(method: &str, path: &str, query: &str, headers: &HeaderMap) -> Self {
        let token = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = token.and_then(|value| value.strip_prefix("Bearer ")).map(str::to_owned);
        let own = str::to_owned;
        Self { method: own(method), path: own(path), query: own(query), token, ..Self::default() }
    }
}

/// What comes after the first page of a list of several.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pages {
    /// The rest of it.
    Honest,
    /// An empty page that goes on with itself, for ever.
    Repeated,
    /// Empty pages, each with a token of its own, for ever.
    Empty,
    /// Pages of objects that nobody put there, for ever.
    New,
}

struct Denial {
    verbs: Vec<String>,
    group: String,
    plural: String,
    namespace: Option<String>,
}

/// Everything the server knows, and what was done to it.
pub(crate) struct State {
    store: Store,
    log: Vec<Entry>,
    denials: Vec<Denial>,
    /// The tokens that are accepted; `None`: everybody is.
    tokens: Option<Vec<String>>,
    delay: Duration,
    /// Watches are silent.
    frozen: bool,
    /// So many requests get 429, with so many seconds to wait.
    throttle: (u32, u64),
    pages: Pages,
    /// Watches end as soon as they have told something.
    brief_watches: bool,
    /// Too old a version is an HTTP 410, and not an event.
    gone_as_status: bool,
    bookmark_every: Duration,
    /// Lines that were put into watches, by resource.
    raw: Vec<(String, String)>,
    /// Watches of older generations end.
    generation: u64,
    routes: BTreeMap<(String, String, u16), SocketAddr>,
    connections: Vec<AbortHandle>,
}

impl State {
    fn admits(&self, headers: &HeaderMap) -> bool {
        let Some(tokens) = &self.tokens else { return true };
        let token = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        token
            .and_then(|value| value.strip_prefix("Bearer "))
            .is_some_and(|token| tokens.iter().any(|t| t == token.trim()))
    }

    fn throttled(&mut self) -> Option<u64> {
        let (left, after) = self.throttle;
        self.throttle.0 = left.checked_sub(1)?;
        Some(after)
    }

    fn denies(&self, verb: &str, kind: &Kind, namespace: Option<&str>) -> bool {
        self.denials.iter().any(|denial| {
            denial.verbs.iter().any(|v| v == verb || v == "*")
                && denial.group == kind.group
                && denial.plural == kind.plural
                && (denial.namespace.is_none() || denial.namespace.as_deref() == namespace)
        })
    }
}

/// What the server's tasks share.
pub(crate) struct Shared {
    state: Mutex<State>,
    changed: watch::Sender<u64>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn touch(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    fn log(&self, entry: Entry) -> usize {
        let mut state = self.lock();
        state.log.push(entry);
        state.log.len() - 1
    }
}

/// The server, as a test holds it.
pub(crate) struct FakeKube {
    shared: Arc<Shared>,
    address: SocketAddr,
    listener: Mutex<Option<AbortHandle>>,
    tls: Option<(TlsAcceptor, String)>,
}

impl FakeKube {
    /// A server with the kinds that every cluster has and no objects, on a port of its own.
    pub(crate) async fn start() -> Self {
        Self::start_with(None).await
    }

    /// The same over TLS, with a certificate of its own authority.
    pub(crate) async fn start_tls() -> Self {
        Self::start_with(Some(tls::acceptor())).await
    }

    async fn start_with(tls: Option<(TlsAcceptor, String)>) -> Self {
        let state = State {
            store: Store::new(builtin()),
            log: Vec::new(),
            denials: Vec::new(),
            tokens: None,
            delay: Duration::ZERO,
            frozen: false,
            throttle: (0, 0),
            pages: Pages::Honest,
            brief_watches: false,
            gone_as_status: false,
            bookmark_every: Duration::from_secs(60),
            raw: Vec::new(),
            generation: 0,
            routes: BTreeMap::new(),
            connections: Vec::new(),
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: watch::Sender::new(0) });
        let any = "127.0.0.1:0".parse().expect("an address");
        let acceptor = tls.as_ref().map(|(acceptor, _)| acceptor.clone());
        let (address, handle) = serve::listen(Arc::clone(&shared), any, acceptor).await;
        Self { shared, address, listener: Mutex::new(Some(handle)), tls }
    }

    /// `http://127.0.0.1:PORT`, or `https`.
    pub(crate) fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// The certificate of the server's authority, in PEM, when it speaks TLS.
    pub(crate) fn authority(&self) -> Option<&str> {
        self.tls.as_ref().map(|(_, pem)| pem.as_str())
    }

    /// Writes a kubeconfig for it into a directory and leaves its path. Its user has the token that is in the
    /// directory's file `token`, if there is one.
    pub(crate) fn kubeconfig(&self, directory: &Path) -> PathBuf {
        let token = directory.join("token");
        let user = if token.exists() { json!({"tokenFile": token}) } else { json!({}) };
        self.kubeconfig_of(directory, &user)
    }

    /// The same with this user.
    pub(crate) fn kubeconfig_of(&self, directory: &Path, user: &Value) -> PathBuf {
        let mut cluster = json!({"server": self.url()});
        if let Some(pem) = self.authority() {
            let file = directory.join("ca.pem");
            std::fs::write(&file, pem).expect("a directory that can be written to");
            cluster["certificate-authority"] = json!(file);
        }
        let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "fake",
            "clusters": [{"name": "fake", "cluster": cluster}],
            "users": [{"name": "fake", "user": user}],
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}]});
        let file = directory.join("kubeconfig");
        std::fs::write(&file, config.to_string()).expect("a directory that can be written to");
        file
    }

    /// A client for it that nobody has to authenticate.
    pub(crate) fn client(&self) -> kube::Client {
        let mut config = kube::Config::new(self.url().parse().expect("an address"));
        config.default_retry = false;
        kube::Client::try_from(config).expect("a client")
    }

    /// Serves another kind, as a CustomResourceDefinition makes it.
    pub(crate) fn serve(&self, api_version: &str, kind: &str, plural: &str, namespaced: bool) {
        self.shared.lock().store.kinds.push(Kind::new(api_version, kind, plural, namespaced));
    }

    /// Serves the policies of Cilium and of the network policy working group.
    pub(crate) fn serve_all_policies(&self) {
        self.serve("cilium.io/v2", "CiliumNetworkPolicy", "ciliumnetworkpolicies", true);
        self.serve(
            "cilium.io/v2",
            "CiliumClusterwideNetworkPolicy",
            "ciliumclusterwidenetworkpolicies",
            false,
        );
        self.serve("policy.networking.k8s.io/v1alpha1", "AdminNetworkPolicy", "adminnetworkpolicies", false);
        let (kind, plural) = ("BaselineAdminNetworkPolicy", "baselineadminnetworkpolicies");
        self.serve("policy.networking.k8s.io/v1alpha1", kind, plural, false);
    }

    /// Creates or replaces an object, which says its own `apiVersion` and `kind`. Leaves it as it is stored.
    pub(crate) fn put(&self, object: Value) -> Value {
        let mut state = self.shared.lock();
        let kind = state.store.kind_of(&object).expect("a kind that is served");
        let made = Value::clone(&state.store.put(&kind, object));
        drop(state);
        self.shared.touch();
        made
    }

    /// Creates or replaces several at once.
    pub(crate) fn put_all(&self, objects: impl IntoIterator<Item = Value>) {
        let mut state = self.shared.lock();
        for object in objects {
            let kind = state.store.kind_of(&object).expect("a kind that is served");
            state.store.put(&kind, object);
        }
        drop(state);
        self.shared.touch();
    }

    /// Deletes an object; `plural` is its kind's name in paths. Whether there was one.
    pub(crate) fn delete(&self, plural: &str, namespace: &str, name: &str) -> bool {
        let mut state = self.shared.lock();
        let key = state
            .store
            .objects
            .keys()
            .find(|key| key.1 == plural && key.2 == namespace && key.3 == name)
            .cloned();
        let deleted = key.and_then(|key| state.store.delete(&key)).is_some();
        drop(state);
        self.shared.touch();
        deleted
    }

    /// An object as it is.
    pub(crate) fn object(&self, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let state = self.shared.lock();
        let found = state
            .store
            .objects
            .iter()
            .find(|(key, _)| key.1 == plural && key.2 == namespace && key.3 == name);
        found.map(|(_, object)| Value::clone(object))
    }

    /// All objects of a kind.
    pub(crate) fn objects(&self, plural: &str) -> Vec<Value> {
        let state = self.shared.lock();
        state
            .store
            .objects
            .iter()
            .filter(|(key, _)| key.1 == plural)
            .map(|(_, object)| Value::clone(object))
            .collect()
    }

    /// Forgets the past: older versions and begun lists are gone.
    pub(crate) fn compact(&self) {
        self.shared.lock().store.compact();
    }

    /// RBAC refuses these verbs (`*`: all), in one namespace or everywhere.
    pub(crate) fn deny(&self, verbs: &[&str], group: &str, plural: &str, namespace: Option<&str>) {
        let verbs = verbs.iter().map(|verb| (*verb).to_owned()).collect();
        let (group, plural) = (group.to_owned(), plural.to_owned());
        let denial = Denial { verbs, group, plural, namespace: namespace.map(str::to_owned) };
        self.shared.lock().denials.push(denial);
    }

    /// RBAC refuses nothing any more.
    pub(crate) fn allow_all(&self) {
        self.shared.lock().denials.clear();
    }

    /// Only these tokens are accepted from now on, on open watches' next requests too.
    pub(crate) fn accept_only(&self, tokens: &[&str]) {
        self.shared.lock().tokens = Some(tokens.iter().map(|token| (*token).to_owned()).collect());
    }

    /// Every answer, and every piece of a watch's, takes this long.
    pub(crate) fn slow_down(&self, delay: Duration) {
        self.shared.lock().delay = delay;
    }

    /// Watches fall silent and stay open, as through a firewall that forgot them; or they speak again.
    pub(crate) fn freeze(&self, frozen: bool) {
        self.shared.lock().frozen = frozen;
        self.shared.touch();
    }

    /// The next requests get 429 with `Retry-After`, in seconds.
    pub(crate) fn throttle(&self, requests: u32, retry_after: u64) {
        self.shared.lock().throttle = (requests, retry_after);
    }

    /// Lists of several pages never end, in this way.
    pub(crate) fn turn_pages(&self, pages: Pages) {
        self.shared.lock().pages = pages;
    }

    /// Every watch tells a bookmark, or what happened, and ends.
    pub(crate) fn cut_watches_short(&self, on: bool) {
        self.shared.lock().brief_watches = on;
        self.end_watches();
    }

    /// Too old a version is told by the HTTP status, and not by an event.
    pub(crate) fn tell_gone_by_status(&self) {
        self.shared.lock().gone_as_status = true;
    }

    /// Bookmarks come this often.
    pub(crate) fn bookmark_every(&self, every: Duration) {
        self.shared.lock().bookmark_every = every;
    }

    /// Puts a line into all open watches of a resource.
    pub(crate) fn inject(&self, plural: &str, line: &str) {
        self.shared.lock().raw.push((plural.to_owned(), line.to_owned()));
        self.shared.touch();
    }

    /// Ends all watches, as the server does when their time is over.
    pub(crate) fn end_watches(&self) {
        self.shared.lock().generation += 1;
        self.shared.touch();
    }

    /// Cuts all connections in the middle.
    pub(crate) fn cut(&self) {
        for connection in self.shared.lock().connections.drain(..) {
            connection.abort();
        }
    }

    /// Is gone: nobody listens, and all connections are cut.
    pub(crate) fn go_away(&self) {
        if let Some(listener) = self.listener.lock().expect("nobody panics here").take() {
            listener.abort();
        }
        self.cut();
    }

    /// Is back, at the same address.
    pub(crate) async fn come_back(&self) {
        let acceptor = self.tls.as_ref().map(|(acceptor, _)| acceptor.clone());
        let (_, handle) = serve::listen(Arc::clone(&self.shared), self.address, acceptor).await;
        *self.listener.lock().expect("nobody panics here") = Some(handle);
    }

    /// Where requests to a pod's port go.
    pub(crate) fn route(&self, namespace: &str, pod: &str, port: u16, to: SocketAddr) {
        self.shared.lock().routes.insert((namespace.to_owned(), pod.to_owned(), port), to);
    }

    /// All requests up to now.
    pub(crate) fn log(&self) -> Vec<Entry> {
        self.shared.lock().log.clone()
    }

    /// The watches that are open: path and query.
    pub(crate) fn open_watches(&self) -> Vec<String> {
        let state = self.shared.lock();
        let open = state.log.iter().filter(|entry| entry.open);
        open.map(|entry| format!("{}?{}", entry.path, entry.query)).collect()
    }

    /// Waits until the log satisfies this, and leaves it; panics with what was waited for after a minute.
    pub(crate) async fn until(&self, what: &str, satisfied: impl Fn(&[Entry]) -> bool) -> Vec<Entry> {
        let mut changed = self.shared.changed.subscribe();
        let waiting = async {
            loop {
                let log = self.log();
                if satisfied(&log) {
                    return log;
                }
                // Not every change of the log is told.
                let _ = tokio::time::timeout(Duration::from_millis(50), changed.changed()).await;
            }
        };
        match tokio::time::timeout(Duration::from_secs(60), waiting).await {
            Ok(log) => log,
            Err(_) => panic!(
                "waited for {what}; the log: {:#?}",
                self.log().iter().rev().take(30).collect::<Vec<_>>()
            ),
        }
    }
}

impl Drop for FakeKube {
    fn drop(&mut self) {
        self.go_away();
    }
}

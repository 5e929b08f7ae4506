//! From a request to its answer. Enters: method, path and query; leaves: what the real server would say.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Response};
use http_body_util::{BodyExt as _, StreamBody};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::select::Selector;
use super::status::{
    Body, Refusal, answer, error, expired_page, expired_version, forbidden, no_such_path, not_found, object,
    refusal, too_many_requests, unauthorized,
};
use super::store::{Kind, Store};
use super::watching::{LONGEST, Watch};
use super::{Entry, Pages, Shared, discovery, proxy, write};

/// A request that was understood.
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) kind: Kind,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
    pub(crate) query: BTreeMap<String, String>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Request {
    pub(crate) fn verb(&self) -> &'static str {
        match (self.method.as_str(), &self.name) {
            ("GET", None) if self.query.get("watch").is_some_and(|w| w == "true" || w == "1") => "watch",
            ("GET", None) => "list",
            ("GET", Some(_)) => "get",
            ("POST", _) => "create",
            ("PUT", _) => "update",
            ("PATCH", _) => "patch",
            ("DELETE", None) => "deletecollection",
            _ => "delete",
        }
    }

    pub(crate) fn parameter(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }
}

/// Answers one request.
pub(crate) async fn respond(
    shared: &Arc<Shared>,
    (method, target): (Method, &str),
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let entry = shared.log(Entry::new(method.as_str(), path, query, &headers));
    let delay = shared.lock().delay;
    tokio::time::sleep(delay).await;
    let response = respond_in(shared, entry, method, path, query, headers, body).await;
    shared.lock().log[entry].status = response.status().as_u16();
    shared.touch();
    response
}

async fn respond_in(
    shared: &Arc<Shared>,
    entry: usize,
    method: Method,
    path: &str,
    query: &str,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    if !shared.lock().admits(&headers) {
        return unauthorized();
    }
    let throttled = shared.lock().throttled();
    if let Some(after) = throttled {
        return too_many_requests(after);
    }
    let parts: Vec<String> = path.split('/').skip(1).map(decoded).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let discovered = discovery::discover(&shared.lock().store.kinds, &parts);
    if let Some(found) = discovered.filter(|_| method == Method::GET) {
        shared.lock().log[entry].verb = "discovery";
        return counted(shared, entry, &found, 0);
    }
    if let Some(proxied) = proxy::target(&parts) {
        shared.lock().log[entry].verb = "proxy";
        return proxy::forward(shared, proxied, query).await;
    }
    let Some(mut request) = understood(&shared.lock().store, &parts) else { return no_such_path() };
    request.method = method;
    request.query = parameters(query);
    (request.headers, request.body) = (headers, body);
    let (verb, plural) = (request.verb(), request.kind.plural.clone());
    {
        let mut state = shared.lock();
        state.log[entry].verb = verb;
        state.log[entry].resource.clone_from(&plural);
        state.log[entry].namespace.clone_from(&request.namespace);
        if state.denies(verb, &request.kind, request.namespace.as_deref()) {
            let (group, name) = (&request.kind.group, request.name.as_deref());
            return forbidden(verb, group, &plural, name, request.namespace.as_deref());
        }
    }
    match verb {
        "watch" => watch(shared, entry, &request),
        "list" => list(shared, entry, &request),
        "get" => get(shared, entry, &request),
        _ => write::write(shared, &request),
    }
}

/// A request's kind, namespace, name and subresource.
fn understood(store: &Store, parts: &[&str]) -> Option<Request> {
    let (group, version, rest) = match parts {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return None,
    };
    let kind = |plural: &str| {
        store.kinds.iter().find(|k| k.group == group && k.version == version && k.plural == plural).cloned()
    };
    let (kind, namespace, rest) = match rest {
        ["namespaces", namespace, plural, rest @ ..] if !["status", "finalize"].contains(plural) => {
            (kind(plural).filter(|kind| kind.namespaced)?, Some((*namespace).to_owned()), rest)
        }
        [plural, rest @ ..] => (kind(plural)?, None, rest),
        [] => return None,
    };
    let (name, subresource) = match rest {
        [] => (None, None),
        [name] => (Some((*name).to_owned()), None),
        [name, subresource] => (Some((*name).to_owned()), Some((*subresource).to_owned())),
        _ => return None,
    };
    if subresource.as_deref().is_some_and(|subresource| subresource != "status") {
        return None;
    }
    let (method, query, headers, body) = (Method::GET, BTreeMap::new(), HeaderMap::new(), Bytes::new());
    Some(Request { method, kind, namespace, name, subresource, query, headers, body })
}

fn parameters(query: &str) -> BTreeMap<String, String> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(k, v)| (decoded(k), decoded(v)))
        .collect()
}

/// Percent-decoding, with `+` for a space in queries and paths alike: nobody here writes a literal one.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let hex: String = rest.by_ref().take(2).map(char::from).collect();
                u8::from_str_radix(&hex, 16).unwrap_or(b'?')
            }
            b'+' => b' ',
            byte => byte,
        });
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn counted(shared: &Shared, entry: usize, value: &Value, objects: u64) -> Response<Body> {
    let text = value.to_string();
    let mut state = shared.lock();
    state.log[entry].bytes += text.len() as u64;
    state.log[entry].objects += objects;
    answer(200, "application/json", super::status::whole(text))
}

fn selector(request: &Request) -> Result<Selector, Refusal> {
    let (labels, fields) = (request.parameter("labelSelector"), request.parameter("fieldSelector"));
    Selector::parse(&request.kind.plural, labels, fields)
        .map_err(|why| refusal(400, "BadRequest", &why, &Value::Null))
}

fn get(shared: &Shared, entry: usize, request: &Request) -> Response<Body> {
    let name = request.name.as_deref().unwrap_or_default();
    let key = Store::key(&request.kind, request.namespace.as_deref(), name);
    let found = shared.lock().store.objects.get(&key).cloned();
    match found {
        Some(object) => counted(shared, entry, &object, 1),
        None => not_found(&request.kind.plural, name),
    }
}

/// A page of a list. Without a version it is consistent and obeys `limit`; with version 0 it comes from the watch
/// cache, which does not. How many are left is told only where nothing was selected.
fn list(shared: &Shared, entry: usize, request: &Request) -> Response<Body> {
    let selector = match selector(request) {
        Ok(selector) => selector,
        Err(wrong) => return *wrong,
    };
    if request.query.contains_key("sendInitialEvents") {
        return error(400, "BadRequest", "sendInitialEvents is forbidden for list", &Value::Null);
    }
    let mut state = shared.lock();
    let token = request.parameter("continue");
    let (version, mut found) = if token.is_empty() {
        (state.store.version, state.store.selected(&request.kind, request.namespace.as_deref(), &selector))
    } else {
        if state.pages != Pages::Honest {
            let found = state.store.selected(&request.kind, request.namespace.as_deref(), &selector);
            let endless = endless(state.pages, token, request, found.first());
            drop(state);
            return counted(shared, entry, &endless, 0);
        }
        match state.store.pages.remove(token) {
            Some(page) => page,
            None => return expired_page(),
        }
    };
    let limit: usize = request.parameter("limit").parse().unwrap_or(0);
    let limit = if request.parameter("resourceVersion") == "0" { 0 } else { limit };
    let mut metadata = json!({"resourceVersion": version.to_string()});
    if limit > 0 && found.len() > limit {
        let rest = found.split_off(limit);
        if selector.is_empty() {
            metadata["remainingItemCount"] = json!(rest.len());
        }
        // Real tokens hold the version and the last key; clients must take them as they are.
        let token = format!("fake{entry}v{version}");
        metadata["continue"] = json!(token);
        state.store.pages.insert(token, (version, rest));
    }
    let objects = found.len() as u64;
    let items: Vec<Value> = found.iter().map(|object| item(&request.kind, object)).collect();
    let list = json!({"kind": format!("{}List", request.kind.kind), "apiVersion": request.kind.api_version(),
        "metadata": metadata, "items": items});
    drop(state);
    counted(shared, entry, &list, objects)
}

/// A page of a list that does not end; its objects are copies of one that there is.
fn endless(pages: Pages, token: &str, request: &Request, like: Option<&Arc<Value>>) -> Value {
    let (list, number) = token.split_once('x').unwrap_or((token, "0"));
    let number: u64 = number.parse().unwrap_or(0);
    let limit: u64 = request.parameter("limit").parse().unwrap_or(0);
    let copy = |like: &Value, index: u64| {
        let mut copy = item(&request.kind, like);
        for field in ["name", "uid"] {
            copy["metadata"][field] = json!(format!("made-up-{list}-{number}-{index}"));
        }
        copy
    };
    let items: Vec<Value> = match (pages, like) {
        (Pages::New, Some(like)) => (0..limit).map(|index| copy(like, index)).collect(),
        _ => Vec::new(),
    };
    let next = if pages == Pages::Repeated { token.to_owned() } else { format!("{list}x{}", number + 1) };
    json!({"kind": format!("{}List", request.kind.kind), "apiVersion": request.kind.api_version(),
        "metadata": {"resourceVersion": "1", "continue": next}, "items": items})
}

fn item(kind: &Kind, object: &Value) -> Value {
    let mut item = object.clone();
    if kind.is_builtin()
        && let Some(fields) = item.as_object_mut()
    {
        fields.remove("kind");
        fields.remove("apiVersion");
    }
    item
}

fn watch(shared: &Arc<Shared>, entry: usize, request: &Request) -> Response<Body> {
    let selector = match selector(request) {
        Ok(selector) => selector,
        Err(wrong) => return *wrong,
    };
    if request.query.contains_key("sendInitialEvents") {
        let message = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
        return error(422, "Invalid", message, &Value::Null);
    }
    let mut state = shared.lock();
    let version = match request.parameter("resourceVersion") {
        "" | "0" => None,
        version => match version.parse::<u64>() {
            Ok(version) => Some(version),
            Err(_) => return error(400, "BadRequest", "invalid resource version", &Value::Null),
        },
    };
    if state.gone_as_status
        && let Some(version) = version.filter(|v| *v < state.store.compacted)
    {
        return object(410, &expired_version(version, state.store.compacted));
    }
    let seconds = request.parameter("timeoutSeconds").parse().ok().map(Duration::from_secs);
    let now = Instant::now();
    state.log[entry].open = true;
    let initial = match version {
        None => state.store.selected(&request.kind, request.namespace.as_deref(), &selector),
        Some(_) => Vec::new(),
    };
    let watch = Watch {
        initial,
        shared: Arc::clone(shared),
        entry,
        kind: request.kind.clone(),
        namespace: request.namespace.clone(),
        selector,
        version: version.unwrap_or(state.store.version),
        raw: state.raw.len(),
        generation: state.generation,
        bookmarks: request.parameter("allowWatchBookmarks") == "true",
        until: now + seconds.unwrap_or(LONGEST),
        bookmark: if state.brief_watches { now } else { now + state.bookmark_every },
        brief: state.brief_watches,
        over: false,
    };
    drop(state);
    answer(200, "application/json", StreamBody::new(watch.body()).boxed())
}

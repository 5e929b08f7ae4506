//! The way to a pod's port through the API server: `/api/v1/namespaces/NS/pods/[SCHEME:]NAME[:PORT]/proxy/PATH`.
//!
//! Requests are passed on to the socket that the test named for the pod. Imitates the real answers where that fails: a
//! pod that is not there is a 404, one that does not listen a 503 `ServiceUnavailable`.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

use super::Shared;
use super::status::{Body, error, forbidden, not_found};
use super::store::{Kind, Store};

/// Where a request is to go.
pub(crate) struct Target {
    namespace: String,
    pod: String,
    port: u16,
    path: String,
}

/// Whether these parts of a path mean a pod's port.
pub(crate) fn target(parts: &[&str]) -> Option<Target> {
    let ["api", "v1", "namespaces", namespace, "pods", named, "proxy", path @ ..] = parts else {
        return None;
    };
    let named: Vec<&str> = named.split(':').collect();
    let (pod, port) = match named.as_slice() {
        [pod] => (*pod, "80"),
        [pod, port] if !port.is_empty() && port.parse::<u16>().is_ok() => (*pod, *port),
        [_scheme, pod, port] => (*pod, *port),
        _ => return None,
    };
    let path = format!("/{}", path.join("/"));
    Some(Target { namespace: (*namespace).to_owned(), pod: pod.to_owned(), port: port.parse().ok()?, path })
}

/// Asks the pod.
pub(crate) async fn forward(shared: &Arc<Shared>, target: Target, query: &str) -> Response<Body> {
    let pods = Kind::new("v1", "Pod", "pods", true);
    let proxies = Kind::new("v1", "Pod", "pods/proxy", true);
    let route = {
        let state = shared.lock();
        if state.denies("get", &proxies, Some(&target.namespace)) {
            return forbidden("get", "", "pods/proxy", Some(&target.pod), Some(&target.namespace));
        }
        if !state.store.objects.contains_key(&Store::key(&pods, Some(&target.namespace), &target.pod)) {
            return not_found("pods", &target.pod);
        }
        state.routes.get(&(target.namespace.clone(), target.pod.clone(), target.port)).copied()
    };
    let path = if query.is_empty() { target.path } else { format!("{}?{query}", target.path) };
    let asked = match route {
        Some(address) => ask(address, &path).await,
        None => Err(std::io::Error::other(format!(
            "dial tcp: connect to port {}: connection refused",
            target.port
        ))),
    };
    asked.unwrap_or_else(|why| {
        error(503, "ServiceUnavailable", &format!("error trying to reach service: {why}"), &Value::Null)
    })
}

async fn ask(address: SocketAddr, path: &str) -> std::io::Result<Response<Body>> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(std::io::Error::other)?;
    tokio::spawn(connection);
    let request = http::Request::builder()
        .method(Method::GET)
        .uri(path)
        .header("host", address.to_string())
        .body(Empty::<Bytes>::new())
        .map_err(std::io::Error::other)?;
    let response = sender.send_request(request).await.map_err(std::io::Error::other)?;
    Ok(response.map(|body| body.map_err(std::io::Error::other).boxed()))
}

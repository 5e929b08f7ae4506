//! Sockets: each connection is a task of its own, so that a test can cut it.

use std::net::SocketAddr;
use std::sync::Arc;

use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;

use super::Shared;
use super::answer::respond;
use super::status::Body;

/// Serves on this address, and leaves the one it is.
pub(crate) async fn listen(
    shared: Arc<Shared>,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
) -> (SocketAddr, AbortHandle) {
    let listener = TcpListener::bind(address).await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let task = tokio::spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else { continue };
            // As every server in Go does.
            let _ = stream.set_nodelay(true);
            let of_connection = Arc::clone(&shared);
            let tls = tls.clone();
            let connection = tokio::spawn(async move {
                // A client that goes away is no error of the test's.
                match tls {
                    None => serve(stream, of_connection).await,
                    Some(tls) => {
                        if let Ok(stream) = tls.accept(stream).await {
                            serve(stream, of_connection).await;
                        }
                    }
                }
            });
            let mut state = shared.lock();
            state.connections.retain(|connection| !connection.is_finished());
            state.connections.push(connection.abort_handle());
        }
    });
    (address, task.abort_handle())
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, shared: Arc<Shared>) {
    let service = service_fn(|request| answer(Arc::clone(&shared), request));
    let mut server = hyper::server::conn::http1::Builder::new();
    server.timer(TokioTimer::new());
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Response<Body>, hyper::Error> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
    Ok(respond(&shared, (parts.method, &target), parts.headers, body).await)
}

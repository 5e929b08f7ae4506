//! The agent's HTTP port: the report, health and readiness. A thread of its own, so that a slow reader never
//! holds up the observer; it also waits for the signals that end the agent.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;

use super::board::Board;
use super::observer::{Stop, log};
use crate::output::{json, text};

/// Connections served at a time; more wait.
const CONNECTIONS: usize = 64;
/// How long a client may take to send its request.
const PATIENCE: Duration = Duration::from_secs(10);

/// Starts serving, and tells through `ask` when the agent should stop. Gives the address it listens on.
pub(super) fn serve(address: SocketAddr, board: Arc<Board>, ask: SyncSender<Stop>) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("http".to_owned()).spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                ended = accept(listener, board) => {
                    if let Err(why) = ended {
                        log(&format!("the HTTP port is gone: {why}"));
                    }
                    // Without its port the agent still watches and logs.
                    wait_for_end().await;
                }
                () = wait_for_end() => {}
            }
            let _ = ask.send(Stop::Asked);
        });
    })?;
    Ok(address)
}

async fn wait_for_end() {
    let (Ok(mut terminate), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

async fn accept(listener: TcpListener, board: Arc<Board>) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return Ok(()) };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            // Out of descriptors, or the client left: neither is the end.
            Err(_) => {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let board = Arc::clone(&board);
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let answer = answer(&request, &board);
                async move { Ok::<_, Infallible>(answer) }
            });
            let mut connection = http1::Builder::new();
            connection.timer(TokioTimer::new()).header_read_timeout(PATIENCE).keep_alive(true);
            // What a client does wrong is the client's problem.
            let _ = connection.serve_connection(TokioIo::new(stream), service).await;
            drop(permit);
        });
    }
}

/// What is written into memory, where nothing can fail.
fn written(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> Bytes {
    let mut bytes = Vec::new();
    let _ = write(&mut bytes);
    bytes.into()
}

fn answer(request: &Request<Incoming>, board: &Board) -> Response<Full<Bytes>> {
    const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
    const JSON: HeaderValue = HeaderValue::from_static("application/json");
    let (status, kind, body) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/api/v1/report") => match board.report() {
            Some(report) if request.uri().query() == Some("format=text") => {
                (StatusCode::OK, TEXT, written(|to| text::write(&report, false, to)))
            }
            Some(report) => (StatusCode::OK, JSON, written(|to| json::write(&report, to))),
            None => (StatusCode::SERVICE_UNAVAILABLE, TEXT, Bytes::from_static(b"no report yet\n")),
        },
        (&Method::GET | &Method::HEAD, "/healthz") => (StatusCode::OK, TEXT, Bytes::from_static(b"ok\n")),
        (&Method::GET | &Method::HEAD, "/readyz") => (StatusCode::OK, JSON, board.readiness().into()),
        (&Method::GET | &Method::HEAD, _) => (
            StatusCode::NOT_FOUND,
            TEXT,
            Bytes::from_static(b"there are /api/v1/report, /healthz and /readyz\n"),
        ),
        _ => (StatusCode::METHOD_NOT_ALLOWED, TEXT, Bytes::from_static(b"only GET\n")),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

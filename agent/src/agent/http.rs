//! The agent's HTTP port: metrics, the report, mergeable windows, health and readiness. Enters: requests; leaves: what
//! the board shows. A slow reader holds up nobody but itself.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use super::board::Board;
use super::log::log;
use super::metrics;
use super::outside::Asked;
use crate::output::{json, text};

/// Connections served at a time. One more ends the oldest: whoever opens many and says nothing must not keep scrapes and
/// probes out.
const CONNECTIONS: usize = 64;
/// How long a client may take to send its request.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the observer may take for an answer.
const ANSWER: Duration = Duration::from_secs(10);
/// How long a connection may last: one that reads nothing must not keep its place for ever.
const LONGEST: Duration = Duration::from_secs(300);

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const PROMETHEUS: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
const OPEN_METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

/// Serves until its task is ended.
pub(super) async fn serve(listener: TcpListener, board: Arc<Board>, asks: mpsc::Sender<Asked>) {
    if let Err(why) = accept(listener, board, asks).await {
        // Without its port the agent still watches and logs.
        log(&format!("the HTTP port is gone: {why}"));
    }
}

async fn accept(listener: TcpListener, board: Arc<Board>, asks: mpsc::Sender<Asked>) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let mut served: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            // Out of descriptors, or the client left: neither is the end.
            Err(_) => {
                if let Some(oldest) = served.pop_front() {
                    oldest.abort();
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (board, asks) = (Arc::clone(&board), asks.clone());
        served.retain(|connection| !connection.is_finished());
        if served.len() >= CONNECTIONS
            && let Some(oldest) = served.pop_front()
        {
            oldest.abort();
        }
        let serving = tokio::spawn(async move {
            let service = service_fn(move |request| {
                let (board, asks) = (Arc::clone(&board), asks.clone());
                async move { Ok::<_, Infallible>(answer(&request, &board, &asks).await) }
            });
            let mut connection = http1::Builder::new();
            connection.timer(TokioTimer::new()).header_read_timeout(PATIENCE).keep_alive(true);
            // What a client does wrong is the client's problem.
            let _ = tokio::time::timeout(LONGEST, connection.serve_connection(TokioIo::new(stream), service))
                .await;
        });
        served.push_back(serving.abort_handle());
    }
}

/// What is written into memory, where nothing can fail.
fn written(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> Bytes {
    let mut bytes = Vec::new();
    let _ = write(&mut bytes);
    bytes.into()
}

type Answer = (StatusCode, HeaderValue, Bytes);

async fn answer(
    request: &Request<Incoming>,
    board: &Board,
    asks: &mpsc::Sender<Asked>,
) -> Response<Full<Bytes>> {
    let known = matches!(*request.method(), Method::GET | Method::HEAD);
    let (status, kind, body) = if known && request.uri().path() == "/api/v1/windows" {
        windows(asks).await
    } else if known {
        let accepted = request.headers().get(ACCEPT).and_then(|accepted| accepted.to_str().ok());
        page(request.uri().path(), request.uri().query(), accepted.unwrap_or_default(), board)
    } else {
        (StatusCode::METHOD_NOT_ALLOWED, TEXT, Bytes::from_static(b"only GET\n"))
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, kind);
    if !known {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}

/// Only the observer has what this is made of.
async fn windows(asks: &mpsc::Sender<Asked>) -> Answer {
    let (to, told) = oneshot::channel();
    let asked = asks.try_send(Asked::Windows(to)).is_ok();
    match tokio::time::timeout(ANSWER, told).await {
        Ok(Ok(body)) if asked => (StatusCode::OK, JSON, body),
        _ => (StatusCode::SERVICE_UNAVAILABLE, TEXT, Bytes::from_static(b"busy: ask again\n")),
    }
}

/// The form that is asked for.
fn format(query: Option<&str>) -> Option<&str> {
    query?.split('&').find_map(|parameter| parameter.strip_prefix("format="))
}

fn page(path: &str, query: Option<&str>, accepted: &str, board: &Board) -> Answer {
    let shown = board.shown();
    let not_yet = || (StatusCode::SERVICE_UNAVAILABLE, TEXT, Bytes::from_static(b"not yet: see /readyz\n"));
    match path {
        "/metrics" => {
            let pages = &shown.pages;
            let (kind, form, page) = if accepted.contains("application/openmetrics-text") {
                (OPEN_METRICS, metrics::Form::OpenMetrics, &pages.open_metrics)
            } else {
                (PROMETHEUS, metrics::Form::Prometheus, &pages.prometheus)
            };
            let page = page.get_or_init(|| written(|to| metrics::write(&shown, form, to)));
            (StatusCode::OK, kind, page.clone())
        }
        "/api/v1/report" => match &shown.report {
            Some(report) => match format(query) {
                Some("text") => {
                    let page = shown.pages.text.get_or_init(|| written(|to| text::write(report, false, to)));
                    (StatusCode::OK, TEXT, page.clone())
                }
                Some("json") | None => {
                    let page = shown.pages.json.get_or_init(|| written(|to| json::write(report, to)));
                    (StatusCode::OK, JSON, page.clone())
                }
                Some(_) => {
                    (StatusCode::BAD_REQUEST, TEXT, Bytes::from_static(b"format=json or format=text\n"))
                }
            },
            None => not_yet(),
        },
        "/healthz" if board.is_alive() => (StatusCode::OK, TEXT, Bytes::from_static(b"ok\n")),
        "/healthz" => (
            StatusCode::SERVICE_UNAVAILABLE,
            TEXT,
            Bytes::from_static(b"the observing thread has stopped turning\n"),
        ),
        // The same for whoever gets to see no answer but a good one, as behind the API server's proxy.
        "/api/v1/status" => (StatusCode::OK, JSON, shown.readiness(board.is_fresh()).into()),
        "/readyz" => {
            let ready = shown.is_ready() && board.is_fresh();
            let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            (status, JSON, shown.readiness(board.is_fresh()).into())
        }
        _ => (
            StatusCode::NOT_FOUND,
            TEXT,
            Bytes::from_static(
                b"there are /metrics, /api/v1/report, /api/v1/status, /api/v1/windows, /healthz and /readyz\n",
            ),
        ),
    }
}

//! The node's GPU exporter: asks it for its exposition, again and again. Enters: its address, which may change; leaves:
//! what it answered, or why it did not. Must not know what the answers say.

use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::rt::TokioIo;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::sync::watch;

/// How long an answer may take. dcgm-exporter's takes milliseconds: it was made before.
const PATIENCE: Duration = Duration::from_secs(10);
/// An exposition of a node's GPUs has some hundred kilobytes at most.
const MOST: usize = 4 << 20;
/// With its head, its chunks' sizes, and all that may come before it.
const MOST_IN_ALL: u64 = 5 << 20;
const METRICS: &str = "/metrics";

/// Where an exporter answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExporterUrl {
    /// A name or an address, without brackets.
    host: String,
    port: u16,
    /// The path, with the query if there is one.
    path: String,
}

/// A text that is no such address.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("must be the address of an exporter, like http://localhost:9400/metrics (https is not spoken)")]
pub struct BadExporterUrl;

impl FromStr for ExporterUrl {
    type Err = BadExporterUrl;

    fn from_str(text: &str) -> Result<Self, BadExporterUrl> {
        let url: http::Uri = text.parse().map_err(|_| BadExporterUrl)?;
        let host = url.host().filter(|_| url.scheme_str() == Some("http")).ok_or(BadExporterUrl)?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let path = url.path_and_query().map(ToString::to_string).filter(|path| path != "/");
        let path = path.unwrap_or_else(|| METRICS.to_owned());
        Ok(Self { host, port: url.port_u16().unwrap_or(80), path })
    }
}

impl ExporterUrl {
    /// The exporter at this address.
    #[must_use]
    pub fn at(address: IpAddr, port: u16) -> Self {
        Self { host: address.to_string(), port, path: METRICS.to_owned() }
    }

    fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

impl fmt::Display for ExporterUrl {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "http://{}{}", self.authority(), self.path)
    }
}

/// What came of asking once.
pub struct Scrape {
    /// Who was asked.
    pub exporter: ExporterUrl,
    /// The exposition, or why there is none.
    pub answer: Result<Bytes, String>,
}

/// Asks the exporter of the moment, if there is one, `every` so often, until `stop` resolves or nobody wants to know.
pub async fn follow(
    mut exporters: watch::Receiver<Option<ExporterUrl>>,
    every: Duration,
    to: watch::Sender<Option<Arc<Scrape>>>,
    stop: impl Future<Output = ()>,
) {
    // No pause at all would be none of a timer's.
    let every = every.max(Duration::from_secs(1));
    let asking = async {
        loop {
            let exporter = exporters.borrow_and_update().clone();
            let Some(exporter) = exporter else {
                match exporters.changed().await {
                    Ok(()) => continue,
                    Err(_) => return,
                }
            };
            let answer = tokio::time::timeout(PATIENCE, ask(&exporter)).await;
            let answer = answer.unwrap_or_else(|_| Err(format!("no answer within {} s", PATIENCE.as_secs())));
            if to.send(Some(Arc::new(Scrape { exporter, answer }))).is_err() {
                return;
            }
            // Another one is asked at once.
            if tokio::time::timeout(every, exporters.changed()).await.is_ok_and(|changed| changed.is_err()) {
                return;
            }
        }
    };
    tokio::select! {
        () = stop => {}
        () = asking => {}
    }
}

async fn ask(exporter: &ExporterUrl) -> Result<Bytes, String> {
    let stream = TcpStream::connect((exporter.host.as_str(), exporter.port)).await;
    let stream = stream.map_err(|why| format!("cannot connect: {why}"))?;
    // Answers like `100 Continue` could come without end, and so could the sizes of chunks.
    let (from, to) = stream.into_split();
    let stream = tokio::io::join(from.take(MOST_IN_ALL), to);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|why| format!("no HTTP: {why}"))?;
    let request = http::Request::get(&exporter.path)
        .header(http::header::HOST, exporter.authority())
        .header(http::header::ACCEPT, "text/plain; version=0.0.4")
        .body(Empty::<Bytes>::new())
        .map_err(|why| format!("no request can be made: {why}"))?;
    let answered = async {
        let response = sender.send_request(request).await.map_err(|why| format!("no HTTP: {why}"))?;
        if response.status() != http::StatusCode::OK {
            return Err(format!("it answers {}", response.status()));
        }
        let (mut body, mut whole) = (Limited::new(response.into_body(), MOST), Vec::new());
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|why| format!("the answer is not whole: {why}"))?;
            // Pieces of a byte each are not kept apart.
            whole.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
        }
        Ok(whole.into())
    };
    // The connection does its work while the answer is waited for. Its end is the answer's end, good or bad.
    let mut answered = std::pin::pin!(answered);
    tokio::select! {
        biased;
        answer = &mut answered => answer,
        _ = connection => answered.await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt as _;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        let read = |text: &str| text.parse::<ExporterUrl>().map(|url| url.to_string());
        assert_eq!(read("http://localhost:9400/metrics").unwrap(), "http://localhost:9400/metrics");
        assert_eq!(read("http://gpu.example:9400").unwrap(), "http://gpu.example:9400/metrics");
        assert_eq!(read("http://[fd00::1]:9400/m?x=1").unwrap(), "http://[fd00::1]:9400/m?x=1");
        for wrong in ["", "localhost:9400", "https://localhost:9400", "http://", "ftp://a", "http://a b"] {
            assert_eq!(read(wrong), Err(BadExporterUrl), "{wrong}");
        }
    }

    /// What comes of asking an exporter that answers so, and never ends.
    async fn asked(head: &'static str, again: &str) -> Result<Bytes, String> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let again = again.repeat(1000);
        let answering = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut lasts = stream.write_all(head.as_bytes()).await;
            while lasts.is_ok() {
                lasts = stream.write_all(again.as_bytes()).await;
            }
        });
        let exporter = ExporterUrl::at(IpAddr::from([127, 0, 0, 1]), port);
        let answer = tokio::time::timeout(PATIENCE, ask(&exporter)).await.expect("it is not heard out");
        answering.await.unwrap();
        answer
    }

    #[tokio::test]
    async fn an_answer_without_end_is_not_heard_out() {
        let answer = asked("HTTP/1.1 200 OK\r\n\r\n", "DCGM_FI_DEV_GPU_UTIL 1\n").await;
        assert!(answer.unwrap_err().starts_with("the answer is not whole: "));
        let further = format!("HTTP/1.1 100 Continue\r\nx: {}\r\n\r\n", "x".repeat(1000));
        let answer = asked("", &further).await;
        assert!(answer.unwrap_err().starts_with("no HTTP: "));
    }
}

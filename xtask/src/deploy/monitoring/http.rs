//! As much HTTP as Prometheus, Alertmanager and a hook need on the loopback. Enters: requests; leaves: answers. One
//! request a connection, one connection at a time.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// How long a partner may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// A longer body is none of ours.
const MOST: u64 = 16 << 20;

/// Asks for a page; gives status and body. In HTTP 1.0, so that the body ends with the connection.
pub(crate) fn get(address: SocketAddr, path: &str) -> Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)
        .with_context(|| format!("cannot reach http://{address}{path}"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(MOST).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").context("an answer without an end of its head")?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.with_context(|| format!("an answer without a status: {head}"))?, body.to_owned()))
}

/// A text as part of a query.
pub(crate) fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// A server that answers every request; it ends when it is dropped.
pub(crate) struct Serving {
    address: SocketAddr,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    /// Serves on a free port. `answer` gets path and body, and gives the body of the answer.
    pub(crate) fn start(answer: impl Fn(&str, &[u8]) -> String + Send + 'static) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).context("no free port")?;
        let address = listener.local_addr()?;
        let ended = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ended);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if end.load(Ordering::Acquire) {
                    break;
                }
                // What one client does wrong is no reason to end.
                let _ = stream.map_err(anyhow::Error::from).and_then(|stream| serve(stream, &answer));
            }
        });
        Ok(Self { address, ended, thread: Some(thread) })
    }

    /// Where it serves.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        // Wakes it up.
        let _ = TcpStream::connect_timeout(&self.address, PATIENCE);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(stream: TcpStream, answer: &impl Fn(&str, &[u8]) -> String) -> Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.by_ref().take(MOST).read_line(&mut line)?;
    let path = line.split(' ').nth(1).context("a request without a path")?.to_owned();
    let mut length = 0;
    loop {
        let mut header = String::new();
        if reader.by_ref().take(MOST).read_line(&mut header)? == 0 {
            bail!("a request without an end of its head");
        }
        let header = header.trim_end();
        if header.is_empty() {
            break;
        }
        if let Some((name, value)) = header.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse::<u64>()?.min(MOST);
        }
    }
    let mut body = Vec::new();
    reader.by_ref().take(length).read_to_end(&mut body)?;
    let answer = answer(&path, &body);
    let mut stream = reader.into_inner();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{answer}",
        answer.len()
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_asked_and_served() {
        let serving = Serving::start(|path, body| format!("{path} {}", body.len())).unwrap();
        let (status, body) = get(serving.address(), &format!("/a?q={}", encoded("x{y=\"z\"} + 1"))).unwrap();
        assert_eq!((status, body.as_str()), (200, "/a?q=x%7By%3D%22z%22%7D%20%2B%201 0"));
        let address = serving.address();
        drop(serving);
        assert!(get(address, "/").is_err());
    }
}

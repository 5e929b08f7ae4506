//! An agent as a process. Waits for conditions, for a minute; what is waited for in vain is shown with the agent's log.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::world::{NODE, Stage};

/// For what takes a second on an idle machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);

pub(crate) struct Agent {
    child: Child,
    log: PathBuf,
    /// Where it listens; `None`: it says so.
    port: Option<u16>,
    /// The end of its log that nobody reads.
    #[expect(dead_code, reason = "kept, so that the log is not closed")]
    unread: Option<std::io::PipeReader>,
}

fn spawn(stage: &Stage, listen: &str, more: &[&str], log: Stdio) -> Child {
    let hubble = format!("unix://{}", stage.hubble.path.display());
    Command::new(env!("CARGO_BIN_EXE_firedoor-under-test"))
        .args(["agent", "--source", "hubble", "--listen", listen, "--hubble", &hubble])
        .args(more)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

impl Agent {
    /// Starts one that follows both servers of the stage.
    pub(crate) fn start(stage: &Stage, more: &[&str]) -> Self {
        let kubeconfig = stage.kubeconfig();
        Self::with(stage, &[&["--node", NODE, "--kubeconfig", kubeconfig.to_str().unwrap()], more].concat())
    }

    /// Starts one that follows the stage's Hubble.
    pub(crate) fn with(stage: &Stage, more: &[&str]) -> Self {
        let log = stage.directory.path().join(format!("agent-{}.log", stage.count()));
        let to = std::fs::File::create(&log).unwrap();
        let child = spawn(stage, "127.0.0.1:0", more, to.into());
        Self { child, log, port: None, unread: None }
    }

    /// The same with a log that is full, and that nobody reads.
    pub(crate) fn unheard(stage: &Stage, more: &[&str]) -> Self {
        let (unread, mut full) = std::io::pipe().unwrap();
        // As much as Linux lets into a pipe (pipe(7)).
        full.write_all(&[b'-'; 65_536]).unwrap();
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let child = spawn(stage, &free.to_string(), more, full.into());
        Self { child, log: PathBuf::new(), port: Some(free.port()), unread: Some(unread) }
    }

    /// All that it said.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The port it chose; `None`: it has not said yet.
    fn port(&self) -> Option<u16> {
        if self.port.is_some() {
            return self.port;
        }
        let said = self.said();
        let (_, rest) = said.split_once("http://127.0.0.1:")?;
        rest.split_once('/')?.0.parse().ok()
    }

    async fn get(&self, path: &str) -> Option<(u16, String)> {
        let stream = TcpStream::connect(("127.0.0.1", self.port()?)).await.ok()?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
        tokio::spawn(connection);
        let request = http::Request::get(path).header("host", "agent").body(Empty::<Bytes>::new()).unwrap();
        let response = sender.send_request(request).await.ok()?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.ok()?.to_bytes();
        Some((status, String::from_utf8(body.to_vec()).unwrap()))
    }

    async fn until_page<T>(&self, what: &str, path: &str, found: impl Fn(u16, &str) -> Option<T>) -> T {
        let mut last = None;
        let waiting = async {
            loop {
                last = self.get(path).await;
                if let Some(value) = last.as_ref().and_then(|(status, body)| found(*status, body)) {
                    return value;
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        match tokio::time::timeout(LIMIT, waiting).await {
            Ok(value) => value,
            Err(_) => panic!("waited for {what}; {path}: {last:?}; the agent said:\n{}", self.said()),
        }
    }

    /// It is ready.
    pub(crate) async fn ready(&self) {
        self.until_page("the agent to be ready", "/readyz", |status, _| (status == 200).then_some(())).await;
    }

    /// What `/readyz` says, once it is so.
    pub(crate) async fn until_readiness(&self, what: &str, found: impl Fn(&Value) -> bool) -> Value {
        self.until_page(what, "/readyz", |_, body| {
            serde_json::from_str::<Value>(body).ok().filter(|told| found(told))
        })
        .await
    }

    /// The report, once it is so.
    pub(crate) async fn until(&self, what: &str, found: impl Fn(&Value) -> bool) -> Value {
        self.until_page(what, "/api/v1/report", |status, body| {
            serde_json::from_str::<Value>(body).ok().filter(|report| status == 200 && found(report))
        })
        .await
    }

    pub(crate) async fn report(&self) -> Value {
        self.until("a report", |_| true).await
    }

    /// The report for people.
    pub(crate) async fn text_report(&self) -> String {
        let found = |status, body: &str| (status == 200).then(|| body.to_owned());
        self.until_page("a report", "/api/v1/report?format=text", found).await
    }

    pub(crate) async fn windows(&self) -> Value {
        self.until_page("windows", "/api/v1/windows", |status, body| {
            serde_json::from_str(body).ok().filter(|_| status == 200)
        })
        .await
    }

    /// So many connections, each with half a request.
    pub(crate) async fn half_asked(&self, number: usize) -> Vec<TcpStream> {
        let port = self.port().expect("it listens");
        let mut connections = Vec::new();
        for _ in 0..number {
            let mut connection = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            // The agent may have ended it already.
            let _ = connection.write_all(b"GET /metr").await;
            connections.push(connection);
        }
        connections
    }

    pub(crate) async fn metrics(&self) -> String {
        self.until_page("metrics", "/metrics", |status, body| (status == 200).then(|| body.to_owned())).await
    }

    /// It said this.
    pub(crate) async fn until_log(&self, text: &str) {
        let waiting = async {
            while !self.said().contains(text) {
                tokio::time::sleep(PAUSE).await;
            }
        };
        assert!(tokio::time::timeout(LIMIT, waiting).await.is_ok(), "no {text:?} in:\n{}", self.said());
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().expect("it runs").to_string();
        let sent = std::process::Command::new("kill").args([name, &id]).status().unwrap();
        assert!(sent.success());
    }

    /// It ended by itself.
    pub(crate) async fn ended(mut self) -> (ExitStatus, String) {
        let status = tokio::time::timeout(LIMIT, self.child.wait()).await;
        let status = status.unwrap_or_else(|_| panic!("it does not end; it said:\n{}", self.said()));
        (status.unwrap(), self.said())
    }

    pub(crate) fn hang_up(&self) {
        self.signal("-HUP");
    }

    /// Ends it as a kubelet does.
    pub(crate) async fn terminate(mut self) -> ExitStatus {
        self.signal("-TERM");
        match tokio::time::timeout(LIMIT, self.child.wait()).await {
            Ok(status) => status.unwrap(),
            Err(_) => panic!("it does not end; it said:\n{}", self.said()),
        }
    }

    /// Ends it as nobody should.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }
}

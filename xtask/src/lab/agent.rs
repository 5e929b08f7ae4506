//! The real agent beside the lab. Enters: the nodes and the objects; leaves: its report, over plain HTTP. All that the
//! lab knows of the agent's command line and interface stands here.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::cast::Cast;
use super::host::{run, wait_for};
use super::network::Network;
use super::stage::Stage;

/// How long one answer may take.
const ANSWER: Duration = Duration::from_secs(5);
/// How long loading and attaching may take, on a busy machine.
const ATTACHING: Duration = Duration::from_secs(60);
/// How long the agent may take to write the rest of its recording.
const ENDING: Duration = Duration::from_secs(20);

/// What the agent waits before it says something, in seconds. Shorter than by default, so that a scenario is.
pub(super) mod grace {
    /// A denied connection.
    pub(in crate::lab) const DENIED: u64 = 3;
    /// One without an answer.
    pub(in crate::lab) const UNANSWERED: u64 = 5;
    /// A refused one.
    pub(in crate::lab) const REFUSED: u64 = 5;
}

/// Where the agent reads and writes.
pub(super) struct Places<'a> {
    pub(super) binary: &'a Path,
    pub(super) objects: &'a Path,
    pub(super) capture: &'a Path,
    pub(super) config: &'a Path,
}

/// A running agent.
pub(super) struct Agent {
    process: Child,
    at: SocketAddr,
}

/// The agent's configuration for the lab.
pub(super) fn config() -> String {
    format!(
        "[kernel]\nsampleMilliseconds = 250\n[diagnosis]\ndeniedGraceSeconds = {}\nunansweredGraceSeconds = {}\nrefusedGraceSeconds = {}\n",
        grace::DENIED,
        grace::UNANSWERED,
        grace::REFUSED
    )
}

fn arguments(places: &Places<'_>, nodes: &[(String, PathBuf)], at: SocketAddr) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = ["agent", "--source", "ebpf"].map(Into::into).into();
    for (name, netns) in nodes {
        arguments.extend(["--node".into(), format!("{name}={}", netns.display()).into()]);
    }
    let paths = [("--inventory", places.objects), ("--record", places.capture), ("--config", places.config)];
    arguments.extend(paths.into_iter().flat_map(|(flag, path)| [flag.into(), path.into()]));
    arguments.extend(["--listen".into(), at.to_string().into()]);
    arguments
}

impl Agent {
    /// Starts it, and waits until its probes are attached.
    pub(super) fn start(
        stage: &Stage,
        places: &Places<'_>,
        cast: &Cast,
        network: &Network<'_>,
    ) -> Result<Self> {
        let at = free_port()?;
        let mut nodes = Vec::new();
        for (number, node) in cast.nodes.iter().enumerate() {
            nodes.push((node.name.clone(), Path::new("/run/netns").join(network.node(cast, number)?)));
        }
        let mut command = stage.outside("agent", &places.binary.to_string_lossy())?;
        command.args(arguments(places, &nodes, at));
        let mut process = command.spawn().context("the agent does not start")?;
        wait_for("the agent to be ready", ATTACHING, || {
            if let Some(status) = process.try_wait()? {
                bail!("the agent ended ({status}); its words are in {}", stage.log("agent").display());
            }
            Ok(get(at, "/readyz").is_ok_and(|(status, _)| status == 200).then_some(()))
        })?;
        Ok(Self { process, at })
    }

    /// Where it serves.
    pub(super) fn at(&self) -> SocketAddr {
        self.at
    }

    /// Its report, now.
    pub(super) fn report(&self) -> Result<Value> {
        let (status, body) = get(self.at, "/api/v1/report")?;
        if status != 200 {
            bail!("the agent answers {status}: {}", String::from_utf8_lossy(&body));
        }
        serde_json::from_slice(&body).context("the agent's report is no JSON")
    }

    /// Its report for people, now.
    pub(super) fn text(&self) -> Result<String> {
        let (_, body) = get(self.at, "/api/v1/report?format=text")?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    /// Ends it as a kubelet does, so that it finishes its recording.
    pub(super) fn stop(mut self) -> Result<ExitStatus> {
        // `setpriv`, `sh` and `nsenter` have replaced themselves: the child is the agent.
        run(&["kill", "-TERM", &self.process.id().to_string()])?;
        wait_for("the agent to end", ENDING, || Ok(self.process.try_wait()?))
    }
}

/// Replays a recording.
pub(super) fn replay(binary: &Path, capture: &Path, config: &Path, format: &str) -> Result<String> {
    let mut command = Command::new(binary);
    command.arg("replay").arg(capture).arg("--config").arg(config);
    let output = command.args(["--format", format]).output().context("the replay does not start")?;
    // 1 and 3 are verdicts.
    if !matches!(output.status.code(), Some(0 | 1 | 3)) {
        bail!("the replay failed ({}): {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn free_port() -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port")?;
    Ok(listener.local_addr()?)
}

/// HTTP/1.0: the body ends with the connection.
fn get(at: SocketAddr, path: &str) -> Result<(u16, Vec<u8>)> {
    let mut stream = TcpStream::connect_timeout(&at, ANSWER)?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {at}\r\nConnection: close\r\n\r\n").as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    split(&answer).context("the agent does not speak HTTP")
}

fn split(answer: &[u8]) -> Option<(u16, Vec<u8>)> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(answer.get(..end)?).ok()?;
    let status = head.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok()?;
    Some((status, answer.get(end + 4..)?.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_split() {
        let answer = b"HTTP/1.0 503 Service Unavailable\r\nContent-Length: 2\r\n\r\nno";
        assert_eq!(split(answer), Some((503, b"no".to_vec())));
        assert_eq!(split(b"HTTP/1.1 200 OK\r\n\r\n"), Some((200, Vec::new())));
        assert_eq!(split(b"SSH-2.0"), None);
    }

    #[test]
    fn the_configuration_is_what_the_agent_reads() {
        let table: toml::Table = toml::from_str(&config()).unwrap();
        assert_eq!(table["diagnosis"].as_table().unwrap().len(), 3);
    }
}

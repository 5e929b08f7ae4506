//! What the agent recorded, read independently of it. Enters: `sockets*.jsonl` of a capture (docs/capture.md); leaves:
//! totals by connection and by dropped pair.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde_json::Value;

/// Both ends of a connection, the recorded one first.
pub(super) type Ends = (SocketAddr, SocketAddr);

/// A recording's totals.
#[derive(Default, Debug)]
pub(super) struct Recording {
    pub(super) sockets: BTreeMap<Ends, Socket>,
    /// Dropped packets, by source and destination.
    pub(super) drops: BTreeMap<(IpAddr, IpAddr), u64>,
    /// What the source could not tell, in its own count.
    pub(super) lost: u64,
    /// Lines that could not be read.
    pub(super) damaged: u64,
}

/// One end of a connection.
#[derive(Default, Debug)]
pub(super) struct Socket {
    /// The pod's UID, where it was known.
    pub(super) uid: Option<String>,
    pub(super) sent: u64,
    pub(super) received: u64,
    pub(super) retransmitted: u64,
    /// What its first bytes told.
    pub(super) app: Option<String>,
    /// (time, smoothed RTT in microseconds), in order.
    pub(super) rtt: Vec<(Timestamp, u64)>,
}

impl Recording {
    /// Reads all that is there so far: a line that is still being written counts as damaged.
    pub(super) fn read(capture: &Path) -> Result<Self> {
        let mut recording = Self::default();
        let entries = fs::read_dir(capture).with_context(|| capture.display().to_string())?;
        let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        files.sort();
        for file in files {
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with("sockets") && name.ends_with(".jsonl") {
                let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
                text.lines().for_each(|line| recording.add(line));
            }
        }
        Ok(recording)
    }

    fn add(&mut self, line: &str) {
        let read = serde_json::from_str::<Value>(line).ok();
        if read.and_then(|line| self.add_event(&line)).is_none() {
            self.damaged += 1;
        }
    }

    fn add_event(&mut self, line: &Value) -> Option<()> {
        let number = |field: &str| line.get(field).and_then(Value::as_u64);
        match line.get("event")?.as_str()? {
            "drops" => {
                let pair = (address(line, "src")?, address(line, "dst")?);
                *self.drops.entry(pair).or_default() += number("packets")?;
            }
            "lost" => self.lost += number("count")?,
            // Nobody is at the other end of one that listens.
            "listening" => drop(end(line, "local")?),
            _ => {
                let socket = self.sockets.entry((end(line, "local")?, end(line, "remote")?)).or_default();
                if let Some(uid) = line.pointer("/local/uid").and_then(Value::as_str) {
                    socket.uid = Some(uid.to_owned());
                }
                if let Some(app) = line.get("app").and_then(Value::as_str) {
                    socket.app = Some(app.to_owned());
                }
                socket.sent += number("sent").unwrap_or_default();
                socket.received += number("received").unwrap_or_default();
                socket.retransmitted += number("retransmitted").unwrap_or_default();
                if let Some(rtt) = number("rtt_us") {
                    socket.rtt.push((line.get("time")?.as_str()?.parse().ok()?, rtt));
                }
            }
        }
        Some(())
    }
}

fn address(line: &Value, field: &str) -> Option<IpAddr> {
    line.get(field)?.get("ip")?.as_str()?.parse().ok()
}

fn end(line: &Value, field: &str) -> Option<SocketAddr> {
    let port = line.get(field)?.get("port").and_then(Value::as_u64).unwrap_or_default();
    Some(SocketAddr::new(address(line, field)?, u16::try_from(port).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_a_connection_add_up() {
        let mut recording = Recording::default();
        for line in [
            r#"{"time":"2026-01-01T00:00:01Z","node":"n","event":"established","local":{"ip":"10.0.0.1","port":5,"uid":"u"},"remote":{"ip":"10.0.0.2","port":6},"opener":"local"}"#,
            r#"{"time":"2026-01-01T00:00:02Z","node":"n","event":"carried","local":{"ip":"10.0.0.1","port":5,"uid":"u"},"remote":{"ip":"10.0.0.2","port":6},"sent":10,"received":1,"retransmitted":2,"rtt_us":300}"#,
            r#"{"time":"2026-01-01T00:00:03Z","node":"n","event":"closed","local":{"ip":"10.0.0.1","port":5},"remote":{"ip":"10.0.0.2","port":6},"sent":5,"received":0,"retransmitted":0}"#,
            r#"{"time":"2026-01-01T00:00:03Z","node":"n","event":"drops","src":{"ip":"10.0.0.1"},"dst":{"ip":"10.0.0.3","port":9},"packets":4,"attempts":1}"#,
            r#"{"time":"2026-01-01T00:00:03Z","node":"n","event":"lost","cause":"ring","count":7}"#,
            r#"{"time":"2026-01-01T00:00:03Z","node":"n","ev"#,
        ] {
            recording.add(line);
        }
        let socket = recording.sockets.values().next().unwrap();
        assert_eq!((socket.sent, socket.received, socket.retransmitted), (15, 1, 2));
        assert_eq!(socket.rtt.len(), 1);
        assert_eq!(recording.drops.values().copied().collect::<Vec<_>>(), [4]);
        assert_eq!((recording.lost, recording.damaged), (7, 1));
    }
}

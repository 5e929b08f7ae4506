//! A counted TCP stream. Enters: bytes; leaves: the same bytes, written down. Reading gives up only when the run is
//! to end and the peer does not come back.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::truth::{Connection, Journal, Purpose};
use crate::lab::host::now;

/// How long a connect waits for its answer: one retransmitted SYN fits in.
const CONNECT: Duration = Duration::from_millis(1_500);
/// From the start of a connect to the start of the next.
const AGAIN: Duration = Duration::from_millis(1_000);
/// How often a waiting reader looks for the stop file.
const LOOK: Duration = Duration::from_millis(200);
/// How long peers may need for their last step once the stop file is there.
const PATIENCE: Duration = Duration::from_secs(5);
/// The largest message that is believed.
const MESSAGE: usize = 1 << 16;

/// One connection.
pub(super) struct Stream {
    tcp: TcpStream,
    /// Its index in the truth.
    index: usize,
    journal: Arc<Journal>,
    stop: PathBuf,
}

impl Stream {
    /// Connects, again and again, until there is an answer; `None` when the run ends before.
    pub(super) fn connect(
        to: SocketAddr,
        peer_rank: usize,
        purpose: Purpose,
        stop: &Path,
        journal: &Arc<Journal>,
    ) -> Result<Option<Self>> {
        while !stop.exists() {
            let start = Instant::now();
            {
                let mut truth = journal.truth();
                let connects = truth.connects.entry(to).or_default();
                connects.tried += 1;
                connects.last = now();
                if connects.tried == 1 {
                    connects.first.clone_from(&connects.last);
                }
            }
            let outcome = TcpStream::connect_timeout(&to, CONNECT);
            {
                let mut truth = journal.truth();
                let connects = truth.connects.entry(to).or_default();
                match &outcome {
                    Ok(_) => connects.succeeded += 1,
                    Err(error) => *connects.failed.entry(format!("{:?}", error.kind())).or_default() += 1,
                }
            }
            if let Ok(tcp) = outcome {
                return Self::of(tcp, true, peer_rank, purpose, stop, journal).map(Some);
            }
            thread::sleep((start + AGAIN).saturating_duration_since(Instant::now()));
        }
        Ok(None)
    }

    /// An open connection.
    pub(super) fn of(
        tcp: TcpStream,
        opened_here: bool,
        peer_rank: usize,
        purpose: Purpose,
        stop: &Path,
        journal: &Arc<Journal>,
    ) -> Result<Self> {
        tcp.set_nonblocking(false)?;
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(LOOK))?;
        let connection = Connection {
            purpose,
            opened_here,
            peer_rank,
            local: tcp.local_addr()?,
            remote: tcp.peer_addr()?,
            opened: now(),
            sent: 0,
            received: 0,
        };
        let mut truth = journal.truth();
        truth.connections.push(connection);
        let index = truth.connections.len() - 1;
        drop(truth);
        Ok(Self { tcp, index, journal: Arc::clone(journal), stop: stop.to_owned() })
    }

    /// Says who is at the other end, once that is known.
    pub(super) fn peer_is(&self, rank: usize) {
        self.count(|connection| connection.peer_rank = rank);
    }

    /// Sends all of it.
    pub(super) fn send(&self, bytes: &[u8]) -> Result<()> {
        (&self.tcp).write_all(bytes).context("sending to a peer")?;
        self.count(|connection| connection.sent += bytes.len() as u64);
        Ok(())
    }

    /// Fills the buffer.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> Result<()> {
        let mut filled = 0;
        let mut stopping: Option<Instant> = None;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match (&self.tcp).read(rest) {
                Ok(0) => bail!("a peer closed its connection"),
                Ok(read) => {
                    filled += read;
                    self.count(|connection| connection.received += read as u64);
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    if self.stop.exists() && stopping.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                        bail!("a peer sends nothing, and the run is to end");
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("receiving from a peer"),
            }
        }
        Ok(())
    }

    /// Sends a message with its length.
    pub(super) fn send_message(&self, message: &[u8]) -> Result<()> {
        let length = u32::try_from(message.len()).context("a message is too long")?;
        self.send(&[&length.to_le_bytes()[..], message].concat())
    }

    /// Receives a message with its length.
    pub(super) fn receive_message(&self) -> Result<Vec<u8>> {
        let mut length = [0; 4];
        self.receive(&mut length)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > MESSAGE {
            bail!("a peer announces a message of {length} bytes");
        }
        let mut message = vec![0; length];
        self.receive(&mut message)?;
        Ok(message)
    }

    /// Says goodbye.
    pub(super) fn finish_sending(&self) {
        // The peer may be gone already.
        let _ = self.tcp.shutdown(Shutdown::Write);
    }

    /// Waits for the peer's goodbye, so that no reset ends the connection.
    pub(super) fn drain(&self) {
        let start = Instant::now();
        let mut rest = [0; 512];
        while start.elapsed() < PATIENCE {
            match (&self.tcp).read(&mut rest) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => return,
            }
        }
    }

    fn count(&self, add: impl FnOnce(&mut Connection)) {
        if let Some(connection) = self.journal.truth().connections.get_mut(self.index) {
            add(connection);
        }
    }
}

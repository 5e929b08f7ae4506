//! How the members meet: each tells rank 0 where it listens, and gets the list of all; then each connects to those of
//! lower rank. The first bytes are those of the systems that real jobs use, because firedoor tells protocols by them.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::Arguments;
use super::stream::Stream;
use super::truth::{Journal, Purpose};

/// What a client of c10d's `TCPStore` sends first: the command VALIDATE and its number (PyTorch, `TCPStoreBackend.hpp`).
const TCPSTORE: [u8; 5] = [0x00, 0xce, 0xf7, 0x85, 0x3c];
/// What the connecting end of an NCCL data socket sends first: the magic and the type 3 (NCCL, `socket.h`).
const NCCL: [u8; 12] = [0x6c, 0x9d, 0x4b, 0xfc, 0xf2, 0xb9, 0x4a, 0x56, 3, 0, 0, 0];
/// How often a listener looks.
const LOOK: Duration = Duration::from_millis(20);

#[derive(Serialize, Deserialize)]
struct Hello {
    rank: usize,
    /// Where it listens.
    at: SocketAddr,
}

/// A member's connections.
pub(super) struct Mesh {
    pub(super) rank: usize,
    pub(super) world: usize,
    peers: BTreeMap<usize, Stream>,
    /// At rank 0 those of all others, elsewhere the one to rank 0. Idle, but open as long as the job lives.
    rendezvous: Vec<Stream>,
}

impl Mesh {
    /// Meets the others; `None` when the run ends before all are there.
    pub(super) fn join(arguments: &Arguments, journal: &Arc<Journal>) -> Result<Option<Self>> {
        let listener = TcpListener::bind((arguments.bind, 0)).context("listening for the mesh")?;
        listener.set_nonblocking(true)?;
        let at = listener.local_addr()?;
        let met = if arguments.rank == 0 {
            meet_here(arguments, at, journal)?
        } else {
            meet_there(arguments, at, journal)?
        };
        let Some((rendezvous, addresses)) = met else { return Ok(None) };
        let mut peers = BTreeMap::new();
        for (rank, to) in addresses.iter().enumerate().take(arguments.rank) {
            let stream = Stream::connect(*to, rank, Purpose::Mesh, &arguments.stop, journal)?;
            let Some(stream) = stream else { return Ok(None) };
            let own = u32::try_from(arguments.rank).context("too many members")?;
            stream.send(&[&NCCL[..], &own.to_le_bytes()].concat())?;
            peers.insert(rank, stream);
        }
        while peers.len() + 1 < arguments.world {
            let Some(stream) = accept(&listener, Purpose::Mesh, &arguments.stop, journal)? else {
                return Ok(None);
            };
            let mut magic = NCCL;
            stream.receive(&mut magic)?;
            if magic != NCCL {
                bail!("something else than a member connected to the mesh");
            }
            let mut rank = [0; 4];
            stream.receive(&mut rank)?;
            let rank = u32::from_le_bytes(rank) as usize;
            stream.peer_is(rank);
            peers.insert(rank, stream);
        }
        Ok(Some(Self { rank: arguments.rank, world: arguments.world, peers, rendezvous }))
    }

    /// The connection to a member.
    pub(super) fn peer(&self, rank: usize) -> Result<&Stream> {
        self.peers.get(&rank).with_context(|| format!("no connection to rank {rank}"))
    }

    /// All connections of the mesh, by rank.
    pub(super) fn peers(&self) -> impl Iterator<Item = (usize, &Stream)> {
        self.peers.iter().map(|(rank, stream)| (*rank, stream))
    }

    /// Closes all connections, in order.
    pub(super) fn leave(self) {
        let streams = || self.peers.values().chain(&self.rendezvous);
        streams().for_each(Stream::finish_sending);
        streams().for_each(Stream::drain);
    }
}

type Met = Option<(Vec<Stream>, Vec<SocketAddr>)>;

/// Rank 0: waits for all others, and tells each where all are.
fn meet_here(arguments: &Arguments, at: SocketAddr, journal: &Arc<Journal>) -> Result<Met> {
    let listener = TcpListener::bind(arguments.master).context("listening for the rendezvous")?;
    listener.set_nonblocking(true)?;
    let mut here = BTreeMap::from([(0, at)]);
    let mut streams = Vec::new();
    while here.len() < arguments.world {
        let Some(stream) = accept(&listener, Purpose::Rendezvous, &arguments.stop, journal)? else {
            return Ok(None);
        };
        let mut first = TCPSTORE;
        stream.receive(&mut first)?;
        if first != TCPSTORE {
            bail!("something else than a member connected to the rendezvous");
        }
        let hello: Hello = serde_json::from_slice(&stream.receive_message()?)?;
        stream.peer_is(hello.rank);
        here.insert(hello.rank, hello.at);
        streams.push(stream);
    }
    let addresses: Vec<SocketAddr> = here.into_values().collect();
    let list = serde_json::to_vec(&addresses)?;
    for stream in &streams {
        stream.send_message(&list)?;
    }
    Ok(Some((streams, addresses)))
}

/// Any other rank.
fn meet_there(arguments: &Arguments, at: SocketAddr, journal: &Arc<Journal>) -> Result<Met> {
    let stream = Stream::connect(arguments.master, 0, Purpose::Rendezvous, &arguments.stop, journal)?;
    let Some(stream) = stream else { return Ok(None) };
    stream.send(&TCPSTORE)?;
    stream.send_message(&serde_json::to_vec(&Hello { rank: arguments.rank, at })?)?;
    let Ok(list) = stream.receive_message() else {
        anyhow::ensure!(arguments.stop.exists(), "rank 0 went away before all had met");
        return Ok(None);
    };
    let addresses: Vec<SocketAddr> = serde_json::from_slice(&list)?;
    Ok(Some((vec![stream], addresses)))
}

fn accept(
    listener: &TcpListener,
    purpose: Purpose,
    stop: &Path,
    journal: &Arc<Journal>,
) -> Result<Option<Stream>> {
    while !stop.exists() {
        match listener.accept() {
            // Who it is, is known later.
            Ok((tcp, _)) => return Stream::of(tcp, false, 0, purpose, stop, journal).map(Some),
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(LOOK),
            Err(error) => return Err(error).context("accepting a peer"),
        }
    }
    Ok(None)
}

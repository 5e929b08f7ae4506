//! Made-up captures of any length. Enters: a cluster's shape and a number of lines; leaves: a capture folder,
//! and what a right diagnosis of it must say. Streams: memory does not grow with the lines.
//!
//! Of the lines, 60 % are traces between members of jobs, 15 % denials, 15 % traffic of other pods, 5 % name
//! resolution and 5 % proxy and socket events. Time moves with the lines.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::flow::{Direction, End, Event, Flags, Flow, Point, SinceMidnight, Transport};
use super::world::{Job, Shape, World};

/// What a right diagnosis of the capture says.
pub(super) struct Truth {
    /// Lines of flows; each is one flow.
    pub(super) lines: u64,
    /// Their size.
    pub(super) bytes: u64,
    /// The blocked jobs, `namespace/name`, sorted.
    pub(super) blocked: Vec<String>,
}

/// Event time from line to line.
const STEP: SinceMidnight = 1_000_000;
/// Lines that fit into a day at that step, with room.
const MOST_LINES: u64 = 80_000_000;
/// From a verdict to its drop.
const DROP_AFTER: SinceMidnight = 40_000;
/// Connections that are open at a time.
const CONNECTIONS: usize = 2_048;
/// Data traces of each connection between its handshake and its end.
const DATA: u32 = 24;
/// The port where a master waits for its workers.
const RENDEZVOUS: u16 = 23_456;

/// Writes a capture of `lines` flows to `folder`, which must not exist.
pub(super) fn capture(folder: &Path, lines: u64, shape: &Shape) -> Result<Truth> {
    ensure!((1..=MOST_LINES).contains(&lines), "between 1 and {MOST_LINES} lines");
    ensure!(!folder.exists(), "{} is there already", folder.display());
    let world = World::new(shape)?;
    let objects = folder.join("objects");
    fs::create_dir_all(&objects).with_context(|| format!("cannot create {}", objects.display()))?;
    fs::write(objects.join("cluster.json"), world.objects().to_string())?;

    let path = folder.join("flows.jsonl");
    let file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let mut traffic = Traffic::new(&world, shape.seed);
    let mut line = String::with_capacity(4_096);
    let mut bytes = 0;
    for _ in 0..lines {
        line.clear();
        traffic.next_line(&mut line);
        bytes += line.len() as u64;
        out.write_all(line.as_bytes())?;
    }
    out.flush()?;
    let mut blocked: Vec<String> =
        world.blocked_jobs().map(|job| format!("{}/{}", job.namespace, job.name)).collect();
    blocked.sort_unstable();
    Ok(Truth { lines, bytes, blocked })
}

/// What goes on in the cluster, one line after the other.
struct Traffic<'w> {
    world: &'w World,
    random: Random,
    line: u64,
    /// The jobs that nobody blocks.
    open: Vec<&'w Job>,
    connections: Vec<Connection>,
    attempts: Vec<Attempt>,
    /// The drop that follows the denial of the line before.
    drop: Option<(usize, SinceMidnight)>,
    /// A worker that asked for a name and gets the answer next.
    asked: Option<(usize, u16)>,
}

/// An open connection between two members of a job.
struct Connection {
    from: usize,
    to: usize,
    source: u16,
    destination: u16,
    step: u32,
}

/// A worker that cannot reach its master and tries again.
struct Attempt {
    worker: usize,
    master: usize,
    source: u16,
    /// SYNs sent from this port so far.
    sent: u32,
}

impl<'w> Traffic<'w> {
    fn new(world: &'w World, seed: u64) -> Self {
        let mut random = Random(seed);
        let open: Vec<&Job> = world.open_jobs().collect();
        let connections = (0..CONNECTIONS).map(|_| Connection::open(&open, &mut random)).collect();
        let attempts = world.blocked_jobs().flat_map(|job| {
            let workers = job.members.iter().skip(1);
            workers.map(|worker| Attempt { worker: *worker, master: job.members[0], source: 0, sent: 0 })
        });
        let attempts = attempts.collect();
        Self { world, random, line: 0, open, connections, attempts, drop: None, asked: None }
    }

    /// Appends the next line.
    fn next_line(&mut self, line: &mut String) {
        // Up to a tenth of a step late, so that the order stays that of time.
        let at = self.line * STEP + self.random.below(STEP / 10);
        self.line += 1;
        if let Some((attempt, at)) = self.drop.take() {
            return self.denial(attempt, at, Event::Dropped, line);
        }
        // A denial is two lines: its share of the draws is half of its share of the lines.
        match self.random.below(185) {
            0..120 => self.member_trace(at, line),
            120..135 => {
                let attempt = self.random.index(self.attempts.len());
                self.attempts[attempt].send(&mut self.random);
                self.denial(attempt, at, Event::Denied, line);
                self.drop = Some((attempt, at + DROP_AFTER));
            }
            135..165 => self.web(at, line),
            165..175 => self.resolution(at, line),
            175..180 => self.proxy(at, line),
            _ => self.socket(at, line),
        }
    }

    fn member_trace(&mut self, at: SinceMidnight, line: &mut String) {
        let slot = self.random.index(self.connections.len());
        let connection = &mut self.connections[slot];
        let step = connection.step;
        connection.step += 1;
        let (from, to) = (connection.from, connection.to);
        let ports = (connection.source, connection.destination);
        if step >= 4 + DATA {
            *connection = Connection::open(&self.open, &mut self.random);
        }
        let (flags, reason, reply) = match step {
            0 | 1 => (Flags::Syn, "NEW", false),
            2 | 3 => (Flags::SynAck, "REPLY", true),
            step if step >= 4 + DATA => (Flags::FinAck, "ESTABLISHED", false),
            4 | 5 => (Flags::Ack, "ESTABLISHED", false),
            step if step % 4 < 2 => (Flags::PshAck, "ESTABLISHED", false),
            _ => (Flags::PshAck, "REPLY", true),
        };
        // Each packet is seen twice: leaving one node, arriving on the other.
        let point = if step.is_multiple_of(2) { Point::ToOverlay } else { Point::ToEndpoint };
        self.trace(at, (from, to), ports, (flags, reason, reply, point), line);
    }

    fn web(&mut self, at: SinceMidnight, line: &mut String) {
        let web = &self.world.web;
        let from = self.random.index(web.len());
        let to = (from + 1 + self.random.index(web.len() - 1)) % web.len();
        let ports = (self.random.ephemeral(), 8_080);
        let reply = self.random.below(2) == 1;
        let reason = if reply { "REPLY" } else { "ESTABLISHED" };
        let point = if self.random.below(2) == 1 { Point::ToOverlay } else { Point::ToEndpoint };
        self.trace(at, (web[from], web[to]), ports, (Flags::PshAck, reason, reply, point), line);
    }

    /// One trace of a connection from the first pod to the second.
    fn trace(
        &mut self,
        at: SinceMidnight,
        (from, to): (usize, usize),
        (client, server): (u16, u16),
        (flags, reason, reply, point): (Flags, &'static str, bool, Point),
        line: &mut String,
    ) {
        let (sender, receiver) = if reply { (to, from) } else { (from, to) };
        let ports = if reply { (server, client) } else { (client, server) };
        let here = match point {
            Point::ToOverlay => sender,
            Point::ToEndpoint => receiver,
        };
        // The direction is the connection's, seen from this node's own end.
        let direction = if here == from { Direction::Egress } else { Direction::Ingress };
        let transport = Transport::Tcp { source: ports.0, destination: ports.1, flags };
        self.write(
            at,
            here,
            (sender, receiver),
            transport,
            Event::Trace { point, reason, reply },
            direction,
            line,
        );
    }

    fn denial(&mut self, attempt: usize, at: SinceMidnight, event: Event<'_>, line: &mut String) {
        let Attempt { worker, master, source, .. } = self.attempts[attempt];
        let transport = Transport::Tcp { source, destination: RENDEZVOUS, flags: Flags::Syn };
        self.write(at, worker, (worker, master), transport, event, Direction::Egress, line);
    }

    fn resolution(&mut self, at: SinceMidnight, line: &mut String) {
        let dns = self.world.dns;
        if let Some((pod, port)) = self.asked.take() {
            let transport = Transport::Udp { source: 53, destination: port };
            let event = Event::Trace { point: Point::ToEndpoint, reason: "REPLY", reply: true };
            return self.write(at, pod, (dns, pod), transport, event, Direction::Egress, line);
        }
        let pod = self.member();
        let port = self.random.ephemeral();
        self.asked = Some((pod, port));
        let transport = Transport::Udp { source: port, destination: 53 };
        let event = Event::Trace { point: Point::ToOverlay, reason: "NEW", reply: false };
        self.write(at, pod, (pod, dns), transport, event, Direction::Egress, line);
    }

    fn proxy(&mut self, at: SinceMidnight, line: &mut String) {
        let pod = self.member();
        let step = self.random.below(100_000);
        let l7 = format!(
            "{{\"type\":\"REQUEST\",\"http\":{{\"method\":\"PUT\",\"url\":\"http://minio.storage.svc:9000/checkpoints/step-{step}.pt\",\"protocol\":\"HTTP/1.1\",\"headers\":[{{\"key\":\"User-Agent\",\"value\":\"boto3\"}}]}}}}"
        );
        let transport =
            Transport::Tcp { source: self.random.ephemeral(), destination: 9_000, flags: Flags::None };
        let event = Event::Proxy { l7: &l7, reply: false };
        self.write(at, pod, (pod, self.world.store), transport, event, Direction::Egress, line);
    }

    fn socket(&mut self, at: SinceMidnight, line: &mut String) {
        let pod = self.member();
        let event = Event::Socket { cookie: self.random.below(1 << 40), cgroup: 4_000 + pod as u64 };
        let transport = Transport::Tcp { source: 0, destination: 9_000, flags: Flags::None };
        self.write(at, pod, (pod, self.world.store), transport, event, Direction::Egress, line);
    }

    /// Any member of any job that nobody blocks.
    fn member(&mut self) -> usize {
        let job = self.open[self.random.index(self.open.len())];
        job.members[self.random.index(job.members.len())]
    }

    #[expect(clippy::too_many_arguments, reason = "one flow has as many sides; they are named at once, here")]
    fn write(
        &mut self,
        at: SinceMidnight,
        here: usize,
        (sender, receiver): (usize, usize),
        transport: Transport,
        event: Event<'_>,
        direction: Direction,
        line: &mut String,
    ) {
        let pods = &self.world.pods;
        let node = pods[here].node;
        let end = |pod: usize| {
            let pod = &pods[pod];
            End { ip: &pod.ip, endpoint: if pod.node == node { &pod.local } else { &pod.remote } }
        };
        let (source, destination) = (end(sender), end(receiver));
        let uuid = self.random.wide();
        let node = self.world.nodes[node].as_str();
        Flow { at, uuid, node, source, destination, transport, event, direction }.write(line);
    }
}

impl Connection {
    /// A worker calls its master, or its neighbour in the ring.
    fn open(open: &[&Job], random: &mut Random) -> Self {
        let members = &open[random.index(open.len())].members;
        let from = random.index(members.len() - 1) + 1;
        let neighbour = random.below(2) == 1 && members.len() > 2;
        let (to, destination) = match neighbour {
            true if from + 1 < members.len() => (from + 1, random.ephemeral()),
            true => (1, random.ephemeral()),
            false => (0, RENDEZVOUS),
        };
        Self { from: members[from], to: members[to], source: random.ephemeral(), destination, step: 0 }
    }
}

impl Attempt {
    /// The next SYN: from the same port as before, until the kernel would give up.
    fn send(&mut self, random: &mut Random) {
        if self.sent.is_multiple_of(7) {
            self.source = random.ephemeral();
        }
        self.sent += 1;
    }
}

/// A small generator of random numbers (`SplitMix64`, public domain): the same seed gives the same bytes.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `limit`, which is not 0.
    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// A port of Linux' default ephemeral range.
    fn ephemeral(&mut self) -> u16 {
        32_768 + self.below(28_232) as u16
    }

    fn wide(&mut self) -> u128 {
        u128::from(self.next()) << 64 | u128::from(self.next())
    }
}

#[cfg(test)]
mod tests;

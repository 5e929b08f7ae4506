//! The kernel as a source. Enters: what the probes tell; leaves: observations with the pods' UIDs, on the node where
//! they happened. Must not know jobs or findings.

mod clock;
mod drops;
pub mod kernel;
pub mod probes;
mod recognise;
mod sockets;
pub mod whose;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use aya::Btf;
use firedoor_core::observation::{Loss, Observation, SourceKind};
use firedoor_core::time::Timestamp;
use firedoor_ebpf::user::{give_back_memory, monotonic_ns};
use firedoor_ebpf::{AF_INET, DROP_KEYS, DropKey, EventKind, STATS, SocketRecord, Stat};

use crate::source::placement::Placement;
use clock::Clock;
use drops::{DropTotals, New};
use kernel::Kernel;
pub use probes::{Hook, ProbeError, Probes};
use sockets::{Sockets, whose_socket};
use whose::{Owner, Owners, cgroup2_mount, namespace_inode};

/// A node whose pods this kernel runs. One, unless nodes are containers themselves (kind, the lab).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObservedNode {
    /// Its name.
    pub name: Arc<str>,
    /// The file of its network namespace; `None`: this process's own.
    pub netns: Option<PathBuf>,
}

/// How to observe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EbpfSettings {
    /// The nodes on this kernel.
    pub nodes: Vec<ObservedNode>,
    /// Where the host's control groups (version 2) are mounted; `None`: look it up.
    pub cgroups: Option<PathBuf>,
    /// How often the counters of live sockets are read.
    pub sample_every: Duration,
    /// Sockets followed at a time.
    pub slots: u32,
}

/// How often drops are read: what a report may lag behind.
const DROPS_EVERY: Duration = Duration::from_millis(500);
/// ... while there are very many different ones, which is a flood or a scan: reading thousands of entries costs
/// milliseconds.
const DROPS_EVERY_IN_A_FLOOD: Duration = Duration::from_secs(2);

/// After how long older connections are looked for once more: some were just opening the first time.
const SEED_AGAIN: Duration = Duration::from_secs(2);
/// For how long events of a pod wait that the inventory does not know yet: the kernel is faster than any API server.
const HOLD: Duration = Duration::from_secs(10);
/// How many such events wait at most; what comes beyond is lost, and counted.
const MOST_HELD: usize = 8192;
/// The inode of the host's PID namespace (`PROC_PID_INIT_INO`, `include/linux/proc_ns.h`; the same since 3.8).
const INIT_PID_NAMESPACE: u32 = 0xefff_fffc;
/// For how long first bytes are watched after a pod opened or accepted a connection.
const YOUNG: Duration = Duration::from_secs(10);

/// How long to wait after so many entries were read.
#[must_use]
pub fn pause_after(entries: usize) -> Duration {
    if entries > DROP_KEYS as usize / 4 { DROPS_EVERY_IN_A_FLOOD } else { DROPS_EVERY }
}

/// The nodes of this kernel and where they are.
pub(crate) struct Nodes {
    names: Vec<Arc<str>>,
    by_netns: Vec<(u32, Arc<str>)>,
}

impl Nodes {
    fn new(nodes: &[ObservedNode]) -> Self {
        let own = || PathBuf::from("/proc/self/ns/net");
        let by_netns = nodes.iter().filter_map(|node| {
            Some((namespace_inode(&node.netns.clone().unwrap_or_else(own))?, Arc::clone(&node.name)))
        });
        Self {
            by_netns: by_netns.collect(),
            names: nodes.iter().map(|node| Arc::clone(&node.name)).collect(),
        }
    }

    /// The only node, where there is only one.
    fn only(&self) -> Option<&Arc<str>> {
        if let [only] = self.names.as_slice() { Some(only) } else { None }
    }

    /// The node whose own network namespace this is.
    fn of_netns(&self, netns: u32) -> Option<&Arc<str>> {
        self.by_netns.iter().find(|(inode, _)| *inode == netns).map(|(_, name)| name)
    }

    /// Whether the network namespace of each node was named: what happens in any other that is no pod's is not theirs.
    fn are_complete(&self) -> bool {
        self.by_netns.len() == self.names.len() && self.names.len() > 1
    }

    fn has(&self, name: &str) -> bool {
        self.names.iter().any(|node| **node == *name)
    }
}

/// The kernel as a source.
pub struct EbpfSource {
    settings: EbpfSettings,
    probes: Probes,
    nodes: Nodes,
    owners: Owners,
    placement: Placement,
    clock: Clock,
    sockets: Sockets,
    drops: DropTotals,
    stats: [u64; STATS as usize],
    next_sample: u64,
    next_drops: u64,
    seed_at: Option<u64>,
    young_until: u64,
    /// Events of pods that the inventory does not know yet, with the time until which they wait.
    held: VecDeque<(u64, SocketRecord)>,
    held_lost: u64,
    notes: Vec<String>,
}

impl EbpfSource {
    /// Attaches the probes and looks for what was there before them.
    ///
    /// # Errors
    /// When the kernel shows nothing at all.
    pub fn start(settings: EbpfSettings) -> Result<Self, ProbeError> {
        let kernel = Kernel::running()?;
        let btf = Btf::from_sys_fs().map_err(|why| ProbeError::Refused(why.to_string()))?;
        let mut probes = Probes::attach(&kernel, &btf, settings.slots)?;
        drop(btf);
        let mut notes = kernel.notes.clone();
        let cgroups = settings.cgroups.clone().or_else(|| {
            let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
            cgroup2_mount(&mounts)
        });
        if cgroups.is_none() {
            notes.push(
                "control groups of version 2 are not mounted here: pods are told by network namespace"
                    .to_owned(),
            );
        }
        let nodes = Nodes::new(&settings.nodes);
        for ObservedNode { name, netns } in &settings.nodes {
            if let Some(file) = netns.as_ref().filter(|file| namespace_inode(file).is_none()) {
                notes.push(format!(
                    "node {name}: its network namespace {} cannot be read: where drops happen is told by address alone",
                    file.display()
                ));
            }
        }
        let mut host: Vec<u32> = nodes.by_netns.iter().map(|(inode, _)| *inode).collect();
        host.extend(
            ["/proc/1/ns/net", "/proc/self/ns/net"].iter().filter_map(|file| namespace_inode(file.as_ref())),
        );
        host.sort_unstable();
        host.dedup();
        if namespace_inode("/proc/self/ns/pid".as_ref()) != Some(INIT_PID_NAMESPACE) {
            notes.push(
                "not in the host's PID namespace: connections older than the agent are not seen (hostPID)"
                    .to_owned(),
            );
        }
        // The kernel's type information took megabytes, and is needed no more.
        give_back_memory();
        let now = monotonic_ns();
        if let Err(why) = probes.seed() {
            notes.push(format!("connections older than the agent are not seen: {why}"));
        }
        Ok(Self {
            owners: Owners::new(cgroups, PathBuf::from("/proc"), host),
            placement: Placement::default(),
            clock: Clock::new(Timestamp::MIN, now),
            sockets: Sockets::default(),
            drops: DropTotals::new(kernel.drop_reasons),
            stats: probes.stats(),
            next_sample: now,
            next_drops: now,
            seed_at: Some(now + nanos(SEED_AGAIN)),
            young_until: 0,
            held: VecDeque::new(),
            held_lost: 0,
            notes,
            probes,
            nodes,
            settings,
        })
    }

    /// All hooks and what became of them.
    #[must_use]
    pub fn hooks(&self) -> &[Hook] {
        self.probes.hooks()
    }

    /// What is not seen, and why.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The probes.
    #[must_use]
    pub fn probes(&self) -> &Probes {
        &self.probes
    }

    /// Where the pods are, from now on.
    pub fn place(&mut self, placement: Placement) {
        self.placement = placement;
    }

    /// Tells everything that happened since it was last asked. To be called several times a second: socket events
    /// wait in a ring of bounded size.
    ///
    /// # Errors
    /// When the kernel stops answering.
    pub fn poll(&mut self, wall: Timestamp, tell: &mut dyn FnMut(Observation<'_>)) -> Result<(), ProbeError> {
        let now = monotonic_ns();
        self.clock = Clock::new(wall, now);
        if self.seed_at.is_some_and(|at| now >= at) {
            self.seed_at = None;
            if self.probes.seed().is_err() {
                self.notes.push("the second look for older connections failed".to_owned());
            }
        }
        self.events(now, tell);
        if now >= self.next_sample {
            self.next_sample = now + nanos(self.settings.sample_every);
            self.sample(wall, now, tell)?;
        }
        if now >= self.next_drops {
            self.read_drops(now, tell)?;
            self.next_drops = now + nanos(pause_after(self.drops.entries()));
            self.losses(wall, tell);
        }
        self.probes.recognise(now < self.young_until);
        Ok(())
    }

    /// The last look: everything that is still to be told, then the probes go.
    ///
    /// # Errors
    /// When the kernel does not answer any more.
    pub fn finish(
        mut self,
        wall: Timestamp,
        tell: &mut dyn FnMut(Observation<'_>),
    ) -> Result<(), ProbeError> {
        let now = monotonic_ns();
        self.clock = Clock::new(wall, now);
        self.events(now, tell);
        // Nobody will come to know more.
        for (until, _) in &mut self.held {
            *until = 0;
        }
        self.events(now, tell);
        self.sample(wall, now, tell)?;
        self.drops.hold_nothing();
        self.read_drops(now, tell)?;
        self.losses(wall, tell);
        Ok(())
    }

    fn events(&mut self, now: u64, tell: &mut dyn FnMut(Observation<'_>)) {
        let Self { probes, owners, placement, nodes, clock, sockets, young_until, held, held_lost, .. } =
            self;
        let mut nobodys = Vec::new();
        let mut take = |record: &SocketRecord, until: u64, held: &mut VecDeque<(u64, SocketRecord)>| {
            let Some(kind) = EventKind::from_u32(record.kind) else { return };
            let whose = whose_socket(&record.identity, owners, placement, nodes, now);
            match &whose.owner {
                Owner::Nobody => {
                    nobodys.push(record.identity.cgroup);
                    return;
                }
                // All events of this pod wait, so that they stay in order.
                Owner::Pod(uid) if placement.pod(uid).is_none() && now < until => {
                    if held.len() < MOST_HELD {
                        held.push_back((until, *record));
                    } else {
                        *held_lost += 1;
                    }
                    return;
                }
                Owner::Pod(_) if is_young(kind) => *young_until = now + nanos(YOUNG),
                Owner::Pod(_) | Owner::Unknown => {}
            }
            if let Some(event) = sockets.step(record, kind, &whose, clock) {
                tell(Observation::Socket(event));
            }
        };
        for (until, record) in std::mem::take(held) {
            take(&record, until, held);
        }
        probes.events(|record| take(record, now + nanos(HOLD), held));
        for cgroup in nobodys {
            self.probes.ignore(cgroup);
        }
    }

    fn sample(
        &mut self,
        wall: Timestamp,
        now: u64,
        tell: &mut dyn FnMut(Observation<'_>),
    ) -> Result<(), ProbeError> {
        if !self.probes.can_sample() {
            return Ok(());
        }
        let Self { probes, owners, placement, nodes, sockets, .. } = self;
        sockets.begin_pass();
        probes.sample(|identity, counters| {
            let whose = whose_socket(identity, owners, placement, nodes, now);
            match &whose.owner {
                Owner::Nobody => return,
                // The next pass tells it, when the inventory knows whose it is.
                Owner::Pod(uid) if placement.pod(uid).is_none() => return sockets.keep(identity, counters),
                Owner::Pod(_) | Owner::Unknown => {}
            }
            if let Some(event) = sockets.sampled(identity, counters, &whose, wall) {
                tell(Observation::Socket(event));
            }
        })?;
        sockets.end_pass();
        Ok(())
    }

    fn read_drops(&mut self, now: u64, tell: &mut dyn FnMut(Observation<'_>)) -> Result<(), ProbeError> {
        let Self { probes, owners, placement, nodes, clock, drops, .. } = self;
        let mut tell_new = |new: &New<'_>, owners: &mut Owners| {
            let place = drops::place(new, owners, placement, nodes, now);
            if let Some(observed) = drops::observation(new, &place, clock) {
                tell(Observation::Drops(observed));
            }
        };
        let owners = RefCell::new(owners);
        let mut known = |key: &DropKey| drops::known(key, &mut owners.borrow_mut(), placement, nodes, now);
        let mut found = |new: &New<'_>| tell_new(new, &mut owners.borrow_mut());
        let idle = drops.update(probes.drops()?, now, &mut known, &mut found);
        for key in idle {
            // Whatever came between the reading and the forgetting is told, too.
            if let Some(last) = probes.forget(&key)
                && let Some(rest) = drops.settle(&key, &last)
            {
                found(&rest);
            }
        }
        Ok(())
    }

    fn losses(&mut self, wall: Timestamp, tell: &mut dyn FnMut(Observation<'_>)) {
        let stats = self.probes.stats();
        let observer = self.nodes.only().map(|name| &**name);
        let count = std::mem::take(&mut self.held_lost);
        if count > 0 {
            let (at, source) = (Some(wall), SourceKind::Ebpf);
            tell(Observation::Lost(Loss { at, observer, source, cause: "unknown-pod", count }));
        }
        for (stat, cause) in
            [(Stat::RingLost, "ring"), (Stat::DropsOverflow, "drops"), (Stat::SlotsFull, "slots")]
        {
            let index = stat as usize;
            let count = stats[index].saturating_sub(self.stats[index]);
            if count > 0 {
                tell(Observation::Lost(Loss {
                    at: Some(wall),
                    observer,
                    source: SourceKind::Ebpf,
                    cause,
                    count,
                }));
            }
        }
        self.stats = stats;
    }
}

/// Whether the first bytes of a connection may come now.
fn is_young(kind: EventKind) -> bool {
    matches!(kind, EventKind::Opening | EventKind::Established | EventKind::Listening)
}

/// The address as the kernel keeps it; IPv4 inside IPv6 comes out as IPv4.
pub(crate) fn address(family: u16, bytes: &[u8; 16]) -> IpAddr {
    if family == AF_INET {
        let [a, b, c, d, ..] = *bytes;
        return IpAddr::from([a, b, c, d]);
    }
    IpAddr::from(*bytes).to_canonical()
}

/// Nothing of a conversation within one network namespace concerns a network.
pub(crate) fn is_local(record: &SocketRecord) -> bool {
    let identity = &record.identity;
    address(identity.family, &identity.remote_addr).is_loopback()
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

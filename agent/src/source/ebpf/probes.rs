//! The probes in the kernel: loaded, attached, asked and taken off again. Every hook is optional; one that the
//! kernel refuses is told with the reason and what is therefore not seen.

use std::io;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use aya::maps::{Array, Map, MapData, PerCpuArray, RingBuf};
use aya::programs::{Iter, Program};
use aya::{Btf, Ebpf, EbpfLoader};
use firedoor_ebpf::user::{DropBatch, SlotTable, run};
use firedoor_ebpf::{Counters, DropKey, DropTally, Identity, STATS, SocketRecord};

use super::kernel::{Kernel, KernelError};

/// Sockets read in one go: what bounds how long the kernel is busy without a break.
const CHUNK: u64 = 256;

/// The object with the probes, built by `cargo xtask ebpf`.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/firedoor-ebpf"));

/// Why the probes cannot be used at all.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The kernel cannot be read.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The kernel does not take them.
    #[error(
        "the kernel does not take the probes: {0} (this needs CAP_BPF and CAP_PERFMON, and a kernel from 5.15 on)"
    )]
    Refused(String),
    /// A map of the probes is missing or of the wrong kind.
    #[error("the probes have no usable map {0}")]
    Map(&'static str),
    /// A call to the kernel failed.
    #[error("{what}: {why}")]
    Call {
        /// What was being done.
        what: &'static str,
        /// What it said.
        why: io::Error,
    },
}

/// A hook and what became of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hook {
    /// The tracepoint or iterator.
    pub name: &'static str,
    /// What it shows.
    pub sees: &'static str,
    /// Why it is not there; `None`: it is.
    pub missing: Option<String>,
}

/// What a map of the probes holds at most.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MapMemory {
    /// The map.
    pub name: String,
    /// Keys and values, in bytes; the kernel's own bookkeeping comes on top.
    pub bytes: u64,
}

/// One pass over all live sockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pass {
    /// Sockets that were read.
    pub sockets: u64,
    /// The longest the kernel was busy without a break.
    pub longest_chunk: Duration,
}

/// What the kernel accounted for a program, while it accounts (`kernel.bpf_stats_enabled`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProgramCost {
    /// The program.
    pub name: String,
    /// How often it ran.
    pub runs: u64,
    /// For how long in all.
    pub time: Duration,
}

/// What each program hooks and shows.
const HOOKS: [(&str, &str, &str); 6] = [
    ("socket_state", "inet_sock_set_state", "connections that open, fail and end"),
    ("socket_destroyed", "tcp_destroy_sock", "sockets that die without closing"),
    ("syn_retried", "tcp_retransmit_skb", "connection attempts that nobody answers"),
    ("reset_received", "tcp_receive_reset", "resets received"),
    ("reset_sent", "tcp_send_reset", "resets sent"),
    ("packet_dropped", "kfree_skb", "dropped packets"),
];

/// The probes.
pub struct Probes {
    ebpf: Ebpf,
    slots: SlotTable,
    high_water: Array<MapData, u64>,
    events: RingBuf<MapData>,
    stats: PerCpuArray<MapData, u64>,
    ignored: aya::maps::HashMap<MapData, u64, u8>,
    batch: DropBatch,
    hooks: Vec<Hook>,
    memory: Vec<MapMemory>,
    can_sample: bool,
    recognising: Recognising,
}

/// The hook that is attached only while connections are young.
enum Recognising {
    Off,
    On(aya::programs::tp_btf::BtfTracePointLinkId),
    Impossible,
}

impl Probes {
    /// Loads and attaches all that the kernel takes, with room for so many sockets. They go when this is dropped.
    ///
    /// # Errors
    /// When nothing can be seen at all.
    pub fn attach(kernel: &Kernel, btf: &Btf, slots: u32) -> Result<Self, ProbeError> {
        let refused = |error: &dyn std::error::Error| ProbeError::Refused(told(error));
        let mut ebpf = EbpfLoader::new()
            .btf(Some(btf))
            .override_global("OFFSETS", &kernel.offsets, true)
            .override_global("CONFIG", &kernel.config, true)
            .override_global("IGNORED_REASONS", &kernel.ignored, true)
            // Off, and removed by the verifier: unset it means everything, and every event would be written for nobody.
            .override_global("AYA_LOG_LEVEL", &0_u8, true)
            .map_max_entries("SLOTS", slots)
            .map_max_entries("FREE", slots)
            .map_max_entries("INDEX", slots)
            .load(OBJECT)
            .map_err(|e| refused(&e))?;
        let mut hooks = Vec::new();
        for (program, tracepoint, sees) in HOOKS {
            let missing = if kernel.tracepoints.contains(&tracepoint) {
                hook(&mut ebpf, program, tracepoint, btf).err()
            } else {
                Some("this kernel does not have it".to_owned())
            };
            hooks.push(Hook { name: tracepoint, sees, missing });
        }
        if hooks.iter().all(|hook| hook.missing.is_some()) {
            let why = hooks.iter().find_map(|hook| hook.missing.clone());
            return Err(ProbeError::Refused(why.unwrap_or_default()));
        }
        let sampling = load_sample(&mut ebpf).err();
        let can_sample = sampling.is_none();
        hooks.push(Hook {
            name: "sample",
            sees: "bytes and round-trip times of live connections",
            missing: sampling,
        });
        let seeding = load_seed(&mut ebpf, btf).err();
        hooks.push(Hook { name: "task_file", sees: "connections older than the agent", missing: seeding });
        let recognition = load_recognition(&mut ebpf, btf, kernel).err();
        let recognising = if recognition.is_some() { Recognising::Impossible } else { Recognising::Off };
        hooks.push(Hook { name: "sk_data_ready", sees: "protocols, by first bytes", missing: recognition });
        let memory = memory(&ebpf);
        let map = |ebpf: &mut Ebpf, name| ebpf.take_map(name).ok_or(ProbeError::Map(name));
        let table = match map(&mut ebpf, "SLOTS")? {
            Map::Array(table) => table,
            _ => return Err(ProbeError::Map("SLOTS")),
        };
        Ok(Self {
            slots: SlotTable::map(&table)
                .map_err(|why| ProbeError::Call { what: "cannot map the table of sockets", why })?,
            high_water: map(&mut ebpf, "HIGH_WATER")?
                .try_into()
                .map_err(|_| ProbeError::Map("HIGH_WATER"))?,
            events: map(&mut ebpf, "EVENTS")?.try_into().map_err(|_| ProbeError::Map("EVENTS"))?,
            stats: map(&mut ebpf, "STATS")?.try_into().map_err(|_| ProbeError::Map("STATS"))?,
            ignored: map(&mut ebpf, "IGNORED")?.try_into().map_err(|_| ProbeError::Map("IGNORED"))?,
            batch: DropBatch::default(),
            memory,
            ebpf,
            hooks,
            can_sample,
            recognising,
        })
    }

    /// All hooks and what became of them.
    #[must_use]
    pub fn hooks(&self) -> &[Hook] {
        &self.hooks
    }

    /// Whether bytes and round-trip times of live connections can be read.
    #[must_use]
    pub fn can_sample(&self) -> bool {
        self.can_sample
    }

    /// Takes all socket events that wait.
    pub fn events(&mut self, mut each: impl FnMut(&SocketRecord)) {
        while let Some(bytes) = self.events.next() {
            if let Some(record) = SocketRecord::from_bytes(&bytes) {
                each(&record);
            }
        }
    }

    /// Reads the counters of all live sockets, a chunk at a time.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn sample(&mut self, mut each: impl FnMut(&Identity, &Counters)) -> Result<Pass, ProbeError> {
        let failed = |why| ProbeError::Call { what: "cannot read the counters of live sockets", why };
        let used = self.high_water.get(&0, 0).map_err(|e| failed(io::Error::other(e)))?;
        let used = used.min(self.slots.len() as u64);
        let Some(Program::RawTracePoint(program)) = self.ebpf.program("sample_sockets") else {
            return Ok(Pass::default());
        };
        let program = program.fd().map_err(|e| failed(io::Error::other(e)))?.as_fd();
        let (mut pass, mut first) = (Pass::default(), 0);
        while first < used {
            let number = CHUNK.min(used - first);
            let begun = Instant::now();
            pass.sockets += u64::from(run(program, &[first, number]).map_err(failed)?);
            pass.longest_chunk = pass.longest_chunk.max(begun.elapsed());
            for slot in first..first + number {
                if let Some((identity, counters)) = usize::try_from(slot).ok().and_then(|s| self.slots.get(s))
                {
                    each(&identity, &counters);
                }
            }
            first += number;
        }
        Ok(pass)
    }

    /// Finds the connections that are older than the probes; how many.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn seed(&mut self) -> Result<usize, ProbeError> {
        let failed = |why| ProbeError::Call { what: "cannot look for older connections", why };
        let Some(Program::Iter(program)) = self.ebpf.program_mut("seed_sockets") else { return Ok(0) };
        let opened =
            program.attach().and_then(|id| program.take_link(id)).map_err(|e| failed(io::Error::other(e)))?;
        let mut file = opened.into_file().map_err(|e| failed(io::Error::other(e)))?;
        let (mut found, mut buffer) = (0, [0; 4096]);
        loop {
            match file.read(&mut buffer) {
                Ok(0) => return Ok(found / size_of::<u64>()),
                Ok(read) => found += read,
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) => return Err(failed(why)),
            }
        }
    }

    /// All drops that are counted now: totals since their entry was made.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn drops(&mut self) -> Result<impl Iterator<Item = (&DropKey, &DropTally)>, ProbeError> {
        let failed = |why| ProbeError::Call { what: "cannot read the drops", why };
        let Some(Map::HashMap(map)) = self.ebpf.map("DROPS") else { return Err(ProbeError::Map("DROPS")) };
        self.batch.read(map).map_err(failed)
    }

    /// Forgets an entry; its last totals, in case it grew meanwhile.
    pub fn forget(&mut self, key: &DropKey) -> Option<DropTally> {
        let map = self.ebpf.map_mut("DROPS")?;
        let mut map = aya::maps::HashMap::<_, DropKey, DropTally>::try_from(map).ok()?;
        let last = map.get(key, 0).ok()?;
        map.remove(key).ok()?;
        Some(last)
    }

    /// The probes' own counters.
    #[must_use]
    pub fn stats(&self) -> [u64; STATS as usize] {
        std::array::from_fn(|index| {
            let index = u32::try_from(index).unwrap_or(0);
            self.stats.get(&index, 0).map_or(0, |values| values.iter().sum())
        })
    }

    /// Sockets of this control group are nobody's business from now on.
    pub fn ignore(&mut self, cgroup: u64) {
        // Best effort: what is not ignored in the kernel is ignored here.
        let _ = self.ignored.insert(cgroup, 1, 0);
    }

    /// Watches first bytes, or stops doing so.
    pub fn recognise(&mut self, wanted: bool) {
        let Some(Program::BtfTracePoint(program)) = self.ebpf.program_mut("first_bytes") else { return };
        match (wanted, std::mem::replace(&mut self.recognising, Recognising::Impossible)) {
            (true, Recognising::Off) => {
                self.recognising = program.attach().map_or(Recognising::Impossible, Recognising::On);
            }
            (false, Recognising::On(link)) => {
                self.recognising = match program.detach(link) {
                    Ok(()) => Recognising::Off,
                    Err(_) => Recognising::Impossible,
                };
            }
            (_, unchanged) => self.recognising = unchanged,
        }
    }

    /// What the kernel accounted for each program so far.
    #[must_use]
    pub fn costs(&self) -> Vec<ProgramCost> {
        let programs = self.ebpf.programs().filter_map(|(name, program)| {
            let info = program.info().ok()?;
            Some(ProgramCost { name: name.to_owned(), runs: info.run_count(), time: info.run_time() })
        });
        programs.collect()
    }

    /// What each map holds at most.
    #[must_use]
    pub fn memory(&self) -> &[MapMemory] {
        &self.memory
    }
}

fn memory(ebpf: &Ebpf) -> Vec<MapMemory> {
    let entries = |data: &MapData| data.info().ok();
    let of = |map: &Map| match map {
        Map::HashMap(data) | Map::LruHashMap(data) | Map::Array(data) | Map::Stack(data) => {
            let info = entries(data)?;
            Some(u64::from(info.max_entries()) * u64::from(info.key_size() + info.value_size()))
        }
        Map::PerCpuArray(data) => {
            let (info, cpus) = (entries(data)?, aya::util::nr_cpus().ok()?);
            Some(u64::from(info.max_entries()) * u64::from(info.value_size()) * cpus as u64)
        }
        Map::RingBuf(data) => Some(u64::from(entries(data)?.max_entries())),
        _ => None,
    };
    let mut memory: Vec<MapMemory> = ebpf
        .maps()
        .filter_map(|(name, map)| Some(MapMemory { name: name.to_owned(), bytes: of(map)? }))
        .collect();
    memory.sort_by(|a, b| a.name.cmp(&b.name));
    memory
}

fn hook(ebpf: &mut Ebpf, program: &str, tracepoint: &str, btf: &Btf) -> Result<(), String> {
    let Some(Program::BtfTracePoint(program)) = ebpf.program_mut(program) else {
        return Err("the object holds no such program".to_owned());
    };
    program.load(tracepoint, btf).map_err(|e| told(&e))?;
    program.attach().map_err(|e| told(&e))?;
    Ok(())
}

fn load_sample(ebpf: &mut Ebpf) -> Result<(), String> {
    match ebpf.program_mut("sample_sockets") {
        Some(Program::RawTracePoint(program)) => program.load().map_err(|e| told(&e)),
        _ => Err("the object holds no such program".to_owned()),
    }
}

fn load_seed(ebpf: &mut Ebpf, btf: &Btf) -> Result<(), String> {
    match ebpf.program_mut("seed_sockets") {
        Some(Program::Iter(program)) => Iter::load(program, "task_file", btf).map_err(|e| told(&e)),
        _ => Err("the object holds no such program".to_owned()),
    }
}

fn load_recognition(ebpf: &mut Ebpf, btf: &Btf, kernel: &Kernel) -> Result<(), String> {
    if !kernel.tracepoints.contains(&"sk_data_ready") {
        return Err("this kernel does not have it (6.3 and later do)".to_owned());
    }
    match ebpf.program_mut("first_bytes") {
        Some(Program::BtfTracePoint(program)) => program.load("sk_data_ready", btf).map_err(|e| told(&e)),
        _ => Err("the object holds no such program".to_owned()),
    }
}

/// The whole story in one line; a verifier's log by its end, where the reason stands.
fn told(error: &dyn std::error::Error) -> String {
    let mut story: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let text = error.to_string();
        // Some repeat the one that they wrap, or begin with what it says.
        story.retain(|told| !text.contains(told.as_str()));
        if !story.iter().any(|told| told.contains(&text)) {
            story.push(text);
        }
        next = error.source();
    }
    let story = story.join(": ");
    let line = story.split_whitespace().collect::<Vec<_>>().join(" ");
    let from = line.char_indices().rev().nth(600).map_or(0, |(at, _)| at);
    if from == 0 { line } else { format!("... {}", &line[from..]) }
}

//! The probes attached and removed a thousand times. Alone in its process: what the other tests hold while they run
//! beside it would be counted as left behind. Needs root and a kernel with type information, as `kernel` does.

use std::time::{Duration, Instant};

use aya::Btf;
use firedoor::source::ebpf::Probes;
use firedoor::source::ebpf::kernel::Kernel;

/// Generous: the kernel frees programs and maps when it finds the time.
const DEADLINE: Duration = Duration::from_secs(60);
const ROUNDS: u32 = 4;
const CYCLES_PER_ROUND: u32 = 250;
const PAGE_BYTES: u64 = 4096;

/// How many programs, maps and links of ours the kernel holds.
#[derive(Debug)]
struct Held {
    programs: usize,
    maps: usize,
    links: usize,
}

fn held() -> Held {
    let programs = ["socket_state", "packet_dropped", "syn_retried", "sample_sockets", "first_bytes"];
    let maps = ["SLOTS", "INDEX", "DROPS", "EVENTS", "HIGH_WATER"];
    Held {
        programs: aya::programs::loaded_programs()
            .flatten()
            .filter(|program| program.name_as_str().is_some_and(|name| programs.contains(&name)))
            .count(),
        maps: aya::maps::loaded_maps()
            .flatten()
            .filter(|map| map.name_as_str().is_some_and(|name| maps.contains(&name)))
            .count(),
        links: aya::programs::loaded_links().flatten().count(),
    }
}

/// Bytes of memory this process holds.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * PAGE_BYTES
}

#[test]
fn nothing_is_left_behind() {
    let kernel = Kernel::running().expect("the kernel can be read");
    let btf = Btf::from_sys_fs().expect("the kernel shows its types");
    let cycle = || drop(Probes::attach(&kernel, &btf, 256).expect("the probes attach: this needs root"));
    let before = held();
    // What leaks does so in every round; an allocator that asks for another arena does not.
    let growth = (0..ROUNDS).map(|_| {
        let memory = resident();
        (0..CYCLES_PER_ROUND).for_each(|_| cycle());
        resident().saturating_sub(memory)
    });
    let growth: Vec<u64> = growth.collect();
    let least = growth.iter().min().unwrap();
    assert!(*least < 1 << 20, "each {CYCLES_PER_ROUND} cycles left bytes behind: {growth:?}");
    let end = Instant::now() + DEADLINE;
    loop {
        let now = held();
        // Another agent on this machine may begin or end meanwhile; a thousand cycles would leave thousands.
        if now.programs <= before.programs + 10
            && now.maps <= before.maps + 10
            && now.links <= before.links + 20
        {
            break;
        }
        assert!(Instant::now() < end, "{before:?} before, {now:?} after");
        std::thread::sleep(Duration::from_millis(20));
    }
}

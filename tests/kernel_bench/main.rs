//! What the probes cost, beside the usual ways to count bytes, in one run: `cargo xtask bench ebpf`. Needs root.
//! The kernel accounts the time of every program itself (BPF_ENABLE_STATS), which resolves what throughput on a busy
//! machine cannot.

#![expect(clippy::print_stdout, reason = "a person reads it")]
#![allow(clippy::cast_precision_loss)] // figures for people

#[path = "../kernel/namespaces.rs"]
#[allow(dead_code, reason = "the tests need more of it")]
mod namespaces;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use aya::programs::links::CgroupAttachMode;
use aya::programs::{CgroupSkb, CgroupSkbAttachType, Program, SchedClassifier, TcAttachType};
use aya::{Btf, Ebpf};
use firedoor::source::ebpf::kernel::Kernel;
use firedoor::source::ebpf::{Probes, pause_after};
use firedoor_ebpf::{DEFAULT_SLOTS, Stat};
use namespaces::Namespace;

/// Bytes sent to compare the hooks.
const BYTES: u64 = 4 << 30;
/// How often live sockets are read while they flow.
const SAMPLE: Duration = Duration::from_secs(1);
/// Pods of the live sample.
const PODS: usize = 50;
/// How long the drop flood lasts.
const FLOOD: Duration = Duration::from_secs(5);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["receive", port] => receive(port.parse().unwrap()),
        ["send", to, bytes] => send(to.parse().unwrap(), bytes.parse().unwrap()),
        ["hold", pairs] => hold(pairs.parse().unwrap()),
        ["hooks", sender, receiver, target] => hooks(sender, receiver, target),
        ["flood", to, seconds] => flood(to.parse().unwrap(), seconds.parse().unwrap()),
        _ => measure(),
    }
}

fn measure() {
    let kernel = Kernel::running().expect("the kernel can be read");
    let btf = Btf::from_sys_fs().expect("the kernel shows its types");
    let _accounting = aya::sys::enable_stats(aya::sys::Stats::RunTime).expect("accounting: this needs root");
    println!("kernel {}", std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap().trim());
    println!("\n## TCP, {} GiB between two namespaces: CPU-ms per GB", BYTES >> 30);
    for (label, segments) in [("segments of up to 64 KiB", None), ("segments of the MTU's size", Some(1))] {
        println!("\n{label}:");
        let [sender, receiver] = Namespace::pair("hooks");
        if let Some(segments) = segments {
            sender.limit_segments(segments);
        }
        let target = SocketAddr::from((receiver.address(), 5201)).to_string();
        // Programs are attached to the interfaces of the namespace a process is in.
        let status =
            again(sender.name(), &["hooks", sender.name(), receiver.name(), &target]).status().unwrap();
        assert!(status.success());
    }
    for pairs in [30, 300] {
        live_sample(&kernel, &btf, pairs);
    }
    drop_flood(&kernel, &btf);
}

/// CPU time of this process so far.
fn own_cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

fn again(netns: &str, words: &[&str]) -> Command {
    let own = std::env::current_exe().unwrap();
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{netns}")).arg(own).args(words);
    command
}

/// CPU-milliseconds per gigabyte.
fn per_gigabyte(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0 / (BYTES as f64 / 1e9)
}

fn hooks(sender: &str, receiver: &str, target: &str) {
    let kernel = Kernel::running().unwrap();
    let btf = Btf::from_sys_fs().unwrap();
    let mut probes = Probes::attach(&kernel, &btf, DEFAULT_SLOTS).unwrap();
    let usual = Usual::attach();
    let before: Duration = probes.costs().iter().map(|c| c.time).sum();
    let cpu = own_cpu();
    let begun = Instant::now();
    let mut sink = again(receiver, &["receive", "5201"]).spawn().unwrap();
    let mut source = again(sender, &["send", target, &BYTES.to_string()]).spawn().unwrap();
    let mut passes = 0;
    while source.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(100));
        probes.events(|_| {});
        if begun.elapsed() >= SAMPLE * (passes + 1) {
            passes += 1;
            probes.sample(|_, _| {}).unwrap();
        }
    }
    sink.wait().unwrap();
    let own = own_cpu() - cpu;
    let ours: Duration = probes.costs().iter().map(|c| c.time).sum::<Duration>() - before;
    println!(
        "  firedoor, kernel      {:9.4}  ({:.1} s, {passes} passes)",
        per_gigabyte(ours),
        begun.elapsed().as_secs_f64()
    );
    for (name, time, runs) in usual.costs() {
        let ratio = time.as_secs_f64() / ours.as_secs_f64();
        println!("  {name:<20}  {:9.4}  = {ratio:.0} x firedoor's ({runs} runs)", per_gigabyte(time));
    }
    // It does not grow with the traffic: ten looks and one pass a second, whatever flows.
    let share = 100.0 * own.as_secs_f64() / begun.elapsed().as_secs_f64();
    println!("  firedoor's user space, waiting for the traffic included: {share:.2} % of a core");
}

/// The usual ways to count bytes: a program for each packet.
struct Usual {
    ebpf: Ebpf,
}

impl Usual {
    fn attach() -> Self {
        let object = std::env::current_dir()
            .unwrap()
            .join("../target/bpf/bpfel-unknown-none/release/firedoor-ebpf-bench");
        let mut ebpf = Ebpf::load_file(object).expect("`cargo xtask ebpf` builds it");
        let Some(Program::SchedClassifier(program)) = ebpf.program_mut("count_tc") else {
            panic!("count_tc")
        };
        SchedClassifier::load(program).unwrap();
        program.attach("eth0", TcAttachType::Ingress).unwrap();
        program.attach("eth0", TcAttachType::Egress).unwrap();
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let root =
            firedoor::source::ebpf::whose::cgroup2_mount(&mounts).expect("control groups of version 2");
        let root = std::fs::File::open(root).unwrap();
        for (name, kind) in [
            ("count_cgroup_in", CgroupSkbAttachType::Ingress),
            ("count_cgroup_out", CgroupSkbAttachType::Egress),
        ] {
            let Some(Program::CgroupSkb(program)) = ebpf.program_mut(name) else { panic!("{name}") };
            CgroupSkb::load(program).unwrap();
            program.attach(&root, kind, CgroupAttachMode::Single).unwrap();
        }
        Self { ebpf }
    }

    fn costs(&self) -> Vec<(&'static str, Duration, u64)> {
        let of = |name: &str| {
            let info = self.ebpf.program(name).unwrap().info().unwrap();
            (info.run_time(), info.run_count())
        };
        let (tc, tc_runs) = of("count_tc");
        let ((into, in_runs), (out, out_runs)) = (of("count_cgroup_in"), of("count_cgroup_out"));
        vec![("TC hooks, both ways", tc, tc_runs), ("cgroup_skb, both ways", into + out, in_runs + out_runs)]
    }
}

fn live_sample(kernel: &Kernel, btf: &Btf, pairs: usize) {
    let mut probes = Probes::attach(kernel, btf, 2 * DEFAULT_SLOTS).unwrap();
    let pods: Vec<Namespace> = (0..PODS).map(|n| Namespace::alone(&format!("pod{n}"))).collect();
    let mut holders: Vec<Child> = Vec::new();
    for pod in &pods {
        let mut command = again(pod.name(), &["hold", &pairs.to_string()]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line.trim(), "holding");
        holders.push(child);
        probes.events(|_| {});
    }
    let (mut walls, mut cpus, mut longest, mut sockets) = (Vec::new(), Vec::new(), Duration::ZERO, 0);
    for _ in 0..50 {
        let (wall, cpu) = (Instant::now(), own_cpu());
        let pass = probes.sample(|identity, counters| {
            std::hint::black_box((identity, counters));
        });
        let pass = pass.unwrap();
        walls.push(wall.elapsed());
        cpus.push(own_cpu() - cpu);
        longest = longest.max(pass.longest_chunk);
        sockets = pass.sockets;
    }
    for mut holder in holders {
        drop(holder.stdin.take());
        holder.wait().unwrap();
    }
    walls.sort_unstable();
    cpus.sort_unstable();
    println!("\n## Live sample, {PODS} pods, {sockets} sockets");
    println!(
        "  a pass   {:.2} ms (median of {}; worst {:.2}); CPU {:.2} ms",
        ms(walls[25]),
        walls.len(),
        ms(walls[49]),
        ms(cpus[25])
    );
    println!("  a chunk  {:.3} ms at the longest", ms(longest));
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn drop_flood(kernel: &Kernel, btf: &Btf) {
    let mut probes = Probes::attach(kernel, btf, DEFAULT_SLOTS).unwrap();
    let [sender, receiver] = Namespace::pair("flood");
    for rule in [
        "add table inet t",
        "add chain inet t in { type filter hook input priority 0; }",
        "add counter inet t dropped",
        "add rule inet t in udp dport 1024-65535 counter name dropped drop",
    ] {
        receiver.nft(rule);
    }
    for host in 10..42 {
        sender.add_address(Ipv4Addr::new(10, 79, 0, host));
    }
    let cost = |probes: &Probes| probes.costs().into_iter().find(|c| c.name == "packet_dropped").unwrap();
    let (before, stats) = (cost(&probes), probes.stats());
    let seconds = FLOOD.as_secs().to_string();
    let target = receiver.address().to_string();
    let begun = Instant::now();
    let mut child = again(sender.name(), &["flood", &target, &seconds]).spawn().unwrap();
    let (mut cpu, mut reads) = (Duration::ZERO, 0_u32);
    let mut next = begun;
    while child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(100));
        let own = own_cpu();
        probes.events(|_| {});
        if Instant::now() >= next {
            let entries = probes.drops().unwrap().map(std::hint::black_box).count();
            next = Instant::now() + pause_after(entries);
            reads += 1;
        }
        cpu += own_cpu() - own;
    }
    let took = begun.elapsed();
    let after = cost(&probes);
    let filtered = receiver.nft_counter("inet t dropped");
    let entries: Vec<u64> = probes.drops().unwrap().map(|(_, tally)| tally.packets).collect();
    let counted: u64 = entries.iter().sum();
    let of = |stat: Stat| probes.stats()[stat as usize] - stats[stat as usize];
    let (seen, overflow) = (of(Stat::DropsSeen), of(Stat::DropsOverflow));
    println!("\n## Drop flood: varying ports and sources into a packet filter, {:.1} s", took.as_secs_f64());
    println!("  dropped by the filter  {filtered}  ({:.0} a second)", filtered as f64 / took.as_secs_f64());
    println!(
        "  seen by the probe      {seen} = {counted} counted in {} entries + {overflow} overflow",
        entries.len()
    );
    assert_eq!(seen, counted + overflow, "seen = counted + overflow");
    assert!(seen >= filtered, "{seen} < {filtered}");
    let runs = after.runs - before.runs;
    println!(
        "  in the kernel          {:.0} ns a drop ({runs} runs)",
        (after.time - before.time).as_nanos() as f64 / runs as f64
    );
    println!(
        "  user space             {:.2} % of a core ({reads} readings)",
        100.0 * cpu.as_secs_f64() / took.as_secs_f64()
    );
}

fn receive(port: u16) {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    let mut buffer = vec![0; 1 << 17];
    while stream.read(&mut buffer).unwrap() > 0 {}
}

fn send(to: SocketAddr, bytes: u64) {
    let end = Instant::now() + Duration::from_secs(10);
    let mut stream = loop {
        match TcpStream::connect(to) {
            Ok(stream) => break stream,
            Err(why) => assert!(Instant::now() < end, "{to}: {why}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let buffer = vec![0; 1 << 17];
    for _ in 0..bytes / buffer.len() as u64 {
        stream.write_all(&buffer).unwrap();
    }
}

/// Opens so many connections to itself and holds them until its input ends.
fn hold(pairs: usize) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let target = listener.local_addr().unwrap();
    let mut held = Vec::new();
    for _ in 0..pairs {
        let client = TcpStream::connect(target).unwrap();
        held.push((client, listener.accept().unwrap()));
    }
    println!("holding");
    let _ = std::io::stdin().read(&mut [0]);
}

/// Sends datagrams as fast as it can, from all its addresses and to one port after the other.
fn flood(to: Ipv4Addr, seconds: u64) {
    let sources = (10..42).map(|host| Ipv4Addr::new(10, 79, 0, host));
    let sockets: Vec<UdpSocket> = sources.map(|source| UdpSocket::bind((source, 0)).unwrap()).collect();
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut port: u16 = 1024;
    while Instant::now() < end {
        for socket in &sockets {
            for _ in 0..32 {
                port = port.checked_add(1).unwrap_or(1024);
                // A full queue is what a flood runs into.
                let _ = socket.send_to(&[0; 18], (to, port));
            }
        }
    }
}

//! What an agent holds in memory on a busy node: `cargo xtask bench memory`. A real agent process between an API server and
//! a Hubble server of their kinds, 100,000 live pairs of 4,096 pods, each seen again every ten seconds; the kernel tells
//! the size of the process.

#![expect(clippy::print_stdout, reason = "a person reads it")]
#![allow(clippy::cast_precision_loss)] // figures for people

#[path = "../fakes/kube/mod.rs"]
mod kube;
mod server;
mod world;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kube::FakeKube;
use world::World;

/// What is allowed.
const LIMIT_MIB: f64 = 64.0;
/// From then on every pair was seen in several windows, and windows have closed.
const STEADY: Duration = Duration::from_secs(150);
/// How long it is watched after that.
const WATCHED: Duration = Duration::from_secs(60);
/// How long it may take to know the cluster.
const STARTING: Duration = Duration::from_secs(120);

/// An agent that ends with this process.
struct Agent(Child);

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(measure());
}

async fn measure() {
    let world = World::new();
    let local = world.members.iter().filter(|member| member.local).count();
    println!("{} local pods, {} members, {} pairs of pods", local, world.members.len(), world.pairs.len());
    let directory = tempfile::tempdir().expect("a directory");
    let kube = FakeKube::start().await;
    kube.serve_all_policies();
    kube.serve("kubeflow.org/v1", "PyTorchJob", "pytorchjobs", true);
    kube.put_all(world.objects());
    let kubeconfig = kube.kubeconfig(directory.path());
    let socket = directory.path().join("hubble.sock");
    let told = server::serve(&socket, world);
    let log = std::fs::File::create(directory.path().join("log")).expect("it can be written");
    let child = Command::new(env!("CARGO_BIN_EXE_firedoor-under-test"))
        .args(["agent", "--source", "hubble", "--node", world::NODE, "--listen", "127.0.0.1:0", "--hubble"])
        .arg(format!("unix://{}", socket.display()))
        .arg("--kubeconfig")
        .arg(&kubeconfig)
        .stdin(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("the agent starts");
    let mut agent = Agent(child);
    let began = Instant::now();
    while told() == 0 {
        assert!(began.elapsed() < STARTING, "it asks for no flows: {}", said(directory.path()));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    println!("asked for flows after {:.1} s", began.elapsed().as_secs_f64());
    let (mut most, start) = (0.0_f64, Instant::now());
    let mut steady: Option<(f64, u64)> = None;
    while start.elapsed() < STEADY + WATCHED {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if let Some(status) = agent.0.try_wait().expect("it can be asked") {
            panic!("the agent ended ({status}): {}", said(directory.path()));
        }
        if start.elapsed() >= STEADY {
            most = most.max(memory(&agent, "VmRSS"));
            steady.get_or_insert_with(|| (cpu_seconds(&agent), told()));
        }
    }
    let (cpu, flows) = steady.expect("it was watched");
    let (cpu, flows) = (cpu_seconds(&agent) - cpu, told() - flows);
    let seconds = WATCHED.as_secs_f64();
    println!("flows: {:.0} a second, {:.1} % of a core", flows as f64 / seconds, 100.0 * cpu / seconds);
    println!("resident, most of {seconds:.0} s in steady state: {most:.1} MiB (limit {LIMIT_MIB} MiB)");
    println!("resident, most ever: {:.1} MiB", memory(&agent, "VmHWM"));
    println!("not of files: {:.1} MiB", memory(&agent, "RssAnon"));
    assert!(most < LIMIT_MIB, "the agent is too large");
}

fn said(directory: &std::path::Path) -> String {
    std::fs::read_to_string(directory.join("log")).unwrap_or_default()
}

/// A line of `/proc/PID/status`, in MiB.
fn memory(agent: &Agent, line: &str) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", agent.0.id())).expect("it runs");
    let value = status.lines().find_map(|text| text.strip_prefix(line)?.strip_prefix(':')).expect("the line");
    value.trim().trim_end_matches("kB").trim().parse::<f64>().expect("a number") / 1024.0
}

/// What it computed, in seconds (`utime` and `stime`, in ticks of 10 ms: Linux' USER_HZ).
fn cpu_seconds(agent: &Agent) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", agent.0.id())).expect("it runs");
    let (_, fields) = stat.rsplit_once(')').expect("its form");
    let ticks =
        fields.split_whitespace().skip(11).take(2).map(|field| field.parse::<f64>().expect("a number"));
    ticks.sum::<f64>() / 100.0
}

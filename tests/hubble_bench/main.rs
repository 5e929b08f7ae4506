//! What following Hubble costs, in one run: `cargo xtask bench hubble`. A server on one core, a client on another: the
//! transport alone, firedoor, and a client that decodes every field of the same messages.

#![expect(clippy::print_stdout, reason = "a person reads it")]
#![allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_possible_wrap)] // made-up figures
#![allow(clippy::disallowed_methods, reason = "where the socket goes is an argument")]

mod clients;
mod full;
mod server;
mod world;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Flows of one measurement, after as many as the second says to warm up.
const FLOWS: u64 = 2_000_000;
const WARM: u64 = 200_000;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["serve", path, stream] => server::serve(Path::new(path), stream.parse().unwrap()),
        ["client", name, path] => clients::run(name, Path::new(path)),
        ["memory", name] => clients::in_memory(name),
        _ => measure(),
    }
}

/// The CPU time of this process so far, all its threads, as the kernel accounts it.
fn cpu() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let of = |task: std::fs::DirEntry| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    };
    Duration::from_nanos(tasks.filter_map(of).sum())
}

/// Counts flows, and tells what they cost once there were enough.
struct Meter {
    flows: u64,
    began: Option<(Instant, Duration)>,
}

impl Meter {
    fn new() -> Self {
        Self { flows: 0, began: None }
    }

    /// `true`: enough.
    fn count(&mut self, flows: u64) -> bool {
        self.flows += flows;
        match self.began {
            None => {
                if self.flows >= WARM {
                    self.began = Some((Instant::now(), cpu()));
                    self.flows = 0;
                }
                false
            }
            Some((began, before)) if self.flows >= FLOWS => {
                let (wall, used) = (began.elapsed().as_secs_f64(), (cpu() - before).as_secs_f64());
                let flows = self.flows as f64;
                println!("{:.0} {:.4}", flows / wall, used * 1e6 / flows);
                true
            }
            Some(_) => false,
        }
    }
}

/// Flows a second, and CPU microseconds a flow.
type Figures = (f64, f64);

fn pinned(core: u32, words: &[&str]) -> Command {
    let mut command = Command::new("taskset");
    command.arg("-c").arg(core.to_string()).arg(std::env::current_exe().unwrap()).args(words);
    command
}

/// With the allocator as any other program would have it: firedoor's own settings spare memory, at the cost of programs that
/// allocate much.
fn usual(mut command: Command) -> Command {
    command.env("_RJEM_MALLOC_CONF", "tcache:true,tcache_max:32768,dirty_decay_ms:10000");
    command
}

fn figures(mut command: Command) -> Figures {
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut numbers = text.split_whitespace().map(|number| number.parse().unwrap());
    match (numbers.next(), numbers.next()) {
        (Some(rate), Some(each)) => (rate, each),
        _ => panic!("no figures: {text:?}"),
    }
}

fn line(what: &str, (rate, each): Figures) {
    println!("  {what:<58} {rate:>10.0} {each:>10.3}");
}

fn measure() {
    let as_shipped: fn(Command) -> Command = |command| command;
    let directory = tempfile::tempdir().unwrap();
    let templates = world::templates();
    let bytes: usize = templates.iter().map(|template| template.bytes.len()).sum();
    println!(
        "{} million flows of {} bytes, one DATA frame each; the server on core 1, the client on core 0\n",
        FLOWS / 1_000_000,
        bytes / templates.len()
    );
    println!("  {:<58} {:>10} {:>10}", "", "flows/s", "CPU us");
    let over = |name: &str, stream: &str, client: fn(Command) -> Command| {
        let path = directory.path().join(name);
        let path = path.to_str().unwrap();
        let mut server = usual(pinned(1, &["serve", path, stream])).spawn().unwrap();
        while !Path::new(path).exists() {
            std::thread::sleep(Duration::from_millis(10));
        }
        let told = figures(client(pinned(0, &["client", name, path])));
        server.kill().unwrap();
        server.wait().unwrap();
        told
    };
    // The best of five: what else the machine does only adds.
    let memory = |name: &str, client: fn(Command) -> Command| {
        let runs = (0..5).map(|_| figures(client(pinned(0, &["memory", name]))));
        runs.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap()
    };
    let floor = over("floor", "1", usual);
    line("transport's floor: frames received and dropped", floor);
    let ours = over("firedoor", "5", as_shipped);
    line("firedoor: received, decoded, attributed, counted", ours);
    let received = over("received", "5", as_shipped);
    line("firedoor without counting: received, decoded", received);
    let baseline = over("baseline", "1", usual);
    line("every field decoded: received, decoded, dropped", baseline);
    let counted = over("baseline-counted", "1", usual);
    line("every field decoded, then attributed and counted", counted);
    println!();
    let decode = memory("decode", as_shipped);
    line("decode stage: firedoor", decode);
    let full = memory("decode-full", usual);
    line("decode stage: every field", full);
    let core = memory("count", as_shipped);
    line("decode, attribute and count, from memory", core);
    println!();
    let verdict = |met: bool| if met { "met" } else { "MISSED" };
    println!("  at least 250,000 flows/s end to end: {:.0} ({})", ours.0, verdict(ours.0 >= 250_000.0));
    let ratio = decode.1 / full.1;
    println!("  decode stage at most a fifth of every field's: {ratio:.3} ({})", verdict(ratio <= 0.2));
    let ratio = ours.1 / counted.1;
    println!(
        "  end to end at most half of a client that does the same: {ratio:.3} ({})",
        verdict(ratio <= 0.5)
    );
    let ratio = ours.1 / baseline.1;
    println!("  ... of a client that only decodes: {ratio:.3} ({})", verdict(ratio <= 0.5));
}

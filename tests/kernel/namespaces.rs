//! Two network namespaces with a wire between them. They go when dropped.

use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::process::Command;
use std::time::Duration;

/// A network namespace with one interface.
pub(crate) struct Namespace {
    name: String,
    address: Ipv4Addr,
}

fn run(words: &[&str]) -> String {
    let output =
        Command::new(words[0]).args(&words[1..]).output().unwrap_or_else(|why| panic!("{words:?}: {why}"));
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

impl Namespace {
    /// Two that can reach each other.
    pub(crate) fn pair(label: &str) -> [Self; 2] {
        let name = |end: &str| format!("fdt-{}-{label}-{end}", std::process::id());
        let made = [(name("a"), Ipv4Addr::new(10, 79, 0, 1)), (name("b"), Ipv4Addr::new(10, 79, 0, 2))]
            .map(|(name, address)| Self { name, address });
        let [a, b] = &made;
        run(&["ip", "netns", "add", &a.name]);
        run(&["ip", "netns", "add", &b.name]);
        run(&[
            "ip", "-n", &a.name, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns",
            &b.name,
        ]);
        for end in &made {
            run(&["ip", "-n", &end.name, "link", "set", "lo", "up"]);
            run(&["ip", "-n", &end.name, "addr", "add", &format!("{}/24", end.address), "dev", "eth0"]);
            run(&["ip", "-n", &end.name, "link", "set", "eth0", "up"]);
        }
        made
    }

    /// One by itself.
    pub(crate) fn alone(label: &str) -> Self {
        let name = format!("fdt-{}-{label}", std::process::id());
        run(&["ip", "netns", "add", &name]);
        run(&["ip", "-n", &name, "link", "set", "lo", "up"]);
        Self { name, address: Ipv4Addr::LOCALHOST }
    }

    /// Its name under /run/netns.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its interface hands the network no more than so many segments at a time.
    pub(crate) fn limit_segments(&self, segments: u32) {
        run(&["ip", "-n", &self.name, "link", "set", "eth0", "gso_max_segs", &segments.to_string()]);
    }

    /// One more address.
    pub(crate) fn add_address(&self, address: Ipv4Addr) {
        run(&["ip", "-n", &self.name, "addr", "add", &format!("{address}/24"), "dev", "eth0"]);
    }

    /// Its address.
    pub(crate) fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// The inode by which the kernel knows it.
    pub(crate) fn inode(&self) -> u64 {
        use std::os::unix::fs::MetadataExt as _;
        std::fs::metadata(format!("/run/netns/{}", self.name)).unwrap().ino()
    }

    fn inside(&self, words: &[&str]) -> String {
        let netns = format!("--net=/run/netns/{}", self.name);
        run(&[&["nsenter", &netns], words].concat())
    }

    /// A command of the packet filter.
    pub(crate) fn nft(&self, command: &str) {
        self.inside(&["nft", command]);
    }

    /// Packets of a named counter, given as family, table and name.
    pub(crate) fn nft_counter(&self, of: &str) -> u64 {
        let text = self.inside(&["nft", &format!("list counter {of}")]);
        let packets = text.split("packets ").nth(1).and_then(|rest| rest.split(' ').next());
        packets.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("no count in {text}"))
    }

    /// Tries to connect for so long.
    pub(crate) fn connect(&self, to: Ipv4Addr, port: u16, patience: Duration) {
        let script = format!(
            "import socket\ns = socket.socket(); s.settimeout({})\ntry: s.connect(('{to}', {port}))\nexcept OSError: pass",
            patience.as_secs_f64()
        );
        self.inside(&["python3", "-c", &script]);
    }

    /// A connection from there that is aborted here, after which the other end goes on sending: a reset of what was
    /// open, and one that answers a segment.
    pub(crate) fn abort(&self, caller: &Self, port: u16) {
        let (here, there, address) = (&self.name, &caller.name, self.address);
        let script = format!(
            "import ctypes, socket, struct
def enter(name):
    with open('/run/netns/' + name) as file: assert ctypes.CDLL(None).setns(file.fileno(), 0) == 0
enter('{here}'); listener = socket.socket(); listener.bind(('{address}', {port})); listener.listen()
enter('{there}'); caller = socket.create_connection(('{address}', {port}))
callee, _ = listener.accept()
callee.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0)); callee.close()
caller.sendall(b'x')"
        );
        run(&["python3", "-c", &script]);
    }

    /// Sends so many datagrams, to one port after the other.
    pub(crate) fn flood(&self, to: Ipv4Addr, ports: RangeInclusive<u16>, packets: u32) {
        let script = format!(
            "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nn = {}\nfor i in range({packets}): s.sendto(b'x', ('{to}', {} + i % n))",
            u32::from(ports.end() - ports.start()) + 1,
            ports.start()
        );
        self.inside(&["python3", "-c", &script]);
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Best effort: the test's own verdict counts.
        let _ = Command::new("ip").args(["netns", "del", &self.name]).output();
    }
}

//! The probes on the running kernel. Needs root and a kernel with type information; what cannot run says so and
//! fails: `cargo xtask test` runs this only where it can.

#[allow(dead_code, reason = "the benchmark needs more of it")]
mod namespaces;

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use aya::Btf;
use firedoor::source::ebpf::Probes;
use firedoor::source::ebpf::kernel::Kernel;
use firedoor_ebpf::{DropKey, EventKind, PacketKind, Side, Stat};
use namespaces::Namespace;

const SLOTS: u32 = 4096;
/// Generous: the machine may be busy.
const DEADLINE: Duration = Duration::from_secs(30);

fn probes() -> Probes {
    let kernel = Kernel::running().expect("the kernel can be read");
    let btf = Btf::from_sys_fs().expect("the kernel shows its types");
    Probes::attach(&kernel, &btf, SLOTS).expect("the probes attach: this needs root")
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_connection_is_followed_to_the_byte() {
    let mut probes = probes();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut client = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let own = client.local_addr().unwrap().port();
    client.write_all(&[7; 100_000]).unwrap();
    server.read_exact(&mut vec![0; 100_000]).unwrap();
    server.write_all(&[8; 3000]).unwrap();
    client.read_exact(&mut vec![0; 3000]).unwrap();
    // The live sample sees both ends while the connection lives.
    let counters = until("both ends in the sample", || {
        let mut ends = Vec::new();
        probes
            .sample(|identity, counters| {
                if [identity.local_port, identity.remote_port].contains(&own) {
                    ends.push((identity.side, *counters));
                }
            })
            .unwrap();
        let opened = ends.iter().find(|(side, _)| *side == Side::Opened as u8)?.1;
        let accepted = ends.iter().find(|(side, _)| *side == Side::Accepted as u8)?.1;
        // The last acknowledgement may still be under way.
        (opened.acked == 100_001 && accepted.acked == 3000).then_some((opened, accepted))
    });
    assert_eq!((counters.0.received, counters.1.received), (3000, 100_000));
    assert!(counters.0.srtt_us > 0);
    drop(client);
    drop(server);
    let closed = until("both ends to close", || {
        static CLOSED: std::sync::Mutex<Vec<(u64, u64)>> = std::sync::Mutex::new(Vec::new());
        let mut closed = CLOSED.lock().unwrap();
        probes.events(|event| {
            let ends = [event.identity.local_port, event.identity.remote_port];
            if event.kind == EventKind::Closed as u32 && ends.contains(&own) {
                closed.push((event.counters.acked, event.counters.received));
            }
        });
        (closed.len() == 2).then(|| closed.clone())
    });
    for (acked, received) in closed {
        // One more for each SYN and FIN.
        assert!((100_001..=100_002).contains(&acked) || (3000..=3001).contains(&acked), "{acked}");
        assert!((100_000..=100_001).contains(&received) || (3000..=3001).contains(&received), "{received}");
    }
}

#[test]
fn sockets_older_than_the_probes_are_found() {
    let listener = std::net::TcpListener::bind("[::1]:0").unwrap();
    let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let _server = listener.accept().unwrap();
    let own = client.local_addr().unwrap().port();
    let mut probes = probes();
    assert!(probes.seed().unwrap() >= 2);
    let mut sides = Vec::new();
    probes
        .sample(|identity, _| {
            if [identity.local_port, identity.remote_port].contains(&own) {
                sides.push(identity.side);
            }
        })
        .unwrap();
    assert_eq!(sides, [Side::Unknown as u8, Side::Unknown as u8]);
    probes.seed().unwrap();
    let mut again = 0;
    probes
        .sample(|identity, _| {
            again += usize::from([identity.local_port, identity.remote_port].contains(&own))
        })
        .unwrap();
    assert_eq!(again, 2, "a second look adds nothing");
}

#[test]
fn refused_connections_are_told() {
    let mut probes = probes();
    let port = { std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port() };
    assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
    let mut kinds = BTreeSet::new();
    until("the refusal", || {
        probes.events(|event| {
            if event.identity.remote_port == port {
                kinds.insert((event.kind, event.detail));
            }
        });
        // ECONNREFUSED.
        kinds.contains(&(EventKind::Failed as u32, 111)).then_some(())
    });
    assert!(kinds.contains(&(EventKind::Opening as u32, 0)));
}

#[test]
fn every_drop_is_counted_or_missed_by_count() {
    let mut probes = probes();
    let [sender, receiver] = Namespace::pair("drop");
    receiver.nft("add table inet t");
    receiver.nft("add chain inet t in { type filter hook input priority 0; }");
    receiver.nft("add counter inet t dropped");
    receiver.nft("add rule inet t in udp dport 20000-65000 counter name dropped drop");
    let before = probes.stats();
    let packets = 60_000;
    sender.flood(receiver.address(), 20_000..=60_000, packets);
    let counted = receiver.nft_counter("inet t dropped");
    assert!(counted > u64::from(packets) / 2, "only {counted} packets arrived at the filter");
    let of = |key: &DropKey| key.protocol == 17 && (20_000..=65_000).contains(&key.port);
    let entries: u64 =
        probes.drops().unwrap().filter(|(key, _)| of(key)).map(|(_, tally)| tally.packets).sum();
    let after = probes.stats();
    let missed = after[Stat::DropsOverflow as usize] - before[Stat::DropsOverflow as usize];
    assert!(missed > 0, "more keys than room were meant to be used");
    assert!(entries + missed >= counted, "{entries} + {missed} < {counted}");
    // Somebody else's drops may add to what was missed, never to the entries.
    assert!(entries <= counted);
    // Others drop packets, too: the sums are compared when nothing came in between.
    let of = |stats: &[u64], stat: Stat| stats[stat as usize];
    until("a moment without drops", || {
        let stats = probes.stats();
        let everything: u64 = probes.drops().unwrap().map(|(_, tally)| tally.packets).sum();
        (stats == probes.stats()).then(|| {
            assert_eq!(of(&stats, Stat::DropsSeen), everything + of(&stats, Stat::DropsOverflow));
        })
    });
}

#[test]
fn a_filter_on_the_way_is_told_with_its_reason() {
    let kernel = Kernel::running().unwrap();
    let mut probes = probes();
    let [client, server] = Namespace::pair("filter");
    server.nft("add table inet t");
    server.nft("add chain inet t in { type filter hook input priority 0; }");
    server.nft("add rule inet t in tcp dport 7777 drop");
    client.connect(server.address(), 7777, Duration::from_millis(500));
    let (key, attempts) = until("the drop", || {
        let found = probes.drops().unwrap().find(|(key, _)| key.port == 7777);
        found.map(|(key, tally)| (*key, tally.attempts))
    });
    assert_eq!(kernel.drop_reasons[&key.reason].to_string(), "NETFILTER_DROP");
    assert_eq!(key.kind, PacketKind::Opening as u8);
    assert_eq!(u64::from(key.netns), server.inode());
    assert_eq!(attempts, 1);
}

/// What a dead process' kernel sends is dropped here and there, and keeps nobody from anything.
#[test]
fn a_dropped_reset_is_an_answer_only_to_a_syn() {
    let kernel = Kernel::running().unwrap();
    let mut probes = probes();
    let [client, server] = Namespace::pair("reset");
    server.nft("add table inet t");
    server.nft("add chain inet t out { type filter hook output priority 0; }");
    server.nft("add counter inet t dropped");
    server.nft("add rule inet t out tcp flags & rst == rst counter name dropped drop");
    server.abort(&client, 7779);
    until("both resets", || (server.nft_counter("inet t dropped") >= 2).then_some(()));
    client.connect(server.address(), 7778, Duration::from_millis(500));
    let keys = until("the refusal", || {
        let filtered = |key: &DropKey| {
            u64::from(key.netns) == server.inode()
                && kernel.drop_reasons.get(&key.reason).is_some_and(|why| why.to_string() == "NETFILTER_DROP")
        };
        let drops = probes.drops().unwrap().map(|(key, _)| *key).filter(filtered);
        let keys: Vec<(u8, u16)> = drops.map(|key| (key.kind, key.port)).collect();
        (!keys.is_empty()).then_some(keys)
    });
    assert_eq!(keys, [(PacketKind::Answer as u8, 7778)]);
}

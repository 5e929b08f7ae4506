//! Who plays: zones, nodes, pods, and their addresses. Enters: a scenario's jobs; leaves: plain values that the
//! network, the cgroups and the Kubernetes objects are made from, so that these cannot disagree.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::scenario::{Cloud, Family, Scenario};

/// The nodes of every scenario: two in the first zone, so that there is a path within a zone to compare with.
pub(super) const NODES: [(&str, usize); 3] = [("a1", 0), ("a2", 0), ("b1", 1)];

/// A node: a network namespace on its zone's fabric.
pub(super) struct Node {
    pub(super) name: String,
    /// 0 or 1.
    pub(super) zone: usize,
    pub(super) ip: IpAddr,
}

/// A pod, one member of a job.
#[derive(Clone)]
pub(super) struct Pod {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) job: &'static str,
    /// Rank 0 is the master.
    pub(super) rank: usize,
    pub(super) world: usize,
    /// Index among the nodes.
    pub(super) node: usize,
    pub(super) zone: usize,
    pub(super) host_network: bool,
    pub(super) ip: IpAddr,
    /// Index among all pods: names its interface on the node, and selects the form of its cgroup path.
    pub(super) seat: usize,
    /// Where its job meets.
    pub(super) master: SocketAddr,
}

/// All of a scenario's nodes and pods.
pub(super) struct Cast {
    pub(super) nodes: Vec<Node>,
    pub(super) pods: Vec<Pod>,
    pub(super) zones: [String; 2],
    pub(super) cloud: Cloud,
}

impl Cast {
    /// Gives every role to a pod. `run` makes the UIDs differ between runs.
    pub(super) fn of(scenario: &Scenario, run: &str) -> Self {
        let nodes: Vec<Node> = NODES
            .iter()
            .zip(0_u8..)
            .map(|((name, zone), number)| Node {
                name: format!("node-{name}"),
                zone: *zone,
                ip: node_ip(scenario.family, number),
            })
            .collect();
        let mut pods: Vec<Pod> = Vec::new();
        for job in scenario.jobs {
            let first = pods.len();
            for (rank, seat) in job.members.iter().enumerate() {
                let number = pods.len();
                let name = pod_name(job.name, rank);
                let taken = seat.address_of.and_then(|(other, rank)| {
                    pods.iter().find(|pod| pod.job == other && pod.rank == rank).map(|pod| pod.ip)
                });
                let own = match nodes.get(seat.node) {
                    Some(node) if seat.host_network => node.ip,
                    _ => pod_ip(scenario.family, seat.node, number),
                };
                let ip = taken.unwrap_or(own);
                let master = pods.get(first).map_or(ip, |master: &Pod| master.ip);
                pods.push(Pod {
                    uid: uid(&[run, job.name, &name]),
                    name,
                    job: job.name,
                    rank,
                    world: job.members.len(),
                    node: seat.node,
                    zone: nodes.get(seat.node).map_or(0, |node| node.zone),
                    host_network: seat.host_network,
                    ip,
                    seat: number,
                    master: SocketAddr::new(master, job.port),
                });
            }
        }
        let zones = scenario.cloud.zones();
        Self { nodes, pods, zones, cloud: scenario.cloud }
    }

    /// The pods of a job, by rank.
    pub(super) fn job(&self, name: &str) -> impl Iterator<Item = &Pod> {
        self.pods.iter().filter(move |pod| pod.job == name)
    }

    /// A pod by its job and rank.
    pub(super) fn member(&self, job: &str, rank: usize) -> Option<&Pod> {
        self.job(job).nth(rank)
    }

    /// The names of the jobs, each once.
    pub(super) fn jobs(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = self.pods.iter().map(|pod| pod.job).collect();
        names.dedup();
        names
    }
}

fn pod_name(job: &str, rank: usize) -> String {
    match rank.checked_sub(1) {
        None => format!("{job}-master-0"),
        Some(worker) => format!("{job}-worker-{worker}"),
    }
}

fn node_ip(family: Family, number: u8) -> IpAddr {
    match family {
        Family::V4 => IpAddr::V4(Ipv4Addr::new(172, 30, 0, 10 + number)),
        Family::V6 => IpAddr::V6(Ipv6Addr::new(0xfd00, 0x30, 0, 0, 0, 0, 0, 0x10 + u16::from(number))),
    }
}

fn pod_ip(family: Family, node: usize, number: usize) -> IpAddr {
    let small = |value: usize| u8::try_from(value).unwrap_or(u8::MAX);
    match family {
        Family::V4 => IpAddr::V4(Ipv4Addr::new(10, 60, small(node), 10 + small(number))),
        Family::V6 => {
            let (node, number) = (u16::from(small(node)), u16::from(small(number)));
            IpAddr::V6(Ipv6Addr::new(0xfd00, 0x60, node, 0, 0, 0, 0, 0x10 + number))
        }
    }
}

/// The prefix of a node's pods.
pub(super) fn pod_prefix(family: Family, node: usize) -> String {
    match family {
        Family::V4 => format!("10.60.{node}.0/24"),
        Family::V6 => format!("fd00:60:{node:x}::/64"),
    }
}

/// A UID of the usual form, the same for the same words.
pub(super) fn uid(words: &[&str]) -> String {
    let digits = hex(words, 32);
    let part = |from: usize, to: usize| digits.get(from..to).unwrap_or_default();
    format!("{}-{}-4{}-a{}-{}", part(0, 8), part(8, 12), part(13, 16), part(17, 20), part(20, 32))
}

/// Hexadecimal digits from words (FNV-1a, repeated): a name, not a secret.
pub(super) fn hex(words: &[&str], length: usize) -> String {
    let mut digits = String::new();
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    while digits.len() < length {
        for byte in words.iter().flat_map(|word| word.bytes().chain([0xff])) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        digits.push_str(&format!("{hash:016x}"));
    }
    digits.truncate(length);
    digits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::scenario::SCENARIOS;

    #[test]
    fn addresses_and_uids_differ_unless_they_are_to_be_the_same() {
        for scenario in &SCENARIOS {
            let cast = Cast::of(scenario, "run");
            for (at, pod) in cast.pods.iter().enumerate() {
                let seats = scenario.jobs.iter().find(|job| job.name == pod.job).unwrap().members;
                let shares = pod.host_network || seats[pod.rank].address_of.is_some();
                for other in &cast.pods[..at] {
                    assert_ne!(pod.uid, other.uid, "{}", scenario.name);
                    assert!(shares || pod.ip != other.ip, "{}: {}", scenario.name, pod.name);
                }
            }
        }
    }

    #[test]
    fn a_uid_has_its_form() {
        let uid = uid(&["a", "b"]);
        let lengths: Vec<_> = uid.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
        assert_ne!(uid, super::uid(&["ab"]));
    }
}

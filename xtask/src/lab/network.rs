//! The network: namespaces for zones, nodes and pods, and what joins them. Enters: the cast; leaves: the same,
//! standing. Pods are routed by their node, as most CNIs do; nodes are on their zone's bridge; the zones' bridges are
//! joined by the wire, which is not made here.

use std::fmt::Write as _;
use std::net::IpAddr;

use anyhow::{Context, Result};

use super::cast::{Cast, Pod, pod_prefix};
use super::host::{feed, run, within};
use super::lease::Lease;
use super::scenario::Family;

/// The node's end of each pod's interface, as the pod's gateway. The same for all: it is local to the link.
const GATEWAY_V4: &str = "169.254.1.1";
const GATEWAY_V6: &str = "fe80::1";

/// The namespaces of a run.
pub(super) struct Network<'a> {
    lease: &'a Lease,
    family: Family,
}

impl<'a> Network<'a> {
    /// Builds zones, nodes and pods. Of pods that share an address only the first gets its place; the other is seated
    /// when the address is free.
    pub(super) fn build(lease: &'a Lease, cast: &Cast, family: Family) -> Result<Self> {
        let network = Self { lease, family };
        for zone in 0..cast.zones.len() {
            let fabric = network.fabric(zone);
            network.add_namespace(&fabric)?;
            batch(&fabric, "link add br0 type bridge mcast_snooping 0\nlink set br0 up\n")?;
        }
        for at in 0..cast.nodes.len() {
            network.add_node(cast, at)?;
        }
        let mut seated: Vec<IpAddr> = Vec::new();
        for pod in &cast.pods {
            if pod.host_network || !seated.contains(&pod.ip) {
                network.seat(cast, pod)?;
                seated.push(pod.ip);
            }
        }
        Ok(network)
    }

    /// A zone's fabric.
    pub(super) fn fabric(&self, zone: usize) -> String {
        self.lease.netns(&format!("zone-{zone}"))
    }

    /// A node's host namespace.
    pub(super) fn node(&self, cast: &Cast, node: usize) -> Result<String> {
        let node = cast.nodes.get(node).context("no such node")?;
        Ok(self.lease.netns(&node.name))
    }

    /// The namespace in which a pod's processes run.
    pub(super) fn pod(&self, cast: &Cast, pod: &Pod) -> Result<String> {
        if pod.host_network { self.node(cast, pod.node) } else { Ok(self.lease.netns(&pod.name)) }
    }

    fn add_namespace(&self, netns: &str) -> Result<()> {
        run(&["ip", "netns", "add", netns])?;
        let settings = match self.family {
            Family::V4 => "echo 1 > /proc/sys/net/ipv4/ip_forward",
            Family::V6 => "echo 1 > /proc/sys/net/ipv6/conf/all/forwarding",
        };
        run(&within(&enter(netns), &["sh", "-c", settings]))?;
        batch(netns, "link set lo up\n")
    }

    fn add_node(&self, cast: &Cast, at: usize) -> Result<()> {
        let node = cast.nodes.get(at).context("no such node")?;
        let netns = self.lease.netns(&node.name);
        self.add_namespace(&netns)?;
        let fabric = self.fabric(node.zone);
        let port = format!("n{at}");
        batch(
            &fabric,
            &format!(
                "link add {port} type veth peer name eth0 netns {netns}\nlink set {port} master br0 up\n"
            ),
        )?;
        let prefix = if self.family == Family::V4 { "24" } else { "64 nodad" };
        let mut setup = format!("link set eth0 up\naddr add {}/{prefix} dev eth0\n", node.ip);
        for (other_at, other) in cast.nodes.iter().enumerate() {
            if other_at != at {
                let pods = pod_prefix(self.family, other_at);
                let _ = writeln!(setup, "route add {pods} via {}", other.ip);
            }
        }
        batch(&netns, &setup)
    }

    /// Gives a pod its namespace, its interface and its address.
    pub(super) fn seat(&self, cast: &Cast, pod: &Pod) -> Result<()> {
        if pod.host_network {
            return Ok(());
        }
        let (node, netns) = (self.node(cast, pod.node)?, self.pod(cast, pod)?);
        self.add_namespace(&netns)?;
        let port = port(pod);
        let (ip, length) = (pod.ip, if self.family == Family::V4 { 32 } else { 128 });
        batch(
            &node,
            &format!("link add {port} type veth peer name eth0 netns {netns}\nlink set {port} up\n"),
        )?;
        match self.family {
            Family::V4 => {
                batch(
                    &node,
                    &format!("addr add {GATEWAY_V4}/32 dev {port}\nroute add {ip}/{length} dev {port}\n"),
                )?;
                batch(
                    &netns,
                    &format!(
                        "link set eth0 up\naddr add {ip}/{length} dev eth0\nroute add {GATEWAY_V4} dev eth0\n\
                     route add default via {GATEWAY_V4} dev eth0\n"
                    ),
                )
            }
            Family::V6 => {
                batch(
                    &node,
                    &format!(
                        "addr add {GATEWAY_V6}/64 dev {port} nodad\nroute add {ip}/{length} dev {port}\n"
                    ),
                )?;
                batch(
                    &netns,
                    &format!(
                        "link set eth0 up\naddr add {ip}/{length} dev eth0 nodad\n\
                     route add default via {GATEWAY_V6} dev eth0\n"
                    ),
                )
            }
        }
    }

    /// Takes a dead pod's namespace away. The kernel frees a namespace in its own time, so the interface goes first:
    /// with it the route to the address, which another pod may then have.
    pub(super) fn unseat(&self, cast: &Cast, pod: &Pod) -> Result<()> {
        batch(&self.node(cast, pod.node)?, &format!("link del {}\n", port(pod)))?;
        run(&["ip", "netns", "del", &self.pod(cast, pod)?]).map(drop)
    }
}

/// The name of a pod's interface on its node.
pub(super) fn port(pod: &Pod) -> String {
    format!("veth{}", pod.seat)
}

/// What `nsenter` enters a namespace by.
pub(super) fn enter(netns: &str) -> String {
    format!("--net=/run/netns/{netns}")
}

fn batch(netns: &str, commands: &str) -> Result<()> {
    feed(&["ip", "-netns", netns, "-batch", "-"], commands).map(drop)
}

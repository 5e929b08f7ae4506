//! What Hubble is asked for: the pods of this node that belong to a job.

use std::collections::BTreeSet;
use std::net::IpAddr;

use firedoor_core::inventory::Inventory;
use firedoor_core::time::Timestamp;

use crate::config::NodeConfig;
use crate::source::hubble::Interest;

/// Servers compare every event with every address. With more pods than this only those are asked for by address that
/// have no other name: the ones on their host's network.
const MOST_ADDRESSES: usize = 32;

/// The pods of a job that run on these nodes at `at`; without any node, wherever they run. They are asked for by address,
/// too: a server does not know the name of a pod in its first moments, in which a closed door shows first.
pub(super) fn of(inventory: &Inventory, nodes: &[NodeConfig], at: Timestamp) -> Interest {
    let here =
        |node: Option<&str>| nodes.is_empty() || nodes.iter().any(|own| Some(own.name.as_str()) == node);
    let jobs = inventory.membership();
    let of_jobs = inventory.pods().iter().enumerate().filter(|(id, pod)| {
        let there = pod.lease.until.is_none_or(|until| until > at);
        there && here(pod.node.as_deref()) && jobs.of_pod(*id).is_some()
    });
    let mut pods = BTreeSet::new();
    let mut own: BTreeSet<IpAddr> = BTreeSet::new();
    let mut of_hosts: BTreeSet<IpAddr> = BTreeSet::new();
    for (_, pod) in of_jobs {
        if pod.host_network {
            of_hosts.extend(&pod.ips);
        } else {
            pods.insert((pod.namespace.clone(), pod.name.clone()));
            own.extend(&pod.ips);
        }
    }
    let mut addresses = of_hosts;
    if own.len() <= MOST_ADDRESSES {
        addresses.extend(own);
    }
    Interest { everything: false, pods, addresses }
}

//! Which pods are where, as far as a source must know to say which node saw something. Enters: an inventory;
//! leaves: answers by UID and address.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use firedoor_core::inventory::Inventory;
use firedoor_core::time::Timestamp;

/// A pod's place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// Its node.
    pub node: Arc<str>,
    /// Its own addresses; none when it shares its node's.
    pub ips: Vec<IpAddr>,
}

/// Which pods are where.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Placement {
    by_uid: BTreeMap<Arc<str>, Place>,
    node_of_ip: BTreeMap<IpAddr, Arc<str>>,
}

impl Placement {
    /// The places of all pods that have one at `at`.
    #[must_use]
    pub fn of(inventory: &Inventory, at: Timestamp) -> Self {
        let mut placement = Self::default();
        for pod in inventory.pods() {
            let (Some(uid), Some(node)) = (&pod.uid, &pod.node) else { continue };
            let node: Arc<str> = node.as_str().into();
            let ips = if pod.host_network { Vec::new() } else { pod.ips.clone() };
            if pod.lease.until.is_none_or(|until| until > at) {
                for ip in &ips {
                    placement.node_of_ip.insert(*ip, Arc::clone(&node));
                }
            }
            placement.by_uid.insert(uid.as_str().into(), Place { node, ips });
        }
        for node in inventory.nodes().values() {
            for ip in &node.ips {
                placement.node_of_ip.entry(*ip).or_insert_with(|| node.name.as_str().into());
            }
        }
        placement
    }

    /// Where the pod with this UID is.
    #[must_use]
    pub fn pod(&self, uid: &str) -> Option<&Place> {
        self.by_uid.get(uid)
    }

    /// The node where an address is.
    #[must_use]
    pub fn node_of(&self, ip: IpAddr) -> Option<&Arc<str>> {
        self.node_of_ip.get(&ip)
    }
}

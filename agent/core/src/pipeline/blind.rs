//! Nodes that a relay cannot reach. All that the cluster has are remembered; of those that only the relay knows, no
//! more than a large cluster has, for a relay may name whatever it likes. That there were more is not forgotten.

use std::collections::BTreeSet;

use crate::inventory::{Inventory, node_name};

/// Nodes beyond this many are remembered only where they are among the objects. Kubernetes supports 5,000.
const MAX_BLIND: usize = 8_192;

/// Nodes that are not seen.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Blind {
    nodes: BTreeSet<String>,
    beyond: bool,
}

impl Blind {
    pub(super) fn add(&mut self, node: &str, inventory: &Inventory) {
        let node = node_name(node);
        if self.nodes.contains(node) {
            return;
        }
        if self.nodes.len() >= MAX_BLIND && !inventory.nodes().contains_key(node) {
            self.beyond = true;
            return;
        }
        self.nodes.insert(node.to_owned());
    }

    pub(super) fn reach(&mut self, node: &str) {
        self.nodes.remove(node_name(node));
    }

    /// Forgets those that the cluster does not have, and that there were more.
    pub(super) fn forget_unknown(&mut self, inventory: &Inventory) {
        let with_pods: BTreeSet<&str> =
            inventory.pods().iter().filter_map(|pod| pod.node.as_deref()).collect();
        self.nodes.retain(|node| inventory.nodes().contains_key(node) || with_pods.contains(node.as_str()));
        self.beyond = false;
    }

    /// Whether this node is not seen.
    #[must_use]
    pub fn contains(&self, node: &str) -> bool {
        self.nodes.contains(node)
    }

    /// Whether there were more than are remembered.
    #[must_use]
    pub fn beyond(&self) -> bool {
        self.beyond
    }

    /// Whether all nodes are seen.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty() && !self.beyond
    }

    /// The nodes that are not seen, sorted.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.nodes.iter().cloned().collect()
    }
}

//! Labels by which a pod claims to be in a zone. Policies that trust such a label lock the wrong door, or open one that
//! should be locked, when the pod is elsewhere. Must not know policies or remedies.

use std::collections::BTreeMap;

use crate::facts::{Node, ZONE_LABEL};
use crate::inventory::Inventory;
use crate::object::Labels;

const LEGACY_ZONE_LABEL: &str = "failure-domain.beta.kubernetes.io/zone";

/// Whether a label says where a pod is. Well-known keys always mean the zone; others only when their value is the name
/// of one.
pub(crate) fn is_zone_like(inventory: &Inventory, key: &str, value: &str) -> bool {
    key == ZONE_LABEL || key == LEGACY_ZONE_LABEL || (names_zone(key) && is_zone(inventory.nodes(), value))
}

fn names_zone(key: &str) -> bool {
    key == "zone" || key.ends_with("/zone")
}

fn is_zone(nodes: &BTreeMap<String, Node>, value: &str) -> bool {
    nodes.values().filter_map(|node| node.zone.as_ref()).any(|zone| zone.name == value)
}

/// The labels, key and value, that claim another zone than `actual`.
pub(crate) fn false_claims<'l>(
    inventory: &'l Inventory,
    labels: &'l Labels,
    actual: &'l str,
) -> impl Iterator<Item = (&'l str, &'l str)> {
    let lies =
        move |(key, value): &(&String, &String)| *value != actual && is_zone_like(inventory, key, value);
    labels.iter().filter(lies).map(|(key, value)| (key.as_str(), value.as_str()))
}

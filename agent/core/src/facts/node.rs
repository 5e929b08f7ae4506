//! Nodes. Enters: `Node` objects; leaves: zones, addresses and room. Must not know pods.

use std::net::IpAddr;

use serde_json::Value;

use super::pod::{is_accelerator, quantity};
use crate::object::{Labels, Object, string_map};

/// The label that names a node's zone (Kubernetes well-known labels).
pub const ZONE_LABEL: &str = "topology.kubernetes.io/zone";
/// The label that names a node's region.
pub const REGION_LABEL: &str = "topology.kubernetes.io/region";
const LEGACY_ZONE_LABEL: &str = "failure-domain.beta.kubernetes.io/zone";
const LEGACY_REGION_LABEL: &str = "failure-domain.beta.kubernetes.io/region";
const AWS_ZONE_ID_LABEL: &str = "topology.k8s.aws/zone-id";

/// A zone of a region. Equal only when both agree: two regions may use the same zone name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Zone {
    /// The zone's name, for example `eu-west-1a`.
    pub name: String,
    /// The region, where the node tells it.
    pub region: Option<String>,
    /// The provider's physical zone id, where there is one: on AWS zone names differ between accounts.
    pub id: Option<String>,
}

/// A node's taint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Taint {
    /// The taint's key.
    pub key: String,
    /// The taint's value, often empty.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

/// A node.
#[derive(Clone, PartialEq, Debug)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: Labels,
    /// Its zone, `None` when unknown.
    pub zone: Option<Zone>,
    /// Its addresses.
    pub ips: Vec<IpAddr>,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// `spec.unschedulable`: cordoned.
    pub unschedulable: bool,
    /// Accelerators it can give to pods.
    pub gpus: u32,
    /// `spec.providerID`, for example `aws:///eu-west-1a/i-0123`.
    pub provider_id: Option<String>,
    /// `status.allocatable`, as written.
    pub allocatable: Labels,
}

impl Node {
    /// Reads a `Node` object; `None` when it is of another kind.
    #[must_use]
    pub fn from_object(object: &Object) -> Option<Self> {
        if object.kind() != "Node" {
            return None;
        }
        let object = &object.apart();
        let labels = object.labels();
        let addresses = object.items("/status/addresses");
        let taints = object.items("/spec/taints").filter_map(|taint| {
            let text = |field: &str| taint.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
            Some(Taint {
                key: taint.get("key")?.as_str()?.to_owned(),
                value: text("value"),
                effect: text("effect"),
            })
        });
        let resources = object.value().pointer("/status/allocatable").and_then(Value::as_object);
        let gpus = resources.into_iter().flatten().filter(|(name, _)| is_accelerator(name));
        Some(Self {
            name: object.name().to_owned(),
            zone: zone_of(&labels, object.text("/spec/providerID")),
            ips: addresses.filter_map(|a| a.get("address")?.as_str()?.parse().ok()).collect(),
            taints: taints.collect(),
            unschedulable: object
                .value()
                .pointer("/spec/unschedulable")
                .and_then(Value::as_bool)
                .unwrap_or(false),
            gpus: gpus.filter_map(|(_, count)| quantity(count)).fold(0, u32::saturating_add),
            provider_id: object.text("/spec/providerID").map(str::to_owned),
            allocatable: string_map(object.value().pointer("/status/allocatable")),
            labels,
        })
    }
}

/// The zone a node's labels tell. Azure labels nodes outside availability zones with a fault-domain digit in
/// place of `<region>-<zone>` (cloud-provider-azure, availability zones): that is "unknown", not a zone.
#[must_use]
pub fn zone_of(labels: &Labels, provider_id: Option<&str>) -> Option<Zone> {
    let first =
        |keys: [&str; 2]| keys.iter().find_map(|key| labels.get(*key)).filter(|v| !v.is_empty()).cloned();
    let name = first([ZONE_LABEL, LEGACY_ZONE_LABEL])?;
    let region = first([REGION_LABEL, LEGACY_REGION_LABEL]);
    let azure = provider_id.is_some_and(|id| id.starts_with("azure:"))
        || labels.keys().any(|key| key.starts_with("kubernetes.azure.com/"));
    let digits = name.bytes().all(|b| b.is_ascii_digit());
    if digits && (azure || name.len() == 1) {
        return None;
    }
    Some(Zone { name, region, id: labels.get(AWS_ZONE_ID_LABEL).cloned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(labels: &[(&str, &str)], provider: Option<&str>) -> Option<String> {
        let labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        zone_of(&labels, provider).map(|z| z.name)
    }

    #[test]
    fn azure_fault_domain_is_not_a_zone() {
        assert_eq!(zone(&[(ZONE_LABEL, "0")], Some("azure:///subscriptions/x")), None);
        assert_eq!(zone(&[(ZONE_LABEL, "1")], None), None);
        assert_eq!(zone(&[(ZONE_LABEL, "eastus-1")], Some("azure:///x")).as_deref(), Some("eastus-1"));
        assert_eq!(zone(&[(LEGACY_ZONE_LABEL, "eu-1a")], None).as_deref(), Some("eu-1a"));
        assert_eq!(zone(&[], None), None);
    }
}

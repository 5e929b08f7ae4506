//! What firedoor needs to know of pods, nodes, namespaces and services. Enters: [`Object`]s; leaves: plain
//! structs with `None` for what cannot be known. An object that is kept as text stays text. Must not know jobs, policies
//! or flows.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use serde_json::Value;

use crate::object::{Labels, Object, OwnerRef, string_map};
use crate::time::Timestamp;

/// The label that names a node's zone (Kubernetes well-known labels).
pub const ZONE_LABEL: &str = "topology.kubernetes.io/zone";
/// The label that names a node's region.
pub const REGION_LABEL: &str = "topology.kubernetes.io/region";
const LEGACY_ZONE_LABEL: &str = "failure-domain.beta.kubernetes.io/zone";
const LEGACY_REGION_LABEL: &str = "failure-domain.beta.kubernetes.io/region";
const AWS_ZONE_ID_LABEL: &str = "topology.k8s.aws/zone-id";

/// Transport protocol of a port or a flow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
    /// ICMP for IPv4 or IPv6: no ports.
    Icmp,
}

impl Protocol {
    /// The protocol by its Kubernetes name, any case.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        match name.to_ascii_uppercase().as_str() {
            "TCP" => Some(Self::Tcp),
            "UDP" => Some(Self::Udp),
            "SCTP" => Some(Self::Sctp),
            "ICMP" | "ICMPV4" | "ICMPV6" => Some(Self::Icmp),
            _ => None,
        }
    }

    /// The name Kubernetes uses.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
            Self::Icmp => "ICMP",
        }
    }
}

/// A container's declared port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContainerPort {
    /// The port's name, for policies that use names.
    pub name: Option<String>,
    /// The port number.
    pub port: u16,
    /// The protocol; TCP unless declared otherwise.
    pub protocol: Protocol,
}

/// Where a pod is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Accepted, not all containers started.
    Pending,
    /// Running.
    Running,
    /// All containers ended well.
    Succeeded,
    /// At least one container ended badly.
    Failed,
    /// Not told.
    Unknown,
}

/// The time during which a pod held its addresses. An open end is `None`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lease {
    /// From when; `None`: since before anything was seen.
    pub from: Option<Timestamp>,
    /// Until when; `None`: still.
    pub until: Option<Timestamp>,
}

impl Lease {
    /// Whether the pod held its addresses at `at`.
    #[must_use]
    pub fn holds(&self, at: Timestamp) -> bool {
        self.from.is_none_or(|from| from <= at) && self.until.is_none_or(|until| at < until)
    }

    /// How far `at` is outside the lease; zero inside.
    #[must_use]
    pub fn distance(&self, at: Timestamp) -> Duration {
        let before = self.from.map_or(Duration::ZERO, |from| from.since(at));
        let after = self.until.map_or(Duration::ZERO, |until| at.since(until));
        before.max(after)
    }
}

/// A pod.
#[derive(Clone, PartialEq, Debug)]
pub struct Pod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID: two pods of the same name are two pods.
    pub uid: Option<String>,
    /// Its labels.
    pub labels: Labels,
    /// Its annotations.
    pub annotations: Labels,
    /// Its owners.
    pub owners: Vec<OwnerRef>,
    /// The node it was bound to.
    pub node: Option<String>,
    /// Whether it shares its node's network namespace.
    pub host_network: bool,
    /// Its service account, `default` when not told.
    pub service_account: String,
    /// Its addresses, both families.
    pub ips: Vec<IpAddr>,
    /// Ports its containers declare.
    pub ports: Vec<ContainerPort>,
    /// Environment variables with literal values, of all containers.
    pub env: BTreeMap<String, String>,
    /// Accelerators it asks for (whole devices, MIG slices and shared replicas alike).
    pub gpus: u32,
    /// `net.ipv4.ip_local_port_range` when the pod sets it.
    pub local_ports: Option<(u16, u16)>,
    /// Where it is in its life.
    pub phase: Phase,
    /// When it held its addresses.
    pub lease: Lease,
}

impl Pod {
    /// Reads a `Pod` object; `None` when it is of another kind or has no namespace.
    #[must_use]
    pub fn from_object(object: &Object) -> Option<Self> {
        if object.kind() != "Pod" {
            return None;
        }
        let object = &object.apart();
        let phase = match object.text("/status/phase") {
            Some("Pending") => Phase::Pending,
            Some("Running") => Phase::Running,
            Some("Succeeded") => Phase::Succeeded,
            Some("Failed") => Phase::Failed,
            _ => Phase::Unknown,
        };
        let mut ips: Vec<IpAddr> = object
            .items("/status/podIPs")
            .filter_map(|entry| entry.get("ip").and_then(Value::as_str))
            .chain(object.text("/status/podIP"))
            .filter_map(|ip| ip.parse().ok())
            .collect();
        ips.sort_unstable();
        ips.dedup();
        let spec = object.value().get("spec").unwrap_or(&Value::Null);
        let (mut owners, mut ports) =
            (object.owners(), containers(spec).flat_map(container_ports).collect::<Vec<_>>());
        // Most pods have one of each, and there are thousands of pods.
        ips.shrink_to_fit();
        owners.shrink_to_fit();
        ports.shrink_to_fit();
        Some(Self {
            namespace: object.namespace().unwrap_or("default").to_owned(),
            name: object.name().to_owned(),
            uid: object.uid().map(str::to_owned),
            labels: object.labels(),
            annotations: object.annotations(),
            owners,
            node: object.text("/spec/nodeName").filter(|n| !n.is_empty()).map(str::to_owned),
            host_network: spec.get("hostNetwork").and_then(Value::as_bool).unwrap_or(false),
            service_account: object.text("/spec/serviceAccountName").unwrap_or("default").to_owned(),
            ips,
            ports,
            env: containers(spec).flat_map(literal_env).collect(),
            gpus: containers(spec).map(accelerators).fold(0, u32::saturating_add),
            local_ports: local_ports(spec),
            phase,
            lease: lease(object, phase),
        })
    }
}

/// The addresses belong to the pod from its start until it finished or was deleted.
fn lease(object: &Object, phase: Phase) -> Lease {
    let from = object.text("/status/startTime").and_then(Timestamp::parse).or_else(|| object.created());
    let finished = object
        .items("/status/containerStatuses")
        .filter_map(|status| status.pointer("/state/terminated/finishedAt")?.as_str())
        .filter_map(Timestamp::parse)
        .max();
    let until = match phase {
        Phase::Succeeded | Phase::Failed => finished.or_else(|| last_transition(object)),
        _ => object.text("/metadata/deletionTimestamp").and_then(Timestamp::parse),
    };
    Lease { from, until }
}

fn last_transition(object: &Object) -> Option<Timestamp> {
    let times = object.items("/status/conditions").filter_map(|c| c.get("lastTransitionTime")?.as_str());
    times.filter_map(Timestamp::parse).max()
}

fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    spec.get("containers").and_then(Value::as_array).into_iter().flatten()
}

fn container_ports(container: &Value) -> impl Iterator<Item = ContainerPort> {
    let ports = container.get("ports").and_then(Value::as_array);
    ports.into_iter().flatten().filter_map(|port| {
        Some(ContainerPort {
            name: port.get("name").and_then(Value::as_str).map(str::to_owned),
            port: u16::try_from(port.get("containerPort")?.as_u64()?).ok()?,
            protocol: Protocol::parse(port.get("protocol").and_then(Value::as_str).unwrap_or("TCP"))?,
        })
    })
}

fn literal_env(container: &Value) -> impl Iterator<Item = (String, String)> {
    let env = container.get("env").and_then(Value::as_array);
    env.into_iter().flatten().filter_map(|entry| {
        Some((entry.get("name")?.as_str()?.to_owned(), entry.get("value")?.as_str()?.to_owned()))
    })
}

/// Whether a resource name counts accelerators: vendors' device plugins, MIG slices included.
#[must_use]
pub fn is_accelerator(resource: &str) -> bool {
    const NAMES: &[&str] = &[
        "nvidia.com/gpu",
        "nvidia.com/gpu.shared",
        "amd.com/gpu",
        "gpu.intel.com/i915",
        "gpu.intel.com/xe",
        "habana.ai/gaudi",
        "google.com/tpu",
        "aws.amazon.com/neuron",
        "aws.amazon.com/neurondevice",
        "aws.amazon.com/neuroncore",
    ];
    NAMES.contains(&resource) || resource.starts_with("nvidia.com/mig-")
}

fn accelerators(container: &Value) -> u32 {
    let of = |section: &str| {
        let resources = container.pointer(section).and_then(Value::as_object);
        let counts = resources.into_iter().flatten().filter(|(name, _)| is_accelerator(name));
        counts.filter_map(|(_, count)| quantity(count)).fold(0, u32::saturating_add)
    };
    // Extended resources must have requests equal to limits; either may be the one that was written.
    of("/resources/limits").max(of("/resources/requests"))
}

/// A whole-number Kubernetes quantity, written as number or text.
#[must_use]
pub fn quantity(value: &Value) -> Option<u32> {
    match value {
        Value::Number(n) => n.as_u64().and_then(|n| u32::try_from(n).ok()),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

fn local_ports(spec: &Value) -> Option<(u16, u16)> {
    let sysctls = spec.pointer("/securityContext/sysctls")?.as_array()?;
    let range = sysctls
        .iter()
        .find(|s| s.get("name").and_then(Value::as_str) == Some("net.ipv4.ip_local_port_range"))?
        .get("value")?
        .as_str()?;
    let mut ends = range.split_whitespace().map(str::parse);
    match (ends.next(), ends.next()) {
        (Some(Ok(low)), Some(Ok(high))) if low <= high => Some((low, high)),
        _ => None,
    }
}

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

/// A namespace: its name and labels, `kubernetes.io/metadata.name` always among them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Namespace {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: Labels,
}

impl Namespace {
    /// A namespace of which nothing but the name is known.
    #[must_use]
    pub fn bare(name: &str) -> Self {
        let labels = Labels::from([("kubernetes.io/metadata.name".to_owned(), name.to_owned())]);
        Self { name: name.to_owned(), labels }
    }

    /// Reads a `Namespace` object; `None` when it is of another kind.
    #[must_use]
    pub fn from_object(object: &Object) -> Option<Self> {
        if object.kind() != "Namespace" {
            return None;
        }
        let object = &object.apart();
        let mut namespace = Self::bare(object.name());
        namespace.labels.extend(object.labels());
        Some(namespace)
    }
}

/// A service port: what clients connect to and what the backends listen on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServicePort {
    /// The port's name.
    pub name: Option<String>,
    /// The port clients use.
    pub port: u16,
    /// The port backends listen on, when it is a number.
    pub target: Option<u16>,
    /// The backends' port name, when it is one.
    pub target_name: Option<String>,
    /// The protocol.
    pub protocol: Protocol,
}

/// A service.
#[derive(Clone, PartialEq, Debug)]
pub struct Service {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: Labels,
    /// Its virtual addresses; none when it is headless.
    pub cluster_ips: Vec<IpAddr>,
    /// Whether it is headless (`clusterIP: None`).
    pub headless: bool,
    /// Which pods of its namespace are its backends; `None` when endpoints are managed by hand.
    pub selector: Option<Labels>,
    /// Its ports.
    pub ports: Vec<ServicePort>,
}

impl Service {
    /// Reads a `Service` object; `None` when it is of another kind.
    #[must_use]
    pub fn from_object(object: &Object) -> Option<Self> {
        if object.kind() != "Service" {
            return None;
        }
        let object = &object.apart();
        let cluster_ips =
            object.items("/spec/clusterIPs").filter_map(Value::as_str).chain(object.text("/spec/clusterIP"));
        let cluster_ips: Vec<&str> = cluster_ips.collect();
        let mut addresses: Vec<IpAddr> = cluster_ips.iter().filter_map(|ip| ip.parse().ok()).collect();
        addresses.sort_unstable();
        addresses.dedup();
        let ports = object.items("/spec/ports").filter_map(|port| {
            let number = u16::try_from(port.get("port")?.as_u64()?).ok()?;
            let target = port.get("targetPort");
            Some(ServicePort {
                name: port.get("name").and_then(Value::as_str).map(str::to_owned),
                port: number,
                target: match target {
                    None => Some(number),
                    Some(target) => target.as_u64().and_then(|t| u16::try_from(t).ok()),
                },
                target_name: target.and_then(Value::as_str).map(str::to_owned),
                protocol: Protocol::parse(port.get("protocol").and_then(Value::as_str).unwrap_or("TCP"))?,
            })
        });
        let selector = string_map(object.value().pointer("/spec/selector"));
        Some(Self {
            namespace: object.namespace().unwrap_or("default").to_owned(),
            name: object.name().to_owned(),
            labels: object.labels(),
            headless: cluster_ips.contains(&"None"),
            cluster_ips: addresses,
            selector: (!selector.is_empty()).then_some(selector),
            ports: ports.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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

    #[test]
    fn pod_facts() {
        let object = Object::from_value(json!({"kind": "Pod", "metadata": {"name": "w", "namespace": "ml", "creationTimestamp": "2026-11-01T09:00:00Z"},
            "spec": {"nodeName": "n1", "hostNetwork": true, "securityContext": {"sysctls": [{"name": "net.ipv4.ip_local_port_range", "value": "10000 20000"}]},
                "containers": [{"ports": [{"name": "rpc", "containerPort": 29500}], "env": [{"name": "MASTER_ADDR", "value": "m"}],
                    "resources": {"limits": {"nvidia.com/gpu": "8", "cpu": "4"}, "requests": {"nvidia.com/gpu": "8"}}}]},
            "status": {"phase": "Succeeded", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
                "containerStatuses": [{"state": {"terminated": {"finishedAt": "2026-11-01T10:00:00Z"}}}]}}))
        .unwrap();
        let pod = Pod::from_object(&object).unwrap();
        assert_eq!(
            (pod.gpus, pod.host_network, pod.ips.len(), pod.local_ports),
            (8, true, 2, Some((10_000, 20_000)))
        );
        assert!(pod.lease.holds(Timestamp::parse("2026-11-01T09:30:00Z").unwrap()));
        assert!(!pod.lease.holds(Timestamp::parse("2026-11-01T10:00:00Z").unwrap()));
        assert_eq!(pod.ports[0].port, 29500);
        assert_eq!(pod.env["MASTER_ADDR"], "m");
    }
}

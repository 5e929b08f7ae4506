//! Pods. Enters: `Pod` objects; leaves: whose they are, where they run, how they are reached, and when they held their
//! addresses. Must not know jobs.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use serde_json::Value;

use super::Protocol;
use crate::object::{Labels, Object, OwnerRef};
use crate::time::Timestamp;

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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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

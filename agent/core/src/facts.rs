//! What firedoor needs to know of pods, nodes, namespaces and services. Enters: [`Object`]s; leaves: plain
//! structs with `None` for what cannot be known. An object that is kept as text stays text. Must not know jobs, policies
//! or flows.

mod node;
mod pod;

use std::net::IpAddr;

use serde_json::Value;

use crate::object::{Labels, Object, string_map};

pub use node::{Node, REGION_LABEL, Taint, ZONE_LABEL, Zone, zone_of};
pub use pod::{ContainerPort, Lease, Phase, Pod, is_accelerator, quantity};

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

//! The second evaluator: slow, over raw objects as Kubernetes prints them, straight from the documents, so that it
//! can be read beside them. Enters: a [`World`], two [`End`]s, a protocol and a port; leaves: an [`Outcome`] for
//! each direction. Must not know the engine, nor share code with it.
//!
//! The documents it follows, by the names used in the comments below:
//! - *NP*: the Kubernetes API text of `networking.k8s.io/v1` NetworkPolicy and the page "Network Policies"
//!   (kubernetes.io/docs/concepts/services-networking/network-policies).
//! - *Cilium intro / layer3 / layer4 / deny*: docs.cilium.io, security/policy.
//! - *Cilium CRD*: the field texts of cilium.io/v2 CiliumNetworkPolicy; where the text is silent, what
//!   `pkg/policy` and `pkg/k8s/apis/cilium.io/utils` of cilium/cilium do with the field.
//! - *ANP*: the API text of policy.networking.k8s.io/v1alpha1 (kubernetes-sigs/network-policy-api, `apis/v1alpha1`)
//!   and its conformance tests.

pub(crate) mod admin;
pub(crate) mod cilium;
pub(crate) mod kubernetes;
pub(crate) mod selector;

use std::net::IpAddr;

use serde_json::Value;

/// Which network plugin enforces the policies of a world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Plugin {
    Cilium,
    Other,
    Unknown,
}

/// Cilium's `policyEnforcementMode` (Cilium intro).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    Default,
    Always,
    Never,
}

/// All there is: the settings, and every object of the cluster.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) plugin: Plugin,
    pub(crate) mode: Mode,
    /// Major and minor; `None`: the newest.
    pub(crate) version: Option<(u16, u16)>,
    pub(crate) objects: Vec<Value>,
}

/// One end of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Pod {
        namespace: String,
        name: String,
    },
    /// An address outside the cluster; `None`: some address.
    World(Option<IpAddr>),
    /// The node on which the other end runs.
    Host(Option<IpAddr>),
    /// Any other node of the cluster.
    RemoteNode(Option<IpAddr>),
    /// The API server, wherever it runs.
    KubeApiserver,
}

/// Which way a policy looks at a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    Egress,
    Ingress,
}

/// What one end's policies say to one connection. Policies by name: `kind/namespace/name` in short (`cnp/ns/x`, `ccnp/x`, `np/ns/x`,
/// `anp/x`, `banp/x`), sorted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Open {
        by: Vec<String>,
    },
    Closed {
        /// Who put the end into default deny; empty when an allow matched and only the deny is in the way.
        default_deny: Vec<String>,
        denied_by: Vec<String>,
    },
    Unknown,
}

/// Three-valued truth: what the objects at hand say, or cannot say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tri {
    No,
    Maybe,
    Yes,
}

impl Tri {
    pub(crate) fn and(self, other: Tri) -> Tri {
        match (self, other) {
            (Tri::No, _) | (_, Tri::No) => Tri::No,
            (Tri::Yes, Tri::Yes) => Tri::Yes,
            _ => Tri::Maybe,
        }
    }

    pub(crate) fn or(self, other: Tri) -> Tri {
        match (self, other) {
            (Tri::Yes, _) | (_, Tri::Yes) => Tri::Yes,
            (Tri::No, Tri::No) => Tri::No,
            _ => Tri::Maybe,
        }
    }
}

impl From<bool> for Tri {
    fn from(truth: bool) -> Tri {
        if truth { Tri::Yes } else { Tri::No }
    }
}

/// The other end, as the subject's policies see it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Peer<'a> {
    /// A pod with a network namespace of its own.
    Pod(&'a Value),
    /// A node, or a pod in a node's network namespace.
    Node {
        local: bool,
        ip: Option<IpAddr>,
    },
    World(Option<IpAddr>),
    KubeApiserver,
}

/// One connection seen from one end.
pub(crate) struct Connection<'a> {
    pub(crate) world: &'a World,
    pub(crate) direction: Direction,
    /// The pod whose policies are asked.
    pub(crate) subject: &'a Value,
    pub(crate) peer: Peer<'a>,
    /// The destination when it is a pod: named ports are resolved there (NP: "a named port on a pod").
    pub(crate) destination: Option<&'a Value>,
    pub(crate) protocol: &'a str,
    pub(crate) port: u16,
}

/// May `src` open a connection to `dst`: what the egress policies of `src` and the ingress policies of `dst` say.
/// Both are always asked (NP, "the two sorts of pod isolation": both sides must allow).
pub(crate) fn reference(world: &World, src: &End, dst: &End, protocol: &str, port: u16) -> [Outcome; 2] {
    let ask = |direction: Direction| -> Outcome {
        let (subject, other) = if direction == Direction::Egress { (src, dst) } else { (dst, src) };
        // Pod policies select pods; nodes, hostNetwork pods and outside addresses have none (NP, "hostNetwork pods";
        // ANP: "host-networked pods are not included").
        let Some(subject) = find_pod(world, subject).filter(|pod| !host_network(pod)) else {
            return Outcome::Open { by: Vec::new() };
        };
        let connection = Connection {
            world,
            direction,
            subject,
            peer: peer_of(world, subject, other),
            destination: find_pod(world, dst),
            protocol,
            port,
        };
        let cilium_objects = || world.objects.iter().any(|o| text(o, "/kind").starts_with("Cilium"));
        match world.plugin {
            Plugin::Cilium => cilium::evaluate(&connection),
            Plugin::Unknown if cilium_objects() => cilium::evaluate(&connection),
            Plugin::Other | Plugin::Unknown => admin::evaluate(&connection),
        }
    };
    [ask(Direction::Egress), ask(Direction::Ingress)]
}

/// The same for several ports, each of which must be open; with the open ones listed as ranges for each direction.
pub(crate) fn reference_range(
    world: &World,
    src: &End,
    dst: &End,
    protocol: &str,
    ports: (u16, u16),
) -> [(Outcome, Vec<(u16, u16)>); 2] {
    let answers: Vec<(u16, [Outcome; 2])> =
        (ports.0..=ports.1).map(|port| (port, reference(world, src, dst, protocol, port))).collect();
    [0, 1].map(|way| {
        let of_way = || answers.iter().map(|(port, outcomes)| (*port, &outcomes[way]));
        let mut open: Vec<(u16, u16)> = Vec::new();
        for (port, _) in of_way().filter(|(_, outcome)| matches!(outcome, Outcome::Open { .. })) {
            match open.last_mut() {
                Some(last) if last.1 + 1 == port => last.1 = port,
                _ => open.push((port, port)),
            }
        }
        let worst = of_way().map(|(_, outcome)| outcome).max_by_key(|outcome| match outcome {
            Outcome::Open { .. } => 0,
            Outcome::Unknown => 1,
            Outcome::Closed { .. } => 2,
        });
        (worst.cloned().unwrap_or(Outcome::Unknown), open)
    })
}

fn find_pod<'a>(world: &'a World, end: &End) -> Option<&'a Value> {
    let End::Pod { namespace, name } = end else { return None };
    world.objects.iter().find(|o| {
        text(o, "/kind") == "Pod"
            && text(o, "/metadata/namespace") == namespace
            && text(o, "/metadata/name") == name
    })
}

fn host_network(pod: &Value) -> bool {
    pod.pointer("/spec/hostNetwork") == Some(&Value::Bool(true))
}

/// hostNetwork pods are seen as their node (Cilium layer3, entities `host` and `remote-node`; NP: "traffic to/from
/// hostNetwork pods is treated the same as all other traffic to/from the node IP").
fn peer_of<'a>(world: &'a World, subject: &Value, other: &End) -> Peer<'a> {
    match other {
        End::World(ip) => Peer::World(*ip),
        End::Host(ip) => Peer::Node { local: true, ip: *ip },
        End::RemoteNode(ip) => Peer::Node { local: false, ip: *ip },
        End::KubeApiserver => Peer::KubeApiserver,
        End::Pod { .. } => match find_pod(world, other) {
            Some(pod) if !host_network(pod) => Peer::Pod(pod),
            Some(pod) => Peer::Node {
                local: text(pod, "/spec/nodeName") == text(subject, "/spec/nodeName"),
                ip: text(pod, "/status/podIP").parse().ok(),
            },
            None => Peer::World(None),
        },
    }
}

/// The string at a JSON pointer; empty when there is none.
pub(crate) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// A list field: `None` when absent or null, which the documents tell apart from empty.
pub(crate) fn list<'a>(value: &'a Value, field: &str) -> Option<&'a Vec<Value>> {
    value.get(field).and_then(Value::as_array)
}

/// A policy's short name.
pub(crate) fn name_of(policy: &Value) -> String {
    let (namespace, name) = (text(policy, "/metadata/namespace"), text(policy, "/metadata/name"));
    match text(policy, "/kind") {
        "CiliumNetworkPolicy" => format!("cnp/{namespace}/{name}"),
        "CiliumClusterwideNetworkPolicy" => format!("ccnp/{name}"),
        "NetworkPolicy" => format!("np/{namespace}/{name}"),
        "AdminNetworkPolicy" => format!("anp/{name}"),
        "BaselineAdminNetworkPolicy" => format!("banp/{name}"),
        other => format!("{other}/{namespace}/{name}"),
    }
}

/// Whether a container of `pod` declares the port under this name: name, protocol and number must all agree. Names
/// are compared without case (Cilium lowers them; Kubernetes allows only lower case).
pub(crate) fn declares(pod: Option<&Value>, name: &str, protocol: &str, port: u16) -> bool {
    let containers = pod.and_then(|pod| pod.pointer("/spec/containers")).and_then(Value::as_array);
    let ports = containers.into_iter().flatten().filter_map(|container| list(container, "ports")).flatten();
    ports.into_iter().any(|entry| {
        let declared = entry.get("protocol").and_then(Value::as_str).unwrap_or("TCP");
        text(entry, "/name").eq_ignore_ascii_case(name)
            && declared == protocol
            && entry.get("containerPort").and_then(Value::as_u64) == Some(u64::from(port))
    })
}

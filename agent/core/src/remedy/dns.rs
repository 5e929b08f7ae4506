//! Name servers in policies: how a job's policy names them, and policies that let the job in at theirs. A clusterwide
//! policy that selects everything locks them in too. Must not know what else a remedy opens.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::allow::{held_back, metadata};
use super::gang::{Handle, selectors};
use super::world::{Far, World, dns_ports};
use crate::facts::Pod;
use crate::object::Object;
use crate::policy::{Closure, Decision, Direction, PolicyKind};

const CILIUM_NAMESPACE: &str = "k8s:io.kubernetes.pod.namespace";
const NAMESPACE: &str = "kubernetes.io/metadata.name";

/// A name server as a policy names it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Server {
    namespace: String,
    label: Option<(String, String)>,
    /// Whether Cilium's policies keep it closed.
    cilium: bool,
}

impl Server {
    /// By the label that distributions give their name servers.
    fn of(pod: &Pod, cilium: bool) -> Self {
        const KEYS: [&str; 4] =
            ["k8s-app", "dns.operator.openshift.io/daemonset-dns", "app.kubernetes.io/name", "app"];
        let label = KEYS.iter().find_map(|key| Some(((*key).to_owned(), pod.labels.get(*key)?.clone())));
        Self { namespace: pod.namespace.clone(), label, cilium }
    }

    /// As a peer of a Cilium policy.
    pub(super) fn endpoint_selector(&self) -> Value {
        let mut labels = Map::from_iter([(CILIUM_NAMESPACE.to_owned(), json!(self.namespace))]);
        labels.extend(self.label.as_ref().map(|(key, value)| (format!("k8s:{key}"), json!(value))));
        json!({ "matchLabels": labels })
    }

    /// As a peer of a NetworkPolicy.
    pub(super) fn peer(&self) -> Value {
        json!({"namespaceSelector": {"matchLabels": {NAMESPACE: self.namespace}}, "podSelector": self.pod_selector()})
    }

    fn pod_selector(&self) -> Value {
        let labels: Map<String, Value> =
            self.label.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
        json!({ "matchLabels": labels })
    }
}

/// Those that are known; otherwise the usual one.
pub(super) fn servers(world: &World<'_>) -> BTreeSet<Server> {
    let usual = || Server {
        namespace: "kube-system".to_owned(),
        label: Some(("k8s-app".to_owned(), "kube-dns".to_owned())),
        cilium: false,
    };
    let known = world.dns.iter().filter(|pod| !pod.host_network).map(|pod| Server::of(pod, false));
    let known: BTreeSet<Server> = known.collect();
    if known.is_empty() { BTreeSet::from([usual()]) } else { known }
}

/// Ports of name servers, UDP and TCP; Cilium wants port numbers as text.
pub(super) fn ports(world: &World<'_>, text: bool) -> Vec<Value> {
    let port = |port: u16| {
        let number = if text { json!(port.to_string()) } else { json!(port) };
        ["UDP", "TCP"].map(|protocol| json!({"port": number, "protocol": protocol}))
    };
    dns_ports(&world.situation).into_iter().flat_map(port).collect()
}

/// The name servers that default deny of their own keeps closed to the job.
pub(super) fn closed_servers(world: &World<'_>) -> BTreeSet<Server> {
    let closed = world.closed().filter(|door| held_back(door, Direction::Ingress)).filter_map(|door| {
        let Far::Dns(number) = door.dst else { return None };
        let pod = world.dns.get(number).filter(|pod| !pod.host_network)?;
        let Decision::Closed(Closure { default_deny, .. }) = &door.ingress else { return None };
        Some(Server::of(pod, default_deny.iter().any(|policy| policy.kind < PolicyKind::NetworkPolicy)))
    });
    closed.filter(|server| server.label.is_some()).collect()
}

/// Policies that let the job in at name servers, which are isolated already.
pub(super) fn policies(world: &World<'_>, servers: &BTreeSet<Server>, job: &[Handle]) -> Vec<Object> {
    let policies = servers.iter().enumerate().map(|(number, server)| {
        // Another policy of the remedy may have the plain name in this namespace.
        let number = number + usize::from(server.namespace == world.namespace());
        if server.cilium { cilium(world, server, job, number) } else { network(world, server, job, number) }
    });
    policies.filter_map(|policy| Object::from_value(policy).ok()).collect()
}

fn cilium(world: &World<'_>, server: &Server, job: &[Handle], number: usize) -> Value {
    let peer = |mut selector: Value| {
        if let Some(fields) = selector.as_object_mut() {
            let labels = fields.entry("matchLabels").or_insert_with(|| json!({}));
            if let Some(labels) = labels.as_object_mut() {
                labels.insert(CILIUM_NAMESPACE.to_owned(), json!(world.namespace()));
            }
        }
        selector
    };
    let from: Vec<Value> = selectors(job).into_iter().map(peer).collect();
    json!({"apiVersion": "cilium.io/v2", "kind": "CiliumNetworkPolicy",
        "metadata": metadata(world, "CiliumNetworkPolicy", &server.namespace, number),
        "spec": {"endpointSelector": server.pod_selector(),
            "ingress": [{"fromEndpoints": from, "toPorts": [{"ports": ports(world, true)}]}]}})
}

fn network(world: &World<'_>, server: &Server, job: &[Handle], number: usize) -> Value {
    let namespace = json!({"matchLabels": {NAMESPACE: world.namespace()}});
    let peer = |selector: Value| json!({"namespaceSelector": namespace, "podSelector": selector});
    let from: Vec<Value> = selectors(job).into_iter().map(peer).collect();
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": metadata(world, "NetworkPolicy", &server.namespace, number),
        "spec": {"podSelector": server.pod_selector(), "policyTypes": ["Ingress"],
            "ingress": [{"from": from, "ports": ports(world, false)}]}})
}

//! Hand-derived cases, one per rule kind and more. A pair's answer is written as two letters, egress and ingress:
//! `O` open, `C` closed, `?` unknown.

mod admin;
mod answers;
mod cilium_ports;
mod cilium_rules;
mod cilium_selectors;
mod ends;
mod malformed;
mod many;
mod netpol;

use serde_json::{Value, json};

use super::*;
use crate::facts::{Namespace, Pod, Protocol};
use crate::object::Object;

pub(super) const CILIUM: Settings =
    Settings { cilium_version: Some((1, 19)), enforcement: Enforcement::Default, cni: Cni::Cilium };
pub(super) const OTHER: Settings = Settings { cilium_version: None, cni: Cni::Other, ..CILIUM };
pub(super) const UNKNOWN: Settings = Settings { cilium_version: None, cni: Cni::Unknown, ..CILIUM };

pub(super) fn at(version: (u16, u16)) -> Settings {
    Settings { cilium_version: Some(version), ..CILIUM }
}

pub(super) fn object(value: Value) -> Object {
    Object::from_value(value).unwrap()
}

fn policy(kind: &str, version: &str, namespace: Option<&str>, name: &str, spec: Value) -> Object {
    object(json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace,
        "creationTimestamp": "2026-11-01T09:00:00Z"}, "spec": spec}))
}

/// A CiliumNetworkPolicy in namespace `ml`.
pub(super) fn cnp(name: &str, spec: Value) -> Object {
    policy("CiliumNetworkPolicy", "cilium.io/v2", Some("ml"), name, spec)
}

pub(super) fn ccnp(name: &str, spec: Value) -> Object {
    policy("CiliumClusterwideNetworkPolicy", "cilium.io/v2", None, name, spec)
}

/// A NetworkPolicy in namespace `ml`.
pub(super) fn np(name: &str, spec: Value) -> Object {
    policy("NetworkPolicy", "networking.k8s.io/v1", Some("ml"), name, spec)
}

pub(super) fn anp(name: &str, spec: Value) -> Object {
    policy("AdminNetworkPolicy", "policy.networking.k8s.io/v1alpha1", None, name, spec)
}

pub(super) fn banp(spec: Value) -> Object {
    policy("BaselineAdminNetworkPolicy", "policy.networking.k8s.io/v1alpha1", None, "default", spec)
}

/// A set in a cluster with the namespaces `ml` (team=ml) and `web` (team=web).
pub(super) fn set(settings: Settings, objects: &[Object]) -> PolicySet {
    let namespace = |name: &str| {
        let mut namespace = Namespace::bare(name);
        namespace.labels.insert("team".to_owned(), name.to_owned());
        namespace
    };
    PolicySet::from_objects(objects, &[namespace("ml"), namespace("web")], settings)
}

/// A pod `namespace/name` with labels `a=b,c=d`, on node `n1`, with port 29500 named `rdzv` (TCP) and 53 named `dns`
/// (UDP). Its address is 10.0.0.N with N the sum of the name's letters.
pub(super) fn pod(path: &str, labels: &str) -> Pod {
    let (namespace, name) = path.split_once('/').unwrap();
    let labels: serde_json::Map<String, Value> =
        labels.split(',').filter_map(|l| l.split_once('=')).map(|(k, v)| (k.to_owned(), json!(v))).collect();
    let last: u32 = name.bytes().map(u32::from).sum();
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels, "uid": path},
        "spec": {"nodeName": "n1", "serviceAccountName": "trainer", "containers": [{"ports": [
            {"name": "rdzv", "containerPort": 29500}, {"name": "dns", "containerPort": 53, "protocol": "UDP"}]}]},
        "status": {"podIP": format!("10.0.0.{}", last % 256)}});
    Pod::from_object(&object(pod)).unwrap()
}

pub(super) fn host_pod(name: &str, node: Option<&str>) -> Pod {
    Pod { host_network: true, node: node.map(str::to_owned), ..pod(&format!("ml/{name}"), "app=host") }
}

pub(super) fn ask<'a>(src: impl Into<Peer<'a>>, dst: impl Into<Peer<'a>>, port: u16) -> Question<'a> {
    Question { src: src.into(), dst: dst.into(), protocol: Protocol::Tcp, ports: Ports::One(port) }
}

impl<'a> From<&'a Pod> for Peer<'a> {
    fn from(pod: &'a Pod) -> Self {
        Peer::Pod(pod)
    }
}

impl From<Entity> for Peer<'_> {
    fn from(entity: Entity) -> Self {
        Peer::Entity(entity, None)
    }
}

/// The world at an address.
pub(super) fn world(ip: &str) -> Peer<'static> {
    Peer::Entity(Entity::World, Some(ip.parse().unwrap()))
}

pub(super) fn letters(answer: &Answer) -> String {
    let letter = |decision: &Decision| match decision.verdict() {
        Verdict3::Open => 'O',
        Verdict3::Closed => 'C',
        Verdict3::Unknown => '?',
    };
    [letter(&answer.egress), letter(&answer.ingress)].into_iter().collect()
}

/// The letters for TCP to a port.
pub(super) fn tcp<'a, 'b>(
    set: &PolicySet,
    src: impl Into<Peer<'a>>,
    dst: impl Into<Peer<'b>>,
    port: u16,
) -> String {
    let (src, dst): (Peer<'_>, Peer<'_>) = (src.into(), dst.into());
    letters(&set.evaluate(&Question { src, dst, protocol: Protocol::Tcp, ports: Ports::One(port) }))
}

pub(super) fn names(policies: &[PolicyRef]) -> Vec<&str> {
    policies.iter().map(|policy| policy.name.as_str()).collect()
}

pub(super) fn closure(decision: &Decision) -> &Closure {
    match decision {
        Decision::Closed(closure) => closure,
        other => panic!("not closed: {other:?}"),
    }
}

pub(super) fn reason(decision: &Decision) -> &str {
    match decision {
        Decision::Unknown { reason } => reason,
        other => panic!("not unknown: {other:?}"),
    }
}

//! A cluster in two zones: two workers here, their coordinator there, a policy that keeps them apart, and the Hubble
//! server of the workers' node.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use firedoor_proto::flow::layer4::Protocol;
use firedoor_proto::observer::GetFlowsResponse;
use firedoor_proto::observer::get_flows_response::ResponseTypes;
use serde_json::{Value, json};

use crate::hubble::{FakeHubble, Traits, flows};
use crate::kube::FakeKube;

/// The node that the agent is on.
pub(crate) const NODE: &str = "gpu-node-a";
const COORDINATOR: &str = "llama-master-0";

pub(crate) struct Stage {
    pub(crate) kube: FakeKube,
    pub(crate) hubble: FakeHubble,
    pub(crate) directory: tempfile::TempDir,
    agents: AtomicU32,
}

impl Stage {
    pub(crate) async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let kube = FakeKube::start().await;
        kube.serve_all_policies();
        kube.serve("kubeflow.org/v1", "PyTorchJob", "pytorchjobs", true);
        kube.put_all(objects());
        kube.kubeconfig(directory.path());
        let hubble = FakeHubble::on_socket(Traits::node(), directory.path());
        Self { kube, hubble, directory, agents: AtomicU32::new(0) }
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.directory.path().join("kubeconfig")
    }

    /// How many agents were started before.
    pub(crate) fn count(&self) -> u32 {
        self.agents.fetch_add(1, Ordering::Relaxed)
    }

    /// Takes the policy away.
    pub(crate) fn open(&self) {
        assert!(self.kube.delete("networkpolicies", "ml", "stay-in-zone"));
    }

    /// Other pods in place of those there were.
    pub(crate) fn replace_job(&self) {
        for pod in ["llama-worker-0", "llama-worker-1", COORDINATOR] {
            assert!(self.kube.delete("pods", "ml", pod));
        }
        self.kube.put_all([worker(8, NODE), worker(9, "gpu-node-b")]);
    }
}

/// All that is there at the beginning.
pub(crate) fn objects() -> [Value; 10] {
    [
        node(NODE, "zone-a", 1),
        node("gpu-node-b", "zone-b", 2),
        namespace("default"),
        namespace("kube-system"),
        namespace("ml"),
        job(),
        worker(0, NODE),
        worker(1, NODE),
        coordinator(),
        policy(),
    ]
}

fn node(name: &str, zone: &str, number: u8) -> Value {
    json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": zone, "topology.kubernetes.io/region": "r"}},
        "spec": {"providerID": format!("aws:///{zone}/{name}")},
        "status": {"addresses": [{"type": "InternalIP", "address": format!("192.168.0.{number}")}]}})
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}}})
}

fn job() -> Value {
    let template = |zone: &str| json!({"metadata": {"labels": {"zone": zone}}, "spec": {"containers": [{"name": "pytorch"}]}});
    json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
        "metadata": {"name": "llama", "namespace": "ml", "uid": "uid-llama"},
        "spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": template("zone-b")},
            "Worker": {"replicas": 2, "template": template("zone-a")}}}})
}

fn member(name: &str, role: &str, index: u32, node: &str, zone: &str, address: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "ml", "uid": format!("uid-{name}"), "creationTimestamp": "2026-11-01T09:00:00Z",
            "labels": {"training.kubeflow.org/job-name": "llama", "training.kubeflow.org/operator-name": "pytorchjob-controller",
                "training.kubeflow.org/replica-type": role, "training.kubeflow.org/replica-index": index.to_string(), "zone": zone},
            "ownerReferences": [{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "llama", "uid": "uid-llama", "controller": true}]},
        "spec": {"nodeName": node, "containers": [{"name": "pytorch", "ports": [{"containerPort": 29500}],
            "resources": {"limits": {"nvidia.com/gpu": "8"}}}]},
        "status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "startTime": "2026-11-01T09:00:01Z"}})
}

fn worker(index: u32, node: &str) -> Value {
    let zone = if node == NODE { "zone-a" } else { "zone-b" };
    member(&format!("llama-worker-{index}"), "worker", index, node, zone, &address(index))
}

fn address(worker: u32) -> String {
    format!("10.244.1.{}", 10 + worker)
}

fn coordinator() -> Value {
    member(COORDINATOR, "master", 0, "gpu-node-b", "zone-b", "10.244.2.20")
}

/// Workers may talk within their zone only.
fn policy() -> Value {
    let zone = json!({"podSelector": {"matchLabels": {"zone": "zone-a"}}});
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "stay-in-zone", "namespace": "ml", "uid": "uid-policy"},
        "spec": {"podSelector": {"matchLabels": {"zone": "zone-a"}}, "policyTypes": ["Egress"], "egress": [{"to": [zone]}]}})
}

fn timestamp(at: SystemTime) -> prost_types::Timestamp {
    let since = at.duration_since(UNIX_EPOCH).unwrap();
    prost_types::Timestamp { seconds: since.as_secs() as i64, nanos: since.subsec_nanos() as i32 }
}

/// With the addresses of the worker and the coordinator.
fn between(worker: u32, mut response: GetFlowsResponse) -> GetFlowsResponse {
    if let Some(ResponseTypes::Flow(flow)) = &mut response.response_types
        && let Some(ip) = &mut flow.ip
    {
        ip.source = address(worker);
    }
    response
}

/// A worker's attempt to reach its coordinator, denied; from a port of its own for each number.
pub(crate) fn denied(worker: u32, number: u64, at: SystemTime) -> Vec<GetFlowsResponse> {
    let mut told = flows::denial(NODE, &format!("llama-worker-{worker}"), COORDINATOR, number, timestamp(at));
    for response in &mut told {
        set_source_port(response, 40_000 + u32::try_from(number).unwrap());
    }
    told.map(|response| between(worker, response)).to_vec()
}

/// A worker's attempt to reach its coordinator, and the coordinator's answer.
pub(crate) fn passed(worker: u32, number: u64, at: SystemTime) -> Vec<GetFlowsResponse> {
    let name = format!("llama-worker-{worker}");
    let mut syn = flows::syn(NODE, &name, COORDINATOR, number, timestamp(at));
    set_source_port(&mut syn, 40_000 + u32::try_from(number).unwrap());
    let syn = between(worker, syn);
    let mut answer = syn.clone();
    if let Some(ResponseTypes::Flow(flow)) = &mut answer.response_types {
        std::mem::swap(&mut flow.source, &mut flow.destination);
        if let Some(ip) = &mut flow.ip {
            std::mem::swap(&mut ip.source, &mut ip.destination);
        }
        if let Some(Protocol::Tcp(tcp)) = flow.l4.as_mut().and_then(|l4| l4.protocol.as_mut()) {
            std::mem::swap(&mut tcp.source_port, &mut tcp.destination_port);
            if let Some(flags) = &mut tcp.flags {
                flags.ack = true;
            }
        }
        flow.is_reply = Some(true);
        flow.traffic_direction = 1;
        flow.uuid = format!("00000000-0000-4000-9000-{number:012x}");
    }
    vec![syn, answer]
}

fn set_source_port(response: &mut GetFlowsResponse, port: u32) {
    if let Some(ResponseTypes::Flow(flow)) = &mut response.response_types
        && let Some(Protocol::Tcp(tcp)) = flow.l4.as_mut().and_then(|l4| l4.protocol.as_mut())
    {
        tcp.source_port = port;
    }
}

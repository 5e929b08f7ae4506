//! Small clusters, each with one way to lock a job's door, and what has to be proposed for it.

mod allow;
mod deny;
mod place;
mod scale;

use std::net::IpAddr;

use serde_json::{Value, json};

use super::{BlockedPair, Situation, propose};
use crate::attribute::Peer;
use crate::facts::Protocol;
use crate::inventory::{Inventory, JobIndex, PodId};
use crate::membership::Grouping;
use crate::object::Object;
use crate::policy::Settings;
use crate::report::{CauseKind, RemedyReport, Symptom};

/// A cluster and what is wrong in it.
struct Cluster {
    objects: Vec<Value>,
    group_by: Vec<String>,
    settings: Settings,
    symptom: Symptom,
    cause: CauseKind,
    /// Source, destination, protocol, port. A destination that is no pod is an address.
    blocked: Vec<(&'static str, &'static str, Protocol, u16)>,
}

impl Cluster {
    fn new(objects: impl IntoIterator<Item = Value>) -> Self {
        Self {
            objects: objects.into_iter().collect(),
            group_by: Vec::new(),
            settings: Settings::default(),
            symptom: Symptom::HardBlock,
            cause: CauseKind::Policy,
            blocked: Vec::new(),
        }
    }

    fn with(mut self, objects: impl IntoIterator<Item = Value>) -> Self {
        self.objects.extend(objects);
        self
    }

    fn cause(mut self, cause: CauseKind) -> Self {
        self.cause = cause;
        self
    }

    fn blocked(mut self, src: &'static str, dst: &'static str, port: u16) -> Self {
        self.blocked.push((src, dst, Protocol::Tcp, port));
        self
    }

    fn remedies(&self) -> Vec<RemedyReport> {
        let objects: Vec<Object> =
            self.objects.iter().map(|o| Object::from_value(o.clone()).expect("an object")).collect();
        let grouping = Grouping { group_by: self.group_by.clone(), ..Grouping::default() };
        let inventory = Inventory::new(objects, &grouping);
        let pod = |name: &str| {
            let place = inventory.pods().iter().position(|pod| pod.name == name)?;
            Some(PodId(u32::try_from(place).ok()?))
        };
        let job =
            inventory.jobs().find(|(_, job)| job.members.len() > 1).map_or(JobIndex(0), |(index, _)| index);
        let blocked = self.blocked.iter().map(|(src, dst, protocol, port)| BlockedPair {
            src: pod(src).expect("a pod"),
            dst: match (pod(dst), dst.parse::<IpAddr>()) {
                (Some(dst), _) if *port == 53 => Peer::Dns(Some(dst), IpAddr::from([10, 0, 0, 53])),
                (Some(dst), _) => Peer::Member(dst),
                (None, Ok(ip)) if *port == 53 => Peer::Dns(None, ip),
                (None, Ok(ip)) => Peer::ApiServer(ip),
                (None, Err(_)) => panic!("{dst} is neither a pod nor an address"),
            },
            protocol: *protocol,
            ports: vec![*port],
        });
        let blocked: Vec<BlockedPair> = blocked.collect();
        propose(&Situation {
            objects: inventory.objects(),
            inventory: &inventory,
            job,
            symptom: self.symptom,
            cause: self.cause,
            blocked: &blocked,
            policy_settings: self.settings,
        })
    }
}

fn kinds(remedy: &RemedyReport) -> Vec<&'static str> {
    remedy.steps.iter().map(|step| step.kind).collect()
}

fn patch(remedy: &RemedyReport, step: usize) -> Value {
    serde_saphyr::from_str(&remedy.steps[step].patch).expect("a patch is YAML")
}

/// Step kinds and whether it was checked, of all.
fn outline(remedies: &[RemedyReport]) -> Vec<(Vec<&'static str>, bool)> {
    remedies.iter().map(|remedy| (kinds(remedy), remedy.verified)).collect()
}

fn node(name: &str, zone: &str, taints: &[&str], gpus: u32) -> Value {
    let taints: Vec<Value> =
        taints.iter().map(|key| json!({"key": key, "value": "present", "effect": "NoSchedule"})).collect();
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": zone,
        "topology.kubernetes.io/region": "r", "pool": if gpus > 0 { "gpu" } else { "cpu" }}}, "spec": {"taints": taints},
        "status": {"allocatable": {"cpu": "64", "nvidia.com/gpu": gpus.to_string()}}})
}

fn pod(name: &str, node: &str, gpus: u32, labels: Value, owner: Option<&Value>) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ml", "uid": format!("uid-{name}"),
        "labels": labels}, "spec": {"nodeName": node, "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": gpus.to_string()}}}]},
        "status": {"phase": "Running", "podIPs": [{"ip": format!("10.0.0.{}", name.len())}]}});
    if gpus == 0 {
        pod["spec"]["containers"] = json!([{"name": "main"}]);
    }
    if let Some(owner) = owner {
        pod["metadata"]["ownerReferences"] = json!([{"apiVersion": owner["apiVersion"], "kind": owner["kind"],
            "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"], "controller": true}]);
    }
    pod
}

fn object(api: &str, kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": "ml", "uid": format!("uid-{kind}-{name}")}, "spec": spec})
}

fn cnp(name: &str, spec: Value) -> Value {
    object("cilium.io/v2", "CiliumNetworkPolicy", name, spec)
}

fn netpol(name: &str, spec: Value) -> Value {
    object("networking.k8s.io/v1", "NetworkPolicy", name, spec)
}

fn dns() -> Value {
    let mut pod = pod("coredns-1", "cpu-b", 0, json!({"k8s-app": "kube-dns"}), None);
    pod["metadata"]["namespace"] = json!("kube-system");
    pod
}

/// A PyTorchJob whose master runs without accelerators.
fn pytorch(master_node: &str, worker_nodes: &[&str]) -> Vec<Value> {
    let template = |gpus: u32| {
        let limits = if gpus > 0 { json!({"limits": {"nvidia.com/gpu": gpus}}) } else { json!({}) };
        json!({"spec": {"containers": [{"name": "pytorch", "resources": limits}]}})
    };
    let job = object(
        "kubeflow.org/v1",
        "PyTorchJob",
        "llama",
        json!({"pytorchReplicaSpecs": {
        "Master": {"replicas": 1, "template": template(0)},
        "Worker": {"replicas": worker_nodes.len(), "template": template(8)}}}),
    );
    let labels = |role: &str, index: usize| {
        json!({"training.kubeflow.org/job-name": "llama", "training.kubeflow.org/operator-name": "pytorchjob-controller",
        "training.kubeflow.org/replica-type": role, "training.kubeflow.org/replica-index": index.to_string()})
    };
    let mut objects = vec![pod("llama-master-0", master_node, 0, labels("master", 0), Some(&job))];
    for (index, node) in worker_nodes.iter().enumerate() {
        objects.push(pod(&format!("llama-worker-{index}"), node, 8, labels("worker", index), Some(&job)));
    }
    objects.push(job);
    objects
}

fn nodes() -> Vec<Value> {
    vec![
        node("gpu-a1", "zone-a", &["gpu"], 8),
        node("gpu-a2", "zone-a", &["gpu"], 16),
        node("cpu-b", "zone-b", &[], 0),
        node("gpu-c", "zone-c", &["gpu"], 8),
    ]
}

//! The world in which memory is measured: 200 pods on this node, of 50 jobs with 4,096 members together, and 100,000
//! pairs of them. Enters: nothing; leaves: objects as an API server holds them, and who talks to whom.

use serde_json::{Value, json};

/// The agent's node.
pub(crate) const NODE: &str = "gpu-node-0";
/// Nodes that the members run on, this one included.
const NODES: usize = 512;
const ZONES: usize = 3;
/// Members of each large job: as many as are all watched.
const LARGE: usize = 512;
const LARGE_JOBS: usize = 7;
const JOBS: usize = 50;
const MEMBERS: usize = 4096;
const LOCAL: usize = 200;
/// Pairs of pods, by who opens.
pub(crate) const PAIRS: usize = 100_000;

/// A pod of a job.
#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) job: usize,
    pub(crate) name: String,
    pub(crate) ip: String,
    pub(crate) local: bool,
}

pub(crate) struct World {
    pub(crate) members: Vec<Member>,
    /// Opener and called one, as indices of members.
    pub(crate) pairs: Vec<(u32, u32)>,
}

impl World {
    pub(crate) fn new() -> Self {
        let small = MEMBERS - LARGE * LARGE_JOBS;
        let small_jobs = JOBS - LARGE_JOBS;
        let size = |job: usize| match job.checked_sub(LARGE_JOBS) {
            None => LARGE,
            Some(nth) => small / small_jobs + usize::from(nth < small % small_jobs),
        };
        let locals = |job: usize| match job.checked_sub(LARGE_JOBS) {
            None => 16,
            Some(nth) => 2 + usize::from(nth < LOCAL - 16 * LARGE_JOBS - 2 * small_jobs),
        };
        let mut members = Vec::with_capacity(MEMBERS);
        for job in 0..JOBS {
            for index in 0..size(job) {
                let number = members.len();
                members.push(Member {
                    job,
                    name: format!("train-{job}-worker-{index}"),
                    ip: format!("10.{}.{}.{}", 1 + number / 62_500, number / 250 % 250, number % 250 + 1),
                    local: index < locals(job),
                });
            }
        }
        let pairs = pairs(&members);
        Self { members, pairs }
    }

    pub(crate) fn objects(&self) -> Vec<Value> {
        let mut objects: Vec<Value> = (0..NODES).map(node).collect();
        objects.extend(
            ["default", "kube-system", "ml"]
                .map(|name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})),
        );
        objects.extend((0..JOBS).map(|job| {
            json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
                "metadata": {"name": format!("train-{job}"), "namespace": "ml", "uid": format!("uid-train-{job}")},
                "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": {"spec": {"containers": [{"name": "pytorch"}]}}}}}})
        }));
        objects.extend(self.members.iter().enumerate().map(|(number, member)| pod(number, member)));
        objects
    }
}

/// Local pods with every other member of their job, opened from here first, then those opened from there.
fn pairs(members: &[Member]) -> Vec<(u32, u32)> {
    let index = |number: usize| u32::try_from(number).expect("few members");
    let mut outward = Vec::new();
    for (own, member) in members.iter().enumerate().filter(|(_, member)| member.local) {
        let peers =
            members.iter().enumerate().filter(|(peer, other)| *peer != own && other.job == member.job);
        outward.extend(peers.map(|(peer, _)| (index(own), index(peer))));
    }
    let inward = outward.iter().filter(|(_, to)| !members[*to as usize].local).map(|(from, to)| (*to, *from));
    let inward: Vec<(u32, u32)> = inward.collect();
    outward.into_iter().chain(inward).take(PAIRS).collect()
}

fn node_name(number: usize, local: bool) -> String {
    if local { NODE.to_owned() } else { format!("gpu-node-{}", 1 + number % (NODES - 1)) }
}

fn node(number: usize) -> Value {
    json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": format!("gpu-node-{number}"), "labels": {"topology.kubernetes.io/zone": format!("zone-{}", number % ZONES)}},
        "spec": {"providerID": format!("aws:///zone-{}/i-{number}", number % ZONES)},
        "status": {"addresses": [{"type": "InternalIP", "address": format!("192.168.{}.{}", number / 250, number % 250 + 1)}]}})
}

/// About as much as an operator, a device plugin and a service mesh make of a pod: some 6 KB.
fn pod(number: usize, member: &Member) -> Value {
    let job = format!("train-{}", member.job);
    let variables: Vec<Value> = (0..30)
        .map(|n| json!({"name": format!("NCCL_SETTING_{n}"), "value": format!("value-{n}-of-{job}")}))
        .collect();
    let mounts: Vec<Value> = (0..8)
        .map(|n| json!({"name": format!("volume-{n}"), "mountPath": format!("/mnt/data/{n}"), "readOnly": true}))
        .collect();
    let conditions: Vec<Value> = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]
        .map(|kind| json!({"type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": "2026-11-01T09:00:00Z"}))
        .to_vec();
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": member.name, "namespace": "ml", "uid": format!("00000000-0000-4000-8000-{number:012}"),
            "creationTimestamp": "2026-11-01T09:00:00Z",
            "labels": {"training.kubeflow.org/job-name": job, "training.kubeflow.org/operator-name": "pytorchjob-controller",
                "training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": number.to_string()},
            "managedFields": [{"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:status": {"f:phase": {}, "f:podIP": {}, "f:conditions": {}}}}],
            "ownerReferences": [{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": job, "uid": format!("uid-{job}"), "controller": true}]},
        "spec": {"nodeName": node_name(number, member.local), "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
            "containers": [{"name": "pytorch", "image": "example.com/train:1", "env": variables, "volumeMounts": mounts,
                "ports": [{"containerPort": 29500}], "resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
        "status": {"phase": "Running", "podIP": member.ip, "podIPs": [{"ip": member.ip}], "startTime": "2026-11-01T09:00:01Z", "conditions": conditions}})
}

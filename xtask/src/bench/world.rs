//! A made-up cluster. Enters: its size; leaves: its nodes, pods and Kubernetes objects. Every fourth training
//! job has a policy that forbids its workers everything but name resolution.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

/// The size of the cluster, and the seed of its traffic.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Shape {
    /// Nodes, spread over three zones.
    #[arg(long, default_value_t = 64)]
    pub(super) nodes: usize,
    /// Training jobs.
    #[arg(long, default_value_t = 32)]
    pub(super) jobs: usize,
    /// Pods of each job.
    #[arg(long, default_value_t = 16)]
    pub(super) pods: usize,
    /// Same seed, same bytes.
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
}

/// A pod, and how Hubble prints it.
pub(super) struct Pod {
    pub(super) namespace: String,
    pub(super) ip: String,
    pub(super) node: usize,
    /// As the pod's own node prints it.
    pub(super) local: String,
    /// As other nodes print it: without number and workloads.
    pub(super) remote: String,
    object: Value,
}

/// A training job: its pods by index, the master first.
pub(super) struct Job {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) members: Vec<usize>,
    pub(super) blocked: bool,
}

/// The cluster.
pub(super) struct World {
    pub(super) nodes: Vec<String>,
    pub(super) pods: Vec<Pod>,
    pub(super) jobs: Vec<Job>,
    /// Pods that have nothing to do with training.
    pub(super) web: Vec<usize>,
    pub(super) dns: usize,
    pub(super) store: usize,
}

/// The policy that blocks a job, by name.
const POLICY: &str = "workers-only-resolve-names";
/// Labels that this cluster's operator keeps out of identities, as is usual.
const NOT_IN_IDENTITIES: [&str; 2] =
    ["training.kubeflow.org/operator-name", "training.kubeflow.org/replica-index"];
const CREATED: &str = "2026-10-31T20:00:00Z";

impl World {
    /// Builds a cluster of this shape.
    pub(super) fn new(shape: &Shape) -> Result<Self> {
        ensure!((2..=5_000).contains(&shape.nodes), "between 2 and 5000 nodes");
        ensure!((2..=10_000).contains(&shape.jobs), "between 2 and 10000 jobs, so that some are blocked");
        ensure!((2..=5_000).contains(&shape.pods), "between 2 and 5000 pods a job");
        ensure!(shape.jobs * shape.pods <= 1_000_000, "at most a million pods");
        let mut world = Self {
            nodes: (0..shape.nodes).map(|node| format!("node-{node:04}")).collect(),
            pods: Vec::new(),
            jobs: Vec::new(),
            web: Vec::new(),
            dns: 0,
            store: 0,
        };
        for job in 0..shape.jobs {
            world.add_job(job, shape.pods);
        }
        for web in 0..(shape.jobs * shape.pods / 2).max(8) {
            let site = web % 20;
            let labels = [("app", format!("web-{site}"))];
            let pod = world.add(
                "shop",
                &format!("web-{site}-7c65d6cfc9-{web:05x}"),
                &labels,
                ("ReplicaSet", &format!("web-{site}-7c65d6cfc9")),
                None,
            );
            world.web.push(pod);
        }
        world.dns = world.add(
            "kube-system",
            "coredns-5d78c9869d-x2x9k",
            &[("k8s-app", "kube-dns".into())],
            ("ReplicaSet", "coredns-5d78c9869d"),
            None,
        );
        world.store =
            world.add("storage", "minio-0", &[("app", "minio".into())], ("StatefulSet", "minio"), None);
        Ok(world)
    }

    /// Jobs that nobody blocks.
    pub(super) fn open_jobs(&self) -> impl Iterator<Item = &Job> {
        self.jobs.iter().filter(|job| !job.blocked)
    }

    /// Jobs that a policy blocks.
    pub(super) fn blocked_jobs(&self) -> impl Iterator<Item = &Job> {
        self.jobs.iter().filter(|job| job.blocked)
    }

    /// All objects, as `kubectl get -o json` prints them.
    pub(super) fn objects(&self) -> Value {
        let nodes = self.nodes.iter().enumerate().map(|(index, name)| node_object(index, name));
        let mut namespaces: Vec<&str> = self.pods.iter().map(|pod| pod.namespace.as_str()).collect();
        namespaces.sort_unstable();
        namespaces.dedup();
        let namespaces = namespaces.into_iter().map(|name| {
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "uid": format!("namespace-{name}"),
                "labels": {"kubernetes.io/metadata.name": name}}})
        });
        let jobs = self.jobs.iter().map(job_object);
        let pods = self.pods.iter().map(|pod| pod.object.clone());
        let policies = self.blocked_jobs().map(policy_object);
        let items: Vec<Value> = nodes.chain(namespaces).chain(jobs).chain(pods).chain(policies).collect();
        json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items})
    }

    fn add_job(&mut self, index: usize, pods: usize) {
        let namespace = format!("team-{}", index % 8);
        let name = format!("train-{index:04}");
        let mut members = Vec::with_capacity(pods);
        for member in 0..pods {
            let (role, rank) = if member == 0 { ("master", 0) } else { ("worker", member - 1) };
            let labels = [
                ("training.kubeflow.org/job-name", name.clone()),
                ("training.kubeflow.org/operator-name", "pytorchjob-controller".to_owned()),
                ("training.kubeflow.org/replica-index", rank.to_string()),
                ("training.kubeflow.org/replica-type", role.to_owned()),
            ];
            let pod = format!("{name}-{role}-{rank}");
            members.push(self.add(&namespace, &pod, &labels, ("PyTorchJob", &name), Some(8)));
        }
        self.jobs.push(Job { namespace, name, members, blocked: index % 4 == 1 });
    }

    fn add(
        &mut self,
        namespace: &str,
        name: &str,
        labels: &[(&str, String)],
        owner: (&str, &str),
        gpus: Option<u32>,
    ) -> usize {
        let index = self.pods.len();
        let number = 0x0a40_0000 + u32::try_from(index).unwrap_or(u32::MAX >> 8) + 10;
        let ip = std::net::Ipv4Addr::from_bits(number).to_string();
        let node = index % self.nodes.len();
        let identity = 20_000 + index % 40_000;
        // Hubble prints the labels that make up the identity: a part of the pod's.
        let identifying = labels.iter().filter(|(key, _)| !NOT_IN_IDENTITIES.contains(key));
        let mut seen: Vec<String> = identifying.map(|(key, value)| format!("k8s:{key}={value}")).collect();
        seen.push("k8s:io.cilium.k8s.policy.cluster=default".to_owned());
        seen.push(format!("k8s:io.kubernetes.pod.namespace={namespace}"));
        seen.sort_unstable();
        let common = format!(
            "\"identity\":{identity},\"cluster_name\":\"default\",\"namespace\":\"{namespace}\",\"labels\":{},\"pod_name\":\"{name}\"",
            json!(seen)
        );
        let (kind, owner) = owner;
        // Hubble names the Deployment where Kubernetes' owner is its ReplicaSet.
        let (workload, workload_kind) = match kind {
            "ReplicaSet" => (owner.rsplit_once('-').map_or(owner, |(name, _)| name), "Deployment"),
            _ => (owner, kind),
        };
        let api = match kind {
            "PyTorchJob" => "kubeflow.org/v1",
            _ => "apps/v1",
        };
        let labels: serde_json::Map<String, Value> =
            labels.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
        let resources =
            gpus.map_or(json!({}), |gpus| json!({"limits": {"nvidia.com/gpu": gpus.to_string()}}));
        let object = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "uid": format!("pod-{namespace}-{name}"), "labels": labels,
                "creationTimestamp": CREATED,
                "ownerReferences": [{"apiVersion": api, "kind": kind, "name": owner, "uid": uid(kind, namespace, owner), "controller": true}]},
            "spec": {"nodeName": self.nodes[node], "containers": [{"name": "main", "image": "example/main:1", "resources": resources}]},
            "status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "startTime": CREATED}});
        self.pods.push(Pod {
            namespace: namespace.to_owned(),
            ip,
            node,
            local: format!(
                "{{\"ID\":{},{common},\"workloads\":[{{\"name\":\"{workload}\",\"kind\":\"{workload_kind}\"}}]}}",
                1 + index % 4_000
            ),
            remote: format!("{{{common}}}"),
            object,
        });
        index
    }
}

fn uid(kind: &str, namespace: &str, name: &str) -> String {
    format!("{}-{namespace}-{name}", kind.to_lowercase())
}

fn node_object(index: usize, name: &str) -> Value {
    let zone = ["eu-1a", "eu-1b", "eu-1c"][index % 3];
    let address =
        std::net::Ipv4Addr::from_bits(0xc0a8_0000 + u32::try_from(index).unwrap_or(0) + 10).to_string();
    json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "uid": format!("node-{name}"), "labels": {"kubernetes.io/hostname": name,
            "topology.kubernetes.io/region": "eu-1", "topology.kubernetes.io/zone": zone}},
        "status": {"addresses": [{"type": "InternalIP", "address": address}], "allocatable": {"nvidia.com/gpu": "8"}}})
}

fn job_object(job: &Job) -> Value {
    let template = json!({"spec": {"containers": [{"name": "pytorch", "image": "example/main:1"}]}});
    json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
        "metadata": {"name": job.name, "namespace": job.namespace, "uid": uid("PyTorchJob", &job.namespace, &job.name),
            "creationTimestamp": CREATED},
        "spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": template},
            "Worker": {"replicas": job.members.len() - 1, "template": template}}}})
}

fn policy_object(job: &Job) -> Value {
    let dns = json!({"k8s:io.kubernetes.pod.namespace": "kube-system", "k8s-app": "kube-dns"});
    json!({"apiVersion": "cilium.io/v2", "kind": "CiliumNetworkPolicy",
        "metadata": {"name": format!("{POLICY}-{}", job.name), "namespace": job.namespace, "uid": uid("cnp", &job.namespace, &job.name)},
        "spec": {"endpointSelector": {"matchLabels": {"training.kubeflow.org/job-name": job.name, "training.kubeflow.org/replica-type": "worker"}},
            "egress": [{"toEndpoints": [{"matchLabels": dns}], "toPorts": [{"ports": [{"port": "53", "protocol": "ANY"}]}]}]}})
}

//! The Kubernetes objects of a run, as files. Enters: the cast, and what is in force; leaves: `objects/*.json`, as
//! `kubectl get -o json` prints lists, rewritten as a whole when something changes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::cast::{Cast, Node, Pod, uid};
use super::host::{now, write_whole};
use super::scenario::Policy;

/// The namespace of all jobs.
pub(super) const NAMESPACE: &str = "training";
/// The name of the policy that matches the packet filter.
pub(super) const POLICY: &str = "stay-in-zone";

/// How far a pod has come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// Since then.
    Running(String),
    /// From, to.
    Succeeded(String, String),
}

/// The objects, and where they are written.
pub(super) struct Objects {
    directory: PathBuf,
    run: String,
    created: String,
    phases: BTreeMap<String, Phase>,
    policy: Option<Value>,
}

impl Objects {
    /// Nothing written yet; no pod is there.
    pub(super) fn new(directory: &Path, run: &str) -> Result<Self> {
        fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
        Ok(Self {
            directory: directory.to_owned(),
            run: run.to_owned(),
            created: now(),
            phases: BTreeMap::new(),
            policy: None,
        })
    }

    /// A job's pods run from now on.
    pub(super) fn start(&mut self, cast: &Cast, job: &str) {
        for pod in cast.job(job) {
            self.phases.insert(pod.name.clone(), Phase::Running(now()));
        }
    }

    /// A job's pods have succeeded.
    pub(super) fn finish(&mut self, cast: &Cast, job: &str) {
        for pod in cast.job(job) {
            if let Some(Phase::Running(since)) = self.phases.get(&pod.name).cloned() {
                self.phases.insert(pod.name.clone(), Phase::Succeeded(since, now()));
            }
        }
    }

    /// A policy that closes the way from a zone's pods of a job to the other zone.
    pub(super) fn close(&mut self, cast: &Cast, job: &str, zone: usize, policy: Policy) {
        let zone = cast.zones.get(zone).map_or("", String::as_str);
        let own = json!({"training.kubeflow.org/job-name": job, "zone": zone});
        self.policy = match policy {
            Policy::Absent => None,
            Policy::Kubernetes => Some(self.object("networking.k8s.io/v1", "NetworkPolicy", POLICY, json!({
                "podSelector": {"matchLabels": own},
                "policyTypes": ["Egress"],
                "egress": [
                    {"to": [{"podSelector": {"matchLabels": own}}]},
                    {"to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}],
                     "ports": [{"protocol": "UDP", "port": 53}]},
                ],
            }))),
            Policy::Cilium => Some(self.object("cilium.io/v2", "CiliumNetworkPolicy", POLICY, json!({
                "endpointSelector": {"matchLabels": own},
                "egress": [
                    {"toEndpoints": [{"matchLabels": own}]},
                    {"toEndpoints": [{"matchLabels": {
                        "k8s:io.kubernetes.pod.namespace": "kube-system", "k8s:k8s-app": "kube-dns"}}],
                     "toPorts": [{"ports": [{"port": "53", "protocol": "UDP"}]}]},
                ],
            }))),
        };
    }

    /// The policy is deleted.
    pub(super) fn open(&mut self) {
        self.policy = None;
    }

    /// Writes all objects.
    pub(super) fn write(&self, cast: &Cast) -> Result<()> {
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {
                "name": NAMESPACE, "uid": uid(&[&self.run, "namespace"]), "creationTimestamp": self.created,
                "labels": {"kubernetes.io/metadata.name": NAMESPACE},
            },
            "status": {"phase": "Active"},
        });
        let nodes = cast.nodes.iter().map(|node| self.node(cast, node));
        self.list("cluster", nodes.chain([namespace]).collect())?;
        let jobs = cast.jobs().into_iter().filter(|job| self.exists(cast, job));
        let jobs = jobs.flat_map(|job| [self.job(cast, job), self.service(job)]);
        self.list("jobs", jobs.collect())?;
        self.list("pods", cast.pods.iter().filter_map(|pod| self.pod(cast, pod)).collect())?;
        self.list("policies", self.policy.iter().cloned().collect())
    }

    fn exists(&self, cast: &Cast, job: &str) -> bool {
        cast.job(job).any(|pod| self.phases.contains_key(&pod.name))
    }

    fn list(&self, name: &str, items: Vec<Value>) -> Result<()> {
        let list =
            json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items});
        write_whole(&self.directory.join(format!("{name}.json")), &format!("{list:#}\n"))
    }

    fn object(&self, api_version: &str, kind: &str, name: &str, spec: Value) -> Value {
        json!({
            "apiVersion": api_version, "kind": kind,
            "metadata": {
                "name": name, "namespace": NAMESPACE, "uid": uid(&[&self.run, kind, name]),
                "creationTimestamp": self.created,
            },
            "spec": spec,
        })
    }

    fn node(&self, cast: &Cast, node: &Node) -> Value {
        let zone = cast.zones.get(node.zone).map_or("", String::as_str);
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": node.name, "uid": uid(&[&self.run, &node.name]), "creationTimestamp": self.created,
                "labels": {
                    "kubernetes.io/hostname": node.name, "kubernetes.io/os": "linux",
                    "topology.kubernetes.io/region": cast.cloud.region(),
                    "topology.kubernetes.io/zone": zone,
                },
            },
            "spec": {"providerID": cast.cloud.provider_id(zone, &node.name)},
            "status": {
                "addresses": [
                    {"type": "InternalIP", "address": node.ip},
                    {"type": "Hostname", "address": node.name},
                ],
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": self.created}],
            },
        })
    }

    fn job(&self, cast: &Cast, job: &str) -> Value {
        let workers = cast.job(job).count().saturating_sub(1);
        let replica = |replicas: usize| {
            json!({
                "replicas": replicas, "restartPolicy": "OnFailure",
                "template": {"spec": {"containers": [{"name": "pytorch", "image": "registry.example.com/lab:1"}]}},
            })
        };
        self.object(
            "kubeflow.org/v1",
            "PyTorchJob",
            job,
            json!({
                "pytorchReplicaSpecs": {"Master": replica(1), "Worker": replica(workers)},
            }),
        )
    }

    fn service(&self, job: &str) -> Value {
        self.object(
            "v1",
            "Service",
            &format!("{job}-master-0"),
            json!({
                "clusterIP": "None", "clusterIPs": ["None"],
                "selector": {
                    "training.kubeflow.org/job-name": job, "training.kubeflow.org/replica-type": "master",
                },
            }),
        )
    }

    fn pod(&self, cast: &Cast, pod: &Pod) -> Option<Value> {
        let phase = self.phases.get(&pod.name)?;
        let (name, since, state) = match phase {
            Phase::Running(since) => ("Running", since, json!({"running": {"startedAt": since}})),
            Phase::Succeeded(since, end) => (
                "Succeeded",
                since,
                json!({"terminated": {
                "exitCode": 0, "reason": "Completed", "startedAt": since, "finishedAt": end}}),
            ),
        };
        let node = cast.nodes.get(pod.node)?;
        let running = matches!(phase, Phase::Running(_));
        let ready = if running { "True" } else { "False" };
        let last_change = if let Phase::Succeeded(_, end) = phase { end } else { since };
        let mut object = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": pod.name, "namespace": NAMESPACE, "uid": pod.uid, "creationTimestamp": since,
                "labels": self.labels(cast, pod),
                "ownerReferences": [{
                    "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": pod.job,
                    "uid": uid(&[&self.run, "PyTorchJob", pod.job]), "controller": true, "blockOwnerDeletion": true,
                }],
            },
            "spec": {
                "nodeName": node.name, "restartPolicy": "OnFailure",
                "containers": [{
                    "name": "pytorch", "image": "registry.example.com/lab:1",
                    "ports": [{"name": "rendezvous", "containerPort": pod.master.port(), "protocol": "TCP"}],
                    "env": [
                        {"name": "MASTER_ADDR", "value": format!("{}-master-0", pod.job)},
                        {"name": "MASTER_PORT", "value": pod.master.port().to_string()},
                        {"name": "WORLD_SIZE", "value": pod.world.to_string()},
                        {"name": "RANK", "value": pod.rank.to_string()},
                    ],
                }],
            },
            "status": {
                "phase": name, "startTime": since, "hostIP": node.ip, "hostIPs": [{"ip": node.ip}],
                "podIP": pod.ip, "podIPs": [{"ip": pod.ip}],
                "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": last_change}],
                "containerStatuses": [{
                    "name": "pytorch", "ready": running, "started": running, "restartCount": 0, "state": state,
                }],
            },
        });
        if pod.host_network
            && let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
        {
            spec.insert("hostNetwork".to_owned(), Value::Bool(true));
        }
        Some(object)
    }

    fn labels(&self, cast: &Cast, pod: &Pod) -> Value {
        let (role, index) = match pod.rank.checked_sub(1) {
            None => ("master", 0),
            Some(worker) => ("worker", worker),
        };
        let mut labels = json!({
            "training.kubeflow.org/job-name": pod.job,
            "training.kubeflow.org/operator-name": "pytorchjob-controller",
            "training.kubeflow.org/replica-type": role,
            "training.kubeflow.org/replica-index": index.to_string(),
            "zone": cast.zones.get(pod.zone),
        });
        if pod.rank == 0
            && let Some(labels) = labels.as_object_mut()
        {
            labels.insert("training.kubeflow.org/job-role".to_owned(), "master".into());
        }
        labels
    }
}

//! A small cluster to follow, and what a test waits for.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use firedoor::cluster::{Access, ClusterSettings, Credentials, Lookup, Snapshot, follow};
use firedoor_core::membership::Grouping;
use firedoor_core::object::Object;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};

use crate::kube::FakeKube;

/// The node that is followed.
pub(crate) const NODE: &str = "node-a";

/// A pod of a PyTorchJob.
pub(crate) fn pod(job: &str, index: u32, node: &str) -> Value {
    let name = format!("{job}-worker-{index}");
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "ml", "uid": format!("uid-{name}"),
            "creationTimestamp": "2026-11-01T09:00:00Z",
            "labels": {"training.kubeflow.org/job-name": job, "training.kubeflow.org/operator-name": "pytorchjob-controller",
                "training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": index.to_string()},
            "annotations": {"k8s.v1.cni.cncf.io/network-status": "[{\"name\": \"cilium\"}]"},
            "managedFields": [{"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:status": {"f:phase": {}}}}],
            "ownerReferences": [{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": job, "uid": format!("uid-{job}"), "controller": true}]},
        "spec": {"nodeName": node, "containers": [{"name": "pytorch", "image": "example.com/train:1",
            "resources": {"limits": {"nvidia.com/gpu": "8"}, "requests": {"nvidia.com/gpu": "8"}}}]},
        "status": {"phase": "Running", "podIP": format!("10.{}.{}.{}", job.len(), index / 250, index % 250 + 1), "startTime": "2026-11-01T09:00:01Z",
            "podIPs": [{"ip": format!("10.{}.{}.{}", job.len(), index / 250, index % 250 + 1)}]}})
}

/// A pod of a plain service, of no job.
pub(crate) fn other_pod(index: u32, node: &str) -> Value {
    let name = format!("web-{index}");
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": format!("team-{}", index % 50), "uid": format!("uid-{name}"), "labels": {"app": "web"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "uid-web-1", "controller": true}]},
        "spec": {"nodeName": node, "containers": [{"name": "web", "image": "example.com/web:1"}]},
        "status": {"phase": "Running", "podIP": format!("10.200.{}.{}", index / 250, index % 250 + 1), "startTime": "2026-11-01T09:00:01Z"}})
}

pub(crate) fn owner(job: &str) -> Value {
    json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
        "metadata": {"name": job, "namespace": "ml", "uid": format!("uid-{job}")},
        "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": {"spec": {"containers": [{"name": "pytorch"}]}}}}}})
}

pub(crate) fn node(name: &str, zone: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": zone}},
        "spec": {"providerID": format!("aws:///{zone}/{name}")}, "status": {"addresses": [{"type": "InternalIP", "address": "192.168.0.1"}]}})
}

pub(crate) fn policy(api_version: &str, kind: &str, namespace: Option<&str>, name: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": {"podSelector": {}}})
}

pub(crate) fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"team": name}}})
}

pub(crate) fn service(namespace: &str, name: &str, ip: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace}, "spec": {"clusterIP": ip, "clusterIPs": [ip], "ports": [{"port": 29500}], "selector": {"a": "b"}}})
}

/// A cluster with the kinds that jobs bring, two nodes, namespaces and the API server's own service.
pub(crate) async fn cluster() -> FakeKube {
    furnished(FakeKube::start().await)
}

/// Fills an empty one.
pub(crate) fn furnished(kube: FakeKube) -> FakeKube {
    kube.serve("kubeflow.org/v1", "PyTorchJob", "pytorchjobs", true);
    kube.put_all([node(NODE, "zone-a"), node("node-b", "zone-b")]);
    kube.put_all(["default", "kube-system", "ml"].map(namespace));
    kube.put(service("default", "kubernetes", "10.96.0.1"));
    kube.put(json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": "kubernetes", "namespace": "default", "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": "IPv4", "endpoints": [{"addresses": ["192.168.0.100"]}]}));
    kube
}

/// Settings with short waits.
pub(crate) fn settings() -> ClusterSettings {
    ClusterSettings {
        node: NODE.to_owned(),
        grouping: Grouping::default(),
        settle: Duration::from_millis(20),
        linger: Duration::ZERO,
        recheck: Duration::from_millis(200),
        backoff: (Duration::from_millis(20), Duration::from_millis(200)),
        requests_per_second: 10_000,
        lookups_per_second: 1000,
        ..ClusterSettings::default()
    }
}

/// A cluster that is being followed.
pub(crate) struct Followed {
    snapshots: watch::Receiver<Option<Arc<Snapshot>>>,
    pub(crate) lookups: mpsc::Sender<Lookup>,
    stop: Option<oneshot::Sender<()>>,
    task: tokio::task::JoinHandle<()>,
}

impl Followed {
    pub(crate) fn new(kube: &FakeKube, settings: ClusterSettings) -> Self {
        Self::with(Access::fixed(kube.client()), settings)
    }

    /// With a kubeconfig in this directory.
    pub(crate) async fn by_kubeconfig(kube: &FakeKube, directory: &Path, settings: ClusterSettings) -> Self {
        let credentials = Credentials::Kubeconfig { path: Some(kube.kubeconfig(directory)), context: None };
        Self::with(Access::new(credentials).await.unwrap(), settings)
    }

    pub(crate) fn with(access: Access, settings: ClusterSettings) -> Self {
        let (to, snapshots) = watch::channel(None);
        let (lookups, looked) = mpsc::channel(64);
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(follow(access, settings, looked, to, async move {
            let _ = stopped.await;
        }));
        Self { snapshots, lookups, stop: Some(stop), task }
    }

    /// The first snapshot from now on that satisfies this; panics with the last one after a minute.
    pub(crate) async fn until(&mut self, what: &str, satisfied: impl Fn(&Snapshot) -> bool) -> Arc<Snapshot> {
        let waiting = async {
            loop {
                let found = self.snapshots.borrow_and_update().clone().filter(|snapshot| satisfied(snapshot));
                if let Some(found) = found {
                    return found;
                }
                self.snapshots.changed().await.expect("it is followed");
            }
        };
        match tokio::time::timeout(Duration::from_secs(60), waiting).await {
            Ok(found) => found,
            Err(_) => {
                let last = self.snapshots.borrow().clone().unwrap_or_default();
                panic!(
                    "waited for {what}; objects: {:?}; the rest: {:#?}",
                    names(&last, None),
                    Snapshot { objects: Vec::new(), ..(*last).clone() }
                );
            }
        }
    }

    pub(crate) async fn until_ready(&mut self) -> Arc<Snapshot> {
        self.until("everything to be known", |snapshot| snapshot.ready).await
    }

    /// The snapshot of this moment.
    pub(crate) fn now(&self) -> Arc<Snapshot> {
        self.snapshots.borrow().clone().unwrap_or_default()
    }

    pub(crate) async fn stop(mut self) {
        drop(self.stop.take());
        tokio::time::timeout(Duration::from_secs(60), &mut self.task)
            .await
            .expect("it stops")
            .expect("it does not panic");
    }
}

/// The names of the objects of a kind, or `kind/name` of all.
pub(crate) fn names(snapshot: &Snapshot, kind: Option<&str>) -> BTreeSet<String> {
    let wanted = |object: &&Object| kind.is_none_or(|kind| kind == object.kind());
    let objects = snapshot.objects.iter().filter(wanted);
    objects
        .map(|object| {
            if kind.is_some() {
                object.name().to_owned()
            } else {
                format!("{}/{}", object.kind(), object.name())
            }
        })
        .collect()
}

/// Whether a pod of this name is there and has not ended.
pub(crate) fn lives(snapshot: &Snapshot, name: &str) -> bool {
    let pod = snapshot.objects.iter().find(|object| object.kind() == "Pod" && object.name() == name);
    pod.and_then(Object::uid).is_some_and(|uid| !snapshot.ended.contains_key(uid))
}

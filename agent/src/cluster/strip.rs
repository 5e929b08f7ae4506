//! What is kept of an object. Enters: an object as the API server sends it; leaves: the fields that the core reads, so
//! that thousands of pods fit into an agent. Must not know whose it is.
//!
//! Of pods, nodes, namespaces and services only what is named here stays. Policies and owners keep their whole
//! specification: policies are evaluated, and owners are what remedies are written for.

use serde_json::{Map, Value};

use firedoor_core::facts::is_accelerator;
use firedoor_core::membership::is_mark;

/// Environment variables that tell rendezvous, size or rank.
const VARIABLES: [&str; 9] = [
    "MASTER_ADDR",
    "MASTER_PORT",
    "PET_MASTER_ADDR",
    "PET_MASTER_PORT",
    "PET_NODE_RANK",
    "NODE_RANK",
    "RANK",
    "WORLD_SIZE",
    "JAX_PROCESS_ID",
];
/// What of a pod's specification tells where it may run, how it is reached and how it sends.
const POD_SPEC: [&str; 14] = [
    "nodeName",
    "hostNetwork",
    "serviceAccountName",
    "nodeSelector",
    "affinity",
    "tolerations",
    "topologySpreadConstraints",
    "schedulerName",
    "dnsPolicy",
    "hostname",
    "subdomain",
    "priorityClassName",
    "containers",
    "securityContext",
];
const METADATA: [&str; 9] = [
    "name",
    "namespace",
    "uid",
    "labels",
    "annotations",
    "ownerReferences",
    "creationTimestamp",
    "deletionTimestamp",
    "generateName",
];
/// Annotations that hold a copy of the whole object.
const COPIES: [&str; 1] = ["kubectl.kubernetes.io/last-applied-configuration"];

/// Takes away what is not read.
pub(super) fn strip(object: &mut Value) {
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    let Some(fields) = object.as_object_mut() else { return };
    if let Some(metadata) = fields.get_mut("metadata") {
        keep(metadata, &METADATA);
        drop_empty(metadata);
    }
    match kind.as_str() {
        "Pod" => pod(fields),
        "Node" => {
            fields.retain(|field, _| {
                matches!(&**field, "kind" | "apiVersion" | "metadata" | "spec" | "status")
            });
            only(fields, "metadata", &["name", "uid", "labels", "creationTimestamp"]);
            only(fields, "spec", &["taints", "unschedulable", "providerID"]);
            only(fields, "status", &["addresses", "allocatable"]);
        }
        "Namespace" => {
            fields.retain(|field, _| matches!(&**field, "kind" | "apiVersion" | "metadata"));
            only(fields, "metadata", &["name", "uid", "labels", "creationTimestamp"]);
        }
        "Service" => {
            fields.retain(|field, _| matches!(&**field, "kind" | "apiVersion" | "metadata" | "spec"));
            only(fields, "metadata", &["name", "namespace", "uid", "labels", "creationTimestamp"]);
            only(fields, "spec", &["clusterIP", "clusterIPs", "selector", "ports"]);
        }
        _ => other(fields),
    }
}

fn pod(fields: &mut Map<String, Value>) {
    fields.retain(|field, _| matches!(&**field, "kind" | "apiVersion" | "metadata" | "spec" | "status"));
    if let Some(annotations) = fields.get_mut("metadata").and_then(|m| m.get_mut("annotations")) {
        retain(annotations, |key, _| is_mark(key));
    }
    if let Some(metadata) = fields.get_mut("metadata") {
        drop_empty(metadata);
    }
    if let Some(spec) = fields.get_mut("spec") {
        keep(spec, &POD_SPEC);
        pod_spec(spec);
    }
    if let Some(status) = fields.get_mut("status") {
        pod_status(status);
    }
}

fn pod_spec(spec: &mut Value) {
    if let Some(security) = spec.get_mut("securityContext") {
        keep(security, &["sysctls"]);
    }
    let usual = [
        ("schedulerName", "default-scheduler"),
        ("dnsPolicy", "ClusterFirst"),
        ("serviceAccountName", "default"),
    ];
    retain(spec, |key, value| {
        !usual.iter().any(|(usual, told)| *usual == key && value.as_str() == Some(told))
    });
    // Admission gives these two to every pod, and to every new pod again.
    let admitted = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
    for toleration in list(spec, "tolerations") {
        let key = toleration.get("key").and_then(Value::as_str).unwrap_or_default();
        if admitted.contains(&key) && toleration.get("tolerationSeconds").and_then(Value::as_u64) == Some(300)
        {
            *toleration = Value::Null;
        }
    }
    if let Some(tolerations) = spec.get_mut("tolerations").and_then(Value::as_array_mut) {
        tolerations.retain(|toleration| !toleration.is_null());
    }
    for container in list(spec, "containers") {
        keep(container, &["name", "ports", "env", "resources"]);
        if let Some(env) = container.get_mut("env").and_then(Value::as_array_mut) {
            let name = |entry: &Value| entry.get("name").and_then(Value::as_str).map(str::to_owned);
            env.retain(|entry| {
                entry.get("value").is_some_and(Value::is_string)
                    && name(entry).is_some_and(|name| VARIABLES.contains(&name.as_str()))
            });
        }
        if let Some(resources) = container.get_mut("resources") {
            keep(resources, &["limits", "requests"]);
            for section in ["limits", "requests"] {
                if let Some(section) = resources.get_mut(section) {
                    retain(section, |name, _| is_accelerator(name));
                }
            }
            // Of an accelerator the two are equal; one of them is enough.
            if resources.get("limits") == resources.get("requests") {
                retain(resources, |section, _| section == "limits");
            }
            drop_empty(resources);
        }
        drop_empty(container);
    }
    drop_empty(spec);
}

fn pod_status(status: &mut Value) {
    let finished = matches!(status.get("phase").and_then(Value::as_str), Some("Succeeded" | "Failed"));
    let one = status.get("podIPs").and_then(Value::as_array).is_none_or(|ips| ips.len() < 2);
    let when_finished: &[&str] = if finished { &["containerStatuses", "conditions"] } else { &[] };
    retain(status, |field, _| {
        matches!(field, "phase" | "podIP" | "startTime")
            || (field == "podIPs" && !one)
            || when_finished.contains(&field)
    });
    for container in list(status, "containerStatuses") {
        keep(container, &["state"]);
        if let Some(state) = container.get_mut("state") {
            keep(state, &["terminated"]);
            if let Some(terminated) = state.get_mut("terminated") {
                keep(terminated, &["finishedAt"]);
            }
        }
    }
    for condition in list(status, "conditions") {
        keep(condition, &["lastTransitionTime"]);
    }
}

/// Policies, owners and whatever else: all but the bookkeeping.
fn other(fields: &mut Map<String, Value>) {
    if let Some(annotations) = fields.get_mut("metadata").and_then(|m| m.get_mut("annotations")) {
        retain(annotations, |key, _| !COPIES.contains(&key));
    }
    // A RayJob's status names its RayCluster, a RayService's the active one.
    if let Some(status) = fields.get_mut("status") {
        keep(status, &["rayClusterName", "activeServiceStatus"]);
        if let Some(active) = status.get_mut("activeServiceStatus") {
            keep(active, &["rayClusterName"]);
        }
        if status.as_object().is_none_or(Map::is_empty) {
            fields.remove("status");
        }
    }
}

fn only(fields: &mut Map<String, Value>, field: &str, names: &[&str]) {
    if let Some(value) = fields.get_mut(field) {
        keep(value, names);
    }
}

fn keep(value: &mut Value, names: &[&str]) {
    retain(value, |name, _| names.contains(&name));
}

fn retain(value: &mut Value, wanted: impl Fn(&str, &Value) -> bool) {
    if let Some(fields) = value.as_object_mut() {
        // Built anew: a tree that lost its entries would keep their room.
        *fields = std::mem::take(fields).into_iter().filter(|(name, value)| wanted(name, value)).collect();
    }
}

fn drop_empty(value: &mut Value) {
    retain(value, |_, value| match value {
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Null => false,
        _ => true,
    });
}

fn list<'v>(value: &'v mut Value, field: &str) -> impl Iterator<Item = &'v mut Value> {
    value.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use firedoor_core::facts::{Node, Pod};
    use firedoor_core::object::Object;
    use serde_json::json;

    fn large_pod() -> Value {
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "w-0", "namespace": "ml", "uid": "u", "resourceVersion": "7",
                "labels": {"training.kubeflow.org/job-name": "llama", "app": "x"},
                "annotations": {"volcano.sh/job-name": "v", "k8s.v1.cni.cncf.io/network-status": "[...]"},
                "creationTimestamp": "2026-11-01T09:00:00Z",
                "ownerReferences": [{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "llama", "uid": "j", "controller": true}],
                "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {}}}]},
            "spec": {"nodeName": "n1", "serviceAccountName": "trainer", "schedulerName": "default-scheduler",
                "volumes": [{"name": "v", "emptyDir": {}}],
                "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"},
                    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
                "securityContext": {"fsGroup": 1, "sysctls": [{"name": "net.ipv4.ip_local_port_range", "value": "40000 50000"}]},
                "containers": [{"name": "pytorch", "image": "i", "command": ["x"],
                    "ports": [{"containerPort": 23456, "name": "p"}],
                    "env": [{"name": "MASTER_ADDR", "value": "llama-master-0"}, {"name": "SECRET", "value": "s"},
                        {"name": "RANK", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                    "resources": {"limits": {"nvidia.com/gpu": "8", "cpu": "4"}, "requests": {"nvidia.com/gpu": "8", "cpu": "4"}}}]},
            "status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}], "hostIP": "192.168.0.1",
                "startTime": "2026-11-01T09:00:01Z", "conditions": [{"type": "Ready"}],
                "containerStatuses": [{"name": "pytorch", "imageID": "sha256:1", "state": {"running": {}}}]}})
    }

    #[test]
    fn what_the_core_reads_of_a_pod_stays() {
        let whole = Pod::from_object(&Object::from_value(large_pod()).unwrap()).unwrap();
        let mut stripped = large_pod();
        strip(&mut stripped);
        let text = stripped.to_string();
        let kept = Pod::from_object(&Object::from_value(stripped).unwrap()).unwrap();
        assert_eq!(kept.annotations.keys().collect::<Vec<_>>(), ["volcano.sh/job-name"]);
        assert_eq!(kept.env.keys().collect::<Vec<_>>(), ["MASTER_ADDR"]);
        let same = Pod { annotations: whole.annotations.clone(), env: whole.env.clone(), ..kept };
        assert_eq!(same, whole);
        for noise in ["managedFields", "SECRET", "volumes", "image", "hostIP", "cpu", "not-ready", "fsGroup"]
        {
            assert!(!text.contains(noise), "{noise} in {text}");
        }
        assert!(text.contains("nvidia.com/gpu"));
    }

    #[test]
    fn a_finished_pod_keeps_the_time_it_ended() {
        let finished = json!([{"name": "a", "state": {"terminated": {"finishedAt": "2026-11-01T10:00:00Z", "exitCode": 1}}}]);
        let mut told = large_pod();
        told["status"]["phase"] = json!("Failed");
        told["status"]["containerStatuses"] = finished;
        let mut evicted = large_pod();
        evicted["status"] = json!({"phase": "Failed", "reason": "Evicted", "conditions": [{"type": "X", "lastTransitionTime": "2026-11-01T10:00:05Z"}]});
        for pod in [told, evicted] {
            let whole = Pod::from_object(&Object::from_value(pod.clone()).unwrap()).unwrap().lease;
            let mut stripped = pod;
            strip(&mut stripped);
            assert!(whole.until.is_some());
            assert_eq!(Pod::from_object(&Object::from_value(stripped).unwrap()).unwrap().lease, whole);
        }
    }

    #[test]
    fn nodes_and_owners() {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": {"topology.kubernetes.io/zone": "z"}, "annotations": {"a": "b"}},
            "spec": {"providerID": "aws:///z/i", "podCIDR": "10.0.0.0/24", "taints": [{"key": "k", "effect": "NoSchedule"}]},
            "status": {"addresses": [{"type": "InternalIP", "address": "192.168.0.1"}], "allocatable": {"nvidia.com/gpu": "8"}, "images": [{"names": ["x"]}]}});
        let whole = Node::from_object(&Object::from_value(node.clone()).unwrap());
        let mut stripped = node;
        strip(&mut stripped);
        assert!(!stripped.to_string().contains("images"));
        assert_eq!(Node::from_object(&Object::from_value(stripped).unwrap()), whole);

        let mut ray = json!({"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "r", "namespace": "n", "uid": "u", "managedFields": []},
            "spec": {"entrypoint": "python"}, "status": {"rayClusterName": "r-x", "jobStatus": "RUNNING"}});
        strip(&mut ray);
        assert_eq!(ray["status"], json!({"rayClusterName": "r-x"}));
        assert_eq!(ray["spec"], json!({"entrypoint": "python"}));
        for odd in [
            json!(3),
            json!({"kind": "Pod"}),
            json!({"kind": "Pod", "metadata": 3, "spec": [1], "status": "x"}),
        ] {
            let mut value = odd;
            strip(&mut value);
        }
    }
}

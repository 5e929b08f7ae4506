//! The cluster a job would come into. Enters: the sources; leaves: objects by what they are, policies ready to be
//! asked, and the name service's pods. Must not know jobs.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::report::{CheckFinding, CheckedPolicy, ObjectAt, Rule, Severity};
use super::{Options, Origin, Source};
use crate::facts::{Namespace, Node, Pod};
use crate::object::{Object, ObjectKey};
use crate::policy::{Direction, PolicyKind, PolicyRef, PolicySet};
use crate::workload::{Target, identified, merge, predicted_pods};

/// What is known of the cluster, the manifests included.
pub(super) struct World {
    pub(super) objects: Vec<Object>,
    origins: Vec<Option<Origin>>,
    pub(super) nodes: Vec<Node>,
    pub(super) policies: PolicySet,
    /// The position of each object; with thousands of policies nobody may search for one.
    positions: BTreeMap<ObjectKey, usize>,
    /// Pods of the name service, and the port they listen on.
    pub(super) dns: Vec<Pod>,
    /// Whether [`Self::dns`] is a stand-in.
    pub(super) dns_assumed: bool,
}

const NAMESPACED: [&str; 9] = [
    "CiliumNetworkPolicy",
    "NetworkPolicy",
    "Service",
    "TrainJob",
    "TrainingRuntime",
    "PodGroup",
    "EndpointSlice",
    "Endpoints",
    "ServiceAccount",
];

impl World {
    /// Of several objects of one name the last of the manifests counts, then the last of the cluster.
    pub(super) fn new(sources: &[Source], options: &Options) -> Self {
        let mut places: BTreeMap<Target, usize> = BTreeMap::new();
        let (mut objects, mut origins): (Vec<Object>, Vec<Option<Origin>>) = (Vec::new(), Vec::new());
        let (cluster, manifests): (Vec<&Source>, Vec<&Source>) =
            sources.iter().partition(|s| s.origin.is_none());
        for source in cluster.into_iter().chain(manifests) {
            let object = identified(&in_namespace(&source.object, &options.namespace));
            match places.get(&Target::of(&object)).copied() {
                Some(at) => {
                    if let (Some(slot), Some(origin)) = (objects.get_mut(at), origins.get_mut(at)) {
                        (*slot, *origin) = (object, source.origin.clone());
                    }
                }
                None => {
                    places.insert(Target::of(&object), objects.len());
                    objects.push(object);
                    origins.push(source.origin.clone());
                }
            }
        }
        let namespaces: Vec<Namespace> = objects.iter().filter_map(Namespace::from_object).collect();
        let policies = PolicySet::from_objects(&objects, &namespaces, options.policy);
        let mut nodes: Vec<Node> = objects.iter().filter_map(Node::from_object).collect();
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        let mut dns = name_service(&objects);
        let dns_assumed = dns.is_empty();
        if dns_assumed {
            dns.extend(stand_in());
        }
        let positions = objects.iter().enumerate().map(|(at, object)| (object.key(), at)).collect();
        Self { objects, origins, nodes, policies, positions, dns, dns_assumed }
    }

    /// Whether there is any network policy to judge by.
    pub(super) fn has_policies(&self) -> bool {
        self.objects.iter().any(|object| PolicyKind::ALL.iter().any(|kind| kind.as_str() == object.kind()))
    }

    /// Where the object at this position stands.
    pub(super) fn origin(&self, position: usize) -> Option<&Origin> {
        self.origins.get(position).and_then(Option::as_ref)
    }

    /// The object at this position, for a report.
    pub(super) fn object_at(&self, position: usize) -> ObjectAt {
        let origin = self.origin(position);
        let object = self.objects.get(position);
        ObjectAt {
            kind: object.map(Object::kind).unwrap_or_default().to_owned(),
            namespace: object.and_then(Object::namespace).map(str::to_owned),
            name: object.map(Object::name).unwrap_or_default().to_owned(),
            file: origin.map(|origin| origin.file.clone()),
            line: origin.map(|origin| origin.line),
        }
    }

    /// A policy's object, for a report.
    pub(super) fn policy_object(&self, policy: &PolicyRef) -> ObjectAt {
        let key = ObjectKey {
            kind: policy.kind.as_str().to_owned(),
            namespace: policy.namespace.clone(),
            name: policy.name.clone(),
        };
        self.positions.get(&key).copied().map_or_else(
            || ObjectAt {
                kind: policy.kind.as_str().to_owned(),
                namespace: policy.namespace.clone(),
                name: policy.name.clone(),
                file: None,
                line: None,
            },
            |position| self.object_at(position),
        )
    }

    pub(super) fn policy(
        &self,
        policy: &PolicyRef,
        direction: Direction,
        effect: &'static str,
    ) -> CheckedPolicy {
        CheckedPolicy { object: self.policy_object(policy), direction: Some(direction.as_str()), effect }
    }

    /// What is wrong with the inputs as such.
    pub(super) fn findings(&self) -> Vec<CheckFinding> {
        let rejected = self.policies.rejected().iter().map(|rejected| {
            let summary = format!("{} cannot be understood: {}", rejected.policy, rejected.reason);
            let object = self.policy_object(&rejected.policy);
            let mut finding =
                CheckFinding::new(Rule::UnreadablePolicy, Severity::Warning, None, object, summary);
            finding
                .advice
                .push("What it allows or denies is left open; the API server would refuse it.".to_owned());
            finding
        });
        rejected.collect()
    }
}

fn in_namespace(object: &Object, namespace: &str) -> Object {
    let namespaced = NAMESPACED.contains(&object.kind()) || !crate::workload::templates(object).is_empty();
    let cluster_scoped = object.kind().starts_with("Cluster");
    if object.namespace().is_some() || !namespaced || cluster_scoped {
        return object.clone();
    }
    let value = merge(object.value(), &json!({ "metadata": { "namespace": namespace } }));
    Object::from_value(value).unwrap_or_else(|_| object.clone())
}

/// CoreDNS and kube-dns by the label both have kept, OpenShift's by its own.
fn name_service(objects: &[Object]) -> Vec<Pod> {
    let is_dns = |labels: &BTreeMap<String, String>, namespace: &str| {
        (namespace == "kube-system" && labels.get("k8s-app").is_some_and(|app| app == "kube-dns"))
            || labels.contains_key("dns.operator.openshift.io/daemonset-dns")
    };
    let own = |object: &Object| match object.kind() {
        "Pod" => vec![object.clone()],
        "Deployment" | "ReplicaSet" => predicted_pods(object),
        _ => Vec::new(),
    };
    let near = |object: &&Object| matches!(object.namespace(), Some("kube-system" | "openshift-dns"));
    let mut pods: Vec<Pod> =
        objects.iter().filter(near).flat_map(own).filter_map(|o| Pod::from_object(&o)).collect();
    pods.retain(|pod| is_dns(&pod.labels, &pod.namespace));
    pods.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    // All are replicas of one workload; policies do not tell more than a few of them apart.
    pods.truncate(16);
    pods
}

fn stand_in() -> Option<Pod> {
    let ports: Value = json!([{"name": "dns", "containerPort": 53, "protocol": "UDP"},
        {"name": "dns-tcp", "containerPort": 53, "protocol": "TCP"}]);
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "coredns", "namespace": "kube-system", "labels": {"k8s-app": "kube-dns"}},
        "spec": {"serviceAccountName": "coredns", "containers": [{"name": "coredns", "ports": ports}]}});
    Pod::from_object(&Object::from_value(pod).ok()?)
}

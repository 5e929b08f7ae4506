//! The pods that controllers would make of an object. Enters: an object as a user wrote it; leaves: Pod objects with the
//! names, labels and owners the controllers give, without a node. Must not know the cluster.

use serde_json::{Map, Value, json};

use super::kinds::{Layout, layout};
use super::marks::{Made, Owner, made};
use super::template::{Template, templates};
use crate::object::{Labels, Object};

/// No more pods than this are predicted of one object: the further ones are like them.
pub const MAX_PODS: usize = 16_384;

/// The object's UID, or one that stands for it where it was never created.
pub(super) fn uid(object: &Object) -> String {
    let namespace = object.namespace().unwrap_or_default();
    object
        .uid()
        .map_or_else(|| invented(object.group(), object.kind(), namespace, object.name()), str::to_owned)
}

pub(super) fn invented(group: &str, kind: &str, namespace: &str, name: &str) -> String {
    format!("predicted:{group}/{kind}/{namespace}/{name}")
}

/// The object with the UID and namespace that its predicted pods refer to.
#[must_use]
pub fn identified(object: &Object) -> Object {
    let mut value = object.value().clone();
    let cluster_scoped =
        matches!(object.kind(), "Node" | "Namespace") || object.kind().starts_with("Cluster");
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("uid".to_owned(), Value::from(uid(object)));
        if object.namespace().is_none() && layout(object).is_some() && !cluster_scoped {
            metadata.insert("namespace".to_owned(), Value::from("default"));
        }
    }
    Object::from_value(value).unwrap_or_else(|_| object.clone())
}

/// The pods that would come of this object: all that run at a time, at most [`MAX_PODS`]. A Pod is its own.
///
/// Of objects without pod templates none come: for a TrainJob ask about [`super::with_runtime`].
#[must_use]
pub fn predicted_pods(object: &Object) -> Vec<Object> {
    predicted_pods_of(object).into_iter().map(|(_, pod)| pod).collect()
}

/// As [`predicted_pods`], each with the position of its template in [`templates`].
#[must_use]
pub fn predicted_pods_of(object: &Object) -> Vec<(usize, Object)> {
    let Some(layout) = layout(object) else { return Vec::new() };
    if object.group() == "trainer.kubeflow.org" {
        return Vec::new();
    }
    if layout == Layout::Pod {
        return vec![(0, identified(object))];
    }
    let templates = templates(object);
    let mut pods = Vec::new();
    for (position, template) in templates.iter().enumerate() {
        let room = MAX_PODS.saturating_sub(pods.len());
        let count = usize::try_from(template.replicas).unwrap_or(usize::MAX).min(room);
        for index in (0..).take(count) {
            let made = made(object, layout, &templates, position, index);
            pods.extend(pod(object, template, made).map(|pod| (position, pod)));
        }
    }
    pods
}

fn pod(object: &Object, template: &Template<'_>, made: Made) -> Option<Object> {
    let namespace = object.namespace().unwrap_or("default");
    let Owner { api_version, kind, name, uid } = made.owner;
    let mut labels: Labels = template.labels.clone();
    labels.extend(made.labels);
    let mut annotations = template.annotations.clone();
    annotations.extend(made.annotations);
    let pod_name = made.name;
    let mut spec = template.spec.clone();
    if let Some(port) = made.port {
        declare(&mut spec, port);
    }
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": pod_name, "namespace": namespace,
            "uid": invented("", "Pod", namespace, &pod_name),
            "labels": labels, "annotations": annotations,
            "ownerReferences": [{"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true}],
        },
        "spec": spec,
    });
    Object::from_value(pod).ok()
}

/// Operators declare the rendezvous port on containers that declare none.
fn declare(spec: &mut Value, port: u16) {
    let Some(containers) = spec.get_mut("containers").and_then(Value::as_array_mut) else { return };
    let declared =
        |c: &Value| c.get("ports").and_then(Value::as_array).is_some_and(|ports| !ports.is_empty());
    if containers.iter().any(declared) {
        return;
    }
    if let Some(container) = containers.first_mut().and_then(Value::as_object_mut) {
        let ports = Map::from_iter([("containerPort".to_owned(), Value::from(port))]);
        container.insert("ports".to_owned(), json!([ports]));
    }
}

//! Objects that several of the tests look at.

use serde_json::{Value, json};

use super::*;
use crate::facts::{Node, Pod};
use crate::membership::{Grouping, JobKind, Jobs, Role};
use crate::object::Object;

fn object(value: Value) -> Object {
    Object::from_value(value).unwrap()
}

fn template(labels: Value) -> Value {
    json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c"}]}})
}

fn jobset() -> Object {
    object(json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {"name": "js", "namespace": "ml"},
        "spec": {"replicatedJobs": [
            {"name": "leader", "template": {"spec": {"template": template(json!({"a": "1"}))}}},
            {"name": "workers", "replicas": 2, "template": {"spec": {"parallelism": 3, "completions": 3,
                "template": template(json!({}))}}}]}}))
}

mod pods;
mod simulation;
mod templates;

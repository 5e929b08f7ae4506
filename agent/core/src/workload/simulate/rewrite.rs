//! A pod as it would come back from a changed template. Enters: the pod, the template it came from and the new one;
//! leaves: the pod. Must not know nodes.

use serde_json::{Map, Value};

use crate::object::{Labels, Object};
use crate::workload::Template;

/// The template that a pod came from, by the marks of its controller.
pub(super) fn template_of<'t, 'a>(pod: &Object, templates: &'t [Template<'a>]) -> Option<&'t Template<'a>> {
    if let [only] = templates {
        return Some(only);
    }
    let labels = pod.labels();
    let named =
        |name: &str| templates.iter().find(|t| !t.name.is_empty() && t.name.eq_ignore_ascii_case(name));
    const NAMES: [&str; 8] = [
        "training.kubeflow.org/replica-type",
        "jobset.sigs.k8s.io/replicatedjob-name",
        "volcano.sh/task-spec",
        "ray.io/group",
        "ray.io/node-type",
        "training.kubeflow.org/job-role",
        "replica-type",
        "mpi-job-role",
    ];
    if let Some(found) = NAMES.iter().find_map(|key| named(labels.get(*key)?)) {
        return Some(found);
    }
    if let Some(index) = labels.get("leaderworkerset.sigs.k8s.io/worker-index") {
        return named(if index == "0" { "leader" } else { "worker" });
    }
    let clique = labels.get("grove.io/podclique")?;
    templates.iter().find(|t| clique.strip_suffix(t.name.as_str()).is_some_and(|rest| rest.ends_with('-')))
}

/// The pod, with what changed between the templates changed on it.
pub(super) fn rewritten(pod: &Object, old: &Template<'_>, new: &Template<'_>) -> Object {
    let mut value = pod.value().clone();
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        let labels = relabelled(pod.labels(), &old.labels, &new.labels);
        metadata.insert("labels".to_owned(), labels);
        let annotations = relabelled(pod.annotations(), &old.annotations, &new.annotations);
        metadata.insert("annotations".to_owned(), annotations);
    }
    if let (Some(spec), Some(old), Some(new)) =
        (value.get_mut("spec").and_then(Value::as_object_mut), old.spec.as_object(), new.spec.as_object())
    {
        respecify(spec, old, new);
    }
    Object::from_value(value).unwrap_or_else(|_| pod.clone())
}

fn relabelled(mut labels: Labels, old: &Labels, new: &Labels) -> Value {
    labels.retain(|key, _| !old.contains_key(key) || new.contains_key(key));
    for (key, value) in new.iter().filter(|(key, value)| old.get(*key) != Some(*value)) {
        labels.insert(key.clone(), value.clone());
    }
    labels.into_iter().map(|(key, value)| (key, Value::from(value))).collect::<Map<_, _>>().into()
}

fn respecify(spec: &mut Map<String, Value>, old: &Map<String, Value>, new: &Map<String, Value>) {
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        let before = spec.remove(key);
        // What admission added to a list stays.
        if let (Some(Value::Array(before)), Some(old)) = (before, old.get(key)) {
            let kept = added(before, old);
            if !kept.is_empty() {
                spec.insert(key.clone(), kept.into());
            }
        }
    }
    for (key, value) in new.iter().filter(|(key, value)| old.get(*key) != Some(*value)) {
        let before = spec.remove(key);
        let value = match (before, value) {
            (Some(Value::Array(before)), Value::Array(new)) => {
                let extra = added(before, old.get(key).unwrap_or(&Value::Null));
                let extra = extra.into_iter().filter(|entry| !new.contains(entry));
                new.iter().cloned().chain(extra).collect()
            }
            (_, new) => new.clone(),
        };
        spec.insert(key.clone(), value);
    }
}

/// The entries of a pod's list that its template did not have.
fn added(before: Vec<Value>, template: &Value) -> Vec<Value> {
    let known = |entry: &Value| template.as_array().is_some_and(|list| list.contains(entry));
    before.into_iter().filter(|entry| !known(entry)).collect()
}

//! What must be asked, given what is known. Enters: this node's pods, their owners, and the other pods; leaves: jobs to
//! watch, and nodes, owners and services to get. Pure: must not know servers, nor what was asked before.

use std::collections::{BTreeMap, BTreeSet};

use firedoor_core::facts::Pod;
use firedoor_core::membership::{Grouping, Jobs, SharedLabel, shared_labels};
use firedoor_core::object::{Object, OwnerRef};

/// More owners above one another than any system makes.
const LONGEST_CHAIN: usize = 16;

/// The pods of a job, as an API server can be asked for them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct JobPods {
    pub(super) namespace: String,
    pub(super) labels: Vec<SharedLabel>,
}

impl JobPods {
    /// As a label selector.
    pub(super) fn selector(&self) -> String {
        let labels = self.labels.iter().map(|label| match &label.value {
            Some(value) => format!("{}={value}", label.key),
            None => label.key.clone(),
        });
        labels.collect::<Vec<_>>().join(",")
    }

    /// Whether it selects this pod.
    pub(super) fn selects(&self, pod: &Pod) -> bool {
        pod.namespace == self.namespace
            && self.labels.iter().all(|label| match (pod.labels.get(&label.key), &label.value) {
                (Some(found), Some(wanted)) => found == wanted,
                (found, None) => found.is_some(),
                (None, Some(_)) => false,
            })
    }
}

/// An object that another refers to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Reference {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) namespace: String,
    pub(super) name: String,
}

/// The jobs of this node.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Here {
    /// Jobs whose members a server can select, with the UIDs of their pods here.
    pub(super) labelled: BTreeMap<JobPods, BTreeSet<String>>,
    /// By namespace and a UID of a pod here: jobs whose pods share no label.
    pub(super) unlabelled: BTreeSet<(String, String)>,
}

impl Here {
    /// Where the jobs are.
    pub(super) fn namespaces(&self) -> BTreeSet<&str> {
        let labelled = self.labelled.keys().map(|job| job.namespace.as_str());
        labelled.chain(self.unlabelled.iter().map(|(namespace, _)| namespace.as_str())).collect()
    }
}

/// The jobs that these pods of this node are in.
pub(super) fn jobs(local: &[Pod], objects: &[Object], grouping: &Grouping) -> Here {
    let found = Jobs::resolve(local, objects, grouping);
    let mut here = Here::default();
    for (index, pod) in local.iter().enumerate() {
        let Some(uid) = pod.uid.clone().filter(|_| found.of_pod(index).is_some()) else { continue };
        match shared_labels(pod, grouping) {
            Some(labels) => {
                let job = JobPods { namespace: pod.namespace.clone(), labels };
                here.labelled.entry(job).or_default().insert(uid);
            }
            None => {
                here.unlabelled.insert((pod.namespace.clone(), uid));
            }
        }
    }
    here
}

/// Whether an owner like this may stand below a gang, or tell what a person edits. Workload controllers of plain
/// services do neither for pods that are in no job, nor does the node of a static pod.
fn tells(owner: &OwnerRef, in_job: bool) -> bool {
    in_job || owner.api_version.split_once('/').is_some_and(|(group, _)| group != "apps")
}

/// Owners above an object that should be known, as far as it can be told: all that are, and the next one.
pub(super) fn owners<'o>(
    namespace: &str,
    first: &[OwnerRef],
    in_job: bool,
    known: &dyn Fn(&Reference) -> Option<&'o Object>,
) -> Vec<Reference> {
    let mut wanted = Vec::new();
    let mut next = controller(first).cloned();
    while let Some(owner) = next.take().filter(|owner| tells(owner, in_job)) {
        let reference = Reference {
            api_version: owner.api_version,
            kind: owner.kind,
            namespace: namespace.to_owned(),
            name: owner.name,
        };
        if wanted.contains(&reference) || wanted.len() == LONGEST_CHAIN {
            break;
        }
        if let Some(object) = known(&reference) {
            // An object of that name which is another one has nothing to do with the pod.
            next = controller(&object.owners()).filter(|_| object.uid() == Some(&owner.uid)).cloned();
            wanted.extend(runtime(object));
        }
        wanted.push(reference);
    }
    wanted
}

/// A TrainJob's pods are its runtime's: without it no remedy can be written (Kubeflow Trainer, `spec.runtimeRef`).
fn runtime(object: &Object) -> Option<Reference> {
    if object.kind() != "TrainJob" || object.group() != "trainer.kubeflow.org" {
        return None;
    }
    Some(Reference {
        api_version: object.api_version().to_owned(),
        kind: object.text("/spec/runtimeRef/kind").unwrap_or("ClusterTrainingRuntime").to_owned(),
        namespace: object.namespace()?.to_owned(),
        name: object.text("/spec/runtimeRef/name")?.to_owned(),
    })
}

/// The reference to the managing controller, or the only one there is.
pub(super) fn controller(references: &[OwnerRef]) -> Option<&OwnerRef> {
    let only = || if let [only] = references { Some(only) } else { None };
    let found = references.iter().find(|reference| reference.controller).or_else(only);
    found.filter(|owner| !owner.api_version.is_empty() && !owner.kind.is_empty() && !owner.name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(name: &str, labels: Value, owner: Value) -> Pod {
        let owners: Vec<Value> = if owner.is_null() { Vec::new() } else { vec![owner] };
        let pod = json!({"kind": "Pod", "metadata": {"name": name, "namespace": "ml", "uid": name, "labels": labels, "ownerReferences": owners}});
        Pod::from_object(&Object::from_value(pod).unwrap()).unwrap()
    }

    fn owner(api_version: &str, kind: &str, name: &str) -> Value {
        json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": format!("uid-{name}"), "controller": true})
    }

    #[test]
    fn jobs_are_told_from_other_workloads() {
        let labels = |name: &str| json!({"training.kubeflow.org/job-name": name});
        let local = [
            pod("w-0", labels("llama"), owner("kubeflow.org/v1", "PyTorchJob", "llama")),
            pod("w-1", labels("llama"), owner("kubeflow.org/v1", "PyTorchJob", "llama")),
            pod("web", json!({"app": "web"}), owner("apps/v1", "ReplicaSet", "web-1")),
            pod("odd", json!({}), owner("example.com/v1", "FooJob", "foo")),
            pod("alone", json!({}), Value::Null),
        ];
        let here = jobs(&local, &[], &Grouping::default());
        assert_eq!(here.labelled.len(), 1);
        let (job, uids) = here.labelled.iter().next().unwrap();
        assert_eq!(job.selector(), "training.kubeflow.org/job-name=llama");
        assert_eq!(uids.len(), 2);
        assert!(job.selects(&local[0]) && !job.selects(&local[3]));
        assert_eq!(here.unlabelled, BTreeSet::from([("ml".to_owned(), "odd".to_owned())]));
        let grouped =
            jobs(&local, &[], &Grouping { group_by: vec!["app".to_owned()], ..Grouping::default() });
        assert_eq!(grouped.labelled.len(), 2);
    }

    fn above<'o>(
        pod: &Pod,
        in_job: bool,
        known: &dyn Fn(&Reference) -> Option<&'o Object>,
    ) -> Vec<Reference> {
        owners(&pod.namespace, &pod.owners, in_job, known)
    }

    #[test]
    fn owners_are_followed_as_far_as_they_are_true() {
        let none = |_: &Reference| None;
        let names = |found: Vec<Reference>| found.into_iter().map(|r| r.name).collect::<Vec<_>>();
        let web = pod("web", json!({}), owner("apps/v1", "ReplicaSet", "web-1"));
        assert!(above(&web, false, &none).is_empty());
        assert_eq!(names(above(&web, true, &none)), ["web-1"]);

        let object = |kind: &str, name: &str, uid: &str, above: Value| {
            Object::from_value(json!({"apiVersion": "batch/v1", "kind": kind, "metadata": {"name": name, "namespace": "ml", "uid": uid, "ownerReferences": [above]}})).unwrap()
        };
        let member = pod("p", json!({}), owner("batch/v1", "Job", "j"));
        let job = object("Job", "j", "uid-j", owner("jobset.x-k8s.io/v1alpha2", "JobSet", "s"));
        assert_eq!(names(above(&member, true, &|r| (r.name == "j").then_some(&job))), ["j", "s"]);
        let other = object("Job", "j", "another", owner("jobset.x-k8s.io/v1alpha2", "JobSet", "s"));
        assert_eq!(names(above(&member, true, &|r| (r.name == "j").then_some(&other))), ["j"]);
        let cycle = object("Job", "j", "uid-j", owner("batch/v1", "Job", "j"));
        assert_eq!(names(above(&member, true, &|r| (r.name == "j").then_some(&cycle))), ["j"]);
    }
}

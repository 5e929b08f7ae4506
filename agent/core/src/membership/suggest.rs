//! Which label would join pods that talk like one job. Enters: pods, their jobs, and pairs that were seen to
//! talk (or to be kept from it); leaves: the `groupBy` key to propose. Must not know why the pairs were
//! picked.

use std::collections::{BTreeMap, BTreeSet};

use crate::facts::Pod;

use super::Jobs;

/// A `groupBy` key that would make one job of pods that are not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Suggestion {
    /// The namespace of the pods.
    pub namespace: String,
    /// The label key to configure.
    pub key: String,
    /// The value that they have in common: the job's name.
    pub value: String,
}

/// What people name an application by, best first (Kubernetes' recommended labels and the old habit).
const PREFERRED: [&str; 4] =
    ["app", "app.kubernetes.io/name", "app.kubernetes.io/part-of", "app.kubernetes.io/instance"];

/// Last parts of keys that say where a pod runs, what it is, or who made it, but not what it belongs to.
const NEVER: [&str; 24] = [
    "pod-template-hash",
    "pod-template-generation",
    "controller-revision-hash",
    "controller-uid",
    "job-name",
    "job-completion-index",
    "pod-name",
    "pod-index",
    "replica-index",
    "zone",
    "region",
    "hostname",
    "role",
    "component",
    "tier",
    "version",
    "chart",
    "managed-by",
    "created-by",
    "queue",
    "queue-name",
    "local-queue-name",
    "cluster-queue-name",
    "node-pool",
];

/// More labels than anybody puts on a pod; further ones are not looked at.
const MOST_LABELS: usize = 64;

/// The best label that all pods of `pairs` carry with one value. Counted are pairs within one namespace that
/// are not in one job already; if these lie in several namespaces, or share no telling label, nothing is
/// suggested.
#[must_use]
pub fn suggest_group_by(pods: &[Pod], jobs: &Jobs, pairs: &[(usize, usize)]) -> Option<Suggestion> {
    let job_of = |pod: usize| jobs.of_pod(pod).map(|(job, _)| job);
    let mut gang = BTreeSet::new();
    let mut namespaces = BTreeSet::new();
    for &(a, b) in pairs {
        let (Some(first), Some(second)) = (pods.get(a), pods.get(b)) else { continue };
        let apart = job_of(a).is_none() || job_of(a) != job_of(b);
        if a != b && apart && first.namespace == second.namespace {
            gang.extend([a, b]);
            namespaces.insert(first.namespace.as_str());
        }
    }
    let mut members = gang.iter().filter_map(|&index| pods.get(index));
    let first = members.next()?;
    if namespaces.len() != 1 {
        return None;
    }
    let mut shared: BTreeMap<&str, &str> = first
        .labels
        .iter()
        .filter(|(k, v)| tells(k) && !v.is_empty())
        .map(|(k, v)| (k.as_str(), v.as_str()))
        .collect();
    for pod in members {
        shared.retain(|key, value| pod.labels.get(*key).is_some_and(|other| other == value));
    }
    let joined = |key: &str, value: &str| {
        let here = pods.iter().filter(|pod| pod.namespace == first.namespace);
        here.filter(|pod| pod.labels.get(key).is_some_and(|other| other == value)).count()
    };
    // Among labels without a customary meaning, the one that joins the fewest others.
    let (key, value) = PREFERRED.iter().find_map(|key| shared.get_key_value(*key)).or_else(|| {
        let others = shared.iter().take(MOST_LABELS);
        others.min_by_key(|(key, value)| (joined(key, value), **key))
    })?;
    Some(Suggestion {
        namespace: first.namespace.clone(),
        key: (*key).to_owned(),
        value: (*value).to_owned(),
    })
}

fn tells(key: &str) -> bool {
    !NEVER.contains(&key.rsplit('/').next().unwrap_or(key))
}

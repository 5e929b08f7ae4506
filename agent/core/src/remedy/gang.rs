//! By which labels a policy selects a job's pods and no others. Enters: the world around a job; leaves: the smallest
//! set of labels that outlives the pods, so that the job's next pods have it too. Must not know policies' forms.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::world::World;
use super::zone_claim::is_zone_like;
use crate::facts::{Phase, Pod};

/// The labels by which job systems and gang schedulers name a job (their own documentation), best first.
const JOB_KEYS: [&str; 17] = [
    "training.kubeflow.org/job-name",
    "jobset.sigs.k8s.io/jobset-name",
    "mpi-job-name",
    "tf-job-name",
    "pytorch-job-name",
    "volcano.sh/job-name",
    "leaderworkerset.sigs.k8s.io/name",
    "ray.io/cluster",
    "katib.kubeflow.org/trial",
    "skypilot-cluster-name",
    "kueue.x-k8s.io/pod-group-name",
    "scheduling.x-k8s.io/pod-group",
    "pod-group.scheduling.sigs.k8s.io",
    "pod-group.scheduling.sigs.k8s.io/name",
    "app.kubernetes.io/part-of",
    "batch.kubernetes.io/job-name",
    "job-name",
];
/// Ends of keys whose values differ from pod to pod, or do not outlive it.
const VOLATILE: [&str; 14] = [
    "uid",
    "hash",
    "replica-index",
    "worker-index",
    "task-index",
    "completion-index",
    "pod-index",
    "job-index",
    "job-global-index",
    "job-key",
    "group-key",
    "pod-name",
    "restart-attempt",
    "pod-template-generation",
];
/// Beginnings of keys that Cilium leaves out of identities by default (cilium/cilium `pkg/labelsfilter`).
const HIDDEN: [&str; 5] =
    ["io.kubernetes", "kubernetes.io", "k8s.io", "topology.kubernetes.io", "annotation"];
/// Different values of one label that are still written down.
const MOST_VALUES: usize = 8;
/// Labels that are tried before a selection is called good enough.
const MOST_LABELS: usize = 4;
/// Kinds of pods that are told apart where a job's pods share no label.
const MOST_HANDLES: usize = 4;

/// Labels that select pods of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Handle {
    /// A label key, and the values that mean the job.
    pub(super) labels: Vec<(String, Vec<String>)>,
    /// How many other pods of the namespace they select too.
    pub(super) strangers: usize,
}

impl Handle {
    /// As `LabelSelector`, which all policy APIs use.
    pub(super) fn selector(&self) -> Value {
        let mut labels = Map::new();
        let mut expressions = Vec::new();
        for (key, values) in &self.labels {
            match values.as_slice() {
                [one] => {
                    labels.insert(key.clone(), json!(one));
                }
                many => expressions.push(json!({"key": key, "operator": "In", "values": many})),
            }
        }
        let mut selector = Map::new();
        if !labels.is_empty() {
            selector.insert("matchLabels".to_owned(), Value::Object(labels));
        }
        if !expressions.is_empty() {
            selector.insert("matchExpressions".to_owned(), Value::Array(expressions));
        }
        Value::Object(selector)
    }

    /// For people.
    fn text(&self) -> String {
        let one = |(key, values): &(String, Vec<String>)| match values.as_slice() {
            [one] => format!("{key}={one}"),
            many => format!("{key} in ({})", many.join(", ")),
        };
        self.labels.iter().map(one).collect::<Vec<_>>().join(",")
    }
}

/// The selectors of several handles: alternatives.
pub(super) fn selectors(handles: &[Handle]) -> Vec<Value> {
    handles.iter().map(Handle::selector).collect()
}

/// Several handles for people.
pub(super) fn text(handles: &[Handle]) -> String {
    handles.iter().map(Handle::text).collect::<Vec<_>>().join(" or ")
}

/// Labels that together select all of `members`; several where they share none, as in a RayJob, whose submitter is not
/// part of its cluster. `None` when that takes too many.
pub(super) fn handles(world: &World<'_>, members: &[usize]) -> Option<Vec<Handle>> {
    if let Some(one) = handle(world, members) {
        return Some(vec![one]);
    }
    let mut kinds: BTreeMap<(&str, &str), Vec<usize>> = BTreeMap::new();
    for member in members {
        let labels = &world.members.get(*member)?.labels;
        let named = JOB_KEYS.iter().find_map(|key| Some((*key, labels.get(*key)?.as_str())))?;
        kinds.entry(named).or_default().push(*member);
    }
    if kinds.len() > MOST_HANDLES {
        return None;
    }
    kinds.values().map(|members| handle(world, members)).collect()
}

/// Labels that select all of `members` and, if there are such, nobody else; `None` when they share none.
fn handle(world: &World<'_>, members: &[usize]) -> Option<Handle> {
    let chosen: BTreeSet<usize> = members.iter().copied().collect();
    let mine: Vec<&Pod> = members.iter().filter_map(|place| world.members.get(*place)).collect();
    let rest =
        world.members.iter().enumerate().filter(|(place, _)| !chosen.contains(place)).map(|(_, pod)| pod);
    let strangers = world.strangers().filter(|pod| !matches!(pod.phase, Phase::Succeeded | Phase::Failed));
    let others: Vec<&Pod> = rest.chain(strangers).collect();
    let candidates = candidates(world, &mine);
    let alone =
        candidates.iter().take_while(|(rank, ..)| *rank < OTHER_RANK).find(|c| count(&[c], &others) == 0);
    if let Some((_, key, values)) = alone {
        return Some(Handle { labels: vec![(key.clone(), values.clone())], strangers: 0 });
    }
    let mut taken: Vec<&Candidate> = vec![candidates.first()?];
    let mut selected = count(&taken, &others);
    while selected > 0 && taken.len() < MOST_LABELS {
        let with = |candidate| {
            let mut more = taken.clone();
            more.push(candidate);
            (count(&more, &others), more)
        };
        let better = candidates.iter().map(with).min_by_key(|(count, _)| *count);
        match better {
            Some((fewer, more)) if fewer < selected => (selected, taken) = (fewer, more),
            _ => break,
        }
    }
    let labels = taken.into_iter().map(|(_, key, values)| (key.clone(), values.clone())).collect();
    Some(Handle { labels, strangers: selected })
}

/// Rank, key, values.
type Candidate = (usize, String, Vec<String>);
const OTHER_RANK: usize = 100;

/// Keys that all pods carry and a policy can use, best first.
fn candidates(world: &World<'_>, pods: &[&Pod]) -> Vec<Candidate> {
    let group =
        world.situation.inventory.job(world.situation.job).group.as_ref().map(|(key, _)| key.as_str());
    let mut found: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let Some((first, others)) = pods.split_first() else { return Vec::new() };
    for (key, value) in &first.labels {
        let mut values = BTreeSet::from([value.as_str()]);
        let all = others.iter().all(|pod| {
            pod.labels.get(key).is_some_and(|value| {
                values.insert(value);
                values.len() <= MOST_VALUES
            })
        });
        let placement = values.iter().any(|value| is_zone_like(world.situation.inventory, key, value));
        if all && !is_volatile(key) && !placement {
            found.insert(key, values);
        }
    }
    let rank = |key: &str, values: &BTreeSet<&str>| {
        let rank = match JOB_KEYS.iter().position(|known| *known == key) {
            _ if Some(key) == group => 0,
            Some(place) => place + 1,
            None => OTHER_RANK,
        };
        // A job has one name; several values only stand in where there is nothing better.
        if values.len() == 1 { rank } else { rank.max(OTHER_RANK) + values.len() }
    };
    let mut candidates: Vec<Candidate> = found
        .into_iter()
        .map(|(key, values)| {
            (rank(key, &values), key.to_owned(), values.into_iter().map(str::to_owned).collect())
        })
        .collect();
    candidates.sort();
    candidates
}

fn is_volatile(key: &str) -> bool {
    VOLATILE.iter().any(|end| key.ends_with(end))
        || HIDDEN.iter().any(|start| key.starts_with(start))
        || key.contains("beta.kubernetes.io")
}

fn count(labels: &[&Candidate], pods: &[&Pod]) -> usize {
    let carries =
        |pod: &Pod, (_, key, values): &Candidate| pod.labels.get(key).is_some_and(|v| values.contains(v));
    pods.iter().filter(|pod| labels.iter().all(|label| carries(pod, label))).count()
}

//! How the other members of a pod's job can be asked for. Enters: a pod; leaves: the labels that its job's members
//! share and that an API server can select by. Must not know owners: no server selects pods by those.

use crate::facts::Pod;

use super::Grouping;
use super::systems::{GROUPS, SYSTEMS, System};

/// A label that a pod must carry: with this value, or with any.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SharedLabel {
    /// The label's key.
    pub key: String,
    /// Its value; `None`: any.
    pub value: Option<String>,
}

impl SharedLabel {
    fn of(pod: &Pod, key: &str) -> Option<Self> {
        let value = pod.labels.get(key).filter(|value| !value.is_empty())?;
        Some(Self { key: key.to_owned(), value: Some(value.clone()) })
    }
}

/// The labels that all members of the pod's job carry, if the pod is in one. `None`: its job, if there is one, is known
/// by owners or annotations alone, which an API server cannot select by.
///
/// The order is that of [`super::Jobs::resolve`]: a configured group, then job systems, then gang schedulers. Where one
/// object runs several gangs the gang's number is among the labels: each gang is a job.
#[must_use]
pub fn shared_labels(pod: &Pod, grouping: &Grouping) -> Option<Vec<SharedLabel>> {
    let configured = grouping.group_by.iter().find_map(|key| SharedLabel::of(pod, key));
    if let Some(label) = configured {
        return Some(vec![label]);
    }
    if let Some(labels) = SYSTEMS.iter().find_map(|system| of_system(system, pod)) {
        return Some(labels);
    }
    let group = GROUPS.iter().find_map(|sign| {
        let label = SharedLabel::of(pod, sign.key)?;
        let name = label.value.as_deref().unwrap_or_default();
        (!sign.automatic.is_some_and(|prefix| name.starts_with(prefix))).then_some(label)
    });
    group.map(|label| vec![label])
}

fn of_system(system: &System, pod: &Pod) -> Option<Vec<SharedLabel>> {
    let mut labels = system.names.iter().find_map(|sign| {
        let mut labels = vec![SharedLabel::of(pod, sign.key).filter(|_| !sign.annotation_only)?];
        if let Some((other, needed)) = sign.with {
            let value = pod.labels.get(other)?;
            needed.is_none_or(|needed| needed == value).then_some(())?;
            labels.push(SharedLabel { key: other.to_owned(), value: needed.map(str::to_owned) });
        }
        Some(labels)
    })?;
    labels.extend(system.gang.and_then(|key| SharedLabel::of(pod, key)));
    Some(labels)
}

/// Whether a label or annotation of this key may tell a pod's job, role or rank: it is a job system's or a gang
/// scheduler's own, or of the same domain as one. Everything else on a pod may be forgotten without losing its job.
#[must_use]
pub fn is_mark(key: &str) -> bool {
    let same = |mark: &str| match (mark.split_once('/'), key.split_once('/')) {
        (Some((mark, _)), Some((domain, _))) => mark == domain,
        _ => mark == key,
    };
    let of_system = |system: &&System| {
        let names = system.names.iter().flat_map(|sign| [Some(sign.key), sign.with.map(|(key, _)| key)]);
        let names = names.flatten().chain(system.uids.iter().copied()).chain(system.gang);
        names.chain(system.roles.iter().map(|(key, _)| *key)).chain(system.ranks.iter().copied()).any(same)
    };
    SYSTEMS.iter().any(of_system)
        || GROUPS.iter().any(|sign| same(sign.key))
        || ["trainer.kubeflow.org/", "operator-name", "controller-name"].into_iter().any(same)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Object;
    use serde_json::json;

    fn labels(of: serde_json::Value, annotations: serde_json::Value, group_by: &[&str]) -> Option<String> {
        let pod = json!({"kind": "Pod", "metadata": {"name": "p", "namespace": "n", "labels": of,
            "annotations": annotations}});
        let pod = Pod::from_object(&Object::from_value(pod).unwrap()).unwrap();
        let group_by = group_by.iter().map(|key| (*key).to_owned()).collect();
        let shared = shared_labels(&pod, &Grouping { group_by, ..Grouping::default() })?;
        let shared = shared.into_iter().map(|l| format!("{}={}", l.key, l.value.as_deref().unwrap_or("*")));
        Some(shared.collect::<Vec<_>>().join(","))
    }

    #[test]
    fn the_widest_system_is_asked() {
        let none = json!({});
        let jobset =
            json!({"jobset.sigs.k8s.io/jobset-name": "s", "batch.kubernetes.io/job-name": "s-node-0"});
        assert_eq!(
            labels(jobset.clone(), none.clone(), &[]).as_deref(),
            Some("jobset.sigs.k8s.io/jobset-name=s")
        );
        let grouped = json!({"app": "a", "jobset.sigs.k8s.io/jobset-name": "s"});
        assert_eq!(labels(grouped, none.clone(), &["team", "app"]).as_deref(), Some("app=a"));
        let old = json!({"job-name": "j", "group-name": "kubeflow.org"});
        assert_eq!(labels(old, none.clone(), &[]).as_deref(), Some("job-name=j,group-name=kubeflow.org"));
        let lws =
            json!({"leaderworkerset.sigs.k8s.io/name": "l", "leaderworkerset.sigs.k8s.io/group-index": "3"});
        assert_eq!(
            labels(lws, none.clone(), &[]).as_deref(),
            Some("leaderworkerset.sigs.k8s.io/name=l,leaderworkerset.sigs.k8s.io/group-index=3")
        );
        let batch = json!({"job-name": "j", "controller-uid": "u"});
        assert_eq!(labels(batch, none, &[]).as_deref(), Some("job-name=j,controller-uid=*"));
    }

    #[test]
    fn annotations_select_nothing() {
        assert_eq!(labels(json!({"app": "a"}), json!({"volcano.sh/job-name": "v"}), &[]), None);
        assert_eq!(labels(json!({"scheduling.k8s.io/group-name": "podgroup-1"}), json!({}), &[]), None);
        assert_eq!(
            labels(json!({"scheduling.x-k8s.io/pod-group": "g"}), json!({}), &[]).as_deref(),
            Some("scheduling.x-k8s.io/pod-group=g")
        );
    }

    #[test]
    fn marks_are_kept_and_noise_is_not() {
        for mark in [
            "jobset.sigs.k8s.io/coordinator",
            "volcano.sh/job-name",
            "ray.io/originated-from-crd",
            "skypilot-cluster-name",
            "pod-group-name",
            "trainer.kubeflow.org/trainjob-ancestor-step",
        ] {
            assert!(is_mark(mark), "{mark}");
        }
        for noise in
            ["kubectl.kubernetes.io/restartedAt", "k8s.v1.cni.cncf.io/network-status", "prometheus.io/scrape"]
        {
            assert!(!is_mark(noise), "{noise}");
        }
    }
}

//! From one snapshot of the cluster to the next. Enters: a snapshot and newer objects; leaves: a snapshot in which
//! every pod of the old one keeps its identity. Pods are never forgotten, for what was seen of them is not; other
//! objects live only as long as the cluster holds them, save what is needed to know whose a gone pod was and where, and
//! which policies there were.

use std::collections::BTreeMap;

use super::{FastMap, Inventory, JobIndex};
use crate::object::Object;
use crate::time::Timestamp;

/// Where the jobs of one snapshot went in the next.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct JobNumbers(Vec<Option<JobIndex>>);

impl JobNumbers {
    /// The job's new number; `None`: it is no more.
    #[must_use]
    pub fn get(&self, old: JobIndex) -> Option<JobIndex> {
        self.0.get(old.0 as usize).copied().flatten()
    }

    /// Counts by job, under the new numbers.
    #[must_use]
    pub fn renumber(&self, counts: &BTreeMap<JobIndex, u64>) -> BTreeMap<JobIndex, u64> {
        let mut renumbered = BTreeMap::new();
        for (job, count) in counts {
            if let Some(job) = self.get(*job) {
                *renumbered.entry(job).or_default() += count;
            }
        }
        renumbered
    }
}

/// An object's kind, group, namespace, name; for pods also the UID.
pub(super) type Identity = (String, String, Option<String>, String, String);

pub(super) fn identity(object: &Object) -> Identity {
    let key = object.key();
    let uid = if key.kind == "Pod" { object.uid().unwrap_or_default() } else { "" };
    (key.kind, object.group().to_owned(), key.namespace, key.name, uid.to_owned())
}

impl Inventory {
    /// The next snapshot, and where this one's jobs are in it. Pods that are not among `objects` held their addresses
    /// until `now` at the longest; `None`: no time is known yet.
    #[must_use]
    pub fn renewed(self, objects: Vec<Object>, now: Option<Timestamp>) -> (Self, JobNumbers) {
        let current: FastMap<Identity, ()> = objects.iter().map(|object| (identity(object), ())).collect();
        let mut gone = self.gone;
        let mut former = self.former;
        former.note(&self.objects, &objects, now);
        let old_pods: Vec<&Object> = self.objects.iter().filter(|object| object.kind() == "Pod").collect();
        for pod in &old_pods {
            let Some(uid) = pod.uid() else { continue };
            if current.contains_key(&identity(pod)) {
                gone.remove(uid);
            } else if let Some(now) = now {
                gone.entry(uid.into()).or_insert(now);
            }
        }
        let owned = self.objects.iter().filter(|object| {
            object.kind() != "Pod" && outlives(object) && !current.contains_key(&identity(object))
        });
        let kept: Vec<Object> = old_pods.into_iter().chain(owned).chain(&objects).cloned().collect();
        let mut next = Self::new(kept, &self.grouping);
        for pod in &mut next.pods {
            let until = pod.uid.as_deref().and_then(|uid| gone.get(uid).copied());
            pod.lease.until = match (pod.lease.until, until) {
                (Some(told), _) => Some(told),
                (None, until) => until,
            };
        }
        next.gone = gone;
        next.former = former;
        let numbers = self.jobs.jobs.iter().map(|job| {
            let member = job.members.first()?;
            let (index, _) = next.jobs.of_pod(member.pod)?;
            Some(JobIndex(u32::try_from(index).ok()?))
        });
        let numbers = JobNumbers(numbers.collect());
        (next, numbers)
    }
}

/// Whether an object is still needed when the cluster no longer has it: nodes tell where pods were, owners whose they
/// were. A policy, a service or a namespace that is gone locks and opens nothing any more; what a policy locked before is
/// told by its former versions.
fn outlives(object: &Object) -> bool {
    let group = object.group();
    let rules = group == "cilium.io" || group == "networking.k8s.io" || group == "policy.networking.k8s.io";
    !rules && !matches!(object.kind(), "Service" | "EndpointSlice" | "Endpoints" | "Namespace" | "ConfigMap")
}

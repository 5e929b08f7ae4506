//! Which pods train together. Enters: pods and whatever objects were recorded with them; leaves: [`Jobs`],
//! each with its members, their roles and ranks. Must not know flows, zones or policies.
//!
//! The first of these that tells something decides, always within one namespace:
//! 1. a configured `groupBy` label key that the pod carries;
//! 2. owner references, followed up by UID to the topmost object that is a gang (`owners`);
//! 3. the labels that job systems put on their pods (`systems`);
//! 4. a pod group of a gang scheduler.
//!
//! Deployments, StatefulSets, DaemonSets and the steps of a pipeline are no gangs of their own. A pod is in
//! one job at most. Identity is the UID: two jobs of one name at different times are two jobs.

mod claims;
mod fellows;
mod kind;
mod owners;
mod roles;
mod suggest;
mod systems;
#[cfg(test)]
mod tests;
pub(crate) mod words;

use std::collections::{BTreeMap, BTreeSet};

use foldhash::{HashMap, HashMapExt};

use crate::facts::Pod;
use crate::object::{Object, ObjectKey};

use claims::{Claim, Claimant};
use owners::Owners;

pub use fellows::{SharedLabel, is_mark, shared_labels};
pub use kind::JobKind;
pub use suggest::{Suggestion, suggest_group_by};

/// What names a job. Sorted as a report lists jobs: namespace, kind, name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct JobId {
    /// The namespace of its pods.
    pub namespace: String,
    /// What kind of job it is.
    pub kind: JobKind,
    /// The name of the top object. Where one object runs several gangs that need not talk to each other (the
    /// groups of a LeaderWorkerSet, the replicas of a PodCliqueSet), each is a job: `<name>-<index>`.
    pub name: String,
    /// The top object's UID; `None` where there is no such object or nothing tells its UID.
    pub uid: Option<String>,
}

/// What a member does in its job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Role {
    /// The one that the others rendezvous at: master, launcher, head, leader, chief, rank 0.
    Coordinator,
    /// One of the many.
    Worker,
    /// Holds parameters for the workers.
    ParameterServer,
    /// Known to be none of these: an evaluator, an initializer, a submitter.
    Other,
}

impl Role {
    /// The name used in reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Coordinator => "coordinator",
            Self::Worker => "worker",
            Self::ParameterServer => "ps",
            Self::Other => "other",
        }
    }
}

/// A pod as part of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// The pod's place in the slice that was resolved.
    pub pod: usize,
    /// What it does; `None` when nothing on it tells (who connects to whom may still).
    pub role: Option<Role>,
    /// Its number as its system counts: the global rank where there is one, else the index within its role.
    /// `None` when nothing tells.
    pub rank: Option<u32>,
}

/// A job: pods that must be able to talk to each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Job {
    /// What names it.
    pub id: JobId,
    /// Its members, sorted by pod name. There may be only one.
    pub members: Vec<Member>,
    /// The label key and value that joined it, when it was joined by `groupBy`.
    pub group: Option<(String, String)>,
    /// The object a user edits to change the job; `None` when there is not exactly one.
    pub top: Option<ObjectKey>,
}

/// What a user configured about jobs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grouping {
    /// Label keys that join pods of one namespace, the first that a pod carries counts.
    pub group_by: Vec<String>,
    /// Label keys that may tell a role where the job system does not, the first that tells one counts.
    pub role_labels: Vec<String>,
}

impl Default for Grouping {
    fn default() -> Self {
        let role_labels = ["role", "app.kubernetes.io/component", "component"];
        Self { group_by: Vec::new(), role_labels: role_labels.map(str::to_owned).to_vec() }
    }
}

/// All jobs of a set of pods.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Jobs {
    /// The jobs, sorted by their ids.
    pub jobs: Vec<Job>,
    /// For each pod its job and its place among the members.
    places: Vec<Option<(usize, usize)>>,
    /// For each pod the object a user edits to change it.
    tops: Vec<ObjectKey>,
}

impl Jobs {
    /// Finds the jobs of `pods`. `objects` are the owners that are known; any may be missing, others are
    /// ignored.
    #[must_use]
    pub fn resolve(pods: &[Pod], objects: &[Object], grouping: &Grouping) -> Self {
        let owners = Owners::new(pods, objects);
        let claimant = Claimant::new(&owners, pods);
        let mut claims = Vec::with_capacity(pods.len());
        let mut tops = Vec::with_capacity(pods.len());
        for pod in pods {
            let (claim, top) = claimant.claim(pod);
            claims.push(claim);
            tops.push(top);
        }
        agree_on_uids(pods, &mut claims);
        split_gangs(pods, &owners, &mut claims);

        let mut taken = Taken::default();
        for (index, pod) in pods.iter().enumerate() {
            if let Some((key, value)) = group_of(pod, grouping) {
                taken.join_group(index, pod, key, value);
            } else if let Some(claim) = claims.get(index).and_then(Option::as_ref) {
                taken.jobs.entry(claim.id(&pod.namespace)).or_default().push(index);
            }
        }
        let mut jobs = Vec::with_capacity(taken.jobs.len());
        for (id, mut members) in taken.jobs {
            members.sort_by(|a, b| order(pods, *a).cmp(&order(pods, *b)));
            let members = roles::assign(&id, &members, pods, &claims, &owners, grouping);
            let group = taken.groups.remove(&id);
            let top = shared_top(&members, &tops);
            jobs.push(Job { id, members, group, top });
        }
        let mut places = vec![None; pods.len()];
        for (job, found) in jobs.iter().enumerate() {
            for (place, member) in found.members.iter().enumerate() {
                if let Some(slot) = places.get_mut(member.pod) {
                    *slot = Some((job, place));
                }
            }
        }
        Self { jobs, places, tops }
    }

    /// The job a pod is in, by place in [`Jobs::jobs`], and the pod as its member.
    #[must_use]
    pub fn of_pod(&self, pod: usize) -> Option<(usize, &Member)> {
        let (job, place) = (*self.places.get(pod)?)?;
        Some((job, self.jobs.get(job)?.members.get(place)?))
    }

    /// The object a user edits to change this pod: for members of a `groupBy` job it may differ from pod to
    /// pod. Without any owner it is the pod itself.
    #[must_use]
    pub fn top_of(&self, pod: usize) -> Option<&ObjectKey> {
        self.tops.get(pod)
    }
}

/// The pods of each job while they are gathered.
#[derive(Default)]
struct Taken {
    jobs: BTreeMap<JobId, Vec<usize>>,
    groups: BTreeMap<JobId, (String, String)>,
}

impl Taken {
    fn join_group(&mut self, index: usize, pod: &Pod, key: &str, value: &str) {
        let named =
            |name: String| JobId { namespace: pod.namespace.clone(), kind: JobKind::Group, name, uid: None };
        let mut id = named(value.to_owned());
        let same = |(k, v): &(String, String)| k == key && v == value;
        if !self.groups.get(&id).is_none_or(same) {
            // Another configured key has groups of this value too: they are not one job.
            id = named(format!("{key}={value}"));
        }
        self.groups.entry(id.clone()).or_insert_with(|| (key.to_owned(), value.to_owned()));
        self.jobs.entry(id).or_default().push(index);
    }
}

fn group_of<'p>(pod: &'p Pod, grouping: &'p Grouping) -> Option<(&'p str, &'p str)> {
    grouping.group_by.iter().find_map(|key| {
        let value = pod.labels.get(key).filter(|value| !value.is_empty())?;
        Some((key.as_str(), value.as_str()))
    })
}

/// Members are listed by pod name; the UID makes the order total when names were reused.
fn order(pods: &[Pod], index: usize) -> Option<(&str, Option<&str>, usize)> {
    pods.get(index).map(|pod| (pod.name.as_str(), pod.uid.as_deref(), index))
}

fn shared_top(members: &[Member], tops: &[ObjectKey]) -> Option<ObjectKey> {
    let mut distinct = members.iter().filter_map(|member| tops.get(member.pod));
    let first = distinct.next()?;
    distinct.all(|top| top == first).then(|| first.clone())
}

/// A pod known by labels alone is in the job that other pods name with a UID, if there is just one of that
/// name.
fn agree_on_uids(pods: &[Pod], claims: &mut [Option<Claim>]) {
    let mut known: HashMap<(&str, JobKind, String), BTreeSet<String>> = HashMap::new();
    let told = pods.iter().zip(claims.iter()).filter_map(|(pod, claim)| Some((pod, claim.as_ref()?)));
    if told.clone().all(|(_, claim)| claim.uid.is_some()) {
        return;
    }
    for (pod, claim) in told {
        if let Some(uid) = &claim.uid {
            let key = (pod.namespace.as_str(), claim.kind.clone(), claim.name.clone());
            known.entry(key).or_default().insert(uid.clone());
        }
    }
    for (pod, claim) in pods.iter().zip(claims.iter_mut()) {
        let Some(claim) = claim.as_mut().filter(|claim| claim.uid.is_none() && claim.may_look_up) else {
            continue;
        };
        let key = (pod.namespace.as_str(), claim.kind.clone(), claim.name.clone());
        if let Some(uids) = known.get(&key).filter(|uids| uids.len() == 1) {
            claim.uid = uids.first().cloned();
        }
    }
}

/// Where one object runs several gangs, their names get the gang's index. A single gang keeps the object's
/// name.
fn split_gangs(pods: &[Pod], owners: &Owners<'_>, claims: &mut [Option<Claim>]) {
    let mut highest: HashMap<JobId, u32> = HashMap::new();
    for (pod, claim) in pods.iter().zip(claims.iter()) {
        let Some(claim) = claim else { continue };
        let Some(index) = claim.gang else { continue };
        let seen = highest.entry(claim.id(&pod.namespace)).or_insert_with(|| {
            let replicas = claim.object(owners, &pod.namespace);
            let replicas = replicas.and_then(|object| object.value().pointer("/spec/replicas")?.as_u64());
            u32::try_from(replicas.unwrap_or(0).saturating_sub(1)).unwrap_or(u32::MAX)
        });
        *seen = index.max(*seen);
    }
    for (pod, claim) in pods.iter().zip(claims.iter_mut()) {
        let Some(claim) = claim else { continue };
        let Some(index) = claim.gang else { continue };
        if highest.get(&claim.id(&pod.namespace)).is_some_and(|highest| *highest > 0) {
            claim.job_name = Some(format!("{}-{index}", claim.name));
        }
    }
}

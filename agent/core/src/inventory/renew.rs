//! From one snapshot of the cluster to the next. Enters: a snapshot and newer objects; leaves: a snapshot in which
//! every pod of the old one keeps its identity. Without a horizon pods are never forgotten, for what was seen of them is
//! not; other objects live only as long as the cluster holds them, save what is needed to know whose a gone pod was and where, and
//! which policies there were.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{FastMap, Inventory, JobIndex, PodId, Snapshot, distinct};
use crate::facts::{Lease, Phase, Pod};
use crate::membership::Member;
use crate::object::{Labels, Object};
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

/// Until when a pod that the cluster no longer has may have held its addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Gone {
    pub(super) at: Timestamp,
    /// It was told, not only noticed.
    pub(super) exactly: bool,
}

/// An object's kind, group, namespace, name; for pods also the UID.
pub(super) type Identity = (String, String, Option<String>, String, String);

pub(super) fn identity(object: &Object) -> Identity {
    let key = object.key();
    let uid = if key.kind == "Pod" { object.uid().unwrap_or_default() } else { "" };
    (key.kind, object.group().to_owned(), key.namespace, key.name, uid.to_owned())
}

/// What a renewal needs besides the objects.
#[derive(Clone, Copy, Debug)]
pub struct Renewal<'a> {
    /// When pods ended, by UID, as far as it was told.
    pub ended: &'a BTreeMap<String, Timestamp>,
    /// What is not among the objects was there until now at the longest; `None`: no time is known yet.
    pub now: Option<Timestamp>,
    /// What has been gone for longer is forgotten; `None`: nothing is.
    pub horizon: Option<Duration>,
}

type Name<'a> = (&'a str, &'a str, Option<&'a str>, &'a str, &'a str);

fn name(object: &Object) -> Name<'_> {
    let kind = object.kind();
    let uid = if kind == "Pod" { object.uid().unwrap_or_default() } else { "" };
    (kind, object.group(), object.namespace(), object.name(), uid)
}

/// The pods of a snapshot on their way into the next one.
#[derive(Default)]
struct Pods {
    pods: Vec<Pod>,
    objects: Vec<Option<Object>>,
    forgotten: BTreeSet<PodId>,
}

impl Pods {
    fn push(&mut self, pod: Pod, object: Option<Object>) {
        self.pods.push(pod);
        self.objects.push(object);
    }

    /// Puts new pods into the places of forgotten ones, as far as there are any.
    fn fill(&mut self, new: impl Iterator<Item = (Pod, Object)>) {
        let mut free = 0;
        for (pod, object) in new {
            while self.objects.get(free).is_some_and(Option::is_some) {
                free += 1;
            }
            match (self.pods.get_mut(free), self.objects.get_mut(free)) {
                (Some(place), Some(of)) => (*place, *of) = (pod, Some(object)),
                _ => self.push(pod, Some(object)),
            }
        }
    }
}

impl Inventory {
    /// The next snapshot, where this one's jobs are in it, and which pods are forgotten: their numbers may be those of
    /// other pods by now.
    #[must_use]
    pub fn renewed(self, objects: Vec<Object>, renewal: Renewal<'_>) -> (Self, JobNumbers, BTreeSet<PodId>) {
        let (objects, oddities) = distinct(objects);
        let mut former = self.former;
        let since = renewal.now.zip(renewal.horizon).map(|(now, horizon)| now.minus(horizon));
        former.note(&self.objects, &objects, renewal.now, since);
        let current: FastMap<Name<'_>, &Object> =
            objects.iter().map(|object| (name(object), object)).collect();
        let mut gone = self.gone;
        let mut known: FastMap<Name<'_>, ()> = FastMap::default();
        let mut pods = Pods::default();
        for (pod, object) in self.pods.into_iter().zip(&self.pod_objects) {
            let Some(old) = object else {
                pods.push(forgotten(), None);
                continue;
            };
            if let Some(new) = current.get(&name(old)) {
                known.insert(name(old), ());
                let was_gone = old.uid().is_some_and(|uid| gone.remove(uid).is_some());
                let same = !was_gone && (new.is_same(old) || *new == old);
                let read = if same { None } else { Pod::from_object(new) };
                pods.push(read.unwrap_or(pod), Some(if same { old.clone() } else { (*new).clone() }));
                continue;
            }
            let left = old.uid().and_then(|uid| leave(uid, &mut gone, renewal));
            if since.is_some_and(|since| left.is_some_and(|left| left.at < since)) {
                if let Some(uid) = old.uid() {
                    gone.remove(uid);
                }
                pods.forgotten.extend(u32::try_from(pods.pods.len()).map(PodId));
                pods.push(forgotten(), None);
            } else {
                pods.push(pod, Some(old.clone()));
            }
        }
        let new = objects.iter().filter(|object| !known.contains_key(&name(object)));
        pods.fill(new.filter_map(|object| Some((Pod::from_object(object)?, object.clone()))));
        let missing = self.objects.iter().filter(|object| {
            object.kind() != "Pod" && outlives(object) && !current.contains_key(&name(object))
        });
        let mut missed: FastMap<Identity, Timestamp> = FastMap::default();
        let mut kept: Vec<Object> = pods.objects.iter().flatten().cloned().collect();
        for object in missing {
            let identity = identity(object);
            let noticed = self.missed.get(&identity).copied().or(renewal.now);
            if since.zip(noticed).is_none_or(|(since, noticed)| noticed >= since) {
                missed.extend(noticed.map(|noticed| (identity, noticed)));
                kept.push(object.clone());
            }
        }
        kept.extend(objects.iter().filter(|object| object.kind() != "Pod").cloned());
        let Pods { pods, objects: pod_objects, forgotten } = pods;
        let snapshot = Snapshot { pods, pod_objects, objects: kept, oddities };
        let mut next = Self::build(snapshot, &self.grouping);
        next.end_leases(&gone);
        next.set_partial(self.partial);
        (next.gone, next.former, next.missed) = (gone, former, missed);
        let numbers =
            JobNumbers(self.jobs.jobs.iter().map(|job| next.number_of(&job.members, &forgotten)).collect());
        (next, numbers, forgotten)
    }

    fn end_leases(&mut self, gone: &FastMap<Box<str>, Gone>) {
        for (id, pod) in (0..).map(PodId).zip(&mut self.pods) {
            let Some(gone) = pod.uid.as_deref().and_then(|uid| gone.get(uid)) else { continue };
            if gone.exactly {
                // A time of deletion that lies ahead is when the grace would have been over.
                pod.lease.until = Some(pod.lease.until.map_or(gone.at, |told| told.min(gone.at)));
                self.ended.insert(id);
            } else {
                pod.lease.until = pod.lease.until.or(Some(gone.at));
            }
        }
    }

    /// The number of the job that has these members.
    fn number_of(&self, members: &[Member], forgotten: &BTreeSet<PodId>) -> Option<JobIndex> {
        let id = |member: &&Member| u32::try_from(member.pod).map(PodId);
        let mut still = members.iter().filter(|member| id(member).is_ok_and(|id| !forgotten.contains(&id)));
        let (index, _) = still.find_map(|member| self.jobs.of_pod(member.pod))?;
        Some(JobIndex(u32::try_from(index).ok()?))
    }

    /// Whether anything has been gone since before `since`.
    #[must_use]
    pub fn is_due(&self, since: Timestamp) -> bool {
        self.gone.values().any(|gone| gone.at < since) || self.missed.values().any(|noticed| *noticed < since)
    }

    /// The objects that the cluster has.
    #[must_use]
    pub fn current(&self) -> Vec<Object> {
        let gone = |object: &&Object| match object.kind() {
            "Pod" => object.uid().is_some_and(|uid| self.gone.contains_key(uid)),
            _ => !self.missed.is_empty() && self.missed.contains_key(&identity(object)),
        };
        self.objects.iter().filter(|object| !gone(object)).cloned().collect()
    }

    /// Keeps pods as text, which nobody has to look into again: what is to be known of them is read.
    pub fn pack(&mut self) {
        let unpacked =
            |object: &Object| object.kind() == "Pod" && (object.is_unpacked() || !object.is_packed());
        let pods = self.pod_objects.iter_mut().flatten().filter(|object| unpacked(object));
        let mut packed: FastMap<(String, String, String), Object> = FastMap::default();
        for object in pods {
            *object = object.packed();
            let uid = object.uid().unwrap_or_default().to_owned();
            let name = (object.namespace().unwrap_or_default().to_owned(), object.name().to_owned(), uid);
            packed.insert(name, object.clone());
        }
        if packed.is_empty() {
            return;
        }
        for object in self.objects.iter_mut().filter(|object| object.kind() == "Pod") {
            let uid = object.uid().unwrap_or_default().to_owned();
            let name = (object.namespace().unwrap_or_default().to_owned(), object.name().to_owned(), uid);
            if let Some(packed) = packed.get(&name) {
                *object = packed.clone();
            }
        }
    }
}

/// Stands in the place of a pod that is forgotten: it has no name and no address.
fn forgotten() -> Pod {
    Pod {
        namespace: String::new(),
        name: String::new(),
        uid: None,
        labels: Labels::new(),
        annotations: Labels::new(),
        owners: Vec::new(),
        node: None,
        host_network: false,
        service_account: String::new(),
        ips: Vec::new(),
        ports: Vec::new(),
        env: BTreeMap::new(),
        gpus: 0,
        local_ports: None,
        phase: Phase::Unknown,
        lease: Lease { from: None, until: Some(Timestamp::MIN) },
    }
}

/// Takes note that a pod is gone.
fn leave(uid: &str, gone: &mut FastMap<Box<str>, Gone>, renewal: Renewal<'_>) -> Option<Gone> {
    if let Some(at) = renewal.ended.get(uid) {
        gone.insert(uid.into(), Gone { at: *at, exactly: true });
    } else if let Some(at) = renewal.now {
        gone.entry(uid.into()).or_insert(Gone { at, exactly: false });
    }
    gone.get(uid).copied()
}

/// Whether an object is still needed when the cluster no longer has it: nodes tell where pods were, owners whose they
/// were. A policy, a service or a namespace that is gone locks and opens nothing any more; what a policy locked before is
/// told by its former versions.
fn outlives(object: &Object) -> bool {
    let group = object.group();
    let rules = group == "cilium.io" || group == "networking.k8s.io" || group == "policy.networking.k8s.io";
    !rules && !matches!(object.kind(), "Service" | "EndpointSlice" | "Endpoints" | "Namespace" | "ConfigMap")
}

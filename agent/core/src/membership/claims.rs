//! Which job a pod belongs to. Enters: a pod and the owners above it; leaves: a [`Claim`], and the object a
//! user edits to change the pod. Must not know roles or configured groups.

use foldhash::HashSet;

use crate::facts::Pod;
use crate::object::{Object, ObjectKey};

use super::kind::{Level, level};
use super::owners::{Above, Chain, Link, Owners, controller, group};
use super::systems::{GROUPS, GroupSign, SYSTEMS, System, TRAINJOB_STEP, carried};
use super::{JobId, JobKind};

/// Owners made by other owners that are not here: TrainJob above JobSet above Job is the longest way.
const LONGEST_LIFT: usize = 4;

/// The job that a pod is in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Claim {
    pub(super) kind: JobKind,
    /// The top object's name.
    pub(super) name: String,
    pub(super) uid: Option<String>,
    /// Whether a job of this name may be taken for this one. Not when the pod's owner references say
    /// otherwise.
    pub(super) may_look_up: bool,
    /// Which of its object's gangs the pod is in, where there can be several.
    pub(super) gang: Option<u32>,
    /// The job's name, where it differs from the top object's.
    pub(super) job_name: Option<String>,
}

impl Claim {
    fn new(kind: JobKind, name: &str, uid: Option<&str>, may_look_up: bool) -> Self {
        let uid = uid.filter(|uid| !uid.is_empty()).map(str::to_owned);
        Self { kind, name: name.to_owned(), uid, may_look_up, gang: None, job_name: None }
    }

    /// The job's id in a namespace.
    pub(super) fn id(&self, namespace: &str) -> JobId {
        JobId {
            namespace: namespace.to_owned(),
            kind: self.kind.clone(),
            name: self.job_name.as_ref().unwrap_or(&self.name).clone(),
            uid: self.uid.clone(),
        }
    }

    /// The top object, when it is known.
    pub(super) fn object<'a>(&self, owners: &Owners<'a>, namespace: &str) -> Option<&'a Object> {
        if self.uid.is_none() && !self.may_look_up {
            return None;
        }
        let (group, kind) = self.kind.api()?;
        let object = owners.named(namespace, group, kind, &self.name)?;
        (self.uid.is_none() || self.uid.as_deref() == object.uid()).then_some(object)
    }
}

/// What a chain of owners says.
enum Reading {
    /// A gang, the object to edit, and whether a gang above it may be missing from what is known.
    Gang {
        claim: Claim,
        top: ObjectKey,
        open: bool,
    },
    /// A step of a pipeline or the like: owners and labels do not join it.
    Steps,
    Nothing,
}

/// Finds the claims of pods.
pub(super) struct Claimant<'a, 'o> {
    owners: &'o Owners<'a>,
    /// UIDs of owners with a pod that asks for accelerators.
    accelerated: HashSet<&'a str>,
}

impl<'a, 'o> Claimant<'a, 'o> {
    pub(super) fn new(owners: &'o Owners<'a>, pods: &'a [Pod]) -> Self {
        let accelerated = pods.iter().filter(|pod| pod.gpus > 0).filter_map(|pod| controller(&pod.owners));
        let accelerated = accelerated.map(|owner| owner.uid.as_str()).collect();
        Self { owners, accelerated }
    }

    /// The pod's claim, and the object a user edits to change the pod.
    pub(super) fn claim(&self, pod: &Pod) -> (Option<Claim>, ObjectKey) {
        let chain = self.owners.above_pod(pod);
        let own = || ObjectKey {
            kind: "Pod".to_owned(),
            namespace: Some(pod.namespace.clone()),
            name: pod.name.clone(),
        };
        let edited = chain.links.last().map_or_else(own, |link| key(link, &pod.namespace));
        match read(&chain, &pod.namespace) {
            Reading::Gang { claim, top, open } => {
                let (mut claim, top) = if open { self.lift(pod, claim, top, &chain) } else { (claim, top) };
                claim.gang = gang_index(pod, &claim.kind);
                (Some(claim), top)
            }
            Reading::Steps => (self.pod_group(pod, false), edited),
            Reading::Nothing => {
                if let Some(claim) = self.by_labels(pod, &chain) {
                    let top = object_key(&claim, &pod.namespace).unwrap_or(edited);
                    let (mut claim, top) = self.lift(pod, claim, top, &chain);
                    claim.gang = gang_index(pod, &claim.kind);
                    return (Some(claim), top);
                }
                let claim = self.by_other_owner(&chain);
                (
                    claim.or_else(|| {
                        self.pod_group(pod, chain.links.iter().all(|link| link.group() != "apps"))
                    }),
                    edited,
                )
            }
        }
    }

    fn by_labels(&self, pod: &Pod, chain: &Chain<'_>) -> Option<Claim> {
        SYSTEMS.iter().find_map(|system| {
            let (key, name) = system.name(pod)?;
            let kind = (system.kind)(pod, key).unwrap_or_else(|| self.training_kind(&pod.namespace, name));
            // Who forges an owner may forge the UID on a label, too.
            let uids = if chain.above == Above::Untrue { &[] } else { system.uids };
            let uid = uids.iter().find_map(|key| carried(pod, key));
            let mut claim = Claim::new(kind, name, uid, !chain.contradicted);
            if claim.uid.is_none() {
                let object = claim.object(self.owners, &pod.namespace);
                claim.uid = object.and_then(Object::uid).map(str::to_owned);
            }
            Some(claim)
        })
    }

    /// Pods of the oldest operators do not tell the kind: the objects may.
    fn training_kind(&self, namespace: &str, name: &str) -> JobKind {
        let kinds = [
            JobKind::PyTorchJob,
            JobKind::TFJob,
            JobKind::MPIJob,
            JobKind::XGBoostJob,
            JobKind::PaddleJob,
            JobKind::JAXJob,
        ];
        let known = |kind: &JobKind| {
            kind.api().is_some_and(|(group, kind)| self.owners.named(namespace, group, kind, name).is_some())
        };
        kinds.into_iter().find(known).unwrap_or(JobKind::PyTorchJob)
    }

    /// From a job to the one that made it, as far as objects, labels or a status tell.
    fn lift(&self, pod: &Pod, claim: Claim, top: ObjectKey, chain: &Chain<'_>) -> (Claim, ObjectKey) {
        let (mut claim, mut top) = (claim, top);
        for _ in 0..LONGEST_LIFT {
            let Some((above, above_top)) = self.above(pod, &claim, chain) else { break };
            (claim, top) = (above, above_top);
        }
        (claim, top)
    }

    fn above(&self, pod: &Pod, claim: &Claim, chain: &Chain<'_>) -> Option<(Claim, ObjectKey)> {
        let namespace = pod.namespace.as_str();
        if let Some(object) = claim.object(self.owners, namespace) {
            return match read(&self.owners.above_object(object), namespace) {
                Reading::Gang { claim, top, .. } => Some((claim, top)),
                Reading::Steps | Reading::Nothing => None,
            };
        }
        let made_by = |kind: JobKind, name: &str| {
            let mut claim = Claim::new(kind, name, None, !chain.contradicted);
            claim.uid = claim.object(self.owners, namespace).and_then(Object::uid).map(str::to_owned);
            let top = object_key(&claim, namespace)?;
            Some((claim, top))
        };
        match claim.kind {
            JobKind::Job => {
                let above = self
                    .by_labels(pod, chain)
                    .filter(|above| matches!(above.kind, JobKind::MPIJob | JobKind::JobSet))?;
                let top = object_key(&above, namespace)?;
                Some((above, top))
            }
            JobKind::JobSet => {
                let on_job =
                    chain.links.iter().filter_map(|link| link.object?.value().pointer("/metadata/labels"));
                let marked = carried(pod, TRAINJOB_STEP).is_some()
                    || on_job.clone().any(|l| l.get(TRAINJOB_STEP).is_some());
                let lifted = made_by(JobKind::TrainJob, &claim.name)?;
                (marked || lifted.0.uid.is_some()).then_some(lifted)
            }
            JobKind::RayCluster => {
                if let Some(object) = self.owners.runs_ray_cluster(namespace, &claim.name) {
                    let kind = if object.kind() == "RayJob" { JobKind::RayJob } else { JobKind::RayService };
                    return made_by(kind, object.name());
                }
                let kind = match carried(pod, "ray.io/originated-from-crd")? {
                    "RayJob" => JobKind::RayJob,
                    "RayService" => JobKind::RayService,
                    _ => return None,
                };
                made_by(kind, carried(pod, "ray.io/originated-from-cr-name")?)
            }
            _ => None,
        }
    }

    /// A custom resource that nobody told firedoor about and that owns pods itself: a job by its name, or
    /// because its pods ask for accelerators. (Databases and brokers own pods, too.)
    fn by_other_owner(&self, chain: &Chain<'_>) -> Option<Claim> {
        let owner = &chain.links.first()?.reference;
        let custom =
            group(&owner.api_version).contains('.') && !group(&owner.api_version).ends_with(".k8s.io");
        let trains = owner.kind.ends_with("Job") || self.accelerated.contains(owner.uid.as_str());
        let kind = JobKind::Other(owner.kind.clone());
        (custom && trains).then(|| Claim::new(kind, &owner.name, Some(&owner.uid), false))
    }

    /// `plain`: whether the pod could be part of a gang that nobody declared.
    fn pod_group(&self, pod: &Pod, plain: bool) -> Option<Claim> {
        GROUPS.iter().find_map(|sign| {
            let name = carried(pod, sign.key)?;
            let object = self.owners.named(&pod.namespace, sign.api, "PodGroup", name);
            let claim = || Claim::new(JobKind::PodGroup, name, object.and_then(Object::uid), false);
            is_gang(sign, name, object, plain).then(claim)
        })
    }
}

fn is_gang(sign: &GroupSign, name: &str, object: Option<&Object>, plain: bool) -> bool {
    let Some(prefix) = sign.automatic.filter(|prefix| name.starts_with(prefix)) else { return true };
    match object.and_then(|object| object.value().pointer("/spec/minMember")?.as_u64()) {
        Some(members) => members > 1,
        None => plain && prefix.is_empty(),
    }
}

fn read(chain: &Chain<'_>, namespace: &str) -> Reading {
    let mut gang: Option<(&Link<'_>, JobKind)> = None;
    let mut edited = None;
    let mut closed = false;
    for link in &chain.links {
        let level = level(link.group(), &link.reference.kind);
        closed = !matches!(level, Level::Gang(_) | Level::Through);
        match level {
            Level::Gang(kind) => gang = Some((link, kind)),
            Level::Steps if gang.is_none() => return Reading::Steps,
            Level::Trial if gang.is_none() => gang = Some((link, JobKind::Trial)),
            Level::Schedule if gang.is_some() => edited = Some(key(link, namespace)),
            Level::Through | Level::Schedule | Level::Steps | Level::Trial => {}
        }
        if closed {
            break;
        }
    }
    let Some((link, kind)) = gang else { return Reading::Nothing };
    let reference = &link.reference;
    let claim = Claim::new(kind, &reference.name, Some(&reference.uid), !chain.contradicted);
    let top = edited.unwrap_or_else(|| key(link, namespace));
    Reading::Gang { claim, top, open: !closed && link.object.is_none() && chain.above == Above::Unknown }
}

fn key(link: &Link<'_>, namespace: &str) -> ObjectKey {
    link.object.map_or_else(
        || ObjectKey {
            kind: link.reference.kind.clone(),
            namespace: Some(namespace.to_owned()),
            name: link.reference.name.clone(),
        },
        Object::key,
    )
}

fn object_key(claim: &Claim, namespace: &str) -> Option<ObjectKey> {
    let (_, kind) = claim.kind.api()?;
    Some(ObjectKey { kind: kind.to_owned(), namespace: Some(namespace.to_owned()), name: claim.name.clone() })
}

fn gang_index(pod: &Pod, kind: &JobKind) -> Option<u32> {
    carried(pod, System::of(kind).gang?)?.parse().ok()
}

//! What each member does, and its number. Enters: the pods of one job; leaves: its members. Must not know how
//! the job was found, nor traffic: where nothing on the pods tells, the role stays open.
//!
//! A role that the job system marks on the pod comes first, then the configured labels, then the rule that
//! most systems share: without a marked coordinator the first member is it.

use crate::facts::Pod;
use crate::object::Object;

use super::claims::Claim;
use super::owners::Owners;
use super::systems::{System, carried};
use super::words::word;
use super::{Grouping, JobId, JobKind, Member, Role};

/// Environment variables with a node's rank (torchrun, launch scripts, JAX), where no label numbers the pods.
const RANK_VARIABLES: [&str; 4] = ["PET_NODE_RANK", "NODE_RANK", "JAX_PROCESS_ID", "RANK"];
const COORDINATOR: &str = "jobset.sigs.k8s.io/coordinator";

/// A member while its role is looked for.
struct Candidate {
    pod: usize,
    role: Option<Role>,
    rank: Option<u32>,
    /// Whether the role is only a configured label's word.
    labelled: bool,
    /// Whether it is the first of its job in its system's count.
    first: bool,
}

/// The members of the job `id`, whose pods are `members`, in their order.
pub(super) fn assign(
    id: &JobId,
    members: &[usize],
    pods: &[Pod],
    claims: &[Option<Claim>],
    owners: &Owners<'_>,
    grouping: &Grouping,
) -> Vec<Member> {
    let found = members.iter().filter_map(|&index| {
        let claim = claims.get(index).and_then(Option::as_ref);
        Some(candidate(index, pods.get(index)?, claim, owners, grouping))
    });
    let mut found: Vec<Candidate> = found.collect();
    ignore_uniform_label(&mut found);

    let object = members.first().and_then(|&index| {
        let claim = claims.get(index).and_then(Option::as_ref)?;
        claim.object(owners, &id.namespace)
    });
    let specified = object.is_some_and(|object| specifies_lead(&id.kind, object));
    if matches!(id.kind, JobKind::PyTorchJob | JobKind::XGBoostJob) {
        rank_behind_master(&mut found, pods, specified);
    }
    let named =
        members.iter().any(|&index| pods.get(index).is_some_and(|pod| carried(pod, COORDINATOR).is_some()));
    if !specified && !named && first_leads(&id.kind, &found) {
        elect_first(&mut found);
    }
    let led = found.iter().any(|member| member.role == Some(Role::Coordinator));
    let lead_unseen =
        System::of(&id.kind).first_leads && found.iter().all(|member| member.rank.is_some_and(|r| r > 0));
    for member in &mut found {
        if member.role.is_none() && member.rank.is_some() && (led || lead_unseen) {
            member.role = Some(Role::Worker);
        }
    }
    found.into_iter().map(|m| Member { pod: m.pod, role: m.role, rank: m.rank }).collect()
}

fn candidate(
    index: usize,
    pod: &Pod,
    claim: Option<&Claim>,
    owners: &Owners<'_>,
    grouping: &Grouping,
) -> Candidate {
    let unmarked = JobKind::Group;
    let kind = claim.map_or(&unmarked, |claim| &claim.kind);
    let system = System::of(kind);
    let marked = match kind {
        JobKind::JobSet | JobKind::TrainJob => jobset_role(pod, system),
        // Pods that are no Ray nodes: the submitter, the cleaner.
        JobKind::RayCluster | JobKind::RayJob | JobKind::RayService => {
            Some(marked(pod, system).unwrap_or(Role::Other))
        }
        _ => marked(pod, system),
    };
    let told = || grouping.role_labels.iter().find_map(|key| word(pod.labels.get(key)?));
    let role = marked.or_else(told);
    let (rank, first) = match kind {
        JobKind::JobSet | JobKind::TrainJob => jobset_rank(pod, kind, owners),
        _ => {
            let rank = rank(pod, system);
            (rank, rank == Some(0))
        }
    };
    Candidate { pod: index, role, rank, labelled: marked.is_none() && role.is_some(), first }
}

fn marked(pod: &Pod, system: &System) -> Option<Role> {
    system.roles.iter().find_map(|(key, read)| read(carried(pod, key)?))
}

fn rank(pod: &Pod, system: &System) -> Option<u32> {
    let marked = system.ranks.iter().find_map(|key| carried(pod, key)?.parse().ok());
    let by_environment = || RANK_VARIABLES.iter().find_map(|name| pod.env.get(*name)?.parse().ok());
    if system.roles.is_empty() { marked.or_else(by_environment) } else { marked }
}

/// All members labelled as the coordinator means that the label is not about members (`component: launcher`
/// on a whole Job).
fn ignore_uniform_label(found: &mut [Candidate]) {
    let leads = |member: &Candidate| member.labelled && member.role == Some(Role::Coordinator);
    if found.len() > 1 && found.iter().all(leads) {
        for member in found {
            member.role = None;
        }
    }
}

/// Whether the job's own specification has a coordinator, seen or not.
fn specifies_lead(kind: &JobKind, object: &Object) -> bool {
    let (replicas, leads): (&str, &[&str]) = match kind {
        JobKind::PyTorchJob => ("/spec/pytorchReplicaSpecs", &["Master"]),
        JobKind::XGBoostJob => ("/spec/xgbReplicaSpecs", &["Master"]),
        JobKind::PaddleJob => ("/spec/paddleReplicaSpecs", &["Master"]),
        JobKind::TFJob => ("/spec/tfReplicaSpecs", &["Chief", "Master"]),
        _ => return false,
    };
    let specs = object.value().pointer(replicas);
    specs.is_some_and(|specs| leads.iter().any(|lead| specs.get(lead).is_some()))
}

/// The Training Operator numbers a PyTorchJob's and an XGBoostJob's workers behind the master, if there is
/// one.
fn rank_behind_master(found: &mut [Candidate], pods: &[Pod], specified: bool) {
    const TYPES: [&str; 3] = ["training.kubeflow.org/replica-type", "replica-type", "pytorch-replica-type"];
    let is_master = |pod: &Pod| {
        let told = TYPES.iter().find_map(|key| carried(pod, key));
        told.is_some_and(|told| told.eq_ignore_ascii_case("master"))
    };
    let masters: Vec<bool> = found.iter().map(|member| pods.get(member.pod).is_some_and(is_master)).collect();
    if !specified && !masters.contains(&true) {
        return;
    }
    for (member, is_master) in found.iter_mut().zip(masters) {
        if !is_master {
            member.rank = member.rank.map(|rank| rank.saturating_add(1));
            member.first = false;
        }
    }
}

/// Pods that a label joined, or a group without marks, may be of any make: the first of them leads only when
/// all are numbered.
fn first_leads(kind: &JobKind, found: &[Candidate]) -> bool {
    let mixed = matches!(kind, JobKind::Group | JobKind::PodGroup | JobKind::Other(_));
    System::of(kind).first_leads && (!mixed || found.iter().all(|member| member.rank.is_some()))
}

fn elect_first(found: &mut [Candidate]) {
    if found.iter().any(|member| member.role == Some(Role::Coordinator)) {
        return;
    }
    let mut firsts = found.iter_mut().filter(|m| m.first && matches!(m.role, None | Some(Role::Worker)));
    if let (Some(first), None) = (firsts.next(), firsts.next()) {
        first.role = Some(Role::Coordinator);
    }
}

/// A JobSet may name its coordinator on all pods: `<jobset>-<replicated job>-<job index>-<pod
/// index>.<domain>`.
fn jobset_role(pod: &Pod, system: &System) -> Option<Role> {
    let role = marked(pod, system);
    let Some(coordinator) = carried(pod, COORDINATOR) else { return role };
    let part = |key: &str| carried(pod, key);
    let host = || {
        Some(format!(
            "{}-{}-{}-{}",
            part("jobset.sigs.k8s.io/jobset-name")?,
            part("jobset.sigs.k8s.io/replicatedjob-name")?,
            part("jobset.sigs.k8s.io/job-index")?,
            part("batch.kubernetes.io/job-completion-index").unwrap_or("0"),
        ))
    };
    if host().as_deref() == coordinator.split('.').next() {
        return Some(Role::Coordinator);
    }
    match role {
        Some(Role::Coordinator) | None => Some(Role::Worker),
        role => role,
    }
}

/// The index within the replicated job, over all of its Jobs; and whether this is the JobSet's first pod.
fn jobset_rank(pod: &Pod, kind: &JobKind, owners: &Owners<'_>) -> (Option<u32>, bool) {
    let number = |key: &str| carried(pod, key)?.parse::<u32>().ok();
    let completion = number("batch.kubernetes.io/job-completion-index");
    let job = number("jobset.sigs.k8s.io/job-index");
    let rank = match (job, completion) {
        (None | Some(0), Some(completion)) => Some(completion),
        (Some(job), Some(completion)) => {
            job_size(pod, owners).map(|size| size.saturating_mul(job).saturating_add(completion))
        }
        (job, None) => job,
    };
    // A TrainJob's initializers come before its training pods; they are set aside by their role.
    let place = match kind {
        JobKind::TrainJob => job,
        _ => number("jobset.sigs.k8s.io/job-global-index").or(job),
    };
    let told = completion.is_some() || place.is_some();
    (rank, told && completion.unwrap_or(0) == 0 && place.unwrap_or(0) == 0)
}

/// How many indexes the pod's batch Job has.
fn job_size(pod: &Pod, owners: &Owners<'_>) -> Option<u32> {
    let name = carried(pod, "batch.kubernetes.io/job-name").or_else(|| carried(pod, "job-name"))?;
    let spec = owners.named(&pod.namespace, "batch", "Job", name)?.value().get("spec")?;
    let size = spec.get("completions").or_else(|| spec.get("parallelism"))?;
    u32::try_from(size.as_u64()?).ok()
}

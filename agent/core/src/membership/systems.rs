//! The marks that job systems and gang schedulers leave on pods: one entry a system. Enters: a pod's labels
//! and annotations; leaves: what they claim. Must not know owners.

use crate::facts::Pod;

use super::words::{closed_word, head_flag, replicated_job, word};
use super::{JobKind, Role};

/// A label or annotation that names the job.
pub(super) struct Sign {
    pub(super) key: &'static str,
    /// Another key, and its value if one is needed, without which this one could mean anything.
    pub(super) with: Option<(&'static str, Option<&'static str>)>,
    pub(super) annotation_only: bool,
}

const fn sign(key: &'static str) -> Sign {
    Sign { key, with: None, annotation_only: false }
}

const fn sign_with(key: &'static str, other: &'static str, value: Option<&'static str>) -> Sign {
    Sign { key, with: Some((other, value)), annotation_only: false }
}

type ReadRole = (&'static str, fn(&str) -> Option<Role>);

/// A job system.
pub(super) struct System {
    /// The job's kind, given the pod and the key that named the job; `None` when the pod does not tell.
    pub(super) kind: fn(&Pod, &str) -> Option<JobKind>,
    /// What names the job, best first.
    pub(super) names: &'static [Sign],
    /// Labels that hold the job's UID.
    pub(super) uids: &'static [&'static str],
    /// Numbers the gangs of one object, where they are several.
    pub(super) gang: Option<&'static str>,
    /// What tells the role, best first.
    pub(super) roles: &'static [ReadRole],
    /// What holds the index, best first.
    pub(super) ranks: &'static [&'static str],
    /// Whether the first member coordinates when no member is marked as the coordinator.
    pub(super) first_leads: bool,
}

const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// Marks the steps of a TrainJob on the Jobs made for it (Kubeflow Trainer v2).
pub(super) const TRAINJOB_STEP: &str = "trainer.kubeflow.org/trainjob-ancestor-step";

/// Kubeflow Training Operator v1, and the operators it replaced (to about 1.5: `group-name=kubeflow.org`).
static TRAINING_OPERATOR: System = System {
    kind: training_kind,
    names: &[
        sign("training.kubeflow.org/job-name"),
        sign("tf-job-name"),
        sign("pytorch-job-name"),
        sign("xgboost-job-name"),
        sign_with("job-name", "group-name", Some("kubeflow.org")),
    ],
    uids: &[],
    gang: None,
    roles: &[
        ("training.kubeflow.org/job-role", word),
        ("training.kubeflow.org/replica-type", closed_word),
        ("job-role", word),
        ("replica-type", closed_word),
        ("tf-replica-type", closed_word),
        ("pytorch-replica-type", closed_word),
    ],
    ranks: &[
        "training.kubeflow.org/replica-index",
        "replica-index",
        "tf-replica-index",
        "pytorch-replica-index",
    ],
    first_leads: true,
};

/// MPI Operator v1 and v2beta1, and the Training Operator's MPIJob. The launcher may be a batch Job's pod.
static MPI_OPERATOR: System = System {
    kind: |_, _| Some(JobKind::MPIJob),
    names: &[sign("mpi-job-name"), sign("mpi_job_name")],
    uids: &[],
    gang: None,
    roles: &[
        ("training.kubeflow.org/job-role", word),
        ("training.kubeflow.org/replica-type", closed_word),
        ("mpi-job-role", closed_word),
        ("mpi_role_type", closed_word),
        ("replica-type", closed_word),
    ],
    ranks: &["training.kubeflow.org/replica-index", "replica-index"],
    first_leads: false,
};

/// JobSet, on its own or made by a TrainJob.
static JOBSET: System = System {
    kind: |_, _| Some(JobKind::JobSet),
    names: &[sign("jobset.sigs.k8s.io/jobset-name")],
    uids: &["jobset.sigs.k8s.io/jobset-uid"],
    gang: None,
    roles: &[("jobset.sigs.k8s.io/replicatedjob-name", replicated_job)],
    ranks: &[COMPLETION_INDEX],
    first_leads: true,
};

/// Volcano.
static VOLCANO: System = System {
    kind: |_, _| Some(JobKind::VolcanoJob),
    names: &[sign("volcano.sh/job-name")],
    uids: &[],
    gang: None,
    roles: &[("volcano.sh/task-spec", word)],
    ranks: &["volcano.sh/task-index"],
    first_leads: true,
};

/// LeaderWorkerSet: each group is a gang.
static LEADER_WORKER_SET: System = System {
    kind: |_, _| Some(JobKind::LeaderWorkerSet),
    names: &[sign("leaderworkerset.sigs.k8s.io/name")],
    uids: &[],
    gang: Some("leaderworkerset.sigs.k8s.io/group-index"),
    roles: &[],
    ranks: &["leaderworkerset.sigs.k8s.io/worker-index"],
    first_leads: true,
};

/// KubeRay.
static RAY: System = System {
    kind: |_, _| Some(JobKind::RayCluster),
    names: &[sign("ray.io/cluster")],
    uids: &[],
    gang: None,
    roles: &[("ray.io/node-type", closed_word)],
    ranks: &[],
    first_leads: false,
};

/// Grove: each replica of a PodCliqueSet is a gang.
static GROVE: System = System {
    kind: |_, _| Some(JobKind::PodCliqueSet),
    names: &[sign_with("app.kubernetes.io/part-of", "grove.io/podclique", None)],
    uids: &[],
    gang: Some("grove.io/podcliqueset-replica-index"),
    roles: &[("grove.io/podclique", word)],
    ranks: &["grove.io/podclique-pod-index"],
    first_leads: true,
};

/// The batch Job. Its older unprefixed label is only believed beside the UID that Kubernetes sets with it.
static BATCH_JOB: System = System {
    kind: |_, _| Some(JobKind::Job),
    names: &[sign("batch.kubernetes.io/job-name"), sign_with("job-name", "controller-uid", None)],
    uids: &["batch.kubernetes.io/controller-uid", "controller-uid"],
    gang: None,
    roles: &[],
    ranks: &[COMPLETION_INDEX],
    first_leads: true,
};

/// Katib, for trials that run pods themselves.
static KATIB: System = System {
    kind: |_, _| Some(JobKind::Trial),
    names: &[sign("katib.kubeflow.org/trial")],
    uids: &[],
    gang: None,
    roles: &[],
    ranks: &[COMPLETION_INDEX],
    first_leads: true,
};

/// SkyPilot. The label may be cut and hashed; the annotation is exact.
static SKYPILOT: System = System {
    kind: |_, _| Some(JobKind::SkyPilotCluster),
    names: &[
        Sign { key: "skypilot-cluster-name", with: None, annotation_only: true },
        sign("skypilot-cluster-name"),
    ],
    uids: &[],
    gang: None,
    roles: &[("skypilot-head-node", head_flag), ("ray-node-type", word)],
    ranks: &[],
    first_leads: false,
};

/// Slurm jobs that Slinky's bridge runs as pods (not its `slurmd` pods, which run many jobs).
static SLURM_BRIDGE: System = System {
    kind: |_, _| Some(JobKind::Other("SlurmJob".to_owned())),
    names: &[sign("scheduler.slinky.slurm.net/slurm-jobid")],
    uids: &[],
    gang: None,
    roles: &[],
    ranks: &[],
    first_leads: false,
};

/// Everything that has no marks of its own: groups, pod groups, other custom resources.
static UNMARKED: System = System {
    kind: |_, _| None,
    names: &[],
    uids: &[],
    gang: None,
    roles: &[],
    ranks: &["kueue.x-k8s.io/pod-group-pod-index", COMPLETION_INDEX, "apps.kubernetes.io/pod-index"],
    first_leads: true,
};

/// In the order in which a pod's labels are asked: what makes others' pods comes before what it makes.
pub(super) static SYSTEMS: [&System; 11] = [
    &TRAINING_OPERATOR,
    &MPI_OPERATOR,
    &JOBSET,
    &VOLCANO,
    &LEADER_WORKER_SET,
    &RAY,
    &GROVE,
    &BATCH_JOB,
    &KATIB,
    &SKYPILOT,
    &SLURM_BRIDGE,
];

impl System {
    /// The system that marks the pods of jobs of this kind.
    pub(super) fn of(kind: &JobKind) -> &'static Self {
        match kind {
            JobKind::PyTorchJob
            | JobKind::TFJob
            | JobKind::XGBoostJob
            | JobKind::PaddleJob
            | JobKind::JAXJob => &TRAINING_OPERATOR,
            JobKind::MPIJob => &MPI_OPERATOR,
            JobKind::TrainJob | JobKind::JobSet => &JOBSET,
            JobKind::VolcanoJob => &VOLCANO,
            JobKind::LeaderWorkerSet => &LEADER_WORKER_SET,
            JobKind::RayCluster | JobKind::RayJob | JobKind::RayService => &RAY,
            JobKind::PodCliqueSet => &GROVE,
            JobKind::Job => &BATCH_JOB,
            JobKind::Trial => &KATIB,
            JobKind::SkyPilotCluster => &SKYPILOT,
            JobKind::PodGroup | JobKind::Group | JobKind::Other(_) => &UNMARKED,
        }
    }

    /// The key and value that name the pod's job in this system.
    pub(super) fn name<'p>(&self, pod: &'p Pod) -> Option<(&'static str, &'p str)> {
        self.names.iter().find_map(|sign| {
            if let Some((other, needed)) = sign.with {
                let value = carried(pod, other)?;
                needed.is_none_or(|needed| needed == value).then_some(())?;
            }
            let name = if sign.annotation_only {
                pod.annotations.get(sign.key).map(String::as_str).filter(|value| !value.is_empty())?
            } else {
                carried(pod, sign.key)?
            };
            Some((sign.key, name))
        })
    }
}

/// A label's value or, without the label, the annotation's. Many systems set both, some either.
pub(super) fn carried<'p>(pod: &'p Pod, key: &str) -> Option<&'p str> {
    let value = pod.labels.get(key).or_else(|| pod.annotations.get(key))?;
    Some(value.as_str()).filter(|value| !value.is_empty())
}

fn training_kind(pod: &Pod, key: &str) -> Option<JobKind> {
    match key {
        "tf-job-name" => return Some(JobKind::TFJob),
        "pytorch-job-name" => return Some(JobKind::PyTorchJob),
        "xgboost-job-name" => return Some(JobKind::XGBoostJob),
        _ => {}
    }
    let names = ["training.kubeflow.org/operator-name", "operator-name", "controller-name"];
    let operator = names.iter().find_map(|name| carried(pod, name));
    let by_operator = operator.and_then(|operator| {
        const OPERATORS: [(&str, JobKind); 6] = [
            ("pytorch", JobKind::PyTorchJob),
            ("tf", JobKind::TFJob),
            ("mpi", JobKind::MPIJob),
            ("xgboost", JobKind::XGBoostJob),
            ("paddle", JobKind::PaddleJob),
            ("jax", JobKind::JAXJob),
        ];
        OPERATORS.into_iter().find(|(prefix, _)| operator.starts_with(prefix)).map(|(_, kind)| kind)
    });
    by_operator.or_else(|| {
        let types = ["training.kubeflow.org/replica-type", "replica-type"];
        match types.iter().find_map(|key| carried(pod, key))?.to_ascii_lowercase().as_str() {
            "ps" | "chief" | "evaluator" => Some(JobKind::TFJob),
            "launcher" => Some(JobKind::MPIJob),
            _ => None,
        }
    })
}

/// A gang scheduler's mark.
pub(super) struct GroupSign {
    pub(super) key: &'static str,
    /// The API group of the PodGroup objects; empty when there are none.
    pub(super) api: &'static str,
    /// Whether the scheduler marks pods by itself, gang or not, when the group's name starts like this.
    pub(super) automatic: Option<&'static str>,
}

/// Kueue, coscheduling (new and older keys), Volcano and KAI. Volcano gives every pod that it schedules a
/// group of its own making, `podgroup-<uid>`; KAI makes all of its groups itself.
pub(super) static GROUPS: [GroupSign; 7] = [
    GroupSign { key: "kueue.x-k8s.io/pod-group-name", api: "", automatic: None },
    GroupSign { key: "scheduling.x-k8s.io/pod-group", api: "scheduling.x-k8s.io", automatic: None },
    GroupSign { key: "pod-group.scheduling.sigs.k8s.io", api: "scheduling.sigs.k8s.io", automatic: None },
    GroupSign {
        key: "pod-group.scheduling.sigs.k8s.io/name",
        api: "scheduling.sigs.k8s.io",
        automatic: None,
    },
    GroupSign {
        key: "scheduling.k8s.io/group-name",
        api: "scheduling.volcano.sh",
        automatic: Some("podgroup-"),
    },
    GroupSign {
        key: "scheduling.volcano.sh/group-name",
        api: "scheduling.volcano.sh",
        automatic: Some("podgroup-"),
    },
    GroupSign { key: "pod-group-name", api: "scheduling.run.ai", automatic: Some("") },
];

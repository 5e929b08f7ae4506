//! The kinds of jobs. Enters: API groups and kinds; leaves: [`JobKind`]. Must not know pods.

use std::cmp::Ordering;

/// What kind of job it is: the Kubernetes kind of its top object where it has one.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum JobKind {
    /// Kubeflow Training Operator's PyTorchJob.
    PyTorchJob,
    /// Kubeflow Training Operator's TFJob.
    TFJob,
    /// MPIJob, of the Training Operator or of the MPI Operator.
    MPIJob,
    /// Kubeflow Training Operator's XGBoostJob.
    XGBoostJob,
    /// Kubeflow Training Operator's PaddleJob.
    PaddleJob,
    /// Kubeflow Training Operator's JAXJob.
    JAXJob,
    /// Kubeflow Trainer's TrainJob.
    TrainJob,
    /// A JobSet of its own, not one that a TrainJob made.
    JobSet,
    /// A batch Job of its own.
    Job,
    /// Volcano's Job, which shares its kind with the batch Job and is told apart here.
    VolcanoJob,
    /// One group of a LeaderWorkerSet.
    LeaderWorkerSet,
    /// A RayCluster of its own, not one that a RayJob or RayService made.
    RayCluster,
    /// A RayJob.
    RayJob,
    /// A RayService.
    RayService,
    /// One replica of Grove's PodCliqueSet.
    PodCliqueSet,
    /// A Katib trial that runs pods itself; one that runs a PyTorchJob or Job is that.
    Trial,
    /// The pods of a SkyPilot cluster.
    SkyPilotCluster,
    /// A gang scheduler's pod group without a better owner.
    PodGroup,
    /// Joined by a configured `groupBy` label.
    Group,
    /// Another custom resource that owns its pods itself, by kind.
    Other(String),
}

impl JobKind {
    /// The name used in reports.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::PyTorchJob => "PyTorchJob",
            Self::TFJob => "TFJob",
            Self::MPIJob => "MPIJob",
            Self::XGBoostJob => "XGBoostJob",
            Self::PaddleJob => "PaddleJob",
            Self::JAXJob => "JAXJob",
            Self::TrainJob => "TrainJob",
            Self::JobSet => "JobSet",
            Self::Job => "Job",
            Self::VolcanoJob => "VolcanoJob",
            Self::LeaderWorkerSet => "LeaderWorkerSet",
            Self::RayCluster => "RayCluster",
            Self::RayJob => "RayJob",
            Self::RayService => "RayService",
            Self::PodCliqueSet => "PodCliqueSet",
            Self::Trial => "Trial",
            Self::SkyPilotCluster => "SkyPilotCluster",
            Self::PodGroup => "PodGroup",
            Self::Group => "Group",
            Self::Other(kind) => kind,
        }
    }

    /// The API group and kind of the object behind it; `None` where there is none or it could be of several
    /// groups.
    #[must_use]
    pub fn api(&self) -> Option<(&'static str, &'static str)> {
        Some(match self {
            Self::PyTorchJob => ("kubeflow.org", "PyTorchJob"),
            Self::TFJob => ("kubeflow.org", "TFJob"),
            Self::MPIJob => ("kubeflow.org", "MPIJob"),
            Self::XGBoostJob => ("kubeflow.org", "XGBoostJob"),
            Self::PaddleJob => ("kubeflow.org", "PaddleJob"),
            Self::JAXJob => ("kubeflow.org", "JAXJob"),
            Self::TrainJob => ("trainer.kubeflow.org", "TrainJob"),
            Self::JobSet => ("jobset.x-k8s.io", "JobSet"),
            Self::Job => ("batch", "Job"),
            Self::VolcanoJob => ("batch.volcano.sh", "Job"),
            Self::LeaderWorkerSet => ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"),
            Self::RayCluster => ("ray.io", "RayCluster"),
            Self::RayJob => ("ray.io", "RayJob"),
            Self::RayService => ("ray.io", "RayService"),
            Self::PodCliqueSet => ("grove.io", "PodCliqueSet"),
            Self::Trial => ("kubeflow.org", "Trial"),
            Self::SkyPilotCluster | Self::PodGroup | Self::Group | Self::Other(_) => return None,
        })
    }
}

/// By the name in reports, so that lists come out as people sort them.
impl Ord for JobKind {
    fn cmp(&self, other: &Self) -> Ordering {
        let foreign = |kind: &Self| matches!(kind, Self::Other(_));
        self.as_str().cmp(other.as_str()).then(foreign(self).cmp(&foreign(other)))
    }
}

impl PartialOrd for JobKind {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// What an owner of this API group and kind means for the pods below it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Level {
    /// Its pods are a gang, unless something above it is one too.
    Gang(JobKind),
    /// A Katib trial: what it runs is the gang, or else its pods are.
    Trial,
    /// Starts gangs by the clock: the gang is below, but this is what a user edits.
    Schedule,
    /// Runs steps or unrelated work: it never joins pods.
    Steps,
    /// Says nothing by itself.
    Through,
}

/// Reads an owner's API group (empty when not told) and kind.
pub(super) fn level(group: &str, kind: &str) -> Level {
    const GANGS: &[JobKind] = &[
        JobKind::PyTorchJob,
        JobKind::TFJob,
        JobKind::MPIJob,
        JobKind::XGBoostJob,
        JobKind::PaddleJob,
        JobKind::JAXJob,
        JobKind::TrainJob,
        JobKind::JobSet,
        JobKind::Job,
        JobKind::VolcanoJob,
        JobKind::LeaderWorkerSet,
        JobKind::RayCluster,
        JobKind::RayJob,
        JobKind::RayService,
        JobKind::PodCliqueSet,
    ];
    let is = |gang: &&JobKind| gang.api().is_some_and(|(g, k)| k == kind && (g == group || group.is_empty()));
    if let Some(gang) = GANGS.iter().find(is) {
        return Level::Gang(gang.clone());
    }
    match (group, kind) {
        ("kubeflow.org", "MXJob") => Level::Gang(JobKind::Other(kind.to_owned())),
        ("kubeflow.org" | "", "Trial") => Level::Trial,
        ("batch" | "", "CronJob") => Level::Schedule,
        // Pipelines; Slurm's node sets, whose pods each run many users' jobs.
        ("argoproj.io" | "", "Workflow" | "CronWorkflow")
        | ("kubeflow.org" | "", "Experiment")
        | ("flyte.lyft.com" | "", "FlyteWorkflow" | "flyteworkflow")
        | ("tekton.dev" | "", "TaskRun" | "PipelineRun")
        | ("slinky.slurm.net" | "", "NodeSet" | "LoginSet") => Level::Steps,
        _ => Level::Through,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_tells_same_kinds_apart() {
        assert_eq!(level("batch", "Job"), Level::Gang(JobKind::Job));
        assert_eq!(level("batch.volcano.sh", "Job"), Level::Gang(JobKind::VolcanoJob));
        assert_eq!(level("", "Job"), Level::Gang(JobKind::Job));
        assert_eq!(level("evil.example", "PyTorchJob"), Level::Through);
        assert_eq!(level("argoproj.io", "Workflow"), Level::Steps);
    }

    #[test]
    fn order_agrees_with_equality() {
        let foreign = JobKind::Other("PyTorchJob".to_owned());
        assert_ne!(foreign.cmp(&JobKind::PyTorchJob), Ordering::Equal);
        assert!(JobKind::JobSet < JobKind::LeaderWorkerSet && JobKind::Group < JobKind::Job);
    }
}

//! The report: what is told to people and programs. Enters: nothing; these are plain values that
//! [`crate::diagnose`] fills. Field names, order and meaning are a contract (report version 1): arrays are
//! always present, `null` is "cannot know", all times are event times.

mod coverage;
mod distance;
mod remedy;

use serde::Serialize;

pub use coverage::{Coverage, ReportWindow, SourceReport};
pub use distance::{CostReport, PriceReport, RttReport};
pub use remedy::{RemedyReport, StepReport, TargetReport};

use crate::ledger::window::PortClass;
use crate::observation::Direction;
use crate::time::Timestamp;

/// A whole report.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// The version of this form: 1.
    pub version: u32,
    /// The time it covers.
    pub window: ReportWindow,
    /// How much of what happened was seen.
    pub coverage: Coverage,
    /// Jobs of two members or more, by namespace, kind and name.
    pub jobs: Vec<JobReport>,
    /// Workloads that talk like a job but are not joined to one.
    pub suggestions: Vec<Suggestion>,
}

/// The answer for a job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobVerdict {
    /// Traffic between its members is denied.
    HardBlock,
    /// Its members talk across zones and wait for it.
    CrossZoneLatency,
    /// Its bytes cross zones and are billed.
    EgressCost,
    /// Not enough was seen to say.
    Inconclusive,
    /// Its members were seen to reach each other, and nothing is wrong.
    Healthy,
}

impl JobVerdict {
    /// The name used in reports and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::HardBlock => "hard-block",
            Self::CrossZoneLatency => "cross-zone-latency",
            Self::EgressCost => "egress-cost",
            Self::Inconclusive => "inconclusive",
            Self::Healthy => "healthy",
        }
    }
}

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Training does not run.
    Critical,
    /// Training is slower or dearer than it could be, or soon will be.
    Warning,
    /// Worth knowing.
    Info,
    /// Nothing is wrong.
    None,
}

/// What is wrong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Symptom {
    /// Traffic that the job needs is denied.
    HardBlock,
    /// Collectives pay for the distance.
    CrossZoneLatency,
    /// Bytes that cross zones are billed.
    EgressCost,
    /// A pod's label claims another zone than its node's.
    ZoneLabelMismatch,
    /// RDMA is there, but bytes take TCP.
    RdmaFallback,
    /// A policy in audit mode would deny traffic that the job needs.
    WouldBlock,
}

impl Symptom {
    /// The name used in reports, metrics and `--fail-on`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::HardBlock => "hard-block",
            Self::CrossZoneLatency => "cross-zone-latency",
            Self::EgressCost => "egress-cost",
            Self::ZoneLabelMismatch => "zone-label-mismatch",
            Self::RdmaFallback => "rdma-fallback",
            Self::WouldBlock => "would-block",
        }
    }

    /// All symptoms.
    pub const ALL: [Symptom; 6] = [
        Self::HardBlock,
        Self::CrossZoneLatency,
        Self::EgressCost,
        Self::ZoneLabelMismatch,
        Self::RdmaFallback,
        Self::WouldBlock,
    ];

    /// Whether an active finding of this symptom means that something is wrong now. A policy in audit mode blocks
    /// nothing yet.
    #[must_use]
    pub const fn fails(self) -> bool {
        !matches!(self, Self::WouldBlock)
    }

    /// How bad it is.
    #[must_use]
    pub const fn severity(self) -> Severity {
        match self {
            Self::HardBlock => Severity::Critical,
            Self::CrossZoneLatency | Self::EgressCost | Self::RdmaFallback | Self::ZoneLabelMismatch => {
                Severity::Warning
            }
            Self::WouldBlock => Severity::Info,
        }
    }
}

/// What became of a finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingState {
    /// It is so now.
    Active,
    /// The job is gone or nobody tries any more, with the problem unresolved.
    Ended,
    /// Success was seen after it.
    Recovered,
}

impl FindingState {
    /// The name used in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Ended => "ended",
            Self::Recovered => "recovered",
        }
    }
}

/// A job.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct JobReport {
    /// Its namespace.
    pub namespace: String,
    /// Its kind, for example `PyTorchJob`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its UID; `null` for groups.
    pub uid: Option<String>,
    /// The answer.
    pub verdict: JobVerdict,
    /// How bad it is.
    pub severity: Severity,
    /// Known zones of its members, sorted.
    pub zones: Vec<String>,
    /// How much of it was seen.
    pub coverage: JobCoverage,
    /// Its pods, by name.
    pub members: Vec<MemberReport>,
    /// Its accelerators.
    pub gpu: GpuReport,
    /// What is wrong, worst first.
    pub findings: Vec<FindingReport>,
    /// What cannot be said about it, and why.
    pub unknowns: Vec<String>,
}

/// How much of a job was seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct JobCoverage {
    /// Events missing on nodes where its pods run.
    pub lost: u64,
    /// Whether nothing is known to be missing there.
    pub complete: bool,
}

/// A job's accelerators.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct GpuReport {
    /// How many its pods ask for.
    pub gpus: u32,
    /// Share of the measured ones that are idle; `null` when none was measured.
    pub idle_ratio: Option<f64>,
    /// What most of the measured ones do.
    pub state: GpuState,
}

/// What an accelerator does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum GpuState {
    /// Waits, before a communicator exists.
    Idle,
    /// Waits inside a collective: a kernel spins, nothing is computed.
    Spinning,
    /// Computes.
    Busy,
    /// Not measured.
    Unknown,
}

/// A pod of a job.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct MemberReport {
    /// Its name.
    pub pod: String,
    /// What it is in the job.
    pub role: &'static str,
    /// Its rank or index; `null` when nothing tells.
    pub rank: Option<u32>,
    /// Its node; `null` when not placed.
    pub node: Option<String>,
    /// Its zone; `null` when unknown.
    pub zone: Option<String>,
    /// Accelerators it asks for.
    pub gpus: u32,
    /// What they do.
    pub gpu_state: GpuState,
}

/// Something that is wrong.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FindingReport {
    /// What.
    pub symptom: Symptom,
    /// What became of it.
    pub state: FindingState,
    /// First time.
    pub since: Option<Timestamp>,
    /// Last time.
    pub last_seen: Option<Timestamp>,
    /// One sentence a person understands.
    pub summary: String,
    /// Why.
    pub cause: Cause,
    /// Between whom, by source and destination.
    pub pairs: Vec<PairReport>,
    /// The numbers behind it.
    pub evidence: Vec<String>,
    /// What would mend it, best first.
    pub remedies: Vec<RemedyReport>,
    /// Round trips; only for [`Symptom::CrossZoneLatency`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt: Option<RttReport>,
    /// What it costs; only for [`Symptom::EgressCost`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<CostReport>,
}

/// What kind of cause.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CauseKind {
    /// No policy allows it.
    Policy,
    /// A policy denies it.
    ExplicitDeny,
    /// Names cannot be looked up.
    DnsBlocked,
    /// The Kubernetes API server cannot be reached.
    ApiBlocked,
    /// Nobody listens, or something answers with a reset.
    Refused,
    /// Nobody answers.
    Unanswered,
    /// The network itself is at fault.
    DatapathFault,
    /// A label claims what is not so.
    Label,
    /// The scheduler put its pods far apart.
    Placement,
    /// Nothing tells.
    Unknown,
}

impl CauseKind {
    /// The name used in reports and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::ExplicitDeny => "explicit-deny",
            Self::DnsBlocked => "dns-blocked",
            Self::ApiBlocked => "api-blocked",
            Self::Refused => "refused",
            Self::Unanswered => "unanswered",
            Self::DatapathFault => "datapath-fault",
            Self::Label => "label",
            Self::Placement => "placement",
            Self::Unknown => "unknown",
        }
    }
}

/// Why something is wrong.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Cause {
    /// What kind of cause.
    pub kind: CauseKind,
    /// The datapath's reason; `null` when there is none.
    pub reason: Option<String>,
    /// The policies behind it.
    pub policies: Vec<PolicyBlame>,
}

/// How a policy stands in the way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyEffect {
    /// It puts an end into default deny and does not allow this.
    DefaultDeny,
    /// It denies this.
    ExplicitDeny,
}

/// How sure it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Certainty {
    /// The source named it.
    Reported,
    /// Evaluating the policies gives it.
    Inferred,
}

impl Certainty {
    /// The name used in reports and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reported => "reported",
            Self::Inferred => "inferred",
        }
    }
}

/// A policy that stands in the way.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct PolicyBlame {
    /// Its kind.
    pub kind: String,
    /// Its namespace; `null` for clusterwide ones.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// In which direction it acts.
    pub direction: Direction,
    /// How.
    pub effect: PolicyEffect,
    /// How sure that is.
    pub certainty: Certainty,
}

/// One end of a pair.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct EndReport {
    /// The pod's namespace; `null` when it is no pod.
    pub namespace: Option<String>,
    /// The pod's name, or an address where no pod is known.
    pub pod: String,
    /// What it is in the job.
    pub role: &'static str,
    /// Its zone; `null` when unknown.
    pub zone: Option<String>,
}

/// Ports of a pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct PortsReport {
    /// Their class.
    pub class: PortClass,
    /// The lowest.
    pub min: u16,
    /// The highest.
    pub max: u16,
    /// How many different ones.
    pub distinct: usize,
}

/// A pair of a finding: one entry for each (source pod, destination pod, port class).
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PairReport {
    /// Who opens.
    pub src: EndReport,
    /// Whom it wants to reach.
    pub dst: EndReport,
    /// Over which protocol.
    pub protocol: &'static str,
    /// On which port; `null` for ephemeral ones and where there are several.
    pub port: Option<u16>,
    /// On which ports.
    pub ports: PortsReport,
    /// What is spoken there.
    pub app: &'static str,
    /// Handshakes that failed; `null` when it cannot be known.
    pub attempts: Option<u64>,
    /// Packets dropped; `null` when it cannot be known.
    pub drops: Option<u64>,
    /// Payload bytes carried, both ways; `null` when it cannot be known.
    pub bytes: Option<u64>,
    /// Median round-trip time in milliseconds; `null` when it cannot be known.
    pub rtt_ms_p50: Option<f64>,
    /// Where it was dropped, seen from the dropping end; `null` when nothing was dropped.
    pub direction: Option<Direction>,
}

/// Workloads that talk like a job but are not joined to one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Suggestion {
    /// Their namespace.
    pub namespace: String,
    /// The label key to add to `jobs.groupBy`.
    pub group_by: String,
    /// The value they share.
    pub value: String,
    /// How many pods it would join.
    pub pods: usize,
    /// One sentence.
    pub summary: String,
}

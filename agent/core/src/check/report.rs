//! What a check says: plain data for outputs. Must not know how it was found out.

use serde::Serialize;

/// The result of a check.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CheckReport {
    /// The version of this form: 1.
    pub version: u32,
    /// All findings in one word.
    pub verdict: CheckVerdict,
    /// The jobs that were looked at, sorted by namespace, kind and name.
    pub jobs: Vec<CheckedJob>,
    /// What was found, the worst first.
    pub findings: Vec<CheckFinding>,
}

/// All findings in one word.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckVerdict {
    /// Something would block a job.
    Blocked,
    /// That something would block cannot be excluded.
    Unknown,
    /// Nothing would block.
    Open,
}

/// How bad a finding is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The job would not run.
    Error,
    /// Whether the job would run cannot be known.
    Unknown,
    /// The job would run, but perhaps slowly, dearly, or not as its labels say.
    Warning,
    /// Worth knowing.
    Note,
}

impl Severity {
    /// The name used in reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Unknown => "unknown",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

/// What kind of finding it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// Members of a job may not open connections to each other.
    TrafficDenied,
    /// Only a part of the ports that collectives choose from is open.
    EphemeralPortsClosed,
    /// A member may not ask the cluster's name service.
    DnsDenied,
    /// Whether members may talk cannot be known.
    TrafficUnknown,
    /// Whether a member may ask the name service cannot be known.
    DnsUnknown,
    /// A TrainJob's runtime is not among the inputs.
    RuntimeMissing,
    /// An input could not be read.
    UnreadableInput,
    /// A policy could not be understood.
    UnreadablePolicy,
    /// Nothing was found that could be checked.
    NothingToCheck,
    /// The inputs hold no network policy.
    NoPolicies,
    /// No node would take some of the pods.
    Unschedulable,
    /// Something makes the scheduler put the members into different zones.
    ZoneSplitForced,
    /// The scheduler may put the members into different zones.
    ZoneSplit,
    /// A pod label claims a zone that the placement does not give.
    ZoneLabel,
    /// Where pods may run cannot be known.
    PlacementUnknown,
    /// A spread constraint that changes nothing.
    SpreadWithoutEffect,
    /// Workloads were taken for one job because of a label.
    GroupedByLabel,
    /// A policy does more than open ports.
    PolicyNote,
}

impl Rule {
    /// All rules.
    pub const ALL: [Self; 18] = [
        Self::TrafficDenied,
        Self::EphemeralPortsClosed,
        Self::DnsDenied,
        Self::TrafficUnknown,
        Self::DnsUnknown,
        Self::RuntimeMissing,
        Self::UnreadableInput,
        Self::UnreadablePolicy,
        Self::NothingToCheck,
        Self::NoPolicies,
        Self::Unschedulable,
        Self::ZoneSplitForced,
        Self::ZoneSplit,
        Self::ZoneLabel,
        Self::PlacementUnknown,
        Self::SpreadWithoutEffect,
        Self::GroupedByLabel,
        Self::PolicyNote,
    ];

    /// The rule's id, as in JSON and SARIF.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TrafficDenied => "traffic-denied",
            Self::EphemeralPortsClosed => "ephemeral-ports-closed",
            Self::DnsDenied => "dns-denied",
            Self::TrafficUnknown => "traffic-unknown",
            Self::DnsUnknown => "dns-unknown",
            Self::RuntimeMissing => "runtime-missing",
            Self::UnreadableInput => "unreadable-input",
            Self::UnreadablePolicy => "unreadable-policy",
            Self::NothingToCheck => "nothing-to-check",
            Self::NoPolicies => "no-policies",
            Self::Unschedulable => "unschedulable",
            Self::ZoneSplitForced => "zone-split-forced",
            Self::ZoneSplit => "zone-split",
            Self::ZoneLabel => "zone-label",
            Self::PlacementUnknown => "placement-unknown",
            Self::SpreadWithoutEffect => "spread-without-effect",
            Self::GroupedByLabel => "grouped-by-label",
            Self::PolicyNote => "policy-note",
        }
    }

    /// What the rule looks for, in one sentence.
    #[must_use]
    pub fn description(self) -> &'static str {
        match self {
            Self::TrafficDenied => "Network policies deny connections between members of one job.",
            Self::EphemeralPortsClosed => {
                "Network policies open only some of the ports that collectives choose from."
            }
            Self::DnsDenied => "Network policies deny a job's pods the cluster's name service.",
            Self::TrafficUnknown => "Whether members of one job may talk cannot be known.",
            Self::DnsUnknown => "Whether a job's pods may ask the cluster's name service cannot be known.",
            Self::RuntimeMissing => {
                "The runtime that holds a TrainJob's pod templates is not among the inputs."
            }
            Self::UnreadableInput => "An input could not be read.",
            Self::UnreadablePolicy => "A network policy could not be understood.",
            Self::NothingToCheck => "The inputs hold no job with more than one pod.",
            Self::NoPolicies => "The inputs hold no network policy that a job could be judged by.",
            Self::Unschedulable => "No known node would take some of a job's pods.",
            Self::ZoneSplitForced => {
                "A constraint makes the scheduler put a job's pods into different zones."
            }
            Self::ZoneSplit => "The scheduler may put a job's pods into different zones.",
            Self::ZoneLabel => "A pod label claims a zone that the placement does not guarantee.",
            Self::PlacementUnknown => "Where a job's pods may run cannot be known.",
            Self::SpreadWithoutEffect => "A topology spread constraint changes nothing.",
            Self::GroupedByLabel => "Workloads were taken for one job because they share a label.",
            Self::PolicyNote => "A network policy does more than open ports.",
        }
    }
}

/// An object of the inputs.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct ObjectAt {
    /// Its kind.
    pub kind: String,
    /// Its namespace; `null` for cluster-scoped ones.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// The file it stands in; `null` when it came from a capture.
    pub file: Option<String>,
    /// The first line of its document, from 1.
    pub line: Option<u64>,
}

/// Names a job.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct JobName {
    /// Its namespace.
    pub namespace: String,
    /// Its kind; `Group` for workloads that a label joins.
    pub kind: String,
    /// Its name.
    pub name: String,
}

/// A job that was looked at.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CheckedJob {
    /// Which one.
    #[serde(flatten)]
    pub name: JobName,
    /// How many pods it would have.
    pub members: usize,
    /// The pod templates they come from.
    pub templates: Vec<CheckedTemplate>,
}

/// A pod template of a job.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CheckedTemplate {
    /// The object that has it.
    pub object: ObjectAt,
    /// What the object calls it; empty where it has only one.
    pub template: String,
    /// What its pods do: `unknown` when nothing tells.
    pub role: &'static str,
    /// How many pods of the job come from it.
    pub pods: usize,
    /// The zones they may land in, sorted; `null` when it cannot be known.
    pub zones: Option<Vec<String>>,
}

/// One end of pairs that were asked about.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct EndAt {
    /// The object they come from, for example `Job/workers`.
    pub object: String,
    /// Its template; empty where it has only one.
    pub template: String,
    /// What the pods do.
    pub role: &'static str,
}

/// Pairs of pods that cannot talk, or may not be able to.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CheckedPair {
    /// Who opens.
    pub src: EndAt,
    /// Whom it wants to reach.
    pub dst: EndAt,
    /// How many ordered pairs of pods this is about.
    pub pairs: u64,
    /// Over which protocol.
    pub protocol: &'static str,
    /// On which ports: `9999` or `32768-60999`.
    pub ports: String,
    /// The part of them that is open nevertheless.
    pub open_ports: Vec<String>,
    /// Where they are closed: `egress`, `ingress`.
    pub directions: Vec<&'static str>,
}

/// A policy that has part in a finding.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct CheckedPolicy {
    /// The policy.
    #[serde(flatten)]
    pub object: ObjectAt,
    /// In which direction it acts, or `null` when it is about labels.
    pub direction: Option<&'static str>,
    /// How: `default-deny`, `deny`, `selects-label`.
    pub effect: &'static str,
}

/// An allow that is missing.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct MissingReport {
    /// `egress` or `ingress`, seen from `subject`.
    pub direction: &'static str,
    /// Whom the rule has to select.
    pub subject: String,
    /// Whom it has to allow.
    pub peer: String,
    /// Over which protocol.
    pub protocol: &'static str,
    /// On which ports.
    pub ports: Vec<String>,
}

/// Something that was found.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CheckFinding {
    /// What kind of finding.
    pub rule: Rule,
    /// How bad.
    pub severity: Severity,
    /// The job it is about; `null` when about none.
    pub job: Option<JobName>,
    /// The object to look at first.
    pub object: ObjectAt,
    /// One sentence.
    pub summary: String,
    /// Which pods cannot talk.
    pub pairs: Vec<CheckedPair>,
    /// The policies behind it.
    pub policies: Vec<CheckedPolicy>,
    /// What would open the doors.
    pub missing: Vec<MissingReport>,
    /// Why it is so.
    pub evidence: Vec<String>,
    /// What to do.
    pub advice: Vec<String>,
}

impl CheckFinding {
    /// A finding with nothing but a sentence.
    #[must_use]
    pub fn new(
        rule: Rule,
        severity: Severity,
        job: Option<JobName>,
        object: ObjectAt,
        summary: String,
    ) -> Self {
        Self {
            rule,
            severity,
            job,
            object,
            summary,
            pairs: Vec::new(),
            policies: Vec::new(),
            missing: Vec::new(),
            evidence: Vec::new(),
            advice: Vec::new(),
        }
    }
}

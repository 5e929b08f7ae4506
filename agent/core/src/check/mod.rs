//! Before a job runs: would its pods be able to talk, and where may they land. Enters: objects from manifests and from a
//! capture; leaves: a [`CheckReport`]. Must not know flows, files or output.
//!
//! Each job's pods are predicted from its templates, and judged with the labels they have there. What cannot be
//! known is said, with the reason.

mod dns;
mod gangs;
mod placement;
mod report;
mod split;
mod talk;
#[cfg(test)]
mod tests;
mod wording;
mod world;
mod zone_claim;

use crate::membership::Grouping;
use crate::object::Object;
use crate::policy;

pub use report::{
    CheckFinding, CheckReport, CheckVerdict, CheckedJob, CheckedPair, CheckedPolicy, CheckedTemplate, EndAt,
    JobName, MissingReport, ObjectAt, Rule, Severity,
};

use gangs::Gangs;
use world::World;

/// Where an object of a manifest stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    /// The file, as the user named it.
    pub file: String,
    /// The first line of its document, from 1.
    pub line: u64,
}

/// An object to check, or one to know when checking others.
#[derive(Clone, PartialEq, Debug)]
pub struct Source {
    /// The object.
    pub object: Object,
    /// Where it stands in the manifests; `None` for what the cluster already has.
    pub origin: Option<Origin>,
}

/// What a check depends on besides the objects.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    /// How pods are joined to jobs.
    pub grouping: Grouping,
    /// How policies are enforced.
    pub policy: policy::Settings,
    /// The namespace of manifests that name none.
    pub namespace: String,
}

impl Default for Options {
    fn default() -> Self {
        let namespace = "default".to_owned();
        Self { grouping: Grouping::default(), policy: policy::Settings::default(), namespace }
    }
}

/// Checks the jobs of the manifests; where these hold no workload (policies alone, say), those of the cluster.
#[must_use]
pub fn check(sources: &[Source], options: &Options) -> CheckReport {
    let world = World::new(sources, options);
    let gangs = Gangs::find(&world, &options.grouping);
    let mut findings = gangs.findings(&world);
    findings.extend(world.findings());
    let mut jobs = Vec::new();
    for gang in gangs.gangs() {
        findings.extend(talk::findings(&world, &gang));
        findings.extend(dns::findings(&world, &gang));
        let places = placement::places(&world, &gang);
        findings.extend(split::findings(&world, &gang, &places));
        findings.extend(zone_claim::findings(&world, &gang, &places));
        jobs.push(gang.report(&world, &places));
    }
    if jobs.is_empty() && findings.iter().all(|finding| finding.severity != Severity::Unknown) {
        let summary = "no job with more than one pod in the inputs: nothing was checked".to_owned();
        findings.push(CheckFinding::new(Rule::NothingToCheck, Severity::Unknown, None, nobody(), summary));
    }
    if !jobs.is_empty() && !world.has_policies() {
        let summary = "no network policy in the inputs: the jobs were judged as if the cluster had none";
        let mut finding =
            CheckFinding::new(Rule::NoPolicies, Severity::Note, None, nobody(), summary.to_owned());
        finding
            .advice
            .push("Give the cluster's policies as well, in the files or with --capture.".to_owned());
        findings.push(finding);
    }
    CheckReport::new(jobs, findings)
}

/// For a finding about the inputs as a whole.
fn nobody() -> ObjectAt {
    ObjectAt { kind: String::new(), namespace: None, name: String::new(), file: None, line: None }
}

impl CheckReport {
    /// The report of these findings, sorted, with their verdict.
    #[must_use]
    pub fn new(jobs: Vec<CheckedJob>, mut findings: Vec<CheckFinding>) -> Self {
        findings.sort_by(|a, b| {
            let key = |f: &CheckFinding| (f.severity, f.job.clone(), f.rule, f.object.clone());
            key(a).cmp(&key(b)).then_with(|| a.summary.cmp(&b.summary))
        });
        findings.dedup();
        let verdict = match findings.first().map(|finding| finding.severity) {
            Some(Severity::Error) => CheckVerdict::Blocked,
            Some(Severity::Unknown) => CheckVerdict::Unknown,
            Some(Severity::Warning | Severity::Note) | None => CheckVerdict::Open,
        };
        Self { version: 1, verdict, jobs, findings }
    }
}

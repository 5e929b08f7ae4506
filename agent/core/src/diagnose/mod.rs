//! What is wrong with each job, and how sure that is. Enters: the history of all pairs, the inventory, readings
//! of accelerators; leaves: the report. The rules live one a file; this one joins them. Must not know sources.

mod attribution;
mod context;
mod distance;
mod egress_cost;
mod hard_block;
mod health;
mod latency;
mod mend;
mod roles;
mod sentence;
mod untried;
mod would_block;
mod zone_label;

use std::collections::BTreeMap;

use crate::gpu::{Readings, prevailing};
use crate::history::{History, PairHistory, Stories};
use crate::inventory::{Inventory, JobIndex, PodId};
use crate::ledger::{Observers, PairKey, Totals};
use crate::observation::{Capabilities, SourceKind};
use crate::pipeline::{Blind, SourceState};
use crate::policy::PolicySet;
use crate::report::{
    Coverage, FindingReport, FindingState, GpuReport, GpuState, JobReport, JobVerdict, MemberReport, Report,
    ReportWindow, Severity, SourceReport, Symptom,
};
use crate::settings::Settings;
use crate::time::Timestamp;

use context::JobContext;

/// Everything a diagnosis is made from.
pub struct Evidence<'a> {
    /// The cluster.
    pub inventory: &'a Inventory,
    /// The network policies.
    pub policies: &'a PolicySet,
    /// The story of all pairs, or of those of which more is told than `closed` does.
    pub history: &'a History,
    /// The stories of the others.
    pub closed: Option<&'a Stories>,
    /// The nodes that reported.
    pub observers: &'a Observers,
    /// What became of everything that entered.
    pub totals: Totals,
    /// What accelerators do.
    pub readings: &'a Readings,
    /// Nodes a relay could not reach.
    pub blind: &'a Blind,
    /// Whether each kind of source is up, where somebody told.
    pub sources: &'a BTreeMap<SourceKind, SourceState>,
    /// The time, where it passes by a clock and not by events alone.
    pub passed: Option<Timestamp>,
    /// Thresholds.
    pub settings: &'a Settings,
}

impl<'a> Evidence<'a> {
    /// The "now" of the report: the last event of all, or what a clock says.
    pub(crate) fn now(&self) -> Option<Timestamp> {
        self.history.span.map(|span| span.last).max(self.passed)
    }

    /// The pairs in which a pod calls, sorted.
    fn pairs_of(&self, src: PodId) -> Vec<(PairKey, &'a PairHistory)> {
        let mut pairs: Vec<_> = self.history.pairs.of(src).collect();
        if let Some(closed) = self.closed {
            if pairs.is_empty() {
                return closed.of(src).collect();
            }
            pairs.extend(closed.of(src).filter(|(key, _)| self.history.pairs.get(key).is_none()));
            pairs.sort_unstable_by_key(|(key, _)| *key);
        }
        pairs
    }

    /// Sources that are down, and since when.
    fn down(&self) -> impl Iterator<Item = (SourceKind, Timestamp)> {
        self.sources.iter().filter(|(_, state)| !state.up).map(|(source, state)| (*source, state.since))
    }

    /// What the sources that are up, or told something, can see together.
    fn capabilities(&self) -> Capabilities {
        let up = self.sources.iter().filter(|(_, state)| state.up).map(|(source, _)| source.capabilities());
        up.fold(self.history.capabilities(), Capabilities::union)
    }
}

/// Makes the report.
#[must_use]
pub fn diagnose(evidence: &Evidence<'_>) -> Report {
    let jobs = evidence.inventory.jobs().filter(|(index, _)| evidence.inventory.has_company(*index));
    report_of(evidence, jobs.map(|(index, _)| job_report(evidence, index)).collect())
}

/// Makes the report of jobs that are judged.
pub(crate) fn report_of(evidence: &Evidence<'_>, mut jobs: Vec<JobReport>) -> Report {
    jobs.sort_by(|a, b| {
        (&a.namespace, &a.kind, &a.name, &a.uid).cmp(&(&b.namespace, &b.kind, &b.name, &b.uid))
    });
    let span = evidence.history.span;
    Report {
        version: 1,
        window: ReportWindow {
            start: span.map(|s| s.first),
            end: span.map(|s| s.last),
            as_of: evidence.passed,
        },
        coverage: coverage(evidence),
        jobs,
        suggestions: Vec::new(),
    }
}

fn coverage(evidence: &Evidence<'_>) -> Coverage {
    let totals = evidence.totals;
    let history = evidence.history;
    let lost = history.observers().fold(0_u64, |sum, (_, o)| sum.saturating_add(o.lost));
    Coverage {
        sources: history.sources().iter().map(|s| s.as_str()).collect(),
        capabilities: evidence.capabilities(),
        received: totals.received,
        attributed: totals.attributed,
        not_a_job: totals.not_a_job,
        rejected: totals.rejected,
        late: totals.late,
        duplicate: totals.duplicate,
        lost,
        complete: lost == 0
            && totals.late == 0
            && totals.overflow == 0
            && evidence.blind.is_empty()
            && evidence.down().next().is_none(),
        unresolved: totals.unresolved,
        ambiguous: totals.ambiguous,
        far_future: totals.far_future,
        blind_nodes: evidence.blind.names(),
        overflow: totals.overflow,
        watched: evidence.sources.iter().map(|(source, state)| watched(*source, *state)).collect(),
    }
}

fn watched(source: SourceKind, state: SourceState) -> SourceReport {
    SourceReport { source: source.as_str(), up: state.up, since: state.since }
}

/// Judges a job.
pub(crate) fn job_report(evidence: &Evidence<'_>, index: JobIndex) -> JobReport {
    let context = JobContext::new(evidence, index);
    let mut findings = hard_block::findings(&context);
    findings.extend(would_block::findings(&context));
    findings.extend(latency::finding(&context));
    findings.extend(egress_cost::finding(&context));
    findings.extend(zone_label::findings(&context));
    findings.sort_by_key(|f| (f.symptom.severity(), f.symptom, f.state, f.cause.kind, f.since));
    let (verdict, unknowns) = verdict(&context, &findings);
    let worst = findings.iter().filter(|f| unresolved(f)).map(|f| f.symptom.severity()).min();
    let id = &context.job.id;
    JobReport {
        namespace: id.namespace.clone(),
        kind: id.kind.as_str().to_owned(),
        name: id.name.clone(),
        uid: id.uid.clone(),
        verdict,
        severity: worst.unwrap_or(Severity::None),
        zones: context.zones(),
        coverage: context.coverage(),
        members: members(&context),
        gpu: gpu(&context),
        findings,
        unknowns,
    }
}

/// Whether a finding tells of something that is wrong still, or was when the job ended.
fn unresolved(finding: &FindingReport) -> bool {
    finding.state != FindingState::Recovered
}

/// The worst finding decides; without one, the job is healthy only if everything needed to say so was seen.
fn verdict(context: &JobContext<'_>, findings: &[FindingReport]) -> (JobVerdict, Vec<String>) {
    let worst = findings.iter().filter(|f| unresolved(f)).filter_map(|f| match f.symptom {
        Symptom::HardBlock => Some(JobVerdict::HardBlock),
        Symptom::CrossZoneLatency => Some(JobVerdict::CrossZoneLatency),
        Symptom::EgressCost => Some(JobVerdict::EgressCost),
        Symptom::ZoneLabelMismatch | Symptom::RdmaFallback | Symptom::WouldBlock => None,
    });
    let worst = worst.min();
    let unknowns = health::unknowns(context, worst);
    let verdict = match worst {
        Some(verdict) => verdict,
        None if unknowns.is_empty() => JobVerdict::Healthy,
        None => JobVerdict::Inconclusive,
    };
    (verdict, unknowns)
}

fn members(context: &JobContext<'_>) -> Vec<MemberReport> {
    let mut members: Vec<MemberReport> = context.members().map(|id| member(context, id)).collect();
    members.sort_by(|a, b| (&a.pod, &a.node).cmp(&(&b.pod, &b.node)));
    members
}

fn member(context: &JobContext<'_>, id: PodId) -> MemberReport {
    let pod = context.evidence.inventory.pod(id);
    MemberReport {
        pod: pod.name.clone(),
        role: context.role(id),
        rank: context.rank(id),
        node: pod.node.clone(),
        zone: context.zone_name(id),
        gpus: pod.gpus,
        gpu_state: prevailing(context.evidence.readings.states(&pod.namespace, &pod.name)),
    }
}

fn gpu(context: &JobContext<'_>) -> GpuReport {
    let inventory = context.evidence.inventory;
    let gpus = context.members().map(|id| inventory.pod(id).gpus).fold(0, u32::saturating_add);
    let states = context.members().flat_map(|id| {
        let pod = inventory.pod(id);
        context.evidence.readings.states(&pod.namespace, &pod.name)
    });
    let known: Vec<GpuState> = states.filter(|state| *state != GpuState::Unknown).collect();
    let idle = known.iter().filter(|state| **state == GpuState::Idle).count();
    #[allow(clippy::cast_precision_loss)] // counts of devices are far below 2^52
    let idle_ratio =
        (!known.is_empty()).then(|| (1000.0 * idle as f64 / known.len() as f64).round() / 1000.0);
    GpuReport { gpus, idle_ratio, state: prevailing(known) }
}

//! From what the board shows to families of series. Of several jobs of one name (a job that was submitted again) the
//! youngest is told: the trouble of its forerunner is over.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use firedoor_core::ledger::RttSketch;
use firedoor_core::observation::{Capabilities, Direction};
use firedoor_core::report::{FindingState, GpuState, JobReport, MemberReport, Symptom};
use firedoor_core::tally::ZonePair;
use firedoor_core::time::Timestamp;

use super::encode::{Count, Family, Histogram, Labels, Series};
use crate::agent::board::{Shown, SourceShown};

/// Upper bounds of the buckets of round-trip times, in seconds: within a rack to around the world.
const BOUNDS: [f64; 13] = [5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 1.0];
/// A label whose value cannot be known.
const UNKNOWN: &str = "unknown";

/// All families.
pub(super) fn of(shown: &Shown) -> Vec<Family> {
    let mut families = Vec::new();
    if let Some(report) = &shown.report {
        let told = |job: &&JobReport| {
            let key = (job.namespace.as_str(), job.kind.as_str(), job.name.as_str(), job.uid.as_deref());
            !shown
                .superseded
                .iter()
                .any(|id| key == (&id.namespace, id.kind.as_str(), &id.name, id.uid.as_deref()))
        };
        let jobs: Vec<&JobReport> = report.jobs.iter().filter(told).collect();
        families.extend(of_reports(&jobs, report.coverage.capabilities, &shown.nodes));
    }
    families.extend(of_tallies(shown));
    families.extend(of_agent(shown));
    families
}

fn job_labels(namespace: &str, job: &str, kind: &str) -> Labels {
    vec![("namespace", namespace.to_owned()), ("job", job.to_owned()), ("kind", kind.to_owned())]
}

fn with<const N: usize>(mut labels: Labels, more: [(&'static str, &str); N]) -> Labels {
    labels.extend(more.map(|(key, value)| (key, value.to_owned())));
    labels
}

fn gauges(name: &'static str, help: &'static str, series: Vec<(Labels, f64)>) -> Family {
    Family { name, help, series: Series::Gauges(series) }
}

/// What the report says of each job.
fn of_reports(jobs: &[&JobReport], sees: Capabilities, nodes: &BTreeSet<String>) -> Vec<Family> {
    let labels = |job: &JobReport| job_labels(&job.namespace, &job.name, &job.kind);
    let each = |of: &dyn Fn(&JobReport) -> Vec<(Labels, f64)>| jobs.iter().flat_map(|job| of(job)).collect();
    vec![
        gauges(
            "firedoor_job_symptom",
            "Whether a symptom is there, 1 or 0, by cause. Views of several agents: take the maximum.",
            each(&|job| {
                let symptoms = symptoms(job, sees);
                symptoms
                    .into_iter()
                    .map(|(symptom, cause, there)| {
                        let labels = with(labels(job), [("symptom", symptom.as_str()), ("cause", cause)]);
                        (labels, f64::from(u8::from(there)))
                    })
                    .collect()
            }),
        ),
        gauges(
            "firedoor_job_observable",
            "Whether a symptom could be seen from here, 1 or 0. Views of several agents: take the maximum.",
            each(&|job| {
                let of = |symptom: Symptom| f64::from(u8::from(is_observable(symptom, sees)));
                let one =
                    |symptom: Symptom| (with(labels(job), [("symptom", symptom.as_str())]), of(symptom));
                Symptom::ALL.map(one).to_vec()
            }),
        ),
        gauges(
            "firedoor_job_info",
            "1 for each job, with its verdict. Views of several agents.",
            each(&|job| vec![(with(labels(job), [("verdict", job.verdict.as_str())]), 1.0)]),
        ),
        gauges(
            "firedoor_job_blocking_policy",
            "1 for each policy that stands in the way of a job. Views of several agents: take the maximum.",
            each(&|job| {
                blocking(job).into_iter().map(|blamed| (with_all(labels(job), blamed), 1.0)).collect()
            }),
        ),
        gauges(
            "firedoor_job_gpus",
            "Accelerators of a job on the agent's node, by what they do. Agents' values add up.",
            each(&|job| {
                gpus(job, nodes)
                    .into_iter()
                    .map(|(state, count)| (with(labels(job), [("state", state)]), f64::from(count)))
                    .collect()
            }),
        ),
        gauges(
            "firedoor_job_zones",
            "Zones in which pods of a job are known to run. Views of several agents: take the maximum.",
            each(&|job| {
                let zones = u32::try_from(job.zones.len()).unwrap_or(u32::MAX);
                vec![(labels(job), f64::from(zones))]
            }),
        ),
    ]
}

fn with_all(mut labels: Labels, more: Labels) -> Labels {
    labels.extend(more);
    labels
}

/// Each symptom by cause, and whether it is there. One that ended unresolved is there until it ages out: the job that
/// gave up was not mended. One that could be seen and was not has no cause.
fn symptoms(job: &JobReport, sees: Capabilities) -> Vec<(Symptom, &'static str, bool)> {
    let mut told: BTreeMap<(Symptom, &'static str), bool> = BTreeMap::new();
    for finding in &job.findings {
        let there = told.entry((finding.symptom, finding.cause.kind.as_str())).or_default();
        *there |= finding.state != FindingState::Recovered;
    }
    for symptom in Symptom::ALL {
        let found = told.keys().any(|(known, _)| *known == symptom);
        if !found && is_observable(symptom, sees) {
            told.insert((symptom, ""), false);
        }
    }
    told.into_iter().map(|((symptom, cause), there)| (symptom, cause, there)).collect()
}

/// Whether a symptom could be seen at all.
fn is_observable(symptom: Symptom, sees: Capabilities) -> bool {
    match symptom {
        Symptom::HardBlock | Symptom::WouldBlock => sees.drops,
        Symptom::CrossZoneLatency => sees.rtt && sees.bytes,
        Symptom::EgressCost => sees.bytes,
        Symptom::ZoneLabelMismatch => true,
        // Nothing is known of the hardware yet.
        Symptom::RdmaFallback => false,
    }
}

fn blocking(job: &JobReport) -> BTreeSet<Labels> {
    let there = job
        .findings
        .iter()
        .filter(|finding| finding.state != FindingState::Recovered && finding.symptom == Symptom::HardBlock);
    let policies = there.flat_map(|finding| &finding.cause.policies);
    policies
        .map(|policy| {
            vec![
                ("policy_kind", policy.kind.clone()),
                ("policy_namespace", policy.namespace.clone().unwrap_or_default()),
                ("policy", policy.name.clone()),
                ("direction", policy.direction.as_str().to_owned()),
                ("certainty", policy.certainty.as_str().to_owned()),
            ]
        })
        .collect()
}

/// What the job's accelerators on these nodes do.
fn gpus(job: &JobReport, nodes: &BTreeSet<String>) -> BTreeMap<&'static str, u32> {
    let mut states = BTreeMap::new();
    let here = |member: &&MemberReport| member.node.as_ref().is_some_and(|node| nodes.contains(node));
    for member in job.members.iter().filter(|member| member.gpus > 0).filter(here) {
        let state = match member.gpu_state {
            GpuState::Idle => "idle",
            GpuState::Spinning => "spinning",
            GpuState::Busy => "busy",
            GpuState::Unknown => UNKNOWN,
        };
        let count: &mut u32 = states.entry(state).or_default();
        *count = count.saturating_add(member.gpus);
    }
    states
}

/// What was counted for each job since the agent started.
fn of_tallies(shown: &Shown) -> Vec<Family> {
    let mut dropped = Vec::new();
    let mut bytes = Vec::new();
    let mut dollars = Vec::new();
    let mut retransmitted = Vec::new();
    let mut round_trips = Vec::new();
    let current = shown.jobs.iter().filter(|(id, _)| !shown.superseded.contains(id));
    for (id, tally) in current {
        let job = job_labels(&id.namespace, &id.name, id.kind.as_str());
        for (key, count) in &tally.dropped {
            let reason = key.reason.to_string();
            let labels = [
                ("reason", reason.as_str()),
                ("direction", key.direction.map_or(UNKNOWN, Direction::as_str)),
                ("src_zone", key.src_zone.as_deref().unwrap_or(UNKNOWN)),
                ("dst_zone", key.dst_zone.as_deref().unwrap_or(UNKNOWN)),
                ("src_role", key.src_role),
                ("dst_role", key.dst_role),
            ];
            dropped.push((with(job.clone(), labels), Count::Whole(*count)));
        }
        for (ZonePair { src, dst }, way) in &tally.ways {
            let zones = [
                ("src_zone", src.as_deref().unwrap_or(UNKNOWN)),
                ("dst_zone", dst.as_deref().unwrap_or(UNKNOWN)),
            ];
            let labels = || with(job.clone(), zones);
            bytes.push((labels(), Count::Whole(way.bytes)));
            retransmitted.push((labels(), Count::Whole(way.retransmitted)));
            if let Some(usd) = way.usd {
                dollars.push((labels(), Count::Dollars(usd)));
            }
            if way.rtt.samples() > 0 {
                round_trips.push((labels(), histogram(&way.rtt)));
            }
        }
    }
    let counters = |name, help, series| Family { name, help, series: Series::Counters(series) };
    vec![
        counters(
            "firedoor_job_dropped_connections",
            "Connection attempts of a job that were dropped. Values of several agents add up: take the sum.",
            dropped,
        ),
        counters(
            "firedoor_job_network_bytes",
            "Payload bytes sent between pods of a job, counted at the sender. Values of several agents add up: take the sum.",
            bytes,
        ),
        counters(
            "firedoor_job_cross_zone_cost_dollars",
            "US dollars that bytes between zones cost by the price table. Values of several agents add up: take the sum.",
            dollars,
        ),
        counters(
            "firedoor_job_retransmitted_segments",
            "Segments sent again between pods of a job, counted at the sender. Values of several agents add up: take the sum.",
            retransmitted,
        ),
        Family {
            name: "firedoor_job_rtt_seconds",
            help: "Round-trip times between pods of a job, as their senders measured. Values of several agents add up: take the sum.",
            series: Series::Histograms(round_trips),
        },
    ]
}

/// A sketch in fixed buckets; its sum is that of the middles of the sketch's own, narrow ones.
#[expect(clippy::cast_precision_loss, reason = "counts of samples are far below 2^53")]
pub(super) fn histogram(sketch: &RttSketch) -> Histogram {
    let bounds = BOUNDS.into_iter().chain([f64::INFINITY]);
    let mut histogram = Histogram { sum: 0.0, buckets: bounds.map(|bound| (bound, 0)).collect() };
    for (middle, count) in sketch.iter() {
        let seconds = Duration::as_secs_f64(&middle);
        histogram.sum += seconds * count as f64;
        if let Some((_, of)) = histogram.buckets.iter_mut().find(|(bound, _)| seconds <= *bound) {
            *of += count;
        }
    }
    histogram
}

/// How the agent itself fares.
#[expect(clippy::cast_precision_loss, reason = "seconds since 1970 with microseconds fit into 53 bits")]
fn of_agent(shown: &Shown) -> Vec<Family> {
    let source = |source: &SourceShown| vec![("source", source.source.as_str().to_owned())];
    let seconds = |at: Timestamp| at.nanos() as f64 / 1e9;
    let sources = &shown.sources;
    let mut outcomes = Vec::new();
    let mut lost = Vec::new();
    for shown in sources {
        let account = &shown.account;
        let totals = [
            ("attributed", account.totals.attributed),
            ("not_a_job", account.totals.not_a_job),
            ("rejected", account.totals.rejected),
            ("late", account.totals.late),
            ("duplicate", account.totals.duplicate),
        ];
        outcomes.extend(
            totals.map(|(outcome, count)| (with(source(shown), [("outcome", outcome)]), Count::Whole(count))),
        );
        lost.extend(
            account.lost.iter().map(|(cause, count)| {
                (with(source(shown), [("cause", cause.as_ref())]), Count::Whole(*count))
            }),
        );
    }
    let last = sources.iter().filter_map(|of| Some((source(of), seconds(of.account.last_event?))));
    let expiry = sources.iter().filter_map(|of| Some((Labels::new(), seconds(of.certificate_expiry?))));
    let version = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
    vec![
        gauges(
            "firedoor_source_up",
            "Whether a source tells, 1 or 0.",
            sources.iter().map(|of| (source(of), f64::from(u8::from(of.up)))).collect(),
        ),
        Family {
            name: "firedoor_source_observations",
            help: "What sources told, by what became of it.",
            series: Series::Counters(outcomes),
        },
        Family {
            name: "firedoor_source_lost",
            help: "Events that sources lost, by where.",
            series: Series::Counters(lost),
        },
        gauges(
            "firedoor_source_last_event_timestamp_seconds",
            "When a source's newest event happened.",
            last.collect(),
        ),
        gauges(
            "firedoor_inventory_ready",
            "Whether the cluster is known, 1 or 0.",
            vec![(Labels::new(), f64::from(u8::from(shown.inventory.ready)))],
        ),
        gauges(
            "firedoor_hubble_certificate_expiry_timestamp_seconds",
            "When the client's certificate for Hubble ends to be valid.",
            expiry.collect(),
        ),
        gauges("firedoor_build_info", "1, with the version.", vec![(version, 1.0)]),
    ]
}

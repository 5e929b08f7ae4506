//! Members that exchange their data across zones and wait for the distance: round trips across zones are clearly longer
//! than within one, by ratio and in absolute terms, and enough of the job's bytes take them. Without a measurement
//! within a zone there is nothing to compare with, and only a long round trip counts.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::history::CarriedHistory;
use crate::inventory::PodId;
use crate::ledger::RttSketch;
use crate::report::{Cause, CauseKind, FindingReport, FindingState, RttReport, Symptom};

use super::context::JobContext;
use super::distance::{
    Apart, Carriage, Share, amount, apart, crossing_pairs, is_crossing, milliseconds, ratio, state,
};
use super::{health, mend, sentence};

/// What round trips within a zone take, to compare with.
enum Baseline {
    /// Between nodes of one zone.
    Zone(RttSketch),
    /// Only within a node: less than any network takes.
    Node(RttSketch),
    /// Not measured often enough.
    Missing,
}

impl Baseline {
    fn of(carriage: &Carriage, enough: u64) -> Self {
        let zone = carriage.share(|apart| apart == Apart::SameZone).rtt;
        if zone.samples() >= enough {
            return Self::Zone(zone);
        }
        let node = carriage.share(|apart| apart == Apart::SameNode).rtt;
        if node.samples() >= enough { Self::Node(node) } else { Self::Missing }
    }

    fn sketch(&self) -> Option<&RttSketch> {
        match self {
            Self::Zone(sketch) | Self::Node(sketch) => Some(sketch),
            Self::Missing => None,
        }
    }
}

/// What the measurements say.
enum Judgement {
    /// Distance costs time.
    Slow,
    /// It does not, or too little crosses for it to matter.
    Fine,
    /// Data crosses zones, but round trips were measured too seldom.
    TooFew {
        /// How often.
        samples: u64,
    },
}

struct Judged {
    judgement: Judgement,
    carriage: Carriage,
    across: Share,
    baseline: Baseline,
}

fn judge(context: &JobContext<'_>, chosen: &dyn Fn(&CarriedHistory) -> crate::ledger::Traffic) -> Judged {
    let settings = context.evidence.settings;
    let carriage = Carriage::of(context, chosen);
    let across = carriage.across();
    let baseline = Baseline::of(&carriage, settings.latency_samples);
    let matters = across.bytes >= settings.latency_bytes.max(1)
        && ratio(across.bytes, carriage.all().bytes) >= settings.latency_crossing;
    let samples = across.rtt.samples();
    let judgement = match across.rtt.quantile(500) {
        _ if !matters => Judgement::Fine,
        Some(middle) if samples >= settings.latency_samples => {
            if slow(context, middle, &baseline) {
                Judgement::Slow
            } else {
                Judgement::Fine
            }
        }
        _ => Judgement::TooFew { samples },
    };
    Judged { judgement, carriage, across, baseline }
}

fn slow(context: &JobContext<'_>, across: Duration, baseline: &Baseline) -> bool {
    let settings = context.evidence.settings;
    let clearly = |within: Option<Duration>| {
        within.is_some_and(|within| {
            across >= within.mul_f64(settings.latency_ratio.clamp(0.0, 1e6))
                && across.saturating_sub(within) >= settings.latency_difference
        })
    };
    match baseline {
        Baseline::Zone(sketch) => clearly(sketch.quantile(500)),
        Baseline::Node(sketch) => clearly(sketch.quantile(500)) && across >= settings.latency_alone,
        Baseline::Missing => across >= settings.latency_alone,
    }
}

/// Judged over everything, and over the last while: what is so now decides, where enough was measured.
fn both(context: &JobContext<'_>) -> (Judged, Judged) {
    let since = context.now().minus(context.evidence.settings.recent);
    let half = context.evidence.history.half;
    (judge(context, &CarriedHistory::total), judge(context, &|carried| carried.since(since, half)))
}

/// The finding, if distance costs the job time.
pub(super) fn finding(context: &JobContext<'_>) -> Option<FindingReport> {
    let (total, recent) = both(context);
    let busy = recent.carriage.all().bytes >= context.evidence.settings.latency_bytes;
    let chosen = match (&total.judgement, &recent.judgement) {
        (Judgement::Slow, Judgement::Fine) if busy => {
            return Some(report(context, &total, FindingState::Recovered));
        }
        (Judgement::Slow, _) => total,
        (_, Judgement::Slow) => recent,
        _ => return None,
    };
    let state = state(context, chosen.across.span);
    Some(report(context, &chosen, state))
}

/// Why latency cannot be excluded although bytes and round trips were measured.
pub(super) fn unknown(context: &JobContext<'_>) -> Option<String> {
    let (total, recent) = both(context);
    match (&total.judgement, &recent.judgement) {
        (Judgement::TooFew { samples }, Judgement::Fine | Judgement::TooFew { .. }) => Some(format!(
            "{} crossed zones, but round trips across were measured only {samples} times: too few to say what the distance costs",
            amount(total.across.bytes)
        )),
        _ => None,
    }
}

fn report(context: &JobContext<'_>, judged: &Judged, state: FindingState) -> FindingReport {
    let quantile = |sketch: &RttSketch, per_mille| sketch.quantile(per_mille).map(milliseconds);
    let whole = judged.carriage.all().bytes;
    let rtt = RttReport {
        within_zone_ms_p50: judged.baseline.sketch().and_then(|sketch| quantile(sketch, 500)),
        cross_zone_ms_p50: quantile(&judged.across.rtt, 500),
        cross_zone_ms_p99: quantile(&judged.across.rtt, 990),
        crossing_bytes_ratio: Some(ratio(judged.across.bytes, whole)),
    };
    let (pairs, unlisted) = crossing_pairs(context);
    FindingReport {
        symptom: Symptom::CrossZoneLatency,
        state,
        since: judged.across.span.map(|span| span.first),
        last_seen: judged.across.span.map(|span| span.last),
        summary: summary(context, &rtt, state),
        cause: Cause { kind: CauseKind::Placement, reason: None, policies: Vec::new() },
        pairs,
        evidence: evidence(context, judged, &rtt, state).into_iter().chain(unlisted).collect(),
        remedies: mend::remedies(context, Symptom::CrossZoneLatency, state, CauseKind::Placement, &[]),
        rtt: Some(rtt),
        cost: None,
    }
}

/// Members that talk across zones.
pub(super) fn who_crosses(context: &JobContext<'_>, carriage: &Carriage) -> BTreeSet<PodId> {
    let crossing =
        carriage.by_ends().filter(|(src, dst, bytes)| *bytes > 0 && is_crossing(apart(context, *src, *dst)));
    crossing.flat_map(|(src, dst, _)| [src, dst]).collect()
}

fn summary(context: &JobContext<'_>, rtt: &RttReport, state: FindingState) -> String {
    let pods = who_crosses(context, &Carriage::of(context, &CarriedHistory::total));
    let pods = sentence::ends(context, &pods);
    let across = rtt.cross_zone_ms_p50.unwrap_or(0.0);
    let share = 100.0 * rtt.crossing_bytes_ratio.unwrap_or(0.0);
    let (verb, takes) = match state {
        FindingState::Active => ("exchange", "takes"),
        FindingState::Ended | FindingState::Recovered => ("exchanged", "took"),
    };
    let compared = match rtt.within_zone_ms_p50 {
        Some(within) if within > 0.0 => format!(", {:.1} times as long as within a zone", across / within),
        _ => String::new(),
    };
    format!(
        "{pods} {verb} {share:.0} % of the job's bytes across zones, where a round trip {takes} {across:.2} ms{compared}"
    )
}

fn evidence(context: &JobContext<'_>, judged: &Judged, rtt: &RttReport, state: FindingState) -> Vec<String> {
    let (middle, worst) = (rtt.cross_zone_ms_p50.unwrap_or(0.0), rtt.cross_zone_ms_p99.unwrap_or(0.0));
    let mut evidence = vec![format!(
        "a round trip across zones takes {middle:.3} ms at the median, {worst:.3} ms at the 99th percentile ({} measured)",
        judged.across.rtt.samples()
    )];
    let within = rtt.within_zone_ms_p50.unwrap_or(0.0);
    evidence.push(match &judged.baseline {
        Baseline::Zone(sketch) => {
            format!("within a zone it takes {within:.3} ms at the median ({} measured)", sketch.samples())
        }
        Baseline::Node(sketch) => format!(
            "within a node it takes {within:.3} ms at the median ({} measured); no two nodes of one zone were measured",
            sketch.samples()
        ),
        Baseline::Missing => {
            "no pair within a zone was measured often enough to compare with: the round trip is long by itself".to_owned()
        }
    });
    let seconds = judged.across.span.map_or(0, |span| span.last.since(span.first).as_secs());
    let whole = judged.carriage.all().bytes;
    evidence.push(format!(
        "{} of {} between its pods crossed zones in {seconds} s",
        amount(judged.across.bytes),
        amount(whole)
    ));
    if judged.across.retransmitted > 0 {
        evidence.push(format!("{} segments were sent again across zones", judged.across.retransmitted));
    }
    if state == FindingState::Active {
        evidence.extend(health::gpu_evidence(context));
    }
    evidence.extend(health::incomplete(context));
    evidence
}

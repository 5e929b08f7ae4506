//! Comparing the report with the truth. Enters: reports, recordings, and what workload, breakers and `ss` counted
//! themselves; leaves: checks with their numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::agent::grace;
use super::cast::Cast;
use super::findings::{Finding, Pair, drops, findings, verdicts};
use super::member::truth::Truth;
use super::recording::{Ends, Recording};
use super::scenario::{AgentStart, Breach, How, Scenario};
use super::ss::Seen;
use super::verdict::Notes;
use super::wire::Counts;

/// What was counted beside firedoor.
#[derive(Default)]
pub(super) struct Evidence {
    /// What each member did in the end.
    pub(super) truths: BTreeMap<String, Truth>,
    /// What each member had done when the agent was about to start late, and when it had started.
    pub(super) before_agent: BTreeMap<String, Truth>,
    pub(super) after_agent: BTreeMap<String, Truth>,
    /// Packets that a packet filter took, by source pod.
    pub(super) taken: BTreeMap<String, u64>,
    pub(super) sockets: BTreeMap<Ends, Seen>,
    pub(super) wire: Counts,
    pub(super) capture: Option<PathBuf>,
}

/// A block is to be shown within this time beyond its grace.
const PROMPT_SECONDS: u64 = 5;
/// Of bytes and round-trip times.
const BYTES_PERCENT: u64 = 1;
const RTT_RATIO: f64 = 0.05;

/// The workload is at work, and its sums are right.
pub(super) fn workload(truths: &BTreeMap<String, Truth>, jobs: &[&str], cast: &Cast, notes: &mut Notes) {
    let members = || jobs.iter().flat_map(|job| cast.job(job)).map(|pod| truths.get(&pod.name));
    let right = members().all(|t| t.is_some_and(|t| t.steps > 0 && t.wrong_sums == 0 && t.error.is_none()));
    let steps: Vec<u64> = members().flatten().map(|truth| truth.steps).collect();
    let bytes: u64 = members().flatten().flat_map(|t| &t.connections).map(|connection| connection.sent).sum();
    notes.check(
        "workload at work, sums right",
        right,
        format!("{}: steps {steps:?}, {bytes} bytes sent", jobs.join(", ")),
    );
}

/// The ways that are to be closed are, and no others.
pub(super) fn closed(truths: &BTreeMap<String, Truth>, breach: &Breach, cast: &Cast, notes: &mut Notes) {
    let mut right = true;
    let mut told = Vec::new();
    for pod in cast.job(breach.job).filter(|pod| pod.rank > 0) {
        let connects = truths.get(&pod.name).and_then(|truth| truth.connects.get(&pod.master));
        let (ok, failed) = connects.map_or((0, BTreeMap::new()), |c| (c.succeeded, c.failed.clone()));
        right &= if breach.from.contains(&pod.rank) { ok == 0 && !failed.is_empty() } else { ok == 1 };
        told.push(format!("{}: {ok} ok, failed {failed:?}", pod.name));
    }
    notes.check("the workload is blocked as planned", right, told.join("; "));
}

/// Whether the report has all that is expected, in this state, with its pairs.
pub(super) fn shows_block(report: &Value, scenario: &Scenario, cast: &Cast, state: &str) -> bool {
    let found = findings(report);
    scenario.expect.iter().all(|expected| {
        found.iter().any(|finding| {
            finding.job == expected.job
                && finding.symptom == expected.symptom
                && finding.state == state
                && wanted_pairs(scenario, cast).is_none_or(|pairs| pairs.is_subset(&names(finding)))
        })
    })
}

/// The pairs that a breach closes; `None` when nothing is closed.
fn wanted_pairs(scenario: &Scenario, cast: &Cast) -> Option<BTreeSet<(String, String)>> {
    let breach = scenario.breach.as_ref()?;
    let master = cast.member(breach.job, 0)?;
    let sources = breach.from.iter().filter_map(|rank| cast.member(breach.job, *rank));
    Some(sources.map(|src| (src.name.clone(), master.name.clone())).collect())
}

fn names(finding: &Finding) -> BTreeSet<(String, String)> {
    finding.pairs.iter().map(|pair| (pair.src.clone(), pair.dst.clone())).collect()
}

/// A block, as it was first shown in full: everything about it is right, and it was prompt.
pub(super) fn block(
    report: &Value,
    at: Timestamp,
    truths: &BTreeMap<String, Truth>,
    scenario: &Scenario,
    cast: &Cast,
    notes: &mut Notes,
) {
    let Some(breach) = &scenario.breach else { return };
    let found = findings(report);
    complete(&found, scenario, cast, "active", notes);
    // The last of the sources to begin decides when the block could be shown in full.
    let firsts = breach.from.iter().filter_map(|rank| {
        let pod = cast.member(breach.job, *rank)?;
        truths.get(&pod.name)?.connects.get(&pod.master)?.first.parse::<Timestamp>().ok()
    });
    let Some(first) = firsts.max() else { return };
    let grace = match breach.how {
        How::NftDrop | How::TcShot => grace::DENIED,
        How::WireSwallows => grace::UNANSWERED,
        How::NoListener => grace::REFUSED,
        How::NftReject => grace::DENIED.max(grace::REFUSED),
    };
    let took = at.duration_since(first);
    let limit = SignedDuration::from_secs(i64::try_from(grace + PROMPT_SECONDS).unwrap_or(i64::MAX));
    notes.check(
        "block shown promptly",
        took <= limit,
        format!("{:.1} s after the first SYN; grace {grace} s + {PROMPT_SECONDS} s", took.as_secs_f64()),
    );
}

/// The right findings, and nothing else.
fn complete(found: &BTreeSet<Finding>, scenario: &Scenario, cast: &Cast, state: &str, notes: &mut Notes) {
    let mut wrong = Vec::new();
    for expected in scenario.expect {
        let of_job = |f: &&Finding| f.job == expected.job && f.symptom == expected.symptom;
        let matching: Vec<&Finding> = found.iter().filter(of_job).collect();
        let [finding] = matching.as_slice() else {
            wrong.push(format!("{} findings {} of {}", matching.len(), expected.symptom, expected.job));
            continue;
        };
        if finding.state != state {
            wrong.push(format!("{} is {}, not {state}", expected.symptom, finding.state));
        }
        let cause = finding.cause.as_deref().unwrap_or_default();
        if !expected.causes.is_empty() && !expected.causes.contains(&cause) {
            wrong.push(format!("the cause is `{cause}`, not one of {:?}", expected.causes));
        }
        if expected.symptom == "hard-block" {
            let wanted = wanted_pairs(scenario, cast).unwrap_or_default();
            if names(finding) != wanted {
                wrong.push(format!("the pairs are {:?}, not {wanted:?}", names(finding)));
            }
        }
        wrong.extend(
            finding.pairs.iter().filter(|pair| !zones_right(pair, cast)).map(|p| format!("zones of {p:?}")),
        );
    }
    let known = |f: &Finding| {
        scenario.expect.iter().any(|e| e.job == f.job && e.symptom == f.symptom)
            || scenario.allow.contains(&f.symptom.as_str())
    };
    let extra: BTreeSet<Finding> = found.iter().filter(|finding| !known(finding)).cloned().collect();
    if !extra.is_empty() {
        wrong.push(format!("besides: {}", shown(&extra)));
    }
    let name = format!("right job, pairs, zones, cause, and nothing else ({state})");
    let detail = if wrong.is_empty() { shown(found) } else { wrong.join("; ") };
    notes.check(&name, wrong.is_empty(), detail);
}

fn zones_right(pair: &Pair, cast: &Cast) -> bool {
    let zone = |name: &str| {
        let pod = cast.pods.iter().find(|pod| pod.name == name)?;
        cast.zones.get(pod.zone)
    };
    zone(&pair.src).is_some_and(|zone| *zone == pair.src_zone)
        && zone(&pair.dst).is_some_and(|zone| *zone == pair.dst_zone)
}

/// Findings for people.
pub(super) fn shown(found: &BTreeSet<Finding>) -> String {
    if found.is_empty() {
        return "no finding".to_owned();
    }
    let one = |f: &Finding| {
        let pairs: Vec<String> = f
            .pairs
            .iter()
            .map(|pair| {
                let port = pair.port.map_or_else(|| "*".to_owned(), |port| port.to_string());
                format!("{} -> {}:{port}", pair.src, pair.dst)
            })
            .collect();
        let cause = f.cause.as_deref().unwrap_or("no cause");
        format!("{} of {} {} ({cause}; {})", f.symptom, f.job, f.state, pairs.join(", "))
    };
    found.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// The last report against the scenario, and against the replay of the recording.
pub(super) fn report(live: &Value, replayed: &Value, scenario: &Scenario, cast: &Cast, notes: &mut Notes) {
    let found = findings(live);
    let state = if scenario.breach.is_some() { "recovered" } else { "active" };
    complete(&found, scenario, cast, state, notes);
    let jobs: BTreeSet<String> = cast.jobs().into_iter().map(str::to_owned).collect();
    let listed: BTreeSet<String> = verdicts(live).into_keys().collect();
    notes.check("the report lists the jobs", jobs == listed, format!("{:?}", verdicts(live)));
    let again = findings(replayed);
    let same = found == again && verdicts(live) == verdicts(replayed);
    let detail = if same {
        format!("{} findings, verdicts {:?}", found.len(), verdicts(live).values())
    } else {
        format!(
            "live: {} {:?}; replayed: {} {:?}",
            shown(&found),
            verdicts(live),
            shown(&again),
            verdicts(replayed)
        )
    };
    notes.check("the replay says the same", same, detail);
}

/// Whether the recording has all bytes that the members count, as nearly as is asked.
pub(super) fn bytes_are_there(capture: &Path, evidence: &Evidence) -> bool {
    Recording::read(capture).is_ok_and(|recording| {
        by_pair(&evidence.truths).iter().all(|(pair, truth)| {
            // What a late agent has not seen is never there: then the wait ends with its limit.
            recorded(&recording, &evidence.truths).get(pair).is_some_and(|seen| close(*seen, *truth))
        })
    })
}

/// Everything that is compared with the recording, and with the other witnesses.
pub(super) fn end(scenario: &Scenario, cast: &Cast, evidence: &Evidence, notes: &mut Notes) {
    let wire = &evidence.wire;
    notes.check("the wire was never full", wire.overflow == 0, format!("{wire:?}"));
    if scenario.wire.loss_percent > 0 {
        let all = wire.lost + wire.forwarded;
        let percent = wire.lost as f64 * 100.0 / all.max(1) as f64;
        let wanted = f64::from(scenario.wire.loss_percent);
        let detail =
            format!("{} of {all} frames, {percent:.2} %; {} with payload", wire.lost, wire.lost_payload);
        notes.check("the wire lost its share", (percent - wanted).abs() < wanted / 2.0, detail);
        let again: u64 = evidence.sockets.values().map(|seen| seen.retransmitted).sum();
        notes.check("TCP repaired the loss", again > 0, format!("{again} segments sent again, says ss"));
    }
    if scenario.wire.delay_ms > 0 {
        let across = crossing(evidence, cast);
        let wanted = 2.0 * scenario.wire.delay_ms as f64;
        let near = |seen: &&Seen| (seen.rtt_ms - wanted).abs() < wanted * 0.25;
        let told: Vec<String> = across.iter().map(|(_, seen)| format!("{:.1}", seen.rtt_ms)).collect();
        let right = !across.is_empty() && across.iter().map(|(_, seen)| *seen).all(|seen| near(&seen));
        notes.check("the delay is there", right, format!("{} ms across, says ss", told.join(", ")));
    }
    let Some(capture) = &evidence.capture else { return };
    match Recording::read(capture) {
        Ok(recording) => against(&recording, scenario, cast, evidence, notes),
        Err(error) => notes.check("the recording can be read", false, format!("{error:#}")),
    }
}

fn against(recording: &Recording, scenario: &Scenario, cast: &Cast, evidence: &Evidence, notes: &mut Notes) {
    let detail = format!("{} connections, {} damaged lines", recording.sockets.len(), recording.damaged);
    notes.check("the recording can be read", recording.damaged == 0, detail);
    bytes(recording, scenario, evidence, notes);
    whose(recording, cast, evidence, notes);
    if !evidence.taken.is_empty() {
        dropped(recording, cast, evidence, notes);
    }
    if scenario.wire.delay_ms > 0 {
        round_trips(recording, cast, evidence, notes);
    }
    if scenario.wire.loss_percent > 0 {
        // The recording goes on after `ss` looked: it can only have more.
        let (mut fewer, mut told) = (0, (0, 0));
        for (ends, seen) in &evidence.sockets {
            let again = recording.sockets.get(ends).map_or(0, |socket| socket.retransmitted);
            fewer += u64::from(again < seen.retransmitted);
            told = (told.0 + again, told.1 + seen.retransmitted);
        }
        let detail = format!("{} recorded, {} in ss before the end", told.0, told.1);
        notes.check("retransmissions agree with ss", fewer == 0 && told.0 > 0, detail);
    }
}

type ByPair = BTreeMap<(String, usize), u64>;

/// Bytes sent by (pod, peer's rank).
fn by_pair(truths: &BTreeMap<String, Truth>) -> ByPair {
    let mut sums = ByPair::new();
    for truth in truths.values() {
        for connection in &truth.connections {
            *sums.entry((truth.pod.clone(), connection.peer_rank)).or_default() += connection.sent;
        }
    }
    sums
}

/// The same, as recorded for the same connections.
fn recorded(recording: &Recording, truths: &BTreeMap<String, Truth>) -> ByPair {
    let mut sums = ByPair::new();
    for truth in truths.values() {
        for connection in &truth.connections {
            let socket = recording.sockets.get(&(connection.local, connection.remote));
            let sum = sums.entry((truth.pod.clone(), connection.peer_rank)).or_default();
            *sum += socket.map_or(0, |socket| socket.sent);
        }
    }
    sums
}

fn close(seen: u64, truth: u64) -> bool {
    seen.abs_diff(truth) * 100 <= truth * BYTES_PERCENT
}

fn bytes(recording: &Recording, scenario: &Scenario, evidence: &Evidence, notes: &mut Notes) {
    let (truth, seen) = (by_pair(&evidence.truths), recorded(recording, &evidence.truths));
    let (before, after) = (by_pair(&evidence.before_agent), by_pair(&evidence.after_agent));
    let mut wrong = Vec::new();
    let mut worst = 0.0_f64;
    for (pair, truth) in &truth {
        let seen = seen.get(pair).copied().unwrap_or_default();
        let gone = |at: &ByPair| at.get(pair).copied().unwrap_or_default();
        // A late agent counts from some moment between these two.
        let (most, least) = (truth - gone(&before).min(*truth), truth - gone(&after).min(*truth));
        let outside = if seen > most { seen - most } else { least.saturating_sub(seen) };
        worst = worst.max(outside as f64 * 100.0 / most.max(1) as f64);
        if outside * 100 > most * BYTES_PERCENT {
            wrong.push(format!("{} to rank {}: {seen} seen, {least} to {most} sent", pair.0, pair.1));
        }
    }
    let late = if scenario.agent == AgentStart::Late { ", since the agent started" } else { "" };
    let detail = format!("{} pairs, worst {worst:.3} % off{late}", truth.len());
    let right = wrong.is_empty() && !truth.is_empty();
    notes.check("bytes per pair", right, if wrong.is_empty() { detail } else { wrong.join("; ") });
}

/// Each connection belongs to the pod that had it.
fn whose(recording: &Recording, cast: &Cast, evidence: &Evidence, notes: &mut Notes) {
    let (mut right, mut wrong) = (0, Vec::new());
    for truth in evidence.truths.values() {
        let uid = cast.pods.iter().find(|pod| pod.name == truth.pod).map(|pod| pod.uid.as_str());
        for connection in &truth.connections {
            let socket = recording.sockets.get(&(connection.local, connection.remote));
            match socket.and_then(|socket| socket.uid.as_deref()) {
                found if found.is_some() && found == uid => right += 1,
                found => wrong.push(format!("{} {} is {found:?}", truth.pod, connection.local)),
            }
        }
    }
    let detail = if wrong.is_empty() { format!("{right} connections") } else { wrong.join("; ") };
    notes.check("sockets belong to their pods", wrong.is_empty() && right > 0, detail);
}

fn dropped(recording: &Recording, cast: &Cast, evidence: &Evidence, notes: &mut Notes) {
    let (mut told, mut missing) = (Vec::new(), 0);
    let mut more = false;
    for (name, taken) in &evidence.taken {
        let Some(pod) = cast.pods.iter().find(|pod| pod.name == *name) else { continue };
        let of_pair =
            recording.drops.iter().filter(|((src, dst), _)| *src == pod.ip && *dst == pod.master.ip());
        let seen: u64 = of_pair.map(|(_, packets)| packets).sum();
        told.push(format!("{name}: {seen} seen, {taken} taken"));
        more |= seen > *taken;
        missing += taken.saturating_sub(seen);
    }
    let detail = format!("{}; {} lost", told.join("; "), recording.lost);
    notes.check("drops agree with the packet filter", !more && missing <= recording.lost, detail);
}

/// The report's count of a block against the filter's, once both stand still.
pub(super) fn reported_drops(report: &Value, scenario: &Scenario, evidence: &Evidence, notes: &mut Notes) {
    let Some(breach) = scenario.breach.as_ref().filter(|_| !evidence.taken.is_empty()) else { return };
    let counted = drops(report, breach.job);
    let detail = format!("report {counted:?}, filter {:?}", evidence.taken);
    notes.check("the report counts these drops", counted == evidence.taken, detail);
}

/// Live sockets of the mesh between zones.
fn crossing<'e>(evidence: &'e Evidence, cast: &Cast) -> Vec<(&'e Ends, &'e Seen)> {
    let zone = |ip| cast.pods.iter().find(|pod| pod.ip == ip).map(|pod| pod.zone);
    let busy = |ends: &Ends| ends.0.port().min(ends.1.port()) > 30_000;
    let across = |ends: &Ends| zone(ends.0.ip()) != zone(ends.1.ip());
    evidence.sockets.iter().filter(|(ends, _)| across(ends) && busy(ends)).collect()
}

/// `ss` looked once; the agent samples all the time. The round-trip time that `ss` saw lies between the samples
/// around that moment, or near them.
fn round_trips(recording: &Recording, cast: &Cast, evidence: &Evidence, notes: &mut Notes) {
    let (mut right, mut wrong) = (0, Vec::new());
    for (ends, seen) in crossing(evidence, cast) {
        let samples = recording.sockets.get(ends).map(|socket| socket.rtt.as_slice()).unwrap_or_default();
        let split = samples.partition_point(|(at, _)| *at <= seen.at);
        let around = samples.get(split.saturating_sub(1)..(split + 1).min(samples.len())).unwrap_or_default();
        let ms = || around.iter().map(|(_, us)| *us as f64 / 1_000.0);
        let (low, high) = (ms().fold(f64::INFINITY, f64::min), ms().fold(0.0, f64::max));
        if seen.rtt_ms >= low * (1.0 - RTT_RATIO) && seen.rtt_ms <= high * (1.0 + RTT_RATIO) {
            right += 1;
        } else {
            wrong.push(format!(
                "{} to {}: ss {:.2} ms, recorded {low:.2} to {high:.2}",
                ends.0, ends.1, seen.rtt_ms
            ));
        }
    }
    let detail = if wrong.is_empty() { format!("{right} sockets within 5 %") } else { wrong.join("; ") };
    notes.check("round-trip times agree with ss", wrong.is_empty() && right > 0, detail);
}

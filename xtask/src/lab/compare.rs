//! Comparing the report with the truth. Enters: reports, and what was broken; leaves: checks with what was found.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::agent::grace;
use super::cast::Cast;
use super::findings::{Finding, Pair, drops, findings, verdicts};
use super::member::truth::Truth;
use super::scenario::{Breach, How, Scenario};
use super::verdict::Notes;
use super::witness::Evidence;

/// A block is to be shown within this time beyond its grace.
const PROMPT_SECONDS: u64 = 5;

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
        // Once the policy is deleted, a replay cannot know it any more: then "unknown" is the honest answer.
        let forgotten = state == "recovered" && cause == "unknown";
        if !expected.causes.is_empty() && !expected.causes.contains(&cause) && !forgotten {
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
    let quiet = |job: &str| scenario.allow.is_empty() && scenario.expect.iter().all(|e| e.job != job);
    let unwell: Vec<String> = verdicts(live)
        .into_iter()
        .filter(|(job, verdict)| quiet(job) && verdict != "healthy")
        .map(|(job, verdict)| format!("{job} is {verdict}"))
        .collect();
    notes.check("jobs without a fault are healthy", unwell.is_empty(), unwell.join(", "));
    let (received, accounted) = accounts(live);
    let detail = format!("{received} received, {accounted} accounted for");
    notes.check("everything received is accounted for", received == accounted && received > 0, detail);
    let again = findings(replayed);
    // The agent saw the policy that was deleted when the block was mended; the recording's objects are those of the end.
    let told = |findings: &BTreeSet<Finding>| -> BTreeSet<Finding> {
        let without_cause = |finding: &Finding| Finding { cause: None, ..finding.clone() };
        let told = |f: &Finding| if f.state == "recovered" { without_cause(f) } else { f.clone() };
        findings.iter().map(told).collect()
    };
    let same = told(&found) == told(&again) && verdicts(live) == verdicts(replayed);
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

/// Whether the report is done with all that its agent received.
pub(super) fn caught_up(report: &Value) -> bool {
    let (received, accounted) = accounts(report);
    received == accounted
}

/// What a report received, and what it accounts for.
fn accounts(report: &Value) -> (u64, u64) {
    let coverage = report.get("coverage");
    let count = |field: &str| {
        coverage.and_then(|coverage| coverage.get(field)).and_then(Value::as_u64).unwrap_or_default()
    };
    let kinds = ["attributed", "not_a_job", "rejected", "late", "duplicate"];
    (count("received"), kinds.into_iter().map(count).sum())
}

/// The report's count of a block against the filter's, once both stand still.
pub(super) fn reported_drops(report: &Value, scenario: &Scenario, evidence: &Evidence, notes: &mut Notes) {
    let Some(breach) = scenario.breach.as_ref().filter(|_| !evidence.taken.is_empty()) else { return };
    let counted = drops(report, breach.job);
    let detail = format!("report {counted:?}, filter {:?}", evidence.taken);
    notes.check("the report counts these drops", counted == evidence.taken, detail);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::lab::scenario::named;

    fn report(pairs: &[(&str, &str, &str)], cause: &str) -> Value {
        let pairs: Vec<Value> = pairs
            .iter()
            .map(|(src, dst, dst_zone)| {
                json!({"src": {"pod": src, "zone": "eastus-1"}, "dst": {"pod": dst, "zone": dst_zone}, "port": 29500})
            })
            .collect();
        json!({"jobs": [{"name": "llama", "verdict": "hard-block", "findings": [
            {"symptom": "hard-block", "state": "active", "cause": {"kind": cause}, "pairs": pairs}]}]})
    }

    fn passes(report: &Value) -> bool {
        let scenario = named("block-nft").unwrap();
        let cast = Cast::of(scenario, "run");
        let mut notes = Notes::new(true);
        complete(&findings(report), scenario, &cast, "active", &mut notes);
        notes.checks.iter().all(|check| check.passed)
    }

    #[test]
    fn only_the_right_report_passes() {
        const RIGHT: [(&str, &str, &str); 2] = [
            ("llama-worker-0", "llama-master-0", "eastus-2"),
            ("llama-worker-1", "llama-master-0", "eastus-2"),
        ];
        assert!(passes(&report(&RIGHT, "policy")));
        assert!(!passes(&report(&RIGHT, "unanswered")), "a wrong cause");
        assert!(!passes(&report(&RIGHT[..1], "policy")), "a pair is missing");
        let more = [&RIGHT[..], &[("llama-worker-2", "llama-master-0", "eastus-2")]].concat();
        assert!(!passes(&report(&more, "policy")), "a pair too many");
        let elsewhere = [RIGHT[0], ("llama-worker-1", "llama-master-0", "eastus-1")];
        assert!(!passes(&report(&elsewhere, "policy")), "a wrong zone");
        let mut besides = report(&RIGHT, "policy");
        let more = json!({"symptom": "cross-zone-latency", "state": "active", "pairs": []});
        besides["jobs"][0]["findings"].as_array_mut().unwrap().push(more);
        assert!(!passes(&besides), "a finding too many");
        assert!(!passes(&json!({"jobs": []})), "nothing");
    }
}

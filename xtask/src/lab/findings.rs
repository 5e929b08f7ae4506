//! A report, as far as the lab compares it. Enters: the report's JSON; leaves: findings that can be compared.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// A finding of a job.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Finding {
    pub(super) job: String,
    pub(super) symptom: String,
    pub(super) state: String,
    /// The cause's kind, if it has one.
    pub(super) cause: Option<String>,
    pub(super) pairs: BTreeSet<Pair>,
}

/// Two pods, in a finding.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Pair {
    pub(super) src: String,
    pub(super) src_zone: String,
    pub(super) dst: String,
    pub(super) dst_zone: String,
    pub(super) port: Option<u64>,
}

/// All findings of a report, in order.
pub(super) fn findings(report: &Value) -> BTreeSet<Finding> {
    let mut all = BTreeSet::new();
    for job in list(report, "jobs") {
        for finding in list(job, "findings") {
            all.insert(Finding {
                job: text(job, "/name"),
                symptom: text(finding, "/symptom"),
                state: text(finding, "/state"),
                cause: finding.pointer("/cause/kind").and_then(Value::as_str).map(str::to_owned),
                pairs: list(finding, "pairs").map(pair).collect(),
            });
        }
    }
    all
}

/// Dropped packets that the report counts for hard blocks, by source pod.
pub(super) fn drops(report: &Value, job: &str) -> BTreeMap<String, u64> {
    let mut drops = BTreeMap::new();
    let jobs = list(report, "jobs").filter(|entry| text(entry, "/name") == job);
    let blocks = jobs.flat_map(|job| list(job, "findings")).filter(|f| text(f, "/symptom") == "hard-block");
    for pair in blocks.flat_map(|finding| list(finding, "pairs")) {
        let count = pair.get("drops").and_then(Value::as_u64).unwrap_or_default();
        *drops.entry(text(pair, "/src/pod")).or_default() += count;
    }
    drops
}

/// The names and verdicts of a report's jobs.
pub(super) fn verdicts(report: &Value) -> BTreeMap<String, String> {
    list(report, "jobs").map(|job| (text(job, "/name"), text(job, "/verdict"))).collect()
}

fn pair(pair: &Value) -> Pair {
    Pair {
        src: text(pair, "/src/pod"),
        src_zone: text(pair, "/src/zone"),
        dst: text(pair, "/dst/pod"),
        dst_zone: text(pair, "/dst/zone"),
        port: pair.get("port").and_then(Value::as_u64),
    }
}

fn list<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value.get(field).and_then(Value::as_array).into_iter().flatten()
}

fn text(value: &Value, pointer: &str) -> String {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

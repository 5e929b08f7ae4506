//! Every case below `tests/cases`: the report must hold what its `expect.json` says, which was written by hand
//! before the first run, and be byte for byte what was accepted last (`report.json`, `report.txt`). Run
//! `cargo xtask golden --accept` to accept, and read the difference as a change of behaviour.

use std::path::{Path, PathBuf};

use serde_json::Value;

const ACCEPT: &str = "FIREDOOR_ACCEPT";

#[expect(
    clippy::disallowed_methods,
    reason = "`cargo xtask golden` tells the test by environment what to do"
)]
fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn cases() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
    let chosen = setting("FIREDOOR_CASES").unwrap_or_default();
    let chosen: Vec<&str> = chosen.split(',').filter(|case| !case.is_empty()).collect();
    let entries = std::fs::read_dir(&root).expect("tests/cases is there");
    let mut cases: Vec<PathBuf> =
        entries.map(|entry| entry.expect("readable").path()).filter(|p| p.is_dir()).collect();
    cases
        .retain(|case| chosen.is_empty() || case.file_name().is_some_and(|n| chosen.iter().any(|c| n == *c)));
    cases.sort();
    cases
}

/// Whether `actual` holds everything that `expected` says: maps by their keys, lists element by element.
fn holds(expected: &Value, actual: &Value, place: &str, wrong: &mut Vec<String>) {
    match (expected, actual) {
        (Value::Object(expected), Value::Object(actual)) => {
            for (key, value) in expected {
                match actual.get(key) {
                    Some(found) => holds(value, found, &format!("{place}.{key}"), wrong),
                    None => wrong.push(format!("{place}.{key} is missing")),
                }
            }
        }
        (Value::Array(expected), Value::Array(actual)) => {
            if expected.len() != actual.len() {
                wrong.push(format!("{place} has {} entries, not {}", actual.len(), expected.len()));
            }
            for (index, (expected, actual)) in expected.iter().zip(actual).enumerate() {
                holds(expected, actual, &format!("{place}[{index}]"), wrong);
            }
        }
        _ if expected == actual => {}
        _ => wrong.push(format!("{place} is {actual}, not {expected}")),
    }
}

fn conserves(coverage: &Value, wrong: &mut Vec<String>) {
    let count = |key: &str| coverage[key].as_u64().unwrap_or(u64::MAX / 8);
    let parts: u64 = ["attributed", "not_a_job", "rejected", "late", "duplicate"].map(count).iter().sum();
    if count("received") != parts {
        wrong.push(format!("received is not the sum of its parts: {coverage}"));
    }
}

fn accepted(file: &Path, actual: &str, wrong: &mut Vec<String>) {
    if setting(ACCEPT).is_some() {
        std::fs::write(file, actual).expect("the case is writable");
        return;
    }
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let Ok(before) = std::fs::read_to_string(file) else {
        wrong.push(format!("{name} is missing: accept it with `cargo xtask golden --accept`"));
        return;
    };
    if before != actual {
        let differs = before.lines().zip(actual.lines()).position(|(a, b)| a != b);
        let line = differs.unwrap_or_else(|| before.lines().count().min(actual.lines().count()));
        let (was, is) = (before.lines().nth(line).unwrap_or(""), actual.lines().nth(line).unwrap_or(""));
        wrong.push(format!("{name} differs from line {}:\n      was {was}\n      is  {is}", line + 1));
    }
}

fn run(case: &Path) -> Vec<String> {
    let mut wrong = Vec::new();
    let outcome = match firedoor::replay::replay(case, None, true) {
        Ok(outcome) => outcome,
        Err(error) => return vec![error.to_string()],
    };
    let text = std::fs::read_to_string(case.join("expect.json")).expect("every case has an expect.json");
    let mut expected: Value = serde_json::from_str(&text).expect("expect.json is JSON");
    let exit = expected.as_object_mut().and_then(|map| map.remove("exit"));
    if let Some(exit) = exit.filter(|exit| *exit != outcome.exit_code(None)) {
        wrong.push(format!("exit code is {}, not {exit}", outcome.exit_code(None)));
    }
    let mut json = Vec::new();
    firedoor::output::json::write(&outcome.report, &mut json).expect("a report is JSON");
    let actual: Value = serde_json::from_slice(&json).expect("a report is JSON");
    holds(&expected, &actual, "report", &mut wrong);
    conserves(&actual["coverage"], &mut wrong);
    let mut page = Vec::new();
    firedoor::output::text::write(&outcome.report, false, &mut page).expect("a report is text");
    for (name, bytes) in [("report.json", json), ("report.txt", page)] {
        accepted(&case.join(name), &String::from_utf8(bytes).expect("reports are UTF-8"), &mut wrong);
    }
    wrong
}

#[test]
fn cases_hold() {
    let cases = cases();
    assert!(!cases.is_empty(), "no case was found");
    let mut failed = 0;
    for case in &cases {
        let wrong = run(case);
        failed += usize::from(!wrong.is_empty());
        for what in wrong {
            eprintln!("{}: {what}", case.file_name().unwrap_or_default().to_string_lossy());
        }
    }
    assert_eq!(failed, 0, "of {} cases", cases.len());
}

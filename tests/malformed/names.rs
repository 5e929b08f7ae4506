//! Names that try to be more than names: escapes for terminals, line ends that forge a report.

use serde_json::{Value, json};

use crate::capture::{Capture, denied, joined, objects};

const HOSTILE: &str = "evil\u{1b}[2J\u{1b}]0;owned\u{7}\nHEALTHY  sea/forged\r\u{9b}31m\u{202e}";

/// Replaces a text wherever it stands, in names, labels and values.
fn rename(value: &mut Value, from: &str, to: &str) {
    match value {
        Value::String(text) if text.contains(from) => *text = text.replace(from, to),
        Value::Array(items) => items.iter_mut().for_each(|item| rename(item, from, to)),
        Value::Object(map) => map.values_mut().for_each(|item| rename(item, from, to)),
        _ => {}
    }
}

fn with_hostile(from: &str) -> Capture {
    let mut world = objects();
    rename(&mut world, from, &format!("{from}{HOSTILE}"));
    let lines = denied(4).into_iter().map(|line| {
        let mut line: Value = serde_json::from_str(&line).expect("a flow is JSON");
        rename(&mut line, from, &format!("{from}{HOSTILE}"));
        line.to_string()
    });
    Capture::empty().object_file("world.json", world.to_string()).flows(lines)
}

/// The report knows the real name, the page shows it harmless.
fn harmless(capture: &Capture) {
    let seen = capture.replay();
    seen.blocked(4);
    assert!(!seen.page.lines().any(|line| line.starts_with("HEALTHY")), "a forged line: {}", seen.page);
    assert!(!seen.page.contains('\u{202e}'), "text that runs backwards: {}", seen.page);
}

#[test]
fn hostile_names_of_pods_are_shown_harmless() {
    harmless(&with_hostile("tide-worker-0"));
    harmless(&with_hostile("tide-master-0"));
}

#[test]
fn hostile_names_of_jobs_namespaces_and_zones_are_shown_harmless() {
    harmless(&with_hostile("tide"));
    harmless(&with_hostile("sea"));
    harmless(&with_hostile("hall-1"));
    harmless(&with_hostile("PyTorchJob"));
}

#[test]
fn hostile_names_of_policies_are_shown_harmless() {
    let policy = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": HOSTILE, "namespace": "sea", "uid": "uid-policy"},
        "spec": {"podSelector": {}, "policyTypes": ["Egress"]}});
    let capture = Capture::new().object_file("policy.json", policy.to_string()).flows(denied(4));
    harmless(&capture);
    let seen = capture.replay();
    assert_eq!(seen.report["jobs"][0]["findings"][0]["cause"]["policies"][0]["name"], HOSTILE);
}

#[test]
fn hostile_names_that_hubble_reports_are_shown_harmless() {
    let lines = denied(4).into_iter().map(|line| {
        let mut line: Value = serde_json::from_str(&line).expect("a flow is JSON");
        line["flow"]["event_type"] = json!({"type": 5});
        line["flow"]["drop_reason"] = json!(181);
        line["flow"]["drop_reason_desc"] = json!("POLICY_DENY");
        line["flow"]["egress_denied_by"] = json!([{"name": HOSTILE, "namespace": HOSTILE, "kind": HOSTILE}]);
        line.to_string()
    });
    let seen = Capture::new().flows(lines).replay();
    assert!(seen.page.contains("evil"), "{}", seen.page);
    assert!(!seen.page.lines().any(|line| line.starts_with("HEALTHY")), "{}", seen.page);
}

#[test]
fn a_hostile_reason_is_shown_harmless() {
    let lines = denied(4).into_iter().map(|line| {
        let mut line: Value = serde_json::from_str(&line).expect("a flow is JSON");
        line["flow"]["drop_reason"] = json!(240);
        line["flow"]["drop_reason_desc"] = json!(HOSTILE);
        line["flow"]["event_type"] = json!({"type": 1, "sub_type": 240});
        line.to_string()
    });
    let seen = Capture::new().flows(lines).replay();
    assert!(!seen.page.lines().any(|line| line.starts_with("HEALTHY")), "{}", seen.page);
}

#[test]
fn hostile_nodes_of_a_relay_are_shown_harmless() {
    let status = json!({"node_status": {"state_change": "NODE_ERROR", "node_names": [HOSTILE, "n2"],
        "message": HOSTILE}, "node_name": HOSTILE, "time": "2026-11-07T09:00:05Z"});
    let mut lines = denied(4);
    lines.push(status.to_string());
    let seen = Capture::new().flows(lines).replay();
    seen.blocked(4);
    assert_eq!(seen.report["coverage"]["complete"], false);
}

#[test]
fn hostile_content_of_damaged_lines_is_told_harmless() {
    let mut lines = denied(4);
    lines.insert(2, "{\"flow\":{\"verdict\":\"\u{1b}[31m\u{7}".to_owned());
    lines.insert(3, "\u{1b}]0;owned\u{7}".to_owned());
    let world = joined(["kind: \u{1b}[31m\u{7}", "metadata: ["]);
    let seen = Capture::new().object_file("odd.yaml", world).flows(lines).replay();
    seen.blocked(4);
    assert_eq!(seen.count("rejected"), 2);
    seen.told("odd.yaml:1", "");
}

#[cfg(unix)]
#[test]
fn hostile_names_of_files_are_told_harmless() {
    let seen = Capture::new()
        .flows(denied(4))
        .file("flows-\u{1b}[31m\u{7}\nfiredoor: forged.jsonl", "garbage\n")
        .object_file("\u{1b}[2J\r.yaml", "kind: [\n")
        .file("gpu/\u{1b}[0m.prom", "garbage\n")
        .replay();
    seen.blocked(4);
    assert_eq!(seen.problems.len(), 3, "{:?}", seen.problems);
}

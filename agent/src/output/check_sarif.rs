//! A check's report as SARIF 2.1.0 (OASIS), for annotations in code review. Enters: a report; leaves: one run with all
//! rules and a result for each finding.

use std::io::{self, Write};
use std::path::Path;

use firedoor_core::check::{CheckFinding, CheckReport, ObjectAt, Rule, Severity};
use serde_json::{Value, json};

/// Policies that a result points to besides.
const RELATED: usize = 16;

/// Writes the log and a final newline.
///
/// # Errors
/// When writing fails.
pub fn write(report: &CheckReport, to: impl Write) -> io::Result<()> {
    let rules: Vec<Value> = Rule::ALL.iter().map(|rule| described(*rule)).collect();
    let results: Vec<Value> = report.findings.iter().map(result).collect();
    let log = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "firedoor",
                "version": env!("CARGO_PKG_VERSION"),
                "informationUri": env!("CARGO_PKG_REPOSITORY"),
                "rules": rules,
            }},
            "results": results,
        }],
    });
    super::escaped_json::write(&log, to)
}

fn described(rule: Rule) -> Value {
    json!({"id": rule.as_str(), "shortDescription": {"text": rule.description()}})
}

/// SARIF has no word for "cannot be known" that reviewers are shown: a warning is the nearest.
fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Unknown | Severity::Warning => "warning",
        Severity::Note => "note",
    }
}

fn result(finding: &CheckFinding) -> Value {
    let index = Rule::ALL.iter().position(|rule| *rule == finding.rule);
    let lines = [std::slice::from_ref(&finding.summary), &finding.evidence, &finding.advice].concat();
    let related = finding.policies.iter().filter(|policy| policy.object.file.is_some()).take(RELATED);
    let related = related.enumerate().map(|(id, policy)| {
        let mut place = location(&policy.object);
        if let Some(map) = place.as_object_mut() {
            let how = [policy.direction.unwrap_or_default(), policy.effect].join(" ");
            map.insert("id".to_owned(), json!(id));
            map.insert(
                "message".to_owned(),
                json!({"text": format!("{}: {}", policy.object.name, how.trim())}),
            );
        }
        place
    });
    let related: Vec<Value> = related.collect();
    let mut result = json!({
        "ruleId": finding.rule.as_str(),
        "level": level(finding.severity),
        "message": {"text": lines.join("\n")},
        "locations": [location(&finding.object)],
        "properties": {"severity": finding.severity.as_str(), "job": finding.job},
    });
    if let Some(map) = result.as_object_mut() {
        map.extend(index.map(|index| ("ruleIndex".to_owned(), json!(index))));
        if !related.is_empty() {
            map.insert("relatedLocations".to_owned(), Value::Array(related));
        }
    }
    result
}

fn location(object: &ObjectAt) -> Value {
    let parts = [object.namespace.as_deref(), Some(object.kind.as_str()), Some(object.name.as_str())];
    let parts: Vec<&str> = parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
    let mut location = json!({});
    let Some(map) = location.as_object_mut() else { return location };
    if !parts.is_empty() {
        let names = json!([{"name": object.name, "fullyQualifiedName": parts.join("/"), "kind": "resource"}]);
        map.insert("logicalLocations".to_owned(), names);
    }
    if let Some(file) = &object.file {
        let physical = json!({"artifactLocation": {"uri": uri(file)}, "region": {"startLine": object.line.unwrap_or(1).max(1)}});
        map.insert("physicalLocation".to_owned(), physical);
    }
    location
}

/// A path as a URI reference: relative ones stay relative to where the command ran (RFC 3986).
fn uri(file: &str) -> String {
    let relative = file.strip_prefix("./").unwrap_or(file);
    let mut uri = if Path::new(file).is_absolute() { "file://".to_owned() } else { String::new() };
    for (index, byte) in relative.bytes().enumerate() {
        let plain = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'/');
        // A colon in the first segment would make it a scheme.
        if plain || (byte == b':' && index > 0 && uri.contains('/')) {
            uri.push(char::from(byte));
        } else {
            uri.push_str(&format!("%{byte:02X}"));
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_uri_references() {
        assert_eq!(uri("jobs/a b.yaml"), "jobs/a%20b.yaml");
        assert_eq!(uri("./a:b%.yaml"), "a%3Ab%25.yaml");
        assert_eq!(uri("/x/ü.yaml"), "file:///x/%C3%BC.yaml");
    }
}

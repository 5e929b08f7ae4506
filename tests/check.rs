//! Manifests with what `check` should say of them: `check/NAME/` has `manifests/` or `job.yaml`, perhaps `cluster/` (what
//! is there already) and `firedoor.toml`, and an `expect.json` that was written by hand.
//!
//! `expect.json`: `exit`, and `exit_strict` for `--fail-on warning`; `findings`, each of which has to be there with
//! all that it names (`rule`, `severity`, `object`, `directions`, `ports`, `policies`, and `says`: texts that occur in
//! summary, evidence or advice), and no error or warning beside them; `absent`: rules that must not be found;
//! `zones`: where templates may land.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use firedoor::check::{FailOn, Inputs, exit_code, run};
use firedoor_core::check::{CheckFinding, CheckReport, ObjectAt, Severity};
use serde_json::Value;

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("check");
    let mut cases: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.retain(|path| path.is_dir());
    cases.sort();
    cases
}

fn report(case: &Path) -> CheckReport {
    let existing = |name: &str| Some(case.join(name)).filter(|path| path.exists());
    let manifests = [existing("manifests").unwrap_or_else(|| case.join("job.yaml"))];
    let (capture, config) = (existing("cluster"), existing("firedoor.toml"));
    let inputs = Inputs {
        manifests: &manifests,
        capture: capture.as_deref(),
        config: config.as_deref(),
        ..Inputs::default()
    };
    let outcome = run(&inputs).unwrap();
    assert_eq!(outcome.problems.lines().collect::<Vec<_>>(), Vec::<String>::new(), "{}", case.display());
    outcome.report
}

fn texts(value: &Value) -> BTreeSet<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn named(object: &ObjectAt) -> String {
    format!("{}/{}", object.kind, object.name)
}

/// Whether a finding has everything that is expected of it.
fn matches(finding: &CheckFinding, expected: &Value) -> bool {
    let is = |field: &str, found: &str| expected.get(field).is_none_or(|wanted| wanted == found);
    let has = |field: &str, found: BTreeSet<String>| texts(&expected[field]).is_subset(&found);
    let all = [std::slice::from_ref(&finding.summary), &finding.evidence, &finding.advice].concat().join("\n");
    is("rule", finding.rule.as_str())
        && is("severity", finding.severity.as_str())
        && is("object", &named(&finding.object))
        && has("directions", finding.pairs.iter().flat_map(|pair| pair.directions.iter().map(|d| (*d).to_owned())).collect())
        && has("ports", finding.pairs.iter().map(|pair| format!("{} {}", pair.protocol, pair.ports)).collect())
        && has("policies", finding.policies.iter().map(|policy| policy.object.name.clone()).collect())
        && texts(&expected["says"]).iter().all(|text| all.contains(text))
}

fn judge(report: &CheckReport, expected: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    for (field, fail_on) in [("exit", FailOn::Error), ("exit_strict", FailOn::Warning)] {
        let wanted = expected.get(field).and_then(Value::as_u64);
        let found = u64::from(exit_code(report, fail_on));
        if wanted.is_some_and(|wanted| wanted != found) {
            wrong.push(format!("{field} is {found}"));
        }
    }
    let findings = expected["findings"].as_array().cloned().unwrap_or_default();
    for wanted in &findings {
        if !report.findings.iter().any(|finding| matches(finding, wanted)) {
            wrong.push(format!("not found: {wanted}"));
        }
    }
    for finding in report.findings.iter().filter(|finding| finding.severity != Severity::Note) {
        if !findings.iter().any(|wanted| matches(finding, wanted)) {
            wrong.push(format!("not expected: {} {} {}", finding.severity.as_str(), finding.rule.as_str(), finding.summary));
        }
    }
    for rule in texts(&expected["absent"]) {
        wrong.extend(report.findings.iter().any(|f| f.rule.as_str() == rule).then(|| format!("found: {rule}")));
    }
    for (object, zones) in expected["zones"].as_object().into_iter().flatten() {
        let templates = report.jobs.iter().flat_map(|job| &job.templates);
        let name = |object: &ObjectAt, template: &str| match template {
            "" => named(object),
            template => format!("{}/{template}", named(object)),
        };
        let found = templates.clone().find(|t| name(&t.object, &t.template) == *object);
        let found = found.map(|template| serde_json::to_value(&template.zones).unwrap());
        if found.as_ref() != Some(zones) {
            wrong.push(format!("{object} may land in {found:?}"));
        }
    }
    wrong
}

#[test]
fn every_case_comes_out_as_written() {
    let cases = cases();
    assert!(cases.len() >= 12, "cases went missing");
    let mut failed = Vec::new();
    for case in cases {
        let expected = std::fs::read_to_string(case.join("expect.json")).unwrap();
        let expected: Value = serde_json::from_str(&expected).unwrap();
        assert!(expected.get("exit").is_some(), "{}", case.display());
        let report = report(&case);
        let wrong = judge(&report, &expected);
        if !wrong.is_empty() {
            let name = case.file_name().unwrap_or_default().to_string_lossy().into_owned();
            failed.push(format!("{name}:\n  {}\n{}", wrong.join("\n  "), serde_json::to_string_pretty(&report.findings).unwrap()));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

#[test]
fn a_report_is_the_same_every_time() {
    for case in cases() {
        let once = serde_json::to_string(&report(&case)).unwrap();
        assert_eq!(once, serde_json::to_string(&report(&case)).unwrap(), "{}", case.display());
    }
}

//! Manifests with what `check` should say of them: `check/NAME/` has `manifests/` or `job.yaml`, perhaps `cluster/` (what
//! is there already) and `firedoor.toml`, and an `expect.json` that was written by hand.
//!
//! `expect.json`: `exit`, and `exit_strict` for `--fail-on warning`; `findings`, each of which has to be there with
//! all that it names (`rule`, `severity`, `object`, `directions`, `ports`, `policies`, and `says`: texts that occur in
//! summary, evidence or advice), and no error or warning beside them; `absent`: rules that must not be found;
//! `zones`: where templates may land.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use firedoor::check::{CheckError, FailOn, Inputs, exit_code, run};
use firedoor::harmless::is_harmful;
use firedoor::output::{check_json, check_junit, check_sarif, check_text};
use firedoor_core::check::{CheckFinding, CheckReport, ObjectAt, Rule, Severity};
use serde_json::Value;

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("check");
    let mut cases: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
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
    let all =
        [std::slice::from_ref(&finding.summary), &finding.evidence, &finding.advice].concat().join("\n");
    is("rule", finding.rule.as_str())
        && is("severity", finding.severity.as_str())
        && is("object", &named(&finding.object))
        && has(
            "directions",
            finding.pairs.iter().flat_map(|pair| pair.directions.iter().map(|d| (*d).to_owned())).collect(),
        )
        && has(
            "ports",
            finding.pairs.iter().map(|pair| format!("{} {}", pair.protocol, pair.ports)).collect(),
        )
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
            wrong.push(format!(
                "not expected: {} {} {}",
                finding.severity.as_str(),
                finding.rule.as_str(),
                finding.summary
            ));
        }
    }
    for rule in texts(&expected["absent"]) {
        wrong.extend(
            report.findings.iter().any(|f| f.rule.as_str() == rule).then(|| format!("found: {rule}")),
        );
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
            failed.push(format!(
                "{name}:\n  {}\n{}",
                wrong.join("\n  "),
                serde_json::to_string_pretty(&report.findings).unwrap()
            ));
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

/// What SARIF 2.1.0 demands of what we write, and what code review needs to show it: a rule that exists, a level, a
/// text, and a file with a line.
#[test]
fn sarif_points_into_the_manifests() {
    for case in cases() {
        let mut bytes = Vec::new();
        let report = report(&case);
        check_sarif::write(&report, &mut bytes).unwrap();
        let log: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(log["version"], "2.1.0");
        let run = &log["runs"][0];
        let results = run["results"].as_array().unwrap();
        assert_eq!(results.len(), report.findings.len());
        for result in results {
            let rule = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
            assert_eq!(run["tool"]["driver"]["rules"][rule]["id"], result["ruleId"]);
            assert!(["error", "warning", "note"].contains(&result["level"].as_str().unwrap()));
            assert!(!result["message"]["text"].as_str().unwrap().is_empty());
            let places = result["locations"].as_array().unwrap().iter();
            for place in places.chain(result["relatedLocations"].as_array().into_iter().flatten()) {
                let Some(physical) = place.get("physicalLocation") else { continue };
                assert!(physical["region"]["startLine"].as_u64().unwrap() >= 1);
                assert!(physical["artifactLocation"]["uri"].as_str().unwrap().starts_with("file:///"));
            }
        }
    }
}

#[test]
fn findings_name_the_line_their_document_starts_at() {
    let case = Path::new(env!("CARGO_MANIFEST_DIR")).join("check/lab-before");
    let report = report(&case);
    let worker = report.findings.iter().find(|finding| finding.object.kind == "Job").unwrap();
    let file = std::fs::read_to_string(worker.object.file.as_ref().unwrap()).unwrap();
    let line = usize::try_from(worker.object.line.unwrap()).unwrap();
    assert_eq!(file.lines().nth(line - 1), Some("apiVersion: batch/v1"));
}

#[test]
fn junit_is_well_formed_and_counts_right() {
    for case in cases() {
        let report = report(&case);
        for fail_on in [Severity::Error, Severity::Warning] {
            let mut bytes = Vec::new();
            check_junit::write(&report, fail_on, &mut bytes).unwrap();
            let xml = String::from_utf8(bytes).unwrap();
            let mut open = Vec::new();
            for tag in xml.split('<').skip(2).map(|rest| rest.split('>').next().unwrap()) {
                let name = tag.split([' ', '/']).find(|part| !part.is_empty()).unwrap();
                match tag {
                    _ if tag.starts_with('/') => assert_eq!(open.pop(), Some(name), "{xml}"),
                    _ if tag.ends_with('/') => {}
                    _ => open.push(name),
                }
            }
            assert!(open.is_empty(), "{xml}");
            let failures = xml.matches("<failure ").count();
            assert!(xml.contains(&format!("failures=\"{failures}\"")), "{xml}");
            assert_eq!(
                failures > 0,
                exit_code(&report, if fail_on == Severity::Error { FailOn::Error } else { FailOn::Warning })
                    == 1
            );
        }
    }
}

/// Names come from outside: none of them may steer a terminal or end a line of the report.
#[test]
fn text_is_harmless() {
    let folder = std::env::temp_dir().join(format!("firedoor-check-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("evil.yaml");
    let manifest = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: \"a\\e[31m\\nerror b\"}\nspec: {parallelism: 2, template: {spec: {}}}\n";
    std::fs::write(&file, manifest).unwrap();
    let manifests = [file.clone()];
    let outcome = run(&Inputs { manifests: &manifests, ..Inputs::default() }).unwrap();
    let mut bytes = Vec::new();
    check_text::write(&outcome.report, false, &mut bytes).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    assert!(!text.contains('\u{1b}') && !text.lines().any(|line| line.starts_with("error b")), "{text}");

    std::fs::write(&file, format!("{manifest}---\nkind: [\n")).unwrap();
    let outcome = run(&Inputs { manifests: &manifests, ..Inputs::default() }).unwrap();
    assert_eq!(exit_code(&outcome.report, FailOn::Error), 3, "half of it could not be read");
    std::fs::write(&file, "kind: [\n").unwrap();
    let all_damaged = run(&Inputs { manifests: &manifests, ..Inputs::default() });
    assert!(matches!(all_damaged, Err(CheckError::Damaged { .. })));
    let missing = [folder.join("nowhere.yaml")];
    assert!(matches!(
        run(&Inputs { manifests: &missing, ..Inputs::default() }),
        Err(CheckError::Unreadable { .. })
    ));
    std::fs::remove_dir_all(&folder).unwrap();
}

fn folder_with(name: &str, text: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(name), text).unwrap();
    folder
}

const JOB: &str = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a, namespace: ml}\n\
    spec: {parallelism: 2, completions: 2, template: {spec: {}}}\n";
const POLICY: &str = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: p, namespace: other}\n\
    spec: {podSelector: {}}\n";

fn unreadable(report: &CheckReport) -> Vec<&str> {
    let found = report.findings.iter().filter(|finding| finding.rule == Rule::UnreadableInput);
    found.map(|finding| finding.object.file.as_deref().unwrap_or_default()).collect()
}

/// What is passed over could hold the policy that locks the door.
#[cfg(unix)]
#[test]
fn what_is_passed_over_leaves_the_answer_open() {
    let folder = folder_with("job.yaml", &format!("{JOB}---\n{POLICY}"));
    let inside = [folder.path().to_owned()];
    let alone = [folder.path().join("job.yaml")];
    let of = |manifests: &[PathBuf], capture: Option<&Path>| {
        run(&Inputs { manifests, capture, ..Inputs::default() }).unwrap()
    };
    assert_eq!(exit_code(&of(&inside, None).report, FailOn::Error), 0);
    std::os::unix::fs::symlink("elsewhere", folder.path().join("policy.yaml")).unwrap();
    std::os::unix::fs::symlink("..", folder.path().join("up")).unwrap();
    std::os::unix::fs::symlink("nowhere", folder.path().join("README")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(folder.path().join("s.json")).unwrap();
    for outcome in [of(&inside, None), of(&alone, Some(folder.path()))] {
        let names: Vec<&str> =
            unreadable(&outcome.report).into_iter().map(|path| path.rsplit('/').next().unwrap()).collect();
        assert_eq!(names, ["policy.yaml", "s.json", "up"]);
        assert_eq!(outcome.problems.count(), 3);
        assert_eq!(exit_code(&outcome.report, FailOn::Error), 3);
    }
}

#[test]
fn a_damaged_object_of_the_cluster_leaves_the_answer_open() {
    let cluster = folder_with("policies.yaml", &format!("{POLICY}---\nkind: [\n"));
    let folder = folder_with("job.yaml", JOB);
    let manifests = [folder.path().to_owned()];
    let outcome =
        run(&Inputs { manifests: &manifests, capture: Some(cluster.path()), ..Inputs::default() }).unwrap();
    assert_eq!(unreadable(&outcome.report).len(), 1);
    assert_eq!(exit_code(&outcome.report, FailOn::Error), 3);
    let summary = &outcome.report.findings[0].summary;
    assert!(summary.ends_with("at its line 1 column 7: unclosed bracket '['"), "{summary}");
}

#[test]
fn that_there_is_no_policy_is_told() {
    for (text, told) in [(JOB.to_owned(), true), (format!("{JOB}---\n{POLICY}"), false)] {
        let folder = folder_with("job.yaml", &text);
        let manifests = [folder.path().to_owned()];
        let report = run(&Inputs { manifests: &manifests, ..Inputs::default() }).unwrap().report;
        assert_eq!(report.findings.iter().any(|finding| finding.rule == Rule::NoPolicies), told);
        assert_eq!(exit_code(&report, FailOn::Error), 0);
    }
}

#[test]
fn junit_cases_have_names_of_their_own() {
    for case in cases() {
        let mut report = report(&case);
        // Two findings of one rule about one object: another pair of roles, say.
        let again = report
            .findings
            .clone()
            .into_iter()
            .map(|finding| CheckFinding { summary: format!("also {}", finding.summary), ..finding });
        report =
            CheckReport::new(report.jobs.clone(), report.findings.iter().cloned().chain(again).collect());
        let mut bytes = Vec::new();
        check_junit::write(&report, Severity::Warning, &mut bytes).unwrap();
        let xml = String::from_utf8(bytes).unwrap();
        let names: Vec<&str> = xml
            .lines()
            .filter_map(|line| line.trim_start().strip_prefix("<testcase "))
            .map(|rest| rest.split(" file=").next().unwrap().trim_end_matches(['/', '>']))
            .collect();
        let distinct: BTreeSet<&str> = names.iter().copied().collect();
        assert_eq!(names.len(), distinct.len(), "{xml}");
    }
}

/// Names come from outside: in no form may they turn the direction of writing.
#[test]
fn no_form_holds_raw_control_characters() {
    let odd = "a\u{202e}b\u{9b}c\u{2066}\u{200e}";
    let folder = folder_with("job.yaml", &JOB.replace("name: a", r#"name: "a\u202eb\u009bc\u2066\u200e""#));
    let manifests = [folder.path().to_owned()];
    let report = run(&Inputs { manifests: &manifests, ..Inputs::default() }).unwrap().report;
    let mut forms = [Vec::new(), Vec::new(), Vec::new(), Vec::new()];
    let [text, json, sarif, junit] = &mut forms;
    check_text::write(&report, false, text).unwrap();
    check_json::write(&report, &mut *json).unwrap();
    check_sarif::write(&report, sarif).unwrap();
    check_junit::write(&report, Severity::Warning, junit).unwrap();
    let back: Value = serde_json::from_slice(json).unwrap();
    assert_eq!(back["jobs"][0]["name"], odd, "it still says what it said");
    for form in forms {
        let form = String::from_utf8(form).unwrap();
        assert!(!form.contains(|c: char| c != '\n' && is_harmful(c)), "{form:?}");
    }
}

#[test]
fn the_documentation_lists_every_rule() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/check.md");
    let page = std::fs::read_to_string(page).unwrap();
    for rule in Rule::ALL {
        let row = page.lines().find(|line| line.starts_with(&format!("| `{}` |", rule.as_str())));
        let row = row.unwrap_or_else(|| panic!("docs/check.md does not list {}", rule.as_str()));
        assert!(row.contains(rule.description()), "{row}");
    }
}

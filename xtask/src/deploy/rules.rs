//! Recording rules and alerts. Enters: a rule file and its tests; leaves: whether Prometheus accepts them, whether the
//! tests show each alert firing and resolving, and whether rules name only what the metric contract has.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::contract::Contract;
use super::promql;
use super::quietly;
use super::tools::PROMTOOL;
use crate::command::command;

/// Where the rules are: in the chart, which can ship only what is below it.
pub(crate) const RULES: &str = "deploy/helm/firedoor/files/firedoor.rules.yaml";
/// The same file, where a person without Helm looks for it.
const LINK: &str = "deploy/prometheus/firedoor.rules.yaml";
const TESTS: &str = "deploy/prometheus/firedoor.rules.test.yaml";
const RUNBOOKS: &str = "docs/runbooks";
/// A label by which a scrape without `honor_labels` shows itself.
const RENAMED: &str = "exported_job";

#[derive(Debug, Deserialize)]
struct RuleFile {
    groups: Vec<Group>,
}

#[derive(Debug, Deserialize)]
struct Group {
    rules: Vec<Rule>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Rule {
    record: Option<String>,
    alert: Option<String>,
    expr: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
struct TestFile {
    tests: Vec<Test>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Test {
    alert_rule_test: Vec<AlertTest>,
}

#[derive(Debug, Deserialize)]
struct AlertTest {
    alertname: String,
    exp_alerts: Vec<serde_json::Value>,
}

/// Checks the shipped rules.
///
/// # Errors
/// What is wrong with them.
pub(super) fn run(root: &Path) -> Result<()> {
    let link = std::fs::canonicalize(root.join(LINK)).with_context(|| format!("cannot find {LINK}"))?;
    if link != std::fs::canonicalize(root.join(RULES)).with_context(|| format!("cannot find {RULES}"))? {
        bail!("{LINK} is not the chart's file, but a second one");
    }
    promtool(root, Path::new(RULES), Path::new(TESTS))?;
    let rules = std::fs::read_to_string(root.join(RULES))?;
    let tests = std::fs::read_to_string(root.join(TESTS))?;
    let wrong = read(root, &rules, &tests)?;
    if !wrong.is_empty() {
        bail!("{RULES}:\n  {}", wrong.join("\n  "));
    }
    Ok(())
}

/// What Prometheus' own tool says.
pub(super) fn promtool(root: &Path, rules: &Path, tests: &Path) -> Result<()> {
    let rules = rules.to_string_lossy();
    quietly(&mut command(root, PROMTOOL, &["check", "rules", "--lint=all", "--lint-fatal", &rules]))?;
    quietly(&mut command(root, PROMTOOL, &["test", "rules", &tests.to_string_lossy()]))
}

/// The contract, with what the rules record.
///
/// # Errors
/// When page or rules cannot be read.
pub(super) fn extended_contract(root: &Path) -> Result<Contract> {
    let mut contract = Contract::load(root)?;
    let rules = std::fs::read_to_string(root.join(RULES))?;
    let file: RuleFile = serde_saphyr::from_str(&rules).context(RULES)?;
    record(&mut contract, &file)?;
    Ok(contract)
}

/// A recorded series has the labels of its outermost aggregation.
fn record(contract: &mut Contract, file: &RuleFile) -> Result<()> {
    for rule in file.groups.iter().flat_map(|group| &group.rules) {
        let Some(name) = &rule.record else { continue };
        let names = promql::names(&rule.expr).map_err(anyhow::Error::msg).with_context(|| name.clone())?;
        let labels: BTreeSet<String> =
            names.groupings.first().map(|labels| labels.iter().cloned().collect()).unwrap_or_default();
        contract.add(name, labels)?;
    }
    Ok(())
}

fn read(root: &Path, rules: &str, tests: &str) -> Result<Vec<String>> {
    let file: RuleFile = serde_saphyr::from_str(rules).context("the rules")?;
    let tests: TestFile = serde_saphyr::from_str(tests).context("their tests")?;
    let mut contract = Contract::load(root)?;
    record(&mut contract, &file)?;
    let repository = repository(root)?;
    let mut wrong = Vec::new();
    let mut alerts = BTreeSet::new();
    for rule in file.groups.iter().flat_map(|group| &group.rules) {
        let name = rule.record.as_deref().or(rule.alert.as_deref()).unwrap_or("a rule without a name");
        let mut say = |what: String| wrong.push(format!("{name}: {what}"));
        contract.strangers(&rule.expr, &[RENAMED]).into_iter().for_each(&mut say);
        if let Some(alert) = &rule.alert {
            alerts.insert(alert.as_str());
            complaints(root, &contract, rule, alert, &repository).into_iter().for_each(&mut say);
            if !shown(&tests, alert) {
                say("no test shows it firing and then resolving".to_owned());
            }
        }
    }
    wrong.extend(pages_without_alert(root, &alerts)?);
    Ok(wrong)
}

/// What is wrong with an alert's labels and annotations.
fn complaints(root: &Path, contract: &Contract, rule: &Rule, alert: &str, repository: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if !rule.labels.get("severity").is_some_and(|severity| ["critical", "warning"].contains(&&**severity)) {
        complaints.push("has no severity, critical or warning".to_owned());
    }
    for needed in ["summary", "description"] {
        if !rule.annotations.contains_key(needed) {
            complaints.push(format!("has no {needed}"));
        }
    }
    let page = format!("{RUNBOOKS}/{alert}.md");
    if rule.annotations.get("runbook_url") != Some(&format!("{repository}/blob/main/{page}")) {
        complaints.push(format!("its runbook_url is not that of {page} in {repository}"));
    }
    let text = std::fs::read_to_string(root.join(&page)).unwrap_or_default();
    if !text.starts_with(&format!("# {alert}\n")) {
        complaints.push(format!("{page} is not there, or has another title"));
    }
    let Ok(mut names) = promql::names(&rule.expr) else { return complaints };
    for (annotation, template) in &rule.annotations {
        match promql::queries(template) {
            Ok(queries) => {
                for query in queries {
                    complaints.extend(contract.strangers(&query, &[]));
                    names.selectors.extend(promql::names(&query).unwrap_or_default().selectors);
                }
            }
            Err(why) => complaints.push(format!("{annotation}: {why}")),
        }
    }
    let reachable = contract.reachable(&names);
    for (annotation, template) in &rule.annotations {
        let labels = promql::template_labels(template);
        let unknown = labels.difference(&reachable);
        complaints
            .extend(unknown.map(|label| format!("{annotation} shows the label {label}, which nothing has")));
    }
    complaints
}

/// Whether one of the tests expects the alert, and none of it afterwards.
fn shown(tests: &TestFile, alert: &str) -> bool {
    tests.tests.iter().any(|test| {
        let of_alert = test.alert_rule_test.iter().filter(|step| step.alertname == alert);
        let mut firing = of_alert.map(|step| !step.exp_alerts.is_empty());
        firing.any(|fires| fires) && firing.any(|fires| !fires)
    })
}

/// Runbooks that no alert leads to.
fn pages_without_alert(root: &Path, alerts: &BTreeSet<&str>) -> Result<Vec<String>> {
    let mut lost = Vec::new();
    for entry in std::fs::read_dir(root.join(RUNBOOKS)).with_context(|| format!("cannot read {RUNBOOKS}"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !name.strip_suffix(".md").is_some_and(|alert| alerts.contains(alert)) {
            lost.push(format!("{RUNBOOKS}/{name} belongs to no alert"));
        }
    }
    lost.sort();
    Ok(lost)
}

/// The repository's address, as the workspace gives it.
fn repository(root: &Path) -> Result<String> {
    let manifest: toml::Table = std::fs::read_to_string(root.join("Cargo.toml"))?.parse()?;
    let repository = &manifest["workspace"]["package"]["repository"];
    Ok(repository.as_str().context("Cargo.toml names no repository")?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shipped() -> (String, String) {
        let root = crate::root();
        let read = |path| std::fs::read_to_string(root.join(path)).unwrap();
        (read(RULES), read(TESTS))
    }

    #[test]
    fn the_shipped_rules_name_what_there_is() {
        let (rules, tests) = shipped();
        assert_eq!(read(&crate::root(), &rules, &tests).unwrap(), [""; 0]);
    }

    #[test]
    fn a_rule_that_is_off_is_found() {
        let (rules, tests) = shipped();
        let complains = |from: &str, to: &str, about: &str| {
            let changed = rules.replace(from, to);
            assert_ne!(changed, rules, "{from}");
            let wrong = read(&crate::root(), &changed, &tests).unwrap().join("\n");
            assert!(wrong.contains(about), "{from} -> {to}: {wrong}");
        };
        complains("firedoor_source_up == 0", "firedoor_source_upp == 0", "no metric firedoor_source_upp");
        complains("symptom=\"hard-block\"} == 1", "symtom=\"hard-block\"} == 1", "has no label symtom");
        complains("kind=%q, distance", "kind=%q, distanse", "has no label distanse");
        complains("sum without (cause)", "sum without (caus)", "groups by caus");
        complains("$labels.cause", "$labels.cuase", "shows the label cuase");
        complains("runbooks/FiredoorAgentDown.md", "runbooks/Firedoor.md", "runbook_url");
        complains("severity: critical", "severity: bad", "severity");
        complains("alert: FiredoorAgentDown", "alert: FiredoorAgentUp", "FiredoorAgentUp.md is not there");
        complains(
            "alert: FiredoorAgentDown",
            "alert: FiredoorAgentUp",
            "FiredoorAgentDown.md belongs to no alert",
        );
        complains("alert: FiredoorAgentDown", "alert: FiredoorAgentUp", "no test shows it");
    }

    #[test]
    #[ignore = "runs promtool; `cargo xtask deploy` runs it"]
    fn promtool_refuses_a_broken_rule_and_a_wrong_expectation() {
        let root = crate::root();
        let (rules, tests) = shipped();
        let folder = tempfile::tempdir().unwrap();
        let (rule_file, test_file) =
            (folder.path().join("firedoor.rules.yaml"), folder.path().join("test.yaml"));
        let outcome = |rules: &str, tests: &str| {
            std::fs::write(&rule_file, rules).unwrap();
            std::fs::write(&test_file, tests).unwrap();
            promtool(&root, &rule_file, &test_file)
        };
        outcome(&rules, &tests).unwrap();
        outcome(&rules.replace("max by (namespace", "max bye (namespace"), &tests).unwrap_err();
        outcome(&rules.replace("for: 5m", "for: 1h"), &tests).unwrap_err();
        // A memory that is too short lets an alert resolve because its agent died.
        outcome(&rules.replace("last_over_time(firedoor_job_symptom[10m])", "firedoor_job_symptom"), &tests)
            .unwrap_err();
        outcome(&rules, &tests.replace("cause: policy", "cause: refused")).unwrap_err();
    }

    #[test]
    fn a_test_must_show_the_end_too() {
        let step = |alert: &str, firing: usize| AlertTest {
            alertname: alert.to_owned(),
            exp_alerts: vec![serde_json::Value::Null; firing],
        };
        let file = |steps| TestFile { tests: vec![Test { alert_rule_test: steps }] };
        assert!(shown(&file(vec![step("A", 0), step("A", 1), step("A", 0)]), "A"));
        assert!(!shown(&file(vec![step("A", 0), step("A", 1), step("B", 0)]), "A"));
        assert!(!shown(&file(vec![step("A", 0)]), "A"));
    }
}

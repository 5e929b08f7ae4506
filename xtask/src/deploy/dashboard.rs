//! The dashboard. Enters: its JSON; leaves: whether Grafana could show it, and whether its queries are PromQL and name
//! only what the metric contract has. There is no Grafana to ask: what is checked is the form.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::contract::Contract;
use super::quietly;
use super::rules::extended_contract;
use super::tools::PROMTOOL;
use crate::command::{command, target};

/// The dashboard, in the chart.
pub(crate) const DASHBOARD: &str = "deploy/helm/firedoor/files/firedoor.dashboard.json";
/// The same file, where a person without Helm looks for it.
const LINK: &str = "deploy/grafana/firedoor.json";
/// Variables of the dashboard, with a value each, as the tests fill them in. Grafana fills in its own.
const VARIABLES: [(&str, &str); 5] =
    [("$__rate_interval", "1m"), ("$__range", "15m"), ("$namespace", ".+"), ("$job", ".+"), ("$kind", ".+")];
const COLUMNS: u64 = 24;
/// Grafana 10's is 37 or more.
const SCHEMA: u64 = 37;

/// A query of a panel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Query {
    /// The panel's title.
    pub(crate) panel: String,
    /// The expression, variables filled in.
    pub(crate) expression: String,
}

/// Checks the shipped dashboard.
///
/// # Errors
/// What is wrong with it.
pub(super) fn run(root: &Path) -> Result<()> {
    let link = std::fs::canonicalize(root.join(LINK)).with_context(|| format!("cannot find {LINK}"))?;
    if link
        != std::fs::canonicalize(root.join(DASHBOARD)).with_context(|| format!("cannot find {DASHBOARD}"))?
    {
        bail!("{LINK} is not the chart's file, but a second one");
    }
    let dashboard = load(root)?;
    let wrong = wrong(&dashboard, &extended_contract(root)?);
    if !wrong.is_empty() {
        bail!("{DASHBOARD}:\n  {}", wrong.join("\n  "));
    }
    promtool(root, &expressions(&dashboard))
}

fn load(root: &Path) -> Result<Value> {
    let text =
        std::fs::read_to_string(root.join(DASHBOARD)).with_context(|| format!("cannot read {DASHBOARD}"))?;
    serde_json::from_str(&text).with_context(|| format!("{DASHBOARD} is no JSON"))
}

/// The queries of all panels.
///
/// # Errors
/// When the dashboard cannot be read.
pub(crate) fn queries(root: &Path) -> Result<Vec<Query>> {
    Ok(expressions(&load(root)?))
}

fn panels(dashboard: &Value) -> Vec<&Value> {
    let top = dashboard["panels"].as_array().into_iter().flatten();
    top.flat_map(|panel| std::iter::once(panel).chain(panel["panels"].as_array().into_iter().flatten()))
        .collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn expressions(dashboard: &Value) -> Vec<Query> {
    let mut queries = Vec::new();
    for panel in panels(dashboard) {
        for query in panel["targets"].as_array().into_iter().flatten() {
            queries.push(Query {
                panel: text(&panel["title"]).to_owned(),
                expression: filled(text(&query["expr"])),
            });
        }
    }
    queries
}

fn filled(expression: &str) -> String {
    let mut expression = expression.to_owned();
    for (variable, value) in VARIABLES {
        expression = expression.replace(variable, value);
    }
    expression
}

fn wrong(dashboard: &Value, contract: &Contract) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut say = |what: String| wrong.push(what);
    if dashboard["schemaVersion"].as_u64().is_none_or(|version| version < SCHEMA) {
        say(format!("schemaVersion is below {SCHEMA}"));
    }
    for needed in ["title", "uid"] {
        if text(&dashboard[needed]).is_empty() {
            say(format!("has no {needed}"));
        }
    }
    if text(&dashboard["uid"]).len() > 40 || !dashboard["id"].is_null() {
        say("uid is too long, or id is set: Grafana gives the id".to_owned());
    }
    variables(dashboard, contract).into_iter().for_each(&mut say);
    let (mut ids, mut places) = (BTreeSet::new(), Vec::new());
    for panel in panels(dashboard) {
        let title = text(&panel["title"]);
        if !panel["id"].as_u64().is_some_and(|id| id > 0 && ids.insert(id)) {
            say(format!("{title}: its id is missing or another panel's"));
        }
        match place(panel) {
            Some(place) if places.iter().any(|other| overlap(&place, other)) => {
                say(format!("{title}: lies over another panel"));
            }
            Some(place) => places.push(place),
            None => say(format!("{title}: has no place within {COLUMNS} columns")),
        }
        about(panel, contract).into_iter().for_each(|what| say(format!("{title}: {what}")));
    }
    if ids.len() < 2 {
        say("has no panels".to_owned());
    }
    wrong
}

/// What is wrong with one panel.
fn about(panel: &Value, contract: &Contract) -> Vec<String> {
    let mut wrong = Vec::new();
    if text(&panel["title"]).is_empty() || text(&panel["type"]).is_empty() {
        wrong.push("has no title or no type".to_owned());
    }
    if text(&panel["type"]) == "row" {
        return wrong;
    }
    let source = json!({"type": "prometheus", "uid": "${datasource}"});
    if panel["datasource"] != source {
        wrong.push("does not ask ${datasource}".to_owned());
    }
    if text(&panel["type"]) != "table" && text(&panel["fieldConfig"]["defaults"]["unit"]).is_empty() {
        wrong.push("has no unit".to_owned());
    }
    if text(&panel["description"]).is_empty() {
        wrong.push("has no description".to_owned());
    }
    let queries: Vec<&Value> = panel["targets"].as_array().into_iter().flatten().collect();
    if queries.is_empty() {
        wrong.push("has no query".to_owned());
    }
    let mut letters = BTreeSet::new();
    for query in queries {
        if !letters.insert(text(&query["refId"])) || text(&query["refId"]).is_empty() {
            wrong.push("has queries without a refId of their own".to_owned());
        }
        if query["datasource"] != source {
            wrong.push("has a query that does not ask ${datasource}".to_owned());
        }
        wrong.extend(contract.strangers(&filled(text(&query["expr"])), &[]));
        if filled(text(&query["expr"])).contains('$') {
            wrong.push("uses a variable that is not there".to_owned());
        }
    }
    wrong
}

/// What is wrong with the variables.
fn variables(dashboard: &Value, contract: &Contract) -> Vec<String> {
    let list = || dashboard["templating"]["list"].as_array().into_iter().flatten();
    let mut wrong = Vec::new();
    for needed in ["datasource", "namespace", "job"] {
        if !list().any(|variable| text(&variable["name"]) == needed) {
            wrong.push(format!("has no variable {needed}"));
        }
    }
    for variable in list().filter(|variable| text(&variable["type"]) == "query") {
        let definition = text(&variable["definition"]);
        let asked = definition.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
        match asked.and_then(|asked| asked.rsplit_once(", ")) {
            Some((metric, label)) => {
                let expression = format!("sum by ({label}) ({})", filled(metric));
                wrong.extend(contract.strangers(&expression, &[]));
            }
            None => wrong
                .push(format!("variable {}: not of the form label_values(METRIC, LABEL)", variable["name"])),
        }
    }
    wrong
}

type Place = [u64; 4];

fn place(panel: &Value) -> Option<Place> {
    let number = |name: &str| panel["gridPos"][name].as_u64();
    let place @ [x, _, w, h] = [number("x")?, number("y")?, number("w")?, number("h")?];
    (w > 0 && h > 0 && x + w <= COLUMNS).then_some(place)
}

fn overlap([x, y, w, h]: &Place, [x2, y2, w2, h2]: &Place) -> bool {
    x < &(x2 + w2) && x2 < &(x + w) && y < &(y2 + h2) && y2 < &(y + h)
}

/// Lets Prometheus' own tool read the expressions, as rules.
fn promtool(root: &Path, queries: &[Query]) -> Result<()> {
    let mut rules = String::from("groups:\n- name: dashboard\n  rules:\n");
    for (number, query) in queries.iter().enumerate() {
        writeln!(rules, "  - record: query:{number}\n    expr: {}", Value::from(query.expression.as_str()))?;
    }
    let folder = target(root)?.join("deploy");
    std::fs::create_dir_all(&folder)?;
    let file = folder.join("dashboard.rules.yaml");
    std::fs::write(&file, rules)?;
    quietly(&mut command(root, PROMTOOL, &["check", "rules", "--lint=none", &file.to_string_lossy()]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shipped() -> (Value, Contract) {
        let root = crate::root();
        (load(&root).unwrap(), extended_contract(&root).unwrap())
    }

    #[test]
    fn the_shipped_dashboard_is_whole() {
        let (dashboard, contract) = shipped();
        assert_eq!(wrong(&dashboard, &contract), [""; 0]);
        assert!(expressions(&dashboard).len() > 10);
    }

    #[test]
    fn what_grafana_or_prometheus_would_not_show_is_found() {
        let (dashboard, contract) = shipped();
        let complains = |pointer: &str, value: Value, about: &str| {
            let mut changed = dashboard.clone();
            *changed.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = value;
            let wrong = wrong(&changed, &contract).join("\n");
            assert!(wrong.contains(about), "{pointer}: {wrong}");
        };
        complains("/schemaVersion", json!(30), "schemaVersion");
        complains("/panels/1/id", dashboard["panels"][2]["id"].clone(), "another panel's");
        complains("/panels/1/gridPos", dashboard["panels"][2]["gridPos"].clone(), "lies over");
        complains("/panels/1/gridPos/w", json!(25), "no place");
        complains(
            "/panels/1/targets/0/expr",
            json!("firedoor_job_nothing"),
            "no metric firedoor_job_nothing",
        );
        complains("/panels/1/targets/0/expr", json!("up{job=~\"$jbo\"}"), "variable that is not there");
        complains("/panels/1/datasource", json!("other"), "does not ask");
        complains("/templating/list/1/definition", json!("label_values(up, pod)"), "which nothing here has");
    }

    #[test]
    #[ignore = "runs promtool; `cargo xtask deploy` runs it"]
    fn promtool_refuses_what_is_no_promql() {
        let query = |expression: &str| [Query { panel: "p".to_owned(), expression: expression.to_owned() }];
        promtool(&crate::root(), &query("sum(up)")).unwrap();
        promtool(&crate::root(), &query("sum(up")).unwrap_err();
        promtool(&crate::root(), &query("rate(up)")).unwrap_err();
    }
}

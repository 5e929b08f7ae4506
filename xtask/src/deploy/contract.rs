//! The metric contract: the table in `docs/metrics.md`. Enters: the page; leaves: what may be asked of Prometheus. Rules
//! and dashboard use nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::monitoring::Served;
use super::promql::{self, Names};

/// The page with the table.
pub(super) const PAGE: &str = "docs/metrics.md";
const TYPES: [&str; 3] = ["gauge", "counter", "histogram"];
const AGENTS: [&str; 3] = ["sum", "max", "each"];
/// Labels that the scrape gives a target.
const OF_TARGET: [&str; 3] = ["instance", "job", "namespace"];

/// Which series there are, and their labels.
#[derive(Debug, Default)]
pub(super) struct Contract {
    series: BTreeMap<String, BTreeSet<String>>,
}

impl Contract {
    /// Reads the page.
    ///
    /// # Errors
    /// When the table is not what it should be.
    pub(super) fn load(root: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(root.join(PAGE)).with_context(|| format!("cannot read {PAGE}"))?;
        Self::read(&text).with_context(|| format!("the table in {PAGE}"))
    }

    fn read(text: &str) -> Result<Self> {
        let rows = text.lines().filter(|line| line.starts_with("| `firedoor_"));
        let mut contract = Self::default();
        for row in rows {
            let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            let [name, kind, _unit, labels, agents, meaning] = cells[..] else {
                bail!("not six columns: {row}");
            };
            let name = name.trim_matches('`');
            if !TYPES.contains(&kind) || !AGENTS.contains(&agents) || meaning.is_empty() {
                bail!("{name}: type `{kind}`, agents `{agents}`, meaning `{meaning}`");
            }
            if (kind == "counter") != name.ends_with("_total") {
                bail!("{name}: counters, and they alone, end with _total");
            }
            let labels: BTreeSet<String> =
                labels.split(',').map(|label| label.trim().trim_matches('`').to_owned()).collect();
            let labels: BTreeSet<String> = labels.into_iter().filter(|label| !label.is_empty()).collect();
            if kind == "histogram" {
                for suffix in ["_count", "_sum"] {
                    contract.add(&format!("{name}{suffix}"), labels.clone())?;
                }
                let bucket = labels.into_iter().chain(["le".to_owned()]).collect();
                contract.add(&format!("{name}_bucket"), bucket)?;
            } else {
                contract.add(name, labels)?;
            }
        }
        if contract.series.is_empty() {
            bail!("there is none");
        }
        // Prometheus' own.
        contract.add("up", BTreeSet::new())?;
        Ok(contract)
    }

    /// Adds a recorded series.
    ///
    /// # Errors
    /// When there is one of this name.
    pub(super) fn add(&mut self, name: &str, mut labels: BTreeSet<String>) -> Result<()> {
        // What a rule records has the labels that it groups by; what is scraped also has the target's.
        if !name.contains(':') {
            labels.extend(OF_TARGET.map(str::to_owned));
        }
        if self.series.insert(name.to_owned(), labels).is_some() {
            bail!("{name} is there twice");
        }
        Ok(())
    }

    /// The series that an agent serves.
    pub(super) fn scraped(&self) -> impl Iterator<Item = &str> {
        self.series.keys().map(String::as_str).filter(|name| name.starts_with("firedoor_"))
    }

    /// Holds what an agent served, with the labels of each metric, against the contract.
    pub(super) fn compared(&self, seen: &BTreeMap<String, BTreeSet<String>>) -> Served {
        let mut served = Served::default();
        for (name, labels) in seen {
            match self.series.get(name) {
                None => served.strangers.push(name.clone()),
                Some(known) => {
                    served
                        .strangers
                        .extend(labels.difference(known).map(|label| format!("{name}{{{label}}}")));
                }
            }
        }
        let unseen = self.scraped().filter(|name| !seen.contains_key(*name));
        served.unseen = unseen.map(str::to_owned).collect();
        served
    }

    /// What an expression names and the contract does not know.
    pub(super) fn strangers(&self, expression: &str, also: &[&str]) -> Vec<String> {
        match promql::names(expression) {
            Ok(names) => self.strangers_in(&names, also),
            Err(why) => vec![why],
        }
    }

    fn strangers_in(&self, names: &Names, also: &[&str]) -> Vec<String> {
        let mut strangers = Vec::new();
        let mut reachable: BTreeSet<&str> = names.strings.iter().map(String::as_str).collect();
        for (metric, labels) in &names.selectors {
            let Some(known) = self.series.get(metric) else {
                strangers.push(format!("there is no metric {metric}"));
                continue;
            };
            let unknown =
                labels.iter().filter(|label| !known.contains(*label) && !also.contains(&label.as_str()));
            strangers.extend(unknown.map(|label| format!("{metric} has no label {label}")));
            reachable.extend(known.iter().map(String::as_str));
        }
        let grouped = names.groupings.iter().flatten();
        let unknown = grouped.filter(|label| !reachable.contains(label.as_str()));
        strangers.extend(unknown.map(|label| format!("groups by {label}, which nothing here has")));
        strangers
    }

    /// The labels that what an expression gives may have.
    pub(super) fn reachable(&self, names: &Names) -> BTreeSet<String> {
        let series = names.selectors.iter().filter_map(|(metric, _)| self.series.get(metric));
        series.flatten().cloned().chain(names.strings.iter().cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
| metric | type | unit | labels | agents | meaning |
|---|---|---|---|---|---|
| `firedoor_a` | gauge | 0 or 1 | `x`, `y` | max | a |
| `firedoor_b_total` | counter | bytes | | sum | b |
| `firedoor_c_seconds` | histogram | seconds | `x` | sum | c |
";

    #[test]
    fn the_table_says_what_there_is() {
        let contract = Contract::read(TABLE).unwrap();
        let strangers = |expression| contract.strangers(expression, &[]);
        assert_eq!(strangers("sum by (x, instance) (firedoor_a{y='1'})"), Vec::<String>::new());
        assert_eq!(
            strangers("histogram_quantile(0.5, sum by (le) (rate(firedoor_c_seconds_bucket[5m]))) and up"),
            [""; 0]
        );
        assert_eq!(strangers("firedoor_c_seconds"), ["there is no metric firedoor_c_seconds"]);
        assert_eq!(strangers("firedoor_a{z='1'}"), ["firedoor_a has no label z"]);
        assert_eq!(contract.strangers("firedoor_a{z='1'}", &["z"]), [""; 0]);
        assert_eq!(strangers("sum by (x) (firedoor_b_total)"), ["groups by x, which nothing here has"]);
    }

    #[test]
    fn what_an_agent_serves_is_compared() {
        let contract = Contract::read(TABLE).unwrap();
        let seen = |name: &str, labels: &[&str]| {
            (name.to_owned(), labels.iter().map(|label| (*label).to_owned()).collect::<BTreeSet<_>>())
        };
        let served = contract.compared(&BTreeMap::from([
            seen("firedoor_a", &["x", "pod", "instance"]),
            seen("firedoor_b_total", &[]),
            seen("firedoor_d", &[]),
        ]));
        assert_eq!(served.strangers, ["firedoor_a{pod}", "firedoor_d"]);
        let unseen = ["firedoor_c_seconds_bucket", "firedoor_c_seconds_count", "firedoor_c_seconds_sum"];
        assert_eq!(served.unseen, unseen);
    }

    #[test]
    fn a_table_that_is_none_is_refused() {
        for wrong in [
            "",
            "| `firedoor_a` | gauge | 1 | `x` | max |",
            "| `firedoor_a` | number | 1 | `x` | max | a |",
            "| `firedoor_a` | gauge | 1 | `x` | min | a |",
            "| `firedoor_a_total` | gauge | 1 | `x` | max | a |",
            "| `firedoor_a` | gauge | 1 | | max | a |\n| `firedoor_a` | gauge | 1 | | max | a |",
        ] {
            assert!(Contract::read(wrong).is_err(), "{wrong}");
        }
    }
}

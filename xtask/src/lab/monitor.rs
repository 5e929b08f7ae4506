//! The way of an alert while a scenario is played: a real Prometheus with the shipped rules scrapes the agent, a real
//! Alertmanager tells a webhook, and the dashboard's queries are asked. Enters: where the agent serves; leaves: checks.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::scenario::Scenario;
use super::verdict::Notes;
use crate::deploy::monitoring::{Alert, Monitoring, Target};

/// The chart's interval: how soon a person is told depends on it.
const INTERVAL: Duration = Duration::from_secs(15);
/// By when a person must know of a block.
const NOTICED: Duration = Duration::from_secs(60);
/// How long the end of a block may take to be told, on a busy machine.
const RESOLVED: Duration = Duration::from_secs(180);
const BLOCKED: &str = "FiredoorTrainingTrafficBlocked";
/// What the lab has nothing of, and whose panels are therefore empty: accelerators, Hubble, losses.
const ABSENT: [&str; 3] = [
    "firedoor_job_gpus",
    "firedoor_hubble_certificate_expiry_timestamp_seconds",
    "firedoor_source_lost_total",
];

/// Prometheus and Alertmanager beside a scenario.
pub(super) struct Monitor<'a> {
    root: &'a Path,
    monitoring: Monitoring,
    /// Queries of the dashboard that had an answer, now or before: some have one only while something is wrong.
    answered: BTreeSet<String>,
}

impl<'a> Monitor<'a> {
    pub(super) fn start(root: &'a Path, directory: &Path, agent: SocketAddr) -> Result<Self> {
        let target = Target { address: agent, node: "lab".to_owned() };
        let folder = directory.join("monitoring");
        let monitoring = Monitoring::start(root, &folder, &[target], INTERVAL)?;
        Ok(Self { root, monitoring, answered: BTreeSet::new() })
    }

    /// The block reaches a person in time, with what is needed to act. `since` is when the workload noticed it.
    pub(super) fn block_is_told(
        &mut self,
        scenario: &Scenario,
        since: Instant,
        notes: &mut Notes,
    ) -> Result<()> {
        let left = NOTICED.saturating_sub(since.elapsed());
        match self.monitoring.wait_for_alert(BLOCKED, left) {
            Ok(alert) => {
                let after = format!("{:.1} s after the workload ran into it", since.elapsed().as_secs_f64());
                notes.check("an alert tells of the block within a minute", true, after);
                let wrong = wrong(&alert, scenario);
                let detail = if wrong.is_empty() { told(&alert) } else { wrong.join("; ") };
                notes.check("the alert says what is needed", wrong.is_empty(), detail);
            }
            Err(why) => {
                notes.check("an alert tells of the block within a minute", false, format!("{why:#}"));
            }
        }
        self.ask_everything(notes).map(drop)
    }

    /// Asks every query of the dashboard; gives the panels that never had an answer.
    fn ask_everything(&mut self, notes: &mut Notes) -> Result<BTreeSet<String>> {
        let shown = self.monitoring.run_every_dashboard_query(self.root)?;
        let refused: Vec<String> =
            shown.refused.iter().map(|(query, why)| format!("{}: {why}", query.panel)).collect();
        notes.check("Prometheus takes every query of the dashboard", refused.is_empty(), refused.join("; "));
        self.answered.extend(shown.answered.iter().map(|query| query.expression.clone()));
        let silent = shown.empty.into_iter().filter(|query| {
            !self.answered.contains(&query.expression)
                && !ABSENT.iter().any(|absent| query.expression.contains(absent))
        });
        Ok(silent.map(|query| query.panel).collect())
    }

    /// The end of the block reaches them, too; and Prometheus has an answer to all that is asked of it.
    pub(super) fn end_is_told(&mut self, notes: &mut Notes) -> Result<()> {
        let since = Instant::now();
        let resolved = self.monitoring.wait_for_resolved(BLOCKED, RESOLVED);
        let detail = match &resolved {
            Ok(_) => format!("{:.1} s after the report showed it", since.elapsed().as_secs_f64()),
            Err(why) => format!("{why:#}"),
        };
        notes.check("the alert resolves after the fix", resolved.is_ok(), detail);
        let silent = self.ask_everything(notes)?;
        let detail = format!("{} queries had an answer, none had {silent:?}", self.answered.len());
        let shows = silent.is_empty() && !self.answered.is_empty();
        notes.check("the dashboard shows what the lab has", shows, detail);
        let served = self.monitoring.served(self.root)?;
        let unknown = served.strangers.join(", ");
        notes.check("what the agent serves is what the contract lists", unknown.is_empty(), unknown);
        let failing = self.monitoring.failing_rules()?;
        notes.check("every rule can be evaluated", failing.is_empty(), failing.join("; "));
        Ok(())
    }
}

/// What a person needs and does not find in an alert.
fn wrong(alert: &Alert, scenario: &Scenario) -> Vec<String> {
    let [near, far] = scenario.cloud.zones();
    let job = scenario.breach.as_ref().map_or("", |breach| breach.job);
    let label = |name: &str| alert.labels.get(name).map_or("", String::as_str);
    let annotation = |name: &str| alert.annotations.get(name).map_or("", String::as_str);
    let expected = [
        ("severity", label("severity"), "critical".to_owned()),
        ("job", label("job"), job.to_owned()),
        ("kind", label("kind"), "PyTorchJob".to_owned()),
        ("cause", label("cause"), "policy".to_owned()),
        ("zones", annotation("zones"), format!("{near} to {far}")),
        ("reason", annotation("reason"), "NETFILTER_DROP".to_owned()),
    ];
    let differing = expected.into_iter().filter(|(_, is, should)| is != should);
    let mut wrong: Vec<String> =
        differing.map(|(name, is, should)| format!("{name} is {is:?}, should be {should:?}")).collect();
    if !annotation("policy").contains("stay-in-zone") {
        wrong.push(format!("policy is {:?}", annotation("policy")));
    }
    wrong
}

fn told(alert: &Alert) -> String {
    alert.annotations.get("summary").cloned().unwrap_or_default()
}

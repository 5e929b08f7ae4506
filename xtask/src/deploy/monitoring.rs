//! A Prometheus and an Alertmanager of their own, with the shipped rules, for tests that watch real agents. Enters: what
//! to scrape; leaves: the alerts that reach a person, and what the dashboard would show. Of the rules only the interval
//! of evaluation is changed, so that a test takes seconds; `for` and all ranges stay.
//!
//! Both servers are child processes on free ports of the loopback, with their data in a folder that the caller gives.
//! They end when the value is dropped, or with the thread that started them, however that ends.

pub(crate) mod http;
mod servers;
mod webhook;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::contract::Contract;
use super::dashboard::{self, Query};
use crate::command::wait_for;
use crate::setup::{self, Purpose};
use servers::Server;
use webhook::Webhook;
pub(crate) use webhook::{Alert, Status};

/// An agent to scrape.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// Where it serves.
    pub(crate) address: SocketAddr,
    /// The node's name, which becomes `instance`.
    pub(crate) node: String,
}

/// One value of an answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    /// Its labels, without the metric's name.
    pub(crate) labels: BTreeMap<String, String>,
    /// The value.
    pub(crate) value: f64,
}

/// What became of the dashboard's queries.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    /// Queries with an answer.
    pub(crate) answered: Vec<Query>,
    /// Queries that Prometheus answers with nothing.
    pub(crate) empty: Vec<Query>,
    /// Queries that Prometheus refuses, and why.
    pub(crate) refused: Vec<(Query, String)>,
}

/// What was scraped, held against the metric contract in `docs/metrics.md`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Served {
    /// Metrics and labels that the contract does not have.
    pub(crate) strangers: Vec<String>,
    /// Metrics of the contract that were not seen; some cannot be observed everywhere.
    pub(crate) unseen: Vec<String>,
}

/// Prometheus, Alertmanager and whom it tells, running.
pub(crate) struct Monitoring {
    prometheus: Server,
    alertmanager: Server,
    webhook: Webhook,
}

impl Monitoring {
    /// Starts everything. `folder` is made and filled; `interval` is that of scraping and of evaluating rules, in whole
    /// seconds.
    ///
    /// # Errors
    /// When a server does not start: what it said.
    pub(crate) fn start(root: &Path, folder: &Path, targets: &[Target], interval: Duration) -> Result<Self> {
        setup::ensure(root, Purpose::Deploy)?;
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let folder = folder.canonicalize()?;
        let webhook = Webhook::start()?;
        let alertmanager = servers::alertmanager(root, &folder, webhook.address())?;
        let prometheus = servers::prometheus(root, &folder, targets, alertmanager.address(), interval)?;
        Ok(Self { prometheus, alertmanager, webhook })
    }

    /// Where Prometheus serves.
    pub(crate) fn prometheus(&self) -> SocketAddr {
        self.prometheus.address()
    }

    /// Where Alertmanager serves.
    pub(crate) fn alertmanager(&self) -> SocketAddr {
        self.alertmanager.address()
    }

    /// All that reached the webhook, oldest first.
    pub(crate) fn alerts(&self) -> Vec<Alert> {
        self.webhook.alerts()
    }

    /// Waits until an alert of this name has reached the webhook and fires.
    ///
    /// # Errors
    /// When none has after `limit`: what Prometheus thinks of its rules.
    pub(crate) fn wait_for_alert(&self, name: &str, limit: Duration) -> Result<Alert> {
        let firing = || Ok(self.newest(name).into_iter().find(|alert| alert.status == Status::Firing));
        wait_for(&format!("the alert {name}"), limit, firing).with_context(|| self.explained())
    }

    /// Waits until every alert of this name that reached the webhook was resolved there, and one was.
    ///
    /// # Errors
    /// When one still fires after `limit`.
    pub(crate) fn wait_for_resolved(&self, name: &str, limit: Duration) -> Result<Alert> {
        let resolved = || {
            let alerts = self.newest(name);
            let all = alerts.iter().all(|alert| alert.status == Status::Resolved);
            Ok(if all { alerts.into_iter().next() } else { None })
        };
        wait_for(&format!("the alert {name} to resolve"), limit, resolved).with_context(|| self.explained())
    }

    /// The newest word on each alert of this name, by its labels.
    fn newest(&self, name: &str) -> Vec<Alert> {
        let named = self.alerts().into_iter().filter(|alert| alert.name() == name);
        let newest: BTreeMap<_, _> = named.map(|alert| (alert.labels.clone(), alert)).collect();
        newest.into_values().collect()
    }

    /// What Prometheus answers now.
    ///
    /// # Errors
    /// When it refuses the expression, or answers with something else than a vector or a number.
    pub(crate) fn query(&self, expression: &str) -> Result<Vec<Sample>> {
        let path = format!("/api/v1/query?query={}", http::encoded(expression));
        let (status, body) = http::get(self.prometheus(), &path)?;
        let answer: Value = serde_json::from_str(&body)
            .with_context(|| format!("Prometheus speaks no JSON ({status}): {body}"))?;
        if answer["status"] != "success" {
            bail!("Prometheus refuses `{expression}`: {}", answer["error"].as_str().unwrap_or(&body));
        }
        let result = &answer["data"]["result"];
        match answer["data"]["resultType"].as_str() {
            Some("vector") => result.as_array().into_iter().flatten().map(sample).collect(),
            Some("scalar") => Ok(vec![Sample { labels: BTreeMap::new(), value: number(&result[1])? }]),
            other => bail!("`{expression}` gives {other:?}"),
        }
    }

    /// Asks every query of the dashboard, with all namespaces and jobs chosen.
    ///
    /// # Errors
    /// When the dashboard cannot be read; what Prometheus refuses is in the answer.
    pub(crate) fn run_every_dashboard_query(&self, root: &Path) -> Result<Shown> {
        let mut shown = Shown::default();
        for query in dashboard::queries(root)? {
            match self.query(&query.expression) {
                Ok(samples) if samples.is_empty() => shown.empty.push(query),
                Ok(_) => shown.answered.push(query),
                Err(why) => shown.refused.push((query, format!("{why:#}"))),
            }
        }
        Ok(shown)
    }

    /// Whether what was scraped so far is what the contract lists.
    ///
    /// # Errors
    /// When the contract cannot be read, or Prometheus does not answer.
    pub(crate) fn served(&self, root: &Path) -> Result<Served> {
        let matching = http::encoded("{__name__=~\"firedoor_.+\"}");
        let (_, body) = http::get(self.prometheus(), &format!("/api/v1/series?match[]={matching}"))?;
        let answer: Value = serde_json::from_str(&body)?;
        let series = answer["data"].as_array().context("Prometheus tells of no series")?;
        let mut seen: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for labels in series.iter().filter_map(Value::as_object) {
            let name = labels.get("__name__").and_then(Value::as_str).unwrap_or_default();
            let names = labels.keys().filter(|label| *label != "__name__").cloned();
            seen.entry(name.to_owned()).or_default().extend(names);
        }
        Ok(Contract::load(root)?.compared(&seen))
    }

    /// Rules that Prometheus could not evaluate, with the reason.
    ///
    /// # Errors
    /// When Prometheus does not answer.
    pub(crate) fn failing_rules(&self) -> Result<Vec<String>> {
        let (_, body) = http::get(self.prometheus(), "/api/v1/rules")?;
        let answer: Value = serde_json::from_str(&body)?;
        let groups = answer["data"]["groups"].as_array().context("Prometheus has no rules")?;
        let rules = groups.iter().flat_map(|group| group["rules"].as_array().into_iter().flatten());
        let failing = rules.filter(|rule| rule["health"] == "err");
        Ok(failing.map(|rule| format!("{}: {}", rule["name"], rule["lastError"])).collect())
    }

    /// For the message of a wait in vain.
    fn explained(&self) -> String {
        let failing = self.failing_rules().unwrap_or_else(|why| vec![format!("{why:#}")]);
        let active =
            http::get(self.prometheus(), "/api/v1/alerts").map_or_else(|e| e.to_string(), |(_, body)| body);
        let targets = self.query("up{job=\"firedoor\"}");
        let told: Vec<String> =
            self.alerts().iter().map(|alert| format!("{} {:?}", alert.name(), alert.status)).collect();
        format!("failing rules: {failing:?}; active alerts: {active}; targets: {targets:?}; told: {told:?}")
    }
}

fn sample(value: &Value) -> Result<Sample> {
    let mut labels: BTreeMap<String, String> = serde_json::from_value(value["metric"].clone())?;
    labels.remove("__name__");
    Ok(Sample { labels, value: number(&value["value"][1])? })
}

fn number(value: &Value) -> Result<f64> {
    let text = value.as_str().context("a value that is no text")?;
    text.parse().with_context(|| format!("a value that is no number: {text}"))
}

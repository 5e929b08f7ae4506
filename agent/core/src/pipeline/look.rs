//! What a live pipeline does each second: it forgets what is over, shows the counters, and judges the jobs of which more
//! was learnt than another success. The others are judged again after a while, for time alone changes little.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Blind, Pipeline, SourceState, denials, take_told};
use crate::diagnose::{Evidence, job_report, report_of};
use crate::inventory::{FastMap, JobIndex, PodId};
use crate::ledger::{Ledger, ObserverId, Totals, Window, WindowKey};
use crate::observation::SourceKind;
use crate::policy::PolicySet;
use crate::report::{JobReport, Report};
use crate::time::Timestamp;

/// Every job is judged again after the width of a window and up to so many seconds, one after the other.
const SPREAD: u32 = 10;
/// Things are looked through for what is over this many times a horizon.
const AGEINGS: u32 = 20;

/// What concerns every job.
#[derive(Clone, PartialEq, Debug, Default)]
struct Common {
    missing: Vec<(ObserverId, u64, u64, Vec<SourceKind>)>,
    blind: Blind,
    sources: BTreeMap<SourceKind, SourceState>,
    readings: u64,
}

/// What is remembered from look to look.
#[derive(Default)]
pub(super) struct Looks {
    judged: FastMap<JobIndex, (Timestamp, JobReport)>,
    common: Common,
    /// The policies; `None`: to be read anew.
    policies: Option<PolicySet>,
    /// Pods of which the last look told more than what is closed does.
    open: BTreeSet<PodId>,
    aged: Option<Timestamp>,
    /// What had become of everything when the half of the horizon before the present one began, and when this one did.
    base: [Totals; 2],
}

impl Looks {
    /// The cluster changed.
    pub(super) fn start_anew(&mut self) {
        self.judged.clear();
        self.policies = None;
    }

    /// What became of everything within the horizon.
    pub(super) fn totals(&self, ledger: &Ledger) -> Totals {
        ledger.totals().since(self.base[0])
    }
}

impl Pipeline {
    /// A look at everything so far, for a pipeline that lives on: the report, and counters that hold what is in open
    /// windows, too. With a horizon, jobs of which nothing but success was seen are judged only now and then: what is told
    /// of them may be as old as a window and ten seconds.
    #[must_use]
    pub fn look(&mut self) -> Report {
        self.age();
        let mut settled = self.ledger.settled();
        let carried = take_told(settled.as_mut());
        let ledger = settled.as_ref().unwrap_or(&self.ledger);
        let open: Vec<(WindowKey, &Window)> = ledger.open_windows().iter().map(|(k, w)| (*k, w)).collect();
        let (tallies, inventory) = (&mut self.tallies, &self.inventory);
        denials(&self.history, &open, inventory, ledger.observers(), &mut |pair, direction, denied| {
            tallies.deny(pair, direction, denied, inventory, false);
        });
        tallies.show();
        if self.settings.horizon.is_none() {
            return self.report();
        }
        let history = self.overlay(ledger, &carried);
        let mut changed = self.history.take_eventful();
        let open: BTreeSet<PodId> = history.pairs.callers().collect();
        changed.extend(&open);
        changed.extend(std::mem::replace(&mut self.looks.open, open));
        let policies = match self.looks.policies.take() {
            Some(policies) => policies,
            None => self.policies(),
        };
        let evidence = Evidence {
            inventory,
            policies: &policies,
            history: &history,
            closed: Some(&self.history.pairs),
            observers: ledger.observers(),
            totals: self.looks.totals(ledger),
            readings: &self.readings,
            blind: &self.blind,
            sources: &self.sources,
            passed: self.passed,
            settings: &self.settings,
        };
        let jobs = self.looks.judge(&evidence, &changed);
        let mut report = report_of(&evidence, jobs);
        report.suggestions = self.strangers.suggestions(inventory);
        self.looks.policies = Some(policies);
        self.inventory.pack();
        report
    }

    /// Forgets what is over.
    fn age(&mut self) {
        let (Some(horizon), Some(now)) = (self.settings.horizon, self.now()) else { return };
        if self.looks.aged.is_some_and(|aged| now < aged.plus(horizon / AGEINGS)) {
            return;
        }
        self.looks.aged = Some(now);
        let since = now.minus(horizon);
        if self.history.age(now, horizon) {
            self.looks.base = [self.looks.base[1], self.ledger.totals().decided()];
            self.strangers.turn();
            self.blind.forget_unknown(&self.inventory);
        }
        let inventory = &self.inventory;
        self.readings
            .forget_before(since, |namespace, pod| inventory.pod_named(namespace, pod, now).is_some());
        self.ledger.forget_before(since, self.history.observers().map(|(id, _)| id));
        if self.inventory.is_due(since) {
            self.update(self.inventory.current(), &BTreeMap::new());
        }
    }
}

impl Looks {
    /// The reports of all jobs: of those that changed, or were judged long ago, anew.
    fn judge(&mut self, evidence: &Evidence<'_>, changed: &BTreeSet<PodId>) -> Vec<JobReport> {
        let missing = evidence.history.observers().map(|(id, of)| (id, of.lost, of.overflow, of.sources));
        let common = Common {
            missing: missing.collect(),
            blind: evidence.blind.clone(),
            sources: evidence.sources.clone(),
            readings: evidence.readings.edition(),
        };
        if self.common != common {
            self.judged.clear();
            self.common = common;
        }
        let inventory = evidence.inventory;
        let changed: BTreeSet<JobIndex> =
            changed.iter().filter_map(|pod| Some(inventory.job_of(*pod)?.0)).collect();
        let now = evidence.now().unwrap_or(Timestamp::MIN);
        let window = evidence.settings.window;
        let jobs = inventory.jobs().map(|(index, _)| index).filter(|index| inventory.has_company(*index));
        jobs.map(|index| {
            let spread = Duration::from_secs(u64::from(index.0 % SPREAD));
            match self.judged.get(&index) {
                Some((at, report)) if !changed.contains(&index) && now < at.plus(window + spread) => {
                    report.clone()
                }
                _ => {
                    let report = job_report(evidence, index);
                    self.judged.insert(index, (now, report.clone()));
                    report
                }
            }
        })
        .collect()
    }
}

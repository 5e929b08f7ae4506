//! Findings that appear, change or recover: one line each, never one a flow.

use std::collections::BTreeMap;

use firedoor_core::report::{FindingState, Report};

/// A finding, as long as it is the same one.
type Key = (String, String, String, &'static str, &'static str);

/// What was told of each finding.
#[derive(Default)]
pub(super) struct Transitions {
    told: BTreeMap<Key, FindingState>,
}

impl Transitions {
    /// Tells what changed since the last report.
    pub(super) fn tell(&mut self, report: &Report, say: &mut dyn FnMut(&str)) {
        let mut now = BTreeMap::new();
        for job in &report.jobs {
            for finding in &job.findings {
                let key = (
                    job.namespace.clone(),
                    job.kind.clone(),
                    job.name.clone(),
                    finding.symptom.as_str(),
                    finding.cause.kind.as_str(),
                );
                if self.told.get(&key) != Some(&finding.state) && now.get(&key) != Some(&finding.state) {
                    let line = format!(
                        "{} {}/{} {} {}: {}",
                        job.kind,
                        job.namespace,
                        job.name,
                        finding.symptom.as_str(),
                        finding.state.as_str(),
                        finding.summary
                    );
                    say(&line);
                }
                now.insert(key, finding.state);
            }
        }
        self.told = now;
    }
}

//! How much of what happened a report is made from. Enters: nothing; these are plain values. What is for people only is
//! not part of the contract of the JSON form.

use serde::Serialize;

use crate::observation::Capabilities;
use crate::time::Timestamp;

/// From the first to the last event.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct ReportWindow {
    /// `null` when nothing was seen.
    pub start: Option<Timestamp>,
    /// `null` when nothing was seen.
    pub end: Option<Timestamp>,
    /// When this was said, where time passes by a clock; for people only.
    #[serde(skip)]
    pub as_of: Option<Timestamp>,
}

/// How much of what happened was seen.
/// `received = attributed + not_a_job + rejected + late + duplicate`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Coverage {
    /// Kinds of source that reported, sorted.
    pub sources: Vec<&'static str>,
    /// What they can see together.
    pub capabilities: Capabilities,
    /// Flow events that entered.
    pub received: u64,
    /// Of those: concern a job.
    pub attributed: u64,
    /// Of those: concern no job.
    pub not_a_job: u64,
    /// Of those: unreadable, or from an impossible time.
    pub rejected: u64,
    /// Of those: came after their window was closed.
    pub late: u64,
    /// Of those: told before.
    pub duplicate: u64,
    /// Events known to be missing.
    pub lost: u64,
    /// Whether nothing is known to be missing.
    pub complete: bool,
    /// Of `not_a_job`: an end was not in the inventory.
    pub unresolved: u64,
    /// Of `attributed`: the job is known, but not which of its pods.
    pub ambiguous: u64,
    /// Of `rejected`: the time lies impossibly far ahead.
    pub far_future: u64,
    /// Nodes a relay could not reach.
    pub blind_nodes: Vec<String>,
    /// Events of pairs beyond those that are followed; for people only.
    #[serde(skip)]
    pub overflow: u64,
    /// The kinds of source that should tell, where somebody said whether they do; for people only.
    #[serde(skip)]
    pub watched: Vec<SourceReport>,
}

/// A kind of source that somebody keeps watch over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SourceReport {
    /// Its name.
    pub source: &'static str,
    /// Whether it tells what happens.
    pub up: bool,
    /// Since when that is so.
    pub since: Timestamp,
}

//! What the board shows, as metrics. Computed at each scrape, so that a job that is gone takes its series along. Enters:
//! the board; leaves: Prometheus' text or OpenMetrics. No pod names, addresses or ports in labels: the number of series
//! of a job is bounded by its zones, roles and reasons, not by its pods. Names and labels are a contract, listed in
//! docs/metrics.md.

mod encode;
mod families;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;

pub(super) use encode::Form;

use super::board::Shown;

/// Writes all metrics.
pub(super) fn write(shown: &Arc<Shown>, form: Form, to: &mut Vec<u8>) -> io::Result<()> {
    encode::write(families::of(shown), form, to)
}

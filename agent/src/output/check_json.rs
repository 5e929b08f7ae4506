//! A check's report as JSON, pretty-printed: the same report is the same bytes.

use std::io::{self, Write};

use firedoor_core::check::CheckReport;

/// Writes the report and a final newline.
///
/// # Errors
/// When writing fails.
pub fn write(report: &CheckReport, to: impl Write) -> io::Result<()> {
    super::escaped_json::write(report, to)
}

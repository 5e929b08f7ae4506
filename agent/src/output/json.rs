//! The report as JSON, pretty-printed: the same report is the same bytes.

use std::io::{self, Write};

use firedoor_core::report::Report;

/// Writes the report and a final newline.
///
/// # Errors
/// When writing fails.
pub fn write(report: &Report, to: impl Write) -> io::Result<()> {
    super::escaped_json::write(report, to)
}

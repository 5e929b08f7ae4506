//! A check's report as JSON, pretty-printed: the same report is the same bytes.

use std::io::{self, Write};

use firedoor_core::check::CheckReport;

/// Writes the report and a final newline.
///
/// # Errors
/// When writing fails.
pub fn write(report: &CheckReport, mut to: impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut to, report)?;
    to.write_all(b"\n")?;
    to.flush()
}

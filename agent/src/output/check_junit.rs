//! A check's report as JUnit XML, which most CI systems show. Enters: a report and what fails; leaves: a test case for
//! each job and each finding that is more than a note.

use std::collections::HashMap;
use std::io::{self, Write};

use firedoor_core::check::{CheckFinding, CheckReport, JobName, Severity};

use crate::harmless::is_harmful;

/// Writes the document.
///
/// # Errors
/// When writing fails.
pub fn write(report: &CheckReport, fail_on: Severity, mut to: impl Write) -> io::Result<()> {
    let failing =
        |finding: &&CheckFinding| finding.severity != Severity::Unknown && finding.severity <= fail_on;
    let unknown = |finding: &&CheckFinding| finding.severity == Severity::Unknown;
    let failures = report.findings.iter().filter(failing).count();
    let skipped = report.findings.iter().filter(unknown).count();
    let clean: Vec<&JobName> = report
        .jobs
        .iter()
        .map(|job| &job.name)
        .filter(|name| {
            !report.findings.iter().any(|f| f.job.as_ref() == Some(name) && (failing(&f) || unknown(&f)))
        })
        .collect();
    let tests = failures + skipped + clean.len();
    writeln!(to, r#"<?xml version="1.0" encoding="UTF-8"?>"#)?;
    writeln!(
        to,
        r#"<testsuites name="firedoor check" tests="{tests}" failures="{failures}" errors="0" skipped="{skipped}">"#
    )?;
    writeln!(
        to,
        r#"  <testsuite name="firedoor check" tests="{tests}" failures="{failures}" errors="0" skipped="{skipped}">"#
    )?;
    let mut names = Names::default();
    for job in clean {
        let class = class(Some(job));
        let name = names.unique(&class, "members can talk");
        writeln!(to, r#"    <testcase classname="{}" name="{}"/>"#, escaped(&class), escaped(&name))?;
    }
    for finding in report.findings.iter().filter(|finding| failing(finding) || unknown(finding)) {
        case(finding, &mut names, &mut to)?;
    }
    let remarks: Vec<&CheckFinding> = report.findings.iter().filter(|f| !failing(f) && !unknown(f)).collect();
    if !remarks.is_empty() {
        writeln!(to, "    <system-out>")?;
        for finding in remarks {
            writeln!(to, "{}: {}", finding.severity.as_str(), escaped(&finding.summary))?;
        }
        writeln!(to, "    </system-out>")?;
    }
    writeln!(to, "  </testsuite>\n</testsuites>")?;
    to.flush()
}

fn class(job: Option<&JobName>) -> String {
    job.map_or_else(|| "inputs".to_owned(), |job| format!("{}.{}.{}", job.namespace, job.kind, job.name))
}

/// The names given so far. CI systems take cases of one class and name for one case, and show only one of them.
#[derive(Default)]
struct Names(HashMap<(String, String), usize>);

impl Names {
    fn unique(&mut self, class: &str, name: &str) -> String {
        let count = self.0.entry((class.to_owned(), name.to_owned())).or_default();
        *count += 1;
        if *count == 1 { name.to_owned() } else { format!("{name} #{count}") }
    }
}

fn case(finding: &CheckFinding, names: &mut Names, to: &mut impl Write) -> io::Result<()> {
    let object = &finding.object;
    let place = object.namespace.as_ref().map_or_else(String::new, |namespace| format!("{namespace}/"));
    let name = format!("{} {} {place}{}", finding.rule.as_str(), object.kind, object.name);
    let class = class(finding.job.as_ref());
    let name = names.unique(&class, name.trim());
    write!(to, r#"    <testcase classname="{}" name="{}""#, escaped(&class), escaped(&name))?;
    if let Some(file) = &object.file {
        write!(to, r#" file="{}" line="{}""#, escaped(file), object.line.unwrap_or(1))?;
    }
    writeln!(to, ">")?;
    let message = escaped(&finding.summary);
    if finding.severity == Severity::Unknown {
        writeln!(to, r#"      <skipped message="{message}"/>"#)?;
    } else {
        let body: Vec<String> =
            finding.evidence.iter().chain(&finding.advice).map(|line| escaped(line)).collect();
        let kind = finding.rule.as_str();
        writeln!(to, r#"      <failure type="{kind}" message="{message}">{}</failure>"#, body.join("\n"))?;
    }
    writeln!(to, "    </testcase>")
}

/// Text for XML 1.0, which has no way at all to write most control characters.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            '\n' => escaped.push_str("&#10;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => escaped.push('\u{fffd}'),
            // Unseen, but they turn the direction of writing or end a line.
            c if is_harmful(c) => escaped.push_str(&format!("&#x{:x};", u32::from(c))),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_breaks_out_of_the_markup() {
        assert_eq!(
            escaped("a<b> & \"c\" 'd'\u{1b}[31m\u{0}"),
            "a&lt;b&gt; &amp; &quot;c&quot; &apos;d&apos;\u{fffd}[31m\u{fffd}"
        );
        assert_eq!(escaped("\u{9b}31m \u{202e}evil\u{2028}"), "\u{fffd}31m &#x202e;evil&#x2028;");
    }
}

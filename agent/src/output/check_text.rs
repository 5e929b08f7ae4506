//! A check's report for people: the jobs and where their pods may land, then each finding with its reasons and what to
//! do.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use firedoor_core::check::{
    CheckFinding, CheckReport, CheckVerdict, CheckedJob, CheckedPolicy, MissingReport, ObjectAt, Severity,
};

use crate::harmless::harmless as shown;

/// Missing allows that are told one by one.
const MISSING: usize = 6;

struct Paint(bool);

impl Paint {
    fn with(&self, style: Style, text: &str) -> String {
        if self.0 { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }

    fn severity(&self, severity: Severity) -> String {
        let colour = match severity {
            Severity::Error => AnsiColor::Red,
            Severity::Unknown => AnsiColor::Cyan,
            Severity::Warning => AnsiColor::Yellow,
            Severity::Note => AnsiColor::Blue,
        };
        self.with(colour.on_default().bold(), severity.as_str())
    }

    fn verdict(&self, verdict: CheckVerdict) -> String {
        let (colour, text) = match verdict {
            CheckVerdict::Blocked => (AnsiColor::Red, "WOULD BLOCK"),
            CheckVerdict::Unknown => (AnsiColor::Cyan, "CANNOT BE KNOWN"),
            CheckVerdict::Open => (AnsiColor::Green, "WOULD TALK"),
        };
        self.with(colour.on_default().bold(), text)
    }

    fn dim(&self, text: &str) -> String {
        self.with(Style::new().dimmed(), text)
    }
}

/// Writes the report.
///
/// # Errors
/// When writing fails.
pub fn write(report: &CheckReport, coloured: bool, mut to: impl Write) -> io::Result<()> {
    let paint = Paint(coloured);
    let count = |severity: Severity| report.findings.iter().filter(|f| f.severity == severity).count();
    let counts = [Severity::Error, Severity::Unknown, Severity::Warning, Severity::Note].map(|severity| {
        let count = count(severity);
        (count > 0).then(|| format!("{count} {}{}", severity.as_str(), plural(severity, count)))
    });
    let counts: Vec<String> = counts.into_iter().flatten().collect();
    let told = if counts.is_empty() { String::new() } else { format!(": {}", counts.join(", ")) };
    let jobs = report.jobs.len();
    let s = if jobs == 1 { "" } else { "s" };
    writeln!(to, "{}  {jobs} job{s} checked{told}", paint.verdict(report.verdict))?;
    for job in &report.jobs {
        write_job(job, &paint, &mut to)?;
    }
    for finding in &report.findings {
        write_finding(finding, &paint, &mut to)?;
    }
    to.flush()
}

fn plural(severity: Severity, count: usize) -> &'static str {
    if count == 1 || severity == Severity::Unknown { "" } else { "s" }
}

fn write_job(job: &CheckedJob, paint: &Paint, to: &mut impl Write) -> io::Result<()> {
    let name = format!("{} {}/{}", job.name.kind, job.name.namespace, job.name.name);
    writeln!(to, "\n{}  {} pods", paint.with(Style::new().bold(), &shown(&name)), job.members)?;
    for template in &job.templates {
        let zones = match &template.zones {
            None => "zone not known".to_owned(),
            Some(zones) if zones.is_empty() => "no node takes them".to_owned(),
            Some(zones) => format!("in {}", zones.join(" or ")),
        };
        let part =
            if template.template.is_empty() { String::new() } else { format!(" ({})", template.template) };
        let line = format!(
            "{} x {}, {} {}{part}: {zones}",
            template.pods, template.role, template.object.kind, template.object.name
        );
        writeln!(to, "  {}", shown(&line))?;
    }
    Ok(())
}

fn write_finding(finding: &CheckFinding, paint: &Paint, to: &mut impl Write) -> io::Result<()> {
    writeln!(to, "\n{} {}", paint.severity(finding.severity), shown(&finding.summary))?;
    let place = place(&finding.object);
    writeln!(to, "  {}", paint.dim(&shown(&format!("{} [{}]", place, finding.rule.as_str()))))?;
    for line in &finding.evidence {
        writeln!(to, "  - {}", shown(line))?;
    }
    for policy in &finding.policies {
        writeln!(to, "  policy {}", shown(&told(policy)))?;
    }
    for missing in finding.missing.iter().take(MISSING) {
        writeln!(to, "  missing {}", shown(&allow(missing)))?;
    }
    if finding.missing.len() > MISSING {
        writeln!(to, "  and {} more missing allows", finding.missing.len() - MISSING)?;
    }
    for line in &finding.advice {
        writeln!(to, "  > {}", shown(line))?;
    }
    Ok(())
}

fn place(object: &ObjectAt) -> String {
    let name = match &object.namespace {
        Some(namespace) => format!("{} {namespace}/{}", object.kind, object.name),
        None => format!("{} {}", object.kind, object.name),
    };
    match (&object.file, object.line) {
        (Some(file), Some(line)) => format!("{file}:{line} {name}").trim_end().to_owned(),
        _ => name.trim().to_owned(),
    }
}

fn told(policy: &CheckedPolicy) -> String {
    let how = [policy.direction.unwrap_or_default(), policy.effect].join(" ");
    format!("{}: {}", place(&policy.object), how.trim())
}

fn allow(missing: &MissingReport) -> String {
    let towards = if missing.direction == "egress" { "to" } else { "from" };
    let ports = missing.ports.join(", ");
    format!(
        "{} allow on {} {towards} {}: {} {ports}",
        missing.direction, missing.subject, missing.peer, missing.protocol
    )
}

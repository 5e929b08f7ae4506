//! The report for people: for each job one verdict, one sentence why, the pairs in a table by role and zone, the
//! evidence. A job of a thousand pods takes a page, not a thousand lines.

use std::collections::BTreeMap;
use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use firedoor_core::report::{
    Certainty, Coverage, EndReport, FindingReport, FindingState, JobReport, JobVerdict, PairReport,
    PolicyBlame, PolicyEffect, RemedyReport, Report, Severity, Symptom,
};
use firedoor_core::time::Timestamp;

use crate::harmless::harmless as plain;

/// Rows of a table before the rest is summed up.
const ROWS: usize = 12;
/// Healthy jobs that are listed one by one.
const LISTED: usize = 50;

struct Paint(bool);

impl Paint {
    fn with(&self, style: Style, text: &str) -> String {
        if self.0 { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }

    fn bold(&self, text: &str) -> String {
        self.with(Style::new().bold(), text)
    }

    fn dim(&self, text: &str) -> String {
        self.with(Style::new().dimmed(), text)
    }

    fn verdict(&self, verdict: JobVerdict) -> String {
        let (colour, text) = match verdict {
            JobVerdict::HardBlock => (AnsiColor::Red, "HARD BLOCK"),
            JobVerdict::CrossZoneLatency => (AnsiColor::Yellow, "CROSS-ZONE LATENCY"),
            JobVerdict::EgressCost => (AnsiColor::Yellow, "EGRESS COST"),
            JobVerdict::Inconclusive => (AnsiColor::Cyan, "INCONCLUSIVE"),
            JobVerdict::Healthy => (AnsiColor::Green, "HEALTHY"),
        };
        self.with(colour.on_default().bold(), text)
    }
}

/// Writes the report.
///
/// # Errors
/// When writing fails.
pub fn write(report: &Report, coloured: bool, mut to: impl Write) -> io::Result<()> {
    let paint = Paint(coloured);
    headline(report, &paint, &mut to)?;
    let mut jobs: Vec<&JobReport> = report.jobs.iter().collect();
    jobs.sort_by_key(|job| job.verdict);
    let (quiet, telling): (Vec<&JobReport>, Vec<&JobReport>) =
        jobs.into_iter().partition(|job| job.verdict == JobVerdict::Healthy && job.findings.is_empty());
    for job in telling {
        write_job(job, &paint, &mut to)?;
    }
    for job in quiet.iter().take(LISTED) {
        writeln!(to, "\n{}  {}", paint.verdict(job.verdict), title(job, &paint))?;
    }
    if quiet.len() > LISTED {
        writeln!(to, "\nand {} more healthy jobs", quiet.len() - LISTED)?;
    }
    for suggestion in &report.suggestions {
        writeln!(to, "\n{}  {}", paint.bold("HINT"), plain(&suggestion.summary))?;
    }
    write_coverage(&report.coverage, &paint, &mut to)?;
    to.flush()
}

fn headline(report: &Report, paint: &Paint, to: &mut impl Write) -> io::Result<()> {
    let window = match (report.window.start, report.window.end) {
        (Some(start), Some(end)) => {
            format!("{} to {} ({})", second(start), second(end), duration(end.since(start).as_secs()))
        }
        _ => "nothing was seen".to_owned(),
    };
    let mut counts: BTreeMap<JobVerdict, usize> = BTreeMap::new();
    for job in &report.jobs {
        *counts.entry(job.verdict).or_default() += 1;
    }
    let counts: Vec<String> = counts.iter().map(|(verdict, n)| format!("{n} {}", verdict.as_str())).collect();
    let jobs = match report.jobs.len() {
        0 => "no job of two pods or more".to_owned(),
        n => format!("{}: {}", plural(n as u64, "job"), counts.join(", ")),
    };
    writeln!(to, "{}  {window}", paint.bold(&jobs))
}

fn title(job: &JobReport, paint: &Paint) -> String {
    let zones = if job.zones.is_empty() { "zones unknown".to_owned() } else { job.zones.join(" ") };
    let gpus =
        if job.gpu.gpus > 0 { format!(", {}", plural(job.gpu.gpus.into(), "GPU")) } else { String::new() };
    let name = plain(&format!("{}/{}", job.namespace, job.name));
    let facts = format!("{}, {}{gpus}, {zones}", job.kind, plural(job.members.len() as u64, "pod"));
    format!("{}  {}", paint.bold(&name), paint.dim(&plain(&facts)))
}

fn write_job(job: &JobReport, paint: &Paint, to: &mut impl Write) -> io::Result<()> {
    writeln!(to, "\n{}  {}", paint.verdict(job.verdict), title(job, paint))?;
    for finding in &job.findings {
        write_finding(finding, paint, to)?;
    }
    for unknown in &job.unknowns {
        writeln!(to, "  {} {}", paint.dim("unknown "), plain(unknown))?;
    }
    Ok(())
}

fn write_finding(finding: &FindingReport, paint: &Paint, to: &mut impl Write) -> io::Result<()> {
    let state = match finding.state {
        FindingState::Active => "active",
        FindingState::Ended => "ended unresolved",
        FindingState::Recovered => "recovered",
    };
    let colour = match (finding.state, finding.symptom.severity()) {
        (FindingState::Recovered, _) => AnsiColor::Green,
        (_, Severity::Critical) => AnsiColor::Red,
        (_, Severity::Warning) => AnsiColor::Yellow,
        (_, Severity::Info | Severity::None) => AnsiColor::Cyan,
    };
    let kind = paint.with(colour.on_default(), finding.symptom.as_str());
    writeln!(to, "  {kind}, {state}: {}", plain(&finding.summary))?;
    if let (Some(since), Some(last)) = (finding.since, finding.last_seen) {
        writeln!(to, "  {} {} to {}", paint.dim("when    "), second(since), second(last))?;
    }
    let reason =
        finding.cause.reason.as_ref().map_or_else(String::new, |reason| format!(" ({})", plain(reason)));
    writeln!(to, "  {} {}{reason}", paint.dim("cause   "), finding.cause.kind.as_str())?;
    for blame in &finding.cause.policies {
        writeln!(to, "  {} {}", paint.dim("policy  "), plain(&policy(blame)))?;
    }
    write_pairs(&finding.pairs, Columns::of(finding.symptom), paint, to)?;
    for evidence in &finding.evidence {
        writeln!(to, "  {} {}", paint.dim("evidence"), plain(evidence))?;
    }
    for (number, remedy) in (1..).zip(&finding.remedies) {
        write_remedy(number, remedy, paint, to)?;
    }
    Ok(())
}

/// What to do, not how: the patches are in `--fix` and `--format json`.
fn write_remedy(number: u32, remedy: &RemedyReport, paint: &Paint, to: &mut impl Write) -> io::Result<()> {
    let (colour, checked) = match remedy.verified {
        true => (AnsiColor::Green, "verified"),
        false => (AnsiColor::Yellow, "not verified"),
    };
    let mut facts = vec![paint.with(colour.on_default(), checked)];
    facts.extend(remedy.weakens_isolation.then(|| "opens a policy".to_owned()));
    facts.extend((!remedy.needs.is_empty()).then(|| format!("needs {}", plain(&remedy.needs.join(", ")))));
    let label = paint.dim(&format!("remedy {number}"));
    writeln!(to, "  {label} {} ({})", plain(&remedy.summary), facts.join(", "))?;
    for step in &remedy.steps {
        let target = &step.target;
        let place = target.namespace.as_ref().map_or(String::new(), |namespace| format!("{namespace}/"));
        let verb = match step.patch_type {
            "apply" => "new ",
            "delete" => "delete ",
            _ => "",
        };
        let what = format!("{verb}{} {place}{}", target.kind, target.name);
        writeln!(to, "           {:<18} {}", step.kind, plain(&what))?;
    }
    Ok(())
}

fn policy(blame: &PolicyBlame) -> String {
    let place = blame.namespace.as_ref().map_or(String::new(), |namespace| format!("{namespace}/"));
    let effect = match blame.effect {
        PolicyEffect::DefaultDeny => "default deny",
        PolicyEffect::ExplicitDeny => "denies",
    };
    let certainty = match blame.certainty {
        Certainty::Reported => "named by the datapath",
        Certainty::Inferred => "inferred from the policies",
    };
    format!("{} {place}{}: {effect}, {}, {certainty}", blame.kind, blame.name, blame.direction.as_str())
}

#[derive(Default)]
struct Row {
    pairs: u64,
    attempts: u64,
    drops: Option<u64>,
    bytes: Option<u64>,
    /// The longest of its pairs' medians, in milliseconds.
    rtt: Option<f64>,
    example: Option<(String, String)>,
}

/// What the two columns of numbers tell.
#[derive(Clone, Copy, PartialEq)]
enum Columns {
    Failures,
    Distance,
}

impl Columns {
    fn of(symptom: Symptom) -> Self {
        match symptom {
            Symptom::CrossZoneLatency | Symptom::EgressCost => Self::Distance,
            _ => Self::Failures,
        }
    }

    fn names(self) -> [&'static str; 2] {
        match self {
            Self::Failures => ["ATTEMPTS", "DROPS"],
            Self::Distance => ["BYTES", "RTT MS"],
        }
    }

    fn cells(self, row: &Row) -> [String; 2] {
        let unknown = || "-".to_owned();
        match self {
            Self::Failures => {
                [row.attempts.to_string(), row.drops.map_or_else(unknown, |drops| drops.to_string())]
            }
            Self::Distance => [
                row.bytes.map_or_else(unknown, |bytes| bytes.to_string()),
                row.rtt.map_or_else(unknown, |rtt| format!("{rtt:.3}")),
            ],
        }
    }

    fn weight(self, row: &Row) -> u64 {
        match self {
            Self::Failures => row.attempts,
            Self::Distance => row.bytes.unwrap_or(0),
        }
    }
}

/// Pairs by role and zone of both ends, protocol and port.
fn write_pairs(pairs: &[PairReport], columns: Columns, paint: &Paint, to: &mut impl Write) -> io::Result<()> {
    if pairs.is_empty() {
        return Ok(());
    }
    let mut rows: BTreeMap<(String, String, String), Row> = BTreeMap::new();
    for pair in pairs {
        let row = rows.entry((end(&pair.src), end(&pair.dst), port(pair))).or_default();
        row.pairs += 1;
        row.attempts += pair.attempts.unwrap_or(0);
        row.drops = row.drops.into_iter().chain(pair.drops).reduce(|a, b| a + b);
        row.bytes = row.bytes.into_iter().chain(pair.bytes).reduce(u64::saturating_add);
        row.rtt = row.rtt.into_iter().chain(pair.rtt_ms_p50).reduce(f64::max);
        row.example.get_or_insert_with(|| (pair.src.pod.clone(), pair.dst.pod.clone()));
    }
    let mut rows: Vec<_> = rows.into_iter().collect();
    rows.sort_by(|(a, x), (b, y)| columns.weight(y).cmp(&columns.weight(x)).then_with(|| a.cmp(b)));
    let [first, second] = columns.names();
    let mut table = vec![["FROM", "TO", "PORT", "PAIRS", first, second, "FOR EXAMPLE"].map(str::to_owned)];
    for ((src, dst, port), row) in rows.iter().take(ROWS) {
        let (from, to) = row.example.clone().unwrap_or_default();
        let [first, second] = columns.cells(row);
        let example = format!("{from} -> {to}");
        let cells = [src, dst, port, &row.pairs.to_string(), &first, &second, &example];
        table.push(cells.map(|cell| plain(cell)));
    }
    write_table(&table, paint, to)?;
    if rows.len() > ROWS {
        let (more, pairs) = (rows.len() - ROWS, rows[ROWS..].iter().map(|(_, row)| row.pairs).sum());
        writeln!(to, "    and {more} more rows with {}; --format json has them all", plural(pairs, "pair"))?;
    }
    Ok(())
}

fn write_table(table: &[[String; 7]], paint: &Paint, to: &mut impl Write) -> io::Result<()> {
    let width = |column: usize| table.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 7] = std::array::from_fn(width);
    for (number, row) in table.iter().enumerate() {
        let cells = row.iter().zip(widths).enumerate().map(|(column, (cell, width))| match column {
            3..=5 => format!("{cell:>width$}"),
            6 => cell.clone(),
            _ => format!("{cell:<width$}"),
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        writeln!(to, "    {}", if number == 0 { paint.dim(&line) } else { line })?;
    }
    Ok(())
}

fn end(end: &EndReport) -> String {
    let zone = end.zone.as_deref().unwrap_or("zone unknown");
    match end.namespace {
        Some(_) => format!("{} {zone}", end.role),
        None => format!("address {}", end.pod),
    }
}

fn port(pair: &PairReport) -> String {
    match (pair.port, pair.ports.distinct) {
        (Some(port), _) => format!("{} {port}", pair.protocol),
        (None, 0) => pair.protocol.to_owned(),
        (None, 1) => format!("{} ephemeral", pair.protocol),
        (None, _) => format!("{} {}-{}", pair.protocol, pair.ports.min, pair.ports.max),
    }
}

fn write_coverage(coverage: &Coverage, paint: &Paint, to: &mut impl Write) -> io::Result<()> {
    let can = |name: &str, able: bool| format!("{name} {}", if able { "yes" } else { "no" });
    let capabilities = coverage.capabilities;
    let sees =
        [can("drops", capabilities.drops), can("bytes", capabilities.bytes), can("rtt", capabilities.rtt)];
    let sources =
        if coverage.sources.is_empty() { "no source".to_owned() } else { coverage.sources.join(" and ") };
    writeln!(to, "\n{} {sources} (sees {})", paint.dim("source  "), sees.join(", "))?;
    let mut parts =
        vec![format!("{} of jobs", coverage.attributed), format!("{} of others", coverage.not_a_job)];
    let extra = [
        (coverage.duplicate, "told twice"),
        (coverage.rejected - coverage.far_future, "unreadable"),
        (coverage.far_future, "from an impossible time"),
        (coverage.late, "too late"),
    ];
    parts.extend(extra.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")));
    let lost = match coverage.lost {
        0 => String::new(),
        lost => format!("; {lost} events lost"),
    };
    let complete = if coverage.complete { "" } else { "; not complete" };
    let kind =
        if coverage.sources == ["hubble"] || coverage.sources.is_empty() { "flow event" } else { "event" };
    let events = plural(coverage.received, kind);
    writeln!(to, "{} {events}: {}{lost}{complete}", paint.dim("coverage"), parts.join(", "))
}

fn plural(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn second(at: Timestamp) -> String {
    let text = at.to_string();
    text.split_once('.').map_or(text.clone(), |(whole, _)| format!("{whole}Z"))
}

fn duration(seconds: u64) -> String {
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, s) => format!("{m} min {s} s"),
        (h, m, _) => format!("{h} h {m} min"),
    }
}

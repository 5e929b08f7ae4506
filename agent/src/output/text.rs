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

use crate::harmless::harmless;

/// Rows of a table before the rest is summed up.
const ROWS: usize = 12;
/// Healthy jobs that are listed one by one.
const LISTED: usize = 50;
/// Nodes that are named before the rest is counted.
const NAMED: usize = 5;

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
    let mut window = match (report.window.start, report.window.end) {
        (Some(start), Some(end)) => {
            format!("{} to {} ({})", second(start), second(end), duration(end.since(start).as_secs()))
        }
        _ => "nothing was seen".to_owned(),
    };
    // Where nothing happens the last event may be long ago, and the report is none the older for it.
    if let Some(now) = report.window.as_of {
        window = format!("{window}, as of {}", second(now));
    }
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
    writeln!(to, "\n{} {} (sees {})", paint.dim("source  "), sources(coverage), sees.join(", "))?;
    let mut parts =
        vec![format!("{} of jobs", coverage.attributed), format!("{} of others", coverage.not_a_job)];
    let extra = [
        (coverage.duplicate, "told twice"),
        (coverage.rejected - coverage.far_future, "unreadable"),
        (coverage.far_future, "from an impossible time"),
        (coverage.late, "too late"),
    ];
    parts.extend(extra.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")));
    let complete = match coverage.complete {
        true => String::new(),
        false => format!("; not complete: {}", plain(&missing(coverage).join(", "))),
    };
    let kind =
        if coverage.sources == ["hubble"] || coverage.sources.is_empty() { "flow event" } else { "event" };
    let events = plural(coverage.received, kind);
    writeln!(to, "{} {events}: {}{complete}", paint.dim("coverage"), parts.join(", "))
}

/// The sources that told something, and those that should have.
fn sources(coverage: &Coverage) -> String {
    let state = |source: &str| coverage.watched.iter().find(|watched| watched.source == source);
    let silent = coverage.watched.iter().map(|watched| watched.source);
    let silent = silent.filter(|source| !coverage.sources.contains(source));
    let named = coverage.sources.iter().copied().chain(silent).map(|source| match state(source) {
        Some(state) if state.up => format!("{source}, up since {}", second(state.since)),
        Some(state) => format!("{source}, down since {}", second(state.since)),
        None => source.to_owned(),
    });
    let named: Vec<String> = named.collect();
    if named.is_empty() { "no source".to_owned() } else { named.join(" and ") }
}

/// What is known to be missing.
fn missing(coverage: &Coverage) -> Vec<String> {
    let counts = [
        (coverage.lost, "lost"),
        (coverage.late, "too late"),
        (coverage.overflow, "of pairs beyond diagnosis.maxPairs"),
    ];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let mut missing: Vec<String> =
        counts.map(|(count, what)| format!("{} {what}", plural(*count, "event"))).collect();
    let down = coverage.watched.iter().filter(|watched| !watched.up);
    missing.extend(down.map(|watched| format!("{} is down", watched.source)));
    let blind = &coverage.blind_nodes;
    if !blind.is_empty() {
        let more = blind.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let names = blind[..blind.len().min(NAMED)].join(" ");
        missing.push(format!("nodes that the relay does not reach: {names}{more}"));
    }
    missing
}

fn plural(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// What is safe to print, with times to the second.
fn plain(text: &str) -> String {
    let text = harmless(text);
    let mut told = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once('.') {
        told.push_str(before);
        let digits = after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        if !(after[digits..].starts_with('Z') && ends_in_time(before)) {
            told.push('.');
            rest = after;
            continue;
        }
        rest = &after[digits..];
    }
    told + rest
}

/// Whether it ends in a time of RFC 3339, such as `2026-11-05T09:00:00`.
fn ends_in_time(text: &str) -> bool {
    const FORM: &[u8] = b"0000-00-00T00:00:00";
    let Some(end) = text.len().checked_sub(FORM.len()).map(|at| &text.as_bytes()[at..]) else {
        return false;
    };
    end.iter().zip(FORM).all(|(is, form)| if *form == b'0' { is.is_ascii_digit() } else { is == form })
}

fn second(at: Timestamp) -> String {
    plain(&at.to_string())
}

fn duration(seconds: u64) -> String {
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, s) => format!("{m} min {s} s"),
        (h, m, _) => format!("{h} h {m} min"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use firedoor_core::inventory::Inventory;
    use firedoor_core::membership::Grouping;
    use firedoor_core::observation::{Loss, Observation, SourceKind};
    use firedoor_core::pipeline::Pipeline;
    use firedoor_core::settings::Settings;

    use super::*;

    #[test]
    fn an_idle_agent_says_when_and_what_it_watches() {
        let at = |second: u64| Timestamp::from_nanos((1_793_869_200 + second) * 1_000_000_000 + 123_456_789);
        let settings = Settings { horizon: Some(Duration::from_secs(600)), ..Settings::default() };
        let mut live = Pipeline::new(Inventory::new(Vec::new(), &Grouping::default()), settings);
        live.source_state(SourceKind::Ebpf, true, at(0));
        live.source_state(SourceKind::Hubble, false, at(5));
        let page = |live: &mut Pipeline, now: u64| {
            live.pass(at(now));
            let mut page = Vec::new();
            write(&live.look(), false, &mut page).unwrap();
            String::from_utf8(page).unwrap()
        };
        let idle = page(&mut live, 60);
        let (at_loss, observer) = (Some(at(61)), Some("n1"));
        let loss = Loss { at: at_loss, observer, source: SourceKind::Ebpf, cause: "ring", count: 7 };
        live.observe(Observation::Lost(loss));
        live.observe(Observation::Blind { at: at(61), nodes: vec!["n2"] });
        let lossy = page(&mut live, 120);
        for (page, line) in [
            (&idle, "no job of two pods or more  nothing was seen, as of 2026-11-05T09:01:00Z\n"),
            (
                &idle,
                "source   hubble, down since 2026-11-05T09:00:05Z and ebpf, up since 2026-11-05T09:00:00Z (sees",
            ),
            (&idle, "not complete: hubble is down\n"),
            (&lossy, "2026-11-05T09:01:01Z (0 s), as of 2026-11-05T09:02:00Z\n"),
            (
                &lossy,
                "not complete: 7 events lost, hubble is down, nodes that the relay does not reach: n2\n",
            ),
        ] {
            assert!(page.contains(line), "{line}\n{page}");
        }
    }

    #[test]
    fn times_are_told_to_the_second() {
        for (text, told) in [
            ("at 2026-11-08T10:00:20.001Z, 1.5 Z", "at 2026-11-08T10:00:20Z, 1.5 Z"),
            ("2026-11-08T10:00:20Z 10.0.0.1 x.5Z .", "2026-11-08T10:00:20Z 10.0.0.1 x.5Z ."),
            ("\u{e9}2026-11-08T10:00:20.123456789Z..7Z", "\u{e9}2026-11-08T10:00:20Z..7Z"),
        ] {
            assert_eq!(plain(text), told);
        }
    }
}

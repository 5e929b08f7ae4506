//! Bytes that cross zones and are billed. Each byte is counted once, by who sent it; what it costs, and who pays, is the
//! price table's business. Where no price is known the bytes are told, and no dollars.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::history::CarriedHistory;
use crate::inventory::PodId;
use crate::prices::Crossing;
use crate::report::{Cause, CauseKind, CostReport, FindingReport, FindingState, PriceReport, Symptom};

use super::context::JobContext;
use super::distance::{Apart, Carriage, Share, amount, apart, crossing_pairs, state};
use super::latency::who_crosses;
use super::{health, mend, sentence};

/// A rate is told over no less than this: a burst of a second is no hour.
const SHORTEST: Duration = Duration::from_secs(60);

/// Bytes of one provider over one kind of distance.
struct Part<'a> {
    provider: Option<&'a str>,
    crossing: Crossing,
    bytes: u64,
    /// What they cost; `None`: not known.
    usd: Option<f64>,
}

struct Bill<'a> {
    parts: Vec<Part<'a>>,
    across: Share,
    hours: f64,
}

/// Both ends at one provider: that one's prices hold. Between two providers nobody knows.
fn provider_of<'a>(context: &JobContext<'a>, src: PodId, dst: PodId) -> Option<&'a str> {
    let inventory = context.evidence.inventory;
    inventory.provider_of(src).filter(|provider| inventory.provider_of(dst) == Some(*provider))
}

impl<'a> Bill<'a> {
    fn of(context: &JobContext<'a>, carriage: &Carriage) -> Self {
        let mut sums: BTreeMap<(Option<&str>, Crossing), u64> = BTreeMap::new();
        for (src, dst, bytes) in carriage.by_ends() {
            if let Apart::Crossing(crossing) = apart(context, src, dst) {
                let sum = sums.entry((provider_of(context, src, dst), crossing)).or_default();
                *sum = sum.saturating_add(bytes);
            }
        }
        let prices = &context.evidence.settings.prices;
        let parts =
            sums.into_iter().filter(|(_, bytes)| *bytes > 0).map(|((provider, crossing), bytes)| Part {
                provider,
                crossing,
                bytes,
                usd: provider.and_then(|of| prices.dollars(of, crossing, bytes)),
            });
        let across = carriage.across();
        let time = across.span.map_or(Duration::ZERO, |span| span.last.since(span.first)).max(SHORTEST);
        Self { parts: parts.collect(), across, hours: time.as_secs_f64() / 3600.0 }
    }

    /// What is known to be billed; `None` when nothing is known of any part.
    fn usd(&self) -> Option<f64> {
        self.parts.iter().filter_map(|part| part.usd).reduce(|a, b| a + b)
    }

    fn unpriced(&self) -> u64 {
        self.parts
            .iter()
            .filter(|part| part.usd.is_none())
            .fold(0, |sum, part| sum.saturating_add(part.bytes))
    }

    /// The part that weighs most.
    fn main(&self) -> Option<&Part<'a>> {
        let weight = |part: &Part<'_>| (part.usd.unwrap_or(0.0), part.bytes);
        self.parts
            .iter()
            .max_by(|a, b| weight(a).partial_cmp(&weight(b)).unwrap_or(std::cmp::Ordering::Equal))
    }
}

/// The finding, if enough is billed, or would be if a price were known.
#[allow(clippy::cast_precision_loss)] // a threshold
pub(super) fn finding(context: &JobContext<'_>) -> Option<FindingReport> {
    let settings = context.evidence.settings;
    let carriage = Carriage::of(context, &CarriedHistory::total);
    let bill = Bill::of(context, &carriage);
    let dear = bill.usd().is_some_and(|usd| usd > 0.0 && usd / bill.hours >= settings.egress_usd_per_hour);
    let unpriced = bill.unpriced();
    let many = unpriced > 0 && unpriced as f64 / bill.hours >= settings.egress_bytes_per_hour as f64;
    if !dear && !many {
        return None;
    }
    let (since, half) = (context.now().minus(settings.recent), context.evidence.history.half);
    let recent = Carriage::of(context, &|carried| carried.since(since, half));
    let moved = recent.across().bytes == 0 && recent.all().bytes >= settings.latency_bytes.max(1);
    let state = if moved { FindingState::Recovered } else { state(context, bill.across.span) };
    Some(report(context, &carriage, &bill, state))
}

fn report(
    context: &JobContext<'_>,
    carriage: &Carriage,
    bill: &Bill<'_>,
    state: FindingState,
) -> FindingReport {
    let cost = CostReport {
        bytes: bill.across.bytes,
        usd: bill.usd().map(rounded),
        usd_per_hour: bill.usd().map(|usd| rounded(usd / bill.hours)),
        price: bill.main().and_then(|part| price(context, part)),
    };
    let (pairs, unlisted) = crossing_pairs(context);
    FindingReport {
        symptom: Symptom::EgressCost,
        state,
        since: bill.across.span.map(|span| span.first),
        last_seen: bill.across.span.map(|span| span.last),
        summary: summary(context, carriage, &cost),
        cause: Cause { kind: CauseKind::Placement, reason: None, policies: Vec::new() },
        pairs,
        evidence: evidence(context, carriage, bill, &cost).into_iter().chain(unlisted).collect(),
        remedies: mend::remedies(context, Symptom::EgressCost, state, CauseKind::Placement, &[]),
        rtt: None,
        cost: Some(cost),
    }
}

/// To the hundredth of a cent.
fn rounded(usd: f64) -> f64 {
    (usd * 10_000.0).round() / 10_000.0
}

fn price(context: &JobContext<'_>, part: &Part<'_>) -> Option<PriceReport> {
    let (provider, prices) = (part.provider?, &context.evidence.settings.prices);
    let price = prices.of(provider, part.crossing)?;
    Some(PriceReport {
        provider: provider.to_owned(),
        usd_per_gb: (price.usd_per_gb * 1e6).round() / 1e6,
        billed: price.billed,
        as_of: prices.0.get(provider)?.as_of.clone(),
    })
}

fn summary(context: &JobContext<'_>, carriage: &Carriage, cost: &CostReport) -> String {
    let pods = sentence::ends(context, &who_crosses(context, carriage));
    let bytes = amount(cost.bytes);
    match (cost.usd, cost.usd_per_hour) {
        (Some(usd), Some(hourly)) => {
            format!("{pods} sent {bytes} across zones for {usd:.2} USD: {hourly:.2} USD an hour")
        }
        _ => format!("{pods} sent {bytes} across zones; what that costs here is not known"),
    }
}

fn evidence(
    context: &JobContext<'_>,
    carriage: &Carriage,
    bill: &Bill<'_>,
    cost: &CostReport,
) -> Vec<String> {
    let seconds = bill.across.span.map_or(0, |span| span.last.since(span.first).as_secs());
    let whole = carriage.all().bytes;
    let mut evidence = vec![format!(
        "{} of {} between its pods crossed zones in {seconds} s, counted where they were sent",
        amount(cost.bytes),
        amount(whole)
    )];
    for part in &bill.parts {
        let what = match part.crossing {
            Crossing::Zone => "between zones",
            Crossing::Region => "between regions",
        };
        let price = price(context, part).map_or_else(
            || "no price is known: set one under [prices] in the configuration".to_owned(),
            |price| {
                let billed = match price.billed {
                    crate::prices::Billed::BothEnds => "half at each end",
                    crate::prices::Billed::Sender => "at the sender",
                    crate::prices::Billed::Nobody => "not billed",
                };
                format!("{} USD a GB, {billed} (list price of {})", price.usd_per_gb, price.as_of)
            },
        );
        let provider = part.provider.unwrap_or("provider unknown");
        evidence.push(format!("{} {what} ({provider}): {price}", amount(part.bytes)));
    }
    if let Some(hourly) = cost.usd_per_hour {
        // A month of 730 hours, as clouds count.
        evidence.push(format!("at this rate {:.0} USD a month", hourly * 730.0));
    }
    evidence.extend(health::incomplete(context));
    evidence
}

//! What a job's members carry to each other, and how far: the common ground of latency and cost.

use std::collections::BTreeMap;

use crate::attribute::Peer;
use crate::history::CarriedHistory;
use crate::inventory::PodId;
use crate::ledger::traffic::{OneWay, Traffic};
use crate::ledger::window::{Span, join};
use crate::ledger::{PairKey, RttSketch};
use crate::observation::SourceKind;
use crate::prices::{Crossing, crossing};
use crate::report::{FindingState, PairReport, PortsReport};

use super::context::JobContext;

/// How far two members are apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Apart {
    /// On one node.
    SameNode,
    /// In one zone.
    SameZone,
    /// In different zones.
    Crossing(Crossing),
    /// The zone of one is not known.
    Unknown,
}

pub(super) fn apart(context: &JobContext<'_>, a: PodId, b: PodId) -> Apart {
    let inventory = context.evidence.inventory;
    let (node_a, node_b) = (inventory.pod(a).node.as_deref(), inventory.pod(b).node.as_deref());
    if node_a.is_some() && node_a == node_b {
        return Apart::SameNode;
    }
    match (inventory.zone_of(a), inventory.zone_of(b)) {
        (Some(a), Some(b)) => crossing(a, b).map_or(Apart::SameZone, Apart::Crossing),
        _ => Apart::Unknown,
    }
}

/// What was carried over one kind of distance.
#[derive(Clone, Default)]
pub(super) struct Share {
    pub(super) bytes: u64,
    pub(super) retransmitted: u64,
    pub(super) rtt: RttSketch,
    pub(super) span: Option<Span>,
}

/// What a job's members carried to each other, by sender and receiver and by distance.
#[derive(Default)]
pub(super) struct Carriage {
    ways: BTreeMap<(PodId, PodId), OneWay>,
    shares: BTreeMap<Apart, Share>,
}

impl Carriage {
    /// Of what `chosen` takes of each pair.
    pub(super) fn of(context: &JobContext<'_>, chosen: &dyn Fn(&CarriedHistory) -> Traffic) -> Self {
        let mut carriage = Self::default();
        for (key, carried) in pairs(context) {
            let Peer::Member(dst) = key.dst else { continue };
            let traffic = chosen(carried);
            // Both ends may tell of one connection under different openers: bytes are added up by who sent them.
            let ways = [((key.src, dst), traffic.forward), ((dst, key.src), traffic.backward)];
            for (ends, way) in ways {
                let known = carriage.ways.entry(ends).or_default();
                *known = known.plus(way);
            }
            let share = carriage.shares.entry(apart(context, key.src, dst)).or_default();
            share.rtt.merge(&traffic.rtt);
            share.span = join(share.span, traffic.span);
        }
        for ((src, dst), way) in &carriage.ways {
            let share = carriage.shares.entry(apart(context, *src, *dst)).or_default();
            share.bytes = share.bytes.saturating_add(way.bytes());
            share.retransmitted = share.retransmitted.saturating_add(way.retransmitted);
        }
        carriage
    }

    /// Bytes by sender and receiver.
    pub(super) fn by_ends(&self) -> impl Iterator<Item = (PodId, PodId, u64)> {
        self.ways.iter().map(|((src, dst), way)| (*src, *dst, way.bytes()))
    }

    /// What was carried over distances that are `wanted`.
    pub(super) fn share(&self, wanted: impl Fn(Apart) -> bool) -> Share {
        let mut all = Share::default();
        for (_, share) in self.shares.iter().filter(|(apart, _)| wanted(**apart)) {
            all.bytes = all.bytes.saturating_add(share.bytes);
            all.retransmitted = all.retransmitted.saturating_add(share.retransmitted);
            all.rtt.merge(&share.rtt);
            all.span = join(all.span, share.span);
        }
        all
    }

    /// What crossed zones.
    pub(super) fn across(&self) -> Share {
        self.share(is_crossing)
    }

    /// Everything.
    pub(super) fn all(&self) -> Share {
        self.share(|_| true)
    }
}

pub(super) fn is_crossing(apart: Apart) -> bool {
    matches!(apart, Apart::Crossing(_))
}

/// The job's pairs whose connections were seen to carry something.
fn pairs<'a>(context: &'a JobContext<'_>) -> impl Iterator<Item = (PairKey, &'a CarriedHistory)> {
    context.pairs.iter().filter_map(|(key, history)| Some((*key, history.carried.as_ref()?)))
}

/// Whether what was seen of late is still so: pods that are gone, or long silent, carry nothing any more.
pub(super) fn state(context: &JobContext<'_>, last: Option<Span>) -> FindingState {
    let quiet = last.is_none_or(|span| context.now().since(span.last) >= context.evidence.settings.quiet);
    let crosses = |key: &PairKey| match key.dst {
        Peer::Member(dst) => {
            is_crossing(apart(context, key.src, dst))
                && [key.src, dst].iter().all(|pod| context.alive_at_end(*pod))
        }
        _ => false,
    };
    if quiet || !pairs(context).any(|(key, _)| crosses(&key)) {
        FindingState::Ended
    } else {
        FindingState::Active
    }
}

/// The pairs that talk across zones, one entry for each (source pod, destination pod, port class), and that there are more.
pub(super) fn crossing_pairs(context: &JobContext<'_>) -> (Vec<PairReport>, Option<String>) {
    let crossing = |key: &PairKey| match key.dst {
        Peer::Member(dst) => is_crossing(apart(context, key.src, dst)),
        _ => false,
    };
    let carried =
        context.pairs.iter().filter_map(|(key, history)| Some((key, history, history.carried.as_ref()?)));
    let carried = carried.filter(|(key, _, _)| crossing(key)).filter_map(|(key, history, carried)| {
        let total = carried.total();
        total.span.map(|_| (bytes(&total), (key, history, carried)))
    });
    let carried: Vec<(u64, _)> = carried.collect();
    let unlisted = context.unlisted(carried.len());
    let mut reports: Vec<PairReport> = Vec::new();
    for (key, history, carried) in context.listed(carried) {
        let total = carried.total();
        let failing = history.failing();
        let ports = carried.ports();
        let (min, max) = (ports.first().copied().unwrap_or(0), ports.last().copied().unwrap_or(0));
        let fixed = key.class == crate::ledger::PortClass::Fixed;
        reports.push(PairReport {
            src: context.end(key.src),
            dst: context.peer(key.dst),
            protocol: key.protocol.name(),
            port: (fixed && ports.len() == 1).then_some(min),
            ports: PortsReport { class: key.class, min, max, distinct: ports.len() },
            app: app(&total),
            attempts: Some(failing.all_denied().attempts.count.saturating_add(failing.refused.count)),
            drops: Some(failing.all_denied().drops),
            bytes: Some(bytes(&total)),
            rtt_ms_p50: total.rtt.quantile(500).map(milliseconds),
            direction: None,
        });
    }
    reports.sort_by(|a, b| (&a.src, &a.dst, a.ports.class).cmp(&(&b.src, &b.dst, b.ports.class)));
    (reports, unlisted)
}

/// Bytes carried, both ways.
pub(super) fn bytes(traffic: &Traffic) -> u64 {
    traffic.forward.bytes().saturating_add(traffic.backward.bytes())
}

/// What is spoken, where first bytes told one thing. Of several the one that moves the data is named.
pub(super) fn app(traffic: &Traffic) -> &'static str {
    traffic.apps.first().map_or("unknown", |app| app.as_str())
}

/// Whether the kernel told what happens at a pod's node.
pub(super) fn measured(context: &JobContext<'_>, pod: PodId) -> bool {
    let observer = context.observer_of(pod).map(|id| context.evidence.history.observer(id));
    observer.is_some_and(|observer| observer.sources.contains(&SourceKind::Ebpf))
}

/// Milliseconds, to the microsecond.
#[allow(clippy::cast_precision_loss)] // microseconds of a round trip are far below 2^52
pub(super) fn milliseconds(duration: std::time::Duration) -> f64 {
    let micros = (duration.as_nanos() + 500) / 1000;
    micros as f64 / 1000.0
}

/// A share, to the thousandth.
#[allow(clippy::cast_precision_loss)] // a share needs no more digits than it is told with
pub(super) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { (1000.0 * part as f64 / whole as f64).round() / 1000.0 }
}

/// Bytes as people write them.
pub(super) fn amount(bytes: u64) -> String {
    let units = [("TB", 1_000_000_000_000_u64), ("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1000)];
    for (unit, size) in units {
        if bytes >= size {
            let tenths = u128::from(bytes) * 10 / u128::from(size);
            return format!("{}.{} {unit}", tenths / 10, tenths % 10);
        }
    }
    format!("{bytes} bytes")
}

//! Traffic that a job needs and that does not get through: repeated failures without success, past the graces.
//! Not one stray drop, not a drop followed by success, not the resets at a job's end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::attribute::Peer;
use crate::drop_reason::{DropClass, DropReason};
use crate::facts::Protocol;
use crate::history::{Blocked, PairHistory, Streak};
use crate::ledger::window::{Span, join};
use crate::ledger::{MAX_NAMED, PairKey, PortClass, Traffic};
use crate::report::{
    Cause, CauseKind, Certainty, FindingReport, FindingState, PairReport, PolicyBlame, PortsReport, Symptom,
};

use crate::time::Timestamp;

use super::attribution::{self, Attribution};
use super::context::JobContext;
use super::{distance, health, mend, sentence};

/// Another ephemeral port's success clears a failing one only when that one has been quiet for so long: a policy
/// that opens part of the range lets some connections through while the others go on failing.
const SIBLING_QUIET: Duration = Duration::from_secs(5);

/// A pair that is, or was, blocked.
#[derive(Clone)]
pub(super) struct Trouble {
    pub(super) key: PairKey,
    pub(super) ports: Vec<u16>,
    pub(super) streak: Streak,
    pub(super) blocked: Blocked,
    pub(super) state: FindingState,
    pub(super) span: Span,
    /// When success was seen after it.
    pub(super) recovered: Option<Timestamp>,
}

impl Trouble {
    fn new(
        key: PairKey,
        ports: Vec<u16>,
        streak: Streak,
        blocked: Blocked,
        state: FindingState,
    ) -> Option<Self> {
        let span = streak.span(blocked)?;
        Some(Self { key, ports, streak, blocked, state, span, recovered: None })
    }

    pub(super) fn cause(&self) -> CauseKind {
        match (self.key.dst, self.blocked) {
            (Peer::Dns(..), _) => CauseKind::DnsBlocked,
            (Peer::ApiServer(_), _) => CauseKind::ApiBlocked,
            (_, Blocked::Refused) => CauseKind::Refused,
            (_, Blocked::Unanswered) => CauseKind::Unanswered,
            (_, Blocked::Denied) => match self.streak.reason().map(DropReason::class) {
                Some(DropClass::Policy | DropClass::Authentication) => CauseKind::Policy,
                Some(DropClass::ExplicitDeny) => CauseKind::ExplicitDeny,
                Some(DropClass::Unknown | DropClass::Filtered | DropClass::NotAFailure) | None => {
                    CauseKind::Unknown
                }
                Some(_) => CauseKind::DatapathFault,
            },
        }
    }

    pub(super) fn failed(&self) -> u64 {
        self.streak.failed(self.blocked).max(1)
    }
}

/// Blocks of one cause and state, with what the policies say about each.
type Group = (Vec<Trouble>, Vec<Attribution>);

/// The hard blocks of a job, one finding a cause and state.
pub(super) fn findings(context: &JobContext<'_>) -> Vec<FindingReport> {
    let troubles: Vec<Trouble> =
        context.pairs.iter().filter_map(|(key, history)| trouble(context, key, history)).collect();
    let attributions = attribution::attribute(context, &troubles);
    let mut groups: BTreeMap<(CauseKind, FindingState), Group> = BTreeMap::new();
    for (trouble, attribution) in troubles.into_iter().zip(attributions) {
        let group = groups.entry((attribution.kind, trouble.state)).or_default();
        group.0.push(trouble);
        group.1.push(attribution);
    }
    groups.into_iter().map(|((cause, state), group)| finding(context, cause, state, &group)).collect()
}

fn trouble(context: &JobContext<'_>, key: &PairKey, history: &PairHistory) -> Option<Trouble> {
    match failing(context, key, history) {
        Some(trouble) => Some(trouble),
        None => recovered(key, history),
    }
}

fn failing(context: &JobContext<'_>, key: &PairKey, history: &PairHistory) -> Option<Trouble> {
    let settings = context.evidence.settings;
    let stands = |blocked: Blocked| match blocked {
        Blocked::Denied | Blocked::Refused => true,
        // Silence proves something only for a protocol that answers, where no answer can have been missed.
        Blocked::Unanswered => {
            key.protocol == Protocol::Tcp && context.lost_at(context.observer_of(key.src)) == 0
        }
    };
    let own =
        history.ports.values().filter_map(|port| port.streak.blocked(settings)).filter(|b| stands(*b)).min();
    let together = history.failing();
    // Ports that each failed only once or twice add up, as long as nothing succeeded meanwhile.
    let since = together.span(Blocked::Denied).map(|span| span.first);
    let meanwhile = history.answered.span.zip(since).is_some_and(|(ok, since)| ok.last >= since);
    let summed = || together.blocked(settings).filter(|b| *b == Blocked::Denied && !meanwhile);
    let blocked = own.or_else(summed)?;
    let involved = history.ports.iter().filter(|(_, port)| port.streak.span(blocked).is_some());
    let mut streak = Streak::default();
    let mut ports = Vec::new();
    for (port, history) in involved {
        streak.add(&history.streak);
        ports.push(port);
    }
    let last = streak.span(blocked)?.last;
    let sibling_ok = key.class == PortClass::Ephemeral
        && history.answered.span.is_some_and(|ok| ok.last > last.plus(SIBLING_QUIET));
    let state = if sibling_ok { FindingState::Recovered } else { state(context, key, last) };
    let recovered = history.answered.span.filter(|_| sibling_ok).map(|ok| ok.last);
    Some(Trouble { recovered, ..Trouble::new(*key, ports, streak, blocked, state)? })
}

/// The last block of any port that ended in success.
fn recovered(key: &PairKey, history: &PairHistory) -> Option<Trouble> {
    let of_port = |(port, history): (u16, &crate::history::PortHistory)| {
        history.recovery.as_ref().map(|recovery| (port, recovery.clone()))
    };
    let recoveries: Vec<_> = history.ports.iter().filter_map(of_port).collect();
    let blocked = recoveries.iter().map(|(_, r)| r.blocked).min()?;
    let mut streak = Streak::default();
    for (_, recovery) in &recoveries {
        streak.add(&recovery.streak);
    }
    let ports = recoveries.iter().map(|(port, _)| *port).collect();
    let trouble = Trouble::new(*key, ports, streak, blocked, FindingState::Recovered)?;
    Some(Trouble { recovered: recoveries.iter().map(|(_, r)| r.at).max(), ..trouble })
}

/// Silence is never recovery: without success a block is active, until nobody is left to try.
fn state(context: &JobContext<'_>, key: &PairKey, last: Timestamp) -> FindingState {
    let peer_gone = matches!(key.dst, Peer::Member(pod) if !context.alive_at_end(pod));
    let quiet = context.now().since(last) >= context.evidence.settings.quiet;
    if quiet || peer_gone || !context.alive_at_end(key.src) {
        FindingState::Ended
    } else {
        FindingState::Active
    }
}

fn finding(
    context: &JobContext<'_>,
    cause: CauseKind,
    state: FindingState,
    (troubles, attributions): &Group,
) -> FindingReport {
    let span = troubles.iter().map(|t| Some(t.span)).fold(None, join);
    let blamed = blamed(attributions);
    let notes: BTreeSet<_> = attributions.iter().flat_map(|a| a.notes.iter().cloned()).collect();
    FindingReport {
        symptom: Symptom::HardBlock,
        state,
        since: span.map(|s| s.first),
        last_seen: span.map(|s| s.last),
        summary: sentence::summary(context, cause, state, troubles),
        cause: Cause { kind: cause, reason: reason(troubles), policies: blamed },
        pairs: pairs(context, &context.listed(troubles.iter().map(|t| (t.failed(), t)).collect())),
        evidence: evidence(context, state, troubles)
            .into_iter()
            .chain(context.unlisted(troubles.len()))
            .chain(notes)
            .collect(),
        remedies: mend::remedies(context, Symptom::HardBlock, state, cause, troubles),
        rtt: None,
        cost: None,
    }
}

/// The policies behind these blocks. A source may name as many as it likes: of those no more are told than of one denial.
fn blamed(attributions: &[Attribution]) -> Vec<PolicyBlame> {
    let blamed: BTreeSet<&PolicyBlame> = attributions.iter().flat_map(|a| &a.blamed).collect();
    let mut reported = 0;
    let told = blamed.into_iter().filter(|policy| {
        reported += usize::from(policy.certainty == Certainty::Reported);
        policy.certainty != Certainty::Reported || reported <= MAX_NAMED
    });
    told.cloned().collect()
}

/// The reason most packets were dropped for.
fn reason(troubles: &[Trouble]) -> Option<String> {
    let mut all = Streak::default();
    for trouble in troubles.iter().filter(|t| t.blocked == Blocked::Denied) {
        all.add(&trouble.streak);
    }
    all.reason().map(|reason| reason.to_string())
}

/// One entry for each (source pod, destination pod, port class), whatever the protocols and ports.
fn pairs(context: &JobContext<'_>, troubles: &[&Trouble]) -> Vec<PairReport> {
    let mut of_ends: BTreeMap<_, Vec<&Trouble>> = BTreeMap::new();
    for trouble in troubles {
        let ends = (context.end(trouble.key.src), context.peer(trouble.key.dst), trouble.key.class);
        of_ends.entry(ends).or_default().push(trouble);
    }
    of_ends
        .into_iter()
        .map(|((src, dst, class), of)| {
            let main = of.iter().max_by_key(|t| t.failed());
            let mut ports: Vec<u16> = of.iter().flat_map(|t| t.ports.iter().copied()).collect();
            ports.sort_unstable();
            ports.dedup();
            let (min, max) = (ports.first().copied().unwrap_or(0), ports.last().copied().unwrap_or(0));
            // What was refused was not dropped; where unanswered packets went is not known.
            let counted = of.iter().filter(|t| t.blocked != Blocked::Unanswered);
            let counted: Vec<u64> = counted.map(|t| t.streak.all_denied().drops).collect();
            let carried = carried(context, &of);
            PairReport {
                src,
                dst,
                protocol: main.map_or("TCP", |t| t.key.protocol.name()),
                port: (class == PortClass::Fixed && ports.len() == 1).then_some(min),
                ports: PortsReport { class, min, max, distinct: ports.len() },
                app: carried.as_ref().map_or("unknown", distance::app),
                attempts: Some(of.iter().map(|t| t.failed()).sum()),
                drops: (!counted.is_empty()).then(|| counted.iter().sum()),
                bytes: carried.as_ref().map(distance::bytes),
                rtt_ms_p50: carried.as_ref().and_then(|c| c.rtt.quantile(500)).map(distance::milliseconds),
                direction: main.and_then(|t| t.streak.direction()),
            }
        })
        .collect()
}

/// What the connections of one entry carried; `None` when nothing measures that at either end.
fn carried(context: &JobContext<'_>, of: &[&Trouble]) -> Option<Traffic> {
    let measured = of.iter().any(|trouble| {
        let dst = match trouble.key.dst {
            Peer::Member(pod) => Some(pod),
            _ => None,
        };
        [Some(trouble.key.src), dst].into_iter().flatten().any(|pod| distance::measured(context, pod))
    });
    let mut traffic = Traffic::default();
    for trouble in of {
        let place = context.pairs.binary_search_by_key(&trouble.key, |(key, _)| *key).ok();
        let history = place.and_then(|place| context.pairs.get(place));
        if let Some(carried) = history.and_then(|(_, history)| history.carried.as_ref()) {
            traffic.add(&carried.total());
        }
    }
    measured.then_some(traffic)
}

/// What is known of connections between these pods that succeeded.
fn success(context: &JobContext<'_>, state: FindingState, troubles: &[Trouble]) -> String {
    if state == FindingState::Recovered
        && let Some(at) = troubles.iter().filter_map(|t| t.recovered).max()
    {
        return format!("a connection succeeded at {at}");
    }
    let last_ok = |related: &dyn Fn(&PairKey) -> bool| {
        let pairs = context.pairs.iter().filter(|(key, _)| related(key));
        pairs.filter_map(|(_, history)| history.answered.span).map(|span| span.last).max()
    };
    let keys: BTreeSet<PairKey> = troubles.iter().map(|t| t.key).collect();
    let ends: BTreeSet<_> = troubles.iter().map(|t| (t.key.src, t.key.dst)).collect();
    let same = last_ok(&|key| keys.contains(key));
    let ends = last_ok(&|key| ends.contains(&(key.src, key.dst)));
    match (same, ends) {
        (Some(ok), _) => format!("the last success between these pods on such ports was at {ok}"),
        (None, Some(ok)) => format!("other ports between these pods connect, last at {ok}"),
        (None, None) => "no connection between these pods ever succeeded".to_owned(),
    }
}

fn evidence(context: &JobContext<'_>, state: FindingState, troubles: &[Trouble]) -> Vec<String> {
    let failed: u64 = troubles.iter().map(Trouble::failed).sum();
    let begun: u64 = troubles.iter().map(|t| t.streak.opened().max(t.failed())).sum();
    let drops: u64 = troubles.iter().map(|t| t.streak.all_denied().drops).sum();
    let span = troubles.iter().map(|t| Some(t.span)).fold(None, join);
    let seconds = span.map_or(0, |s| s.last.since(s.first).as_secs());
    let how = match troubles.first().map(|t| t.blocked) {
        Some(Blocked::Refused) => "refused",
        Some(Blocked::Unanswered) => "left without an answer",
        _ => "dropped",
    };
    let of = if state == FindingState::Recovered { String::new() } else { format!(" of {begun}") };
    let mut evidence = vec![format!("{failed}{of} connection attempts {how} in {seconds} s")];
    if drops > failed {
        evidence.push(format!("{drops} packets dropped in all"));
    }
    evidence.push(success(context, state, troubles));
    if state != FindingState::Recovered {
        evidence.extend(health::gpu_evidence(context));
    }
    evidence.extend(health::incomplete(context));
    evidence
}

//! One sentence a person understands.

use std::collections::{BTreeMap, BTreeSet};

use crate::attribute::Peer;
use crate::drop_reason::{DropClass, DropReason};
use crate::inventory::PodId;
use crate::ledger::PortClass;
use crate::report::{CauseKind, FindingState};

use super::context::JobContext;
use super::hard_block::Trouble;

/// For example "4 workers in zone-a cannot reach the coordinator in zone-b on TCP 9999: no policy allows it".
pub(super) fn summary(
    context: &JobContext<'_>,
    cause: CauseKind,
    state: FindingState,
    troubles: &[Trouble],
) -> String {
    let sources: BTreeSet<PodId> = troubles.iter().map(|t| t.key.src).collect();
    let targets: BTreeSet<PodId> = troubles
        .iter()
        .filter_map(|t| if let Peer::Member(pod) = t.key.dst { Some(pod) } else { None })
        .collect();
    let sources = ends(context, &sources);
    let (verb, target) = match cause {
        CauseKind::DnsBlocked => ("look up", "names (DNS)".to_owned()),
        CauseKind::ApiBlocked => ("reach", "the Kubernetes API server".to_owned()),
        _ => ("reach", ends(context, &targets)),
    };
    let can = match state {
        FindingState::Active => "cannot",
        FindingState::Ended => "could never",
        FindingState::Recovered => "could for a time not",
    };
    format!("{sources} {can} {verb} {target}{}: {}", ports(troubles), why(cause, troubles))
}

fn why(cause: CauseKind, troubles: &[Trouble]) -> String {
    let reason = troubles.iter().find_map(|t| t.streak.reason());
    match cause {
        CauseKind::Policy if reason.map(DropReason::class) == Some(DropClass::Authentication) => {
            "a policy asks for authentication or encryption".to_owned()
        }
        CauseKind::Policy => "no network policy allows it".to_owned(),
        CauseKind::ExplicitDeny => "a network policy denies it".to_owned(),
        CauseKind::Refused => {
            "connections are refused, nobody listens there or something rejects them".to_owned()
        }
        CauseKind::Unanswered => "nobody answers, and no node says that it drops anything".to_owned(),
        CauseKind::DnsBlocked | CauseKind::ApiBlocked => match reason {
            Some(reason) => format!("the traffic is dropped ({reason})"),
            None => "the traffic gets no answer".to_owned(),
        },
        CauseKind::DatapathFault => match reason {
            Some(reason) => format!("the network itself drops it ({reason})"),
            None => "the network itself drops it".to_owned(),
        },
        CauseKind::Label | CauseKind::Placement | CauseKind::Unknown => match reason {
            Some(reason) if reason.class() == DropClass::Filtered => {
                format!("a packet filter on a node drops it ({reason})")
            }
            Some(reason) => format!("it is dropped ({reason})"),
            None => "it is dropped, and nothing says why".to_owned(),
        },
    }
}

fn ports(troubles: &[Trouble]) -> String {
    if troubles.iter().all(|t| t.key.class == PortClass::Ephemeral) {
        return " on ephemeral ports".to_owned();
    }
    let fixed = troubles.iter().filter(|t| t.key.class == PortClass::Fixed);
    let ports: BTreeSet<(&str, u16)> =
        fixed.flat_map(|t| t.ports.iter().map(|port| (t.key.protocol.name(), *port))).collect();
    match ports.iter().collect::<Vec<_>>().as_slice() {
        [(protocol, port)] => format!(" on {protocol} {port}"),
        _ => String::new(),
    }
}

/// "4 workers in zone-a and the coordinator in zone-b".
pub(super) fn ends(context: &JobContext<'_>, pods: &BTreeSet<PodId>) -> String {
    let mut groups: BTreeMap<(&str, Option<String>), usize> = BTreeMap::new();
    for pod in pods {
        *groups.entry((context.role(*pod), context.zone_name(*pod))).or_default() += 1;
    }
    let shown = 3;
    let mut parts: Vec<String> =
        groups.iter().take(shown).map(|((role, zone), count)| group(role, zone.as_deref(), *count)).collect();
    if groups.len() > shown {
        let others: usize = groups.values().skip(shown).sum();
        parts.push(format!("{others} more pods"));
    }
    match parts.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
        None => "its pods".to_owned(),
    }
}

fn group(role: &str, zone: Option<&str>, count: usize) -> String {
    let who = match (role, count) {
        ("coordinator", 1) => "the coordinator".to_owned(),
        ("coordinator", n) => format!("{n} coordinators"),
        ("worker", 1) => "1 worker".to_owned(),
        ("worker", n) => format!("{n} workers"),
        ("ps", 1) => "1 parameter server".to_owned(),
        ("ps", n) => format!("{n} parameter servers"),
        (_, 1) => "1 pod".to_owned(),
        (_, n) => format!("{n} pods"),
    };
    match zone {
        Some(zone) => format!("{who} in {zone}"),
        None => who,
    }
}

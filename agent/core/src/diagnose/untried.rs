//! Pairs that nobody was seen to try, and that the policies close. A job whose members were all seen to talk to someone
//! may still have doors that stay shut when they are tried: collectives open connections between any two members.

use std::collections::{BTreeMap, BTreeSet};

use crate::attribute::Peer;
use crate::facts::{Pod, Protocol};
use crate::inventory::{EPHEMERAL_PORTS, PodId};
use crate::ledger::PortClass;
use crate::policy::{
    Decision, Evaluator, PairAnswer, Peer as PolicyPeer, PolicyRef, Ports, Question, Verdict3,
};

use super::context::JobContext;

/// Classes of members that are asked about; more only come of policies that tell hundreds of pods apart.
const MAX_CLASSES: usize = 256;
/// Policies and pairs of roles that are named.
const NAMED: usize = 4;

/// Members that are alike: identity in the eyes of policies, role, and the ports they pick from where that is set.
type Class = (usize, &'static str, Option<(u16, u16)>);

/// Untried pairs that are closed, by role, with the policies behind them; `None` where there are none.
pub(super) fn closed(context: &JobContext<'_>) -> Option<String> {
    let inventory = context.evidence.inventory;
    let members: Vec<PodId> = context.members().filter(|id| context.alive_at_end(*id)).collect();
    let pods: Vec<&Pod> = members.iter().map(|id| inventory.pod(*id)).collect();
    let class_of = classes(context, &members, &pods);
    let mut of_class: BTreeMap<Class, Vec<PodId>> = BTreeMap::new();
    for (id, class) in &class_of {
        of_class.entry(*class).or_default().push(*id);
    }
    let talked = Talked::new(context, &class_of);
    let mut evaluator = Evaluator::new(context.evidence.policies, &pods);
    if passes_anyway(context, &class_of, &mut evaluator) {
        return None;
    }
    let mut by_role: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    let mut policies: BTreeSet<PolicyRef> = BTreeSet::new();
    for (from, sources) in of_class.iter().take(MAX_CLASSES) {
        for (to, targets) in of_class.iter().take(MAX_CLASSES) {
            let untried = talked.untried((*from, sources.len()), (*to, targets.len()));
            let src = sources.first().copied();
            let dst = targets.iter().copied().find(|dst| Some(*dst) != src);
            let (Some(src), Some(dst), 1..) = (src, dst, untried) else { continue };
            let (low, high) = to.2.unwrap_or(EPHEMERAL_PORTS);
            let question = Question {
                src: PolicyPeer::Pod(inventory.pod(src)),
                dst: PolicyPeer::Pod(inventory.pod(dst)),
                protocol: Protocol::Tcp,
                ports: Ports::Range(low, high),
            };
            let answer = evaluator.evaluate(&question);
            if is_shut(&answer) {
                *by_role.entry((from.1, to.1)).or_default() += untried;
                policies.extend(behind(&answer));
            }
        }
    }
    sentence(&by_role, &policies)
}

fn classes(context: &JobContext<'_>, members: &[PodId], pods: &[&Pod]) -> BTreeMap<PodId, Class> {
    let identities = context.evidence.policies.identities(pods);
    let numbered = identities.groups().iter().enumerate();
    let grouped = numbered.flat_map(|(number, group)| group.iter().map(move |position| (number, *position)));
    let class = |(number, position): (usize, usize)| {
        let (id, pod) = (*members.get(position)?, pods.get(position)?);
        Some((id, (number, context.role(id), pod.local_ports)))
    };
    grouped.filter_map(class).collect()
}

/// Whether the datapath was seen to let through what the policies close: in audit mode, or because they are not those
/// that it enforces. Then they tell nothing about other pairs.
fn passes_anyway<'a>(
    context: &JobContext<'a>,
    class_of: &BTreeMap<PodId, Class>,
    evaluator: &mut Evaluator<'a>,
) -> bool {
    let inventory = context.evidence.inventory;
    context.pairs.iter().any(|(key, history)| {
        if history.audited.is_some() {
            return true;
        }
        // Where several ports were tried, the one that answered is not told.
        let port = history.ports.keys().next().filter(|_| history.ports.len() == 1);
        let (Peer::Member(dst), Some(port), true) = (key.dst, port, history.answered.span.is_some()) else {
            return false;
        };
        let known = class_of.contains_key(&key.src) && class_of.contains_key(&dst);
        let (src, dst) = (PolicyPeer::Pod(inventory.pod(key.src)), PolicyPeer::Pod(inventory.pod(dst)));
        let question = Question { src, dst, protocol: key.protocol, ports: Ports::One(port) };
        known && evaluator.evaluate(&question).verdict() == Verdict3::Closed
    })
}

/// Which members were seen to talk.
#[derive(Default)]
struct Talked {
    /// Ordered pairs that have a connection, whoever opened it.
    pairs: BTreeMap<(Class, Class), u64>,
    /// Classes between which ephemeral ports were seen to be open, whatever the policies say.
    open: BTreeSet<(Class, Class)>,
}

impl Talked {
    fn new(context: &JobContext<'_>, class_of: &BTreeMap<PodId, Class>) -> Self {
        let mut talked = Self::default();
        let mut seen: BTreeSet<(PodId, PodId)> = BTreeSet::new();
        for (key, history) in &context.pairs {
            let Peer::Member(dst) = key.dst else { continue };
            if history.answered.span.is_none() {
                continue;
            }
            for (a, b) in [(key.src, dst), (dst, key.src)] {
                let (Some(from), Some(to)) = (class_of.get(&a), class_of.get(&b)) else { continue };
                if seen.insert((a, b)) {
                    *talked.pairs.entry((*from, *to)).or_default() += 1;
                }
                if a == key.src && key.class == PortClass::Ephemeral {
                    talked.open.insert((*from, *to));
                }
            }
        }
        talked
    }

    /// Ordered pairs between members of two classes, given with their sizes, that may matter and were not seen.
    fn untried(&self, (from, sources): (Class, usize), (to, targets): (Class, usize)) -> u64 {
        if self.open.contains(&(from, to)) {
            return 0;
        }
        let (sources, targets) = (sources as u64, targets as u64);
        let all = if from == to { sources * (sources - 1) } else { sources * targets };
        all.saturating_sub(self.pairs.get(&(from, to)).copied().unwrap_or(0))
    }
}

/// Closed on every port that collectives pick from.
fn is_shut(answer: &PairAnswer) -> bool {
    [answer.egress(), answer.ingress()]
        .into_iter()
        .any(|decision| matches!(decision, Decision::Closed(closure) if closure.open_ports.is_empty()))
}

fn behind(answer: &PairAnswer) -> impl Iterator<Item = PolicyRef> {
    let closures = [answer.egress(), answer.ingress()].into_iter().filter_map(|decision| match decision {
        Decision::Closed(closure) => Some(closure),
        Decision::Open { .. } | Decision::Unknown { .. } => None,
    });
    closures.flat_map(|closure| closure.denied_by.iter().chain(&closure.default_deny)).cloned()
}

fn sentence(by_role: &BTreeMap<(&str, &str), u64>, policies: &BTreeSet<PolicyRef>) -> Option<String> {
    let all: u64 = by_role.values().sum();
    let roles: Vec<String> =
        by_role.iter().map(|((from, to), pairs)| format!("{from} to {to} ({pairs})")).collect();
    let policies: Vec<String> = policies.iter().map(ToString::to_string).collect();
    let by = if policies.is_empty() { String::new() } else { format!(", by {}", named(&policies)) };
    (all > 0).then(|| {
        format!(
            "{all} pairs of its pods were not seen to talk, and the network policies close them on every port that collectives pick from: {}{by}",
            named(&roles)
        )
    })
}

/// The first few, and how many more there are.
fn named(all: &[String]) -> String {
    let first = all.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(NAMED) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

//! What one end says to a connection in one direction. Enters: compiled policies and two ends; leaves: a decision with
//! its reasons. Works on sets of ports, so that a range is answered port by port. Must not know JSON.

use std::collections::BTreeSet;

use super::answer::{Closure, Decision, Direction, Enforcement, MissingAllow, Note, PolicyRef, Ports};
use super::compiled::{Compiled, Seen};
use super::identity::{Enforcer, Kind};
use super::model::{Action, Doubt, PeerTerm, Policy, PortMatch, PortTerm, Range, Rule, Tier};
use super::ports::PortSet;
use super::selector::Truth;
use crate::facts::Protocol;

/// What is asked of one end.
pub(super) struct Ask<'a> {
    pub(super) direction: Direction,
    /// The end whose policies are looked at.
    pub(super) subject: &'a Seen,
    pub(super) peer: &'a Seen,
    pub(super) protocol: Protocol,
    pub(super) ports: Ports,
}

impl Ask<'_> {
    /// ICMP has no ports: its one question is put as port 0, which only rules for all ports or for ICMP match.
    fn port_set(&self) -> PortSet {
        match self.ports {
            _ if self.protocol == Protocol::Icmp => PortSet::range(0, 0),
            Ports::One(port) => PortSet::range(port, port),
            Ports::Range(low, high) => PortSet::range(low, high),
        }
    }

    fn named(&self, name: usize) -> &[(Protocol, u16)] {
        let destination = match self.direction {
            Direction::Ingress => self.subject,
            Direction::Egress => self.peer,
        };
        destination.end.named.get(name).map_or(&[], Vec::as_slice)
    }
}

/// A rule that matches, or may match, some of the ports.
struct Hit<'a> {
    number: usize,
    policy: &'a Policy,
    rule: &'a Rule,
    ports: PortSet,
    /// `None`: it matches.
    doubt: Option<Doubt>,
}

/// Ports by what became of them, and why.
#[derive(Default)]
struct Tally {
    open: PortSet,
    closed: PortSet,
    unknown: PortSet,
    by: BTreeSet<usize>,
    denied_by: BTreeSet<usize>,
    default_deny: BTreeSet<usize>,
    reasons: BTreeSet<String>,
    notes: BTreeSet<Note>,
}

impl Compiled {
    /// What the subject's policies say, and notes on it.
    pub(super) fn decide(&self, ask: &Ask<'_>) -> (Decision, BTreeSet<Note>) {
        let unknown = |reason: &str| (Decision::Unknown { reason: reason.to_owned() }, BTreeSet::new());
        let open = (Decision::Open { by: Vec::new() }, BTreeSet::new());
        match ask.subject.end.kind {
            Kind::Pod | Kind::Health | Kind::Ingress => self.decide_endpoint(ask),
            Kind::Init => {
                unknown("the endpoint has no labels yet, and Cilium enforces policies on it regardless")
            }
            Kind::Host | Kind::RemoteNode | Kind::ApiserverNode => {
                match self.has_host_policies(|policy| policy.section(ask.direction)) {
                    true => unknown(
                        "there are Cilium host policies, and whether they select the node is not known",
                    ),
                    false => open,
                }
            }
            Kind::World | Kind::ApiserverOutside | Kind::Unmanaged => open,
        }
    }

    fn decide_endpoint(&self, ask: &Ask<'_>) -> (Decision, BTreeSet<Note>) {
        let selected: Vec<(usize, &Policy, Truth)> = (ask.subject.selected.iter())
            .filter_map(|(number, truth)| Some((*number, self.policies.get(*number)?, *truth)))
            .collect();
        let unreadable = selected.iter().filter(|(_, policy, _)| policy.unreadable);
        let unreadable: BTreeSet<String> =
            unreadable.map(|(_, policy, _)| policy.reference.to_string()).collect();
        if !unreadable.is_empty() {
            let names: Vec<String> = unreadable.into_iter().collect();
            let reason = format!("{} could not be understood", names.join(", "));
            return (Decision::Unknown { reason }, BTreeSet::new());
        }
        let mut tally = Tally::default();
        let mut rest = ask.port_set();
        let tiers: BTreeSet<Tier> = selected.iter().map(|(_, policy, _)| policy.tier).collect();
        let of = |tier: Tier| selected.iter().filter(move |(_, policy, _)| policy.tier == tier).copied();
        let mut passed = PortSet::default();
        for tier in tiers.iter().filter(|tier| matches!(tier, Tier::Admin(_))) {
            passed.add(&tally.ordered(ask, of(*tier), &mut rest));
        }
        rest.add(&passed);
        self.union(ask, of(Tier::Namespace).collect(), &mut rest, &mut tally);
        tally.ordered(ask, of(Tier::Baseline), &mut rest);
        tally.open.add(&rest);
        self.decision(ask, tally)
    }

    /// NetworkPolicy and the Cilium policies: denies, then allows, then default deny by selection. What is left in
    /// `rest` is not decided by them.
    fn union(
        &self,
        ask: &Ask<'_>,
        selected: Vec<(usize, &Policy, Truth)>,
        rest: &mut PortSet,
        tally: &mut Tally,
    ) {
        let requires = selected.iter().any(|(_, policy, _)| policy.section(ask.direction).requires);
        let mut hits: Vec<Hit<'_>> = selected.iter().flat_map(|selected| hits(ask, *selected)).collect();
        for hit in hits.iter_mut().filter(|hit| requires && hit.rule.action == Action::Allow) {
            hit.doubt = hit.doubt.or(Some(Doubt::Requires));
        }
        let isolated = self.isolated(ask, &selected);
        if ask.protocol == Protocol::Icmp && self.facts.enforcer != Enforcer::Cilium && isolated != Truth::No
        {
            tally.reasons.insert("NetworkPolicy does not define what happens to ICMP".to_owned());
            tally.unknown.add(&std::mem::take(rest));
            return;
        }
        let closed = tally.settle(&hits, rest, Action::Deny, true);
        tally.closed.add(&closed);
        let doubtful = tally.settle(&hits, rest, Action::Deny, false);
        tally.unknown.add(&doubtful);
        let open = tally.settle(&hits, rest, Action::Allow, true);
        tally.open.add(&open);
        if isolated != Truth::No {
            let doubtful = tally.settle(&hits, rest, Action::Allow, false);
            tally.unknown.add(&doubtful);
        }
        let left = match isolated {
            Truth::No => return,
            Truth::Maybe | Truth::Yes => std::mem::take(rest),
        };
        if left.is_empty() {
            return;
        }
        let isolating =
            selected.iter().filter(|(_, policy, _)| policy.section(ask.direction).isolates != Truth::No);
        if isolated == Truth::Yes {
            tally.closed.add(&left);
            let sure = isolating.filter(|selected| isolates(ask, selected) == Truth::Yes);
            tally.default_deny.extend(sure.map(|(number, ..)| *number));
        } else {
            tally.unknown.add(&left);
            let reason = |policy: &Policy| {
                format!("whether {} means default deny here is not known", policy.reference)
            };
            tally.reasons.extend(isolating.map(|(_, policy, _)| reason(policy)));
        }
    }

    /// Whether the subject is in default deny towards the peer. Traffic of the local node to its pods is let through
    /// by Cilium, unless a rule denies it (cilium/cilium `pkg/policy`, `determineAllowLocalhostIngress`), and in both
    /// directions by NetworkPolicy (Kubernetes documentation, network policies).
    fn isolated(&self, ask: &Ask<'_>, selected: &[(usize, &Policy, Truth)]) -> Truth {
        let by_policy = selected.iter().map(|selected| isolates(ask, selected)).max().unwrap_or(Truth::No);
        let isolated = by_policy.max(Truth::from(self.enforcement == Enforcement::Always));
        match (ask.peer.end.kind, ask.direction, self.facts.enforcer) {
            (Kind::Host, Direction::Ingress, _) | (Kind::Host, Direction::Egress, Enforcer::Other) => {
                Truth::No
            }
            (Kind::Host, Direction::Egress, Enforcer::Unknown) => isolated.min(Truth::Maybe),
            _ => isolated,
        }
    }

    fn references(&self, numbers: BTreeSet<usize>) -> Vec<PolicyRef> {
        let policies = numbers.into_iter().filter_map(|number| self.policies.get(number));
        let mut references: Vec<PolicyRef> = policies.map(|policy| policy.reference.clone()).collect();
        references.dedup();
        references
    }

    fn decision(&self, ask: &Ask<'_>, tally: Tally) -> (Decision, BTreeSet<Note>) {
        let decision = if !tally.closed.is_empty() {
            let denied = !tally.denied_by.is_empty();
            let missing = (!denied).then(|| MissingAllow {
                direction: ask.direction,
                subject: ask.subject.side.clone(),
                peer: ask.peer.side.clone(),
                protocol: ask.protocol,
                ports: tally.closed.into_ranges(),
            });
            Decision::Closed(Closure {
                default_deny: self.references(tally.default_deny),
                denied_by: self.references(tally.denied_by),
                open_ports: tally.open.into_ranges(),
                missing,
            })
        } else if !tally.unknown.is_empty() {
            Decision::Unknown { reason: tally.reasons.into_iter().collect::<Vec<_>>().join("; ") }
        } else {
            Decision::Open { by: self.references(tally.by) }
        };
        (decision, tally.notes)
    }
}

impl Tally {
    /// Takes the ports out of `rest` that sure or doubtful hits of an action have, and remembers who had them.
    fn settle(&mut self, hits: &[Hit<'_>], rest: &mut PortSet, action: Action, sure: bool) -> PortSet {
        let mut taken = PortSet::default();
        for hit in hits.iter().filter(|hit| hit.rule.action == action && hit.doubt.is_none() == sure) {
            let ports = hit.ports.intersect(rest);
            if !ports.is_empty() {
                taken.add(&ports);
                self.remember(hit);
            }
        }
        rest.take(&taken)
    }

    fn remember(&mut self, hit: &Hit<'_>) {
        let reference = &hit.policy.reference;
        match (hit.doubt, hit.rule.action) {
            (Some(doubt), _) => {
                self.reasons.insert(format!("{reference} {doubt}"));
            }
            (None, Action::Deny) => {
                self.denied_by.insert(hit.number);
            }
            (None, Action::Allow) => {
                self.by.insert(hit.number);
                let application = hit.rule.application.then(|| Note::ApplicationRules(reference.clone()));
                let authentication = hit.rule.authentication.then(|| Note::Authentication(reference.clone()));
                self.notes.extend(application.into_iter().chain(authentication));
            }
            (None, Action::Pass) => {}
        }
    }

    /// Admin policies of one priority: in each the first matching rule counts. Where two of them contradict each
    /// other the order is undefined (network-policy-api, text of `priority`). Gives the passed ports back.
    fn ordered<'a>(
        &mut self,
        ask: &Ask<'_>,
        policies: impl Iterator<Item = (usize, &'a Policy, Truth)>,
        rest: &mut PortSet,
    ) -> PortSet {
        let [mut allowed, mut denied, mut passed, mut unknown]: [PortSet; 4] = Default::default();
        for selected in policies {
            let mut left = rest.clone();
            for hit in hits(ask, selected) {
                let taken = left.take(&hit.ports);
                if taken.is_empty() {
                    continue;
                }
                self.remember(&hit);
                match (hit.doubt, hit.rule.action) {
                    (Some(_), _) => unknown.add(&taken),
                    (None, Action::Allow) => allowed.add(&taken),
                    (None, Action::Deny) => denied.add(&taken),
                    (None, Action::Pass) => passed.add(&taken),
                }
            }
        }
        for (a, b) in [(&allowed, &denied), (&allowed, &passed), (&denied, &passed)] {
            let both = a.intersect(b);
            if !both.is_empty() {
                self.reasons.insert("admin policies of the same priority contradict each other".to_owned());
                unknown.add(&both);
            }
        }
        self.unknown.add(&rest.take(&unknown));
        self.open.add(&rest.take(&allowed));
        self.closed.add(&rest.take(&denied));
        rest.take(&passed)
    }
}

fn isolates(ask: &Ask<'_>, (_, policy, truth): &(usize, &Policy, Truth)) -> Truth {
    policy.section(ask.direction).isolates.min(*truth)
}

/// The rules of a policy that match, or may match, some of the ports asked about.
fn hits<'a>(ask: &Ask<'_>, (number, policy, truth): (usize, &'a Policy, Truth)) -> Vec<Hit<'a>> {
    let selection = (truth != Truth::Yes).then_some(Doubt::Labels);
    let hit = |rule: &'a Rule| {
        let ports = ports(ask, &rule.ports);
        if ports.is_empty() {
            return None;
        }
        let peers = peers(ask.peer, &rule.peers)?;
        Some(Hit { number, policy, rule, ports, doubt: rule.doubt.or(peers.err()).or(selection) })
    };
    policy.section(ask.direction).rules.iter().filter_map(hit).collect()
}

fn ports(ask: &Ask<'_>, ports: &PortMatch) -> PortSet {
    let terms = match ports {
        PortMatch::Terms(terms) => terms.as_slice(),
        PortMatch::Icmp if ask.protocol != Protocol::Icmp => &[],
        PortMatch::All | PortMatch::Icmp => return ask.port_set(),
    };
    let terms = terms.iter().filter(|(transport, _)| transport.matches(ask.protocol));
    let numbers = terms.flat_map(|(_, term)| match term {
        PortTerm::Numbers(low, high) => vec![(*low, *high)],
        PortTerm::Named(name) => {
            let numbers = ask.named(*name).iter().filter(|(protocol, _)| *protocol == ask.protocol);
            numbers.map(|(_, number)| (*number, *number)).collect()
        }
    });
    PortSet::from_iter(numbers).intersect(&ask.port_set())
}

/// `None`: the peer is not meant; otherwise it is, or may be.
fn peers(peer: &Seen, terms: &[PeerTerm]) -> Option<Result<(), Doubt>> {
    let mut doubt = None;
    for term in terms {
        match matches(peer, term) {
            (Truth::Yes, _) => return Some(Ok(())),
            (Truth::Maybe, reason) => doubt = doubt.or(Some(Err(reason))),
            (Truth::No, _) => {}
        }
    }
    doubt
}

/// Whether a term means the peer, and what the doubt is if it may.
fn matches(peer: &Seen, term: &PeerTerm) -> (Truth, Doubt) {
    let end = &peer.end;
    match term {
        PeerTerm::Any => (Truth::Yes, Doubt::Labels),
        PeerTerm::Matching(selector) => (selector.matches(&end.classes), Doubt::Labels),
        PeerTerm::Nodes(selector) => {
            (selector.matches(&end.classes).min(Truth::from(end.kind.is_node())), Doubt::Labels)
        }
        PeerTerm::Block(number) => (end.blocks.get(*number).copied().unwrap_or(Truth::Maybe), Doubt::Address),
        PeerTerm::Doubtful(range, doubt) => {
            let inside = match range {
                Range::Outside => end.kind.is_outside(),
                Range::Nodes => end.kind.is_node(),
                Range::Everything => true,
            };
            (Truth::from(inside).min(Truth::Maybe), *doubt)
        }
        PeerTerm::DoubtfulMatching(selector, doubt) => {
            (selector.matches(&end.classes).min(Truth::Maybe), *doubt)
        }
    }
}

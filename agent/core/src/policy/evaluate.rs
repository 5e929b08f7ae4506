//! What one end says to a connection in one direction. Enters: compiled policies and two ends; leaves: a decision with
//! its reasons. Works on sets of ports, so that a range is answered port by port. Must not know JSON.

use std::collections::BTreeSet;

use super::answer::{Closure, Decision, Direction, Enforcement, MissingAllow, Note, PolicyRef};
use super::compiled::Compiled;
use super::hits::{Ask, Hit, hits};
use super::identity::{Enforcer, Kind};
use super::model::{Action, Doubt, Policy, Tier};
use super::ports::PortSet;
use super::selector::Truth;
use super::tally::{Ground, Tally};
use crate::facts::Protocol;

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
            Kind::Host | Kind::RemoteNode | Kind::ApiserverHost | Kind::ApiserverNode => {
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
        let mut reached = ask.port_set();
        let tiers: BTreeSet<Tier> = selected.iter().map(|(_, policy, _)| policy.tier).collect();
        let of = |tier: Tier| selected.iter().filter(move |(_, policy, _)| policy.tier == tier).copied();
        let mut passed = PortSet::default();
        for tier in tiers.iter().filter(|tier| matches!(tier, Tier::Admin(_))) {
            passed.add(&ordered(ask, of(*tier), &mut reached, &mut tally));
        }
        reached.add(&passed);
        self.union(ask, &of(Tier::Namespace).collect::<Vec<_>>(), &mut reached, &mut tally);
        ordered(ask, of(Tier::Baseline), &mut reached, &mut tally);
        tally.open(&reached);
        self.decision(ask, tally)
    }

    /// NetworkPolicy and the Cilium policies: denies, then allows, then default deny by selection. Takes the ports out
    /// of `reached` that surely end here.
    fn union(
        &self,
        ask: &Ask<'_>,
        selected: &[(usize, &Policy, Truth)],
        reached: &mut PortSet,
        tally: &mut Tally,
    ) {
        let isolation = self.isolation(ask, selected);
        if ask.protocol == Protocol::Icmp && self.facts.enforcer != Enforcer::Cilium && isolation.any() {
            let undefined = Ground::Undefined("NetworkPolicy does not define what happens to ICMP");
            tally.ground(reached, undefined);
            tally.open(reached);
            tally.close(&std::mem::take(reached));
            return;
        }
        let requires = selected.iter().any(|(_, policy, _)| policy.section(ask.direction).requires);
        let mut hits: Vec<Hit<'_>> = selected.iter().flat_map(|selected| hits(ask, *selected)).collect();
        for hit in hits.iter_mut().filter(|hit| requires && hit.rule.action == Action::Allow) {
            hit.doubt = hit.doubt.or(Some(Doubt::Requires));
        }
        let denied = settle(&hits, Action::Deny, true, reached, tally);
        tally.close(&reached.take(&denied));
        let perhaps_denied = settle(&hits, Action::Deny, false, reached, tally);
        tally.close(&perhaps_denied);
        let allowed = settle(&hits, Action::Allow, true, reached, tally);
        tally.open(&reached.take(&allowed));
        let perhaps_allowed = settle(&hits, Action::Allow, false, reached, tally);
        tally.open(&perhaps_allowed);
        // What is denied may be in default deny as well: then lifting the deny opens nothing.
        let mut held = denied;
        for hit in hits.iter().filter(|hit| hit.rule.action == Action::Allow && hit.doubt.is_none()) {
            held.take(&hit.ports);
        }
        held.add(reached);
        isolation.apply(ask, selected, &held, reached, tally);
    }

    /// Traffic of the local node to its pods is let through by Cilium, unless a rule denies it (cilium/cilium
    /// `pkg/policy`, `determineAllowLocalhostIngress`), and in both directions by NetworkPolicy (Kubernetes
    /// documentation, network policies).
    fn isolation(&self, ask: &Ask<'_>, selected: &[(usize, &Policy, Truth)]) -> Isolation {
        let by_policy = selected.iter().map(|selected| isolates(ask, selected)).max().unwrap_or(Truth::No);
        let exempt = match (ask.direction, self.facts.enforcer) {
            _ if !ask.peer.end.kind.is_own_node() => Truth::No,
            (Direction::Ingress, _) | (Direction::Egress, Enforcer::Other) => Truth::Yes,
            (Direction::Egress, Enforcer::Unknown) => Truth::Maybe,
            (Direction::Egress, Enforcer::Cilium) => Truth::No,
        };
        Isolation { selected: by_policy.max(Truth::from(self.enforcement == Enforcement::Always)), exempt }
    }

    fn references(&self, numbers: BTreeSet<usize>) -> Vec<PolicyRef> {
        let policies = numbers.into_iter().filter_map(|number| self.policies.get(number));
        let mut references: Vec<PolicyRef> = policies.map(|policy| policy.reference.clone()).collect();
        references.dedup();
        references
    }

    fn decision(&self, ask: &Ask<'_>, tally: Tally) -> (Decision, BTreeSet<Note>) {
        let (opened, closed, unknown) = (tally.opened(), tally.closed(), tally.unknown());
        let decision = if !closed.is_empty() {
            let denied_by = tally.grounds(&closed, |ground| match ground {
                Ground::Deny(number) => Some(number),
                _ => None,
            });
            let default_deny = tally.grounds(&closed, |ground| match ground {
                Ground::DefaultDeny(number) => Some(number),
                _ => None,
            });
            let missing = denied_by.is_empty().then(|| MissingAllow {
                direction: ask.direction,
                subject: ask.subject.side.clone(),
                peer: ask.peer.side.clone(),
                protocol: ask.protocol,
                ports: closed.into_ranges(),
            });
            Decision::Closed(Closure {
                default_deny: self.references(default_deny),
                denied_by: self.references(denied_by),
                open_ports: opened.into_ranges(),
                missing,
            })
        } else if !unknown.is_empty() {
            let reasons = tally.grounds(&unknown, |ground| self.reason(ground));
            Decision::Unknown { reason: reasons.into_iter().collect::<Vec<_>>().join("; ") }
        } else {
            let by = tally.grounds(&opened, |ground| match ground {
                Ground::Allow(number) => Some(number),
                _ => None,
            });
            Decision::Open { by: self.references(by) }
        };
        (decision, tally.notes)
    }

    /// Why something cannot be known, where this is the ground for it.
    fn reason(&self, ground: Ground) -> Option<String> {
        match ground {
            Ground::Perhaps(number, doubt) => {
                Some(format!("{} {doubt}", self.policies.get(number)?.reference))
            }
            Ground::PerhapsDefaultDeny(number) => Some(format!(
                "whether {} means default deny here is not known",
                self.policies.get(number)?.reference
            )),
            Ground::Undefined(reason) => Some(reason.to_owned()),
            Ground::Allow(_) | Ground::Deny(_) | Ground::DefaultDeny(_) => None,
        }
    }
}

/// Default deny at an end towards a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Isolation {
    /// Whether policies, or the enforcement mode, mean default deny.
    selected: Truth,
    /// Whether the peer passes nevertheless.
    exempt: Truth,
}

impl Isolation {
    fn any(self) -> bool {
        self.selected != Truth::No && self.exempt != Truth::Yes
    }

    /// Ends the ports that reached it; they go on only where selection is not sure. `held` are the ports that it would
    /// hold, whatever else denies them.
    fn apply(
        self,
        ask: &Ask<'_>,
        selected: &[(usize, &Policy, Truth)],
        held: &PortSet,
        reached: &mut PortSet,
        tally: &mut Tally,
    ) {
        if self.selected == Truth::No {
            return;
        }
        for selected in selected {
            let ground = match (isolates(ask, selected), self.exempt) {
                (Truth::No, _) | (Truth::Yes, Truth::Yes) => continue,
                (Truth::Yes, Truth::No) => Ground::DefaultDeny(selected.0),
                (Truth::Maybe, _) | (Truth::Yes, Truth::Maybe) => Ground::PerhapsDefaultDeny(selected.0),
            };
            tally.ground(held, ground);
        }
        if self.exempt != Truth::No {
            tally.open(reached);
        }
        if self.exempt != Truth::Yes {
            tally.close(reached);
        }
        if self.selected == Truth::Yes {
            *reached = PortSet::default();
        }
    }
}

/// The ports that sure or doubtful hits of an action have among those that reached them.
fn settle(hits: &[Hit<'_>], action: Action, sure: bool, reached: &PortSet, tally: &mut Tally) -> PortSet {
    let mut had = PortSet::default();
    for hit in hits.iter().filter(|hit| hit.rule.action == action && hit.doubt.is_none() == sure) {
        let ports = hit.ports.intersect(reached);
        if !ports.is_empty() {
            had.add(&ports);
            remember(hit, &ports, tally);
        }
    }
    had
}

fn remember(hit: &Hit<'_>, ports: &PortSet, tally: &mut Tally) {
    let ground = match (hit.doubt, hit.rule.action) {
        (Some(doubt), _) => Ground::Perhaps(hit.number, doubt),
        (None, Action::Deny) => Ground::Deny(hit.number),
        (None, Action::Allow) => Ground::Allow(hit.number),
        (None, Action::Pass) => return,
    };
    tally.ground(ports, ground);
    if let Ground::Allow(_) = ground {
        let reference = &hit.policy.reference;
        let application = hit.rule.application.then(|| Note::ApplicationRules(reference.clone()));
        let authentication = hit.rule.authentication.then(|| Note::Authentication(reference.clone()));
        tally.notes.extend(application.into_iter().chain(authentication));
    }
}

/// Ports by the action of a rule.
#[derive(Default)]
struct Actions {
    allow: PortSet,
    deny: PortSet,
    pass: PortSet,
}

impl Actions {
    fn of(&mut self, action: Action) -> &mut PortSet {
        match action {
            Action::Allow => &mut self.allow,
            Action::Deny => &mut self.deny,
            Action::Pass => &mut self.pass,
        }
    }
}

/// Admin policies of one priority: in each the first matching rule counts. Where two of them contradict each other the
/// order is undefined (network-policy-api, text of `priority`). Takes the ports out of `reached` that surely end here
/// or pass, and gives those that may pass.
fn ordered<'a>(
    ask: &Ask<'_>,
    policies: impl Iterator<Item = (usize, &'a Policy, Truth)>,
    reached: &mut PortSet,
    tally: &mut Tally,
) -> PortSet {
    let (mut may, mut sure) = (Actions::default(), Actions::default());
    for selected in policies {
        let mut left = reached.clone();
        for hit in hits(ask, selected) {
            let ports = hit.ports.intersect(&left);
            if ports.is_empty() {
                continue;
            }
            remember(&hit, &ports, tally);
            may.of(hit.rule.action).add(&ports);
            if hit.doubt.is_none() {
                left.take(&ports);
                sure.of(hit.rule.action).add(&ports);
            }
        }
    }
    for (a, b) in [(&sure.allow, &sure.deny), (&sure.allow, &sure.pass), (&sure.deny, &sure.pass)] {
        let contradiction = Ground::Undefined("admin policies of the same priority contradict each other");
        tally.ground(&a.intersect(b), contradiction);
    }
    tally.open(&may.allow);
    tally.close(&may.deny);
    for ports in [&sure.allow, &sure.deny, &sure.pass] {
        reached.take(ports);
    }
    may.pass
}

fn isolates(ask: &Ask<'_>, (_, policy, truth): &(usize, &Policy, Truth)) -> Truth {
    policy.section(ask.direction).isolates.min(*truth)
}

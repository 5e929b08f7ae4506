//! Which rules mean a connection. Enters: a policy's rules, two ends and ports; leaves: the rules that match or may
//! match, each with the ports it has. Must not know what follows from a match.

use super::answer::{Direction, Ports};
use super::compiled::Seen;
use super::identity::Kind;
use super::model::{Doubt, PeerTerm, Policy, PortMatch, PortTerm, Range, Rule};
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
    pub(super) fn port_set(&self) -> PortSet {
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
pub(super) struct Hit<'a> {
    pub(super) number: usize,
    pub(super) policy: &'a Policy,
    pub(super) rule: &'a Rule,
    pub(super) ports: PortSet,
    /// `None`: it matches.
    pub(super) doubt: Option<Doubt>,
}

/// The rules of a policy that match, or may match, some of the ports asked about.
pub(super) fn hits<'a>(ask: &Ask<'_>, (number, policy, truth): (usize, &'a Policy, Truth)) -> Vec<Hit<'a>> {
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
                Range::PodsAndOutside => end.kind == Kind::Pod || end.kind.is_outside(),
            };
            (Truth::from(inside).min(Truth::Maybe), *doubt)
        }
    }
}

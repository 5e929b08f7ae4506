//! The one rule model all four policy APIs compile to. Must not know JSON, nor how a decision is made of it.

use std::fmt;

use ipnet::IpNet;

use super::answer::{Direction, PolicyRef};
use super::selector::{Selector, Truth};
use crate::facts::Protocol;

/// What a matching rule does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    Allow,
    Deny,
    /// Leaves it to the next tier.
    Pass,
}

/// When a policy's rules are looked at.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Tier {
    /// AdminNetworkPolicy, lower number first.
    Admin(u16),
    /// NetworkPolicy and the Cilium policies: one union, deny before allow, default deny by selection.
    Namespace,
    /// BaselineAdminNetworkPolicy.
    Baseline,
}

/// Why a rule may or may not match.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Doubt {
    Fqdn,
    Groups,
    CidrGroup,
    NodeLabels,
    ServiceBackends,
    ServiceUnknown,
    IcmpType,
    NoPorts,
    Requires,
    Labels,
    Address,
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fqdn => "allows DNS names, and which addresses they have is not known",
            Self::Groups => "refers to groups of a cloud provider, whose addresses are not known",
            Self::CidrGroup => "refers to a CIDR group, whose networks are not known",
            Self::NodeLabels => {
                "selects nodes by labels, which Cilium only does with enable-node-selector-labels"
            }
            Self::ServiceBackends => "refers to a service without a selector, whose endpoints are not known",
            Self::ServiceUnknown => "refers to a service that is not among the objects",
            Self::IcmpType => "has ICMP types, and the type was not asked about",
            Self::NoPorts => "has a toPorts entry without ports",
            Self::Requires => "has fromRequires or toRequires, which constrains all other rules",
            Self::Labels => "depends on labels that are not known",
            Self::Address => {
                "depends on an address that is not known, or on the network plugin's use of addresses"
            }
        })
    }
}

/// How a CIDR treats pods and nodes. What is outside of the cluster is always matched by its address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Inside {
    /// Cilium: CIDR rules do not match what has an identity of its own.
    Never,
    /// NetworkPolicy `ipBlock`: up to the network plugin.
    Perhaps,
    /// AdminNetworkPolicy `networks`: cluster-internal addresses are matched too.
    Always,
}

/// Networks with holes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Block {
    pub(super) net: IpNet,
    pub(super) holes: Vec<IpNet>,
    pub(super) inside: Inside,
}

/// To whom a [`PeerTerm::Doubtful`] may apply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Range {
    /// Addresses outside of the cluster.
    Outside,
    /// Nodes.
    Nodes,
    /// Pods, and addresses outside of the cluster.
    PodsAndOutside,
}

/// One alternative of a rule's peers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum PeerTerm {
    Any,
    Matching(Selector),
    /// Nodes with these labels.
    Nodes(Selector),
    /// The numbered [`Block`].
    Block(usize),
    /// May match, for a reason that no fact here can settle.
    Doubtful(Range, Doubt),
}

/// A port of a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum PortTerm {
    /// A range, both ends included.
    Numbers(u16, u16),
    /// The numbered port name, resolved at the destination.
    Named(usize),
}

/// The transport of a [`PortTerm`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Transport {
    Only(Protocol),
    /// TCP, UDP and SCTP: protocols with ports.
    WithPorts,
}

impl Transport {
    pub(super) fn matches(self, protocol: Protocol) -> bool {
        match self {
            Self::Only(only) => only == protocol,
            Self::WithPorts => protocol != Protocol::Icmp,
        }
    }
}

/// What a rule says of ports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum PortMatch {
    /// All ports of all protocols.
    All,
    Terms(Vec<(Transport, PortTerm)>),
    /// ICMP of some types.
    Icmp,
}

/// One rule in one direction. Peers are alternatives; none of them means nobody.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Rule {
    pub(super) action: Action,
    pub(super) peers: Vec<PeerTerm>,
    pub(super) ports: PortMatch,
    /// Set when the rule may not apply even if peers and ports match.
    pub(super) doubt: Option<Doubt>,
    /// Restricts the application protocol too.
    pub(super) application: bool,
    /// Asks for mutual authentication.
    pub(super) authentication: bool,
}

impl Rule {
    pub(super) fn new(action: Action, peers: Vec<PeerTerm>, ports: PortMatch) -> Self {
        Self { action, peers, ports, doubt: None, application: false, authentication: false }
    }
}

/// What a policy says of one direction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Section {
    /// Whether selection alone means default deny.
    pub(super) isolates: Truth,
    /// Has `fromRequires` or `toRequires`: constrains all other allows in ways not modelled here.
    pub(super) requires: bool,
    pub(super) rules: Vec<Rule>,
}

impl Default for Section {
    fn default() -> Self {
        Self { isolates: Truth::No, requires: false, rules: Vec::new() }
    }
}

/// Whom a policy selects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Subject {
    Endpoints(Selector),
    /// A Cilium host policy. Which nodes it selects, and whether the host firewall is on, is not modelled.
    Nodes,
}

/// A policy, or one of the `specs` of a Cilium policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Policy {
    pub(super) reference: PolicyRef,
    pub(super) tier: Tier,
    pub(super) subject: Subject,
    pub(super) ingress: Section,
    pub(super) egress: Section,
    /// Set when the policy could not be understood; then it has no rules.
    pub(super) unreadable: bool,
}

impl Policy {
    pub(super) fn section(&self, direction: Direction) -> &Section {
        match direction {
            Direction::Ingress => &self.ingress,
            Direction::Egress => &self.egress,
        }
    }
}

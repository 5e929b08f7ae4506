//! What is asked of the policies and what they answer. Plain data: must not know how an answer is found.

use std::fmt;
use std::net::IpAddr;

use crate::facts::{Pod, Protocol};
use crate::object::Labels;
pub use crate::observation::Direction;
use crate::time::Timestamp;

/// Cilium's `policyEnforcementMode` (Cilium documentation, policy enforcement modes).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Enforcement {
    /// Default deny begins with the first policy that selects an endpoint.
    #[default]
    Default,
    /// Every endpoint is in default deny, selected or not.
    Always,
    /// Policies are not enforced.
    Never,
}

/// Which network plugin enforces policies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Cni {
    /// Cilium.
    Cilium,
    /// Another plugin that implements NetworkPolicy.
    Other,
    /// Not known. Cilium is inferred from a known Cilium version or from Cilium policies among the objects.
    #[default]
    Unknown,
}

/// What the policies' meaning depends on besides the policies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Settings {
    /// Cilium's major and minor version; `None`: not known, the newest is assumed.
    pub cilium_version: Option<(u16, u16)>,
    /// Cilium's enforcement mode.
    pub enforcement: Enforcement,
    /// Who enforces.
    pub cni: Cni,
}

/// A peer that is no pod (Cilium documentation, entities based policy).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Entity {
    /// Outside of the cluster.
    World,
    /// The node the other end runs on.
    Host,
    /// Another node of the cluster.
    RemoteNode,
    /// The Kubernetes API server, on a node or outside.
    KubeApiserver,
    /// The Kubernetes API server, known not to run on the node of the other end.
    KubeApiserverElsewhere,
    /// A pod that Cilium does not manage.
    Unmanaged,
    /// Cilium's health endpoint.
    Health,
    /// Cilium's ingress proxy.
    Ingress,
    /// An endpoint whose labels are not known to Cilium yet.
    Init,
}

/// One end of a connection.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Peer<'a> {
    /// A pod. One with `hostNetwork` counts as its node.
    Pod(&'a Pod),
    /// Something else, with its address where it is known.
    Entity(Entity, Option<IpAddr>),
}

/// Destination ports asked about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ports {
    /// One port.
    One(u16),
    /// All ports from the first to the second, both included: every one of them must be open.
    Range(u16, u16),
}

/// May `src` open a connection to `dst`?
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Question<'a> {
    /// Who opens the connection.
    pub src: Peer<'a>,
    /// To whom.
    pub dst: Peer<'a>,
    /// With which protocol. For ICMP the ports say nothing.
    pub protocol: Protocol,
    /// To which ports of `dst`.
    pub ports: Ports,
}

/// The kind of a policy object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PolicyKind {
    /// `cilium.io` `CiliumNetworkPolicy`.
    CiliumNetworkPolicy,
    /// `cilium.io` `CiliumClusterwideNetworkPolicy`.
    CiliumClusterwideNetworkPolicy,
    /// `networking.k8s.io` `NetworkPolicy`.
    NetworkPolicy,
    /// `policy.networking.k8s.io` `AdminNetworkPolicy`.
    AdminNetworkPolicy,
    /// `policy.networking.k8s.io` `BaselineAdminNetworkPolicy`.
    BaselineAdminNetworkPolicy,
}

impl PolicyKind {
    /// All kinds.
    pub const ALL: [PolicyKind; 5] = [
        Self::CiliumNetworkPolicy,
        Self::CiliumClusterwideNetworkPolicy,
        Self::NetworkPolicy,
        Self::AdminNetworkPolicy,
        Self::BaselineAdminNetworkPolicy,
    ];

    /// The object's `kind`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CiliumNetworkPolicy => "CiliumNetworkPolicy",
            Self::CiliumClusterwideNetworkPolicy => "CiliumClusterwideNetworkPolicy",
            Self::NetworkPolicy => "NetworkPolicy",
            Self::AdminNetworkPolicy => "AdminNetworkPolicy",
            Self::BaselineAdminNetworkPolicy => "BaselineAdminNetworkPolicy",
        }
    }
}

/// Names a policy object.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PolicyRef {
    /// Its kind.
    pub kind: PolicyKind,
    /// Its namespace; `None` for cluster-scoped kinds.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// When it was created, where the object says so.
    pub created: Option<Timestamp>,
}

impl fmt::Display for PolicyRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind.as_str();
        match &self.namespace {
            Some(namespace) => write!(f, "{kind} {namespace}/{}", self.name),
            None => write!(f, "{kind} {}", self.name),
        }
    }
}

/// A policy that could not be understood. Answers about pods it may select are [`Decision::Unknown`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Rejected {
    /// Which policy.
    pub policy: PolicyRef,
    /// What is wrong with it.
    pub reason: String,
}

/// Something worth knowing beside the decision.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Note {
    /// An allow that also restricts the application protocol (HTTP, DNS, TLS names ...): connections open, single
    /// requests may still be refused.
    ApplicationRules(PolicyRef),
    /// An allow that asks for mutual authentication: connections wait until it succeeded.
    Authentication(PolicyRef),
    /// Cilium 1.15 would answer differently from the newest version, and the version is not known.
    CiliumVersion,
    /// Admin policies exist, but Cilium does not enforce them.
    AdminPoliciesIgnored,
}

/// The part of an end that a new rule would have to select.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Side {
    /// Pods.
    Pods {
        /// Their namespace.
        namespace: String,
        /// The labels a policy can select by; of a group of pods: those all have.
        labels: Labels,
    },
    /// An entity, with its address where it is known.
    Entity(Entity, Option<IpAddr>),
}

/// The smallest allow that would open a closed end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MissingAllow {
    /// In which direction, seen from `subject`.
    pub direction: Direction,
    /// Whom the rule has to select.
    pub subject: Side,
    /// Whom it has to allow.
    pub peer: Side,
    /// The protocol.
    pub protocol: Protocol,
    /// The closed ports, both ends included.
    pub ports: Vec<(u16, u16)>,
}

/// Why an end is closed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Closure {
    /// All policies that put the end into default deny, where no allow matched. Empty with
    /// [`Enforcement::Always`] when nothing selects the end.
    pub default_deny: Vec<PolicyRef>,
    /// The explicit denies that matched.
    pub denied_by: Vec<PolicyRef>,
    /// For [`Ports::Range`]: the part that is open nevertheless.
    pub open_ports: Vec<(u16, u16)>,
    /// What would open it; `None` when an explicit deny stands in the way, which no allow overrides.
    pub missing: Option<MissingAllow>,
}

/// What one end says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Open, by these policies; by none when nothing selects the end.
    Open {
        /// The policies with a matching allow.
        by: Vec<PolicyRef>,
    },
    /// Closed.
    Closed(Closure),
    /// Cannot be known.
    Unknown {
        /// Why not.
        reason: String,
    },
}

/// The result for both ends together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict3 {
    /// The connection may be opened.
    Open,
    /// It may not.
    Closed,
    /// Cannot be known.
    Unknown,
}

/// The answer to a [`Question`]; both directions are always evaluated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// What the source's policies say.
    pub egress: Decision,
    /// What the destination's policies say.
    pub ingress: Decision,
    /// Worth knowing, sorted.
    pub notes: Vec<Note>,
}

impl Decision {
    /// The decision without its reasons.
    #[must_use]
    pub fn verdict(&self) -> Verdict3 {
        match self {
            Self::Open { .. } => Verdict3::Open,
            Self::Closed(_) => Verdict3::Closed,
            Self::Unknown { .. } => Verdict3::Unknown,
        }
    }
}

impl Answer {
    /// Closed if either end is closed, else unknown if either is unknown.
    #[must_use]
    pub fn verdict(&self) -> Verdict3 {
        both(self.egress.verdict(), self.ingress.verdict())
    }
}

/// The result of two ends.
pub(super) fn both(egress: Verdict3, ingress: Verdict3) -> Verdict3 {
    match (egress, ingress) {
        (Verdict3::Closed, _) | (_, Verdict3::Closed) => Verdict3::Closed,
        (Verdict3::Unknown, _) | (_, Verdict3::Unknown) => Verdict3::Unknown,
        (Verdict3::Open, Verdict3::Open) => Verdict3::Open,
    }
}

//! A set of policies and the answers it gives. Enters: objects and questions; leaves: answers. Where a setting is not
//! known that decides how policies are read, the set holds every reading and compares their answers.

use std::collections::BTreeSet;

use super::answer::{
    Answer, Closure, Decision, Direction, Entity, Note, Peer, PolicyKind, PolicyRef, Ports, Question,
};
use super::answer::{Rejected, Settings, Side};
use super::compiled::{Compiled, Seen, enforcer};
use super::hits::Ask;
use super::identity::{End, Enforcer, Facts, Kind, own_network};
use super::ports::PortSet;
use crate::facts::{Namespace, Node, Pod, Protocol, Service};
use crate::object::Object;

/// The oldest Cilium version whose reading of policies is compared when the version is not known.
const OLD_CILIUM: (u16, u16) = (1, 15);

/// Compiled policies of all kinds.
#[derive(Clone, Debug)]
pub struct PolicySet {
    main: Compiled,
    others: Vec<(Alternative, Compiled)>,
}

/// Another way the same objects may be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Alternative {
    /// By an old Cilium.
    OldCilium,
    /// By a network plugin that knows no admin policies.
    WithoutAdmin,
}

/// An end in every reading.
#[derive(Clone, Debug)]
pub(super) struct View(pub(super) Vec<Seen>);

impl PolicySet {
    /// Compiles the policies among `objects`; services and nodes among them are used where rules refer to them, other
    /// kinds are ignored. Namespaces that are not given have no known labels but their name.
    pub fn from_objects<'a>(
        objects: impl IntoIterator<Item = &'a Object>,
        namespaces: &[Namespace],
        settings: Settings,
    ) -> Self {
        let (mut policies, mut services, mut nodes) = (Vec::new(), Vec::new(), Vec::new());
        for object in objects {
            policies.extend(reference(object).map(|reference| (reference, object)));
            services.extend(Service::from_object(object));
            nodes.extend(Node::from_object(object).map(|node| (node.name, node.labels)));
        }
        policies.sort_by(|(a, _), (b, _)| a.cmp(b));
        let facts = Facts {
            namespaces: namespaces.iter().map(|n| (n.name.clone(), n.labels.clone())).collect(),
            nodes: nodes.into_iter().collect(),
            enforcer: enforcer(settings, &policies),
            version: settings.cilium_version,
        };
        let compile = |settings: Settings, admin| {
            let facts = Facts { version: settings.cilium_version, ..facts.clone() };
            Compiled::new(&policies, &services, facts, settings, admin)
        };
        // Cilium does not implement the v1alpha1 admin policies (cilium/cilium issue #23380).
        let admin = facts.enforcer != Enforcer::Cilium;
        let main = compile(settings, admin);
        let mut others = Vec::new();
        if facts.enforcer == Enforcer::Cilium && settings.cilium_version.is_none() {
            let old = Settings { cilium_version: Some(OLD_CILIUM), ..settings };
            others.push((Alternative::OldCilium, compile(old, admin)));
        }
        if facts.enforcer == Enforcer::Unknown {
            others.push((Alternative::WithoutAdmin, compile(settings, false)));
        }
        Self { main, others }
    }

    /// The policies that could not be understood, sorted.
    #[must_use]
    pub fn rejected(&self) -> &[Rejected] {
        &self.main.rejected
    }

    /// Answers a question. Both directions are evaluated, whatever the first one says.
    #[must_use]
    pub fn evaluate(&self, question: &Question<'_>) -> Answer {
        if is_same_pod(question) {
            return self.join(&Half::default(), &Half::default());
        }
        let (mut egress, mut ingress) = (Vec::new(), Vec::new());
        for (src, dst) in cases(question) {
            let (src, dst) = (self.view(&question.src, src), self.view(&question.dst, dst));
            egress.push(self.half(Direction::Egress, &src, &dst, question.protocol, question.ports));
            ingress.push(self.half(Direction::Ingress, &dst, &src, question.protocol, question.ports));
        }
        self.join(&merge(egress), &merge(ingress))
    }

    /// An answer from what the two ends say.
    pub(super) fn join(&self, egress: &Half, ingress: &Half) -> Answer {
        let mut notes: BTreeSet<Note> = egress.notes.union(&ingress.notes).cloned().collect();
        notes.extend(self.main.admin_ignored.then_some(Note::AdminPoliciesIgnored));
        Answer {
            egress: egress.decision.clone(),
            ingress: ingress.decision.clone(),
            notes: notes.into_iter().collect(),
        }
    }

    pub(super) fn readings(&self) -> impl Iterator<Item = &Compiled> {
        std::iter::once(&self.main).chain(self.others.iter().map(|(_, compiled)| compiled))
    }

    /// What every reading sees of an end.
    pub(super) fn ends(&self, peer: &Peer<'_>, kind: Kind) -> Vec<End> {
        self.readings().map(|compiled| compiled.end(peer, kind)).collect()
    }

    /// The same with the policies that select it.
    pub(super) fn see(&self, ends: Vec<End>, side: &Side) -> View {
        View(self.readings().zip(ends).map(|(compiled, end)| compiled.see(end, side.clone())).collect())
    }

    /// What a missing allow calls an end.
    pub(super) fn side(&self, peer: &Peer<'_>, kind: Kind) -> Side {
        self.main.facts.side(peer, kind)
    }

    fn view(&self, peer: &Peer<'_>, kind: Kind) -> View {
        self.see(self.ends(peer, kind), &self.side(peer, kind))
    }

    /// What one end says in one direction, in all readings.
    pub(super) fn half(
        &self,
        direction: Direction,
        subject: &View,
        peer: &View,
        protocol: Protocol,
        ports: Ports,
    ) -> Half {
        let ends = subject.0.iter().zip(&peer.0);
        let mut halves = self.readings().zip(ends).map(|(compiled, (subject, peer))| {
            let (decision, notes) = compiled.decide(&Ask { direction, subject, peer, protocol, ports });
            Half { decision, notes }
        });
        let mut main = halves.next().unwrap_or_default();
        for ((alternative, _), other) in self.others.iter().zip(halves) {
            let agrees = main.decision.verdict() == other.decision.verdict();
            match alternative {
                _ if agrees => {}
                Alternative::OldCilium => main.notes.extend([Note::CiliumVersion]),
                Alternative::WithoutAdmin => {
                    let reason = "whether the network plugin enforces admin policies is not known".to_owned();
                    main.decision = Decision::Unknown { reason };
                }
            }
        }
        main
    }
}

/// What one end says; open by no policy unless something else is found.
#[derive(Clone, Debug)]
pub(super) struct Half {
    pub(super) decision: Decision,
    pub(super) notes: BTreeSet<Note>,
}

impl Default for Half {
    fn default() -> Self {
        Self { decision: Decision::Open { by: Vec::new() }, notes: BTreeSet::new() }
    }
}

/// One decision from those of all cases that the facts leave open; they only differ in where an end is.
pub(super) fn merge(halves: impl IntoIterator<Item = Half>) -> Half {
    let merged = halves.into_iter().reduce(|mut first, second| {
        if first.decision.verdict() != second.decision.verdict() {
            let reason =
                "where an end runs is not known: its node, or whether it is inside of the cluster".to_owned();
            first.decision = Decision::Unknown { reason };
        } else if let (Decision::Closed(first), Decision::Closed(second)) =
            (&mut first.decision, second.decision)
        {
            *first = common(first, second);
        }
        first.notes.extend(second.notes);
        first
    });
    merged.unwrap_or_default()
}

/// One closure of those of two ways in which an end is closed: a deny is only in the way when there is one in both, all
/// that may mean default deny has to be reckoned with, and only what is open in both is open.
fn common(first: &Closure, second: Closure) -> Closure {
    let ports = |closure: &Closure| closure.open_ports.iter().copied().collect::<PortSet>();
    let all = |first: &[PolicyRef], second: &[PolicyRef]| {
        first.iter().chain(second).cloned().collect::<BTreeSet<_>>().into_iter().collect()
    };
    let missing = first.missing.clone().or(second.missing.clone());
    Closure {
        default_deny: all(&first.default_deny, &second.default_deny),
        denied_by: match missing {
            None => all(&first.denied_by, &second.denied_by),
            Some(_) => Vec::new(),
        },
        open_ports: ports(first).intersect(&ports(&second)).into_ranges(),
        missing,
    }
}

/// A pod cannot be kept from itself (Kubernetes documentation, network policies).
pub(super) fn is_same_pod(question: &Question<'_>) -> bool {
    match (question.src, question.dst) {
        (Peer::Pod(src), Peer::Pod(dst)) => {
            src.name == dst.name && src.namespace == dst.namespace && src.uid == dst.uid
        }
        _ => false,
    }
}

/// What the two ends are to each other, in every case the facts leave open.
pub(super) fn cases(question: &Question<'_>) -> impl Iterator<Item = (Kind, Kind)> {
    let src = kinds(&question.src, &question.dst);
    let dst = kinds(&question.dst, &question.src);
    src.into_iter().flatten().flat_map(move |src| dst.into_iter().flatten().map(move |dst| (src, dst)))
}

fn kinds(peer: &Peer<'_>, other: &Peer<'_>) -> [Option<Kind>; 3] {
    let one = |kind| [Some(kind), None, None];
    match peer {
        Peer::Pod(pod) if !pod.host_network => one(Kind::Pod),
        Peer::Pod(pod) => match own_network(other) {
            Some(other) => node_kinds(pod, other),
            None => one(Kind::RemoteNode),
        },
        Peer::Entity(entity, _) => match entity {
            Entity::World => one(Kind::World),
            Entity::Host => one(Kind::Host),
            Entity::RemoteNode => one(Kind::RemoteNode),
            Entity::KubeApiserver => {
                [Kind::ApiserverHost, Kind::ApiserverNode, Kind::ApiserverOutside].map(Some)
            }
            Entity::KubeApiserverElsewhere => [Some(Kind::ApiserverNode), Some(Kind::ApiserverOutside), None],
            Entity::Unmanaged => one(Kind::Unmanaged),
            Entity::Health => one(Kind::Health),
            Entity::Ingress => one(Kind::Ingress),
            Entity::Init => one(Kind::Init),
        },
    }
}

/// What the node of a `hostNetwork` pod is to another pod.
fn node_kinds(host: &Pod, other: &Pod) -> [Option<Kind>; 3] {
    match (&host.node, &other.node) {
        (Some(a), Some(b)) if a == b => [Some(Kind::Host), None, None],
        (Some(_), Some(_)) => [Some(Kind::RemoteNode), None, None],
        _ => [Some(Kind::RemoteNode), Some(Kind::Host), None],
    }
}

fn reference(object: &Object) -> Option<PolicyRef> {
    let kinds = [
        ("cilium.io", PolicyKind::CiliumNetworkPolicy),
        ("cilium.io", PolicyKind::CiliumClusterwideNetworkPolicy),
        ("networking.k8s.io", PolicyKind::NetworkPolicy),
        ("policy.networking.k8s.io", PolicyKind::AdminNetworkPolicy),
        ("policy.networking.k8s.io", PolicyKind::BaselineAdminNetworkPolicy),
    ];
    let means =
        |(group, kind): &(&str, PolicyKind)| object.group() == *group && object.kind() == kind.as_str();
    let (_, kind) = kinds.into_iter().find(means)?;
    let namespaced = matches!(kind, PolicyKind::CiliumNetworkPolicy | PolicyKind::NetworkPolicy);
    Some(PolicyRef {
        kind,
        namespace: namespaced.then(|| object.namespace().unwrap_or("default").to_owned()),
        name: object.name().to_owned(),
        created: object.created(),
    })
}

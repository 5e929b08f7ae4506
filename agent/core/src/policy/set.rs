//! A set of policies and the answers it gives. Enters: objects and questions; leaves: answers. Where a setting is not
//! known that decides how policies are read, the set holds every reading and compares their answers.

use std::collections::BTreeSet;

use super::answer::{Answer, Decision, Entity, Note, Peer, PolicyKind, PolicyRef, Question, Rejected, Settings};
use super::answer::{Direction, Verdict3};
use super::compiled::{Compiled, Seen, enforcer};
use super::evaluate::Ask;
use super::identity::{Enforcer, Facts, Kind, own_network};
use crate::facts::{Namespace, Node, Pod, Service};
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
        if main.version_matters {
            let old = Settings { cilium_version: Some(OLD_CILIUM), ..settings };
            others.push((Alternative::OldCilium, compile(old, admin)));
        }
        let has_admin = policies.iter().any(|(reference, _)| reference.kind > PolicyKind::NetworkPolicy);
        if facts.enforcer == Enforcer::Unknown && has_admin {
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
            return open();
        }
        let answers = cases(question).map(|(src, dst)| {
            let (src, dst) = (self.view(&question.src, src), self.view(&question.dst, dst));
            self.answer(question, &src, &dst)
        });
        merge(answers)
    }

    pub(super) fn view(&self, peer: &Peer<'_>, kind: Kind) -> View {
        let side = self.main.facts.side(peer, kind);
        View(self.readings().map(|compiled| compiled.see(compiled.end(peer, kind), side.clone())).collect())
    }

    fn readings(&self) -> impl Iterator<Item = &Compiled> {
        std::iter::once(&self.main).chain(self.others.iter().map(|(_, compiled)| compiled))
    }

    /// The answer of all readings to a question about two ends.
    pub(super) fn answer(&self, question: &Question<'_>, src: &View, dst: &View) -> Answer {
        let mut answers = self.readings().zip(src.0.iter().zip(&dst.0)).map(|(compiled, (src, dst))| {
            let ask = |direction, subject, peer| {
                let ask = Ask { direction, subject, peer, protocol: question.protocol, ports: question.ports };
                compiled.decide(&ask)
            };
            let (egress, mut notes) = ask(Direction::Egress, src, dst);
            let (ingress, more) = ask(Direction::Ingress, dst, src);
            notes.extend(more);
            notes.extend(compiled.admin_ignored.then_some(Note::AdminPoliciesIgnored));
            Answer { egress, ingress, notes: notes.into_iter().collect() }
        });
        let mut answer = answers.next().unwrap_or_else(open);
        for ((alternative, _), other) in self.others.iter().zip(answers) {
            let differs = verdicts(&answer) != verdicts(&other);
            match alternative {
                Alternative::OldCilium if differs => answer.notes.push(Note::CiliumVersion),
                Alternative::OldCilium => {}
                Alternative::WithoutAdmin => {
                    let reason = "whether the network plugin enforces admin policies is not known";
                    answer.egress = agree(answer.egress, other.egress, reason);
                    answer.ingress = agree(answer.ingress, other.ingress, reason);
                }
            }
        }
        answer.notes.sort_unstable();
        answer
    }
}

fn verdicts(answer: &Answer) -> [Verdict3; 2] {
    [answer.egress.verdict(), answer.ingress.verdict()]
}

/// The first decision if both come to the same.
fn agree(first: Decision, second: Decision, reason: &str) -> Decision {
    match first.verdict() == second.verdict() {
        true => first,
        false => Decision::Unknown { reason: reason.to_owned() },
    }
}

/// One answer from those of all cases that the facts leave open; they only differ in where an end is.
pub(super) fn merge(answers: impl IntoIterator<Item = Answer>) -> Answer {
    const REASON: &str = "where an end runs is not known: its node, or whether it is inside of the cluster";
    let merged = answers.into_iter().reduce(|a, b| Answer {
        egress: agree(a.egress, b.egress, REASON),
        ingress: agree(a.ingress, b.ingress, REASON),
        notes: a.notes.into_iter().chain(b.notes).collect::<BTreeSet<_>>().into_iter().collect(),
    });
    merged.unwrap_or_else(open)
}

/// Open on both ends, by no policy.
pub(super) fn open() -> Answer {
    Answer {
        egress: Decision::Open { by: Vec::new() },
        ingress: Decision::Open { by: Vec::new() },
        notes: Vec::new(),
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

fn kinds(peer: &Peer<'_>, other: &Peer<'_>) -> [Option<Kind>; 2] {
    let one = |kind| [Some(kind), None];
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
            Entity::KubeApiserver => [Some(Kind::ApiserverNode), Some(Kind::ApiserverOutside)],
            Entity::Unmanaged => one(Kind::Unmanaged),
            Entity::Health => one(Kind::Health),
            Entity::Ingress => one(Kind::Ingress),
            Entity::Init => one(Kind::Init),
        },
    }
}

/// What the node of a `hostNetwork` pod is to another pod.
fn node_kinds(host: &Pod, other: &Pod) -> [Option<Kind>; 2] {
    match (&host.node, &other.node) {
        (Some(a), Some(b)) if a == b => [Some(Kind::Host), None],
        (Some(_), Some(_)) => [Some(Kind::RemoteNode), None],
        _ => [Some(Kind::RemoteNode), Some(Kind::Host)],
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
    let means = |(group, kind): &(&str, PolicyKind)| object.group() == *group && object.kind() == kind.as_str();
    let (_, kind) = kinds.into_iter().find(means)?;
    let namespaced = matches!(kind, PolicyKind::CiliumNetworkPolicy | PolicyKind::NetworkPolicy);
    Some(PolicyRef {
        kind,
        namespace: namespaced.then(|| object.namespace().unwrap_or("default").to_owned()),
        name: object.name().to_owned(),
        created: object.created(),
    })
}

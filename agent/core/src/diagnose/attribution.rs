//! Which policies stand behind a block. The datapath names a policy only for an explicit denial; everything else is
//! inferred by evaluating the policies as they were when the block was last seen. Both directions are always
//! evaluated: mending only the visible one is a half fix. When the policies allow what was dropped, that is said,
//! and nobody is blamed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::attribute::Peer;
use crate::drop_reason::{DropClass, DropReason};
use crate::facts::Pod;
use crate::history::Blocked;
use crate::inventory::{PodId, PolicyEpoch, is_policy};
use crate::ledger::PortClass;
use crate::observation::Direction;
use crate::policy::{
    Closure, Decision, Entity, Evaluator, Peer as PolicyPeer, PolicyRef, PolicySet, Ports, Question, Verdict3,
};
use crate::report::{CauseKind, Certainty, PolicyBlame, PolicyEffect};
use crate::time::Timestamp;

use super::context::JobContext;
use super::hard_block::Trouble;

/// Ports of a pair that are asked about one by one; the first few tell what the others would.
const ASKED: usize = 4;

/// What the policies say about a block.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Attribution {
    /// The cause, in the light of the policies.
    pub(super) kind: CauseKind,
    /// The policies behind it.
    pub(super) blamed: BTreeSet<PolicyBlame>,
    /// What a person should know about this answer.
    pub(super) notes: BTreeSet<String>,
}

/// Says for each block which policies stand behind it.
pub(super) fn attribute(context: &JobContext<'_>, troubles: &[Trouble]) -> Vec<Attribution> {
    if troubles.is_empty() {
        // Most jobs: when policies changed takes a look at all objects to know.
        return Vec::new();
    }
    let evidence = context.evidence;
    let changes = evidence.inventory.policy_changes();
    let epoch = |trouble: &Trouble| changes.epoch(trouble.span.last);
    let times: BTreeMap<PolicyEpoch, Timestamp> =
        troubles.iter().map(|trouble| (epoch(trouble), trouble.span.last)).collect();
    let earlier = times.into_iter().filter(|(epoch, _)| !changes.is_today(*epoch));
    let earlier: BTreeMap<PolicyEpoch, PolicySet> =
        earlier.map(|(epoch, at)| (epoch, as_of(context, at))).collect();
    let pods = pods_in_question(context, troubles);
    let mut evaluators: BTreeMap<PolicyEpoch, Evaluator<'_>> = BTreeMap::new();
    let attributed = troubles.iter().map(|trouble| {
        let epoch = epoch(trouble);
        let set = earlier.get(&epoch).unwrap_or(evidence.policies);
        let evaluator = evaluators.entry(epoch).or_insert_with(|| Evaluator::new(set, &pods));
        one(context, trouble, evaluator)
    });
    attributed.collect()
}

/// The policies of this time.
fn as_of(context: &JobContext<'_>, at: Timestamp) -> PolicySet {
    let inventory = context.evidence.inventory;
    let namespaces: Vec<_> = inventory.namespaces().values().cloned().collect();
    PolicySet::from_objects(inventory.objects_at(at), &namespaces, context.evidence.settings.policy)
}

fn pods_in_question<'a>(context: &JobContext<'a>, troubles: &[Trouble]) -> Vec<&'a Pod> {
    let peers = troubles.iter().filter_map(|trouble| match trouble.key.dst {
        Peer::Member(pod) | Peer::Dns(Some(pod), _) => Some(pod),
        Peer::SharedAddress(_) | Peer::Dns(None, _) | Peer::ApiServer(_) => None,
    });
    let ids: BTreeSet<PodId> = context.members().chain(peers).collect();
    ids.into_iter().map(|id| context.evidence.inventory.pod(id)).collect()
}

fn one<'a>(context: &JobContext<'a>, trouble: &Trouble, evaluator: &mut Evaluator<'a>) -> Attribution {
    let mut attribution =
        Attribution { kind: trouble.cause(), blamed: reported(trouble), notes: BTreeSet::new() };
    let class = trouble.streak.reason().map_or(DropClass::Unknown, DropReason::class);
    let policy_like = match trouble.blocked {
        Blocked::Denied => matches!(
            class,
            DropClass::Policy | DropClass::ExplicitDeny | DropClass::Filtered | DropClass::Unknown
        ),
        Blocked::Unanswered => true,
        Blocked::Refused => false,
    };
    let Some(dst) = policy_peer(context, trouble.key.src, trouble.key.dst).filter(|_| policy_like) else {
        return attribution;
    };
    let src = PolicyPeer::Pod(context.evidence.inventory.pod(trouble.key.src));
    for port in trouble.ports.iter().take(ASKED) {
        let protocol = trouble.key.protocol;
        let question = Question { src, dst, protocol, ports: Ports::One(*port) };
        let pair = evaluator.evaluate(&question);
        let seen = trouble.streak.direction();
        let at_drop = match seen {
            Some(Direction::Egress) => Some(pair.egress()),
            Some(Direction::Ingress) => Some(pair.ingress()),
            None => None,
        };
        match (at_drop, pair.verdict()) {
            (Some(Decision::Open { .. }), _) => contradicted(context, trouble, &mut attribution),
            (Some(Decision::Unknown { reason }), _) => {
                attribution.notes.insert(format!("which policy drops it cannot be known: {reason}"));
            }
            (Some(Decision::Closed(_)), _) | (None, Verdict3::Closed) => {
                blame(&mut attribution, Direction::Egress, pair.egress());
                blame(&mut attribution, Direction::Ingress, pair.ingress());
                explain(trouble, pair.egress(), pair.ingress(), &mut attribution);
            }
            (None, Verdict3::Open) => {}
            (None, Verdict3::Unknown) => {
                attribution
                    .notes
                    .insert("whether a policy drops it cannot be known from the objects".to_owned());
            }
        }
    }
    if trouble.ports.len() > ASKED && trouble.key.class == PortClass::Fixed {
        attribution.notes.insert(format!(
            "policies were evaluated for the first {ASKED} of {} ports",
            trouble.ports.len()
        ));
    }
    attribution
}

/// A pod may always talk to its own node, so it matters whether the API server runs there.
fn api_server(context: &JobContext<'_>, src: PodId, ip: IpAddr) -> Entity {
    let elsewhere = context
        .evidence
        .inventory
        .node_of(src)
        .is_some_and(|node| !node.ips.is_empty() && !node.ips.contains(&ip));
    if elsewhere { Entity::KubeApiserverElsewhere } else { Entity::KubeApiserver }
}

fn policy_peer<'a>(context: &JobContext<'a>, src: PodId, peer: Peer) -> Option<PolicyPeer<'a>> {
    match peer {
        Peer::Member(pod) | Peer::Dns(Some(pod), _) => {
            Some(PolicyPeer::Pod(context.evidence.inventory.pod(pod)))
        }
        Peer::ApiServer(ip) => Some(PolicyPeer::Entity(api_server(context, src, ip), Some(ip))),
        // Host-network pods are their node to a policy.
        Peer::SharedAddress(ip) => Some(PolicyPeer::Entity(Entity::RemoteNode, Some(ip))),
        Peer::Dns(None, _) => None,
    }
}

/// Policies the datapath itself named. It does so only for explicit denials.
fn reported(trouble: &Trouble) -> BTreeSet<PolicyBlame> {
    let named = trouble.streak.all_denied().named;
    let blame = |policy: crate::attribute::ReportedPolicy| PolicyBlame {
        kind: if policy.kind.is_empty() { "unknown".to_owned() } else { policy.kind },
        namespace: Some(policy.namespace).filter(|n| !n.is_empty()),
        name: policy.name,
        direction: policy.direction,
        effect: PolicyEffect::ExplicitDeny,
        certainty: Certainty::Reported,
    };
    named.into_iter().map(blame).collect()
}

/// Packets are dropped although the policies allow them.
fn contradicted(context: &JobContext<'_>, trouble: &Trouble, attribution: &mut Attribution) {
    if !attribution.blamed.is_empty() {
        attribution.notes.insert(
            "the datapath names a policy that, as recorded, allows this: it has changed since, or is not among the objects".to_owned(),
        );
        return;
    }
    let any = context.evidence.inventory.objects().iter().any(is_policy);
    attribution.notes.insert(if any {
        "the policies among the objects allow this: they have changed since, an endpoint was not ready, or something else drops it"
            .to_owned()
    } else {
        "there are no network policies among the objects: record them, too, to see which one drops it".to_owned()
    });
    if matches!(trouble.key.dst, Peer::Member(_) | Peer::SharedAddress(_)) {
        attribution.kind = CauseKind::Unknown;
    }
}

fn blame(attribution: &mut Attribution, direction: Direction, decision: &Decision) {
    let Decision::Closed(Closure { default_deny, denied_by, .. }) = decision else { return };
    let entry = |policy: &PolicyRef, effect| PolicyBlame {
        kind: policy.kind.as_str().to_owned(),
        namespace: policy.namespace.clone(),
        name: policy.name.clone(),
        direction,
        effect,
        certainty: Certainty::Inferred,
    };
    let denied = denied_by.iter().map(|policy| entry(policy, PolicyEffect::ExplicitDeny));
    let defaults = default_deny.iter().map(|policy| entry(policy, PolicyEffect::DefaultDeny));
    for inferred in denied.chain(defaults) {
        let same = |known: &&PolicyBlame| {
            (&known.kind, &known.namespace, &known.name, known.direction)
                == (&inferred.kind, &inferred.namespace, &inferred.name, inferred.direction)
        };
        if !attribution.blamed.iter().any(|known| same(&known)) {
            attribution.blamed.insert(inferred);
        }
    }
}

/// What closed ends mean for the cause, and for whoever wants to mend it.
fn explain(trouble: &Trouble, egress: &Decision, ingress: &Decision, attribution: &mut Attribution) {
    let denied =
        |decision: &Decision| matches!(decision, Decision::Closed(closure) if !closure.denied_by.is_empty());
    let closed = |decision: &Decision| matches!(decision, Decision::Closed(_));
    if matches!(attribution.kind, CauseKind::Unanswered | CauseKind::Unknown) {
        let explicit = denied(egress) || denied(ingress);
        attribution.kind = if explicit { CauseKind::ExplicitDeny } else { CauseKind::Policy };
    }
    if trouble.blocked == Blocked::Unanswered {
        attribution.notes.insert(
            "no node reported a drop; that a policy does it is inferred from the policies".to_owned(),
        );
    }
    if closed(egress) && closed(ingress) {
        attribution
            .notes
            .insert("both ends are closed, egress and ingress: opening one alone is not enough".to_owned());
    }
}

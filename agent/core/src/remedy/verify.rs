//! Whether a remedy does what it promises. Enters: the world before, and the steps; leaves: [`Check`]. The world is
//! built anew from the objects as they would be, and every door asked again. Must not know how steps are found.

use std::collections::BTreeMap;

use super::Situation;
use super::placement::{has_pod_affinity, is_schedulable};
use super::plan::{Action, Plan, Step, StepKind};
use super::slot::Slots;
use super::world::{World, asks_dns};
use super::zone_claim::false_claims;
use crate::facts::{Pod, Protocol, Service};
use crate::policy::{Decision, Entity, Peer, Ports, Question, Verdict3};
use crate::report::Symptom;
use crate::workload::{Change, Target, simulate};

/// What came of a check.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Check {
    /// Every door is open afterwards, and nothing is worse than before.
    Holds,
    /// As far as can be known.
    Unsure,
    /// A door stays closed, or something gets worse.
    Fails,
}

/// The world after some steps.
pub(super) fn apply<'a>(world: &World<'a>, steps: &[Step]) -> World<'a> {
    let changes: Vec<Change> = steps
        .iter()
        .map(|step| match &step.action {
            Action::Merge(object, patch) => {
                Change::Merge { target: Target::of(object), patch: patch.clone() }
            }
            Action::Apply(object) => Change::Apply(object.clone()),
            Action::Delete(object) => Change::Delete(Target::of(object)),
        })
        .collect();
    world.with(simulate(&world.objects, &changes))
}

/// Holds a plan against the world as it would be.
pub(super) fn check(situation: &Situation<'_>, before: &World<'_>, plan: &Plan) -> Check {
    let after = apply(before, &plan.steps);
    let placed = plan.steps.iter().any(|step| step.kind == StepKind::CoLocate);
    [doors(situation, before, &after), nothing_lost(before, &after), zones(situation, before, &after, placed)]
        .into_iter()
        .chain(placed.then(|| schedulable(before, &after)))
        .max()
        .unwrap_or(Check::Fails)
}

fn doors(situation: &Situation<'_>, before: &World<'_>, after: &World<'_>) -> Check {
    if after.is_closed() {
        let asked = matches!(situation.symptom, Symptom::HardBlock | Symptom::WouldBlock);
        return if asked || !before.is_closed() { Check::Fails } else { Check::Unsure };
    }
    let known = after.doors.iter().all(|door| door.verdict() == Verdict3::Open);
    let servers = !asks_dns(situation) || !after.dns.is_empty();
    let complete = after.members.len() == before.members.len() && !after.doors.is_empty();
    if known && servers && complete { Check::Holds } else { Check::Unsure }
}

/// No door to the outside that was open is closed now, and no service has lost a pod.
fn nothing_lost(before: &World<'_>, after: &World<'_>) -> Check {
    let (old, new) = (outside(before), outside(after));
    for (member, old) in &old {
        let Some(new) = new.get(member) else { return Check::Unsure };
        if old.iter().zip(new.iter()).any(|(old, new)| !covers(new, old)) {
            return Check::Fails;
        }
    }
    let services: Vec<Service> = before.objects.iter().filter_map(Service::from_object).collect();
    let backs = |service: &Service, pod: &Pod| {
        service.namespace == pod.namespace
            && service
                .selector
                .as_ref()
                .is_some_and(|s| s.iter().all(|(key, value)| pod.labels.get(key) == Some(value)))
    };
    let mut pods = before.members.iter().zip(&after.members);
    let lost =
        pods.any(|(old, new)| services.iter().any(|service| backs(service, old) && !backs(service, new)));
    if lost { Check::Fails } else { Check::Holds }
}

/// The open ports of one way; `None` when they cannot be known.
type Opening = Option<Vec<(u16, u16)>>;

/// For each member what its own policies let through to and from what is not of the job.
fn outside(world: &World<'_>) -> BTreeMap<usize, Vec<Opening>> {
    let mut found = BTreeMap::new();
    for group in &world.groups {
        let Some(pod) = group.first().and_then(|member| world.members.get(*member)) else { continue };
        let openings = openings(world, pod);
        found.extend(group.iter().map(|member| (*member, openings.clone())));
    }
    found
}

fn openings(world: &World<'_>, pod: &Pod) -> Vec<Opening> {
    const ENTITIES: [Entity; 4] = [Entity::World, Entity::KubeApiserver, Entity::Host, Entity::RemoteNode];
    let all = Ports::Range(1, u16::MAX);
    let mut found = Vec::new();
    let mut ask = |other: Peer<'_>, protocol: Protocol, ports: Ports| {
        let own = Peer::Pod(pod);
        let out = world.set.evaluate(&Question { src: own, dst: other, protocol, ports }).egress;
        let into = world.set.evaluate(&Question { src: other, dst: own, protocol, ports }).ingress;
        found.extend([opening(out), opening(into)]);
    };
    for entity in ENTITIES {
        ask(Peer::Entity(entity, None), Protocol::Tcp, all);
    }
    for server in &world.dns {
        ask(Peer::Pod(server), Protocol::Udp, all);
        ask(Peer::Pod(server), Protocol::Tcp, all);
    }
    found
}

fn opening(decision: Decision) -> Opening {
    match decision {
        Decision::Open { .. } => Some(vec![(1, u16::MAX)]),
        Decision::Closed(closure) => Some(closure.open_ports),
        Decision::Unknown { .. } => None,
    }
}

fn covers(new: &Opening, old: &Opening) -> bool {
    match (new, old) {
        (Some(new), Some(old)) => {
            old.iter().all(|(low, high)| new.iter().any(|(from, to)| from <= low && high <= to))
        }
        (None, _) | (_, None) => true,
    }
}

/// No pod claims a zone that it is not in unless it did before, and the job is in no more zones than before.
fn zones(situation: &Situation<'_>, before: &World<'_>, after: &World<'_>, placed: bool) -> Check {
    let claims = |world: &World<'_>, pod: &Pod| {
        let zone = world.zone_of(pod);
        zone.is_some_and(|zone| false_claims(situation.inventory, &pod.labels, &zone.name).next().is_some())
    };
    let was: Vec<bool> = before.members.iter().map(|pod| claims(before, pod)).collect();
    let is: Vec<bool> = after.members.iter().map(|pod| claims(after, pod)).collect();
    let asked = situation.symptom == Symptom::ZoneLabelMismatch;
    if is.iter().zip(&was).any(|(is, was)| *is && (asked || !was))
        || after.zones().len() > before.zones().len()
    {
        return Check::Fails;
    }
    let asked = matches!(situation.symptom, Symptom::CrossZoneLatency | Symptom::EgressCost);
    if !placed && !asked {
        return Check::Holds;
    }
    let together = after.zones().len() == 1 && after.members.iter().all(|pod| after.zone_of(pod).is_some());
    if together { Check::Holds } else { Check::Unsure }
}

fn schedulable(before: &World<'_>, after: &World<'_>) -> Check {
    let slots = Slots::of(after);
    if !is_schedulable(after, &Slots::of(before), &slots) {
        return Check::Fails;
    }
    if has_pod_affinity(&slots) { Check::Unsure } else { Check::Holds }
}

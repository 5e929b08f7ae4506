//! Would the members of a job be able to talk. Enters: a gang and the policies; leaves: findings. Pairs are asked about by
//! template, role and what policies see of the pods, never one by one. Must not know zones.

mod ask;

use std::collections::{BTreeMap, BTreeSet};

use super::gangs::{Gang, MemberPod};
use super::report::{CheckFinding, CheckedPair, CheckedPolicy, MissingReport, Rule, Severity};
use super::wording;
use super::world::World;
use super::zone_claim;
use crate::membership::Role;
use crate::policy::{Decision, Direction, Evaluator, Note, PairAnswer, Peer, Question, Verdict3};

use ask::{Ask, Asker, Need};

/// Classes of members that are asked about; more only come of policies that tell thousands of pods apart.
const MAX_CLASSES: usize = 1_024;
/// Findings of one job; the further ones are of the same kind.
const MAX_FINDINGS: usize = 64;

/// Members that are alike: template, role, and identity in the eyes of policies.
struct Class<'g> {
    source: usize,
    role: Option<Role>,
    first: MemberPod<'g>,
    second: Option<MemberPod<'g>>,
    size: u64,
}

/// What was answered for all pairs between two templates.
#[derive(Default)]
struct Between {
    pairs: u64,
    asked: BTreeMap<Ask, Answers>,
}

#[derive(Default)]
struct Answers {
    closed: u64,
    directions: BTreeSet<Direction>,
    open_ports: BTreeSet<(u16, u16)>,
    policies: BTreeSet<CheckedPolicy>,
    missing: BTreeSet<MissingReport>,
    denied: bool,
    reasons: BTreeSet<String>,
}

/// A template and a role at both ends.
type Ends = ((usize, Option<Role>), (usize, Option<Role>));

pub(super) fn findings(world: &World, gang: &Gang<'_>) -> Vec<CheckFinding> {
    let members = gang.members();
    let pods: Vec<_> = members.iter().map(|member| member.pod).collect();
    let classes = classes(world, members);
    let mut evaluator = Evaluator::new(&world.policies, &pods);
    let asker = Asker::new(world, gang);
    let mut between: BTreeMap<Ends, Between> = BTreeMap::new();
    let mut notes: BTreeSet<Note> = BTreeSet::new();
    for src in classes.iter().take(MAX_CLASSES) {
        for dst in classes.iter().take(MAX_CLASSES) {
            let same = std::ptr::eq(src, dst);
            let peer = if same { dst.second.as_ref() } else { Some(&dst.first) };
            let Some(peer) = peer else { continue };
            let pairs =
                if same { src.size.saturating_mul(src.size - 1) } else { src.size.saturating_mul(dst.size) };
            let entry = between.entry(((src.source, src.role), (dst.source, dst.role))).or_default();
            entry.pairs = entry.pairs.saturating_add(pairs);
            for ask in asker.asks(&src.first, peer) {
                let (src, dst) = (Peer::Pod(src.first.pod), Peer::Pod(peer.pod));
                let question = Question { src, dst, protocol: ask.protocol, ports: ask.question() };
                let answer = evaluator.evaluate(&question);
                if answer.verdict() != Verdict3::Closed && notes.len() < 16 {
                    notes.extend(evaluator.answer(&answer).notes);
                }
                entry.asked.entry(ask).or_default().take(world, &answer, pairs);
            }
        }
    }
    let mut findings = Vec::new();
    for (ends, between) in &between {
        findings.extend(judge(world, gang, *ends, between));
    }
    findings.sort_by_key(|finding| finding.severity);
    findings.truncate(MAX_FINDINGS);
    findings.extend(notes.iter().map(|note| remark(world, gang, note)));
    findings
}

fn classes<'g>(world: &World, members: Vec<MemberPod<'g>>) -> Vec<Class<'g>> {
    let pods: Vec<_> = members.iter().map(|member| member.pod).collect();
    let mut group_of = vec![0; pods.len()];
    for (number, group) in world.policies.identities(&pods).groups().iter().enumerate() {
        for &position in group {
            if let Some(slot) = group_of.get_mut(position) {
                *slot = number;
            }
        }
    }
    let mut classes: BTreeMap<(usize, Option<Role>, usize), Class<'g>> = BTreeMap::new();
    for (member, group) in members.into_iter().zip(group_of) {
        let key = (member.source, member.role, group);
        match classes.get_mut(&key) {
            Some(class) => {
                class.size += 1;
                class.second.get_or_insert(member);
            }
            None => {
                let class =
                    Class { source: member.source, role: member.role, first: member, second: None, size: 1 };
                classes.insert(key, class);
            }
        }
    }
    classes.into_values().collect()
}

impl Answers {
    fn take(&mut self, world: &World, answer: &PairAnswer, pairs: u64) {
        let closed = answer.verdict() == Verdict3::Closed;
        if closed {
            self.closed = self.closed.saturating_add(pairs);
        }
        for (direction, decision) in
            [(Direction::Egress, answer.egress()), (Direction::Ingress, answer.ingress())]
        {
            match decision {
                Decision::Open { .. } => {}
                Decision::Unknown { reason } if !closed => {
                    self.reasons.insert(format!("{}: {reason}", direction.as_str()));
                }
                Decision::Unknown { .. } => {}
                Decision::Closed(closure) => {
                    self.directions.insert(direction);
                    self.open_ports.extend(&closure.open_ports);
                    self.denied |= !closure.denied_by.is_empty();
                    let named = |list, effect| named(world, list, direction, effect);
                    self.policies.extend(named(&closure.default_deny, "default-deny"));
                    self.policies.extend(named(&closure.denied_by, "deny"));
                    self.missing.extend(closure.missing.as_ref().map(wording::missing));
                }
            }
        }
    }
}

fn named(
    world: &World,
    policies: &[crate::policy::PolicyRef],
    direction: Direction,
    effect: &'static str,
) -> Vec<CheckedPolicy> {
    policies.iter().map(|policy| world.policy(policy, direction, effect)).collect()
}

fn judge(world: &World, gang: &Gang<'_>, ends: Ends, between: &Between) -> Option<CheckFinding> {
    let closed: Vec<(&Ask, &Answers)> =
        between.asked.iter().filter(|(_, answers)| answers.closed > 0).collect();
    if closed.is_empty() {
        return unknown(world, gang, ends, between);
    }
    let sure = closed.iter().any(|(ask, _)| ask.need != Need::Perhaps);
    let partly = closed.iter().all(|(_, answers)| !answers.open_ports.is_empty());
    let (rule, severity) = match (partly, sure) {
        (true, true) => (Rule::EphemeralPortsClosed, Severity::Error),
        (true, false) => (Rule::EphemeralPortsClosed, Severity::Warning),
        (false, true) => (Rule::TrafficDenied, Severity::Error),
        (false, false) => (Rule::TrafficDenied, Severity::Warning),
    };
    let (src, dst) = (called(world, gang, ends.0), called(world, gang, ends.1));
    let ports: Vec<String> = closed.iter().map(|(ask, _)| ask.told()).collect();
    let directions: BTreeSet<Direction> =
        closed.iter().flat_map(|(_, answers)| answers.directions.clone()).collect();
    let sides: Vec<&str> =
        directions.iter().rev().map(|d| if *d == Direction::Egress { "egress" } else { "ingress" }).collect();
    let verb = if sure { "cannot" } else { "could not" };
    let to = if ends.0 == ends.1 { "each other".to_owned() } else { dst };
    let summary =
        format!("{src} {verb} reach {to} on {}: denied at {}", wording::listed(&ports), sides.join(" and "));
    let object =
        gang.source(ends.0.0).map_or_else(|| gang.first_object(world), |s| world.object_at(s.object));
    let mut finding = CheckFinding::new(rule, severity, Some(gang.name.clone()), object, summary);
    for (ask, answers) in &closed {
        finding.pairs.push(pair(world, gang, ends, ask, answers));
        finding.policies.extend(answers.policies.iter().cloned());
        finding.missing.extend(answers.missing.iter().cloned());
        finding.evidence.extend(ask.evidence(answers.closed, between.pairs, &answers.open_ports));
    }
    finding.policies.sort();
    finding.policies.dedup();
    finding.missing.sort();
    finding.missing = wording::joined(finding.missing);
    finding.evidence.extend(by_whom(&finding.policies));
    finding.advice = claims(world, gang, ends);
    finding.advice.extend(advice(&closed, &finding.missing, partly));
    Some(finding)
}

fn pair(world: &World, gang: &Gang<'_>, ends: Ends, ask: &Ask, answers: &Answers) -> CheckedPair {
    CheckedPair {
        src: wording::end(world, gang, ends.0.0, ends.0.1),
        dst: wording::end(world, gang, ends.1.0, ends.1.1),
        pairs: answers.closed,
        protocol: ask.protocol.name(),
        ports: ask.ports(),
        open_ports: answers.open_ports.iter().map(|range| wording::ports(*range)).collect(),
        directions: answers.directions.iter().rev().map(|direction| direction.as_str()).collect(),
    }
}

fn called(world: &World, gang: &Gang<'_>, (source, role): (usize, Option<Role>)) -> String {
    gang.source(source).map(|source| wording::pods(world, source, role)).unwrap_or_default()
}

/// One line for each direction and effect.
fn by_whom(policies: &[CheckedPolicy]) -> Vec<String> {
    let mut lines: BTreeMap<(Option<&str>, &str), Vec<String>> = BTreeMap::new();
    for policy in policies {
        lines.entry((policy.direction, policy.effect)).or_default().push(policy.object.name.clone());
    }
    let told = lines.into_iter().map(|((direction, effect), names)| {
        let direction = direction.unwrap_or_default();
        let names = wording::listed(&names);
        match effect {
            "deny" => format!("{direction}: explicitly denied by {names}"),
            _ => format!("{direction}: default deny by {names}, and nothing allows it"),
        }
    });
    told.collect()
}

/// Ends that claim different zones in a label that policies select by: placement and label come before a policy.
fn claims(world: &World, gang: &Gang<'_>, ends: Ends) -> Vec<String> {
    let (Some(src), Some(dst)) = (gang.source(ends.0.0), gang.source(ends.1.0)) else { return Vec::new() };
    let differs = src.labels.iter().filter_map(|(key, value)| Some((key, value, dst.labels.get(key)?)));
    let differs = differs.filter(|(key, a, b)| a != b && zone_claim::claims_zone(world, key, a));
    let keyed = differs.filter(|(key, ..)| !zone_claim::keyed_on(world, gang, key).is_empty());
    let told = keyed.map(|(key, a, b)| {
        format!(
            "The policies select by the label {key}, and the two ends say {key}={a} and {key}={b}: place them in one zone and \
             label them alike, before opening a policy."
        )
    });
    told.collect()
}

fn advice(closed: &[(&Ask, &Answers)], missing: &[MissingReport], partly: bool) -> Vec<String> {
    let mut advice = Vec::new();
    if closed.iter().any(|(_, answers)| answers.denied) {
        advice.push("Change the rule that denies: no allow overrides an explicit deny.".to_owned());
    }
    let collective = closed.iter().find(|(ask, _)| ask.need != Need::Rendezvous);
    if let (Some((ask, _)), true) = (collective, partly) {
        advice.push(format!(
            "Do not open some ports: collectives (NCCL, Gloo) listen on ports that the kernel picks from {}. Allow all TCP \
             ports between the job's pods (no toPorts or ports), in both directions; or set the sysctl \
             net.ipv4.ip_local_port_range of the pods to a range that is open.",
            ask.ports()
        ));
    } else if !missing.is_empty() {
        let both: BTreeSet<&str> = missing.iter().map(|missing| missing.direction).collect();
        let directions: Vec<&str> = both.into_iter().collect();
        advice.push(format!(
            "Allow TCP on all ports between the job's pods ({}), or give both ends labels that the policies allow.",
            directions.join(" and ")
        ));
    }
    advice
}

fn unknown(world: &World, gang: &Gang<'_>, ends: Ends, between: &Between) -> Option<CheckFinding> {
    let open: Vec<(&Ask, &Answers)> = between.asked.iter().filter(|(_, a)| !a.reasons.is_empty()).collect();
    let (first, _) = open.first()?;
    let (src, dst) = (called(world, gang, ends.0), called(world, gang, ends.1));
    let to = if ends.0 == ends.1 { "each other".to_owned() } else { dst };
    let summary = format!("whether {src} can reach {to} on {} cannot be known", first.told());
    let object =
        gang.source(ends.0.0).map_or_else(|| gang.first_object(world), |s| world.object_at(s.object));
    let severity = if open.iter().any(|(ask, _)| ask.need != Need::Perhaps) {
        Severity::Unknown
    } else {
        Severity::Note
    };
    let mut finding =
        CheckFinding::new(Rule::TrafficUnknown, severity, Some(gang.name.clone()), object, summary);
    let reasons: BTreeSet<String> = open.iter().flat_map(|(_, answers)| answers.reasons.clone()).collect();
    finding.evidence.extend(reasons.into_iter().take(8));
    Some(finding)
}

fn remark(world: &World, gang: &Gang<'_>, note: &Note) -> CheckFinding {
    let (object, summary) = match note {
        Note::ApplicationRules(policy) => (
            world.policy_object(policy),
            format!("{policy} also restricts the application protocol: connections open, single requests may be refused"),
        ),
        Note::Authentication(policy) => (
            world.policy_object(policy),
            format!("{policy} asks for mutual authentication: connections wait until it succeeded"),
        ),
        Note::CiliumVersion => (
            gang.first_object(world),
            "Cilium 1.15 would answer differently from the newest version: say which one it is with --cilium-version"
                .to_owned(),
        ),
        Note::AdminPoliciesIgnored => (
            gang.first_object(world),
            "there are admin network policies, but Cilium does not enforce them".to_owned(),
        ),
    };
    CheckFinding::new(Rule::PolicyNote, Severity::Note, Some(gang.name.clone()), object, summary)
}

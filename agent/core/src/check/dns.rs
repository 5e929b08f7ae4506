//! Would the members of a job be able to ask the cluster's name service. Enters: a gang, the policies and the name
//! service's pods; leaves: findings. Must not know what names are asked for.

use std::collections::{BTreeMap, BTreeSet};

use super::gangs::{Gang, MemberPod};
use super::report::{CheckFinding, CheckedPair, CheckedPolicy, EndAt, MissingReport, Rule, Severity};
use super::wording;
use super::world::World;
use crate::facts::{Pod, Protocol};
use crate::membership::Role;
use crate::policy::{Closure, Decision, Direction, Evaluator, Peer, Ports, Question, Verdict3};

/// What was answered for the members of one template and role.
#[derive(Default)]
struct Answers {
    closed: BTreeMap<Protocol, BTreeSet<Direction>>,
    policies: BTreeSet<CheckedPolicy>,
    missing: BTreeSet<MissingReport>,
    reasons: BTreeSet<String>,
    pods: u64,
}

pub(super) fn findings(world: &World, gang: &Gang<'_>) -> Vec<CheckFinding> {
    let members: Vec<MemberPod<'_>> = gang.members().into_iter().filter(|m| asks_cluster(gang, m)).collect();
    let pods: Vec<&Pod> = members.iter().map(|member| member.pod).collect();
    let all: Vec<&Pod> = pods.iter().copied().chain(&world.dns).collect();
    let mut evaluator = Evaluator::new(&world.policies, &all);
    let mut answers: BTreeMap<(usize, Option<Role>), Answers> = BTreeMap::new();
    for group in world.policies.identities(&pods).groups() {
        // One member of each template stands for the others of its identity.
        let mut seen: BTreeMap<(usize, Option<Role>), (&MemberPod<'_>, u64)> = BTreeMap::new();
        for member in group.iter().filter_map(|at| members.get(*at)) {
            seen.entry((member.source, member.role)).or_insert((member, 0)).1 += 1;
        }
        for (place, (member, count)) in seen {
            let entry = answers.entry(place).or_default();
            entry.pods += count;
            for server in &world.dns {
                for protocol in [Protocol::Udp, Protocol::Tcp] {
                    let (src, dst) = (Peer::Pod(member.pod), Peer::Pod(server));
                    let question = Question { src, dst, protocol, ports: Ports::One(port(server)) };
                    let answer = evaluator.evaluate(&question);
                    let closed = answer.verdict() == Verdict3::Closed;
                    for (direction, decision) in
                        [(Direction::Egress, answer.egress()), (Direction::Ingress, answer.ingress())]
                    {
                        match decision {
                            Decision::Closed(closure) => entry.close(world, protocol, direction, closure),
                            Decision::Unknown { reason } if !closed => {
                                entry.reasons.insert(format!("{}: {reason}", direction.as_str()));
                            }
                            Decision::Unknown { .. } | Decision::Open { .. } => {}
                        }
                    }
                }
            }
        }
    }
    answers.iter().filter_map(|(place, answers)| judge(world, gang, *place, answers)).collect()
}

/// Pods that bring their own resolver configuration ask somebody else.
fn asks_cluster(gang: &Gang<'_>, member: &MemberPod<'_>) -> bool {
    let policy = gang.source(member.source).and_then(|source| source.spec.get("dnsPolicy")?.as_str());
    !member.pod.host_network && !matches!(policy, Some("None" | "Default"))
}

/// OpenShift's name service listens on 5353 behind its service's 53.
fn port(server: &Pod) -> u16 {
    if server.labels.contains_key("dns.operator.openshift.io/daemonset-dns") { 5353 } else { 53 }
}

impl Answers {
    fn close(&mut self, world: &World, protocol: Protocol, direction: Direction, closure: &Closure) {
        self.closed.entry(protocol).or_default().insert(direction);
        self.policies.extend(closure.default_deny.iter().map(|p| world.policy(p, direction, "default-deny")));
        self.policies.extend(closure.denied_by.iter().map(|p| world.policy(p, direction, "deny")));
        self.missing.extend(closure.missing.as_ref().map(wording::missing));
    }
}

fn judge(
    world: &World,
    gang: &Gang<'_>,
    place: (usize, Option<Role>),
    answers: &Answers,
) -> Option<CheckFinding> {
    let source = gang.source(place.0)?;
    let called = wording::pods(world, source, place.1);
    let object = world.object_at(source.object);
    let assumed = "No pods of the name service in the inputs: CoreDNS in kube-system with k8s-app=kube-dns was assumed.";
    if answers.closed.is_empty() {
        if answers.reasons.is_empty() {
            return None;
        }
        let summary = format!("whether {called} can ask the cluster's name service cannot be known");
        let name = Some(gang.name.clone());
        let mut finding = CheckFinding::new(Rule::DnsUnknown, Severity::Unknown, name, object, summary);
        finding.evidence.extend(answers.reasons.iter().take(8).cloned());
        finding.evidence.extend(world.dns_assumed.then(|| assumed.to_owned()));
        return Some(finding);
    }
    // Over TCP only large answers come; the first question is always asked over UDP.
    let severity =
        if answers.closed.contains_key(&Protocol::Udp) { Severity::Error } else { Severity::Warning };
    let port = world.dns.first().map_or(53, port);
    let protocols: Vec<String> = answers.closed.keys().map(|p| p.name().to_owned()).rev().collect();
    let summary = format!(
        "{called} cannot ask the cluster's name service on {} {port}: no name of a coordinator or service resolves",
        wording::listed(&protocols)
    );
    let mut finding = CheckFinding::new(Rule::DnsDenied, severity, Some(gang.name.clone()), object, summary);
    finding.pairs = answers
        .closed
        .iter()
        .map(|(protocol, directions)| CheckedPair {
            src: wording::end(world, gang, place.0, place.1),
            dst: EndAt { object: "name service".to_owned(), template: String::new(), role: "other" },
            pairs: answers.pods,
            protocol: protocol.name(),
            ports: port.to_string(),
            open_ports: Vec::new(),
            directions: directions.iter().rev().map(|direction| direction.as_str()).collect(),
        })
        .collect();
    finding.policies = answers.policies.iter().cloned().collect();
    finding.missing = wording::joined(answers.missing.iter().cloned().collect());
    finding.evidence.extend(world.dns_assumed.then(|| assumed.to_owned()));
    finding.advice.push(
        "Allow egress to the pods k8s-app=kube-dns of namespace kube-system on UDP and TCP 53: the first egress rule that \
         selects a pod closes everything it does not name."
            .to_owned(),
    );
    Some(finding)
}

//! Many questions about the same pods. Enters: the pods; leaves: the same answers as [`PolicySet::evaluate`]. What an
//! end says is computed once for all its pods that the same policies select, and all peers no policy tells apart.

use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;

use foldhash::fast::FixedState;

use super::answer::{Answer, Decision, Direction, Entity, Peer, Ports, Question, Side, Verdict3, both};
use super::identity::{End, Kind};
use super::selector::Truth;
use super::set::{Half, PolicySet, View, cases, is_same_pod, merge};
use crate::facts::{Pod, Protocol};

type Map<K, V> = HashMap<K, V, FixedState>;

/// What a [`PolicySet`] sees of pods: groups whose members all get the same answers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Identities {
    groups: Vec<Vec<usize>>,
}

impl Identities {
    /// The groups, each with the positions of its pods. Any member may be asked about in place of another; only a
    /// pod's traffic to itself is open regardless of its group.
    #[must_use]
    pub fn groups(&self) -> &[Vec<usize>] {
        &self.groups
    }
}

impl PolicySet {
    /// Groups pods by what policies see of them: the namespace, the labels and names that policies use, and the node
    /// where pods in their node's network are among them.
    #[must_use]
    pub fn identities(&self, pods: &[&Pod]) -> Identities {
        let nodes_matter = pods.iter().any(|pod| pod.host_network);
        let mut numbers = HashMap::new();
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for (position, pod) in pods.iter().enumerate() {
            let node = nodes_matter.then_some(pod.node.as_deref());
            let [kind, ..] = *kinds(pod) else { continue };
            let key = (node, pod.namespace.as_str(), self.ends(&Peer::Pod(pod), kind));
            let number = *numbers.entry(key).or_insert(groups.len());
            match groups.get_mut(number) {
                Some(group) => group.push(position),
                None => groups.push(vec![position]),
            }
        }
        Identities { groups }
    }
}

/// What a pod may be to another one.
fn kinds(pod: &Pod) -> &'static [Kind] {
    if pod.host_network { &[Kind::RemoteNode, Kind::Host] } else { &[Kind::Pod] }
}

/// An answer whose halves are shared with other pairs.
#[derive(Clone, Debug)]
pub struct PairAnswer {
    egress: Rc<Half>,
    ingress: Rc<Half>,
}

impl PairAnswer {
    /// What the source's policies say.
    #[must_use]
    pub fn egress(&self) -> &Decision {
        &self.egress.decision
    }

    /// What the destination's policies say.
    #[must_use]
    pub fn ingress(&self) -> &Decision {
        &self.ingress.decision
    }

    /// As [`Answer::verdict`].
    #[must_use]
    pub fn verdict(&self) -> Verdict3 {
        both(self.egress.decision.verdict(), self.ingress.decision.verdict())
    }
}

/// The numbers of an end: as a subject of policies, and as a peer in their rules.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Place {
    subject: usize,
    peer: usize,
}

/// A remembered half: the numbers of the subject, of the peer, and of what is asked.
type Key = (usize, usize, usize);

/// What decides an end's policies in every reading: the policies that select it, and its port names.
type SubjectKey = (Kind, String, Vec<(Vec<(usize, Truth)>, Vec<Vec<(Protocol, u16)>>)>);

/// Answers questions, remembering what ends say by identity, protocol and ports.
pub struct Evaluator<'a> {
    set: &'a PolicySet,
    /// By the address of the pod, which lives as long as the evaluator.
    pods: Map<(usize, Kind), Place>,
    entities: Map<(Entity, Option<IpAddr>, Kind), Place>,
    subjects: Vec<View>,
    peers: Vec<View>,
    asked: Map<(Protocol, Ports), usize>,
    egress: Map<Key, Rc<Half>>,
    ingress: Map<Key, Rc<Half>>,
    open: Rc<Half>,
}

impl<'a> Evaluator<'a> {
    /// An evaluator for questions about `pods`; others are answered too, but not remembered.
    #[must_use]
    pub fn new(set: &'a PolicySet, pods: &[&'a Pod]) -> Self {
        let mut peers: Vec<View> = Vec::new();
        let mut numbers = HashMap::new();
        let mut placed = Vec::new();
        for pod in pods {
            for &kind in kinds(pod) {
                let peer = Peer::Pod(pod);
                let (ends, side) = (set.ends(&peer, kind), set.side(&peer, kind));
                let key: (&str, Vec<End>) = (&pod.namespace, ends);
                let number = match numbers.get(&key) {
                    Some(number) => *number,
                    None => {
                        peers.push(set.see(key.1.clone(), &side));
                        numbers.insert(key, peers.len() - 1);
                        peers.len() - 1
                    }
                };
                if let Some(view) = peers.get_mut(number) {
                    view.keep_common_labels(&side);
                }
                placed.push(((address(pod), kind), number));
            }
        }
        let mut evaluator = Self {
            set,
            pods: Map::default(),
            entities: Map::default(),
            subjects: Vec::new(),
            peers,
            asked: Map::default(),
            egress: Map::default(),
            ingress: Map::default(),
            open: Rc::default(),
        };
        let subjects = evaluator.group_subjects();
        let place = |peer: usize| Some(Place { subject: *subjects.get(peer)?, peer });
        evaluator.pods = placed.into_iter().filter_map(|(pod, peer)| Some((pod, place(peer)?))).collect();
        evaluator
    }

    /// The number of each peer as a subject.
    fn group_subjects(&mut self) -> Vec<usize> {
        let mut numbers: HashMap<SubjectKey, usize> = HashMap::new();
        let mut subjects = Vec::new();
        for view in &self.peers {
            let number = *numbers.entry(view.subject_key()).or_insert(self.subjects.len());
            match (self.subjects.get_mut(number), view.0.first()) {
                (Some(known), Some(seen)) => known.keep_common_labels(&seen.side),
                _ => self.subjects.push(view.clone()),
            }
            subjects.push(number);
        }
        subjects
    }

    /// The answer to a question. It is that of [`PolicySet::evaluate`], but for the labels of a missing allow: those
    /// are the ones all pods of the identity have.
    pub fn evaluate(&mut self, question: &Question<'a>) -> PairAnswer {
        if is_same_pod(question) {
            return PairAnswer { egress: Rc::clone(&self.open), ingress: Rc::clone(&self.open) };
        }
        let mut cases = cases(question);
        let (first, second) = (cases.next(), cases.next());
        let answers = match (first, second) {
            (Some(case), None) => self.case(question, case),
            _ => {
                let cases = first.into_iter().chain(second).chain(cases);
                let answers: Option<Vec<PairAnswer>> = cases.map(|case| self.case(question, case)).collect();
                answers.map(|answers| PairAnswer {
                    egress: Rc::new(merge(answers.iter().map(|answer| Half::clone(&answer.egress)))),
                    ingress: Rc::new(merge(answers.iter().map(|answer| Half::clone(&answer.ingress)))),
                })
            }
        };
        answers.unwrap_or_else(|| {
            let Answer { egress, ingress, notes } = self.set.evaluate(question);
            let half = |decision| Rc::new(Half { decision, notes: notes.iter().cloned().collect() });
            PairAnswer { egress: half(egress), ingress: half(ingress) }
        })
    }

    /// `None` for a pod that is not one of those the evaluator was made for.
    fn case(&mut self, question: &Question<'_>, (src, dst): (Kind, Kind)) -> Option<PairAnswer> {
        let src = self.place(&question.src, src)?;
        let dst = self.place(&question.dst, dst)?;
        let ask = (question.protocol, question.ports);
        let next = self.asked.len();
        let number = *self.asked.entry(ask).or_insert(next);
        let (set, subjects, peers) = (self.set, &self.subjects, &self.peers);
        let half = |direction, (subject, peer, _): Key| {
            let views = subjects.get(subject).zip(peers.get(peer));
            Rc::new(views.map_or_else(Half::default, |(s, p)| set.half(direction, s, p, ask.0, ask.1)))
        };
        let (out, into) = ((src.subject, dst.peer, number), (dst.subject, src.peer, number));
        let egress = Rc::clone(self.egress.entry(out).or_insert_with(|| half(Direction::Egress, out)));
        let ingress = Rc::clone(self.ingress.entry(into).or_insert_with(|| half(Direction::Ingress, into)));
        Some(PairAnswer { egress, ingress })
    }

    /// The whole of an answer.
    #[must_use]
    pub fn answer(&self, pair: &PairAnswer) -> Answer {
        self.set.join(&pair.egress, &pair.ingress)
    }

    /// `None` for a pod that is not one of those the evaluator was made for.
    fn place(&mut self, peer: &Peer<'_>, kind: Kind) -> Option<Place> {
        match peer {
            Peer::Pod(pod) => self.pods.get(&(address(pod), kind)).copied(),
            Peer::Entity(entity, ip) => {
                let place = self.entities.entry((*entity, *ip, kind)).or_insert_with(|| {
                    let view = self.set.see(self.set.ends(peer, kind), &self.set.side(peer, kind));
                    self.subjects.push(view.clone());
                    self.peers.push(view);
                    Place { subject: self.subjects.len() - 1, peer: self.peers.len() - 1 }
                });
                Some(*place)
            }
        }
    }
}

fn address(pod: &Pod) -> usize {
    std::ptr::from_ref(pod).addr()
}

impl View {
    fn keep_common_labels(&mut self, other: &Side) {
        for seen in &mut self.0 {
            if let (Side::Pods { labels, .. }, Side::Pods { labels: others, .. }) = (&mut seen.side, other) {
                labels.retain(|key, value| others.get(key) == Some(value));
            }
        }
    }

    fn subject_key(&self) -> SubjectKey {
        let namespace = match self.0.first().map(|seen| &seen.side) {
            Some(Side::Pods { namespace, .. }) => namespace.clone(),
            _ => String::new(),
        };
        let kind = self.0.first().map_or(Kind::Pod, |seen| seen.end.kind);
        let policies = self.0.iter().map(|seen| (seen.selected.clone(), seen.end.named.clone())).collect();
        (kind, namespace, policies)
    }
}

//! Many questions about the same pods. Enters: the pods; leaves: the same answers as [`PolicySet::evaluate`], each
//! computed once for all pairs of pods that no policy tells apart.

use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;

use foldhash::fast::FixedState;

use super::answer::{Answer, Entity, Peer, Ports, Question, Side};
use super::identity::{End, Kind};
use super::set::{PolicySet, View, cases, is_same_pod, merge, open};
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
    /// Groups pods by what policies see of them: the labels and names that policies use, and the node where pods in
    /// their node's network are among them.
    #[must_use]
    pub fn identities(&self, pods: &[&Pod]) -> Identities {
        let nodes_matter = pods.iter().any(|pod| pod.host_network);
        let mut numbers: HashMap<(Option<Option<&str>>, Identity<'_>), usize> = HashMap::new();
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for (position, pod) in pods.iter().enumerate() {
            let node = nodes_matter.then_some(pod.node.as_deref());
            let identity = identity(pod, &self.view(&Peer::Pod(pod), kind_alone(pod)));
            let number = *numbers.entry((node, identity)).or_insert(groups.len());
            match groups.get_mut(number) {
                Some(group) => group.push(position),
                None => groups.push(vec![position]),
            }
        }
        Identities { groups }
    }
}

fn kind_alone(pod: &Pod) -> Kind {
    if pod.host_network { Kind::RemoteNode } else { Kind::Pod }
}

/// The namespace is part of it even where no policy looks at it, since a missing allow names it.
type Identity<'a> = (&'a str, Vec<End>);

fn identity<'a>(pod: &'a Pod, view: &View) -> Identity<'a> {
    (&pod.namespace, view.0.iter().map(|seen| seen.end.clone()).collect())
}

/// A pair of views and what is asked about it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    src: usize,
    dst: usize,
    protocol: Protocol,
    ports: Ports,
}

/// Answers questions, remembering the answers by identity pair, protocol and ports.
pub struct Evaluator<'a> {
    set: &'a PolicySet,
    /// By the address of the pod, which lives as long as the evaluator.
    pods: Map<(usize, Kind), usize>,
    entities: Map<(Entity, Option<IpAddr>, Kind), usize>,
    views: Vec<View>,
    answers: Map<Key, Rc<Answer>>,
    open: Rc<Answer>,
}

impl<'a> Evaluator<'a> {
    /// An evaluator for questions about `pods`; others are answered too, but not remembered.
    #[must_use]
    pub fn new(set: &'a PolicySet, pods: &[&'a Pod]) -> Self {
        let mut evaluator = Self {
            set,
            pods: Map::default(),
            entities: Map::default(),
            views: Vec::new(),
            answers: Map::default(),
            open: Rc::new(open()),
        };
        let mut numbers: HashMap<Identity<'_>, usize> = HashMap::new();
        for pod in pods {
            let kinds = if pod.host_network { [Kind::RemoteNode, Kind::Host].as_slice() } else { &[Kind::Pod] };
            for &kind in kinds {
                let view = set.view(&Peer::Pod(pod), kind);
                let number = *numbers.entry(identity(pod, &view)).or_insert(evaluator.views.len());
                match evaluator.views.get_mut(number) {
                    Some(known) => known.keep_common_labels(&view),
                    None => evaluator.views.push(view),
                }
                evaluator.pods.insert((address(pod), kind), number);
            }
        }
        evaluator
    }

    /// The answer to a question. It is that of [`PolicySet::evaluate`], but for the labels of a missing allow: those
    /// are the ones all pods of the identity have.
    pub fn evaluate(&mut self, question: &Question<'a>) -> Rc<Answer> {
        if is_same_pod(question) {
            return Rc::clone(&self.open);
        }
        let mut cases = cases(question);
        let first = cases.next().and_then(|case| self.case(question, case));
        let rest: Option<Vec<Rc<Answer>>> = cases.map(|case| self.case(question, case)).collect();
        match (first, rest.as_deref()) {
            (Some(answer), Some([])) => answer,
            (Some(first), Some(rest)) => {
                Rc::new(merge(std::iter::once(&first).chain(rest).map(|answer| Answer::clone(answer))))
            }
            _ => Rc::new(self.set.evaluate(question)),
        }
    }

    /// `None` when a pod is not one of those the evaluator was made for.
    fn case(&mut self, question: &Question<'a>, (src, dst): (Kind, Kind)) -> Option<Rc<Answer>> {
        let src = self.number(&question.src, src)?;
        let dst = self.number(&question.dst, dst)?;
        let key = Key { src, dst, protocol: question.protocol, ports: question.ports };
        if let Some(answer) = self.answers.get(&key) {
            return Some(Rc::clone(answer));
        }
        let answer = Rc::new(self.set.answer(question, self.views.get(src)?, self.views.get(dst)?));
        self.answers.insert(key, Rc::clone(&answer));
        Some(answer)
    }

    fn number(&mut self, peer: &Peer<'_>, kind: Kind) -> Option<usize> {
        match peer {
            Peer::Pod(pod) => self.pods.get(&(address(pod), kind)).copied(),
            Peer::Entity(entity, ip) => {
                let number = self.entities.entry((*entity, *ip, kind)).or_insert_with(|| {
                    self.views.push(self.set.view(peer, kind));
                    self.views.len() - 1
                });
                Some(*number)
            }
        }
    }
}

fn address(pod: &Pod) -> usize {
    std::ptr::from_ref(pod).addr()
}

impl View {
    fn keep_common_labels(&mut self, other: &View) {
        for (seen, other) in self.0.iter_mut().zip(&other.0) {
            if let (Side::Pods { labels, .. }, Side::Pods { labels: others, .. }) = (&mut seen.side, &other.side) {
                labels.retain(|key, value| others.get(key) == Some(value));
            }
        }
    }
}

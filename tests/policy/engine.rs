//! The engine under test, asked in the reference's terms. Enters: a [`World`] and a [`Question`]; leaves: the engine's
//! answers. Must not judge them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use firedoor_core::facts::{Namespace, Pod, Protocol};
use firedoor_core::object::Object;
use firedoor_core::policy::{
    Cni, Decision, Enforcement, Entity, Peer, PolicyKind, PolicyRef, PolicySet, Ports, Settings,
};

use crate::reference::{End, Mode, Outcome, Plugin, World};
use crate::table::{Given, Question};

/// A world as the engine takes it.
pub(crate) struct Engine {
    pods: BTreeMap<(String, String), Pod>,
    policies: PolicySet,
}

impl Engine {
    pub(crate) fn new(world: &World) -> Self {
        let objects: Vec<Object> = world
            .objects
            .iter()
            .map(|value| Object::from_value(value.clone()).expect("an object has a kind and a name"))
            .collect();
        let namespaces: Vec<Namespace> = objects.iter().filter_map(Namespace::from_object).collect();
        let settings = Settings {
            cilium_version: world.version,
            enforcement: match world.mode {
                Mode::Default => Enforcement::Default,
                Mode::Always => Enforcement::Always,
                Mode::Never => Enforcement::Never,
            },
            cni: match world.plugin {
                Plugin::Cilium => Cni::Cilium,
                Plugin::Other => Cni::Other,
                Plugin::Unknown => Cni::Unknown,
            },
        };
        let pods = objects.iter().filter_map(Pod::from_object);
        Self {
            pods: pods.map(|pod| ((pod.namespace.clone(), pod.name.clone()), pod)).collect(),
            policies: PolicySet::from_objects(&objects, &namespaces, settings),
        }
    }

    /// How many policies the engine could not read.
    pub(crate) fn rejected(&self) -> usize {
        self.policies.rejected().len()
    }

    fn peer(&self, end: &End) -> Peer<'_> {
        let entity = |entity: Entity, ip: &Option<IpAddr>| Peer::Entity(entity, *ip);
        match end {
            End::Pod { namespace, name } => Peer::Pod(&self.pods[&(namespace.clone(), name.clone())]),
            End::World(ip) => entity(Entity::World, ip),
            End::Host(ip) => entity(Entity::Host, ip),
            End::RemoteNode(ip) => entity(Entity::RemoteNode, ip),
            End::KubeApiserver => entity(Entity::KubeApiserver, &None),
        }
    }

    /// The engine's answers for egress and ingress.
    pub(crate) fn ask(&self, question: &Question<'_>) -> [Given; 2] {
        let ports = match question.ports {
            (low, high) if low == high => Ports::One(low),
            (low, high) => Ports::Range(low, high),
        };
        let answer = self.policies.evaluate(&firedoor_core::policy::Question {
            src: self.peer(question.src),
            dst: self.peer(question.dst),
            protocol: Protocol::parse(question.protocol).expect("a protocol"),
            ports,
        });
        [given(answer.egress), given(answer.ingress)]
    }
}

fn given(decision: Decision) -> Given {
    match decision {
        Decision::Open { by } => Given { outcome: Outcome::Open { by: names(&by) }, open: None },
        Decision::Unknown { .. } => Given { outcome: Outcome::Unknown, open: None },
        Decision::Closed(closure) => Given {
            outcome: Outcome::Closed {
                default_deny: names(&closure.default_deny),
                denied_by: names(&closure.denied_by),
            },
            open: Some(closure.open_ports),
        },
    }
}

/// Short names as the reference makes them, sorted.
fn names(policies: &[PolicyRef]) -> Vec<String> {
    let mut all: Vec<String> = policies
        .iter()
        .map(|policy| {
            let namespace = policy.namespace.as_deref().unwrap_or_default();
            match policy.kind {
                PolicyKind::CiliumNetworkPolicy => format!("cnp/{namespace}/{}", policy.name),
                PolicyKind::CiliumClusterwideNetworkPolicy => format!("ccnp/{}", policy.name),
                PolicyKind::NetworkPolicy => format!("np/{namespace}/{}", policy.name),
                PolicyKind::AdminNetworkPolicy => format!("anp/{}", policy.name),
                PolicyKind::BaselineAdminNetworkPolicy => format!("banp/{}", policy.name),
            }
        })
        .collect();
    all.sort();
    all
}

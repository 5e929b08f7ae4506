//! What policies can see of the two ends. Enters: pods, namespaces, nodes, entities; leaves: an [`End`], numbers that
//! are equal for ends no policy tells apart. Must not know policies.

use std::collections::HashMap;
use std::net::IpAddr;

use super::answer::{Entity, Peer, Side};
use super::model::{Block, Inside};
use super::selector::{Attribute, Class, Lookup, NAMESPACE_LABELS, Source, Table, Truth};
use crate::facts::{Pod, Protocol};
use crate::object::Labels;

/// The domain of labels that Cilium leaves out of identities since [`TOPOLOGY_HIDDEN_SINCE`].
const TOPOLOGY: &str = "topology.kubernetes.io";
const TOPOLOGY_HIDDEN_SINCE: (u16, u16) = (1, 19);
const CLUSTER_LABEL: &str = "io.cilium.k8s.policy.cluster";
const SERVICE_ACCOUNT_LABEL: &str = "io.cilium.k8s.policy.serviceaccount";

/// Whether Cilium leaves a label out of identities by default, so that no policy can select it. Operators can change
/// the list, which is not visible here (cilium/cilium `pkg/labelsfilter`; patterns hold from the start of the key).
pub(super) fn hidden_by_cilium(key: &str, version: Option<(u16, u16)>) -> bool {
    const HIDDEN: [&str; 14] = [
        "io.kubernetes",
        "kubernetes.io",
        "statefulset.kubernetes.io/pod-name",
        "apps.kubernetes.io/pod-index",
        "batch.kubernetes.io/job-completion-index",
        "batch.kubernetes.io/controller-uid",
        "k8s.io",
        "pod-template-generation",
        "pod-template-hash",
        "controller-revision-hash",
        "controller-uid",
        "annotation",
        "etcd_node",
        TOPOLOGY,
    ];
    let shown = version.is_some_and(|version| version < TOPOLOGY_HIDDEN_SINCE);
    let hides = |prefix: &str| key.starts_with(prefix) && !(shown && prefix == TOPOLOGY);
    HIDDEN.iter().any(|prefix| hides(prefix)) || key.contains("beta.kubernetes.io")
}

/// Who enforces NetworkPolicy, as far as it can be told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Enforcer {
    Cilium,
    Other,
    Unknown,
}

/// What an end is to the policies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Kind {
    Pod,
    Host,
    RemoteNode,
    World,
    /// The API server, when it runs on the node of the other end.
    ApiserverHost,
    /// The API server, when it runs on another node.
    ApiserverNode,
    /// The API server, when it runs outside of the cluster.
    ApiserverOutside,
    Unmanaged,
    Health,
    Ingress,
    Init,
}

impl Kind {
    /// The `reserved:` labels of its Cilium identity (cilium/cilium `pkg/identity`, reserved identities).
    fn reserved(self) -> &'static [&'static str] {
        match self {
            Self::Pod => &[],
            Self::Host => &["host"],
            Self::RemoteNode => &["remote-node"],
            Self::World => &["world"],
            Self::ApiserverHost => &["kube-apiserver", "host"],
            Self::ApiserverNode => &["kube-apiserver", "remote-node"],
            Self::ApiserverOutside => &["kube-apiserver", "world"],
            Self::Unmanaged => &["unmanaged"],
            Self::Health => &["health"],
            Self::Ingress => &["ingress"],
            Self::Init => &["init"],
        }
    }

    pub(super) fn is_outside(self) -> bool {
        matches!(self, Self::World | Self::ApiserverOutside)
    }

    pub(super) fn is_node(self) -> bool {
        self.is_own_node() || matches!(self, Self::RemoteNode | Self::ApiserverNode)
    }

    /// The node the other end runs on.
    pub(super) fn is_own_node(self) -> bool {
        matches!(self, Self::Host | Self::ApiserverHost)
    }
}

/// A pod that policies see as a pod: not one in its node's network.
pub(super) fn own_network<'a>(peer: &Peer<'a>) -> Option<&'a Pod> {
    match peer {
        Peer::Pod(pod) if !pod.host_network => Some(pod),
        _ => None,
    }
}

/// An end as the policies see it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct End {
    pub(super) kind: Kind,
    /// The value of each attribute of the [`Table`].
    pub(super) classes: Vec<Class>,
    /// Whether each [`Block`] matches.
    pub(super) blocks: Vec<Truth>,
    /// The numbers each port name stands for.
    pub(super) named: Vec<Vec<(Protocol, u16)>>,
}

/// Facts about the cluster that ends are looked up in.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) namespaces: HashMap<String, Labels>,
    pub(super) nodes: HashMap<String, Labels>,
    pub(super) enforcer: Enforcer,
    pub(super) version: Option<(u16, u16)>,
}

impl Facts {
    /// The value of an attribute at an end.
    pub(super) fn lookup<'a>(&'a self, attribute: &Attribute, peer: &Peer<'a>, kind: Kind) -> Lookup<'a> {
        match (attribute, own_network(peer)) {
            (Attribute::Namespace, Some(pod)) => Lookup::Value(&pod.namespace),
            (Attribute::PodLabel(key), Some(pod)) => self.visible(key, pod.labels.get(key).into()),
            (Attribute::NamespaceLabel(key), Some(pod)) => {
                self.visible(&format!("{NAMESPACE_LABELS}{key}"), self.namespace_label(pod, key))
            }
            (Attribute::Security(Source::K8s | Source::Any, key), Some(pod)) => self.security_label(pod, key),
            (Attribute::Security(Source::Foreign, _), _) => Lookup::Unknown,
            (Attribute::Security(Source::Any | Source::Reserved, key), None) => {
                reserved_label(key, peer, kind)
            }
            (Attribute::NodeLabel(key), _) => self.node_label(peer, key),
            _ => Lookup::Absent,
        }
    }

    /// A label as NetworkPolicy selectors see it: Cilium only knows those of the identity.
    fn visible<'a>(&self, key: &str, value: Lookup<'a>) -> Lookup<'a> {
        match (hidden_by_cilium(key, self.version), self.enforcer) {
            (true, Enforcer::Cilium) => Lookup::Absent,
            (true, Enforcer::Unknown) if value != Lookup::Absent => Lookup::Unknown,
            _ => value,
        }
    }

    fn security_label<'a>(&'a self, pod: &'a Pod, key: &str) -> Lookup<'a> {
        match key {
            CLUSTER_LABEL => Lookup::Unknown,
            SERVICE_ACCOUNT_LABEL => Lookup::Value(&pod.service_account),
            _ if hidden_by_cilium(key, self.version) => Lookup::Absent,
            _ => match key.strip_prefix(NAMESPACE_LABELS) {
                Some(label) => self.namespace_label(pod, label),
                None => pod.labels.get(key).into(),
            },
        }
    }

    /// Of a namespace that is not among the given ones only the label every namespace has is known
    /// (Kubernetes, automatic labelling).
    fn namespace_label<'a>(&'a self, pod: &'a Pod, key: &str) -> Lookup<'a> {
        match self.namespaces.get(&pod.namespace) {
            _ if key == "kubernetes.io/metadata.name" => Lookup::Value(&pod.namespace),
            Some(labels) => labels.get(key).into(),
            None => Lookup::Unknown,
        }
    }

    fn node_label<'a>(&'a self, peer: &Peer<'a>, key: &str) -> Lookup<'a> {
        let node = match peer {
            Peer::Pod(pod) => pod.node.as_ref().and_then(|name| self.nodes.get(name)),
            Peer::Entity(..) => None,
        };
        node.map_or(Lookup::Unknown, |labels| labels.get(key).into())
    }

    /// What the policies compiled into `table`, `blocks` and `names` see of an end.
    pub(super) fn end(
        &self,
        peer: &Peer<'_>,
        kind: Kind,
        table: &Table,
        blocks: &[Block],
        names: &[String],
    ) -> End {
        let ports = match peer {
            Peer::Pod(pod) => pod.ports.as_slice(),
            Peer::Entity(..) => &[],
        };
        let numbers = |name: &String| {
            let named = ports.iter().filter(|port| port.name.as_ref() == Some(name));
            let mut numbers: Vec<_> = named.map(|port| (port.protocol, port.port)).collect();
            numbers.sort_unstable();
            numbers
        };
        End {
            kind,
            classes: table.classes(|attribute| self.lookup(attribute, peer, kind)),
            blocks: blocks.iter().map(|block| block.matches(kind, addresses(peer))).collect(),
            named: names.iter().map(numbers).collect(),
        }
    }

    /// What a rule that is to select this end can name.
    pub(super) fn side(&self, peer: &Peer<'_>, kind: Kind) -> Side {
        match (own_network(peer), peer) {
            (Some(pod), _) => {
                let shown = |(key, _): &(&String, &String)| !hidden_by_cilium(key, self.version);
                let labels = pod.labels.iter().filter(shown).map(|(k, v)| (k.clone(), v.clone())).collect();
                Side::Pods { namespace: pod.namespace.clone(), labels }
            }
            (None, Peer::Entity(entity, address)) => Side::Entity(*entity, *address),
            (None, Peer::Pod(_)) if kind == Kind::Host => Side::Entity(Entity::Host, None),
            (None, Peer::Pod(_)) => Side::Entity(Entity::RemoteNode, None),
        }
    }
}

fn addresses<'a>(peer: &'a Peer<'_>) -> &'a [IpAddr] {
    match peer {
        Peer::Pod(pod) => &pod.ips,
        Peer::Entity(_, address) => address.as_slice(),
    }
}

/// `world-ipv4` and `world-ipv6` are told apart by the address.
fn reserved_label<'a>(key: &str, peer: &Peer<'_>, kind: Kind) -> Lookup<'a> {
    let family = match key {
        "world-ipv4" => Some(IpAddr::is_ipv4 as fn(&IpAddr) -> bool),
        "world-ipv6" => Some(IpAddr::is_ipv6 as fn(&IpAddr) -> bool),
        _ => None,
    };
    let present = match family {
        Some(is_family) if kind.is_outside() => addresses(peer).first().map(is_family),
        _ => Some(kind.reserved().contains(&key)),
    };
    match present {
        None => Lookup::Unknown,
        Some(true) => Lookup::Value(""),
        Some(false) => Lookup::Absent,
    }
}

impl Block {
    /// A connection uses one of the addresses, and which one is not known.
    fn matches(&self, kind: Kind, addresses: &[IpAddr]) -> Truth {
        let inside = match self.inside {
            _ if kind.is_outside() => Truth::Yes,
            Inside::Never => return Truth::No,
            Inside::Perhaps => Truth::Maybe,
            Inside::Always => Truth::Yes,
        };
        let has = |address: &&IpAddr| {
            self.net.contains(*address) && !self.holes.iter().any(|hole| hole.contains(*address))
        };
        let by_address = match addresses.iter().filter(has).count() {
            _ if addresses.is_empty() => Truth::Maybe,
            0 => Truth::No,
            count if count == addresses.len() => Truth::Yes,
            _ => Truth::Maybe,
        };
        by_address.min(inside)
    }
}

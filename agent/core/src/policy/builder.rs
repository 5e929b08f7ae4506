//! What compiling policies needs and leaves behind. Enters: the settings and the services; leaves: tables of
//! attributes, port names and networks that the compiled rules refer to by number.

use std::collections::HashMap;
use std::hash::Hash;

use serde_json::Value;

use super::answer::{PolicyRef, Settings};
use super::field::{Malformed, Read, malformed, port, text};
use super::identity::{Enforcer, TOPOLOGY};
use super::model::{Block, PortTerm};
use super::selector::{Attribute, Requirement, Selector, Source, Table, Test};
use crate::facts::{Protocol, Service};

/// Cilium reads `endPort` since this version; older ones open only `port` (cilium/cilium issues #28684, #28704).
const END_PORT_SINCE: (u16, u16) = (1, 16);

/// The state of one compilation.
#[derive(Debug)]
pub(super) struct Builder<'a> {
    pub(super) services: &'a [Service],
    pub(super) enforcer: Enforcer,
    pub(super) version: Option<(u16, u16)>,
    pub(super) table: Table,
    pub(super) names: Numbered<String>,
    pub(super) blocks: Numbered<Block>,
    /// Whether something was read differently by older Cilium versions, and the version is not known.
    pub(super) version_matters: bool,
}

impl<'a> Builder<'a> {
    pub(super) fn new(settings: Settings, enforcer: Enforcer, services: &'a [Service]) -> Self {
        Self {
            services,
            enforcer,
            version: settings.cilium_version,
            table: Table::default(),
            names: Numbered::default(),
            blocks: Numbered::default(),
            version_matters: false,
        }
    }

    /// Whether Cilium is older than `since`; the newest is assumed when the version is not known.
    pub(super) fn cilium_before(&mut self, since: (u16, u16)) -> bool {
        self.version_matters |= self.version.is_none();
        self.version.is_some_and(|version| version < since)
    }

    /// Compiles a Cilium selector.
    pub(super) fn cilium(&mut self, requirements: Vec<Requirement<Attribute>>) -> Selector {
        for (attribute, _) in &requirements {
            if let Attribute::Security(Source::K8s | Source::Any, key) = attribute {
                self.version_matters |= self.version.is_none() && key.starts_with(TOPOLOGY);
            }
        }
        self.table.selector(requirements)
    }

    /// Compiles the selectors of a Kubernetes API: `pods` and `namespaces`, each everything when absent. Whatever
    /// they say, only pods match.
    pub(super) fn kubernetes(
        &mut self,
        pods: Option<Vec<Requirement<String>>>,
        namespaces: Option<Vec<Requirement<String>>>,
        own: Option<&PolicyRef>,
    ) -> Selector {
        let namespace = match own.and_then(|policy| policy.namespace.clone()) {
            Some(name) => Test::In(vec![name]),
            None => Test::Exists,
        };
        let mut all = vec![(Attribute::Namespace, namespace)];
        for (key, test) in pods.into_iter().flatten() {
            let topology = self.enforcer == Enforcer::Cilium && key.starts_with(TOPOLOGY);
            self.version_matters |= self.version.is_none() && topology;
            all.push((Attribute::PodLabel(key), test));
        }
        let namespaces = namespaces.into_iter().flatten();
        all.extend(namespaces.map(|(key, test)| (Attribute::NamespaceLabel(key), test)));
        self.table.selector(all)
    }

    /// The number of a port name.
    pub(super) fn name(&mut self, name: &str) -> usize {
        self.names.number(name.to_owned())
    }

    /// The number of a network.
    pub(super) fn block(&mut self, block: Block) -> usize {
        self.blocks.number(block)
    }

    /// The range from `first` to the rule's `endPort`, as the enforcer reads it.
    pub(super) fn port_range(&mut self, first: u16, end: Option<u16>, by_cilium: bool) -> Read<PortTerm> {
        match end {
            Some(end) if end < first => malformed(format!("endPort {end} is below port {first}")),
            Some(end) if end > first && !(by_cilium && self.cilium_before(END_PORT_SINCE)) => {
                Ok(PortTerm::Numbers(first, end))
            }
            _ => Ok(PortTerm::Numbers(first, first)),
        }
    }
}

/// Gives equal things the same number, in order of appearance.
#[derive(Clone, Debug)]
pub(super) struct Numbered<T> {
    numbers: HashMap<T, usize>,
    all: Vec<T>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self { numbers: HashMap::new(), all: Vec::new() }
    }
}

impl<T: Clone + Eq + Hash> Numbered<T> {
    fn number(&mut self, one: T) -> usize {
        *self.numbers.entry(one).or_insert_with_key(|one| {
            self.all.push(one.clone());
            self.all.len() - 1
        })
    }

    pub(super) fn into_all(self) -> Vec<T> {
        self.all
    }
}

/// A transport protocol of the Kubernetes APIs; TCP when absent.
pub(super) fn protocol(value: &Value) -> Read<Protocol> {
    match text(value, "protocol")? {
        None | Some("TCP") => Ok(Protocol::Tcp),
        Some("UDP") => Ok(Protocol::Udp),
        Some("SCTP") => Ok(Protocol::Sctp),
        Some(other) => malformed(format!("protocol {other:?}")),
    }
}

/// A port number that must be there and not 0.
pub(super) fn port_number(value: &Value, name: &str) -> Read<u16> {
    port(value, name)?.filter(|port| *port > 0).ok_or_else(|| Malformed(format!("{name} is missing or 0")))
}

/// Whether a port name can be one: the letters, digits and hyphens of an IANA service name, one letter at least.
pub(super) fn is_port_name(name: &str) -> bool {
    name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        && name.bytes().any(|b| b.is_ascii_alphabetic())
}

//! One reading of a set of policies. Enters: objects and settings; leaves: compiled rules, indexed by what ends must
//! have to be selected, so that an end is held only against policies that may select it.

use std::collections::HashMap;

use super::answer::{Enforcement, Peer, PolicyKind, PolicyRef, Rejected, Settings, Side};
use super::builder::Builder;
use super::field::Read;
use super::identity::{End, Enforcer, Facts, Kind};
use super::model::{Block, Policy, Section, Subject, Tier};
use super::selector::{ABSENT, Class, Table, Truth, UNKNOWN};
use super::{admin, cilium, netpol};
use crate::facts::Service;
use crate::object::Object;

/// Compiled policies.
#[derive(Clone, Debug)]
pub(super) struct Compiled {
    /// In the order of their references.
    pub(super) policies: Vec<Policy>,
    pub(super) facts: Facts,
    pub(super) enforcement: Enforcement,
    pub(super) rejected: Vec<Rejected>,
    /// Admin policies exist and are not enforced.
    pub(super) admin_ignored: bool,
    /// Older Cilium versions read something differently, and the version is not known.
    pub(super) version_matters: bool,
    table: Table,
    blocks: Vec<Block>,
    names: Vec<String>,
    index: Index,
}

/// An end and the policies that select it.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) end: End,
    pub(super) side: Side,
    /// Numbers of the policies that select it or may do so, ascending.
    pub(super) selected: Vec<(usize, Truth)>,
}

impl Compiled {
    /// Compiles `objects`, sorted by reference. Admin policies are left out where they are not enforced.
    pub(super) fn new(
        objects: &[(PolicyRef, &Object)],
        services: &[Service],
        facts: Facts,
        settings: Settings,
        admin_enforced: bool,
    ) -> Self {
        let mut builder = Builder::new(settings, facts.enforcer, services);
        let (mut policies, mut rejected) = (Vec::new(), Vec::new());
        let mut admin_ignored = false;
        for (reference, object) in objects {
            let compiled = compile(object, reference, &mut builder).unwrap_or_else(|reason| {
                rejected.push(Rejected { policy: reference.clone(), reason: reason.to_string() });
                unreadable(object, reference, &mut builder)
            });
            let admin = reference.kind > PolicyKind::NetworkPolicy;
            admin_ignored |= admin && !admin_enforced;
            let enforced = if admin { admin_enforced } else { settings.enforcement != Enforcement::Never };
            if enforced {
                policies.extend(compiled);
            }
        }
        let index = Index::new(&policies, &builder.table);
        Self {
            policies,
            facts,
            enforcement: settings.enforcement,
            rejected,
            admin_ignored,
            version_matters: builder.version_matters,
            table: builder.table,
            blocks: builder.blocks.into_all(),
            names: builder.names.into_all(),
            index,
        }
    }

    /// What the policies see of an end.
    pub(super) fn end(&self, peer: &Peer<'_>, kind: Kind) -> End {
        self.facts.end(peer, kind, &self.table, &self.blocks, &self.names)
    }

    /// An end together with the policies that select it.
    pub(super) fn see(&self, end: End, side: Side) -> Seen {
        let mut selected = Vec::new();
        for number in self.index.candidates(&end.classes) {
            if let Some(Policy { subject: Subject::Endpoints(selector), .. }) = self.policies.get(number) {
                let truth = selector.matches(&end.classes);
                if truth != Truth::No {
                    selected.push((number, truth));
                }
            }
        }
        selected.sort_unstable();
        Seen { end, side, selected }
    }

    /// Whether there are policies for nodes in a direction.
    pub(super) fn has_host_policies(&self, section: impl Fn(&Policy) -> &Section) -> bool {
        let of_nodes = self.policies.iter().filter(|policy| policy.subject == Subject::Nodes);
        of_nodes.map(section).any(|section| *section != Section::default())
    }
}

fn compile(object: &Object, reference: &PolicyRef, builder: &mut Builder<'_>) -> Read<Vec<Policy>> {
    match reference.kind {
        PolicyKind::CiliumNetworkPolicy | PolicyKind::CiliumClusterwideNetworkPolicy => {
            cilium::compile(object, reference, builder)
        }
        PolicyKind::NetworkPolicy => netpol::compile(object, reference, builder).map(|policy| vec![policy]),
        PolicyKind::AdminNetworkPolicy | PolicyKind::BaselineAdminNetworkPolicy => {
            admin::compile(object, reference, builder).map(|policy| vec![policy])
        }
    }
}

fn unreadable(object: &Object, reference: &PolicyRef, builder: &mut Builder<'_>) -> Vec<Policy> {
    let subjects = match reference.kind {
        PolicyKind::CiliumNetworkPolicy | PolicyKind::CiliumClusterwideNetworkPolicy => {
            cilium::suspects(object, reference, builder)
        }
        PolicyKind::NetworkPolicy => vec![netpol::suspects(object, reference, builder)],
        PolicyKind::AdminNetworkPolicy | PolicyKind::BaselineAdminNetworkPolicy => {
            vec![admin::suspects(object, builder)]
        }
    };
    let policy = |subject| Policy {
        reference: reference.clone(),
        tier: Tier::Namespace,
        subject,
        ingress: Section::default(),
        egress: Section::default(),
        unreadable: true,
    };
    subjects.into_iter().map(policy).collect()
}

/// Finds the policies whose subject an end may be.
#[derive(Clone, Debug, Default)]
struct Index {
    by_attribute: HashMap<usize, HashMap<Class, Vec<usize>>>,
    rest: Vec<usize>,
}

impl Index {
    fn new(policies: &[Policy], table: &Table) -> Self {
        let mut index = Self::default();
        for (number, policy) in policies.iter().enumerate() {
            let Subject::Endpoints(selector) = &policy.subject else { continue };
            match selector.discriminator(table) {
                Some((attribute, classes)) => {
                    let by_class = index.by_attribute.entry(attribute).or_default();
                    for class in classes {
                        by_class.entry(*class).or_default().push(number);
                    }
                }
                None => index.rest.push(number),
            }
        }
        index
    }

    fn candidates(&self, classes: &[Class]) -> Vec<usize> {
        let mut found = self.rest.clone();
        for (attribute, by_class) in &self.by_attribute {
            match classes.get(*attribute).copied().unwrap_or(ABSENT) {
                UNKNOWN => found.extend(by_class.values().flatten()),
                class => found.extend(by_class.get(&class).into_iter().flatten()),
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// Who enforces NetworkPolicy. Cilium policies among the objects, or a Cilium version, give Cilium away.
pub(super) fn enforcer(settings: Settings, objects: &[(PolicyRef, &Object)]) -> Enforcer {
    use super::answer::Cni;
    let of_cilium = |kind: PolicyKind| kind < PolicyKind::NetworkPolicy;
    match settings.cni {
        Cni::Cilium => Enforcer::Cilium,
        Cni::Other => Enforcer::Other,
        Cni::Unknown if settings.cilium_version.is_some() => Enforcer::Cilium,
        Cni::Unknown if objects.iter().any(|(reference, _)| of_cilium(reference.kind)) => Enforcer::Cilium,
        Cni::Unknown => Enforcer::Unknown,
    }
}

//! Owner references, followed up. Enters: pods and objects; leaves: the chain of owners above a pod, as far
//! as it is known and true. Must not know which owners are jobs.
//!
//! Whoever may create a pod may write any owner reference into it. A reference is only believed when an
//! object with this very UID, kind and name is in the pod's namespace (or is cluster-scoped), or when nothing
//! known contradicts it; it then still cannot take the place of another object of that name, because identity
//! is the UID.

use std::collections::hash_map::Entry;

use foldhash::{HashMap, HashMapExt, HashSet};

use crate::facts::Pod;
use crate::object::{Object, OwnerRef};

/// More owners above one another than any system makes; ends cycles.
const LONGEST_CHAIN: usize = 16;

/// An owner in a chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link<'o> {
    /// What the reference below it said.
    pub(super) reference: &'o OwnerRef,
    /// The object itself, when it is known.
    pub(super) object: Option<&'o Object>,
}

impl Link<'_> {
    /// The owner's API group; empty for the core group or when not told.
    pub(super) fn group(&self) -> &str {
        group(&self.reference.api_version)
    }
}

/// What is above the last link of a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Above {
    /// Nothing: the last link is the top.
    Nothing,
    /// Cannot be known: the last link's object is not here.
    Unknown,
    /// A reference that cannot be true.
    Untrue,
}

/// The owners above a pod, nearest first.
#[derive(Clone, Debug)]
pub(super) struct Chain<'o> {
    pub(super) links: Vec<Link<'o>>,
    pub(super) above: Above,
    /// Another object than the one referred to bears the name: names must not be looked up for this pod.
    pub(super) contradicted: bool,
}

/// A possible owner, with its own owner.
struct Known<'a> {
    /// `None` for a pod.
    object: Option<&'a Object>,
    /// Its API group.
    group: &'a str,
    controller: Option<OwnerRef>,
}

type Identity<'a> = (Option<&'a str>, &'a str, &'a str, &'a str);
type Name<'a> = (&'a str, &'a str, &'a str, &'a str);

/// All possible owners, findable by UID and by name.
pub(super) struct Owners<'a> {
    known: Vec<Known<'a>>,
    /// Places in `known` by namespace, UID, kind and name.
    exact: HashMap<Identity<'a>, usize>,
    uids: HashSet<&'a str>,
    /// By namespace, API group, kind and name; `None` when several objects of different UIDs bear the name.
    names: HashMap<Name<'a>, Option<&'a Object>>,
    /// Which RayJob or RayService runs a RayCluster, by namespace and the cluster's name: their status tells.
    ray: HashMap<(&'a str, &'a str), &'a Object>,
}

impl<'a> Owners<'a> {
    pub(super) fn new(pods: &'a [Pod], objects: &'a [Object]) -> Self {
        let mut owners = Self {
            known: Vec::with_capacity(pods.len().saturating_add(objects.len())),
            exact: HashMap::with_capacity(pods.len().saturating_add(objects.len())),
            uids: HashSet::default(),
            names: HashMap::with_capacity(objects.len()),
            ray: HashMap::new(),
        };
        for pod in pods {
            if let Some(uid) = pod.uid.as_deref() {
                let identity = (Some(pod.namespace.as_str()), uid, "Pod", pod.name.as_str());
                owners.know(
                    identity,
                    Known { object: None, group: "", controller: controller(&pod.owners).cloned() },
                );
            }
        }
        for object in objects {
            owners.add(object);
        }
        owners
    }

    fn add(&mut self, object: &'a Object) {
        let (kind, name) = (object.kind(), object.name());
        if kind.is_empty() || name.is_empty() || kind == "Pod" {
            return;
        }
        let (namespace, uid, group) = (object.namespace(), object.uid(), object.group());
        if let Some(uid) = uid {
            let controller = controller(&object.owners()).cloned();
            self.know((namespace, uid, kind, name), Known { object: Some(object), group, controller });
        }
        let Some(namespace) = namespace else { return };
        let named = self.names.entry((namespace, group, kind, name)).or_insert(Some(object));
        if named.is_some_and(|first| first.uid() != uid) {
            *named = None;
        }
        if matches!(kind, "RayJob" | "RayService") && group == "ray.io" {
            let direct = object.text("/status/rayClusterName");
            let cluster = direct.or_else(|| object.text("/status/activeServiceStatus/rayClusterName"));
            if let Some(cluster) = cluster.filter(|cluster| !cluster.is_empty()) {
                self.ray.entry((namespace, cluster)).or_insert(object);
            }
        }
    }

    fn know(&mut self, identity: Identity<'a>, known: Known<'a>) {
        if let Entry::Vacant(place) = self.exact.entry(identity) {
            place.insert(self.known.len());
            self.known.push(known);
            self.uids.insert(identity.1);
        }
    }

    /// The one object of this API group, kind and name in a namespace.
    pub(super) fn named(&self, namespace: &str, group: &str, kind: &str, name: &str) -> Option<&'a Object> {
        self.names.get(&(namespace, group, kind, name)).copied().flatten()
    }

    /// The RayJob or RayService whose status names this RayCluster.
    pub(super) fn runs_ray_cluster(&self, namespace: &str, cluster: &str) -> Option<&'a Object> {
        self.ray.get(&(namespace, cluster)).copied()
    }

    /// The owners above a pod.
    pub(super) fn above_pod<'o>(&'o self, pod: &'o Pod) -> Chain<'o> {
        self.chain(&pod.namespace, controller(&pod.owners))
    }

    /// The owners above an object in its namespace.
    pub(super) fn above_object(&self, object: &Object) -> Chain<'_> {
        let identity = object.uid().map(|uid| (object.namespace(), uid, object.kind(), object.name()));
        let known = identity
            .and_then(|identity| self.exact.get(&identity).copied())
            .and_then(|at| self.known.get(at));
        self.chain(object.namespace().unwrap_or_default(), known.and_then(|known| known.controller.as_ref()))
    }

    fn chain<'o>(&'o self, namespace: &str, first: Option<&'o OwnerRef>) -> Chain<'o> {
        let mut chain = Chain { links: Vec::new(), above: Above::Nothing, contradicted: false };
        let mut next = first;
        while let Some(reference) = next.take() {
            if chain.links.len() == LONGEST_CHAIN {
                chain.above = Above::Untrue;
                break;
            }
            match self.find(namespace, reference) {
                Some(known) => {
                    next = known.controller.as_ref();
                    chain.links.push(Link { reference, object: known.object });
                }
                None if reference.uid.is_empty() || self.uids.contains(reference.uid.as_str()) => {
                    // The UID is of another object, or of another namespace.
                    chain.above = Above::Untrue;
                    chain.contradicted = true;
                }
                None => {
                    let key = (namespace, group(&reference.api_version), &*reference.kind, &*reference.name);
                    chain.contradicted = self.names.contains_key(&key);
                    chain.above = Above::Unknown;
                    chain.links.push(Link { reference, object: None });
                }
            }
        }
        chain
    }

    fn find(&self, namespace: &str, reference: &OwnerRef) -> Option<&Known<'a>> {
        let (uid, kind, name) = (&*reference.uid, &*reference.kind, &*reference.name);
        let here = self.exact.get(&(Some(namespace), uid, kind, name)).copied();
        let known = self.known.get(here.or_else(|| self.exact.get(&(None, uid, kind, name)).copied())?)?;
        // `v1` and an absent version both give an empty group, which is then not held against the object.
        let told = group(&reference.api_version);
        (told.is_empty() || told == known.group).then_some(known)
    }
}

/// The reference to the managing controller. Where none is marked, a single owner stands in: some recorders
/// leave the mark out.
pub(super) fn controller(references: &[OwnerRef]) -> Option<&OwnerRef> {
    references.iter().find(|reference| reference.controller).or(match references {
        [only] => Some(only),
        _ => None,
    })
}

/// The API group of an `apiVersion`.
pub(super) fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

//! Owner references, followed up. Enters: pods and objects; leaves: the chain of owners above a pod, as far as it is
//! known and true. Must not know which owners are jobs.
//!
//! Whoever may create a pod may write any owner reference into it. A reference is only believed when an object with
//! this very UID, kind and name is in the pod's namespace (or is cluster-scoped), or when nothing known contradicts
//! it; it then still cannot take the place of another object of that name, because identity is the UID.

use foldhash::{HashMap, HashMapExt, HashSet};

use crate::facts::Pod;
use crate::object::{Object, OwnerRef};

/// More owners above one another than any system makes; ends cycles.
const LONGEST_CHAIN: usize = 16;

/// An owner in a chain.
#[derive(Clone, Debug)]
pub(super) struct Link<'a> {
    /// What the reference below it said.
    pub(super) reference: OwnerRef,
    /// The object itself, when it is known.
    pub(super) object: Option<&'a Object>,
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
pub(super) struct Chain<'a> {
    pub(super) links: Vec<Link<'a>>,
    pub(super) above: Above,
    /// Another object than the one referred to bears the name: names must not be looked up for this pod.
    pub(super) contradicted: bool,
}

#[derive(Clone, Copy)]
enum Body<'a> {
    Object(&'a Object),
    Pod(&'a Pod),
}

type Identity<'a> = (Option<&'a str>, &'a str, &'a str, &'a str);
type Name<'a> = (&'a str, &'a str, &'a str, &'a str);

/// All possible owners, findable by UID and by name.
pub(super) struct Owners<'a> {
    /// By namespace, UID, kind and name.
    exact: HashMap<Identity<'a>, Body<'a>>,
    uids: HashSet<&'a str>,
    /// By namespace, API group, kind and name; `None` when several objects of different UIDs bear the name.
    names: HashMap<Name<'a>, Option<&'a Object>>,
    /// Which RayJob or RayService runs a RayCluster, by namespace and the cluster's name: their status tells.
    ray: HashMap<(&'a str, &'a str), &'a Object>,
}

impl<'a> Owners<'a> {
    pub(super) fn new(pods: &'a [Pod], objects: &'a [Object]) -> Self {
        let mut owners = Self {
            exact: HashMap::with_capacity(pods.len()),
            uids: HashSet::default(),
            names: HashMap::new(),
            ray: HashMap::new(),
        };
        for pod in pods {
            if let Some(uid) = pod.uid.as_deref() {
                owners.exact.insert((Some(&pod.namespace), uid, "Pod", &pod.name), Body::Pod(pod));
                owners.uids.insert(uid);
            }
        }
        for object in objects.iter().filter(|object| object.kind() != "Pod") {
            owners.add(object);
        }
        owners
    }

    fn add(&mut self, object: &'a Object) {
        let (kind, name) = (object.kind(), object.name());
        if let Some(uid) = object.uid() {
            self.exact.entry((object.namespace(), uid, kind, name)).or_insert(Body::Object(object));
            self.uids.insert(uid);
        }
        let Some(namespace) = object.namespace() else { return };
        let named = self.names.entry((namespace, object.group(), kind, name)).or_insert(Some(object));
        if named.is_some_and(|first| first.uid() != object.uid()) {
            *named = None;
        }
        if object.group() == "ray.io" && matches!(kind, "RayJob" | "RayService") {
            let direct = object.text("/status/rayClusterName");
            let cluster = direct.or_else(|| object.text("/status/activeServiceStatus/rayClusterName"));
            if let Some(cluster) = cluster.filter(|cluster| !cluster.is_empty()) {
                self.ray.entry((namespace, cluster)).or_insert(object);
            }
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

    /// Follows owner references up from something in `namespace` that bears `references`.
    pub(super) fn chain(&self, namespace: &str, references: &[OwnerRef]) -> Chain<'a> {
        let mut chain = Chain { links: Vec::new(), above: Above::Nothing, contradicted: false };
        let mut next = controller(references).cloned();
        while let Some(reference) = next.take() {
            if chain.links.len() == LONGEST_CHAIN {
                chain.above = Above::Untrue;
                break;
            }
            match self.find(namespace, &reference) {
                Some(Body::Object(object)) => {
                    next = controller(&object.owners()).cloned();
                    chain.links.push(Link { reference, object: Some(object) });
                }
                Some(Body::Pod(pod)) => {
                    next = controller(&pod.owners).cloned();
                    chain.links.push(Link { reference, object: None });
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

    fn find(&self, namespace: &str, reference: &OwnerRef) -> Option<Body<'a>> {
        let (uid, kind, name) = (&*reference.uid, &*reference.kind, &*reference.name);
        let body = self
            .exact
            .get(&(Some(namespace), uid, kind, name))
            .or_else(|| self.exact.get(&(None, uid, kind, name)))?;
        let told = group(&reference.api_version);
        match body {
            // `v1` and an absent version both give an empty group, which is then not held against the object.
            Body::Object(object) if !told.is_empty() && told != object.group() => None,
            body => Some(*body),
        }
    }
}

/// The reference to the managing controller. Where none is marked, a single owner stands in: some recorders leave
/// the mark out.
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

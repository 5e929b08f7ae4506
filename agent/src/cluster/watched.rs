//! A watch, what it is of, and what it told that is no pod. Enters: what was listed; leaves: what is there. Must not know
//! streams.

use std::collections::{BTreeMap, BTreeSet};

use firedoor_core::object::Object;
use firedoor_core::time::Timestamp;

use super::api::Served;
use super::now;
use super::wanted::JobPods;

/// What is watched.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Wanted {
    /// The pods of this node.
    Own,
    /// The pods of a job.
    Job(JobPods),
    /// Policies of a kind, of one namespace or of the whole cluster.
    Policies(Served, Option<String>),
    /// The labels of all namespaces.
    Namespaces,
}

/// A list under way, by what tells its objects apart.
#[derive(Default)]
pub(super) struct Listing {
    /// Those that were not known before it.
    pub(super) new: BTreeSet<Box<str>>,
    again: BTreeSet<Box<str>>,
}

impl Listing {
    pub(super) fn add(&mut self, id: String, known: bool) {
        let id: Box<str> = id.into();
        if !known {
            self.new.insert(id);
        } else if !self.new.contains(&id) {
            self.again.insert(id);
        }
    }

    pub(super) fn all(mut self) -> BTreeSet<Box<str>> {
        self.new.append(&mut self.again);
        self.new
    }
}

/// A watch, and what it told.
pub(super) struct Watched {
    pub(super) wanted: Wanted,
    /// Whether it was listed to the end once.
    pub(super) listed: bool,
    /// Why it cannot be had.
    pub(super) refused: Option<String>,
    /// Since when the server does not answer, and how.
    pub(super) down: Option<(Timestamp, String)>,
    /// What is no pod, by namespace and name.
    pub(super) objects: BTreeMap<(Option<String>, String), Object>,
    /// What the list under way has had.
    pub(super) listing: Option<Listing>,
    /// Until when it is known to have been complete.
    pub(super) last: Timestamp,
    /// How many pods it holds.
    pub(super) members: usize,
}

impl Watched {
    pub(super) fn new(wanted: Wanted) -> Self {
        Self {
            wanted,
            listed: false,
            refused: None,
            down: None,
            objects: BTreeMap::new(),
            listing: None,
            last: now(),
            members: 0,
        }
    }

    /// Whether this is one of its objects that are no pods.
    pub(super) fn knows(&self, object: &Object) -> bool {
        self.objects.contains_key(&(object.namespace().map(str::to_owned), object.name().to_owned()))
    }

    pub(super) fn heard(&mut self) {
        self.down = None;
        self.last = now();
    }
}

impl Wanted {
    pub(super) fn of_pods(&self) -> bool {
        matches!(self, Self::Own | Self::Job(_))
    }

    /// What tells two of its objects apart.
    pub(super) fn identity(&self, object: &Object) -> String {
        if self.of_pods() {
            return object.uid().unwrap_or_default().to_owned();
        }
        identity(object.namespace().unwrap_or_default(), object.name())
    }
}

/// What tells two objects of one kind apart.
pub(super) fn identity(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

//! The objects, their versions, and what happened to them.
//!
//! Imitates etcd behind the real server: one version counter for everything, every change logged under its version, and
//! compaction, after which older versions cannot be watched from and begun lists cannot be continued (410).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::select::Selector;

/// A kind that is served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Kind {
    /// Empty for the core group.
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    /// The name in paths.
    pub(crate) plural: String,
    pub(crate) namespaced: bool,
}

impl Kind {
    /// A kind by its `apiVersion`.
    pub(crate) fn new(api_version: &str, kind: &str, plural: &str, namespaced: bool) -> Self {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let own = str::to_owned;
        Self { group: own(group), version: own(version), kind: own(kind), plural: own(plural), namespaced }
    }

    /// `v1`, or `group/version`.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Objects of built-in kinds are listed without saying what they are, custom resources say it.
    pub(crate) fn is_builtin(&self) -> bool {
        !self.group.contains('.') || self.group.ends_with(".k8s.io")
    }
}

/// Which kind, in which namespace, of which name.
pub(crate) type Key = (String, String, String, String);

/// Something that happened.
#[derive(Clone)]
pub(crate) struct Change {
    pub(crate) version: u64,
    pub(crate) key: Key,
    pub(crate) before: Option<Arc<Value>>,
    pub(crate) after: Option<Arc<Value>>,
}

impl Change {
    /// As a watcher with this selector is told it: type and object. An object that ceases to be selected is told as
    /// deleted, in its last selected form under the new version.
    pub(crate) fn told(&self, selector: &Selector) -> Option<(&'static str, Value)> {
        let selected =
            |object: &Option<Arc<Value>>| object.as_ref().filter(|object| selector.selects(object)).cloned();
        let (before, after) = (selected(&self.before), selected(&self.after));
        let versioned = |object: &Arc<Value>| {
            let mut object = Value::clone(object);
            object["metadata"]["resourceVersion"] = json!(self.version.to_string());
            object
        };
        match (before, after) {
            (None, Some(after)) => Some(("ADDED", versioned(&after))),
            (Some(_), Some(after)) => Some(("MODIFIED", versioned(&after))),
            (Some(before), None) => Some(("DELETED", versioned(&before))),
            (None, None) => None,
        }
    }
}

/// All objects.
pub(crate) struct Store {
    pub(crate) kinds: Vec<Kind>,
    pub(crate) objects: BTreeMap<Key, Arc<Value>>,
    pub(crate) log: Vec<Change>,
    pub(crate) version: u64,
    /// Versions up to this one are forgotten.
    pub(crate) compacted: u64,
    /// What is left of lists that were begun, by the token to go on with.
    pub(crate) pages: BTreeMap<String, (u64, Vec<Arc<Value>>)>,
    uids: u64,
}

impl Store {
    pub(crate) fn new(kinds: Vec<Kind>) -> Self {
        let (objects, pages) = (BTreeMap::new(), BTreeMap::new());
        // Real clusters are never at their first versions.
        Self { kinds, objects, log: Vec::new(), version: 1000, compacted: 1000, pages, uids: 0 }
    }

    pub(crate) fn kind_of(&self, object: &Value) -> Option<Kind> {
        let (version, kind) = (object["apiVersion"].as_str()?, object["kind"].as_str()?);
        self.kinds.iter().find(|k| k.kind == kind && k.api_version() == version).cloned()
    }

    pub(crate) fn key(kind: &Kind, namespace: Option<&str>, name: &str) -> Key {
        let namespace = namespace.filter(|_| kind.namespaced).unwrap_or_default();
        (kind.group.clone(), kind.plural.clone(), namespace.to_owned(), name.to_owned())
    }

    /// Creates or replaces. UID and creation time stay with the object; a new one gets them unless it has them.
    pub(crate) fn put(&mut self, kind: &Kind, mut object: Value) -> Arc<Value> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let namespace = object["metadata"]["namespace"].as_str().map(str::to_owned);
        let key = Self::key(kind, namespace.as_deref(), &name);
        let before = self.objects.get(&key).cloned();
        self.version += 1;
        object["apiVersion"] = json!(kind.api_version());
        object["kind"] = json!(kind.kind);
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        if object["metadata"]["uid"].is_null() {
            self.uids += 1;
            let new = json!(format!("00000000-0000-4000-8000-{:012}", self.uids));
            object["metadata"]["uid"] =
                before.as_ref().map_or(new, |before| before["metadata"]["uid"].clone());
        }
        // Under the same name another UID is another object: the old one was deleted in between.
        let same = before.as_ref().is_some_and(|b| b["metadata"]["uid"] == object["metadata"]["uid"]);
        if let Some(before) = before.clone().filter(|_| !same) {
            self.log.push(Change {
                version: self.version,
                key: key.clone(),
                before: Some(before),
                after: None,
            });
            self.version += 1;
            object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        }
        let object = Arc::new(object);
        self.objects.insert(key.clone(), Arc::clone(&object));
        let before = before.filter(|_| same);
        self.log.push(Change { version: self.version, key, before, after: Some(Arc::clone(&object)) });
        object
    }

    pub(crate) fn delete(&mut self, key: &Key) -> Option<Arc<Value>> {
        let before = self.objects.remove(key)?;
        self.version += 1;
        let change = Change {
            version: self.version,
            key: key.clone(),
            before: Some(Arc::clone(&before)),
            after: None,
        };
        self.log.push(change);
        Some(before)
    }

    /// Forgets all that happened: who is behind has to begin anew.
    pub(crate) fn compact(&mut self) {
        self.compacted = self.version;
        self.log.clear();
        self.pages.clear();
    }

    pub(crate) fn selected(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        selector: &Selector,
    ) -> Vec<Arc<Value>> {
        let of_kind = self.objects.iter().filter(|((group, plural, of, _), _)| {
            *group == kind.group
                && *plural == kind.plural
                && namespace.is_none_or(|namespace| namespace == of)
        });
        of_kind.map(|(_, object)| object).filter(|object| selector.selects(object)).cloned().collect()
    }
}

/// The kinds that every cluster serves, as far as they are of use here.
pub(crate) fn builtin() -> Vec<Kind> {
    vec![
        Kind::new("v1", "Pod", "pods", true),
        Kind::new("v1", "Node", "nodes", false),
        Kind::new("v1", "Namespace", "namespaces", false),
        Kind::new("v1", "Service", "services", true),
        Kind::new("v1", "Event", "events", true),
        Kind::new("v1", "ConfigMap", "configmaps", true),
        Kind::new("apps/v1", "Deployment", "deployments", true),
        Kind::new("apps/v1", "ReplicaSet", "replicasets", true),
        Kind::new("apps/v1", "StatefulSet", "statefulsets", true),
        Kind::new("apps/v1", "DaemonSet", "daemonsets", true),
        Kind::new("batch/v1", "Job", "jobs", true),
        Kind::new("batch/v1", "CronJob", "cronjobs", true),
        Kind::new("discovery.k8s.io/v1", "EndpointSlice", "endpointslices", true),
        Kind::new("events.k8s.io/v1", "Event", "events", true),
        Kind::new("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", true),
    ]
}

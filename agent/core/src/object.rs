//! Kubernetes objects as trees. Enters: any JSON value; leaves: checked access to the metadata every object
//! has. Parsing never fails as a whole: what cannot be understood is absent. Must not know where an object
//! came from.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::time::Timestamp;

/// Labels or annotations of an object.
pub type Labels = BTreeMap<String, String>;

/// A Kubernetes object: a JSON tree that has a kind and a name.
#[derive(Clone, PartialEq, Debug)]
pub struct Object(Value);

/// What an object's `ownerReferences` entry says. It can be forged by whoever may create the object, and always
/// means the owner in the same namespace (Kubernetes API, `metav1.OwnerReference`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnerRef {
    /// For example `kubeflow.org/v1`.
    pub api_version: String,
    /// For example `PyTorchJob`.
    pub kind: String,
    /// The owner's name.
    pub name: String,
    /// The owner's UID.
    pub uid: String,
    /// Whether this owner is the managing controller.
    pub controller: bool,
}

/// Names an object: what kind, where, what name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ObjectKey {
    /// For example `Pod`.
    pub kind: String,
    /// `None` for cluster-scoped objects.
    pub namespace: Option<String>,
    /// The object's name.
    pub name: String,
}

impl Object {
    /// Takes a tree that has a string `kind` and `metadata.name`; gives anything else back.
    ///
    /// # Errors
    /// The tree itself, when it is not an object of Kubernetes' form.
    pub fn from_value(value: Value) -> Result<Self, Value> {
        let named = value.get("kind").is_some_and(Value::is_string)
            && value.pointer("/metadata/name").is_some_and(Value::is_string);
        if named { Ok(Self(value)) } else { Err(value) }
    }

    /// The whole tree.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.0
    }

    /// The whole tree, given away.
    #[must_use]
    pub fn into_value(self) -> Value {
        self.0
    }

    /// `kind`, for example `Pod`.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.text("/kind").unwrap_or_default()
    }

    /// `apiVersion`, for example `cilium.io/v2`; empty when absent.
    #[must_use]
    pub fn api_version(&self) -> &str {
        self.text("/apiVersion").unwrap_or_default()
    }

    /// The API group: `cilium.io` of `cilium.io/v2`, empty for the core group.
    #[must_use]
    pub fn group(&self) -> &str {
        self.api_version().split_once('/').map_or("", |(group, _)| group)
    }

    /// `metadata.name`.
    #[must_use]
    pub fn name(&self) -> &str {
        self.text("/metadata/name").unwrap_or_default()
    }

    /// `metadata.namespace`; `None` for cluster-scoped objects.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        self.text("/metadata/namespace").filter(|n| !n.is_empty())
    }

    /// `metadata.uid`.
    #[must_use]
    pub fn uid(&self) -> Option<&str> {
        self.text("/metadata/uid").filter(|u| !u.is_empty())
    }

    /// What names this object.
    #[must_use]
    pub fn key(&self) -> ObjectKey {
        ObjectKey {
            kind: self.kind().to_owned(),
            namespace: self.namespace().map(str::to_owned),
            name: self.name().to_owned(),
        }
    }

    /// `metadata.labels`; entries that are not strings are left out.
    #[must_use]
    pub fn labels(&self) -> Labels {
        string_map(self.0.pointer("/metadata/labels"))
    }

    /// `metadata.annotations`; entries that are not strings are left out.
    #[must_use]
    pub fn annotations(&self) -> Labels {
        string_map(self.0.pointer("/metadata/annotations"))
    }

    /// `metadata.creationTimestamp`.
    #[must_use]
    pub fn created(&self) -> Option<Timestamp> {
        self.text("/metadata/creationTimestamp").and_then(Timestamp::parse)
    }

    /// `metadata.ownerReferences`; incomplete entries are left out.
    #[must_use]
    pub fn owners(&self) -> Vec<OwnerRef> {
        let refs = self.0.pointer("/metadata/ownerReferences").and_then(Value::as_array);
        refs.into_iter().flatten().filter_map(owner_ref).collect()
    }

    /// The string at a JSON pointer.
    #[must_use]
    pub fn text(&self, pointer: &str) -> Option<&str> {
        self.0.pointer(pointer).and_then(Value::as_str)
    }

    /// The array at a JSON pointer; empty when there is none.
    pub fn items(&self, pointer: &str) -> impl Iterator<Item = &Value> {
        self.0.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
    }
}

fn owner_ref(value: &Value) -> Option<OwnerRef> {
    let text = |field: &str| value.get(field).and_then(Value::as_str).map(str::to_owned);
    Some(OwnerRef {
        api_version: text("apiVersion").unwrap_or_default(),
        kind: text("kind")?,
        name: text("name")?,
        uid: text("uid").unwrap_or_default(),
        controller: value.get("controller").and_then(Value::as_bool).unwrap_or(false),
    })
}

/// The string entries of a JSON map.
#[must_use]
pub fn string_map(value: Option<&Value>) -> Labels {
    let map = value.and_then(Value::as_object);
    map.into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn metadata_of_any_object() {
        let pod = Object::from_value(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "n",
            "labels": {"k": "v", "odd": 3}, "ownerReferences": [{"kind": "Job", "name": "j", "uid": "u", "controller": true}, {"name": "x"}]}}))
        .unwrap();
        assert_eq!((pod.kind(), pod.group(), pod.name(), pod.namespace()), ("Pod", "", "a", Some("n")));
        assert_eq!(pod.labels(), Labels::from([("k".to_owned(), "v".to_owned())]));
        assert_eq!(pod.owners().len(), 1);
        assert!(Object::from_value(json!({"kind": "Pod"})).is_err());
        assert!(Object::from_value(json!([1])).is_err());
    }
}

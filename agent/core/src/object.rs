//! Kubernetes objects as trees. Enters: any JSON value; leaves: checked access to the metadata every object
//! has. Parsing never fails as a whole: what cannot be understood is absent. Must not know where an object
//! came from.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use serde_json::Value;

use crate::time::Timestamp;

/// Labels or annotations of an object.
pub type Labels = BTreeMap<String, String>;

/// A Kubernetes object: a JSON tree that has a kind and a name. Cheap to clone: clones share the tree.
#[derive(Clone)]
pub struct Object(Arc<Form>);

/// A tree takes some ten times the space of its text. An object that is rarely looked into can be kept as text, with what
/// names it beside.
struct Form {
    packed: Option<Packed>,
    /// The tree; of a packed object only once somebody looked into it.
    tree: OnceLock<Value>,
}

#[derive(Clone)]
struct Packed {
    text: Arc<str>,
    /// Kind, API version, namespace, name, UID, one after the other, and where each of them ends.
    head: Arc<str>,
    ends: [u16; 5],
}

impl Packed {
    fn head(&self, field: usize) -> &str {
        let end = |field: usize| self.ends.get(field).map_or(0, |end| usize::from(*end));
        let from = field.checked_sub(1).map_or(0, end);
        self.head.get(from..end(field)).unwrap_or_default()
    }
}

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        if Arc::ptr_eq(&self.0, &other.0) {
            return true;
        }
        match (&self.0.packed, &other.0.packed) {
            (Some(a), Some(b)) => a.text == b.text,
            // The text is always written the same way, and needs less space than the tree.
            (Some(packed), None) => *packed.text == *other.value().to_string(),
            (None, Some(packed)) => *packed.text == *self.value().to_string(),
            (None, None) => self.value() == other.value(),
        }
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Object").field(self.value()).finish()
    }
}

/// What an object's `ownerReferences` entry says. It can be forged by whoever may create the object, and always
/// means the owner in the same namespace (Kubernetes API, `metav1.OwnerReference`).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
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
        if named { Ok(Self(Arc::new(Form { packed: None, tree: value.into() }))) } else { Err(value) }
    }

    /// The same object, kept as text: a tenth of the space. What names it is at hand; whoever looks into anything else
    /// has the tree built again, and kept until the object is packed anew or dropped.
    #[must_use]
    pub fn packed(&self) -> Self {
        if let Some(packed) = &self.0.packed {
            return match self.0.tree.get() {
                None => self.clone(),
                Some(_) => Self(Arc::new(Form { packed: Some(packed.clone()), tree: OnceLock::new() })),
            };
        }
        let head = [self.kind(), self.api_version(), self.namespace().unwrap_or_default(), self.name()];
        let mut text = String::new();
        let mut ends = [0; 5];
        for (part, end) in head.into_iter().chain([self.uid().unwrap_or_default()]).zip(&mut ends) {
            text.push_str(part);
            let Ok(place) = u16::try_from(text.len()) else { return self.clone() };
            *end = place;
        }
        let packed = Packed { text: self.value().to_string().into(), head: text.into(), ends };
        Self(Arc::new(Form { packed: Some(packed), tree: OnceLock::new() }))
    }

    /// The same object, with a tree of its own where it is kept as text and has none: what is looked into is let go with
    /// it.
    #[must_use]
    pub fn apart(&self) -> Self {
        match &self.0.packed {
            Some(packed) if self.0.tree.get().is_none() => {
                Self(Arc::new(Form { packed: Some(packed.clone()), tree: OnceLock::new() }))
            }
            _ => self.clone(),
        }
    }

    /// Whether it is kept as text.
    #[must_use]
    pub fn is_packed(&self) -> bool {
        self.0.packed.is_some()
    }

    /// Whether it is packed, but somebody looked into it.
    #[must_use]
    pub fn is_unpacked(&self) -> bool {
        self.0.packed.is_some() && self.0.tree.get().is_some()
    }

    /// Whether both are the very same object, or a clone of it.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let texts = |a: &Packed, b: &Packed| Arc::ptr_eq(&a.text, &b.text);
        let packed = self.0.packed.as_ref().zip(other.0.packed.as_ref());
        Arc::ptr_eq(&self.0, &other.0) || packed.is_some_and(|(a, b)| texts(a, b))
    }

    /// The whole tree.
    #[must_use]
    pub fn value(&self) -> &Value {
        self.0.tree.get_or_init(|| {
            let text = self.0.packed.as_ref().map_or("", |packed| packed.text.as_ref());
            serde_json::from_str(text).unwrap_or_default()
        })
    }

    /// The whole tree, given away.
    #[must_use]
    pub fn into_value(self) -> Value {
        let _ = self.value();
        match Arc::try_unwrap(self.0) {
            Ok(form) => form.tree.into_inner().unwrap_or_default(),
            Err(shared) => shared.tree.get().cloned().unwrap_or_default(),
        }
    }

    fn head(&self, field: usize, read: impl Fn(&Value) -> Option<&Value>) -> &str {
        match &self.0.packed {
            Some(packed) => packed.head(field),
            None => read(self.value()).and_then(Value::as_str).unwrap_or_default(),
        }
    }

    /// `kind`, for example `Pod`.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.head(0, |tree| tree.get("kind"))
    }

    /// `apiVersion`, for example `cilium.io/v2`; empty when absent.
    #[must_use]
    pub fn api_version(&self) -> &str {
        self.head(1, |tree| tree.get("apiVersion"))
    }

    /// The API group: `cilium.io` of `cilium.io/v2`, empty for the core group.
    #[must_use]
    pub fn group(&self) -> &str {
        self.api_version().split_once('/').map_or("", |(group, _)| group)
    }

    /// `metadata.name`.
    #[must_use]
    pub fn name(&self) -> &str {
        self.head(3, |tree| tree.get("metadata")?.get("name"))
    }

    /// `metadata.namespace`; `None` for cluster-scoped objects.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        Some(self.head(2, |tree| tree.get("metadata")?.get("namespace"))).filter(|n| !n.is_empty())
    }

    /// `metadata.uid`.
    #[must_use]
    pub fn uid(&self) -> Option<&str> {
        Some(self.head(4, |tree| tree.get("metadata")?.get("uid"))).filter(|u| !u.is_empty())
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
        string_map(self.value().pointer("/metadata/labels"))
    }

    /// `metadata.annotations`; entries that are not strings are left out.
    #[must_use]
    pub fn annotations(&self) -> Labels {
        string_map(self.value().pointer("/metadata/annotations"))
    }

    /// `metadata.creationTimestamp`.
    #[must_use]
    pub fn created(&self) -> Option<Timestamp> {
        self.text("/metadata/creationTimestamp").and_then(Timestamp::parse)
    }

    /// `metadata.ownerReferences`; incomplete entries are left out.
    #[must_use]
    pub fn owners(&self) -> Vec<OwnerRef> {
        let refs = self.value().pointer("/metadata/ownerReferences").and_then(Value::as_array);
        refs.into_iter().flatten().filter_map(owner_ref).collect()
    }

    /// The string at a JSON pointer.
    #[must_use]
    pub fn text(&self, pointer: &str) -> Option<&str> {
        self.value().pointer(pointer).and_then(Value::as_str)
    }

    /// The array at a JSON pointer; empty when there is none.
    pub fn items(&self, pointer: &str) -> impl Iterator<Item = &Value> {
        self.value().pointer(pointer).and_then(Value::as_array).into_iter().flatten()
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
    fn a_packed_object_is_the_same() {
        let tree = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"x": ["\u{e9}\"", 1.5]},
            "metadata": {"name": "a", "namespace": "n", "uid": "u"}});
        let plain = Object::from_value(tree.clone()).unwrap();
        let packed = plain.packed();
        let head = |o: &Object| {
            (
                o.key(),
                o.api_version().to_owned(),
                o.uid().map(str::to_owned),
                o.namespace().map(str::to_owned),
            )
        };
        assert_eq!(head(&plain), head(&packed));
        assert!(!packed.is_unpacked() && packed.is_same(&packed.clone()) && !packed.is_same(&plain));
        assert_eq!(packed.value(), &tree);
        assert!(packed.is_unpacked());
        let again = packed.packed();
        assert!(!again.is_unpacked() && again.is_same(&packed) && again == plain);
        assert_eq!(packed.clone().into_value(), packed.into_value());
        let node = Object::from_value(json!({"kind": "Node", "metadata": {"name": "x"}})).unwrap().packed();
        assert_eq!((node.kind(), node.namespace(), node.uid(), node.api_version()), ("Node", None, None, ""));
    }

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

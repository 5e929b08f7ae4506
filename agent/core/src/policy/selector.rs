//! Label selectors, compiled. Enters: `matchLabels` and `matchExpressions` of any of the policy APIs; leaves:
//! requirements on numbered attributes with numbered values, so that matching compares integers and pods that no
//! policy can tell apart have the same numbers. Must not know where an end's attribute values come from.

use std::collections::HashMap;

use serde_json::Value;

use super::field::{Malformed, Read, items, malformed, object, objects, text, texts};

/// The label Cilium gives every pod (Cilium documentation, label sources and Kubernetes policy).
const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
/// The prefix under which Cilium gives a pod the labels of its namespace.
pub(super) const NAMESPACE_LABELS: &str = "io.cilium.k8s.namespace.labels.";

/// Whether something matches, where facts may be missing. Ordered, so that AND is `min` and OR is `max`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Truth {
    No,
    Maybe,
    Yes,
}

impl From<bool> for Truth {
    fn from(known: bool) -> Self {
        if known { Self::Yes } else { Self::No }
    }
}

/// Where a Cilium label comes from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Source {
    /// Pods' and namespaces' labels.
    K8s,
    /// Any source.
    Any,
    /// Cilium's own names for what is no pod.
    Reserved,
    /// Sources no fact here covers: `container:`, `cidr:`, `node:` ...
    Foreign,
}

/// What a requirement looks at.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Attribute {
    /// The name of the pod's namespace; absent for what is no pod.
    Namespace,
    /// A label of the Cilium identity.
    Security(Source, String),
    /// A pod's own label, as NetworkPolicy selects it.
    PodLabel(String),
    /// A label of the pod's namespace.
    NamespaceLabel(String),
    /// A label of the node.
    NodeLabel(String),
}

impl Attribute {
    /// A key of a Cilium selector. Reading the JSON, Cilium splits the source off at the first `:`, knows `$x` and
    /// `reserved.x` as short forms of `reserved:x`, and takes any other key for one of source `any` (cilium/cilium
    /// `pkg/policy/api`, `EndpointSelector.UnmarshalJSON`; `pkg/labels`, `GetExtendedKeyFrom`, `ParseSource`). Its
    /// internal form puts a `.` between source and key, but nobody can write that: `k8s.x` and `any.x` are labels of
    /// these names.
    pub(super) fn cilium(key: &str) -> Self {
        let (source, key) = match (key.strip_prefix('$'), key.split_once(':'), key.strip_prefix("reserved."))
        {
            (Some(name), _, _) | (None, None, Some(name)) => (Source::Reserved, name),
            (None, Some(("k8s", key)), _) => (Source::K8s, key),
            (None, Some(("any" | "", key)), _) => (Source::Any, key),
            (None, None, None) => (Source::Any, key),
            (None, Some(("reserved", key)), _) => (Source::Reserved, key),
            (None, Some((_, key)), _) => (Source::Foreign, key),
        };
        match source {
            Source::K8s | Source::Any if key == POD_NAMESPACE => Self::Namespace,
            _ => Self::Security(source, key.to_owned()),
        }
    }

    /// Whether it is a label of the namespace in a Cilium selector.
    pub(super) fn is_namespace_label(&self) -> bool {
        matches!(self, Self::Security(Source::K8s | Source::Any, key) if key.starts_with(NAMESPACE_LABELS))
    }

    /// Whether it is one of Cilium's `reserved:` labels.
    pub(super) fn is_reserved(&self) -> bool {
        matches!(self, Self::Security(Source::Reserved, _))
    }
}

/// What an attribute has to be. `NotIn` and `Absent` hold when the attribute is absent (Kubernetes API, label
/// selectors).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Test<T> {
    In(Vec<T>),
    NotIn(Vec<T>),
    Exists,
    Absent,
}

/// A requirement as written, its key not interpreted yet.
pub(super) type Requirement<K> = (K, Test<String>);

/// Reads a label selector object.
pub(super) fn read_selector(selector: &Value) -> Read<Vec<Requirement<String>>> {
    let mut all = Vec::new();
    if let Some(labels) = object(selector, "matchLabels")? {
        for (key, value) in labels.as_object().into_iter().flatten() {
            let Some(value) = value.as_str() else {
                return malformed(format!("matchLabels {key} is not a string"));
            };
            all.push((key.clone(), Test::In(vec![value.to_owned()])));
        }
    }
    for expression in objects(selector, "matchExpressions")? {
        let key = text(expression, "key")?.filter(|key| !key.is_empty());
        let Some(key) = key else { return malformed("matchExpressions has an entry without a key") };
        let values = texts(items(expression, "values")?, "values")?;
        let values: Vec<String> = values.into_iter().map(str::to_owned).collect();
        let test = match (text(expression, "operator")?.unwrap_or_default(), values.is_empty()) {
            ("In", false) => Test::In(values),
            ("NotIn", false) => Test::NotIn(values),
            ("Exists", true) => Test::Exists,
            ("DoesNotExist", true) => Test::Absent,
            (operator, _) => return malformed(format!("operator {operator:?} with {} values", values.len())),
        };
        all.push((key.to_owned(), test));
    }
    Ok(all)
}

/// Reads the selector in a field that must be there.
pub(super) fn read_required(value: &Value, name: &str) -> Read<Vec<Requirement<String>>> {
    object(value, name)?.ok_or_else(|| Malformed(format!("{name} is missing"))).and_then(read_selector)
}

/// The numbered value of an attribute at one end.
pub(super) type Class = usize;
/// The attribute is not there.
pub(super) const ABSENT: Class = 0;
/// Whether it is there, or its value, is not known.
pub(super) const UNKNOWN: Class = 1;
/// It has a value that no selector names.
const OTHER: Class = 2;

/// All its requirements must hold; none at all match everything.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Selector(Vec<(usize, Test<Class>)>);

impl Selector {
    /// Whether an end with these attribute values matches.
    pub(super) fn matches(&self, classes: &[Class]) -> Truth {
        let mut truth = Truth::Yes;
        for (attribute, test) in &self.0 {
            let class = classes.get(*attribute).copied().unwrap_or(UNKNOWN);
            truth = truth.min(test.matches(class));
            if truth == Truth::No {
                break;
            }
        }
        truth
    }

    /// The attribute and values that ends must have to match, for an index: the first with the fewest values.
    /// Compilers put the namespace, which tells least, last.
    pub(super) fn discriminator(&self) -> Option<(usize, &[Class])> {
        let values = self.0.iter().filter_map(|(attribute, test)| match test {
            Test::In(values) => Some((*attribute, values.as_slice())),
            _ => None,
        });
        values.min_by_key(|(_, values)| values.len())
    }
}

impl Test<Class> {
    fn matches(&self, class: Class) -> Truth {
        if class == UNKNOWN {
            return Truth::Maybe;
        }
        Truth::from(match self {
            Self::In(values) => values.contains(&class),
            Self::NotIn(values) => !values.contains(&class),
            Self::Exists => class != ABSENT,
            Self::Absent => class == ABSENT,
        })
    }
}

/// Numbers attributes and the values that selectors name.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    numbers: HashMap<Attribute, usize>,
    attributes: Vec<(Attribute, HashMap<String, Class>)>,
}

impl Table {
    /// Compiles requirements.
    pub(super) fn selector(
        &mut self,
        requirements: impl IntoIterator<Item = Requirement<Attribute>>,
    ) -> Selector {
        Selector(
            requirements.into_iter().map(|(attribute, test)| self.requirement(attribute, test)).collect(),
        )
    }

    fn requirement(&mut self, attribute: Attribute, test: Test<String>) -> (usize, Test<Class>) {
        let number = *self.numbers.entry(attribute).or_insert_with_key(|attribute| {
            self.attributes.push((attribute.clone(), HashMap::new()));
            self.attributes.len() - 1
        });
        let mut classes = |names: Vec<String>| {
            let values = self.attributes.get_mut(number).map(|(_, values)| values);
            values.map_or_else(Vec::new, |values| {
                names.into_iter().map(|name| class_of(values, name)).collect()
            })
        };
        let test = match test {
            Test::In(names) => Test::In(classes(names)),
            Test::NotIn(names) => Test::NotIn(classes(names)),
            Test::Exists => Test::Exists,
            Test::Absent => Test::Absent,
        };
        (number, test)
    }

    /// The value of every attribute for one end.
    pub(super) fn classes<'a>(&self, lookup: impl Fn(&Attribute) -> Lookup<'a>) -> Vec<Class> {
        let class = |(attribute, values): &(Attribute, HashMap<String, Class>)| match lookup(attribute) {
            Lookup::Absent => ABSENT,
            Lookup::Unknown => UNKNOWN,
            Lookup::Value(value) => values.get(value).copied().unwrap_or(OTHER),
        };
        self.attributes.iter().map(class).collect()
    }
}

fn class_of(values: &mut HashMap<String, Class>, name: String) -> Class {
    let next = OTHER + 1 + values.len();
    *values.entry(name).or_insert(next)
}

/// An attribute's value at one end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lookup<'a> {
    Absent,
    Unknown,
    Value(&'a str),
}

impl<'a> From<Option<&'a String>> for Lookup<'a> {
    fn from(value: Option<&'a String>) -> Self {
        value.map_or(Self::Absent, |value| Self::Value(value))
    }
}

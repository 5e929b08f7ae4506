//! Field and label selectors, in the forms clients write. Enters: a selector's text; leaves: whether it selects an
//! object, or the text of the server's complaint.
//!
//! Imitates `k8s.io/apimachinery` `labels.Parse` and `fields.ParseSelector`. Pods can be selected by the fields that
//! the real server knows for them (`ToSelectableFields` of the pod registry); every other kind by name and namespace
//! only. Anything else is a 400, as there.

use serde_json::Value;

/// A requirement on a label.
#[derive(Clone, Debug)]
enum Requirement {
    In(String, Vec<String>),
    /// Also selects what lacks the label, as the real one does.
    NotIn(String, Vec<String>),
    Exists(String),
    Lacks(String),
}

/// A requirement on a field.
#[derive(Clone, Debug)]
struct Field {
    path: String,
    value: String,
    equal: bool,
}

/// What a request selects.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<Field>,
}

const POD_FIELDS: [&str; 6] = [
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "status.phase",
    "status.podIP",
];

impl Selector {
    /// Reads both selectors of a request for this resource.
    pub(crate) fn parse(resource: &str, labels: &str, fields: &str) -> Result<Self, String> {
        let mut selector = Self::default();
        for part in split(labels) {
            selector.labels.push(requirement(part)?);
        }
        for part in fields.split(',').filter(|part| !part.is_empty()) {
            let (path, value, equal) = if let Some((path, value)) = part.split_once("!=") {
                (path, value, false)
            } else if let Some((path, value)) = part.split_once("==") {
                (path, value, true)
            } else if let Some((path, value)) = part.split_once('=') {
                (path, value, true)
            } else {
                return Err(format!("invalid selector: '{fields}'; can't understand '{part}'"));
            };
            let general = ["metadata.name", "metadata.namespace"].contains(&path);
            let of_pods = resource == "pods" && POD_FIELDS.contains(&path);
            if !general && !of_pods {
                return Err(format!("field label not supported: {path}"));
            }
            selector.fields.push(Field { path: path.to_owned(), value: value.to_owned(), equal });
        }
        Ok(selector)
    }

    /// Whether anything is asked for.
    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether it selects this object.
    pub(crate) fn selects(&self, object: &Value) -> bool {
        let label = |key: &str| object.pointer("/metadata/labels")?.get(key)?.as_str();
        self.labels.iter().all(|requirement| match requirement {
            Requirement::In(key, values) => label(key).is_some_and(|found| values.iter().any(|v| v == found)),
            Requirement::NotIn(key, values) => {
                label(key).is_none_or(|found| values.iter().all(|v| v != found))
            }
            Requirement::Exists(key) => label(key).is_some(),
            Requirement::Lacks(key) => label(key).is_none(),
        }) && self.fields.iter().all(|field| {
            let pointer = format!("/{}", field.path.replace('.', "/"));
            let found = object.pointer(&pointer).and_then(Value::as_str).unwrap_or_default();
            (found == field.value) == field.equal
        })
    }
}

/// At commas outside of parentheses.
fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0_i32, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts.retain(|part| !part.is_empty());
    parts
}

fn requirement(part: &str) -> Result<Requirement, String> {
    let wrong = || format!("unable to parse requirement: {part}");
    let set = |rest: &str| -> Result<Vec<String>, String> {
        let inner =
            rest.trim().strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).ok_or_else(wrong)?;
        Ok(inner.split(',').map(|value| value.trim().to_owned()).collect())
    };
    let own = |text: &str| text.trim().to_owned();
    if let Some(key) = part.strip_prefix('!') {
        return Ok(Requirement::Lacks(own(key)));
    }
    if let Some((key, rest)) = part.split_once(" notin ") {
        return Ok(Requirement::NotIn(own(key), set(rest)?));
    }
    if let Some((key, rest)) = part.split_once(" in ") {
        return Ok(Requirement::In(own(key), set(rest)?));
    }
    if let Some((key, value)) = part.split_once("!=") {
        return Ok(Requirement::NotIn(own(key), vec![own(value)]));
    }
    if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return Ok(Requirement::In(own(key), vec![own(value)]));
    }
    if part.contains(' ') { Err(wrong()) } else { Ok(Requirement::Exists(own(part))) }
}

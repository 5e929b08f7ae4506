//! Label selectors (Kubernetes API, `LabelSelector`). Enters: a selector and labels; leaves: whether it matches. Must
//! not know what is selected.

use serde_json::Value;

use crate::object::{Labels, string_map};

/// Whether a label selector matches; an empty one matches everything, one that cannot be read nothing.
#[must_use]
pub fn selects(selector: &Value, labels: &Labels) -> bool {
    let Some(fields) = selector.as_object() else { return false };
    let equal = |wanted: &Value| {
        let all = wanted.as_object().map_or(0, serde_json::Map::len);
        let wanted = string_map(Some(wanted));
        wanted.len() == all && wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
    };
    let expressions = fields.get("matchExpressions").and_then(Value::as_array);
    fields.get("matchLabels").is_none_or(equal)
        && expressions.into_iter().flatten().all(|requirement| holds(requirement, labels))
}

fn holds(requirement: &Value, labels: &Labels) -> bool {
    let Some(key) = requirement.get("key").and_then(Value::as_str) else { return false };
    let value = labels.get(key);
    let listed = |value: &String| {
        let values = requirement.get("values").and_then(Value::as_array);
        values.into_iter().flatten().any(|v| v.as_str() == Some(value))
    };
    match requirement.get("operator").and_then(Value::as_str) {
        Some("In") => value.is_some_and(listed),
        Some("NotIn") => !value.is_some_and(listed),
        Some("Exists") => value.is_some(),
        Some("DoesNotExist") => value.is_none(),
        _ => false,
    }
}

/// The label selector of a term of pod affinity or of a spread constraint, with the values of `matchLabelKeys` taken
/// from the pod that has the term. A term without selector matches nothing.
#[must_use]
pub fn term_selects(term: &Value, own: &Labels, labels: &Labels) -> bool {
    let keys = term.get("matchLabelKeys").and_then(Value::as_array);
    let same = |key: &Value| {
        let Some(key) = key.as_str() else { return false };
        own.get(key).is_none_or(|value| labels.get(key) == Some(value))
    };
    keys.into_iter().flatten().all(same) && term.get("labelSelector").is_some_and(|s| selects(s, labels))
}

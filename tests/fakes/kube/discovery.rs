//! What is served: `/api`, `/apis` and the kinds of each version, in the unaggregated form that every server speaks.

use serde_json::{Value, json};

use super::store::Kind;

const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// The answer to a discovery path.
pub(crate) fn discover(kinds: &[Kind], parts: &[&str]) -> Option<Value> {
    match parts {
        ["version"] => Some(json!({"major": "1", "minor": "33", "gitVersion": "v1.33.0"})),
        ["api"] => Some(json!({"kind": "APIVersions", "versions": ["v1"]})),
        ["apis"] => {
            let mut groups: Vec<&str> =
                kinds.iter().map(|kind| &*kind.group).filter(|g| !g.is_empty()).collect();
            groups.sort_unstable();
            groups.dedup();
            let groups: Vec<Value> = groups.into_iter().map(|group| of_group(kinds, group)).collect();
            Some(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
        }
        ["apis", group] if kinds.iter().any(|kind| kind.group == *group) => {
            let mut found = of_group(kinds, group);
            found["kind"] = json!("APIGroup");
            found["apiVersion"] = json!("v1");
            Some(found)
        }
        ["api", version] => resources(kinds, "", version),
        ["apis", group, version] => resources(kinds, group, version),
        _ => None,
    }
}

fn of_group(kinds: &[Kind], group: &str) -> Value {
    let mut versions: Vec<&str> =
        kinds.iter().filter(|kind| kind.group == group).map(|kind| &*kind.version).collect();
    versions.dedup();
    let versions: Vec<Value> = versions
        .into_iter()
        .map(|version| json!({"groupVersion": format!("{group}/{version}"), "version": version}))
        .collect();
    json!({"name": group, "versions": versions, "preferredVersion": versions.first()})
}

fn resources(kinds: &[Kind], group: &str, version: &str) -> Option<Value> {
    let mut resources = Vec::new();
    for kind in kinds.iter().filter(|kind| kind.group == group && kind.version == version) {
        let resource = |name: String, verbs: &[&str]| {
            json!({"name": name, "singularName": kind.kind.to_lowercase(), "namespaced": kind.namespaced,
                "kind": kind.kind, "verbs": verbs})
        };
        resources.push(resource(kind.plural.clone(), &VERBS));
        resources.push(resource(format!("{}/status", kind.plural), &["get", "patch", "update"]));
    }
    let version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let list = json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources});
    (!resources.is_empty()).then_some(list)
}

//! Which kinds the server serves, and under which paths. Enters: the API's own lists of groups and kinds; leaves: how to
//! ask for a kind. Must not know why it is asked for.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::api::{ApiError, Served};

/// The kinds of policies that are evaluated, each in the version whose form is known.
pub(super) const POLICIES: [(&str, &str); 5] = [
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("cilium.io/v2", "CiliumNetworkPolicy"),
    ("cilium.io/v2", "CiliumClusterwideNetworkPolicy"),
    ("policy.networking.k8s.io/v1alpha1", "AdminNetworkPolicy"),
    ("policy.networking.k8s.io/v1alpha1", "BaselineAdminNetworkPolicy"),
];

/// The versions of each API group, the preferred one first, as `group/version`.
pub(super) type Groups = BTreeMap<String, Vec<String>>;

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct GroupList {
    groups: Vec<Group>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Group {
    name: String,
    versions: Vec<GroupVersion>,
    preferred_version: GroupVersion,
}

#[derive(Deserialize, Default, Clone)]
#[serde(default, rename_all = "camelCase")]
struct GroupVersion {
    group_version: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ResourceList {
    resources: Vec<Resource>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Resource {
    name: String,
    kind: String,
    namespaced: bool,
    verbs: Vec<String>,
}

/// Reads `/apis`.
pub(super) fn groups(body: &[u8]) -> Result<Groups, ApiError> {
    let list: GroupList =
        serde_json::from_slice(body).map_err(|why| ApiError::Malformed(format!("the API groups: {why}")))?;
    let groups = list.groups.into_iter().map(|group| {
        let versions = group.versions.into_iter().map(|version| version.group_version);
        let mut versions: Vec<String> = versions.collect();
        versions.sort_by_key(|version| *version != group.preferred_version.group_version);
        (group.name, versions)
    });
    Ok(groups.collect())
}

/// A kind, and whether it can be watched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Kind {
    pub(super) served: Served,
    pub(super) watchable: bool,
}

/// Reads `/apis/GROUP/VERSION` or `/api/v1`. Names with a slash are subresources.
pub(super) fn kinds(body: &[u8], api_version: &str) -> Result<Vec<Kind>, ApiError> {
    let list: ResourceList =
        serde_json::from_slice(body).map_err(|why| ApiError::Malformed(format!("the API's kinds: {why}")))?;
    let whole = list.resources.into_iter().filter(|resource| !resource.name.contains('/'));
    let kinds = whole.map(|resource| Kind {
        served: Served::new(api_version, &resource.kind, &resource.name, resource.namespaced),
        watchable: resource.verbs.iter().any(|verb| verb == "watch"),
    });
    Ok(kinds.collect())
}

/// Where the kinds of a version are listed.
pub(super) fn path(api_version: &str) -> String {
    let root = if api_version.contains('/') { "/apis" } else { "/api" };
    let parts = api_version.split('/').map(super::api::encoded).collect::<Vec<_>>();
    format!("{root}/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_kinds_are_read() {
        let body = br#"{"kind": "APIGroupList", "groups": [{"name": "g.io", "versions": [{"groupVersion": "g.io/v2", "version": "v2"},
            {"groupVersion": "g.io/v1", "version": "v1"}], "preferredVersion": {"groupVersion": "g.io/v1", "version": "v1"}}]}"#;
        assert_eq!(groups(body).unwrap()["g.io"], ["g.io/v1", "g.io/v2"]);
        let body = br#"{"resources": [{"name": "things", "kind": "Thing", "namespaced": true, "verbs": ["get", "watch"]},
            {"name": "things/status", "kind": "Thing", "namespaced": true, "verbs": ["get"]}, {"name": "more", "kind": "More", "verbs": ["get"]}]}"#;
        let found = kinds(body, "g.io/v1").unwrap();
        assert_eq!(found.len(), 2);
        assert!(found[0].watchable && !found[1].watchable && !found[1].served.namespaced);
        assert_eq!(found[0].served.path(Some("n"), Some("a/b")), "/apis/g.io/v1/namespaces/n/things/a%2Fb");
        assert_eq!(path("v1"), "/api/v1");
        assert!(groups(b"<html>").is_err());
    }
}

//! Pod labels that claim a zone which the placement does not give. Enters: a gang, where its templates may land, and the
//! policies' text; leaves: findings. Must not know how policies decide.

use std::collections::BTreeMap;

use serde_json::Value;

use super::gangs::Gang;
use super::placement::{Places, is_zone_key};
use super::report::{CheckFinding, CheckedPolicy, Rule, Severity};
use super::wording;
use super::world::World;

/// Policies hold selectors at most this deep.
const DEEPEST: usize = 32;

const POLICIES: [&str; 5] = [
    "CiliumNetworkPolicy",
    "CiliumClusterwideNetworkPolicy",
    "NetworkPolicy",
    "AdminNetworkPolicy",
    "BaselineAdminNetworkPolicy",
];

pub(super) fn findings(
    world: &World,
    gang: &Gang<'_>,
    places: &BTreeMap<usize, Places>,
) -> Vec<CheckFinding> {
    let mut findings = Vec::new();
    for (at, (_, role)) in gang.sources() {
        let (Some(source), Some(places)) = (gang.source(at), places.get(&at)) else { continue };
        for (key, value) in source.labels.iter().filter(|(key, value)| claims_zone(world, key, value)) {
            let Some((severity, why)) = judge(places, value) else { continue };
            let policies = keyed_on(world, gang, key);
            // Without nodes it only matters where a policy trusts it.
            let severity =
                if severity == Severity::Note && !policies.is_empty() { Severity::Warning } else { severity };
            let called = wording::pods(world, source, role);
            let summary = format!("the label {key}={value} of the {called} claims a zone that {why}");
            let object = world.object_at(source.object);
            let mut finding =
                CheckFinding::new(Rule::ZoneLabel, severity, Some(gang.name.clone()), object, summary);
            if !policies.is_empty() {
                let names: Vec<String> = policies.iter().map(|policy| policy.object.name.clone()).collect();
                finding.evidence.push(format!("policies that select by {key}: {}", wording::listed(&names)));
            }
            finding.policies = policies;
            finding.advice.push(format!(
                "Pin the pods to {value} (nodeSelector topology.kubernetes.io/zone: {value}), or let the label follow the \
                 placement: label and placement have to change together."
            ));
            findings.push(finding);
        }
    }
    findings
}

/// Well-known keys always mean the zone; others when their value is the name of one.
pub(super) fn claims_zone(world: &World, key: &str, value: &str) -> bool {
    let zone_like = key == "zone" || key.ends_with("/zone");
    let named = world.nodes.iter().filter_map(|node| node.zone.as_ref()).any(|zone| zone.name == value);
    is_zone_key(key) || (zone_like && (named || world.nodes.is_empty()))
}

/// What is wrong with the claim, if anything.
fn judge(places: &Places, claimed: &str) -> Option<(Severity, String)> {
    let Some(names) = places.zone_names() else {
        return Some((
            Severity::Note,
            "nothing in the manifest gives; where its pods land is not known".to_owned(),
        ));
    };
    if names.is_empty() || names == [claimed] {
        return None;
    }
    let why = if names.iter().any(|name| name == claimed) {
        format!("is not guaranteed: they may land in {}", names.join(" or "))
    } else {
        format!("they cannot land in: only in {}", names.join(" or "))
    };
    Some((Severity::Warning, why))
}

/// The policies around the job whose selectors name this label.
pub(super) fn keyed_on(world: &World, gang: &Gang<'_>, key: &str) -> Vec<CheckedPolicy> {
    let near = |namespace: Option<&str>| namespace.is_none_or(|namespace| namespace == gang.name.namespace);
    let mut policies = Vec::new();
    for (at, object) in world.objects.iter().enumerate() {
        if POLICIES.contains(&object.kind())
            && near(object.namespace())
            && names(object.value(), key, DEEPEST)
        {
            policies.push(CheckedPolicy {
                object: world.object_at(at),
                direction: None,
                effect: "selects-label",
            });
        }
    }
    policies.sort();
    policies
}

fn names(value: &Value, key: &str, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    // Cilium's selectors may say where a label comes from.
    let is_it =
        |written: &str| ["", "k8s:", "any:"].iter().any(|source| written.strip_prefix(source) == Some(key));
    match value {
        Value::Array(items) => items.iter().any(|item| names(item, key, depth)),
        Value::Object(fields) => fields.iter().any(|(field, value)| match (field.as_str(), value) {
            ("matchLabels", Value::Object(labels)) => labels.keys().any(|label| is_it(label)),
            ("key", Value::String(written)) => is_it(written),
            _ => names(value, key, depth),
        }),
        _ => false,
    }
}

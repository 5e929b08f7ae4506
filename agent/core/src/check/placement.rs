//! Where the pods of a template may land. Enters: a gang and the nodes; leaves: [`Places`] for each template. Must not
//! know policies, nor how templates hang together.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::gangs::Gang;
use super::world::World;
use crate::facts::{Node, ZONE_LABEL, Zone};
use crate::workload::{Fit, fit};

/// Labels that name a node's zone.
const ZONE_KEYS: [&str; 3] = [ZONE_LABEL, "failure-domain.beta.kubernetes.io/zone", "topology.gke.io/zone"];

/// Where a template's pods may land.
pub(super) struct Places {
    /// `None` when it cannot be known. Zones that only the manifest tells have no region.
    pub(super) zones: Option<BTreeSet<Zone>>,
    /// How many nodes would take them; `None` without nodes.
    pub(super) nodes: Option<usize>,
    /// For each zone that takes none of them, why its nodes do not.
    pub(super) kept_off: BTreeMap<String, String>,
    /// Whether the pods claim devices that nodes do not tell of.
    pub(super) claims_devices: bool,
}

impl Places {
    pub(super) fn zone_names(&self) -> Option<Vec<String>> {
        let names: BTreeSet<&String> = self.zones.as_ref()?.iter().map(|zone| &zone.name).collect();
        Some(names.into_iter().cloned().collect())
    }

    /// The only zone they may land in.
    pub(super) fn only(&self) -> Option<&Zone> {
        let zones = self.zones.as_ref()?;
        zones.first().filter(|_| zones.len() == 1)
    }
}

/// The places of each template of a gang.
pub(super) fn places(world: &World, gang: &Gang<'_>) -> BTreeMap<usize, Places> {
    let sources = gang.sources().into_keys().filter_map(|at| Some((at, gang.source(at)?)));
    sources.map(|(at, source)| (at, of(&source.spec, &world.nodes))).collect()
}

fn of(spec: &Value, nodes: &[Node]) -> Places {
    let claims = spec.get("resourceClaims").and_then(Value::as_array);
    let claims_devices = claims.is_some_and(|claims| !claims.is_empty());
    if nodes.is_empty() {
        let named = |name: String| Zone { name, region: None, id: None };
        let zones = pinned(spec).map(|names| names.into_iter().map(named).collect());
        return Places { zones, nodes: None, kept_off: BTreeMap::new(), claims_devices };
    }
    let (mut zones, mut kept_off): (BTreeSet<Zone>, BTreeMap<String, String>) = Default::default();
    let (mut taken, mut unzoned) = (0, false);
    for node in nodes {
        match fit(spec, node) {
            Fit::Fits => {
                taken += 1;
                unzoned |= node.zone.is_none();
                zones.extend(node.zone.clone());
            }
            other => {
                let zone = node.zone.as_ref().map_or("no zone", |zone| &zone.name);
                kept_off.entry(zone.to_owned()).or_insert_with(|| why(&other));
            }
        }
    }
    kept_off.retain(|name, _| !zones.iter().any(|zone| zone.name == *name));
    Places { zones: (!unzoned).then_some(zones), nodes: Some(taken), kept_off, claims_devices }
}

fn why(fit: &Fit) -> String {
    match fit {
        Fit::Fits => String::new(),
        Fit::OtherNode => "the pods name another node".to_owned(),
        Fit::Excluded => "nodeSelector or required node affinity exclude its nodes".to_owned(),
        Fit::Tainted(taint) => {
            let value = if taint.value.is_empty() { String::new() } else { format!("={}", taint.value) };
            format!("the taint {}{value}:{} is not tolerated", taint.key, taint.effect)
        }
        Fit::Cordoned => "its nodes are cordoned".to_owned(),
        Fit::Lacks(resource) => format!("its nodes have too few {resource}"),
    }
}

/// The zones that a spec itself names; `None` when it names none.
fn pinned(spec: &Value) -> Option<BTreeSet<String>> {
    let selector = spec.get("nodeSelector");
    let selected = ZONE_KEYS.iter().find_map(|key| selector?.get(*key)?.as_str());
    if let Some(zone) = selected {
        return Some(BTreeSet::from([zone.to_owned()]));
    }
    let required = spec.pointer("/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution")?;
    let mut zones = BTreeSet::new();
    for term in required.get("nodeSelectorTerms")?.as_array()? {
        let expressions = term.get("matchExpressions")?.as_array()?;
        let named = expressions.iter().find(|expression| {
            let key = expression.get("key").and_then(Value::as_str);
            key.is_some_and(is_zone_key) && expression.get("operator").and_then(Value::as_str) == Some("In")
        })?;
        zones.extend(named.get("values")?.as_array()?.iter().filter_map(Value::as_str).map(str::to_owned));
    }
    Some(zones)
}

/// Whether a topology key names zones.
pub(super) fn is_zone_key(key: &str) -> bool {
    ZONE_KEYS.contains(&key)
}

/// Whether each domain of a topology key lies in one zone. Without nodes only the customary keys are known to.
pub(super) fn within_zone(world: &World, key: &str) -> bool {
    if is_zone_key(key) || key == "kubernetes.io/hostname" {
        return true;
    }
    let mut domains: BTreeMap<&str, BTreeSet<&Zone>> = BTreeMap::new();
    for node in &world.nodes {
        if let (Some(domain), Some(zone)) = (node.labels.get(key), &node.zone) {
            domains.entry(domain).or_default().insert(zone);
        }
    }
    if world.nodes.is_empty() {
        return ["rack", "block", "subblock", "host"].iter().any(|word| key.ends_with(word));
    }
    !domains.is_empty() && domains.values().all(|zones| zones.len() == 1)
}

/// The zones that count for a spread constraint: of nodes that node selector and affinity allow, and whose taints are
/// tolerated only where the constraint says so (Kubernetes API, `nodeAffinityPolicy` and `nodeTaintsPolicy`).
/// `None` without nodes, unless the spec names the zones.
pub(super) fn eligible(world: &World, spec: &Value, constraint: &Value) -> Option<BTreeSet<String>> {
    let policy = |field: &str| constraint.get(field).and_then(Value::as_str);
    if world.nodes.is_empty() {
        return pinned(spec).filter(|_| policy("nodeAffinityPolicy") != Some("Ignore"));
    }
    let mut bare = json!({});
    if policy("nodeAffinityPolicy") != Some("Ignore") {
        for field in ["nodeSelector", "affinity", "nodeName"] {
            if let (Some(map), Some(value)) = (bare.as_object_mut(), spec.get(field)) {
                map.insert(field.to_owned(), value.clone());
            }
        }
    }
    let taints = policy("nodeTaintsPolicy") == Some("Honor");
    let tolerations =
        if taints { spec.get("tolerations").cloned() } else { Some(json!([{ "operator": "Exists" }])) };
    if let (Some(map), Some(tolerations)) = (bare.as_object_mut(), tolerations) {
        map.insert("tolerations".to_owned(), tolerations);
    }
    let fitting = world.nodes.iter().filter(|node| fit(&bare, node) == Fit::Fits);
    Some(fitting.filter_map(|node| node.zone.as_ref()).map(|zone| zone.name.clone()).collect())
}

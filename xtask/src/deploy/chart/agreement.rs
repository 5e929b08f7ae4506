//! Lists that stand in two places: the agent's settings and the chart's values, the role's rights and the documentation.
//! Enters: both; leaves: where they differ. Must not know Helm.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

/// Where the schema of `config` differs from the settings that `firedoor config --format json` lists.
pub(super) fn settings(schema: &Value, listed: &Map<String, Value>) -> Vec<String> {
    let mut wanted: BTreeMap<(&str, &str), Value> = BTreeMap::new();
    for (key, entry) in listed {
        let (section, name) = key.rsplit_once('.').unwrap_or(("", key));
        let section = if section.starts_with("prices.") { "prices" } else { section };
        let kind = kind(&entry["value"]);
        // What one provider does not have, another one may.
        if !entry["value"].is_null() || !wanted.contains_key(&(section, name)) {
            wanted.insert((section, name), kind);
        }
    }
    let sections: BTreeSet<&str> = wanted.keys().map(|(section, _)| *section).collect();
    let mut wrong = Vec::new();
    for section in sections {
        let found = match section {
            "prices" => &schema["definitions"]["prices"],
            _ => &schema["properties"]["config"]["properties"][section],
        };
        if found["additionalProperties"] != false {
            wrong.push(format!("config.{section} lets every key through"));
        }
        let none = Map::new();
        let found = found["properties"].as_object().unwrap_or(&none);
        for ((_, name), kind) in wanted.iter().filter(|((of, _), _)| *of == section) {
            if found.get(*name) != Some(kind) {
                wrong.push(format!("config.{section}.{name} should be {kind}"));
            }
        }
        let unknown = found.keys().filter(|name| !wanted.contains_key(&(section, name.as_str())));
        wrong.extend(unknown.map(|name| format!("config.{section}.{name} is no setting of the agent")));
    }
    wrong
}

fn kind(value: &Value) -> Value {
    match value {
        Value::Bool(_) => json!({"type": "boolean"}),
        Value::Number(number) if number.is_f64() => json!({"type": "number"}),
        Value::Number(_) => json!({"type": "integer"}),
        Value::Array(_) => json!({"$ref": "#/definitions/list"}),
        // Settings without a value are paths and names.
        _ => json!({"type": "string"}),
    }
}

/// A right: group, resource, verb.
type Right = (String, String, String);

/// Where the rights of a role differ from the table in the documentation.
pub(super) fn rights(role: &Value, documentation: &str) -> Vec<String> {
    let words = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut granted = BTreeSet::new();
    for rule in role["rules"].as_array().into_iter().flatten() {
        let [groups, resources, verbs] = ["apiGroups", "resources", "verbs"].map(|part| words(&rule[part]));
        granted.extend(product(&groups, &resources, &verbs));
    }
    let mut told = BTreeSet::new();
    let rows = documentation.lines().skip_while(|line| !line.starts_with("| apiGroups |")).skip(2);
    for row in rows.take_while(|line| line.starts_with('|')) {
        let cells: Vec<Vec<String>> = row.split('|').skip(1).take(3).map(listed).collect();
        if let [groups, resources, verbs] = &cells[..] {
            told.extend(product(groups, resources, verbs));
        }
    }
    let show = |(group, resource, verb): &Right| format!("{verb} {resource} of {group:?}");
    let unsaid =
        granted.difference(&told).map(|right| format!("granted, and not in the table: {}", show(right)));
    let ungranted =
        told.difference(&granted).map(|right| format!("in the table, and not granted: {}", show(right)));
    unsaid.chain(ungranted).collect()
}

fn listed(cell: &str) -> Vec<String> {
    cell.split(',').map(|word| word.trim().trim_matches('"').to_owned()).collect()
}

fn product(groups: &[String], resources: &[String], verbs: &[String]) -> Vec<Right> {
    let mut all = Vec::new();
    for group in groups {
        for resource in resources {
            all.extend(verbs.iter().map(|verb| (group.clone(), resource.clone(), verb.clone())));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_differ_are_found() {
        let listed = json!({"a.size": {"value": 1}, "a.name": {"value": null}, "prices.x.usd": {"value": 0.5},
            "prices.y.usd": {"value": null}});
        let listed = listed.as_object().unwrap();
        let section = json!({"additionalProperties": false,
            "properties": {"size": {"type": "integer"}, "name": {"type": "string"}}});
        let prices = json!({"additionalProperties": false, "properties": {"usd": {"type": "number"}}});
        let schema = json!({"properties": {"config": {"properties": {"a": section}}}, "definitions": {"prices": prices}});
        assert_eq!(settings(&schema, listed), [""; 0]);
        for (pointer, value, about) in [
            ("/properties/config/properties/a/additionalProperties", json!(true), "lets every key through"),
            (
                "/properties/config/properties/a/properties/size",
                json!({"type": "string"}),
                "config.a.size should be",
            ),
            (
                "/properties/config/properties/a/properties",
                json!({"sise": {}}),
                "config.a.sise is no setting",
            ),
            ("/definitions/prices/properties", json!({}), "config.prices.usd should be"),
        ] {
            let mut changed = schema.clone();
            *changed.pointer_mut(pointer).unwrap() = value;
            let wrong = settings(&changed, listed).join("\n");
            assert!(wrong.contains(about), "{pointer}: {wrong}");
        }
    }

    #[test]
    fn rights_that_differ_are_found() {
        let role =
            |verbs: &[&str]| json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": verbs}]});
        let text = "x\n| apiGroups | resources | verbs | why |\n|---|---|---|---|\n| \"\" | pods | get, list | y |\n\n| a | b | c |\n";
        assert_eq!(rights(&role(&["get", "list"]), text), [""; 0]);
        assert_eq!(rights(&role(&["get"]), text), ["in the table, and not granted: list pods of \"\""]);
        assert!(
            rights(&role(&["get", "list", "watch"]), text)[0]
                .contains("granted, and not in the table: watch")
        );
        assert_eq!(rights(&role(&["get", "list"]), "no table").len(), 2);
    }
}

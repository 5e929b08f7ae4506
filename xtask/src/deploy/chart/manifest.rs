//! What a rendering must be like. Enters: Kubernetes objects; leaves: what is wrong with them, by this project's own rules:
//! as few rights as there can be, and everything that belongs together fits together.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::deploy::dashboard::DASHBOARD;

/// Directories of the host that an agent may see.
const HOST_PATHS: [&str; 2] = ["/sys/fs/cgroup", "/var/run/cilium"];
/// Never read.
const SECRET: [&str; 3] = ["secrets", "configmaps", "pods/exec"];
const READS: [&str; 3] = ["get", "list", "watch"];
/// The sections of the configuration, with the section of prices.
const SECTIONS: [&str; 9] =
    ["agent", "hubble", "kubernetes", "kernel", "gpu", "jobs", "policy", "diagnosis", "prices"];

/// Reads a YAML document.
///
/// # Errors
/// When it is none.
pub(super) fn yaml<T: DeserializeOwned>(text: &str) -> Result<T> {
    Ok(serde_saphyr::from_str(text)?)
}

/// The documents of a rendering, in order.
///
/// # Errors
/// When one is no object.
pub(super) fn documents(text: &str) -> Result<Vec<Value>> {
    let mut documents = Vec::new();
    let separated = format!("\n{text}");
    for document in separated.split("\n---") {
        let content = document.lines().any(|line| !line.trim().is_empty() && !line.starts_with('#'));
        if content {
            let value: Value = yaml(document).with_context(|| document.to_owned())?;
            if !value["kind"].is_string() {
                bail!("no object: {document}");
            }
            documents.push(value);
        }
    }
    Ok(documents)
}

/// What is wrong with a rendering.
pub(super) fn wrong(documents: &[Value], rules: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let of_kind =
        |kind: &str| documents.iter().filter(move |document| document["kind"] == kind).collect::<Vec<_>>();
    let [agent] = of_kind("DaemonSet")[..] else { return vec!["there is not one DaemonSet".to_owned()] };
    let configs = of_kind("ConfigMap");
    let toml = configs.iter().find_map(|config| config["data"]["firedoor.toml"].as_str());
    match toml.map(str::parse::<toml::Table>) {
        Some(Ok(settings)) => {
            wrong.extend(unknown_sections(&settings));
            wrong.extend(confinement(agent, &settings));
        }
        Some(Err(why)) => wrong.push(format!("firedoor.toml is no TOML: {why}")),
        None => wrong.push("there is no firedoor.toml".to_owned()),
    }
    for role in of_kind("ClusterRole") {
        wrong.extend(rights(role));
    }
    let host_network = agent["spec"]["template"]["spec"]["hostNetwork"] == true;
    if host_network && !of_kind("NetworkPolicy").is_empty() {
        wrong.push("a NetworkPolicy pretends to guard the host's network namespace".to_owned());
    }
    for kind in ["Service", "NetworkPolicy", "ServiceMonitor", "PodMonitor"] {
        wrong.extend(
            of_kind(kind).into_iter().filter_map(|object| selects(object, agent, &of_kind("Service"))),
        );
    }
    for rule in of_kind("PrometheusRule") {
        wrong.extend(other_rules(rule, rules));
    }
    let dashboards = configs.iter().filter_map(|config| config["data"]["firedoor.json"].as_str());
    let shipped = std::fs::read_to_string(crate::root().join(DASHBOARD)).unwrap_or_default();
    if dashboards.into_iter().any(|dashboard| dashboard.trim() != shipped.trim()) {
        wrong.push("the dashboard is another one".to_owned());
    }
    wrong
}

fn unknown_sections(settings: &toml::Table) -> Vec<String> {
    let unknown = settings.keys().filter(|section| !SECTIONS.contains(&section.as_str()));
    unknown.map(|section| format!("firedoor.toml has a section {section}")).collect()
}

/// The agent's rights on the node: those of its sources, and no others.
fn confinement(agent: &Value, settings: &toml::Table) -> Vec<String> {
    let source = |name: &str| {
        let sources = settings.get("agent").and_then(|agent| agent.get("sources"));
        sources
            .and_then(toml::Value::as_array)
            .is_some_and(|all| all.iter().any(|s| s.as_str() == Some(name)))
    };
    let (kernel, hubble) = (source("ebpf"), source("hubble"));
    let socket = hubble
        && settings
            .get("hubble")
            .and_then(|hubble| hubble.get("address")?.as_str())
            .is_some_and(|a| a.starts_with("unix://"));
    let pod = &agent["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let capabilities =
        if kernel { json!({"drop": ["ALL"], "add": ["BPF", "PERFMON"]}) } else { json!({"drop": ["ALL"]}) };
    let security = json!({"privileged": false, "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
        "capabilities": capabilities});
    let expected = [
        ("containers", json!(pod["containers"].as_array().map_or(0, Vec::len)), json!(1)),
        ("securityContext", container["securityContext"].clone(), security),
        (
            "seccompProfile",
            pod["securityContext"]["seccompProfile"].clone(),
            json!({"type": "RuntimeDefault"}),
        ),
        (
            "user",
            pod["securityContext"]["runAsUser"].clone(),
            json!(if kernel || socket { 0 } else { 65532 }),
        ),
        ("hostNetwork", json!(pod["hostNetwork"] == true), json!(kernel)),
        ("hostIPC", pod["hostIPC"].clone(), Value::Null),
        ("service links", pod["enableServiceLinks"].clone(), json!(false)),
        ("healthz", container["livenessProbe"]["httpGet"]["path"].clone(), json!("/healthz")),
        ("readyz", container["readinessProbe"]["httpGet"]["path"].clone(), json!("/readyz")),
        ("tolerations", pod["tolerations"].clone(), json!([{"operator": "Exists"}])),
        ("sources", json!(kernel || hubble), json!(true)),
    ];
    let differs = |(what, is, should): (&str, Value, Value)| {
        (is != should).then(|| format!("{what}: is {is}, should be {should}"))
    };
    let mut wrong: Vec<String> = expected.into_iter().filter_map(differs).collect();
    if pod["hostPID"] == true && !kernel {
        wrong.push("hostPID without the kernel as a source".to_owned());
    }
    for part in ["requests", "limits"] {
        if container["resources"][part]["memory"].is_null() {
            wrong.push(format!("no memory in the resources' {part}"));
        }
    }
    wrong.extend(volumes(pod, container, [kernel, socket]));
    wrong
}

fn volumes(pod: &Value, container: &Value, needed: [bool; 2]) -> Vec<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut wrong = Vec::new();
    for mount in list(&container["volumeMounts"]).iter().filter(|mount| mount["readOnly"] != true) {
        wrong.push(format!("{} can be written to", mount["mountPath"]));
    }
    let volumes = list(&pod["volumes"]);
    let of_host: Vec<&str> =
        volumes.iter().filter_map(|volume| volume["hostPath"]["path"].as_str()).collect();
    let allowed: Vec<&str> =
        HOST_PATHS.into_iter().zip(needed).filter_map(|(path, needed)| needed.then_some(path)).collect();
    // Hubble's socket may be elsewhere.
    if of_host.len() != allowed.len() || of_host.iter().any(|path| !HOST_PATHS.contains(path)) {
        wrong.push(format!("sees {of_host:?} of the host, should see {allowed:?}"));
    }
    for volume in volumes.iter().filter(|volume| !volume["hostPath"].is_null()) {
        if volume["hostPath"]["type"] != "Directory" {
            wrong.push(format!("{} could be made on the host", volume["hostPath"]["path"]));
        }
    }
    wrong
}

/// What a role allows beyond reading, and what it should not read.
fn rights(role: &Value) -> Vec<String> {
    let words = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut wrong = Vec::new();
    for rule in role["rules"].as_array().into_iter().flatten() {
        let (resources, verbs) = (words(&rule["resources"]), words(&rule["verbs"]));
        let reads = verbs.iter().all(|verb| READS.contains(&verb.as_str()));
        let open =
            words(&rule["apiGroups"]).iter().chain(&resources).chain(&verbs).any(|word| word.contains('*'));
        let secret = resources.iter().any(|resource| SECRET.contains(&resource.as_str()));
        if open || secret || !reads {
            wrong.push(format!("the role allows {verbs:?} on {resources:?}"));
        }
    }
    wrong
}

/// Whether what selects the agents' pods, or their Service, selects them.
fn selects(object: &Value, agent: &Value, services: &[&Value]) -> Option<String> {
    let kind = object["kind"].as_str().unwrap_or_default();
    let spec = &object["spec"];
    let pod = &agent["spec"]["template"]["metadata"]["labels"];
    let (selector, labels) = match kind {
        "Service" => (&spec["selector"], pod),
        "NetworkPolicy" => (&spec["podSelector"]["matchLabels"], pod),
        "ServiceMonitor" => (&spec["selector"]["matchLabels"], &services.first()?["metadata"]["labels"]),
        _ => (&spec["selector"]["matchLabels"], pod),
    };
    let wanted: BTreeMap<String, Value> = serde_json::from_value(selector.clone()).unwrap_or_default();
    let fits = !wanted.is_empty() && wanted.iter().all(|(key, value)| labels[key] == *value);
    if !fits {
        return Some(format!("{kind} selects {selector}, which nothing has"));
    }
    let endpoints = [&spec["endpoints"], &spec["podMetricsEndpoints"]];
    let mut endpoints = endpoints.into_iter().filter_map(Value::as_array).flatten();
    let renames = endpoints.any(|endpoint| endpoint["honorLabels"] != true);
    let named =
        spec["jobLabel"] == "app.kubernetes.io/name" && labels["app.kubernetes.io/name"] == "firedoor";
    (kind.ends_with("Monitor") && (renames || !named)).then(|| format!("{kind} takes the jobs' labels away"))
}

/// The rules must be those of the file; the threshold may differ.
fn other_rules(rule: &Value, rules: &Value) -> Vec<String> {
    let plain = |groups: &Value| {
        let mut groups = groups.clone();
        for group in groups.as_array_mut().into_iter().flatten() {
            for rule in group["rules"].as_array_mut().into_iter().flatten() {
                if rule["record"] == "firedoor:cross_zone_cost_dollars:per_hour_threshold" {
                    let threshold =
                        rule["expr"].as_str().and_then(|e| e.strip_prefix("vector(")?.strip_suffix(')'));
                    if threshold.is_some_and(|number| number.parse::<f64>().is_ok()) {
                        rule["expr"] = Value::Null;
                    }
                }
            }
        }
        groups
    };
    let same = rule["spec"]["groups"].is_array() && plain(&rule["spec"]["groups"]) == plain(&rules["groups"]);
    if same { Vec::new() } else { vec!["PrometheusRule has other rules than the file".to_owned()] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound() -> Vec<Value> {
        let labels = json!({"app.kubernetes.io/name": "firedoor", "app.kubernetes.io/instance": "r"});
        let toml = "[agent]\nsources = [\"ebpf\"]\n";
        vec![
            json!({"kind": "ConfigMap", "data": {"firedoor.toml": toml}}),
            json!({"kind": "ClusterRole", "rules": [
                {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
                {"apiGroups": [""], "resources": ["services"], "verbs": ["get", "list"]}]}),
            json!({"kind": "Service", "metadata": {"labels": labels}, "spec": {"selector": labels}}),
            json!({"kind": "ServiceMonitor", "spec": {"jobLabel": "app.kubernetes.io/name",
                "selector": {"matchLabels": labels}, "endpoints": [{"honorLabels": true}]}}),
            json!({"kind": "DaemonSet", "spec": {"template": {"metadata": {"labels": labels}, "spec": {
            "hostNetwork": true, "hostPID": true, "enableServiceLinks": false,
            "tolerations": [{"operator": "Exists"}],
            "securityContext": {"runAsUser": 0, "seccompProfile": {"type": "RuntimeDefault"}},
            "volumes": [{"name": "c", "hostPath": {"path": "/sys/fs/cgroup", "type": "Directory"}}],
            "containers": [{
                "volumeMounts": [{"name": "c", "mountPath": "/host/cgroup", "readOnly": true}],
                "livenessProbe": {"httpGet": {"path": "/healthz"}},
                "readinessProbe": {"httpGet": {"path": "/readyz"}},
                "resources": {"requests": {"memory": "64Mi"}, "limits": {"memory": "128Mi"}},
                "securityContext": {"privileged": false, "allowPrivilegeEscalation": false,
                    "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"], "add": ["BPF", "PERFMON"]}},
            }]}}}}),
        ]
    }

    #[test]
    fn a_sound_rendering_has_nothing_wrong() {
        assert_eq!(wrong(&sound(), &Value::Null), [""; 0]);
    }

    #[test]
    fn each_right_too_many_is_found() {
        let complains = |document: usize, pointer: &str, value: Value, about: &str| {
            let mut changed = sound();
            let place = changed[document].pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}"));
            *place = value;
            let wrong = wrong(&changed, &Value::Null).join("\n");
            assert!(wrong.contains(about), "{pointer}: {wrong}");
        };
        let pod = "/spec/template/spec";
        let container = format!("{pod}/containers/0");
        let at = |rest: &str| format!("{container}/{rest}");
        complains(4, &at("securityContext/privileged"), json!(true), "securityContext");
        complains(
            4,
            &at("securityContext/capabilities/add"),
            json!(["BPF", "PERFMON", "SYS_ADMIN"]),
            "securityContext",
        );
        complains(4, &at("securityContext/capabilities/drop"), json!([]), "securityContext");
        complains(4, &at("volumeMounts/0/readOnly"), json!(false), "can be written to");
        complains(4, &at("resources/limits/memory"), Value::Null, "memory");
        complains(4, &format!("{pod}/volumes/0/hostPath/path"), json!("/"), "of the host");
        complains(
            4,
            &format!("{pod}/volumes/0/hostPath/type"),
            json!("DirectoryOrCreate"),
            "made on the host",
        );
        complains(4, &format!("{pod}/tolerations"), json!([]), "tolerations");
        complains(4, &format!("{pod}/hostNetwork"), json!(false), "hostNetwork");
        let hubble = "[agent]\nsources = [\"hubble\"]\n[hubble]\naddress = \"tls://relay:443\"\n";
        complains(0, "/data/firedoor.toml", json!(hubble), "hostPID without the kernel");
        complains(0, "/data/firedoor.toml", json!(hubble), "securityContext");
        complains(0, "/data/firedoor.toml", json!("x = "), "no TOML");
        complains(0, "/data/firedoor.toml", json!("[agnet]\n"), "a section agnet");
        complains(1, "/rules/0/verbs", json!(["get", "delete"]), "the role allows");
        complains(1, "/rules/0/resources", json!(["secrets"]), "the role allows");
        complains(1, "/rules/0/resources", json!(["*"]), "the role allows");
        complains(1, "/rules/1/verbs", json!(["create", "patch"]), "the role allows");
        complains(2, "/spec/selector", json!({"app": "other"}), "Service selects");
        complains(3, "/spec/endpoints/0/honorLabels", json!(false), "takes the jobs' labels away");
    }

    #[test]
    fn the_rules_are_the_files() {
        let rules = |threshold: &str, expression: &str| {
            json!([{"name": "g", "rules": [
                {"record": "firedoor:cross_zone_cost_dollars:per_hour_threshold", "expr": threshold},
                {"alert": "A", "expr": expression}]}])
        };
        let file = json!({"groups": rules("vector(1)", "a == 1")});
        let differs = |groups: Value| !other_rules(&json!({"spec": {"groups": groups}}), &file).is_empty();
        assert!(!differs(rules("vector(2.5)", "a == 1")));
        assert!(differs(rules("vector(x)", "a == 1")));
        assert!(differs(rules("vector(1)", "a == 2")));
        assert!(differs(Value::Null));
    }

    #[test]
    fn documents_are_told_apart() {
        let text = "---\n# Source: x\n---\nkind: A\ndata: |\n  --- no\n---\nkind: B\n";
        let kinds: Vec<Value> =
            documents(text).unwrap().iter().map(|document| document["kind"].clone()).collect();
        assert_eq!(kinds, ["A", "B"]);
        assert!(documents("a: b\n").is_err());
    }
}

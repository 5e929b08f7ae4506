//! What is awkward to write as a golden case: grouping, precedence, size, and odd input.

use serde_json::{Value, json};

use super::*;
use crate::workload::merge;

fn source(value: Value, file: Option<&str>) -> Source {
    let origin = file.map(|file| Origin { file: file.to_owned(), line: 1 });
    Source { object: Object::from_value(value).unwrap(), origin }
}

fn checked(objects: Vec<Value>) -> CheckReport {
    let sources: Vec<Source> = objects.into_iter().map(|object| source(object, Some("f.yaml"))).collect();
    check(&sources, &Options::default())
}

fn workload(kind: &str, name: &str, labels: Value, spec: Value) -> Value {
    let api = if kind == "Job" { "batch/v1" } else { "apps/v1" };
    let spec = merge(&json!({"containers": [{"name": "c"}]}), &spec);
    json!({"apiVersion": api, "kind": kind, "metadata": {"name": name},
        "spec": {"parallelism": 2, "template": {"metadata": {"labels": labels}, "spec": spec}}})
}

fn jobs(report: &CheckReport) -> Vec<(&str, usize)> {
    report.jobs.iter().map(|job| (job.name.name.as_str(), job.members)).collect()
}

#[test]
fn an_application_with_a_migration_is_no_training_job() {
    let app = json!({"app": "shop"});
    let report = checked(vec![
        workload("Deployment", "web", app.clone(), json!({})),
        workload("StatefulSet", "db", app, json!({})),
    ]);
    assert_eq!(jobs(&report), []);
    assert_eq!(report.findings[0].rule, Rule::NothingToCheck);
    let roles = |role: &str| json!({"app": "shop", "role": role});
    let report = checked(vec![
        workload("Deployment", "lead", roles("master"), json!({})),
        workload("StatefulSet", "work", roles("worker"), json!({})),
    ]);
    assert_eq!(jobs(&report), [("shop", 2)]);
}

#[test]
fn jobs_of_their_own_are_not_joined_by_an_application_label() {
    let gpu = json!({"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 1}}}]});
    let report = checked(vec![
        workload("Job", "first", json!({"app": "llm"}), gpu.clone()),
        workload("Job", "second", json!({"app": "llm"}), gpu),
    ]);
    assert_eq!(jobs(&report), [("first", 2), ("second", 2)]);
}

#[test]
fn what_is_applied_counts_more_than_what_is_there() {
    let policy = |ingress: Value| {
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "p", "namespace": "default"},
            "spec": {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": ingress}})
    };
    let job = workload("Job", "train", json!({}), json!({}));
    let (closed, open) = (policy(json!([])), policy(json!([{}])));
    let manifests =
        [source(job.clone(), Some("a")), source(open.clone(), Some("b")), source(closed.clone(), None)];
    assert_eq!(check(&manifests, &Options::default()).verdict, CheckVerdict::Open);
    let manifests = [source(job, Some("a")), source(closed, Some("b")), source(open, None)];
    let report = check(&manifests, &Options::default());
    assert_eq!(report.verdict, CheckVerdict::Blocked);
    assert_eq!(report.findings[0].policies[0].object.file.as_deref(), Some("b"));
}

/// Policies see a thousand pods by their labels: the work grows with the kinds of pods, not with their pairs.
#[test]
fn a_thousand_pods_and_many_policies_are_judged_by_identity() {
    let policies = (0..500).map(|n| {
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": {"name": format!("p{n}"), "namespace": "default"},
            "spec": {"podSelector": {"matchLabels": {"team": format!("t{n}")}}, "policyTypes": ["Ingress", "Egress"]}})
    });
    let mut job = workload("Job", "train", json!({"team": "t7"}), json!({}));
    job["spec"]["parallelism"] = json!(1000);
    let report = checked(policies.chain([job]).collect());
    let denied = report.findings.iter().find(|finding| finding.rule == Rule::TrafficDenied).unwrap();
    assert_eq!((denied.pairs[0].pairs, denied.policies[0].object.name.as_str()), (999_000, "p7"));
}

#[test]
fn the_name_service_of_openshift_listens_elsewhere() {
    let dns = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "dns-x", "namespace": "openshift-dns",
        "labels": {"dns.operator.openshift.io/daemonset-dns": "default"}}, "spec": {}});
    let policy = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "p"},
        "spec": {"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"to": [{"podSelector": {}}]},
            {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]}]}});
    let job = workload("Job", "train", json!({}), json!({}));
    let sources = [source(dns, None), source(policy.clone(), Some("p")), source(job.clone(), Some("j"))];
    let report = check(&sources, &Options::default());
    assert_eq!(report.findings[0].rule, Rule::DnsDenied);
    assert_eq!(report.findings[0].pairs[0].ports, "5353");
    assert_eq!(checked(vec![policy, job]).verdict, CheckVerdict::Open, "elsewhere 53 is right");
}

#[test]
fn a_bare_coordinator_may_stay_out_of_collectives() {
    let gpu = json!({"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 8}}}]});
    let lead = json!({"containers": [{"name": "c", "ports": [{"containerPort": 29500}, {"containerPort": 9400, "name": "metrics"}]}]});
    let policy = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "p"},
        "spec": {"podSelector": {"matchLabels": {"role": "master"}}, "policyTypes": ["Ingress"],
            "ingress": [{"ports": [{"port": 29500}]}]}});
    let labels = |role: &str| json!({"app": "llm", "role": role});
    let report = checked(vec![
        workload("Deployment", "lead", labels("master"), lead),
        workload("Job", "work", labels("worker"), gpu),
        policy,
    ]);
    let denied = report.findings.iter().find(|finding| finding.rule == Rule::TrafficDenied).unwrap();
    assert_eq!((report.verdict, denied.severity), (CheckVerdict::Open, Severity::Warning));
}

/// Whatever stands where a map or a list is expected: no answer is wrong enough to panic.
#[test]
fn odd_trees_do_no_harm() {
    let job = workload(
        "Job",
        "train",
        json!({"zone": "a"}),
        json!({"affinity": {"podAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}]},
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}},
        "topologySpreadConstraints": [{"topologyKey": "topology.kubernetes.io/zone", "maxSkew": 1, "labelSelector": {}}]}),
    );
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": {"topology.kubernetes.io/zone": "a"}}});
    let mut places = Vec::new();
    collect(&job, String::new(), &mut places);
    for place in places {
        for odd in [json!(null), json!(-1), json!("x"), json!([[]]), json!({"x": {}}), json!(u64::MAX)] {
            let mut broken = job.clone();
            *broken.pointer_mut(&place).unwrap() = odd;
            if let Ok(object) = Object::from_value(broken) {
                let origin = Some(Origin { file: "f".to_owned(), line: 1 });
                let _ = check(&[Source { object, origin }, source(node.clone(), None)], &Options::default());
            }
        }
    }
}

fn collect(value: &Value, at: String, places: &mut Vec<String>) {
    let below: Vec<(String, &Value)> = match value {
        Value::Object(map) => map.iter().map(|(k, v)| (k.replace('~', "~0").replace('/', "~1"), v)).collect(),
        Value::Array(list) => list.iter().enumerate().map(|(n, v)| (n.to_string(), v)).collect(),
        _ => Vec::new(),
    };
    for (step, inner) in below {
        let way = format!("{at}/{step}");
        places.push(way.clone());
        collect(inner, way, places);
    }
}

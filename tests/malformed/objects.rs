//! Object files that are damaged, endless, or contradict themselves.

use serde_json::{Value, json};

use crate::capture::{Capture, denied, objects, pod};

fn list(items: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

#[test]
fn lists_within_lists_are_read() {
    let nested = list(json!([list(json!([objects(), list(json!([]))]))]));
    let seen = Capture::empty().object_file("all.json", nested.to_string()).flows(denied(4)).replay();
    seen.blocked(4);
    assert!(seen.problems.is_empty(), "{:?}", seen.problems);
}

#[test]
fn lists_within_lists_without_end_are_told() {
    let deep = (0..40).fold(objects(), |inner, _| list(json!([inner])));
    let seen = Capture::new().object_file("deep.json", deep.to_string()).flows(denied(4)).replay();
    seen.blocked(4);
    seen.told("deep.json:1", "deep");
}

#[test]
fn nesting_without_end_is_told() {
    let json = format!("{{\"kind\":\"Pod\",\"metadata\":{}", "{\"a\":".repeat(200_000));
    let flow = format!("kind: Pod\nmetadata: {}", "[".repeat(200_000));
    let block: String = (0..3_000).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    let seen = Capture::new()
        .object_file("deep.json", json)
        .object_file("flow.yaml", flow)
        .object_file("block.yaml", block)
        .flows(denied(4))
        .replay();
    seen.blocked(4);
    seen.told("deep.json:1", "");
    seen.told("flow.yaml:1", "");
    seen.told("block.yaml:1", "");
}

#[test]
fn anchors_that_multiply_are_told() {
    let mut bomb = String::from("kind: Pod\nmetadata:\n  name: bomb\n  annotations:\n    l0: &l0 lol\n");
    for level in 1..40 {
        let before = level - 1;
        let many = vec![format!("*l{before}"); 10].join(", ");
        bomb.push_str(&format!("    l{level}: &l{level} [{many}]\n"));
    }
    let seen = Capture::new().object_file("bomb.yaml", bomb).flows(denied(4)).replay();
    seen.blocked(4);
    seen.told("bomb.yaml:1", "");
}

#[test]
fn a_damaged_document_takes_no_other_with_it() {
    let items = objects();
    let items = items["items"].as_array().expect("a list");
    let mut text = String::new();
    for item in items {
        // JSON is YAML.
        text.push_str(&format!("---\n{item}\n"));
    }
    let lines_before = text.lines().count() as u64;
    text.push_str("---\nkind: Pod\nmetadata:\n  name: \"unended\n   : [\n");
    text.push_str(
        "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: sea}\n---\n# nothing\n---\n- 1\n- 2\n",
    );
    let seen = Capture::empty().object_file("all.yaml", text).flows(denied(4)).replay();
    seen.blocked(4);
    seen.told(&format!("all.yaml:{}", lines_before + 2), "damaged");
    seen.told(&format!("all.yaml:{}", lines_before + 13), "no Kubernetes object");
    assert_eq!(seen.problems.len(), 2, "{:?}", seen.problems);
    let excerpt = |problem: &String| problem.contains("\\n") || problem.contains("-->");
    assert!(
        !seen.problems.iter().any(excerpt),
        "one sentence, not the parser's drawing: {:?}",
        seen.problems
    );
}

#[test]
fn json_that_ends_early_is_told() {
    let whole = objects().to_string();
    let seen = Capture::new().object_file("cut.json", &whole[..whole.len() / 2]).flows(denied(4)).replay();
    seen.blocked(4);
    seen.told("cut.json:1", "damaged JSON");
}

#[test]
fn text_that_is_not_utf_8_is_told() {
    let seen = Capture::new()
        .object_file("latin.yaml", b"kind: Pod\nmetadata:\n  name: caf\xe9\n")
        .object_file("zeros.yaml", [0_u8; 4096])
        .flows(denied(4))
        .replay();
    seen.blocked(4);
    seen.told("latin.yaml", "UTF-8");
    seen.told("zeros.yaml:1", "");
}

#[test]
fn two_objects_with_one_uid_are_told() {
    let mut twin = pod("stranger", "worker", "n1", "10.1.1.77");
    twin["metadata"]["uid"] = json!("uid-tide-worker-0");
    twin["metadata"]["namespace"] = json!("land");
    twin["metadata"]["ownerReferences"] = json!([]);
    twin["metadata"]["labels"] = json!({});
    let seen = Capture::new().object_file("twin.json", twin.to_string()).flows(denied(4)).replay();
    seen.blocked(4);
    let note = seen.notes.iter().find(|note| note.contains("uid-tide-worker-0")).expect("it is told");
    assert!(note.contains("stranger") && note.contains("tide-worker-0"), "{note}");
}

#[test]
fn an_object_twice_is_one_object() {
    let seen = Capture::new().object_file("again.json", objects().to_string()).flows(denied(4)).replay();
    seen.blocked(4);
    assert_eq!(seen.report["jobs"][0]["members"].as_array().map(Vec::len), Some(2));
}

#[test]
fn owners_in_circles_end() {
    let owner = |kind: &str, name: &str| {
        json!([{"apiVersion": "v1", "kind": kind, "name": name, "uid": format!("uid-{name}"),
            "controller": true}])
    };
    let mut own = pod("own", "worker", "n1", "10.1.1.80");
    own["metadata"]["ownerReferences"] = owner("Pod", "own");
    let circle = |name: &str, of: &str| {
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": "sea",
            "uid": format!("uid-{name}"), "ownerReferences": owner("Job", of)}})
    };
    let mut caught = pod("caught", "worker", "n1", "10.1.1.81");
    caught["metadata"]["ownerReferences"] = owner("Job", "ring-a");
    for odd in [&mut own, &mut caught] {
        odd["metadata"]["labels"] = json!({});
    }
    let odd = list(json!([own, caught, circle("ring-a", "ring-b"), circle("ring-b", "ring-a")]));
    let seen = Capture::new().object_file("rings.json", odd.to_string()).flows(denied(4)).replay();
    seen.blocked(4);
}

#[test]
fn fields_of_the_wrong_type_harm_nobody_else() {
    let odd = list(json!([
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "odd-1", "namespace": 7, "labels": ["a"],
            "ownerReferences": "nobody", "creationTimestamp": -1}, "spec": "none", "status": [1, 2]},
        {"apiVersion": 1, "kind": "Pod", "metadata": {"name": "odd-2", "namespace": "sea", "uid": {}},
            "spec": {"containers": {"a": 1}, "nodeName": [], "hostNetwork": "yes"},
            "status": {"podIP": "not an address", "podIPs": [{"ip": 4}, null, "x"], "phase": false}},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "odd-3", "namespace": "sea"},
            "spec": {"clusterIP": "10.1.1.5", "selector": ["x"], "ports": [{"port": -4}, "http", {"port": "80"}]}},
        {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": {"name": "odd-4", "namespace": "elsewhere"}, "spec": {"podSelector": 3, "egress": {}}},
        {"kind": "Pod"}, {"metadata": {"name": "no-kind"}}, [], 7, null
    ]));
    let seen = Capture::new().object_file("odd.json", odd.to_string()).flows(denied(4)).replay();
    seen.blocked(4);
    assert!(!seen.problems.is_empty());
}

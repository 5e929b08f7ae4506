//! What the generator makes is what it says: real-looking lines in the promised mixture, in the order of time.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::*;

fn shape() -> Shape {
    Shape { nodes: 12, jobs: 8, pods: 6, seed: 7 }
}

fn made(lines: u64, shape: &Shape) -> (Truth, String, Value) {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("capture");
    let truth = capture(&folder, lines, shape).unwrap();
    let objects = fs::read_to_string(folder.join("objects/cluster.json")).unwrap();
    (truth, fs::read_to_string(folder.join("flows.jsonl")).unwrap(), serde_json::from_str(&objects).unwrap())
}

fn kind(flow: &Value) -> &'static str {
    let ports = |name: &str| {
        flow["l4"][name]["destination_port"].as_u64().max(flow["l4"][name]["source_port"].as_u64())
    };
    match (flow["verdict"].as_str(), flow["event_type"]["type"].as_u64()) {
        (Some("DROPPED"), Some(1)) => "drop",
        (Some("DROPPED"), Some(5)) => "denied",
        (Some("FORWARDED"), Some(129)) | (Some("TRACED"), Some(7)) => "other",
        (Some("FORWARDED"), Some(4)) if ports("UDP").is_some() => "dns",
        (Some("FORWARDED"), Some(4)) if flow["source"]["namespace"] == "shop" => "web",
        (Some("FORWARDED"), Some(4)) => "member",
        other => panic!("unexpected {other:?}"),
    }
}

#[test]
fn lines_have_the_promised_mixture_size_and_order() {
    let (truth, text, _) = made(20_000, &shape());
    assert_eq!((truth.lines, truth.bytes), (20_000, text.len() as u64));
    let mean = text.len() / 20_000;
    assert!((1_000..1_400).contains(&mean), "{mean} bytes a line");
    let mut counts = BTreeMap::new();
    let mut last = String::new();
    let mut ids = BTreeSet::new();
    for line in text.lines() {
        let value: Value = serde_json::from_str(line).unwrap();
        let flow = &value["flow"];
        *counts.entry(kind(flow)).or_insert(0_i64) += 1;
        let time = flow["time"].as_str().unwrap().to_owned();
        assert_eq!((value["time"].as_str(), &value["node_name"]), (Some(time.as_str()), &flow["node_name"]));
        assert!(last < time, "{last} then {time}");
        last = time;
        assert!(ids.insert(flow["uuid"].as_str().unwrap().to_owned()));
        for end in ["source", "destination"] {
            let local = flow[end].get("ID").is_some();
            assert_eq!(local, flow[end].get("workloads").is_some(), "{line}");
        }
    }
    assert_eq!(counts["denied"] - counts["drop"], 0);
    for (kind, percent) in [("member", 60), ("denied", 7), ("drop", 7), ("web", 15), ("dns", 5), ("other", 5)]
    {
        let share = counts[kind] as f64 / 200.0;
        assert!((share - f64::from(percent)).abs() < 1.5, "{kind}: {share} %");
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let first = made(500, &shape()).1;
    assert_eq!(first, made(500, &shape()).1);
    assert_ne!(first, made(500, &Shape { seed: 8, ..shape() }).1);
}

#[test]
fn flows_and_objects_tell_the_same_story() {
    let (truth, text, objects) = made(5_000, &shape());
    assert_eq!(truth.blocked, ["team-1/train-0001", "team-5/train-0005"]);
    let of =
        |kind: &'static str| objects["items"].as_array().unwrap().iter().filter(move |o| o["kind"] == kind);
    assert_eq!((of("Node").count(), of("PyTorchJob").count(), of("CiliumNetworkPolicy").count()), (12, 8, 2));
    let pods: BTreeMap<&str, &Value> =
        of("Pod").map(|pod| (pod["status"]["podIP"].as_str().unwrap(), pod)).collect();
    assert_eq!(pods.len(), of("Pod").count(), "an address twice");
    let jobs: Vec<&Value> = of("PyTorchJob").map(|job| &job["metadata"]["uid"]).collect();
    let owners = pods.values().map(|pod| &pod["metadata"]["ownerReferences"][0]);
    let members =
        owners.filter(|owner| owner["kind"] == "PyTorchJob" && jobs.contains(&&owner["uid"])).count();
    assert_eq!(members, 8 * 6);
    let mut denied = BTreeSet::new();
    for line in text.lines() {
        let flow = &serde_json::from_str::<Value>(line).unwrap()["flow"];
        for (end, address) in [("source", &flow["IP"]["source"]), ("destination", &flow["IP"]["destination"])]
        {
            let pod = pods[address.as_str().unwrap()];
            assert_eq!(
                (&pod["metadata"]["name"], &pod["metadata"]["namespace"]),
                (&flow[end]["pod_name"], &flow[end]["namespace"])
            );
            assert_eq!(flow[end].get("ID").is_some(), pod["spec"]["nodeName"] == flow["node_name"], "{line}");
        }
        let job = |end: &str| {
            pods[flow["IP"][end].as_str().unwrap()]["metadata"]["ownerReferences"][0]["name"].clone()
        };
        match kind(flow) {
            "denied" => {
                denied.insert(format!(
                    "{}/{}",
                    flow["source"]["namespace"].as_str().unwrap(),
                    job("source").as_str().unwrap()
                ));
                assert_eq!(job("source"), job("destination"));
            }
            "member" => {
                assert_eq!(job("source"), job("destination"));
                let id = format!(
                    "{}/{}",
                    flow["source"]["namespace"].as_str().unwrap(),
                    job("source").as_str().unwrap()
                );
                assert!(!truth.blocked.contains(&id), "traffic in a blocked job: {line}");
            }
            _ => {}
        }
    }
    assert_eq!(denied.into_iter().collect::<Vec<_>>(), truth.blocked);
}

#[test]
fn shapes_and_folders_that_cannot_be() {
    let folder = tempfile::tempdir().unwrap();
    assert!(capture(folder.path(), 10, &shape()).is_err(), "an existing folder is not overwritten");
    let new = folder.path().join("new");
    for wrong in [Shape { jobs: 1, ..shape() }, Shape { pods: 1, ..shape() }, Shape { nodes: 0, ..shape() }] {
        assert!(capture(&new, 10, &wrong).is_err());
    }
    assert!(capture(&new, 0, &shape()).is_err());
    assert!(capture(&new, MOST_LINES + 1, &shape()).is_err());
    assert!(!new.exists());
}

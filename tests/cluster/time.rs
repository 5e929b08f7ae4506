//! Who had an address at what time, and many pods at once.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use firedoor_core::inventory::{Endpoint, Inventory};
use firedoor_core::observation::End;
use firedoor_core::time::Timestamp;
use serde_json::json;

use crate::world::*;

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Timestamp::from_nanos(u64::try_from(since.as_nanos()).unwrap())
}

fn who(inventory: &Inventory, ip: &str, at: Timestamp) -> Option<String> {
    let end = End { ip: ip.parse().ok(), port: 1, pod: None, uid: None, reserved: None };
    match inventory.endpoint(&end, at) {
        Endpoint::Pod(id) => inventory.pod(id).uid.clone(),
        _ => None,
    }
}

/// Whole seconds, as Kubernetes writes them.
fn written(at: Timestamp) -> String {
    at.floor_to(Duration::from_secs(1)).to_string()
}

#[tokio::test]
async fn an_address_that_changes_hands_within_a_second() {
    let kube = cluster().await;
    kube.put_all([pod("llama", 0, NODE), pod("llama", 1, "node-b"), owner("llama")]);
    let mut followed = Followed::new(&kube, settings());
    followed.until_ready().await;
    let ip = pod("llama", 1, "node-b")["status"]["podIP"].as_str().unwrap().to_owned();
    let mut holders = vec![(now(), "uid-llama-worker-1".to_owned())];
    for round in 0..10 {
        // The pod goes, and its address is the next one's within the same second.
        kube.delete("pods", "ml", &format!("llama-worker-{}", if round == 0 { 1 } else { 99 + round }));
        let before = holders.last().unwrap().1.clone();
        followed.until("the deletion", |snapshot| snapshot.ended.contains_key(&before)).await;
        let mut next = pod("llama", 100 + round, "node-b");
        next["status"] =
            json!({"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "startTime": written(now())});
        kube.put(next);
        let name = format!("llama-worker-{}", 100 + round);
        followed.until("the next one", |snapshot| lives(snapshot, &name)).await;
        holders.push((now(), format!("uid-{name}")));
    }
    let snapshot = followed.now();
    let inventory = Inventory::new(snapshot.objects.clone(), &settings().grouping);
    for (at, uid) in &holders {
        assert_eq!(who(&inventory, &ip, *at).as_ref(), Some(uid), "at {at}");
    }
    assert_eq!(snapshot.ended.len(), 10, "late flows find the pods of their time");
    followed.stop().await;
}

#[tokio::test]
async fn a_finished_pod_ends_with_its_containers_however_late_it_is_told() {
    let kube = cluster().await;
    kube.put_all([pod("llama", 0, NODE), pod("llama", 1, "node-b"), owner("llama")]);
    let mut followed = Followed::new(&kube, settings());
    followed.until_ready().await;
    let finished = now().minus(Duration::from_secs(30)).floor_to(Duration::from_secs(1));
    for index in [0, 1] {
        let mut done = pod("llama", index, if index == 0 { NODE } else { "node-b" });
        done["status"]["phase"] = json!("Failed");
        done["status"]["containerStatuses"] =
            json!([{"state": {"terminated": {"finishedAt": finished.to_string(), "exitCode": 1}}}]);
        kube.put(done);
    }
    // The job's pods live on elsewhere; this node's last one is over, and so is its interest in them.
    let snapshot =
        followed.until("the end", |snapshot| snapshot.ended.contains_key("uid-llama-worker-0")).await;
    assert_eq!(snapshot.ended["uid-llama-worker-0"], finished);
    followed.stop().await;
}

#[tokio::test]
async fn what_ended_is_forgotten_after_a_while() {
    let kube = cluster().await;
    kube.put_all([pod("llama", 0, NODE), pod("llama", 1, NODE), owner("llama")]);
    let keep_ended = Duration::from_secs(2);
    let mut followed = Followed::new(&kube, firedoor::cluster::ClusterSettings { keep_ended, ..settings() });
    followed.until_ready().await;
    kube.delete("pods", "ml", "llama-worker-1");
    let snapshot =
        followed.until("the end", |snapshot| snapshot.ended.contains_key("uid-llama-worker-1")).await;
    assert!(names(&snapshot, Some("Pod")).contains("llama-worker-1"));
    let snapshot = followed.until("it to be forgotten", |snapshot| snapshot.ended.is_empty()).await;
    assert_eq!(names(&snapshot, Some("Pod")).len(), 1);
    followed.stop().await;
}

#[tokio::test]
async fn a_thousand_pods_at_once() {
    let kube = cluster().await;
    kube.put(owner("llama"));
    let settings = firedoor::cluster::ClusterSettings { max_members: 2000, ..settings() };
    let mut followed = Followed::new(&kube, settings.clone());
    followed.until_ready().await;
    kube.put_all(
        (0..250)
            .map(|index| node(&format!("node-{index}"), if index % 2 == 0 { "zone-a" } else { "zone-b" })),
    );
    kube.put_all((0..1000).map(|index| {
        pod("llama", index, &if index < 4 { NODE.to_owned() } else { format!("node-{}", index / 4) })
    }));
    let snapshot = followed
        .until("all pods and their nodes", |snapshot| {
            names(snapshot, Some("Pod")).len() == 1000 && names(snapshot, Some("Node")).len() == 250
        })
        .await;
    let inventory = Inventory::new(snapshot.objects.clone(), &settings.grouping);
    assert_eq!(inventory.jobs().map(|(_, job)| job.members.len()).collect::<Vec<_>>(), [1000]);
    // And gone at once.
    for index in 0..1000 {
        kube.delete("pods", "ml", &format!("llama-worker-{index}"));
    }
    followed
        .until("all to have ended", |snapshot| {
            !lives(snapshot, "llama-worker-0") && snapshot.requests.watching == 1
        })
        .await;
    followed.stop().await;
}

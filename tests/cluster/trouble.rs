//! Servers that go away, forget, slow down, refuse and send nonsense.

use std::time::Duration;

use firedoor::cluster::{Access, ClusterSettings, Credentials, WhyPartial};
use serde_json::json;

use crate::kube::FakeKube;
use crate::world::*;

async fn two_pods() -> FakeKube {
    let kube = cluster().await;
    kube.put_all([pod("llama", 0, NODE), pod("llama", 1, "node-b"), owner("llama")]);
    kube
}

/// Everything changes: members, addresses, nodes, a policy, a job.
fn change_everything(kube: &FakeKube) {
    kube.delete("pods", "ml", "llama-worker-1");
    let mut moved = pod("llama", 2, "node-c");
    moved["status"]["podIP"] = pod("llama", 1, "node-b")["status"]["podIP"].clone();
    moved["status"]["podIPs"] = pod("llama", 1, "node-b")["status"]["podIPs"].clone();
    kube.put_all([moved, node("node-c", "zone-c"), pod("bert", 0, NODE), pod("bert", 1, "node-b")]);
    kube.put(policy("networking.k8s.io/v1", "NetworkPolicy", Some("ml"), "closed"));
    // A pod of the same name, which is another one.
    let mut again = pod("llama", 0, NODE);
    again["metadata"]["uid"] = json!("uid-again");
    kube.put(again);
}

async fn until_changed(followed: &mut Followed) {
    let snapshot = followed
        .until("everything that changed", |snapshot| {
            let found = names(snapshot, None);
            [
                "Pod/llama-worker-2",
                "Pod/bert-worker-0",
                "Pod/bert-worker-1",
                "NetworkPolicy/closed",
                "Node/node-c",
            ]
            .iter()
            .all(|name| found.contains(*name))
                && snapshot.ended.contains_key("uid-llama-worker-1")
                && snapshot.ended.contains_key("uid-llama-worker-0")
                && snapshot.stale_since.is_none()
        })
        .await;
    assert!(!snapshot.ended.contains_key("uid-again") && snapshot.ready);
    assert_eq!(snapshot.notes, Vec::<String>::new());
}

#[tokio::test]
async fn a_server_that_was_away_and_is_back_with_everything_changed() {
    let kube = two_pods().await;
    let mut followed = Followed::new(&kube, settings());
    followed.until_ready().await;
    kube.go_away();
    let stale = followed.until("the loss to be told", |snapshot| snapshot.stale_since.is_some()).await;
    assert!(stale.ready && lives(&stale, "llama-worker-1"), "what was known stays");
    assert!(stale.notes[0].contains("does not answer since"), "{:?}", stale.notes);
    change_everything(&kube);
    kube.compact();
    let requests = kube.log().len();
    kube.come_back().await;
    until_changed(&mut followed).await;
    let after = kube.log().len() - requests;
    assert!(after < 60, "{after} requests to come back");
    followed.stop().await;
}

#[tokio::test]
async fn cut_connections_are_taken_up_again_without_a_list() {
    let kube = two_pods().await;
    let mut followed = Followed::new(&kube, settings());
    followed.until_ready().await;
    kube.until("the watches", |log| log.iter().filter(|entry| entry.open).count() == 4).await;
    let lists = |kube: &FakeKube| kube.log().iter().filter(|entry| entry.verb == "list").count();
    let before = lists(&kube);
    for round in 0..5 {
        kube.cut();
        kube.put(pod("llama", 10 + round, "node-b"));
        kube.delete("pods", "ml", &format!("llama-worker-{}", 9 + round));
        let name = format!("llama-worker-{}", 10 + round);
        followed.until("what happened meanwhile", |snapshot| lives(snapshot, &name)).await;
    }
    followed
        .until("the deletions", |snapshot| snapshot.ended.len() == 4 && lives(snapshot, "llama-worker-14"))
        .await;
    assert_eq!(lists(&kube), before);
    followed.stop().await;
}

/// The version is too old: told by an event, and by the HTTP status.
#[tokio::test]
async fn a_forgotten_version_is_answered_by_a_new_list() {
    for by_status in [false, true] {
        let kube = two_pods().await;
        if by_status {
            kube.tell_gone_by_status();
        }
        let mut followed = Followed::new(&kube, settings());
        followed.until_ready().await;
        kube.until("the watches", |log| log.iter().filter(|entry| entry.open).count() == 4).await;
        // Between the end of a watch and the next one everything happens, and is forgotten.
        kube.freeze(true);
        change_everything(&kube);
        kube.compact();
        kube.cut();
        kube.freeze(false);
        until_changed(&mut followed).await;
        followed.stop().await;
    }
}

#[tokio::test]
async fn a_list_that_is_forgotten_between_its_pages_begins_anew() {
    let kube = two_pods().await;
    kube.put_all((10..60).map(|index| pod("llama", index, NODE)));
    kube.slow_down(Duration::from_millis(5));
    let mut followed = Followed::new(&kube, ClusterSettings { page: 10, ..settings() });
    // The pages of one list are told apart by their tokens; one is let go in the middle.
    kube.until("a second page", |log| log.iter().any(|entry| entry.query.contains("continue="))).await;
    kube.compact();
    let snapshot = followed.until_ready().await;
    assert_eq!(names(&snapshot, Some("Pod")).len(), 52);
    assert!(kube.log().iter().any(|entry| entry.verb == "list" && entry.status == 410));
    followed.stop().await;
}

/// As behind a proxy that takes watches and passes nothing on: what changed is found by new lists.
#[tokio::test]
async fn a_watch_that_fell_silent_is_taken_for_dead() {
    for from_the_start in [true, false] {
        let kube = two_pods().await;
        kube.freeze(from_the_start);
        let mut followed =
            Followed::new(&kube, ClusterSettings { idle: Duration::from_millis(300), ..settings() });
        followed.until_ready().await;
        kube.freeze(true);
        kube.put(pod("llama", 5, "node-b"));
        kube.delete("pods", "ml", "llama-worker-1");
        kube.put(policy("networking.k8s.io/v1", "NetworkPolicy", Some("ml"), "closed"));
        let found = followed
            .until("what happened meanwhile", |snapshot| {
                lives(snapshot, "llama-worker-5")
                    && !lives(snapshot, "llama-worker-1")
                    && names(snapshot, None).contains("NetworkPolicy/closed")
            })
            .await;
        assert!(found.ready && found.ended.contains_key("uid-llama-worker-1"));
        // Whoever speaks again is believed again.
        kube.freeze(false);
        kube.delete("pods", "ml", "llama-worker-5");
        followed.until("the deletion", |snapshot| !lives(snapshot, "llama-worker-5")).await;
        followed.stop().await;
    }
}

#[tokio::test]
async fn bookmarks_keep_a_quiet_watch_young() {
    let kube = two_pods().await;
    kube.bookmark_every(Duration::from_millis(50));
    let mut followed = Followed::new(&kube, settings());
    followed.until_ready().await;
    kube.until("the watches", |log| log.iter().filter(|entry| entry.open).count() == 4).await;
    // All that happens is none of this node's business, and then it is forgotten.
    kube.put_all((0..50).map(|index| other_pod(index, "node-x")));
    let sent = |log: &[crate::kube::Entry]| -> u64 {
        log.iter().filter(|entry| entry.open).map(|entry| entry.bytes).sum()
    };
    let before = sent(&kube.log());
    kube.until("bookmarks", |log| sent(log) > before + 2000).await;
    kube.compact();
    let lists = kube.log().iter().filter(|entry| entry.verb == "list").count();
    kube.end_watches();
    kube.put(pod("llama", 5, "node-b"));
    followed.until("the new pod", |snapshot| lives(snapshot, "llama-worker-5")).await;
    assert_eq!(kube.log().iter().filter(|entry| entry.verb == "list").count(), lists, "no list was needed");
    followed.stop().await;
}

#[tokio::test]
async fn a_slow_server_is_waited_for() {
    let kube = two_pods().await;
    kube.slow_down(Duration::from_millis(250));
    let mut followed =
        Followed::new(&kube, ClusterSettings { timeout: Duration::from_millis(100), ..settings() });
    let stale = followed.until("it to be told", |snapshot| !snapshot.notes.is_empty()).await;
    assert!(!stale.ready && stale.notes[0].contains("no answer within"), "{:?}", stale.notes);
    kube.slow_down(Duration::ZERO);
    followed.until_ready().await;
    followed.stop().await;
}

#[tokio::test]
async fn a_server_that_wants_to_be_left_alone_is() {
    let kube = two_pods().await;
    kube.throttle(2, 1);
    let begun = std::time::Instant::now();
    let mut followed = Followed::new(&kube, settings());
    followed.until_ready().await;
    // Asked, told to wait a second, asked, told again, asked.
    assert!(begun.elapsed() >= Duration::from_secs(2));
    assert_eq!(kube.log().iter().filter(|entry| entry.status == 429).count(), 2);
    followed.stop().await;
}

#[tokio::test]
async fn an_expired_token_is_read_anew() {
    let kube = two_pods().await;
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("token"), "first").unwrap();
    kube.accept_only(&["first"]);
    let mut followed = Followed::by_kubeconfig(&kube, directory.path(), settings()).await;
    followed.until_ready().await;
    kube.accept_only(&["second"]);
    kube.cut();
    followed
        .until("the refusal to be told", |snapshot| snapshot.notes.iter().any(|n| n.contains("401")))
        .await;
    std::fs::write(directory.path().join("token"), "second").unwrap();
    kube.put(pod("llama", 5, "node-b"));
    let snapshot = followed
        .until("the new pod", |snapshot| lives(snapshot, "llama-worker-5") && snapshot.notes.is_empty())
        .await;
    assert!(snapshot.ready);
    followed.stop().await;
}

#[tokio::test]
async fn over_tls_with_the_clusters_own_authority() {
    let kube = furnished(FakeKube::start_tls().await);
    kube.put_all([pod("llama", 0, NODE), pod("llama", 1, "node-b"), owner("llama")]);
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("token"), "first\n").unwrap();
    kube.accept_only(&["first"]);
    let mut followed = Followed::by_kubeconfig(&kube, directory.path(), settings()).await;
    let snapshot = followed.until_ready().await;
    assert!(lives(&snapshot, "llama-worker-1"));
    kube.cut();
    kube.put(pod("llama", 2, "node-b"));
    followed.until("the new pod", |snapshot| lives(snapshot, "llama-worker-2")).await;
    followed.stop().await;
    // Somebody else's certificate is not taken for it.
    let other = FakeKube::start_tls().await;
    std::fs::write(directory.path().join("ca.pem"), other.authority().unwrap()).unwrap();
    let credentials =
        Credentials::Kubeconfig { path: Some(directory.path().join("kubeconfig")), context: None };
    let mut followed = Followed::with(Access::new(credentials).await.unwrap(), settings());
    let snapshot = followed
        .until("it to be refused", |snapshot| snapshot.notes.iter().any(|n| n.contains("certificate")))
        .await;
    assert!(!snapshot.ready);
    followed.stop().await;
}

#[tokio::test]
async fn what_rbac_refuses_is_done_without_and_told() {
    let kube = two_pods().await;
    kube.put(policy("networking.k8s.io/v1", "NetworkPolicy", Some("ml"), "closed"));
    kube.deny(&["get"], "kubeflow.org", "pytorchjobs", None);
    kube.deny(&["get"], "", "nodes", None);
    kube.deny(&["list", "watch"], "networking.k8s.io", "networkpolicies", Some("ml"));
    kube.deny(&["list", "watch"], "", "namespaces", None);
    kube.deny(&["*"], "", "services", None);
    let mut followed = Followed::new(&kube, settings());
    let snapshot = followed.until_ready().await;
    assert!(lives(&snapshot, "llama-worker-0") && lives(&snapshot, "llama-worker-1"));
    let inventory = firedoor_core::inventory::Inventory::new(snapshot.objects.clone(), &settings().grouping);
    let job = inventory.jobs().next().unwrap().1;
    assert_eq!((job.id.kind.as_str(), job.id.name.as_str(), job.members.len()), ("PyTorchJob", "llama", 2));
    for what in ["PyTorchJob (kubeflow.org/v1)", "nodes", "NetworkPolicy in ml", "namespaces", "services"] {
        let told = snapshot.notes.iter().filter(|note| note.contains(what) && note.contains("403 Forbidden"));
        assert!(told.count() >= 1, "{what}: {:#?}", snapshot.notes);
    }
    assert_eq!(snapshot.notes.len(), 5, "each once: {:#?}", snapshot.notes);
    assert_eq!(snapshot.stale_since, None);

    kube.allow_all();
    let snapshot = followed.until("the rest", |snapshot| snapshot.notes.is_empty()).await;
    for name in
        ["PyTorchJob/llama", "Node/node-b", "NetworkPolicy/closed", "Namespace/ml", "Service/kubernetes"]
    {
        assert!(names(&snapshot, None).contains(name), "{name}");
    }
    followed.stop().await;
}

#[tokio::test]
async fn jobs_that_may_not_be_listed_are_known_in_part() {
    let kube = two_pods().await;
    kube.deny(&["list", "watch"], "", "pods", Some("ml"));
    let mut followed = Followed::new(&kube, settings());
    let snapshot = followed.until_ready().await;
    assert_eq!(snapshot.partial[0].why, WhyPartial::Refused);
    assert!(lives(&snapshot, "llama-worker-0") && !lives(&snapshot, "llama-worker-1"));
    kube.allow_all();
    followed
        .until("the whole job", |snapshot| lives(snapshot, "llama-worker-1") && snapshot.partial.is_empty())
        .await;
    followed.stop().await;
}

#[tokio::test]
async fn a_node_that_may_not_list_its_own_pods_is_not_ready() {
    let kube = two_pods().await;
    kube.deny(&["list"], "", "pods", None);
    let mut followed = Followed::new(&kube, settings());
    let snapshot = followed.until("it to be told", |snapshot| !snapshot.notes.is_empty()).await;
    assert!(
        !snapshot.ready && snapshot.notes[0].contains("nothing is known of this node"),
        "{:?}",
        snapshot.notes
    );
    kube.allow_all();
    followed.until_ready().await;
    followed.stop().await;
}

#[tokio::test]
async fn malformed_objects_cost_themselves_and_are_counted() {
    let kube = two_pods().await;
    // Objects that no API server of Kubernetes' own would let in, but a broken aggregated one or proxy might send.
    let mut nameless = pod("llama", 7, NODE);
    nameless["metadata"]["uid"] = json!(7);
    let mut odd = pod("llama", 8, NODE);
    odd["status"] = json!([1, 2]);
    odd["spec"]["containers"] = json!("none");
    kube.put_all([nameless, odd]);
    let mut followed = Followed::new(&kube, settings());
    followed.until_ready().await;
    kube.until("the watches", |log| log.iter().filter(|entry| entry.open).count() == 4).await;
    let counted = followed.now().requests.malformed;
    assert!(counted >= 1, "{counted}");
    let too_long = format!("{{\"type\":\"ADDED\",\"object\":\"{}\"}}", "x".repeat(9 << 20));
    let lines = [
        "not JSON",
        "{\"type\":\"ADDED\"}",
        "{\"type\":\"ADDED\",\"object\":{\"kind\":\"Node\",\"metadata\":{\"name\":\"n\"}}}",
        "{\"type\":\"ADDED\",\"object\":{\"kind\":\"Pod\",\"metadata\":{\"name\":\"no-uid\",\"namespace\":\"ml\",\"resourceVersion\":\"1\"}}}",
        "{\"type\":\"SOMETHING\",\"object\":{\"kind\":\"Pod\",\"metadata\":{\"name\":\"p\",\"namespace\":\"ml\",\"uid\":\"u\"}}}",
        &too_long,
        "",
    ];
    for line in lines {
        kube.inject("pods", line);
    }
    kube.put(pod("llama", 5, NODE));
    // Each line went to the watch of the node and to that of the job.
    let expected = counted + 2 * lines.len() as u64;
    let snapshot = followed
        .until("the good one", |s| lives(s, "llama-worker-5") && s.requests.malformed >= expected)
        .await;
    assert!(snapshot.notes.iter().any(|note| note.contains("were not understood")), "{:?}", snapshot.notes);
    assert!(!names(&snapshot, Some("Pod")).contains("no-uid"));
    assert_eq!(kube.log().iter().filter(|entry| entry.open).count(), 4, "no watch broke");
    followed.stop().await;
}

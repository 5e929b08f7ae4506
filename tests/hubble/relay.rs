//! Several nodes behind a relay.

use std::time::Duration;

use firedoor::source::hubble::{Role, SourceState};
use firedoor_core::inventory::Inventory;
use firedoor_core::membership::Grouping;
use firedoor_core::observation::Observation;
use firedoor_core::pipeline::Pipeline;
use firedoor_core::settings::Settings;

use crate::client::{Client, everything, on_socket};
use crate::fake::flows::{now, shifted, syn};
use crate::fake::proxy::Proxy;
use crate::fake::{FakeHubble, Traits};

const NODES: [&str; 3] = ["gpu-node-a", "gpu-node-b", "gpu-node-c"];

#[tokio::test]
async fn nodes_that_come_and_go_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let server = FakeHubble::on_socket(Traits::relay(&NODES), directory.path());
    server.set_node("gpu-node-c", false);
    let mut settings = on_socket(&server.path);
    settings.history = Duration::ZERO;
    let mut client = Client::start(settings, everything());
    client.connected().await;
    let SourceState::Up(up) = &client.heard.states[0] else { panic!("it is up") };
    let expected = Role::Relay { connected: Some(2), unavailable: vec!["gpu-node-c".to_owned()] };
    assert_eq!(up.role, expected);
    client.until("what it sees", |heard| heard.sees.len() == 2 && heard.blind == ["gpu-node-c"]).await;

    server.emit(syn("gpu-node-b", "trainer-0", "trainer-1", 1, now()));
    client.until("a flow", |heard| heard.flows == 1).await;
    server.set_node("gpu-node-b", false);
    client.until("blindness", |heard| heard.blind.contains(&"gpu-node-b".to_owned())).await;
    server.emit(syn("gpu-node-b", "trainer-0", "trainer-1", 2, now()));
    server.set_node("gpu-node-b", true);
    // The relay asks the node anew, which tells everything once more.
    client.until("the flow of meanwhile", |heard| heard.flows == 2).await;
    client.until("sight", |heard| heard.sees.len() == 3).await;
    client.during(Duration::from_secs(1)).await;
    assert_eq!(client.heard.flows, 2);
    assert!(client.heard.lost.is_empty(), "{:?}", client.heard.lost);
    assert!(client.heard.passed.again >= 1);
}

#[tokio::test]
async fn a_relays_stream_resumes_for_each_node() {
    let directory = tempfile::tempdir().unwrap();
    let server = FakeHubble::on_socket(Traits::relay(&NODES), directory.path());
    let proxy = Proxy::before(&server.path);
    let mut settings = on_socket(&proxy.path);
    settings.field_mask = false;
    let mut client = Client::start(settings, everything());
    client.until("the stream", |_| !server.requests().is_empty()).await;
    let mut emitted = 0;
    for round in 0..20_usize {
        let streams = server.requests().len();
        for (index, node) in NODES.iter().enumerate() {
            // One of them is silent for a while.
            for _ in 0..if index == round % 3 { 0 } else { 20 } {
                server.emit(syn(node, "trainer-0", "trainer-1", emitted, now()));
                emitted += 1;
            }
        }
        client.during(Duration::from_millis(2)).await;
        proxy.cut();
        client.until("the next stream", |_| server.requests().len() > streams).await;
    }
    client.until("all flows", |heard| heard.flows >= emitted).await;
    client.during(Duration::from_secs(1)).await;
    assert_eq!(client.heard.flows, emitted);
    assert!(client.heard.lost.is_empty(), "{:?}", client.heard.lost);
}

/// Clocks of nodes differ by a minute: everything is attributed, nothing is late.
#[tokio::test]
async fn skewed_clocks_make_nothing_late() {
    let directory = tempfile::tempdir().unwrap();
    let server = FakeHubble::on_socket(Traits::relay(&NODES), directory.path());
    let mut settings = on_socket(&server.path);
    // What a node with a slow clock sees now must not look like history.
    settings.history = Duration::from_secs(60);
    let (to, mut from) = tokio::sync::mpsc::channel(64);
    let (_interest, asked) = tokio::sync::watch::channel(std::sync::Arc::new(everything()));
    let task = tokio::spawn(firedoor::source::hubble::follow(settings, asked, to, std::future::pending()));
    while server.requests().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut emitted = 0_u64;
    for _ in 0..200 {
        for (node, skew) in NODES.into_iter().zip([-30, 0, 30]) {
            server.emit(syn(node, "trainer-0", "trainer-1", emitted, shifted(now(), skew)));
            emitted += 1;
        }
    }
    let mut pipeline = Pipeline::new(Inventory::new(cluster(), &Grouping::default()), Settings::default());
    let mut flows = 0;
    while flows < emitted {
        let told = tokio::time::timeout(crate::client::PATIENCE, from.recv()).await.unwrap().unwrap();
        if let firedoor::source::hubble::Told::Batch(batch) = told {
            batch.observations(|observation| {
                let observation = observation.unwrap();
                flows += u64::from(matches!(observation, Observation::Flow(_)));
                pipeline.observe(observation);
            });
        }
    }
    task.abort();
    let coverage = pipeline.finish().coverage;
    assert_eq!((coverage.received, coverage.attributed, coverage.late), (emitted, emitted, 0));
}

/// A job of two pods.
fn cluster() -> Vec<firedoor_core::object::Object> {
    let pod = |name: &str, ip: &str| {
        serde_json::json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "ml", "uid": format!("uid-{name}"),
                "labels": {"training.kubeflow.org/job-name": "llama", "training.kubeflow.org/job-role": "worker"},
                "ownerReferences": [{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "llama",
                    "uid": "uid-job", "controller": true}]},
            "spec": {"nodeName": "gpu-node-a"},
            "status": {"phase": "Running", "podIP": ip, "startTime": "2020-01-01T00:00:00Z"}})
    };
    let job = serde_json::json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
        "metadata": {"name": "llama", "namespace": "ml", "uid": "uid-job"}});
    let all = [pod("trainer-0", "10.244.1.10"), pod("trainer-1", "10.244.2.20"), job];
    all.into_iter().map(|object| firedoor_core::object::Object::from_value(object).unwrap()).collect()
}

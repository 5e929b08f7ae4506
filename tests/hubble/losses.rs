//! What servers lose, and readers that are too slow.

use std::time::Duration;

use firedoor::source::hubble::Told;

use crate::client::{Client, everything, on_socket};
use crate::fake::flows::{lost, now, syn};
use crate::fake::proxy::Proxy;
use crate::fake::{FakeHubble, Traits};

#[tokio::test]
async fn lost_events_of_all_kinds_come_with_their_cause() {
    let directory = tempfile::tempdir().unwrap();
    let server = FakeHubble::on_socket(Traits::node(), directory.path());
    let mut client = Client::start(on_socket(&server.path), everything());
    client.connected().await;
    client.until("the stream", |_| !server.requests().is_empty()).await;
    server.emit(syn("gpu-node-a", "trainer-0", "trainer-1", 1, now()));
    // A flood: one message for each event.
    let at = now();
    server.emit_all(
        (0..1_000)
            .map(|nanos| lost("gpu-node-a", 1, 1, prost_types::Timestamp { seconds: at.seconds, nanos })),
    );
    server.emit(lost("gpu-node-a", 2, 17, at));
    server.emit(lost("gpu-node-a", 99, 5, at));
    server.emit(syn("gpu-node-a", "trainer-0", "trainer-1", 2, now()));
    client.until("both flows", |heard| heard.flows == 2).await;
    assert_eq!(client.heard.lost_by("PERF_EVENT_RING_BUFFER"), 1_000);
    assert_eq!(client.heard.lost_by("OBSERVER_EVENTS_QUEUE"), 17);
    assert_eq!(client.heard.lost_by(""), 5);
}

/// A flood of losses is a handful of observations.
#[tokio::test]
async fn floods_of_losses_are_few_observations() {
    let directory = tempfile::tempdir().unwrap();
    let server = FakeHubble::on_socket(Traits { capacity: 8191, ..Traits::node() }, directory.path());
    let (to, mut from) = tokio::sync::mpsc::channel(64);
    let (_interest, asked) = tokio::sync::watch::channel(std::sync::Arc::new(everything()));
    let settings = on_socket(&server.path);
    let following = firedoor::source::hubble::follow(settings, asked, to, std::future::pending());
    let task = tokio::spawn(following);
    while server.requests().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let at = now();
    server.emit_all(
        (0..5_000)
            .map(|nanos| lost("gpu-node-a", 1, 1, prost_types::Timestamp { seconds: at.seconds, nanos })),
    );
    let (mut count, mut observations) = (0, 0);
    while count < 5_000 {
        let told = tokio::time::timeout(crate::client::PATIENCE, from.recv()).await.unwrap().unwrap();
        if let Told::Batch(batch) = told {
            batch.observations(|observation| {
                if let Ok(firedoor_core::observation::Observation::Lost(loss)) = observation {
                    count += loss.count;
                    observations += 1;
                }
            });
        }
    }
    assert_eq!(count, 5_000);
    assert!(observations < 500, "{observations} observations");
    task.abort();
}

/// Who does not take what is told stops the source from reading: the server is slowed and says what it lost. What waits
/// meanwhile is bounded.
#[tokio::test]
async fn a_consumer_that_stops_slows_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let server = FakeHubble::on_socket(Traits { capacity: 1023, ..Traits::node() }, directory.path());
    let proxy = Proxy::before(&server.path);
    let mut settings = on_socket(&proxy.path);
    settings.history = Duration::ZERO;
    let (window, batch) = (u64::from(settings.window_bytes), settings.batch_bytes as u64);
    let room = 2;
    let mut client = Client::with_room(settings, everything(), room);
    client.until("the stream", |_| !server.requests().is_empty()).await;
    client.during(Duration::from_millis(100)).await;

    let mut emitted = 0;
    let mut quiet = 0;
    let mut passed = proxy.passed();
    // Until nothing passes any more although there is more to say.
    while quiet < 20 {
        server.emit_all((0..500).map(|n| syn("gpu-node-a", "trainer-0", "trainer-1", emitted + n, now())));
        emitted += 500;
        tokio::time::sleep(Duration::from_millis(10)).await;
        quiet = if proxy.passed() == passed { quiet + 1 } else { 0 };
        passed = proxy.passed();
        assert!(emitted < 2_000_000, "the server is never slowed");
    }
    // A quarter of a megabyte for what is said besides, in all the time that this took.
    let most = window + batch * (room as u64 + 2) + (256 << 10);
    assert!(passed < most, "{passed} bytes were taken, {most} are allowed");

    client
        .until("all flows or their loss", |heard| {
            heard.flows + heard.lost_by("HUBBLE_RING_BUFFER") == emitted
        })
        .await;
    assert!(server.overruns() > 0);
    assert_eq!(client.heard.lost_by("HUBBLE_RING_BUFFER"), server.overruns());
    assert_eq!(client.heard.downs(), 0, "{:?}", client.heard.states);
}

//! Connecting, asking, and taking what comes.

use firedoor::source::hubble::{Role, SourceState};

use crate::client::{Client, everything, on_socket, pods};
use crate::fake::flows::{denial, now, syn};
use crate::fake::{FakeHubble, Traits};

#[tokio::test]
async fn flows_arrive_over_a_unix_socket() {
    let directory = tempfile::tempdir().unwrap();
    let server = FakeHubble::on_socket(Traits::node(), directory.path());
    let mut client = Client::start(on_socket(&server.path), everything());
    client.connected().await;
    for number in 0..100 {
        server.emit(syn("gpu-node-a", "trainer-0", "trainer-1", number, now()));
    }
    server.emit_all(denial("gpu-node-a", "trainer-0", "trainer-1", 200, now()));
    client.until("102 flows", |heard| heard.flows == 102).await;
    assert_eq!(client.heard.rejected, 0);
    assert_eq!(client.heard.lost.len(), 0);
    let SourceState::Up(up) = &client.heard.states[0] else { panic!("it is up") };
    assert_eq!((up.version.as_deref(), &up.role), (Some("1.19.4"), &Role::Node));
}

#[tokio::test]
async fn only_what_was_asked_for_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let server = FakeHubble::on_socket(Traits::node(), directory.path());
    // The server's filter is a prefix: trainer-1 means trainer-10, too.
    let mut client = Client::start(on_socket(&server.path), pods(&["trainer-1"]));
    client.connected().await;
    for (number, (from, to)) in [
        ("trainer-10", "trainer-2"),
        ("trainer-3", "trainer-2"),
        ("trainer-1", "trainer-2"),
        ("trainer-2", "trainer-1"),
    ]
    .into_iter()
    .enumerate()
    {
        server.emit(syn("gpu-node-a", from, to, number as u64, now()));
    }
    client.until("two flows", |heard| heard.flows == 2).await;
    assert_eq!(client.heard.passed.unasked, 1);
}

/// Nothing is wrong with a stream that ends, but nothing is watched any more either.
#[tokio::test]
async fn a_stream_that_ends_well_is_told_as_that() {
    let directory = tempfile::tempdir().unwrap();
    let server = FakeHubble::on_socket(Traits::node(), directory.path());
    let mut client = Client::start(on_socket(&server.path), everything());
    client.connected().await;
    client.until("the stream", |_| !server.requests().is_empty()).await;
    server.end_streams();
    client.until("its end", |heard| heard.downs() > 0).await;
    let down = client.heard.states.iter().find_map(|state| match state {
        SourceState::Down { why, .. } => Some(why.as_str()),
        SourceState::Up(_) => None,
    });
    assert!(down.is_some_and(|why| why.contains("the server ended the stream")), "{down:?}");
    // It is asked again, and what comes then is taken.
    client.until("another stream", |_| server.requests().len() > 1).await;
    server.emit(syn("gpu-node-a", "trainer-0", "trainer-1", 1, now()));
    client.until("a flow", |heard| heard.flows == 1).await;
}

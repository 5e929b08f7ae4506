//! Servers of different versions and moods, and questions that change.

use std::sync::Arc;
use std::time::Duration;

use firedoor::source::hubble::Interest;

use crate::client::{Client, everything, on_socket, pods};
use crate::fake::flows::{as_of_1_13, denial, now, syn};
use crate::fake::{FakeHubble, Traits};

async fn follows(traits: Traits, old: bool) -> (bool, u64) {
    let directory = tempfile::tempdir().unwrap();
    let server = FakeHubble::on_socket(traits, directory.path());
    let mut client = Client::start(on_socket(&server.path), pods(&["trainer-0"]));
    client.until("the stream", |_| !server.requests().is_empty()).await;
    let form = |response| if old { as_of_1_13(response) } else { response };
    server.emit(form(syn("gpu-node-a", "trainer-0", "trainer-1", 1, now())));
    server.emit(form(syn("gpu-node-a", "other-0", "other-1", 2, now())));
    server.emit_all(denial("gpu-node-a", "trainer-1", "trainer-0", 3, now()).map(form));
    client.until("3 flows", |heard| heard.flows == 3).await;
    assert_eq!((client.heard.rejected, client.heard.lost.len(), client.heard.downs()), (0, 0, 0));
    let masked = server.requests().last().unwrap().field_mask.is_some();
    (masked, client.heard.passed.unasked)
}

#[tokio::test]
async fn old_and_new_servers_are_understood() {
    assert_eq!(follows(Traits { version: "1.19.4", ..Traits::node() }, false).await, (true, 0));
    assert_eq!(
        follows(Traits { version: "cilium v1.21.0-dev+g1234", ..Traits::node() }, false).await,
        (true, 0)
    );
    // It ignores filters that it does not know: what nobody asked for is passed over here.
    let old = Traits { version: "1.13.4", filters: false, ..Traits::node() };
    assert_eq!(follows(old.clone(), true).await, (false, 1));
    // It knows nothing but flows.
    assert_eq!(follows(Traits { status: false, ..old }, true).await, (false, 1));
    // It knows other fields than those that are asked for.
    assert_eq!(follows(Traits { refuses_mask: true, ..Traits::node() }, false).await, (false, 0));
}

/// Nothing of interest: it is known that the server is there, and nothing is asked of it.
#[tokio::test]
async fn a_question_that_changes() {
    let directory = tempfile::tempdir().unwrap();
    let server = FakeHubble::on_socket(Traits::node(), directory.path());
    let mut client = Client::start(on_socket(&server.path), Interest::default());
    client.connected().await;
    client.during(Duration::from_millis(300)).await;
    assert!(server.requests().is_empty());

    // What happened to a pod just before it was known to be of interest.
    server.emit(syn("gpu-node-a", "trainer-0", "trainer-9", 1, now()));
    client.interest.send_replace(Arc::new(pods(&["trainer-0"])));
    client.until("a flow", |heard| heard.flows == 1).await;
    for number in 2..500 {
        if number == 250 {
            client.interest.send_replace(Arc::new(pods(&["trainer-0", "trainer-1"])));
        }
        server.emit(syn("gpu-node-a", "trainer-0", "trainer-9", number, now()));
        client.during(Duration::from_micros(50)).await;
    }
    client.until("all flows", |heard| heard.flows == 499).await;
    client.interest.send_replace(Arc::new(Interest::default()));
    client.during(Duration::from_millis(500)).await;
    server.emit_all((500..6_000).map(|number| syn("gpu-node-a", "trainer-0", "trainer-9", number, now())));
    client.interest.send_replace(Arc::new(everything()));
    client.during(Duration::from_millis(1_000)).await;
    // What happened while nobody asked is nobody's gap.
    assert!(client.heard.lost.is_empty(), "{:?}", client.heard.lost);
    assert_eq!(client.heard.downs(), 0);
    server.emit(syn("gpu-node-a", "trainer-0", "trainer-9", 6_000, now()));
    let before = client.heard.flows;
    client.until("one more", |heard| heard.flows > before).await;
}

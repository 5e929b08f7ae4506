//! The tests' own API server, asked by a client that is not firedoor's: kube's.

use k8s_openapi::api::core::v1::{Event, Namespace, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::kube::FakeKube;
use crate::world::*;

fn code(error: &kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        other => panic!("no answer: {other}"),
    }
}

#[tokio::test]
async fn events_are_created_patched_and_deleted() {
    let kube = FakeKube::start().await;
    let events: Api<Event> = Api::namespaced(kube.client(), "ml");
    let event: Event =
        serde_json::from_value(json!({"metadata": {"generateName": "firedoor-", "namespace": "ml"},
        "involvedObject": {"kind": "Pod", "name": "p"}, "reason": "Blocked", "count": 1}))
        .unwrap();
    let made = events.create(&PostParams::default(), &event).await.unwrap();
    let name = made.metadata.name.clone().unwrap();
    assert!(name.starts_with("firedoor-") && made.metadata.uid.is_some());
    let patch = Patch::Merge(json!({"count": 2, "reason": null}));
    let patched = events.patch(&name, &PatchParams::default(), &patch).await.unwrap();
    assert_eq!((patched.count, patched.reason), (Some(2), None));
    assert_ne!(patched.metadata.resource_version, made.metadata.resource_version);
    let again = events.create(&PostParams::default(), &made).await.unwrap_err();
    assert_eq!(code(&again), 409);
    let stale = events.replace(&name, &PostParams::default(), &made).await.unwrap_err();
    assert_eq!(code(&stale), 409);
    events.delete(&name, &DeleteParams::default()).await.unwrap();
    assert_eq!(code(&events.get(&name).await.unwrap_err()), 404);
    kube.deny(&["create"], "", "events", Some("ml"));
    assert_eq!(code(&events.create(&PostParams::default(), &event).await.unwrap_err()), 403);
}

#[tokio::test]
async fn lists_come_in_pages_and_by_selectors() {
    let kube = cluster().await;
    kube.put_all((0..25).map(|index| pod("llama", index, if index % 5 == 0 { NODE } else { "node-b" })));
    let pods: Api<Pod> = Api::namespaced(kube.client(), "ml");
    let page = pods.list(&ListParams::default().limit(10)).await.unwrap();
    assert_eq!((page.items.len(), page.metadata.remaining_item_count), (10, Some(15)));
    let here = ListParams::default().fields(&format!("spec.nodeName={NODE}")).limit(3);
    let page = pods.list(&here).await.unwrap();
    assert_eq!(
        (page.items.len(), page.metadata.remaining_item_count),
        (3, None),
        "nobody counts what is selected"
    );
    let rest = here.continue_token(&page.metadata.continue_.unwrap());
    assert_eq!(pods.list(&rest).await.unwrap().items.len(), 2);
    assert_eq!(code(&pods.list(&rest).await.unwrap_err()), 410, "a token is good once");
    let count = async |labels: &str| {
        pods.list(&ListParams::default().labels(labels)).await.map(|list| list.items.len())
    };
    let index = "training.kubeflow.org/replica-index";
    assert_eq!(count(&format!("{index} in (1, 2, 99)")).await.unwrap(), 2);
    assert_eq!(count(&format!("{index} notin (1,2),{index}!=3")).await.unwrap(), 22);
    assert_eq!((count(&format!("!{index}")).await.unwrap(), count(index).await.unwrap()), (0, 25));
    assert_eq!(code(&count("a b").await.unwrap_err()), 400);
    let unknown = pods.list(&ListParams::default().fields("spec.hostname=x")).await.unwrap_err();
    assert_eq!(code(&unknown), 400);
    let namespaces: Api<Namespace> = Api::all(kube.client());
    assert_eq!(namespaces.list(&ListParams::default()).await.unwrap().items.len(), 3);
    assert!(
        kube.client()
            .list_api_groups()
            .await
            .unwrap()
            .groups
            .iter()
            .any(|group| group.name == "kubeflow.org")
    );
}

#[tokio::test]
async fn a_pods_port_is_reached_through_the_proxy() {
    let kube = cluster().await;
    kube.put(pod("agent", 0, NODE));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    kube.route("ml", "agent-worker-0", 9745, listener.local_addr().unwrap());
    let served = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = vec![0; 1024];
        let read = stream.read(&mut request).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n{\"jobs\":[]}").await.unwrap();
        String::from_utf8_lossy(&request[..read]).into_owned()
    });
    let get = async |path: &str| {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        kube.client().request::<Value>(request).await
    };
    let pods = "/api/v1/namespaces/ml/pods";
    let report = get(&format!("{pods}/agent-worker-0:9745/proxy/api/v1/report?window=10m")).await.unwrap();
    assert_eq!(report, json!({"jobs": []}));
    assert!(served.await.unwrap().starts_with("GET /api/v1/report?window=10m "));
    assert_eq!(code(&get(&format!("{pods}/agent-worker-0:1/proxy/")).await.unwrap_err()), 503);
    assert_eq!(code(&get(&format!("{pods}/nobody:9745/proxy/")).await.unwrap_err()), 404);
    kube.deny(&["get"], "", "pods/proxy", None);
    assert_eq!(code(&get(&format!("{pods}/agent-worker-0:9745/proxy/")).await.unwrap_err()), 403);
}

//! A Hubble server for tests, true to Cilium's: a ring of fixed size, readers that are overtaken, filters, field masks,
//! status, TLS, restarts; a relay over several nodes. Enters: flows to be seen; leaves: gRPC over real sockets, and a log
//! of everything that was ever emitted. Must not know the client.

mod filter;
pub(crate) mod flows;
pub(crate) mod proxy;
mod ring;
mod service;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use firedoor_proto::observer::GetFlowsRequest;
use firedoor_proto::observer::GetFlowsResponse;
use firedoor_proto::observer::observer_server::ObserverServer;
use prost::Message as _;
use ring::Ring;
use service::Service;
use tokio::sync::watch;
use tonic::transport::ServerTlsConfig;

/// What kind of server it is.
#[derive(Clone, Debug)]
pub(crate) struct Traits {
    /// Events that a node's ring holds.
    pub(crate) capacity: usize,
    /// Its version, as it tells it.
    pub(crate) version: &'static str,
    /// The nodes it tells of: one, or those behind a relay.
    pub(crate) nodes: Vec<&'static str>,
    /// Whether it is a relay.
    pub(crate) relay: bool,
    /// Whether it answers `ServerStatus`.
    pub(crate) status: bool,
    /// Whether it knows filters and field masks, or ignores them as unknown.
    pub(crate) filters: bool,
    /// Whether it refuses field masks.
    pub(crate) refuses_mask: bool,
}

impl Traits {
    pub(crate) fn node() -> Self {
        Self {
            capacity: 4095,
            version: "1.19.4",
            nodes: vec!["gpu-node-a"],
            relay: false,
            status: true,
            filters: true,
            refuses_mask: false,
        }
    }

    pub(crate) fn relay(nodes: &[&'static str]) -> Self {
        Self { nodes: nodes.to_vec(), relay: true, ..Self::node() }
    }
}

/// An event as it was put into a ring.
#[derive(Clone, Debug)]
pub(crate) struct Emitted {
    pub(crate) node: String,
    pub(crate) response: GetFlowsResponse,
}

/// One node's server.
pub(crate) struct NodeState {
    pub(crate) ring: Ring,
    pub(crate) up: bool,
    started: Instant,
    seen: u64,
}

/// Everything that changes.
pub(crate) struct State {
    pub(crate) traits: Traits,
    pub(crate) nodes: BTreeMap<String, NodeState>,
    /// Grows with every restart: streams of an earlier one end.
    generation: u64,
    /// Whether streams end with nothing wrong.
    pub(crate) ends_well: bool,
    /// Everything that was ever emitted, in order.
    log: Vec<Emitted>,
    /// What was asked for.
    requests: Vec<GetFlowsRequest>,
    /// Certificates that clients showed.
    clients: Vec<Vec<u8>>,
    /// `LostEvent`s made up for slow readers.
    overruns: u64,
}

pub(crate) struct Shared {
    state: Mutex<State>,
    changed: watch::Sender<u64>,
}

impl Shared {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn touch(&self) {
        self.changed.send_modify(|count| *count += 1);
    }
}

/// The server.
pub(crate) struct FakeHubble {
    shared: Arc<Shared>,
    pub(crate) path: PathBuf,
    task: tokio::task::JoinHandle<()>,
}

fn nodes(traits: &Traits) -> BTreeMap<String, NodeState> {
    let node = |name: &&str| {
        let ring = Ring::new(traits.capacity);
        ((*name).to_owned(), NodeState { ring, up: true, started: Instant::now(), seen: 0 })
    };
    traits.nodes.iter().map(node).collect()
}

impl FakeHubble {
    fn shared(traits: Traits) -> Arc<Shared> {
        let state = State {
            nodes: nodes(&traits),
            traits,
            generation: 0,
            ends_well: false,
            log: Vec::new(),
            requests: Vec::new(),
            clients: Vec::new(),
            overruns: 0,
        };
        Arc::new(Shared { state: Mutex::new(state), changed: watch::Sender::new(0) })
    }

    /// Listens on a unix socket in this directory.
    pub(crate) fn on_socket(traits: Traits, directory: &Path) -> Self {
        let shared = Self::shared(traits);
        let path = directory.join("hubble.sock");
        let listener = tokio::net::UnixListener::bind(&path).expect("the socket can be bound");
        let service = ObserverServer::new(Service(Arc::clone(&shared)));
        let incoming = futures_util::stream::unfold(listener, async |listener| {
            let accepted = listener.accept().await.map(|(stream, _)| stream);
            Some((accepted, listener))
        });
        let serving = tonic::transport::Server::builder().serve_with_incoming(service, Box::pin(incoming));
        let task = tokio::spawn(async move { serving.await.expect("it serves") });
        Self { shared, path, task }
    }

    /// Listens on a port of this machine, with TLS. Gives the port, too.
    pub(crate) async fn on_port(traits: Traits, tls: Option<ServerTlsConfig>) -> (Self, u16) {
        let shared = Self::shared(traits);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("it has an address").port();
        let mut server = tonic::transport::Server::builder();
        if let Some(tls) = tls {
            server = server.tls_config(tls).expect("the certificates fit");
        }
        let service = ObserverServer::new(Service(Arc::clone(&shared)));
        let incoming = tonic::transport::server::TcpIncoming::from(listener);
        let serving = server.serve_with_incoming(service, incoming);
        let task = tokio::spawn(async move { serving.await.expect("it serves") });
        (Self { shared, path: PathBuf::new(), task }, port)
    }

    /// Puts an event of a node into its ring.
    pub(crate) fn emit(&self, response: GetFlowsResponse) {
        self.emit_all([response]);
    }

    pub(crate) fn emit_all(&self, responses: impl IntoIterator<Item = GetFlowsResponse>) {
        let mut state = self.shared.state();
        for response in responses {
            let name = response.node_name.rsplit('/').next().unwrap_or_default().to_owned();
            let node = state.nodes.get_mut(&name).expect("a node of this server");
            node.seen += u64::from(flows::is_flow(&response));
            node.ring.write(response.clone());
            state.log.push(Emitted { node: name, response });
        }
        drop(state);
        self.shared.touch();
    }

    /// Everything that was ever emitted.
    pub(crate) fn log(&self) -> Vec<Emitted> {
        self.shared.state().log.clone()
    }

    /// What was asked for so far.
    pub(crate) fn requests(&self) -> Vec<GetFlowsRequest> {
        self.shared.state().requests.clone()
    }

    /// Certificates that clients showed so far, one a stream.
    pub(crate) fn clients(&self) -> Vec<Vec<u8>> {
        self.shared.state().clients.clone()
    }

    /// Events that were overwritten before a reader came to them.
    pub(crate) fn overruns(&self) -> u64 {
        self.shared.state().overruns
    }

    /// Starts anew with an empty ring: what was in it is gone, and all streams end.
    pub(crate) fn restart(&self) {
        let mut state = self.shared.state();
        state.nodes = nodes(&state.traits);
        state.generation += 1;
        drop(state);
        self.shared.touch();
    }

    /// Ends all streams as one that is read to its end: with nothing wrong.
    pub(crate) fn end_streams(&self) {
        let mut state = self.shared.state();
        state.generation += 1;
        state.ends_well = true;
        drop(state);
        self.shared.touch();
    }

    /// A node becomes reachable or unreachable for the relay.
    pub(crate) fn set_node(&self, name: &str, up: bool) {
        self.shared.state().nodes.get_mut(name).expect("a node of this relay").up = up;
        self.shared.touch();
    }
}

impl Drop for FakeHubble {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Emitted {
    /// What tells it from all others.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.response.encode_to_vec()
    }
}

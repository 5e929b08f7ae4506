//! The calls. Enters: requests; leaves: what Cilium would answer.

use std::pin::Pin;
use std::sync::Arc;

use firedoor_proto::flow::Flow;
use firedoor_proto::observer::get_flows_response::ResponseTypes;
use firedoor_proto::observer::observer_server::Observer;
use firedoor_proto::observer::{
    GetFlowsRequest, GetFlowsResponse, GetNodesRequest, GetNodesResponse, Node, ServerStatusRequest,
    ServerStatusResponse,
};
use firedoor_proto::relay::NodeStatusEvent;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::ring::Read;
use super::{NodeState, Shared, filter, flows};

pub(super) struct Service(pub(super) Arc<Shared>);

type Sender = mpsc::Sender<Result<GetFlowsResponse, Status>>;

impl Service {
    /// What every answer says of the server.
    fn signed<T>(&self, message: T) -> Response<T> {
        let state = self.0.state();
        let mut response = Response::new(message);
        let name = if state.traits.relay { "hubble-relay-version" } else { "hubble-server-version" };
        response.metadata_mut().insert(name, state.traits.version.parse().expect("a version"));
        response
    }
}

#[tonic::async_trait]
impl Observer for Service {
    type GetFlowsStream = Pin<Box<dyn Stream<Item = Result<GetFlowsResponse, Status>> + Send>>;

    async fn get_flows(
        &self,
        request: Request<GetFlowsRequest>,
    ) -> Result<Response<Self::GetFlowsStream>, Status> {
        let certificates = request.peer_certs();
        let request = request.into_inner();
        if request.first && request.follow {
            return Err(Status::invalid_argument("first cannot be specified with follow"));
        }
        let (to, stream) = mpsc::channel(16);
        let names: Vec<String> = {
            let mut state = self.0.state();
            if state.traits.refuses_mask && request.field_mask.is_some() {
                return Err(Status::invalid_argument("invalid field mask path"));
            }
            let first = certificates.iter().flat_map(|all| all.first()).map(|first| first.to_vec());
            state.clients.extend(first);
            state.requests.push(request.clone());
            state.nodes.keys().cloned().collect()
        };
        let relay = self.0.state().traits.relay;
        for name in names {
            let reader = Reader::new(&self.0, &name, request.clone(), to.clone());
            if relay {
                tokio::spawn(reader.behind_a_relay());
            } else {
                tokio::spawn(reader.run());
            }
        }
        Ok(self.signed(Box::pin(ReceiverStream::new(stream))))
    }

    async fn get_nodes(&self, _: Request<GetNodesRequest>) -> Result<Response<GetNodesResponse>, Status> {
        let nodes = {
            let state = self.0.state();
            if !state.traits.relay {
                return Err(Status::unimplemented("GetNodes not implemented"));
            }
            let nodes = state.nodes.iter().map(|(name, node)| node_of(name, node, state.traits.version));
            nodes.collect()
        };
        Ok(self.signed(GetNodesResponse { nodes }))
    }

    async fn server_status(
        &self,
        _: Request<ServerStatusRequest>,
    ) -> Result<Response<ServerStatusResponse>, Status> {
        let status = {
            let state = self.0.state();
            if !state.traits.status {
                return Err(Status::unimplemented("unknown method ServerStatus"));
            }
            let up = || state.nodes.values().filter(|node| node.up);
            let number = |count: usize| u32::try_from(count).expect("few nodes");
            let down = state.nodes.iter().filter(|(_, node)| !node.up).map(|(name, _)| name.clone());
            let down: Vec<String> = down.collect();
            ServerStatusResponse {
                num_flows: up().map(|node| node.ring.len()).sum(),
                max_flows: up().count() as u64 * state.traits.capacity as u64,
                seen_flows: up().map(|node| node.seen).sum(),
                uptime_ns: up().map(NodeState::uptime).max().unwrap_or(0),
                num_connected_nodes: state.traits.relay.then(|| number(up().count())),
                num_unavailable_nodes: state.traits.relay.then(|| number(down.len())),
                unavailable_nodes: down,
                version: state.traits.version.to_owned(),
                flows_rate: 0.0,
            }
        };
        Ok(self.signed(status))
    }
}

impl NodeState {
    fn uptime(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).expect("not centuries")
    }
}

fn node_of(name: &str, node: &NodeState, version: &str) -> Node {
    let told = Node { name: name.to_owned(), state: if node.up { 1 } else { 2 }, ..Node::default() };
    if !node.up {
        return told;
    }
    Node {
        version: version.to_owned(),
        uptime_ns: node.uptime(),
        num_flows: node.ring.len(),
        max_flows: node.ring.capacity() as u64,
        seen_flows: node.seen,
        ..told
    }
}

/// Reads one node's ring for one client.
struct Reader {
    shared: Arc<Shared>,
    node: String,
    request: GetFlowsRequest,
    to: Sender,
    generation: u64,
}

/// What a look into the ring gave.
enum Look {
    Send(Vec<GetFlowsResponse>),
    Wait,
    Restarted,
    Unreachable,
}

impl Reader {
    fn new(shared: &Arc<Shared>, node: &str, request: GetFlowsRequest, to: Sender) -> Self {
        let generation = shared.state().generation;
        Self { shared: Arc::clone(shared), node: node.to_owned(), request, to, generation }
    }

    /// Where to begin: as far back as the request says.
    fn start(&self) -> u64 {
        let state = self.shared.state();
        let ring = &state.nodes[&self.node].ring;
        let request = &self.request;
        if request.first && request.since.is_none() {
            return ring.first();
        }
        if request.follow && request.number == 0 && request.since.is_none() {
            return ring.end();
        }
        let mut found = 0;
        ring.rewind(|event| {
            if !flows::is_flow(event) || (state.traits.filters && !filter::passes(request, event)) {
                return request.since.is_some() || found < request.number;
            }
            let young = request.since.is_none_or(|since| later(event, since));
            let more = young && (request.since.is_some() || found < request.number);
            found += 1;
            more
        })
    }

    fn look(&self, position: &mut u64, sent: u64) -> Look {
        let mut state = self.shared.state();
        if state.generation != self.generation {
            return Look::Restarted;
        }
        let (relay, filters) = (state.traits.relay, state.traits.filters);
        let mut found = Vec::new();
        let mut overtaken = 0;
        {
            let Some(node) = state.nodes.get(&self.node) else { return Look::Restarted };
            if relay && !node.up {
                return Look::Unreachable;
            }
            while found.len() < 64
                && (self.request.follow || self.request.number == 0 || sent < self.request.number)
            {
                match node.ring.read(*position) {
                    Read::Nothing => break,
                    Read::Overtaken => {
                        overtaken += 1;
                        found.push(flows::lost(&self.node, 3, 1, flows::now()));
                    }
                    Read::Event(event) => {
                        let in_time = !flows::is_flow(&event)
                            || self.request.since.is_none_or(|since| later(&event, since));
                        if in_time && (!filters || filter::passes(&self.request, &event)) {
                            found.push(if filters { self.masked(*event) } else { *event });
                        }
                    }
                }
                *position += 1;
            }
        }
        state.overruns += overtaken;
        if found.is_empty() { Look::Wait } else { Look::Send(found) }
    }

    async fn run(self) {
        let mut changed = self.shared.changed.subscribe();
        let mut position = self.start();
        let mut sent = 0;
        loop {
            match self.look(&mut position, sent) {
                Look::Send(events) => {
                    for event in events {
                        sent += u64::from(flows::is_flow(&event));
                        if self.to.send(Ok(event)).await.is_err() {
                            return;
                        }
                    }
                }
                Look::Wait if !self.request.follow => return,
                Look::Wait => {
                    tokio::select! {
                        _ = changed.changed() => {}
                        () = self.to.closed() => return,
                    }
                }
                Look::Restarted if self.shared.state().ends_well => return,
                Look::Restarted => {
                    let _ = self.to.send(Err(Status::unavailable("the server is going away"))).await;
                    return;
                }
                Look::Unreachable => return,
            }
        }
    }

    /// A relay asks the node anew, as it was asked itself, whenever the node comes back.
    async fn behind_a_relay(self) {
        let mut changed = self.shared.changed.subscribe();
        let mut told = None;
        while !self.to.is_closed() && self.shared.state().generation == self.generation {
            let up = self.shared.state().nodes[&self.node].up;
            if told != Some(up) {
                let state = if up { 1 } else { 2 };
                let status = NodeStatusEvent {
                    state_change: state,
                    node_names: vec![self.node.clone()],
                    message: String::new(),
                };
                let status = flows::of("relay", flows::now(), ResponseTypes::NodeStatus(status));
                if self.to.send(Ok(status)).await.is_err() {
                    return;
                }
                told = Some(up);
            }
            if up {
                Self {
                    shared: Arc::clone(&self.shared),
                    node: self.node.clone(),
                    request: self.request.clone(),
                    to: self.to.clone(),
                    ..self
                }
                .run()
                .await;
                continue;
            }
            tokio::select! {
                _ = changed.changed() => {}
                () = self.to.closed() => return,
            }
        }
    }

    /// Only the fields that were asked for, at the depth that clients ask for.
    fn masked(&self, mut event: GetFlowsResponse) -> GetFlowsResponse {
        let (Some(mask), Some(ResponseTypes::Flow(flow))) =
            (&self.request.field_mask, &mut event.response_types)
        else {
            return event;
        };
        let has = |path: &str| mask.paths.iter().any(|p| p == path);
        let whole = std::mem::take(flow);
        let end = |endpoint: Option<firedoor_proto::flow::Endpoint>, name: &str| {
            endpoint.map(|endpoint| firedoor_proto::flow::Endpoint {
                identity: if has(&format!("{name}.identity")) { endpoint.identity } else { 0 },
                namespace: if has(&format!("{name}.namespace")) { endpoint.namespace } else { String::new() },
                pod_name: if has(&format!("{name}.pod_name")) { endpoint.pod_name } else { String::new() },
                ..firedoor_proto::flow::Endpoint::default()
            })
        };
        *flow = Flow {
            time: whole.time.filter(|_| has("time")),
            verdict: if has("verdict") { whole.verdict } else { 0 },
            drop_reason: if has("drop_reason") { whole.drop_reason } else { 0 },
            drop_reason_desc: if has("drop_reason_desc") { whole.drop_reason_desc } else { 0 },
            ip: whole.ip.filter(|_| has("IP")),
            l4: whole.l4.filter(|_| has("l4")),
            source: end(whole.source, "source"),
            destination: end(whole.destination, "destination"),
            node_name: if has("node_name") { whole.node_name } else { String::new() },
            event_type: whole.event_type.filter(|_| has("event_type")),
            traffic_direction: if has("traffic_direction") { whole.traffic_direction } else { 0 },
            is_reply: whole.is_reply.filter(|_| has("is_reply")),
            uuid: if has("uuid") { whole.uuid } else { String::new() },
            trace_reason: if has("trace_reason") { whole.trace_reason } else { 0 },
            egress_denied_by: if has("egress_denied_by") { whole.egress_denied_by } else { Vec::new() },
            ingress_denied_by: if has("ingress_denied_by") { whole.ingress_denied_by } else { Vec::new() },
            ..Flow::default()
        };
        event
    }
}

fn later(event: &GetFlowsResponse, since: prost_types::Timestamp) -> bool {
    event.time.is_some_and(|at| (at.seconds, at.nanos) >= (since.seconds, since.nanos))
}

//! A Hubble server that tells of every pair again and again, at a steady pace.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use firedoor_proto::flow::layer4::Protocol;
use firedoor_proto::flow::{CiliumEventType, Endpoint, Flow, Ip, Layer4, Tcp, TcpFlags};
use firedoor_proto::observer::get_flows_response::ResponseTypes;
use firedoor_proto::observer::observer_server::{Observer, ObserverServer};
use firedoor_proto::observer::{
    GetFlowsRequest, GetFlowsResponse, GetNodesRequest, GetNodesResponse, ServerStatusRequest,
    ServerStatusResponse,
};
use futures_util::Stream;
use futures_util::stream::unfold;
use tonic::{Request, Response, Status};

use crate::world::{Member, NODE, PAIRS, World};

/// In which time every pair is told of once.
const ROUND: Duration = Duration::from_secs(10);
/// Events in a burst.
const BURST: usize = 500;

struct Service {
    world: Arc<World>,
    told: Arc<AtomicU64>,
}

/// Starts serving; what it gives tells how many flows were sent.
pub(crate) fn serve(socket: &Path, world: World) -> impl Fn() -> u64 + use<> {
    let told = Arc::new(AtomicU64::new(0));
    let service = Service { world: Arc::new(world), told: Arc::clone(&told) };
    let listener = tokio::net::UnixListener::bind(socket).expect("the socket can be bound");
    let incoming = unfold(listener, async |listener| {
        let accepted = listener.accept().await.map(|(stream, _)| stream);
        Some((accepted, listener))
    });
    let server = tonic::transport::Server::builder()
        .serve_with_incoming(ObserverServer::new(service), Box::pin(incoming));
    tokio::spawn(async move { server.await.expect("it serves") });
    move || told.load(Ordering::Relaxed)
}

type Flows = Pin<Box<dyn Stream<Item = Result<GetFlowsResponse, Status>> + Send>>;

#[tonic::async_trait]
impl Observer for Service {
    type GetFlowsStream = Flows;

    async fn get_flows(&self, request: Request<GetFlowsRequest>) -> Result<Response<Flows>, Status> {
        if !request.into_inner().follow {
            return Ok(Response::new(Box::pin(futures_util::stream::empty())));
        }
        let (world, told) = (Arc::clone(&self.world), Arc::clone(&self.told));
        let mut ticks = tokio::time::interval(ROUND / u32::try_from(PAIRS / BURST).expect("a few bursts"));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let flows = unfold((0_usize, ticks), move |(number, mut ticks)| {
            let (world, told) = (Arc::clone(&world), Arc::clone(&told));
            async move {
                if number.is_multiple_of(BURST) {
                    ticks.tick().await;
                }
                told.fetch_add(1, Ordering::Relaxed);
                Some((Ok(flow(&world, number)), (number + 1, ticks)))
            }
        });
        Ok(Response::new(Box::pin(flows)))
    }

    async fn get_nodes(&self, _: Request<GetNodesRequest>) -> Result<Response<GetNodesResponse>, Status> {
        Err(Status::unimplemented("GetNodes not implemented"))
    }

    async fn server_status(
        &self,
        _: Request<ServerStatusRequest>,
    ) -> Result<Response<ServerStatusResponse>, Status> {
        let seen = self.told.load(Ordering::Relaxed);
        Ok(Response::new(ServerStatusResponse {
            num_flows: seen.min(4095),
            max_flows: 4095,
            seen_flows: seen,
            version: "cilium v1.19.4".to_owned(),
            ..ServerStatusResponse::default()
        }))
    }
}

fn endpoint(member: &Member) -> Endpoint {
    Endpoint {
        id: if member.local { 101 } else { 0 },
        identity: 50_001,
        namespace: "ml".to_owned(),
        labels: vec![
            format!("k8s:training.kubeflow.org/job-name=train-{}", member.job),
            "k8s:io.kubernetes.pod.namespace=ml".to_owned(),
            "k8s:io.cilium.k8s.policy.serviceaccount=default".to_owned(),
        ],
        pod_name: member.name.clone(),
        ..Endpoint::default()
    }
}

/// The next thing that happens between a pair: its handshake is answered, then it is answered again and again.
fn flow(world: &World, number: usize) -> GetFlowsResponse {
    let (pair, round) = (number % world.pairs.len(), number / world.pairs.len());
    let (opener, called) = world.pairs[pair];
    let (opener, called) = (&world.members[opener as usize], &world.members[called as usize]);
    let handshake = round == 0;
    let (from, to) = (called, opener);
    let port = u32::try_from(32_768 + pair % 28_000).expect("a port");
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let at = prost_types::Timestamp { seconds: since.as_secs() as i64, nanos: since.subsec_nanos() as i32 };
    let flow = Flow {
        time: Some(at),
        verdict: 1,
        ip: Some(Ip { source: from.ip.clone(), destination: to.ip.clone(), ip_version: 1, ..Ip::default() }),
        l4: Some(Layer4 {
            protocol: Some(Protocol::Tcp(Tcp {
                source_port: 29_500,
                destination_port: port,
                flags: Some(TcpFlags { syn: handshake, ack: true, ..TcpFlags::default() }),
            })),
        }),
        source: Some(endpoint(from)),
        destination: Some(endpoint(to)),
        r#type: 1,
        node_name: NODE.to_owned(),
        event_type: Some(CiliumEventType { r#type: 4, sub_type: 0 }),
        traffic_direction: if from.local { 2 } else { 1 },
        is_reply: Some(true),
        trace_reason: 3,
        uuid: format!("00000000-0000-4000-8000-{number:012x}"),
        ..Flow::default()
    };
    GetFlowsResponse {
        response_types: Some(ResponseTypes::Flow(flow)),
        node_name: NODE.to_owned(),
        time: Some(at),
    }
}

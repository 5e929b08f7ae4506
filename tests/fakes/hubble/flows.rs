//! Events in the forms that servers send. Enters: who, when, what; leaves: messages.

use std::time::{SystemTime, UNIX_EPOCH};

use firedoor_proto::flow::layer4::Protocol;
use firedoor_proto::flow::{CiliumEventType, Endpoint, Flow, Ip, Layer4, LostEvent, Tcp, TcpFlags, Workload};
use firedoor_proto::observer::GetFlowsResponse;
use firedoor_proto::observer::get_flows_response::ResponseTypes;
use prost_types::Timestamp;

/// The time now, by this machine's clock.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    Timestamp { seconds: since.as_secs() as i64, nanos: since.subsec_nanos() as i32 }
}

/// Moved by so many seconds.
pub(crate) fn shifted(at: Timestamp, seconds: i64) -> Timestamp {
    Timestamp { seconds: at.seconds + seconds, ..at }
}

/// A pod of the namespace `ml`; those of this node have workloads and a number.
pub(crate) fn endpoint(pod: &str, local: bool) -> Endpoint {
    let workload = Workload { name: "trainer".to_owned(), kind: "StatefulSet".to_owned() };
    Endpoint {
        id: if local { 101 } else { 0 },
        identity: 50_001,
        namespace: "ml".to_owned(),
        labels: ["k8s:app=trainer", "k8s:io.kubernetes.pod.namespace=ml"].map(str::to_owned).to_vec(),
        pod_name: pod.to_owned(),
        workloads: if local { vec![workload] } else { Vec::new() },
        cluster_name: "default".to_owned(),
    }
}

/// A SYN from one pod to another, seen leaving. `number` tells it from all others.
pub(crate) fn syn(node: &str, from: &str, to: &str, number: u64, at: Timestamp) -> GetFlowsResponse {
    let flags = TcpFlags { syn: true, ..TcpFlags::default() };
    let tcp = Tcp {
        source_port: u32::try_from(1024 + number % 60_000).expect("a port"),
        destination_port: 29_500,
        flags: Some(flags),
    };
    let flow = Flow {
        time: Some(at),
        verdict: 1,
        ip: Some(Ip {
            source: "10.244.1.10".to_owned(),
            destination: "10.244.2.20".to_owned(),
            ip_version: 1,
            ..Ip::default()
        }),
        l4: Some(Layer4 { protocol: Some(Protocol::Tcp(tcp)) }),
        source: Some(endpoint(from, true)),
        destination: Some(endpoint(to, false)),
        r#type: 1,
        node_name: node.to_owned(),
        event_type: Some(CiliumEventType { r#type: 4, sub_type: 4 }),
        traffic_direction: 2,
        trace_observation_point: 4,
        is_reply: Some(false),
        uuid: format!("00000000-0000-4000-8000-{number:012x}"),
        trace_reason: 1,
        ..Flow::default()
    };
    of(node, at, ResponseTypes::Flow(flow))
}

/// A denial as Cilium tells it: the policy's verdict, then the drop.
pub(crate) fn denial(node: &str, from: &str, to: &str, number: u64, at: Timestamp) -> [GetFlowsResponse; 2] {
    [(5, 0, 2 * number), (1, 133, 2 * number + 1)].map(|(kind, sub_type, number)| {
        let mut response = syn(node, from, to, number, at);
        if let Some(ResponseTypes::Flow(flow)) = &mut response.response_types {
            flow.verdict = 2;
            (flow.drop_reason, flow.drop_reason_desc) = (133, 133);
            flow.event_type = Some(CiliumEventType { r#type: kind, sub_type });
            (flow.is_reply, flow.trace_reason, flow.trace_observation_point) = (None, 0, 0);
        }
        response
    })
}

/// As a server of Cilium 1.13 would tell it: no names for drop reasons, no trace reasons, no cluster.
pub(crate) fn as_of_1_13(mut response: GetFlowsResponse) -> GetFlowsResponse {
    if let Some(ResponseTypes::Flow(flow)) = &mut response.response_types {
        flow.reply = flow.is_reply.take().unwrap_or(false);
        (flow.trace_reason, flow.drop_reason_desc) = (0, 0);
        flow.uuid.clear();
        for endpoint in [&mut flow.source, &mut flow.destination].into_iter().flatten() {
            endpoint.cluster_name.clear();
        }
    }
    response
}

/// Events that were lost before they came into the ring.
pub(crate) fn lost(node: &str, source: i32, count: u64, at: Timestamp) -> GetFlowsResponse {
    let lost = LostEvent { source, num_events_lost: count, ..LostEvent::default() };
    of(node, at, ResponseTypes::LostEvents(lost))
}

pub(crate) fn of(node: &str, at: Timestamp, what: ResponseTypes) -> GetFlowsResponse {
    GetFlowsResponse { node_name: node.to_owned(), time: Some(at), response_types: Some(what) }
}

pub(crate) fn is_flow(response: &GetFlowsResponse) -> bool {
    matches!(response.response_types, Some(ResponseTypes::Flow(_)))
}

//! Holds the messages against bytes written by field number, as a server would send them.

mod encoder;

use encoder::Wire;
use firedoor_proto::flow::layer4::Protocol;
use firedoor_proto::flow::{
    DropReason, Flow, FlowFilter, FlowType, IpVersion, LostEvent, LostEventSource, TraceObservationPoint,
    TraceReason, TrafficDirection, Verdict,
};
use firedoor_proto::observer::get_flows_response::ResponseTypes;
use firedoor_proto::observer::{
    ExportEvent, GetFlowsRequest, GetFlowsResponse, GetNodesResponse, ServerStatusResponse,
};
use firedoor_proto::podresources::{AllocatableResourcesResponse, ListPodResourcesResponse};
use firedoor_proto::{Message, relay};

/// 2026-11-01T10:00:20Z.
const SECONDS: u64 = 1_793_527_220;

fn time(seconds: u64, nanos: u64) -> Wire {
    Wire::new().number(1, seconds).number(2, nanos)
}

fn endpoint(pod: &str) -> Wire {
    let workload = Wire::new().text(1, "trainer").text(2, "StatefulSet");
    let plain = Wire::new().number(1, 101).number(2, 50_001).text(3, "ml");
    let labels = plain.text(4, "k8s:app=trainer").text(4, "k8s:role=worker");
    labels.text(5, pod).message(6, workload).text(7, "east")
}

fn policy(name: &str) -> Wire {
    let plain = Wire::new().text(1, name).text(2, "ml").text(3, "k8s:io.cilium.k8s.policy.name=p");
    plain.number(4, 7).text(5, "CiliumNetworkPolicy")
}

fn denied() -> Wire {
    let flags = Wire::new().number(2, 1).number(5, 1);
    let tcp = Wire::new().number(1, 43_379).number(2, 9_999).message(3, flags);
    let ip =
        Wire::new().text(1, "10.0.0.1").text(2, "10.0.0.2").number(3, 1).number(4, 1).text(5, "10.0.0.9");
    Wire::new()
        .message(1, time(SECONDS, 99_999))
        .number(2, 2)
        .number(3, 181)
        .message(5, ip)
        .message(6, Wire::new().message(1, tcp))
        .message(8, endpoint("trainer-0"))
        .message(9, endpoint("trainer-1"))
        .number(10, 1)
        .text(11, "east/node-a")
        .text(13, "a.example")
        .text(14, "b.example")
        .message(19, Wire::new().number(1, 1).number(2, 181))
        .message(20, Wire::new().text(1, "from").text(2, "ml"))
        .message(21, Wire::new().text(1, "to").text(2, "ml"))
        .number(22, 2)
        .number(23, 4)
        .number(24, 101)
        .number(25, 181)
        .message(26, Wire::new().number(1, 1))
        .number(32, 99)
        .number(33, 4_242)
        .text(34, "74e5b0e5")
        .number(36, 3)
        .message(21_001, policy("out"))
        .message(21_002, policy("in"))
        .message(21_004, policy("no-out"))
        .message(21_005, policy("no-in"))
        .text(21_006, "audit me")
}

#[test]
fn every_field_of_a_flow_is_where_the_published_api_has_it() {
    let flow = Flow::decode(denied().done().as_slice()).unwrap();
    let at = flow.time.unwrap();
    assert_eq!((at.seconds, at.nanos), (SECONDS as i64, 99_999));
    assert_eq!(flow.verdict(), Verdict::Dropped);
    assert_eq!((flow.drop_reason, flow.drop_reason_desc()), (181, DropReason::PolicyDeny));
    assert_eq!(flow.r#type(), FlowType::L3L4);
    assert_eq!(flow.traffic_direction(), TrafficDirection::Egress);
    assert_eq!(flow.trace_observation_point(), TraceObservationPoint::ToEndpoint);
    assert_eq!(flow.trace_reason(), TraceReason::Reply);
    assert_eq!(flow.is_reply, Some(true));
    assert_eq!((flow.policy_match_type, flow.socket_cookie, flow.cgroup_id), (4, 99, 4_242));
    assert_eq!((flow.uuid.as_str(), flow.node_name.as_str()), ("74e5b0e5", "east/node-a"));
    assert_eq!(
        (flow.source_names, flow.destination_names),
        (vec!["a.example".into()], vec!["b.example".into()])
    );
    assert_eq!(flow.policy_log, ["audit me"]);
    let event = flow.event_type.unwrap();
    assert_eq!((event.r#type, event.sub_type), (1, 181));

    let ip = flow.ip.unwrap();
    assert_eq!(
        (ip.source.as_str(), ip.destination.as_str(), ip.ip_version()),
        ("10.0.0.1", "10.0.0.2", IpVersion::IPv4)
    );
    assert_eq!((ip.encrypted, ip.source_xlated.as_str()), (true, "10.0.0.9"));
    let Some(Protocol::Tcp(tcp)) = flow.l4.unwrap().protocol else { panic!("not TCP") };
    let flags = tcp.flags.unwrap();
    assert_eq!((tcp.source_port, tcp.destination_port), (43_379, 9_999));
    assert!(flags.syn && flags.ack && !flags.fin && !flags.rst && !flags.psh);

    let source = flow.source.unwrap();
    assert_eq!((source.id, source.identity), (101, 50_001));
    assert_eq!((source.namespace.as_str(), source.pod_name.as_str()), ("ml", "trainer-0"));
    assert_eq!(source.labels, ["k8s:app=trainer", "k8s:role=worker"]);
    assert_eq!(
        (source.workloads[0].name.as_str(), source.workloads[0].kind.as_str()),
        ("trainer", "StatefulSet")
    );
    assert_eq!(source.cluster_name, "east");
    assert_eq!(flow.destination.unwrap().pod_name, "trainer-1");
    let services = (flow.source_service.unwrap(), flow.destination_service.unwrap());
    assert_eq!((services.0.name.as_str(), services.1.name.as_str()), ("from", "to"));
    let names: Vec<_> =
        [&flow.egress_allowed_by, &flow.ingress_allowed_by, &flow.egress_denied_by, &flow.ingress_denied_by]
            .map(|policies| policies[0].name.as_str())
            .into();
    assert_eq!(names, ["out", "in", "no-out", "no-in"]);
    assert_eq!(
        (flow.egress_denied_by[0].revision, flow.egress_denied_by[0].kind.as_str()),
        (7, "CiliumNetworkPolicy")
    );
}

#[test]
fn other_transports_have_their_own_places() {
    let ports = || Wire::new().number(1, 5).number(2, 53);
    let of = |field: u64| {
        let bytes = Wire::new().message(6, Wire::new().message(field, ports())).done();
        Flow::decode(bytes.as_slice()).unwrap().l4.unwrap().protocol
    };
    assert!(matches!(of(2), Some(Protocol::Udp(udp)) if (udp.source_port, udp.destination_port) == (5, 53)));
    assert!(matches!(of(3), Some(Protocol::IcmPv4(icmp)) if (icmp.r#type, icmp.code) == (5, 53)));
    assert!(matches!(of(4), Some(Protocol::IcmPv6(icmp)) if (icmp.r#type, icmp.code) == (5, 53)));
    assert!(matches!(of(5), Some(Protocol::Sctp(sctp)) if sctp.destination_port == 53));
    // VRRP: firedoor does not judge it.
    assert_eq!(of(6), None);
}

#[test]
fn unknown_fields_of_every_wire_type_are_skipped() {
    let noisy = denied()
        .number(900, u64::MAX)
        .double(901, 1.5)
        .bytes(902, &[0xff; 300])
        .fixed32(903, 7)
        .message(4, Wire::new().text(1, "02:00:00:00:00:01"))
        .text(100_000, "TCP Flags: SYN")
        .message(150_000, Wire::new().text(1, "type").bytes(2, &[1, 2]));
    let plain = Flow::decode(denied().done().as_slice()).unwrap();
    assert_eq!(Flow::decode(noisy.done().as_slice()).unwrap(), plain);
}

#[test]
fn numbers_that_newer_servers_invent_survive() {
    let bytes = Wire::new().number(2, 77).number(22, 9).number(24, 102).number(25, 206).number(36, 40).done();
    let flow = Flow::decode(bytes.as_slice()).unwrap();
    assert_eq!((flow.verdict, flow.drop_reason_desc, flow.trace_observation_point), (77, 206, 102));
    assert_eq!((flow.traffic_direction, flow.trace_reason), (9, 40));
    assert!(Verdict::try_from(flow.verdict).is_err());
    let again = Flow::decode(flow.encode_to_vec().as_slice()).unwrap();
    assert_eq!(again, flow);
}

#[test]
fn an_absent_reply_flag_is_not_a_false_one() {
    assert_eq!(Flow::decode([].as_slice()).unwrap().is_reply, None);
    let no = Wire::new().message(26, Wire::new()).done();
    assert_eq!(Flow::decode(no.as_slice()).unwrap().is_reply, Some(false));
}

#[test]
fn what_a_stream_carries() {
    let lost = Wire::new()
        .number(1, 3)
        .number(2, 42)
        .message(3, Wire::new().number(1, 1))
        .message(4, time(SECONDS, 0))
        .message(5, time(SECONDS + 1, 0));
    let status = Wire::new().number(1, 2).text(2, "a").text(2, "b").text(3, "gone");
    let response = |field: u64, inner: Wire| {
        let bytes =
            Wire::new().message(field, inner).text(1_000, "node-a").message(1_001, time(SECONDS, 5)).done();
        let export = ExportEvent::decode(bytes.as_slice()).unwrap();
        let response = GetFlowsResponse::decode(bytes.as_slice()).unwrap();
        assert_eq!((export.node_name, export.time), (response.node_name.clone(), response.time));
        assert_eq!(response.node_name, "node-a");
        assert_eq!(response.time.unwrap().nanos, 5);
        response.response_types
    };
    let Some(ResponseTypes::Flow(flow)) = response(1, denied()) else { panic!("not a flow") };
    assert_eq!(flow.uuid, "74e5b0e5");
    let Some(ResponseTypes::NodeStatus(status)) = response(2, status) else { panic!("not a status") };
    assert_eq!(status.state_change(), relay::NodeState::NodeUnavailable);
    assert_eq!((status.node_names, status.message.as_str()), (vec!["a".to_owned(), "b".to_owned()], "gone"));
    let Some(ResponseTypes::LostEvents(lost)) = response(3, lost) else { panic!("not lost events") };
    let LostEvent { num_events_lost, cpu, first, last, .. } = lost;
    assert_eq!((lost.source(), num_events_lost, cpu), (LostEventSource::HubbleRingBuffer, 42, Some(1)));
    assert_eq!(last.unwrap().seconds - first.unwrap().seconds, 1);
    // An agent event of an exporter's file, and whatever comes after it.
    assert_eq!(response(4, Wire::new().number(1, 2)), None);
}

#[test]
fn what_is_asked_of_a_server() {
    let filter = FlowFilter {
        source_pod: vec!["ml/trainer".into()],
        destination_pod: vec!["ml/".into()],
        verdict: vec![Verdict::Dropped.into(), Verdict::Audit.into()],
        source_label: vec!["app=trainer".into()],
        destination_port: vec!["9999".into()],
        drop_reason_desc: vec![133],
        ..FlowFilter::default()
    };
    let request =
        GetFlowsRequest { number: 20, follow: true, whitelist: vec![filter], ..GetFlowsRequest::default() };
    let filter = Wire::new()
        .text(2, "ml/trainer")
        .text(4, "ml/")
        .bytes(5, &[2, 4])
        .text(10, "app=trainer")
        .text(14, "9999")
        .bytes(33, &[133, 1]);
    let bytes = Wire::new().number(1, 20).number(3, 1).message(6, filter).done();
    assert_eq!(request.encode_to_vec(), bytes);
}

#[test]
fn what_servers_say_of_themselves() {
    let status = Wire::new()
        .number(1, 10)
        .number(2, 4_095)
        .number(3, 1_000_000)
        .number(4, 5_000_000_000)
        .message(5, Wire::new().number(1, 3))
        .message(6, Wire::new())
        .text(7, "node-c")
        .text(8, "1.19.4")
        .double(9, 12.5);
    let status = ServerStatusResponse::decode(status.done().as_slice()).unwrap();
    assert_eq!((status.num_flows, status.max_flows, status.seen_flows), (10, 4_095, 1_000_000));
    assert_eq!((status.num_connected_nodes, status.num_unavailable_nodes), (Some(3), Some(0)));
    assert_eq!((status.unavailable_nodes, status.version.as_str()), (vec!["node-c".to_owned()], "1.19.4"));
    assert_eq!((status.uptime_ns, status.flows_rate), (5_000_000_000, 12.5));

    let tls = Wire::new().number(1, 1).text(2, "node-a.default.hubble-grpc.cilium.io");
    let node =
        Wire::new().text(1, "node-a").text(2, "1.19").text(3, "10.0.0.1:4244").number(4, 1).message(5, tls);
    let node = node.number(6, 60).number(7, 1).number(8, 2).number(9, 3);
    let nodes = GetNodesResponse::decode(Wire::new().message(1, node).done().as_slice()).unwrap().nodes;
    assert_eq!((nodes[0].name.as_str(), nodes[0].address.as_str()), ("node-a", "10.0.0.1:4244"));
    assert_eq!(nodes[0].state(), relay::NodeState::NodeConnected);
    assert_eq!(
        (nodes[0].uptime_ns, nodes[0].num_flows, nodes[0].max_flows, nodes[0].seen_flows),
        (60, 1, 2, 3)
    );
    assert_eq!(nodes[0].tls.as_ref().unwrap().server_name, "node-a.default.hubble-grpc.cilium.io");
}

#[test]
fn what_the_kubelet_says_of_devices() {
    let devices = || Wire::new().text(1, "nvidia.com/gpu").text(2, "GPU-a").text(2, "GPU-b");
    let claim =
        Wire::new().message(1, Wire::new().text(1, "vendor/gpu=0")).text(2, "gpu.example").text(3, "pool");
    let dynamic = Wire::new().text(2, "claim").text(3, "ml").message(4, claim.text(4, "gpu-0"));
    // 3 and 4 are CPUs and memory, 3 of a device its NUMA place.
    let container = Wire::new()
        .text(1, "main")
        .message(2, devices().message(3, Wire::new().number(1, 0)))
        .number(3, 4)
        .message(4, Wire::new())
        .message(5, dynamic);
    let pod = Wire::new().text(1, "trainer-0").text(2, "ml").message(3, container);
    let list = ListPodResourcesResponse::decode(Wire::new().message(1, pod).done().as_slice()).unwrap();
    let pod = &list.pod_resources[0];
    assert_eq!((pod.name.as_str(), pod.namespace.as_str()), ("trainer-0", "ml"));
    let container = &pod.containers[0];
    assert_eq!(container.devices[0].resource_name, "nvidia.com/gpu");
    assert_eq!(container.devices[0].device_ids, ["GPU-a", "GPU-b"]);
    let dynamic = &container.dynamic_resources[0];
    assert_eq!((dynamic.claim_name.as_str(), dynamic.claim_namespace.as_str()), ("claim", "ml"));
    let claim = &dynamic.claim_resources[0];
    assert_eq!(
        (claim.driver_name.as_str(), claim.pool_name.as_str(), claim.device_name.as_str()),
        ("gpu.example", "pool", "gpu-0")
    );
    assert_eq!(claim.cdi_devices[0].name, "vendor/gpu=0");

    let all = Wire::new().message(1, devices()).number(2, 1).done();
    assert_eq!(AllocatableResourcesResponse::decode(all.as_slice()).unwrap().devices[0].device_ids.len(), 2);
}

#[test]
fn damaged_bytes_are_an_error_and_nothing_worse() {
    let whole = Wire::new().message(1, denied()).text(1_000, "node-a").done();
    let mut refused = 0;
    for end in 0..whole.len() {
        refused += usize::from(GetFlowsResponse::decode(&whole[..end]).is_err());
    }
    // A cut is noticed unless it falls between two fields of the outermost message.
    assert_eq!(refused, whole.len() - 2);
    for position in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[position] ^= 0xff;
        // Decodes or is refused; that it returns is what is tested.
        let _ = GetFlowsResponse::decode(flipped.as_slice());
    }
    // A length of 2^63 bytes.
    assert!(
        GetFlowsResponse::decode([0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f].as_slice())
            .is_err()
    );
}

//! Decoding: against protobuf's own decoder, and on bytes that a real server might send.

use std::net::IpAddr;

use firedoor::hubble::convert::{self, Unusable};
use firedoor::hubble::{json, message};
use firedoor_core::drop_reason::DropReason;
use firedoor_core::facts::Protocol;
use firedoor_core::observation::{
    ConnectionState, Direction, End, EventKind, Flow, Loss, NamedPolicy, Observation, Reserved, SourceKind,
    TcpFlags, Verdict,
};
use firedoor_core::time::Timestamp;
use firedoor_proto::Message as _;
use firedoor_proto::flow::{self, layer4};
use firedoor_proto::observer::GetFlowsResponse;
use firedoor_proto::observer::get_flows_response::ResponseTypes;
use proptest::prelude::*;

use crate::fake::flows::{as_of_1_13, denial, lost, syn};

/// The same by way of protobuf's own decoder: written apart from the reader under test, with its rules.
fn by_prost(response: &GetFlowsResponse) -> Option<Observation<'_>> {
    let node = response.node_name.as_str();
    let at = response.time.as_ref().and_then(stamp);
    match response.response_types.as_ref()? {
        ResponseTypes::Flow(flow) => plain(flow, node, at).map(Observation::Flow),
        ResponseTypes::LostEvents(lost) => Some(Observation::Lost(Loss {
            at,
            observer: Some(node).filter(|node| !node.is_empty()),
            source: SourceKind::Hubble,
            cause: match lost.source {
                1 => "PERF_EVENT_RING_BUFFER",
                2 => "OBSERVER_EVENTS_QUEUE",
                3 => "HUBBLE_RING_BUFFER",
                _ => "",
            },
            count: lost.num_events_lost,
        })),
        ResponseTypes::NodeStatus(status) => (2..=4).contains(&status.state_change).then(|| {
            let nodes = status.node_names.iter().map(String::as_str).collect();
            Observation::Blind { at: at.unwrap_or(Timestamp::MIN), nodes }
        }),
    }
}

fn stamp(time: &prost_types::Timestamp) -> Option<Timestamp> {
    let nanos = u32::try_from(time.nanos).ok().filter(|nanos| *nanos < 1_000_000_000)?;
    let nanos = i128::from(time.seconds) * 1_000_000_000 + i128::from(nanos);
    u64::try_from(nanos).ok().map(Timestamp::from_nanos)
}

fn plain<'a>(flow: &'a flow::Flow, node: &'a str, outer: Option<Timestamp>) -> Option<Flow<'a>> {
    let event = flow.event_type.as_ref();
    let ip = |text: fn(&flow::Ip) -> &str| flow.ip.as_ref().and_then(|ip| text(ip).parse::<IpAddr>().ok());
    let (protocol, ports, flags) = transport(flow);
    let end = |endpoint: Option<&'a flow::Endpoint>, ip, port: u32| {
        let named = endpoint.filter(|e| !e.pod_name.is_empty());
        let reserved = endpoint.and_then(|e| Reserved::from_identity(e.identity));
        let pod = named.map(|e| (e.namespace.as_str(), e.pod_name.as_str()));
        Some(End { ip, port: u16::try_from(port).ok()?, pod, uid: None, reserved })
    };
    let src = end(flow.source.as_ref(), ip(|ip| &ip.source), ports.0)?;
    let dst = end(flow.destination.as_ref(), ip(|ip| &ip.destination), ports.1)?;
    if src.ip.or(dst.ip).is_none() && src.pod.or(dst.pod).is_none() {
        return None;
    }
    Some(Flow {
        at: flow.time.as_ref().and_then(stamp).or(outer)?,
        observer: if flow.node_name.is_empty() { node } else { &flow.node_name },
        source: SourceKind::Hubble,
        kind: match event.map(|event| event.r#type) {
            Some(1) => EventKind::Drop,
            None | Some(4) => EventKind::Trace,
            Some(5) => EventKind::PolicyVerdict,
            Some(7) => EventKind::Socket,
            Some(129) => EventKind::Layer7,
            Some(_) => EventKind::Other,
        },
        sub_kind: event.map_or(0, |event| event.sub_type),
        verdict: match flow.verdict {
            1 => Verdict::Forwarded,
            2 => Verdict::Dropped(reason(flow)),
            4 => Verdict::WouldDrop(reason(flow)),
            5 => Verdict::Redirected,
            _ => Verdict::Other,
        },
        protocol,
        src,
        dst,
        flags,
        is_reply: flow.is_reply.or(if flow.reply { Some(true) } else { None }),
        direction: match flow.traffic_direction {
            1 => Some(Direction::Ingress),
            2 => Some(Direction::Egress),
            _ => None,
        },
        state: match flow.trace_reason {
            0 => None,
            1 => Some(ConnectionState::New),
            2 => Some(ConnectionState::Established),
            3 => Some(ConnectionState::Reply),
            _ => Some(ConnectionState::Other),
        },
        denied_by: policies(flow),
    })
}

fn transport(flow: &flow::Flow) -> (Protocol, (u32, u32), TcpFlags) {
    let none = TcpFlags::default();
    match flow.l4.as_ref().and_then(|l4| l4.protocol.as_ref()) {
        Some(layer4::Protocol::Tcp(tcp)) => {
            let f = tcp.flags.unwrap_or_default();
            let flags = TcpFlags { syn: f.syn, ack: f.ack, rst: f.rst, fin: f.fin, psh: f.psh };
            (Protocol::Tcp, (tcp.source_port, tcp.destination_port), flags)
        }
        Some(layer4::Protocol::Udp(udp)) => (Protocol::Udp, (udp.source_port, udp.destination_port), none),
        Some(layer4::Protocol::Sctp(sctp)) => {
            (Protocol::Sctp, (sctp.source_port, sctp.destination_port), none)
        }
        _ => (Protocol::Icmp, (0, 0), none),
    }
}

fn reason(flow: &flow::Flow) -> DropReason {
    let drop = flow.event_type.as_ref().filter(|event| event.r#type == 1).map_or(0, |event| event.sub_type);
    let codes = [i64::from(flow.drop_reason_desc), i64::from(flow.drop_reason), i64::from(drop)];
    let told = codes.into_iter().find_map(|code| u32::try_from(code).ok().filter(|code| *code != 0));
    DropReason::from_code(told.unwrap_or(0))
}

fn policies(flow: &flow::Flow) -> Vec<NamedPolicy<'_>> {
    let both = [(&flow.egress_denied_by, Direction::Egress), (&flow.ingress_denied_by, Direction::Ingress)];
    let mut all = Vec::new();
    for (policies, direction) in both {
        for policy in policies.iter().filter(|policy| !policy.name.is_empty()) {
            let label = "io.cilium.k8s.policy.derived-from=";
            let derived = policy.labels.iter().find_map(|text| text.split_once(label).map(|(_, kind)| kind));
            let kind = match (policy.kind.as_str(), derived, policy.namespace.as_str()) {
                ("", Some(kind), _) => kind,
                ("", None, "") => "CiliumClusterwideNetworkPolicy",
                ("", None, _) => "CiliumNetworkPolicy",
                (kind, _, _) => kind,
            };
            all.push(NamedPolicy { kind, namespace: &policy.namespace, name: &policy.name, direction });
        }
    }
    all
}

pub(crate) fn both_agree(bytes: &[u8]) {
    // Protobuf's own decoder refuses more: it reads texts that do not matter here, too.
    let ours = message::observation(bytes);
    if let Ok(response) = GetFlowsResponse::decode(bytes) {
        assert_eq!(ours.unwrap_or(None), by_prost(&response), "{response:?}");
    }
    let _ = message::envelope(bytes);
}

prop_compose! {
    fn times()(seconds in prop_oneof![-5_i64..5, 1_700_000_000_i64..1_800_000_000, any::<i64>()],
        nanos in prop_oneof![0..1_000_000_000, any::<i32>()]) -> prost_types::Timestamp {
        prost_types::Timestamp { seconds, nanos }
    }
}

prop_compose! {
    fn endpoints()(id: u32, identity in prop_oneof![0_u32..20, any::<u32>()], namespace in "[a-zé]{0,4}",
        pod_name in "[a-z]{0,4}", labels in proptest::collection::vec("[a-z=:]{0,6}", 0..4)) -> flow::Endpoint {
        flow::Endpoint { id, identity, namespace, labels, pod_name, ..flow::Endpoint::default() }
    }
}

fn addresses() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<std::net::Ipv4Addr>().prop_map(|ip| ip.to_string()),
        any::<std::net::Ipv6Addr>().prop_map(|ip| ip.to_string()),
        "[0-9.:]{0,12}",
    ]
}

fn layer4s() -> impl Strategy<Value = flow::Layer4> {
    let ports = || prop_oneof![0_u32..70_000, any::<u32>()];
    let flags = any::<[bool; 5]>().prop_map(|[fin, syn, rst, psh, ack]| flow::TcpFlags {
        fin,
        syn,
        rst,
        psh,
        ack,
        ..flow::TcpFlags::default()
    });
    prop_oneof![
        (ports(), ports(), proptest::option::of(flags)).prop_map(|(source_port, destination_port, flags)| {
            layer4::Protocol::Tcp(flow::Tcp { source_port, destination_port, flags })
        }),
        (ports(), ports()).prop_map(|(source_port, destination_port)| {
            layer4::Protocol::Udp(flow::Udp { source_port, destination_port })
        }),
        (ports(), ports()).prop_map(|(source_port, destination_port)| {
            layer4::Protocol::Sctp(flow::Sctp { source_port, destination_port })
        }),
        (ports(), ports()).prop_map(|(r#type, code)| layer4::Protocol::IcmPv4(flow::Icmp { r#type, code })),
    ]
    .prop_map(|protocol| flow::Layer4 { protocol: Some(protocol) })
}

prop_compose! {
    fn denied()(name in "[a-z]{0,3}", namespace in "[a-z]{0,2}", kind in "(Kind)?",
        labels in proptest::collection::vec("(k8s:io.cilium.k8s.policy.derived-from=)?[A-Z]{0,3}", 0..3)) -> flow::Policy {
        flow::Policy { name, namespace, labels, revision: 7, kind }
    }
}

prop_compose! {
    fn flows()(time in proptest::option::of(times()), verdict in -1..9, drop_reason in prop_oneof![Just(0_u32), any::<u32>()],
        ips in proptest::option::of((addresses().boxed(), addresses().boxed())), l4 in proptest::option::of(layer4s().boxed()),
        source in proptest::option::of(endpoints().boxed()), destination in proptest::option::of(endpoints().boxed()),
        node_name in "[a-z/]{0,6}",
        (reply, is_reply, event_type) in (any::<bool>(), proptest::option::of(any::<bool>()),
            proptest::option::of((prop_oneof![0..8, Just(129), any::<i32>()], any::<i32>()))),
        (traffic_direction, drop_reason_desc, trace_reason) in (-1..4, prop_oneof![0..250, any::<i32>()], -1..10),
        egress_denied_by in proptest::collection::vec(denied().boxed(), 0..3).boxed(),
        ingress_denied_by in proptest::collection::vec(denied().boxed(), 0..3).boxed(),
        uuid in "[a-f]{0,6}") -> flow::Flow {
        let event_type = event_type.map(|(r#type, sub_type)| flow::CiliumEventType { r#type, sub_type });
        let ip = ips.map(|(source, destination)| flow::Ip { source, destination, ..flow::Ip::default() });
        flow::Flow { time, verdict, drop_reason, ip, l4, source, destination, node_name, reply, is_reply, event_type,
            traffic_direction, drop_reason_desc, trace_reason, egress_denied_by, ingress_denied_by, uuid,
            ..flow::Flow::default() }
    }
}

fn responses() -> BoxedStrategy<GetFlowsResponse> {
    let what = prop_oneof![
        8 => flows().boxed().prop_map(ResponseTypes::Flow),
        1 => (-1..6, any::<u64>()).prop_map(|(source, num_events_lost)| ResponseTypes::LostEvents(
            flow::LostEvent { source, num_events_lost, ..flow::LostEvent::default() })),
        1 => (-1..7, proptest::collection::vec("[a-z]{0,4}", 0..4)).prop_map(|(state_change, node_names)| {
            ResponseTypes::NodeStatus(firedoor_proto::relay::NodeStatusEvent {
                state_change, node_names, message: "why".to_owned() })
        }),
    ];
    (proptest::option::of(what.boxed()), "[a-z/]{0,6}", proptest::option::of(times()))
        .prop_map(|(response_types, node_name, time)| GetFlowsResponse { response_types, node_name, time })
        .boxed()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_protobufs_own_decoder_reads_is_read_alike(response in responses()) {
        both_agree(&response.encode_to_vec());
    }

    /// Two messages in a row are one, merged.
    #[test]
    fn fields_that_come_twice_are_merged_alike(first in responses(), second in responses()) {
        let mut bytes = first.encode_to_vec();
        bytes.extend(second.encode_to_vec());
        both_agree(&bytes);
    }

    #[test]
    fn damaged_messages_are_read_alike_or_refused(response in responses(), place: prop::sample::Index, with: u8, cut: bool) {
        let mut bytes = response.encode_to_vec();
        if !bytes.is_empty() {
            let place = place.index(bytes.len());
            if cut { bytes.truncate(place) } else { bytes[place] = with }
        }
        both_agree(&bytes);
    }

    #[test]
    fn any_bytes_are_read_alike_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        both_agree(&bytes);
    }
}

/// What names nothing in Kubernetes is refused, whoever is called so, in both forms that Hubble writes.
#[test]
fn names_that_nothing_can_have_are_refused() {
    let at = prost_types::Timestamp { seconds: 1_793_527_220, nanos: 5 };
    let [_, drop] = denial("gpu-node-a", "trainer-0", "trainer-1", 7, at);
    let with = |change: &dyn Fn(&mut flow::Flow)| {
        let mut response = drop.clone();
        let Some(ResponseTypes::Flow(flow)) = &mut response.response_types else { panic!("a flow") };
        change(flow);
        response.encode_to_vec()
    };
    let (fits, long) = ("n".repeat(253), "n".repeat(254));
    let refused = |bytes: &[u8]| matches!(message::observation(bytes), Err(Unusable::Name(_)));
    for (name, expected) in [(&fits, false), (&long, true)] {
        let source = |flow: &mut flow::Flow| flow.source.get_or_insert_default().pod_name.clone_from(name);
        let target =
            |flow: &mut flow::Flow| flow.destination.get_or_insert_default().namespace.clone_from(name);
        let node = |flow: &mut flow::Flow| flow.node_name = format!("{}/{name}", "c".repeat(63));
        for change in [&source as &dyn Fn(&mut flow::Flow), &target, &node] {
            assert_eq!(refused(&with(change)), expected, "{} bytes", name.len());
        }
        let node = format!("{}/{name}", "c".repeat(63));
        for bytes in [lost(&node, 2, 9, at).encode_to_vec(), unreachable(&node).encode_to_vec()] {
            assert_eq!(refused(&bytes), expected, "{} bytes", name.len());
        }
        assert_eq!(message::envelope(&lost(&node, 2, 9, at).encode_to_vec()).is_err(), expected);
    }
}

fn unreachable(node: &str) -> GetFlowsResponse {
    let status = firedoor_proto::relay::NodeStatusEvent {
        state_change: 2,
        node_names: vec!["gpu-node-b".to_owned(), node.to_owned()],
        message: String::new(),
    };
    GetFlowsResponse {
        response_types: Some(ResponseTypes::NodeStatus(status)),
        ..GetFlowsResponse::default()
    }
}

/// A policy that cannot be one is left out; that the packet was dropped is still true.
#[test]
fn policies_that_cannot_be_are_left_out() {
    let at = prost_types::Timestamp { seconds: 1_793_527_220, nanos: 5 };
    let [_, mut response] = denial("gpu-node-a", "trainer-0", "trainer-1", 7, at);
    let Some(ResponseTypes::Flow(told)) = &mut response.response_types else { panic!("a flow") };
    let policy = |name: &str, namespace: &str, kind: &str| flow::Policy {
        name: name.to_owned(),
        namespace: namespace.to_owned(),
        kind: kind.to_owned(),
        ..flow::Policy::default()
    };
    let long = "n".repeat(254);
    told.egress_denied_by = vec![
        policy(&long, "ml", ""),
        policy("a", &long, ""),
        policy("a", "ml", &long),
        policy("locked", "ml", ""),
    ];
    let bytes = response.encode_to_vec();
    let Ok(Some(Observation::Flow(flow))) = message::observation(&bytes) else { panic!("a flow") };
    let names: Vec<&str> = flow.denied_by.iter().map(|policy| policy.name).collect();
    assert_eq!(names, ["locked"]);
}

/// The same in JSON.
#[test]
fn names_in_json_are_held_to_the_same() {
    let (fits, long) = ("n".repeat(253), "n".repeat(254));
    let flow = |pod: &str, node: &str, policy: &str| {
        serde_json::json!({"flow": {"time": "2026-11-07T09:00:06Z", "verdict": "DROPPED", "node_name": node,
            "source": {"namespace": "ml", "pod_name": pod}, "egress_denied_by": [{"name": policy, "namespace": "ml"}]}})
        .to_string()
    };
    let policies = |line: &str| -> Result<usize, Unusable> {
        let response = json::response(line).expect("a response");
        let flow = response.flow.as_ref().expect("a flow");
        Ok(convert::flow(flow, "", "")?.denied_by.len())
    };
    assert_eq!(policies(&flow(&fits, &fits, &fits)), Ok(1));
    assert_eq!(policies(&flow("a", "n", &long)), Ok(0));
    assert_eq!(policies(&flow(&long, "n", "p")), Err(Unusable::Name(254)));
    let node = "n".repeat(318);
    assert_eq!(policies(&flow("a", &node, "p")), Err(Unusable::Name(318)));
    let status =
        serde_json::json!({"node_status": {"state_change": "NODE_UNAVAILABLE", "node_names": ["b", node]}});
    let line = status.to_string();
    let response = json::response(&line).expect("a response");
    let told = convert::node_status(response.node_status.as_ref().expect("a status"), "");
    let Some(Observation::Blind { nodes, .. }) = told else { panic!("a node is not seen") };
    assert_eq!(nodes, ["b"]);
}

/// Every type and version of message that the fake server sends says what it should.
#[test]
fn messages_of_old_and_new_servers() {
    let at = prost_types::Timestamp { seconds: 1_793_527_220, nanos: 5 };
    let [verdict, drop] = denial("gpu-node-a", "trainer-0", "trainer-1", 7, at);
    for response in
        [syn("prod/gpu-node-a", "trainer-0", "trainer-1", 7, at), verdict, drop.clone(), lost("a", 2, 9, at)]
    {
        both_agree(&response.encode_to_vec());
        both_agree(&as_of_1_13(response).encode_to_vec());
    }
    let old = as_of_1_13(drop).encode_to_vec();
    let Ok(Some(Observation::Flow(flow))) = message::observation(&old) else { panic!("a flow") };
    assert_eq!(flow.verdict, Verdict::Dropped(DropReason::from_code(133)));
    assert_eq!((flow.kind, flow.state, flow.is_reply), (EventKind::Drop, None, None));
}

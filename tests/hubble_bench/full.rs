//! Every field of the messages that a server of Cilium 1.19 sends, for a client that decodes them all. Numbers are those of
//! the published API.

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Time {
    #[prost(int64, tag = "1")]
    pub(crate) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(crate) nanos: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Response {
    #[prost(message, optional, tag = "1")]
    pub(crate) flow: Option<Flow>,
    #[prost(message, optional, tag = "2")]
    pub(crate) node_status: Option<NodeStatus>,
    #[prost(message, optional, tag = "3")]
    pub(crate) lost_events: Option<Lost>,
    #[prost(string, tag = "1000")]
    pub(crate) node_name: String,
    #[prost(message, optional, tag = "1001")]
    pub(crate) time: Option<Time>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct NodeStatus {
    #[prost(int32, tag = "1")]
    pub(crate) state_change: i32,
    #[prost(string, repeated, tag = "2")]
    pub(crate) node_names: Vec<String>,
    #[prost(string, tag = "3")]
    pub(crate) message: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Lost {
    #[prost(int32, tag = "1")]
    pub(crate) source: i32,
    #[prost(uint64, tag = "2")]
    pub(crate) num_events_lost: u64,
    #[prost(message, optional, tag = "3")]
    pub(crate) cpu: Option<Wrapped>,
    #[prost(message, optional, tag = "4")]
    pub(crate) first: Option<Time>,
    #[prost(message, optional, tag = "5")]
    pub(crate) last: Option<Time>,
}

/// `BoolValue` and `Int32Value` look alike on the wire.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Wrapped {
    #[prost(int32, tag = "1")]
    pub(crate) value: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Flow {
    #[prost(message, optional, tag = "1")]
    pub(crate) time: Option<Time>,
    #[prost(int32, tag = "2")]
    pub(crate) verdict: i32,
    #[prost(uint32, tag = "3")]
    pub(crate) drop_reason: u32,
    #[prost(message, optional, tag = "4")]
    pub(crate) ethernet: Option<Ethernet>,
    #[prost(message, optional, tag = "5")]
    pub(crate) ip: Option<Ip>,
    #[prost(message, optional, tag = "6")]
    pub(crate) l4: Option<Layer4>,
    #[prost(message, optional, tag = "8")]
    pub(crate) source: Option<Endpoint>,
    #[prost(message, optional, tag = "9")]
    pub(crate) destination: Option<Endpoint>,
    #[prost(int32, tag = "10")]
    pub(crate) kind: i32,
    #[prost(string, tag = "11")]
    pub(crate) node_name: String,
    #[prost(string, repeated, tag = "13")]
    pub(crate) source_names: Vec<String>,
    #[prost(string, repeated, tag = "14")]
    pub(crate) destination_names: Vec<String>,
    #[prost(message, optional, tag = "15")]
    pub(crate) l7: Option<Layer7>,
    #[prost(bool, tag = "16")]
    pub(crate) reply: bool,
    #[prost(message, optional, tag = "19")]
    pub(crate) event_type: Option<EventType>,
    #[prost(message, optional, tag = "20")]
    pub(crate) source_service: Option<Service>,
    #[prost(message, optional, tag = "21")]
    pub(crate) destination_service: Option<Service>,
    #[prost(int32, tag = "22")]
    pub(crate) traffic_direction: i32,
    #[prost(uint32, tag = "23")]
    pub(crate) policy_match_type: u32,
    #[prost(int32, tag = "24")]
    pub(crate) trace_observation_point: i32,
    #[prost(int32, tag = "25")]
    pub(crate) drop_reason_desc: i32,
    #[prost(message, optional, tag = "26")]
    pub(crate) is_reply: Option<Wrapped>,
    #[prost(int32, tag = "27")]
    pub(crate) debug_capture_point: i32,
    #[prost(message, optional, tag = "28")]
    pub(crate) interface: Option<Interface>,
    #[prost(uint32, tag = "29")]
    pub(crate) proxy_port: u32,
    #[prost(message, optional, tag = "30")]
    pub(crate) trace_context: Option<TraceContext>,
    #[prost(int32, tag = "31")]
    pub(crate) sock_xlate_point: i32,
    #[prost(uint64, tag = "32")]
    pub(crate) socket_cookie: u64,
    #[prost(uint64, tag = "33")]
    pub(crate) cgroup_id: u64,
    #[prost(string, tag = "34")]
    pub(crate) uuid: String,
    #[prost(int32, tag = "35")]
    pub(crate) auth_type: i32,
    #[prost(int32, tag = "36")]
    pub(crate) trace_reason: i32,
    #[prost(string, repeated, tag = "37")]
    pub(crate) node_labels: Vec<String>,
    #[prost(message, optional, tag = "38")]
    pub(crate) file: Option<FileInfo>,
    #[prost(message, optional, tag = "39")]
    pub(crate) tunnel: Option<Tunnel>,
    #[prost(message, optional, tag = "40")]
    pub(crate) ip_trace_id: Option<IpTraceId>,
    #[prost(message, optional, tag = "41")]
    pub(crate) emitter: Option<Emitter>,
    #[prost(message, repeated, tag = "21001")]
    pub(crate) egress_allowed_by: Vec<Policy>,
    #[prost(message, repeated, tag = "21002")]
    pub(crate) ingress_allowed_by: Vec<Policy>,
    #[prost(message, repeated, tag = "21004")]
    pub(crate) egress_denied_by: Vec<Policy>,
    #[prost(message, repeated, tag = "21005")]
    pub(crate) ingress_denied_by: Vec<Policy>,
    #[prost(string, repeated, tag = "21006")]
    pub(crate) policy_log: Vec<String>,
    #[prost(message, optional, tag = "21007")]
    pub(crate) aggregate: Option<Aggregate>,
    #[prost(string, tag = "100000")]
    pub(crate) summary: String,
    #[prost(message, optional, tag = "150000")]
    pub(crate) extensions: Option<Any>,
}

macro_rules! messages {
    ($($name:ident { $($field:ident: $kind:ident = $tag:literal),* $(,)? })*) => {
        $(#[derive(Clone, PartialEq, Message)]
        pub(crate) struct $name {
            $(#[prost($kind, tag = $tag)]
            pub(crate) $field: messages!(@ $kind),)*
        })*
    };
    (@ string) => { String };
    (@ uint32) => { u32 };
    (@ uint64) => { u64 };
    (@ int32) => { i32 };
    (@ bool) => { bool };
}

messages! {
    Ethernet { source: string = "1", destination: string = "2" }
    Ip { source: string = "1", destination: string = "2", version: int32 = "3", encrypted: bool = "4", source_xlated: string = "5" }
    Ports { source: uint32 = "1", destination: uint32 = "2" }
    Flags { fin: bool = "1", syn: bool = "2", rst: bool = "3", psh: bool = "4", ack: bool = "5", urg: bool = "6", ece: bool = "7",
        cwr: bool = "8", ns: bool = "9" }
    Workload { name: string = "1", kind: string = "2" }
    Service { name: string = "1", namespace: string = "2" }
    EventType { kind: int32 = "1", sub_type: int32 = "2" }
    Interface { index: uint32 = "1", name: string = "2" }
    TraceParent { trace_id: string = "1" }
    FileInfo { name: string = "1", line: uint32 = "2" }
    IpTraceId { trace_id: uint64 = "1", ip_option_type: uint32 = "2" }
    Emitter { name: string = "1", version: string = "2" }
    Aggregate { ingress: uint32 = "1", egress: uint32 = "2", unknown: uint32 = "3" }
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Tcp {
    #[prost(uint32, tag = "1")]
    pub(crate) source: u32,
    #[prost(uint32, tag = "2")]
    pub(crate) destination: u32,
    #[prost(message, optional, tag = "3")]
    pub(crate) flags: Option<Flags>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Layer4 {
    #[prost(oneof = "Transport", tags = "1, 2, 3, 4, 5")]
    pub(crate) transport: Option<Transport>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Transport {
    #[prost(message, tag = "1")]
    Tcp(Tcp),
    #[prost(message, tag = "2")]
    Udp(Ports),
    #[prost(message, tag = "3")]
    Icmp4(Ports),
    #[prost(message, tag = "4")]
    Icmp6(Ports),
    #[prost(message, tag = "5")]
    Sctp(Ports),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Endpoint {
    #[prost(uint32, tag = "1")]
    pub(crate) id: u32,
    #[prost(uint32, tag = "2")]
    pub(crate) identity: u32,
    #[prost(string, tag = "3")]
    pub(crate) namespace: String,
    #[prost(string, repeated, tag = "4")]
    pub(crate) labels: Vec<String>,
    #[prost(string, tag = "5")]
    pub(crate) pod_name: String,
    #[prost(message, repeated, tag = "6")]
    pub(crate) workloads: Vec<Workload>,
    #[prost(string, tag = "7")]
    pub(crate) cluster_name: String,
}

/// What a proxy saw; its inside is not looked into here, which only flatters this client.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Layer7 {
    #[prost(int32, tag = "1")]
    pub(crate) kind: i32,
    #[prost(uint64, tag = "2")]
    pub(crate) latency_ns: u64,
    #[prost(bytes = "vec", tag = "100")]
    pub(crate) dns: Vec<u8>,
    #[prost(bytes = "vec", tag = "101")]
    pub(crate) http: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TraceContext {
    #[prost(message, optional, tag = "1")]
    pub(crate) parent: Option<TraceParent>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Tunnel {
    #[prost(int32, tag = "1")]
    pub(crate) protocol: i32,
    #[prost(message, optional, tag = "2")]
    pub(crate) ip: Option<Ip>,
    #[prost(message, optional, tag = "3")]
    pub(crate) l4: Option<Layer4>,
    #[prost(uint32, tag = "4")]
    pub(crate) vni: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Policy {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) namespace: String,
    #[prost(string, repeated, tag = "3")]
    pub(crate) labels: Vec<String>,
    #[prost(uint64, tag = "4")]
    pub(crate) revision: u64,
    #[prost(string, tag = "5")]
    pub(crate) kind: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Any {
    #[prost(string, tag = "1")]
    pub(crate) type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
}

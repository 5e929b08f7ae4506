//! The clients that are compared. Each counts flows until there were enough.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use firedoor::hubble::{message, values};
use firedoor::source::hubble::{HubbleSettings, Interest, Told, follow};
use firedoor_core::drop_reason::DropReason;
use firedoor_core::facts::Protocol;
use firedoor_core::inventory::Inventory;
use firedoor_core::membership::Grouping;
use firedoor_core::observation::{End, Flow, Observation, Reserved, SourceKind, TcpFlags};
use firedoor_core::pipeline::Pipeline;
use firedoor_core::settings::Settings;
use firedoor_core::time::Timestamp;
use firedoor_proto::observer::GetFlowsRequest;
use http_body_util::BodyExt as _;
use prost::Message as _;
use tokio::sync::{mpsc, watch};
use tonic::transport::{Channel, Endpoint};

use crate::full::{self, Transport};
use crate::world::{self, NODE};
use crate::{Meter, WARM};

fn pipeline() -> Pipeline {
    Pipeline::new(Inventory::new(world::objects(), &Grouping::default()), Settings::default())
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

pub(crate) fn run(name: &str, path: &Path) {
    match name {
        "floor" => runtime().block_on(floor(path)),
        "firedoor" => firedoor(path, true),
        "received" => firedoor(path, false),
        "baseline" => runtime().block_on(baseline(path, None)),
        "baseline-counted" => runtime().block_on(baseline(path, Some(pipeline()))),
        _ => panic!("{name}"),
    }
}

async fn channel(path: &Path) -> Channel {
    Endpoint::from_shared(format!("unix://{}", path.display())).unwrap().connect().await.unwrap()
}

fn request() -> GetFlowsRequest {
    GetFlowsRequest { follow: true, number: 4096, ..GetFlowsRequest::default() }
}

/// The same calls as firedoor's, with the same windows: frames are counted and dropped.
async fn floor(path: &Path) {
    let endpoint = Endpoint::from_shared(format!("unix://{}", path.display())).unwrap();
    let endpoint = endpoint.initial_stream_window_size(512 << 10).initial_connection_window_size(8 << 20);
    let mut channel = endpoint.connect().await.unwrap();
    let message = request().encode_to_vec();
    let mut framed = vec![0];
    framed.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
    framed.extend_from_slice(&message);
    let body = tonic::body::Body::new(http_body_util::Full::new(bytes::Bytes::from(framed)));
    let request = http::Request::post("/observer.Observer/GetFlows")
        .version(http::Version::HTTP_2)
        .header("te", "trailers")
        .header("content-type", "application/grpc")
        .body(body)
        .unwrap();
    std::future::poll_fn(|context| tower_service::Service::poll_ready(&mut channel, context)).await.unwrap();
    let response = tower_service::Service::call(&mut channel, request).await.unwrap();
    let mut body = response.into_body();
    let mut meter = Meter::new();
    while let Some(frame) = body.frame().await {
        std::hint::black_box(frame.unwrap());
        if meter.count(1) {
            return;
        }
    }
    panic!("the stream ended");
}

/// As the agent does it: one thread receives, another one decodes and counts.
fn firedoor(path: &Path, counts: bool) {
    let settings = HubbleSettings::new(format!("unix://{}", path.display()).parse().unwrap(), NODE);
    let (to, mut from) = mpsc::channel(16);
    let everything = Interest { everything: true, ..Interest::default() };
    let (_interest, asked) = watch::channel(Arc::new(everything));
    std::thread::spawn(move || {
        runtime().block_on(follow(settings, asked, to, std::future::pending()));
    });
    let mut pipeline = pipeline();
    let mut meter = Meter::new();
    while let Some(told) = from.blocking_recv() {
        let Told::Batch(batch) = told else { continue };
        let mut flows = 0;
        batch.observations(|observation| match observation {
            Ok(observation) => {
                flows += u64::from(matches!(observation, Observation::Flow(_)));
                if counts {
                    pipeline.observe(observation);
                } else {
                    std::hint::black_box(&observation);
                }
            }
            Err(why) => panic!("{why}"),
        });
        if meter.count(flows) {
            assert_counted(pipeline, counts);
            return;
        }
    }
    panic!("the source ended");
}

/// What was counted must be true, else the figures are worth nothing.
fn assert_counted(pipeline: Pipeline, counts: bool) {
    let coverage = pipeline.finish().coverage;
    if counts {
        assert!(coverage.received >= WARM && coverage.lost == 0, "{coverage:?}");
        assert_eq!((coverage.rejected, coverage.late, coverage.duplicate), (0, 0, 0), "{coverage:?}");
        assert!(coverage.attributed * 10 > coverage.received * 8, "{coverage:?}");
    }
}

/// The usual client: every field, with the defaults of the library.
async fn baseline(path: &Path, mut pipeline: Option<Pipeline>) {
    let mut client = tonic::client::Grpc::new(channel(path).await);
    client.ready().await.unwrap();
    let codec = tonic_prost::ProstCodec::<GetFlowsRequest, full::Response>::default();
    let path = http::uri::PathAndQuery::from_static("/observer.Observer/GetFlows");
    let response = client.server_streaming(tonic::Request::new(request()), path, codec).await.unwrap();
    let mut stream = response.into_inner();
    let mut meter = Meter::new();
    while let Some(message) = stream.message().await.unwrap() {
        match &mut pipeline {
            Some(pipeline) => pipeline.observe(observation(&message)),
            None => drop(std::hint::black_box(message)),
        }
        if meter.count(1) {
            return;
        }
    }
    panic!("the stream ended");
}

/// A message with all its fields as an observation.
fn observation(response: &full::Response) -> Observation<'_> {
    let flow = response.flow.as_ref().expect("a flow");
    let time = flow.time.as_ref().expect("a time");
    let nanos = time.seconds.cast_unsigned() * 1_000_000_000 + u64::from(time.nanos.cast_unsigned());
    let ip = flow.ip.as_ref();
    let address = |text: Option<&String>| text.and_then(|text| text.parse::<IpAddr>().ok());
    let none = TcpFlags::default();
    let (protocol, source, destination, flags) = match flow.l4.as_ref().and_then(|l4| l4.transport.as_ref()) {
        Some(Transport::Tcp(tcp)) => {
            let f = tcp.flags.clone().unwrap_or_default();
            let flags = TcpFlags { syn: f.syn, ack: f.ack, rst: f.rst, fin: f.fin, psh: f.psh };
            (Protocol::Tcp, tcp.source, tcp.destination, flags)
        }
        Some(Transport::Udp(udp)) => (Protocol::Udp, udp.source, udp.destination, none),
        _ => (Protocol::Icmp, 0, 0, none),
    };
    let end = |endpoint: &'_ Option<full::Endpoint>, ip, port: u32| {
        let endpoint = endpoint.as_ref();
        let reserved = endpoint.and_then(|endpoint| Reserved::from_identity(endpoint.identity));
        End { ip, port: port as u16, pod: None, uid: None, reserved }
    };
    let mut src = end(&flow.source, address(ip.map(|ip| &ip.source)), source);
    let mut dst = end(&flow.destination, address(ip.map(|ip| &ip.destination)), destination);
    if let Some(endpoint) = flow.source.as_ref().filter(|endpoint| !endpoint.pod_name.is_empty()) {
        src.pod = Some((&endpoint.namespace, &endpoint.pod_name));
    }
    if let Some(endpoint) = flow.destination.as_ref().filter(|endpoint| !endpoint.pod_name.is_empty()) {
        dst.pod = Some((&endpoint.namespace, &endpoint.pod_name));
    }
    let event = flow.event_type.as_ref().map(|event| (i64::from(event.kind), i64::from(event.sub_type)));
    let (kind, sub_kind) = values::event_kind(event);
    Observation::Flow(Flow {
        at: Timestamp::from_nanos(nanos),
        observer: &flow.node_name,
        source: SourceKind::Hubble,
        kind,
        sub_kind,
        verdict: values::verdict(flow.verdict.into(), || DropReason::from_code(flow.drop_reason)),
        protocol,
        src,
        dst,
        flags,
        is_reply: flow.is_reply.as_ref().map(|told| told.value != 0),
        direction: values::direction(flow.traffic_direction.into()),
        state: values::connection_state(flow.trace_reason.into()),
        denied_by: Vec::new(),
    })
}

/// So many messages lie in the processor's cache, as those do that were just received.
const IN_CACHE: usize = 256;

/// The stages alone: no transport.
pub(crate) fn in_memory(name: &str) {
    let mut templates = world::templates();
    templates.truncate(IN_CACHE);
    let mut pipeline = pipeline();
    let mut meter = Meter::new();
    let mut copies: Vec<Vec<u8>> = templates.iter().map(|template| template.bytes.clone()).collect();
    let mut number = 0;
    loop {
        for (template, copy) in templates.iter().zip(&mut copies) {
            template.stamp(copy, number);
            number += 1;
            match name {
                "decode" => drop(std::hint::black_box(message::observation(copy))),
                "decode-full" => drop(std::hint::black_box(full::Response::decode(copy.as_slice()))),
                _ => {
                    if let Ok(Some(observation)) = message::observation(copy) {
                        pipeline.observe(observation);
                    }
                }
            }
        }
        if meter.count(templates.len() as u64) {
            return;
        }
    }
}

//! A made-up node: who is on it, and what its Hubble sees. Enters: nothing; leaves: objects, and messages as a server of
//! Cilium 1.19 encodes them. 70 % are traces between members of jobs, 10 % denials (verdict and drop), the rest traffic of
//! other pods and names being looked up. Times are written anew for every message, so that none is a duplicate.

use firedoor_core::object::Object;
use prost::Message as _;
use serde_json::json;

use crate::full::{
    Emitter, Endpoint, Ethernet, EventType, FileInfo, Flags, Flow, Interface, Ip, Layer4, Policy, Ports,
    Response, Tcp, Time, Transport, Workload, Wrapped,
};

pub(crate) const NODE: &str = "gpu-node-a";
const JOBS: usize = 4;
const MEMBERS: usize = 16;
/// Different messages; the same ones come again with other times.
const TEMPLATES: usize = 4096;
/// Any time whose varints are as long as those of all times of this century, with nanoseconds above 2^28.
const SECONDS: i64 = 1_793_527_220;
const NANOS: u32 = 1 << 28;

fn pod(job: usize, member: usize) -> String {
    format!("llama-{job}-worker-{member}")
}

fn address(job: usize, member: usize) -> String {
    format!("10.244.{}.{}", job + 1, member + 10)
}

/// The cluster.
pub(crate) fn objects() -> Vec<Object> {
    let mut all = vec![
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "uid": "uid-node",
            "labels": {"topology.kubernetes.io/zone": "zone-a"}}}),
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-node-b", "uid": "uid-node-b",
            "labels": {"topology.kubernetes.io/zone": "zone-b"}}}),
    ];
    for job in 0..JOBS {
        all.push(json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
            "metadata": {"name": format!("llama-{job}"), "namespace": "ml-team", "uid": format!("uid-job-{job}")}}));
        for member in 0..MEMBERS {
            let name = pod(job, member);
            all.push(json!({"apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": name, "namespace": "ml-team", "uid": format!("uid-{name}"),
                    "labels": {"training.kubeflow.org/job-name": format!("llama-{job}"),
                        "training.kubeflow.org/replica-type": "worker",
                        "training.kubeflow.org/replica-index": member.to_string()},
                    "ownerReferences": [{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
                        "name": format!("llama-{job}"), "uid": format!("uid-job-{job}"), "controller": true}]},
                "spec": {"nodeName": if member.is_multiple_of(2) { NODE } else { "gpu-node-b" },
                    "containers": [{"name": "t", "ports": [{"containerPort": 23456}]}]},
                "status": {"phase": "Running", "podIP": address(job, member)}}));
        }
    }
    all.into_iter().map(|value| Object::from_value(value).expect("an object")).collect()
}

fn endpoint(job: usize, member: usize) -> Endpoint {
    let local = member.is_multiple_of(2);
    let labels = [
        "k8s:io.cilium.k8s.namespace.labels.kubernetes.io/metadata.name=ml-team".to_owned(),
        "k8s:io.cilium.k8s.policy.cluster=default".to_owned(),
        "k8s:io.cilium.k8s.policy.serviceaccount=default".to_owned(),
        "k8s:io.kubernetes.pod.namespace=ml-team".to_owned(),
        format!("k8s:training.kubeflow.org/job-name=llama-{job}"),
        "k8s:training.kubeflow.org/job-role=worker".to_owned(),
        "k8s:training.kubeflow.org/operator-name=pytorchjob-controller".to_owned(),
        "k8s:training.kubeflow.org/replica-type=worker".to_owned(),
    ];
    let workload = Workload { name: format!("llama-{job}"), kind: "PyTorchJob".to_owned() };
    Endpoint {
        id: if local { 100 + member as u32 } else { 0 },
        identity: 50_000 + job as u32,
        namespace: "ml-team".to_owned(),
        labels: labels.to_vec(),
        pod_name: pod(job, member),
        workloads: if local { vec![workload] } else { Vec::new() },
        cluster_name: "default".to_owned(),
    }
}

fn stranger(number: usize) -> Endpoint {
    Endpoint {
        identity: 60_000,
        namespace: "web".to_owned(),
        labels: vec!["k8s:app=web".to_owned(), "k8s:io.kubernetes.pod.namespace=web".to_owned()],
        pod_name: format!("web-{number}"),
        cluster_name: "default".to_owned(),
        ..Endpoint::default()
    }
}

/// One message, as Go encodes it: what is around the flow comes first.
fn template(number: usize) -> Response {
    let time = Some(Time { seconds: SECONDS, nanos: NANOS.cast_signed() });
    let (job, from) = (number % JOBS, number / 7 % MEMBERS);
    let to = (from + 1 + number / 3 % (MEMBERS - 1)) % MEMBERS;
    let mut flow = Flow {
        time: time.clone(),
        verdict: 1,
        ethernet: Some(Ethernet {
            source: "02:00:00:00:00:01".into(),
            destination: "02:00:00:00:00:02".into(),
        }),
        ip: Some(Ip {
            source: address(job, from),
            destination: address(job, to),
            version: 1,
            ..Ip::default()
        }),
        l4: Some(Layer4 {
            transport: Some(Transport::Tcp(Tcp {
                source: 32_768 + (number as u32 * 7) % 28_000,
                destination: if number.is_multiple_of(4) { 23_456 } else { 40_000 + number as u32 % 64 },
                flags: Some(Flags { ack: true, psh: number.is_multiple_of(2), ..Flags::default() }),
            })),
        }),
        source: Some(endpoint(job, from)),
        destination: Some(endpoint(job, to)),
        kind: 1,
        node_name: NODE.to_owned(),
        event_type: Some(EventType { kind: 4, sub_type: 4 }),
        traffic_direction: 2,
        trace_observation_point: 4,
        is_reply: Some(Wrapped { value: 0 }),
        interface: Some(Interface { index: 7, name: "cilium_vxlan".to_owned() }),
        uuid: format!("74e5b0e5-11fe-421b-8050-{number:012x}"),
        trace_reason: 2,
        emitter: Some(Emitter { name: "Hubble".into(), version: "1.19.4".into() }),
        summary: "TCP Flags: ACK, PSH".to_owned(),
        ..Flow::default()
    };
    match number % 20 {
        0..=13 => {}
        14 | 15 => {
            (flow.verdict, flow.drop_reason, flow.drop_reason_desc) = (2, 133, 133);
            let kind = if number.is_multiple_of(2) { 5 } else { 1 };
            flow.event_type = Some(EventType { kind, sub_type: if kind == 1 { 133 } else { 0 } });
            (flow.trace_observation_point, flow.trace_reason, flow.is_reply) = (0, 0, None);
            flow.file = Some(FileInfo { name: "bpf_lxc.c".into(), line: 1355 });
            "TCP Flags: SYN".clone_into(&mut flow.summary);
        }
        16 => {
            flow.event_type = Some(EventType { kind: 5, sub_type: 0 });
            flow.policy_match_type = 4;
            flow.egress_allowed_by = vec![Policy {
                name: "allow-training".into(),
                namespace: "ml-team".into(),
                labels: vec!["k8s:io.cilium.k8s.policy.name=allow-training".into()],
                revision: 12,
                kind: "CiliumNetworkPolicy".into(),
            }];
        }
        17 | 18 => {
            flow.source = Some(stranger(number % 32));
            flow.destination = Some(stranger(number % 31));
            flow.ip = Some(Ip {
                source: "10.244.9.1".into(),
                destination: "10.244.9.2".into(),
                version: 1,
                ..Ip::default()
            });
        }
        _ => {
            flow.l4 =
                Some(Layer4 { transport: Some(Transport::Udp(Ports { source: 40_000, destination: 53 })) });
            flow.destination = Some(stranger(0));
            "UDP".clone_into(&mut flow.summary);
        }
    }
    Response { flow: Some(flow), node_name: NODE.to_owned(), time, ..Response::default() }
}

/// An encoded message with the places of its times.
pub(crate) struct Template {
    pub(crate) bytes: Vec<u8>,
    times: Vec<usize>,
}

/// All of them.
pub(crate) fn templates() -> Vec<Template> {
    let pattern = Time { seconds: SECONDS, nanos: NANOS.cast_signed() }.encode_to_vec();
    (0..TEMPLATES)
        .map(|number| {
            let bytes = template(number).encode_to_vec();
            let windows = bytes.windows(pattern.len()).enumerate();
            let times =
                windows.filter(|(_, window)| *window == pattern).map(|(at, _)| at).collect::<Vec<_>>();
            assert_eq!(times.len(), 2, "the flow's time and the one around it");
            Template { bytes, times }
        })
        .collect()
}

impl Template {
    /// Writes a time into a copy of the message, `number` microseconds after the first one.
    pub(crate) fn stamp(&self, copy: &mut [u8], number: u64) {
        let micros = number % 700_000;
        let seconds = SECONDS.cast_unsigned() + number / 700_000;
        let nanos = u64::from(NANOS) + micros * 1_000;
        for at in &self.times {
            // Field 1, five bytes of varint, field 2, five bytes of varint.
            put(&mut copy[at + 1..at + 6], seconds);
            put(&mut copy[at + 7..at + 12], nanos);
        }
    }
}

fn put(place: &mut [u8], mut number: u64) {
    let last = place.len() - 1;
    for (index, byte) in place.iter_mut().enumerate() {
        *byte = (number & 0x7f) as u8 | if index < last { 0x80 } else { 0 };
        number >>= 7;
    }
}

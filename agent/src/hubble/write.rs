//! Observations of Hubble as lines of a capture's `flows.jsonl`, in the form that `hubble observe -o jsonpb` prints.
//! Enters: observations; leaves: lines that are read back as the same observations. Only what firedoor reads is written.

use std::io::{self, Write};

use firedoor_core::facts::Protocol;
use firedoor_core::observation::{
    ConnectionState, Direction, End, EventKind, Flow, Loss, NamedPolicy, Observation, Reserved, Verdict,
};
use firedoor_core::time::Timestamp;
use serde_json::{Map, Value, json};

/// Writes an observation as a line. The kernel's are no lines here.
///
/// # Errors
/// When writing fails.
pub fn write(to: &mut impl Write, observation: &Observation<'_>) -> io::Result<()> {
    let line = match observation {
        Observation::Flow(flow) => {
            json!({"flow": of_flow(flow), "node_name": flow.observer, "time": flow.at.to_string()})
        }
        Observation::Lost(loss) => of_loss(loss),
        Observation::Blind { at, nodes } => of_nodes("NODE_UNAVAILABLE", *at, nodes),
        Observation::Reached { at, nodes } => of_nodes("NODE_CONNECTED", *at, nodes),
        Observation::Drops(_) | Observation::Socket(_) => return Ok(()),
    };
    serde_json::to_writer(&mut *to, &line)?;
    to.write_all(b"\n")
}

fn of_nodes(state: &str, at: Timestamp, nodes: &[&str]) -> Value {
    json!({"node_status": {"state_change": state, "node_names": nodes}, "time": at.to_string()})
}

fn of_loss(loss: &Loss<'_>) -> Value {
    let mut lost = json!({"lost_events": {"num_events_lost": loss.count.to_string()}});
    if !loss.cause.is_empty() {
        lost["lost_events"]["source"] = loss.cause.into();
    }
    if let Some(node) = loss.observer {
        lost["node_name"] = node.into();
    }
    if let Some(at) = loss.at {
        lost["time"] = at.to_string().into();
    }
    lost
}

fn of_flow(flow: &Flow<'_>) -> Value {
    let mut line = Map::new();
    let mut put = |key: &str, value: Value| line.insert(key.to_owned(), value);
    put("time", flow.at.to_string().into());
    put("node_name", flow.observer.into());
    let (verdict, reason) = match flow.verdict {
        Verdict::Forwarded => ("FORWARDED", None),
        Verdict::Dropped(reason) => ("DROPPED", Some(reason)),
        Verdict::WouldDrop(reason) => ("AUDIT", Some(reason)),
        Verdict::Redirected => ("REDIRECTED", None),
        Verdict::Other => ("VERDICT_UNKNOWN", None),
    };
    put("verdict", verdict.into());
    if let Some(reason) = reason {
        put("drop_reason", reason.code().into());
        put("drop_reason_desc", reason.to_string().into());
    }
    let kind = match flow.kind {
        EventKind::Drop => 1,
        EventKind::Trace => 4,
        EventKind::PolicyVerdict => 5,
        EventKind::Socket => 7,
        EventKind::Layer7 => 129,
        EventKind::Other => 130,
    };
    put("event_type", json!({"type": kind, "sub_type": flow.sub_kind}));
    put("IP", json!({"source": address(&flow.src), "destination": address(&flow.dst)}));
    if let Some(l4) = of_layer4(flow) {
        put("l4", l4);
    }
    put("source", of_end(&flow.src));
    put("destination", of_end(&flow.dst));
    if let Some(reply) = flow.is_reply {
        put("is_reply", reply.into());
    }
    match flow.direction {
        Some(Direction::Ingress) => put("traffic_direction", "INGRESS".into()),
        Some(Direction::Egress) => put("traffic_direction", "EGRESS".into()),
        None => None,
    };
    match flow.state {
        Some(ConnectionState::New) => put("trace_reason", "NEW".into()),
        Some(ConnectionState::Established) => put("trace_reason", "ESTABLISHED".into()),
        Some(ConnectionState::Reply) => put("trace_reason", "REPLY".into()),
        Some(ConnectionState::Other) => put("trace_reason", "RELATED".into()),
        None => None,
    };
    for (direction, key) in
        [(Direction::Egress, "egress_denied_by"), (Direction::Ingress, "ingress_denied_by")]
    {
        let named = flow.denied_by.iter().filter(|policy| policy.direction == direction);
        let named: Vec<Value> = named.map(of_policy).collect();
        if !named.is_empty() {
            put(key, named.into());
        }
    }
    Value::Object(line)
}

fn address(end: &End<'_>) -> String {
    end.ip.map(|ip| ip.to_string()).unwrap_or_default()
}

fn of_layer4(flow: &Flow<'_>) -> Option<Value> {
    let ports = json!({"source_port": flow.src.port, "destination_port": flow.dst.port});
    match flow.protocol {
        Protocol::Tcp => {
            let flags = flow.flags;
            let told = [
                ("FIN", flags.fin),
                ("SYN", flags.syn),
                ("RST", flags.rst),
                ("PSH", flags.psh),
                ("ACK", flags.ack),
            ];
            let set = told.into_iter().filter(|(_, set)| *set);
            let set: Map<String, Value> = set.map(|(name, _)| (name.to_owned(), true.into())).collect();
            let mut ports = ports;
            ports["flags"] = set.into();
            Some(json!({"TCP": ports}))
        }
        Protocol::Udp => Some(json!({"UDP": ports})),
        Protocol::Sctp => Some(json!({"SCTP": ports})),
        Protocol::Icmp => None,
    }
}

fn of_end(end: &End<'_>) -> Value {
    let mut endpoint = Map::new();
    if let Some((namespace, name)) = end.pod {
        endpoint.insert("namespace".to_owned(), namespace.into());
        endpoint.insert("pod_name".to_owned(), name.into());
    }
    // Cilium's numbers, of which each class has a first one.
    let identity = end.reserved.map(|reserved| match reserved {
        Reserved::Host => 1,
        Reserved::World => 2,
        Reserved::RemoteNode => 6,
        Reserved::KubeApiserver => 7,
        Reserved::Other => 3,
    });
    if let Some(identity) = identity {
        endpoint.insert("identity".to_owned(), identity.into());
    }
    endpoint.into()
}

fn of_policy(policy: &NamedPolicy<'_>) -> Value {
    json!({"kind": policy.kind, "namespace": policy.namespace, "name": policy.name})
}

#[cfg(test)]
mod tests {
    use firedoor_core::drop_reason::DropReason;
    use firedoor_core::observation::{SourceKind, TcpFlags};

    use super::super::{convert, json};
    use super::*;

    fn denied() -> Flow<'static> {
        let end = |ip: &str, port, pod| End {
            ip: ip.parse().ok(),
            port,
            pod: Some(("ml", pod)),
            uid: None,
            reserved: None,
        };
        Flow {
            at: Timestamp::from_nanos(1_700_000_000_123_456_789),
            observer: "node-a",
            source: SourceKind::Hubble,
            kind: EventKind::PolicyVerdict,
            sub_kind: 0,
            verdict: Verdict::Dropped(DropReason::from_code(181)),
            protocol: Protocol::Tcp,
            src: end("10.0.0.1", 40_000, "worker-0"),
            dst: End { pod: None, reserved: Some(Reserved::World), ..end("fd00::1", 29_500, "") },
            flags: TcpFlags { syn: true, ..TcpFlags::default() },
            is_reply: None,
            direction: Some(Direction::Egress),
            state: None,
            denied_by: vec![NamedPolicy {
                kind: "CiliumNetworkPolicy",
                namespace: "ml",
                name: "deny",
                direction: Direction::Egress,
            }],
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let passed = Flow {
            verdict: Verdict::Forwarded,
            kind: EventKind::Trace,
            is_reply: Some(true),
            state: Some(ConnectionState::Reply),
            direction: None,
            protocol: Protocol::Udp,
            flags: TcpFlags::default(),
            denied_by: Vec::new(),
            ..denied()
        };
        for flow in [denied(), passed] {
            let mut line = Vec::new();
            write(&mut line, &Observation::Flow(flow.clone())).unwrap();
            let response: json::Response<'_> = serde_json::from_slice(&line).unwrap();
            let read = response.flow.unwrap();
            assert_eq!(convert::flow(&read, "", "").unwrap(), flow);
        }
    }
}

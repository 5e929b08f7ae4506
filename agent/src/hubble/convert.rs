//! From Hubble's messages to observations. Enters: parsed messages; leaves: observations, or why a message
//! cannot be one. Numbers are those of Cilium's `flow` package up to 1.19.

use std::net::IpAddr;

use firedoor_core::drop_reason::DropReason;
use firedoor_core::facts::Protocol;
use firedoor_core::observation::{
    ConnectionState, Direction, End, EventKind, Flow, Loss, NamedPolicy, Observation, Reserved, SourceKind,
    TcpFlags, Verdict,
};
use firedoor_core::time::Timestamp;

use super::json;

/// Why a message cannot become an observation.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unusable {
    /// No time, or one that is no RFC 3339 text.
    #[error("the event has no readable time ({0:?})")]
    Time(String),
    /// A port that no packet can have.
    #[error("port {0} does not exist")]
    Port(i128),
    /// A number of lost events that nobody can have counted.
    #[error("{0} events cannot have been lost")]
    Lost(i128),
    /// A flow without addresses and pods says nothing about anybody.
    #[error("the flow names neither addresses nor pods")]
    NoEnds,
}

/// A flow as an observation. `outer_node` and `outer_time` stand in for what the flow itself leaves out.
///
/// # Errors
/// Why the flow is unusable.
pub fn flow<'a>(
    flow: &'a json::Flow<'a>,
    outer_node: &'a str,
    outer_time: &str,
) -> Result<Flow<'a>, Unusable> {
    let text = flow.time.as_str();
    let at = Timestamp::parse(text).or_else(|| Timestamp::parse(outer_time));
    let at = at.ok_or_else(|| Unusable::Time(if text.is_empty() { outer_time } else { text }.to_owned()))?;
    let (kind, sub_kind) = event_kind(flow.event_type.as_ref());
    let (protocol, src_port, dst_port, flags) = layer4(flow.l4.as_ref())?;
    let (src_ip, dst_ip) = match &flow.ip {
        Some(ip) => (ip.source.as_str().parse().ok(), ip.destination.as_str().parse().ok()),
        None => (None, None),
    };
    let src = end(flow.source.as_ref(), src_ip, src_port);
    let dst = end(flow.destination.as_ref(), dst_ip, dst_port);
    let told = |end: &End<'_>| end.ip.is_some() || end.pod.is_some();
    if !told(&src) && !told(&dst) {
        return Err(Unusable::NoEnds);
    }
    let node = flow.node_name.as_str();
    Ok(Flow {
        at,
        observer: if node.is_empty() { outer_node } else { node },
        source: SourceKind::Hubble,
        kind,
        sub_kind,
        verdict: verdict(flow),
        protocol,
        src,
        dst,
        flags,
        is_reply: flow.is_reply.or(flow.reply.filter(|reply| *reply)),
        direction: direction(&flow.traffic_direction),
        state: state(&flow.trace_reason),
        denied_by: denied_by(flow),
    })
}

/// Lost events as an observation; without a time where the message has no readable one, since its count is still true.
///
/// # Errors
/// Why the message is unusable.
pub fn lost<'a>(lost: &json::LostEvents<'_>, node: &'a str, time: &str) -> Result<Observation<'a>, Unusable> {
    let number = lost.num_events_lost.0;
    let count = u64::try_from(number).map_err(|_| Unusable::Lost(number))?;
    let observer = (!node.is_empty()).then_some(node);
    let at = Timestamp::parse(time);
    Ok(Observation::Lost(Loss { at, observer, source: SourceKind::Hubble, cause: "", count }))
}

/// A relay's news about its nodes, when it means that some are not seen.
#[must_use]
pub fn node_status<'a>(status: &'a json::NodeStatus<'a>, time: &str) -> Option<Observation<'a>> {
    // relay.NodeState: 2 unavailable, 3 gone, 4 error.
    let blind = match &status.state_change {
        json::Enum::Name(name) => matches!(name.as_ref(), "NODE_UNAVAILABLE" | "NODE_GONE" | "NODE_ERROR"),
        json::Enum::Code(code) => matches!(code, 2..=4),
        json::Enum::Unset => false,
    };
    let nodes = status.node_names.iter().flatten().map(json::Text::as_str).collect();
    blind.then(|| Observation::Blind { at: Timestamp::parse(time).unwrap_or(Timestamp::MIN), nodes })
}

fn event_kind(event: Option<&json::EventType>) -> (EventKind, i32) {
    let Some(event) = event else { return (EventKind::Trace, 0) };
    let kind = match event.kind.0 {
        1 => EventKind::Drop,
        4 => EventKind::Trace,
        5 => EventKind::PolicyVerdict,
        7 => EventKind::Socket,
        129 => EventKind::Layer7,
        _ => EventKind::Other,
    };
    (kind, i32::try_from(event.sub_type.0).unwrap_or(i32::MAX))
}

fn layer4(l4: Option<&json::Layer4>) -> Result<(Protocol, u16, u16, TcpFlags), Unusable> {
    let Some(l4) = l4 else { return Ok((Protocol::Icmp, 0, 0, TcpFlags::default())) };
    let known = [(Protocol::Tcp, &l4.tcp), (Protocol::Udp, &l4.udp), (Protocol::Sctp, &l4.sctp)];
    for (protocol, ports) in known {
        let Some(ports) = ports else { continue };
        let flags = ports.flags.as_ref().map_or(TcpFlags::default(), |f| TcpFlags {
            syn: f.syn,
            ack: f.ack,
            rst: f.rst,
            fin: f.fin,
            psh: f.psh,
        });
        return Ok((protocol, port(ports.source_port)?, port(ports.destination_port)?, flags));
    }
    // ICMP, VRRP, IGMP, or newer: nothing that opens connections.
    Ok((Protocol::Icmp, 0, 0, TcpFlags::default()))
}

fn port(number: json::Number) -> Result<u16, Unusable> {
    u16::try_from(number.0).map_err(|_| Unusable::Port(number.0))
}

fn end<'a>(endpoint: Option<&'a json::Endpoint<'a>>, ip: Option<IpAddr>, port: u16) -> End<'a> {
    let pod =
        endpoint.map(|e| (e.namespace.as_str(), e.pod_name.as_str())).filter(|(_, name)| !name.is_empty());
    let identity = endpoint.and_then(|e| e.identity).and_then(|id| u32::try_from(id.0).ok());
    End { ip, port, pod, uid: None, reserved: identity.and_then(Reserved::from_identity) }
}

fn verdict(flow: &json::Flow<'_>) -> Verdict {
    match &flow.verdict {
        json::Enum::Name(name) => match name.as_ref() {
            "FORWARDED" => Verdict::Forwarded,
            "DROPPED" => Verdict::Dropped(drop_reason(flow)),
            "AUDIT" => Verdict::WouldDrop(drop_reason(flow)),
            "REDIRECTED" => Verdict::Redirected,
            _ => Verdict::Other,
        },
        json::Enum::Code(code) => match code {
            1 => Verdict::Forwarded,
            2 => Verdict::Dropped(drop_reason(flow)),
            4 => Verdict::WouldDrop(drop_reason(flow)),
            5 => Verdict::Redirected,
            _ => Verdict::Other,
        },
        json::Enum::Unset => Verdict::Other,
    }
}

/// The name is newer than the number, but either may be missing or unknown.
fn drop_reason(flow: &json::Flow<'_>) -> DropReason {
    let described = match &flow.drop_reason_desc {
        json::Enum::Name(name) => DropReason::from_name(name),
        json::Enum::Code(code) => u32::try_from(*code).ok().map(DropReason::from_code),
        json::Enum::Unset => None,
    };
    let numbered = || flow.drop_reason.and_then(|n| u32::try_from(n.0).ok()).map(DropReason::from_code);
    let from_event = || {
        let event = flow.event_type.as_ref().filter(|event| event.kind.0 == 1)?;
        u32::try_from(event.sub_type.0).ok().map(DropReason::from_code)
    };
    described.or_else(numbered).or_else(from_event).unwrap_or(DropReason::UNKNOWN)
}

fn direction(told: &json::Enum<'_>) -> Option<Direction> {
    match told {
        json::Enum::Name(name) => match name.as_ref() {
            "INGRESS" => Some(Direction::Ingress),
            "EGRESS" => Some(Direction::Egress),
            _ => None,
        },
        json::Enum::Code(1) => Some(Direction::Ingress),
        json::Enum::Code(2) => Some(Direction::Egress),
        _ => None,
    }
}

fn state(told: &json::Enum<'_>) -> Option<ConnectionState> {
    match told {
        json::Enum::Unset => None,
        json::Enum::Name(name) => Some(match name.as_ref() {
            "NEW" => ConnectionState::New,
            "ESTABLISHED" => ConnectionState::Established,
            "REPLY" => ConnectionState::Reply,
            _ => ConnectionState::Other,
        }),
        json::Enum::Code(code) => Some(match code {
            1 => ConnectionState::New,
            2 => ConnectionState::Established,
            3 => ConnectionState::Reply,
            _ => ConnectionState::Other,
        }),
    }
}

fn denied_by<'a>(flow: &'a json::Flow<'a>) -> Vec<NamedPolicy<'a>> {
    let named = |policies: &'a Option<Vec<json::Policy<'a>>>, direction| {
        policies.iter().flatten().filter(|p| !p.name.as_str().is_empty()).map(move |policy| NamedPolicy {
            kind: policy_kind(policy),
            namespace: policy.namespace.as_str(),
            name: policy.name.as_str(),
            direction,
        })
    };
    let egress = named(&flow.egress_denied_by, Direction::Egress);
    egress.chain(named(&flow.ingress_denied_by, Direction::Ingress)).collect()
}

/// Before Cilium 1.17 the kind is told by the label `io.cilium.k8s.policy.derived-from` alone, and by none in some
/// releases. Deny rules exist in two kinds only, one of which has no namespace.
fn policy_kind<'a>(policy: &'a json::Policy<'a>) -> &'a str {
    if !policy.kind.as_str().is_empty() {
        return policy.kind.as_str();
    }
    let labels = policy.labels.iter().flatten().map(json::Text::as_str);
    let mut derived = labels
        .filter_map(|label| label.split_once("io.cilium.k8s.policy.derived-from="))
        .map(|(_, kind)| kind);
    let by_scope = if policy.namespace.as_str().is_empty() {
        "CiliumClusterwideNetworkPolicy"
    } else {
        "CiliumNetworkPolicy"
    };
    derived.next().unwrap_or(by_scope)
}

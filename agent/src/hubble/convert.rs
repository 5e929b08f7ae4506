//! From Hubble's messages in JSON to observations. Enters: parsed lines; leaves: observations, or why a message
//! cannot be one. What the numbers and names mean is not known here but in `values`.

use std::net::IpAddr;

use firedoor_core::drop_reason::DropReason;
use firedoor_core::facts::Protocol;
use firedoor_core::observation::{
    Direction, End, Flow, Loss, NamedPolicy, Observation, Reserved, SourceKind, TcpFlags,
};
use firedoor_core::time::Timestamp;

use super::{json, values};

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
    /// A name that nothing in Kubernetes can have, by its length.
    #[error("a name of {0} bytes is longer than any in Kubernetes")]
    Name(usize),
    /// Bytes that are no message.
    #[error("the bytes are no message of Hubble's: {0}")]
    Wire(&'static str),
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
    let (kind, sub_kind) = values::event_kind(event(flow));
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
    let observer = if node.is_empty() { outer_node } else { node };
    check_names([&src, &dst], observer)?;
    Ok(Flow {
        at,
        observer,
        source: SourceKind::Hubble,
        kind,
        sub_kind,
        verdict: values::verdict(code(&flow.verdict, values::verdict_code), || drop_reason(flow)),
        protocol,
        src,
        dst,
        flags,
        is_reply: values::is_reply(flow.is_reply, flow.reply == Some(true)),
        direction: values::direction(code(&flow.traffic_direction, values::direction_code)),
        state: values::connection_state(code(&flow.trace_reason, values::trace_reason_code)),
        denied_by: denied_by(flow),
    })
}

/// Whether the pods and the node can be called so.
pub(super) fn check_names(ends: [&End<'_>; 2], node: &str) -> Result<(), Unusable> {
    let pods = ends.into_iter().filter_map(|end| end.pod);
    match pods.flat_map(|(namespace, pod)| [namespace, pod]).find(|name| values::is_overlong(name)) {
        Some(name) => Err(Unusable::Name(name.len())),
        None => check_node(node.as_bytes()),
    }
}

/// Whether a node can be called so.
pub(super) fn check_node(node: &[u8]) -> Result<(), Unusable> {
    if values::is_overlong_node(node) { Err(Unusable::Name(node.len())) } else { Ok(()) }
}

/// Whether a policy can be one: it has a name, and none that is too long.
pub(super) fn is_policy(policy: &NamedPolicy<'_>) -> bool {
    let overlong = [policy.kind, policy.namespace, policy.name].into_iter().any(values::is_overlong);
    !policy.name.is_empty() && !overlong
}

/// Lost events as an observation; without a time where the message has no readable one, since its count is still true.
///
/// # Errors
/// Why the message is unusable.
pub fn lost<'a>(lost: &json::LostEvents<'_>, node: &'a str, time: &str) -> Result<Observation<'a>, Unusable> {
    let number = lost.num_events_lost.0;
    let count = u64::try_from(number).map_err(|_| Unusable::Lost(number))?;
    check_node(node.as_bytes())?;
    let observer = (!node.is_empty()).then_some(node);
    let at = Timestamp::parse(time);
    let cause = values::lost_cause(code(&lost.source, values::lost_source_code));
    Ok(Observation::Lost(Loss { at, observer, source: SourceKind::Hubble, cause, count }))
}

/// A relay's news about its nodes, when it means that some are not seen.
#[must_use]
pub fn node_status<'a>(status: &'a json::NodeStatus<'a>, time: &str) -> Option<Observation<'a>> {
    let state = values::node_state(code(&status.state_change, values::node_state_code));
    let blind = state == values::NodeState::Blind;
    let nodes = status.node_names.iter().flatten().map(json::Text::as_str);
    let nodes = nodes.filter(|node| check_node(node.as_bytes()).is_ok()).collect();
    blind.then(|| Observation::Blind { at: Timestamp::parse(time).unwrap_or(Timestamp::MIN), nodes })
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

/// The number of an enum value, which JSON writes by name.
fn code(told: &json::Enum<'_>, by_name: fn(&str) -> i64) -> i64 {
    match told {
        json::Enum::Name(name) => by_name(name),
        json::Enum::Code(code) => *code,
        json::Enum::Unset => 0,
    }
}

fn drop_reason(flow: &json::Flow<'_>) -> DropReason {
    let described = match &flow.drop_reason_desc {
        json::Enum::Name(name) => DropReason::from_name(name),
        json::Enum::Code(code) => u32::try_from(*code).ok().map(DropReason::from_code),
        json::Enum::Unset => None,
    };
    values::drop_reason(described, flow.drop_reason.and_then(|n| u32::try_from(n.0).ok()), event(flow))
}

fn event(flow: &json::Flow<'_>) -> Option<(i64, i64)> {
    let wide = |number: json::Number| i64::try_from(number.0).unwrap_or(i64::MAX);
    flow.event_type.as_ref().map(|event| (wide(event.kind), wide(event.sub_type)))
}

fn denied_by<'a>(flow: &'a json::Flow<'a>) -> Vec<NamedPolicy<'a>> {
    let named = |policies: &'a Option<Vec<json::Policy<'a>>>, direction| {
        let policies = policies.iter().flatten().map(move |policy| NamedPolicy {
            kind: policy_kind(policy),
            namespace: policy.namespace.as_str(),
            name: policy.name.as_str(),
            direction,
        });
        policies.filter(is_policy)
    };
    let egress = named(&flow.egress_denied_by, Direction::Egress);
    egress.chain(named(&flow.ingress_denied_by, Direction::Ingress)).collect()
}

fn policy_kind<'a>(policy: &'a json::Policy<'a>) -> &'a str {
    let mut labels = policy.labels.iter().flatten().map(json::Text::as_str);
    let derived = labels.find_map(values::derived_from);
    values::policy_kind(policy.kind.as_str(), policy.namespace.as_str(), derived)
}

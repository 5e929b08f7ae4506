//! What the numbers of Hubble's `flow` package mean. Enters: enum numbers, or the names under which JSON writes
//! them; leaves: values of the domain. The one place where both forms of a message meet, so that they cannot come to
//! mean different things. Numbers are those of Cilium up to 1.19; unknown ones are "something else".

use firedoor_core::drop_reason::DropReason;
use firedoor_core::observation::{ConnectionState, Direction, EventKind, Verdict};

/// The longest name that Kubernetes gives to anything, in bytes.
const LONGEST_NAME: usize = 253;
/// The longest name of a node: behind a cluster's, which is a DNS label, and a slash.
const LONGEST_NODE: usize = 63 + 1 + LONGEST_NAME;

/// Whether nothing in Kubernetes can have this name. What a server calls things is remembered for long: it must not be
/// of any length.
#[must_use]
pub const fn is_overlong(name: &str) -> bool {
    name.len() > LONGEST_NAME
}

/// The same for a node's name, which may not be text yet.
#[must_use]
pub const fn is_overlong_node(name: &[u8]) -> bool {
    name.len() > LONGEST_NODE
}

/// Stands for a name that is not known: it was told, but says nothing.
const UNKNOWN: i64 = i64::MAX;

/// The number of a `flow.Verdict`.
#[must_use]
pub fn verdict_code(name: &str) -> i64 {
    match name {
        "FORWARDED" => 1,
        "DROPPED" => 2,
        "AUDIT" => 4,
        "REDIRECTED" => 5,
        _ => UNKNOWN,
    }
}

/// `flow.Verdict`; the reason is asked for only where there is one.
pub fn verdict(code: i64, reason: impl FnOnce() -> DropReason) -> Verdict {
    match code {
        1 => Verdict::Forwarded,
        2 => Verdict::Dropped(reason()),
        4 => Verdict::WouldDrop(reason()),
        5 => Verdict::Redirected,
        _ => Verdict::Other,
    }
}

/// Why a packet was dropped. `desc` is newer than `number`, but either may be missing or unknown; a drop event
/// (`event_type` 1) carries the code once more. `desc` is `None` where it is absent or a name that is not known.
#[must_use]
pub fn drop_reason(desc: Option<DropReason>, number: Option<u32>, event: Option<(i64, i64)>) -> DropReason {
    let from_event = || {
        let (_, sub_type) = event.filter(|(kind, _)| *kind == 1)?;
        u32::try_from(sub_type).ok().map(DropReason::from_code)
    };
    desc.or_else(|| number.map(DropReason::from_code)).or_else(from_event).unwrap_or(DropReason::UNKNOWN)
}

/// `flow.CiliumEventType`: the kind of event and its finer code. Without one it is a trace.
#[must_use]
pub fn event_kind(event: Option<(i64, i64)>) -> (EventKind, i32) {
    let Some((kind, sub_type)) = event else { return (EventKind::Trace, 0) };
    let kind = match kind {
        1 => EventKind::Drop,
        4 => EventKind::Trace,
        5 => EventKind::PolicyVerdict,
        7 => EventKind::Socket,
        129 => EventKind::Layer7,
        _ => EventKind::Other,
    };
    (kind, i32::try_from(sub_type).unwrap_or(i32::MAX))
}

/// The number of a `flow.TrafficDirection`.
#[must_use]
pub fn direction_code(name: &str) -> i64 {
    match name {
        "INGRESS" => 1,
        "EGRESS" => 2,
        _ => UNKNOWN,
    }
}

/// `flow.TrafficDirection`.
#[must_use]
pub fn direction(code: i64) -> Option<Direction> {
    match code {
        1 => Some(Direction::Ingress),
        2 => Some(Direction::Egress),
        _ => None,
    }
}

/// The number of a `flow.TraceReason`.
#[must_use]
pub fn trace_reason_code(name: &str) -> i64 {
    match name {
        "TRACE_REASON_UNKNOWN" => 0,
        "NEW" => 1,
        "ESTABLISHED" => 2,
        "REPLY" => 3,
        _ => UNKNOWN,
    }
}

/// `flow.TraceReason`; 0 is "not told".
#[must_use]
pub fn connection_state(code: i64) -> Option<ConnectionState> {
    match code {
        0 => None,
        1 => Some(ConnectionState::New),
        2 => Some(ConnectionState::Established),
        3 => Some(ConnectionState::Reply),
        _ => Some(ConnectionState::Other),
    }
}

/// Whether the packet answers. `reply` is the form of old versions, where absent means false or not known.
#[must_use]
pub fn is_reply(is_reply: Option<bool>, reply: bool) -> Option<bool> {
    is_reply.or(reply.then_some(true))
}

/// The number of a `flow.LostEventSource`.
#[must_use]
pub fn lost_source_code(name: &str) -> i64 {
    match name {
        "PERF_EVENT_RING_BUFFER" => 1,
        "OBSERVER_EVENTS_QUEUE" => 2,
        HUBBLE_RING_BUFFER => 3,
        _ => UNKNOWN,
    }
}

/// Lost because the reader was too slow: the server makes these up for each reader, they are not in its ring.
pub const HUBBLE_RING_BUFFER: &str = "HUBBLE_RING_BUFFER";

/// `flow.LostEventSource`, in Hubble's words; empty when not told.
#[must_use]
pub fn lost_cause(code: i64) -> &'static str {
    match code {
        1 => "PERF_EVENT_RING_BUFFER",
        2 => "OBSERVER_EVENTS_QUEUE",
        3 => HUBBLE_RING_BUFFER,
        _ => "",
    }
}

/// What a relay says of nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeState {
    /// Their flows arrive.
    Seen,
    /// Their flows do not arrive.
    Blind,
    /// Nothing is known.
    Unknown,
}

/// The number of a `relay.NodeState`.
#[must_use]
pub fn node_state_code(name: &str) -> i64 {
    match name {
        "NODE_CONNECTED" => 1,
        "NODE_UNAVAILABLE" => 2,
        "NODE_GONE" => 3,
        "NODE_ERROR" => 4,
        _ => UNKNOWN,
    }
}

/// `relay.NodeState`.
#[must_use]
pub fn node_state(code: i64) -> NodeState {
    match code {
        1 => NodeState::Seen,
        2..=4 => NodeState::Blind,
        _ => NodeState::Unknown,
    }
}

/// The kind of a policy with a deny rule. Before Cilium 1.17 it is told by the label
/// `io.cilium.k8s.policy.derived-from` alone (`derived`), and by none in some releases. Deny rules exist in two kinds
/// only, one of which has no namespace.
#[must_use]
pub fn policy_kind<'a>(kind: &'a str, namespace: &str, derived: Option<&'a str>) -> &'a str {
    match derived {
        _ if !kind.is_empty() => kind,
        Some(derived) => derived,
        None if namespace.is_empty() => "CiliumClusterwideNetworkPolicy",
        None => "CiliumNetworkPolicy",
    }
}

/// The kind that a policy's label tells, if it is that label.
#[must_use]
pub fn derived_from(label: &str) -> Option<&str> {
    label.split_once("io.cilium.k8s.policy.derived-from=").map(|(_, kind)| kind)
}

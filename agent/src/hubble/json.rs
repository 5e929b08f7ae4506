//! The JSON forms in which Hubble's events are written: `hubble observe -o jsonpb` (and the exporter's files),
//! one `GetFlowsResponse` a line, and the plain flow of older command lines. Only what is needed is parsed;
//! the rest is skipped without being stored.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, Unexpected, Visitor};

/// Text that is borrowed from the line unless it holds escapes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Text<'a>(pub Cow<'a, str>);

impl Text<'_> {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Cow<'de, str>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text")
            }
            fn visit_borrowed_str<E>(self, v: &'de str) -> Result<Self::Value, E> {
                Ok(Cow::Borrowed(v))
            }
            fn visit_str<E>(self, v: &str) -> Result<Self::Value, E> {
                Ok(Cow::Owned(v.to_owned()))
            }
            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Cow::Borrowed(""))
            }
        }
        deserializer.deserialize_any(TextVisitor).map(Text)
    }
}

/// A number that protobuf's JSON form may write as text (64-bit ones always are); wide enough for signed and
/// unsigned ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Number(pub i128);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NumberVisitor;
        impl Visitor<'_> for NumberVisitor {
            type Value = Number;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, possibly as text")
            }
            fn visit_u64<E>(self, v: u64) -> Result<Number, E> {
                Ok(Number(v.into()))
            }
            fn visit_i64<E>(self, v: i64) -> Result<Number, E> {
                Ok(Number(v.into()))
            }
            fn visit_f64<E: serde::de::Error>(self, v: f64) -> Result<Number, E> {
                Err(E::invalid_value(Unexpected::Float(v), &self))
            }
            fn visit_str<E: serde::de::Error>(self, v: &str) -> Result<Number, E> {
                v.parse().map(Number).map_err(|_| E::invalid_value(Unexpected::Str(v), &self))
            }
            fn visit_unit<E>(self) -> Result<Number, E> {
                Ok(Number(0))
            }
        }
        deserializer.deserialize_any(NumberVisitor)
    }
}

/// An enum value: its name, or its number where an encoder writes numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Enum<'a> {
    /// Absent.
    #[default]
    Unset,
    /// By name.
    Name(Cow<'a, str>),
    /// By number.
    Code(i64),
}

impl<'de: 'a, 'a> Deserialize<'de> for Enum<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EnumVisitor;
        impl<'de> Visitor<'de> for EnumVisitor {
            type Value = Enum<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an enum name or number")
            }
            fn visit_borrowed_str<E>(self, v: &'de str) -> Result<Self::Value, E> {
                Ok(Enum::Name(Cow::Borrowed(v)))
            }
            fn visit_str<E>(self, v: &str) -> Result<Self::Value, E> {
                Ok(Enum::Name(Cow::Owned(v.to_owned())))
            }
            fn visit_i64<E>(self, v: i64) -> Result<Self::Value, E> {
                Ok(Enum::Code(v))
            }
            fn visit_u64<E>(self, v: u64) -> Result<Self::Value, E> {
                Ok(Enum::Code(i64::try_from(v).unwrap_or(i64::MAX)))
            }
            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Enum::Unset)
            }
        }
        deserializer.deserialize_any(EnumVisitor)
    }
}

/// `GetFlowsResponse` and `ExportEvent`. Every field is optional: exactly one of the events is there.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Response<'a> {
    /// A flow.
    pub flow: Option<Flow<'a>>,
    /// Events that will never be told.
    #[serde(alias = "lostEvents")]
    pub lost_events: Option<LostEvents<'a>>,
    /// A relay's news about its nodes.
    #[serde(alias = "nodeStatus")]
    pub node_status: Option<NodeStatus<'a>>,
    /// The agent's own events: not flows.
    #[serde(alias = "agentEvent")]
    pub agent_event: Option<IgnoredAny>,
    /// The datapath's debug events: not flows.
    #[serde(alias = "debugEvent")]
    pub debug_event: Option<IgnoredAny>,
    /// The node that tells.
    #[serde(alias = "nodeName")]
    pub node_name: Text<'a>,
    /// When.
    pub time: Text<'a>,
}

/// `flow.Flow`: the fields that matter here.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Flow<'a> {
    /// When.
    pub time: Text<'a>,
    /// What happened to the packet.
    pub verdict: Enum<'a>,
    /// The drop code (deprecated, still filled).
    #[serde(alias = "dropReason")]
    pub drop_reason: Option<Number>,
    /// The drop reason by name.
    #[serde(alias = "dropReasonDesc")]
    pub drop_reason_desc: Enum<'a>,
    /// Addresses.
    #[serde(rename = "IP", alias = "ip")]
    pub ip: Option<Ip<'a>>,
    /// Ports and flags.
    pub l4: Option<Layer4>,
    /// Who sent it.
    pub source: Option<Endpoint<'a>>,
    /// Whom it was for.
    pub destination: Option<Endpoint<'a>>,
    /// The node that saw it.
    #[serde(alias = "nodeName")]
    pub node_name: Text<'a>,
    /// What kind of event.
    #[serde(alias = "eventType")]
    pub event_type: Option<EventType>,
    /// Which way it went.
    #[serde(alias = "trafficDirection")]
    pub traffic_direction: Enum<'a>,
    /// Whether it answers (absent: not known; always so on drops).
    #[serde(alias = "isReply")]
    pub is_reply: Option<bool>,
    /// The same in old versions, where absent means false or not known.
    pub reply: Option<bool>,
    /// Connection tracking's view.
    #[serde(alias = "traceReason")]
    pub trace_reason: Enum<'a>,
    /// Policies whose deny rule matched at egress.
    #[serde(alias = "egressDeniedBy")]
    pub egress_denied_by: Option<Vec<Policy<'a>>>,
    /// Policies whose deny rule matched at ingress.
    #[serde(alias = "ingressDeniedBy")]
    pub ingress_denied_by: Option<Vec<Policy<'a>>>,
}

/// `flow.IP`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Ip<'a> {
    /// Of the sender.
    pub source: Text<'a>,
    /// Of the receiver.
    pub destination: Text<'a>,
}

/// `flow.Layer4`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Layer4 {
    /// TCP.
    #[serde(rename = "TCP", alias = "tcp")]
    pub tcp: Option<Ports>,
    /// UDP.
    #[serde(rename = "UDP", alias = "udp")]
    pub udp: Option<Ports>,
    /// SCTP.
    #[serde(rename = "SCTP", alias = "sctp")]
    pub sctp: Option<Ports>,
    /// ICMP for IPv4.
    #[serde(rename = "ICMPv4", alias = "icmpv4")]
    pub icmp_v4: Option<IgnoredAny>,
    /// ICMP for IPv6.
    #[serde(rename = "ICMPv6", alias = "icmpv6")]
    pub icmp_v6: Option<IgnoredAny>,
}

/// Ports, and flags where there are any.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Ports {
    /// Of the sender.
    #[serde(alias = "sourcePort")]
    pub source_port: Number,
    /// Of the receiver.
    #[serde(alias = "destinationPort")]
    pub destination_port: Number,
    /// TCP flags; absent ones are false.
    pub flags: Option<Flags>,
}

/// `flow.TCPFlags`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "UPPERCASE")]
pub struct Flags {
    /// FIN
    pub fin: bool,
    /// SYN
    pub syn: bool,
    /// RST
    pub rst: bool,
    /// PSH
    pub psh: bool,
    /// ACK
    pub ack: bool,
}

/// `flow.Endpoint`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Endpoint<'a> {
    /// Cilium's numeric identity.
    pub identity: Option<Number>,
    /// The pod's namespace.
    pub namespace: Text<'a>,
    /// The pod's name.
    #[serde(alias = "podName")]
    pub pod_name: Text<'a>,
}

/// `flow.CiliumEventType`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct EventType {
    /// What kind of event.
    #[serde(rename = "type")]
    pub kind: Number,
    /// A finer code.
    #[serde(alias = "subType")]
    pub sub_type: Number,
}

/// `flow.Policy`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Policy<'a> {
    /// Its name.
    pub name: Text<'a>,
    /// Its namespace.
    pub namespace: Text<'a>,
    /// Its kind (from 1.17 on).
    pub kind: Text<'a>,
    /// Its labels, which tell the kind in older versions.
    pub labels: Option<Vec<Text<'a>>>,
}

/// `flow.LostEvent`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct LostEvents<'a> {
    /// Where they were lost.
    pub source: Enum<'a>,
    /// How many.
    #[serde(alias = "numEventsLost")]
    pub num_events_lost: Number,
}

/// `relay.NodeStatusEvent`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct NodeStatus<'a> {
    /// What became of them.
    #[serde(alias = "stateChange")]
    pub state_change: Enum<'a>,
    /// The nodes.
    #[serde(alias = "nodeNames")]
    pub node_names: Option<Vec<Text<'a>>>,
}

/// Parses a line that holds a response.
///
/// # Errors
/// What is wrong with the line, with the column.
pub fn response(line: &str) -> Result<Response<'_>, serde_json::Error> {
    serde_json::from_str(line)
}

/// Parses a line that holds a flow and nothing around it.
///
/// # Errors
/// What is wrong with the line, with the column.
pub fn plain_flow(line: &str) -> Result<Flow<'_>, serde_json::Error> {
    let flow: Flow<'_> = serde_json::from_str(line)?;
    if flow.ip.is_none() && flow.source.is_none() && flow.verdict == Enum::Unset {
        return Err(serde_json::Error::custom("neither a Hubble response nor a flow"));
    }
    Ok(flow)
}

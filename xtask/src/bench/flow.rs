//! One flow as Hubble prints it. Enters: what happened; leaves: a line of JSON. Must not know the cluster.

use std::fmt::Write as _;

/// Nanoseconds since the midnight that made-up captures begin after.
pub(super) type SinceMidnight = u64;

/// Everything that one line says.
pub(super) struct Flow<'a> {
    pub(super) at: SinceMidnight,
    pub(super) uuid: u128,
    pub(super) node: &'a str,
    pub(super) source: End<'a>,
    pub(super) destination: End<'a>,
    pub(super) transport: Transport,
    pub(super) event: Event<'a>,
    pub(super) direction: Direction,
}

/// One end of a flow.
pub(super) struct End<'a> {
    pub(super) ip: &'a str,
    /// The endpoint's JSON object.
    pub(super) endpoint: &'a str,
}

#[derive(Clone, Copy)]
pub(super) enum Transport {
    Tcp { source: u16, destination: u16, flags: Flags },
    Udp { source: u16, destination: u16 },
}

/// The TCP flags that occur here.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Flags {
    None,
    Syn,
    SynAck,
    Ack,
    PshAck,
    FinAck,
}

#[derive(Clone, Copy)]
pub(super) enum Event<'a> {
    /// A forwarded packet at a point of the datapath.
    Trace { point: Point, reason: &'static str, reply: bool },
    /// A policy's verdict: denied by default.
    Denied,
    /// The drop that follows it.
    Dropped,
    /// A call seen by the proxy; the text is the `l7` object.
    Proxy { l7: &'a str, reply: bool },
    /// An address translated in a socket call.
    Socket { cookie: u64, cgroup: u64 },
}

#[derive(Clone, Copy)]
pub(super) enum Point {
    ToEndpoint,
    ToOverlay,
}

#[derive(Clone, Copy)]
pub(super) enum Direction {
    Egress,
    Ingress,
}

impl Flags {
    fn json(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Syn => ",\"flags\":{\"SYN\":true}",
            Self::SynAck => ",\"flags\":{\"SYN\":true,\"ACK\":true}",
            Self::Ack => ",\"flags\":{\"ACK\":true}",
            Self::PshAck => ",\"flags\":{\"PSH\":true,\"ACK\":true}",
            Self::FinAck => ",\"flags\":{\"FIN\":true,\"ACK\":true}",
        }
    }

    fn summary(self) -> &'static str {
        match self {
            Self::None => "TCP",
            Self::Syn => "TCP Flags: SYN",
            Self::SynAck => "TCP Flags: SYN, ACK",
            Self::Ack => "TCP Flags: ACK",
            Self::PshAck => "TCP Flags: ACK, PSH",
            Self::FinAck => "TCP Flags: ACK, FIN",
        }
    }
}

impl Flow<'_> {
    /// Appends the line, with its end.
    pub(super) fn write(&self, line: &mut String) {
        let at = Clock(self.at);
        let denied = matches!(self.event, Event::Denied | Event::Dropped);
        let proxied = matches!(self.event, Event::Proxy { .. });
        let socket = matches!(self.event, Event::Socket { .. });
        let verdict = match self.event {
            Event::Denied | Event::Dropped => "\"DROPPED\",\"drop_reason\":133",
            Event::Socket { .. } => "\"TRACED\"",
            Event::Trace { .. } | Event::Proxy { .. } => "\"FORWARDED\"",
        };
        put(
            line,
            format_args!(
                "{{\"flow\":{{\"time\":\"{at}\",\"uuid\":\"{}\",\"verdict\":{verdict}",
                Uuid(self.uuid)
            ),
        );
        if !proxied && !socket {
            line.push_str(
                ",\"ethernet\":{\"source\":\"02:00:00:00:00:01\",\"destination\":\"02:00:00:00:00:02\"}",
            );
        }
        let (source, destination) = (self.source.ip, self.destination.ip);
        put(
            line,
            format_args!(
                ",\"IP\":{{\"source\":\"{source}\",\"destination\":\"{destination}\",\"ipVersion\":\"IPv4\"}},\"l4\":"
            ),
        );
        let summary = self.transport(line);
        put(
            line,
            format_args!(
                ",\"source\":{},\"destination\":{}",
                self.source.endpoint, self.destination.endpoint
            ),
        );
        put(line, format_args!(",\"Type\":\"{}\",\"node_name\":\"{}\"", self.layer(), self.node));
        self.event(line);
        if denied {
            line.push_str(",\"drop_reason_desc\":\"POLICY_DENIED\"");
        }
        put(
            line,
            format_args!(
                ",\"Summary\":\"{summary}\"}},\"node_name\":\"{}\",\"time\":\"{at}\"}}\n",
                self.node
            ),
        );
    }

    fn layer(&self) -> &'static str {
        match self.event {
            Event::Proxy { .. } => "L7",
            Event::Socket { .. } => "SOCK",
            _ => "L3_L4",
        }
    }

    /// Gives the summary that goes with it.
    fn transport(&self, line: &mut String) -> &'static str {
        match self.transport {
            Transport::Tcp { source: 0, destination, flags } => {
                put(line, format_args!("{{\"TCP\":{{\"destination_port\":{destination}{}}}}}", flags.json()));
                flags.summary()
            }
            Transport::Tcp { source, destination, flags } => {
                let flags_json = flags.json();
                put(
                    line,
                    format_args!(
                        "{{\"TCP\":{{\"source_port\":{source},\"destination_port\":{destination}{flags_json}}}}}"
                    ),
                );
                flags.summary()
            }
            Transport::Udp { source, destination } => {
                put(
                    line,
                    format_args!(
                        "{{\"UDP\":{{\"source_port\":{source},\"destination_port\":{destination}}}}}"
                    ),
                );
                "UDP"
            }
        }
    }

    fn event(&self, line: &mut String) {
        let direction = match self.direction {
            Direction::Egress => "EGRESS",
            Direction::Ingress => "INGRESS",
        };
        match self.event {
            Event::Trace { point, reason, reply } => {
                let (sub_type, point) = match point {
                    Point::ToEndpoint => ("", "TO_ENDPOINT"),
                    Point::ToOverlay => (",\"sub_type\":4", "TO_OVERLAY"),
                };
                line.push_str(if reply { ",\"reply\":true" } else { "" });
                put(
                    line,
                    format_args!(
                        ",\"event_type\":{{\"type\":4{sub_type}}},\"traffic_direction\":\"{direction}\""
                    ),
                );
                put(
                    line,
                    format_args!(
                        ",\"trace_observation_point\":\"{point}\",\"trace_reason\":\"{reason}\",\"is_reply\":{reply}"
                    ),
                );
                line.push_str(",\"interface\":{\"index\":7,\"name\":\"cilium_vxlan\"}");
            }
            Event::Denied => put(
                line,
                format_args!(",\"event_type\":{{\"type\":5}},\"traffic_direction\":\"{direction}\""),
            ),
            Event::Dropped => put(
                line,
                format_args!(
                    ",\"event_type\":{{\"type\":1,\"sub_type\":133}},\"traffic_direction\":\"{direction}\",\"file\":{{\"name\":\"bpf_lxc.c\",\"line\":1355}}"
                ),
            ),
            Event::Proxy { l7, reply } => {
                put(line, format_args!(",\"l7\":{l7}"));
                line.push_str(if reply { ",\"reply\":true" } else { "" });
                put(
                    line,
                    format_args!(
                        ",\"event_type\":{{\"type\":129}},\"traffic_direction\":\"{direction}\",\"is_reply\":{reply}"
                    ),
                );
            }
            Event::Socket { cookie, cgroup } => put(
                line,
                format_args!(
                    ",\"event_type\":{{\"type\":7,\"sub_type\":1}},\"sock_xlate_point\":\"SOCK_XLATE_POINT_PRE_DIRECTION_FWD\",\"socket_cookie\":\"{cookie}\",\"cgroup_id\":\"{cgroup}\""
                ),
            ),
        }
    }
}

fn put(line: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = line.write_fmt(text);
}

/// RFC 3339 on the day that made-up captures play on.
struct Clock(SinceMidnight);

impl std::fmt::Display for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (seconds, nanos) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
        write!(f, "2026-11-01T{hours:02}:{minutes:02}:{seconds:02}.{nanos:09}Z")
    }
}

struct Uuid(u128);

impl std::fmt::Display for Uuid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let id = self.0;
        let part = |shift: u32, digits: u32| (id >> shift) as u64 & (u64::MAX >> (64 - 4 * digits));
        write!(
            f,
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            part(96, 8),
            part(80, 4),
            part(64, 4),
            part(48, 4),
            part(0, 12)
        )
    }
}

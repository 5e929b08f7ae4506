//! firedoor's own recording of what the kernel told: `sockets*.jsonl`, one observation a line. Reader and writer of one
//! form, described in docs/capture.md. Enters: lines, or observations; leaves: observations, or lines. Fields and event
//! names that are not known are passed over.

use std::borrow::Cow;
use std::io::{self, Write};
use std::net::IpAddr;
use std::time::Duration;

use firedoor_core::drop_reason::DropReason;
use firedoor_core::facts::Protocol;
use firedoor_core::observation::{
    App, Carried, Direction, DroppedPacket, Drops, End, Loss, Observation, Opener, SocketEvent, SocketStep,
    SourceKind,
};
use firedoor_core::time::Timestamp;
use serde::{Deserialize, Serialize};

/// Why a line holds no observation.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Unusable {
    /// The time is missing or no time.
    #[error("the time {0:?} is not RFC 3339")]
    Time(String),
    /// A field that this event needs is missing or makes no sense.
    #[error("a line of event {event:?} needs a {field}")]
    Missing {
        /// The event.
        event: String,
        /// The field.
        field: &'static str,
    },
}

/// One end, as it is written.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct LineEnd<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    ip: Option<IpAddr>,
    port: u16,
    #[serde(borrow, skip_serializing_if = "str::is_empty")]
    uid: Cow<'a, str>,
}

impl<'a> From<&End<'a>> for LineEnd<'a> {
    fn from(end: &End<'a>) -> Self {
        Self { ip: end.ip, port: end.port, uid: Cow::Borrowed(end.uid.unwrap_or_default()) }
    }
}

impl LineEnd<'_> {
    fn end(&self) -> End<'_> {
        let uid = Some(self.uid.as_ref()).filter(|uid| !uid.is_empty());
        End { ip: self.ip, port: self.port, pod: None, uid, reserved: None }
    }
}

/// A line, as it is written.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Line<'a> {
    #[serde(borrow)]
    time: Cow<'a, str>,
    #[serde(borrow, skip_serializing_if = "str::is_empty")]
    first: Cow<'a, str>,
    #[serde(borrow, skip_serializing_if = "str::is_empty")]
    node: Cow<'a, str>,
    #[serde(borrow)]
    event: Cow<'a, str>,
    #[serde(borrow, skip_serializing_if = "str::is_empty")]
    protocol: Cow<'a, str>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    local: Option<LineEnd<'a>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    remote: Option<LineEnd<'a>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    src: Option<LineEnd<'a>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    dst: Option<LineEnd<'a>>,
    #[serde(borrow, skip_serializing_if = "str::is_empty")]
    opener: Cow<'a, str>,
    #[serde(borrow, skip_serializing_if = "str::is_empty")]
    app: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sent: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    received: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retransmitted: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rtt_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_rtt_us: Option<u64>,
    #[serde(borrow, skip_serializing_if = "str::is_empty")]
    what: Cow<'a, str>,
    #[serde(borrow, skip_serializing_if = "str::is_empty")]
    reason: Cow<'a, str>,
    #[serde(borrow, skip_serializing_if = "str::is_empty")]
    direction: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    packets: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempts: Option<u64>,
    #[serde(borrow, skip_serializing_if = "str::is_empty")]
    cause: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
}

/// Reads a line, borrowing from it.
///
/// # Errors
/// When it is not JSON of this form.
pub fn parse(line: &str) -> serde_json::Result<Line<'_>> {
    serde_json::from_str(line)
}

/// Writes an observation as a line. What is not the kernel's (flows, a relay's news) is no line here.
///
/// # Errors
/// When writing fails.
pub fn write(to: &mut impl Write, observation: &Observation<'_>) -> io::Result<()> {
    let line = match observation {
        Observation::Socket(event) => Line::of_step(event),
        Observation::Drops(drops) => Line::of_drops(drops),
        Observation::Lost(loss) => Line {
            time: loss.at.map(|at| at.to_string()).unwrap_or_default().into(),
            node: loss.observer.unwrap_or_default().into(),
            event: "lost".into(),
            cause: loss.cause.into(),
            count: Some(loss.count),
            ..Line::default()
        },
        Observation::Flow(_) | Observation::Blind { .. } | Observation::Reached { .. } => return Ok(()),
    };
    serde_json::to_writer(&mut *to, &line)?;
    to.write_all(b"\n")
}

fn micros(duration: Option<Duration>) -> Option<u64> {
    duration.map(|duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
}

impl<'a> Line<'a> {
    fn of_step(event: &SocketEvent<'a>) -> Self {
        let mut line = Line {
            time: event.at.to_string().into(),
            node: event.observer.into(),
            local: Some((&event.local).into()),
            remote: event.remote.ip.map(|_| (&event.remote).into()),
            opener: event.opener.map_or("", Opener::as_str).into(),
            ..Line::default()
        };
        let name = match event.step {
            SocketStep::Listening => "listening",
            SocketStep::Opening => "opening",
            SocketStep::Retried => "retried",
            SocketStep::Established => "established",
            SocketStep::Refused => "refused",
            SocketStep::GaveUp => "gave-up",
            SocketStep::Recognised(app) => {
                line.app = app.as_str().into();
                "recognised"
            }
            SocketStep::Carried(carried) => {
                line.carry(&carried);
                "carried"
            }
            SocketStep::Closed(carried) => {
                line.carry(&carried);
                "closed"
            }
        };
        Line { event: name.into(), ..line }
    }

    fn carry(&mut self, carried: &Carried) {
        self.sent = Some(carried.sent);
        self.received = Some(carried.received);
        self.retransmitted = Some(carried.retransmitted);
        self.rtt_us = micros(carried.rtt);
        self.min_rtt_us = micros(carried.min_rtt);
    }

    fn of_drops(drops: &Drops<'a>) -> Self {
        Line {
            time: drops.last.to_string().into(),
            first: drops.first.to_string().into(),
            node: drops.observer.into(),
            event: "drops".into(),
            protocol: drops.protocol.name().into(),
            src: Some((&drops.src).into()),
            dst: Some((&drops.dst).into()),
            what: drops.what.as_str().into(),
            reason: drops.reason.to_string().into(),
            direction: drops.direction.map_or("", Direction::as_str).into(),
            packets: Some(drops.packets),
            attempts: Some(drops.attempts),
            ..Line::default()
        }
    }
}

impl Line<'_> {
    /// What the line tells; `None`: an event or application that is not known.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn observation(&self) -> Result<Option<Observation<'_>>, Unusable> {
        let time = Timestamp::parse(&self.time);
        let needed = || time.ok_or_else(|| Unusable::Time(self.time.to_string()));
        match self.event.as_ref() {
            "" => Err(self.missing("event")),
            // That something was lost stays true, whenever it was.
            "lost" => Ok(Some(Observation::Lost(Loss {
                at: time,
                observer: Some(self.node.as_ref()).filter(|node| !node.is_empty()),
                source: SourceKind::Ebpf,
                cause: &self.cause,
                count: self.count.ok_or_else(|| self.missing("count"))?,
            }))),
            "drops" => self.drops(needed()?).map(Some),
            _ => match self.step() {
                Some(step) => self.socket(needed()?, step).map(Some),
                None => Ok(None),
            },
        }
    }

    fn missing(&self, field: &'static str) -> Unusable {
        Unusable::Missing { event: self.event.chars().take(40).collect(), field }
    }

    fn step(&self) -> Option<SocketStep> {
        Some(match self.event.as_ref() {
            "listening" => SocketStep::Listening,
            "opening" => SocketStep::Opening,
            "retried" => SocketStep::Retried,
            "established" => SocketStep::Established,
            "refused" => SocketStep::Refused,
            "gave-up" => SocketStep::GaveUp,
            "recognised" => SocketStep::Recognised(App::parse(&self.app)?),
            "carried" => SocketStep::Carried(self.carried()),
            "closed" => SocketStep::Closed(self.carried()),
            _ => return None,
        })
    }

    fn carried(&self) -> Carried {
        Carried {
            sent: self.sent.unwrap_or(0),
            received: self.received.unwrap_or(0),
            retransmitted: self.retransmitted.unwrap_or(0),
            rtt: self.rtt_us.map(Duration::from_micros),
            min_rtt: self.min_rtt_us.map(Duration::from_micros),
        }
    }

    fn socket(&self, at: Timestamp, step: SocketStep) -> Result<Observation<'_>, Unusable> {
        let local = self.local.as_ref().filter(|end| end.ip.is_some());
        let remote = self.remote.as_ref().filter(|end| end.ip.is_some());
        Ok(Observation::Socket(SocketEvent {
            at,
            observer: &self.node,
            source: SourceKind::Ebpf,
            local: local.ok_or_else(|| self.missing("local address"))?.end(),
            remote: match (remote, step) {
                (_, SocketStep::Listening) => End::UNKNOWN,
                (remote, _) => remote.ok_or_else(|| self.missing("remote address"))?.end(),
            },
            opener: Opener::parse(&self.opener),
            step,
        }))
    }

    fn drops(&self, last: Timestamp) -> Result<Observation<'_>, Unusable> {
        let src = self.src.as_ref().filter(|end| end.ip.is_some());
        let dst = self.dst.as_ref().filter(|end| end.ip.is_some());
        let first = match self.first.as_ref() {
            "" => last,
            first => Timestamp::parse(first).ok_or_else(|| Unusable::Time(first.to_owned()))?,
        };
        Ok(Observation::Drops(Drops {
            first,
            last,
            observer: &self.node,
            source: SourceKind::Ebpf,
            protocol: Protocol::parse(&self.protocol).ok_or_else(|| self.missing("protocol"))?,
            src: src.ok_or_else(|| self.missing("source address"))?.end(),
            dst: dst.ok_or_else(|| self.missing("destination address"))?.end(),
            what: DroppedPacket::parse(&self.what).unwrap_or(DroppedPacket::Other),
            reason: DropReason::from_kernel_name(&self.reason),
            direction: match self.direction.as_ref() {
                "egress" => Some(Direction::Egress),
                "ingress" => Some(Direction::Ingress),
                _ => None,
            },
            packets: self.packets.ok_or_else(|| self.missing("packets"))?,
            attempts: self.attempts.unwrap_or(0),
        }))
    }
}

#[cfg(test)]
mod tests;

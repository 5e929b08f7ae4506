//! What a pair's connections carried, as its sockets told. Each end tells what it sent and what it received; which of
//! the two accounts counts is decided when those of all nodes are together. Adding is commutative and associative.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::observation::{App, Carried};
use crate::time::Timestamp;

use super::rtt::RttSketch;
use super::window::{Span, join};

/// One way between a pair: bytes as both ends tell them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct OneWay {
    /// Payload bytes that the sending end saw acknowledged.
    pub sent: u64,
    /// Payload bytes that the receiving end got.
    pub received: u64,
    /// Segments that the sending end sent again.
    pub retransmitted: u64,
    /// Whether the sending end told anything at all.
    pub sender_told: bool,
}

impl OneWay {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            sent: self.sent.saturating_add(other.sent),
            received: self.received.saturating_add(other.received),
            retransmitted: self.retransmitted.saturating_add(other.retransmitted),
            sender_told: self.sender_told || other.sender_told,
        }
    }

    /// Bytes that went this way: the sender's own account; the receiver's stands in only where the sender told nothing.
    #[must_use]
    pub fn bytes(self) -> u64 {
        if self.sender_told { self.sent } else { self.received }
    }
}

/// From this many bytes on, the smoothed round-trip time tells of the way. With fewer it tells of how long the peer puts
/// off its acknowledgements (Linux: up to 40 ms, `TCP_DELACK_MIN`), however short the way is.
const BULK: u64 = 16 * 1024;

/// How long the way is, by what one end measured while it sent. An end that sends nothing measures nothing: its value
/// is an old one.
#[must_use]
pub fn way_of(carried: &Carried) -> Option<Duration> {
    match carried.sent {
        0 => None,
        sent if sent >= BULK => carried.rtt,
        _ => carried.min_rtt,
    }
}

/// What a pair's connections carried.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Traffic {
    /// From the opener on.
    pub forward: OneWay,
    /// Back to the opener.
    pub backward: OneWay,
    /// Round-trip times, one for each time that an end told of bytes it had sent.
    pub rtt: RttSketch,
    /// What is spoken, where first bytes told.
    pub apps: BTreeSet<App>,
    /// When anything was carried.
    pub span: Option<Span>,
}

impl Traffic {
    /// Adds what one end told.
    pub(crate) fn carry(&mut self, at: Timestamp, opener_tells: bool, carried: &Carried) {
        let (own, other) = if opener_tells {
            (&mut self.forward, &mut self.backward)
        } else {
            (&mut self.backward, &mut self.forward)
        };
        own.sent = own.sent.saturating_add(carried.sent);
        own.retransmitted = own.retransmitted.saturating_add(u64::from(carried.retransmitted));
        own.sender_told = true;
        other.received = other.received.saturating_add(carried.received);
        if carried.sent > 0 || carried.received > 0 {
            self.span = join(self.span, Some(Span::at(at)));
        }
        if let Some(rtt) = way_of(carried) {
            self.rtt.add(rtt);
        }
    }

    /// Adds another account of the same pair.
    pub fn add(&mut self, other: &Self) {
        self.forward = self.forward.plus(other.forward);
        self.backward = self.backward.plus(other.backward);
        self.rtt.merge(&other.rtt);
        self.apps.extend(&other.apps);
        self.span = join(self.span, other.span);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn put_off_acknowledgements_are_no_distance() {
        let (smoothed, least) = (Some(Duration::from_millis(9)), Some(Duration::from_micros(22)));
        let carried = |sent| Carried { sent, rtt: smoothed, min_rtt: least, ..Carried::default() };
        assert_eq!(way_of(&carried(64)), least);
        assert_eq!(way_of(&carried(BULK)), smoothed);
        assert_eq!(way_of(&carried(0)), None);
    }
}

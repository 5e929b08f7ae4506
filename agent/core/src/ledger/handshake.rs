//! From packets to attempts: an attempt is one handshake, however often its SYN is sent again, and a denial is
//! one drop, though the datapath tells it twice (policy verdict and drop). Who opened a connection is decided
//! here.

use std::hash::BuildHasher;

use crate::attribute::{Ends, Peer, Sighting};
use crate::drop_reason::DropClass;
use crate::facts::Protocol;
use crate::observation::{ConnectionState, EventKind, Verdict};

use super::observer::ObserverId;
use super::recent::Recently;
use super::window::{Denied, PairKey, PortClass, PortWindow, Window};

/// What was seen of a handshake. There may be hundreds of thousands: five bytes, not ten.
#[derive(Clone, Copy, Default)]
struct Handshake {
    steps: u8,
    /// Policy-verdict and drop events seen: each denied packet yields up to one of each.
    verdicts: u16,
    drops: u16,
}

/// A step of a handshake, as a bit.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Step {
    Opened = 1,
    Answered = 2,
    Denied = 4,
    Refused = 8,
    Audited = 16,
}

impl Handshake {
    fn has(self, step: Step) -> bool {
        self.steps & step as u8 != 0
    }

    /// Takes note of a step; `true`: for the first time.
    fn note(&mut self, step: Step) -> bool {
        let new = !self.has(step);
        self.steps |= step as u8;
        new
    }
}

/// Both ends of a conversation, the opener first.
#[derive(Clone, Copy)]
struct Conversation {
    key: PairKey,
    src_port: u16,
    dst_port: u16,
    /// Whether this packet goes back to the opener.
    answer: bool,
}

#[derive(Clone)]
pub(super) struct Handshakes {
    known: Recently<Handshake>,
    hasher: foldhash::quality::FixedState,
}

impl Handshakes {
    pub(super) fn new(limit: usize) -> Self {
        let hasher = foldhash::quality::FixedState::with_seed(0x6861_6e64_7368_616b);
        Self { known: Recently::new(limit), hasher }
    }

    /// Enters a sighting into its window. `false`: there was no room for its pair.
    pub(super) fn follow(
        &mut self,
        observer: ObserverId,
        sighting: &Sighting,
        window: &mut Window,
        room: usize,
    ) -> bool {
        let Some(ends) = sighting.ends else { return true };
        self.known.turn(sighting.at);
        let Some(conversation) = self.orient(observer, &ends, sighting) else { return true };
        let Some(event) = Event::of(sighting, conversation.answer) else { return true };
        let id = self.fingerprint(observer, &conversation.key, conversation.src_port, conversation.dst_port);
        let mut handshake = self.known.get(id).unwrap_or_default();
        if handshake.has(Step::Answered) && matches!(event, Event::CompletedOnce) {
            // Most packets of connections that live: they need no place in a window.
            return self.known.put(id, handshake);
        }
        if window.pairs.len() >= room && !window.pairs.contains(&conversation.key) {
            return false;
        }
        window.pairs.port(conversation.key, conversation.dst_port, |port| {
            event.enter(&mut handshake, port, sighting);
        });
        self.known.put(id, handshake)
    }

    fn fingerprint(&self, observer: ObserverId, key: &PairKey, src_port: u16, dst_port: u16) -> u64 {
        self.hasher.hash_one((observer, key.src, key.dst, key.protocol, src_port, dst_port))
    }

    /// Who opened this conversation? `None` when a name server or API server did: not our business.
    fn orient(&self, observer: ObserverId, ends: &Ends, sighting: &Sighting) -> Option<Conversation> {
        let outward = Conversation {
            key: PairKey {
                src: ends.pod,
                dst: ends.peer,
                protocol: sighting.protocol,
                class: ends.peer_class,
            },
            src_port: ends.pod_port,
            dst_port: ends.peer_port,
            answer: !ends.pod_sent,
        };
        let member = match ends.peer {
            Peer::Member(member) => member,
            // Whoever shares the address and opens a connection from there is not known.
            Peer::SharedAddress(_) if !ends.pod_sent && sighting.flags.syn && !sighting.flags.ack => {
                return None;
            }
            Peer::SharedAddress(_) | Peer::Dns(..) | Peer::ApiServer(_) => return Some(outward),
        };
        let inward = Conversation {
            key: PairKey {
                src: member,
                dst: Peer::Member(ends.pod),
                protocol: sighting.protocol,
                class: ends.pod_class,
            },
            src_port: ends.peer_port,
            dst_port: ends.pod_port,
            answer: ends.pod_sent,
        };
        let (forward, backward) = if ends.pod_sent { (outward, inward) } else { (inward, outward) };
        let known = |c: &Conversation| {
            self.known.get(self.fingerprint(observer, &c.key, c.src_port, c.dst_port)).is_some()
        };
        let flags = sighting.flags;
        let answers = match sighting.is_reply {
            _ if flags.syn => flags.ack,
            Some(true) => true,
            // Resets are not always told apart: believe the handshake that was seen.
            Some(false) if flags.rst => known(&backward) && !known(&forward),
            Some(false) => false,
            None if known(&forward) => false,
            None if known(&backward) => true,
            // Nothing is known: the end with the rendezvous port is the one that was called.
            None => backward.key.class == PortClass::Fixed && forward.key.class == PortClass::Ephemeral,
        };
        Some(if answers { backward } else { forward })
    }
}

/// What a packet means for its handshake.
enum Event {
    Opened,
    Answered,
    /// Proves that the handshake was completed once, not that the connection still lives: is no news when that is known.
    CompletedOnce,
    Refused,
    Denied,
    Audited,
}

impl Event {
    fn of(sighting: &Sighting, answer: bool) -> Option<Self> {
        match (sighting.verdict, sighting.kind) {
            (Verdict::Dropped(reason), EventKind::Drop | EventKind::PolicyVerdict) => {
                (reason.class() != DropClass::NotAFailure && sighting.protocol != Protocol::Icmp)
                    .then_some(Self::Denied)
            }
            (Verdict::WouldDrop(_), _) => Some(Self::Audited),
            (Verdict::Forwarded | Verdict::Redirected, EventKind::Layer7) => answer.then_some(Self::Answered),
            (Verdict::Forwarded | Verdict::Redirected, EventKind::Trace | EventKind::PolicyVerdict) => {
                Self::passed(sighting, answer)
            }
            _ => None,
        }
    }

    fn passed(sighting: &Sighting, answer: bool) -> Option<Self> {
        let flags = sighting.flags;
        match sighting.protocol {
            Protocol::Icmp => None,
            Protocol::Udp | Protocol::Sctp if answer => Some(Self::Answered),
            Protocol::Udp | Protocol::Sctp => Some(Self::Opened),
            Protocol::Tcp if flags.rst => answer.then_some(Self::Refused),
            Protocol::Tcp if flags.syn && !flags.ack => Some(Self::Opened),
            Protocol::Tcp if answer => Some(Self::Answered),
            Protocol::Tcp if flags.any() => Some(Self::CompletedOnce),
            Protocol::Tcp => match sighting.state {
                Some(ConnectionState::Established | ConnectionState::Reply) => Some(Self::CompletedOnce),
                Some(ConnectionState::New) => Some(Self::Opened),
                _ => None,
            },
        }
    }

    fn enter(self, handshake: &mut Handshake, port: &mut PortWindow, sighting: &Sighting) {
        let at = sighting.at;
        match self {
            Self::Opened => {
                if handshake.has(Step::Refused) {
                    // A new SYN from a port that was just refused is a new attempt.
                    *handshake = Handshake::default();
                }
                port.opened.add(at, u64::from(handshake.note(Step::Opened)));
            }
            Self::Answered | Self::CompletedOnce => {
                port.answered.add(at, u64::from(handshake.note(Step::Answered)));
            }
            Self::Refused => {
                // Without its SYN, or after an answer, a reset is just an end.
                if handshake.has(Step::Opened)
                    && !handshake.has(Step::Answered)
                    && handshake.note(Step::Refused)
                {
                    port.failures.get_or_insert_default().refused.add(at, 1);
                }
            }
            Self::Denied => {
                let denied =
                    port.failures.get_or_insert_default().denied.entry(sighting.direction).or_default();
                deny(handshake, denied, sighting);
                port.opened.add(at, u64::from(handshake.note(Step::Opened)));
            }
            Self::Audited => {
                let audited = &mut port.failures.get_or_insert_default().audited;
                audited.attempts.add(at, u64::from(handshake.note(Step::Audited)));
                audited.drops += u64::from(sighting.kind != EventKind::PolicyVerdict);
                audited.named.extend(&sighting.denied_by);
                if let Some(reason) = sighting.drop_reason() {
                    *audited.reasons.entry(reason).or_default() += 1;
                }
            }
        }
    }
}

fn deny(handshake: &mut Handshake, denied: &mut Denied, sighting: &Sighting) {
    let packets = handshake.verdicts.max(handshake.drops);
    match sighting.kind {
        EventKind::PolicyVerdict => handshake.verdicts = handshake.verdicts.saturating_add(1),
        _ => handshake.drops = handshake.drops.saturating_add(1),
    }
    let new_packets = u64::from(handshake.verdicts.max(handshake.drops) - packets);
    denied.attempts.add(sighting.at, u64::from(handshake.note(Step::Denied)));
    denied.drops += new_packets;
    if let Some(reason) = sighting.drop_reason() {
        *denied.reasons.entry(reason).or_default() += new_packets;
    }
    denied.named.extend(&sighting.denied_by);
}

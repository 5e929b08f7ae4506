//! From what the kernel told to attempts, successes, denials and bytes. A socket's steps need no guessing; what needs
//! some is whose connection a dropped packet belonged to, for the kernel keeps one port of it only, and who opened
//! a connection that is older than the agent.

use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use crate::attribute::{Ends, Fact, KernelSighting, Peer};
use crate::drop_reason::{DropClass, DropReason};
use crate::facts::Protocol;
use crate::observation::{Carried, DroppedPacket, Opener, SocketStep};
use crate::time::Timestamp;

use super::Carrying;
use super::observer::ObserverId;
use super::recent::Recently;
use super::traffic::Traffic;
use super::window::{Denied, Listener, PairKey, PortClass, PortWindow, Window, listen};

/// Drops are told every few seconds: an aggregate that claims to begin earlier is not believed.
const LONGEST_AGGREGATE: Duration = Duration::from_secs(60);

/// What is remembered of a connection.
#[derive(Clone, Copy, Default)]
struct Connection {
    opened: bool,
    answered: bool,
    refused: bool,
    /// It ended: the next SYN between these ports is another connection.
    over: bool,
}

/// What is remembered of a port that one pod calls at another.
#[derive(Clone, Copy, Default)]
struct Called {
    /// Connections begun, as the opener's sockets told.
    begun: u32,
    /// Handshakes that ran into drops, as the drops told: a SYN that is sent again in the next aggregate is told again.
    told: u32,
    /// Of those, entered.
    entered: u32,
}

/// One side of a conversation.
#[derive(Clone, Copy)]
struct Side {
    peer: Peer,
    port: u16,
    class: PortClass,
}

/// The side whose socket tells, or whose packet was dropped, and the other one.
fn sides(ends: &Ends) -> (Side, Side) {
    let pod = Side { peer: Peer::Member(ends.pod), port: ends.pod_port, class: ends.pod_class };
    let peer = Side { peer: ends.peer, port: ends.peer_port, class: ends.peer_class };
    if ends.pod_sent { (pod, peer) } else { (peer, pod) }
}

/// What a pod's socket told to have carried.
pub(super) fn carrying(sighting: &KernelSighting) -> Option<Carrying> {
    let Fact::Step { step: SocketStep::Carried(carried) | SocketStep::Closed(carried), .. } = sighting.fact
    else {
        return None;
    };
    let (this, that) = sides(&sighting.ends?);
    let Peer::Member(pod) = this.peer else { return None };
    Some(Carrying { job: sighting.job, pod, peer: that.peer, carried })
}

/// The pair in which `opener` calls `callee`. `None` when the opener is no known pod: a name server's or API server's
/// business, or somebody of several behind an address.
fn pair(opener: Side, callee: Side, protocol: Protocol) -> Option<PairKey> {
    let Peer::Member(src) = opener.peer else { return None };
    Some(PairKey { src, dst: callee.peer, protocol, class: callee.class })
}

#[derive(Clone)]
pub(super) struct Kernel {
    connections: Recently<Connection>,
    /// By pair and the port that is called.
    called: Recently<Called>,
    /// By pair and the opener's port: the port that it calls.
    calls: Recently<(u16, PortClass)>,
    /// Whether what connections carry is told at once, and not by window.
    at_once: bool,
    told: Vec<(PairKey, u16, Traffic)>,
    hasher: foldhash::quality::FixedState,
}

impl Kernel {
    pub(super) fn new(limit: usize, at_once: bool) -> Self {
        Self {
            at_once,
            told: Vec::new(),
            connections: Recently::new(limit),
            called: Recently::new(limit),
            calls: Recently::new(limit),
            hasher: foldhash::quality::FixedState::with_seed(0x6b65_726e_656c_2121),
        }
    }

    /// Enters a sighting into its window. `false`: there was no room for its pair or connection.
    pub(super) fn follow(
        &mut self,
        observer: ObserverId,
        sighting: &KernelSighting,
        window: &mut Window,
        room: usize,
    ) -> bool {
        if let Fact::Listens { pod, at: places, port, class } = &sighting.fact {
            let listener = Listener { at: sighting.at, pod: *pod, class: *class };
            for ip in places {
                listen(&mut window.listeners, (*ip, *port), listener);
            }
        }
        let Some(ends) = sighting.ends else { return true };
        self.connections.turn(sighting.at);
        self.called.turn(sighting.at);
        self.calls.turn(sighting.at);
        let has_room =
            |window: &Window, key: &PairKey| window.pairs.len() < room || window.pairs.contains(key);
        let (this, that) = sides(&ends);
        match sighting.fact {
            Fact::Step { opener, step, listens } => {
                if let (Some(place), Peer::Member(pod)) = (listens, this.peer) {
                    listen(
                        &mut window.listeners,
                        place,
                        Listener { at: sighting.at, pod, class: this.class },
                    );
                }
                let Some(local_opens) = self.local_opens(observer, this, that, opener) else { return true };
                let (opener, callee) = if local_opens { (this, that) } else { (that, this) };
                let Some(key) = pair(opener, callee, Protocol::Tcp) else { return true };
                if !has_room(window, &key) {
                    return false;
                }
                self.step(observer, key, (opener.port, callee), window, sighting.at, (local_opens, step))
            }
            Fact::Dropped { what, reason, .. } => {
                let failure = reason.class() != DropClass::NotAFailure && sighting.protocol != Protocol::Icmp;
                let found = self.whose_drop(observer, (this, that), sighting.protocol, what);
                let Some((key, port)) = found.filter(|_| failure) else { return true };
                if !has_room(window, &key) {
                    return false;
                }
                self.drop(observer, key, port, window, sighting)
            }
            Fact::Listens { .. } => true,
        }
    }

    fn id(&self, of: impl Hash) -> u64 {
        self.hasher.hash_one(of)
    }

    fn connection(&self, observer: ObserverId, key: &PairKey, src_port: u16, dst_port: u16) -> u64 {
        self.id((observer, key.src, key.dst, key.protocol, src_port, dst_port))
    }

    fn called(&self, observer: ObserverId, key: &PairKey, port: u16) -> u64 {
        self.id((observer, key.src, key.dst, key.protocol, port))
    }

    fn calls(&self, observer: ObserverId, opener: Side, callee: Peer, protocol: Protocol) -> u64 {
        self.id((observer, opener.peer, opener.port, callee, protocol))
    }

    /// Whether the end that tells opened the connection. A socket older than the agent does not say: then the end with
    /// the rendezvous port was called, or the one with the lower port, so that both ends come to the same answer.
    fn local_opens(
        &self,
        observer: ObserverId,
        this: Side,
        that: Side,
        opener: Option<Opener>,
    ) -> Option<bool> {
        if let Some(opener) = opener {
            return Some(opener == Opener::Local);
        }
        let known = |opener: Side, callee: Side| {
            pair(opener, callee, Protocol::Tcp).is_some_and(|key| {
                self.connections.get(self.connection(observer, &key, opener.port, callee.port)).is_some()
            })
        };
        let infrastructure = |side: Side| matches!(side.peer, Peer::Dns(..) | Peer::ApiServer(_));
        Some(match (this.class, that.class) {
            _ if infrastructure(that) => true,
            _ if infrastructure(this) => false,
            _ if known(this, that) => true,
            _ if known(that, this) => false,
            (PortClass::Ephemeral, PortClass::Fixed) => true,
            (PortClass::Fixed, PortClass::Ephemeral) => false,
            _ => that.port < this.port,
        })
    }

    fn step(
        &mut self,
        observer: ObserverId,
        key: PairKey,
        (src_port, callee): (u16, Side),
        window: &mut Window,
        at: Timestamp,
        (local_opens, step): (bool, SocketStep),
    ) -> bool {
        let id = self.connection(observer, &key, src_port, callee.port);
        let mut connection = self.connections.get(id).unwrap_or_default();
        match step {
            SocketStep::Recognised(_) | SocketStep::Carried(_) | SocketStep::Closed(_) => {
                self.carry(key, callee.port, window, at, (local_opens, step));
            }
            _ => {}
        }
        let before = connection.opened;
        window.pairs.port(key, callee.port, |port| connection.step(port, at, step));
        let opener = Side { peer: Peer::Member(key.src), port: src_port, class: callee.class };
        let calls = self.calls(observer, opener, key.dst, key.protocol);
        let called = self.called(observer, &key, callee.port);
        let mut count = self.called.get(called).unwrap_or_default();
        count.begun = count.begun.saturating_add(u32::from(local_opens && connection.opened && !before));
        self.called.put(called, count);
        self.calls.put(calls, (callee.port, callee.class));
        self.connections.put(id, connection)
    }

    /// What a connection carried, or speaks. Who is called at an address that several pods share is known only when the
    /// window closes; of others it is told at once, where it is told at all.
    fn carry(
        &mut self,
        key: PairKey,
        port: u16,
        window: &mut Window,
        at: Timestamp,
        (local_opens, step): (bool, SocketStep),
    ) {
        let mut told = Traffic::default();
        let at_once = self.at_once && !matches!(key.dst, Peer::SharedAddress(_));
        let traffic = if at_once { &mut told } else { window.pairs.pair(key).traffic(key.dst, port) };
        match step {
            SocketStep::Recognised(app) => {
                traffic.apps.insert(app);
            }
            SocketStep::Carried(carried) | SocketStep::Closed(carried) => {
                traffic.carry(at, local_opens, &carried);
            }
            _ => {}
        }
        if at_once {
            self.told.push((key, port, told));
        }
    }

    /// What connections carried, of which it is told at once, since the last call.
    pub(super) fn take_told(&mut self) -> impl Iterator<Item = (PairKey, u16, Traffic)> {
        self.told.drain(..)
    }

    /// The pair and port that a dropped packet belonged to. `None` when that cannot be told: a packet from the middle
    /// of a connection of which nothing else is known is nothing to build on.
    fn whose_drop(
        &self,
        observer: ObserverId,
        (sender, receiver): (Side, Side),
        protocol: Protocol,
        what: DroppedPacket,
    ) -> Option<(PairKey, u16)> {
        match what {
            DroppedPacket::Opening => Some((pair(sender, receiver, protocol)?, receiver.port)),
            DroppedPacket::Answer => Some((pair(receiver, sender, protocol)?, sender.port)),
            DroppedPacket::Other => {
                let answered = self.calls.get(self.calls(observer, receiver, sender.peer, protocol));
                if let Some((port, class)) = answered {
                    return Some((pair(receiver, Side { port, class, ..sender }, protocol)?, port));
                }
                let key = pair(sender, receiver, protocol)?;
                let known = self.called.get(self.called(observer, &key, receiver.port)).is_some();
                (known || receiver.class == PortClass::Fixed).then_some((key, receiver.port))
            }
        }
    }

    fn drop(
        &mut self,
        observer: ObserverId,
        key: PairKey,
        port: u16,
        window: &mut Window,
        sighting: &KernelSighting,
    ) -> bool {
        let Fact::Dropped { first, what, reason, direction, packets, attempts } = sighting.fact else {
            return true;
        };
        let id = self.called(observer, &key, port);
        let mut called = self.called.get(id).unwrap_or_default();
        let new = if what == DroppedPacket::Opening { called.attempts(attempts) } else { attempts };
        let first = first.min(sighting.at).max(sighting.at.minus(LONGEST_AGGREGATE));
        window.pairs.port(key, port, |port| {
            let denied = port.failures.get_or_insert_default().denied.entry(direction).or_default();
            deny(denied, (first, sighting.at), (new, packets), reason);
        });
        self.called.put(id, called)
    }
}

fn deny(
    denied: &mut Denied,
    (first, last): (Timestamp, Timestamp),
    (attempts, packets): (u64, u64),
    reason: DropReason,
) {
    denied.attempts.add(first, attempts);
    denied.attempts.add(last, 0);
    denied.drops = denied.drops.saturating_add(packets);
    let of_reason = denied.reasons.entry(reason).or_default();
    *of_reason = of_reason.saturating_add(packets);
}

impl Called {
    /// Of handshakes that drops told: how many are new. No more are believed than were begun, where that was seen.
    fn attempts(&mut self, told: u64) -> u64 {
        self.told = self.told.saturating_add(u32::try_from(told).unwrap_or(u32::MAX));
        let believed = if self.begun > 0 { self.told.min(self.begun) } else { self.told };
        let new = believed.saturating_sub(self.entered);
        self.entered = self.entered.max(believed);
        u64::from(new)
    }
}

impl Connection {
    fn step(&mut self, port: &mut PortWindow, at: Timestamp, step: SocketStep) {
        let progress = |carried: &Carried| carried.sent > 0 || carried.received > 0;
        match step {
            SocketStep::Opening => {
                if self.refused || self.over {
                    *self = Self::default();
                }
                self.open(port, at);
            }
            SocketStep::Retried => self.open(port, at),
            SocketStep::Established => {
                if self.over {
                    *self = Self::default();
                }
                self.open(port, at);
                self.answer(port, at);
            }
            SocketStep::Refused => {
                self.open(port, at);
                if !self.answered && !self.refused {
                    self.refused = true;
                    port.failures.get_or_insert_default().refused.add(at, 1);
                }
            }
            SocketStep::GaveUp => {
                // Until now there was no answer.
                self.open(port, at);
                self.over = true;
            }
            SocketStep::Carried(carried) => {
                if progress(&carried) {
                    self.answer(port, at);
                }
            }
            SocketStep::Closed(carried) => {
                // Proves that the handshake was completed once, not that the connection lived on until now.
                if progress(&carried) && !self.answered {
                    self.answer(port, at);
                }
                self.over = true;
            }
            SocketStep::Recognised(_) | SocketStep::Listening => {}
        }
    }

    fn open(&mut self, port: &mut PortWindow, at: Timestamp) {
        port.opened.add(at, u64::from(!self.opened));
        self.opened = true;
    }

    fn answer(&mut self, port: &mut PortWindow, at: Timestamp) {
        port.answered.add(at, u64::from(!self.answered));
        self.answered = true;
    }
}

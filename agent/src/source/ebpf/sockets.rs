//! The lives of sockets, as user space follows them: what was told of each one already, and whose it is.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use firedoor_core::observation::{Carried, End, Opener, SocketEvent, SocketStep, SourceKind};
use firedoor_core::time::Timestamp;
use firedoor_ebpf::{Counters, EventKind, Identity, Side, SocketRecord, tcp_state};

use super::clock::Clock;
use super::recognise::recognise;
use super::whose::{Owner, Owners};
use super::{Nodes, address, is_local};
use crate::source::placement::Placement;

/// `ECONNREFUSED`: a reset or an ICMP port unreachable answered the SYN.
const CONNECTION_REFUSED: u32 = 111;

/// Whose a socket is and which node saw it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Whose {
    pub(super) owner: Owner,
    pub(super) observer: Arc<str>,
}

impl Whose {
    fn uid(&self) -> Option<&str> {
        if let Owner::Pod(uid) = &self.owner { Some(uid) } else { None }
    }
}

/// Whose a socket is.
pub(super) fn whose_socket(
    identity: &Identity,
    owners: &mut Owners,
    placement: &Placement,
    nodes: &Nodes,
    now: u64,
) -> Whose {
    let owner = owners.of(identity.cgroup, identity.netns, now);
    let nobody = || Whose { owner: Owner::Nobody, observer: "".into() };
    let node = match &owner {
        Owner::Pod(uid) => placement.pod(uid).map(|place| &place.node),
        Owner::Nobody => return nobody(),
        Owner::Unknown => nodes.of_netns(identity.netns),
    };
    match node {
        // Another node's, which shares this kernel: its own agent tells.
        Some(node) if !nodes.names.is_empty() && !nodes.has(node) => nobody(),
        Some(node) => Whose { observer: Arc::clone(node), owner },
        None => Whose { observer: nodes.only().cloned().unwrap_or_default(), owner },
    }
}

/// A live socket.
struct Socket {
    /// What was told already.
    told: Payload,
    opener: Option<Opener>,
    /// The last pass that saw it.
    pass: u64,
    recognised: bool,
    /// Whether anything was told of it: one that is older than the agent is told of once, moving or not.
    announced: bool,
}

/// The live sockets.
#[derive(Default)]
pub(super) struct Sockets {
    live: HashMap<u64, Socket, foldhash::fast::RandomState>,
    pass: u64,
}

impl Sockets {
    /// What an event tells; `None`: nothing worth telling.
    pub(super) fn step<'a>(
        &mut self,
        record: &SocketRecord,
        kind: EventKind,
        whose: &'a Whose,
        clock: &Clock,
    ) -> Option<SocketEvent<'a>> {
        let identity = &record.identity;
        if is_local(record) {
            return None;
        }
        let cookie = identity.cookie;
        let mut opener = opener(identity.side);
        let step = match kind {
            EventKind::Opening => SocketStep::Opening,
            EventKind::Retried => SocketStep::Retried,
            EventKind::Established => {
                let pass = self.pass;
                self.live.entry(cookie).or_insert(Socket {
                    told: Payload::default(),
                    opener,
                    pass,
                    recognised: false,
                    announced: true,
                });
                SocketStep::Established
            }
            EventKind::Failed if record.detail == CONNECTION_REFUSED => SocketStep::Refused,
            EventKind::Failed => SocketStep::GaveUp,
            EventKind::Closed => {
                let known = self.live.remove(&cookie);
                opener = known.as_ref().and_then(|socket| socket.opener).or(opener);
                let now = Payload::of(&record.counters, opener, record.detail == 0);
                // One that was open before anybody looked: what it had carried by then is not known.
                let told = known.map_or(now, |socket| socket.told);
                SocketStep::Closed(carried(told, now, &record.counters))
            }
            EventKind::FirstBytes => {
                let socket = self.live.get_mut(&cookie)?;
                let length = (record.detail as usize).min(record.payload.len());
                let whole = record.counters.received == length as u64;
                let app = recognise(record.payload.get(..length)?, whole)?;
                if std::mem::replace(&mut socket.recognised, true) {
                    return None;
                }
                opener = socket.opener;
                SocketStep::Recognised(app)
            }
            EventKind::Listening => {
                opener = None;
                SocketStep::Listening
            }
            // A reset shows in the error with which the connection ends.
            EventKind::Reset => return None,
        };
        Some(event(identity, whose, clock.at(record.at), opener, step))
    }

    /// A pass over all live sockets begins.
    pub(super) fn begin_pass(&mut self) {
        self.pass += 1;
    }

    /// What a socket's counters tell since they were last told; `None`: nothing moved.
    pub(super) fn sampled<'a>(
        &mut self,
        identity: &Identity,
        counters: &Counters,
        whose: &'a Whose,
        at: Timestamp,
    ) -> Option<SocketEvent<'a>> {
        if address(identity.family, &identity.remote_addr).is_loopback() {
            return None;
        }
        let socket = self.seen(identity, counters);
        let now = Payload::of(counters, socket.opener, false);
        let carried = carried(socket.told, now, counters);
        let moved = carried.sent > 0 || carried.received > 0 || carried.retransmitted > 0;
        if socket.announced && !moved {
            return None;
        }
        socket.announced = true;
        socket.told = now;
        let opener = socket.opener;
        Some(event(identity, whose, at, opener, SocketStep::Carried(carried)))
    }

    /// A socket that lives, but of which nothing can be told yet.
    pub(super) fn keep(&mut self, identity: &Identity, counters: &Counters) {
        self.seen(identity, counters);
    }

    /// Notes that a pass saw it.
    fn seen(&mut self, identity: &Identity, counters: &Counters) -> &mut Socket {
        let pass = self.pass;
        let opener = opener(identity.side);
        let socket = self.live.entry(identity.cookie).or_insert_with(|| {
            // What an older socket carried before is not known; one whose opening was not told began at zero.
            let older = identity.side == Side::Unknown as u8;
            let told = if older { Payload::of(counters, opener, false) } else { Payload::default() };
            Socket { told, opener, pass, recognised: false, announced: !older }
        });
        socket.pass = pass;
        socket
    }

    /// The pass is over: sockets that were missed twice are gone, their end was lost.
    pub(super) fn end_pass(&mut self) {
        let pass = self.pass;
        self.live.retain(|_, socket| socket.pass + 2 > pass);
    }
}

fn opener(side: u8) -> Option<Opener> {
    match side {
        side if side == Side::Opened as u8 => Some(Opener::Local),
        side if side == Side::Accepted as u8 => Some(Opener::Remote),
        _ => None,
    }
}

/// What a connection carried in all, without the SYN and FIN that the kernel counts as bytes.
#[derive(Clone, Copy, Default)]
struct Payload {
    sent: u64,
    received: u64,
    retransmitted: u32,
}

impl Payload {
    /// `orderly`: the connection is over, and no error ended it.
    fn of(counters: &Counters, opener: Option<Opener>, orderly: bool) -> Self {
        let syn = u64::from(opener == Some(Opener::Local));
        let fin_acknowledged =
            orderly || [tcp_state::FIN_WAIT2, tcp_state::TIME_WAIT].contains(&counters.state);
        let fin_received = orderly
            || [tcp_state::CLOSE_WAIT, tcp_state::LAST_ACK, tcp_state::CLOSING, tcp_state::TIME_WAIT]
                .contains(&counters.state);
        Self {
            sent: counters.acked.saturating_sub(syn + u64::from(fin_acknowledged)),
            received: counters.received.saturating_sub(fin_received.into()),
            retransmitted: counters.retransmitted,
        }
    }
}

fn carried(told: Payload, now: Payload, counters: &Counters) -> Carried {
    let micros = |micros: u32| Duration::from_micros(micros.into());
    Carried {
        sent: now.sent.saturating_sub(told.sent),
        received: now.received.saturating_sub(told.received),
        retransmitted: now.retransmitted.saturating_sub(told.retransmitted),
        rtt: (counters.srtt_us != 0).then(|| micros(counters.srtt_us)),
        min_rtt: (counters.min_rtt_us != u32::MAX && counters.min_rtt_us != 0)
            .then(|| micros(counters.min_rtt_us)),
    }
}

fn event<'a>(
    identity: &Identity,
    whose: &'a Whose,
    at: Timestamp,
    opener: Option<Opener>,
    step: SocketStep,
) -> SocketEvent<'a> {
    let end = |addr: &[u8; 16], port, uid| End {
        ip: Some(address(identity.family, addr)),
        port,
        pod: None,
        uid,
        reserved: None,
    };
    SocketEvent {
        at,
        observer: &whose.observer,
        source: SourceKind::Ebpf,
        local: end(&identity.local_addr, identity.local_port, whose.uid()),
        remote: match step {
            SocketStep::Listening => End::UNKNOWN,
            _ => end(&identity.remote_addr, identity.remote_port, None),
        },
        opener,
        step,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(acked: u64, received: u64, state: u32) -> Counters {
        Counters { acked, received, srtt_us: 150, min_rtt_us: u32::MAX, retransmitted: 2, state }
    }

    fn of(counters: &Counters, opener: Option<Opener>, orderly: bool) -> (u64, u64) {
        let payload = Payload::of(counters, opener, orderly);
        (payload.sent, payload.received)
    }

    #[test]
    fn sequence_numbers_of_syn_and_fin_are_no_payload() {
        let open = counters(101, 50, tcp_state::ESTABLISHED);
        assert_eq!(of(&open, Some(Opener::Local), false), (100, 50), "the opener's SYN was acknowledged");
        assert_eq!(of(&open, Some(Opener::Remote), false), (101, 50));
        assert_eq!(of(&counters(102, 51, tcp_state::FIN_WAIT2), Some(Opener::Local), true), (100, 50));
        assert_eq!(of(&counters(101, 51, tcp_state::CLOSE_WAIT), Some(Opener::Local), false), (100, 50));
        assert_eq!(of(&counters(102, 50, tcp_state::FIN_WAIT2), Some(Opener::Local), false), (100, 50));
        assert_eq!(of(&counters(0, 0, tcp_state::ESTABLISHED), Some(Opener::Local), true), (0, 0));
    }

    #[test]
    fn what_was_told_is_not_told_again() {
        let whose = Whose { owner: Owner::Pod("u".into()), observer: "n".into() };
        let identity = Identity {
            cookie: 7,
            family: 2,
            side: Side::Opened as u8,
            remote_addr: [10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            ..Identity::default()
        };
        let older = Identity { cookie: 8, side: Side::Unknown as u8, ..identity };
        let mut sockets = Sockets::default();
        let mut told = |identity: &Identity, acked| {
            sockets.begin_pass();
            let counters = counters(acked, 0, tcp_state::ESTABLISHED);
            let event = sockets.sampled(identity, &counters, &whose, Timestamp::MIN);
            event.map(|event| match event.step {
                SocketStep::Carried(carried) => carried.sent,
                step => panic!("{step:?}"),
            })
        };
        assert_eq!(told(&identity, 101), Some(100), "all of one whose opening was missed");
        assert_eq!(told(&identity, 101), None);
        assert_eq!(told(&identity, 111), Some(10));
        assert_eq!(told(&older, 5000), Some(0), "an older one is told of, with nothing of its past");
        assert_eq!(told(&older, 5000), None);
        assert_eq!(told(&older, 5010), Some(10));
    }
}

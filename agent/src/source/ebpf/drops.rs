//! Dropped packets, from the kernel's running totals to what is new in them, and where they were dropped.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use firedoor_core::drop_reason::DropReason;
use firedoor_core::facts::Protocol;
use firedoor_core::observation::{Direction, DroppedPacket, Drops, End, SourceKind};
use firedoor_ebpf::{DROP_KEYS, DropKey, DropTally, PacketKind};

use super::clock::Clock;
use super::whose::{Owner, Owners};
use super::{Nodes, address};
use crate::source::placement::Placement;

/// An entry to which nothing was added for this long makes room, in nanoseconds.
const IDLE: u64 = 30_000_000_000;
/// ... and for this long when the map fills up.
const IDLE_WHEN_FULL: u64 = 2_000_000_000;
/// For how long drops wait for an inventory that is slower than the kernel, in nanoseconds: all of them, those of which
/// one end is not known, and those of which nothing is known.
const HOLD_ALL: u64 = 1_500_000_000;
const HOLD_HALF: u64 = 3_000_000_000;
const HOLD_UNKNOWN: u64 = 10_000_000_000;
/// `SKB_DROP_REASON_TC_INGRESS`, without its prefix: dropped as it came in from a device.
const TC_INGRESS: &str = "TC_INGRESS";
/// `SKB_DROP_REASON_TC_EGRESS`: dropped as it went out to a device.
const TC_EGRESS: &str = "TC_EGRESS";

type Told = HashMap<DropKey, DropTally, foldhash::fast::RandomState>;

/// What was told of each entry already.
pub(super) struct DropTotals {
    told: Told,
    reasons: BTreeMap<u32, DropReason>,
    hold: bool,
    entries: usize,
}

/// Where packets were dropped, as far as it can be known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct DropPlace {
    observer: Arc<str>,
    direction: Option<Direction>,
    /// The pod whose socket sent them.
    sender: Option<Arc<str>>,
}

/// New drops of one entry.
pub(super) struct New<'a> {
    pub(super) key: &'a DropKey,
    pub(super) reason: DropReason,
    pub(super) tally: DropTally,
}

impl DropTotals {
    pub(super) fn new(reasons: BTreeMap<u32, DropReason>) -> Self {
        Self { told: Told::default(), reasons, hold: true, entries: 0 }
    }

    /// How many entries there were at the last look.
    pub(super) fn entries(&self) -> usize {
        self.entries
    }

    /// From now on nothing waits.
    pub(super) fn hold_nothing(&mut self) {
        self.hold = false;
    }

    /// Tells what is new in the kernel's totals; returns the entries that can be forgotten. What is not known yet is told
    /// later, as long as there is hope.
    pub(super) fn update<'a>(
        &mut self,
        totals: impl Iterator<Item = (&'a DropKey, &'a DropTally)>,
        now: u64,
        known: &mut dyn FnMut(&DropKey) -> Known,
        tell: &mut dyn FnMut(&New<'_>),
    ) -> Vec<DropKey> {
        let mut entries: Vec<(u64, DropKey)> = Vec::new();
        for (key, total) in totals {
            entries.push((total.last, *key));
            let Some(new) = self.new_in(key, total) else { continue };
            let known = known(key);
            let patience = match known {
                Known::Both => HOLD_ALL,
                Known::One => HOLD_HALF,
                Known::Neither => HOLD_UNKNOWN,
            };
            if self.hold && now.saturating_sub(total.first) < patience {
                continue;
            }
            if known != Known::Neither {
                tell(&new);
            }
            self.told.insert(*key, *total);
        }
        self.entries = entries.len();
        let full = entries.len() > DROP_KEYS as usize / 4 * 3;
        let patience = if full { IDLE_WHEN_FULL } else { IDLE };
        let idle = entries.into_iter().filter(|(last, _)| now.saturating_sub(*last) > patience);
        idle.map(|(_, key)| key).collect()
    }

    /// The last totals of an entry that was forgotten; what is new in them.
    pub(super) fn settle<'a>(&mut self, key: &'a DropKey, last: &DropTally) -> Option<New<'a>> {
        let new = self.new_in(key, last);
        self.told.remove(key);
        new
    }

    fn new_in<'a>(&self, key: &'a DropKey, total: &DropTally) -> Option<New<'a>> {
        let before = self.told.get(key).copied();
        let packets = total.packets.saturating_sub(before.map_or(0, |b| b.packets));
        if packets == 0 {
            return None;
        }
        let attempts = total.attempts.saturating_sub(before.map_or(0, |b| b.attempts));
        let first = before.map_or(total.first, |b| b.last.max(total.first));
        let tally = DropTally { packets, attempts, first: first.min(total.last), ..*total };
        let reason = self.reasons.get(&key.reason).copied().unwrap_or(DropReason::UNKNOWN);
        Some(New { key, reason, tally })
    }
}

/// Whose addresses the inventory knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Known {
    Both,
    One,
    /// Or nobody knows whose network namespace it is: not yet, or it is none of ours.
    Neither,
}

/// How much can be said about drops.
pub(super) fn known(
    key: &DropKey,
    owners: &mut Owners,
    placement: &Placement,
    nodes: &Nodes,
    now: u64,
) -> Known {
    let addressed = |ip: &[u8; 16]| placement.node_of(address(key.family, ip)).is_some();
    let elsewhere = nodes.are_complete()
        && key.netns != 0
        && nodes.of_netns(key.netns).is_none()
        && owners.of_netns(key.netns, now) == Owner::Unknown;
    match (addressed(&key.src), addressed(&key.dst)) {
        _ if elsewhere => Known::Neither,
        (true, true) => Known::Both,
        (false, false) => Known::Neither,
        _ => Known::One,
    }
}

/// On which node, at which end, by whose socket.
pub(super) fn place(
    new: &New<'_>,
    owners: &mut Owners,
    placement: &Placement,
    nodes: &Nodes,
    now: u64,
) -> DropPlace {
    let key = new.key;
    let (src, dst) = (address(key.family, &key.src), address(key.family, &key.dst));
    let node_of_pod = |uid: &str| placement.pod(uid).map(|place| Arc::clone(&place.node));
    // The socket that sent it: nothing says more.
    if key.cgroup > 1
        && let Owner::Pod(uid) = owners.of(key.cgroup, key.netns, now)
        && let Some(node) = node_of_pod(&uid)
    {
        return DropPlace { observer: node, direction: Some(Direction::Egress), sender: Some(uid) };
    }
    // Inside a pod's own network namespace.
    if let Owner::Pod(uid) = owners.of_netns(key.netns, now)
        && let Some(place) = placement.pod(&uid)
    {
        let direction = if place.ips.contains(&src) { Direction::Egress } else { Direction::Ingress };
        let sender = (direction == Direction::Egress).then_some(uid);
        return DropPlace { observer: Arc::clone(&place.node), direction: Some(direction), sender };
    }
    // On a node, between the devices.
    let (from, to) = (placement.node_of(src), placement.node_of(dst));
    let here = nodes.of_netns(key.netns).or(nodes.only());
    let observer = here.or(from).or(to).cloned().unwrap_or_default();
    let is_here = |node: Option<&Arc<str>>| node.is_some_and(|node| *node == observer);
    let direction = match (is_here(from), is_here(to)) {
        (true, false) => Some(Direction::Egress),
        (false, true) => Some(Direction::Ingress),
        // Both are here: a packet comes in from its sender's device and goes out to its receiver's.
        (true, true) => match new.reason.to_string().as_str() {
            TC_INGRESS => Some(Direction::Egress),
            TC_EGRESS => Some(Direction::Ingress),
            _ => None,
        },
        (false, false) => None,
    };
    DropPlace { observer, direction, sender: None }
}

/// What is told; `None`: a reset that was sent, or a protocol nobody asked for.
pub(super) fn observation<'a>(new: &New<'_>, place: &'a DropPlace, clock: &Clock) -> Option<Drops<'a>> {
    let what = match PacketKind::from_u8(new.key.kind)? {
        PacketKind::Opening => DroppedPacket::Opening,
        PacketKind::Answer => DroppedPacket::Answer,
        PacketKind::Other => DroppedPacket::Other,
        PacketKind::ResetSent => return None,
    };
    let protocol = match new.key.protocol {
        6 => Protocol::Tcp,
        17 => Protocol::Udp,
        132 => Protocol::Sctp,
        _ => return None,
    };
    let (src, dst) = (address(new.key.family, &new.key.src), address(new.key.family, &new.key.dst));
    if src.is_loopback() || dst.is_loopback() || dst.is_multicast() {
        return None;
    }
    let answer = what == DroppedPacket::Answer;
    let end = |ip, called: bool, uid| End {
        ip: Some(ip),
        port: if called { new.key.port } else { 0 },
        pod: None,
        uid,
        reserved: None,
    };
    Some(Drops {
        first: clock.at(new.tally.first),
        last: clock.at(new.tally.last),
        observer: &place.observer,
        source: SourceKind::Ebpf,
        protocol,
        src: end(src, answer, place.sender.as_deref()),
        dst: end(dst, !answer, None),
        what,
        reason: new.reason,
        direction: place.direction,
        packets: new.tally.packets,
        attempts: new.tally.attempts.max(u64::from(what == DroppedPacket::Opening && new.tally.attempts > 0)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> DropKey {
        DropKey { port: 9999, family: 2, protocol: 6, reason: 8, ..DropKey::default() }
    }

    fn tally(packets: u64, last: u64) -> DropTally {
        DropTally { packets, attempts: 1, first: 10, last, ports: [1, 0, 0, 0] }
    }

    #[test]
    fn only_what_is_new_is_told() {
        let reasons = BTreeMap::from([(8, DropReason::from_kernel_name("NETFILTER_DROP"))]);
        let mut totals = DropTotals::new(reasons);
        let mut told = Vec::new();
        let mut look = |total: DropTally, now: u64, known: Known| {
            let entries = [(key(), total)];
            let tell = &mut |new: &New<'_>| told.push((new.tally.packets, new.tally.attempts));
            totals.update(entries.iter().map(|(k, t)| (k, t)), now, &mut |_| known, tell).len()
        };
        assert_eq!(look(tally(2, 15), 20, Known::Both), 0, "waits for the inventory");
        assert_eq!(look(tally(3, 20), HOLD_HALF, Known::One), 0);
        assert_eq!(look(tally(3, 20), 10 + HOLD_HALF, Known::One), 0);
        assert_eq!(look(tally(3, 20), 20 + HOLD_HALF, Known::Both), 0);
        assert_eq!(look(tally(5, 50), 60 + HOLD_HALF, Known::Both), 0);
        assert_eq!(look(tally(5, 50), 51 + IDLE, Known::Both), 1, "idle entries make room");
        assert_eq!(told, [(3, 1), (2, 0)]);
        let rest = totals.settle(&key(), &tally(6, 70)).map(|new| new.tally.packets);
        assert_eq!(rest, Some(1), "what came before it was forgotten");
        assert!(totals.told.is_empty());
    }
}

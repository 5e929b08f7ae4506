//! Who is meant by an address that several pods of a job share? The one that was seen to accept connections on the
//! port, on whatever node and by whatever source that was seen.

use std::collections::BTreeMap;

use crate::attribute::Peer;
use crate::ledger::PairKey;
use crate::ledger::window::{Listeners, PairWindow, Window, WindowKey};

/// Whether the pair's peer is one of several that share an address.
pub(super) fn may_be_named(pair: &PairKey) -> bool {
    matches!(pair.dst, Peer::SharedAddress(_))
}

/// The pairs with a shared address, each port under the pod that listens there; what nobody is known for stays as it
/// was. A pod that calls itself by its node's address is no pair.
pub(super) fn name(
    group: &[(WindowKey, &Window)],
    listeners: &Listeners,
) -> Vec<(WindowKey, PairKey, PairWindow)> {
    let mut named = Vec::new();
    for (key, window) in group {
        let mut of_window: BTreeMap<PairKey, PairWindow> = BTreeMap::new();
        for (pair, seen) in window.pairs.iter().filter(|(pair, _)| may_be_named(pair)) {
            let meant = |port: u16| meant(pair, port, listeners);
            for (port, seen) in &seen.ports {
                let place = of_window.entry(meant(*port)).or_default();
                *place.port(*port) = seen.clone();
            }
            for (port, traffic) in seen.traffic.iter().flat_map(|by_port| by_port.iter()) {
                let meant = meant(*port);
                of_window.entry(meant).or_default().traffic(meant.dst, *port).add(traffic);
            }
        }
        let pairs = of_window.into_iter().filter(|(pair, _)| pair.dst != Peer::Member(pair.src));
        named.extend(pairs.map(|(pair, seen)| (*key, pair, seen)));
    }
    named
}

fn meant(pair: &PairKey, port: u16, listeners: &Listeners) -> PairKey {
    let Peer::SharedAddress(ip) = pair.dst else { return *pair };
    match listeners.get(&(ip, port)) {
        Some(listener) => PairKey { dst: Peer::Member(listener.pod), class: listener.class, ..*pair },
        None => *pair,
    }
}

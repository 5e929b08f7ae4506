//! Who is meant by an address that several pods of a job share? The one that was seen to listen on the port, or to
//! accept connections there, on whatever node and by whatever source that was seen.

use std::collections::BTreeMap;

use crate::attribute::Peer;
use crate::inventory::PodId;
use crate::ledger::PairKey;
use crate::ledger::window::{Listeners, PairWindow, Window, WindowKey};

use super::Whereabouts;

/// Whether the pair's peer is one of several that share an address.
pub(super) fn may_be_named(pair: &PairKey) -> bool {
    matches!(pair.dst, Peer::SharedAddress(_))
}

/// The pairs with a shared address, each port under the pod that listens there; what nobody is known for stays as it
/// was. A pod that calls itself by its node's address is no pair, nor is one that calls another job's.
pub(super) fn name(
    group: &[(WindowKey, &Window)],
    listeners: &Listeners,
    cluster: Whereabouts<'_>,
) -> Vec<(WindowKey, PairKey, PairWindow)> {
    let mut named = Vec::new();
    for (key, window) in group {
        let mut of_window: BTreeMap<PairKey, PairWindow> = BTreeMap::new();
        for (pair, seen) in window.pairs.loud().filter(|(pair, _)| may_be_named(pair)) {
            let meant = |port: u16| meant(pair, port, key, listeners, cluster);
            for (port, seen) in &seen.ports {
                let Some(meant) = meant(*port) else { continue };
                let place = of_window.entry(meant).or_default();
                *place.port(*port) = seen.clone();
            }
            for (port, traffic) in seen.traffic.iter().flat_map(|by_port| by_port.iter()) {
                let Some(meant) = meant(*port) else { continue };
                of_window.entry(meant).or_default().traffic(meant.dst, *port).add(traffic);
            }
        }
        let pairs = of_window.into_iter().filter(|(pair, _)| pair.dst != Peer::Member(pair.src));
        named.extend(pairs.map(|(pair, seen)| (*key, pair, seen)));
    }
    named
}

/// `None`: somebody who is none of the pair's business.
fn meant(
    pair: &PairKey,
    port: u16,
    window: &WindowKey,
    listeners: &Listeners,
    cluster: Whereabouts<'_>,
) -> Option<PairKey> {
    let Peer::SharedAddress(ip) = pair.dst else { return Some(*pair) };
    let Some(listener) = listeners.get(&(ip, port)) else { return Some(*pair) };
    let job_of = |pod: PodId| (cluster.job_of)(pod, window.start);
    match job_of(listener.pod) {
        // It is gone: somebody else may listen there by now.
        None => Some(*pair),
        job if job == job_of(pair.src) => {
            Some(PairKey { dst: Peer::Member(listener.pod), class: listener.class, ..*pair })
        }
        Some(_) => None,
    }
}

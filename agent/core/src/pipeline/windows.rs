//! What a pipeline saw, for others to join with what other nodes saw: windows that are open, what failed in those that are
//! closed, and what each pair came to within the horizon. Pods go by namespace, name and UID, nodes by name, so that it
//! means the same everywhere. Enters: a pipeline; leaves: plain values. A window is named by node, source and start: of two
//! looks at the same one the later one counts.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Serialize;

use super::{Pipeline, take_told};
use crate::attribute::Peer;
use crate::history::PairHistory;
use crate::inventory::{Inventory, PodId};
use crate::ledger::window::{Denied, PairWindow, PortWindow, Span, Tally};
use crate::ledger::{Observers, PairKey, PortClass, Window, WindowKey};
use crate::observation::Direction;
use crate::time::Timestamp;

/// Pairs told of a node's windows, and of what pairs came to; what is left out is counted.
const MAX_PAIRS: usize = 50_000;
/// Pairs with failures that are kept of closed windows; a window without any takes the room of one.
pub(super) const KEPT: usize = 4_096;

/// What a pipeline saw.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct WindowsReport {
    /// The version of this form: 1.
    pub version: u32,
    /// Width of the windows, in seconds.
    pub width: f64,
    /// The newest event's time; `null`: there was none.
    pub at: Option<Timestamp>,
    /// The pods that are meant below by their place here.
    pub pods: Vec<PodName>,
    /// Windows by node, source and start. Of closed ones only the pairs are told on which something failed.
    pub windows: Vec<WindowReport>,
    /// What each pair came to within the horizon, closed windows only.
    pub pairs: Vec<PairSummary>,
    /// Pairs that were left out because there were too many.
    pub left_out: u64,
}

/// Names a pod anywhere.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct PodName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: Option<String>,
}

/// Whom a pod calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Callee {
    /// A member of its job, by its place among the pods.
    Member(u32),
    /// One of several members that share this address.
    Shared(IpAddr),
    /// A name server.
    Dns(IpAddr),
    /// The API server.
    Api(IpAddr),
}

/// Who calls whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct PairName {
    /// Who opens, by its place among the pods.
    pub src: u32,
    /// Who is called.
    pub dst: Callee,
    /// Over which protocol.
    pub protocol: &'static str,
    /// On which class of port.
    pub class: PortClass,
}

/// What one node saw through one source in one stretch of time.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct WindowReport {
    /// The node; empty: not told which.
    pub node: String,
    /// The kind of source.
    pub source: &'static str,
    /// When it starts.
    pub start: Timestamp,
    /// Whether more may still come.
    pub open: bool,
    /// Events that fell into it.
    pub events: u64,
    /// Events known to be missing.
    pub lost: u64,
    /// Events not kept because a cap was reached.
    pub overflow: u64,
    /// Its first and last event.
    pub span: Option<[Timestamp; 2]>,
    /// Its pairs.
    pub pairs: Vec<PairSeen>,
    /// Who listens at addresses that several pods share.
    pub listeners: Vec<ListenerSeen>,
}

/// What happened between a pair in a window.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PairSeen {
    /// Between whom.
    #[serde(flatten)]
    pub pair: PairName,
    /// By port.
    pub ports: Vec<PortSeen>,
}

/// How often, first and last.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct TallySeen {
    /// How often.
    pub count: u64,
    /// When.
    pub span: Option<[Timestamp; 2]>,
}

/// What happened on a port.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PortSeen {
    /// The port.
    pub port: u16,
    /// Handshakes begun.
    pub opened: TallySeen,
    /// Success.
    pub answered: TallySeen,
    /// Answered with a reset.
    pub refused: TallySeen,
    /// Dropped.
    pub denied: Vec<DeniedSeen>,
    /// Would have been dropped.
    pub audited: Option<DeniedSeen>,
}

/// What was dropped in a direction.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct DeniedSeen {
    /// In which direction; `null`: cannot know.
    pub direction: Option<Direction>,
    /// Handshakes that ran into it.
    pub attempts: TallySeen,
    /// Packets.
    pub drops: u64,
    /// Why, by packet: code and count.
    pub reasons: BTreeMap<u32, u64>,
    /// Policies the source named: kind, namespace, name, direction.
    pub named: Vec<(String, String, String, Direction)>,
}

/// Who listens where.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ListenerSeen {
    /// The address.
    pub ip: IpAddr,
    /// The port.
    pub port: u16,
    /// What kind of port it is.
    pub class: PortClass,
    /// The pod, by its place.
    pub pod: u32,
    /// When it was last seen.
    pub at: Timestamp,
}

/// What a pair came to within the horizon.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PairSummary {
    /// Between whom.
    #[serde(flatten)]
    pub pair: PairName,
    /// Success on any port.
    pub answered: TallySeen,
    /// Bytes from the opener on and back, by the account that counts; `null`: not measured.
    pub bytes: Option<[u64; 2]>,
    /// Round-trip times: nanoseconds and how often.
    pub rtt: Vec<(u64, u64)>,
    /// When anything was carried.
    pub carried: Option<[Timestamp; 2]>,
}

/// Pods that are meant by their place.
struct Names<'a> {
    inventory: &'a Inventory,
    places: BTreeMap<PodId, u32>,
    pods: Vec<PodName>,
}

/// How much room a window takes that is kept.
fn room(window: &Window) -> usize {
    window.pairs.len().max(1)
}

fn span(span: Option<Span>) -> Option<[Timestamp; 2]> {
    span.map(|span| [span.first, span.last])
}

fn tally(of: Tally) -> TallySeen {
    TallySeen { count: of.count, span: span(of.span) }
}

fn denied(direction: Option<Direction>, of: &Denied) -> DeniedSeen {
    let named = of.named.iter().map(|p| (p.kind.clone(), p.namespace.clone(), p.name.clone(), p.direction));
    DeniedSeen {
        direction,
        attempts: tally(of.attempts),
        drops: of.drops,
        reasons: of.reasons.iter().map(|(reason, count)| (reason.code(), *count)).collect(),
        named: named.collect(),
    }
}

fn port(port: u16, seen: &PortWindow) -> PortSeen {
    let failures = seen.failures.as_deref();
    let audited = failures.map(|f| &f.audited).filter(|audited| audited.attempts.span.is_some());
    let dropped = failures.into_iter().flat_map(|f| &f.denied);
    PortSeen {
        port,
        opened: tally(seen.opened),
        answered: tally(seen.answered),
        refused: failures.map_or_else(TallySeen::default, |f| tally(f.refused)),
        denied: dropped.map(|(direction, of)| denied(*direction, of)).collect(),
        audited: audited.map(|of| denied(None, of)),
    }
}

impl Names<'_> {
    fn pod(&mut self, id: PodId) -> u32 {
        if let Some(place) = self.places.get(&id) {
            return *place;
        }
        let place = u32::try_from(self.pods.len()).unwrap_or(u32::MAX);
        let pod = self.inventory.pod(id);
        let (namespace, name, uid) = (pod.namespace.clone(), pod.name.clone(), pod.uid.clone());
        self.pods.push(PodName { namespace, name, uid });
        self.places.insert(id, place);
        place
    }

    fn pair(&mut self, key: &PairKey) -> PairName {
        let dst = match key.dst {
            Peer::Member(pod) => Callee::Member(self.pod(pod)),
            Peer::SharedAddress(ip) => Callee::Shared(ip),
            Peer::Dns(_, ip) => Callee::Dns(ip),
            Peer::ApiServer(ip) => Callee::Api(ip),
        };
        PairName { src: self.pod(key.src), dst, protocol: key.protocol.name(), class: key.class }
    }

    fn seen(&mut self, key: &PairKey, seen: &PairWindow) -> PairSeen {
        let ports = seen.ports.iter().map(|(number, seen)| port(*number, seen));
        PairSeen { pair: self.pair(key), ports: ports.collect() }
    }

    fn window(
        &mut self,
        (key, window): (&WindowKey, &Window),
        observers: &Observers,
        open: bool,
        room: &mut usize,
    ) -> WindowReport {
        let mut pairs: Vec<_> = window.pairs.iter().take(*room).collect();
        *room -= pairs.len();
        pairs.sort_unstable_by_key(|(key, _)| *key);
        WindowReport {
            node: observers.name(key.observer).to_owned(),
            source: key.source.as_str(),
            start: key.start,
            open,
            events: window.counts.events,
            lost: window.counts.lost,
            overflow: window.counts.overflow,
            span: span(window.span),
            pairs: pairs.iter().map(|(key, seen)| self.seen(key, seen)).collect(),
            listeners: window
                .listeners
                .iter()
                .map(|((ip, port), of)| ListenerSeen {
                    ip: *ip,
                    port: *port,
                    class: of.class,
                    pod: self.pod(of.pod),
                    at: of.at,
                })
                .collect(),
        }
    }

    fn summary(&mut self, key: &PairKey, history: &PairHistory) -> PairSummary {
        let carried = history.carried.as_ref().map(crate::history::CarriedHistory::total);
        let rtt = carried.iter().flat_map(|traffic| traffic.rtt.iter());
        let nanos = |rtt: std::time::Duration| u64::try_from(rtt.as_nanos()).unwrap_or(u64::MAX);
        PairSummary {
            pair: self.pair(key),
            answered: tally(history.answered),
            bytes: carried.as_ref().map(|traffic| [traffic.forward.bytes(), traffic.backward.bytes()]),
            rtt: rtt.map(|(rtt, count)| (nanos(rtt), count)).collect(),
            carried: carried.as_ref().and_then(|traffic| span(traffic.span)),
        }
    }
}

impl Pipeline {
    /// What was seen, for others to join with what other nodes saw.
    #[must_use]
    pub fn windows(&self) -> WindowsReport {
        let mut settled = self.ledger.settled();
        drop(take_told(settled.as_mut()));
        let ledger = settled.as_ref().unwrap_or(&self.ledger);
        let mut names = Names { inventory: &self.inventory, places: BTreeMap::new(), pods: Vec::new() };
        let mut room = MAX_PAIRS;
        let open: usize = ledger.open_windows().values().map(|window| window.pairs.len()).sum();
        let kept: usize = self.kept.iter().map(|(_, window)| window.pairs.len()).sum();
        let all = open + kept + self.history.pairs.len();
        let observers = ledger.observers();
        let mut windows: Vec<WindowReport> = self
            .kept
            .iter()
            .map(|(key, window)| names.window((key, window), observers, false, &mut room))
            .collect();
        for window in ledger.open_windows() {
            windows.push(names.window(window, observers, true, &mut room));
        }
        windows.sort_by(|a, b| (&a.node, a.source, a.start).cmp(&(&b.node, b.source, b.start)));
        let pairs: Vec<PairSummary> =
            self.history.pairs.iter().take(room).map(|(key, history)| names.summary(&key, history)).collect();
        room -= pairs.len();
        WindowsReport {
            version: 1,
            width: self.settings.window.as_secs_f64(),
            at: ledger.now(),
            windows,
            pairs,
            pods: names.pods,
            left_out: (all - (MAX_PAIRS - room)) as u64,
        }
    }

    /// Keeps what failed in windows that close, for a horizon and as far as there is room.
    pub(super) fn keep(&mut self, closed: Vec<(WindowKey, Window)>) {
        let Some(horizon) = self.settings.horizon else { return };
        for (key, window) in closed {
            self.kept.push_back((key, window.only_failures()));
        }
        let Some(newest) = self.kept.back().map(|(key, _)| key.start) else { return };
        let since = newest.minus(horizon);
        while self.kept.front().is_some_and(|(key, _)| key.start < since) {
            self.kept.pop_front();
        }
        let mut taken: usize = self.kept.iter().map(|(_, window)| room(window)).sum();
        // Windows in which nothing failed say the least: they go first.
        self.kept.retain(|(_, window)| {
            let goes = taken > KEPT && window.pairs.is_empty();
            taken -= usize::from(goes);
            !goes
        });
        while let Some((_, window)) = self.kept.front().filter(|_| taken > KEPT) {
            taken -= room(window);
            self.kept.pop_front();
        }
    }
}

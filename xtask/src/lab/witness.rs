//! Comparing the recording with the other witnesses. Enters: what the agent recorded, and what workload, packet
//! filters, wire and `ss` counted themselves; leaves: checks with their numbers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::cast::Cast;
use super::member::truth::{Purpose, Truth};
use super::recording::{Ends, Recording};
use super::scenario::{AgentStart, Scenario};
use super::ss::Seen;
use super::verdict::Notes;
use super::wire::Counts;

/// Of bytes and round-trip times.
const BYTES_PERCENT: u64 = 1;
/// TCP acknowledges SYN and FIN like a byte each: a connection's counters may hold two more than its payload.
const MARKS: u64 = 2;
const RTT_RATIO: f64 = 0.05;

/// What was counted beside firedoor.
#[derive(Default)]
pub(super) struct Evidence {
    /// What each member did in the end.
    pub(super) truths: BTreeMap<String, Truth>,
    /// What each member had done when the agent was about to start late, and when it had started.
    pub(super) before_agent: BTreeMap<String, Truth>,
    pub(super) after_agent: BTreeMap<String, Truth>,
    /// Packets that a packet filter took, by source pod.
    pub(super) taken: BTreeMap<String, u64>,
    pub(super) sockets: BTreeMap<Ends, Seen>,
    pub(super) wire: Counts,
    pub(super) capture: Option<PathBuf>,
}

/// Whether the recording has all bytes that the members count, as nearly as is asked.
pub(super) fn bytes_are_there(capture: &Path, evidence: &Evidence) -> bool {
    Recording::read(capture).is_ok_and(|recording| {
        let (seen, connections) = (recorded(&recording, &evidence.truths), connections(&evidence.truths));
        by_pair(&evidence.truths).iter().all(|(pair, truth)| {
            // What a late agent has not seen is never there: then the wait ends with its limit.
            let counts = (seen.get(pair), connections.get(pair));
            matches!(counts, (Some(seen), Some(connections)) if close(*seen, *truth, *connections))
        })
    })
}

/// Everything that is compared with the recording, and with the other witnesses.
pub(super) fn end(scenario: &Scenario, cast: &Cast, evidence: &Evidence, notes: &mut Notes) {
    let wire = &evidence.wire;
    notes.check("the wire was never full", wire.overflow == 0, format!("{wire:?}"));
    if scenario.wire.loss_percent > 0 {
        let all = wire.lost + wire.forwarded;
        let percent = wire.lost as f64 * 100.0 / all.max(1) as f64;
        let wanted = f64::from(scenario.wire.loss_percent);
        let detail =
            format!("{} of {all} frames, {percent:.2} %; {} with payload", wire.lost, wire.lost_payload);
        notes.check("the wire lost its share", (percent - wanted).abs() < wanted / 2.0, detail);
        let again: u64 = evidence.sockets.values().map(|seen| seen.retransmitted).sum();
        notes.check("TCP repaired the loss", again > 0, format!("{again} segments sent again, says ss"));
    }
    if scenario.wire.delay_ms > 0 {
        let mut across: Vec<f64> = crossing(evidence, cast).iter().map(|(_, seen)| seen.rtt_ms).collect();
        across.sort_by(f64::total_cmp);
        let wanted = 2.0 * scenario.wire.delay_ms as f64;
        // Late acknowledgements and a busy machine make round trips longer; nothing makes them shorter.
        let least = across.first().copied().unwrap_or_default();
        let median = across.get(across.len() / 2).copied().unwrap_or_default();
        let right = (wanted * 0.98..wanted * 1.1).contains(&least) && median <= wanted * 1.6;
        let detail = format!("{across:.1?} ms across, says ss");
        notes.check("the delay is there", right, detail);
    }
    let Some(capture) = &evidence.capture else { return };
    match Recording::read(capture) {
        Ok(recording) => against(&recording, scenario, cast, evidence, notes),
        Err(error) => notes.check("the recording can be read", false, format!("{error:#}")),
    }
}

fn against(recording: &Recording, scenario: &Scenario, cast: &Cast, evidence: &Evidence, notes: &mut Notes) {
    let detail = format!("{} connections, {} damaged lines", recording.sockets.len(), recording.damaged);
    notes.check("the recording can be read", recording.damaged == 0, detail);
    // PyTorch does not count its bytes, nor name its connections.
    if evidence.truths.values().any(|truth| !truth.connections.is_empty()) {
        bytes(recording, scenario, evidence, notes);
        whose(recording, cast, evidence, notes);
        protocols(recording, evidence, notes);
    }
    if !evidence.taken.is_empty() {
        dropped(recording, cast, evidence, notes);
    }
    if scenario.wire.delay_ms > 0 {
        round_trips(recording, cast, evidence, notes);
    }
    if scenario.wire.loss_percent > 0 {
        // The recording goes on after `ss` looked: it can only have more.
        let (mut fewer, mut told) = (0, (0, 0));
        for (ends, seen) in &evidence.sockets {
            let again = recording.sockets.get(ends).map_or(0, |socket| socket.retransmitted);
            fewer += u64::from(again < seen.retransmitted);
            told = (told.0 + again, told.1 + seen.retransmitted);
        }
        let detail = format!("{} recorded, {} in ss before the end", told.0, told.1);
        notes.check("retransmissions agree with ss", fewer == 0 && told.0 > 0, detail);
    }
}

type ByPair = BTreeMap<(String, usize), u64>;

/// Bytes sent by (pod, peer's rank).
fn by_pair(truths: &BTreeMap<String, Truth>) -> ByPair {
    let mut sums = ByPair::new();
    for truth in truths.values() {
        for connection in &truth.connections {
            *sums.entry((truth.pod.clone(), connection.peer_rank)).or_default() += connection.sent;
        }
    }
    sums
}

/// The same, as recorded for the same connections.
fn recorded(recording: &Recording, truths: &BTreeMap<String, Truth>) -> ByPair {
    let mut sums = ByPair::new();
    for truth in truths.values() {
        for connection in &truth.connections {
            let socket = recording.sockets.get(&(connection.local, connection.remote));
            let sum = sums.entry((truth.pod.clone(), connection.peer_rank)).or_default();
            *sum += socket.map_or(0, |socket| socket.sent);
        }
    }
    sums
}

/// How many connections each pair had.
fn connections(truths: &BTreeMap<String, Truth>) -> ByPair {
    let mut counts = ByPair::new();
    for truth in truths.values() {
        for connection in &truth.connections {
            *counts.entry((truth.pod.clone(), connection.peer_rank)).or_default() += 1;
        }
    }
    counts
}

fn close(seen: u64, truth: u64, connections: u64) -> bool {
    seen.abs_diff(truth).saturating_sub(MARKS * connections) * 100 <= truth * BYTES_PERCENT
}

fn bytes(recording: &Recording, scenario: &Scenario, evidence: &Evidence, notes: &mut Notes) {
    let (truth, seen) = (by_pair(&evidence.truths), recorded(recording, &evidence.truths));
    let (before, after) = (by_pair(&evidence.before_agent), by_pair(&evidence.after_agent));
    let connections = connections(&evidence.truths);
    let mut wrong = Vec::new();
    let mut worst = 0.0_f64;
    for (pair, truth) in &truth {
        let seen = seen.get(pair).copied().unwrap_or_default();
        let gone = |at: &ByPair| at.get(pair).copied().unwrap_or_default();
        // A late agent counts from some moment between these two.
        let (most, least) = (truth - gone(&before).min(*truth), truth - gone(&after).min(*truth));
        let outside = if seen > most { seen - most } else { least.saturating_sub(seen) };
        let outside = outside.saturating_sub(MARKS * connections.get(pair).copied().unwrap_or_default());
        worst = worst.max(outside as f64 * 100.0 / most.max(1) as f64);
        if outside * 100 > most * BYTES_PERCENT {
            wrong.push(format!("{} to rank {}: {seen} seen, {least} to {most} sent", pair.0, pair.1));
        }
    }
    let late = if scenario.agent == AgentStart::Late { ", since the agent started" } else { "" };
    let detail = format!("{} pairs, worst {worst:.3} % off{late}", truth.len());
    let right = wrong.is_empty() && !truth.is_empty();
    if !right && recording.lost > 0 {
        wrong.push(format!(
            "{} events were lost: something else on this machine floods the kernel",
            recording.lost
        ));
    }
    notes.check("bytes per pair", right, if wrong.is_empty() { detail } else { wrong.join("; ") });
}

/// Each connection belongs to the pod that had it.
fn whose(recording: &Recording, cast: &Cast, evidence: &Evidence, notes: &mut Notes) {
    let (mut right, mut wrong) = (0, Vec::new());
    for truth in evidence.truths.values() {
        let uid = cast.pods.iter().find(|pod| pod.name == truth.pod).map(|pod| pod.uid.as_str());
        for connection in &truth.connections {
            let socket = recording.sockets.get(&(connection.local, connection.remote));
            match socket.and_then(|socket| socket.uid.as_deref()) {
                found if found.is_some() && found == uid => right += 1,
                found => wrong.push(format!("{} {} is {found:?}", truth.pod, connection.local)),
            }
        }
    }
    let detail = if wrong.is_empty() { format!("{right} connections") } else { wrong.join("; ") };
    notes.check("sockets belong to their pods", wrong.is_empty() && right > 0, detail);
}

/// What the first bytes told, where they told something.
fn protocols(recording: &Recording, evidence: &Evidence, notes: &mut Notes) {
    let (mut right, mut wrong) = (0, Vec::new());
    for connection in evidence.truths.values().flat_map(|truth| &truth.connections) {
        let socket = recording.sockets.get(&(connection.local, connection.remote));
        let Some(app) = socket.and_then(|socket| socket.app.as_deref()) else { continue };
        let purpose = match connection.purpose {
            Purpose::Rendezvous => "tcpstore",
            Purpose::Mesh => "nccl",
        };
        if app == purpose {
            right += 1
        } else {
            wrong.push(format!("{}: {app}, not {purpose}", connection.local))
        }
    }
    let detail = if wrong.is_empty() { format!("{right} recognised") } else { wrong.join("; ") };
    notes.check("no protocol is mistaken", wrong.is_empty(), detail);
}

fn dropped(recording: &Recording, cast: &Cast, evidence: &Evidence, notes: &mut Notes) {
    let (mut told, mut missing) = (Vec::new(), 0);
    let mut more = false;
    for (name, taken) in &evidence.taken {
        let Some(pod) = cast.pods.iter().find(|pod| pod.name == *name) else { continue };
        let of_pair =
            recording.drops.iter().filter(|((src, dst), _)| *src == pod.ip && *dst == pod.master.ip());
        let seen: u64 = of_pair.map(|(_, packets)| packets).sum();
        told.push(format!("{name}: {seen} seen, {taken} taken"));
        more |= seen > *taken;
        missing += taken.saturating_sub(seen);
    }
    let detail = format!("{}; {} lost", told.join("; "), recording.lost);
    notes.check("drops agree with the packet filter", !more && missing <= recording.lost, detail);
}

/// Live sockets of the mesh between zones.
fn crossing<'e>(evidence: &'e Evidence, cast: &Cast) -> Vec<(&'e Ends, &'e Seen)> {
    let zone = |ip| cast.pods.iter().find(|pod| pod.ip == ip).map(|pod| pod.zone);
    let busy = |ends: &Ends| ends.0.port().min(ends.1.port()) > 30_000;
    let across = |ends: &Ends| zone(ends.0.ip()) != zone(ends.1.ip());
    evidence.sockets.iter().filter(|(ends, _)| across(ends) && busy(ends)).collect()
}

/// `ss` looked while the workload stood still: the agent's last sample before that is of the same moment.
fn round_trips(recording: &Recording, cast: &Cast, evidence: &Evidence, notes: &mut Notes) {
    let (mut right, mut wrong) = (0, Vec::new());
    for (ends, seen) in crossing(evidence, cast) {
        let samples = recording.sockets.get(ends).map(|socket| socket.rtt.as_slice()).unwrap_or_default();
        let split = samples.partition_point(|(at, _)| *at <= seen.at);
        let last = split.checked_sub(1).and_then(|last| samples.get(last));
        let recorded = last.map(|(_, us)| *us as f64 / 1_000.0);
        if recorded.is_some_and(|ms| (ms - seen.rtt_ms).abs() <= seen.rtt_ms * RTT_RATIO) {
            right += 1;
        } else {
            wrong.push(format!("{} to {}: ss {:.2} ms, recorded {recorded:?}", ends.0, ends.1, seen.rtt_ms));
        }
    }
    let detail = if wrong.is_empty() { format!("{right} sockets within 5 %") } else { wrong.join("; ") };
    notes.check("round-trip times agree with ss", wrong.is_empty() && right > 0, detail);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::member::truth::Connection;
    use crate::lab::recording::Socket;
    use crate::lab::scenario::named;

    fn evidence(sent: u64) -> Evidence {
        let mut truth: Truth = serde_json::from_value(serde_json::json!({
            "pod": "llama-worker-0", "rank": 1, "started": "", "ended": null, "error": null, "steps": 1,
            "wrong_sums": 0, "connections": [], "connects": {},
        }))
        .unwrap();
        truth.connections.push(Connection {
            purpose: Purpose::Mesh,
            opened_here: true,
            peer_rank: 0,
            local: "10.60.0.11:40000".parse().unwrap(),
            remote: "10.60.2.10:40001".parse().unwrap(),
            opened: String::new(),
            sent,
            received: 0,
        });
        Evidence { truths: BTreeMap::from([(truth.pod.clone(), truth)]), ..Evidence::default() }
    }

    fn verdicts(sent: u64, recorded: u64, rtt_us: u64) -> Vec<bool> {
        let scenario = named("block-nft").unwrap();
        let cast = Cast::of(scenario, "run");
        let mut evidence = evidence(sent);
        let ends = ("10.60.0.11:40000".parse().unwrap(), "10.60.2.10:40001".parse().unwrap());
        let at = jiff::Timestamp::from_second(10).unwrap();
        evidence.sockets.insert(ends, Seen { at, rtt_ms: 20.0, retransmitted: 0 });
        evidence.taken.insert("llama-worker-0".to_owned(), 7);
        let mut recording = Recording::default();
        let socket = Socket { sent: recorded, rtt: vec![(at, rtt_us)], ..Socket::default() };
        recording.sockets.insert(ends, socket);
        let mut notes = Notes::new(true);
        bytes(&recording, scenario, &evidence, &mut notes);
        round_trips(&recording, &cast, &evidence, &mut notes);
        for (packets, lost) in [(7, 0), (6, 0), (6, 1), (8, 9)] {
            recording.drops.insert((ends.0.ip(), ends.1.ip()), packets);
            recording.lost = lost;
            dropped(&recording, &cast, &evidence, &mut notes);
        }
        notes.checks.iter().map(|check| check.passed).collect()
    }

    #[test]
    fn what_is_off_is_seen() {
        let drops = [true, false, true, false];
        assert_eq!(verdicts(10_000, 10_090, 20_900), [&[true, true], &drops[..]].concat());
        assert_eq!(verdicts(10_000, 10_110, 21_200), [&[false, false], &drops[..]].concat());
    }
}

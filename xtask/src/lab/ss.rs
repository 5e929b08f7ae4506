//! What `ss` says of live sockets, as a second witness. Enters: a namespace; leaves: round-trip times and
//! retransmissions by connection.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::Result;
use jiff::Timestamp;

use super::host::{run, within};
use super::network::enter;
use super::recording::Ends;

/// A socket at one moment.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Seen {
    pub(super) at: Timestamp,
    /// Smoothed, in milliseconds.
    pub(super) rtt_ms: f64,
    /// Segments sent again since it was opened.
    pub(super) retransmitted: u64,
}

/// All established TCP sockets of a namespace.
pub(super) fn look(netns: &str) -> Result<BTreeMap<Ends, Seen>> {
    let at = Timestamp::now();
    let text = run(&within(&enter(netns), &["ss", "-tinOH", "state", "established"]))?;
    Ok(text.lines().filter_map(|line| read(line, at)).collect())
}

/// Whether nothing moved between two looks.
pub(super) fn same(one: &BTreeMap<Ends, Seen>, other: &BTreeMap<Ends, Seen>) -> bool {
    let still = |seen: &BTreeMap<Ends, Seen>| -> Vec<(Ends, f64, u64)> {
        seen.iter().map(|(ends, seen)| (*ends, seen.rtt_ms, seen.retransmitted)).collect()
    };
    still(one) == still(other)
}

/// A line: two queues, two ends, then words, some of them `name:value`.
fn read(line: &str, at: Timestamp) -> Option<(Ends, Seen)> {
    let mut words = line.split_whitespace().skip(2);
    let ends = (end(words.next()?)?, end(words.next()?)?);
    let mut seen = Seen { at, rtt_ms: 0.0, retransmitted: 0 };
    let mut has_rtt = false;
    for word in words {
        if let Some(rtt) = word.strip_prefix("rtt:") {
            seen.rtt_ms = rtt.split('/').next()?.parse().ok()?;
            has_rtt = true;
        } else if let Some(retrans) = word.strip_prefix("retrans:") {
            seen.retransmitted = retrans.rsplit('/').next()?.parse().ok()?;
        }
    }
    has_rtt.then_some((ends, seen))
}

/// `ss` writes IPv6 in brackets, and IPv4 on an IPv6 socket as a mapped address.
fn end(word: &str) -> Option<SocketAddr> {
    let address: SocketAddr = word.parse().ok()?;
    Some(SocketAddr::new(address.ip().to_canonical(), address.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read() {
        let line = "0 0 10.60.0.11:40000 10.60.2.10:29500 bbr wscale:10,10 rto:220 rtt:20.125/0.5 retrans:0/3 minrtt:20.1";
        let at = Timestamp::UNIX_EPOCH;
        let (ends, seen) = read(line, at).unwrap();
        assert_eq!(ends.1.to_string(), "10.60.2.10:29500");
        assert_eq!(seen, Seen { at, rtt_ms: 20.125, retransmitted: 3 });
        let (ends, _) = read("0 0 [fd00::1]:1 [::ffff:10.0.0.1]:2 rtt:1/1", at).unwrap();
        assert_eq!(ends.1.to_string(), "10.0.0.1:2");
        assert!(read("0 0 10.0.0.1:1 10.0.0.2:2", at).is_none());
    }
}

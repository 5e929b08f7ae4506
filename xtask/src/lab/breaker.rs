//! Breaking the network for real, and mending it. Enters: which ways are closed, and how; leaves: the same, closed,
//! and what the closer itself counted, which is the truth for drops.

use std::fmt::Write as _;
use std::net::IpAddr;

use anyhow::{Context, Result};
use serde_json::Value;

use super::cast::{Cast, Pod};
use super::host::{feed, run, within};
use super::network::{Network, enter, port};
use super::scenario::{Breach, How};
use super::tc;
use super::wire_end::Wire;

const TABLE: &str = "firedoor_lab";

/// What is closed at one source.
pub(super) struct Closed<'a> {
    pub(super) src: &'a Pod,
    /// All members of the job in other zones: what a policy by zone closes.
    dst: Vec<IpAddr>,
    /// Where addresses are shared with other jobs (hostNetwork), only rank 0's port is closed.
    only_port: Option<u16>,
    /// The namespace in which the filter is.
    node: String,
}

/// The ways that a breach closes.
pub(super) struct Breaker<'a> {
    how: How,
    pub(super) ways: Vec<Closed<'a>>,
}

impl<'a> Breaker<'a> {
    /// Nothing is closed yet.
    pub(super) fn new(breach: &Breach, cast: &'a Cast, network: &Network<'_>) -> Result<Self> {
        let mut ways = Vec::new();
        let shared = cast.job(breach.job).any(|pod| pod.host_network);
        for rank in breach.from {
            let src = cast.member(breach.job, *rank).context("no such member")?;
            let far = cast.job(breach.job).filter(|pod| pod.zone != src.zone);
            let node = network.node(cast, src.node)?;
            let only_port = shared.then(|| src.master.port());
            ways.push(Closed { src, dst: far.map(|pod| pod.ip).collect(), only_port, node });
        }
        Ok(Self { how: breach.how, ways })
    }

    /// Closes the ways.
    pub(super) fn close(&self, wire: &mut Wire) -> Result<()> {
        match self.how {
            How::NoListener => Ok(()),
            How::WireSwallows => {
                let wire = wire.running()?;
                let mut settings = wire.settings().clone();
                for way in &self.ways {
                    settings.swallow.extend(way.dst.iter().map(|dst| (way.src.ip, *dst)));
                }
                wire.set(settings)
            }
            How::NftDrop | How::NftReject => {
                for (number, way) in self.ways.iter().enumerate() {
                    nft(way, self.verdict(number))?;
                }
                Ok(())
            }
            How::TcShot => {
                for way in &self.ways {
                    tc::deny(&way.node, &port(way.src), &way.dst)?;
                }
                Ok(())
            }
        }
    }

    fn verdict(&self, number: usize) -> &'static str {
        match (self.how, number) {
            (How::NftReject, 0) => "reject with tcp reset",
            (How::NftReject, _) => "reject with icmpx type admin-prohibited",
            _ => "drop",
        }
    }

    /// Opens the ways, and says how many packets each closer took, by source, as the closer itself counted. Where the
    /// wire closes, they are all in the first.
    pub(super) fn open(&self, wire: &mut Wire) -> Result<Vec<u64>> {
        match self.how {
            How::NoListener => Ok(Vec::new()),
            How::WireSwallows => {
                let wire = wire.running()?;
                let mut settings = wire.settings().clone();
                settings.swallow.clear();
                wire.set(settings)?;
                Ok(vec![wire.counts()?.swallowed])
            }
            How::NftDrop | How::NftReject => self.ways.iter().map(nft_take).collect(),
            How::TcShot => self.ways.iter().map(|way| tc::admit(&way.node, &port(way.src))).collect(),
        }
    }
}

/// A table of its own for each source: two may share a node.
fn table(way: &Closed<'_>) -> String {
    format!("{TABLE}_{}", way.src.seat)
}

fn nft(way: &Closed<'_>, verdict: &str) -> Result<()> {
    let family = if way.src.ip.is_ipv4() { "ip" } else { "ip6" };
    let table = table(way);
    let mut rules = format!("table inet {table} {{\n counter taken {{}}\n");
    // What a pod sends is forwarded by its node; what a hostNetwork pod sends is the node's own output.
    for hook in ["forward", "output"] {
        let _ = writeln!(rules, " chain on_{hook} {{ type filter hook {hook} priority 0; policy accept;");
        for dst in &way.dst {
            let own = format!("{family} saddr {} {family} daddr {dst}", way.src.ip);
            let only = way.only_port.map(|port| format!(" tcp dport {port}")).unwrap_or_default();
            let _ = writeln!(rules, "  {own} meta l4proto tcp{only} counter name taken {verdict}");
        }
        rules.push_str(" }\n");
    }
    rules.push_str("}\n");
    feed(&within(&enter(&way.node), &["nft", "-f", "-"]), &rules).map(drop)
}

/// Empties the rules first, so that the count does not move any more when it is read.
fn nft_take(way: &Closed<'_>) -> Result<u64> {
    let (netns, table) = (enter(&way.node), table(way));
    let flush = format!("flush chain inet {table} on_forward\nflush chain inet {table} on_output\n");
    feed(&within(&netns, &["nft", "-f", "-"]), &flush)?;
    let count = counter(&run(&within(&netns, &["nft", "-j", "list", "counter", "inet", &table, "taken"]))?)?;
    run(&within(&netns, &["nft", "delete", "table", "inet", &table]))?;
    Ok(count)
}

fn counter(text: &str) -> Result<u64> {
    let listed: Value = serde_json::from_str(text).context("nft printed no JSON")?;
    let items = listed.get("nftables").and_then(Value::as_array).context("nft printed no list")?;
    let packets = items.iter().find_map(|item| item.pointer("/counter/packets").and_then(Value::as_u64));
    packets.context("nft printed no counter")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_read_from_what_nft_prints() {
        let text = r#"{"nftables": [{"metainfo": {"version": "1.0.6"}},
            {"counter": {"family": "inet", "name": "taken", "table": "t", "handle": 1, "packets": 7, "bytes": 420}}]}"#;
        assert_eq!(counter(text).unwrap(), 7);
        assert!(counter(r#"{"nftables": []}"#).is_err());
    }
}

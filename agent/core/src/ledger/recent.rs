//! Which events were told before. A stream that is resumed, a relay next to a node, two overlapping captures:
//! the same event (node, time, ends, kind) counts once. Memory is fixed: fingerprints of the newest events.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hash, Hasher};

use crate::inventory::node_name;
use crate::observation::{Flow, Loss, Verdict};

/// How many of the newest events are remembered. At 16 bytes or so each, about 8 MiB when full.
const REMEMBERED: usize = 1 << 18;

pub(super) struct Recent {
    seen: std::collections::HashSet<u64, foldhash::fast::RandomState>,
    order: VecDeque<u64>,
    // Fixed seeds: a collision must be the same collision in every run.
    hasher: foldhash::quality::FixedState,
}

impl Default for Recent {
    fn default() -> Self {
        let hasher = foldhash::quality::FixedState::with_seed(0x6669_7265_646f_6f72);
        Self { seen: std::collections::HashSet::default(), order: VecDeque::new(), hasher }
    }
}

impl Recent {
    /// Remembers the event; whether it had been seen before.
    pub(super) fn seen(&mut self, flow: &Flow<'_>) -> bool {
        let fingerprint = self.fingerprint(flow);
        self.remember(fingerprint)
    }

    /// Remembers a message about lost events; whether it had been seen before.
    pub(super) fn seen_loss(&mut self, loss: &Loss<'_>) -> bool {
        let fingerprint = self.hasher.hash_one((
            loss.at,
            loss.observer.map(node_name),
            loss.source,
            loss.cause,
            loss.count,
        ));
        self.remember(fingerprint)
    }

    fn remember(&mut self, fingerprint: u64) -> bool {
        if !self.seen.insert(fingerprint) {
            return true;
        }
        if self.order.len() == REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.seen.remove(&oldest);
        }
        self.order.push_back(fingerprint);
        false
    }

    fn fingerprint(&self, flow: &Flow<'_>) -> u64 {
        let mut h = self.hasher.build_hasher();
        node_name(flow.observer).hash(&mut h);
        (flow.at, flow.kind, flow.sub_kind, flow.protocol, flow.direction, flow.is_reply).hash(&mut h);
        (flow.src.ip, flow.src.port, flow.dst.ip, flow.dst.port, flow.flags.bits()).hash(&mut h);
        let verdict = match flow.verdict {
            Verdict::Forwarded => 1,
            Verdict::Dropped(reason) => 0x1_0000_0000 | u64::from(reason.code()),
            Verdict::WouldDrop(reason) => 0x2_0000_0000 | u64::from(reason.code()),
            Verdict::Redirected => 2,
            Verdict::Other => 3,
        };
        verdict.hash(&mut h);
        h.finish()
    }
}

//! Thresholds and choices of the diagnosis, with their defaults and units. Must not know where they come from.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::observation::SourceKind;
use crate::policy;
use crate::prices::Prices;

/// Every threshold of the diagnosis.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// Width of the ledger's windows.
    pub window: Duration,
    /// How much later than a node's newest event an event of that node may come.
    pub lateness: Duration,
    /// The same for kinds of source that tell in order what happens on their own node, as an agent's do: less, so that
    /// fewer windows are open at a time. Where this tells anything, each kind of source has a clock of its own on each
    /// node; where it tells nothing of a kind, [`Settings::lateness`] holds.
    pub lateness_of: BTreeMap<SourceKind, Duration>,
    /// How far an event may lie ahead of everything its node reported before it is doubted.
    pub max_jump: Duration,
    /// A denied connection counts as blocked after this many attempts ...
    pub denied_attempts: u64,
    /// ... over at least this long.
    pub denied_grace: Duration,
    /// A connection that gets no answer counts as blocked after this long.
    pub unanswered_grace: Duration,
    /// A refused connection counts as blocked after this long: ranks start in any order.
    pub refused_grace: Duration,
    /// Drops that are normal while endpoints start count as a fault after this long.
    pub transient_grace: Duration,
    /// A problem nobody ran into for this long has ended, unresolved.
    pub quiet: Duration,
    /// What the last so much time shows decides whether distance is a problem still.
    pub recent: Duration,
    /// Distance: a round trip across zones is this many times longer than one within a zone ...
    pub latency_ratio: f64,
    /// ... and longer by at least this.
    pub latency_difference: Duration,
    /// Where no pair within a zone was measured: a round trip across zones that takes this long.
    pub latency_alone: Duration,
    /// So many round trips must have been measured across zones, and as many within one, to compare them.
    pub latency_samples: u64,
    /// Share of the job's bytes that cross zones, below which distance does not matter.
    pub latency_crossing: f64,
    /// Bytes that cross zones, below which distance does not matter.
    pub latency_bytes: u64,
    /// Bytes crossing zones are worth telling from this many dollars an hour on ...
    pub egress_usd_per_hour: f64,
    /// ... or, where no price is known, from this many bytes an hour on.
    pub egress_bytes_per_hour: u64,
    /// What a byte that crosses zones costs.
    pub prices: Prices,
    /// What the policies' meaning depends on besides the policies.
    pub policy: policy::Settings,
    /// How far back a report reaches, and how long what is over is remembered; `None`: to the beginning. An agent that
    /// runs for weeks needs one; a replay reports all of its capture.
    pub horizon: Option<Duration>,
    /// With a horizon: how many pairs a finding lists, those that weigh most. A report must not grow with the square of a
    /// job's pods.
    pub listed_pairs: usize,
    /// Cap on the pairs of a window, and on those that are remembered; what comes beyond is counted as overflow.
    pub max_pairs: usize,
    /// Cap on handshakes followed at a time.
    pub max_handshakes: usize,
}

impl Default for Settings {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            window: seconds(10),
            lateness: seconds(60),
            lateness_of: BTreeMap::new(),
            max_jump: seconds(3600),
            denied_attempts: 3,
            denied_grace: seconds(5),
            unanswered_grace: seconds(15),
            refused_grace: seconds(60),
            transient_grace: seconds(60),
            quiet: seconds(300),
            recent: seconds(60),
            latency_ratio: 2.0,
            latency_difference: Duration::from_micros(300),
            latency_alone: Duration::from_millis(2),
            latency_samples: 20,
            latency_crossing: 0.05,
            latency_bytes: 1_000_000,
            egress_usd_per_hour: 1.0,
            egress_bytes_per_hour: 1_000_000_000_000,
            prices: Prices::default(),
            policy: policy::Settings::default(),
            horizon: None,
            listed_pairs: 256,
            max_pairs: 200_000,
            max_handshakes: 262_144,
        }
    }
}

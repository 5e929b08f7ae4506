//! Thresholds and choices of the diagnosis, with their defaults and units. Must not know where they come from.

use std::time::Duration;

use crate::policy;

/// Every threshold of the diagnosis.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// Width of the ledger's windows.
    pub window: Duration,
    /// How much later than a node's newest event an event of that node may come.
    pub lateness: Duration,
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
    /// What the policies' meaning depends on besides the policies.
    pub policy: policy::Settings,
    /// Cap on live pairs; what comes beyond is counted as overflow.
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
            max_jump: seconds(3600),
            denied_attempts: 3,
            denied_grace: seconds(5),
            unanswered_grace: seconds(15),
            refused_grace: seconds(60),
            transient_grace: seconds(60),
            quiet: seconds(300),
            policy: policy::Settings::default(),
            max_pairs: 200_000,
            max_handshakes: 262_144,
        }
    }
}

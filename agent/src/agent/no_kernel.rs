//! What stands in for the kernel in a build without the probes: a source that is down, and says why.

use firedoor_core::observation::{Observation, SourceKind};
use firedoor_core::time::Timestamp;

use super::AgentError;
use super::board::SourceShown;
use crate::config::Config;
use crate::source::placement::Placement;

/// A kernel that nobody watches.
pub(super) struct KernelWatch {
    shown: SourceShown,
}

impl KernelWatch {
    pub(super) fn start(_config: &Config, _at: Timestamp) -> Result<Self, AgentError> {
        Err(AgentError::NoEbpf)
    }

    pub(super) fn down(_config: &Config, why: &AgentError, at: Timestamp) -> Self {
        Self { shown: SourceShown::down(SourceKind::Ebpf, why.to_string(), at) }
    }

    #[expect(clippy::unused_self, reason = "the same as with the probes")]
    pub(super) fn place(&mut self, _placement: Placement) {}

    #[expect(clippy::unused_self, reason = "the same as with the probes")]
    pub(super) fn poll(&mut self, _at: Timestamp, _tell: &mut dyn FnMut(Observation<'_>)) {}

    #[expect(clippy::unused_self, reason = "the same as with the probes")]
    pub(super) fn finish(
        self,
        _at: Timestamp,
        _tell: &mut dyn FnMut(Observation<'_>),
    ) -> Result<(), AgentError> {
        Ok(())
    }

    pub(super) fn shown(&self) -> &SourceShown {
        &self.shown
    }
}

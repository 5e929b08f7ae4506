//! The kernel as one of the agent's sources. One that stops answering is started anew now and then; meanwhile it is
//! down, and the agent lives.

use std::time::{Duration, Instant};

use firedoor_core::observation::{Observation, SourceKind};
use firedoor_core::time::Timestamp;

use super::AgentError;
use super::board::{HookShown, SourceShown};
use crate::config::{Config, NodeConfig};
use crate::source::ebpf::{EbpfSettings, EbpfSource, ObservedNode};
use crate::source::placement::Placement;

/// How long to wait before the probes are attached again.
const AGAIN: Duration = Duration::from_secs(30);

/// The kernel, watched.
pub(super) struct KernelWatch {
    settings: EbpfSettings,
    source: Option<EbpfSource>,
    placement: Placement,
    shown: SourceShown,
    tried: Instant,
}

impl KernelWatch {
    /// Attaches the probes.
    pub(super) fn start(config: &Config, at: Timestamp) -> Result<Self, AgentError> {
        if config.agent.nodes.is_empty() {
            return Err(AgentError::NoNode);
        }
        let mut watch = Self::with(config, SourceShown::new(SourceKind::Ebpf));
        watch.attach(at)?;
        Ok(watch)
    }

    /// One that could not be started, and will be tried again.
    pub(super) fn down(config: &Config, why: &AgentError, at: Timestamp) -> Self {
        Self::with(config, SourceShown::down(SourceKind::Ebpf, why.to_string(), at))
    }

    fn with(config: &Config, shown: SourceShown) -> Self {
        let node =
            |node: &NodeConfig| ObservedNode { name: node.name.as_str().into(), netns: node.netns.clone() };
        let kernel = &config.kernel;
        let settings = EbpfSettings {
            nodes: config.agent.nodes.iter().map(node).collect(),
            cgroups: kernel.cgroups.clone(),
            sample_every: kernel.sample_every,
            slots: kernel.max_sockets,
        };
        Self { settings, source: None, placement: Placement::default(), shown, tried: Instant::now() }
    }

    fn attach(&mut self, at: Timestamp) -> Result<(), AgentError> {
        self.tried = Instant::now();
        let mut source = EbpfSource::start(self.settings.clone())?;
        source.place(self.placement.clone());
        let hooks = source.hooks().iter().map(|hook| HookShown {
            name: hook.name,
            sees: hook.sees,
            attached: hook.missing.is_none(),
            reason: hook.missing.clone(),
        });
        self.shown.hooks = hooks.collect();
        self.shown.map_bytes =
            source.probes().memory().iter().map(|map| (map.name.clone(), map.bytes)).collect();
        self.shown.notes = source.notes().to_vec();
        (self.shown.up, self.shown.since, self.shown.why) = (true, Some(at), None);
        self.source = Some(source);
        Ok(())
    }

    /// Takes note of which pods are where.
    pub(super) fn place(&mut self, placement: Placement) {
        if let Some(source) = &mut self.source {
            source.place(placement.clone());
        }
        self.placement = placement;
    }

    /// Asks the kernel.
    pub(super) fn poll(&mut self, at: Timestamp, tell: &mut dyn FnMut(Observation<'_>)) {
        let failed = match &mut self.source {
            Some(source) => source.poll(at, tell).err().map(|why| why.to_string()),
            None if self.tried.elapsed() >= AGAIN => self.attach(at).err().map(|why| why.to_string()),
            None => None,
        };
        if let Some(why) = failed {
            if self.source.take().is_some() {
                self.shown.since = Some(at);
            }
            self.shown.up = false;
            self.shown.why = Some(why);
            self.tried = Instant::now();
        }
    }

    /// Asks the kernel a last time.
    pub(super) fn finish(
        self,
        at: Timestamp,
        tell: &mut dyn FnMut(Observation<'_>),
    ) -> Result<(), AgentError> {
        match self.source {
            Some(source) => Ok(source.finish(at, tell)?),
            None => Ok(()),
        }
    }

    /// How it is.
    pub(super) fn shown(&self) -> &SourceShown {
        &self.shown
    }
}

//! What accelerators do, from their exporters' samples. GPU data supports a finding and never decides it.
//! Enters: samples by pod; leaves: a state by pod. Must not know exporters or their metric names.

use std::collections::BTreeMap;

use crate::report::GpuState;
use crate::time::Timestamp;

/// What one accelerator measured.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Reading {
    /// When the sample was taken; `None` when nothing tells.
    pub at: Option<Timestamp>,
    /// Share of the sample period with a kernel resident, 0 to 1. A spinning collective reads 1, too.
    pub utilisation: Option<f64>,
    /// Share of cycles the tensor pipes were active, 0 to 1.
    pub tensor_active: Option<f64>,
    /// Share of cycles device memory was active, 0 to 1.
    pub memory_active: Option<f64>,
    /// Power drawn, in watts.
    pub power_watts: Option<f64>,
}

/// Below this utilisation a device waits.
const IDLE_BELOW: f64 = 0.05;
/// At or above this utilisation a kernel is resident all the time.
const RESIDENT_FROM: f64 = 0.95;
/// Below this activity of tensor pipes and memory a resident kernel computes nothing.
const INERT_BELOW: f64 = 0.02;

impl Reading {
    /// What the device does. NVML and DCGM utilisation is the share of time with at least one kernel resident;
    /// NCCL's kernels wait by spinning, so a rank stuck inside a collective reads 100 %. Only the activity of
    /// tensor pipes and memory tells it from work.
    #[must_use]
    pub fn state(&self) -> GpuState {
        let Some(utilisation) = self.utilisation else { return GpuState::Unknown };
        if utilisation < IDLE_BELOW {
            return GpuState::Idle;
        }
        if utilisation < RESIDENT_FROM {
            return GpuState::Busy;
        }
        match (self.tensor_active, self.memory_active) {
            (Some(tensor), Some(memory)) if tensor < INERT_BELOW && memory < INERT_BELOW => {
                GpuState::Spinning
            }
            (Some(_), Some(_)) => GpuState::Busy,
            (Some(active), None) | (None, Some(active)) if active >= INERT_BELOW => GpuState::Busy,
            _ => GpuState::Unknown,
        }
    }
}

/// The newest reading of each device, by pod.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Readings {
    /// How often anything was read.
    count: u64,
    by_pod: BTreeMap<(String, String), BTreeMap<String, Reading>>,
}

impl Readings {
    /// Takes a reading of a device that a pod uses; an older one of the same device gives way.
    pub fn insert(&mut self, namespace: &str, pod: &str, device: &str, reading: Reading) {
        self.count = self.count.wrapping_add(1);
        let devices = self.by_pod.entry((namespace.to_owned(), pod.to_owned())).or_default();
        match devices.get(device) {
            Some(known) if known.at > reading.at => {}
            _ => {
                devices.insert(device.to_owned(), reading);
            }
        }
    }

    /// Forgets readings that were taken before `since`, and those without a time of pods that are not `known`.
    pub fn forget_before(&mut self, since: Timestamp, known: impl Fn(&str, &str) -> bool) {
        self.by_pod.retain(|(namespace, pod), devices| {
            let there = known(namespace, pod);
            devices.retain(|_, reading| reading.at.map_or(there, |at| at >= since));
            !devices.is_empty()
        });
    }

    /// What a pod's devices do, one state a device.
    pub fn states(&self, namespace: &str, pod: &str) -> impl Iterator<Item = GpuState> {
        let devices = self.by_pod.get(&(namespace.to_owned(), pod.to_owned()));
        devices.into_iter().flatten().map(|(_, reading)| reading.state())
    }

    /// A number that is another one when anything was read meanwhile.
    #[must_use]
    pub fn edition(&self) -> u64 {
        self.count
    }

    /// How many devices were read.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_pod.values().map(BTreeMap::len).sum()
    }

    /// Whether no device was read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_pod.is_empty()
    }
}

/// What most devices do. Waiting in any form outweighs work only when more devices wait; unknown ones have no say.
#[must_use]
pub fn prevailing(states: impl IntoIterator<Item = GpuState>) -> GpuState {
    let mut counts: BTreeMap<GpuState, usize> = BTreeMap::new();
    for state in states.into_iter().filter(|s| *s != GpuState::Unknown) {
        *counts.entry(state).or_default() += 1;
    }
    counts
        .into_iter()
        .max_by_key(|(state, count)| (*count, std::cmp::Reverse(*state)))
        .map_or(GpuState::Unknown, |(s, _)| s)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(utilisation: f64, tensor: Option<f64>, memory: Option<f64>) -> Reading {
        Reading {
            utilisation: Some(utilisation),
            tensor_active: tensor,
            memory_active: memory,
            ..Reading::default()
        }
    }

    #[test]
    fn a_spinning_kernel_is_not_work() {
        assert_eq!(reading(0.0, None, None).state(), GpuState::Idle);
        assert_eq!(reading(1.0, Some(0.0), Some(0.001)).state(), GpuState::Spinning);
        assert_eq!(reading(1.0, Some(0.4), Some(0.3)).state(), GpuState::Busy);
        assert_eq!(reading(1.0, None, None).state(), GpuState::Unknown);
        assert_eq!(reading(0.6, None, None).state(), GpuState::Busy);
        assert_eq!(Reading::default().state(), GpuState::Unknown);
    }

    #[test]
    fn the_newest_reading_counts() {
        let at = |s| Timestamp::from_nanos(s);
        let mut readings = Readings::default();
        readings.insert("ns", "p", "GPU-1", Reading { at: Some(at(2)), ..reading(0.0, None, None) });
        readings.insert("ns", "p", "GPU-1", Reading { at: Some(at(1)), ..reading(0.6, None, None) });
        assert_eq!(readings.states("ns", "p").collect::<Vec<_>>(), [GpuState::Idle]);
        assert_eq!(
            prevailing([GpuState::Idle, GpuState::Idle, GpuState::Busy, GpuState::Unknown]),
            GpuState::Idle
        );
        assert_eq!(prevailing([]), GpuState::Unknown);
    }
}

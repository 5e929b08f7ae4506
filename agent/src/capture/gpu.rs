//! GPU exporters' text expositions: NVIDIA's dcgm-exporter and AMD's device-metrics-exporter. Enters: Prometheus
//! text; leaves: readings by pod. Label names differ between versions; both are accepted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use firedoor_core::gpu::{Reading, Readings};
use firedoor_core::time::Timestamp;

use super::Problems;

/// Reads all expositions. The first line may be a comment `# time: RFC3339`; else the file's modification time
/// counts.
pub fn read(files: &[PathBuf], readings: &mut Readings, problems: &mut Problems) {
    for file in files {
        match super::contents(file) {
            Ok(bytes) => {
                let text = String::from_utf8_lossy(&bytes);
                let at = stated_time(&text).or_else(|| modified(file));
                parse(file, &text, at, readings, problems);
            }
            Err(what) => problems.note(file, 0, what),
        }
    }
}

fn stated_time(text: &str) -> Option<Timestamp> {
    Timestamp::parse(text.lines().next()?.strip_prefix('#')?.trim().strip_prefix("time:")?.trim())
}

fn modified(file: &Path) -> Option<Timestamp> {
    let since = std::fs::metadata(file).ok()?.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    u64::try_from(since.as_nanos()).ok().map(Timestamp::from_nanos)
}

/// What an exposition held.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Found {
    /// Devices that pods use.
    pub devices: usize,
    /// Samples of GPUs that name no pod.
    pub nameless: usize,
}

/// Reads an exposition that was taken `at`.
pub fn parse(
    file: &Path,
    text: &str,
    at: Option<Timestamp>,
    readings: &mut Readings,
    problems: &mut Problems,
) -> Found {
    let mut nameless = 0;
    let mut devices: BTreeMap<(String, String, String), Reading> = BTreeMap::new();
    for (number, line) in (1_u64..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some(sample) = Sample::parse(line) else {
            problems.note(file, number, "no Prometheus sample");
            continue;
        };
        let Some((namespace, pod)) = sample.pod() else {
            nameless += usize::from(sample.name.starts_with("DCGM_") || sample.name.starts_with("gpu_"));
            continue;
        };
        let key = (namespace.to_owned(), pod.to_owned(), sample.device());
        let reading = devices.entry(key).or_insert_with(|| Reading { at, ..Reading::default() });
        sample.enter(reading);
    }
    let found = Found { devices: devices.len(), nameless };
    for ((namespace, pod, device), reading) in devices {
        readings.insert(&namespace, &pod, &device, reading);
    }
    found
}

struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

impl Sample {
    fn parse(line: &str) -> Option<Self> {
        let (name, rest) = match line.find(['{', ' ']) {
            Some(at) => line.split_at(at),
            None => return None,
        };
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(rest) => labels(rest)?,
            None => (BTreeMap::new(), rest),
        };
        // A time stamp may follow the value.
        let value = rest.split_whitespace().next()?.parse().ok()?;
        Some(Self { name: name.to_owned(), labels, value })
    }

    fn label(&self, names: &[&str]) -> Option<&str> {
        names
            .iter()
            .filter_map(|name| self.labels.get(*name))
            .map(String::as_str)
            .find(|value| !value.is_empty())
    }

    /// Behind Prometheus the exporter's own pod takes the plain names, and the workload is `exported_`.
    fn pod(&self) -> Option<(&str, &str)> {
        let namespace = self.label(&["exported_namespace", "namespace", "pod_namespace"])?;
        Some((namespace, self.label(&["exported_pod", "pod", "pod_name"])?))
    }

    fn device(&self) -> String {
        let card = self.label(&["UUID", "uuid", "gpu_uuid", "gpu", "gpu_id"]).unwrap_or_default();
        let part = self.label(&["GPU_I_ID", "gpu_partition_id"]).unwrap_or_default();
        format!("{card}/{part}")
    }

    fn enter(&self, reading: &mut Reading) {
        let percent = Some(self.value / 100.0);
        match self.name.as_str() {
            "DCGM_FI_DEV_GPU_UTIL" | "gpu_gfx_activity" => reading.utilisation = percent,
            "DCGM_FI_PROF_GR_ENGINE_ACTIVE" => reading.utilisation = reading.utilisation.or(Some(self.value)),
            "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE" => reading.tensor_active = Some(self.value),
            "DCGM_FI_PROF_DRAM_ACTIVE" => reading.memory_active = Some(self.value),
            "DCGM_FI_DEV_MEM_COPY_UTIL" | "gpu_umc_activity" => {
                reading.memory_active = reading.memory_active.or(percent);
            }
            "DCGM_FI_DEV_POWER_USAGE"
            | "gpu_package_power"
            | "gpu_average_package_power"
            | "gpu_power_usage" => {
                reading.power_watts = Some(self.value);
            }
            _ => {}
        }
    }
}

/// The labels up to the closing brace, and what follows it.
fn labels(text: &str) -> Option<(BTreeMap<String, String>, &str)> {
    let mut labels = BTreeMap::new();
    let mut rest = text.trim_start();
    loop {
        if let Some(after) = rest.strip_prefix('}') {
            return Some((labels, after));
        }
        let (name, after) = rest.split_once('=')?;
        let mut value = String::new();
        let mut chars = after.trim_start().strip_prefix('"')?.char_indices();
        let end = loop {
            match chars.next()? {
                (at, '"') => break at,
                (_, '\\') => match chars.next()?.1 {
                    'n' => value.push('\n'),
                    other => value.push(other),
                },
                (_, other) => value.push(other),
            }
        };
        labels.insert(name.trim().to_owned(), value);
        let after = after.trim_start().get(end + 2..)?.trim_start();
        rest = after.strip_prefix(',').unwrap_or(after).trim_start();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firedoor_core::report::GpuState;

    #[test]
    fn reads_both_makers_and_skips_idle_devices() {
        let text = r#"# time: 2026-11-01T10:01:00Z
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1",Hostname="n1",container="c",namespace="ml",pod="w-0"} 100
DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{gpu="0",UUID="GPU-1",pod="w-0",namespace="ml"} 0.0
DCGM_FI_PROF_DRAM_ACTIVE{gpu="0",UUID="GPU-1",pod="w-0",namespace="ml"} 0.001 1730455260000
DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-2",Hostname="n1"} 0
DCGM_FI_DEV_GPU_UTIL{gpu="2",UUID="GPU-3",pod="exporter",namespace="mon",exported_pod="w-1",exported_namespace="ml"} 0
gpu_gfx_activity{gpu_id="2",gpu_uuid="a",pod="w-2",namespace="ml",x="quote \" brace }"} 70
broken{ 1
"#;
        let (mut readings, mut problems) = (Readings::default(), Problems::default());
        let found = parse(Path::new("x.prom"), text, stated_time(text), &mut readings, &mut problems);
        assert_eq!(found, Found { devices: 3, nameless: 1 });
        let state = |pod: &str| readings.states("ml", pod).collect::<Vec<_>>();
        assert_eq!(state("w-0"), [GpuState::Spinning]);
        assert_eq!(state("w-1"), [GpuState::Idle]);
        assert_eq!(state("w-2"), [GpuState::Busy]);
        assert_eq!((readings.len(), problems.count()), (3, 1));
    }
}

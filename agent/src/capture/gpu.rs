//! GPU exporters' text expositions: NVIDIA's dcgm-exporter and AMD's device-metrics-exporter. Enters: Prometheus
//! text; leaves: readings by pod. Label names differ between versions; both are accepted.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use firedoor_core::gpu::{Reading, Readings};
use firedoor_core::time::Timestamp;

use super::Problems;

/// Exporters round: a little more than all is all.
const ROUNDING: f64 = 0.005;
/// No sample has more labels.
const MAX_LABELS: usize = 256;

/// Reads all expositions. The first line may be a comment `# time: RFC3339`; else the file's modification time
/// counts.
pub fn read(files: &[PathBuf], readings: &mut Readings, problems: &mut Problems) {
    for file in files {
        match super::contents(file) {
            Ok(bytes) => {
                let text = String::from_utf8_lossy(&bytes);
                let at = stated_time(&text).or_else(|| modified(file));
                parse(file, &text, at, &Wanted::ALL, problems).enter(readings);
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

/// What of an exposition counts.
pub struct Wanted<'a> {
    /// The pods, by namespace and name.
    pub pod: &'a dyn Fn(&str, &str) -> bool,
    /// How many devices at the most.
    pub devices: usize,
}

impl Wanted<'_> {
    const ALL: Self = Wanted { pod: &|_, _| true, devices: usize::MAX };
}

/// What an exposition held.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Found {
    /// By namespace, pod and device.
    pub readings: BTreeMap<(String, String, String), Reading>,
    /// Samples of GPUs that name no pod.
    pub nameless: usize,
    /// Samples of more devices than are wanted.
    pub beyond: usize,
}

impl Found {
    /// Adds it to what was read before.
    pub fn enter(self, readings: &mut Readings) {
        for ((namespace, pod, device), reading) in self.readings {
            readings.insert(&namespace, &pod, &device, reading);
        }
    }
}

/// Reads an exposition that was taken `at`.
pub fn parse(
    file: &Path,
    text: &str,
    at: Option<Timestamp>,
    wanted: &Wanted<'_>,
    problems: &mut Problems,
) -> Found {
    let mut found = Found::default();
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
            let is_gpu = sample.name.starts_with("DCGM_") || sample.name.starts_with("gpu_");
            found.nameless += usize::from(is_gpu);
            continue;
        };
        if !(wanted.pod)(namespace, pod) {
            continue;
        }
        let key = (namespace.to_owned(), pod.to_owned(), sample.device());
        if found.readings.len() >= wanted.devices && !found.readings.contains_key(&key) {
            found.beyond += 1;
            continue;
        }
        let reading = found.readings.entry(key).or_insert_with(|| Reading { at, ..Reading::default() });
        if sample.enter(reading).is_none() {
            let name = sample.name;
            problems.note(file, number, format_args!("no {name} can have this value: taken as not measured"));
        }
    }
    found
}

/// Names with their values.
type Labels<'a> = Vec<(&'a str, Cow<'a, str>)>;

struct Sample<'a> {
    name: &'a str,
    labels: Labels<'a>,
    value: f64,
}

impl<'a> Sample<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (name, rest) = line.split_at(line.find(['{', ' '])?);
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(rest) => labels(rest)?,
            None => (Vec::new(), rest),
        };
        // A time stamp may follow the value.
        let value = rest.split_whitespace().next()?.parse().ok()?;
        Some(Self { name, labels, value })
    }

    fn label(&self, names: &[&str]) -> Option<&str> {
        let given = |name: &&str| self.labels.iter().rev().find(|(given, _)| given == name);
        names.iter().filter_map(given).map(|(_, value)| value.as_ref()).find(|value| !value.is_empty())
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

    /// Enters what was measured; `None`: nothing can measure that.
    fn enter(&self, reading: &mut Reading) -> Option<()> {
        match self.name {
            "DCGM_FI_DEV_GPU_UTIL" | "gpu_gfx_activity" => reading.utilisation = Some(self.share(100.0)?),
            "DCGM_FI_PROF_GR_ENGINE_ACTIVE" => {
                let share = self.share(1.0)?;
                reading.utilisation.get_or_insert(share);
            }
            "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE" => reading.tensor_active = Some(self.share(1.0)?),
            "DCGM_FI_PROF_DRAM_ACTIVE" => reading.memory_active = Some(self.share(1.0)?),
            "DCGM_FI_DEV_MEM_COPY_UTIL" | "gpu_umc_activity" => {
                let share = self.share(100.0)?;
                reading.memory_active.get_or_insert(share);
            }
            "DCGM_FI_DEV_POWER_USAGE"
            | "gpu_package_power"
            | "gpu_average_package_power"
            | "gpu_power_usage" => {
                let is_power = self.value.is_finite() && self.value >= 0.0;
                reading.power_watts = Some(is_power.then_some(self.value)?);
            }
            _ => {}
        }
        Some(())
    }

    /// The value as a share of `whole`, 0 to 1. NaN is none.
    fn share(&self, whole: f64) -> Option<f64> {
        let share = self.value / whole;
        (0.0..=1.0 + ROUNDING).contains(&share).then_some(share.min(1.0))
    }
}

/// The labels up to the closing brace, and what follows it.
fn labels(text: &str) -> Option<(Labels<'_>, &str)> {
    let mut labels = Vec::new();
    let mut rest = text.trim_start();
    loop {
        if let Some(after) = rest.strip_prefix('}') {
            return Some((labels, after));
        }
        if labels.len() == MAX_LABELS {
            return None;
        }
        let (name, after) = rest.split_once('=')?;
        let quoted = after.trim_start().strip_prefix('"')?;
        let (value, after) = unquoted(quoted)?;
        labels.push((name.trim(), value));
        let after = after.trim_start();
        rest = after.strip_prefix(',').unwrap_or(after).trim_start();
    }
}

/// The value up to the closing quote, and what follows it.
fn unquoted(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let (value, after) = text.split_at(text.find(['"', '\\'])?);
    if let Some(after) = after.strip_prefix('"') {
        return Some((Cow::Borrowed(value), after));
    }
    let mut value = value.to_owned();
    let mut chars = after.chars();
    loop {
        match chars.next()? {
            '"' => return Some((Cow::Owned(value), chars.as_str())),
            '\\' => match chars.next()? {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
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
        let found = parse(Path::new("x.prom"), text, stated_time(text), &Wanted::ALL, &mut problems);
        assert_eq!((found.readings.len(), found.nameless, found.beyond), (3, 1, 0));
        found.enter(&mut readings);
        let state = |pod: &str| readings.states("ml", pod).collect::<Vec<_>>();
        assert_eq!(state("w-0"), [GpuState::Spinning]);
        assert_eq!(state("w-1"), [GpuState::Idle]);
        assert_eq!(state("w-2"), [GpuState::Busy]);
        assert_eq!((readings.len(), problems.count()), (3, 1));
    }

    #[test]
    fn takes_no_more_than_is_wanted() {
        let text: String = (0..9)
            .map(|n| format!("DCGM_FI_DEV_GPU_UTIL{{gpu=\"{n}\",pod=\"w-{}\",namespace=\"ml\"}} 1\n", n % 2))
            .collect();
        let pod = |namespace: &str, pod: &str| (namespace, pod) == ("ml", "w-0");
        let wanted = Wanted { pod: &pod, devices: 3 };
        let mut problems = Problems::default();
        // Every device comes twice.
        let found = parse(Path::new("x"), &text.repeat(2), None, &wanted, &mut problems);
        assert_eq!((found.readings.len(), found.beyond, problems.count()), (3, 4, 0));
        assert!(found.readings.keys().all(|(_, pod, _)| pod == "w-0"), "{found:?}");
        let many = "a=\"\",".repeat(MAX_LABELS + 1);
        parse(Path::new("x"), &format!("a{{{many}}} 1"), None, &wanted, &mut problems);
        assert_eq!(problems.count(), 1);
    }

    #[test]
    fn what_nothing_can_measure_is_not_measured() {
        let read = |name: &str, value: &str| {
            let text = format!("{name}{{gpu=\"0\",pod=\"w-0\",namespace=\"ml\"}} {value}");
            let mut problems = Problems::default();
            let found = parse(Path::new("x"), &text, None, &Wanted::ALL, &mut problems);
            let problems: Vec<String> = problems.lines().collect();
            assert!(problems.iter().all(|problem| problem.contains(&format!("no {name} can have"))));
            (found.readings.into_values().next().unwrap(), problems.len())
        };
        let names = [
            ("DCGM_FI_DEV_GPU_UTIL", "101"),
            ("gpu_gfx_activity", "65535"),
            ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "1.1"),
            ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "1.1"),
            ("DCGM_FI_PROF_DRAM_ACTIVE", "2"),
            ("DCGM_FI_DEV_MEM_COPY_UTIL", "1e308"),
            ("DCGM_FI_DEV_POWER_USAGE", "-0.1"),
        ];
        for (name, large) in names {
            for value in ["NaN", "+Inf", "-Inf", "-5", "-1e308", large] {
                assert_eq!(read(name, value), (Reading::default(), 1), "{name} {value}");
            }
            assert_eq!(read(name, "0").1, 0, "{name}");
        }
        assert_eq!(read("DCGM_FI_DEV_GPU_UTIL", "100.2").0.utilisation, Some(1.0));
        assert_eq!(read("DCGM_FI_DEV_POWER_USAGE", "700.5").0.power_watts, Some(700.5));
    }
}

//! The configuration file. Enters: TOML text; leaves: checked settings. Unknown keys are refused, so that a typing
//! error cannot pass for a choice.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use firedoor_core::membership::Grouping;
use firedoor_core::policy::{self, Cni, Enforcement};
use firedoor_core::prices::{Billed, Price, Tariff};
use firedoor_core::settings::Settings;
use serde::Deserialize;

use crate::capture::shown;
use crate::harmless::harmless_lines;

/// A longer file is no configuration.
const MAX_FILE: u64 = 1 << 20;

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {}: {why}", shown(path))]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        why: std::io::Error,
    },
    /// The text is no configuration.
    #[error("the configuration {} is wrong: {what}", shown(path))]
    Wrong {
        /// The file.
        path: PathBuf,
        /// What is wrong, with the place.
        what: String,
    },
}

/// What can be configured.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Config {
    /// How pods are joined to jobs.
    pub grouping: Grouping,
    /// Thresholds.
    pub settings: Settings,
    /// How the kernel is watched.
    pub kernel: KernelSettings,
}

/// How the kernel is watched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelSettings {
    /// How often the counters of live connections are read.
    pub sample_every: Duration,
    /// Connections followed at a time.
    pub max_sockets: u32,
    /// Where the host's control groups (version 2) are mounted; `None`: looked up.
    pub cgroups: Option<PathBuf>,
}

impl Default for KernelSettings {
    fn default() -> Self {
        Self { sample_every: Duration::from_secs(5), max_sockets: 32_768, cgroups: None }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawConfig {
    jobs: RawJobs,
    policy: RawPolicy,
    diagnosis: RawDiagnosis,
    kernel: RawKernel,
    prices: BTreeMap<String, RawTariff>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct RawKernel {
    sample_milliseconds: Option<u64>,
    max_sockets: Option<u32>,
    cgroups: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct RawPolicy {
    cilium_version: Option<String>,
    enforcement: Option<RawEnforcement>,
    cni: Option<RawCni>,
}

/// Cilium's `policyEnforcementMode`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RawEnforcement {
    Default,
    Always,
    Never,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RawCni {
    Cilium,
    Other,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct RawJobs {
    group_by: Option<Vec<String>>,
    role_labels: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct RawDiagnosis {
    denied_attempts: Option<u64>,
    denied_grace_seconds: Option<u64>,
    unanswered_grace_seconds: Option<u64>,
    refused_grace_seconds: Option<u64>,
    transient_grace_seconds: Option<u64>,
    quiet_seconds: Option<u64>,
    lateness_seconds: Option<u64>,
    max_pairs: Option<usize>,
    recent_seconds: Option<u64>,
    latency_ratio: Option<f64>,
    latency_difference_microseconds: Option<u64>,
    latency_alone_microseconds: Option<u64>,
    latency_samples: Option<u64>,
    latency_crossing_share: Option<f64>,
    latency_bytes: Option<u64>,
    egress_usd_per_hour: Option<f64>,
    egress_bytes_per_hour: Option<u64>,
}

/// What a provider asks; what is not set stays as the built-in table has it.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct RawTariff {
    zone_usd_per_gb: Option<f64>,
    zone_billed: Option<RawBilled>,
    region_usd_per_gb: Option<f64>,
    region_billed: Option<RawBilled>,
    as_of: Option<String>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RawBilled {
    BothEnds,
    Sender,
    Nobody,
}

impl From<RawBilled> for Billed {
    fn from(billed: RawBilled) -> Self {
        match billed {
            RawBilled::BothEnds => Self::BothEnds,
            RawBilled::Sender => Self::Sender,
            RawBilled::Nobody => Self::Nobody,
        }
    }
}

/// A number that can be a threshold or a price.
fn positive(key: &str, number: Option<f64>) -> Result<Option<f64>, String> {
    match number {
        Some(number) if !(number.is_finite() && number >= 0.0) => {
            Err(format!("{key}: must be a number from 0 on"))
        }
        number => Ok(number),
    }
}

impl RawTariff {
    fn onto(self, provider: &str, tariff: &mut Tariff) -> Result<(), String> {
        let override_price = |price: &mut Option<Price>, usd: Option<f64>, billed: Option<RawBilled>| {
            let known = price.take();
            let billed = billed.map(Billed::from).or(known.as_ref().map(|price| price.billed));
            *price = usd
                .or(known.map(|price| price.usd_per_gb))
                .map(|usd_per_gb| Price { usd_per_gb, billed: billed.unwrap_or(Billed::Sender) });
        };
        let key = |of: &str| format!("prices.{provider}.{of}");
        let zone = positive(&key("zoneUsdPerGb"), self.zone_usd_per_gb)?;
        let region = positive(&key("regionUsdPerGb"), self.region_usd_per_gb)?;
        override_price(&mut tariff.zone, zone, self.zone_billed);
        override_price(&mut tariff.region, region, self.region_billed);
        if let Some(as_of) = self.as_of {
            tariff.as_of = as_of;
        }
        Ok(())
    }
}

/// Reads a Cilium version: its major and minor number count.
///
/// # Errors
/// What form a version has.
pub fn cilium_version(text: &str) -> Result<(u16, u16), String> {
    let mut parts = text.trim_start_matches('v').split('.').map(str::parse);
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Ok((major, minor)),
        _ => Err("a version has the form 1.15".to_owned()),
    }
}

impl RawKernel {
    fn onto(self, kernel: &mut KernelSettings) {
        if let Some(milliseconds) = self.sample_milliseconds {
            kernel.sample_every = Duration::from_millis(milliseconds.max(100));
        }
        kernel.max_sockets = self.max_sockets.unwrap_or(kernel.max_sockets).clamp(64, 1 << 20);
        kernel.cgroups = self.cgroups;
    }
}

impl RawPolicy {
    fn checked(self) -> Result<policy::Settings, String> {
        let version = self.cilium_version.as_deref().map(cilium_version).transpose();
        Ok(policy::Settings {
            cilium_version: version.map_err(|what| format!("policy.ciliumVersion: {what}"))?,
            enforcement: match self.enforcement {
                None | Some(RawEnforcement::Default) => Enforcement::Default,
                Some(RawEnforcement::Always) => Enforcement::Always,
                Some(RawEnforcement::Never) => Enforcement::Never,
            },
            cni: match self.cni {
                None => Cni::Unknown,
                Some(RawCni::Cilium) => Cni::Cilium,
                Some(RawCni::Other) => Cni::Other,
            },
        })
    }
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read or is no configuration.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let size = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        if size > MAX_FILE {
            let what = format!("larger than {MAX_FILE} bytes");
            return Err(ConfigError::Wrong { path: path.to_owned(), what });
        }
        let text = std::fs::read_to_string(path)
            .map_err(|why| ConfigError::Unreadable { path: path.to_owned(), why })?;
        let wrong = |what: String| ConfigError::Wrong { path: path.to_owned(), what: harmless_lines(&what) };
        Self::parse(&text).map_err(wrong)
    }

    /// Reads a text.
    ///
    /// # Errors
    /// What is wrong, with the place.
    pub fn parse(text: &str) -> Result<Self, String> {
        let raw: RawConfig = toml::from_str(text).map_err(|error| error.to_string())?;
        let mut config = Self::default();
        if let Some(keys) = raw.jobs.group_by {
            config.grouping.group_by = keys;
        }
        if let Some(keys) = raw.jobs.role_labels {
            config.grouping.role_labels = keys;
        }
        config.settings.policy = raw.policy.checked()?;
        for (provider, raw) in raw.prices {
            let unknown = || Tariff { zone: None, region: None, as_of: "the configuration".to_owned() };
            let tariff = config.settings.prices.0.entry(provider.clone()).or_insert_with(unknown);
            raw.onto(&provider, tariff)?;
        }
        raw.diagnosis.onto(&mut config.settings)?;
        raw.kernel.onto(&mut config.kernel);
        Ok(config)
    }
}

impl RawDiagnosis {
    fn onto(self, settings: &mut Settings) -> Result<(), String> {
        let set = |place: &mut Duration, seconds: Option<u64>| {
            if let Some(seconds) = seconds {
                *place = Duration::from_secs(seconds);
            }
        };
        set(&mut settings.denied_grace, self.denied_grace_seconds);
        set(&mut settings.unanswered_grace, self.unanswered_grace_seconds);
        set(&mut settings.refused_grace, self.refused_grace_seconds);
        set(&mut settings.transient_grace, self.transient_grace_seconds);
        set(&mut settings.quiet, self.quiet_seconds);
        set(&mut settings.lateness, self.lateness_seconds);
        set(&mut settings.recent, self.recent_seconds);
        settings.denied_attempts = self.denied_attempts.unwrap_or(settings.denied_attempts).max(1);
        settings.max_pairs = self.max_pairs.unwrap_or(settings.max_pairs);
        let micros = |place: &mut Duration, micros: Option<u64>| {
            if let Some(micros) = micros {
                *place = Duration::from_micros(micros);
            }
        };
        micros(&mut settings.latency_difference, self.latency_difference_microseconds);
        micros(&mut settings.latency_alone, self.latency_alone_microseconds);
        let ratio = positive("diagnosis.latencyRatio", self.latency_ratio)?;
        settings.latency_ratio = ratio.unwrap_or(settings.latency_ratio);
        let share = positive("diagnosis.latencyCrossingShare", self.latency_crossing_share)?;
        settings.latency_crossing = share.unwrap_or(settings.latency_crossing);
        settings.latency_samples = self.latency_samples.unwrap_or(settings.latency_samples).max(1);
        settings.latency_bytes = self.latency_bytes.unwrap_or(settings.latency_bytes);
        let usd = positive("diagnosis.egressUsdPerHour", self.egress_usd_per_hour)?;
        settings.egress_usd_per_hour = usd.unwrap_or(settings.egress_usd_per_hour);
        settings.egress_bytes_per_hour = self.egress_bytes_per_hour.unwrap_or(settings.egress_bytes_per_hour);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use firedoor_core::prices::Crossing;

    use super::*;

    #[test]
    fn unknown_keys_are_refused() {
        let config = Config::parse("[jobs]\ngroupBy = [\"app\"]\n[diagnosis]\nquietSeconds = 10\n").unwrap();
        assert_eq!(config.grouping.group_by, ["app"]);
        assert_eq!(config.settings.quiet, Duration::from_secs(10));
        let policy = Config::parse("[policy]\nciliumVersion = \"1.15.6\"\ncni = \"cilium\"\n")
            .unwrap()
            .settings
            .policy;
        assert_eq!((policy.cilium_version, policy.cni), (Some((1, 15)), Cni::Cilium));
        assert!(Config::parse("[policy]\nciliumVersion = \"new\"\n").unwrap_err().contains("ciliumVersion"));
        let priced =
            Config::parse("[prices.aws]\nzoneUsdPerGb = 0.015\n[prices.openstack]\nzoneUsdPerGb = 0.5\n")
                .unwrap();
        let of = |provider: &str| priced.settings.prices.of(provider, Crossing::Zone).cloned();
        assert_eq!(of("aws"), Some(Price { usd_per_gb: 0.015, billed: Billed::BothEnds }));
        assert_eq!(of("openstack"), Some(Price { usd_per_gb: 0.5, billed: Billed::Sender }));
        assert!(
            Config::parse("[prices.aws]\nzoneUsdPerGb = -1\n")
                .unwrap_err()
                .contains("prices.aws.zoneUsdPerGb")
        );
        assert!(Config::parse("[diagnosis]\nlatencyRatio = nan\n").unwrap_err().contains("latencyRatio"));
        let error = Config::parse("[jobs]\ngroupby = [\"app\"]\n").unwrap_err();
        assert!(error.contains("groupby") && error.contains("groupBy"), "{error}");
    }
}

//! The configuration file. Enters: TOML text; leaves: checked settings. Unknown keys are refused, so that a typing
//! error cannot pass for a choice.

use std::path::{Path, PathBuf};
use std::time::Duration;

use firedoor_core::membership::Grouping;
use firedoor_core::policy::{self, Cni, Enforcement};
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
        let (settings, diagnosis) = (&mut config.settings, raw.diagnosis);
        let set = |place: &mut Duration, seconds: Option<u64>| {
            if let Some(seconds) = seconds {
                *place = Duration::from_secs(seconds);
            }
        };
        set(&mut settings.denied_grace, diagnosis.denied_grace_seconds);
        set(&mut settings.unanswered_grace, diagnosis.unanswered_grace_seconds);
        set(&mut settings.refused_grace, diagnosis.refused_grace_seconds);
        set(&mut settings.transient_grace, diagnosis.transient_grace_seconds);
        set(&mut settings.quiet, diagnosis.quiet_seconds);
        set(&mut settings.lateness, diagnosis.lateness_seconds);
        settings.denied_attempts = diagnosis.denied_attempts.unwrap_or(settings.denied_attempts).max(1);
        let kernel = &mut config.kernel;
        if let Some(milliseconds) = raw.kernel.sample_milliseconds {
            kernel.sample_every = Duration::from_millis(milliseconds.max(100));
        }
        kernel.max_sockets = raw.kernel.max_sockets.unwrap_or(kernel.max_sockets).clamp(64, 1 << 20);
        kernel.cgroups = raw.kernel.cgroups;
        settings.max_pairs = diagnosis.max_pairs.unwrap_or(settings.max_pairs);
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
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
        let error = Config::parse("[jobs]\ngroupby = [\"app\"]\n").unwrap_err();
        assert!(error.contains("groupby") && error.contains("groupBy"), "{error}");
    }
}

//! The configuration. Enters: a TOML file, the environment, flags, each of which may overrule the one before it;
//! leaves: checked settings, and where each of them came from. Unknown keys are refused, so that a typing error cannot
//! pass for a choice. The one place that reads the environment.

mod keys;
mod layers;
mod names;
mod prices;
mod show;
#[cfg(test)]
mod tests;
mod value;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use firedoor_core::membership::Grouping;
use firedoor_core::observation::SourceKind;
use firedoor_core::settings::Settings;

use crate::capture::shown;
use crate::source::gpu::ExporterUrl;
pub use layers::{Effective, Given, Layers, Origin};

/// Where Cilium's agent serves the flows of its node (Cilium, `hubble-socket-path`).
pub const HUBBLE_SOCKET: &str = "unix:///var/run/cilium/hubble.sock";

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
    /// A variable of the environment is no setting.
    #[error("the variable {name} of the environment is wrong: {what}")]
    Environment {
        /// The variable.
        name: String,
        /// What is wrong.
        what: String,
    },
    /// A flag is no setting.
    #[error("{given}: {what}")]
    Flag {
        /// The flag as it was written.
        given: String,
        /// What is wrong.
        what: String,
    },
    /// A setting that says nothing without another one.
    #[error("{set} ({origin}) is set without {missing}: they go together")]
    Alone {
        /// The key that is set.
        set: &'static str,
        /// Where.
        origin: Origin,
        /// The key that is missing.
        missing: &'static str,
    },
    /// More than one of these.
    #[error("these settings are wrong:{}", lines(.0))]
    Several(Vec<ConfigError>),
}

fn lines(errors: &[ConfigError]) -> String {
    errors.iter().map(|error| format!("\n  {error}")).collect()
}

/// What can be configured.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Config {
    /// How pods are joined to jobs.
    pub grouping: Grouping,
    /// Thresholds.
    pub settings: Settings,
    /// How an agent runs.
    pub agent: AgentConfig,
    /// How the kernel is watched.
    pub kernel: KernelConfig,
    /// How Hubble is reached.
    pub hubble: HubbleConfig,
    /// How the cluster is known.
    pub kubernetes: KubernetesConfig,
    /// Who tells what GPUs do.
    pub gpu: GpuConfig,
}

/// A node whose sockets this agent watches, with the file of its network namespace where it is not the agent's own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeConfig {
    /// Its name in the cluster.
    pub name: String,
    /// Its network namespace.
    pub netns: Option<PathBuf>,
}

/// How an agent runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentConfig {
    /// Where observations come from.
    pub sources: Vec<SourceKind>,
    /// The nodes on this kernel; usually one.
    pub nodes: Vec<NodeConfig>,
    /// Where to serve HTTP.
    pub listen: SocketAddr,
    /// A directory with the cluster's objects in place of an API server.
    pub inventory: Option<PathBuf>,
    /// Where to write what is observed, as a capture.
    pub record: Option<PathBuf>,
    /// How much time a report covers.
    pub report: Duration,
}

impl Default for AgentConfig {
    fn default() -> Self {
        // A build without the probes has but one source.
        let source = if cfg!(feature = "ebpf") { SourceKind::Ebpf } else { SourceKind::Hubble };
        Self {
            sources: vec![source],
            nodes: Vec::new(),
            listen: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 9745)),
            inventory: None,
            record: None,
            report: Duration::from_secs(600),
        }
    }
}

/// How the kernel is watched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelConfig {
    /// How often the counters of live connections are read.
    pub sample_every: Duration,
    /// Connections followed at a time.
    pub max_sockets: u32,
    /// Where the host's control groups (version 2) are mounted; `None`: looked up.
    pub cgroups: Option<PathBuf>,
}

impl Default for KernelConfig {
    fn default() -> Self {
        Self { sample_every: Duration::from_secs(5), max_sockets: 32_768, cgroups: None }
    }
}

/// How Hubble is reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HubbleConfig {
    /// The server: `unix:///path`, `host:port`, or `tls://host:port`.
    pub address: String,
    /// The cluster's name in Cilium, part of a node's server name; `None`: `default`.
    pub cluster: Option<String>,
    /// Whether the server is Hubble Relay.
    pub relay: bool,
    /// The name that the server's certificate must carry; `None`: the one that Cilium gives.
    pub server_name: Option<String>,
    /// Certificates of the authorities to trust, PEM.
    pub tls_ca: Option<PathBuf>,
    /// The client's certificate, PEM.
    pub tls_cert: Option<PathBuf>,
    /// The client's key, PEM.
    pub tls_key: Option<PathBuf>,
}

impl Default for HubbleConfig {
    fn default() -> Self {
        Self {
            address: HUBBLE_SOCKET.to_owned(),
            cluster: None,
            relay: false,
            server_name: None,
            tls_ca: None,
            tls_cert: None,
            tls_key: None,
        }
    }
}

/// How the cluster is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KubernetesConfig {
    /// A kubeconfig file; `None`: the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// Members of a job that are all watched; of a larger job only those here and those seen are known.
    pub max_members: usize,
}

impl Default for KubernetesConfig {
    fn default() -> Self {
        Self { kubeconfig: None, max_members: 512 }
    }
}

/// Who tells what GPUs do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GpuConfig {
    /// The node's exporter; `None`: it is looked for among the node's pods.
    pub exporter: Option<ExporterUrl>,
    /// What it is known by then: `key=value`, any of these.
    pub exporter_labels: Vec<String>,
    /// How often it is asked.
    pub scrape_every: Duration,
}

impl Default for GpuConfig {
    fn default() -> Self {
        // NVIDIA's GPU operator, and the chart of dcgm-exporter itself.
        let labels = ["app=nvidia-dcgm-exporter", "app.kubernetes.io/name=dcgm-exporter"];
        Self {
            exporter: None,
            exporter_labels: labels.map(str::to_owned).to_vec(),
            scrape_every: Duration::from_secs(15),
        }
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

/// Reads a node: `NAME` or `NAME=FILE`.
///
/// # Errors
/// What is wrong with it.
pub fn node(text: &str) -> Result<NodeConfig, String> {
    let (name, netns) = match text.split_once('=') {
        Some((name, netns)) => (name, Some(PathBuf::from(netns))),
        None => (text, None),
    };
    if name.is_empty() {
        return Err("a node has a name".to_owned());
    }
    Ok(NodeConfig { name: name.to_owned(), netns })
}

impl Config {
    /// Reads a file, and nothing else.
    ///
    /// # Errors
    /// When it cannot be read or is no configuration.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        Ok(Effective::of(Some(path), std::iter::empty(), &[])?.config)
    }
}

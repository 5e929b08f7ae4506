//! Every key there is: its name, its unit, what it means, and where its value lives. File, environment, flags,
//! `firedoor config` and the documentation all go by this one list.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use firedoor_core::observation::SourceKind;
use firedoor_core::policy::{Cni, Enforcement};

use super::value::Value;
use super::{Config, NodeConfig, cilium_version, node};
use crate::source::gpu::{BadExporterUrl, ExporterUrl};
use crate::source::hubble::Written;

/// A key.
pub(super) struct Key {
    pub(super) section: &'static str,
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) place: Place,
}

type Of<T> = fn(&mut Config) -> &mut T;

/// Where a value lives, and what it may be.
pub(super) enum Place {
    Seconds(Of<Duration>),
    Milliseconds(Of<Duration>, u64),
    Microseconds(Of<Duration>),
    Count(Of<u64>, u64),
    Size(Of<usize>, u64),
    Small(Of<u32>, u64, u64),
    Number(Of<f64>),
    Texts(Of<Vec<String>>),
    OptionalText(Of<Option<String>>),
    File(Of<Option<PathBuf>>),
    Address(Of<SocketAddr>),
    Exporter(Of<Option<ExporterUrl>>),
    Server(Of<String>),
    Nodes(Of<Vec<NodeConfig>>),
    Flag(Of<bool>),
    Sources(Of<Vec<SourceKind>>),
    CiliumVersion(Of<Option<(u16, u16)>>),
    Enforcement(Of<Enforcement>),
    Cni(Of<Cni>),
}

const fn key(section: &'static str, name: &'static str, about: &'static str, place: Place) -> Key {
    Key { section, name, about, place }
}

use Place::{
    Address, CiliumVersion, Count, Exporter, File, Flag, Microseconds, Milliseconds, Nodes, Number,
    OptionalText, Seconds, Server, Size, Small, Sources, Texts,
};

/// All keys but those of prices, by section.
#[rustfmt::skip]
pub(super) const KEYS: &[Key] = &[
    key("agent", "sources", "where observations come from: ebpf, hubble, or both", Sources(|c| &mut c.agent.sources)),
    key("agent", "node", "this node's name; several, as NAME=NETNS, where nodes share a kernel", Nodes(|c| &mut c.agent.nodes)),
    key("agent", "listen", "where HTTP is served", Address(|c| &mut c.agent.listen)),
    key("agent", "inventory", "a directory of objects in place of an API server", File(|c| &mut c.agent.inventory)),
    key("agent", "record", "a new directory for what is observed, as a capture", File(|c| &mut c.agent.record)),
    key("hubble", "address", "unix:///path, host:port, or tls://host:port", Server(|c| &mut c.hubble.address)),
    key("hubble", "cluster", "the cluster's name in Cilium, for the server's name", OptionalText(|c| &mut c.hubble.cluster)),
    key("hubble", "relay", "whether the server is Hubble Relay, whose certificate carries another name", Flag(|c| &mut c.hubble.relay)),
    key("hubble", "serverName", "the name that the server's certificate carries", OptionalText(|c| &mut c.hubble.server_name)),
    key("hubble", "tlsCa", "authorities to trust, PEM; read again when the file changes", File(|c| &mut c.hubble.tls_ca)),
    key("hubble", "tlsCert", "the client's certificate, PEM; read again when the file changes", File(|c| &mut c.hubble.tls_cert)),
    key("hubble", "tlsKey", "the client's key, PEM; read again when the file changes", File(|c| &mut c.hubble.tls_key)),
    key("kubernetes", "kubeconfig", "a kubeconfig file in place of the pod's service account", File(|c| &mut c.kubernetes.kubeconfig)),
    key("kubernetes", "maxMembers", "members of a job up to which all of them are watched", Size(|c| &mut c.kubernetes.max_members, 2)),
    key("kernel", "sampleMilliseconds", "how often the counters of live connections are read", Milliseconds(|c| &mut c.kernel.sample_every, 100)),
    key("kernel", "maxSockets", "connections followed at a time", Small(|c| &mut c.kernel.max_sockets, 64, 1 << 20)),
    key("kernel", "cgroups", "where the host's control groups (version 2) are mounted; looked up when not set", File(|c| &mut c.kernel.cgroups)),
    key("gpu", "exporter", "the exporter of this node's GPUs, like http://localhost:9400/metrics; a pod here when not set", Exporter(|c| &mut c.gpu.exporter)),
    key("gpu", "exporterLabels", "labels of exporters' pods, any of which is asked when none is named", Texts(|c| &mut c.gpu.exporter_labels)),
    key("gpu", "scrapeSeconds", "how often it is asked", Seconds(|c| &mut c.gpu.scrape_every)),
    key("jobs", "groupBy", "labels that join workloads to one job, in order", Texts(|c| &mut c.grouping.group_by)),
    key("jobs", "roleLabels", "labels that tell a pod's role, in order", Texts(|c| &mut c.grouping.role_labels)),
    key("policy", "ciliumVersion", "Cilium's version, where a policy's meaning depends on it", CiliumVersion(|c| &mut c.settings.policy.cilium_version)),
    key("policy", "enforcement", "Cilium's policyEnforcementMode: default, always, never", Place::Enforcement(|c| &mut c.settings.policy.enforcement)),
    key("policy", "cni", "who enforces policies: cilium, other; unknown when not set", Place::Cni(|c| &mut c.settings.policy.cni)),
    key("diagnosis", "deniedAttempts", "attempts, without a success, from which on a denied connection counts as blocked ...", Count(|c| &mut c.settings.denied_attempts, 1)),
    key("diagnosis", "deniedGraceSeconds", "... over at least this long", Seconds(|c| &mut c.settings.denied_grace)),
    key("diagnosis", "unansweredGraceSeconds", "a connection that nobody answers counts as blocked after this long", Seconds(|c| &mut c.settings.unanswered_grace)),
    key("diagnosis", "refusedGraceSeconds", "a refused connection counts as blocked after this long", Seconds(|c| &mut c.settings.refused_grace)),
    key("diagnosis", "transientGraceSeconds", "drops that are normal at a start count as a fault after this long", Seconds(|c| &mut c.settings.transient_grace)),
    key("diagnosis", "quietSeconds", "a problem nobody ran into for this long has ended, unresolved", Seconds(|c| &mut c.settings.quiet)),
    key("diagnosis", "recentSeconds", "what decides whether distance is a problem still", Seconds(|c| &mut c.settings.recent)),
    key("diagnosis", "latencyRatio", "round trips across zones longer than within by this factor ...", Number(|c| &mut c.settings.latency_ratio)),
    key("diagnosis", "latencyDifferenceMicroseconds", "... and by at least this much", Microseconds(|c| &mut c.settings.latency_difference)),
    key("diagnosis", "latencyAloneMicroseconds", "a round trip across zones that is long by itself", Microseconds(|c| &mut c.settings.latency_alone)),
    key("diagnosis", "latencySamples", "round trips to measure before they are compared", Count(|c| &mut c.settings.latency_samples, 1)),
    key("diagnosis", "latencyCrossingShare", "share of bytes across zones below which distance does not matter, 0 to 1", Number(|c| &mut c.settings.latency_crossing)),
    key("diagnosis", "latencyBytes", "bytes across zones below which distance does not matter", Count(|c| &mut c.settings.latency_bytes, 0)),
    key("diagnosis", "egressUsdPerHour", "US dollars an hour from which on cost is told", Number(|c| &mut c.settings.egress_usd_per_hour)),
    key("diagnosis", "egressBytesPerHour", "bytes an hour from which on cost is told where no price is known", Count(|c| &mut c.settings.egress_bytes_per_hour, 0)),
    key("diagnosis", "windowSeconds", "width of the windows in which events are counted", Seconds(|c| &mut c.settings.window)),
    key("diagnosis", "latenessSeconds", "how much later than a node's newest event one of its events may come", Seconds(|c| &mut c.settings.lateness)),
    key("diagnosis", "maxJumpSeconds", "how far ahead of its node's events one may lie before it is doubted", Seconds(|c| &mut c.settings.max_jump)),
    key("diagnosis", "reportSeconds", "how much time an agent's report covers; a replay's covers its capture", Seconds(|c| &mut c.agent.report)),
    key("diagnosis", "maxPairs", "live pairs; what comes beyond is counted", Size(|c| &mut c.settings.max_pairs, 1)),
    key("diagnosis", "maxHandshakes", "handshakes followed at a time", Size(|c| &mut c.settings.max_handshakes, 1)),
];

const FOREVER: u64 = 10 * 365 * 24 * 3600;

impl Place {
    /// Takes a value.
    pub(super) fn set(&self, config: &mut Config, value: &Value) -> Result<(), String> {
        let secs = || value.whole(0, FOREVER).map(Duration::from_secs);
        match self {
            Self::Seconds(of) => *of(config) = secs()?,
            Self::Milliseconds(of, least) => {
                *of(config) = Duration::from_millis(value.whole(*least, FOREVER * 1000)?);
            }
            Self::Microseconds(of) => {
                *of(config) = Duration::from_micros(value.whole(0, FOREVER * 1_000_000)?);
            }
            Self::Count(of, least) => *of(config) = value.whole(*least, u64::MAX)?,
            Self::Size(of, least) => {
                let number = value.whole(*least, u64::MAX)?;
                *of(config) = usize::try_from(number).map_err(|_| "this number is too large".to_owned())?;
            }
            Self::Small(of, least, most) => {
                let number = value.whole(*least, *most)?;
                *of(config) = u32::try_from(number).map_err(|_| "this number is too large".to_owned())?;
            }
            Self::Number(of) => *of(config) = value.number()?,
            Self::Texts(of) => *of(config) = value.texts()?,
            Self::OptionalText(of) => *of(config) = Some(value.text()?.to_owned()).filter(|t| !t.is_empty()),
            Self::File(of) => *of(config) = Some(value.text()?).filter(|t| !t.is_empty()).map(PathBuf::from),
            Self::Address(of) => *of(config) = listening(value.text()?)?,
            Self::Server(of) => {
                let text = value.text()?;
                text.parse::<Written>().map_err(|why| why.to_string())?;
                text.clone_into(of(config));
            }
            Self::Exporter(of) => {
                let text = Some(value.text()?).filter(|text| !text.is_empty());
                let exporter = text.map(str::parse).transpose();
                *of(config) = exporter.map_err(|why: BadExporterUrl| why.to_string())?;
            }
            Self::Nodes(of) => {
                *of(config) = value.texts()?.iter().map(|text| node(text)).collect::<Result<_, _>>()?;
            }
            Self::Flag(of) => *of(config) = value.flag()?,
            Self::Sources(of) => *of(config) = sources(value)?,
            Self::CiliumVersion(of) => *of(config) = Some(cilium_version(value.text()?)?),
            Self::Enforcement(of) => *of(config) = named(&ENFORCEMENT, value)?,
            Self::Cni(of) => *of(config) = named(&CNI, value)?,
        }
        Ok(())
    }

    /// The value; `None`: not set.
    pub(super) fn get(&self, config: &mut Config) -> Option<Value> {
        let whole = |number: u128| Value::Whole(i64::try_from(number).unwrap_or(i64::MAX));
        let file = |path: &PathBuf| Value::Text(path.to_string_lossy().into_owned());
        Some(match self {
            Self::Seconds(of) => whole(of(config).as_secs().into()),
            Self::Milliseconds(of, _) => whole(of(config).as_millis()),
            Self::Microseconds(of) => whole(of(config).as_micros()),
            Self::Count(of, _) => whole((*of(config)).into()),
            Self::Size(of, _) => whole(*of(config) as u128),
            Self::Small(of, ..) => whole((*of(config)).into()),
            Self::Number(of) => Value::Number(*of(config)),
            Self::Texts(of) => Value::Texts(of(config).clone()),
            Self::Server(of) => Value::Text(of(config).clone()),
            Self::OptionalText(of) => Value::Text(of(config).clone()?),
            Self::File(of) => file(of(config).as_ref()?),
            Self::Address(of) => Value::Text(of(config).to_string()),
            Self::Exporter(of) => Value::Text(of(config).as_ref()?.to_string()),
            Self::Nodes(of) => Value::Texts(of(config).iter().map(written).collect()),
            Self::Flag(of) => Value::Flag(*of(config)),
            Self::Sources(of) => Value::Texts(of(config).iter().map(|s| s.as_str().to_owned()).collect()),
            Self::CiliumVersion(of) => {
                of(config).map(|(major, minor)| Value::Text(format!("{major}.{minor}")))?
            }
            Self::Enforcement(of) => name(&ENFORCEMENT, *of(config)),
            Self::Cni(of) => name(&CNI, *of(config)),
        })
    }
}

const ENFORCEMENT: [(&str, Enforcement); 3] =
    [("default", Enforcement::Default), ("always", Enforcement::Always), ("never", Enforcement::Never)];
const CNI: [(&str, Cni); 3] = [("cilium", Cni::Cilium), ("other", Cni::Other), ("unknown", Cni::Unknown)];

fn named<T: Copy>(names: &[(&str, T)], value: &Value) -> Result<T, String> {
    let text = value.text()?;
    let of_name = names.iter().find(|(name, _)| *name == text).map(|(_, known)| *known);
    let all: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
    of_name.ok_or_else(|| format!("must be one of {}", all.join(", ")))
}

fn name<T: PartialEq>(names: &[(&'static str, T)], value: T) -> Value {
    let known = names.iter().find(|(_, of)| *of == value).map_or("", |(name, _)| name);
    Value::Text(known.to_owned())
}

/// Where to listen. Of names only `localhost` is taken: any other would have to be looked up.
fn listening(text: &str) -> Result<SocketAddr, String> {
    let local = text.strip_prefix("localhost:").and_then(|port| port.parse().ok());
    let local = local.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let bad = "must be an IP address and a port, like 127.0.0.1:9745, 0.0.0.0:9745 or [::]:9745";
    local.or_else(|| text.parse().ok()).ok_or_else(|| bad.to_owned())
}

fn written(node: &NodeConfig) -> String {
    match &node.netns {
        Some(netns) => format!("{}={}", node.name, netns.display()),
        None => node.name.clone(),
    }
}

/// Sources, each once, in a fixed order.
fn sources(value: &Value) -> Result<Vec<SourceKind>, String> {
    let known = [SourceKind::Ebpf, SourceKind::Hubble];
    let texts = value.texts()?;
    let unknown = texts.iter().find(|text| !known.iter().any(|kind| kind.as_str() == *text));
    if let Some(unknown) = unknown {
        return Err(format!("{unknown:?} is no source: there are ebpf and hubble"));
    }
    let sources: Vec<SourceKind> =
        known.into_iter().filter(|kind| texts.iter().any(|text| text == kind.as_str())).collect();
    if sources.is_empty() { Err("must name at least one of ebpf, hubble".to_owned()) } else { Ok(sources) }
}

//! What the log says of what runs here, and of how sources are. Enters: a configuration, the state of a source; leaves: lines.

use std::net::SocketAddr;

use firedoor_core::observation::SourceKind;

use super::board::SourceShown;
use crate::capture::shown;
use crate::config::Config;
use crate::source::hubble::{Role, Server};

/// A Hubble server in a few words.
pub(super) fn described(server: &Server) -> String {
    let version = server.version.as_deref().unwrap_or("of unknown version");
    match &server.role {
        Role::Node => format!("node server {version}"),
        Role::Relay { connected, unavailable } => {
            let connected = connected.map_or("unknown".to_owned(), |count| count.to_string());
            format!("relay {version}, {connected} nodes connected, {} unavailable", unavailable.len())
        }
    }
}

/// How a source is, in lines of the log.
pub(super) fn described_source(shown: &SourceShown) -> Vec<String> {
    let name = shown.source.as_str();
    let state = match (&shown.why, shown.up) {
        (_, true) => {
            let server = shown.server.as_deref().map_or(String::new(), |server| format!(": {server}"));
            format!("{name} is watched{server}")
        }
        (Some(why), false) => format!("{name} is not watched: {why}"),
        (None, false) => return Vec::new(),
    };
    std::iter::once(state).chain(shown.notes.iter().cloned()).collect()
}

/// What runs here, for whoever reads the log first.
pub(super) fn introduction(config: &Config, address: SocketAddr) -> String {
    let nodes: Vec<&str> = config.agent.nodes.iter().map(|node| node.name.as_str()).collect();
    let sources = config.agent.sources.iter().map(|source| match source {
        SourceKind::Hubble => format!("hubble ({})", config.hubble.address),
        other => other.as_str().to_owned(),
    });
    let cluster = match &config.agent.inventory {
        Some(directory) => shown(directory),
        None => "the API server".to_owned(),
    };
    format!(
        "firedoor {} on node {}; sources: {}; objects from {cluster}; http://{address}/api/v1/report",
        env!("CARGO_PKG_VERSION"),
        if nodes.is_empty() { "(unnamed)".to_owned() } else { nodes.join(", ") },
        sources.collect::<Vec<_>>().join(", "),
    )
}

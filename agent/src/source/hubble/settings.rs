//! Where a Hubble server is and how it is spoken to. Enters: what a person wrote; leaves: settings. Must not connect.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Where a server listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// A socket on this node (Cilium's default: `/var/run/cilium/hubble.sock`), in the clear.
    Unix(PathBuf),
    /// A host and port: 4244 on a node, 4245 for a relay, where nothing else is configured.
    Tcp {
        /// A name or an address, without brackets.
        host: String,
        /// The port.
        port: u16,
    },
}

impl fmt::Display for Address {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(to, "unix://{}", path.display()),
            Self::Tcp { host, port } if host.contains(':') => write!(to, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(to, "{host}:{port}"),
        }
    }
}

/// An address that nobody can mean.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{0:?} is no address of a Hubble server: write unix:///var/run/cilium/hubble.sock, host:port, or tls://host:port"
)]
pub struct BadAddress(pub String);

/// An address as it is written: where, and whether TLS is asked for (`tls://`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Written {
    /// Where.
    pub address: Address,
    /// Whether it began with `tls://`.
    pub tls: bool,
}

impl FromStr for Written {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let bad = || BadAddress(text.to_owned());
        let clear = |address| Ok(Self { address, tls: false });
        if let Some(path) = text.strip_prefix("unix://").or_else(|| text.strip_prefix("unix:")) {
            return if path.starts_with('/') { clear(Address::Unix(path.into())) } else { Err(bad()) };
        }
        if text.starts_with('/') {
            return clear(Address::Unix(text.into()));
        }
        let (tls, rest) = match (text.strip_prefix("tls://"), text.strip_prefix("tcp://")) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            _ => (false, text),
        };
        let (host, port) = rest.rsplit_once(':').ok_or_else(bad)?;
        let bracketed = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
        let plain = || (!host.contains([':', '/', '[', ']'])).then_some(host);
        let host = bracketed.or_else(plain).filter(|host| !host.is_empty()).ok_or_else(bad)?;
        let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(bad)?;
        Ok(Self { address: Address::Tcp { host: host.to_owned(), port }, tls })
    }
}

/// Whom the server's certificate must name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum ServerName {
    /// The node's server: `<node>.<cluster>.hubble-grpc.cilium.io`, dots within node and cluster as dashes.
    #[default]
    Node,
    /// Hubble Relay: `instance.hubble-relay.cilium.io`.
    Relay,
    /// This name.
    Named(String),
}

/// How TLS is spoken. The files are read again when they change.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TlsSettings {
    /// Certificates of authorities to believe, PEM; `None`: the system's.
    pub authorities: Option<PathBuf>,
    /// The client's certificate and key, PEM, where the server asks for one.
    pub identity: Option<Identity>,
    /// Whom the server's certificate must name.
    pub server_name: ServerName,
}

/// The client's own certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The certificate, and those between it and the authority (`tls.crt`).
    pub certificate: PathBuf,
    /// Its private key (`tls.key`).
    pub key: PathBuf,
}

/// How to follow a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HubbleSettings {
    /// Where it listens.
    pub address: Address,
    /// How TLS is spoken; `None`: in the clear.
    pub tls: Option<TlsSettings>,
    /// The node's name, for the name that its server's certificate carries.
    pub node: String,
    /// The cluster's name, for the same; `None`: Cilium's default, `default`.
    pub cluster: Option<String>,
    /// How old events may be that a server held before it was first asked. By this machine's clock.
    pub history: Duration,
    /// Messages in a batch, at most.
    pub batch_messages: usize,
    /// Bytes of messages in a batch, from which on no more are added.
    pub batch_bytes: usize,
    /// Longer messages are rejected, each as one event.
    pub message_bytes: usize,
    /// What the server may send that was not read yet. The connection's window is sixteen times as large: a full stream then holds
    /// up no heartbeat, and h2 does not take a flood of tiny messages for an attack (it allows unread ones under 256 bytes
    /// together half of the connection's window of overhead).
    pub window_bytes: u32,
    /// Names of pods in a filter, at most; beyond it namespaces, and beyond so many of those everything.
    pub filter_names: usize,
    /// How long connecting and the handshake may take.
    pub connect_timeout: Duration,
    /// The first pause after a break ...
    pub backoff_min: Duration,
    /// ... and the longest one. Each is twice the one before it, less up to half by chance.
    pub backoff_max: Duration,
    /// After a connection that held this long the pauses begin anew.
    pub healthy_after: Duration,
    /// How often the server is asked how it is, which also shows that it still lives. More often than `ping_every`: Go's servers
    /// hang up on clients that ping while nothing else is said.
    pub status_every: Duration,
    /// After so much silence the peer is pinged.
    pub ping_every: Duration,
    /// A ping or a question unanswered for this long means that the peer is gone.
    pub ping_timeout: Duration,
    /// How often the files of certificates are looked at.
    pub files_every: Duration,
    /// What a server saw is on its way to us for at most this long while we read as fast as it sends.
    pub settle: Duration,
    /// Whether to ask for the needed fields only, where the server can (Cilium 1.16 and newer).
    pub field_mask: bool,
}

impl HubbleSettings {
    /// The defaults for a server.
    #[must_use]
    pub fn new(written: Written, node: &str) -> Self {
        let seconds = Duration::from_secs;
        Self {
            address: written.address,
            tls: written.tls.then(TlsSettings::default),
            node: node.to_owned(),
            cluster: None,
            history: seconds(30),
            batch_messages: 512,
            batch_bytes: 256 << 10,
            message_bytes: 4 << 20,
            window_bytes: 512 << 10,
            filter_names: 64,
            connect_timeout: seconds(10),
            backoff_min: Duration::from_millis(100),
            backoff_max: seconds(30),
            healthy_after: seconds(60),
            status_every: seconds(5),
            ping_every: seconds(10),
            ping_timeout: seconds(10),
            files_every: seconds(10),
            settle: seconds(1),
            field_mask: true,
        }
    }

    /// Whom the server's certificate must name.
    #[must_use]
    pub fn server_name(&self, tls: &TlsSettings) -> String {
        match &tls.server_name {
            ServerName::Named(name) => name.clone(),
            ServerName::Relay => "instance.hubble-relay.cilium.io".to_owned(),
            ServerName::Node => {
                let cluster = self.cluster.as_deref().filter(|name| !name.is_empty()).unwrap_or("default");
                let dashed = |name: &str| name.replace('.', "-");
                format!("{}.{}.hubble-grpc.cilium.io", dashed(&self.node), dashed(cluster))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_as_people_write_them() {
        let unix = |path: &str| Written { address: Address::Unix(path.into()), tls: false };
        let tcp = |host: &str, port, tls| Written { address: Address::Tcp { host: host.into(), port }, tls };
        for (text, expected) in [
            ("unix:///var/run/cilium/hubble.sock", unix("/var/run/cilium/hubble.sock")),
            ("unix:/run/h.sock", unix("/run/h.sock")),
            ("/run/h.sock", unix("/run/h.sock")),
            ("hubble-relay.kube-system:4245", tcp("hubble-relay.kube-system", 4245, false)),
            ("tcp://localhost:4245", tcp("localhost", 4245, false)),
            ("tls://10.0.0.1:4244", tcp("10.0.0.1", 4244, true)),
            ("tls://[fd00::1]:4244", tcp("fd00::1", 4244, true)),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
        for text in
            ["", "host", "host:", ":4245", "host:0", "host:99999", "fd00::1:4244", "unix://run", "[::1]"]
        {
            assert!(text.parse::<Written>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_names_that_ciliums_certificates_carry() {
        let mut settings = HubbleSettings::new("tls://x:4244".parse().unwrap(), "gpu-1.eu.example");
        let mut tls = settings.tls.clone().unwrap();
        assert_eq!(settings.server_name(&tls), "gpu-1-eu-example.default.hubble-grpc.cilium.io");
        settings.cluster = Some("prod.eu".to_owned());
        assert_eq!(settings.server_name(&tls), "gpu-1-eu-example.prod-eu.hubble-grpc.cilium.io");
        tls.server_name = ServerName::Relay;
        assert_eq!(settings.server_name(&tls), "instance.hubble-relay.cilium.io");
        tls.server_name = ServerName::Named("other".to_owned());
        assert_eq!(settings.server_name(&tls), "other");
    }
}

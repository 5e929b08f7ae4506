//! The agent's thread that talks to the network: signals, the HTTP port, Hubble, the cluster's API server. Enters: a
//! configuration; leaves: what was told, through bounded channels. The one place that spawns.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use firedoor_core::observation::SourceKind;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot, watch};

use super::board::Board;
use super::supply::Supply;
use super::{AgentError, http, log};
use crate::cluster::{self, Access, ClusterSettings, Credentials, Lookup, Snapshot};
use crate::config::Config;
use crate::source::hubble::{
    self, BadAddress, HubbleSettings, Identity, Interest, ServerName, TlsSettings, Told, Written,
};

/// Batches that wait for the observer; when they are full Hubble is read no further, and its server counts what it must
/// leave out.
const BATCHES: usize = 16;
/// Questions that wait for the observer; beyond that a page is refused for the moment.
const ASKED: usize = 8;
/// Peers that wait to be looked up; what comes beyond is asked again later.
const LOOKUPS: usize = 256;
/// How long what is under way may take to end.
const ENDING: Duration = Duration::from_secs(2);

/// What the observer is asked to do.
pub(super) enum Asked {
    /// To end.
    Stop,
    /// To read its configuration again.
    Reload,
    /// To tell what it saw, as JSON for others to join with theirs.
    Windows(oneshot::Sender<Bytes>),
}

/// The other thread, as the observer sees it.
pub(super) struct Outside {
    pub(super) asked: mpsc::Receiver<Asked>,
    /// What Hubble tells; nothing where it is no source.
    pub(super) told: mpsc::Receiver<Told>,
    pub(super) interest: watch::Sender<Arc<Interest>>,
    pub(super) lookups: mpsc::Sender<Lookup>,
    /// What tells of the cluster.
    pub(super) supply: Supply,
    /// Where HTTP is served.
    pub(super) address: SocketAddr,
    /// Dropped: the thread ends, and what it does before.
    _stop: watch::Sender<()>,
}

/// The other ends of the channels.
struct Ends {
    asks: mpsc::Sender<Asked>,
    tells: mpsc::Sender<Told>,
    interest: watch::Receiver<Arc<Interest>>,
    lookups: mpsc::Receiver<Lookup>,
    stop: watch::Receiver<()>,
}

impl Outside {
    /// Starts the thread.
    pub(super) fn start(config: &Config, board: &Arc<Board>) -> Result<Self, AgentError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(AgentError::Threads)?;
        let (asks, asked) = mpsc::channel(ASKED);
        let (tells, told) = mpsc::channel(BATCHES);
        let (interest, interesting) = watch::channel(Arc::new(Interest::default()));
        let (lookups, looked_up) = mpsc::channel(LOOKUPS);
        let (stop, stopped) = watch::channel(());
        let ends = Ends { asks, tells, interest: interesting, lookups: looked_up, stop: stopped };
        let (address, supply) = begin(runtime, config, board, ends)?;
        Ok(Self { asked, told, interest, lookups, supply, address, _stop: stop })
    }
}

type Latest = watch::Receiver<Option<Arc<Snapshot>>>;

/// Spawns everything, and then the thread that drives it.
fn begin(
    runtime: Runtime,
    config: &Config,
    board: &Arc<Board>,
    ends: Ends,
) -> Result<(SocketAddr, Supply), AgentError> {
    let listen = config.agent.listen;
    let listener = std::net::TcpListener::bind(listen)
        .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
        .map_err(|why| AgentError::Listen { address: listen, why })?;
    let address = listener.local_addr().map_err(|why| AgentError::Listen { address: listen, why })?;
    runtime.spawn(http::serve(listener, Arc::clone(board), ends.asks.clone()));
    runtime.spawn(signals(ends.asks));
    if config.agent.sources.contains(&SourceKind::Hubble) {
        let settings = hubble_settings(config)?;
        runtime.spawn(hubble::follow(settings, ends.interest, ends.tells, ended(ends.stop.clone())));
    }
    let supply = match &config.agent.inventory {
        Some(directory) => Supply::directory(directory),
        None => Supply::Cluster(know_cluster(&runtime, config, ends.lookups, ended(ends.stop.clone()))?),
    };
    let drive = move || {
        runtime.block_on(ended(ends.stop));
        runtime.shutdown_timeout(ENDING);
    };
    std::thread::Builder::new().name("outside".to_owned()).spawn(drive).map_err(AgentError::Threads)?;
    Ok((address, supply))
}

/// Until the agent ends.
async fn ended(mut stop: watch::Receiver<()>) {
    // Nothing is ever sent: the sender goes.
    while stop.changed().await.is_ok() {}
}

fn hubble_settings(config: &Config) -> Result<HubbleSettings, AgentError> {
    let hubble = &config.hubble;
    let written: Written =
        hubble.address.parse().map_err(|why: BadAddress| AgentError::Hubble(why.to_string()))?;
    let node = config.agent.nodes.first().map_or("", |node| node.name.as_str());
    let mut settings = HubbleSettings::new(written, node);
    settings.cluster.clone_from(&hubble.cluster);
    let identity = match (&hubble.tls_cert, &hubble.tls_key) {
        (Some(certificate), Some(key)) => {
            Some(Identity { certificate: certificate.clone(), key: key.clone() })
        }
        (None, None) => None,
        _ => return Err(AgentError::Hubble("tlsCert and tlsKey go together".to_owned())),
    };
    if settings.tls.is_some() || hubble.tls_ca.is_some() || identity.is_some() {
        let server_name = match (&hubble.server_name, hubble.relay) {
            (Some(name), _) => ServerName::Named(name.clone()),
            (None, true) => ServerName::Relay,
            (None, false) => ServerName::Node,
        };
        settings.tls = Some(TlsSettings { authorities: hubble.tls_ca.clone(), identity, server_name });
    }
    Ok(settings)
}

fn know_cluster(
    runtime: &Runtime,
    config: &Config,
    lookups: mpsc::Receiver<Lookup>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<Latest, AgentError> {
    let node = config.agent.nodes.first().ok_or(AgentError::NoNode)?;
    let credentials = match &config.kubernetes.kubeconfig {
        Some(file) => Credentials::Kubeconfig { path: Some(file.clone()), context: None },
        None => Credentials::ServiceAccount,
    };
    let access = runtime.block_on(Access::new(credentials));
    let access = access.map_err(|why| AgentError::Cluster(why.to_string()))?;
    let settings = ClusterSettings {
        node: node.name.clone(),
        max_members: config.kubernetes.max_members,
        grouping: config.grouping.clone(),
        ..ClusterSettings::default()
    };
    let (to, latest) = watch::channel(None);
    runtime.spawn(cluster::follow(access, settings, lookups, to, stop));
    Ok(latest)
}

/// Waits for signals; what cannot be waited for is told.
async fn signals(asks: mpsc::Sender<Asked>) {
    let kinds = (SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup());
    let (mut terminate, mut interrupt, mut hangup) = match (signal(kinds.0), signal(kinds.1), signal(kinds.2))
    {
        (Ok(terminate), Ok(interrupt), Ok(hangup)) => (terminate, interrupt, hangup),
        _ => return log("signals cannot be waited for: only SIGKILL ends this agent"),
    };
    loop {
        let asked = tokio::select! {
            _ = terminate.recv() => Asked::Stop,
            _ = interrupt.recv() => Asked::Stop,
            _ = hangup.recv() => Asked::Reload,
        };
        if asks.send(asked).await.is_err() {
            return;
        }
    }
}

/// Waits on a thread that has no runtime of its own.
pub(super) struct Waiting(Runtime);

impl Waiting {
    pub(super) fn new() -> Result<Self, AgentError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.map(Self).map_err(AgentError::Threads)
    }

    /// What comes of it; `None`: not in time.
    pub(super) fn within<T>(&self, time: Duration, what: impl Future<Output = T>) -> Option<T> {
        self.0.block_on(async { tokio::time::timeout(time, what).await.ok() })
    }
}

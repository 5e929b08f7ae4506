//! The agent's thread that talks to the network: signals, the HTTP port, Hubble, the cluster's API server. Enters: a
//! configuration; leaves: what was told, through bounded channels. The one place that spawns.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use firedoor_core::observation::SourceKind;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::board::Board;
use super::gpus::Gpus;
use super::supply::Supply;
use super::{AgentError, http, now};
use crate::cluster::{self, Access, ClusterSettings, Credentials, Lookup, Snapshot};
use crate::config::Config;
use crate::source::gpu;
use crate::source::hubble::{
    self, BadAddress, HubbleSettings, Identity, Interest, ServerName, SourceState, TlsSettings, Told, Written,
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
/// When Hubble is followed again after following it failed by itself.
const AGAIN: Duration = Duration::from_secs(30);

/// What the observer is asked to do.
pub(super) enum Asked {
    /// To end, because of this signal.
    Stop(&'static str),
    /// To read its configuration again.
    Reload,
    /// To end as well: a part of the agent did that never should.
    GiveUp {
        /// What it did.
        part: &'static str,
        /// How it ended.
        why: String,
    },
    /// To tell what it saw, as JSON for others to join with theirs.
    Windows(oneshot::Sender<Bytes>),
}

/// The other thread, as the observer sees it.
pub(super) struct Outside {
    pub(super) asked: mpsc::Receiver<Asked>,
    /// What Hubble tells; nothing where it is no source.
    pub(super) told: mpsc::Receiver<Told>,
    tells: watch::Sender<mpsc::Sender<Told>>,
    /// Set while it is asked to read its configuration again.
    pub(super) reload: Arc<AtomicBool>,
    pub(super) interest: watch::Sender<Arc<Interest>>,
    pub(super) lookups: mpsc::Sender<Lookup>,
    /// What tells of the cluster.
    pub(super) supply: Supply,
    /// What tells of GPUs.
    pub(super) gpus: Gpus,
    /// Where HTTP is served.
    pub(super) address: SocketAddr,
    /// Dropped: the thread ends, and what it does before.
    _stop: watch::Sender<()>,
}

/// The other ends of the channels.
struct Ends {
    asks: mpsc::Sender<Asked>,
    /// Where to tell it; another one when following begins anew.
    tells: watch::Receiver<mpsc::Sender<Told>>,
    reload: Arc<AtomicBool>,
    interest: watch::Receiver<Arc<Interest>>,
    lookups: mpsc::Receiver<Lookup>,
    stop: watch::Receiver<()>,
}

impl Outside {
    /// Hubble is followed anew, and nothing of what was told before is taken any more.
    pub(super) fn follow_anew(&mut self) {
        let (to, told) = mpsc::channel(BATCHES);
        self.told = told;
        self.tells.send_replace(to);
    }
}

/// What the thread is made of.
pub(super) struct Network {
    runtime: Runtime,
    hangup: Signal,
}

impl Network {
    /// From here on SIGHUP does not end the process, whatever is still to be done before it is heeded.
    pub(super) fn new() -> Result<Self, AgentError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(AgentError::Threads)?;
        let inside = runtime.enter();
        let hangup = signal(SignalKind::hangup()).map_err(AgentError::Threads)?;
        drop(inside);
        Ok(Self { runtime, hangup })
    }
}

impl Outside {
    /// Starts the thread.
    pub(super) fn start(network: Network, config: &Config, board: &Arc<Board>) -> Result<Self, AgentError> {
        let (asks, asked) = mpsc::channel(ASKED);
        let (told_to, told) = mpsc::channel(BATCHES);
        let (tells, telling) = watch::channel(told_to);
        let reload = Arc::new(AtomicBool::new(false));
        let (interest, interesting) = watch::channel(Arc::new(Interest::default()));
        let (lookups, looked_up) = mpsc::channel(LOOKUPS);
        let (stop, stopped) = watch::channel(());
        let ends = Ends {
            asks,
            tells: telling,
            reload: Arc::clone(&reload),
            interest: interesting,
            lookups: looked_up,
            stop: stopped,
        };
        let (address, supply, gpus) = begin(network, config, board, ends)?;
        Ok(Self { asked, told, tells, reload, interest, lookups, supply, gpus, address, _stop: stop })
    }
}

/// Spawns everything, and then the thread that drives it.
fn begin(
    network: Network,
    config: &Config,
    board: &Arc<Board>,
    ends: Ends,
) -> Result<(SocketAddr, Supply, Gpus), AgentError> {
    let Network { runtime, hangup } = network;
    let inside = runtime.enter();
    let listen = config.agent.listen;
    let listener = std::net::TcpListener::bind(listen)
        .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
        .map_err(|why| AgentError::Listen { address: listen, why })?;
    let address = listener.local_addr().map_err(|why| AgentError::Listen { address: listen, why })?;
    let mut parts = Parts::default();
    parts.add("serves HTTP", runtime.spawn(serve(listener, Arc::clone(board), ends.asks.clone())?));
    if config.agent.sources.contains(&SourceKind::Hubble) {
        let settings = hubble_settings(config)?;
        let following = follow_hubble(settings, ends.interest, ends.tells, ends.stop.clone());
        parts.add("follows Hubble", runtime.spawn(following));
    }
    let supply = match &config.agent.inventory {
        Some(directory) => Supply::directory(directory)
            .map_err(|why| AgentError::Inventory { path: directory.clone(), why })?,
        None => {
            let (to, latest) = watch::channel(None);
            let follow = cluster_follower(&runtime, config, ends.lookups, to, ended(ends.stop.clone()))?;
            parts.add("follows the API server", runtime.spawn(follow));
            Supply::Cluster(latest)
        }
    };
    // Last: until then SIGTERM ends the process as if it had no handler.
    let (exporter, exporters) = watch::channel(config.gpu.exporter.clone());
    let (to, latest) = watch::channel(None);
    let asking = gpu::follow(exporters, config.gpu.scrape_every, to, ended(ends.stop.clone()));
    parts.add("asks for the GPUs", runtime.spawn(asking));
    let gpus = Gpus::new(&config.gpu, exporter, latest);
    let heed = |kind| signal(kind).map_err(AgentError::Threads);
    let (terminate, interrupt) = (heed(SignalKind::terminate())?, heed(SignalKind::interrupt())?);
    let heeding = signals(terminate, interrupt, (hangup, ends.reload), ends.asks.clone());
    parts.add("waits for signals", runtime.spawn(heeding));
    drop(inside);
    let drive = move || {
        runtime.block_on(async {
            tokio::select! {
                biased;
                () = ended(ends.stop) => {}
                (part, why) = parts.first_ended() => {
                    // Nobody to tell: the agent ends anyway.
                    let _ = ends.asks.send(Asked::GiveUp { part, why }).await;
                }
            }
        });
        runtime.shutdown_timeout(ENDING);
    };
    std::thread::Builder::new().name("outside".to_owned()).spawn(drive).map_err(AgentError::Threads)?;
    Ok((address, supply, gpus))
}

/// What runs as long as the agent does, by what it does.
#[derive(Default)]
struct Parts(Vec<(&'static str, JoinHandle<()>)>);

impl Parts {
    fn add(&mut self, does: &'static str, part: JoinHandle<()>) {
        self.0.push((does, part));
    }

    /// The first one that ends: what it did, and how it ended.
    async fn first_ended(self) -> (&'static str, String) {
        let ends = self.0.into_iter().map(|(does, part)| {
            Box::pin(async move { (does, part.await.err().map_or("done".to_owned(), |why| why.to_string())) })
        });
        futures_util::future::select_all(ends).await.0
    }
}

/// Serves HTTP on a thread of its own: pages may be large, and whoever asks for many holds up nothing but other pages. Gives
/// back what ends when that does.
fn serve(
    listener: std::net::TcpListener,
    board: Arc<Board>,
    asks: mpsc::Sender<Asked>,
) -> Result<impl Future<Output = ()> + Send + 'static, AgentError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(AgentError::Threads)?;
    let (ends, ended) = oneshot::channel::<()>();
    let serving = move || {
        let _ends = ends;
        runtime.block_on(http::serve(listener, board, asks));
    };
    std::thread::Builder::new().name("http".to_owned()).spawn(serving).map_err(AgentError::Threads)?;
    Ok(async move {
        // Nothing is ever sent: the sender goes.
        let _ = ended.await;
    })
}

/// Follows Hubble until the agent ends. It reads what strangers send: should that ever break it, the agent has one source
/// less for a while, and not more than that.
async fn follow_hubble(
    settings: HubbleSettings,
    interest: watch::Receiver<Arc<Interest>>,
    mut tells: watch::Receiver<mpsc::Sender<Told>>,
    stop: watch::Receiver<()>,
) {
    loop {
        let to = tells.borrow_and_update().clone();
        let (interest, stop) = (interest.clone(), ended(stop.clone()));
        let mut following = tokio::spawn(hubble::follow(settings.clone(), interest, to.clone(), stop));
        let ended = tokio::select! {
            ended = &mut following => ended,
            changed = tells.changed() => {
                following.abort();
                match changed {
                    Ok(()) => continue,
                    Err(_) => return,
                }
            }
        };
        let Err(why) = ended else { return };
        let why = format!("a fault of firedoor, please report it: {why}");
        if to.send(Told::State(SourceState::Down { since: now(), why })).await.is_err() {
            return;
        }
        tokio::time::sleep(AGAIN).await;
    }
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

/// What follows the cluster, once there is a way to its API server.
fn cluster_follower(
    runtime: &Runtime,
    config: &Config,
    lookups: mpsc::Receiver<Lookup>,
    to: watch::Sender<Option<Arc<Snapshot>>>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<impl Future<Output = ()> + Send + 'static, AgentError> {
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
    Ok(cluster::follow(access, settings, lookups, to, stop))
}

async fn signals(
    mut terminate: Signal,
    mut interrupt: Signal,
    (mut hangup, reload): (Signal, Arc<AtomicBool>),
    asks: mpsc::Sender<Asked>,
) {
    loop {
        let asked = tokio::select! {
            _ = terminate.recv() => Asked::Stop("SIGTERM"),
            _ = interrupt.recv() => Asked::Stop("SIGINT"),
            // Once is enough, however often it is asked for before it is done.
            _ = hangup.recv() => match reload.swap(true, Ordering::Relaxed) {
                true => continue,
                false => Asked::Reload,
            },
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_dies_is_found_out() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut parts = Parts::default();
        parts.add("goes on", runtime.spawn(std::future::pending()));
        parts.add("dies", runtime.spawn(async { panic!("of this") }));
        let (part, why) = runtime.block_on(parts.first_ended());
        assert_eq!(part, "dies");
        assert!(why.contains("of this"), "{why}");
    }
}

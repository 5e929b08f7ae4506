//! What goes on beside a stream: whether the server lives, how full its ring is, whether the question or the certificates
//! changed. Enters: timers and answers; leaves: one chore at a time. Must not read flows.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use firedoor_core::inventory::node_name;
use firedoor_proto::observer::observer_client::ObserverClient;
use firedoor_proto::observer::{GetNodesRequest, Node, ServerStatusRequest, ServerStatusResponse};
use tokio::sync::watch;
use tokio::time::{Interval, MissedTickBehavior};
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

use super::call;
use super::continuity::{Asked, Ring};
use super::interest::Interest;
use super::settings::HubbleSettings;

/// A relay asks all its nodes for this: every so many heartbeats.
const NODES_EVERY: u32 = 6;

/// A server's rings: of each node, by name; of the server itself without one.
pub(super) type Rings = Vec<(String, Ring, Asked)>;

/// Something to do.
pub(super) enum Chore {
    /// The server answered.
    Alive(Rings),
    /// It did not, or said that it cannot.
    Dead(String),
    /// Time has passed.
    Tick,
    /// The question changed.
    Interest,
    /// Nobody asks any more.
    Closed,
    /// Time to look at the certificates.
    Files,
}

type Beat = Pin<Box<dyn Future<Output = Result<Rings, String>> + Send>>;

/// Timers and questions that go on while a connection lasts.
pub(super) struct House {
    channel: Channel,
    relay: bool,
    timeout: Duration,
    beats: u32,
    beat: Option<Beat>,
    due: Interval,
    tick: Interval,
    files: Option<Interval>,
}

impl House {
    pub(super) fn new(channel: Channel, relay: bool, settings: &HubbleSettings) -> Self {
        let every = |period: Duration| {
            let period = period.max(Duration::from_millis(1));
            let mut interval = tokio::time::interval_at(tokio::time::Instant::now() + period, period);
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
            interval
        };
        Self {
            channel,
            relay,
            timeout: settings.ping_timeout,
            beats: 0,
            beat: None,
            due: every(settings.status_every),
            tick: every(settings.settle / 2),
            files: settings.tls.is_some().then(|| every(settings.files_every)),
        }
    }

    /// What is to do next. Nothing is lost when it is dropped before that.
    pub(super) async fn next(&mut self, interest: &mut watch::Receiver<Arc<Interest>>) -> Chore {
        loop {
            let beating = self.beat.is_some();
            tokio::select! {
                answer = answer_of(&mut self.beat), if beating => {
                    self.beat = None;
                    return match answer {
                        Ok(rings) => Chore::Alive(rings),
                        Err(why) => Chore::Dead(why),
                    };
                }
                _ = self.due.tick(), if !beating => {
                    let nodes = self.beats.is_multiple_of(NODES_EVERY);
                    self.beats = self.beats.wrapping_add(1);
                    self.beat = Some(Box::pin(beat(self.channel.clone(), self.relay, nodes, self.timeout)));
                }
                changed = interest.changed() => {
                    return if changed.is_ok() { Chore::Interest } else { Chore::Closed };
                }
                _ = self.tick.tick() => return Chore::Tick,
                () = tick_of(&mut self.files) => return Chore::Files,
            }
        }
    }
}

async fn answer_of(beat: &mut Option<Beat>) -> Result<Rings, String> {
    match beat {
        Some(beat) => beat.await,
        None => std::future::pending().await,
    }
}

async fn tick_of(interval: &mut Option<Interval>) {
    match interval {
        Some(interval) => drop(interval.tick().await),
        None => std::future::pending().await,
    }
}

async fn beat(channel: Channel, relay: bool, nodes: bool, timeout: Duration) -> Result<Rings, String> {
    let ask = async {
        if !relay {
            let (asked, status) =
                asking(ObserverClient::new(channel).server_status(ServerStatusRequest {})).await;
            return status.map(|status| vec![(String::new(), ring_of(status.get_ref()), asked)]);
        }
        call::call(&channel, call::HEALTH, &()).await.map(drop).or_else(alive)?;
        if !nodes {
            return Ok(Vec::new());
        }
        let (asked, nodes) = asking(ObserverClient::new(channel).get_nodes(GetNodesRequest {})).await;
        nodes.map(|nodes| rings_of(&nodes.get_ref().nodes, asked))
    };
    match tokio::time::timeout(timeout, ask).await {
        Ok(Ok(rings)) => Ok(rings),
        Ok(Err(status)) => alive(status).map(|()| Vec::new()).map_err(|status| told(&status)),
        Err(_) => Err(format!("no answer within {timeout:?}")),
    }
}

/// Whoever says that it does not know a call lives.
fn alive(status: Status) -> Result<(), Status> {
    match status.code() {
        Code::Unavailable | Code::Unknown | Code::Internal | Code::Cancelled => Err(status),
        _ => Ok(()),
    }
}

/// Asks, and notes when.
pub(super) async fn asking<T>(
    question: impl Future<Output = Result<Response<T>, Status>>,
) -> (Asked, Result<Response<T>, Status>) {
    let at = Instant::now();
    let answer = question.await;
    (Asked { at, answered: Instant::now() }, answer)
}

pub(super) fn ring_of(status: &ServerStatusResponse) -> Ring {
    Ring {
        seen: status.seen_flows,
        held: status.num_flows,
        room: status.max_flows,
        uptime: Duration::from_nanos(status.uptime_ns),
    }
}

pub(super) fn rings_of(nodes: &[Node], asked: Asked) -> Rings {
    // A node that the relay cannot reach is told with zeroes.
    let told = nodes.iter().filter(|node| node.max_flows > 0);
    told.map(|node| {
        let ring = Ring {
            seen: node.seen_flows,
            held: node.num_flows,
            room: node.max_flows,
            uptime: Duration::from_nanos(node.uptime_ns),
        };
        (node_name(&node.name).to_owned(), ring, asked)
    })
    .collect()
}

/// What a server said, for a person.
pub(super) fn told(status: &Status) -> String {
    let text = match (std::error::Error::source(status), status.message(), status.code()) {
        (Some(cause), ..) => super::connect::chain(cause),
        // A stream that is over, with nothing wrong: the code's own text speaks of success.
        (None, "", Code::Ok) => "the server ended the stream".to_owned(),
        (None, "", code) => code.to_string(),
        (None, message, Code::Unavailable | Code::Unknown) => message.to_owned(),
        (None, message, code) => format!("{message} ({code:?})"),
    };
    if text.contains("ertificateRequired") || text.contains("certificate required") {
        return format!("the server asks for a client certificate: {text}");
    }
    text
}

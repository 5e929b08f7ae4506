//! One connection after the other. Enters: a server's answers; leaves: what is told of them, in order. The one place that
//! decides when to connect, what to ask, and when to give up.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use firedoor_core::time::Timestamp;
use firedoor_proto::observer::GetFlowsRequest;
use firedoor_proto::observer::observer_client::ObserverClient;
use firedoor_proto::observer::{GetNodesRequest, ServerStatusRequest};
use futures_util::FutureExt as _;
use tokio::sync::{mpsc, watch};
use tonic::Code;
use tonic::transport::Channel;

use super::backoff::Backoff;
use super::batch::Lost;
use super::call::{self, Answer};
use super::connect::connect;
use super::continuity::Continuity;
use super::house::{Chore, House, asking, ring_of, rings_of, told};
use super::intake::{Filled, Intake};
use super::interest::{Asked, Interest};
use super::settings::HubbleSettings;
use super::tls::Credentials;
use super::{Certificate, Role, Server, SourceState, Told, version};

/// What was asked for only lately may be answered with what happened this long before.
const LOOK_BACK: Duration = Duration::from_secs(30);

/// Why a connection is over.
enum Ended {
    /// It broke, or never was.
    Broken(String),
    /// New certificates are there.
    Renewed,
    /// Nobody listens any more.
    Closed,
}

/// Why a stream is over.
enum Left {
    Connection(Ended),
    /// The question changed.
    Interest,
    /// The server does not take the field mask.
    Unmasked,
}

impl From<mpsc::error::SendError<Told>> for Ended {
    fn from(_: mpsc::error::SendError<Told>) -> Self {
        Self::Closed
    }
}

impl From<Ended> for Left {
    fn from(ended: Ended) -> Self {
        Self::Connection(ended)
    }
}

/// Follows a server through all its connections.
pub(super) struct Source {
    settings: HubbleSettings,
    interest: watch::Receiver<Arc<Interest>>,
    to: mpsc::Sender<Told>,
    continuity: Continuity,
    credentials: Option<Credentials>,
    /// Why the certificates that are there now cannot be used.
    problem: Option<String>,
    /// What was asked for last.
    asked: Option<Arc<Interest>>,
    /// The version of a server that refused the field mask.
    refused_mask: Option<Option<String>>,
    down: Option<Timestamp>,
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::MIN.plus(since)
}

impl Source {
    pub(super) fn new(
        settings: HubbleSettings,
        interest: watch::Receiver<Arc<Interest>>,
        to: mpsc::Sender<Told>,
    ) -> Self {
        Self {
            settings,
            interest,
            to,
            continuity: Continuity::new(),
            credentials: None,
            problem: None,
            asked: None,
            refused_mask: None,
            down: None,
        }
    }

    pub(super) async fn run(mut self) {
        let mut backoff =
            Backoff::new(self.settings.backoff_min, self.settings.backoff_max, &self.settings.node);
        loop {
            let began = Instant::now();
            let why = match self.connection().await {
                Ended::Closed => return,
                Ended::Renewed => continue,
                Ended::Broken(why) => format!("{}: {why}", self.settings.address),
            };
            let since = *self.down.get_or_insert_with(now);
            if self.to.send(Told::State(SourceState::Down { since, why })).await.is_err() {
                return;
            }
            if began.elapsed() >= self.settings.healthy_after {
                backoff.reset();
            }
            tokio::time::sleep(backoff.next()).await;
        }
    }

    async fn connection(&mut self) -> Ended {
        match self.connected().await {
            Ok(never) => match never {},
            Err(ended) => ended,
        }
    }

    async fn connected(&mut self) -> Result<std::convert::Infallible, Ended> {
        self.look_at_files().await?;
        let tls = match (&self.settings.tls, &self.credentials) {
            (None, _) => None,
            (Some(tls), Some(credentials)) => {
                Some((Arc::clone(&credentials.config), self.settings.server_name(tls)))
            }
            (Some(_), None) => return Err(Ended::Broken(self.problem.clone().unwrap_or_default())),
        };
        let channel = connect(&self.settings, tls).await.map_err(|why| Ended::Broken(self.hint(why)))?;
        let server = self.greet(&channel).await.map_err(|why| Ended::Broken(self.hint(why)))?;
        let version = server.version.clone();
        let relay = server.role != Role::Node;
        self.down = None;
        self.to.send(Told::State(SourceState::Up(server))).await?;
        let mut house = House::new(channel.clone(), relay, &self.settings);
        loop {
            let interest = Arc::clone(&self.interest.borrow_and_update());
            if interest.is_nothing() {
                self.continuity.pause();
                self.idle(&mut house).await?;
                continue;
            }
            let mask = self.settings.field_mask
                && self.refused_mask.as_ref() != Some(&version)
                && version.as_deref().is_some_and(version::takes_field_mask);
            match self.stream(&channel, &mut house, interest, mask).await {
                Left::Connection(ended) => return Err(ended),
                Left::Interest => {}
                Left::Unmasked => self.refused_mask = Some(version.clone()),
            }
        }
    }

    /// What to try, where the server itself says little.
    fn hint(&self, why: String) -> String {
        let says = |words: &str| why.contains(words);
        let tcp = matches!(self.settings.address, super::Address::Tcp { .. });
        let what = match (&self.settings.tls, &self.settings.address) {
            (Some(_), _) if says("invalid peer certificate") => {
                "is this the right server? Check its name and the authorities to believe"
            }
            // What rustls says of a record that is none.
            (Some(_), _) if says("InvalidContentType") => "this server speaks no TLS: leave tls:// away",
            _ if tcp && says("Connection refused") => "does the server run, and is this its port?",
            _ if tcp && says("lookup") => "is this its name, and can it be resolved from here?",
            _ if tcp && (says("timed out") || says("unreachable")) => "can it be reached from here?",
            (Some(tls), _) if tls.identity.is_none() => {
                "the server may ask for a client certificate: configure one"
            }
            (Some(_), _) => "does the server believe the client certificate, and does it speak TLS?",
            (None, super::Address::Unix(_)) => "is Hubble enabled on this node, and its socket mounted here?",
            (None, super::Address::Tcp { .. }) => "the server may want TLS: write tls:// before the address",
        };
        format!("{why} ({what})")
    }

    /// Reads the certificates, if they changed; `true`: they did, and can be used.
    async fn look_at_files(&mut self) -> Result<bool, Ended> {
        let Some(tls) = &self.settings.tls else { return Ok(false) };
        let read = Credentials::read(tls, self.credentials.as_ref());
        let (changed, problem) = match read {
            Ok(None) => (false, None),
            Ok(Some(new)) => {
                self.credentials = Some(new);
                (true, None)
            }
            Err(why) => (false, Some(why.to_string())),
        };
        if changed || problem != self.problem {
            self.problem.clone_from(&problem);
            let expires = self.credentials.as_ref().and_then(|credentials| credentials.expires);
            self.to.send(Told::Certificate(Certificate { expires, problem })).await?;
        }
        Ok(changed)
    }

    /// Finds out what the server is. Old servers do not know every question.
    async fn greet(&mut self, channel: &Channel) -> Result<Server, String> {
        let patience = self.settings.ping_timeout;
        let late = || format!("no answer within {patience:?}");
        let mut client = ObserverClient::new(channel.clone());
        let asking_status = asking(client.server_status(ServerStatusRequest {}));
        let (asked, status) = tokio::time::timeout(patience, asking_status).await.map_err(|_| late())?;
        let (mut version, mut relay, mut connected, mut unavailable) = (None, false, None, Vec::new());
        let mut ring = None;
        match status {
            Ok(response) => {
                let of = |name: &str| response.metadata().get(name)?.to_str().ok().map(str::to_owned);
                let (of_server, of_relay) = (of("hubble-server-version"), of("hubble-relay-version"));
                let status = response.get_ref();
                relay = of_relay.is_some() || status.num_connected_nodes.is_some();
                connected = status.num_connected_nodes;
                unavailable.clone_from(&status.unavailable_nodes);
                let told = Some(status.version.clone()).filter(|version| !version.is_empty());
                version = of_relay.or(of_server).or(told);
                ring = Some((ring_of(status), asked));
            }
            Err(status) if status.code() == Code::Unimplemented => {}
            Err(status) => return Err(told(&status)),
        }
        let asking_nodes = asking(client.get_nodes(GetNodesRequest {}));
        let (asked, nodes) = tokio::time::timeout(patience, asking_nodes).await.map_err(|_| late())?;
        relay |= nodes.is_ok();
        self.continuity.set_relay(relay);
        match (nodes, ring) {
            (Ok(nodes), _) => {
                for (node, ring, asked) in rings_of(&nodes.get_ref().nodes, asked) {
                    self.continuity.ring(&node, ring, asked);
                }
            }
            (Err(_), Some((ring, asked))) if !relay => self.continuity.ring("", ring, asked),
            (Err(_), _) => {}
        }
        let role = if relay { Role::Relay { connected, unavailable } } else { Role::Node };
        Ok(Server { version, role })
    }

    /// Nothing is of interest: stays connected, so that it is known whether the server is there.
    async fn idle(&mut self, house: &mut House) -> Result<(), Ended> {
        loop {
            match house.next(&mut self.interest).await {
                Chore::Interest => return Ok(()),
                other => self.chore(other).await?,
            }
        }
    }

    async fn chore(&mut self, chore: Chore) -> Result<(), Ended> {
        match chore {
            Chore::Alive(rings) => {
                for (node, ring, asked) in rings {
                    self.continuity.ring(&node, ring, asked);
                }
            }
            Chore::Dead(why) => return Err(Ended::Broken(why)),
            Chore::Closed => return Err(Ended::Closed),
            Chore::Files => {
                if self.look_at_files().await? {
                    return Err(Ended::Renewed);
                }
            }
            Chore::Tick | Chore::Interest => {}
        }
        Ok(())
    }

    /// What to ask the server.
    fn question(&mut self, interest: &Arc<Interest>, mask: bool) -> GetFlowsRequest {
        let floor = match &self.asked {
            None => Some(now().minus(self.settings.history)),
            Some(before) if before == interest => None,
            Some(_) => {
                let newest = self.continuity.newest().map(|newest| newest.minus(LOOK_BACK));
                Some(newest.unwrap_or_else(|| now().minus(self.settings.history)))
            }
        };
        self.asked = Some(Arc::clone(interest));
        let paths = version::FIELDS.iter().map(|path| (*path).to_owned()).collect();
        GetFlowsRequest {
            number: self.continuity.begin(Instant::now(), floor),
            follow: true,
            whitelist: interest.whitelist(self.settings.filter_names),
            field_mask: mask.then_some(prost_types::FieldMask { paths }),
            ..GetFlowsRequest::default()
        }
    }

    async fn stream(
        &mut self,
        channel: &Channel,
        house: &mut House,
        interest: Arc<Interest>,
        mask: bool,
    ) -> Left {
        let question = self.question(&interest, mask);
        let calling = call::call(channel, call::GET_FLOWS, &question);
        // The answer begins with its first event: until then other things may happen.
        let mut calling = std::pin::pin!(calling);
        let answer = loop {
            tokio::select! {
                biased;
                answer = &mut calling => break answer,
                chore = house.next(&mut self.interest) => match chore {
                    Chore::Interest => return Left::Interest,
                    Chore::Tick => self.continuity.drained(Instant::now(), self.settings.settle),
                    other => {
                        if let Err(ended) = self.chore(other).await {
                            return ended.into();
                        }
                    }
                },
            }
        };
        match answer {
            Ok(answer) => self.read(answer, house, Arc::new(Asked::of(&interest))).await,
            Err(status) if mask && status.code() == Code::InvalidArgument => Left::Unmasked,
            Err(status) => Ended::Broken(told(&status)).into(),
        }
    }

    /// Reads a stream as fast as what it tells is taken.
    async fn read(&mut self, answer: Answer, house: &mut House, asked: Arc<Asked>) -> Left {
        let mut intake = Intake::new(answer, &self.settings, asked);
        loop {
            let filled = tokio::select! {
                biased;
                filled = poll_fn(|context| intake.fill(context, &mut self.continuity)) => Ok(filled),
                chore = house.next(&mut self.interest) => Err(chore),
            };
            let left = match filled {
                Ok(filled) => self.pass_on(&mut intake, house, filled).await,
                Err(Chore::Interest) => Err(Left::Interest),
                Err(Chore::Tick) => {
                    // Nothing more was there when it was looked.
                    self.continuity.drained(Instant::now(), self.settings.settle);
                    self.tell(&mut intake).await.map_err(Left::from)
                }
                Err(chore) => self.chore(chore).await.map_err(Left::from),
            };
            if let Err(left) = left {
                return left;
            }
        }
    }

    async fn pass_on(&mut self, intake: &mut Intake, house: &mut House, filled: Filled) -> Result<(), Left> {
        if filled == Filled::Drained {
            self.continuity.drained(Instant::now(), self.settings.settle);
        }
        self.tell(intake).await?;
        match filled {
            Filled::Ended(why) => Err(Ended::Broken(why).into()),
            Filled::Drained => Ok(()),
            // A stream that never pauses must not hold up the rest.
            Filled::Full => match house.next(&mut self.interest).now_or_never() {
                Some(Chore::Interest) => Err(Left::Interest),
                Some(chore) => Ok(self.chore(chore).await?),
                None => Ok(()),
            },
        }
    }

    async fn tell(&mut self, intake: &mut Intake) -> Result<(), Ended> {
        for (node, gap) in self.continuity.gaps() {
            intake.batch.lose(Lost { node: node.to_owned(), cause: gap.cause, at: gap.at, count: gap.count });
        }
        if !intake.batch.is_empty() {
            self.to.send(Told::Batch(intake.take())).await?;
        }
        for (at, nodes) in intake.sees.drain(..) {
            self.to.send(Told::Sees { at, nodes }).await?;
        }
        Ok(())
    }
}

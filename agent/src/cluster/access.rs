//! The way to the API server: clients, and their credentials while they are good. Enters: where the credentials are;
//! leaves: the clients of this moment, made anew when the credentials run out, are replaced or refused. Must not know
//! what is asked.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kube::{Client, Config};
use secrecy::ExposeSecret as _;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use firedoor_core::time::Timestamp;

use super::apart::{Apart, NoResult};
use super::credentials::{self, Credentials, Fault, Found};
use super::now;
use crate::capture::shown;
use crate::harmless::harmless;

/// Credentials are not read again more often than this, and not for more than half of the time.
const PAUSE: Duration = Duration::from_secs(1);
/// The pause doubles with every failure, up to this: a plugin that fails may cost a second of a processor each time.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long reading them, a plugin included, may take.
const LIMIT: Duration = Duration::from_secs(30);
/// What the rest may take when a plugin took all of that.
const GRACE: Duration = Duration::from_secs(2);
/// How old a token may become whose file gets a new one now and then: what Kubernetes' own clients do.
const REPLACED: Duration = Duration::from_secs(60);

/// Why the API server cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// Not in a pod, or its service account is not mounted.
    #[error(
        "cannot use this pod's service account: {0}. Outside of a cluster give --kubeconfig; inside, leave automountServiceAccountToken on"
    )]
    InCluster(String),
    /// The kubeconfig cannot be used.
    #[error("cannot use the kubeconfig{}: {why}", path.as_deref().map_or(String::new(), |p| format!(" {}", shown(p))))]
    Kubeconfig {
        /// The file; `None`: what `KUBECONFIG` or the home directory has.
        path: Option<PathBuf>,
        /// What is wrong.
        why: String,
    },
}

impl AccessError {
    fn of(credentials: &Credentials, why: &Fault) -> Self {
        let why = harmless(&why.to_string());
        match credentials {
            Credentials::ServiceAccount => Self::InCluster(why),
            Credentials::Kubeconfig { path, .. } => Self::Kubeconfig { path: path.clone(), why },
        }
    }
}

/// Clients that can be made anew.
#[derive(Clone)]
pub struct Access {
    inner: Arc<Inner>,
}

struct Inner {
    /// `None`: the clients were made elsewhere.
    credentials: Option<Credentials>,
    limit: Duration,
    apart: Arc<Apart>,
    current: Mutex<Current>,
    /// Told whenever credentials were read again, or could not be.
    read: Notify,
}

struct Current {
    clients: Clients,
    times: Times,
    /// Whether they are being read again.
    reading: bool,
    /// Until then they are not read again.
    not_before: Instant,
    /// Why they could not be, the last time.
    trouble: Option<String>,
    /// How often they could not be, one time after the other.
    failures: u32,
}

/// A connection's buffer grows with the largest answer, and stays. Most connections are watches, which last and carry
/// little: they begin with a connection of their own.
#[derive(Clone)]
pub(super) struct Clients {
    /// For answers that end.
    pub(super) answers: Client,
    /// For those that go on.
    pub(super) watches: Client,
    /// What they and the server prove themselves with.
    proof: Proof,
    /// Which ones these are.
    number: u64,
}

/// A token, a certificate, and whom the server is believed: its authority may be replaced, too.
#[derive(Clone, PartialEq, Eq, Default)]
struct Proof {
    token: Option<String>,
    certificate: Option<String>,
    authorities: Option<Vec<Vec<u8>>>,
}

/// How long credentials are good.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Times {
    /// From when on others are looked for.
    due: Option<Timestamp>,
    /// When they run out.
    over: Option<Timestamp>,
}

impl Times {
    /// A minute before they run out, or the last quarter of a shorter life.
    fn of(until: Option<Timestamp>, is_replaced: bool, now: Timestamp) -> Self {
        let early = |until: Timestamp| until.minus(REPLACED.min(until.since(now) / 4));
        Self { due: until.map(early).or(is_replaced.then(|| now.plus(REPLACED))), over: until }
    }
}

/// What came of reading credentials.
struct Made {
    /// `None`: they prove what is proven already.
    clients: Option<(Client, Client)>,
    proof: Proof,
    times: Times,
}

impl Access {
    /// Clients with these credentials.
    ///
    /// # Errors
    /// When they are not there, are none, or cannot be had within half a minute.
    pub async fn new(credentials: Credentials) -> Result<Self, AccessError> {
        Self::within(credentials, LIMIT).await
    }

    /// The same with another limit to how long reading them, and running a plugin, may take, now and later.
    ///
    /// # Errors
    /// When they are not there, are none, or cannot be had in time.
    pub async fn within(credentials: Credentials, limit: Duration) -> Result<Self, AccessError> {
        let apart = Arc::new(Apart::default());
        let made = make(&apart, &credentials, limit, None).await?;
        let Some((answers, watches)) = made.clients else {
            return Err(AccessError::of(&credentials, &Fault::Other("no client was made".to_owned())));
        };
        let clients = Clients { answers, watches, proof: made.proof, number: 0 };
        Ok(Self::of(clients, made.times, Some(credentials), limit, apart))
    }

    /// A client that was made elsewhere and stays as it is.
    #[must_use]
    pub fn fixed(client: Client) -> Self {
        let (answers, watches) = (client.clone(), client);
        let clients = Clients { answers, watches, proof: Proof::default(), number: 0 };
        Self::of(clients, Times::default(), None, LIMIT, Arc::default())
    }

    fn of(
        clients: Clients,
        times: Times,
        credentials: Option<Credentials>,
        limit: Duration,
        apart: Arc<Apart>,
    ) -> Self {
        let not_before = Instant::now() + PAUSE;
        let current = Current { clients, times, reading: false, not_before, trouble: None, failures: 0 };
        let (current, read) = (Mutex::new(current), Notify::new());
        Self { inner: Arc::new(Inner { credentials, limit, apart, current, read }) }
    }

    /// The clients of this moment: take them anew for every request. Credentials that have run out are waited for; others
    /// are looked for meanwhile.
    pub(super) async fn clients(&self) -> Clients {
        let Times { due, over } = self.current().times;
        let now = now();
        if over.is_some_and(|over| over <= now) {
            self.read_again(false).await;
        } else if due.is_some_and(|due| due <= now) {
            self.begin(false);
        }
        self.current().clients.clone()
    }

    /// The server refused these clients' credentials: reads them again. Whether there are newer clients now.
    pub(super) async fn renew(&self, refused: &Clients) -> bool {
        let is_newer = |access: &Self| access.current().clients.number != refused.number;
        if !is_newer(self) {
            self.read_again(true).await;
        }
        is_newer(self)
    }

    /// Tries again what went wrong, whether or not anything is asked: requests may be minutes apart.
    pub(super) fn mend(&self) {
        if self.trouble().is_some() {
            self.begin(false);
        }
    }

    /// Why the credentials could not be read again, when they could not.
    pub(super) fn trouble(&self) -> Option<String> {
        self.current().trouble.clone()
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.inner.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the credentials again, once for all who wait.
    async fn read_again(&self, anew: bool) {
        let read = self.inner.read.notified();
        if self.begin(anew) {
            read.await;
        }
    }

    /// Begins to read them, as a task of its own: a request that is waited for no longer must not break it off. Whether
    /// they are being read. `anew`: with new clients even where they are the same.
    fn begin(&self, anew: bool) -> bool {
        let Some(credentials) = &self.inner.credentials else { return false };
        let mut current = self.current();
        if current.reading {
            return true;
        }
        if current.not_before > Instant::now() {
            return false;
        }
        current.reading = true;
        let known = (!anew).then(|| current.clients.proof.clone());
        tokio::spawn(self.clone().read(credentials.clone(), known));
        true
    }

    async fn read(self, credentials: Credentials, known: Option<Proof>) {
        let begun = Instant::now();
        let made = make(&self.inner.apart, &credentials, self.inner.limit, known).await;
        let mut current = self.current();
        current.reading = false;
        match made {
            Ok(Made { clients, proof, times }) => {
                (current.trouble, current.failures) = (None, 0);
                current.times = times;
                if let Some((answers, watches)) = clients {
                    let number = current.clients.number + 1;
                    current.clients = Clients { answers, watches, proof, number };
                }
            }
            Err(why) => {
                current.trouble = Some(why.to_string());
                current.failures = current.failures.saturating_add(1);
            }
        }
        current.not_before = Instant::now() + pause(current.failures).max(begun.elapsed());
        drop(current);
        self.inner.read.notify_waiters();
    }
}

/// Reads credentials and makes clients, apart: files and plugins may hang, and what is outside may be so strange that
/// a client cannot bear it.
async fn make(
    apart: &Apart,
    credentials: &Credentials,
    limit: Duration,
    known: Option<Proof>,
) -> Result<Made, AccessError> {
    // A client's own tasks are the runtime's.
    let (runtime, from) = (Handle::current(), credentials.clone());
    let work = move || {
        let _of_the_runtime = runtime.enter();
        made(credentials::find(&from, limit)?, known.as_ref())
    };
    let made = apart.within(limit + GRACE, work).await;
    let made = made.unwrap_or_else(|why| Err(Fault::Other(no_result(why, limit))));
    made.map_err(|why| AccessError::of(credentials, &why))
}

fn made(found: Found, known: Option<&Proof>) -> Result<Made, Fault> {
    let Found { mut config, until, is_replaced } = found;
    let token = config.auth_info.token.as_ref().map(|token| token.expose_secret().to_owned());
    let certificate = config.auth_info.client_certificate_data.clone();
    let proof = Proof { token, certificate, authorities: config.root_cert.clone() };
    let times = Times::of(until, is_replaced, now());
    if known == Some(&proof) {
        return Ok(Made { clients: None, proof, times });
    }
    // Retries are counted and paced here, request by request.
    config.default_retry = false;
    config.connect_timeout = Some(Duration::from_secs(5));
    let client = |config: Config| {
        let made = Client::try_from(config);
        made.map_err(|why| Fault::Other(format!("no client for the API server can be made of it: {why}")))
    };
    Ok(Made { clients: Some((client(config.clone())?, client(config)?)), proof, times })
}

/// How long credentials are left alone after so many failures.
fn pause(failures: u32) -> Duration {
    PAUSE.saturating_mul(1 << failures.min(16)).min(LONGEST_PAUSE)
}

fn no_result(why: NoResult, limit: Duration) -> String {
    let within = limit.as_secs_f32().ceil();
    match why {
        NoResult::NotInTime => {
            format!("it, or a file that it names, could not be read within {within} s: is it on a drive that hangs?")
        }
        NoResult::Busy => {
            "it, or a file that it names, is still being read since the last time: is it on a drive that hangs?"
                .to_owned()
        }
        NoResult::Broken => "reading it broke off: see what was logged before".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_looked_for_before_they_run_out() {
        let now = Timestamp::parse("2026-11-01T09:00:00Z").unwrap();
        let after = |seconds| now.plus(Duration::from_secs(seconds));
        let hour = Times::of(Some(after(3600)), false, now);
        assert_eq!(hour, Times { due: Some(after(3540)), over: Some(after(3600)) });
        assert_eq!(Times::of(Some(after(40)), false, now).due, Some(after(30)));
        assert_eq!(Times::of(None, true, now), Times { due: Some(after(60)), over: None });
        assert_eq!(Times::of(None, false, now), Times::default());
    }

    #[test]
    fn failures_are_followed_by_longer_pauses() {
        assert_eq!([0, 1, 4, 5, u32::MAX].map(|failures| pause(failures).as_secs()), [1, 2, 16, 30, 30]);
    }
}

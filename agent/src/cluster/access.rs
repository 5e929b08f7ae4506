//! The way to the API server: address, certificates, credentials. Enters: a service account's mount or a kubeconfig;
//! leaves: a client, made anew when its credentials are refused. Must not know what is asked.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// Credentials that were refused are not read again more often than this.
const RENEW_EVERY: Duration = Duration::from_secs(1);

/// Why the API server cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// Not in a pod, or its service account is not mounted.
    #[error(
        "cannot use this pod's service account: {0}. Outside of a cluster give --kubeconfig; inside, leave automountServiceAccountToken on"
    )]
    InCluster(String),
    /// The kubeconfig cannot be used.
    #[error("cannot use the kubeconfig{}: {why}", path.as_deref().map_or(String::new(), |p| format!(" {}", crate::capture::shown(p))))]
    Kubeconfig {
        /// The file; `None`: what `KUBECONFIG` or the home directory has.
        path: Option<PathBuf>,
        /// What is wrong.
        why: String,
    },
    /// No client can be made of them: a certificate that is none, or a key.
    #[error("cannot make a client for the API server: {0}")]
    Client(String),
}

/// Where the credentials come from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Credentials {
    /// The service account that Kubernetes mounts into pods.
    ServiceAccount,
    /// A kubeconfig, for development and for people.
    Kubeconfig {
        /// The file; `None`: `KUBECONFIG`, then `~/.kube/config`, as every client does.
        path: Option<PathBuf>,
        /// The context; `None`: the current one.
        context: Option<String>,
    },
}

/// A client that can be made anew.
#[derive(Clone)]
pub struct Access {
    inner: Arc<Inner>,
}

struct Inner {
    credentials: Option<Credentials>,
    current: Mutex<Current>,
}

struct Current {
    clients: Clients,
    made: Instant,
}

/// A connection's buffer grows with the largest answer, and stays. Most connections are watches, which last and carry
/// little: they begin with a connection of their own.
#[derive(Clone)]
struct Clients {
    answers: Client,
    watches: Client,
}

impl Access {
    /// A client with these credentials.
    ///
    /// # Errors
    /// When they are not there, or are none.
    pub async fn new(credentials: Credentials) -> Result<Self, AccessError> {
        let clients = clients(&credentials).await?;
        Ok(Self::of(clients, Some(credentials)))
    }

    /// A client that was made elsewhere and stays as it is.
    #[must_use]
    pub fn fixed(client: Client) -> Self {
        Self::of(Clients { answers: client.clone(), watches: client }, None)
    }

    fn of(clients: Clients, credentials: Option<Credentials>) -> Self {
        let current = Mutex::new(Current { clients, made: Instant::now() });
        Self { inner: Arc::new(Inner { credentials, current }) }
    }

    /// The client of this moment for answers that end: take it anew for every request.
    #[must_use]
    pub fn client(&self) -> Client {
        self.clients().answers
    }

    /// The client of this moment for watches: take it anew for every request.
    #[must_use]
    pub fn watching_client(&self) -> Client {
        self.clients().watches
    }

    fn clients(&self) -> Clients {
        self.inner.current.lock().unwrap_or_else(PoisonError::into_inner).clients.clone()
    }

    /// The server refused the credentials: reads them again. Whether there is a newer client now.
    pub async fn renew(&self) -> bool {
        let Some(credentials) = &self.inner.credentials else { return false };
        let made = self.inner.current.lock().unwrap_or_else(PoisonError::into_inner).made;
        if made.elapsed() < RENEW_EVERY {
            return false;
        }
        let Ok(clients) = clients(credentials).await else { return false };
        *self.inner.current.lock().unwrap_or_else(PoisonError::into_inner) =
            Current { clients, made: Instant::now() };
        true
    }
}

async fn clients(credentials: &Credentials) -> Result<Clients, AccessError> {
    let mut config = match credentials {
        Credentials::ServiceAccount => {
            Config::incluster_env().map_err(|why| AccessError::InCluster(why.to_string()))?
        }
        Credentials::Kubeconfig { path, context } => kubeconfig(path.as_deref(), context.as_deref())
            .await
            .map_err(|why| AccessError::Kubeconfig { path: path.clone(), why: why.to_string() })?,
    };
    trim_token(&mut config);
    // Retries are counted and paced here, request by request.
    config.default_retry = false;
    config.connect_timeout = Some(Duration::from_secs(5));
    let client =
        |config: Config| Client::try_from(config).map_err(|why| AccessError::Client(why.to_string()));
    Ok(Clients { answers: client(config.clone())?, watches: client(config)? })
}

/// A token with a line's end after it is no header's value. The file is then read here, and again when the token is
/// refused; otherwise the client reads it every minute by itself.
fn trim_token(config: &mut Config) {
    let Some(file) = &config.auth_info.token_file else { return };
    let Ok(token) = std::fs::read_to_string(file) else { return };
    if token.trim() != token {
        config.auth_info.token = Some(token.trim().to_owned().into());
        config.auth_info.token_file = None;
    }
}

async fn kubeconfig(
    path: Option<&Path>,
    context: Option<&str>,
) -> Result<Config, kube::config::KubeconfigError> {
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    match path {
        Some(path) => Config::from_custom_kubeconfig(Kubeconfig::read_from(path)?, &options).await,
        None => Config::from_kubeconfig(&options).await,
    }
}

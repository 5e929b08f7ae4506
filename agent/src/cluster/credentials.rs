//! Credentials as they lie around: a service account's mount, or a kubeconfig with the files and the plugin it names.
//! Enters: where they are; leaves: a configuration in which nothing is left to be read or run, and how long it is good.
//! Blocks, so it runs on a thread of its own. Must not know clients and requests.
//!
//! What is refused here would otherwise panic in the client (a token that is no header's value), be tried for ever (an
//! address of another protocol) or hang (a pipe, a plugin that the client would run by itself).

use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::FutureExt as _;
use http::{HeaderValue, Uri};
use kube::Config;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig, KubeconfigError, LoadDataError};
use secrecy::ExposeSecret as _;
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::CertificateDer;

use firedoor_core::time::Timestamp;

use super::plugin::{self, PluginFault};
use crate::capture::shown;

/// The largest file that is read, in bytes: kubeconfigs of hundreds of clusters have a few hundred KiB.
const MOST_FILE: u64 = 4 << 20;

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

/// What is wrong with them, as the rest of a sentence about them.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error("{0} is no regular file: give one that can be read again and again")]
    NoFile(String),
    #[error("{0} is larger than {most} MiB", most = MOST_FILE >> 20)]
    TooLarge(String),
    #[error("{0} cannot be read: {1}")]
    Unreadable(String, std::io::Error),
    #[error("{0} is empty: write a token into it")]
    Empty(String),
    #[error("{0} holds a line end or another character that no HTTP header may have: write it without")]
    Header(String),
    #[error("its server is {0}: give an address that begins with https:// or http://")]
    Server(String),
    #[error(
        "its certificate authority holds no certificate: give one in PEM, which begins with BEGIN CERTIFICATE"
    )]
    NoAuthority,
    #[error("its certificate authority is none: {0}. Give the cluster's own, in PEM")]
    BadAuthority(String),
    #[error("its auth-provider {0} is not supported: give an exec plugin or a token instead")]
    Provider(String),
    #[error("{0}")]
    Plugin(#[from] PluginFault),
    #[error("{0}")]
    Other(String),
}

/// Credentials that were read.
pub(super) struct Found {
    pub(super) config: Config,
    /// When they run out; `None`: nobody says.
    pub(super) until: Option<Timestamp>,
    /// Whether others take their place before they run out, as the tokens of service accounts.
    pub(super) is_replaced: bool,
}

/// Reads them, and runs a plugin for no longer than this.
pub(super) fn find(credentials: &Credentials, limit: Duration) -> Result<Found, Fault> {
    let config = match credentials {
        Credentials::ServiceAccount => {
            Config::incluster_env().map_err(|why| Fault::Other(why.to_string()))?
        }
        Credentials::Kubeconfig { path, context } => kubeconfig(path.as_deref(), context.as_deref())?,
    };
    found(config, limit)
}

fn kubeconfig(path: Option<&Path>, context: Option<&str>) -> Result<Config, Fault> {
    let told = |why| of_kubeconfig(why, path);
    let config = match path {
        Some(path) => {
            check_file("it", path)?;
            Kubeconfig::read_from(path)
        }
        None => Kubeconfig::read(),
    };
    let config = config.map_err(told)?;
    for (what, file) in referred(&config, context) {
        check_file(&format!("its {what} {}", shown(file)), file)?;
    }
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    // It is asynchronous in name only.
    let config = Config::from_custom_kubeconfig(config, &options).now_or_never();
    config.ok_or_else(|| Fault::Other("it waits for something".to_owned()))?.map_err(told)
}

/// The files that this context needs.
fn referred<'c>(config: &'c Kubeconfig, context: Option<&str>) -> Vec<(&'static str, &'c Path)> {
    let name = context.or(config.current_context.as_deref());
    let named = config.contexts.iter().find(|context| Some(context.name.as_str()) == name);
    let Some(context) = named.and_then(|named| named.context.as_ref()) else { return Vec::new() };
    let cluster = config.clusters.iter().find(|cluster| cluster.name == context.cluster);
    let cluster = cluster.and_then(|named| named.cluster.as_ref());
    let user = config.auth_infos.iter().find(|user| Some(&user.name) == context.user.as_ref());
    let user = user.and_then(|named| named.auth_info.as_ref());
    // Where the data is given too, the file is not read.
    let authority = cluster.filter(|cluster| cluster.certificate_authority_data.is_none());
    let certificate = user.filter(|user| user.client_certificate_data.is_none());
    let key = user.filter(|user| user.client_key_data.is_none());
    let files = [
        ("certificate-authority", authority.and_then(|cluster| cluster.certificate_authority.as_ref())),
        ("client-certificate", certificate.and_then(|user| user.client_certificate.as_ref())),
        ("client-key", key.and_then(|user| user.client_key.as_ref())),
    ];
    files.into_iter().filter_map(|(what, file)| Some((what, Path::new(file?)))).collect()
}

/// Whether it can be read without waiting for somebody to write it, and ends.
fn check_file(what: &str, path: &Path) -> Result<(), Fault> {
    let about = std::fs::metadata(path).map_err(|why| Fault::Unreadable(what.to_owned(), why))?;
    if !about.is_file() {
        return Err(Fault::NoFile(what.to_owned()));
    }
    if about.len() > MOST_FILE {
        return Err(Fault::TooLarge(what.to_owned()));
    }
    Ok(())
}

/// What kube says of a kubeconfig, without paths in quotes and without lines of the file, which has secrets.
fn of_kubeconfig(why: KubeconfigError, given: Option<&Path>) -> Fault {
    let data = |what: &str, why: LoadDataError| match why {
        LoadDataError::DecodeBase64(why) => Fault::Other(format!("its {what}-data is no base64: {why}")),
        LoadDataError::ReadFile(why, path) => Fault::Unreadable(format!("its {what} {}", shown(&path)), why),
        LoadDataError::NoBase64DataOrFile => Fault::Other(format!("its {what} is missing")),
    };
    match why {
        KubeconfigError::ReadConfig(why, path) if Some(&*path) == given => {
            Fault::Unreadable("it".to_owned(), why)
        }
        KubeconfigError::ReadConfig(why, path) => Fault::Unreadable(shown(&path), why),
        KubeconfigError::Parse(why) => {
            Fault::Other(format!("it is no kubeconfig in YAML: {}", why.without_snippet()))
        }
        KubeconfigError::CurrentContextNotSet => {
            Fault::Other("it has no current-context: set one with kubectl config use-context".to_owned())
        }
        KubeconfigError::LoadContext(name) => Fault::Other(format!("it has no context {name}")),
        KubeconfigError::LoadClusterOfContext(name) => Fault::Other(format!("it has no cluster {name}")),
        KubeconfigError::MissingClusterUrl => Fault::Server("missing".to_owned()),
        KubeconfigError::ParseClusterUrl(why) => Fault::Server(format!("no address ({why})")),
        KubeconfigError::LoadCertificateAuthority(why) => data("certificate-authority", why),
        KubeconfigError::LoadClientCertificate(why) => data("client-certificate", why),
        KubeconfigError::LoadClientKey(why) => data("client-key", why),
        KubeconfigError::ParseCertificates(why) => Fault::BadAuthority(why.to_string()),
        other => Fault::Other(other.to_string()),
    }
}

/// Checks a configuration, and reads and runs what its user is told by.
fn found(mut config: Config, limit: Duration) -> Result<Found, Fault> {
    check_server(&config.cluster_url)?;
    check_authority(config.root_cert.as_deref())?;
    check_impersonation(&config.auth_info)?;
    let (until, is_replaced) = settle(&mut config.auth_info, limit)?;
    Ok(Found { config, until, is_replaced })
}

fn check_server(server: &Uri) -> Result<(), Fault> {
    let scheme = server.scheme_str().unwrap_or_default();
    let is_known = scheme.eq_ignore_ascii_case("https") || scheme.eq_ignore_ascii_case("http");
    if is_known && server.host().is_some_and(|host| !host.is_empty()) {
        return Ok(());
    }
    Err(Fault::Server(server.to_string()))
}

fn check_authority(certificates: Option<&[Vec<u8>]>) -> Result<(), Fault> {
    let Some(certificates) = certificates else { return Ok(()) };
    if certificates.is_empty() {
        return Err(Fault::NoAuthority);
    }
    let mut store = RootCertStore::empty();
    for certificate in certificates {
        let certificate = CertificateDer::from(certificate.as_slice());
        store.add(certificate).map_err(|why| Fault::BadAuthority(why.to_string()))?;
    }
    Ok(())
}

fn check_impersonation(user: &AuthInfo) -> Result<(), Fault> {
    let groups = user.impersonate_groups.iter().flatten();
    let extra = user.impersonate_user_extra.iter().flatten().flat_map(|(_, values)| values);
    let all = (user.impersonate.iter().map(|user| ("user (as)", user)))
        .chain(user.impersonate_uid.iter().map(|uid| ("uid (as-uid)", uid)))
        .chain(groups.map(|group| ("group (as-groups)", group)))
        .chain(extra.map(|value| ("user's extra (as-user-extra)", value)));
    for (what, value) in all {
        if HeaderValue::from_str(value).is_err() {
            return Err(Fault::Header(format!("its impersonated {what}")));
        }
    }
    Ok(())
}

/// Puts in what the client would read or run by itself, now and later: a token's file, a plugin. In the order in which
/// the client looks at them. Leaves until when it is good, and whether something else takes its place before.
fn settle(user: &mut AuthInfo, limit: Duration) -> Result<(Option<Timestamp>, bool), Fault> {
    if let Some(provider) = user.auth_provider.take() {
        // What else they can do was given up by Kubernetes 1.26.
        let token = Some(&provider).filter(|provider| ["oidc", "gcp"].contains(&provider.name.as_str()));
        let token = token.and_then(|provider| provider.config.get("id-token"));
        let token = token.ok_or(Fault::Provider(provider.name.clone()))?;
        user.token = Some(checked("its id-token", token)?.into());
        (user.username, user.password, user.token_file, user.exec) = (None, None, None, None);
        return Ok((None, false));
    }
    if user.username.is_some() && user.password.is_some() {
        return Ok((None, false));
    }
    let inline = user.token.take().filter(|token| !token.expose_secret().trim().is_empty());
    let (file, plugin) = (user.token_file.take(), user.exec.take());
    if let Some(token) = inline {
        user.token = Some(checked("its token", token.expose_secret())?.into());
        return Ok((None, false));
    }
    if let Some(file) = file {
        user.token = Some(token_in(Path::new(&file))?.into());
        return Ok((None, true));
    }
    let Some(plugin) = plugin else { return Ok((None, false)) };
    let issued = plugin::run(&plugin, limit)?;
    if let Some(token) = &issued.token {
        user.token = Some(checked("the token of its exec plugin", token)?.into());
    }
    if let Some((certificate, key)) = &issued.certificate {
        (user.client_certificate, user.client_key) = (None, None);
        user.client_certificate_data = Some(STANDARD.encode(certificate));
        user.client_key_data = Some(STANDARD.encode(key).into());
    }
    Ok((issued.until, false))
}

fn token_in(file: &Path) -> Result<String, Fault> {
    let what = format!("its token file {}", shown(file));
    check_file(&what, file)?;
    let token = std::fs::read_to_string(file).map_err(|why| Fault::Unreadable(what.clone(), why))?;
    if token.trim().is_empty() {
        return Err(Fault::Empty(what));
    }
    checked(&what, &token)
}

/// A token as a header may have it. The line's end that editors leave after it is no part of it.
fn checked(what: &str, token: &str) -> Result<String, Fault> {
    let token = token.trim();
    match HeaderValue::try_from(format!("Bearer {token}")) {
        Ok(_) => Ok(token.to_owned()),
        Err(_) => Err(Fault::Header(what.to_owned())),
    }
}

#[cfg(test)]
#[path = "credentials/tests.rs"]
mod tests;

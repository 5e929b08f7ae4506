//! Certificates in files that change. Enters: file names; leaves: what TLS needs, until when the client's certificate
//! holds, and why new files cannot be used. TLS 1.3 only, as Cilium's servers ask. Must not connect.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use firedoor_core::time::Timestamp;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

use super::settings::TlsSettings;

/// Larger files are no certificates.
const MAX_FILE: u64 = 1 << 20;

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}: {why}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        why: io::Error,
    },
    /// A file holds no certificate or key.
    #[error("{} holds no usable {what}: {why}", .path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
        /// Why.
        why: String,
    },
    /// Certificate and key do not fit each other, or TLS refuses them.
    #[error("the client's certificate and key cannot be used together: {0}")]
    Identity(rustls::Error),
    /// The system has no certificates of authorities.
    #[error("the system has no certificates of authorities; name a file with those to believe")]
    NoAuthorities,
}

/// What the files hold, ready to use.
pub(super) struct Credentials {
    pub(super) config: Arc<ClientConfig>,
    /// Until when the client's certificate holds; `None`: there is none.
    pub(super) expires: Option<Timestamp>,
    content: Vec<Vec<u8>>,
}

impl Credentials {
    /// Reads the files; `None`: they are as they were.
    pub(super) fn read(settings: &TlsSettings, before: Option<&Self>) -> Result<Option<Self>, TlsError> {
        let identity = settings.identity.as_ref();
        let paths = [
            settings.authorities.as_deref(),
            identity.map(|i| i.certificate.as_path()),
            identity.map(|i| i.key.as_path()),
        ];
        let content = paths.into_iter().flatten().map(read).collect::<Result<Vec<_>, _>>()?;
        if before.is_some_and(|before| before.content == content) {
            return Ok(None);
        }
        let mut files = content.iter();
        let mut roots = RootCertStore::empty();
        if let Some((path, pem)) =
            settings.authorities.as_deref().zip(settings.authorities.as_ref().and_then(|_| files.next()))
        {
            for certificate in certificates(path, pem)? {
                roots.add(certificate).map_err(|why| unusable(path, "certificate", why))?;
            }
        } else {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        if roots.is_empty() {
            return Err(TlsError::NoAuthorities);
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(TlsError::Identity)?
            .with_root_certificates(roots);
        let mut expires = None;
        let mut config = match (identity, files.next(), files.next()) {
            (Some(identity), Some(certificate), Some(key)) => {
                let chain = certificates(&identity.certificate, certificate)?;
                expires = chain.first().and_then(|first| not_after(first));
                let key = PrivateKeyDer::from_pem_slice(key)
                    .map_err(|why| unusable(&identity.key, "private key", why))?;
                builder.with_client_auth_cert(chain, key).map_err(TlsError::Identity)?
            }
            _ => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Some(Self { config: Arc::new(config), expires, content }))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let failed = |why| TlsError::Read { path: path.to_owned(), why };
    let size = std::fs::metadata(path).map_err(failed)?.len();
    if size > MAX_FILE {
        return Err(failed(io::Error::new(
            io::ErrorKind::FileTooLarge,
            "it is too large to be a certificate",
        )));
    }
    std::fs::read(path).map_err(failed)
}

fn unusable(path: &Path, what: &'static str, why: impl ToString) -> TlsError {
    TlsError::Content { path: path.to_owned(), what, why: why.to_string() }
}

fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let all = all.map_err(|why| unusable(path, "certificate", why))?;
    if all.is_empty() { Err(unusable(path, "certificate", "it is empty")) } else { Ok(all) }
}

/// Until when a certificate holds (RFC 5280, 4.1: the sixth part of `TBSCertificate` where a version is told, the second
/// time of its validity).
fn not_after(certificate: &[u8]) -> Option<Timestamp> {
    let (_, certificate, _) = der(certificate)?;
    let (_, mut rest, _) = der(certificate)?;
    if let Some((0xa0, _, after)) = der(rest) {
        rest = after;
    }
    // Serial number, signature algorithm, issuer.
    for _ in 0..3 {
        rest = der(rest)?.2;
    }
    let (_, validity, _) = der(rest)?;
    let (_, _, rest) = der(validity)?;
    let (tag, time, _) = der(rest)?;
    let text = std::str::from_utf8(time).ok()?.strip_suffix('Z')?;
    let full = match tag {
        // UTCTime: two digits of a year between 1950 and 2049.
        0x17 if text.len() == 12 => {
            let century = if text.get(..2)? < "50" { "20" } else { "19" };
            format!("{century}{text}")
        }
        0x18 if text.len() == 14 => text.to_owned(),
        _ => return None,
    };
    let part = |from: usize, to: usize| full.get(from..to);
    let (date, clock) = (
        format!("{}-{}-{}", part(0, 4)?, part(4, 6)?, part(6, 8)?),
        format!("{}:{}:{}", part(8, 10)?, part(10, 12)?, part(12, 14)?),
    );
    Timestamp::parse(&format!("{date}T{clock}Z"))
}

/// The first element: its tag, its content, and what comes after it.
fn der(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f).min(4))?;
        (digits.iter().fold(0_usize, |length, digit| length << 8 | usize::from(*digit)), rest)
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

//! A connection to a server. Enters: settings; leaves: a channel. Every connection is a new one, with the certificates that
//! are there now. Must not know what is asked over it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tonic::transport::{Channel, Endpoint};
use tower_service::Service;

use super::settings::{Address, HubbleSettings};

type Failure = Box<dyn std::error::Error + Send + Sync>;

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Dials once for each connection.
#[derive(Clone)]
struct Dial {
    address: Address,
    tls: Option<(Arc<ClientConfig>, String)>,
}

impl Dial {
    async fn dial(self) -> Result<TokioIo<Box<dyn Stream>>, Failure> {
        let stream: Box<dyn Stream> = match &self.address {
            Address::Unix(path) => Box::new(UnixStream::connect(path).await?),
            Address::Tcp { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
        };
        let Some((config, name)) = self.tls else { return Ok(TokioIo::new(stream)) };
        let name = ServerName::try_from(name)?;
        Ok(TokioIo::new(Box::new(TlsConnector::from(config).connect(name, stream).await?)))
    }
}

impl Service<Uri> for Dial {
    type Response = TokioIo<Box<dyn Stream>>;
    type Error = Failure;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Failure>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        Box::pin(self.clone().dial())
    }
}

/// Connects.
///
/// # Errors
/// Why there is no connection, with all that is behind it.
pub(super) async fn connect(
    settings: &HubbleSettings,
    tls: Option<(Arc<ClientConfig>, String)>,
) -> Result<Channel, String> {
    // The authority is what a server sees; where to go `Dial` knows.
    let endpoint = Endpoint::from_static("http://localhost")
        .connect_timeout(settings.connect_timeout)
        .initial_stream_window_size(settings.window_bytes)
        .initial_connection_window_size(settings.window_bytes.saturating_mul(16).min((1 << 31) - 1))
        .http2_keep_alive_interval(settings.ping_every)
        .keep_alive_timeout(settings.ping_timeout)
        .keep_alive_while_idle(true);
    let dial = Dial { address: settings.address.clone(), tls };
    let connecting = endpoint.connect_with_connector(dial);
    match tokio::time::timeout(settings.connect_timeout, connecting).await {
        Ok(connected) => connected.map_err(|why| chain(&why)),
        Err(_) => Err(format!("no connection within {:?}", settings.connect_timeout)),
    }
}

/// An error and what is behind it, each once.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let next = cause.to_string();
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        source = cause.source();
    }
    text
}

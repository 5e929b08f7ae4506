//! A wire that can be cut, stopped and slowed, between a client and a server's socket. Enters: bytes; leaves: the same bytes,
//! until told otherwise. A cut may fall anywhere, within a message too.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

/// The wire.
pub(crate) struct Proxy {
    pub(crate) path: PathBuf,
    control: Arc<Control>,
    task: tokio::task::JoinHandle<()>,
}

struct Control {
    /// Grows with every cut.
    cuts: watch::Sender<u64>,
    /// From the server to the client; stops for ever when it is passed. 0: no end.
    cut_after: AtomicU64,
    passed: AtomicU64,
    /// Connections up to this one pass nothing on any more.
    silent: AtomicU64,
    connections: AtomicU64,
    /// Microseconds that each piece takes.
    pace: AtomicU64,
}

impl Proxy {
    pub(crate) fn before(server: &Path) -> Self {
        let path = server.with_extension("proxy");
        let listener = UnixListener::bind(&path).expect("the socket can be bound");
        let control = Arc::new(Control {
            cuts: watch::Sender::new(0),
            cut_after: AtomicU64::new(0),
            passed: AtomicU64::new(0),
            silent: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            pace: AtomicU64::new(0),
        });
        let (shared, server) = (Arc::clone(&control), server.to_owned());
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let number = shared.connections.fetch_add(1, Ordering::Relaxed) + 1;
                let Ok(to) = UnixStream::connect(&server).await else { continue };
                tokio::spawn(join(client, to, Arc::clone(&shared), number));
            }
        });
        Self { path, control, task }
    }

    /// Cuts all connections now.
    pub(crate) fn cut(&self) {
        self.control.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Cuts when so many more bytes went to the client, in the middle of whatever they belong to.
    pub(crate) fn cut_after(&self, bytes: u64) {
        let passed = self.control.passed.load(Ordering::Relaxed);
        self.control.cut_after.store(passed + bytes.max(1), Ordering::Relaxed);
    }

    /// Whether a cut that was asked for is still to come.
    pub(crate) fn is_waiting(&self) -> bool {
        self.control.cut_after.load(Ordering::Relaxed) > 0
    }

    /// Passes nothing on any more, without a word, on the connections that there are; new ones work.
    pub(crate) fn fall_silent(&self) {
        self.control.silent.store(self.connections(), Ordering::Relaxed);
    }

    /// Each piece of up to 16 KiB takes so long from now on.
    pub(crate) fn pace(&self, pause: Duration) {
        self.control.pace.store(u64::try_from(pause.as_micros()).expect("short"), Ordering::Relaxed);
    }

    /// Bytes that went to clients.
    pub(crate) fn passed(&self) -> u64 {
        self.control.passed.load(Ordering::Relaxed)
    }

    /// Connections so far.
    pub(crate) fn connections(&self) -> u64 {
        self.control.connections.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn join(client: UnixStream, server: UnixStream, control: Arc<Control>, number: u64) {
    let mut cuts = control.cuts.subscribe();
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let is_silent = || number <= control.silent.load(Ordering::Relaxed);
    let up = async {
        let mut buffer = vec![0; 16 << 10];
        while let Ok(length @ 1..) = from_client.read(&mut buffer).await {
            if is_silent() {
                std::future::pending::<()>().await;
            }
            if to_server.write_all(&buffer[..length]).await.is_err() {
                break;
            }
        }
    };
    let down = async {
        let mut buffer = vec![0; 16 << 10];
        while let Ok(length @ 1..) = from_server.read(&mut buffer).await {
            if is_silent() {
                std::future::pending::<()>().await;
            }
            let pace = control.pace.load(Ordering::Relaxed);
            if pace > 0 {
                tokio::time::sleep(Duration::from_micros(pace)).await;
            }
            let limit = control.cut_after.load(Ordering::Relaxed);
            let passed = control.passed.load(Ordering::Relaxed);
            let room =
                if limit > 0 { limit.saturating_sub(passed).min(length as u64) as usize } else { length };
            control.passed.fetch_add(room as u64, Ordering::Relaxed);
            if to_client.write_all(&buffer[..room]).await.is_err() {
                break;
            }
            if room < length || (limit > 0 && passed + room as u64 >= limit) {
                control.cut_after.store(0, Ordering::Relaxed);
                break;
            }
        }
    };
    tokio::select! {
        () = up => {}
        () = down => {}
        _ = cuts.changed() => {}
    }
}

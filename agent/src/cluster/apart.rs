//! Work that may hang, on a thread of its own. Enters: what is to be done; leaves: what came of it, or that it did not
//! end in time. Must not know what it is.
//!
//! Not the runtime's own threads for this: a runtime that ends waits for them, so one that hangs would keep the agent
//! from stopping.

use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::oneshot;

/// One thread at a time.
#[derive(Default)]
pub(super) struct Apart {
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Why nothing came of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NoResult {
    /// It goes on, and is not waited for any longer.
    NotInTime,
    /// What was begun before has not ended yet.
    Busy,
    /// It broke off.
    Broken,
}

impl Apart {
    /// Does it, for no longer than this. A thread that hangs cannot be ended: until it ends by itself nothing else is
    /// begun, so that there is never more than one.
    pub(super) async fn within<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NoResult> {
        let result = self.begin(work)?;
        match tokio::time::timeout(limit, result).await {
            Ok(result) => result.map_err(|_| NoResult::Broken),
            Err(_) => Err(NoResult::NotInTime),
        }
    }

    fn begin<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<oneshot::Receiver<T>, NoResult> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return Err(NoResult::Busy);
        }
        let (to, result) = oneshot::channel();
        let work = move || {
            // Nobody may be waiting any more.
            let _ = to.send(work());
        };
        *thread = Some(
            thread::Builder::new()
                .name("credentials".to_owned())
                .spawn(work)
                .map_err(|_| NoResult::Broken)?,
        );
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    #[tokio::test]
    async fn what_hangs_is_left_and_not_begun_twice() {
        let apart = Apart::default();
        let long = Duration::from_secs(60);
        assert_eq!(apart.within(long, || 1).await, Ok(1));
        let (release, released) = sync_channel::<()>(1);
        let hangs = async |limit| {
            let hanging = apart.within(limit, move || released.recv());
            hanging.await.map(|_| ())
        };
        // The thread of the first may take a moment to end.
        while apart.thread.lock().unwrap().as_ref().is_some_and(|thread| !thread.is_finished()) {
            tokio::task::yield_now().await;
        }
        assert_eq!(hangs(Duration::from_millis(20)).await, Err(NoResult::NotInTime));
        assert_eq!(apart.within(long, || 2).await, Err(NoResult::Busy));
        release.send(()).unwrap();
        while apart.within(long, || 3).await != Ok(3) {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn what_panics_takes_nothing_along() {
        let broken = Apart::default().within(Duration::from_secs(60), || panic!("on purpose")).await;
        assert_eq!(broken, Err::<(), _>(NoResult::Broken));
    }
}

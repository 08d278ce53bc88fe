//! Small messages that nobody waits for: cancellations, refusals, the end of sessions.
//!
//! They run beside the calls, a bounded number at a time; what does not fit is left out, which is
//! safe for each of them: the peer has a clock of its own.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Messages under way at the same time.
const ROOM: usize = 256;
/// Of those that must not be left out.
const AT_ONCE: usize = 64;
/// Longest time for one.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where such messages run. Usable from a `Drop`, also outside of the runtime.
#[derive(Debug, Clone)]
pub(crate) struct Background {
    handle: Handle,
    room: Arc<Semaphore>,
    tracker: TaskTracker,
    ending: CancellationToken,
    over: CancellationToken,
}

impl Background {
    /// Over the current runtime.
    pub(crate) fn new() -> Self {
        Self {
            handle: Handle::current(),
            room: Arc::new(Semaphore::new(ROOM)),
            tracker: TaskTracker::new(),
            ending: CancellationToken::new(),
            over: CancellationToken::new(),
        }
    }

    /// The runtime.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Runs a long-lived task that is waited for at the end.
    pub(crate) fn task(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.tracker.spawn_on(work, &self.handle);
    }

    /// Runs `work` beside everything else, if there is room.
    pub(crate) fn run(&self, work: impl Future<Output = ()> + Send + 'static) {
        if self.over.is_cancelled() {
            return;
        }
        let Ok(place) = Arc::clone(&self.room).try_acquire_owned() else {
            tracing::warn!("too many messages to upstreams are under way; one is left out");
            return;
        };
        self.tracker.spawn_on(
            async move {
                if timeout(PATIENCE, work).await.is_err() {
                    tracing::debug!("a message to an upstream took too long");
                }
                drop(place);
            },
            &self.handle,
        );
    }

    /// Runs each of `works`, some at a time; for what must not be left out.
    pub(crate) fn each<F>(&self, works: Vec<F>)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        if !works.is_empty() {
            self.task(stream::iter(works).for_each_concurrent(AT_ONCE, |work| work));
        }
    }

    /// Resolves when the whole process is about to end.
    pub(crate) fn ending(&self) -> &CancellationToken {
        &self.ending
    }

    /// Waits until everything has ended, at most so long; whether it has. Nothing is said after that:
    /// what is dropped from then on others go on with.
    pub(crate) async fn settle(&self, limit: Duration) -> bool {
        self.ending.cancel();
        self.tracker.close();
        let settled = timeout(limit, self.tracker.wait()).await.is_ok();
        self.over.cancel();
        settled
    }
}

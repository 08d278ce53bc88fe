//! What goes on on one connection: the requests in flight, those that are refused, those that the peer
//! gave up. The service side notes it, the stream and the connection's task read it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// What the service side of a connection tells its stream.
#[derive(Debug)]
pub(crate) struct Activity {
    in_flight: AtomicUsize,
    begun: AtomicU64,
    multiplexed: AtomicBool,
    refused_from: AtomicU64,
    /// Requests that the peer gave up almost at once.
    given_up: AtomicU64,
    /// Told when these are too many.
    abused: Notify,
}

/// HTTP/2: a request that the peer gives up within this time counts as given up at once; so many of
/// them, and as many as half of all, are an attack and end the connection (T23). The library's own
/// limit sees only those that are reset before they begin.
const AT_ONCE: Duration = Duration::from_secs(1);
const GIVEN_UP: u64 = 500;

impl Default for Activity {
    fn default() -> Self {
        Self {
            in_flight: AtomicUsize::new(0),
            begun: AtomicU64::new(0),
            multiplexed: AtomicBool::new(false),
            refused_from: AtomicU64::new(u64::MAX),
            given_up: AtomicU64::new(0),
            abused: Notify::new(),
        }
    }
}

impl Activity {
    /// A request has arrived; it is in flight until the guard is dropped. None when it is one of
    /// which nobody can say where it ends, or stands behind such a one.
    pub(crate) fn begin(self: &Arc<Self>, multiplexed: bool) -> Option<InFlight> {
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        if multiplexed {
            self.multiplexed.store(true, Ordering::Relaxed);
        }
        if number >= self.refused_from.load(Ordering::Relaxed) {
            return None;
        }
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        Some(InFlight {
            activity: Arc::clone(self),
            since: multiplexed.then(Instant::now),
        })
    }

    /// This request of the connection, counted from 0, and all behind it are refused.
    pub(crate) fn refuse_from(&self, request: u64) {
        self.refused_from.store(request, Ordering::Relaxed);
    }

    /// Waits until the peer has given up too many requests.
    pub(crate) async fn abused(&self) {
        self.abused.notified().await;
    }

    fn note_given_up(&self) {
        let count = self.given_up.fetch_add(1, Ordering::Relaxed) + 1;
        if count >= GIVEN_UP && count * 2 >= self.begun() {
            self.abused.notify_one();
        }
    }

    /// Whether nobody waits for a head now, or waiting has no limit: an HTTP/2 connection that
    /// has proved itself is watched by its own pings.
    pub(crate) fn is_busy(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) > 0 || self.multiplexed.load(Ordering::Relaxed)
    }

    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }
}

/// A request in flight.
#[derive(Debug)]
pub(crate) struct InFlight {
    activity: Arc<Activity>,
    /// When it began, as long as its answer has not ended and its connection carries others.
    since: Option<Instant>,
}

impl InFlight {
    /// Its answer has been written whole.
    pub(crate) fn answered(&mut self) {
        self.since = None;
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.activity.in_flight.fetch_sub(1, Ordering::Relaxed);
        if self.since.is_some_and(|since| since.elapsed() < AT_ONCE) {
            self.activity.note_given_up();
        }
    }
}

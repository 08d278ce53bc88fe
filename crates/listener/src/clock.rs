//! How long a peer may keep a connection without doing anything with it (T24).
//!
//! [`Timed`] wraps a connection's stream. While a request head is awaited, its first byte must
//! come within [`Clocks::idle`] (for the first request: the whole head within [`Clocks::head`]),
//! and the head must be complete [`Clocks::head`] later. While something is to be written, the
//! peer must take some of it every [`Clocks::stall`]. While a request is being served, silence is
//! fine: streams are silent for hours.
//!
//! The server library's own head timeout starts only after the version is known and also closes
//! idle connections, which is why the three are told apart here.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::framing::Framing;

/// The limits of one connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clocks {
    pub(crate) head: Duration,
    pub(crate) idle: Duration,
    pub(crate) stall: Duration,
}

impl Clocks {
    pub(crate) const DEFAULT: Clocks = Clocks {
        head: Duration::from_secs(10),
        idle: Duration::from_secs(75),
        stall: Duration::from_secs(60),
    };
}

/// What the service side of a connection tells its stream.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    in_flight: AtomicUsize,
    begun: AtomicU64,
    multiplexed: AtomicBool,
    refused: AtomicBool,
}

impl Activity {
    /// A request has arrived; it is in flight until the guard is dropped.
    pub(crate) fn begin(self: &Arc<Self>, multiplexed: bool) -> InFlight {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.begun.fetch_add(1, Ordering::Relaxed);
        if multiplexed {
            self.multiplexed.store(true, Ordering::Relaxed);
        }
        InFlight(Arc::clone(self))
    }

    /// Whether nobody waits for a head now, or waiting has no limit: an HTTP/2 connection that
    /// has proved itself is watched by its own pings.
    fn is_busy(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) > 0 || self.multiplexed.load(Ordering::Relaxed)
    }

    /// Whether the connection carried a request of which nobody can say where it ends.
    pub(crate) fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }
}

/// A request in flight.
#[derive(Debug)]
pub(crate) struct InFlight(Arc<Activity>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What the peer is being waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing.
    Off,
    /// The first byte of a head.
    Idle,
    /// The rest of a head.
    Head,
}

/// A stream with the clocks.
#[derive(Debug)]
pub(crate) struct Timed<S> {
    inner: S,
    clocks: Clocks,
    activity: Arc<Activity>,
    /// Requests that had begun when the phase was entered: one more, and the phase is over.
    seen: u64,
    phase: Phase,
    read_by: Option<Pin<Box<Sleep>>>,
    stalled: bool,
    write_by: Option<Pin<Box<Sleep>>>,
    framing: Framing,
}

impl<S> Timed<S> {
    pub(crate) fn new(inner: S, clocks: Clocks, activity: Arc<Activity>) -> Self {
        let first_head = Instant::now() + clocks.head;
        Self {
            inner,
            clocks,
            activity,
            seen: 0,
            phase: Phase::Head,
            read_by: Some(Box::pin(sleep_until(first_head))),
            stalled: false,
            write_by: None,
            framing: Framing::new(),
        }
    }

    fn enter(&mut self, phase: Phase) {
        let limit = match phase {
            Phase::Off => {
                self.phase = phase;
                return;
            }
            Phase::Idle => self.clocks.idle,
            Phase::Head => self.clocks.head,
        };
        self.phase = phase;
        self.seen = self.activity.begun();
        arm(&mut self.read_by, limit);
    }

    /// Leaves the phase that a request has ended.
    fn refresh(&mut self) {
        if self.phase != Phase::Off
            && (self.activity.is_busy() || self.activity.begun() != self.seen)
        {
            self.enter(Phase::Off);
        }
    }

    fn after_read(&mut self, cx: &mut Context<'_>, read: &[u8], pending: bool) -> io::Result<()> {
        if self.framing.conflicts(read) {
            self.activity.refused.store(true, Ordering::Relaxed);
        }
        if self.activity.is_busy() {
            return Ok(());
        }
        if !read.is_empty() && self.phase != Phase::Head {
            self.enter(Phase::Head);
        }
        if !pending {
            return Ok(());
        }
        if self.phase == Phase::Off {
            self.enter(Phase::Idle);
        }
        if elapsed(&mut self.read_by, cx) {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "no complete request head in time",
            ));
        }
        Ok(())
    }

    fn after_write<T>(
        &mut self,
        cx: &mut Context<'_>,
        result: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.stalled = false;
            return result;
        }
        if !self.stalled {
            self.stalled = true;
            arm(&mut self.write_by, self.clocks.stall);
        }
        if elapsed(&mut self.write_by, cx) {
            let error = io::Error::new(io::ErrorKind::TimedOut, "the peer takes no data");
            return Poll::Ready(Err(error));
        }
        Poll::Pending
    }
}

fn arm(sleep: &mut Option<Pin<Box<Sleep>>>, limit: Duration) {
    let deadline = Instant::now() + limit;
    match sleep {
        Some(sleep) => sleep.as_mut().reset(deadline),
        None => *sleep = Some(Box::pin(sleep_until(deadline))),
    }
}

fn elapsed(sleep: &mut Option<Pin<Box<Sleep>>>, cx: &mut Context<'_>) -> bool {
    sleep
        .as_mut()
        .is_some_and(|sleep| sleep.as_mut().poll(cx).is_ready())
}

impl<S: AsyncRead + Unpin> AsyncRead for Timed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.refresh();
        let before = buf.filled().len();
        let result = Pin::new(&mut this.inner).poll_read(cx, buf);
        let read = buf.filled().get(before..).unwrap_or_default();
        this.after_read(cx, read, result.is_pending())?;
        result
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Timed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.after_write(cx, result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.inner).poll_flush(cx);
        self.after_write(cx, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.after_write(cx, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.after_write(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    /// T24: one byte every few seconds does not make a head.
    #[tokio::test(start_paused = true)]
    async fn t24_a_head_that_drips_is_given_up_after_ten_seconds() {
        let (mut peer, ours) = duplex(64);
        let mut timed = Timed::new(ours, Clocks::DEFAULT, Arc::default());
        tokio::spawn(async move {
            loop {
                peer.write_all(b"x").await.ok();
                tokio::time::sleep(Duration::from_secs(3)).await;
            }
        });
        let start = Instant::now();
        let mut byte = [0];
        let error = loop {
            if let Err(error) = timed.read_exact(&mut byte).await {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(start.elapsed().as_secs(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn between_requests_silence_has_its_own_longer_limit() {
        let (_peer, ours) = duplex(64);
        let activity = Arc::new(Activity::default());
        let mut timed = Timed::new(ours, Clocks::DEFAULT, Arc::clone(&activity));
        drop(activity.begin(false));
        let start = Instant::now();
        let error = timed.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(start.elapsed().as_secs(), 75);
    }

    #[tokio::test(start_paused = true)]
    async fn while_a_request_is_served_silence_has_no_limit() {
        let (_peer, ours) = duplex(64);
        let activity = Arc::new(Activity::default());
        let mut timed = Timed::new(ours, Clocks::DEFAULT, Arc::clone(&activity));
        let _in_flight = activity.begin(false);
        let hours = Duration::from_secs(7_200);
        assert!(tokio::time::timeout(hours, timed.read_u8()).await.is_err());
    }

    /// T24: a peer that reads nothing is given up.
    #[tokio::test(start_paused = true)]
    async fn t24_a_peer_that_takes_no_data_is_given_up() {
        let (_peer, ours) = duplex(8);
        let mut timed = Timed::new(ours, Clocks::DEFAULT, Arc::default());
        let start = Instant::now();
        let error = timed.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(start.elapsed().as_secs(), 60);
    }
}

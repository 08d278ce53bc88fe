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
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::activity::Activity;
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
    /// Nothing more of this connection is read, and whether reading is an error.
    ended: Option<bool>,
    /// Bytes that were read without a pause.
    run: usize,
}

/// After so many bytes in a row a connection lets others go first, however much more there is: the
/// library reads as long as something comes, and small frames are much work for few bytes (T23).
const TURN: usize = 64 * 1024;

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
            ended: None,
            run: 0,
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

    /// Follows what was read; gives how much of it may be handed on (T16).
    fn judge(&mut self, read: &[u8]) -> usize {
        let Some(fault) = self.framing.follow(read) else {
            return read.len();
        };
        self.activity.refuse_from(fault.request);
        self.ended = Some(!fault.in_head);
        fault.seen
    }

    fn after_read(&mut self, cx: &mut Context<'_>, read: &[u8], pending: bool) -> io::Result<()> {
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
        if this.run >= TURN {
            this.run = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buf.filled().len();
        let result = match this.ended {
            None => Pin::new(&mut this.inner).poll_read(cx, buf),
            // the answer to the request at fault is the last thing of this connection
            Some(false) => Poll::Pending,
            Some(true) => Poll::Ready(Err(io::ErrorKind::InvalidData.into())),
        };
        let read = buf.filled().get(before..).unwrap_or_default();
        this.run = if result.is_pending() {
            0
        } else {
            this.run + read.len()
        };
        let kept = this.judge(read);
        this.after_read(cx, read, result.is_pending())?;
        buf.set_filled(before + kept);
        if kept == 0 && this.ended.is_some() && matches!(result, Poll::Ready(Ok(()))) {
            // an empty read would be the end of the stream
            return self.poll_read(cx, buf);
        }
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
mod tests;

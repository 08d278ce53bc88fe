//! The body of an answer on its way out.
//!
//! A body hands on large pieces in small ones, so that what a peer has not taken yet is held here,
//! where its request still counts as in flight, and not in buffers of the library that nobody counts
//! (T14, T24).
//!
//! A peer of HTTP/1.1 that takes nothing is given up with its connection ([`crate::clock`]). On
//! HTTP/2 others share the connection, and the window of one stream can be closed while all else goes
//! on: there [`Stalls`] lets go of what a single stream has held for too long (T23).

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::activity::InFlight;

/// The largest piece that the library gets at once. On HTTP/1.1 no usual answer is cut; on HTTP/2
/// it is what a stream may buffer.
const HTTP1_PIECE: usize = 256 * 1024;
const H2_PIECE: usize = 64 * 1024;

/// An answer that is being sent.
#[derive(Debug)]
pub(crate) struct Held {
    inner: Body,
    /// Of a piece that was too large, what is left.
    rest: Bytes,
    piece: usize,
    in_flight: Option<InFlight>,
    /// Since when it is the peer's turn: a piece has left and no other was asked for.
    waiting: Option<Instant>,
}

/// An answer as the library sees it; its request is in flight until it is dropped.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The only one on its connection.
    Alone(Held),
    /// One of several.
    Shared(Arc<Slot>),
}

/// Where an answer stays as long as its peer takes some of it now and then.
#[derive(Debug)]
pub(crate) struct Slot(Mutex<Option<Held>>);

/// The answers of one HTTP/2 connection.
#[derive(Debug, Default)]
pub(crate) struct Stalls {
    slots: Mutex<Vec<Weak<Slot>>>,
    /// Told of every answer: without one nothing need be watched.
    begun: Notify,
}

// === impl Held ===

impl Held {
    fn new(inner: Body, in_flight: Option<InFlight>, piece: usize) -> Self {
        let mut held = Self {
            inner,
            rest: Bytes::new(),
            piece,
            in_flight,
            waiting: None,
        };
        held.note_end(false);
        held
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
            match frame.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => self.rest = data,
                Some(Ok(Err(other))) => return Poll::Ready(Some(Ok(other))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => {
                    self.note_end(true);
                    return Poll::Ready(None);
                }
            }
        }
        let piece = self.rest.split_to(self.piece.min(self.rest.len()));
        self.note_end(false);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end(&self) -> bool {
        self.rest.is_empty() && self.inner.is_end_stream()
    }

    fn note_end(&mut self, ended: bool) {
        let over = ended || self.is_end();
        if let Some(in_flight) = self.in_flight.as_mut().filter(|_| over) {
            in_flight.answered();
        }
    }

    fn size_hint(&self) -> SizeHint {
        let rest = u64::try_from(self.rest.len()).unwrap_or(u64::MAX);
        let inner = self.inner.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower().saturating_add(rest));
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint
    }
}

// === impl Answer ===

impl Answer {
    /// The only answer of its connection at this time.
    pub(crate) fn alone(inner: Body, in_flight: Option<InFlight>) -> Self {
        Self::Alone(Held::new(inner, in_flight, HTTP1_PIECE))
    }
}

/// The answer was given up because its peer took nothing.
#[derive(Debug, thiserror::Error)]
#[error("the peer took nothing of this answer for too long")]
struct GivenUp;

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match self.get_mut() {
            Self::Alone(held) => held.poll(cx),
            Self::Shared(slot) => slot.poll(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Alone(held) => held.is_end(),
            Self::Shared(slot) => slot.lock().as_ref().is_some_and(Held::is_end),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Alone(held) => held.size_hint(),
            Self::Shared(slot) => slot
                .lock()
                .as_ref()
                .map_or_else(SizeHint::default, Held::size_hint),
        }
    }
}

// === impl Slot ===

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Option<Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut slot = self.lock();
        let Some(held) = slot.as_mut() else {
            return Poll::Ready(Some(Err(axum::Error::new(GivenUp))));
        };
        let polled = held.poll(cx);
        held.waiting = polled.is_ready().then(Instant::now);
        polled
    }
}

// === impl Stalls ===

impl Stalls {
    /// An answer beside others.
    pub(crate) fn hold(&self, inner: Body, in_flight: Option<InFlight>) -> Answer {
        let held = Held::new(inner, in_flight, H2_PIECE);
        let slot = Arc::new(Slot(Mutex::new(Some(held))));
        let mut all = self.lock();
        if all.len() == all.capacity() {
            // before it grows: those that have gone need no room
            all.retain(|slot| slot.strong_count() > 0);
        }
        all.push(Arc::downgrade(&slot));
        drop(all);
        self.begun.notify_one();
        Answer::Shared(slot)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Slot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets go, for ever, of answers of which the peer takes nothing for `limit`: what they hold is
    /// freed, and whoever makes them is told. Dropping this future stops watching.
    pub(crate) async fn watch(&self, limit: Duration) {
        self.begun.notified().await;
        loop {
            sleep(limit / 4).await;
            let slots: Vec<Arc<Slot>> = self.lock().iter().filter_map(Weak::upgrade).collect();
            for slot in slots {
                let mut held = slot.lock();
                let since = held.as_ref().and_then(|held| held.waiting);
                if since.is_some_and(|since| since.elapsed() >= limit) {
                    let given_up = held.take();
                    drop(held);
                    drop(given_up); // not under the lock: others are told of it
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;

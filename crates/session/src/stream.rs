//! The body of an event stream: events of some source, comments while it is silent (SSE-15), and
//! an end that the client can tell from a broken connection or not, as its era wants.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use http_body::{Body as HttpBody, Frame as BodyFrame};
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep, sleep};
use vestibule_frame::sse;

/// Longest silence on a stream (SSE-15, case 125).
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Events that may wait for one connection (SSE-17, EL-21).
const QUEUE_EVENTS: usize = 1000;
/// Bytes that may wait for one connection beyond the first event.
const QUEUE_BYTES: usize = 256 * 1024;

/// The connection is broken off on purpose: its client is too slow, and a stateless stream that
/// ended without its answer must not look complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the stream was aborted")]
pub(crate) struct Aborted;

/// When a client that is sent away shall come back (SSE-06).
pub(crate) fn come_back(after: Duration) -> Bytes {
    sse::retry(u64::try_from(after.as_millis()).unwrap_or(u64::MAX))
}

type Source = Pin<Box<dyn Stream<Item = Result<Bytes, Aborted>> + Send>>;

/// An event stream as a response body.
pub(crate) struct EventBody {
    source: Source,
    beat: Pin<Box<Sleep>>,
    ended: bool,
}

impl EventBody {
    /// The events of `source`, already encoded.
    pub(crate) fn new(source: impl Stream<Item = Result<Bytes, Aborted>> + Send + 'static) -> Self {
        Self {
            source: Box::pin(source),
            beat: Box::pin(sleep(KEEP_ALIVE)),
            ended: false,
        }
    }

    fn rest(&mut self) {
        self.beat.as_mut().reset(Instant::now() + KEEP_ALIVE);
    }
}

impl HttpBody for EventBody {
    type Data = Bytes;
    type Error = Aborted;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<BodyFrame<Bytes>, Aborted>>> {
        let this = self.get_mut();
        if this.ended {
            return Poll::Ready(None);
        }
        if let Poll::Ready(next) = this.source.as_mut().poll_next(cx) {
            this.rest();
            this.ended = !matches!(next, Some(Ok(_)));
            return Poll::Ready(next.map(|event| event.map(BodyFrame::data)));
        }
        if this.beat.as_mut().poll(cx).is_ready() {
            this.rest();
            // Registers the new deadline; it cannot have passed already.
            let _pending = this.beat.as_mut().poll(cx);
            return Poll::Ready(Some(Ok(BodyFrame::data(sse::comment()))));
        }
        Poll::Pending
    }
}

impl fmt::Debug for EventBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventBody")
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

/// Why an event could not be queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stuck {
    /// The client reads too slowly.
    Full,
    /// The client has gone.
    Gone,
}

/// The producer's end of a bounded queue of events.
#[derive(Debug)]
pub(crate) struct Outlet {
    queue: mpsc::Sender<Bytes>,
    waiting: Arc<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    bytes: AtomicUsize,
    aborted: std::sync::atomic::AtomicBool,
}

/// The consumer's end.
#[derive(Debug)]
pub(crate) struct Queue {
    events: mpsc::Receiver<Bytes>,
    waiting: Arc<Waiting>,
}

/// A queue for one connection of a stateless client.
pub(crate) fn queue() -> (Outlet, Queue) {
    let (sender, events) = mpsc::channel(QUEUE_EVENTS);
    let waiting = Arc::new(Waiting::default());
    (
        Outlet {
            queue: sender,
            waiting: Arc::clone(&waiting),
        },
        Queue { events, waiting },
    )
}

impl Outlet {
    /// Queues one event; one of any size is taken when nothing waits.
    pub(crate) fn push(&self, event: Bytes) -> Result<(), Stuck> {
        let waiting = self.waiting.bytes.load(Ordering::Acquire);
        if waiting > 0 && waiting + event.len() > QUEUE_BYTES {
            return Err(Stuck::Full);
        }
        self.waiting.bytes.fetch_add(event.len(), Ordering::AcqRel);
        self.queue.try_send(event).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => Stuck::Full,
            mpsc::error::TrySendError::Closed(_) => Stuck::Gone,
        })
    }

    /// Breaks the connection off, whatever still waits.
    pub(crate) fn abort(self) {
        self.waiting.aborted.store(true, Ordering::Release);
    }

    /// Resolves when the client has gone.
    pub(crate) async fn closed(&self) {
        self.queue.closed().await;
    }
}

impl Stream for Queue {
    type Item = Result<Bytes, Aborted>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        let next = this.events.poll_recv(cx);
        if this.waiting.aborted.load(Ordering::Acquire) {
            return Poll::Ready(Some(Err(Aborted)));
        }
        if let Poll::Ready(Some(event)) = &next {
            this.waiting.bytes.fetch_sub(event.len(), Ordering::AcqRel);
        }
        next.map(|event| event.map(Ok))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::StreamExt;
    use http_body_util::BodyExt;

    /// SSE-15, case 125: a silent stream carries a comment every 15 s, and none after its end.
    #[tokio::test(start_paused = true)]
    async fn sse_15_a_silent_stream_is_kept_alive_with_comments() {
        let (outlet, queue) = queue();
        let mut body = EventBody::new(queue);
        let begun = Instant::now();
        for beats in 1..=3u32 {
            let data = body.frame().await.unwrap().unwrap().into_data().unwrap();
            assert_eq!(data, sse::comment());
            assert_eq!(begun.elapsed(), KEEP_ALIVE * beats);
        }
        outlet.push(Bytes::from_static(b"x")).unwrap();
        assert_eq!(
            body.frame().await.unwrap().unwrap().into_data().unwrap(),
            "x"
        );
        drop(outlet);
        assert!(body.frame().await.is_none());
    }

    /// SSE-17: beyond 256 KiB or 1,000 waiting events a stateless connection is full; one event of
    /// any size is taken.
    #[tokio::test]
    async fn sse_17_the_queue_of_a_connection_is_bounded() {
        let (outlet, mut events) = queue();
        outlet
            .push(Bytes::from(vec![b'x'; QUEUE_BYTES * 3]))
            .unwrap();
        assert_eq!(outlet.push(Bytes::from_static(b"y")), Err(Stuck::Full));
        assert_eq!(events.next().await.unwrap().unwrap().len(), QUEUE_BYTES * 3);
        for _ in 0..QUEUE_EVENTS {
            outlet.push(Bytes::from_static(b"y")).unwrap();
        }
        assert_eq!(outlet.push(Bytes::from_static(b"y")), Err(Stuck::Full));
        outlet.abort();
        assert_eq!(events.next().await, Some(Err(Aborted)));
    }

    #[tokio::test]
    async fn a_producer_learns_that_the_client_has_gone() {
        let (outlet, events) = queue();
        drop(events);
        outlet.closed().await;
        assert_eq!(outlet.push(Bytes::from_static(b"y")), Err(Stuck::Gone));
    }
}

//! A call as a stream of events: one future that hands out events while it runs and ends with the
//! final one.
//!
//! The future is polled by whoever reads the events, never by a task of its own: a call costs no
//! spawn and no channel, a slow reader slows the upstream down, and dropping the stream drops the
//! future where it stands. What has to be done then (closing the response stream, telling a legacy
//! upstream) is done by what the future holds.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use futures_util::Stream;
use vestibule_exchange::{Event, Events, Final};

use crate::locked;

/// Hands out the events of a running call.
#[derive(Debug)]
pub(crate) struct Sink(Arc<Mutex<Option<Event>>>);

/// A running call.
struct Running {
    call: Option<Pin<Box<dyn Future<Output = Final> + Send>>>,
    said: Arc<Mutex<Option<Event>>>,
}

/// The events of the call that `run` makes. Nothing happens until the stream is polled.
pub(crate) fn events<F>(run: impl FnOnce(Sink) -> F) -> Events
where
    F: Future<Output = Final> + Send + 'static,
{
    let said = Arc::new(Mutex::new(None));
    let call = run(Sink(Arc::clone(&said)));
    Events::stream(Running {
        call: Some(Box::pin(call)),
        said,
    })
}

// === impl Sink ===

impl Sink {
    /// Hands out `event`; returns when it has been taken.
    pub(crate) async fn send(&self, event: Event) {
        *locked(&self.0) = Some(event);
        // No waker: the reader takes the event and polls again for the next one.
        poll_fn(|_| {
            if locked(&self.0).is_none() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
}

impl Stream for Running {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        let Some(call) = self.call.as_mut() else {
            return Poll::Ready(None);
        };
        match call.as_mut().poll(cx) {
            Poll::Ready(end) => {
                self.call = None;
                Poll::Ready(Some(Event::Final(end)))
            }
            Poll::Pending => match locked(&self.said).take() {
                Some(event) => Poll::Ready(Some(event)),
                None => Poll::Pending,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::StreamExt;
    use std::time::Duration;

    #[tokio::test]
    async fn events_come_in_order_and_end_with_one_final() {
        let mut events = events(|sink| async move {
            for millis in [1, 2] {
                sink.send(Event::Paused {
                    retry: Some(Duration::from_millis(millis)),
                })
                .await;
            }
            Final::Empty
        });
        let mut seen = Vec::new();
        while let Some(event) = events.next().await {
            if let Event::Paused { retry: Some(retry) } = event {
                seen.push(retry.as_millis());
            } else {
                assert!(matches!(event, Event::Final(Final::Empty)));
                seen.push(100);
            }
        }
        assert_eq!(seen, [1, 2, 100]);
    }

    #[tokio::test]
    async fn dropping_the_events_drops_what_the_call_holds() {
        let held = Arc::new(());
        let inside = Arc::clone(&held);
        let mut events = events(|_sink| async move {
            std::future::pending::<()>().await;
            drop(inside);
            Final::Empty
        });
        assert!(futures_util::poll!(events.next()).is_pending());
        drop(events);
        assert_eq!(Arc::strong_count(&held), 1);
    }
}

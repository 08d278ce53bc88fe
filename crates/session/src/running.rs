//! A call below this room: from the moment it is handed down to its one end, whatever the stages
//! below do. Dropping it cancels the call.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::StreamExt;
use tokio::time::{Instant, Sleep, sleep_until};
use vestibule_exchange::{Event, Events, Final, RpcError};
use vestibule_terms::reject::code;

use crate::ending::{Ending, Over};

/// The stages below end a call at its limit; only if they do not is it ended here, this much later.
const GRACE: Duration = Duration::from_secs(2);

enum Source {
    Starting(Pin<Box<dyn Future<Output = Events> + Send>>),
    Started(Box<Events>),
    Ended,
}

/// A running call. Gives exactly one [`Event::Final`], last.
pub(crate) struct Running {
    source: Source,
    limit: Option<Instant>,
    ending: Option<Pin<Box<dyn Future<Output = Over> + Send>>>,
    /// One timer for the whole call, made when it is first needed.
    alarm: Option<Pin<Box<Sleep>>>,
}

/// What a wait for the next event came to.
pub(crate) enum Next {
    /// An event; nothing after the end.
    Event(Option<Event>),
    /// The moment has come before an event has.
    Moment,
    /// The process stops. While this is kept the upstream does not notice, and another process can go
    /// on with the call; if none can, this is how it has ended.
    Left(RpcError),
}

impl Running {
    /// A call that ends at `end` at the latest; without it, whenever it likes.
    pub(crate) fn new(
        starting: impl Future<Output = Events> + Send + 'static,
        end: Option<Instant>,
    ) -> Self {
        Self {
            source: Source::Starting(Box::pin(starting)),
            limit: end.map(|end| end + GRACE),
            ending: None,
            alarm: None,
        }
    }

    /// The same, ended from above too.
    pub(crate) fn until(mut self, mut ending: Ending) -> Self {
        self.ending = Some(Box::pin(async move { ending.over().await }));
        self
    }

    /// The next event; nothing after the end. Can be dropped and called again.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        match self.next_before(None).await {
            Next::Event(event) => event,
            Next::Moment => None, // there was none
            Next::Left(error) => {
                self.source = Source::Ended;
                Some(Event::Final(Final::Error(error)))
            }
        }
    }

    /// The next event, unless `moment` comes first. Can be dropped and called again.
    pub(crate) async fn next_before(&mut self, moment: Option<Instant>) -> Next {
        poll_fn(|cx| self.poll_next_before(moment, cx)).await
    }

    fn poll_next_before(&mut self, moment: Option<Instant>, cx: &mut Context<'_>) -> Poll<Next> {
        let mut event = self.source.poll_next(cx);
        if event.is_pending()
            && let Some(ending) = &mut self.ending
        {
            event = match ending.as_mut().poll(cx) {
                Poll::Ready(Over::Ended(error)) => {
                    Poll::Ready(Some(Event::Final(Final::Error(error))))
                }
                Poll::Ready(Over::Left(error)) => {
                    self.ending = None;
                    return Poll::Ready(Next::Left(error));
                }
                Poll::Pending => Poll::Pending,
            };
        }
        if event.is_pending() {
            ready!(self.poll_alarm(moment, cx));
            if moment.is_some_and(|moment| moment <= Instant::now()) {
                return Poll::Ready(Next::Moment);
            }
            event = Poll::Ready(Some(overdue()));
        }
        let event = ready!(event);
        if matches!(event, None | Some(Event::Final(_))) {
            self.source = Source::Ended;
            self.ending = None;
        }
        Poll::Ready(Next::Event(event))
    }

    /// Waits for the limit or the moment, whichever is first.
    fn poll_alarm(&mut self, moment: Option<Instant>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(due) = self.limit.into_iter().chain(moment).min() else {
            return Poll::Pending;
        };
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(sleep_until(due)));
        if alarm.deadline() != due {
            alarm.as_mut().reset(due);
        }
        alarm.as_mut().poll(cx)
    }
}

impl Source {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        if let Source::Starting(starting) = self {
            let events = ready!(starting.as_mut().poll(cx));
            *self = Source::Started(Box::new(events));
        }
        let Source::Started(events) = self else {
            return Poll::Ready(None);
        };
        let event = ready!(events.poll_next_unpin(cx));
        Poll::Ready(Some(event.unwrap_or_else(broken_off)))
    }
}

/// A stage below let a call end without its final event, which is a bug of ours.
fn broken_off() -> Event {
    tracing::error!("a call ended without its final event");
    Event::Final(Final::Error(RpcError::new(
        code::INTERNAL,
        "internal error",
    )))
}

fn overdue() -> Event {
    let message = "the call took longer than it may";
    let error = RpcError::gateway(code::UPSTREAM_TIMEOUT, message, "timeout", None, true);
    Event::Final(Final::Error(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code_of(event: Option<Event>) -> i64 {
        let Some(Event::Final(Final::Error(error))) = event else {
            panic!("{event:?}")
        };
        error.code
    }

    /// EL-14: a stage that forgets the end does not leave the client waiting.
    #[tokio::test]
    async fn el_14_a_call_without_an_end_gets_one() {
        let events = Events::stream(futures_util::stream::empty());
        let mut running = Running::new(async { events }, None);
        assert_eq!(code_of(running.next().await), -32603);
        assert!(running.next().await.is_none());
    }

    /// LIF-09: the total limit holds whatever happens below.
    #[tokio::test(start_paused = true)]
    async fn lif_09_the_total_limit_holds() {
        let end = Instant::now() + Duration::from_secs(600);
        let mut running = Running::new(std::future::pending(), Some(end));
        assert_eq!(code_of(running.next().await), -31002);
        assert_eq!(Instant::now(), end + GRACE);
    }
}

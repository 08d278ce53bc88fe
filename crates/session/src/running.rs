//! A call below this room: from the moment it is handed down to its one end, whatever the stages
//! below do. Dropping it cancels the call.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::time::{Instant, timeout_at};
use vestibule_exchange::{Event, Events, Final, RpcError};
use vestibule_terms::reject::code;

use crate::ending::Ending;

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
    ending: Option<Ending>,
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
        }
    }

    /// The same, ended from above too.
    pub(crate) fn until(mut self, ending: Ending) -> Self {
        self.ending = Some(ending);
        self
    }

    /// The next event; nothing after the end. Can be dropped and called again.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        let limit = self.limit;
        let next = async {
            let next = self.source.next();
            match limit {
                None => next.await,
                Some(limit) => timeout_at(limit, next)
                    .await
                    .unwrap_or_else(|_late| Some(overdue())),
            }
        };
        let event = match &mut self.ending {
            None => next.await,
            Some(ending) => tokio::select! {
                biased;
                event = next => event,
                error = ending.over() => Some(Event::Final(Final::Error(error))),
            },
        };
        if matches!(event, None | Some(Event::Final(_))) {
            self.source = Source::Ended;
        }
        event
    }
}

impl Source {
    async fn next(&mut self) -> Option<Event> {
        if let Source::Starting(starting) = self {
            let events = starting.as_mut().await;
            *self = Source::Started(Box::new(events));
        }
        let Source::Started(events) = self else {
            return None;
        };
        Some(events.next().await.unwrap_or_else(broken_off))
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

//! What an upstream says about one call, in order, ending with exactly one [`Final`].

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use vestibule_frame::{Draft, Frame, Id, Limits, encode, json};

use crate::call::LogLevel;
use crate::error_map::RpcError;
use crate::question::Question;
use crate::rounds::Wanted;
use crate::view::{ListPage, ServerView};

/// One thing said about a running call.
#[derive(Debug, Clone)]
pub enum Event {
    /// `notifications/progress`. The token is still the upstream's; the session restores the
    /// client's (PRG-01).
    Progress(Draft),
    /// `notifications/message`.
    Log {
        /// Its level.
        level: LogLevel,
        /// The notification.
        message: Draft,
    },
    /// Any other notification that came on the call's own stream: `list_changed`, `updated`,
    /// `notifications/subscriptions/acknowledged` and what a listen stream carries.
    Notice(Draft),
    /// The upstream asks something (legacy upstreams).
    Question(Question),
    /// The upstream withdrew its question of that upstream id.
    QuestionWithdrawn(Draft),
    /// The upstream ended the stream of this call before its answer and will go on after a
    /// reconnect (2025-11-25 polling); sent before the reconnect is awaited.
    Paused {
        /// The `retry` it gave.
        retry: Option<Duration>,
    },
    /// How another process could go on with this call ([`Continuation`](crate::Continuation)): it
    /// stands for everything said so far and, where `covers_next`, for the event after it too. Only
    /// from upstreams whose events have ids.
    Mark {
        /// What the connector needs.
        mark: Bytes,
        /// Whether it must not be kept without the event that comes next.
        covers_next: bool,
    },
    /// The end. Nothing follows.
    Final(Final),
}

/// How a call ended.
#[derive(Debug, Clone)]
pub enum Final {
    /// The upstream's response, result or error, with edits pending. Its id is still the
    /// upstream's; the session writes the client's.
    Message(Draft),
    /// An error of our own making, or a mapped one.
    Error(RpcError),
    /// `initialize` and `server/discover`.
    View(Box<ServerView>),
    /// A page of a list, answered from the catalog.
    List(ListPage),
    /// An empty result (`{}`).
    Empty,
    /// The upstream wants to be told something first: the session asks its client, and calls again.
    Wanted(Box<Wanted>),
    /// The call was cancelled: no response at all (CAN-03).
    Cancelled,
}

impl Final {
    /// The result of a tool that says it has failed: the model that called it reads why.
    pub fn tool_error(text: &str) -> Self {
        let text = json::quote(text);
        let result = format!(r#"{{"content":[{{"type":"text","text":{text}}}],"isError":true}}"#);
        let message = encode::result(&Id::integer(0), result.as_bytes());
        let frame = Frame::parse(message, &Limits::default());
        Self::Message(Draft::new(
            frame.expect("a result of our own is well-formed"),
        ))
    }
}

/// The events of one call. Dropping it cancels the call: the upstream is told within a second.
pub struct Events(Source);

enum Source {
    /// A call that ends at once costs no allocation.
    Ready(Option<Event>),
    Stream(Pin<Box<dyn Stream<Item = Event> + Send>>),
}

impl Events {
    /// A call that ended at once; costs nothing.
    pub fn ready(end: Final) -> Self {
        Self(Source::Ready(Some(Event::Final(end))))
    }

    /// A call that failed at once.
    pub fn error(error: RpcError) -> Self {
        Self::ready(Final::Error(error))
    }

    /// A call whose events are still to come. The stream must end with a [`Final`].
    pub fn stream(stream: impl Stream<Item = Event> + Send + 'static) -> Self {
        Self(Source::Stream(Box::pin(stream)))
    }

    /// The final event if the call has already ended, without waiting.
    #[expect(
        clippy::result_large_err,
        reason = "the other half of the same value, handed back"
    )]
    pub fn into_ready(self) -> Result<Final, Events> {
        match self.0 {
            Source::Ready(Some(Event::Final(end))) => Ok(end),
            Source::Ready(_) | Source::Stream(_) => Err(self),
        }
    }
}

impl Stream for Events {
    type Item = Event;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        match &mut self.get_mut().0 {
            Source::Ready(event) => Poll::Ready(event.take()),
            Source::Stream(stream) => stream.as_mut().poll_next(cx),
        }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::Ready(event) => f.debug_tuple("Events::Ready").field(event).finish(),
            Source::Stream(_) => f.write_str("Events::Stream(…)"),
        }
    }
}

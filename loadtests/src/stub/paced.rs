//! A stream of numbered progress events and a result, at a set pace, that can be continued.
//!
//! An event id is the whole recipe of its stream: which event it was, how many there are, the gap,
//! the token and the id of the call. So the stub continues any stream without remembering one (of
//! the result, which the recipe does not hold, it then sends an empty one).

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use serde_json::value::RawValue;
use tokio::time::{Sleep, sleep};

/// The recipe, how far it is, and the clock.
#[derive(Debug)]
pub(super) struct Paced {
    token: String,
    sent: u32,
    events: u32,
    gap: Duration,
    delay: Duration,
    result: Option<Bytes>,
    /// Runs before whatever comes next.
    waiting: Option<Pin<Box<Sleep>>>,
    is_silent: bool,
}

// === impl Paced ===

impl Paced {
    pub(super) fn new(
        token: String,
        events: u32,
        gap: Duration,
        delay: Duration,
        result: Bytes,
    ) -> Self {
        let (result, is_silent) = (Some(result), false);
        Self {
            token,
            sent: 0,
            events,
            gap,
            delay,
            result,
            waiting: None,
            is_silent,
        }
    }

    /// A stream on which nothing ever comes.
    pub(super) fn silent() -> Self {
        let mut silent = Self::new(
            String::new(),
            0,
            Duration::ZERO,
            Duration::ZERO,
            Bytes::new(),
        );
        silent.is_silent = true;
        silent
    }

    /// The rest of a stream behind the event with this id.
    pub(super) fn behind(id: &str) -> Option<Self> {
        let mut parts = id.splitn(5, '.');
        let sent: u32 = parts.next()?.parse().ok()?;
        let events: u32 = parts.next()?.parse().ok()?;
        let gap: u64 = parts.next()?.parse().ok()?;
        let call: u64 = parts.next()?.parse().ok()?;
        let token = parts.next()?.to_owned();
        let call = RawValue::from_string(call.to_string()).ok()?;
        let result = super::message::response(&call, "{}");
        let gap = Duration::from_micros(gap);
        let rest = Self::new(token, events, gap, Duration::ZERO, result);
        Some(Self { sent, ..rest })
    }

    /// The answer without the stream, and how long it takes.
    pub(super) fn into_object(self) -> (Bytes, Duration) {
        (self.result.unwrap_or_default(), self.delay)
    }

    fn progress(&self) -> Bytes {
        let Self {
            token,
            sent,
            events,
            ..
        } = self;
        let gap = self.gap.as_micros();
        // ids of calls are the generator's tokens; another client's stream cannot be continued
        let id = token.trim_matches('"');
        Bytes::from(format!(
            "id: {sent}.{events}.{gap}.{id}.{token}\ndata: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\
             \"params\":{{\"progressToken\":{token},\"progress\":{sent},\"total\":{events}}}}}\n\n"
        ))
    }

    /// The time before what comes next.
    fn pause(&self) -> Duration {
        if self.sent < self.events {
            self.gap
        } else {
            self.delay
        }
    }

    fn next(&mut self) -> Option<Bytes> {
        if self.sent < self.events {
            self.sent += 1;
            return Some(self.progress());
        }
        let result = self.result.take()?;
        let mut event = Vec::with_capacity(result.len() + 8);
        event.extend_from_slice(b"data: ");
        event.extend_from_slice(&result);
        event.extend_from_slice(b"\n\n");
        Some(Bytes::from(event))
    }
}

impl Body for Paced {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.is_silent {
            return Poll::Pending;
        }
        let pause = self.pause();
        if self.result.is_some() && !pause.is_zero() {
            let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(pause)));
            std::task::ready!(waiting.as_mut().poll(context));
            self.waiting = None;
        }
        Poll::Ready(self.next().map(|event| Ok(Frame::data(event))))
    }
}

//! A stream that ended before its answer is continued by a GET with the last event id, when the
//! upstream numbers its events (RES-08, SSE-06, EL-28). Without ids nobody knows what happened.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use tokio::time::{Instant, sleep};
use vestibule_exchange::Event;
use vestibule_frame::Kind;

use crate::clock::CallClock;
use crate::fault::Fault;
use crate::ids::CallId;
use crate::legacy::live::HttpLine;
use crate::legacy::record::Mark;
use crate::running::Sink;
use crate::wire::{Answer, Item};

/// Longest time between two attempts, whatever the upstream asks for.
const RETRY_MAX: Duration = Duration::from_secs(30);
/// Time between attempts when the upstream asks for none.
const RETRY_DEFAULT: Duration = Duration::from_secs(1);
/// How long a 409 (the old connection still looks alive there) or a failing upstream is retried.
const TROUBLE_MAX: Duration = Duration::from_secs(20);
/// Connections in a row that bring no new event.
const EMPTY_MAX: u32 = 60;
/// Event ids that are remembered to tell repetitions.
const SEEN_MAX: usize = 4096;

/// How far a stream has been read.
#[derive(Debug, Default)]
pub(crate) struct Cursor {
    last: Option<String>,
    retry: Option<Duration>,
    /// Ids of messages, with the connection that brought each first.
    seen: HashMap<String, u32>,
    connection: u32,
    empty: u32,
}

/// What an attempt to continue came to.
enum Attempt {
    Opened(Box<Answer>),
    /// Not now.
    Trouble,
}

impl Cursor {
    /// A stream that another process has read so far.
    pub(crate) fn at(mark: Mark) -> Self {
        Self {
            last: Some(mark.event),
            // the one who asked for the wait is gone, and so are its reasons
            retry: Some(Duration::ZERO),
            ..Self::default()
        }
    }

    /// What has to be known to go on behind `item`; nothing where nothing new is. `waits`: a question
    /// of before is still open.
    pub(crate) fn mark(&self, call: &CallId, item: &Item, waits: bool) -> Option<Bytes> {
        let event = item.id.as_ref().filter(|id| !id.is_empty())?;
        let mut frames = item.frames.iter().flatten();
        let asks = frames.any(|frame| frame.kind() == Kind::Request);
        Mark::write(call, event, self.retry, waits || asks)
    }

    /// Takes note of an event; false when an earlier connection has brought its message (RES-09).
    ///
    /// Only messages are told apart so: some servers give their first message the id of the empty
    /// event before it, and within one connection nothing is ever repeated.
    pub(crate) fn advance(&mut self, item: &Item) -> bool {
        self.retry = item.retry.or(self.retry);
        let Some(id) = &item.id else { return true };
        self.last = Some(id.clone()).filter(|id| !id.is_empty());
        let is_message = item
            .frames
            .as_ref()
            .map_or(true, |frames| !frames.is_empty());
        if id.is_empty() || !is_message {
            return true;
        }
        if self.seen.len() >= SEEN_MAX {
            self.seen.clear();
        }
        let first = *self.seen.entry(id.clone()).or_insert(self.connection);
        let is_new = first == self.connection;
        if is_new {
            self.empty = 0;
        }
        is_new
    }

    /// Another connection begins: what it repeats is to be told apart.
    pub(crate) fn connected(&mut self) {
        self.connection += 1;
    }

    /// The id to continue behind.
    pub(crate) fn last(&self) -> Option<&str> {
        self.last.as_deref()
    }

    /// How long to wait before a connection is made again.
    pub(crate) fn delay(&self) -> Duration {
        self.retry.unwrap_or(RETRY_DEFAULT).min(RETRY_MAX)
    }

    /// Continues the stream. `pausing`: the upstream ended it in good order, and whoever reads the
    /// events is told so before the wait.
    pub(crate) async fn resume(
        &mut self,
        line: &Arc<HttpLine>,
        clock: &mut CallClock,
        pausing: Option<&Sink>,
    ) -> Result<Answer, Fault> {
        if self.last.is_none() || self.empty >= EMPTY_MAX {
            return Err(Fault::Broken);
        }
        self.empty += 1;
        if let Some(sink) = pausing {
            sink.send(Event::Paused { retry: self.retry }).await;
        }
        let mut delay = self.delay();
        let trouble_ends = Instant::now() + delay + TROUBLE_MAX;
        loop {
            clock.touch(); // the pause is the upstream's, and bounded here
            clock.bound(sleep(delay)).await?;
            match clock.bound(self.attempt(line)).await?? {
                Attempt::Opened(answer) => {
                    self.connected();
                    clock.touch();
                    return Ok(*answer);
                }
                Attempt::Trouble if Instant::now() < trouble_ends => {
                    let least = Duration::from_millis(500);
                    let asked = self.retry.unwrap_or_default().min(RETRY_MAX);
                    delay = (delay * 2).clamp(least, Duration::from_secs(8)).max(asked);
                }
                Attempt::Trouble => return Err(Fault::Broken),
            }
        }
    }

    async fn attempt(&self, line: &HttpLine) -> Result<Attempt, Fault> {
        let headers = line.get_headers(self.last());
        let response = match line.wire.send(&http::Method::GET, &headers, &[]).await {
            Ok(response) => response,
            Err(Fault::NotSent(_) | Fault::Broken) => return Ok(Attempt::Trouble),
            Err(fault) => return Err(fault),
        };
        let status = response.status();
        if status.is_success() {
            let answer = Answer::new(response, line.wire.max_response())?;
            let is_stream = answer.is_stream();
            return is_stream
                .then(|| Attempt::Opened(Box::new(answer)))
                .ok_or(Fault::Broken);
        }
        if status == StatusCode::CONFLICT
            || status == StatusCode::TOO_MANY_REQUESTS
            || status.is_server_error()
        {
            return Ok(Attempt::Trouble);
        }
        // the session is gone (404) or has no streams (405): the outcome is unknown
        Err(Fault::Broken)
    }
}

#[cfg(test)]
mod tests {
    use vestibule_frame::{Frame, Limits, encode};

    use super::*;

    fn item(id: Option<&str>, retry: Option<u64>) -> Item {
        let message = encode::notification("notifications/message", None);
        let frame = Frame::parse(message, &Limits::default()).unwrap();
        Item {
            frames: Ok(vec![frame]),
            id: id.map(str::to_owned),
            retry: retry.map(Duration::from_millis),
        }
    }

    /// RES-09, EL-28: events are told apart by id; those without one are always new.
    #[test]
    fn res_09_repeated_events_are_dropped_by_id() {
        let mut cursor = Cursor::default();
        assert!(cursor.advance(&item(Some("a"), None)));
        assert!(cursor.advance(&item(None, None)));
        assert!(cursor.advance(&item(Some("b"), None)));
        cursor.connected();
        assert!(!cursor.advance(&item(Some("b"), None)));
        assert!(cursor.advance(&item(None, None)));
        assert_eq!(cursor.last(), Some("b"));
        assert!(cursor.advance(&item(Some(""), None)), "an empty id resets");
        assert_eq!(cursor.last(), None);
    }

    /// SSE-02: an empty event only sets the position: a message of the same id is no repetition.
    #[test]
    fn sse_02_a_message_with_the_id_of_an_empty_event_is_new() {
        let mut cursor = Cursor::default();
        let priming = Item {
            frames: Ok(Vec::new()),
            ..item(Some("0"), None)
        };
        assert!(cursor.advance(&priming));
        assert!(cursor.advance(&item(Some("0"), None)));
        cursor.connected();
        assert!(!cursor.advance(&item(Some("0"), None)));
        assert_eq!(cursor.last(), Some("0"));
    }

    /// SSE-06: `retry` is obeyed up to thirty seconds.
    #[test]
    fn sse_06_retry_is_obeyed_within_bounds() {
        let mut cursor = Cursor::default();
        assert_eq!(cursor.delay(), RETRY_DEFAULT);
        cursor.advance(&item(None, Some(250)));
        assert_eq!(cursor.delay(), Duration::from_millis(250));
        cursor.advance(&item(None, None));
        assert_eq!(cursor.delay(), Duration::from_millis(250));
        cursor.advance(&item(None, Some(90_000)));
        assert_eq!(cursor.delay(), RETRY_MAX);
    }
}

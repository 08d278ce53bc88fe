//! The incremental parser: bytes in, events out, wherever the chunks are cut.
//!
//! It works on bytes, so a character that is split over chunks arrives whole. What an event holds is
//! not looked at here. Comments, unknown fields and events that set nothing produce no event; an
//! event with empty data comes without data, so that it never reaches the JSON layer (SSE-02). What
//! stands behind the last blank line when a stream ends is dropped, as WHATWG says.

use std::fmt;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};

/// One event of a stream.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Event {
    /// The last event id, when this event sets it.
    pub id: Option<String>,
    /// The event type, when given.
    pub event: Option<String>,
    /// The data lines, joined by LF; none when they amount to nothing.
    pub data: Option<Bytes>,
    /// The time to wait before a reconnect, when this event sets it.
    pub retry: Option<Duration>,
}

/// Why a stream cannot be read on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SseError {
    /// One event is larger than the cap.
    #[error("an event is larger than {limit} bytes")]
    TooLarge {
        /// The cap, in bytes.
        limit: usize,
    },
}

/// Reads one event stream.
pub struct Parser {
    max_event: usize,
    buffer: BytesMut,
    /// How much of the buffer is known to hold no line end.
    searched: usize,
    /// The last line ended in CR, so that a LF that follows belongs to it.
    after_cr: bool,
    begun: bool,
    failed: bool,
    event: Event,
    /// Further data lines, when there is more than one.
    joined: Option<BytesMut>,
}

impl Parser {
    /// A parser that refuses an event when the data it has and the line that follows are together
    /// larger than `max_event` bytes, however the stream is cut.
    pub fn new(max_event: usize) -> Parser {
        Parser {
            max_event,
            buffer: BytesMut::new(),
            searched: 0,
            after_cr: false,
            begun: false,
            failed: false,
            event: Event::default(),
            joined: None,
        }
    }

    /// Adds the next bytes of the stream. Take the events out before adding more: the parser keeps
    /// what it was given.
    pub fn push(&mut self, chunk: &[u8]) {
        self.buffer.extend_from_slice(chunk);
    }

    /// The next event, if all of it has arrived.
    ///
    /// # Errors
    /// When an event is too large. The parser is of no use then: each further call fails too.
    pub fn next_event(&mut self) -> Result<Option<Event>, SseError> {
        if self.failed {
            return Err(SseError::TooLarge {
                limit: self.max_event,
            });
        }
        while let Some(line) = self.line() {
            if line.is_empty() {
                if let Some(event) = self.dispatch() {
                    return Ok(Some(event));
                }
                continue;
            }
            self.check_size(line.len())?;
            self.field(&line);
        }
        self.check_size(self.buffer.len())?;
        Ok(None)
    }

    /// Counts a line as a whole, so that it makes no difference whether it arrived in pieces.
    fn check_size(&mut self, unread: usize) -> Result<(), SseError> {
        let joined = self.joined.as_ref().map_or(0, BytesMut::len);
        let data = self.event.data.as_ref().map_or(joined, Bytes::len);
        if data + unread > self.max_event {
            self.failed = true;
            self.buffer = BytesMut::new();
            return Err(SseError::TooLarge {
                limit: self.max_event,
            });
        }
        Ok(())
    }

    /// Takes one complete line, without its end, out of the buffer.
    fn line(&mut self) -> Option<Bytes> {
        self.pass_mark()?;
        if self.after_cr && !self.buffer.is_empty() {
            if self.buffer.starts_with(b"\n") {
                self.buffer.advance(1);
            }
            self.after_cr = false;
        }
        let unsearched = self.buffer.get(self.searched..).unwrap_or_default();
        let Some(found) = memchr::memchr2(b'\r', b'\n', unsearched) else {
            self.searched = self.buffer.len();
            return None;
        };
        let length = self.searched + found;
        self.searched = 0;
        let line = self.buffer.split_to(length).freeze();
        self.after_cr = self.buffer.first() == Some(&b'\r');
        self.buffer.advance(1);
        Some(line)
    }

    /// Passes over a byte order mark at the start; none while it cannot be told yet.
    fn pass_mark(&mut self) -> Option<()> {
        const MARK: &[u8] = b"\xef\xbb\xbf";
        if self.begun {
            return Some(());
        }
        if self.buffer.len() < MARK.len() && MARK.starts_with(&self.buffer) {
            return None;
        }
        if self.buffer.starts_with(MARK) {
            self.buffer.advance(MARK.len());
        }
        self.begun = true;
        Some(())
    }

    fn field(&mut self, line: &Bytes) {
        let colon = memchr::memchr(b':', line);
        let name = line.get(..colon.unwrap_or(line.len())).unwrap_or_default();
        let mut value = line.slice(colon.map_or(line.len(), |at| at + 1)..);
        if value.starts_with(b" ") {
            value.advance(1);
        }
        match name {
            b"data" => self.data(value),
            b"event" => self.event.event = Some(text(&value)),
            b"id" if !value.contains(&0) => self.event.id = Some(text(&value)),
            b"retry" => self.retry(&value),
            _ => {} // a comment (no name) or a field of another protocol
        }
    }

    /// The first data line stays a slice of the buffer; only further ones make a copy.
    fn data(&mut self, value: Bytes) {
        if let Some(joined) = &mut self.joined {
            joined.extend_from_slice(b"\n");
            joined.extend_from_slice(&value);
        } else if let Some(first) = self.event.data.take() {
            let mut joined = BytesMut::with_capacity(first.len() + value.len() + 1);
            joined.extend_from_slice(&first);
            joined.extend_from_slice(b"\n");
            joined.extend_from_slice(&value);
            self.joined = Some(joined);
        } else {
            self.event.data = Some(value);
        }
    }

    fn retry(&mut self, value: &[u8]) {
        let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
        let milliseconds = std::str::from_utf8(value)
            .ok()
            .and_then(|text| text.parse().ok());
        if let (true, Some(milliseconds)) = (digits, milliseconds) {
            self.event.retry = Some(Duration::from_millis(milliseconds));
        }
    }

    /// A blank line: the event so far, if it says anything.
    fn dispatch(&mut self) -> Option<Event> {
        let mut event = std::mem::take(&mut self.event);
        if let Some(joined) = self.joined.take() {
            event.data = Some(joined.freeze());
        }
        event.data = event.data.filter(|data| !data.is_empty());
        let says = event.data.is_some() || event.id.is_some() || event.retry.is_some();
        says.then_some(event)
    }
}

impl fmt::Debug for Parser {
    /// How much is waiting: never contents.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.buffer.len();
        f.debug_struct("Parser")
            .field("waiting", &waiting)
            .finish_non_exhaustive()
    }
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}

#[cfg(test)]
mod tests;

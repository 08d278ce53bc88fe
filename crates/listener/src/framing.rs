//! Where requests of an HTTP/1.1 connection begin and end, written in the one way that every reader
//! takes alike (T16).
//!
//! Whoever stands before us may find the end of a request elsewhere than the server library does,
//! and what lies between the two ends is a request that nobody looked at. The library reads some
//! spellings generously, and a head with both `Content-Length` and `Transfer-Encoding` as chunked,
//! dropping the length, so that nobody behind it can see that there were two. This follows the bytes
//! and refuses:
//!
//! - both headers, either of them twice, a length that is not plain digits, a coding other than
//!   `chunked`, in whatever company;
//! - lines of a head, of a chunk's size or of trailers that end in LF alone, and folded lines;
//! - chunk sizes that are not plain hexadecimal digits;
//! - a target with `#`: the library drops what stands behind it, others compare it.
//!
//! What else is wrong the library refuses by itself, and nothing behind it is followed.

use memchr::memchr;

/// The part of a line that matters: no header that is looked for is longer.
const LINE: usize = 64;
/// How an HTTP/2 connection begins, which has no such framing.
const HTTP2: &[u8] = b"PRI * HTTP/2.0";
/// Digits of a length and of a chunk's size: what fits into 64 bits, decimal and hexadecimal.
const LENGTH_DIGITS: usize = 19;
const SIZE_DIGITS: usize = 16;

/// What is known of a head so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Head {
    /// The request line has passed.
    begun: bool,
    length: Option<u64>,
    chunked: bool,
    /// It is written in a way that is refused.
    bad: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before or in a head.
    Head(Head),
    /// In a body or chunk of known length, followed by a new head or by a chunk's size.
    Skip { left: u64, chunked: bool },
    /// In the line with a chunk's size.
    Size,
    /// After the last chunk.
    Trailers,
    /// HTTP/2.
    Off,
}

const NEW_HEAD: State = State::Head(Head {
    begun: false,
    length: None,
    chunked: false,
    bad: false,
});

/// Where a connection stops to be followed, and the library with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fault {
    /// How many of the bytes the library may still see.
    pub(crate) seen: usize,
    /// The first request of the connection that is refused, counted from 0.
    pub(crate) request: u64,
    /// Whether it is its head that is at fault: the library sees all of that, so that the request
    /// can be answered. Else it is its body, of which the library does not see the end.
    pub(crate) in_head: bool,
}

/// The follower of one connection.
#[derive(Debug)]
pub(crate) struct Framing {
    state: State,
    /// Heads that have ended.
    heads: u64,
    /// A line so far, and its length, of which no more than [`LINE`] is kept.
    kept: [u8; LINE],
    length: usize,
    /// The last byte of the line, and whether there is a `#` in it.
    last: u8,
    hash: bool,
}

impl Framing {
    pub(crate) fn new() -> Self {
        Self {
            state: NEW_HEAD,
            heads: 0,
            kept: [0; LINE],
            length: 0,
            last: 0,
            hash: false,
        }
    }

    /// Follows the next bytes, up to the first fault. Nothing is to be followed behind one.
    pub(crate) fn follow(&mut self, bytes: &[u8]) -> Option<Fault> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.state {
                State::Off => return None,
                State::Skip { left, chunked } => rest = self.skip(rest, left, chunked),
                State::Head(_) | State::Size | State::Trailers => {
                    let before = bytes.len() - rest.len();
                    let (behind, fault) = self.line(rest)?;
                    rest = behind;
                    let Some(in_head) = fault else { continue };
                    let after = bytes.len() - rest.len();
                    return Some(Fault {
                        seen: if in_head { after } else { before },
                        request: self.heads.saturating_sub(1),
                        in_head,
                    });
                }
            }
        }
        None
    }

    /// Takes a line, or what there is of it: what stands behind it, and the fault that it completes,
    /// whether of a head. None when the line goes on.
    fn line<'a>(&mut self, bytes: &'a [u8]) -> Option<(&'a [u8], Option<bool>)> {
        let end = memchr(b'\n', bytes);
        let (line, behind) = bytes.split_at(end.unwrap_or(bytes.len()));
        self.keep(line);
        end?;
        let behind = behind.get(1..).unwrap_or_default();
        Some((behind, self.end_of_line()))
    }

    fn skip<'a>(&mut self, bytes: &'a [u8], left: u64, chunked: bool) -> &'a [u8] {
        let here = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
        let left = left - u64::try_from(here).unwrap_or(left);
        self.state = match (left, chunked) {
            (0, true) => State::Size,
            (0, false) => NEW_HEAD,
            (left, chunked) => State::Skip { left, chunked },
        };
        bytes.get(here..).unwrap_or_default()
    }

    fn keep(&mut self, bytes: &[u8]) {
        let used = self.length.min(LINE);
        let kept = bytes
            .get(..(LINE - used).min(bytes.len()))
            .unwrap_or_default();
        if let Some(room) = self.kept.get_mut(used..used + kept.len()) {
            room.copy_from_slice(kept);
        }
        self.length = self.length.saturating_add(bytes.len());
        self.last = bytes.last().copied().unwrap_or(self.last);
        if let State::Head(Head { begun: false, .. }) = self.state {
            self.hash |= memchr(b'#', bytes).is_some();
        }
    }

    /// Takes the line that has just ended. The fault that it completes: whether of a head.
    fn end_of_line(&mut self) -> Option<bool> {
        let kept = self.kept.get(..self.length.min(LINE)).unwrap_or_default();
        let line = Line {
            kept: kept.strip_suffix(b"\r").unwrap_or(kept),
            whole: self.length <= LINE,
            proper: self.length > 0 && self.last == b'\r',
            empty: self.length == 0 || (self.length == 1 && self.last == b'\r'),
            hash: std::mem::take(&mut self.hash),
        };
        let first = self.heads == 0;
        let (next, fault) = match self.state {
            State::Head(head) if line.empty && head.begun => {
                self.heads += 1;
                head.end(&line)
            }
            State::Head(head) => (head.line(&line, first), None),
            State::Size => line
                .size()
                .map_or((self.state, Some(false)), |size| (size, None)),
            State::Trailers if !line.proper => (self.state, Some(false)),
            State::Trailers if line.empty => (NEW_HEAD, None),
            State::Trailers | State::Skip { .. } | State::Off => (self.state, None),
        };
        self.state = next;
        self.length = 0;
        fault
    }
}

/// A line without its end.
struct Line<'a> {
    /// Its beginning.
    kept: &'a [u8],
    /// Whether that is all of it.
    whole: bool,
    /// Whether it ended with CR and LF.
    proper: bool,
    empty: bool,
    /// Whether it is a request line with a `#`.
    hash: bool,
}

// === impl Head ===

impl Head {
    /// The state after one more line.
    fn line(mut self, line: &Line<'_>, first: bool) -> State {
        self.bad |= !line.proper || line.hash;
        if !self.begun {
            if first && line.kept.starts_with(HTTP2) {
                return State::Off;
            }
            self.begun = !line.empty; // empty lines before a request are skipped
            return State::Head(self);
        }
        let colon = memchr(b':', line.kept).unwrap_or(line.kept.len());
        let (name, value) = line.kept.split_at(colon);
        let value = value.get(1..).unwrap_or_default().trim_ascii();
        self.bad |= matches!(name.first(), Some(b' ' | b'\t'));
        if name.eq_ignore_ascii_case(b"content-length") {
            let length = line
                .whole
                .then(|| digits(value, 10, LENGTH_DIGITS))
                .flatten();
            self.bad |= length.is_none() || self.length.is_some();
            self.length = length.or(Some(0));
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            let chunked = line.whole && value.eq_ignore_ascii_case(b"chunked");
            self.bad |= !chunked || self.chunked;
            self.chunked = true;
        }
        State::Head(self)
    }

    /// The state after the empty line, or the fault of this head.
    fn end(self, line: &Line<'_>) -> (State, Option<bool>) {
        if self.bad || !line.proper {
            return (NEW_HEAD, Some(true));
        }
        match (self.length, self.chunked) {
            (Some(_), true) => (NEW_HEAD, Some(true)),
            (None, true) => (State::Size, None),
            (Some(left), false) if left > 0 => {
                let chunked = false;
                (State::Skip { left, chunked }, None)
            }
            (Some(_) | None, false) => (NEW_HEAD, None),
        }
    }
}

// === impl Line ===

impl Line<'_> {
    /// The state after a line with a chunk's size; none when it is no such line.
    fn size(&self) -> Option<State> {
        if !self.proper {
            return None;
        }
        let is_digit = |byte: &&u8| byte.is_ascii_hexdigit();
        let count = self.kept.iter().take_while(is_digit).count();
        let (size, behind) = self.kept.split_at(count);
        let extension = behind.trim_ascii_start().first();
        if !behind.is_empty() && extension != Some(&b';') {
            return None;
        }
        match digits(size, 16, SIZE_DIGITS)? {
            0 => Some(State::Trailers),
            // the line end after the data belongs to the chunk
            size => size.checked_add(2).map(|left| State::Skip {
                left,
                chunked: true,
            }),
        }
    }
}

/// A number of so many digits at most, and of nothing else.
fn digits(text: &[u8], radix: u32, most: usize) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let plain = text.chars().all(|letter| letter.is_digit(radix));
    if !plain || text.is_empty() || text.len() > most {
        return None;
    }
    u64::from_str_radix(text, radix).ok()
}

#[cfg(test)]
mod tests;

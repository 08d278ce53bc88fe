//! Where requests of an HTTP/1.1 connection begin and end, to see one thing: a head with both
//! `Content-Length` and `Transfer-Encoding` (T16).
//!
//! The server library reads such a request as chunked and drops the length, so nobody behind it
//! can see that there were two; whoever stands before us may have gone by the other. Such a
//! request is refused and its connection closed. This follows the bytes as the library does and
//! decides nothing else: what it cannot follow, the library refuses by itself.

use memchr::memchr;

/// The part of a line that matters: no header that is looked for is longer.
const LINE: usize = 64;
/// How an HTTP/2 connection begins, which has no such framing.
const HTTP2: &[u8] = b"PRI * HTTP/2.0";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before or in a head. The flags: a request line was seen, and which of the two headers.
    Head {
        begun: bool,
        length: Option<u64>,
        chunked: bool,
    },
    /// In a body or chunk of known length, followed by a new head or by a chunk's size.
    Skip { left: u64, chunked: bool },
    /// In the line with a chunk's size.
    Size,
    /// After the last chunk.
    Trailers,
    /// HTTP/2, or beyond following.
    Off,
}

const NEW_HEAD: State = State::Head {
    begun: false,
    length: None,
    chunked: false,
};

/// The follower of one connection.
#[derive(Debug)]
pub(crate) struct Framing {
    state: State,
    line: [u8; LINE],
    used: usize,
}

impl Framing {
    pub(crate) fn new() -> Self {
        Self {
            state: NEW_HEAD,
            line: [0; LINE],
            used: 0,
        }
    }

    /// Follows the next bytes; whether a head in them has both headers.
    pub(crate) fn conflicts(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            match self.state {
                State::Off => return false,
                State::Skip { left, chunked } => bytes = self.skip(bytes, left, chunked),
                State::Head { .. } | State::Size | State::Trailers => {
                    let Some(end) = memchr(b'\n', bytes) else {
                        self.keep(bytes);
                        return false;
                    };
                    let (line, rest) = bytes.split_at(end);
                    self.keep(line);
                    bytes = rest.get(1..).unwrap_or_default();
                    if self.end_of_line() {
                        self.state = State::Off;
                        return true;
                    }
                }
            }
        }
        false
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
        let free = LINE - self.used;
        let kept = bytes.get(..free.min(bytes.len())).unwrap_or_default();
        if let Some(room) = self.line.get_mut(self.used..self.used + kept.len()) {
            room.copy_from_slice(kept);
        }
        self.used += kept.len();
    }

    /// Takes the line that has just ended; whether it completes a head with both headers.
    fn end_of_line(&mut self) -> bool {
        let line = self.line.get(..self.used).unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let next = match self.state {
            State::Head {
                begun,
                length,
                chunked,
            } => in_head(line, (begun, length, chunked)),
            State::Size => Some(after_size(line)),
            State::Trailers if line.is_empty() => Some(NEW_HEAD),
            State::Trailers | State::Skip { .. } | State::Off => Some(self.state),
        };
        self.used = 0;
        match next {
            Some(next) => {
                self.state = next;
                false
            }
            None => true,
        }
    }
}

/// The state after a line of a head; `None` is the conflict.
fn in_head(line: &[u8], (begun, length, chunked): (bool, Option<u64>, bool)) -> Option<State> {
    if line.is_empty() {
        return match (begun, length, chunked) {
            (false, _, _) => Some(NEW_HEAD), // empty lines before a request are skipped
            (true, Some(_), true) => None,
            (true, None, true) => Some(State::Size),
            (true, Some(left), false) if left > 0 => Some(State::Skip {
                left,
                chunked: false,
            }),
            (true, Some(_) | None, false) => Some(NEW_HEAD),
        };
    }
    if !begun {
        if line.starts_with(HTTP2) {
            return Some(State::Off);
        }
        return Some(State::Head {
            begun: true,
            length,
            chunked,
        });
    }
    let colon = memchr(b':', line).unwrap_or(line.len());
    let (name, value) = line.split_at(colon);
    let is = |wanted: &[u8]| name.eq_ignore_ascii_case(wanted);
    let length = if is(b"content-length") {
        // a length that is none is refused by the library
        Some(digits(value.get(1..).unwrap_or_default(), 10).unwrap_or(0))
    } else {
        length
    };
    Some(State::Head {
        begun,
        length,
        chunked: chunked || is(b"transfer-encoding"),
    })
}

fn after_size(line: &[u8]) -> State {
    let size = line.split(|byte| *byte == b';').next().unwrap_or_default();
    match digits(size, 16) {
        Some(0) => State::Trailers,
        // the line end after the data belongs to the chunk
        Some(size) => match size.checked_add(2) {
            Some(left) => State::Skip {
                left,
                chunked: true,
            },
            None => State::Off,
        },
        None => State::Off,
    }
}

fn digits(text: &[u8], radix: u32) -> Option<u64> {
    let text = std::str::from_utf8(text.trim_ascii()).ok()?;
    u64::from_str_radix(text, radix).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds the text in pieces of every size; the verdict must not depend on them.
    fn conflicts(text: &str) -> bool {
        let verdicts: Vec<bool> = (1..=text.len())
            .map(|size| {
                let mut framing = Framing::new();
                text.as_bytes()
                    .chunks(size)
                    .any(|piece| framing.conflicts(piece))
            })
            .collect();
        assert!(verdicts.iter().all(|v| *v == verdicts[0]), "{text:?}");
        verdicts[0]
    }

    const CHUNKED: &str =
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nx: y\r\n\r\n";
    const SIZED: &str =
        "POST / HTTP/1.1\r\ncontent-length: 31\r\n\r\na\r\nTransfer-Encoding: chunked\r\n\r\n";
    const PLAIN: &str = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";

    /// T16: both headers in one head, in any order and spelling, first request or later.
    #[test]
    fn t16_both_lengths_in_one_head_are_seen() {
        for head in [
            "POST / HTTP/1.1\r\nContent-Length: 13\r\nTransfer-Encoding: chunked\r\n\r\n",
            "POST / HTTP/1.1\r\nTRANSFER-ENCODING: chunked\r\nhost: x\r\ncontent-length:0\r\n\r\n",
            "POST / HTTP/1.1\ncontent-length: 1\ntransfer-encoding: identity\n\n",
        ] {
            assert!(conflicts(head), "{head:?}");
            for before in [CHUNKED, SIZED, PLAIN, "\r\n"] {
                assert!(conflicts(&format!("{before}{head}")), "{before:?}{head:?}");
            }
        }
    }

    #[test]
    fn bodies_trailers_and_other_requests_are_not_mistaken_for_a_head() {
        let inside = "POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n";
        let sized = format!(
            "POST / HTTP/1.1\r\ncontent-length: {}\r\n\r\n{inside}",
            inside.len()
        );
        let chunk = format!("{:x}\r\n{inside}\r\n0\r\n\r\n", inside.len());
        let chunked = format!("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n{chunk}");
        let mixed = format!("{CHUNKED}{SIZED}{PLAIN}{CHUNKED}");
        let trailer =
            "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\ncontent-length: 3\r\n\r\n";
        let preface = format!("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{inside}");
        for text in [&sized, &chunked, &mixed, &trailer.to_owned(), &preface] {
            assert!(!conflicts(text), "{text:?}");
        }
    }

    #[test]
    fn a_chunk_without_a_size_is_not_followed() {
        let broken = "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n";
        let after = "POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert!(!conflicts(&format!("{broken}{after}")));
    }
}

//! The event-stream parser against a plain reading of the WHATWG rules, cut at every byte.

use std::time::Duration;

use bytes::Bytes;
use vestibule_frame::sse::{Event, Parser};

/// More places than this are not tried in one stream.
const CUTS: usize = 256;

/// The first byte is the cap of one event, the rest a stream.
pub(crate) fn check(data: &[u8]) {
    let Some((cap, stream)) = data.split_first() else {
        return;
    };
    let expected = by_the_book(stream);
    let wide = 1 << 20;
    assert_eq!(events(&[stream], wide), (expected.clone(), true));
    // A byte order mark that is still being told from data counts, so the smallest caps are left out.
    let cap = usize::from(*cap).max(3);
    let capped = events(&[stream], cap);
    assert!(
        expected.starts_with(&capped.0),
        "a cap only ends the stream earlier"
    );
    assert_eq!(
        events(&[stream], stream.len()).0,
        expected,
        "no event is larger than the stream"
    );
    for at in 0..=stream.len().min(CUTS) {
        let (head, tail) = stream.split_at(at);
        assert_eq!(
            events(&[head, tail], wide),
            (expected.clone(), true),
            "cut at {at}"
        );
        assert_eq!(events(&[head, tail], cap), capped, "cut at {at}, capped");
    }
    let bytes: Vec<&[u8]> = stream.chunks(1).collect();
    assert_eq!(events(&bytes, wide), (expected, true), "byte by byte");
    assert_eq!(events(&bytes, cap), capped, "byte by byte, capped");
}

/// The events of a stream that arrives in these chunks, and whether none was too large.
pub(crate) fn events(chunks: &[&[u8]], cap: usize) -> (Vec<Event>, bool) {
    let mut parser = Parser::new(cap);
    let mut out = Vec::new();
    for chunk in chunks {
        parser.push(chunk);
        loop {
            match parser.next_event() {
                Ok(Some(event)) => out.push(event),
                Ok(None) => break,
                Err(_) => {
                    assert!(parser.next_event().is_err(), "a failed parser stays failed");
                    return (out, false);
                }
            }
        }
    }
    (out, true)
}

/// The rules, one after the other, on a stream that is there as a whole.
fn by_the_book(stream: &[u8]) -> Vec<Event> {
    let stream = stream.strip_prefix(b"\xef\xbb\xbf").unwrap_or(stream);
    let mut events = Vec::new();
    let mut event = Event::default();
    let mut data: Option<Vec<u8>> = None;
    for line in lines(stream) {
        if line.is_empty() {
            event.data = data.take().filter(|data| !data.is_empty()).map(Bytes::from);
            let done = std::mem::take(&mut event);
            if done.data.is_some() || done.id.is_some() || done.retry.is_some() {
                events.push(done);
            }
            continue;
        }
        let (name, value) = field(&line);
        let text = String::from_utf8_lossy(value).into_owned();
        match name {
            b"event" => event.event = Some(text),
            b"id" if !value.contains(&0) => event.id = Some(text),
            b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                if let Ok(milliseconds) = text.parse() {
                    event.retry = Some(Duration::from_millis(milliseconds));
                }
            }
            b"data" => {
                let joined = match data.take() {
                    None => value.to_vec(),
                    Some(before) => [&before, &b"\n"[..], value].concat(),
                };
                data = Some(joined);
            }
            _ => {}
        }
    }
    events
}

/// The lines that are complete.
fn lines(stream: &[u8]) -> Vec<Vec<u8>> {
    let mut lines = Vec::new();
    let mut line = Vec::new();
    let mut bytes = stream.iter().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\r' | b'\n' => {
                if *byte == b'\r' && bytes.peek() == Some(&&b'\n') {
                    bytes.next();
                }
                lines.push(std::mem::take(&mut line));
            }
            other => line.push(*other),
        }
    }
    lines
}

fn field(line: &[u8]) -> (&[u8], &[u8]) {
    let mut parts = line.splitn(2, |byte| *byte == b':');
    let name = parts.next().unwrap_or_default();
    let value = parts.next().unwrap_or_default();
    (name, value.strip_prefix(b" ").unwrap_or(value))
}

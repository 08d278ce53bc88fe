//! Streams as servers really cut them, and what we write ourselves.

use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::{any, prop, prop_assert, prop_assert_eq, proptest};

use super::{Event, Parser, SseError};
use crate::sse::{comment, endpoint, message, priming, retry};

fn events(chunks: &[&[u8]]) -> Vec<Event> {
    let mut parser = Parser::new(1 << 20);
    let mut out = Vec::new();
    for chunk in chunks {
        parser.push(chunk);
        while let Some(event) = parser.next_event().expect("no event is too large") {
            out.push(event);
        }
    }
    out
}

fn data(text: &'static str) -> Event {
    Event {
        data: Some(Bytes::from_static(text.as_bytes())),
        ..Event::default()
    }
}

const STREAMS: [&[u8]; 6] = [
    b"event: message\r\ndata: {\"a\":1}\r\n\r\n",
    b"event: message\rdata: {\"a\":1}\r\r",
    b"event: message\ndata: {\"a\":1}\n\n",
    b"\xef\xbb\xbfevent: message\r\ndata: {\"a\":1}\n\r\n",
    b": hello\n\n: \n\nevent:message\nid\x00: 4\ndata:{\"a\":1}\n\nevent: cut\ndata: off\n",
    b"event: other\nevent: message\nunknown: field\nnothing\ndata: {\"a\":1}\r\r\n",
];

/// SSE-02, case 127: CR, LF, CRLF, a mark and comments, cut anywhere, are one event.
#[test]
fn sse_02_case_127_every_line_end_cut_at_every_byte_is_one_event() {
    let expected = Event {
        event: Some("message".to_owned()),
        ..data("{\"a\":1}")
    };
    for stream in STREAMS {
        for cut in 0..=stream.len() {
            let (head, tail) = stream.split_at(cut);
            assert_eq!(
                events(&[head, tail]),
                std::slice::from_ref(&expected),
                "{stream:?} at {cut}"
            );
        }
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(
            events(&bytes),
            std::slice::from_ref(&expected),
            "{stream:?} byte by byte"
        );
    }
}

#[test]
fn case_129_a_character_cut_over_chunks_is_intact() {
    let stream = "data: {\"t\":\"\u{6f22}\u{1f600}\"}\n\n".as_bytes();
    let bytes: Vec<&[u8]> = stream.chunks(1).collect();
    assert_eq!(events(&bytes), [data("{\"t\":\"\u{6f22}\u{1f600}\"}")]);
}

#[test]
fn sse_02_an_event_of_several_lines_is_joined_by_line_feeds() {
    let stream = b"data: a\rdata\ndata:  b\r\ndata:c\n\n";
    assert_eq!(events(&[stream]), [data("a\n\n b\nc")]);
}

#[test]
fn sse_02_empty_data_only_sets_the_id() {
    let only_id = |id: &str| Event {
        id: Some(id.to_owned()),
        ..Event::default()
    };
    assert_eq!(events(&[b"id: 7\ndata: \n\n"]), [only_id("7")]);
    assert_eq!(events(&[b"id: 7\ndata:\n\n"]), [only_id("7")]);
    assert_eq!(events(&[b"id: 7\n\n"]), [only_id("7")]);
    assert_eq!(events(&[b"id\n\n"]), [only_id("")]);
    assert_eq!(events(&[b"event: message\n\n"]), []);
    assert_eq!(events(&[b"data\n\n"]), []);
}

#[test]
fn sse_02_an_id_with_nul_is_ignored() {
    assert_eq!(events(&[b"id: 1\x002\ndata: x\n\n"]), [data("x")]);
    let kept = Event {
        id: Some("1".to_owned()),
        ..data("x")
    };
    assert_eq!(events(&[b"id: 1\nid: \x00\ndata: x\n\n"]), [kept]);
}

#[test]
fn sse_06_retry_takes_digits_only() {
    let wait = |ms| Event {
        retry: Some(Duration::from_millis(ms)),
        ..Event::default()
    };
    assert_eq!(events(&[b"retry: 1500\n\n"]), [wait(1500)]);
    for text in ["-1", "1.5", "1s", "", " 1", "99999999999999999999999"] {
        assert_eq!(
            events(&[format!("retry: {text}\n\n").as_bytes()]),
            [],
            "{text}"
        );
    }
}

#[test]
fn an_event_larger_than_the_cap_ends_the_stream() {
    let too_large = Err(SseError::TooLarge { limit: 10 });
    let mut lines = Parser::new(10);
    lines.push(b"data: 12345\ndata: 12345\n");
    assert_eq!(lines.next_event(), too_large);
    lines.push(b"\n\n");
    assert_eq!(lines.next_event(), too_large, "for good");
    let mut endless = Parser::new(10);
    endless.push(b"data: 12345");
    assert_eq!(endless.next_event(), too_large);
    let mut many = Parser::new(10);
    many.push(&b"data: 1234\n\n".repeat(20));
    for _ in 0..20 {
        assert_eq!(
            many.next_event(),
            Ok(Some(data("1234"))),
            "the cap is per event"
        );
    }
}

#[test]
fn t13_sse_01_line_ends_between_tokens_cannot_break_out_of_an_event() {
    let payload = [
        Bytes::from_static(b"{\"a\":\r\n1,\rdata: {\"jsonrpc\""),
        Bytes::from_static(b"\n\n:2}"),
    ];
    let written = message(Some("s-1"), &payload);
    assert_eq!(
        written,
        "id: s-1\nevent: message\ndata: {\"a\":1,data: {\"jsonrpc\":2}\n\n"
    );
}

#[test]
fn what_we_write_is_read_back() {
    let stream = [
        priming("s-0"),
        retry(1000),
        comment(),
        endpoint("/mcp/t?sse=1"),
        message(None, &[Bytes::from_static(b"{}")]),
    ]
    .concat();
    let named = |name: &str, text| Event {
        event: Some(name.to_owned()),
        ..data(text)
    };
    let expected = [
        Event {
            id: Some("s-0".to_owned()),
            ..Event::default()
        },
        Event {
            retry: Some(Duration::from_secs(1)),
            ..Event::default()
        },
        named("endpoint", "/mcp/t?sse=1"),
        named("message", "{}"),
    ];
    assert_eq!(events(&[&stream]), expected);
}

proptest! {
    /// T13: any bytes survive as the payload of one event, but for their line ends.
    #[test]
    fn t13_any_payload_is_one_event(payload in prop::collection::vec(any::<u8>(), 0..60), cut in 0usize..80) {
        let written = message(Some("1"), &[Bytes::from(payload.clone())]);
        let (head, tail) = written.split_at(cut.min(written.len()));
        let read = events(&[head, tail]);
        let kept: Vec<u8> = payload.into_iter().filter(|b| !matches!(b, b'\r' | b'\n')).collect();
        prop_assert_eq!(read.len(), 1);
        prop_assert_eq!(read[0].data.clone().unwrap_or_default(), Bytes::from(kept));
    }

    /// However a stream is cut, the same events come out, and nothing panics.
    #[test]
    fn cuts_never_matter(
        lines in prop::collection::vec("(data|id|event|retry|)(:| |: )[a-z0-9\\x00\u{e9}]{0,4}(\n|\r|\r\n|\n\n|\r\r)", 0..12),
        cuts in prop::collection::vec(0usize..120, 0..6),
    ) {
        let stream = lines.concat().into_bytes();
        let mut marks: Vec<usize> = cuts.into_iter().map(|cut| cut.min(stream.len())).collect();
        marks.extend([0, stream.len()]);
        marks.sort_unstable();
        let chunks: Vec<&[u8]> = marks.windows(2).map(|pair| &stream[pair[0]..pair[1]]).collect();
        let whole = events(&[&stream]);
        prop_assert_eq!(events(&chunks), whole.clone());
        prop_assert!(whole.iter().all(|event| event.data.as_ref().is_none_or(|data| !data.is_empty())));
    }
}

/// Found by fuzzing: a line that arrived in pieces was counted with its field name, one that arrived
/// whole without.
#[test]
fn sse_02_the_cap_is_the_same_wherever_a_line_is_cut() {
    let line = b"data: 123456\n\n";
    for cap in [11, 12] {
        for cut in 0..line.len() {
            let mut parser = Parser::new(cap);
            let (head, tail) = line.split_at(cut);
            parser.push(head);
            let mut outcome = parser.next_event();
            if outcome == Ok(None) {
                parser.push(tail);
                outcome = parser.next_event();
            }
            let fits = cap == 12;
            assert_eq!(outcome.is_ok(), fits, "cap {cap}, cut {cut}");
        }
    }
}

//! What we write into an event stream is read back as it was meant, whatever the payload holds and
//! wherever the stream is cut (T13, T51).

use std::time::Duration;

use bytes::Bytes;
use vestibule_frame::sse::{Event, comment, endpoint, message, priming, retry};
use vestibule_frame::{Frame, Limits, encode, json};

use super::sse_parser::events;

/// The first byte says where the payload is cut, the second is the reconnect time and the event id;
/// the rest is the payload.
pub(crate) fn check(data: &[u8]) {
    let [cut, number, payload @ ..] = data else {
        return;
    };
    let chunks: Vec<Bytes> = match usize::from(*cut) {
        0 => vec![Bytes::copy_from_slice(payload)],
        size => payload.chunks(size).map(Bytes::copy_from_slice).collect(),
    };
    let line: Vec<u8> = payload
        .iter()
        .copied()
        .filter(|byte| !matches!(byte, b'\r' | b'\n'))
        .collect();
    assert_eq!(encode::single_line(&chunks), line);
    let id = format!("1k1.{number:08b}-_");
    let stream = [
        retry(u64::from(*number)),
        priming(&id),
        comment(),
        message(Some(&id), &chunks),
        endpoint("/messages?session=1\r\ndata: forged"),
        comment(),
        message(None, &chunks),
    ]
    .concat();
    let expected = written(&id, *number, &line);
    for size in [stream.len(), usize::from(*cut).max(1), 1] {
        let cuts: Vec<&[u8]> = stream.chunks(size).collect();
        assert_eq!(events(&cuts, 1 << 20), (expected.clone(), true));
    }
    same_json(payload, &line);
}

fn written(id: &str, number: u8, line: &[u8]) -> Vec<Event> {
    let data = Some(Bytes::copy_from_slice(line)).filter(|line| !line.is_empty());
    let kind = |name: &str| Some(name.to_owned());
    let message = Event {
        event: kind("message"),
        data: data.clone(),
        ..Event::default()
    };
    let mut events = vec![
        Event {
            retry: Some(Duration::from_millis(u64::from(number))),
            ..Event::default()
        },
        Event {
            id: Some(id.to_owned()),
            ..Event::default()
        },
        Event {
            id: Some(id.to_owned()),
            ..message.clone()
        },
        Event {
            event: kind("endpoint"),
            data: Some(Bytes::from_static(b"/messages?session=1data: forged")),
            ..Event::default()
        },
    ];
    events.extend(data.is_some().then_some(message));
    events
}

/// Leaving out line ends between tokens leaves a message what it is.
fn same_json(payload: &[u8], line: &[u8]) {
    let limits = Limits::default();
    if json::validate(payload, &limits).is_err() {
        return;
    }
    assert_eq!(json::validate(line, &limits), Ok(()));
    let before = Frame::parse(Bytes::copy_from_slice(payload), &limits);
    let after = Frame::parse(Bytes::copy_from_slice(line), &limits);
    match (before, after) {
        (Ok(before), Ok(after)) => {
            assert_eq!(
                before.id().map(|id| id.token()),
                after.id().map(|id| id.token())
            );
            assert_eq!(
                (before.kind(), before.method()),
                (after.kind(), after.method())
            );
            let value = |frame: &Frame, span| frame.text(span).to_vec();
            assert_eq!(
                before.name().map(|span| value(&before, span)),
                after.name().map(|span| value(&after, span))
            );
        }
        (Err(before), Err(after)) => assert_eq!(before.reason, after.reason),
        // Only sizes can change, and they only shrink.
        (Err(before), Ok(_)) => assert_eq!(before.reason.label(), "meta_size"),
        (Ok(_), Err(after)) => panic!("{after} after line ends were left out"),
    }
}

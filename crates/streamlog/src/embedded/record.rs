//! Streams, events and what waits, as records.
//!
//! A stream has a number of its own, and so has each event that waits; events of a stream follow
//! each other: number, then the event's.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;
use vestibule_store::{Change, Decoder, Encoder, SessionKey, Space};

use crate::backlog::Noted;
use crate::event_id::{Chain, StreamId};
use crate::log::{Class, Event};
use crate::session_log::{Header, Note};
use crate::times::Both;

const FORMAT: u8 = 1;

fn event_key(number: u64, seq: u64) -> Vec<u8> {
    [number.to_be_bytes(), seq.to_be_bytes()].concat()
}

fn number_key(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

/// What the note changes on disk.
pub(super) fn change(session: &SessionKey, note: Note, now: &Both) -> Change {
    match note {
        Note::Stream { number, header } => Change::Put {
            space: Space::Streams,
            key: number_key(number),
            record: stream(session, &header, now),
        },
        Note::Event {
            number,
            seq,
            chain,
            payload,
        } => Change::Put {
            space: Space::Events,
            key: event_key(number, seq),
            record: Encoder::new(FORMAT).fixed(&chain).fixed(&payload).finish(),
        },
        Note::Trimmed {
            number,
            from,
            below,
        } => events_over(number, from, below),
        Note::Removed { number } => Change::Delete {
            space: Space::Streams,
            key: number_key(number),
        },
        Note::Backlog(Noted::Waiting {
            number,
            event,
            since,
        }) => Change::Put {
            space: Space::Waiting,
            key: number_key(number),
            record: waiting(session, &event, now.millis_of(since)),
        },
        Note::Backlog(Noted::Over { number }) => waiting_over(number_key(number)),
    }
}

/// Events of a stream from one to before another are no more.
pub(super) fn events_over(number: u64, from: u64, below: u64) -> Change {
    Change::DeleteRange {
        space: Space::Events,
        from: event_key(number, from),
        to: event_key(number, below),
    }
}

/// A stream is no more.
pub(super) fn stream_over(key: Vec<u8>) -> Change {
    let space = Space::Streams;
    Change::Delete { space, key }
}

/// A waiting event is no more.
pub(super) fn waiting_over(key: Vec<u8>) -> Change {
    let space = Space::Waiting;
    Change::Delete { space, key }
}

fn stream(session: &SessionKey, header: &Header, now: &Both) -> Vec<u8> {
    let record = session
        .encode(Encoder::new(FORMAT))
        .fixed(header.id.as_bytes())
        .fixed(&header.epoch.to_be_bytes())
        .bytes(header.key_id.as_bytes())
        .list(header.requests.iter().map(|request| &request[..]))
        .number(header.top)
        .fixed(&header.chain);
    let (ended, note) = (header.ended, &header.note);
    let mut record = record.byte(u8::from(ended.is_some()) | u8::from(note.is_some()) << 1);
    if let Some(ended) = ended {
        record = record.number(now.millis_of(ended));
    }
    if let Some(note) = note {
        record = record.bytes(note);
    }
    record.finish()
}

/// Reads a stream's number and record.
pub(super) fn stream_of(
    key: &[u8],
    record: Bytes,
    now: &Both,
) -> Option<(u64, SessionKey, Header)> {
    let number = u64::from_be_bytes(key.try_into().ok()?);
    let mut fields = Decoder::new(FORMAT, record)?;
    let session = SessionKey::decode(&mut fields)?;
    let mut header = Header {
        id: StreamId::from_bytes(fields.fixed()?),
        epoch: u32::from_be_bytes(fields.fixed()?),
        key_id: Arc::from(fields.text()?),
        requests: fields.list()?,
        top: fields.number()?,
        chain: fields.fixed()?,
        note: None,
        ended: None,
    };
    let more = fields.byte()?;
    if more & 1 == 1 {
        header.ended = Some(now.moment_of(fields.number()?));
    }
    if more & 2 == 2 {
        header.note = Some(fields.bytes()?);
    }
    fields.end()?;
    Some((number, session, header))
}

/// Reads an event: the stream's number, its own, its chain and its payload.
pub(super) fn event_of(key: &[u8], mut record: Bytes) -> Option<(u64, u64, Chain, Bytes)> {
    let (number, seq) = key.split_first_chunk::<8>()?;
    let mut fields = Decoder::new(FORMAT, record.clone())?;
    let chain: Chain = fields.fixed()?;
    let payload = record.split_off(1 + chain.len());
    let seq = u64::from_be_bytes(seq.try_into().ok()?);
    Some((u64::from_be_bytes(*number), seq, chain, payload))
}

fn waiting(session: &SessionKey, event: &Event, since: u64) -> Vec<u8> {
    let record = session.encode(Encoder::new(FORMAT)).number(since);
    let record = match &event.class {
        Class::Message => record.byte(0).bytes(b""),
        Class::Log => record.byte(1).bytes(b""),
        Class::Invalidation(subject) => record.byte(2).bytes(subject.as_bytes()),
        Class::Question(key) => record.byte(3).bytes(key.as_bytes()),
    };
    record.bytes(&event.payload).finish()
}

/// Reads an event that waits: its number, whose it is, what it is and since when it waits.
pub(super) fn waiting_of(
    key: &[u8],
    record: Bytes,
    now: &Both,
) -> Option<(u64, SessionKey, Event, Instant)> {
    let number = u64::from_be_bytes(key.try_into().ok()?);
    let mut fields = Decoder::new(FORMAT, record)?;
    let session = SessionKey::decode(&mut fields)?;
    let since = now.moment_of(fields.number()?);
    let (class, subject) = (fields.byte()?, Arc::from(fields.text()?));
    let class = match class {
        0 => Class::Message,
        1 => Class::Log,
        2 => Class::Invalidation(subject),
        3 => Class::Question(subject),
        _ => return None,
    };
    let payload = fields.bytes()?;
    fields.end()?;
    Some((number, session, Event { class, payload }, since))
}

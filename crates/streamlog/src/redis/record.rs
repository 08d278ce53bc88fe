//! Streams as they are stored, read back.

use std::sync::Arc;

use bytes::Bytes;
use vestibule_store::redis::Reply;
use vestibule_store::{AtRest, Decoder, Encoder, SessionKey};

use crate::event_id::{Chain, StreamId};
use crate::session_log::{Past, Record};
use crate::times::Both;

const FORMAT: u8 = 1;

/// What a script found of a stream.
#[derive(Debug)]
pub(super) enum Found {
    /// This.
    Record(Box<Record>),
    /// Nothing.
    Nothing,
    /// Somebody else has taken it.
    Taken,
    /// The session has ended.
    Gone,
}

/// The requests of a stream, packed.
pub(super) fn pack(requests: &[Bytes]) -> Bytes {
    let all = requests.iter().map(|request| &request[..]);
    Bytes::from(Encoder::new(FORMAT).list(all).finish())
}

fn unpack(packed: Bytes) -> Option<Vec<Bytes>> {
    let mut fields = Decoder::new(FORMAT, packed)?;
    let requests = fields.list()?;
    fields.end()?;
    Some(requests)
}

/// A stream's entry in the index of its owner: whoever finds it there knows nothing else of it.
pub(super) fn entry(session: &SessionKey, id: StreamId) -> Bytes {
    let record = session.encode(Encoder::new(FORMAT)).fixed(id.as_bytes());
    Bytes::from(record.finish())
}

/// The session and the stream of an entry.
pub(super) fn entry_of(entry: Bytes) -> Option<(SessionKey, StreamId)> {
    let mut fields = Decoder::new(FORMAT, entry)?;
    let session = SessionKey::decode(&mut fields)?;
    let id = StreamId::from_bytes(fields.fixed()?);
    fields.end()?;
    Some((session, id))
}

/// Reads what `load` and `acquire` answer. What makes no sense is nothing.
pub(super) fn found(reply: Reply, id: StreamId, now: &Both, at_rest: (AtRest<'_>, &str)) -> Found {
    let mut parts = reply.into_list().into_iter();
    match parts.next().as_ref().and_then(Reply::text) {
        Some("OK") => {}
        Some("GONE") => return Found::Gone,
        Some("TAKEN") => return Found::Taken,
        _ => return Found::Nothing,
    }
    let record = parts.next().zip(parts.next());
    let record = record.and_then(|(fields, events)| read(&fields, events, id, now, at_rest));
    record.map_or(Found::Nothing, |record| Found::Record(Box::new(record)))
}

fn read(
    fields: &Reply,
    events: Reply,
    id: StreamId,
    now: &Both,
    (at_rest, tag): (AtRest<'_>, &str),
) -> Option<Record> {
    let [
        epoch,
        key_id,
        requests,
        note,
        top,
        chain,
        fence,
        owner,
        ended,
        reader,
    ] = fields.list()
    else {
        return None;
    };
    let epoch: [u8; 4] = epoch.bytes()?[..].try_into().ok()?;
    let note = at_rest.open(tag, note.bytes()?.clone())?;
    Some(Record {
        id,
        epoch: u32::from_be_bytes(epoch),
        key_id: Arc::from(key_id.text()?),
        requests: unpack(requests.bytes()?.clone())?,
        note: Some(note).filter(|note| !note.is_empty()),
        ended: ended.count().map(|millis| now.moment_of(millis)),
        fence: fence.count()?,
        owner: Arc::from(owner.text()?),
        reader: reader.text().filter(|text| !text.is_empty()).map(Arc::from),
        top: top.count()?,
        chain: chain.bytes()?[..].try_into().ok()?,
        events: events
            .into_list()
            .into_iter()
            .map(|entry| past(entry, (at_rest, tag)))
            .collect::<Option<_>>()?,
    })
}

/// `[id, [c, chain, d, payload]]`
fn past(entry: Reply, (at_rest, tag): (AtRest<'_>, &str)) -> Option<Past> {
    let [name, fields] = <[Reply; 2]>::try_from(entry.into_list()).ok()?;
    let seq = name.text()?.split_once('-')?.0.parse().ok()?;
    let [_, chain, _, payload] = fields.list() else {
        return None;
    };
    let chain: Chain = chain.bytes()?[..].try_into().ok()?;
    Some(Past {
        seq,
        chain,
        payload: at_rest.open(tag, payload.bytes()?.clone())?,
    })
}

//! Sessions as records: one for what the session is, one for when it was last used, and one for
//! each of its belongings.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use super::change::{Change, Space};
use super::code::{Decoder, Encoder};
use crate::{Belonging, Kind, Opening, SessionKey, State, Stored};

const FORMAT: u8 = 1;

fn name(key: &SessionKey) -> Vec<u8> {
    key.encode(Encoder::default()).finish()
}

pub(super) fn delete(space: Space, key: Vec<u8>) -> Change {
    Change::Delete { space, key }
}

/// Both records of a new session.
pub(super) fn created(stored: &Stored) -> [Change; 2] {
    [
        session(stored),
        seen(&(stored.key.clone(), stored.last_seen)),
    ]
}

/// No record remains.
pub(super) fn removed(key: &SessionKey) -> [Change; 3] {
    let name = name(key);
    [
        Change::DeleteRange {
            space: Space::Belongings,
            from: name.clone(),
            to: [&name[..], &[u8::MAX]].concat(), // after the letters of all kinds
        },
        delete(Space::Sessions, name.clone()),
        delete(Space::Seen, name),
    ]
}

/// One belonging of the session, or that there is none of that name.
pub(super) fn belonging(key: &SessionKey, kind: Kind, name: &str, record: Option<&[u8]>) -> Change {
    let fields = key.encode(Encoder::default()).byte(kind.letter());
    let key = fields.fixed(name.as_bytes()).finish();
    let space = Space::Belongings;
    match record {
        Some(record) => Change::Put {
            space,
            key,
            record: record.to_vec(),
        },
        None => delete(space, key),
    }
}

/// Reads what [`belonging`] wrote.
pub(super) fn belonging_of(name: Vec<u8>, record: Bytes) -> Option<(SessionKey, Belonging)> {
    let mut fields = Decoder::bare(Bytes::from(name));
    let key = SessionKey::decode(&mut fields)?;
    let kind = Kind::of(fields.byte()?)?;
    let name = String::from_utf8(fields.rest().to_vec()).ok()?;
    Some((key, Belonging { kind, name, record }))
}

/// When the session was last used.
pub(super) fn seen((key, millis): &(SessionKey, u64)) -> Change {
    Change::Put {
        space: Space::Seen,
        key: name(key),
        record: Encoder::new(FORMAT).number(*millis).finish(),
    }
}

/// When sessions were last used, by the names of their records.
pub(super) fn seen_times(records: Vec<(Vec<u8>, Bytes)>) -> HashMap<Vec<u8>, u64> {
    let read = |record: Bytes| Decoder::new(FORMAT, record)?.number();
    records
        .into_iter()
        .filter_map(|(name, record)| Some((name, read(record)?)))
        .collect()
}

/// What the session is.
pub(super) fn session(stored: &Stored) -> Change {
    let record = stored.key.encode(Encoder::new(FORMAT));
    let record = stored.opening.encode(record).number(stored.version);
    Change::Put {
        space: Space::Sessions,
        key: name(&stored.key),
        record: stored.state.encode(record).finish(),
    }
}

/// Reads what [`session`] wrote.
pub(super) fn session_of(record: Bytes) -> Option<Stored> {
    let mut fields = Decoder::new(FORMAT, record)?;
    let key = SessionKey::decode(&mut fields)?;
    let opening = Opening::decode(&mut fields)?;
    let version = fields.number()?;
    let state = State::decode(&mut fields)?;
    fields.end()?;
    Some(Stored {
        key,
        last_seen: opening.created,
        opening: Arc::new(opening),
        state: Arc::new(state),
        version,
        streams_open: 0,
    })
}

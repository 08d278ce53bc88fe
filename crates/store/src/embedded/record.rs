//! Sessions as records: one for what the session is, one for when it was last used.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use vestibule_terms::{Revision, ServerId};

use super::change::{Change, Space};
use super::code::{Decoder, Encoder};
use crate::{Opening, SessionKey, State, Stored};

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

/// Neither record remains.
pub(super) fn removed(key: &SessionKey) -> [Change; 2] {
    let name = name(key);
    [
        delete(Space::Sessions, name.clone()),
        delete(Space::Seen, name),
    ]
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
    let (opening, state) = (&stored.opening, &stored.state);
    let level = state.log_level.iter().map(|level| level.as_bytes());
    let subscriptions = state.subscriptions.iter().map(|uri| uri.as_bytes());
    let record = stored
        .key
        .encode(Encoder::new(FORMAT))
        .bytes(opening.server.as_str().as_bytes())
        .bytes(opening.revision.as_str().as_bytes())
        .bytes(&opening.capabilities)
        .bytes(&opening.client_info)
        .number(opening.created)
        .number(stored.version)
        .byte(u8::from(state.initialized))
        .list(level)
        .list(subscriptions)
        .number(state.next_question);
    Change::Put {
        space: Space::Sessions,
        key: name(&stored.key),
        record: record.finish(),
    }
}

/// Reads what [`session`] wrote.
pub(super) fn session_of(record: Bytes) -> Option<Stored> {
    let mut fields = Decoder::new(FORMAT, record)?;
    let key = SessionKey::decode(&mut fields)?;
    let opening = Opening {
        server: ServerId::new(&fields.text()?).ok()?,
        revision: Revision::parse(&fields.text()?)?,
        capabilities: fields.bytes()?,
        client_info: fields.bytes()?,
        created: fields.number()?,
    };
    let version = fields.number()?;
    let initialized = fields.byte()? != 0;
    let log_level = texts(fields.list()?)?.pop_first();
    let state = State {
        initialized,
        log_level,
        subscriptions: texts(fields.list()?)?,
        next_question: fields.number()?,
    };
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

fn texts(values: Vec<Bytes>) -> Option<BTreeSet<Arc<str>>> {
    let text = |value: Bytes| std::str::from_utf8(&value).ok().map(Arc::from);
    values.into_iter().map(text).collect()
}

//! What scripts say of a session, read.

use std::sync::Arc;

use bytes::Bytes;

use super::super::Reply;
use super::index::unreadable;
use crate::{
    Belonging, Decoder, Encoder, EndReason, Ended, Kind, Opening, SessionKey, State, StoreError,
    Stored,
};

const FORMAT: u8 = 1;

/// A session as the store has it.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) stored: Stored,
    pub(super) born: u64,
    /// Until when it is in use, having open streams.
    pub(super) busy: u64,
}

impl Found {
    /// A new one.
    pub(super) fn new(key: SessionKey, opening: Opening, now: u64) -> Self {
        Self {
            stored: Stored {
                key,
                opening: Arc::new(opening),
                state: Arc::default(),
                version: 1,
                last_seen: now,
                streams_open: 0,
            },
            born: now,
            busy: 0,
        }
    }

    /// Its use, as the index knows it.
    pub(super) fn in_use(&self) -> u64 {
        self.busy.max(self.stored.last_seen)
    }

    /// What `tell` told; `None` for nothing.
    pub(super) fn read(told: &Reply) -> Result<Option<Self>, StoreError> {
        if told.is_nil() {
            return Ok(None);
        }
        Self::parse(told).map(Some).ok_or_else(unreadable)
    }

    fn parse(told: &Reply) -> Option<Self> {
        let [opening, version, state, born, seen, streams, busy] = told.list() else {
            return None;
        };
        let mut fields = Decoder::new(FORMAT, opening.bytes()?.clone())?;
        let key = SessionKey::decode(&mut fields)?;
        let opening = Opening::decode(&mut fields)?;
        Some(Self {
            stored: Stored {
                key,
                opening: Arc::new(opening),
                state: Arc::new(read_state(state.bytes()?)?),
                version: version.count()?,
                last_seen: seen.count()?,
                streams_open: streams.count()?.try_into().ok()?,
            },
            born: born.count()?,
            busy: busy.count()?,
        })
    }
}

pub(super) fn opening(key: &SessionKey, opening: &Opening) -> Bytes {
    let record = key.encode(Encoder::new(FORMAT));
    Bytes::from(opening.encode(record).finish())
}

pub(super) fn state(state: &State) -> Bytes {
    Bytes::from(state.encode(Encoder::new(FORMAT)).finish())
}

fn read_state(record: &Bytes) -> Option<State> {
    let mut fields = Decoder::new(FORMAT, record.clone())?;
    let state = State::decode(&mut fields)?;
    fields.end()?;
    Some(state)
}

/// The field of a belonging: its kind in one letter, and its name.
pub(super) fn field(kind: Kind, name: &str) -> Bytes {
    Bytes::from([&[kind.letter()], name.as_bytes()].concat())
}

fn parse_field(field: &[u8]) -> Option<(Kind, String)> {
    let (letter, name) = field.split_first()?;
    let name = String::from_utf8(name.to_vec()).ok()?;
    Some((Kind::of(*letter)?, name))
}

/// Names and records in turn.
pub(super) fn belongings(found: &[Reply]) -> Vec<Belonging> {
    let one = |pair: &[Reply]| {
        let (kind, name) = parse_field(pair[0].bytes()?)?;
        let record = pair[1].bytes()?.clone();
        Some(Belonging { kind, name, record })
    };
    let mut all: Vec<_> = found.chunks_exact(2).filter_map(one).collect();
    all.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
    all
}

/// How an attempt to end a session went.
#[derive(Debug)]
pub(super) enum Finish {
    /// There was none.
    Gone,
    /// It goes on.
    GoesOn(Found),
    /// It has ended.
    Ended(Ended),
}

impl Finish {
    pub(super) fn read(reply: &Reply) -> Result<Self, StoreError> {
        if reply.is_nil() {
            return Ok(Finish::Gone);
        }
        let told = |told| Found::read(told)?.ok_or_else(unreadable);
        match reply.list() {
            [_, session] => Ok(Finish::GoesOn(told(session)?)),
            [_, why, session, kept] => {
                let reason = match why.text() {
                    Some("requested") => EndReason::Requested,
                    Some("evicted") => EndReason::Evicted,
                    Some("idle") => EndReason::Idle,
                    Some("age") => EndReason::Age,
                    _ => return Err(unreadable()),
                };
                Ok(Finish::Ended(Ended {
                    session: told(session)?.stored,
                    reason,
                    belongings: belongings(kept.list()),
                }))
            }
            _ => Err(unreadable()),
        }
    }
}

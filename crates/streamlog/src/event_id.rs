//! Event ids (EL-4): `1` key-id `.` base64url(stream id ‖ epoch ‖ seq ‖ chain ‖ tag).
//!
//! The tag covers tenant, principal and session as well, so an id says where its stream stands
//! only to the session it was minted for. Ids are checked here before anything is looked up, and
//! all that are not ours are one error (T49).

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use vestibule_store::{Purpose, Sealer, SessionKey, Verdict, random};
use vestibule_terms::mutation;

/// Longest event id.
pub(crate) const MAX_LENGTH: usize = 80;
const STREAM_ID_BYTES: usize = 16;
const TAG_BYTES: usize = 12;
const KEY_ID_MAX: usize = 8;

/// The chain over a stream's history up to one event (EL-5).
pub(crate) type Chain = [u8; 8];

/// The id of a stream: random, except for one bit that says which kind of stream it is, so that an
/// id of a stream nobody remembers still says what its client is missing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId([u8; STREAM_ID_BYTES]);

impl StreamId {
    pub(crate) fn mint(standalone: bool) -> Self {
        let mut bytes: [u8; STREAM_ID_BYTES] = random();
        bytes[0] = (bytes[0] & !1) | u8::from(standalone);
        Self(bytes)
    }

    /// Whether this is a standalone stream, not the answer of a POST.
    pub const fn is_standalone(&self) -> bool {
        self.0[0] & 1 == 1
    }

    pub(crate) const fn from_bytes(bytes: [u8; STREAM_ID_BYTES]) -> Self {
        Self(bytes)
    }

    pub(crate) const fn as_bytes(&self) -> &[u8; STREAM_ID_BYTES] {
        &self.0
    }
}

impl fmt::Debug for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamId({})", URL_SAFE_NO_PAD.encode(self.0))
    }
}

/// A place in the history of one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The stream.
    pub stream: StreamId,
    /// Which life of the stream's log; a log that was lost never continues an old numbering.
    pub epoch: u32,
    /// The last event that is known there; 0 is the beginning.
    pub seq: u64,
    /// The chain up to that event.
    pub chain: [u8; 8],
}

/// An event id as it travels in `id:` and `Last-Event-ID`: at most 80 of `[A-Za-z0-9_.-]`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct EventId(Arc<str>);

impl EventId {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EventId({})", self.0)
    }
}

/// Not an event id of this session: malformed, forged or another session's. Which of them is not
/// told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an event id of this session")]
pub struct ForeignEventId;

/// What is known of a well-formed id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verified {
    /// Minted for this session.
    Ours(Position),
    /// Its key is not configured any more: a gap, not a forgery.
    KeyGone,
}

/// Mints and checks event ids.
#[derive(Debug, Clone)]
pub struct EventIds {
    sealer: Sealer,
}

impl EventIds {
    /// Ids under the keys of this sealer.
    pub fn new(sealer: Sealer) -> Self {
        Self { sealer }
    }

    /// The id of a place in a stream of this session.
    pub fn mint(&self, session: &SessionKey, position: &Position) -> EventId {
        let mut bytes = encode(position);
        let (key_id, tag) = self.sealer.sign(
            Purpose::EVENT_ID,
            session.tenant(),
            &authenticated(session, &bytes),
        );
        bytes.extend_from_slice(&tag[..TAG_BYTES]);
        let mut text = String::with_capacity(MAX_LENGTH);
        text.push('1');
        text.push_str(&key_id);
        text.push('.');
        URL_SAFE_NO_PAD.encode_string(&bytes, &mut text);
        debug_assert!(text.len() <= MAX_LENGTH);
        EventId(Arc::from(text))
    }

    /// What the text says, if it was minted for this session.
    pub fn verify(&self, session: &SessionKey, text: &str) -> Result<Verified, ForeignEventId> {
        let (key_id, bytes) = split(text).ok_or(ForeignEventId)?;
        let (fields, tag) = bytes
            .split_last_chunk::<TAG_BYTES>()
            .ok_or(ForeignEventId)?;
        let position = decode(fields).ok_or(ForeignEventId)?;
        let parts = authenticated(session, fields);
        match self
            .sealer
            .verify(Purpose::EVENT_ID, session.tenant(), key_id, &parts, tag)
        {
            Verdict::Valid => Ok(Verified::Ours(position)),
            Verdict::UnknownKey => Ok(Verified::KeyGone),
            Verdict::Forged if mutation::on("skip-mac") => Ok(Verified::Ours(position)),
            Verdict::Forged => Err(ForeignEventId),
        }
    }
}

fn authenticated<'a>(session: &'a SessionKey, fields: &'a [u8]) -> [&'a [u8]; 5] {
    [
        b"evid",
        session.tenant().as_str().as_bytes(),
        session.principal().as_bytes(),
        session.id().expose().as_bytes(),
        fields,
    ]
}

fn split(text: &str) -> Option<(&str, Vec<u8>)> {
    if text.len() > MAX_LENGTH {
        return None;
    }
    let (key_id, body) = text.strip_prefix('1')?.split_once('.')?;
    let named = (1..=KEY_ID_MAX).contains(&key_id.len())
        && key_id.bytes().all(|b| b.is_ascii_alphanumeric());
    if !named {
        return None;
    }
    Some((key_id, URL_SAFE_NO_PAD.decode(body).ok()?))
}

fn encode(position: &Position) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(50);
    bytes.extend_from_slice(position.stream.as_bytes());
    bytes.extend_from_slice(&position.epoch.to_be_bytes());
    let mut seq = position.seq;
    while seq >= 0x80 {
        bytes.push(seq.to_le_bytes()[0] | 0x80);
        seq >>= 7;
    }
    bytes.push(seq.to_le_bytes()[0]);
    bytes.extend_from_slice(&position.chain);
    bytes
}

fn decode(bytes: &[u8]) -> Option<Position> {
    let (stream, rest) = bytes.split_first_chunk::<STREAM_ID_BYTES>()?;
    let (epoch, rest) = rest.split_first_chunk::<4>()?;
    let (seq, chain) = rest.split_last_chunk::<8>()?;
    let position = Position {
        stream: StreamId(*stream),
        epoch: u32::from_be_bytes(*epoch),
        seq: decode_seq(seq)?,
        chain: *chain,
    };
    Some(position)
}

/// The varint of `bytes`, all of them, in its one shortest form.
fn decode_seq(bytes: &[u8]) -> Option<u64> {
    let (last, continued) = bytes.split_last()?;
    let shortest = *last != 0 || continued.is_empty();
    let shaped = last & 0x80 == 0 && continued.iter().all(|byte| byte & 0x80 != 0);
    if !shortest || !shaped || bytes.len() > 10 {
        return None;
    }
    let mut seq = 0_u64;
    for byte in bytes.iter().rev() {
        if seq > u64::MAX >> 7 {
            return None;
        }
        seq = seq << 7 | u64::from(byte & 0x7F);
    }
    Some(seq)
}

#[cfg(test)]
mod tests;

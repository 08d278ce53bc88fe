//! Streams that come from the store: taken over, or followed while another replica writes them.
//!
//! Nothing is taken that does not follow from what came before it (EL-5). Where the events that the
//! store has do not lead to the end that it names, only that end is taken: whoever stands there
//! lacks nothing, and everybody else is told of the loss.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;
use vestibule_store::MacKey;

use super::super::note::Noted;
use super::super::position;
use super::{Moment, Remote, Role, SessionLog, Stored, Stream};
use crate::LogError;
use crate::event_id::{Chain, Position, StreamId};
use crate::resume::{Remembered, decide};
use crate::ring::Ring;

/// One event as the store has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Past {
    pub(crate) seq: u64,
    pub(crate) chain: Chain,
    pub(crate) payload: Bytes,
}

/// A stream as the store has it.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    pub(crate) id: StreamId,
    pub(crate) epoch: u32,
    pub(crate) key_id: Arc<str>,
    pub(crate) requests: Vec<Bytes>,
    pub(crate) note: Option<Bytes>,
    pub(crate) ended: Option<Instant>,
    pub(crate) fence: u64,
    pub(crate) owner: Arc<str>,
    /// The replica of its newest reader, if that was not its first owner's.
    pub(crate) reader: Option<Arc<str>>,
    pub(crate) top: u64,
    pub(crate) chain: Chain,
    pub(crate) events: Vec<Past>,
}

/// What a stream's chain begins with.
pub(crate) fn origin(id: StreamId, epoch: u32) -> Vec<u8> {
    [&id.as_bytes()[..], &epoch.to_be_bytes()].concat()
}

impl Record {
    /// The history that it tells, as far as that is one.
    fn ring(&self, key: MacKey, turn: u64) -> (Ring, Chain) {
        let mut ring = Ring::new(key.clone(), &origin(self.id, self.epoch));
        let beginning = ring.top_chain();
        for event in &self.events {
            if !ring.take_back(event.seq, event.chain, event.payload.clone(), turn) {
                break;
            }
        }
        if (ring.top(), ring.top_chain()) != (self.top, self.chain) {
            ring = ring.cleared(self.top, self.chain);
        }
        (ring, beginning)
    }
}

impl Record {
    /// Where a client stands that has that event.
    pub(crate) fn position(&self, event: &Past) -> Position {
        position(self.id, self.epoch, event.seq, event.chain)
    }

    /// Whether a client that stands there would be told of a loss.
    pub(crate) fn loses(&self, position: &Position, key: MacKey) -> bool {
        let (ring, _) = self.ring(key, 0);
        let remembered = Remembered {
            epoch: self.epoch,
            ring: &ring,
            ended: self.ended.is_some(),
            has_requests: !self.requests.is_empty(),
        };
        decide(position, Some(remembered)).is_loss()
    }
}

impl SessionLog {
    /// Takes over a stream from the store, in the place of what is here of it. Readers stay. Gone when
    /// the session has been dropped here meanwhile: nobody would see the stream.
    pub(crate) fn bring(
        &mut self,
        record: Record,
        key: MacKey,
        role: Role,
        at: Moment,
    ) -> Result<(), LogError> {
        self.check_alive()?;
        let id = record.id;
        let (mut ring, origin) = record.ring(key.clone(), at.turn);
        if role == Role::Own {
            ring.is_written_down();
        }
        let mut remote = Remote::new(role, record.fence, record.key_id, origin, at.now);
        remote.stored = Stored {
            top: ring.top(),
            chain: ring.top_chain(),
            first: ring.first(),
            header: true,
            ended: record.ended.is_some(),
            note: Some(0),
        };
        let stream = self.streams.entry(id).or_insert_with(|| {
            let nothing = Ring::new(key, &[]);
            Box::new(Stream::new(
                record.epoch,
                vec![],
                nothing,
                super::super::journal::Saved::default(),
                at.now,
            ))
        });
        if let Some(before) = stream.remote.take() {
            remote.readers = before.readers;
            remote.shipping = before.shipping;
        }
        remote.readers.known_elsewhere(record.reader);
        stream.epoch = record.epoch;
        stream.requests = record.requests;
        stream.ended = record.ended;
        stream.note = Noted::taken_back(ring.top(), record.note);
        stream.ring = ring;
        stream.end_written = 0;
        stream.abandoned = role == Role::Own && stream.ended.is_none() && !id.is_standalone();
        stream.active = at.now;
        stream.remote = Some(remote);
        if let Some(slot) = &mut stream.slot {
            slot.cursor = slot.cursor.min(stream.ring.top());
        }
        stream.wake.notify_waiters();
        self.settle(id);
        self.fit_session();
        Ok(())
    }

    /// Events of another replica's stream have come. False when they do not follow from what is
    /// here.
    pub(crate) fn follow(&mut self, record: Record, at: Moment) -> bool {
        let (id, limits) = (record.id, self.limits);
        let Some(stream) = self.streams.get_mut(&id) else {
            return false;
        };
        let Some(remote) = &mut stream.remote else {
            return false;
        };
        let same = remote.role == Role::Mirror && stream.epoch == record.epoch;
        if !same || !stream.ring.follow(&record, at.turn) {
            return false;
        }
        remote.fence = record.fence;
        remote.heard = at.now;
        stream.ended = record.ended;
        stream.requests = record.requests;
        stream.note = Noted::taken_back(stream.ring.top(), record.note);
        stream.ring.fit(limits.stream_events, limits.stream_bytes);
        stream.active = at.now;
        stream.wake.notify_waiters();
        self.settle(id);
        self.fit_session();
        true
    }
}

impl Ring {
    /// Goes on to where the record is; false when that is not after what is here.
    fn follow(&mut self, record: &Record, turn: u64) -> bool {
        if record.top < self.top() {
            return false;
        }
        for event in &record.events {
            if event.seq <= self.top() {
                continue;
            }
            if event.seq > self.top() + 1 {
                self.clear(); // what is between was trimmed before it came here
            }
            if !self.take_back(event.seq, event.chain, event.payload.clone(), turn) {
                return false;
            }
        }
        if self.top() < record.top {
            self.jump(record.top, record.chain);
        }
        self.top_chain() == record.chain
    }
}

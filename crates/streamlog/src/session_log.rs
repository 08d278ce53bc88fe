//! The streams of one session: pure bookkeeping; time and order come in as arguments.
//!
//! Everything a session has here is in this one object and ends with it. Each operation leaves the
//! places of what changed (see `retain.rs`) to be entered in the tenant's order, under the same
//! lock.

mod journal;
mod note;
mod readers;
mod remote;
mod room;
mod writers;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;
use vestibule_store::MacKey;

use crate::LogError;
use crate::backlog::Backlog;
use crate::event_id::{Chain, Position, StreamId};
use crate::log::{Appended, Event, Lag};
use crate::resume::{Decision, Remembered, decide};
use crate::retain::{Limits, Move, Place, Rank};
use crate::ring::{Ring, UNWRITTEN};
use crate::tail::Stop;
use note::Noted;
use remote::Remote;

pub(crate) use journal::{Header, Journal, Note, Restored};
pub(crate) use remote::{Answer, Arrival, Batch, Errand, Item, Past, Record, Role, Wanted};

/// When an operation happens, and its place in the order of all operations.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    pub(crate) now: Instant,
    pub(crate) turn: u64,
    /// The newest submission that is on disk; 0 where there is none.
    pub(crate) settled: u64,
}

/// A number that is never given twice.
pub(crate) fn next_number(numbers: &AtomicU64) -> u64 {
    numbers.fetch_add(1, Ordering::Relaxed)
}

/// The connection that reads a stream.
#[derive(Debug)]
struct Slot {
    number: u64,
    cursor: u64,
    stop: Option<Stop>,
    /// What it got last had no id.
    bare: bool,
}

#[derive(Debug)]
struct Stream {
    epoch: u32,
    requests: Vec<Bytes>,
    note: Noted,
    ring: Ring,
    ended: Option<Instant>,
    abandoned: bool,
    /// The last append, read or change of reader.
    active: Instant,
    slot: Option<Slot>,
    /// Readers that were replaced and have not been closed yet.
    leaving: Vec<u64>,
    /// The newest event that any reader has had.
    delivered: u64,
    wake: Arc<Notify>,
    charged: usize,
    place: Option<Place>,
    /// The submission its end is on disk with, as of an event.
    end_written: u64,
    /// What the disk has of it.
    saved: journal::Saved,
    /// What the store of several replicas has of it.
    remote: Option<Remote>,
}

impl Stream {
    /// A stream that nobody reads yet and that has not ended.
    fn new(
        epoch: u32,
        requests: Vec<Bytes>,
        ring: Ring,
        saved: journal::Saved,
        active: Instant,
    ) -> Self {
        Self {
            epoch,
            requests,
            note: Noted::default(),
            ring,
            ended: None,
            abandoned: false,
            active,
            slot: None,
            leaving: Vec::new(),
            delivered: 0,
            wake: Arc::new(Notify::new()),
            charged: 0,
            place: None,
            end_written: 0,
            saved,
            remote: None,
        }
    }

    /// Its reader, unless that has been told to stop.
    fn reader(&self) -> Option<&Slot> {
        self.slot.as_ref().filter(|slot| slot.stop.is_none())
    }

    fn has_unread(&self) -> bool {
        self.reader()
            .is_some_and(|slot| slot.cursor < self.ring.top())
    }

    fn place(&self) -> Option<Place> {
        let turn = self.ring.first_turn()?;
        let rank = match self.ring.len() {
            1 if self.delivered < self.ring.top() => Rank::Undelivered,
            1 => Rank::Spare,
            _ => Rank::History,
        };
        Some((rank, turn))
    }

    fn lag(&self, settled: u64) -> Option<Lag> {
        let slot = self.reader()?;
        let (events, bytes) = self.ring.behind(slot.cursor, settled);
        Some(Lag { events, bytes })
    }

    fn appended(&self, settled: u64) -> Appended {
        Appended {
            top: self.ring.top(),
            lag: self.lag(settled),
        }
    }
}

/// What a reader gets when it asks.
#[derive(Debug)]
pub(crate) enum Step {
    Event {
        position: Position,
        payload: Bytes,
        /// Whether it has an id.
        safe: bool,
    },
    Gap,
    /// What the reader has had is safe up to here by now.
    Caught(Position),
    Finished,
    Orphaned,
    Stopped(Stop),
    /// Nothing yet.
    Wait,
    /// Nothing until the reader before this one is closed.
    Handoff,
    /// Nothing until that submission is on disk.
    Unsettled(u64),
}

/// A new reader.
#[derive(Debug)]
pub(crate) struct Attached {
    pub(crate) number: u64,
    pub(crate) wake: Arc<Notify>,
}

/// What a new stream begins with.
#[derive(Debug)]
pub(crate) struct Beginning {
    pub(crate) id: StreamId,
    pub(crate) epoch: u32,
    pub(crate) key: MacKey,
    /// The name of the key.
    pub(crate) key_id: Arc<str>,
    pub(crate) requests: Vec<Bytes>,
}

#[derive(Debug)]
pub(crate) struct SessionLog {
    limits: Limits,
    /// A table has places for more than there are: for many sessions a stream, or two, is much.
    streams: HashMap<StreamId, Box<Stream>>,
    backlog: Backlog,
    backlog_place: Option<Place>,
    backlog_charged: usize,
    /// Standalone streams with a reader, the newest last.
    listeners: Vec<StreamId>,
    bytes: usize,
    forgotten: bool,
    /// Only this replica has forgotten it.
    retired: bool,
    /// Questions that will not be delivered and have not been handed out yet.
    lost: Vec<Arc<str>>,
    moves: Vec<Move>,
    /// Where there is a disk.
    journal: Option<Journal>,
    /// Where there are several replicas.
    outbox: Option<remote::Outbox>,
}

impl SessionLog {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            streams: HashMap::new(),
            backlog: Backlog::default(),
            backlog_place: None,
            backlog_charged: 0,
            listeners: Vec::new(),
            bytes: 0,
            forgotten: false,
            retired: false,
            lost: Vec::new(),
            moves: Vec::new(),
            journal: None,
            outbox: None,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn counts(&self) -> (usize, usize) {
        let events: usize = self.streams.values().map(|stream| stream.ring.len()).sum();
        (self.streams.len(), events + self.backlog.len())
    }

    pub(crate) fn take_moves(&mut self) -> std::vec::Drain<'_, Move> {
        self.moves.drain(..)
    }

    pub(crate) fn take_lost(&mut self) -> Vec<Arc<str>> {
        std::mem::take(&mut self.lost)
    }

    pub(crate) fn requests(&self, id: StreamId) -> Vec<Bytes> {
        self.streams
            .get(&id)
            .map_or(vec![], |stream| stream.requests.clone())
    }

    /// Another standalone stream than that one: for a seeded bug.
    pub(crate) fn another_standalone(&self, id: StreamId) -> Option<StreamId> {
        let mut others = self.streams.keys().filter(|other| other.is_standalone());
        others
            .find(|other| id.is_standalone() && **other != id)
            .copied()
    }

    /// The wake-up of a stream, for those who wait for its reader.
    pub(crate) fn wake_of(&self, id: StreamId) -> Option<Arc<Notify>> {
        self.streams.get(&id).map(|stream| Arc::clone(&stream.wake))
    }

    pub(crate) fn decide(&self, position: &Position) -> Decision {
        let remembered = self.streams.get(&position.stream).map(|stream| Remembered {
            epoch: stream.epoch,
            ring: &stream.ring,
            ended: stream.ended.is_some(),
            has_requests: !stream.requests.is_empty(),
        });
        decide(position, remembered)
    }

    /// Whether an event of that size pushes out history which the attached reader lacks.
    pub(crate) fn must_hold(&self, id: StreamId, bytes: usize) -> bool {
        let Some(stream) = self.streams.get(&id) else {
            return false;
        };
        let ring = &stream.ring;
        let full = ring.len() >= self.limits.stream_events
            || ring.bytes() + Ring::cost(bytes) > self.limits.stream_bytes;
        let next_lost = stream
            .reader()
            .is_some_and(|slot| slot.cursor < ring.first());
        full && ring.len() > 0 && next_lost && stream.ended.is_none()
    }

    pub(crate) fn lag(&self, id: StreamId, number: u64, at: Moment) -> Lag {
        let Some(stream) = self.streams.get(&id) else {
            return Lag::default();
        };
        if stream
            .slot
            .as_ref()
            .is_none_or(|slot| slot.number != number)
        {
            return Lag::default();
        }
        let mut lag = stream.lag(at.settled).unwrap_or_default();
        if self.listeners.last() == Some(&id) {
            lag.events += self.backlog.len();
            lag.bytes += self.backlog.bytes();
        }
        lag
    }

    pub(crate) fn read(
        &self,
        id: StreamId,
        after: u64,
        max: usize,
        at: Moment,
    ) -> Vec<(Position, Bytes)> {
        let Some(stream) = self.streams.get(&id) else {
            return vec![];
        };
        let from = after.max(stream.ring.first() - 1);
        (from..stream.ring.top())
            .take(max)
            .filter_map(|seq| stream.ring.after(seq))
            .take_while(|kept| kept.written <= at.settled)
            .map(|kept| {
                (
                    position(id, stream.epoch, kept.seq, kept.chain),
                    kept.payload.clone(),
                )
            })
            .collect()
    }

    pub(crate) fn open(&mut self, beginning: Beginning, at: Moment) -> Result<Position, LogError> {
        self.check_alive()?;
        while self.streams.len() >= self.limits.session_streams {
            self.forget_one_stream()?;
        }
        let Beginning {
            id,
            epoch,
            key,
            key_id,
            requests,
        } = beginning;
        let mut ring = Ring::new(key, &remote::origin(id, epoch));
        let (mut saved, mut shared) = (journal::Saved::default(), None);
        if let Some(journal) = &self.journal {
            saved = journal.begin(key_id);
            ring = ring.on_disk();
        } else if self.is_stored(id) {
            ring = ring.on_disk();
            shared = Some(Remote::begin(key_id, ring.top_chain(), at.now));
        }
        let mut stream = Stream::new(epoch, requests, ring, saved, at.now);
        stream.remote = shared;
        let start = position(id, epoch, 0, stream.ring.top_chain());
        self.streams.insert(id, Box::new(stream));
        self.note_stream(id);
        Ok(start)
    }

    /// Forgets the stream that nobody has used for longest and nobody needs.
    fn forget_one_stream(&mut self) -> Result<(), LogError> {
        let spare = |id: &StreamId, stream: &Stream| {
            stream.reader().is_none() && (stream.ended.is_some() || id.is_standalone())
        };
        let oldest = self
            .streams
            .iter()
            .filter(|(id, stream)| spare(id, stream))
            .min_by_key(|(_, stream)| stream.active);
        let Some(id) = oldest.map(|(id, _)| *id) else {
            return Err(LogError::Full(self.streams.len()));
        };
        self.remove(id);
        Ok(())
    }

    pub(crate) fn append(
        &mut self,
        id: StreamId,
        events: Vec<Bytes>,
        end: bool,
        at: Moment,
    ) -> Result<Appended, LogError> {
        self.check_alive()?;
        if id.is_standalone() {
            return Err(LogError::Standalone);
        }
        let (limits, on_disk) = (self.limits, self.journal.is_some());
        let stream = self.streams.get_mut(&id).ok_or(LogError::Gone)?;
        if !stream.is_own() {
            return Err(LogError::Gone);
        }
        if stream.ended.is_some() {
            return Err(LogError::Ended);
        }
        for payload in events {
            stream.ring.push(payload, at.turn);
        }
        stream.note.appended(stream.ring.top());
        if stream.remote.is_none() {
            stream.note.safe(stream.ring.top());
        }
        stream.ring.fit(limits.stream_events, limits.stream_bytes);
        stream.active = at.now;
        if end {
            stream.ended = Some(at.now);
            let written_down = on_disk || stream.remote.is_some();
            stream.note.over();
            stream.end_written = if written_down { UNWRITTEN } else { 0 };
        }
        stream.wake.notify_waiters();
        let appended = stream.appended(at.settled);
        self.settle(id);
        self.fit_session();
        Ok(appended)
    }

    pub(crate) fn publish(
        &mut self,
        events: Vec<Event>,
        at: Moment,
    ) -> Result<Vec<Arc<str>>, LogError> {
        self.check_alive()?;
        for event in events {
            self.backlog.push(event, at.now, at.turn);
        }
        let lost = self
            .backlog
            .fit(self.limits.stream_events, self.limits.stream_bytes);
        self.settle_backlog();
        self.fit_session();
        self.wake_newest_listener();
        Ok(lost)
    }

    fn check_alive(&self) -> Result<(), LogError> {
        if self.forgotten {
            Err(LogError::Gone)
        } else {
            Ok(())
        }
    }
}

fn position(stream: StreamId, epoch: u32, seq: u64, chain: Chain) -> Position {
    Position {
        stream,
        epoch,
        seq,
        chain,
    }
}

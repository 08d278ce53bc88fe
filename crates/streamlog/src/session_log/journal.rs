//! What of a session's streams has to be written down, for those who have a disk.
//!
//! Nothing is noted where something happens: after each operation a stream is compared with what
//! the disk has of it, and the difference is the note. So no operation can forget one.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bytes::Bytes;
use tokio::time::Instant;

use super::note::Noted as ResumeNote;
use super::{Moment, SessionLog, Stream, next_number};
use crate::backlog::{Backlog, Noted};
use crate::event_id::{Chain, StreamId};
use crate::log::Event;
use crate::retain::Limits;
use crate::ring::{Ring, UNWRITTEN};

/// What may be on its way to the disk of one stream: half of what makes a reader slow.
const UNSETTLED_EVENTS: usize = 500;
const UNSETTLED_BYTES: usize = 128 * 1024;

/// What is remembered of a stream besides its events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) id: StreamId,
    pub(crate) epoch: u32,
    /// The name of the key its chain is made with.
    pub(crate) key_id: Arc<str>,
    pub(crate) requests: Vec<Bytes>,
    pub(crate) note: Option<Bytes>,
    pub(crate) ended: Option<Instant>,
    /// The newest event and its chain, for when no event is kept.
    pub(crate) top: u64,
    pub(crate) chain: Chain,
}

/// One thing to be written down. Numbers are the names of streams and waiting events on disk.
#[derive(Debug)]
pub(crate) enum Note {
    Stream {
        number: u64,
        header: Header,
    },
    Event {
        number: u64,
        seq: u64,
        chain: Chain,
        payload: Bytes,
    },
    /// Events from one number up to before another are not kept any more.
    Trimmed {
        number: u64,
        from: u64,
        below: u64,
    },
    Removed {
        number: u64,
    },
    Backlog(Noted),
}

/// What the disk has of a stream.
#[derive(Debug, Default)]
pub(super) struct Saved {
    number: u64,
    key_id: Arc<str>,
    /// The first event it has, or the next to come, and the last.
    first: u64,
    top: u64,
    /// Whether its header has been written, with the end, as one without events, and with which
    /// note.
    header: Option<(bool, bool, u64)>,
}

/// The notes of a session that have not been handed over yet.
#[derive(Debug)]
pub(crate) struct Journal {
    numbers: Arc<AtomicU64>,
    notes: Vec<Note>,
    /// Streams that have something new in them.
    touched: Vec<StreamId>,
}

impl Journal {
    pub(super) fn begin(&self, key_id: Arc<str>) -> Saved {
        Saved {
            number: next_number(&self.numbers),
            key_id,
            first: 1,
            ..Saved::default()
        }
    }
}

/// A stream of an earlier process.
#[derive(Debug)]
pub(crate) struct Restored {
    pub(crate) number: u64,
    pub(crate) header: Header,
    pub(crate) ring: Ring,
}

impl SessionLog {
    /// A log whose changes are to be written down.
    pub(crate) fn on_disk(limits: Limits, numbers: Arc<AtomicU64>) -> Self {
        let mut log = Self::new(limits);
        log.backlog = Backlog::on_disk(Arc::clone(&numbers));
        log.journal = Some(Journal {
            numbers,
            notes: Vec::new(),
            touched: Vec::new(),
        });
        log
    }

    /// What is to be written down since this was last asked.
    pub(crate) fn take_notes(&mut self) -> Vec<Note> {
        let Some(journal) = &mut self.journal else {
            return vec![];
        };
        let mut notes = std::mem::take(&mut journal.notes);
        notes.extend(self.backlog.take_noted().into_iter().map(Note::Backlog));
        notes
    }

    /// The notes were submitted to the disk.
    pub(crate) fn submitted(&mut self, written: u64) {
        let touched = self
            .journal
            .as_mut()
            .map(|journal| std::mem::take(&mut journal.touched));
        for id in touched.into_iter().flatten() {
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.ring.submitted(written);
                if stream.end_written == UNWRITTEN {
                    stream.end_written = written;
                }
            }
        }
    }

    /// Notes what of that stream the disk does not have.
    pub(super) fn note_stream(&mut self, id: StreamId) {
        if self.outbox.is_some() {
            self.compare(id);
            return;
        }
        let (Some(journal), Some(stream)) = (&mut self.journal, self.streams.get_mut(&id)) else {
            return;
        };
        let before = journal.notes.len();
        stream.note_difference(id, &mut journal.notes);
        if journal.notes.len() > before {
            journal.touched.push(id);
        }
    }

    pub(super) fn note_removal(&mut self, saved: &Saved) {
        if let Some(journal) = &mut self.journal {
            let number = saved.number;
            if saved.top >= saved.first {
                let (from, below) = (saved.first, saved.top + 1);
                let events = Note::Trimmed {
                    number,
                    from,
                    below,
                };
                journal.notes.push(events);
            }
            journal.notes.push(Note::Removed { number });
        }
    }

    /// The submission that a writer has to wait for, if too much of its stream is on its way to the
    /// disk: a reader would get it all at once and seem slow (EL-21).
    pub(crate) fn on_its_way(&self, id: StreamId, at: Moment) -> Option<u64> {
        let stream = self.streams.get(&id)?;
        let (events, bytes, last) = stream.ring.unsettled(at.settled);
        (events > UNSETTLED_EVENTS || bytes > UNSETTLED_BYTES).then_some(last)
    }

    /// Everything there is, to be written down anew.
    pub(crate) fn noted_anew(&self) -> Vec<Note> {
        let mut notes = Vec::new();
        for (id, stream) in &self.streams {
            let number = stream.saved.number;
            let header = stream.header(*id);
            notes.push(Note::Stream { number, header });
            stream.note_events(stream.ring.first(), &mut notes);
        }
        notes.extend(self.backlog.noted_anew().into_iter().map(Note::Backlog));
        notes
    }

    /// Takes back a stream of an earlier process. A POST stream without its end has lost its
    /// writer with that process (EL-15).
    pub(crate) fn take_back(&mut self, restored: Restored, at: Moment) {
        let Restored {
            number,
            header,
            ring,
        } = restored;
        let id = header.id;
        let saved = Saved {
            number,
            key_id: header.key_id,
            first: ring.first(),
            top: ring.top(),
            header: Some((header.ended.is_some(), ring.is_cleared(), 0)),
        };
        let stream = Stream {
            abandoned: header.ended.is_none() && !id.is_standalone(),
            ended: header.ended,
            note: ResumeNote::taken_back(ring.top(), header.note),
            ..Stream::new(header.epoch, header.requests, ring, saved, at.now)
        };
        self.streams.insert(id, Box::new(stream));
        self.settle(id);
    }

    /// Takes back an event that waited for a standalone stream.
    pub(crate) fn take_back_waiting(
        &mut self,
        number: u64,
        event: Event,
        since: Instant,
        at: Moment,
    ) {
        self.backlog.take_back(number, event, since, at.turn);
        self.settle_backlog();
    }

    /// All streams of an earlier process are back. Whoever reads next is told that it may lack
    /// notifications: nobody listened to the upstreams in between.
    pub(crate) fn taken_back(&mut self) {
        self.backlog.mark_lost();
        self.fit_session();
    }
}

impl Stream {
    fn header(&self, id: StreamId) -> Header {
        Header {
            id,
            epoch: self.epoch,
            key_id: Arc::clone(&self.saved.key_id),
            requests: self.requests.clone(),
            note: self.note.latest().cloned(),
            ended: self.ended,
            top: self.ring.top(),
            chain: self.ring.top_chain(),
        }
    }

    fn note_difference(&mut self, id: StreamId, notes: &mut Vec<Note>) {
        let (number, first) = (self.saved.number, self.ring.first());
        let header = (
            self.ended.is_some(),
            self.ring.is_cleared(),
            self.note.version(),
        );
        if self.saved.header != Some(header) {
            let header = self.header(id);
            notes.push(Note::Stream { number, header });
        }
        if first > self.saved.first {
            notes.push(Note::Trimmed {
                number,
                from: self.saved.first,
                below: first,
            });
        }
        self.note_events(first.max(self.saved.top + 1), notes);
        self.saved.header = Some(header);
        self.saved.first = first;
        self.saved.top = self.ring.top();
    }

    /// Notes the kept events from that number on.
    fn note_events(&self, from: u64, notes: &mut Vec<Note>) {
        let events = (from..=self.ring.top()).filter_map(|seq| self.ring.after(seq - 1));
        notes.extend(events.map(|kept| Note::Event {
            number: self.saved.number,
            seq: kept.seq,
            chain: kept.chain,
            payload: kept.payload.clone(),
        }));
    }
}

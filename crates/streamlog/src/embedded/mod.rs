//! The event log of one process, on its disk too: what is read is in memory, what happens is
//! written down before a client sees it, and the next process goes on with it.
//!
//! - *Durable before visible* (EL-8). An append returns at once; a reader gets the event when the
//!   disk has it. So all that is appended while one group is committed goes with the next (EL-9),
//!   and only a writer who is faster than the disk is held back.
//! - *The disk has a beginning of what memory has.* A process that is killed has shown nothing that
//!   is not in it, and the next one mints no id twice: numbers go on where the disk ends, under the
//!   same epoch and chain, and what never was visible is of another chain (EL-5).
//! - *Writers die with their process.* A POST stream without its end is an orphan from the first
//!   moment of the next one (EL-15).
//! - *Bounded.* What the limits drop from memory is dropped from the disk (EL-19).

mod record;
mod restore;
mod scribe;
#[cfg(test)]
pub(crate) mod tests;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use vestibule_store::{Change, Contents, Disk, Sealer, SessionKey, Source};
use vestibule_terms::Clock;

pub(crate) use scribe::Scribe;

use crate::Pending;
use crate::held::{Outlet, Shared};
use crate::log::{Appended, Entry, Event, Opened, StreamKind, StreamLog, StreamRef, Swept};
use crate::memory::{MemoryLog, Stats};
use crate::resume::Resume;
use crate::retain::Limits;
use crate::tail::{Reader, Stop};

/// The on-disk [`StreamLog`].
pub struct EmbeddedLog {
    memory: Arc<MemoryLog>,
    disk: Arc<Disk>,
}

impl EmbeddedLog {
    /// The log of these sessions, as far as it is on the disk. What is there of others goes.
    pub fn open(
        disk: &Arc<Disk>,
        contents: &mut Contents,
        sessions: impl IntoIterator<Item = SessionKey>,
        sealer: &Sealer,
        limits: Limits,
        clock: Arc<dyn Clock>,
    ) -> Arc<Self> {
        let scribe = Scribe::new(Arc::clone(disk), clock);
        let shared = Shared::new(sealer.clone(), limits, Outlet::Disk(scribe));
        let memory = Arc::new(MemoryLog::over(shared));
        restore::restore(&memory, contents, sessions, sealer);
        let log = Arc::new(Self {
            memory,
            disk: Arc::clone(disk),
        });
        let source: Arc<dyn Source> = Arc::clone(&log) as Arc<dyn Source>;
        disk.register(Arc::downgrade(&source));
        log
    }

    /// What it holds now.
    pub fn stats(&self) -> Stats {
        self.memory.stats()
    }

    #[cfg(test)]
    pub(crate) fn memory(&self) -> &Arc<MemoryLog> {
        &self.memory
    }

    /// Waits until everything that was submitted so far is on disk.
    async fn settle(&self) {
        self.disk.settle(self.disk.submitted()).await;
    }
}

/// A POST stream whose opener has not been told of it yet; dropped, it has no writer.
struct Unclaimed<'a> {
    log: &'a MemoryLog,
    stream: Option<StreamRef>,
}

impl Drop for Unclaimed<'_> {
    fn drop(&mut self) {
        if let Some(stream) = &self.stream {
            self.log.abandon(stream);
        }
    }
}

impl StreamLog for EmbeddedLog {
    /// Returns when the session, which was created before, is on disk.
    fn begin_session<'a>(&'a self, session: &'a SessionKey) -> Pending<'a, ()> {
        let begun = self.memory.begin_session(session);
        Box::pin(async move {
            begun.await?;
            self.settle().await;
            Ok(())
        })
    }

    /// Returns when the disk has forgotten it too, and the session, which was ended before.
    fn forget_session<'a>(&'a self, session: &'a SessionKey) -> Pending<'a, Vec<Arc<str>>> {
        let forgotten = self.memory.forget_session(session);
        Box::pin(async move {
            let lost = forgotten.await?;
            self.settle().await;
            Ok(lost)
        })
    }

    fn open<'a>(&'a self, session: &'a SessionKey, kind: StreamKind) -> Pending<'a, Opened> {
        let opened = self.memory.open(session, kind);
        Box::pin(async move {
            let opened = opened.await?;
            let mut unclaimed = Unclaimed {
                log: &self.memory,
                stream: Some(opened.stream.clone()),
            };
            self.settle().await; // the id of its beginning is given to the client at once
            unclaimed.stream = None;
            Ok(opened)
        })
    }

    fn append<'a>(&'a self, stream: &'a StreamRef, events: Vec<Bytes>) -> Pending<'a, Appended> {
        self.memory.append(stream, events)
    }

    fn finish<'a>(&'a self, stream: &'a StreamRef, last: Option<Bytes>) -> Pending<'a, Appended> {
        self.memory.finish(stream, last)
    }

    fn note<'a>(&'a self, stream: &'a StreamRef, note: Bytes) -> Pending<'a, ()> {
        self.memory.note(stream, note)
    }

    fn claim<'a>(&'a self, stream: &'a StreamRef) -> Pending<'a, bool> {
        self.memory.claim(stream)
    }

    fn abandon(&self, stream: &StreamRef) {
        self.memory.abandon(stream);
    }

    fn room<'a>(&'a self, stream: &'a StreamRef, bytes: usize) -> Pending<'a, ()> {
        Box::pin(async move {
            self.memory.room(stream, bytes).await?;
            if let Some(written) = self.memory.on_its_way(stream) {
                self.disk.settle(written).await;
            }
            Ok(())
        })
    }

    fn publish<'a>(
        &'a self,
        session: &'a SessionKey,
        events: Vec<Event>,
    ) -> Pending<'a, Vec<Arc<str>>> {
        self.memory.publish(session, events)
    }

    fn deliver<'a>(
        &'a self,
        session: &'a SessionKey,
        payload: Bytes,
    ) -> Pending<'a, Option<Vec<Arc<str>>>> {
        self.memory.deliver(session, payload)
    }

    fn attach<'a>(&'a self, stream: &'a StreamRef, after: u64) -> Pending<'a, Reader> {
        self.memory.attach(stream, after)
    }

    fn stop<'a>(&'a self, stream: &'a StreamRef, why: Stop) -> Pending<'a, ()> {
        self.memory.stop(stream, why)
    }

    fn read<'a>(
        &'a self,
        stream: &'a StreamRef,
        after: u64,
        max: usize,
    ) -> Pending<'a, Vec<Entry>> {
        self.memory.read(stream, after, max)
    }

    fn resume<'a>(
        &'a self,
        session: &'a SessionKey,
        last_event_id: &'a str,
    ) -> Pending<'a, Resume> {
        self.memory.resume(session, last_event_id)
    }

    fn sweep(&self) -> Pending<'_, Swept> {
        self.memory.sweep()
    }
}

impl Source for EmbeddedLog {
    fn dump(&self, put: &mut dyn FnMut(Vec<Change>)) {
        let Some(scribe) = self.memory.shared().scribe() else {
            return;
        };
        for held in self.memory.held() {
            let notes = held.with(|log, _| log.noted_anew());
            put(scribe.changes(&held.session, notes)); // nothing is locked while the disk works
        }
    }
}

impl fmt::Debug for EmbeddedLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EmbeddedLog").field(&self.memory).finish()
    }
}

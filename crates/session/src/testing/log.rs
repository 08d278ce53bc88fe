//! A log in which no stream can be begun while its store is away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use vestibule_store::{Sealer, SessionKey};
use vestibule_streamlog::{
    Appended, Entry, Event, Limits, LogError, MemoryLog, Opened, Pending, Reader, Resume, Stop,
    StreamKind, StreamLog, StreamRef, Swept,
};

/// A log in memory.
#[derive(Debug)]
pub(crate) struct MoodyLog {
    inner: MemoryLog,
    away: AtomicBool,
}

impl MoodyLog {
    pub(crate) fn new(sealer: Sealer) -> Self {
        Self {
            inner: MemoryLog::new(sealer, Limits::default()),
            away: AtomicBool::new(false),
        }
    }

    pub(crate) fn be_away(&self, away: bool) {
        self.away.store(away, Ordering::Relaxed);
    }
}

impl StreamLog for MoodyLog {
    fn begin_session<'a>(&'a self, session: &'a SessionKey) -> Pending<'a, ()> {
        self.inner.begin_session(session)
    }

    fn forget_session<'a>(&'a self, session: &'a SessionKey) -> Pending<'a, Vec<Arc<str>>> {
        self.inner.forget_session(session)
    }

    fn open<'a>(&'a self, session: &'a SessionKey, kind: StreamKind) -> Pending<'a, Opened> {
        if self.away.load(Ordering::Relaxed) {
            return Box::pin(std::future::ready(Err(LogError::Unavailable(
                "away".into(),
            ))));
        }
        self.inner.open(session, kind)
    }

    fn append<'a>(&'a self, stream: &'a StreamRef, events: Vec<Bytes>) -> Pending<'a, Appended> {
        self.inner.append(stream, events)
    }

    fn finish<'a>(&'a self, stream: &'a StreamRef, last: Option<Bytes>) -> Pending<'a, Appended> {
        self.inner.finish(stream, last)
    }

    fn note<'a>(&'a self, stream: &'a StreamRef, note: Bytes) -> Pending<'a, ()> {
        self.inner.note(stream, note)
    }

    fn claim<'a>(&'a self, stream: &'a StreamRef) -> Pending<'a, bool> {
        self.inner.claim(stream)
    }

    fn abandon(&self, stream: &StreamRef) {
        self.inner.abandon(stream);
    }

    fn room<'a>(&'a self, stream: &'a StreamRef, bytes: usize) -> Pending<'a, ()> {
        self.inner.room(stream, bytes)
    }

    fn publish<'a>(
        &'a self,
        session: &'a SessionKey,
        events: Vec<Event>,
    ) -> Pending<'a, Vec<Arc<str>>> {
        self.inner.publish(session, events)
    }

    fn deliver<'a>(
        &'a self,
        session: &'a SessionKey,
        payload: Bytes,
    ) -> Pending<'a, Option<Vec<Arc<str>>>> {
        self.inner.deliver(session, payload)
    }

    fn attach<'a>(&'a self, stream: &'a StreamRef, after: u64) -> Pending<'a, Reader> {
        self.inner.attach(stream, after)
    }

    fn stop<'a>(&'a self, stream: &'a StreamRef, why: Stop) -> Pending<'a, ()> {
        self.inner.stop(stream, why)
    }

    fn read<'a>(
        &'a self,
        stream: &'a StreamRef,
        after: u64,
        max: usize,
    ) -> Pending<'a, Vec<Entry>> {
        self.inner.read(stream, after, max)
    }

    fn resume<'a>(&'a self, session: &'a SessionKey, id: &'a str) -> Pending<'a, Resume> {
        self.inner.resume(session, id)
    }

    fn sweep(&self) -> Pending<'_, Swept> {
        self.inner.sweep()
    }
}

//! The writing end of a POST stream, which cannot be lost without a trace.

use std::sync::Arc;

use bytes::Bytes;
use vestibule_store::SessionKey;

use crate::Pending;
use crate::log::{Appended, Opened, Post, StreamKind, StreamLog, StreamRef};

/// The one writer of a POST stream. Dropping it before [`finish`](Writer::finish) makes the stream
/// an orphan: its reader and the sweeps say so, and somebody else writes its end (EL-14, EL-15).
#[derive(Debug)]
pub struct Writer {
    log: Arc<dyn StreamLog>,
    opened: Opened,
}

impl Writer {
    /// Opens the stream that answers one POST: these requests, or more of it.
    pub fn open<'a>(
        log: &'a Arc<dyn StreamLog>,
        session: &'a SessionKey,
        post: impl Into<Post>,
    ) -> Pending<'a, Writer> {
        let kind = StreamKind::Post(post.into());
        Box::pin(async move {
            let opened = log.open(session, kind).await?;
            Ok(Writer {
                log: Arc::clone(log),
                opened,
            })
        })
    }

    /// Becomes the writer of an orphaned stream; none when it has ended or has one.
    pub fn claim<'a>(
        log: &'a Arc<dyn StreamLog>,
        stream: &'a StreamRef,
    ) -> Pending<'a, Option<Writer>> {
        Box::pin(async move {
            let claimed = log.claim(stream).await?;
            Ok(claimed.then(|| Writer {
                log: Arc::clone(log),
                opened: Opened {
                    stream: stream.clone(),
                    priming: None,
                },
            }))
        })
    }

    /// The stream, and the id of its beginning.
    pub fn opened(&self) -> &Opened {
        &self.opened
    }

    /// The stream.
    pub fn stream(&self) -> &StreamRef {
        &self.opened.stream
    }

    /// See [`StreamLog::append`].
    pub fn append(&self, events: Vec<Bytes>) -> Pending<'_, Appended> {
        self.log.append(&self.opened.stream, events)
    }

    /// See [`StreamLog::note`].
    pub fn note(&self, note: Bytes) -> Pending<'_, ()> {
        self.log.note(&self.opened.stream, note)
    }

    /// See [`StreamLog::room`].
    pub fn room(&self, bytes: usize) -> Pending<'_, ()> {
        self.log.room(&self.opened.stream, bytes)
    }

    /// See [`StreamLog::finish`].
    pub fn finish(self, last: Option<Bytes>) -> Pending<'static, Appended> {
        Box::pin(async move { self.log.finish(&self.opened.stream, last).await })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.log.abandon(&self.opened.stream); // does nothing to a stream that has ended
    }
}

//! Who writes a stream, what he notes, and what is left when he is gone (EL-15).

use bytes::Bytes;

use super::{Moment, SessionLog, Stream};
use crate::LogError;
use crate::event_id::StreamId;

/// A stream whose writer is gone.
#[derive(Debug)]
pub(crate) struct Left {
    pub(crate) id: StreamId,
    pub(crate) requests: Vec<Bytes>,
    pub(crate) note: Option<Bytes>,
}

impl SessionLog {
    pub(crate) fn orphans(&self) -> Vec<Left> {
        let orphaned = |stream: &Stream| stream.abandoned && stream.ended.is_none();
        let streams = self.streams.iter().filter(|(_, stream)| orphaned(stream));
        streams
            .map(|(id, stream)| Left {
                id: *id,
                requests: stream.requests.clone(),
                note: stream.note.latest().cloned(),
            })
            .collect()
    }

    /// The requests of a stream whose writer is gone, and its last note.
    pub(crate) fn left_by(&self, id: StreamId) -> (Vec<Bytes>, Option<Bytes>) {
        let note = self
            .streams
            .get(&id)
            .and_then(|stream| stream.note.latest());
        (self.requests(id), note.cloned())
    }

    /// Takes a note of the stream's writer, to be kept with the next append.
    pub(crate) fn note(&mut self, id: StreamId, note: Bytes) -> Result<(), LogError> {
        self.check_alive()?;
        let stream = self.streams.get_mut(&id).ok_or(LogError::Gone)?;
        if stream.ended.is_some() {
            return Err(LogError::Ended);
        }
        stream.note.coming(note);
        Ok(())
    }

    /// The caller is the writer of that orphaned stream from now on; false when it needs none.
    pub(crate) fn claim(&mut self, id: StreamId, at: Moment) -> bool {
        let stream = self.streams.get_mut(&id).filter(|stream| stream.is_own());
        let orphaned = stream.filter(|stream| stream.abandoned && stream.ended.is_none());
        let Some(stream) = orphaned.filter(|_| !self.forgotten) else {
            return false;
        };
        stream.abandoned = false;
        stream.active = at.now;
        stream.wake.notify_waiters();
        true
    }

    pub(crate) fn abandon(&mut self, id: StreamId, at: Moment) {
        if let Some(stream) = self.streams.get_mut(&id).filter(|stream| stream.is_own()) {
            stream.abandoned = true;
            stream.active = at.now; // however quiet it was, there is time to write its end
            stream.wake.notify_waiters();
        }
    }
}

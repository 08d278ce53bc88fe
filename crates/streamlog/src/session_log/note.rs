//! What the writer of a stream leaves to whoever goes on with its call.
//!
//! A note says how far the upstream has been read, so it must never be kept without the events up
//! to there, nor they without it: it is bound to the append it came before.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::log::NOTE_BYTES;

/// The notes of one stream: as many as there are appends that may still be lost with their process.
#[derive(Debug, Default)]
pub(super) struct Noted {
    /// Notes with the number of the newest event when each was made, and their versions; the oldest
    /// first.
    kept: VecDeque<(u64, u64, Bytes)>,
    coming: Option<Bytes>,
    /// Grows with each note.
    version: u64,
}

impl Noted {
    /// A note that was kept with the events up to that number.
    pub(super) fn taken_back(top: u64, note: Option<Bytes>) -> Self {
        Self {
            kept: note.into_iter().map(|note| (top, 0, note)).collect(),
            ..Self::default()
        }
    }

    /// The next append brings this note.
    pub(super) fn coming(&mut self, note: Bytes) {
        let fits = note.len() <= NOTE_BYTES;
        self.coming = Some(if fits { note } else { Bytes::new() });
    }

    /// Something was appended, up to that number.
    pub(super) fn appended(&mut self, top: u64) {
        let Some(note) = self.coming.take() else {
            return;
        };
        if self
            .kept
            .back()
            .is_some_and(|(number, _, _)| *number == top)
        {
            self.kept.pop_back();
        }
        self.version += 1;
        self.kept.push_back((top, self.version, note));
    }

    /// The stream has ended: nobody goes on with anything.
    pub(super) fn over(&mut self) {
        *self = Self::default();
    }

    /// The newest note.
    pub(super) fn latest(&self) -> Option<&Bytes> {
        let newest = self.kept.back().map(|(_, _, note)| note);
        newest.filter(|note| !note.is_empty())
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// The note that belongs to the events up to that number, and its version. An empty one takes
    /// away the one before.
    pub(super) fn at(&self, seq: u64) -> (Option<Bytes>, u64) {
        let mut known = self.kept.iter().rev();
        let found = known.find(|(number, _, _)| *number <= seq);
        found.map_or((None, 0), |(_, version, note)| {
            (Some(note.clone()), *version)
        })
    }

    /// All up to that number is safe: only the newest note of it is needed.
    pub(super) fn safe(&mut self, seq: u64) {
        while self
            .kept
            .get(1)
            .is_some_and(|(number, _, _)| *number <= seq)
        {
            self.kept.pop_front();
        }
    }
}

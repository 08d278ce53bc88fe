//! Hands the notes of sessions to the disk.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use vestibule_store::{Change, Disk, SessionKey};
use vestibule_terms::Clock;

use super::record;
use crate::session_log::Note;
use crate::times::Times;

/// Numbers of one life of a process: as many as fit below the number of that life.
const LIFE_BITS: u32 = 40;

/// The writing side of an on-disk log.
pub(crate) struct Scribe {
    disk: Arc<Disk>,
    numbers: Arc<AtomicU64>,
    pub(super) times: Times,
}

impl Scribe {
    pub(super) fn new(disk: Arc<Disk>, clock: Arc<dyn Clock>) -> Self {
        let first = disk.life() << LIFE_BITS;
        Self {
            disk,
            numbers: Arc::new(AtomicU64::new(first)),
            times: Times(clock),
        }
    }

    /// Where names on disk come from: none is given twice, in any life.
    pub(crate) fn numbers(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.numbers)
    }

    pub(crate) fn settled(&self) -> u64 {
        self.disk.settled()
    }

    pub(crate) async fn settle(&self, written: u64) {
        self.disk.settle(written).await;
    }

    /// Submits the notes of one session. Called under its lock, so that they stay in order.
    pub(crate) fn submit(&self, session: &SessionKey, notes: Vec<Note>) -> u64 {
        self.disk.submit(self.changes(session, notes))
    }

    /// The notes as changes of what is on disk.
    pub(super) fn changes(&self, session: &SessionKey, notes: Vec<Note>) -> Vec<Change> {
        let now = self.times.now();
        let change = |note| record::change(session, note, &now);
        notes.into_iter().map(change).collect()
    }

    /// Submits changes of what belongs to no session.
    pub(super) fn clean(&self, changes: Vec<Change>) {
        if !changes.is_empty() {
            self.disk.submit(changes);
        }
    }
}

impl fmt::Debug for Scribe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Scribe").field(&self.disk).finish()
    }
}

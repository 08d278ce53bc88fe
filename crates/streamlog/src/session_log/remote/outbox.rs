//! What is to be done for a session beyond its log here.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::event_id::StreamId;
use crate::redis::Mode;

/// Something to be done at the store, or told to another replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Errand {
    /// Publish what waits here because the store could not be reached.
    Flush,
    /// Append what differs, under this number.
    Ship(StreamId, u64),
    /// The stream is not remembered any more.
    Remove(StreamId, u64),
    /// It has ended: nobody has to finish it.
    Ended(StreamId),
    /// A standalone reader with that number of its registration is closed.
    Leave(StreamId, u64),
    /// A reader of another replica's stream is closed.
    Unwatch(StreamId, u64),
    /// The readers are closed that this replica wanted closed.
    Word(StreamId, Arc<str>),
    /// A standalone reader waits.
    Port,
}

/// What is to be done for a session.
#[derive(Debug)]
pub(in crate::session_log) struct Outbox {
    pub(super) mode: Mode,
    pub(super) errands: Vec<Errand>,
    pub(super) shippers: u64,
    /// Whether somebody fetches what waits for standalone streams.
    pub(super) porting: bool,
    /// Streams whose readers elsewhere have been told to stop and may not have yet.
    pub(super) awaited: HashSet<StreamId>,
    /// Whether a reader has heard of a loss of which the store does not know that.
    pub(super) told: bool,
    /// Since when what is published cannot be given to the store.
    pub(super) unpublished: Option<Instant>,
    /// Woken when something may wait in the store.
    pub(super) knock: Arc<Notify>,
    /// The standalone reader that waits for something.
    pub(super) hungry: Option<(StreamId, u64)>,
}

impl Outbox {
    pub(super) fn new(mode: Mode) -> Self {
        Self {
            mode,
            errands: Vec::new(),
            shippers: 0,
            porting: false,
            awaited: HashSet::new(),
            told: false,
            unpublished: None,
            knock: Arc::new(Notify::new()),
            hungry: None,
        }
    }

    /// Whether what waits here goes to readers here, because the store cannot be reached.
    pub(super) fn delivers_alone(&self) -> bool {
        self.mode != Mode::Required && self.unpublished.is_some()
    }
}

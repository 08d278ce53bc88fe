//! How much history is kept and for how long (EL-19, EL-20, GET-04, EL-21), and who makes room.
//!
//! Room is made by rank: first history whose stream keeps something newer, then events that were
//! delivered and what waits in backlogs, then undelivered last events, of streams and of backlogs. Within a rank the oldest
//! goes. A tenant makes room for itself; when the process is full, the tenant that uses most does.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::event_id::StreamId;
use crate::held::Held;

/// The bounds of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Events kept of one stream, and events that wait for a session's standalone stream.
    pub stream_events: usize,
    /// Bytes of them.
    pub stream_bytes: usize,
    /// Bytes kept of one session.
    pub session_bytes: usize,
    /// Streams remembered of one session.
    pub session_streams: usize,
    /// Bytes kept of one tenant.
    pub tenant_bytes: usize,
    /// Bytes kept by this process.
    pub process_bytes: usize,
    /// How long the events of a POST stream are kept while nothing happens on it, and after its
    /// end.
    pub idle: Duration,
    /// The same for standalone streams, and how long an event waits for one.
    pub standalone_idle: Duration,
    /// How long the end of a POST stream is remembered, with the ids of its requests.
    pub meta: Duration,
    /// Standalone streams of a session that may be open at once.
    pub standalone_open: usize,
    /// How long a writer waits for a reader that is behind before history is trimmed under it.
    pub hold: Duration,
    /// How long a new reader waits for the one it replaces to be closed.
    pub handoff: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        const MIB: usize = 1024 * 1024;
        const MINUTE: Duration = Duration::from_secs(60);
        Self {
            stream_events: 1000,
            stream_bytes: MIB,
            session_bytes: 4 * MIB,
            session_streams: 1024,
            tenant_bytes: 256 * MIB,
            process_bytes: 64 * MIB,
            idle: MINUTE * 5,
            standalone_idle: MINUTE * 15,
            meta: MINUTE * 15,
            standalone_open: 4,
            hold: MINUTE,
            handoff: Duration::from_millis(250),
        }
    }
}

/// How early something makes room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// Something newer of the same stream remains.
    History,
    /// The last of its stream, delivered; or waiting for a standalone stream before another.
    Spare,
    /// The last of its stream, or of what waits for one, and nobody has had it.
    Undelivered,
}

/// A place in the order in which room is made: rank, then age.
pub(crate) type Place = (Rank, u64);

/// What makes room in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Stream(StreamId),
    Backlog,
}

/// A change of place of one target, to be entered in the tenant's order.
#[derive(Debug)]
pub(crate) struct Move {
    pub(crate) target: Target,
    pub(crate) from: Option<Place>,
    pub(crate) to: Option<Place>,
}

/// What one tenant keeps, and in which order it makes room.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    bytes: AtomicUsize,
    order: Mutex<BTreeMap<Place, (Weak<Held>, Target)>>,
}

impl Budget {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Adds `after - before`.
    pub(crate) fn charge(&self, before: usize, after: usize) {
        charge(&self.bytes, before, after);
    }

    fn order(&self) -> MutexGuard<'_, BTreeMap<Place, (Weak<Held>, Target)>> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn apply(&self, moves: impl Iterator<Item = Move>, session: &Weak<Held>) {
        let mut moves = moves.peekable();
        if moves.peek().is_none() {
            return;
        }
        let mut order = self.order();
        for change in moves {
            if let Some(from) = change.from {
                order.remove(&from);
            }
            if let Some(to) = change.to {
                order.insert(to, (Weak::clone(session), change.target));
            }
        }
    }

    /// What makes room next, sparing the undelivered last event of the stream for which room is
    /// made.
    pub(crate) fn next(&self, spare: Option<StreamId>) -> Option<(Place, Weak<Held>, Target)> {
        let spare = spare.map(Target::Stream);
        self.order()
            .iter()
            .find(|((rank, _), (_, target))| *rank != Rank::Undelivered || Some(*target) != spare)
            .map(|(place, (session, target))| (*place, Weak::clone(session), *target))
    }

    /// Forgets a place whose session is gone.
    pub(crate) fn forget(&self, place: &Place) {
        self.order().remove(place);
    }

    #[cfg(test)]
    pub(crate) fn places(&self) -> usize {
        self.order().len()
    }
}

/// Adds `after - before` to a counter.
pub(crate) fn charge(counter: &AtomicUsize, before: usize, after: usize) {
    if after >= before {
        counter.fetch_add(after - before, Ordering::Relaxed);
    } else {
        counter.fetch_sub(before - after, Ordering::Relaxed);
    }
}

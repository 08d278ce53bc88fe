//! What the store says to an append, and what follows from it (EL-6).

use super::{Batch, Errand, Moment, Remote, Role, SessionLog, Stored, Stream};
use crate::event_id::{Chain, StreamId};

/// How many taken events are remembered, in case the store loses that they were taken.
const REMEMBERED: usize = 256;

/// An answer to a [`Batch`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The store has it, by this append or by one before whose answer was lost.
    Stored,
    /// The store has less than it had: up to this event, or nothing at all.
    Rollback {
        /// Where it stands.
        have: Option<(u64, Chain)>,
    },
    /// The store has another history.
    Diverged,
    /// Another replica owns the stream.
    Fenced,
    /// The session has been ended.
    Gone,
    /// What was to be taken from the waiting events does not wait any more, or is for another
    /// reader; nothing was appended.
    Stale,
}

impl SessionLog {
    /// Takes note of the answer.
    pub(crate) fn answered(&mut self, id: StreamId, batch: &Batch, answer: &Answer, at: Moment) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let Some(remote) = &mut stream.remote else {
            return;
        };
        if remote.role != Role::Own || remote.fence != batch.fence {
            return; // of an earlier ownership
        }
        remote.heard = at.now;
        remote.failing = None;
        match answer {
            Answer::Stored => {
                let ended = stream.stored(batch);
                if ended {
                    self.errand(Errand::Ended(id));
                }
                self.compare(id);
            }
            Answer::Rollback { have } => {
                if !stream.roll_back(*have) {
                    self.diverged(id, at);
                }
            }
            Answer::Diverged => self.diverged(id, at),
            Answer::Fenced => self.fenced(id),
            Answer::Gone => {
                self.lost_with_session();
            }
            Answer::Stale => self.retract(id),
        }
    }

    /// The session was ended by another replica.
    pub(crate) fn lost_with_session(&mut self) {
        let lost = self.forget();
        self.lost.extend(lost);
    }

    /// What was taken for the stream goes back: it waits in the store as before.
    fn retract(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let Some(remote) = &mut stream.remote else {
            return;
        };
        remote.taken.clear();
        let Stored { top, chain, .. } = remote.stored;
        stream.ring.retract(top, chain);
        stream.wake.notify_waiters();
        self.settle(id);
    }
}

impl Remote {
    /// What was taken for events up to that number waits no longer.
    fn answered(&mut self, top: u64) {
        let done = self.taken.partition_point(|(seq, _)| *seq <= top);
        self.before.extend(self.taken.drain(..done));
        let excess = self.before.len().saturating_sub(REMEMBERED);
        self.before.drain(..excess);
    }
}

impl Stream {
    /// The store has the batch; whether the stream's end has come there with it.
    fn stored(&mut self, batch: &Batch) -> bool {
        let Some(remote) = &mut self.remote else {
            return false;
        };
        let ended = batch.ended.is_some() && !remote.stored.ended;
        remote.stored = Stored {
            top: batch.top,
            chain: batch.chain,
            first: batch.first,
            header: true,
            ended: batch.ended.is_some(),
            note: Some(batch.note_version),
        };
        remote.probe = false;
        remote.answered(batch.top);
        self.ring.safe(batch.top);
        self.note.safe(batch.top);
        if ended {
            self.end_written = 0;
        }
        self.wake.notify_waiters();
        ended
    }

    /// The store has lost what it had after that event; false when what it has is not ours.
    fn roll_back(&mut self, have: Option<(u64, Chain)>) -> bool {
        let Some(remote) = &mut self.remote else {
            return false;
        };
        let (top, chain) = have.unwrap_or((0, remote.origin));
        let ours = match top {
            0 => Some(remote.origin),
            _ => self.ring.chain_at(top),
        };
        if ours.is_some_and(|ours| ours != chain) {
            return false;
        }
        remote.stored = Stored {
            top,
            chain,
            first: remote.stored.first.min(top + 1),
            header: have.is_some(),
            ended: false,
            note: None,
        };
        remote.probe = true; // also when there is no event to be appended again
        true
    }
}

//! Asking the store about streams of which nothing new has to be told to it.

use std::time::Duration;

use super::{Moment, Role, SessionLog};
use crate::event_id::StreamId;

impl SessionLog {
    /// Asks the store about every stream of which it has not had a word for so long. What it has
    /// of a stream ends with its age unless its owner says that it lives; an ended one is asked
    /// about only at once.
    pub(crate) fn renew(&mut self, age: Duration, at: Moment) {
        let ids: Vec<StreamId> = self.streams.keys().copied().collect();
        for id in ids {
            let Some(stream) = self.streams.get_mut(&id) else {
                continue;
            };
            let over = stream.ended.is_some();
            let Some(remote) = &mut stream.remote else {
                continue;
            };
            let old = at.now.saturating_duration_since(remote.heard) >= age;
            if old && (!over || age.is_zero()) && remote.role == Role::Own && remote.stored.header {
                remote.probe = true;
                self.compare(id);
            }
        }
    }

    /// Has the store asked about that stream.
    pub(crate) fn probe(&mut self, id: StreamId) {
        if let Some(remote) = self.remote_mut(id)
            && remote.role == Role::Own
        {
            remote.probe = true;
            self.compare(id);
        }
    }

    pub(crate) fn is_probing(&self, id: StreamId) -> bool {
        self.remote(id).is_some_and(|remote| remote.probe)
    }
    /// As if the store had answered: a seeded bug.
    pub(crate) fn pretend_stored(&mut self, id: StreamId, top: u64) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.ring.safe(top);
            stream.wake.notify_waiters();
        }
    }
}

//! The store cannot be reached (EL-22): streams go on without it, or hold.

use std::time::Duration;

use tokio::time::Instant;

use super::super::{Step, position};
use super::{Moment, Remote, SessionLog, Stream};
use crate::event_id::{Position, StreamId};
use crate::redis::Mode;
use crate::tail::Stop;

/// An unanswered append makes a stream go on without the store after this long: longer than one
/// command with its reconnect, shorter than anybody's patience.
const GRACE: Duration = Duration::from_secs(1);

/// What a stream holds back beyond one event, and for how long, when it may not go on without the
/// store (EL-22).
const HELD_BYTES: usize = 256 * 1024;
const HELD_TIME: Duration = Duration::from_secs(10);

impl Remote {
    pub(super) fn is_away(&self, now: Instant) -> bool {
        let since = |since: Instant| now.saturating_duration_since(since) >= GRACE;
        self.failing.is_some_and(since)
    }
}

impl SessionLog {
    /// What a reader gets that has come to an event, or an end, which is not safe yet.
    pub(in crate::session_log) fn unsettled(
        &mut self,
        id: StreamId,
        written: u64,
        at: Moment,
    ) -> Step {
        let Some(mode) = self.outbox.as_ref().map(|outbox| outbox.mode) else {
            return Step::Unsettled(written);
        };
        let Some(stream) = self.streams.get(&id) else {
            return Step::Wait;
        };
        if stream.held_too_long(mode, at) {
            self.stop(id, Stop::Away);
            return Step::Stopped(Stop::Away);
        }
        let cursor = stream.slot.as_ref().map_or(0, |slot| slot.cursor);
        if id.is_standalone() || !stream.goes_on_alone(mode, at) {
            return Step::Wait; // an answer of the store wakes it
        }
        if cursor < stream.ring.top() {
            return self.take(id, false, at);
        }
        Step::Finished
    }
}

impl Stream {
    /// Where its reader stands that has had everything, the last of it without an id, once the store
    /// has it too.
    pub(in crate::session_log) fn caught(&mut self, id: StreamId, at: Moment) -> Option<Position> {
        let ring = &self.ring;
        let slot = self.slot.as_mut().filter(|slot| slot.bare)?;
        if slot.cursor < ring.top() || ring.held_back(at.settled) > 0 {
            return None;
        }
        slot.bare = false;
        Some(position(id, self.epoch, ring.top(), ring.top_chain()))
    }

    /// Whether this stream goes on without the store: what is not safe goes out without an id.
    fn goes_on_alone(&self, mode: Mode, at: Moment) -> bool {
        let remote = self.remote.as_ref();
        mode != Mode::Required && remote.is_some_and(|remote| remote.is_away(at.now))
    }

    /// Whether this stream has held back for the store what it may, and as long as it may.
    fn held_too_long(&self, mode: Mode, at: Moment) -> bool {
        let remote = self.remote.as_ref().filter(|_| mode == Mode::Required);
        let Some(remote) = remote.filter(|remote| remote.is_away(at.now)) else {
            return false;
        };
        let held = at
            .now
            .saturating_duration_since(remote.failing.unwrap_or(at.now));
        self.ring.held_back(at.settled) > HELD_BYTES || held >= HELD_TIME
    }
}

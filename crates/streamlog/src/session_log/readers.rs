//! The connections that read: one a stream, and which standalone stream gets what is new.

use std::sync::Arc;

use tokio::sync::Notify;
use vestibule_terms::mutation;

use super::{Attached, Moment, SessionLog, Slot, Step, position};
use crate::LogError;
use crate::event_id::StreamId;
use crate::redis::Mode;
use crate::ring::{Ring, UNWRITTEN};
use crate::tail::Stop;

impl SessionLog {
    pub(crate) fn attach(
        &mut self,
        id: StreamId,
        after: u64,
        at: Moment,
    ) -> Result<Attached, LogError> {
        self.check_alive()?;
        let stream = self.streams.get_mut(&id).ok_or(LogError::Gone)?;
        if let Some(before) = stream.slot.take() {
            stream.leaving.push(before.number);
        }
        let cursor = after.min(stream.ring.top());
        stream.slot = Some(Slot {
            number: at.turn,
            cursor,
            stop: None,
            bare: false,
        });
        stream.active = at.now;
        stream.wake.notify_waiters();
        let attached = Attached {
            number: at.turn,
            wake: Arc::clone(&stream.wake),
        };
        if id.is_standalone() {
            self.listeners.retain(|listener| *listener != id);
            self.listeners.push(id);
            self.evict_listeners();
        }
        Ok(attached)
    }

    /// GET-04: beyond the limit the stream that has been open longest is closed; it is idle,
    /// because only the newest gets messages.
    fn evict_listeners(&mut self) {
        while self.listeners.len() > self.limits.standalone_open.max(1) {
            let oldest = self.listeners[0];
            self.stop(oldest, Stop::Evicted);
        }
    }

    /// Stops the stream's reader.
    pub(crate) fn stop(&mut self, id: StreamId, why: Stop) {
        if let Some(stream) = self.streams.get_mut(&id) {
            if let Some(slot) = &mut stream.slot {
                slot.stop.get_or_insert(why);
            }
            stream.wake.notify_waiters();
        }
        self.leave_listeners(id);
    }

    /// The reader's connection is closed.
    pub(crate) fn detach(&mut self, id: StreamId, number: u64, at: Moment) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        stream.leaving.retain(|leaving| *leaving != number);
        stream.wake.notify_waiters();
        if stream
            .slot
            .as_ref()
            .is_some_and(|slot| slot.number == number)
        {
            stream.slot = None;
            stream.active = at.now;
            self.leave_listeners(id);
        }
        self.drop_if_unread(id);
    }

    fn leave_listeners(&mut self, id: StreamId) {
        let was_newest = self.listeners.last() == Some(&id);
        self.listeners.retain(|listener| *listener != id);
        self.delisted(id);
        if was_newest {
            self.wake_newest_listener();
        }
    }

    /// What wakes those who wait for the newest standalone reader, if there is one.
    pub(crate) fn wake_of_newest(&self) -> Option<Arc<Notify>> {
        self.wake_of(*self.listeners.last()?)
    }

    /// Whether an event of that size can wait with the others without pushing one out.
    pub(crate) fn has_room_behind(&self, bytes: usize) -> bool {
        let (waiting, limits) = (&self.backlog, &self.limits);
        let bytes = waiting.bytes() + Ring::cost(bytes);
        waiting.len() == 0 || (waiting.len() < limits.stream_events && bytes <= limits.stream_bytes)
    }

    pub(super) fn wake_newest_listener(&self) {
        let newest = self.listeners.last().and_then(|id| self.streams.get(id));
        if let Some(stream) = newest {
            stream.wake.notify_waiters();
        }
    }

    /// Why that reader has to stop, if it has to.
    pub(crate) fn stopped(&self, id: StreamId, number: u64) -> Option<Stop> {
        let Some(stream) = self.streams.get(&id) else {
            return Some(Stop::Forgotten);
        };
        match &stream.slot {
            Some(slot) if slot.number == number => slot.stop,
            Some(_) | None => Some(Stop::Superseded),
        }
    }

    /// The next event for that reader, which counts as delivered with this.
    pub(crate) fn step(
        &mut self,
        id: StreamId,
        number: u64,
        handoff_over: bool,
        at: Moment,
    ) -> Step {
        if let Some(stop) = self.stopped(id, number) {
            return Step::Stopped(stop);
        }
        let has_ids = self.mode() != Some(Mode::Off);
        let Some(stream) = self.streams.get_mut(&id) else {
            return Step::Stopped(Stop::Forgotten);
        };
        if !stream.leaving.is_empty() && !handoff_over {
            return Step::Handoff;
        }
        let Some(slot) = &mut stream.slot else {
            return Step::Stopped(Stop::Superseded);
        };
        if slot.cursor + 1 < stream.ring.first() {
            slot.cursor = stream.ring.first() - 1;
            return Step::Gap;
        }
        let cursor = slot.cursor;
        if stream.is_diverged() {
            return Step::Gap;
        }
        if let Some(next) = stream.ring.after(cursor) {
            let written = next.written;
            if written > at.settled {
                return self.unsettled(id, written, at);
            }
            return self.take(id, true, at);
        }
        if stream.ended.is_some() && stream.end_written > at.settled {
            let written = stream.end_written;
            return self.unsettled(id, written, at);
        }
        if stream.ended.is_some() {
            return Step::Finished;
        }
        if stream.abandoned && !mutation::on("forget-terminal") {
            return Step::Orphaned;
        }
        if let Some(caught) = stream.caught(id, at).filter(|_| has_ids) {
            return Step::Caught(caught);
        }
        if self.outbox.is_some() {
            return self.take_from_store(id, number);
        }
        self.take_from_backlog(id, at)
    }

    /// Moves the reader of that stream on by one event.
    pub(super) fn take(&mut self, id: StreamId, safe: bool, at: Moment) -> Step {
        let Some(stream) = self.streams.get_mut(&id) else {
            return Step::Wait;
        };
        let Some(slot) = &mut stream.slot else {
            return Step::Wait;
        };
        let Some(kept) = stream.ring.after(slot.cursor) else {
            return Step::Wait;
        };
        let position = position(id, stream.epoch, kept.seq, kept.chain);
        let payload = kept.payload.clone();
        slot.cursor = kept.seq;
        slot.bare = !safe;
        stream.delivered = stream.delivered.max(kept.seq);
        stream.active = at.now;
        stream.wake.notify_waiters();
        self.settle(id);
        Step::Event {
            position,
            payload,
            safe,
        }
    }

    /// What waits gets its place on the newest standalone stream in the moment it is taken.
    fn take_from_backlog(&mut self, id: StreamId, at: Moment) -> Step {
        if self.listeners.last() != Some(&id) {
            return Step::Wait;
        }
        if self.backlog.take_lost() {
            return Step::Gap;
        }
        let Some(payload) = self.backlog.pop() else {
            return Step::Wait;
        };
        self.settle_backlog();
        let limits = self.limits;
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.ring.push(payload, at.turn);
            stream.ring.fit(limits.stream_events, limits.stream_bytes);
        }
        if self.journal.is_some() {
            self.settle(id);
            return Step::Unsettled(UNWRITTEN); // its place goes to the disk first
        }
        self.take(id, true, at)
    }
}

//! What waits in the store for the session's standalone streams (GET-05), seen from the replica
//! whose connection takes it.
//!
//! It is fetched only when the newest reader here waits for something, so that a connection that
//! is not read takes nothing from the one before it; and it is appended to that reader's stream in
//! the same step in which it ceases to wait.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Notify;

use super::super::{Step, position};
use super::{Errand, Moment, Outbox, Role, SessionLog};
use crate::LogError;
use crate::event_id::StreamId;
use crate::log::Event;

/// One event that waits in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Item {
    /// Its name there.
    pub(crate) name: Bytes,
    pub(crate) payload: Bytes,
}

/// What whoever fetches has to do.
#[derive(Debug, Clone)]
pub(crate) enum Wanted {
    /// Look what waits, for the reader of that registration.
    Look(StreamId, u64),
    /// Register the reader of that stream first.
    Enlist(StreamId),
    /// What was fetched is being appended.
    Appending(Arc<Notify>),
    /// Nobody waits for anything.
    Nothing,
}

impl SessionLog {
    /// A standalone reader waits for something; its number is that of its slot.
    pub(in crate::session_log) fn hunger(&mut self, id: StreamId, number: u64) {
        let Some(outbox) = &mut self.outbox else {
            return;
        };
        let known = outbox.hungry.replace((id, number)) == Some((id, number));
        if !outbox.porting {
            outbox.porting = true;
            outbox.errands.push(Errand::Port);
        } else if !known {
            outbox.knock.notify_one();
        }
    }

    /// The next thing for a reader that has everything its stream has: what could not be given to
    /// the store goes to the newest reader here, without an id.
    pub(in crate::session_log) fn take_from_store(&mut self, id: StreamId, number: u64) -> Step {
        if self.listeners.last() != Some(&id) {
            return Step::Wait;
        }
        if self.backlog.take_lost() {
            if let Some(outbox) = &mut self.outbox {
                outbox.told = true;
            }
            return Step::Gap;
        }
        let alone = self.outbox.as_ref().is_some_and(Outbox::delivers_alone);
        let Some(payload) = self.backlog.pop_if(alone) else {
            self.hunger(id, number);
            return Step::Wait;
        };
        self.settle_backlog();
        let stream = self.streams.get(&id);
        let position = stream.map(|stream| {
            let ring = &stream.ring;
            position(id, stream.epoch, ring.top(), ring.top_chain())
        });
        match position {
            Some(position) => Step::Event {
                position,
                payload,
                safe: false,
            },
            None => Step::Wait,
        }
    }

    /// That reader waits no longer.
    pub(crate) fn sated(&mut self, id: StreamId, number: u64) {
        if let Some(outbox) = &mut self.outbox {
            outbox.hungry.take_if(|hungry| *hungry == (id, number));
        }
    }

    /// What is to be fetched; whoever is told that it is nothing ends.
    pub(crate) fn wanted(&mut self) -> Wanted {
        let Some((id, _)) = self.outbox.as_ref().and_then(|outbox| outbox.hungry) else {
            return self.nothing_wanted();
        };
        let newest = self.listeners.last() == Some(&id);
        let stream = self.streams.get(&id).filter(|_| newest && !self.forgotten);
        let Some((stream, remote)) = stream.and_then(|found| Some((found, found.remote.as_ref()?)))
        else {
            return self.nothing_wanted();
        };
        if remote.role != Role::Own {
            return self.nothing_wanted();
        }
        if !remote.taken.is_empty() || remote.shipping.is_some() {
            return Wanted::Appending(Arc::clone(&stream.wake));
        }
        match remote.readers.enlisted {
            Some(number) => Wanted::Look(id, number),
            None => Wanted::Enlist(id),
        }
    }

    fn nothing_wanted(&mut self) -> Wanted {
        if let Some(outbox) = &mut self.outbox {
            outbox.porting = false;
            outbox.hungry = None;
        }
        Wanted::Nothing
    }

    /// Rings when something may wait.
    pub(crate) fn knock(&self) -> Option<Arc<Notify>> {
        self.outbox.as_ref().map(|outbox| Arc::clone(&outbox.knock))
    }

    /// Gives what waited its place on that stream, if its reader still waits.
    pub(crate) fn take_in(&mut self, id: StreamId, items: Vec<Item>, at: Moment) {
        let wanted = self.outbox.as_ref().and_then(|outbox| outbox.hungry);
        if wanted.is_none_or(|(hungry, _)| hungry != id) {
            return;
        }
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let Some(remote) = &mut stream.remote else {
            return;
        };
        for item in items {
            let seq = stream.ring.push(item.payload, at.turn);
            remote.taken.push((seq, item.name));
        }
        stream.active = at.now;
        self.settle(id);
    }

    /// What was published could not be given to the store: it waits here.
    pub(crate) fn publish_alone(
        &mut self,
        events: Vec<Event>,
        at: Moment,
    ) -> Result<Vec<Arc<str>>, LogError> {
        let lost = self.publish(events, at)?;
        if let Some(outbox) = &mut self.outbox
            && outbox.unpublished.replace(at.now).is_none()
        {
            outbox.errands.push(Errand::Flush);
        }
        Ok(lost)
    }

    /// Whether what is published has to wait here, behind what does already.
    pub(crate) fn is_unpublished(&self) -> bool {
        let outbox = self.outbox.as_ref();
        outbox.is_some_and(|outbox| outbox.unpublished.is_some())
    }

    /// What waits here, to be given to the store; nothing when all of it was.
    pub(crate) fn take_unpublished(&mut self) -> Vec<Event> {
        let events = self.backlog.take_all();
        self.settle_backlog();
        if events.is_empty()
            && let Some(outbox) = &mut self.outbox
        {
            outbox.unpublished = None;
        }
        events
    }

    /// The store has not taken it: it waits here again, before what has come since.
    pub(crate) fn put_back(&mut self, events: Vec<Event>, at: Moment) {
        if self.forgotten {
            return;
        }
        let since = self.backlog.take_all();
        for event in events.into_iter().chain(since) {
            self.backlog.push(event, at.now, at.turn);
        }
        self.settle_backlog();
        self.wake_newest_listener();
    }

    /// Questions that will not be delivered, to be handed out by the next sweep.
    pub(crate) fn lose(&mut self, questions: impl IntoIterator<Item = Arc<str>>) {
        self.lost.extend(questions);
    }

    /// Whether a reader has heard of a loss of which the store does not know that.
    pub(crate) fn loss_is_told(&self) -> bool {
        self.outbox.as_ref().is_some_and(|outbox| outbox.told)
    }

    /// The store knows that what had been told then is told.
    pub(crate) fn loss_is_noted(&mut self, told: bool) {
        if let Some(outbox) = self.outbox.as_mut().filter(|_| told) {
            outbox.told = false;
        }
    }

    /// The newest reader here is to be told that something was lost; whether it has been.
    pub(crate) fn tell_loss(&mut self) -> bool {
        if self.loss_is_told() {
            return true;
        }
        self.backlog.mark_lost();
        self.wake_newest_listener();
        false
    }
}

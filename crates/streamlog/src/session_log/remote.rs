//! What the store of several replicas has of a session's streams, and what it lacks.
//!
//! As with the disk, nothing is noted where something happens: a stream is compared with what the
//! store is known to have, and the difference is the next [`Batch`]. So a batch that was not
//! answered, or that the store has lost again, is made anew from the same comparison.

mod answer;
mod away;
mod batch;
mod history;
mod outbox;
mod probe;
mod readers;
mod waiting;

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use super::{Moment, SessionLog, Stream};
use crate::event_id::{Chain, Position, StreamId};
use crate::redis::Mode;
use crate::retain::Limits;
use crate::tail::Stop;

pub(crate) use answer::Answer;
pub(crate) use batch::Batch;
pub(crate) use history::{Past, Record, origin};
pub(crate) use outbox::Errand;
pub(in crate::session_log) use outbox::Outbox;
pub(crate) use readers::Arrival;
pub(crate) use waiting::{Item, Wanted};

/// Who writes a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// This replica.
    Own,
    /// Another one; what is here follows it.
    Mirror,
    /// Another one now; what is here waits for its readers to be closed.
    Fenced,
    /// Nobody: the store has another history of it.
    Diverged,
}

/// What the store has of a stream.
#[derive(Debug, Clone, Copy, Default)]
struct Stored {
    /// Its newest event and its chain.
    top: u64,
    chain: Chain,
    /// The first event that is kept, or the next to come.
    first: u64,
    /// Whether the stream itself is there.
    header: bool,
    ended: bool,
    /// The version of the writer's note, where it is known.
    note: Option<u64>,
}

/// The store's side of a stream.
#[derive(Debug)]
pub(super) struct Remote {
    role: Role,
    fence: u64,
    key_id: Arc<str>,
    /// The chain before the first event.
    origin: Chain,
    stored: Stored,
    /// Who is appending what differs.
    shipping: Option<u64>,
    /// Whether the store is to be asked even if nothing differs.
    probe: bool,
    /// When the store last had a word on it.
    heard: Instant,
    /// Since when appends are not answered.
    failing: Option<Instant>,
    /// What waited in the store for a standalone stream and is appended here: number, name there.
    taken: Vec<(u64, Bytes)>,
    /// The last of those whose append was answered: should the store lose it, they wait there again.
    before: VecDeque<(u64, Bytes)>,
    readers: readers::Elsewhere,
}

impl Remote {
    fn new(role: Role, fence: u64, key_id: Arc<str>, origin: Chain, now: Instant) -> Self {
        Self {
            role,
            fence,
            key_id,
            origin,
            stored: Stored {
                chain: origin,
                first: 1,
                note: Some(0),
                ..Stored::default()
            },
            shipping: None,
            probe: false,
            heard: now,
            failing: None,
            taken: Vec::new(),
            before: VecDeque::new(),
            readers: readers::Elsewhere::default(),
        }
    }

    /// A stream that begins here.
    pub(super) fn begin(key_id: Arc<str>, origin: Chain, now: Instant) -> Self {
        Self::new(Role::Own, 1, key_id, origin, now)
    }
}

impl SessionLog {
    /// A log that shares its streams with other replicas.
    pub(crate) fn shared(limits: Limits, mode: Mode) -> Self {
        let mut log = Self::new(limits);
        log.outbox = Some(Outbox::new(mode));
        log
    }

    /// What streams do while the store is away, where there is one.
    pub(crate) fn mode(&self) -> Option<Mode> {
        self.outbox.as_ref().map(|outbox| outbox.mode)
    }

    /// Whether a new stream of that id is kept in the store.
    pub(super) fn is_stored(&self, id: StreamId) -> bool {
        self.mode()
            .is_some_and(|mode| mode != Mode::Off || id.is_standalone())
    }

    /// What is to be done since this was last asked.
    pub(crate) fn take_errands(&mut self) -> Vec<Errand> {
        let Some(outbox) = &mut self.outbox else {
            return vec![];
        };
        let mut errands = std::mem::take(&mut outbox.errands);
        if self.forgotten {
            // with the session everything goes, wherever it is
            errands.retain(|errand| matches!(errand, Errand::Word(..) | Errand::Ended(_)));
        }
        errands
    }

    pub(super) fn errand(&mut self, errand: Errand) {
        if let Some(outbox) = &mut self.outbox {
            outbox.errands.push(errand);
        }
    }

    /// Has what differs appended, unless that is being done.
    pub(super) fn compare(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let standalone = id.is_standalone();
        if !stream.differs(standalone) {
            return;
        }
        if let (Some(remote), Some(outbox)) = (&mut stream.remote, &mut self.outbox)
            && remote.shipping.is_none()
        {
            outbox.shippers += 1;
            remote.shipping = Some(outbox.shippers);
            outbox.errands.push(Errand::Ship(id, outbox.shippers));
        }
    }

    /// Nothing of a session is here: it can be forgotten here and found again.
    pub(crate) fn retire(&mut self) -> bool {
        let idle = self.streams.is_empty() && self.backlog.len() == 0 && self.listeners.is_empty();
        let busy = self.outbox.as_ref().is_some_and(|outbox| outbox.porting);
        if idle && !busy && self.lost.is_empty() && !self.forgotten {
            self.forgotten = true;
            self.retired = true;
        }
        self.forgotten
    }

    /// Whether it was only forgotten here, for want of use.
    pub(crate) fn is_retired(&self) -> bool {
        self.retired
    }

    /// Whether the store lacks something that it is going to get.
    pub(crate) fn is_shipping(&self) -> bool {
        let streams = self.streams.values();
        let mut remotes = streams.filter_map(|stream| stream.remote.as_ref());
        remotes.any(|remote| remote.shipping.is_some()) || self.is_unpublished()
    }

    /// Whether so much of a stream is on its way to the store that its writer waits: a reader would
    /// get it all at once and seem slow (EL-21). Not while the store is away.
    pub(crate) fn must_ship_first(&self, id: StreamId, at: Moment) -> bool {
        let away = self.remote(id).is_none_or(|remote| remote.is_away(at.now));
        !away && self.on_its_way(id, at).is_some()
    }

    /// Whether a reader would wait in vain: the stream must not go on without the store, which is
    /// away.
    pub(crate) fn holds_back(&self, id: StreamId, at: Moment) -> bool {
        let mode = self.mode() == Some(Mode::Required);
        let remote = self.remote(id).filter(|_| mode);
        remote.is_some_and(|remote| remote.is_away(at.now))
    }

    /// The number of the newest event of that stream.
    pub(crate) fn top(&self, id: StreamId) -> Option<u64> {
        self.streams.get(&id).map(|stream| stream.ring.top())
    }

    /// The replica that reads this replica's stream, where that is another one.
    pub(crate) fn read_by(&self, id: StreamId) -> Option<Arc<str>> {
        let remote = self.remote(id).filter(|remote| remote.role == Role::Own)?;
        remote.readers.other.clone()
    }

    /// Whether the stream may still come to that position: it is behind it, and its call is gone on
    /// with from a note.
    pub(crate) fn comes_to(&self, position: &Position) -> bool {
        self.streams.get(&position.stream).is_some_and(|stream| {
            let behind = stream.ring.top() < position.seq && stream.ended.is_none();
            behind && stream.epoch == position.epoch && stream.note.latest().is_some()
        })
    }

    /// Who writes that stream, as far as is known here.
    pub(crate) fn role(&self, id: StreamId) -> Option<Role> {
        let remote = self.streams.get(&id)?.remote.as_ref();
        Some(remote.map_or(Role::Own, |remote| remote.role))
    }

    pub(crate) fn fence(&self, id: StreamId) -> u64 {
        let remote = self.remote(id);
        remote.map_or(0, |remote| remote.fence)
    }

    /// Whether the store has the stream, and whether it is waited for in vain.
    pub(crate) fn header_is_stored(&self, id: StreamId, at: Moment) -> Option<(bool, bool)> {
        let remote = self.remote(id)?;
        Some((remote.stored.header, remote.is_away(at.now)))
    }

    fn remote(&self, id: StreamId) -> Option<&Remote> {
        self.streams.get(&id)?.remote.as_ref()
    }

    fn remote_mut(&mut self, id: StreamId) -> Option<&mut Remote> {
        self.streams.get_mut(&id)?.remote.as_mut()
    }

    /// Another replica owns the stream now: nothing is written any more, and its readers stop.
    pub(crate) fn fenced(&mut self, id: StreamId) {
        let Some(remote) = self.remote_mut(id) else {
            return;
        };
        remote.role = Role::Fenced;
        remote.taken.clear();
        self.stop(id, Stop::Superseded);
        self.drop_if_unread(id);
    }

    /// The store has another history of it: its readers are told of the loss.
    fn diverged(&mut self, id: StreamId, at: Moment) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if let Some(remote) = &mut stream.remote {
            remote.role = Role::Diverged;
        }
        stream.ring.clear();
        stream.active = at.now;
        stream.wake.notify_waiters();
        self.settle(id);
        self.errand(Errand::Ended(id));
        if id.is_standalone() {
            self.drop_locally(id);
        }
    }

    /// What another replica writes has been lost, and it does not repair it.
    pub(crate) fn lost_elsewhere(&mut self, id: StreamId, at: Moment) {
        self.diverged(id, at);
    }

    /// What is here of a stream goes; the store keeps what it has.
    pub(crate) fn drop_locally(&mut self, id: StreamId) {
        if let Some(remote) = self.remote_mut(id) {
            remote.stored.header = false; // nothing to be removed there
        }
        self.remove(id);
    }

    /// The stream is not remembered here any more: what the store has of it goes too.
    pub(super) fn removed_here(&mut self, id: StreamId, stream: &Stream) {
        let own = stream
            .remote
            .as_ref()
            .filter(|remote| remote.role == Role::Own && remote.stored.header);
        if let Some(remote) = own.filter(|_| !self.forgotten) {
            let fence = remote.fence;
            self.errand(Errand::Remove(id, fence));
        }
    }
}

impl Stream {
    /// Whether the store lacks something of it.
    fn differs(&self, standalone: bool) -> bool {
        let Some(remote) = &self.remote else {
            return false;
        };
        let stored = &remote.stored;
        if remote.role != Role::Own {
            return false;
        }
        let events = self.ring.top() > stored.top;
        if !stored.header {
            return events || !standalone;
        }
        events
            || remote.probe
            || self.ring.first() > stored.first
            || self.ended.is_some() && !stored.ended
            || Some(self.note.version()) != stored.note
    }

    /// Whether this replica writes it.
    pub(super) fn is_own(&self) -> bool {
        let role = self.remote.as_ref().map(|remote| remote.role);
        role.is_none_or(|role| role == Role::Own)
    }

    pub(super) fn is_diverged(&self) -> bool {
        let remote = self.remote.as_ref();
        remote.is_some_and(|remote| remote.role == Role::Diverged)
    }
}

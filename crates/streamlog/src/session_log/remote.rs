//! What the store of several replicas has of a session's streams, and what it lacks.
//!
//! As with the disk, nothing is noted where something happens: a stream is compared with what the
//! store is known to have, and the difference is the next [`Batch`]. So a batch that was not
//! answered, or that the store has lost again, is made anew from the same comparison.

mod answer;
mod batch;
mod history;
mod readers;
mod waiting;

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::{Duration, Instant};

use super::{Moment, SessionLog, Step, Stream};
use crate::event_id::{Chain, StreamId};
use crate::redis::Mode;
use crate::retain::Limits;
use crate::tail::Stop;

pub(crate) use answer::Answer;
pub(crate) use batch::Batch;
pub(crate) use history::{Past, Record, origin};
pub(crate) use readers::Arrival;
pub(crate) use waiting::{Item, Wanted};

/// An unanswered append makes a stream go on without the store after this long: longer than one
/// command with its reconnect, shorter than anybody's patience.
const GRACE: Duration = Duration::from_secs(1);

/// What a stream holds back, and for how long, when it may not go on without the store (EL-22).
const HELD_BYTES: usize = 256 * 1024;
const HELD_TIME: Duration = Duration::from_secs(10);

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

    fn is_away(&self, now: Instant) -> bool {
        let since = |since: Instant| now.saturating_duration_since(since) >= GRACE;
        self.failing.is_some_and(since)
    }
}

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
pub(super) struct Outbox {
    mode: Mode,
    errands: Vec<Errand>,
    shippers: u64,
    /// Whether somebody fetches what waits for standalone streams.
    porting: bool,
    /// Streams whose readers elsewhere have been told to stop and may not have yet.
    awaited: HashSet<StreamId>,
    /// Whether a reader has heard of a loss of which the store does not know that.
    told: bool,
    /// Since when what is published cannot be given to the store.
    unpublished: Option<Instant>,
    /// Woken when something may wait in the store.
    knock: Arc<Notify>,
    /// The standalone reader that waits for something.
    hungry: Option<(StreamId, u64)>,
}

impl Outbox {
    /// Whether what waits here goes to readers here, because the store cannot be reached.
    fn delivers_alone(&self) -> bool {
        self.mode != Mode::Required && self.unpublished.is_some()
    }
}

impl SessionLog {
    /// A log that shares its streams with other replicas.
    pub(crate) fn shared(limits: Limits, mode: Mode) -> Self {
        let mut log = Self::new(limits);
        log.outbox = Some(Outbox {
            mode,
            errands: Vec::new(),
            shippers: 0,
            porting: false,
            awaited: HashSet::new(),
            told: false,
            unpublished: None,
            knock: Arc::new(Notify::new()),
            hungry: None,
        });
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
        remotes.any(|remote| remote.shipping.is_some()) || self.backlog.len() > 0
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

    /// What a reader gets that has come to an event, or an end, which is not safe yet.
    pub(super) fn unsettled(&mut self, id: StreamId, written: u64, at: Moment) -> Step {
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

    /// As if the store had answered: a seeded bug.
    pub(crate) fn pretend_stored(&mut self, id: StreamId, top: u64) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.ring.safe(top);
            stream.wake.notify_waiters();
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

    /// Whether this stream goes on without the store: what is not safe goes out without an id.
    pub(super) fn goes_on_alone(&self, mode: Mode, at: Moment) -> bool {
        let remote = self.remote.as_ref();
        mode != Mode::Required && remote.is_some_and(|remote| remote.is_away(at.now))
    }

    /// Whether this stream has held back for the store what it may, and as long as it may.
    pub(super) fn held_too_long(&self, mode: Mode, at: Moment) -> bool {
        let failing = self.remote.as_ref().and_then(|remote| remote.failing);
        let Some(since) = failing.filter(|_| mode == Mode::Required) else {
            return false;
        };
        let (_, bytes, _) = self.ring.unsettled(at.settled);
        bytes > HELD_BYTES || at.now.saturating_duration_since(since) >= HELD_TIME
    }

    pub(super) fn is_diverged(&self) -> bool {
        let remote = self.remote.as_ref();
        remote.is_some_and(|remote| remote.role == Role::Diverged)
    }
}

//! Readers on other replicas (EL-17, GET-04): which of all connections is the newest.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::{Errand, Moment, Role, SessionLog, Stream};
use crate::LogError;
use crate::event_id::StreamId;
use crate::log::Lag;
use crate::session_log::Attached;
use crate::tail::Stop;

/// The number of a reader of another replica among those that a new one waits for.
const ELSEWHERE: u64 = 0;

/// What is known of a stream's readers on other replicas.
#[derive(Debug, Default)]
pub(super) struct Elsewhere {
    /// Whether it has been read, here or elsewhere.
    attached: bool,
    /// The newest reader of all that is known here.
    newest: u64,
    /// The registration of the standalone reader here.
    pub(super) enlisted: Option<u64>,
    /// The registration of the reader here of another replica's stream.
    watching: Option<u64>,
    /// Whether somebody fetches what comes to a stream of another replica.
    following: bool,
    /// Rings when something has come to it.
    bell: Arc<Notify>,
    /// The replica whose reader was the newest, as far as is known here.
    pub(super) other: Option<Arc<str>>,
    /// Who waits for the readers here to be closed.
    wanted_closed: Option<Arc<str>>,
}

/// What the fleet was told of a reader before it is attached.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Arrival {
    /// Its number among all readers of the stream.
    pub(crate) reader: u64,
    /// Its registration among the session's standalone readers.
    pub(crate) enlisted: Option<u64>,
}

impl Elsewhere {
    /// The stream comes from the store: others may read it, and have to be told of a reader here.
    pub(super) fn known_elsewhere(&mut self, reader: Option<Arc<str>>) {
        self.attached = true;
        self.other = reader.or_else(|| self.other.take());
    }
}

impl SessionLog {
    /// Whether a reader of that stream has to be registered before it is attached: not the first
    /// one of a stream of this replica, which nobody else knows of.
    pub(crate) fn is_known_elsewhere(&self, id: StreamId) -> bool {
        self.remote(id)
            .is_some_and(|remote| remote.role != Role::Own || remote.readers.attached)
    }

    /// A reader elsewhere is being told to stop, or has not been after all.
    pub(crate) fn await_word(&mut self, id: StreamId, awaited: bool) {
        if !awaited {
            self.word(id);
        } else if let Some(outbox) = &mut self.outbox {
            outbox.awaited.insert(id);
        }
    }

    /// The readers elsewhere are closed.
    pub(crate) fn word(&mut self, id: StreamId) {
        if let Some(outbox) = &mut self.outbox {
            outbox.awaited.remove(&id);
        }
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.leaving.retain(|leaving| *leaving != ELSEWHERE);
            stream.wake.notify_waiters();
        }
    }

    /// Attaches a reader of which the other replicas know.
    pub(crate) fn attach_known(
        &mut self,
        id: StreamId,
        after: u64,
        arrival: Arrival,
        at: Moment,
    ) -> Result<Attached, LogError> {
        let attached = self.attach(id, after, at)?;
        let awaited = self.outbox.as_mut();
        let awaited = awaited.is_some_and(|outbox| outbox.awaited.remove(&id));
        let Some(stream) = self.streams.get_mut(&id) else {
            return Err(LogError::Gone);
        };
        stream.leaving.retain(|leaving| *leaving != ELSEWHERE);
        if let Some(remote) = &mut stream.remote {
            let readers = &mut remote.readers;
            readers.attached = true;
            readers.other = None;
            readers.newest = readers.newest.max(arrival.reader);
            readers.enlisted = arrival.enlisted;
            readers.watching = (remote.role == Role::Mirror).then_some(arrival.reader);
            if awaited {
                stream.leaving.push(ELSEWHERE);
            }
        }
        Ok(attached)
    }

    /// A newer reader, of that number, is elsewhere: the one here stops, and its replica hears when
    /// it is closed.
    pub(crate) fn superseded(&mut self, id: StreamId, reader: u64, by: Arc<str>) {
        let Some(remote) = self.remote_mut(id) else {
            self.errand(Errand::Word(id, by));
            return;
        };
        if reader != 0 && reader <= remote.readers.newest {
            return; // a newer one is here
        }
        remote.readers.newest = remote.readers.newest.max(reader);
        remote.readers.other = Some(Arc::clone(&by));
        remote.readers.wanted_closed = Some(by);
        self.stop(id, Stop::Superseded);
        self.drop_if_unread(id);
    }

    /// A reader of that stream is gone: whoever waits for that is told.
    pub(in crate::session_log) fn drop_if_unread(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let open = stream.slot.is_some() || stream.leaving.iter().any(|one| *one != ELSEWHERE);
        let Some(remote) = &mut stream.remote else {
            return;
        };
        let (role, readers) = (remote.role, &mut remote.readers);
        let watching = readers.watching.take_if(|_| stream.slot.is_none());
        let word = readers.wanted_closed.take_if(|_| !open);
        if let Some(number) = watching {
            self.errand(Errand::Unwatch(id, number));
        }
        if let Some(by) = word {
            self.errand(Errand::Word(id, by));
        }
        if role == Role::Fenced && !open {
            self.drop_locally(id);
        }
    }

    /// The standalone reader of that stream is registered under that number.
    pub(crate) fn enlisted(&mut self, id: StreamId, number: u64) {
        let open = self.listeners.contains(&id);
        match self.remote_mut(id) {
            Some(remote) if open => remote.readers.enlisted = Some(number),
            Some(_) | None => self.errand(Errand::Leave(id, number)),
        }
    }

    /// The store does not know of that registration.
    pub(crate) fn unlisted(&mut self, id: StreamId, number: u64) {
        if let Some(remote) = self.remote_mut(id) {
            remote.readers.enlisted.take_if(|known| *known == number);
        }
    }

    /// The standalone reader of that stream is no longer open.
    pub(in crate::session_log) fn delisted(&mut self, id: StreamId) {
        let remote = self.remote_mut(id);
        let enlisted = remote.and_then(|remote| remote.readers.enlisted.take());
        if let Some(number) = enlisted {
            self.errand(Errand::Leave(id, number));
        }
    }

    /// Another replica owns the stream since that fence, and wants the readers here closed.
    pub(crate) fn fenced_by(&mut self, id: StreamId, fence: u64, by: Arc<str>) {
        match self.remote_mut(id) {
            Some(remote) if remote.fence >= fence => {}
            Some(remote) => {
                remote.readers.wanted_closed = Some(by);
                self.fenced(id);
            }
            None => self.errand(Errand::Word(id, by)),
        }
    }

    /// The registration of the standalone reader of that stream.
    pub(crate) fn registration(&self, id: StreamId) -> Option<u64> {
        self.remote(id).and_then(|remote| remote.readers.enlisted)
    }

    /// Something has come to a stream that is read here.
    pub(crate) fn ring_bell(&self, id: StreamId) {
        if let Some(remote) = self.remote(id) {
            remote.readers.bell.notify_one();
        }
    }

    /// Whether somebody has to begin to fetch what comes to that stream.
    pub(crate) fn begin_following(&mut self, id: StreamId) -> bool {
        let needed = self.is_read_from_elsewhere(id);
        let remote = self.remote_mut(id).filter(|_| needed);
        remote.is_some_and(|remote| !std::mem::replace(&mut remote.readers.following, true))
    }

    /// What rings when there is more to fetch; whoever gets nothing ends.
    pub(crate) fn following(&mut self, id: StreamId) -> Option<(Arc<Notify>, u64)> {
        let needed = self.is_read_from_elsewhere(id);
        let top = self.streams.get(&id)?.ring.top();
        let remote = self.remote_mut(id)?;
        remote.readers.following = needed;
        needed.then(|| (Arc::clone(&remote.readers.bell), top))
    }

    fn is_read_from_elsewhere(&self, id: StreamId) -> bool {
        let stream = self.streams.get(&id);
        stream.is_some_and(|stream| {
            let mirror = self.role(id) == Some(Role::Mirror);
            mirror && stream.reader().is_some() && stream.ended.is_none()
        })
    }

    /// How far the one reader of that stream is behind.
    pub(crate) fn lag_of_reader(&self, id: StreamId, at: Moment) -> Lag {
        let stream = self.streams.get(&id);
        stream
            .and_then(|stream| stream.lag(at.settled))
            .unwrap_or_default()
    }

    /// Streams of other replicas that nobody has read here for a while.
    pub(crate) fn drop_unread(&mut self, age: Duration, at: Moment) {
        let old = |stream: &Stream| {
            let unread = stream.slot.is_none() && stream.leaving.is_empty();
            unread && at.now.saturating_duration_since(stream.active) >= age
        };
        let ids: Vec<StreamId> = self
            .streams
            .iter()
            .filter(|(_, stream)| old(stream) && !stream.is_own())
            .map(|(id, _)| *id)
            .collect();
        for id in ids {
            self.drop_locally(id);
        }
    }
}

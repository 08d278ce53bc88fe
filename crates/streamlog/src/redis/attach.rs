//! Readers of a stream that several replicas may read: the newest connection wins, the older one
//! is closed first (EL-17), and of standalone streams no more are open than may be (GET-04).

use std::sync::Arc;

use bytes::Bytes;
use vestibule_store::redis::Reply;

use super::core::{Core, leave};
use super::follow::follow;
use super::{keys, script};
use crate::event_id::StreamId;
use crate::held::Held;
use crate::log::gone;
use crate::session_log::{Arrival, Role};
use crate::tail::Reader;
use crate::{LogError, StreamRef};

/// How often an attachment is tried again that found the stream elsewhere.
const TURNS: usize = 3;

/// What the store says to a reader.
enum Said {
    /// It is the newest; nobody else has to be closed.
    Newest(u64),
    /// It is the newest; a reader of another replica is being told.
    InPlaceOf(u64),
    /// The stream is another replica's.
    Elsewhere,
    /// The store does not know the stream.
    Nothing,
    /// The session has ended.
    Gone,
    /// The store cannot be asked.
    Away(LogError),
}

impl Core {
    /// See [`StreamLog::attach`](crate::StreamLog::attach).
    pub(super) async fn attach(
        self: &Arc<Self>,
        stream: &StreamRef,
        after: u64,
    ) -> Result<Reader, LogError> {
        let held = self.held_of(stream)?;
        let id = stream.id;
        for _ in 0..TURNS {
            let (role, known) = held.with(|log, _| (log.role(id), log.is_known_elsewhere(id)));
            match role {
                None => return gone(),
                Some(Role::Diverged) => return self.attach_here(&held, id, after, None),
                Some(Role::Own) if !known && !id.is_standalone() => {
                    return self.attach_here(&held, id, after, None);
                }
                Some(Role::Fenced) => self.bring_here(&held, id).await?,
                Some(Role::Own | Role::Mirror) => {
                    if let Some(reader) = self.register(&held, id, after).await? {
                        return Ok(reader);
                    }
                }
            }
        }
        gone()
    }

    /// Registers a reader and attaches it; none when the stream has to be brought here first.
    async fn register(
        self: &Arc<Self>,
        held: &Arc<Held>,
        id: StreamId,
        after: u64,
    ) -> Result<Option<Reader>, LogError> {
        let own = held.with(|log, _| log.role(id)) == Some(Role::Own);
        let registration = id
            .is_standalone()
            .then(|| Registration::new(self, held, id));
        let said = match &registration {
            Some(registration) => self.enlist(held, id, registration.number).await,
            None => self.announce(held, id, own).await,
        };
        let enlisted = registration
            .as_ref()
            .map(|registration| registration.number);
        let arrival = |reader| Some(Arrival { reader, enlisted });
        let arrival = match said {
            Said::Newest(reader) => {
                if !id.is_standalone() {
                    held.with(|log, _| log.await_word(id, false));
                }
                arrival(reader)
            }
            Said::InPlaceOf(reader) => arrival(reader),
            Said::Elsewhere => {
                held.with(|log, _| log.fenced(id));
                return Ok(None);
            }
            Said::Nothing if own => None, // it is in memory, and will be there again

            Said::Nothing => return gone(),
            Said::Gone => {
                self.gone(held);
                return gone();
            }
            Said::Away(_) if own => None, // whoever reads here goes on reading
            Said::Away(error) => return Err(error),
        };
        let reader = self.attach_here(held, id, after, arrival)?;
        if let Some(registration) = registration.filter(|_| arrival.is_some()) {
            registration.done();
        }
        Ok(Some(reader))
    }

    fn attach_here(
        self: &Arc<Self>,
        held: &Arc<Held>,
        id: StreamId,
        after: u64,
        arrival: Option<Arrival>,
    ) -> Result<Reader, LogError> {
        let arrival = arrival.unwrap_or_default();
        let reader = self
            .memory
            .attach_to(held, id, |log, at| log.attach_known(id, after, arrival, at))?;
        if held.with(|log, _| log.begin_following(id)) {
            self.spawn(follow(Arc::downgrade(self), Arc::clone(held), id));
        }
        Ok(reader)
    }

    /// Says that the newest reader of a POST stream is here.
    async fn announce(&self, held: &Arc<Held>, id: StreamId, own: bool) -> Said {
        let slot = held.slot();
        let [stream, _] = keys::stream(slot, id);
        let args = vec![
            keys::text(&self.me),
            keys::place_of(slot, id),
            self.fence(held, id, own),
        ];
        // whoever is told to stop answers soon, perhaps before we hear that he was told
        held.with(|log, _| log.await_word(id, true));
        let answer = self
            .once(&script::READ, slot, &[stream, keys::log(slot)], args)
            .await;
        self.said(answer)
    }

    /// Says that the newest standalone reader is here.
    pub(super) async fn enlist_again(&self, held: &Arc<Held>, id: StreamId, number: u64) -> bool {
        matches!(self.enlist(held, id, number).await, Said::Newest(_))
    }

    async fn enlist(&self, held: &Arc<Held>, id: StreamId, number: u64) -> Said {
        let slot = held.slot();
        let [stream, _] = keys::stream(slot, id);
        let limit = self.memory.shared().limits.standalone_open.max(1);
        let args = vec![
            keys::text(&self.me),
            keys::text(slot.tag()),
            keys::text(&keys::name_of(id)),
            keys::number(number),
            keys::number(limit as u64),
            self.fence(held, id, true),
        ];
        let answer = self
            .once(&script::ENLIST, slot, &[keys::log(slot), stream], args)
            .await;
        self.said(answer)
    }

    fn fence(&self, held: &Arc<Held>, id: StreamId, own: bool) -> Bytes {
        if own {
            keys::number(held.with(|log, _| log.fence(id)))
        } else {
            Bytes::new()
        }
    }

    fn said(&self, answer: Result<Reply, LogError>) -> Said {
        let reply = match answer {
            Ok(reply) => reply,
            Err(error) => return Said::Away(error),
        };
        let parts = reply.list();
        match parts.first().and_then(Reply::text) {
            Some("OK") => {
                let number = parts.get(1).and_then(Reply::count).unwrap_or(0);
                let before = parts.get(2).and_then(Reply::text);
                if before.is_some_and(|before| before != &*self.me) {
                    Said::InPlaceOf(number)
                } else {
                    Said::Newest(number)
                }
            }
            Some("FENCED") => Said::Elsewhere,
            Some("GONE") => Said::Gone,
            _ => Said::Nothing,
        }
    }
}

/// A standalone reader that is registered and not attached yet; dropped, it leaves again.
struct Registration<'a> {
    core: &'a Arc<Core>,
    held: &'a Arc<Held>,
    id: StreamId,
    number: u64,
    done: bool,
}

impl<'a> Registration<'a> {
    fn new(core: &'a Arc<Core>, held: &'a Arc<Held>, id: StreamId) -> Self {
        Self {
            core,
            held,
            id,
            number: core.number(),
            done: false,
        }
    }

    /// Its reader sees to it from now on.
    fn done(mut self) {
        self.done = true;
    }
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let (core, held) = (Arc::clone(self.core), Arc::clone(self.held));
        let (id, number) = (self.id, self.number);
        self.core
            .spawn(async move { leave(&core, &held, id, number).await });
    }
}

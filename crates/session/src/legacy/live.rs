//! What this process holds of one session: the calls that run here, the questions that are open
//! here, what waits for the client to be ready. One owner object, and nothing outlives it
//! (case 65).

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;
use vestibule_exchange::{Capabilities, Inlet, LogLevel, QuestionRef, SessionKey};
use vestibule_frame::Id;
use vestibule_store::{Opening, State, Stored};
use vestibule_streamlog::{Class, Event, StreamId};
use vestibule_terms::{Principal, Revision, ServerId};

use super::http_sse::Line;
use super::inlet::{Mailbox, SessionInlet};
use crate::machine::{Machine, Phase};
use crate::room::Shared;

/// Events that wait for `notifications/initialized` (LIF-05).
const HELD: usize = 256;

/// How often is asked whether a client has become ready elsewhere.
const WATCH: Duration = Duration::from_secs(1);

/// Paused streams that are remembered at a time.
const PAUSES: usize = 64;

/// Cancels a running call when sent to or dropped. What is sent is dropped when that has its effect.
pub(crate) type Cancel = oneshot::Sender<oneshot::Sender<()>>;

/// An open question.
#[derive(Debug)]
pub(super) struct Open {
    /// Where its answer goes.
    pub(super) from: QuestionRef,
    /// The asker's own progress token, if it gave one.
    pub(super) token: Option<Id>,
    /// Whether the session's record has it, so that any process may take its answer.
    pub(super) kept: bool,
    /// Where its answer goes when a call of this process waits for it between two rounds.
    pub(super) round: Option<mpsc::Sender<(Id, Bytes)>>,
}

/// The lists the server declared, as bits; all of them where the handshake was elsewhere.
pub(super) const TOOLS: u8 = 1;
pub(super) const PROMPTS: u8 = 2;
pub(super) const RESOURCES: u8 = 4;

/// One session in this process.
pub(crate) struct Live {
    pub(super) shared: Weak<Shared>,
    own: Weak<Live>,
    /// Its name in the store and the log.
    pub(super) key: vestibule_store::SessionKey,
    /// Its name in the rooms below.
    pub(super) name: SessionKey,
    pub(super) opening: Arc<Opening>,
    /// What it needs beside when it is over HTTP+SSE.
    pub(super) line: Option<Line>,
    /// Who used it last.
    user: Mutex<Arc<Principal>>,
    pub(super) capabilities: Arc<Capabilities>,
    pub(super) mailbox: Mailbox,
    /// What the rooms below are given of it.
    pub(super) inlet: Arc<dyn Inlet>,
    machine: Mutex<Machine<Cancel, Open>>,
    level: Mutex<Option<LogLevel>>,
    /// The newest version of its state that was seen here.
    version: AtomicU64,
    /// Standalone streams of the session that are read here.
    pub(super) listening: AtomicUsize,
    /// Whether somebody watches for the client to be ready.
    watched: AtomicBool,
    held: Mutex<Vec<Event>>,
    declared: AtomicU8,
    /// What paused streams were told to wait, until their readers have passed it on.
    pauses: Mutex<HashMap<StreamId, Duration>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Live {
    /// The name of a session below this room.
    pub(crate) fn name_of(key: &vestibule_store::SessionKey) -> SessionKey {
        SessionKey {
            tenant: key.tenant().clone(),
            session: key.id().clone(),
        }
    }

    pub(super) fn new(shared: &Arc<Shared>, stored: &Stored, user: &Arc<Principal>) -> Arc<Self> {
        Arc::new_cyclic(|own| Self::build(shared, stored, user, Weak::clone(own)))
    }

    fn build(
        shared: &Arc<Shared>,
        stored: &Stored,
        user: &Arc<Principal>,
        own: Weak<Self>,
    ) -> Self {
        let opening = Arc::clone(&stored.opening);
        let capabilities = Capabilities::parse(&opening.capabilities).masked(opening.revision);
        let level = stored.state.log_level.as_deref().and_then(LogLevel::parse);
        Self {
            shared: Arc::downgrade(shared),
            own: Weak::clone(&own),
            name: Self::name_of(&stored.key),
            key: stored.key.clone(),
            line: Line::of(shared, stored),
            capabilities: Arc::new(capabilities),
            opening,
            user: Mutex::new(Arc::clone(user)),
            mailbox: Mailbox::default(),
            inlet: Arc::new(SessionInlet(own)),
            machine: Mutex::new(Machine::new(stored.state.initialized)),
            level: Mutex::new(level),
            version: AtomicU64::new(stored.version),
            listening: AtomicUsize::new(0),
            watched: AtomicBool::new(false),
            held: Mutex::new(Vec::new()),
            declared: AtomicU8::new(TOOLS | PROMPTS | RESOURCES),
            pauses: Mutex::default(),
        }
    }

    /// A stream is about to be paused; its reader says how long.
    pub(super) fn pauses(&self, stream: StreamId, retry: Option<Duration>) {
        let Some(retry) = retry else { return };
        let mut pauses = lock(&self.pauses);
        if pauses.len() >= PAUSES {
            pauses.clear(); // of streams that nobody reads
        }
        pauses.insert(stream, retry);
    }

    /// How long the client of a paused stream shall wait.
    pub(super) fn paused(&self, stream: StreamId) -> Option<Duration> {
        lock(&self.pauses).remove(&stream)
    }

    /// Who used it last.
    pub(crate) fn user(&self) -> Arc<Principal> {
        Arc::clone(&lock(&self.user))
    }

    pub(super) fn used_by(&self, user: &Arc<Principal>) {
        let mut last = lock(&self.user);
        if !Arc::ptr_eq(&last, user) {
            *last = Arc::clone(user);
        }
    }

    /// The server it is of.
    pub(crate) fn server(&self) -> &ServerId {
        &self.opening.server
    }

    pub(super) fn revision(&self) -> Revision {
        self.opening.revision
    }

    pub(super) fn machine(&self) -> MutexGuard<'_, Machine<Cancel, Open>> {
        lock(&self.machine)
    }

    /// Calls in flight.
    pub(crate) fn calls(&self) -> usize {
        self.machine().counts().0
    }

    /// The level of `logging/setLevel`, if it was used.
    pub(super) fn level(&self) -> Option<LogLevel> {
        *lock(&self.level)
    }

    pub(crate) fn set_level(&self, level: LogLevel) {
        *lock(&self.level) = Some(level);
    }

    /// What another process has changed of the session.
    pub(super) async fn renewed(&self, shared: &Shared, version: u64, state: &State) {
        // a look first: nothing has changed for nearly every request
        let seen = self.version.load(Ordering::Relaxed) >= version;
        if seen || self.version.fetch_max(version, Ordering::Relaxed) >= version {
            return;
        }
        *lock(&self.level) = state.log_level.as_deref().and_then(LogLevel::parse);
        if state.initialized {
            let held = self.ready();
            self.publish_all(shared, held).await;
        }
    }

    /// Something waits here for the client to be ready, which it may say elsewhere.
    pub(super) fn watch(&self) {
        let (Some(live), Some(shared)) = (self.own.upgrade(), self.shared.upgrade()) else {
            return;
        };
        if shared.rooms.fleet.is_alone() || self.watched.swap(true, Ordering::Relaxed) {
            return;
        }
        let shared = Arc::downgrade(&shared);
        tokio::spawn(async move {
            while live.machine().phase() == Phase::Opened {
                sleep(WATCH).await;
                let Some(shared) = shared.upgrade() else {
                    return;
                };
                if let Ok(Some(stored)) = shared.rooms.sessions.get(&live.key).await {
                    live.renewed(&shared, stored.version, &stored.state).await;
                }
            }
        });
    }

    /// The level below which no log message is sent (LOG-01).
    pub(super) fn heard_level(&self) -> LogLevel {
        self.level().unwrap_or(LogLevel::Warning)
    }

    pub(super) fn declare(&self, lists: u8) {
        self.declared.store(lists, Ordering::Relaxed);
    }

    pub(super) fn declares(&self, list: u8) -> bool {
        self.declared.load(Ordering::Relaxed) & list != 0
    }

    /// The client has said that it is ready; what waited for that, the first time.
    pub(super) fn ready(&self) -> Vec<Event> {
        self.machine().ready();
        std::mem::take(&mut *lock(&self.held))
    }

    /// Keeps an event until the client is ready; gives it back when it is. When there are too many
    /// a log message goes first, then the oldest.
    pub(super) fn hold(&self, event: Event) -> Option<Event> {
        // The machine stays locked, so that no event is held after `ready` has emptied the queue.
        let machine = self.machine();
        if machine.phase() != Phase::Opened {
            return Some(event);
        }
        let mut held = lock(&self.held);
        if held.len() >= HELD {
            let index = held
                .iter()
                .position(|event| event.class == Class::Log)
                .unwrap_or(0);
            held.remove(index);
        }
        held.push(event);
        drop(machine);
        None
    }
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live")
            .field("machine", &*self.machine())
            .finish_non_exhaustive()
    }
}

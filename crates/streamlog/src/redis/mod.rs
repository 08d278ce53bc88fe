//! The event log of several replicas over Redis or Valkey: any of them can be killed at any moment,
//! and its clients resume at another.
//!
//! - *Memory first.* What is read here is in memory, as in the other forms; under it lies the store
//!   as the disk lies under the embedded log. The rules are the same code.
//! - *Durable before visible* (EL-8). A reader gets an event, with its id, when the store has
//!   answered the append with it. Appends are compared with what the store has (EL-6), so a lost
//!   answer repeats nothing, and what the store has lost is appended again.
//! - *One owner a stream* (EL-7). Every append carries the fence of its owner; whoever takes a stream
//!   over raises it.
//! - *Hints are hints* (EL-10). Replicas tell each other what happens, and find out without.
//! - *The store away* (EL-22): [`Mode`] says whether streams go on without ids or hold. A resumption
//!   waits for the store, up to [`HOLD`] (EL-29); ids are verified before it is asked anything.
//! - *What it cannot save.* Events that the owner had not shipped when it died, and that no client
//!   has seen with an id, are gone; the stream then ends with its orphans' error. When the store has
//!   lost its tail and the owner is dead, the loss is told (EL-13).
//!
//! A session that has ended is remembered as ended for an hour; what belongs to no session then can
//! begin nothing for whom the store of sessions does not vouch.

mod attach;
mod core;
mod ended;
mod hint;
mod import;
mod keys;
mod listen;
mod orphans;
mod record;
mod script;
mod ship;
mod standalone;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytes::Bytes;
use dashmap::{DashMap, DashSet};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};
use vestibule_store::redis::Redis;
use vestibule_store::{Fleet, Sealer, SessionKey};
use vestibule_terms::{Clock, TenantId};

pub(crate) use self::core::Core;
use self::core::Pause;

use crate::event_id::Verified;
use crate::held::{Held, Outlet, Shared};
use crate::log::{Appended, Entry, Event, Opened, StreamKind, StreamLog, StreamRef, Swept};
use crate::memory::{MemoryLog, Stats};
use crate::resume::Resume;
use crate::retain::Limits;
use crate::session_log::Role;
use crate::tail::{Reader, Stop};
use crate::times::Times;
use crate::{LogError, Pending};

/// How long a resumption waits for the store (EL-29).
pub const HOLD: Duration = Duration::from_secs(30);

/// What streams do while the store cannot be reached (EL-22).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// They go on at once, without ids.
    #[default]
    BestEffort,
    /// They hold for ten seconds or 256 KiB, then their connections are closed.
    Required,
    /// Nothing of a tenant's POST streams is stored, ever, and nothing has an id: no stream is
    /// resumed. What waits for standalone streams waits in the store all the same.
    Off,
}

/// What holds for each tenant. Asked when a session is first seen here.
pub type Modes = Arc<dyn Fn(&TenantId) -> Mode + Send + Sync>;

/// The [`StreamLog`] of several replicas.
pub struct RedisLog {
    core: Arc<Core>,
}

impl RedisLog {
    /// A log of this replica. Its tasks run where this is called, or where they are caused.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn open(
        redis: Redis,
        fleet: Arc<dyn Fleet>,
        sealer: Sealer,
        limits: Limits,
        modes: Modes,
        clock: Arc<dyn Clock>,
    ) -> Arc<Self> {
        let me = Arc::from(redis.replica().as_str());
        let hints = redis.hints();
        let core = Arc::new_cyclic(|this| {
            let outlet = Outlet::Fleet(std::sync::Weak::clone(this), modes);
            Core {
                memory: MemoryLog::over(Shared::new(sealer, limits, outlet)),
                redis,
                fleet,
                times: Times(clock),
                runtime: Handle::current(),
                this: std::sync::Weak::clone(this),
                me,
                by_tag: DashMap::new(),
                asking: DashSet::new(),
                probed: std::sync::Mutex::default(),
                numbers: AtomicU64::new(0),
                #[cfg(test)]
                fate: tests::Fate::default(),
            }
        });
        core.spawn(listen::listen(Arc::downgrade(&core), hints));
        Arc::new(Self { core })
    }

    /// What it holds now; sessions are those of which it holds something.
    pub fn stats(&self) -> Stats {
        self.core.memory.stats()
    }

    /// Waits until the store has everything that was appended here, at most so long: the last thing
    /// before the process ends. Whether it has.
    pub async fn shipped(&self, limit: Duration) -> bool {
        let all = async {
            let mut pause = Pause::default();
            while self
                .core
                .memory
                .held()
                .iter()
                .any(|held| held.with(|log, _| log.is_shipping()))
            {
                sleep(pause.next()).await;
            }
        };
        timeout(limit, all).await.is_ok()
    }

    async fn open_stream(
        &self,
        session: &SessionKey,
        kind: StreamKind,
    ) -> Result<Opened, LogError> {
        let standalone = kind == StreamKind::Standalone;
        let mut held = self.core.session(session);
        if standalone && self.core.has_ended(&held).await {
            self.core.gone(&held);
            return Err(LogError::Gone);
        }
        let mut opened = held.open(kind.clone());
        if opened == Err(LogError::Gone) {
            // it was dropped for want of use in this very moment
            self.core.drop_session(&held);
            held = self.core.session(session);
            opened = held.open(kind);
        }
        let mut opened = opened?;
        if held.mode() == Some(Mode::Off) {
            opened.priming = None;
            return Ok(opened);
        }
        if standalone {
            return Ok(opened);
        }
        let mut unclaimed = Unclaimed {
            held: &held,
            stream: Some(opened.stream.clone()),
        };
        // the id of its beginning is given to the client at once
        if !self.core.header_stored(&held, &opened.stream).await? {
            opened.priming = None;
        }
        unclaimed.stream = None;
        Ok(opened)
    }

    async fn wait_for_room(&self, stream: &StreamRef) -> Result<(), LogError> {
        let held = self.core.held_of(stream)?;
        loop {
            let Some(wake) = held.with(|log, _| log.wake_of(stream.id)) else {
                return Err(LogError::Gone);
            };
            let woken = wake.notified();
            tokio::pin!(woken);
            woken.as_mut().enable();
            if !held.with(|log, at| log.must_ship_first(stream.id, at)) {
                return Ok(());
            }
            woken.await;
        }
    }

    async fn resume_held(&self, session: &SessionKey, id: &str) -> Result<Resume, LogError> {
        let shared = self.core.memory.shared();
        let swapped = self.core.memory.swapped(id);
        let session = swapped.as_ref().unwrap_or(session);
        let Ok(verified) = shared.ids.verify(session, id) else {
            return Ok(Resume::Foreign);
        };
        let until = Instant::now() + HOLD;
        let mut pause = Pause::default();
        loop {
            shared.count_lookup();
            let held = self.core.session(session);
            let resumed = match &verified {
                Verified::Ours(position) => self.core.resume(&held, position).await,
                Verified::KeyGone => held.reopen(),
            };
            match resumed {
                Err(LogError::Unavailable(_)) if Instant::now() < until => {
                    sleep(pause.next()).await;
                }
                Err(LogError::Gone) if held.with(|log, _| log.is_retired()) => {
                    self.core.drop_session(&held);
                }
                Err(LogError::Gone) => return Ok(Resume::NoSession),
                other => return other,
            }
        }
    }

    async fn forget(&self, session: &SessionKey) -> Result<Vec<Arc<str>>, LogError> {
        let known = self.core.memory.find(session).ok();
        let held = known.unwrap_or_else(|| self.core.session(session));
        let mut lost = held.with(|log, _| log.forget());
        self.core.drop_session(&held);
        lost.extend(self.core.forget(&held).await);
        Ok(lost)
    }

    async fn read_kept(
        &self,
        stream: &StreamRef,
        after: u64,
        max: usize,
    ) -> Result<Vec<Entry>, LogError> {
        let held = self.core.session(&stream.session);
        let role = held.with(|log, _| log.role(stream.id));
        if role != Some(Role::Own) && self.core.bring_here(&held, stream.id).await.is_err() {
            return Ok(vec![]);
        }
        self.core.memory.read(stream, after, max).await
    }
}

/// A POST stream whose opener has not been told of it yet; dropped, it has no writer.
struct Unclaimed<'a> {
    held: &'a Arc<Held>,
    stream: Option<StreamRef>,
}

impl Drop for Unclaimed<'_> {
    fn drop(&mut self) {
        if let Some(stream) = &self.stream {
            self.held.with(|log, at| log.abandon(stream.id, at));
        }
    }
}

impl StreamLog for RedisLog {
    /// Nothing is stored of a session that has no streams.
    fn begin_session<'a>(&'a self, session: &'a SessionKey) -> Pending<'a, ()> {
        self.core.session(session);
        Box::pin(std::future::ready(Ok(())))
    }

    fn forget_session<'a>(&'a self, session: &'a SessionKey) -> Pending<'a, Vec<Arc<str>>> {
        Box::pin(self.forget(session))
    }

    fn open<'a>(&'a self, session: &'a SessionKey, kind: StreamKind) -> Pending<'a, Opened> {
        Box::pin(self.open_stream(session, kind))
    }

    fn append<'a>(&'a self, stream: &'a StreamRef, events: Vec<Bytes>) -> Pending<'a, Appended> {
        self.core.memory.append(stream, events)
    }

    fn finish<'a>(&'a self, stream: &'a StreamRef, last: Option<Bytes>) -> Pending<'a, Appended> {
        self.core.memory.finish(stream, last)
    }

    fn note<'a>(&'a self, stream: &'a StreamRef, note: Bytes) -> Pending<'a, ()> {
        self.core.memory.note(stream, note)
    }

    fn claim<'a>(&'a self, stream: &'a StreamRef) -> Pending<'a, bool> {
        self.core.memory.claim(stream)
    }

    fn abandon(&self, stream: &StreamRef) {
        self.core.memory.abandon(stream);
    }

    fn room<'a>(&'a self, stream: &'a StreamRef, bytes: usize) -> Pending<'a, ()> {
        Box::pin(async move {
            self.core.memory.room(stream, bytes).await?;
            let hold = self.core.memory.shared().limits.hold;
            timeout(hold, self.wait_for_room(stream))
                .await
                .unwrap_or(Ok(()))
        })
    }

    fn publish<'a>(
        &'a self,
        session: &'a SessionKey,
        events: Vec<Event>,
    ) -> Pending<'a, Vec<Arc<str>>> {
        Box::pin(async move {
            let held = self.core.session(session);
            let published = self.core.publish(&held, events.clone()).await;
            if published == Err(LogError::Gone) && held.with(|log, _| log.is_retired()) {
                self.core.drop_session(&held);
                let held = self.core.session(session);
                return self.core.publish(&held, events).await;
            }
            published
        })
    }

    fn attach<'a>(&'a self, stream: &'a StreamRef, after: u64) -> Pending<'a, Reader> {
        Box::pin(self.core.attach(stream, after))
    }

    /// Also where another replica reads it, if that is a matter of its writer.
    fn stop<'a>(&'a self, stream: &'a StreamRef, why: Stop) -> Pending<'a, ()> {
        Box::pin(async move {
            self.core.memory.stop(stream, why).await?;
            self.core.stop_elsewhere(stream, why).await;
            Ok(())
        })
    }

    fn read<'a>(
        &'a self,
        stream: &'a StreamRef,
        after: u64,
        max: usize,
    ) -> Pending<'a, Vec<Entry>> {
        Box::pin(self.read_kept(stream, after, max))
    }

    fn resume<'a>(
        &'a self,
        session: &'a SessionKey,
        last_event_id: &'a str,
    ) -> Pending<'a, Resume> {
        Box::pin(self.resume_held(session, last_event_id))
    }

    fn sweep(&self) -> Pending<'_, Swept> {
        Box::pin(self.core.sweep())
    }
}

impl fmt::Debug for RedisLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedisLog").field(&self.core).finish()
    }
}

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
//! A session that had streams is remembered as ended for ten minutes; what belongs to no session can
//! begin nothing for whom the store of sessions does not vouch.

mod attach;
mod core;
mod ended;
mod follow;
mod hint;
mod import;
mod keys;
mod listen;
mod operations;
mod orphans;
mod publish;
mod record;
mod script;
mod ship;
mod standalone;
#[cfg(test)]
mod tests;
mod unfound;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytes::Bytes;
use dashmap::{DashMap, DashSet};
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};
use vestibule_store::redis::Redis;
use vestibule_store::{Fleet, Sealer, SessionKey};
use vestibule_terms::{Clock, TenantId};

pub(crate) use self::core::Core;
use self::core::Pause;
use self::unfound::Unfound;

use crate::held::{Outlet, Shared};
use crate::log::{Appended, Entry, Event, Opened, StreamKind, StreamLog, StreamRef, Swept};
use crate::memory::{MemoryLog, Stats};
use crate::resume::Resume;
use crate::retain::Limits;
use crate::tail::{Reader, Stop};
use crate::times::Times;
use crate::{LogError, Pending};

/// How long a resumption waits for the store (EL-29).
const HOLD: Duration = Duration::from_secs(30);

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
                unfound: Unfound::default(),
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

    fn deliver<'a>(
        &'a self,
        session: &'a SessionKey,
        payload: Bytes,
    ) -> Pending<'a, Option<Vec<Arc<str>>>> {
        Box::pin(async move {
            let held = self.core.session(session);
            let delivered = self.core.deliver(&held, payload.clone()).await;
            if delivered == Err(LogError::Gone) && held.with(|log, _| log.is_retired()) {
                self.core.drop_session(&held);
                let held = self.core.session(session);
                return self.core.deliver(&held, payload).await;
            }
            delivered
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

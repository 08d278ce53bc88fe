//! What the tasks of a log have in common, and who does the errands of its sessions.
//!
//! Tasks are small and end by themselves: one for a stream that the store lacks something of, one
//! for a stream of another replica that is read here, one for a session whose standalone reader
//! waits, one that hears hints. They hold the log weakly, so that it can go.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use dashmap::{DashMap, DashSet};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};
use vestibule_store::redis::{Key, Redis, Reply, Script, Slot};
use vestibule_store::{AtRest, Fleet, SessionKey, StoreError, random};

use super::hint::{Hint, Kind};
use super::unfound::Unfound;
use super::{keys, publish, record, script, ship, standalone};
use crate::event_id::StreamId;
use crate::held::Held;
use crate::memory::MemoryLog;
use crate::session_log::Errand;
use crate::times::Times;
use crate::{LogError, StreamRef};

/// How long the store may be away before an operation goes on without it.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// How often something is tried, however long that takes.
const AT_LEAST: u32 = 3;

/// How long something is tried that ends by itself if it is never done.
const ERRAND: Duration = Duration::from_secs(10);

/// How often the store is asked about everything at most.
const PROBE: Duration = Duration::from_secs(1);

/// The log behind all its handles.
pub(crate) struct Core {
    pub(super) memory: MemoryLog,
    pub(super) redis: Redis,
    pub(super) fleet: Arc<dyn Fleet>,
    pub(super) times: Times,
    pub(super) runtime: Handle,
    pub(super) this: Weak<Core>,
    /// This replica, as it is named in what is stored.
    pub(super) me: Arc<str>,
    /// The sessions that are known here, by the tags of their slots.
    pub(super) by_tag: DashMap<Arc<str>, SessionKey>,
    /// Sessions for which questions of this replica may wait.
    pub(super) asking: DashSet<SessionKey>,
    /// When the store was last asked about everything.
    pub(super) probed: Mutex<Option<Instant>>,
    /// Streams of which nobody has anything.
    pub(super) unfound: Unfound,
    /// Registrations of standalone readers.
    pub(super) numbers: AtomicU64,
    /// Whether this replica still reaches anybody.
    #[cfg(test)]
    pub(super) fate: super::tests::Fate,
}

impl Core {
    /// The session's log here, made when it is first asked for.
    pub(super) fn session(&self, session: &SessionKey) -> Arc<Held> {
        let held = self.memory.begun(session);
        let tag = held.slot().tag();
        if !self.by_tag.contains_key(tag) {
            self.by_tag.insert(Arc::from(tag), session.clone());
        }
        held
    }

    /// The session of that tag, if it is known here.
    pub(super) fn known(&self, tag: &str) -> Option<Arc<Held>> {
        let session = self.by_tag.get(tag).map(|session| session.clone())?;
        self.memory.find(&session).ok()
    }

    /// What seals and opens the payloads of a session, and the place they are bound to (T53).
    pub(super) fn at_rest<'a>(&'a self, held: &'a Held) -> (AtRest<'a>, &'a str) {
        let at_rest = self.memory.shared().sealer.at_rest(held.session.tenant());
        (at_rest, held.slot().tag())
    }

    /// A number that this replica gives once.
    pub(super) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        match Handle::try_current() {
            Ok(here) => here.spawn(task),
            Err(_) => self.runtime.spawn(task),
        };
    }

    /// Runs a script once.
    pub(super) async fn once(
        &self,
        script: &'static Script,
        slot: &Slot,
        keys: &[Key],
        args: Vec<Bytes>,
    ) -> Result<Reply, LogError> {
        #[cfg(test)]
        self.fate.goes_on().await;
        let answer = self.redis.run(script, slot, keys, args).await;
        #[cfg(test)]
        self.fate.goes_on().await;
        #[cfg(test)]
        if self.fate.loses_answers() {
            return Err(LogError::Unavailable("the answer was lost".into()));
        }
        answer.map_err(unavailable)
    }

    /// Runs a script that may run more than once, until it is answered or the time is over; a few
    /// times at least, since a process that was stopped meanwhile finds the time over and has run it.
    pub(super) async fn insist(
        &self,
        script: &'static Script,
        slot: &Slot,
        keys: &[Key],
        args: Vec<Bytes>,
        time: Duration,
    ) -> Result<Reply, LogError> {
        let until = Instant::now() + time;
        let mut pause = Pause::default();
        let mut tried = 0;
        loop {
            tried += 1;
            let answer = self.once(script, slot, keys, args.clone()).await;
            let next = pause.next();
            let over = tried >= AT_LEAST && Instant::now() + next >= until;
            if answer.is_ok() || over {
                return answer;
            }
            sleep(next).await;
        }
    }

    /// Does what a session wants done. Called under its lock.
    pub(crate) fn run(&self, held: &Arc<Held>, errands: Vec<Errand>) {
        for errand in errands {
            let (core, held) = (Weak::clone(&self.this), Arc::clone(held));
            match errand {
                Errand::Ship(id, shipper) => self.spawn(ship::ship(core, held, id, shipper)),
                Errand::Port => self.spawn(standalone::port(core, held)),
                Errand::Flush => self.spawn(publish::flush(core, held)),
                Errand::Remove(..)
                | Errand::Ended(_)
                | Errand::Leave(..)
                | Errand::Unwatch(..)
                | Errand::Word(..) => self.spawn(do_errand(core, held, errand)),
            }
        }
    }

    /// Tells another replica something about a stream; it may not hear it.
    pub(super) async fn tell(&self, to: &str, kind: Kind, held: &Held, id: StreamId) {
        let hint = Hint::new(kind, held.slot(), id, self.redis.replica());
        self.send(to, &hint, held.slot()).await;
    }

    pub(super) async fn send(&self, to: &str, hint: &Hint, slot: &Slot) {
        if to == &*self.me {
            return;
        }
        let args = vec![keys::text(to), hint.text()];
        let _lossy = self
            .once(&script::HINT, slot, &[keys::log(slot)], args)
            .await
            .is_err();
    }

    /// The session was ended: nothing of it is here any more.
    pub(super) fn gone(&self, held: &Arc<Held>) {
        held.with(|log, _| log.lost_with_session());
        self.drop_session(held);
    }

    pub(super) fn drop_session(&self, held: &Arc<Held>) {
        self.memory.drop_session(held);
        self.by_tag.remove(held.slot().tag());
        self.asking.remove(&held.session);
    }

    /// Asks the store about all streams of this replica: it was away, or has lost something.
    pub(super) fn probe_everything(&self) {
        let now = Instant::now();
        let mut last = self.probed.lock().unwrap_or_else(PoisonError::into_inner);
        let recently = |last: Instant| now.saturating_duration_since(last) < PROBE;
        if last.is_some_and(recently) {
            return;
        }
        *last = Some(now);
        drop(last);
        for held in self.memory.held() {
            held.with(|log, at| log.renew(Duration::ZERO, at));
        }
    }

    /// Nobody has to finish the stream if this replica dies.
    pub(super) async fn own_no_more(&self, held: &Held, id: StreamId) {
        if !id.is_standalone() {
            let entry = record::entry(&held.session, id);
            let me = self.redis.replica();
            let _taken_over_for_nothing = self.fleet.disowns(me, entry).await.is_err();
        }
    }

    /// The stream on the other side of a reference.
    pub(super) fn held_of(&self, stream: &StreamRef) -> Result<Arc<Held>, LogError> {
        self.memory.find(&stream.session)
    }
}

/// What the log says of an error of the store.
pub(super) fn unavailable(error: StoreError) -> LogError {
    LogError::Unavailable(error.to_string())
}

async fn do_errand(core: Weak<Core>, held: Arc<Held>, errand: Errand) {
    let Some(core) = core.upgrade() else { return };
    let slot = held.slot();
    match errand {
        Errand::Remove(id, fence) => {
            let [stream, events] = keys::stream(slot, id);
            let args = vec![
                keys::text(&core.me),
                keys::number(fence),
                keys::text(&keys::name_of(id)),
            ];
            let all = [stream, events, keys::log(slot)];
            let _expires = core
                .insist(&script::REMOVE, slot, &all, args, ERRAND)
                .await
                .is_err();
            core.own_no_more(&held, id).await;
        }
        Errand::Ended(id) => core.own_no_more(&held, id).await,
        Errand::Leave(id, number) => leave(&core, &held, id, number).await,
        Errand::Unwatch(id, number) => {
            let [stream, _] = keys::stream(slot, id);
            let args = vec![keys::text(&core.me), keys::number(number)];
            let _found_with_a_hint = core
                .insist(&script::UNREAD, slot, &[stream], args, ERRAND)
                .await
                .is_err();
        }
        Errand::Word(id, to) => core.tell(&to, Kind::Closed, &held, id).await,
        Errand::Ship(..) | Errand::Port | Errand::Flush => {}
    }
}

/// A standalone reader of this replica is gone.
pub(super) async fn leave(core: &Core, held: &Held, id: StreamId, number: u64) {
    let slot = held.slot();
    let args = vec![
        keys::text(slot.tag()),
        keys::text(&core.me),
        keys::text(&keys::name_of(id)),
        keys::number(number),
    ];
    let _found_with_a_hint = core
        .insist(&script::LEAVE, slot, &[keys::log(slot)], args, ERRAND)
        .await
        .is_err();
}

/// Growing pauses, no two replicas' alike (EL-23).
#[derive(Debug, Default)]
pub(super) struct Pause(u32);

impl Pause {
    const SHORTEST: Duration = Duration::from_millis(50);
    const LONGEST: Duration = Duration::from_secs(2);

    pub(super) fn next(&mut self) -> Duration {
        let full = (Self::SHORTEST * (1 << self.0.min(6))).min(Self::LONGEST);
        self.0 += 1;
        jittered(full)
    }

    /// Begins anew; whether there was a pause.
    pub(super) fn reset(&mut self) -> bool {
        std::mem::take(&mut self.0) > 0
    }
}

/// Between half and all of a time.
pub(super) fn jittered(time: Duration) -> Duration {
    let [part] = random::<1>();
    time / 2 + time / 2 * u32::from(part) / 255
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("memory", &self.memory)
            .field("redis", &self.redis)
            .finish_non_exhaustive()
    }
}

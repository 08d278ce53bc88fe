//! One session's log under its lock, and the accounts it is entered in.
//!
//! The lock is held for the length of one operation and never over an await; below it the lock of
//! the tenant's order. Room is made after the lock of the session that needs it has been released,
//! because whose room it is may be another session's.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use bytes::Bytes;
use dashmap::DashMap;
use tokio::time::Instant;
use vestibule_store::redis::Slot;
use vestibule_store::{Purpose, Sealer, SessionKey, random};
use vestibule_terms::{TenantId, mutation};

use crate::LogError;
use crate::embedded::Scribe;
use crate::event_id::{EventId, EventIds, Position, StreamId};
use crate::log::{Entry, Opened, Post, StreamKind, StreamRef};
use crate::redis::{Core, Mode, Modes};
use crate::resume::{Decision, Resume};
use crate::retain::{Budget, Limits, charge};
use crate::ring::UNWRITTEN;
use crate::session_log::{Beginning, Moment, SessionLog};

/// Where what changes is written down.
pub(crate) enum Outlet {
    /// Nowhere: it is in memory only.
    Nowhere,
    /// On this process's disk.
    Disk(Scribe),
    /// In the store of several replicas.
    Fleet(Weak<Core>, Modes),
}

/// What the sessions of one process share.
pub(crate) struct Shared {
    pub(crate) limits: Limits,
    pub(crate) ids: EventIds,
    pub(crate) bytes: AtomicUsize,
    pub(crate) lookups: AtomicU64,
    pub(crate) tenants: DashMap<TenantId, Arc<Budget>>,
    outlet: Outlet,
    pub(crate) sealer: Sealer,
    turn: AtomicU64,
}

impl Shared {
    pub(crate) fn new(sealer: Sealer, limits: Limits, outlet: Outlet) -> Arc<Self> {
        Arc::new(Self {
            limits,
            ids: EventIds::new(sealer.clone()),
            bytes: AtomicUsize::new(0),
            lookups: AtomicU64::new(0),
            tenants: DashMap::new(),
            outlet,
            sealer,
            turn: AtomicU64::new(0),
        })
    }

    /// A session is looked up.
    pub(crate) fn count_lookup(&self) {
        self.lookups.fetch_add(1, Ordering::Relaxed);
    }

    fn log(&self, session: &SessionKey) -> SessionLog {
        match &self.outlet {
            Outlet::Nowhere => SessionLog::new(self.limits),
            Outlet::Disk(scribe) => SessionLog::on_disk(self.limits, scribe.numbers()),
            Outlet::Fleet(_, modes) => SessionLog::shared(self.limits, modes(session.tenant())),
        }
    }

    /// The writing side of the disk, where there is one.
    pub(crate) fn scribe(&self) -> Option<&Scribe> {
        match &self.outlet {
            Outlet::Disk(scribe) => Some(scribe),
            Outlet::Nowhere | Outlet::Fleet(..) => None,
        }
    }

    fn moment(&self) -> Moment {
        Moment {
            now: Instant::now(),
            turn: self.turn.fetch_add(1, Ordering::Relaxed) + 1,
            settled: self.scribe().map_or(0, Scribe::settled),
        }
    }

    /// Waits until that submission is on disk. What is not submitted yet will be when the lock
    /// that its caller has just let go of is taken again.
    pub(crate) async fn settle(&self, written: u64) {
        if let Some(scribe) = self.scribe().filter(|_| written != UNWRITTEN) {
            scribe.settle(written).await;
        }
    }

    fn largest(&self) -> Option<Arc<Budget>> {
        self.tenants
            .iter()
            .max_by_key(|tenant| tenant.bytes())
            .map(|tenant| Arc::clone(tenant.value()))
    }
}

/// One session's log, with what it is accounted to.
pub(crate) struct Held {
    pub(crate) session: SessionKey,
    log: Mutex<SessionLog>,
    tenant: Arc<Budget>,
    shared: Arc<Shared>,
    slot: OnceLock<Slot>,
    mode: Option<Mode>,
}

impl Held {
    pub(crate) fn new(session: SessionKey, shared: &Arc<Shared>) -> Arc<Self> {
        let tenant = shared.tenants.entry(session.tenant().clone()).or_default();
        let log = shared.log(&session);
        Arc::new(Self {
            mode: log.mode(),
            log: Mutex::new(log),
            tenant: Arc::clone(&tenant),
            shared: Arc::clone(shared),
            slot: OnceLock::new(),
            session,
        })
    }

    /// Runs one operation on the session's log and enters what it changed in the accounts.
    pub(crate) fn with<T>(self: &Arc<Self>, act: impl FnOnce(&mut SessionLog, Moment) -> T) -> T {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let before = log.bytes();
        let result = act(&mut log, self.shared.moment());
        let after = log.bytes();
        if before != after {
            self.tenant.charge(before, after);
            charge(&self.shared.bytes, before, after);
        }
        self.tenant.apply(log.take_moves(), &Arc::downgrade(self));
        self.write_down(&mut log);
        result
    }

    /// Hands over what changed, still under the lock, so that it stays in order.
    fn write_down(self: &Arc<Self>, log: &mut SessionLog) {
        match &self.shared.outlet {
            Outlet::Nowhere => {}
            Outlet::Disk(scribe) => {
                let notes = log.take_notes();
                if !notes.is_empty() {
                    log.submitted(scribe.submit(&self.session, notes));
                }
            }
            Outlet::Fleet(core, _) => {
                let errands = log.take_errands();
                if let Some(core) = core.upgrade().filter(|_| !errands.is_empty()) {
                    core.run(self, errands);
                }
            }
        }
    }

    /// What its streams do while the store is away, where there is one that can be.
    pub(crate) fn mode(&self) -> Option<Mode> {
        self.mode
    }

    /// Whether other replicas have part in it.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.shared.outlet, Outlet::Fleet(..))
    }

    /// What the store knows the session by.
    pub(crate) fn slot(&self) -> &Slot {
        self.slot.get_or_init(|| Slot::of(&self.session))
    }

    /// See [`Shared::settle`].
    pub(crate) async fn settle(&self, written: u64) {
        self.shared.settle(written).await;
    }

    /// The same for an operation that may need room for `stream` (or for the backlog).
    pub(crate) fn grow<T>(
        self: &Arc<Self>,
        stream: Option<StreamId>,
        act: impl FnOnce(&mut SessionLog, Moment) -> T,
    ) -> T {
        let result = self.with(act);
        self.relieve(stream);
        result
    }

    /// Makes room where the tenant or the process is over its bound.
    pub(crate) fn relieve(&self, spare: Option<StreamId>) {
        let limits = &self.shared.limits;
        loop {
            let of_tenant = self.tenant.bytes().saturating_sub(limits.tenant_bytes);
            let of_process = self
                .shared
                .bytes
                .load(Ordering::Relaxed)
                .saturating_sub(limits.process_bytes);
            let (budget, excess) = if of_tenant > 0 {
                (Arc::clone(&self.tenant), of_tenant)
            } else if of_process > 0 {
                (
                    self.shared
                        .largest()
                        .unwrap_or_else(|| Arc::clone(&self.tenant)),
                    of_process,
                )
            } else {
                return;
            };
            let Some((place, session, target)) = budget.next(spare) else {
                return;
            };
            match session.upgrade() {
                Some(held) => held.with(|log, _| log.make_room(target, place, excess)),
                None => budget.forget(&place),
            }
        }
    }

    pub(crate) fn id(&self, position: &Position) -> EventId {
        self.shared.ids.mint(&self.session, position)
    }

    /// The event as its reader gets it; one that is not safe has no id.
    pub(crate) fn entry(&self, position: &Position, payload: Bytes, safe: bool) -> Entry {
        let id = (safe && self.mode != Some(Mode::Off)).then(|| self.id(position));
        Entry {
            id,
            seq: position.seq,
            payload,
        }
    }

    pub(crate) fn stream(&self, id: StreamId) -> StreamRef {
        StreamRef {
            session: self.session.clone(),
            id,
        }
    }

    pub(crate) fn open(self: &Arc<Self>, kind: StreamKind) -> Result<Opened, LogError> {
        let standalone = kind == StreamKind::Standalone;
        let Post {
            requests,
            note,
            events,
        } = match kind {
            StreamKind::Post(post) => post,
            StreamKind::Standalone => Post::default(),
        };
        let (key_id, key) = self
            .shared
            .sealer
            .named_mac_key(Purpose::EVENT_CHAIN, self.session.tenant());
        let id = StreamId::mint(standalone);
        let beginning = Beginning {
            id,
            epoch: u32::from_be_bytes(random()),
            key,
            key_id,
            requests,
        };
        // one turn of the lock is one submission: the disk and the store have all of it or nothing
        let more = note.is_some() || !events.is_empty();
        let start = self.grow(Some(id), |log, at| {
            let start = log.open(beginning, at)?;
            if let Some(note) = note {
                log.note(id, note)?;
            }
            if more {
                log.append(id, events, false, at)?;
            }
            Ok(start)
        })?;
        let priming = self.shared.ids.mint(&self.session, &start);
        Ok(Opened {
            stream: self.stream(start.stream),
            priming: Some(priming),
        })
    }

    /// A new standalone stream in the place of one that is gone.
    pub(crate) fn reopen(self: &Arc<Self>) -> Result<Resume, LogError> {
        let opened = self.open(StreamKind::Standalone)?;
        Ok(Resume::StandaloneGap {
            stream: opened.stream,
            after: 0,
        })
    }

    pub(crate) fn resume(self: &Arc<Self>, position: &Position) -> Result<Resume, LogError> {
        let (decision, requests) = self.with(|log, at| {
            log.expire(at.now);
            (log.decide(position), log.requests(position.stream))
        });
        let mut stream = self.stream(position.stream);
        let mut after = position.seq;
        if mutation::on("off-by-one") {
            after += 1;
        }
        if mutation::on("merge-standalone") {
            let another = self.with(|log, _| log.another_standalone(position.stream));
            stream.id = another.unwrap_or(stream.id);
        }
        Ok(match decision {
            Decision::Replay => Resume::Replay { stream, after },
            Decision::Ending => Resume::Ending { stream, after },
            Decision::Finished => Resume::Finished,
            Decision::Unknown => Resume::Unknown,
            Decision::LostPost => Resume::LostPost { requests },
            Decision::StandaloneGap { after } => Resume::StandaloneGap { stream, after },
            Decision::StandaloneGone => return self.reopen(),
        })
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held")
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}

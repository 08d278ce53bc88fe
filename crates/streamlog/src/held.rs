//! One session's log under its lock, and the accounts it is entered in.
//!
//! The lock is held for the length of one operation and never over an await; below it the lock of
//! the tenant's order. Room is made after the lock of the session that needs it has been released,
//! because whose room it is may be another session's.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use dashmap::DashMap;
use tokio::time::Instant;
use vestibule_store::{Purpose, Sealer, SessionKey, random};
use vestibule_terms::TenantId;

use crate::LogError;
use crate::embedded::Scribe;
use crate::event_id::{EventIds, Position, StreamId};
use crate::log::{Entry, Opened, StreamKind, StreamRef};
use crate::resume::{Decision, Resume};
use crate::retain::{Budget, Limits, charge};
use crate::ring::UNWRITTEN;
use crate::session_log::{Beginning, Moment, SessionLog};

/// What the sessions of one process share.
pub(crate) struct Shared {
    pub(crate) limits: Limits,
    pub(crate) ids: EventIds,
    pub(crate) bytes: AtomicUsize,
    pub(crate) lookups: AtomicU64,
    pub(crate) tenants: DashMap<TenantId, Arc<Budget>>,
    /// Where there is a disk.
    pub(crate) scribe: Option<Scribe>,
    sealer: Sealer,
    turn: AtomicU64,
}

impl Shared {
    pub(crate) fn new(sealer: Sealer, limits: Limits, scribe: Option<Scribe>) -> Arc<Self> {
        Arc::new(Self {
            limits,
            ids: EventIds::new(sealer.clone()),
            bytes: AtomicUsize::new(0),
            lookups: AtomicU64::new(0),
            tenants: DashMap::new(),
            scribe,
            sealer,
            turn: AtomicU64::new(0),
        })
    }

    fn log(&self) -> SessionLog {
        match &self.scribe {
            Some(scribe) => SessionLog::on_disk(self.limits, scribe.numbers()),
            None => SessionLog::new(self.limits),
        }
    }

    fn moment(&self) -> Moment {
        Moment {
            now: Instant::now(),
            turn: self.turn.fetch_add(1, Ordering::Relaxed) + 1,
            settled: self.scribe.as_ref().map_or(0, Scribe::settled),
        }
    }

    /// Waits until that submission is on disk. What is not submitted yet will be when the lock
    /// that its caller has just let go of is taken again.
    pub(crate) async fn settle(&self, written: u64) {
        if let Some(scribe) = self.scribe.as_ref().filter(|_| written != UNWRITTEN) {
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
}

impl Held {
    pub(crate) fn new(session: SessionKey, shared: &Arc<Shared>) -> Arc<Self> {
        let tenant = shared.tenants.entry(session.tenant().clone()).or_default();
        Arc::new(Self {
            log: Mutex::new(shared.log()),
            tenant: Arc::clone(&tenant),
            shared: Arc::clone(shared),
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
        if let Some(scribe) = &self.shared.scribe {
            let notes = log.take_notes();
            if !notes.is_empty() {
                log.submitted(scribe.submit(&self.session, notes));
            }
        }
        result
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

    pub(crate) fn entry(&self, position: &Position, payload: Bytes) -> Entry {
        let id = self.shared.ids.mint(&self.session, position);
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
        let (requests, standalone) = match kind {
            StreamKind::Post { requests } => (requests, false),
            StreamKind::Standalone => (vec![], true),
        };
        let (key_id, key) = self
            .shared
            .sealer
            .named_mac_key(Purpose::EVENT_CHAIN, self.session.tenant());
        let beginning = Beginning {
            id: StreamId::mint(standalone),
            epoch: u32::from_be_bytes(random()),
            key,
            key_id,
            requests,
        };
        let start = self.with(|log, at| log.open(beginning, at))?;
        let priming = self.shared.ids.mint(&self.session, &start);
        Ok(Opened {
            stream: self.stream(start.stream),
            priming,
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
        let stream = self.stream(position.stream);
        let after = position.seq;
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

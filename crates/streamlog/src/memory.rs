//! The event log of one process, in memory: bounded, gone with the process.

use std::fmt;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use dashmap::DashMap;
use tokio::time::timeout;
use vestibule_store::{Sealer, SessionKey};
use vestibule_terms::mutation;

use crate::deliver::deliver;
use crate::event_id::{StreamId, Verified};
use crate::held::{Held, Outlet, Shared};
use crate::log::{
    Appended, Entry, Event, Lost, Opened, Orphan, StreamKind, StreamLog, StreamRef, Swept, gone,
};
use crate::resume::Resume;
use crate::retain::Limits;
use crate::session_log::{Attached, Moment, SessionLog};
use crate::tail::{MemoryTail, Reader, Stop};
use crate::{LogError, Pending};

/// What a log holds, for gauges.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Sessions that have begun and are not forgotten.
    pub sessions: usize,
    /// Streams remembered, ended ones included.
    pub streams: usize,
    /// Events kept.
    pub events: usize,
    /// Bytes they are accounted with.
    pub bytes: usize,
    /// Look-ups of a session since the start.
    pub lookups: u64,
}

/// The in-memory [`StreamLog`].
pub struct MemoryLog {
    sessions: DashMap<SessionKey, Arc<Held>>,
    shared: Arc<Shared>,
}

impl MemoryLog {
    /// An empty log whose ids are minted under the keys of `sealer`.
    pub fn new(sealer: Sealer, limits: Limits) -> Self {
        Self::over(Shared::new(sealer, limits, Outlet::Nowhere))
    }

    /// An empty log with what its sessions share.
    pub(crate) fn over(shared: Arc<Shared>) -> Self {
        Self {
            sessions: DashMap::new(),
            shared,
        }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The submission that a writer of the stream has to wait for, if there is one.
    pub(crate) fn on_its_way(&self, stream: &StreamRef) -> Option<u64> {
        let held = self.find(&stream.session).ok()?;
        held.with(|log, at| log.on_its_way(stream.id, at))
    }

    /// The session's log, made when it is first asked for.
    pub(crate) fn begun(&self, session: &SessionKey) -> Arc<Held> {
        let held = self.sessions.entry(session.clone());
        Arc::clone(&held.or_insert_with(|| Held::new(session.clone(), &self.shared)))
    }

    /// Takes that session's log out, unless there is another one in its place.
    pub(crate) fn drop_session(&self, held: &Arc<Held>) {
        self.sessions
            .remove_if(&held.session, |_, known| Arc::ptr_eq(known, held));
    }

    /// What it holds now.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats {
            sessions: self.sessions.len(),
            bytes: self.shared.bytes.load(Ordering::Relaxed),
            lookups: self.shared.lookups.load(Ordering::Relaxed),
            ..Stats::default()
        };
        for held in self.held() {
            let (streams, events) = held.with(|log, _| log.counts());
            stats.streams += streams;
            stats.events += events;
        }
        stats
    }

    pub(crate) fn find(&self, session: &SessionKey) -> Result<Arc<Held>, LogError> {
        self.shared.count_lookup();
        let held = self.sessions.get(session).map(|held| Arc::clone(&held));
        held.ok_or(LogError::Gone)
    }

    /// All sessions; the map is not locked while they are worked on.
    pub(crate) fn held(&self) -> Vec<Arc<Held>> {
        self.sessions.iter().map(|held| Arc::clone(&held)).collect()
    }

    fn attach_now(&self, stream: &StreamRef, after: u64) -> Result<Reader, LogError> {
        let held = self.find(&stream.session)?;
        self.attach_to(&held, stream.id, |log, at| log.attach(stream.id, after, at))
    }

    /// Whoever's id it is: for a seeded bug.
    pub(crate) fn swapped(&self, last_event_id: &str) -> Option<SessionKey> {
        if !mutation::on("swap-tenant") {
            return None;
        }
        let ours = |session: &SessionKey| self.shared.ids.verify(session, last_event_id).is_ok();
        let mut all = self.sessions.iter().map(|held| held.key().clone());
        all.find(ours)
    }

    /// A reader of that stream, attached in this way.
    pub(crate) fn attach_to(
        &self,
        held: &Arc<Held>,
        id: StreamId,
        attach: impl FnOnce(&mut SessionLog, Moment) -> Result<Attached, LogError>,
    ) -> Result<Reader, LogError> {
        let attached = held.with(attach)?;
        let patience = self.shared.limits.handoff;
        Ok(Box::new(MemoryTail::new(
            Arc::clone(held),
            held.stream(id),
            attached,
            patience,
        )))
    }

    fn append_now(
        &self,
        stream: &StreamRef,
        events: Vec<Bytes>,
        end: bool,
    ) -> Result<Appended, LogError> {
        let held = self.find(&stream.session)?;
        held.grow(Some(stream.id), |log, at| {
            log.append(stream.id, events, end, at)
        })
    }

    fn resume_now(&self, session: &SessionKey, last_event_id: &str) -> Result<Resume, LogError> {
        let swapped = self.swapped(last_event_id);
        let session = swapped.as_ref().unwrap_or(session);
        let Ok(verified) = self.shared.ids.verify(session, last_event_id) else {
            return Ok(Resume::Foreign);
        };
        let Ok(held) = self.find(session) else {
            return Ok(Resume::NoSession);
        };
        let resume = match verified {
            Verified::Ours(position) => held.resume(&position),
            Verified::KeyGone => held.reopen(),
        };
        match resume {
            Err(LogError::Gone) => Ok(Resume::NoSession), // forgotten in this very moment
            other => other,
        }
    }

    async fn wait_for_room(&self, stream: &StreamRef, bytes: usize) -> Result<(), LogError> {
        let held = self.find(&stream.session)?;
        let Some(wake) = held.with(|log, _| log.wake_of(stream.id)) else {
            return gone();
        };
        loop {
            let woken = wake.notified();
            tokio::pin!(woken);
            woken.as_mut().enable();
            if !held.with(|log, _| log.must_hold(stream.id, bytes)) {
                return Ok(());
            }
            woken.await;
        }
    }
}

/// Everything but waiting is done when the call returns; the future only carries the result.
fn done<'a, T: Send + 'a>(result: Result<T, LogError>) -> Pending<'a, T> {
    Box::pin(ready(result))
}

impl StreamLog for MemoryLog {
    fn begin_session<'a>(&'a self, session: &'a SessionKey) -> Pending<'a, ()> {
        self.begun(session);
        done(Ok(()))
    }

    fn forget_session<'a>(&'a self, session: &'a SessionKey) -> Pending<'a, Vec<Arc<str>>> {
        let Some((_, held)) = self.sessions.remove(session) else {
            return done(Ok(vec![]));
        };
        done(Ok(held.with(|log, _| log.forget())))
    }

    fn open<'a>(&'a self, session: &'a SessionKey, kind: StreamKind) -> Pending<'a, Opened> {
        done(self.find(session).and_then(|held| held.open(kind)))
    }

    fn append<'a>(&'a self, stream: &'a StreamRef, events: Vec<Bytes>) -> Pending<'a, Appended> {
        done(self.append_now(stream, events, false))
    }

    fn finish<'a>(&'a self, stream: &'a StreamRef, last: Option<Bytes>) -> Pending<'a, Appended> {
        done(self.append_now(stream, last.into_iter().collect(), true))
    }

    fn note<'a>(&'a self, stream: &'a StreamRef, note: Bytes) -> Pending<'a, ()> {
        let held = self.find(&stream.session);
        done(held.and_then(|held| held.with(|log, _| log.note(stream.id, note))))
    }

    fn claim<'a>(&'a self, stream: &'a StreamRef) -> Pending<'a, bool> {
        let held = self.find(&stream.session);
        done(Ok(held.is_ok_and(|held| {
            held.with(|log, at| log.claim(stream.id, at))
        })))
    }

    fn abandon(&self, stream: &StreamRef) {
        if let Ok(held) = self.find(&stream.session) {
            held.with(|log, at| log.abandon(stream.id, at));
        }
    }

    fn room<'a>(&'a self, stream: &'a StreamRef, bytes: usize) -> Pending<'a, ()> {
        Box::pin(async move {
            match timeout(self.shared.limits.hold, self.wait_for_room(stream, bytes)).await {
                Ok(result) => result,
                Err(_) => Ok(()), // held long enough: history is trimmed, and the reader told so
            }
        })
    }

    fn publish<'a>(
        &'a self,
        session: &'a SessionKey,
        events: Vec<Event>,
    ) -> Pending<'a, Vec<Arc<str>>> {
        let held = self.find(session);
        done(held.and_then(|held| held.grow(None, |log, at| log.publish(events, at))))
    }

    fn deliver<'a>(
        &'a self,
        session: &'a SessionKey,
        payload: Bytes,
    ) -> Pending<'a, Option<Vec<Arc<str>>>> {
        Box::pin(async move {
            let held = self.find(session)?;
            deliver(&held, self.shared.limits.hold, payload).await
        })
    }

    fn attach<'a>(&'a self, stream: &'a StreamRef, after: u64) -> Pending<'a, Reader> {
        done(self.attach_now(stream, after))
    }

    fn stop<'a>(&'a self, stream: &'a StreamRef, why: Stop) -> Pending<'a, ()> {
        let held = self.find(&stream.session);
        done(held.map(|held| held.with(|log, _| log.stop(stream.id, why))))
    }

    fn read<'a>(
        &'a self,
        stream: &'a StreamRef,
        after: u64,
        max: usize,
    ) -> Pending<'a, Vec<Entry>> {
        done(self.find(&stream.session).map(|held| {
            let events = held.with(|log, at| log.read(stream.id, after, max, at));
            events
                .into_iter()
                .map(|(position, payload)| held.entry(&position, payload, true))
                .collect()
        }))
    }

    fn resume<'a>(
        &'a self,
        session: &'a SessionKey,
        last_event_id: &'a str,
    ) -> Pending<'a, Resume> {
        done(self.resume_now(session, last_event_id))
    }

    fn sweep(&self) -> Pending<'_, Swept> {
        done(Ok(self.swept()))
    }
}

impl MemoryLog {
    /// Ends what is over.
    pub(crate) fn swept(&self) -> Swept {
        let mut swept = Swept::default();
        for held in self.held() {
            let (orphans, lost) = held.with(|log, at| {
                log.expire(at.now);
                (log.orphans(), log.take_lost())
            });
            let orphans = orphans.into_iter();
            swept.orphans.extend(orphans.map(|left| Orphan {
                stream: held.stream(left.id),
                requests: left.requests,
                note: left.note,
            }));
            let lost = lost.into_iter();
            swept.lost.extend(lost.map(|question| Lost {
                session: held.session.clone(),
                question,
            }));
        }
        self.shared
            .tenants
            .retain(|_, tenant| Arc::strong_count(tenant) > 1);
        swept
    }
}

impl fmt::Debug for MemoryLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryLog")
            .field("sessions", &self.sessions.len())
            .field("limits", &self.shared.limits)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
impl MemoryLog {
    pub(crate) fn check_invariants(&self) {
        let held = self.held();
        for one in &held {
            one.with(|log, _| log.check_invariants());
        }
        for tenant in &self.shared.tenants {
            let of_tenant = || {
                held.iter()
                    .filter(|held| held.session.tenant() == tenant.key())
            };
            let bytes: usize = of_tenant()
                .map(|held| held.with(|log, _| log.bytes()))
                .sum();
            assert_eq!(bytes, tenant.bytes());
            let places: usize = of_tenant()
                .map(|held| held.with(|log, _| log.places()))
                .sum();
            assert_eq!(
                places,
                tenant.places(),
                "the order has what there is and no more"
            );
        }
        let bytes: usize = held
            .iter()
            .map(|held| held.with(|log, _| log.bytes()))
            .sum();
        assert_eq!(bytes, self.shared.bytes.load(Ordering::Relaxed));
    }

    /// Whether the session's next standalone reader is told of a loss; it was so far.
    pub(crate) fn set_lossy(&self, session: &SessionKey, lossy: bool) -> bool {
        self.begun(session).with(|log, _| log.set_lossy(lossy))
    }

    pub(crate) fn tenants(&self) -> usize {
        self.shared.tenants.len()
    }
}

#[cfg(test)]
mod tests;

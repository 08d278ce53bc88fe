//! A store that can be away, as one over a network can: sessions that were seen lately are still known,
//! and nothing else is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use vestibule_store::{
    Caps, Created, Ended, Kept, Kind, Lifetimes, MemorySessions, Opening, Pending, SessionKey,
    Sessions, State, StoreError, Stored, Update,
};
use vestibule_terms::{Clock, TenantId};

/// Sessions in memory.
#[derive(Debug)]
pub(crate) struct Moody {
    inner: MemorySessions,
    away: AtomicBool,
    fails_at_keeping: AtomicBool,
    forgetful: AtomicBool,
}

impl Moody {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            inner: MemorySessions::new(Lifetimes::default(), clock),
            away: AtomicBool::new(false),
            fails_at_keeping: AtomicBool::new(false),
            forgetful: AtomicBool::new(false),
        }
    }

    pub(crate) fn be_away(&self, away: bool) {
        self.away.store(away, Ordering::Relaxed);
    }

    /// It goes away with the next record that is to be kept.
    pub(crate) fn fail_at_keeping(&self) {
        self.fails_at_keeping.store(true, Ordering::Relaxed);
    }

    /// As after a failover: what was kept last is not there.
    pub(crate) fn be_forgetful(&self) {
        self.forgetful.store(true, Ordering::Relaxed);
    }

    fn there<'a, T: Send + 'a>(&self, answer: impl FnOnce() -> Pending<'a, T>) -> Pending<'a, T> {
        if !self.away.load(Ordering::Relaxed) {
            return answer();
        }
        let away = StoreError::Unavailable("away".to_owned());
        Box::pin(std::future::ready(Err(away)))
    }
}

impl Sessions for Moody {
    fn create(&self, key: SessionKey, opening: Opening, caps: Caps) -> Pending<'_, Created> {
        self.there(|| self.inner.create(key, opening, caps))
    }

    fn get<'a>(&'a self, key: &'a SessionKey) -> Pending<'a, Option<Stored>> {
        self.inner.get(key)
    }

    fn touch<'a>(&'a self, key: &'a SessionKey) -> Pending<'a, Option<Stored>> {
        self.inner.touch(key)
    }

    fn update<'a>(
        &'a self,
        key: &'a SessionKey,
        version: u64,
        state: State,
    ) -> Pending<'a, Update> {
        self.there(|| self.inner.update(key, version, state))
    }

    fn stream_opened<'a>(&'a self, key: &'a SessionKey) -> Pending<'a, Option<Stored>> {
        self.inner.stream_opened(key)
    }

    fn stream_closed(&self, key: &SessionKey) {
        self.inner.stream_closed(key);
    }

    fn keep<'a>(
        &'a self,
        key: &'a SessionKey,
        kind: Kind,
        name: &'a str,
        record: Bytes,
    ) -> Pending<'a, Option<Kept>> {
        if self.fails_at_keeping.swap(false, Ordering::Relaxed) {
            self.be_away(true);
        }
        self.there(|| self.inner.keep(key, kind, name, record))
    }

    fn kept<'a>(
        &'a self,
        key: &'a SessionKey,
        kind: Kind,
        name: &'a str,
    ) -> Pending<'a, Option<Bytes>> {
        if self.forgetful.load(Ordering::Relaxed) {
            return Box::pin(std::future::ready(Ok(None)));
        }
        self.there(|| self.inner.kept(key, kind, name))
    }

    fn all_kept<'a>(
        &'a self,
        key: &'a SessionKey,
        kind: Kind,
    ) -> Pending<'a, Vec<(String, Bytes)>> {
        self.there(|| self.inner.all_kept(key, kind))
    }

    fn swap_kept<'a>(
        &'a self,
        key: &'a SessionKey,
        kind: Kind,
        name: &'a str,
        expected: &'a [u8],
        record: Option<Bytes>,
    ) -> Pending<'a, bool> {
        self.there(|| self.inner.swap_kept(key, kind, name, expected, record))
    }

    fn end<'a>(&'a self, key: &'a SessionKey) -> Pending<'a, Option<Ended>> {
        self.there(|| self.inner.end(key))
    }

    fn sweep(&self) -> Pending<'_, Vec<Ended>> {
        self.there(|| self.inner.sweep())
    }

    fn count<'a>(&'a self, tenant: &'a TenantId, principal: Option<&'a str>) -> Pending<'a, usize> {
        self.there(|| self.inner.count(tenant, principal))
    }

    fn list<'a>(&'a self, tenant: &'a TenantId, max: usize) -> Pending<'a, Vec<Stored>> {
        self.there(|| self.inner.list(tenant, max))
    }
}

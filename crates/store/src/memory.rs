//! Sessions of one process, in memory: bounded by the caps, gone with the process.

use std::sync::Arc;

use bytes::Bytes;
use vestibule_terms::{Clock, TenantId};

use crate::belongings::Belongings;
use crate::sessions::done;
use crate::tables::Tables;
use crate::{
    Caps, Created, Ended, Kept, Kind, Lifetimes, Opening, Pending, SessionKey, Sessions, State,
    Stored, Update,
};

/// The in-memory [`Sessions`].
#[derive(Debug)]
pub struct MemorySessions(Tables);

impl MemorySessions {
    /// An empty store.
    pub fn new(lifetimes: Lifetimes, clock: Arc<dyn Clock>) -> Self {
        Self(Tables::new(lifetimes, clock))
    }
}

impl Sessions for MemorySessions {
    fn create(&self, key: SessionKey, opening: Opening, caps: Caps) -> Pending<'_, Created> {
        done(self.0.create(key, opening, caps, |_| {}))
    }

    fn get<'a>(&'a self, key: &'a SessionKey) -> Pending<'a, Option<Stored>> {
        done(Ok(self.0.get(key)))
    }

    fn touch<'a>(&'a self, key: &'a SessionKey) -> Pending<'a, Option<Stored>> {
        done(Ok(self.0.touch(key)))
    }

    fn update<'a>(
        &'a self,
        key: &'a SessionKey,
        version: u64,
        state: State,
    ) -> Pending<'a, Update> {
        done(Ok(self.0.update(key, version, state, |_| {})))
    }

    fn stream_opened<'a>(&'a self, key: &'a SessionKey) -> Pending<'a, Option<Stored>> {
        done(Ok(self.0.stream_opened(key)))
    }

    fn stream_closed(&self, key: &SessionKey) {
        self.0.stream_closed(key);
    }

    fn keep<'a>(
        &'a self,
        key: &'a SessionKey,
        kind: Kind,
        name: &'a str,
        record: Bytes,
    ) -> Pending<'a, Option<Kept>> {
        let kept = self.0.belongings(key, |all| all.keep(kind, name, record));
        done(kept.transpose())
    }

    fn kept<'a>(
        &'a self,
        key: &'a SessionKey,
        kind: Kind,
        name: &'a str,
    ) -> Pending<'a, Option<Bytes>> {
        let found = self.0.belongings(key, |all| all.get(kind, name));
        done(Ok(found.flatten()))
    }

    fn all_kept<'a>(
        &'a self,
        key: &'a SessionKey,
        kind: Kind,
    ) -> Pending<'a, Vec<(String, Bytes)>> {
        let found = self.0.belongings(key, |all| all.of_kind(kind));
        done(Ok(found.unwrap_or_default()))
    }

    fn swap_kept<'a>(
        &'a self,
        key: &'a SessionKey,
        kind: Kind,
        name: &'a str,
        expected: &'a [u8],
        record: Option<Bytes>,
    ) -> Pending<'a, bool> {
        let swap = |all: &mut Belongings| all.swap(kind, name, expected, record);
        done(self.0.belongings(key, swap).unwrap_or(Ok(false)))
    }

    fn end<'a>(&'a self, key: &'a SessionKey) -> Pending<'a, Option<Ended>> {
        done(Ok(self.0.end(key, |_| {})))
    }

    fn sweep(&self) -> Pending<'_, Vec<Ended>> {
        done(Ok(self.0.sweep(|_| {})))
    }

    fn count<'a>(&'a self, tenant: &'a TenantId, principal: Option<&'a str>) -> Pending<'a, usize> {
        done(Ok(self.0.count(tenant, principal)))
    }

    fn list<'a>(&'a self, tenant: &'a TenantId, max: usize) -> Pending<'a, Vec<Stored>> {
        done(Ok(self.0.list(tenant, max)))
    }
}

#[cfg(test)]
mod tests;

//! Sessions of one process, in memory: bounded by the caps, gone with the process.

use std::fmt;
use std::future::ready;
use std::sync::Arc;

use dashmap::DashMap;
use tokio::time::Instant;
use vestibule_terms::{Clock, TenantId};

use crate::table::{Now, Table};
use crate::{
    Caps, Created, Ended, Lifetimes, Opening, Pending, SessionKey, Sessions, State, Stored, Update,
};

/// The in-memory [`Sessions`].
pub struct MemorySessions {
    tenants: DashMap<TenantId, Table>,
    lifetimes: Lifetimes,
    clock: Arc<dyn Clock>,
}

impl MemorySessions {
    /// An empty store.
    pub fn new(lifetimes: Lifetimes, clock: Arc<dyn Clock>) -> Self {
        Self {
            tenants: DashMap::new(),
            lifetimes,
            clock,
        }
    }

    fn now(&self) -> Now {
        Now {
            instant: Instant::now(),
            unix_millis: self.clock.unix_millis(),
        }
    }

    fn with<T>(&self, key: &SessionKey, act: impl FnOnce(&mut Table) -> Option<T>) -> Option<T> {
        self.tenants
            .get_mut(key.tenant())
            .and_then(|mut table| act(&mut table))
    }
}

/// Everything here is done when the call returns; the future only carries the result.
fn done<'a, T: Send + 'a>(value: T) -> Pending<'a, T> {
    Box::pin(ready(Ok(value)))
}

impl Sessions for MemorySessions {
    fn create(&self, key: SessionKey, opening: Opening, caps: Caps) -> Pending<'_, Created> {
        let mut table = self.tenants.entry(key.tenant().clone()).or_default();
        let created = table
            .create(key, opening, caps, self.now())
            .map(|(session, evicted)| Created { session, evicted });
        Box::pin(ready(created))
    }

    fn get<'a>(&'a self, key: &'a SessionKey) -> Pending<'a, Option<Stored>> {
        let table = self.tenants.get(key.tenant());
        done(table.and_then(|table| table.get(key, &self.lifetimes, Instant::now())))
    }

    fn touch<'a>(&'a self, key: &'a SessionKey) -> Pending<'a, Option<Stored>> {
        done(self.with(key, |table| table.touch(key, &self.lifetimes, self.now())))
    }

    fn update<'a>(
        &'a self,
        key: &'a SessionKey,
        version: u64,
        state: State,
    ) -> Pending<'a, Update> {
        let live = (&self.lifetimes, Instant::now());
        let update = self.with(key, |table| Some(table.update(key, version, state, live)));
        done(update.unwrap_or(Update::Gone))
    }

    fn stream_opened<'a>(&'a self, key: &'a SessionKey) -> Pending<'a, Option<Stored>> {
        done(self.with(key, |table| {
            table.stream_opened(key, &self.lifetimes, self.now())
        }))
    }

    fn stream_closed(&self, key: &SessionKey) {
        self.with(key, |table| {
            table.stream_closed(key, self.now());
            Some(())
        });
    }

    fn end<'a>(&'a self, key: &'a SessionKey) -> Pending<'a, Option<Ended>> {
        done(self.with(key, |table| table.end(key, &self.lifetimes, Instant::now())))
    }

    fn sweep(&self) -> Pending<'_, Vec<Ended>> {
        let now = Instant::now();
        let mut ended = Vec::new();
        self.tenants.retain(|_, table| {
            ended.append(&mut table.sweep(&self.lifetimes, now));
            !table.is_empty()
        });
        done(ended)
    }

    fn count<'a>(&'a self, tenant: &'a TenantId, principal: Option<&'a str>) -> Pending<'a, usize> {
        done(
            self.tenants
                .get(tenant)
                .map_or(0, |table| table.count(principal)),
        )
    }

    fn list<'a>(&'a self, tenant: &'a TenantId, max: usize) -> Pending<'a, Vec<Stored>> {
        let table = self.tenants.get(tenant);
        done(table.map_or(vec![], |table| {
            table.list(max, &self.lifetimes, Instant::now())
        }))
    }
}

impl fmt::Debug for MemorySessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemorySessions")
            .field("tenants", &self.tenants.len())
            .field("lifetimes", &self.lifetimes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

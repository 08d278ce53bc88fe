//! The tables of every tenant: what the forms of [`Sessions`](crate::Sessions) in one process have in
//! common. They differ in who hears of a change, and he hears of it under the lock under which it was
//! made, so in the order of the changes.

use std::fmt;
use std::sync::Arc;

use dashmap::DashMap;
use tokio::time::Instant;
use vestibule_terms::{Clock, TenantId};

use crate::belongings::Belongings;
use crate::table::{Now, Table};
use crate::{
    Caps, Created, Ended, Lifetimes, Opening, SessionKey, State, StoreError, Stored, Update,
};

pub(crate) struct Tables {
    pub(crate) tenants: DashMap<TenantId, Table>,
    pub(crate) clock: Arc<dyn Clock>,
    lifetimes: Lifetimes,
}

impl Tables {
    pub(crate) fn new(lifetimes: Lifetimes, clock: Arc<dyn Clock>) -> Self {
        Self {
            tenants: DashMap::new(),
            clock,
            lifetimes,
        }
    }

    pub(crate) fn now(&self) -> Now {
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

    pub(crate) fn create(
        &self,
        key: SessionKey,
        opening: Opening,
        caps: Caps,
        hear: impl FnOnce(&Created),
    ) -> Result<Created, StoreError> {
        let mut table = self.tenants.entry(key.tenant().clone()).or_default();
        let (session, evicted) = table.create(key, opening, caps, self.now())?;
        let created = Created { session, evicted };
        hear(&created);
        Ok(created)
    }

    pub(crate) fn get(&self, key: &SessionKey) -> Option<Stored> {
        let table = self.tenants.get(key.tenant())?;
        table.get(key, &self.lifetimes, Instant::now())
    }

    pub(crate) fn touch(&self, key: &SessionKey) -> Option<Stored> {
        self.with(key, |table| table.touch(key, &self.lifetimes, self.now()))
    }

    pub(crate) fn update(
        &self,
        key: &SessionKey,
        version: u64,
        state: State,
        hear: impl FnOnce(&Update),
    ) -> Update {
        let live = (&self.lifetimes, Instant::now());
        let update = self.with(key, |table| {
            let update = table.update(key, version, state, live);
            hear(&update);
            Some(update)
        });
        update.unwrap_or(Update::Gone)
    }

    pub(crate) fn stream_opened(&self, key: &SessionKey) -> Option<Stored> {
        self.with(key, |table| {
            table.stream_opened(key, &self.lifetimes, self.now())
        })
    }

    pub(crate) fn stream_closed(&self, key: &SessionKey) {
        self.with(key, |table| {
            table.stream_closed(key, self.now());
            Some(())
        });
    }

    /// What `act` makes of the session's belongings.
    pub(crate) fn belongings<T>(
        &self,
        key: &SessionKey,
        act: impl FnOnce(&mut Belongings) -> T,
    ) -> Option<T> {
        self.with(key, |table| {
            let belongings = table.belongings(key, &self.lifetimes, Instant::now())?;
            Some(act(belongings))
        })
    }

    pub(crate) fn end(&self, key: &SessionKey, hear: impl FnOnce(&Ended)) -> Option<Ended> {
        self.with(key, |table| {
            let ended = table.end(key, &self.lifetimes, Instant::now())?;
            hear(&ended);
            Some(ended)
        })
    }

    pub(crate) fn sweep(&self, mut hear: impl FnMut(&[Ended])) -> Vec<Ended> {
        let now = Instant::now();
        let mut ended = Vec::new();
        self.tenants.retain(|_, table| {
            let over = table.sweep(&self.lifetimes, now);
            if !over.is_empty() {
                hear(&over);
            }
            ended.extend(over);
            !table.is_empty()
        });
        ended
    }

    pub(crate) fn count(&self, tenant: &TenantId, principal: Option<&str>) -> usize {
        let table = self.tenants.get(tenant);
        table.map_or(0, |table| table.count(principal))
    }

    pub(crate) fn list(&self, tenant: &TenantId, max: usize) -> Vec<Stored> {
        let table = self.tenants.get(tenant);
        table.map_or(vec![], |table| {
            table.list(max, &self.lifetimes, Instant::now())
        })
    }
}

impl fmt::Debug for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tables")
            .field("tenants", &self.tenants.len())
            .field("lifetimes", &self.lifetimes)
            .finish_non_exhaustive()
    }
}

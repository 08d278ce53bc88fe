//! Sessions of a fleet, in Redis.
//!
//! A session is three values in its one slot: a hash with its record (`s`), one with the streams that
//! replicas have open (`o`), one with its belongings (`b`). Each operation on it is one script, whole or
//! not at all. Beside it an index of its tenant names it: see [`index`].
//!
//! - *A second old.* What this replica has seen of a session is good for a second; its own changes are
//!   seen at once. A use is written down once a second at most, and noted in the index four times a
//!   minute; who is about to make room for another is asked when it was used last.
//! - *The store is away:* what is new, what is changed and what is ended gets
//!   [`Unavailable`](crate::StoreError::Unavailable). A session that this replica has seen in the last five minutes is
//!   looked up and used, and its streams open, as it was seen last; any other is unavailable, which is
//!   not `None`. What was counted meanwhile is written down afterwards.
//! - *Streams of the dead* stop counting three minutes after they were last said to be open.
//! - *Handed out once in the fleet.* Whoever's script removes a session has its [`Ended`]. It is kept for
//!   the next sweep when the caller does not wait for it.
//! - *Time* is that of the caller's [`Clock`]. What no replica looks at for twice the idle limit is removed by Redis
//!   itself, without being handed out.
//! - *After an error* an operation may have been done or not. A change is read again before it is
//!   repeated, as [`modify`](crate::modify) does.

mod begin;
mod cache;
mod census;
mod index;
mod kept;
mod open;
mod record;
mod scripts;
mod streams;
mod sweep;
#[cfg(test)]
mod tests;
mod work;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use vestibule_terms::{Clock, TenantId};

use self::work::Work;
use super::Redis;
use crate::{
    Caps, Census, Created, Ended, Kept, Kind, Lifetimes, Opening, Pending, SessionKey, Sessions,
    State, Stored, Update,
};

/// The [`Sessions`] of a fleet.
pub struct RedisSessions(Arc<Work>);

impl RedisSessions {
    /// The sessions that are in that store.
    pub fn new(redis: Redis, lifetimes: Lifetimes, clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Work::new(redis, lifetimes, clock)))
    }
}

impl Sessions for RedisSessions {
    fn create(&self, key: SessionKey, opening: Opening, caps: Caps) -> Pending<'_, Created> {
        Box::pin(self.0.create(key, opening, caps))
    }

    fn get<'a>(&'a self, key: &'a SessionKey) -> Pending<'a, Option<Stored>> {
        Box::pin(self.0.look(key, false))
    }

    fn touch<'a>(&'a self, key: &'a SessionKey) -> Pending<'a, Option<Stored>> {
        Box::pin(self.0.look(key, true))
    }

    fn update<'a>(
        &'a self,
        key: &'a SessionKey,
        version: u64,
        state: State,
    ) -> Pending<'a, Update> {
        Box::pin(self.0.update(key, version, state))
    }

    fn stream_opened<'a>(&'a self, key: &'a SessionKey) -> Pending<'a, Option<Stored>> {
        Box::pin(Work::stream_opened(&self.0, key))
    }

    fn stream_closed(&self, key: &SessionKey) {
        Work::stream_closed(&self.0, key);
    }

    fn keep<'a>(
        &'a self,
        key: &'a SessionKey,
        kind: Kind,
        name: &'a str,
        record: Bytes,
    ) -> Pending<'a, Option<Kept>> {
        Box::pin(self.0.keep(key, kind, name, record))
    }

    fn kept<'a>(
        &'a self,
        key: &'a SessionKey,
        kind: Kind,
        name: &'a str,
    ) -> Pending<'a, Option<Bytes>> {
        Box::pin(self.0.kept(key, kind, name))
    }

    fn all_kept<'a>(
        &'a self,
        key: &'a SessionKey,
        kind: Kind,
    ) -> Pending<'a, Vec<(String, Bytes)>> {
        Box::pin(self.0.all_kept(key, kind))
    }

    fn swap_kept<'a>(
        &'a self,
        key: &'a SessionKey,
        kind: Kind,
        name: &'a str,
        expected: &'a [u8],
        record: Option<Bytes>,
    ) -> Pending<'a, bool> {
        Box::pin(self.0.swap_kept(key, (kind, name), expected, record))
    }

    fn end<'a>(&'a self, key: &'a SessionKey) -> Pending<'a, Option<Ended>> {
        Box::pin(self.0.end(key))
    }

    fn sweep(&self) -> Pending<'_, Vec<Ended>> {
        Box::pin(self.0.sweep())
    }

    fn count<'a>(&'a self, tenant: &'a TenantId, principal: Option<&'a str>) -> Pending<'a, usize> {
        Box::pin(async move { self.0.index(tenant).count(tenant, principal).await })
    }

    fn census(&self) -> Option<Vec<Census>> {
        Some(self.0.census.counted())
    }

    fn list<'a>(&'a self, tenant: &'a TenantId, max: usize) -> Pending<'a, Vec<Stored>> {
        Box::pin(self.0.list(tenant, max))
    }
}

impl fmt::Debug for RedisSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSessions")
            .field("replica", self.0.redis.replica())
            .finish_non_exhaustive()
    }
}

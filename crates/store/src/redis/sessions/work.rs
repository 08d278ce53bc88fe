//! What all operations share, looking a session up, and changing it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use dashmap::DashMap;
use vestibule_terms::{Clock, TenantId};

use super::super::{Redis, Reply, Script, Slot};
use super::cache::Cache;
use super::census::Counting;
use super::index::{Entry, Index, number, unreadable};
use super::record::{self, Found};
use super::scripts;
use super::streams::Streams;
use crate::{Ended, Lifetimes, SessionKey, State, StoreError, Stored, Update};

/// What nobody looks at runs out so long after the idle limit has passed twice.
const NET_MORE: Duration = Duration::from_secs(60 * 60);

pub(super) struct Work {
    pub(super) redis: Redis,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) lifetimes: Lifetimes,
    pub(super) cache: Cache,
    pub(super) streams: Streams,
    /// Ended sessions that nobody has been told of.
    pub(super) untold: Mutex<Vec<Ended>>,
    /// The tenants that the fleet knows to have sessions, and since when.
    pub(super) tenants: DashMap<TenantId, u64>,
    /// Where the sweep goes on among them.
    pub(super) page: Mutex<usize>,
    /// What it has counted.
    pub(super) census: Counting,
}

impl Work {
    pub(super) fn new(redis: Redis, lifetimes: Lifetimes, clock: Arc<dyn Clock>) -> Self {
        Self {
            redis,
            clock,
            lifetimes,
            cache: Cache::default(),
            streams: Streams::default(),
            untold: Mutex::default(),
            tenants: DashMap::new(),
            page: Mutex::default(),
            census: Counting::default(),
        }
    }

    pub(super) fn index(&self, tenant: &TenantId) -> Index<'_> {
        Index::of(&self.redis, tenant, self.net())
    }

    pub(super) fn net(&self) -> Bytes {
        number((self.lifetimes.idle * 2 + NET_MORE).as_millis())
    }

    /// Runs a script of a session.
    pub(super) async fn ask(
        &self,
        script: &'static Script,
        slot: &Slot,
        now: u64,
        more: Vec<Bytes>,
    ) -> Result<Reply, StoreError> {
        let keys = ["s", "o", "b"].map(|suffix| slot.key(suffix));
        let age = self.lifetimes.age.map(|age| number(age.as_millis()));
        let mut args = vec![
            number(now),
            number(self.lifetimes.idle.as_millis()),
            age.unwrap_or(Bytes::from_static(b"-1")),
            self.net(),
        ];
        args.extend(more);
        self.redis.run(script, slot, &keys, args).await
    }

    pub(super) async fn look(
        &self,
        key: &SessionKey,
        counts: bool,
    ) -> Result<Option<Stored>, StoreError> {
        self.settle(key).await;
        let now = self.clock.unix_millis();
        if let Some(stored) = self.cache.fresh(key, counts, now, &self.lifetimes) {
            return Ok(Some(stored));
        }
        let slot = Slot::of(key);
        let told = self.ask(&scripts::LOAD, &slot, now, vec![number(u8::from(counts))]);
        let told = match told.await {
            Err(StoreError::Unavailable(why)) => return self.without_store(key, now, why),
            told => told?,
        };
        let Some(found) = Found::read(&told)? else {
            self.cache.remove(key);
            return Ok(None);
        };
        self.cache.put(key, &found, now, counts);
        if counts && self.cache.index_is_due(key, now) {
            self.note_use(key, &found, now).await;
        }
        Ok(Some(found.stored))
    }

    pub(super) fn without_store(
        &self,
        key: &SessionKey,
        now: u64,
        why: String,
    ) -> Result<Option<Stored>, StoreError> {
        let known = self.cache.without_store(key, now, &self.lifetimes);
        known.map(Some).ok_or(StoreError::Unavailable(why))
    }

    /// The index may hear of it later: a failure is no failure of the caller's.
    pub(super) async fn note_use(&self, key: &SessionKey, found: &Found, now: u64) {
        let (index, entry) = (self.index(key.tenant()), Entry::of(key));
        let known = match index.used(&entry, found.in_use()).await {
            Ok(false) => {
                let revision = found.stored.opening.revision;
                index.enter(&entry, revision, now, None).await.map(drop)
            }
            known => known.map(drop),
        };
        if known.is_ok() {
            self.cache.indexed(key, now);
        }
    }

    pub(super) async fn update(
        &self,
        key: &SessionKey,
        version: u64,
        state: State,
    ) -> Result<Update, StoreError> {
        let now = self.clock.unix_millis();
        let more = vec![number(version), record::state(&state)];
        let told = self.ask(&scripts::UPDATE, &Slot::of(key), now, more).await;
        let told = told.inspect_err(|_unknown| self.cache.doubt(key))?;
        let [done, session] = told.list() else {
            self.cache.remove(key);
            return Ok(Update::Gone);
        };
        let found = Found::read(session)?.ok_or_else(unreadable)?;
        self.cache.put(key, &found, now, false);
        Ok(match done.int() {
            Some(1) => Update::Done(found.stored),
            _ => Update::Conflict(found.stored),
        })
    }
}

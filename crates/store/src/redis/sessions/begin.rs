//! How sessions begin and end.

use bytes::Bytes;
use futures_util::future::join_all;
use vestibule_terms::TenantId;

use super::super::Slot;
use super::index::{Entered, Entry, Index, Place, Victims, number};
use super::record::{self, Finish, Found};
use super::scripts;
use super::sweep::Harvest;
use super::work::Work;
use crate::{Caps, Created, Ended, Opening, SessionKey, State, StoreError, Stored};

/// So often sessions are asked to make room before the caller is told to come again: others create
/// and use sessions at the same time.
const ROUNDS: usize = 16;
/// A tenant that is known to have sessions is named again as often, in milliseconds.
const TENANT_EVERY: u64 = 10 * 60 * 1_000;
impl Work {
    pub(super) async fn create(
        &self,
        key: SessionKey,
        opening: Opening,
        caps: Caps,
    ) -> Result<Created, StoreError> {
        self.settle_tenant(key.tenant()).await;
        let now = self.clock.unix_millis();
        self.name_tenant(key.tenant(), now).await?;
        let (index, entry) = (self.index(key.tenant()), Entry::of(&key));
        let revision = opening.revision;
        let mut evicted = Harvest::of(self);
        let mut stored = None;
        for _ in 0..ROUNDS {
            match index.enter(&entry, revision, now, Some(caps)).await? {
                Entered::Yes => {}
                Entered::Exists(place) if stored.is_some() && place == entry.place => {}
                Entered::Exists(place) => {
                    self.remove_if_gone(&index, &entry, place).await?;
                    continue;
                }
                Entered::Over(victims) => {
                    for some in victims {
                        self.evict(&index, some, now, &mut evicted).await?;
                    }
                    continue;
                }
                Entered::Full(error) => {
                    self.take_back(&index, &entry, now, stored.is_some()).await;
                    return Err(error);
                }
            }
            let session = match stored.take() {
                Some(session) => session,
                None => self.store(&key, &opening, now).await?,
            };
            // Who made room in between has found a name without a session, and removed it, or a
            // session that was the last used, and ended it.
            if index.used(&entry, now).await? || !self.is_there(&entry.place).await? {
                let evicted = evicted.take();
                return Ok(Created { session, evicted });
            }
            stored = Some(session);
        }
        self.take_back(&index, &entry, now, stored.is_some()).await;
        let why = "index enter: too many begin at the same time".to_owned();
        Err(StoreError::Unavailable(why))
    }

    async fn store(
        &self,
        key: &SessionKey,
        opening: &Opening,
        now: u64,
    ) -> Result<Stored, StoreError> {
        let more = vec![
            record::opening(key, opening),
            record::state(&State::default()),
        ];
        let slot = Slot::of(key);
        let stored = self.ask(&scripts::CREATE, &slot, now, more);
        if stored.await?.int() != Some(1) {
            return Err(StoreError::Exists);
        }
        let found = Found::new(key.clone(), opening.clone(), now);
        self.cache.put(key, &found, now, true);
        self.cache.indexed(key, now);
        Ok(found.stored)
    }

    /// A session that was stored and is not to be: nobody has heard of it.
    async fn take_back(&self, index: &Index<'_>, entry: &Entry, now: u64, stored: bool) {
        if stored {
            let why = vec![Bytes::from_static(b"requested")];
            if let Ok(mut ended) = self.finish(index, entry, now, why).await {
                ended.take();
            }
        }
    }

    async fn is_there(&self, place: &Place) -> Result<bool, StoreError> {
        let keys = [place.slot.key("s")];
        let there = self.redis.run(&scripts::EXISTS, &place.slot, &keys, vec![]);
        Ok(there.await?.int() == Some(1))
    }

    /// A name in the index stands for a session, or for one that was never stored or has ended.
    async fn remove_if_gone(
        &self,
        index: &Index<'_>,
        entry: &Entry,
        place: Place,
    ) -> Result<(), StoreError> {
        if self.is_there(&place).await? {
            return Err(StoreError::Exists);
        }
        index.leave(&entry.at(place)).await
    }

    async fn evict(
        &self,
        index: &Index<'_>,
        victims: Victims,
        now: u64,
        evicted: &mut Harvest<'_>,
    ) -> Result<(), StoreError> {
        let Victims {
            mut needed,
            mut sessions,
        } = victims;
        while needed > 0 && !sessions.is_empty() {
            let rest = sessions.split_off(needed.min(sessions.len()));
            let ends = sessions.iter().map(|(victim, used)| {
                let why = vec![Bytes::from_static(b"evicted"), number(used)];
                self.finish(index, victim, now, why)
            });
            for ended in join_all(ends).await {
                let ended = ended?;
                needed = needed.saturating_sub(ended.len());
                evicted.extend(ended);
            }
            sessions = rest;
        }
        Ok(())
    }

    /// Ends the session, if the script thinks so, and puts the index right in any case.
    pub(super) async fn finish(
        &self,
        index: &Index<'_>,
        entry: &Entry,
        now: u64,
        why: Vec<Bytes>,
    ) -> Result<Harvest<'_>, StoreError> {
        let mut harvest = Harvest::of(self);
        let told = self.ask(&scripts::FINISH, &entry.place.slot, now, why);
        match Finish::read(&told.await?)? {
            Finish::Gone => index.leave(entry).await?,
            Finish::GoesOn(found) => {
                index.used(entry, found.in_use()).await?;
            }
            Finish::Ended(ended) => {
                self.cache.remove(&ended.session.key);
                harvest.push(ended);
                // It has ended, whatever becomes of its name.
                let _left_for_later = index.leave(entry).await.is_err();
            }
        }
        Ok(harvest)
    }

    pub(super) async fn end(&self, key: &SessionKey) -> Result<Option<Ended>, StoreError> {
        self.settle(key).await;
        let (index, entry) = (self.index(key.tenant()), Entry::of(key));
        let now = self.clock.unix_millis();
        let why = vec![Bytes::from_static(b"requested")];
        let mut ended = self.finish(&index, &entry, now, why).await?;
        self.cache.remove(key);
        Ok(ended.take().pop())
    }

    /// Says that the tenant has sessions, for those who sweep.
    async fn name_tenant(&self, tenant: &TenantId, now: u64) -> Result<(), StoreError> {
        let named = self.tenants.get(tenant).map(|at| *at);
        if named.is_some_and(|at| (at..at + TENANT_EVERY).contains(&now)) {
            return Ok(());
        }
        let slot = Slot::of_fleet();
        let name = Bytes::copy_from_slice(tenant.as_str().as_bytes());
        let args = vec![name, number(now), self.net()];
        let keys = [slot.key("tenants")];
        self.redis.run(&scripts::TENANT, &slot, &keys, args).await?;
        self.tenants.insert(tenant.clone(), now);
        Ok(())
    }
}

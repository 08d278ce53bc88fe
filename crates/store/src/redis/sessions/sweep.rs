//! What is done from time to time, and for a whole tenant.

use std::sync::PoisonError;

use bytes::Bytes;
use futures_util::future::join_all;
use vestibule_terms::TenantId;

use super::super::Slot;
use super::index::{Entry, number};
use super::record::Found;
use super::scripts;
use super::work::Work;
use crate::{Ended, StoreError, Stored};

/// How many tenants one sweep looks at; the next goes on with those after them.
const TENANTS: usize = 64;
/// How many sessions are looked at together, and how often for one tenant.
const SESSIONS: usize = 64;
const ROUNDS: usize = 16;
/// A tenant without sessions is forgotten when none was opened for so long, in milliseconds.
const TENANT_FORGOTTEN: u64 = 60 * 60 * 1_000;

/// Sessions that have ended, on their way to whoever asked; if he goes away, the next sweep hands them
/// out.
pub(super) struct Harvest<'a> {
    work: &'a Work,
    ended: Vec<Ended>,
}

impl<'a> Harvest<'a> {
    pub(super) fn of(work: &'a Work) -> Self {
        Self {
            work,
            ended: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, ended: Ended) {
        self.ended.push(ended);
    }

    pub(super) fn extend(&mut self, mut more: Harvest<'_>) {
        self.ended.append(&mut more.ended);
    }

    pub(super) fn len(&self) -> usize {
        self.ended.len()
    }

    pub(super) fn take(&mut self) -> Vec<Ended> {
        std::mem::take(&mut self.ended)
    }
}

impl Drop for Harvest<'_> {
    fn drop(&mut self) {
        if !self.ended.is_empty() {
            let mut untold = self
                .work
                .untold
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            untold.append(&mut self.ended);
        }
    }
}

impl Work {
    pub(super) async fn sweep(&self) -> Result<Vec<Ended>, StoreError> {
        let now = self.clock.unix_millis();
        self.cache.prune(now);
        self.streams.say_again(now);
        for some in self.streams.all_unheard(None).chunks(SESSIONS) {
            join_all(some.iter().map(|key| self.settle(key))).await;
        }
        let mut ended = Harvest::of(self);
        let untold =
            std::mem::take(&mut *self.untold.lock().unwrap_or_else(PoisonError::into_inner));
        untold.into_iter().for_each(|one| ended.push(one));
        let swept = self.sweep_tenants(now, &mut ended).await;
        match swept {
            // What has ended is handed out; the error comes again.
            Err(error) if ended.ended.is_empty() => Err(error),
            _ => Ok(ended.take()),
        }
    }

    async fn sweep_tenants(&self, now: u64, ended: &mut Harvest<'_>) -> Result<(), StoreError> {
        let (tenants, last) = self.some_tenants().await?;
        let mut swept = Ok(());
        for tenant in tenants {
            swept = self.sweep_tenant(&tenant, now, ended).await;
            if swept.is_err() {
                break;
            }
        }
        self.census.page(swept.is_ok(), last);
        swept
    }

    /// The next tenants in turn, and whether they are the last of the round.
    async fn some_tenants(&self) -> Result<(Vec<TenantId>, bool), StoreError> {
        let from = *self.page.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = Slot::of_fleet();
        let keys = [slot.key("tenants")];
        let args = vec![number(from), number(from + TENANTS - 1)];
        let reply = self
            .redis
            .run(&scripts::TENANTS, &slot, &keys, args)
            .await?;
        let names = reply.list();
        let last = names.len() < TENANTS;
        let next = if last { 0 } else { from + TENANTS };
        *self.page.lock().unwrap_or_else(PoisonError::into_inner) = next;
        let tenants = names.iter();
        let tenants = tenants.filter_map(|name| TenantId::new(name.text()?).ok());
        Ok((tenants.collect(), last))
    }

    async fn sweep_tenant(
        &self,
        tenant: &TenantId,
        now: u64,
        ended: &mut Harvest<'_>,
    ) -> Result<(), StoreError> {
        let before = |limit: std::time::Duration| {
            now.checked_sub(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX))
        };
        let (used, born) = (before(self.lifetimes.idle), self.lifetimes.age.map(before));
        let index = self.index(tenant);
        for _ in 0..ROUNDS {
            let over = index.over(used, born.flatten(), SESSIONS);
            let (counts, entries) = over.await?;
            let none = counts.is_empty();
            self.census.tenant(tenant, counts);
            if none {
                return self.forget_tenant(tenant, now).await;
            }
            let why = vec![Bytes::from_static(b"over")];
            let ends = entries.iter();
            let ends = ends.map(|entry| self.finish(&index, entry, now, why.clone()));
            let mut error = None;
            for one in join_all(ends).await {
                match one {
                    Ok(one) => ended.extend(one),
                    Err(failed) => error = Some(failed),
                }
            }
            if let Some(error) = error {
                return Err(error);
            }
            if entries.len() < SESSIONS {
                break;
            }
        }
        Ok(())
    }

    async fn forget_tenant(&self, tenant: &TenantId, now: u64) -> Result<(), StoreError> {
        let slot = Slot::of_fleet();
        let keys = [slot.key("tenants")];
        let name = Bytes::copy_from_slice(tenant.as_str().as_bytes());
        let args = vec![name, number(now.saturating_sub(TENANT_FORGOTTEN))];
        let reply = self.redis.run(&scripts::NO_TENANT, &slot, &keys, args);
        reply.await.map(drop)
    }

    pub(super) async fn list(
        &self,
        tenant: &TenantId,
        max: usize,
    ) -> Result<Vec<Stored>, StoreError> {
        let index = self.index(tenant);
        let (mut found, mut from) = (Vec::new(), 0);
        while found.len() < max {
            let entries = index.oldest(from, SESSIONS).await?;
            let last = entries.len() < SESSIONS;
            from += entries.len();
            for session in join_all(entries.iter().map(|entry| self.peek(entry))).await {
                found.extend(session?);
            }
            if last {
                break;
            }
        }
        found.truncate(max);
        Ok(found)
    }

    async fn peek(&self, entry: &Entry) -> Result<Option<Stored>, StoreError> {
        let now = self.clock.unix_millis();
        let told = self.ask(&scripts::LOAD, &entry.place.slot, now, vec![number(0)]);
        Ok(Found::read(&told.await?)?.map(|found| found.stored))
    }
}

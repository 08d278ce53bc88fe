//! Streams that open and close, and telling the store of them.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use vestibule_terms::TenantId;

use super::super::Slot;
use super::index::number;
use super::record::Found;
use super::scripts;
use super::streams::Statement;
use super::work::Work;
use crate::{SessionKey, StoreError, Stored};

impl Work {
    pub(super) async fn stream_opened(
        work: &Arc<Self>,
        key: &SessionKey,
    ) -> Result<Option<Stored>, StoreError> {
        let now = work.clock.unix_millis();
        // Whatever becomes of this call, what was counted is counted back.
        let mut counted = Counted(Some((work, key)));
        let statement = work.streams.opened(key, now);
        let stored = match work.say(key, statement, true).await {
            Err(StoreError::Unavailable(why)) => work.without_store(key, now, why)?,
            said => said?,
        };
        if stored.is_some() {
            counted.0 = None;
        }
        Ok(stored)
    }

    pub(super) fn stream_closed(work: &Arc<Self>, key: &SessionKey) {
        if !work.streams.closed(key, work.clock.unix_millis()) {
            return;
        }
        let (work, key) = (Arc::clone(work), key.clone());
        let redis = work.redis.clone();
        redis.spawn(async move { work.settle(&key).await });
    }

    /// Tells the store what it has not heard of the session's streams. What it does not hear now is
    /// told again by the sweep.
    pub(super) async fn settle(&self, key: &SessionKey) {
        if let Some(statement) = self.streams.unheard(key) {
            let _told_again = self.say(key, statement, false).await.is_err();
        }
    }

    /// A session whose streams have just closed may be one that makes room.
    pub(super) async fn settle_tenant(&self, tenant: &TenantId) {
        let unheard = self.streams.all_unheard(Some(tenant));
        for some in unheard.chunks(64) {
            join_all(some.iter().map(|key| self.settle(key))).await;
        }
    }

    async fn say(
        &self,
        key: &SessionKey,
        statement: Statement,
        opens: bool,
    ) -> Result<Option<Stored>, StoreError> {
        let replica = self.redis.replica().as_str().as_bytes();
        let more = vec![
            Bytes::copy_from_slice(replica),
            number(statement.open),
            number(statement.deadline()),
            number(statement.turn),
            number(u8::from(opens)),
        ];
        let slot = Slot::of(key);
        let told = self.ask(&scripts::STREAMS, &slot, statement.at, more);
        let found = Found::read(&told.await?)?;
        self.streams.heard(key, statement);
        let Some(found) = found else {
            self.cache.remove(key);
            return Ok(None);
        };
        self.cache.put(key, &found, statement.at, true);
        self.note_use(key, &found, statement.at).await;
        Ok(Some(found.stored))
    }
}

/// A stream that was counted as open, until it is known to be.
struct Counted<'a>(Option<(&'a Arc<Work>, &'a SessionKey)>);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        if let Some((work, key)) = self.0 {
            Work::stream_closed(work, key);
        }
    }
}

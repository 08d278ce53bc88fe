//! Housekeeping: streams whose replica is dead get somebody who ends them (EL-15), what lives is
//! said to live, and what nobody needs here goes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use vestibule_store::ReplicaId;
use vestibule_terms::mutation;

use super::core::{Core, unavailable};
use super::record::{Found, entry_of};
use crate::LogError;
use crate::event_id::StreamId;
use crate::held::Held;
use crate::log::{Lost, Swept};
use crate::session_log::Role;

/// How long a stream of another replica stays here that nobody reads.
const UNREAD: Duration = Duration::from_secs(60);
/// How many streams of one dead replica are taken over in one sweep: others come too.
const AT_ONCE: usize = 1000;

impl Core {
    /// See [`StreamLog::sweep`](crate::StreamLog::sweep).
    pub(super) async fn sweep(self: &Arc<Self>) -> Result<Swept, LogError> {
        if self.fleet.may_act() && !mutation::on("forget-terminal") {
            // an error means that the store is away: there is a next time
            let _next_time = self.take_over().await.is_err();
        }
        let renewal = self.memory.shared().limits.meta / 4;
        for held in self.memory.held() {
            held.with(|log, at| {
                log.renew(renewal, at);
                log.drop_unread(UNREAD, at);
                log.expire(at.now);
            });
            let asks = self.asking.contains(&held.session);
            if !asks && held.with(|log, _| log.retire()) {
                self.drop_session(&held);
            }
        }
        let mut swept = self.memory.swept();
        self.ask_about_questions(&mut swept).await;
        Ok(swept)
    }

    /// Takes over what dead replicas have left unfinished; whoever is first is the one.
    async fn take_over(self: &Arc<Self>) -> Result<(), LogError> {
        for dead in self.fleet.dead().await.map_err(unavailable)? {
            let left = self
                .fleet
                .owned_by(&dead, AT_ONCE)
                .await
                .map_err(unavailable)?;
            // side by side: who dies in the midst of it leaves the rest to wait for another death
            let all = left.into_iter();
            let all = join_all(all.map(|entry| self.take_over_one(&dead, entry)));
            all.await.into_iter().collect::<Result<(), _>>()?;
        }
        Ok(())
    }

    async fn take_over_one(
        self: &Arc<Self>,
        dead: &ReplicaId,
        entry: Bytes,
    ) -> Result<(), LogError> {
        if let Some((session, id)) = entry_of(entry.clone()) {
            let held = self.session(&session);
            match self.inherit(&held, id, dead).await {
                // dropped here for want of use in this very moment: the next sweep finds it anew
                Err(LogError::Gone) => return Ok(()),
                inherited => inherited?,
            }
        }
        let over = self.fleet.disowns(dead, entry).await;
        over.map_err(unavailable)
    }

    async fn inherit(
        self: &Arc<Self>,
        held: &Arc<Held>,
        id: StreamId,
        dead: &ReplicaId,
    ) -> Result<(), LogError> {
        let Found::Record(record) = self.load(held, id, 0).await? else {
            return Ok(());
        };
        // it may be ours already, and the answer that said so was lost
        let here = held.with(|log, _| log.role(id)) == Some(Role::Own);
        let to_be_had = *record.owner == *dead.as_str() || record.owner == self.me && !here;
        if to_be_had && record.ended.is_none() {
            self.acquire(held, id, record.fence).await?;
        }
        Ok(())
    }

    /// Questions that have waited too long in the store are handed to their askers.
    async fn ask_about_questions(&self, swept: &mut Swept) {
        let asking: Vec<_> = self.asking.iter().map(|session| session.clone()).collect();
        for session in asking {
            let held = self.session(&session);
            let lost = match self.expire_waiting(&held).await {
                Ok(lost) => lost,
                Err(LogError::Unavailable(_)) => return, // there is a next time
                Err(_gone) => vec![],
            };
            swept.lost.extend(lost.into_iter().map(|question| Lost {
                session: session.clone(),
                question,
            }));
        }
    }
}

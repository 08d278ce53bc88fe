//! From the store to this replica: a stream that another one wrote, or still writes.
//!
//! What its owner still writes is followed here; what no living replica owns, and every standalone
//! stream whose client has come here, is taken over, and whoever owned it is fenced off (EL-7). A
//! loss is not the last word while the owner lives: it has the events that the store may have lost,
//! and is told to repair it (EL-12).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep, timeout};
use vestibule_store::{Liveness, MacKey, Purpose, ReplicaId};

use super::core::{Core, unavailable};
use super::hint::Kind;
use super::record::{Found, found};
use super::{keys, script};
use crate::LogError;
use crate::event_id::{Position, StreamId};
use crate::held::Held;
use crate::resume::Resume;
use crate::session_log::{Record, Role};

/// How long an owner has to repair what the store has lost (EL-12).
pub(super) const REPAIR: Duration = Duration::from_secs(3);
/// How long whoever goes on with a call has to come to where the client stands (EL-15): the store has
/// lost a tail and its owner is dead, but the upstream says it all once more, under the same ids.
pub(super) const CATCH_UP: Duration = Duration::from_secs(15);
/// How often it is looked whether it has.
pub(super) const LOOK: Duration = Duration::from_millis(100);

/// How a look-up ended.
enum Look {
    /// The stream is here now.
    Here,
    /// There is no such stream.
    Nothing,
    /// Its key is not configured any more.
    KeyGone,
    /// The session has ended.
    Gone,
}

impl Core {
    /// See [`StreamLog::resume`](crate::StreamLog::resume): everything after the id was verified.
    pub(super) async fn resume(
        self: &Arc<Self>,
        held: &Arc<Held>,
        position: &Position,
    ) -> Result<Resume, LogError> {
        let id = position.stream;
        if let Some(decided) = self.decide_here(held, position).await? {
            return Ok(decided);
        }
        let begun = Instant::now();
        loop {
            let may_wait = begun.elapsed() < REPAIR;
            match self.look_up(held, id, may_wait.then_some(position)).await? {
                Some(Look::Here) => {
                    let resumed = held.resume(position)?;
                    if !resumed.is_loss() {
                        return Ok(resumed);
                    }
                    let (role, comes) = held.with(|log, _| (log.role(id), log.comes_to(position)));
                    // else whoever could repair it is gone
                    let repairs = may_wait && role == Some(Role::Mirror);
                    if !(repairs || comes && begun.elapsed() < CATCH_UP) {
                        return Ok(resumed);
                    }
                }
                Some(Look::Nothing) if may_wait && !id.is_standalone() && !self.unfound.has(id) => {
                    self.ask_everybody(held, id).await;
                    sleep(LOOK * 5).await;
                }
                Some(Look::Nothing) => {
                    if !id.is_standalone() {
                        self.unfound.note(id);
                    }
                    held.with(|log, _| log.drop_locally(id));
                    return held.resume(position);
                }
                Some(Look::KeyGone) => return held.reopen(),
                Some(Look::Gone) => {
                    self.gone(held);
                    return Ok(Resume::NoSession);
                }
                None => {}
            }
            sleep(LOOK).await;
        }
    }

    /// What can be said without a look at the store: everything but a loss, of streams that are
    /// written here for certain.
    async fn decide_here(
        self: &Arc<Self>,
        held: &Arc<Held>,
        position: &Position,
    ) -> Result<Option<Resume>, LogError> {
        let id = position.stream;
        match held.with(|log, _| log.role(id)) {
            Some(Role::Diverged) => return held.resume(position).map(Some),
            Some(Role::Own) if self.fleet.may_act() => {}
            Some(Role::Own | Role::Mirror | Role::Fenced) | None => return Ok(None),
        }
        let (loses, known) = held.with(|log, at| {
            log.expire(at.now);
            let loses = log.decide(position).is_loss();
            if loses {
                log.probe(id);
            }
            (loses, log.role(id).is_some())
        });
        if held.with(|log, at| log.holds_back(id, at)) {
            return Err(LogError::Unavailable(
                "the stream waits for the store".into(),
            ));
        }
        if !loses || !known {
            return held.resume(position).map(Some); // its time is over, and we were its owner
        }
        // somebody else may have written what we do not know of
        let _asked_for_long_enough = timeout(REPAIR, probed(held, id)).await.is_err();
        let (role, comes) = held.with(|log, _| (log.role(id), log.comes_to(position)));
        match role {
            Some(Role::Own) if comes => Ok(None),
            Some(Role::Own | Role::Diverged) => held.resume(position).map(Some),
            Some(Role::Mirror | Role::Fenced) | None => Ok(None),
        }
    }

    /// Brings a stream here from the store. None: it has to be looked at again, also when its owner
    /// may have what a client that stands there would lose.
    async fn look_up(
        self: &Arc<Self>,
        held: &Arc<Held>,
        id: StreamId,
        judge: Option<&Position>,
    ) -> Result<Option<Look>, LogError> {
        let record = match self.load(held, id, 0).await? {
            Found::Record(record) => record,
            Found::Nothing => return Ok(Some(Look::Nothing)),
            Found::Gone => return Ok(Some(Look::Gone)),
            Found::Taken => return Ok(None),
        };
        let Some(key) = self.chain_key(held, &record) else {
            return Ok(Some(Look::KeyGone));
        };
        let owner = self.owner(&record).await?;
        let here = held.with(|log, _| (log.role(id), log.fence(id)));
        if here == (Some(Role::Own), record.fence) && owner == Owner::Me {
            return Ok(Some(Look::Here));
        }
        if owner == Owner::Another && judge.is_some_and(|at| record.loses(at, key.clone())) {
            self.tell(&record.owner, Kind::Repair, held, id).await;
            return Ok(None);
        }
        if owner == Owner::Another && !id.is_standalone() {
            held.grow(Some(id), |log, at| {
                log.bring(*record, key, Role::Mirror, at)
            })?;
            return Ok(Some(Look::Here));
        }
        if owner == Owner::Another {
            held.with(|log, _| log.await_word(id, true));
        }
        let taken = self.acquire(held, id, record.fence).await?;
        Ok(taken.then_some(Look::Here))
    }

    /// Takes a stream over, if it still has that fence.
    pub(super) async fn acquire(
        self: &Arc<Self>,
        held: &Arc<Held>,
        id: StreamId,
        fence: u64,
    ) -> Result<bool, LogError> {
        if !id.is_standalone() {
            let entry = super::record::entry(&held.session, id);
            self.fleet.owns(entry).await.map_err(unavailable)?;
        }
        let slot = held.slot();
        let [stream, events] = keys::stream(slot, id);
        let args = vec![
            keys::text(&self.me),
            keys::place_of(slot, id),
            keys::number(fence),
            keys::millis(self.memory.shared().limits.meta),
        ];
        let all = [stream, events, keys::log(slot)];
        let reply = self.once(&script::ACQUIRE, slot, &all, args).await?;
        let Found::Record(record) = found(reply, id, &self.times.now(), self.at_rest(held)) else {
            // unless it is ours by another way at the same time
            if held.with(|log, _| log.role(id)) != Some(Role::Own) {
                self.own_no_more(held, id).await;
            }
            return Ok(false);
        };
        let Some(key) = self.chain_key(held, &record) else {
            return Ok(false);
        };
        held.grow(Some(id), |log, at| log.bring(*record, key, Role::Own, at))?;
        Ok(true)
    }

    /// A stream as the store has it, with its events after that number.
    pub(super) async fn load(
        &self,
        held: &Held,
        id: StreamId,
        after: u64,
    ) -> Result<Found, LogError> {
        let slot = held.slot();
        let [stream, events] = keys::stream(slot, id);
        let all = [stream, events, keys::log(slot)];
        let args: Vec<Bytes> = vec![keys::number(after)];
        let reply = self.once(&script::LOAD, slot, &all, args).await?;
        Ok(found(reply, id, &self.times.now(), self.at_rest(held)))
    }

    fn chain_key(&self, held: &Held, record: &Record) -> Option<MacKey> {
        let tenant = held.session.tenant();
        let sealer = &self.memory.shared().sealer;
        sealer.mac_key_of(&record.key_id, Purpose::EVENT_CHAIN, tenant)
    }

    async fn owner(&self, record: &Record) -> Result<Owner, LogError> {
        if record.owner == self.me {
            return Ok(Owner::Me);
        }
        let Some(owner) = ReplicaId::new(&record.owner) else {
            return Ok(Owner::Dead);
        };
        let liveness = self.fleet.liveness(&owner).await.map_err(unavailable)?;
        Ok(match liveness {
            Liveness::Dead => Owner::Dead,
            Liveness::Alive | Liveness::Unknown => Owner::Another,
        })
    }

    /// Whoever owns a stream of which the store has nothing may still have all of it.
    pub(super) async fn ask_everybody(&self, held: &Held, id: StreamId) {
        let others = self.fleet.others().await.unwrap_or_default();
        for other in others {
            self.tell(other.as_str(), Kind::Repair, held, id).await;
        }
    }

    /// Whether that stream is to be had here, brought here if need be.
    pub(super) async fn bring_here(
        self: &Arc<Self>,
        held: &Arc<Held>,
        id: StreamId,
    ) -> Result<(), LogError> {
        let until = Instant::now() + REPAIR;
        loop {
            match self.look_up(held, id, None).await? {
                Some(Look::Here) => return Ok(()),
                Some(Look::Nothing | Look::KeyGone) => return Err(LogError::Gone),
                Some(Look::Gone) => {
                    self.gone(held);
                    return Err(LogError::Gone);
                }
                None if Instant::now() >= until => return Err(LogError::Gone),
                None => sleep(LOOK).await,
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Owner {
    Me,
    Another,
    Dead,
}

/// Returns when the store has answered what it was asked of the stream.
async fn probed(held: &Arc<Held>, id: StreamId) {
    loop {
        let Some(wake) = held.with(|log, _| log.wake_of(id)) else {
            return;
        };
        let woken = wake.notified();
        tokio::pin!(woken);
        woken.as_mut().enable();
        if !held.with(|log, _| log.is_probing(id)) {
            return;
        }
        woken.await;
    }
}

impl Resume {
    fn is_loss(&self) -> bool {
        match self {
            Resume::Replay { .. }
            | Resume::Ending { .. }
            | Resume::Finished
            | Resume::Foreign
            | Resume::NoSession => false,
            Resume::Unknown | Resume::LostPost { .. } | Resume::StandaloneGap { .. } => true,
        }
    }
}

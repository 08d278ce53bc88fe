//! The end of a session, and what is asked about one.

use std::sync::Arc;
use std::time::Duration;

use vestibule_store::redis::{Key, Reply};

use super::core::{Core, PATIENCE};
use super::hint::Kind;
use super::{Mode, keys, script};
use crate::LogError;
use crate::event_id::StreamId;
use crate::held::Held;
use crate::log::StreamRef;
use crate::tail::Stop;

/// How long it is remembered that a session has ended: longer than anybody goes on with one that he
/// cannot look up.
const REMEMBERED: Duration = Duration::from_secs(600);
/// How long its end is tried if the store is away.
const TRIED: Duration = Duration::from_secs(60);
/// Streams that are removed at once.
const AT_ONCE: usize = 50;

impl Core {
    /// Ends the session everywhere; the questions of it that waited.
    pub(super) async fn forget(self: &Arc<Self>, held: &Arc<Held>) -> Vec<Arc<str>> {
        match self.forget_within(held, PATIENCE).await {
            Ok(questions) => questions,
            Err(_away) => {
                let (core, held) = (Arc::clone(self), Arc::clone(held));
                self.spawn(async move {
                    let _expires = core.forget_within(&held, TRIED).await.is_err();
                });
                vec![]
            }
        }
    }

    async fn forget_within(
        &self,
        held: &Arc<Held>,
        time: Duration,
    ) -> Result<Vec<Arc<str>>, LogError> {
        let slot = held.slot();
        let [waiting, index] = keys::waiting(slot);
        let args = vec![
            keys::text(&self.me),
            keys::text(slot.tag()),
            keys::millis(REMEMBERED),
        ];
        let all = [keys::log(slot), waiting, index];
        let reply = self.insist(&script::FORGET, slot, &all, args, time).await?;
        let [_, questions, streams] = reply.list() else {
            return Ok(vec![]); // it had ended before
        };
        let streams = streams.list().iter().filter_map(Reply::text);
        let streams: Vec<StreamId> = streams.filter_map(keys::stream_of).collect();
        for some in streams.chunks(AT_ONCE) {
            let keys: Vec<Key> = some.iter().flat_map(|id| keys::stream(slot, *id)).collect();
            let args = vec![keys::text(&self.me), keys::text(slot.tag())];
            self.insist(&script::SWEEP, slot, &keys, args, time).await?;
        }
        for id in streams.into_iter().filter(|id| !id.is_standalone()) {
            let entry = super::record::entry(&held.session, id);
            let _found_to_be_nothing = self
                .fleet
                .disowns(self.redis.replica(), entry)
                .await
                .is_err();
        }
        let questions = questions.list().iter().filter_map(Reply::text);
        Ok(questions.map(Arc::from).collect())
    }

    /// Whether the session is known to have ended.
    pub(super) async fn has_ended(&self, held: &Arc<Held>) -> bool {
        let ended = self.expire_waiting(held).await;
        ended == Err(LogError::Gone)
    }

    /// Waits until the store has the stream: whether it has. Whoever may go on without does after
    /// a moment.
    pub(super) async fn header_stored(
        &self,
        held: &Arc<Held>,
        stream: &StreamRef,
    ) -> Result<bool, LogError> {
        let id = stream.id;
        loop {
            let Some(wake) = held.with(|log, _| log.wake_of(id)) else {
                return Err(LogError::Gone);
            };
            let woken = wake.notified();
            tokio::pin!(woken);
            woken.as_mut().enable();
            match held.with(|log, at| log.header_is_stored(id, at)) {
                None => return Err(LogError::Gone),
                Some((true, _)) => return Ok(true),
                Some((false, true)) if held.mode() == Some(Mode::BestEffort) => return Ok(false),
                Some((false, true)) => {
                    held.with(|log, _| log.drop_locally(id));
                    return Err(LogError::Unavailable("the stream cannot be kept".into()));
                }
                Some((false, false)) => woken.await,
            }
        }
    }

    /// Closes the stream's connection at the replica that has it.
    pub(super) async fn stop_elsewhere(&self, stream: &StreamRef, why: Stop) {
        let planned = why == Stop::Planned && !stream.id.is_standalone();
        let Ok(held) = self.held_of(stream) else {
            return;
        };
        let reader = held.with(|log, _| log.read_by(stream.id));
        if let Some(reader) = reader.filter(|_| planned) {
            self.tell(&reader, Kind::Pause, &held, stream.id).await;
        }
    }
}

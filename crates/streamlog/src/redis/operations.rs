//! What takes more than the session's log here: beginning, resuming and ending streams.

use std::sync::Arc;

use tokio::time::{Instant, sleep};
use vestibule_store::SessionKey;

use super::core::Pause;
use super::record::Found;
use super::{HOLD, Mode, RedisLog};
use crate::LogError;
use crate::event_id::Verified;
use crate::held::Held;
use crate::log::{Entry, Opened, StreamKind, StreamLog, StreamRef};
use crate::resume::Resume;
use crate::session_log::Role;

impl RedisLog {
    pub(super) async fn open_stream(
        &self,
        session: &SessionKey,
        kind: StreamKind,
    ) -> Result<Opened, LogError> {
        let standalone = kind == StreamKind::Standalone;
        let mut held = self.core.session(session);
        if standalone && self.core.has_ended(&held).await {
            self.core.gone(&held);
            return Err(LogError::Gone);
        }
        let mut opened = held.open(kind.clone());
        if opened == Err(LogError::Gone) {
            // it was dropped for want of use in this very moment
            self.core.drop_session(&held);
            held = self.core.session(session);
            opened = held.open(kind);
        }
        let mut opened = opened?;
        if held.mode() == Some(Mode::Off) {
            opened.priming = None;
            return Ok(opened);
        }
        if standalone {
            return Ok(opened);
        }
        let mut unclaimed = Unclaimed {
            held: &held,
            stream: Some(opened.stream.clone()),
        };
        // the id of its beginning is given to the client at once
        if !self.core.header_stored(&held, &opened.stream).await? {
            opened.priming = None;
        }
        unclaimed.stream = None;
        Ok(opened)
    }

    pub(super) async fn wait_for_room(&self, stream: &StreamRef) -> Result<(), LogError> {
        let held = self.core.held_of(stream)?;
        loop {
            let Some(wake) = held.with(|log, _| log.wake_of(stream.id)) else {
                return Err(LogError::Gone);
            };
            let woken = wake.notified();
            tokio::pin!(woken);
            woken.as_mut().enable();
            if !held.with(|log, at| log.must_ship_first(stream.id, at)) {
                return Ok(());
            }
            woken.await;
        }
    }

    pub(super) async fn resume_held(
        &self,
        session: &SessionKey,
        id: &str,
    ) -> Result<Resume, LogError> {
        let shared = self.core.memory.shared();
        let swapped = self.core.memory.swapped(id);
        let session = swapped.as_ref().unwrap_or(session);
        let Ok(verified) = shared.ids.verify(session, id) else {
            return Ok(Resume::Foreign);
        };
        let until = Instant::now() + HOLD;
        let mut pause = Pause::default();
        loop {
            shared.count_lookup();
            let held = self.core.session(session);
            let resumed = match &verified {
                Verified::Ours(position) => self.core.resume(&held, position).await,
                Verified::KeyGone => held.reopen(),
            };
            match resumed {
                Err(LogError::Unavailable(_)) if Instant::now() < until => {
                    sleep(pause.next()).await;
                }
                Err(LogError::Gone) if held.with(|log, _| log.is_retired()) => {
                    self.core.drop_session(&held);
                }
                Err(LogError::Gone) => return Ok(Resume::NoSession),
                other => return other,
            }
        }
    }

    pub(super) async fn forget(&self, session: &SessionKey) -> Result<Vec<Arc<str>>, LogError> {
        let known = self.core.memory.find(session).ok();
        let held = known.unwrap_or_else(|| self.core.session(session));
        let mut lost = held.with(|log, _| log.forget());
        self.core.drop_session(&held);
        lost.extend(self.core.forget(&held).await);
        Ok(lost)
    }

    pub(super) async fn read_kept(
        &self,
        stream: &StreamRef,
        after: u64,
        max: usize,
    ) -> Result<Vec<Entry>, LogError> {
        let held = self.core.session(&stream.session);
        let role = held.with(|log, _| log.role(stream.id));
        if role == Some(Role::Own) {
            return self.core.memory.read(stream, after, max).await;
        }
        let Found::Record(record) = self.core.load(&held, stream.id, after).await? else {
            return Ok(vec![]);
        };
        let kept = record.events.iter().take(max);
        let entries = kept.map(|event| {
            let position = record.position(event);
            held.entry(&position, event.payload.clone(), true)
        });
        Ok(entries.collect())
    }
}

/// A POST stream whose opener has not been told of it yet; dropped, it has no writer.
struct Unclaimed<'a> {
    held: &'a Arc<Held>,
    stream: Option<StreamRef>,
}

impl Drop for Unclaimed<'_> {
    fn drop(&mut self) {
        if let Some(stream) = &self.stream {
            self.held.with(|log, at| log.abandon(stream.id, at));
        }
    }
}

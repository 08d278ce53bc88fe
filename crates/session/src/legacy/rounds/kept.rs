//! The record of a call between rounds: who may make its next request, in the session's record.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;
use vestibule_frame::Id;
use vestibule_store::{Kind, StoreError};
use vestibule_terms::Method;

use super::state::{Stage, State};
use crate::legacy::live::Live;
use crate::legacy::patience::patiently;
use crate::room::Shared;

/// Calls that take more are not gone on with.
const RECORD_MAX: usize = 96 << 10;
/// Most that a client is asked at a time.
pub(super) const QUESTIONS_MAX: usize = 32;

/// The rounds of one call.
pub(in crate::legacy) struct Rounds {
    pub(super) name: String,
    method: Method,
    pub(super) state: State,
    /// The record as it is written down.
    pub(super) written: Option<Bytes>,
    /// Answers that reach this process.
    pub(super) inbox: mpsc::Receiver<(Id, Bytes)>,
    pub(super) sender: mpsc::Sender<(Id, Bytes)>,
}

/// What became of an attempt to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    /// It is, or it cannot be and nobody else will go on with the call.
    Done,
    /// Another process goes on with the call.
    Elsewhere,
    /// The store is away.
    Away,
}

impl Rounds {
    pub(super) fn new(
        (name, method): (String, Method),
        state: State,
        written: Option<Bytes>,
    ) -> Self {
        let (sender, inbox) = mpsc::channel(QUESTIONS_MAX);
        Self {
            name,
            method,
            state,
            written,
            inbox,
            sender,
        }
    }

    /// The record of that name, with what it is written as.
    pub(super) async fn find(
        shared: &Shared,
        live: &Live,
        (name, method): (&str, Method),
    ) -> Result<Option<Self>, StoreError> {
        let sessions = &shared.rooms.sessions;
        let record = sessions.kept(&live.key, Kind::Round, name).await?;
        let at_rest = shared.rooms.sealer.at_rest(&live.name.tenant);
        Ok(record.and_then(|record| {
            let text = at_rest.open(live.name.session.expose(), record.clone())?;
            let state = State::read(text)?;
            Some(Self::new((name.to_owned(), method), state, Some(record)))
        }))
    }

    /// What a note says of the call: where its record is and in which stage it was; nothing without one.
    pub(super) fn note(&self) -> Option<Bytes> {
        self.written.as_ref()?;
        let step = self.state.step.to_be_bytes();
        Some(Bytes::from([&step[..], self.name.as_bytes()].concat()))
    }

    /// Enters a stage; others learn of it before anybody does something.
    pub(super) async fn enter(&mut self, shared: &Shared, live: &Live, stage: Stage) -> Written {
        self.state.stage = stage;
        self.state.step += 1;
        self.write(shared, live).await
    }

    /// Writes the state down in the place of what was there.
    pub(super) async fn write(&mut self, shared: &Shared, live: &Live) -> Written {
        let spent = self.state.stage == Stage::Requesting && !self.method.is_repeatable();
        let state = if spent {
            self.state.spent().write()
        } else {
            self.state.write()
        };
        let at_rest = shared.rooms.sealer.at_rest(&live.name.tenant);
        let record = at_rest.seal(live.name.session.expose(), &state);
        let record = (record.len() <= RECORD_MAX).then_some(record);
        let written = patiently(|| self.attempt(shared, live, record.clone()));
        let (written, record) = written.await.unwrap_or((Written::Away, None));
        if written == Written::Done {
            self.written = record;
        }
        written
    }

    /// What has become of it and is written down now; nothing when the store is away.
    async fn attempt(
        &self,
        shared: &Shared,
        live: &Live,
        record: Option<Bytes>,
    ) -> Option<(Written, Option<Bytes>)> {
        let done = |mine| {
            if mine {
                Written::Done
            } else {
                Written::Elsewhere
            }
        };
        match self.put(shared, live, record.clone()).await {
            Ok(mine) => Some((done(mine), record)),
            Err(StoreError::NoRoom(_)) if record.is_some() => {
                tracing::debug!("a call between rounds is not written down");
                let put = self.put(shared, live, None).await;
                Some((put.map_or(Written::Away, done), None))
            }
            Err(error) => {
                tracing::debug!(%error, "a round waits for the store");
                None
            }
        }
    }

    /// False when it is not this process's any more.
    async fn put(
        &self,
        shared: &Shared,
        live: &Live,
        record: Option<Bytes>,
    ) -> Result<bool, StoreError> {
        let (sessions, name) = (&shared.rooms.sessions, &self.name);
        match (&self.written, record) {
            (None, None) => Ok(true),
            (None, Some(record)) => {
                let kept = sessions.keep(&live.key, Kind::Round, name, record.clone());
                Ok(kept.await?.is_some_and(|kept| kept.record == record))
            }
            (Some(before), record) => {
                let new = record.clone();
                let swapped = sessions.swap_kept(&live.key, Kind::Round, name, before, new);
                if swapped.await? {
                    return Ok(true);
                }
                // an attempt of ours may have had its effect without our hearing of it
                Ok(sessions.kept(&live.key, Kind::Round, name).await? == record)
            }
        }
    }

    /// The call is over, and what was written down of it goes.
    pub(super) fn clear(&self, shared: &Arc<Shared>, live: &Arc<Live>) {
        let Some(written) = self.written.clone() else {
            return;
        };
        let (shared, live, name) = (Arc::clone(shared), Arc::clone(live), self.name.clone());
        tokio::spawn(async move {
            let sessions = &shared.rooms.sessions;
            let cleared = patiently(|| async {
                let swapped = sessions.swap_kept(&live.key, Kind::Round, &name, &written, None);
                swapped.await.ok()
            });
            let _ends_with_its_session = cleared.await.is_none();
        });
    }
}

//! A resume whose outcome is not known yet (EL-29): the store is away, or the stream's owner is
//! repairing it. The client is let in at once and kept waiting with comments, because clients give
//! up after a second failed attempt; what comes of it is said on the stream.
//!
//! So is one whose session has not been seen here, when the store cannot say that it lives: its ids
//! have shown that they are the caller's.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep};
use vestibule_store::{SessionKey, StoreError};
use vestibule_streamlog::{LogError, Resume};

use super::access::entered;
use super::get::{Resumed, resumed};
use super::live::Live;
use crate::facts::Facts;
use crate::room::Shared;
use crate::stream::{Aborted, come_back};

/// How often a client that waits is told so.
const BEAT: Duration = Duration::from_secs(2);
/// When to come back after waiting in vain.
const LATER: Duration = Duration::from_secs(5);
/// How long a client waits for the store, and how often that is asked.
const HOLD: Duration = Duration::from_secs(30);
const ASK: Duration = Duration::from_millis(250);

/// A resume under way.
pub(super) type Resuming = Pin<Box<dyn Future<Output = Result<Resume, LogError>> + Send + 'static>>;

/// What comes of it, and of which session.
type Waiting = Pin<Box<dyn Future<Output = Known> + Send + 'static>>;

enum Known {
    Of(Arc<Live>, Result<Resume, LogError>),
    /// The session is over.
    NoSession,
    /// The store is still away.
    Nothing,
}

enum Stage {
    Waiting(Waiting, Interval),
    Reading(Pin<Box<dyn Stream<Item = Result<Bytes, Aborted>> + Send>>),
}

/// The events of the stream, comments while it is not known which.
pub(super) fn held(
    shared: &Arc<Shared>,
    live: &Arc<Live>,
    resuming: Resuming,
) -> impl Stream<Item = Result<Bytes, Aborted>> + Send + 'static {
    let live = Arc::clone(live);
    let waiting = async move {
        let outcome = resuming.await;
        Known::Of(live, outcome)
    };
    events(shared, Box::pin(waiting))
}

/// The same, of a session of which it is not known yet whether it lives.
pub(super) fn held_outside(
    shared: &Arc<Shared>,
    facts: Facts,
    key: SessionKey,
    resuming: Resuming,
) -> impl Stream<Item = Result<Bytes, Aborted>> + Send + 'static {
    let room = Arc::clone(shared);
    let waiting = async move {
        let until = Instant::now() + HOLD;
        let stored = loop {
            match room.rooms.sessions.touch(&key).await {
                Ok(Some(stored)) => break stored,
                Err(StoreError::Unavailable(_)) if Instant::now() < until => sleep(ASK).await,
                Ok(None) => return Known::NoSession,
                Err(_) => return Known::Nothing,
            }
        };
        let live = entered(&room, &facts, stored, None).await;
        let outcome = resuming.await;
        Known::Of(live, outcome)
    };
    events(shared, Box::pin(waiting))
}

fn events(
    shared: &Arc<Shared>,
    waiting: Waiting,
) -> impl Stream<Item = Result<Bytes, Aborted>> + Send + 'static {
    let shared = Arc::clone(shared);
    let mut beats = interval(BEAT);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let stage = Stage::Waiting(waiting, beats);
    stream::unfold(stage, move |mut stage| {
        let shared = Arc::clone(&shared);
        async move {
            loop {
                match &mut stage {
                    Stage::Waiting(waiting, beats) => {
                        let known = tokio::select! {
                            biased;
                            known = waiting => known,
                            _ = beats.tick() => return Some((Ok(wait()), stage)),
                        };
                        stage = Stage::Reading(rest(&shared, known).await);
                    }
                    Stage::Reading(events) => {
                        let event = events.next().await?;
                        return Some((event, stage));
                    }
                }
            }
        }
    })
}

async fn rest(
    shared: &Arc<Shared>,
    known: Known,
) -> Pin<Box<dyn Stream<Item = Result<Bytes, Aborted>> + Send>> {
    let (live, outcome) = match known {
        Known::Of(live, outcome) => (live, outcome),
        Known::NoSession => return Box::pin(stream::empty()),
        Known::Nothing => return Box::pin(stream::iter([Ok(come_back(LATER))])),
    };
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(error) => {
            tracing::debug!(%error, "a stream could not be resumed");
            return Box::pin(stream::iter([Ok(come_back(LATER))]));
        }
    };
    shared.observer.resumed(&live.name.tenant, &outcome);
    match resumed(shared, &live, outcome).await {
        Ok(Resumed::Reading(reading)) => Box::pin(reading.events()),
        Ok(Resumed::Errors(errors)) => Box::pin(stream::iter(errors.into_iter().map(Ok))),
        Ok(Resumed::Nothing | Resumed::Foreign | Resumed::NoSession) => Box::pin(stream::empty()),
        Err(error) => {
            tracing::debug!(%error, "a stream could not be resumed");
            Box::pin(stream::iter([Ok(come_back(LATER))]))
        }
    }
}

fn wait() -> Bytes {
    Bytes::from_static(b": wait\n\n")
}

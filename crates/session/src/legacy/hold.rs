//! A resume whose outcome is not known yet (EL-29): the store is away, or the stream's owner is
//! repairing it. The client is let in at once and kept waiting with comments, because clients give
//! up after a second failed attempt; what comes of it is said on the stream.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use tokio::time::{Interval, MissedTickBehavior, interval};
use vestibule_streamlog::{LogError, Resume};

use super::get::{Resumed, resumed};
use super::live::Live;
use crate::room::Shared;
use crate::stream::{Aborted, come_back};

/// How often a client that waits is told so.
const BEAT: Duration = Duration::from_secs(2);
/// When to come back after waiting in vain.
const LATER: Duration = Duration::from_secs(5);

/// A resume under way.
pub(super) type Resuming =
    std::pin::Pin<Box<dyn Future<Output = Result<Resume, LogError>> + Send + 'static>>;

enum Stage {
    Waiting(Resuming, Interval),
    Reading(std::pin::Pin<Box<dyn Stream<Item = Result<Bytes, Aborted>> + Send>>),
}

/// The events of the stream, comments while it is not known which.
pub(super) fn held(
    shared: &Arc<Shared>,
    live: &Arc<Live>,
    resuming: Resuming,
) -> impl Stream<Item = Result<Bytes, Aborted>> + Send + 'static {
    let (shared, live) = (Arc::clone(shared), Arc::clone(live));
    let mut beats = interval(BEAT);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let stage = Stage::Waiting(resuming, beats);
    stream::unfold(stage, move |mut stage| {
        let (shared, live) = (Arc::clone(&shared), Arc::clone(&live));
        async move {
            loop {
                match &mut stage {
                    Stage::Waiting(resuming, beats) => {
                        let outcome = tokio::select! {
                            biased;
                            outcome = resuming => outcome,
                            _ = beats.tick() => return Some((Ok(wait()), stage)),
                        };
                        stage = Stage::Reading(known(&shared, &live, outcome).await);
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

async fn known(
    shared: &Arc<Shared>,
    live: &Arc<Live>,
    outcome: Result<Resume, LogError>,
) -> std::pin::Pin<Box<dyn Stream<Item = Result<Bytes, Aborted>> + Send>> {
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(error) => {
            tracing::debug!(%error, "a stream could not be resumed");
            return Box::pin(stream::iter([Ok(come_back(LATER))]));
        }
    };
    shared.observer.resumed(&live.name.tenant, &outcome);
    match resumed(shared, live, outcome).await {
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

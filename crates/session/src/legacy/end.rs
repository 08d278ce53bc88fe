//! The end of a session, however it comes: its calls are cancelled, its upstream sessions and its
//! events go (SES-03, GET-08).

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use tokio::time::{Instant, sleep};
use vestibule_exchange::{Closing, Exchange};
use vestibule_store::{Ended, Kind, SessionKey};
use vestibule_terms::{Reject, UpstreamId};

use super::access::{session_or_405, unavailable};
use super::live::Live;
use crate::answer::{self, Response};
use crate::facts::Facts;
use crate::replicas::{self, Word};
use crate::room::{Room, Shared};

/// How long the calls of a session that is ended from above may take to say so.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// How many sessions are looked up at a time.
const TOGETHER: usize = 64;

/// Serves the DELETE (STA-21).
pub(crate) async fn delete<S: Exchange>(room: &Room<S>, facts: Facts) -> Response {
    let live = match session_or_405(&room.shared, &facts).await {
        Ok(live) => live,
        Err(reject) => return answer::refuse(&facts.record, reject, None),
    };
    match room.shared.rooms.sessions.end(&live.key).await {
        Ok(Some(over)) => {
            ended(&room.shared, over).await;
            answer::no_content(&facts.record)
        }
        Ok(None) => answer::refuse(&facts.record, Reject::SessionNotFound, None),
        Err(error) => answer::refuse(&facts.record, unavailable(&error), None),
    }
}

/// Takes down what belonged to a session that the store has ended. It was handed out once, so this
/// goes on when nobody waits for it.
pub(crate) async fn ended(shared: &Arc<Shared>, over: Ended) {
    let stored = &over.session;
    shared
        .observer
        .ended(stored.key.tenant(), stored.opening.revision);
    tracing::debug!(reason = over.reason.as_str(), "a session has ended");
    let shared = Arc::clone(shared);
    let _panicked = tokio::spawn(async move { clear(&shared, &over).await })
        .await
        .is_err();
}

async fn clear(shared: &Arc<Shared>, over: &Ended) {
    let upstreams = over
        .belongings
        .iter()
        .filter(|one| one.kind == Kind::Upstream);
    let kept = upstreams.filter_map(|one| {
        let upstream = UpstreamId::new(&one.name).ok()?;
        Some((upstream, one.record.clone()))
    });
    let key = &over.session.key;
    take_down(shared, key, Closing::Here(kept.collect())).await;
    replicas::tell(shared, Word::Ended(key.clone())).await;
}

/// Ends what is left here of sessions that the store no longer has: of one that ended between the
/// look-up and the first thing a request did with it, nothing else would.
pub(crate) async fn leftovers(shared: &Arc<Shared>) {
    let keys: Vec<SessionKey> = shared.lives.iter().map(|live| live.key.clone()).collect();
    let looks = stream::iter(keys).for_each_concurrent(TOGETHER, |key| async move {
        if matches!(shared.rooms.sessions.get(&key).await, Ok(None)) {
            take_down(shared, &key, Closing::Here(Vec::new())).await;
        }
    });
    looks.await;
}

/// Ends the sessions whose caller is no longer let in (AUT-23). Their calls have been told why
/// first, and get a moment to say so.
pub(crate) async fn expelled(shared: &Arc<Shared>) {
    let lives: Vec<Arc<Live>> = shared.lives.iter().map(|live| Arc::clone(&live)).collect();
    for live in lives {
        if shared.endings.admits(&live.user(), live.server()) {
            continue;
        }
        let shared = Arc::clone(shared);
        tokio::spawn(async move {
            let until = Instant::now() + LAST_WORDS;
            while live.calls() > 0 && Instant::now() < until {
                sleep(LAST_WORDS / 50).await;
            }
            match shared.rooms.sessions.end(&live.key).await {
                Ok(Some(over)) => ended(&shared, over).await,
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, "a session could not be ended"),
            }
        });
    }
}

/// Ends what this process holds of a session that is no more.
pub(crate) async fn take_down(shared: &Arc<Shared>, key: &SessionKey, closing: Closing) {
    let name = Live::name_of(key);
    if let Some((_, live)) = shared.lives.remove(&name) {
        // Dropping the handles cancels the calls; questions end with the upstream sessions.
        let remains = live.machine().end();
        let (calls, questions) = (remains.calls.len(), remains.questions.len());
        tracing::debug!(
            calls,
            questions,
            "what was going on in a session is cancelled"
        );
    }
    forget(shared, key).await;
    shared.back.close(name, closing).await;
}

async fn forget(shared: &Shared, key: &SessionKey) {
    if let Err(error) = shared.rooms.log.forget_session(key).await {
        tracing::debug!(%error, "the streams of a session could not be forgotten");
    }
}

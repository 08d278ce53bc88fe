//! A client's notifications.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;
use vestibule_frame::{Draft, Frame, Id, meta};
use vestibule_store::{SessionKey, modify};
use vestibule_terms::{Direction, Method, Record, Reject};

use super::access::unavailable;
use super::live::Live;
use super::patience::patiently;
use crate::classify::{is_request_only, without_id};
use crate::facts::Facts;
use crate::replicas::{self, Word};
use crate::room::Shared;

/// How long the end of a cancelled call's stream is waited for: the store may be away.
const EFFECT: Duration = Duration::from_secs(5);
/// When to try again what others could not be told.
const COME_BACK: Duration = Duration::from_secs(2);

/// Takes a notification. What is unknown or goes the wrong way is ignored (FRM-13, FRM-14).
pub(super) async fn notification(
    shared: &Arc<Shared>,
    live: &Arc<Live>,
    facts: &Facts,
    record: &Record,
    frame: Frame,
) -> Result<(), Reject> {
    let name = frame.method().unwrap_or_default().into_owned();
    if is_request_only(&name) {
        return Err(without_id(&name)); // FRM-12
    }
    let method = Method::parse(&name)
        .filter(|method| method.allowed(Direction::ClientNotification, live.revision()));
    let Some(method) = method else {
        tracing::debug!("a notification that does not exist in this direction is ignored");
        return Ok(());
    };
    record.set_method(method);
    if method == Method::Initialized {
        initialized(shared, live).await?;
    } else if method == Method::Cancelled {
        cancelled(shared, live, &frame).await?;
    } else if method == Method::Progress {
        progress(shared, live, facts, frame).await;
    } else if method == Method::RootsListChanged && live.capabilities.roots_list_changed {
        shared
            .back
            .notify(live.name.clone(), Draft::new(frame))
            .await;
    }
    Ok(())
}

/// LIF-05: what the server had to say may now be said.
async fn initialized(shared: &Arc<Shared>, live: &Live) -> Result<(), Reject> {
    let kept = modify(&*shared.rooms.sessions, &live.key, |state| {
        state.initialized = true
    });
    kept.await
        .map_err(|error| unavailable(&error))?
        .ok_or(Reject::SessionNotFound)?;
    let held = live.ready();
    live.publish_all(shared, held).await;
    Ok(())
}

/// CAN-01, CAN-04: the call of that id ends here and at its upstream; anything else is ignored.
///
/// It is taken when it has its effect or everybody is told (HTR-04), and outlives its connection.
async fn cancelled(shared: &Arc<Shared>, live: &Live, frame: &Frame) -> Result<(), Reject> {
    let id = frame
        .params()
        .and_then(|params| frame.member(params, "requestId"))
        .and_then(|span| Id::from_token(frame.shared(span)));
    let Some(id) = id else { return Ok(()) };
    let (shared, session) = (Arc::clone(shared), live.key.clone());
    let cancelling = tokio::spawn(async move {
        if cancel_or_remember(&shared, &session, &id).await {
            return true;
        }
        tracing::debug!("a cancellation names no call in flight here");
        let told = patiently(|| async {
            let word = Word::Cancel(session.clone(), id.clone());
            replicas::tell(&shared, word).await.then_some(())
        });
        told.await.is_some()
    });
    match cancelling.await {
        Ok(true) => Ok(()),
        Ok(false) => Err(Reject::Unavailable {
            reason: "store",
            retry_after: COME_BACK,
        }),
        Err(_panicked) => Err(Reject::Internal),
    }
}

/// Cancels the call of that id, if it runs in this process; else whoever goes on with it here will.
pub(crate) async fn cancel_or_remember(
    shared: &Arc<Shared>,
    session: &SessionKey,
    id: &Id,
) -> bool {
    let live = shared.lives.get(&Live::name_of(session));
    let live = live.map(|live| Arc::clone(&live));
    if let Some(live) = &live
        && cancel(shared, live, id).await
    {
        return true;
    }
    shared.unmet.note(session, id);
    // it may have been taken over between the two
    match &live {
        Some(live) => cancel(shared, live, id).await,
        None => false,
    }
}

/// Cancels the call of that id, if it runs in this process. Returns when its stream has ended, and so
/// when nobody who takes over from this process would go on with it.
pub(super) async fn cancel(shared: &Arc<Shared>, live: &Live, id: &Id) -> bool {
    let cancelled = live.machine().cancel(id);
    let Some((cancel, questions)) = cancelled else {
        return false;
    };
    let (done, effect) = oneshot::channel();
    // The task that runs the call may have seen its end in this very moment.
    let _too_late = cancel.send(done);
    for (id, open) in &questions {
        live.unkept(shared, id, open).await;
    }
    let _dropped_when_done = timeout(EFFECT, effect).await;
    true
}

/// Progress about a question, under the asker's own token (5.2). Only where it is sure who asked:
/// a session with one upstream.
async fn progress(shared: &Arc<Shared>, live: &Live, facts: &Facts, frame: Frame) {
    let token = frame
        .params()
        .and_then(|params| frame.member(params, meta::PROGRESS_TOKEN))
        .and_then(|span| Id::from_token(frame.shared(span)));
    let Some(token) = token.filter(|_| facts.plan.upstreams().len() == 1) else {
        return;
    };
    let Some(theirs) = live
        .machine()
        .question(&token)
        .and_then(|open| open.token.clone())
    else {
        return;
    };
    let mut draft = Draft::new(frame);
    draft.set_at(&["params", meta::PROGRESS_TOKEN], theirs.token());
    shared.back.notify(live.name.clone(), draft).await;
}

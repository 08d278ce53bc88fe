//! What a client sends without waiting for an answer: notifications, and answers to questions.

use std::sync::Arc;

use vestibule_frame::{Draft, Frame, Id, meta};
use vestibule_store::modify;
use vestibule_terms::{Direction, Method, Record, Reject, mutation};

use super::access::unavailable;
use super::claim::{self, Claim};
use super::live::Live;
use crate::classify::{is_request_only, without_id};
use crate::facts::Facts;
use crate::replicas::{self, Word};
use crate::room::Shared;

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
        cancelled(shared, live, &frame).await;
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
async fn cancelled(shared: &Arc<Shared>, live: &Live, frame: &Frame) {
    let id = frame
        .params()
        .and_then(|params| frame.member(params, "requestId"))
        .and_then(|span| Id::from_token(frame.shared(span)));
    let Some(id) = id else { return };
    if !cancel(shared, live, &id).await {
        tracing::debug!("a cancellation names no call in flight here");
        replicas::tell(shared, Word::Cancel(live.key.clone(), id)).await;
    }
}

/// Cancels the call of that id, if it runs in this process.
pub(crate) async fn cancel(shared: &Arc<Shared>, live: &Live, id: &Id) -> bool {
    let cancelled = live.machine().cancel(id);
    let Some((cancel, questions)) = cancelled else {
        return false;
    };
    // The task that runs the call may have seen its end in this very moment.
    let _too_late = cancel.send(());
    for (id, open) in &questions {
        live.unkept(shared, id, open).await;
    }
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

/// Takes an answer to a question: the first one goes to whoever asked, later and unknown ones are
/// dropped (EL-18, STA-16). Whoever asked may have asked another process.
pub(super) async fn response(shared: &Arc<Shared>, live: &Live, frame: Frame) {
    let Some(id) = frame.id() else { return };
    let open = live.machine().answer(&id);
    let bytes = frame.bytes().clone();
    let answer = Draft::new(frame);
    let claimed = match &open {
        Some(open) if !open.kept => Claim::Away, // nobody else knows of it
        Some(_) | None => claim::take(shared, live, &id, &bytes).await,
    };
    // HTR-04: accepted only once it has reached the upstream.
    let taken = match (claimed, open) {
        (Claim::Mine(from, receipt), open) => {
            let again = mutation::on("answer-twice").then(|| ((*from).clone(), answer.clone()));
            let taken = match open {
                Some(open) => shared.back.answer(open.from, answer),
                None => {
                    let (can, inlet) = (Arc::clone(&live.capabilities), Arc::clone(&live.inlet));
                    shared.back.deliver(*from, answer, can, inlet)
                }
            };
            let taken = taken.await;
            if let Some((from, answer)) = again {
                let (can, inlet) = (Arc::clone(&live.capabilities), Arc::clone(&live.inlet));
                let _twice = shared.back.deliver(from, answer, can, inlet).await;
            }
            claim::delivered(shared, live, receipt).await;
            taken
        }
        (Claim::Away, Some(open)) => shared.back.answer(open.from, answer).await,
        (Claim::Nothing, _) | (Claim::Away, None) => {
            tracing::debug!("an answer to no open question is dropped");
            return;
        }
    };
    if let Err(error) = taken {
        tracing::debug!(code = error.code, "an answer did not reach its upstream");
    }
}

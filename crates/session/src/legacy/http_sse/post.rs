//! The POST: 202 without a body once its message is on its way; what it brings about comes on the
//! stream (HSE-03). Only what is wrong with the POST itself is its answer (STA-24).

use std::sync::Arc;

use vestibule_exchange::Exchange;
use vestibule_frame::{Batch, Frame, Kind, Payload};
use vestibule_terms::Reject;

use super::{handshake, proven, session};
use crate::answer::{self, Response};
use crate::facts::Facts;
use crate::legacy::batch::{Run, request_ids};
use crate::legacy::live::Live;
use crate::legacy::sink::Sink;
use crate::legacy::{notify, response};
use crate::room::Room;

/// Serves the POST.
pub(crate) async fn post<S: Exchange>(room: &Room<S>, facts: Facts, payload: Payload) -> Response {
    let id = match &payload {
        Payload::Single(frame) => frame.id().filter(|_| frame.kind() == Kind::Request),
        Payload::Batch(_) => None,
    };
    let refuse = |reject| answer::refuse(&facts.record, reject, id.as_ref());
    let Some(key) = proven(&room.shared, &facts) else {
        return refuse(Reject::SessionNotFound);
    };
    let taken = match session(&room.shared, &facts, &key).await {
        Ok(Some(live)) => taken(room, &facts, &live, payload).await,
        Ok(None) => handshake::taken(room, &facts, &key, payload).await,
        Err(reject) => Err(reject),
    };
    match taken {
        Ok(()) => answer::accepted(&facts.record),
        Err(reject) => refuse(reject),
    }
}

async fn taken<S: Exchange>(
    room: &Room<S>,
    facts: &Facts,
    live: &Arc<Live>,
    payload: Payload,
) -> Result<(), Reject> {
    let frame = match payload {
        Payload::Batch(batch) => return array(room, facts, live, batch).await,
        Payload::Single(frame) => frame,
    };
    match frame.kind() {
        Kind::Request => request(room, facts, live, frame).await,
        Kind::Notification => notification(room, facts, live, frame).await,
        Kind::Response => response::response(&room.shared, live, frame).await,
    }
}

async fn request<S: Exchange>(
    room: &Room<S>,
    facts: &Facts,
    live: &Arc<Live>,
    frame: Frame,
) -> Result<(), Reject> {
    let id = frame.id().ok_or(Reject::Internal)?;
    let sink = Sink::over_sse(&room.shared, live, std::slice::from_ref(&id));
    run(room, facts, live, &sink).one(frame, id).await;
    Ok(())
}

/// FRM-12: a request without an id is dropped; there is no message that could refuse it.
async fn notification<S: Exchange>(
    room: &Room<S>,
    facts: &Facts,
    live: &Arc<Live>,
    frame: Frame,
) -> Result<(), Reject> {
    match notify::notification(&room.shared, live, facts, &facts.record, frame).await {
        Err(Reject::InvalidRequest(why)) => {
            tracing::debug!(%why, "a notification is dropped");
            Ok(())
        }
        other => other,
    }
}

/// HSE-08: an array where the revision has them, each response a message of its own.
async fn array<S: Exchange>(
    room: &Room<S>,
    facts: &Facts,
    live: &Arc<Live>,
    batch: Batch,
) -> Result<(), Reject> {
    if !live.revision().has_batches() {
        let text = "the body must be one JSON object: this revision has no batches"; // FRM-18
        return Err(Reject::InvalidRequest(text.into()));
    }
    let sink = Sink::over_sse(&room.shared, live, &request_ids(&batch));
    run(room, facts, live, &sink).all(batch).await;
    Ok(())
}

fn run<'a, S>(
    room: &'a Room<S>,
    facts: &'a Facts,
    live: &'a Arc<Live>,
    sink: &'a Arc<Sink>,
) -> Run<'a, S> {
    Run {
        room,
        facts,
        live,
        sink,
        in_flight: facts.in_flight.clone(),
    }
}

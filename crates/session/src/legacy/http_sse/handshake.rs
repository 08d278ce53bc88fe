//! Before the session is open: `initialize`, which opens it under the id that its stream has had all
//! along, and what else may come (LIF-01).
//!
//! The record is stored by whoever gets the POST; the stream may be another process's. Two can race:
//! the stream closes while the session opens. Whoever closes forgets the log before the record is
//! ended, whoever opens stores the record before the answer goes into the log: one of them sees the
//! other, and nothing stays.

use std::sync::Arc;

use vestibule_exchange::{Exchange, RpcError};
use vestibule_frame::{Frame, Id, Kind, Payload};
use vestibule_store::{SessionKey, StoreError};
use vestibule_streamlog::LogError;
use vestibule_terms::reject::code;
use vestibule_terms::{Method, Reject};

use super::connection::{LATER, finish};
use super::outlet::deliver;
use crate::answer;
use crate::encode::Reply;
use crate::facts::{Facts, note_target};
use crate::legacy::access::attach;
use crate::legacy::open::{agreed, enter, refusal, welcome};
use crate::legacy::sink::one_piece;
use crate::room::{Room, Shared};

/// Takes a message of a client whose session is not open yet.
pub(super) async fn taken<S: Exchange>(
    room: &Room<S>,
    facts: &Facts,
    key: &SessionKey,
    payload: Payload,
) -> Result<(), Reject> {
    let shared = &room.shared;
    let Payload::Single(frame) = payload else {
        alive(shared, key).await?;
        return Err(Reject::InvalidRequest(NOT_OPEN.into()));
    };
    let id = frame.id().filter(|_| frame.kind() == Kind::Request);
    let Some(id) = id else {
        tracing::debug!("a message that needs an open session is dropped");
        return alive(shared, key).await;
    };
    let method = frame.method().as_deref().and_then(Method::parse);
    if let Some(method) = method {
        note_target(&facts.record, method, &frame);
    }
    if method == Some(Method::Initialize) {
        return initialize(room, facts, key, &frame, &id).await;
    }
    let reply = if method == Some(Method::Ping) {
        Reply::result(&id, b"{}") // PNG-01
    } else {
        Reply::error(Some(&id), &RpcError::new(code::INVALID_REQUEST, NOT_OPEN))
    };
    say(shared, facts, key, reply).await
}

const NOT_OPEN: &str = "the session opens with initialize";

/// HSE-08: any revision with a handshake may be negotiated.
async fn initialize<S: Exchange>(
    room: &Room<S>,
    facts: &Facts,
    key: &SessionKey,
    frame: &Frame,
    id: &Id,
) -> Result<(), Reject> {
    let shared = &room.shared;
    alive(shared, key).await?; // before anything is stored for it
    let reply = match opened(room, facts, key, frame, id).await {
        Ok(reply) => reply,
        Err(reject) => Reply::error(Some(id), &(&reject).into()),
    };
    let said = say(shared, facts, key, reply).await;
    if said.is_err() {
        finish(shared, key).await;
    }
    said
}

async fn opened<S: Exchange>(
    room: &Room<S>,
    facts: &Facts,
    key: &SessionKey,
    frame: &Frame,
    id: &Id,
) -> Result<Reply, Reject> {
    let shared = &room.shared;
    let (opening, view) = match agreed(room, facts, frame).await? {
        Ok(agreed) => agreed,
        Err(error) => return Ok(Reply::error(Some(id), &error)),
    };
    let stored = match enter(shared, key.clone(), opening).await {
        Ok(stored) => stored,
        Err(StoreError::Exists) => {
            let text = "the session is open already"; // LIF-07
            return Err(Reject::InvalidRequest(text.into()));
        }
        Err(error) => return Err(refusal(shared, facts, &error)),
    };
    let live = attach(shared, stored, &facts.principal);
    welcome(shared, facts, &live, view, id)
}

/// Puts a response on the stream.
async fn say(
    shared: &Arc<Shared>,
    facts: &Facts,
    key: &SessionKey,
    reply: Reply,
) -> Result<(), Reject> {
    answer::note(&facts.record, &reply);
    let said = deliver(shared, key, one_piece(reply.chunks)).await;
    said.map(|_no_questions_yet| ()).map_err(gone)
}

/// Whether the stream is still there.
async fn alive(shared: &Shared, key: &SessionKey) -> Result<(), Reject> {
    let log = &shared.rooms.log;
    log.publish(key, Vec::new()).await.map_err(gone)?;
    Ok(())
}

fn gone(error: LogError) -> Reject {
    if matches!(error, LogError::Gone) {
        return Reject::SessionNotFound;
    }
    tracing::warn!(%error, "the stream of a session cannot be written");
    let (reason, retry_after) = ("streams", LATER);
    Reject::Unavailable {
        reason,
        retry_after,
    }
}

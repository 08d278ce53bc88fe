//! `initialize`: a version, a description of the server, a session (LIF-02, VER-01, SES-01).

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use vestibule_exchange::{
    Call, Capabilities, Event, Exchange, Final, Rounds, RpcError, ServerView,
};
use vestibule_frame::{Draft, Frame, Id, sse};
use vestibule_store::{Opening, SessionKey, StoreError, Stored};
use vestibule_terms::reject::{Scope, code};
use vestibule_terms::{Method, Reject, Revision, ServerPlan};

use super::access::{attach, proven, unavailable};
use super::end::ended;
use super::live::{Live, PROMPTS, RESOURCES, TOOLS};
use crate::answer::{self, Response};
use crate::encode::{Encoder, Reply};
use crate::facts::{Facts, note_target};
use crate::room::{Room, Shared};
use crate::running::Running;
use crate::stream::EventBody;

/// Opens a session.
pub(crate) async fn open<S: Exchange>(room: &Room<S>, facts: Facts, frame: Frame) -> Response {
    let record = &facts.record;
    let Some(id) = frame.id() else {
        return answer::refuse(record, Reject::Internal, None);
    };
    note_target(record, Method::Initialize, &frame);
    match opened(room, &facts, &frame, &id).await {
        Ok((reply, key)) => {
            let response = if !facts.accepts.wants_stream() {
                answer::json(record, reply, false)
            } else {
                answer::note(record, &reply);
                let event = sse::message(None, &reply.chunks);
                answer::events(EventBody::new(stream::iter([Ok(event)])))
            };
            match key {
                Some(key) => answer::with_session(response, key.id().expose()),
                None => response,
            }
        }
        Err(reject) => answer::refuse(record, reject, Some(&id)),
    }
}

async fn opened<S: Exchange>(
    room: &Room<S>,
    facts: &Facts,
    frame: &Frame,
    id: &Id,
) -> Result<(Reply, Option<SessionKey>), Reject> {
    let shared = &room.shared;
    if let Some(key) = proven(shared, facts) {
        let live = shared
            .rooms
            .sessions
            .get(&key)
            .await
            .map_err(|error| unavailable(&error))?;
        if live.is_some() {
            let text = "the session of Mcp-Session-Id is open already";
            return Err(Reject::InvalidRequest(text.into())); // LIF-07
        }
    }
    let (opening, view) = match agreed(room, facts, frame).await? {
        Ok(agreed) => agreed,
        Err(error) => return Ok((Reply::error(Some(id), &error), None)),
    };
    let live = create(shared, facts, opening).await?;
    let reply = welcome(shared, facts, &live, view, id)?;
    Ok((reply, Some(live.key.clone())))
}

/// What the handshake settles, and the server as its client is told of it; or why the stages below
/// cannot say what that is.
pub(super) async fn agreed<S: Exchange>(
    room: &Room<S>,
    facts: &Facts,
    frame: &Frame,
) -> Result<Result<(Opening, Box<ServerView>), RpcError>, Reject> {
    let revision = negotiate(&facts.plan, frame).ok_or(Reject::Internal)?;
    facts.record.set_revision(revision);
    let opening = opening(&room.shared, facts, frame, revision);
    let view = view(room, facts, frame, &opening).await;
    Ok(view.map(|view| (opening, view)))
}

/// The answer to the `initialize` of a session that is stored.
pub(super) fn welcome(
    shared: &Shared,
    facts: &Facts,
    live: &Live,
    view: Box<ServerView>,
    id: &Id,
) -> Result<Reply, Reject> {
    live.declare(declared(&view));
    let encoder = Encoder {
        revision: live.revision(),
        identity: &shared.rooms.identity,
        strict: facts.plan.strict_fields,
        served: &[],
    };
    let reply = encoder.reply(Final::View(view), Method::Initialize, id);
    reply.ok_or(Reject::Internal)
}

/// VER-01: the version asked for, if it is a legacy one served here; else the newest such.
fn negotiate(plan: &ServerPlan, frame: &Frame) -> Option<Revision> {
    let asked = frame
        .params()
        .and_then(|params| frame.member(params, "protocolVersion"))
        .and_then(|span| frame.string(span))
        .and_then(|text| Revision::parse(&text))
        .filter(|revision| !revision.is_modern() && plan.serves(*revision));
    asked.or(plan.newest_legacy())
}

fn opening(shared: &Shared, facts: &Facts, frame: &Frame, revision: Revision) -> Opening {
    let object = |key: &str| {
        frame
            .params()
            .and_then(|params| frame.member(params, key))
            .map(|span| frame.text(span))
            .filter(|text| text.first() == Some(&b'{'))
            // A copy: the record outlives the request's buffer by hours.
            .map_or(Bytes::from_static(b"{}"), Bytes::copy_from_slice)
    };
    Opening {
        server: facts.plan.server.clone(),
        revision,
        capabilities: object("capabilities"),
        client_info: object("clientInfo"),
        created: shared.rooms.clock.unix_millis(),
    }
}

/// The server as the stages below describe it.
async fn view<S: Exchange>(
    room: &Room<S>,
    facts: &Facts,
    frame: &Frame,
    opening: &Opening,
) -> Result<Box<ServerView>, RpcError> {
    let capabilities = Capabilities::parse(&opening.capabilities).masked(opening.revision);
    let call = Call {
        plan: Arc::clone(&facts.plan),
        principal: Arc::clone(&facts.principal),
        record: facts.record.clone(),
        revision: opening.revision,
        method: Method::Initialize,
        message: Draft::new(frame.clone()),
        session: None,
        capabilities: Arc::new(capabilities),
        log_level: None,
        progress: false,
        param_headers: Arc::new([]),
        deadline: facts.deadline,
        inlet: None,
        continues: None,
        rounds: Rounds::default(),
    };
    let mut running = Running::new(room.call(call), Some(facts.deadline.end));
    while let Some(event) = running.next().await {
        if let Event::Final(Final::View(view)) = event {
            return Ok(view);
        }
        if let Event::Final(Final::Error(error)) = event {
            return Err(error);
        }
    }
    Err(RpcError::new(code::INTERNAL, "internal error"))
}

/// A new session with its streams.
async fn create(
    shared: &Arc<Shared>,
    facts: &Facts,
    opening: Opening,
) -> Result<Arc<Live>, Reject> {
    let (tenant, server) = (&facts.plan.tenant, &facts.plan.server);
    let principal = facts.principal.binding();
    let revision = opening.revision;
    let id = shared
        .rooms
        .sealer
        .mint_session_id(tenant, server, &principal, revision);
    let key = SessionKey::new(tenant, &principal, &id);
    let stored = enter(shared, key.clone(), opening)
        .await
        .map_err(|error| refusal(shared, facts, &error))?;
    if let Err(error) = shared.rooms.log.begin_session(&key).await {
        tracing::warn!(%error, "a session could not be given streams");
        if let Ok(Some(over)) = shared.rooms.sessions.end(&key).await {
            ended(shared, over).await;
        }
        let retry_after = std::time::Duration::from_secs(5);
        return Err(Reject::Unavailable {
            reason: "streams",
            retry_after,
        });
    }
    Ok(attach(shared, stored, &facts.principal))
}

/// Stores the session; those it pushes out end.
pub(super) async fn enter(
    shared: &Arc<Shared>,
    key: SessionKey,
    opening: Opening,
) -> Result<Stored, StoreError> {
    let caps = (shared.rooms.caps)(key.tenant());
    let created = shared.rooms.sessions.create(key, opening, caps).await?;
    for evicted in created.evicted {
        ended(shared, evicted).await;
    }
    let stored = created.session;
    shared
        .observer
        .opened(stored.key.tenant(), stored.opening.revision);
    Ok(stored)
}

pub(super) fn refusal(shared: &Shared, facts: &Facts, error: &StoreError) -> Reject {
    let scope = match error {
        StoreError::PrincipalFull(_) => Scope::Principal,
        StoreError::TenantFull(_) => Scope::Tenant,
        StoreError::Unavailable(_) => return unavailable(error),
        StoreError::Exists
        | StoreError::NoRoom(_)
        | StoreError::Refused(_)
        | StoreError::Url(_) => return Reject::Internal,
    };
    shared
        .rooms
        .metrics
        .rate_limited(Some(&facts.plan.tenant), scope);
    let retry_after = std::time::Duration::from_secs(60);
    Reject::Limited {
        scope,
        limit: "sessions",
        retry_after,
    }
}

fn declared(view: &ServerView) -> u8 {
    let bit = |declared: bool, list: u8| if declared { list } else { 0 };
    bit(view.tools, TOOLS) | bit(view.prompts, PROMPTS) | bit(view.resources, RESOURCES)
}

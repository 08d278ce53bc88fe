//! One message of a session: a request, a notification, or an answer to a question.

use std::sync::Arc;

use futures_util::stream;
use tokio::sync::oneshot::error::RecvError;
use vestibule_exchange::{Exchange, LogLevel, RpcError};
use vestibule_frame::{Frame, Id, Kind, sse};
use vestibule_metrics::StreamKind;
use vestibule_store::modify;
use vestibule_terms::reject::code;
use vestibule_terms::{Direction, Method, Outcome, Reject, Revision};

use super::access::{session, unavailable};
use super::attended::Attended;
use super::call::{self, Request};
use super::live::Live;
use super::reader::Reading;
use super::sink::{First, Sink, Streaming};
use super::{notify, response, solo};
use crate::answer::{self, Response};
use crate::encode::Reply;
use crate::facts::{Facts, note_target};
use crate::replicas::{self, Word};
use crate::room::{Room, Shared};
use crate::stream::EventBody;

/// Serves the POST of one message.
pub(crate) async fn message<S: Exchange>(room: &Room<S>, facts: Facts, frame: Frame) -> Response {
    let id = frame.id().filter(|_| frame.kind() == Kind::Request);
    if facts.head.session.is_none() {
        if facts.plan.sessions_optional {
            return solo::message(room, facts, frame).await;
        }
        let text = "Mcp-Session-Id is missing: open a session with initialize and send its id back";
        return answer::refuse(
            &facts.record,
            Reject::InvalidRequest(text.into()),
            id.as_ref(),
        );
    }
    let live = match session(&room.shared, &facts).await {
        Ok(live) => live,
        Err(reject) => return answer::refuse(&facts.record, reject, id.as_ref()),
    };
    let served = match (frame.kind(), id) {
        (Kind::Request, Some(id)) => return request(room, facts, &live, frame, id).await,
        (Kind::Request, None) => Err(Reject::Internal),
        (Kind::Notification, _) => {
            notify::notification(&room.shared, &live, &facts, &facts.record, frame).await
        }
        (Kind::Response, _) => response::response(&room.shared, &live, frame).await,
    };
    match served {
        Ok(()) => answer::accepted(&facts.record),
        Err(reject) => answer::refuse(&facts.record, reject, None),
    }
}

async fn request<S: Exchange>(
    room: &Room<S>,
    facts: Facts,
    live: &Arc<Live>,
    frame: Frame,
    id: Id,
) -> Response {
    let record = facts.record.clone();
    let method = match known(&frame, live.revision()) {
        Ok(method) => method,
        Err(reject) => return answer::refuse(&record, reject, Some(&id)),
    };
    note_target(&record, method, &frame);
    match local(&room.shared, live, method, &frame, &id).await {
        Ok(Some(reply)) => return answer::json(&record, reply, false),
        Ok(None) => {}
        Err(reject) => return answer::refuse(&record, reject, Some(&id)),
    }
    let begun = match call::begin(live, &id) {
        Ok(begun) => begun,
        Err(reject) => return answer::refuse(&record, reject, Some(&id)),
    };
    let (sink, first) = Sink::new(&room.shared, live, std::slice::from_ref(&id), facts.accepts);
    let request = Request {
        id: id.clone(),
        method,
        frame,
        record,
        held: None,
    };
    let call = call::run(room, &facts, live, request, begun, (&sink, 0));
    drop(sink);
    let first = Attended::new(call, first);
    respond(&room.shared, &facts, live, first, Form::Single(&id)).await
}

/// The method of a request, if the revision has it in this direction (FRM-11, FRM-14, FRM-16).
pub(super) fn known(frame: &Frame, revision: Revision) -> Result<Method, Reject> {
    let name = frame.method().unwrap_or_default();
    Method::parse(&name)
        .filter(|method| method.allowed(Direction::ClientRequest, revision))
        .ok_or(Reject::MethodNotFound {
            modern: false,
            message: "method not found".into(),
        })
}

/// What needs no stage below: ping (PNG-01), and a level that does not exist (LOG-02).
pub(super) async fn local(
    shared: &Shared,
    live: &Live,
    method: Method,
    frame: &Frame,
    id: &Id,
) -> Result<Option<Reply>, Reject> {
    if method == Method::Ping {
        return Ok(Some(Reply::result(id, b"{}")));
    }
    if method == Method::Initialize {
        return Err(Reject::InvalidRequest("the session is open already".into())); // LIF-07
    }
    if method != Method::LoggingSetLevel {
        return Ok(None);
    }
    let level = frame
        .params()
        .and_then(|params| frame.member(params, "level"))
        .and_then(|span| frame.string(span))
        .and_then(|text| LogLevel::parse(&text));
    let Some(level) = level else {
        let error = RpcError::new(code::INVALID_PARAMS, "unknown log level");
        return Ok(Some(Reply::error(Some(id), &error)));
    };
    let text = Arc::from(level.as_str());
    let kept = modify(&*shared.rooms.sessions, &live.key, |state| {
        state.log_level = Some(Arc::clone(&text));
    });
    kept.await
        .map_err(|error| unavailable(&error))?
        .ok_or(Reject::SessionNotFound)?;
    live.set_level(level);
    replicas::tell(shared, Word::Level(live.key.clone(), level)).await;
    Ok(None) // upstreams are told too
}

/// What a POST carried.
#[derive(Debug, Clone, Copy)]
pub(super) enum Form<'a> {
    /// One request of this id.
    Single(&'a Id),
    /// A batch.
    Array,
}

impl<'a> Form<'a> {
    fn id(self) -> Option<&'a Id> {
        match self {
            Form::Single(id) => Some(id),
            Form::Array => None,
        }
    }
}

/// The HTTP answer to a POST whose calls are running.
pub(super) async fn respond(
    shared: &Arc<Shared>,
    facts: &Facts,
    live: &Arc<Live>,
    first: impl Future<Output = Result<First, RecvError>>,
    form: Form<'_>,
) -> Response {
    let array = matches!(form, Form::Array);
    match first.await {
        Ok(First::Stream(streaming)) => {
            if array {
                facts.record.set_outcome(Outcome::Ok);
            } // else the call says how it ended, before its response is sent
            streamed(shared, live, streaming).await
        }
        Ok(First::Json(replies)) => {
            let mut replies: Vec<Reply> = replies.into_iter().flatten().collect();
            if replies.is_empty() {
                return cancelled();
            }
            if array {
                facts.record.set_outcome(Outcome::Ok);
                return answer::json_array(replies);
            }
            answer::json(&facts.record, replies.remove(0), false)
        }
        Err(_the_task_is_gone) => answer::refuse(&facts.record, Reject::Internal, form.id()),
    }
}

async fn streamed(shared: &Arc<Shared>, live: &Arc<Live>, streaming: Streaming) -> Response {
    let Streaming {
        reader,
        priming,
        requests,
    } = streaming;
    let priming = priming
        .filter(|_| live.revision().has_priming())
        .map(|priming| sse::priming(priming.as_str()));
    let reading = Reading::begin(shared, live, reader, StreamKind::Post).await;
    let reading = Box::new(reading.answering(requests).first(priming));
    answer::events(reading.body())
}

/// CAN-03: a stream without any event, because an empty JSON body breaks parsers.
fn cancelled() -> Response {
    answer::events(EventBody::new(stream::empty()))
}

//! HTTP answers: one JSON message, an event stream, an acceptance, a refusal. The only place where
//! statuses are chosen and where a request's record learns how it ended.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, header};
use http_body::{Body as HttpBody, Frame as BodyFrame, SizeHint};
use vestibule_frame::Id;
use vestibule_terms::reject::code;
use vestibule_terms::{Record, Reject};

use crate::encode::Reply;
use crate::stream::EventBody;

/// The answer of this room.
pub(crate) type Response = http::Response<Body>;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
/// Neither kept nor re-coded on the way (HDR-21, case 140).
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store, no-transform");
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

/// Messages up to this size are sent in one piece.
const ONE_PIECE: usize = 16 * 1024;

/// Refuses; `id` where the request's was read (FRM-21).
pub(crate) fn refuse(record: &Record, reject: Reject, id: Option<&Id>) -> Response {
    record.set_outcome(reject.outcome());
    record.set_code(reject.code());
    record.set_reason(reject.reason());
    reject.into_response(id.map(Id::as_bytes)).map(Body::from)
}

/// 405 to a GET, without a body (RES-06).
pub(crate) fn nothing_to_resume(record: &Record) -> Response {
    let reject = Reject::MethodNotAllowed {
        allow: crate::classify::ALLOW_SESSIONS,
    };
    let mut response = refuse(record, reject, None);
    *response.body_mut() = Body::empty();
    response.headers_mut().remove(header::CONTENT_TYPE);
    response
}

/// 202 without a body (STA-15, case 57).
pub(crate) fn accepted(record: &Record) -> Response {
    record.set_outcome(vestibule_terms::Outcome::Ok);
    empty(StatusCode::ACCEPTED)
}

/// 204 (STA-21).
pub(crate) fn no_content(record: &Record) -> Response {
    record.set_outcome(vestibule_terms::Outcome::Ok);
    empty(StatusCode::NO_CONTENT)
}

fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// Notes how a call ended.
pub(crate) fn note(record: &Record, reply: &Reply) {
    record.set_outcome(reply.outcome);
    if let Some(code) = reply.code {
        record.set_code(code);
    }
}

/// One response as JSON, with the status of its era.
pub(crate) fn json(record: &Record, reply: Reply, modern: bool) -> Response {
    note(record, &reply);
    let status = status(&reply, modern);
    let mut response = body_of(reply.chunks);
    *response.status_mut() = status;
    if let Some(seconds) = reply.retry_after {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

/// The responses of a batch, an array (BAT-06).
pub(crate) fn json_array(replies: Vec<Reply>) -> Response {
    let mut chunks = vec![Bytes::from_static(b"[")];
    for (index, reply) in replies.into_iter().enumerate() {
        if index > 0 {
            chunks.push(Bytes::from_static(b","));
        }
        chunks.extend(reply.chunks);
    }
    chunks.push(Bytes::from_static(b"]"));
    body_of(chunks)
}

fn body_of(chunks: Vec<Bytes>) -> Response {
    let size: usize = chunks.iter().map(Bytes::len).sum();
    let body = match <[Bytes; 1]>::try_from(chunks) {
        Ok([whole]) => Body::from(whole),
        Err(chunks) if size <= ONE_PIECE => Body::from(chunks.concat()),
        Err(chunks) => Body::new(Chunks {
            left: chunks.into(),
            size: size as u64,
        }),
    };
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, NO_STORE);
    response
}

/// The status of a JSON answer: limits in every era, the rest of the table for stateless clients.
pub(crate) fn status(reply: &Reply, modern: bool) -> StatusCode {
    match reply.code {
        Some(code::LIMITED) => StatusCode::TOO_MANY_REQUESTS,
        Some(code::METHOD_NOT_FOUND) if modern => StatusCode::NOT_FOUND,
        Some(code::HEADER_MISMATCH | code::MISSING_CAPABILITY | code::UNSUPPORTED_VERSION)
            if modern =>
        {
            StatusCode::BAD_REQUEST
        }
        _ => StatusCode::OK,
    }
}

/// An event stream (HDR-21).
pub(crate) fn events(body: EventBody) -> Response {
    let mut response = Response::new(Body::new(body));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, EVENT_STREAM);
    headers.insert(header::CACHE_CONTROL, NO_STORE);
    headers.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}

/// Names the session that the answer opens (SES-01).
pub(crate) fn with_session(mut response: Response, id: &str) -> Response {
    if let Ok(mut value) = HeaderValue::from_str(id) {
        value.set_sensitive(true);
        response.headers_mut().insert(SESSION, value);
    }
    response
}

/// A body of slices whose size is known.
struct Chunks {
    left: VecDeque<Bytes>,
    size: u64,
}

impl HttpBody for Chunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<BodyFrame<Bytes>, Infallible>>> {
        let chunk = self.left.pop_front();
        if let Some(chunk) = &chunk {
            self.size -= chunk.len() as u64;
        }
        Poll::Ready(chunk.map(|chunk| Ok(BodyFrame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.size)
    }
}

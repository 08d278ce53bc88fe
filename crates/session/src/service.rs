//! The way into the room: facts, classifier, machine.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Request;
use tower::Service;
use vestibule_exchange::{Backchannel, Exchange};
use vestibule_frame::body::FrameBody;
use vestibule_frame::{Frame, Id, Kind, Payload};
use vestibule_terms::{Record, Reject};

use crate::answer::{self, Response};
use crate::classify::{self, Decision};
use crate::drain::Supervisor;
use crate::facts::Facts;
use crate::legacy::http_sse;
use crate::room::{Room, SessionRooms, Shared, below};
use crate::{legacy, modern};

/// The stage that speaks with clients, of every revision.
pub struct SessionService<S>(Arc<Room<S>>);

impl<S: Exchange> SessionService<S> {
    /// The room over the stage `inner`.
    pub fn new(inner: S, back: Arc<dyn Backchannel>, rooms: SessionRooms) -> Self {
        let shared = Arc::new(Shared::new(rooms, below(inner.clone()), back));
        Self(Arc::new(Room::new(inner, shared)))
    }

    /// A handle for whoever starts and stops the process.
    pub fn supervisor(&self) -> Supervisor {
        Supervisor::new(Arc::clone(&self.0.shared))
    }
}

impl<S> Clone for SessionService<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S> fmt::Debug for SessionService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionService")
    }
}

impl<S: Exchange> Service<Request<FrameBody>> for SessionService<S> {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<FrameBody>) -> Self::Future {
        let room = Arc::clone(&self.0);
        Box::pin(async move { Ok(enter(room, request).await) })
    }
}

async fn enter<S: Exchange>(room: Arc<Room<S>>, request: Request<FrameBody>) -> Response {
    let record = request
        .extensions()
        .get::<Record>()
        .cloned()
        .unwrap_or_default();
    record.enter("session");
    let Some(mut facts) = Facts::take(request) else {
        tracing::error!("a fact of the request is missing: the pipeline is out of order");
        return answer::refuse(&record, Reject::Internal, None);
    };
    let decision = classify::classify(&facts.inquiry());
    let payload = facts.payload.take();
    let id = request_id(payload.as_ref());
    match (decision, payload) {
        (Decision::Refused(reject), _) => answer::refuse(&record, reject, id.as_ref()),
        (Decision::ModernNotification, _) => modern::notification(&facts),
        (Decision::Modern(revision), Some(Payload::Single(frame))) => {
            modern::request(&room, facts, frame, revision).await
        }
        (Decision::Open, Some(Payload::Single(frame))) => legacy::open(&room, facts, frame).await,
        (Decision::Session, Some(Payload::Single(frame))) => {
            legacy::message(&room, facts, frame).await
        }
        (Decision::Batch, Some(Payload::Batch(batch))) => legacy::batch(&room, facts, batch).await,
        (Decision::Stream, _) => legacy::get(&room, facts).await,
        (Decision::End, _) => legacy::delete(&room, facts).await,
        (Decision::SseOpen, _) => http_sse::connect(&room.shared, &facts).await,
        (Decision::SsePost, Some(payload)) => http_sse::post(&room, facts, payload).await,
        (
            Decision::Modern(_)
            | Decision::Open
            | Decision::Session
            | Decision::Batch
            | Decision::SsePost,
            Some(_) | None,
        ) => answer::refuse(&record, Reject::Internal, id.as_ref()),
    }
}

fn request_id(payload: Option<&Payload>) -> Option<Id> {
    match payload {
        // the id of a response is ours, not the client's to have echoed (FRM-19)
        Some(Payload::Single(frame)) if frame.kind() == Kind::Request => Frame::id(frame),
        Some(Payload::Single(_) | Payload::Batch(_)) | None => None,
    }
}

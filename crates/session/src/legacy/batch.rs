//! Batches of 2025-03-26 sessions: taken apart, each element on its own through policy, limits and
//! records and the stages below, and joined (BAT-01 … BAT-07, 8.7, case 58).

mod held;

use std::sync::Arc;

use vestibule_exchange::{Exchange, RpcError};
use vestibule_frame::{Batch, Frame, Id, Kind};
use vestibule_terms::reject::code;
use vestibule_terms::{InFlight, Outcome, Reject};

use super::access::session;
use super::call::{self, Request};
use super::live::Live;
use super::message::{Form, known, local, respond};
use super::sink::Sink;
use super::{notify, response};
use crate::answer::{self, Response};
use crate::encode::Reply;
use crate::facts::{Facts, note_target};
use crate::room::Room;

pub(super) use held::Held;

/// Serves the POST of an array.
pub(crate) async fn batch<S: Exchange>(room: &Room<S>, facts: Facts, batch: Batch) -> Response {
    let record = facts.record.clone();
    if facts.head.session.is_none() {
        let text = "a batch needs a session of 2025-03-26: Mcp-Session-Id is missing";
        return answer::refuse(&record, Reject::InvalidRequest(text.into()), None);
    }
    let live = match session(&room.shared, &facts).await {
        Ok(live) => live,
        Err(reject) => return answer::refuse(&record, reject, None),
    };
    if !live.revision().has_batches() {
        let text = "the body must be one JSON object: this revision has no batches"; // FRM-18
        return answer::refuse(&record, Reject::InvalidRequest(text.into()), None);
    }
    let ids = request_ids(&batch);
    let (sink, first) = Sink::new(&room.shared, &live, &ids, facts.accepts);
    let run = Run {
        room,
        facts: &facts,
        live: &live,
        sink: &sink,
        in_flight: None,
    };
    run.all(batch).await;
    if ids.is_empty() {
        return answer::accepted(&record); // BAT-05
    }
    drop(sink);
    respond(&room.shared, &facts, &live, first, Form::Array).await
}

/// The requests of a batch, in order.
pub(super) fn request_ids(batch: &Batch) -> Vec<Id> {
    let requests = batch.elements.iter();
    requests
        .filter(|frame| frame.kind() == Kind::Request)
        .filter_map(Frame::id)
        .collect()
}

/// The messages of one POST, each of which stands for itself.
pub(super) struct Run<'a, S> {
    pub(super) room: &'a Room<S>,
    pub(super) facts: &'a Facts,
    pub(super) live: &'a Arc<Live>,
    pub(super) sink: &'a Arc<Sink>,
    /// The place of the POST in the budget, where its answer does not hold it long enough.
    pub(super) in_flight: Option<InFlight>,
}

/// An element that wants a response.
struct Element {
    frame: Frame,
    id: Id,
    duplicate: bool,
    index: usize,
}

/// What became of an element that wants a response.
enum Begun {
    Call(Box<Request>, call::Begun),
    Answered(Reply),
}

// === impl Run ===

impl<S: Exchange> Run<'_, S> {
    /// Takes a batch apart.
    pub(super) async fn all(&self, batch: Batch) {
        let mut requests = 0;
        let elements = batch.elements.into_iter().zip(batch.duplicates);
        for (place, (frame, duplicate)) in elements.enumerate() {
            let held = self.held(&frame, place > 0).await;
            let id = frame.id().filter(|_| frame.kind() == Kind::Request);
            let Some(id) = id else {
                self.message(frame, held).await;
                continue;
            };
            let element = Element {
                frame,
                id,
                duplicate,
                index: requests,
            };
            self.request(element, held).await;
            requests += 1;
        }
    }

    /// Begins or answers one request that came alone.
    pub(super) async fn one(&self, frame: Frame, id: Id) {
        let held = self.held(&frame, false).await;
        let element = Element {
            frame,
            id,
            duplicate: false,
            index: 0,
        };
        self.request(element, held).await;
    }

    async fn held(&self, frame: &Frame, further: bool) -> Held {
        let held = Held::new(&self.room.shared, self.facts, frame, further).await;
        held.keeping(self.in_flight.clone())
    }

    /// An element that gets no response. One that may not come so does not fail the others (8.7).
    async fn message(&self, frame: Frame, held: Held) {
        if let Err(reject) = held.admitted() {
            return held.refused(reject);
        }
        let shared = &self.room.shared;
        let served = if frame.kind() == Kind::Response {
            response::response(shared, self.live, frame).await
        } else {
            notify::notification(shared, self.live, self.facts, held.record(), frame).await
        };
        match served {
            Ok(()) => held.record().set_outcome(Outcome::Ok),
            Err(reject) => held.refused(&reject),
        }
    }

    /// An element that gets one: begun, or answered at once.
    async fn request(&self, element: Element, held: Held) {
        let (id, index) = (element.id.clone(), element.index);
        let reply = match self.begin(element, &held).await {
            Ok(Begun::Call(request, ticket)) => {
                let request = Request {
                    held: Some(held),
                    ..*request
                };
                let sink = (self.sink, index);
                let call = call::run(self.room, self.facts, self.live, request, ticket, sink);
                tokio::spawn(call);
                return;
            }
            Ok(Begun::Answered(reply)) => reply,
            Err(reject) => Reply::error(Some(&id), &(&reject).into()),
        };
        answer::note(held.record(), &reply);
        self.sink.done(index, Some(reply)).await;
    }

    async fn begin(&self, element: Element, held: &Held) -> Result<Begun, Reject> {
        let Element {
            frame,
            id,
            duplicate,
            ..
        } = element;
        if duplicate {
            let text = "another request of this batch has the same id"; // BAT-07
            let error = RpcError::new(code::INVALID_REQUEST, text);
            return Ok(Begun::Answered(Reply::error(Some(&id), &error)));
        }
        held.admitted().map_err(Clone::clone)?;
        let method = known(&frame, self.live.revision())?;
        note_target(held.record(), method, &frame);
        if let Some(reply) = local(&self.room.shared, self.live, method, &frame, &id).await? {
            return Ok(Begun::Answered(reply));
        }
        let ticket = call::begin(self.live, &id)?;
        let request = Request {
            id,
            method,
            frame,
            record: held.record().clone(),
            held: None,
        };
        Ok(Begun::Call(Box::new(request), ticket))
    }
}

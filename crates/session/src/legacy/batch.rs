//! Batches of 2025-03-26 sessions: taken apart, each element on its own through the stages below,
//! and joined (BAT-01 … BAT-07, 8.7).

use std::sync::Arc;

use vestibule_exchange::Exchange;
use vestibule_frame::{Batch, Frame, Id, Kind};
use vestibule_terms::reject::code;
use vestibule_terms::{Record, Reject};

use super::access::session;
use super::call::{self, Request};
use super::live::Live;
use super::message::{Form, known, local, respond};
use super::notify;
use super::sink::Sink;
use crate::answer::{self, Response};
use crate::encode::Reply;
use crate::facts::Facts;
use crate::room::Room;

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
    let ids: Vec<Id> = batch
        .elements
        .iter()
        .filter(|frame| frame.kind() == Kind::Request)
        .filter_map(Frame::id)
        .collect();
    let (sink, first) = Sink::new(&room.shared, &live, &ids, facts.accepts);
    let mut index = 0;
    for (frame, duplicate) in batch.elements.into_iter().zip(batch.duplicates) {
        let id = frame.id().filter(|_| frame.kind() == Kind::Request);
        let Some(id) = id else {
            message(room, &live, &facts, frame).await;
            continue;
        };
        let element = Element {
            frame,
            id,
            duplicate,
            index,
        };
        if let Some(reply) = element.begin(room, &facts, &live, &sink).await {
            sink.done(index, Some(reply)).await;
        }
        index += 1;
    }
    if ids.is_empty() {
        return answer::accepted(&record); // BAT-05
    }
    drop(sink);
    respond(&room.shared, &facts, &live, first, Form::Array).await
}

/// An element that gets no response. One that may not come so does not fail the others (8.7).
async fn message<S: Exchange>(room: &Room<S>, live: &Arc<Live>, facts: &Facts, frame: Frame) {
    if frame.kind() == Kind::Response {
        return notify::response(&room.shared, live, frame).await;
    }
    if let Err(reject) = notify::notification(&room.shared, live, facts, frame).await {
        tracing::debug!(
            reason = reject.reason(),
            "a notification of a batch was refused"
        );
    }
}

struct Element {
    frame: Frame,
    id: Id,
    duplicate: bool,
    index: usize,
}

impl Element {
    /// Begins one request; its reply when there is nothing to run.
    async fn begin<S: Exchange>(
        self,
        room: &Room<S>,
        facts: &Facts,
        live: &Arc<Live>,
        sink: &Arc<Sink>,
    ) -> Option<Reply> {
        let refuse = |reject: &Reject| Reply::error(Some(&self.id), &reject.into());
        if self.duplicate {
            let error = vestibule_exchange::RpcError::new(
                code::INVALID_REQUEST,
                "another request of this batch has the same id",
            );
            return Some(Reply::error(Some(&self.id), &error)); // BAT-07
        }
        let method = match known(&self.frame, live.revision()) {
            Ok(method) => method,
            Err(reject) => return Some(refuse(&reject)),
        };
        match local(&room.shared, live, method, &self.frame, &self.id).await {
            Ok(None) => {}
            Ok(reply) => return reply,
            Err(reject) => return Some(refuse(&reject)),
        }
        let begun = match call::begin(live, &self.id) {
            Ok(begun) => begun,
            Err(reject) => return Some(refuse(&reject)),
        };
        // The request's own record can hold one method only.
        let record = Record::default();
        let request = Request {
            id: self.id,
            method,
            frame: self.frame,
            record,
        };
        call::run(room, facts, live, request, begun, (sink, self.index));
        None
    }
}

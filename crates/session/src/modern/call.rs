//! One call whose stream is not logged: JSON when its first event is its end, else an event stream
//! that the end closes. When a stateless client goes, its call goes (SSE-10, case 85).

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;
use vestibule_exchange::{Backchannel, Call, Event, Final, RpcError};
use vestibule_frame::{Draft, Frame, Id, Limits, encode, sse};
use vestibule_metrics::StreamKind;
use vestibule_terms::accept::Accepts;
use vestibule_terms::reject::code;
use vestibule_terms::{Method, Record, Revision, ServerPlan};

use crate::answer::{self, Response};
use crate::encode::{Encoder, Reply};
use crate::observe;
use crate::relay::Relay;
use crate::room::Shared;
use crate::running::{Next, Running};
use crate::stream::{EventBody, Outlet, Stuck, queue};

/// Everything that is needed to write what is heard about one call.
pub(crate) struct Scribe {
    shared: Arc<Shared>,
    plan: Arc<ServerPlan>,
    revision: Revision,
    method: Method,
    id: Id,
    record: Record,
    relay: Relay,
}

/// What an event comes to.
enum Heard {
    /// To be sent on the stream.
    Message(Vec<Bytes>),
    /// The response; none when there is none.
    End(Option<Box<Reply>>),
    /// Not for this client.
    Nothing,
}

// === impl Scribe ===

impl Scribe {
    /// For the call that the request `id` makes; `token` is its progress token.
    pub(crate) fn new(shared: &Arc<Shared>, call: &Call, id: Id, token: Option<Id>) -> Self {
        let plan = Arc::clone(&call.plan);
        Self {
            shared: Arc::clone(shared),
            revision: call.revision,
            method: call.method,
            id,
            record: call.record.clone(),
            relay: Relay::new(call.revision, token, call.log_level, plan.strict_fields),
            plan,
        }
    }

    /// Answers with JSON when the first thing to be sent is the end, else with a stream.
    pub(crate) async fn answer(mut self, mut running: Running, accepts: Accepts) -> Response {
        let streams_at = Instant::now() + self.plan.stream_after;
        let moment = accepts.sse.then_some(streams_at);
        let first = loop {
            let event = match running.next_before(moment).await {
                Next::Event(event) => event,
                Next::Moment => break None,
                // nobody but this connection waits for it
                Next::Left(error) => Some(Event::Final(Final::Error(error))),
            };
            match self.hear(event) {
                Heard::End(reply) => return self.whole(reply, accepts),
                Heard::Message(message) if accepts.sse => break Some(message),
                Heard::Message(_) | Heard::Nothing => {}
            }
        };
        let counted = self
            .shared
            .observer
            .stream(&self.plan.tenant, StreamKind::Post);
        let (outlet, events) = queue();
        if let Some(message) = first {
            counted.event();
            // The queue is new and takes an event of any size.
            let _taken = outlet.push(sse::message(None, &message));
        }
        tokio::spawn(self.pump(running, outlet, counted));
        answer::events(EventBody::new(events))
    }

    fn hear(&mut self, event: Option<Event>) -> Heard {
        let message = match event {
            None => return Heard::End(None),
            Some(Event::Final(end)) => return self.end(end),
            Some(Event::Progress(draft)) => self.relay.progress(draft),
            Some(Event::Log { level, message }) => self.relay.log(level, &message),
            Some(Event::Question(question)) => {
                refuse_question(&self.shared.back, question);
                None
            }
            // What belongs to no request is for listen streams (HTR-08, SUB-02).
            Some(
                Event::Notice(_)
                | Event::QuestionWithdrawn(_)
                | Event::Paused { .. }
                | Event::Mark { .. },
            ) => None,
        };
        message.map_or(Heard::Nothing, Heard::Message)
    }

    fn end(&self, end: Final) -> Heard {
        let encoder = Encoder {
            revision: self.revision,
            identity: &self.shared.rooms.identity,
            strict: self.plan.strict_fields,
            served: &self.plan.revisions,
        };
        Heard::End(encoder.reply(end, self.method, &self.id).map(Box::new))
    }

    /// The answer to a call that ended before anything was sent.
    fn whole(&self, reply: Option<Box<Reply>>, accepts: Accepts) -> Response {
        let modern = self.revision.is_modern();
        let Some(reply) = reply else {
            let error = RpcError::new(code::INTERNAL, "the call was cancelled");
            return answer::json(&self.record, Reply::error(Some(&self.id), &error), modern);
        };
        if !accepts.wants_stream() || answer::status(&reply, modern) != http::StatusCode::OK {
            return answer::json(&self.record, *reply, modern);
        }
        answer::note(&self.record, &reply);
        let event = sse::message(None, &reply.chunks);
        answer::events(EventBody::new(futures_util::stream::iter([Ok(event)])))
    }

    /// Sends what is heard until the end, or until the client has gone or is too slow; then the
    /// call is dropped, which cancels it.
    async fn pump(mut self, mut running: Running, outlet: Outlet, counted: observe::Stream) {
        loop {
            let event = tokio::select! {
                event = running.next() => event,
                () = outlet.closed() => return self.left_alone(running).await,
            };
            let (message, last) = match self.hear(event) {
                Heard::Nothing => continue,
                Heard::Message(message) => (message, false),
                Heard::End(None) => return outlet.abort(),
                Heard::End(Some(reply)) => {
                    answer::note(&self.record, &reply);
                    (reply.chunks, true)
                }
            };
            counted.event();
            match outlet.push(sse::message(None, &message)) {
                Ok(()) if last => return,
                Ok(()) => {}
                Err(Stuck::Full) => return outlet.abort(),
                Err(Stuck::Gone) => return self.left_alone(running).await,
            }
        }
    }

    /// The client has gone: for a stateless one that is the cancellation (SSE-10), for a legacy one
    /// the call goes on to its end (SSE-09).
    async fn left_alone(mut self, mut running: Running) {
        if self.revision.is_modern() {
            return self.record.set_outcome(vestibule_terms::Outcome::Cancelled);
        }
        while !matches!(self.hear(running.next().await), Heard::End(_)) {}
    }
}

/// A question cannot be put to a stateless client as a request (HTR-09): its asker is told so.
pub(crate) fn refuse_question(back: &Arc<dyn Backchannel>, question: vestibule_exchange::Question) {
    let code = if question.method == Method::RootsList {
        code::METHOD_NOT_FOUND
    } else {
        code::INVALID_PARAMS
    };
    answer_with_error(back, question.from, code, "the client cannot be asked this");
}

/// Answers a question with an error, in the background.
pub(crate) fn answer_with_error(
    back: &Arc<dyn Backchannel>,
    to: vestibule_exchange::QuestionRef,
    code: i64,
    message: &str,
) {
    let text = encode::error(Some(&to.id), code, message, None);
    let Ok(frame) = Frame::parse(text, &Limits::default()) else {
        return;
    };
    let answer = back.answer(to, Draft::new(frame));
    tokio::spawn(async move {
        if let Err(error) = answer.await {
            tracing::debug!(
                code = error.code,
                "a refused question could not be answered"
            );
        }
    });
}

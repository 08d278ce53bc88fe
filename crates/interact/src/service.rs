//! The stage between session and router: watches what an upstream asks during a call.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tower::{Service, ServiceExt};
use vestibule_exchange::{
    Arrival, Away, Backchannel, BoxFuture, Call, Connector, Event, Events, Exchange, Final, Inlet,
    Question, QuestionRef, RpcError,
};
use vestibule_frame::{Draft, Frame, Id, Limits, encode};
use vestibule_store::Sealer;
use vestibule_terms::{Clock, ServerKind, UpstreamId};

use crate::answers::{Answers, Back};
use crate::questions::{label, refusal, undeclared};
use crate::rounds::{Outcome, admit};
use crate::state::States;

/// Questions of upstreams, on their way to the clients whose calls they belong to. Cheap to clone.
#[derive(Clone)]
pub struct Interact<S> {
    inner: S,
    room: Arc<Room>,
}

struct Room {
    connector: Arc<dyn Connector>,
    states: States,
    answers: Arc<Answers>,
}

impl<S> Interact<S> {
    /// Wraps `inner`; states handed to clients are sealed with `sealer`.
    pub fn new(
        inner: S,
        connector: Arc<dyn Connector>,
        sealer: Sealer,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let states = States::new(sealer, clock);
        Self {
            inner,
            room: Arc::new(Room {
                connector,
                states,
                answers: Arc::default(),
            }),
        }
    }

    /// The way from clients to upstreams, for the session room.
    pub fn backchannel(&self) -> Arc<dyn Backchannel> {
        let connector = Arc::clone(&self.room.connector);
        Arc::new(Back {
            connector,
            answers: Arc::clone(&self.room.answers),
        })
    }
}

impl<S> std::fmt::Debug for Interact<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Interact").finish_non_exhaustive()
    }
}

impl<S: Exchange> Service<Call> for Interact<S> {
    type Response = Events;
    type Error = Infallible;
    type Future = BoxFuture<Result<Events, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    /// Dropping the future, or the events, cancels the call; its open questions are closed.
    fn call(&mut self, mut call: Call) -> Self::Future {
        call.record.enter("interact");
        let room = Arc::clone(&self.room);
        let inner = self.inner.clone();
        Box::pin(async move {
            let asked = call.clone(); // the state is bound to the request as the client wrote it
            let rounds = match admit(&room.states, &mut call) {
                Ok(rounds) => rounds,
                Err(error) => return Ok(Events::error(error)),
            };
            let watch = Arc::new(Watch {
                room,
                call: asked,
                rounds,
            });
            if let Some(inlet) = call.inlet.take() {
                call.inlet = Some(Arc::new(Asked {
                    watch: Arc::clone(&watch),
                    inlet,
                }));
            }
            let events = inner.oneshot(call).await?;
            Ok(watched(watch, events))
        })
    }
}

/// One call and what it may be asked.
struct Watch {
    room: Arc<Room>,
    call: Call,
    rounds: u8,
}

impl Watch {
    fn upstream(&self) -> Option<&UpstreamId> {
        match &self.call.plan.kind {
            ServerKind::Transparent(upstream) => Some(upstream),
            ServerKind::Federated(_) => self.call.record.upstream(),
        }
    }

    fn end(&self, end: Final) -> Final {
        match end {
            Final::Message(draft) if draft.frame().result().is_some() && self.is_modern() => {
                let upstream = self.upstream();
                let (states, call) = (&self.room.states, &self.call);
                Outcome {
                    states,
                    call,
                    rounds: self.rounds,
                    upstream,
                }
                .of(draft)
            }
            Final::Message(_)
            | Final::Error(_)
            | Final::View(_)
            | Final::List(_)
            | Final::Empty
            | Final::Wanted(_)
            | Final::Cancelled => end,
        }
    }

    /// Whether `resultType` means something in what the upstream sends. Where nothing is known of
    /// it, it does: an older server has no reason to send it.
    fn is_modern(&self) -> bool {
        let (tenant, era) = (&self.call.plan.tenant, self.call.revision.era());
        let known = self
            .upstream()
            .and_then(|up| self.room.connector.known_profile(tenant, up, era));
        known.is_none_or(|profile| profile.revision.is_modern())
    }

    /// A question that the client can be asked: labelled and noted as open.
    ///
    /// # Errors
    /// The refusal that the upstream gets instead.
    fn admit(&self, mut question: Question) -> Result<Question, Box<Refusal>> {
        let frame = question.message.frame().clone();
        let params = frame.params();
        let declared = &self.call.capabilities;
        if undeclared(question.method, &frame, params, declared).is_some() {
            return Err(Box::new(Refusal::of(question)));
        }
        let upstream = question.from.upstream.clone();
        label(
            &mut question.message,
            &self.call.plan,
            &upstream,
            question.method,
            params,
        );
        self.room.answers.ask(&question.from);
        Ok(question)
    }
}

/// An error about to be sent to the upstream that asked.
struct Refusal {
    to: QuestionRef,
    answer: Draft,
}

impl Refusal {
    fn of(question: Question) -> Self {
        let (code, message) = refusal(question.method);
        let text = encode::error(Some(&question.from.id), code, message, None);
        let frame =
            Frame::parse(text, &Limits::default()).expect("an error of our own is well-formed");
        Self {
            to: question.from,
            answer: Draft::new(frame),
        }
    }

    async fn send(self, connector: Arc<dyn Connector>) {
        if let Err(error) = connector.answer(self.to, self.answer).await {
            tracing::debug!(error = %error, "could not refuse a question of an upstream");
        }
    }
}

/// The events of a call as they go on.
fn watched(watch: Arc<Watch>, events: Events) -> Events {
    let events = match events.into_ready() {
        Ok(end) => return Events::ready(watch.end(end)),
        Err(events) => events,
    };
    let running = Running {
        watch,
        events: Some(events),
        open: Vec::new(),
    };
    Events::stream(stream::unfold(
        Box::new(running),
        |mut running| async move {
            let event = running.next().await?;
            Some((event, running))
        },
    ))
}

struct Running {
    watch: Arc<Watch>,
    /// None once the call has ended.
    events: Option<Events>,
    /// Questions of this call that may still be answered.
    open: Vec<QuestionRef>,
}

impl Running {
    async fn next(&mut self) -> Option<Event> {
        loop {
            let event = self.events.as_mut()?.next().await?;
            match event {
                Event::Question(question) => {
                    if let Some(event) = self.question(question).await {
                        return Some(event);
                    }
                }
                Event::QuestionWithdrawn(message) => {
                    self.withdrawn(&message);
                    return Some(Event::QuestionWithdrawn(message));
                }
                Event::Final(end) => {
                    self.events = None;
                    return Some(Event::Final(self.watch.end(end)));
                }
                Event::Progress(_)
                | Event::Log { .. }
                | Event::Notice(_)
                | Event::Paused { .. }
                | Event::Mark { .. } => {
                    return Some(event);
                }
            }
        }
    }

    /// A question of a legacy upstream. A modern client has no stream to be asked on: the upstream
    /// is refused and the call ends.
    async fn question(&mut self, question: Question) -> Option<Event> {
        let connector = Arc::clone(&self.watch.room.connector);
        if self.watch.call.revision.is_modern() {
            Refusal::of(question).send(connector).await;
            self.events = None;
            let message = "the upstream asks a question that cannot be relayed to this client";
            let error = RpcError::not_translatable(message, "question");
            return Some(Event::Final(Final::Error(error)));
        }
        match self.watch.admit(question) {
            Ok(question) => {
                self.open.push(question.from.clone());
                Some(Event::Question(question))
            }
            Err(refusal) => {
                refusal.send(connector).await;
                None
            }
        }
    }

    fn withdrawn(&mut self, message: &Draft) {
        let Some(id) = withdrawn_id(message.frame()) else {
            return;
        };
        if let Some(at) = self.open.iter().position(|question| question.id == id) {
            self.watch.room.answers.take(&self.open.swap_remove(at));
        }
    }
}

impl Drop for Running {
    /// An answer for a call that is over is late: nobody waits for it.
    fn drop(&mut self) {
        for question in &self.open {
            self.watch.room.answers.take(question);
        }
    }
}

fn withdrawn_id(frame: &Frame) -> Option<Id> {
    let span = frame
        .params()
        .and_then(|params| frame.member(params, "requestId"))?;
    Id::from_token(frame.shared(span))
}

/// Questions that arrive on a private session outside every call.
struct Asked {
    watch: Arc<Watch>,
    inlet: Arc<dyn Inlet>,
}

impl Inlet for Asked {
    fn arrive(&self, upstream: &UpstreamId, arrival: Arrival) {
        match arrival {
            Arrival::Question(question) => match self.watch.admit(question) {
                Ok(question) => self.inlet.arrive(upstream, Arrival::Question(question)),
                Err(refusal) => {
                    let connector = Arc::clone(&self.watch.room.connector);
                    tokio::spawn(refusal.send(connector));
                }
            },
            Arrival::ListChanged(..)
            | Arrival::Updated(_)
            | Arrival::Log { .. }
            | Arrival::QuestionWithdrawn(_)
            | Arrival::Missed
            | Arrival::Notice(..) => self.inlet.arrive(upstream, arrival),
        }
    }

    fn recall(&self, upstream: &UpstreamId) -> BoxFuture<Result<Option<Bytes>, Away>> {
        self.inlet.recall(upstream)
    }

    fn remember(
        &self,
        upstream: &UpstreamId,
        record: Bytes,
        instead: Option<Bytes>,
    ) -> BoxFuture<Option<Bytes>> {
        self.inlet.remember(upstream, record, instead)
    }
}

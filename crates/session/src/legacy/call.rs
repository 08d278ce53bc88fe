//! One call of a session, which outlives the connection: what ends it is its
//! response, its cancellation, its limit or the end of its session.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::time::Instant;
use vestibule_exchange::{
    Call, Continuation, Event, Exchange, Final, LogLevel, Rounds as Called, RpcError,
};
use vestibule_frame::meta::Reserved;
use vestibule_frame::{Draft, Frame, Id};
use vestibule_streamlog::{Class, Writer};
use vestibule_terms::{Method, Outcome, Principal, Record, Reject, ServerPlan, UpstreamId};

use super::batch::Held;
use super::effect::Effect;
use super::inlet::one_piece;
use super::live::Live;
use super::note::{Between, Heading, Note, Standing};
use super::question::no_longer;
use super::rounds::{Cancelled, Rounds, Stop};
use super::sink::Sink;
use crate::answer;
use crate::encode::Encoder;
use crate::facts::Facts;
use crate::machine::{Phase, Refused, Ticket};
use crate::relay::{Relay, is_change, notice_method};
use crate::room::{Room, Shared};
use crate::running::{Next, Running};

/// How long an upstream may take to hear that nobody wants a call any more.
const TELLING: Duration = Duration::from_secs(2);

/// One request that the session has accepted.
pub(super) struct Request {
    pub(super) id: Id,
    pub(super) method: Method,
    pub(super) frame: Frame,
    pub(super) record: Record,
    /// What is held until the call is over.
    pub(super) held: Option<Held>,
}

pub(super) struct Driver {
    pub(super) shared: Arc<Shared>,
    pub(super) live: Arc<Live>,
    pub(super) plan: Arc<ServerPlan>,
    pub(super) sink: Arc<Sink>,
    index: usize,
    id: Id,
    pub(super) ticket: Ticket,
    pub(super) method: Method,
    pub(super) record: Record,
    pub(super) relay: Relay,
    effect: Effect,
    pub(super) caller: Caller,
    /// The client's request.
    pub(super) frame: Frame,
    /// The answer becomes a stream then, if it is not one yet.
    pub(super) streams_at: Option<Instant>,
    /// Whether it is written down how another process could begin it again, or nobody may.
    pub(super) remembered: bool,
    /// What its upstream has asked for, if it has.
    pub(super) rounds: Option<Box<Rounds>>,
    /// The upstream and a mark of a call that another process has begun.
    begun_elsewhere: Option<(UpstreamId, Bytes)>,
    _held: Option<Held>,
}

/// What a note says of who calls; written when the upstream is known.
pub(super) struct Caller {
    pub(super) user: Arc<Principal>,
    pub(super) token: Option<Id>,
    heading: Option<Heading>,
}

/// What a call begins with.
enum First {
    /// The first request to its upstream, or the rest of it.
    Called(Running),
    /// What another process has left between two of them.
    Between(Between),
}

/// A request that may run: its ticket and what cancels it.
pub(super) type Begun = (Ticket, oneshot::Receiver<oneshot::Sender<()>>);

/// Whether a request may begin (FRM-06).
pub(super) fn begin(live: &Live, id: &Id) -> Result<Begun, Reject> {
    let (cancel, cancelled) = oneshot::channel();
    let begun = live.machine().begin(id, cancel);
    match begun {
        Ok(ticket) => Ok((ticket, cancelled)),
        Err(Refused::Duplicate) => Err(Reject::InvalidRequest(
            "a request with this id is in flight".into(),
        )),
        Err(Refused::Ended) => Err(Reject::SessionNotFound),
    }
}

/// The call, to be run to its end whatever happens to its client; its answer goes into `sink` at
/// `index`.
pub(super) fn run<S: Exchange>(
    room: &Room<S>,
    facts: &Facts,
    live: &Arc<Live>,
    request: Request,
    begun: Begun,
    (sink, index): (&Arc<Sink>, usize),
) -> impl Future<Output = ()> + Send + use<S> {
    let (ticket, cancelled) = begun;
    let token = Reserved::of(&request.frame)
        .progress_token
        .and_then(|span| Id::from_token(request.frame.shared(span)));
    let revision = live.revision();
    // Logs are filtered by the session's level at the moment they come, not by the call's.
    let relay = Relay::new(
        revision,
        token.clone(),
        Some(LogLevel::Debug),
        facts.plan.strict_fields,
    );
    let driver = Driver {
        shared: Arc::clone(&room.shared),
        live: Arc::clone(live),
        plan: Arc::clone(&facts.plan),
        sink: Arc::clone(sink),
        index,
        id: request.id,
        ticket,
        method: request.method,
        record: request.record.clone(),
        relay,
        effect: Effect::of(request.method, &request.frame),
        caller: Caller {
            user: Arc::clone(&facts.principal),
            token: token.clone(),
            heading: None,
        },
        frame: request.frame.clone(),
        streams_at: Some(Instant::now() + facts.plan.stream_after),
        remembered: !(request.method.is_repeatable() && request.method.may_ask()),
        rounds: None,
        begun_elsewhere: None,
        _held: request.held,
    };
    let call = Call {
        plan: Arc::clone(&facts.plan),
        principal: Arc::clone(&facts.principal),
        record: request.record,
        revision,
        method: request.method,
        message: Draft::new(request.frame),
        session: Some(live.name.clone()),
        capabilities: Arc::clone(&live.capabilities),
        log_level: live.level(),
        progress: token.is_some(),
        param_headers: Arc::new([]),
        deadline: facts.deadline,
        inlet: Some(Arc::clone(&live.inlet)),
        continues: None,
        rounds: Called {
            asks: sink.takes_questions(),
            answers: None,
        },
    };
    let ending = room.shared.endings.of(facts);
    let running = Running::new(room.call(call), Some(facts.deadline.end)).until(ending);
    driver.drive(First::Called(running), cancelled)
}

/// The rest of a call that another process began, to be run to its end; the rest of its answer goes
/// to `writer`. Nothing when its request's id is in flight here already.
pub(super) fn go_on(
    shared: &Arc<Shared>,
    live: &Arc<Live>,
    plan: &Arc<ServerPlan>,
    (id, note): (Id, Note),
    writer: Writer,
) -> Option<impl Future<Output = ()> + Send + use<>> {
    let (ticket, cancelled) = begin(live, &id).ok()?;
    let Note {
        method,
        token,
        user,
        standing,
    } = note;
    let mut begun_elsewhere = None;
    let (continuation, between) = match standing {
        Standing::Called(continuation) => {
            if let Continuation::Call { upstream, mark } = &continuation {
                begun_elsewhere = Some((upstream.clone(), mark.clone()));
            }
            (continuation, None)
        }
        // nothing of it runs: the call only says what it is about
        Standing::Between(between) => {
            let upstream = between.upstream.clone();
            (Continuation::Listen { upstream }, Some(between))
        }
    };
    let call = Call {
        progress: token.is_some(),
        ..live.continuing(plan, &user, (method, &id), continuation)
    };
    let (record, end) = (call.record.clone(), call.deadline.end);
    let (revision, strict) = (live.revision(), plan.strict_fields);
    let driver = Driver {
        shared: Arc::clone(shared),
        live: Arc::clone(live),
        plan: Arc::clone(plan),
        sink: Sink::of(shared, live, id.token(), writer),
        index: 0,
        id,
        ticket,
        method,
        record,
        relay: Relay::new(revision, token.clone(), Some(LogLevel::Debug), strict),
        effect: Effect::None,
        caller: Caller {
            user: Arc::clone(&user),
            token,
            heading: None,
        },
        frame: call.message.frame().clone(),
        streams_at: None,
        remembered: true,
        rounds: None,
        begun_elsewhere,
        _held: None,
    };
    let ending = shared.endings.watch(&user, plan);
    let first = match between {
        Some(between) => First::Between(between),
        None => First::Called(Running::new((shared.below)(call), Some(end)).until(ending)),
    };
    Some(driver.drive(first, cancelled))
}

/// A call that ends by a panic of a stage below must not keep its id in flight.
impl Drop for Driver {
    fn drop(&mut self) {
        let _already_over = self.live.machine().finish(&self.id, self.ticket);
    }
}

// === impl Driver ===

impl Driver {
    async fn drive(mut self, first: First, mut cancelled: Cancelled) {
        let mut running = match first {
            First::Called(running) => running,
            First::Between(between) => {
                // on the heap, like all that is seldom done: it would make every call's future larger
                match Box::pin(self.take_up(between, &mut cancelled)).await {
                    Ok(running) => running,
                    Err(stop) => return self.stop(stop, None).await,
                }
            }
        };
        loop {
            let next = tokio::select! {
                biased;
                // nothing comes when the session has ended
                done = &mut cancelled => {
                    return self.stop(Stop::Cancelled(done.ok()), Some(running)).await;
                }
                next = running.next_before(self.streams_at) => next,
            };
            match next {
                Next::Event(Some(Event::Final(Final::Wanted(wanted)))) => {
                    match Box::pin(self.round(*wanted, &mut cancelled)).await {
                        Ok(next) => running = next,
                        Err(stop) => return self.stop(stop, None).await,
                    }
                }
                Next::Event(Some(Event::Final(end))) => return self.end(end).await,
                Next::Event(Some(event)) => {
                    if matches!(event, Event::Mark { .. }) {
                        self.marked();
                    } else if !self.remembered {
                        Box::pin(self.remember()).await;
                    }
                    self.hear(event).await;
                }
                Next::Event(None) => {
                    return self.stop(Stop::Cancelled(None), Some(running)).await;
                }
                Next::Moment => {
                    self.streams_at = None;
                    if !self.remembered {
                        Box::pin(self.remember()).await;
                    }
                    self.sink.open().await;
                }
                Next::Left(error) => return self.leave(Some(running), error).await,
            }
        }
    }

    async fn stop(mut self, stop: Stop, running: Option<Running>) {
        let done = match stop {
            Stop::End(end) => return self.end(*end).await,
            Stop::Left(error) => return self.leave(running, error).await,
            Stop::Elsewhere => return,
            Stop::Cancelled(done) => done,
        };
        // Cancelled: the upstream is told by dropping the call, the client gets no response.
        drop(running);
        if done.is_some() {
            self.tell_who_runs_it().await;
        }
        self.withdraw_questions().await;
        self.record.set_outcome(Outcome::Cancelled);
        self.sink.done(self.index, None).await;
        self.forget_rounds();
    }

    /// A call that this process has only taken over may not have been found again yet: dropping it
    /// tells nobody.
    async fn tell_who_runs_it(&mut self) {
        let Some((upstream, mark)) = self.begun_elsewhere.take() else {
            return;
        };
        let about = (self.method, &self.id);
        let cancel = Continuation::Cancel { upstream, mark };
        let call = self
            .live
            .continuing(&self.plan, &self.caller.user, about, cancel);
        let until = Instant::now() + TELLING;
        let mut telling = Running::new((self.shared.below)(call), Some(until));
        while telling.next().await.is_some() {}
    }

    async fn hear(&mut self, event: Event) {
        match event {
            Event::Progress(draft) => {
                if let Some(chunks) = self.relay.progress(draft) {
                    self.sink.tell(Bytes::from(chunks.concat())).await;
                }
            }
            Event::Log { level, message } => {
                if level >= self.live.heard_level() {
                    self.sink.tell(one_piece(&message)).await;
                }
            }
            Event::Notice(draft) => self.notice(draft).await,
            Event::Question(question) => {
                let asked = self
                    .live
                    .ask(&self.shared, question, Some(self.ticket))
                    .await;
                let Some(asked) = asked else { return };
                // LIF-05: before the client is ready it waits with all else that is not an answer.
                let early = self.live.machine().phase() == Phase::Opened;
                if early || !self.sink.send(asked.payload.clone()).await {
                    self.live.publish_question(&self.shared, asked).await;
                }
            }
            Event::QuestionWithdrawn(draft) => {
                let withdrawn = self.live.withdraw(&self.shared, draft, |_| true);
                if let Some(message) = withdrawn.await {
                    self.say(message).await;
                }
            }
            Event::Paused { retry } => {
                if self.plan.poll_close && self.live.revision().has_priming() {
                    self.sink.pause(retry).await;
                }
            }
            Event::Mark { mark, covers_next } => {
                if let Some(note) = self.note(&mark) {
                    self.sink.note(note, covers_next).await;
                }
            }
            Event::Final(_) => {}
        }
    }

    /// What another process needs to go on from `mark`. Only of calls that end with their answer.
    fn note(&mut self, mark: &[u8]) -> Option<Bytes> {
        if !matches!(self.effect, Effect::None) {
            return None;
        }
        let upstream = match &self.caller.heading {
            Some(_) => None,
            None => Some(self.record.upstream()?.clone()),
        };
        let heading = match upstream {
            Some(upstream) => self.heading(&upstream),
            None => self.caller.heading.as_ref(),
        };
        heading.map(|heading| heading.note(mark))
    }

    /// What every note of this call begins with.
    pub(super) fn heading(&mut self, upstream: &UpstreamId) -> Option<&Heading> {
        let caller = &mut self.caller;
        let heading = caller.heading.get_or_insert_with(|| {
            let token = caller.token.as_ref();
            Heading::new(self.method, token, &caller.user, upstream)
        });
        Some(heading)
    }

    /// Says something about a question where the question was put.
    pub(super) async fn say(&self, message: Bytes) {
        if !self.sink.send(message.clone()).await {
            let event = vestibule_streamlog::Event {
                class: Class::Message,
                payload: message,
            };
            self.live.publish(&self.shared, event).await;
        }
    }

    /// What belongs to the session goes to its standalone stream, the rest stays with the call
    /// (SSE-07, SSE-08).
    async fn notice(&self, draft: Draft) {
        let Some(method) = notice_method(&draft, self.live.revision()) else {
            return;
        };
        if is_change(method) {
            self.live.notice(&self.shared, method, &draft).await;
        } else {
            self.sink.tell(one_piece(&draft)).await;
        }
    }

    /// The process stops: another one goes on with the call where it is written down how (EL-15).
    /// All of it is kept as it is until the process ends, so that the upstream notices nothing.
    async fn leave(self, running: Option<Running>, error: RpcError) {
        if self.sink.leave().await {
            let _kept = (self, running);
            return std::future::pending().await;
        }
        self.end(Final::Error(error)).await;
        drop(running);
    }

    async fn end(mut self, end: Final) {
        // what the upstream said before its answer, on whichever stream, goes out before it
        self.live.mailbox.settled().await;
        self.rounds_end(&end).await;
        let effect = std::mem::replace(&mut self.effect, Effect::None);
        let end = effect.apply(&self.shared, &self.live, end).await;
        let (first, over) = self.live.machine().finish(&self.id, self.ticket);
        for (id, open) in &over {
            if self.live.unkept(&self.shared, id, open).await {
                self.say(no_longer(id)).await;
            }
        }
        let encoder = Encoder {
            revision: self.live.revision(),
            identity: &self.shared.rooms.identity,
            strict: self.plan.strict_fields,
            served: &[],
        };
        let reply = first
            .then(|| encoder.reply(end, self.method, &self.id))
            .flatten();
        match &reply {
            Some(reply) => answer::note(&self.record, reply),
            None => self.record.set_outcome(Outcome::Cancelled),
        }
        self.sink.done(self.index, reply).await;
        self.forget_rounds();
    }
}

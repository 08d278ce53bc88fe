//! Where the answers to one POST go: as JSON while nothing but ends has come, as a stream in the
//! log from then on (HTR-06, BAT-06). One request is a batch of one.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Mutex, oneshot};
use vestibule_exchange::RpcError;
use vestibule_frame::{Id, encode as write};
use vestibule_streamlog::{EventId, Lag, LogError, Post, Reader, Stop, Writer};
use vestibule_terms::accept::Accepts;
use vestibule_terms::reject::code;

use super::http_sse::Outlet;
use super::live::Live;
use crate::encode::Reply;
use crate::room::Shared;

/// How the POST is answered.
pub(super) enum First {
    /// With these responses, in request order; none for what was cancelled.
    Json(Vec<Option<Reply>>),
    /// With a stream.
    Stream(Streaming),
}

/// A stream that has been opened for the POST.
pub(super) struct Streaming {
    pub(super) reader: Reader,
    /// The id of its beginning, where it has one.
    pub(super) priming: Option<EventId>,
    /// The id tokens of the requests it answers.
    pub(super) requests: Vec<Bytes>,
}

/// The answers to one POST.
pub(super) struct Sink {
    shared: Arc<Shared>,
    live: Arc<Live>,
    requests: Vec<Bytes>,
    accepts: Accepts,
    state: Mutex<State>,
    /// Where everything goes when the POST was over HTTP+SSE.
    outlet: Option<Outlet>,
}

struct State {
    replies: Vec<Option<Reply>>,
    left: usize,
    stage: Stage,
    /// The newest note from before there was a stream, which holds behind all that waits for one: the
    /// stream begins with it, so that nobody who has an id is left with nothing to go on from.
    note: Option<Bytes>,
    /// The note that goes with the next event.
    next: Option<Bytes>,
    /// What came while no stream could be opened; it goes out first if one can be.
    early: Vec<Bytes>,
    /// Whether there was a note: another process can go on with the call.
    noted: bool,
}

/// How much of it is kept.
const EARLY_MAX: usize = 256 << 10;

enum Stage {
    Waiting(oneshot::Sender<First>),
    Streaming(Writer),
    /// Nothing more can be sent.
    Closed,
}

impl Sink {
    /// A sink for the requests with these ids, and what the POST waits for.
    pub(super) fn new(
        shared: &Arc<Shared>,
        live: &Arc<Live>,
        ids: &[Id],
        accepts: Accepts,
    ) -> (Arc<Self>, oneshot::Receiver<First>) {
        let (answer, first) = oneshot::channel();
        let state = State {
            replies: ids.iter().map(|_| None).collect(),
            left: ids.len(),
            stage: Stage::Waiting(answer),
            note: None,
            next: None,
            noted: false,
            early: Vec::new(),
        };
        let sink = Self {
            shared: Arc::clone(shared),
            live: Arc::clone(live),
            requests: ids.iter().map(Id::token).collect(),
            accepts,
            state: Mutex::new(state),
            outlet: None,
        };
        (Arc::new(sink), first)
    }

    /// A sink for the rest of a stream that another process began.
    pub(super) fn of(
        shared: &Arc<Shared>,
        live: &Arc<Live>,
        request: Bytes,
        writer: Writer,
    ) -> Arc<Self> {
        let state = State {
            replies: vec![None],
            left: 1,
            stage: Stage::Streaming(writer),
            note: None,
            next: None,
            noted: true,
            early: Vec::new(),
        };
        Arc::new(Self {
            shared: Arc::clone(shared),
            live: Arc::clone(live),
            requests: vec![request],
            accepts: Accepts::ANY,
            state: Mutex::new(state),
            outlet: None,
        })
    }

    /// A sink into the session's one stream: the POST itself is answered already (HSE-03).
    pub(super) fn over_sse(shared: &Arc<Shared>, live: &Arc<Live>, ids: &[Id]) -> Arc<Self> {
        let state = State {
            replies: Vec::new(),
            left: 0,
            stage: Stage::Closed,
            note: None,
            next: None,
            noted: false,
            early: Vec::new(),
        };
        Arc::new(Self {
            shared: Arc::clone(shared),
            live: Arc::clone(live),
            requests: Vec::new(),
            accepts: Accepts::ANY,
            state: Mutex::new(state),
            outlet: Some(Outlet::new(shared, live, ids)),
        })
    }

    /// Keeps how another process could go on with the call: with the event that comes next, or by
    /// itself. What answers several requests is not gone on with.
    pub(super) async fn note(&self, note: Bytes, covers_next: bool) {
        if self.requests.len() > 1 {
            return;
        }
        let mut state = self.state.lock().await;
        state.noted = true;
        match &state.stage {
            Stage::Waiting(_) if covers_next => state.next = Some(note),
            Stage::Waiting(_) => {
                state.note = Some(note);
                state.next = None;
            }
            Stage::Streaming(writer) => keep(writer, note, !covers_next).await,
            Stage::Closed => {}
        }
    }

    /// Whether its client can be asked something on it.
    pub(super) fn takes_questions(&self) -> bool {
        self.outlet.is_some() || self.accepts.sse
    }

    /// Whether another process could go on with what goes here.
    pub(super) fn outlives(&self) -> bool {
        self.requests.len() == 1
    }

    /// From here on nobody else can go on with the call, whatever was noted.
    pub(super) async fn alone(&self) {
        self.state.lock().await.noted = false;
    }

    /// Sends questions and how the call stands with them, all or none. False while the client cannot
    /// be reached.
    pub(super) async fn ask(&self, note: Option<Bytes>, questions: Vec<Bytes>) -> bool {
        if let Some(outlet) = &self.outlet {
            for question in questions {
                outlet.send(question).await;
            }
            return true;
        }
        let mut state = self.state.lock().await;
        let note = note.filter(|_| self.outlives());
        let noted = note.as_ref().map(|note| !note.is_empty());
        let before = state.next.clone();
        if note.is_some() {
            state.next = note;
        }
        match self.opened(&mut state, &questions).await {
            Open::No => {
                state.next = before;
                return false;
            }
            Open::Before => {
                let note = state.next.take();
                if let (Stage::Streaming(writer), Some(note)) = (&state.stage, note) {
                    keep(writer, note, false).await;
                }
                self.append(&mut state, questions).await;
            }
            Open::Now => {}
        }
        state.noted = noted.unwrap_or(state.noted);
        !matches!(state.stage, Stage::Closed)
    }

    /// The answer becomes a stream, if it is not one yet and the client takes one.
    pub(super) async fn open(&self) {
        self.opened(&mut *self.state.lock().await, &[]).await;
    }

    /// What was sent is left to another process, which goes on behind it; false when none can.
    pub(super) async fn leave(&self) -> bool {
        let mut state = self.state.lock().await;
        state.noted && self.opened(&mut state, &[]).await != Open::No
    }

    /// Sends a message that is no response. False when the client takes none.
    pub(super) async fn send(&self, message: Bytes) -> bool {
        if let Some(outlet) = &self.outlet {
            outlet.send(message).await;
            return true;
        }
        let mut state = self.state.lock().await;
        match self
            .opened(&mut state, std::slice::from_ref(&message))
            .await
        {
            Open::No => return false,
            Open::Before => self.append(&mut state, vec![message]).await,
            Open::Now => {}
        }
        true
    }

    /// The same for what means nothing once the call is over: it waits while no stream can be opened.
    pub(super) async fn tell(&self, message: Bytes) {
        if self.send(message.clone()).await {
            return;
        }
        let mut state = self.state.lock().await;
        let waits = self.accepts.sse && matches!(state.stage, Stage::Waiting(_));
        let had: usize = state.early.iter().map(Bytes::len).sum();
        if waits && had + message.len() <= EARLY_MAX {
            if let Some(next) = state.next.take() {
                state.note = Some(next);
            }
            state.early.push(message);
        }
    }

    /// The request at `index` is done, with a response or (a cancelled one) without.
    pub(super) async fn done(&self, index: usize, reply: Option<Reply>) {
        if let Some(outlet) = &self.outlet {
            return outlet.done(index, reply).await;
        }
        let mut state = self.state.lock().await;
        if self.accepts.wants_stream() || !state.early.is_empty() {
            self.opened(&mut state, &[]).await;
        }
        state.left = state.left.saturating_sub(1);
        let last = state.left == 0;
        if matches!(state.stage, Stage::Waiting(_)) {
            if let Some(slot) = state.replies.get_mut(index) {
                *slot = reply;
            }
            if last && let Stage::Waiting(answer) = state.stage.close() {
                // Nobody waits any more when the connection broke: the answer is lost with it.
                let _gone = answer.send(First::Json(std::mem::take(&mut state.replies)));
            }
            return;
        }
        let payload = reply.map(|reply| one_piece(reply.chunks));
        if !last {
            if let Some(payload) = payload {
                self.append(&mut state, vec![payload]).await;
            }
            return;
        }
        if let Stage::Streaming(writer) = state.stage.close()
            && let Err(error) = writer.finish(payload).await
        {
            tracing::debug!(%error, "a stream could not be ended");
        }
    }

    /// The upstream ended its stream of the call for now: the client's ends too, and it comes back
    /// (SSE-05).
    pub(super) async fn pause(&self, retry: Option<Duration>) {
        let mut state = self.state.lock().await;
        if self.opened(&mut state, &[]).await == Open::No {
            return;
        }
        let Stage::Streaming(writer) = &state.stage else {
            return;
        };
        self.live.pauses(writer.stream().id, retry);
        if let Err(error) = self
            .shared
            .rooms
            .log
            .stop(writer.stream(), Stop::Planned)
            .await
        {
            tracing::debug!(%error, "a stream could not be paused");
        }
    }

    /// Makes the answer a stream, if it is none yet, that begins with what waited for it and
    /// `first`: the client is told of it when all of that is kept, with the note that belongs to it.
    async fn opened(&self, state: &mut State, first: &[Bytes]) -> Open {
        if matches!(state.stage, Stage::Streaming(_)) {
            return Open::Before;
        }
        if !self.accepts.sse || matches!(state.stage, Stage::Closed) {
            return Open::No;
        }
        let begun = self.begin(state.beginning(&self.requests, first)).await;
        let (writer, reader) = match begun {
            Ok(begun) => begun,
            Err(error) => {
                // Without a log the answer stays JSON: late, but not lost.
                tracing::debug!(%error, "no stream could be opened");
                return Open::No;
            }
        };
        let next = state.begun(!first.is_empty());
        if let Some(note) = next {
            keep(&writer, note, false).await;
        }
        let streaming = Streaming {
            reader,
            priming: writer.opened().priming.clone(),
            requests: self.requests.clone(),
        };
        let before = std::mem::replace(&mut state.stage, Stage::Streaming(writer));
        if let Stage::Waiting(answer) = before {
            // A broken connection is not a cancellation: the stream waits for its client.
            let _gone = answer.send(First::Stream(streaming));
        }
        Open::Now
    }

    async fn begin(&self, post: Post) -> Result<(Writer, Reader), LogError> {
        let log = &self.shared.rooms.log;
        let writer = Writer::open(log, &self.live.key, post).await?;
        let reader = log.attach(writer.stream(), 0).await?;
        Ok((writer, reader))
    }

    async fn append(&self, state: &mut State, messages: Vec<Bytes>) {
        let Stage::Streaming(writer) = &state.stage else {
            return;
        };
        let sent = append(writer, messages).await;
        match sent {
            Ok(too_slow) if too_slow => {
                let stopped = self
                    .shared
                    .rooms
                    .log
                    .stop(writer.stream(), Stop::Slow)
                    .await;
                if let Err(error) = stopped {
                    tracing::debug!(%error, "a slow reader could not be stopped");
                }
            }
            Ok(_) => {}
            Err(error) => {
                tracing::debug!(%error, "a stream is gone");
                state.stage = Stage::Closed;
            }
        }
    }
}

impl State {
    /// What the stream begins with.
    fn beginning(&self, requests: &[Bytes], first: &[Bytes]) -> Post {
        let newest = self.next.as_ref().filter(|_| !first.is_empty());
        let replies = self.replies.iter().flatten();
        let replies = replies.map(|reply| one_piece(reply.chunks.clone()));
        let early = self.early.iter().cloned();
        Post {
            requests: requests.to_vec(),
            note: newest.or(self.note.as_ref()).cloned(),
            events: early.chain(replies).chain(first.iter().cloned()).collect(),
        }
    }

    /// The stream has begun with that; the note that waits for the next event.
    fn begun(&mut self, with_first: bool) -> Option<Bytes> {
        self.note = None;
        self.early = Vec::new();
        self.replies = Vec::new();
        self.next.take().filter(|_| !with_first)
    }
}

async fn keep(writer: &Writer, note: Bytes, alone: bool) {
    let mut kept = writer.note(note).await;
    if alone && kept.is_ok() {
        kept = writer.append(vec![]).await.map(|_| ());
    }
    if let Err(error) = kept {
        tracing::debug!(%error, "a note of a call could not be kept");
    }
}

/// Appends under back-pressure; whether the reader is too slow by now (EL-21).
async fn append(writer: &Writer, messages: Vec<Bytes>) -> Result<bool, LogError> {
    writer.room(messages.iter().map(Bytes::len).sum()).await?;
    let appended = writer.append(messages).await?;
    Ok(appended.lag.is_some_and(is_full))
}

/// Whether so much waits for a connection that no more may (EL-21). At 1,000 events the log itself
/// is full: what comes next would push out what the client has not had.
fn is_full(lag: Lag) -> bool {
    lag.is_too_slow() || lag.events >= 1000
}

/// Whether the answer is a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    No,
    /// It was one already.
    Before,
    /// It has become one, with what it was to begin with.
    Now,
}

impl Stage {
    fn close(&mut self) -> Stage {
        std::mem::replace(self, Stage::Closed)
    }
}

pub(super) fn one_piece(chunks: Vec<Bytes>) -> Bytes {
    match <[Bytes; 1]>::try_from(chunks) {
        Ok([whole]) => whole,
        Err(chunks) => Bytes::from(chunks.concat()),
    }
}

/// The response to a request whose stream's history is lost (RES-05).
pub(super) fn history_lost(request: &Bytes) -> Bytes {
    let message = "the history of this stream is lost";
    let reason = "stream_history_lost";
    let error = RpcError::gateway(code::LOST, message, reason, None, false);
    refused(request, &error)
}

/// The response to a request whose call was lost with what ran it (EL-15).
pub(super) fn outcome_unknown(request: &Bytes) -> Bytes {
    refused(request, &RpcError::lost(None))
}

fn refused(request: &Bytes, error: &RpcError) -> Bytes {
    let id = Id::from_token(request.clone());
    write::error(
        id.as_ref(),
        error.code,
        &error.message,
        error.data.as_deref(),
    )
}

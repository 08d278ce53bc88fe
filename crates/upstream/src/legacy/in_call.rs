//! The way back of one call to a legacy upstream: everything that arrives for it, from its own
//! stream or from a channel that serves all calls, becomes its events.

use std::collections::HashSet;

use bytes::Bytes;
use vestibule_exchange::{Event, Final, Outbound, Question, Sharing};
use vestibule_frame::{Draft, Frame, FrameError, Id, Kind};
use vestibule_terms::{Direction, Method, Revision};

use crate::background::Background;
use crate::calls::{Next, Ticket, Word};
use crate::carrier::CancelGuard;
use crate::ear::Ear;
use crate::fault::Fault;
use crate::ids::CallId;
use crate::legacy::live::Live;
use crate::running::Sink;
use crate::wire::Item;

/// One call that is under way.
pub(crate) struct InCall<'a> {
    id: CallId,
    live: &'a Live,
    sink: &'a Sink,
    ear: Ear,
    ticket: Ticket,
    guard: CancelGuard,
    takes_questions: bool,
    /// Whether somebody writes down how to go on with it.
    marks: bool,
    revision: Revision,
    /// Questions that were handed out, by our id.
    asked: Vec<Id>,
    /// Whether one that another process has handed out may still be open.
    asked_elsewhere: bool,
    /// Questions that were seen, by the upstream's id: a resumed stream may repeat them (RES-09).
    seen: HashSet<Id>,
}

impl<'a> InCall<'a> {
    /// Opens the call of `id`: from here on its loss is told to the upstream.
    pub(crate) fn open(
        live: &'a Live,
        outbound: &Outbound,
        id: CallId,
        sink: &'a Sink,
        background: &Background,
    ) -> Self {
        let carrier = std::sync::Arc::clone(live.peer.carrier());
        // on a private session every request may be asked about: the client is the session's
        let private = matches!(outbound.sharing, Sharing::Session(_));
        Self {
            ear: Ear::new(outbound, &id),
            ticket: live.peer.calls().open(&id, outbound.method),
            guard: CancelGuard::new(&id, carrier, background),
            marks: private && outbound.inlet.is_some(),
            takes_questions: private || outbound.method.may_ask(),
            revision: live.profile.revision,
            asked: Vec::new(),
            asked_elsewhere: false,
            seen: HashSet::new(),
            id,
            live,
            sink,
        }
    }

    /// The request never reached the upstream, or was refused by it.
    pub(crate) fn not_running(&mut self) {
        self.guard.disarm();
    }

    /// Whether the upstream waits for the client, so that its silence says nothing.
    pub(crate) fn is_waiting_for_client(&self) -> bool {
        self.asked_elsewhere || self.asked.iter().any(|id| self.live.peer.is_open(id))
    }

    /// Whether the upstream waited for the client when this process took the call over. Who takes the
    /// answer is any process, so it waits until the upstream says something again.
    pub(crate) fn asked_elsewhere(&mut self, waits: bool) {
        self.asked_elsewhere = waits;
    }

    /// The upstream says something: it waits for nothing that another process has handed out.
    pub(crate) fn heard(&mut self, item: &Item) {
        let is_empty = item.frames.as_ref().is_ok_and(Vec::is_empty);
        self.asked_elsewhere &= is_empty;
    }

    /// What comes over a channel that serves all calls. Cancel safe.
    pub(crate) async fn next(&mut self) -> Next {
        self.ticket.next().await
    }

    /// Takes what came over such a channel.
    pub(crate) async fn take(&mut self, next: Next) -> Result<Option<Final>, Fault> {
        match next {
            Next::Word(Word::Note(method, frame)) => self.note(method, frame).await,
            Next::Word(Word::Question(question)) => self.ask(question).await,
            Next::Word(Word::Withdrawn(draft)) => {
                self.sink.send(Event::QuestionWithdrawn(draft)).await;
            }
            Next::Answer(Ok(frame)) => return Ok(Some(self.answered(frame))),
            Next::Answer(Err(fault)) => return Err(fault),
        }
        Ok(None)
    }

    /// Our id of the call.
    pub(crate) fn id(&self) -> &CallId {
        &self.id
    }

    /// Takes the messages of one body or event of the call's own stream. `mark` says how to go on
    /// behind it; it is told before the last message, with which it has to be kept.
    pub(crate) async fn hear(
        &mut self,
        frames: Result<Vec<Frame>, FrameError>,
        mark: Option<Bytes>,
    ) -> Result<Option<Final>, Fault> {
        let frames = frames.map_err(|error| {
            tracing::warn!(upstream.id = %self.live.peer.owner().upstream, %error,
                "an upstream sent a malformed message");
            Fault::Protocol("malformed")
        })?;
        let (mut mark, mut left) = (mark.filter(|_| self.marks), frames.len());
        if left == 0 {
            self.mark(mark.take(), false).await;
        }
        for frame in frames {
            left -= 1;
            if left == 0 && frame.kind() != Kind::Response {
                self.mark(mark.take(), true).await;
            }
            if let Some(end) = self.frame(frame).await? {
                return Ok(Some(end));
            }
        }
        Ok(None)
    }

    async fn mark(&self, mark: Option<Bytes>, covers_next: bool) {
        if let Some(mark) = mark {
            self.sink.send(Event::Mark { mark, covers_next }).await;
        }
    }

    /// Case 89: only a response with the right id ends the call.
    async fn frame(&mut self, frame: Frame) -> Result<Option<Final>, Fault> {
        match frame.kind() {
            Kind::Response => match frame.id() {
                Some(id) if !self.id.is(&id) => Err(Fault::Protocol("wrong_id")),
                Some(_) | None => Ok(Some(self.answered(frame))),
            },
            Kind::Notification => {
                self.notified(frame).await;
                Ok(None)
            }
            Kind::Request => {
                self.requested(frame).await;
                Ok(None)
            }
        }
    }

    fn answered(&mut self, frame: Frame) -> Final {
        self.guard.disarm();
        Final::Message(Draft::new(frame))
    }

    async fn notified(&mut self, frame: Frame) {
        let method = frame.method().and_then(|name| Method::parse(&name));
        let Some(method) = method else { return };
        if method == Method::Cancelled {
            if let Some((draft, _)) = self.live.peer.withdrawn(&frame) {
                self.sink.send(Event::QuestionWithdrawn(draft)).await;
            }
        } else if method.allowed(Direction::ServerNotification, self.revision) {
            self.note(method, frame).await;
        }
    }

    async fn note(&mut self, method: Method, frame: Frame) {
        if let Some(event) = self.ear.notification(method, frame) {
            self.sink.send(event).await;
        }
    }

    async fn requested(&mut self, frame: Frame) {
        let Some(upstream_id) = frame.id() else {
            return;
        };
        if self.seen.contains(&upstream_id) {
            return;
        }
        let call = self.id.key();
        if let Some(question) = self
            .live
            .peer
            .asked_in_call(&frame, &call, self.takes_questions)
        {
            self.seen.insert(upstream_id);
            self.ask(question).await;
        }
    }

    async fn ask(&mut self, question: Question) {
        self.asked.push(question.from.id.clone());
        self.sink.send(Event::Question(question)).await;
    }
}

impl Drop for InCall<'_> {
    fn drop(&mut self) {
        self.live.peer.forget(&self.asked);
    }
}

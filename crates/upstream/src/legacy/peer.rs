//! What a legacy upstream says besides its answers, on whatever channel it says it: whom it is for,
//! and what is answered at once (translation rules, section 4, attribution).

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use vestibule_exchange::{Arrival, Capabilities, Inlet, Question, QuestionRef, Sharing};
use vestibule_frame::{Draft, Frame, Id, Kind, Limits, encode};
use vestibule_terms::reject::code;
use vestibule_terms::{Direction, Method, Revision, TenantId, UpstreamId};

use crate::background::Background;
use crate::calls::{Calls, Word};
use crate::carrier::Carrier;
use crate::ear;
use crate::ids::Ids;
use crate::legacy::desk::{Desk, Open};
use crate::locked;

/// Questions that one session may have open.
const QUESTIONS: usize = 64;

/// Whose session it is.
#[derive(Debug, Clone)]
pub(crate) struct Owner {
    pub(crate) tenant: TenantId,
    pub(crate) upstream: UpstreamId,
    pub(crate) sharing: Sharing,
    /// What was declared at its `initialize`.
    pub(crate) class: Arc<Capabilities>,
}

/// What all sessions use.
#[derive(Debug, Clone)]
pub(crate) struct Tools {
    pub(crate) ids: Arc<Ids>,
    pub(crate) desk: Arc<Desk>,
    pub(crate) background: Background,
}

/// One upstream session as a party that speaks.
pub(crate) struct Peer {
    owner: Owner,
    revision: Revision,
    calls: Arc<Calls>,
    carrier: Arc<dyn Carrier>,
    tools: Tools,
    inlet: Mutex<Option<Arc<dyn Inlet>>>,
    /// Open questions by the upstream's id.
    asked: Mutex<HashMap<Id, Asked>>,
}

#[derive(Debug, Clone)]
struct Asked {
    id: Id,
    call: Option<Arc<str>>,
}

// === impl Peer ===

impl Peer {
    pub(crate) fn new(
        owner: Owner,
        revision: Revision,
        calls: Arc<Calls>,
        carrier: Arc<dyn Carrier>,
        tools: Tools,
    ) -> Self {
        Self {
            owner,
            revision,
            calls,
            carrier,
            tools,
            inlet: Mutex::new(None),
            asked: Mutex::default(),
        }
    }

    /// Whose session this is.
    pub(crate) fn owner(&self) -> &Owner {
        &self.owner
    }

    /// The calls that are open on it.
    pub(crate) fn calls(&self) -> &Arc<Calls> {
        &self.calls
    }

    /// How messages get to it.
    pub(crate) fn carrier(&self) -> &Arc<dyn Carrier> {
        &self.carrier
    }

    /// Where that goes which belongs to no call, from now on.
    pub(crate) fn set_inlet(&self, inlet: Arc<dyn Inlet>) {
        *locked(&self.inlet) = Some(inlet);
    }

    /// Whether a question is open.
    pub(crate) fn is_asking(&self) -> bool {
        !locked(&self.asked).is_empty()
    }

    /// Whether a question of that minted id still waits for its answer.
    pub(crate) fn is_open(&self, id: &Id) -> bool {
        self.tools.desk.is_open(id)
    }

    /// Takes a message of a channel that serves all calls.
    pub(crate) fn hear(self: &Arc<Self>, frame: Frame) {
        match frame.kind() {
            Kind::Response => {
                let Some(id) = frame.id() else { return };
                if !self.calls.answer(&id, Ok(frame)) {
                    tracing::debug!(upstream.id = %self.owner.upstream, "answer to no open request");
                }
            }
            Kind::Notification => self.notified(frame),
            Kind::Request => self.asked_outside(frame),
        }
    }

    /// Takes a request that came on the stream of `call`: a question for its client, or nothing
    /// when it has been answered here.
    pub(crate) fn asked_in_call(
        self: &Arc<Self>,
        frame: &Frame,
        call: &Arc<str>,
        takes_questions: bool,
    ) -> Option<Question> {
        let method = self.question_method(frame)?;
        if !takes_questions {
            self.refuse(
                frame,
                code::INVALID_PARAMS,
                "no question may be asked during this request",
            );
            return None;
        }
        Some(self.open(frame, method, Some(Arc::clone(call))))
    }

    /// The upstream withdraws a question: the notice, in the id that was handed out, and the call
    /// that the question was given to.
    pub(crate) fn withdrawn(&self, frame: &Frame) -> Option<(Draft, Option<Arc<str>>)> {
        let span = frame.member(frame.params()?, "requestId")?;
        let upstream_id = Id::from_token(frame.shared(span))?;
        let asked = locked(&self.asked).remove(&upstream_id)?;
        self.tools.desk.forget(&asked.id);
        let mut draft = Draft::new(frame.clone());
        draft.replace(span, asked.id.token());
        Some((Draft::new(reread(&draft)?), asked.call))
    }

    /// The questions will not be answered any more: their call is over.
    pub(crate) fn forget(&self, ids: &[Id]) {
        if ids.is_empty() {
            return;
        }
        ids.iter().for_each(|id| self.tools.desk.forget(id));
        locked(&self.asked).retain(|_, asked| !ids.contains(&asked.id));
    }

    /// The session is over: nothing that it asked can be answered.
    pub(crate) fn end(&self) {
        for (_, asked) in locked(&self.asked).drain() {
            self.tools.desk.forget(&asked.id);
        }
    }

    /// The question of that upstream id has been taken off the desk.
    pub(crate) fn taken(&self, upstream_id: &Id) {
        locked(&self.asked).remove(upstream_id);
    }

    /// The carriage of the question failed before anything was sent: it is open again.
    pub(crate) fn put_back(&self, open: Open) {
        let asked = Asked {
            id: open.from.id.clone(),
            call: None,
        };
        locked(&self.asked).insert(open.upstream_id.clone(), asked);
        self.tools.desk.put(open);
    }

    fn notified(self: &Arc<Self>, frame: Frame) {
        let method = frame.method().and_then(|name| Method::parse(&name));
        let allowed =
            |method: &Method| method.allowed(Direction::ServerNotification, self.revision);
        let Some(method) = method.filter(allowed) else {
            return;
        };
        if method == Method::Progress {
            if let Some(token) = ear::progress_token(&frame) {
                self.calls.tell(&token, Word::Note(method, frame));
            }
        } else if method == Method::Cancelled {
            self.withdrawn_outside(&frame);
        } else if method == Method::Message {
            self.logged(frame);
        } else {
            self.arrive(arrival(method, frame));
        }
    }

    fn withdrawn_outside(&self, frame: &Frame) {
        match self.withdrawn(frame) {
            Some((draft, Some(call))) => {
                self.calls.tell(&call, Word::Withdrawn(draft));
            }
            Some((draft, None)) => self.arrive(Arrival::QuestionWithdrawn(draft)),
            None => {}
        }
    }

    /// A log message outside of every call's stream. A client with a session of its own gets it
    /// outside of every call too; on a shared session it is the one open call's, if there is one.
    fn logged(&self, frame: Frame) {
        let private = matches!(self.owner.sharing, Sharing::Session(_));
        if let Some(call) = self.calls.only().filter(|_| !private) {
            self.calls.tell(&call, Word::Note(Method::Message, frame));
        } else if let Some(level) = ear::log_level(&frame) {
            let message = Draft::new(frame);
            self.arrive(Arrival::Log { level, message });
        }
    }

    /// What was said before anybody here listened went to somebody else, or was lost.
    pub(crate) fn missed(&self) {
        self.arrive(Arrival::Missed);
    }

    fn arrive(&self, arrival: Arrival) {
        let inlet = locked(&self.inlet).clone();
        if let Some(inlet) = inlet {
            inlet.arrive(&self.owner.upstream, arrival);
        }
    }

    fn asked_outside(self: &Arc<Self>, frame: Frame) {
        let Some(method) = self.question_method(&frame) else {
            return;
        };
        if let Some(call) = self.calls.only_asker() {
            let question = self.open(&frame, method, Some(Arc::clone(&call)));
            let id = question.from.id.clone();
            if !self.calls.tell(&call, Word::Question(question)) {
                self.forget(&[id]);
                self.refuse(&frame, code::INVALID_PARAMS, "the request is over");
            }
            return;
        }
        let private = matches!(self.owner.sharing, Sharing::Session(_));
        if private && locked(&self.inlet).is_some() {
            let question = self.open(&frame, method, None);
            self.arrive(Arrival::Question(question));
            return;
        }
        tracing::info!(upstream.id = %self.owner.upstream, method = method.as_str(),
            "refused a question that belongs to no request");
        let refusal = if method == Method::RootsList {
            code::METHOD_NOT_FOUND
        } else {
            code::INVALID_PARAMS
        };
        self.refuse(&frame, refusal, "this question belongs to no open request");
    }

    /// The method of a question that may be passed on; everything else has been answered.
    fn question_method(self: &Arc<Self>, frame: &Frame) -> Option<Method> {
        let id = frame.id()?;
        let method = frame.method().and_then(|name| Method::parse(&name));
        if method == Some(Method::Ping) {
            self.reply(encode::result(&id, b"{}"));
            return None;
        }
        let class = &self.owner.class;
        let declared = match method {
            Some(Method::RootsList) => class.roots,
            Some(Method::SamplingCreateMessage) => class.sampling,
            Some(Method::ElicitationCreate) => class.elicit_form || class.elicit_url,
            Some(_) | None => false,
        };
        let Some(method) = method.filter(|_| declared) else {
            self.refuse(
                frame,
                code::METHOD_NOT_FOUND,
                "not a capability that was declared",
            );
            return None;
        };
        if locked(&self.asked).len() >= QUESTIONS {
            self.refuse(frame, code::LIMITED, "too many questions are open");
            return None;
        }
        Some(method)
    }

    fn open(self: &Arc<Self>, frame: &Frame, method: Method, call: Option<Arc<str>>) -> Question {
        let id = self.tools.ids.question();
        let upstream_id = frame.id().unwrap_or_else(|| id.clone());
        let from = QuestionRef {
            tenant: self.owner.tenant.clone(),
            upstream: self.owner.upstream.clone(),
            sharing: self.owner.sharing.clone(),
            id: id.clone(),
            asked_as: upstream_id.clone(),
        };
        let mut message = Draft::new(frame.clone());
        message.set_id(&id);
        let message = reread(&message).map_or(message, Draft::new);
        locked(&self.asked).insert(upstream_id.clone(), Asked { id, call });
        let peer = Arc::clone(self);
        self.tools.desk.put(Open {
            from: from.clone(),
            upstream_id,
            peer,
        });
        Question {
            from,
            method,
            message,
        }
    }

    fn refuse(&self, frame: &Frame, code: i64, message: &str) {
        if let Some(id) = frame.id() {
            self.reply(encode::error(Some(&id), code, message, None));
        }
    }

    fn reply(&self, message: Bytes) {
        let carrying = self.carrier.carry(vec![message]);
        self.tools.background.run(async move {
            if let Err(error) = carrying.await {
                tracing::debug!(%error, "an answer to an upstream was not taken");
            }
        });
    }
}

fn arrival(method: Method, frame: Frame) -> Arrival {
    let draft = Draft::new(frame);
    let is_list = matches!(
        method,
        Method::ToolsListChanged | Method::PromptsListChanged | Method::ResourcesListChanged
    );
    if is_list {
        Arrival::ListChanged(method, draft)
    } else if method == Method::ResourcesUpdated {
        Arrival::Updated(draft)
    } else {
        Arrival::Notice(method, draft)
    }
}

/// The edited message as a message of its own, so that its parts can be read.
fn reread(draft: &Draft) -> Option<Frame> {
    Frame::parse(draft.to_bytes(), &Limits::default()).ok()
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer")
            .field("upstream", &self.owner.upstream)
            .finish_non_exhaustive()
    }
}

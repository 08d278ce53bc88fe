//! Rounds of a call to a modern upstream: `input_required` results on their way down, retries on
//! their way up. Stateless: for a modern client everything is in the sealed state, for a legacy one
//! with its session, which asks and calls again.

use std::borrow::Cow;

use bytes::Bytes;
use vestibule_exchange::{Call, Capabilities, Final, RpcError, Wanted, Wish};
use vestibule_frame::{DEPTH_CEILING, Draft, Frame, Limits, Span, json};
use vestibule_terms::reject::code;
use vestibule_terms::{Method, Reject, UpstreamId};

use crate::questions::{label, undeclared};
use crate::state::{Round, States, invalid};

/// Most rounds of one call (MRT-09).
const ROUNDS_MAX: u8 = 16;
/// Longest state of an upstream that is carried (XT-156).
const STATE_MAX: usize = 64 * 1024;

const STATE: &str = "requestState";
const RESPONSES: &str = "inputResponses";
const REQUESTS: &str = "inputRequests";

/// Takes the state out of a request: the upstream gets its own back, or none. Returns the rounds so
/// far.
pub(crate) fn admit(states: &States, call: &mut Call) -> Result<u8, RpcError> {
    if !call.method.may_ask() {
        return Ok(0);
    }
    if !call.revision.is_modern() {
        // Members that no legacy revision knows must not mean anything to a modern upstream.
        let answers = call.rounds.answers.as_deref();
        let (state, responses) = match answers {
            Some(answers) => (answers.state.clone(), answers.responses.clone()),
            None => (None, None),
        };
        for (key, value) in [(STATE, state), (RESPONSES, responses)] {
            match value {
                Some(value) => call.message.set_at(&["params", key], value),
                None => call.message.remove_at(&["params", key]),
            }
        }
        return Ok(0);
    }
    let frame = call.message.frame();
    let span = frame
        .params()
        .and_then(|params| frame.member(params, STATE));
    let Some(span) = span else {
        return Ok(0);
    };
    if frame.text(span) == b"null" {
        call.message.remove_at(&["params", STATE]);
        return Ok(0);
    }
    let text = frame.string(span).ok_or_else(invalid)?.into_owned();
    let round = states.open(call, &text)?;
    match round.upstream {
        Some(token) => call.message.replace(span, token),
        None => call.message.remove_at(&["params", STATE]),
    }
    Ok(round.number)
}

/// What the end of a call means for its client.
pub(crate) struct Outcome<'a> {
    pub(crate) states: &'a States,
    pub(crate) call: &'a Call,
    /// Rounds so far.
    pub(crate) rounds: u8,
    /// Who answered, where it is known.
    pub(crate) upstream: Option<&'a UpstreamId>,
}

/// What a result is.
enum ResultType {
    Complete,
    InputRequired,
    Unknown,
}

fn result_type(frame: &Frame) -> ResultType {
    let Some(span) = frame.result_type() else {
        return ResultType::Complete;
    };
    match frame.string(span).as_deref() {
        Some("complete") => ResultType::Complete,
        Some("input_required") => ResultType::InputRequired,
        Some(_) | None => ResultType::Unknown,
    }
}

impl Outcome<'_> {
    /// Passes a complete result, prepares a question round, refuses the rest (FRM-22).
    pub(crate) fn of(&self, draft: Draft) -> Final {
        match result_type(draft.frame()) {
            ResultType::Complete => Final::Message(draft),
            ResultType::Unknown => Final::Error(self.violation("result_type")),
            ResultType::InputRequired if !self.call.method.may_ask() => {
                Final::Error(self.violation("input_required"))
            }
            ResultType::InputRequired if self.call.revision.is_modern() => match self.ask(draft) {
                Ok(draft) => Final::Message(draft),
                Err(error) => Final::Error(error),
            },
            ResultType::InputRequired if self.call.session.is_none() => {
                let message = "the upstream asks for input in a way that this client cannot give";
                Final::Error(RpcError::not_translatable(message, "input_required"))
            }
            ResultType::InputRequired => match self.wanted(draft) {
                Ok(wanted) => Final::Wanted(Box::new(wanted)),
                Err(error) => Final::Error(error),
            },
        }
    }

    fn ask(&self, mut draft: Draft) -> Result<Draft, RpcError> {
        let frame = draft.frame().clone();
        let result = frame.result().ok_or_else(|| self.violation("result"))?;
        if self.rounds >= ROUNDS_MAX {
            return Err(self.violation("rounds"));
        }
        let upstream = self.upstream_state(&frame, result)?;
        let requests = frame.member(result, REQUESTS);
        if upstream.is_none() && requests.is_none() {
            return Err(self.violation("input_required"));
        }
        if let Some(requests) = requests {
            self.check(&mut draft, &frame, requests, |method, params| {
                let declared: &Capabilities = &self.call.capabilities;
                let Some(required) = undeclared(method, &frame, params, declared) else {
                    return Ok(());
                };
                let required = Bytes::from_static(required.as_bytes());
                Err(RpcError::from(&Reject::MissingCapability { required }))
            })?;
        }
        let round = Round {
            number: self.rounds + 1,
            upstream,
        };
        let sealed = self.states.seal(self.call, &round);
        draft.set_member(result, STATE, Bytes::from(json::quote(&sealed)));
        Ok(draft)
    }

    /// What a client with a session is asked (6.2). An upstream knows what may be asked, so that
    /// anything else breaks the protocol (XT-145).
    fn wanted(&self, mut draft: Draft) -> Result<Wanted, RpcError> {
        let upstream = self.upstream.ok_or_else(|| self.violation("upstream"))?;
        let frame = draft.frame().clone();
        let result = frame.result().ok_or_else(|| self.violation("result"))?;
        let state = self.upstream_state(&frame, result)?;
        let requests = frame.member(result, REQUESTS);
        let Some(requests) = requests else {
            state
                .as_ref()
                .ok_or_else(|| self.violation("input_required"))?;
            let (upstream, questions) = (upstream.clone(), Vec::new());
            return Ok(Wanted {
                upstream,
                state,
                questions,
            });
        };
        let declared = match self.call.rounds.asks {
            true => Cow::Borrowed(&*self.call.capabilities),
            false => Cow::Owned(Capabilities::default()), // HDR-01
        };
        self.check(
            &mut draft,
            &frame,
            requests,
            |method, params| match undeclared(method, &frame, params, &declared) {
                Some(_) => Err(self.violation("undeclared")),
                None => Ok(()),
            },
        )?;
        Ok(Wanted {
            upstream: upstream.clone(),
            state,
            questions: self.wishes(&draft)?,
        })
    }

    /// The questions as they were labelled and their names exposed.
    fn wishes(&self, draft: &Draft) -> Result<Vec<Wish>, RpcError> {
        let limits = Limits {
            depth: DEPTH_CEILING,
            ..Limits::default()
        };
        let frame = Frame::parse(draft.to_bytes(), &limits);
        let frame = frame.map_err(|_| self.violation("input_requests"))?;
        let requests = frame
            .result()
            .and_then(|result| frame.member(result, REQUESTS));
        let requests = requests
            .into_iter()
            .flat_map(|requests| frame.members(requests));
        let wishes = requests.map(|request| {
            let method = frame.member(request.value, "method");
            let method = method
                .and_then(|span| frame.string(span))
                .and_then(|name| question_method(&name))
                .ok_or_else(|| self.violation("input_requests"))?;
            let params = frame.member(request.value, "params");
            Ok(Wish {
                key: frame.shared(request.key),
                method,
                params: params.map(|span| frame.shared(span)),
            })
        });
        wishes.collect()
    }

    /// The state as the token it is, to be given back byte for byte.
    fn upstream_state(&self, frame: &Frame, result: Span) -> Result<Option<Bytes>, RpcError> {
        let Some(span) = frame.member(result, STATE) else {
            return Ok(None);
        };
        let is_text = frame.text(span).first() == Some(&b'"');
        if !is_text || span.len() > STATE_MAX + 2 {
            return Err(self.violation("request_state"));
        }
        Ok(Some(Bytes::copy_from_slice(frame.text(span))))
    }

    /// Questions pass as they are, labelled, if the client `may` be asked them.
    fn check(
        &self,
        draft: &mut Draft,
        frame: &Frame,
        requests: Span,
        may: impl Fn(Method, Option<Span>) -> Result<(), RpcError>,
    ) -> Result<(), RpcError> {
        if frame.text(requests).first() != Some(&b'{') {
            return Err(self.violation("input_requests"));
        }
        for request in frame.members(requests) {
            let method = frame
                .member(request.value, "method")
                .and_then(|span| frame.string(span))
                .and_then(|name| question_method(&name))
                .ok_or_else(|| self.violation("input_requests"))?;
            let params = frame.member(request.value, "params");
            may(method, params)?;
            if let Some(upstream) = self.upstream {
                label(draft, &self.call.plan, upstream, method, params);
            }
        }
        Ok(())
    }

    /// -31003.
    fn violation(&self, reason: &'static str) -> RpcError {
        match self.upstream {
            Some(upstream) => RpcError::protocol(upstream, reason),
            None => {
                let message = "the upstream sent an answer that breaks the protocol";
                RpcError::gateway(code::UPSTREAM_PROTOCOL, message, reason, None, false)
            }
        }
    }
}

/// The methods that may stand in `inputRequests` (MRT-04).
fn question_method(name: &str) -> Option<Method> {
    let methods = [
        Method::ElicitationCreate,
        Method::SamplingCreateMessage,
        Method::RootsList,
    ];
    methods.into_iter().find(|method| method.as_str() == name)
}

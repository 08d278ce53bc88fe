//! Rounds of a call between a client with a session and a stateless upstream, which asks by ending
//! the request and goes on when it is sent again with the answers (translation rules, section 6.2).

use std::sync::Arc;

use bytes::Bytes;
use vestibule_terms::{Method, UpstreamId};

/// How a call may be asked something between its rounds.
#[derive(Debug, Clone, Default)]
pub struct Rounds {
    /// Whether its client takes a stream, on which alone it could be asked (HDR-01).
    pub asks: bool,
    /// What the upstream is told with this request; none with the first.
    pub answers: Option<Arc<Answers>>,
}

/// What the upstream is told in the next round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answers {
    /// The upstream that has asked; nobody else is told.
    pub upstream: UpstreamId,
    /// Its `requestState`, the token as it came (MRT-11).
    pub state: Option<Bytes>,
    /// `inputResponses`, an object.
    pub responses: Option<Bytes>,
}

/// What an upstream wants before it goes on with a call: `input_required`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Who wants it.
    pub upstream: UpstreamId,
    /// Its `requestState`, the token as it came, to be given back.
    pub state: Option<Bytes>,
    /// What the client is to be asked; nothing when the upstream only wants to be called again.
    pub questions: Vec<Wish>,
}

/// One thing that the client is to be asked, which it has said it can be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// The upstream's name of it, the token as it came.
    pub key: Bytes,
    /// `sampling/createMessage`, `elicitation/create` or `roots/list`.
    pub method: Method,
    /// Its parameters.
    pub params: Option<Bytes>,
}

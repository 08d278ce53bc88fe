//! A question of an upstream to a client: sampling, elicitation, roots.

use vestibule_frame::{Draft, Id};
use vestibule_terms::{Method, TenantId, UpstreamId};

use crate::connector::Sharing;

/// Finds the upstream's open question again, from any request that brings the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuestionRef {
    /// The tenant that owns the upstream.
    pub tenant: TenantId,
    /// The upstream that asked.
    pub upstream: UpstreamId,
    /// The upstream session it asked on.
    pub sharing: Sharing,
    /// The id under which it is handed out, unlike every other.
    pub id: Id,
    /// The upstream's own id of its request.
    pub asked_as: Id,
}

/// A request of a legacy upstream to the client of a call.
#[derive(Debug, Clone)]
pub struct Question {
    /// Where the answer goes.
    pub from: QuestionRef,
    /// `sampling/createMessage`, `elicitation/create` or `roots/list`.
    pub method: Method,
    /// The upstream's request; its id is still the upstream's.
    pub message: Draft,
}

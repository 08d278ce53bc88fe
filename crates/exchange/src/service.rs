//! The seam between stages.

use std::convert::Infallible;
use std::sync::Arc;

use tower::Service;
use vestibule_frame::Draft;

use crate::BoxFuture;
use crate::call::{Call, SessionKey};
use crate::capability::Capabilities;
use crate::connector::Closing;
use crate::error_map::RpcError;
use crate::event::Events;
use crate::inlet::Inlet;
use crate::question::QuestionRef;

/// A stage of the exchange: takes a call, gives its events. Failures are events, never errors of
/// the service; a stage is always ready.
///
/// Session calls interact, interact calls router; both are generic over this, so that a test puts
/// a mock inside.
pub trait Exchange:
    Service<Call, Response = Events, Error = Infallible, Future: Send + 'static>
    + Clone
    + Send
    + Sync
    + 'static
{
}

impl<S> Exchange for S where
    S: Service<Call, Response = Events, Error = Infallible, Future: Send + 'static>
        + Clone
        + Send
        + Sync
        + 'static
{
}

/// What flows from a client towards upstreams without being a call: answers to questions,
/// notifications, the end of a session. Implemented by interact over the connector; held by the
/// session room.
pub trait Backchannel: Send + Sync + 'static {
    /// Brings an answer to the upstream that asked; delivered at most once per question.
    fn answer(&self, to: QuestionRef, answer: Draft) -> BoxFuture<Result<(), RpcError>>;

    /// The same for a question that another process was asked, and whose answer has been claimed by
    /// this one.
    fn deliver(
        &self,
        to: QuestionRef,
        answer: Draft,
        capabilities: Arc<Capabilities>,
        inlet: Arc<dyn Inlet>,
    ) -> BoxFuture<Result<(), RpcError>>;

    /// Passes a client notification to the private upstream sessions of `session`.
    fn notify(&self, session: SessionKey, message: Draft) -> BoxFuture<()>;

    /// The session ended: its private upstream sessions go too.
    fn close(&self, session: SessionKey, closing: Closing) -> BoxFuture<()>;
}

//! The way up for what belongs to no call: messages of an upstream session's standalone stream.

use bytes::Bytes;
use vestibule_frame::Draft;
use vestibule_terms::{Method, UpstreamId};

use crate::BoxFuture;
use crate::call::LogLevel;
use crate::question::Question;

/// Something an upstream said outside every call.
#[derive(Debug, Clone)]
pub enum Arrival {
    /// `notifications/{tools,prompts,resources}/list_changed`.
    ListChanged(Method, Draft),
    /// `notifications/resources/updated`.
    Updated(Draft),
    /// `notifications/message`.
    Log {
        /// Its level.
        level: LogLevel,
        /// The notification.
        message: Draft,
    },
    /// A question that no running call can be given (translation rules section 4, attribution).
    Question(Question),
    /// The upstream withdrew such a question: its `notifications/cancelled`.
    QuestionWithdrawn(Draft),
    /// Somebody else listened to this upstream before; what it said in between may be lost.
    Missed,
    /// Any other notification that the client's revision may know.
    Notice(Method, Draft),
}

/// What is written down cannot be read now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Away;

/// Takes what arrives on an upstream session's own stream. Given to the connector with the first
/// call of a private session; it must not block: implementations queue, with a bound.
pub trait Inlet: Send + Sync + 'static {
    /// Takes one message of `upstream`.
    fn arrive(&self, upstream: &UpstreamId, arrival: Arrival);

    /// What is written down of the session's session with `upstream`, whoever opened it. Nothing
    /// where nothing is written down; an error where nobody can know now.
    fn recall(&self, _upstream: &UpstreamId) -> BoxFuture<Result<Option<Bytes>, Away>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Writes down a session that was opened with `upstream`, in the place of `instead`, which was
    /// of no use any more. What is written down now: where another process was faster, his; nothing
    /// where it could not be written down.
    fn remember(
        &self,
        _upstream: &UpstreamId,
        record: Bytes,
        _instead: Option<Bytes>,
    ) -> BoxFuture<Option<Bytes>> {
        Box::pin(std::future::ready(Some(record)))
    }
}

//! Why the log did not do what it was asked.

/// A failed operation. What a client's `Last-Event-ID` leads to is not an error but a
/// [`Resume`](crate::Resume).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// The session or the stream is not in the log (any more).
    #[error("the session or stream is not in the log")]
    Gone,
    /// The stream has had its end; nothing comes after it (EL-14).
    #[error("the stream has ended")]
    Ended,
    /// Events of standalone streams are published to the session, never appended to one stream.
    #[error("standalone streams are published to, not appended to")]
    Standalone,
    /// The session has as many unfinished streams as it may have.
    #[error("the session has {0} unfinished streams")]
    Full(usize),
    /// The store behind the log cannot be reached.
    #[error("the event log is unavailable: {0}")]
    Unavailable(String),
}

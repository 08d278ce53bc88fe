//! One request of a client, in neutral form.

use std::fmt;
use std::sync::Arc;

use vestibule_frame::Draft;
use vestibule_terms::{
    Deadline, Method, Principal, Record, Revision, ServerPlan, SessionId, TenantId,
};

use crate::capability::Capabilities;
use crate::continuation::Continuation;
use crate::inlet::Inlet;
use crate::rounds::Rounds;

/// Names one legacy client session to the rooms below the session room. Not a credential: whoever
/// holds one got it from the session room, which has checked its owner.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SessionKey {
    /// The tenant the session belongs to.
    pub tenant: TenantId,
    /// The session.
    pub session: SessionId,
}

/// Severity of log notifications, least severe first (RFC 5424 names).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LogLevel {
    /// `debug`
    Debug,
    /// `info`
    Info,
    /// `notice`
    Notice,
    /// `warning`
    Warning,
    /// `error`
    Error,
    /// `critical`
    Critical,
    /// `alert`
    Alert,
    /// `emergency`
    Emergency,
}

impl LogLevel {
    const ALL: [(LogLevel, &'static str); 8] = [
        (LogLevel::Debug, "debug"),
        (LogLevel::Info, "info"),
        (LogLevel::Notice, "notice"),
        (LogLevel::Warning, "warning"),
        (LogLevel::Error, "error"),
        (LogLevel::Critical, "critical"),
        (LogLevel::Alert, "alert"),
        (LogLevel::Emergency, "emergency"),
    ];

    /// The level of exactly that name; names are case-sensitive (LOG-02).
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|(_, name)| *name == text)
            .map(|(level, _)| level)
    }

    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            LogLevel::Debug => "debug",
            LogLevel::Info => "info",
            LogLevel::Notice => "notice",
            LogLevel::Warning => "warning",
            LogLevel::Error => "error",
            LogLevel::Critical => "critical",
            LogLevel::Alert => "alert",
            LogLevel::Emergency => "emergency",
        }
    }
}

/// A `Mcp-Param-*` header of the client: lower-case suffix, and the decoded value or the fact that
/// it could not be decoded.
pub type ParamHeader = (String, Result<String, ()>);

/// One request of a client.
///
/// The session room has classified it: `method` is allowed for `revision` in this direction, the
/// message is well-formed, the principal is the session's.
#[derive(Clone)]
pub struct Call {
    /// The addressed server.
    pub plan: Arc<ServerPlan>,
    /// The caller.
    pub principal: Arc<Principal>,
    /// The request's record.
    pub record: Record,
    /// The revision the client speaks in this request or session.
    pub revision: Revision,
    /// The method.
    pub method: Method,
    /// The client's message with the edits made so far. `id` and hop-owned `_meta` members are
    /// still the client's: the connector replaces them.
    pub message: Draft,
    /// The legacy session this call belongs to; none for modern clients and for legacy clients of
    /// a server with `sessions: optional` that sent no id.
    pub session: Option<SessionKey>,
    /// What the client declared it can do: in this request (modern) or at `initialize` (legacy).
    pub capabilities: Arc<Capabilities>,
    /// The minimum log level: of this request (modern) or as set (legacy). None: no logs asked.
    pub log_level: Option<LogLevel>,
    /// Whether the client gave a progress token.
    pub progress: bool,
    /// `Mcp-Param-*` headers of a modern client, to be compared once the tool is known (HDR-19).
    pub param_headers: Arc<[ParamHeader]>,
    /// The clocks of this call.
    pub deadline: Deadline,
    /// Where that goes which belongs to no call, for private upstream sessions (legacy clients).
    pub inlet: Option<Arc<dyn Inlet>>,
    /// What this call goes on with; none for one that begins here.
    pub continues: Option<Arc<Continuation>>,
    /// How it goes through the rounds of a stateless upstream (clients with sessions).
    pub rounds: Rounds,
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("server", &self.plan.server)
            .field("revision", &self.revision)
            .field("method", &self.method)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// LOG-02: the eight names, case-sensitive, in order of severity.
    #[test]
    fn log_02_levels_are_the_eight_names_in_order() {
        for (level, name) in LogLevel::ALL {
            assert_eq!(LogLevel::parse(name), Some(level));
            assert_eq!(level.as_str(), name);
        }
        assert_eq!(LogLevel::parse("Warning"), None);
        assert!(LogLevel::Debug < LogLevel::Warning && LogLevel::Error < LogLevel::Emergency);
    }
}

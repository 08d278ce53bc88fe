//! Why an exchange with an upstream failed, and how that reads to the caller (translation rules,
//! section 9, transport rows). Error *responses* of an upstream are no faults: they are answers.

use std::time::Duration;

use vestibule_exchange::RpcError;
use vestibule_terms::reject::code;
use vestibule_terms::{Method, UpstreamId};

/// Why an exchange with an upstream failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    /// The request was provably not sent: no connection, or refused before it was processed.
    #[error("not reached: {0}")]
    NotSent(&'static str),
    /// The connection was lost; the request may have run.
    #[error("connection lost")]
    Broken,
    /// A clock ran out.
    #[error("no answer in time")]
    Timeout,
    /// The upstream broke the protocol.
    #[error("protocol broken: {0}")]
    Protocol(&'static str),
    /// A redirect that is not followed, to this origin (HTR-10).
    #[error("redirected to {0}")]
    Redirected(String),
    /// 401 or 403: the upstream wants a credential (STA-25).
    #[error("authorization required")]
    Unauthorized,
    /// 429 or 503, with its Retry-After (STA-28).
    #[error("busy")]
    Busy(Option<Duration>),
    /// Another 5xx (STA-29).
    #[error("http status {0}")]
    Status(u16),
    /// The upstream session is gone, and so is its replacement.
    #[error("session lost")]
    SessionLost,
    /// No common protocol version (translation rules 2.4).
    #[error("no common protocol version")]
    Incompatible,
    /// It speaks neither era over a transport that is served.
    #[error("speaks no transport that is served: {0}")]
    Unserved(&'static str),
    /// No room for another upstream session.
    #[error("no room for another session")]
    Full,
    /// The target was removed or replaced while the call was waiting.
    #[error("target removed")]
    Retired,
}

impl Fault {
    /// The error that the caller of `method` gets.
    pub(crate) fn into_error(self, upstream: &UpstreamId, method: Method) -> RpcError {
        match self {
            Fault::NotSent(reason) => RpcError::unavailable(upstream, reason),
            Fault::Broken if method.is_repeatable() => {
                RpcError::unavailable(upstream, "connection_lost")
            }
            Fault::Broken => RpcError::outcome_unknown(upstream),
            Fault::Timeout => RpcError::timeout(upstream),
            Fault::Protocol(reason) => RpcError::protocol(upstream, reason),
            Fault::Redirected(origin) => {
                let mut error = RpcError::protocol(upstream, "redirect");
                error.message = format!("upstream `{upstream}` redirects to {origin}");
                error
            }
            Fault::Unauthorized => RpcError::upstream_authorization(upstream),
            Fault::Busy(_) => RpcError::unavailable(upstream, "busy"),
            Fault::Status(_) => RpcError::unavailable(upstream, "http_status"),
            Fault::SessionLost => RpcError::unavailable(upstream, "session_lost"),
            Fault::Incompatible => RpcError::unavailable(upstream, "upstream_version"),
            Fault::Unserved(detail) => {
                let mut error = RpcError::unavailable(upstream, "transport");
                error.message = format!("upstream `{upstream}` is unavailable: {detail}");
                error
            }
            Fault::Full => RpcError::gateway(
                code::LIMITED,
                format!("upstream `{upstream}` has no room for another session"),
                "upstream_sessions",
                Some(upstream),
                true,
            ),
            Fault::Retired => RpcError::unavailable(upstream, "reconfigured"),
        }
    }

    /// Whether this is what an upstream may answer that has changed its era.
    pub(crate) fn doubts_era(&self) -> bool {
        let refused = Fault::Protocol("initialize_refused");
        matches!(self, Fault::Incompatible | Fault::Unserved(_)) || *self == refused
    }

    /// Whether this says that the upstream cannot be reached at all, which is what `upstream_up`
    /// means: the time-out of a call is no connection failure.
    pub(crate) fn is_down(&self) -> bool {
        matches!(self, Fault::NotSent(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SSE-13: a lost connection is an unknown outcome for a tool call only.
    #[test]
    fn sse_13_a_lost_tool_call_has_an_unknown_outcome() {
        let upstream = UpstreamId::new("up").unwrap();
        let data = |method| {
            let error = Fault::Broken.into_error(&upstream, method);
            assert_eq!(error.code, -31001);
            String::from_utf8(error.data.unwrap().to_vec()).unwrap()
        };
        assert!(data(Method::ToolsCall).contains("outcome_unknown"));
        assert!(data(Method::ToolsCall).contains(r#""retryable":false"#));
        assert!(data(Method::ToolsList).contains("connection_lost"));
    }

    /// HTR-10: the error names the target's origin.
    #[test]
    fn htr_10_a_refused_redirect_names_its_origin() {
        let upstream = UpstreamId::new("up").unwrap();
        let fault = Fault::Redirected("https://elsewhere.example".to_owned());
        let error = fault.into_error(&upstream, Method::ToolsCall);
        assert_eq!(error.code, -31003);
        assert!(error.message.contains("https://elsewhere.example"));
    }
}

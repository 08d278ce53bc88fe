//! The one way a request is refused: HTTP status, JSON-RPC code, bounded metric reason and the
//! words the outside may see. The set is closed; the internal cause stays in the log of whoever
//! refuses.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http::{StatusCode, header};

use crate::record::Outcome;

/// Codes of our own block (ERR-09): outside the range that JSON-RPC and MCP reserve.
pub mod code {
    /// Not valid JSON.
    pub const PARSE: i64 = -32700;
    /// Not a valid request.
    pub const INVALID_REQUEST: i64 = -32600;
    /// No such method here.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// Bad parameters, unknown names included.
    pub const INVALID_PARAMS: i64 = -32602;
    /// A bug of ours.
    pub const INTERNAL: i64 = -32603;
    /// Resource not found, legacy revisions only (ERR-02).
    pub const RESOURCE_NOT_FOUND: i64 = -32002;
    /// Headers and body disagree (ERR-06).
    pub const HEADER_MISMATCH: i64 = -32020;
    /// The client lacks a capability (ERR-06).
    pub const MISSING_CAPABILITY: i64 = -32021;
    /// The version is not served (ERR-06).
    pub const UNSUPPORTED_VERSION: i64 = -32022;
    /// URL elicitation required, 2025-11-25 only (ERR-05).
    pub const URL_ELICITATION: i64 = -32042;
    /// The upstream cannot be reached.
    pub const UPSTREAM_UNAVAILABLE: i64 = -31001;
    /// The upstream did not answer in time.
    pub const UPSTREAM_TIMEOUT: i64 = -31002;
    /// The upstream broke the protocol.
    pub const UPSTREAM_PROTOCOL: i64 = -31003;
    /// An interactive call or a stream's history was lost.
    pub const LOST: i64 = -31004;
    /// Over a limit.
    pub const LIMITED: i64 = -31005;
    /// Refused by the gateway's policy.
    pub const REFUSED: i64 = -31006;
    /// Cannot be translated between these two revisions.
    pub const NOT_TRANSLATABLE: i64 = -31007;
    /// The upstream wants an authorization that is not there.
    pub const UPSTREAM_AUTH: i64 = -31008;
}

/// Which limit was hit: the `scope` label and the `limit` of the error's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Client address, before authentication.
    Address,
    /// The tenant's budget.
    Tenant,
    /// The caller's budget.
    Principal,
    /// An upstream's budget.
    Upstream,
    /// A tool's budget.
    Tool,
}

impl Scope {
    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Scope::Address => "address",
            Scope::Tenant => "tenant",
            Scope::Principal => "principal",
            Scope::Upstream => "upstream",
            Scope::Tool => "tool",
        }
    }
}

/// A refusal. Every variant has one status, one code and one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reject {
    /// 431: a header value or all headers together are too large (HDR-23).
    HeadersTooLarge,
    /// 400: a control header stands twice or under an alias (T21); `modern` chooses the code.
    DuplicateHeader {
        /// The header.
        name: &'static str,
        /// Whether the client speaks a modern revision.
        modern: bool,
    },
    /// 403: Host is not a name of this gateway (T18).
    HostRefused,
    /// 403: Origin is not on the list (ORG-02).
    OriginRefused,
    /// 404 with one fixed body: no such tenant or server, or no such page.
    NoSuchPath,
    /// 405 with the methods that exist here.
    MethodNotAllowed {
        /// Value of `Allow`.
        allow: &'static str,
    },
    /// 429: over a limit (STA-23).
    Limited {
        /// Whose limit.
        scope: Scope,
        /// Which of them: `rate`, `in_flight`, `streams`, `sessions`, `connections`.
        limit: &'static str,
        /// When to come back; rounded up to whole seconds, at least one.
        retry_after: Duration,
    },
    /// 413: the body is larger than the limit.
    BodyTooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// 401 with a challenge (AUT-07).
    Unauthenticated {
        /// Value of `WWW-Authenticate`.
        challenge: String,
        /// Bounded reason for metrics: `missing`, `malformed`, `unknown_key`, `expired`, ….
        reason: &'static str,
    },
    /// 400 `invalid_request`: two credentials, or one in the query (STA-03).
    MalformedAuthorization {
        /// Value of `WWW-Authenticate`.
        challenge: String,
        /// What is wrong.
        detail: &'static str,
    },
    /// 406: no acceptable form of answer (HDR-01).
    NotAcceptable,
    /// 415: not `application/json`, or encoded (HDR-04).
    UnsupportedMediaType,
    /// 400 or 413: the body is not a message we accept; the scanner's verdict.
    Frame {
        /// 400 or 413.
        status: u16,
        /// -32700, -32600 or -32602.
        code: i64,
        /// Bounded reason for metrics.
        reason: &'static str,
        /// A clear sentence.
        message: String,
    },
    /// 400: the body broke off or came too slowly.
    BodyUnreadable,
    /// 400 -32600: a well-formed message that may not come here now.
    InvalidRequest(Cow<'static, str>),
    /// 400 -32602: parameters or required metadata are missing or wrong (STA-09).
    InvalidMeta(Cow<'static, str>),
    /// 400 -32020 (STA-08).
    HeaderMismatch(Cow<'static, str>),
    /// 400 -32021 naming what is missing (STA-11); `required` is a JSON object.
    MissingCapability {
        /// `requiredCapabilities` as JSON text.
        required: Bytes,
    },
    /// 400 -32022 with what is served (STA-10).
    UnsupportedVersion {
        /// Versions served, newest first.
        supported: Vec<&'static str>,
        /// What was asked for.
        requested: String,
    },
    /// -32601: 404 for modern clients, 200 for legacy ones (FRM-16, STA-12).
    MethodNotFound {
        /// Whether the client speaks a modern revision.
        modern: bool,
        /// A clear sentence.
        message: Cow<'static, str>,
    },
    /// 404 -32600: the session is ended, unknown or somebody else's (STA-06).
    SessionNotFound,
    /// 503 with Retry-After: the store or the whole gateway cannot take new work now.
    Unavailable {
        /// Bounded reason for metrics.
        reason: &'static str,
        /// When to come back.
        retry_after: Duration,
    },
    /// 504-like: the request's own deadline passed before a head was sent.
    Timeout,
    /// 500 -32603: a bug of ours; the details are in the log under the request id.
    Internal,
}

/// Status, code, reason and outcome of one refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Facts(u16, i64, &'static str, Outcome);

impl Reject {
    #[expect(clippy::too_many_lines, reason = "a flat table, one row a variant")]
    fn facts(&self) -> Facts {
        use Outcome as O;
        match self {
            Reject::HeadersTooLarge => {
                Facts(431, code::INVALID_REQUEST, "headers_too_large", O::Rejected)
            }
            Reject::DuplicateHeader { modern: true, .. } => {
                Facts(400, code::HEADER_MISMATCH, "duplicate_header", O::Rejected)
            }
            Reject::DuplicateHeader { modern: false, .. } => {
                Facts(400, code::INVALID_REQUEST, "duplicate_header", O::Rejected)
            }
            Reject::HostRefused => Facts(403, code::REFUSED, "host", O::Denied),
            Reject::OriginRefused => Facts(403, code::REFUSED, "origin", O::Denied),
            Reject::NoSuchPath => Facts(404, code::INVALID_REQUEST, "path", O::Rejected),
            Reject::MethodNotAllowed { .. } => {
                Facts(405, code::INVALID_REQUEST, "http_method", O::Rejected)
            }
            Reject::Limited { .. } => Facts(429, code::LIMITED, "limited", O::Limited),
            Reject::BodyTooLarge { .. } => {
                Facts(413, code::INVALID_REQUEST, "body_too_large", O::Rejected)
            }
            Reject::Unauthenticated { reason, .. } => {
                Facts(401, code::INVALID_REQUEST, reason, O::Unauthenticated)
            }
            Reject::MalformedAuthorization { .. } => Facts(
                400,
                code::INVALID_REQUEST,
                "invalid_request",
                O::Unauthenticated,
            ),
            Reject::NotAcceptable => Facts(406, code::INVALID_REQUEST, "accept", O::Rejected),
            Reject::UnsupportedMediaType => {
                Facts(415, code::INVALID_REQUEST, "content_type", O::Rejected)
            }
            Reject::Frame {
                status,
                code,
                reason,
                ..
            } => Facts(*status, *code, reason, O::Rejected),
            Reject::BodyUnreadable => {
                Facts(400, code::INVALID_REQUEST, "body_unreadable", O::Rejected)
            }
            Reject::InvalidRequest(_) => {
                Facts(400, code::INVALID_REQUEST, "invalid_request", O::Rejected)
            }
            Reject::InvalidMeta(_) => Facts(400, code::INVALID_PARAMS, "meta", O::Rejected),
            Reject::HeaderMismatch(_) => {
                Facts(400, code::HEADER_MISMATCH, "header_mismatch", O::Rejected)
            }
            Reject::MissingCapability { .. } => Facts(
                400,
                code::MISSING_CAPABILITY,
                "missing_capability",
                O::RpcError,
            ),
            Reject::UnsupportedVersion { .. } => {
                Facts(400, code::UNSUPPORTED_VERSION, "version", O::Rejected)
            }
            Reject::MethodNotFound { modern: true, .. } => {
                Facts(404, code::METHOD_NOT_FOUND, "method", O::RpcError)
            }
            Reject::MethodNotFound { modern: false, .. } => {
                Facts(200, code::METHOD_NOT_FOUND, "method", O::RpcError)
            }
            Reject::SessionNotFound => Facts(404, code::INVALID_REQUEST, "session", O::Rejected),
            Reject::Unavailable { reason, .. } => Facts(503, code::LIMITED, reason, O::Internal),
            Reject::Timeout => Facts(504, code::UPSTREAM_TIMEOUT, "deadline", O::Timeout),
            Reject::Internal => Facts(500, code::INTERNAL, "internal", O::Internal),
        }
    }

    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.facts().0).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The JSON-RPC code.
    pub fn code(&self) -> i64 {
        self.facts().1
    }

    /// The bounded metric reason.
    pub fn reason(&self) -> &'static str {
        self.facts().2
    }

    /// The outcome label.
    pub fn outcome(&self) -> Outcome {
        self.facts().3
    }

    /// What the outside reads: one sentence (ERR-11).
    pub fn message(&self) -> Cow<'_, str> {
        let text: &'static str = match self {
            Reject::HeadersTooLarge => {
                "request headers too large: at most 24 KiB a value and 64 KiB in all"
            }
            Reject::DuplicateHeader { name, .. } => {
                return format!("header {name} must be sent once, under its own name").into();
            }
            Reject::HostRefused => "this gateway does not serve the host name in Host",
            Reject::OriginRefused => "Origin not allowed",
            Reject::NoSuchPath => "not found",
            Reject::MethodNotAllowed { allow } => {
                return format!("method not allowed here; allowed: {allow}").into();
            }
            Reject::Limited { scope, limit, .. } => {
                return format!("over the {} limit of this {}", limit, scope.as_str()).into();
            }
            Reject::BodyTooLarge { limit } => {
                return format!("request body larger than the limit of {limit} bytes").into();
            }
            Reject::Unauthenticated { .. } => "authentication required",
            Reject::MalformedAuthorization { detail, .. } => detail,
            Reject::NotAcceptable => "Accept must allow application/json or text/event-stream",
            Reject::UnsupportedMediaType => {
                "Content-Type must be application/json, without a content encoding"
            }
            Reject::Frame { message, .. } => return Cow::Borrowed(message),
            Reject::BodyUnreadable => "the request body could not be read to its end",
            Reject::InvalidRequest(text)
            | Reject::InvalidMeta(text)
            | Reject::HeaderMismatch(text)
            | Reject::MethodNotFound { message: text, .. } => return Cow::Borrowed(text),
            Reject::MissingCapability { .. } => "the client lacks a capability this call needs",
            Reject::UnsupportedVersion { .. } => "protocol version not supported",
            Reject::SessionNotFound => "session not found",
            Reject::Unavailable { .. } => "temporarily unavailable",
            Reject::Timeout => "the request took too long",
            Reject::Internal => "internal error",
        };
        Cow::Borrowed(text)
    }

    /// The `data` member of the error, as JSON text.
    pub fn data(&self) -> Option<Bytes> {
        if let Reject::Limited { scope, limit, .. } = self {
            let retry_after = self.retry_after().unwrap_or(1);
            let data = format!(
                r#"{{"origin":"gateway","limit":"{}.{limit}","retry_after":{retry_after}}}"#,
                scope.as_str(),
            );
            return Some(Bytes::from(data));
        }
        if let Reject::MissingCapability { required } = self {
            let data = [b"{\"requiredCapabilities\":", required.as_ref(), b"}"].concat();
            return Some(Bytes::from(data));
        }
        if let Reject::UnsupportedVersion {
            supported,
            requested,
        } = self
        {
            let data = serde_json::json!({ "supported": supported, "requested": requested });
            return Some(Bytes::from(data.to_string()));
        }
        None
    }

    fn retry_after(&self) -> Option<u64> {
        let (Reject::Limited { retry_after, .. } | Reject::Unavailable { retry_after, .. }) = self
        else {
            return None;
        };
        Some(
            retry_after
                .as_millis()
                .div_ceil(1000)
                .max(1)
                .try_into()
                .unwrap_or(1),
        )
    }

    fn header(&self) -> Option<(HeaderName, HeaderValue)> {
        if let Reject::MethodNotAllowed { allow } = self {
            return Some((header::ALLOW, HeaderValue::from_static(allow)));
        }
        if let Reject::Unauthenticated { challenge, .. }
        | Reject::MalformedAuthorization { challenge, .. } = self
        {
            let value = HeaderValue::from_str(challenge).ok()?;
            return Some((header::WWW_AUTHENTICATE, value));
        }
        self.retry_after()
            .map(|seconds| (header::RETRY_AFTER, seconds.into()))
    }

    /// The whole HTTP answer. `id` is the raw JSON token of the request's id where it could be
    /// read; without it the member is omitted, never null (FRM-21).
    pub fn into_response(self, id: Option<&[u8]>) -> http::Response<Bytes> {
        let mut response = http::Response::new(self.body(id));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
        headers.insert(
            header::CACHE_CONTROL,
            HeaderValue::from_static("no-store, no-transform"),
        );
        if let Some((name, value)) = self.header() {
            headers.insert(name, value);
        }
        response
    }

    fn body(&self, id: Option<&[u8]>) -> Bytes {
        let mut body = b"{\"jsonrpc\":\"2.0\"".to_vec();
        if let Some(id) = id {
            body.extend_from_slice(b",\"id\":");
            body.extend_from_slice(id);
        }
        let message = serde_json::Value::from(self.message().as_ref()).to_string();
        body.extend_from_slice(
            format!(
                ",\"error\":{{\"code\":{},\"message\":{message}",
                self.code()
            )
            .as_bytes(),
        );
        if let Some(data) = self.data() {
            body.extend_from_slice(b",\"data\":");
            body.extend_from_slice(&data);
        }
        body.extend_from_slice(b"}}");
        Bytes::from(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(reject: Reject, id: Option<&[u8]>) -> serde_json::Value {
        serde_json::from_slice(reject.into_response(id).body()).unwrap()
    }

    /// FRM-21: the id is echoed as the raw token when it was read, otherwise the member is absent.
    #[test]
    fn frm_21_error_bodies_omit_an_unread_id() {
        let with = json(Reject::SessionNotFound, Some(b"\"a\\u0041\""));
        assert_eq!(with["id"], "aA");
        assert_eq!(with["error"]["code"], -32600);
        let without = json(Reject::OriginRefused, None);
        assert!(without.get("id").is_none());
    }

    /// ERR-06: an unsupported version names what is served and what was asked for.
    #[test]
    fn err_06_unsupported_version_lists_the_served_ones() {
        let reject = Reject::UnsupportedVersion {
            supported: vec!["2026-07-28", "2025-11-25"],
            requested: "1900-01-01\"".to_owned(),
        };
        let body = json(reject, Some(b"1"));
        assert_eq!(body["error"]["code"], -32022);
        assert_eq!(body["error"]["data"]["supported"][0], "2026-07-28");
        assert_eq!(body["error"]["data"]["requested"], "1900-01-01\"");
    }

    /// Case 77: a limit says when to come back, in whole seconds of at least one.
    #[test]
    fn case_77_limits_carry_retry_after() {
        let reject = Reject::Limited {
            scope: Scope::Principal,
            limit: "rate",
            retry_after: Duration::from_millis(20),
        };
        let response = reject.into_response(None);
        assert_eq!(response.status(), 429);
        assert_eq!(response.headers()["retry-after"], "1");
        let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(body["error"]["code"], -31005);
        assert_eq!(body["error"]["data"]["limit"], "principal.rate");
    }
}

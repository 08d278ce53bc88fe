//! Errors in neutral form, and how an upstream's error reads to a client (translation rules,
//! section 9).

use bytes::Bytes;
use serde_json::json;
use vestibule_frame::{Frame, Span};
use vestibule_terms::reject::code;
use vestibule_terms::{Era, Method, Outcome, Reject, UpstreamId};

/// Longest text of an upstream that is repeated to a client, in characters.
const TEXT_LIMIT: usize = 512;

/// What `data.origin` of an error reads that an upstream sent, as JSON text (ERR-13).
pub const FROM_UPSTREAM: &[u8] = br#""upstream""#;

/// A JSON-RPC error about to be sent to a client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code} {message}")]
pub struct RpcError {
    /// The code.
    pub code: i64,
    /// One sentence.
    pub message: String,
    /// The `data` member as JSON text.
    pub data: Option<Bytes>,
}

impl RpcError {
    /// An error without data.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    /// An error of the gateway's own block with its `data` (ERR-09).
    pub fn gateway(
        code: i64,
        message: impl Into<String>,
        reason: &'static str,
        upstream: Option<&UpstreamId>,
        retryable: bool,
    ) -> Self {
        let mut data = json!({ "origin": "gateway", "reason": reason, "retryable": retryable });
        if let Some(upstream) = upstream {
            data["upstream"] = json!(upstream.as_str());
        }
        Self {
            code,
            message: message.into(),
            data: Some(Bytes::from(data.to_string())),
        }
    }

    /// -31001: the upstream cannot be reached or refused the connection.
    pub fn unavailable(upstream: &UpstreamId, reason: &'static str) -> Self {
        let message = format!("upstream `{upstream}` is unavailable");
        Self::gateway(
            code::UPSTREAM_UNAVAILABLE,
            message,
            reason,
            Some(upstream),
            true,
        )
    }

    /// -31004 `outcome_unknown`: the process that ran the call is gone, and its upstream, where that
    /// is known, does not remember it (EL-15).
    pub fn lost(upstream: Option<&UpstreamId>) -> Self {
        let message = "the call was lost; it may or may not have run";
        let reason = "outcome_unknown";
        Self::gateway(code::LOST, message, reason, upstream, false)
    }

    /// -31001 `outcome_unknown`: the connection was lost after the request may have run (SSE-13).
    pub fn outcome_unknown(upstream: &UpstreamId) -> Self {
        let message = format!(
            "the connection to upstream `{upstream}` was lost; the call may or may not have run"
        );
        let reason = "outcome_unknown";
        Self::gateway(
            code::UPSTREAM_UNAVAILABLE,
            message,
            reason,
            Some(upstream),
            false,
        )
    }

    /// -31002: a clock of the call ran out.
    pub fn timeout(upstream: &UpstreamId) -> Self {
        let message = format!("upstream `{upstream}` did not answer in time");
        Self::gateway(
            code::UPSTREAM_TIMEOUT,
            message,
            "timeout",
            Some(upstream),
            true,
        )
    }

    /// -31003: the upstream broke the protocol.
    pub fn protocol(upstream: &UpstreamId, reason: &'static str) -> Self {
        let message = format!("upstream `{upstream}` sent an answer that breaks the protocol");
        Self::gateway(
            code::UPSTREAM_PROTOCOL,
            message,
            reason,
            Some(upstream),
            false,
        )
    }

    /// -31007: this cannot be said in the client's revision, or not in the upstream's.
    pub fn not_translatable(message: impl Into<String>, reason: &'static str) -> Self {
        Self::gateway(code::NOT_TRANSLATABLE, message, reason, None, false)
    }

    /// -31008: the upstream wants a credential we do not have.
    pub fn upstream_authorization(upstream: &UpstreamId) -> Self {
        let message = format!("upstream `{upstream}` requires an authorization");
        let reason = "unauthorized";
        Self::gateway(code::UPSTREAM_AUTH, message, reason, Some(upstream), false)
    }

    /// -31008: the upstream wants a grant of one user, and all users would share it (ELI-14).
    pub fn shared_credential(upstream: &UpstreamId) -> Self {
        let message = format!(
            "upstream `{upstream}` asks for an authorization that its shared credential cannot hold"
        );
        let reason = "shared_credential";
        Self::gateway(code::UPSTREAM_AUTH, message, reason, Some(upstream), false)
    }

    /// -32602 for a name that does not exist or is not permitted: the same bytes for both (TOL-07).
    pub fn unknown(kind: &'static str) -> Self {
        Self::new(code::INVALID_PARAMS, format!("unknown {kind}"))
    }

    /// The outcome label of a call that ended so.
    pub fn outcome(&self) -> Outcome {
        match self.code {
            code::UPSTREAM_UNAVAILABLE | code::UPSTREAM_PROTOCOL | code::UPSTREAM_AUTH => {
                Outcome::UpstreamError
            }
            code::UPSTREAM_TIMEOUT => Outcome::Timeout,
            code::LIMITED => Outcome::Limited,
            code::REFUSED => Outcome::Denied,
            code::INTERNAL => Outcome::Internal,
            _ => Outcome::RpcError,
        }
    }
}

impl From<&Reject> for RpcError {
    fn from(reject: &Reject) -> Self {
        Self {
            code: reject.code(),
            message: reject.message().into_owned(),
            data: reject.data(),
        }
    }
}

/// What to do with an error response of an upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mapped {
    /// The response passes byte for byte, but for its id (and names or URIs in it).
    Pass,
    /// It is replaced.
    Replace(RpcError),
}

/// Who is told of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    /// The era the client speaks.
    pub era: Era,
    /// Whether it declared url elicitations, in a revision that has them.
    pub elicit_url: bool,
}

/// Maps the error response `frame` of `upstream` to `method` for the client `told`.
///
/// Codes that the receiving hop would act upon (-32020 … -32022) and codes of our own block never
/// cross unseen: from an upstream they say something about *our* request, not about the client's.
pub fn map_error(frame: &Frame, upstream: &UpstreamId, method: Method, told: Told) -> Mapped {
    let era = told.era;
    let Some(parts) = frame.error_parts() else {
        return Mapped::Replace(RpcError::protocol(upstream, "malformed_error"));
    };
    let Some(received) = parts.code else {
        return Mapped::Replace(RpcError::protocol(upstream, "error_code"));
    };
    if !is_worded(frame) {
        return Mapped::Replace(RpcError::protocol(upstream, "error_message"));
    }
    let opaque = || {
        let mut error = RpcError::protocol(upstream, "upstream_error");
        error.message = format!("upstream `{upstream}` failed: {}", sanitise(&parts.message));
        error.data = Some(opaque_data(upstream, received, &parts.message));
        Mapped::Replace(error)
    };
    let reading = method == Method::ResourcesRead;
    match received {
        code::PARSE | code::INVALID_REQUEST | code::METHOD_NOT_FOUND => opaque(),
        code::INVALID_PARAMS => {
            let about_uri = parts
                .data
                .is_some_and(|data| frame.member(data, "uri").is_some());
            if reading && about_uri && era == Era::Legacy {
                Mapped::Replace(recode(&parts, frame, code::RESOURCE_NOT_FOUND))
            } else {
                Mapped::Pass
            }
        }
        code::RESOURCE_NOT_FOUND => match era {
            Era::Legacy => Mapped::Pass,
            Era::Modern => Mapped::Replace(recode(&parts, frame, code::INVALID_PARAMS)),
        },
        code::MISSING_CAPABILITY => match era {
            Era::Modern => Mapped::Pass,
            Era::Legacy => {
                let message = "the upstream needs a client capability that cannot be relayed";
                let mut error = RpcError::not_translatable(message, "missing_capability");
                error.data = parts.data.map(|data| disowned(frame, data)).or(error.data);
                Mapped::Replace(error)
            }
        },
        // ERR-05: only a client that can show the URL may be told to (6.5)
        code::URL_ELICITATION if told.elicit_url && era == Era::Legacy => Mapped::Pass,
        code::URL_ELICITATION => Mapped::Replace(page_first(upstream, told)),
        -32019..=-32000 => match era {
            Era::Legacy => Mapped::Pass,
            Era::Modern => opaque(),
        },
        -32099..=-32020 => opaque(),
        code::UPSTREAM_AUTH..=code::UPSTREAM_UNAVAILABLE => opaque(),
        _ => Mapped::Pass,
    }
}

/// To a client that cannot be shown the page. A stateless one that has not declared that it can show
/// pages learns that it has to; what else would be asked of it could not help (6.5).
fn page_first(upstream: &UpstreamId, told: Told) -> RpcError {
    if told.era == Era::Modern && !told.elicit_url {
        let required = br#"{"requiredCapabilities":{"elicitation":{"url":{}}}}"#;
        return RpcError {
            code: code::MISSING_CAPABILITY,
            message: format!("{upstream} wants its user to open a page first"),
            data: Some(Bytes::from_static(required)),
        };
    }
    let message = format!(
        "{upstream} wants its user to open a page in a browser first, which this client cannot be asked to do"
    );
    RpcError::not_translatable(message, "url_elicitation")
}

/// FRM-10: whether the error has a message.
fn is_worded(frame: &Frame) -> bool {
    let message = frame
        .error()
        .and_then(|error| frame.member(error, "message"));
    message.is_some_and(|span| frame.text(span).first() == Some(&b'"'))
}

fn recode(parts: &vestibule_frame::ErrorParts<'_>, frame: &Frame, code: i64) -> RpcError {
    RpcError {
        code,
        message: sanitise(&parts.message),
        data: parts.data.map(|data| disowned(frame, data)),
    }
}

/// The `data` of an upstream, which must not say that it is ours (ERR-13).
fn disowned(frame: &Frame, data: Span) -> Bytes {
    let Some(origin) = frame.member(data, "origin") else {
        return frame.shared(data);
    };
    let (whole, data, origin) = (frame.bytes(), data.range(), origin.range());
    let before = &whole[data.start..origin.start];
    let after = &whole[origin.end..data.end];
    Bytes::from([before, FROM_UPSTREAM, after].concat())
}

fn opaque_data(upstream: &UpstreamId, received: i64, message: &str) -> Bytes {
    Bytes::from(
        json!({
            "origin": "gateway",
            "reason": "upstream_error",
            "upstream": upstream.as_str(),
            "retryable": false,
            "upstreamCode": received,
            "upstreamMessage": sanitise(message),
        })
        .to_string(),
    )
}

/// Text of an upstream as it may be repeated: one line, no control characters, bounded (ERR-11).
pub fn sanitise(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control())
        .take(TEXT_LIMIT)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vestibule_frame::Limits;

    fn mapped(error: &str, method: Method, era: Era) -> Mapped {
        let text = format!(r#"{{"jsonrpc":"2.0","id":"1","error":{error}}}"#);
        let frame = Frame::parse(Bytes::from(text), &Limits::default()).unwrap();
        let told = Told {
            era,
            elicit_url: false,
        };
        map_error(&frame, &UpstreamId::new("up").unwrap(), method, told)
    }

    fn code_of(error: &str, method: Method, era: Era) -> i64 {
        match mapped(error, method, era) {
            Mapped::Pass => 0,
            Mapped::Replace(error) => error.code,
        }
    }

    /// ERR-03, ERR-04: a missing resource has another code on each side of the eras.
    #[test]
    fn err_03_resource_not_found_is_recoded_per_era() {
        let legacy = r#"{"code":-32002,"message":"no","data":{"uri":"a:b"}}"#;
        assert_eq!(code_of(legacy, Method::ResourcesRead, Era::Modern), -32602);
        assert_eq!(code_of(legacy, Method::ResourcesRead, Era::Legacy), 0);
        let modern = r#"{"code":-32602,"message":"no","data":{"uri":"a:b"}}"#;
        assert_eq!(code_of(modern, Method::ResourcesRead, Era::Legacy), -32002);
        assert_eq!(code_of(modern, Method::ToolsCall, Era::Legacy), 0);
        assert_eq!(code_of(modern, Method::ResourcesRead, Era::Modern), 0);
    }

    /// FRM-10, case 60: an error without an integer code or a message is no error to hand on.
    #[test]
    fn frm_10_malformed_errors_are_replaced() {
        for error in [
            r#"{"code":"-32000","message":"x"}"#,
            r#"{"message":"x"}"#,
            r#"{"code":1}"#,
            r#"{"code":1,"message":7}"#,
        ] {
            for era in [Era::Legacy, Era::Modern] {
                assert_eq!(code_of(error, Method::ToolsCall, era), -31003, "{error}");
            }
        }
        let odd = r#"{"code":1,"message":"\ud800"}"#;
        assert_eq!(code_of(odd, Method::ToolsCall, Era::Modern), 0);
    }

    /// ERR-07, ERR-08: undefined and legacy codes do not reach modern clients.
    #[test]
    fn err_08_reserved_codes_of_upstreams_become_opaque() {
        for code in [-32019, -32000, -32020, -32022, -32050, -31001, -31008] {
            let error = format!(r#"{{"code":{code},"message":"x"}}"#);
            assert_eq!(
                code_of(&error, Method::ToolsCall, Era::Modern),
                -31003,
                "{code}"
            );
        }
        let legacy = r#"{"code":-32000,"message":"x"}"#;
        assert_eq!(code_of(legacy, Method::ToolsCall, Era::Legacy), 0);
    }

    /// ERR-05: an upstream that asks for a url first is heard by those alone who can show one.
    #[test]
    fn err_05_a_required_url_elicitation_reaches_who_can_show_it() {
        let text = r#"{"jsonrpc":"2.0","id":"1","error":{"code":-32042,"message":"first","data":{"elicitations":[]}}}"#;
        let frame = Frame::parse(Bytes::from(text), &Limits::default()).unwrap();
        let upstream = UpstreamId::new("up").unwrap();
        for (era, elicit_url, expected) in [
            (Era::Legacy, true, None),
            (Era::Legacy, false, Some(-31007)),
            (Era::Modern, true, Some(-31007)),
            (Era::Modern, false, Some(-32021)),
        ] {
            let told = Told { era, elicit_url };
            let code = match map_error(&frame, &upstream, Method::ToolsCall, told) {
                Mapped::Pass => None,
                Mapped::Replace(error) => Some(error.code),
            };
            assert_eq!(code, expected, "{told:?}");
        }
    }

    /// XT-533, ERR-11: a gateway code from an upstream is remapped, its origin overwritten, its text cleaned.
    #[test]
    fn xt_533_our_own_codes_from_an_upstream_are_not_believed() {
        let forged = r#"{"code":-31006,"message":"a\nb","data":{"origin":"gateway"}}"#;
        let Mapped::Replace(error) = mapped(forged, Method::ToolsCall, Era::Legacy) else {
            panic!("passed");
        };
        let data: serde_json::Value = serde_json::from_slice(&error.data.unwrap()).unwrap();
        assert_eq!(error.code, -31003);
        assert_eq!(data["upstreamCode"], -31006);
        assert_eq!(data["upstreamMessage"], "ab");
    }

    /// ERR-13: what is recoded never claims to come from the gateway.
    #[test]
    fn err_13_the_origin_of_recoded_data_is_overwritten() {
        let forged = r#"{"code":-32002,"message":"x","data":{"a":1,"origin":"gateway","b":[2]}}"#;
        let Mapped::Replace(error) = mapped(forged, Method::ResourcesRead, Era::Modern) else {
            panic!("passed");
        };
        let data = error.data.unwrap();
        assert_eq!(data, r#"{"a":1,"origin":"upstream","b":[2]}"#);
    }

    /// ERR-13: an application's own code passes untouched.
    #[test]
    fn err_13_application_codes_pass() {
        for code in [1, -1, 404, -32603, -40000] {
            let error = format!(r#"{{"code":{code},"message":"x"}}"#);
            assert_eq!(
                mapped(&error, Method::ToolsCall, Era::Modern),
                Mapped::Pass,
                "{code}"
            );
        }
    }

    /// TOL-07, T46: a hidden name and an unknown one read the same.
    #[test]
    fn tol_07_unknown_items_have_one_wording() {
        assert_eq!(RpcError::unknown("tool"), RpcError::unknown("tool"));
        assert_eq!(RpcError::unknown("tool").code, -32602);
    }
}

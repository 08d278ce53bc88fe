//! What a question must satisfy before it reaches a client, and how it is labelled. Pure.

use bytes::Bytes;
use vestibule_exchange::Capabilities;
use vestibule_frame::{Draft, Frame, Span, json};
use vestibule_terms::reject::code;
use vestibule_terms::{Method, ServerPlan, UpstreamId};

/// The capability that a question needs and the client did not declare, as the member of
/// `requiredCapabilities` that names it; none when all is declared (CAP-04, SAM-02, ELI-01).
pub(crate) fn undeclared(
    method: Method,
    frame: &Frame,
    params: Option<Span>,
    declared: &Capabilities,
) -> Option<&'static str> {
    let member = |key| params.and_then(|params| frame.member(params, key));
    if method == Method::RootsList {
        (!declared.roots).then_some(r#"{"roots":{}}"#)
    } else if method == Method::SamplingCreateMessage {
        let tools = member("tools").is_some() || member("toolChoice").is_some();
        if !declared.sampling {
            Some(r#"{"sampling":{}}"#)
        } else {
            (tools && !declared.sampling_tools).then_some(r#"{"sampling":{"tools":{}}}"#)
        }
    } else {
        // A missing mode is the form (ELI-02).
        let mode = member("mode").and_then(|span| frame.string(span));
        if mode.as_deref() == Some("url") {
            (!declared.elicit_url).then_some(r#"{"elicitation":{"url":{}}}"#)
        } else {
            (!declared.elicit_form).then_some(r#"{"elicitation":{"form":{}}}"#)
        }
    }
}

/// The code that refuses a question: an unknown method where the capability is not there at all
/// (ROO-03), bad parameters otherwise.
pub(crate) fn refusal(method: Method) -> (i64, &'static str) {
    if method == Method::RootsList {
        (code::METHOD_NOT_FOUND, "roots are not available")
    } else {
        (code::INVALID_PARAMS, "the client cannot be asked this")
    }
}

/// Labels a question of `upstream` whose params are at `params`: on a federated server the user
/// sees who asks (ELI-09), and no upstream gets at what others told the client (SAM-04).
pub(crate) fn label(
    draft: &mut Draft,
    plan: &ServerPlan,
    upstream: &UpstreamId,
    method: Method,
    params: Option<Span>,
) {
    let frame = draft.frame();
    let member = |key| params.and_then(|params| frame.member(params, key));
    if method == Method::ElicitationCreate && plan.is_federated() {
        let span = member("message");
        let text = span
            .and_then(|span| frame.string(span))
            .map(|text| format!("[{upstream}] {text}"));
        if let (Some(span), Some(text)) = (span, text) {
            draft.replace(span, Bytes::from(json::quote(&text)));
        }
    } else if method == Method::SamplingCreateMessage && plan.upstreams().len() > 1 {
        let span = member("includeContext");
        let wide = span.filter(|span| {
            matches!(
                frame.string(*span).as_deref(),
                Some("thisServer" | "allServers")
            )
        });
        if let Some(span) = wide {
            draft.replace(span, Bytes::from_static(b"\"none\""));
        }
    }
}

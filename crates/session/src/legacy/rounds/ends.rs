//! How a call ends that its client or its upstream does not let go on between rounds (section 15).
//!
//! The model that has called a tool reads what happened; every other call ends with an error.

use vestibule_exchange::error_map::sanitise;
use vestibule_exchange::{Final, RpcError};
use vestibule_frame::Frame;
use vestibule_terms::reject::code;
use vestibule_terms::{Method, UpstreamId};

/// The upstream asks again and again (XT-140).
pub(super) fn too_many(method: Method, upstream: &UpstreamId) -> Final {
    let text = "the upstream asked for input too many times";
    told(method, text, || RpcError::protocol(upstream, "rounds"))
}

/// The client's revision has no form for a question.
pub(super) fn inexpressible(method: Method) -> Final {
    let text = "the upstream asks something that this client cannot be asked";
    told(method, text, || {
        RpcError::not_translatable(text, "question")
    })
}

/// The client has answered with an error, which has no form in a round (AMB-17, XT-135).
pub(super) fn unanswered(method: Method, frame: &Frame) -> Final {
    let parts = frame.error_parts();
    let message = parts.as_ref().map(|parts| sanitise(&parts.message));
    let message = message.unwrap_or_default();
    let number = parts.and_then(|parts| parts.code).unwrap_or(code::INTERNAL);
    let text = format!("a question of the upstream was not answered: {message}");
    told(method, &text, || RpcError::new(number, message.clone()))
}

/// The client's answer is none.
pub(super) fn malformed(method: Method) -> Final {
    let text = "the client's answer to a question of the upstream is malformed";
    told(method, text, || RpcError::new(code::INVALID_PARAMS, text))
}

/// Nobody has answered.
pub(super) fn late(upstream: &UpstreamId) -> Final {
    let message = "a question of the upstream was not answered in time";
    let error = (code::UPSTREAM_TIMEOUT, "no_answer");
    Final::Error(RpcError::gateway(
        error.0,
        message,
        error.1,
        Some(upstream),
        false,
    ))
}

/// The client cannot be asked now.
pub(super) fn away(text: &str) -> Final {
    Final::Error(RpcError::new(code::INTERNAL, text))
}

fn told(method: Method, text: &str, error: impl FnOnce() -> RpcError) -> Final {
    if method != Method::ToolsCall {
        return Final::Error(error());
    }
    Final::tool_error(text)
}

//! Stateless clients (2026-07-28): every request stands alone and says its version, its client's
//! capabilities and what it wants to hear. Nothing is remembered between two requests (LIF-12).

mod call;
mod listen;

use std::sync::Arc;

use vestibule_exchange::{Call, Capabilities, Exchange, LogLevel, Rounds, RpcError};
use vestibule_frame::meta::{self, Reserved};
use vestibule_frame::{Draft, Frame, Id};
use vestibule_terms::reject::code;
use vestibule_terms::{Direction, Method, Reject, Revision};

use crate::answer::{self, Response};
use crate::encode::Reply;
use crate::facts::{Facts, note_target};
use crate::room::Room;
use crate::running::Running;
pub(crate) use call::{Scribe, answer_with_error};
pub(crate) use listen::{Listens, drained};

/// What a request says about itself in `_meta`.
struct Stated {
    method: Method,
    capabilities: Capabilities,
    /// The level of logs; an error is one that does not exist (LOG-04).
    level: Result<Option<LogLevel>, ()>,
    token: Option<Id>,
}

/// Accepts and ignores a notification (HTR-05, AMB-05).
pub(crate) fn notification(facts: &Facts) -> Response {
    facts.record.set_revision(Revision::NEWEST_MODERN);
    answer::accepted(&facts.record)
}

/// Serves one request whose version and headers have been checked.
pub(crate) async fn request<S: Exchange>(
    room: &Room<S>,
    facts: Facts,
    frame: Frame,
    revision: Revision,
) -> Response {
    let record = facts.record.clone();
    record.set_revision(revision);
    let Some(id) = frame.id() else {
        return answer::refuse(&record, Reject::Internal, None);
    };
    let stated = match read(&facts, &frame, revision) {
        Ok(stated) => stated,
        Err(reject) => return answer::refuse(&record, reject, Some(&id)),
    };
    note_target(&record, stated.method, &frame);
    let Ok(level) = stated.level else {
        let error = RpcError::new(code::INVALID_PARAMS, "unknown log level in _meta");
        return answer::json(&record, Reply::error(Some(&id), &error), true);
    };
    let call = Call {
        plan: Arc::clone(&facts.plan),
        principal: Arc::clone(&facts.principal),
        record,
        revision,
        method: stated.method,
        message: Draft::new(frame),
        session: None,
        capabilities: Arc::new(stated.capabilities),
        log_level: level,
        progress: stated.token.is_some(),
        param_headers: facts.head.params.clone().into(),
        deadline: facts.deadline,
        inlet: None,
        continues: None,
        rounds: Rounds::default(),
    };
    if stated.method == Method::SubscriptionsListen {
        return listen::serve(room, facts.accepts, call, id).await;
    }
    let scribe = Scribe::new(&room.shared, &call, id, stated.token);
    let end = call.deadline.end;
    let running = Running::new(room.call(call), Some(end)).until(room.shared.endings.of(&facts));
    scribe.answer(running, facts.accepts).await
}

/// The rest of the ladder: capabilities, then the method (AMB-28).
fn read(facts: &Facts, frame: &Frame, revision: Revision) -> Result<Stated, Reject> {
    let reserved = Reserved::of(frame);
    let capabilities = reserved
        .client_capabilities
        .map(|span| frame.text(span))
        .filter(|text| text.first() == Some(&b'{'));
    let Some(capabilities) = capabilities else {
        let text = format!("_meta needs `{}`, an object", meta::CLIENT_CAPABILITIES);
        return Err(Reject::InvalidMeta(text.into()));
    };
    let name = frame.method().unwrap_or_default();
    let method = Method::parse(&name)
        .filter(|method| method.allowed(Direction::ClientRequest, revision))
        .ok_or_else(|| unknown(facts, &name))?;
    let level = match reserved.log_level {
        None => Ok(None),
        Some(span) => frame
            .string(span)
            .and_then(|text| LogLevel::parse(&text))
            .map(Some)
            .ok_or(()),
    };
    Ok(Stated {
        method,
        capabilities: Capabilities::parse(capabilities),
        level,
        token: reserved
            .progress_token
            .and_then(|span| Id::from_token(frame.shared(span))),
    })
}

/// STA-12; to a misplaced `initialize` it says what can be done instead (XT-007).
fn unknown(facts: &Facts, name: &str) -> Reject {
    let message = if name == Method::Initialize.as_str() {
        let served = facts.plan.supported().join(", ");
        format!("initialize does not exist in a stateless revision; versions served: {served}")
    } else {
        "method not found".to_owned()
    };
    Reject::MethodNotFound {
        modern: true,
        message: message.into(),
    }
}

#[cfg(test)]
mod tests;

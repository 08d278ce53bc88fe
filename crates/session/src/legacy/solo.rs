//! Legacy clients that never send their session id back, on servers that allow it
//! (`sessions: optional`, case 116): every request stands alone. No log, no questions; a broken
//! connection still does not cancel (SSE-09).

use std::sync::Arc;

use vestibule_exchange::{Call, Capabilities, Exchange, LogLevel, Rounds};
use vestibule_frame::meta::Reserved;
use vestibule_frame::{Draft, Frame, Id, Kind};
use vestibule_terms::{Method, Reject, Revision};

use super::message::known;
use crate::answer::{self, Response};
use crate::classify::{is_request_only, without_id};
use crate::encode::Reply;
use crate::facts::{Facts, note_target};
use crate::modern::Scribe;
use crate::room::Room;
use crate::running::Running;

/// Serves one message.
pub(super) async fn message<S: Exchange>(room: &Room<S>, facts: Facts, frame: Frame) -> Response {
    let record = facts.record.clone();
    let revision = revision(&facts);
    record.set_revision(revision);
    let name = frame.method().unwrap_or_default().into_owned();
    let id = match (frame.kind(), frame.id()) {
        (Kind::Request, Some(id)) => id,
        (Kind::Notification, _) if is_request_only(&name) => {
            return answer::refuse(&record, without_id(&name), None);
        }
        (Kind::Request, None) => return answer::refuse(&record, Reject::Internal, None),
        (Kind::Notification | Kind::Response, _) => return answer::accepted(&record),
    };
    let method = match known(&frame, revision) {
        Ok(method) => method,
        Err(reject) => return answer::refuse(&record, reject, Some(&id)),
    };
    note_target(&record, method, &frame);
    if matches!(method, Method::Ping | Method::LoggingSetLevel) {
        // A level that nobody remembers is a level that is not set.
        return answer::json(&record, Reply::result(&id, b"{}"), false);
    }
    let token = Reserved::of(&frame)
        .progress_token
        .and_then(|span| Id::from_token(frame.shared(span)));
    let call = Call {
        plan: Arc::clone(&facts.plan),
        principal: Arc::clone(&facts.principal),
        record,
        revision,
        method,
        message: Draft::new(frame),
        session: None,
        capabilities: Arc::new(Capabilities::default()),
        log_level: Some(LogLevel::Warning),
        progress: token.is_some(),
        param_headers: Arc::new([]),
        deadline: facts.deadline,
        inlet: None,
        continues: None,
        rounds: Rounds::default(),
    };
    let scribe = Scribe::new(&room.shared, &call, id.clone(), token);
    let end = call.deadline.end;
    let ending = room.shared.endings.of(&facts);
    let running = Running::new(room.call(call), Some(end)).until(ending);
    // In a task of its own: a connection that breaks takes the waiting down, not the call.
    let answering = tokio::spawn(scribe.answer(running, facts.accepts));
    match answering.await {
        Ok(response) => response,
        Err(_panicked) => answer::refuse(&facts.record, Reject::Internal, Some(&id)),
    }
}

/// VER-05: the header's version, else 2025-03-26, else the newest that is served.
fn revision(facts: &Facts) -> Revision {
    let stated = facts.head.version.as_deref().and_then(Revision::parse);
    stated
        .into_iter()
        .chain([Revision::R2025_03_26])
        .find(|revision| !revision.is_modern() && facts.plan.serves(*revision))
        .or(facts.plan.newest_legacy())
        .unwrap_or(Revision::NEWEST_LEGACY)
}

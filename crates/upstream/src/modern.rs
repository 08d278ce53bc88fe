//! Calls to a stateless upstream over HTTP: each is one POST whose answer is its own.
//!
//! Dropping the call closes that answer, which cancels it (SSE-11). Nothing is resumed: a stream
//! that breaks has lost its request (SSE-13).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::StatusCode;
use vestibule_exchange::{Final, Outbound};
use vestibule_frame::{Draft, Frame, FrameError, Kind};
use vestibule_terms::reject::code;
use vestibule_terms::{Direction, Method, Revision};

use crate::clock::CallClock;
use crate::compose;
use crate::ear::{self, Ear};
use crate::fault::Fault;
use crate::ids::CallId;
use crate::legacy::handshake;
use crate::link::{HttpSide, Link};
use crate::running::Sink;
use crate::wire::{Answer, Refusal};

/// Answers in a row that no stateless server gives, after which the era is found out again.
const STRIKES: u8 = 2;

/// What a call came to.
#[derive(Debug)]
pub(crate) enum Turn {
    /// It has ended.
    End(Box<Final>),
    /// The upstream serves only revisions with a handshake (VER-10).
    Legacy,
    /// It was taken for an upstream with a handshake, and is none (any more).
    Modern,
}

/// Makes the call.
pub(crate) async fn call(
    link: &Arc<Link>,
    side: &HttpSide,
    outbound: &Outbound,
    clock: &mut CallClock,
    sink: &Sink,
) -> Result<Turn, Fault> {
    let id = link.ids().call();
    let revision = Revision::NEWEST_MODERN;
    let payload = compose::modern(outbound, &id, revision, link.client_info()).chunks();
    let headers = compose::modern_headers(outbound, revision);
    let reply = clock.bound(side.wire.post(&headers, &payload)).await?;
    link.observe()
        .reached(!reply.as_ref().is_err_and(Fault::is_down));
    let answer = match reply?.into_answer(side.wire.max_response())? {
        Ok(answer) => answer,
        Err(refusal) => return refused(link, side, &id, refusal),
    };
    clock.touch();
    side.strikes.store(0, Ordering::Relaxed);
    let mut hearing = Hearing {
        id: &id,
        ear: Ear::new(outbound, &id),
        link,
    };
    let frame = hearing.read(answer, clock, sink).await?;
    settle(frame)
}

/// Listens to one answer.
struct Hearing<'a> {
    id: &'a CallId,
    ear: Ear,
    link: &'a Link,
}

impl Hearing<'_> {
    /// Reads up to the response.
    async fn read(
        &mut self,
        mut answer: Answer,
        clock: &mut CallClock,
        sink: &Sink,
    ) -> Result<Frame, Fault> {
        loop {
            let Some(item) = clock.bound(answer.next()).await?? else {
                // a body without a response is wrong, a stream without one is lost
                let lost = answer.is_stream();
                return Err(if lost {
                    Fault::Broken
                } else {
                    Fault::Protocol("no_response")
                });
            };
            clock.touch();
            if let Some(frame) = self.hear(item.frames, sink).await? {
                answer.finish();
                return Ok(frame);
            }
        }
    }

    async fn hear(
        &mut self,
        frames: Result<Vec<Frame>, FrameError>,
        sink: &Sink,
    ) -> Result<Option<Frame>, Fault> {
        let frames = frames.map_err(|error| {
            tracing::warn!(upstream.id = %self.link.upstream(), %error,
                "an upstream sent a malformed message");
            Fault::Protocol("malformed")
        })?;
        for frame in frames {
            match frame.kind() {
                Kind::Response => {
                    if frame.id().is_some_and(|id| !self.id.is(&id)) {
                        return Err(Fault::Protocol("wrong_id"));
                    }
                    return Ok(Some(frame));
                }
                Kind::Notification => self.notified(frame, sink).await,
                // FRM-20: never answered
                Kind::Request => self
                    .link
                    .observe()
                    .violated("a stateless one sent a request"),
            }
        }
        Ok(None)
    }

    async fn notified(&mut self, frame: Frame, sink: &Sink) {
        let method = frame.method().and_then(|name| Method::parse(&name));
        let allowed =
            |m: &Method| m.allowed(Direction::ServerNotification, Revision::NEWEST_MODERN);
        let Some(method) = method.filter(allowed) else {
            return;
        };
        if let Some(event) = self.ear.notification(method, frame) {
            sink.send(event).await;
        }
    }
}

/// What a response means: its result has a known type (FRM-22), and a version error is acted upon.
pub(crate) fn settle(frame: Frame) -> Result<Turn, Fault> {
    if let Some(kind) = frame.result_type() {
        let known = frame.string(kind);
        let known = matches!(
            known.as_deref(),
            Some("complete" | "input_required" | "task")
        );
        if !known {
            return Err(Fault::Protocol("result_type"));
        }
    }
    let is_version = frame
        .error_parts()
        .is_some_and(|parts| parts.code == Some(code::UNSUPPORTED_VERSION));
    if is_version {
        return renegotiate(&frame);
    }
    Ok(Turn::End(Box::new(Final::Message(Draft::new(frame)))))
}

/// VER-10: a version error names what is served.
fn renegotiate(frame: &Frame) -> Result<Turn, Fault> {
    let supported = ear::supported(frame);
    // which one is for `initialize` to agree on
    handshake::newest_legacy(&supported)
        .map(|_| Turn::Legacy)
        .ok_or(Fault::Incompatible)
}

/// STA-27: an error body counts by its code, whatever the status.
fn refused(link: &Link, side: &HttpSide, id: &CallId, refusal: Refusal) -> Result<Turn, Fault> {
    if matches!(refusal.status.as_u16(), 401 | 403 | 429 | 503) {
        return Err(refusal.fault());
    }
    let anonymous = !refusal.status.is_server_error();
    let answers = |frame: &Frame| {
        frame.error().is_some() && frame.id().map_or(anonymous, |answered| id.is(&answered))
    };
    let Some(frame) = refusal.frame.clone().filter(answers) else {
        if matches!(
            refusal.status,
            StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND
        ) {
            strike(link, side);
        }
        return Err(refusal.fault());
    };
    settle(frame)
}

/// Twice something that no stateless server answers: perhaps it has become another server.
fn strike(link: &Link, side: &HttpSide) {
    if side.strikes.fetch_add(1, Ordering::Relaxed) + 1 >= STRIKES {
        side.strikes.store(0, Ordering::Relaxed);
        link.forget_era();
    }
}

/// Asks the upstream what it is.
pub(crate) async fn discover(link: &Link, side: &HttpSide) -> Result<Frame, Fault> {
    let id = link.ids().call();
    let (headers, message) = compose::discover(&id, Revision::NEWEST_MODERN, link.client_info());
    let reply = side.wire.post(&headers, &[message]).await?;
    let mut answer = match reply.into_answer(side.wire.max_response())? {
        Ok(answer) => answer,
        Err(refusal) => return Err(refusal.fault()),
    };
    while let Some(item) = answer.next().await? {
        let frames = item.frames.map_err(|_| Fault::Protocol("malformed"))?;
        let found = frames
            .into_iter()
            .find(|frame| frame.kind() == Kind::Response);
        if let Some(frame) = found {
            answer.finish();
            return Ok(frame);
        }
    }
    Err(Fault::Broken)
}

//! Which era an upstream speaks (translation rules 2.3), and the opening of HTTP sessions.
//!
//! The decision is pure: [`judge`] takes a status and what the body turned out to be. Errors are
//! trusted by what only a stateless server says, never because they are errors: `-32601` is what
//! servers with a handshake answer, and a page of a proxy is no server at all.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use vestibule_exchange::Profile;
use vestibule_frame::{Frame, Kind, encode};
use vestibule_terms::reject::code;
use vestibule_terms::{Method, Revision};

use crate::compose;
use crate::ear;
use crate::era::Known;
use crate::fault::Fault;
use crate::ids::CallId;
use crate::legacy::handshake::{self, Answered};
use crate::legacy::live::{HttpLine, Line, Live, Posts, Quirks};
use crate::legacy::peer::{Owner, Peer};
use crate::legacy::record::SessionRecord;
use crate::link::{HttpSide, Link};
use crate::wire::{Answer, Refused, Reply, Wire, json_headers};

/// How long an upstream may stay silent before it is taken for one with a handshake.
const SILENCE: Duration = Duration::from_secs(5);

/// Neither era answers over this transport.
const UNSERVED: Fault = Fault::Unserved(
    "it refuses both server/discover and initialize over Streamable HTTP; \
     HTTP+SSE upstreams are not served",
);

/// What an answer to `server/discover` means.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Stateless, in this revision.
    Modern {
        /// The newest that both sides know.
        revision: Revision,
    },
    /// Probably with a handshake: `initialize` will tell.
    Legacy {
        /// The version to offer, when the answer named some.
        offer: Option<Revision>,
        /// Hardly anything speaks for it.
        weak: bool,
    },
    /// Nothing can be said; not to be remembered.
    Fault(Fault),
}

/// What came back.
#[derive(Debug)]
pub(crate) enum Body<'a> {
    /// A JSON-RPC response.
    Response(&'a Frame),
    /// JSON, but no response.
    OtherJson,
    /// No JSON.
    NotJson,
}

/// What an HTTP answer to `server/discover` means.
pub(crate) fn judge(status: u16, body: &Body<'_>, busy: Option<Duration>) -> Verdict {
    let message = match body {
        Body::Response(frame) => judge_message(frame),
        Body::OtherJson => Verdict::Legacy {
            offer: None,
            weak: false,
        },
        Body::NotJson => Verdict::Legacy {
            offer: None,
            weak: true,
        },
    };
    let certain = match &message {
        Verdict::Modern { .. } => true,
        Verdict::Legacy { offer, .. } => offer.is_some(),
        Verdict::Fault(_) => false,
    };
    match status {
        _ if certain => message,
        401 | 403 => Verdict::Fault(Fault::Unauthorized),
        429 | 503 => Verdict::Fault(Fault::Busy(busy)),
        500.. => Verdict::Fault(Fault::Status(status)),
        _ => message,
    }
}

/// What a response to `server/discover` means, on any transport.
pub(crate) fn judge_message(frame: &Frame) -> Verdict {
    if frame.result().is_some() {
        return judge_result(frame);
    }
    let supported = ear::supported(frame);
    if let Some(revision) = newest_modern(&supported) {
        return Verdict::Modern { revision };
    }
    match frame.error_parts().and_then(|parts| parts.code) {
        Some(code::HEADER_MISMATCH | code::MISSING_CAPABILITY) => Verdict::Modern {
            revision: Revision::NEWEST_MODERN,
        },
        Some(code::UNSUPPORTED_VERSION) => match handshake::newest_legacy(&supported) {
            Some(revision) => Verdict::Legacy {
                offer: Some(revision),
                weak: false,
            },
            None => Verdict::Fault(Fault::Incompatible),
        },
        Some(_) | None => Verdict::Legacy {
            offer: handshake::newest_legacy(&supported),
            weak: false,
        },
    }
}

fn judge_result(frame: &Frame) -> Verdict {
    let Some(listed) = ear::result_member(frame, "supportedVersions") else {
        return Verdict::Legacy {
            offer: None,
            weak: false,
        };
    };
    let supported = ear::strings(&listed);
    if let Some(revision) = newest_modern(&supported) {
        return Verdict::Modern { revision };
    }
    match handshake::newest_legacy(&supported) {
        Some(revision) => Verdict::Legacy {
            offer: Some(revision),
            weak: false,
        },
        None => Verdict::Fault(Fault::Incompatible),
    }
}

/// The newest stateless revision among `supported` that we know (VER-15: looked up, not compared).
fn newest_modern(supported: &[String]) -> Option<Revision> {
    let known = supported
        .iter()
        .filter_map(|version| Revision::parse(version));
    known.filter(|revision| revision.is_modern()).max()
}

/// Finds out the era of an upstream over HTTP.
pub(crate) async fn http(link: &Arc<Link>, side: &HttpSide) -> Result<Known, Fault> {
    let id = link.ids().call();
    let revision = Revision::NEWEST_MODERN;
    let (headers, message) = compose::discover(&id, revision, link.client_info());
    let payload = [message];
    let asking = async {
        let reply = side.wire.post(&headers, &payload).await?;
        read_discover(&side.wire, reply, &id).await
    };
    let (verdict, frame) = match timeout(SILENCE, asking).await {
        Ok(Ok(seen)) => seen,
        Ok(Err(fault)) => return Err(fault),
        Err(_silent) => (
            Verdict::Legacy {
                offer: None,
                weak: true,
            },
            None,
        ),
    };
    tracing::debug!(upstream.id = %link.upstream(), ?verdict, "probed an upstream");
    match verdict {
        Verdict::Modern { revision } => match frame {
            Some(frame) => Ok(Known::discovered(&frame, revision, true)),
            None => Err(Fault::Broken),
        },
        Verdict::Legacy { offer, weak } => {
            // an upstream that is known, asked again: its sessions stay as they are
            if let Some(profile) = link.known_legacy() {
                return Ok(Known::legacy(profile, weak));
            }
            let session = link.catalog_session();
            let live = open_http(link, side, session.owner(link), offer).await?;
            let known = Known::legacy(Arc::clone(&live.profile), weak);
            session.adopt(Arc::new(live), link.background());
            Ok(known)
        }
        Verdict::Fault(fault) => Err(fault),
    }
}

async fn read_discover(
    wire: &Wire,
    reply: Reply,
    id: &CallId,
) -> Result<(Verdict, Option<Frame>), Fault> {
    let response = match reply {
        Reply::Success(response) => response,
        Reply::Refused(refusal) => {
            let frame = refusal.frame.filter(|frame| frame.kind() == Kind::Response);
            let body = match (&frame, refusal.is_json) {
                (Some(frame), _) => Body::Response(frame),
                (None, true) => Body::OtherJson,
                (None, false) => Body::NotJson,
            };
            let verdict = judge(refusal.status.as_u16(), &body, refusal.retry_after);
            return Ok((verdict, frame));
        }
    };
    let status = response.status().as_u16();
    let frame = match Answer::new(response, wire.max_response()) {
        Ok(answer) => first_response(answer, id).await?,
        Err(_other_type) => None,
    };
    let verdict = match &frame {
        Some(frame) => judge(status, &Body::Response(frame), None),
        None => judge(status, &Body::NotJson, None),
    };
    Ok((verdict, frame))
}

/// The first response of an answer, if it has one.
async fn first_response(mut answer: Answer, id: &CallId) -> Result<Option<Frame>, Fault> {
    while let Some(item) = answer.next().await? {
        let Ok(frames) = item.frames else {
            return Ok(None);
        };
        let fits = |frame: &Frame| {
            frame.kind() == Kind::Response && frame.id().is_none_or(|got| id.is(&got))
        };
        if let Some(frame) = frames.into_iter().find(fits) {
            answer.finish();
            return Ok(Some(frame));
        }
    }
    Ok(None)
}

/// Opens a session over HTTP: `initialize`, then `notifications/initialized` (LIF-03).
pub(crate) async fn open_http(
    link: &Link,
    side: &HttpSide,
    owner: Owner,
    offer: Option<Revision>,
) -> Result<Live, Fault> {
    let patience = link.target().timeouts.idle;
    // CAN-02: a handshake that takes too long is dropped with its connection, never cancelled
    let opening = timeout(patience, negotiate(link, side, &owner, offer)).await;
    let opened = opened(link, opening.unwrap_or(Err(Fault::Timeout)))?;
    let live = over_http(link, side, owner, opened);
    if let Line::Http(line) = &live.line {
        timeout(patience, initialized(line, &side.quirks))
            .await
            .unwrap_or(Err(Fault::Timeout))?;
    }
    Ok(live)
}

/// A session that another process has opened over HTTP, as it was written down.
pub(crate) fn attach_http(
    link: &Link,
    side: &HttpSide,
    owner: Owner,
    record: &bytes::Bytes,
) -> Option<Live> {
    let SessionRecord {
        session_id,
        profile,
    } = SessionRecord::read(record)?;
    Some(over_http(link, side, owner, (profile, session_id)).attached())
}

fn over_http(link: &Link, side: &HttpSide, owner: Owner, opened: Opened) -> Live {
    let (profile, session_id) = opened;
    let line = Arc::new(HttpLine {
        wire: Arc::clone(&side.wire),
        quirks: Arc::clone(&side.quirks),
        revision: profile.revision,
        session_id,
    });
    let carrier = Arc::new(Posts(Arc::clone(&line)));
    let peer = Peer::new(
        owner,
        profile.revision,
        Arc::default(),
        carrier,
        link.tools(),
    );
    Live::new(Arc::new(peer), Line::Http(line), profile)
}

type Opened = (Arc<Profile>, Option<http::HeaderValue>);

fn opened(link: &Link, outcome: Result<Opened, Fault>) -> Result<Opened, Fault> {
    link.observe()
        .reached(!outcome.as_ref().is_err_and(Fault::is_down));
    outcome
}

async fn negotiate(
    link: &Link,
    side: &HttpSide,
    owner: &Owner,
    offer: Option<Revision>,
) -> Result<Opened, Fault> {
    let mut offered = offer.unwrap_or(Revision::NEWEST_LEGACY);
    for _ in 0..2 {
        let id = link.ids().call();
        let declared = owner.class.encode(offered);
        let message = compose::initialize(&id, offered, &declared, link.client_info());
        let (answered, session_id) = initialize(side, &id, message, offered).await?;
        match answered {
            Answered::Opened(profile) => return Ok((profile, session_id)),
            Answered::Offer(revision) => offered = revision,
            Answered::Failed(fault) => {
                end_unwanted(side, session_id).await;
                return Err(fault);
            }
        }
    }
    Err(Fault::Incompatible)
}

/// One `initialize`. The session id counts only beside a success (case 114).
async fn initialize(
    side: &HttpSide,
    id: &CallId,
    message: bytes::Bytes,
    offered: Revision,
) -> Result<(Answered, Option<http::HeaderValue>), Fault> {
    let response = match side.wire.post(&json_headers(), &[message]).await? {
        Reply::Success(response) => response,
        Reply::Refused(refusal) => {
            let names_versions = refusal
                .frame
                .as_ref()
                .filter(|frame| !ear::supported(frame).is_empty());
            if let Some(frame) = names_versions {
                return Ok((handshake::read(frame, offered, true), None));
            }
            let fault = refusal.fault();
            let unknown = matches!(fault, Fault::Protocol(_));
            return Err(if unknown { UNSERVED } else { fault });
        }
    };
    let session_id = handshake::session_id(response.headers().get(compose::SESSION_ID))?;
    let answer = Answer::new(response, side.wire.max_response())?;
    let Some(frame) = first_response(answer, id).await? else {
        return Err(Fault::Protocol("initialize_result"));
    };
    let session_id = session_id.filter(|_| frame.result().is_some());
    Ok((handshake::read(&frame, offered, true), session_id))
}

/// VER-02: a session in a version that we do not speak is ended at once.
async fn end_unwanted(side: &HttpSide, session_id: Option<http::HeaderValue>) {
    let line = HttpLine {
        wire: Arc::clone(&side.wire),
        quirks: Arc::clone(&side.quirks),
        revision: Revision::NEWEST_LEGACY,
        session_id,
    };
    line.delete().await;
}

/// LIF-03: a session whose `initialized` is refused is no session. VER-04: unless it is the version
/// header that is refused.
async fn initialized(line: &HttpLine, quirks: &Quirks) -> Result<(), Fault> {
    let message = [encode::notification(Method::Initialized.as_str(), None)];
    for _ in 0..2 {
        match line.wire.deliver(&line.post_headers(), &message).await {
            Ok(()) => return Ok(()),
            Err(Refused::Status(refusal)) if refusal.status == 400 && quirks.version_doubted() => {}
            Err(refused) => return Err(refused.into_fault()),
        }
    }
    Err(Fault::Protocol("initialized"))
}

/// What a stateless upstream says of itself now.
pub(crate) async fn look(link: &Arc<Link>) -> Result<Known, Fault> {
    let patience = link.target().timeouts.idle;
    let looking = link.discover();
    let frame = timeout(patience, looking)
        .await
        .unwrap_or(Err(Fault::Timeout))?;
    match judge_message(&frame) {
        Verdict::Modern { revision } if frame.result().is_some() => Ok(Known::discovered(
            &frame,
            revision,
            link.target().is_over_http(),
        )),
        Verdict::Modern { .. } => Err(Fault::Protocol("discover_refused")),
        Verdict::Legacy { .. } => {
            link.forget_era();
            Err(Fault::Protocol("discover_refused"))
        }
        Verdict::Fault(fault) => Err(fault),
    }
}

#[cfg(test)]
mod tests;

//! Which era a request belongs to, and which machine takes it: one pure function over the control
//! headers and the scanned body, in the order in which the rules are judged (AMB-28).
//!
//! Nothing is looked up here. Whether a session exists, and whether a method is offered, is decided
//! by the machines behind.

use http::Method as Verb;
use vestibule_frame::head::{self, Head};
use vestibule_frame::{Frame, Kind, Payload, agree, meta};
use vestibule_terms::{Method, Reject, Revision, ServerPlan};

/// `Allow` of this URL for clients with sessions.
pub(crate) const ALLOW_SESSIONS: &str = "POST, GET, DELETE";
/// `Allow` of this URL for stateless clients (STA-18).
pub(crate) const ALLOW_MODERN: &str = "POST";

/// What a request is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    /// A request of a stateless client, its version and headers checked.
    Modern(Revision),
    /// A notification of a stateless client: accepted and ignored (HTR-05).
    ModernNotification,
    /// `initialize`: opens a session.
    Open,
    /// One message of a session.
    Session,
    /// An array of messages, which only 2025-03-26 sessions may send.
    Batch,
    /// A session's GET: a standalone stream, or a resumed one.
    Stream,
    /// A session's DELETE.
    End,
    /// A GET that opens a session over HTTP+SSE.
    SseOpen,
    /// A POST to the address of a session over HTTP+SSE.
    SsePost,
    /// Refused.
    Refused(Reject),
}

/// One request, as far as its era depends on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inquiry<'a> {
    /// The HTTP method.
    pub(crate) verb: &'a Verb,
    /// The control headers.
    pub(crate) head: &'a Head,
    /// The body of a POST.
    pub(crate) payload: Option<&'a Payload>,
    /// Whether the query has the parameter `sse`.
    pub(crate) sse: bool,
    /// Whether the client accepts an event stream.
    pub(crate) accepts_sse: bool,
    /// Whether it names that form itself.
    pub(crate) names_sse: bool,
    /// The addressed server.
    pub(crate) plan: &'a ServerPlan,
}

/// What the version header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    Absent,
    Legacy,
    Modern,
    Unknown,
}

/// Decides. Total: every combination has an answer.
pub(crate) fn classify(inquiry: &Inquiry<'_>) -> Decision {
    let outcome = match inquiry.verb.as_str() {
        "POST" => inquiry.post(),
        "GET" => inquiry.get(),
        "DELETE" => inquiry.delete(),
        _ => Err(not_allowed(ALLOW_SESSIONS)),
    };
    outcome.unwrap_or_else(Decision::Refused)
}

fn not_allowed(allow: &'static str) -> Reject {
    Reject::MethodNotAllowed { allow }
}

fn is_modern(text: &str) -> bool {
    Revision::parse(text.trim()).is_some_and(Revision::is_modern)
}

// === impl Inquiry ===

impl Inquiry<'_> {
    fn post(&self) -> Result<Decision, Reject> {
        self.single_version()?;
        if self.sse {
            return self.sse_post();
        }
        let version = self.version();
        if self.probes_legacy_only() {
            let text = "this server opens with initialize: the request has no session";
            return Err(Reject::InvalidRequest(text.into()));
        }
        let frame = match self.payload {
            None => return Err(Reject::Internal),
            Some(Payload::Batch(_)) if version == Version::Modern => {
                let text = "the body must be one JSON object: this revision has no batches";
                return Err(Reject::InvalidRequest(text.into()));
            }
            Some(Payload::Batch(_)) => {
                self.known_version(version)?;
                return Ok(Decision::Batch);
            }
            Some(Payload::Single(frame)) => frame,
        };
        self.single(frame, version)
    }

    /// Step 0a: the address says whose message it is, whatever the headers say of a version.
    fn sse_post(&self) -> Result<Decision, Reject> {
        if !self.plan.opens_http_sse() {
            return Err(Reject::SessionNotFound); // STA-24
        }
        match self.payload {
            None => return Err(Reject::Internal),
            Some(Payload::Single(frame)) if frame.kind() != Kind::Response => {
                self.volunteered(frame)?;
            }
            Some(Payload::Single(_) | Payload::Batch(_)) => {}
        }
        Ok(Decision::SsePost)
    }

    fn single(&self, frame: &Frame, version: Version) -> Result<Decision, Reject> {
        let stated = self.stated(frame);
        if frame.kind() == Kind::Request
            && stated.is_none()
            && frame.method().as_deref() == Some(Method::Initialize.as_str())
        {
            return self.open(frame);
        }
        match frame.kind() {
            Kind::Response if version == Version::Modern => {
                let text = "stateless clients send no responses";
                return Err(Reject::InvalidRequest(text.into()));
            }
            Kind::Notification if version == Version::Modern => {
                return self.modern_notification(frame);
            }
            Kind::Request if stated.is_some() || version == Version::Modern => {
                return self.modern(frame, stated.as_deref());
            }
            Kind::Request | Kind::Notification | Kind::Response => {}
        }
        self.known_version(version)?;
        if frame.kind() != Kind::Response {
            self.volunteered(frame)?;
        }
        Ok(Decision::Session)
    }

    /// Case 101: headers that mirror the body are compared in every era when they are there.
    fn volunteered(&self, frame: &Frame) -> Result<(), Reject> {
        let Err(error) = agree::volunteered(self.head, frame) else {
            return Ok(());
        };
        if self.plan.serves_modern() {
            return Err(Reject::HeaderMismatch(error.to_string().into()));
        }
        Err(Reject::InvalidRequest(error.to_string().into()))
    }

    /// Step 0: a version header that occurs twice, lists values or is not readable (T21).
    fn single_version(&self) -> Result<(), Reject> {
        let Some(finding) = self.head.finding(head::PROTOCOL_VERSION) else {
            return Ok(());
        };
        let listed = self.head.version.as_deref().unwrap_or_default();
        let stated = match self.payload {
            Some(Payload::Single(frame)) => self.stated(frame).is_some(),
            Some(Payload::Batch(_)) | None => false,
        };
        let modern = stated || listed.split(',').any(is_modern);
        if modern && self.plan.serves_modern() {
            return Err(Reject::HeaderMismatch(finding.to_string().into()));
        }
        Err(Reject::InvalidRequest(finding.to_string().into()))
    }

    /// Step 0b, LIF-16: a stateless request to a server without a stateless revision must look to
    /// its sender like a server that has never heard of one.
    fn probes_legacy_only(&self) -> bool {
        let opens = match self.payload {
            Some(Payload::Single(frame)) => {
                frame.method().as_deref() == Some(Method::Initialize.as_str())
            }
            Some(Payload::Batch(_)) | None => false,
        };
        let alone = self.plan.sessions_optional && self.looks_legacy();
        let served = opens || alone || self.head.session.is_some();
        !self.plan.serves_modern() && !served
    }

    /// Whether nothing in the request names a stateless or an unknown revision.
    fn looks_legacy(&self) -> bool {
        let body = match self.payload {
            Some(Payload::Single(frame)) => frame.meta_member(meta::PROTOCOL_VERSION).is_some(),
            Some(Payload::Batch(_)) | None => false,
        };
        let header = self.head.version.as_deref().map(Revision::parse);
        !body && header.is_none_or(|known| known.is_some_and(|revision| !revision.is_modern()))
    }

    /// The version header; a modern one counts as absent where none is served (step 0b).
    fn version(&self) -> Version {
        let Some(text) = self.head.version.as_deref() else {
            return Version::Absent;
        };
        match Revision::parse(text) {
            None => Version::Unknown,
            Some(revision) if !revision.is_modern() => Version::Legacy,
            Some(_) if self.plan.serves_modern() => Version::Modern,
            Some(_) => Version::Absent,
        }
    }

    /// The version in `_meta`; present with another type than string is an empty text. Null counts
    /// as absent, and so does everything where no stateless revision is served.
    fn stated(&self, frame: &Frame) -> Option<String> {
        if !self.plan.serves_modern() {
            return None;
        }
        let span = frame.meta_member(meta::PROTOCOL_VERSION)?;
        (frame.text(span) != b"null").then(|| {
            frame
                .string(span)
                .map(|text| text.into_owned())
                .unwrap_or_default()
        })
    }

    /// Step 2.
    fn open(&self, frame: &Frame) -> Result<Decision, Reject> {
        if self.plan.newest_legacy().is_some() {
            self.volunteered(frame)?;
            return Ok(Decision::Open);
        }
        let requested = frame
            .params()
            .and_then(|params| frame.member(params, "protocolVersion"))
            .and_then(|span| frame.string(span))
            .unwrap_or_default();
        Err(self.unsupported(&requested))
    }

    /// Step 2b for stateless clients.
    fn modern_notification(&self, frame: &Frame) -> Result<Decision, Reject> {
        let method = frame.method().unwrap_or_default();
        agree::volunteered(self.head, frame)
            .map_err(|error| Reject::HeaderMismatch(error.to_string().into()))?;
        if is_request_only(&method) {
            return Err(without_id(&method));
        }
        Ok(Decision::ModernNotification)
    }

    /// Step 3 up to the headers. Capabilities and method are the modern machine's, in that order.
    fn modern(&self, frame: &Frame, stated: Option<&str>) -> Result<Decision, Reject> {
        let Some(header) = self.head.version.as_deref() else {
            let text = "header mcp-protocol-version is missing";
            return Err(Reject::HeaderMismatch(text.into()));
        };
        let Some(stated) = stated.filter(|stated| !stated.is_empty()) else {
            let text = format!("_meta needs `{}`, a string", meta::PROTOCOL_VERSION);
            return Err(Reject::InvalidMeta(text.into()));
        };
        if header != stated {
            let text = "header mcp-protocol-version differs from the version in _meta";
            return Err(Reject::HeaderMismatch(text.into()));
        }
        let served = |revision: &Revision| revision.is_modern() && self.plan.serves(*revision);
        let Some(revision) = Revision::parse(stated).filter(served) else {
            return Err(self.unsupported(stated));
        };
        agree::standard(self.head, frame)
            .map_err(|error| Reject::HeaderMismatch(error.to_string().into()))?;
        Ok(Decision::Modern(revision))
    }

    /// Step 4 (VER-06), in the plain form where no stateless revision is served.
    fn known_version(&self, version: Version) -> Result<(), Reject> {
        if version != Version::Unknown {
            return Ok(());
        }
        if !self.plan.serves_modern() {
            return Err(Reject::InvalidRequest(
                "protocol version not supported".into(),
            ));
        }
        Err(self.unsupported(self.head.version.as_deref().unwrap_or_default()))
    }

    fn unsupported(&self, requested: &str) -> Reject {
        Reject::UnsupportedVersion {
            supported: self.plan.supported(),
            requested: requested.chars().take(64).collect(),
        }
    }

    fn get(&self) -> Result<Decision, Reject> {
        self.single_version()?;
        let modern = self.head.version.as_deref().is_some_and(is_modern);
        if self.head.session.is_some() {
            return Ok(Decision::Stream);
        }
        if modern {
            return Err(not_allowed(ALLOW_MODERN));
        }
        if self.sse {
            return Err(not_allowed(ALLOW_SESSIONS)); // an address of POST alone
        }
        let resumes = self.head.last_event_id.as_deref().is_some_and(is_event_id);
        if self.head.version.is_some() || resumes {
            let text = "a stream belongs to a session: Mcp-Session-Id is missing";
            return Err(Reject::InvalidRequest(text.into()));
        }
        if !self.accepts_sse {
            return Err(Reject::NotAcceptable);
        }
        // Whoever only looks at the address accepts everything and names nothing (HSE-01).
        if self.names_sse && self.plan.opens_http_sse() {
            return Ok(Decision::SseOpen);
        }
        Err(not_allowed(ALLOW_SESSIONS))
    }

    fn delete(&self) -> Result<Decision, Reject> {
        self.single_version()?;
        if self.head.session.is_some() {
            return Ok(Decision::End);
        }
        if self.head.version.as_deref().is_some_and(is_modern) {
            return Err(not_allowed(ALLOW_MODERN));
        }
        if self.sse {
            return Err(not_allowed(ALLOW_SESSIONS));
        }
        let text = "Mcp-Session-Id is missing: nothing to end";
        Err(Reject::InvalidRequest(text.into()))
    }
}

/// Whether a `Last-Event-ID` has the form of ours (EL-4): such a client has lost its session id.
fn is_event_id(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    text.len() <= 80 && text.starts_with('1') && text.contains('.') && text.bytes().all(allowed)
}

/// A known method that is no notification: it must not run when it comes without an id (FRM-12).
pub(crate) fn is_request_only(method: &str) -> bool {
    Method::parse(method).is_some_and(|method| !method.is_notification())
}

/// FRM-12.
pub(crate) fn without_id(method: &str) -> Reject {
    Reject::InvalidRequest(format!("{method} is a request and needs an id").into())
}

#[cfg(test)]
mod tests;

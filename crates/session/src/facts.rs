//! The facts of a request that earlier layers wrote into its extensions.

use std::sync::Arc;

use http::{Method as Verb, Request, Uri};
use vestibule_frame::body::FrameBody;
use vestibule_frame::head::Head;
use vestibule_frame::{Frame, Payload};
use vestibule_terms::accept::Accepts;
use vestibule_terms::{Deadline, InFlight, Method, Principal, Record, ServerPlan};

use crate::classify::Inquiry;

/// One request as this room sees it.
pub(crate) struct Facts {
    pub(crate) verb: Verb,
    pub(crate) record: Record,
    pub(crate) plan: Arc<ServerPlan>,
    pub(crate) principal: Arc<Principal>,
    pub(crate) deadline: Deadline,
    pub(crate) head: Arc<Head>,
    pub(crate) accepts: Accepts,
    pub(crate) payload: Option<Payload>,
    /// The place among the caller's requests, for what goes on after the answer.
    pub(crate) in_flight: Option<InFlight>,
    /// Its query may hold the id of a session over HTTP+SSE: never to be logged (T69).
    uri: Uri,
}

impl Facts {
    /// Takes the facts out of the request; none when a layer that writes one is missing.
    pub(crate) fn take(request: Request<FrameBody>) -> Option<Self> {
        let (mut parts, _body) = request.into_parts();
        let facts = &mut parts.extensions;
        Some(Self {
            record: facts.get::<Record>()?.clone(),
            plan: facts.remove()?,
            principal: facts.remove()?,
            deadline: facts.remove()?,
            head: facts.remove()?,
            accepts: facts.remove()?,
            payload: facts.remove(),
            in_flight: facts.remove(),
            uri: parts.uri,
            verb: parts.method,
        })
    }

    /// What the classifier asks.
    pub(crate) fn inquiry(&self) -> Inquiry<'_> {
        Inquiry {
            verb: &self.verb,
            head: &self.head,
            payload: self.payload.as_ref(),
            sse: has_sse(self.query()),
            accepts_sse: self.accepts.sse,
            names_sse: self.accepts.sse_named,
            plan: &self.plan,
        }
    }

    /// The path that was asked for, as it was written.
    pub(crate) fn path(&self) -> &str {
        self.uri.path()
    }

    /// The id in an address of HTTP+SSE (HSE-02); none when there are two.
    pub(crate) fn sse_session(&self) -> Option<&str> {
        sse_session(self.query())
    }

    fn query(&self) -> &str {
        self.uri.query().unwrap_or_default()
    }
}

/// Notes what a request is about.
pub(crate) fn note_target(record: &Record, method: Method, frame: &Frame) {
    record.set_method(method);
    let target = frame
        .name()
        .or(frame.uri())
        .and_then(|span| frame.string(span));
    if let Some(target) = target {
        record.set_target(target.as_ref().into());
    }
}

fn has_sse(query: &str) -> bool {
    query
        .split('&')
        .any(|pair| pair == "sse" || pair.starts_with("sse="))
}

fn sse_session(query: &str) -> Option<&str> {
    let mut values = query
        .split('&')
        .filter_map(|pair| pair.strip_prefix("sse="));
    let first = values.next()?;
    values.next().is_none().then_some(first)
}

#[cfg(test)]
mod tests {
    use super::{has_sse, sse_session};

    /// HSE-02: an address that names two sessions names none.
    #[test]
    fn hse_02_an_address_names_one_session() {
        assert_eq!(sse_session("a=1&sse=x"), Some("x"));
        assert_eq!(sse_session("sse=x&sse=x"), None);
        assert_eq!(sse_session("sse"), None);
    }

    #[test]
    fn only_the_parameter_of_that_name_counts() {
        for query in ["sse", "sse=", "a=1&sse=x"] {
            assert!(has_sse(query), "{query}");
        }
        for query in ["", "ssex=1", "a=sse", "xsse=1"] {
            assert!(!has_sse(query), "{query}");
        }
    }
}

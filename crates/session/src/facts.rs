//! The facts of a request that earlier layers wrote into its extensions.

use std::sync::Arc;

use http::{Method as Verb, Request};
use vestibule_frame::body::FrameBody;
use vestibule_frame::head::Head;
use vestibule_frame::{Frame, Payload};
use vestibule_terms::accept::Accepts;
use vestibule_terms::{Deadline, Method, Principal, Record, ServerPlan};

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
    pub(crate) sse: bool,
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
            sse: has_sse(parts.uri.query().unwrap_or_default()),
            verb: parts.method,
        })
    }

    /// What the classifier asks.
    pub(crate) fn inquiry(&self) -> Inquiry<'_> {
        Inquiry {
            verb: &self.verb,
            head: &self.head,
            payload: self.payload.as_ref(),
            sse: self.sse,
            accepts_sse: self.accepts.sse,
            plan: &self.plan,
        }
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

#[cfg(test)]
mod tests {
    use super::has_sse;

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

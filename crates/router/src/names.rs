//! Names and URIs of one upstream as the clients of a federated server know them, wherever they stand
//! (translation rules, section 12.2). A transparent server changes none of them.
//!
//! Rewritten: contents of a read, resource links and embedded resources in content blocks,
//! `updated`, error data. Never: text, structured content, blobs, tool arguments, roots.

use bytes::Bytes;
use vestibule_catalog::{Kind, allow, uri};
use vestibule_exchange::Question;
use vestibule_frame::{Draft, Frame, Limits, Span, json};
use vestibule_terms::{Method, ServerPlan, UpstreamId};

use crate::one::token;
use crate::seen::{Holder, Seen};

/// How one upstream's names read on one server.
#[derive(Clone, Copy)]
pub(crate) struct Names<'a> {
    pub(crate) plan: &'a ServerPlan,
    pub(crate) upstream: &'a UpstreamId,
    /// Who is noted to have been given a URI.
    pub(crate) giving: Option<Giving<'a>>,
}

/// Where URIs given to a caller are noted.
#[derive(Clone, Copy)]
pub(crate) struct Giving<'a> {
    pub(crate) seen: &'a Seen,
    pub(crate) holder: &'a Holder,
}

impl Names<'_> {
    /// Exposes the URI that is the string at `span`.
    pub(crate) fn uri(&self, draft: &mut Draft, span: Option<Span>) {
        let Some(span) = span else { return };
        let Some(text) = draft.frame().string(span).map(std::borrow::Cow::into_owned) else {
            return;
        };
        if let Some(Giving { seen, holder }) = self.giving {
            seen.note(self.plan, holder, &text, self.upstream);
        }
        let exposed = uri::expose(self.upstream, &text);
        if exposed != text {
            draft.replace(span, token(&exposed));
        }
    }

    /// A `resources/updated`; none when its URI may not be seen.
    pub(crate) fn updated(&self, mut draft: Draft) -> Option<Draft> {
        let frame = draft.frame();
        let span = frame
            .params()
            .and_then(|params| frame.member(params, "uri"))?;
        let original = frame.string(span)?.into_owned();
        let shown = if self.plan.is_federated() {
            uri::expose(self.upstream, &original).into_owned()
        } else {
            original
        };
        if !allow::permits(self.plan, Kind::Resources, &shown) {
            return None;
        }
        if self.plan.is_federated() {
            self.uri(&mut draft, Some(span));
            // Whoever decides by the URI whom this concerns reads it, and must read the exposed one.
            let frame = Frame::parse(draft.to_bytes(), &Limits::default()).ok()?;
            return Some(Draft::new(frame));
        }
        Some(draft)
    }

    /// A log message: its logger tells the upstream (LOG-06).
    pub(crate) fn log(&self, mut draft: Draft) -> Draft {
        if !self.plan.is_federated() {
            return draft;
        }
        let frame = draft.frame();
        let logger = frame
            .params()
            .and_then(|params| frame.member(params, "logger"))
            .and_then(|span| frame.string(span));
        let name = match logger {
            Some(logger) => format!("{}/{logger}", self.upstream),
            None => self.upstream.to_string(),
        };
        draft.set_at(&["params", "logger"], token(&name));
        draft
    }

    /// A question: URIs in sampling messages.
    pub(crate) fn question(&self, mut question: Question) -> Question {
        if self.plan.is_federated() && question.method == Method::SamplingCreateMessage {
            let params = question.message.frame().params();
            self.messages(&mut question.message, params);
        }
        question
    }

    /// The messages of a prompt or of a sampling request.
    fn messages(&self, draft: &mut Draft, holder: Option<Span>) {
        let frame = draft.frame().clone();
        let messages = holder.and_then(|holder| frame.member(holder, "messages"));
        for message in messages.into_iter().flat_map(|span| frame.elements(span)) {
            self.content(draft, &frame, frame.member(message, "content"));
        }
    }

    /// One content block or an array of them, tool results in them included.
    fn content(&self, draft: &mut Draft, frame: &Frame, content: Option<Span>) {
        let mut open: Vec<Span> = content.into_iter().collect();
        while let Some(span) = open.pop() {
            if frame.text(span).first() == Some(&b'[') {
                open.extend(frame.elements(span));
                continue;
            }
            let kind = frame
                .member(span, "type")
                .and_then(|span| frame.string(span));
            match kind.as_deref() {
                Some("resource_link") => self.uri(draft, frame.member(span, "uri")),
                Some("resource") => {
                    let resource = frame.member(span, "resource");
                    let at = resource.and_then(|resource| frame.member(resource, "uri"));
                    self.uri(draft, at);
                }
                Some("tool_result") => open.extend(frame.member(span, "content")),
                Some(_) | None => {}
            }
        }
    }

    /// The result of a call.
    pub(crate) fn result(&self, draft: &mut Draft, method: Method) {
        let frame = draft.frame().clone();
        let Some(result) = frame.result() else { return };
        if method == Method::ToolsCall {
            self.content(draft, &frame, frame.member(result, "content"));
        } else if method == Method::PromptsGet {
            self.messages(draft, Some(result));
        } else if method == Method::ResourcesRead {
            let contents = frame.member(result, "contents");
            for item in contents.into_iter().flat_map(|span| frame.elements(span)) {
                self.uri(draft, frame.member(item, "uri"));
            }
        }
        let requests = frame.member(result, "inputRequests");
        for request in requests.into_iter().flat_map(|span| frame.members(span)) {
            self.messages(draft, frame.member(request.value, "params"));
        }
    }

    /// `data.uri` of an error.
    pub(crate) fn error_data(&self, data: &Bytes) -> Option<Bytes> {
        let at = json::members(data).find_last("uri")?.range();
        let original = json::string(data.get(at.clone())?)?.into_owned();
        let exposed = json::quote(&uri::expose(self.upstream, &original));
        let (before, after) = (data.get(..at.start)?, data.get(at.end..)?);
        Some(Bytes::from([before, exposed.as_bytes(), after].concat()))
    }
}

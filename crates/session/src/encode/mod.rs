//! How a neutral end of a call reads in the client's revision.
//!
//! One file a revision says what that revision has and how it opens; what they share is here. A
//! message that passes stays slices of the bytes that came: only the id, the members a hop owns and
//! what the client's parser would choke on are edited ([`level`]).

mod level;
mod question;
mod r2024_11_05;
mod r2025_03_26;
mod r2025_06_18;
mod r2025_11_25;
mod r2026_07_28;
mod strict;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use vestibule_exchange::{Final, ListPage, RpcError, ServerView};
use vestibule_frame::{Draft, Frame, Id, encode, json, meta};
use vestibule_terms::reject::code;
use vestibule_terms::{Method, Outcome, Revision};

use crate::identity::Identity;
pub(crate) use level::Level;
pub(crate) use question::{Inexpressible, question};
pub(crate) use r2026_07_28::listen_result;

/// What a revision has, as far as answers depend on it.
pub(crate) fn level(revision: Revision) -> &'static Level {
    match revision {
        Revision::R2024_11_05 => &r2024_11_05::LEVEL,
        Revision::R2025_03_26 => &r2025_03_26::LEVEL,
        Revision::R2025_06_18 => &r2025_06_18::LEVEL,
        Revision::R2025_11_25 => &r2025_11_25::LEVEL,
        Revision::R2026_07_28 => &r2026_07_28::LEVEL,
    }
}

/// One response, ready to be sent.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    /// The message, in slices.
    pub(crate) chunks: Vec<Bytes>,
    /// The code of an error.
    pub(crate) code: Option<i64>,
    /// How the call ended.
    pub(crate) outcome: Outcome,
    /// What a limit says about when to come back, in seconds.
    pub(crate) retry_after: Option<u64>,
}

impl Reply {
    /// An error response.
    pub(crate) fn error(id: Option<&Id>, error: &RpcError) -> Self {
        let text = encode::error(id, error.code, &error.message, error.data.as_deref());
        Self {
            chunks: vec![text],
            code: Some(error.code),
            outcome: error.outcome(),
            retry_after: retry_after(error),
        }
    }

    /// A result of the gateway's own.
    pub(crate) fn result(id: &Id, result: &[u8]) -> Self {
        Self::ok(vec![encode::result(id, result)])
    }

    fn ok(chunks: Vec<Bytes>) -> Self {
        Self {
            chunks,
            code: None,
            outcome: Outcome::Ok,
            retry_after: None,
        }
    }

    /// The message in one piece.
    #[cfg(test)]
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.chunks.concat()).unwrap()
    }
}

fn retry_after(error: &RpcError) -> Option<u64> {
    if error.code != code::LIMITED {
        return None;
    }
    let stated = error
        .data
        .as_deref()
        .and_then(|data| json::member(data, "retry_after"));
    let seconds = stated
        .and_then(json::integer)
        .and_then(|seconds| u64::try_from(seconds).ok());
    Some(seconds.unwrap_or(1).max(1))
}

/// Writes ends of calls for one client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Encoder<'a> {
    /// The client's revision.
    pub(crate) revision: Revision,
    /// The gateway.
    pub(crate) identity: &'a Identity,
    /// Whether members that the revision does not define are dropped.
    pub(crate) strict: bool,
    /// The revisions that the server serves, oldest first, for `server/discover`.
    pub(crate) served: &'a [Revision],
}

impl Encoder<'_> {
    /// The response to the request `id`; none for a call that was cancelled (CAN-03).
    pub(crate) fn reply(&self, end: Final, method: Method, id: &Id) -> Option<Reply> {
        match end {
            Final::Message(draft) => Some(self.message(draft, method, id)),
            Final::Error(error) => Some(Reply::error(Some(id), &error)),
            Final::View(view) => Some(Reply::result(id, &self.view(&view))),
            Final::List(page) => Some(Reply::ok(self.list(page, id))),
            Final::Empty => Some(Reply::result(id, &self.empty())),
            // whoever can be asked has been
            Final::Wanted(_) => {
                let message = "the upstream asks for input in a way that this client cannot give";
                let error = RpcError::not_translatable(message, "input_required");
                Some(Reply::error(Some(id), &error))
            }
            Final::Cancelled => None,
        }
    }

    /// The upstream's response under the client's id.
    fn message(&self, mut draft: Draft, method: Method, id: &Id) -> Reply {
        let mut code = None;
        let mut outcome = Outcome::Ok;
        if draft.frame().result().is_some() {
            draft = self.level_result(draft, method);
            if method == Method::ToolsCall && level::is_tool_error(draft.frame()) {
                outcome = Outcome::ToolError;
            }
        } else {
            code = draft.frame().error_parts().and_then(|parts| parts.code);
            outcome = Outcome::RpcError;
        }
        draft.set_id(id);
        Reply {
            chunks: draft.chunks(),
            code,
            outcome,
            retry_after: None,
        }
    }

    fn level_result(&self, draft: Draft, method: Method) -> Draft {
        let level = level(self.revision);
        let mut draft = level.apply(draft, method, self.strict);
        if self.revision.is_modern() {
            r2026_07_28::result(&mut draft, method, self.identity);
        } else {
            legacy_result(&mut draft, method);
        }
        draft
    }

    fn view(&self, view: &ServerView) -> Bytes {
        if self.revision.is_modern() {
            return r2026_07_28::discover(view, self.served, self.identity);
        }
        let capabilities = match self.revision {
            Revision::R2024_11_05 => r2024_11_05::capabilities(view),
            Revision::R2025_03_26 => r2025_03_26::capabilities(view),
            Revision::R2025_06_18 => r2025_06_18::capabilities(view),
            Revision::R2025_11_25 | Revision::R2026_07_28 => r2025_11_25::capabilities(view),
        };
        let instructions = view.instructions.as_deref().map(json::quote);
        let version = json::quote(self.revision.as_str());
        let mut members: Vec<(&str, &[u8])> = vec![
            ("protocolVersion", version.as_bytes()),
            ("capabilities", &capabilities),
            ("serverInfo", self.identity.json()),
        ];
        if let Some(text) = &instructions {
            members.push(("instructions", text.as_bytes()));
        }
        encode::object(&members)
    }

    fn list(&self, page: ListPage, id: &Id) -> Vec<Bytes> {
        let level = level(self.revision);
        let mut out = vec![Bytes::from(format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"{}":["#,
            page.member
        ))];
        for (index, item) in page.items.into_iter().enumerate() {
            if index > 0 {
                out.push(Bytes::from_static(b","));
            }
            out.push(level.item(page.member, item, self.strict));
        }
        let mut end = String::from("]");
        if let Some(cursor) = &page.next_cursor {
            end.push_str(",\"nextCursor\":");
            end.push_str(&json::quote(cursor));
        }
        if self.revision.is_modern() {
            end.push_str(&r2026_07_28::hints(page.ttl_ms, page.scope, self.identity));
        }
        end.push_str("}}");
        out.push(Bytes::from(end));
        out
    }

    fn empty(&self) -> Bytes {
        if self.revision.is_modern() {
            return r2026_07_28::empty(self.identity);
        }
        Bytes::from_static(b"{}")
    }
}

/// What no legacy result has: the members and `_meta` keys of a stateless hop (5.5, MET-07).
fn legacy_result(draft: &mut Draft, method: Method) {
    let Some(result) = draft.frame().result() else {
        return;
    };
    if draft.frame().result_type().is_some() {
        draft.remove_member(result, "resultType");
    }
    if method.is_list() || method == Method::ResourcesRead {
        for key in ["ttlMs", "cacheScope"] {
            if draft.frame().member(result, key).is_some() {
                draft.remove_member(result, key);
            }
        }
    }
    remove_hop_keys(draft, &[]);
}

/// Takes the hop's keys out of the `_meta` of a result, but for those in `kept`.
fn remove_hop_keys(draft: &mut Draft, kept: &[&str]) {
    let Some(object) = draft.frame().result_meta() else {
        return;
    };
    let found: Vec<&str> = hop_keys(draft.frame(), object)
        .into_iter()
        .filter(|key| !kept.contains(key) && *key != meta::RELATED_TASK)
        .collect();
    for key in found {
        draft.remove_member(object, key);
    }
}

fn hop_keys(frame: &Frame, object: vestibule_frame::Span) -> Vec<&'static str> {
    let mut found = Vec::new();
    for member in frame.members(object) {
        let Some(key) = json::string(frame.text(member.key)) else {
            continue;
        };
        if let Some(known) = meta::HOP_KEYS.iter().find(|known| **known == key) {
            found.push(*known);
        }
    }
    found
}

/// The server capabilities that every legacy revision has in one form, as (name, raw value).
fn base_capabilities(view: &ServerView) -> Vec<(&str, Bytes)> {
    // CAP-07: lists of a virtual server can always change, and sessions are always told.
    let changing = Bytes::from_static(br#"{"listChanged":true}"#);
    let mut members: Vec<(&str, Bytes)> = Vec::new();
    if view.logging {
        members.push(("logging", Bytes::from_static(b"{}")));
    }
    if view.prompts {
        members.push(("prompts", changing.clone()));
    }
    if view.resources {
        let resources: &[u8] = if view.subscribe {
            br#"{"subscribe":true,"listChanged":true}"#
        } else {
            br#"{"listChanged":true}"#
        };
        members.push(("resources", Bytes::from_static(resources)));
    }
    if view.tools {
        members.push(("tools", changing));
    }
    if !view.extensions.is_empty() {
        let extensions: Vec<(&str, &[u8])> = view
            .extensions
            .iter()
            .map(|(id, value)| (id.as_str(), &**value))
            .collect();
        members.push(("extensions", encode::object(&extensions)));
    }
    members
}

fn with_completions(view: &ServerView) -> Vec<(&str, Bytes)> {
    let mut members = base_capabilities(view);
    if view.completions {
        members.push(("completions", Bytes::from_static(b"{}")));
    }
    members
}

fn raw_object(members: &[(&str, Bytes)]) -> Bytes {
    let members: Vec<(&str, &[u8])> = members
        .iter()
        .map(|(key, value)| (*key, &**value))
        .collect();
    encode::object(&members)
}

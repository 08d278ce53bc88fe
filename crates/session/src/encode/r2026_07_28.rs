//! 2026-07-28: every result says its type and its server, cacheable ones how long they last.

use bytes::Bytes;
use vestibule_exchange::ServerView;
use vestibule_exchange::view::CacheScope;
use vestibule_frame::{Draft, encode, json, meta};
use vestibule_terms::{Method, Revision};

use super::level::{Level, Structured};
use crate::identity::Identity;

/// What this revision has.
pub(crate) const LEVEL: Level = Level {
    revision: Revision::R2026_07_28,
    blocks: &["text", "image", "audio", "resource", "resource_link"],
    structured: Structured::Anything,
};

const COMPLETE: &[u8] = b"\"complete\"";
const INPUT_REQUIRED: &[u8] = b"\"input_required\"";

/// Completes a result that passes (FRM-22, MET-03, CCH-01, CCH-02).
pub(crate) fn result(draft: &mut Draft, method: Method, identity: &Identity) {
    let frame = draft.frame().clone();
    let Some(result) = frame.result() else { return };
    let kind = frame.result_type().map(|span| frame.text(span).to_vec());
    if kind.is_none() {
        draft.set_member(result, "resultType", Bytes::from_static(COMPLETE));
    }
    super::remove_hop_keys(draft, &[meta::SERVER_INFO]);
    draft.set_at(
        &["result", "_meta", meta::SERVER_INFO],
        identity.json().clone(),
    );
    if kind.as_deref() == Some(INPUT_REQUIRED) {
        draft.remove_member(result, "ttlMs");
        draft.remove_member(result, "cacheScope");
    } else if method.is_list() || method == Method::ResourcesRead {
        cache_hints(draft, &frame, result);
    }
}

/// CCH-01, CCH-03: both hints, a missing or negative lifetime read as none.
fn cache_hints(draft: &mut Draft, frame: &vestibule_frame::Frame, result: vestibule_frame::Span) {
    let ttl = frame
        .member(result, "ttlMs")
        .and_then(|span| json::integer(frame.text(span)));
    if ttl.is_none_or(|ttl| ttl < 0) {
        draft.set_member(result, "ttlMs", Bytes::from_static(b"0"));
    }
    let scope = frame
        .member(result, "cacheScope")
        .map(|span| frame.text(span));
    if !matches!(scope, Some(b"\"public\"" | b"\"private\"")) {
        draft.set_member(result, "cacheScope", Bytes::from_static(b"\"private\""));
    }
}

/// The `DiscoverResult` (LIF-11). It lists what a version error lists, newest first: clients
/// compare the two.
pub(crate) fn discover(view: &ServerView, served: &[Revision], identity: &Identity) -> Bytes {
    let versions: Vec<String> = served
        .iter()
        .rev()
        .map(|revision| json::quote(revision.as_str()))
        .collect();
    let versions = format!("[{}]", versions.join(","));
    let capabilities = super::raw_object(&super::with_completions(view));
    let ttl = view.ttl_ms.to_string();
    let scope = json::quote(view.scope.as_str());
    let instructions = view.instructions.as_deref().map(json::quote);
    let own = server_info(identity);
    let mut members: Vec<(&str, &[u8])> = vec![
        ("resultType", COMPLETE),
        ("supportedVersions", versions.as_bytes()),
        ("capabilities", &capabilities),
        ("ttlMs", ttl.as_bytes()),
        ("cacheScope", scope.as_bytes()),
        ("_meta", &own),
    ];
    if let Some(text) = &instructions {
        members.insert(3, ("instructions", text.as_bytes()));
    }
    encode::object(&members)
}

/// The members that close a page of a list.
pub(crate) fn hints(ttl_ms: u64, scope: CacheScope, identity: &Identity) -> String {
    format!(
        r#","resultType":"complete","ttlMs":{ttl_ms},"cacheScope":"{}","_meta":{}"#,
        scope.as_str(),
        String::from_utf8_lossy(&server_info(identity)),
    )
}

/// A result that says nothing more than that.
pub(crate) fn empty(identity: &Identity) -> Bytes {
    encode::object(&[("resultType", COMPLETE), ("_meta", &server_info(identity))])
}

/// The end of a listen stream (SUB-03, SUB-04).
pub(crate) fn listen_result(subscription: &[u8], identity: &Identity) -> Bytes {
    let own = encode::object(&[
        (meta::SUBSCRIPTION_ID, subscription),
        (meta::SERVER_INFO, identity.json()),
    ]);
    encode::object(&[("resultType", COMPLETE), ("_meta", &own)])
}

fn server_info(identity: &Identity) -> Bytes {
    encode::object(&[(meta::SERVER_INFO, identity.json())])
}

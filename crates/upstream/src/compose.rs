//! What this hop writes into a request: id, progress token, the reserved members of `_meta`, and
//! the headers that mirror the body.
//!
//! Everything reserved that a client sent is taken out first (MET-07); vendor and trace keys stay
//! byte for byte (MET-08, translation rules 2.5). The headers are built from the outbound call,
//! never from a client's headers (HDR-11, HDR-24).

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use vestibule_exchange::Outbound;
use vestibule_frame::{Draft, agree, encode, json, meta};
use vestibule_terms::{Method, Revision};

use crate::ids::CallId;
use crate::wire::json_headers;

/// `MCP-Protocol-Version`
pub(crate) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// `Mcp-Session-Id`
pub(crate) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
/// `Last-Event-ID`
pub(crate) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// Who we say we are, upstream.
#[derive(Debug, Clone)]
pub struct GatewayIdentity {
    /// Name of the implementation.
    pub name: String,
    /// Its version.
    pub version: String,
}

impl GatewayIdentity {
    /// As `clientInfo` (MET-02).
    pub(crate) fn client_info(&self) -> Bytes {
        let (name, version) = (json::quote(&self.name), json::quote(&self.version));
        encode::object(&[("name", name.as_bytes()), ("version", version.as_bytes())])
    }
}

/// The message as a stateless upstream shall see it.
pub(crate) fn modern(
    outbound: &Outbound,
    id: &CallId,
    revision: Revision,
    client_info: &Bytes,
) -> Draft {
    let mut draft = bare(outbound, id);
    draft.set_meta(meta::PROTOCOL_VERSION, quoted(revision.as_str()));
    draft.set_meta(meta::CLIENT_INFO, client_info.clone());
    draft.set_meta(
        meta::CLIENT_CAPABILITIES,
        outbound.capabilities.encode(revision),
    );
    if let Some(level) = outbound.log_level {
        draft.set_meta(meta::LOG_LEVEL, quoted(level.as_str()));
    }
    if outbound.progress {
        draft.set_meta(meta::PROGRESS_TOKEN, id.token());
    }
    draft
}

/// The message as an upstream with a handshake shall see it: nothing reserved but the token.
pub(crate) fn legacy(outbound: &Outbound, id: &CallId) -> Draft {
    let mut draft = bare(outbound, id);
    if outbound.progress {
        draft.set_meta(meta::PROGRESS_TOKEN, id.token());
    }
    draft
}

/// The message with our id and without anything that belongs to the client's hop.
fn bare(outbound: &Outbound, id: &CallId) -> Draft {
    let mut draft = outbound.message.clone();
    draft.set_id(&id.id());
    let frame = draft.frame().clone();
    let Some(object) = frame.meta() else {
        return draft;
    };
    for member in frame.members(object) {
        let Some(key) = json::string(frame.text(member.key)) else {
            continue;
        };
        if meta::is_hop_key(&key) || meta::is_reserved(&key) {
            draft.remove_meta(&key);
        }
    }
    draft
}

/// The headers of a request to a stateless upstream over HTTP.
pub(crate) fn modern_headers(outbound: &Outbound, revision: Revision) -> HeaderMap {
    let mut headers = json_headers();
    headers.insert(
        PROTOCOL_VERSION,
        HeaderValue::from_static(revision.as_str()),
    );
    headers.insert(METHOD, HeaderValue::from_static(outbound.method.as_str()));
    if let Some(name) = &outbound.name {
        put(&mut headers, NAME, name);
    }
    for (suffix, value) in &outbound.param_headers {
        // a name that no header can have cannot be mirrored; the body is what counts (HDR-14)
        if let Ok(name) = HeaderName::try_from(format!("mcp-param-{suffix}")) {
            put(&mut headers, name, value);
        }
    }
    headers
}

/// Encoded as HDR-16 says, so that the value always fits.
fn put(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(&agree::encode_value(value)) {
        headers.insert(name, value);
    }
}

/// `server/discover` with nothing declared.
pub(crate) fn discover(id: &CallId, revision: Revision, client_info: &Bytes) -> (HeaderMap, Bytes) {
    let version = quoted(revision.as_str());
    let meta = encode::object(&[
        (meta::PROTOCOL_VERSION, &version),
        (meta::CLIENT_INFO, client_info),
        (meta::CLIENT_CAPABILITIES, b"{}"),
    ]);
    let params = encode::object(&[("_meta", &meta)]);
    let method = Method::ServerDiscover.as_str();
    let mut headers = json_headers();
    headers.insert(
        PROTOCOL_VERSION,
        HeaderValue::from_static(revision.as_str()),
    );
    headers.insert(METHOD, HeaderValue::from_static(method));
    (headers, encode::request(&id.id(), method, Some(&params)))
}

/// `initialize`, offering `revision` and declaring `capabilities` (an object).
pub(crate) fn initialize(
    id: &CallId,
    revision: Revision,
    capabilities: &[u8],
    client_info: &Bytes,
) -> Bytes {
    let version = quoted(revision.as_str());
    let params = encode::object(&[
        ("protocolVersion", &version),
        ("capabilities", capabilities),
        ("clientInfo", client_info),
    ]);
    encode::request(&id.id(), Method::Initialize.as_str(), Some(&params))
}

/// `notifications/cancelled` for one of our requests, with the id that the upstream knows (CAN-01).
pub(crate) fn cancelled(id: &CallId) -> Bytes {
    let params = encode::object(&[
        ("requestId", &id.token()),
        ("reason", b"\"no longer needed\""),
    ]);
    encode::notification(Method::Cancelled.as_str(), Some(&params))
}

fn quoted(text: &str) -> Bytes {
    Bytes::from(json::quote(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Ids;
    use crate::testing::outbound;
    use std::sync::Arc;
    use vestibule_exchange::{Capabilities, LogLevel};

    fn text(draft: &Draft) -> String {
        String::from_utf8(draft.to_bytes().to_vec()).unwrap()
    }

    const CALL: &str = r#"{"jsonrpc":"2.0","id":101,"method":"tools/call","params":{"name":"t","arguments":{"n":1.0e0},"_meta":{"com.example/a": [1, 2],"progressToken":7,"io.modelcontextprotocol/protocolVersion":"2099-01-01","traceparent":"00-x","dev.mcp/other":1}}}"#;

    /// XT-015, MET-02, MET-07, MET-08: the client's hop keys go, ours come, the rest stays.
    #[test]
    fn xt_015_reserved_keys_are_replaced_and_vendor_keys_stay() {
        let id = Ids::new().call();
        let mut call = outbound(Method::ToolsCall, CALL);
        call.progress = true;
        call.log_level = Some(LogLevel::Warning);
        call.capabilities = Arc::new(Capabilities::parse(br#"{"elicitation":{}}"#));
        let info = Bytes::from_static(br#"{"name":"g","version":"1"}"#);
        let sent = text(&modern(&call, &id, Revision::R2026_07_28, &info));
        let value: serde_json::Value = serde_json::from_str(&sent).unwrap();
        let meta = &value["params"]["_meta"];
        assert_eq!(value["id"], id.as_str());
        assert_eq!(
            meta["io.modelcontextprotocol/protocolVersion"],
            "2026-07-28"
        );
        assert_eq!(meta["io.modelcontextprotocol/clientInfo"]["name"], "g");
        assert_eq!(meta["io.modelcontextprotocol/logLevel"], "warning");
        assert_eq!(meta["progressToken"], id.as_str());
        let declared = &meta["io.modelcontextprotocol/clientCapabilities"];
        assert!(declared["elicitation"]["form"].is_object());
        assert!(meta.get("dev.mcp/other").is_none());
        assert!(sent.contains(r#""com.example/a": [1, 2]"#), "{sent}");
        assert!(sent.contains(r#""traceparent":"00-x""#) && sent.contains(r#"{"n":1.0e0}"#));
    }

    /// XT-016, MET-01: an empty capability object is still sent, and `_meta` made where missing.
    #[test]
    fn xt_016_metadata_is_created_when_the_client_sent_none() {
        let id = Ids::new().call();
        let info = Bytes::from_static(b"{}");
        let call = outbound(
            Method::ToolsList,
            r#"{"jsonrpc":"2.0","id":"a","method":"tools/list"}"#,
        );
        let sent = text(&modern(&call, &id, Revision::R2026_07_28, &info));
        let value: serde_json::Value = serde_json::from_str(&sent).unwrap();
        let meta = value["params"]["_meta"].as_object().unwrap();
        assert!(meta["io.modelcontextprotocol/clientCapabilities"].is_object());
        assert!(!meta.contains_key("progressToken"));
        assert!(!meta.contains_key("io.modelcontextprotocol/logLevel"));
    }

    /// XT-017: nothing reserved goes to an upstream with a handshake.
    #[test]
    fn xt_017_legacy_upstreams_get_nothing_reserved() {
        let id = Ids::new().call();
        let sent = text(&legacy(&outbound(Method::ToolsCall, CALL), &id));
        assert!(!sent.contains("modelcontextprotocol") && !sent.contains("progressToken"));
        assert!(sent.contains(r#""com.example/a": [1, 2]"#));
        let mut wanted = outbound(Method::ToolsCall, CALL);
        wanted.progress = true;
        assert!(
            text(&legacy(&wanted, &id)).contains(&format!(r#""progressToken":"{}""#, id.as_str()))
        );
    }

    /// HDR-11, HDR-16, HDR-18: the mirror headers come from the outbound call, encoded.
    #[test]
    fn hdr_11_mirror_headers_are_built_from_the_outbound_call() {
        let mut call = outbound(Method::ToolsCall, CALL);
        call.name = Some("größe".to_owned());
        call.param_headers = vec![
            ("Region".to_owned(), String::new()),
            ("a b".to_owned(), "x".to_owned()),
        ];
        let headers = modern_headers(&call, Revision::R2026_07_28);
        assert_eq!(headers["mcp-method"], "tools/call");
        assert_eq!(headers["mcp-name"], "=?base64?Z3LDtsOfZQ==?=");
        assert_eq!(headers["mcp-param-region"], "");
        assert_eq!(headers["mcp-protocol-version"], "2026-07-28");
        assert_eq!(headers["content-type"], "application/json");
        assert_eq!(headers["accept"], "application/json, text/event-stream");
        assert_eq!(headers.len(), 6);
    }
}

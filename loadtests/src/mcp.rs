//! The messages that are sent, in both eras, as bytes that were composed once.
//!
//! A call differs from the next by its id alone, so the generator spends nothing on JSON while it
//! measures.

use bytes::Bytes;
use clap::ValueEnum;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Serialize;
use serde_json::json;

/// The one stateless revision.
pub const MODERN: &str = "2026-07-28";
/// The revision that legacy sessions ask for unless told otherwise.
pub const LEGACY: &str = "2025-11-25";

/// Name of the session header.
pub const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
/// Name of the version header.
pub const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// How a client opens and what each request carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Era {
    /// `initialize`, `notifications/initialized`, then calls in a session.
    Legacy,
    /// 2026-07-28: every request stands alone.
    Modern,
}

/// What a call asks the tool for. The stub understands all of it; any other server sees arguments
/// it may ignore.
#[derive(Debug, Clone)]
pub struct Shape {
    /// Name of the tool.
    pub tool: String,
    /// Bytes of text in the arguments.
    pub payload: usize,
    /// Bytes of text in the result; 0 echoes the argument.
    pub result_bytes: usize,
    /// Progress events before the result.
    pub events: u32,
    /// Microseconds before each of them.
    pub gap_us: u64,
    /// Microseconds before the result.
    pub delay_us: u64,
    /// An SSE answer even without events.
    pub sse: bool,
}

/// Composed messages and headers of one run.
#[derive(Debug)]
pub struct Messages {
    era: Era,
    revision: HeaderValue,
    /// Everything between the id and the progress token.
    middle: String,
    /// Everything after the progress token.
    tail: String,
    has_token: bool,
    call: HeaderMap,
    base: HeaderMap,
}

/// Why no message can be composed.
#[derive(Debug, thiserror::Error)]
#[error("{0} cannot stand in a header")]
pub struct Unsendable(&'static str);

// === impl Shape ===

impl Shape {
    /// The same tool asked for a stream that opens at once and outlasts a run of so many seconds.
    #[must_use]
    pub fn holding(&self, seconds: u64) -> Self {
        const AFTERWARDS: u64 = 120;
        Self {
            payload: 0,
            result_bytes: 0,
            events: 1,
            gap_us: 0,
            delay_us: (seconds + AFTERWARDS).saturating_mul(1_000_000),
            sse: true,
            tool: self.tool.clone(),
        }
    }
}

// === impl Messages ===

impl Messages {
    /// Composes everything. The key goes into a header marked sensitive, which no debug output
    /// shows.
    ///
    /// # Errors
    /// A tool name, revision or key that no header can carry.
    pub fn new(
        era: Era,
        revision: &str,
        shape: &Shape,
        host: &HeaderValue,
        key: Option<&str>,
    ) -> Result<Self, Unsendable> {
        let revision = HeaderValue::from_str(revision).map_err(|_| Unsendable("the revision"))?;
        let mut base = HeaderMap::new();
        base.insert(HOST, host.clone());
        base.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        base.insert(
            ACCEPT,
            HeaderValue::from_static("application/json, text/event-stream"),
        );
        if let Some(key) = key {
            let mut bearer = HeaderValue::from_str(&format!("Bearer {key}"))
                .map_err(|_| Unsendable("the key"))?;
            bearer.set_sensitive(true);
            base.insert(AUTHORIZATION, bearer);
        }
        let mut call = base.clone();
        call.insert(VERSION, revision.clone());
        if era == Era::Modern {
            let name =
                HeaderValue::from_str(&shape.tool).map_err(|_| Unsendable("the tool's name"))?;
            call.insert("mcp-method", HeaderValue::from_static("tools/call"));
            call.insert("mcp-name", name);
        }
        let (middle, tail) = around_the_token(era, shape);
        Ok(Self {
            era,
            revision,
            middle,
            tail,
            has_token: shape.events > 0,
            call,
            base,
        })
    }

    /// Which era is spoken.
    pub fn era(&self) -> Era {
        self.era
    }

    /// The body of call `id`.
    pub fn call(&self, id: u64) -> Bytes {
        let mut body = String::with_capacity(self.middle.len() + self.tail.len() + 64);
        let id = id.to_string();
        body.push_str(r#"{"jsonrpc":"2.0","id":"#);
        body.push_str(&id);
        body.push_str(&self.middle);
        if self.has_token {
            body.push_str(&id);
        }
        body.push_str(&self.tail);
        Bytes::from(body)
    }

    /// The headers of every request but the first of a session.
    pub fn headers(&self, session: Option<&HeaderValue>) -> HeaderMap {
        let mut headers = self.call.clone();
        if let Some(session) = session {
            headers.insert(SESSION, session.clone());
        }
        headers
    }

    /// The headers of `initialize`.
    pub fn opening_headers(&self) -> HeaderMap {
        self.base.clone()
    }

    /// The body of `initialize`.
    pub fn initialize(&self) -> Bytes {
        let revision = self.revision.to_str().unwrap_or(LEGACY);
        let message = json!({
            "jsonrpc": "2.0", "id": 0, "method": "initialize",
            "params": {
                "protocolVersion": revision, "capabilities": {}, "clientInfo": client(),
            },
        });
        Bytes::from(message.to_string())
    }

    /// The body of the notification that ends the handshake.
    pub fn initialized(&self) -> Bytes {
        Bytes::from_static(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
    }
}

fn client() -> serde_json::Value {
    json!({ "name": "vestibule-load", "version": env!("CARGO_PKG_VERSION") })
}

/// `tools/call` cut at its id and, if there are events, at its progress token.
fn around_the_token(era: Era, shape: &Shape) -> (String, String) {
    let mut arguments = json!({ "text": "x".repeat(shape.payload) });
    let numbers = [
        (
            "result_bytes",
            u64::try_from(shape.result_bytes).unwrap_or(u64::MAX),
        ),
        ("events", u64::from(shape.events)),
        ("gap_us", shape.gap_us),
        ("delay_us", shape.delay_us),
    ];
    for (name, number) in numbers.into_iter().filter(|(_, number)| *number > 0) {
        arguments[name] = json!(number);
    }
    if shape.sse {
        arguments["sse"] = json!(true);
    }
    let mut meta = serde_json::Map::new();
    if era == Era::Modern {
        meta.insert(
            "io.modelcontextprotocol/protocolVersion".to_owned(),
            json!(MODERN),
        );
        meta.insert("io.modelcontextprotocol/clientInfo".to_owned(), client());
        meta.insert(
            "io.modelcontextprotocol/clientCapabilities".to_owned(),
            json!({}),
        );
    }
    let tool = json!(shape.tool);
    let front =
        format!(r#","method":"tools/call","params":{{"name":{tool},"arguments":{arguments}"#);
    if shape.events == 0 && meta.is_empty() {
        return (format!("{front}}}}}"), String::new());
    }
    let meta = serde_json::Value::Object(meta).to_string();
    let open = meta.strip_suffix('}').unwrap_or_default();
    if shape.events == 0 {
        return (format!(r#"{front},"_meta":{open}}}}}}}"#), String::new());
    }
    let comma = if open.len() > 1 { "," } else { "" };
    (
        format!(r#"{front},"_meta":{open}{comma}"progressToken":"#),
        "}}}".to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn shape(events: u32) -> Shape {
        Shape {
            tool: "echo".to_owned(),
            payload: 5,
            result_bytes: 0,
            events,
            gap_us: 0,
            delay_us: 7,
            sse: false,
        }
    }

    fn messages(era: Era, events: u32) -> Messages {
        let host = HeaderValue::from_static("127.0.0.1:1");
        let revision = if era == Era::Modern { MODERN } else { LEGACY };
        Messages::new(era, revision, &shape(events), &host, Some("hunter2")).unwrap()
    }

    #[test]
    fn calls_are_json_in_every_combination_and_differ_by_their_id() {
        for era in [Era::Legacy, Era::Modern] {
            for events in [0, 3] {
                let body = messages(era, events).call(41);
                let call: Value = serde_json::from_slice(&body).unwrap();
                assert_eq!(call["id"], 41);
                assert_eq!(call["method"], "tools/call");
                let params = &call["params"];
                assert_eq!(params["name"], "echo");
                assert_eq!(params["arguments"]["text"], "xxxxx");
                assert_eq!(params["arguments"]["delay_us"], 7);
                let token = &params["_meta"]["progressToken"];
                assert_eq!(*token, if events > 0 { json!(41) } else { Value::Null });
                let version = &params["_meta"]["io.modelcontextprotocol/protocolVersion"];
                let wanted = if era == Era::Modern {
                    json!(MODERN)
                } else {
                    Value::Null
                };
                assert_eq!(*version, wanted);
            }
        }
    }

    /// HDR-10, VER-08: a modern request carries version, method and name in its headers.
    #[test]
    fn hdr_10_modern_requests_mirror_method_and_name() {
        let headers = messages(Era::Modern, 0).headers(None);
        assert_eq!(headers["mcp-protocol-version"], MODERN);
        assert_eq!(headers["mcp-method"], "tools/call");
        assert_eq!(headers["mcp-name"], "echo");
        assert!(!headers.contains_key("mcp-session-id"));
    }

    #[test]
    fn legacy_requests_carry_their_session_and_initialize_carries_none() {
        let messages = messages(Era::Legacy, 0);
        let session = HeaderValue::from_static("s1");
        let headers = messages.headers(Some(&session));
        assert_eq!(headers["mcp-session-id"], "s1");
        assert_eq!(headers["mcp-protocol-version"], LEGACY);
        assert!(!headers.contains_key("mcp-method"));
        let opening = messages.opening_headers();
        assert!(!opening.contains_key("mcp-protocol-version"));
        let first: Value = serde_json::from_slice(&messages.initialize()).unwrap();
        assert_eq!(first["params"]["protocolVersion"], LEGACY);
    }

    #[test]
    fn the_key_is_sent_and_never_shown() {
        let messages = messages(Era::Legacy, 0);
        assert_eq!(messages.headers(None)["authorization"], "Bearer hunter2");
        assert!(!format!("{messages:?}").contains("hunter2"));
    }
}

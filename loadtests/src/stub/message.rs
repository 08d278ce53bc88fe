//! What the stub understands of a message, and what it answers.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::paced::Paced;
use crate::mcp::{LEGACY, MODERN};

/// Largest result text and most events that a call may ask for.
const MAX_RESULT: usize = 16 * 1024 * 1024;
const MAX_EVENTS: u32 = 100_000;

#[derive(Deserialize)]
pub(super) struct Message<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<Params<'a>>,
}

#[derive(Deserialize, Default)]
struct Params<'a> {
    #[serde(borrow, rename = "protocolVersion")]
    version: Option<Cow<'a, str>>,
    #[serde(borrow)]
    arguments: Option<Arguments<'a>>,
    #[serde(borrow, rename = "_meta")]
    meta: Option<Meta<'a>>,
}

#[derive(Deserialize)]
struct Meta<'a> {
    #[serde(borrow, rename = "progressToken")]
    token: Option<&'a RawValue>,
    #[serde(borrow, rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<Cow<'a, str>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Arguments<'a> {
    #[serde(borrow)]
    text: Cow<'a, str>,
    result_bytes: usize,
    events: u32,
    gap_us: u64,
    delay_us: u64,
    sse: bool,
}

pub(super) enum Answer {
    /// It was a notification or a response.
    None,
    /// It opened a session.
    Session(Bytes),
    /// A JSON answer at once.
    Object(Bytes),
    /// A JSON answer after a time.
    Later(Paced),
    /// An SSE answer.
    Stream(Paced),
}

// === impl Message ===

impl Message<'_> {
    pub(super) fn answer(self) -> Answer {
        let (Some(id), Some(method)) = (self.id, self.method) else {
            return Answer::None;
        };
        let params = self.params.unwrap_or_default();
        let meta = params.meta.as_ref();
        let is_modern = meta.is_some_and(|meta| meta.version.is_some());
        let result = match &*method {
            "initialize" => {
                let version = params.version.as_deref().unwrap_or(LEGACY);
                return Answer::Session(response(id, &initialized(version).to_string()));
            }
            "server/discover" => discovered(),
            "ping" => json!({}),
            "tools/list" => tools(is_modern),
            "tools/call" => {
                let token = meta.and_then(|meta| meta.token);
                return called(id, token, params.arguments.unwrap_or_default(), is_modern);
            }
            _ => {
                let error = json!({
                    "jsonrpc": "2.0", "id": id,
                    "error": { "code": -32601, "message": "method not found" },
                });
                return Answer::Object(Bytes::from(error.to_string()));
            }
        };
        Answer::Object(response(id, &result.to_string()))
    }
}

fn called(
    id: &RawValue,
    token: Option<&RawValue>,
    arguments: Arguments<'_>,
    is_modern: bool,
) -> Answer {
    let text = match arguments.result_bytes.min(MAX_RESULT) {
        0 => arguments.text,
        bytes => Cow::Owned("r".repeat(bytes)),
    };
    let quoted = Value::from(text).to_string();
    let kind = if is_modern {
        r#""resultType":"complete","#
    } else {
        ""
    };
    let result = format!(r#"{{{kind}"content":[{{"type":"text","text":{quoted}}}]}}"#);
    let body = response(id, &result);
    let delay = Duration::from_micros(arguments.delay_us);
    // progress belongs to a token; a call without one gets its answer and no events
    let events = if token.is_some() {
        arguments.events.min(MAX_EVENTS)
    } else {
        0
    };
    if events == 0 && !arguments.sse {
        return if delay.is_zero() {
            Answer::Object(body)
        } else {
            Answer::Later(Paced::new(String::new(), 0, Duration::ZERO, delay, body))
        };
    }
    let token = token
        .map(|token| token.get().to_owned())
        .unwrap_or_default();
    let gap = Duration::from_micros(arguments.gap_us);
    Answer::Stream(Paced::new(token, events, gap, delay, body))
}

pub(super) fn response(id: &RawValue, result: &str) -> Bytes {
    Bytes::from(format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#
    ))
}

fn server() -> Value {
    json!({ "name": "stub", "version": env!("CARGO_PKG_VERSION") })
}

fn initialized(version: &str) -> Value {
    json!({
        "protocolVersion": version,
        "capabilities": { "tools": {} },
        "serverInfo": server(),
    })
}

fn discovered() -> Value {
    json!({
        "resultType": "complete",
        "supportedVersions": [MODERN],
        "capabilities": { "tools": {} },
        "_meta": { "io.modelcontextprotocol/serverInfo": server() },
        "ttlMs": 3_600_000,
        "cacheScope": "public",
    })
}

fn tools(is_modern: bool) -> Value {
    let number = json!({ "type": "integer" });
    let mut list = json!({ "tools": [{
        "name": "echo",
        "description": "Answers with the text, or with as many bytes as asked for.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "text": { "type": "string" },
                "result_bytes": number, "events": number, "gap_us": number, "delay_us": number,
                "sse": { "type": "boolean" },
            },
        },
    }] });
    if is_modern {
        list["resultType"] = json!("complete");
        list["ttlMs"] = json!(3_600_000);
        list["cacheScope"] = json!("public");
    }
    list
}

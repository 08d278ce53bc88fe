//! The messages of the ledger upstream.

use serde::Deserialize;
use serde_json::{Value, json};

/// The revision it speaks.
pub(super) const REVISION: &str = "2025-11-25";

/// What a tool is called with.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Arguments {
    /// The client's own name for the call: none is used twice.
    pub(super) key: String,
    /// Events before the result.
    pub(super) events: u64,
    /// Milliseconds before each.
    pub(super) gap_ms: u64,
    /// The connection ends after so many events; 0: never.
    pub(super) cut_after: usize,
    /// Of `watch`: for whom.
    pub(super) watcher: String,
    /// Of `watch`: nothing more is to be sent.
    pub(super) stop: bool,
}

pub(super) fn result(id: &Value, result: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string()
}

pub(super) fn error(id: &Value, code: i64, message: &str) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } }).to_string()
}

pub(super) fn text(id: &Value, text: &str) -> String {
    result(
        id,
        &json!({ "content": [{ "type": "text", "text": text }] }),
    )
}

pub(super) fn initialized(id: &Value) -> String {
    let list = json!({ "listChanged": true });
    let capabilities = json!({
        "tools": list, "resources": { "subscribe": true, "listChanged": true },
    });
    let server = json!({ "name": "ledger", "version": env!("CARGO_PKG_VERSION") });
    result(
        id,
        &json!({ "protocolVersion": REVISION, "capabilities": capabilities, "serverInfo": server }),
    )
}

pub(super) fn tools(id: &Value) -> String {
    let tools: Vec<Value> = ["run", "watch", "echo"]
        .iter()
        .map(|name| json!({ "name": name, "inputSchema": { "type": "object" } }))
        .collect();
    result(id, &json!({ "tools": tools }))
}

pub(super) fn progress(token: &Value, number: u64, text: &str) -> String {
    let params = json!({ "progressToken": token, "progress": number, "message": text });
    json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params }).to_string()
}

pub(super) fn question(id: &str, text: &str) -> String {
    let schema = json!({
        "type": "object", "properties": { "text": { "type": "string" } }, "required": ["text"],
    });
    let params = json!({ "message": text, "requestedSchema": schema });
    json!({ "jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": params })
        .to_string()
}

pub(super) fn updated(uri: &str) -> String {
    json!({
        "jsonrpc": "2.0", "method": "notifications/resources/updated", "params": { "uri": uri },
    })
    .to_string()
}

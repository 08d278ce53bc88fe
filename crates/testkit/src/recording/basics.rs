//! Answers to what every MCP client sends first, so that a test's script need
//! only answer what the test is about.

use serde_json::{Value, json};

use super::{Answer, Recorded};

/// The handshake, pings, notifications, GET (405) and DELETE of a legacy
/// server with sessions; none for everything else.
#[must_use]
pub fn legacy_basics(request: &Recorded, capabilities: &Value) -> Option<Answer> {
    match request.method.as_str() {
        "GET" => return Some(Answer::empty(405).field("allow", "POST, DELETE")),
        "DELETE" => return Some(Answer::empty(200)),
        _ => {}
    }
    if request
        .field("mcp-protocol-version")
        .is_some_and(|version| version >= "2026")
    {
        return Some(Answer::error(
            request,
            400,
            -32000,
            "Bad Request: Unsupported protocol version",
        ));
    }
    let json = request.json();
    let method = json["method"].as_str().unwrap_or_default();
    if json.get("id").is_none() || method.is_empty() {
        return Some(Answer::empty(202));
    }
    Some(match method {
        "initialize" => {
            let result = json!({
                "protocolVersion": json["params"]["protocolVersion"],
                "capabilities": capabilities,
                "serverInfo": { "name": "recording-upstream", "version": "1" },
            });
            Answer::result(request, &result).field("mcp-session-id", "recorded-session")
        }
        "ping" => Answer::result(request, &json!({})),
        "server/discover" => Answer::error(request, 200, -32601, "Method not found"),
        _ => return None,
    })
}

/// Discovery and notifications of a stateless server; none for everything else.
#[must_use]
pub fn modern_basics(request: &Recorded, capabilities: &Value) -> Option<Answer> {
    if request.method != "POST" {
        return Some(Answer::empty(405).field("allow", "POST"));
    }
    let json = request.json();
    if json.get("id").is_none() {
        return Some(Answer::empty(202));
    }
    Some(match json["method"].as_str().unwrap_or_default() {
        "server/discover" => {
            let info = json!({ "name": "recording-upstream", "version": "1" });
            let result = json!({
                "resultType": "complete",
                "supportedVersions": ["2026-07-28"],
                "capabilities": capabilities,
                "ttlMs": 0,
                "cacheScope": "private",
                "_meta": { "io.modelcontextprotocol/serverInfo": info },
            });
            Answer::result(request, &result)
        }
        "initialize" => Answer::error(request, 404, -32601, "Method not found"),
        _ => return None,
    })
}

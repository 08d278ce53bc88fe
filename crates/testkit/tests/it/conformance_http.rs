//! The conformance upstream over HTTP, one request at a time. The suite itself
//! is run by `scripts/conformance`.

use std::net::SocketAddr;

use serde_json::{Value, json};
use vestibule_testkit::{
    RawClient, RawRequest,
    conformance::{Eras, HttpFixture},
};

async fn start(eras: Eras) -> (HttpFixture, SocketAddr) {
    let fixture = HttpFixture::start(SocketAddr::from(([127, 0, 0, 1], 0)), eras)
        .await
        .unwrap();
    let url = fixture.url();
    let address = url
        .strip_prefix("http://")
        .unwrap()
        .strip_suffix("/mcp")
        .unwrap()
        .parse()
        .unwrap();
    (fixture, address)
}

fn legacy(address: SocketAddr, body: &Value) -> RawRequest {
    RawRequest::mcp(address, "/mcp", body)
}

fn modern(address: SocketAddr, method: &str, params: Value) -> RawRequest {
    let mut params = params;
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} },
    });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let request = RawRequest::mcp(address, "/mcp", &body)
        .field("MCP-Protocol-Version", "2026-07-28")
        .field("Mcp-Method", method);
    match params["name"].as_str() {
        Some(name) => request.field("Mcp-Name", name),
        None => request,
    }
}

fn initialize() -> Value {
    let info = json!({ "name": "test", "version": "1" });
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params })
}

/// Opens a legacy session; gives its id.
async fn open_session(address: SocketAddr) -> String {
    let mut client = RawClient::connect(address).await.unwrap();
    let opened = client.ask(&legacy(address, &initialize())).await.unwrap();
    assert_eq!(opened.answer()["result"]["protocolVersion"], "2025-11-25");
    opened.head.field("mcp-session-id").unwrap().to_owned()
}

#[tokio::test]
async fn one_server_serves_both_eras() {
    let (_fixture, address) = start(Eras::Both).await;
    let session = open_session(address).await;
    let mut client = RawClient::connect(address).await.unwrap();
    let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" });
    let listed = client
        .ask(&legacy(address, &list).field("Mcp-Session-Id", session))
        .await
        .unwrap();
    let discovered = client
        .ask(&modern(address, "server/discover", json!({})))
        .await
        .unwrap();
    assert_eq!(
        listed.answer()["result"]["tools"][0]["name"],
        "test_simple_text"
    );
    assert!(listed.answer()["result"].get("resultType").is_none());
    assert_eq!(discovered.answer()["result"]["resultType"], "complete");
}

#[tokio::test]
async fn a_polled_answer_is_had_by_resuming() {
    let (_fixture, address) = start(Eras::Both).await;
    let session = open_session(address).await;
    let mut client = RawClient::connect(address).await.unwrap();
    let params = json!({ "name": "test_reconnection", "arguments": {} });
    let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params });
    let polled = client
        .ask(&legacy(address, &call).field("Mcp-Session-Id", &session))
        .await
        .unwrap();
    let events = polled.events();
    assert!(
        events
            .iter()
            .all(|event| event.data.as_deref().unwrap_or_default().is_empty())
    );
    assert!(events.iter().any(|event| event.retry == Some(500)));
    let last = events
        .iter()
        .rev()
        .find_map(|event| event.id.clone())
        .unwrap();

    let resume = RawRequest::new("GET", "/mcp")
        .field("Host", address)
        .field("Accept", "text/event-stream")
        .field("Mcp-Session-Id", session)
        .field("Last-Event-ID", last);
    client.open(&resume).await.unwrap();
    loop {
        let event = client.next_event().await.unwrap().expect("the answer");
        if event.data.as_deref().is_some_and(|data| !data.is_empty()) {
            assert_eq!(event.json()["id"], 2);
            return;
        }
    }
}

#[tokio::test]
async fn a_modern_question_is_a_result_and_its_answer_a_new_request() {
    let (_fixture, address) = start(Eras::Modern).await;
    let mut client = RawClient::connect(address).await.unwrap();
    let call = json!({ "name": "test_input_required_result_elicitation", "arguments": {} });
    let asked = client
        .ask(&modern(address, "tools/call", call.clone()))
        .await
        .unwrap()
        .answer();
    assert_eq!(asked["result"]["resultType"], "input_required");
    let mut answered = call;
    answered["inputResponses"] =
        json!({ "user_name": { "action": "accept", "content": { "name": "Ada" } } });
    let done = client
        .ask(&modern(address, "tools/call", answered))
        .await
        .unwrap()
        .answer();
    assert!(
        done["result"]["content"][0]["text"]
            .as_str()
            .unwrap()
            .starts_with("Hello, Ada!")
    );
}

#[tokio::test]
async fn an_undeclared_capability_is_refused() {
    let (_fixture, address) = start(Eras::Modern).await;
    let mut client = RawClient::connect(address).await.unwrap();
    let call = json!({ "name": "test_missing_capability", "arguments": {} });
    let refused = client
        .ask(&modern(address, "tools/call", call))
        .await
        .unwrap();
    assert_eq!(refused.status, 400);
    assert_eq!(
        refused.json()["error"]["data"]["requiredCapabilities"],
        json!({ "sampling": {} })
    );
}

#[tokio::test]
async fn a_subscription_hears_of_changes_other_requests_cause() {
    let (_fixture, address) = start(Eras::Modern).await;
    let mut listener = RawClient::connect(address).await.unwrap();
    let filter = json!({ "notifications": { "toolsListChanged": true } });
    listener
        .open(&modern(address, "subscriptions/listen", filter))
        .await
        .unwrap();
    let first = listener.next_event().await.unwrap().unwrap().json();
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    let mut client = RawClient::connect(address).await.unwrap();
    for name in ["test_trigger_prompt_change", "test_trigger_tool_change"] {
        client
            .ask(&modern(
                address,
                "tools/call",
                json!({ "name": name, "arguments": {} }),
            ))
            .await
            .unwrap();
    }
    let change = listener.next_event().await.unwrap().unwrap().json();
    assert_eq!(change["method"], "notifications/tools/list_changed");
}

#[tokio::test]
async fn a_legacy_only_server_does_not_know_the_modern_era() {
    let (_fixture, address) = start(Eras::Legacy).await;
    let mut client = RawClient::connect(address).await.unwrap();
    let refused = client
        .ask(&modern(address, "server/discover", json!({})))
        .await
        .unwrap();
    assert_eq!(
        (refused.status, refused.json()["error"]["code"].clone()),
        (400, json!(-32000))
    );
    open_session(address).await;
}

#[tokio::test]
async fn a_modern_only_server_has_no_sessions() {
    let (_fixture, address) = start(Eras::Modern).await;
    let mut client = RawClient::connect(address).await.unwrap();
    let refused = client.ask(&legacy(address, &initialize())).await.unwrap();
    assert!(refused.answer().get("error").is_some());
    assert!(refused.head.field("mcp-session-id").is_none());
}

//! The server as a client with a session uses it, over loopback.

use super::*;
use crate::testing::{Answer, BOTH, Peer, socket};

struct Client {
    peer: Peer,
    session: String,
    end: CancellationToken,
}

async fn connect() -> (Peer, CancellationToken) {
    let (listener, address) = socket().await;
    let end = CancellationToken::new();
    tokio::spawn(serve_notes(listener, end.clone()));
    (Peer::new(address), end)
}

fn request(id: &Value, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

async fn post(peer: &Peer, session: Option<&str>, body: &Value) -> Answer {
    let mut headers = vec![("accept", BOTH), ("content-type", "application/json")];
    if let Some(session) = session {
        headers.push((SESSION, session));
        headers.push(("mcp-protocol-version", "2025-11-25"));
    }
    peer.send(Method::POST, &headers, body.to_string()).await
}

fn open(version: &str, capabilities: &Value) -> Value {
    let params = json!({
        "protocolVersion": version,
        "capabilities": capabilities,
        "clientInfo": { "name": "t", "version": "0" },
    });
    request(&json!(0), "initialize", &params)
}

async fn start(capabilities: Value) -> Client {
    let (peer, end) = connect().await;
    Client::open(peer, end, &capabilities).await
}

impl Client {
    async fn open(peer: Peer, end: CancellationToken, capabilities: &Value) -> Self {
        let answer = post(&peer, None, &open("2025-11-25", capabilities)).await;
        let session = answer.headers[SESSION].to_str().unwrap().to_owned();
        let client = Self { peer, session, end };
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(client.send(&ready).await.status, StatusCode::ACCEPTED);
        client
    }

    async fn send(&self, body: &Value) -> Answer {
        post(&self.peer, Some(&self.session), body).await
    }

    async fn ask(&self, method: &str, params: Value) -> Value {
        let answer = self.send(&request(&json!("a"), method, &params)).await;
        assert_eq!(answer.status, StatusCode::OK);
        answer.json().await
    }

    async fn tool(&self, name: &str, arguments: Value) -> Value {
        let params = json!({ "name": name, "arguments": arguments });
        self.ask("tools/call", params).await["result"].clone()
    }

    async fn listen(&self) -> Answer {
        let headers = [("accept", "text/event-stream"), (SESSION, &self.session)];
        let answer = self.peer.send(Method::GET, &headers, String::new()).await;
        assert_eq!(answer.status, StatusCode::OK);
        assert!(answer.is_stream());
        answer
    }
}

/// VER-01, SES-01: the version is negotiated, and every session has an id of its own.
#[tokio::test]
async fn ver_01_ses_01_initialize_opens_a_session() {
    let (peer, _end) = connect().await;
    let mut ids = Vec::new();
    for (asked, given) in [
        ("2025-11-25", "2025-11-25"),
        ("2025-06-18", "2025-06-18"),
        ("2024-11-05", "2025-11-25"),
    ] {
        let answer = post(&peer, None, &open(asked, &json!({}))).await;
        ids.push(answer.headers[SESSION].clone());
        assert_eq!(answer.json().await["result"]["protocolVersion"], given);
    }
    ids.dedup();
    assert_eq!(ids.len(), 3);
}

/// STA-05, STA-06, STA-07, LIF-16: what has no session, an unknown one or another version.
#[tokio::test]
async fn sta_05_to_07_requests_outside_a_session_are_refused() {
    let client = start(json!({})).await;
    let ping = request(&json!(1), "ping", &json!({}));
    let answer = post(&client.peer, None, &ping).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    let answer = answer.json().await;
    assert_eq!(
        (answer["error"]["code"].as_i64(), &answer["id"]),
        (Some(-32600), &json!(1))
    );
    let answer = post(&client.peer, Some("nothing"), &ping).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    // a client that first asks for a stateless server must not take this for one
    let discover = request(&json!(1), "server/discover", &json!({}));
    let answer = post(&client.peer, None, &discover).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert_eq!(answer.json().await["error"]["code"], -32600);
    let headers = [
        ("accept", BOTH),
        ("content-type", "application/json"),
        (SESSION, client.session.as_str()),
        ("mcp-protocol-version", "2099-01-01"),
    ];
    let answer = client
        .peer
        .send(Method::POST, &headers, ping.to_string())
        .await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    // LIF-07: a live session is not initialized twice
    let answer = client.send(&open("2025-11-25", &json!({}))).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
}

/// GET-08, SES-03: DELETE ends the session and its stream; afterwards it is unknown.
#[tokio::test]
async fn get_08_delete_ends_the_session() {
    let client = start(json!({})).await;
    let mut stream = client.listen().await;
    let headers = [(SESSION, client.session.as_str())];
    let answer = client
        .peer
        .send(Method::DELETE, &headers, String::new())
        .await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT);
    assert!(stream.next().await.is_none());
    let answer = client.send(&request(&json!(1), "ping", &json!({}))).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    let answer = client
        .peer
        .send(Method::DELETE, &headers, String::new())
        .await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn notes_are_added_listed_read_and_completed() {
    let client = start(json!({})).await;
    let added = client
        .tool("note_add", json!({ "title": "Tea", "text": "Green." }))
        .await;
    let uri = added["structuredContent"]["uri"].clone();
    assert_eq!(uri, "note://3");
    let listed = client.tool("note_list", json!({})).await;
    assert!(
        listed["content"][0]["text"]
            .as_str()
            .unwrap()
            .ends_with("note://3 Tea")
    );
    let read = client.ask("resources/read", json!({ "uri": uri })).await;
    assert_eq!(read["result"]["contents"][0]["text"], "Green.");
    let missing = client
        .ask("resources/read", json!({ "uri": "note://99" }))
        .await;
    assert_eq!(missing["error"]["code"], RESOURCE_NOT_FOUND);
    assert_eq!(missing["error"]["data"]["uri"], "note://99");

    let params = json!({
        "ref": { "type": "ref/prompt", "name": "summarize" },
        "argument": { "name": "title", "value": "t" },
    });
    let completed = client.ask("completion/complete", params).await;
    assert_eq!(completed["result"]["completion"]["values"], json!(["Tea"]));
    let params = json!({ "name": "summarize", "arguments": { "title": "Tea" } });
    let prompt = client.ask("prompts/get", params).await;
    let text = prompt["result"]["messages"][0]["content"]["text"]
        .as_str()
        .unwrap();
    assert!(text.ends_with("Green."));
    assert_eq!(
        client.ask("nothing", json!({})).await["error"]["code"],
        -32601
    );
    assert_eq!(
        client.tool("note_add", json!({ "title": 1 })).await["isError"],
        true
    );
}

/// RSC-06, GET-03: changes are told on the GET stream, updates only to those who subscribed.
#[tokio::test]
async fn rsc_06_changes_are_told_on_the_get_stream() {
    let client = start(json!({})).await;
    let other = Client::open(client.peer.clone(), client.end.clone(), &json!({})).await;
    let (mut stream, mut others) = (client.listen().await, other.listen().await);
    let uri = json!({ "uri": "note://1" });
    assert_eq!(
        client.ask("resources/subscribe", uri.clone()).await["result"],
        json!({})
    );
    let edit = json!({ "uri": "note://1", "text": "new" });
    client.tool("note_edit", edit.clone()).await;
    let updated = stream.next().await.unwrap();
    assert_eq!(updated["method"], "notifications/resources/updated");
    assert_eq!(updated["params"], uri);

    client.ask("resources/unsubscribe", uri).await;
    client.tool("note_edit", edit).await;
    client
        .tool("note_add", json!({ "title": "a", "text": "b" }))
        .await;
    for stream in [&mut stream, &mut others] {
        let changed = stream.next().await.unwrap();
        assert_eq!(changed["method"], "notifications/resources/list_changed");
    }
}

/// PRG-01, LOG-01, HTR-06: the slow tool streams a log, rising progress and its answer.
#[tokio::test]
async fn prg_01_the_slow_tool_reports_on_its_own_stream() {
    let client = start(json!({})).await;
    let params = json!({ "name": "note_export", "_meta": { "progressToken": "p" } });
    let call = request(&json!(9), "tools/call", &params);
    let mut answer = client.send(&call).await;
    assert!(answer.is_stream());
    assert_eq!(answer.next().await.unwrap()["params"]["level"], "info");
    for step in 1..=5 {
        let progress = answer.next().await.unwrap();
        assert_eq!(progress["params"]["progressToken"], "p");
        assert_eq!(progress["params"]["progress"], step);
    }
    let last = answer.next().await.unwrap();
    assert_eq!(last["id"], 9);
    assert!(
        last["result"]["content"][0]["text"]
            .as_str()
            .unwrap()
            .starts_with("# Welcome")
    );
    assert!(answer.next().await.is_none());

    client
        .ask("logging/setLevel", json!({ "level": "warning" }))
        .await;
    let bad = client
        .ask("logging/setLevel", json!({ "level": "loud" }))
        .await;
    assert_eq!(bad["error"]["code"], -32602);
    let params = json!({ "name": "note_export" });
    let mut quiet = client
        .send(&request(&json!(9), "tools/call", &params))
        .await;
    assert_eq!(quiet.next().await.unwrap()["id"], 9);
}

/// CAN-03: a cancelled request is not answered; its stream ends.
#[tokio::test]
async fn can_03_a_cancelled_call_ends_without_an_answer() {
    let client = start(json!({})).await;
    let params = json!({ "name": "note_export", "_meta": { "progressToken": 1 } });
    let mut answer = client
        .send(&request(&json!(9), "tools/call", &params))
        .await;
    answer.next().await.unwrap();
    for id in ["9", "other"] {
        // the text "9" is another id than the number
        let cancel = json!({
            "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id },
        });
        assert_eq!(client.send(&cancel).await.status, StatusCode::ACCEPTED);
    }
    assert_eq!(answer.next().await.unwrap()["params"]["progress"], 1);
    let cancel = json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 9 },
    });
    client.send(&cancel).await;
    while let Some(message) = answer.next().await {
        assert!(message.get("id").is_none(), "{message}");
    }
}

/// ELI-04: the three answers of a user, on the stream of the call they are about.
#[tokio::test]
async fn eli_04_clearing_asks_the_user() {
    let client = start(json!({ "elicitation": {} })).await;
    for (action, content, says) in [
        ("decline", json!(null), "The user keeps the notes."),
        (
            "accept",
            json!({ "confirm": false }),
            "The user keeps the notes.",
        ),
        ("accept", json!({ "confirm": true }), "Removed 2 notes."),
    ] {
        let call = request(&json!(4), "tools/call", &json!({ "name": "note_clear" }));
        let mut answer = client.send(&call).await;
        let question = answer.next().await.unwrap();
        assert_eq!(question["method"], "elicitation/create");
        let mut result = json!({ "action": action });
        if content.is_object() {
            result["content"] = content;
        }
        let reply = json!({ "jsonrpc": "2.0", "id": question["id"], "result": result });
        assert_eq!(client.send(&reply).await.status, StatusCode::ACCEPTED);
        let last = answer.next().await.unwrap();
        assert_eq!(last["result"]["content"][0]["text"], says);
    }
    let listed = client.ask("resources/list", json!({})).await;
    assert_eq!(listed["result"]["resources"], json!([]));
}

/// CAP-02, STA-16: who cannot ask its user is not asked; answers nobody waits for are accepted.
#[tokio::test]
async fn cap_02_a_client_without_the_capability_is_not_asked() {
    let client = start(json!({})).await;
    let call = request(&json!(4), "tools/call", &json!({ "name": "note_clear" }));
    let mut answer = client.send(&call).await;
    assert_eq!(answer.next().await.unwrap()["result"]["isError"], true);
    let late = json!({ "jsonrpc": "2.0", "id": "notes-1", "result": { "action": "accept" } });
    assert_eq!(client.send(&late).await.status, StatusCode::ACCEPTED);
}

/// SSE-09: losing the connection is not cancelling.
#[tokio::test]
async fn sse_09_a_lost_connection_does_not_cancel() {
    let client = start(json!({ "elicitation": {} })).await;
    let call = request(&json!(4), "tools/call", &json!({ "name": "note_clear" }));
    let mut answer = client.send(&call).await;
    let question = answer.next().await.unwrap();
    drop(answer);
    let result = json!({ "action": "accept", "content": { "confirm": true } });
    client
        .send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": result }))
        .await;
    loop {
        let listed = client.ask("resources/list", json!({})).await;
        if listed["result"]["resources"] == json!([]) {
            break;
        }
    }
}

#[tokio::test]
async fn the_end_of_the_server_ends_its_streams() {
    let client = start(json!({})).await;
    let mut stream = client.listen().await;
    client.end.cancel();
    assert!(stream.next().await.is_none());
}

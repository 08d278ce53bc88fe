//! Clients and upstreams of both eras, as the tests of this folder need them: correct in all that a
//! test is not about. What a test is about it writes itself.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::sync::{Mutex, mpsc};
use vestibule_testkit::recording::{AnswerStream, legacy_basics, modern_basics};
use vestibule_testkit::sse::SseEvent;
use vestibule_testkit::{Answer, RawClient, RawRequest, RawResponse, Recorded, RecordingUpstream};

use crate::harness::Gateway;

/// The stateless revision.
pub(crate) const MODERN: &str = "2026-07-28";
/// The newest revision with a handshake.
pub(crate) const LEGACY: &str = "2025-11-25";
/// What a modern request says of its revision.
pub(crate) const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// What a modern request says of its client.
pub(crate) const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// A tenant `t` with these upstreams, federated as `default` and each transparent as itself.
pub(crate) fn tenant(upstreams: &[(&str, &str)]) -> String {
    let mut text = "  t:\n    auth: none\n    policy: allow_all\n    upstreams:\n".to_owned();
    for (id, url) in upstreams {
        text.push_str(&format!(
            "      {id}: {{ url: \"{url}\", timeouts: {{ connect: 2s, idle: 20s, total: 30s }} }}\n"
        ));
    }
    text.push_str("    servers:\n");
    for (id, _) in upstreams {
        text.push_str(&format!("      {id}: {{ upstream: {id} }}\n"));
    }
    let ids: Vec<_> = upstreams.iter().map(|(id, _)| *id).collect();
    text.push_str(&format!(
        "      default: {{ upstreams: [{}] }}\n",
        ids.join(", ")
    ));
    text
}

// === clients ===

/// The two members that every modern request must have in `_meta`.
pub(crate) fn meta(capabilities: &str) -> String {
    format!(r#""{VERSION}":"{MODERN}","{CAPABILITIES}":{capabilities}"#)
}

/// A modern POST of exactly this body, with the headers that mirror it.
pub(crate) fn modern_text(target: &str, body: &str) -> RawRequest {
    // a lone surrogate is legal JSON, but not to this parser
    let json: Value = serde_json::from_str(&body.replace("\\ud800", "")).expect("JSON");
    let mut request = RawRequest::new("POST", target)
        .field("Host", "127.0.0.1")
        .field("Content-Type", "application/json")
        .field("Accept", "application/json, text/event-stream")
        .field("MCP-Protocol-Version", MODERN)
        .field("Mcp-Method", json["method"].as_str().unwrap_or_default());
    let name = match json["method"].as_str() {
        Some("tools/call" | "prompts/get") => json["params"]["name"].as_str(),
        Some("resources/read") => json["params"]["uri"].as_str(),
        Some(_) | None => None,
    };
    if let Some(name) = name {
        request = request.field("Mcp-Name", name);
    }
    request.body(body.to_owned())
}

/// A modern request whose client can do nothing special.
pub(crate) fn modern(target: &str, id: &Value, method: &str, params: &Value) -> RawRequest {
    modern_with(target, id, method, params, &json!({}))
}

/// A modern request of a client with these capabilities. What `params._meta` has stays.
pub(crate) fn modern_with(
    target: &str,
    id: &Value,
    method: &str,
    params: &Value,
    capabilities: &Value,
) -> RawRequest {
    let mut params = params.clone();
    params["_meta"][VERSION] = json!(MODERN);
    params["_meta"][CAPABILITIES] = capabilities.clone();
    let body = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    modern_text(target, &body.to_string())
}

/// A message of a legacy client without a session.
pub(crate) fn legacy_post(target: &str, body: &Value) -> RawRequest {
    RawRequest::mcp("127.0.0.1", target, body)
}

/// A request.
pub(crate) fn request(id: impl Into<Value>, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id.into(), "method": method, "params": params })
}

/// A notification.
pub(crate) fn notification(method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "method": method, "params": params })
}

/// A client of a revision with sessions, after its handshake.
pub(crate) struct Session<'a> {
    gateway: &'a Gateway,
    target: String,
    /// What it sends as `Mcp-Session-Id`.
    pub(crate) id: String,
    revision: String,
    /// The result of its `initialize`.
    pub(crate) opened: Value,
    credential: Option<String>,
}

impl<'a> Session<'a> {
    /// Opens a session of the newest such revision.
    pub(crate) async fn open(gateway: &'a Gateway, target: &str, capabilities: Value) -> Self {
        Self::of(gateway, target, LEGACY, capabilities, None).await
    }

    /// Opens a session.
    pub(crate) async fn of(
        gateway: &'a Gateway,
        target: &str,
        revision: &str,
        capabilities: Value,
        credential: Option<&str>,
    ) -> Self {
        let info = json!({ "name": "test", "version": "1" });
        let params = json!({ "protocolVersion": revision, "capabilities": capabilities, "clientInfo": info });
        let mut initialize = legacy_post(target, &request(1, "initialize", &params));
        if let Some(credential) = credential {
            initialize = initialize.field("Authorization", format!("Bearer {credential}"));
        }
        let answer = gateway.ask(initialize).await;
        assert_eq!(answer.status, 200, "{:?}", answer.body);
        let id = answer.head.field("mcp-session-id").unwrap().to_owned();
        let session = Self {
            gateway,
            target: target.to_owned(),
            id,
            revision: revision.to_owned(),
            opened: answer.answer()["result"].clone(),
            credential: credential.map(str::to_owned),
        };
        let ready = notification("notifications/initialized", &json!({}));
        assert_eq!(session.post(&ready).await.status, 202);
        session
    }

    /// A request of this session, not yet sent.
    pub(crate) fn dress(&self, request: RawRequest) -> RawRequest {
        let request = request.field("Mcp-Session-Id", &self.id);
        let request = match &self.credential {
            Some(credential) => request.field("Authorization", format!("Bearer {credential}")),
            None => request,
        };
        if self.revision == "2025-03-26" {
            return request;
        }
        request.field("MCP-Protocol-Version", &self.revision)
    }

    /// A POST of this session, not yet sent.
    pub(crate) fn message(&self, body: &Value) -> RawRequest {
        self.dress(legacy_post(&self.target, body))
    }

    /// Posts a message on a connection of its own.
    pub(crate) async fn post(&self, body: &Value) -> RawResponse {
        self.gateway.ask(self.message(body)).await
    }

    /// Makes a call and gives its response.
    pub(crate) async fn call(&self, id: impl Into<Value>, method: &str, params: Value) -> Value {
        self.post(&request(id, method, &params)).await.answer()
    }

    /// Begins a call whose answer comes event by event.
    pub(crate) async fn begin(&self, body: &Value) -> Stream {
        let mut client = self.gateway.connect().await;
        let bytes = self.message(body).bytes();
        client.send(&bytes).await.unwrap();
        Stream::new(client)
    }

    /// Opens the standalone stream.
    pub(crate) async fn listen(&self) -> Stream {
        let request = RawRequest::new("GET", &self.target)
            .field("Host", "127.0.0.1")
            .field("Accept", "text/event-stream");
        let mut client = self.gateway.connect().await;
        client.send(&self.dress(request).bytes()).await.unwrap();
        let mut stream = Stream::new(client);
        stream.head().await;
        stream
    }

    /// Ends the session.
    pub(crate) async fn delete(&self) -> RawResponse {
        let request = RawRequest::new("DELETE", &self.target).field("Host", "127.0.0.1");
        self.gateway.ask(self.dress(request)).await
    }
}

/// An answer that comes event by event.
pub(crate) struct Stream {
    client: RawClient,
    headed: bool,
}

impl Stream {
    /// Of a client that has sent its request.
    pub(crate) fn new(client: RawClient) -> Self {
        Self {
            client,
            headed: false,
        }
    }

    /// Sends a request on a connection of its own.
    pub(crate) async fn send(gateway: &Gateway, request: RawRequest) -> Self {
        let mut client = gateway.connect().await;
        client.send(&request.bytes()).await.unwrap();
        Self::new(client)
    }

    /// Waits for the head of an event stream.
    pub(crate) async fn head(&mut self) {
        if std::mem::replace(&mut self.headed, true) {
            return;
        }
        let head = self.client.head().await.unwrap();
        let kind = head.field("content-type").unwrap_or_default().to_owned();
        if !kind.starts_with("text/event-stream") {
            let body = self.client.rest().await.unwrap_or_default();
            panic!("no event stream: {head:?} {body:?}");
        }
    }

    /// The next event with a message.
    pub(crate) async fn event(&mut self) -> Option<SseEvent> {
        self.head().await;
        while let Some(event) = self.client.next_event().await.unwrap() {
            if event.data.as_deref().is_some_and(|data| !data.is_empty()) {
                return Some(event);
            }
        }
        None
    }

    /// The next message.
    pub(crate) async fn next(&mut self) -> Value {
        self.event().await.expect("another message").json()
    }

    /// The next message of that method, whatever comes before it.
    pub(crate) async fn next_of(&mut self, method: &str) -> Value {
        loop {
            let message = self.next().await;
            if message["method"] == method {
                return message;
            }
        }
    }

    /// The messages up to the end of the stream.
    pub(crate) async fn rest(&mut self) -> Vec<Value> {
        let mut all = Vec::new();
        while let Some(event) = self.event().await {
            all.push(event.json());
        }
        all
    }

    /// The whole answer, whatever its form.
    pub(crate) async fn response(mut self) -> RawResponse {
        self.client.response().await.unwrap()
    }

    /// The connection goes, as when a client dies.
    pub(crate) fn abandon(self) {
        drop(self);
    }
}

// === upstreams ===

/// Ends of streams that a script hands to its test, in the order they were opened.
pub(crate) struct Streams(Mutex<mpsc::Receiver<(Recorded, AnswerStream)>>);

/// The script's side of [`Streams`].
#[derive(Clone)]
pub(crate) struct Opens(mpsc::Sender<(Recorded, AnswerStream)>);

/// A way for streams from a script to its test.
pub(crate) fn streams() -> (Opens, Streams) {
    let (sender, receiver) = mpsc::channel(256);
    (Opens(sender), Streams(Mutex::new(receiver)))
}

impl Opens {
    /// Answers with a stream that the test writes.
    pub(crate) fn answer(&self, request: &Recorded) -> Answer {
        let (stream, answer) = Answer::stream();
        self.0
            .try_send((request.clone(), stream))
            .expect("the test takes its streams");
        answer
    }
}

impl Streams {
    /// The next stream that was opened, with what opened it.
    pub(crate) async fn next(&self) -> (Recorded, AnswerStream) {
        let mut streams = self.0.lock().await;
        tokio::time::timeout(vestibule_testkit::PATIENCE, streams.recv())
            .await
            .expect("a stream in time")
            .expect("the script lives")
    }
}

/// A response with this result for a request.
pub(crate) fn reply(request: &Recorded, result: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": request.rpc_id(), "result": result })
}

/// The text of a tool's result.
pub(crate) fn text_result(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}

/// A stateless upstream. What `script` leaves to it: discovery, and "method not found".
pub(crate) async fn modern_upstream(
    capabilities: Value,
    script: impl Fn(&Recorded) -> Option<Answer> + Send + Sync + 'static,
) -> RecordingUpstream {
    RecordingUpstream::start(move |request| {
        script(request)
            .or_else(|| modern_basics(request, &capabilities))
            .unwrap_or_else(|| Answer::error(request, 404, -32601, "Method not found"))
    })
    .await
    .unwrap()
}

/// An upstream with sessions `session-1`, `session-2`, …. What `script` leaves to it: the handshake,
/// notifications, DELETE, a GET that is refused, and "method not found".
pub(crate) async fn legacy_upstream(
    capabilities: Value,
    script: impl Fn(&Recorded) -> Option<Answer> + Send + Sync + 'static,
) -> RecordingUpstream {
    let sessions = AtomicUsize::new(0);
    RecordingUpstream::start(move |request| {
        if let Some(answer) = script(request) {
            return answer;
        }
        if request.rpc_method() == "initialize" {
            let number = sessions.fetch_add(1, Ordering::Relaxed) + 1;
            return initialized(request, &capabilities)
                .field("mcp-session-id", &format!("session-{number}"));
        }
        legacy_basics(request, &capabilities)
            .unwrap_or_else(|| Answer::error(request, 200, -32601, "Method not found"))
    })
    .await
    .unwrap()
}

/// The result of `initialize`, without a session.
pub(crate) fn initialized(request: &Recorded, capabilities: &Value) -> Answer {
    let result = json!({
        "protocolVersion": request.json()["params"]["protocolVersion"],
        "capabilities": capabilities,
        "serverInfo": { "name": "recording-upstream", "version": "1" },
    });
    Answer::result(request, &result)
}

/// The answer to `tools/list`, or `prompts/list`: these names and nothing else of interest.
pub(crate) fn listed(request: &Recorded, names: &[&str]) -> Option<Answer> {
    let schema = json!({ "type": "object" });
    let tools: Vec<_> = names
        .iter()
        .map(|name| json!({ "name": name, "inputSchema": schema }))
        .collect();
    let prompts: Vec<_> = names.iter().map(|name| json!({ "name": name })).collect();
    let mut result = json!({ "resultType": "complete", "ttlMs": 60_000, "cacheScope": "public" });
    match request.rpc_method().as_str() {
        "tools/list" => result["tools"] = json!(tools),
        "prompts/list" => result["prompts"] = json!(prompts),
        _ => return None,
    }
    Some(Answer::result(request, &result))
}

/// A whole JSON answer in exactly these bytes; `$id` becomes the id that came.
pub(crate) fn raw_answer(request: &Recorded, body: &str) -> Answer {
    Answer::Full {
        status: 200,
        fields: vec![("content-type".to_owned(), "application/json".to_owned())],
        body: body.replace("$id", &request.rpc_id().to_string()).into(),
    }
}

/// The raw text between two markers of a body.
pub(crate) fn between(text: &[u8], from: &str, to: &str) -> String {
    let text = std::str::from_utf8(text).unwrap();
    let (_, rest) = text
        .split_once(from)
        .unwrap_or_else(|| panic!("no {from} in {text}"));
    let (found, _) = rest
        .split_once(to)
        .unwrap_or_else(|| panic!("no {to} in {text}"));
    found.to_owned()
}

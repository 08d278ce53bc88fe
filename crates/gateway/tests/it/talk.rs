//! What clients of each era send, and a small upstream of each era that shows what reached it.

use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;
use vestibule_testkit::recording::{Answer, AnswerStream, legacy_basics, modern_basics};
use vestibule_testkit::{PATIENCE, RawRequest, RawResponse, Recorded, RecordingUpstream};

use crate::harness::Gateway;

pub(crate) const HOST: &str = "127.0.0.1";
pub(crate) const MODERN: &str = "2026-07-28";
/// The revisions that open with `initialize` and are served, newest first.
pub(crate) const SESSIONS: [&str; 3] = ["2025-11-25", "2025-06-18", "2025-03-26"];
/// The members of `params` that every stateless request needs.
pub(crate) const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

// === configuration ===

/// A tenant `t`, open to everyone, with these upstreams; each is also a transparent server of its
/// name, and `default` federates them all. `more` goes into every server.
pub(crate) fn open_tenant(upstreams: &[(&str, String)], more: &str) -> String {
    tenant("t", "    auth: none", upstreams, more)
}

/// A tenant with limits that no test reaches by accident.
pub(crate) fn tenant(id: &str, head: &str, upstreams: &[(&str, String)], more: &str) -> String {
    let comma = if more.is_empty() { "" } else { ", " };
    let ids: Vec<&str> = upstreams.iter().map(|(id, _)| *id).collect();
    let reach: String = upstreams
        .iter()
        .map(|(id, how)| format!("\n      {id}: {{ {how} }}"))
        .collect();
    let single: String = ids
        .iter()
        .map(|id| format!("\n      {id}: {{ upstream: {id}{comma}{more} }}"))
        .collect();
    format!(
        "  {id}:
{head}
    policy: allow_all
    limits:
      tenant: {{ rate: 100000/s, burst: 100000 }}
      principal: {{ rate: 100000/s, burst: 100000, in_flight: 10000, streams: 1000 }}
    upstreams:{reach}
    servers:
      default: {{ upstreams: [{list}]{comma}{more} }}{single}
",
        list = ids.join(", "),
    )
}

/// How an upstream over HTTP is reached.
pub(crate) fn at(url: &str) -> String {
    format!("url: \"{url}\"")
}

// === stateless clients ===

/// A request of a stateless client, with the headers that its body asks for.
pub(crate) fn modern(
    target: &str,
    id: impl Into<Value>,
    method: &str,
    mut params: Value,
) -> RawRequest {
    let meta = &mut params["_meta"];
    meta["io.modelcontextprotocol/protocolVersion"] = MODERN.into();
    if meta["io.modelcontextprotocol/clientCapabilities"].is_null() {
        meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
    }
    let name = match method {
        "tools/call" | "prompts/get" => params["name"].as_str().map(str::to_owned),
        "resources/read" => params["uri"].as_str().map(str::to_owned),
        _ => None,
    };
    let body = json!({ "jsonrpc": "2.0", "id": id.into(), "method": method, "params": params });
    modern_text(target, method, name.as_deref(), body.to_string())
}

/// The same with a body that a test wrote itself.
pub(crate) fn modern_text(
    target: &str,
    method: &str,
    name: Option<&str>,
    body: impl Into<Bytes>,
) -> RawRequest {
    let request = post(target, body)
        .field("MCP-Protocol-Version", MODERN)
        .field("Mcp-Method", method);
    match name {
        Some(name) => request.field("Mcp-Name", name),
        None => request,
    }
}

/// A call of a stateless client.
pub(crate) fn modern_call(target: &str, tool: &str, arguments: &Value) -> RawRequest {
    let params = json!({ "name": tool, "arguments": arguments });
    modern(target, 1, "tools/call", params)
}

/// A POST as every correct client writes it, without revision and session.
pub(crate) fn post(target: &str, body: impl Into<Bytes>) -> RawRequest {
    RawRequest::mcp(HOST, target, &Value::Null).body(body)
}

/// A GET that asks for a stream.
pub(crate) fn get(target: &str) -> RawRequest {
    RawRequest::new("GET", target)
        .field("Host", HOST)
        .field("Accept", "text/event-stream")
}

// === clients with a session ===

pub(crate) fn initialize(target: &str, version: &str) -> RawRequest {
    initialize_with(target, version, &json!({}))
}

/// The same for a client that can do something.
pub(crate) fn initialize_with(target: &str, version: &str, capabilities: &Value) -> RawRequest {
    let params = json!({
        "protocolVersion": version,
        "capabilities": capabilities,
        "clientInfo": { "name": "test", "version": "1" },
    });
    let body = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
    post(target, body.to_string())
}

/// A session that was opened, ready for use.
#[derive(Clone)]
pub(crate) struct Session {
    pub(crate) target: String,
    pub(crate) id: String,
    revision: String,
    key: Option<String>,
}

impl Session {
    pub(crate) async fn open(gateway: &Gateway, target: &str, revision: &str) -> Self {
        Self::opened(gateway, target, revision, None).await
    }

    /// The same for the holder of an API key.
    pub(crate) async fn with_key(gateway: &Gateway, target: &str, key: &str) -> Self {
        Self::opened(gateway, target, SESSIONS[0], Some(key.to_owned())).await
    }

    async fn opened(gateway: &Gateway, target: &str, revision: &str, key: Option<String>) -> Self {
        let mut session = Self {
            target: target.to_owned(),
            id: String::new(),
            revision: revision.to_owned(),
            key,
        };
        let request = session.authorised(initialize(target, revision));
        let answer = gateway.ask(request).await;
        assert_eq!(answer.status, 200, "{:?}", answer.body);
        assert_eq!(answer.answer()["result"]["protocolVersion"], revision);
        answer
            .head
            .field("mcp-session-id")
            .expect("a session id")
            .clone_into(&mut session.id);
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(gateway.ask(session.post(&ready)).await.status, 202);
        session
    }

    fn authorised(&self, request: RawRequest) -> RawRequest {
        match &self.key {
            Some(key) => request.field("Authorization", format!("Bearer {key}")),
            None => request,
        }
    }

    fn dressed(&self, request: RawRequest) -> RawRequest {
        self.authorised(request)
            .field("Mcp-Session-Id", &self.id)
            .field("MCP-Protocol-Version", &self.revision)
    }

    pub(crate) fn post(&self, body: &Value) -> RawRequest {
        self.text(body.to_string())
    }

    pub(crate) fn text(&self, body: impl Into<Bytes>) -> RawRequest {
        self.dressed(post(&self.target, body))
    }

    pub(crate) fn request(&self, id: impl Into<Value>, method: &str, params: &Value) -> RawRequest {
        self.post(&json!({ "jsonrpc": "2.0", "id": id.into(), "method": method, "params": params }))
    }

    pub(crate) fn call(&self, id: impl Into<Value>, tool: &str, arguments: &Value) -> RawRequest {
        self.request(
            id,
            "tools/call",
            &json!({ "name": tool, "arguments": arguments }),
        )
    }

    pub(crate) fn notify(&self, method: &str, params: &Value) -> RawRequest {
        self.post(&json!({ "jsonrpc": "2.0", "method": method, "params": params }))
    }

    pub(crate) fn get(&self) -> RawRequest {
        self.dressed(get(&self.target))
    }

    pub(crate) fn resume(&self, last: &str) -> RawRequest {
        self.get().field("Last-Event-ID", last)
    }

    pub(crate) fn delete(&self) -> RawRequest {
        self.dressed(RawRequest::new("DELETE", &self.target).field("Host", HOST))
    }
}

// === upstreams ===

/// A recording upstream with these tools: `echo` answers at once with its arguments, `stream` hands
/// an open event stream to the test, `hang` never answers, `fail` answers with the error that its
/// arguments are, `region` has an annotated argument.
pub(crate) struct Upstream {
    pub(crate) peer: RecordingUpstream,
    streams: tokio::sync::Mutex<mpsc::Receiver<(Recorded, AnswerStream)>>,
}

impl Upstream {
    pub(crate) async fn modern() -> Self {
        Self::start(true).await
    }

    pub(crate) async fn legacy() -> Self {
        Self::start(false).await
    }

    async fn start(modern: bool) -> Self {
        let (sender, streams) = mpsc::channel(64);
        let sender = Mutex::new(sender);
        let peer = RecordingUpstream::start(move |request| {
            let open = |request: &Recorded| {
                let (stream, answer) = Answer::stream();
                let sent = sender.lock().unwrap().try_send((request.clone(), stream));
                sent.expect("the test takes the streams it asks for");
                answer
            };
            answer(modern, request, &open)
        });
        Self {
            peer: peer.await.unwrap(),
            streams: tokio::sync::Mutex::new(streams),
        }
    }

    pub(crate) fn reach(&self) -> String {
        at(&self.peer.url())
    }

    /// The next stream that was opened here, and the request it answers.
    pub(crate) async fn opened(&self) -> (Recorded, AnswerStream) {
        let next = timeout(PATIENCE, async { self.streams.lock().await.recv().await });
        next.await
            .expect("no stream was opened in time")
            .expect("the upstream runs")
    }

    /// How many calls of a tool have reached this upstream.
    pub(crate) fn calls(&self) -> usize {
        self.peer.calls("tools/call").len()
    }
}

fn answer(modern: bool, request: &Recorded, open: &dyn Fn(&Recorded) -> Answer) -> Answer {
    let capabilities = json!({
        "tools": { "listChanged": true },
        "prompts": {},
        "resources": { "subscribe": true },
        "completions": {},
        "logging": {},
    });
    let basics = if modern {
        modern_basics(request, &capabilities)
    } else {
        legacy_basics(request, &capabilities)
    };
    if let Some(answer) = basics {
        return answer;
    }
    let params = request.json()["params"].clone();
    let complete = |mut result: Value| {
        if modern {
            result["resultType"] = "complete".into();
        }
        Answer::result(request, &result)
    };
    let list = |mut result: Value| {
        if modern {
            result["ttlMs"] = 60_000.into();
            result["cacheScope"] = "public".into();
        }
        complete(result)
    };
    match request.rpc_method().as_str() {
        "tools/list" => list(json!({ "tools": tools() })),
        "prompts/list" => list(json!({ "prompts": [{ "name": "greet" }] })),
        "resources/list" => list(json!({ "resources": [{ "uri": "memo://a,b", "name": "a" }] })),
        "resources/templates/list" => list(json!({ "resourceTemplates": [] })),
        "tools/call" => match params["name"].as_str().unwrap_or_default() {
            "stream" => open(request),
            "hang" => Answer::Hang,
            "fail" => Answer::json(
                200,
                &json!({ "jsonrpc": "2.0", "id": request.rpc_id(), "error": params["arguments"] }),
            ),
            "echo" | "region" => complete(echoed(&params["arguments"])),
            _ => Answer::error(request, 200, -32602, "no such tool"),
        },
        "resources/read" => {
            complete(json!({ "contents": [{ "uri": params["uri"], "text": "x" }] }))
        }
        "prompts/get" => complete(json!({ "messages": [] })),
        "resources/subscribe" | "resources/unsubscribe" | "logging/setLevel" => complete(json!({})),
        "completion/complete" => complete(json!({ "completion": { "values": [] } })),
        "subscriptions/listen" => listening(request),
        _ => Answer::error(
            request,
            if modern { 404 } else { 200 },
            -32601,
            "no such method",
        ),
    }
}

/// A listen stream that is acknowledged and then stays silent.
fn listening(request: &Recorded) -> Answer {
    let (stream, answer) = Answer::stream();
    let (id, json) = (request.rpc_id(), request.json());
    let params = json!({
        "_meta": { "io.modelcontextprotocol/subscriptionId": id },
        "notifications": json["params"]["notifications"],
    });
    let method = "notifications/subscriptions/acknowledged";
    let acknowledged = json!({ "jsonrpc": "2.0", "method": method, "params": params });
    tokio::spawn(async move {
        if stream.message(&acknowledged).await.is_ok() {
            stream.gone().await;
        }
    });
    answer
}

fn tools() -> Value {
    let plain = |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } });
    let region = json!({ "type": "string", "x-mcp-header": "Region" });
    let count = json!({ "type": "integer", "x-mcp-header": "Count" });
    json!([
        plain("echo"),
        plain("stream"),
        plain("hang"),
        plain("fail"),
        {
            "name": "region",
            "inputSchema": {
                "type": "object",
                "properties": { "region": region, "count": count },
            },
        },
    ])
}

/// What `echo` answers with.
pub(crate) fn echoed(arguments: &Value) -> Value {
    json!({ "content": [{ "type": "text", "text": arguments.to_string() }] })
}

/// The response to a request that an upstream got, with a text as its content.
pub(crate) fn response(request: &Recorded, text: &str) -> Value {
    let content = json!([{ "type": "text", "text": text }]);
    let result = json!({ "resultType": "complete", "content": content });
    json!({ "jsonrpc": "2.0", "id": request.rpc_id(), "result": result })
}

/// Progress of a request that an upstream got.
pub(crate) fn progress(request: &Recorded, value: u32) -> Value {
    let token = request.json()["params"]["_meta"]["progressToken"].clone();
    assert!(!token.is_null(), "the upstream was given no token");
    let params = json!({ "progressToken": token, "progress": value });
    json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params })
}

// === answers ===

/// The text of a call's result.
pub(crate) fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("no text: {answer}"))
}

/// A refusal: its status, its code, and its id where one must be echoed.
pub(crate) fn assert_refused(what: &str, answer: &RawResponse, status: u16, code: i64) -> Value {
    let shown = String::from_utf8_lossy(&answer.body);
    assert_eq!(answer.status, status, "{what}: {shown}");
    assert_eq!(
        answer.head.field("content-type"),
        Some("application/json"),
        "{what}"
    );
    let json = answer.json();
    assert_eq!(json["jsonrpc"], "2.0", "{what}");
    assert_eq!(json["error"]["code"], code, "{what}: {shown}");
    assert!(json["error"]["message"].is_string(), "{what}");
    assert!(json.get("result").is_none(), "{what}");
    json
}

/// Waits for `what` at most as long as it may take at all.
pub(crate) async fn soon<T>(what: &str, within: Duration, wait: impl Future<Output = T>) -> T {
    timeout(within, wait)
        .await
        .unwrap_or_else(|_| panic!("{what} took longer than {within:?}"))
}

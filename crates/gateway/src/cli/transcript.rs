//! The demo's first calls: what a client of each era says, and what must come back.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use axum::body::Body;
use http::{HeaderMap, Request};
use serde_json::{Value, json};
use vestibule_egress::{Client, Options, Policy};
use vestibule_frame::body::FrameBody;
use vestibule_terms::Revision;

/// Longest wait for one answer; the first call of each upstream includes finding out its era.
const PATIENCE: Duration = Duration::from_secs(20);

/// Largest answer.
const ANSWER: usize = 1 << 20;

/// What was said.
#[derive(Debug, Default)]
pub(super) struct Transcript {
    /// For people to read.
    pub(super) lines: Vec<String>,
    /// How many answers were as expected.
    pub(super) right: usize,
    /// What was not.
    pub(super) wrong: Vec<String>,
}

/// One call and a text its answer must hold.
struct Step {
    tool: &'static str,
    arguments: Value,
    /// Headers that repeat annotated arguments, for modern clients.
    mirrored: &'static [(&'static str, &'static str)],
    expected: &'static str,
}

fn steps() -> [Step; 3] {
    [
        Step {
            tool: "notes__note_list",
            arguments: json!({}),
            mirrored: &[],
            expected: "note://",
        },
        Step {
            tool: "clock__convert",
            arguments: json!({ "time": "09:00", "from": "Delhi", "to": "Tokyo" }),
            mirrored: &[("mcp-param-to-place", "Tokyo")],
            expected: "12:30",
        },
        Step {
            tool: "files__read_file",
            arguments: json!({ "path": "data/cities.csv" }),
            mirrored: &[],
            expected: "Tokyo,Japan",
        },
    ]
}

/// Opens, lists and calls in both eras; never fails, but says what went wrong.
pub(super) async fn run(gateway: SocketAddr) -> Transcript {
    let mut transcript = Transcript::default();
    for revision in [Revision::NEWEST_LEGACY, Revision::NEWEST_MODERN] {
        let policy = Policy::default().allow_literal_loopback([gateway]);
        let caller = Caller {
            client: Client::new(Arc::new(policy), &Options::default()),
            url: format!("http://{gateway}/mcp"),
            revision,
            session: None,
        };
        if let Err(error) = converse(caller, &mut transcript).await {
            transcript.wrong.push(format!("{revision}: {error:#}"));
        }
    }
    transcript
}

async fn converse(mut caller: Caller, transcript: &mut Transcript) -> anyhow::Result<()> {
    let era = caller.revision;
    let opened = caller.open().await?;
    transcript.note(format!("{era}  {opened}"));
    let listed = caller.ask("tools/list", json!({}), &[]).await?;
    let tools: Vec<&str> = listed["tools"]
        .as_array()
        .context("tools/list has no tools")?
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    for step in steps() {
        ensure!(tools.contains(&step.tool), "tools/list lacks {}", step.tool);
    }
    transcript.note(format!("{era}  tools/list → {} tools", tools.len()));
    for step in steps() {
        let params = json!({ "name": step.tool, "arguments": step.arguments });
        let mut headers = vec![("mcp-name", step.tool)];
        headers.extend(step.mirrored);
        let answer = caller.ask("tools/call", params, &headers).await?;
        let text = answer["content"][0]["text"].as_str().unwrap_or_default();
        let shown = text.lines().next().unwrap_or_default();
        if text.contains(step.expected) && answer["isError"] != true {
            transcript.note(format!(
                "{era}  {} {} → {shown} …",
                step.tool, step.arguments
            ));
        } else {
            let wanted = step.expected;
            transcript.wrong.push(format!(
                "{era}  {} → {answer}, wanted {wanted:?}",
                step.tool
            ));
        }
    }
    Ok(())
}

impl Transcript {
    fn note(&mut self, line: String) {
        self.lines.push(line);
        self.right += 1;
    }
}

/// A client of one revision.
struct Caller {
    client: Client,
    url: String,
    revision: Revision,
    session: Option<String>,
}

impl Caller {
    /// Opens a session, or asks what is there.
    async fn open(&mut self) -> anyhow::Result<String> {
        if self.revision.is_modern() {
            let found = self.ask("server/discover", json!({}), &[]).await?;
            return Ok(format!("server/discover → {}", found["supportedVersions"]));
        }
        let params = json!({
            "protocolVersion": self.revision.as_str(),
            "capabilities": {},
            "clientInfo": { "name": "demo", "version": env!("CARGO_PKG_VERSION") },
        });
        let (head, answer) = self.send(request("initialize", params), &[]).await?;
        let session = head.get("mcp-session-id").and_then(|id| id.to_str().ok());
        self.session = Some(session.context("initialize gave no session")?.to_owned());
        let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        self.send(initialized, &[]).await?;
        Ok(format!(
            "initialize → {}",
            answer["result"]["protocolVersion"]
        ))
    }

    /// One request; its result.
    async fn ask(
        &self,
        method: &str,
        mut params: Value,
        headers: &[(&str, &str)],
    ) -> anyhow::Result<Value> {
        if self.revision.is_modern() {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": self.revision.as_str(),
                "io.modelcontextprotocol/clientCapabilities": {},
            });
        }
        let (_, mut answer) = self.send(request(method, params), headers).await?;
        ensure!(answer["error"].is_null(), "{method} → {}", answer["error"]);
        Ok(answer["result"].take())
    }

    async fn send(
        &self,
        message: Value,
        headers: &[(&str, &str)],
    ) -> anyhow::Result<(HeaderMap, Value)> {
        let method = message["method"].as_str().unwrap_or_default().to_owned();
        let mut request = Request::post(&self.url)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        if self.revision.is_modern() {
            request = request.header("mcp-method", &method);
            request = headers.iter().fold(request, |request, (name, value)| {
                request.header(*name, *value)
            });
        }
        if self.revision.is_modern() || self.session.is_some() {
            request = request.header("mcp-protocol-version", self.revision.as_str());
        }
        if let Some(session) = &self.session {
            request = request.header("mcp-session-id", session);
        }
        let request = request.body(Body::from(message.to_string()))?;
        let answer = tokio::time::timeout(PATIENCE, self.exchange(request));
        answer
            .await
            .with_context(|| format!("{method} was not answered"))?
            .context(method)
    }

    async fn exchange(&self, request: Request<Body>) -> anyhow::Result<(HeaderMap, Value)> {
        let response = self.client.request(request, PATIENCE).await?;
        let (head, body) = response.into_parts();
        let bytes = FrameBody::new(Body::new(body), ANSWER).read().await?;
        if bytes.is_empty() {
            ensure!(head.status == 202, "{}", head.status);
            return Ok((head.headers, Value::Null));
        }
        let message = match last_event(&bytes) {
            Some(event) => serde_json::from_slice(&event)?,
            None => serde_json::from_slice(&bytes)
                .with_context(|| format!("{} {}", head.status, String::from_utf8_lossy(&bytes)))?,
        };
        Ok((head.headers, message))
    }
}

fn request(method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params })
}

/// The last message of an event stream; none when the bytes are not one.
fn last_event(bytes: &[u8]) -> Option<bytes::Bytes> {
    let mut parser = vestibule_frame::sse::Parser::new(ANSWER);
    parser.push(bytes);
    let mut last = None;
    while let Ok(Some(event)) = parser.next_event() {
        last = event.data.or(last);
    }
    last
}

//! An MCP server of revision 2025-11-25 over Streamable HTTP, with sessions.
//!
//! It keeps notes. `note_export` reports progress and logs, and can be cancelled; `note_clear`
//! asks its user a question while the call is open; changes are told on the GET stream. Answers
//! that are ready at once are JSON, the others are streams. Streams have no event ids: what is
//! lost with a connection is lost, and the client asks again.

use std::io;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::http as web;
use crate::rpc::{self, Message, Params, RpcError};

mod describe;
mod session;
mod store;
mod tools;

use session::{Session, Sessions, lock};
use store::Store;

/// The revisions that differ in nothing this server does, newest first.
const VERSIONS: [&str; 2] = ["2025-11-25", "2025-06-18"];
/// Resource not found, in the revisions with sessions.
const RESOURCE_NOT_FOUND: i64 = -32002;
const SESSION: &str = "mcp-session-id";

#[derive(Debug)]
struct Notes {
    store: Mutex<Store>,
    sessions: Sessions,
    end: CancellationToken,
}

/// Serves the notes on `listener`, at the path `/mcp`, until `shutdown`.
pub async fn serve_notes(listener: TcpListener, shutdown: CancellationToken) -> io::Result<()> {
    let notes = Arc::new(Notes {
        store: Mutex::new(Store::new()),
        sessions: Sessions::default(),
        end: shutdown.clone(),
    });
    web::serve(listener, shutdown, move |request| {
        answer(Arc::clone(&notes), request)
    })
    .await
}

async fn answer(notes: Arc<Notes>, request: Request<Incoming>) -> Response<Body> {
    match *request.method() {
        Method::POST => post(notes, request).await,
        Method::GET => match notes.session(request.headers(), None) {
            Ok(_) if !web::accepts(request.headers(), "text/event-stream") => {
                web::empty(StatusCode::NOT_ACCEPTABLE)
            }
            Ok(session) => {
                let (events, response) = web::event_stream(session.ended.child_token());
                session.open_stream(events);
                response
            }
            Err(refusal) => *refusal,
        },
        Method::DELETE => match notes.session(request.headers(), None) {
            Ok(session) => {
                notes.sessions.end(&session.id);
                web::empty(StatusCode::NO_CONTENT)
            }
            Err(refusal) => *refusal,
        },
        _ => web::not_allowed("POST, GET, DELETE"),
    }
}

async fn post(notes: Arc<Notes>, request: Request<Incoming>) -> Response<Body> {
    let (head, body) = match web::receive(request).await {
        Ok(received) => received,
        Err(refusal) => return refusal,
    };
    let message = match rpc::parse(&body) {
        Ok(message) => message,
        Err(error) => return web::bad_message(&error),
    };
    match message {
        Message::Request { id, method, params } if method == "initialize" => {
            notes.initialize(&head, &id, &params)
        }
        Message::Request { id, method, params } => match notes.session(&head.headers, Some(&id)) {
            Ok(session) => notes.request(session, (id, method, params)),
            Err(refusal) => *refusal,
        },
        Message::Notification { method, params } => match notes.session(&head.headers, None) {
            Ok(session) => {
                if let ("notifications/cancelled", Some(id)) =
                    (method.as_str(), params.get("requestId"))
                {
                    session.cancel(id);
                }
                web::empty(StatusCode::ACCEPTED)
            }
            Err(refusal) => *refusal,
        },
        Message::Response { id, outcome } => match notes.session(&head.headers, None) {
            Ok(session) => {
                session.answered(&id, outcome);
                web::empty(StatusCode::ACCEPTED)
            }
            Err(refusal) => *refusal,
        },
    }
}

impl Notes {
    /// The session that a request names, or the refusal of the request.
    fn session(
        &self,
        headers: &http::HeaderMap,
        id: Option<&Value>,
    ) -> Result<Arc<Session>, Box<Response<Body>>> {
        let Some(name) = web::single(headers, SESSION) else {
            let refusal =
                web::bad_request(id, "Mcp-Session-Id is missing: `initialize` comes first");
            return Err(Box::new(refusal));
        };
        let Some(session) = self.sessions.get(name) else {
            let error = RpcError::new(rpc::INVALID_REQUEST, "session not found");
            let refusal = web::json(StatusCode::NOT_FOUND, &error.to_message(id));
            return Err(Box::new(refusal));
        };
        let asked = headers.contains_key("mcp-protocol-version");
        let version = web::single(headers, "mcp-protocol-version");
        if asked && !version.is_some_and(|version| VERSIONS.contains(&version)) {
            let refusal = web::bad_request(id, "MCP-Protocol-Version is not served");
            return Err(Box::new(refusal));
        }
        Ok(session)
    }

    fn initialize(&self, head: &Parts, id: &Value, params: &Params) -> Response<Body> {
        let live = web::single(&head.headers, SESSION).and_then(|id| self.sessions.get(id));
        if live.is_some() {
            return web::bad_request(Some(id), "this session is already initialized");
        }
        let asked = params.get("protocolVersion").and_then(Value::as_str);
        let version = VERSIONS
            .into_iter()
            .find(|version| Some(*version) == asked)
            .unwrap_or(VERSIONS[0]);
        let capabilities = match rpc::object(params, "capabilities") {
            Ok(capabilities) => capabilities,
            Err(error) => return web::json(StatusCode::OK, &error.to_message(Some(id))),
        };
        let ended = self.end.child_token();
        let Some(session) = self.sessions.open(version, capabilities, ended) else {
            return web::empty(StatusCode::SERVICE_UNAVAILABLE);
        };
        let result = json!({
            "protocolVersion": session.version,
            "capabilities": describe::capabilities(),
            "serverInfo": {
                "name": "notes", "title": "Notes", "version": env!("CARGO_PKG_VERSION"),
            },
            "instructions": "Keeps notes. Add one with note_add, read it as a resource.",
        });
        let mut response = web::json(StatusCode::OK, &rpc::answer(id, &Ok(result)));
        if let Ok(name) = HeaderValue::from_str(&session.id) {
            response.headers_mut().insert(SESSION, name);
        }
        response
    }

    fn request(
        self: Arc<Self>,
        session: Arc<Session>,
        (id, method, params): (Value, String, Params),
    ) -> Response<Body> {
        if method == "tools/call" && tools::streams(&params) {
            let (events, response) = web::event_stream(session.ended.child_token());
            let running = session.begin(&id);
            let call = tools::Streamed {
                notes: self,
                session,
                events,
                id,
                params,
            };
            tokio::spawn(call.run(running));
            return response;
        }
        let outcome = self.outcome(&session, &method, &params);
        web::json(StatusCode::OK, &rpc::answer(&id, &outcome))
    }

    fn outcome(&self, session: &Session, method: &str, params: &Params) -> Result<Value, RpcError> {
        match method {
            "ping" => Ok(json!({})),
            "tools/list" => Ok(json!({ "tools": describe::tools() })),
            "tools/call" => tools::call(self, params),
            "resources/list" => Ok(self.list()),
            "resources/templates/list" => Ok(json!({ "resourceTemplates": describe::templates() })),
            "resources/read" => self.read(params),
            "resources/subscribe" => {
                let uri = rpc::text(params, "uri")?;
                self.known(uri)?;
                session.subscribe(uri);
                Ok(json!({}))
            }
            "resources/unsubscribe" => {
                session.unsubscribe(rpc::text(params, "uri")?);
                Ok(json!({}))
            }
            "prompts/list" => Ok(json!({ "prompts": describe::prompts() })),
            "prompts/get" => self.prompt(params),
            "completion/complete" => self.complete(params),
            "logging/setLevel" => {
                let severity = rpc::severity(rpc::text(params, "level")?)
                    .ok_or_else(|| RpcError::invalid_params("unknown log level"))?;
                session.set_severity(severity);
                Ok(json!({}))
            }
            other => Err(RpcError::method_not_found(other)),
        }
    }

    fn list(&self) -> Value {
        let resources: Vec<Value> = lock(&self.store)
            .all()
            .map(|(uri, note)| {
                json!({
                    "uri": uri,
                    "name": note.title,
                    "mimeType": "text/plain",
                    "size": note.text.len(),
                })
            })
            .collect();
        json!({ "resources": resources })
    }

    fn known(&self, uri: &str) -> Result<String, RpcError> {
        let store = lock(&self.store);
        let note = store.get(uri).ok_or_else(|| {
            RpcError::new(RESOURCE_NOT_FOUND, "resource not found").with_data(json!({ "uri": uri }))
        })?;
        Ok(note.text.clone())
    }

    fn read(&self, params: &Params) -> Result<Value, RpcError> {
        let uri = rpc::text(params, "uri")?;
        let text = self.known(uri)?;
        Ok(json!({ "contents": [{ "uri": uri, "mimeType": "text/plain", "text": text }] }))
    }

    fn prompt(&self, params: &Params) -> Result<Value, RpcError> {
        let name = rpc::text(params, "name")?;
        if name != "summarize" {
            return Err(RpcError::invalid_params(format!("unknown prompt: {name}")));
        }
        let arguments = rpc::object(params, "arguments")?;
        let title = rpc::text(&arguments, "title")?;
        let store = lock(&self.store);
        let note = store
            .by_title(title)
            .ok_or_else(|| RpcError::invalid_params(format!("there is no note {title:?}")))?;
        let text = format!("Summarize this note in one sentence:\n\n{}", note.text);
        Ok(json!({
            "description": format!("A summary of {title}"),
            "messages": [{ "role": "user", "content": { "type": "text", "text": text } }],
        }))
    }

    /// Titles complete the prompt's argument, numbers the template's.
    fn complete(&self, params: &Params) -> Result<Value, RpcError> {
        let reference = rpc::object(params, "ref")?;
        let argument = rpc::object(params, "argument")?;
        let typed = rpc::text(&argument, "value")?;
        let member = |name| reference.get(name).and_then(Value::as_str);
        let store = lock(&self.store);
        match (member("type"), member("name"), member("uri")) {
            (Some("ref/prompt"), Some("summarize"), _) => {
                let titles = store.all().map(|(_, note)| note.title.as_str());
                Ok(rpc::completion(typed, titles))
            }
            (Some("ref/resource"), _, Some("note://{number}")) => {
                let uris: Vec<String> = store.all().map(|(uri, _)| uri).collect();
                let numbers = uris
                    .iter()
                    .filter_map(|uri| uri.strip_prefix(store::SCHEME));
                Ok(rpc::completion(typed, numbers))
            }
            _ => Err(RpcError::invalid_params("unknown reference")),
        }
    }

    /// Tells every session that the list of notes is another.
    fn list_changed(&self) {
        let message = rpc::notification("notifications/resources/list_changed", &json!({}));
        for session in self.sessions.all() {
            session.push(&message);
        }
    }

    /// Tells those who subscribed that a note has changed.
    fn updated(&self, uri: &str) {
        let message = rpc::notification("notifications/resources/updated", &json!({ "uri": uri }));
        for session in self.sessions.all() {
            if session.is_subscribed(uri) {
                session.push(&message);
            }
        }
    }
}

#[cfg(test)]
mod tests;

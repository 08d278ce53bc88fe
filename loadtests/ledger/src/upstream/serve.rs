//! The upstream's HTTP side.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::{Notify, oneshot};

use super::answer::{Answer, empty, events, object};
use super::call::Run;
use super::ledger::Ledger;
use super::message::{self, Arguments};
use super::session::{Session, locked};
use super::stream::{Stream, place};
use super::watch::{Watcher, watch};
use crate::history::{Entry, Kind, now};

const MAX_BODY: usize = 1024 * 1024;
const SESSION: &str = "mcp-session-id";

/// Everything that all connections share.
#[derive(Debug)]
pub struct House {
    pub(super) ledger: Ledger,
    canaries: HashMap<String, String>,
    sessions: Mutex<HashMap<String, Arc<Session>>>,
    /// Streams of calls that can be resumed, by name.
    streams: Mutex<HashMap<String, Arc<Stream>>>,
    pub(super) questions: Mutex<HashMap<String, oneshot::Sender<()>>>,
    pub(super) watchers: Mutex<HashMap<String, Arc<Watcher>>>,
    counter: AtomicU64,
}

/// What is asked, and of which server.
struct Asked<'a> {
    tenant: &'a str,
    kind: Kind,
    session: Option<Arc<Session>>,
    last_event_id: Option<&'a str>,
}

/// Serves until the future is dropped.
///
/// # Errors
/// A listener that can no longer accept.
pub async fn serve(house: Arc<House>, listener: TcpListener) -> io::Result<()> {
    loop {
        let (stream, _peer) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let house = Arc::clone(&house);
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let house = Arc::clone(&house);
                async move { Ok::<_, Infallible>(house.answer(request).await) }
            });
            // a client that goes away is no event here
            let _gone = http1::Builder::new()
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

impl House {
    /// With a canary for each tenant.
    #[must_use]
    pub fn new(ledger: Ledger, canaries: HashMap<String, String>) -> Arc<Self> {
        Arc::new(Self {
            ledger,
            canaries,
            sessions: Mutex::default(),
            streams: Mutex::default(),
            questions: Mutex::default(),
            watchers: Mutex::default(),
            counter: AtomicU64::new(1),
        })
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Answer {
        let (head, body) = request.into_parts();
        let path = head.uri.path().to_owned();
        let Some((tenant, kind)) = path.trim_start_matches('/').split_once('/') else {
            return empty(StatusCode::NOT_FOUND);
        };
        let asked = Asked {
            tenant,
            kind: kind_of(kind),
            session: self.session(&head.headers),
            last_event_id: text(&head.headers, "last-event-id"),
        };
        let has_id = head.headers.contains_key(SESSION);
        if has_id && asked.session.is_none() {
            return empty(StatusCode::NOT_FOUND);
        }
        match head.method {
            Method::GET => self.get(&asked),
            Method::DELETE => empty(StatusCode::OK),
            Method::POST => {
                let Ok(body) = Limited::new(body, MAX_BODY).collect().await else {
                    return empty(StatusCode::BAD_REQUEST);
                };
                match serde_json::from_slice(&body.to_bytes()) {
                    Ok(message) => self.post(&asked, &message).await,
                    Err(_) => empty(StatusCode::BAD_REQUEST),
                }
            }
            _ => empty(StatusCode::METHOD_NOT_ALLOWED),
        }
    }

    fn session(&self, headers: &HeaderMap) -> Option<Arc<Session>> {
        let id = text(headers, SESSION)?;
        let sessions = locked(&self.sessions);
        sessions.get(id).map(Arc::clone)
    }

    fn get(&self, asked: &Asked<'_>) -> Answer {
        let Some(session) = &asked.session else {
            return empty(StatusCode::METHOD_NOT_ALLOWED);
        };
        let (stream, after) = match asked.last_event_id.map(place) {
            None => (Some(session.open_stream(&self.mint("get"))), 0),
            Some(None) => (None, 0),
            Some(Some((name, after))) => {
                let of_call = locked(&self.streams).get(name).map(Arc::clone);
                (of_call.or_else(|| session.stream(name)), after)
            }
        };
        let Some(stream) = stream else {
            return empty(StatusCode::NOT_FOUND);
        };
        events(stream, after, None)
    }

    async fn post(self: &Arc<Self>, asked: &Asked<'_>, message: &Value) -> Answer {
        let id = &message["id"];
        let Some(method) = message["method"].as_str() else {
            return self.answered(message).await;
        };
        let list = |name: &str| object(message::result(id, &serde_json::json!({ name: [] })));
        match method {
            "initialize" => self.initialize(asked, id),
            "tools/list" => object(message::tools(id)),
            "resources/list" => list("resources"),
            "resources/templates/list" => list("resourceTemplates"),
            "prompts/list" => list("prompts"),
            "tools/call" => self.call(asked, message).await,
            "ping" | "resources/subscribe" | "resources/unsubscribe" | "logging/setLevel" => {
                object(message::result(id, &serde_json::json!({})))
            }
            "notifications/cancelled" => {
                if let Some(session) = &asked.session {
                    session.cancel(&message["params"]["requestId"].to_string());
                }
                empty(StatusCode::ACCEPTED)
            }
            _ if id.is_null() => empty(StatusCode::ACCEPTED),
            _ => object(message::error(id, -32601, "no such method")),
        }
    }

    fn initialize(&self, asked: &Asked<'_>, id: &Value) -> Answer {
        let name = self.mint("session");
        let session = Arc::new(Session::of(asked.tenant));
        locked(&self.sessions).insert(name.clone(), session);
        let mut answer = object(message::initialized(id));
        if let Ok(name) = HeaderValue::from_str(&name) {
            answer.headers_mut().insert(SESSION, name);
        }
        answer
    }

    /// A response: the answer to a question of ours.
    async fn answered(&self, message: &Value) -> Answer {
        let question = message["id"].as_str().unwrap_or_default().to_owned();
        let content = &message["result"]["content"]["text"];
        let content = content
            .as_str()
            .map_or_else(|| message.to_string(), str::to_owned);
        let entry = Entry::Answered {
            at: now(),
            question: question.clone(),
            content,
        };
        if self.ledger.enter(&entry).await.is_err() {
            return empty(StatusCode::INTERNAL_SERVER_ERROR);
        }
        if let Some(waiting) = locked(&self.questions).remove(&question) {
            // its call may be over
            let _over = waiting.send(());
        }
        empty(StatusCode::ACCEPTED)
    }

    async fn call(self: &Arc<Self>, asked: &Asked<'_>, message: &Value) -> Answer {
        let (id, params) = (&message["id"], &message["params"]);
        let arguments = params["arguments"].clone();
        let arguments: Arguments = serde_json::from_value(arguments).unwrap_or_default();
        let entry = Entry::Called {
            at: now(),
            key: arguments.key.clone(),
        };
        if self.ledger.enter(&entry).await.is_err() {
            return empty(StatusCode::INTERNAL_SERVER_ERROR);
        }
        let Some(session) = &asked.session else {
            return empty(StatusCode::BAD_REQUEST);
        };
        let canary = self.canaries.get(&session.tenant).cloned();
        let canary = canary.unwrap_or_else(|| "nobody".to_owned());
        match params["name"].as_str() {
            Some("run") => self.run(asked.kind, session, message, (arguments, canary)),
            Some("watch") => {
                let Arguments {
                    key, watcher, stop, ..
                } = &arguments;
                let last = watch(self, session, watcher, &canary, *stop);
                object(message::text(id, &format!("{canary} {key} {last}")))
            }
            _ => object(message::text(
                id,
                &format!("{canary} {} end", arguments.key),
            )),
        }
    }

    fn run(
        self: &Arc<Self>,
        kind: Kind,
        session: &Arc<Session>,
        message: &Value,
        (arguments, canary): (Arguments, String),
    ) -> Answer {
        let name = kind.survives().then(|| self.mint("call"));
        let stream = Arc::new(Stream::new(name.clone()));
        if let Some(name) = name {
            locked(&self.streams).insert(name, Arc::clone(&stream));
        }
        let id = message["id"].clone();
        let cancelled = Arc::new(Notify::new());
        locked(&session.running).insert(id.to_string(), Arc::clone(&cancelled));
        let cut_after = Some(arguments.cut_after).filter(|after| *after > 0);
        let run = Run {
            house: Arc::clone(self),
            kind,
            canary,
            stream: Arc::clone(&stream),
            token: message["params"]["_meta"]["progressToken"].clone(),
            id,
            arguments,
        };
        let session = Arc::clone(session);
        tokio::spawn(async move {
            let id = run.id.to_string();
            let stream = Arc::clone(&run.stream);
            let (house, key) = (Arc::clone(&run.house), run.arguments.key.clone());
            tokio::select! {
                () = run.run() => {}
                () = cancelled.notified() => {
                    let entry = Entry::Cancelled { at: now(), key };
                    // without its line it counts as one that was lost
                    let _failed = house.ledger.enter(&entry).await;
                    stream.finish();
                }
            }
            locked(&session.running).remove(&id);
        });
        events(stream, 0, cut_after)
    }

    fn mint(&self, what: &str) -> String {
        format!("{what}-{}", self.counter.fetch_add(1, Ordering::Relaxed))
    }
}

fn kind_of(name: &str) -> Kind {
    let known = Kind::ALL.into_iter().find(|kind| kind.as_str() == name);
    known.unwrap_or(Kind::Resumable)
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

//! A scripted HTTP server, a connector in front of it, and short ways to call through.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::body::Body;
use bytes::Bytes;
use futures_util::StreamExt;
use http::{HeaderMap, Method as HttpMethod, Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use vestibule_egress::{Client, Options, Policy};
use vestibule_exchange::{
    Capabilities, Connector, Event, Events, Final, Outbound, RpcError, SessionKey, Sharing,
};
use vestibule_frame::{Draft, Frame, Limits};
use vestibule_metrics::Metrics;
use vestibule_terms::{Deadline, Era, Method, Record, SessionId, TenantId, UpstreamId};
use vestibule_upstream::{GatewayIdentity, Reach, Target, Targets, Upstreams};

/// One request as the server saw it.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) http: HttpMethod,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) raw: Bytes,
    pub(crate) body: Value,
}

impl Seen {
    pub(crate) fn method(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// A result for this request.
    pub(crate) fn result(&self, result: Value) -> Value {
        json!({ "jsonrpc": "2.0", "id": self.body["id"], "result": result })
    }

    /// An error for this request.
    pub(crate) fn error(&self, code: i64, data: Value) -> Value {
        let error = json!({ "code": code, "message": "no", "data": data });
        json!({ "jsonrpc": "2.0", "id": self.body["id"], "error": error })
    }
}

pub(crate) type Answering = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

/// A server whose every answer is a function of the request.
pub(crate) struct Server {
    pub(crate) url: String,
    seen: mpsc::Receiver<Seen>,
    log: Arc<Mutex<Vec<Seen>>>,
}

impl Server {
    pub(crate) async fn start<F>(answer: impl Fn(Seen) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Response<Body>> + Send + 'static,
    {
        Self::start_at(([127, 0, 0, 1], 0).into(), answer).await
    }

    /// The same, at an address that is known to be free.
    pub(crate) async fn start_at<F>(
        address: std::net::SocketAddr,
        answer: impl Fn(Seen) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Response<Body>> + Send + 'static,
    {
        let listener = TcpListener::bind(address).await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let (tell, seen) = mpsc::channel(10_000);
        let log = Arc::new(Mutex::new(Vec::new()));
        let answer: Arc<dyn Fn(Seen) -> Answering + Send + Sync> =
            Arc::new(move |seen| Box::pin(answer(seen)));
        tokio::spawn(accept(listener, answer, tell, Arc::clone(&log)));
        Self { url, seen, log }
    }

    /// Waits for the next request that `wanted` picks; others are passed over.
    pub(crate) async fn next(&mut self, wanted: impl Fn(&Seen) -> bool) -> Seen {
        let next = async {
            loop {
                let seen = self.seen.recv().await.expect("the server lives");
                if wanted(&seen) {
                    return seen;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(10), next)
            .await
            .expect("such a request comes")
    }

    /// Waits for the next message of that method.
    pub(crate) async fn next_method(&mut self, method: &str) -> Seen {
        self.next(|seen| seen.method() == method).await
    }

    /// Everything that was seen so far.
    pub(crate) fn log(&self) -> Vec<Seen> {
        self.log.lock().unwrap().clone()
    }

    /// How many messages of that method were seen so far.
    pub(crate) fn count(&self, method: &str) -> usize {
        self.log()
            .iter()
            .filter(|seen| seen.method() == method)
            .count()
    }
}

async fn accept(
    listener: TcpListener,
    answer: Arc<dyn Fn(Seen) -> Answering + Send + Sync>,
    tell: mpsc::Sender<Seen>,
    log: Arc<Mutex<Vec<Seen>>>,
) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (answer, tell, log) = (Arc::clone(&answer), tell.clone(), Arc::clone(&log));
        let service = service_fn(move |request: Request<Incoming>| {
            let (answer, tell, log) = (Arc::clone(&answer), tell.clone(), Arc::clone(&log));
            async move {
                let seen = read(request).await;
                log.lock().unwrap().push(seen.clone());
                tell.try_send(seen.clone()).unwrap();
                Ok::<_, Infallible>(answer(seen).await)
            }
        });
        tokio::spawn(async move {
            let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            let _closed = builder
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn read(request: Request<Incoming>) -> Seen {
    let (head, body) = request.into_parts();
    let raw = body.collect().await.unwrap().to_bytes();
    let body = serde_json::from_slice(&raw).unwrap_or(Value::Null);
    let path = head.uri.path().to_owned();
    Seen {
        http: head.method,
        path,
        headers: head.headers,
        raw,
        body,
    }
}

pub(crate) fn json_answer(status: u16, body: &Value) -> Response<Body> {
    Response::builder()
        .status(status)
        .header("content-type", "application/json")
        .body(Body::from(body.to_string()))
        .unwrap()
}

pub(crate) fn empty(status: u16) -> Response<Body> {
    Response::builder()
        .status(status)
        .body(Body::empty())
        .unwrap()
}

/// An event stream of that text, which ends.
pub(crate) fn sse(text: String) -> Response<Body> {
    stream(Body::from(text))
}

/// An event stream of that text, which does not end; the receiver hears when it is given up.
pub(crate) fn open_sse(text: String) -> (Response<Body>, mpsc::Receiver<()>) {
    let (given_up, hears) = mpsc::channel(1);
    let first = futures_util::stream::once(async move { Ok::<_, Infallible>(Bytes::from(text)) });
    let rest = futures_util::stream::once(async move {
        let _held = given_up;
        std::future::pending::<Result<Bytes, Infallible>>().await
    });
    (stream(Body::from_stream(first.chain(rest))), hears)
}

fn stream(body: Body) -> Response<Body> {
    Response::builder()
        .header("content-type", "text/event-stream")
        .body(body)
        .unwrap()
}

/// One event.
pub(crate) fn event(data: &Value) -> String {
    format!("event: message\ndata: {data}\n\n")
}

/// The capabilities that servers here declare.
pub(crate) fn modern_discover(seen: &Seen) -> Response<Body> {
    let result = json!({
        "resultType": "complete", "supportedVersions": ["2026-07-28"],
        "capabilities": { "tools": {} }, "ttlMs": 60000, "cacheScope": "public",
    });
    json_answer(200, &seen.result(result))
}

/// What a server with a handshake answers besides the calls of a test; none for those.
pub(crate) fn legacy_frame(
    seen: &Seen,
    version: &str,
    session: Option<&str>,
) -> Option<Response<Body>> {
    let result = json!({
        "protocolVersion": version, "capabilities": { "tools": {}, "logging": {} },
        "serverInfo": { "name": "s", "version": "1" },
    });
    match (&seen.http, seen.method()) {
        (&HttpMethod::GET, _) => Some(empty(405)),
        (&HttpMethod::DELETE, _) => Some(empty(200)),
        (_, "server/discover") => Some(json_answer(400, &seen.error(-32601, Value::Null))),
        (_, "initialize") => {
            let mut answer = json_answer(200, &seen.result(result));
            if let Some(session) = session {
                answer
                    .headers_mut()
                    .insert("mcp-session-id", session.parse().unwrap());
            }
            Some(answer)
        }
        (_, "logging/setLevel") => Some(json_answer(200, &seen.result(json!({})))),
        (_, method) if method.starts_with("notifications/") => Some(empty(202)),
        (_, "") => Some(empty(202)),
        (_, _) => None,
    }
}

/// A connector in front of one upstream.
pub(crate) struct World {
    pub(crate) upstreams: Upstreams,
    pub(crate) targets: Arc<ArcSwap<Targets>>,
    pub(crate) metrics: Metrics,
}

pub(crate) fn tenant() -> TenantId {
    TenantId::new("t").unwrap()
}

pub(crate) fn upstream() -> UpstreamId {
    UpstreamId::new("up").unwrap()
}

pub(crate) fn http_target(url: &str) -> Target {
    Target::new(
        upstream(),
        Reach::Http {
            url: url.parse().unwrap(),
        },
    )
}

impl World {
    pub(crate) fn new(target: Target) -> Self {
        let loopback = match &target.reach {
            Reach::Http { url } => Policy::literal_loopback(url),
            Reach::Stdio { .. } => None,
        };
        let policy = Policy::default().allow_literal_loopback(loopback);
        let client = Client::new(Arc::new(policy), &Options::default());
        let targets = Targets::new([(tenant(), target)]).unwrap();
        let targets = Arc::new(ArcSwap::from_pointee(targets));
        let metrics = Metrics::new("0", "0");
        let identity = GatewayIdentity {
            name: "gate".to_owned(),
            version: "9".to_owned(),
        };
        let upstreams = Upstreams::new(Arc::clone(&targets), client, metrics.clone(), &identity);
        Self {
            upstreams,
            targets,
            metrics,
        }
    }

    pub(crate) fn http(server: &Server) -> Self {
        Self::new(http_target(&server.url))
    }

    pub(crate) async fn events(&self, outbound: Outbound) -> Events {
        self.upstreams.call(outbound).await
    }

    /// Calls and waits for the end.
    pub(crate) async fn end(&self, outbound: Outbound) -> Final {
        let mut events = self.events(outbound).await;
        loop {
            if let Event::Final(end) = next(&mut events).await {
                return end;
            }
        }
    }

    /// Calls and expects a response.
    pub(crate) async fn message(&self, outbound: Outbound) -> Value {
        match self.end(outbound).await {
            Final::Message(draft) => serde_json::from_slice(&draft.to_bytes()).unwrap(),
            end => panic!("{end:?}"),
        }
    }

    /// Calls and expects an error of ours.
    pub(crate) async fn error(&self, outbound: Outbound) -> RpcError {
        match self.end(outbound).await {
            Final::Error(error) => error,
            end => panic!("{end:?}"),
        }
    }

    pub(crate) async fn code(&self, outbound: Outbound) -> i64 {
        self.error(outbound).await.code
    }
}

/// The next event; the test fails when none comes.
pub(crate) async fn next(events: &mut Events) -> Event {
    let next = tokio::time::timeout(Duration::from_secs(20), events.next());
    next.await
        .expect("an event comes")
        .expect("the stream goes on")
}

pub(crate) fn reason(error: &RpcError) -> String {
    let data: Value = serde_json::from_slice(error.data.as_deref().unwrap_or(b"{}")).unwrap();
    data["reason"].as_str().unwrap_or_default().to_owned()
}

pub(crate) fn draft(message: &Value) -> Draft {
    let bytes = Bytes::from(message.to_string());
    Draft::new(Frame::parse(bytes, &Limits::default()).unwrap())
}

/// A call with the client's own id in it.
pub(crate) fn call(method: Method, params: Value) -> Outbound {
    let message =
        json!({ "jsonrpc": "2.0", "id": 101, "method": method.as_str(), "params": params });
    Outbound {
        tenant: tenant(),
        upstream: upstream(),
        sharing: Sharing::Principal(Arc::from("p")),
        era: Era::Modern,
        method,
        message: draft(&message),
        name: None,
        param_headers: Vec::new(),
        capabilities: Arc::new(Capabilities::default()),
        log_level: None,
        progress: false,
        deadline: Deadline::starting_now(Duration::from_secs(30), Duration::from_secs(60)),
        record: Record::default(),
        inlet: None,
        continues: None,
    }
}

pub(crate) fn tool(name: &str) -> Outbound {
    let outbound = call(Method::ToolsCall, json!({ "name": name, "arguments": {} }));
    Outbound {
        name: Some(name.to_owned()),
        ..outbound
    }
}

pub(crate) fn list() -> Outbound {
    call(Method::ToolsList, json!({}))
}

pub(crate) fn client_session(name: &str) -> SessionKey {
    SessionKey {
        tenant: tenant(),
        session: SessionId::new(name),
    }
}

//! What the tests of this room share: a stage below that does what a closure says, requests with
//! the facts that earlier layers would have written, and answers taken apart.

use std::convert::Infallible;
use std::future::Ready;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method as Verb, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;
use tokio::sync::watch;
use tower::Service;
use vestibule_exchange::view::CacheScope;
use vestibule_exchange::{
    Backchannel, BoxFuture, Call, Capabilities, Closing, Event, Events, Final, Inlet, Question,
    QuestionRef, RpcError, ServerView, SessionKey, Sharing,
};
use vestibule_frame::body::FrameBody;
use vestibule_frame::head::Head;
use vestibule_frame::{Draft, Frame, Id, Limits, Payload};
use vestibule_metrics::Metrics;
use vestibule_store::{Alone, Caps, Keyring, Sealer};
use vestibule_terms::accept::Accepts;
use vestibule_terms::clock::ManualClock;
use vestibule_terms::plan::Visibility;
use vestibule_terms::{
    Deadline, Method, Principal, Record, Revision, ServerId, ServerKind, ServerPlan, TenantId,
    UpstreamId,
};

use crate::{Admission, Identity, SessionRooms, SessionService, Supervisor};

mod fleet;
mod log;
mod store;

pub(crate) use fleet::Heard;
pub(crate) use log::MoodyLog;
pub(crate) use store::Moody;

type Answer = Arc<dyn Fn(Call) -> Events + Send + Sync>;

/// The stage below.
#[derive(Clone)]
pub(crate) struct Below(Answer);

impl Service<Call> for Below {
    type Response = Events;
    type Error = Infallible;
    type Future = Ready<Result<Events, Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: Call) -> Self::Future {
        std::future::ready(Ok((self.0)(call)))
    }
}

/// What went through the backchannel, as text.
#[derive(Debug, Default)]
pub(crate) struct Back {
    notes: Arc<Mutex<Vec<String>>>,
    /// True while upstreams take their time over answers.
    slow: watch::Sender<bool>,
    /// What the next answers are refused with.
    refusals: Mutex<Vec<RpcError>>,
}

impl Back {
    pub(crate) fn taken(&self) -> Vec<String> {
        std::mem::take(&mut self.notes.lock().unwrap())
    }

    pub(crate) fn be_slow(&self, slow: bool) {
        self.slow.send_replace(slow);
    }

    pub(crate) fn refuse_next(&self, error: RpcError) {
        self.refusals.lock().unwrap().push(error);
    }

    fn note(&self, text: String) {
        self.notes.lock().unwrap().push(text);
    }
}

impl Backchannel for Back {
    fn answer(&self, to: QuestionRef, answer: Draft) -> BoxFuture<Result<(), RpcError>> {
        if let Some(error) = self.refusals.lock().unwrap().pop() {
            return Box::pin(std::future::ready(Err(error)));
        }
        let text = String::from_utf8(answer.to_bytes().to_vec()).unwrap();
        let note = format!("answer {} {text}", to.id);
        let (notes, mut slow) = (Arc::clone(&self.notes), self.slow.subscribe());
        Box::pin(async move {
            let _gone = slow.wait_for(|slow| !slow).await.is_err();
            notes.lock().unwrap().push(note);
            Ok(())
        })
    }

    fn deliver(
        &self,
        to: QuestionRef,
        answer: Draft,
        _capabilities: Arc<Capabilities>,
        _inlet: Arc<dyn Inlet>,
    ) -> BoxFuture<Result<(), RpcError>> {
        self.answer(to, answer)
    }

    fn notify(&self, _session: SessionKey, message: Draft) -> BoxFuture<()> {
        let text = String::from_utf8(message.to_bytes().to_vec()).unwrap();
        self.note(format!("notify {text}"));
        Box::pin(std::future::ready(()))
    }

    fn close(&self, _session: SessionKey, closing: Closing) -> BoxFuture<()> {
        self.note(match closing {
            Closing::Here(kept) => {
                let names = kept.iter().map(|(upstream, _)| format!(" {upstream}"));
                format!("close{}", names.collect::<String>())
            }
            Closing::Elsewhere => "leave".to_owned(),
        });
        Box::pin(std::future::ready(()))
    }
}

/// A plan of one upstream that serves every revision.
pub(crate) fn plan() -> ServerPlan {
    ServerPlan {
        visibility: Visibility::Everything,
        ..ServerPlan::new(
            TenantId::new("acme").unwrap(),
            ServerId::new("default").unwrap(),
            ServerKind::Transparent(upstream()),
        )
    }
}

pub(crate) fn upstream() -> UpstreamId {
    UpstreamId::new("up").unwrap()
}

/// The revisions from `first` to `last`.
pub(crate) fn between(first: Revision, last: Revision) -> Vec<Revision> {
    Revision::ALL
        .into_iter()
        .filter(|one| (first..=last).contains(one))
        .collect()
}

/// A server with everything.
pub(crate) fn view() -> ServerView {
    ServerView {
        tools: true,
        prompts: true,
        resources: true,
        subscribe: true,
        completions: true,
        logging: true,
        extensions: Vec::new(),
        instructions: Some("Say \"please\".".to_owned()),
        ttl_ms: 60_000,
        scope: CacheScope::Public,
    }
}

pub(crate) fn draft(text: &str) -> Draft {
    let text = Bytes::copy_from_slice(text.as_bytes());
    Draft::new(Frame::parse(text, &Limits::default()).unwrap())
}

/// An upstream's result.
pub(crate) fn result(text: &str) -> Final {
    Final::Message(draft(&format!(
        r#"{{"jsonrpc":"2.0","id":"g-1","result":{text}}}"#
    )))
}

pub(crate) fn progress(value: u32) -> Event {
    Event::Progress(draft(&format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":"g","progress":{value}}}}}"#
    )))
}

pub(crate) fn question(id: i64, method: Method, params: &str) -> Question {
    let text = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"{}","params":{params}}}"#,
        method.as_str()
    );
    let from = QuestionRef {
        tenant: TenantId::new("acme").unwrap(),
        upstream: upstream(),
        sharing: Sharing::Catalog,
        id: Id::integer(id),
        asked_as: Id::integer(id),
    };
    Question {
        from,
        method,
        message: draft(&text),
    }
}

/// One room over a closure, with everything real above and below it.
pub(crate) struct House {
    pub(crate) service: SessionService<Below>,
    pub(crate) back: Arc<Back>,
    pub(crate) plan: ServerPlan,
    pub(crate) principal: Principal,
    pub(crate) accepts: Accepts,
    pub(crate) metrics: Metrics,
    /// Where sessions are kept; it can be away.
    pub(crate) store: Arc<Moody>,
    pub(crate) log: Arc<MoodyLog>,
    pub(crate) fleet: Arc<Heard>,
    rooms: SessionRooms,
}

impl House {
    /// An upstream session is written down for that session.
    pub(crate) async fn keep(&self, session: &str, upstream: &str) {
        let (tenant, principal) = (&self.plan.tenant, self.principal.binding());
        let session = vestibule_terms::SessionId::new(session);
        let key = vestibule_store::SessionKey::new(tenant, &principal, &session);
        let record = Bytes::from_static(b"record");
        let keep =
            self.rooms
                .sessions
                .keep(&key, vestibule_store::Kind::Upstream, upstream, record);
        assert!(keep.await.unwrap().is_some());
    }

    pub(crate) fn new(answer: impl Fn(Call) -> Events + Send + Sync + 'static) -> Self {
        Self::with_caps(answer, Caps::default())
    }

    /// As [`House::new`]; every server is described in full.
    pub(crate) fn with_caps(
        answer: impl Fn(Call) -> Events + Send + Sync + 'static,
        caps: Caps,
    ) -> Self {
        let described = move |call: Call| {
            if matches!(call.method, Method::Initialize | Method::ServerDiscover) {
                return Events::ready(Final::View(Box::new(view())));
            }
            answer(call)
        };
        Self::raw(described, caps)
    }

    /// A house whose stage below answers everything by the closure.
    pub(crate) fn raw(answer: impl Fn(Call) -> Events + Send + Sync + 'static, caps: Caps) -> Self {
        Self::built(answer, caps, Arc::new(|_, _| true))
    }

    /// A house that lets in whom the closure admits, and whose calls end at once.
    pub(crate) fn admitting(
        admits: impl Fn(&Principal, &ServerId) -> bool + Send + Sync + 'static,
    ) -> Self {
        let described = |_: Call| Events::ready(Final::View(Box::new(view())));
        Self::built(described, Caps::default(), Arc::new(admits))
    }

    fn built(
        answer: impl Fn(Call) -> Events + Send + Sync + 'static,
        caps: Caps,
        admission: Admission,
    ) -> Self {
        let clock = Arc::new(ManualClock::at(1_700_000_000_000));
        let sealer = Sealer::new(Keyring::generate());
        let metrics = Metrics::new("0", "0");
        let back = Arc::new(Back::default());
        let store = Arc::new(Moody::new(Arc::clone(&clock) as _));
        let log = Arc::new(MoodyLog::new(sealer.clone()));
        let fleet = Arc::<Heard>::default();
        let rooms = SessionRooms {
            sessions: Arc::clone(&store) as _,
            log: Arc::clone(&log) as _,
            sealer,
            metrics: metrics.clone(),
            identity: Identity::new("vestibule", "1.2.3", None),
            clock,
            caps: Arc::new(move |_| caps),
            fleet: Arc::clone(&fleet) as _,
            plans: Arc::new(|_, _| Some(Arc::new(plan()))),
            admission,
            toll: Arc::new(|_, _| Box::pin(async { Ok(Box::new(()) as crate::Permit) })),
        };
        let plan = plan();
        Self {
            service: SessionService::new(
                Below(Arc::new(answer)),
                Arc::clone(&back) as Arc<dyn Backchannel>,
                rooms.clone(),
            ),
            rooms,
            back,
            principal: Principal::anonymous(plan.tenant.clone()),
            plan,
            accepts: Accepts::ANY,
            metrics,
            store,
            log,
            fleet,
        }
    }

    /// The process that comes after this one: this one is dead to it.
    pub(crate) fn successor(&self) -> Self {
        self.with_rooms(SessionRooms {
            fleet: Arc::new(Alone::new()),
            ..self.rooms.clone()
        })
    }

    /// Another process on the same store, log and keys.
    pub(crate) fn beside(&self) -> Self {
        self.with_rooms(self.rooms.clone())
    }

    /// The process that comes after this one, over another stage.
    pub(crate) fn succeeded_by(
        &self,
        answer: impl Fn(Call) -> Events + Send + Sync + 'static,
    ) -> Self {
        let rooms = SessionRooms {
            fleet: Arc::new(Alone::new()),
            ..self.rooms.clone()
        };
        self.with_rooms_over(rooms, Below(Arc::new(answer)))
    }

    fn with_rooms(&self, rooms: SessionRooms) -> Self {
        let below = Below(Arc::new(|call: Call| {
            if call.method == Method::Initialize {
                return Events::ready(Final::View(Box::new(view())));
            }
            Events::ready(result("{}"))
        }));
        self.with_rooms_over(rooms, below)
    }

    fn with_rooms_over(&self, rooms: SessionRooms, below: Below) -> Self {
        let back = Arc::new(Back::default());
        Self {
            service: SessionService::new(
                below,
                Arc::clone(&back) as Arc<dyn Backchannel>,
                rooms.clone(),
            ),
            back,
            plan: self.plan.clone(),
            principal: self.principal.clone(),
            accepts: self.accepts,
            metrics: self.metrics.clone(),
            store: Arc::clone(&self.store),
            log: Arc::clone(&self.log),
            fleet: Arc::clone(&self.fleet),
            rooms,
        }
    }

    pub(crate) fn supervisor(&self) -> Supervisor {
        self.service.supervisor()
    }

    pub(crate) fn request(
        &self,
        verb: Verb,
        headers: &[(&str, &str)],
        body: Option<&str>,
    ) -> Request<FrameBody> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            map.append(name, HeaderValue::from_str(value).unwrap());
        }
        let mut request = Request::new(FrameBody::new(Body::empty(), 1 << 22));
        *request.method_mut() = verb;
        let facts = request.extensions_mut();
        facts.insert(Record::default());
        facts.insert(Arc::new(self.plan.clone()));
        facts.insert(Arc::new(self.principal.clone()));
        facts.insert(Deadline::starting_now(
            self.plan.call_idle,
            self.plan.call_total,
        ));
        facts.insert(Arc::new(Head::read(&map)));
        facts.insert(self.accepts);
        if let Some(body) = body {
            let body = Bytes::copy_from_slice(body.as_bytes());
            facts.insert(Payload::parse(body, &Limits::default()).unwrap());
        }
        request
    }

    pub(crate) async fn send(&self, request: Request<FrameBody>) -> Got {
        let response = self.service.clone().call(request).await.unwrap();
        Got(response)
    }

    pub(crate) async fn post(&self, headers: &[(&str, &str)], body: &str) -> Got {
        self.send(self.request(Verb::POST, headers, Some(body)))
            .await
    }

    /// A stateless request with the right headers.
    pub(crate) async fn modern(&self, method: &str, params: &str) -> Got {
        self.modern_with(method, params, "").await
    }

    /// The same with more members in `_meta`, each with a comma before it.
    pub(crate) async fn modern_with(&self, method: &str, params: &str, meta: &str) -> Got {
        let body = modern_body(method, params, meta);
        let mut headers = vec![
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", method),
        ];
        if method == "tools/call" {
            headers.push(("mcp-name", "t"));
        }
        self.post(&headers, &body).await
    }

    /// Opens a session of that revision and says that the client is ready.
    pub(crate) async fn open(&self, revision: Revision, capabilities: &str) -> String {
        let id = self.open_only(revision, capabilities).await;
        let ready = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        assert_eq!(
            self.post(&[("mcp-session-id", &id)], ready).await.status(),
            202
        );
        id
    }

    pub(crate) async fn open_only(&self, revision: Revision, capabilities: &str) -> String {
        let body = initialize(revision.as_str(), capabilities);
        let got = self.post(&[], &body).await;
        assert_eq!(got.status(), 200);
        got.header("mcp-session-id").unwrap().to_owned()
    }

    pub(crate) async fn in_session(&self, session: &str, body: &str) -> Got {
        self.post(&[("mcp-session-id", session)], body).await
    }

    pub(crate) async fn get(&self, headers: &[(&str, &str)]) -> Got {
        self.send(self.request(Verb::GET, headers, None)).await
    }

    pub(crate) async fn delete(&self, headers: &[(&str, &str)]) -> Got {
        self.send(self.request(Verb::DELETE, headers, None)).await
    }
}

pub(crate) fn initialize(version: &str, capabilities: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{version}","capabilities":{capabilities},"clientInfo":{{"name":"c","version":"1"}}}}}}"#
    )
}

pub(crate) fn modern_body(method: &str, params: &str, meta: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"{method}","params":{{{params}{}"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{}}{meta}}}}}}}"#,
        if params.is_empty() { "" } else { "," }
    )
}

pub(crate) fn call(id: &str, meta: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"t","arguments":{{}},"_meta":{{{meta}}}}}}}"#
    )
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Got(http::Response<Body>);

/// One event of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Item {
    /// An event with its id and its data.
    Event(Option<String>, String),
    /// `retry:`.
    Retry(u64),
    /// A comment.
    Comment,
}

impl Item {
    pub(crate) fn json(&self) -> Value {
        let Item::Event(_, data) = self else {
            panic!("no message: {self:?}")
        };
        serde_json::from_str(data).unwrap()
    }

    pub(crate) fn id(&self) -> String {
        let Item::Event(Some(id), _) = self else {
            panic!("no id: {self:?}")
        };
        id.clone()
    }
}

impl Got {
    pub(crate) fn of(response: http::Response<Body>) -> Self {
        Self(response)
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.0.status()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.0
            .headers()
            .get(name)
            .map(|value| value.to_str().unwrap())
    }

    pub(crate) fn is_stream(&self) -> bool {
        self.header("content-type") == Some("text/event-stream")
    }

    pub(crate) async fn text(self) -> String {
        let bytes = self.0.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    pub(crate) async fn json(self) -> Value {
        assert_eq!(self.header("content-type"), Some("application/json"));
        serde_json::from_str(&self.text().await).unwrap()
    }

    /// The code of the error.
    pub(crate) async fn code(self) -> i64 {
        self.json().await["error"]["code"].as_i64().unwrap()
    }

    /// The next item of the stream; none at its end.
    pub(crate) async fn next(&mut self) -> Option<Item> {
        let frame = self
            .0
            .body_mut()
            .frame()
            .await?
            .expect("the stream is not broken off");
        Some(item(&frame.into_data().unwrap()))
    }

    /// Whether the stream is broken off rather than ended.
    pub(crate) async fn is_broken(&mut self) -> bool {
        loop {
            match self.0.body_mut().frame().await {
                None => return false,
                Some(Err(_)) => return true,
                Some(Ok(_)) => {}
            }
        }
    }

    /// Everything that is left of the stream, comments apart.
    pub(crate) async fn rest(mut self) -> Vec<Item> {
        let mut items = Vec::new();
        while let Some(item) = self.next().await {
            if item != Item::Comment {
                items.push(item);
            }
        }
        items
    }
}

fn item(bytes: &[u8]) -> Item {
    let text = std::str::from_utf8(bytes).unwrap();
    if text.starts_with(':') {
        return Item::Comment;
    }
    let field = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name))
            .map(|value| value.trim().to_owned())
    };
    match field("retry:") {
        Some(millis) => Item::Retry(millis.parse().unwrap()),
        None => Item::Event(field("id:"), field("data:").unwrap_or_default()),
    }
}

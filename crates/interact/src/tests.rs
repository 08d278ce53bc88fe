//! The stage over a scripted router and a connector that remembers answers.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "a test looks for the one variant it expects"
)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tower::{Service, service_fn};
use vestibule_exchange::{
    Answers, Arrival, BoxFuture, Call, Capabilities, Closing, Connector, Event, Events, Final,
    Inlet, Outbound, Profile, Question, QuestionRef, RpcError, SessionKey, Sharing,
};
use vestibule_frame::{Draft, Frame, Id, Limits, encode};
use vestibule_store::{Keyring, Sealer};
use vestibule_terms::clock::ManualClock;
use vestibule_terms::plan::Visibility;
use vestibule_terms::{
    Clock, Deadline, Era, Method, Principal, Record, Revision, ServerId, ServerKind, ServerPlan,
    SessionId, TenantId, UpstreamId,
};

use crate::Interact;

fn up(id: &str) -> UpstreamId {
    UpstreamId::new(id).unwrap()
}

fn tenant() -> TenantId {
    TenantId::new("t").unwrap()
}

fn draft(text: &str) -> Draft {
    Draft::new(Frame::parse(Bytes::from(text.to_owned()), &Limits::default()).unwrap())
}

fn text(draft: &Draft) -> String {
    String::from_utf8(draft.to_bytes().to_vec()).unwrap()
}

fn json(draft: &Draft) -> serde_json::Value {
    serde_json::from_slice(&draft.to_bytes()).unwrap()
}

/// Remembers answers; knows one era for all upstreams.
struct Upstreams {
    revision: Revision,
    answers: Mutex<Vec<(QuestionRef, String)>>,
    closed: Mutex<Vec<SessionKey>>,
}

impl Connector for Upstreams {
    fn call(&self, _: Outbound) -> BoxFuture<Events> {
        unreachable!("interact never calls")
    }

    fn answer(&self, to: QuestionRef, answer: Draft) -> BoxFuture<Result<(), RpcError>> {
        self.answers.lock().unwrap().push((to, text(&answer)));
        Box::pin(async { Ok(()) })
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

    fn notify(&self, _: SessionKey, _: Draft) -> BoxFuture<()> {
        Box::pin(async {})
    }

    fn close(&self, session: SessionKey, _: Closing) -> BoxFuture<()> {
        self.closed.lock().unwrap().push(session);
        Box::pin(async {})
    }

    fn profile(
        &self,
        _: TenantId,
        upstream: UpstreamId,
        _era: Era,
    ) -> BoxFuture<Result<Arc<Profile>, RpcError>> {
        Box::pin(async move { Err(RpcError::unavailable(&upstream, "test")) })
    }

    fn known_profile(&self, _: &TenantId, _: &UpstreamId, _: Era) -> Option<Arc<Profile>> {
        Some(Arc::new(Profile {
            revision: self.revision,
            over_http: true,
            capabilities: Bytes::from_static(b"{}"),
            instructions: None,
        }))
    }
}

/// A stage whose router answers by a script and remembers what it was asked.
struct World {
    upstreams: Arc<Upstreams>,
    clock: Arc<ManualClock>,
    sealer: Sealer,
    plan: ServerPlan,
    revision: Revision,
    subject: &'static str,
    capabilities: Capabilities,
    seen: Arc<Mutex<Vec<String>>>,
}

impl World {
    fn new(client: Revision, upstream: Revision) -> Self {
        let every = br#"{"roots":{},"sampling":{"tools":{}},"elicitation":{"form":{},"url":{}}}"#;
        Self {
            upstreams: Arc::new(Upstreams {
                revision: upstream,
                answers: Mutex::default(),
                closed: Mutex::default(),
            }),
            clock: Arc::new(ManualClock::at(1_900_000_000_000)),
            sealer: Sealer::new(Keyring::generate()),
            plan: plan(ServerKind::Federated(vec![up("a"), up("b")])),
            revision: client,
            subject: "me",
            capabilities: Capabilities::parse(every),
            seen: Arc::default(),
        }
    }

    fn modern() -> Self {
        Self::new(Revision::R2026_07_28, Revision::R2026_07_28)
    }

    fn legacy() -> Self {
        Self::new(Revision::R2025_11_25, Revision::R2025_11_25)
    }

    fn session(&self) -> SessionKey {
        SessionKey {
            tenant: tenant(),
            session: SessionId::new("sid"),
        }
    }

    fn call(&self, method: Method, params: &str) -> Call {
        let text = encode::request(&Id::integer(1), method.as_str(), Some(params.as_bytes()));
        let principal = Principal {
            subject: Arc::from(self.subject),
            ..Principal::anonymous(tenant())
        };
        Call {
            plan: Arc::new(self.plan.clone()),
            principal: Arc::new(principal),
            record: Record::default(),
            revision: self.revision,
            method,
            message: Draft::new(Frame::parse(text, &Limits::default()).unwrap()),
            session: (!self.revision.is_modern()).then(|| self.session()),
            capabilities: Arc::new(self.capabilities.clone()),
            log_level: None,
            progress: false,
            param_headers: Arc::new([]),
            deadline: Deadline::starting_now(Duration::from_secs(60), Duration::from_secs(600)),
            inlet: None,
            continues: None,
            rounds: vestibule_exchange::Rounds::default(),
        }
    }

    /// One call through a fresh stage whose router ends with `result`, answered by upstream `a`.
    async fn end(&self, method: Method, params: &str, result: &str) -> Final {
        self.asked(self.call(method, params), result).await
    }

    /// The end of a call whose upstream `a` answers with `result`.
    async fn asked(&self, call: Call, result: &str) -> Final {
        let response = format!(r#"{{"jsonrpc":"2.0","id":9,"result":{result}}}"#);
        let ready = move || Events::ready(Final::Message(draft(&response)));
        let events = self.events(call, ready).await;
        events.into_ready().expect("ended at once")
    }

    /// A call whose client takes a stream.
    fn askable(&self, params: &str) -> Call {
        let mut call = self.call(Method::ToolsCall, params);
        call.rounds.asks = true;
        call
    }

    async fn events(
        &self,
        call: Call,
        events: impl Fn() -> Events + Clone + Send + Sync + 'static,
    ) -> Events {
        let seen = Arc::clone(&self.seen);
        let router = service_fn(move |call: Call| {
            seen.lock().unwrap().push(text(&call.message));
            call.record.set_upstream(up("a"));
            let events = events();
            async move { Ok(events) }
        });
        self.stage(router).call(call).await.unwrap()
    }

    fn stage<S>(&self, router: S) -> Interact<S> {
        let connector = Arc::clone(&self.upstreams) as Arc<dyn Connector>;
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        Interact::new(router, connector, self.sealer.clone(), clock)
    }

    fn seen(&self) -> Vec<String> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }

    fn answers(&self) -> Vec<String> {
        self.upstreams
            .answers
            .lock()
            .unwrap()
            .iter()
            .map(|(_, text)| text.clone())
            .collect()
    }
}

fn plan(kind: ServerKind) -> ServerPlan {
    ServerPlan {
        visibility: Visibility::Everything,
        ..ServerPlan::new(tenant(), ServerId::new("s").unwrap(), kind)
    }
}

const CALL: &str = r#"{"name":"a__t","arguments":{"n":1}}"#;
const ASK: &str = r#"{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":{"message":"Name?","requestedSchema":{}}}},"requestState":"s\u0074\/1"}"#;

/// A retry of `CALL` with this state.
fn retry(state: &str) -> String {
    format!(
        r#"{{"name":"a__t","arguments":{{"n":1.0}},"inputResponses":{{"k":{{"action":"accept"}}}},"requestState":{state}}}"#
    )
}

fn message(end: Final) -> Draft {
    match end {
        Final::Message(draft) => draft,
        other => panic!("not a message: {other:?}"),
    }
}

fn code(end: Final) -> i64 {
    match end {
        Final::Error(error) => error.code,
        other => panic!("not an error: {other:?}"),
    }
}

async fn state_of(world: &World, result: &str) -> String {
    let draft = message(world.end(Method::ToolsCall, CALL, result).await);
    json(&draft)["result"]["requestState"].to_string()
}

/// XT-150, MRT-11, MRT-14: the client sees a sealed state, the upstream gets its exact token back,
/// and the answers pass untouched; the question says who asks (ELI-09).
#[tokio::test]
async fn xt_150_an_upstreams_state_makes_the_round_exactly() {
    let world = World::modern();
    let asked = message(world.end(Method::ToolsCall, CALL, ASK).await);
    let value = json(&asked);
    let question = &value["result"]["inputRequests"]["k"];
    assert_eq!(question["params"]["message"], "[a] Name?");
    let state = value["result"]["requestState"].to_string();
    assert!(
        !text(&asked).contains(r"s\u0074"),
        "the state must be sealed"
    );
    message(
        world
            .end(
                Method::ToolsCall,
                &retry(&state),
                r#"{"resultType":"complete"}"#,
            )
            .await,
    );
    let seen = world.seen().pop().unwrap();
    assert!(seen.contains(r#""requestState":"s\u0074\/1""#), "{seen}");
    assert!(
        seen.contains(r#""inputResponses":{"k":{"action":"accept"}}"#),
        "{seen}"
    );
}

/// XT-150: an upstream without a state receives none, though the client had one to bring.
#[tokio::test]
async fn xt_150_no_state_given_none_sent() {
    let world = World::modern();
    let ask = ASK.replace(r#","requestState":"s\u0074\/1""#, "");
    let state = state_of(&world, &ask).await;
    assert!(state.len() > 20);
    world.end(Method::ToolsCall, &retry(&state), "{}").await;
    assert!(!world.seen().pop().unwrap().contains("requestState"));
    // Null is no state, and answers to questions that came without one pass.
    message(world.end(Method::ToolsCall, &retry("null"), "{}").await);
    let seen = world.seen().pop().unwrap();
    assert!(
        !seen.contains("requestState") && seen.contains("inputResponses"),
        "{seen}"
    );
}

/// Case 105, XT-152, T45: another caller, tool, arguments, method, server, time, or a flipped byte.
#[tokio::test]
async fn case_105_a_state_fits_only_its_own_call() {
    let mut world = World::modern();
    let state = state_of(&world, ASK).await;
    let good = retry(&state);
    let refused = |end: Final| match end {
        Final::Error(error) => assert_eq!(error, crate::state::invalid()),
        other => panic!("passed: {other:?}"),
    };
    for bad in [
        good.replace("a__t", "b__t"),
        good.replace(r#""n":1.0"#, r#""n":2"#),
        good.replace(r#","requestState":""#, r#","requestState":"1m.AAAA"#),
        retry(r#""plain""#),
        retry("7"),
        {
            let mut chars: Vec<char> = state.chars().collect();
            let at = chars.len() - 6;
            chars[at] = if chars[at] == 'A' { 'B' } else { 'A' };
            retry(&chars.into_iter().collect::<String>())
        },
    ] {
        refused(world.end(Method::ToolsCall, &bad, "{}").await);
    }
    refused(world.end(Method::PromptsGet, &good, "{}").await);
    assert_eq!(
        world.seen().len(),
        1,
        "a refused retry never reaches the router"
    );
    world.subject = "you";
    refused(world.end(Method::ToolsCall, &good, "{}").await);
    world.subject = "me";
    world.plan.server = ServerId::new("other").unwrap();
    refused(world.end(Method::ToolsCall, &good, "{}").await);
    world.plan.server = ServerId::new("s").unwrap();
    world.clock.advance(659_000);
    message(world.end(Method::ToolsCall, &good, "{}").await);
    world.clock.advance(1_000);
    refused(world.end(Method::ToolsCall, &good, "{}").await);
}

/// A state of a transparent server does not follow when another upstream takes its place.
#[tokio::test]
async fn xt_152_a_state_stays_with_its_upstream() {
    let mut world = World::modern();
    world.plan = plan(ServerKind::Transparent(up("a")));
    let state = state_of(&world, ASK).await;
    message(world.end(Method::ToolsCall, &retry(&state), "{}").await);
    world.plan = plan(ServerKind::Transparent(up("b")));
    assert_eq!(
        code(world.end(Method::ToolsCall, &retry(&state), "{}").await),
        -32602
    );
}

/// XT-154, XT-155, XT-156, FRM-22, MRT-02, MRT-12: what breaks the protocol is not passed on.
#[tokio::test]
async fn xt_154_violations_end_the_call() {
    let world = World::modern();
    let long = format!(
        r#"{{"resultType":"input_required","requestState":"{}"}}"#,
        "x".repeat(65 * 1024)
    );
    for bad in [
        r#"{"resultType":"task"}"#,
        r#"{"resultType":7}"#,
        r#"{"resultType":"input_required"}"#,
        r#"{"resultType":"input_required","requestState":7}"#,
        r#"{"resultType":"input_required","inputRequests":[]}"#,
        r#"{"resultType":"input_required","inputRequests":{"k":{"method":"tools/call"}}}"#,
        &long,
    ] {
        assert_eq!(
            code(world.end(Method::ToolsCall, CALL, bad).await),
            -31003,
            "{bad}"
        );
    }
    assert_eq!(code(world.end(Method::ToolsList, "{}", ASK).await), -31003);
    assert_eq!(
        code(world.end(Method::CompletionComplete, "{}", ASK).await),
        -31003
    );
    let fits = format!(
        r#"{{"resultType":"input_required","requestState":"{}"}}"#,
        "x".repeat(64 * 1024)
    );
    message(world.end(Method::ToolsCall, CALL, &fits).await);
}

/// MRT-08, CAP-04, SAM-02: a question of a kind that the client did not declare.
#[tokio::test]
async fn mrt_08_undeclared_questions_name_the_capability() {
    let mut world = World::modern();
    world.capabilities = Capabilities::parse(br#"{"elicitation":{"form":{}},"sampling":{}}"#);
    message(world.end(Method::ToolsCall, CALL, ASK).await);
    for (method, params, required) in [
        (
            "elicitation/create",
            r#"{"mode":"url"}"#,
            r#"{"elicitation":{"url":{}}}"#,
        ),
        ("roots/list", "{}", r#"{"roots":{}}"#),
        (
            "sampling/createMessage",
            r#"{"tools":[]}"#,
            r#"{"sampling":{"tools":{}}}"#,
        ),
    ] {
        let ask = format!(
            r#"{{"resultType":"input_required","inputRequests":{{"k":{{"method":"{method}","params":{params}}}}}}}"#
        );
        let Final::Error(error) = world.end(Method::ToolsCall, CALL, &ask).await else {
            panic!("passed");
        };
        let data = format!(r#"{{"requiredCapabilities":{required}}}"#);
        assert_eq!(
            (error.code, error.data.unwrap()),
            (-32021, Bytes::from(data))
        );
    }
}

/// MRT-09: the seventeenth round of a call is refused.
#[tokio::test]
async fn mrt_09_a_call_has_sixteen_rounds() {
    let world = World::modern();
    let mut state = state_of(&world, ASK).await;
    for _ in 1..16 {
        let next = message(world.end(Method::ToolsCall, &retry(&state), ASK).await);
        state = json(&next)["result"]["requestState"].to_string();
    }
    assert_eq!(
        code(world.end(Method::ToolsCall, &retry(&state), ASK).await),
        -31003
    );
}

/// LM: a legacy client without a session cannot be asked, and such members of its own mean nothing.
#[tokio::test]
async fn input_required_without_a_session_is_not_translatable() {
    let world = World::new(Revision::R2025_11_25, Revision::R2026_07_28);
    let mut call = world.call(Method::ToolsCall, &retry(r#""x""#));
    call.session = None;
    assert_eq!(code(world.asked(call, ASK).await), -31007);
    let seen = world.seen().pop().unwrap();
    assert!(
        !seen.contains("requestState") && !seen.contains("inputResponses"),
        "{seen}"
    );
}

/// XT-131, MRT-11, ELI-09: a client with a session is asked, labelled; the upstream's state is the token
/// that came.
#[tokio::test]
async fn xt_131_a_client_with_a_session_is_to_be_asked() {
    let world = World::new(Revision::R2025_11_25, Revision::R2026_07_28);
    let Final::Wanted(wanted) = world.asked(world.askable(CALL), ASK).await else {
        panic!("not asked");
    };
    assert_eq!(wanted.upstream, up("a"));
    assert_eq!(wanted.state.unwrap(), r#""s\u0074\/1""#);
    let [question] = wanted.questions.as_slice() else {
        panic!("{:?}", wanted.questions)
    };
    assert_eq!(question.key, r#""k""#);
    assert_eq!(question.method, Method::ElicitationCreate);
    let params = question.params.as_deref().unwrap();
    assert_eq!(params, br#"{"message":"[a] Name?","requestedSchema":{}}"#);
    let only_a_state = r#"{"resultType":"input_required","requestState":""}"#;
    let Final::Wanted(wanted) = world.asked(world.askable(CALL), only_a_state).await else {
        panic!("not asked");
    };
    assert!(wanted.questions.is_empty());
}

/// XT-145, XT-141, MRT-02, MRT-12: what the upstream was not told of it must not ask.
#[tokio::test]
async fn xt_145_an_undeclared_question_breaks_the_protocol() {
    let mut world = World::new(Revision::R2025_11_25, Revision::R2026_07_28);
    let call = world.call(Method::ToolsCall, CALL);
    assert_eq!(code(world.asked(call, ASK).await), -31003, "no stream");
    for wrong in [
        r#"{"resultType":"input_required"}"#,
        r#"{"resultType":"input_required","inputRequests":{"k":{"method":"tools/call"}}}"#,
        r#"{"resultType":"input_required","inputRequests":[]}"#,
        r#"{"resultType":"input_required","requestState":7}"#,
    ] {
        let end = world.asked(world.askable(CALL), wrong).await;
        assert_eq!(code(end), -31003, "{wrong}");
    }
    world.capabilities = Capabilities::parse(br#"{"sampling":{}}"#);
    assert_eq!(code(world.asked(world.askable(CALL), ASK).await), -31003);
}

/// XT-131, XT-132: the next round brings what the session says, and nothing that the client wrote.
#[tokio::test]
async fn xt_132_the_next_round_brings_the_sessions_answers() {
    let world = World::new(Revision::R2025_11_25, Revision::R2026_07_28);
    for state in [Some(r#""s\/1""#), None] {
        let mut call = world.askable(&retry(r#""forged""#));
        call.rounds.answers = Some(Arc::new(Answers {
            upstream: up("a"),
            state: state.map(|state| Bytes::from_static(state.as_bytes())),
            responses: Some(Bytes::from_static(br#"{"q":{"roots":[]}}"#)),
        }));
        message(world.asked(call, r#"{"resultType":"complete"}"#).await);
        let seen = world.seen().pop().unwrap();
        assert!(
            seen.contains(r#""inputResponses":{"q":{"roots":[]}}"#),
            "{seen}"
        );
        assert!(!seen.contains("forged"), "{seen}");
        let sent = state.map(|state| format!(r#""requestState":{state}"#));
        assert_eq!(seen.contains("requestState"), sent.is_some());
        assert!(sent.is_none_or(|sent| seen.contains(&sent)), "{seen}");
    }
}

/// An older server's unknown member `resultType` means nothing (FRM-24).
#[tokio::test]
async fn frm_24_a_legacy_result_passes_whatever_it_holds() {
    let world = World::legacy();
    let passed = message(
        world
            .end(Method::ToolsCall, CALL, r#"{"resultType":"mine"}"#)
            .await,
    );
    assert!(passed.is_unchanged());
}

fn question(world: &World, id: i64, method: Method, params: &str) -> Question {
    let text = encode::request(&Id::integer(id), method.as_str(), Some(params.as_bytes()));
    let from = QuestionRef {
        tenant: tenant(),
        upstream: up("a"),
        sharing: Sharing::Session(world.session()),
        id: Id::integer(id),
        asked_as: Id::integer(id),
    };
    Question {
        from,
        method,
        message: draft(std::str::from_utf8(&text).unwrap()),
    }
}

fn asking(questions: Vec<Question>) -> impl Fn() -> Events + Clone + Send + Sync + 'static {
    move || {
        let questions = questions.clone().into_iter().map(Event::Question);
        Events::stream(stream::iter(questions).chain(stream::pending()))
    }
}

/// XT-160, XT-164, ELI-09: a question passes labelled; its first answer passes, a second does not.
#[tokio::test]
async fn xt_164_a_question_is_answered_at_most_once() {
    let world = World::legacy();
    let one = question(
        &world,
        5,
        Method::ElicitationCreate,
        r#"{"message":"Q","x":[1.0]}"#,
    );
    let script = asking(vec![one.clone()]);
    let router = service_fn(move |_: Call| {
        let events = script();
        async move { Ok(events) }
    });
    let mut stage = world.stage(router);
    let back = stage.backchannel();
    let mut events = stage
        .call(world.call(Method::ToolsCall, CALL))
        .await
        .unwrap();
    let Some(Event::Question(asked)) = events.next().await else {
        panic!("no question")
    };
    let expected = text(&one.message).replace(r#""Q""#, r#""[a] Q""#);
    assert_eq!(text(&asked.message), expected);
    let answer = || draft(r#"{"jsonrpc":"2.0","id":1,"result":{"action":"accept"}}"#);
    back.answer(asked.from.clone(), answer()).await.unwrap();
    back.answer(asked.from.clone(), answer()).await.unwrap();
    assert_eq!(world.answers().len(), 1);
    let stranger = question(&world, 6, Method::RootsList, "{}");
    back.answer(stranger.from, answer()).await.unwrap();
    assert_eq!(world.answers().len(), 1);
}

/// XT-163: a withdrawn question, one of a call that is over and one of a session that is closed
/// take no answer.
#[tokio::test]
async fn xt_163_closed_questions_take_no_answer() {
    let world = World::legacy();
    let asked = [1, 2].map(|id| question(&world, id, Method::RootsList, "{}"));
    let script = {
        let mut events: Vec<Event> = asked.iter().cloned().map(Event::Question).collect();
        let withdrawn =
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
        events.push(Event::QuestionWithdrawn(draft(withdrawn)));
        move || Events::stream(stream::iter(events.clone()).chain(stream::pending()))
    };
    let router = service_fn(move |_: Call| {
        let events = script();
        async move { Ok(events) }
    });
    let mut stage = world.stage(router);
    let back = stage.backchannel();
    let answer = || draft(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    let mut events = stage
        .call(world.call(Method::ToolsCall, CALL))
        .await
        .unwrap();
    for _ in 0..3 {
        events.next().await.unwrap();
    }
    back.answer(asked[0].from.clone(), answer()).await.unwrap();
    assert!(world.answers().is_empty(), "withdrawn");
    drop(events);
    back.answer(asked[1].from.clone(), answer()).await.unwrap();
    assert!(world.answers().is_empty(), "call over");
    let mut events = stage
        .call(world.call(Method::ToolsCall, CALL))
        .await
        .unwrap();
    events.next().await.unwrap();
    back.close(world.session(), Closing::Here(vec![])).await;
    back.answer(asked[0].from.clone(), answer()).await.unwrap();
    assert!(world.answers().is_empty(), "session closed");
    assert_eq!(world.upstreams.closed.lock().unwrap().len(), 1);
}

/// XT-116, ROO-03, ELI-01: an undeclared question is refused upstream and the call goes on.
#[tokio::test]
async fn xt_116_undeclared_questions_are_refused_upstream() {
    let mut world = World::legacy();
    world.capabilities = Capabilities::parse(br#"{"sampling":{}}"#);
    let script = asking(vec![
        question(&world, 1, Method::RootsList, "{}"),
        question(&world, 2, Method::ElicitationCreate, r#"{"message":"Q"}"#),
        question(
            &world,
            3,
            Method::SamplingCreateMessage,
            r#"{"includeContext":"allServers"}"#,
        ),
    ]);
    let mut events = world
        .events(world.call(Method::ToolsCall, CALL), script)
        .await;
    let Some(Event::Question(asked)) = events.next().await else {
        panic!("no question")
    };
    // SAM-04: what others told the client is not this upstream's to read.
    assert!(text(&asked.message).contains(r#""includeContext":"none""#));
    let answers = world.answers();
    assert!(
        answers[0].contains("-32601") && answers[0].contains(r#""id":1"#),
        "{answers:?}"
    );
    assert!(
        answers[1].contains("-32602") && answers[1].contains(r#""id":2"#),
        "{answers:?}"
    );
}

/// ML: a legacy upstream's question to a modern client is refused and ends the call.
#[tokio::test]
async fn a_question_to_a_modern_client_ends_the_call() {
    let world = World::new(Revision::R2026_07_28, Revision::R2025_11_25);
    let script = asking(vec![question(
        &world,
        4,
        Method::SamplingCreateMessage,
        "{}",
    )]);
    let mut events = world
        .events(world.call(Method::ToolsCall, CALL), script)
        .await;
    let Some(Event::Final(end)) = events.next().await else {
        panic!("no end")
    };
    assert_eq!(code(end), -31007);
    assert!(events.next().await.is_none());
    assert!(world.answers()[0].contains("-32602"));
}

#[derive(Default)]
struct Arrivals(Mutex<Vec<Arrival>>);

impl Inlet for Arrivals {
    fn arrive(&self, _: &UpstreamId, arrival: Arrival) {
        self.0.lock().unwrap().push(arrival);
    }
}

/// A question on a session's own stream is labelled, noted as open, or refused, like any other.
#[tokio::test]
async fn eli_09_questions_outside_calls_are_labelled_too() {
    let mut world = World::legacy();
    world.capabilities = Capabilities::parse(br#"{"elicitation":{}}"#);
    let arrivals = Arc::new(Arrivals::default());
    let mut call = world.call(Method::ToolsCall, CALL);
    call.inlet = Some(Arc::clone(&arrivals) as Arc<dyn Inlet>);
    let kept: Arc<Mutex<Option<Arc<dyn Inlet>>>> = Arc::default();
    let inside = Arc::clone(&kept);
    let router = service_fn(move |call: Call| {
        *inside.lock().unwrap() = call.inlet;
        async { Ok(Events::ready(Final::Empty)) }
    });
    let mut stage = world.stage(router);
    let back = stage.backchannel();
    stage.call(call).await.unwrap();
    let inlet = kept.lock().unwrap().clone().unwrap();
    let elicit = question(&world, 1, Method::ElicitationCreate, r#"{"message":"Q"}"#);
    inlet.arrive(&up("a"), Arrival::Question(elicit.clone()));
    inlet.arrive(
        &up("a"),
        Arrival::Question(question(&world, 2, Method::RootsList, "{}")),
    );
    tokio::task::yield_now().await;
    let arrived = std::mem::take(&mut *arrivals.0.lock().unwrap());
    let [Arrival::Question(asked)] = arrived.as_slice() else {
        panic!("{arrived:?}")
    };
    assert!(text(&asked.message).contains("[a] Q"));
    assert!(world.answers()[0].contains("-32601"));
    back.answer(
        elicit.from,
        draft(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#),
    )
    .await
    .unwrap();
    assert_eq!(world.answers().len(), 2);
}

//! Streams of sessions: what opens one, what keeps it alive, and how one that broke goes on.

use std::time::Duration;

use serde_json::{Value, json};
use vestibule_testkit::recording::{Answer, AnswerStream, legacy_basics};
use vestibule_testkit::sse::SseEvent;
use vestibule_testkit::{RawClient, RawRequest, Recorded, RecordingUpstream};

use crate::harness::Gateway;
use crate::talk::{
    SESSIONS, Session, Upstream, assert_refused, at, modern, modern_call, open_tenant, progress,
    response, soon, text,
};

const UP: &str = "/mcp/t/up";

/// A gateway whose calls become streams at once, unless their answer is there.
async fn house() -> (Upstream, Gateway) {
    let upstream = Upstream::modern().await;
    let tenant = open_tenant(&[("up", upstream.reach())], "stream_after: 20ms");
    (upstream, Gateway::start(&tenant))
}

/// A call in flight: the client's connection, the first event it got, and the upstream's side.
struct Flight {
    client: RawClient,
    request: Recorded,
    upstream: AnswerStream,
}

impl Flight {
    async fn start(gateway: &Gateway, upstream: &Upstream, request: RawRequest) -> Self {
        let mut client = gateway.connect().await;
        client.send(&request.bytes()).await.unwrap();
        let (request, stream) = upstream.opened().await;
        Self {
            client,
            request,
            upstream: stream,
        }
    }

    async fn progress(&self, value: u32) {
        self.upstream
            .message(&progress(&self.request, value))
            .await
            .unwrap();
    }

    async fn finish(self, text: &str) -> RawClient {
        self.upstream
            .message(&response(&self.request, text))
            .await
            .unwrap();
        self.client
    }

    async fn opened(&mut self) {
        let head = self.client.head().await.unwrap();
        assert_eq!(
            head.field("content-type"),
            Some("text/event-stream"),
            "{head:?}"
        );
    }
}

fn call(session: &Session, id: impl Into<Value>) -> RawRequest {
    let params = json!({ "name": "stream", "_meta": { "progressToken": "p" } });
    session.request(id, "tools/call", &params)
}

async fn next(client: &mut RawClient) -> SseEvent {
    client.next_event().await.unwrap().expect("another event")
}

fn id(event: &SseEvent) -> &str {
    event.id.as_deref().expect("an event with an id")
}

fn value(event: &SseEvent) -> Value {
    event.json()["params"]["progress"].clone()
}

/// Resumes and gives the connection after its head.
async fn resumed(gateway: &Gateway, session: &Session, last: &str) -> RawClient {
    let mut client = gateway.connect().await;
    let head = client.open(&session.resume(last)).await.unwrap();
    assert!(head.start.contains(" 200 "), "{}", head.start);
    assert_eq!(head.field("content-type"), Some("text/event-stream"));
    client
}

/// SSE-04, case 124: only sessions of 2025-11-25 are primed, and only when there is a stream.
#[tokio::test]
async fn case_124_sse_04_only_the_revision_that_knows_it_is_primed() {
    let (upstream, gateway) = house().await;
    for revision in SESSIONS {
        let session = Session::open(&gateway, UP, revision).await;
        let mut flight = Flight::start(&gateway, &upstream, call(&session, 1)).await;
        flight.opened().await;
        flight.progress(1).await;
        let mut first = next(&mut flight.client).await;
        if revision == SESSIONS[0] {
            assert_eq!(first.data.as_deref(), Some(""), "{revision}");
            assert!(first.id.is_some());
            first = next(&mut flight.client).await;
        }
        assert_eq!(value(&first), 1, "{revision}");
        assert_eq!(first.event.as_deref(), Some("message"), "SSE-01");
        assert!(first.id.is_some(), "RES-01: {revision}");
        let mut client = flight.finish("done").await;
        let last = next(&mut client).await;
        assert_eq!(text(&last.json()), "done");
        assert!(
            client.next_event().await.unwrap().is_none(),
            "SSE-03: the answer ends it"
        );

        let mut standalone = gateway.connect().await;
        standalone.open(&session.get()).await.unwrap();
        if revision == SESSIONS[0] {
            assert_eq!(next(&mut standalone).await.data.as_deref(), Some(""));
        }
    }
    // initialize itself is answered before anything was negotiated
    let sse = crate::talk::initialize(UP, SESSIONS[0])
        .without("Accept")
        .field("Accept", "text/event-stream");
    let events = gateway.ask(sse).await.events();
    assert_eq!(events.len(), 1);
    assert_eq!((&events[0].id, &events[0].retry), (&None, &None));
}

/// SSE-12, SSE-14, RES-10: streams of stateless clients have no ids and end with the answer.
#[tokio::test]
async fn sse_12_stateless_streams_have_neither_ids_nor_retry() {
    let (upstream, gateway) = house().await;
    let params = json!({ "name": "stream", "_meta": { "progressToken": 7 } });
    let request = modern(UP, "a", "tools/call", params);
    let mut flight = Flight::start(&gateway, &upstream, request).await;
    flight.opened().await;
    flight.progress(1).await;
    let first = next(&mut flight.client).await;
    assert_eq!(first.json()["params"]["progressToken"], 7);
    let mut client = flight.finish("done").await;
    let last = next(&mut client).await;
    assert_eq!(last.json()["id"], "a");
    for event in [first, last] {
        assert_eq!((event.id, event.retry), (None, None));
    }
    assert!(client.next_event().await.unwrap().is_none());
}

/// HTR-06, EL-20: a quick answer is JSON, a slow one becomes a stream after `stream_after`.
#[tokio::test]
async fn htr_06_a_slow_answer_becomes_a_stream_and_a_quick_one_does_not() {
    let (upstream, gateway) = house().await;
    let session = Session::open(&gateway, UP, SESSIONS[0]).await;
    let tenant = open_tenant(&[("up", upstream.reach())], "stream_after: 60s");
    let patient = Gateway::start(&tenant);
    let session_there = Session::open(&patient, UP, SESSIONS[0]).await;
    let quick = [
        session_there.call(1, "echo", &json!({})),
        modern_call(UP, "echo", &json!({})),
    ];
    for request in quick {
        let answer = patient.ask(request).await;
        assert_eq!(answer.head.field("content-type"), Some("application/json"));
    }
    let slow = [
        session.call(1, "stream", &json!({})),
        modern_call(UP, "stream", &json!({})),
    ];
    for request in slow {
        let mut flight = Flight::start(&gateway, &upstream, request).await;
        flight.opened().await; // nothing was said upstream
        let mut client = flight.finish("late").await;
        let mut last = None;
        while let Some(event) = client.next_event().await.unwrap() {
            last = Some(event);
        }
        assert_eq!(text(&last.unwrap().json()), "late");
    }
}

/// EL-13: a cursor that is valid replays what comes after it, then goes on live (RES-03, C35).
#[tokio::test]
async fn el_13_a_valid_cursor_replays_and_goes_on_live() {
    let (upstream, gateway) = house().await;
    let session = Session::open(&gateway, UP, SESSIONS[0]).await;
    let mut flight = Flight::start(&gateway, &upstream, call(&session, 1)).await;
    flight.opened().await;
    let priming = next(&mut flight.client).await;
    flight.progress(1).await;
    let first = next(&mut flight.client).await;
    assert_ne!(id(&priming), id(&first), "RES-01");
    let broken = std::mem::replace(&mut flight.client, gateway.connect().await);
    drop(broken);
    flight.progress(2).await;
    let mut again = resumed(&gateway, &session, id(&first)).await;
    let second = next(&mut again).await;
    assert_eq!(value(&second), 2, "not the first again");
    flight.progress(3).await;
    assert_eq!(value(&next(&mut again).await), 3);
    flight.finish("done").await;
    assert_eq!(text(&next(&mut again).await.json()), "done");
    assert!(again.next_event().await.unwrap().is_none());
    // EL-2: the priming event is resumable and everything comes again
    let mut whole = resumed(&gateway, &session, id(&priming)).await;
    let values = [
        value(&next(&mut whole).await),
        value(&next(&mut whole).await),
        value(&next(&mut whole).await),
    ];
    assert_eq!(values, [1, 2, 3]);
    assert_eq!(text(&next(&mut whole).await.json()), "done");
}

/// EL-13: finished while the client was away: the rest with the answer, then the end. Whoever had
/// the end gets 405 (RES-06).
#[tokio::test]
async fn el_13_res_06_a_finished_stream_gives_its_rest_or_405() {
    let (upstream, gateway) = house().await;
    for revision in SESSIONS {
        let session = Session::open(&gateway, UP, revision).await;
        let mut flight = Flight::start(&gateway, &upstream, call(&session, 1)).await;
        flight.progress(1).await;
        flight.opened().await;
        let mut first = next(&mut flight.client).await;
        if revision == SESSIONS[0] {
            first = next(&mut flight.client).await;
        }
        drop(std::mem::replace(
            &mut flight.client,
            gateway.connect().await,
        ));
        flight.finish("kept").await;
        let mut again = resumed(&gateway, &session, id(&first)).await;
        let end = next(&mut again).await;
        assert_eq!(text(&end.json()), "kept");
        assert!(again.next_event().await.unwrap().is_none());
        let over = gateway.ask(session.resume(id(&end))).await;
        assert_eq!(over.status, 405, "{revision}");
        assert!(over.body.is_empty());
        assert_eq!(over.head.field("allow"), Some("POST, GET, DELETE"));
    }
}

/// EL-13: ids that are forged, foreign or none of ours are 400 with one fixed body; a session that
/// is not the caller's is 404. Nothing of another session is shown (cases 121 and 122).
#[tokio::test]
async fn case_121_case_122_foreign_and_forged_event_ids_are_one_400() {
    let (upstream, gateway) = house().await;
    let mine = Session::open(&gateway, UP, SESSIONS[0]).await;
    let other = Session::open(&gateway, UP, SESSIONS[0]).await;
    let mut flight = Flight::start(&gateway, &upstream, call(&other, 1)).await;
    flight.opened().await;
    flight.progress(1).await;
    let theirs = id(&next(&mut flight.client).await).to_owned();
    let mut standalone = gateway.connect().await;
    standalone.open(&other.get()).await.unwrap();
    let standing = id(&next(&mut standalone).await).to_owned();
    let mut flipped = theirs.clone().into_bytes();
    let last = flipped.last_mut().unwrap();
    *last = if *last == b'A' { b'B' } else { b'A' };
    let flipped = String::from_utf8(flipped).unwrap();
    let long = "1".repeat(5000);
    let mut bodies = Vec::new();
    for (session, bad) in [
        (&mine, theirs.as_str()),
        (&mine, &standing),
        (&other, &flipped),
        (&other, "_GET_stream"),
        (&other, "1"),
        (&other, "1k.A_B-C"),
        (&other, "0"),
        (&other, &long),
    ] {
        let answer = gateway.ask(session.resume(bad)).await;
        assert_refused(bad, &answer, 400, -32600);
        bodies.push(answer.body);
    }
    bodies.dedup();
    assert_eq!(bodies.len(), 1, "one fixed body: {bodies:?}");
    let unknown = mine
        .resume(&theirs)
        .without("Mcp-Session-Id")
        .field("Mcp-Session-Id", "dead");
    assert_refused("EL-13", &gateway.ask(unknown).await, 404, -32600);
    // a standalone stream is resumed by the id of its beginning, and gets what came since
    drop(standalone);
    let mut again = resumed(&gateway, &other, &standing).await;
    drop(flight);
    assert_eq!(gateway.ask(other.delete()).await.status, 204);
    assert!(
        again.next_event().await.unwrap().is_none(),
        "the session's end ends its streams"
    );
}

/// EL-13, RES-05: history that was trimmed while nobody read: one error for the request, the end.
#[tokio::test]
async fn el_13_res_05_a_lost_history_is_one_error_for_the_request() {
    let (upstream, gateway) = house().await;
    let session = Session::open(&gateway, UP, SESSIONS[0]).await;
    let mut flight = Flight::start(&gateway, &upstream, call(&session, "the-id")).await;
    flight.opened().await;
    let priming = id(&next(&mut flight.client).await).to_owned();
    drop(std::mem::replace(
        &mut flight.client,
        gateway.connect().await,
    ));
    for value in 1..=1_200 {
        flight.progress(value).await;
    }
    flight.finish("done").await;
    // FRM-06 tells when the call is over: until then its id is taken
    while gateway
        .ask(session.call("the-id", "echo", &json!({})))
        .await
        .status
        != 200
    {}
    let mut lost = resumed(&gateway, &session, &priming).await;
    let mut last = None;
    while let Some(event) = lost.next_event().await.unwrap() {
        last = Some(event);
    }
    let error = last.expect("an answer").json();
    assert_eq!(error["id"], "the-id");
    assert_eq!(error["error"]["code"], -31004, "{error}");
    assert_eq!(error["error"]["data"]["reason"], "stream_history_lost");
}

/// EL-17, C50: of two connections of one stream the newest wins and the older is closed first.
#[tokio::test]
async fn el_17_the_newest_connection_of_a_stream_wins() {
    let (upstream, gateway) = house().await;
    let session = Session::open(&gateway, UP, SESSIONS[0]).await;
    let mut flight = Flight::start(&gateway, &upstream, call(&session, 1)).await;
    flight.opened().await;
    let priming = id(&next(&mut flight.client).await).to_owned();
    let mut second = resumed(&gateway, &session, &priming).await;
    assert_ended(&mut flight.client).await;
    let mut third = resumed(&gateway, &session, &priming).await;
    assert_ended(&mut second).await;
    flight.progress(1).await;
    assert_eq!(value(&next(&mut third).await), 1);
    flight.finish("done").await;
    assert_eq!(text(&next(&mut third).await.json()), "done");
}

/// Nothing but blank lines and a `retry` comes any more.
async fn assert_ended(client: &mut RawClient) {
    while let Some(event) = client.next_event().await.unwrap() {
        assert_eq!(event.data, None, "a message on a superseded connection");
    }
}

/// GET-04, STA-17: standalone streams are several, each message goes to the newest, and falls back.
#[tokio::test]
async fn get_04_several_standalone_streams_stay_open_and_the_newest_is_used() {
    let (_upstream, gateway) = house().await;
    let session = Session::open(&gateway, UP, SESSIONS[0]).await;
    let mut open = Vec::new();
    for _ in 0..5 {
        let mut client = gateway.connect().await;
        let head = client.open(&session.get()).await.unwrap();
        assert!(head.start.contains(" 200 "), "{}", head.start);
        next(&mut client).await;
        open.push(client);
    }
    // a fifth closes the oldest idle one, with `retry`
    let evicted = open[0].next_event().await.unwrap().expect("a retry");
    assert_eq!(evicted.retry, Some(30_000));
    assert!(open[0].next_event().await.unwrap().is_none());
}

/// SSE-15, case 125: comments on all three kinds of stream while nothing is said.
#[tokio::test]
async fn case_125_sse_15_silent_streams_of_every_kind_are_kept_alive() {
    let upstream = Upstream::modern().await;
    let tenant = open_tenant(&[("up", upstream.reach())], "stream_after: 20ms");
    let gateway = Gateway::here(&tenant);
    let session = Session::open(&gateway, UP, SESSIONS[0]).await;
    let mut of_session = Flight::start(&gateway, &upstream, call(&session, 1)).await;
    of_session.opened().await;
    next(&mut of_session.client).await;
    let slow = modern_call(UP, "stream", &json!({}));
    let mut stateless = Flight::start(&gateway, &upstream, slow).await;
    stateless.opened().await;
    let mut standalone = gateway.connect().await;
    standalone.open(&session.get()).await.unwrap();
    next(&mut standalone).await;
    let filter = json!({ "notifications": { "toolsListChanged": true } });
    let mut listen = gateway.connect().await;
    listen
        .open(&modern(UP, "l", "subscriptions/listen", filter))
        .await
        .unwrap();
    next(&mut listen).await; // the acknowledgement
    // the clock moves and stands still no longer than that: timeouts of the test are not met
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(15)).await;
    tokio::time::resume();
    for client in [
        &mut of_session.client,
        &mut stateless.client,
        &mut standalone,
        &mut listen,
    ] {
        let beat = next(client).await;
        assert_eq!((beat.data, beat.id, beat.comments.len()), (None, None, 1));
    }
}

/// SSE-05: `poll_close` ends the client's stream when the upstream ends its own, and the client
/// comes back for the answer; without it the client notices nothing.
#[tokio::test]
async fn sse_05_poll_close_hands_the_polling_of_an_upstream_on() {
    for poll_close in [true, false] {
        let (streams, mut opened) = tokio::sync::mpsc::channel(4);
        let upstream = RecordingUpstream::start(move |request| {
            let open = || {
                let (stream, answer) = Answer::stream();
                streams.try_send((request.clone(), stream)).unwrap();
                answer
            };
            match (request.method.as_str(), request.rpc_method().as_str()) {
                ("GET", _) if request.field("last-event-id").is_some() => open(),
                (_, "tools/call") => open(),
                (_, "tools/list") => Answer::result(request, &json!({ "tools": [] })),
                _ => legacy_basics(request, &json!({ "tools": {} })).unwrap(),
            }
        })
        .await
        .unwrap();
        let more = format!("poll_close: {poll_close}, stream_after: 20ms");
        let gateway = Gateway::start(&open_tenant(&[("up", at(&upstream.url()))], &more));
        let session = Session::open(&gateway, UP, SESSIONS[0]).await;
        let mut client = gateway.connect().await;
        client
            .send(&session.call(1, "poll", &json!({})).bytes())
            .await
            .unwrap();
        let (request, stream) = opened.recv().await.unwrap();
        client.head().await.unwrap();
        let priming = id(&next(&mut client).await).to_owned();
        stream.bytes("retry: 30\nid: u1\ndata:\n\n").await.unwrap();
        drop(stream); // the upstream hangs up before its answer
        let mut reading = client;
        if poll_close {
            let mut retry = None;
            while let Some(event) = reading.next_event().await.unwrap() {
                assert_eq!(event.data, None);
                retry = event.retry.or(retry);
            }
            assert!(retry.is_some(), "`retry` first");
            reading = resumed(&gateway, &session, &priming).await;
        }
        let (resume, stream) = opened.recv().await.unwrap();
        assert_eq!(resume.field("last-event-id"), Some("u1"), "RES-08");
        stream.message(&response(&request, "polled")).await.unwrap();
        assert_eq!(text(&next(&mut reading).await.json()), "polled");
        assert!(reading.next_event().await.unwrap().is_none());
    }
}

/// GET-08, SES-03, STA-21: the end of a session ends everything of it, on every verb.
#[tokio::test]
async fn sta_21_a_deleted_session_is_gone_on_every_verb() {
    let (upstream, gateway) = house().await;
    let session = Session::open(&gateway, UP, SESSIONS[0]).await;
    let mut flight = Flight::start(&gateway, &upstream, call(&session, 1)).await;
    flight.opened().await;
    let priming = id(&next(&mut flight.client).await).to_owned();
    let mut standalone = gateway.connect().await;
    standalone.open(&session.get()).await.unwrap();
    next(&mut standalone).await;
    let ended = gateway.ask(session.delete()).await;
    assert_eq!((ended.status, ended.body.len()), (204, 0));
    assert!(standalone.next_event().await.unwrap().is_none());
    soon(
        "the upstream is told",
        Duration::from_secs(1),
        flight.upstream.gone(),
    )
    .await;
    for request in [
        session.delete(),
        session.get(),
        session.resume(&priming),
        session.call(2, "echo", &json!({})),
        session.notify("notifications/foo", &json!({})),
        session.post(&json!({ "jsonrpc": "2.0", "id": 5, "result": {} })),
    ] {
        assert_refused("STA-21", &gateway.ask(request).await, 404, -32600);
    }
}

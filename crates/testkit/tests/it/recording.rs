//! The recording upstream, seen by the raw client.

use std::sync::Mutex;

use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use vestibule_testkit::{
    Answer, RawClient, RawRequest, RecordingUpstream, recording::legacy_basics,
};

fn post(upstream: &RecordingUpstream, method: &str) -> RawRequest {
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method });
    RawRequest::mcp(upstream.address(), "/mcp", &body)
}

#[tokio::test]
async fn requests_are_recorded_as_they_came() {
    let upstream =
        RecordingUpstream::start(|request| Answer::result(request, &json!({ "ok": true })))
            .await
            .unwrap();
    let mut client = RawClient::connect(upstream.address()).await.unwrap();
    let request = post(&upstream, "ping")
        .field("X-Twice", 1)
        .field("x-twice", 2)
        .body(r#"{ "id":7.0, "method":"ping"}"#);
    let response = client.ask(&request).await.unwrap();
    assert_eq!(
        (response.status, response.json()["result"].clone()),
        (200, json!({ "ok": true }))
    );

    let recorded = upstream.nth(0).await;
    assert_eq!(
        (recorded.method.as_str(), recorded.target.as_str()),
        ("POST", "/mcp")
    );
    assert_eq!(recorded.body, r#"{ "id":7.0, "method":"ping"}"#);
    let names: Vec<_> = recorded
        .head
        .fields
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(
        names,
        [
            "Host",
            "Content-Type",
            "Accept",
            "X-Twice",
            "x-twice",
            "Content-Length"
        ]
    );
    assert_eq!(upstream.call("ping").await.rpc_id(), json!(7.0));
}

#[tokio::test]
async fn a_connection_is_used_again_and_counted() {
    let upstream = RecordingUpstream::with_answers([Answer::empty(202), Answer::text(404, "no")])
        .await
        .unwrap();
    let mut client = RawClient::connect(upstream.address()).await.unwrap();
    let statuses = [
        client.ask(&post(&upstream, "a")).await.unwrap().status,
        client.ask(&post(&upstream, "b")).await.unwrap().status,
        client.ask(&post(&upstream, "c")).await.unwrap().status,
    ];
    assert_eq!(statuses, [202, 404, 500]);
    RawClient::connect(upstream.address())
        .await
        .unwrap()
        .ask(&post(&upstream, "d"))
        .await
        .unwrap();
    assert_eq!(
        upstream
            .requests()
            .iter()
            .map(|request| request.connection)
            .collect::<Vec<_>>(),
        [0, 0, 0, 1]
    );
}

#[tokio::test]
async fn a_stream_is_written_by_the_test_and_ends_with_its_handle() {
    let (streams, mut opened) = mpsc::channel(1);
    let upstream = RecordingUpstream::start(move |_| {
        let (stream, answer) = Answer::stream();
        streams.try_send(stream).unwrap();
        answer
    })
    .await
    .unwrap();
    let mut client = RawClient::connect(upstream.address()).await.unwrap();
    let head = client.open(&post(&upstream, "tools/call")).await.unwrap();
    assert_eq!(head.field("Content-Type"), Some("text/event-stream"));
    let stream = opened.recv().await.unwrap();
    stream.bytes(": hello\n\n").await.unwrap();
    assert_eq!(
        client.next_event().await.unwrap().unwrap().comments,
        ["hello"]
    );
    stream.event("1", "").await.unwrap();
    assert_eq!(
        client.next_event().await.unwrap().unwrap().id.as_deref(),
        Some("1")
    );
    stream.message(&json!({ "id": 7 })).await.unwrap();
    assert_eq!(
        client.next_event().await.unwrap().unwrap().json(),
        json!({ "id": 7 })
    );
    drop(stream);
    assert_eq!(client.next_event().await.unwrap(), None);
    client
        .send(&post(&upstream, "again").bytes())
        .await
        .unwrap();
    upstream.call("again").await;
}

#[tokio::test]
async fn a_stream_broken_off_is_an_error_for_the_client() {
    let (stream, answer) = Answer::stream();
    let upstream = RecordingUpstream::with_answers([answer]).await.unwrap();
    let mut client = RawClient::connect(upstream.address()).await.unwrap();
    client.open(&post(&upstream, "tools/call")).await.unwrap();
    stream.break_off().await;
    assert!(client.next_event().await.is_err());
}

#[tokio::test]
async fn a_client_that_goes_is_noticed_by_stream_hang_and_later() {
    let (stream, answer) = Answer::stream();
    let answers = [answer, Answer::Hang, Answer::later(std::future::pending())];
    let upstream = RecordingUpstream::with_answers(answers).await.unwrap();
    for index in 0..3 {
        let mut client = RawClient::connect(upstream.address()).await.unwrap();
        client
            .send(&post(&upstream, "tools/call").bytes())
            .await
            .unwrap();
        upstream.nth(index).await;
        drop(client);
        upstream.abandoned(index + 1).await;
    }
    stream.gone().await;
}

#[tokio::test]
async fn answers_may_come_late_never_without_end_or_as_nonsense() {
    let (open, gate) = oneshot::channel();
    let late = Answer::later(async move {
        gate.await.unwrap();
        Answer::text(200, "late")
    });
    let answers = [
        late,
        Answer::Close,
        Answer::Bytes("SSH-2.0".into()),
        Answer::Endless("again".into()),
    ];
    let upstream = RecordingUpstream::with_answers(answers).await.unwrap();

    let mut client = RawClient::connect(upstream.address()).await.unwrap();
    client.send(&post(&upstream, "late").bytes()).await.unwrap();
    upstream.nth(0).await;
    open.send(()).unwrap();
    assert_eq!(client.response().await.unwrap().body, "late");

    client
        .send(&post(&upstream, "close").bytes())
        .await
        .unwrap();
    client.closed().await.unwrap();

    let mut client = RawClient::connect(upstream.address()).await.unwrap();
    assert!(client.ask(&post(&upstream, "nonsense")).await.is_err());

    let mut client = RawClient::connect(upstream.address()).await.unwrap();
    client.open(&post(&upstream, "endless")).await.unwrap();
    drop(client);
    upstream.abandoned(1).await;
}

#[tokio::test]
async fn the_basics_leave_only_the_tests_own_calls_to_it() {
    let asked = std::sync::Arc::new(Mutex::new(Vec::new()));
    let seen = std::sync::Arc::clone(&asked);
    let upstream = RecordingUpstream::start(move |request| {
        legacy_basics(request, &json!({ "tools": {} })).unwrap_or_else(|| {
            seen.lock().unwrap().push(request.rpc_method());
            Answer::events([&json!({ "jsonrpc": "2.0", "id": request.rpc_id(), "result": {} })])
        })
    })
    .await
    .unwrap();
    let mut client = RawClient::connect(upstream.address()).await.unwrap();
    let initialize =
        json!({ "id": 1, "method": "initialize", "params": { "protocolVersion": "2025-11-25" } });
    let opened = client
        .ask(&RawRequest::mcp(upstream.address(), "/mcp", &initialize))
        .await
        .unwrap();
    assert_eq!(
        opened.head.field("Mcp-Session-Id"),
        Some("recorded-session")
    );
    assert_eq!(opened.json()["result"]["protocolVersion"], "2025-11-25");
    assert_eq!(
        client
            .ask(&RawRequest::new("GET", "/mcp"))
            .await
            .unwrap()
            .status,
        405
    );
    assert_eq!(
        client
            .ask(&post(&upstream, "tools/list"))
            .await
            .unwrap()
            .answer()["id"],
        7
    );
    assert_eq!(*asked.lock().unwrap(), ["tools/list"]);
}

//! Who may stop a call, and how it reaches the upstream: closing the stream for stateless peers,
//! `notifications/cancelled` for those with sessions. A broken connection is the one for stateless
//! clients and nothing at all for sessions.

use std::time::Duration;

use serde_json::{Value, json};
use vestibule_testkit::{RawClient, RawRequest};

use crate::harness::Gateway;
use crate::talk::{
    META, SESSIONS, Session, Upstream, modern, modern_call, open_tenant, progress, response, soon,
    text,
};

const UP: &str = "/mcp/t/up";
const SOON: Duration = Duration::from_secs(1);

async fn house(modern: bool) -> (Upstream, Gateway) {
    let upstream = if modern {
        Upstream::modern().await
    } else {
        Upstream::legacy().await
    };
    let tenant = open_tenant(&[("up", upstream.reach())], "stream_after: 20ms");
    (upstream, Gateway::start(&tenant))
}

async fn sent(gateway: &Gateway, request: &RawRequest) -> RawClient {
    let mut client = gateway.connect().await;
    client.send(&request.bytes()).await.unwrap();
    client
}

/// The `requestId` of the next cancellation that the upstream gets.
async fn cancelled(upstream: &Upstream) -> Value {
    let note = upstream.peer.call("notifications/cancelled").await;
    note.json()["params"]["requestId"].clone()
}

/// SSE-10, CAN-07, C36, case 85 (a): to a stateless upstream by closing the stream.
#[tokio::test]
async fn case_85_sse_10_a_stateless_disconnect_closes_the_upstreams_stream() {
    let (upstream, gateway) = house(true).await;
    let with_token = json!({ "name": "stream", "_meta": { "progressToken": 1 } });
    // before a head, in JSON alone, and in the middle of a stream
    for (request, stage) in [
        (modern_call(UP, "stream", &json!({})), "waiting"),
        (
            modern_call(UP, "stream", &json!({}))
                .without("Accept")
                .field("Accept", "application/json"),
            "waiting",
        ),
        (modern(UP, 1, "tools/call", with_token), "streaming"),
    ] {
        let mut client = sent(&gateway, &request).await;
        let (call, stream) = upstream.opened().await;
        if stage == "streaming" {
            stream.message(&progress(&call, 1)).await.unwrap();
            client.head().await.unwrap();
            client.next_event().await.unwrap().unwrap();
        }
        drop(client);
        soon("the upstream's stream closes", SOON, stream.gone()).await;
    }
}

/// C36: the same while the upstream has not even answered with a head.
#[tokio::test]
async fn case_85_a_stateless_disconnect_reaches_an_upstream_that_is_silent() {
    let (upstream, gateway) = house(true).await;
    let client = sent(&gateway, &modern_call(UP, "hang", &json!({}))).await;
    upstream.peer.call("tools/call").await;
    drop(client);
    soon("the request is abandoned", SOON, upstream.peer.abandoned(1)).await;
}

/// SSE-10 towards an upstream with sessions: `notifications/cancelled` with its own id.
#[tokio::test]
async fn case_85_a_stateless_disconnect_becomes_a_cancellation_for_an_upstream_with_sessions() {
    let (upstream, gateway) = house(false).await;
    let client = sent(&gateway, &modern_call(UP, "stream", &json!({}))).await;
    let (call, _stream) = upstream.opened().await;
    drop(client);
    let told = soon("the upstream is told", SOON, cancelled(&upstream)).await;
    assert_eq!(told, call.rpc_id());
}

/// SSE-09, C35, case 85 (b): a session's call goes on, and its answer is kept.
#[tokio::test]
async fn case_85_sse_09_a_disconnect_of_a_session_cancels_nothing() {
    for modern in [true, false] {
        let (upstream, gateway) = house(modern).await;
        let session = Session::open(&gateway, UP, SESSIONS[0]).await;
        let mut client = sent(&gateway, &session.call(1, "stream", &json!({}))).await;
        let (call, stream) = upstream.opened().await;
        client.head().await.unwrap();
        let priming = client.next_event().await.unwrap().unwrap().id.unwrap();
        drop(client);
        // another request afterwards shows that the disconnect was seen and did nothing
        let other = gateway.ask(session.call(2, "echo", &json!({}))).await;
        assert_eq!(other.status, 200);
        stream.message(&response(&call, "kept")).await.unwrap();
        let resumed = gateway.ask(session.resume(&priming)).await;
        assert_eq!(text(&resumed.answer()), "kept");
        assert!(upstream.peer.calls("notifications/cancelled").is_empty());
    }
}

/// CAN-01, CAN-03, case 84: only the named call ends, at its own upstream, under its own id.
#[tokio::test]
async fn case_84_can_01_a_cancellation_is_mapped_to_its_own_call() {
    let first = Upstream::legacy().await;
    let second = Upstream::legacy().await;
    let tenant = open_tenant(
        &[("one", first.reach()), ("two", second.reach())],
        "stream_after: 20ms",
    );
    let gateway = Gateway::start(&tenant);
    let session = Session::open(&gateway, "/mcp/t", SESSIONS[0]).await;
    let mut mine = sent(&gateway, &session.call(101, "one__stream", &json!({}))).await;
    let (call, _stream) = first.opened().await;
    let mut text_id = sent(&gateway, &session.call("101", "two__stream", &json!({}))).await;
    let (other, other_stream) = second.opened().await;
    // ids and shapes that name nothing in flight are ignored
    for params in [
        json!({ "requestId": 7 }),
        json!({ "requestId": null }),
        json!({}),
        json!({ "requestId": 0 }),
    ] {
        let ignored = gateway
            .ask(session.notify("notifications/cancelled", &params))
            .await;
        assert_eq!(ignored.status, 202, "CAN-04");
    }
    let cancel = json!({ "requestId": 101, "reason": "no longer needed" });
    let accepted = gateway
        .ask(session.notify("notifications/cancelled", &cancel))
        .await;
    assert_eq!((accepted.status, accepted.body.len()), (202, 0));
    let told = soon("the upstream is told", SOON, cancelled(&first)).await;
    assert_eq!(told, call.rpc_id());
    assert_ne!(told, 101);
    // CAN-03: no response, and the stream is over
    let head = mine.head().await.unwrap();
    assert_eq!(head.field("content-type"), Some("text/event-stream"));
    let mut priming = None;
    while let Some(event) = mine.next_event().await.unwrap() {
        assert!(
            event.data.as_deref().unwrap_or_default().is_empty(),
            "{event:?}"
        );
        priming = event.id.or(priming);
    }
    if let Some(priming) = priming {
        let over = gateway.ask(session.resume(&priming)).await;
        assert_eq!(over.status, 405, "RES-06");
    }
    // the other call, of another type of id, is untouched
    assert!(second.peer.calls("notifications/cancelled").is_empty());
    other_stream
        .message(&response(&other, "alive"))
        .await
        .unwrap();
    text_id.head().await.unwrap();
    let rest = text_id.rest().await.unwrap();
    assert!(String::from_utf8_lossy(&rest).contains("alive"));
    assert_eq!(first.peer.calls("notifications/cancelled").len(), 1);
}

/// CAN-03: cancelled while the head was withheld: an event stream that ends without any event.
#[tokio::test]
async fn can_03_a_call_cancelled_before_its_head_ends_as_an_empty_stream() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::start(&open_tenant(&[("up", upstream.reach())], ""));
    let session = Session::open(&gateway, UP, SESSIONS[0]).await;
    let mut client = sent(&gateway, &session.call(1, "hang", &json!({}))).await;
    upstream.peer.call("tools/call").await;
    let cancel = session.notify("notifications/cancelled", &json!({ "requestId": 1 }));
    assert_eq!(gateway.ask(cancel).await.status, 202);
    soon("the request is abandoned", SOON, upstream.peer.abandoned(1)).await;
    let answer = client.response().await.unwrap();
    assert_eq!(answer.status, 200);
    assert_eq!(answer.head.field("content-type"), Some("text/event-stream"));
    assert!(
        answer
            .events()
            .iter()
            .all(|event| event.id.is_none() && event.data.is_none())
    );
    // the id is free again
    let reused = gateway.ask(session.call(1, "echo", &json!({}))).await;
    assert_eq!(reused.status, 200);
}

/// HTR-05: a stateless client's cancellation names nothing and stops nothing.
#[tokio::test]
async fn htr_05_a_stateless_cancellation_is_accepted_and_ignored() {
    let (upstream, gateway) = house(true).await;
    let mut client = sent(&gateway, &modern_call(UP, "stream", &json!({}))).await;
    let (call, stream) = upstream.opened().await;
    let body = format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":1,{META}}}}}"#
    );
    let note = crate::talk::post(UP, body).field("MCP-Protocol-Version", crate::talk::MODERN);
    assert_eq!(gateway.ask(note).await.status, 202);
    stream.message(&response(&call, "alive")).await.unwrap();
    client.head().await.unwrap();
    let rest = client.rest().await.unwrap();
    assert!(String::from_utf8_lossy(&rest).contains("alive"));
}

/// Case 84 for other methods than calls.
#[tokio::test]
async fn case_84_every_kind_of_request_can_be_cancelled() {
    let upstream = hanging().await;
    let gateway = Gateway::start(&open_tenant(
        &[("up", crate::talk::at(&upstream.url()))],
        "",
    ));
    let session = Session::open(&gateway, UP, SESSIONS[0]).await;
    let requests = [
        ("prompts/get", json!({ "name": "greet" })),
        ("resources/read", json!({ "uri": "memo://a" })),
        (
            "completion/complete",
            json!({ "ref": { "type": "ref/prompt", "name": "greet" }, "argument": { "name": "a", "value": "b" } }),
        ),
    ];
    for (count, (method, params)) in (1..).zip(requests) {
        let mut client = sent(&gateway, &session.request(9, method, &params)).await;
        let got = upstream.call(method).await;
        let cancel = session.notify("notifications/cancelled", &json!({ "requestId": 9 }));
        assert_eq!(gateway.ask(cancel).await.status, 202);
        assert_eq!(client.response().await.unwrap().status, 200, "{method}");
        soon("the upstream is told", SOON, async {
            let mut seen = 0;
            while upstream.calls("notifications/cancelled").len() < count {
                upstream.nth(seen).await;
                seen += 1;
            }
        })
        .await;
        let told = upstream.calls("notifications/cancelled").pop().unwrap();
        assert_eq!(told.json()["params"]["requestId"], got.rpc_id(), "{method}");
    }
}

async fn hanging() -> vestibule_testkit::RecordingUpstream {
    use vestibule_testkit::recording::{Answer, legacy_basics};
    let capabilities = json!({ "prompts": {}, "resources": {}, "completions": {} });
    vestibule_testkit::RecordingUpstream::start(move |request| {
        if let Some(answer) = legacy_basics(request, &capabilities) {
            return answer;
        }
        match request.rpc_method().as_str() {
            "prompts/list" => Answer::result(request, &json!({ "prompts": [{ "name": "greet" }] })),
            "resources/list" => Answer::result(
                request,
                &json!({ "resources": [{ "uri": "memo://a", "name": "a" }] }),
            ),
            "resources/templates/list" => {
                Answer::result(request, &json!({ "resourceTemplates": [] }))
            }
            _ => Answer::Hang,
        }
    })
    .await
    .unwrap()
}

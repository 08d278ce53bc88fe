//! The way down: readiness first, then streams and calls end as their era wants, then the process,
//! in time.

use std::time::Duration;

use serde_json::json;
use vestibule_testkit::{RawClient, RawRequest};

use crate::process::{Folder, Served, configuration};
use crate::talk::{
    SESSIONS, Upstream, get, initialize, modern, modern_call, open_tenant, post, response, text,
};

const UP: &str = "/mcp/t/up";

struct House {
    upstream: Upstream,
    served: Served,
    _folder: Folder,
}

async fn house(shutdown: &str) -> House {
    let upstream = Upstream::modern().await;
    let tenant = open_tenant(&[("up", upstream.reach())], "stream_after: 50ms");
    let folder = Folder::new();
    let file = folder.write("drain.yaml", &configuration(shutdown, &tenant));
    let served = Served::start(&file).await;
    House {
        upstream,
        served,
        _folder: folder,
    }
}

impl House {
    async fn session(&self, revision: &str) -> String {
        let answer = self.served.ask(&initialize(UP, revision)).await;
        let id = answer.head.field("mcp-session-id").unwrap().to_owned();
        let ready = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let ready = post(UP, ready).field("Mcp-Session-Id", &id);
        assert_eq!(self.served.ask(&ready).await.status, 202);
        id
    }

    async fn sent(&self, request: &RawRequest) -> RawClient {
        let mut client = self.served.connect().await;
        client.send(&request.bytes()).await.unwrap();
        client
    }

    /// A session's call that has become a stream.
    async fn streaming_call(&self, session: &str) -> (RawClient, Upstreaming) {
        let body = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"stream"}}"#;
        let mut client = self
            .sent(&post(UP, body).field("Mcp-Session-Id", session))
            .await;
        let upstream = self.upstream.opened().await;
        let head = client.head().await.unwrap();
        assert_eq!(head.field("content-type"), Some("text/event-stream"));
        (client, upstream)
    }
}

type Upstreaming = (
    vestibule_testkit::Recorded,
    vestibule_testkit::recording::AnswerStream,
);

/// Reads a stream to its end; the last `retry`, and the data of its messages.
async fn rest(client: &mut RawClient) -> (Option<u64>, Vec<serde_json::Value>) {
    let (mut retry, mut messages) = (None, Vec::new());
    while let Some(event) = client.next_event().await.unwrap() {
        retry = event.retry.or(retry);
        if event.data.as_deref().is_some_and(|data| !data.is_empty()) {
            messages.push(event.json());
        }
    }
    (retry, messages)
}

/// Case 69, C6, C7: SIGTERM with a running call of each era, a GET stream and a listen stream.
#[tokio::test]
async fn case_69_c6_c7_a_stop_is_announced_then_streams_end_then_the_process() {
    let mut house = house("shutdown: { delay: 1s, grace: 20s }").await;
    let ready = house.served.page("/readyz").await;
    assert_eq!(ready.status, 200);
    let session = house.session(SESSIONS[0]).await;
    let older = house.session(SESSIONS[1]).await;
    let mut standalone = house.served.connect().await;
    standalone
        .open(&get(UP).field("Mcp-Session-Id", &session))
        .await
        .unwrap();
    let filter = json!({ "notifications": { "toolsListChanged": true } });
    let mut listen = house.served.connect().await;
    listen
        .open(&modern(UP, "l", "subscriptions/listen", filter))
        .await
        .unwrap();
    listen.next_event().await.unwrap().unwrap();
    let (mut resumable, of_resumable) = house.streaming_call(&session).await;
    let (mut older_call, of_older) = house.streaming_call(&older).await;
    let json_only = modern_call(UP, "stream", &json!({}))
        .without("Accept")
        .field("Accept", "application/json");
    let mut stateless = house.sent(&json_only).await;
    let of_stateless = house.upstream.opened().await;

    house.served.program.signal("TERM");
    house.served.program.stderr.with("stopping").await;
    // announced: not ready, and still served
    let unready = house.served.page("/readyz").await;
    assert_eq!(unready.status, 503);
    assert!(unready.json()["reasons"].to_string().contains("draining"));
    assert_eq!(house.served.page("/livez").await.status, 200);
    let late = house
        .served
        .ask(&modern_call(UP, "echo", &json!({ "late": 1 })))
        .await;
    assert_eq!(text(&late.json()), r#"{"late":1}"#);

    // draining: idle streams end in the way of their era
    let (retry, messages) = rest(&mut standalone).await;
    assert!(
        (2_000..=5_000).contains(&retry.expect("a retry")),
        "{retry:?}"
    );
    assert!(messages.is_empty());
    let (retry, messages) = rest(&mut listen).await;
    assert_eq!(retry, None, "SSE-12");
    let last = messages.last().expect("SUB-04: the result");
    assert_eq!(last["id"], "l");
    assert_eq!(last["result"]["resultType"], "complete");
    // SSE-05: a client that can come back is sent away
    let (retry, messages) = rest(&mut resumable).await;
    assert!(retry.is_some() && messages.is_empty(), "{messages:?}");
    // SSE-03: one that need not be able to gets its answer first
    of_older
        .1
        .message(&response(&of_older.0, "older"))
        .await
        .unwrap();
    let (_, messages) = rest(&mut older_call).await;
    assert_eq!(text(messages.last().expect("its answer")), "older");
    of_stateless
        .1
        .message(&response(&of_stateless.0, "finished"))
        .await
        .unwrap();
    let finished = stateless.response().await.unwrap();
    assert_eq!(text(&finished.json()), "finished");
    // the call whose client was sent away goes on until it is done
    of_resumable
        .1
        .message(&response(&of_resumable.0, "kept"))
        .await
        .unwrap();
    let status = house.served.program.ended(Duration::from_secs(5)).await;
    assert_eq!(
        status.code(),
        Some(0),
        "{:#?}",
        house.served.program.stderr.all()
    );
}

/// The listener closes when the drain begins, not before.
#[tokio::test]
async fn c6_an_idle_gateway_drains_at_once() {
    let mut house = house("shutdown: { delay: 0s, grace: 30s }").await;
    let mut kept_alive = house.served.connect().await;
    kept_alive
        .ask(&modern_call(UP, "echo", &json!({})))
        .await
        .unwrap();
    house.served.program.signal("TERM");
    kept_alive.closed().await.unwrap();
    let status = house.served.program.ended(Duration::from_secs(3)).await;
    assert_eq!(status.code(), Some(0));
    assert!(RawClient::connect(house.served.data).await.is_err());
}

/// C8: a second signal exits at once, whatever runs.
#[tokio::test]
async fn case_69_c8_a_second_signal_exits_at_once() {
    for second in ["TERM", "INT"] {
        let mut house = house("shutdown: { delay: 60s, grace: 60s }").await;
        let mut client = house.sent(&modern_call(UP, "stream", &json!({}))).await;
        let (_call, stream) = house.upstream.opened().await;
        house.served.program.signal("TERM");
        house.served.program.stderr.with("stopping").await;
        house.served.program.signal(second);
        let status = house.served.program.ended(Duration::from_secs(1)).await;
        assert_eq!(status.code(), Some(1), "something was cut");
        stream.gone().await;
        drop(client.response().await);
    }
}

/// C7, C8: what has not finished when the grace ends gets an explicit error, and the process ends.
#[tokio::test]
async fn c7_c8_what_outlasts_the_grace_ends_with_an_explicit_error() {
    let mut house = house("shutdown: { delay: 0s, grace: 500ms }").await;
    let older = house.session(SESSIONS[1]).await;
    let (mut older_call, _of_older) = house.streaming_call(&older).await;
    let mut streaming = house.sent(&modern_call(UP, "stream", &json!({}))).await;
    let _of_streaming = house.upstream.opened().await;
    streaming.head().await.unwrap();
    let json_only = modern_call(UP, "stream", &json!({}))
        .without("Accept")
        .field("Accept", "application/json");
    let mut waiting = house.sent(&json_only).await;
    let _of_waiting = house.upstream.opened().await;
    house.served.program.signal("TERM");
    let (_, messages) = rest(&mut streaming).await;
    let error = messages.last().expect("an error")["error"].clone();
    assert_eq!(error["code"], -31001, "{error}");
    let (_, messages) = rest(&mut older_call).await;
    assert_eq!(messages.last().expect("an error")["error"]["code"], -31001);
    let answer = waiting.response().await.unwrap();
    assert_eq!(answer.json()["error"]["code"], -31001);
    house.served.program.ended(Duration::from_secs(3)).await;
}

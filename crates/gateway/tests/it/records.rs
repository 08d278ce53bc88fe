//! What is written about a request: one access record, its id in the answer, and no secret anywhere.

use std::time::Duration;

use serde_json::{Value, json};
use vestibule_testkit::{RawClient, RawRequest};

use crate::auth::key;
use crate::process::{Folder, Served, configuration};
use crate::talk::{MODERN, SESSIONS, Upstream, get, initialize, modern, modern_call, post, tenant};

const UP: &str = "/mcp/t/up";

struct House {
    upstream: Upstream,
    served: Served,
    key: String,
    _folder: Folder,
}

async fn house() -> House {
    let upstream = Upstream::modern().await;
    let key = key("one", "S");
    let head = format!(
        "    auth: {{ keys: true }}\n    keys:\n      one: {{ secret: \"{key}\", subject: \"alice@example.org\" }}"
    );
    let reach = format!(
        "{}, auth: {{ headers: {{ X-Api-Key: upstream-secret-value }} }}",
        upstream.reach()
    );
    let tenants = tenant("t", &head, &[("up", reach)], "");
    let folder = Folder::new();
    let file = folder.write("records.yaml", &configuration("", &tenants));
    let served = Served::start(&file).await;
    House {
        upstream,
        served,
        key,
        _folder: folder,
    }
}

impl House {
    fn bearing(&self, request: RawRequest) -> RawRequest {
        request.field("Authorization", format!("Bearer {}", self.key))
    }

    /// Asks, and gives the access record of the request by the id that the answer carries.
    async fn recorded(&self, request: RawRequest) -> Value {
        let answer = self.served.ask(&request).await;
        let id = answer
            .head
            .field("x-request-id")
            .expect("every answer has one");
        self.record(id).await
    }

    async fn record(&self, id: &str) -> Value {
        let line = self
            .served
            .program
            .stderr
            .with(&format!(r#""request_id":"{id}""#))
            .await;
        let record: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(record["logger"], "access", "{record}");
        record
    }
}

/// The fields of the contract, of a call that went through.
#[tokio::test]
async fn the_access_record_has_every_field_of_the_contract() {
    let house = house().await;
    let record = house
        .recorded(house.bearing(modern_call(UP, "echo", &json!({ "a": 1 }))))
        .await;
    for (field, value) in [
        ("tenant", json!("t")),
        ("server", json!("up")),
        ("principal", json!("alice@example.org")),
        ("revision", json!(MODERN)),
        ("method", json!("tools/call")),
        ("target", json!("echo")),
        ("upstream", json!("up")),
        ("status", json!(200)),
        ("outcome", json!("ok")),
    ] {
        assert_eq!(record[field], value, "{field}: {record}");
    }
    for number in ["bytes_in", "bytes_out", "duration_ms", "upstream_ms"] {
        assert!(
            record[number].as_f64().is_some_and(|number| number > 0.0),
            "{number}: {record}"
        );
    }
    assert!(record["timestamp"].is_string());
    let sent = house.upstream.peer.call("tools/call").await;
    assert_eq!(sent.field("x-api-key"), Some("upstream-secret-value"));
}

/// Refusals of every stage are recorded with status, code and outcome.
#[tokio::test]
async fn refusals_are_recorded_with_their_reason() {
    let house = house().await;
    let bearing = |request| house.bearing(request);
    for (request, status, code, outcome) in [
        (
            modern_call(UP, "echo", &json!({})),
            401,
            -32600,
            "unauthenticated",
        ),
        (get("/mcp/none"), 404, -32600, "rejected"),
        (
            bearing(modern_call(UP, "echo", &json!({}))).field("Origin", "https://evil.example"),
            403,
            -31006,
            "denied",
        ),
        (bearing(post(UP, "{")), 400, -32700, "rejected"),
        (
            bearing(post(UP, "{}")).without("Content-Type"),
            415,
            -32600,
            "rejected",
        ),
        (bearing(get("/mcp/t/up?sse=x")), 405, -32600, "rejected"),
        (
            bearing(modern_call(
                UP,
                "fail",
                &json!({ "code": 7, "message": "x" }),
            )),
            200,
            7,
            "rpc_error",
        ),
        (
            bearing(modern(UP, 1, "resources/write", json!({}))),
            404,
            -32601,
            "rpc_error",
        ),
    ] {
        let shown = format!("{request:?}");
        let record = house.recorded(request).await;
        assert_eq!(record["status"], status, "{shown}: {record}");
        assert_eq!(record["code"], code, "{shown}: {record}");
        assert_eq!(record["outcome"], outcome, "{shown}: {record}");
    }
}

/// The id is ours, whatever the caller sends, and one request has one record.
#[tokio::test]
async fn the_request_id_is_never_the_callers() {
    let house = house().await;
    let forged = house
        .bearing(modern_call(UP, "echo", &json!({})))
        .field("X-Request-Id", "forged-by-the-caller");
    let first = house.served.ask(&forged).await;
    let ids: Vec<&str> = first.head.all("x-request-id").collect();
    assert_eq!(ids.len(), 1);
    assert_ne!(ids[0], "forged-by-the-caller");
    let second = house.served.ask(&forged).await;
    assert_ne!(second.head.field("x-request-id"), Some(ids[0]));
    house.record(ids[0]).await;
    let records = house.served.program.stderr.all();
    let about = records.iter().filter(|line| line.contains(ids[0]));
    assert_eq!(about.count(), 1);
}

/// A call whose client leaves is recorded as cancelled.
#[tokio::test]
async fn a_call_that_is_left_is_recorded_as_cancelled() {
    let house = house().await;
    let mut client: RawClient = house.served.connect().await;
    let call = house.bearing(modern_call(UP, "stream", &json!({})));
    client.send(&call.bytes()).await.unwrap();
    let (_call, stream) = house.upstream.opened().await;
    drop(client);
    stream.gone().await;
    let line = house
        .served
        .program
        .stderr
        .with(r#""outcome":"cancelled""#)
        .await;
    assert!(line.contains(r#""method":"tools/call""#), "{line}");
}

/// SEC-05, SES-06, T68, T69: neither credentials nor sessions, arguments, results or event ids are
/// logged, and nothing a caller writes breaks a line.
#[tokio::test]
async fn sec_05_t68_secrets_and_payloads_are_never_logged() {
    let mut house = house().await;
    let opened = house
        .served
        .ask(&house.bearing(initialize(UP, SESSIONS[0])))
        .await;
    let session = opened.head.field("mcp-session-id").unwrap().to_owned();
    let within = |request: RawRequest| house.bearing(request).field("Mcp-Session-Id", &session);
    let mut stream = house.served.connect().await;
    stream.open(&within(get(UP))).await.unwrap();
    let event = stream.next_event().await.unwrap().unwrap().id.unwrap();
    drop(stream);
    house
        .served
        .ask(&within(get(UP)).field("Last-Event-ID", "forged-event-id"))
        .await;
    let mut resumed = house.served.connect().await;
    resumed
        .open(&within(get(UP)).field("Last-Event-ID", &event))
        .await
        .unwrap();
    drop(resumed);
    let secret = json!({ "password": "argument-secret-value" });
    for request in [
        modern_call(UP, "echo", &secret),
        modern_call(UP, "name\n{\"forged\":\"line\"}\u{1b}[31m", &json!({})),
        modern(
            UP,
            1,
            "resources/read",
            json!({ "uri": "https://a/b?token=query-secret-value" }),
        ),
        post(UP, "{\"jsonrpc\":\"2.0\",\"id\":\"body-secret-value\"")
            .field("X-Custom", "header-secret-value"),
        modern_call(
            &format!("{UP}?access_token={}", house.key),
            "echo",
            &json!({}),
        ),
    ] {
        house
            .served
            .ask(&house.bearing(request.field("Cookie", "cookie-secret-value")))
            .await;
    }
    let wrong = key("one", "W");
    house
        .served
        .ask(&modern_call(UP, "echo", &json!({})).field("Authorization", format!("Bearer {wrong}")))
        .await;
    assert_eq!(
        house
            .served
            .ask(&within(
                RawRequest::new("DELETE", UP).field("Host", crate::talk::HOST)
            ))
            .await
            .status,
        204
    );
    let metrics = String::from_utf8(house.served.page("/metrics").await.body.to_vec()).unwrap();
    house.served.program.signal("TERM");
    house.served.program.signal("INT");
    house.served.program.ended(Duration::from_secs(5)).await;
    let log = house.served.program.stderr.whole().await;
    for secret in [
        house.key.as_str(),
        "SSSSSSSS",
        &wrong,
        &session,
        &event,
        "forged-event-id",
        "upstream-secret-value",
        "argument-secret-value",
        "query-secret-value",
        "body-secret-value",
        "header-secret-value",
        "cookie-secret-value",
    ] {
        let logged = log.iter().find(|line| line.contains(secret));
        assert_eq!(logged, None, "{secret}");
        assert!(!metrics.contains(secret), "{secret} in the metrics");
    }
    for line in &log {
        let parsed: Result<Value, _> = serde_json::from_str(line);
        assert!(
            parsed.is_ok_and(|value| value["forged"].is_null()),
            "{line}"
        );
        assert!(!line.contains('\u{1b}'), "{line}");
    }
}

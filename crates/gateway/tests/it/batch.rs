//! Batches of 2025-03-26 sessions: every element is a call of its own, on upstreams of both eras.

use serde_json::{Value, json};
use vestibule_testkit::{Answer, RawResponse, Recorded};

use crate::harness::Gateway;
use crate::peers::{
    LEGACY, MODERN, Session, legacy_post, legacy_upstream, listed, modern_upstream, notification,
    reply, request, streams, tenant, text_result,
};

const BATCHING: &str = "2025-03-26";

fn echo(request: &Recorded) -> Option<Answer> {
    let json = request.json();
    if json["method"] != "tools/call" {
        return listed(request, &["t"]);
    }
    let mut result = text_result(
        json["params"]["arguments"]["s"]
            .as_str()
            .unwrap_or_default(),
    );
    result["resultType"] = json!("complete");
    Some(Answer::result(request, &result))
}

fn call(id: impl Into<Value>, secret: &str) -> Value {
    request(
        id,
        "tools/call",
        &json!({ "name": "t", "arguments": { "s": secret } }),
    )
}

fn refused(answer: &RawResponse) -> (u16, i64, bool) {
    let json = answer.json();
    let code = json["error"]["code"].as_i64().unwrap_or_default();
    (answer.status, code, json.get("id").is_some())
}

/// BAT-01, BAT-06, BAT-08, XT-460, case 58: requests and notifications of a batch go upstream one by one;
/// the answers come back as one array in the order of the requests, ids with their types.
#[tokio::test]
async fn bat_01_06_a_batch_is_split_and_joined_over_both_eras() {
    let old = legacy_upstream(json!({ "tools": {} }), echo).await;
    let new = modern_upstream(json!({ "tools": {} }), echo).await;
    let gateway = Gateway::start(&tenant(&[("old", &old.url()), ("new", &new.url())]));
    for (target, upstream) in [("/mcp/t/old", &old), ("/mcp/t/new", &new)] {
        let session = Session::of(&gateway, target, BATCHING, json!({}), None).await;
        let batch = json!([
            call(1, "a"),
            notification("notifications/roots/list_changed", &json!({})),
            call("1", "b"),
            request(2, "ping", &json!({})),
            request(3, "nosuch/method", &json!({})),
        ]);
        let answer = session.post(&batch).await;
        assert_eq!(answer.status, 200);
        let json = answer.json();
        let all = json.as_array().unwrap();
        let ids: Vec<_> = all.iter().map(|one| one["id"].clone()).collect();
        assert_eq!(ids, [json!(1), json!("1"), json!(2), json!(3)]);
        assert_eq!(all[0]["result"]["content"][0]["text"], "a");
        assert_eq!(all[1]["result"]["content"][0]["text"], "b");
        assert_eq!(all[2]["result"], json!({}));
        assert_eq!(all[3]["error"]["code"], -32601);
        let calls = upstream.calls("tools/call");
        assert_eq!(calls.len(), 2, "BAT-08: each is a POST of its own");
        assert_ne!(calls[0].rpc_id(), calls[1].rpc_id());
    }
}

/// BAT-02 … BAT-05, BAT-07, FRM-18, XT-461 … XT-465, case 58: what is refused as a whole, with nothing sent upstream.
#[tokio::test]
async fn bat_02_03_04_07_bad_batches_are_refused_whole() {
    let upstream = legacy_upstream(json!({ "tools": {} }), echo).await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    let session = Session::of(&gateway, "/mcp/t/up", BATCHING, json!({}), None).await;
    let many: Vec<_> = (0..65).map(|id| call(id, "x")).collect();
    for batch in [
        json!([]),
        json!([
            call(1, "x"),
            request(2, "initialize", &json!({ "protocolVersion": BATCHING }))
        ]),
        json!([call(1, "x"), 7]),
        json!([call(1, "x"), []]),
        json!([call(1, "x"), { "jsonrpc": "2.0", "id": 5, "result": {} }]),
        json!(many),
    ] {
        let answer = session.post(&batch).await;
        assert_eq!(refused(&answer), (400, -32600, false), "{batch}");
    }
    // BAT-05, and a second element with the same id
    let only = json!([notification("notifications/roots/list_changed", &json!({}))]);
    let answer = session.post(&only).await;
    assert_eq!((answer.status, answer.body.len()), (202, 0));
    assert!(upstream.calls("tools/call").is_empty());
    let answer = session.post(&json!([call(1, "x"), call(1, "y")])).await;
    let json = answer.json();
    assert_eq!(json[0]["result"]["content"][0]["text"], "x");
    assert_eq!(json[1]["error"]["code"], -32600, "BAT-07");
    assert_eq!(upstream.calls("tools/call").len(), 1);
}

/// FRM-17, FRM-18, XT-006, case 58: no other revision has batches, with or without a blank first.
#[tokio::test]
async fn case_58_other_revisions_refuse_batches() {
    let upstream = legacy_upstream(json!({ "tools": {} }), echo).await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    let batch = json!([call(1, "x")]);
    for revision in ["2025-06-18", LEGACY] {
        let session = Session::of(&gateway, "/mcp/t/up", revision, json!({}), None).await;
        for blank in ["", " \r\n\t"] {
            let message = session.message(&batch).body(format!("{blank}{batch}"));
            let answer = gateway.ask(message).await;
            assert_eq!(refused(&answer), (400, -32600, false), "{revision}");
        }
    }
    let modern = legacy_post("/mcp/t/up", &batch).field("MCP-Protocol-Version", MODERN);
    assert_eq!(refused(&gateway.ask(modern).await), (400, -32600, false));
    let sessionless = legacy_post("/mcp/t/up", &batch);
    assert_eq!(
        refused(&gateway.ask(sessionless).await),
        (400, -32600, false)
    );
    assert!(upstream.calls("tools/call").is_empty());
}

/// BAT-06, 8.1, 8.7, XT-466: what streams turns the answer into a stream: each response its own
/// event, progress under each element's own token; a cancelled element yields none.
#[tokio::test]
async fn bat_06_a_batch_streams_when_an_element_does() {
    let (opens, streams) = streams();
    let upstream = legacy_upstream(json!({ "tools": {} }), move |request: &Recorded| {
        (request.rpc_method() == "tools/call").then(|| opens.answer(request))
    })
    .await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    let session = Session::of(&gateway, "/mcp/t/up", BATCHING, json!({}), None).await;
    let with = |id: u8, token: Value| {
        request(
            id,
            "tools/call",
            &json!({ "name": "t", "arguments": { "s": id.to_string() }, "_meta": { "progressToken": token } }),
        )
    };
    let batch = json!([with(1, json!(7)), with(2, json!("7")), with(3, json!("x"))]);
    let mut client = session.begin(&batch).await;
    let mut open = Vec::new();
    for _ in 0..3 {
        open.push(streams.next().await);
    }
    open.sort_by_key(|(sent, _)| sent.json()["params"]["arguments"]["s"].to_string());
    let mut open = open.into_iter();
    let (one, one_stream) = open.next().unwrap();
    let (two, two_stream) = open.next().unwrap();
    let (three, three_stream) = open.next().unwrap();
    for (sent, stream, expected) in [
        (&two, &two_stream, json!("7")),
        (&one, &one_stream, json!(7)),
    ] {
        let token = sent.json()["params"]["_meta"]["progressToken"].clone();
        let progress = json!({ "progressToken": token, "progress": 1 });
        stream
            .message(&notification("notifications/progress", &progress))
            .await
            .unwrap();
        assert_eq!(client.next().await["params"]["progressToken"], expected);
    }
    let cancel = notification("notifications/cancelled", &json!({ "requestId": 3 }));
    assert_eq!(session.post(&cancel).await.status, 202);
    let cancelled = upstream.call("notifications/cancelled").await;
    assert_eq!(cancelled.json()["params"]["requestId"], three.rpc_id());
    drop(three_stream);
    two_stream
        .message(&reply(&two, &text_result("two")))
        .await
        .unwrap();
    assert_eq!(client.next().await["id"], 2);
    one_stream
        .message(&reply(&one, &text_result("one")))
        .await
        .unwrap();
    assert_eq!(client.next().await["id"], 1);
    assert!(
        client.event().await.is_none(),
        "the stream ends after the last response"
    );
}

/// BAT-09, XT-467: batches of an upstream are taken apart.
#[tokio::test]
async fn bat_09_batches_of_upstreams_are_taken_apart() {
    let (opens, streams) = streams();
    let upstream = legacy_upstream(json!({}), move |request: &Recorded| {
        match request.rpc_method().as_str() {
            "initialize" => {
                let result = json!({ "protocolVersion": BATCHING, "capabilities": { "tools": {} }, "serverInfo": { "name": "u", "version": "1" } });
                Some(Answer::result(request, &result).field("mcp-session-id", "s"))
            }
            "tools/call" => Some(opens.answer(request)),
            _ => None,
        }
    })
    .await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    let session = Session::open(&gateway, "/mcp/t/up", json!({})).await;
    let params = json!({ "name": "t", "_meta": { "progressToken": 1 } });
    let mut client = session.begin(&request(2, "tools/call", &params)).await;
    let (sent, stream) = streams.next().await;
    let token = sent.json()["params"]["_meta"]["progressToken"].clone();
    let progress = notification(
        "notifications/progress",
        &json!({ "progressToken": token, "progress": 1 }),
    );
    let ping = json!({ "jsonrpc": "2.0", "id": "p", "method": "ping" });
    stream
        .message(&json!([progress, ping, reply(&sent, &text_result("end"))]))
        .await
        .unwrap();
    drop(stream);
    let all = client.rest().await;
    assert_eq!(all.len(), 2, "{all:?}");
    assert_eq!(all[0]["params"]["progressToken"], 1);
    assert_eq!(all[1]["result"]["content"][0]["text"], "end");
}

/// Case 58, BAT-01: a batch is no way around a budget: every element is charged, whichever kind it
/// is, and each has a record of its own.
#[tokio::test]
async fn case_58_bat_01_every_element_is_charged_and_recorded() {
    let upstream = legacy_upstream(json!({ "tools": {} }), echo).await;
    let gateway = Gateway::start(&format!(
        "  t:
    auth: none
    policy: allow_all
    limits: {{ tenant: {{ rate: 1/h, burst: 6 }} }}
    upstreams: {{ up: {{ url: \"{}\" }} }}
    servers: {{ up: {{ upstream: up }} }}",
        upstream.url()
    ));
    // initialize and initialized take two of the six
    let session = Session::of(&gateway, "/mcp/t/up", BATCHING, json!({}), None).await;
    let answer = session
        .post(&json!([
            call(1, "a"),
            notification("notifications/roots/list_changed", &json!({})),
            call(2, "b"),
            request(3, "ping", &json!({})),
            call(4, "c"),
            notification("notifications/cancelled", &json!({ "requestId": 1 })),
        ]))
        .await;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    let json = answer.json();
    assert!(json[0]["result"].is_object(), "{json}");
    assert!(json[1]["result"].is_object(), "{json}");
    assert_eq!(json[2]["result"], json!({}), "{json}");
    assert_eq!(json[3]["error"]["code"], -31005, "{json}");
    assert_eq!(json[3]["error"]["data"]["limit"], "tenant.rate", "{json}");
    assert_eq!(upstream.calls("tools/call").len(), 2);
    let page = gateway.app.metrics().expose();
    let counted = |method: &str, outcome: &str| {
        let line = |line: &&str| {
            let labels = [
                format!("method=\"{method}\""),
                format!("outcome=\"{outcome}\""),
            ];
            line.starts_with("vestibule_requests_total{")
                && labels.iter().all(|label| line.contains(label))
        };
        page.lines()
            .find(line)
            .and_then(|line| line.rsplit(' ').next()?.parse().ok())
    };
    assert_eq!(counted("tools/call", "ok"), Some(2), "{page}");
    assert_eq!(counted("ping", "ok"), Some(1), "{page}");
    assert!(
        page.contains("vestibule_rate_limited_total{scope=\"tenant\",tenant=\"t\"} 2"),
        "{page}"
    );
}

//! Callers that share a gateway, an upstream, a connection, ids and tokens, and see nothing of each
//! other.

use futures_util::future::join_all;
use serde_json::{Value, json};
use vestibule_testkit::{Answer, RawRequest, Recorded};

use crate::harness::Gateway;
use crate::peers::{
    Session, Stream, legacy_upstream, listed, modern, modern_upstream, modern_with, notification,
    reply, request, streams, tenant, text_result,
};

const ALICE: &str = "vsk_alice_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const BOB: &str = "vsk_bob_bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
const CAROL: &str = "vsk_carol_ccccccccccccccccccccccccccccccccccccccccccc";

/// Tenant `a` with Alice and Bob, tenant `b` with Carol, all of them on the same upstream.
fn tenants(url: &str) -> String {
    let part = |id: &str, keys: &str| {
        format!(
            "  {id}:\n    auth: {{ keys: true }}\n    keys:\n{keys}    policy: allow_all\n    upstreams:\n      up: {{ url: \"{url}\" }}\n    servers:\n      default: {{ upstreams: [up] }}\n      up: {{ upstream: up }}\n"
        )
    };
    let key =
        |id: &str, secret: &str| format!("      {id}: {{ secret: \"{secret}\", subject: {id} }}\n");
    format!(
        "{}{}",
        part("a", &format!("{}{}", key("alice", ALICE), key("bob", BOB))),
        part("b", &key("carol", CAROL)),
    )
}

fn bearing(request: RawRequest, key: &str) -> RawRequest {
    request.field("Authorization", format!("Bearer {key}"))
}

/// Answers a call with its own secret, and what session it came on.
fn echo(request: &Recorded) -> Option<Answer> {
    let json = request.json();
    if json["method"] != "tools/call" {
        return listed(request, &["t"]);
    }
    let session = request.field("mcp-session-id").unwrap_or_default();
    let secret = json["params"]["arguments"]["s"]
        .as_str()
        .unwrap_or_default();
    let mut result = text_result(&format!("{secret}|{session}"));
    result["resultType"] = json!("complete");
    Some(Answer::result(request, &result))
}

fn session_seen(answer: &Value) -> String {
    let text = answer["result"]["content"][0]["text"].as_str();
    let text = text.unwrap_or_else(|| panic!("{answer}"));
    text.split_once('|').unwrap().1.to_owned()
}

/// Case 55, T41: many clients with equal ids at once on one upstream each get their own answer.
#[tokio::test]
async fn case_55_equal_ids_of_many_clients_never_cross() {
    let new = modern_upstream(json!({ "tools": {} }), echo).await;
    let old = legacy_upstream(json!({ "tools": {} }), echo).await;
    let gateway = Gateway::start(&tenant(&[("new", &new.url()), ("old", &old.url())]));
    let call = async |n: usize| {
        let target = if n.is_multiple_of(2) {
            "/mcp/t/new"
        } else {
            "/mcp/t/old"
        };
        let params = json!({ "name": "t", "arguments": { "s": format!("secret-{n}") } });
        let answer = gateway
            .ask(modern(target, &json!(0), "tools/call", &params))
            .await;
        let answer = answer.answer();
        assert_eq!(answer["id"], 0);
        let text = answer["result"]["content"][0]["text"].as_str().unwrap();
        assert!(text.starts_with(&format!("secret-{n}|")), "{n}: {answer}");
    };
    join_all((0..60).map(call)).await;
}

/// Case 53, FRM-04, FRM-06: `1` and `"1"` of one session are two requests; the same id twice at once is one
/// too many.
#[tokio::test]
async fn case_53_ids_keep_their_types() {
    let (opens, streams) = streams();
    let upstream = legacy_upstream(json!({ "tools": {} }), move |request| {
        let slow = request.json()["params"]["arguments"]["s"] == "slow";
        (slow && request.rpc_method() == "tools/call")
            .then(|| opens.answer(request))
            .or_else(|| echo(request))
    })
    .await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    let session = Session::open(&gateway, "/mcp/t/up", json!({})).await;
    let slow = json!({ "name": "t", "arguments": { "s": "slow" } });
    let client = session.begin(&request(5, "tools/call", &slow)).await;
    let (sent, stream) = streams.next().await;
    let fast = json!({ "name": "t", "arguments": { "s": "fast" } });
    let answer = session.call("5", "tools/call", fast.clone()).await;
    assert_eq!(answer["id"], "5");
    assert!(
        answer["result"]["content"][0]["text"]
            .as_str()
            .unwrap()
            .starts_with("fast")
    );
    let answer = session.call(5, "tools/call", fast).await;
    assert_eq!(answer["error"]["code"], -32600, "{answer}");
    stream
        .message(&reply(&sent, &text_result("slow")))
        .await
        .unwrap();
    drop(stream);
    let answer = client.response().await.answer();
    assert_eq!(
        (&answer["id"], &answer["result"]["content"][0]["text"]),
        (&json!(5), &json!("slow"))
    );
    assert_eq!(upstream.calls("tools/call").len(), 2);
}

/// Case 81, PRG-01: equal progress tokens of two tenants on one upstream: each hears its own only.
#[tokio::test]
async fn case_81_equal_progress_tokens_of_two_tenants_do_not_meet() {
    let (opens, streams) = streams();
    let upstream = modern_upstream(json!({ "tools": {} }), move |request| {
        let call = request.rpc_method() == "tools/call";
        call.then(|| opens.answer(request))
            .or_else(|| listed(request, &["t"]))
    })
    .await;
    let gateway = Gateway::start(&tenants(&upstream.url()));
    let mut open = Vec::new();
    for (target, key, token) in [
        ("/mcp/a/up", ALICE, json!(1)),
        ("/mcp/b/up", CAROL, json!("1")),
        ("/mcp/a/up", BOB, json!(1)),
    ] {
        let params = json!({ "name": "t", "_meta": { "progressToken": token } });
        let call = bearing(modern(target, &json!(1), "tools/call", &params), key);
        let client = Stream::send(&gateway, call).await;
        let (sent, stream) = streams.next().await;
        open.push((client, sent, stream, token));
    }
    let tokens: Vec<_> = open
        .iter()
        .map(|(_, sent, _, _)| sent.json()["params"]["_meta"]["progressToken"].clone())
        .collect();
    // every stream reports for every token; only its own counts
    for (index, (_, _, stream, _)) in open.iter().enumerate() {
        for token in &tokens {
            let params = json!({ "progressToken": token, "progress": index + 1 });
            stream
                .message(&notification("notifications/progress", &params))
                .await
                .unwrap();
        }
    }
    for (index, (mut client, sent, stream, token)) in open.into_iter().enumerate() {
        let mut result = text_result("end");
        result["resultType"] = json!("complete");
        stream.message(&reply(&sent, &result)).await.unwrap();
        drop(stream);
        let all = client.rest().await;
        assert_eq!(all.len(), 2, "{all:?}");
        assert_eq!(all[0]["params"]["progressToken"], token);
        assert_eq!(all[0]["params"]["progress"], index + 1);
    }
}

/// Cases 92, 95, T46, T48, XT-044, SES-02: keys open their own tenant only; a session is its owner's only, at every
/// method, and for anybody else it does not exist.
#[tokio::test]
async fn case_95_sessions_and_keys_are_their_owners_only() {
    let upstream = legacy_upstream(json!({ "tools": {} }), echo).await;
    let gateway = Gateway::start(&tenants(&upstream.url()));
    let call = json!({ "name": "t", "arguments": { "s": "x" } });
    for (target, key) in [
        ("/mcp/a", CAROL),
        ("/mcp/b", ALICE),
        (
            "/mcp/a/up",
            "vsk_alice_zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz",
        ),
    ] {
        let answer = gateway
            .ask(bearing(modern(target, &json!(1), "tools/call", &call), key))
            .await;
        assert_eq!(answer.status, 401, "{target}");
    }
    let alice = Session::of(&gateway, "/mcp/a/up", "2025-11-25", json!({}), Some(ALICE)).await;
    let own = session_seen(&alice.call(2, "tools/call", call.clone()).await);
    let post = crate::peers::legacy_post("/mcp/a/up", &request(3, "tools/call", &call));
    let stream = |method: &str| {
        RawRequest::new(method, "/mcp/a/up")
            .field("Host", "127.0.0.1")
            .field("Accept", "text/event-stream")
    };
    let other = crate::peers::legacy_post("/mcp/a", &request(3, "tools/call", &call));
    for (request, key) in [
        (post.clone(), BOB),
        (stream("GET"), BOB),
        (stream("GET").field("Last-Event-ID", "x"), BOB),
        (stream("DELETE"), BOB),
        (other, ALICE),
    ] {
        let answer = gateway
            .ask(bearing(request, key).field("Mcp-Session-Id", &alice.id))
            .await;
        assert_eq!(answer.status, 404, "{:?}", answer.body);
        assert_eq!(answer.json()["error"]["code"], -32600);
    }
    let carol = bearing(
        crate::peers::legacy_post("/mcp/b/up", &request(3, "tools/call", &call)),
        CAROL,
    );
    assert_eq!(
        gateway
            .ask(carol.field("Mcp-Session-Id", &alice.id))
            .await
            .status,
        404
    );
    assert_eq!(
        session_seen(&alice.call(4, "tools/call", call).await),
        own,
        "Alice is unaffected"
    );
}

/// XT-050, XT-051, XT-329, case 92: modern callers of a stateful upstream: one session each, never shared between
/// principals or tenants.
#[tokio::test]
async fn xt_051_principals_never_share_an_upstream_session() {
    let upstream = legacy_upstream(json!({ "tools": {} }), echo).await;
    let gateway = Gateway::start(&tenants(&upstream.url()));
    let mut seen = Vec::new();
    for (target, key) in [
        ("/mcp/a/up", ALICE),
        ("/mcp/a/up", BOB),
        ("/mcp/b/up", CAROL),
    ] {
        let mut own = Vec::new();
        for _ in 0..2 {
            let params = json!({ "name": "t", "arguments": { "s": key } });
            let answer = gateway
                .ask(bearing(
                    modern(target, &json!(1), "tools/call", &params),
                    key,
                ))
                .await;
            own.push(session_seen(&answer.answer()));
        }
        own.dedup();
        assert_eq!(own.len(), 1, "pooled for one principal: {own:?}");
        seen.extend(own);
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 3, "{seen:?}");
    for request in upstream.requests() {
        assert_eq!(
            request.field("authorization"),
            None,
            "the caller's key stays here (case 13)"
        );
    }
}

/// Case 105, XT-108, XT-536: a state of one caller is nothing to another, of the same tenant or not.
#[tokio::test]
async fn case_105_states_are_their_callers_only() {
    let upstream = modern_upstream(json!({ "tools": {} }), |request| {
        let result = json!({ "resultType": "input_required", "requestState": "s" });
        (request.rpc_method() == "tools/call").then(|| Answer::result(request, &result))
    })
    .await;
    let gateway = Gateway::start(&tenants(&upstream.url()));
    let able = json!({ "elicitation": {} });
    let call = |target: &str, key: &str, state: &Value| {
        let mut params = json!({ "name": "t" });
        if !state.is_null() {
            params["requestState"] = state.clone();
        }
        bearing(
            modern_with(target, &json!(1), "tools/call", &params, &able),
            key,
        )
    };
    let first = gateway
        .ask(call("/mcp/a/up", ALICE, &Value::Null))
        .await
        .answer();
    let state = &first["result"]["requestState"];
    assert!(state.is_string(), "{first}");
    for (target, key) in [("/mcp/a/up", BOB), ("/mcp/b/up", CAROL)] {
        let answer = gateway.ask(call(target, key, state)).await;
        assert_eq!(answer.answer()["error"]["code"], -32602, "{target}");
    }
    assert_eq!(upstream.calls("tools/call").len(), 1);
    let own = gateway.ask(call("/mcp/a/up", ALICE, state)).await.answer();
    assert_eq!(own["result"]["resultType"], "input_required", "{own}");
}

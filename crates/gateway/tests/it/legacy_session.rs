//! Clients with sessions on upstreams with sessions: whose upstream session is used, what is relayed
//! where, how both ends end.

use futures_util::future::join_all;
use serde_json::{Value, json};
use vestibule_testkit::{Answer, RawRequest, Recorded};

use crate::harness::Gateway;
use crate::peers::{
    LEGACY, Session, initialized, legacy_upstream, listed, notification, reply, request, streams,
    tenant, text_result,
};

fn session_of(request: &Recorded) -> String {
    request
        .field("mcp-session-id")
        .unwrap_or_default()
        .to_owned()
}

/// Every tool answers with the upstream session it was called on.
fn echo_session(request: &Recorded) -> Option<Answer> {
    if request.rpc_method() == "tools/call" {
        let result = text_result(&session_of(request));
        return Some(Answer::result(request, &result));
    }
    listed(request, &["t"])
}

fn text(answer: &Value) -> String {
    answer["result"]["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("no text: {answer}"))
        .to_owned()
}

fn call() -> Value {
    json!({ "name": "t" })
}

/// Cases 92, 93, XT-051: one upstream session for each client session, reused from call to call,
/// never shared between two, though the credential is the same.
#[tokio::test]
async fn case_92_93_each_client_session_has_its_own_upstream_session() {
    let upstream = legacy_upstream(json!({ "tools": {} }), echo_session).await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    let one = Session::open(&gateway, "/mcp/t/up", json!({})).await;
    let two = Session::open(&gateway, "/mcp/t/up", json!({})).await;
    let mut seen = Vec::new();
    for id in 2..5 {
        let first = text(&one.call(id, "tools/call", call()).await);
        let second = text(&two.call(id, "tools/call", call()).await);
        assert_ne!(first, second);
        seen.push((first, second));
    }
    seen.dedup();
    assert_eq!(seen.len(), 1, "{seen:?}");
    // nobody initializes more often than needed: two private sessions and at most one for lists
    assert!(upstream.calls("initialize").len() <= 3);
}

/// LIF-03, VER-04, HDR-07, XT-018, XT-390, CAP-06: the handshake is ours, complete before the first
/// call, and every later request carries session and version and nothing of another era.
#[tokio::test]
async fn lif_03_the_upstream_handshake_is_the_gateways_own() {
    let upstream = legacy_upstream(json!({ "tools": {} }), echo_session).await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    let capabilities = json!({ "roots": { "listChanged": true }, "sampling": {}, "elicitation": {}, "experimental": { "x": {} } });
    let session = Session::open(&gateway, "/mcp/t/up", capabilities).await;
    let own = text(&session.call(2, "tools/call", call()).await);
    let requests: Vec<_> = upstream
        .requests()
        .into_iter()
        .filter(|request| request.rpc_method() == "initialize" || session_of(request) == own)
        .collect();
    let opening = upstream
        .calls("initialize")
        .into_iter()
        .rfind(|request| request.json()["params"]["capabilities"]["roots"].is_object())
        .expect("an initialize that declares what the client declared");
    let params = opening.json()["params"].clone();
    assert_eq!(params["protocolVersion"], LEGACY);
    assert_eq!(params["clientInfo"]["name"], "vestibule");
    assert!(params["capabilities"]["sampling"].is_object());
    assert!(params["capabilities"]["elicitation"].is_object());
    assert!(
        params["capabilities"].get("experimental").is_none(),
        "CAP-09"
    );
    assert_eq!(opening.field("mcp-session-id"), None);
    assert_eq!(opening.field("mcp-protocol-version"), None);
    let mut ready = false;
    for request in requests.iter().filter(|request| session_of(request) == own) {
        assert_eq!(request.field("mcp-protocol-version"), Some(LEGACY));
        assert!(request.head.fields.iter().all(|(name, _)| {
            let name = name.to_lowercase();
            !name.starts_with("mcp-")
                || matches!(name.as_str(), "mcp-session-id" | "mcp-protocol-version")
        }));
        let body = String::from_utf8(request.body.to_vec()).unwrap();
        assert!(!body.contains("io.modelcontextprotocol/"), "{body}");
        ready |= request.rpc_method() == "notifications/initialized";
        assert!(
            ready || request.method == "GET",
            "initialized comes first: {request:?}"
        );
    }
}

/// VER-02, XT-032, XT-033, case 148: each hop negotiates alone, and the header says what was agreed on there.
#[tokio::test]
async fn case_148_each_hop_speaks_its_own_revision() {
    let upstream = legacy_upstream(json!({}), |request| {
        if request.rpc_method() == "initialize" {
            let result = json!({ "protocolVersion": "2025-06-18", "capabilities": { "tools": {} }, "serverInfo": { "name": "u", "version": "1" } });
            return Some(Answer::result(request, &result).field("mcp-session-id", "s"));
        }
        echo_session(request)
    })
    .await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    for revision in ["2025-03-26", "2025-06-18", LEGACY] {
        let session = Session::of(&gateway, "/mcp/t/up", revision, json!({}), None).await;
        assert_eq!(session.opened["protocolVersion"], revision);
        assert_eq!(text(&session.call(2, "tools/call", call()).await), "s");
    }
    for request in upstream.calls("tools/call") {
        assert_eq!(request.field("mcp-protocol-version"), Some("2025-06-18"));
    }
}

/// Case 117, SES-08: an upstream that issues no session id is used without one, next to one that does.
#[tokio::test]
async fn case_117_an_upstream_without_sessions_works_beside_one_with() {
    let without = legacy_upstream(json!({ "tools": {} }), |request| {
        (request.rpc_method() == "initialize")
            .then(|| initialized(request, &json!({ "tools": {} })))
            .or_else(|| (request.method == "DELETE").then(|| Answer::empty(405)))
            .or_else(|| echo_session(request))
    })
    .await;
    let with = legacy_upstream(json!({ "tools": {} }), echo_session).await;
    let gateway = Gateway::start(&tenant(&[("a", &without.url()), ("b", &with.url())]));
    let session = Session::open(&gateway, "/mcp/t", json!({})).await;
    let list = session.call(2, "tools/list", json!({})).await;
    assert_eq!(
        list["result"]["tools"].as_array().unwrap().len(),
        2,
        "{list}"
    );
    assert_eq!(
        text(
            &session
                .call(3, "tools/call", json!({ "name": "a__t" }))
                .await
        ),
        ""
    );
    assert!(
        text(
            &session
                .call(4, "tools/call", json!({ "name": "b__t" }))
                .await
        )
        .starts_with("session-")
    );
    assert_eq!(session.delete().await.status, 204);
    assert!(
        without
            .requests()
            .iter()
            .all(|request| request.field("mcp-session-id").is_none())
    );
}

/// Case 114, HDR-07: a session id counts only from a successful `initialize`, and only when it is a
/// legal one.
#[tokio::test]
async fn case_114_session_ids_are_taken_from_a_good_initialize_only() {
    let upstream = legacy_upstream(json!({ "tools": {} }), |request| {
        if request.rpc_method() == "server/discover" {
            return Some(Answer::text(404, "no").field("mcp-session-id", "junk"));
        }
        if request.rpc_method() == "initialize" {
            return Some(initialized(request, &json!({ "tools": {} })));
        }
        let answer = echo_session(request)?;
        Some(answer.field("mcp-session-id", "later"))
    })
    .await;
    let bad = legacy_upstream(json!({ "tools": {} }), |request| {
        (request.rpc_method() == "initialize").then(|| {
            initialized(request, &json!({ "tools": {} })).field("mcp-session-id", "two words")
        })
    })
    .await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url()), ("bad", &bad.url())]));
    let session = Session::open(&gateway, "/mcp/t/up", json!({})).await;
    for id in 2..4 {
        assert_eq!(text(&session.call(id, "tools/call", call()).await), "");
    }
    let session = Session::open(&gateway, "/mcp/t/bad", json!({})).await;
    let answer = session.call(2, "tools/call", call()).await;
    assert_eq!(answer["error"]["code"], -31003, "{answer}");
    assert!(bad.calls("tools/call").is_empty());
}

/// Case 113, SES-04, STA-26, XT-056: a lost upstream session is opened again once for all who meet
/// its 404, and what was refused is sent again; level and subscriptions come first.
#[tokio::test]
async fn case_113_a_lost_session_is_opened_again_once() {
    let capabilities = json!({ "tools": {}, "logging": {}, "resources": { "subscribe": true } });
    let upstream = legacy_upstream(capabilities, |request| {
        let session = session_of(request);
        match request.rpc_method().as_str() {
            "logging/setLevel" | "resources/subscribe" => Some(Answer::result(request, &json!({}))),
            // the session that served the first call is gone by the second
            "tools/call" if request.json()["params"]["name"] == "again" => {
                static GONE: std::sync::OnceLock<String> = std::sync::OnceLock::new();
                if *GONE.get_or_init(|| session.clone()) == session {
                    return Some(Answer::text(404, "no such session"));
                }
                echo_session(request)
            }
            _ => echo_session(request),
        }
    })
    .await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    let session = Session::open(&gateway, "/mcp/t/up", json!({})).await;
    let first = text(&session.call(2, "tools/call", call()).await);
    assert_eq!(
        session
            .call(3, "logging/setLevel", json!({ "level": "info" }))
            .await["result"],
        json!({})
    );
    assert_eq!(
        session
            .call(4, "resources/subscribe", json!({ "uri": "x:1" }))
            .await["result"],
        json!({})
    );
    let before = upstream.calls("initialize").len();
    let calls = (10..30).map(|id| session.call(id, "tools/call", json!({ "name": "again" })));
    let answers = join_all(calls).await;
    let mut sessions: Vec<_> = answers.iter().map(text).collect();
    sessions.sort();
    sessions.dedup();
    assert_eq!(sessions.len(), 1, "{sessions:?}");
    assert_ne!(sessions[0], first);
    assert_eq!(upstream.calls("initialize").len(), before + 1);
    let replayed: Vec<_> = upstream
        .requests()
        .iter()
        .filter(|request| session_of(request) == sessions[0])
        .map(Recorded::rpc_method)
        .filter(|method| !method.is_empty())
        .take_while(|method| method != "tools/call")
        .collect();
    assert!(
        replayed.contains(&"logging/setLevel".to_owned()),
        "{replayed:?}"
    );
    assert!(
        replayed.contains(&"resources/subscribe".to_owned()),
        "{replayed:?}"
    );
}

/// Case 113: an upstream that always answers 404 is not asked for ever.
#[tokio::test]
async fn case_113_recovery_is_bounded() {
    let upstream = legacy_upstream(json!({ "tools": {} }), |request| {
        (request.rpc_method() == "tools/call").then(|| Answer::text(404, "no such session"))
    })
    .await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    let session = Session::open(&gateway, "/mcp/t/up", json!({})).await;
    let answer = session.call(2, "tools/call", call()).await;
    assert_eq!(answer["error"]["code"], -31001, "{answer}");
    assert_eq!(upstream.calls("tools/call").len(), 2);
}

/// GET-08, GET-09, XT-057: DELETE ends the client's session and the upstream session that was
/// private to it; a second DELETE and everything else is 404.
#[tokio::test]
async fn get_08_delete_ends_the_private_upstream_session() {
    let upstream = legacy_upstream(json!({ "tools": {} }), echo_session).await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    let session = Session::open(&gateway, "/mcp/t/up", json!({})).await;
    let other = Session::open(&gateway, "/mcp/t/up", json!({})).await;
    let own = text(&session.call(2, "tools/call", call()).await);
    let kept = text(&other.call(2, "tools/call", call()).await);
    assert_eq!(session.delete().await.status, 204);
    let mut seen = 0;
    let deleted = loop {
        let request = upstream.nth(seen).await;
        seen += 1;
        if request.method == "DELETE" {
            break request;
        }
    };
    assert_eq!(session_of(&deleted), own);
    assert_eq!(deleted.field("mcp-protocol-version"), Some(LEGACY));
    assert_eq!(session.delete().await.status, 404);
    let answer = session.post(&request(3, "tools/call", &call())).await;
    assert_eq!(
        (answer.status, answer.answer()["error"]["code"].as_i64()),
        (404, Some(-32600))
    );
    assert_eq!(text(&other.call(3, "tools/call", call()).await), kept);
}

/// Case 84, CAN-01, CAN-03, XT-240: a cancellation reaches the upstream at once with the id that it
/// knows; unknown ids reach nobody; the call gets no response.
#[tokio::test]
async fn case_84_cancellation_carries_the_upstreams_id() {
    let (opens, streams) = streams();
    let script = move |request: &Recorded| {
        (request.rpc_method() == "tools/call").then(|| opens.answer(request))
    };
    let upstream = legacy_upstream(json!({ "tools": {} }), script).await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    let session = Session::open(&gateway, "/mcp/t/up", json!({})).await;
    let mut answer = session.begin(&request(101, "tools/call", &call())).await;
    let (sent, _stream) = streams.next().await;
    for unknown in [json!("101"), json!(102)] {
        let cancel = notification("notifications/cancelled", &json!({ "requestId": unknown }));
        assert_eq!(session.post(&cancel).await.status, 202);
    }
    let cancel = notification(
        "notifications/cancelled",
        &json!({ "requestId": 101, "reason": "r" }),
    );
    assert_eq!(session.post(&cancel).await.status, 202);
    let cancelled = upstream.call("notifications/cancelled").await;
    assert_eq!(cancelled.json()["params"]["requestId"], sent.rpc_id());
    assert_eq!(session_of(&cancelled), session_of(&sent));
    assert_eq!(answer.rest().await, Vec::<Value>::new());
    assert_eq!(upstream.calls("notifications/cancelled").len(), 1);
}

/// Case 85 b, SSE-09, XT-441: a client with a session that goes does not cancel; it comes back for
/// the rest.
#[tokio::test]
async fn case_85_b_legacy_disconnect_does_not_cancel() {
    let (opens, streams) = streams();
    let script = move |request: &Recorded| {
        (request.rpc_method() == "tools/call").then(|| opens.answer(request))
    };
    let upstream = legacy_upstream(json!({ "tools": {} }), script).await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    let session = Session::open(&gateway, "/mcp/t/up", json!({})).await;
    let params = json!({ "name": "t", "_meta": { "progressToken": "p" } });
    let mut answer = session.begin(&request(5, "tools/call", &params)).await;
    let (sent, stream) = streams.next().await;
    let token = sent.json()["params"]["_meta"]["progressToken"].clone();
    let progress = |value: u8| {
        notification(
            "notifications/progress",
            &json!({ "progressToken": token, "progress": value }),
        )
    };
    stream.message(&progress(1)).await.unwrap();
    let event = answer.event().await.unwrap();
    assert_eq!(event.json()["params"]["progressToken"], "p");
    let last = event.id.unwrap();
    answer.abandon();
    stream.message(&progress(2)).await.unwrap();
    stream
        .message(&reply(&sent, &text_result("end")))
        .await
        .unwrap();
    drop(stream);
    let get = RawRequest::new("GET", "/mcp/t/up")
        .field("Host", "127.0.0.1")
        .field("Accept", "text/event-stream")
        .field("Last-Event-ID", last);
    let mut rest = crate::peers::Stream::send(&gateway, session.dress(get)).await;
    let rest = rest.rest().await;
    assert_eq!(rest.len(), 2, "{rest:?}");
    assert_eq!(rest[0]["params"]["progress"], 2);
    assert_eq!(
        (rest[1]["id"].clone(), text(&rest[1])),
        (json!(5), "end".to_owned())
    );
    assert!(upstream.calls("notifications/cancelled").is_empty());
}

/// Cases 39, 90, GET-03, GET-06, RSC-06, XT-434: what an upstream says outside calls reaches the standalone stream
/// of each session concerned, once, with the URI as the client knows it.
#[tokio::test]
async fn case_90_standalone_notifications_are_relayed_once_to_whom_they_concern() {
    let (opens, streams) = streams();
    let capabilities = json!({ "tools": { "listChanged": true }, "resources": { "subscribe": true, "listChanged": true } });
    let gets = opens.clone();
    let script = move |request: &Recorded| {
        if request.method == "GET" {
            return Some(gets.answer(request));
        }
        match request.rpc_method().as_str() {
            "resources/subscribe" | "resources/unsubscribe" => {
                Some(Answer::result(request, &json!({})))
            }
            "resources/list" => Some(Answer::result(request, &json!({ "resources": [] }))),
            "resources/templates/list" => {
                Some(Answer::result(request, &json!({ "resourceTemplates": [] })))
            }
            _ => echo_session(request),
        }
    };
    let upstream = legacy_upstream(capabilities, script).await;
    let other = legacy_upstream(json!({ "resources": { "subscribe": true } }), |request| {
        (request.rpc_method() == "resources/subscribe").then(|| Answer::result(request, &json!({})))
    })
    .await;
    let gateway = Gateway::start(&tenant(&[("u1", &upstream.url()), ("u2", &other.url())]));
    let session = Session::open(&gateway, "/mcp/t", json!({})).await;
    let mut heard = session.listen().await;
    let bystander = Session::open(&gateway, "/mcp/t", json!({})).await;
    let mut other_heard = bystander.listen().await;
    let uri = json!({ "uri": "u1+x:1" });
    assert_eq!(
        session.call(2, "resources/subscribe", uri.clone()).await["result"],
        json!({})
    );
    assert_eq!(
        session
            .call(3, "resources/subscribe", json!({ "uri": "u2+x:1" }))
            .await["result"],
        json!({})
    );
    let subscribed = upstream.call("resources/subscribe").await;
    assert_eq!(subscribed.json()["params"]["uri"], "x:1");
    let own = session_of(&subscribed);
    let stream = loop {
        let (get, stream) = streams.next().await;
        if session_of(&get) == own {
            break stream;
        }
    };
    let updated = notification("notifications/resources/updated", &json!({ "uri": "x:1" }));
    stream.message(&updated).await.unwrap();
    let event = heard.next_of("notifications/resources/updated").await;
    assert_eq!(event["params"]["uri"], "u1+x:1");
    let note = notification("notifications/tools/list_changed", &json!({}));
    stream.message(&note).await.unwrap();
    heard.next_of("notifications/tools/list_changed").await;

    assert_eq!(
        session.call(4, "resources/unsubscribe", uri).await["result"],
        json!({})
    );
    let gone = upstream.call("resources/unsubscribe").await;
    assert_eq!(gone.json()["params"]["uri"], "x:1");
    // the bystander has heard nothing of a resource that it did not subscribe to
    assert_eq!(bystander.delete().await.status, 204);
    let rest = other_heard.rest().await;
    let updated = |message: &Value| message["method"] == "notifications/resources/updated";
    assert!(!rest.iter().any(updated), "{rest:?}");
}

/// LOG-01, LOG-06, 8.3: `warning` before setLevel, the session's level after it, the logger named
/// after the upstream; the level goes to the private sessions of upstreams that log.
#[tokio::test]
async fn log_01_levels_are_the_sessions() {
    let (opens, streams) = streams();
    let script = move |request: &Recorded| match request.rpc_method().as_str() {
        "tools/call" => Some(opens.answer(request)),
        "logging/setLevel" => Some(Answer::result(request, &json!({}))),
        _ => listed(request, &["t"]),
    };
    let upstream = legacy_upstream(json!({ "tools": {}, "logging": {} }), script).await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    let session = Session::open(&gateway, "/mcp/t", json!({})).await;
    for (id, level, expected) in [
        (2, None, &["warning", "error"][..]),
        (4, Some("debug"), &["debug", "warning", "error"]),
    ] {
        if let Some(level) = level {
            let answer = session
                .call(id, "logging/setLevel", json!({ "level": level }))
                .await;
            assert_eq!(answer["result"], json!({}));
            let told = upstream.calls("logging/setLevel").pop().unwrap();
            assert_eq!(told.json()["params"]["level"], level);
        }
        let mut answer = session
            .begin(&request(id + 1, "tools/call", &json!({ "name": "up__t" })))
            .await;
        let (sent, stream) = streams.next().await;
        for level in ["debug", "warning", "error"] {
            let params = json!({ "level": level, "logger": "l", "data": level });
            stream
                .message(&notification("notifications/message", &params))
                .await
                .unwrap();
        }
        stream
            .message(&reply(&sent, &text_result("end")))
            .await
            .unwrap();
        drop(stream);
        let mut messages = answer.rest().await;
        assert_eq!(messages.pop().unwrap()["id"], id + 1);
        let levels: Vec<_> = messages
            .iter()
            .map(|message| message["params"]["level"].as_str().unwrap())
            .collect();
        assert_eq!(levels, expected);
        assert!(
            messages
                .iter()
                .all(|message| message["params"]["logger"] == "up/l")
        );
    }
    let answer = session
        .call(9, "logging/setLevel", json!({ "level": "WARNING" }))
        .await;
    assert_eq!(answer["error"]["code"], -32602, "LOG-02");
}

/// PNG-01, XT-265: pings are answered where they arrive, on both hops.
#[tokio::test]
async fn png_01_pings_never_cross() {
    let (opens, streams) = streams();
    let script = move |request: &Recorded| {
        (request.rpc_method() == "tools/call").then(|| opens.answer(request))
    };
    let upstream = legacy_upstream(json!({ "tools": {} }), script).await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    let session = Session::open(&gateway, "/mcp/t/up", json!({})).await;
    assert_eq!(
        session.call(2, "ping", json!({})).await["result"],
        json!({})
    );
    let answer = session.begin(&request(3, "tools/call", &call())).await;
    let (sent, stream) = streams.next().await;
    stream
        .message(&json!({ "jsonrpc": "2.0", "id": "p\u{e9}", "method": "ping" }))
        .await
        .unwrap();
    let pong = loop {
        let pong = upstream
            .requests()
            .into_iter()
            .find(|r| r.rpc_id() == "p\u{e9}");
        match pong {
            Some(pong) => break pong,
            None => tokio::task::yield_now().await,
        }
    };
    assert_eq!(pong.json()["result"], json!({}));
    assert_eq!(session_of(&pong), session_of(&sent));
    stream
        .message(&reply(&sent, &text_result("end")))
        .await
        .unwrap();
    drop(stream);
    assert_eq!(text(&answer.response().await.answer()), "end");
    assert!(upstream.calls("ping").is_empty());
}

/// Case 60, ERR-08, 9: legacy clients get a legacy upstream's own codes, one well-formed error each.
#[tokio::test]
async fn xt_270_errors_of_legacy_upstreams_are_mapped_for_legacy_clients() {
    let upstream = legacy_upstream(json!({ "tools": {}, "resources": {} }), |request| {
        let json = request.json();
        if json["method"] == "resources/read" {
            return Some(Answer::error(request, 200, -32002, "gone"));
        }
        if json["method"] != "tools/call" {
            return None;
        }
        let code = json["params"]["name"].as_str().unwrap().parse().unwrap();
        Some(Answer::error(request, 200, code, "theirs"))
    })
    .await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    let session = Session::open(&gateway, "/mcp/t/up", json!({})).await;
    for (id, (code, expected)) in [
        (-32000, -32000),
        (-32602, -32602),
        (-32603, -32603),
        (-32601, -31003),
        (-32700, -31003),
        (-32050, -31003),
        (-31001, -31003),
        (-1, -1),
        (42, 42),
    ]
    .into_iter()
    .enumerate()
    {
        let answer = session
            .call(id + 2, "tools/call", json!({ "name": code.to_string() }))
            .await;
        assert_eq!(answer["error"]["code"], expected, "{code}: {answer}");
        assert!(answer["error"]["message"].is_string());
    }
    let answer = session
        .call(90, "resources/read", json!({ "uri": "x:1" }))
        .await;
    assert_eq!(answer["error"]["code"], -32002, "ERR-02");
}

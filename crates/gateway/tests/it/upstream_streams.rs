//! Streams of upstreams as they come in the wild: other line ends, empty events, ends without an
//! answer, answers without an end, silence.

use serde_json::{Value, json};
use vestibule_testkit::conformance::{Eras, HttpFixture};
use vestibule_testkit::recording::AnswerStream;
use vestibule_testkit::{Answer, Recorded, RecordingUpstream};

use crate::harness::Gateway;
use crate::peers::{
    LEGACY, Session, Stream, Streams, legacy_upstream, modern, modern_upstream, notification,
    reply, request, streams, tenant, text_result,
};

/// Streams for calls and for GETs that resume one; a standalone GET is refused.
pub(crate) async fn resumable() -> (RecordingUpstream, Streams) {
    let (opens, streams) = streams();
    let upstream = legacy_upstream(json!({ "tools": {} }), move |request: &Recorded| {
        let resumes = request.method == "GET" && request.field("last-event-id").is_some();
        (resumes || request.rpc_method() == "tools/call").then(|| opens.answer(request))
    })
    .await;
    (upstream, streams)
}

fn call() -> Value {
    json!({ "name": "t" })
}

fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("no text: {answer}"))
}

async fn event(stream: &AnswerStream, id: &str, message: &Value) {
    stream.event(id, &message.to_string()).await.unwrap();
}

/// Cases 124, 127, SSE-02: priming events, comments, unknown fields, a byte order mark and every kind of line end,
/// split in the worst places, are one answer.
#[tokio::test]
async fn case_124_127_streams_of_every_dialect_are_read() {
    let (opens, streams) = streams();
    let upstream = modern_upstream(json!({ "tools": {} }), move |request| {
        (request.rpc_method() == "tools/call").then(|| opens.answer(request))
    })
    .await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    for end in ["\n", "\r", "\r\n"] {
        let client = Stream::send(
            &gateway,
            modern("/mcp/t/up", &json!(1), "tools/call", &call()),
        )
        .await;
        let (sent, stream) = streams.next().await;
        let mut result = text_result("end");
        result["resultType"] = json!("complete");
        let message = reply(&sent, &result).to_string();
        let (head, tail) = message.split_once(',').unwrap();
        let lines = [
            "\u{feff}: comment",
            "id: 1",
            "data:",
            "",
            "retry: 5",
            "x: y",
            "data: ",
            "",
            "event: message",
            &format!("data: {head},"),
            &format!("data:{tail}"),
            "",
            "",
        ];
        for byte in lines.join(end).into_bytes().chunks(1) {
            stream.bytes(byte.to_vec()).await.unwrap();
        }
        drop(stream);
        assert_eq!(text(&client.response().await.answer()), "end", "{end:?}");
    }
}

/// Case 130 a, RES-08, SSE-06, XT-450: an upstream that ends its stream before the answer is asked for the rest, after the
/// pause it named; nothing comes twice.
#[tokio::test]
async fn case_130_a_broken_stream_with_ids_is_resumed() {
    let (upstream, streams) = resumable().await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    let session = Session::open(&gateway, "/mcp/t/up", json!({})).await;
    let params = json!({ "name": "t", "_meta": { "progressToken": "p" } });
    let mut client = session.begin(&request(2, "tools/call", &params)).await;
    let (sent, stream) = streams.next().await;
    let token = sent.json()["params"]["_meta"]["progressToken"].clone();
    let progress = |value: u8| {
        notification(
            "notifications/progress",
            &json!({ "progressToken": token, "progress": value }),
        )
    };
    stream.bytes("retry: 1\nid: e1\ndata:\n\n").await.unwrap();
    event(&stream, "e2", &progress(1)).await;
    drop(stream);
    let (get, stream) = streams.next().await;
    assert_eq!(get.field("last-event-id"), Some("e2"));
    assert_eq!(get.field("accept"), Some("text/event-stream"));
    assert_eq!(get.field("mcp-session-id"), sent.field("mcp-session-id"));
    assert_eq!(get.field("mcp-protocol-version"), Some(LEGACY));
    event(&stream, "e2", &progress(1)).await;
    event(&stream, "e3", &progress(2)).await;
    stream.break_off().await;
    let (get, stream) = streams.next().await;
    assert_eq!(get.field("last-event-id"), Some("e3"));
    event(&stream, "e4", &reply(&sent, &text_result("end"))).await;
    let all = client.rest().await;
    let values: Vec<_> = all
        .iter()
        .filter_map(|one| one["params"]["progress"].as_u64())
        .collect();
    assert_eq!(values, [1, 2]);
    assert_eq!(text(all.last().unwrap()), "end");
    assert_eq!(upstream.calls("tools/call").len(), 1);
}

/// Case 130 a, XT-451, SSE-13: without ids nothing can be resumed; the outcome is unknown, at once, in both eras.
#[tokio::test]
async fn case_130_a_broken_stream_without_ids_ends_the_call() {
    let (old, old_streams) = resumable().await;
    let (opens, new_streams) = streams();
    let new = modern_upstream(json!({ "tools": {} }), move |request| {
        (request.rpc_method() == "tools/call").then(|| opens.answer(request))
    })
    .await;
    let gateway = Gateway::start(&tenant(&[("old", &old.url()), ("new", &new.url())]));
    for (target, streams) in [("/mcp/t/old", &old_streams), ("/mcp/t/new", &new_streams)] {
        let client = Stream::send(&gateway, modern(target, &json!(1), "tools/call", &call())).await;
        let (_, stream) = streams.next().await;
        let note = notification(
            "notifications/message",
            &json!({ "level": "info", "data": 1 }),
        );
        stream.message(&note).await.unwrap();
        drop(stream);
        let answer = client.response().await.answer();
        assert_eq!(answer["error"]["code"], -31001, "{target} {answer}");
        assert_eq!(
            answer["error"]["data"]["reason"], "outcome_unknown",
            "{target}"
        );
    }
}

/// LIF-09, LIF-10, XT-246: an upstream that says nothing for too long is cancelled and the client told so; progress keeps the
/// call alive; other calls of the same upstream do not suffer (case 73).
#[tokio::test]
async fn lif_09_silence_times_out_and_cancels() {
    let (opens, streams) = streams();
    let upstream = legacy_upstream(json!({ "tools": {} }), move |request: &Recorded| {
        if request.rpc_method() != "tools/call" {
            return None;
        }
        let quick = request.json()["params"]["name"] == "quick";
        Some(if quick {
            Answer::result(request, &text_result("quick"))
        } else {
            opens.answer(request)
        })
    })
    .await;
    let gateway = Gateway::start(&format!(
        "  t:\n    auth: none\n    policy: allow_all\n    upstreams:\n      up: {{ url: \"{}\", timeouts: {{ idle: 1s, total: 20s }} }}\n    servers:\n      up: {{ upstream: up }}\n",
        upstream.url()
    ));
    let session = Session::open(&gateway, "/mcp/t/up", json!({})).await;
    let params = json!({ "name": "slow", "_meta": { "progressToken": "p" } });
    let mut client = session.begin(&request(2, "tools/call", &params)).await;
    let (sent, stream) = streams.next().await;
    let token = sent.json()["params"]["_meta"]["progressToken"].clone();
    let progress = notification(
        "notifications/progress",
        &json!({ "progressToken": token, "progress": 1 }),
    );
    stream.message(&progress).await.unwrap();
    assert_eq!(client.next().await["params"]["progress"], 1);
    assert_eq!(
        text(
            &session
                .call(3, "tools/call", json!({ "name": "quick" }))
                .await
        ),
        "quick"
    );
    let answer = client.next().await;
    assert_eq!(
        (&answer["id"], &answer["error"]["code"]),
        (&json!(2), &json!(-31002)),
        "{answer}"
    );
    let cancelled = upstream.call("notifications/cancelled").await;
    assert_eq!(cancelled.json()["params"]["requestId"], sent.rpc_id());
    assert_eq!(
        text(
            &session
                .call(4, "tools/call", json!({ "name": "quick" }))
                .await
        ),
        "quick"
    );
}

/// Cases 57, 135, 140: an upstream that answers notifications with a body, names a charset, and sets headers of its own hop
/// is put up with, and none of them reaches the client.
#[tokio::test]
async fn case_140_the_upstreams_headers_stay_on_its_hop() {
    let upstream = legacy_upstream(json!({ "tools": {} }), |request: &Recorded| {
        if request.rpc_method().starts_with("notifications/") {
            return Some(Answer::json(200, &Value::Null));
        }
        let answer =
            json!({ "jsonrpc": "2.0", "id": request.rpc_id(), "result": text_result("x") });
        (request.rpc_method() == "tools/call").then(|| Answer::Full {
            status: 200,
            fields: [
                ("content-type", "Application/JSON; charset=UTF-8"),
                ("set-cookie", "a=b"),
                ("keep-alive", "timeout=5"),
                ("x-internal", "10.0.0.7"),
                ("server", "theirs"),
                ("www-authenticate", "Bearer"),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec(),
            body: answer.to_string().into(),
        })
    })
    .await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    let session = Session::open(&gateway, "/mcp/t/up", json!({})).await;
    let answer = session.post(&request(2, "tools/call", &call())).await;
    assert_eq!(text(&answer.answer()), "x");
    assert_eq!(answer.head.field("content-type"), Some("application/json"));
    for field in [
        "set-cookie",
        "keep-alive",
        "x-internal",
        "server",
        "www-authenticate",
    ] {
        assert_eq!(answer.head.field(field), None, "{field}");
    }
}

/// ELI-06, ELI-14: a URL elicitation reaches a client that declared it, and its completion reaches that client under the
/// id that it was shown.
#[tokio::test]
async fn eli_06_the_completion_of_a_url_elicitation_names_what_was_shown() {
    let (opens, streams) = streams();
    let upstream = legacy_upstream(json!({ "tools": {} }), move |request: &Recorded| {
        (request.rpc_method() == "tools/call").then(|| opens.answer(request))
    })
    .await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    let able = json!({ "elicitation": { "form": {}, "url": {} } });
    let session = Session::open(&gateway, "/mcp/t/up", able).await;
    let mut client = session.begin(&request(2, "tools/call", &call())).await;
    let (sent, stream) = streams.next().await;
    let params = json!({ "mode": "url", "message": "log in", "url": "https://idp.example/x", "elicitationId": "e-1" });
    let question =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": params });
    stream.message(&question).await.unwrap();
    let asked = client.next().await;
    assert_eq!(asked["params"]["url"], "https://idp.example/x");
    let shown = asked["params"]["elicitationId"].clone();
    assert!(shown.is_string());
    let accept = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "action": "accept" } });
    assert_eq!(session.post(&accept).await.status, 202);
    let complete = notification(
        "notifications/elicitation/complete",
        &json!({ "elicitationId": "e-1" }),
    );
    stream.message(&complete).await.unwrap();
    let told = client.next().await;
    assert_eq!(told["method"], "notifications/elicitation/complete");
    assert_eq!(told["params"]["elicitationId"], shown);
    stream
        .message(&reply(&sent, &text_result("end")))
        .await
        .unwrap();
    drop(stream);
    assert_eq!(text(client.rest().await.last().unwrap()), "end");
}

/// ERR-05, ELI-14, XT-501: an upstream that wants a URL to be shown first is heard by a client that can
/// show one, and never where all users share its credential.
#[tokio::test]
async fn err_05_a_required_url_elicitation_reaches_who_can_show_it() {
    let upstream = legacy_upstream(json!({ "tools": {} }), |request: &Recorded| {
        let error = json!({ "code": -32042, "message": "first", "data": { "elicitations": [
            { "mode": "url", "message": "log in", "url": "https://idp.example/secret", "elicitationId": "e" },
        ] } });
        let answer = json!({ "jsonrpc": "2.0", "id": request.rpc_id(), "error": error });
        (request.rpc_method() == "tools/call").then(|| Answer::json(200, &answer))
    })
    .await;
    let shared = format!(
        "  s:\n    auth: none\n    policy: allow_all\n    upstreams:\n      up: {{ url: \"{}\", auth: {{ headers: {{ X-Key: k }} }} }}\n    servers: {{ up: {{ upstream: up }} }}\n",
        upstream.url()
    );
    let gateway = Gateway::start(&(tenant(&[("up", &upstream.url())]) + &shared));
    let able = json!({ "elicitation": { "form": {}, "url": {} } });
    let session = Session::open(&gateway, "/mcp/t/up", json!({ "elicitation": {} })).await;
    let answer = session
        .post(&request(2, "tools/call", &call()))
        .await
        .json();
    assert_eq!(answer["result"]["isError"], true, "XT-171: {answer}");
    let told = text(&answer);
    assert!(
        told.starts_with("up wants its user to open a page"),
        "{told}"
    );
    assert!(!answer.to_string().contains("idp.example"), "{answer}");
    for (target, capabilities, expected) in
        [("/mcp/t/up", &able, -32042), ("/mcp/s/up", &able, -31008)]
    {
        let session = Session::open(&gateway, target, capabilities.clone()).await;
        let answer = session
            .post(&request(2, "tools/call", &call()))
            .await
            .json();
        assert_eq!(answer["error"]["code"], expected, "{target} {answer}");
        let shown = answer.to_string().contains("idp.example");
        assert_eq!(shown, expected == -32042, "{target} {answer}");
    }
}

/// Cases 39, 90, GET-05, TOL-06: a list that an upstream says to have changed on its own stream is fetched anew, and the
/// sessions hear of it, also one that opens its stream later.
#[tokio::test]
async fn case_39_a_change_on_a_legacy_stream_is_seen_and_told() {
    let (opens, streams) = streams();
    let capabilities = json!({ "tools": { "listChanged": true } });
    let changed = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let now = std::sync::Arc::clone(&changed);
    let upstream = legacy_upstream(capabilities, move |request: &Recorded| {
        let name = if now.load(std::sync::atomic::Ordering::SeqCst) {
            "new"
        } else {
            "old"
        };
        match request.rpc_method().as_str() {
            _ if request.method == "GET" => Some(opens.answer(request)),
            "tools/list" => crate::peers::listed(request, &[name]),
            "tools/call" => Some(Answer::result(request, &text_result("x"))),
            _ => None,
        }
    })
    .await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    let session = Session::open(&gateway, "/mcp/t", json!({})).await;
    let names = async || {
        let answer = session.call(9, "tools/list", json!({})).await;
        answer["result"]["tools"][0]["name"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(names().await, "up__old");
    session
        .call(2, "tools/call", json!({ "name": "up__old" }))
        .await;
    let own = upstream.call("tools/call").await;
    let stream = loop {
        let (get, stream) = streams.next().await;
        if get.field("mcp-session-id") == own.field("mcp-session-id") {
            break stream;
        }
    };
    changed.store(true, std::sync::atomic::Ordering::SeqCst);
    let note = notification("notifications/tools/list_changed", &json!({}));
    stream.message(&note).await.unwrap();
    let mut heard = session.listen().await;
    assert_eq!(
        heard.next().await["method"],
        "notifications/tools/list_changed"
    );
    assert_eq!(names().await, "up__new");
}

/// The conformance upstream, an independent implementation, in all its forms: both kinds of client list, call, read and
/// ask through the gateway.
#[tokio::test]
async fn an_independent_server_of_either_era_serves_both_kinds_of_client() {
    for eras in [Eras::Legacy, Eras::Modern, Eras::Both] {
        let fixture = HttpFixture::start(([127, 0, 0, 1], 0).into(), eras)
            .await
            .unwrap();
        let gateway = Gateway::start(&tenant(&[("up", &fixture.url())]));
        let session = Session::open(&gateway, "/mcp/t/up", json!({})).await;
        let first = |answer: Value, list: &str| {
            let items = answer["result"][list]
                .as_array()
                .unwrap_or_else(|| panic!("{eras:?} {answer}"));
            assert!(!items.is_empty(), "{eras:?} {list}");
        };
        for (method, list) in [
            ("tools/list", "tools"),
            ("prompts/list", "prompts"),
            ("resources/list", "resources"),
        ] {
            first(session.call(2, method, json!({})).await, list);
            first(
                gateway
                    .ask(modern("/mcp/t/up", &json!(1), method, &json!({})))
                    .await
                    .answer(),
                list,
            );
        }
        let simple = json!({ "name": "test_simple_text" });
        let legacy = session.call(3, "tools/call", simple.clone()).await;
        let stateless = gateway
            .ask(modern("/mcp/t/up", &json!(1), "tools/call", &simple))
            .await
            .answer();
        assert_eq!(
            legacy["result"]["content"], stateless["result"]["content"],
            "{eras:?} {legacy} {stateless}"
        );
        assert!(
            legacy["result"]["content"][0]["text"].is_string(),
            "{eras:?} {legacy}"
        );
    }
}

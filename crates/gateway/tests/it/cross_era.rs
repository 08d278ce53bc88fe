//! Plain calls between a client and an upstream of different eras; what cannot be translated yet
//! says so at once.

use serde_json::{Value, json};
use vestibule_testkit::{Answer, Recorded, RecordingUpstream};

use crate::harness::Gateway;
use crate::peers::{
    CAPABILITIES, LEGACY, MODERN, Session, Stream, VERSION, legacy_upstream, listed, modern,
    modern_upstream, modern_with, notification, reply, request, streams, tenant, text_result,
};

/// One of everything, with and without what a modern result needs.
fn everything(request: &Recorded, modern: bool) -> Option<Answer> {
    let json = request.json();
    let params = &json["params"];
    let mut result = match request.rpc_method().as_str() {
        "tools/call" => text_result("called"),
        "prompts/get" => {
            json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": params["name"] } }] })
        }
        "resources/read" => json!({ "contents": [{ "uri": params["uri"], "text": "read" }] }),
        "resources/list" => json!({ "resources": [{ "uri": "x:1", "name": "one" }] }),
        "resources/templates/list" => {
            json!({ "resourceTemplates": [{ "uriTemplate": "x:{n}", "name": "n" }] })
        }
        "completion/complete" => json!({ "completion": { "values": ["a"] } }),
        "tools/list" | "prompts/list" => return listed(request, &["t"]),
        _ => return None,
    };
    if modern {
        result["resultType"] = json!("complete");
        let method = request.rpc_method();
        if method.ends_with("/list") || method == "resources/read" {
            result["ttlMs"] = json!(60_000);
            result["cacheScope"] = json!("public");
        }
    }
    Some(Answer::result(request, &result))
}

fn capabilities() -> Value {
    json!({ "tools": {}, "prompts": {}, "resources": {}, "completions": {} })
}

async fn old() -> RecordingUpstream {
    legacy_upstream(capabilities(), |request| everything(request, false)).await
}

async fn new() -> RecordingUpstream {
    modern_upstream(capabilities(), |request| everything(request, true)).await
}

/// The plain calls of both eras, and where to find what proves that they worked.
fn plain() -> Vec<(&'static str, Value, &'static str, Value)> {
    vec![
        ("tools/list", json!({}), "/tools/0/name", json!("t")),
        (
            "tools/call",
            json!({ "name": "t" }),
            "/content/0/text",
            json!("called"),
        ),
        ("prompts/list", json!({}), "/prompts/0/name", json!("t")),
        (
            "prompts/get",
            json!({ "name": "t" }),
            "/messages/0/content/text",
            json!("t"),
        ),
        (
            "resources/list",
            json!({}),
            "/resources/0/uri",
            json!("x:1"),
        ),
        (
            "resources/templates/list",
            json!({}),
            "/resourceTemplates/0/uriTemplate",
            json!("x:{n}"),
        ),
        (
            "resources/read",
            json!({ "uri": "x:1" }),
            "/contents/0/text",
            json!("read"),
        ),
        (
            "completion/complete",
            json!({ "ref": { "type": "ref/prompt", "name": "t" }, "argument": { "name": "a", "value": "" } }),
            "/completion/values/0",
            json!("a"),
        ),
    ]
}

/// Case 149, CCH-01, FRM-22, XT-018: a modern client on an upstream with sessions: the gateway opens
/// the session, and adds what a modern result needs.
#[tokio::test]
async fn case_149_modern_clients_reach_upstreams_with_sessions() {
    let upstream = old().await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    for (method, params, pointer, expected) in plain() {
        let answer = gateway
            .ask(modern("/mcp/t/up", &json!("m"), method, &params))
            .await;
        let json = answer.answer();
        assert_eq!(answer.status, 200, "{method}: {json}");
        let result = &json["result"];
        assert_eq!(result.pointer(pointer), Some(&expected), "{method}: {json}");
        assert_eq!(result["resultType"], "complete", "{method}");
        assert_eq!(
            result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"],
            "vestibule"
        );
        let hinted = method.ends_with("/list") || method == "resources/read";
        assert_eq!(
            result.get("ttlMs").is_some_and(Value::is_u64),
            hinted,
            "{method}: {json}"
        );
        assert_eq!(result.get("cacheScope").is_some(), hinted, "{method}");
        if method == "resources/read" {
            assert_eq!(
                (&result["ttlMs"], &result["cacheScope"]),
                (&json!(0), &json!("private")),
                "10.3"
            );
        }
    }
    for request in upstream.requests() {
        if request.rpc_method() == "server/discover" {
            continue;
        }
        let body = String::from_utf8(request.body.to_vec()).unwrap();
        assert!(!body.contains("io.modelcontextprotocol/"), "{body}");
        assert!(request.field("mcp-method").is_none() && request.field("mcp-name").is_none());
    }
    let call = upstream.call("tools/call").await;
    assert!(
        call.field("mcp-session-id")
            .is_some_and(|id| id.starts_with("session-"))
    );
    assert_eq!(call.field("mcp-protocol-version"), Some(LEGACY));
    let opening = upstream.call("initialize").await;
    assert_eq!(opening.json()["params"]["clientInfo"]["name"], "vestibule");
    assert_eq!(opening.json()["params"]["capabilities"], json!({}));
}

/// Case 148, XT-015, MET-01, MET-02, XT-390: a client of every older revision on a stateless upstream: metadata and
/// headers are made, what only the modern era has is taken out.
#[tokio::test]
async fn case_148_legacy_clients_reach_stateless_upstreams() {
    let upstream = new().await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    for revision in ["2025-03-26", "2025-06-18", LEGACY] {
        let session = Session::of(
            &gateway,
            "/mcp/t/up",
            revision,
            json!({ "roots": {} }),
            None,
        )
        .await;
        assert_eq!(session.opened["protocolVersion"], revision);
        for (number, (method, params, pointer, expected)) in plain().into_iter().enumerate() {
            let answer = session.call(number + 2, method, params).await;
            let result = &answer["result"];
            assert_eq!(
                result.pointer(pointer),
                Some(&expected),
                "{method}: {answer}"
            );
            for foreign in ["resultType", "ttlMs", "cacheScope"] {
                assert!(
                    result.get(foreign).is_none(),
                    "{revision} {method}: {answer}"
                );
            }
            assert!(
                result["_meta"]
                    .get("io.modelcontextprotocol/serverInfo")
                    .is_none()
            );
        }
    }
    for request in upstream.requests() {
        let json = request.json();
        if json["method"] == "initialize" {
            continue; // asked whether it speaks the client's own era too
        }
        let meta = &json["params"]["_meta"];
        assert_eq!(meta[VERSION], MODERN, "{json}");
        assert!(meta[CAPABILITIES].is_object(), "{json}");
        assert_eq!(
            meta["io.modelcontextprotocol/clientInfo"]["name"],
            "vestibule"
        );
        assert_eq!(request.field("mcp-protocol-version"), Some(MODERN));
        assert_eq!(request.field("mcp-method"), json["method"].as_str());
        let name = json["params"].get("name").or(json["params"].get("uri"));
        assert_eq!(
            request.field("mcp-name"),
            name.and_then(Value::as_str),
            "{json}"
        );
        assert_eq!(request.field("mcp-session-id"), None);
    }
}

/// XT-408: a legacy client knows no mirrored arguments; the gateway writes their headers.
#[tokio::test]
async fn xt_408_headers_are_made_for_legacy_clients() {
    let upstream = modern_upstream(json!({ "tools": {} }), |request| match request.rpc_method().as_str() {
        "tools/list" => {
            let schema = json!({ "type": "object", "properties": { "r": { "type": "string", "x-mcp-header": "R" } } });
            let tools = json!([{ "name": "t", "inputSchema": schema }]);
            Some(Answer::result(request, &json!({ "tools": tools, "resultType": "complete", "ttlMs": 0, "cacheScope": "public" })))
        }
        _ => everything(request, true),
    })
    .await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    for (target, name) in [("/mcp/t/up", "t"), ("/mcp/t", "up__t")] {
        let session = Session::open(&gateway, target, json!({})).await;
        let params = json!({ "name": name, "arguments": { "r": "é" } });
        let answer = session.call(2, "tools/call", params).await;
        assert_eq!(answer["result"]["content"][0]["text"], "called", "{answer}");
        let sent = upstream.calls("tools/call").pop().unwrap();
        assert_eq!(
            sent.field("mcp-param-r"),
            Some("=?base64?w6k=?="),
            "{target}"
        );
    }
}

/// CAP-06, XT-117, section 15: until questions cross eras an upstream with sessions is told of no capability of a
/// modern client; one that asks all the same is refused, at once, and the call goes on.
#[tokio::test]
async fn questions_to_modern_clients_of_legacy_upstreams_are_refused() {
    let (opens, streams) = streams();
    let upstream = legacy_upstream(json!({ "tools": {} }), move |request| {
        (request.rpc_method() == "tools/call").then(|| opens.answer(request))
    })
    .await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    let able = json!({ "elicitation": {}, "sampling": {}, "roots": {} });
    let call = modern_with(
        "/mcp/t/up",
        &json!(1),
        "tools/call",
        &json!({ "name": "t" }),
        &able,
    );
    let client = Stream::send(&gateway, call).await;
    let (sent, stream) = streams.next().await;
    for opening in upstream.calls("initialize") {
        assert_eq!(opening.json()["params"]["capabilities"], json!({}));
    }
    for (id, method, params) in [
        (
            "e",
            "elicitation/create",
            json!({ "message": "?", "requestedSchema": { "type": "object", "properties": {} } }),
        ),
        (
            "s",
            "sampling/createMessage",
            json!({ "messages": [], "maxTokens": 1 }),
        ),
        ("r", "roots/list", json!({})),
    ] {
        let question = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        stream.message(&question).await.unwrap();
        let mut seen = 0;
        let refusal = loop {
            let request = upstream.nth(seen).await;
            seen += 1;
            if request.rpc_id() == id {
                break request;
            }
        };
        assert!(refusal.json()["error"]["code"].is_i64(), "{method}");
    }
    stream
        .message(&reply(&sent, &text_result("end")))
        .await
        .unwrap();
    drop(stream);
    let answer = client.response().await.answer();
    assert_eq!(answer["result"]["content"][0]["text"], "end", "{answer}");
}

/// XT-270, STA-11, 9: -32021 of an upstream does not exist for legacy clients; a modern client is
/// told when it is true.
#[tokio::test]
async fn xt_153_missing_capabilities_read_in_each_era() {
    let upstream = modern_upstream(json!({ "tools": {} }), |request| {
        (request.rpc_method() == "tools/call").then(|| {
            let data = json!({ "requiredCapabilities": { "sampling": {} } });
            let error = json!({ "code": -32021, "message": "need", "data": data });
            Answer::json(
                400,
                &json!({ "jsonrpc": "2.0", "id": request.rpc_id(), "error": error }),
            )
        })
    })
    .await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    let answer = gateway
        .ask(modern(
            "/mcp/t/up",
            &json!(1),
            "tools/call",
            &json!({ "name": "t" }),
        ))
        .await;
    assert_eq!(
        (answer.status, answer.answer()["error"]["code"].as_i64()),
        (400, Some(-32021))
    );
    assert!(answer.answer()["error"]["data"]["requiredCapabilities"]["sampling"].is_object());
    let able = json!({ "sampling": {} });
    let call = modern_with(
        "/mcp/t/up",
        &json!(1),
        "tools/call",
        &json!({ "name": "t" }),
        &able,
    );
    let answer = gateway.ask(call).await;
    let code = answer.answer()["error"]["code"].as_i64();
    assert!(matches!(code, Some(-31007 | -32021)), "{:?}", answer.body);
    let session = Session::open(&gateway, "/mcp/t/up", json!({})).await;
    let answer = session.call(2, "tools/call", json!({ "name": "t" })).await;
    assert_eq!(answer["result"]["isError"], true, "AMB-38: {answer}");
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains(r#"{"sampling":{}}"#), "{text}");
}

/// ERR-02, ERR-03, ERR-04, section 9: a missing resource has the code of the client's era.
#[tokio::test]
async fn err_03_a_missing_resource_has_the_clients_code() {
    let old = legacy_upstream(json!({ "resources": {} }), |request| {
        (request.rpc_method() == "resources/read").then(|| {
            let data = json!({ "uri": request.json()["params"]["uri"] });
            let error = json!({ "code": -32002, "message": "gone", "data": data });
            Answer::json(
                200,
                &json!({ "jsonrpc": "2.0", "id": request.rpc_id(), "error": error }),
            )
        })
    })
    .await;
    let new = modern_upstream(json!({ "resources": {} }), |request| {
        (request.rpc_method() == "resources/read").then(|| {
            let data = json!({ "uri": request.json()["params"]["uri"] });
            let error = json!({ "code": -32602, "message": "gone", "data": data });
            Answer::json(
                200,
                &json!({ "jsonrpc": "2.0", "id": request.rpc_id(), "error": error }),
            )
        })
    })
    .await;
    let gateway = Gateway::start(&tenant(&[("old", &old.url()), ("new", &new.url())]));
    let session = Session::open(&gateway, "/mcp/t", json!({})).await;
    for (id, upstream) in [(2, "old"), (3, "new")] {
        let uri = format!("{upstream}+x:1");
        let params = json!({ "uri": uri });
        let answer = session.call(id, "resources/read", params.clone()).await;
        assert_eq!(answer["error"]["code"], -32002, "{answer}");
        assert_eq!(answer["error"]["data"]["uri"], uri, "XT-378 {answer}");
        let answer = gateway
            .ask(modern("/mcp/t", &json!(1), "resources/read", &params))
            .await;
        assert_eq!(
            (answer.status, answer.answer()["error"]["code"].as_i64()),
            (200, Some(-32602))
        );
        assert_eq!(answer.answer()["error"]["data"]["uri"], uri, "XT-378");
    }
}

/// PRG-01, LOG-03, CAN-07, XT-262, section 8: progress, logs and cancellation cross in both directions.
#[tokio::test]
async fn progress_logs_and_cancellation_cross_eras() {
    let (opens, old_streams) = streams();
    let script = move |request: &Recorded| match request.rpc_method().as_str() {
        "tools/call" => Some(opens.answer(request)),
        "logging/setLevel" => Some(Answer::result(request, &json!({}))),
        _ => None,
    };
    let old = legacy_upstream(json!({ "tools": {}, "logging": {} }), script).await;
    let (opens, new_streams) = streams();
    let new = modern_upstream(json!({ "tools": {}, "logging": {} }), move |request| {
        (request.rpc_method() == "tools/call").then(|| opens.answer(request))
    })
    .await;
    let gateway = Gateway::start(&tenant(&[("old", &old.url()), ("new", &new.url())]));

    // a modern client that asks for progress and for warnings
    let mut params = json!({ "name": "t", "_meta": { "progressToken": "p" } });
    params["_meta"]["io.modelcontextprotocol/logLevel"] = json!("warning");
    let mut client = Stream::send(
        &gateway,
        modern("/mcp/t/old", &json!(1), "tools/call", &params),
    )
    .await;
    let (sent, stream) = old_streams.next().await;
    assert_eq!(
        old.call("logging/setLevel").await.json()["params"]["level"],
        "warning"
    );
    let token = sent.json()["params"]["_meta"]["progressToken"].clone();
    let progress = json!({ "progressToken": token, "progress": 1 });
    stream
        .message(&notification("notifications/progress", &progress))
        .await
        .unwrap();
    for level in ["info", "error"] {
        let params = json!({ "level": level, "data": level });
        stream
            .message(&notification("notifications/message", &params))
            .await
            .unwrap();
    }
    let first = client.next().await;
    assert_eq!(first["params"]["progressToken"], "p");
    assert_eq!(client.next().await["params"]["data"], "error");
    client.abandon();
    let cancelled = old.call("notifications/cancelled").await;
    assert_eq!(cancelled.json()["params"]["requestId"], sent.rpc_id());

    // a client with a session
    let session = Session::open(&gateway, "/mcp/t/new", json!({})).await;
    session
        .call(2, "logging/setLevel", json!({ "level": "error" }))
        .await;
    let params = json!({ "name": "t", "_meta": { "progressToken": 5 } });
    let mut client = session.begin(&request(3, "tools/call", &params)).await;
    let (sent, stream) = new_streams.next().await;
    let meta = sent.json()["params"]["_meta"].clone();
    assert_eq!(meta["io.modelcontextprotocol/logLevel"], "error", "XT-264");
    let progress = json!({ "progressToken": meta["progressToken"], "progress": 1 });
    stream
        .message(&notification("notifications/progress", &progress))
        .await
        .unwrap();
    assert_eq!(client.next().await["params"]["progressToken"], 5);
    let cancel = notification("notifications/cancelled", &json!({ "requestId": 3 }));
    assert_eq!(session.post(&cancel).await.status, 202);
    stream.gone().await;
    assert!(new.calls("notifications/cancelled").is_empty());
    assert_eq!(client.rest().await, Vec::<Value>::new());
}

/// XT-264, AMB-34: before `logging/setLevel` a stateless upstream is asked for no logs.
#[tokio::test]
async fn xt_264_no_level_no_logs_from_stateless_upstreams() {
    let upstream = new().await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    let session = Session::open(&gateway, "/mcp/t/up", json!({})).await;
    session.call(2, "tools/call", json!({ "name": "t" })).await;
    let sent = upstream.call("tools/call").await;
    let meta = sent.json()["params"]["_meta"].clone();
    assert!(
        meta.get("io.modelcontextprotocol/logLevel").is_none(),
        "{meta}"
    );
}

/// XT-350 … XT-366, TOL-10, TOL-11, section 11: content that an older client's parser refuses is
/// put in a form that it knows; a newer client gets it as it is.
#[tokio::test]
async fn xt_350_content_is_levelled_for_older_clients() {
    let upstream = modern_upstream(json!({ "tools": {} }), |request| {
        let result = json!({
            "content": [
                { "type": "resource_link", "uri": "x:1", "name": "n", "title": "T" },
                { "type": "audio", "data": "AA==", "mimeType": "audio/wav" },
                { "type": "novel", "x": 1 },
            ],
            "structuredContent": [1, 2],
            "resultType": "complete",
        });
        (request.rpc_method() == "tools/call").then(|| Answer::result(request, &result))
    })
    .await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    for (revision, link, structured) in [
        ("2025-03-26", "text", true),
        ("2025-06-18", "resource_link", false),
        (LEGACY, "resource_link", false),
    ] {
        let session = Session::of(&gateway, "/mcp/t/up", revision, json!({}), None).await;
        let answer = session.call(2, "tools/call", json!({ "name": "t" })).await;
        let content = answer["result"]["content"].as_array().unwrap();
        let kinds: Vec<_> = content
            .iter()
            .map(|block| block["type"].as_str().unwrap())
            .collect();
        assert_eq!(kinds, [link, "audio", "text", "text"], "{answer}");
        if link == "text" {
            assert_eq!(content[0]["text"], "Resource: T x:1");
        }
        let value: Value = serde_json::from_str(content[3]["text"].as_str().unwrap()).unwrap();
        assert_eq!(value, json!([1, 2]));
        assert_eq!(
            answer["result"].get("structuredContent").is_some(),
            structured,
            "{answer}"
        );
    }
    let answer = gateway
        .ask(modern(
            "/mcp/t/up",
            &json!(1),
            "tools/call",
            &json!({ "name": "t" }),
        ))
        .await;
    let answer = answer.answer();
    assert_eq!(answer["result"]["content"][2]["type"], "novel", "AMB-35");
    assert_eq!(answer["result"]["structuredContent"], json!([1, 2]));
}

/// Case 151, XT-021, XT-022, XT-027: what a probe's answer says of the era. An upstream that was down while it was asked is
/// asked again by the next call.
#[tokio::test]
async fn case_151_the_era_is_found_out_rightly() {
    for (status, body, works) in [
        (404, "no", true),
        (400, "", true),
        (
            400,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: Server not initialized"}}"#,
            true,
        ),
        (
            200,
            r#"{"jsonrpc":"2.0","id":$id,"error":{"code":-32601,"message":"Method not found"}}"#,
            true,
        ),
        (405, "", true),
        (503, "", false),
        (401, "", false),
    ] {
        let upstream = legacy_upstream(json!({ "tools": {} }), move |request| {
            if request.rpc_method() != "server/discover" {
                return everything(request, false);
            }
            let json = body.starts_with('{');
            Some(Answer::Full {
                status,
                fields: json
                    .then(|| ("content-type".to_owned(), "application/json".to_owned()))
                    .into_iter()
                    .collect(),
                body: body.replace("$id", &request.rpc_id().to_string()).into(),
            })
        })
        .await;
        let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
        let answer = gateway
            .ask(modern(
                "/mcp/t/up",
                &json!(1),
                "tools/call",
                &json!({ "name": "t" }),
            ))
            .await
            .answer();
        if works {
            assert_eq!(
                answer["result"]["content"][0]["text"], "called",
                "{status} {body}: {answer}"
            );
        } else {
            let expected = if status == 401 { -31008 } else { -31001 };
            assert_eq!(answer["error"]["code"], expected, "{status}: {answer}");
            assert!(upstream.calls("initialize").is_empty(), "{status}");
        }
    }
}

/// Reply with a stream that holds the response and ends: the simplest streamed answer, both eras.
#[tokio::test]
async fn a_streamed_answer_without_events_is_json_for_the_client() {
    let (opens, streams) = streams();
    let upstream = legacy_upstream(json!({ "tools": {} }), move |request| {
        (request.rpc_method() == "tools/call").then(|| opens.answer(request))
    })
    .await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    let call = modern(
        "/mcp/t/up",
        &json!(1),
        "tools/call",
        &json!({ "name": "t" }),
    );
    let client = Stream::send(&gateway, call).await;
    let (sent, stream) = streams.next().await;
    stream
        .message(&reply(&sent, &text_result("end")))
        .await
        .unwrap();
    drop(stream);
    let answer = client.response().await;
    assert_eq!(
        answer.head.field("content-type"),
        Some("application/json"),
        "HTR-06"
    );
    assert_eq!(answer.json()["result"]["resultType"], "complete");
}

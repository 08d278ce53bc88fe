//! A stateless client and a stateless upstream: headers, rounds of questions, progress and logs,
//! cancellation, what the upstream does wrong.

use serde_json::{Value, json};
use vestibule_testkit::{Answer, RawRequest, RecordingUpstream};

use crate::harness::Gateway;
use crate::peers::{
    MODERN, Stream, listed, modern, modern_text, modern_upstream, modern_with, notification,
    raw_answer, reply, streams, tenant, text_result,
};

fn complete(text: &str) -> Value {
    let mut result = text_result(text);
    result["resultType"] = json!("complete");
    result
}

/// An upstream whose every tool answers "done".
async fn done(tools: Value) -> RecordingUpstream {
    modern_upstream(
        json!({ "tools": {}, "resources": {}, "prompts": {} }),
        move |request| match request.rpc_method().as_str() {
            "tools/list" => Some(Answer::result(
                request,
                &json!({ "tools": tools, "resultType": "complete", "ttlMs": 0, "cacheScope": "private" }),
            )),
            "tools/call" | "prompts/get" => Some(Answer::result(request, &complete("done"))),
            "resources/read" => {
                let contents = json!([{ "uri": request.json()["params"]["uri"], "text": "x" }]);
                Some(Answer::result(
                    request,
                    &json!({ "contents": contents, "resultType": "complete" }),
                ))
            }
            _ => None,
        },
    )
    .await
}

fn code(answer: &vestibule_testkit::RawResponse) -> (u16, i64) {
    let code = answer.answer()["error"]["code"].as_i64();
    (answer.status, code.unwrap_or_default())
}

// === headers ===

/// XT-390, XT-410, XT-411, HDR-11, HDR-24, cases 13, 103, 133, 135, 159: the upstream gets the
/// gateway's own headers and none of the client's.
#[tokio::test]
async fn xt_390_upstream_headers_are_the_gateways_own() {
    let upstream = done(json!([])).await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    let request = modern(
        "/mcp/t/up",
        &json!(1),
        "tools/call",
        &json!({ "name": "t" }),
    )
    .field("Origin", "http://localhost:1")
    .field("Cookie", "a=b")
    .field("Proxy-Authorization", "Basic eA==")
    .field("X-Forwarded-For", "192.0.2.1")
    .field("X-Forwarded-Authorization", "secret")
    .field("Mcp-Session-Id", "stale")
    .field("Last-Event-ID", "stale")
    .field("Mcp-Param-Foo", "bar")
    .field("X-Custom", "1");
    let answer = gateway.ask(request).await;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    assert_eq!(answer.head.field("mcp-session-id"), None);
    let sent = upstream.call("tools/call").await;
    let mut fields: Vec<_> = sent
        .head
        .fields
        .iter()
        .map(|(name, value)| (name.to_lowercase(), value.clone()))
        .filter(|(name, _)| !matches!(name.as_str(), "content-length" | "user-agent"))
        .collect();
    fields.sort();
    let host = upstream.address().to_string();
    let expected = [
        ("accept", "application/json, text/event-stream"),
        ("accept-encoding", "identity"),
        ("content-type", "application/json"),
        ("host", host.as_str()),
        ("mcp-method", "tools/call"),
        ("mcp-name", "t"),
        ("mcp-protocol-version", MODERN),
    ];
    let expected: Vec<_> = expected
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    assert_eq!(fields, expected);
    assert_eq!(sent.target, "/mcp");
}

/// Case 154, HDR-16, HDR-17, XT-391, XT-403: `Mcp-Name` is decoded before it is compared, and is
/// encoded upstream when it has to be.
#[tokio::test]
async fn case_154_mcp_name_is_decoded_and_encoded() {
    let upstream = done(json!([])).await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    let read = |header: &str| {
        modern(
            "/mcp/t/up",
            &json!(1),
            "resources/read",
            &json!({ "uri": "oni://测试" }),
        )
        .without("mcp-name")
        .field("Mcp-Name", header)
    };
    let good = "=?base64?b25pOi8v5rWL6K+V?=";
    assert_eq!(gateway.ask(read(good)).await.status, 200);
    let sent = upstream.call("resources/read").await;
    assert_eq!(sent.field("mcp-name"), Some(good));
    assert_eq!(sent.json()["params"]["uri"], "oni://测试");
    for bad in [
        "oni://测试",
        "=?base64?b25pOi8v5rWL6K+?=",
        "=?BASE64?b25pOi8v5rWL6K+V?=",
        "=?base64?b25pOi8v5rWL6K+V",
        "=?base64?!!!!?=",
    ] {
        assert_eq!(code(&gateway.ask(read(bad)).await), (400, -32020), "{bad}");
    }
    assert_eq!(upstream.calls("resources/read").len(), 1);

    // a tool that is called like an encoded one, and names with blanks at their ends
    for (name, header) in [
        ("=?base64?abc?=", "=?base64?PT9iYXNlNjQ/YWJjPz0=?="),
        (" name ", "=?base64?IG5hbWUg?="),
    ] {
        let request = modern(
            "/mcp/t/up",
            &json!(2),
            "tools/call",
            &json!({ "name": name }),
        )
        .without("mcp-name")
        .field("Mcp-Name", header);
        assert_eq!(gateway.ask(request).await.status, 200, "{name}");
        let calls = upstream.calls("tools/call");
        let sent = calls.last().unwrap();
        assert_eq!(sent.field("mcp-name"), Some(header));
        assert_eq!(sent.json()["params"]["name"], name);
    }
    let literal = modern(
        "/mcp/t/up",
        &json!(3),
        "tools/call",
        &json!({ "name": "=?base64?abc?=" }),
    );
    assert_eq!(code(&gateway.ask(literal).await), (400, -32020));
}

fn annotated() -> Value {
    json!([{
        "name": "q",
        "inputSchema": { "type": "object", "properties": {
            "region": { "type": "string", "x-mcp-header": "Region" },
            "count": { "type": "integer", "x-mcp-header": "Count" },
            "dry": { "type": "boolean", "x-mcp-header": "Dry" },
            "deep": { "type": "object", "properties": {
                "key": { "type": ["string", "null"], "x-mcp-header": "Deep-Key" }
            }},
        }},
    }])
}

/// Names and values of header fields.
type Pairs<'a> = &'a [(&'a str, &'a str)];

/// HDR-18, HDR-19, XMH-05, XT-392 … XT-402, XT-406, XT-409: arguments that a tool mirrors in headers
/// are compared with the body on the way in and written from the body on the way out.
#[tokio::test]
async fn xmh_05_mirrored_arguments_are_checked_down_and_written_up() {
    let upstream = done(annotated()).await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    let call = |target: &str, name: &str, arguments: &str, headers: &[(&str, &str)]| {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{name}","arguments":{arguments},"_meta":{{{}}}}}}}"#,
            crate::peers::meta("{}")
        );
        let mut request = modern_text(target, &body);
        for (name, value) in headers {
            request = request.field(&format!("Mcp-Param-{name}"), value);
        }
        request
    };
    let good: &[(&str, Pairs<'_>, Pairs<'_>)] = &[
        ("{}", &[], &[]),
        (r#"{"region":null,"deep":{}}"#, &[("Unknown", "x")], &[]),
        (
            r#"{"region":"eu","count":42.0,"dry":true,"deep":{"key":"k"}}"#,
            &[
                ("region", "eu"),
                ("COUNT", "42"),
                ("Dry", "true"),
                ("Deep-Key", "k"),
            ],
            &[
                ("region", "eu"),
                ("count", "42"),
                ("dry", "true"),
                ("deep-key", "k"),
            ],
        ),
        (r#"{"region":""}"#, &[("Region", "")], &[("region", "")]),
        (
            r#"{"region":"a\nb é"}"#,
            &[("Region", "=?base64?YQpiIMOp?=")],
            &[("region", "=?base64?YQpiIMOp?=")],
        ),
    ];
    for (target, name) in [("/mcp/t/up", "q"), ("/mcp/t", "up__q")] {
        for (arguments, headers, expected) in good {
            let answer = gateway.ask(call(target, name, arguments, headers)).await;
            assert_eq!(answer.status, 200, "{arguments} {:?}", answer.body);
            assert!(
                answer.answer()["result"].is_object(),
                "{arguments} {:?}",
                answer.body
            );
            let calls = upstream.calls("tools/call");
            let sent = calls.last().unwrap();
            let mut params: Vec<_> = sent
                .head
                .fields
                .iter()
                .filter_map(|(name, value)| {
                    let name = name.to_lowercase();
                    Some((name.strip_prefix("mcp-param-")?.to_owned(), value.clone()))
                })
                .collect();
            params.sort();
            let mut expected: Vec<_> = expected
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect();
            expected.sort();
            assert_eq!(params, expected, "{arguments}");
            assert_eq!(sent.field("mcp-name"), Some("q"));
        }
        let before = upstream.calls("tools/call").len();
        for (arguments, headers) in [
            (r#"{"region":"eu"}"#, &[][..]),
            (r#"{"region":"eu"}"#, &[("Region", "us")][..]),
            (
                r#"{"region":"eu"}"#,
                &[("Region", "eu"), ("Region", "eu")][..],
            ),
            (r#"{"region":null}"#, &[("Region", "eu")][..]),
            ("{}", &[("Region", "")][..]),
            (r#"{"count":42}"#, &[("Count", "43")][..]),
            (r#"{"dry":true}"#, &[("Dry", "TRUE")][..]),
            (
                r#"{"deep":{"key":"k"}}"#,
                &[("Deep-Key", "=?base64?aw?=")][..],
            ),
        ] {
            let answer = gateway.ask(call(target, name, arguments, headers)).await;
            assert_eq!(
                code(&answer),
                (400, -32020),
                "{target} {arguments} {headers:?}"
            );
        }
        assert_eq!(upstream.calls("tools/call").len(), before);
    }
}

/// XMH-06, XT-407: the upstream refuses headers made from an old definition; the definition is
/// fetched anew and the call made once more. A second refusal is the upstream's fault.
#[tokio::test]
async fn xt_407_a_header_mismatch_refreshes_the_definition_once() {
    let upstream = modern_upstream(json!({ "tools": {} }), move |request| {
        let annotation = |on: bool| {
            let mut schema = json!({ "type": "object", "properties": { "r": { "type": "string" } } });
            if on {
                schema["properties"]["r"]["x-mcp-header"] = json!("R");
            }
            json!({
                "tools": [{ "name": "q", "inputSchema": schema }, { "name": "never", "inputSchema": schema }],
                "resultType": "complete", "ttlMs": 3_600_000, "cacheScope": "public"
            })
        };
        match request.rpc_method().as_str() {
            "tools/list" => {
                // the annotation appears with the second fetch
                static LISTS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
                let on = LISTS.fetch_add(1, std::sync::atomic::Ordering::Relaxed) > 0;
                Some(Answer::result(request, &annotation(on)))
            }
            "tools/call" => Some(
                if request.field("mcp-param-r").is_some()
                    && request.json()["params"]["name"] == "q"
                {
                    Answer::result(request, &complete("done"))
                } else {
                    Answer::error(request, 400, -32020, "header mismatch")
                },
            ),
            _ => None,
        }
    })
    .await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    let call = |name: &str| {
        let params = json!({ "name": format!("up__{name}"), "arguments": { "r": "x" } });
        modern("/mcp/t", &json!(1), "tools/call", &params)
    };
    let answer = gateway.ask(call("q")).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.answer()["result"]["content"][0]["text"], "done");
    assert_eq!(upstream.calls("tools/call").len(), 2);
    assert_eq!(upstream.calls("tools/list").len(), 2);
    let answer = gateway.ask(call("never").field("Mcp-Param-R", "x")).await;
    assert_eq!(code(&answer), (200, -31003));
    assert_eq!(upstream.calls("tools/call").len(), 4);
}

/// XMH-04, XT-404: a tool whose annotation is invalid is hidden, the others stay.
#[tokio::test]
async fn xt_404_tools_with_invalid_annotations_are_hidden() {
    let tool = |name: &str, property: Value| json!({ "name": name, "inputSchema": { "type": "object", "properties": { "p": property } } });
    let tools = json!([
        tool("good", json!({ "type": "string", "x-mcp-header": "P" })),
        tool("number", json!({ "type": "number", "x-mcp-header": "P" })),
        tool("empty", json!({ "type": "string", "x-mcp-header": "" })),
        tool("blank", json!({ "type": "string", "x-mcp-header": "a b" })),
        tool(
            "items",
            json!({ "type": "array", "items": { "type": "string", "x-mcp-header": "P" } })
        ),
        tool(
            "either",
            json!({ "oneOf": [{ "type": "string", "x-mcp-header": "P" }] })
        ),
    ]);
    let upstream = done(tools).await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    for (target, expected) in [("/mcp/t/up", "good"), ("/mcp/t", "up__good")] {
        let answer = gateway
            .ask(modern(target, &json!(1), "tools/list", &json!({})))
            .await;
        let result = answer.answer()["result"].clone();
        let names: Vec<_> = result["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(names, [expected]);
        assert!(
            result["ttlMs"].is_u64() && result["cacheScope"].is_string(),
            "CCH-01"
        );
    }
}

// === rounds of questions ===

/// Answers `ask` with a question and its retry with what it got; the state is `state`, if any.
async fn asking(state: Option<&'static str>) -> RecordingUpstream {
    modern_upstream(json!({ "tools": {}, "prompts": {} }), move |request| {
        if !matches!(request.rpc_method().as_str(), "tools/call" | "prompts/get") {
            return listed(request, &["t", "u"]);
        }
        let params = &request.json()["params"];
        if params.get("inputResponses").is_some() {
            return Some(Answer::result(request, &complete("done")));
        }
        let state = state.map_or(String::new(), |state| format!(r#","requestState":{state}"#));
        let question = r#"{"k1":{"method":"elicitation/create","params":{"mode":"form","message":"Sure?","requestedSchema":{"type":"object","properties":{"ok":{"type":"boolean"}}}}}}"#;
        Some(raw_answer(
            request,
            &format!(
                r#"{{"jsonrpc":"2.0","id":$id,"result":{{"resultType":"input_required","inputRequests":{question}{state}}}}}"#
            ),
        ))
    })
    .await
}

fn form() -> Value {
    json!({ "elicitation": {} })
}

fn retry(params: &Value, state: &Value, answer: &Value) -> Value {
    let mut params = params.clone();
    params["requestState"] = state.clone();
    params["inputResponses"] = json!({ "k1": answer });
    params
}

/// XT-150, MRT-11, MRT-14, case 105: the client gets a sealed state, the upstream its own back byte
/// for byte, under a new id; an upstream that gave none gets none.
#[tokio::test]
async fn xt_150_states_are_wrapped_and_given_back_byte_for_byte() {
    const OWN: &str = r#""s\u00e9\/ \"x\"""#;
    for own in [Some(OWN), None] {
        let upstream = asking(own).await;
        let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
        let params = json!({ "name": "up__t", "arguments": { "n": 9_007_199_254_740_993_u64 } });
        let answer = gateway
            .ask(modern_with(
                "/mcp/t",
                &json!(1),
                "tools/call",
                &params,
                &form(),
            ))
            .await;
        assert_eq!(answer.status, 200, "{:?}", answer.body);
        let result = answer.answer()["result"].clone();
        assert_eq!(result["resultType"], "input_required");
        assert!(result.get("ttlMs").is_none(), "CCH-02");
        let question = &result["inputRequests"]["k1"];
        assert_eq!(question["params"]["message"], "[up] Sure?", "ELI-09");
        let state = result["requestState"].clone();
        assert!(state.is_string(), "MRT-02");
        assert!(
            state.as_str().unwrap().is_ascii() && !state.to_string().contains('\\'),
            "{state}"
        );

        let responses = json!({ "action": "accept", "content": { "ok": true } });
        let params = retry(&params, &state, &responses);
        let answer = gateway
            .ask(modern_with(
                "/mcp/t",
                &json!(2),
                "tools/call",
                &params,
                &form(),
            ))
            .await;
        assert_eq!(answer.answer()["result"]["content"][0]["text"], "done");
        let calls = upstream.calls("tools/call");
        assert_eq!(calls.len(), 2);
        assert_ne!(calls[0].rpc_id(), calls[1].rpc_id());
        let sent = String::from_utf8(calls[1].body.to_vec()).unwrap();
        match own {
            Some(own) => assert!(sent.contains(&format!(r#""requestState":{own}"#)), "{sent}"),
            None => assert!(!sent.contains("requestState"), "{sent}"),
        }
        assert_eq!(calls[1].json()["params"]["inputResponses"]["k1"], responses);
        assert_eq!(calls[1].json()["params"]["name"], "t");
    }
}

/// Case 105, XT-152, XT-537, MRT-05, MRT-06, T45: a state that was tampered with or belongs to another tool,
/// method, server or arguments is refused in the same words, and nothing goes upstream.
#[tokio::test]
async fn case_105_a_state_is_good_for_its_own_call_only() {
    let upstream = asking(Some("\"s\"")).await;
    let gateway = Gateway::start(&tenant(&[("a", &upstream.url()), ("b", &upstream.url())]));
    let arguments = json!({ "n": 9_007_199_254_740_993_u64 });
    let params = json!({ "name": "a__t", "arguments": arguments });
    let answer = gateway
        .ask(modern_with(
            "/mcp/t",
            &json!(1),
            "tools/call",
            &params,
            &form(),
        ))
        .await;
    let state = answer.answer()["result"]["requestState"].clone();
    let text = state.as_str().unwrap();
    let mut flipped = text.to_owned();
    let last = flipped.pop().unwrap();
    flipped.push(if last == 'A' { 'Q' } else { 'A' });
    let own = json!({ "action": "accept", "content": {} });
    let with = |name: &str, arguments: &Value, state: &Value| {
        retry(
            &json!({ "name": name, "arguments": arguments }),
            state,
            &own,
        )
    };
    let forged: Vec<(&str, &str, Value)> = vec![
        (
            "/mcp/t",
            "tools/call",
            with("a__t", &arguments, &json!(flipped)),
        ),
        (
            "/mcp/t",
            "tools/call",
            with("a__t", &arguments, &json!("s")),
        ),
        ("/mcp/t", "tools/call", with("a__t", &arguments, &json!(""))),
        ("/mcp/t", "tools/call", with("a__t", &arguments, &json!(7))),
        ("/mcp/t", "tools/call", with("b__t", &arguments, &state)),
        ("/mcp/t", "tools/call", with("a__u", &arguments, &state)),
        (
            "/mcp/t",
            "tools/call",
            with("a__t", &json!({ "n": 9_007_199_254_740_992_u64 }), &state),
        ),
        ("/mcp/t", "prompts/get", with("a__t", &arguments, &state)),
        ("/mcp/t/a", "tools/call", with("t", &arguments, &state)),
    ];
    let mut bodies = Vec::new();
    for (target, method, params) in &forged {
        let answer = gateway
            .ask(modern_with(target, &json!(2), method, params, &form()))
            .await;
        assert_eq!(code(&answer), (200, -32602), "{target} {method} {params}");
        bodies.push(answer.body.clone());
    }
    bodies.dedup();
    assert_eq!(bodies.len(), 1, "one wording: {bodies:?}");
    assert_eq!(upstream.calls("tools/call").len(), 1);
    // and it is still good for its own
    let params = with("a__t", &arguments, &state);
    let answer = gateway
        .ask(modern_with(
            "/mcp/t",
            &json!(3),
            "tools/call",
            &params,
            &form(),
        ))
        .await;
    assert_eq!(answer.answer()["result"]["content"][0]["text"], "done");
}

/// CAP-04, MRT-08, CAP-03: a question that the client did not declare ends the call with what is
/// missing; STA-11.
#[tokio::test]
async fn mrt_08_undeclared_questions_end_the_call() {
    let upstream = asking(Some("\"s\"")).await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    for capabilities in [json!({}), json!({ "elicitation": { "url": {} } })] {
        let request = modern_with(
            "/mcp/t/up",
            &json!(1),
            "tools/call",
            &json!({ "name": "t" }),
            &capabilities,
        );
        let answer = gateway.ask(request).await;
        assert_eq!(code(&answer), (400, -32021), "{:?}", answer.body);
        let required = &answer.answer()["error"]["data"]["requiredCapabilities"];
        assert!(required["elicitation"].is_object(), "{:?}", answer.body);
    }
    let sent = upstream.calls("tools/call").pop().unwrap();
    let meta = sent.json()["params"]["_meta"].clone();
    let declared = &meta["io.modelcontextprotocol/clientCapabilities"];
    assert!(declared["elicitation"].get("form").is_none(), "{declared}");
}

/// XT-154, XT-155, XT-156, FRM-22, MRT-12: results of an unknown type, rounds where there are none,
/// and states too large to carry are the upstream's fault.
#[tokio::test]
async fn xt_154_155_156_wrong_results_are_the_upstreams_fault() {
    let upstream = modern_upstream(json!({ "tools": {}, "completions": {} }), |request| {
        let json = request.json();
        let result = match (
            request.rpc_method().as_str(),
            json["params"]["name"].as_str(),
        ) {
            ("tools/call", Some("unknown")) => json!({ "content": [], "resultType": "surprise" }),
            ("tools/call", Some("large")) => {
                json!({ "resultType": "input_required", "requestState": "s".repeat(65 * 1024) })
            }
            ("tools/call", Some("nothing")) => json!({ "resultType": "input_required" }),
            ("tools/list" | "completion/complete", _) => {
                json!({ "resultType": "input_required", "requestState": "s" })
            }
            _ => return None,
        };
        Some(Answer::result(request, &result))
    })
    .await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    for name in ["unknown", "large", "nothing"] {
        let request = modern(
            "/mcp/t/up",
            &json!(1),
            "tools/call",
            &json!({ "name": name }),
        );
        let answer = gateway.ask(request).await;
        assert_eq!(code(&answer), (200, -31003), "{name} {:?}", answer.body);
        assert_eq!(
            answer.answer()["error"]["data"]["origin"],
            "gateway",
            "{name}"
        );
    }
    let reference = json!({ "ref": { "type": "ref/prompt", "name": "p" }, "argument": { "name": "a", "value": "" } });
    for (method, params) in [
        ("tools/list", json!({})),
        ("completion/complete", reference),
    ] {
        let answer = gateway
            .ask(modern("/mcp/t/up", &json!(1), method, &params))
            .await;
        assert_eq!(code(&answer), (200, -31003), "{method} {:?}", answer.body);
    }
}

// === progress and logs ===

/// PRG-01 … PRG-03, cases 81, 82, LOG-03, LOG-06, SSE-12: the client's token comes back as it was
/// written, values only grow, foreign tokens and unwanted levels are dropped, nothing has an event id.
#[tokio::test]
async fn case_82_progress_and_logs_are_only_what_the_client_asked_for() {
    let (opens, streams) = streams();
    let upstream = modern_upstream(json!({ "tools": {}, "logging": {} }), move |request| {
        let call = request.rpc_method() == "tools/call";
        call.then(|| opens.answer(request))
            .or_else(|| listed(request, &["t"]))
    })
    .await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    for (token, level) in [
        (Some(json!("1")), Some("warning")),
        (Some(json!(1)), None),
        (None, None),
    ] {
        let mut params = json!({ "name": "up__t" });
        if let Some(token) = &token {
            params["_meta"]["progressToken"] = token.clone();
        }
        if let Some(level) = level {
            params["_meta"]["io.modelcontextprotocol/logLevel"] = json!(level);
        }
        let mut client =
            Stream::send(&gateway, modern("/mcp/t", &json!(9), "tools/call", &params)).await;
        let (request, stream) = streams.next().await;
        let meta = request.json()["params"]["_meta"].clone();
        let own = meta.get("progressToken").cloned();
        assert_eq!(own.is_some(), token.is_some());
        assert!(own.is_none() || own != token, "the token is the hop's own");
        assert_eq!(
            meta.get("io.modelcontextprotocol/logLevel")
                .and_then(Value::as_str),
            level
        );
        let own = own.unwrap_or_else(|| json!("tool-call-4"));
        for (of, value) in [
            (&own, 1.0),
            (&json!("other"), 2.0),
            (&own, 1.0),
            (&own, 0.5),
            (&own, 3.0),
        ] {
            let params = json!({ "progressToken": of, "progress": value, "message": "m" });
            stream
                .message(&notification("notifications/progress", &params))
                .await
                .unwrap();
        }
        for level in ["debug", "error"] {
            let params = json!({ "level": level, "logger": "l", "data": level });
            stream
                .message(&notification("notifications/message", &params))
                .await
                .unwrap();
        }
        stream
            .message(&reply(&request, &complete("end")))
            .await
            .unwrap();
        drop(stream);
        let mut events = Vec::new();
        if token.is_none() {
            let answer = client.response().await;
            assert_eq!(
                answer.head.field("content-type"),
                Some("application/json"),
                "{:?}",
                answer.body
            );
            continue;
        }
        while let Some(event) = client.event().await {
            assert_eq!((event.id.as_ref(), event.retry), (None, None));
            events.push(event.json());
        }
        let last = events.pop().unwrap();
        assert_eq!(last["id"], 9);
        let progress: Vec<_> = events
            .iter()
            .filter(|event| event["method"] == "notifications/progress")
            .map(|event| {
                (
                    event["params"]["progressToken"].clone(),
                    event["params"]["progress"].as_f64(),
                )
            })
            .collect();
        let token = token.unwrap();
        assert_eq!(progress, [(token.clone(), Some(1.0)), (token, Some(3.0))]);
        let logs: Vec<_> = events
            .iter()
            .filter(|event| event["method"] == "notifications/message")
            .map(|event| {
                (
                    event["params"]["data"].clone(),
                    event["params"]["logger"].clone(),
                )
            })
            .collect();
        let expected: &[_] = if level.is_some() {
            &[(json!("error"), json!("up/l"))]
        } else {
            &[]
        };
        assert_eq!(logs, expected);
    }
}

/// Cases 89, 130 b, HTR-09, FRM-20: only the response with our id ends the call; requests of a
/// stateless upstream are ignored; after the response the connection is let go though the upstream
/// keeps its stream open.
#[tokio::test]
async fn case_89_only_the_response_ends_a_call() {
    let (opens, streams) = streams();
    let upstream = modern_upstream(json!({ "tools": {} }), move |request| {
        (request.rpc_method() == "tools/call").then(|| opens.answer(request))
    })
    .await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    let request = modern(
        "/mcp/t/up",
        &json!(1),
        "tools/call",
        &json!({ "name": "t" }),
    );
    let client = Stream::send(&gateway, request).await;
    let (request, stream) = streams.next().await;
    let asks = json!({ "jsonrpc": "2.0", "id": request.rpc_id(), "method": "ping" });
    stream.message(&asks).await.unwrap();
    let note = notification(
        "notifications/message",
        &json!({ "level": "error", "data": 1 }),
    );
    stream.message(&note).await.unwrap();
    stream
        .message(&reply(&request, &complete("end")))
        .await
        .unwrap();
    let answer = client.response().await;
    assert_eq!(answer.answer()["result"]["content"][0]["text"], "end");
    stream.gone().await;
    assert_eq!(
        upstream
            .requests()
            .iter()
            .filter(|r| r.rpc_method().is_empty())
            .count(),
        0
    );
}

// === cancellation ===

/// Case 85 a, SSE-10, SSE-11, XT-240: a stateless client that goes cancels, whether its answer was
/// to be JSON or a stream: the upstream's connection is closed, and no cancellation is posted.
#[tokio::test]
async fn case_85_a_modern_disconnect_cancels_upstream() {
    let (opens, streams) = streams();
    let upstream = modern_upstream(json!({ "tools": {} }), move |request| {
        if request.rpc_method() != "tools/call" {
            return None;
        }
        let silent = request.json()["params"]["name"] == "silent";
        Some(if silent {
            Answer::Hang
        } else {
            opens.answer(request)
        })
    })
    .await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    let request = modern(
        "/mcp/t/up",
        &json!(1),
        "tools/call",
        &json!({ "name": "silent" }),
    );
    let client = Stream::send(&gateway, request).await;
    upstream.call("tools/call").await;
    client.abandon();
    upstream.abandoned(1).await;

    let params = json!({ "name": "streams", "_meta": { "progressToken": 1 } });
    let request = modern("/mcp/t/up", &json!(2), "tools/call", &params);
    let mut client = Stream::send(&gateway, request).await;
    let (request, stream) = streams.next().await;
    let token = request.json()["params"]["_meta"]["progressToken"].clone();
    let progress = json!({ "progressToken": token, "progress": 1 });
    stream
        .message(&notification("notifications/progress", &progress))
        .await
        .unwrap();
    client.next().await;
    client.abandon();
    stream.gone().await;
    assert!(upstream.calls("notifications/cancelled").is_empty());
}

/// AMB-05, HTR-05: a cancellation by notification is accepted and means nothing.
#[tokio::test]
async fn amb_05_modern_cancelled_notifications_are_ignored() {
    let upstream = done(json!([])).await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    let body = notification("notifications/cancelled", &json!({ "requestId": 1 }));
    let request =
        RawRequest::mcp("127.0.0.1", "/mcp/t/up", &body).field("MCP-Protocol-Version", MODERN);
    let answer = gateway.ask(request).await;
    assert_eq!((answer.status, answer.body.len()), (202, 0));
    assert!(upstream.requests().is_empty());
}

// === what the upstream does wrong ===

/// XT-270 … XT-289, STA-25 … STA-29, cases 60, 138: no status of an upstream is the client's, its codes are
/// mapped, and every call ends with one well-formed error for its id.
#[tokio::test]
async fn xt_270_errors_of_upstreams_are_mapped() {
    let upstream = modern_upstream(json!({ "tools": {} }), |request| {
        let json = request.json();
        if json["method"] != "tools/call" {
            return None;
        }
        let name = json["params"]["name"].as_str().unwrap().to_owned();
        let raw = |body: &str| raw_answer(request, body);
        Some(match name.as_str() {
            "both" => {
                raw(r#"{"jsonrpc":"2.0","id":$id,"result":{},"error":{"code":1,"message":"x"}}"#)
            }
            "neither" => raw(r#"{"jsonrpc":"2.0","id":$id}"#),
            "foreign" => {
                raw(r#"{"jsonrpc":"2.0","id":999,"result":{"content":[],"resultType":"complete"}}"#)
            }
            "text-code" => {
                raw(r#"{"jsonrpc":"2.0","id":$id,"error":{"code":"-32000","message":"x"}}"#)
            }
            "wordless" => raw(r#"{"jsonrpc":"2.0","id":$id,"error":{"code":1}}"#),
            "html" => Answer::text(200, "<html>").field("x", "y"),
            "cut" => Answer::Bytes(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\n{"
                    .into(),
            ),
            "moved" => Answer::empty(302).field("location", "http://192.0.2.1/mcp"),
            name => {
                let (status, code) = name.split_once(' ').unwrap();
                let status = status.parse().unwrap();
                match code.parse() {
                    Ok(code) => Answer::error(request, status, code, "theirs"),
                    Err(_) => Answer::text(status, "no"),
                }
            }
        })
    })
    .await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    for (name, expected) in [
        ("both", -31003),
        ("neither", -31003),
        ("foreign", -31003),
        ("text-code", -31003),
        ("wordless", -31003),
        ("html", -31003),
        ("cut", -31001),
        ("200 -32601", -31003),
        ("404 -32601", -31003),
        ("200 -32602", -32602),
        ("400 -32602", -32602),
        ("200 -32603", -32603),
        ("200 -32700", -31003),
        ("200 -32600", -31003),
        ("200 -32000", -31003),
        ("200 -32050", -31003),
        ("200 -31006", -31003),
        ("200 7", 7),
        ("500 -", -31001),
        ("503 -", -31001),
        ("429 -", -31001),
        ("401 -", -31008),
        ("403 -", -31008),
        ("404 -", -31003),
        ("405 -", -31003),
        ("415 -", -31003),
        ("moved", -31003),
    ] {
        let params = json!({ "name": name });
        let answer = gateway
            .ask(modern("/mcp/t/up", &json!("i"), "tools/call", &params))
            .await;
        assert_eq!(code(&answer), (200, expected), "{name}: {:?}", answer.body);
        let error = answer.answer();
        assert_eq!(error["id"], "i", "{name}");
        let own = (-31100..-31000).contains(&expected);
        if own {
            assert_eq!(error["error"]["data"]["origin"], "gateway", "{name}");
            assert_eq!(error["error"]["data"]["upstream"], "up", "{name}");
        }
    }
}

/// SSE-13, XT-451, XT-506: a broken answer is asked for again where that can do no harm; the outcome of a tool
/// call is said to be unknown.
#[tokio::test]
async fn sse_13_only_harmless_requests_are_repeated() {
    let upstream = modern_upstream(json!({ "tools": {}, "resources": {} }), |request| {
        let method = request.rpc_method();
        static READS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        match method.as_str() {
            "tools/call" => Some(Answer::Close),
            "resources/read" => Some(
                if READS.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0 {
                    Answer::Close
                } else {
                    let contents = json!([{ "uri": "x:1", "text": "x" }]);
                    Answer::result(
                        request,
                        &json!({ "contents": contents, "resultType": "complete" }),
                    )
                },
            ),
            _ => None,
        }
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
    assert_eq!(code(&answer), (200, -31001));
    assert_eq!(
        answer.answer()["error"]["data"]["reason"],
        "outcome_unknown"
    );
    assert_eq!(upstream.calls("tools/call").len(), 1);
    let answer = gateway
        .ask(modern(
            "/mcp/t/up",
            &json!(2),
            "resources/read",
            &json!({ "uri": "x:1" }),
        ))
        .await;
    assert_eq!(answer.answer()["result"]["contents"][0]["text"], "x");
    let ids: Vec<_> = upstream
        .calls("resources/read")
        .iter()
        .map(|r| r.rpc_id())
        .collect();
    assert_eq!(ids.len(), 2);
    assert_ne!(ids[0], ids[1]);
}

/// HTR-10, case 138: a redirect within the same origin is followed with the body.
#[tokio::test]
async fn case_138_redirects_within_the_origin_are_followed() {
    let upstream = RecordingUpstream::start(|request| {
        if request.target == "/mcp" {
            return Answer::empty(307).field("location", "/mcp/");
        }
        vestibule_testkit::recording::modern_basics(request, &json!({ "tools": {} }))
            .unwrap_or_else(|| Answer::result(request, &complete("done")))
    })
    .await
    .unwrap();
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    let answer = gateway
        .ask(modern(
            "/mcp/t/up",
            &json!(1),
            "tools/call",
            &json!({ "name": "t" }),
        ))
        .await;
    assert_eq!(answer.answer()["result"]["content"][0]["text"], "done");
    let sent = upstream.calls("tools/call").pop().unwrap();
    assert_eq!(
        (sent.target.as_str(), sent.json()["params"]["name"].as_str()),
        ("/mcp/", Some("t"))
    );
}

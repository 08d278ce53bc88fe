//! HTTP around the messages: which forms are taken and given, which headers are judged, and what
//! never crosses the gateway.

use serde_json::{Value, json};
use vestibule_testkit::recording::{Answer, legacy_basics, modern_basics};
use vestibule_testkit::{RawRequest, RawResponse, RecordingUpstream};

use crate::harness::Gateway;
use crate::talk::{
    HOST, META, MODERN, SESSIONS, Session, Upstream, assert_refused, at, initialize, modern,
    modern_call, modern_text, open_tenant, post, progress, response, tenant, text,
};

const CALL: &str = "/mcp/t/up";

async fn house() -> (Upstream, Gateway) {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::start(&open_tenant(&[("up", upstream.reach())], ""));
    (upstream, gateway)
}

fn echo() -> RawRequest {
    modern_call(CALL, "echo", &json!({}))
}

fn kind(answer: &RawResponse) -> &str {
    answer.head.field("content-type").unwrap_or_default()
}

/// HDR-01: every Accept that allows one of the two forms gets one of them, else 406.
#[tokio::test]
async fn case_132_hdr_01_accept_is_read_liberally() {
    let (_upstream, gateway) = house().await;
    let session = Session::open(&gateway, CALL, SESSIONS[0]).await;
    const JSON: &str = "application/json";
    const SSE: &str = "text/event-stream";
    for (accept, form) in [
        (&[][..], Some(JSON)),
        (&["*/*"], Some(JSON)),
        (&["application/*, text/event-stream"], Some(JSON)),
        (&["application/json"], Some(JSON)),
        (&["text/event-stream"], Some(SSE)),
        (&["text/*"], Some(SSE)),
        (&["application/json;q=0, text/event-stream"], Some(SSE)),
        (&["text/event-stream;q=0, application/json"], Some(JSON)),
        (&["application/json", "text/event-stream"], Some(JSON)),
        (&["APPLICATION/JSON, TEXT/EVENT-STREAM"], Some(JSON)),
        (
            &["application/json ; charset=utf-8,text/event-stream"],
            Some(JSON),
        ),
        (&["text/html"], None),
        (&["application/xml, image/*"], None),
        (&["*/*;q=0"], None),
    ] {
        for request in [
            echo(),
            session.call(1, "echo", &json!({})),
            initialize(CALL, SESSIONS[0]),
        ] {
            let request = accept
                .iter()
                .fold(request.without("Accept"), |request, one| {
                    request.field("Accept", one)
                });
            let answer = gateway.ask(request).await;
            match form {
                Some(form) => {
                    assert_eq!(answer.status, 200, "{accept:?}");
                    assert_eq!(kind(&answer), form, "{accept:?}");
                    assert!(answer.answer()["result"].is_object(), "{accept:?}");
                }
                None => {
                    assert_refused("HDR-01", &answer, 406, -32600);
                }
            }
        }
    }
}

/// HDR-01: who takes JSON alone gets it, however long the call and whatever the upstream says on
/// the way.
#[tokio::test]
async fn hdr_01_a_client_of_json_alone_gets_one_object() {
    let (upstream, gateway) = house().await;
    let mut client = gateway.connect().await;
    let params = json!({ "name": "stream", "_meta": { "progressToken": 1 } });
    let request = modern(CALL, 1, "tools/call", params)
        .without("Accept")
        .field("Accept", "application/json");
    client.send(&request.bytes()).await.unwrap();
    let (call, stream) = upstream.opened().await;
    stream.message(&progress(&call, 1)).await.unwrap();
    stream.message(&response(&call, "done")).await.unwrap();
    let answer = client.response().await.unwrap();
    assert_eq!(kind(&answer), "application/json");
    assert_eq!(text(&answer.json()), "done");
}

/// HDR-04, case 97: what is not recognised as JSON is not let past the checks, it is 415.
#[tokio::test]
async fn case_97_hdr_04_a_body_is_json_or_it_is_415() {
    let (upstream, gateway) = house().await;
    let typed = |kind: &str| echo().without("Content-Type").field("Content-Type", kind);
    let bad = [
        echo().without("Content-Type"),
        typed("text/plain"),
        typed("application/json-rpc"),
        typed("application/jsonx"),
        typed("application/xml"),
        typed(""),
        typed("application/json;charset=utf-16"),
        typed("application/json, text/plain"),
        echo().field("Content-Encoding", "gzip"),
        echo().field("Content-Encoding", "identity, gzip"),
    ];
    for request in bad {
        let shown = format!("{request:?}");
        assert_refused(&shown, &gateway.ask(request).await, 415, -32600);
    }
    assert_eq!(upstream.calls(), 0);
    for good in [
        "Application/JSON",
        "application/json;charset=utf-8",
        "application/json; charset=UTF-8",
        "application/json;charset=\"utf-8\"",
    ] {
        assert_eq!(gateway.ask(typed(good)).await.status, 200, "{good}");
    }
    let identity = echo().field("Content-Encoding", "identity");
    assert_eq!(gateway.ask(identity).await.status, 200);
}

/// HDR-05, HDR-10, HDR-13, HDR-14, HDR-17, cases 101 and 154: headers that mirror the body.
#[tokio::test]
async fn case_101_case_154_hdr_10_mirrored_headers_equal_the_body() {
    let (upstream, gateway) = house().await;
    let list = || modern(CALL, 7, "tools/list", json!({}));
    let call = || modern(CALL, 7, "tools/call", json!({ "name": "echo" }));
    let named = |name: &str| call().without("Mcp-Name").field("Mcp-Name", name);
    let read = |name: &str| {
        let params = json!({ "uri": "oni://测试" });
        modern(CALL, 7, "resources/read", params)
            .without("Mcp-Name")
            .field("Mcp-Name", name)
    };
    let bad = [
        list().without("Mcp-Method"),
        list()
            .without("Mcp-Method")
            .field("Mcp-Method", "TOOLS/LIST"),
        list()
            .without("Mcp-Method")
            .field("Mcp-Method", "tools/call"),
        list()
            .without("Mcp-Method")
            .field("Mcp-Method", "tools/list, tools/list"),
        call().without("Mcp-Name"),
        named("hang"),
        named("Echo"),
        named("echo, echo"),
        named(""),
        named("=?base64?ZWNobw=?="),
        named("=?base64?####?="),
        named("=?BASE64?ZWNobw==?="),
        named("=?base64?ZWNobw=="),
        read("oni://测试"),
        read("b25pOi8v5rWL6K+V"),
    ];
    for request in bad {
        let shown = format!("{request:?}");
        let answer = gateway.ask(request).await;
        assert_eq!(
            assert_refused(&shown, &answer, 400, -32020)["id"],
            7,
            "{shown}"
        );
    }
    // T21: a header that stands twice is refused before the body is read
    for twice in [
        list().field("Mcp-Method", "tools/list"),
        call().field("Mcp-Name", "echo"),
        call().field("mcp_name", "echo"),
        call()
            .field("Mcp-Session-Id", "a")
            .field("Mcp-Session-Id", "a"),
        call().field("mcp_session_id", "a"),
    ] {
        let shown = format!("{twice:?}");
        assert_refused(&shown, &gateway.ask(twice).await, 400, -32020);
    }
    assert_eq!(upstream.calls(), 0);
    let good = [
        named("=?base64?ZWNobw==?="),
        named("  echo \t"),
        read("=?base64?b25pOi8v5rWL6K+V?="),
        modern(CALL, 7, "resources/read", json!({ "uri": "memo://a,b" })),
        RawRequest::mcp(HOST, CALL, &Value::Null)
            .field("mcp-PROTOCOL-version", MODERN)
            .field("MCP-METHOD", "tools/list")
            .body(format!(
                r#"{{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{{{META}}}}}"#
            )),
    ];
    for request in good {
        let shown = format!("{request:?}");
        let answer = gateway.ask(request).await;
        assert_eq!(answer.status, 200, "{shown}: {:?}", answer.body);
    }
}

/// HDR-13, case 101: what a client volunteers is compared in every era.
#[tokio::test]
async fn case_101_hdr_13_volunteered_headers_are_compared_in_every_era() {
    let (upstream, gateway) = house().await;
    let session = Session::open(&gateway, CALL, SESSIONS[0]).await;
    let note = || {
        post(CALL, r#"{"jsonrpc":"2.0","method":"notifications/foo"}"#)
            .field("MCP-Protocol-Version", MODERN)
    };
    assert_eq!(gateway.ask(note()).await.status, 202);
    let right = note().field("Mcp-Method", "notifications/foo");
    assert_eq!(gateway.ask(right).await.status, 202);
    let wrong = note().field("Mcp-Method", "notifications/bar");
    assert_refused("HDR-13", &gateway.ask(wrong).await, 400, -32020);
    for request in [
        session
            .call(7, "echo", &json!({}))
            .field("Mcp-Method", "tools/list"),
        session
            .call(7, "echo", &json!({}))
            .field("Mcp-Name", "hang"),
    ] {
        assert_refused("case 101", &gateway.ask(request).await, 400, -32020);
    }
    assert_eq!(upstream.calls(), 0);
    let right = session
        .call(7, "echo", &json!({}))
        .field("Mcp-Method", "tools/call")
        .field("Mcp-Name", "echo");
    assert_eq!(gateway.ask(right).await.status, 200);
}

/// HDR-18 … HDR-20: arguments that a tool wants mirrored.
#[tokio::test]
async fn hdr_19_annotated_arguments_are_mirrored_exactly() {
    let (upstream, gateway) = house().await;
    let call = |arguments: Value| modern_call(CALL, "region", &arguments);
    let both = json!({ "region": "eu", "count": 9 });
    let bad = [
        call(both.clone()),
        call(both.clone()).field("Mcp-Param-Region", "eu"),
        call(both.clone())
            .field("Mcp-Param-Region", "us")
            .field("Mcp-Param-Count", "9"),
        call(both.clone())
            .field("Mcp-Param-Region", "eu")
            .field("Mcp-Param-Count", "8"),
        call(both.clone())
            .field("Mcp-Param-Region", "eu")
            .field("Mcp-Param-Count", "x"),
        call(json!({})).field("Mcp-Param-Region", "eu"),
        call(json!({ "region": null })).field("Mcp-Param-Region", "eu"),
    ];
    for request in bad {
        let shown = format!("{request:?}");
        let answer = gateway.ask(request).await;
        assert_eq!(assert_refused(&shown, &answer, 400, -32020)["id"], 1);
    }
    let twice = call(json!({ "region": "eu" }))
        .field("Mcp-Param-Region", "eu")
        .field("Mcp-Param-Region", "eu");
    assert_refused("HDR-10", &gateway.ask(twice).await, 400, -32020);
    assert_eq!(upstream.calls(), 0);
    let good = call(json!({ "region": "名 ", "count": 9 }))
        .field("mcp-param-region", "=?base64?5ZCNIA==?=")
        .field("Mcp-Param-Count", "9")
        .field("Mcp-Param-Other", "ignored");
    let answer = gateway.ask(good).await;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    let sent = upstream.peer.call("tools/call").await;
    assert_eq!(sent.field("mcp-param-region"), Some("=?base64?5ZCNIA==?="));
    assert_eq!(sent.field("mcp-param-count"), Some("9"));
    assert_eq!(sent.field("mcp-param-other"), None, "HDR-20");
    for null in [json!({}), json!({ "region": null, "count": null })] {
        assert_eq!(gateway.ask(call(null)).await.status, 200);
    }
}

/// HDR-11, HDR-16, HDR-18, case 154: what a client of a session does not say is said for it.
#[tokio::test]
async fn hdr_11_hdr_16_headers_are_made_from_the_body_that_is_sent() {
    let (upstream, gateway) = house().await;
    let session = Session::open(&gateway, "/mcp/t", SESSIONS[0]).await;
    let call = session.call(1, "up__region", &json!({ "region": " é", "count": -3 }));
    assert_eq!(gateway.ask(call).await.status, 200);
    let sent = upstream.peer.call("tools/call").await;
    assert_eq!(sent.field("mcp-protocol-version"), Some(MODERN));
    assert_eq!(sent.field("mcp-method"), Some("tools/call"));
    assert_eq!(sent.field("mcp-name"), Some("region"));
    assert_eq!(sent.field("mcp-param-region"), Some("=?base64?IMOp?="));
    assert_eq!(sent.field("mcp-param-count"), Some("-3"));
    assert_eq!(sent.json()["params"]["name"], "region");
}

/// HDR-21: streams of every era say that they must not be buffered.
#[tokio::test]
async fn hdr_21_streams_are_not_to_be_buffered() {
    let (upstream, gateway) = house().await;
    let session = Session::open(&gateway, CALL, SESSIONS[0]).await;
    let params = json!({ "name": "stream", "_meta": { "progressToken": "p" } });
    let requests = [
        modern(CALL, 1, "tools/call", params.clone()),
        session.request(1, "tools/call", &params),
    ];
    for request in requests {
        let mut client = gateway.connect().await;
        client.send(&request.bytes()).await.unwrap();
        let (call, stream) = upstream.opened().await;
        stream.message(&progress(&call, 1)).await.unwrap();
        let head = client.head().await.unwrap();
        assert_eq!(head.field("content-type"), Some("text/event-stream"));
        assert_eq!(head.field("x-accel-buffering"), Some("no"));
        let cache = head.field("cache-control").unwrap();
        assert!(
            cache.contains("no-store") && cache.contains("no-transform"),
            "{cache}"
        );
    }
    let mut client = gateway.connect().await;
    let head = client.open(&session.get()).await.unwrap();
    assert_eq!(head.field("x-accel-buffering"), Some("no"));
}

/// HDR-23, STA-22, case 15: large headers are taken whole or not at all.
#[tokio::test]
async fn case_15_hdr_23_headers_have_a_budget_and_are_never_cut() {
    let (_upstream, gateway) = house().await;
    let big = |size: usize| echo().field("X-Big", "x".repeat(size));
    assert_eq!(gateway.ask(big(20_000)).await.status, 200);
    for request in [
        big(25_000),
        big(20_000)
            .field("X-B", "x".repeat(20_000))
            .field("X-C", "x".repeat(20_000))
            .field("X-D", "x".repeat(20_000)),
    ] {
        assert_refused("HDR-23", &gateway.ask(request).await, 431, -32600);
    }
    let enormous = gateway.ask(big(2_000_000)).await;
    assert_eq!(enormous.status, 431, "beyond what is read at all");
}

/// HDR-24, case 13, case 103, T22: headers of the client end here; the upstream's Host is its own.
#[tokio::test]
async fn case_13_case_103_hdr_24_client_headers_are_not_forwarded() {
    let (upstream, gateway) = house().await;
    let secret = "never-forwarded";
    let names = [
        "Cookie",
        "X-Forwarded-Authorization",
        "Proxy-Authorization",
        "X-Tenant-Id",
        "Mcp-Session-Id",
        "Last-Event-ID",
        "X-Custom",
        "Mcp-Init-Host",
        "X-Envoy-Original-Path",
        "User-Agent",
        "Forwarded",
        "X-Forwarded-For",
    ];
    let request = names.iter().fold(
        echo().field("Origin", "http://localhost:1"),
        |request, name| request.field(name, secret),
    );
    assert_eq!(gateway.ask(request).await.status, 200);
    for sent in upstream.peer.requests() {
        let shown = format!("{:?}", sent.head);
        assert!(
            !shown.contains(secret) && !shown.contains("localhost"),
            "{shown}"
        );
        assert_eq!(sent.field("origin"), None);
        assert_eq!(
            sent.field("host"),
            Some(upstream.peer.address().to_string().as_str())
        );
    }
}

/// HDR-02, HDR-04 as a client.
#[tokio::test]
async fn case_133_case_135_the_upstream_gets_the_exact_media_types() {
    let (upstream, gateway) = house().await;
    let request = echo()
        .without("Accept")
        .field("Accept", "*/*")
        .without("Content-Type")
        .field("Content-Type", "application/json; charset=UTF-8");
    assert_eq!(gateway.ask(request).await.status, 200);
    let requests = upstream.peer.requests();
    assert!(requests.len() > 1, "the probe and the call");
    for sent in requests {
        assert_eq!(
            sent.field("accept"),
            Some("application/json, text/event-stream")
        );
        assert_eq!(sent.field("content-type"), Some("application/json"));
    }
}

/// Both spellings of an address are served and guarded, and nothing on them redirects.
#[tokio::test]
async fn case_137_every_spelling_is_served_and_none_redirects() {
    let upstream = Upstream::modern().await;
    let list = |target: &str| modern(target, 1, "tools/list", json!({}));
    let open = Gateway::start(&tenant(
        "default",
        "    auth: none",
        &[("up", upstream.reach())],
        "",
    ));
    for target in [
        "/mcp",
        "/mcp/",
        "/mcp?x=1",
        "/mcp/?x=1",
        "/mcp/default",
        "/mcp/default/",
        "/mcp/default/up/",
    ] {
        assert_eq!(open.ask(list(target)).await.status, 200, "{target}");
    }
    for target in [
        "//mcp",
        "/mcp//",
        "/mcp/x/../default",
        "/%6dcp",
        "/mcp;x",
        "/MCP",
        "/mcp/default/up/x",
        "/",
        "/mcp/DEFAULT",
        "/mcp%2fdefault",
    ] {
        let answer = open.ask(list(target)).await;
        assert_refused(target, &answer, 404, -32600);
    }
    let guarded = Gateway::start(&tenant(
        "default",
        "    auth: { keys: true }\n    keys: {}",
        &[("up", upstream.reach())],
        "",
    ));
    for target in ["/mcp", "/mcp/", "/mcp/default", "/mcp?x=1"] {
        for method in ["POST", "GET", "DELETE"] {
            let request = RawRequest::new(method, target)
                .field("Host", HOST)
                .field("Accept", "*/*")
                .field("Content-Type", "application/json");
            assert_eq!(guarded.ask(request).await.status, 401, "{method} {target}");
        }
    }
}

/// HTR-10: 307 and 308 within the origin are followed with the body, nothing else is.
#[tokio::test]
async fn case_138_redirects_of_an_upstream_stay_within_its_origin() {
    let elsewhere = RecordingUpstream::start(|_| Answer::empty(200))
        .await
        .unwrap();
    let foreign = elsewhere.url();
    for (status, location, followed) in [
        (307, "/mcp/", true),
        (308, "/mcp/", true),
        (307, "/loop", false),
        (301, "/mcp/", false),
        (303, "/mcp/", false),
        (307, foreign.as_str(), false),
    ] {
        let to = location.to_owned();
        let upstream = RecordingUpstream::start(move |request| {
            if request.rpc_method() == "tools/call" && request.target != "/mcp/" {
                return Answer::empty(status).field("location", &to);
            }
            modern_basics(request, &json!({ "tools": {} })).unwrap_or_else(|| {
                Answer::result(request, &json!({ "resultType": "complete", "content": [], "tools": [], "ttlMs": 0, "cacheScope": "private" }))
            })
        })
        .await
        .unwrap();
        let gateway = Gateway::start(&open_tenant(&[("up", at(&upstream.url()))], ""));
        let answer = gateway
            .ask(modern_call(CALL, "x", &json!({ "a": 1 })))
            .await;
        assert_eq!(answer.status, 200, "{status} {location}");
        assert_eq!(answer.head.field("location"), None);
        if followed {
            assert!(
                answer.json()["result"].is_object(),
                "{status} {location}: {:?}",
                answer.body
            );
            let last = upstream.calls("tools/call").pop().unwrap();
            assert_eq!(last.json()["params"]["arguments"], json!({ "a": 1 }));
        } else {
            let code = answer.json()["error"]["code"].as_i64().unwrap();
            assert!(
                [-31001, -31003].contains(&code),
                "{status} {location}: {code}"
            );
            assert!(upstream.calls("tools/call").len() <= 4, "at most 3 hops");
        }
    }
    assert!(
        elsewhere.requests().is_empty(),
        "nothing is sent to another origin"
    );
}

/// No header of an upstream's answer reaches the client.
#[tokio::test]
async fn case_140_headers_of_the_upstreams_answer_end_here() {
    let upstream = RecordingUpstream::start(|request| {
        let basics = legacy_basics(request, &json!({ "tools": {} }));
        let answer = basics
            .unwrap_or_else(|| Answer::result(request, &json!({ "content": [], "tools": [] })));
        [
            "Set-Cookie",
            "Keep-Alive",
            "Trailer",
            "X-Upstream",
            "Content-Language",
            "Server",
            "Via",
        ]
        .iter()
        .fold(answer, |answer, name| answer.field(name, "of-the-upstream"))
    })
    .await
    .unwrap();
    let gateway = Gateway::start(&open_tenant(&[("up", at(&upstream.url()))], ""));
    let session = Session::open(&gateway, CALL, SESSIONS[0]).await;
    for request in [
        initialize(CALL, SESSIONS[0]),
        session.call(1, "x", &json!({})),
        modern_call(CALL, "x", &json!({})),
    ] {
        let answer = gateway.ask(request).await;
        assert_eq!(answer.status, 200);
        let shown = format!("{:?}", answer.head);
        assert!(!shown.contains("of-the-upstream"), "{shown}");
        let length: usize = answer
            .head
            .field("content-length")
            .unwrap()
            .parse()
            .unwrap();
        assert_eq!(length, answer.body.len());
        assert_eq!(answer.head.field("content-encoding"), None);
        let cache = answer.head.field("cache-control").unwrap();
        assert!(
            cache.contains("no-store") && cache.contains("no-transform"),
            "{cache}"
        );
        let session = answer.head.field("mcp-session-id");
        assert_ne!(session, Some("recorded-session"), "HDR-07 is another hop");
    }
}

/// FRM-02, STA-19, STA-24: where HTTP+SSE is switched off its addresses are refused in the documented
/// way, and nobody opens it by looking.
#[tokio::test]
async fn case_145_sta_24_http_sse_can_be_switched_off() {
    let upstream = Upstream::modern().await;
    let tenant = open_tenant(&[("up", upstream.reach())], "");
    let off = tenant.replace(
        "policy: allow_all",
        "policy: allow_all\n    http_sse: false",
    );
    let gateway = Gateway::start(&off);
    for target in ["/mcp/t", "/mcp/t/up"] {
        let open = gateway.ask(crate::talk::get(target)).await;
        assert_eq!(open.status, 405);
        assert_eq!(open.head.field("allow"), Some("POST, GET, DELETE"));
        let sse = format!("{target}?sse=abc");
        for body in [
            r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        ] {
            assert_refused("STA-24", &gateway.ask(post(&sse, body)).await, 404, -32600);
        }
        let bad = gateway.ask(post(&sse, "{")).await;
        assert_refused("STA-24 bad JSON", &bad, 400, -32700);
    }
}

/// Case 153: nothing that came with the stateless revision is asked of older clients.
#[tokio::test]
async fn case_153_older_clients_are_served_without_new_headers() {
    let (_upstream, gateway) = house().await;
    for revision in SESSIONS {
        let session = Session::open(&gateway, CALL, revision).await;
        let call = session
            .call(1, "echo", &json!({}))
            .without("MCP-Protocol-Version");
        let answer = gateway.ask(call).await;
        assert_eq!(answer.status, 200, "{revision}");
        let result = &answer.json()["result"];
        assert!(result["content"].is_array());
        assert_eq!(result.get("resultType"), None, "FRM-22: not for {revision}");
    }
}

/// HDR-08, case 159: sessions and event ids of a stateless client are ignored and none are minted.
#[tokio::test]
async fn case_159_hdr_08_nothing_of_sessions_is_for_stateless_clients() {
    let (_upstream, gateway) = house().await;
    let session = Session::open(&gateway, CALL, SESSIONS[0]).await;
    for id in ["x", session.id.as_str()] {
        let request = echo()
            .field("Mcp-Session-Id", id)
            .field("Last-Event-ID", "y");
        let answer = gateway.ask(request).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.head.field("mcp-session-id"), None);
    }
    let still = gateway.ask(session.call(1, "echo", &json!({}))).await;
    assert_eq!(still.status, 200, "the session is unaffected");
}

/// Case 49, T16: the framing of a body is judged once, and each message is framed anew.
#[tokio::test]
async fn t16_conflicting_lengths_are_refused_and_the_connection_closes() {
    let (upstream, gateway) = house().await;
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"echo",{META}}}}}"#
    );
    let heads = modern_text(CALL, "tools/call", Some("echo"), "");
    for (length, coding) in [("13", "chunked"), ("0", "chunked")] {
        let mut client = gateway.connect().await;
        let start = String::from_utf8(heads.bytes()).unwrap();
        let start = start.replace("Content-Length: 0\r\n\r\n", "");
        let chunk = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
        let text = format!(
            "{start}Content-Length: {length}\r\nTransfer-Encoding: {coding}\r\n\r\n{chunk}"
        );
        client.send(text.as_bytes()).await.unwrap();
        let head = client.head().await.unwrap();
        assert!(head.start.contains(" 400 "), "{}", head.start);
        client.rest().await.unwrap();
        client.closed().await.unwrap();
    }
    assert_eq!(upstream.calls(), 0);
    let start = String::from_utf8(heads.bytes()).unwrap();
    let start = start.replace("Content-Length: 0\r\n\r\n", "");
    let mut client = gateway.connect().await;
    let (one, two) = body.split_at(40);
    let chunks = format!(
        "{:x}\r\n{one}\r\n{:x};x=y\r\n{two}\r\n0\r\n\r\n",
        one.len(),
        two.len()
    );
    let text = format!("{start}Transfer-Encoding: chunked\r\n\r\n{chunks}");
    client.send(text.as_bytes()).await.unwrap();
    assert_eq!(client.response().await.unwrap().status, 200);
    let sent = upstream.peer.call("tools/call").await;
    assert_eq!(
        sent.field("transfer-encoding"),
        None,
        "each request is framed anew"
    );
}

/// Case 129 on the client's side: characters split over segments arrive whole.
#[tokio::test]
async fn case_129_a_body_in_single_bytes_is_read_whole() {
    let (_upstream, gateway) = house().await;
    let request = modern_call(CALL, "echo", &json!({ "x": "名😀é" }));
    let mut client = gateway.connect().await;
    for byte in request.bytes() {
        client.send(&[byte]).await.unwrap();
    }
    let answer = client.response().await.unwrap();
    assert_eq!(text(&answer.json()), json!({ "x": "名😀é" }).to_string());
}

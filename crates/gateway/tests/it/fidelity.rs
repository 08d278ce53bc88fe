//! What is not the gateway's own passes byte for byte, in both directions, within an era and across.
//!
//! Every test compares the bytes on the two wires: parsed JSON would hide what these cases are about.

use serde_json::{Value, json};
use vestibule_testkit::{Answer, RawRequest, Recorded, RecordingUpstream};

use crate::harness::Gateway;
use crate::peers::{
    MODERN, Session, Stream, between, legacy_upstream, meta, modern, modern_text, modern_upstream,
    raw_answer, streams, tenant,
};

/// Numbers no `f64` holds, spellings no serialiser would choose, strings that need care, an order
/// that is not alphabetical, a key that stands twice and blanks in odd places.
const HOSTILE: &str = r#"{"z":1,"id":1915883588174806058, "u" : 18446744073709551615,"neg":-9223372036854775809,"huge":123456789012345678901234567890,"f":1.10,"e":1E+2,"tiny":0.1e-700,"m0":-0,"a":2,"m":{"b":1,"a":2},"nul":"\u0000","esc":"\u00e9","raw":"é","slash":"\/","ls":" ","emoji":"😀","null":null,"arr":[ ],"twice":1,"twice":2	}"#;

const TOOLS: &str = r##"[{"x-future":{"a":1} , "name":"t","title":"T","icons":[{"src":"https://e.example/i.png","sizes":["48x48"]}],"annotations":{"readOnlyHint":true,"x":null},"execution":{"taskSupport":"optional"},"inputSchema":{"type":"object","$defs":{"n":{"type":"integer"}},"properties":{"d":{"default":1e2},"c":{"const":null},"r":{"$ref":"#/$defs/n"},"o":{"oneOf":[{"type":"string"},{"type":"null"}]}},"required":[]},"_meta":{"com.vendor/k":[1,  2],"ui":{"prefersBorder":true}}}]"##;

/// A result whose every part must arrive as it is.
fn hostile_result() -> String {
    format!(
        r#"{{"structuredContent": {HOSTILE},"content":[{{"text":"{{}}","type":"text","annotations":{{"priority":1.0}},"x":null}} ],"isError":false,"x-future":{{"b":1,"a":null}}"#
    )
}

async fn hostile_modern() -> RecordingUpstream {
    modern_upstream(json!({ "tools": {} }), |request| {
        let result = hostile_result();
        (request.rpc_method() == "tools/call").then(|| {
            raw_answer(
                request,
                &format!(r#"{{"id":$id, "result" : {result},"resultType":"complete"}} ,"jsonrpc":"2.0"}}"#),
            )
        })
    })
    .await
}

async fn hostile_legacy() -> RecordingUpstream {
    legacy_upstream(json!({ "tools": {} }), |request| {
        let result = hostile_result();
        (request.rpc_method() == "tools/call").then(|| {
            raw_answer(
                request,
                &format!(r#"{{"id":$id, "result" : {result}}} ,"jsonrpc":"2.0"}}"#),
            )
        })
    })
    .await
}

fn modern_body(id: &str) -> String {
    let meta = meta("{}");
    format!(
        r#"{{ "params":{{"arguments":{HOSTILE} ,"x-vendor":{{"b":1,"a":2}}, "name" : "t","_meta":{{{meta}}} }} , "method":"tools/call","id":{id},"jsonrpc":"2.0"}}"#
    )
}

fn legacy_body(id: &str) -> String {
    format!(
        r#"{{ "params":{{"arguments":{HOSTILE} ,"x-vendor":{{"b":1,"a":2}}, "name" : "t"}} , "method":"tools/call","id":{id},"jsonrpc":"2.0"}}"#
    )
}

/// The part of a request before anything that the hop owns.
fn untouched_request() -> String {
    format!(r#"{{ "params":{{"arguments":{HOSTILE} ,"x-vendor":{{"b":1,"a":2}}, "name" : "t""#)
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn assert_arrived(sent: &Recorded) {
    let body = text(&sent.body);
    assert!(body.starts_with(&untouched_request()), "{body}");
    let id = sent.rpc_id().to_string();
    let end = format!(r#" , "method":"tools/call","id":{id},"jsonrpc":"2.0"}}"#);
    assert!(body.ends_with(&end), "{body}");
}

fn assert_returned(body: &str, id: &str) {
    let start = format!(r#"{{"id":{id}, "result" : {}"#, hostile_result());
    assert!(body.starts_with(&start), "{body}");
    assert!(body.ends_with(r#"} ,"jsonrpc":"2.0"}"#), "{body}");
}

/// FRM-24, FRM-04, XT-541, cases 47, 49, 50: digits, escapes, lone surrogates, order, blanks and
/// repeated keys of arguments and results are the same bytes on both wires.
#[tokio::test]
async fn case_47_49_50_modern_to_modern_is_byte_for_byte() {
    let upstream = hostile_modern().await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    for id in [r#""\u00e9\n""#, "-9223372036854775809", "\"1\"", "1"] {
        let answer = gateway
            .ask(modern_text("/mcp/t/up", &modern_body(id)))
            .await;
        assert_eq!(answer.status, 200, "{:?}", answer.body);
        assert_returned(text(&answer.body), id);
    }
    let calls = upstream.calls("tools/call");
    assert_eq!(calls.len(), 4);
    calls.iter().for_each(assert_arrived);
}

/// FRM-24, XT-541, cases 47, 49, 50: the same between peers with sessions. Nothing is added to the
/// request, and nothing to the result.
#[tokio::test]
async fn case_47_49_50_legacy_to_legacy_is_byte_for_byte() {
    let upstream = hostile_legacy().await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    let session = Session::open(&gateway, "/mcp/t/up", json!({})).await;
    for id in [r#""\u00e9\n""#, "7", "\"7\""] {
        let message = session.message(&Value::Null).body(legacy_body(id));
        let answer = gateway.ask(message).await;
        assert_returned(text(&answer.body), id);
        let whole = format!(
            r#"{{"id":{id}, "result" : {}}} ,"jsonrpc":"2.0"}}"#,
            hostile_result()
        );
        assert_eq!(text(&answer.body), whole);
    }
    for sent in upstream.calls("tools/call") {
        assert_arrived(&sent);
        let whole = legacy_body(&sent.rpc_id().to_string());
        assert_eq!(text(&sent.body), whole);
    }
}

/// XT-541, cases 47, 49, 50: across eras too, where only `resultType` and metadata are the hop's.
#[tokio::test]
async fn xt_541_across_eras_is_byte_for_byte() {
    let (old, new) = (hostile_legacy().await, hostile_modern().await);
    let gateway = Gateway::start(&tenant(&[("old", &old.url()), ("new", &new.url())]));

    let answer = gateway
        .ask(modern_text("/mcp/t/old", &modern_body("5")))
        .await;
    assert_returned(text(&answer.body), "5");
    assert_eq!(answer.json()["result"]["resultType"], "complete");
    assert_arrived(&old.call("tools/call").await);

    let session = Session::open(&gateway, "/mcp/t/new", json!({})).await;
    let answer = gateway
        .ask(session.message(&Value::Null).body(legacy_body("6")))
        .await;
    assert_returned(text(&answer.body), "6");
    assert!(answer.json()["result"].get("resultType").is_none());
    assert_arrived(&new.call("tools/call").await);
}

/// Case 41: what is absent stays absent and what is null stays null, in every pair of eras.
#[tokio::test]
async fn case_41_absent_stays_absent_and_null_stays_null() {
    const RESULT: &str =
        r#"{"content":[{"type":"text","text":"x","annotations":null}],"com.x":null"#;
    let old = legacy_upstream(json!({ "tools": {} }), |request| {
        let body = format!(r#"{{"jsonrpc":"2.0","id":$id,"result":{RESULT}}}}}"#);
        (request.rpc_method() == "tools/call").then(|| raw_answer(request, &body))
    })
    .await;
    let new = modern_upstream(json!({ "tools": {} }), |request| {
        let body =
            format!(r#"{{"jsonrpc":"2.0","id":$id,"result":{RESULT},"resultType":"complete"}}}}"#);
        (request.rpc_method() == "tools/call").then(|| raw_answer(request, &body))
    })
    .await;
    let gateway = Gateway::start(&tenant(&[("old", &old.url()), ("new", &new.url())]));
    for target in ["/mcp/t/old", "/mcp/t/new"] {
        let session = Session::open(&gateway, target, json!({})).await;
        let answer = session
            .post(&crate::peers::request(
                2,
                "tools/call",
                &json!({ "name": "t" }),
            ))
            .await;
        let whole = format!(r#"{{"jsonrpc":"2.0","id":2,"result":{RESULT}}}}}"#);
        assert_eq!(text(&answer.body), whole, "{target}");

        let params = json!({ "name": "t" });
        let answer = gateway
            .ask(modern(target, &json!(3), "tools/call", &params))
            .await;
        let start = format!(r#"{{"jsonrpc":"2.0","id":3,"result":{RESULT},"#);
        assert!(text(&answer.body).starts_with(&start), "{:?}", answer.body);
        let result = &answer.json()["result"];
        let mut members: Vec<_> = result.as_object().unwrap().keys().cloned().collect();
        members.sort();
        assert_eq!(
            members,
            ["_meta", "com.x", "content", "resultType"],
            "{target}"
        );
    }
}

/// Case 42, MET-07, MET-08, XT-016: vendor keys of `_meta` pass both ways byte for byte, reserved
/// ones are the hop's.
#[tokio::test]
async fn case_42_vendor_metadata_passes_both_ways() {
    let upstream = modern_upstream(json!({ "tools": {} }), |request| {
        (request.rpc_method() == "tools/call").then(|| {
            raw_answer(
                request,
                r#"{"jsonrpc":"2.0","id":$id,"result":{"content":[],"resultType":"complete","_meta":{"com.vendor/x": 1.0,"io.modelcontextprotocol/serverInfo":{"name":"secret-name","version":"0"},"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01","com.vendor/y":[1, 2]}}}"#,
            )
        })
    })
    .await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"t","_meta":{{"com.vendor/a": 1e0,{},"io.modelcontextprotocol/clientInfo":{{"name":"secret-client","version":"9"}},"dev.mcp/x":true,"progressToken":7,"com.vendor/b":{{"q":"\/"}}}}}}}}"#,
        meta("{}")
    );
    let answer = gateway.ask(modern_text("/mcp/t/up", &body)).await;
    let seen = text(&answer.body).to_owned();
    assert!(
        seen.contains(r#""com.vendor/x": 1.0"#) && seen.contains(r#""com.vendor/y":[1, 2]"#),
        "{seen}"
    );
    assert!(
        seen.contains(r#""traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736"#),
        "{seen}"
    );
    assert!(!seen.contains("secret-name"), "{seen}");
    let info = &answer.json()["result"]["_meta"]["io.modelcontextprotocol/serverInfo"];
    assert_eq!(info["name"], "vestibule");

    let sent = upstream.call("tools/call").await;
    let sent_text = text(&sent.body);
    assert!(sent_text.contains(r#""com.vendor/a": 1e0"#), "{sent_text}");
    assert!(
        sent_text.contains(r#""com.vendor/b":{"q":"\/"}"#),
        "{sent_text}"
    );
    assert!(
        !sent_text.contains("secret-client") && !sent_text.contains("dev.mcp/x"),
        "{sent_text}"
    );
    let meta = sent.json()["params"]["_meta"].clone();
    assert_eq!(
        meta["io.modelcontextprotocol/clientInfo"]["name"],
        "vestibule"
    );
    assert_ne!(meta["progressToken"], 7);
}

/// Cases 44, 45, TOL-12, TOL-14: on a transparent server a listed tool is the upstream's very bytes;
/// on a federated one all but its name is.
#[tokio::test]
async fn case_44_45_listed_tools_keep_every_byte_but_the_name() {
    fn listed(request: &Recorded) -> Option<Answer> {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":$id,"result":{{"tools":{TOOLS},"resultType":"complete","ttlMs":1000,"cacheScope":"public"}}}}"#
        );
        (request.rpc_method() == "tools/list").then(|| raw_answer(request, &body))
    }
    let new = modern_upstream(json!({ "tools": {} }), listed).await;
    let old = legacy_upstream(json!({ "tools": {} }), listed).await;
    let gateway = Gateway::start(&tenant(&[("new", &new.url()), ("old", &old.url())]));

    let answer = gateway
        .ask(modern("/mcp/t/new", &json!(1), "tools/list", &json!({})))
        .await;
    assert!(
        text(&answer.body).contains(&format!(r#""tools":{TOOLS}"#)),
        "{:?}",
        answer.body
    );

    let session = Session::open(&gateway, "/mcp/t/old", json!({})).await;
    let answer = session
        .post(&crate::peers::request(2, "tools/list", &json!({})))
        .await;
    assert!(
        text(&answer.body).contains(&format!(r#""tools":{TOOLS}"#)),
        "{:?}",
        answer.body
    );

    let answer = gateway
        .ask(modern("/mcp/t", &json!(1), "tools/list", &json!({})))
        .await;
    let tools = between(&answer.body, r#""tools":["#, r#"],"#);
    let all = text(&answer.body);
    for upstream in ["new", "old"] {
        let tool = TOOLS
            .trim_start_matches('[')
            .trim_end_matches(']')
            .replace(r#""name":"t""#, &format!(r#""name":"{upstream}__t""#));
        assert!(all.contains(&tool), "{tools}");
    }
}

/// Case 49: characters that are split over two segments, in a request and in a streamed result.
#[tokio::test]
async fn case_49_characters_split_over_segments_stay_whole() {
    let (opens, streams) = streams();
    let upstream = modern_upstream(json!({ "tools": {} }), move |request| {
        (request.rpc_method() == "tools/call").then(|| opens.answer(request))
    })
    .await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    let params = json!({ "name": "t", "arguments": { "s": "漢😀字" } });
    let bytes = modern("/mcp/t/up", &json!(1), "tools/call", &params).bytes();
    let mut client = gateway.connect().await;
    for byte in bytes.chunks(1) {
        client.send(byte).await.unwrap();
    }
    let (request, stream) = streams.next().await;
    assert_eq!(request.json()["params"]["arguments"]["s"], "漢😀字");
    let message = format!(
        "event: message\r\ndata: {{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{{\"resultType\":\"complete\",\"content\":[{{\"type\":\"text\",\"text\":\"漢😀字\"}}]}}}}\r\n\r\n",
        request.rpc_id()
    );
    for byte in message.into_bytes().chunks(1) {
        stream.bytes(byte.to_vec()).await.unwrap();
    }
    drop(stream);
    let answer = Stream::new(client).response().await;
    assert_eq!(answer.answer()["result"]["content"][0]["text"], "漢😀字");
}

/// Case 49: a lone surrogate, in a value and in a key, passes raw in both directions and eras.
#[tokio::test]
async fn case_49_lone_surrogates_pass_raw() {
    const ODD: &str = r#"{"a":"\ud800","\udfff":[1.0]}"#;
    fn script(request: &Recorded, end: &str) -> Option<Answer> {
        let body = text(&request.body);
        let id = body
            .contains("tools/call")
            .then(|| between(&request.body, r#""id":"#, ","))?;
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[],"structuredContent":{ODD}{end}}}}}"#
        );
        Some(raw_answer(request, &body))
    }
    let new = modern_upstream(json!({ "tools": {} }), |request| {
        script(request, r#","resultType":"complete""#)
    })
    .await;
    let old = legacy_upstream(json!({ "tools": {} }), |request| script(request, "")).await;
    let gateway = Gateway::start(&tenant(&[("new", &new.url()), ("old", &old.url())]));
    for target in ["/mcp/t/new", "/mcp/t/old"] {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{{"name":"t","arguments":{ODD},"_meta":{{{}}}}}}}"#,
            meta("{}")
        );
        let request = RawRequest::mcp("127.0.0.1", target, &Value::Null)
            .field("MCP-Protocol-Version", MODERN)
            .field("Mcp-Method", "tools/call")
            .field("Mcp-Name", "t")
            .body(body);
        let answer = gateway.ask(request).await;
        let expected = format!(r#""structuredContent":{ODD}"#);
        assert!(
            text(&answer.body).contains(&expected),
            "{target} {:?}",
            answer.body
        );
        let session = Session::open(&gateway, target, json!({})).await;
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{{"name":"t","arguments":{ODD}}}}}"#
        );
        let answer = gateway.ask(session.message(&Value::Null).body(body)).await;
        assert!(
            text(&answer.body).contains(&expected),
            "{target} {:?}",
            answer.body
        );
    }
    for upstream in [&new, &old] {
        let sent: Vec<_> = upstream
            .requests()
            .into_iter()
            .filter(|request| text(&request.body).contains("tools/call"))
            .collect();
        assert_eq!(sent.len(), 2);
        for request in sent {
            let expected = format!(r#""arguments":{ODD}"#);
            assert!(
                text(&request.body).contains(&expected),
                "{:?}",
                request.body
            );
        }
    }
}

/// FRM-25, HDR-10: ids are the hop's: the upstream never sees the client's, whatever its type.
#[tokio::test]
async fn frm_25_upstream_ids_are_minted_and_never_repeat() {
    let upstream = hostile_modern().await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    for _ in 0..3 {
        let body = modern_body("\"same\"");
        gateway.ask(modern_text("/mcp/t/up", &body)).await;
    }
    let mut ids: Vec<_> = upstream
        .calls("tools/call")
        .iter()
        .map(|call| call.rpc_id().to_string())
        .collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 3, "{ids:?}");
    assert!(!ids.contains(&"\"same\"".to_owned()));
    assert_eq!(
        upstream.calls("tools/call")[0].field("mcp-protocol-version"),
        Some(MODERN)
    );
}

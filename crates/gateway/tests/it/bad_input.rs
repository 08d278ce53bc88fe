//! Messages that are none, or may not come: the exact status and code, at once, and the gateway
//! goes on. Rows are named by the requirement they show.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use vestibule_testkit::{RawRequest, RawResponse};

use crate::harness::Gateway;
use crate::talk::{
    META, MODERN, SESSIONS, Session, Upstream, assert_refused, get, initialize, modern,
    modern_call, modern_text, open_tenant, post, soon, text,
};

/// No refusal waits for anything.
const AT_ONCE: Duration = Duration::from_secs(2);

/// What must come back.
enum Want {
    /// An error; the id of the request is echoed, or there is none.
    Error(u16, i64, Option<Value>),
    /// A status without a body.
    Empty(u16),
    /// A response that is no error.
    Result,
}

struct Row {
    cites: String,
    request: RawRequest,
    want: Want,
}

/// A gateway with one upstream, and a session of the newest and the oldest revision that have one.
struct House {
    upstream: Upstream,
    gateway: Gateway,
    newest: Session,
    oldest: Session,
}

impl House {
    async fn open() -> Self {
        let upstream = Upstream::modern().await;
        let gateway = Gateway::start(&open_tenant(&[("up", upstream.reach())], ""));
        let newest = Session::open(&gateway, "/mcp/t/up", SESSIONS[0]).await;
        let oldest = Session::open(&gateway, "/mcp/t/up", SESSIONS[2]).await;
        Self {
            upstream,
            gateway,
            newest,
            oldest,
        }
    }

    /// The same message by a stateless client and by one with a session. `$meta` stands where a
    /// stateless client writes its metadata.
    fn both(&self, cites: &str, body: &str, want: impl Fn(bool) -> Want) -> [Row; 2] {
        [
            Row {
                cites: format!("{cites} (stateless): {body:.120}"),
                request: stateless(body.replace("$meta", META)),
                want: want(true),
            },
            Row {
                cites: format!("{cites} (session): {body:.120}"),
                request: self
                    .newest
                    .text(body.replace(",$meta", "").replace("$meta", "")),
                want: want(false),
            },
        ]
    }

    /// Sends every row; afterwards nothing has reached the upstream that is not allowed to, and the
    /// gateway still serves.
    async fn refuses(&self, rows: Vec<Row>) {
        for row in rows {
            let answer = soon(&row.cites, AT_ONCE, self.gateway.ask(row.request)).await;
            check(&row.cites, &answer, &row.want);
        }
        let alive = self
            .gateway
            .ask(modern_call(
                "/mcp/t/up",
                "echo",
                &json!({ "still": "here" }),
            ))
            .await;
        assert_eq!(text(&alive.json()), r#"{"still":"here"}"#);
        assert_eq!(
            self.upstream.calls(),
            1,
            "only the good call reached the upstream: {:#?}",
            self.upstream.peer.calls("tools/call")
        );
    }
}

fn check(cites: &str, answer: &RawResponse, want: &Want) {
    assert!(
        answer.head.field("x-request-id").is_some(),
        "{cites}: every answer has a request id"
    );
    match want {
        Want::Error(status, code, id) => {
            let json = assert_refused(cites, answer, *status, *code);
            assert_eq!(json.get("id"), id.as_ref(), "{cites}: {json}");
        }
        Want::Empty(status) => {
            assert_eq!(answer.status, *status, "{cites}: {:?}", answer.body);
            assert!(answer.body.is_empty(), "{cites}: {:?}", answer.body);
            assert_eq!(answer.head.field("content-type"), None, "{cites}");
        }
        Want::Result => {
            assert_eq!(answer.status, 200, "{cites}: {:?}", answer.body);
            assert!(
                answer.json().get("error").is_none(),
                "{cites}: {:?}",
                answer.body
            );
        }
    }
}

fn stateless(body: impl Into<Bytes>) -> RawRequest {
    modern_text("/mcp/t/up", "tools/call", Some("echo"), body)
}

fn error(status: u16, code: i64) -> impl Fn(bool) -> Want {
    move |_| Want::Error(status, code, None)
}

fn error_about(status: u16, code: i64, id: Value) -> impl Fn(bool) -> Want {
    move |_| Want::Error(status, code, Some(id.clone()))
}

/// FRM-01, FRM-03, FRM-21: the envelope.
#[tokio::test]
async fn frm_01_frm_03_envelopes_that_are_none_are_refused() {
    let house = House::open().await;
    let mut rows = Vec::new();
    for version in [
        r#""jsonrpc":"1.0","#,
        r#""jsonrpc":2.0,"#,
        r#""jsonrpc":null,"#,
        "",
    ] {
        let body = format!(
            r#"{{{version}"id":7,"method":"tools/call","params":{{"name":"echo",$meta}}}}"#
        );
        rows.extend(house.both("FRM-01", &body, error_about(400, -32600, json!(7))));
    }
    for id in [
        "null", "true", "{}", "[]", "1.5", "1e-1", "-0.5", "1.0", "1e2",
    ] {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"echo",$meta}}}}"#
        );
        rows.extend(house.both("FRM-03", &body, error(400, -32600)));
    }
    for body in [
        "{}",
        "[1]",
        "1",
        "null",
        r#""text""#,
        r#"{"jsonrpc":"2.0"}"#,
    ] {
        rows.extend(house.both("FRM-21", body, |_| Want::Error(400, -32600, None)));
    }
    let numeric = r#"{"jsonrpc":"2.0","id":7,"method":1,"params":{$meta}}"#;
    rows.extend(house.both(
        "FRM-21 the id was read",
        numeric,
        error_about(400, -32600, json!(7)),
    ));
    house.refuses(rows).await;
}

/// FRM-02, cases 58 and 61, T11, T12: text that is no JSON.
#[tokio::test]
async fn frm_02_case_61_text_that_is_no_json_is_a_parse_error() {
    let house = House::open().await;
    let call = |inside: &[u8]| -> Vec<u8> {
        [
            br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"x":"#
                .as_slice(),
            inside,
            b"}}}",
        ]
        .concat()
    };
    let good = call(b"1");
    let mut bodies: Vec<(&str, Vec<u8>)> = vec![
        ("FRM-02 a lone continuation byte", call(b"\"\x80\"")),
        ("FRM-02 overlong", call(b"\"\xc0\xaf\"")),
        ("FRM-02 a surrogate in UTF-8", call(b"\"\xed\xa0\x80\"")),
        ("FRM-02 a BOM", [b"\xef\xbb\xbf".as_slice(), &good].concat()),
        (
            "FRM-02 UTF-16",
            good.iter().flat_map(|byte| [*byte, 0]).collect(),
        ),
        ("T12 trailing garbage", [&good, b"x".as_slice()].concat()),
        ("T12 two messages", [good.as_slice(), &good].concat()),
        ("T12 nothing", Vec::new()),
        ("T12 blanks", b"  \r\n".to_vec()),
        ("T12 cut off", good[..good.len() - 2].to_vec()),
    ];
    for inside in [
        "NaN",
        "Infinity",
        "-Infinity",
        "1,",
        "01",
        "+1",
        ".5",
        "1.",
        "0x1",
        "'a'",
        "tru",
        "/* c */ 1",
        "// c\n1",
        "\"\t\"",
        "\"\\x\"",
        "[1,]",
        "{\"a\":1,}",
        "{a:1}",
        "\"\\u12\"",
        "1e",
        "--1",
        "\u{a0}1",
    ] {
        bodies.push(("case 61", call(inside.as_bytes())));
    }
    let mut rows = Vec::new();
    for (cites, body) in bodies {
        let shown = String::from_utf8_lossy(&body).into_owned();
        for request in [stateless(body.clone()), house.newest.text(body.clone())] {
            rows.push(Row {
                cites: format!("{cites}: {shown}"),
                request,
                want: Want::Error(400, -32700, None),
            });
        }
    }
    house.refuses(rows).await;
}

/// FRM-09, FRM-11 … FRM-16, FRM-18, FRM-19, case 57: kinds of messages.
#[tokio::test]
async fn frm_11_frm_19_case_57_kinds_of_messages_that_may_not_come_here() {
    let house = House::open().await;
    let mut rows = Vec::new();
    let by_era = |code: i64, id: Value| {
        move |modern: bool| Want::Error(if modern { 404 } else { 200 }, code, Some(id.clone()))
    };
    for (name, text) in [
        (
            "FRM-11",
            r#"{"jsonrpc":"2.0","id":7,"method":"notifications/initialized","params":{$meta}}"#,
        ),
        (
            "FRM-14",
            r#"{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{$meta}}"#,
        ),
        (
            "FRM-16",
            r#"{"jsonrpc":"2.0","id":7,"method":"resources/write","params":{$meta}}"#,
        ),
        (
            "FRM-16",
            r#"{"jsonrpc":"2.0","id":7,"method":"TOOLS/LIST","params":{$meta}}"#,
        ),
    ] {
        let [mut stateless, session] = house.both(name, text, by_era(-32601, json!(7)));
        let method = serde_json::from_str::<Value>(&text.replace("$meta", META)).unwrap()["method"]
            .as_str()
            .unwrap()
            .to_owned();
        stateless.request = modern_text("/mcp/t/up", &method, None, text.replace("$meta", META));
        rows.extend([stateless, session]);
    }
    let no_id = r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"echo",$meta}}"#;
    rows.extend(house.both("FRM-12", no_id, error(400, -32600)));
    for ignored in [
        r#"{"jsonrpc":"2.0","method":"notifications/foo"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"memo://a,b"}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    ] {
        for request in [
            post("/mcp/t/up", ignored).field("MCP-Protocol-Version", MODERN),
            house.newest.text(ignored),
        ] {
            rows.push(Row {
                cites: format!("FRM-13, FRM-14, STA-15, case 57: {ignored}"),
                request,
                want: Want::Empty(202),
            });
        }
    }
    for response in [
        r#"{"jsonrpc":"2.0","id":7,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":"unknown","error":{"code":-1,"message":"no"}}"#,
    ] {
        rows.push(Row {
            cites: format!("FRM-19: {response}"),
            request: post("/mcp/t/up", response).field("MCP-Protocol-Version", MODERN),
            want: Want::Error(400, -32600, None),
        });
        rows.push(Row {
            cites: format!("STA-16: {response}"),
            request: house.newest.text(response),
            want: Want::Empty(202),
        });
    }
    for both in [
        r#"{"jsonrpc":"2.0","id":7,"result":{},"error":{"code":1,"message":"x"}}"#,
        r#"{"jsonrpc":"2.0","id":7}"#,
    ] {
        rows.extend(house.both("FRM-09, T08", both, error_about(400, -32600, json!(7))));
    }
    let batch =
        r#"[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo",$meta}}]"#;
    for batch in [batch, "[]", &format!("  \r\n{batch}")] {
        rows.extend(house.both("FRM-18, case 58", batch, error(400, -32600)));
    }
    house.refuses(rows).await;
}

/// FRM-15: params that are no object; null counts as absent.
#[tokio::test]
async fn frm_15_params_are_an_object_or_absent() {
    let house = House::open().await;
    let mut rows = Vec::new();
    for params in ["[]", "[1]", "1", "\"x\"", "true"] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{params}}}"#);
        rows.extend(house.both("FRM-15", &body, error_about(400, -32602, json!(7))));
    }
    for absent in ["", r#","params":null"#, r#","params":{}"#] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call"{absent}}}"#);
        rows.extend(house.both("FRM-15, STA-09", &body, |modern| {
            Want::Error(if modern { 400 } else { 200 }, -32602, Some(json!(7)))
        }));
    }
    for good in [r#","params":null"#, "", r#","params":{"_meta":null}"#] {
        rows.push(Row {
            cites: format!("FRM-15 null counts as absent: {good}"),
            request: house.newest.text(format!(
                r#"{{"jsonrpc":"2.0","id":7,"method":"tools/list"{good}}}"#
            )),
            want: Want::Result,
        });
    }
    house.refuses(rows).await;
}

/// FRM-23, T01 … T10, cases 52 and 98: sizes, depths, duplicate and look-alike members.
#[tokio::test]
async fn frm_23_case_98_hostile_shapes_are_refused() {
    let house = House::open().await;
    let mut rows = Vec::new();
    let deep = |depth: usize| {
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        format!(
            r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"echo","arguments":{{"x":{open}{close}}},$meta}}}}"#
        )
    };
    rows.extend(house.both("FRM-23, T09 depth", &deep(200), |_| {
        Want::Error(400, -32600, Some(json!(7)))
    }));
    rows.extend(house.both("T09", &"[".repeat(1 << 20), error(400, -32600)));
    let members: String = (0..260).map(|n| format!(r#""m{n}":0,"#)).collect();
    let many = format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{{members}"name":"echo",$meta}}}}"#
    );
    rows.extend(house.both("FRM-23 members", &many, error_about(400, -32600, json!(7))));
    let digits = format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"echo","arguments":{{"n":{}}},$meta}}}}"#,
        "9".repeat(1025)
    );
    rows.extend(house.both(
        "FRM-23, T10 number",
        &digits,
        error_about(400, -32600, json!(7)),
    ));
    let method = format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"{}","params":{{$meta}}}}"#,
        "m".repeat(257)
    );
    rows.extend(house.both("FRM-23 method", &method, error_about(400, -32600, json!(7))));
    let id = format!(
        r#"{{"jsonrpc":"2.0","id":"{}","method":"tools/call","params":{{"name":"echo",$meta}}}}"#,
        "i".repeat(10_000)
    );
    rows.extend(house.both("FRM-23, case 52 a long id", &id, error(400, -32600)));
    for (cites, body) in [
        (
            "T01",
            r#"{"jsonrpc":"2.0","id":7,"method":"ping","method":"tools/call","params":{"name":"echo",$meta}}"#,
        ),
        (
            "T02",
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","name":"hang",$meta}}"#,
        ),
        (
            "T02 escaped",
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","n\u0061me":"hang",$meta}}"#,
        ),
        (
            "T02 _meta",
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","_meta":{},$meta}}"#,
        ),
        (
            "T03, case 98",
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","METHOD":"ping","params":{"name":"echo",$meta}}"#,
        ),
        (
            "T03, case 98",
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","Name":"hang",$meta}}"#,
        ),
        (
            "T03, case 98",
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","Params":{"name":"hang"},"params":{"name":"echo",$meta}}"#,
        ),
        (
            "T03",
            "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/call\",\"param\u{17f}\":{},\"params\":{\"name\":\"echo\",$meta}}",
        ),
        (
            "T04, case 98",
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","name\u0000":"hang",$meta}}"#,
        ),
        (
            "T04",
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","method\u0000":"ping","params":{"name":"echo",$meta}}"#,
        ),
    ] {
        if cites == "T02 _meta" {
            // two `_meta` only where the client writes one itself
            let body = body.replace("$meta", META);
            rows.push(Row {
                cites: cites.to_owned(),
                request: stateless(body.clone()),
                want: Want::Error(400, -32600, Some(json!(7))),
            });
            continue;
        }
        rows.extend(house.both(cites, body, error_about(400, -32600, json!(7))));
    }
    let array = r#"["2.0",1,"tools/call",{"name":"echo"}]"#;
    rows.extend(house.both("T06", array, error(400, -32600)));
    house.refuses(rows).await;
}

/// FRM-24, T02: inside arguments duplicate, folded and NUL keys are not ours.
#[tokio::test]
async fn frm_24_arguments_pass_byte_for_byte() {
    let house = House::open().await;
    let arguments = r#"{"z":1,"a":2,"A":3,"a":4,"k\u0000":5,"n":1915883588174806058,"huge":123456789012345678901234567890,"e":1e400,"s":"\ud800 \/ \u00e9 é 😀","deep":[[[]]]}"#;
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"echo","arguments":{arguments},{META}}}}}"#
    );
    house.gateway.ask(stateless(body)).await;
    // no test peer of ours can parse this
    let sent = house.upstream.peer.requests().pop().unwrap();
    let sent = String::from_utf8_lossy(&sent.body).into_owned();
    assert!(sent.contains(arguments), "{sent}");
}

/// FRM-04, case 52: ids come back as the very bytes they were.
#[tokio::test]
async fn frm_04_case_52_ids_are_echoed_byte_for_byte() {
    let house = House::open().await;
    for id in [
        "1",
        r#""1""#,
        "0",
        "-1",
        r#""init-1""#,
        r#""""#,
        r#""é\n""#,
        r#""\u00e9\/""#,
        "9007199254740993",
        "123456789012345678901234567890",
    ] {
        let body = |meta: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"echo"{meta}}}}}"#
            )
        };
        for request in [
            stateless(body(&format!(",{META}"))),
            house.newest.text(body("")),
        ] {
            let answer = house.gateway.ask(request).await;
            let shown = String::from_utf8_lossy(&answer.body).into_owned();
            assert_eq!(answer.status, 200, "{id}: {shown}");
            assert!(shown.contains(&format!(r#""id":{id}"#)), "{id}: {shown}");
        }
    }
}

/// FRM-06, FRM-07, case 53: in a session an id in flight is refused and `1` is not `"1"`; between
/// stateless requests ids never collide.
#[tokio::test]
async fn frm_06_frm_07_case_53_an_id_in_flight_is_taken_and_types_differ() {
    let house = House::open().await;
    let mut first = house.gateway.connect().await;
    first
        .send(&house.newest.call(1, "stream", &json!({})).bytes())
        .await
        .unwrap();
    let (request, stream) = house.upstream.opened().await;
    let again = house.newest.call(1, "echo", &json!({}));
    let again = house.gateway.ask(again).await;
    let json = assert_refused("FRM-06", &again, 400, -32600);
    assert_eq!(json["id"], 1);
    let text_id = house.newest.call("1", "echo", &json!({ "of": "text" }));
    let text_id = house.gateway.ask(text_id).await.json();
    assert_eq!(text_id["id"], "1");
    assert_eq!(text(&text_id), r#"{"of":"text"}"#);
    let other = house
        .gateway
        .ask(modern_call("/mcp/t/up", "echo", &json!({})));
    assert_eq!(other.await.json()["id"], 1);
    stream
        .message(&crate::talk::response(&request, "slow"))
        .await
        .unwrap();
    drop(stream);
    let slow = first.response().await.unwrap().answer();
    assert_eq!((&slow["id"], text(&slow)), (&json!(1), "slow"));
    // FRM-06: reuse after completion is accepted
    let reused = house.gateway.ask(house.newest.call(1, "echo", &json!({})));
    assert_eq!(reused.await.status, 200);
}

/// BAT-01 … BAT-07, FRM-17, case 58: batches of 2025-03-26 sessions.
#[tokio::test]
async fn bat_01_bat_07_case_58_batches_are_taken_apart_and_joined() {
    let house = House::open().await;
    let element = |id: &str, tool: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}"}}}}"#
        )
    };
    let note = r#"{"jsonrpc":"2.0","method":"notifications/foo"}"#;
    let answer = r#"{"jsonrpc":"2.0","id":5,"result":{}}"#;
    let initialize = r#"{"jsonrpc":"2.0","id":9,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}"#;
    let many = vec![element("1", "echo"); 65].join(",");
    let mut rows = Vec::new();
    for (cites, inside) in [
        ("BAT-01 mixed", format!("{},{answer}", element("1", "echo"))),
        ("BAT-02", format!("{},{initialize}", element("1", "echo"))),
        ("BAT-03", String::new()),
        ("BAT-04", format!("{},1", element("1", "echo"))),
        ("BAT-04 nested", format!("[{}]", element("1", "echo"))),
        ("BAT-07 size", many),
    ] {
        rows.push(Row {
            cites: cites.to_owned(),
            request: house.oldest.text(format!("[{inside}]")),
            want: Want::Error(400, -32600, None),
        });
    }
    for (cites, inside) in [
        ("BAT-05", format!("{note},{note}")),
        ("BAT-05 responses", format!("{answer},{answer}")),
    ] {
        rows.push(Row {
            cites: cites.to_owned(),
            request: house.oldest.text(format!("[{inside}]")),
            want: Want::Empty(202),
        });
    }
    house.refuses(rows).await;
    let batch = format!(
        "[{},{note},{},{},{}]",
        element("1", "echo"),
        element(r#""1""#, "echo"),
        element("1", "echo"),
        element("3", "no-such-tool"),
    );
    let joined = house.gateway.ask(house.oldest.text(batch)).await;
    assert_eq!(joined.status, 200);
    let joined = joined.json();
    let ids: Vec<&Value> = joined
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["id"])
        .collect();
    assert_eq!(ids, [&json!(1), &json!("1"), &json!(1), &json!(3)]);
    let codes: Vec<&Value> = joined
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["error"]["code"])
        .collect();
    let none = &Value::Null;
    assert_eq!(codes, [none, none, &json!(-32600), &json!(-32602)]);
}

/// XT-001 … XT-008, HDR-09, VER-06, VER-07, VER-08, VER-09, STA-05, STA-06, STA-07, STA-08, STA-09, STA-10, STA-12:
/// which era, and the ladder of the stateless one.
#[tokio::test]
async fn xt_001_xt_008_the_ladder_of_the_classifier() {
    let house = House::open().await;
    let list = |meta: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{{{meta}}}}}"#)
    };
    let with_version = |version: &str| {
        format!(
            r#""_meta":{{"io.modelcontextprotocol/protocolVersion":{version},"io.modelcontextprotocol/clientCapabilities":{{}}}}"#
        )
    };
    let plain = |body: String| post("/mcp/t/up", body);
    let versioned =
        |version: &str, body: String| plain(body).field("MCP-Protocol-Version", version);
    let about = |status, code| Want::Error(status, code, Some(json!(7)));
    let good = |meta: &str| versioned(MODERN, list(meta)).field("Mcp-Method", "tools/list");
    let no_capabilities = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;
    let wrong_capabilities = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":[]}"#;
    let rows = vec![
        (
            "step 0: listed versions",
            good(META)
                .without("MCP-Protocol-Version")
                .field("MCP-Protocol-Version", "2026-07-28, 2025-11-25"),
            about(400, -32020),
        ),
        (
            "T21: two versions",
            good(META).field("MCP-Protocol-Version", MODERN),
            Want::Error(400, -32020, None),
        ),
        (
            "T21: two legacy versions",
            house
                .newest
                .text(list(""))
                .field("MCP-Protocol-Version", SESSIONS[0]),
            Want::Error(400, -32600, None),
        ),
        (
            "step 0a, STA-24: sse",
            post("/mcp/t/up?sse=abc", list("")),
            Want::Error(404, -32600, Some(json!(7))),
        ),
        (
            "step 1: a batch",
            versioned(MODERN, "[]".into()),
            Want::Error(400, -32600, None),
        ),
        (
            "step 3: no header, VER-08",
            plain(list(META)),
            about(400, -32020),
        ),
        (
            "step 3: no _meta, MET-01, STA-09",
            versioned(MODERN, list("")).field("Mcp-Method", "tools/list"),
            about(400, -32602),
        ),
        (
            "step 3: _meta version of another type",
            good(&with_version("1")),
            about(400, -32602),
        ),
        (
            "step 3: they differ, VER-08",
            versioned("2025-11-25", list(META)),
            about(400, -32020),
        ),
        (
            "step 3: they differ, VER-08",
            versioned("2099-01-01", list(META)),
            about(400, -32020),
        ),
        (
            "step 3: unknown, VER-09, STA-10",
            versioned("2099-01-01", list(&with_version(r#""2099-01-01""#))),
            about(400, -32022),
        ),
        (
            "step 3: a legacy one in _meta",
            versioned("2025-11-25", list(&with_version(r#""2025-11-25""#))),
            about(400, -32022),
        ),
        (
            "HDR-10: no Mcp-Method",
            versioned(MODERN, list(META)),
            about(400, -32020),
        ),
        (
            "STA-09: no capabilities",
            good(no_capabilities),
            about(400, -32602),
        ),
        (
            "STA-09: capabilities of another type",
            good(wrong_capabilities),
            about(400, -32602),
        ),
        (
            "step 4: VER-06, STA-07",
            house
                .newest
                .text(list(""))
                .without("MCP-Protocol-Version")
                .field("MCP-Protocol-Version", "2099-01-01"),
            about(400, -32022),
        ),
        ("step 5: STA-05", plain(list("")), about(400, -32600)),
        (
            "step 5: STA-05, case 153",
            versioned(SESSIONS[0], list("")),
            about(400, -32600),
        ),
        (
            "VER-07: another known version",
            house
                .newest
                .text(list(""))
                .without("MCP-Protocol-Version")
                .field("MCP-Protocol-Version", SESSIONS[2]),
            Want::Result,
        ),
        (
            "VER-05, case 153: no version",
            house.newest.text(list("")).without("MCP-Protocol-Version"),
            Want::Result,
        ),
        (
            "HDR-08, case 159: the session of a stateless client",
            good(META)
                .field("Mcp-Session-Id", "x")
                .field("Last-Event-ID", "y"),
            Want::Result,
        ),
        (
            "XT-007: initialize of a stateless client",
            modern("/mcp/t/up", 7, "initialize", json!({})),
            about(404, -32601),
        ),
        (
            "STA-06: an unknown session",
            house
                .newest
                .text(list(""))
                .without("Mcp-Session-Id")
                .field("Mcp-Session-Id", "dead"),
            about(404, -32600),
        ),
    ];
    let rows = rows.into_iter().map(|(cites, request, want)| Row {
        cites: cites.to_owned(),
        request,
        want,
    });
    house.refuses(rows.collect()).await;
}

/// ERR-06, VER-09: what the errors of the ladder carry.
#[tokio::test]
async fn err_06_ver_09_an_unsupported_version_names_what_is_served() {
    let house = House::open().await;
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{{{}}}}}"#,
        META.replace(MODERN, "2099-01-01")
    );
    let request = post("/mcp/t/up", body).field("MCP-Protocol-Version", "2099-01-01");
    let error = house.gateway.ask(request).await.json()["error"].clone();
    assert_eq!(error["code"], -32022);
    assert_eq!(
        error["data"]["supported"],
        json!([MODERN, SESSIONS[0], SESSIONS[1], SESSIONS[2], "2024-11-05"])
    );
    assert_eq!(error["data"]["requested"], "2099-01-01");
}

/// LIF-15, LIF-16, STA-07: servers of one era alone.
#[tokio::test]
async fn lif_15_lif_16_servers_of_one_era_answer_in_its_terms() {
    let upstream = Upstream::modern().await;
    let tenant = |revisions: &str| {
        open_tenant(
            &[("up", upstream.reach())],
            &format!("revisions: [{revisions}]"),
        )
    };
    let modern_only = Gateway::start(&tenant(r#""2026-07-28""#));
    let answer = modern_only.ask(initialize("/mcp/t/up", SESSIONS[0])).await;
    let json = assert_refused("LIF-15", &answer, 400, -32022);
    assert_eq!(json["error"]["data"]["supported"], json!([MODERN]));
    assert_eq!(json["error"]["data"]["requested"], SESSIONS[0]);
    assert_eq!(answer.head.field("mcp-session-id"), None);

    let legacy_only = Gateway::start(&tenant(r#""2025-11-25", "2025-06-18""#));
    for request in [
        modern("/mcp/t/up", 7, "server/discover", json!({})),
        modern_call("/mcp/t/up", "echo", &json!({})),
        modern("/mcp/t/up", 7, "tools/list", json!({})).without("MCP-Protocol-Version"),
        post("/mcp/t/up", r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#)
            .field("MCP-Protocol-Version", "2099-01-01"),
    ] {
        let answer = legacy_only.ask(request).await;
        assert_refused("LIF-16", &answer, 400, -32600);
    }
    let answer = legacy_only.ask(initialize("/mcp/t/up", MODERN)).await;
    assert_eq!(answer.json()["result"]["protocolVersion"], SESSIONS[0]);
}

/// Case 146, VER-01, VER-15: initialize never refuses a version, and its header is not judged.
#[tokio::test]
async fn case_146_initialize_negotiates_whatever_is_asked_for() {
    let house = House::open().await;
    for (asked, got) in [
        (json!("2025-11-25"), "2025-11-25"),
        (json!("2025-03-26"), "2025-03-26"),
        (json!("2026-07-28"), "2025-11-25"),
        (json!("2099-01-01"), "2025-11-25"),
        (json!("2024-11-05"), "2024-11-05"),
        (json!(""), "2025-11-25"),
        (json!(7), "2025-11-25"),
        (Value::Null, "2025-11-25"),
    ] {
        for header in [None, Some("2025-06-18"), Some(MODERN), Some("2099-01-01")] {
            let mut params =
                json!({ "capabilities": {}, "clientInfo": { "name": "x", "version": "1" } });
            if !asked.is_null() {
                params["protocolVersion"] = asked.clone();
            }
            let body =
                json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
            let mut request = post("/mcp/t/up", body.to_string());
            if let Some(header) = header {
                request = request.field("MCP-Protocol-Version", header);
            }
            let answer = house.gateway.ask(request).await;
            assert_eq!(answer.status, 200, "{asked} {header:?}: {:?}", answer.body);
            assert_eq!(
                answer.json()["result"]["protocolVersion"],
                got,
                "{asked} {header:?}"
            );
            assert!(answer.head.field("mcp-session-id").is_some());
        }
    }
}

/// LIF-07: a second initialize.
#[tokio::test]
async fn lif_07_a_second_initialize_on_a_live_session_is_refused_a_stale_one_opens_afresh() {
    let house = House::open().await;
    let live = initialize("/mcp/t/up", SESSIONS[0]).field("Mcp-Session-Id", &house.newest.id);
    assert_refused("LIF-07", &house.gateway.ask(live).await, 400, -32600);
    let stale = initialize("/mcp/t/up", SESSIONS[0]).field("Mcp-Session-Id", "dead");
    let fresh = house.gateway.ask(stale).await;
    assert_eq!(fresh.status, 200);
    assert_ne!(fresh.head.field("mcp-session-id"), Some("dead"));
}

/// STA-18, STA-19, STA-24, cases 71, 145 and 159: GET and DELETE that do not fit a session.
#[tokio::test]
async fn case_71_case_145_case_159_gets_and_deletes_without_a_session() {
    let house = House::open().await;
    let delete = || RawRequest::new("DELETE", "/mcp/t/up").field("Host", "127.0.0.1");
    let own = "1k1.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    let sessions = Some("POST, GET, DELETE");
    let every = Some("POST, GET, DELETE, OPTIONS");
    let post_only = Some("POST");
    for (cites, request, status, allow) in [
        (
            "case 145 */*",
            get("/mcp/t/up").without("Accept").field("Accept", "*/*"),
            405,
            sessions,
        ),
        (
            "case 145, STA-24 GET ?sse=",
            get("/mcp/t/up?sse=x"),
            405,
            sessions,
        ),
        (
            "HDR-03",
            get("/mcp/t/up")
                .without("Accept")
                .field("Accept", "application/json"),
            406,
            None,
        ),
        (
            "STA-18",
            get("/mcp/t/up").field("MCP-Protocol-Version", MODERN),
            405,
            post_only,
        ),
        (
            "STA-18 a stale session",
            get("/mcp/t/up")
                .field("MCP-Protocol-Version", MODERN)
                .field("Mcp-Session-Id", "x"),
            405,
            post_only,
        ),
        (
            "STA-18",
            delete().field("MCP-Protocol-Version", MODERN),
            405,
            post_only,
        ),
        (
            "STA-18 a stale session",
            delete()
                .field("MCP-Protocol-Version", MODERN)
                .field("Mcp-Session-Id", "x"),
            405,
            post_only,
        ),
        (
            "STA-19",
            get("/mcp/t/up").field("MCP-Protocol-Version", SESSIONS[0]),
            400,
            None,
        ),
        (
            "STA-19",
            get("/mcp/t/up").field("MCP-Protocol-Version", "2099-01-01"),
            400,
            None,
        ),
        (
            "STA-19",
            get("/mcp/t/up").field("Last-Event-ID", own),
            400,
            None,
        ),
        ("classifier", delete(), 400, None),
        (
            "case 109",
            get("/mcp/t/up").field("Mcp-Session-Id", "dead"),
            404,
            None,
        ),
        (
            "case 109",
            delete().field("Mcp-Session-Id", "dead"),
            404,
            None,
        ),
        (
            "T27",
            RawRequest::new("PATCH", "/mcp/t/up").field("Host", "127.0.0.1"),
            405,
            every,
        ),
        (
            "T27",
            RawRequest::new("PUT", "/mcp/t/up")
                .field("Host", "127.0.0.1")
                .body("{}"),
            405,
            every,
        ),
    ] {
        let answer = soon(cites, AT_ONCE, house.gateway.ask(request)).await;
        assert_eq!(answer.status, status, "{cites}: {:?}", answer.body);
        assert_eq!(answer.head.field("allow"), allow, "{cites}");
    }
}

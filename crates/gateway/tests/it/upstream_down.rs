//! Upstreams that are away, slow, or speak nonsense: the client gets one well-formed answer in
//! bounded time, and nobody else notices.

use std::time::Duration;

use serde_json::{Value, json};
use vestibule_testkit::recording::{Answer, legacy_basics, modern_basics};
use vestibule_testkit::{Recorded, RecordingUpstream};

use crate::harness::Gateway;
use crate::talk::{
    SESSIONS, Session, Upstream, at, modern, modern_call, open_tenant, progress, response, soon,
    text,
};

const UP: &str = "/mcp/t/up";

/// A port that refuses connections.
async fn refusing() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    at(&format!("http://{address}/mcp"))
}

/// A stateless upstream that answers calls as `call` says and everything else well.
async fn stateless(
    call: impl Fn(&Recorded) -> Answer + Send + Sync + 'static,
) -> RecordingUpstream {
    RecordingUpstream::start(move |request| {
        if let Some(answer) = modern_basics(request, &json!({ "tools": {} })) {
            return answer;
        }
        if request.rpc_method() == "tools/list" {
            let tools = json!([{ "name": "x", "inputSchema": { "type": "object" } }]);
            let result = json!({ "resultType": "complete", "ttlMs": 60_000, "cacheScope": "public", "tools": tools });
            return Answer::result(request, &result);
        }
        if request.json()["params"]["name"] == "good" {
            let content = json!([{ "type": "text", "text": "good" }]);
            return Answer::result(request, &json!({ "resultType": "complete", "content": content }));
        }
        call(request)
    })
    .await
    .unwrap()
}

fn with(upstream: &RecordingUpstream, more: &str) -> String {
    open_tenant(
        &[("up", format!("{}{more}", at(&upstream.url())))],
        "stream_after: 5s",
    )
}

/// The error of a call, its data checked for what every operational failure says.
fn failure(what: &str, answer: &Value) -> i64 {
    let error = &answer["error"];
    let code = error["code"]
        .as_i64()
        .unwrap_or_else(|| panic!("{what}: {answer}"));
    assert!(answer.get("result").is_none(), "{what}");
    assert_eq!(error["data"]["origin"], "gateway", "{what}: {answer}");
    assert_eq!(error["data"]["upstream"], "up", "{what}: {answer}");
    assert!(error["data"]["reason"].is_string(), "{what}: {answer}");
    assert!(error["data"]["retryable"].is_boolean(), "{what}: {answer}");
    let shown = error.to_string();
    assert!(!shown.contains("127.0.0.1"), "{what}: ERR-11: {shown}");
    code
}

/// Both eras get the same failure for the same call.
async fn both_fail(what: &str, gateway: &Gateway, code: i64) {
    let call = modern_call(UP, "x", &json!({}));
    let answer = soon(what, Duration::from_secs(5), gateway.ask(call)).await;
    assert_eq!(answer.status, 200, "{what}: STA-14: {:?}", answer.body);
    assert_eq!(
        failure(what, &answer.answer()),
        code,
        "{what}: {:?}",
        answer.body
    );
    let session = Session::open(gateway, UP, SESSIONS[0]).await;
    let call = session.call("id", "x", &json!({}));
    let answer = soon(what, Duration::from_secs(5), gateway.ask(call)).await;
    assert_eq!(answer.status, 200, "{what}");
    assert_eq!(answer.answer()["id"], "id", "{what}");
    assert_eq!(
        failure(what, &answer.answer()),
        code,
        "{what}: {:?}",
        answer.body
    );
}

/// C22: nobody listens.
#[tokio::test]
async fn c22_an_upstream_that_refuses_connections_is_unavailable() {
    let gateway = Gateway::start(&open_tenant(&[("up", refusing().await)], ""));
    both_fail("C22", &gateway, -31001).await;
}

/// C22: a name that does not resolve; LIF-02: `initialize` does not wait for upstreams.
#[tokio::test]
async fn c22_lif_02_a_name_that_does_not_resolve_is_unavailable() {
    let gateway = Gateway::with(
        "egress: { http: [\"*.invalid\"], private: [\"*.invalid\"] }",
        &open_tenant(&[("up", at("http://nowhere.invalid/mcp"))], ""),
    );
    both_fail("C22", &gateway, -31001).await;
}

/// C23, LIF-09: no byte comes; the call ends at its limit and its place is free.
#[tokio::test]
async fn c23_an_upstream_that_hangs_times_out() {
    let upstream = stateless(|_| Answer::Hang).await;
    let gateway = Gateway::start(&with(&upstream, ", timeouts: { idle: 200ms, total: 5s }"));
    both_fail("C23", &gateway, -31002).await;
    upstream.abandoned(2).await;
}

/// C24: progress may extend the idle limit, never the total one.
#[tokio::test]
async fn c24_progress_extends_idle_time_and_never_the_whole() {
    let upstream = Upstream::modern().await;
    let tenant = open_tenant(
        &[(
            "up",
            format!(
                "{}, timeouts: {{ idle: 300ms, total: 900ms }}",
                upstream.reach()
            ),
        )],
        "stream_after: 5s",
    );
    let gateway = Gateway::start(&tenant);
    let params = json!({ "name": "stream", "_meta": { "progressToken": 1 } });
    let mut client = gateway.connect().await;
    client
        .send(&modern(UP, 1, "tools/call", params).bytes())
        .await
        .unwrap();
    let (call, stream) = upstream.opened().await;
    let talking = tokio::spawn(async move {
        let mut value = 0;
        let mut ticks = tokio::time::interval(Duration::from_millis(100));
        loop {
            ticks.tick().await;
            value += 1;
            if stream.message(&progress(&call, value)).await.is_err() {
                return value;
            }
        }
    });
    client.head().await.unwrap();
    let mut last = None;
    while let Some(event) = client.next_event().await.unwrap() {
        last = Some(event.json());
    }
    assert_eq!(failure("C24", &last.unwrap()), -31002);
    assert!(talking.await.unwrap() > 4, "longer than the idle limit");
}

/// C26, case 60: answers that are none, each to its own call alone.
#[tokio::test]
async fn case_60_c26_answers_that_are_none_fail_their_call_alone() {
    let raw = |text: &'static str| {
        move |request: &Recorded| {
            let id = request.rpc_id().to_string();
            Answer::json(200, &Value::Null).replace_body(&text.replace("$id", &id))
        }
    };
    for body in [
        r#"{"jsonrpc":"2.0","id":$id,"result":{},"error":{"code":1,"message":"x"}}"#,
        r#"{"jsonrpc":"2.0","id":$id}"#,
        r#"{"jsonrpc":"2.0","id":999,"result":{"resultType":"complete","content":[]}}"#,
        r#"{"jsonrpc":"2.0","id":$id,"error":{"code":"-32000","message":"x"}}"#,
        r#"{"jsonrpc":"2.0","id":$id,"error":{"code":-1}}"#,
        r#"{"jsonrpc":"2.0","id":$id,"result":{"resultType":"weird"}}"#,
        r#"{"jsonrpc":"2.0","id":$id,"result":{"#,
        "not json",
        "",
        r#"[{"jsonrpc":"2.0","id":$id}]"#,
    ] {
        let upstream = stateless(raw(body)).await;
        let gateway = Gateway::start(&with(&upstream, ""));
        both_fail(body, &gateway, -31003).await;
        let good = gateway.ask(modern_call(UP, "good", &json!({}))).await;
        assert_eq!(text(&good.json()), "good", "others are unaffected");
    }
    for answer in [
        (|_: &Recorded| Answer::text(200, "<html>hello</html>")) as fn(&Recorded) -> Answer,
        |_| Answer::empty(200),
        |_| Answer::Bytes("HTTP/9 nonsense\r\n\r\n".into()),
    ] {
        let upstream = stateless(answer).await;
        let gateway = Gateway::start(&with(&upstream, ""));
        let got = gateway.ask(modern_call(UP, "x", &json!({}))).await;
        let code = failure("case 60", &got.json());
        assert!([-31001, -31003].contains(&code), "{code}");
    }
}

/// A body that no serializer writes.
trait ReplaceBody {
    fn replace_body(self, text: &str) -> Answer;
}

impl ReplaceBody for Answer {
    fn replace_body(mut self, text: &str) -> Answer {
        if let Answer::Full { body, .. } = &mut self {
            *body = text.to_owned().into();
        }
        self
    }
}

/// C27: a message above `max_response` fails its call, and the rest is not read.
#[tokio::test]
async fn c27_an_oversize_answer_fails_its_call() {
    let big = || {
        stateless(|request| {
            let content = json!([{ "type": "text", "text": "x".repeat(200_000) }]);
            Answer::result(
                request,
                &json!({ "resultType": "complete", "content": content }),
            )
        })
    };
    let upstream = big().await;
    let gateway = Gateway::start(&with(&upstream, ", max_response: 64KiB"));
    both_fail("C27", &gateway, -31003).await;
    let upstream = stateless(|_| Answer::Endless("x".repeat(8192).into())).await;
    let gateway = Gateway::start(&with(&upstream, ", max_response: 64KiB"));
    both_fail("C27 endless", &gateway, -31003).await;
    upstream.abandoned(2).await;
}

/// C28, STA-25, STA-28, STA-29: statuses of an upstream are its own; none is handed on.
#[tokio::test]
async fn c28_sta_25_statuses_of_an_upstream_are_not_handed_on() {
    for (status, codes) in [
        (500, &[-31001, -31003][..]),
        (502, &[-31001]),
        (503, &[-31001]),
        (429, &[-31001]),
        (401, &[-31008]),
        (403, &[-31008, -31001]),
        (302, &[-31001, -31003]),
        (418, &[-31001, -31003]),
    ] {
        let upstream = stateless(move |_| {
            Answer::text(status, "secret text of the upstream")
                .field("www-authenticate", "Bearer realm=\"upstream\"")
                .field("retry-after", "60")
        })
        .await;
        let gateway = Gateway::start(&with(&upstream, ""));
        let call = modern_call(UP, "x", &json!({}));
        let answer = soon("C28", Duration::from_secs(5), gateway.ask(call)).await;
        assert_eq!(answer.status, 200, "{status}");
        assert_eq!(answer.head.field("www-authenticate"), None, "{status}");
        let code = failure(&status.to_string(), &answer.json());
        assert!(codes.contains(&code), "{status}: {code}");
        assert_eq!(
            upstream.calls("tools/call").len(),
            1,
            "{status}: a call is not repeated"
        );
    }
}

/// C25, SSE-13, case 130 (a): a stream that ends without the answer. The gateway never repeats a
/// call by itself.
#[tokio::test]
async fn case_130_c25_a_stream_without_its_answer_is_an_error_at_once() {
    for broken in [false, true] {
        let upstream = Upstream::modern().await;
        let gateway = Gateway::start(&open_tenant(&[("up", upstream.reach())], ""));
        let mut client = gateway.connect().await;
        let call = modern_call(UP, "stream", &json!({}));
        client.send(&call.bytes()).await.unwrap();
        let (_request, stream) = upstream.opened().await;
        let note = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "error", "data": "x" } });
        stream.message(&note).await.unwrap();
        if broken {
            stream.break_off().await;
        } else {
            drop(stream);
        }
        let answer = soon("case 130", Duration::from_secs(2), client.response())
            .await
            .unwrap();
        let code = failure("case 130", &answer.answer());
        assert!([-31001, -31003].contains(&code), "{code}");
        assert_eq!(upstream.calls(), 1, "SSE-13");
    }
}

/// Case 130 (b): the answer ends the client's stream, however long the upstream keeps its own open.
#[tokio::test]
async fn case_130_an_upstream_that_never_ends_its_stream_is_let_go() {
    for modern in [true, false] {
        let upstream = if modern {
            Upstream::modern().await
        } else {
            Upstream::legacy().await
        };
        let gateway = Gateway::start(&open_tenant(&[("up", upstream.reach())], ""));
        let session = Session::open(&gateway, UP, SESSIONS[0]).await;
        for request in [
            modern_call(UP, "stream", &json!({})),
            session.call(1, "stream", &json!({})),
        ] {
            let mut client = gateway.connect().await;
            client.send(&request.bytes()).await.unwrap();
            let (call, stream) = upstream.opened().await;
            stream.message(&response(&call, "done")).await.unwrap();
            let answer = client.response().await.unwrap();
            assert_eq!(text(&answer.answer()), "done");
            soon(
                "the connection is released",
                Duration::from_secs(2),
                stream.gone(),
            )
            .await;
        }
    }
}

/// Cases 127 and 129: lines end in every way, and characters and line ends are split anywhere.
#[tokio::test]
async fn case_127_case_129_streams_of_an_upstream_in_every_spelling() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::start(&open_tenant(&[("up", upstream.reach())], ""));
    for end in ["\n", "\r\n", "\r"] {
        for whole in [true, false] {
            let mut client = gateway.connect().await;
            client
                .send(&modern_call(UP, "stream", &json!({})).bytes())
                .await
                .unwrap();
            let (call, stream) = upstream.opened().await;
            let data = response(&call, "名😀").to_string();
            let text_of = format!(
                "\u{feff}: ping{end}event: message{end}unknown: 1{end}data: {data}{end}{end}"
            );
            if whole {
                stream.bytes(text_of).await.unwrap();
            } else {
                for byte in text_of.into_bytes() {
                    stream.bytes(vec![byte]).await.unwrap();
                }
            }
            if end == "\r" {
                // a lone CR ends a line once the next byte shows that no LF follows
                stream.bytes(": end\r\r").await.unwrap();
            }
            let answer = client.response().await.unwrap();
            assert_eq!(text(&answer.answer()), "名😀", "{end:?} {whole}");
        }
    }
}

/// Case 73: one slow call does not take the upstream from the others.
#[tokio::test]
async fn case_73_a_slow_call_does_not_take_the_upstream_away() {
    let upstream = stateless(|_| Answer::Hang).await;
    let gateway = Gateway::start(&with(&upstream, ", timeouts: { idle: 100ms, total: 5s }"));
    for _ in 0..8 {
        let slow = gateway.ask(modern_call(UP, "x", &json!({}))).await;
        assert_eq!(failure("case 73", &slow.answer()), -31002);
        let good = gateway.ask(modern_call(UP, "good", &json!({}))).await;
        assert_eq!(text(&good.json()), "good");
    }
}

/// C30, case 23: one dead upstream does not stall or empty the lists of the others; all dead is an
/// error and no empty list.
#[tokio::test]
async fn case_23_c30_dead_upstreams_do_not_stall_lists() {
    let good = stateless(|_| Answer::Hang).await;
    let silent = RecordingUpstream::start(|_| Answer::Hang).await.unwrap();
    let broken = RecordingUpstream::start(|_| Answer::text(500, "no"))
        .await
        .unwrap();
    let short = ", timeouts: { connect: 200ms, idle: 300ms, total: 1s }";
    let gateway = Gateway::start(&open_tenant(
        &[
            ("good", at(&good.url())),
            ("silent", format!("{}{short}", at(&silent.url()))),
            ("refusing", refusing().await),
            ("broken", format!("{}{short}", at(&broken.url()))),
        ],
        "",
    ));
    let list = modern("/mcp/t", 1, "tools/list", json!({}));
    let answer = soon("case 23", Duration::from_secs(8), gateway.ask(list)).await;
    let tools = answer.answer()["result"]["tools"].clone();
    let names: Vec<&str> = tools
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["good__x"]);
    let dead = Gateway::start(&open_tenant(
        &[("refusing", refusing().await), ("up", refusing().await)],
        "",
    ));
    let list = modern("/mcp/t", 1, "tools/list", json!({}));
    let answer = dead.ask(list).await.answer();
    assert!(
        answer["error"]["code"].is_i64(),
        "never an empty list: {answer}"
    );
}

/// C31, STA-26, SES-04: an upstream session that is gone is opened anew once, and the call that met
/// it runs once.
#[tokio::test]
async fn c31_a_lost_upstream_session_is_opened_anew_once() {
    for always in [false, true] {
        let upstream = RecordingUpstream::start(move |request| {
            let stale = request.field("mcp-session-id") == Some("recorded-session");
            if request.rpc_method() == "tools/call" && (stale || always) {
                return Answer::text(404, "no such session");
            }
            if request.rpc_method() == "tools/call" {
                let content = json!([{ "type": "text", "text": "fresh" }]);
                return Answer::result(request, &json!({ "content": content }));
            }
            let answer = legacy_basics(request, &json!({ "tools": {} }));
            let answer = answer.unwrap_or_else(|| Answer::result(request, &json!({ "tools": [] })));
            replace_session(request, answer)
        })
        .await
        .unwrap();
        let gateway = Gateway::start(&open_tenant(&[("up", at(&upstream.url()))], ""));
        let session = Session::open(&gateway, UP, SESSIONS[0]).await;
        let answer = gateway.ask(session.call(1, "x", &json!({}))).await;
        assert_eq!(answer.status, 200, "the client's session is kept");
        if always {
            assert!(failure("C31", &answer.answer()) < -31000);
            assert!(upstream.calls("tools/call").len() <= 2, "bounded");
        } else {
            assert_eq!(text(&answer.answer()), "fresh");
        }
    }
}

/// The second `initialize` of an upstream gets another session than the first.
fn replace_session(request: &Recorded, answer: Answer) -> Answer {
    use std::sync::Mutex;
    static SEEN: Mutex<Vec<(String, usize)>> = Mutex::new(Vec::new());
    if request.rpc_method() != "initialize" {
        return answer;
    }
    let mut seen = SEEN.lock().unwrap();
    let key = request.field("host").unwrap_or_default().to_owned();
    let count = seen.iter().filter(|(host, _)| *host == key).count();
    seen.push((key, count));
    match answer {
        Answer::Full {
            status,
            mut fields,
            body,
        } if count > 0 => {
            fields.retain(|(name, _)| name != "mcp-session-id");
            fields.push(("mcp-session-id".to_owned(), format!("fresh-{count}")));
            Answer::Full {
                status,
                fields,
                body,
            }
        }
        other @ (Answer::Full { .. }
        | Answer::Stream { .. }
        | Answer::Endless(_)
        | Answer::Bytes(_)
        | Answer::Hang
        | Answer::Close
        | Answer::Later(_)) => other,
    }
}

/// Case 151: what says "legacy" and what does not; an upstream that recovers is found out.
#[tokio::test]
async fn case_151_only_a_refusal_without_a_modern_error_means_legacy() {
    for (status, modern_error) in [(401, None), (503, None), (429, None), (400, Some(-32022))] {
        let upstream = RecordingUpstream::start(move |request| match modern_error {
            Some(code) => {
                let error = json!({ "code": code, "message": "x", "data": { "supported": ["2099-01-01"], "requested": "2026-07-28" } });
                Answer::json(status, &json!({ "jsonrpc": "2.0", "id": request.rpc_id(), "error": error }))
            }
            None => Answer::empty(status),
        })
        .await
        .unwrap();
        let gateway = Gateway::start(&open_tenant(&[("up", at(&upstream.url()))], ""));
        let answer = gateway.ask(modern_call(UP, "x", &json!({}))).await;
        assert!(answer.answer()["error"]["code"].is_i64(), "{status}");
        assert!(
            upstream.calls("initialize").is_empty(),
            "{status} is not legacy"
        );
    }
    for answer in [
        (|_: &Recorded| Answer::empty(400)) as fn(&Recorded) -> Answer,
        |_| Answer::text(404, "not found"),
        |request| Answer::error(request, 400, -32000, "no session"),
    ] {
        let upstream = RecordingUpstream::start(move |request| {
            if request.rpc_method() == "server/discover" {
                return answer(request);
            }
            legacy_basics(request, &json!({ "tools": {} }))
                .unwrap_or_else(|| Answer::result(request, &json!({ "content": [], "tools": [] })))
        })
        .await
        .unwrap();
        let gateway = Gateway::start(&open_tenant(&[("up", at(&upstream.url()))], ""));
        let answer = gateway.ask(modern_call(UP, "x", &json!({}))).await;
        assert!(answer.answer()["result"].is_object(), "{:?}", answer.body);
        assert!(!upstream.calls("initialize").is_empty());
    }
}

/// ERR-02 … ERR-08, ERR-12, ERR-13: codes of an upstream as each era may see them.
#[tokio::test]
async fn err_02_err_13_codes_of_an_upstream_are_mapped_by_era() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::start(&open_tenant(&[("up", upstream.reach())], ""));
    let session = Session::open(&gateway, UP, SESSIONS[0]).await;
    for (cites, code, to_session, to_stateless) in [
        ("ERR-02, ERR-03", -32002, -32002, -32602),
        ("ERR-06", -32020, -31003, -31003),
        ("ERR-07", -32050, -31003, -31003),
        ("ERR-07", -32099, -31003, -31003),
        ("ERR-08", -32000, -32000, -31003),
        ("ERR-08", -32019, -32019, -31003),
        ("ERR-09", -31001, -31003, -31003),
        ("ERR-01", -32602, -32602, -32602),
        ("vendor", 1234, 1234, 1234),
        ("vendor", -1, -1, -1),
    ] {
        let error =
            json!({ "code": code, "message": "said the upstream", "data": { "origin": "forged" } });
        for (request, expected) in [
            (session.call(1, "fail", &error), to_session),
            (modern_call(UP, "fail", &error), to_stateless),
        ] {
            let answer = gateway.ask(request).await;
            assert_eq!(answer.status, 200, "{cites} {code}: {:?}", answer.body);
            let got = answer.json()["error"].clone();
            assert_eq!(got["code"], expected, "{cites} {code}: {got}");
            assert_ne!(got["data"]["origin"], "forged", "ERR-13: {got}");
            if expected == -31003 {
                assert_eq!(got["data"]["upstreamCode"], code, "{cites}: {got}");
            }
        }
    }
}

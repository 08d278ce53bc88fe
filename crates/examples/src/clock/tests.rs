//! The server as a stateless client uses it, over loopback.

use http::Method;

use super::*;
use crate::testing::{Answer, BOTH, Peer, socket};

struct Running {
    peer: Peer,
    end: CancellationToken,
}

async fn start() -> Running {
    let (listener, address) = socket().await;
    let end = CancellationToken::new();
    tokio::spawn(serve_clock(listener, end.clone()));
    Running {
        peer: Peer::new(address),
        end,
    }
}

fn meta(more: &Value) -> Value {
    let mut meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "t", "version": "0" },
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} },
    });
    for (name, value) in more.as_object().unwrap() {
        meta[name] = value.clone();
    }
    meta
}

impl Running {
    async fn raw(&self, headers: &[(&str, &str)], body: &Value) -> Answer {
        let mut all = vec![("accept", BOTH), ("content-type", "application/json")];
        all.extend_from_slice(headers);
        self.peer.send(Method::POST, &all, body.to_string()).await
    }

    async fn with(&self, method: &str, mut params: Value, headers: &[(&str, &str)]) -> Answer {
        if params.get("_meta").is_none() {
            params["_meta"] = meta(&json!({}));
        }
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
        let mut all = vec![
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", method),
        ];
        all.extend_from_slice(headers);
        self.raw(&all, &body).await
    }

    async fn ask(&self, method: &str, params: Value) -> Value {
        let answer = self.with(method, params, &[]).await;
        assert_eq!(answer.status, StatusCode::OK);
        answer.json().await
    }

    async fn tool(&self, name: &str, arguments: Value, headers: &[(&str, &str)]) -> Answer {
        let params = json!({ "name": name, "arguments": arguments });
        let mut all = vec![("mcp-name", name)];
        all.extend_from_slice(headers);
        self.with("tools/call", params, &all).await
    }

    async fn read(&self, uri: &str) -> Value {
        let answer = self
            .with(
                "resources/read",
                json!({ "uri": uri }),
                &[("mcp-name", uri)],
            )
            .await;
        answer.json().await
    }

    async fn waiting(&self) -> String {
        let answer = self.read(WAITING).await;
        answer["result"]["contents"][0]["text"]
            .as_str()
            .unwrap()
            .to_owned()
    }
}

async fn code(answer: Answer) -> (u16, i64) {
    let status = answer.status.as_u16();
    (
        status,
        answer.json().await["error"]["code"].as_i64().unwrap(),
    )
}

/// LIF-11, CCH-01: discovery and lists say how long they hold and that they are complete.
#[tokio::test]
async fn lif_11_cch_01_answers_that_may_be_kept_say_so() {
    let running = start().await;
    for method in [
        "server/discover",
        "tools/list",
        "resources/list",
        "resources/templates/list",
        "prompts/list",
    ] {
        let answer = running.ask(method, json!({})).await;
        let result = &answer["result"];
        assert_eq!(answer["id"], 7);
        assert_eq!(result["resultType"], "complete", "{method}");
        assert!(result["ttlMs"].is_u64(), "{method}");
        assert_eq!(result["cacheScope"], "public", "{method}");
    }
    let discovered = running.ask("server/discover", json!({})).await;
    assert_eq!(
        discovered["result"]["supportedVersions"],
        json!(["2026-07-28"])
    );
    let read = running.read("clock://place/Tokyo").await;
    assert_eq!(read["result"]["ttlMs"], 1000);
    assert!(
        read["result"]["contents"][0]["text"]
            .as_str()
            .unwrap()
            .ends_with("+09:00")
    );
    assert_eq!(
        running.read("clock://place/Atlantis").await["error"]["code"],
        rpc::INVALID_PARAMS
    );
}

/// HDR-10, VER-08, STA-08..STA-12: the ladder of refusals, each with its status and the id.
#[tokio::test]
async fn sta_08_to_12_each_refusal_has_its_status_and_code() {
    let running = start().await;
    let request = |method: &str, params: Value| json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
    let list = request("tools/list", json!({ "_meta": meta(&json!({})) }));
    let version = ("mcp-protocol-version", "2026-07-28");
    let method = ("mcp-method", "tools/list");
    let old = json!({ "io.modelcontextprotocol/protocolVersion": "1900-01-01" });
    let old = request("tools/list", json!({ "_meta": meta(&old) }));
    let open = request("initialize", json!({ "protocolVersion": "2025-11-25" }));
    let unknown = request("tools/nothing", json!({ "_meta": meta(&json!({})) }));
    for (body, headers, expected) in [
        (&list, vec![], (400, -32020)),
        (&list, vec![version], (400, -32020)),
        (
            &list,
            vec![version, ("mcp-method", "Tools/List")],
            (400, -32020),
        ),
        (&list, vec![version, method, method], (400, -32020)),
        (
            &list,
            vec![("mcp-protocol-version", "2025-11-25"), method],
            (400, -32020),
        ),
        (
            &old,
            vec![("mcp-protocol-version", "1900-01-01"), method],
            (400, -32022),
        ),
        (&open, vec![], (400, -32022)),
        (
            &request("tools/list", json!({})),
            vec![version, method],
            (400, -32602),
        ),
        (
            &unknown,
            vec![version, ("mcp-method", "tools/nothing")],
            (404, -32601),
        ),
    ] {
        let answer = running.raw(&headers, body).await;
        assert_eq!(code(answer).await, expected, "{body} {headers:?}");
    }
    let answer = running.raw(&[], &open).await.json().await;
    assert_eq!(answer["error"]["data"]["supported"], json!(["2026-07-28"]));
    assert_eq!(answer["error"]["data"]["requested"], "2025-11-25");
    assert_eq!(answer["id"], 7);
}

#[tokio::test]
async fn what_is_no_request_is_refused_by_its_status() {
    let running = start().await;
    let post = async |headers: &[(&str, &str)], body: &str| {
        let answer = running
            .peer
            .send(Method::POST, headers, body.to_owned())
            .await;
        answer.status.as_u16()
    };
    let json_type = ("content-type", "application/json; charset=utf-8");
    assert_eq!(post(&[("accept", BOTH), json_type], "{").await, 400);
    assert_eq!(post(&[("accept", BOTH), json_type], "[]").await, 400);
    assert_eq!(
        post(&[("accept", BOTH), ("content-type", "text/plain")], "{}").await,
        415
    );
    assert_eq!(post(&[("accept", "text/html"), json_type], "{}").await, 406);
    let note = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{}}"#;
    assert_eq!(post(&[("accept", "*/*"), json_type], note).await, 202);
    let response = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
    assert_eq!(post(&[("accept", BOTH), json_type], response).await, 400);
    assert_eq!(
        post(
            &[
                ("accept", BOTH),
                json_type,
                ("origin", "https://evil.example")
            ],
            note
        )
        .await,
        403
    );
    assert_eq!(
        post(
            &[("accept", BOTH), json_type, ("host", "evil.example")],
            note
        )
        .await,
        403
    );
    assert_eq!(
        post(
            &[
                ("accept", BOTH),
                json_type,
                ("origin", "http://localhost:5173")
            ],
            note
        )
        .await,
        202
    );
    let big = "x".repeat(2 << 20);
    assert_eq!(post(&[("accept", BOTH), json_type], &big).await, 413);
    for method in [Method::GET, Method::DELETE] {
        let answer = running
            .peer
            .send(method, &[("accept", BOTH)], String::new())
            .await;
        assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(answer.headers["allow"], "POST");
    }
}

/// XMH-05, HDR-17, HDR-19: the mirrored argument and its header agree, coded or not.
#[tokio::test]
async fn hdr_19_the_mirrored_argument_must_agree_with_its_header() {
    let running = start().await;
    let arguments = json!({ "time": "20:45", "from": "Delhi", "to": "Tokyo" });
    for header in ["Tokyo", "=?base64?VG9reW8=?="] {
        let headers = [("mcp-param-to-place", header)];
        let answer = running
            .tool("convert", arguments.clone(), &headers)
            .await
            .json()
            .await;
        let expected = json!({ "time": "00:15", "daysLater": 1 });
        assert_eq!(answer["result"]["structuredContent"], expected);
    }
    for headers in [
        vec![],
        vec![("mcp-param-to-place", "Delhi")],
        vec![("mcp-param-to-place", "tokyo")],
        vec![("mcp-param-to-place", "=?base64?*?=")],
        vec![
            ("mcp-param-to-place", "Tokyo"),
            ("mcp-param-to-place", "Tokyo"),
        ],
    ] {
        let answer = running.tool("convert", arguments.clone(), &headers).await;
        assert_eq!(code(answer).await, (400, -32020), "{headers:?}");
    }
    let without = json!({ "time": "20:45", "from": "Delhi" });
    let headers = [("mcp-param-to-place", "Tokyo")];
    let answer = running.tool("convert", without.clone(), &headers).await;
    assert_eq!(code(answer).await, (400, -32020));
    let answer = running.tool("convert", without, &[]).await.json().await;
    assert_eq!(answer["result"]["isError"], true);
}

/// PRG-01, PRG-02: progress carries the caller's token as it is and rises; the answer is last.
#[tokio::test]
async fn prg_02_wait_reports_progress_and_ends_with_the_answer() {
    let running = start().await;
    let more = json!({ "progressToken": 5, "io.modelcontextprotocol/logLevel": "info" });
    let params = json!({ "name": "wait", "arguments": { "seconds": 2 }, "_meta": meta(&more) });
    let mut answer = running
        .with("tools/call", params, &[("mcp-name", "wait")])
        .await;
    assert!(answer.is_stream());
    let log = answer.next().await.unwrap();
    assert_eq!(log["params"]["level"], "info");
    for second in 1..=2 {
        let progress = answer.next().await.unwrap();
        let expected = json!({ "progressToken": 5, "progress": second, "total": 2 });
        assert_eq!(progress["params"], expected);
    }
    let last = answer.next().await.unwrap();
    assert_eq!(last["id"], 7);
    assert_eq!(last["result"]["resultType"], "complete");
    assert!(answer.next().await.is_none());
}

/// LOG-03: without a wanted level nothing is logged; LOG-04: an unknown one is an error.
#[tokio::test]
async fn log_03_log_messages_are_sent_only_at_the_wanted_level() {
    let running = start().await;
    let wait = |more: Value| json!({ "name": "wait", "arguments": { "seconds": 0 }, "_meta": meta(&more) });
    for more in [
        json!({ "progressToken": "p" }),
        json!({ "io.modelcontextprotocol/logLevel": "warning" }),
    ] {
        let mut answer = running
            .with("tools/call", wait(more), &[("mcp-name", "wait")])
            .await;
        assert!(answer.next().await.unwrap()["result"].is_object());
    }
    let more = json!({ "io.modelcontextprotocol/logLevel": "loud" });
    let answer = running
        .with("tools/call", wait(more), &[("mcp-name", "wait")])
        .await;
    assert_eq!(code(answer).await, (200, -32602));
}

/// CAN-07: closing the connection ends the call, streamed or not.
#[tokio::test]
async fn can_07_closing_the_connection_cancels() {
    let running = start().await;
    let params = json!({
        "name": "wait", "arguments": { "seconds": 60 }, "_meta": meta(&json!({ "progressToken": 1 })),
    });
    let streamed = running
        .with("tools/call", params, &[("mcp-name", "wait")])
        .await;
    let arguments = json!({ "seconds": 60 });
    let whole = running.tool("wait", arguments, &[]);
    tokio::select! {
        _ = whole => panic!("it waits a minute"),
        () = async { while running.waiting().await != "2" { tokio::task::yield_now().await } } => {}
    }
    drop(streamed);
    while running.waiting().await != "0" {
        tokio::task::yield_now().await;
    }
}

/// MRT-02, MRT-05, MRT-11: a question, its answer with the echoed state, and nothing forged.
#[tokio::test]
async fn mrt_02_remind_asks_in_a_second_round() {
    let running = start().await;
    let arguments = json!({ "at": "10:30" });
    let first = running
        .tool("remind", arguments.clone(), &[])
        .await
        .json()
        .await;
    let result = &first["result"];
    assert_eq!(result["resultType"], "input_required");
    assert_eq!(
        result["inputRequests"]["what"]["method"],
        "elicitation/create"
    );
    assert!(result.get("ttlMs").is_none(), "CCH-02");
    let state = result["requestState"].as_str().unwrap().to_owned();

    let round = async |arguments: &Value, state: &str, answers: Value| {
        let params = json!({
            "name": "remind", "arguments": arguments, "requestState": state, "inputResponses": answers,
        });
        running
            .with("tools/call", params, &[("mcp-name", "remind")])
            .await
            .json()
            .await
    };
    let tea = json!({ "what": { "action": "accept", "content": { "text": "tea" } } });
    let done = round(&arguments, &state, tea.clone()).await;
    assert_eq!(done["result"]["content"][0]["text"], "At 10:30: tea");
    let declined = round(
        &arguments,
        &state,
        json!({ "what": { "action": "decline" } }),
    )
    .await;
    assert_eq!(declined["result"]["resultType"], "complete");
    // MRT-09: a missing answer is asked for again
    let again = round(&arguments, &state, json!({ "other": {} })).await;
    assert_eq!(again["result"]["resultType"], "input_required");
    for (arguments, state, answers) in [
        (json!({ "at": "11:30" }), state.as_str(), tea.clone()),
        (arguments.clone(), "forged", tea.clone()),
        (
            arguments.clone(),
            state.as_str(),
            json!({ "what": { "action": "maybe" } }),
        ),
    ] {
        let refused = round(&arguments, state, answers).await;
        assert_eq!(refused["error"]["code"], rpc::INVALID_PARAMS);
    }
}

/// CAP-03, STA-11: without the capability the answer is 400 and names it.
#[tokio::test]
async fn cap_03_a_question_needs_the_capability() {
    let running = start().await;
    for capabilities in [json!({}), json!({ "elicitation": { "url": {} } })] {
        let more = json!({ "io.modelcontextprotocol/clientCapabilities": capabilities });
        let params =
            json!({ "name": "remind", "arguments": { "at": "10:30" }, "_meta": meta(&more) });
        let answer = running
            .with("tools/call", params, &[("mcp-name", "remind")])
            .await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST);
        let error = answer.json().await["error"].clone();
        assert_eq!(error["code"], -32021);
        assert_eq!(
            error["data"]["requiredCapabilities"]["elicitation"],
            json!({ "form": {} })
        );
    }
}

/// SUB-01, SUB-03, SUB-04: acknowledged first, marked with the id as it was sent, ended by a result.
#[tokio::test]
async fn sub_01_listening_is_acknowledged_fed_and_ended() {
    let running = start().await;
    let filter =
        json!({ "toolsListChanged": true, "resourceSubscriptions": [NOW, "clock://nothing"] });
    let params = json!({ "notifications": filter });
    let mut answer = running.with("subscriptions/listen", params, &[]).await;
    assert!(answer.is_stream());
    let first = answer.next().await.unwrap();
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(
        first["params"]["notifications"],
        json!({ "resourceSubscriptions": [NOW] })
    );
    let updated = answer.next().await.unwrap();
    assert_eq!(updated["method"], "notifications/resources/updated");
    assert_eq!(updated["params"]["uri"], NOW);
    running.end.cancel();
    let last = loop {
        let message = answer.next().await.unwrap();
        let mark = message
            .pointer("/params/_meta")
            .or(message.pointer("/result/_meta"));
        assert_eq!(mark.unwrap()["io.modelcontextprotocol/subscriptionId"], 7);
        if message.get("result").is_some() {
            break message;
        }
    };
    assert_eq!(last["id"], 7);
    assert!(answer.next().await.is_none());
}

/// SUB-08: a filter is required, an empty one is fine.
#[tokio::test]
async fn sub_08_a_filter_is_required() {
    let running = start().await;
    let answer = running.with("subscriptions/listen", json!({}), &[]).await;
    assert_eq!(code(answer).await, (200, -32602));
    let params = json!({ "notifications": {} });
    let mut answer = running.with("subscriptions/listen", params, &[]).await;
    assert_eq!(
        answer.next().await.unwrap()["params"]["notifications"],
        json!({})
    );
}

#[tokio::test]
async fn prompts_and_completion_know_the_places() {
    let running = start().await;
    let params = json!({ "name": "meeting", "arguments": { "here": "delhi", "there": "Tokyo" } });
    let answer = running
        .with("prompts/get", params, &[("mcp-name", "meeting")])
        .await;
    let text = answer.json().await["result"]["messages"][0]["content"]["text"].clone();
    assert!(
        text.as_str().unwrap().contains("in Delhi and in Tokyo"),
        "{text}"
    );
    let params = json!({
        "ref": { "type": "ref/resource", "uri": "clock://place/{name}" },
        "argument": { "name": "name", "value": "t" },
    });
    let answer = running.ask("completion/complete", params).await;
    assert_eq!(answer["result"]["completion"]["values"], json!(["Tokyo"]));
}

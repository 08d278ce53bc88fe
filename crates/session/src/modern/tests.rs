use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use serde_json::json;
use tokio::time::Instant;
use vestibule_exchange::view::CacheScope;
use vestibule_exchange::{Event, Events, Final, ListPage, LogLevel, RpcError};
use vestibule_terms::accept::Accepts;
use vestibule_terms::{Method, Revision};

use crate::testing::{House, Item, draft, modern_body, progress, question, result};

const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

fn fixed(end: Final) -> House {
    House::new(move |_| Events::ready(end.clone()))
}

fn log(level: LogLevel) -> Event {
    let text = format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"{}","data":1}}}}"#,
        level.as_str()
    );
    Event::Log {
        level,
        message: draft(&text),
    }
}

fn changed(kind: &str) -> Event {
    let text = format!(r#"{{"jsonrpc":"2.0","method":"notifications/{kind}/list_changed"}}"#);
    Event::Notice(draft(&text))
}

fn acknowledged() -> Event {
    Event::Notice(draft(
        r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/subscriptionId":"upstream's"}}}"#,
    ))
}

fn updated(uri: &str) -> Event {
    Event::Notice(draft(&format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{{"uri":"{uri}"}}}}"#
    )))
}

/// Events at once, then nothing until the test's end.
fn then_silence(events: Vec<Event>) -> Events {
    Events::stream(stream::iter(events).chain(stream::pending()))
}

/// LIF-11, MET-03: discover lists every served version, as version errors do, and names the
/// gateway.
#[tokio::test]
async fn lif_11_discover_describes_the_server() {
    let got = fixed(Final::Empty).modern("server/discover", "").await;
    assert_eq!(got.status(), 200);
    assert_eq!(got.header("cache-control"), Some("no-store, no-transform"));
    let body = got.json().await;
    assert_eq!(body["id"], 7);
    let result = &body["result"];
    assert_eq!(result["resultType"], "complete");
    let served = [
        "2026-07-28",
        "2025-11-25",
        "2025-06-18",
        "2025-03-26",
        "2024-11-05",
    ];
    assert_eq!(result["supportedVersions"], json!(served));
    assert_eq!(result["instructions"], "Say \"please\".");
    assert_eq!(
        (&result["ttlMs"], &result["cacheScope"]),
        (&json!(60_000), &json!("public"))
    );
    assert_eq!(result["_meta"][SERVER_INFO]["name"], "vestibule");
    assert_eq!(result["capabilities"]["resources"]["subscribe"], true);
    assert_eq!(result["capabilities"]["completions"], json!({}));
    assert!(result.get("protocolVersion").is_none() && result.get("serverInfo").is_none());
}

/// MET-01, STA-09: required metadata of the wrong type counts as missing.
#[tokio::test]
async fn met_01_client_capabilities_are_required() {
    let house = fixed(Final::Empty);
    let body = modern_body("tools/list", "", "").replace("Capabilities\":{}", "Capabilities\":1");
    let headers = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/list"),
    ];
    let got = house.post(&headers, &body).await;
    assert_eq!((got.status().as_u16(), got.code().await), (400, -32602));
}

/// STA-12, XT-007, PNG-03: methods of other eras do not exist here.
#[tokio::test]
async fn sta_12_methods_that_do_not_exist_are_404() {
    let house = fixed(Final::Empty);
    for method in [
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "tasks/list",
        "tools/write",
    ] {
        let got = house.modern(method, "").await;
        assert_eq!(got.status(), 404, "{method}");
        let body = got.json().await;
        assert_eq!(
            (&body["error"]["code"], &body["id"]),
            (&json!(-32601), &json!(7)),
            "{method}"
        );
    }
    let body = house.modern("initialize", "").await.json().await;
    assert!(
        body["error"]["message"]
            .as_str()
            .unwrap()
            .contains("2025-11-25")
    );
}

/// LOG-04: an unknown level is an error of the request, not of its metadata.
#[tokio::test]
async fn log_04_an_unknown_level_is_an_error_with_status_200() {
    let meta = r#","io.modelcontextprotocol/logLevel":"loud""#;
    let got = fixed(Final::Empty)
        .modern_with("tools/list", "", meta)
        .await;
    assert_eq!((got.status().as_u16(), got.code().await), (200, -32602));
}

/// STA-10 … STA-14, STA-23: codes choose the status of an answer that has not begun.
#[tokio::test]
async fn sta_14_codes_choose_the_status() {
    let table = [
        (-32601, 404),
        (-32020, 400),
        (-32021, 400),
        (-32022, 400),
        (-32602, 200),
        (-31001, 200),
        (-31007, 200),
        (-31005, 429),
    ];
    for (code, status) in table {
        let got = fixed(Final::Error(RpcError::new(code, "no")))
            .modern("tools/list", "")
            .await;
        assert_eq!(got.status(), status, "{code}");
        assert_eq!(got.header("retry-after").is_some(), status == 429);
        assert_eq!(got.code().await, code);
    }
}

/// FRM-22, MET-03, CCH-01: what a legacy upstream's result lacks is added, the rest is untouched.
#[tokio::test]
async fn frm_22_results_of_legacy_upstreams_are_completed() {
    let house = fixed(result(
        r#"{"content":[],"big":12345678901234567890,"_meta":{"v/x":1}}"#,
    ));
    let text = house
        .modern("tools/call", "\"name\":\"t\"")
        .await
        .text()
        .await;
    assert!(
        text.contains(r#""big":12345678901234567890"#),
        "XT-541: {text}"
    );
    let body: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(body["id"], 7, "FRM-04");
    assert_eq!(body["result"]["resultType"], "complete");
    assert_eq!(body["result"]["_meta"][SERVER_INFO]["version"], "1.2.3");
    assert_eq!(body["result"]["_meta"]["v/x"], 1);
    assert!(body["result"].get("ttlMs").is_none());
}

/// CCH-02, MRT-15: a request for input carries no cache hints and is plain JSON.
#[tokio::test]
async fn cch_02_input_required_carries_no_cache_hints() {
    let text = r#"{"resultType":"input_required","requestState":"s","ttlMs":5,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"theirs"}}}"#;
    let house = fixed(result(text));
    let body = house
        .modern("tools/call", "\"name\":\"t\"")
        .await
        .json()
        .await;
    let result = &body["result"];
    assert_eq!(result["resultType"], "input_required");
    assert!(result.get("ttlMs").is_none() && result.get("cacheScope").is_none());
    assert_eq!(result["_meta"][SERVER_INFO]["name"], "vestibule");
}

/// CCH-01, PAG-03: a page of a list.
#[tokio::test]
async fn cch_01_lists_carry_their_cache_hints() {
    let page = ListPage {
        member: "tools",
        items: vec![r#"{"name":"a"}"#.into(), r#"{"name":"b"}"#.into()],
        next_cursor: Some(String::new()),
        ttl_ms: 9,
        scope: CacheScope::Private,
    };
    let body = fixed(Final::List(page))
        .modern("tools/list", "")
        .await
        .json()
        .await;
    let expected = json!({
        "tools": [{"name": "a"}, {"name": "b"}], "nextCursor": "", "resultType": "complete",
        "ttlMs": 9, "cacheScope": "private",
        "_meta": {SERVER_INFO: {"name": "vestibule", "version": "1.2.3"}},
    });
    assert_eq!(body["result"], expected);
}

/// HTR-06, SSE-12, HDR-21: notifications make a stream, without ids, priming and retry.
#[tokio::test]
async fn htr_06_a_notification_before_the_end_makes_a_stream() {
    let house = House::new(|call| {
        assert!(call.progress && call.session.is_none());
        Events::stream(stream::iter([
            progress(1),
            progress(1),
            log(LogLevel::Error),
            progress(2),
            Event::Final(result(r#"{"content":[]}"#)),
        ]))
    });
    let meta = r#","progressToken":"\u0061""#;
    let got = house
        .modern_with("tools/call", "\"name\":\"t\"", meta)
        .await;
    assert!(got.is_stream());
    assert_eq!(got.header("x-accel-buffering"), Some("no"));
    let items = got.rest().await;
    assert!(
        items
            .iter()
            .all(|item| matches!(item, Item::Event(None, _))),
        "{items:?}"
    );
    let seen: Vec<_> = items.iter().map(Item::json).collect();
    assert_eq!(seen[0]["params"]["progress"], 1);
    let Item::Event(_, raw) = &items[0] else {
        panic!()
    };
    assert!(raw.contains(r#""progressToken":"\u0061""#), "PRG-01: {raw}");
    assert_eq!(
        seen[1]["params"]["progress"], 2,
        "PRG-02; LOG-03: no log was asked for"
    );
    assert_eq!(seen[2]["result"]["resultType"], "complete");
    assert_eq!(seen.len(), 3, "SSE-14");
}

/// LOG-03: logs of the level that this request asked for.
#[tokio::test]
async fn log_03_only_logs_that_were_asked_for_are_sent() {
    let house = House::new(|call| {
        assert_eq!(call.log_level, Some(LogLevel::Warning));
        Events::stream(stream::iter([
            log(LogLevel::Info),
            log(LogLevel::Warning),
            changed("tools"),
            Event::Final(Final::Empty),
        ]))
    });
    let meta = r#","io.modelcontextprotocol/logLevel":"warning""#;
    let items = house
        .modern_with("tools/call", "\"name\":\"t\"", meta)
        .await
        .rest()
        .await;
    assert_eq!(
        items.len(),
        2,
        "HTR-08: what belongs to no request is not sent: {items:?}"
    );
    assert_eq!(items[0].json()["params"]["level"], "warning");
}

/// Case 125: a slow answer becomes a stream that is kept alive.
#[tokio::test(start_paused = true)]
async fn case_125_a_slow_answer_becomes_a_stream() {
    let house = House::new(|_| {
        Events::stream(stream::once(async {
            tokio::time::sleep(Duration::from_secs(20)).await;
            Event::Final(Final::Empty)
        }))
    });
    let begun = Instant::now();
    let mut got = house.modern("tools/call", "\"name\":\"t\"").await;
    assert!(got.is_stream());
    assert_eq!(begun.elapsed(), Duration::from_secs(2));
    assert_eq!(got.next().await, Some(Item::Comment));
    assert_eq!(begun.elapsed(), Duration::from_secs(17));
    assert_eq!(got.rest().await.len(), 1);
}

/// Case 132, HDR-01: a client that takes JSON only waits; one that takes SSE only gets SSE.
#[tokio::test(start_paused = true)]
async fn case_132_the_form_follows_accept() {
    let mut house = House::new(|_| {
        Events::stream(stream::iter([progress(1)]).chain(stream::once(async {
            tokio::time::sleep(Duration::from_secs(20)).await;
            Event::Final(Final::Empty)
        })))
    });
    let meta = r#","progressToken":1"#;
    house.accepts = Accepts {
        sse: false,
        ..Accepts::ANY
    };
    let body = house
        .modern_with("tools/call", "\"name\":\"t\"", meta)
        .await
        .json()
        .await;
    assert_eq!(body["result"]["resultType"], "complete");
    let mut house = fixed(Final::Empty);
    house.accepts = Accepts {
        json: false,
        ..Accepts::ANY
    };
    let got = house.modern("tools/call", "\"name\":\"t\"").await;
    assert!(got.is_stream());
    assert_eq!(got.rest().await.len(), 1);
    let got = house.modern("ping", "").await;
    assert_eq!(got.status(), 404, "an error keeps its status");
}

struct Flag(Arc<AtomicBool>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn watched(events: Vec<Event>, dropped: &Arc<AtomicBool>) -> Events {
    let flag = Flag(Arc::clone(dropped));
    Events::stream(
        stream::iter(events)
            .chain(stream::pending())
            .inspect(move |_| {
                let _held = &flag;
            }),
    )
}

/// Case 85, SSE-10: the client that goes takes its call along, before and after the head.
#[tokio::test(start_paused = true)]
async fn case_85_a_client_that_goes_cancels_its_call() {
    for streaming in [false, true] {
        let dropped = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&dropped);
        let house = House::new(move |_| {
            watched(
                if streaming {
                    vec![progress(1)]
                } else {
                    Vec::new()
                },
                &seen,
            )
        });
        let meta = r#","progressToken":1"#;
        let asking = house.modern_with("tools/call", "\"name\":\"t\"", meta);
        if streaming {
            let mut got = asking.await;
            assert!(got.next().await.is_some());
            assert!(!dropped.load(Ordering::SeqCst));
            drop(got);
            tokio::time::sleep(Duration::from_millis(10)).await;
        } else {
            let waited = tokio::time::timeout(Duration::from_secs(1), asking).await;
            assert!(waited.is_err());
        }
        assert!(dropped.load(Ordering::SeqCst), "streaming: {streaming}");
    }
}

/// SSE-17: a stateless client that does not read is cut off, so that it retries.
#[tokio::test(start_paused = true)]
async fn sse_17_a_slow_stateless_client_is_cut_off() {
    let house = House::new(|_| then_silence((1..2000).map(progress).collect()));
    let meta = r#","progressToken":1"#;
    let mut got = house
        .modern_with("tools/call", "\"name\":\"t\"", meta)
        .await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(got.is_broken().await);
}

/// HTR-09: there is no way to put a question to a stateless client; its asker is told.
#[tokio::test]
async fn htr_09_questions_are_refused_where_they_came_from() {
    let house = House::new(|_| {
        let ask = question(5, Method::SamplingCreateMessage, "{}");
        Events::stream(stream::iter([
            Event::Question(ask),
            Event::Final(Final::Empty),
        ]))
    });
    let got = house.modern("tools/call", "\"name\":\"t\"").await;
    assert_eq!(got.header("content-type"), Some("application/json"));
    tokio::task::yield_now().await;
    let taken = house.back.taken();
    assert!(
        taken[0].starts_with(r#"answer 5 {"jsonrpc":"2.0","id":5,"error""#),
        "{taken:?}"
    );
}

/// STA-15, HTR-05, case 57: 202 without a body and without a type.
#[tokio::test]
async fn case_57_notifications_are_accepted_without_a_body() {
    let house = fixed(Final::Empty);
    let note = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#;
    let got = house
        .post(&[("mcp-protocol-version", "2026-07-28")], note)
        .await;
    assert_eq!(got.status(), 202);
    assert_eq!(got.header("content-type"), None);
    assert_eq!(got.text().await, "");
}

/// XT-004, HDR-08, case 159: session and event id are ignored, and none is minted or echoed.
#[tokio::test]
async fn case_159_old_session_headers_are_ignored() {
    let house = House::new(|call| {
        assert!(call.session.is_none());
        Events::ready(Final::Empty)
    });
    let headers = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/list"),
        ("mcp-session-id", "x"),
        ("last-event-id", "y"),
    ];
    let got = house
        .post(&headers, &modern_body("tools/list", "", ""))
        .await;
    assert_eq!(
        (got.status().as_u16(), got.header("mcp-session-id")),
        (200, None)
    );
}

/// HDR-18, HDR-19: parameter headers travel with the call, decoded or not.
#[tokio::test]
async fn hdr_19_parameter_headers_reach_the_stage_that_knows_the_tool() {
    let house = House::new(|call| {
        assert_eq!(
            &*call.param_headers,
            &[("region".to_owned(), Ok("eu".to_owned()))]
        );
        Events::ready(Final::Empty)
    });
    let headers = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "t"),
        ("mcp-param-region", "eu"),
    ];
    let body = modern_body("tools/call", "\"name\":\"t\"", "");
    assert_eq!(house.post(&headers, &body).await.status(), 200);
}

const FILTER: &str = r#""notifications":{"toolsListChanged":true,"resourceSubscriptions":["a:b"]}"#;

/// SUB-01, SUB-02, SUB-03: acknowledged first, then only what was asked for, under our id.
#[tokio::test(start_paused = true)]
async fn sub_01_a_listen_is_acknowledged_first_and_filtered() {
    let house = House::new(|call| {
        assert_eq!(call.method, Method::SubscriptionsListen);
        then_silence(vec![
            changed("tools"),
            acknowledged(),
            changed("tools"),
            changed("prompts"),
            progress(1),
            log(LogLevel::Error),
            updated("a:b"),
            updated("a:c"),
        ])
    });
    let mut got = house.modern("subscriptions/listen", FILTER).await;
    assert!(got.is_stream());
    let mut methods = Vec::new();
    while let Some(Item::Event(id, data)) = got.next().await {
        assert_eq!(id, None, "SSE-12");
        let message: serde_json::Value = serde_json::from_str(&data).unwrap();
        assert_eq!(message["params"]["_meta"][SUBSCRIPTION], 7);
        methods.push(message["method"].as_str().unwrap().to_owned());
    }
    assert_eq!(
        methods,
        [
            "notifications/subscriptions/acknowledged",
            "notifications/tools/list_changed",
            "notifications/resources/updated"
        ]
    );
}

/// SUB-04, case 69: when the gateway stops, a listen gets its result.
#[tokio::test(start_paused = true)]
async fn sub_04_draining_ends_a_listen_with_its_result() {
    let house = House::new(|_| then_silence(vec![acknowledged()]));
    let mut got = house.modern("subscriptions/listen", FILTER).await;
    assert!(got.next().await.is_some());
    house.supervisor().drain();
    let items = got.rest().await;
    assert_eq!(items.len(), 1);
    let body = items[0].json();
    assert_eq!(body["id"], 7);
    assert_eq!(body["result"]["resultType"], "complete");
    assert_eq!(body["result"]["_meta"][SUBSCRIPTION], 7);
}

/// SUB-04: an upstream's end of the listen ends it with our own result.
#[tokio::test]
async fn sub_04_the_end_of_a_listen_is_a_result_under_our_id() {
    let house = House::new(|_| {
        let theirs =
            r#"{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":"g-1"}}"#;
        Events::stream(stream::iter([acknowledged(), Event::Final(result(theirs))]))
    });
    let items = house
        .modern("subscriptions/listen", FILTER)
        .await
        .rest()
        .await;
    assert_eq!(items[1].json()["result"]["_meta"][SUBSCRIPTION], 7);
}

/// SUB-06, SUB-08, AMB-39: refusals of a listen.
#[tokio::test(start_paused = true)]
async fn sub_06_listens_are_refused_before_they_become_streams() {
    let mut house = House::new(|_| then_silence(vec![acknowledged()]));
    let got = house.modern("subscriptions/listen", "").await;
    assert_eq!((got.status().as_u16(), got.code().await), (200, -32602));
    let mut open = Vec::new();
    for _ in 0..8 {
        open.push(house.modern("subscriptions/listen", FILTER).await);
    }
    let got = house.modern("subscriptions/listen", FILTER).await;
    assert_eq!(got.status(), 429);
    assert!(got.header("retry-after").is_some());
    assert_eq!(got.code().await, -31005);
    open.pop();
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(
        house.modern("subscriptions/listen", FILTER).await.status(),
        200
    );
    house.accepts = Accepts {
        sse: false,
        ..Accepts::ANY
    };
    assert_eq!(
        house.modern("subscriptions/listen", FILTER).await.status(),
        406
    );
    let house = fixed(Final::Error(RpcError::new(-31007, "no")));
    let got = house.modern("subscriptions/listen", FILTER).await;
    assert_eq!((got.status().as_u16(), got.code().await), (200, -31007));
}

/// FRM-07, AMB-36: the same id twice at once is two requests.
#[tokio::test]
async fn frm_07_ids_of_stateless_requests_do_not_collide() {
    let house = fixed(Final::Empty);
    let (one, other) = tokio::join!(
        house.modern("tools/list", ""),
        house.modern("tools/list", "")
    );
    assert_eq!((one.status().as_u16(), other.status().as_u16()), (200, 200));
}

/// The record learns revision, method, target and outcome.
#[tokio::test]
async fn the_record_learns_what_the_request_was() {
    let house = fixed(result(r#"{"content":[],"isError":true}"#));
    let headers = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "t"),
    ];
    let body = modern_body("tools/call", "\"name\":\"t\"", "");
    let request = house.request(http::Method::POST, &headers, Some(&body));
    let record = request
        .extensions()
        .get::<vestibule_terms::Record>()
        .unwrap()
        .clone();
    record.trace_stages();
    house.send(request).await;
    assert_eq!(record.stages(), ["session"]);
    assert_eq!(record.revision(), Some(&Revision::R2026_07_28));
    assert_eq!(record.method(), Some(&Method::ToolsCall));
    assert_eq!(record.target().map(|target| &**target), Some("t"));
    assert_eq!(record.outcome(), Some(&vestibule_terms::Outcome::ToolError));
}

/// A fact that is missing is our own fault, never a panic.
#[tokio::test]
async fn a_missing_fact_is_an_internal_error() {
    let house = fixed(Final::Empty);
    let mut request = house.request(http::Method::GET, &[], None);
    request.extensions_mut().remove::<Accepts>();
    assert_eq!(house.send(request).await.status(), 500);
    let request = house.request(http::Method::POST, &[], None);
    assert_eq!(house.send(request).await.status(), 500);
}

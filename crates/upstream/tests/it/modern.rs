//! Stateless upstreams over HTTP.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::header::{AUTHORIZATION, HeaderName};
use serde_json::{Value, json};
use vestibule_exchange::{Capabilities, Connector, Event, Final, LogLevel};
use vestibule_terms::{Era, Method, Secret};

use crate::world::{
    Seen, Server, World, call, event, http_target, json_answer, list, modern_discover, next,
    open_sse, reason, sse, tenant, tool, upstream,
};

fn discover_or(
    seen: &Seen,
    answer: impl FnOnce() -> http::Response<axum::body::Body>,
) -> http::Response<axum::body::Body> {
    if seen.method() == "server/discover" {
        modern_discover(seen)
    } else {
        answer()
    }
}

/// HDR-02, HDR-11, HDR-24, MET-02, cases 103, 133, 135: exactly these headers, and the upstream's
/// own name.
#[tokio::test]
async fn hdr_11_a_modern_request_carries_our_headers_and_metadata_only() {
    let mut server = Server::start(|seen| async move {
        discover_or(&seen, || {
            json_answer(
                200,
                &seen.result(json!({ "resultType": "complete", "tools": [] })),
            )
        })
    })
    .await;
    let secret = |text: &str| Secret::new(text.to_owned());
    let mut target = http_target(&server.url);
    target.headers = vec![
        (AUTHORIZATION, secret("Bearer upstream")),
        (HeaderName::from_static("x-team"), secret("a")),
    ];
    let world = World::new(target);
    let mut outbound = call(
        Method::ToolsCall,
        json!({ "name": "größe", "arguments": {}, "_meta": { "com.example/x": 1, "progressToken": 7 } }),
    );
    outbound.name = Some("größe".to_owned());
    outbound.param_headers = vec![("Region".to_owned(), "eu".to_owned())];
    outbound.progress = true;
    let declared = br#"{"sampling":{},"elicitation":{"url":{}}}"#;
    outbound.capabilities = Arc::new(Capabilities::parse(declared));
    let answer = world.message(outbound).await;
    let seen = server.next_method("tools/call").await;
    assert_eq!(answer["result"]["tools"], json!([]));
    for (name, value) in [
        ("accept", "application/json, text/event-stream"),
        ("content-type", "application/json"),
        ("accept-encoding", "identity"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "=?base64?Z3LDtsOfZQ==?="),
        ("mcp-param-region", "eu"),
        ("authorization", "Bearer upstream"),
        ("x-team", "a"),
    ] {
        assert_eq!(seen.header(name), Some(value), "{name}");
    }
    assert!(server.url.contains(seen.header("host").unwrap()));
    assert_eq!(
        seen.header("content-length"),
        Some(seen.raw.len().to_string().as_str())
    );
    assert!(seen.header("origin").is_none() && seen.header("user-agent").is_none());
    let meta = &seen.body["params"]["_meta"];
    assert_eq!(meta["com.example/x"], 1);
    assert_eq!(meta["progressToken"], seen.body["id"]);
    assert_eq!(
        meta["io.modelcontextprotocol/clientInfo"],
        json!({ "name": "gate", "version": "9" })
    );
    // CAP-06, ELI-14: with a credential that everybody shares no url elicitation is declared
    assert_eq!(
        meta["io.modelcontextprotocol/clientCapabilities"],
        json!({ "sampling": {} })
    );
    assert_ne!(seen.body["id"], 101);
}

/// Case 89, FRM-20, SSE-02, PRG-01: notifications come first, requests are ignored, the response ends it.
#[tokio::test]
async fn case_89_notifications_on_the_stream_do_not_end_the_call() {
    let server = Server::start(|seen| async move {
        discover_or(&seen, || {
            let token = &seen.body["id"];
            let progress = |value: f64| {
                json!({ "jsonrpc": "2.0", "method": "notifications/progress",
                "params": { "progressToken": token, "progress": value } })
            };
            let log = json!({ "jsonrpc": "2.0", "method": "notifications/message",
                "params": { "level": "error", "data": "x" } });
            let question = json!({ "jsonrpc": "2.0", "id": token, "method": "ping" });
            let result = seen.result(json!({ "resultType": "complete" }));
            sse([
                progress(1.0),
                log,
                question,
                progress(1.0),
                progress(2.0),
                result,
            ]
            .iter()
            .map(event)
            .collect())
        })
    })
    .await;
    let world = World::http(&server);
    let mut outbound = tool("t");
    (outbound.progress, outbound.log_level) = (true, Some(LogLevel::Info));
    let mut events = world.events(outbound).await;
    assert!(matches!(next(&mut events).await, Event::Progress(_)));
    assert!(matches!(
        next(&mut events).await,
        Event::Log {
            level: LogLevel::Error,
            ..
        }
    ));
    assert!(matches!(next(&mut events).await, Event::Progress(_)));
    assert!(matches!(
        next(&mut events).await,
        Event::Final(Final::Message(_))
    ));
    assert_eq!(server.log().len(), 2, "FRM-20: nothing is answered");
}

/// Case 127: CRLF, CRLF split over chunks, lone CR and a byte order mark are one event each.
#[tokio::test]
async fn case_127_line_ends_of_every_kind_are_understood() {
    let server = Server::start(|seen| async move {
        discover_or(&seen, || {
            let result = seen.result(json!({ "resultType": "complete" }));
            sse(format!(
                "\u{feff}: hi\r\nevent: message\r\ndata: {result}\r\n\r\n"
            ))
        })
    })
    .await;
    let answer = World::http(&server).message(tool("t")).await;
    assert_eq!(answer["result"]["resultType"], "complete");
}

/// SSE-11, CAN-09, case 85: dropping the events closes the response stream.
#[tokio::test]
async fn case_85_dropping_the_events_closes_the_response_stream() {
    let (tell, mut told) = tokio::sync::mpsc::channel(1);
    let server = Server::start(move |seen| {
        let tell = tell.clone();
        async move {
            discover_or(&seen, || {
                let progress = json!({ "jsonrpc": "2.0", "method": "notifications/progress",
                    "params": { "progressToken": seen.body["id"], "progress": 1 } });
                let (answer, given_up) = open_sse(event(&progress));
                tell.try_send(given_up).unwrap();
                answer
            })
        }
    })
    .await;
    let world = World::http(&server);
    let mut outbound = tool("t");
    outbound.progress = true;
    let mut events = world.events(outbound).await;
    assert!(matches!(next(&mut events).await, Event::Progress(_)));
    let mut given_up = told.recv().await.unwrap();
    drop(events);
    let closed = tokio::time::timeout(std::time::Duration::from_secs(5), given_up.recv());
    assert_eq!(closed.await.expect("the stream is closed"), None);
}

/// Case 130 (b): an answer ends the call although its stream stays open.
#[tokio::test]
async fn case_130_a_stream_that_stays_open_does_not_hold_the_call() {
    let server = Server::start(|seen| async move {
        discover_or(&seen, || open_sse(event(&seen.result(json!({})))).0)
    })
    .await;
    World::http(&server).message(tool("t")).await;
}

/// Case 60, FRM-09, FRM-22, HTR-07: malformed answers end the call with one clear error.
#[tokio::test]
async fn case_60_answers_that_break_the_protocol_are_31003() {
    let server = Server::start(|seen| async move {
        let kind = seen.body["params"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let id = seen.body["id"].clone();
        let error = json!({ "code": 1, "message": "x" });
        discover_or(&seen, || match kind.as_str() {
            "both" => json_answer(
                200,
                &json!({ "jsonrpc": "2.0", "id": id, "result": {}, "error": error }),
            ),
            "neither" => json_answer(200, &json!({ "jsonrpc": "2.0", "id": id })),
            "wrong-id" => json_answer(200, &json!({ "jsonrpc": "2.0", "id": 999, "result": {} })),
            "result-type" => json_answer(200, &seen.result(json!({ "resultType": "maybe" }))),
            "sse-wrong-id" => sse(event(&json!({ "jsonrpc": "2.0", "id": 999, "result": {} }))),
            "sse-garbage" => sse("data: {oops\n\n".to_owned()),
            "empty" => json_answer(200, &json!([])),
            "accepted" => crate::world::empty(202),
            "gzip" => {
                let mut answer = json_answer(200, &seen.result(json!({})));
                answer
                    .headers_mut()
                    .insert("content-encoding", "gzip".parse().unwrap());
                answer
            }
            _ => http::Response::builder()
                .header("content-type", "text/html")
                .body("<p>".into())
                .unwrap(),
        })
    })
    .await;
    let world = World::http(&server);
    for kind in [
        "both",
        "neither",
        "wrong-id",
        "result-type",
        "sse-wrong-id",
        "sse-garbage",
        "empty",
        "accepted",
        "gzip",
        "html",
    ] {
        assert_eq!(world.code(tool(kind)).await, -31003, "{kind}");
    }
}

/// STA-27: error responses pass untouched, whatever the status: mapping them is done elsewhere.
#[tokio::test]
async fn sta_27_error_responses_pass_untouched() {
    let server = Server::start(|seen| async move {
        let code = seen.body["params"]["arguments"]["code"]
            .as_i64()
            .unwrap_or_default();
        let status = u16::try_from(
            seen.body["params"]["arguments"]["status"]
                .as_u64()
                .unwrap_or(200),
        )
        .unwrap();
        discover_or(&seen, || {
            json_answer(status, &seen.error(code, json!({ "k": [1.50] })))
        })
    })
    .await;
    let world = World::http(&server);
    for (status, code) in [
        (400, -32020),
        (400, -32021),
        (404, -32601),
        (200, -32602),
        (200, 7),
        (500, -32603),
    ] {
        let params = json!({ "name": "t", "arguments": { "code": code, "status": status } });
        let answer = world.message(call(Method::ToolsCall, params)).await;
        assert_eq!(answer["error"]["code"], code, "{status}");
        assert_eq!(answer["error"]["data"], json!({ "k": [1.50] }));
    }
}

/// BAT-09 and case 55: many calls at once each get their own answer, whatever ids clients use.
#[tokio::test]
async fn case_55_a_hundred_calls_with_one_client_id_get_their_own_answers() {
    let server = Server::start(|seen| async move {
        discover_or(&seen, || {
            let name = seen.body["params"]["name"].clone();
            json_answer(200, &json!([seen.result(json!({ "secret": name }))]))
        })
    })
    .await;
    let world = Arc::new(World::http(&server));
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..100 {
        let world = Arc::clone(&world);
        calls.spawn(async move {
            let name = format!("canary-{n}");
            let answer = world.message(tool(&name)).await;
            assert_eq!(answer["result"]["secret"], name);
        });
    }
    while let Some(done) = calls.join_next().await {
        done.unwrap();
    }
    let ids: std::collections::HashSet<String> = server
        .log()
        .iter()
        .map(|seen| seen.body["id"].to_string())
        .collect();
    assert_eq!(ids.len(), server.log().len(), "FRM-05: no id occurs twice");
    assert_eq!(server.count("server/discover"), 1, "one probe for all");
}

/// LIF-14: a discover result lives as long as it says, at least a second.
#[tokio::test]
async fn lif_14_the_profile_is_kept_for_its_lifetime() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let server = Server::start(move |seen| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move { modern_discover(&seen) }
    })
    .await;
    let world = World::http(&server);
    assert!(
        world
            .upstreams
            .known_profile(&tenant(), &upstream(), Era::Modern)
            .is_none()
    );
    for _ in 0..3 {
        let profile = world
            .upstreams
            .profile(tenant(), upstream(), Era::Modern)
            .await
            .unwrap();
        assert_eq!(profile.revision.as_str(), "2026-07-28");
        assert!(profile.offers("tools") && profile.over_http);
    }
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    assert!(
        world
            .upstreams
            .known_profile(&tenant(), &upstream(), Era::Modern)
            .is_some()
    );
}

/// VER-10: a version error that names only revisions with a handshake leads there, once.
#[tokio::test]
async fn ver_10_a_version_error_changes_the_era() {
    let turned = Arc::new(AtomicUsize::new(0));
    let state = Arc::clone(&turned);
    let server = Server::start(move |seen| {
        let legacy = state.load(Ordering::SeqCst) > 0;
        let state = Arc::clone(&state);
        async move {
            match seen.method() {
                "server/discover" if !legacy => modern_discover(&seen),
                "tools/list" if seen.header("mcp-method").is_some() => {
                    state.fetch_add(1, Ordering::SeqCst);
                    json_answer(
                        400,
                        &seen.error(-32022, json!({ "supported": ["2025-06-18"] })),
                    )
                }
                "tools/list" => json_answer(200, &seen.result(json!({ "tools": [] }))),
                _ => crate::world::legacy_frame(&seen, "2025-06-18", None).unwrap(),
            }
        }
    })
    .await;
    let world = World::http(&server);
    assert_eq!(world.message(list()).await["result"]["tools"], json!([]));
    assert_eq!(world.message(list()).await["result"]["tools"], json!([]));
    assert_eq!(turned.load(Ordering::SeqCst), 1);
    let profile = world
        .upstreams
        .known_profile(&tenant(), &upstream(), Era::Modern)
        .unwrap();
    assert_eq!(profile.revision.as_str(), "2025-06-18");
}

/// Without any common version the upstream is unavailable, for this reason.
#[tokio::test]
async fn ver_10_no_common_version_is_unavailable() {
    let server = Server::start(|seen| async move {
        json_answer(
            400,
            &seen.error(-32022, json!({ "supported": ["2031-01-01"] })),
        )
    })
    .await;
    let error = World::http(&server).error(tool("t")).await;
    assert_eq!(
        (error.code, reason(&error).as_str()),
        (-31001, "upstream_version")
    );
}

/// The record says which upstream answered and for how long it was waited for.
#[tokio::test]
async fn the_record_and_the_metrics_know_the_upstream() {
    let server = Server::start(|seen| async move {
        discover_or(&seen, || {
            json_answer(200, &seen.result(json!({ "isError": true })))
        })
    })
    .await;
    let world = World::http(&server);
    let outbound = tool("t");
    let record = outbound.record.clone();
    record.trace_stages();
    let _answer: Value = world.message(outbound).await;
    assert_eq!(record.upstream(), Some(&upstream()));
    assert_eq!(record.stages(), ["upstream"]);
    assert!(record.upstream_micros() > 0);
    let text = world.metrics.expose();
    assert!(
        text.contains(r#"outcome="tool_error""#) && text.contains("vestibule_upstream_up"),
        "{text}"
    );
}

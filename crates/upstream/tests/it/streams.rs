//! Streams of upstreams with a handshake: broken, polled, and the standalone one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use vestibule_exchange::{Arrival, Capabilities, Event, Final, Inlet, LogLevel, Outbound, Sharing};
use vestibule_terms::{Method, UpstreamId};

use crate::world::{
    Seen, Server, World, call, client_session, empty, event, json_answer, legacy_frame, next,
    open_sse, reason, sse, tool,
};

fn log(text: &str) -> Value {
    json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "error", "data": text } })
}

fn with_id(id: &str, data: &Value) -> String {
    format!("id: {id}\n{}", event(data))
}

fn logging(outbound: Outbound) -> Outbound {
    Outbound {
        log_level: Some(LogLevel::Debug),
        ..outbound
    }
}

/// A server whose tool calls are answered by a stream that ends, and whose GET goes on with it.
async fn polled(
    first: impl Fn(&Seen) -> String + Send + Sync + 'static,
    then: impl Fn(usize, &Seen, &Value) -> http::Response<axum::body::Body> + Send + Sync + 'static,
) -> Server {
    let resumed = AtomicUsize::new(0);
    let id = std::sync::Mutex::new(Value::Null);
    Server::start(move |seen| {
        let answer = if seen.header("last-event-id").is_some() {
            let turn = resumed.fetch_add(1, Ordering::SeqCst);
            then(turn, &seen, &id.lock().unwrap())
        } else if matches!(seen.method(), "tools/call" | "tools/list") {
            *id.lock().unwrap() = seen.body["id"].clone();
            sse(first(&seen))
        } else {
            legacy_frame(&seen, "2025-11-25", Some("s")).unwrap()
        };
        async move { answer }
    })
    .await
}

fn answer(id: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": { "ok": true } })
}

/// RES-08, RES-09, SSE-06, case 130 (a): the stream goes on behind the last event id, nothing is
/// told twice, and whoever reads the events is told of the pause.
#[tokio::test]
async fn res_08_a_polled_stream_is_continued_behind_its_last_event() {
    let server = polled(
        |_| format!("id: e0\nretry: 10\ndata:\n\n{}", with_id("e1", &log("one"))),
        |turn, seen, id| match turn {
            0 => {
                assert_eq!(seen.header("last-event-id"), Some("e1"));
                sse(format!(
                    "{}{}",
                    with_id("e1", &log("one")),
                    with_id("e2", &log("two"))
                ))
            }
            1 => empty(409),
            _ => {
                assert_eq!(seen.header("last-event-id"), Some("e2"));
                sse(with_id("e3", &answer(id)))
            }
        },
    )
    .await;
    let world = World::http(&server);
    let mut events = world.events(logging(tool("t"))).await;
    let retry = Some(Duration::from_millis(10));
    let text = |event: Event| match event {
        Event::Log { message, .. } => {
            let value: Value = serde_json::from_slice(&message.to_bytes()).unwrap();
            value["params"]["data"].as_str().unwrap().to_owned()
        }
        Event::Paused { retry: asked } if asked == retry => "paused".to_owned(),
        Event::Final(Final::Message(_)) => "answer".to_owned(),
        event => panic!("{event:?}"),
    };
    for expected in ["one", "paused", "two", "paused", "answer"] {
        assert_eq!(text(next(&mut events).await), expected);
    }
    let gets: Vec<Seen> = server
        .log()
        .into_iter()
        .filter(|seen| seen.http == http::Method::GET)
        .collect();
    assert_eq!(gets.len(), 3);
    for seen in gets {
        assert_eq!(seen.header("accept"), Some("text/event-stream"));
        assert_eq!(seen.header("mcp-session-id"), Some("s"));
        assert_eq!(seen.header("mcp-protocol-version"), Some("2025-11-25"));
    }
}

/// RES-08: a stream that cannot be continued leaves the outcome open.
#[tokio::test]
async fn res_08_a_stream_that_cannot_be_continued_has_an_unknown_outcome() {
    for status in [404, 405, 400] {
        let server = polled(
            |_| format!("retry: 1\n{}", with_id("e1", &log("one"))),
            move |_, _, _| empty(status),
        )
        .await;
        let error = World::http(&server).error(tool("t")).await;
        assert_eq!(
            (error.code, reason(&error).as_str()),
            (-31001, "outcome_unknown"),
            "{status}"
        );
    }
}

/// RES-08: a connection that breaks in the middle is continued like one that ends, only that nobody
/// is told of a pause.
#[tokio::test]
async fn res_08_a_broken_connection_is_continued_without_a_pause() {
    let id = Arc::new(std::sync::Mutex::new(Value::Null));
    let breaks = Arc::new(tokio::sync::Notify::new());
    let inside = (Arc::clone(&id), Arc::clone(&breaks));
    let server = Server::start(move |seen| {
        let (id, breaks) = (Arc::clone(&inside.0), Arc::clone(&inside.1));
        async move {
            if seen.header("last-event-id") == Some("e1") {
                return sse(with_id("e2", &answer(&id.lock().unwrap())));
            }
            if seen.method() != "tools/call" {
                return legacy_frame(&seen, "2025-06-18", None).unwrap();
            }
            *id.lock().unwrap() = seen.body["id"].clone();
            broken_sse(format!("retry: 1\n{}", with_id("e1", &log("one"))), breaks)
        }
    })
    .await;
    let world = World::http(&server);
    let mut events = world.events(logging(tool("t"))).await;
    assert!(matches!(next(&mut events).await, Event::Log { .. }));
    breaks.notify_one();
    assert!(matches!(
        next(&mut events).await,
        Event::Final(Final::Message(_))
    ));
}

/// A stream of that text whose connection then breaks.
fn broken_sse(text: String, breaks: Arc<tokio::sync::Notify>) -> http::Response<axum::body::Body> {
    let first = stream::once(async move { Ok(bytes::Bytes::from(text)) });
    let then = stream::once(async move {
        breaks.notified().await;
        Err(std::io::Error::other("broken"))
    });
    http::Response::builder()
        .header("content-type", "text/event-stream")
        .body(axum::body::Body::from_stream(first.chain(then)))
        .unwrap()
}

/// SSE-13, case 130: without event ids a tool call is lost, a list is asked for once more.
#[tokio::test]
async fn case_130_a_stream_without_ids_cannot_be_continued() {
    let server = polled(|_| event(&log("one")), |_, _, _| empty(500)).await;
    let world = World::http(&server);
    assert_eq!(reason(&world.error(tool("t")).await), "outcome_unknown");
    assert_eq!(server.count("tools/call"), 1);
    assert_eq!(
        reason(&world.error(call(Method::ToolsList, json!({}))).await),
        "connection_lost"
    );
    assert_eq!(server.count("tools/list"), 2);
}

/// What arrived at an inlet.
struct Mailbox(mpsc::Sender<Arrival>);

impl Inlet for Mailbox {
    fn arrive(&self, upstream: &UpstreamId, arrival: Arrival) {
        assert_eq!(upstream.as_str(), "up");
        self.0.try_send(arrival).unwrap();
    }
}

fn mailbox() -> (Arc<dyn Inlet>, mpsc::Receiver<Arrival>) {
    let (tell, told) = mpsc::channel(16);
    (Arc::new(Mailbox(tell)), told)
}

/// GET-06: the stream of an interactive session is there before its first call; what comes over it
/// goes to the inlet, and a ping is answered.
#[tokio::test]
async fn get_06_the_get_stream_is_opened_before_the_first_interactive_call() {
    let held = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut server = Server::start(move |seen| {
        let held = Arc::clone(&held);
        async move {
            if seen.http == http::Method::GET {
                let unasked = [
                    json!({ "jsonrpc": "2.0", "id": "p", "method": "ping" }),
                    json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" }),
                    json!({ "jsonrpc": "2.0", "method": "notifications/resources/updated", "params": { "uri": "a:b" } }),
                    json!({ "jsonrpc": "2.0", "method": "notifications/unheard" }),
                    log("aside"),
                    json!({ "jsonrpc": "2.0", "id": 0, "method": "elicitation/create", "params": {} }),
                ];
                let (answer, given_up) = open_sse(unasked.iter().map(event).collect());
                held.lock().unwrap().push(given_up);
                return answer;
            }
            legacy_frame(&seen, "2025-11-25", Some("s"))
                .unwrap_or_else(|| json_answer(200, &seen.result(json!({}))))
        }
    })
    .await;
    let world = World::http(&server);
    let (inlet, mut told) = mailbox();
    let outbound = Outbound {
        sharing: Sharing::Session(client_session("c")),
        capabilities: Arc::new(Capabilities {
            elicit_form: true,
            ..Capabilities::default()
        }),
        inlet: Some(inlet),
        ..call(Method::ToolsList, json!({}))
    };
    world.message(outbound).await;
    let order: Vec<String> = server
        .log()
        .iter()
        .filter(|seen| seen.http == http::Method::GET || seen.method() == "tools/list")
        .map(|seen| seen.http.to_string())
        .collect();
    assert_eq!(order, ["GET", "POST"]);
    let pong = server.next(|seen| seen.body["id"] == "p").await;
    assert_eq!(pong.body["result"], json!({}));
    assert!(matches!(
        told.recv().await,
        Some(Arrival::ListChanged(Method::ToolsListChanged, _))
    ));
    assert!(matches!(told.recv().await, Some(Arrival::Updated(_))));
    let aside = told.recv().await;
    if matches!(aside, Some(Arrival::Log { .. })) {
        assert!(matches!(told.recv().await, Some(Arrival::Question(_))));
    } else {
        // the call was still open when it came, so it belonged to that
        assert!(matches!(aside, Some(Arrival::Question(_))));
    }
}

/// GET-06: 405 is remembered, and no obstacle.
#[tokio::test]
async fn get_06_an_upstream_without_a_get_stream_is_asked_once() {
    let server = Server::start(|seen| async move {
        legacy_frame(&seen, "2025-11-25", Some("s"))
            .unwrap_or_else(|| json_answer(200, &seen.result(json!({}))))
    })
    .await;
    let world = World::http(&server);
    for name in ["x", "y"] {
        let outbound = Outbound {
            sharing: Sharing::Session(client_session(name)),
            capabilities: Arc::new(Capabilities {
                sampling: true,
                ..Capabilities::default()
            }),
            ..tool("t")
        };
        world.message(outbound).await;
    }
    let gets = server
        .log()
        .iter()
        .filter(|seen| seen.http == http::Method::GET)
        .count();
    assert_eq!(gets, 1);
}

/// GET-06: a session that asks nothing and has nobody listening gets no stream.
#[tokio::test]
async fn get_06_a_plain_session_opens_no_get_stream() {
    let server = Server::start(|seen| async move {
        legacy_frame(&seen, "2025-11-25", Some("s"))
            .unwrap_or_else(|| json_answer(200, &seen.result(json!({}))))
    })
    .await;
    World::http(&server).message(tool("t")).await;
    assert!(
        server
            .log()
            .iter()
            .all(|seen| seen.http != http::Method::GET)
    );
}

/// The GET stream is taken up again behind its last event.
#[tokio::test]
async fn get_06_the_get_stream_is_taken_up_again() {
    let turns = Arc::new(AtomicUsize::new(0));
    let held = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut server = Server::start(move |seen| {
        let (turns, held) = (Arc::clone(&turns), Arc::clone(&held));
        async move {
            let changed =
                json!({ "jsonrpc": "2.0", "method": "notifications/prompts/list_changed" });
            if seen.http != http::Method::GET {
                return legacy_frame(&seen, "2025-11-25", Some("s"))
                    .unwrap_or_else(|| json_answer(200, &seen.result(json!({}))));
            }
            if turns.fetch_add(1, Ordering::SeqCst) == 0 {
                return sse(format!("retry: 5\n{}", with_id("g1", &changed)));
            }
            let text = with_id("g1", &changed) + &with_id("g2", &changed);
            let (answer, given_up) = open_sse(text);
            held.lock().unwrap().push(given_up);
            answer
        }
    })
    .await;
    let world = World::http(&server);
    let (inlet, mut told) = mailbox();
    let outbound = Outbound {
        sharing: Sharing::Session(client_session("c")),
        inlet: Some(inlet),
        ..tool("t")
    };
    world.message(outbound).await;
    for _ in 0..2 {
        assert!(matches!(
            told.recv().await,
            Some(Arrival::ListChanged(Method::PromptsListChanged, _))
        ));
    }
    server
        .next(|seen| seen.header("last-event-id") == Some("g1"))
        .await;
    assert!(told.try_recv().is_err(), "RES-09: an event is told once");
}

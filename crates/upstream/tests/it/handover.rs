//! Two processes on one upstream session: what one began the other goes on with.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use vestibule_exchange::{
    Arrival, Away, BoxFuture, Capabilities, Connector, Continuation, Event, Events, Final, Inlet,
    Outbound, Sharing,
};
use vestibule_terms::{Deadline, Era, Method, UpstreamId};

use crate::world::{
    Seen, Server, World, client_session, draft, empty, event, json_answer, legacy_frame, next,
    open_sse, reason, sse, tool, upstream,
};

/// What the record of a client session holds, wherever it is read.
#[derive(Debug, Default)]
struct Notebook {
    written: Mutex<HashMap<UpstreamId, Bytes>>,
    /// How many more times it cannot be read.
    away: AtomicI32,
}

impl Inlet for Notebook {
    fn arrive(&self, _upstream: &UpstreamId, _arrival: Arrival) {}

    fn recall(&self, upstream: &UpstreamId) -> BoxFuture<Result<Option<Bytes>, Away>> {
        let written = self.written.lock().unwrap().get(upstream).cloned();
        let away = self.away.fetch_sub(1, Ordering::Relaxed) > 0;
        Box::pin(std::future::ready(if away {
            Err(Away)
        } else {
            Ok(written)
        }))
    }

    fn remember(
        &self,
        upstream: &UpstreamId,
        record: Bytes,
        instead: Option<Bytes>,
    ) -> BoxFuture<Option<Bytes>> {
        let mut written = self.written.lock().unwrap();
        if written.get(upstream) == instead.as_ref() {
            written.insert(upstream.clone(), record);
        }
        Box::pin(std::future::ready(written.get(upstream).cloned()))
    }
}

fn private(notebook: &Arc<Notebook>, outbound: Outbound) -> Outbound {
    Outbound {
        era: Era::Legacy,
        sharing: Sharing::Session(client_session("c")),
        capabilities: Arc::new(Capabilities {
            elicit_form: true,
            ..Capabilities::default()
        }),
        inlet: Some(Arc::clone(notebook) as Arc<dyn Inlet>),
        ..outbound
    }
}

fn going_on(notebook: &Arc<Notebook>, mark: Bytes) -> Outbound {
    Outbound {
        continues: Some(Arc::new(Continuation::Call {
            upstream: upstream(),
            mark,
        })),
        ..private(notebook, tool("t"))
    }
}

fn progress(token: &Value, value: u32) -> Value {
    json!({ "jsonrpc": "2.0", "method": "notifications/progress",
        "params": { "progressToken": token, "progress": value } })
}

fn with_id(id: &str, data: &Value) -> String {
    format!("id: {id}\n{}", event(data))
}

/// An upstream whose calls report one step and then wait; `rest` is what their GET brings.
async fn remembering(rest: impl Fn(&Value) -> Option<String> + Send + Sync + 'static) -> Server {
    let id = Mutex::new(Value::Null);
    let held = Mutex::new(Vec::new());
    Server::start(move |seen| {
        let answer = answered(&seen, &id, &held, &rest);
        async move { answer }
    })
    .await
}

type Held = Mutex<Vec<tokio::sync::mpsc::Receiver<()>>>;

fn answered(
    seen: &Seen,
    id: &Mutex<Value>,
    held: &Held,
    rest: &impl Fn(&Value) -> Option<String>,
) -> http::Response<axum::body::Body> {
    if seen.header("last-event-id").is_some() {
        return rest(&id.lock().unwrap()).map_or_else(|| empty(404), sse);
    }
    if seen.method() == "tools/call" {
        *id.lock().unwrap() = seen.body["id"].clone();
        let step = with_id("e1", &progress(&seen.body["id"], 1));
        let (answer, given_up) = open_sse(format!("id: e0\ndata:\n\n{step}"));
        held.lock().unwrap().push(given_up);
        return answer;
    }
    legacy_frame(seen, "2025-11-25", Some("s"))
        .unwrap_or_else(|| json_answer(200, &seen.result(json!({}))))
}

/// Reads up to the first step of the call; what it takes to go on behind it.
async fn first_step(events: &mut Events) -> Bytes {
    let Event::Mark { covers_next, .. } = next(events).await else {
        panic!("the beginning can be gone on from")
    };
    assert!(!covers_next);
    let Event::Mark { mark, covers_next } = next(events).await else {
        panic!("the step can be gone on from")
    };
    assert!(covers_next, "the mark is not to be kept without the step");
    assert!(matches!(next(events).await, Event::Progress(_)));
    mark
}

/// EL-15, RES-08: another process continues the stream of a call behind the last event that was
/// kept, on the same upstream session, and nothing is sent anew.
#[tokio::test]
async fn el_15_another_process_goes_on_with_a_call() {
    let server = remembering(|id| {
        let step = with_id("e2", &progress(id, 2));
        let answer = json!({ "jsonrpc": "2.0", "id": id, "result": { "ok": true } });
        Some(step + &with_id("e3", &answer))
    })
    .await;
    let notebook = Arc::new(Notebook::default());
    let (first, second) = (World::http(&server), World::http(&server));
    let mut begun = first
        .events(Outbound {
            progress: true,
            ..private(&notebook, tool("t"))
        })
        .await;
    let mark = first_step(&mut begun).await;
    let mut rest = second
        .events(Outbound {
            progress: true,
            ..going_on(&notebook, mark)
        })
        .await;
    assert!(matches!(next(&mut rest).await, Event::Mark { .. }));
    assert!(matches!(next(&mut rest).await, Event::Progress(_)));
    assert!(matches!(
        next(&mut rest).await,
        Event::Final(Final::Message(_))
    ));
    assert_eq!(server.count("initialize"), 1);
    assert_eq!(server.count("tools/call"), 1);
    let resumed = server
        .log()
        .into_iter()
        .find(|seen| seen.header("last-event-id").is_some())
        .unwrap();
    assert_eq!(resumed.header("last-event-id"), Some("e1"));
    assert_eq!(resumed.header("mcp-session-id"), Some("s"));
}

/// EL-22: a store that is away when a call is taken over says nothing about its upstream session.
#[tokio::test]
async fn el_22_a_call_is_gone_on_with_when_the_store_is_back() {
    let server = remembering(|id| {
        let answer = json!({ "jsonrpc": "2.0", "id": id, "result": { "ok": true } });
        Some(with_id("e2", &answer))
    })
    .await;
    let notebook = Arc::new(Notebook::default());
    let (first, second) = (World::http(&server), World::http(&server));
    let mut begun = first
        .events(Outbound {
            progress: true,
            ..private(&notebook, tool("t"))
        })
        .await;
    let mark = first_step(&mut begun).await;
    notebook.away.store(2, Ordering::Relaxed);
    let mut rest = second.events(going_on(&notebook, mark)).await;
    assert!(matches!(
        next(&mut rest).await,
        Event::Final(Final::Message(_))
    ));
    assert_eq!(server.count("initialize"), 1);
}

/// LIF-09, EL-15: an upstream that waits for an answer is waited for, whichever process it has asked.
#[tokio::test]
async fn lif_09_waiting_for_the_client_is_not_silence_for_who_takes_over() {
    let held: Held = Mutex::new(Vec::new());
    let server = Server::start(move |seen| {
        let step = with_id("e1", &progress(&seen.body["id"], 1));
        let asks = json!({ "jsonrpc": "2.0", "id": "q", "method": "elicitation/create",
            "params": { "message": "?", "requestedSchema": { "type": "object", "properties": {} } } });
        let open = |text: String| {
            let (answer, given_up) = open_sse(text);
            held.lock().unwrap().push(given_up);
            answer
        };
        let answer = if seen.header("last-event-id").is_some() {
            open(": still here\n\n".to_owned())
        } else if seen.method() == "tools/call" {
            open(format!("id: e0\ndata:\n\n{step}{}", with_id("e2", &asks)))
        } else {
            legacy_frame(&seen, "2025-11-25", Some("s"))
                .unwrap_or_else(|| json_answer(200, &seen.result(json!({}))))
        };
        async move { answer }
    })
    .await;
    let notebook = Arc::new(Notebook::default());
    let (first, second) = (World::http(&server), World::http(&server));
    let mut begun = first
        .events(Outbound {
            progress: true,
            ..private(&notebook, tool("t"))
        })
        .await;
    let behind_the_step = first_step(&mut begun).await;
    let Event::Mark { mark, .. } = next(&mut begun).await else {
        panic!("the question can be gone on from")
    };
    let impatient = |mark: Bytes| Outbound {
        deadline: Deadline::starting_now(Duration::from_millis(300), Duration::from_secs(30)),
        ..going_on(&notebook, mark)
    };
    let error = second.error(impatient(behind_the_step)).await;
    assert_eq!(error.code, -31002);
    let mut rest = second.events(impatient(mark)).await;
    // longer than the idle limit: the only way to see that nothing ends is to wait
    let waited = tokio::time::timeout(Duration::from_millis(700), next(&mut rest)).await;
    assert!(waited.is_err(), "{waited:?}");
}

/// CAN-01: a call that another process has made is cancelled at its upstream, and not read.
#[tokio::test]
async fn can_01_a_call_of_another_process_is_cancelled() {
    let server = remembering(|_| None).await;
    let notebook = Arc::new(Notebook::default());
    let (first, second) = (World::http(&server), World::http(&server));
    let mut begun = first
        .events(Outbound {
            progress: true,
            ..private(&notebook, tool("t"))
        })
        .await;
    let mark = first_step(&mut begun).await;
    let cancel = Continuation::Cancel {
        upstream: upstream(),
        mark,
    };
    let mut told = second
        .events(Outbound {
            continues: Some(Arc::new(cancel)),
            ..private(&notebook, tool("t"))
        })
        .await;
    assert!(matches!(
        next(&mut told).await,
        Event::Final(Final::Cancelled)
    ));
    let log = server.log();
    let of = |method: &str| log.iter().find(|seen| seen.method() == method);
    let cancelled = of("notifications/cancelled").expect("the upstream is told");
    let called = of("tools/call").unwrap();
    assert_eq!(cancelled.body["params"]["requestId"], called.body["id"]);
    assert_eq!(server.count("tools/call"), 1);
}

/// EL-15: what the upstream does not remember is lost, and never run again.
#[tokio::test]
async fn el_15_a_call_that_cannot_be_gone_on_with_is_lost() {
    let server = remembering(|_| None).await;
    let notebook = Arc::new(Notebook::default());
    let (first, second) = (World::http(&server), World::http(&server));
    let mut begun = first.events(private(&notebook, tool("t"))).await;
    let Event::Mark { mark, .. } = next(&mut begun).await else {
        panic!("the beginning can be gone on from")
    };
    let error = second.error(going_on(&notebook, mark)).await;
    assert_eq!((error.code, &*reason(&error)), (-31004, "outcome_unknown"));
    for nonsense in [Bytes::new(), Bytes::from_static(b"\x01nonsense")] {
        let error = second.error(going_on(&notebook, nonsense)).await;
        assert_eq!(error.code, -31004);
    }
    let nobody = Arc::new(Notebook::default());
    let third = World::http(&server);
    let error = third.error(going_on(&nobody, Bytes::new())).await;
    assert_eq!(
        error.code, -31004,
        "no session is opened for what is gone on with"
    );
    assert_eq!(server.count("initialize"), 1);
    assert_eq!(server.count("tools/call"), 1);
}

/// SES-04, case 93: processes that serve one client session share its upstream session; one that
/// the upstream has lost is replaced once for all of them.
#[tokio::test]
async fn ses_04_processes_share_the_upstream_session_of_a_client_session() {
    let lost = Arc::new(Mutex::new(String::new()));
    let opened = Mutex::new(0);
    let server = {
        let lost = Arc::clone(&lost);
        Server::start(move |seen| {
            let answer = if seen.method() == "initialize" {
                let mut opened = opened.lock().unwrap();
                *opened += 1;
                legacy_frame(&seen, "2025-06-18", Some(&format!("s{opened}"))).unwrap()
            } else if seen.header("mcp-session-id") == Some(&*lost.lock().unwrap()) {
                empty(404)
            } else {
                legacy_frame(&seen, "2025-06-18", Some("s"))
                    .unwrap_or_else(|| json_answer(200, &seen.result(json!({}))))
            };
            async move { answer }
        })
        .await
    };
    let notebook = Arc::new(Notebook::default());
    let (first, second) = (World::http(&server), World::http(&server));
    first.message(private(&notebook, tool("t"))).await;
    second.message(private(&notebook, tool("t"))).await;
    assert_eq!(server.count("initialize"), 1);
    *lost.lock().unwrap() = "s1".to_owned();
    second.message(private(&notebook, tool("t"))).await;
    first.message(private(&notebook, tool("t"))).await;
    assert_eq!(server.count("initialize"), 2);
    let used = server.log();
    let used = used.iter().filter(|seen| seen.method() == "tools/call");
    let last: Vec<_> = used
        .map(|seen| seen.header("mcp-session-id").unwrap().to_owned())
        .collect();
    assert_eq!(last.last().unwrap(), "s2");
}

/// EL-18, streams section 1: any process brings the answer to a question to the upstream, on the
/// session it was asked on and under the upstream's own id.
#[tokio::test]
async fn el_18_another_process_delivers_the_answer_to_a_question() {
    let held = Arc::new(Mutex::new(Vec::new()));
    let mut server = Server::start(move |seen| {
        let held = Arc::clone(&held);
        async move {
            if seen.method() == "tools/call" {
                let asks = json!({ "jsonrpc": "2.0", "id": 7, "method": "elicitation/create",
                    "params": { "message": "?" } });
                let (answer, given_up) = open_sse(event(&asks));
                held.lock().unwrap().push(given_up);
                return answer;
            }
            legacy_frame(&seen, "2025-11-25", Some("s")).unwrap()
        }
    })
    .await;
    let notebook = Arc::new(Notebook::default());
    let (first, second) = (World::http(&server), World::http(&server));
    let asking = private(&notebook, tool("t"));
    let capabilities = Arc::clone(&asking.capabilities);
    let mut events = first.events(asking).await;
    let Event::Question(asked) = next(&mut events).await else {
        panic!("the upstream asks")
    };
    let id: Value = serde_json::from_slice(asked.from.id.as_bytes()).unwrap();
    let answer = json!({ "jsonrpc": "2.0", "id": id, "result": { "action": "accept" } });
    let inlet = Arc::clone(&notebook) as Arc<dyn Inlet>;
    second
        .upstreams
        .deliver(asked.from, draft(&answer), capabilities, inlet)
        .await
        .unwrap();
    let told = server
        .next(|seen| seen.body["result"]["action"] == "accept")
        .await;
    assert_eq!(told.body["id"], 7);
    assert_eq!(told.header("mcp-session-id"), Some("s"));
    assert_eq!(server.count("initialize"), 1);
}

/// GET-06: what the upstream says outside of calls is heard by the process that goes on listening.
#[tokio::test]
async fn get_06_another_process_goes_on_listening() {
    let mut server = Server::start(|seen| async move {
        legacy_frame(&seen, "2025-11-25", Some("s"))
            .unwrap_or_else(|| json_answer(200, &seen.result(json!({}))))
    })
    .await;
    let notebook = Arc::new(Notebook::default());
    World::http(&server)
        .message(private(
            &notebook,
            crate::world::call(Method::ToolsList, json!({})),
        ))
        .await;
    let listening = Outbound {
        continues: Some(Arc::new(Continuation::Listen {
            upstream: upstream(),
        })),
        ..private(&notebook, tool("t"))
    };
    let second = World::http(&server);
    assert!(matches!(second.end(listening).await, Final::Empty));
    for _ in 0..2 {
        server.next(|seen| seen.http == http::Method::GET).await;
    }
    assert_eq!(server.count("initialize"), 1);
}

/// SES-04, streams section 1: a process that stops leaves the sessions that others go on with, and
/// ends them where nobody can.
#[tokio::test]
async fn ses_04_a_process_that_stops_leaves_what_others_go_on_with() {
    for outlived in [true, false] {
        let server = Server::start(|seen| async move {
            legacy_frame(&seen, "2025-06-18", Some("s"))
                .unwrap_or_else(|| json_answer(200, &seen.result(json!({}))))
        })
        .await;
        let notebook = Arc::new(Notebook::default());
        let world = World::http(&server);
        world.message(private(&notebook, tool("t"))).await;
        world.upstreams.shutdown(outlived).await;
        let deleted = server
            .log()
            .iter()
            .any(|seen| seen.http == http::Method::DELETE);
        assert_eq!(deleted, !outlived);
    }
}

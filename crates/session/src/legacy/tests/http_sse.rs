use std::time::Duration;

use http::Method as Verb;
use serde_json::{Value, json};
use tokio::time::Instant;
use vestibule_exchange::{Arrival, Event, Events, Final, LogLevel};
use vestibule_store::Caps;
use vestibule_terms::accept::Accepts;
use vestibule_terms::{Method, Principal, Revision, ServerId};

use super::{Below, quick, settle};
use crate::testing::{
    Got, House, Item, call, draft, initialize, progress, question, result, upstream, view,
};

const A: Revision = Revision::R2024_11_05;
const B: Revision = Revision::R2025_03_26;
const D: Revision = Revision::R2025_11_25;
const READY: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
const PATH: &str = "/mcp/acme";

/// A client's connection and where it posts.
struct Client {
    stream: Got,
    address: String,
}

async fn connect(house: &House) -> Client {
    let mut request = house.request(Verb::GET, &[], None);
    *request.uri_mut() = format!("{PATH}?x=1").parse().unwrap();
    request.extensions_mut().insert(Accepts {
        json: false,
        sse: true,
        sse_named: true,
        sse_first: true,
    });
    let mut stream = house.send(request).await;
    assert_eq!(stream.status(), 200);
    assert!(stream.is_stream());
    let Some(Item::Event(None, address)) = stream.next().await else {
        panic!("the endpoint comes first, and without an id")
    };
    Client { stream, address }
}

async fn post(house: &House, address: &str, body: &str) -> Got {
    let mut request = house.request(Verb::POST, &[], Some(body));
    *request.uri_mut() = address.parse().unwrap();
    house.send(request).await
}

impl Client {
    async fn post(&self, house: &House, body: &str) -> Got {
        post(house, &self.address, body).await
    }

    /// Posts what must be taken, and what it brings about comes on the stream.
    async fn say(&self, house: &House, body: &str) {
        let got = self.post(house, body).await;
        assert_eq!(got.status(), 202, "{body}");
        assert_eq!(got.text().await, "");
    }

    async fn open(house: &House, revision: Revision, capabilities: &str) -> Self {
        let mut client = connect(house).await;
        let body = initialize(revision.as_str(), capabilities);
        client.say(house, &body).await;
        let opened = client.next().await;
        assert_eq!(opened["result"]["protocolVersion"], revision.as_str());
        client.say(house, READY).await;
        client
    }

    /// The next message.
    async fn next(&mut self) -> Value {
        for _silence in 0..8 {
            match self.stream.next().await.expect("the stream goes on") {
                Item::Comment => {}
                Item::Event(id, data) => {
                    assert_eq!(id, None, "HSE-08: nothing to resume from");
                    return serde_json::from_str(&data).unwrap();
                }
                Item::Retry(_) => panic!("the stream is about to close"),
            }
        }
        panic!("nothing comes")
    }

    fn id(&self) -> &str {
        self.address.split_once("?sse=").unwrap().1
    }
}

/// HSE-01, HSE-02: the stream opens with the address for POSTs, on the path that was asked for.
#[tokio::test(start_paused = true)]
async fn hse_02_the_first_event_is_the_address_for_posts() {
    let house = quick();
    let (one, two) = (connect(&house).await, connect(&house).await);
    for client in [&one, &two] {
        let (path, id) = client.address.split_once("?sse=").unwrap();
        assert_eq!((path, id.len()), (PATH, 43));
        assert_eq!(client.stream.header("mcp-session-id"), None);
        let cache = client.stream.header("cache-control").unwrap();
        assert!(cache.contains("no-store"));
    }
    assert_ne!(one.address, two.address);
}

/// HSE-03: 202 without a body, and the response is a message of the stream.
#[tokio::test(start_paused = true)]
async fn hse_03_responses_are_messages_of_the_stream() {
    let house = quick();
    let mut client = Client::open(&house, A, "{}").await;
    client.say(&house, &call("7", "")).await;
    let response = client.next().await;
    assert_eq!(response["id"], 7);
    assert_eq!(response["result"]["content"][0]["text"], "hi");
    let unknown = r#"{"jsonrpc":"2.0","id":"x","method":"tools/juggle"}"#;
    client.say(&house, unknown).await;
    let refused = client.next().await;
    assert_eq!(
        (&refused["id"], &refused["error"]["code"]),
        (&json!("x"), &json!(-32601))
    );
    client.say(&house, &initialize("2024-11-05", "{}")).await;
    assert_eq!(client.next().await["error"]["code"], -32600, "LIF-07");
}

/// HSE-03: what a call says before its response comes before it, of many calls at once.
#[tokio::test(start_paused = true)]
async fn hse_03_a_response_comes_after_what_its_call_said() {
    let below = Below::default();
    let house = below.house();
    let mut client = Client::open(&house, D, "{}").await;
    for id in 1..=3 {
        let body = call(&id.to_string(), r#""progressToken":"p""#);
        client.say(&house, &body).await;
    }
    settle().await;
    for index in (0..3).rev() {
        for value in 1..=50 {
            below.tell(index, progress(value));
        }
        below.end(index);
        settle().await;
        for value in 1..=50 {
            assert_eq!(client.next().await["params"]["progress"], value);
        }
        assert_eq!(client.next().await["id"], index + 1);
    }
}

/// HSE-03, EL-21: responses that together are more than a stream keeps are held back, not lost.
#[tokio::test(start_paused = true)]
async fn hse_03_large_responses_wait_for_each_other() {
    let text = "x".repeat(700_000);
    let large = format!(r#"{{"content":[{{"type":"text","text":"{text}"}}]}}"#);
    let house = House::new(move |_| Events::ready(result(&large)));
    let mut client = Client::open(&house, A, "{}").await;
    for id in 0..8 {
        client.say(&house, &call(&id.to_string(), "")).await;
    }
    settle().await;
    let mut ids = Vec::new();
    for _ in 0..8 {
        let response = client.next().await;
        assert_eq!(response["result"]["content"][0]["text"], text);
        ids.push(response["id"].as_u64().unwrap());
    }
    ids.sort_unstable();
    assert_eq!(ids, (0..8).collect::<Vec<_>>());
}

/// EL-21: a client that does not read loses its session after a while, since it could not come back.
#[tokio::test(start_paused = true)]
async fn el_21_a_client_that_does_not_read_loses_its_session() {
    let text = "x".repeat(700_000);
    let large = format!(r#"{{"content":[{{"type":"text","text":"{text}"}}]}}"#);
    let house = House::new(move |_| Events::ready(result(&large)));
    let client = Client::open(&house, A, "{}").await;
    for id in 0..3 {
        client.say(&house, &call(&id.to_string(), "")).await;
    }
    tokio::time::sleep(Duration::from_secs(59)).await;
    client.say(&house, READY).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(client.post(&house, READY).await.status(), 404);
    assert_eq!(house.back.taken(), ["close"]);
    let rest = client.stream.rest().await;
    assert!(
        !rest.iter().any(|item| matches!(item, Item::Event(..))),
        "nothing looks whole"
    );
}

/// LIF-01: before `initialize` there is `ping`, and nothing else is done.
#[tokio::test(start_paused = true)]
async fn lif_01_before_initialize_only_ping_is_answered() {
    let below = Below::default();
    let house = below.house();
    let mut client = connect(&house).await;
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    client.say(&house, ping).await;
    assert_eq!(
        client.next().await,
        json!({ "jsonrpc": "2.0", "id": 1, "result": {} })
    );
    client.say(&house, &call("2", "")).await;
    let refused = client.next().await;
    assert_eq!(
        (&refused["id"], &refused["error"]["code"]),
        (&json!(2), &json!(-32600))
    );
    client.say(&house, READY).await;
    client
        .say(&house, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#)
        .await;
    let batch = format!("[{ping}]");
    assert_eq!(client.post(&house, &batch).await.status(), 400);
    assert_eq!((below.calls(), house.supervisor().sessions()), (0, 0));
    client.say(&house, &initialize("2024-11-05", "{}")).await;
    assert_eq!(
        client.next().await["result"]["protocolVersion"],
        "2024-11-05"
    );
    assert_eq!(house.supervisor().sessions(), 1);
}

/// FRM-12: a request that came as a notification is dropped.
#[tokio::test(start_paused = true)]
async fn frm_12_a_request_without_an_id_is_dropped() {
    let below = Below::default();
    let house = below.house();
    let client = Client::open(&house, A, "{}").await;
    let body = r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"t"}}"#;
    client.say(&house, body).await;
    assert_eq!(below.calls(), 0);
}

/// HSE-08: every revision with a handshake can be negotiated, none has ids; arrays are taken where
/// the revision has them, and each response is a message of its own.
#[tokio::test(start_paused = true)]
async fn hse_08_any_legacy_revision_may_be_negotiated() {
    let house = quick();
    let batch = format!("[{},{},{READY}]", call("1", ""), call("\"2\"", ""));
    for revision in [A, B, Revision::R2025_06_18, D] {
        let mut client = Client::open(&house, revision, "{}").await;
        if revision != B {
            let refused = client.post(&house, &batch).await;
            assert_eq!(refused.status(), 400, "FRM-18 {revision}");
            assert_eq!(refused.code().await, -32600);
            continue;
        }
        client.say(&house, &batch).await;
        let mut ids = vec![
            client.next().await["id"].clone(),
            client.next().await["id"].clone(),
        ];
        ids.sort_by_key(Value::to_string);
        assert_eq!(ids, [json!("2"), json!(1)]);
    }
    let mut client = connect(&house).await;
    client.say(&house, &initialize("2026-07-28", "{}")).await;
    assert_eq!(client.next().await["result"]["protocolVersion"], D.as_str());
}

/// HSE-05: when the connection closes, its session takes nothing more; what runs has five seconds.
#[tokio::test(start_paused = true)]
async fn hse_05_closing_the_connection_ends_the_session() {
    let below = Below::default();
    let house = below.house();
    let client = Client::open(&house, A, "{}").await;
    client.say(&house, &call("1", "")).await;
    client.say(&house, &call("2", "")).await;
    settle().await;
    let Client { stream, address } = client;
    drop(stream);
    let closed = Instant::now();
    let late = post(&house, &address, &call("3", "")).await;
    assert_eq!((late.status().as_u16(), late.code().await), (404, -32600));
    below.end(0);
    tokio::time::sleep(Duration::from_millis(4900)).await;
    assert!(!below.is_dropped(1), "{:?}", closed.elapsed());
    assert!(house.back.taken().is_empty());
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(below.is_dropped(1));
    assert_eq!(
        house.back.taken(),
        ["close"],
        "its upstream sessions are closed"
    );
    assert_eq!(
        (house.supervisor().sessions(), house.supervisor().calls()),
        (0, 0)
    );
    assert_eq!(post(&house, &address, READY).await.status(), 404);
    let gauges = house.metrics.expose();
    let sessions = r#"vestibule_sessions{revision="2024-11-05",tenant="acme"} 0"#;
    assert!(gauges.contains(sessions), "{gauges}");
    let streams = r#"vestibule_streams{kind="sse",tenant="acme"} 0"#;
    assert!(gauges.contains(streams), "{gauges}");
}

/// HSE-05: a session without calls ends at once, and one that never opened leaves nothing.
#[tokio::test(start_paused = true)]
async fn hse_05_without_calls_there_is_nothing_to_wait_for() {
    let house = quick();
    let open = Client::open(&house, A, "{}").await;
    let unopened = connect(&house).await;
    let gauges = house.metrics.expose();
    assert!(
        gauges.contains(r#"vestibule_streams{kind="sse",tenant="acme"} 2"#),
        "{gauges}"
    );
    for client in [open, unopened] {
        let Client { stream, address } = client;
        drop(stream);
        settle().await;
        let again = post(&house, &address, &initialize("2024-11-05", "{}")).await;
        assert_eq!(again.status(), 404, "an id that is over opens nothing");
    }
    assert_eq!(house.supervisor().sessions(), 0);
}

/// HSE-05: an id that is over takes no room from sessions that are not.
#[tokio::test(start_paused = true)]
async fn hse_05_an_id_that_is_over_pushes_nobody_out() {
    let caps = Caps {
        per_principal: 1,
        per_tenant: 1,
    };
    let house = House::with_caps(|_| Events::ready(result("{}")), caps);
    let own = house.open(D, "{}").await;
    let Client { stream, address } = connect(&house).await;
    drop(stream);
    settle().await;
    let late = post(&house, &address, &initialize("2024-11-05", "{}")).await;
    assert_eq!(late.status(), 404);
    assert_eq!(house.in_session(&own, READY).await.status(), 202);
}

/// HSE-05: a connection that closes while its session opens leaves none.
#[tokio::test(start_paused = true)]
async fn hse_05_a_handshake_that_comes_too_late_leaves_nothing() {
    let (described, seen) = tokio::sync::watch::channel(false);
    let slow = move |_: vestibule_exchange::Call| {
        let mut seen = seen.clone();
        Events::stream(futures_util::stream::once(async move {
            seen.wait_for(|described| *described).await.unwrap();
            Event::Final(Final::View(Box::new(view())))
        }))
    };
    let house = House::raw(slow, Caps::default());
    let Client { stream, address } = connect(&house).await;
    let body = initialize("2024-11-05", "{}");
    let closing = async {
        settle().await;
        drop(stream);
        settle().await;
        described.send_replace(true);
    };
    let (late, ()) = tokio::join!(post(&house, &address, &body), closing);
    assert_eq!(late.status(), 404);
    assert_eq!(house.supervisor().sessions(), 0);
    let gauges = house.metrics.expose();
    let none = r#"vestibule_sessions{revision="2024-11-05",tenant="acme"} 0"#;
    assert!(gauges.contains(none), "{gauges}");
}

/// HSE-06, T38: an id is of use to its own caller on its own server, and not as another kind of id.
#[tokio::test(start_paused = true)]
async fn hse_06_a_foreign_id_is_404() {
    let mut house = quick();
    let client = Client::open(&house, D, "{}").await;
    let own = house.open(D, "{}").await;
    let (ping, id) = (r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, client.id());
    for session in ["", "x", &own, &id.to_uppercase(), &format!("{id}&sse={id}")] {
        let got = post(&house, &format!("{PATH}?sse={session}"), ping).await;
        assert_eq!(got.status(), 404, "{session}");
        let body = got.json().await;
        assert_eq!(
            (&body["id"], &body["error"]["code"]),
            (&json!(1), &json!(-32600))
        );
    }
    for headers in [&[("mcp-session-id", id)][..]] {
        assert_eq!(house.post(headers, ping).await.status(), 404);
        assert_eq!(house.get(headers).await.status(), 404);
        assert_eq!(house.delete(headers).await.status(), 404);
    }
    let alice = house.principal.clone();
    house.principal = Principal {
        subject: "bob".into(),
        ..alice.clone()
    };
    assert_eq!(client.post(&house, ping).await.status(), 404);
    house.principal = alice;
    house.plan.server = ServerId::new("other").unwrap();
    assert_eq!(client.post(&house, ping).await.status(), 404);
    house.plan.server = ServerId::new("default").unwrap();
    client.say(&house, ping).await;
}

/// HSE-07: a POST does the same in a process that has not got the stream, the handshake included, and
/// the end of the stream is the end there too.
#[tokio::test(start_paused = true)]
async fn hse_07_a_post_may_reach_another_process() {
    let house = quick();
    let other = house.beside();
    let mut client = connect(&house).await;
    client.say(&other, &initialize("2024-11-05", "{}")).await;
    assert!(client.next().await["result"].is_object());
    client.say(&house, READY).await;
    client.say(&other, &call("1", "")).await;
    assert_eq!(client.next().await["id"], 1);
    client.say(&house, &call("2", "")).await;
    assert_eq!(client.next().await["result"]["content"][0]["text"], "hi");
    client.say(&other, &initialize("2024-11-05", "{}")).await;
    assert_eq!(client.next().await["error"]["code"], -32600, "LIF-07");
    let Client { stream, address } = client;
    drop(stream);
    settle().await;
    assert_eq!(post(&other, &address, READY).await.status(), 404);
    assert_eq!(post(&house, &address, READY).await.status(), 404);
}

/// GET-03, LIF-05: what belongs to no call comes on the same stream, once the client is ready.
#[tokio::test(start_paused = true)]
async fn get_03_notifications_come_on_the_same_stream() {
    let below = Below::default();
    let house = below.house();
    let mut client = connect(&house).await;
    client.say(&house, &initialize("2024-11-05", "{}")).await;
    client.next().await;
    client.say(&house, &call("1", "")).await;
    settle().await;
    let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    let arrival = Arrival::ListChanged(Method::ToolsListChanged, draft(changed));
    below.inlet(0).arrive(&upstream(), arrival);
    below.end(0);
    settle().await;
    assert_eq!(client.next().await["id"], 1, "a response is not held back");
    client.say(&house, READY).await;
    assert_eq!(
        client.next().await["method"],
        "notifications/tools/list_changed"
    );
    let log = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"data":1}}"#;
    let level = LogLevel::Error;
    let message = draft(log);
    below
        .inlet(0)
        .arrive(&upstream(), Arrival::Log { level, message });
    settle().await;
    assert_eq!(client.next().await["method"], "notifications/message");
}

/// HSE-03: a question comes on the stream, its answer is a POST.
#[tokio::test(start_paused = true)]
async fn hse_03_questions_and_answers_cross_the_same_way() {
    let below = Below::default();
    let house = below.house();
    let mut client = Client::open(&house, A, r#"{"roots":{}}"#).await;
    client.say(&house, &call("1", "")).await;
    settle().await;
    below.tell(0, Event::Question(question(77, Method::RootsList, "{}")));
    let asked = client.next().await;
    assert_eq!(asked["method"], "roots/list");
    let answer = format!(
        r#"{{"jsonrpc":"2.0","id":{},"result":{{"roots":[]}}}}"#,
        asked["id"]
    );
    client.say(&house, &answer).await;
    let taken = house.back.taken();
    assert!(taken[0].starts_with("answer 77"), "{taken:?}");
    below.end(0);
    settle().await;
    assert_eq!(client.next().await["id"], 1);
}

/// CAN-01, CAN-03: a cancelled call has no response, and its id can be used again.
#[tokio::test(start_paused = true)]
async fn can_03_a_cancelled_call_has_no_response() {
    let below = Below::default();
    let house = below.house();
    let mut client = Client::open(&house, A, "{}").await;
    client.say(&house, &call("1", "")).await;
    settle().await;
    client.say(&house, &call("1", "")).await;
    assert_eq!(client.next().await["error"]["code"], -32600, "FRM-06");
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    client.say(&house, cancel).await;
    settle().await;
    assert!(below.is_dropped(0));
    client.say(&house, &call("1", "")).await;
    settle().await;
    below.end(1);
    settle().await;
    let response = client.next().await;
    assert!(response["result"].is_object(), "{response}");
}

/// EL-14: a call that a bug takes down has its one answer.
#[tokio::test(start_paused = true)]
async fn el_14_a_call_that_panics_is_answered() {
    let house = House::new(|_| Events::stream(futures_util::stream::poll_fn(|_| panic!("a bug"))));
    let mut client = Client::open(&house, A, "{}").await;
    client.say(&house, &call("1", "")).await;
    let response = client.next().await;
    assert_eq!(
        (&response["id"], &response["error"]["code"]),
        (&json!(1), &json!(-32603))
    );
}

/// SES-03: over a cap `initialize` is answered with an error, on the stream like every answer.
#[tokio::test(start_paused = true)]
async fn ses_03_the_cap_of_sessions_holds() {
    let caps = Caps {
        per_principal: 1,
        per_tenant: 1,
    };
    let house = House::with_caps(|_| Events::ready(result("{}")), caps);
    let first = Client::open(&house, A, "{}").await;
    let mut second = connect(&house).await;
    second.say(&house, &initialize("2024-11-05", "{}")).await;
    assert_eq!(second.next().await["error"]["code"], -31005);
    drop(first);
    settle().await;
    second.say(&house, &initialize("2024-11-05", "{}")).await;
    assert!(second.next().await["result"].is_object());
}

/// Case 69, SSE-03: when the process stops, a stream ends as soon as everything is answered.
#[tokio::test(start_paused = true)]
async fn case_69_a_drained_stream_ends_after_its_answers() {
    let below = Below::default();
    let house = below.house();
    let mut busy = Client::open(&house, A, "{}").await;
    let (idle, unopened) = (Client::open(&house, A, "{}").await, connect(&house).await);
    busy.say(&house, &call("1", "")).await;
    settle().await;
    house.supervisor().drain();
    for client in [idle, unopened, connect(&house).await] {
        let rest = client.stream.rest().await;
        assert!(
            matches!(rest.as_slice(), [Item::Retry(2000..=5000)]),
            "{rest:?}"
        );
    }
    let answered = async {
        settle().await;
        below.end(0);
    };
    let (response, ()) = tokio::join!(busy.next(), answered);
    assert_eq!(response["id"], 1);
    let rest = busy.stream.rest().await;
    assert!(matches!(rest.as_slice(), [Item::Retry(_)]), "{rest:?}");
}

/// AUT-23: a caller who is no longer let in loses his stream, opened or not.
#[tokio::test(start_paused = true)]
async fn aut_23_streams_end_with_the_admission_of_their_caller() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    let admitted = Arc::new(AtomicBool::new(true));
    let asked = Arc::clone(&admitted);
    let house = House::admitting(move |_, _| asked.load(Ordering::Relaxed));
    let (open, unopened) = (Client::open(&house, A, "{}").await, connect(&house).await);
    let (mut open, mut unopened) = (open.stream, unopened.stream);
    house.supervisor().recheck().await;
    settle().await;
    assert_eq!(house.supervisor().sessions(), 1);
    admitted.store(false, Ordering::Relaxed);
    house.supervisor().recheck().await;
    let (first, second) = tokio::join!(open.next(), unopened.next());
    assert_eq!((first, second), (None, None));
    assert_eq!(house.supervisor().sessions(), 0);
}

/// SSE-15: a silent stream is kept alive.
#[tokio::test(start_paused = true)]
async fn sse_15_a_silent_stream_is_kept_alive() {
    let house = quick();
    let mut client = connect(&house).await;
    let begun = Instant::now();
    assert_eq!(client.stream.next().await, Some(Item::Comment));
    assert_eq!(begun.elapsed(), Duration::from_secs(15));
}

use std::time::Duration;

use serde_json::json;
use vestibule_exchange::{Arrival, Event, LogLevel};
use vestibule_terms::{Method, Revision};

use super::{Below, quick, settle};
use crate::testing::{Got, House, Item, call, draft, progress, upstream};

const C: Revision = Revision::R2025_06_18;
const D: Revision = Revision::R2025_11_25;

fn changed(method: Method) -> Arrival {
    let text = format!(r#"{{"jsonrpc":"2.0","method":"{}"}}"#, method.as_str());
    Arrival::ListChanged(method, draft(&text))
}

fn updated(uri: &str) -> Arrival {
    Arrival::Updated(draft(&format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{{"uri":"{uri}"}}}}"#
    )))
}

fn log(level: LogLevel) -> Arrival {
    let text = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"data":1}}"#;
    Arrival::Log {
        level,
        message: draft(text),
    }
}

/// A session that has made one call, so that the rooms below know its inlet.
async fn known(below: &Below, house: &House, revision: Revision) -> String {
    let id = house.open(revision, "{}").await;
    let body = call("0", "");
    let ending = async {
        settle().await;
        below.end(0);
    };
    tokio::join!(house.in_session(&id, &body), ending);
    id
}

async fn listen(house: &House, id: &str) -> Got {
    let got = house.get(&[("mcp-session-id", id)]).await;
    assert_eq!(got.status(), 200);
    assert!(got.is_stream());
    got
}

fn method(item: &Item) -> String {
    item.json()["method"].as_str().unwrap().to_owned()
}

/// GET-03, GET-05, case 90: what belongs to no call is on the standalone stream, filtered.
#[tokio::test(start_paused = true)]
async fn case_90_arrivals_reach_the_standalone_stream() {
    let below = Below::default();
    let house = below.house();
    let id = known(&below, &house, C).await;
    let inlet = below.inlet(0);
    let mut got = listen(&house, &id).await;
    for arrival in [
        changed(Method::ToolsListChanged),
        log(LogLevel::Info),
        log(LogLevel::Error),
        updated("a:b"),
        changed(Method::ElicitationComplete),
    ] {
        inlet.arrive(&upstream(), arrival);
    }
    assert_eq!(
        method(&got.next().await.unwrap()),
        "notifications/tools/list_changed"
    );
    assert_eq!(
        method(&got.next().await.unwrap()),
        "notifications/message",
        "LOG-01: warning+"
    );
    let last = got.next().await.unwrap();
    assert_eq!(last.json()["params"]["uri"], "a:b");
    assert!(last.id().starts_with('1'), "RES-01");
    assert_eq!(
        got.next().await,
        Some(Item::Comment),
        "a revision without the last one"
    );
}

/// GET-04, SSE-08: the newest stream gets it; when it closes, the one before.
#[tokio::test(start_paused = true)]
async fn get_04_the_newest_standalone_stream_gets_the_message() {
    let below = Below::default();
    let house = below.house();
    let id = known(&below, &house, C).await;
    let inlet = below.inlet(0);
    let mut older = listen(&house, &id).await;
    let mut newer = listen(&house, &id).await;
    inlet.arrive(&upstream(), updated("a:1"));
    assert_eq!(newer.next().await.unwrap().json()["params"]["uri"], "a:1");
    drop(newer);
    settle().await;
    inlet.arrive(&upstream(), updated("a:2"));
    assert_eq!(
        older.next().await.unwrap().json()["params"]["uri"],
        "a:2",
        "and not a:1"
    );
}

/// GET-04: the fifth standalone stream closes the one open longest, which is told to stay away.
#[tokio::test(start_paused = true)]
async fn get_04_a_session_has_four_standalone_streams() {
    let house = quick();
    let id = house.open(C, "{}").await;
    let oldest = listen(&house, &id).await;
    let mut others = Vec::new();
    for _ in 0..4 {
        others.push(listen(&house, &id).await);
    }
    assert_eq!(oldest.rest().await, [Item::Retry(30_000)]);
}

/// GET-05: what comes while nobody listens waits, list_changed once.
#[tokio::test(start_paused = true)]
async fn get_05_what_nobody_hears_waits_for_the_next_stream() {
    let below = Below::default();
    let house = below.house();
    let id = known(&below, &house, C).await;
    let inlet = below.inlet(0);
    for arrival in [
        changed(Method::ToolsListChanged),
        updated("a:b"),
        changed(Method::ToolsListChanged),
        updated("a:b"),
    ] {
        inlet.arrive(&upstream(), arrival);
    }
    settle().await;
    let mut got = listen(&house, &id).await;
    let seen = [
        method(&got.next().await.unwrap()),
        method(&got.next().await.unwrap()),
    ];
    assert_eq!(
        seen,
        [
            "notifications/tools/list_changed",
            "notifications/resources/updated"
        ]
    );
    assert_eq!(got.next().await, Some(Item::Comment));
}

/// LIF-05: nothing of the server's before the client is ready, everything then.
#[tokio::test(start_paused = true)]
async fn lif_05_server_messages_wait_for_initialized() {
    let below = Below::default();
    let house = below.house();
    let id = house.open_only(C, "{}").await;
    let body = call("0", "");
    let ending = async {
        settle().await;
        below.end(0);
    };
    let early = tokio::join!(house.in_session(&id, &body), ending).0;
    assert_eq!(early.status(), 200, "early requests are served");
    let mut got = listen(&house, &id).await;
    below.inlet(0).arrive(&upstream(), updated("a:b"));
    assert_eq!(got.next().await, Some(Item::Comment));
    house
        .in_session(
            &id,
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        )
        .await;
    assert_eq!(
        method(&got.next().await.unwrap()),
        "notifications/resources/updated"
    );
}

/// SSE-07, SSE-08: changes that came on a call's stream are about the session.
#[tokio::test(start_paused = true)]
async fn sse_07_changes_during_a_call_go_to_the_standalone_stream() {
    let below = Below::default();
    let house = below.house();
    let id = house.open(C, "{}").await;
    let mut standalone = listen(&house, &id).await;
    let body = call("1", "");
    let telling = async {
        settle().await;
        let text = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
        below.tell(0, Event::Notice(draft(text)));
        settle().await;
        below.end(0);
    };
    let got = tokio::join!(house.in_session(&id, &body), telling).0;
    assert_eq!(got.header("content-type"), Some("application/json"));
    assert_eq!(
        method(&standalone.next().await.unwrap()),
        "notifications/tools/list_changed"
    );
}

/// RES-03, EL-13: replay after the last event, then live; nothing twice, nothing missing.
#[tokio::test(start_paused = true)]
async fn res_03_a_broken_stream_is_replayed_and_goes_on() {
    let below = Below::default();
    let house = below.house();
    let id = house.open(D, "{}").await;
    let body = call("1", r#""progressToken":1"#);
    let telling = async {
        settle().await;
        (1..=3).for_each(|value| assert!(below.tell(0, progress(value))));
    };
    let mut got = tokio::join!(house.in_session(&id, &body), telling).0;
    got.next().await.unwrap();
    let first = got.next().await.unwrap();
    drop(got);
    let headers = [
        ("mcp-session-id", id.as_str()),
        ("last-event-id", &first.id()),
    ];
    let mut got = house.get(&headers).await;
    for value in [2, 3] {
        assert_eq!(
            got.next().await.unwrap().json()["params"]["progress"],
            value
        );
    }
    below.tell(0, progress(4));
    assert_eq!(got.next().await.unwrap().json()["params"]["progress"], 4);
    below.end(0);
    assert_eq!(got.next().await.unwrap().json()["id"], 1);
    assert!(got.next().await.is_none());
    let metrics = house.metrics.expose();
    assert!(metrics.contains(r#"stream_resumes_total{outcome="replay",tenant="acme"} 1"#));
}

/// EL-17, SSE-08: the newest connection of one stream is the one.
#[tokio::test(start_paused = true)]
async fn el_17_a_second_connection_closes_the_first() {
    let below = Below::default();
    let house = below.house();
    let id = house.open(D, "{}").await;
    let mut first = house.in_session(&id, &call("1", "")).await;
    let priming = first.next().await.unwrap().id();
    let headers = [
        ("mcp-session-id", id.as_str()),
        ("last-event-id", priming.as_str()),
    ];
    let second = house.get(&headers).await;
    let (old, new, ()) = tokio::join!(first.rest(), second.rest(), async {
        settle().await;
        below.end(0);
    });
    assert!(old.is_empty());
    assert_eq!(new.len(), 1);
}

/// STA-20, case 121, T38: ids of other sessions, forged and malformed ones are 400.
#[tokio::test(start_paused = true)]
async fn case_121_foreign_event_ids_are_400() {
    let house = quick();
    let (mine, other) = (house.open(D, "{}").await, house.open(D, "{}").await);
    let mut theirs = listen(&house, &other).await;
    let foreign = theirs.next().await.unwrap().id();
    for id in [foreign.as_str(), "1m.AAAA", "42", ""] {
        let headers = [("mcp-session-id", mine.as_str()), ("last-event-id", id)];
        let got = house.get(&headers).await;
        assert_eq!(
            (got.status().as_u16(), got.code().await),
            (400, -32600),
            "{id}"
        );
    }
}

/// RES-05, EL-13: history of a call that is gone is said in band, once, for its request.
#[tokio::test(start_paused = true)]
async fn res_05_lost_history_of_a_call_is_one_error() {
    let below = Below::default();
    let house = below.house();
    let id = house.open(D, "{}").await;
    let mut got = house.in_session(&id, &call("\"a\"", "")).await;
    let priming = got.next().await.unwrap().id();
    drop(got);
    below.end(0);
    settle().await;
    tokio::time::advance(Duration::from_secs(6 * 60)).await;
    house.supervisor().sweep_log().await;
    let headers = [
        ("mcp-session-id", id.as_str()),
        ("last-event-id", priming.as_str()),
    ];
    let items = house.get(&headers).await.rest().await;
    assert_eq!(items.len(), 1, "{items:?}");
    let error = items[0].json();
    assert_eq!(error["id"], "a");
    assert_eq!(error["error"]["code"], -31004);
    assert_eq!(error["error"]["data"]["reason"], "stream_history_lost");
    tokio::time::advance(Duration::from_secs(20 * 60)).await;
    house.supervisor().sweep_log().await;
    assert_eq!(
        house.get(&headers).await.status(),
        405,
        "nothing is known any more"
    );
}

/// XT-519, EL-13: a client that slept too long is made whole with conservative notifications.
#[tokio::test(start_paused = true)]
async fn xt_519_a_gap_of_the_standalone_stream_is_repaired() {
    let below = Below::default();
    let house = below.house();
    let id = house.open(D, "{}").await;
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"a:b"}}"#;
    let ending = async {
        settle().await;
        below.tell(0, Event::Final(vestibule_exchange::Final::Empty));
    };
    tokio::join!(house.in_session(&id, body), ending);
    let mut got = listen(&house, &id).await;
    let priming = got.next().await.unwrap().id();
    drop(got);
    tokio::time::advance(Duration::from_secs(20 * 60)).await;
    house.supervisor().sweep_log().await;
    let headers = [
        ("mcp-session-id", id.as_str()),
        ("last-event-id", priming.as_str()),
    ];
    let mut got = house.get(&headers).await;
    assert_eq!(got.status(), 200);
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push(method(&got.next().await.unwrap()));
    }
    seen.sort();
    assert_eq!(
        seen,
        [
            "notifications/prompts/list_changed",
            "notifications/resources/list_changed",
            "notifications/resources/updated",
            "notifications/tools/list_changed",
        ]
    );
    assert_eq!(got.next().await, Some(Item::Comment), "then live");
}

/// Progress with a long message.
fn padded(value: u32, bytes: usize) -> Event {
    let pad = "x".repeat(bytes);
    Event::Progress(draft(&format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":"g","progress":{value},"message":"{pad}"}}}}"#
    )))
}

/// EL-21, SSE-17: a client that does not read is closed with `retry` by bytes or by number, and
/// gets the rest when it comes back.
#[tokio::test(start_paused = true)]
async fn el_21_a_slow_client_is_closed_with_retry_and_can_resume() {
    for (events, bytes) in [(200, 2048), (1100, 1)] {
        let below = Below::default();
        let house = below.house();
        let id = house.open(D, "{}").await;
        let body = call("1", r#""progressToken":1"#);
        let telling = async {
            settle().await;
            below.tell(0, padded(1, bytes));
        };
        let mut got = tokio::join!(house.in_session(&id, &body), telling).0;
        let priming = got.next().await.unwrap().id();
        (2..=events).for_each(|value| assert!(below.tell(0, padded(value, bytes))));
        settle().await;
        let items = got.rest().await;
        assert_eq!(items, [Item::Retry(1000)], "{events} events");
        below.end(0);
        settle().await;
        let headers = [
            ("mcp-session-id", id.as_str()),
            ("last-event-id", priming.as_str()),
        ];
        let rest = house.get(&headers).await.rest().await;
        let last = rest.last().unwrap().json();
        assert_eq!(last["id"], 1);
        if events < 1000 {
            assert_eq!(rest.len(), 201, "all of it");
        } else {
            assert_eq!(
                last["error"]["code"], -31004,
                "what the log could not hold is said"
            );
        }
    }
}

/// Case 69, EL-29: when the gateway stops, streams of sessions end with a spread `retry`, calls go
/// on.
#[tokio::test(start_paused = true)]
async fn case_69_draining_ends_streams_with_retry_and_keeps_calls() {
    let below = Below::default();
    let house = below.house();
    let id = house.open(D, "{}").await;
    let mut post = house.in_session(&id, &call("1", "")).await;
    let priming = post.next().await.unwrap().id();
    let mut get = listen(&house, &id).await;
    get.next().await.unwrap();
    house.supervisor().drain();
    for items in [post.rest().await, get.rest().await] {
        let [Item::Retry(millis)] = items.as_slice() else {
            panic!("{items:?}")
        };
        assert!((2000..=5000).contains(millis));
    }
    assert!(!below.is_dropped(0));
    below.end(0);
    settle().await;
    let headers = [
        ("mcp-session-id", id.as_str()),
        ("last-event-id", priming.as_str()),
    ];
    assert_eq!(house.get(&headers).await.status(), 200);
}

/// CAN-03: a call that was cancelled below ends its stream without a response.
#[tokio::test(start_paused = true)]
async fn can_03_a_call_cancelled_below_ends_without_a_response() {
    let below = Below::default();
    let house = below.house();
    let id = house.open(D, "{}").await;
    let mut got = house.in_session(&id, &call("1", "")).await;
    got.next().await.unwrap();
    below.tell(0, Event::Final(vestibule_exchange::Final::Cancelled));
    assert!(got.rest().await.is_empty());
    assert_eq!(house.supervisor().calls(), 0);
}

/// A house whose calls panic after so many seconds.
fn fragile(seconds: u64) -> House {
    House::new(move |_| {
        vestibule_exchange::Events::stream(futures_util::stream::once(async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            panic!("a bug of a stage below");
        }))
    })
}

/// EL-14, EL-15: a stream whose task has died gets its one answer, while it is read or later.
#[tokio::test(start_paused = true)]
async fn el_15_a_stream_whose_task_has_died_gets_its_one_answer() {
    for reading in [true, false] {
        let house = fragile(5);
        let id = house.open(D, "{}").await;
        let mut got = house.in_session(&id, &call("\"a\"", "")).await;
        let priming = got.next().await.unwrap().id();
        let items = if reading {
            got.rest().await
        } else {
            drop(got);
            tokio::time::sleep(Duration::from_secs(10)).await;
            house.supervisor().sweep_log().await;
            let headers = [
                ("mcp-session-id", id.as_str()),
                ("last-event-id", priming.as_str()),
            ];
            house.get(&headers).await.rest().await
        };
        assert_eq!(items.len(), 1, "{items:?}");
        let error = items[0].json();
        assert_eq!(error["id"], "a");
        assert_eq!(error["error"]["code"], -31004);
        assert_eq!(error["error"]["data"]["reason"], "outcome_unknown");
        assert_eq!(house.supervisor().calls(), 0, "and its id is free again");
    }
}

/// ERR-01: before a head was sent, a dead task is an internal error for its request.
#[tokio::test(start_paused = true)]
async fn err_01_a_task_that_dies_before_the_head_is_an_internal_error() {
    let house = fragile(1);
    let id = house.open(D, "{}").await;
    let got = house.in_session(&id, &call("\"a\"", "")).await;
    assert_eq!(got.status(), 500);
    let error = got.json().await;
    assert_eq!(
        (&error["id"], &error["error"]["code"]),
        (&json!("a"), &json!(-32603))
    );
}

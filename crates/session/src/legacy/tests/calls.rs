use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use vestibule_exchange::{Event, Events, Final, LogLevel};
use vestibule_terms::accept::Accepts;
use vestibule_terms::{Method, Revision};

use super::{Below, error, quick, settle};
use crate::testing::{House, Item, call, draft, progress, result};

const B: Revision = Revision::R2025_03_26;
const C: Revision = Revision::R2025_06_18;
const D: Revision = Revision::R2025_11_25;

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

/// HTR-06, EL-20: an answer that comes first is JSON, with the client's own id.
#[tokio::test]
async fn htr_06_an_answer_that_comes_first_is_json() {
    let house = quick();
    let id = house.open(D, "{}").await;
    for token in ["1", "\"1\"", "\"\\u0061\"", "12345678901234567890", "\"\""] {
        let got = house.in_session(&id, &call(token, "")).await;
        assert_eq!(got.header("mcp-session-id"), None);
        let text = got.text().await;
        assert!(
            text.contains(&format!(r#""id":{token},"#)),
            "FRM-04, case 52: {text}"
        );
    }
}

/// 5.5, MET-07: what belongs to a stateless hop does not reach a legacy client.
#[tokio::test]
async fn met_07_members_of_a_stateless_hop_are_removed() {
    let theirs = r#"{"resultType":"complete","content":[],"x":1.0,"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"u"},"v/x":1}}"#;
    let house = House::new(move |_| Events::ready(result(theirs)));
    let id = house.open(D, "{}").await;
    let text = house.in_session(&id, &call("1", "")).await.text().await;
    assert_eq!(
        text,
        r#"{"jsonrpc":"2.0","id":1,"result":{"content":[],"x":1.0,"_meta":{"v/x":1}}}"#
    );
}

/// FRM-16, FRM-11, CAN-02: unknown methods are errors with status 200.
#[tokio::test]
async fn frm_16_methods_that_do_not_exist_are_errors_with_status_200() {
    let house = quick();
    let id = house.open(C, "{}").await;
    for method in [
        "resources/write",
        "server/discover",
        "tasks/get",
        "notifications/initialized",
    ] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}"}}"#);
        let got = house.in_session(&id, &body).await;
        assert_eq!(
            (got.status().as_u16(), got.code().await),
            (200, -32601),
            "{method}"
        );
    }
}

/// FRM-12, FRM-13, FRM-14, case 57: notifications that must not do anything.
#[tokio::test]
async fn frm_13_foreign_notifications_are_accepted_and_do_nothing() {
    let below = Below::default();
    let house = below.house();
    let id = house.open(D, r#"{"roots":{"listChanged":true}}"#).await;
    for method in [
        "notifications/foo",
        "notifications/resources/updated",
        "foo/bar",
    ] {
        let got = house
            .in_session(&id, &format!(r#"{{"jsonrpc":"2.0","method":"{method}"}}"#))
            .await;
        assert_eq!(
            (got.status().as_u16(), got.text().await.as_str()),
            (202, ""),
            "{method}"
        );
    }
    let got = house
        .in_session(&id, r#"{"jsonrpc":"2.0","method":"tools/call"}"#)
        .await;
    assert_eq!(got.status(), 400, "FRM-12");
    assert_eq!(below.calls(), 0);
    let roots = r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#;
    house.in_session(&id, roots).await;
    assert_eq!(house.back.taken(), [format!("notify {roots}")], "8.4");
}

/// PNG-01: answered here.
#[tokio::test]
async fn png_01_ping_is_answered_locally() {
    let below = Below::default();
    let house = below.house();
    let id = house.open(D, "{}").await;
    let got = house
        .in_session(&id, r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#)
        .await;
    assert_eq!(
        got.json().await,
        json!({"jsonrpc": "2.0", "id": "p", "result": {}})
    );
    assert_eq!(below.calls(), 0);
}

/// FRM-06, case 53: an id in flight is refused, another type of it is not.
#[tokio::test(start_paused = true)]
async fn frm_06_an_id_in_flight_is_refused() {
    let below = Below::default();
    let house = below.house();
    let id = house.open(D, "{}").await;
    let (one, text) = (call("1", ""), call("\"1\"", ""));
    let (first, second, third) = tokio::join!(
        house.in_session(&id, &one),
        async {
            settle().await;
            house.in_session(&id, &one).await
        },
        async {
            settle().await;
            let asking = house.in_session(&id, &text);
            let ending = async {
                settle().await;
                below.end(1);
                below.end(0);
            };
            tokio::join!(asking, ending).0
        },
    );
    assert_eq!(
        (second.status().as_u16(), second.code().await),
        (400, -32600)
    );
    assert_eq!(first.json().await["id"], 1);
    assert_eq!(third.json().await["id"], "1");
    assert_eq!(below.calls(), 2, "the second request is not executed");
    let again = house.in_session(&id, &one);
    let ending = async {
        settle().await;
        below.end(2);
    };
    assert_eq!(
        tokio::join!(again, ending).0.status(),
        200,
        "reuse after completion"
    );
}

/// PRG-01, SSE-01, RES-01, case 124: events have ids, and only 2025-11-25 has priming.
#[tokio::test]
async fn case_124_priming_is_for_2025_11_25_only() {
    for revision in [Revision::R2024_11_05, B, C, D] {
        let below = Below::default();
        let house = below.house();
        let id = house.open(revision, "{}").await;
        let body = call("1", r#""progressToken":"p""#);
        let asking = house.in_session(&id, &body);
        let telling = async {
            while below.calls() == 0 {
                tokio::task::yield_now().await;
            }
            below.tell(0, progress(1));
            below.end(0);
        };
        let got = tokio::join!(asking, telling).0;
        assert!(got.is_stream());
        let mut items = got.rest().await;
        if revision == D {
            let priming = items.remove(0);
            assert!(matches!(&priming, Item::Event(Some(_), data) if data.is_empty()));
        }
        assert_eq!(items.len(), 2, "{revision}: {items:?}");
        let ids = items
            .iter()
            .filter(|item| matches!(item, Item::Event(Some(_), _)))
            .count();
        assert_eq!(
            ids,
            if revision == Revision::R2024_11_05 {
                0
            } else {
                2
            },
            "{revision}"
        );
        assert_eq!(items[0].json()["params"]["progressToken"], "p");
        assert_eq!(items[1].json()["id"], 1);
    }
}

/// `stream_after`, SSE-15: a slow answer becomes a stream with comments, whatever comes.
#[tokio::test(start_paused = true)]
async fn case_125_a_slow_answer_becomes_a_stream_with_comments() {
    let below = Below::default();
    let house = below.house();
    let id = house.open(C, "{}").await;
    let begun = Instant::now();
    let mut got = house.in_session(&id, &call("1", "")).await;
    assert!(got.is_stream());
    assert_eq!(begun.elapsed(), Duration::from_secs(2));
    assert_eq!(got.next().await, Some(Item::Comment));
    assert_eq!(begun.elapsed(), Duration::from_secs(17));
    below.end(0);
    assert_eq!(got.rest().await.len(), 1);
}

/// Case 132: a client that takes only JSON waits for it; one that takes only SSE gets events.
#[tokio::test(start_paused = true)]
async fn case_132_the_form_follows_accept() {
    let below = Below::default();
    let mut house = below.house();
    let id = house.open(D, "{}").await;
    house.accepts = Accepts {
        sse: false,
        ..Accepts::ANY
    };
    let body = call("1", r#""progressToken":1"#);
    let telling = async {
        settle().await;
        below.tell(0, progress(1));
        tokio::time::sleep(Duration::from_secs(30)).await;
        below.end(0);
    };
    let got = tokio::join!(house.in_session(&id, &body), telling).0;
    assert_eq!(got.json().await["id"], 1);
    assert_eq!(
        house.get(&[("mcp-session-id", &id)]).await.status(),
        406,
        "HDR-03"
    );
    let mut house = quick();
    let id = house.open(C, "{}").await;
    house.accepts = Accepts {
        json: false,
        ..Accepts::ANY
    };
    let items = house.in_session(&id, &call("1", "")).await.rest().await;
    assert!(
        matches!(items.as_slice(), [Item::Event(Some(_), _)]),
        "RES-01: {items:?}"
    );
}

/// LOG-01, LOG-02, 8.3: `warning` before a level was set; then the level, at once.
#[tokio::test]
async fn log_01_logs_follow_the_sessions_level() {
    let below = Below::default();
    let house = below.house();
    let id = house.open(C, "{}").await;
    let body = call("1", "");
    let set = |level: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":9,"method":"logging/setLevel","params":{{"level":"{level}"}}}}"#
        )
    };
    let wait = async |calls| {
        while below.calls() < calls {
            tokio::task::yield_now().await;
        }
    };
    let telling = async {
        wait(1).await;
        below.tell(0, log(LogLevel::Info));
        below.tell(0, log(LogLevel::Warning));
        below.end(0);
    };
    let items = tokio::join!(house.in_session(&id, &body), telling)
        .0
        .rest()
        .await;
    assert_eq!(items.len(), 2);
    assert_eq!(items[0].json()["params"]["level"], "warning");
    below.with(0, |call| assert_eq!(call.log_level, None, "none was set"));

    let got = house.in_session(&id, &set("Debug")).await;
    assert_eq!(
        (got.status().as_u16(), got.code().await),
        (200, -32602),
        "LOG-02"
    );
    let debug = set("debug");
    let failing = async {
        wait(2).await;
        below.tell(1, Event::Final(error(-31001)));
    };
    let got = tokio::join!(house.in_session(&id, &debug), failing).0;
    assert_eq!(
        got.json().await["result"],
        json!({}),
        "whatever upstreams say"
    );

    let telling = async {
        wait(3).await;
        below.tell(2, log(LogLevel::Debug));
        below.end(2);
    };
    let items = tokio::join!(house.in_session(&id, &body), telling)
        .0
        .rest()
        .await;
    assert_eq!(items[0].json()["params"]["level"], "debug");
    below.with(2, |call| assert_eq!(call.log_level, Some(LogLevel::Debug)));
}

/// CAN-01, CAN-03, CAN-04, case 84: a cancelled call ends at its upstream, without a response.
#[tokio::test(start_paused = true)]
async fn can_03_a_cancelled_call_gets_no_response() {
    let below = Below::default();
    let house = below.house();
    let id = house.open(D, "{}").await;
    let cancel = |id: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
        )
    };
    let (body, wrong, right) = (call("101", ""), cancel("\"101\""), cancel("101"));
    let asking = house.in_session(&id, &body);
    let cancelling = async {
        settle().await;
        assert_eq!(house.in_session(&id, &wrong).await.status(), 202);
        settle().await;
        assert!(!below.is_dropped(0), "another id");
        assert_eq!(house.in_session(&id, &right).await.status(), 202);
    };
    let got = tokio::join!(asking, cancelling).0;
    assert!(got.is_stream() && got.status() == 200);
    assert!(
        got.rest().await.is_empty(),
        "no event with an id, ended at once"
    );
    assert!(below.is_dropped(0));
    assert_eq!(house.in_session(&id, &right).await.status(), 202, "CAN-04");

    let mut got = house.in_session(&id, &body).await;
    let priming = got.next().await.unwrap().id();
    house.in_session(&id, &right).await;
    assert!(got.rest().await.is_empty());
    assert!(below.is_dropped(1));
    let resumed = house
        .get(&[("mcp-session-id", &id), ("last-event-id", &priming)])
        .await;
    assert_eq!(
        resumed.status(),
        405,
        "RES-06: a cancelled call's stream is complete"
    );
}

/// SSE-09, case 85, EL-14: the connection breaks, the call goes on, its end can be fetched.
#[tokio::test(start_paused = true)]
async fn case_85_a_broken_connection_is_not_a_cancellation() {
    let below = Below::default();
    let house = below.house();
    let id = house.open(D, "{}").await;
    let mut got = house.in_session(&id, &call("1", "")).await;
    let priming = got.next().await.unwrap().id();
    drop(got);
    settle().await;
    assert!(!below.is_dropped(0));
    assert!(below.end(0));
    settle().await;
    let headers = [
        ("mcp-session-id", id.as_str()),
        ("last-event-id", priming.as_str()),
    ];
    let items = house.get(&headers).await.rest().await;
    assert_eq!(items.len(), 1);
    assert_eq!(items[0].json()["id"], 1);
    assert_eq!(
        house.get(&headers).await.rest().await.len(),
        1,
        "the same rest again"
    );
    let end = items[0].id();
    let got = house
        .get(&[("mcp-session-id", &id), ("last-event-id", &end)])
        .await;
    assert_eq!(
        (got.status().as_u16(), got.text().await.as_str()),
        (405, ""),
        "RES-06"
    );
}

/// The head is still withheld when the connection breaks: the call runs to its end all the same.
#[tokio::test(start_paused = true)]
async fn case_85_a_call_outlives_a_connection_that_never_got_a_head() {
    let below = Below::default();
    let house = below.house();
    let id = house.open(D, "{}").await;
    let body = call("1", "");
    let asking = house.in_session(&id, &body);
    assert!(
        tokio::time::timeout(Duration::from_secs(1), asking)
            .await
            .is_err()
    );
    settle().await;
    assert!(!below.is_dropped(0));
    assert!(below.end(0));
    settle().await;
    assert_eq!(house.supervisor().calls(), 0);
}

/// LIF-09, AMB-11: the cap ends a call that nobody else ends.
#[tokio::test(start_paused = true)]
async fn lif_09_the_cap_ends_a_call() {
    let below = Below::default();
    let house = below.house();
    let id = house.open(C, "{}").await;
    let items = house.in_session(&id, &call("1", "")).await.rest().await;
    assert_eq!(items[0].json()["error"]["code"], -31002);
    assert!(below.is_dropped(0));
}

/// STA-23, ERR-09: a limit is 429 with Retry-After in every era.
#[tokio::test]
async fn sta_23_limits_are_429_for_sessions_too() {
    let house = House::new(|_| Events::ready(error(-31005)));
    let id = house.open(C, "{}").await;
    let got = house.in_session(&id, &call("1", "")).await;
    assert_eq!(got.status(), 429);
    assert_eq!(got.header("retry-after"), Some("1"));
}

/// RSC-06: subscriptions are kept in the session and passed on.
#[tokio::test]
async fn rsc_06_subscriptions_are_calls_that_the_session_remembers() {
    let house = House::new(|call| {
        assert!(matches!(
            call.method,
            Method::ResourcesSubscribe | Method::ResourcesUnsubscribe
        ));
        Events::ready(Final::Empty)
    });
    let id = house.open(C, "{}").await;
    for method in ["resources/subscribe", "resources/unsubscribe"] {
        let body =
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"uri":"a:b"}}}}"#);
        let got = house.in_session(&id, &body).await;
        assert_eq!(got.json().await["result"], json!({}));
    }
}

/// SSE-05, `poll_close`: the client's stream ends with the upstream's, after `retry`, and goes on.
#[tokio::test(start_paused = true)]
async fn sse_05_a_paused_upstream_pauses_the_client_when_asked_to() {
    for poll_close in [true, false] {
        let below = Below::default();
        let mut house = below.house();
        house.plan.poll_close = poll_close;
        let id = house.open(D, "{}").await;
        let body = call("1", "");
        let telling = async {
            settle().await;
            below.tell(
                0,
                Event::Paused {
                    retry: Some(Duration::from_millis(700)),
                },
            );
            settle().await;
            below.end(0);
        };
        let got = tokio::join!(house.in_session(&id, &body), telling).0;
        if !poll_close {
            assert_eq!(got.json().await["id"], 1);
            continue;
        }
        let items = got.rest().await;
        assert_eq!(items[1..], [Item::Retry(700)], "{items:?}");
        let last = items[0].id();
        let headers = [
            ("mcp-session-id", id.as_str()),
            ("last-event-id", last.as_str()),
        ];
        assert_eq!(house.get(&headers).await.rest().await[0].json()["id"], 1);
    }
    let below = Below::default();
    let mut house = below.house();
    house.plan.poll_close = true;
    let id = house.open(C, "{}").await;
    let body = call("1", "");
    let telling = async {
        settle().await;
        below.tell(0, Event::Paused { retry: None });
        settle().await;
        below.end(0);
    };
    let got = tokio::join!(house.in_session(&id, &body), telling).0;
    assert_eq!(
        got.json().await["id"],
        1,
        "SSE-03: older streams are never closed early"
    );
}

/// LIF-12 is for the other era: a session's call carries session, capabilities and inlet.
#[tokio::test]
async fn cap_06_a_call_carries_what_the_client_declared() {
    let below = Below::default();
    let house = below.house();
    let id = house.open(C, r#"{"roots":{},"elicitation":{}}"#).await;
    let body = call("1", "");
    let ending = async {
        while below.calls() == 0 {
            tokio::task::yield_now().await;
        }
        below.end(0);
    };
    tokio::join!(house.in_session(&id, &body), ending);
    below.with(0, |call| {
        assert!(call.capabilities.roots && call.capabilities.elicit_form);
        assert!(!call.capabilities.sampling && !call.progress);
        assert_eq!(call.session.as_ref().unwrap().session.expose(), id);
        assert_eq!(call.revision, C);
    });
}

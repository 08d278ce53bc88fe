use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use vestibule_exchange::Event;
use vestibule_terms::Revision;

use super::{Below, error, quick, settle};
use crate::testing::{Item, call, progress};

const B: Revision = Revision::R2025_03_26;

fn batch(elements: &[&str]) -> String {
    format!("[{}]", elements.join(","))
}

const PING: &str = r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#;
const READY: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// XT-460, BAT-01, BAT-06: requests run on their own and come back as one array in order.
#[tokio::test(start_paused = true)]
async fn xt_460_a_batch_is_answered_as_one_array_in_request_order() {
    let below = Below::default();
    let house = below.house();
    let id = house.open(B, "{}").await;
    let body = batch(&[&call("1", ""), READY, PING, &call("\"1\"", "")]);
    let ending = async {
        settle().await;
        assert_eq!(below.calls(), 2, "both run at once");
        below.end(1);
        settle().await;
        below.tell(0, Event::Final(error(-32602)));
    };
    let got = tokio::join!(house.in_session(&id, &body), ending).0;
    assert_eq!(got.status(), 200);
    let body = got.json().await;
    let ids: Vec<&Value> = body
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["id"])
        .collect();
    assert_eq!(ids, [&json!(1), &json!("p"), &json!("1")]);
    assert_eq!(body[0]["error"]["code"], -32602);
    assert_eq!(body[2]["result"]["content"][0]["text"], "hi");
}

/// XT-461, FRM-18, case 58: no other revision takes a batch, and nothing of it is executed.
#[tokio::test]
async fn xt_461_other_revisions_refuse_batches() {
    for revision in [
        Revision::R2024_11_05,
        Revision::R2025_06_18,
        Revision::R2025_11_25,
    ] {
        let below = Below::default();
        let house = below.house();
        let id = house.open(revision, "{}").await;
        let got = house.in_session(&id, &batch(&[&call("1", "")])).await;
        assert_eq!(got.status(), 400, "{revision}");
        let body = got.json().await;
        assert_eq!(body["error"]["code"], -32600);
        assert!(body.get("id").is_none());
        assert_eq!(below.calls(), 0);
    }
    let house = quick();
    assert_eq!(
        house.post(&[], &batch(&[PING])).await.status(),
        400,
        "no session"
    );
    assert_eq!(
        house.in_session("dead", &batch(&[PING])).await.status(),
        404
    );
}

/// XT-462, BAT-05: only notifications or responses: 202.
#[tokio::test]
async fn xt_462_batches_without_requests_are_accepted() {
    let house = quick();
    let id = house.open(B, "{}").await;
    let responses = batch(&[r#"{"jsonrpc":"2.0","id":9,"result":{}}"#]);
    for body in [
        batch(&[READY, r#"{"jsonrpc":"2.0","method":"x/y"}"#]),
        responses,
    ] {
        let got = house.in_session(&id, &body).await;
        assert_eq!(
            (got.status().as_u16(), got.text().await.as_str()),
            (202, "")
        );
    }
}

/// XT-463, BAT-07, FRM-06: the second of two equal ids is refused alone.
#[tokio::test(start_paused = true)]
async fn xt_463_a_repeated_id_is_refused_alone() {
    let below = Below::default();
    let house = below.house();
    let id = house.open(B, "{}").await;
    let body = batch(&[&call("1", ""), &call("1", "")]);
    let ending = async {
        settle().await;
        assert_eq!(below.calls(), 1);
        below.end(0);
    };
    let body = tokio::join!(house.in_session(&id, &body), ending)
        .0
        .json()
        .await;
    assert!(body[0].get("result").is_some());
    assert_eq!(body[1]["error"]["code"], -32600);
}

/// XT-464, BAT-06, 8.7: what is slow, or speaks, makes a stream: one event a response.
#[tokio::test(start_paused = true)]
async fn xt_464_a_slow_batch_becomes_one_stream() {
    let below = Below::default();
    let house = below.house();
    let id = house.open(B, "{}").await;
    let body = batch(&[&call("1", r#""progressToken":7"#), PING, &call("2", "")]);
    let begun = Instant::now();
    let ending = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        below.end(1);
    };
    let mut got = tokio::join!(house.in_session(&id, &body), ending).0;
    assert_eq!(begun.elapsed(), Duration::from_secs(2));
    assert!(got.is_stream());
    let first = got.next().await.unwrap();
    let second = got.next().await.unwrap();
    assert_eq!(
        (&first.json()["id"], &second.json()["id"]),
        (&json!("p"), &json!(2))
    );
    below.tell(0, progress(1));
    assert_eq!(
        got.next().await.unwrap().json()["params"]["progressToken"],
        7
    );
    below.end(0);
    assert_eq!(got.next().await.unwrap().json()["id"], 1);
    assert!(got.next().await.is_none(), "ends after the last one");
    let headers = [
        ("mcp-session-id", id.as_str()),
        ("last-event-id", &first.id()),
    ];
    assert_eq!(
        house.get(&headers).await.rest().await.len(),
        3,
        "and can be resumed"
    );
}

/// XT-465: cancelling one element leaves the others alone.
#[tokio::test(start_paused = true)]
async fn xt_465_one_element_can_be_cancelled() {
    let below = Below::default();
    let house = below.house();
    let id = house.open(B, "{}").await;
    let body = batch(&[&call("1", ""), &call("2", "")]);
    let ending = async {
        settle().await;
        let cancel =
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
        house.in_session(&id, cancel).await;
        settle().await;
        assert!(below.is_dropped(0) && !below.is_dropped(1));
        below.end(1);
    };
    let body = tokio::join!(house.in_session(&id, &body), ending)
        .0
        .json()
        .await;
    assert_eq!(body.as_array().unwrap().len(), 1);
    assert_eq!(body[0]["id"], 2);
}

/// 8.7: elements count in their order, so that a batch can cancel its own request.
#[tokio::test(start_paused = true)]
async fn xt_465_a_batch_can_cancel_its_own_request() {
    let below = Below::default();
    let house = below.house();
    let id = house.open(B, "{}").await;
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    let body = house
        .in_session(&id, &batch(&[&call("1", ""), PING, cancel]))
        .await
        .json()
        .await;
    assert_eq!(body, json!([{"jsonrpc": "2.0", "id": "p", "result": {}}]));
}

/// XT-466: when every element was cancelled there is nothing to say.
#[tokio::test(start_paused = true)]
async fn xt_466_a_batch_that_was_cancelled_whole_ends_without_events() {
    let below = Below::default();
    let house = below.house();
    let id = house.open(B, "{}").await;
    let body = batch(&[&call("1", "")]);
    let ending = async {
        settle().await;
        let cancel =
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
        house.in_session(&id, cancel).await;
    };
    let got = tokio::join!(house.in_session(&id, &body), ending).0;
    assert_eq!(got.rest().await, Vec::<Item>::new());
}

/// XT-467: unknown methods and notifications of the wrong kind fail alone.
#[tokio::test]
async fn xt_467_elements_fail_alone() {
    let house = quick();
    let id = house.open(B, "{}").await;
    let body = batch(&[
        r#"{"jsonrpc":"2.0","id":1,"method":"server/discover"}"#,
        r#"{"jsonrpc":"2.0","method":"tools/call"}"#,
        PING,
    ]);
    let body = house.in_session(&id, &body).await.json().await;
    assert_eq!(body[0]["error"]["code"], -32601);
    assert_eq!(body[1]["result"], json!({}));
}

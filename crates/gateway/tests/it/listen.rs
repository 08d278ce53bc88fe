//! `subscriptions/listen` through the gateway: acknowledged first, one upstream stream each, every
//! notification under the client's own id.

use serde_json::{Value, json};
use vestibule_testkit::recording::AnswerStream;
use vestibule_testkit::{Answer, Recorded};

use crate::harness::Gateway;
use crate::peers::{
    Stream, legacy_upstream, modern, modern_upstream, notification, streams, tenant,
};

const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

fn listen(target: &str, id: &Value, filter: &Value) -> vestibule_testkit::RawRequest {
    modern(
        target,
        id,
        "subscriptions/listen",
        &json!({ "notifications": filter }),
    )
}

/// Acknowledges an upstream listen with what it asked for.
async fn acknowledge(request: &Recorded, stream: &AnswerStream) {
    let filter = request.json()["params"]["notifications"].clone();
    say(
        request,
        stream,
        "notifications/subscriptions/acknowledged",
        json!({ "notifications": filter }),
    )
    .await;
}

async fn say(request: &Recorded, stream: &AnswerStream, method: &str, params: Value) {
    let mut params = params;
    params["_meta"][SUBSCRIPTION] = request.rpc_id();
    stream
        .message(&notification(method, &params))
        .await
        .unwrap();
}

fn all() -> Value {
    json!({ "tools": { "listChanged": true }, "resources": { "listChanged": true, "subscribe": true } })
}

/// SUB-01 … SUB-03, SUB-09, XT-420, XT-421, case 156: the acknowledgement comes first and names what
/// is honoured; two listens hear each their own, under their ids with type; what nobody asked for,
/// and progress, is dropped; the upstream's id stays behind.
#[tokio::test]
async fn case_156_listens_hear_their_own_under_their_own_ids() {
    let (opens, streams) = streams();
    let upstream = modern_upstream(all(), move |request| {
        (request.rpc_method() == "subscriptions/listen").then(|| opens.answer(request))
    })
    .await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));

    let filter = json!({ "resourceSubscriptions": ["up+file:///a"], "toolsListChanged": true, "promptsListChanged": true });
    let mut one = Stream::send(&gateway, listen("/mcp/t", &json!(7), &filter)).await;
    let (one_up, one_stream) = streams.next().await;
    assert_eq!(one_up.field("mcp-method"), Some("subscriptions/listen"));
    let sent = one_up.json()["params"]["notifications"].clone();
    assert_eq!(
        sent,
        json!({ "toolsListChanged": true, "resourceSubscriptions": ["file:///a"] })
    );
    // an event before the acknowledgement is a violation and dropped (SUB-13)
    say(
        &one_up,
        &one_stream,
        "notifications/tools/list_changed",
        json!({}),
    )
    .await;
    acknowledge(&one_up, &one_stream).await;

    let filter = json!({ "toolsListChanged": true, "resourcesListChanged": false });
    let mut two = Stream::send(&gateway, listen("/mcp/t", &json!("7"), &filter)).await;
    let (two_up, two_stream) = streams.next().await;
    acknowledge(&two_up, &two_stream).await;

    let first = one.event().await.unwrap();
    assert_eq!(first.id, None);
    let first = first.json();
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(first["params"]["_meta"][SUBSCRIPTION], 7);
    assert_eq!(
        first["params"]["notifications"],
        json!({ "resourceSubscriptions": ["up+file:///a"], "toolsListChanged": true })
    );
    let first = two.next().await;
    assert_eq!(first["params"]["_meta"][SUBSCRIPTION], "7");
    assert_eq!(
        first["params"]["notifications"],
        json!({ "toolsListChanged": true })
    );

    say(
        &one_up,
        &one_stream,
        "notifications/progress",
        json!({ "progressToken": 1, "progress": 1 }),
    )
    .await;
    say(
        &one_up,
        &one_stream,
        "notifications/prompts/list_changed",
        json!({}),
    )
    .await;
    say(
        &one_up,
        &one_stream,
        "notifications/resources/updated",
        json!({ "uri": "file:///ab" }),
    )
    .await;
    say(
        &one_up,
        &one_stream,
        "notifications/resources/updated",
        json!({ "uri": "file:///a/b", "_meta": { "com.x": 1.5 } }),
    )
    .await;
    let updated = one.next().await;
    assert_eq!(
        updated["method"], "notifications/resources/updated",
        "{updated}"
    );
    assert_eq!(updated["params"]["uri"], "up+file:///a/b");
    assert_eq!(
        updated["params"]["_meta"],
        json!({ "com.x": 1.5, SUBSCRIPTION: 7 })
    );

    say(
        &two_up,
        &two_stream,
        "notifications/tools/list_changed",
        json!({}),
    )
    .await;
    let changed = two.next().await;
    assert_eq!(changed["method"], "notifications/tools/list_changed");
    assert_eq!(changed["params"]["_meta"][SUBSCRIPTION], "7");

    // XT-427: closing one ends its upstream stream and leaves the other
    one.abandon();
    one_stream.gone().await;
    say(
        &two_up,
        &two_stream,
        "notifications/tools/list_changed",
        json!({}),
    )
    .await;
    assert_eq!(
        two.next().await["method"],
        "notifications/tools/list_changed"
    );
}

/// XT-424, SUB-12, case 157: what the upstream does not honour, or cannot listen for at all, is
/// missing in the acknowledgement; the stream stays, other methods are untouched.
#[tokio::test]
async fn case_157_an_upstream_without_listen_is_left_out() {
    let (opens, streams) = streams();
    let able = modern_upstream(all(), move |request| {
        (request.rpc_method() == "subscriptions/listen").then(|| opens.answer(request))
    })
    .await;
    let unable = modern_upstream(all(), |request| match request.rpc_method().as_str() {
        "subscriptions/listen" => Some(Answer::error(request, 404, -32601, "Method not found")),
        "tools/call" => Some(Answer::result(
            request,
            &json!({ "content": [], "resultType": "complete" }),
        )),
        _ => None,
    })
    .await;
    let gateway = Gateway::start(&tenant(&[("a", &able.url()), ("b", &unable.url())]));
    let filter =
        json!({ "toolsListChanged": true, "resourceSubscriptions": ["a+x:1", "a+x:2", "b+x:3"] });
    let mut client = Stream::send(&gateway, listen("/mcp/t", &json!(1), &filter)).await;
    let (request, stream) = streams.next().await;
    let honoured =
        json!({ "notifications": { "toolsListChanged": true, "resourceSubscriptions": ["x:2"] } });
    say(
        &request,
        &stream,
        "notifications/subscriptions/acknowledged",
        honoured,
    )
    .await;
    let first = client.next().await;
    assert_eq!(
        first["params"]["notifications"],
        json!({ "toolsListChanged": true, "resourceSubscriptions": ["a+x:2"] })
    );
    let answer = gateway
        .ask(modern(
            "/mcp/t/b",
            &json!(2),
            "tools/call",
            &json!({ "name": "t" }),
        ))
        .await;
    assert!(answer.answer()["result"].is_object(), "{:?}", answer.body);
    let before = unable.calls("subscriptions/listen").len();
    assert!(before <= 2, "no reconnect churn: {before}");
}

/// XT-425, SUB-05: when the upstream's listen is lost it is opened again, and the client is told
/// that what it listens to may have changed.
#[tokio::test]
async fn xt_425_a_lost_upstream_listen_is_opened_again() {
    let (opens, streams) = streams();
    let upstream = modern_upstream(all(), move |request| {
        (request.rpc_method() == "subscriptions/listen").then(|| opens.answer(request))
    })
    .await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    let filter = json!({ "resourceSubscriptions": ["x:1"] });
    let mut client = Stream::send(&gateway, listen("/mcp/t/up", &json!(1), &filter)).await;
    let (request, stream) = streams.next().await;
    acknowledge(&request, &stream).await;
    client.next().await;
    stream.break_off().await;
    let (again, stream) = streams.next().await;
    assert_ne!(request.rpc_id(), again.rpc_id());
    acknowledge(&again, &stream).await;
    let updated = client.next().await;
    assert_eq!(updated["method"], "notifications/resources/updated");
    assert_eq!(updated["params"]["uri"], "x:1");
}

/// SUB-08: a listen without a filter is refused, an empty one acknowledged as empty.
#[tokio::test]
async fn sub_08_the_filter_is_needed_and_may_be_empty() {
    let upstream = modern_upstream(all(), |_| None).await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    let answer = gateway
        .ask(modern(
            "/mcp/t/up",
            &json!(1),
            "subscriptions/listen",
            &json!({}),
        ))
        .await;
    assert_eq!(
        (answer.status, answer.answer()["error"]["code"].as_i64()),
        (200, Some(-32602))
    );
    let mut client = Stream::send(&gateway, listen("/mcp/t/up", &json!(1), &json!({}))).await;
    assert_eq!(client.next().await["params"]["notifications"], json!({}));
    assert!(upstream.calls("subscriptions/listen").is_empty());
}

/// Until subscriptions cross eras, a server all of whose upstreams need a session says so at once.
#[tokio::test]
async fn listening_to_a_legacy_upstream_is_not_translated_yet() {
    let upstream = legacy_upstream(all(), |_| None).await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    let filter = json!({ "toolsListChanged": true });
    let answer = gateway.ask(listen("/mcp/t/up", &json!(1), &filter)).await;
    assert_eq!(
        (answer.status, answer.answer()["error"]["code"].as_i64()),
        (200, Some(-31007))
    );
}

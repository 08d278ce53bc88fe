//! Sizes, rates and numbers: what is too much is refused in the documented words, and whoever stays
//! within his own limit does not notice.

use serde_json::json;
use vestibule_testkit::{PATIENCE, RawRequest, RawResponse};

use crate::auth::key;
use crate::harness::Gateway;
use crate::talk::{
    META, SESSIONS, Session, Upstream, assert_refused, get, initialize, modern, modern_call,
    modern_text, open_tenant, post, soon, text,
};

const UP: &str = "/mcp/t/up";

fn limited(id: &str, upstream: &Upstream, auth: &str, limits: &str) -> String {
    format!(
        "  {id}:
{auth}
    policy: allow_all
    limits: {limits}
    upstreams:
      up: {{ {} }}
    servers:
      up: {{ upstream: up, stream_after: 20ms }}
",
        upstream.reach()
    )
}

fn echo() -> RawRequest {
    modern_call(UP, "echo", &json!({}))
}

fn assert_limited(answer: &RawResponse, limit: &str) {
    let json = assert_refused(limit, answer, 429, -31005);
    let after: u64 = answer.head.field("retry-after").unwrap().parse().unwrap();
    assert!(after >= 1);
    assert_eq!(json["error"]["data"]["limit"], limit, "{json}");
    assert_eq!(json["error"]["data"]["retry_after"], after);
}

/// A call whose body has exactly this many bytes.
fn sized(bytes: usize) -> String {
    let head = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"x":""#;
    let tail = format!(r#""}},{META}}}}}"#);
    let fill = "x".repeat(bytes - head.len() - tail.len());
    format!("{head}{fill}{tail}")
}

/// STA-22, FRM-23: within the limit works, above it is 413 that names it, by length and chunked.
#[tokio::test]
async fn case_74_frm_23_a_body_above_the_limit_is_413_and_names_it() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with(
        "listen: { max_body: 64KiB }",
        &open_tenant(&[("up", upstream.reach())], ""),
    );
    let call = |body: String| modern_text(UP, "tools/call", Some("echo"), body);
    let fits = gateway.ask(call(sized(65_536))).await;
    assert_eq!(fits.status, 200, "{:?}", fits.body.get(..200));
    let above = gateway.ask(call(sized(65_537))).await;
    let json = assert_refused("case 74", &above, 413, -32600);
    assert!(
        json["error"]["message"].as_str().unwrap().contains("65536"),
        "{json}"
    );
    assert_eq!(json.get("id"), None, "decided before the body");
    // declared and never sent: answered at once
    let mut client = gateway.connect().await;
    let head = String::from_utf8(call(String::new()).bytes()).unwrap();
    let declared = head.replace("Content-Length: 0", "Content-Length: 60000000");
    client.send(declared.as_bytes()).await.unwrap();
    assert_eq!(client.response().await.unwrap().status, 413);
    // chunked: found while it is read
    let mut client = gateway.connect().await;
    let chunked = head.replace("Content-Length: 0", "Transfer-Encoding: chunked");
    client.send(chunked.as_bytes()).await.unwrap();
    let body = sized(70_000);
    client
        .send(format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len()).as_bytes())
        .await
        .unwrap();
    assert_eq!(client.response().await.unwrap().status, 413);
    assert_eq!(upstream.calls(), 1);
    assert_eq!(
        gateway.ask(call(sized(1000))).await.status,
        200,
        "and it goes on"
    );
}

/// The default of 4 MiB takes a large file, and 12 MB are refused.
#[tokio::test]
async fn case_74_the_default_takes_megabytes() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::start(&open_tenant(&[("up", upstream.reach())], ""));
    let call = |bytes: usize| modern_text(UP, "tools/call", Some("echo"), sized(bytes));
    assert_eq!(gateway.ask(call(2_100_000)).await.status, 200);
    let mut client = gateway.connect().await;
    // the refusal may come while the body is still being written
    let request = call(12_000_000).bytes();
    let (head, _body) = request.split_at(2_000);
    client.send(head).await.unwrap();
    assert_eq!(client.response().await.unwrap().status, 413);
}

/// STA-23: over a rate every kind of request is 429; a call's id is echoed, the session lives on.
#[tokio::test]
async fn case_77_sta_23_over_a_rate_everything_is_429_in_the_same_words() {
    let upstream = Upstream::modern().await;
    let auth = format!(
        "    auth: {{ keys: true }}\n    keys:\n      one: {{ secret: \"{}\" }}\n      two: {{ secret: \"{}\" }}",
        key("one", "A"),
        key("two", "B"),
    );
    let limits = "{ principal: { rate: 1/h, burst: 6 } }";
    let gateway = Gateway::start(&limited("t", &upstream, &auth, limits));
    let key = key("one", "A");
    let session = Session::with_key(&gateway, UP, &key).await; // two of six
    let bearing = |request: RawRequest| request.field("Authorization", format!("Bearer {key}"));
    for _ in 0..4 {
        assert_eq!(gateway.ask(bearing(echo())).await.status, 200);
    }
    let limit = "principal.rate";
    let over = gateway
        .ask(session.call("the-id", "echo", &json!({})))
        .await;
    assert_limited(&over, limit);
    assert_eq!(over.json()["id"], "the-id");
    for (request, id) in [
        (bearing(initialize(UP, SESSIONS[0])), Some(json!(0))),
        (bearing(echo()), Some(json!(1))),
        (session.get(), None),
        (session.delete(), None),
        (session.notify("notifications/foo", &json!({})), None),
    ] {
        let over = gateway.ask(request).await;
        assert_limited(&over, limit);
        assert_eq!(over.json().get("id"), id.as_ref());
    }
    // case 76: the bucket is the caller's: nothing he sends opens another, and nobody else is in it
    for (name, value) in [
        ("X-Forwarded-For", "9.9.9.9"),
        ("Mcp-Session-Id", "other"),
        ("User-Agent", "x"),
    ] {
        let over = gateway.ask(bearing(echo()).field(name, value)).await;
        assert_limited(&over, limit);
    }
    let other = echo().field(
        "Authorization",
        format!("Bearer {}", crate::auth::key("two", "B")),
    );
    assert_eq!(gateway.ask(other).await.status, 200);
}

/// Case 76: tenants have a bucket each, whatever their callers are called.
#[tokio::test]
async fn case_76_tenants_do_not_share_a_bucket() {
    let upstream = Upstream::modern().await;
    let limits = "{ tenant: { rate: 1/h, burst: 2 }, principal: { rate: 1000/s, burst: 1000 } }";
    let open = "    auth: none";
    let gateway = Gateway::start(&format!(
        "{}{}",
        limited("t", &upstream, open, limits),
        limited("u", &upstream, open, limits),
    ));
    for _ in 0..2 {
        assert_eq!(gateway.ask(echo()).await.status, 200);
    }
    assert_limited(&gateway.ask(echo()).await, "tenant.rate");
    let other = modern_call("/mcp/u/up", "echo", &json!({}));
    assert_eq!(gateway.ask(other).await.status, 200);
}

/// `in_flight`: a place is free again when its answer is through, or its client gone.
#[tokio::test]
async fn calls_in_flight_are_limited_until_they_are_answered() {
    let upstream = Upstream::modern().await;
    let limits = "{ tenant: { in_flight: 1 } }";
    let gateway = Gateway::start(&limited("t", &upstream, "    auth: none", limits));
    let mut client = gateway.connect().await;
    client
        .send(&modern_call(UP, "stream", &json!({})).bytes())
        .await
        .unwrap();
    let (_call, stream) = upstream.opened().await;
    assert_limited(&gateway.ask(echo()).await, "tenant.in_flight");
    drop(client);
    stream.gone().await;
    // the upstream may hear of it first
    soon("there is room again", PATIENCE, async {
        while gateway.ask(echo()).await.status != 200 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// T26, STA-23: streams of a caller.
#[tokio::test]
async fn t26_open_streams_of_a_caller_are_limited() {
    let upstream = Upstream::modern().await;
    let limits = "{ tenant: { streams: 2 } }";
    let gateway = Gateway::start(&limited("t", &upstream, "    auth: none", limits));
    let session = Session::open(&gateway, UP, SESSIONS[0]).await;
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut client = gateway.connect().await;
        let head = client.open(&session.get()).await.unwrap();
        assert!(head.start.contains(" 200 "));
        open.push(client);
    }
    assert_limited(&gateway.ask(session.get()).await, "tenant.streams");
    assert_eq!(
        gateway
            .ask(session.call(1, "echo", &json!({})))
            .await
            .status,
        200
    );
}

/// SUB-06: eight listen streams of a caller on one server.
#[tokio::test]
async fn sub_06_a_ninth_listen_is_429() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::start(&open_tenant(&[("up", upstream.reach())], ""));
    let filter = json!({ "notifications": { "toolsListChanged": true } });
    let mut open = Vec::new();
    for id in 0..8 {
        let mut client = gateway.connect().await;
        let request = modern(UP, id, "subscriptions/listen", filter.clone());
        let head = client.open(&request).await.unwrap();
        assert!(head.start.contains(" 200 "), "{}", head.start);
        client.next_event().await.unwrap();
        open.push(client);
    }
    let ninth = gateway
        .ask(modern(UP, 9, "subscriptions/listen", filter))
        .await;
    assert_limited(&ninth, "principal.streams");
    assert_eq!(ninth.json()["id"], 9);
}

/// STA-23: the address guard answers before anything else is looked at, without an id.
#[tokio::test]
async fn sta_23_the_address_guard_refuses_before_the_credential() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with(
        "limits: { address: { rate: 1/h, burst: 3 } }",
        &open_tenant(&[("up", upstream.reach())], ""),
    );
    for _ in 0..3 {
        assert_eq!(gateway.ask(echo()).await.status, 200);
    }
    for request in [echo(), post(UP, "junk"), get(UP)] {
        let over = gateway.ask(request).await;
        let json = assert_refused("address", &over, 429, -31005);
        assert_eq!(json.get("id"), None);
        assert!(over.head.field("retry-after").is_some());
    }
    let elsewhere = gateway
        .ask(echo().field("X-Forwarded-For", "9.9.9.9"))
        .await;
    assert_eq!(elsewhere.status, 429, "no proxy is trusted");
}

/// Case 63: sessions that nobody ends do not add up: the longest idle ones without a stream go.
#[tokio::test]
async fn case_63_abandoned_sessions_do_not_add_up() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::start(&open_tenant(&[("up", upstream.reach())], ""));
    let first = Session::open(&gateway, UP, SESSIONS[0]).await;
    let held = Session::open(&gateway, UP, SESSIONS[0]).await;
    let mut stream = gateway.connect().await;
    stream.open(&held.get()).await.unwrap();
    let mut client = gateway.connect().await;
    for _ in 0..300 {
        let answer = client.ask(&initialize(UP, SESSIONS[0])).await.unwrap();
        assert_eq!(answer.status, 200, "{:?}", answer.body);
    }
    let idle = gateway.ask(first.call(1, "echo", &json!({}))).await;
    assert_refused("case 63", &idle, 404, -32600);
    let kept = gateway.ask(held.call(1, "echo", &json!({}))).await;
    assert_eq!(
        kept.status, 200,
        "a session with an open stream is not pushed out"
    );
    assert_eq!(text(&kept.json()), "{}");
}

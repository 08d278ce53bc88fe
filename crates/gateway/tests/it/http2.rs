//! T23: what HTTP/2 gives a peer to play with, frame by frame, and what a listener does about it. Every
//! flood ends with a good client that is served.

use serde_json::{Value, json};
use vestibule_testkit::H2Client;
use vestibule_testkit::h2_client::{H2Frame, block, code, flag, frame, kind};

use crate::harness::Gateway;
use crate::talk::{META, Upstream, modern_call, open_tenant};

/// The fields of a good call, the pseudo ones first.
const FIELDS: [(&str, &str); 9] = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/mcp/t/up"),
    (":authority", "127.0.0.1"),
    ("content-type", "application/json"),
    ("accept", "application/json, text/event-stream"),
    ("mcp-protocol-version", "2026-07-28"),
    ("mcp-method", "tools/call"),
    ("mcp-name", "echo"),
];

async fn house() -> (Upstream, Gateway) {
    let upstream = Upstream::modern().await;
    let top = "limits: { address: off }";
    let gateway = Gateway::with(top, &open_tenant(&[("up", upstream.reach())], ""));
    (upstream, gateway)
}

async fn connect(gateway: &Gateway) -> H2Client {
    H2Client::connect(gateway.bound.data).await.unwrap()
}

/// The call of a tool that answers with its arguments, or never.
fn body(tool: &str, id: u32) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{{"n":{id}}},{META}}}}}"#
    )
}

fn head_for(tool: &str) -> Vec<u8> {
    let mut fields = FIELDS;
    fields[8].1 = tool;
    block(&fields)
}

/// A whole call on a stream.
fn call(stream: u32, tool: &str) -> Vec<u8> {
    let mut bytes = frame(kind::HEADERS, flag::END_HEADERS, stream, &head_for(tool));
    let body = body(tool, stream);
    bytes.extend(frame(kind::DATA, flag::END_STREAM, stream, body.as_bytes()));
    bytes
}

fn reset(stream: u32) -> Vec<u8> {
    frame(
        kind::RST_STREAM,
        flag::NONE,
        stream,
        &code::CANCEL.to_be_bytes(),
    )
}

/// Streams of a client: odd numbers.
fn streams() -> impl Iterator<Item = u32> {
    (1..).step_by(2)
}

/// Another client, on HTTP/1.1 and on HTTP/2, is served.
async fn still_serves(gateway: &Gateway) {
    let answer = gateway
        .ask(modern_call("/mcp/t/up", "echo", &json!({})))
        .await;
    assert_eq!(answer.status, 200);
    let mut client = connect(gateway).await;
    client.send(&call(1, "echo")).await.unwrap();
    let answer = client.answer(1).await.unwrap().unwrap();
    assert_eq!(answer.status(), Some(200));
}

/// After the upstream is known: how many requests it has had.
async fn warmed(upstream: &Upstream, gateway: &Gateway) -> usize {
    still_serves(gateway).await;
    upstream.peer.requests().len()
}

/// T23: the limits are announced: 100 streams, windows of 64 KiB and 1 MiB, 64 KiB of headers.
#[tokio::test]
async fn t23_limits_are_announced() {
    let (_upstream, gateway) = house().await;
    let mut client = connect(&gateway).await;
    let setting = |number: u16| {
        let found = client.settings.iter().find(|(key, _)| *key == number);
        found.map(|(_, value)| *value)
    };
    assert_eq!(setting(3), Some(100), "streams at a time");
    // the default of a stream's window need not be said
    assert_eq!(
        setting(4).unwrap_or(65_535) / 1_000,
        65,
        "window of a stream"
    );
    assert_eq!(setting(6), Some(65_536), "header list");
    assert_eq!(setting(8), None, "no extended CONNECT");
    let update = client.next_of(kind::WINDOW_UPDATE).await.unwrap().unwrap();
    let more = u32::from_be_bytes(update.payload[..4].try_into().unwrap());
    assert_eq!(more + 65_535, 1 << 20, "window of the connection");
}

/// T23: the 101st stream is refused and harms no other; one that ends makes room.
#[tokio::test]
async fn t23_streams_beyond_the_limit_are_refused() {
    let (upstream, gateway) = house().await;
    let first = warmed(&upstream, &gateway).await;
    let mut client = connect(&gateway).await;
    let numbers: Vec<u32> = streams().take(102).collect();
    for number in &numbers[..100] {
        client.send(&call(*number, "hang")).await.unwrap();
    }
    upstream.peer.nth(first + 99).await;
    client.send(&call(numbers[100], "echo")).await.unwrap();
    let refused = client.answer(numbers[100]).await.unwrap().unwrap();
    assert_eq!(refused.error(), Some(code::REFUSED_STREAM));
    client.send(&reset(numbers[0])).await.unwrap();
    client.send(&call(numbers[101], "echo")).await.unwrap();
    let answer = client.answer(numbers[101]).await.unwrap().unwrap();
    assert_eq!(answer.status(), Some(200));
    assert_eq!(upstream.peer.requests().len(), first + 101);
}

/// T23, rapid reset (CVE-2023-44487): streams that are opened and reset in one breath end the
/// connection long before they are through.
#[tokio::test]
async fn t23_rapid_resets_end_the_connection() {
    let (upstream, gateway) = house().await;
    let mut client = connect(&gateway).await;
    let mut flood = Vec::new();
    for number in streams().take(5_000) {
        flood.extend(call(number, "hang"));
        flood.extend(reset(number));
    }
    // the peer may close before it has read everything
    client.send(&flood).await.ok();
    client.goodbye().await.unwrap();
    still_serves(&gateway).await;
    assert!(
        upstream.calls() < 1_000,
        "{} reached the upstream",
        upstream.calls()
    );
}

/// T23: the same with patience, each stream reset only when its call has gone through: more than half
/// of many streams given up within a second are too many.
#[tokio::test]
async fn t23_streams_given_up_again_and_again_end_the_connection() {
    let (upstream, gateway) = house().await;
    let first = warmed(&upstream, &gateway).await;
    let mut client = connect(&gateway).await;
    for (count, number) in streams().take(2_000).enumerate() {
        if client.send(&call(number, "hang")).await.is_err() {
            break;
        }
        let came = tokio::select! {
            _ = upstream.peer.nth(first + count) => true,
            // what else comes is the end of the connection
            _ = client.goodbye() => false,
        };
        if !came || client.send(&reset(number)).await.is_err() {
            break;
        }
    }
    client.goodbye().await.unwrap();
    still_serves(&gateway).await;
    let calls = upstream.calls();
    assert!((400..700).contains(&calls), "{calls} reached the upstream");
}

/// T23, CONTINUATION flood (RUSTSEC-2024-0332): a header block that does not end, empty, in small
/// pieces or large.
#[tokio::test]
async fn t23_header_blocks_without_end_end_the_connection() {
    let (upstream, gateway) = house().await;
    let large = block(&[("x-filler", &"y".repeat(16_000))]);
    for piece in [&b""[..], b"\0", &large] {
        let mut client = connect(&gateway).await;
        let mut flood = frame(kind::HEADERS, flag::END_STREAM, 1, &block(&FIELDS));
        for _ in 0..20_000 {
            flood.extend(frame(kind::CONTINUATION, flag::NONE, 1, piece));
            if flood.len() > 1 << 20 {
                break;
            }
        }
        client.send(&flood).await.ok();
        client.goodbye().await.unwrap();
        still_serves(&gateway).await;
    }
    let calls = upstream.calls();
    assert_eq!(calls, 6, "only what the good clients sent");
}

/// T23, HDR-23: headers above 64 KiB are refused on their stream, one above 24 KiB too; the connection
/// goes on.
#[tokio::test]
async fn t23_hdr_23_large_header_lists_are_431() {
    let (upstream, gateway) = house().await;
    let mut client = connect(&gateway).await;
    let filler = "y".repeat(15_000);
    let names = ["x-a", "x-b", "x-c", "x-d", "x-e"];
    for (number, count) in [(1, 5), (3, 4)] {
        let first = frame(kind::HEADERS, flag::END_STREAM, number, &block(&FIELDS));
        client.send(&first).await.unwrap();
        for (at, name) in names[..count].iter().enumerate() {
            let last = if at + 1 == count {
                flag::END_HEADERS
            } else {
                flag::NONE
            };
            let more = frame(kind::CONTINUATION, last, number, &block(&[(name, &filler)]));
            client.send(&more).await.unwrap();
        }
        let answer = client.answer(number).await.unwrap().unwrap();
        // 60 KB are within the limit: then it is the missing body that is wrong
        let wanted = if count == 5 { 431 } else { 400 };
        assert_eq!(answer.status(), Some(wanted));
    }
    client.send(&call(5, "echo")).await.unwrap();
    let answer = client.answer(5).await.unwrap().unwrap();
    assert_eq!(answer.status(), Some(200));
    assert_eq!(upstream.calls(), 1);
}

/// T23: pings, settings and updates of windows by the thousand are answered at most once each, while
/// others are served, and the connection is as good as before.
#[tokio::test]
async fn t23_pings_and_settings_are_answered_at_most_once() {
    let (_upstream, gateway) = house().await;
    let ping = frame(kind::PING, flag::NONE, 0, b"12345678");
    let settings = frame(kind::SETTINGS, flag::NONE, 0, &[0, 3, 0, 0, 0, 1]);
    let update = frame(kind::WINDOW_UPDATE, flag::NONE, 0, &[0, 0, 0, 1]);
    for one in [&ping, &settings, &update] {
        let mut client = connect(&gateway).await;
        client.send(&one.repeat(10_000)).await.unwrap();
        still_serves(&gateway).await;
        client.send(&call(1, "echo")).await.unwrap();
        let mut answered = 0;
        let answer = loop {
            let next = client.next().await.unwrap();
            match next {
                Some(H2Frame {
                    kind: kind::PING | kind::SETTINGS,
                    ..
                }) => answered += 1,
                Some(found) if found.kind == kind::HEADERS => break found,
                Some(_) => {}
                None => panic!("closed after {answered} answers"),
            }
        };
        assert_eq!(answer.status(), Some(200));
        assert!(answered <= 10_001, "{answered}: the opening settings, too");
    }
}

/// T23 (CVE-2025-8671): a peer that makes us reset streams again and again is sent away.
#[tokio::test]
async fn t23_resets_that_a_peer_provokes_end_the_connection() {
    let (_upstream, gateway) = house().await;
    let mut client = connect(&gateway).await;
    let malformed = block(&[&FIELDS[..], &[("connection", "close")]].concat());
    let mut flood = Vec::new();
    for number in streams().take(5_000) {
        flood.extend(frame(kind::HEADERS, flag::END_HEADERS, number, &malformed));
    }
    client.send(&flood).await.ok();
    let goodbye = client.goodbye().await.unwrap();
    assert_eq!(goodbye, Some(code::ENHANCE_YOUR_CALM));
    still_serves(&gateway).await;
}

/// T23: frames of data without data do not keep a body alive for ever.
#[tokio::test]
async fn t23_empty_frames_of_data_end_the_connection() {
    let (upstream, gateway) = house().await;
    let mut client = connect(&gateway).await;
    let mut flood = frame(kind::HEADERS, flag::END_HEADERS, 1, &head_for("echo"));
    flood.extend(frame(kind::DATA, flag::NONE, 1, b"").repeat(100_000));
    client.send(&flood).await.ok();
    client.goodbye().await.unwrap();
    still_serves(&gateway).await;
    assert_eq!(upstream.calls(), 2, "only what the good client sent");
}

/// T16, T18, T23: what HTTP/2 lets a peer write that HTTP/1.1 behind it would read as something else.
/// Nothing of it is a call.
#[tokio::test]
async fn t16_requests_that_are_malformed_in_http_2_are_refused() {
    let (upstream, gateway) = house().await;
    let with = |more: &[(&'static str, &'static str)]| {
        let mut fields = FIELDS.to_vec();
        fields.extend_from_slice(more);
        fields
    };
    let changed = |name: &str, value: &'static str| {
        let mut fields = FIELDS;
        for field in &mut fields {
            if field.0 == name {
                field.1 = value;
            }
        }
        fields.to_vec()
    };
    let without = |name: &str| {
        let mut fields = FIELDS.to_vec();
        fields.retain(|field| field.0 != name);
        fields
    };
    let cases = [
        ("a coding", with(&[("transfer-encoding", "chunked")])),
        ("a connection header", with(&[("connection", "close")])),
        ("keep-alive", with(&[("keep-alive", "1")])),
        ("proxy-connection", with(&[("proxy-connection", "close")])),
        ("an upgrade", with(&[("upgrade", "h2c")])),
        ("te", with(&[("te", "chunked")])),
        ("a length that is short", with(&[("content-length", "1")])),
        ("a length that is long", with(&[("content-length", "9999")])),
        ("a length of letters", with(&[("content-length", "x")])),
        (
            "two lengths",
            with(&[("content-length", "1"), ("content-length", "2")]),
        ),
        ("a name in capitals", with(&[("X-Y", "z")])),
        ("a name with a line end", with(&[("x\r\ny", "z")])),
        ("a name with a colon", with(&[("x:y", "z")])),
        ("an empty name", with(&[("", "z")])),
        ("a value with a line end", with(&[("x", "a\r\nhost: b")])),
        ("a value with LF", with(&[("x", "a\nb")])),
        ("a value with NUL", with(&[("x", "a\0b")])),
        (
            "a pseudo field behind others",
            with(&[(":path", "/mcp/t/up")]),
        ),
        ("an unknown pseudo field", with(&[(":x", "y")])),
        ("a field of answers", with(&[(":status", "200")])),
        ("another host", with(&[("host", "other.example")])),
        ("a second path", [&[(":path", "/x")], &FIELDS[..]].concat()),
        (
            "a second method",
            [&[(":method", "GET")], &FIELDS[..]].concat(),
        ),
        ("no method", without(":method")),
        ("no scheme", without(":scheme")),
        ("no path", without(":path")),
        ("an empty path", changed(":path", "")),
        (
            "a path with a line end",
            changed(":path", "/mcp/t/up HTTP/1.1\r\nhost: x"),
        ),
        ("a path with a blank", changed(":path", "/mcp/t/up x")),
        ("a path without a slash", changed(":path", "mcp/t/up")),
        ("a method with a blank", changed(":method", "POST /x")),
        ("another authority", changed(":authority", "other.example")),
        (
            "a user in the authority",
            changed(":authority", "127.0.0.1@other.example"),
        ),
        ("CONNECT", changed(":method", "CONNECT")),
    ];
    for (name, fields) in cases {
        let mut client = connect(&gateway).await;
        let fields: Vec<(&str, &str)> = fields;
        let mut bytes = frame(kind::HEADERS, flag::END_HEADERS, 1, &block(&fields));
        let body = body("echo", 1);
        bytes.extend(frame(kind::DATA, flag::END_STREAM, 1, body.as_bytes()));
        client.send(&bytes).await.unwrap();
        let answer = client.answer(1).await.unwrap();
        let status = answer.as_ref().and_then(H2Frame::status);
        assert!(
            status.is_none_or(|status| (400..500).contains(&status)),
            "{name}: {status:?}"
        );
    }
    assert_eq!(upstream.calls(), 0);
    still_serves(&gateway).await;
}

/// T16: trailers of a request end here, whatever they look like.
#[tokio::test]
async fn t16_trailers_in_http_2_are_passed_over() {
    let (upstream, gateway) = house().await;
    let mut client = connect(&gateway).await;
    let mut bytes = frame(kind::HEADERS, flag::END_HEADERS, 1, &block(&FIELDS));
    bytes.extend(frame(kind::DATA, flag::NONE, 1, body("echo", 1).as_bytes()));
    let trailers = block(&[("authorization", "Bearer x"), ("mcp-name", "hang")]);
    let ends = flag::END_HEADERS | flag::END_STREAM;
    bytes.extend(frame(kind::HEADERS, ends, 1, &trailers));
    client.send(&bytes).await.unwrap();
    let answer = client.answer(1).await.unwrap().unwrap();
    assert_eq!(answer.status(), Some(200));
    let sent = upstream.peer.call("tools/call").await;
    assert_eq!(sent.field("authorization"), None);
    assert_eq!(sent.field("mcp-name"), Some("echo"));
    let params: Value = sent.json()["params"].clone();
    assert_eq!(params["arguments"], json!({ "n": 1 }));
}

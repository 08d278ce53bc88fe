//! Credentials: who is let in, who is told how to come back, and that a session is no credential.

use serde_json::{Value, json};
use vestibule_testkit::{RawRequest, RawResponse};

use crate::harness::Gateway;
use crate::talk::{
    HOST, SESSIONS, Session, Upstream, assert_refused, get, initialize, modern_call, open_tenant,
    post, tenant, text,
};

/// A key of that id, of the form that is accepted.
pub(crate) fn key(id: &str, letter: &str) -> String {
    format!("vsk_{id}_{}", letter.repeat(43))
}

/// Two closed tenants over one upstream; `a` has the keys `one` and `two`, `narrow` opens only the
/// server `default`, `gone` has expired.
fn tenants(upstream: &Upstream) -> String {
    let a = format!(
        "    auth: {{ keys: true }}
    keys:
      one: {{ secret: \"{}\", subject: alice }}
      two: {{ secret: \"{}\", subject: bob }}
      narrow: {{ secret: \"{}\", servers: [default] }}
      gone: {{ secret: \"{}\", expires: 2020-01-01 }}",
        key("one", "A"),
        key("two", "B"),
        key("narrow", "C"),
        key("gone", "D"),
    );
    let b = format!(
        "    auth: {{ keys: true }}\n    keys:\n      one: {{ secret: \"{}\" }}",
        key("one", "E")
    );
    let up = [("up", upstream.reach())];
    format!("{}{}", tenant("a", &a, &up, ""), tenant("b", &b, &up, ""))
}

async fn house() -> (Upstream, Gateway) {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::start(&tenants(&upstream));
    (upstream, gateway)
}

fn bearing(request: RawRequest, key: &str) -> RawRequest {
    request.field("Authorization", format!("Bearer {key}"))
}

fn call(target: &str) -> RawRequest {
    modern_call(target, "echo", &json!({}))
}

fn challenge(answer: &RawResponse) -> &str {
    answer.head.field("www-authenticate").unwrap_or_default()
}

/// STA-02, AUT-07: every refusal is a challenge; `error` only where a credential was shown; the
/// body has no id, it was not read.
#[tokio::test]
async fn case_9_every_401_carries_the_challenge() {
    let (upstream, gateway) = house().await;
    let none = r#"Bearer realm="a""#;
    let invalid = r#"Bearer realm="a", error="invalid_token""#;
    let whole = key("one", "A");
    let bearer = |token: &str| format!("Bearer {token}");
    for (authorization, expected) in [
        (None, none),
        (Some("Basic Zm9v".to_owned()), none),
        (Some(whole.clone()), none),
        (Some("Bearer".to_owned()), invalid),
        (Some(bearer("x")), invalid),
        (Some(bearer(&key("one", "Z"))), invalid),
        (Some(bearer(&key("nobody", "A"))), invalid),
        (Some(bearer(&key("two", "A"))), invalid),
        (Some(bearer(&key("gone", "D"))), invalid),
        (Some(bearer(&whole.to_lowercase())), invalid),
        (Some(bearer(&format!("{whole}x"))), invalid),
        (Some(bearer(whole.get(..whole.len() - 1).unwrap())), invalid),
        (
            Some(bearer(
                "vsa_ops_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
            )),
            invalid,
        ),
        (Some(bearer("eyJhbGciOiJub25lIn0.e30.")), invalid),
        (Some(bearer(&"t".repeat(9_000))), invalid),
    ] {
        for request in [
            call("/mcp/a/up"),
            post("/mcp/a/up", "junk"),
            get("/mcp/a/up"),
        ] {
            let request = match &authorization {
                Some(value) => request.field("Authorization", value),
                None => request,
            };
            let answer = gateway.ask(request).await;
            let json = assert_refused("case 9", &answer, 401, -32600);
            assert_eq!(json.get("id"), None, "{authorization:?}");
            assert_eq!(challenge(&answer), expected, "{authorization:?}");
        }
    }
    assert!(upstream.peer.requests().is_empty(), "nobody was let in");
}

/// STA-03: two credentials, or one in the query.
#[tokio::test]
async fn sta_03_t21_two_credentials_or_one_in_the_query_are_400() {
    let (_upstream, gateway) = house().await;
    let good = key("one", "A");
    let twice = bearing(bearing(call("/mcp/a"), &good), &good);
    let in_query = call(&format!("/mcp/a?access_token={good}"));
    let both = bearing(call(&format!("/mcp/a?access_token={good}")), &good);
    for request in [twice, in_query, both] {
        let answer = gateway.ask(request).await;
        assert_refused("STA-03", &answer, 400, -32600);
        assert!(challenge(&answer).contains(r#"error="invalid_request""#));
    }
}

/// AUT-01, HDR-22, case 4: each key opens its own tenant and servers, on every request.
#[tokio::test]
async fn case_4_a_key_opens_its_own_tenant_and_servers_alone() {
    let (_upstream, gateway) = house().await;
    for (target, key, status) in [
        ("/mcp/a", key("one", "A"), 200),
        ("/mcp/a/up", key("two", "B"), 200),
        ("/mcp/a", key("narrow", "C"), 200),
        ("/mcp/a/up", key("narrow", "C"), 401),
        ("/mcp/b/up", key("one", "E"), 200),
        ("/mcp/b/up", key("one", "A"), 401),
        ("/mcp/a/up", key("one", "E"), 401),
        ("/mcp/none", key("one", "A"), 404),
        ("/mcp/a/none", key("one", "A"), 404),
    ] {
        let answer = gateway.ask(bearing(call(target), &key)).await;
        assert_eq!(answer.status, status, "{target} {key}: {:?}", answer.body);
    }
    // SES-02: the session does not stand for the credential
    let session = Session::with_key(&gateway, "/mcp/a/up", &key("one", "A")).await;
    for request in [
        session.call(1, "echo", &json!({})),
        session.get(),
        session.delete(),
    ] {
        let answer = gateway.ask(request.without("Authorization")).await;
        assert_eq!(answer.status, 401);
    }
}

/// SES-02, STA-06: another caller, server or tenant gets what an unknown session gets, byte for
/// byte, on every verb; the owner is unaffected.
#[tokio::test]
async fn case_95_a_session_id_works_for_its_owner_alone() {
    let (upstream, gateway) = house().await;
    let mine = Session::with_key(&gateway, "/mcp/a/up", &key("one", "A")).await;
    let mut stream = gateway.connect().await;
    stream.open(&mine.get()).await.unwrap();
    let last = stream.next_event().await.unwrap().unwrap().id.unwrap();
    let intruders = [
        ("/mcp/a/up", key("two", "B")),
        ("/mcp/a", key("one", "A")),
        ("/mcp/b/up", key("one", "E")),
    ];
    for (target, key) in intruders {
        let as_intruder = |method: &str, id: &str| {
            let request = match method {
                "POST" => post(target, r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#),
                "NOTE" => post(target, r#"{"jsonrpc":"2.0","method":"notifications/foo"}"#),
                "ANSWER" => post(target, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#),
                "DELETE" => RawRequest::new("DELETE", target).field("Host", HOST),
                _ => get(target),
            };
            let request = if method == "RESUME" {
                request.field("Last-Event-ID", &last)
            } else {
                request
            };
            bearing(request, &key).field("Mcp-Session-Id", id)
        };
        for method in ["POST", "NOTE", "ANSWER", "GET", "RESUME", "DELETE"] {
            let answer = gateway.ask(as_intruder(method, &mine.id)).await;
            assert_refused(method, &answer, 404, -32600);
            let unknown = gateway.ask(as_intruder(method, &"x".repeat(43))).await;
            assert_eq!(
                (answer.status, &answer.body),
                (unknown.status, &unknown.body)
            );
        }
        let open = bearing(initialize(target, SESSIONS[0]), &key).field("Mcp-Session-Id", &mine.id);
        assert_eq!(
            gateway.ask(open).await.status,
            200,
            "LIF-07: a fresh session"
        );
    }
    let still = gateway
        .ask(mine.call(1, "echo", &json!({ "mine": true })))
        .await;
    assert_eq!(text(&still.json()), r#"{"mine":true}"#);
    assert_eq!(upstream.calls(), 1);
}

/// Case 109, case 111: an unknown session is 404 with a JSON-RPC body on every kind of message; a
/// missing one is 400.
#[tokio::test]
async fn case_109_case_111_an_unknown_session_is_404_with_a_json_rpc_body() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::start(&open_tenant(&[("up", upstream.reach())], ""));
    let session = Session::open(&gateway, "/mcp/t/up", SESSIONS[0]).await;
    let dead = |request: RawRequest| {
        request
            .without("Mcp-Session-Id")
            .field("Mcp-Session-Id", "dead")
    };
    let request = session.request(1, "tools/list", &json!({}));
    let answer = gateway.ask(dead(request)).await;
    let json = assert_refused("case 111", &answer, 404, -32600);
    assert_eq!(json["id"], 1);
    assert_eq!(json["error"]["message"], "session not found");
    for other in [
        session.notify("notifications/foo", &json!({})),
        session.post(&json!({ "jsonrpc": "2.0", "id": 5, "result": {} })),
        session.get(),
        session.delete(),
    ] {
        let answer = gateway.ask(dead(other)).await;
        let json = assert_refused("case 109", &answer, 404, -32600);
        assert_eq!(json.get("id"), None, "only a request's id is echoed");
    }
    for missing in [
        session.request(1, "tools/list", &json!({})),
        session.notify("notifications/foo", &json!({})),
        session.delete(),
    ] {
        let answer = gateway.ask(missing.without("Mcp-Session-Id")).await;
        assert_refused("case 109", &answer, 400, -32600);
    }
}

/// HDR-06, EL-29: a constant-size opaque id whatever stands behind; a flipped bit is 404.
#[tokio::test]
async fn case_119_hdr_06_session_ids_are_opaque_and_of_one_size() {
    let upstream = Upstream::modern().await;
    let names: Vec<String> = (0..60).map(|n| format!("up{n}")).collect();
    let many: Vec<(&str, String)> = names
        .iter()
        .map(|name| (name.as_str(), upstream.reach()))
        .collect();
    let gateway = Gateway::start(&open_tenant(&many, ""));
    let mut ids = Vec::new();
    for target in ["/mcp/t", "/mcp/t/up0", "/mcp/t", "/mcp/t/up59"] {
        let answer = gateway.ask(initialize(target, SESSIONS[0])).await;
        let id = answer.head.field("mcp-session-id").unwrap().to_owned();
        assert_eq!(id.len(), 43);
        assert!(
            id.bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
        );
        ids.push((target, id));
    }
    for (index, (target, id)) in ids.iter().enumerate() {
        assert!(ids.iter().skip(index + 1).all(|(_, other)| other != id));
        for at in [0, 20, 42] {
            let mut bytes = id.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'Q' } else { b'A' };
            let flipped = String::from_utf8(bytes).unwrap();
            let ping = post(target, r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
            let answer = gateway.ask(ping.field("Mcp-Session-Id", &flipped)).await;
            assert_refused("case 119", &answer, 404, -32600);
        }
    }
}

/// Case 116: `sessions: optional` serves clients that never send the id back; by default they are
/// told what to do.
#[tokio::test]
async fn case_116_clients_that_never_send_the_session_back() {
    let upstream = Upstream::modern().await;
    let list = || {
        post(
            "/mcp/t/up",
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#,
        )
    };
    let strict = Gateway::start(&open_tenant(&[("up", upstream.reach())], ""));
    let answer = strict.ask(list()).await;
    let json = assert_refused("case 116", &answer, 400, -32600);
    let message = json["error"]["message"].as_str().unwrap();
    assert!(message.contains("Mcp-Session-Id"), "{message}");

    let tenant = open_tenant(&[("up", upstream.reach())], "sessions: optional");
    let lenient = Gateway::start(&tenant);
    assert_eq!(
        lenient
            .ask(initialize("/mcp/t/up", SESSIONS[1]))
            .await
            .status,
        200
    );
    let note = post(
        "/mcp/t/up",
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    );
    assert_eq!(lenient.ask(note).await.status, 202);
    for version in [None, Some(SESSIONS[1])] {
        let request = match version {
            Some(version) => list().field("MCP-Protocol-Version", version),
            None => list(),
        };
        let answer = lenient.ask(request).await;
        assert_eq!(answer.status, 200);
        let result = answer.json()["result"].clone();
        assert!(result["tools"].is_array());
        assert_eq!(result.get("resultType"), None);
    }
    let call = r#"{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"echo","arguments":{"x":1}}}"#;
    let answer = lenient.ask(post("/mcp/t/up", call)).await.json();
    assert_eq!((&answer["id"], text(&answer)), (&json!("a"), r#"{"x":1}"#));
}

/// Case 100: names are bytes; what differs in any of them is unknown and reaches nobody.
#[tokio::test]
async fn case_100_names_are_compared_byte_for_byte() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::start(&open_tenant(&[("up", upstream.reach())], ""));
    let session = Session::open(&gateway, "/mcp/t", SESSIONS[0]).await;
    for name in [
        "up__Echo",
        "UP__echo",
        "up__echo ",
        " up__echo",
        "up__ｅcho",
        "up__e\u{301}cho",
        "up__echo\u{0}",
        "echo",
        "up_echo",
        "",
    ] {
        let answer = gateway.ask(session.call(1, name, &json!({}))).await;
        assert_eq!(answer.status, 200, "{name:?}");
        assert_eq!(answer.json()["error"]["code"], -32602, "{name:?}");
    }
    assert_eq!(upstream.calls(), 0);
    let good = gateway.ask(session.call(1, "up__echo", &json!({}))).await;
    assert!(good.json()["result"].is_object());
}

/// T36: nothing of the request flows into a challenge or a refusal.
#[tokio::test]
async fn case_1_t36_the_challenge_says_nothing_of_the_request() {
    let (_upstream, gateway) = house().await;
    let request = call("/mcp/a?x=reflected")
        .field("X-Forwarded-Host", "reflected.example")
        .field("X-Forwarded-Proto", "https")
        .field("User-Agent", "reflected");
    let answer = gateway.ask(request).await;
    assert_eq!(answer.status, 401);
    let shown = format!(
        "{:?} {}",
        answer.head,
        String::from_utf8_lossy(&answer.body)
    );
    assert!(!shown.contains("reflected"), "{shown}");
    assert_ne!(answer.json()["error"], Value::Null);
}

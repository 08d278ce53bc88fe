//! Host and Origin: who may speak to this address from a browser, and what the browser may see.

use serde_json::json;
use vestibule_testkit::{RawRequest, RawResponse};

use crate::harness::Gateway;
use crate::talk::{
    HOST, SESSIONS, Session, Upstream, assert_refused, get, initialize, modern_call, open_tenant,
    post, tenant,
};

const PATH: &str = "/mcp/t/up";

fn listed(upstream: &Upstream) -> String {
    let head =
        "    auth: none\n    origins: [\"https://good.example\", \"https://ported.example:8443\"]";
    tenant("t", head, &[("up", upstream.reach())], "")
}

fn preflight(origin: &str) -> RawRequest {
    RawRequest::new("OPTIONS", PATH)
        .field("Host", HOST)
        .field("Origin", origin)
        .field("Access-Control-Request-Method", "POST")
        .field(
            "Access-Control-Request-Headers",
            "authorization,mcp-protocol-version,mcp-param-region",
        )
}

fn vary(answer: &RawResponse) -> String {
    answer
        .head
        .all("vary")
        .collect::<Vec<_>>()
        .join(", ")
        .to_lowercase()
}

/// ORG-01 … ORG-03, STA-01, T19: on every method, the preflight included, before everything else.
#[tokio::test]
async fn org_01_sta_01_t19_only_listed_origins_may_speak() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::start(&listed(&upstream));
    let requests = || {
        [
            modern_call(PATH, "echo", &json!({})),
            post(PATH, "junk").without("Content-Type"),
            get(PATH),
            RawRequest::new("DELETE", PATH).field("Host", HOST),
            RawRequest::new("PATCH", PATH).field("Host", HOST),
            RawRequest::new("OPTIONS", PATH)
                .field("Host", HOST)
                .field("Access-Control-Request-Method", "POST"),
        ]
    };
    for bad in [
        "null",
        "https://good.example.evil.com",
        "https://good.example:444",
        "http://good.example",
        "https://good.example@evil.com",
        "https://evil.com",
        "https://sub.good.example",
        "https://good.example/",
        "https://ported.example",
        "http://localhost:3000",
        "good.example",
        "",
    ] {
        for request in requests() {
            let answer = gateway.ask(request.field("Origin", bad)).await;
            let json = assert_refused(bad, &answer, 403, -31006);
            assert_eq!(json.get("id"), None, "{bad}");
            assert_eq!(
                answer.head.field("access-control-allow-origin"),
                None,
                "{bad}"
            );
        }
    }
    let twice = modern_call(PATH, "echo", &json!({}))
        .field("Origin", "https://good.example")
        .field("Origin", "https://good.example");
    assert_refused("T19 twice", &gateway.ask(twice).await, 403, -31006);
    assert_eq!(upstream.calls(), 0);
    for good in ["https://good.example", "https://ported.example:8443"] {
        let request = modern_call(PATH, "echo", &json!({})).field("Origin", good);
        let answer = gateway.ask(request).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.head.field("access-control-allow-origin"), Some(good));
    }
    let absent = gateway.ask(modern_call(PATH, "echo", &json!({}))).await;
    assert_eq!(absent.status, 200, "ORG-03");
}

/// ORG-01: without a list a loopback listener takes loopback origins of any port.
#[tokio::test]
async fn org_01_a_loopback_listener_takes_loopback_origins() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::start(&open_tenant(&[("up", upstream.reach())], ""));
    for good in [
        "http://localhost:6274",
        "https://localhost",
        "http://127.0.0.1:1",
        "http://[::1]:9",
    ] {
        let request = modern_call(PATH, "echo", &json!({})).field("Origin", good);
        assert_eq!(gateway.ask(request).await.status, 200, "{good}");
    }
    for bad in [
        "http://localhost.evil.com",
        "http://127.0.0.1.evil.com",
        "http://0.0.0.0:1",
        "null",
    ] {
        let request = modern_call(PATH, "echo", &json!({})).field("Origin", bad);
        assert_refused(bad, &gateway.ask(request).await, 403, -31006);
    }
}

/// ORG-04, T18: names that this listener does not go by.
#[tokio::test]
async fn org_04_t18_other_host_names_are_refused() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::start(&open_tenant(&[("up", upstream.reach())], ""));
    let port = gateway.bound.data.port();
    let call = || modern_call(PATH, "echo", &json!({})).without("Host");
    for bad in [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "0.0.0.0",
        "localhost@evil.example",
        "",
    ] {
        let answer = gateway.ask(call().field("Host", bad)).await;
        assert!(
            [400, 403].contains(&answer.status),
            "{bad}: {}",
            answer.status
        );
    }
    assert!(
        [400, 403].contains(&gateway.ask(call()).await.status),
        "none"
    );
    let twice = call().field("Host", HOST).field("Host", "evil.example");
    assert!([400, 403].contains(&gateway.ask(twice).await.status));
    assert_eq!(upstream.calls(), 0);
    for good in [
        "localhost".to_owned(),
        format!("127.0.0.1:{port}"),
        format!("[::1]:{port}"),
        "LOCALHOST".to_owned(),
    ] {
        assert_eq!(
            gateway.ask(call().field("Host", &good)).await.status,
            200,
            "{good}"
        );
    }
}

/// ORG-05: the preflight is answered before authentication.
#[tokio::test]
async fn case_141_a_preflight_needs_no_credential() {
    let upstream = Upstream::modern().await;
    let head = "    auth: { keys: true }\n    keys: {}\n    origins: [\"https://good.example\"]";
    let gateway = Gateway::start(&tenant("t", head, &[("up", upstream.reach())], ""));
    let answer = gateway.ask(preflight("https://good.example")).await;
    assert_eq!(answer.status, 204);
    assert!(answer.body.is_empty());
    let field = |name: &str| answer.head.field(name).unwrap_or_default().to_lowercase();
    assert_eq!(field("access-control-allow-origin"), "https://good.example");
    for method in ["post", "get", "delete"] {
        assert!(field("access-control-allow-methods").contains(method));
    }
    for header in [
        "authorization",
        "content-type",
        "accept",
        "mcp-protocol-version",
        "mcp-session-id",
        "last-event-id",
        "mcp-method",
        "mcp-name",
        "mcp-param-region",
        "traceparent",
    ] {
        assert!(
            field("access-control-allow-headers").contains(header),
            "{header}"
        );
    }
    assert!(vary(&answer).contains("origin"));
    let evil = gateway.ask(preflight("https://evil.example")).await;
    assert_eq!(evil.status, 403);
}

/// ORG-05: a browser's code can read sessions, challenges and when to come back, on errors too.
#[tokio::test]
async fn case_143_answers_of_every_kind_are_visible_to_the_browser() {
    let upstream = Upstream::modern().await;
    let guarded = format!(
        "{}{}",
        listed(&upstream),
        tenant(
            "k",
            "    auth: { keys: true }\n    keys: {}\n    origins: [\"https://good.example\"]",
            &[("up", upstream.reach())],
            ""
        ),
    );
    let none = "{ rate: 1/s, burst: 0 }";
    let limited = format!(
        "  l:\n    auth: none\n    policy: allow_all\n    origins: [\"https://good.example\"]\n    limits: {{ tenant: {none} }}\n    upstreams:\n      up: {{ {} }}\n",
        upstream.reach()
    );
    let gateway = Gateway::start(&format!("{guarded}{limited}"));
    for (target, status) in [
        (PATH, 200),
        ("/mcp/k/up", 401),
        ("/mcp/l", 429),
        ("/mcp/t/none", 404),
    ] {
        let origin = "https://good.example";
        let answer = gateway
            .ask(initialize(target, SESSIONS[0]).field("Origin", origin))
            .await;
        if status == 404 {
            // no tenant, no list: only what every page may see
            assert!([403, 404].contains(&answer.status));
            continue;
        }
        assert_eq!(answer.status, status, "{target}: {:?}", answer.body);
        let exposed = answer.head.field("access-control-expose-headers").unwrap();
        let exposed = exposed.to_lowercase();
        for header in ["mcp-session-id", "www-authenticate", "retry-after"] {
            assert!(exposed.contains(header), "{target}: {exposed}");
        }
        assert_eq!(
            answer.head.field("access-control-allow-origin"),
            Some(origin)
        );
        assert!(vary(&answer).contains("origin"));
    }
    let session = Session::open(&gateway, PATH, SESSIONS[0]).await;
    let bad = [
        get(&format!("{PATH}?sse=x")),
        post(PATH, "{"),
        session
            .get()
            .without("Mcp-Session-Id")
            .field("Mcp-Session-Id", "dead"),
    ];
    for request in bad {
        let answer = gateway
            .ask(request.field("Origin", "https://good.example"))
            .await;
        assert!(answer.status >= 400);
        assert!(
            answer.head.field("access-control-allow-origin").is_some(),
            "{}",
            answer.status
        );
    }
}

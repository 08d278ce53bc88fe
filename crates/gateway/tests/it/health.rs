//! The pages that orchestrators and dashboards read.

use serde_json::json;
use vestibule_testkit::{RawClient, RawRequest, RawResponse};

use crate::harness::Gateway;
use crate::talk::{HOST, SESSIONS, Session, Upstream, get, modern_call, open_tenant};

async fn page(gateway: &Gateway, request: RawRequest) -> RawResponse {
    let mut client = RawClient::connect(gateway.bound.admin).await.unwrap();
    client.ask(&request).await.unwrap()
}

fn at(path: &str) -> RawRequest {
    RawRequest::new("GET", path).field("Host", HOST)
}

/// Case 68: alive means progress, ready means configured, reached and not draining; neither asks
/// upstreams.
#[tokio::test]
async fn case_68_health_does_not_depend_on_upstreams() {
    let gateway = Gateway::start(&open_tenant(
        &[("up", crate::talk::at("http://127.0.0.1:9/mcp"))],
        "",
    ));
    let failed = gateway.ask(modern_call("/mcp/t/up", "x", &json!({}))).await;
    assert_eq!(failed.json()["error"]["code"], -31001);
    for path in ["/livez", "/readyz"] {
        let answer = page(&gateway, at(path)).await;
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.head.field("content-type"), Some("application/json"));
        assert!(answer.json()["reasons"].as_array().unwrap().is_empty());
    }
    // probes come with any Host, and no Origin is asked after
    let probe = RawRequest::new("GET", "/readyz")
        .field("Host", "10.1.2.3:8081")
        .field("Origin", "https://evil.example");
    assert_eq!(page(&gateway, probe).await.status, 200);
    gateway.stop.announced.cancel();
    let unready = loop {
        let answer = page(&gateway, at("/readyz")).await;
        if answer.status != 200 {
            break answer;
        }
    };
    assert_eq!(unready.status, 503);
    assert!(unready.json()["reasons"].to_string().contains("draining"));
    assert_eq!(page(&gateway, at("/livez")).await.status, 200);
}

/// The planes do not meet: no page of one is served by the other.
#[tokio::test]
async fn the_planes_are_apart() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::start(&open_tenant(&[("up", upstream.reach())], ""));
    for path in [
        "/livez",
        "/readyz",
        "/metrics",
        "/admin/",
        "/admin/v1/tenants",
    ] {
        assert_eq!(gateway.ask(get(path)).await.status, 404, "{path}");
    }
    for path in ["/mcp", "/mcp/t", "/admin/", "/admin/v1/tenants", "/"] {
        assert_eq!(page(&gateway, at(path)).await.status, 404, "{path}");
    }
}

/// The metrics that dashboards use, with the labels of the contract.
#[tokio::test]
async fn metrics_count_requests_sessions_and_streams() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::start(&open_tenant(&[("up", upstream.reach())], ""));
    let session = Session::open(&gateway, "/mcp/t/up", SESSIONS[0]).await;
    let mut stream = gateway.connect().await;
    stream.open(&session.get()).await.unwrap();
    gateway
        .ask(modern_call("/mcp/t/up", "echo", &json!({})))
        .await;
    gateway
        .ask(modern_call("/mcp/t/up", "nothing-of-that-name", &json!({})))
        .await;
    gateway.ask(crate::talk::post("/mcp/t/up", "{")).await;
    gateway.ask(get("/mcp/elsewhere")).await;
    let answer = page(&gateway, at("/metrics")).await;
    assert!(
        answer
            .head
            .field("content-type")
            .unwrap()
            .starts_with("text/plain")
    );
    let text = String::from_utf8(answer.body.to_vec()).unwrap();
    for line in [
        r#"vestibule_requests_total{method="tools/call",outcome="ok",revision="2026-07-28",server="up",tenant="t"} 1"#,
        r#"vestibule_sessions{revision="2025-11-25",tenant="t"} 1"#,
        r#"vestibule_streams{kind="get",tenant="t"} 1"#,
        r#"vestibule_upstream_up{tenant="t",upstream="up"} 1"#,
        "vestibule_store_up 1",
        "vestibule_build_info{",
        "vestibule_overhead_seconds_bucket{",
        "vestibule_request_duration_seconds_bucket{",
        "vestibule_upstream_requests_total{",
        "vestibule_rejected_frames_total{reason=",
        "vestibule_client_address_suspect",
    ] {
        assert!(
            text.lines().any(|shown| shown.starts_with(line)),
            "{line}\n{text}"
        );
    }
    assert!(text.contains(r#"tenant="_unknown""#), "{text}");
    for chosen in ["nothing-of-that-name", "elsewhere"] {
        assert!(
            !text.contains(chosen),
            "no label takes what a caller chose: {chosen}"
        );
    }
}

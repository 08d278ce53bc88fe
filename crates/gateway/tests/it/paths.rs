//! T27: addresses are compared byte for byte. Nothing is decoded, normalised or redirected, so that no
//! two readers of a path can mean different places.

use serde_json::{Value, json};
use vestibule_testkit::RawRequest;

use crate::harness::Gateway;
use crate::talk::{HOST, Upstream, assert_refused, modern, modern_call, open_tenant};

async fn house() -> (Upstream, Gateway) {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::start(&open_tenant(&[("up", upstream.reach())], ""));
    (upstream, gateway)
}

fn call(target: &str) -> RawRequest {
    modern(
        target,
        1,
        "tools/call",
        json!({ "name": "echo", "arguments": {} }),
    )
}

/// T27: other spellings of a good address are nowhere: 404, and no redirect.
#[tokio::test]
async fn t27_other_spellings_of_an_address_are_404() {
    let (upstream, gateway) = house().await;
    for target in [
        "//mcp/t/up",
        "///mcp/t/up",
        "/mcp//t/up",
        "/mcp/t//up",
        "/mcp/t/up//",
        "/./mcp/t/up",
        "/mcp/./t/up",
        "/mcp/t/up/.",
        "/mcp/t/up/..",
        "/mcp/x/../t/up",
        "/mcp/t/x/../up",
        "/../mcp/t/up",
        "/mcp/t/..;/t/up",
        "/mcp/%2e/t/up",
        "/mcp/x/%2e%2e/t/up",
        "/mcp/x/..%2ft/up",
        "/mcp/t%2fup",
        "/mcp/t%2Fup",
        "/mcp%2ft/up",
        "/%6dcp/t/up",
        "/mcp/%74/up",
        "/mcp/t/%75p",
        "/mcp/t/up%00",
        "/mcp/t/up%20",
        "/mcp/t/up%0a",
        "/mcp/t/up%0d%0aX:y",
        "/mcp/t/up%",
        "/mcp/t/up%zz",
        "/mcp/%252e%252e/t/up",
        "/mcp/t%c0%afup",
        "/mcp;x/t/up",
        "/mcp/t;x/up",
        "/mcp/t/up;x",
        "/mcp/t/up;.json",
        "/mcp/t/up.json",
        "/mcp\\t\\up",
        "/mcp/t\\up",
        "/MCP/t/up",
        "/mcp/T/up",
        "/mcp/t/UP",
        "/mcp/t/up/x",
        "/mcp.php/t/up",
        "/mcp/t/up:80",
        "/mcp/t/up@x",
        "/mcp/t/u_p",
        "/mcp/t/up~",
        "/mcp/t/up,",
        "/mcp/t/up+",
        "/mcp/t/up'",
        "/mcp/t/up|x",
        "/admin/v1/tenants",
        "/metrics",
        "/livez",
    ] {
        let answer = gateway.ask(call(target)).await;
        assert_eq!(answer.status, 404, "{target}: {:?}", answer.body);
        assert_refused(target, &answer, 404, -32600);
        assert_eq!(answer.head.field("location"), None, "{target}");
    }
    assert_eq!(upstream.calls(), 0);
}

/// T27: targets that are no path: none of them is a call, and nothing of them is fatal.
#[tokio::test]
async fn t27_targets_of_other_forms_reach_nobody() {
    let (upstream, gateway) = house().await;
    for (target, statuses) in [
        // another authority than Host names
        ("http://other.example/mcp/t/up", &[400][..]),
        ("https://127.0.0.1:1/mcp/t/up", &[400]),
        ("http://user@127.0.0.1/mcp/t/up", &[400]),
        // no path at all
        ("*", &[400, 404]),
        ("127.0.0.1:80", &[400, 404]),
        ("127.0.0.1", &[400, 404]),
        ("mcp/t/up", &[400, 404]),
        ("?x=/mcp/t/up", &[400, 404]),
        ("http://127.0.0.1", &[400, 404]),
        ("http:///mcp/t/up", &[400]),
        ("file:///mcp/t/up", &[400]),
        // bytes that no target has
        ("/mcp/t/up#x", &[400]),
        ("/mcp/t/up x", &[400]),
        ("/mcp/t/up\0", &[400]),
        ("/mcp/t/up\tx", &[400]),
        ("/mcp/t/up\u{7f}", &[400]),
        ("/mcp/t/up\u{e9}", &[400, 404]),
        ("", &[400]),
    ] {
        let answer = gateway.ask(call(target)).await;
        assert!(
            statuses.contains(&answer.status),
            "{target:?}: {} {:?}",
            answer.status,
            answer.body
        );
    }
    assert_eq!(upstream.calls(), 0);
    // the one other form that names the same place for everybody
    let absolute = gateway.ask(call("http://127.0.0.1/mcp/t/up")).await;
    assert_eq!(absolute.status, 200);
    assert_eq!(gateway.ask(call("/mcp/t/up?a=/../x%00")).await.status, 200);
}

/// T27: methods that an address does not have are 405 and name those it has.
#[tokio::test]
async fn t27_unknown_methods_are_405() {
    let (upstream, gateway) = house().await;
    for method in [
        "PUT", "PATCH", "HEAD", "TRACE", "PROPFIND", "post", "Post", "POSTS", "PRI", "_",
    ] {
        let request = RawRequest::mcp(HOST, "/mcp/t/up", &Value::Null);
        let bytes = String::from_utf8(request.bytes()).unwrap();
        let bytes = bytes.replacen("POST", method, 1);
        let mut client = gateway.connect().await;
        client.send(bytes.as_bytes()).await.unwrap();
        let head = client.head().await.unwrap();
        assert!(head.start.contains(" 405 "), "{method}: {}", head.start);
        let allow = head.field("allow").unwrap_or_default();
        assert!(allow.contains("POST"), "{method}: {allow}");
    }
    let connect = RawRequest::new("CONNECT", "127.0.0.1:80").field("Host", HOST);
    let answer = gateway.ask(connect).await;
    assert!(
        matches!(answer.status, 400 | 404 | 405),
        "{}",
        answer.status
    );
    let all = RawRequest::new("OPTIONS", "*").field("Host", HOST);
    let answer = gateway.ask(all).await;
    assert!(
        matches!(answer.status, 400 | 404 | 405),
        "{}",
        answer.status
    );
    assert_eq!(upstream.calls(), 0);
    let alive = modern_call("/mcp/t/up", "echo", &json!({}));
    assert_eq!(gateway.ask(alive).await.status, 200);
}
